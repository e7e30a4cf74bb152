//! Retrieval: answers a question from one snapshot of the index.
//!
//! The stages run in this order, each in a file of its own: `analysis`, `candidates`, `fuse`, `expand`, `rerank`,
//! `pack`. `render` writes the text that a model reads, and `model_rerank` prepares and reads the scores of a model
//! that decides the final order. This crate never calls a model: the query's vector and the model's scores are given.
//! It reads no clock.
//!
//! ```
//! use embed::{Settings, Tokenizer};
//! use retrieve::{Query, render, retrieve};
//!
//! let folder = tempfile::tempdir().unwrap();
//! let snapshot = index::Index::open(folder.path()).unwrap().pin().unwrap();
//! let tokenizer = Tokenizer::load(&Settings::default()).unwrap();
//! let query = Query::new("how do we deploy?", "2026-06-01T00:00:00Z".parse().unwrap());
//! let answer = retrieve(&snapshot, &query, &tokenizer).unwrap();
//! assert_eq!(answer.units.len(), 0);
//! assert!(render(&answer).starts_with("nothing relevant in the brain (it has no units yet)"));
//! ```
#![warn(missing_docs, clippy::missing_errors_doc)]

mod analysis;
mod candidates;
mod expand;
mod file_hints;
mod fuse;
mod lexical;
pub mod metrics;
pub mod model_rerank;
mod pack;
pub mod project;
mod render;
mod rerank;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use index::{Hit, Snapshot, UnitRecord};
use jiff::Timestamp;
use knowledge::{CountTokens, Domain, UnitId, UnitType};
use serde::Serialize;

pub use analysis::Analysis;
pub use render::render;
pub use rerank::{Features, Scored};

/// The default limit of units, and of passages found, in an answer.
pub const LIMIT_DEFAULT: usize = 10;
/// The default limit of an answer in tokens.
pub const BUDGET_TOKENS_DEFAULT: usize = 2_000;
/// The smallest budget: below it an answer has no room to say that something was found.
pub const BUDGET_TOKENS_MIN: usize = 64;

/// A question.
#[derive(Clone, Debug)]
pub struct Query {
    /// The question as it was asked.
    pub text: String,
    /// The text's vector by the model of the index: `[dimensions] f32`, L2-normalised. `None` for a search by words
    /// only.
    pub vector: Option<Vec<f32>>,
    /// Paths that the question is about. Units that name them are candidates too and rank a little higher; whether
    /// there is an answer at all depends on the text alone.
    pub files: Vec<String>,
    /// The limit of units, and of passages found. The passages that [`Depth::Deep`] adds are not counted.
    pub limit: usize,
    /// The limit of the rendered answer in tokens, as the token model counts them; at least
    /// [`BUDGET_TOKENS_MIN`].
    pub budget_tokens: usize,
    /// How much of each unit the answer shows.
    pub depth: Depth,
    /// The time from which the ages of units are counted.
    pub now: Timestamp,
}

impl Query {
    /// A question without a vector and with the default limits.
    pub fn new(text: impl Into<String>, now: Timestamp) -> Self {
        Self {
            text: text.into(),
            vector: None,
            files: Vec::new(),
            limit: LIMIT_DEFAULT,
            budget_tokens: BUDGET_TOKENS_DEFAULT,
            depth: Depth::Standard,
            now,
        }
    }
}

/// How much of each unit an answer shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Depth {
    /// One sentence for each unit.
    Summary,
    /// The sentences, and the passages that match.
    #[default]
    Standard,
    /// The same with the passages around them, as far as the budget allows.
    Deep,
}

impl Depth {
    /// All depths, from the least to the most.
    pub const ALL: [Self; 3] = [Self::Summary, Self::Standard, Self::Deep];

    /// The name in settings and requests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Summary => "summary",
            Self::Standard => "standard",
            Self::Deep => "deep",
        }
    }

    /// The factor on the default budget: a deep answer gets twice as much.
    pub fn budget_factor(self) -> usize {
        if self == Self::Deep { 2 } else { 1 }
    }
}

impl std::str::FromStr for Depth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|depth| depth.as_str() == text);
        found.ok_or_else(|| "it is one of summary, standard, deep".to_owned())
    }
}

/// The answer to a question, best unit first.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// The units shown; empty if nothing in the brain is relevant.
    pub units: Vec<FoundUnit>,
    /// Further relevant units with their titles, for which there was no room.
    pub more: Vec<(UnitId, String)>,
    /// How many of `more` the text names; it only counts the others.
    pub more_named: usize,
    /// How many units were searched.
    pub searched: usize,
    /// What decided the order: [`LOCAL`], or the name of a model.
    pub reranked_by: String,
    /// Why a model that was to decide the order did not.
    pub rerank_trouble: Option<String>,
    /// The stages in the order in which they ran.
    pub stages: Vec<StageReport>,
    /// Whether the search went by words only.
    pub words_only: bool,
    /// The generation of the index; 0 if there is none yet.
    pub generation: u64,
}

/// [`Answer::reranked_by`] if no model decided the order.
pub const LOCAL: &str = "local";

/// A unit in an answer.
#[derive(Clone, Debug, Serialize)]
pub struct FoundUnit {
    /// Its id.
    pub id: UnitId,
    /// Its title, redacted as all of its texts.
    pub title: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: UnitType,
    /// Its domain.
    pub domain: Domain,
    /// Its file, relative to the brain.
    pub path: String,
    /// From 0 to 1.
    pub confidence: f64,
    /// What wrote it.
    pub source: String,
    /// The date of its last change, if its file has one.
    pub last_modified: Option<Timestamp>,
    /// Days since its last change.
    pub age_days: Option<f64>,
    /// Its status, if its file has one.
    pub status: Option<String>,
    /// Whether a person has accepted it.
    pub review: Review,
    /// Who merged it, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reviewed_by: Option<String>,
    /// The score by which the units are ordered. Comparable within one answer only.
    pub score: f64,
    /// The relevance by a model, 0 to 10.
    pub judged: Option<f64>,
    /// Why it was found.
    pub why: String,
    /// Its description, or else its first sentence; empty if there is neither, or no room.
    pub summary: String,
    /// Its passages in the order of the file.
    pub passages: Vec<Passage>,
}

/// Whether a person has accepted a unit. Units of review branches are never shown, even where such a branch is
/// checked out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Review {
    /// It is in the brain's folder, and git does not say more.
    #[default]
    Accepted,
    /// Its file is as in the default branch.
    Merged,
    /// Its file has changes in the work tree that are not committed.
    UncommittedEdit,
}

/// A part of a unit in an answer.
#[derive(Clone, Debug, Serialize)]
pub struct Passage {
    /// `<unit id>#<position>`.
    pub chunk_id: String,
    /// The headings above it.
    pub breadcrumb: String,
    /// The text of the file, redacted; it ends with an ellipsis if only a part fits.
    pub text: String,
    /// 0 for a passage that was added because it is near one that was found.
    pub score: f64,
    /// Its tokens in the answer, with its headings and marks.
    pub tokens: usize,
}

/// The result of one stage, in numbers.
#[derive(Clone, Debug, Serialize)]
pub struct StageReport {
    /// The stage.
    pub name: &'static str,
    /// How many items it gave.
    pub items: usize,
    /// How long it took, in microseconds.
    pub micros: u64,
}

/// The results of all stages, best first, for evaluations. [`answer`] packs `reranked`.
pub struct Trace {
    /// The words of the question.
    pub analysis: Analysis,
    /// The nearest chunks by their vectors.
    pub embedding: Vec<Hit>,
    /// The best chunks by BM25.
    pub bm25: Vec<Hit>,
    /// Both lists, and the chunks that name the question's files, fused by rank.
    pub fused: Vec<Hit>,
    /// `fused`, followed by neighbouring passages and related units.
    pub expanded: Vec<Hit>,
    /// All candidates by their final score; [`Scored::relevant`] says which of them are above the floor.
    pub reranked: Vec<Scored>,
    /// The stages in the order in which they ran.
    pub stages: Vec<StageReport>,
    /// Whether the search went by words only.
    pub words_only: bool,
}

/// The tokens of the embedding model: how many a text has, and how similar two of them are.
pub trait TokenModel: CountTokens + Sync {
    /// The ids of one word's tokens.
    fn token_ids(&self, word: &str) -> Arc<[u32]>;

    /// The cosine of each of these tokens with each of those, `[these, those]` row by row. `None` if the model's
    /// token table is not known; then only equal tokens are similar.
    fn cosines(&self, these: &[u32], those: &[u32]) -> Option<Vec<f32>>;
}

impl TokenModel for embed::Tokenizer {
    fn token_ids(&self, word: &str) -> Arc<[u32]> {
        Self::token_ids(self, word)
    }

    fn cosines(&self, these: &[u32], those: &[u32]) -> Option<Vec<f32>> {
        self.token_table().map(|table| table.cosines(these, those))
    }
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The index cannot be read.
    #[error("failed to search the index")]
    Index(#[from] index::Error),
}

/// Searches, ranks and packs. The answer is empty if the index is, or if nothing in it is relevant.
///
/// # Errors
/// [`Error::Index`] if the index cannot be read.
pub fn retrieve(snapshot: &Snapshot, query: &Query, token_model: &dyn TokenModel) -> Result<Answer, Error> {
    answer(snapshot, query, search(snapshot, query, token_model)?, None, token_model, &RedactOnly)
}

/// Packs the result of a search, in the order of a model's ranking if there is one.
///
/// # Errors
/// [`Error::Index`] if the index cannot be read.
pub fn answer(
    snapshot: &Snapshot,
    query: &Query,
    mut trace: Trace,
    ranking: Option<&model_rerank::Ranking>,
    token_model: &dyn TokenModel,
    filter: &dyn OutputFilter,
) -> Result<Answer, Error> {
    let begun = Instant::now();
    let mut answer = pack::pack(snapshot, query, &trace, ranking, token_model, filter)?;
    let items = answer.units.iter().map(|unit| unit.passages.len()).sum();
    trace.stages.push(StageReport { name: "pack", items, micros: micros_since(begun) });
    answer.stages = trace.stages;
    Ok(answer)
}

/// Filters what an answer shows or a model is sent.
pub trait OutputFilter {
    /// The text without secrets: a person may have written one into a unit.
    fn clean<'t>(&self, text: &'t str) -> Cow<'t, str> {
        transcript::redact::redact(text)
    }

    /// Whether a person has accepted the unit.
    fn review(&self, unit: &UnitRecord) -> Review {
        let _ = unit;
        Review::default()
    }
}

/// The default filter: removes secrets and knows nothing of reviews.
pub struct RedactOnly;

impl OutputFilter for RedactOnly {}

/// Runs all stages but the packing.
///
/// # Errors
/// [`Error::Index`] if the index cannot be read.
pub fn search(snapshot: &Snapshot, query: &Query, token_model: &dyn TokenModel) -> Result<Trace, Error> {
    search_with_words(snapshot, query, search_words(snapshot, query, token_model)?, token_model)
}

/// The result of the stages that need no vector.
pub struct WordSearch {
    analysis: Analysis,
    bm25: Vec<Hit>,
    query_terms: lexical::QueryTerms,
    generation: u64,
    model: Option<String>,
    stages: Vec<StageReport>,
}

impl WordSearch {
    /// The model whose vectors the searched generation has; `None` before the first generation.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

/// Runs the stages that need no vector, so that the vector can be computed at the same time.
///
/// # Errors
/// [`Error::Index`] if the index cannot be read.
pub fn search_words(
    snapshot: &Snapshot,
    query: &Query,
    token_model: &dyn TokenModel,
) -> Result<WordSearch, Error> {
    let mut clock = Clock { begun: Instant::now(), stages: Vec::new() };
    let analysis = analysis::analyse(&query.text);
    clock.lap("analyse", analysis.terms.len());
    let terms = lexical::Term::all(snapshot, &analysis)?;
    let query_terms = lexical::QueryTerms::new(snapshot, &terms, token_model);
    clock.lap("rarity", terms.len());
    let bm25 = candidates::by_words(snapshot, &terms)?;
    clock.lap("bm25", bm25.len());
    let model = snapshot.model().map(|label| label.name.clone());
    Ok(WordSearch {
        analysis,
        bm25,
        query_terms,
        generation: snapshot.generation(),
        model,
        stages: clock.stages,
    })
}

/// [`search`] with the result of [`search_words`] for the same question. A result from another generation is not
/// used, and its stages run again.
///
/// # Errors
/// [`Error::Index`] if the index cannot be read.
pub fn search_with_words(
    snapshot: &Snapshot,
    query: &Query,
    by_words: WordSearch,
    token_model: &dyn TokenModel,
) -> Result<Trace, Error> {
    let by_words = if by_words.generation == snapshot.generation() {
        by_words
    } else {
        search_words(snapshot, query, token_model)?
    };
    let mut clock = Clock { begun: Instant::now(), stages: by_words.stages.clone() };
    // A vector of another model or without a direction is ignored.
    let vector = query.vector.as_deref().filter(|vector| {
        snapshot.model().is_some_and(|model| model.dimensions == vector.len())
            && vector.iter().all(|x| x.is_finite())
            && vector.iter().any(|&x| x != 0.0)
    });
    let embedding = candidates::by_meaning(snapshot, vector)?;
    clock.lap("embedding", embedding.len());
    let by_files = file_hints::FileHints::from_paths(&query.files).search(snapshot)?;
    let fused = fuse::fuse(&[&embedding, &by_words.bm25, &by_files]);
    clock.lap("fuse", fused.len());
    let expanded = expand::expand(snapshot, &fused, vector)?;
    clock.lap("expand", expanded.hits.len());
    let reranked = rerank::rerank(snapshot, query.now, &by_words, vector, &expanded, token_model)?;
    clock.lap("rerank", reranked.iter().filter(|scored| scored.relevant).count());
    tracing::debug!(
        terms = by_words.analysis.terms.len(),
        candidates = expanded.hits.len(),
        best = reranked.first().map_or(0.0, |best| best.score),
        "searched"
    );
    let WordSearch { analysis, bm25, .. } = by_words;
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
