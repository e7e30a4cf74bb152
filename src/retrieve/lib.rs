//! Answers a question from one generation of the index: what was learned before that bears on it.
//!
//! Stages, each in a file of its own: `analyse`, `search`, `fuse`, `expand`, `rerank`, `pack`; `render` for
//! what a model reads; and `judge` for a model that is asked for the final order. It never calls a model
//! itself: the query's vector and the judge's scores are given. It reads no clock.

mod expand;
mod files;
mod fuse;
mod lexical;
pub mod metrics;
pub mod model_rerank;
mod pack;
pub mod project;
mod query;
mod render;
mod rerank;
mod search;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use index::{Hit, Snapshot, UnitRecord};
use jiff::Timestamp;
use knowledge::{CountTokens, Domain, UnitId, UnitType};
use serde::Serialize;

pub use query::Analysis;
pub use render::render;
pub use rerank::{Features, Scored};

/// How many units an answer holds at most and how many passages, and how many tokens, when nobody says.
pub const LIMIT_DEFAULT: usize = 10;
pub const BUDGET_TOKENS_DEFAULT: usize = 2_000;
/// Below this there is no room to say even that something was found.
pub const BUDGET_TOKENS_MIN: usize = 64;

/// A question.
#[derive(Clone, Debug)]
pub struct Query {
    pub text: String,
    /// The text's vector by the model of the index: `[dimensions] f32`, L2-normalised. `None`: search by words.
    pub vector: Option<Vec<f32>>,
    /// Paths that the question is about. Units that speak of them are looked for too and come a little
    /// earlier; whether there is an answer at all is for the text alone to say.
    pub files: Vec<String>,
    /// Units at most, and passages at most that were found; what [`Depth::Deep`] adds to them is not counted.
    pub limit: usize,
    /// Tokens at most, of the rendered answer as the lexicon counts them. Less than
    /// [`BUDGET_TOKENS_MIN`] is taken for that.
    pub budget_tokens: usize,
    pub depth: Depth,
    /// What units' ages are reckoned from.
    pub now: Timestamp,
}

impl Query {
    /// A question with no more than its text: its vector is not known yet, the rest is as usual.
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

/// How much is told of what was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Depth {
    /// Each unit in a sentence.
    Summary,
    /// And the passages that match.
    #[default]
    Standard,
    /// And what stands around them, while the budget lasts.
    Deep,
}

impl Depth {
    pub const ALL: [Self; 3] = [Self::Summary, Self::Standard, Self::Deep];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Summary => "summary",
            Self::Standard => "standard",
            Self::Deep => "deep",
        }
    }

    /// What a budget is multiplied by when nobody named one: who asks for everything has room for it.
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

/// What is known, best unit first.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// Empty when the brain holds nothing that bears on the question.
    pub units: Vec<FoundUnit>,
    /// Units that bear on it too, for which there was no room.
    pub more: Vec<(UnitId, String)>,
    /// How many of `more` the text names; the others it counts.
    pub more_named: usize,
    /// How many units were searched.
    pub searched: usize,
    /// Who has put them in order: `local`, or the model that was asked.
    pub reranked_by: String,
    /// Why a model that was to be asked did not decide the order.
    pub rerank_trouble: Option<String>,
    pub stages: Vec<StageReport>,
    /// Whether it was searched by words alone.
    pub words_only: bool,
    /// Of the index; 0 when there is none yet.
    pub generation: u64,
}

/// [`Answer::reranked_by`] when no model was asked.
pub const LOCAL: &str = "local";

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
    pub review: Review,
    /// Who has merged it, when it is merged and that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reviewed_by: Option<String>,
    /// By the formula of who has put the units in order. Comparable within one answer only.
    pub score: f64,
    /// What a model thought of its relevance, 0 to 10.
    pub judged: Option<f64>,
    /// Why it was found, for a person to judge.
    pub why: String,
    /// Its description, else its first sentence; empty when there is neither, or no room.
    pub summary: String,
    /// In the order of the file.
    pub passages: Vec<Passage>,
}

/// Whether a person has agreed to what a unit says. What waits on a branch is not served, even where that is
/// checked out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Review {
    /// It is in the brain's folder, of which git knows nothing, or was not asked.
    #[default]
    Accepted,
    /// As it is in the branch of reviewed knowledge.
    Merged,
    /// As the user has it in the work tree, not committed.
    UncommittedEdit,
}

#[derive(Clone, Debug, Serialize)]
pub struct Passage {
    /// `<unit id>#<position>`.
    pub chunk_id: String,
    pub breadcrumb: String,
    /// As in the file; shortened with an ellipsis when only part of it fitted.
    pub text: String,
    /// 0 for one that was not found itself, but stands around what was.
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
pub trait TokenModel: CountTokens + Sync {
    /// The tokens of one word.
    fn pieces(&self, word: &str) -> Arc<[u32]>;

    /// The cosine of each of these tokens with each of those, `[these, those]` row by row; `None` when the
    /// model's table of words is not known, so that only equal tokens are alike.
    fn cosines(&self, these: &[u32], those: &[u32]) -> Option<Vec<f32>>;
}

impl TokenModel for embed::Tokenizer {
    fn pieces(&self, word: &str) -> Arc<[u32]> {
        Self::pieces(self, word)
    }

    fn cosines(&self, these: &[u32], those: &[u32]) -> Option<Vec<f32>> {
        self.token_table().map(|table| table.cosines(these, those))
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
pub fn retrieve(pinned: &Snapshot, query: &Query, lexicon: &dyn TokenModel) -> Result<Answer, Error> {
    answer(pinned, query, trace(pinned, query, lexicon)?, None, lexicon, &AsIs)
}

/// Packs what a search has found, in the order of the verdict if there is one.
///
/// # Errors
/// When the index cannot be read.
pub fn answer(
    pinned: &Snapshot,
    query: &Query,
    mut trace: Trace,
    verdict: Option<&model_rerank::Ranking>,
    lexicon: &dyn TokenModel,
    censor: &dyn OutputFilter,
) -> Result<Answer, Error> {
    let begun = Instant::now();
    let mut answer = pack::pack(pinned, query, &trace, verdict, lexicon, censor)?;
    let items = answer.units.iter().map(|unit| unit.passages.len()).sum();
    trace.stages.push(StageReport { name: "pack", items, micros: micros_since(begun) });
    answer.stages = trace.stages;
    Ok(answer)
}

/// Looks over what is about to be shown or sent.
pub trait OutputFilter {
    /// The text without what must not leave the brain: a person may have written a secret into it.
    fn clean<'t>(&self, text: &'t str) -> Cow<'t, str> {
        transcript::redact::redact(text)
    }

    /// What is known of a unit's review.
    fn review(&self, unit: &UnitRecord) -> Review {
        let _ = unit;
        Review::default()
    }
}

/// Secrets are taken out, and of reviews nothing is known.
pub struct AsIs;

impl OutputFilter for AsIs {}

/// All stages but the packing, each with what it found.
///
/// # Errors
/// When the index cannot be read.
pub fn trace(pinned: &Snapshot, query: &Query, lexicon: &dyn TokenModel) -> Result<Trace, Error> {
    trace_with(pinned, query, find_words(pinned, query, lexicon)?, lexicon)
}

/// What the question's words alone find. The question's vector need not be there for it.
pub struct ByWords {
    analysis: Analysis,
    bm25: Vec<Hit>,
    asked: lexical::QueryTerms,
    generation: u64,
    model: Option<String>,
    stages: Vec<StageReport>,
}

impl ByWords {
    /// Whose vectors the generation has that was searched; `None` before the first.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

/// The stages that need no vector, for whoever has it computed at the same time.
///
/// # Errors
/// When the index cannot be read.
pub fn find_words(pinned: &Snapshot, query: &Query, lexicon: &dyn TokenModel) -> Result<ByWords, Error> {
    let mut clock = Clock { begun: Instant::now(), stages: Vec::new() };
    let analysis = query::analyse(&query.text);
    clock.lap("analyse", analysis.terms.len());
    let terms = lexical::Term::all(pinned, &analysis)?;
    let asked = lexical::QueryTerms::new(pinned, &terms, lexicon);
    clock.lap("rarity", terms.len());
    let bm25 = search::by_words(pinned, &terms)?;
    clock.lap("bm25", bm25.len());
    let model = pinned.model().map(|label| label.name.clone());
    Ok(ByWords { analysis, bm25, asked, generation: pinned.generation(), model, stages: clock.stages })
}

/// [`trace`] with what [`find_words`] has found of the same question. What was found in another generation
/// is looked for again.
///
/// # Errors
/// When the index cannot be read.
pub fn trace_with(
    pinned: &Snapshot,
    query: &Query,
    by_words: ByWords,
    lexicon: &dyn TokenModel,
) -> Result<Trace, Error> {
    let by_words = if by_words.generation == pinned.generation() {
        by_words
    } else {
        find_words(pinned, query, lexicon)?
    };
    let mut clock = Clock { begun: Instant::now(), stages: by_words.stages.clone() };
    // A vector of another model, or of no direction, is none.
    let vector = query.vector.as_deref().filter(|vector| {
        pinned.model().is_some_and(|model| model.dimensions == vector.len())
            && vector.iter().all(|x| x.is_finite())
            && vector.iter().any(|&x| x != 0.0)
    });
    let embedding = search::by_meaning(pinned, vector)?;
    clock.lap("embedding", embedding.len());
    let by_files = files::Files::of(&query.files).search(pinned)?;
    let fused = fuse::fuse(&[&embedding, &by_words.bm25, &by_files]);
    clock.lap("fuse", fused.len());
    let expanded = expand::expand(pinned, &fused, vector)?;
    clock.lap("expand", expanded.hits.len());
    let reranked = rerank::rerank(pinned, query.now, &by_words, vector, &expanded, lexicon)?;
    clock.lap("rerank", reranked.iter().filter(|scored| scored.relevant).count());
    tracing::debug!(
        terms = by_words.analysis.terms.len(),
        candidates = expanded.hits.len(),
        best = reranked.first().map_or(0.0, |best| best.score),
        "searched"
    );
    let ByWords { analysis, bm25, .. } = by_words;
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
