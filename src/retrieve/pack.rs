//! The best passages that fit: grouped by unit, within a number of chunks and of tokens.

use std::collections::HashMap;

use index::{Pinned, UnitRecord};
use knowledge::{Relation, UnitId, text};
use transcript::redact::redact;

use crate::expand::Path;
use crate::render;
use crate::rerank::{Scored, age_days};
use crate::{Error, FoundUnit, Lexicon, Passage, Query, Trace};

/// Passages with less than this part of the best one's score stay out, room or not: more is not better for
/// who has to read it.
const PART_OF_BEST_MIN: f64 = 0.45;
/// A passage is shortened to what is left of the budget, but not to a shred.
const CUT_TOKENS_MIN: usize = 40;
/// Units that only a relation brought: more of them would crowd out what was asked for.
const RELATED_MAX: usize = 3;
const WORDS_NAMED_MAX: usize = 5;
/// From this cosine on a person would agree that the meaning is alike.
const MEANING_MIN: f64 = 0.35;

pub(crate) struct Packed {
    pub(crate) units: Vec<FoundUnit>,
    pub(crate) more: Vec<(UnitId, String)>,
}

pub(crate) fn pack(
    pinned: &Pinned,
    query: &Query,
    trace: &Trace,
    lexicon: &dyn Lexicon,
) -> Result<Packed, Error> {
    let relevant = || trace.reranked.iter().filter(|scored| scored.relevant);
    let floor = relevant().next().map_or(0.0, |best| best.score * PART_OF_BEST_MIN);
    let mut packed = Packed { units: Vec::new(), more: Vec::new() };
    let mut records: HashMap<UnitId, UnitRecord> = HashMap::new();
    // For the lines around the units and the list of what was left out.
    let frame = (query.budget_tokens / 8).max(render::FRAME_TOKENS_MIN);
    let mut left_of_more = frame.saturating_sub(render::FRAME_TOKENS_MIN);
    let (mut left, mut chunks, mut related) = (query.budget_tokens.saturating_sub(frame), 0, 0);
    for scored in relevant().filter(|scored| scored.path.is_some() || scored.score >= floor) {
        let id = &scored.record.unit;
        let at = packed.units.iter().position(|unit| &unit.id == id);
        if at.is_none() && !records.contains_key(id) {
            let Some(record) = pinned.unit(id)? else { continue };
            records.insert(id.clone(), record);
        }
        let Some(record) = records.get(id) else { continue };
        let found = match at {
            Some(_) => None,
            None => Some(found(record, scored, trace, query)),
        };
        let header = found.as_ref().map_or(0, |unit| lexicon.count(&render::header(unit)));
        let room = left.saturating_sub(header);
        // The first unit is shown whatever it takes: an answer over budget is better than none.
        let room = if packed.units.is_empty() { room.max(CUT_TOKENS_MIN) } else { room };
        let whole = passage(scored, &scored.record.text, lexicon);
        let crowds = at.is_none() && scored.path.is_some() && related >= RELATED_MAX;
        let passage = if chunks >= query.limit || crowds {
            None
        } else if whole.tokens <= room {
            Some(whole)
        } else if at.is_none() && room >= CUT_TOKENS_MIN {
            Some(passage(scored, &cut(&scored.record.text, whole.tokens, room), lexicon))
        } else {
            None
        };
        match (passage, found, at) {
            (Some(passage), Some(mut unit), _) => {
                left = left.saturating_sub(header + passage.tokens);
                unit.passages.push(passage);
                packed.units.push(unit);
                related += usize::from(scored.path.is_some());
                chunks += 1;
            }
            (Some(passage), None, Some(at)) => {
                left = left.saturating_sub(passage.tokens);
                packed.units[at].passages.push(passage);
                chunks += 1;
            }
            (None, Some(unit), _) if packed.more.iter().all(|(other, _)| other != &unit.id) => {
                let tokens = lexicon.count(&render::more(&unit.id, &unit.title));
                if tokens <= left_of_more {
                    left_of_more -= tokens;
                    packed.more.push((unit.id, unit.title));
                }
            }
            _ => {}
        }
    }
    // A unit that found room by a shorter passage is not among those that found none.
    packed.more.retain(|(id, _)| packed.units.iter().all(|unit| &unit.id != id));
    for unit in &mut packed.units {
        unit.passages.sort_by_key(|passage| position(&passage.chunk_id));
    }
    Ok(packed)
}

fn position(chunk_id: &str) -> u32 {
    chunk_id.rsplit_once('#').and_then(|(_, position)| position.parse().ok()).unwrap_or(u32::MAX)
}

fn found(record: &UnitRecord, scored: &Scored, trace: &Trace, query: &Query) -> FoundUnit {
    FoundUnit {
        id: record.id.clone(),
        title: redact(&record.title).into_owned(),
        kind: record.kind.clone(),
        domain: record.domain.clone(),
        path: record.path.clone(),
        confidence: record.confidence,
        source: record.source.clone(),
        last_modified: record.last_modified,
        age_days: age_days(record, query.now),
        status: record.status.clone(),
        score: scored.score,
        why: why(scored, trace),
        passages: Vec::new(),
    }
}

fn passage(scored: &Scored, text: &str, lexicon: &dyn Lexicon) -> Passage {
    // A person may have written a secret into their brain; it is not told to everybody who asks.
    let (breadcrumb, text) = (redact(&scored.record.breadcrumb), redact(text));
    // As it will be shown: a mark before each line.
    let tokens = lexicon.count(&breadcrumb) + lexicon.count(&text) + text.lines().count() + 2;
    Passage {
        chunk_id: scored.record.id.clone(),
        breadcrumb: breadcrumb.into_owned(),
        text: text.into_owned(),
        score: scored.score,
        tokens,
    }
}

/// The beginning of a text of `tokens` tokens that has about `room`, up to a word, with an ellipsis.
fn cut(text: &str, tokens: usize, room: usize) -> String {
    // A tenth is kept back, since tokens are not spread evenly.
    let bytes = text.len() * room / tokens.max(1) * 9 / 10;
    let head = &text[..text.floor_char_boundary(bytes)];
    let head = head.rfind(char::is_whitespace).map_or(head, |end| &head[..end]);
    format!("{} …", head.trim_end())
}

fn why(scored: &Scored, trace: &Trace) -> String {
    if let Some(path) = &scored.path {
        return related(path);
    }
    let shown = format!("{}\n{}", scored.record.breadcrumb, scored.record.text).to_lowercase();
    let held: Vec<&str> = shown.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let exact = trace.analysis.exact.iter().filter(|signal| shown.contains(signal.as_str())).cloned();
    let words = trace.analysis.terms.iter().map(|term| term.to_lowercase()).filter(|term| holds(&held, term));
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
        (false, true) if scored.features.neighbour > 0.0 => "stands beside a passage that matches".to_owned(),
        (false, true) => "is near in meaning".to_owned(),
    }
}

fn related(path: &Path) -> String {
    let source = text::one_line(path.source.as_str(), 80);
    let relation = match &path.relation {
        Relation::RequiresUnderstandingOf => "requires understanding of".to_owned(),
        Relation::InformedBy => "is informed by".to_owned(),
        Relation::OftenCombinedWith => "is often combined with".to_owned(),
        other => text::one_line(&other.as_str().replace('_', " "), 40),
    };
    match (path.hops, path.outgoing) {
        (1, true) => format!("related: `{source}` {relation} this"),
        (1, false) => format!("related: {relation} `{source}`"),
        _ => format!("related to what is related to `{source}`"),
    }
}

/// Whether the words hold the term, or one that differs in its ending only (`pool`, `pools`, `pooling`).
fn holds(words: &[&str], term: &str) -> bool {
    const STEM_CHARS_MIN: usize = 4;
    const ENDING_CHARS_MAX: usize = 3;
    words.iter().any(|word| {
        let common = word.chars().zip(term.chars()).take_while(|(a, b)| a == b).count();
        let longest = word.chars().count().max(term.chars().count());
        common == longest || common >= STEM_CHARS_MIN && longest - common <= ENDING_CHARS_MAX
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_at_a_word_and_says_so() {
        assert_eq!(cut("alpha beta gamma delta", 4, 3), "alpha beta …");
        assert_eq!(cut("日本語日本語日本語", 9, 3), "日本 …");
        assert_eq!(cut("", 0, 0), " …");
    }

    #[test]
    fn words_match_whatever_their_ending() {
        assert!(holds(&["pools"], "pool") && holds(&["pooling"], "pool") && holds(&["go"], "go"));
        assert!(!holds(&["polls"], "pool") && !holds(&["gone"], "go") && !holds(&[], "x"));
    }

    #[test]
    fn a_relation_is_told_from_the_side_it_was_stated_on() {
        let path = |relation, outgoing, hops| Path {
            source: UnitId::verbatim("pool"),
            relation,
            outgoing,
            hops,
            weight: 0.5,
        };
        assert_eq!(related(&path(Relation::Uses, true, 1)), "related: `pool` uses this");
        assert_eq!(related(&path(Relation::Uses, false, 1)), "related: uses `pool`");
        assert_eq!(
            related(&path(Relation::Other("evil\n\u{202e}x".into()), true, 1)),
            "related: `pool` evil x this"
        );
        assert_eq!(related(&path(Relation::Uses, true, 2)), "related to what is related to `pool`");
    }
}
