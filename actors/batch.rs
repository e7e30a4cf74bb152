//! Rolling pull requests: the commits of all captures of an hour, a day or a week on one branch, for those who review
//! what many sessions teach.
//!
//! The remote's branch is what counts. A capture's commit is made on top of it and pushed only if the branch is still
//! there, so that several machines can add to one branch, and an attempt that was killed is found again.

use git::{CommitId, Lock, Proposal, RemoteFailure, Repository};

use crate::failure::Failure;
use crate::git::LOCK_PATIENCE;
use crate::proposal::{Plan, parse_commit};
use crate::remote::RemoteAccess;

/// How often a commit is made again because another machine has added to the branch meanwhile.
const PUSHES_MAX: usize = 10;

/// What became of a capture that was to join a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// The remote's branch has it, as far as this commit.
    At(CommitId),
    /// The default branch has all of it already.
    Merged,
    /// What it edits was edited on the branch or on the default branch: it needs a branch of its own.
    Alone,
    /// The branch is merged.
    BranchIsMerged,
    /// An earlier attempt has pushed it, and a person has taken it off the branch since, or deleted the branch.
    TakenOff,
}

/// Adds the commit of a plan to the remote's branch `name`, which is begun if there is none. Changes nothing if an
/// earlier attempt has added it; what is recorded as `pushed` is not pushed again. Blocks while the network is used.
pub(crate) fn join(
    repository: &Repository,
    access: &RemoteAccess,
    plan: &Plan,
    name: &str,
    pushed: Option<CommitId>,
) -> Result<Joined, Failure> {
    let proposal = Proposal { branch: name.to_owned(), ..plan.proposal()? };
    for _ in 0..PUSHES_MAX {
        repository.fetch(&access.session())?;
        let Some(default) = repository.default_branch()?.remote else {
            let failure = RemoteFailure::Empty;
            return Err(git::Error::Remote { failure, message: failure.to_string() }.into());
        };
        let tip = repository.remote_tip(name)?;
        if let Some(pushed) = pushed {
            if repository.contains(default, pushed)? {
                return Ok(Joined::Merged);
            }
            if let Some(tip) = tip
                && repository.contains(tip, pushed)?
            {
                return Ok(Joined::At(pushed));
            }
        } else if let Some(tip) = tip
            && repository.contains(default, tip)?
        {
            return Ok(Joined::BranchIsMerged);
        }
        let base = tip.unwrap_or(default);
        if pushed.is_none() && !fits(repository, plan, base)? {
            return Ok(Joined::Alone);
        }
        let commit = match repository.commit_onto(&proposal, base) {
            Ok(None) => return Ok(tip.map_or(Joined::Merged, Joined::At)),
            Ok(Some(_)) | Err(git::Error::PathTaken { .. } | git::Error::NothingToEdit { .. })
                if pushed.is_some() =>
            {
                return Ok(Joined::TakenOff);
            }
            Ok(Some(commit)) => commit,
            Err(git::Error::PathTaken { .. } | git::Error::NothingToEdit { .. }) => return Ok(Joined::Alone),
            Err(error) => return Err(error.into()),
        };
        failpoint::here!("batch-before-push");
        match repository.push_branch(&access.session(), name, commit, tip) {
            Ok(_) => return Ok(Joined::At(commit)),
            Err(git::Error::Remote { failure: RemoteFailure::Stale, .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Failure::retryable(format!("the remote's branch {name} changes too fast")))
}

/// Whether the files that a plan edits are as it knows them, and those that it adds are new.
fn fits(repository: &Repository, plan: &Plan, base: CommitId) -> Result<bool, Failure> {
    let planned_on = parse_commit(&plan.base)?;
    for file in &plan.files {
        let content = repository.read_at(base, &file.path)?;
        let known = if file.edits { repository.read_at(planned_on, &file.path)? } else { None };
        if content != known && content.as_deref() != Some(file.content.as_bytes()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Shows a branch of several captures in the inbox of this machine, in place of the branch of one of them.
pub(crate) fn replace_branch(repository: &Repository, plan: &Plan, name: &str) -> Result<(), Failure> {
    let own = repository.commit_onto(&plan.proposal()?, parse_commit(&plan.base)?)?;
    let lock = Lock::acquire_within(&repository.lock_path()?, LOCK_PATIENCE)?;
    if !repository.follow_remote_branch(&lock, name)? {
        // The inbox shows what waits on the capture's own branch, until a person has the other one.
        return Ok(());
    }
    failpoint::here!("batch-before-delete");
    if let Some(own) = own.filter(|_| plan.branch != name) {
        match repository.delete_branch(&lock, &plan.branch, own) {
            // Theirs now.
            Err(git::Error::CheckedOut { .. } | git::Error::BranchMoved { .. }) => {}
            deleted => drop(deleted?),
        }
    }
    Ok(())
}
