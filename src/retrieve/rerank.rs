//! The final local order of all candidates, by meaning, by words and by trust.

use std::collections::HashMap;

use embed::{TokenMatcher, Tokenizer};
use index::{ChunkRecord, ChunkRow, Reader, UnitRecord};
use jiff::Timestamp;
use knowledge::text::is_latin;
use knowledge::unit::{is_hidden, is_retired, is_unreviewed};
use knowledge::{UnitId, rank};
use rayon::prelude::*;

use crate::answer_form::{AnswerForm, Form};
use crate::error::Error;
use crate::expand::Expanded;
use crate::floor::{Floor, Subject};
use crate::memory::{self, is_memory};
use crate::question::{Query, Signal};
use crate::scored::{Features, Scored};
use crate::word_search::WordSearch;
use crate::{code, dates, learned};

/// The weight of each feature. The older ones were found by random search over all questions of six sets (documentation,
/// code, web queries to functions, reports, dialogues in turns and in chunks; 2,086 questions), over the same sets cut
/// down to 200 and to 50 items, and over questions to two hand-written brains of 8 and 20 units, with a
/// penalty for each set below the better of the two searches. Those from `late` on are near what a search
/// over any five of the sets chooses. Around these values the result is flat: weights that are all fitted to five sets have a
/// mean nDCG@10 of .747 on the sixth ones, and these have .756, of which .002 come from [`LATE_WORDS`] and the weight of a
/// stop word (.0005 on the sixth sets). A third more of `near` and `beside` adds .001, and a linked
/// unit of the hand-written brain is then found fourth instead of third.
///
/// Tried, and not kept: the headers of the enclosing class and function in each passage of code (.787 to .761 on code: the
/// passage that declares the class is lost among its methods); words that occur beside the question's, in the corpus or in
/// the best passages (up on one set, down on another); the words that a passage begins with (.0002); the scores of the unit's
/// other passages; the neighbours' tokens; the mean of the question's vector and that of its words without stop words (.754 to
/// .751).
const BY_MEANING_AND_WORDS: Weights = Weights {
    cosine: 2.4,
    cosine_rank: 0.06,
    bm25: 0.4,
    words: 0.63,
    words_rank: 0.18,
    near: 0.22,
    exact: 0.06,
    nearer_neighbour: 0.9,
    neighbour: 0.09,
    beside: 0.42,
    late: 2.5,
    dated: 0.6,
    speaker: 0.45,
    time: 0.45,
    asks: 0.3,
};
const BY_WORDS_ONLY: Weights = Weights {
    cosine: 0.0,
    cosine_rank: 0.0,
    bm25: 0.6,
    words: 1.0,
    words_rank: 0.2,
    near: 0.2,
    exact: 0.1,
    nearer_neighbour: 0.0,
    neighbour: 0.1,
    beside: 0.4,
    late: 0.0,
    dated: 0.6,
    speaker: 0.3,
    time: 0.3,
    asks: 0.2,
};

/// The exponent of the cosine: between .3 and .4 it is mostly chance, between .6 and .7 it is a paraphrase, which needs
/// no common word.
const COSINE_POWER: f64 = 2.3;
/// BM25 sums over the words, so a long question has high values by chance. It counts as `x / (1 + BM25_SLACK · x)`.
const BM25_SLACK: f64 = 0.17;
/// The words of the question count more if its rarest word is rare: a name or an identifier matches literally, and
/// common words match anywhere. The factor is `1 + RARITY_SLOPE · (rarest - RARITY_USUAL)`.
const RARITY_SLOPE: f64 = 1.8;
const RARITY_USUAL: f64 = 0.85;
const RARITY_SHARE_MIN: f64 = 0.2;
/// BM25 and the order by words have a first passage even if all that it shares with the question is `back`. They count
/// in full if a passage that BM25 found matches the words at least as well as the end of this range, not at all below
/// its start, and in proportion between. This lets a paraphrase win in a small brain.
const MATCHED_WORDS: std::ops::Range<f64> = 0.39..0.63;
/// The value of a rank is `RANK_HALF / (RANK_HALF + rank)`; the first rank is 0.
const RANK_HALF: f64 = 3.0;

/// From this many words of the question on its tokens count less, and from the end of the range not at all: a long question
/// names its subject in words of its own, and the mean over many tokens tells passages apart less well.
const LATE_WORDS: std::ops::Range<f64> = 10.0..16.0;

/// A passage gets this part of what a passage near it has more, at this distance in the unit: an answer follows its
/// question, and often shares no word with it.
const FROM_NEAR: [(i64, f64); 4] = [(-2, 0.24), (-1, 0.3), (1, 0.18), (2, 0.15)];

/// A unit loses half of its freshness in a year: how a project is built changes slowly.
const HALF_LIFE_DAYS: f64 = 365.0;
/// The factor on the score of a retired unit: it comes after current ones, and a question about it still finds it.
const RETIRED_FACTOR: f64 = 0.5;
/// More than any unit is trusted; a retired one has at most half of it.
const TRUST_MAX: f64 = 1.16;
/// As little as any reviewed unit is trusted that is not retired.
const TRUST_MIN: f64 = 0.85;
/// How much a note is trusted that an agent has written and nobody has reviewed.
const UNREVIEWED_TRUST: f64 = TRUST_MIN * memory::TRUST;

struct Weights {
    cosine: f64,
    cosine_rank: f64,
    bm25: f64,
    words: f64,
    words_rank: f64,
    near: f64,
    exact: f64,
    nearer_neighbour: f64,
    neighbour: f64,
    beside: f64,
    late: f64,
    dated: f64,
    speaker: f64,
    time: f64,
    asks: f64,
}

/// `share` is the factor on the words, `matched` the factor on BM25 and on the rank by words.
fn score(features: &Features, weights: &Weights, share: f64, matched: f64) -> f64 {
    let bm25 = features.bm25 / (1.0 + BM25_SLACK * features.bm25);
    let relevance = weights.cosine * features.cosine.max(0.0).powf(COSINE_POWER)
        + weights.cosine_rank * features.cosine_rank
        + share * (matched * weights.bm25 * bm25 + weights.words * features.words)
        + share * weights.beside * features.beside
        + matched * (weights.words_rank * features.words_rank + weights.neighbour * features.neighbour)
        + weights.near * features.near
        + weights.exact * features.exact
        + weights.nearer_neighbour * features.nearer_neighbour
        + weights.late * features.late
        + weights.dated * features.dated
        + weights.speaker * features.speaker
        + weights.time * features.time
        - weights.asks * features.asks;
    relevance.max(0.0) * features.trust
}

pub(crate) fn rerank(
    snapshot: &dyn Reader,
    query: &Query,
    by_words: &WordSearch,
    vector: Option<&[f32]>,
    expanded: &Expanded,
    tokenizer: &Tokenizer,
) -> Result<Vec<Scored>, Error> {
    let WordSearch { analysis, bm25, query_terms, .. } = by_words;
    let words_only = vector.is_none();
    let weights = if words_only { &BY_WORDS_ONLY } else { &BY_MEANING_AND_WORDS };
    let found: HashMap<ChunkRow, f64> =
        bm25.iter().map(|hit| (hit.chunk, hit.score / query_terms.bm25_unit)).collect();
    let rows: Vec<ChunkRow> = expanded.hits.iter().map(|hit| hit.chunk).collect();
    snapshot.prefetch_chunks(&rows)?;
    let (records, neighbours): (Vec<ChunkRecord>, Vec<Vec<ChunkRow>>) =
        snapshot.chunks_with_neighbours(&rows)?.into_iter().unzip();
    let texts: Vec<String> =
        records.iter().map(|chunk| format!("{}\n{}", chunk.breadcrumb, chunk.text)).collect();
    let places: HashMap<ChunkRow, usize> = rows.iter().enumerate().map(|(at, row)| (*row, at)).collect();
    let beside: Vec<Vec<usize>> = neighbours
        .iter()
        .map(|rows| rows.iter().filter_map(|row| places.get(row).copied()).collect())
        .collect();
    let form = (!query.without.contains(&Signal::Form)).then(|| AnswerForm::from_question(&query.text));
    let mut matches = Vec::new();
    // Other threads look at the words while this one reads what else it needs of the index.
    let read = rayon::in_place_scope(|scope| {
        scope.spawn(|_| matches = query_terms.matches(&texts, &beside, tokenizer));
        let are_code: Vec<bool> = records.iter().map(|chunk| code::is_code(&chunk.text)).collect();
        let mut units: HashMap<UnitId, Option<UnitRecord>> = HashMap::new();
        for record in &records {
            if !units.contains_key(&record.unit) {
                units.insert(record.unit.clone(), snapshot.unit(&record.unit)?);
            }
        }
        let forms = records.iter().zip(&are_code).map(|(record, is_code)| match &form {
            Some(form) if !is_code => form.of_passage(&record.text),
            _ => Form::default(),
        });
        let forms = forms.collect::<Vec<_>>();
        // Last, as the other threads are then done with the words and take part in it.
        let late = token_similarities(snapshot, query, by_words, &records, &are_code, tokenizer)?;
        Ok::<_, Error>((late, units, forms, are_code))
    });
    let (late, units, forms, are_code) = read?;
    let cosine = |row| vector.and_then(|vector| snapshot.similarity(row, vector)).unwrap_or(0.0);
    let is_unread = unread(query, by_words);
    let are_unread: Vec<bool> = texts.iter().map(&is_unread).collect();
    let cosines = rows.iter().zip(&are_unread);
    let cosines: Vec<f64> =
        cosines.map(|(row, is_unread)| if *is_unread { 0.0 } else { cosine(*row) }).collect();
    let cosine_ranks = ranks(&cosines);
    let periods = if query.without.contains(&Signal::Dates) {
        Vec::new()
    } else {
        dates::periods(&query.text, &|| query.day_of(query.now))
    };
    let words_ranks = ranks(&matches.iter().map(|matched| matched.words).collect::<Vec<_>>());
    let subject = Subject::find(snapshot, analysis)?;
    let mut scored = Vec::with_capacity(records.len());
    for (at, (record, text)) in records.into_iter().zip(&texts).enumerate() {
        let (mut neighbour, mut nearer_neighbour) = (0.0_f64, 0.0_f64);
        for row in &neighbours[at] {
            neighbour = neighbour.max(found.get(row).copied().unwrap_or(0.0));
            let cosine = places.get(row).map_or_else(|| cosine(*row), |&place| cosines[place]);
            nearer_neighbour = nearer_neighbour.max(cosine - cosines[at].max(0.0));
        }
        if are_unread[at] {
            nearer_neighbour = 0.0;
        }
        let unit = units.get(&record.unit).and_then(Option::as_ref);
        if unit.is_some_and(|unit| unit.status.as_deref().is_some_and(is_hidden)) {
            continue;
        }
        let dated = if periods.is_empty() { 0.0 } else { nearness(&periods, text, unit, query) };
        let Form { speaker, time, asks } = forms[at];
        let trust = unit.map_or(1.0, |unit| trust(unit, query.now));
        let features = Features {
            cosine: cosines[at],
            cosine_rank: rank_value(cosine_ranks[at]),
            bm25: found.get(&record.row).copied().unwrap_or(0.0),
            words: matches[at].words,
            words_rank: rank_value(words_ranks[at]),
            near: matches[at].near,
            exact: literal_matches(&analysis.exact, text),
            nearer_neighbour,
            neighbour,
            beside: matches[at].beside,
            late: if are_unread[at] { 0.0 } else { late[at] },
            dated,
            speaker,
            time,
            asks,
            learned: 0.0,
            is_unread: are_unread[at],
            titled: unit.zip(subject.as_ref()).is_some_and(|(unit, subject)| subject.is_in_title(unit)),
            of_topic: unit.zip(subject.as_ref()).is_some_and(|(unit, subject)| subject.is_topic(unit)),
            trust,
        };
        scored.push(Scored {
            chunk: record.row,
            score: 0.0,
            base_score: 0.0,
            features,
            relevant: false,
            strong: false,
            part_of_best: (0.0, 0.0),
            record,
            is_code: are_code[at],
            path: None,
        });
    }
    let share = (1.0 + RARITY_SLOPE * (query_terms.rarest - RARITY_USUAL)).max(RARITY_SHARE_MIN);
    let found = scored.iter().filter(|scored| found.contains_key(&scored.chunk));
    let matched = found.map(|scored| scored.features.words).fold(0.0, f64::max);
    let matched =
        ((matched - MATCHED_WORDS.start) / (MATCHED_WORDS.end - MATCHED_WORDS.start)).clamp(0.0, 1.0);
    for candidate in &mut scored {
        candidate.score = score(&candidate.features, weights, share, matched);
    }
    if !query.without.contains(&Signal::Context) {
        raise_near_better(&mut scored);
    }
    let floor = Floor { words_only, passages: snapshot.chunks_count(), words: analysis.terms.len() };
    floor.mark(&mut scored);
    pass_on_scores(&mut scored, expanded, &floor);
    sort_by_score(&mut scored);
    scored.iter_mut().for_each(|candidate| candidate.base_score = candidate.score);
    let is_moved = learned::adjust(snapshot, &mut scored, vector, query.learning.as_ref(), is_live);
    if !query.memories.is_empty() {
        let memories = score_memories(snapshot, query, by_words, &scored, (share, matched), tokenizer);
        scored.extend(memories);
    }
    if is_moved {
        learned::keep_behind(&mut scored, is_live);
    }
    sort_by_score(&mut scored);
    Ok(scored)
}

/// Whether it is a unit that a person has reviewed and that is not retired.
fn is_live(candidate: &Scored) -> bool {
    !is_memory(candidate.chunk) && candidate.features.trust > UNREVIEWED_TRUST
}

fn sort_by_score(scored: &mut [Scored]) {
    scored.sort_by(|a, b| {
        let is_memory = |candidate: &Scored| is_memory(candidate.chunk);
        let by_score = b.score.total_cmp(&a.score).then(b.base_score.total_cmp(&a.base_score));
        by_score.then(is_memory(a).cmp(&is_memory(b))).then(a.chunk.cmp(&b.chunk))
    });
}

/// Scores the memories of a question by the weights and ranks of the units that were found.
fn score_memories(
    snapshot: &dyn Reader,
    query: &Query,
    by_words: &WordSearch,
    units: &[Scored],
    (share, matched): (f64, f64),
    tokenizer: &Tokenizer,
) -> Vec<Scored> {
    // A brain without units has no model; the memories' vectors are of the question's.
    let words_only = query.memories.iter().all(|memory| memory.cosine == 0.0);
    let weights = if words_only { &BY_WORDS_ONLY } else { &BY_MEANING_AND_WORDS };
    let records: Vec<ChunkRecord> = query.memories.iter().map(|memory| memory.passage(tokenizer)).collect();
    let texts: Vec<String> =
        query.memories.iter().map(|memory| format!("{}\n{}", memory.summary, memory.dialogue)).collect();
    let beside = vec![Vec::new(); texts.len()];
    let matches = by_words.query_terms.matches(&texts, &beside, tokenizer);
    let is_unread = unread(query, by_words);
    let is_live = |candidate: &&Scored| candidate.features.trust > RETIRED_FACTOR * TRUST_MAX;
    let trust = units.iter().filter(is_live).map(|candidate| candidate.features.trust).fold(1.0, f64::min);
    let higher = |value: f64, of: fn(&Features) -> f64| {
        units.iter().filter(|candidate| of(&candidate.features) > value).count()
    };
    let mut scored = Vec::with_capacity(records.len());
    for (((memory, record), text), matched_words) in
        query.memories.iter().zip(records).zip(&texts).zip(matches)
    {
        let is_unread = is_unread(text);
        let cosine = if is_unread { 0.0 } else { memory.cosine };
        let features = Features {
            cosine,
            cosine_rank: rank_value(higher(cosine, |features| features.cosine)),
            is_unread,
            words: matched_words.words,
            words_rank: rank_value(higher(matched_words.words, |features| features.words)),
            near: matched_words.near,
            exact: literal_matches(&by_words.analysis.exact, text),
            trust: trust * memory::TRUST,
            ..Features::default()
        };
        let memory_score = score(&features, weights, share, matched);
        scored.push(Scored {
            chunk: record.row,
            score: memory_score,
            base_score: memory_score,
            features,
            relevant: false,
            strong: false,
            part_of_best: (0.0, 0.0),
            is_code: code::is_code(&record.text),
            record,
            path: None,
        });
    }
    let passages = snapshot.chunks_count() + query.memories_searched;
    let floor = Floor { words_only, passages, words: by_words.analysis.terms.len() };
    floor.mark_memories(&mut scored, units);
    scored
}

/// Whether the built-in model, whose vector the question has, can read neither a text nor all of the question: it knows
/// the letters of other scripts than Latin, by which any two texts are alike.
fn unread<'q>(query: &'q Query, by_words: &'q WordSearch) -> impl Fn(&String) -> bool + 'q {
    // Only this model has vectors of tokens.
    let is_asked = !query.tokens.is_empty() && by_words.query_terms.has_other_scripts();
    move |text| {
        let letters = || text.chars().filter(|c| c.is_alphabetic());
        is_asked && letters().filter(|c| is_latin(*c)).count() * 2 < letters().count()
    }
}

/// By how much the candidates' tokens match those of the question better than the mean of all. 0 for code, where
/// contexts mislead, and for all candidates if most are code, or the question is long or has identifiers.
fn token_similarities(
    snapshot: &dyn Reader,
    query: &Query,
    by_words: &WordSearch,
    records: &[ChunkRecord],
    are_code: &[bool],
    tokenizer: &Tokenizer,
) -> Result<Vec<f64>, Error> {
    let none = vec![0.0; records.len()];
    // Identifiers match literally or not at all.
    let is_literal = !by_words.analysis.exact.is_empty();
    if query.tokens.is_empty() || is_literal || query.without.contains(&Signal::Late) {
        return Ok(none);
    }
    let prose: Vec<usize> = (0..records.len()).filter(|&at| !are_code[at]).collect();
    if prose.len() * 2 < records.len() {
        return Ok(none);
    }
    let weights = by_words.query_terms.token_weights(&tokenizer.text_token_ids(&query.text));
    let words = query.text.split_whitespace().count() as f64;
    let part = ((LATE_WORDS.end - words) / (LATE_WORDS.end - LATE_WORDS.start)).clamp(0.0, 1.0);
    if part <= 0.0 {
        return Ok(none);
    }
    let Some(matcher) = TokenMatcher::new(&query.tokens, &weights) else { return Ok(none) };
    let mut late = none;
    snapshot.prefetch_token_vectors(&prose.iter().map(|&at| records[at].row).collect::<Vec<_>>())?;
    let vectors = |&at: &usize| snapshot.token_vectors(records[at].row);
    let vectors: Vec<Vec<u8>> = prose.iter().map(vectors).collect::<Result<_, _>>()?;
    let similarities: Vec<f64> = vectors.par_iter().map(|packed| matcher.similarity(packed)).collect();
    prose.iter().zip(similarities).for_each(|(&at, similarity)| late[at] = similarity);
    let mean = late.iter().sum::<f64>() / prose.len().max(1) as f64;
    prose.iter().for_each(|&at| late[at] = part * (late[at] - mean).max(0.0));
    Ok(late)
}

/// Raises what stands near a better passage of its unit, code excepted: functions that follow each other share no subject.
/// The best passage of a unit keeps its score, and so does the order of units.
fn raise_near_better(scored: &mut [Scored]) {
    let place = |candidate: &Scored| (candidate.record.unit.clone(), i64::from(candidate.record.position));
    let scores: HashMap<(UnitId, i64), f64> =
        scored.iter().map(|candidate| (place(candidate), candidate.score)).collect();
    for candidate in scored.iter_mut().filter(|candidate| !candidate.is_code) {
        let (unit, position) = place(candidate);
        let more = FROM_NEAR.iter().filter_map(|(distance, part)| {
            let near = scores.get(&(unit.clone(), position + distance))?;
            Some(part * (near - candidate.score))
        });
        candidate.score += more.fold(0.0, f64::max);
    }
}

/// How near the passage's or its unit's dates are to the times that the question names.
fn nearness(periods: &[dates::Period], text: &str, unit: Option<&UnitRecord>, query: &Query) -> f64 {
    let of_unit = unit.into_iter().flat_map(|unit| [unit.created, unit.last_modified]).flatten();
    let of_unit = of_unit.map(|time| query.day_of(time));
    let days: Vec<_> = dates::days(text).into_iter().chain(of_unit).collect();
    dates::nearness(periods, text, days.into_iter())
}

/// Gives related passages the score that their relation passes on, if it is higher than their own. It is always less
/// than the score of the source.
fn pass_on_scores(scored: &mut [Scored], expanded: &Expanded, floor: &Floor) {
    let mut best: HashMap<UnitId, f64> = HashMap::new();
    for candidate in scored.iter().filter(|candidate| floor.leads_on(candidate)) {
        let score = best.entry(candidate.record.unit.clone()).or_default();
        *score = score.max(candidate.score);
    }
    for candidate in scored {
        let paths = expanded.paths.get(&candidate.chunk).into_iter().flatten();
        let given = paths.filter_map(|path| Some((best.get(&path.source)? * path.weight, path)));
        let Some((given, path)) = given.max_by(|a, b| a.0.total_cmp(&b.0)) else { continue };
        if !floor.admits_related(candidate) {
            continue;
        }
        // Its own trust counts, not that of the source.
        let derived = given * candidate.features.trust;
        if derived > candidate.score || !candidate.relevant {
            candidate.score = candidate.score.max(derived);
            candidate.relevant = true;
        }
        if !candidate.strong {
            candidate.path = Some(path.clone());
        }
    }
}

fn trust(unit: &UnitRecord, now: Timestamp) -> f64 {
    // An unknown age counts as neither fresh nor stale.
    let freshness = age_days(unit, now).map_or(0.5, |age| rank::freshness(age, HALF_LIFE_DAYS));
    let trust = rank::trust(unit.confidence, freshness, rank::source_tier(&unit.source));
    let retired = unit.status.as_deref().is_some_and(is_retired);
    let unreviewed = unit.status.as_deref().is_some_and(is_unreviewed);
    match (retired, unreviewed) {
        (true, _) => trust * RETIRED_FACTOR,
        // Below every unit that a person has reviewed, whatever its confidence.
        (_, true) => UNREVIEWED_TRUST,
        _ => trust,
    }
}

/// Days since the last change of a unit; 0 for a date in the future.
pub(crate) fn age_days(unit: &UnitRecord, now: Timestamp) -> Option<f64> {
    let changed = unit.last_modified.or(unit.created)?;
    Some(now.duration_since(changed).as_secs_f64().max(0.0) / 86_400.0)
}

fn literal_matches(signals: &[String], text: &str) -> f64 {
    if signals.is_empty() {
        return 0.0;
    }
    let text = text.to_lowercase();
    signals.iter().filter(|signal| text.contains(signal.as_str())).count() as f64 / signals.len() as f64
}

/// For each value, the number of higher ones. Equal values have the same rank, so that trust alone decides.
fn ranks(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[b].total_cmp(&values[a]));
    let mut ranks = vec![0; values.len()];
    for (place, &at) in order.iter().enumerate() {
        let equal =
            place.checked_sub(1).map(|before| order[before]).filter(|&before| values[before] <= values[at]);
        ranks[at] = equal.map_or(place, |before| ranks[before]);
    }
    ranks
}

fn rank_value(rank: usize) -> f64 {
    RANK_HALF / (RANK_HALF + rank as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_near_a_better_passage_is_raised() {
        let candidate = |unit: &str, position: u32, score, text: &str| Scored {
            chunk: ChunkRow(position.into()),
            score,
            base_score: score,
            features: Features::default(),
            relevant: false,
            strong: false,
            part_of_best: (0.0, 0.0),
            record: ChunkRecord {
                row: ChunkRow(position.into()),
                id: format!("{unit}#{position}"),
                unit: UnitId::verbatim(unit),
                position,
                level: 1,
                breadcrumb: String::new(),
                text: text.to_owned(),
                tokens: 3,
            },
            is_code: code::is_code(text),
            path: None,
        };
        let code = "let x = read(y);";
        let mut scored = [
            candidate("a", 3, 2.0, "a question"),
            candidate("a", 4, 1.0, "its answer"),
            candidate("a", 2, 1.0, code),
            candidate("a", 7, 1.0, "far away"),
            candidate("b", 4, 1.0, "another unit"),
        ];
        raise_near_better(&mut scored);
        assert_eq!(scored.map(|candidate| candidate.score), [2.0, 1.3, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn equal_values_have_the_same_rank() {
        assert_eq!(ranks(&[0.2, 0.9, 0.2, 0.1, 0.9]), [2, 0, 2, 4, 0]);
        assert!(ranks(&[]).is_empty());
    }
}
