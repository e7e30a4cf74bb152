//! The service as supervised actors, one file for each.
//!
//! Work lives in the queue and a message is a doorbell: a lost message costs time, never work. No
//! actor keeps anything that it could not find again after a crash.
//!
//! `intake → extraction → embedding → indexing → git → delivery` is the way of a capture; each arrow
//! is a committed stage. `retrieval` answers questions and shares only `embedding` with the others.

pub mod brain_view;
pub mod budget;
mod dedup;
pub mod delivery;
pub mod embedding;
pub mod extraction;
pub mod git;
pub mod health;
pub mod index_progress;
pub mod indexing;
pub mod intake;
pub mod mailbox;
pub mod model_rerank;
pub mod pipeline;
mod pull_request_text;
mod purse;
pub mod retrieval;
pub mod service;
pub mod supervisor;
pub mod sweep;
pub mod sync;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod testbed;
#[cfg(test)]
mod tests;

pub use budget::{ApiBudget, ApiReservation};
pub use delivery::Settings as DeliverySettings;
pub use git::preview as preview_unit_files;
pub use health::{ActorReport, Health};
pub use mailbox::Mailbox;
pub use model_rerank::ModelReranker;
pub use service::{DrainSummary, Roles, Service, Setup, StartError, drain};

/// Why a question to the service has no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The actor is being restarted, or its answer did not come in time.
    #[error("{0} did not answer in time")]
    NoAnswer(&'static str),
    #[error("{0}")]
    Failed(String),
}
