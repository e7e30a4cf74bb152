//! The expected accuracy of recall from a superposition.

/// The probability that clean-up picks the right value, in 0..=1.
///
/// `superposed` bound pairs of `dimension` complex numbers lie in one memory, and the clean-up chooses
/// among `candidates` values. In units of the noise, whose standard deviation is 1/√(2·dimension), the
/// right value scores s = √(2·dimension/superposed) on average and every other one 0, all normally
/// distributed, so that P = ∫ φ(x − s) Φ(x)^(candidates − 1) dx. The right value's own noise comes
/// from the other pairs only, so its variance is 1 − 1/superposed.
///
/// Source: T. Plate, "Holographic Reduced Representation" (2003), on the capacity of superposition
/// memories; the integral as in E. Frady, D. Kleyko and F. Sommer, "A Theory of Sequence Indexing and
/// Working Memory in Recurrent Neural Networks", Neural Computation 30(6), 2018.
#[must_use]
pub fn expected_accuracy(dimension: usize, superposed: usize, candidates: usize) -> f64 {
    if superposed == 0 || candidates == 0 {
        return 0.0;
    }
    let signal = (2.0 * dimension as f64 / superposed as f64).sqrt();
    let spread = (1.0 - 1.0 / superposed as f64).sqrt();
    let others = candidates as f64 - 1.0;
    const STEP: f64 = 0.01;
    let points = (-800..=800).map(|point| f64::from(point) * STEP);
    points.map(|x| normal_density(x) * normal_below(signal + spread * x).powf(others) * STEP).sum()
}

fn normal_density(x: f64) -> f64 {
    (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt()
}

/// Φ(x) by the polynomial 26.2.17 of Abramowitz and Stegun (error below 7.5e-8).
fn normal_below(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 5] =
        [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let tail = normal_density(x) * t * COEFFICIENTS.iter().rev().fold(0.0, |sum, c| sum * t + c);
    if x < 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_distribution_matches_its_table() {
        for (x, below) in [(0.0, 0.5), (1.0, 0.841_344_7), (-1.0, 0.158_655_3), (2.5, 0.993_790_3)] {
            assert!((normal_below(x) - below).abs() < 1e-6, "{x}");
        }
    }

    #[test]
    fn accuracy_without_a_signal_is_chance() {
        assert!((expected_accuracy(0, 10, 10) - 0.1).abs() < 0.01);
    }

    #[test]
    fn accuracy_falls_with_facts_and_rises_with_dimension() {
        assert!(expected_accuracy(16_384, 64, 64) > 0.999_999);
        assert!(expected_accuracy(1_024, 2_000, 2_000) < 0.05);
        assert!(expected_accuracy(4_096, 500, 500) > expected_accuracy(4_096, 1_000, 1_000));
        assert!(expected_accuracy(8_192, 1_000, 1_000) > expected_accuracy(4_096, 1_000, 1_000));
    }

    #[test]
    fn one_candidate_is_always_right() {
        assert!((expected_accuracy(8, 100, 1) - 1.0).abs() < 1e-6);
    }
}
