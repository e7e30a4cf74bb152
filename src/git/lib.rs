//! The brain's git repository: the branches on which nugget proposes knowledge, the connection to the remote,
//! and the lock that allows one writer at a time. The only crate that uses git.
//!
//! It never changes the user's work tree, index, `HEAD` or branches, with four exceptions: the first commit of
//! a brain without commits ([`Repository::create_initial_commit`]), and three merges that lose nothing: of a
//! proposal when asked ([`Repository::fast_forward`], [`Repository::advance_default`]), and of what was merged at
//! the remote ([`Repository::catch_up`]). At the remote it changes only branches below `refs/heads/nugget/`, except
//! for pushes of the default branch that are never forced: the first one of a new brain
//! ([`Repository::push_default`]), and of what a person has merged ([`Repository::push_merged`]).
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = std::env::temp_dir().join(format!("nugget-git-doctest-{}", std::process::id()));
//! # let _ = std::fs::remove_dir_all(&folder);
//! use git::{Identity, Lock, NewFile, Proposal, Repository};
//!
//! let repository = Repository::init(&folder)?.into_repository();
//! let file = |path: &str| NewFile { path: path.to_owned(), content: b"text\n".to_vec(), edits: false };
//! let (author, time) = (Identity::default(), "2026-11-20T14:12:00Z".parse()?);
//! std::fs::write(folder.join("brain.yaml"), "text\n")?;
//! repository.create_initial_commit(&[file("brain.yaml")], "Begin", time, &author)?;
//!
//! let lock = Lock::acquire(&repository.lock_path()?)?;
//! let proposal = Proposal {
//!     branch: "nugget/session-1".to_owned(),
//!     base: None,
//!     files: vec![file("notes/a.md")],
//!     removes: vec![],
//!     message: "Add a note".to_owned(),
//!     time,
//!     author,
//! };
//! repository.propose(&lock, &proposal)?;
//! assert!(!repository.is_merged("nugget/session-1")?);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs, clippy::missing_errors_doc)]

mod blame;
mod clone;
mod command;
mod connection;
mod error;
mod fast_forward;
mod fetch_push;
mod filters;
mod initial_commit;
mod lag;
mod lock;
mod merge;
mod objects;
mod overlay;
mod ownership;
mod path;
mod propose;
mod ref_lock;
mod references;
mod remote_config;
mod remote_failure;
mod remote_url;
mod repository;
mod review_branches;
mod review_snapshot;
mod reviewers;
mod ssh;
#[cfg(test)]
mod tests;
mod types;
mod unfinished;
mod whereabouts;
mod work_tree;

pub use blame::{BlamedLine, blame};
pub use clone::clone;
pub use connection::{Credentials, RemoteSession};
pub use error::Error;
pub use fast_forward::{FastForward, Refusal};
pub use fetch_push::{Fetched, Pushed};
pub use gix::url::Scheme;
pub use lag::Lag;
pub use lock::Lock;
pub use merge::{BranchFile, CONFLICT_LINES, Changes, Merge, MergedText, PreparedMerge};
pub use overlay::{Blob, Overlay};
pub use propose::{Outcome, Proposal, Proposed};
pub use remote_config::check_url as check_remote_url;
pub use remote_failure::RemoteFailure;
pub use remote_url::{Remote, RemoteUrl, display_url};
pub use repository::{Branch, Init, Repository};
pub use review_branches::{BranchCommit, MergedFile, PendingBranch};
pub use review_snapshot::{ContentState, ReviewSnapshot};
pub use reviewers::Reviewers;
pub use ssh::ssh_host;
pub use types::{BLOB_BYTES_MAX, BRANCH_PREFIX, CommitId, Identity, InvalidCommitId, NewFile};
pub use unfinished::Unfinished;
