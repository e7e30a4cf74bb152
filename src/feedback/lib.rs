//! Retrospective reflection: learning from what sessions used of what they were shown, after Reflective Memory Management
//! (Tan et al., ACL 2025, <https://arxiv.org/abs/2503.08026>).
//!
//! In the order of use:
//!
//! 1. [`sampling`] picks what is shown of the candidates, and says with what probability.
//! 2. [`citation`] judges from the session's texts what was used.
//! 3. A [`Learner`] changes [`Weights`] by such [`Example`]s.
//! 4. [`choose`] estimates, on sessions that the weights have not learned from, whether their order would have been better,
//!    and gives weights only then.
//! 5. An [`AdaptedQuery`] adds what was learned to the base scores.
//! 6. [`receipts`] compares sessions that were shown a unit with those that it was withheld from.
//!
//! Everything here is a function of its arguments. This crate never reads or writes anything, looks at a clock or keeps
//! state: whoever owns the tables keeps examples and weights, for each project its own.
//!
//! ```
//! use feedback::{Candidate, Example, Gate, Learner, Listwise, Outcome, Reinforce, Shown, Weights, choose};
//!
//! let query = [1.0, 0.0];
//! let candidates = vec![Candidate::new(&[0.8, 0.6], 0.8), Candidate::new(&[0.6, 0.8], 0.6)];
//! let shown = |candidate, outcome| Shown { candidate, propensity: 1.0, outcome };
//! let shown = vec![shown(0, Outcome::Ignored), shown(1, Outcome::Used)];
//! let examples = vec![Example::new(7, &query, candidates, shown)?];
//!
//! let mut weights = Weights::zero("minilm", 2);
//! Listwise::default().learn(&mut weights, &examples);
//! let adapted = weights.adapt(&query)?;
//! assert!(adapted.adjustment(&[0.6, 0.8]) > adapted.adjustment(&[0.8, 0.6]));
//!
//! let learners: [&dyn Learner; 2] = [&Reinforce::default(), &Listwise::default()];
//! let choice = choose(&learners, &examples, "minilm", 2, &Gate::default());
//! assert!(choice.live.is_none());
//! let reason = choice.verdicts[0].reasons[0].to_string();
//! assert_eq!(reason, "not enough data yet: 1 of 20 sessions used what they were shown");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![warn(missing_docs, clippy::missing_errors_doc)]

pub mod citation;
pub mod estimate;
mod example;
#[cfg(test)]
mod fixtures;
mod interval;
pub mod learner;
pub mod receipts;
pub mod sampling;
mod weights;

pub use citation::{Evidence, Judgement, Passage, ShownItem, Source, judge};
pub use estimate::{Choice, Estimate, Gate, Reason, Verdict, choose};
pub use example::{Candidate, Example, ExampleError, Outcome, Shown};
pub use interval::Interval;
pub use learner::{Learner, Listwise, Reinforce, Steps, Training};
pub use weights::{AdaptedQuery, Weights, WeightsError};
