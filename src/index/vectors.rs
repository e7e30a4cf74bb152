//! The vectors of a generation: the format of their file, the rows added and removed since, and the exact search.
//!
//! The file: 32 bytes of header (`nuggetv` and a NUL, version u32, dimensions u32, count u64, 8 zero
//! bytes), `[count, dimensions]` f16 L2-normalised, zeros up to a multiple of 8 bytes, `[count]`
//! chunk rows i64 ascending; all little endian. Its BLAKE3 hash is in the generation's row.
//!
//! The file is read into memory and not mapped: truncating a mapped file kills the process, and the checksum must hold
//! for the bytes that are used.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use half::f16;
use half::slice::HalfFloatSliceExt as _;
use rayon::prelude::*;

use crate::error::{Error, io_error};
use crate::records::{ChunkRow, Hit};

const MAGIC: &[u8; 8] = b"nuggetv\0";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 32;
/// Rows that a thread compares at a time.
const BLOCK_ROWS: usize = 512;

#[derive(Debug)]
pub(crate) struct Vectors {
    /// The file's hash, the key of the cache.
    pub(crate) hash: String,
    dimensions: usize,
    rows: Vec<i64>,
    /// `[rows.len(), dimensions]`.
    values: Vec<f16>,
}

/// The vectors of one generation: the rows of its file that still exist, and the rows added since.
#[derive(Debug)]
pub(crate) struct VectorSet {
    /// Identifies the generation and its database; the key of the cache.
    pub(crate) key: String,
    pub(crate) packed: Arc<Vectors>,
    /// Rows of `packed` that the generation no longer has, ascending.
    gone: Vec<i64>,
    /// Rows after the last of `packed`.
    tail: Vectors,
}

impl VectorSet {
    pub(crate) fn empty() -> Self {
        Self {
            key: String::new(),
            packed: Arc::new(Vectors::empty()),
            gone: Vec::new(),
            tail: Vectors::empty(),
        }
    }

    /// `tail`: rows after those of `packed`, in the format of the file.
    pub(crate) fn new(key: String, packed: Arc<Vectors>, gone: Vec<i64>, tail: &[u8]) -> Option<Self> {
        let tail = Vectors::parse(&hash(tail), tail)?;
        Some(Self { key, packed, gone, tail })
    }

    pub(crate) fn len(&self) -> usize {
        (self.packed.rows.len() + self.tail.rows.len()).saturating_sub(self.gone.len())
    }

    pub(crate) fn dimensions(&self) -> usize {
        self.packed.dimensions
    }

    fn find(&self, row: ChunkRow) -> Option<&[f16]> {
        match self.packed.find(row) {
            Some(vector) if self.gone.binary_search(&row.0).is_err() => Some(vector),
            Some(_) => None,
            None => self.tail.find(row),
        }
    }

    pub(crate) fn vector(&self, row: ChunkRow) -> Option<Vec<f32>> {
        self.find(row).map(|vector| vector.to_f32_vec())
    }

    /// The cosine of a chunk with an L2-normalised query.
    pub(crate) fn similarity(&self, row: ChunkRow, query: &[f32]) -> Option<f64> {
        let vector = self.find(row).filter(|vector| vector.len() == query.len())?;
        Some(f64::from(dot(query, vector)))
    }

    /// Compares an L2-normalised query with all admitted rows after `after`. Returns the nearest, best first; equal
    /// scores in the order of their rows.
    pub(crate) fn scan(
        &self,
        query: &[f32],
        limit: usize,
        after: i64,
        admits: impl Fn(i64) -> bool + Sync,
    ) -> Vec<Hit> {
        let mut scores = self.packed.scores(query, limit, after, |row| {
            admits(row) && (self.gone.is_empty() || self.gone.binary_search(&row).is_err())
        });
        scores.append(&mut self.tail.scores(query, limit, after, admits));
        keep_best(&mut scores, limit);
        scores.sort_unstable_by(by_score);
        scores.into_iter().map(|(score, row)| Hit { chunk: ChunkRow(row), score: score.into() }).collect()
    }
}

/// Packs vectors in the format of the file, row by row.
pub(crate) struct Packer {
    dimensions: usize,
    values: Vec<u8>,
    rows: Vec<i64>,
}

impl Packer {
    pub(crate) fn new(dimensions: usize) -> Self {
        Self { dimensions, values: vec![0; HEADER_BYTES], rows: Vec::new() }
    }

    /// Adds a chunk's embedding as stored in the database; rows must ascend.
    ///
    /// # Errors
    /// If the embedding has other dimensions than the model: the database is damaged.
    pub(crate) fn push(&mut self, row: i64, embedding: &[u8]) -> Result<(), Error> {
        if embedding.len() != self.dimensions * 2 {
            return Err(Error::Dimensions { wanted: self.dimensions, given: embedding.len() / 2 });
        }
        self.values.extend_from_slice(embedding);
        self.rows.push(row);
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.values.resize(self.values.len().next_multiple_of(8), 0);
        for row in &self.rows {
            self.values.extend_from_slice(&row.to_le_bytes());
        }
        self.values[..8].copy_from_slice(MAGIC);
        self.values[8..12].copy_from_slice(&VERSION.to_le_bytes());
        self.values[12..16].copy_from_slice(&(self.dimensions as u32).to_le_bytes());
        self.values[16..24].copy_from_slice(&(self.rows.len() as u64).to_le_bytes());
        self.values
    }
}

impl Vectors {
    pub(crate) fn empty() -> Self {
        Self { hash: String::new(), dimensions: 0, rows: Vec::new(), values: Vec::new() }
    }

    /// Parses a file's bytes; `None` if they are damaged.
    pub(crate) fn parse(hash: &str, bytes: &[u8]) -> Option<Self> {
        if self::hash(bytes) != hash
            || bytes.get(..8)? != MAGIC
            || number::<4>(bytes, 8)? != u64::from(VERSION)
        {
            return None;
        }
        let dimensions = usize::try_from(number::<4>(bytes, 12)?).ok()?;
        let count = usize::try_from(number::<8>(bytes, 16)?).ok()?;
        let values_end = HEADER_BYTES.checked_add(count.checked_mul(dimensions)?.checked_mul(2)?)?;
        let values = bytes.get(HEADER_BYTES..values_end)?;
        let rows = bytes.get(values_end.next_multiple_of(8)..)?;
        if rows.len() != count.checked_mul(8)? {
            return None;
        }
        let values = values.as_chunks::<2>().0.iter().map(|pair| f16::from_le_bytes(*pair)).collect();
        let rows = rows.as_chunks::<8>().0.iter().map(|eight| i64::from_le_bytes(*eight)).collect();
        Some(Self { hash: hash.to_owned(), dimensions, rows, values })
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The size of a file of this many chunks.
    pub(crate) fn file_bytes(dimensions: usize, chunks: usize) -> u64 {
        ((HEADER_BYTES + chunks * dimensions * 2).next_multiple_of(8) + chunks * 8) as u64
    }

    pub(crate) fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// The rows with their vectors.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, &[f16])> {
        self.rows.iter().copied().zip(self.values.chunks_exact(self.dimensions.max(1)))
    }

    fn at(&self, index: usize) -> &[f16] {
        &self.values[index * self.dimensions..][..self.dimensions]
    }

    fn find(&self, row: ChunkRow) -> Option<&[f16]> {
        self.rows.binary_search(&row.0).ok().map(|index| self.at(index))
    }

    /// The cosines of admitted rows after `after` with an L2-normalised query: at least the best `limit` of them.
    fn scores(
        &self,
        query: &[f32],
        limit: usize,
        after: i64,
        admits: impl Fn(i64) -> bool + Sync,
    ) -> Vec<(f32, i64)> {
        let from = self.rows.partition_point(|&row| row <= after);
        let starts: Vec<usize> = (from..self.rows.len()).step_by(BLOCK_ROWS).collect();
        let score_block = |&start: &usize| {
            let block = start..self.rows.len().min(start + BLOCK_ROWS);
            let admitted = block.filter(|&index| admits(self.rows[index]));
            let mut scores =
                admitted.map(|index| (dot(query, self.at(index)), self.rows[index])).collect::<Vec<_>>();
            keep_best(&mut scores, limit);
            scores
        };
        starts.par_iter().flat_map_iter(score_block).collect()
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

/// Numbers that are widened to f32 at a time; a multiple of the lanes.
const WIDENED: usize = 128;
const LANES: usize = 16;

/// The inner product. One running sum for each lane lets the compiler use vector instructions.
fn dot(query: &[f32], row: &[f16]) -> f32 {
    let mut sums = [0.0_f32; LANES];
    let mut rest = 0.0;
    let mut widened = [0.0_f32; WIDENED];
    for (query, row) in query.chunks(WIDENED).zip(row.chunks(WIDENED)) {
        let widened = &mut widened[..row.len()];
        row.convert_to_f32_slice(widened);
        let (query, query_rest) = query.as_chunks::<LANES>();
        let (row, row_rest) = widened.as_chunks::<LANES>();
        for (a, b) in query.iter().zip(row) {
            for lane in 0..LANES {
                sums[lane] += a[lane] * b[lane];
            }
        }
        rest += query_rest.iter().zip(row_rest).map(|(a, b)| a * b).sum::<f32>();
    }
    sums.iter().sum::<f32>() + rest
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

pub(crate) fn hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

/// The name of a generation's file: `vectors-7-1f3a90bc`. It includes the hash, so that a name has only one content and
/// no file is overwritten under a reader.
pub(crate) fn file_name(kind: &str, generation: u64, hash: &str) -> String {
    format!("{kind}-{generation}-{}", &hash[..8.min(hash.len())])
}

/// The generation's number in a name from [`file_name`].
pub(crate) fn generation_of(name: &str, kind: &str) -> Option<u64> {
    name.strip_prefix(kind)?.strip_prefix('-')?.split('-').next()?.parse().ok()
}

/// Writes a file atomically, even in a power cut: writes and syncs a temporary file, renames it, and syncs the folder.
pub(crate) fn write_whole(folder: &Path, name: &str, bytes: &[u8]) -> Result<PathBuf, Error> {
    let path = folder.join(name);
    let write = || -> io::Result<()> {
        let mut file =
            tempfile::Builder::new().prefix(&format!("{name}.")).suffix(".tmp").tempfile_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(&path)?;
        fs::File::open(folder)?.sync_all()
    };
    write().map_err(io_error("write", &path))?;
    Ok(path)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut eight = [0; 8];
    eight[..N].copy_from_slice(bytes.get(at..at + N)?);
    Some(u64::from_le_bytes(eight))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_is_the_inner_product_at_every_length() {
        for length in [0, 1, 15, 16, 17, 384, 389] {
            let query: Vec<f32> = (0..length).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
            let row: Vec<f16> =
                (0..length).map(|i| f16::from_f32(((i * 53 % 97) as f32 - 48.0) / 48.0)).collect();
            let plain: f32 = query.iter().zip(&row).map(|(a, b)| a * b.to_f32()).sum();
            let found = dot(&query, &row);
            assert!((found - plain).abs() < 1e-3 * (1.0 + plain.abs()), "{length}: {found} {plain}");
        }
    }
}
