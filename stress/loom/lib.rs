//! The protocols between processes and between actors, run by loom through every interleaving with
//! a few preemptions:
//!
//!     RUSTFLAGS="--cfg loom" cargo test -p loom-models --target-dir target/loom --release
//!
//! [`hand_over`] runs the production code; [`generation`] and [`doorbell`] are models of it, step for
//! step, and say of which. Each broken variant is a control: it must fail, or the model sees nothing.
//! Files, locks of the kernel and rows of a database are atomics that are read by swapping, as a
//! system call sees the latest state; loom's `Mutex` would hide a lost wake-up, for its unlocking is
//! no point at which another thread is run.
//!
//! Never compiled but under `--cfg loom`.
#![cfg(loom)]

#[cfg(test)]
mod doorbell;
#[cfg(test)]
mod generation;
#[cfg(test)]
mod hand_over;
#[path = "../../src/queue/handover.rs"]
pub mod handover;

/// Runs a model through all interleavings with at most so many preemptions.
#[cfg(test)]
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(model);
}
