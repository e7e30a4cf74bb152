//! Random inputs for tests.

use fastrand::Rng;

use crate::example::{Candidate, Example, Outcome, Shown};
use crate::sampling;
use crate::weights::Weights;

pub(crate) fn normal(random: &mut Rng) -> f64 {
    let (radius, angle) = (1.0 - random.f64(), random.f64());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

pub(crate) fn unit_vector(dimensions: usize, random: &mut Rng) -> Vec<f32> {
    let values: Vec<f64> = (0..dimensions).map(|_| normal(random)).collect();
    scaled(&values)
}

pub(crate) fn scaled(values: &[f64]) -> Vec<f32> {
    let length = values.iter().map(|value| value * value).sum::<f64>().sqrt();
    values.iter().map(|value| (value / length) as f32).collect()
}

pub(crate) fn product(left: &[f32], right: &[f32]) -> f64 {
    left.iter().zip(right).map(|(left, right)| f64::from(*left) * f64::from(*right)).sum()
}

/// Each weight drawn from ±`size`.
pub(crate) fn random_weights(dimensions: usize, size: f64, random: &mut Rng) -> Weights {
    let mut weights = Weights::zero("m", dimensions);
    for matrix in weights.matrices_mut() {
        matrix.iter_mut().for_each(|weight| *weight = ((random.f64() * 2.0 - 1.0) * size) as f32);
    }
    weights
}

/// The first of what is shown was used, the others at random, but not all.
pub(crate) fn random_example(
    dimensions: usize,
    candidates: usize,
    shown: usize,
    random: &mut Rng,
) -> Example {
    let query = unit_vector(dimensions, random);
    let candidates: Vec<Vec<f32>> = (0..candidates).map(|_| unit_vector(dimensions, random)).collect();
    let scores: Vec<f64> = candidates.iter().map(|embedding| product(&query, embedding)).collect();
    let drawn = sampling::best(&scores, shown);
    let shown = drawn.iter().enumerate().map(|(rank, draw)| Shown {
        candidate: draw.candidate,
        propensity: draw.propensity,
        outcome: if rank == 0 || rank == 1 && random.bool() { Outcome::Used } else { Outcome::Ignored },
    });
    let shown = shown.collect();
    let candidates = candidates.iter().zip(&scores);
    let candidates = candidates.map(|(embedding, score)| Candidate::new(embedding, *score)).collect();
    Example::new(random.u64(..), &query, candidates, shown).expect("a valid example")
}
