//! Takes over the branches of the person's other machines that wait for review, where no pull requests show them.

use git::{CommitId, Repository};
use jiff::Timestamp;
use knowledge::Document;
use queue::Ledger;

use crate::failure::Failure;
use crate::remote::RemoteAccess;
use crate::remote_branches::{Decided, follow, follow_own, forget_if_gone};
use crate::review::{Reviewing, decided_summary};
use crate::review_remote::{delete_local, finish_later, lock};
use crate::taken_over::{TakenOver, TakenOverBranch};

/// What was brought up to date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Followed {
    /// Branches of this machine that the remote has with more commits, or that were gone here.
    pub(crate) updated: usize,
    /// Branches of other machines that wait for review here now.
    pub(crate) taken_over: usize,
}

/// Follows the remote's branches: those of this machine, and those of the person's other machines. Without pull requests
/// the inbox is the only place where those are seen. Each has a local branch here until it is decided about, here or there.
pub(crate) async fn follow_all(
    repository: &Repository,
    queue: &dyn Ledger,
    access: &RemoteAccess,
    now: Timestamp,
) -> Result<Followed, Failure> {
    let mut followed =
        Followed { updated: follow_own(repository, queue, &lock(repository)?)?, ..Followed::default() };
    let before = TakenOver::read(queue)?;
    // What was taken over while there was no token is kept up all the same.
    if access.has_pull_requests() && before.0.is_empty() {
        return Ok(followed);
    }
    let mut after = TakenOver::default();
    for (name, at) in &before.0 {
        if queue.capture_of_branch(name)?.is_some() {
            continue;
        }
        let kept = keep_up(repository, queue, access, name, &at.commit).await.unwrap_or_else(|failure| {
            // The next sync tries again.
            tracing::warn!(branch = name, error = failure.message, "failed to follow a branch");
            None
        });
        if let Some(commit) = kept {
            after.0.insert(name.clone(), describe(repository, name, commit)?);
        } else if repository.tip(name)?.is_none() {
            forget_if_gone(repository, queue, name)?;
        } else {
            // As long as it is here, so that it is not taken for one that this machine has yet to deliver.
            after.0.insert(name.clone(), at.clone());
        }
    }
    let decided = Decided::read(queue)?;
    let there = if access.has_pull_requests() { Vec::new() } else { repository.remote_branches()? };
    let merged = repository.merged_among(there.iter().map(|(_, commit)| *commit), None)?;
    let mut new = Vec::new();
    for (name, commit) in there {
        // One that is here as it is there, and not in the queue, is no less another machine's: a person has checked it out,
        // or the queue was lost.
        let is_known = after.0.contains_key(&name)
            || repository.tip(&name)?.is_some_and(|local| local != commit)
            || decided.has(&name)
            || queue.capture_of_branch(&name)?.is_some();
        if !is_known && !merged.contains(&commit) {
            let branch = TakenOverBranch { commit: commit.to_string(), units: Vec::new() };
            after.0.insert(name.clone(), branch);
            new.push((name, commit));
        }
    }
    let write = |after: &TakenOver| match *after == before {
        true => Ok(()),
        false => after.write(queue, now),
    };
    // First, so that a branch that a killed process has made is known as another machine's.
    write(&after)?;
    for (name, commit) in new {
        if repository.follow_remote_branch(&lock(repository)?, &name)? {
            followed.taken_over += 1;
            let described = describe(repository, &name, commit)?;
            after.0.insert(name, described);
        } else {
            after.0.remove(&name);
        }
    }
    write(&after)?;
    Ok(followed)
}

fn describe(repository: &Repository, name: &str, commit: CommitId) -> Result<TakenOverBranch, Failure> {
    let unit_of = |(path, content): (String, Vec<u8>)| {
        let unit = Document::parse(&String::from_utf8(content).ok()?).ok()?.unit(&path).ok()?;
        Some((unit.id.to_string(), unit.title))
    };
    let units = repository.branch_files(name)?.into_iter().filter_map(unit_of).collect();
    Ok(TakenOverBranch { commit: commit.to_string(), units })
}

/// Brings a branch that was taken over to what has become of it. Returns its commit if it is as it is at the remote. Gone
/// there, it is deleted here, unless a person has added to it.
async fn keep_up(
    repository: &Repository,
    queue: &dyn Ledger,
    access: &RemoteAccess,
    name: &str,
    at: &str,
) -> Result<Option<CommitId>, Failure> {
    let Some(local) = repository.tip(name)? else { return Ok(None) };
    let is_unchanged = local.to_string() == at;
    match repository.remote_tip(name)? {
        None => {
            if is_unchanged {
                delete(repository, name, local)?;
            }
            return Ok(None);
        }
        Some(remote) if remote == local => {}
        Some(remote) => {
            if is_unchanged {
                // What was decided about a file was not about what it says there now.
                let changed = Decided::read(queue)?.changed(repository, name, local, remote)?;
                let changed: Vec<&str> = changed.iter().map(String::as_str).collect();
                queue.forget_decisions(name, &changed)?;
                // The other machine has made it again on what was merged meanwhile.
                if !repository.contains(remote, local)? {
                    delete(repository, name, local)?;
                }
            }
            follow(repository, &Decided::read(queue)?, &lock(repository)?, name)?;
        }
    }
    let summary = decided_summary(repository, queue, name, Timestamp::now());
    if let Reviewing::Decided { summary, commit } =
        summary.map_err(|error| Failure::retryable(error.to_string()))?
        && finish_later(repository, queue, access, None, name, commit, &summary).await?.is_some()
    {
        return Ok(None);
    }
    // With commits of a person's here it is not what was taken over any more.
    let remote = repository.remote_tip(name)?;
    Ok(repository.tip(name)?.filter(|local| Some(*local) == remote))
}

/// Deletes a local branch, unless it is checked out or has moved.
fn delete(repository: &Repository, name: &str, commit: CommitId) -> Result<(), Failure> {
    delete_local(repository, &lock(repository)?, name, commit)?;
    Ok(())
}
