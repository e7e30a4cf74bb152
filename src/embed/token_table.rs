//! Similarity of tokens by the model's own input embeddings.
//!
//! There is no forward pass: each token has a row in the model's table of word embeddings, and two tokens are as
//! similar as the cosine of their rows. This finds `error` in a passage that says `mistake`, in about a
//! microsecond.

use multiversion::multiversion;

use crate::built_in::BUILT_IN_MODEL;
use crate::onnx::{self, Kind, Tensor};
use crate::settings::ModelChoice;

/// The word embeddings of a model, `[vocabulary, dimensions]`. Rows are not normalised.
pub struct TokenTable {
    rows: Rows,
    dimensions: usize,
}

enum Rows {
    /// In place, in the binary. Each row has a scale of its own, which the cosine does not depend on.
    Int8(&'static [u8]),
    Float(Vec<f32>),
}

impl TokenTable {
    /// The table of a model, or `None` if its file has none as a plain tensor.
    pub(crate) fn read(model: &ModelChoice) -> Option<Self> {
        let is_table = |tensor: &Tensor<'_>, kind: Kind| {
            tensor.kind == kind
                && tensor.name.contains("word_embeddings")
                && matches!(tensor.shape[..], [_, dimensions] if dimensions > 1)
        };
        match model {
            ModelChoice::BuiltIn | ModelChoice::Remote(_) | ModelChoice::Off => {
                let table = onnx::tensors(BUILT_IN_MODEL).find(|tensor| is_table(tensor, Kind::I8))?;
                Some(Self { rows: Rows::Int8(table.bytes), dimensions: table.shape[1] })
            }
            ModelChoice::Onnx(own) => {
                let bytes = std::fs::read(&own.path).ok()?;
                let table = onnx::tensors(&bytes).find(|tensor| is_table(tensor, Kind::F32))?;
                let floats = table.bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
                Some(Self { rows: Rows::Float(floats.collect()), dimensions: table.shape[1] })
            }
        }
    }

    /// The cosine of every token of `these` with every token of `those`: `[these, those]`, row by row. A token
    /// without a row has cosine 0 with all others.
    pub fn cosines(&self, these: &[u32], those: &[u32]) -> Vec<f32> {
        let mut cosines = vec![0.0; these.len() * those.len()];
        match &self.rows {
            Rows::Int8(bytes) => {
                // Half of the width of f32, and exact: the products of a row fit in 32 bits.
                let row = |token: &u32| self.range(*token).and_then(|range| bytes.get(range));
                let these: Vec<_> = these.iter().map(|token| row(token).map(widened_row)).collect();
                let those: Vec<_> = those.iter().map(row).collect();
                compare_int8(&these, &those, &mut cosines);
            }
            Rows::Float(floats) => {
                let row = |token: &u32| self.range(*token).and_then(|range| floats.get(range));
                let norm = |row: &[f32]| dot(row, row).sqrt();
                for (this, cosines) in these.iter().zip(cosines.chunks_exact_mut(those.len().max(1))) {
                    let Some(this) = row(this) else { continue };
                    for (that, cosine) in those.iter().zip(cosines) {
                        let Some(that) = row(that) else { continue };
                        *cosine = cosine_of(dot(this, that), norm(this), norm(that));
                    }
                }
            }
        }
        cosines
    }

    /// Where a token's row is.
    fn range(&self, token: u32) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(token).ok()?.checked_mul(self.dimensions)?;
        Some(start..start.checked_add(self.dimensions)?)
    }
}

/// 0 for a row without a direction.
fn cosine_of(product: f32, norm: f32, other_norm: f32) -> f32 {
    let norms = norm * other_norm;
    if norms.is_normal() { product / norms } else { 0.0 }
}

fn widened_row(row: &[u8]) -> Vec<i16> {
    let mut wide = vec![0; row.len()];
    widen(row, &mut wide);
    wide
}

#[inline(always)]
fn widen(row: &[u8], wide: &mut [i16]) {
    for (&byte, wide) in row.iter().zip(wide) {
        *wide = i16::from(byte as i8);
    }
}

/// Column by column, so that each of the many rows is widened once for the few.
#[multiversion(targets("x86_64+avx2", "aarch64+neon"))]
fn compare_int8(these: &[Option<Vec<i16>>], those: &[Option<&[u8]>], cosines: &mut [f32]) {
    let norms: Vec<f32> =
        these.iter().map(|this| this.as_ref().map_or(0.0, |this| dot_i16(this, this).sqrt())).collect();
    let mut that = vec![0; those.iter().flatten().next().map_or(0, |row| row.len())];
    for (column, row) in those.iter().enumerate() {
        let Some(row) = row else { continue };
        widen(row, &mut that);
        let that_norm = dot_i16(&that, &that).sqrt();
        for (number, (this, norm)) in these.iter().zip(&norms).enumerate() {
            if let Some(this) = this {
                cosines[number * those.len() + column] = cosine_of(dot_i16(this, &that), *norm, that_norm);
            }
        }
    }
}

#[inline(always)]
fn dot_i16(a: &[i16], b: &[i16]) -> f32 {
    let sum: i32 = a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
    sum as f32
}

/// In sixteen sums, which the compiler turns into vector instructions; it may not reorder a single sum.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 16];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    for (a, b) in a.iter().zip(b) {
        for i in 0..16 {
            sums[i] += a[i] * b[i];
        }
    }
    sums.iter().sum::<f32>() + a_rest.iter().zip(b_rest).map(|(x, y)| x * y).sum::<f32>()
}
