//! The only crate that knows git: the brain's repository, the branches on which nugget proposes
//! knowledge, the way to its remote, and the lock that makes it one writer.
//!
//! It never touches the work tree, the index, `HEAD` or a branch of the user's, with three exceptions:
//! the first commit of a brain that has none ([`Repository::commit_all_new`]), and two merges that lose
//! nothing: of a proposal when asked ([`Repository::fast_forward`]), and of what was merged at the remote
//! ([`Repository::catch_up`]). What it does to a remote is below `refs/heads/nugget/`, but for the first
//! push of a new brain's default branch ([`Repository::push_default`]), which forces nothing.

mod ancestry;
mod behind;
mod error;
mod first;
mod lock;
mod marked;
mod merge;
mod objects;
mod path;
mod pending;
mod place;
mod program;
mod propose;
mod references;
mod remote;
mod repository;
mod reviewers;
mod served;
#[cfg(test)]
mod tests;
mod transport;
mod trouble;

pub use behind::Lag;
pub use error::Error;
pub use lock::Lock;
pub use merge::{FastForward, Refusal};
pub use pending::PendingBranch;
pub use place::{Place, Remote, Scheme};
pub use propose::{BRANCH_PREFIX, Identity, NewFile, Outcome, Proposal, Proposed};
pub use repository::{BLOB_BYTES_MAX, Branch, CommitId, Init, Repository, Reviewed, Standing};
pub use reviewers::Reviewers;
pub use served::{Blob, Served};
pub use transport::{Credentials, Fetched, Pushed, Wire, clone};
pub use trouble::Trouble;
