//! What can go wrong with the brain's repository.

use std::path::PathBuf;
use std::time::Duration;

use crate::remote_failure::RemoteFailure;
use crate::repository::CommitId;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path} is not the root of a git repository")]
    NotARepository { path: PathBuf },
    #[error("the repository at {path} uses {feature}, which nugget cannot write")]
    Unsupported { path: PathBuf, feature: String },
    #[error("branch {branch} has no commit yet")]
    Unborn { branch: String },
    #[error("found no default branch in {path}")]
    NoDefaultBranch { path: PathBuf },
    #[error("there is no branch {branch}")]
    NoSuchBranch { branch: String },
    #[error("branch {branch} is not one of nugget's")]
    ForeignBranch { branch: String },
    #[error("branch {branch} exists already, with other content")]
    BranchTaken { branch: String },
    #[error("{path} exists already, with other content")]
    PathTaken { path: String },
    #[error("there is no {path} to be edited")]
    NothingToEdit { path: String },
    #[error("{path:?} is not a path that may be written: {reason}")]
    InvalidPath { path: String, reason: String },
    #[error("the {what} of the commit is not valid: {reason}")]
    InvalidCommit { what: &'static str, reason: String },
    #[error("{path} at {commit} has {bytes} bytes, more than the limit of {}", crate::BLOB_BYTES_MAX)]
    TooLarge { commit: CommitId, path: String, bytes: u64 },
    #[error("the remote cannot be added: {reason}")]
    InvalidRemote { reason: &'static str },
    #[error("the remote cannot be added: its URL carries a password or token")]
    SecretInUrl,
    #[error("the remote {name} is there already, as {url}")]
    RemoteTaken { name: String, url: String },
    /// git could not reach the remote, or was refused there.
    #[error("{failure}: {message}")]
    Remote {
        failure: RemoteFailure,
        /// git's own words on one line, without secrets.
        message: String,
    },
    #[error("failed to run git")]
    NoGit {
        #[source]
        source: std::io::Error,
    },
    #[error("branch {branch} has moved on: it has commits that nugget did not make")]
    BranchMoved { branch: String },
    #[error("branch {branch} is checked out")]
    CheckedOut { branch: String },
    #[error("another git is at work: {path} exists")]
    ReferenceLocked { path: PathBuf },
    #[error("there is something in {path} already")]
    FolderTaken { path: PathBuf },
    #[error("git's configuration is being written: {path} exists")]
    ConfigurationLocked { path: PathBuf },
    #[error("failed to lock {path}")]
    Lock {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path} was locked by another process for {waited:?}")]
    LockTimeout { path: PathBuf, waited: Duration },
    #[error("failed to {action} {path}")]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("failed to {action}")]
    Git {
        action: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// What a person can do about it, where there is something.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotARepository { .. } => Some("run `nugget init` in the brain's folder"),
            Self::Unsupported { .. } => {
                Some("use a repository with SHA-1 objects and the `files` ref format")
            }
            Self::Unborn { .. } => Some("make the first commit in the brain, then try again"),
            Self::NoDefaultBranch { .. } => Some("name the brain's main branch in brain.yaml"),
            Self::BranchTaken { .. } => Some("rename or delete that branch, then try again"),
            Self::InvalidRemote { .. } => {
                Some("give a URL such as https://github.com/me/brain.git or git@github.com:me/brain.git")
            }
            Self::SecretInUrl => {
                Some("leave it out of the URL, where others can read it: git's credential helper keeps it")
            }
            Self::RemoteTaken { .. } => Some("change it with `git remote set-url`, if that is what you want"),
            Self::Remote { failure, .. } => failure.hint(),
            Self::NoGit { .. } => Some("install git (2.31 or later) and see that it is on the PATH"),
            Self::CheckedOut { .. } => Some("switch to another branch in the brain"),
            Self::FolderTaken { .. } => Some("give an empty folder, or one that does not exist"),
            Self::ConfigurationLocked { .. } | Self::ReferenceLocked { .. } => {
                Some("try again; if no git is running, one was killed: remove that file")
            }
            Self::LockTimeout { .. } => Some("another nugget is writing to the brain; try again"),
            _ => None,
        }
    }

    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}

/// Names what was tried when gix fails; its own messages say why.
pub(crate) trait During<T> {
    fn during(self, action: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T, E: Into<Box<dyn std::error::Error + Send + Sync>>> During<T> for Result<T, E> {
    fn during(self, action: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Git { action: action(), source: source.into() })
    }
}
