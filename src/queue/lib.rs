//! Durable queue of captures, and the record of how each one ended.
//!
//! Work exists only as rows of this database: a row is committed before anyone is told about it, and
//! it leaves its stage only in the transaction that stores the stage's result. This crate never does
//! the work itself and never starts a process.
//!
//! ```
//! use queue::{Announcement, Finish, Queue, Stage, State};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("queue.db");
//! let queue = Queue::open(&path)?;
//! let now = jiff::Timestamp::now();
//! let session = knowledge::SessionId::verbatim("fba6d344");
//! let id = queue.add(&Announcement::new(session, "/transcripts/fba6d344.jsonl", "hook"), now)?.id();
//!
//! let claim = queue.claim(Stage::Intake, now)?.ok_or("the capture is due")?;
//! queue.finish(&claim, &Finish::Nothing { reason: "empty session".into() }, now)?;
//! assert_eq!(queue.capture(id)?.map(|capture| capture.state), Some(State::Nothing));
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs, clippy::missing_errors_doc)]

mod capture;
mod claims;
mod decisions;
mod delivery;
mod guard_log;
mod handover;
mod ledger;
mod locks;
mod pauses;
mod proposals;
mod question;
mod rows;
mod schema;
mod session_summary;
mod shown;
mod spend;
mod spool;
mod stats;
mod store;
#[cfg(any(test, feature = "suite"))]
pub mod suite;
#[cfg(test)]
mod testing;
mod transcripts;
mod upload;

pub use capture::{
    ATTEMPTS_MAX, Announcement, Branch, Capture, Claim, Finish, ORIGIN_COMMAND, ORIGIN_EDIT, ORIGIN_HOOK,
    ORIGIN_IMPORT, ORIGIN_NOTES, ORIGIN_REFLECTION, ORIGIN_SWEEP, ORIGINS, PullRequest, PullState, Stage,
    State, Tally,
};
pub use claims::{RETRY_MAX, retry_wait};
pub use decisions::{Decision, FileDecision, Rejection, ended_branch};
pub use guard_log::{GuardLog, GuardTally};
pub use handover::{Handover, hand_over};
pub use ledger::Ledger;
pub use locks::{FileLocks, LockGuard, is_held, lock_from_stdin};
pub use pauses::{OTHERS_FIRST, PAUSE_FIRST, PAUSE_MAX, PAUSES_OF_ONE, Pause, REQUESTED_PAUSE_MAX};
pub use proposals::{EarlierProposal, EvidenceLine, ProposedUnit, read_vector, write_vector};
pub use question::{Question, QuestionCandidate};
pub use rows::{Added, announce};
pub use schema::{BusyTimeout, open_database, set_up as set_up_connection};
pub use session_summary::{RecentBranch, SessionSummary, read_session_summary};
pub use shown::{Showing, Shown, ShownBy, ShownKind, record_shown};
pub use spend::{BUDGET_SPAN, Budget, CallCost, ModelCall, Reservation};
pub use spool::Spool;
pub use store::Queue;
pub use transcripts::{KnownTranscripts, SWEEP_CAP_SPAN, TranscriptStamp, TranscriptStatus, decline};
pub use upload::UPLOADS_KEPT;

use std::path::PathBuf;

/// Why the queue could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be opened or set up.
    #[error("failed to open the queue {path}")]
    Open {
        /// The database file.
        path: PathBuf,
        /// What SQLite reported.
        #[source]
        source: rusqlite::Error,
    },
    /// The tables belong to a later version of nugget.
    #[error("the queue {path} was written by a newer nugget (version {version})")]
    Newer {
        /// The database file.
        path: PathBuf,
        /// The file's schema version.
        version: i64,
    },
    /// A statement failed.
    #[error("failed to use the queue")]
    Sqlite(#[from] rusqlite::Error),
    /// All connections stayed in use until the wait timed out.
    #[error("no connection to the queue is free")]
    Pool(#[from] r2d2::Error),
    /// Another database than SQLite failed.
    #[error("failed to use the shared queue")]
    Shared(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A stored value is not one that this version writes.
    #[error("the queue holds a value that cannot be read: {what}")]
    Value {
        /// The column's meaning and the value.
        what: String,
    },
    /// A lock file or a spool file cannot be used.
    #[error("failed to use {path}")]
    File {
        /// The file or its folder.
        path: PathBuf,
        /// What the operating system reported.
        #[source]
        source: std::io::Error,
    },
    /// The claim is no longer valid: a later claim of the same capture exists, or it has ended.
    #[error("capture {id} was claimed again by another worker")]
    Stale {
        /// The capture.
        id: i64,
    },
    /// No capture has this number.
    #[error("there is no capture {id}")]
    Unknown {
        /// The number that was asked for.
        id: i64,
    },
}

impl Error {
    /// Whether the database's file is damaged, so that no later attempt can succeed.
    pub fn is_damaged(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        matches!(self.sqlite_code(), Some(DatabaseCorrupt | NotADatabase))
    }

    /// Whether other processes or threads use the database, so that a later attempt may well succeed.
    pub fn is_busy(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked};
        matches!(self, Self::Pool(_)) || matches!(self.sqlite_code(), Some(DatabaseBusy | DatabaseLocked))
    }

    fn sqlite_code(&self) -> Option<rusqlite::ErrorCode> {
        match self {
            Self::Open { source, .. } | Self::Sqlite(source) => source.sqlite_error_code(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn files_that_cannot_be_opened_for_a_moment_are_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("queue.db");
        let open = || crate::schema::open(&path, crate::schema::BusyTimeout::Command);
        drop(open().unwrap());
        let log = folder.path().join("queue.db-wal");
        std::fs::create_dir(&log).unwrap();
        assert!(open().is_err());
        std::thread::scope(|scope| {
            let opening = scope.spawn(|| open().is_ok());
            std::fs::remove_dir(&log).unwrap();
            assert!(opening.join().unwrap());
        });
    }

    #[test]
    fn a_file_that_is_no_database_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("queue.db");
        std::fs::write(&path, "not a database ".repeat(1000)).unwrap();
        assert!(crate::Queue::open(&path).is_err_and(|error| error.is_damaged()));
        assert!(!crate::Error::Unknown { id: 1 }.is_damaged());
    }
}
