//! What a search may see: all chunks of a generation, or some.

use std::collections::HashSet;
use std::sync::Arc;

use crate::records::ChunkRow;

/// A set of chunks that a pinned generation is narrowed to, by [`crate::Snapshot::restrict`]. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    rows: Arc<HashSet<ChunkRow>>,
}

impl Filter {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn admits(&self, chunk: ChunkRow) -> bool {
        self.rows.contains(&chunk)
    }
}

impl FromIterator<ChunkRow> for Filter {
    fn from_iter<I: IntoIterator<Item = ChunkRow>>(rows: I) -> Self {
        Self { rows: Arc::new(rows.into_iter().collect()) }
    }
}
