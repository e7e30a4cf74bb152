//! The weights of the re-ranker, and how they change a score.

use std::sync::Arc;

const MAGIC: &[u8; 4] = b"NGRW";
const VERSION: u32 = 1;
const CHECKSUM_BYTES: usize = blake3::OUT_LEN;
/// The largest embeddings that are read.
const DIMENSIONS_MAX: usize = 8192;

/// Two residual transforms of embeddings: `q' = q + W_q q` for the question, `m' = m + W_m m` for an item (Tan et al.,
/// ACL 2025, equation 1). The learned score is `q'ᵀ m'`. Zero weights change nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    model: String,
    dimensions: usize,
    /// `[dimensions, dimensions]`, row by row.
    query: Vec<f32>,
    memory: Vec<f32>,
}

/// Why kept weights cannot be used. The base order stays.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WeightsError {
    /// The bytes are not what was written.
    #[error("the learned weights are damaged")]
    Damaged,
    /// Written by a version that this one does not know.
    #[error("the learned weights have the unknown version {0}")]
    Version(u32),
    /// Learned for the embeddings of another model.
    #[error("the learned weights are for {found}, not for {expected}")]
    Model {
        /// The model that they are for.
        found: String,
        /// The model in use.
        expected: String,
    },
    /// An embedding does not have the weights' number of dimensions.
    #[error("an embedding has {found} dimensions, not {expected}")]
    Dimensions {
        /// Of the embedding.
        found: usize,
        /// Of the weights.
        expected: usize,
    },
}

impl Weights {
    /// Weights that change nothing, for the embeddings of a model.
    pub fn zero(model: &str, dimensions: usize) -> Self {
        let size = dimensions * dimensions;
        Self { model: model.to_owned(), dimensions, query: vec![0.0; size], memory: vec![0.0; size] }
    }

    /// The model whose embeddings they are for.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The length of its embeddings.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Whether they change nothing.
    pub fn is_zero(&self) -> bool {
        self.query.iter().chain(&self.memory).all(|weight| *weight == 0.0)
    }

    /// The Frobenius norms of `W_q` and `W_m`.
    pub fn norms(&self) -> (f64, f64) {
        (squares(&self.query).sqrt(), squares(&self.memory).sqrt())
    }

    /// Prepares a question, an embedding of shape `[dimensions] f32`, for scoring any number of items.
    ///
    /// # Errors
    /// If the embedding has another number of dimensions.
    pub fn adapt(&self, query: &[f32]) -> Result<AdaptedQuery, WeightsError> {
        if query.len() != self.dimensions {
            return Err(WeightsError::Dimensions { found: query.len(), expected: self.dimensions });
        }
        let (_, shift) = self.shift(query);
        let is_finite = shift.iter().all(|value| value.is_finite());
        Ok(AdaptedQuery { shift: if is_finite { shift } else { vec![0.0; shift.len()] } })
    }

    /// `q'`, and what the weights add to the question: `q'ᵀ m' = (q' + W_mᵀ q')ᵀ m`, so that `q'ᵀ m' − qᵀ m` is
    /// `(W_q q + W_mᵀ q')ᵀ m`. Two products of a matrix and a vector for a question, none for an item.
    pub(crate) fn shift(&self, query: &[f32]) -> (Vec<f64>, Vec<f64>) {
        let query: Vec<f64> = query.iter().map(|value| f64::from(*value)).collect();
        let mut shift = self.times(&self.query, &query);
        let adapted: Vec<f64> = query.iter().zip(&shift).map(|(value, change)| value + change).collect();
        for (row, factor) in self.memory.chunks_exact(self.dimensions.max(1)).zip(&adapted) {
            for (sum, weight) in shift.iter_mut().zip(row) {
                *sum += factor * f64::from(*weight);
            }
        }
        (adapted, shift)
    }

    /// `v + W_m v`.
    pub(crate) fn adapted_memory(&self, vector: &[f64]) -> Vec<f64> {
        let change = self.times(&self.memory, vector);
        vector.iter().zip(change).map(|(value, change)| value + change).collect()
    }

    fn times(&self, matrix: &[f32], vector: &[f64]) -> Vec<f64> {
        matrix.chunks_exact(self.dimensions.max(1)).map(|row| dot(row, vector)).collect()
    }

    /// Adds `rate · left rightᵀ` to each matrix, given as (left, right). Neither such a step nor a matrix gets a norm above
    /// the limit: it is scaled down to it.
    pub(crate) fn step(&mut self, query: Outer<'_>, memory: Outer<'_>, rate: f64, norm_max: f64) {
        let dimensions = self.dimensions.max(1);
        for (matrix, (left, right)) in [(&mut self.query, query), (&mut self.memory, memory)] {
            let size = (product(left, left) * product(right, right)).sqrt();
            if size == 0.0 {
                continue;
            }
            let rate = rate.min(norm_max / size);
            let mut sum = 0.0;
            for (row, factor) in matrix.chunks_exact_mut(dimensions).zip(left) {
                for (weight, value) in row.iter_mut().zip(right) {
                    *weight = (f64::from(*weight) + rate * factor * value) as f32;
                }
                sum += squares(row);
            }
            let norm = sum.sqrt();
            if norm > norm_max {
                let scale = norm_max / norm;
                matrix.iter_mut().for_each(|weight| *weight = (f64::from(*weight) * scale) as f32);
            }
        }
    }

    /// All of it as one blob: a mark, the version, the model, the dimensions, `W_q` and `W_m` as little-endian `f32`, and
    /// the BLAKE3 hash of everything before.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes =
            Vec::with_capacity(4 * (self.query.len() * 2 + 4) + self.model.len() + CHECKSUM_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((self.model.len() as u32).to_le_bytes());
        bytes.extend(self.model.as_bytes());
        bytes.extend((self.dimensions as u32).to_le_bytes());
        bytes.extend(self.query.iter().chain(&self.memory).flat_map(|weight| weight.to_le_bytes()));
        bytes.extend(blake3::hash(&bytes).as_bytes());
        bytes
    }

    /// Reads what [`Weights::to_bytes`] wrote for this model.
    ///
    /// # Errors
    /// If a byte differs, or if the weights are for another model or of an unknown version.
    pub fn from_bytes(bytes: &[u8], model: &str, dimensions: usize) -> Result<Self, WeightsError> {
        let end = bytes.len().checked_sub(CHECKSUM_BYTES).ok_or(WeightsError::Damaged)?;
        let (content, checksum) = bytes.split_at(end);
        if blake3::hash(content).as_bytes() != checksum {
            return Err(WeightsError::Damaged);
        }
        let weights = Self::read(content)?;
        if weights.model != model {
            return Err(WeightsError::Model { found: weights.model, expected: model.to_owned() });
        }
        if weights.dimensions != dimensions {
            return Err(WeightsError::Dimensions { found: dimensions, expected: weights.dimensions });
        }
        Ok(weights)
    }

    fn read(content: &[u8]) -> Result<Self, WeightsError> {
        let rest = content.strip_prefix(MAGIC).ok_or(WeightsError::Damaged)?;
        let (version, rest) = read_u32(rest)?;
        if version != VERSION {
            return Err(WeightsError::Version(version));
        }
        let (length, rest) = read_u32(rest)?;
        let (model, rest) = rest.split_at_checked(length as usize).ok_or(WeightsError::Damaged)?;
        let model = String::from_utf8(model.to_vec()).map_err(|_| WeightsError::Damaged)?;
        let (dimensions, rest) = read_u32(rest)?;
        let dimensions = dimensions as usize;
        if dimensions > DIMENSIONS_MAX || rest.len() != 8 * dimensions * dimensions {
            return Err(WeightsError::Damaged);
        }
        let (values, _) = rest.as_chunks::<4>();
        let mut query: Vec<f32> = values.iter().map(|value| f32::from_le_bytes(*value)).collect();
        if query.iter().any(|weight| !weight.is_finite()) {
            return Err(WeightsError::Damaged);
        }
        let memory = query.split_off(dimensions * dimensions);
        Ok(Self { model, dimensions, query, memory })
    }

    #[cfg(test)]
    pub(crate) fn matrices(&self) -> [&[f32]; 2] {
        [&self.query, &self.memory]
    }

    #[cfg(test)]
    pub(crate) fn matrices_mut(&mut self) -> [&mut Vec<f32>; 2] {
        [&mut self.query, &mut self.memory]
    }
}

/// The factors of an outer product: a column and a row.
pub(crate) type Outer<'a> = (&'a [f64], &'a [f64]);

/// A question as the weights see it.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptedQuery {
    shift: Vec<f64>,
}

impl AdaptedQuery {
    /// What the weights add to an item's base score: `q'ᵀ m' − qᵀ m`. Never NaN; exactly 0 for zero weights, and for an
    /// embedding of another length, which another model made.
    pub fn adjustment(&self, memory: &[f32]) -> f64 {
        if memory.len() != self.shift.len() {
            return 0.0;
        }
        let adjustment = dot(memory, &self.shift);
        if adjustment.is_finite() { adjustment } else { 0.0 }
    }

    /// A base score with the adjustment, bit for bit the base score if there is none.
    pub fn score(&self, base: f64, memory: &[f32]) -> f64 {
        match self.adjustment(memory) {
            0.0 => base,
            adjustment => base + adjustment,
        }
    }
}

/// The scalar product. Eight sums side by side, so that the compiler can use vector instructions; their order is fixed.
pub(crate) fn dot(left: &[f32], right: &[f64]) -> f64 {
    let (left_chunks, left_rest) = left.as_chunks::<8>();
    let (right_chunks, right_rest) = right.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for (left, right) in left_chunks.iter().zip(right_chunks) {
        for lane in 0..8 {
            sums[lane] += f64::from(left[lane]) * right[lane];
        }
    }
    let rest: f64 = left_rest.iter().zip(right_rest).map(|(left, right)| f64::from(*left) * right).sum();
    sums.iter().sum::<f64>() + rest
}

fn product(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

fn squares(values: &[f32]) -> f64 {
    let (chunks, rest) = values.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for chunk in chunks {
        for lane in 0..8 {
            sums[lane] += f64::from(chunk[lane]) * f64::from(chunk[lane]);
        }
    }
    sums.iter().sum::<f64>() + rest.iter().map(|value| f64::from(*value) * f64::from(*value)).sum::<f64>()
}

/// An embedding of at most length 1. Models give unit vectors; what is longer is scaled, so that nothing overflows.
pub(crate) fn bounded(embedding: &[f32]) -> Arc<[f32]> {
    let length = squares(embedding).sqrt();
    if length > 1.01 {
        embedding.iter().map(|value| (f64::from(*value) / length) as f32).collect()
    } else {
        embedding.into()
    }
}

fn read_u32(bytes: &[u8]) -> Result<(u32, &[u8]), WeightsError> {
    let (value, rest) = bytes.split_first_chunk::<4>().ok_or(WeightsError::Damaged)?;
    Ok((u32::from_le_bytes(*value), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{random_weights, unit_vector};

    #[test]
    fn zero_weights_give_the_base_scores_bit_for_bit() {
        let mut random = fastrand::Rng::with_seed(1);
        for dimensions in [1, 7, 384, 768] {
            let weights = Weights::zero("m", dimensions);
            assert!(weights.is_zero());
            let adapted = weights.adapt(&unit_vector(dimensions, &mut random)).unwrap();
            for base in [0.25, -0.0, 0.0, 1e-300, f64::MAX, -3.7] {
                let score = adapted.score(base, &unit_vector(dimensions, &mut random));
                assert_eq!(score.to_bits(), base.to_bits());
            }
        }
    }

    #[test]
    fn the_score_is_that_of_both_transforms() {
        let mut random = fastrand::Rng::with_seed(2);
        for dimensions in [3, 19, 384] {
            let weights = random_weights(dimensions, 0.05, &mut random);
            let (query, memory) =
                (unit_vector(dimensions, &mut random), unit_vector(dimensions, &mut random));
            // As the paper writes it, both sides transformed.
            let transform = |matrix: &[f32], vector: &[f32]| -> Vec<f64> {
                (0..dimensions)
                    .map(|row| {
                        let cells = &matrix[row * dimensions..(row + 1) * dimensions];
                        let product: f64 =
                            cells.iter().zip(vector).map(|(w, v)| f64::from(*w) * f64::from(*v)).sum();
                        f64::from(vector[row]) + product
                    })
                    .collect()
            };
            let [of_query, of_memory] = weights.matrices();
            let (q, m) = (transform(of_query, &query), transform(of_memory, &memory));
            let expected: f64 = q.iter().zip(&m).map(|(q, m)| q * m).sum();
            let base: f64 = query.iter().zip(&memory).map(|(q, m)| f64::from(*q) * f64::from(*m)).sum();
            let score = weights.adapt(&query).unwrap().score(base, &memory);
            assert!((score - expected).abs() < 1e-12, "{score} {expected}");
        }
    }

    #[test]
    fn a_blob_is_read_back_and_refused_with_any_byte_changed() {
        let mut random = fastrand::Rng::with_seed(3);
        let weights = random_weights(5, 0.1, &mut random);
        let bytes = weights.to_bytes();
        assert_eq!(Weights::from_bytes(&bytes, "m", 5).unwrap(), weights);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << random.u32(..8);
            assert_eq!(Weights::from_bytes(&damaged, "m", 5), Err(WeightsError::Damaged), "byte {at}");
            assert_eq!(Weights::from_bytes(&bytes[..at], "m", 5), Err(WeightsError::Damaged));
        }
        let other = Weights::from_bytes(&bytes, "other", 5).unwrap_err();
        assert_eq!(other.to_string(), "the learned weights are for m, not for other");
        assert!(matches!(Weights::from_bytes(&bytes, "m", 6), Err(WeightsError::Dimensions { .. })));
    }

    fn sealed(mut content: Vec<u8>) -> Vec<u8> {
        let checksum = blake3::hash(&content);
        content.extend(checksum.as_bytes());
        content
    }

    #[test]
    fn a_sealed_blob_with_wrong_content_is_refused() {
        let bytes = Weights::zero("m", 2).to_bytes();
        let content = &bytes[..bytes.len() - CHECKSUM_BYTES];
        let changed = |at: usize, value: u32| {
            let mut content = content.to_vec();
            content[at..at + 4].copy_from_slice(&value.to_le_bytes());
            Weights::from_bytes(&sealed(content), "m", 2)
        };
        assert_eq!(changed(4, 2), Err(WeightsError::Version(2)));
        assert_eq!(changed(8, u32::MAX), Err(WeightsError::Damaged), "length of the name");
        assert_eq!(changed(13, u32::MAX), Err(WeightsError::Damaged), "dimensions");
        assert_eq!(changed(17, f32::NAN.to_bits()), Err(WeightsError::Damaged));
        assert_eq!(changed(0, 0), Err(WeightsError::Damaged));
        assert!(changed(17, 1f32.to_bits()).is_ok());
        assert_eq!(Weights::from_bytes(&sealed(Vec::new()), "m", 2), Err(WeightsError::Damaged));
    }

    #[test]
    fn embeddings_of_another_length_are_not_scored() {
        let weights = random_weights(4, 0.1, &mut fastrand::Rng::with_seed(4));
        assert!(weights.adapt(&[1.0; 5]).is_err());
        let adapted = weights.adapt(&[0.5; 4]).unwrap();
        assert_eq!(adapted.score(0.3, &[1.0; 5]), 0.3);
        assert_ne!(adapted.score(0.3, &[0.5; 4]), 0.3);
    }

    #[test]
    fn numbers_that_are_none_add_nothing() {
        let weights = random_weights(4, 0.1, &mut fastrand::Rng::with_seed(5));
        for bad in [f32::NAN, f32::INFINITY, f32::MAX] {
            let score = weights.adapt(&[bad, 0.1, 0.1, 0.1]).unwrap().score(0.3, &[0.5; 4]);
            assert!(score.is_finite());
            let score = weights.adapt(&[0.5; 4]).unwrap().score(0.3, &[bad, 0.1, 0.1, 0.1]);
            assert!(score.is_finite());
        }
    }
}
