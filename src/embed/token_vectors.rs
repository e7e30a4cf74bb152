//! The vectors of single tokens: packed for the index, and compared with those of a question.
//!
//! The model's last layer has a vector for each token of a text. Comparing a question with a passage token by token is
//! late interaction (Khattab and Zaharia, 2020: <https://arxiv.org/abs/2004.12832>). A packed vector is the direction of the
//! model's vector in the 64 dimensions of [`TOKEN_PROJECTION`], 4 bits for each dimension. Its length is not kept.

use kernels::{Panel, WIDTH, multiply};
use multiversion::multiversion;

use crate::built_in::TOKEN_PROJECTION;
use crate::minilm::HIDDEN;

const DIMENSIONS: usize = 64;
/// The length of a packed vector. Byte `i` has dimension `i` in its low and dimension `i + 32` in its high half, each
/// plus [`ZERO`].
pub const TOKEN_BYTES: usize = DIMENSIONS / 2;
const ZERO: i16 = 8;
const CODE_MAX: f32 = 7.0;
/// The steps that are tried for a vector, as parts of the one at which its largest number is [`CODE_MAX`]: cutting off
/// the largest numbers leaves smaller steps for the others.
const STEPS: [f32; 5] = [1.0, 0.9, 0.8, 0.7, 0.6];

/// The projection to [`DIMENSIONS`]: blocks of [`WIDTH`] columns, each `[HIDDEN]`.
pub(crate) struct Projection(Vec<Vec<Panel>>);

impl Projection {
    pub(crate) fn built_in() -> Self {
        let (halves, _) = TOKEN_PROJECTION.as_chunks();
        // A bfloat16 is the upper half of an f32.
        let wide = |half: &[u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(*half)) << 16);
        let numbers: Vec<f32> = halves.iter().map(wide).collect();
        let panel = |row: &[f32], column: usize| -> Panel { std::array::from_fn(|at| row[column + at]) };
        let block = |column| numbers.chunks_exact(DIMENSIONS).map(|row| panel(row, column)).collect();
        Self((0..DIMENSIONS).step_by(WIDTH).map(block).collect())
    }

    /// Packs the vectors of a text's tokens, `[tokens, HIDDEN]`, without the first and the last, which stand for no part
    /// of the text: [`TOKEN_BYTES`] for each.
    pub(crate) fn pack(&self, hidden: &[f32]) -> Vec<u8> {
        let end = hidden.len().saturating_sub(HIDDEN);
        let Some(hidden) = hidden.get(HIDDEN..end).filter(|hidden| !hidden.is_empty()) else {
            return Vec::new();
        };
        let mut projected = vec![0.0; hidden.len() / HIDDEN * DIMENSIONS];
        for (block, panels) in self.0.iter().enumerate() {
            multiply(hidden, HIDDEN, panels, &mut projected[block * WIDTH..], DIMENSIONS);
        }
        projected.as_chunks().0.iter().flat_map(pack_vector).collect()
    }
}

/// The codes whose direction is nearest to that of the vector.
fn pack_vector(vector: &[f32; DIMENSIONS]) -> [u8; TOKEN_BYTES] {
    let largest = vector.iter().fold(f32::MIN_POSITIVE, |largest, x| largest.max(x.abs()));
    let (mut best, mut best_cosine) = ([0.0; DIMENSIONS], f32::NEG_INFINITY);
    for part in STEPS {
        let scale = CODE_MAX / (largest * part);
        let codes = vector.map(|x| (x * scale).round_ties_even().clamp(-CODE_MAX, CODE_MAX));
        let product: f32 = codes.iter().zip(vector).map(|(code, x)| code * x).sum();
        let cosine = product / codes.iter().map(|code| code * code).sum::<f32>().sqrt();
        if cosine > best_cosine {
            (best, best_cosine) = (codes, cosine);
        }
    }
    let half = |code: f32| (code as i16 + ZERO) as u8;
    std::array::from_fn(|at| half(best[at]) | half(best[at + TOKEN_BYTES]) << 4)
}

/// The codes of a packed vector.
#[inline(always)]
fn unpack(packed: &[u8; TOKEN_BYTES]) -> [i16; DIMENSIONS] {
    let mut codes = [0; DIMENSIONS];
    let (low, high) = codes.split_at_mut(TOKEN_BYTES);
    for ((byte, low), high) in packed.iter().zip(low).zip(high) {
        *low = i16::from(byte & 15) - ZERO;
        *high = i16::from(byte >> 4) - ZERO;
    }
    codes
}

#[inline(always)]
fn product(a: &[i16; DIMENSIONS], b: &[i16; DIMENSIONS]) -> i32 {
    a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum()
}

/// The tokens of a question, each with its weight, to be found in passages.
pub struct TokenMatcher {
    /// Each with its weight, divided by its length and by all weights.
    tokens: Vec<([i16; DIMENSIONS], f32)>,
}

impl TokenMatcher {
    /// `packed` are the question's [`Embedding::tokens`](knowledge::Embedding::tokens); `weights` are those of its tokens.
    /// `None` if these are not of one question, or nothing has a weight.
    pub fn new(packed: &[u8], weights: &[f32]) -> Option<Self> {
        let (vectors, rest) = packed.as_chunks();
        let total: f32 = weights.iter().sum();
        if vectors.len() != weights.len() || !rest.is_empty() || !total.is_normal() {
            return None;
        }
        let weighted = vectors.iter().zip(weights).filter(|(_, weight)| **weight > 0.0);
        let token = |(vector, weight): (_, &f32)| {
            let codes = unpack(vector);
            (codes, weight / total / (product(&codes, &codes).max(1) as f32).sqrt())
        };
        Some(Self { tokens: weighted.map(token).collect() })
    }

    /// The weighted mean, over the question's tokens, of each token's best cosine with any token of the passage; 0 for a
    /// passage without tokens.
    pub fn similarity(&self, packed: &[u8]) -> f64 {
        let mut bests = vec![f32::NEG_INFINITY; self.tokens.len()];
        compare(&self.tokens, packed.as_chunks().0, &mut bests);
        let means = self.tokens.iter().zip(&bests).map(|((_, weight), best)| f64::from(weight * best));
        let mean: f64 = means.sum();
        if mean.is_finite() { mean } else { 0.0 }
    }
}

/// Raises each token's best cosine by those of a passage.
#[multiversion(targets("x86_64+avx2+fma", "aarch64+neon"))]
fn compare(tokens: &[([i16; DIMENSIONS], f32)], passage: &[[u8; TOKEN_BYTES]], bests: &mut [f32]) {
    for packed in passage {
        let codes = unpack(packed);
        let inverse_length = (product(&codes, &codes).max(1) as f32).sqrt().recip();
        for ((token, _), best) in tokens.iter().zip(&mut *bests) {
            *best = best.max(product(token, &codes) as f32 * inverse_length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random_vector(random: &mut impl FnMut() -> f32) -> [f32; DIMENSIONS] {
        std::array::from_fn(|_| random())
    }

    /// Numbers between -1 and 1.
    fn random_numbers() -> impl FnMut() -> f32 {
        let mut state = 7_u32;
        move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        }
    }

    fn cosine(a: &[f32; DIMENSIONS], b: &[f32; DIMENSIONS]) -> f32 {
        let product = |a: &[f32; DIMENSIONS], b: &[f32; DIMENSIONS]| -> f32 {
            a.iter().zip(b).map(|(x, y)| x * y).sum()
        };
        product(a, b) / (product(a, a) * product(b, b)).sqrt()
    }

    #[test]
    fn a_packed_vector_keeps_its_direction() {
        let mut random = random_numbers();
        for _ in 0..200 {
            let vector = random_vector(&mut random);
            let codes = unpack(&pack_vector(&vector)).map(f32::from);
            assert!(cosine(&vector, &codes) > 0.99, "{}", cosine(&vector, &codes));
        }
        assert_eq!(unpack(&pack_vector(&[0.0; DIMENSIONS])), [0; DIMENSIONS]);
    }

    #[test]
    fn the_similarity_is_the_weighted_mean_of_the_best_cosines() {
        let mut random = random_numbers();
        let question: Vec<_> = (0..5).map(|_| random_vector(&mut random)).collect();
        let passage: Vec<_> = (0..40).map(|_| random_vector(&mut random)).collect();
        let packed =
            |vectors: &[[f32; DIMENSIONS]]| vectors.iter().flat_map(pack_vector).collect::<Vec<u8>>();
        let weights = [3.0, 1.0, 0.0, 2.0, 0.5];
        let kept = |vector: &[f32; DIMENSIONS]| unpack(&pack_vector(vector)).map(f32::from);
        let best =
            |token| passage.iter().map(|other| cosine(&kept(token), &kept(other))).fold(-1.0, f32::max);
        let expected: f32 =
            question.iter().zip(weights).map(|(token, weight)| weight * best(token)).sum::<f32>() / 6.5;
        let found = TokenMatcher::new(&packed(&question), &weights).unwrap().similarity(&packed(&passage));
        assert!((found - f64::from(expected)).abs() < 1e-5, "{found} is not {expected}");
    }

    #[test]
    fn tokens_that_do_not_fit_are_not_compared() {
        let packed = pack_vector(&[1.0; DIMENSIONS]);
        assert!(TokenMatcher::new(&packed, &[1.0, 1.0]).is_none());
        assert!(TokenMatcher::new(&packed, &[0.0]).is_none());
        assert!(TokenMatcher::new(&[], &[]).is_none());
        assert_eq!(TokenMatcher::new(&packed, &[1.0]).unwrap().similarity(&[]), 0.0);
    }
}
