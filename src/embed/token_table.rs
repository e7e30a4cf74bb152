//! Similarity of tokens by the model's own input embeddings.
//!
//! There is no forward pass: each token has a row in the model's table of word embeddings, and two tokens are as
//! similar as the cosine of their rows. This finds `error` in a passage that says `mistake`, in about a
//! microsecond.

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
            ModelChoice::BuiltIn | ModelChoice::Remote(_) => {
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
        let these: Vec<_> = these.iter().map(|&token| self.row(token)).collect();
        let mut cosines = vec![0.0; these.len() * those.len()];
        // Column by column, so that each of the many rows is decoded once for the few.
        for (column, &token) in those.iter().enumerate() {
            let Some((that, that_norm)) = self.row(token) else { continue };
            for (row, this) in these.iter().enumerate() {
                if let Some((this, norm)) = this {
                    cosines[row * those.len() + column] = dot(this, &that) / (norm * that_norm);
                }
            }
        }
        cosines
    }

    /// A token's row with its norm, unless the row is missing or zero.
    fn row(&self, token: u32) -> Option<(Vec<f32>, f32)> {
        let start = usize::try_from(token).ok()?.checked_mul(self.dimensions)?;
        let range = start..start.checked_add(self.dimensions)?;
        let row: Vec<f32> = match &self.rows {
            Rows::Int8(bytes) => bytes.get(range)?.iter().map(|&byte| f32::from(byte as i8)).collect(),
            Rows::Float(floats) => floats.get(range)?.to_vec(),
        };
        let norm = dot(&row, &row).sqrt();
        norm.is_normal().then_some((row, norm))
    }
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
