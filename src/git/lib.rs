//! The only crate that knows git: the brain's repository, the branches on which nugget proposes
//! knowledge, the way to its remote, and the lock that makes it one writer.
//!
//! It never touches the work tree, the index, `HEAD` or a branch of the user's, with three exceptions:
//! the first commit of a brain that has none ([`Repository::create_initial_commit`]), and two merges that lose
//! nothing: of a proposal when asked ([`Repository::fast_forward`]), and of what was merged at the remote
//! ([`Repository::catch_up`]). What it does to a remote is below `refs/heads/nugget/`, but for the first
//! push of a new brain's default branch ([`Repository::push_default`]), which forces nothing.

mod ancestry;
mod command;
mod error;
mod fast_forward;
mod fetch_push;
mod initial_commit;
mod lag;
mod lock;
mod objects;
mod overlay;
mod path;
mod propose;
mod ref_lock;
mod references;
mod remote_config;
mod remote_failure;
mod remote_url;
mod repository;
mod review_branches;
mod reviewers;
#[cfg(test)]
mod tests;

pub use error::Error;
pub use fast_forward::{FastForward, Refusal};
pub use fetch_push::{Credentials, Fetched, Pushed, RemoteSession, clone};
pub use lag::Lag;
pub use lock::Lock;
pub use overlay::{Blob, Overlay};
pub use propose::{BRANCH_PREFIX, Identity, NewFile, Outcome, Proposal, Proposed};
pub use remote_failure::RemoteFailure;
pub use remote_url::{Remote, RemoteUrl, Scheme};
pub use repository::{BLOB_BYTES_MAX, Branch, CommitId, ContentState, Init, Repository, ReviewSnapshot};
pub use review_branches::PendingBranch;
pub use reviewers::Reviewers;
