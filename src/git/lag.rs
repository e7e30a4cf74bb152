//! Compares the checkout with the fetched default branch, and catches up with it.

use crate::error::{During as _, Error};
use crate::fast_forward::{FastForward, Refusal, Source};
use crate::lock::Lock;
use crate::repository::{Branch, Repository, tip, upstream};
use crate::types::CommitId;

/// The file in the git folder with the last commit that the remote's default branch had and has no longer.
const REMOVED_FILE: &str = "nugget-removed";

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
    /// If the checkout is behind, or the branches are not as git's commands expect them, why [`Repository::catch_up`]
    /// would refuse to move it.
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
        let rewritten = self.rewritten(&git, &default)?;
        let blocked = match remote.filter(|_| rewritten.is_none() && (behind > 0 || local.is_none())) {
            Some(to) => {
                let source = source(&git, &default, to);
                self.refusal(git, default, &source)?
            }
            None => rewritten,
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
        if let Some(refusal) = self.rewritten(&git, &default)? {
            return Ok(FastForward::Refused(refusal));
        }
        let source = source(&git, &default, to);
        self.merge(held, git, default, &source)
    }

    /// A [`Refusal::RemoteRewritten`] if a fetch has found that the remote's default branch no longer has commits that it
    /// had, and the local one still has them: to push or to pull would bring back what somebody has removed.
    ///
    /// # Errors
    /// As [`lag`](Self::lag).
    pub fn rewritten_at_remote(&self) -> Result<Option<Refusal>, Error> {
        let git = self.git()?;
        self.rewritten(&git, &self.default_branch_of(&git)?)
    }

    fn rewritten(&self, git: &gix::Repository, default: &Branch) -> Result<Option<Refusal>, Error> {
        let Ok(found) = std::fs::read_to_string(git.common_dir().join(REMOVED_FILE)) else { return Ok(None) };
        let (Ok(removed), Some(local), Some(remote)) =
            (found.trim().parse::<CommitId>(), default.local, default.remote)
        else {
            return Ok(None);
        };
        let is_removed = self.contains(local, removed)? && !self.contains(remote, removed)?;
        Ok(is_removed.then(|| Refusal::RemoteRewritten { upstream: upstream(git, default), removed }))
    }

    /// Records that the remote's default branch no longer has a commit that it had, if the local one has it.
    pub(crate) fn record_removed(
        &self,
        git: &gix::Repository,
        name: &str,
        old: CommitId,
        new: CommitId,
    ) -> Result<(), Error> {
        let Some(local) = tip(git, &format!("refs/heads/{name}"))? else { return Ok(()) };
        if !git.has_object(new.0) || self.contains(new, old)? || !self.contains(local, old)? {
            return Ok(());
        }
        tracing::warn!(%old, %new, "the remote's default branch was rewritten");
        let path = git.common_dir().join(REMOVED_FILE);
        std::fs::write(&path, old.to_string()).map_err(Error::io("write", path))
    }
}

fn source(git: &gix::Repository, default: &Branch, to: CommitId) -> Source {
    Source {
        name: upstream(git, default),
        to,
        is_reviewed: true,
        may_remove: true,
        allows_other_edits: false,
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
