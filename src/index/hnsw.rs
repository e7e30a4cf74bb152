//! An HNSW graph (usearch) over the vectors of a large brain, so that a search need not compare all of them.
//!
//! The graph only proposes candidates, which are scored exactly with the packed vectors. It is built for one generation
//! and used for later ones: chunks added since are compared one by one, and removed chunks are left out. It is built
//! again after too many changes.

use std::path::Path;

use half::slice::HalfFloatSliceExt as _;
use rayon::prelude::*;
use usearch::ffi::{IndexOptions, MetricKind, ScalarKind};

use crate::error::Error;
use crate::vectors::Vectors;

/// From how many chunks on a graph is built.
///
/// Comparing all of 30,000 vectors takes 2.3 ms, of 100,000 14 ms: no more than embedding the question, and it is exact
/// and needs no graph. A graph of 100,000 answers in 2 ms, and two cores build it in a minute and a half.
pub const CHUNKS_MIN: usize = 100_000;

/// A graph is built again after one in so many of its chunks was added or removed.
pub(crate) const CHANGED_PART: usize = 8;

// On 100,000 vectors in 2,000 clusters, with 100 queries: recall@10 is 1.00 and recall@50 0.996 after exact scoring.
// With f32 instead of i8 the recall is the same, the file three times as large, and loading sixteen times slower.
const QUANTIZATION: ScalarKind = ScalarKind::I8;
const CONNECTIVITY: usize = 16;
const EXPANSION_ADD: usize = 96;
const EXPANSION_SEARCH: usize = 256;
/// How many candidates are scored exactly for each requested hit.
const CANDIDATES_FACTOR: usize = 4;
const CANDIDATES_MIN: usize = 200;

pub(crate) struct Graph {
    index: usearch::Index,
    /// Its last row.
    pub(crate) row_max: i64,
}

impl Graph {
    pub(crate) fn build(vectors: &Vectors) -> Result<(Self, Vec<u8>), Error> {
        let index = usearch::Index::new(&options(vectors.dimensions())).map_err(failed)?;
        index.reserve_capacity_and_threads(vectors.len(), rayon::current_num_threads()).map_err(failed)?;
        let rows: Vec<_> = vectors.iter().collect();
        let add = |(row, vector): &(i64, &[half::f16])| index.add(row.cast_unsigned(), &vector.to_f32_vec());
        rows.par_iter().try_for_each(add).map_err(failed)?;
        let mut bytes = vec![0; index.serialized_length()];
        index.save_to_buffer(&mut bytes).map_err(failed)?;
        let row_max = rows.last().map_or(0, |(row, _)| *row);
        Ok((Self { index, row_max }, bytes))
    }

    /// Reads a graph's file; `None` if it is damaged. The checksum is tested on the bytes that are then loaded: a graph
    /// with a flipped bit loads without error and crashes when searched.
    pub(crate) fn read(path: &Path, hash: &str, row_max: i64, dimensions: usize) -> Option<Self> {
        let bytes = std::fs::read(path).ok()?;
        if crate::vectors::hash(&bytes) != hash {
            return None;
        }
        let index = usearch::Index::new(&options(dimensions)).ok()?;
        index.load_from_buffer(&bytes).ok()?;
        // Loading overwrites the options with those of the file.
        (index.dimensions() == dimensions).then_some(())?;
        index.change_expansion_search(EXPANSION_SEARCH);
        Some(Self { index, row_max })
    }

    /// Rows of chunks that are likely among the `limit` nearest.
    pub(crate) fn candidates(&self, query: &[f32], limit: usize) -> Result<Vec<i64>, Error> {
        let count = limit.saturating_mul(CANDIDATES_FACTOR).max(CANDIDATES_MIN);
        let matches = self.index.search(query, count).map_err(failed)?;
        Ok(matches.keys.into_iter().map(u64::cast_signed).collect())
    }
}

fn options(dimensions: usize) -> IndexOptions {
    IndexOptions {
        dimensions,
        metric: MetricKind::Cos,
        quantization: QUANTIZATION,
        connectivity: CONNECTIVITY,
        expansion_add: EXPANSION_ADD,
        expansion_search: EXPANSION_SEARCH,
        multi: false,
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Graph { what: error.to_string() }
}
