//! The stages that need no vector.

use embed::Tokenizer;
use index::{Hit, Reader};

use crate::analysis::{self, Analysis};
use crate::error::Error;
use crate::question::Query;
use crate::stages::{Clock, StageReport};
use crate::{candidates, lexical};

/// The result of the stages that need no vector.
pub struct WordSearch {
    pub(crate) analysis: Analysis,
    pub(crate) bm25: Vec<Hit>,
    pub(crate) query_terms: lexical::QueryTerms,
    /// The key of the searched generation.
    pub(crate) generation: String,
    model: Option<String>,
    pub(crate) stages: Vec<StageReport>,
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
    snapshot: &dyn Reader,
    query: &Query,
    tokenizer: &Tokenizer,
) -> Result<WordSearch, Error> {
    let mut clock = Clock::continued(Vec::new());
    let analysis = analysis::analyse(&query.text);
    clock.lap("analyse", analysis.terms.len());
    let terms = lexical::Term::all(snapshot, &analysis)?;
    let query_terms = lexical::QueryTerms::new(snapshot, &terms, tokenizer);
    clock.lap("rarity", terms.len());
    let bm25 = candidates::by_words(snapshot, &terms)?;
    clock.lap("bm25", bm25.len());
    let model = snapshot.model().map(|label| label.name.clone());
    Ok(WordSearch { analysis, bm25, query_terms, generation: snapshot.key(), model, stages: clock.stages })
}
