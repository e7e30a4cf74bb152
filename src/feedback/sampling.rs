//! What is shown of the candidates: the best, or a draw that prefers them.
//!
//! The draw is the Gumbel top-M trick: each score, divided by the temperature, gets independent Gumbel noise, and the M
//! largest sums are shown in their order. That draws without replacement with the probabilities of Plackett and Luce: the
//! next item is `i` with probability `exp(sᵢ/τ)`, divided by the sum over those that are left. (The paper's equation 2 adds
//! the noise before it divides; here the temperature scales both, so that the probabilities of the draw are known.)

use fastrand::Rng;

/// A candidate that is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// Its position among the candidates.
    pub candidate: usize,
    /// The probability that the draw shows it at any rank, which the off-policy estimate divides by. 1 without
    /// exploration.
    pub propensity: f64,
}

/// The best `shown_max` by score; of equals the earlier.
pub fn best(scores: &[f64], shown_max: usize) -> Vec<Draw> {
    let order = descending(scores).into_iter().take(shown_max);
    order.map(|candidate| Draw { candidate, propensity: 1.0 }).collect()
}

/// Draws `shown_max` of the candidates. A temperature of 0, or one that is no positive number, explores nothing.
pub fn explore(scores: &[f64], shown_max: usize, temperature: f64, seed: u64) -> Vec<Draw> {
    if !(temperature > 0.0 && temperature.is_finite()) || scores.is_empty() {
        return best(scores, shown_max);
    }
    let logits = logits(scores, temperature);
    let probabilities = rank_probabilities(&logits, shown_max);
    draw(&logits, shown_max, seed)
        .into_iter()
        .map(|candidate| {
            let sum = probabilities[candidate].iter().sum::<f64>();
            let propensity = if shown_max >= scores.len() { 1.0 } else { sum.min(1.0) };
            Draw { candidate, propensity: propensity.max(f64::MIN_POSITIVE) }
        })
        .collect()
}

fn draw(logits: &[f64], shown_max: usize, seed: u64) -> Vec<usize> {
    let mut random = Rng::with_seed(seed);
    let mut with_noise = |logit: &f64| {
        let waiting = -(1.0 - random.f64()).ln();
        logit - waiting.max(f64::MIN_POSITIVE).ln()
    };
    let noisy: Vec<f64> = logits.iter().map(&mut with_noise).collect();
    descending(&noisy).into_iter().take(shown_max).collect()
}

/// The positions by falling value; of equals the earlier, and NaN last.
pub(crate) fn descending(values: &[f64]) -> Vec<usize> {
    let key = |at: usize| if values[at].is_nan() { f64::NEG_INFINITY } else { values[at] };
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| key(*b).total_cmp(&key(*a)));
    order
}

/// Scores over the temperature, the largest at 0 and none below −700, where `exp` ends.
fn logits(scores: &[f64], temperature: f64) -> Vec<f64> {
    let numbers = scores.iter().copied().filter(|score| !score.is_nan());
    let best = numbers.fold(f64::NEG_INFINITY, f64::max).clamp(f64::MIN, f64::MAX);
    let logit = |score: &f64| (score.min(f64::MAX) - best) / temperature;
    scores.iter().map(|score| if score.is_nan() { -700.0 } else { logit(score).max(-700.0) }).collect()
}

/// For each candidate the probability of each rank below `ranks`.
///
/// A draw without replacement is a race of exponential clocks: `i` rings at rate `wᵢ = exp(logitᵢ)`, and the order of
/// ringing is that of the draw. So `P(i at rank r) = ∫ wᵢ exp(−wᵢt) P(r others rang before t) dt`, where the number of the
/// others is Poisson binomial. In `x = ln t` the integrand is smooth and falls off on both sides, and the trapezoidal rule
/// has an error of about `exp(−π²/step)`.
fn rank_probabilities(logits: &[f64], ranks: usize) -> Vec<Vec<f64>> {
    const STEP: f64 = 0.25;
    const FIRST: f64 = -30.0;
    let ranks = ranks.min(logits.len());
    if ranks == 0 {
        return vec![Vec::new(); logits.len()];
    }
    let rates: Vec<f64> = logits.iter().map(|logit| logit.exp()).collect();
    let slowest = logits.iter().copied().fold(0.0, f64::min);
    let nodes = ((5.0 - slowest - FIRST) / STEP) as usize;
    let mut probabilities = vec![vec![0.0; ranks]; logits.len()];
    let mut counts = vec![0.0; ranks];
    for node in 0..=nodes {
        let time = (FIRST + STEP * node as f64).exp();
        let rang: Vec<f64> = rates.iter().map(|rate| -(-rate * time).exp_m1()).collect();
        for (at, rate) in rates.iter().enumerate() {
            let density = rate * time * (-rate * time).exp() * STEP;
            if density < 1e-15 {
                continue;
            }
            counts.fill(0.0);
            counts[0] = 1.0;
            for (_, rang) in rang.iter().enumerate().filter(|(other, _)| *other != at) {
                for count in (1..ranks).rev() {
                    counts[count] += rang * (counts[count - 1] - counts[count]);
                }
                counts[0] *= 1.0 - rang;
            }
            for (sum, count) in probabilities[at].iter_mut().zip(&counts) {
                *sum += density * count;
            }
        }
    }
    probabilities
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_exploration_the_best_are_shown_in_order() {
        let scores = [0.1, 0.9, f64::NAN, 0.5, 0.9];
        let order: Vec<usize> = best(&scores, 4).iter().map(|draw| draw.candidate).collect();
        assert_eq!(order, [1, 4, 3, 0]);
        for temperature in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(explore(&scores, 4, temperature, 7), best(&scores, 4));
        }
        assert!(best(&[], 3).is_empty() && explore(&[], 3, 0.5, 1).is_empty());
        assert!(explore(&[1.0, 2.0], 0, 0.5, 1).is_empty());
    }

    #[test]
    fn a_seed_gives_the_same_draw_again() {
        let scores: Vec<f64> = (0..20).map(|at| f64::from(at) * 0.03).collect();
        assert_eq!(explore(&scores, 5, 0.5, 11), explore(&scores, 5, 0.5, 11));
        assert!((0..20).any(|seed| explore(&scores, 5, 0.5, seed) != explore(&scores, 5, 0.5, 11)));
    }

    #[test]
    fn rank_probabilities_are_those_of_all_orders() {
        let mut random = Rng::with_seed(21);
        for _ in 0..20 {
            let count = random.usize(2..6);
            let logits: Vec<f64> = (0..count).map(|_| -6.0 * random.f64()).collect();
            let found = rank_probabilities(&logits, count);
            let mut expected = vec![vec![0.0; count]; count];
            add_orders(&logits, &mut Vec::new(), 1.0, &mut expected);
            for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
                assert!((found - expected).abs() < 1e-9, "{found} {expected}");
            }
        }
    }

    /// Goes through every order, with the product of its conditional probabilities.
    fn add_orders(logits: &[f64], order: &mut Vec<usize>, probability: f64, sums: &mut [Vec<f64>]) {
        let left: Vec<usize> = (0..logits.len()).filter(|at| !order.contains(at)).collect();
        let total: f64 = left.iter().map(|at| logits[*at].exp()).sum();
        for at in left {
            let probability = probability * logits[at].exp() / total;
            sums[at][order.len()] += probability;
            order.push(at);
            add_orders(logits, order, probability, sums);
            order.pop();
        }
    }

    #[test]
    fn propensities_sum_to_one_for_a_rank_and_to_m_in_all() {
        let mut random = Rng::with_seed(22);
        for spread in [0.0, 0.1, 2.0, 60.0, 1e6] {
            let scores: Vec<f64> = (0..20).map(|_| spread * random.f64()).collect();
            let probabilities = rank_probabilities(&logits(&scores, 0.5), 5);
            for rank in 0..5 {
                let sum: f64 = probabilities.iter().map(|by_rank| by_rank[rank]).sum();
                assert!((sum - 1.0).abs() < 1e-9, "spread {spread}, rank {rank}: {sum}");
            }
            assert!(probabilities.iter().all(|by_rank| by_rank.iter().sum::<f64>() < 1.0 + 1e-9));
        }
    }

    #[test]
    fn draws_occur_as_often_as_their_propensities_say() {
        const DRAWS: usize = 40_000;
        let scores = [0.9, 0.7, 0.65, 0.3, 0.2, 0.0, -0.4];
        let logits = logits(&scores, 0.25);
        let probabilities = rank_probabilities(&logits, 3);
        let mut counts = vec![[0usize; 3]; scores.len()];
        for seed in 0..DRAWS {
            for (rank, candidate) in draw(&logits, 3, seed as u64).into_iter().enumerate() {
                counts[candidate][rank] += 1;
            }
        }
        for (by_rank, counts) in probabilities.iter().zip(&counts) {
            for (probability, count) in by_rank.iter().zip(counts) {
                let error = (probability * (1.0 - probability) / DRAWS as f64).sqrt();
                let share = *count as f64 / DRAWS as f64;
                assert!((share - probability).abs() < 5.0 * error + 1e-9, "{share} {probability}");
            }
        }
        let draws = explore(&scores, 3, 0.25, 5);
        for draw in draws {
            assert_eq!(draw.propensity, probabilities[draw.candidate].iter().sum::<f64>());
        }
        assert!(explore(&scores, 7, 0.25, 5).iter().all(|draw| draw.propensity == 1.0));
    }

    #[test]
    fn hostile_scores_give_propensities_between_zero_and_one() {
        let hostile = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, 0.0, -0.0, 1e-320];
        for seed in 0..200 {
            let mut random = Rng::with_seed(seed);
            let scores: Vec<f64> = (0..random.usize(1..9)).map(|_| hostile[random.usize(..8)]).collect();
            for draw in explore(&scores, 3, [1e-300, 0.5, 1e300][random.usize(..3)], seed) {
                assert!(draw.propensity > 0.0 && draw.propensity <= 1.0, "{scores:?} {draw:?}");
            }
        }
    }
}
