//! Whether learned weights may go live: an estimate, from what was shown and used, of what their order would have been
//! worth.
//!
//! An order is worth `1/log₂(rank + 1)` for an item that is used, as in DCG, and nothing below the last rank shown. The
//! *gain* of weights is the mean of that difference, new order less base order, over the items that are used:
//!
//! `Σ wᵢ uᵢ (d(new rank of i) − d(base rank of i)) / Σ wᵢ uᵢ`
//!
//! with `uᵢ` 1 for what was used and `wᵢ` the inverse of its propensity, limited: the self-normalised estimator (Swaminathan
//! and Joachims, NIPS 2015) for each item. It assumes that an item shown is used or not wherever it stands in the list. Both
//! orders are over what could have been shown. Without exploration that is what was shown, and the estimate speaks of those
//! items only; nothing is known of the others.
//!
//! The *agreement* is the same mean for the base order, less the mean of all that was shown. Feedback that does not even
//! agree with retrieval better than chance is not believed: it may have been turned round.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::example::{Example, Outcome, Shown};
use crate::interval::{Interval, Z, of_ratio, z_of};
use crate::learner::Learner;
use crate::sampling::descending;
use crate::weights::Weights;

/// What it takes for weights to go live.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gate {
    /// The sessions with something used that there must be.
    pub sessions_min: usize,
    /// The items used that there must be.
    pub used_min: usize,
    /// The least gain that is worth a change.
    pub gain_min: f64,
    /// What the lower end of the gain's interval must exceed. 0 asks for proof that the order gets better; a negative
    /// value allows a loss that small, and lets weights live that learned from chance alone.
    pub low_min: f64,
    /// The largest weight of one item.
    pub weight_max: f64,
    /// The parts that sessions are split into for [`choose`].
    pub folds: usize,
}

impl Default for Gate {
    fn default() -> Self {
        Self { sessions_min: 20, used_min: 30, gain_min: 0.005, low_min: 0.0, weight_max: 50.0, folds: 5 }
    }
}

/// Why weights do not go live.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// Too few sessions used anything.
    FewSessions {
        /// That there are.
        found: usize,
        /// That there must be.
        needed: usize,
    },
    /// Too few items were used.
    FewUsed {
        /// That there are.
        found: usize,
        /// That there must be.
        needed: usize,
    },
    /// What was used is not what retrieval put first more often than by chance.
    NoAgreement {
        /// With its interval.
        agreement: Interval,
    },
    /// The new order may be worse than the base order, or is hardly better.
    NoGain {
        /// With its interval.
        gain: Interval,
    },
    /// The weights change nothing.
    NothingLearned,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FewSessions { found, needed } => {
                write!(f, "not enough data yet: {found} of {needed} sessions used what they were shown")
            }
            Self::FewUsed { found, needed } => {
                write!(f, "not enough data yet: {found} of {needed} items used")
            }
            Self::NoAgreement { agreement } => {
                write!(f, "the feedback does not agree with the search better than chance: {agreement}")
            }
            Self::NoGain { gain } => {
                write!(f, "the new order is not clearly better than the base order: {gain}")
            }
            Self::NothingLearned => write!(f, "nothing was learned"),
        }
    }
}

/// What held-out feedback says about weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// Questions with something used.
    pub questions: usize,
    /// Their sessions.
    pub sessions: usize,
    /// The items used.
    pub used: usize,
    /// Of the new order over the base order; `None` for too few sessions.
    pub gain: Option<Interval>,
    /// Of the base order over chance; `None` for too few sessions.
    pub agreement: Option<Interval>,
}

impl Estimate {
    /// Why weights with this estimate do not go live; empty if they may.
    pub fn reasons_against(&self, gate: &Gate) -> Vec<Reason> {
        let mut reasons = Vec::new();
        if self.sessions < gate.sessions_min || self.gain.is_none() {
            let needed = gate.sessions_min.max(self.sessions + 1);
            reasons.push(Reason::FewSessions { found: self.sessions, needed });
        }
        if self.used < gate.used_min {
            reasons.push(Reason::FewUsed { found: self.used, needed: gate.used_min });
        }
        if let Some(agreement) = self.agreement.filter(|agreement| agreement.low <= 0.0) {
            reasons.push(Reason::NoAgreement { agreement });
        }
        if let Some(gain) = self.gain.filter(|gain| gain.low <= gate.low_min || gain.estimate < gate.gain_min)
        {
            reasons.push(Reason::NoGain { gain });
        }
        reasons
    }
}

/// Estimates what weights are worth on feedback that they have not learned from.
pub fn estimate(weights: &Weights, held_out: &[Example], gate: &Gate) -> Estimate {
    let mut sums = Sums::default();
    held_out.iter().for_each(|example| sums.add(weights, example, gate.weight_max));
    sums.estimate(1)
}

/// What became of one learner.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Its name.
    pub learner: &'static str,
    /// On sessions that the weights had not learned from.
    #[serde(flatten)]
    pub estimate: Estimate,
    /// Why it does not go live; empty if it may.
    pub reasons: Vec<Reason>,
}

/// The weights to use, and how each learner fared.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// With the name of their learner; `None` if the base order stays.
    pub live: Option<(&'static str, Weights)>,
    /// In the order of the learners.
    pub verdicts: Vec<Verdict>,
}

/// Lets each learner learn from the examples, oldest first, and takes the one with the largest gain of those that may go
/// live.
///
/// Sessions are split into parts, always in the same way. For each part a learner learns from the others, and its weights
/// are estimated on the part (cross-fitting): so all feedback counts, and none judges weights that learned from it. The
/// intervals hold for all learners together. The weights that go live have learned from all examples, from zero: they
/// depend on nothing but the examples, so that applying one twice or losing a run is impossible.
///
/// Examples with embeddings of other dimensions are left out. A step takes about 0.3 ms at 384 dimensions; there are
/// `folds + 1` trainings for each learner, so this is work for the background.
pub fn choose(
    learners: &[&dyn Learner],
    examples: &[Example],
    model: &str,
    dimensions: usize,
    gate: &Gate,
) -> Choice {
    let examples: Vec<Example> =
        examples.iter().filter(|example| example.dimensions() == dimensions).cloned().collect();
    let mut best: Option<(f64, usize)> = None;
    let mut verdicts = Vec::new();
    for (at, learner) in learners.iter().enumerate() {
        let sums = cross_fitted(*learner, &examples, model, dimensions, gate);
        let estimate = sums.estimate(learners.len());
        let reasons = estimate.reasons_against(gate);
        if let (true, Some(gain)) = (reasons.is_empty(), estimate.gain)
            && best.is_none_or(|(most, _)| gain.estimate > most)
        {
            best = Some((gain.estimate, at));
        }
        verdicts.push(Verdict { learner: learner.name(), estimate, reasons });
    }
    let live = best.and_then(|(_, at)| {
        let mut weights = Weights::zero(model, dimensions);
        learners[at].learn(&mut weights, &examples);
        if weights.is_zero() {
            verdicts[at].reasons.push(Reason::NothingLearned);
            return None;
        }
        Some((learners[at].name(), weights))
    });
    Choice { live, verdicts }
}

fn cross_fitted(
    learner: &dyn Learner,
    examples: &[Example],
    model: &str,
    dimensions: usize,
    gate: &Gate,
) -> Sums {
    let zero = Weights::zero(model, dimensions);
    let mut sums = Sums::default();
    examples.iter().for_each(|example| sums.add(&zero, example, gate.weight_max));
    let before = sums.estimate(1);
    // Too little to be worth learning from.
    if before.sessions < gate.sessions_min || before.used < gate.used_min {
        return sums;
    }
    let folds = gate.folds.max(2);
    sums = Sums::default();
    for fold in 0..folds {
        let (held_out, others): (Vec<Example>, Vec<Example>) =
            examples.iter().cloned().partition(|example| fold_of(example.group(), folds) == fold);
        let mut weights = zero.clone();
        learner.learn(&mut weights, &others);
        held_out.iter().for_each(|example| sums.add(&weights, example, gate.weight_max));
    }
    sums
}

fn fold_of(group: u64, folds: usize) -> usize {
    let hash = blake3::hash(&group.to_le_bytes());
    usize::from(u16::from_le_bytes([hash.as_bytes()[0], hash.as_bytes()[1]])) % folds
}

#[derive(Default)]
struct Sums {
    questions: usize,
    used: usize,
    /// For each session Σ w u, and what is gained and agreed of it.
    groups: BTreeMap<u64, (f64, f64, f64)>,
}

impl Sums {
    fn add(&mut self, weights: &Weights, example: &Example, weight_max: f64) {
        if example.used() == 0 {
            return;
        }
        self.questions += 1;
        self.used += example.used();
        let support = example.supported();
        let shown = example.shown().len();
        let base = discounts(&example.base_scores(), &support, shown);
        let new = discounts(&example.scores(weights), &support, shown);
        let weight = |shown: &Shown| (1.0 / shown.propensity).min(weight_max.max(1.0));
        let total = example.shown().iter().map(weight).sum::<f64>();
        let mean =
            example.shown().iter().map(|shown| weight(shown) * base[&shown.candidate]).sum::<f64>() / total;
        let group = self.groups.entry(example.group()).or_default();
        for shown in example.shown().iter().filter(|shown| shown.outcome == Outcome::Used) {
            let weight = weight(shown);
            let (before, after) = (base[&shown.candidate], new[&shown.candidate]);
            group.0 += weight;
            group.1 += weight * (after - before);
            group.2 += weight * (before - mean);
        }
    }

    fn estimate(&self, comparisons: usize) -> Estimate {
        let ratio = |part: fn(&(f64, f64, f64)) -> f64, z: f64| {
            let groups: Vec<(f64, f64)> = self.groups.values().map(|group| (part(group), group.0)).collect();
            of_ratio(&groups, z)
        };
        Estimate {
            questions: self.questions,
            sessions: self.groups.len(),
            used: self.used,
            gain: ratio(|group| group.1, z_of(comparisons)),
            agreement: ratio(|group| group.2, Z),
        }
    }
}

/// The worth of each candidate's rank, in the order by scores of those that could have been shown.
fn discounts(scores: &[f64], support: &[usize], shown: usize) -> BTreeMap<usize, f64> {
    let mut support = support.to_vec();
    support.sort_unstable();
    let values: Vec<f64> = support.iter().map(|candidate| scores[*candidate]).collect();
    let order = descending(&values).into_iter().enumerate();
    order.map(|(rank, at)| (support[at], if rank < shown { discount(rank) } else { 0.0 })).collect()
}

/// For a rank from 0.
fn discount(rank: usize) -> f64 {
    1.0 / (rank as f64 + 2.0).log2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::Candidate;
    use crate::fixtures::{normal, product, random_weights, scaled, unit_vector};
    use crate::learner::{Listwise, Reinforce, Steps};
    use crate::sampling;
    use fastrand::Rng;

    const DIMENSIONS: usize = 8;

    /// Retrieval ranks by the cosine. What is relevant is found by another product, in which one direction counts
    /// less than nothing: weights can learn it.
    struct World {
        turned: Vec<f32>,
    }

    impl World {
        fn new(random: &mut Rng) -> Self {
            Self { turned: unit_vector(DIMENSIONS, random) }
        }

        fn worth(&self, query: &[f32], item: &[f32]) -> f64 {
            product(query, item) - 3.0 * product(&self.turned, query) * product(&self.turned, item)
        }

        /// The embeddings of items, and whether each is relevant.
        fn question(&self, candidates: usize, random: &mut Rng) -> (Vec<f32>, Vec<Vec<f32>>, Vec<bool>) {
            let query = unit_vector(DIMENSIONS, random);
            let items: Vec<Vec<f32>> = (0..candidates)
                .map(|_| {
                    let noise = unit_vector(DIMENSIONS, random);
                    let near = 0.8 * random.f64();
                    let mixed: Vec<f64> = query
                        .iter()
                        .zip(&noise)
                        .map(|(query, noise)| near * f64::from(*query) + f64::from(*noise))
                        .collect();
                    scaled(&mixed)
                })
                .collect();
            let worth: Vec<f64> = items.iter().map(|item| self.worth(&query, item)).collect();
            let mut order = descending(&worth);
            order.truncate(3);
            (query, items, (0..candidates).map(|at| order.contains(&at)).collect())
        }
    }

    /// Who says what was used.
    #[derive(Clone, Copy, PartialEq)]
    enum Feedback {
        /// As it is, but for one in ten.
        Mostly,
        /// The opposite of it.
        Flipped,
        /// By rank alone.
        Position,
        /// By chance.
        Noise,
    }

    fn examples(
        world: &World,
        feedback: Feedback,
        count: usize,
        temperature: f64,
        random: &mut Rng,
    ) -> Vec<Example> {
        let mut one = |group: usize| {
            let (query, items, relevant) = world.question(12, random);
            let scores: Vec<f64> = items.iter().map(|item| product(&query, item)).collect();
            let draws = sampling::explore(&scores, 5, temperature, random.u64(..));
            let shown = draws.iter().enumerate().map(|(rank, draw)| {
                let is_relevant = relevant[draw.candidate];
                let is_used = match feedback {
                    Feedback::Mostly => is_relevant != (random.f64() < 0.1),
                    Feedback::Flipped => !is_relevant,
                    Feedback::Position => random.f64() < 1.0 / (1.0 + rank as f64),
                    Feedback::Noise => random.f64() < 0.3,
                };
                let outcome = if is_used { Outcome::Used } else { Outcome::Ignored };
                Shown { candidate: draw.candidate, propensity: draw.propensity, outcome }
            });
            let shown = shown.collect();
            let candidates = items.iter().zip(&scores);
            let candidates = candidates.map(|(item, score)| Candidate::new(item, *score)).collect();
            Example::new(group as u64, &query, candidates, shown).unwrap()
        };
        (0..count).map(&mut one).collect()
    }

    fn chosen(feedback: Feedback, count: usize, temperature: f64, seed: u64) -> Choice {
        let mut random = Rng::with_seed(seed);
        let world = World::new(&mut random);
        let examples = examples(&world, feedback, count, temperature, &mut random);
        // Few dimensions and few questions: larger steps.
        let steps = Steps { rate: 3e-2, passes: 5, norm_max: 4.0 };
        let listwise = Listwise { steps, ..Listwise::default() };
        let learners: [&dyn Learner; 2] = [&Reinforce::default(), &listwise];
        choose(&learners, &examples, "m", DIMENSIONS, &Gate::default())
    }

    /// The share of the relevant among the first five, by an order.
    fn recall(weights: &Weights, world: &World, questions: usize, random: &mut Rng) -> f64 {
        let (mut found, mut all) = (0, 0);
        for _ in 0..questions {
            let (query, items, relevant) = world.question(12, random);
            let adapted = weights.adapt(&query).unwrap();
            let scores: Vec<f64> =
                items.iter().map(|item| adapted.score(product(&query, item), item)).collect();
            found += descending(&scores)[..5].iter().filter(|at| relevant[**at]).count();
            all += relevant.iter().filter(|is_relevant| **is_relevant).count();
        }
        found as f64 / all as f64
    }

    #[test]
    fn what_helps_goes_live_and_helps_later_questions() {
        for temperature in [0.0, 0.4] {
            for seed in 0..4 {
                println!("seed {seed}");
                let choice = chosen(Feedback::Mostly, 200, temperature, seed);
                println!("{:?}", choice.verdicts);
                let (_, weights) = choice.live.expect("weights that go live");
                let mut random = Rng::with_seed(seed);
                let world = World::new(&mut random);
                random.seed(seed + 1000);
                let before = recall(&Weights::zero("m", DIMENSIONS), &world, 300, &mut random);
                random.seed(seed + 1000);
                let after = recall(&weights, &world, 300, &mut random);
                println!("recall@5 {before:.3} → {after:.3}");
                assert!(after > before + 0.04, "{before} {after}");
            }
        }
    }

    #[test]
    fn flipped_feedback_keeps_the_base_order() {
        for temperature in [0.0, 0.1] {
            for count in [40, 150] {
                for seed in 0..8 {
                    let choice = chosen(Feedback::Flipped, count, temperature, seed);
                    assert!(choice.live.is_none(), "seed {seed}: {:?}", choice.verdicts);
                    let is_disbelieved = |verdict: &Verdict| {
                        verdict.reasons.iter().any(|reason| matches!(reason, Reason::NoAgreement { .. }))
                    };
                    assert!(choice.verdicts.iter().all(is_disbelieved), "{:?}", choice.verdicts);
                }
            }
        }
    }

    #[test]
    fn feedback_by_position_alone_keeps_the_base_order() {
        for temperature in [0.0, 0.1] {
            for count in [40, 150] {
                for seed in 0..8 {
                    let choice = chosen(Feedback::Position, count, temperature, seed);
                    assert!(choice.live.is_none(), "seed {seed}: {:?}", choice.verdicts);
                }
            }
        }
    }

    #[test]
    fn feedback_by_chance_seldom_goes_live() {
        let live = (0..100).filter(|seed| chosen(Feedback::Noise, 60, 0.0, *seed).live.is_some()).count();
        println!("{live} of 100");
        assert!(live <= 2);
    }

    #[test]
    fn little_feedback_keeps_the_base_order_and_says_why() {
        let choice = chosen(Feedback::Mostly, 15, 0.0, 1);
        assert!(choice.live.is_none());
        let reasons: Vec<String> = choice.verdicts[0].reasons.iter().map(Reason::to_string).collect();
        assert!(reasons[0].starts_with("not enough data yet: "), "{reasons:?}");
        assert_eq!(chosen(Feedback::Mostly, 0, 0.0, 1).verdicts[1].estimate.used, 0);
    }

    #[test]
    fn a_choice_is_the_same_again() {
        assert_eq!(chosen(Feedback::Mostly, 60, 0.1, 9), chosen(Feedback::Mostly, 60, 0.1, 9));
    }

    #[test]
    fn the_gain_interval_covers_what_showing_all_would_say() {
        const REPEATS: usize = 400;
        let seed = 77;
        println!("seed {seed}");
        let mut random = Rng::with_seed(seed);
        let world = World::new(&mut random);
        let weights = random_weights(DIMENSIONS, 0.3, &mut random);
        // With a temperature at which everything is shown now and then.
        let all = |gain: &mut (f64, f64), random: &mut Rng| {
            let (query, items, relevant) = world.question(12, random);
            let adapted = weights.adapt(&query).unwrap();
            let base: Vec<f64> = items.iter().map(|item| product(&query, item)).collect();
            let new: Vec<f64> =
                items.iter().zip(&base).map(|(item, base)| adapted.score(*base, item)).collect();
            let support: Vec<usize> = (0..12).collect();
            let (base, new) = (discounts(&base, &support, 5), discounts(&new, &support, 5));
            for at in 0..12 {
                let used = if relevant[at] { 0.9 } else { 0.1 };
                gain.0 += used * (new[&at] - base[&at]);
                gain.1 += used;
            }
        };
        let mut gain = (0.0, 0.0);
        (0..20_000).for_each(|_| all(&mut gain, &mut random));
        let truth = gain.0 / gain.1;
        let logged = examples(&world, Feedback::Mostly, 3000, 0.4, &mut random);
        let covered = (0..REPEATS).filter(|_| {
            let held_out: Vec<Example> = (0..80).map(|_| logged[random.usize(..3000)].clone()).collect();
            let found = estimate(&weights, &held_out, &Gate::default()).gain.unwrap();
            found.low <= truth && truth <= found.high
        });
        let share = covered.count() as f64 / REPEATS as f64;
        println!("truth {truth:+.4}, covered {share}");
        assert!((share - 0.95).abs() < 0.02, "{share}");
    }

    #[test]
    fn sessions_count_once_in_an_interval() {
        let mut random = Rng::with_seed(5);
        let world = World::new(&mut random);
        let weights = random_weights(DIMENSIONS, 0.3, &mut random);
        let once = examples(&world, Feedback::Mostly, 40, 0.0, &mut random);
        let tenfold: Vec<Example> = once.iter().flat_map(|example| vec![example.clone(); 10]).collect();
        let [one, ten] =
            [once, tenfold].map(|examples| estimate(&weights, &examples, &Gate::default()).gain.unwrap());
        assert!((one.low - ten.low).abs() < 1e-9 && (one.high - ten.high).abs() < 1e-9, "{one} {ten}");
    }

    #[test]
    fn weights_that_explode_do_not_go_live() {
        let mut random = Rng::with_seed(6);
        let world = World::new(&mut random);
        let examples = examples(&world, Feedback::Mostly, 80, 0.0, &mut random);
        let steps = Steps { rate: f64::MAX, passes: 2, norm_max: 1e6 };
        let wild = Listwise { steps, ..Listwise::default() };
        let choice = choose(&[&wild], &examples, "m", DIMENSIONS, &Gate::default());
        assert!(choice.live.is_none(), "{:?}", choice.verdicts);
        let other = choose(&[&wild], &examples, "m", DIMENSIONS + 1, &Gate::default());
        assert_eq!((other.live, other.verdicts[0].estimate.questions), (None, 0));
    }

    #[test]
    fn noise_of_the_fixture_is_normal() {
        let mut random = Rng::with_seed(7);
        let values: Vec<f64> = (0..20_000).map(|_| normal(&mut random)).collect();
        let inside = values.iter().filter(|value| value.abs() < 1.0).count() as f64 / 20_000.0;
        assert!((inside - 0.6827).abs() < 0.015, "{inside}");
    }
}
