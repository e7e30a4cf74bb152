//! Retrieval: answers a question from one snapshot of the index.
//!
//! The stages run in this order, each in a file of its own: `analysis`, `candidates`, `fuse`, `expand`, `rerank`,
//! `pack`. `floor` says what of it is shown. `render` writes the text that a model reads, and `model_rerank` prepares and reads the scores of a model
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
mod answer;
mod answer_form;
mod candidates;
mod code;
mod dates;
mod draw;
mod error;
mod expand;
mod file_hints;
mod floor;
mod fuse;
mod learned;
mod lexical;
mod memory;
pub mod metrics;
pub mod model_rerank;
mod output_filter;
mod pack;
pub mod project;
mod question;
mod render;
mod rerank;
mod scored;
mod search;
mod shortlist;
mod stages;
#[cfg(test)]
mod tests;
mod word_search;

use embed::Tokenizer;
use index::Reader;

pub use analysis::{Analysis, paths_in};
pub use answer::{Answer, FileUnit, FoundUnit, LOCAL, LearningData, LeftOut, Passage, Review, UnitCandidate};
pub use error::Error;
pub use learned::SCORE_SCALE;
pub use memory::MemoryCandidate;
pub use output_filter::{OutputFilter, RedactOnly};
pub use question::{
    BUDGET_TOKENS_DEFAULT, BUDGET_TOKENS_MIN, Depth, Exploration, LIMIT_DEFAULT, Learning, Query, Signal,
};
pub use render::{quoted, render};
pub use scored::{Features, Scored};
pub use search::{Trace, search, search_with_words};
pub use stages::StageReport;
pub use word_search::{WordSearch, search_words};

/// Searches, ranks and packs. The answer is empty if the index is, or if nothing in it is relevant.
///
/// # Errors
/// [`Error::Index`] if the index cannot be read.
pub fn retrieve(snapshot: &dyn Reader, query: &Query, tokenizer: &Tokenizer) -> Result<Answer, Error> {
    answer(snapshot, query, search(snapshot, query, tokenizer)?, None, tokenizer, &RedactOnly)
}

/// Packs the result of a search, in the order of a model's ranking if there is one.
///
/// # Errors
/// [`Error::Index`] if the index cannot be read.
pub fn answer(
    snapshot: &dyn Reader,
    query: &Query,
    mut trace: Trace,
    ranking: Option<&model_rerank::Ranking>,
    tokenizer: &Tokenizer,
    filter: &dyn OutputFilter,
) -> Result<Answer, Error> {
    let mut clock = stages::Clock::continued(std::mem::take(&mut trace.stages));
    let mut answer = pack::pack(snapshot, query, &trace, ranking, tokenizer, filter)?;
    let items = answer.units.iter().map(|unit| unit.passages.len()).sum();
    clock.lap("pack", items);
    answer.stages = clock.stages;
    Ok(answer)
}
