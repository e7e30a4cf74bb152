//! Measures how good rankings are, with confidence intervals.
//!
//! Items are numbers of the caller's; the relevant ones have a grade above 0.

use std::collections::BTreeMap;

/// The names of the metrics, in the order of [`RankingMetrics::values`].
pub const METRICS: [&str; 8] =
    ["recall@5", "recall@10", "recall@50", "ndcg@10", "mrr@10", "hit@1", "hit@5", "hit@50"];
/// The position of recall@10 in [`METRICS`].
pub const RECALL_AT_10: usize = 1;
/// The position of nDCG@10 in [`METRICS`].
pub const NDCG_AT_10: usize = 3;

/// The positions of hit@1, hit@5 and hit@50 in [`METRICS`]: whether any of the first results is relevant.
pub const HITS: std::ops::Range<usize> = 5..8;

/// How often the questions are resampled for an interval.
const RESAMPLES: usize = 1_000;
/// Fixed, so that the same values give the same interval.
const SEED: u64 = 0x6e75_6767_6574;

/// The metrics of one ranking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankingMetrics {
    /// One value from 0 to 1 for each of [`METRICS`].
    pub values: [f64; METRICS.len()],
}

impl RankingMetrics {
    /// Measures a ranking, best item first.
    ///
    /// The gain in nDCG is the grade itself and the discount `log2(rank + 1)` (Järvelin and Kekäläinen 2002).
    pub fn measure(ranked: &[usize], relevant: &BTreeMap<usize, f64>) -> Self {
        let discount = |rank: usize| ((rank + 2) as f64).log2();
        let top = &ranked[..ranked.len().min(10)];
        let gains =
            top.iter().enumerate().filter_map(|(rank, item)| Some(relevant.get(item)? / discount(rank)));
        let mut grades: Vec<f64> = relevant.values().copied().collect();
        grades.sort_by(|a, b| b.total_cmp(a));
        let ideal: f64 = grades.iter().take(10).enumerate().map(|(rank, grade)| grade / discount(rank)).sum();
        let first = top.iter().position(|item| relevant.contains_key(item));
        let recall_at = |k: usize| recall(&ranked[..ranked.len().min(k)], relevant);
        let hit_at = |k: usize| f64::from(recall_at(k) > 0.0);
        Self {
            values: [
                recall_at(5),
                recall_at(10),
                recall_at(50),
                // An empty sum is -0.
                if ideal > 0.0 { gains.fold(0.0, |sum, gain| sum + gain) / ideal } else { 0.0 },
                first.map_or(0.0, |rank| 1.0 / (rank + 1) as f64),
                hit_at(1),
                hit_at(5),
                hit_at(50),
            ],
        }
    }
}

/// The share of the relevant items that was found.
pub fn recall(found: &[usize], relevant: &BTreeMap<usize, f64>) -> f64 {
    if relevant.is_empty() {
        return 0.0;
    }
    found.iter().filter(|item| relevant.contains_key(item)).count() as f64 / relevant.len() as f64
}

/// The mean; 0 of no values.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// The mean over the sets of each set's mean, with its 95 % interval.
///
/// The interval is the percentile bootstrap (Efron 1979), resampled within each set.
pub fn mean_with_interval(sets: &[Vec<f64>]) -> (f64, [f64; 2]) {
    let statistic = |drawn: &[Vec<usize>]| {
        let means: Vec<f64> = sets.iter().zip(drawn).map(|(values, drawn)| mean_at(values, drawn)).collect();
        mean(&means)
    };
    with_interval(sets, statistic)
}

/// By how many per cent the mean of `after` is above that of `before`, with its 95 % interval.
///
/// Both hold the values of the same questions, and each set has the same weight.
pub fn relative_gain(before: &[Vec<f64>], after: &[Vec<f64>]) -> (f64, [f64; 2]) {
    with_interval(after, |drawn| {
        let sum = |sets: &[Vec<f64>]| -> f64 {
            sets.iter().zip(drawn).map(|(values, drawn)| mean_at(values, drawn)).sum()
        };
        let before = sum(before);
        if before > 0.0 { (sum(after) / before - 1.0) * 100.0 } else { 0.0 }
    })
}

/// The mean of the values at the drawn positions.
fn mean_at(values: &[f64], drawn: &[usize]) -> f64 {
    // An empty sum is -0.
    if drawn.is_empty() { 0.0 } else { drawn.iter().map(|&at| values[at]).sum::<f64>() / drawn.len() as f64 }
}

/// A statistic of all questions, and its interval over resampled questions.
fn with_interval(sets: &[Vec<f64>], statistic: impl Fn(&[Vec<usize>]) -> f64) -> (f64, [f64; 2]) {
    let all: Vec<Vec<usize>> = sets.iter().map(|values| (0..values.len()).collect()).collect();
    if sets.iter().all(Vec::is_empty) {
        return (statistic(&all), [0.0, 0.0]);
    }
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut statistics: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let drawn = all.iter().map(|set| set.iter().map(|_| random.usize(..set.len())).collect());
            statistic(&drawn.collect::<Vec<_>>())
        })
        .collect();
    statistics.sort_by(f64::total_cmp);
    let quantile = |part: f64| statistics[(part * (RESAMPLES - 1) as f64).round() as usize];
    (statistic(&all), [quantile(0.025), quantile(0.975)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_match_values_computed_by_hand() {
        let relevant = BTreeMap::from([(1, 1.0), (2, 1.0)]);
        let values = |ranked: &[usize]| RankingMetrics::measure(ranked, &relevant).values;
        let [r5, r10, r50, ndcg, mrr, hit1, hit5, hit50] = values(&[9, 1, 8, 7, 6, 5, 2]);
        assert_eq!((r5, r10, r50, mrr), (0.5, 1.0, 1.0, 0.5));
        assert_eq!((hit1, hit5, hit50), (0.0, 1.0, 1.0));
        let expected = (1.0 / 3_f64.log2() + 1.0 / 8_f64.log2()) / (1.0 + 1.0 / 3_f64.log2());
        assert!((ndcg - expected).abs() < 1e-12);
        assert_eq!(values(&[1, 2]), [1.0; 8]);
        assert_eq!(values(&[]), [0.0; 8]);
        assert!(values(&[]).iter().all(|value| value.is_sign_positive()));
        let beyond: Vec<usize> = (10..20).chain([1]).collect();
        assert_eq!(values(&beyond), [0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 1.0]);
    }

    #[test]
    fn an_interval_contains_the_mean_and_narrows_with_size() {
        let values = |n: usize| (0..n).map(|i| (i % 2) as f64).collect::<Vec<_>>();
        let width = |n| {
            let (mean, [low, high]) = mean_with_interval(&[values(n)]);
            assert!(low <= 0.5 && 0.5 <= high && (mean - 0.5).abs() < 1e-9);
            high - low
        };
        assert!(width(1_000) < width(100) && width(100) < width(20));
        assert_eq!(mean_with_interval(&[values(50)]), mean_with_interval(&[values(50)]));
        assert_eq!(mean_with_interval(&[Vec::new()]), (0.0, [0.0, 0.0]));
    }

    #[test]
    fn sets_weigh_the_same_in_the_gain_whatever_their_size() {
        let set =
            |questions: usize, before: f64, after: f64| (vec![before; questions], vec![after; questions]);
        let gain = |sets: &[(Vec<f64>, Vec<f64>)]| {
            let (before, after): (Vec<_>, Vec<_>) = sets.iter().cloned().unzip();
            relative_gain(&before, &after)
        };
        let (many, few) = (set(100, 0.5, 0.5), set(1, 0.5, 1.0));
        assert!((gain(&[many, few.clone()]).0 - 50.0).abs() < 1e-9);
        assert!((gain(&[few]).0 - 100.0).abs() < 1e-9);
        assert_eq!(gain(&[set(2, 0.0, 0.0)]), (0.0, [0.0, 0.0]));
    }
}
