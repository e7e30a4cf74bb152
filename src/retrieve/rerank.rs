//! The final order of all candidates: how near in meaning, how well matched in words, and how far to trust.

use std::collections::{HashMap, HashSet};

use index::{ChunkRecord, ChunkRow, Hit, Pinned, UnitRecord};
use jiff::Timestamp;
use knowledge::{UnitId, rank};
use serde::Serialize;

use crate::expand::{Expanded, Path};
use crate::{Analysis, Error, Lexicon};

/// What each feature weighs beside the cosine, which has 1. Fitted by grid on half of the questions of four
/// sets (documentation, code, passages, dialogues; 1,004 questions) and checked on the other half, over the
/// index's own chunks; around these values the result is flat.
const BY_MEANING_AND_WORDS: Weights =
    Weights { cosine: 1.0, bm25: 0.5, words: 0.7, neighbour: 0.1, exact: 0.1 };
const BY_WORDS_ONLY: Weights = Weights { cosine: 0.0, bm25: 1.0, words: 1.0, neighbour: 0.1, exact: 0.2 };

/// BM25 is measured by its best passage, which has 1 even when all it shares with the question is `back`. So
/// it counts in full only when a passage it found matches the words this well, and not at all below the
/// first; between, in proportion. Changes nothing on the four sets, and lets a paraphrase win in a small
/// brain.
const BM25_WORDS: std::ops::Range<f64> = 0.3..0.7;

/// A unit loses half of its freshness in a year: how a project is built changes slowly.
const HALF_LIFE_DAYS: f64 = 365.0;
/// What is left of the score of a unit that says it was replaced: it comes after whatever holds now, and is
/// still found by who asks for it.
const RETIRED_FACTOR: f64 = 0.5;
const RETIRED: &[&str] = &["superseded", "deprecated", "obsolete", "archived", "rejected"];

/// The floor of relevance, on `cos + ½·words` (by words alone: on `words`): what the best passage must reach
/// for there to be an answer at all. It rises with the number of chunks, since the best of many is higher by
/// chance: by `.02` for each factor e.
///
/// Of 1,004 questions that their set answers, 2 get no answer; of those asked of another set's documents, 75
/// to 98 % get none. A cosine alone would not do: good paraphrases have .25 to .35, and so has chance.
const FLOOR: f64 = 0.33;
const FLOOR_WORDS_ONLY: f64 = 0.40;
const FLOOR_RISE: f64 = 0.02;
/// Where there is an answer, a passage may be this much below the floor and still be part of it.
const FLOOR_SLACK: f64 = 0.08;

struct Weights {
    cosine: f64,
    bm25: f64,
    words: f64,
    neighbour: f64,
    exact: f64,
}

/// A candidate with its final score.
#[derive(Clone, Debug)]
pub struct Scored {
    pub chunk: ChunkRow,
    pub score: f64,
    pub features: Features,
    /// Whether it is above the floor of relevance.
    pub relevant: bool,
    pub(crate) record: ChunkRecord,
    /// Set when the score comes by a relation from another unit.
    pub(crate) path: Option<Path>,
}

/// What a score is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Features {
    /// Of the question's vector with the passage's; 0 when there is none.
    pub cosine: f64,
    /// BM25 as a part of the best passage's, 0 to 1; less when even that one matches the question badly.
    pub bm25: f64,
    /// How well the question's words are matched, 0 to 1: the mean, weighted by rarity, of each wordpiece's
    /// best cosine with any wordpiece of the passage.
    pub words: f64,
    /// The better `bm25` of the passages before and after.
    pub neighbour: f64,
    /// The part of what the question holds to the letter that is in the passage.
    pub exact: f64,
    /// By confidence, age, source and status; about 1.
    pub trust: f64,
}

impl Features {
    fn score(&self, weights: &Weights) -> f64 {
        let relevance = weights.cosine * self.cosine
            + weights.bm25 * self.bm25
            + weights.words * self.words
            + weights.neighbour * self.neighbour
            + weights.exact * self.exact;
        relevance.max(0.0) * self.trust
    }

    /// What the floor is laid on. `bm25` is no part of it: the best passage has 1 even if it is about
    /// something else.
    fn evidence(&self, words_only: bool) -> f64 {
        if words_only { self.words } else { self.cosine + 0.5 * self.words }
    }
}

pub(crate) fn rerank(
    pinned: &Pinned,
    now: Timestamp,
    analysis: &Analysis,
    vector: Option<&[f32]>,
    bm25: &[Hit],
    expanded: &Expanded,
    lexicon: &dyn Lexicon,
) -> Result<Vec<Scored>, Error> {
    let words_only = vector.is_none();
    let (weights, floor) = match vector {
        Some(_) => (&BY_MEANING_AND_WORDS, FLOOR),
        None => (&BY_WORDS_ONLY, FLOOR_WORDS_ONLY),
    };
    let floor = floor + FLOOR_RISE * (pinned.chunks_count().max(1) as f64).ln();
    let best = bm25.first().map_or(1.0, |hit| hit.score.max(f64::MIN_POSITIVE));
    let bm25: HashMap<ChunkRow, f64> = bm25.iter().map(|hit| (hit.chunk, hit.score / best)).collect();
    let rows: Vec<ChunkRow> = expanded.hits.iter().map(|hit| hit.chunk).collect();
    let records = pinned.chunks(&rows)?;
    let texts: Vec<String> =
        records.iter().map(|chunk| format!("{}\n{}", chunk.breadcrumb, chunk.text)).collect();
    let words = match_words(pinned, analysis, &texts, lexicon)?;
    let mut units: HashMap<UnitId, Option<UnitRecord>> = HashMap::new();
    let mut scored = Vec::with_capacity(records.len());
    for ((record, text), words) in records.into_iter().zip(&texts).zip(words) {
        let neighbour = pinned
            .neighbours(record.row)?
            .iter()
            .filter_map(|row| bm25.get(row).copied())
            .fold(0.0, f64::max);
        if !units.contains_key(&record.unit) {
            units.insert(record.unit.clone(), pinned.unit(&record.unit)?);
        }
        let trust = units.get(&record.unit).and_then(Option::as_ref).map_or(1.0, |unit| trust(unit, now));
        let features = Features {
            cosine: vector.and_then(|vector| pinned.similarity(record.row, vector)).unwrap_or(0.0),
            bm25: bm25.get(&record.row).copied().unwrap_or(0.0),
            words,
            neighbour,
            exact: exact(&analysis.exact, text),
            trust,
        };
        scored.push(Scored { chunk: record.row, score: 0.0, features, relevant: false, record, path: None });
    }
    let found = scored.iter().filter(|scored| scored.features.bm25 > 0.0);
    let matched = found.map(|scored| scored.features.words).fold(0.0, f64::max);
    let share = ((matched - BM25_WORDS.start) / (BM25_WORDS.end - BM25_WORDS.start)).clamp(0.0, 1.0);
    for candidate in &mut scored {
        candidate.features.bm25 *= share;
        candidate.features.neighbour *= share;
        candidate.score = candidate.features.score(weights);
    }
    let evidence = |scored: &Scored| scored.features.evidence(words_only);
    if scored.iter().any(|scored| evidence(scored) >= floor) {
        for candidate in &mut scored {
            candidate.relevant = evidence(candidate) >= floor - FLOOR_SLACK;
        }
    }
    follow(&mut scored, expanded);
    scored.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.chunk.cmp(&b.chunk)));
    Ok(scored)
}

/// Gives related passages what their relation hands on, where that is more than they have by themselves.
/// It is always less than the source has, and only a relevant source has anything to give.
fn follow(scored: &mut [Scored], expanded: &Expanded) {
    let mut best: HashMap<UnitId, f64> = HashMap::new();
    for candidate in scored.iter().filter(|candidate| candidate.relevant) {
        let score = best.entry(candidate.record.unit.clone()).or_default();
        *score = score.max(candidate.score);
    }
    for candidate in scored {
        let ways = expanded.paths.get(&candidate.chunk).into_iter().flatten();
        let given = ways.filter_map(|path| Some((best.get(&path.source)? * path.weight, path)));
        let Some((given, path)) = given.max_by(|a, b| a.0.total_cmp(&b.0)) else { continue };
        // Trusted for itself, however much its source is.
        let derived = given * candidate.features.trust;
        if derived > candidate.score || !candidate.relevant {
            candidate.score = candidate.score.max(derived);
            candidate.relevant = true;
            candidate.path = Some(path.clone());
        }
    }
}

fn trust(unit: &UnitRecord, now: Timestamp) -> f64 {
    // Of unknown age: neither fresh nor stale.
    let freshness = age_days(unit, now).map_or(0.5, |age| rank::freshness(age, HALF_LIFE_DAYS));
    let trust = rank::trust(unit.confidence, freshness, rank::source_tier(&unit.source));
    let retired =
        unit.status.as_deref().is_some_and(|status| RETIRED.contains(&status.trim().to_lowercase().as_str()));
    if retired { trust * RETIRED_FACTOR } else { trust }
}

/// Days since the unit last changed, 0 for one from the future.
pub(crate) fn age_days(unit: &UnitRecord, now: Timestamp) -> Option<f64> {
    let changed = unit.last_modified.or(unit.created)?;
    Some(now.duration_since(changed).as_secs_f64().max(0.0) / 86_400.0)
}

fn exact(signals: &[String], text: &str) -> f64 {
    if signals.is_empty() {
        return 0.0;
    }
    let text = text.to_lowercase();
    signals.iter().filter(|signal| text.contains(signal.as_str())).count() as f64 / signals.len() as f64
}

/// For each text, how well the question's words are matched in it: see [`Features::words`].
///
/// A word counts by its inverse document frequency, `ln(1 + (N - n + ½)/(n + ½))` (Robertson and Zaragoza
/// 2009, as in BM25), and its wordpieces share that.
fn match_words(
    pinned: &Pinned,
    analysis: &Analysis,
    texts: &[String],
    lexicon: &dyn Lexicon,
) -> Result<Vec<f64>, Error> {
    let chunks = pinned.chunks_count() as f64;
    let mut asked: Vec<(u32, f64)> = Vec::new();
    for term in &analysis.terms {
        let holding = pinned.document_frequency(term)? as f64;
        let rarity = (1.0 + ((chunks - holding).max(0.0) + 0.5) / (holding + 0.5)).ln();
        for &piece in lexicon.pieces(term).iter() {
            if asked.iter().all(|(other, _)| *other != piece) {
                asked.push((piece, rarity));
            }
        }
    }
    let total: f64 = asked.iter().map(|(_, rarity)| rarity).sum();
    if asked.is_empty() || total <= 0.0 {
        return Ok(vec![0.0; texts.len()]);
    }
    // The passages share most of their wordpieces, so each is compared with the question once.
    let mut columns: HashMap<u32, usize> = HashMap::new();
    let mut pieces_of_texts: Vec<HashSet<usize>> = Vec::with_capacity(texts.len());
    let mut words: HashMap<&str, std::sync::Arc<[u32]>> = HashMap::new();
    for text in texts {
        let mut pieces = HashSet::new();
        for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
            for &piece in words.entry(word).or_insert_with(|| lexicon.pieces(word)).iter() {
                let next = columns.len();
                pieces.insert(*columns.entry(piece).or_insert(next));
            }
        }
        pieces_of_texts.push(pieces);
    }
    let mut those = vec![0; columns.len()];
    columns.iter().for_each(|(&piece, &column)| those[column] = piece);
    let these: Vec<u32> = asked.iter().map(|(piece, _)| *piece).collect();
    let cosines = lexicon.cosines(&these, &those).unwrap_or_else(|| {
        these
            .iter()
            .flat_map(|this| those.iter().map(move |that| f32::from(u8::from(this == that))))
            .collect()
    });
    Ok(pieces_of_texts
        .iter()
        .map(|pieces| {
            let matched = asked.iter().enumerate().map(|(row, (_, rarity))| {
                let row = &cosines[row * those.len()..];
                rarity * pieces.iter().map(|&column| f64::from(row[column])).fold(0.0, f64::max)
            });
            matched.sum::<f64>() / total
        })
        .collect())
}
