//! An HNSW graph (usearch) over the vectors of a large brain, so that a search need not compare all of them.
//!
//! The graph only proposes candidates, which are scored exactly with the vectors in memory. It is built for one generation
//! and used for later ones: chunks added since are compared one by one, and removed chunks are left out. It is built
//! again after too many changes.

use half::slice::HalfFloatSliceExt as _;
use rayon::prelude::*;
use rusqlite::{Connection, OptionalExtension as _, params};
use usearch::ffi::{IndexOptions, MetricKind, ScalarKind};

use crate::error::Error;
use crate::vectors::Vectors;

/// From how many chunks on a graph is built.
///
/// Comparing all of 30,000 vectors takes 2.3 ms, half of embedding the question, and of 100,000 14 ms; it is exact and
/// needs no graph. A graph of 100,000 answers in 2 ms, and two cores build it in a minute and a half.
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
/// How many vectors are added one after the other before the rest is added by all threads.
const ADDED_ALONE: usize = 1_000;

pub(crate) struct Graph {
    index: usearch::Index,
    /// Its last row.
    pub(crate) row_max: i64,
}

impl Graph {
    /// Builds a graph and stores it in place of the present one.
    pub(crate) fn build(connection: &Connection, vectors: &Vectors) -> Result<(), Error> {
        let index = usearch::Index::new(&options(vectors.dimensions())).map_err(failed)?;
        index.reserve_capacity_and_threads(vectors.len(), rayon::current_num_threads()).map_err(failed)?;
        let rows: Vec<_> = vectors.iter().collect();
        let add = |(row, vector): &(i64, &[half::f16])| index.add(row.cast_unsigned(), &vector.to_f32_vec());
        // Vectors that are added at the same time do not see each other, which a graph of few would not get over.
        let (first, rest) = rows.split_at(rows.len().min(ADDED_ALONE));
        first.iter().try_for_each(add).map_err(failed)?;
        rest.par_iter().try_for_each(add).map_err(failed)?;
        let mut bytes = vec![0; index.serialized_length()];
        index.save_to_buffer(&mut bytes).map_err(failed)?;
        let row_max = rows.last().map_or(0, |(row, _)| *row);
        let hash = blake3::hash(&bytes).to_hex().to_string();
        connection
            .execute("INSERT OR REPLACE INTO graph VALUES (1, ?1, ?2, ?3)", params![hash, row_max, bytes])
            .map_err(failed)?;
        Ok(())
    }

    /// Reads the stored graph; `None` if there is none or it is damaged. The checksum is tested on the bytes that are
    /// then loaded: a graph with a flipped bit loads without error and crashes when searched.
    pub(crate) fn read(connection: &Connection, dimensions: usize) -> rusqlite::Result<Option<Self>> {
        let load = |row_max: i64, hash: &str, bytes: &[u8]| {
            (blake3::hash(bytes).to_hex().as_str() == hash).then_some(())?;
            let index = usearch::Index::new(&options(dimensions)).ok()?;
            index.load_from_buffer(bytes).ok()?;
            // Loading overwrites the options with those of the stored graph.
            (index.dimensions() == dimensions).then_some(())?;
            index.change_expansion_search(EXPANSION_SEARCH);
            Some(Self { index, row_max })
        };
        connection
            .query_row("SELECT row_max, hash, data FROM graph", [], |row| {
                Ok(load(row.get(0)?, row.get_ref(1)?.as_str()?, row.get_ref(2)?.as_blob()?))
            })
            .optional()
            .map(Option::flatten)
    }

    /// How many chunks it was built for.
    pub(crate) fn len(&self) -> usize {
        self.index.size()
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
