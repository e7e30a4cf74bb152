//! The crate's error type and the hints for a person.

use std::path::PathBuf;
use std::time::Duration;

use crate::remote_failure::RemoteFailure;
use crate::types::{BLOB_BYTES_MAX, BRANCH_PREFIX, CommitId, InvalidCommitId};

/// Why an operation on the brain's repository failed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message of a variant says what its fields are")]
pub enum Error {
    /// No repository has its root at this path.
    #[error("{path} is not the root of a git repository")]
    NotARepository { path: PathBuf },
    /// The repository uses a format that gix cannot write.
    #[error("the repository at {path} uses {feature}, which nugget cannot write")]
    Unsupported { path: PathBuf, feature: String },
    /// The repository belongs to another user, and git refuses to work in it. The message is git's, in several lines, of
    /// which one is a command to copy.
    #[error("{message}")]
    NotTrusted { path: PathBuf, message: String },
    /// The default branch has no commit.
    #[error("branch {branch} has no commit yet")]
    Unborn { branch: String },
    /// None of the rules of [`crate::Repository::default_branch`] found a branch.
    #[error("it is unclear which branch of {path} is the brain's: none is named main or master")]
    NoDefaultBranch { path: PathBuf },
    /// The local branch does not exist.
    #[error("there is no branch {branch}")]
    NoSuchBranch { branch: String },
    /// The branch is not below [`crate::BRANCH_PREFIX`], so nugget does not write it.
    #[error("branch {branch} does not belong to nugget")]
    ForeignBranch { branch: String },
    /// Another branch has this name, or a part of it that must be a folder.
    #[error("branch {branch} already exists with other content")]
    BranchTaken { branch: String },
    /// A new file would replace or shadow another one.
    #[error("{path} already exists with other content")]
    PathTaken { path: String },
    /// An edit names a file that the base commit does not have.
    #[error("{path} does not exist, so it cannot be edited")]
    NothingToEdit { path: String },
    /// The path is unsafe on some system, or hidden where that is not allowed.
    #[error("{path:?} is not a path that may be written: {reason}")]
    InvalidPath { path: String, reason: String },
    /// git would change the file before it stores it, such as encrypt it.
    #[error("git has the filter {filter:?} for {path}, and nugget runs none: it would commit plain text")]
    Filtered { path: String, filter: String },
    /// git would refuse this message or author.
    #[error("the commit's {what} is not valid: {reason}")]
    InvalidCommit { what: &'static str, reason: String },
    /// The text is not a commit id.
    #[error(transparent)]
    InvalidCommitId(#[from] InvalidCommitId),
    /// A file exceeds [`crate::BLOB_BYTES_MAX`].
    #[error("{path} at {commit} has {bytes} bytes, more than the limit of {BLOB_BYTES_MAX}")]
    TooLarge { commit: CommitId, path: String, bytes: u64 },
    /// The remote's name or URL is not allowed.
    #[error("the remote cannot be added: {reason}")]
    InvalidRemote { reason: &'static str },
    /// The URL carries a password or token.
    #[error("the remote cannot be added: its URL contains a password or token")]
    SecretInUrl,
    /// A remote of this name has another URL.
    #[error("remote {name} already exists with the URL {url}")]
    RemoteTaken { name: String, url: String },
    /// git could not reach the remote, or the remote refused the request.
    #[error("{failure}: {message}")]
    Remote { failure: RemoteFailure, message: String },
    /// The git command could not be started or waited for.
    #[error("failed to run git")]
    NoGit {
        #[source]
        source: std::io::Error,
    },
    /// The branch has commits that nugget did not create.
    #[error("branch {branch} has moved: it has commits that nugget did not create")]
    BranchMoved { branch: String },
    /// A work tree has the branch checked out.
    #[error("branch {branch} is checked out")]
    CheckedOut { branch: String },
    /// git's lock on a reference exists and was not released in time.
    #[error("another git process is running: {path} exists")]
    ReferenceLocked { path: PathBuf },
    /// The target folder of a clone is not empty.
    #[error("{path} is not an empty folder")]
    FolderTaken { path: PathBuf },
    /// git's lock on the configuration exists and was not released in time.
    #[error("another process is writing git's configuration: {path} exists")]
    ConfigurationLocked { path: PathBuf },
    /// The lock file could not be created, opened or locked.
    #[error("failed to lock {path}")]
    Lock {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// Another process held the lock for too long.
    #[error("{path} was locked by another process for {waited:?}")]
    LockTimeout { path: PathBuf, waited: Duration },
    /// A file operation failed.
    #[error("failed to {action} {path}")]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// gix failed.
    #[error("failed to {action}")]
    Git {
        action: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// What a person can do about the error, if anything.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotARepository { .. } => Some("run `nugget init` in the brain's folder"),
            Self::Unsupported { .. } => {
                Some("use a repository with SHA-1 objects and the `files` ref format")
            }
            Self::NotTrusted { .. } => Some("run that command only if you trust the owner of the repository"),
            Self::Unborn { .. } => Some("make the first commit in the brain, then try again"),
            Self::NoDefaultBranch { .. } => Some("name it in brain.yaml: `default_branch: NAME`"),
            Self::BranchTaken { branch } if !branch.starts_with(BRANCH_PREFIX) => {
                Some("no branch can be made below it: rename it with `git branch -m`")
            }
            Self::BranchTaken { .. } => Some("rename or delete that branch, then try again"),
            Self::Filtered { .. } => Some(
                "take the attribute `filter` from that path in .gitattributes, or write the file with git itself",
            ),
            Self::InvalidRemote { .. } => {
                Some("give a URL such as https://github.com/me/brain.git or git@github.com:me/brain.git")
            }
            Self::SecretInUrl => {
                Some("remove it from the URL, where others can read it: git's credential helper stores it")
            }
            Self::RemoteTaken { .. } => Some("to change the URL, run `git remote set-url` in the brain"),
            Self::Remote { failure, .. } => failure.hint(),
            Self::NoGit { .. } => Some("install git 2.31 or later and check that it is on the PATH"),
            Self::CheckedOut { .. } => Some("switch to another branch in the brain"),
            Self::FolderTaken { .. } => Some("give an empty folder, or one that does not exist"),
            Self::ConfigurationLocked { .. } | Self::ReferenceLocked { .. } => {
                Some("try again; if no git process is running, remove that file: it was left by a killed one")
            }
            Self::Lock { source, .. } | Self::Io { source, .. }
                if source.kind() == std::io::ErrorKind::ReadOnlyFilesystem =>
            {
                Some("mount that disk so that it can be written, or move the brain to another one")
            }
            Self::LockTimeout { .. } => Some("another nugget process is writing to the brain; try again"),
            _ => None,
        }
    }

    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}

/// Adds the operation that failed to an error of gix.
pub(crate) trait During<T> {
    fn during(self, action: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T, E: Into<Box<dyn std::error::Error + Send + Sync>>> During<T> for Result<T, E> {
    fn during(self, action: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Git { action: action(), source: source.into() })
    }
}
