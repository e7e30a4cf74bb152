//! Compares the checkout with the fetched default branch, and catches up with it.

use crate::error::{During as _, Error};
use crate::fast_forward::{FastForward, Refusal, Source};
use crate::lock::Lock;
use crate::repository::{Branch, Repository, remote_name, tip};
use crate::types::CommitId;

/// The difference between the checkout and the remote's default branch, as last fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lag {
    /// The short name of the default branch.
    pub branch: String,
    /// How many fetched commits the local default branch (`HEAD` if there is none) does not have, at most
    /// [`COMMITS_MAX`](Self::COMMITS_MAX).
    pub behind: usize,
    /// How many commits the local default branch has that were not fetched, with the same limit.
    pub ahead: usize,
    /// The commit of the local default branch.
    pub local: Option<CommitId>,
    /// The commit of the remote's default branch; `None` if nothing was fetched yet.
    pub remote: Option<CommitId>,
    /// If the checkout is behind, why [`Repository::catch_up`] would refuse to move it.
    pub blocked: Option<Refusal>,
}

impl Lag {
    /// The limit of the counts.
    pub const COMMITS_MAX: usize = 10_000;
}

impl Repository {
    /// Compares the checkout with the fetched default branch. Only reads; does not use the network.
    ///
    /// # Errors
    /// Those of [`default_branch`](Self::default_branch), and when history cannot be read.
    pub fn lag(&self) -> Result<Lag, Error> {
        let git = self.git()?;
        let default = self.default_branch_of(&git)?;
        let (local, remote) = (default.local, default.remote);
        let here = match local {
            Some(local) => Some(local),
            None => tip(&git, "HEAD")?,
        };
        let (behind, ahead) = match (here, remote) {
            (Some(here), Some(remote)) if here != remote => {
                (commits_beyond(&git, here, remote)?, commits_beyond(&git, remote, here)?)
            }
            _ => (0, 0),
        };
        let branch = default.name.clone();
        let blocked = match remote.filter(|_| behind > 0) {
            Some(to) => {
                let source = self.source(&git, &default, to);
                self.refusal(git, default, &source)?
            }
            None => None,
        };
        Ok(Lag { branch, behind, ahead, local, remote, blocked })
    }

    /// Moves the checked-out default branch forward to the fetched commit, if that loses no change of the user's;
    /// see [`fast_forward`](Self::fast_forward). Unlike a proposal, the remote's branch may remove files.
    ///
    /// # Errors
    /// As [`fast_forward`](Self::fast_forward).
    pub fn catch_up(&self, held: &Lock) -> Result<FastForward, Error> {
        let git = self.git()?;
        let default = self.default_branch_of(&git)?;
        let Some(to) = default.remote else { return Ok(FastForward::AlreadyThere) };
        let source = self.source(&git, &default, to);
        self.merge(held, git, default, &source)
    }

    fn source(&self, git: &gix::Repository, default: &Branch, to: CommitId) -> Source {
        Source {
            name: format!("{}/{}", remote_name(git), default.name),
            to,
            is_reviewed: true,
            may_remove: true,
            allows_other_edits: false,
        }
    }
}

/// How many commits `to` has that `from` does not have.
fn commits_beyond(git: &gix::Repository, from: CommitId, to: CommitId) -> Result<usize, Error> {
    let counting = || format!("compare {from} with {to}");
    let walk = git.rev_walk([to.0]).with_hidden([from.0]).all().during(counting)?;
    let mut count = 0;
    for commit in walk.take(Lag::COMMITS_MAX) {
        commit.during(counting)?;
        count += 1;
    }
    Ok(count)
}
