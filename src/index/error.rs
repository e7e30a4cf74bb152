//! The errors of the index.

use std::io;
use std::path::{Path, PathBuf};

/// Why the index could not be opened, read or built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder of the index could not be used.
    #[error("failed to {action} {path}")]
    Io {
        /// What was attempted, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The database failed.
    #[error("the index at {path} failed")]
    Sqlite {
        /// The database.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
    /// All connections stayed in use for too long.
    #[error("no free connection to the index at {path}")]
    Pool {
        /// The index's folder.
        path: PathBuf,
        /// What the connection pool says.
        source: r2d2::Error,
    },
    /// Another database than SQLite failed.
    #[error("the shared index failed")]
    Shared(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The brain's files could not be listed.
    #[error("failed to list the brain's files")]
    Brain(#[source] brain::Error),
    /// A newer nugget has remade the index while this process ran. This one must not remake it: each would undo
    /// the other's work without end.
    #[error("the index at {path} was made by another version of nugget: restart this process")]
    OtherVersion {
        /// The index's folder.
        path: PathBuf,
    },
    /// The database has to be made, and another process holds the builder's lock.
    #[error("another process has been making the index at {path} for too long")]
    Locked {
        /// The index's folder.
        path: PathBuf,
    },
    /// [`Plan::publish`](crate::Plan::publish) got too few or too many vectors.
    #[error("got {given} vectors for {wanted} texts")]
    VectorCount {
        /// The number of texts.
        wanted: usize,
        /// The number of vectors.
        given: usize,
    },
    /// A vector has another length than the model's.
    #[error("a vector has {given} dimensions instead of {wanted}")]
    Dimensions {
        /// The model's dimensions.
        wanted: usize,
        /// The vector's dimensions.
        given: usize,
    },
    /// A vector has no direction.
    #[error("a vector is zero or not finite")]
    NotAVector,
    /// The vector graph could not be built or searched.
    #[error("the vector graph failed: {what}")]
    Graph {
        /// What usearch says.
        what: String,
    },
    /// The generation has no such chunk.
    #[error("there is no chunk {row}")]
    NoSuchChunk {
        /// The row that was asked for.
        row: i64,
    },
}

pub(crate) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { action, path, source }
}
