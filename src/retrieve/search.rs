//! The search: all stages before packing.

use embed::Tokenizer;
use index::{Hit, Reader};

use crate::analysis::Analysis;
use crate::error::Error;
use crate::question::Query;
use crate::scored::Scored;
use crate::stages::{Clock, StageReport};
use crate::word_search::{WordSearch, search_words};
use crate::{candidates, expand, file_hints, fuse, rerank};

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

/// Runs all stages but the packing.
///
/// # Errors
/// [`Error::Index`] if the index cannot be read.
pub fn search(snapshot: &dyn Reader, query: &Query, tokenizer: &Tokenizer) -> Result<Trace, Error> {
    search_with_words(snapshot, query, search_words(snapshot, query, tokenizer)?, tokenizer)
}

/// [`search`] with the result of [`search_words`] for the same question. A result from another generation is not
/// used, and its stages run again.
///
/// # Errors
/// [`Error::Index`] if the index cannot be read.
pub fn search_with_words(
    snapshot: &dyn Reader,
    query: &Query,
    by_words: WordSearch,
    tokenizer: &Tokenizer,
) -> Result<Trace, Error> {
    let by_words = if by_words.generation == snapshot.key() {
        by_words
    } else {
        search_words(snapshot, query, tokenizer)?
    };
    let mut clock = Clock::continued(by_words.stages.clone());
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
    let reranked = rerank::rerank(snapshot, query, &by_words, vector, &expanded, tokenizer)?;
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
