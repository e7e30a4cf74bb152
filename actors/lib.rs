//! The background service of a brain as supervised actors: it captures sessions, keeps the index, and answers
//! questions.
//!
//! `intake → extraction → embedding → indexing → git → delivery` are the stages of a capture, one file and one
//! actor for each; [`Service`] puts them together. Work is a row in the queue, a message only wakes an actor: a
//! lost message costs time, never work. A stage's result and its hand-on to the next stage are one transaction.
//! No actor keeps anything that it could not find again after a crash.
//!
//! This crate never writes to a code repository, and never to the brain except on branches for review, by
//! fast-forwards of its checkout, and by what a person decides in the inbox ([`review`]).
//!
//! ```
//! // The sessions that the hook missed, and why others are skipped.
//! use actors::sweep::SkipReason;
//! assert_eq!(SkipReason::Active.describe(), "still in use");
//! ```
#![warn(missing_docs)]
#![warn(clippy::missing_errors_doc)]

pub mod archiving;
pub mod index_progress;
pub mod learning;
pub mod notes;
pub mod reflection;
pub mod review;
pub mod sweep;
pub mod sync;

mod background;
mod batch;
mod batch_window;
mod brain_view;
mod budget;
mod citations;
mod code_context;
mod comparison;
mod dedup;
mod delivery;
mod diverged;
mod embedding;
mod embedding_model;
mod extraction;
mod facts;
mod failure;
mod git;
mod health;
mod indexing;
mod inert_markdown;
mod intake;
mod jobs;
mod learned_order;
mod mailbox;
mod merge_record;
mod model_rerank;
mod other_machines;
mod pipeline;
mod proposal;
mod pull_request_text;
mod reflection_message;
mod remote;
mod remote_branches;
mod retrieval;
mod review_remote;
mod server_worker;
mod service;
mod session_search;
mod settings_mark;
mod setup;
mod stage_actor;
mod supervisor;
mod taken_over;
mod unqueued_branches;
mod upload;
mod withdrawal;
mod worker;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use batch_window::BatchWindow;
pub use brain_view::{BrainView, merged_commits};
pub use budget::{ApiBudget, ApiReservation};
pub use code_context::CodeContext;
pub use extraction::{BrainUnit, last_unread, select_known_units};
pub use facts::{Fact, Facts};
pub use health::ActorReport;
pub use indexing::RefreshProgress;
pub use mailbox::AskError;
pub use merge_record::{MergeOutcome, merge_outcome};
pub use model_rerank::ModelReranker;
pub use proposal::preview_unit_files;
pub use remote::{DeliverySettings, find_credentials, github_host, token_credentials};
pub use server_worker::ServerWorker;
pub use service::{Roles, Service, StartError};
pub use session_search::{FoundMessage, FoundSessions, SessionSearch};
pub use settings_mark::{RENEWAL_REPORT, SettingsMark};
pub use setup::Setup;
pub use worker::{DrainSummary, WORKER_REPORT, WorkerReport, drain};
