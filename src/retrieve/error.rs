//! Errors of retrieval.

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The index cannot be read.
    #[error("failed to search the index")]
    Index(#[from] index::Error),
}
