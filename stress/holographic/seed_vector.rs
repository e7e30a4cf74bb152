//! The vectors of the seed's program, for comparison only.
//!
//! A token's phases come from the generator mulberry32, seeded with the token's first four bytes, so
//! that all tokens of a field have one vector: `titl`, `cont`, `tag:`, `link`, and `quer` for a query.
//! The k-th token of a basis is bound to a phase ramp: k·2πd/D in dimension d of D.

use std::collections::HashMap;
use std::f64::consts::TAU;

/// Makes superpositions as the seed does, and keeps the phases of each seed it meets.
pub(crate) struct SeedVectors {
    dimension: usize,
    phases: HashMap<u32, Vec<f64>>,
}

impl SeedVectors {
    pub(crate) fn new(dimension: usize) -> SeedVectors {
        SeedVectors { dimension, phases: HashMap::new() }
    }

    /// Complex sums, one for each dimension.
    pub(crate) fn superpose(&mut self, basis: &[String]) -> Vec<(f64, f64)> {
        let dimension = self.dimension;
        let mut sums = vec![(0.0, 0.0); dimension];
        for (place, token) in basis.iter().enumerate() {
            let seed = first_four_bytes(token);
            let phases = self.phases.entry(seed).or_insert_with(|| random_phases(seed, dimension));
            for (d, (sum, phase)) in sums.iter_mut().zip(phases).enumerate() {
                let bound = *phase + TAU * (place * d) as f64 / dimension as f64;
                sum.0 += bound.cos();
                sum.1 += bound.sin();
            }
        }
        sums
    }
}

pub(crate) fn cosine(a: &[(f64, f64)], b: &[(f64, f64)]) -> f64 {
    let product: f64 = a.iter().zip(b).map(|(a, b)| a.0 * b.0 + a.1 * b.1).sum();
    let norm = |v: &[(f64, f64)]| v.iter().map(|z| z.0 * z.0 + z.1 * z.1).sum::<f64>().sqrt();
    product / (norm(a) * norm(b)).max(1e-12)
}

fn first_four_bytes(token: &str) -> u32 {
    let mut bytes = [0; 4];
    token.bytes().zip(&mut bytes).for_each(|(byte, to)| *to = byte);
    u32::from_le_bytes(bytes)
}

/// Phases in 0..2π by mulberry32 (T. Ettinger, 2017).
fn random_phases(seed: u32, dimension: usize) -> Vec<f64> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x6d2b_79f5);
        let mut t = (state ^ (state >> 15)).wrapping_mul(1 | state);
        t = t.wrapping_add((t ^ (t >> 7)).wrapping_mul(61 | t)) ^ t;
        f64::from(t ^ (t >> 14)) / 4_294_967_296.0
    };
    (0..dimension).map(|_| TAU * next()).collect()
}
