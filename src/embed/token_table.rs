//! How alike two tokens are, by the vectors that the model itself begins with.
//!
//! No forward pass: a row of the table for each token, and the cosine between rows. It finds `error` in a
//! passage that says `mistake`, at a price of a microsecond.

use crate::onnx::{self, Kind, Tensor};
use crate::{BUILT_IN_DIMENSIONS, BUILT_IN_WORDS, ModelChoice};

/// A row of the built-in table, and behind all rows its scale, an f32.
const BUILT_IN_ROW_BYTES: usize = BUILT_IN_DIMENSIONS;
const BUILT_IN_ROWS: usize = BUILT_IN_WORDS.len() / (BUILT_IN_ROW_BYTES + 4);

/// What the built-in model is given for these tokens: `[tokens, 384]`, each row by its scale. A token without a
/// row is refused.
pub(crate) fn built_in_rows(ids: &[i64]) -> Option<Vec<f32>> {
    let (rows, scales) = BUILT_IN_WORDS.split_at(BUILT_IN_ROWS * BUILT_IN_ROW_BYTES);
    let (rows, scales) = (rows.as_chunks::<BUILT_IN_ROW_BYTES>().0, scales.as_chunks::<4>().0);
    let mut vectors = Vec::with_capacity(ids.len() * BUILT_IN_DIMENSIONS);
    for &id in ids {
        let id = usize::try_from(id).ok()?;
        let scale = f32::from_le_bytes(*scales.get(id)?);
        vectors.extend(rows.get(id)?.iter().map(|&byte| f32::from(byte as i8) * scale));
    }
    Some(vectors)
}

/// The model's table of token vectors, `[vocabulary, dimensions]`.
pub struct WordTable {
    rows: Rows,
    dimensions: usize,
}

enum Rows {
    /// In place, in the binary. Each row has a scale of its own, which no cosine depends on.
    Int8(&'static [u8]),
    Float(Vec<f32>),
}

impl WordTable {
    /// The table of the model, if its file shows one.
    pub(crate) fn of(model: &ModelChoice) -> Option<Self> {
        match model {
            ModelChoice::BuiltIn | ModelChoice::Remote(_) => {
                let rows = &BUILT_IN_WORDS[..BUILT_IN_ROWS * BUILT_IN_ROW_BYTES];
                Some(Self { rows: Rows::Int8(rows), dimensions: BUILT_IN_DIMENSIONS })
            }
            ModelChoice::Onnx(own) => {
                let bytes = std::fs::read(&own.path).ok()?;
                let is_table = |t: &Tensor<'_>| t.kind == Kind::F32 && t.name.contains("word_embeddings");
                let table = onnx::tensors(&bytes).find(|t| is_table(t) && t.shape.len() == 2)?;
                let floats =
                    table.bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                let dimensions = table.shape[1];
                (dimensions > 0).then(|| Self { rows: Rows::Float(floats.collect()), dimensions })
            }
        }
    }

    /// How many tokens have a row.
    pub fn vocabulary(&self) -> usize {
        match &self.rows {
            Rows::Int8(bytes) => bytes.len() / self.dimensions,
            Rows::Float(floats) => floats.len() / self.dimensions,
        }
    }

    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// The cosine of every token of `these` with every one of `those`: `[these, those]`, row by row. A token
    /// without a row is like nothing: 0.
    pub fn cosines(&self, these: &[u32], those: &[u32]) -> Vec<f32> {
        if let Rows::Int8(bytes) = self.rows {
            return self.cosines_int8(bytes, these, those);
        }
        let these: Vec<_> = these.iter().map(|&piece| self.row(piece)).collect();
        let mut cosines = vec![0.0; these.len() * those.len()];
        // Column by column, so that each of the many rows is decoded once for the few.
        for (column, &piece) in those.iter().enumerate() {
            let Some(that) = self.row(piece) else { continue };
            for (row, this) in these.iter().enumerate() {
                if let Some(this) = this {
                    cosines[row * those.len() + column] = dot(this, &that);
                }
            }
        }
        cosines
    }

    /// In whole numbers, which a processor multiplies and adds eight at a time, and without a copy of each row:
    /// a question is compared with thousands of tokens.
    fn cosines_int8(&self, bytes: &[u8], these: &[u32], those: &[u32]) -> Vec<f32> {
        let row = |piece: u32| {
            bytes.get(usize::try_from(piece).ok()?.checked_mul(self.dimensions)?..)?.get(..self.dimensions)
        };
        let widen = |row: &[u8], wide: &mut Vec<i16>| {
            wide.clear();
            wide.extend(row.iter().map(|&byte| i16::from(byte as i8)));
            (dot_i16(wide, wide) as f32).sqrt()
        };
        let these: Vec<(Vec<i16>, f32)> = these
            .iter()
            .map(|&piece| {
                let mut wide = Vec::new();
                let norm = row(piece).map_or(0.0, |row| widen(row, &mut wide));
                (wide, norm)
            })
            .collect();
        let mut cosines = vec![0.0; these.len() * those.len()];
        let mut that = Vec::with_capacity(self.dimensions);
        for (column, &piece) in those.iter().enumerate() {
            let Some(row) = row(piece) else { continue };
            let norm_of_that = widen(row, &mut that);
            for (row, (this, norm)) in these.iter().enumerate() {
                if norm * norm_of_that > 0.0 {
                    cosines[row * those.len() + column] = dot_i16(this, &that) as f32 / (norm * norm_of_that);
                }
            }
        }
        cosines
    }

    /// One row, L2-normalised: `[dimensions] f32`.
    pub fn row(&self, piece: u32) -> Option<Vec<f32>> {
        let start = usize::try_from(piece).ok()?.checked_mul(self.dimensions)?;
        let range = start..start.checked_add(self.dimensions)?;
        let mut row: Vec<f32> = match &self.rows {
            Rows::Int8(bytes) => bytes.get(range)?.iter().map(|&byte| f32::from(byte as i8)).collect(),
            Rows::Float(floats) => floats.get(range)?.to_vec(),
        };
        let norm = dot(&row, &row).sqrt();
        if !norm.is_normal() {
            return None;
        }
        row.iter_mut().for_each(|x| *x /= norm);
        Some(row)
    }
}

/// Exact: 384 products of at most 127² fit into an `i32`, as do a hundred thousand.
fn dot_i16(a: &[i16], b: &[i16]) -> i32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        #[expect(unsafe_code, reason = "the processor was asked for what the function needs")]
        return unsafe { dot_i16_avx2(a, b) };
    }
    dot_i16_anywhere(a, b)
}

/// The same for a compiler that may use registers of sixteen.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn dot_i16_avx2(a: &[i16], b: &[i16]) -> i32 {
    dot_i16_anywhere(a, b)
}

#[inline(always)]
fn dot_i16_anywhere(a: &[i16], b: &[i16]) -> i32 {
    a.iter().zip(b).map(|(&x, &y)| i32::from(x) * i32::from(y)).sum()
}

/// In eight sums, which a compiler turns into vector instructions; one sum it may not reorder.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 8];
    let (a, b) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f32 = a.remainder().iter().zip(b.remainder()).map(|(x, y)| x * y).sum();
    for (a, b) in a.zip(b) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    sums.iter().sum::<f32>() + rest
}
