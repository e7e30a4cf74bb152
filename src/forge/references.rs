//! Writing references so that a killed process leaves nothing that would stop the user's git.

use crate::error::Error;
use crate::lock::Lock;
use crate::propose::{Proposal, Proposed};
use crate::repository::{CommitId, Repository, tip};

impl Repository {
    /// A branch of the remote, as last fetched or pushed. No network.
    ///
    /// # Errors
    /// When git's references cannot be read.
    pub fn remote_tip(&self, branch: &str) -> Result<Option<CommitId>, Error> {
        tip(&self.git()?, &format!("refs/remotes/origin/{branch}"))
    }

    /// Deletes a local branch of nugget's. `false` when it is gone already.
    ///
    /// # Errors
    /// [`Error::ForeignBranch`]; [`Error::BranchMoved`] when it is not at `expected`;
    /// [`Error::CheckedOut`] when a work tree has it; failures of the disk.
    pub fn delete_branch(&self, held: &Lock, branch: &str, expected: CommitId) -> Result<bool, Error> {
        let _ = (held, expected);
        Err(Error::ForeignBranch { branch: branch.to_owned() })
    }

    /// Makes a proposal's commit anew, on another base, and moves its branch from `expected` to it.
    ///
    /// # Errors
    /// [`Error::BranchMoved`] when the branch is not at `expected`, nor at the new commit already;
    /// else as [`propose`](Self::propose).
    pub fn replace(&self, held: &Lock, proposal: &Proposal, expected: CommitId) -> Result<Proposed, Error> {
        let _ = (held, expected);
        Err(Error::BranchMoved { branch: proposal.branch.clone() })
    }
}
