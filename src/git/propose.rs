//! A proposal: one branch of nugget's with one commit that adds files and edits some.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gix::refs::store::WriteReflog;
use jiff::Timestamp;

use crate::error::{During as _, Error};
use crate::lock::Lock;
use crate::objects::{Draft, Stamp, message, sync};
use crate::path::Hidden;
use crate::ref_lock::sweep_one;
use crate::references::is_in_use;
use crate::repository::{CommitId, Repository, tip};

/// What the short name of every branch of nugget's begins with.
pub const BRANCH_PREFIX: &str = "nugget/";

/// The knowledge of one session, as it is offered for review.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// Short, below [`BRANCH_PREFIX`]: `nugget/session-20261120-1412-9f8b`.
    pub branch: String,
    /// The commit to build on; `None` for the tip of the default branch.
    pub base: Option<CommitId>,
    pub files: Vec<NewFile>,
    pub message: String,
    /// The date of author and committer: the session's, so that a repeated attempt makes the very
    /// same commit. To the second.
    pub time: Timestamp,
    pub author: Identity,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFile {
    /// Relative to the root, with `/` between its parts.
    pub path: String,
    pub content: Vec<u8>,
    /// Whether it takes the place of a file that the base has, from which its content was made. Else the
    /// base may not have the path.
    pub edits: bool,
}

/// Who a commit is by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub name: String,
    pub email: String,
}

impl Default for Identity {
    /// Fixed, so that a commit does not depend on whose configuration is around.
    fn default() -> Self {
        Self { name: "nugget".to_owned(), email: "nugget@localhost".to_owned() }
    }
}

/// A proposal that is in the repository for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposed {
    /// The proposal's commit; for [`Outcome::NothingNew`] the base.
    pub commit: CommitId,
    pub branch: String,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Created,
    /// By [`Repository::replace`]: the branch had an earlier commit of the proposal.
    Replaced,
    /// An earlier attempt made it; a reviewer may have added commits since.
    AlreadyThere,
    /// The base has every file already, as after a merge; there is no branch and none was made.
    NothingNew,
}

/// How far the clock of a file system may be ahead of ours.
const CLOCKS_APART_MAX: Duration = Duration::from_secs(2);

/// How many commits of a branch are searched for ours: a reviewer may have added some.
const SEARCH_COMMITS_MAX: usize = 100;

impl Repository {
    /// Adds the proposal's commit and its branch, or finds that an earlier attempt did.
    ///
    /// Objects and reference are on the disk when it returns. It can be killed anywhere and repeated:
    /// what exists is matched, what is missing is made. Work tree, index, `HEAD`, reflogs and every
    /// other branch stay as they are, in whatever state the user has them.
    ///
    /// `held` proves that the repository's lock is held: nugget alone writes below
    /// `refs/heads/nugget/`, and one process at a time.
    ///
    /// # Errors
    /// [`Error::BranchTaken`], [`Error::PathTaken`], [`Error::NothingToEdit`], [`Error::InvalidPath`],
    /// [`Error::InvalidCommit`], [`Error::ForeignBranch`], those of
    /// [`default_branch`](Self::default_branch), and failures of the disk.
    pub fn propose(&self, held: &Lock, proposal: &Proposal) -> Result<Proposed, Error> {
        let git = self.git()?;
        let reference = reference_name(&proposal.branch)?;
        clear_stale_locks(&git.common_dir().join("refs/heads/nugget"), held);
        sweep_one(&git.common_dir().join("packed-refs"), held)?;
        let done = |commit, outcome| Proposed { commit, branch: proposal.branch.clone(), outcome };

        if let Some(tip) = tip(&git, &reference)? {
            let Some((commit, draft)) = find_attempt(&git, proposal, tip)? else {
                return Err(Error::BranchTaken { branch: proposal.branch.clone() });
            };
            // The attempt may have been killed before it had synced or verified what it wrote.
            draft.outlast_collector(|| self.git())?;
            sync_reference(&git, &reference)?;
            return Ok(done(commit, Outcome::AlreadyThere));
        }

        let base = match proposal.base {
            Some(base) => base,
            None => self.default_branch_of(&git)?.tip,
        };
        let draft = proposal.draft(&git, Some(base))?;
        if draft.files == 0 {
            return Ok(done(base, Outcome::NothingNew));
        }
        draft.write(&git)?;
        failpoint::here!("git-after-objects");
        self.create_branch(&proposal.branch, &reference, draft.commit)?;
        draft.outlast_collector(|| self.git())?;
        Ok(done(CommitId(draft.commit), Outcome::Created))
    }

    /// Makes a proposal's commit anew, on another base, and moves its branch from `expected` to it. With
    /// nothing new on that base the branch is left as it is.
    ///
    /// # Errors
    /// [`Error::BranchMoved`] when the branch is not at `expected`, nor at the new commit already;
    /// [`Error::NoSuchBranch`]; [`Error::CheckedOut`] when a work tree has it; else as
    /// [`propose`](Self::propose).
    pub fn replace(&self, held: &Lock, proposal: &Proposal, expected: CommitId) -> Result<Proposed, Error> {
        let git = self.git()?;
        let branch = &proposal.branch;
        let reference = reference_name(branch)?;
        clear_stale_locks(&git.common_dir().join("refs/heads/nugget"), held);
        let base = match proposal.base {
            Some(base) => base,
            None => self.default_branch_of(&git)?.tip,
        };
        let draft = proposal.draft(&git, Some(base))?;
        let done = |commit, outcome| Ok(Proposed { commit, branch: branch.clone(), outcome });
        if draft.files == 0 {
            return done(base, Outcome::NothingNew);
        }
        let commit = CommitId(draft.commit);
        let found = tip(&git, &reference)?.ok_or_else(|| Error::NoSuchBranch { branch: branch.clone() })?;
        let is_there = found == commit;
        if !is_there && found != expected {
            return Err(Error::BranchMoved { branch: branch.clone() });
        }
        if !is_there && is_in_use(&git, branch) {
            return Err(Error::CheckedOut { branch: branch.clone() });
        }
        if !is_there {
            draft.write(&git)?;
            failpoint::here!("git-after-objects");
            if !publish(&git, &reference, Some(expected.0), commit.0)
                .during(|| format!("move {reference} to {commit}"))?
            {
                return Err(Error::BranchMoved { branch: branch.clone() });
            }
        }
        // An earlier attempt may have been killed before it had synced or verified what it wrote.
        sync_reference(&git, &reference)?;
        draft.outlast_collector(|| self.git())?;
        done(commit, if is_there { Outcome::AlreadyThere } else { Outcome::Replaced })
    }

    /// Creates a reference that is not there, through git's own lock file. Without a reflog: it would
    /// tell nothing, and a leftover log of a deleted branch can stand in a new one's way.
    fn create_branch(&self, branch: &str, reference: &str, commit: gix::ObjectId) -> Result<(), Error> {
        let creating = || format!("create {reference}");
        let mut attempts = 0;
        loop {
            let mut git = self.git()?;
            git.refs.write_reflog = WriteReflog::Disable;
            if let Some(above) = branch_in_the_way(&git, reference)? {
                return Err(Error::BranchTaken { branch: above });
            }
            match publish(&git, reference, None, commit) {
                Ok(true) => return sync_reference(&git, reference),
                Ok(false) => return Err(Error::BranchTaken { branch: branch.to_owned() }),
                Err(_) if tip(&git, reference)?.is_some() => {
                    return Err(Error::BranchTaken { branch: branch.to_owned() });
                }
                // `git pack-refs` removes folders that it emptied, also between our making one and
                // our using it.
                Err(error) if attempts == 5 => return Err(error).during(creating),
                Err(_) => attempts += 1,
            }
        }
    }
}

impl Proposal {
    fn draft(&self, git: &gix::Repository, base: Option<CommitId>) -> Result<Draft, Error> {
        let stamp = Stamp { by: &self.author, at: self.time, message: &self.message };
        Draft::new(git, base, &self.files, Hidden::Refused, &stamp)
    }
}

/// Writes the reference's file through its lock file, as git does. A transaction of gix's would lock
/// `packed-refs` as well, for a look at it; killed in that moment it leaves a lock behind that is not ours to
/// remove, and that stops the user's git.
///
/// `false`, and nothing is written, when the reference is not at `expected` (`None`: not there).
fn publish(
    git: &gix::Repository,
    reference: &str,
    expected: Option<gix::ObjectId>,
    commit: gix::ObjectId,
) -> Result<bool, gix::Error> {
    use gix::lock::acquire::Fail;
    let path = git.common_dir().join(reference);
    let boundary = Some(git.common_dir().join("refs"));
    let wait = Fail::AfterDurationWithBackoff(Duration::from_secs(2));
    let mut lock = gix::lock::File::acquire_to_update_resource(&path, wait, boundary, 0)
        .map_err(gix::Error::from_error)?;
    let found = git.try_find_reference(reference)?;
    if found.is_some() != expected.is_some()
        || found.and_then(|found| found.try_id().map(gix::Id::detach)) != expected
    {
        return Ok(false);
    }
    writeln!(lock, "{commit}").map_err(gix::Error::from_error)?;
    // Synced before it gets its name: a reference that a power cut left empty would stop git itself.
    sync(&git.common_dir().join(format!("{reference}.lock"))).map_err(gix::Error::from_error)?;
    failpoint::here!("git-before-ref");
    lock.commit().map_err(|error| gix::Error::from_error(error.error))?;
    failpoint::here!("git-after-ref");
    Ok(true)
}

/// Syncs the reference and its folders, which may be new. Where it has been packed meanwhile git has
/// synced `packed-refs`.
fn sync_reference(git: &gix::Repository, reference: &str) -> Result<(), Error> {
    let heads = git.common_dir().join("refs/heads");
    let path = git.common_dir().join(reference);
    path.ancestors().take_while(|path| path.starts_with(&heads)).try_for_each(sync)
}

/// The commit of an earlier attempt among the first commits below a branch's tip: one with the same
/// message whose tree is its parent's with the proposal's files laid upon it. So it is found also when
/// the default branch has moved on since, or a reviewer has added to the branch.
fn find_attempt(
    git: &gix::Repository,
    proposal: &Proposal,
    tip: CommitId,
) -> Result<Option<(CommitId, Draft)>, Error> {
    let message = message(&proposal.message)?;
    let mut next = Some(tip);
    for _ in 0..SEARCH_COMMITS_MAX {
        let Some(id) = next else { break };
        let reading = || format!("read commit {id}");
        // In a shallow clone the history ends in commits that are not there.
        let Some(object) = git.try_find_object(id.0).during(reading)? else { break };
        let commit = object.try_into_commit().during(reading)?;
        let parent = commit.parent_ids().next().map(|parent| CommitId(parent.detach()));
        if commit.message_raw_sloppy() == message.as_str()
            && parent.is_none_or(|parent| git.has_object(parent.0))
        {
            let tree = commit.tree_id().during(reading)?.detach();
            match proposal.draft(git, parent) {
                Ok(draft) if draft.files > 0 && draft.tree == tree => {
                    return Ok(Some((id, draft)));
                }
                Ok(_) | Err(Error::PathTaken { .. } | Error::NothingToEdit { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        next = parent;
    }
    Ok(None)
}

/// The full name of a branch that may be written.
pub(crate) fn reference_name(branch: &str) -> Result<String, Error> {
    let name = format!("refs/heads/{branch}");
    let is_ours = branch.strip_prefix(BRANCH_PREFIX).is_some_and(|rest| !rest.is_empty());
    if !is_ours || gix::validate::reference::branch_name(name.as_str().into()).is_err() {
        return Err(Error::ForeignBranch { branch: branch.to_owned() });
    }
    Ok(name)
}

/// A branch whose file is where ours needs a folder, such as one that is called `nugget`.
fn branch_in_the_way(git: &gix::Repository, reference: &str) -> Result<Option<String>, Error> {
    let branch = reference.trim_start_matches("refs/heads/");
    for (at, _) in branch.match_indices('/') {
        if tip(git, &format!("refs/heads/{}", &branch[..at]))?.is_some() {
            return Ok(Some(branch[..at].to_owned()));
        }
    }
    Ok(None)
}

/// Removes git's lock files for our own branches that are older than our hold on the repository:
/// whoever made them was killed, as only a holder writes here. So was the maker of one that is stamped
/// with a time to come: the clock has been set back since. All others are left alone.
pub(crate) fn clear_stale_locks(folder: &Path, held: &Lock) {
    let mut folders: Vec<PathBuf> = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            let path = entry.path();
            if metadata.is_dir() {
                folders.push(path);
                continue;
            }
            let is_lock = path.extension().is_some_and(|extension| extension == "lock");
            let to_come = SystemTime::now() + CLOCKS_APART_MAX;
            let is_stale = |modified| modified < held.since() || modified > to_come;
            if is_lock && metadata.modified().is_ok_and(is_stale) {
                match std::fs::remove_file(&path) {
                    Ok(()) => tracing::info!(path = %path.display(), "removed the lock of a killed process"),
                    Err(error) => {
                        tracing::warn!(path = %path.display(), %error, "failed to remove a stale lock")
                    }
                }
            }
        }
    }
}
