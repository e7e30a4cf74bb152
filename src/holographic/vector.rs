//! Vectors of phases and their superpositions, with the four operations on them.

use std::sync::LazyLock;

/// The dimension of a vector unless another is asked for: 16,384 complex numbers.
pub const DEFAULT_DIMENSION: usize = 16_384;

/// A vector of complex numbers of modulus 1, each kept as its phase in steps of 2π/256.
///
/// With 256 steps, phases add and subtract without rounding, as bytes that wrap around. Nothing is
/// lost by the steps: for a random phase of more than two equally spaced ones the mean of z and of
/// z² is 0, as for a continuous phase, so similarities have the same mean and variance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phases {
    steps: Box<[u8]>,
}

impl Phases {
    /// The vector of `token` in `dimension` complex numbers.
    ///
    /// The same token gives the same vector in every process, and a smaller dimension gives the
    /// first part of the larger one.
    #[must_use]
    pub fn from_token(token: &str, dimension: usize) -> Phases {
        Phases::from_seed(token_seed(token), dimension)
    }

    /// The vector of a token whose [`token_seed`] is already known.
    pub(crate) fn from_seed(seed: u64, dimension: usize) -> Phases {
        let mut steps = vec![0; dimension];
        let mut random = SplitMix64(seed);
        for chunk in steps.chunks_mut(8) {
            chunk.copy_from_slice(&random.next().to_le_bytes()[..chunk.len()]);
        }
        Phases { steps: steps.into_boxed_slice() }
    }

    /// How many complex numbers the vector has.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.steps.len()
    }

    /// Binds two vectors: the element-wise complex product, which adds phases.
    ///
    /// # Panics
    /// If the dimensions differ.
    #[must_use]
    pub fn bind(&self, other: &Phases) -> Phases {
        self.zip(other, u8::wrapping_add)
    }

    /// Undoes [`Phases::bind`]: the product with the complex conjugate of `key`.
    ///
    /// # Panics
    /// If the dimensions differ.
    #[must_use]
    pub fn unbind(&self, key: &Phases) -> Phases {
        self.zip(key, u8::wrapping_sub)
    }

    /// The mean cosine of the phase differences, in -1..=1: about 1 for equal vectors, and for
    /// unrelated ones 0 with a standard deviation of 1/√(2·dimension).
    ///
    /// # Panics
    /// If the dimensions differ.
    #[must_use]
    pub fn similarity(&self, other: &Phases) -> f64 {
        let difference = self.unbind(other);
        let sum: f64 = difference.steps.iter().map(|&step| f64::from(CIRCLE.0[usize::from(step)])).sum();
        sum / self.dimension().max(1) as f64
    }

    fn zip(&self, other: &Phases, operation: impl Fn(u8, u8) -> u8) -> Phases {
        assert_eq!(self.dimension(), other.dimension(), "vectors of one dimension");
        Phases { steps: self.steps.iter().zip(&other.steps).map(|(&a, &b)| operation(a, b)).collect() }
    }
}

/// A superposition of vectors: the sum of their complex numbers, element by element.
///
/// The sums of up to 65,536 vectors are exact, because a cosine or sine is rounded to 1/128 and a
/// 32-bit float holds the multiples of 1/128 below 131,072. So subtracting a vector leaves what was
/// there before it was added, bit for bit.
#[derive(Clone, Debug, PartialEq)]
pub struct Bundle {
    re: Box<[f32]>,
    im: Box<[f32]>,
}

impl Bundle {
    /// The empty superposition.
    #[must_use]
    pub fn new(dimension: usize) -> Bundle {
        Bundle { re: vec![0.0; dimension].into_boxed_slice(), im: vec![0.0; dimension].into_boxed_slice() }
    }

    /// How many complex numbers the vector has.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.re.len()
    }

    /// Superposes one more vector.
    ///
    /// # Panics
    /// If the dimensions differ.
    pub fn add(&mut self, vector: &Phases) {
        self.accumulate(vector, 1.0);
    }

    /// Takes back a vector that was added.
    ///
    /// # Panics
    /// If the dimensions differ.
    pub fn subtract(&mut self, vector: &Phases) {
        self.accumulate(vector, -1.0);
    }

    /// The superposition with every element turned back by the phase of `key`: of the bound pairs in
    /// it, the one bound to `key` becomes its value, the others become noise.
    ///
    /// # Panics
    /// If the dimensions differ.
    #[must_use]
    pub fn unbind(&self, key: &Phases) -> Bundle {
        assert_eq!(self.dimension(), key.dimension(), "vectors of one dimension");
        let mut unbound = Bundle::new(self.dimension());
        let (cosines, sines) = &*CIRCLE;
        for (at, &step) in key.steps.iter().enumerate() {
            let (cosine, sine) = (cosines[usize::from(step)], sines[usize::from(step)]);
            unbound.re[at] = self.re[at] * cosine + self.im[at] * sine;
            unbound.im[at] = self.im[at] * cosine - self.re[at] * sine;
        }
        unbound
    }

    /// The cosine between this superposition and a vector, in -1..=1; 0 for an empty superposition.
    ///
    /// Of `n` superposed vectors each has a similarity of about 1/√n.
    ///
    /// # Panics
    /// If the dimensions differ.
    #[must_use]
    pub fn similarity(&self, vector: &Phases) -> f64 {
        assert_eq!(self.dimension(), vector.dimension(), "vectors of one dimension");
        let norm = self.norm() * (self.dimension() as f64).sqrt();
        if norm == 0.0 { 0.0 } else { self.product(vector) / norm }
    }

    /// The real part of the inner product with a vector, over the vector's dimension, which may be
    /// smaller than this one's: then only the first elements count.
    pub(crate) fn product(&self, vector: &Phases) -> f64 {
        const LANES: usize = 8;
        let (cosines, sines) = &*CIRCLE;
        let elements = self.re.chunks(LANES).zip(self.im.chunks(LANES)).zip(vector.steps.chunks(LANES));
        let mut sums = [0.0f32; LANES];
        for ((re, im), steps) in elements {
            for (lane, ((re, im), &step)) in re.iter().zip(im).zip(steps).enumerate() {
                sums[lane] += re * cosines[usize::from(step)] + im * sines[usize::from(step)];
            }
        }
        sums.iter().map(|&sum| f64::from(sum)).sum()
    }

    /// The Euclidean length.
    pub(crate) fn norm(&self) -> f64 {
        let squares = self.re.iter().chain(&self.im).map(|&part| f64::from(part) * f64::from(part));
        squares.sum::<f64>().sqrt()
    }

    /// The elements as real numbers: the real parts, then the imaginary parts.
    pub(crate) fn parts(&self) -> impl Iterator<Item = f32> {
        self.re.iter().chain(&self.im).copied()
    }

    fn accumulate(&mut self, vector: &Phases, sign: f32) {
        assert_eq!(self.dimension(), vector.dimension(), "vectors of one dimension");
        let (cosines, sines) = &*CIRCLE;
        for ((re, im), &step) in self.re.iter_mut().zip(&mut self.im).zip(&vector.steps) {
            *re += sign * cosines[usize::from(step)];
            *im += sign * sines[usize::from(step)];
        }
    }
}

/// The cosine and sine of each of the 256 phases, rounded to 1/128.
static CIRCLE: LazyLock<([f32; 256], [f32; 256])> = LazyLock::new(|| {
    let rounded = |value: f64| ((value * 128.0).round() / 128.0) as f32;
    let angle = |step: usize| step as f64 * std::f64::consts::TAU / 256.0;
    (
        std::array::from_fn(|step| rounded(angle(step).cos())),
        std::array::from_fn(|step| rounded(angle(step).sin())),
    )
});

/// The seed of a token's phases: all of its bytes by FNV-1a, 64 bits (Fowler, Noll and Vo).
pub(crate) fn token_seed(token: &str) -> u64 {
    token.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The generator SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
/// Generators", OOPSLA 2014).
pub(crate) struct SplitMix64(pub(crate) u64);

impl SplitMix64 {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Probabilities in proportion to e^(score/temperature); they sum to 1.
pub(crate) fn softmax(scores: &[f64], temperature: f64) -> Vec<f64> {
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| ((score - largest) / temperature).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 0x5eed_0001;

    /// Random vectors of a printed seed.
    fn vectors(count: usize, dimension: usize) -> Vec<Phases> {
        println!("seed {SEED:#x}");
        let mut random = SplitMix64(SEED);
        (0..count).map(|_| Phases::from_seed(random.next(), dimension)).collect()
    }

    fn noise_limit(dimension: usize) -> f64 {
        4.0 / (2.0 * dimension as f64).sqrt()
    }

    #[test]
    fn unbind_returns_what_was_bound() {
        for pair in vectors(200, 1_000).chunks(2) {
            assert_eq!(pair[0].bind(&pair[1]).unbind(&pair[1]), pair[0]);
        }
    }

    #[test]
    fn binding_commutes_and_associates() {
        for three in vectors(90, 257).chunks(3) {
            let (a, b, c) = (&three[0], &three[1], &three[2]);
            assert_eq!(a.bind(b), b.bind(a));
            assert_eq!(a.bind(b).bind(c), a.bind(&b.bind(c)));
        }
    }

    #[test]
    fn binding_keeps_similarities() {
        for three in vectors(90, 1_024).chunks(3) {
            let before = three[0].similarity(&three[1]);
            assert_eq!(before, three[0].bind(&three[2]).similarity(&three[1].bind(&three[2])));
        }
    }

    #[test]
    fn bound_vector_resembles_neither_part() {
        for pair in vectors(100, 4_096).chunks(2) {
            let bound = pair[0].bind(&pair[1]);
            assert!(bound.similarity(&pair[0]).abs() < noise_limit(4_096) * 1.25);
            assert!(bound.similarity(&pair[1]).abs() < noise_limit(4_096) * 1.25);
        }
    }

    #[test]
    fn similarity_of_unrelated_vectors_has_the_expected_spread() {
        for dimension in [1_024, 16_384] {
            let similarities: Vec<f64> =
                vectors(400, dimension).chunks(2).map(|pair| pair[0].similarity(&pair[1])).collect();
            let outside = similarities.iter().filter(|s| s.abs() > noise_limit(dimension)).count();
            assert_eq!(outside, 0, "200 pairs, 4 standard deviations");
            let variance = similarities.iter().map(|s| s * s).sum::<f64>() / similarities.len() as f64;
            let ratio = variance * 2.0 * dimension as f64;
            assert!((0.7..1.35).contains(&ratio), "variance is {ratio} of 1/(2D)");
        }
    }

    #[test]
    fn equal_vectors_have_similarity_1() {
        for vector in vectors(10, 1_024) {
            assert!((vector.similarity(&vector) - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn subtracting_a_vector_restores_the_bundle_exactly() {
        let vectors = vectors(300, 512);
        let mut bundle = Bundle::new(512);
        vectors[..150].iter().for_each(|vector| bundle.add(vector));
        let before = bundle.clone();
        vectors[150..].iter().for_each(|vector| bundle.add(vector));
        vectors[150..].iter().rev().for_each(|vector| bundle.subtract(vector));
        assert_eq!(bundle, before);
    }

    #[test]
    fn bundled_vector_has_similarity_of_one_over_root_n() {
        let vectors = vectors(64, 16_384);
        let mut bundle = Bundle::new(16_384);
        vectors.iter().for_each(|vector| bundle.add(vector));
        for vector in &vectors {
            assert!((bundle.similarity(vector) - 1.0 / 8.0).abs() < noise_limit(16_384) * 1.25);
        }
    }

    #[test]
    fn unbinding_a_bundle_uncovers_the_value() {
        let vectors = vectors(21, 4_096);
        let mut bundle = Bundle::new(4_096);
        vectors[..20].chunks(2).for_each(|pair| bundle.add(&pair[0].bind(&pair[1])));
        let unbound = bundle.unbind(&vectors[0]);
        assert!((unbound.similarity(&vectors[1]) - 0.1f64.sqrt()).abs() < 0.05);
        assert!(unbound.similarity(&vectors[20]).abs() < noise_limit(4_096));
    }

    #[test]
    fn empty_bundle_resembles_nothing() {
        assert_eq!(Bundle::new(64).similarity(&Phases::from_token("token", 64)), 0.0);
        assert_eq!(Bundle::new(0).similarity(&Phases::from_token("token", 0)), 0.0);
    }

    #[test]
    fn smaller_dimension_is_the_first_part_of_the_larger() {
        let (small, large) = (Phases::from_token("token", 37), Phases::from_token("token", 100));
        assert_eq!(small.steps[..], large.steps[..37]);
    }

    #[test]
    fn tokens_that_begin_alike_have_unrelated_vectors() {
        let (one, other) =
            (Phases::from_token("title:auth", 4_096), Phases::from_token("title:author", 4_096));
        assert!(one.similarity(&other).abs() < noise_limit(4_096));
    }

    #[test]
    fn phases_of_a_token_do_not_change_between_releases() {
        assert_eq!(Phases::from_token("auth", 8).steps[..], [9, 17, 201, 247, 137, 110, 79, 239]);
    }

    #[test]
    fn softmax_sums_to_1_and_keeps_the_order() {
        let shares = softmax(&[0.1, 0.9, -3.0], 0.35);
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!(shares[1] > shares[0] && shares[0] > shares[2]);
        assert!((shares[1] / shares[0] - (0.8f64 / 0.35).exp()).abs() < 1e-9);
    }
}
