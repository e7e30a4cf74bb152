//! The vectors of a generation in memory, and the exact search.

use half::f16;
use half::slice::HalfFloatSliceExt as _;
use kernels::dot_halves;
use rayon::prelude::*;
use rusqlite::Connection;

use crate::error::Error;
use crate::generation::ModelLabel;
use crate::records::{ChunkRow, Hit, TextHash};

/// Rows that a thread compares at a time.
const BLOCK_ROWS: usize = 512;
/// A thread reads a block in this many places by turns: while it waits for the memory of one, that of the others is on its
/// way. In order, a scan takes four tenths longer.
const STREAMS: usize = 4;

/// A generation of which more than an eighth is new is read as a whole, in the order of the table.
const NEW_PART: usize = 8;

/// The vectors of all chunks of a generation, by their rows, ascending.
#[derive(Debug)]
pub(crate) struct Vectors {
    /// The generation's key.
    pub(crate) key: String,
    model: ModelLabel,
    rows: Vec<i64>,
    /// Of the text of each row.
    hashes: Vec<TextHash>,
    /// `[rows.len(), dimensions]`.
    values: Vec<f16>,
}

impl Vectors {
    pub(crate) fn empty(key: String) -> Self {
        let model = ModelLabel { name: String::new(), dimensions: 0 };
        Self { key, model, rows: Vec::new(), hashes: Vec::new(), values: Vec::new() }
    }

    /// Reads the embeddings of all chunks; none if one is damaged. Of `known`, an earlier generation, those of the same chunks
    /// are taken.
    pub(crate) fn read(
        connection: &Connection,
        key: String,
        model: &ModelLabel,
        known: Option<&Self>,
    ) -> rusqlite::Result<Self> {
        let mut vectors = Self { model: model.clone(), ..Self::empty(key) };
        let complete = match known.filter(|known| known.model == *model) {
            Some(known) => vectors.read_changed(connection, known)?,
            None => vectors.read_all(connection)?,
        };
        vectors.values.shrink_to_fit();
        Ok(if complete { vectors } else { Self::empty(vectors.key) })
    }

    /// Returns whether all are sound.
    fn read_all(&mut self, connection: &Connection) -> rusqlite::Result<bool> {
        let sql = "SELECT row, text_hash, embedding FROM chunks ORDER BY row";
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            if !self.push(row.get(0)?, row.get(1)?, row.get_ref(2)?.as_blob()?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether all are sound.
    fn read_changed(&mut self, connection: &Connection, known: &Self) -> rusqlite::Result<bool> {
        // The index has both columns, and a small part of the table's pages.
        let sql = "SELECT row, text_hash FROM chunks INDEXED BY chunks_by_text";
        let mut chunks: Vec<(i64, TextHash)> = connection
            .prepare_cached(sql)?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        chunks.sort_unstable();
        // A database that was made again numbers its rows from the start.
        let place = |(row, hash): &(i64, TextHash)| {
            known.rows.binary_search(row).ok().filter(|&place| known.hashes[place] == *hash)
        };
        let places: Vec<Option<usize>> = chunks.iter().map(place).collect();
        if places.iter().filter(|place| place.is_none()).count() * NEW_PART > chunks.len() {
            return self.read_all(connection);
        }
        self.values.reserve_exact(chunks.len() * self.dimensions());
        let mut statement = connection.prepare_cached("SELECT embedding FROM chunks WHERE row = ?1")?;
        for ((row, hash), place) in chunks.into_iter().zip(places) {
            if let Some(place) = place {
                self.rows.push(row);
                self.hashes.push(hash);
                self.values.extend_from_slice(known.at(place));
                continue;
            }
            let mut rows = statement.query([row])?;
            let Some(found) = rows.next()? else { return Ok(false) };
            if !self.push(row, hash, found.get_ref(0)?.as_blob()?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether the embedding is sound.
    fn push(&mut self, row: i64, hash: TextHash, embedding: &[u8]) -> bool {
        let (pairs, _) = embedding.as_chunks::<2>();
        self.rows.push(row);
        self.hashes.push(hash);
        self.values.extend(pairs.iter().map(|pair| f16::from_le_bytes(*pair)));
        embedding.len() == self.dimensions() * 2
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn dimensions(&self) -> usize {
        self.model.dimensions
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, &[f16])> {
        self.rows.iter().copied().zip(self.values.chunks_exact(self.dimensions().max(1)))
    }

    pub(crate) fn vector(&self, row: ChunkRow) -> Option<Vec<f32>> {
        self.find(row).map(|vector| vector.to_f32_vec())
    }

    /// The cosine similarity of a chunk's vector and a normalised query.
    pub(crate) fn similarity(&self, row: ChunkRow, query: &[f32]) -> Option<f64> {
        let vector = self.find(row).filter(|vector| vector.len() == query.len())?;
        Some(f64::from(dot(query, vector)))
    }

    /// The `limit` admitted rows after `after` that are nearest to an L2-normalised query, best first; equal scores in row order.
    pub(crate) fn scan(
        &self,
        query: &[f32],
        limit: usize,
        after: i64,
        admits: impl Fn(i64) -> bool + Sync,
    ) -> Vec<Hit> {
        let from = self.rows.partition_point(|&row| row <= after);
        let starts: Vec<usize> = (from..self.rows.len()).step_by(BLOCK_ROWS).collect();
        let score_block = |&start: &usize| {
            let end = self.rows.len().min(start + BLOCK_ROWS);
            let apart = (end - start).div_ceil(STREAMS);
            let places = (0..apart).flat_map(|at| (at..end - start).step_by(apart));
            let admitted = places.map(|at| start + at).filter(|&index| admits(self.rows[index]));
            let mut scores: Vec<(f32, i64)> =
                admitted.map(|index| (dot(query, self.at(index)), self.rows[index])).collect();
            keep_best(&mut scores, limit);
            scores
        };
        let mut scores: Vec<(f32, i64)> = starts.par_iter().flat_map_iter(score_block).collect();
        keep_best(&mut scores, limit);
        scores.sort_unstable_by(by_score);
        scores.into_iter().map(|(score, row)| Hit { chunk: ChunkRow(row), score: score.into() }).collect()
    }

    fn at(&self, index: usize) -> &[f16] {
        &self.values[index * self.dimensions()..][..self.dimensions()]
    }

    fn find(&self, row: ChunkRow) -> Option<&[f16]> {
        self.rows.binary_search(&row.0).ok().map(|index| self.at(index))
    }
}

/// Higher scores first; of equal scores, lower rows first.
fn by_score(a: &(f32, i64), b: &(f32, i64)) -> std::cmp::Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// Keeps the best `limit`, in any order.
fn keep_best(scores: &mut Vec<(f32, i64)>, limit: usize) {
    if limit < scores.len() {
        scores.select_nth_unstable_by(limit, by_score);
        scores.truncate(limit);
    }
}

fn dot(query: &[f32], row: &[f16]) -> f32 {
    dot_halves(query, row.reinterpret_cast())
}

/// A vector as the database stores it: L2-normalised f16, little endian.
///
/// # Errors
/// If it has other dimensions, or is zero or not finite.
pub(crate) fn to_embedding(vector: &[f32], dimensions: usize) -> Result<Vec<u8>, Error> {
    let mut halves = vec![f16::ZERO; dimensions];
    halves.convert_from_f32_slice(&normalised(vector, dimensions)?);
    Ok(halves.iter().flat_map(|x| x.to_le_bytes()).collect())
}

/// Scales a vector to length 1.
///
/// # Errors
/// If it has other dimensions, or is zero or not finite.
pub(crate) fn normalised(vector: &[f32], dimensions: usize) -> Result<Vec<f32>, Error> {
    if vector.len() != dimensions {
        return Err(Error::Dimensions { wanted: dimensions, given: vector.len() });
    }
    let norm = vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    if !norm.is_finite() || norm < 1e-12 {
        return Err(Error::NotAVector);
    }
    Ok(vector.iter().map(|x| (f64::from(*x) / norm) as f32).collect())
}

#[cfg(test)]
impl Vectors {
    /// With the same rows and zeros, to tell what is taken from it.
    pub(crate) fn zeroed(mut self) -> Self {
        self.values.fill(f16::ZERO);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finite_half_is_widened_exactly() {
        let mut ones = [0.0; 32];
        let mut halves = [f16::ZERO; 32];
        for half in (0..=u16::MAX).map(f16::from_bits).filter(|half| half.is_finite()) {
            assert_eq!(dot(&[1.0], &[half]), half.to_f32(), "{half}");
            let lane = usize::from(half.to_bits() % 32);
            (ones[lane], halves[lane]) = (1.0, half);
            assert_eq!(dot(&ones, &halves), half.to_f32(), "{half}");
            (ones[lane], halves[lane]) = (0.0, f16::ZERO);
        }
    }

    #[test]
    fn dot_is_the_inner_product_at_every_length() {
        for length in [0, 1, 31, 32, 33, 384, 389] {
            let query: Vec<f32> = (0..length).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
            let row: Vec<f16> =
                (0..length).map(|i| f16::from_f32(((i * 53 % 97) as f32 - 48.0) / 48.0)).collect();
            let plain: f32 = query.iter().zip(&row).map(|(a, b)| a * b.to_f32()).sum();
            let found = dot(&query, &row);
            assert!((found - plain).abs() < 1e-3 * (1.0 + plain.abs()), "{length}: {found} {plain}");
        }
    }
}
