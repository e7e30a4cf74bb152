//! Brings the local branches that wait for review to what the remote has of them.

use std::collections::{BTreeMap, BTreeSet};

use brain::UNITS_FOLDER;
use git::{CommitId, Lock, Repository};
use queue::{Decision, FileDecision, Ledger};

use crate::failure::Failure;

/// Brings each branch of this machine that waits for review to the commit that the remote has: one that is gone here, as
/// after the brain was cloned again, and one to which somebody has added there. A branch with commits of its own stays as
/// it is, and so does one of which somebody has changed a file there that is decided about here.
///
/// Returns how many were brought up to date.
pub(crate) fn follow_own(repository: &Repository, queue: &dyn Ledger, held: &Lock) -> Result<usize, Failure> {
    let decided = Decided::read(queue)?;
    let mut updated = 0;
    let names: BTreeSet<String> =
        queue.awaiting_decision()?.into_iter().filter_map(|capture| capture.branch).collect();
    for name in names {
        updated += usize::from(follow(repository, &decided, held, &name)?);
    }
    Ok(updated)
}

/// Returns whether the branch was moved or created.
pub(crate) fn follow(
    repository: &Repository,
    decided: &Decided,
    held: &Lock,
    name: &str,
) -> Result<bool, Failure> {
    let (local, remote) = (repository.tip(name)?, repository.remote_tip(name)?);
    let Some(remote) = remote.filter(|remote| local != Some(*remote)) else { return Ok(false) };
    if let Some(local) = local
        && decided.is_changed(repository, name, local, remote)?
    {
        return Ok(false);
    }
    Ok(repository.follow_remote_branch(held, name)?)
}

/// The paths of each branch about which a person has decided.
pub(crate) struct Decided(BTreeMap<String, BTreeSet<String>>);

impl Decided {
    pub(crate) fn read(queue: &dyn Ledger) -> Result<Self, Failure> {
        let mut paths: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for FileDecision { branch, path, decision } in queue.decisions()? {
            if !matches!(decision, Decision::Later { .. }) {
                paths.entry(branch).or_default().insert(path);
            }
        }
        Ok(Self(paths))
    }

    /// Whether anything is decided about a branch.
    pub(crate) fn has(&self, branch: &str) -> bool {
        self.0.contains_key(branch)
    }

    /// Whether a decided file differs between two commits of a branch; see [`changed`](Self::changed).
    pub(crate) fn is_changed(
        &self,
        repository: &Repository,
        branch: &str,
        one: CommitId,
        other: CommitId,
    ) -> Result<bool, Failure> {
        Ok(!self.changed(repository, branch, one, other)?.is_empty())
    }

    /// The decided files that differ between two commits of a branch, but for those that the second one has as the default
    /// branch has them: nothing of them is to be decided.
    pub(crate) fn changed(
        &self,
        repository: &Repository,
        branch: &str,
        one: CommitId,
        other: CommitId,
    ) -> Result<Vec<String>, Failure> {
        let Some(paths) = self.0.get(branch) else { return Ok(Vec::new()) };
        let mut between = repository.paths_between(one, other, UNITS_FOLDER)?;
        between.retain(|path| paths.contains(path));
        if between.is_empty() {
            return Ok(between);
        }
        let tip = repository.default_branch()?.tip;
        let mut changed = Vec::new();
        for path in between {
            if repository.read_at(other, &path)? != repository.read_at(tip, &path)? {
                changed.push(path);
            }
        }
        Ok(changed)
    }
}

/// Forgets what was decided about a branch that no capture of this machine has made, once it is gone here and at the
/// remote: an agent's branch has the same name again when it writes its next note.
pub(crate) fn forget_if_gone(
    repository: &Repository,
    queue: &dyn Ledger,
    branch: &str,
) -> Result<(), Failure> {
    let is_present = repository.tip(branch)?.is_some() || repository.remote_tip(branch)?.is_some();
    if is_present || queue.capture_of_branch(branch)?.is_some() {
        return Ok(());
    }
    let decisions = queue.decisions()?;
    let decided = decisions.iter().filter(|decided| decided.branch == branch);
    let paths: Vec<&str> = decided.map(|decided| decided.path.as_str()).collect();
    if !paths.is_empty() {
        queue.forget_decisions(branch, &paths)?;
    }
    Ok(())
}
