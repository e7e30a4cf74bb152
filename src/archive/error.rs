//! Why the archive could not do what was asked.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// Why the archive could not do what was asked. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be opened or set up.
    #[error("failed to open the session archive {path} ({reason})")]
    Open {
        /// The database file.
        path: PathBuf,
        /// What SQLite reported.
        reason: rusqlite::Error,
    },
    /// The tables belong to a later version of nugget.
    #[error("the session archive {path} was written by a newer nugget (version {version})")]
    Newer {
        /// The database file.
        path: PathBuf,
        /// The file's schema version.
        version: i64,
    },
    /// Another process kept writing for longer than the wait that was allowed.
    #[error("the session archive is in use by another process")]
    Busy,
    /// The disk is full. What was committed is kept.
    #[error("the disk is full: the session archive cannot be used")]
    DiskFull,
    /// The file is damaged or is no database.
    #[error("the session archive is damaged ({0})")]
    Damaged(rusqlite::Error),
    /// A statement failed.
    #[error("failed to use the session archive ({0})")]
    Sqlite(rusqlite::Error),
    /// All connections stayed in use until the wait timed out.
    #[error("no connection to the session archive is free")]
    Pool(#[from] r2d2::Error),
    /// A stored text cannot be read.
    #[error("the session archive holds a text that cannot be read (block {block})")]
    Text {
        /// Its block.
        block: i64,
    },
    /// A lock file or the folder cannot be used.
    #[error("failed to use {path}")]
    File {
        /// The file or its folder.
        path: PathBuf,
        /// What the operating system reported.
        #[source]
        source: std::io::Error,
    },
    /// No session's id begins like this.
    #[error("no archived session has an id that begins with {prefix:?}")]
    UnknownSession {
        /// What was asked for.
        prefix: String,
    },
    /// Several sessions' ids begin like this.
    #[error("{count} archived sessions have an id that begins with {prefix:?}")]
    AmbiguousSession {
        /// What was asked for.
        prefix: String,
        /// How many there are.
        count: u64,
    },
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy,
            Some(ErrorCode::DiskFull) => Self::DiskFull,
            // There is no space for the index of the write-ahead log, which readers need, too.
            Some(ErrorCode::SystemIoFailure) if error.sqlite_error().is_some_and(is_without_space) => {
                Self::DiskFull
            }
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged(error),
            _ => Self::Sqlite(error),
        }
    }
}

impl Error {
    pub(crate) fn from_queue(error: queue::Error) -> Self {
        match error {
            queue::Error::Newer { path, version } => Self::Newer { path, version },
            queue::Error::Open { path, source } => match Self::from(source) {
                Self::Sqlite(reason) => match cannot_open(&path) {
                    Some(source) => Self::File { path, source },
                    None => Self::Open { path, reason },
                },
                known => known,
            },
            queue::Error::File { path, source } => Self::File { path, source },
            queue::Error::Sqlite(source) => source.into(),
            other => Self::File { path: PathBuf::new(), source: std::io::Error::other(other) },
        }
    }
}

fn is_without_space(error: &rusqlite::ffi::Error) -> bool {
    error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE
}

/// What the operating system says to opening a file for writing, which SQLite does not tell.
fn cannot_open(path: &Path) -> Option<std::io::Error> {
    std::fs::File::options().read(true).write(true).open(path).err()
}
