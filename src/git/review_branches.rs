//! nugget's branches that wait for review.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use knowledge::{is_edited_copy, text};

use crate::error::{During as _, Error};
use crate::overlay::differing;
use crate::references::is_in_use;
use crate::repository::{Branch, File, Repository, branches, entry, files_beyond, read_blob, tip, tree_of};
use crate::types::{BRANCH_PREFIX, CommitId};

/// One of nugget's branches that is not merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingBranch {
    /// The short name: `nugget/session-20261120-1412-9f8b`.
    pub name: String,
    /// The branch's commit.
    pub commit: CommitId,
    /// The time of the last commit.
    pub time: Timestamp,
    /// The first line of the last commit's message, without hidden characters.
    pub title: String,
}

impl Repository {
    /// nugget's local branches that are not merged, oldest first.
    ///
    /// # Errors
    /// Those of [`default_branch`](Self::default_branch), and when history cannot be read.
    pub fn pending_branches(&self) -> Result<Vec<PendingBranch>, Error> {
        let git = self.git()?;
        let default = self.default_branch_of(&git)?;
        let mut pending = Vec::new();
        for (name, commit) in branches(&git, &format!("refs/heads/{BRANCH_PREFIX}"))? {
            if is_merged(&git, &default, commit)? {
                continue;
            }
            let reading = || format!("read commit {commit}");
            let found = git.find_commit(commit.0).during(reading)?;
            let seconds = found.time().during(reading)?.seconds;
            let message = String::from_utf8_lossy(found.message_raw_sloppy()).into_owned();
            pending.push(PendingBranch {
                name,
                commit,
                time: Timestamp::from_second(seconds).unwrap_or_default(),
                title: text::one_line(message.trim_start().lines().next().unwrap_or_default(), 200),
            });
        }
        pending.sort_by(|a, b| (a.time, &a.name).cmp(&(b.time, &b.name)));
        Ok(pending)
    }

    /// nugget's local branches that are not merged, and whether all were looked at `within` the time, the newest first. The
    /// repository is opened once for all.
    ///
    /// # Errors
    /// Those of [`default_branch`](Self::default_branch), and when history cannot be read.
    pub fn unmerged_branches(&self, within: Duration) -> Result<(HashSet<String>, bool), Error> {
        let begun = Instant::now();
        let git = self.git()?;
        let default = self.default_branch_of(&git)?;
        let mut unmerged = HashSet::new();
        // Most names have their date.
        for (name, commit) in branches(&git, &format!("refs/heads/{BRANCH_PREFIX}"))?.into_iter().rev() {
            if begun.elapsed() > within {
                return Ok((unmerged, false));
            }
            if !is_merged(&git, &default, commit)? {
                unmerged.insert(name);
            }
        }
        Ok((unmerged, true))
    }

    /// True if the default branch, local or remote, contains the branch's commits. Also true after a squash or rebase:
    /// each added file is there, as proposed or, if the branch is one commit, edited ([`is_edited_copy`]); each edited
    /// file has the branch's content; each removed file is gone.
    ///
    /// # Errors
    /// [`Error::NoSuchBranch`], those of [`default_branch`](Self::default_branch), and when history
    /// cannot be read.
    pub fn is_merged(&self, branch: &str) -> Result<bool, Error> {
        let git = self.git()?;
        let commit = local_tip(&git, branch)?;
        is_merged(&git, &self.default_branch_of(&git)?, commit)
    }

    /// [`is_merged`](Self::is_merged) of a branch by its last commit, which need not be a branch here, into `tip` alone.
    /// `false` if the repository lacks it.
    ///
    /// # Errors
    /// When history cannot be read.
    pub fn is_commit_merged(&self, commit: CommitId, tip: CommitId) -> Result<bool, Error> {
        let git = self.git()?;
        let into = Branch { name: String::new(), tip, local: None, remote: Some(tip) };
        Ok(git.has_object(commit.0) && is_merged(&git, &into, commit)?)
    }

    /// The files that a branch adds or changes since it left the default branch (since its last commit's parent,
    /// if it is merged), as sorted pairs of path and content. A file larger than
    /// [`BLOB_BYTES_MAX`](crate::BLOB_BYTES_MAX) is left out.
    ///
    /// # Errors
    /// [`Error::NoSuchBranch`], those of [`default_branch`](Self::default_branch), and when history
    /// cannot be read.
    pub fn branch_files(&self, branch: &str) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let git = self.git()?;
        let commit = local_tip(&git, branch)?;
        let base = fork_point(&git, &self.default_branch_of(&git)?, commit)?;
        let mut files = Vec::new();
        for file in changed_files(&git, base, commit)? {
            match read_blob(&git, commit, &file.path, file.id) {
                Ok(content) => files.push((file.path, content)),
                Err(error @ Error::TooLarge { .. }) => tracing::warn!(%error, "left a file out"),
                Err(error) => return Err(error),
            }
        }
        files.sort_unstable();
        Ok(files)
    }
}

impl Repository {
    /// The message of a commit, without hidden characters.
    ///
    /// # Errors
    /// When the commit cannot be read.
    pub fn message_of(&self, commit: CommitId) -> Result<String, Error> {
        let git = self.git()?;
        let found = git.find_commit(commit.0).during(|| format!("read commit {commit}"))?;
        Ok(text::strip_hidden(&String::from_utf8_lossy(found.message_raw_sloppy())))
    }

    /// How many of a branch's own commits are newer than a time, up to a limit.
    ///
    /// # Errors
    /// [`Error::NoSuchBranch`], those of [`default_branch`](Self::default_branch), and when history
    /// cannot be read.
    pub fn commits_since(&self, branch: &str, since: Timestamp, limit: usize) -> Result<usize, Error> {
        let git = self.git()?;
        let own = own_commits(&git, &self.default_branch_of(&git)?, local_tip(&git, branch)?)?;
        let mut newer = 0;
        for commit in own.into_iter().take(limit) {
            let reading = || format!("read commit {commit}");
            let seconds = git.find_commit(commit.0).during(reading)?.time().during(reading)?.seconds;
            newer += usize::from(seconds >= since.as_second());
        }
        Ok(newer)
    }

    /// Whether a branch's commit has commits of the default branch, here or at the remote, in its history that `base` does
    /// not have: a merge of it into `base` would count them as merged, and lack what they changed.
    ///
    /// # Errors
    /// Those of [`default_branch`](Self::default_branch), and when history cannot be read.
    pub fn brings_others(&self, commit: CommitId, base: CommitId) -> Result<bool, Error> {
        let git = self.git()?;
        let default = self.default_branch_of(&git)?;
        let walking = || format!("walk the history of {commit}");
        let count = |hidden: Vec<gix::ObjectId>| -> Result<usize, Error> {
            let walk = git.rev_walk([commit.0]).with_hidden(hidden).all().during(walking)?;
            walk.map(|info| info.map(|_| 1)).sum::<Result<usize, _>>().during(walking)
        };
        let tips = [default.local, default.remote].into_iter().flatten().map(|tip| tip.0);
        Ok(count(vec![base.0])? > count(tips.chain([base.0]).collect())?)
    }

    /// The paths below a folder at which two commits have different files.
    ///
    /// # Errors
    /// When a commit cannot be read.
    pub fn paths_between(&self, one: CommitId, other: CommitId, folder: &str) -> Result<Vec<String>, Error> {
        let git = self.git()?;
        let paths = differing(Some(&tree_of(&git, one)?), &tree_of(&git, other)?)?;
        let prefix = format!("{folder}/");
        Ok(paths.into_iter().filter(|path| path.starts_with(&prefix)).collect())
    }

    /// Whether a work tree has a branch checked out, or will return to it after a rebase or a bisection.
    ///
    /// # Errors
    /// When the repository cannot be opened.
    pub fn is_checked_out(&self, branch: &str) -> Result<bool, Error> {
        Ok(is_in_use(&self.git()?, branch))
    }

    /// The commit on which a branch was started; `None` if it has a history of its own.
    pub(crate) fn branch_base(&self, branch: &str) -> Result<Option<CommitId>, Error> {
        let git = self.git()?;
        let commit = local_tip(&git, branch)?;
        fork_point(&git, &self.default_branch_of(&git)?, commit)
    }
}

fn local_tip(git: &gix::Repository, branch: &str) -> Result<CommitId, Error> {
    tip(git, &format!("refs/heads/{branch}"))?
        .ok_or_else(|| Error::NoSuchBranch { branch: branch.to_owned() })
}

fn is_merged(git: &gix::Repository, default: &Branch, commit: CommitId) -> Result<bool, Error> {
    let unmerged = own_commits(git, default, commit)?;
    let Some(first) = unmerged.last() else { return Ok(true) };
    // A branch that has grown may have been merged before: what was added to a file since would count as edited away.
    let is_single = unmerged.len() == 1;
    let base = parent_of(git, *first)?;
    let changed = changed_files(git, base, commit)?;
    let removed = removed_files(git, base, commit)?;
    let base = base.filter(|base| git.has_object(base.0)).map(|base| tree_of(git, base)).transpose()?;
    for tip in [default.local, default.remote].into_iter().flatten() {
        let tree = tree_of(git, tip)?;
        let mut has_all = true;
        for file in &changed {
            let found = entry(&tree, &file.path)?;
            let is_edit = base.as_ref().map(|base| entry(base, &file.path)).transpose()?.flatten().is_some();
            has_all &= match found {
                None => false,
                Some(found) if found.object_id() == file.id => true,
                // Merged with an edit, unless another unit of the same name is there.
                Some(found) => {
                    let text = |id| match read_blob(git, commit, &file.path, id) {
                        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
                        Err(Error::TooLarge { .. }) => Ok(String::new()),
                        Err(error) => Err(error),
                    };
                    is_single && !is_edit && is_edited_copy(&text(found.object_id())?, &text(file.id)?)
                }
            };
        }
        for file in &removed {
            has_all &= entry(&tree, &file.path)?.is_none();
        }
        if has_all && !(changed.is_empty() && removed.is_empty()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The commits of a branch that neither default branch contains, newest first, along first parents.
fn own_commits(git: &gix::Repository, default: &Branch, commit: CommitId) -> Result<Vec<CommitId>, Error> {
    let walking = || format!("walk the history of {commit}");
    let hidden = [default.local, default.remote].into_iter().flatten().map(|tip| tip.0);
    let walk = git.rev_walk([commit.0]).with_hidden(hidden).all().during(walking)?;
    let own: HashSet<_> =
        walk.map(|info| info.map(|info| info.id)).collect::<Result<_, _>>().during(walking)?;
    let mut line = Vec::new();
    let mut next = Some(commit.0);
    while let Some(id) = next.filter(|id| own.contains(id)) {
        line.push(CommitId(id));
        next = git.find_commit(id).during(walking)?.parent_ids().next().map(|parent| parent.detach());
    }
    Ok(line)
}

/// The commit on which a branch was started; `None` if it has a history of its own.
fn fork_point(git: &gix::Repository, default: &Branch, commit: CommitId) -> Result<Option<CommitId>, Error> {
    parent_of(git, own_commits(git, default, commit)?.pop().unwrap_or(commit))
}

fn parent_of(git: &gix::Repository, commit: CommitId) -> Result<Option<CommitId>, Error> {
    let found = git.find_commit(commit.0).during(|| format!("read commit {commit}"))?;
    Ok(found.parent_ids().next().map(|parent| CommitId(parent.detach())))
}

fn changed_files(
    git: &gix::Repository,
    base: Option<CommitId>,
    commit: CommitId,
) -> Result<Vec<File>, Error> {
    // In a shallow clone the parent may be missing.
    let base = base.filter(|base| git.has_object(base.0)).map(|base| tree_of(git, base)).transpose()?;
    files_beyond(base.as_ref(), &tree_of(git, commit)?, "")
}

/// The files that a branch's base has and the branch no longer has; none in a shallow clone without the base.
pub(crate) fn removed_files(
    git: &gix::Repository,
    base: Option<CommitId>,
    commit: CommitId,
) -> Result<Vec<File>, Error> {
    let Some(base) = base.filter(|base| git.has_object(base.0)) else { return Ok(Vec::new()) };
    let after = tree_of(git, commit)?;
    let mut removed = Vec::new();
    for file in files_beyond(Some(&after), &tree_of(git, base)?, "")? {
        if entry(&after, &file.path)?.is_none() {
            removed.push(file);
        }
    }
    Ok(removed)
}
