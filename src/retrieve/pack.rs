//! Packing of the answer into its budget, in three passes: a sentence for each unit, the passages found, and the
//! passages around them. What is too weak beside the best match is left out even if there is room.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use embed::Tokenizer;
use index::Reader;
use knowledge::unit::is_unreviewed;
use knowledge::{CountTokens as _, Relation, UnitId, text};

use crate::answer::{Answer, FoundUnit, LOCAL, LeftOut, Passage, Review};
use crate::draw;
use crate::error::Error;
use crate::expand::Path;
use crate::floor::MEANING_MIN;
use crate::lexical::is_form_of;
use crate::model_rerank::Ranking;
use crate::output_filter::OutputFilter;
use crate::question::{BUDGET_TOKENS_MIN, Depth, Query};
use crate::render;
use crate::rerank::age_days;
use crate::scored::Scored;
use crate::search::Trace;
use crate::shortlist::{Ranked, shortlist, summary};

/// A passage is shortened to the rest of the budget, but not below this.
const CUT_TOKENS_MIN: usize = 40;
/// The limit of units that were found by a relation only, the most closely related first.
const RELATED_MAX: usize = 2;
/// A unit that a model scores so high "clearly helps", and is shown even if it is weak by the local score. A low score
/// removes nothing: a unit may have misled the model about the others.
const JUDGED_MIN: f64 = 7.0;
const WORDS_NAMED_MAX: usize = 5;

#[cfg(test)]
mod tests;

pub(crate) fn pack(
    snapshot: &dyn Reader,
    query: &Query,
    trace: &Trace,
    ranking: Option<&Ranking>,
    tokenizer: &Tokenizer,
    filter: &dyn OutputFilter,
) -> Result<Answer, Error> {
    let mut units = shortlist(snapshot, query, trace)?;
    let weak = weak_units(&units);
    if let Some(ranking) = ranking {
        ranking.apply(&mut units);
    }
    let left_out = leave_out(&mut units, &weak, filter);
    let learning = query.learning.as_ref().map(|learning| {
        let mut data = draw::learning_data(snapshot, query.vector.as_deref(), &units, learning);
        if let (Some(exploration), None) = (learning.exploration, ranking) {
            draw::draw_units(&mut units, exploration, &mut data);
        }
        data
    });
    let budget = query.budget_tokens.max(BUDGET_TOKENS_MIN);
    let mut packer = Packer {
        snapshot,
        query,
        tokenizer,
        filter,
        answer: Answer {
            units: Vec::new(),
            more: Vec::new(),
            left_out,
            about_files: Vec::new(),
            more_named: 0,
            searched: snapshot.units_count(),
            memories_searched: query.memories_searched,
            reranked_by: ranking.map_or(LOCAL, |ranking| &ranking.model).to_owned(),
            rerank_trouble: None,
            stages: Vec::new(),
            words_only: trace.words_only,
            generation: snapshot.generation(),
            learning,
        },
        left: budget,
        shown: HashSet::new(),
        order: Vec::new(),
    };
    let shown: Vec<UnitId> = units.iter().take(query.limit).map(|unit| unit.record.id.clone()).collect();
    snapshot.prefetch_units(&shown)?;
    packer.summaries(&units, trace)?;
    packer.name_the_others();
    if query.depth != Depth::Summary {
        packer.passages(&units);
    }
    if query.depth == Depth::Deep {
        packer.details()?;
    }
    Ok(packer.fit(budget))
}

/// The units that are not shown whatever room there is, and why; in the local order, so that a model's order does not
/// decide which related units are the closest.
fn weak_units(units: &[Ranked<'_>]) -> HashMap<UnitId, &'static str> {
    let mut related = 0;
    let why = |unit: &Ranked<'_>| {
        related += usize::from(unit.is_related());
        match (unit.is_strong(), unit.is_related()) {
            (true, _) => None,
            (false, true) => (related > RELATED_MAX).then_some("others are related more closely"),
            (false, false) => Some("too weak beside the best match"),
        }
    };
    let weak = units.iter().map(why);
    units.iter().zip(weak).filter_map(|(unit, why)| Some((unit.record.id.clone(), why?))).collect()
}

/// Removes the weak units but those that a model finds helpful.
fn leave_out(
    units: &mut Vec<Ranked<'_>>,
    weak: &HashMap<UnitId, &'static str>,
    filter: &dyn OutputFilter,
) -> Vec<LeftOut> {
    let mut left_out = Vec::new();
    units.retain(|unit| {
        let Some(why) = weak.get(&unit.record.id).filter(|_| !is_judged_helpful(unit)) else { return true };
        let (part_of_best_score, part_of_best_evidence) = unit.best().part_of_best;
        let title = filter.clean(&unit.record.title).into_owned();
        let id = unit.record.id.clone();
        left_out.push(LeftOut { id, title, part_of_best_score, part_of_best_evidence, why });
        false
    });
    left_out
}

fn is_judged_helpful(unit: &Ranked<'_>) -> bool {
    unit.judged.is_some_and(|score| score >= JUDGED_MIN)
}

struct Packer<'p> {
    snapshot: &'p dyn Reader,
    query: &'p Query,
    tokenizer: &'p Tokenizer,
    filter: &'p dyn OutputFilter,
    answer: Answer,
    /// The rest of the budget.
    left: usize,
    /// The ids of the chunks shown.
    shown: HashSet<String>,
    /// The same, in the order in which they were added.
    order: Vec<String>,
}

impl Packer<'_> {
    /// First pass. Summaries take at most half of the budget, so that there is room for the passages; all of it if
    /// nothing else is asked for.
    fn summaries(&mut self, units: &[Ranked<'_>], trace: &Trace) -> Result<(), Error> {
        let frame = self.tokenizer.count(&render::head(&self.answer, units.len()))
            + self.tokenizer.count(&render::overflow(units.len(), &[]));
        self.left = self.left.saturating_sub(frame + NAME_SLACK);
        let most = if self.query.depth == Depth::Summary { self.left } else { self.left / 2 };
        let (mut spent, mut is_full) = (0, false);
        for unit in units {
            if !is_full && self.answer.units.len() < self.query.limit {
                let mut found = self.found(unit, trace)?;
                let header = self.tokenizer.count(&render::header(&found));
                let summary = self.tokenizer.count(&render::quoted(&found.summary));
                // The best unit is shown if its header fits at all.
                let room = if self.answer.units.is_empty() { self.left } else { most.saturating_sub(spent) };
                let cost = if header + summary <= room {
                    header + summary
                } else {
                    found.summary.clear();
                    header
                };
                if cost <= room {
                    spent += cost;
                    self.answer.units.push(found);
                    continue;
                }
                is_full = true;
            }
            let title = self.filter.clean(&unit.record.title).into_owned();
            self.answer.more.push((unit.record.id.clone(), title));
        }
        self.left = self.left.saturating_sub(spent);
        Ok(())
    }

    /// Names as many of the units that are not shown as fit into an eighth of the rest; into all of it if none is shown.
    fn name_the_others(&mut self) {
        let mut room = if self.answer.units.is_empty() { self.left } else { self.left / 8 };
        for (id, title) in &self.answer.more {
            let tokens = self.tokenizer.count(&render::name(id, title)) + NAME_SLACK;
            if tokens > room {
                break;
            }
            room -= tokens;
            self.left -= tokens;
            self.answer.more_named += 1;
        }
    }

    /// Second pass: passages by their score, across all units. A unit that does not match by itself has none.
    fn passages(&mut self, units: &[Ranked<'_>]) {
        let scores: HashMap<&UnitId, &Ranked<'_>> =
            units.iter().map(|unit| (&unit.record.id, unit)).collect();
        let mut found: Vec<(f64, usize, &Scored)> = Vec::new();
        for (at, unit) in self.answer.units.iter().enumerate() {
            let Some(ranked) = scores.get(&unit.id) else { continue };
            let best = is_judged_helpful(ranked).then(|| ranked.best().chunk);
            let shown =
                ranked.passages.iter().filter(|(_, scored)| scored.strong || best == Some(scored.chunk));
            found.extend(shown.map(|(part, scored)| (ranked.score * part, at, *scored)));
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (score, at, scored) in found {
            if self.order.len() >= self.query.limit {
                break;
            }
            let whole = self.passage(score, &scored.record);
            if whole.tokens <= self.left {
                self.show(at, whole);
            } else if self.answer.units[at].passages.is_empty() && self.left >= CUT_TOKENS_MIN {
                let text = shorten(&whole.text, whole.tokens, self.left);
                let tokens = self.tokenizer.count(&text) + self.frame_tokens(&whole.breadcrumb, &text);
                if tokens <= self.left {
                    self.show(at, Passage { text, tokens, ..whole });
                }
            }
        }
    }

    /// Third pass: the neighbours of the passages found, then the rest of each unit, best unit first.
    fn details(&mut self) -> Result<(), Error> {
        let mut chunks = Vec::new();
        for unit in &self.answer.units {
            chunks.push(self.snapshot.chunks_of(&unit.id)?);
        }
        let found = self.order.clone();
        for (at, chunks) in chunks.iter().enumerate() {
            for chunk in chunks {
                let near = [chunk.position.checked_sub(1), chunk.position.checked_add(1)];
                let mut near =
                    near.into_iter().flatten().map(|near| format!("{}#{near}", chunk.unit.as_str()));
                if near.any(|near| found.contains(&near)) {
                    self.add(at, chunk);
                }
            }
        }
        for (at, chunks) in chunks.iter().enumerate() {
            for chunk in chunks {
                self.add(at, chunk);
            }
        }
        Ok(())
    }

    fn add(&mut self, at: usize, chunk: &index::ChunkRecord) {
        if self.shown.contains(&chunk.id) {
            return;
        }
        let passage = self.passage(0.0, chunk);
        if passage.tokens <= self.left {
            self.show(at, passage);
        }
    }

    fn show(&mut self, at: usize, passage: Passage) {
        self.left -= passage.tokens;
        self.shown.insert(passage.chunk_id.clone());
        self.order.push(passage.chunk_id.clone());
        self.answer.units[at].passages.push(passage);
    }

    fn passage(&self, score: f64, chunk: &index::ChunkRecord) -> Passage {
        let breadcrumb = self.filter.clean(&chunk.breadcrumb).into_owned();
        let text = self.filter.clean(&chunk.text);
        let tokens = match &text {
            // Counted when the chunk was made; the whole answer is counted again.
            Cow::Borrowed(_) => chunk.tokens as usize,
            Cow::Owned(text) => self.tokenizer.count(text),
        };
        let tokens = tokens + self.frame_tokens(&breadcrumb, &text);
        Passage { chunk_id: chunk.id.clone(), breadcrumb, text: text.into_owned(), score, tokens }
    }

    /// The tokens of a passage besides its text: a mark before each line, and its headings.
    fn frame_tokens(&self, breadcrumb: &str, text: &str) -> usize {
        self.tokenizer.count(breadcrumb) + text.lines().count() + 4
    }

    fn found(&self, unit: &Ranked<'_>, trace: &Trace) -> Result<FoundUnit, Error> {
        let record = &unit.record;
        let clean = |text: &str| self.filter.clean(text).into_owned();
        let is_memory = unit.is_memory();
        let review = match () {
            () if is_memory => Review::Unreviewed,
            () if record.status.as_deref().is_some_and(is_unreviewed) => Review::Pending,
            () => self.filter.review(record),
        };
        Ok(FoundUnit {
            id: record.id.clone(),
            title: clean(&record.title),
            kind: record.kind.clone(),
            domain: record.domain.clone(),
            path: record.path.clone(),
            confidence: record.confidence,
            source: clean(&record.source),
            last_modified: record.last_modified,
            age_days: age_days(record, self.query.now),
            status: record.status.as_deref().map(clean),
            review,
            reviewed_by: record.reviewed_by.as_deref().filter(|_| review == Review::Merged).map(clean),
            score: unit.score,
            judged: unit.judged,
            stale: self.filter.staleness(record).filter(|_| !is_memory).as_deref().map(clean),
            why: clean(&explain(unit, trace)),
            summary: clean(&summary(self.snapshot, record)?),
            passages: Vec::new(),
        })
    }

    /// The answer, without what exceeds the budget: the whole may have more tokens than its counted parts if the
    /// tokenizer joins words.
    fn fit(mut self, budget: usize) -> Answer {
        for unit in &mut self.answer.units {
            unit.passages.sort_by_key(|passage| position(&passage.chunk_id));
        }
        while self.tokenizer.count(&render::render(&self.answer)) > budget {
            if let Some(last) = self.order.pop() {
                for unit in &mut self.answer.units {
                    unit.passages.retain(|passage| passage.chunk_id != last);
                }
            } else if self.answer.more_named > 0 {
                self.answer.more_named = 0;
            } else if let Some(last) = self.answer.units.pop() {
                self.answer.more.insert(0, (last.id, last.title));
            } else {
                break;
            }
        }
        self.answer
    }
}

/// The tokens between two names, or after the last.
const NAME_SLACK: usize = 2;

fn position(chunk_id: &str) -> u32 {
    chunk_id.rsplit_once('#').and_then(|(_, position)| position.parse().ok()).unwrap_or(u32::MAX)
}

/// The first words of a text of `tokens` tokens, as many as fit into about `room` tokens, with an ellipsis.
fn shorten(text: &str, tokens: usize, room: usize) -> String {
    // A tenth is left free, since tokens are not spread evenly.
    let bytes = text.len() * room / tokens.max(1) * 9 / 10;
    let head = &text[..text.floor_char_boundary(bytes)];
    let head = head.rfind(char::is_whitespace).map_or(head, |end| &head[..end]);
    format!("{} …", head.trim_end())
}

fn explain(unit: &Ranked<'_>, trace: &Trace) -> String {
    let found = explain_match(unit.best(), trace);
    match &unit.file {
        Some(file) => format!("{found}; names `{}`", text::one_line(file, 60)),
        None => found,
    }
}

fn explain_match(scored: &Scored, trace: &Trace) -> String {
    if let Some(path) = &scored.path {
        return explain_relation(path);
    }
    let shown = format!("{}\n{}", scored.record.breadcrumb, scored.record.text).to_lowercase();
    let held: Vec<&str> = shown.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let exact = trace.analysis.exact.iter().filter(|signal| shown.contains(signal.as_str())).cloned();
    // Scripts without spaces have their words within others.
    let is_held = |term: &String| {
        held.iter().any(|word| is_form_of(word, term)) || !term.is_ascii() && shown.contains(term.as_str())
    };
    let words = trace.analysis.terms.iter().map(|term| term.to_lowercase()).filter(is_held);
    let mut named: Vec<String> = Vec::new();
    for word in exact.chain(words) {
        if named.len() < WORDS_NAMED_MAX && named.iter().all(|other| !other.contains(&word)) {
            named.push(word);
        }
    }
    let meaning = scored.features.cosine >= MEANING_MIN;
    let noun = if named.len() == 1 { "word" } else { "words" };
    let named =
        named.iter().map(|word| format!("`{}`", text::one_line(word, 60))).collect::<Vec<_>>().join(", ");
    match (meaning, named.is_empty()) {
        (true, false) => format!("matches the meaning and the {noun} {named}"),
        (true, true) => "matches the meaning".to_owned(),
        (false, false) => format!("matches the {noun} {named}"),
        (false, true) if scored.features.neighbour > 0.0 => "is next to a passage that matches".to_owned(),
        (false, true) if trace.words_only => "matches the words".to_owned(),
        (false, true) => "is close in meaning".to_owned(),
    }
}

fn explain_relation(path: &Path) -> String {
    let source = text::one_line(path.source.as_str(), 80);
    let relation = match &path.relation {
        Relation::RequiresUnderstandingOf => "requires understanding of".to_owned(),
        Relation::InformedBy => "is informed by".to_owned(),
        Relation::OftenCombinedWith => "is often combined with".to_owned(),
        other => text::one_line(&other.as_str().replace('_', " "), 40),
    };
    if path.outgoing {
        format!("related: `{source}` {relation} this")
    } else {
        format!("related: {relation} `{source}`")
    }
}
