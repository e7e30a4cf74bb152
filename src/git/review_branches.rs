//! The branches of nugget's that wait for review.

use jiff::Timestamp;
use knowledge::text;

use crate::error::{During as _, Error};
use crate::propose::BRANCH_PREFIX;
use crate::repository::{
    Branch, CommitId, Repository, branches, entry, files_beyond, read_blob, tip, tree_of,
};

/// A branch of nugget's that has something which the default branch has not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingBranch {
    /// Short: `nugget/session-20261120-1412-9f8b`.
    pub name: String,
    pub commit: CommitId,
    /// When its last commit was made.
    pub time: Timestamp,
    /// The first line of its last commit's message, without hidden characters.
    pub title: String,
}

impl Repository {
    /// The local branches of nugget's that are not merged, oldest first.
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

    /// Whether the default branch, here or at `origin`, has all that a branch brings: it contains the
    /// branch's commits, or, as after a squashed or rebased merge, a file at each path that the branch
    /// adds, edited since or not, and what the branch made of each file that was there before.
    ///
    /// # Errors
    /// [`Error::NoSuchBranch`], those of [`default_branch`](Self::default_branch), and when history
    /// cannot be read.
    pub fn is_merged(&self, branch: &str) -> Result<bool, Error> {
        let git = self.git()?;
        let commit = existing(&git, branch)?;
        is_merged(&git, &self.default_branch_of(&git)?, commit)
    }

    /// The files that a branch adds or changes, by path, relative to where it left the default branch
    /// (to its last commit's parent, once it is merged). A file larger than
    /// [`BLOB_BYTES_MAX`](crate::BLOB_BYTES_MAX) is left out.
    ///
    /// # Errors
    /// [`Error::NoSuchBranch`], those of [`default_branch`](Self::default_branch), and when history
    /// cannot be read.
    pub fn branch_files(&self, branch: &str) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let git = self.git()?;
        let commit = existing(&git, branch)?;
        let base = fork_point(&git, &self.default_branch_of(&git)?, commit)?;
        let mut files = Vec::new();
        for file in added(&git, base, commit)? {
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

fn existing(git: &gix::Repository, branch: &str) -> Result<CommitId, Error> {
    tip(git, &format!("refs/heads/{branch}"))?
        .ok_or_else(|| Error::NoSuchBranch { branch: branch.to_owned() })
}

fn is_merged(git: &gix::Repository, default: &Branch, commit: CommitId) -> Result<bool, Error> {
    let unmerged = own_commits(git, default, commit)?;
    if unmerged.is_empty() {
        return Ok(true);
    }
    let base = fork_point(git, default, commit)?;
    let added = added(git, base, commit)?;
    let base = base.filter(|base| git.has_object(base.0)).map(|base| tree_of(git, base)).transpose()?;
    for tip in [default.local, default.remote].into_iter().flatten() {
        let tree = tree_of(git, tip)?;
        let mut here = true;
        for file in &added {
            let found = entry(&tree, &file.path)?;
            let is_edit = base.as_ref().map(|base| entry(base, &file.path)).transpose()?.flatten().is_some();
            here &= found.is_some_and(|found| !is_edit || found.object_id() == file.id);
        }
        if here && !added.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The commits of a branch, newest first along first parents, that no default branch contains.
fn own_commits(git: &gix::Repository, default: &Branch, commit: CommitId) -> Result<Vec<CommitId>, Error> {
    let walking = || format!("walk the history of {commit}");
    let hidden = [default.local, default.remote].into_iter().flatten().map(|tip| tip.0);
    let walk = git.rev_walk([commit.0]).with_hidden(hidden).all().during(walking)?;
    let own: std::collections::HashSet<_> =
        walk.map(|info| info.map(|info| info.id)).collect::<Result<_, _>>().during(walking)?;
    let mut line = Vec::new();
    let mut next = Some(commit.0);
    while let Some(id) = next.filter(|id| own.contains(id)) {
        line.push(CommitId(id));
        next = git.find_commit(id).during(walking)?.parent_ids().next().map(|parent| parent.detach());
    }
    Ok(line)
}

/// The commit on which a branch was begun; `None` when it has a history of its own.
fn fork_point(git: &gix::Repository, default: &Branch, commit: CommitId) -> Result<Option<CommitId>, Error> {
    let first = own_commits(git, default, commit)?.pop().unwrap_or(commit);
    let found = git.find_commit(first.0).during(|| format!("read commit {first}"))?;
    Ok(found.parent_ids().next().map(|parent| CommitId(parent.detach())))
}

fn added(
    git: &gix::Repository,
    base: Option<CommitId>,
    commit: CommitId,
) -> Result<Vec<crate::repository::File>, Error> {
    // A parent beyond a shallow clone's horizon is not there.
    let base = base.filter(|base| git.has_object(base.0)).map(|base| tree_of(git, base)).transpose()?;
    files_beyond(base.as_ref(), &tree_of(git, commit)?, "")
}
