//! A graph over the vectors of a large brain (HNSW, usearch), so that a search need not look at all
//! of them. It only proposes candidates: they are scored exactly with the packed vectors.
//!
//! A graph is made for one generation and used for later ones: chunks added since are looked at one
//! by one, chunks gone since are left out. It is made again when too many were added or gone.

use std::path::Path;

use half::slice::HalfFloatSliceExt as _;
use rayon::prelude::*;
use usearch::ffi::{IndexOptions, MetricKind, ScalarKind};

use crate::error::Error;
use crate::vectors::Vectors;

/// From how many chunks on a graph is made. Looking at all of 30,000 vectors takes 2.3 ms, of
/// 100,000 14 ms: no more than embedding the question does, exact, and with nothing to build or to
/// keep. A graph of 100,000 answers in 2 ms and takes a minute and a half of two cores to build.
pub const CHUNKS_MIN: usize = 100_000;

/// A graph is made again when this part of its chunks, one in so many, was added or is gone.
pub(crate) const CHANGED_PART: usize = 8;

// On 100,000 vectors in 2,000 clusters, 100 queries: recall@10 1.00 and recall@50 .996 after exact
// scoring. With f32 in the place of i8 the recall is the same, the file three times as large and
// loading it sixteen times slower.
const QUANTIZATION: ScalarKind = ScalarKind::I8;
const CONNECTIVITY: usize = 16;
const EXPANSION_ADD: usize = 96;
const EXPANSION_SEARCH: usize = 256;
/// How many candidates are scored exactly, for each wanted.
const CANDIDATES_FACTOR: usize = 4;
const CANDIDATES_MIN: usize = 200;

pub(crate) struct Graph {
    index: usearch::Index,
    /// The last row that is in it.
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

    /// Reads a graph's file; `None` when it is not what was written. The checksum is proven on the
    /// bytes that are then read: a graph with a flipped bit loads well and crashes when searched.
    pub(crate) fn read(path: &Path, hash: &str, row_max: i64, dimensions: usize) -> Option<Self> {
        let bytes = std::fs::read(path).ok()?;
        if crate::vectors::hash(&bytes) != hash {
            return None;
        }
        let index = usearch::Index::new(&options(dimensions)).ok()?;
        index.load_from_buffer(&bytes).ok()?;
        // Loading takes over what the file says, whatever was asked for.
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
