//! Combines what agents wrote here with what was added to their branch at the remote meanwhile: by a reviewer, or by
//! another machine of the same name.

use git::{Changes, CommitId, Identity, Lock, Merge, NewFile, Repository};
use jiff::Timestamp;
use queue::Ledger;

use crate::failure::{Failure, error_chain};
use crate::git::LOCK_PATIENCE;
use crate::remote_branches::Decided;
use crate::review::{Combined, combine};

/// Merges the remote's commit of a branch into the local branch, and returns the commit that has both. `None` if both have
/// changed the same lines, or if the branch here must stay as it is: a work tree has it, or a person has decided about
/// what was changed there.
pub(crate) fn combine_with_remote(
    repository: &Repository,
    queue: &dyn Ledger,
    branch: &str,
    theirs: CommitId,
) -> Result<Option<CommitId>, Failure> {
    let held = Lock::acquire_within(&repository.lock_path()?, LOCK_PATIENCE)?;
    let Some(ours) = repository.tip(branch)? else { return Ok(None) };
    // By an attempt that was killed.
    if repository.contains(ours, theirs)? {
        return Ok(Some(ours));
    }
    if repository.is_checked_out(branch)?
        || Decided::read(queue)?.is_changed(repository, branch, ours, theirs)?
    {
        return Ok(None);
    }
    // Onto the one that is further on the default branch, so that the merge has all that it counts as merged.
    let (base, other) = match repository.brings_others(ours, theirs)? {
        false => (theirs, ours),
        true if !repository.brings_others(theirs, ours)? => (ours, theirs),
        true => return Ok(None),
    };
    let changes = match repository.changes_since_fork(other, base) {
        Ok(changes) => changes,
        Err(git::Error::TooLarge { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let Some(Applied { files, removes }) = apply(repository, &held, base, changes)? else { return Ok(None) };
    let merge = Merge {
        base,
        branch: Some(other),
        files: &files,
        removes: &removes,
        message: "Take over what was added at the remote\n",
        time: Timestamp::now(),
        author: &Identity::default(),
    };
    match repository.prepare_merge(&held, &merge) {
        Ok(Some(prepared)) => {
            repository.move_branch(&held, branch, ours, &prepared)?;
            Ok(Some(prepared.commit()))
        }
        // A file that a person has added there, and that nugget does not write.
        Ok(None) | Err(git::Error::InvalidPath { .. } | git::Error::PathTaken { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What brings changes onto a commit.
#[derive(Default)]
struct Applied {
    files: Vec<NewFile>,
    /// The paths to remove.
    removes: Vec<String>,
}

/// `None` if the commit has changed the same.
fn apply(
    repository: &Repository,
    held: &Lock,
    base: CommitId,
    changes: Changes,
) -> Result<Option<Applied>, Failure> {
    let mut applied = Applied::default();
    for file in changes.files {
        let current = repository.read_at(base, &file.path)?;
        // Of two units with one name, neither is an edit of the other.
        if file.base.is_none() && current.as_ref().is_some_and(|current| *current != file.content) {
            return Ok(None);
        }
        let combined = combine(repository, Some(held), &file, current.as_deref());
        match combined.map_err(|error| Failure::retryable(error_chain(&error)))? {
            Combined::Result(content) => {
                applied.files.push(NewFile { path: file.path, content, edits: current.is_some() });
            }
            Combined::AlreadyThere => {}
            Combined::Conflict(_) => return Ok(None),
        }
    }
    for (path, before) in changes.removals {
        match repository.read_at(base, &path)? {
            Some(current) if current == before => applied.removes.push(path),
            Some(_) => return Ok(None),
            None => {}
        }
    }
    Ok(Some(applied))
}
