//! Two ways to learn weights from what was used.
//!
//! Both climb an objective of the scores by stochastic gradient steps, one example at a time, in the order given. With
//! `c = ∂objective/∂scores` over the candidates and `y = Σ cⱼ mⱼ`, the gradients are
//!
//! `∂/∂W_q = (y + W_m y) qᵀ` and `∂/∂W_m = q' yᵀ`.

use serde::Serialize;

use crate::example::{Example, Outcome};
use crate::weights::Weights;

/// The limits of a learner's steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steps {
    /// Of the gradient that is added.
    pub rate: f64,
    /// How often the examples are gone through.
    pub passes: usize,
    /// The largest Frobenius norm of each matrix, and of one step. No adjustment of a score exceeds `2n + n²`.
    pub norm_max: f64,
}

/// What a learner did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Training {
    /// Steps that changed the weights.
    pub steps: usize,
    /// Examples that teach nothing, in one pass, because nothing or everything was used, or because their embeddings have
    /// other dimensions.
    pub without_lesson: usize,
}

/// Changes weights by examples. The result depends on nothing but the weights before and the examples in their order.
pub trait Learner {
    /// The name in settings and reports.
    fn name(&self) -> &'static str;

    /// The limits of its steps.
    fn steps(&self) -> Steps;

    /// How the objective changes with each candidate's score; `None` if the example teaches nothing.
    fn score_gradient(&self, example: &Example, scores: &[f64]) -> Option<Vec<f64>>;

    /// Goes through the examples as often as [`Learner::steps`] says.
    fn learn(&self, weights: &mut Weights, examples: &[Example]) -> Training {
        let steps = self.steps();
        let mut training = Training::default();
        for pass in 0..steps.passes {
            for example in examples {
                let Some(gradient) = Gradient::new(self, weights, example) else {
                    training.without_lesson += usize::from(pass == 0);
                    continue;
                };
                gradient.add_to(weights, steps);
                training.steps += 1;
            }
        }
        training
    }
}

/// The gradient of one example, as the factors of two outer products.
struct Gradient {
    query: Vec<f64>,
    adapted_query: Vec<f64>,
    memory: Vec<f64>,
    adapted_memory: Vec<f64>,
}

impl Gradient {
    fn new<L: Learner + ?Sized>(learner: &L, weights: &Weights, example: &Example) -> Option<Self> {
        if example.dimensions() != weights.dimensions() {
            return None;
        }
        let of_scores = learner.score_gradient(example, &example.scores(weights))?;
        let mut memory = vec![0.0; example.dimensions()];
        for (candidate, factor) in of_scores.iter().enumerate().filter(|(_, factor)| **factor != 0.0) {
            for (sum, value) in memory.iter_mut().zip(example.embedding(candidate)) {
                *sum += factor * f64::from(*value);
            }
        }
        let gradient = Self {
            query: example.query().iter().map(|value| f64::from(*value)).collect(),
            adapted_query: weights.shift(example.query()).0,
            adapted_memory: weights.adapted_memory(&memory),
            memory,
        };
        let is_finite = [&gradient.adapted_query, &gradient.memory, &gradient.adapted_memory]
            .into_iter()
            .flatten()
            .all(|value| value.is_finite());
        is_finite.then_some(gradient)
    }

    fn add_to(&self, weights: &mut Weights, steps: Steps) {
        weights.step(
            (&self.adapted_memory, &self.query),
            (&self.adapted_query, &self.memory),
            steps.rate,
            steps.norm_max,
        );
    }
}

/// REINFORCE as in the paper (equation 3): each item shown has the reward 1 if it was used and −1 if not, and
/// the objective is `Σ (reward − baseline) log pᵢ` over what was shown, where `p` is the softmax over all candidates at a
/// temperature (equation 2, without its noise).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reinforce {
    /// τ of the softmax.
    pub temperature: f64,
    /// b, subtracted from each reward.
    pub baseline: f64,
    /// The reward of what was used; what was not has the negative one.
    pub reward: f64,
    /// One pass: the gradient is one of the order that was shown.
    pub steps: Steps,
}

impl Default for Reinforce {
    fn default() -> Self {
        let steps = Steps { rate: 1e-3, passes: 1, norm_max: NORM_MAX };
        Self { temperature: 0.5, baseline: 0.5, reward: 1.0, steps }
    }
}

impl Learner for Reinforce {
    fn name(&self) -> &'static str {
        "reinforce"
    }

    fn steps(&self) -> Steps {
        self.steps
    }

    fn score_gradient(&self, example: &Example, scores: &[f64]) -> Option<Vec<f64>> {
        if example.shown().is_empty() || scores.len() < 2 {
            return None;
        }
        let probabilities = softmax(scores.iter().copied(), self.temperature);
        let mut gradient = vec![0.0; scores.len()];
        let mut sum = 0.0;
        for shown in example.shown() {
            let reward = if shown.outcome == Outcome::Used { self.reward } else { -self.reward };
            gradient[shown.candidate] += reward - self.baseline;
            sum += reward - self.baseline;
        }
        for (value, probability) in gradient.iter_mut().zip(probabilities) {
            *value = (*value - sum * probability) / positive(self.temperature);
        }
        Some(gradient)
    }
}

/// A listwise softmax over what was shown (the cross entropy of ListNet, Cao et al., ICML 2007), with replay: the objective
/// is `Σ tᵢ log pᵢ`, where `p` is the softmax over what was shown and `t` is shared by what was used. If nothing was used
/// but something contradicted, `t` is shared by the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Listwise {
    /// Of the softmax.
    pub temperature: f64,
    /// Several passes are the replay of what was kept.
    pub steps: Steps,
}

impl Default for Listwise {
    fn default() -> Self {
        Self { temperature: 0.15, steps: Steps { rate: 3e-3, passes: 5, norm_max: NORM_MAX } }
    }
}

/// Several times what a hundred questions lead to.
const NORM_MAX: f64 = 1.0;

impl Learner for Listwise {
    fn name(&self) -> &'static str {
        "listwise"
    }

    fn steps(&self) -> Steps {
        self.steps
    }

    fn score_gradient(&self, example: &Example, scores: &[f64]) -> Option<Vec<f64>> {
        let shown = example.shown();
        let targets = targets(example)?;
        let probabilities = softmax(shown.iter().map(|shown| scores[shown.candidate]), self.temperature);
        let mut gradient = vec![0.0; scores.len()];
        for ((shown, target), probability) in shown.iter().zip(targets).zip(probabilities) {
            gradient[shown.candidate] = (target - probability) / positive(self.temperature);
        }
        Some(gradient)
    }
}

/// What the listwise learner wants the softmax to be; `None` if all that was shown is equally good.
fn targets(example: &Example) -> Option<Vec<f64>> {
    let shown = example.shown();
    let is_target = |outcome: Outcome| match example.used() {
        0 => outcome != Outcome::Contradicted,
        _ => outcome == Outcome::Used,
    };
    let count = shown.iter().filter(|shown| is_target(shown.outcome)).count();
    if count == 0 || count == shown.len() {
        return None;
    }
    let share = 1.0 / count as f64;
    Some(shown.iter().map(|shown| if is_target(shown.outcome) { share } else { 0.0 }).collect())
}

fn softmax(scores: impl Iterator<Item = f64> + Clone, temperature: f64) -> Vec<f64> {
    let largest = scores.clone().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = scores.map(|score| ((score - largest) / positive(temperature)).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}

/// A temperature that can be divided by.
fn positive(temperature: f64) -> f64 {
    temperature.max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::{Candidate, Shown};
    use crate::fixtures::{random_example, random_weights, unit_vector};
    use fastrand::Rng;
    use proptest::prelude::*;

    fn learners() -> [Box<dyn Learner>; 2] {
        [Box::new(Reinforce::default()), Box::new(Listwise::default())]
    }

    fn objective(learner: &dyn Learner, weights: &Weights, example: &Example) -> f64 {
        let scores = example.scores(weights);
        match learner.name() {
            "reinforce" => {
                let probabilities = softmax(scores.iter().copied(), 0.5);
                let advantage = |outcome| if outcome == Outcome::Used { 0.5 } else { -1.5 };
                let terms = example.shown().iter();
                terms.map(|shown| advantage(shown.outcome) * probabilities[shown.candidate].ln()).sum()
            }
            _ => {
                let shown = example.shown().iter();
                let probabilities = softmax(shown.map(|shown| scores[shown.candidate]), 0.15);
                let targets = targets(example).unwrap();
                targets.iter().zip(probabilities).map(|(target, p)| target * p.ln()).sum()
            }
        }
    }

    /// Central differences over weights that are sums of powers of two, so that no step is rounded; extrapolated once
    /// (Richardson), so that the error is of the fourth order.
    fn difference(
        learner: &dyn Learner,
        weights: &mut Weights,
        example: &Example,
        matrix: usize,
        at: usize,
    ) -> f64 {
        let central = |weights: &mut Weights, step: f32| {
            let before = weights.matrices()[matrix][at];
            let mut value = |to: f32| {
                weights.matrices_mut()[matrix][at] = to;
                objective(learner, weights, example)
            };
            let slope = (value(before + step) - value(before - step)) / f64::from(2.0 * step);
            weights.matrices_mut()[matrix][at] = before;
            slope
        };
        let (wide, narrow) = (central(weights, 2f32.powi(-11)), central(weights, 2f32.powi(-12)));
        (4.0 * narrow - wide) / 3.0
    }

    fn check_gradient(dimensions: usize, entries: impl Fn(&mut Rng) -> Vec<usize>, seed: u64) {
        println!("seed {seed}");
        let mut random = Rng::with_seed(seed);
        for learner in learners() {
            let mut weights = random_weights(dimensions, 0.3 / dimensions as f64, &mut random);
            for matrix in weights.matrices_mut() {
                matrix.iter_mut().for_each(|weight| *weight = (*weight * 16384.0).round() / 16384.0);
            }
            let example = random_example(dimensions, 8, 5, &mut random);
            let gradient = Gradient::new(&*learner, &weights, &example).unwrap();
            for at in entries(&mut random) {
                let (row, column) = (at / dimensions, at % dimensions);
                let expected = [
                    gradient.adapted_memory[row] * gradient.query[column],
                    gradient.adapted_query[row] * gradient.memory[column],
                ];
                for (matrix, expected) in expected.into_iter().enumerate() {
                    let found = difference(&*learner, &mut weights, &example, matrix, at);
                    let error = (found - expected).abs() / expected.abs().max(1.0);
                    assert!(error < 1e-6, "{} {matrix} {at}: {found} {expected}", learner.name());
                }
            }
        }
    }

    #[test]
    fn all_gradients_agree_with_finite_differences_at_7_dimensions() {
        for seed in 0..5 {
            check_gradient(7, |_| (0..49).collect(), seed);
        }
    }

    #[test]
    fn gradients_agree_with_finite_differences_at_384_dimensions() {
        check_gradient(384, |random| (0..60).map(|_| random.usize(..384 * 384)).collect(), 31);
    }

    #[test]
    fn steps_raise_the_used_and_keep_the_norm() {
        let mut random = Rng::with_seed(41);
        let examples: Vec<Example> = (0..30).map(|_| random_example(16, 10, 5, &mut random)).collect();
        for norm_max in [0.1, 0.5, 3.0] {
            let steps = Steps { rate: 1e-2, passes: 20, norm_max };
            let listwise = Listwise { steps, ..Listwise::default() };
            let mut weights = Weights::zero("m", 16);
            let before: f64 = examples.iter().map(|example| objective(&listwise, &weights, example)).sum();
            let training = listwise.learn(&mut weights, &examples);
            assert_eq!((training.steps, training.without_lesson), (600, 0));
            let after: f64 = examples.iter().map(|example| objective(&listwise, &weights, example)).sum();
            assert!(after > before, "{after} {before}");
            let (query, memory) = weights.norms();
            assert!(query <= norm_max * 1.000_001 && memory <= norm_max * 1.000_001, "{query} {memory}");
        }
    }

    #[test]
    fn two_projects_that_learn_by_turns_share_nothing() {
        let mut random = Rng::with_seed(42);
        let flipped = |example: &Example, random: &mut Rng| {
            let _ = random.f64();
            let shown = example.shown().iter().map(|shown| Shown {
                outcome: match shown.outcome {
                    Outcome::Used => Outcome::Ignored,
                    _ => Outcome::Used,
                },
                ..*shown
            });
            let candidates = (0..example.base_scores().len())
                .map(|at| Candidate::new(example.embedding(at), example.base_scores()[at]));
            Example::new(example.group(), example.query(), candidates.collect(), shown.collect()).unwrap()
        };
        let first: Vec<Example> = (0..12).map(|_| random_example(12, 8, 4, &mut random)).collect();
        let second: Vec<Example> = first.iter().map(|example| flipped(example, &mut random)).collect();
        for learner in learners() {
            let (mut alone, mut one, mut other) =
                (Weights::zero("m", 12), Weights::zero("m", 12), Weights::zero("m", 12));
            for (ours, theirs) in first.iter().zip(&second) {
                learner.learn(&mut one, std::slice::from_ref(ours));
                learner.learn(&mut other, std::slice::from_ref(theirs));
            }
            for ours in &first {
                learner.learn(&mut alone, std::slice::from_ref(ours));
            }
            assert_eq!(one.to_bytes(), alone.to_bytes());
            assert_ne!(one.to_bytes(), other.to_bytes());
        }
    }

    #[test]
    fn equal_outcomes_teach_the_listwise_learner_nothing() {
        let mut random = Rng::with_seed(43);
        let candidates: Vec<Candidate> =
            (0..4).map(|_| Candidate::new(&unit_vector(6, &mut random), 0.5)).collect();
        let query = unit_vector(6, &mut random);
        let example = |outcomes: &[Outcome]| {
            let shown = outcomes.iter().enumerate();
            let shown =
                shown.map(|(candidate, outcome)| Shown { candidate, propensity: 1.0, outcome: *outcome });
            Example::new(1, &query, candidates.clone(), shown.collect()).unwrap()
        };
        use Outcome::{Contradicted, Ignored, Used};
        let lessons: [(&[Outcome], bool); 6] = [
            (&[], false),
            (&[Used, Used], false),
            (&[Ignored, Ignored], false),
            (&[Contradicted, Contradicted], false),
            (&[Contradicted, Ignored], true),
            (&[Used, Ignored], true),
        ];
        for (outcomes, is_lesson) in lessons {
            let mut weights = Weights::zero("m", 6);
            let training = Listwise::default().learn(&mut weights, &[example(outcomes)]);
            assert_eq!(training.without_lesson == 0, is_lesson, "{outcomes:?}");
            assert_eq!(!weights.is_zero(), is_lesson, "{outcomes:?}");
        }
        // What contradicts the session falls below what it ignored.
        let mut weights = Weights::zero("m", 6);
        Listwise::default().learn(&mut weights, &[example(&[Contradicted, Ignored])]);
        let scores = example(&[]).scores(&weights);
        assert!(scores[0] < scores[1]);
    }

    #[test]
    fn large_scores_have_a_softmax_too() {
        for offset in [0.0, 1e6, -1e6] {
            let found = softmax([offset, offset + 0.15].into_iter(), 0.15);
            let expected = 1.0 / (1.0 + std::f64::consts::E);
            assert!((found[0] - expected).abs() < 1e-6 && (found[0] + found[1] - 1.0).abs() < 1e-12);
        }
    }

    #[derive(serde::Deserialize)]
    struct Reference {
        weights: Vec<Vec<f32>>,
        examples: Vec<ReferenceExample>,
        scores: Vec<Vec<f64>>,
        reinforce: ReferenceRun,
        listwise: ReferenceRun,
    }

    #[derive(serde::Deserialize)]
    struct ReferenceExample {
        query: Vec<f32>,
        memories: Vec<Vec<f32>>,
        base_scores: Vec<f64>,
        shown: Vec<usize>,
        used: Vec<bool>,
    }

    #[derive(serde::Deserialize)]
    struct ReferenceRun {
        gradients: Vec<Vec<Vec<f64>>>,
        rate: f64,
        passes: usize,
        norm_max: f64,
        learned: Vec<Vec<f64>>,
    }

    #[test]
    fn scores_gradients_and_a_run_agree_with_numpy() {
        let reference: Reference =
            serde_json::from_str(include_str!("../../stress/learn/reference.json")).unwrap();
        let dimensions = reference.examples[0].query.len();
        let mut weights = Weights::zero("m", dimensions);
        for (matrix, values) in weights.matrices_mut().into_iter().zip(&reference.weights) {
            matrix.copy_from_slice(values);
        }
        let examples: Vec<Example> = reference.examples.iter().map(ReferenceExample::read).collect();
        let close = |found: f64, expected: f64| {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        };
        for (example, expected) in examples.iter().zip(&reference.scores) {
            let found = example.scores(&weights);
            found.into_iter().zip(expected).for_each(|(found, expected)| close(found, *expected));
        }
        let runs = [reference.reinforce, reference.listwise];
        for (learner, run) in learners().iter().zip(&runs) {
            for (example, expected) in examples.iter().zip(&run.gradients) {
                let gradient = Gradient::new(&**learner, &weights, example).unwrap();
                for (at, (query, memory)) in expected[0].iter().zip(&expected[1]).enumerate() {
                    let (row, column) = (at / dimensions, at % dimensions);
                    close(gradient.adapted_memory[row] * gradient.query[column], *query);
                    close(gradient.adapted_query[row] * gradient.memory[column], *memory);
                }
                assert_eq!(expected[1].len(), dimensions * dimensions);
            }
            let steps = Steps { rate: run.rate, passes: run.passes, norm_max: run.norm_max };
            let mut learned = weights.clone();
            match learner.name() {
                "reinforce" => Reinforce { steps, ..Reinforce::default() }.learn(&mut learned, &examples),
                _ => Listwise { steps, ..Listwise::default() }.learn(&mut learned, &examples),
            };
            let (query, memory) = learned.norms();
            assert!((query - run.norm_max).abs() < 1e-5 || (memory - run.norm_max).abs() < 1e-5, "limited");
            for (found, expected) in learned.matrices().into_iter().zip(&run.learned) {
                assert_eq!(found.len(), expected.len());
                found.iter().zip(expected).for_each(|(found, expected)| close(f64::from(*found), *expected));
            }
        }
    }

    impl ReferenceExample {
        fn read(&self) -> Example {
            let candidates = self.memories.iter().zip(&self.base_scores);
            let candidates = candidates.map(|(memory, base)| Candidate::new(memory, *base)).collect();
            let shown = self.shown.iter().zip(&self.used).map(|(candidate, used)| Shown {
                candidate: *candidate,
                propensity: 1.0,
                outcome: if *used { Outcome::Used } else { Outcome::Ignored },
            });
            Example::new(1, &self.query, candidates, shown.collect()).unwrap()
        }
    }

    fn hostile_number() -> impl Strategy<Value = f32> {
        prop_oneof![
            Just(0.0),
            Just(-0.0),
            Just(f32::MAX),
            Just(f32::MIN),
            Just(f32::MIN_POSITIVE),
            Just(1e-45),
            Just(f32::NAN),
            Just(f32::INFINITY),
            -1.0..1.0f32,
        ]
    }

    fn hostile_example() -> impl Strategy<Value = Option<Example>> {
        let vector = || proptest::collection::vec(hostile_number(), 3);
        let base = prop_oneof![Just(f64::MAX), Just(f64::MIN), Just(0.0), -1.0..1.0f64];
        let candidates = proptest::collection::vec((vector(), base), 0..6);
        let outcome = prop_oneof![Just(Outcome::Used), Just(Outcome::Ignored), Just(Outcome::Contradicted)];
        let shown = proptest::collection::vec((outcome, 1e-300..1.0f64), 0..6);
        (vector(), candidates, shown).prop_map(|(query, candidates, shown)| {
            let candidates: Vec<Candidate> =
                candidates.iter().map(|(vector, base)| Candidate::new(vector, *base)).collect();
            let shown = shown.iter().take(candidates.len()).enumerate();
            let shown = shown.map(|(candidate, (outcome, propensity))| Shown {
                candidate,
                propensity: *propensity,
                outcome: *outcome,
            });
            let shown = shown.collect();
            Example::new(1, &query, candidates, shown).ok()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn no_input_makes_a_weight_or_a_score_nan(
            examples in proptest::collection::vec(hostile_example(), 1..5),
            rate in prop_oneof![Just(1e-3), Just(1e6), Just(f64::MAX)],
            temperature in prop_oneof![Just(0.0), Just(f64::NAN), Just(0.05), Just(1e12)],
        ) {
            let examples: Vec<Example> = examples.into_iter().flatten().collect();
            let steps = Steps { rate, passes: 3, norm_max: 2.0 };
            let learners: [Box<dyn Learner>; 2] = [
                Box::new(Reinforce { temperature, steps, ..Reinforce::default() }),
                Box::new(Listwise { temperature, steps }),
            ];
            for learner in learners {
                let mut weights = Weights::zero("m", 3);
                learner.learn(&mut weights, &examples);
                let (query, memory) = weights.norms();
                prop_assert!(query <= 2.0001 && memory <= 2.0001, "{query} {memory}");
                for example in &examples {
                    prop_assert!(example.scores(&weights).iter().all(|score| !score.is_nan()));
                }
            }
        }
    }
}
