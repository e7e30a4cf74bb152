//! Creates proposals: branches with one commit that adds, edits and removes files.

use jiff::Timestamp;

use crate::error::{During as _, Error};
use crate::lock::Lock;
use crate::objects::{CommitInfo, NewCommit, message, sync};
use crate::path::HiddenNames;
use crate::ref_lock::{clear_stale_locks, sweep_one};
use crate::references::{Edited, is_in_use, reference_name, update};
use crate::repository::{Repository, tip};
use crate::types::{CommitId, Identity, NewFile};

/// The knowledge of one session, offered for review.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The short name, below [`BRANCH_PREFIX`](crate::BRANCH_PREFIX): `nugget/session-20261120-1412-9f8b`.
    pub branch: String,
    /// The commit to build on; `None` for the tip of the default branch.
    pub base: Option<CommitId>,
    /// The files that the commit adds and edits.
    pub files: Vec<NewFile>,
    /// The paths of the files that it removes.
    pub removes: Vec<String>,
    /// The commit message.
    pub message: String,
    /// The date of author and committer, to the second. It is the session's, so that a repeated attempt creates
    /// the same commit.
    pub time: Timestamp,
    /// Author and committer.
    pub author: Identity,
}

/// A proposal that is stored in the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposed {
    /// The proposal's commit; for [`Outcome::NothingNew`] the base.
    pub commit: CommitId,
    /// The short name of the branch.
    pub branch: String,
    /// What was done.
    pub outcome: Outcome,
}

/// What a call of [`Repository::propose`] or [`Repository::replace`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The branch and its commit were created.
    Created,
    /// [`Repository::replace`] moved the branch from an earlier commit of the proposal.
    Replaced,
    /// An earlier attempt created the branch; a reviewer may have added commits since.
    AlreadyThere,
    /// The base has all files already, as after a merge. No branch was created.
    NothingNew,
}

/// How many commits of a branch are searched for ours: a reviewer may have added some.
const SEARCH_COMMITS_MAX: usize = 100;

impl Repository {
    /// Creates the proposal's commit and its branch, unless an earlier attempt did.
    ///
    /// Objects and reference are synced to the disk when it returns. It can be killed at any point and repeated.
    /// Work tree, index, `HEAD`, reflogs and all other branches stay as they are.
    ///
    /// `held` proves that the repository's lock is held: only nugget writes below `refs/heads/nugget/`, one
    /// process at a time.
    ///
    /// # Errors
    /// [`Error::BranchTaken`], [`Error::PathTaken`], [`Error::NothingToEdit`], [`Error::InvalidPath`],
    /// [`Error::InvalidCommit`], [`Error::ForeignBranch`], those of
    /// [`default_branch`](Self::default_branch), and failures of the disk.
    pub fn propose(&self, held: &Lock, proposal: &Proposal) -> Result<Proposed, Error> {
        self.place(held, proposal, None)
    }

    /// Creates a proposal's commit again on another base, and moves its branch there from `expected`. If nothing
    /// is new on that base, the branch stays as it is.
    ///
    /// # Errors
    /// [`Error::BranchMoved`] when the branch is neither at `expected` nor at the new commit;
    /// [`Error::NoSuchBranch`]; [`Error::CheckedOut`] when a work tree has it; else as
    /// [`propose`](Self::propose).
    pub fn replace(&self, held: &Lock, proposal: &Proposal, expected: CommitId) -> Result<Proposed, Error> {
        self.place(held, proposal, Some(expected))
    }

    /// Creates the proposal's commit on top of another commit, without a branch. `None` if that commit has all of it
    /// already. The objects are synced to the disk when it returns.
    ///
    /// # Errors
    /// As [`propose`](Self::propose), apart from those of branches.
    pub fn commit_onto(&self, proposal: &Proposal, tip: CommitId) -> Result<Option<CommitId>, Error> {
        let git = self.git()?;
        let new = proposal.commit(&git, Some(tip))?;
        if new.files == 0 {
            return Ok(None);
        }
        new.write(&git)?;
        new.restore_after_gc(|| self.git())?;
        Ok(Some(CommitId(new.commit)))
    }

    /// Brings a local branch of nugget's to the commit that the remote has as last fetched or pushed. Returns whether it
    /// is there: not if the remote has no such branch, or if the local one is checked out or has commits of its own.
    ///
    /// # Errors
    /// [`Error::ForeignBranch`], and when references cannot be read or written.
    pub fn follow_remote_branch(&self, held: &Lock, branch: &str) -> Result<bool, Error> {
        let git = self.git()?;
        let reference = reference_name(branch)?;
        let Some(remote) = self.remote_tip(branch)? else { return Ok(false) };
        let local = tip(&git, &reference)?;
        match local {
            Some(local) if local == remote => return Ok(true),
            Some(local) if is_in_use(&git, branch) || !self.contains(remote, local)? => return Ok(false),
            _ => {}
        }
        let moved = update(&git, held, &reference, local.map(|local| local.0), remote.0, None)?;
        Ok(moved == Edited::Done)
    }

    /// Creates the proposal's commit, and its branch: a new one, or the one that is at `expected`.
    fn place(&self, held: &Lock, proposal: &Proposal, expected: Option<CommitId>) -> Result<Proposed, Error> {
        let git = self.git()?;
        let branch = &proposal.branch;
        let reference = reference_name(branch)?;
        clear_stale_locks(&git.common_dir().join("refs/heads/nugget"), held);
        sweep_one(&git.common_dir().join("packed-refs"), held)?;
        let done = |commit, outcome| Ok(Proposed { commit, branch: branch.clone(), outcome });
        let not_as_expected = || match expected {
            None => Error::BranchTaken { branch: branch.clone() },
            Some(_) => Error::BranchMoved { branch: branch.clone() },
        };
        // The attempt may have been killed before it had synced or verified its objects.
        let already_there = |commit, new: &NewCommit| {
            new.restore_after_gc(|| self.git())?;
            sync_reference(&git, &reference)?;
            done(commit, Outcome::AlreadyThere)
        };

        let found = tip(&git, &reference)?;
        if let (Some(tip), None) = (found, expected) {
            let (commit, new) = find_attempt(&git, proposal, tip)?.ok_or_else(not_as_expected)?;
            return already_there(commit, &new);
        }
        let base = match proposal.base {
            Some(base) => base,
            None => self.default_branch_of(&git)?.tip,
        };
        let new = proposal.commit(&git, Some(base))?;
        let commit = CommitId(new.commit);
        if new.files == 0 {
            return done(base, Outcome::NothingNew);
        }
        if expected.is_some() {
            match found {
                None => return Err(Error::NoSuchBranch { branch: branch.clone() }),
                Some(found) if found == commit => return already_there(commit, &new),
                found if found != expected => return Err(not_as_expected()),
                _ if is_in_use(&git, branch) => return Err(Error::CheckedOut { branch: branch.clone() }),
                _ => {}
            }
        }
        new.write(&git)?;
        failpoint::here!("git-after-objects");
        if let Some(branch) = branch_in_the_way(&git, &reference)? {
            return Err(Error::BranchTaken { branch });
        }
        failpoint::here!("git-before-ref");
        // Without a reflog: a leftover log of a deleted branch can prevent the creation of a new one.
        if update(&git, held, &reference, expected.map(|expected| expected.0), commit.0, None)?
            != Edited::Done
        {
            return Err(not_as_expected());
        }
        failpoint::here!("git-after-ref");
        new.restore_after_gc(|| self.git())?;
        done(commit, if expected.is_some() { Outcome::Replaced } else { Outcome::Created })
    }
}

impl Proposal {
    fn commit(&self, git: &gix::Repository, base: Option<CommitId>) -> Result<NewCommit, Error> {
        let info = CommitInfo { author: &self.author, time: self.time, message: &self.message, merges: None };
        NewCommit::new(git, base, &self.files, &self.removes, HiddenNames::Refused, &info)
    }
}

/// Syncs the reference and its folders, which may be new. If it has been packed since, git has synced
/// `packed-refs`.
fn sync_reference(git: &gix::Repository, reference: &str) -> Result<(), Error> {
    let heads = git.common_dir().join("refs/heads");
    let path = git.common_dir().join(reference);
    path.ancestors().take_while(|path| path.starts_with(&heads)).try_for_each(sync)
}

/// Finds the commit of an earlier attempt among a branch's latest commits: it has the same message, and its tree
/// is its parent's with the proposal's files added. So it is also found when the default branch has moved since,
/// or a reviewer has added commits to the branch.
fn find_attempt(
    git: &gix::Repository,
    proposal: &Proposal,
    tip: CommitId,
) -> Result<Option<(CommitId, NewCommit)>, Error> {
    let message = message(&proposal.message)?;
    let mut next = Some(tip);
    for _ in 0..SEARCH_COMMITS_MAX {
        let Some(id) = next else { break };
        let reading = || format!("read commit {id}");
        // The history of a shallow clone ends in commits that are missing.
        let Some(object) = git.try_find_object(id.0).during(reading)? else { break };
        let commit = object.try_into_commit().during(reading)?;
        let parent = commit.parent_ids().next().map(|parent| CommitId(parent.detach()));
        if commit.message_raw_sloppy() == message.as_str()
            && parent.is_none_or(|parent| git.has_object(parent.0))
        {
            let tree = commit.tree_id().during(reading)?.detach();
            match proposal.commit(git, parent) {
                Ok(new) if new.files > 0 && new.tree == tree => {
                    return Ok(Some((id, new)));
                }
                Ok(_) | Err(Error::PathTaken { .. } | Error::NothingToEdit { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        next = parent;
    }
    Ok(None)
}

/// An existing branch whose file is where ours needs a folder, such as one named `nugget`.
fn branch_in_the_way(git: &gix::Repository, reference: &str) -> Result<Option<String>, Error> {
    let branch = reference.trim_start_matches("refs/heads/");
    for (at, _) in branch.match_indices('/') {
        if tip(git, &format!("refs/heads/{}", &branch[..at]))?.is_some() {
            return Ok(Some(branch[..at].to_owned()));
        }
    }
    Ok(None)
}
