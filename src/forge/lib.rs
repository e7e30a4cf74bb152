//! The only crate that knows git: the brain's repository, the branches on which nugget proposes
//! knowledge, and the lock that makes it one writer.
//!
//! It never touches the work tree, the index, `HEAD` or a branch of the user's, with two exceptions
//! that are asked for: the first commit of a brain that has none ([`Repository::commit_all_new`]),
//! and a merge that loses nothing ([`Repository::fast_forward`]).

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
