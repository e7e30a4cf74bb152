//! Models of the protocols between processes and between actors. Loom runs them through every
//! interleaving with a few preemptions:
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test -p loom-models --target-dir target/loom --release
//! ```
//!
//! [`hand_over`] runs the production code; [`generation`] and [`wake_up`] model production code step by
//! step, and name it. Each broken variant is a control: it must fail, or the model proves nothing.
//! Files, kernel locks and database rows are atomics that are read by swapping, because a system call
//! sees the latest state. Loom's `Mutex` would hide a lost wake-up, because loom does not switch threads
//! when it is unlocked.
//!
//! Compiled only under `--cfg loom`. This crate never runs as part of the product.
#![cfg(loom)]

#[cfg(test)]
mod generation;
#[cfg(test)]
mod hand_over;
#[path = "../../src/queue/handover.rs"]
pub mod handover;
#[cfg(test)]
mod wake_up;

/// Runs a model through all interleavings with at most this many preemptions.
#[cfg(test)]
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(model);
}
