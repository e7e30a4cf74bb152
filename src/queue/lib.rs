//! The durable queue of captures and the ledger of how each ended.
//!
//! Work lives here and nowhere else: a row is committed before anybody is told that it exists, and
//! leaves its stage only in the transaction that keeps the stage's result. This crate never does
//! the work and never starts a process.

mod capture;
mod delivery;
mod handover;
mod locks;
mod proposals;
mod schema;
mod session_summary;
mod spend;
mod spool;
mod stats;
mod store;
mod transcripts;

pub use capture::{
    ATTEMPTS_MAX, Announcement, Capture, Claim, Finish, Outcome, PullState, Stage, State, Tally,
};
pub use delivery::{Branch, ORIGIN_IMPORT, Pause, PullRequest};
pub use handover::{Handover, hand_over};
pub use locks::{FileLocks, LockGuard, is_held, lock_from_stdin};
pub use proposals::{EarlierProposal, EvidenceLine, ProposedUnit};
pub use session_summary::{RecentBranch, SessionSummary, read_session_summary};
pub use spend::{BUDGET_SPAN, Budget, CallCost, ModelCall, Reservation};
pub use spool::Spool;
pub use store::{Added, Queue, announce};
pub use transcripts::{
    KnownTranscripts, ORIGIN_SWEEP, SWEEP_CAP_SPAN, TranscriptStamp, TranscriptStatus, decline,
};

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to open the queue {path}")]
    Open {
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
    #[error("the queue {path} was written by a newer nugget (version {version})")]
    Newer { path: PathBuf, version: i64 },
    #[error("failed to use the queue")]
    Sqlite(#[from] rusqlite::Error),
    #[error("no connection to the queue is free")]
    Pool(#[from] r2d2::Error),
    #[error("the queue holds a value that cannot be read: {what}")]
    Value { what: String },
    #[error("failed to use {path}")]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The claim is no longer in force: an earlier life of an actor has come too late.
    #[error("capture {id} has been claimed again since")]
    Stale { id: i64 },
    #[error("there is no capture {id}")]
    Unknown { id: i64 },
}
