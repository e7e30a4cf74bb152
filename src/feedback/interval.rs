//! Confidence intervals.

use std::fmt;

use serde::Serialize;

/// An estimate between the ends of its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The estimate.
    pub estimate: f64,
    /// The upper end.
    pub high: f64,
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:+.3} [{:+.3}, {:+.3}]", self.estimate, self.low, self.high)
    }
}

/// The 97.5 % quantile of the normal distribution.
pub(crate) const Z: f64 = 1.959_963_984_540_054;

/// The quantile of the normal distribution for two-sided 95 % over `comparisons` intervals together (Bonferroni); for more
/// than four as for four.
pub(crate) fn z_of(comparisons: usize) -> f64 {
    [Z, 2.241_402_727_604_945, 2.393_979_800_018_532, 2.497_705_474_412_373][comparisons.clamp(1, 4) - 1]
}

/// The quantile of Student's t distribution that belongs to one of the normal distribution (the expansion of Cornish and
/// Fisher; Abramowitz and Stegun, 26.7.5).
fn t_of(z: f64, freedom: f64) -> f64 {
    let powers = [
        (z.powi(3) + z) / 4.0,
        (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0,
        (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0,
    ];
    powers.iter().rev().fold(0.0, |sum, power| (sum + power) / freedom) + z
}

/// The ratio `Σa / Σb` over independent groups, by linearisation (the delta method) and Student's t. `None` for fewer than
/// ten groups, or if `Σb` is not positive.
pub(crate) fn of_ratio(groups: &[(f64, f64)], z: f64) -> Option<Interval> {
    let count = groups.len() as f64;
    let (numerator, denominator) =
        groups.iter().fold((0.0, 0.0), |sum, group| (sum.0 + group.0, sum.1 + group.1));
    if groups.len() < 10 || denominator.is_nan() || denominator <= 0.0 {
        return None;
    }
    let estimate = numerator / denominator;
    let squares: f64 = groups.iter().map(|(a, b)| (a - estimate * b).powi(2)).sum();
    let error = (squares * count / (count - 1.0)).sqrt() / denominator;
    let half = t_of(z, count - 1.0) * error;
    let interval = Interval { low: estimate - half, estimate, high: estimate + half };
    (interval.low.is_finite() && interval.high.is_finite()).then_some(interval)
}

/// A share of `count` in `total`, by Wilson's score interval (1927).
pub(crate) fn of_share(count: f64, total: f64, z: f64) -> Interval {
    let (share, z2) = (count / total, z * z);
    let centre = (share + z2 / (2.0 * total)) / (1.0 + z2 / total);
    let half = z / (1.0 + z2 / total) * (share * (1.0 - share) / total + z2 / (4.0 * total * total)).sqrt();
    Interval { low: (centre - half).max(0.0), estimate: share, high: (centre + half).min(1.0) }
}

/// The difference of two shares, by Newcombe's hybrid of two Wilson intervals (1998, method 10).
pub(crate) fn of_difference(one: (f64, f64), other: (f64, f64), z: f64) -> Interval {
    let (one, other) = (of_share(one.0, one.1, z), of_share(other.0, other.1, z));
    let estimate = one.estimate - other.estimate;
    let below = (one.estimate - one.low).hypot(other.high - other.estimate);
    let above = (one.high - one.estimate).hypot(other.estimate - other.low);
    Interval { low: estimate - below, estimate, high: estimate + above }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::normal;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, expected) in [(9.0, 2.262157), (15.0, 2.131450), (29.0, 2.045230), (1e9, Z)] {
            assert!((t_of(Z, freedom) - expected).abs() < 1e-3, "{freedom}: {}", t_of(Z, freedom));
        }
    }

    #[test]
    fn newcombes_own_examples_come_out() {
        // Newcombe (1998), table II, method 10.
        let cases = [
            ((56.0, 70.0), (48.0, 80.0), 0.0524, 0.3339),
            ((9.0, 10.0), (3.0, 10.0), 0.1705, 0.8090),
            ((10.0, 10.0), (0.0, 20.0), 0.6791, 1.0),
            ((0.0, 10.0), (0.0, 20.0), -0.1611, 0.2775),
        ];
        for (one, other, low, high) in cases {
            let found = of_difference(one, other, Z);
            assert!((found.low - low).abs() < 1e-4 && (found.high - high).abs() < 1e-4, "{found}");
        }
    }

    #[test]
    fn the_interval_of_a_ratio_covers_the_truth() {
        const REPEATS: usize = 4000;
        for (seed, count) in [(1, 10), (2, 30), (3, 200)] {
            println!("seed {seed}");
            let mut random = fastrand::Rng::with_seed(seed);
            let covered = (0..REPEATS).filter(|_| {
                let groups: Vec<(f64, f64)> = (0..count)
                    .map(|_| {
                        let weight = 0.5 + random.f64();
                        (weight * (0.3 + 0.5 * normal(&mut random)), weight)
                    })
                    .collect();
                let found = of_ratio(&groups, Z).unwrap();
                found.low <= 0.3 && 0.3 <= found.high
            });
            let share = covered.count() as f64 / REPEATS as f64;
            println!("{count} groups: {share}");
            assert!((share - 0.95).abs() < 0.02, "{count} groups: {share}");
        }
    }

    #[test]
    fn a_ratio_of_nothing_has_no_interval() {
        assert_eq!(of_ratio(&[], Z), None);
        assert_eq!(of_ratio(&[(1.0, 1.0); 9], Z), None);
        assert_eq!(of_ratio(&[(0.0, 0.0); 20], Z), None);
        assert_eq!(of_ratio(&[(f64::NAN, 1.0); 20], Z), None);
        assert_eq!(of_ratio(&[(1.0, f64::NAN); 20], Z), None);
    }
}
