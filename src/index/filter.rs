//! The set of chunks that a search is restricted to.

use std::collections::HashSet;
use std::sync::Arc;

use crate::records::ChunkRow;

/// A set of chunks for `Snapshot::restrict`. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    rows: Arc<HashSet<ChunkRow>>,
    /// Of how many units they are, if that is known.
    pub(crate) units: Option<usize>,
}

impl Filter {
    /// The number of chunks.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether no chunk is admitted.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether the chunk is in the set.
    pub fn admits(&self, chunk: ChunkRow) -> bool {
        self.rows.contains(&chunk)
    }
}

impl FromIterator<ChunkRow> for Filter {
    fn from_iter<I: IntoIterator<Item = ChunkRow>>(rows: I) -> Self {
        Self { rows: Arc::new(rows.into_iter().collect()), units: None }
    }
}
