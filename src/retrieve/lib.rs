//! Answers a question from one generation of the index: what was learned before that bears on it.
//!
//! Stages, each in a file of its own: `analyse`, `search`, `fuse`, `expand`, `rerank`, `pack`; and `render`
//! for what a model reads. It never calls a model, the query's vector is given; it reads no clock.

mod analyse;
mod expand;
mod fuse;
mod pack;
mod render;
mod rerank;
mod search;
#[cfg(test)]
mod tests;
mod words;

use std::sync::Arc;
use std::time::Instant;

use index::{Hit, Pinned};
use jiff::Timestamp;
use knowledge::{CountTokens, Domain, UnitId, UnitType};
use serde::Serialize;

pub use analyse::Analysis;
pub use render::render;
pub use rerank::{Features, Scored};

/// How many chunks an answer holds at most, and how many tokens, when nobody says.
pub const LIMIT_DEFAULT: usize = 10;
pub const BUDGET_TOKENS_DEFAULT: usize = 2_000;

/// A question.
#[derive(Clone, Debug)]
pub struct Query {
    pub text: String,
    /// The text's vector by the model of the index: `[dimensions] f32`, L2-normalised. `None`: search by words.
    pub vector: Option<Vec<f32>>,
    /// Chunks at most.
    pub limit: usize,
    /// Tokens at most, of the rendered answer, approximately.
    pub budget_tokens: usize,
    /// What units' ages are reckoned from.
    pub now: Timestamp,
}

/// What is known, best unit first.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// Empty when the brain holds nothing that bears on the question.
    pub units: Vec<FoundUnit>,
    /// Units that bear on it too, for which there was no room.
    pub more: Vec<(UnitId, String)>,
    pub stages: Vec<StageReport>,
    /// Whether it was searched by words alone.
    pub words_only: bool,
    /// Of the index; 0 when there is none yet.
    pub generation: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct FoundUnit {
    pub id: UnitId,
    pub title: String,
    #[serde(rename = "type")]
    pub kind: UnitType,
    pub domain: Domain,
    /// Relative to the brain.
    pub path: String,
    pub confidence: f64,
    pub source: String,
    pub last_modified: Option<Timestamp>,
    pub age_days: Option<f64>,
    pub status: Option<String>,
    /// That of its best passage. Comparable within one answer only.
    pub score: f64,
    /// Why it was found, for a person to judge.
    pub why: String,
    /// In the order of the file.
    pub passages: Vec<Passage>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Passage {
    /// `<unit id>#<position>`.
    pub chunk_id: String,
    pub breadcrumb: String,
    /// As in the file; shortened with an ellipsis when only part of it fitted.
    pub text: String,
    pub score: f64,
    pub tokens: usize,
}

/// How many items left a stage and how long it took.
#[derive(Clone, Debug, Serialize)]
pub struct StageReport {
    pub name: &'static str,
    pub items: usize,
    pub micros: u64,
}

/// What each stage found, best first: what an evaluation compares. [`retrieve`] packs `reranked`.
pub struct Trace {
    pub analysis: Analysis,
    pub embedding: Vec<Hit>,
    pub bm25: Vec<Hit>,
    pub fused: Vec<Hit>,
    /// Fused, with neighbouring passages and related units behind.
    pub expanded: Vec<Hit>,
    /// All candidates by their final score; [`Scored::relevant`] says which of them are above the floor.
    pub reranked: Vec<Scored>,
    pub stages: Vec<StageReport>,
    pub words_only: bool,
}

/// The language of the model: how it counts, and how alike it holds two words to be.
pub trait Lexicon: CountTokens {
    /// The tokens of one word.
    fn pieces(&self, word: &str) -> Arc<[u32]>;

    /// The cosine of each of these tokens with each of those, `[these, those]` row by row; `None` when the
    /// model's table of words is not known, so that only equal tokens are alike.
    fn cosines(&self, these: &[u32], those: &[u32]) -> Option<Vec<f32>>;
}

impl Lexicon for embed::Tokenizer {
    fn pieces(&self, word: &str) -> Arc<[u32]> {
        Self::pieces(self, word)
    }

    fn cosines(&self, these: &[u32], those: &[u32]) -> Option<Vec<f32>> {
        self.word_table().map(|table| table.cosines(these, those))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to search the index")]
    Index(#[from] index::Error),
}

/// Searches, ranks and packs. An empty index and a question about nothing in it give an empty answer.
///
/// # Errors
/// When the index cannot be read.
pub fn retrieve(pinned: &Pinned, query: &Query, lexicon: &dyn Lexicon) -> Result<Answer, Error> {
    let mut trace = trace(pinned, query, lexicon)?;
    let begun = Instant::now();
    let packed = pack::pack(pinned, query, &trace, lexicon)?;
    let items = packed.units.iter().map(|unit| unit.passages.len()).sum();
    trace.stages.push(StageReport { name: "pack", items, micros: micros_since(begun) });
    Ok(Answer {
        units: packed.units,
        more: packed.more,
        stages: trace.stages,
        words_only: trace.words_only,
        generation: pinned.generation(),
    })
}

/// All stages but the packing, each with what it found.
///
/// # Errors
/// When the index cannot be read.
pub fn trace(pinned: &Pinned, query: &Query, lexicon: &dyn Lexicon) -> Result<Trace, Error> {
    let mut clock = Clock { begun: Instant::now(), stages: Vec::new() };
    let analysis = analyse::analyse(&query.text);
    clock.lap("analyse", analysis.terms.len());
    // A vector of another model, or of no direction, is none.
    let vector = query.vector.as_deref().filter(|vector| {
        pinned.model().is_some_and(|model| model.dimensions == vector.len())
            && vector.iter().all(|x| x.is_finite())
            && vector.iter().any(|&x| x != 0.0)
    });
    let embedding = search::by_meaning(pinned, vector)?;
    clock.lap("embedding", embedding.len());
    let bm25 = search::by_words(pinned, &analysis)?;
    clock.lap("bm25", bm25.len());
    let fused = fuse::fuse(&[&embedding, &bm25]);
    clock.lap("fuse", fused.len());
    let expanded = expand::expand(pinned, &fused, vector)?;
    clock.lap("expand", expanded.hits.len());
    let reranked = rerank::rerank(pinned, query.now, &analysis, vector, &bm25, &expanded, lexicon)?;
    clock.lap("rerank", reranked.iter().filter(|scored| scored.relevant).count());
    tracing::debug!(
        terms = analysis.terms.len(),
        candidates = expanded.hits.len(),
        best = reranked.first().map_or(0.0, |best| best.score),
        "searched"
    );
    Ok(Trace {
        analysis,
        embedding,
        bm25,
        fused,
        expanded: expanded.hits,
        reranked,
        stages: clock.stages,
        words_only: vector.is_none(),
    })
}

struct Clock {
    begun: Instant,
    stages: Vec<StageReport>,
}

impl Clock {
    fn lap(&mut self, name: &'static str, items: usize) {
        self.stages.push(StageReport { name, items, micros: micros_since(self.begun) });
        self.begun = Instant::now();
    }
}

fn micros_since(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX)
}
