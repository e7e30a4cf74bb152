//! nugget's branches that wait for review, and what became of those that were merged.

use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use knowledge::{is_edited_copy, is_same_unit, text};

use crate::error::{During as _, Error};
use crate::overlay::differing;
use crate::references::is_in_use;
use crate::repository::{
    Branch, File, Repository, branches, common_ancestor, entry, files_beyond, read_blob, tip, tree_of,
};
use crate::types::{BRANCH_PREFIX, CommitId};
use crate::whereabouts::{self, History, Since, Wanted};

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
    /// The paths of those of its files that the default branch has under another path, or has had since the branch was
    /// started: a person has merged them by hand.
    pub merged: BTreeSet<String>,
}

impl PendingBranch {
    /// `None` if the branch is merged.
    fn find(
        git: &gix::Repository,
        default: &Branch,
        name: String,
        commit: CommitId,
        since: &mut Since,
    ) -> Result<Option<Self>, Error> {
        let standing = Standing::find(git, default, commit, since)?;
        if standing.is_merged {
            return Ok(None);
        }
        let reading = || format!("read commit {commit}");
        let found = git.find_commit(commit.0).during(reading)?;
        let seconds = found.time().during(reading)?.seconds;
        let message = String::from_utf8_lossy(found.message_raw_sloppy()).into_owned();
        Ok(Some(Self {
            name,
            commit,
            time: Timestamp::from_second(seconds).unwrap_or_default(),
            title: text::one_line(message.trim_start().lines().next().unwrap_or_default(), 200),
            merged: standing.elsewhere,
        }))
    }
}

/// A file that a branch adds, changes or removes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedFile {
    /// Its path on the branch.
    pub path: String,
    /// Whether the default branch has got what the branch does to it.
    pub is_merged: bool,
    /// Whether the merge of the branch has left it out, as far as that can be told.
    pub is_left_out: bool,
}

/// A commit of a branch.
#[derive(Clone, Debug)]
pub struct BranchCommit {
    /// The commit.
    pub commit: CommitId,
    /// Its time.
    pub time: Timestamp,
    /// The files that it adds or changes, as pairs of path and content.
    pub files: Vec<(String, Vec<u8>)>,
}

/// The size of the object cache: the same trees are read again for each branch.
const OBJECT_CACHE_BYTES: usize = 4 << 20;

impl Repository {
    /// nugget's local branches that are not merged, oldest first.
    ///
    /// # Errors
    /// Those of [`default_branch`](Self::default_branch), and when history cannot be read.
    pub fn pending_branches(&self) -> Result<Vec<PendingBranch>, Error> {
        let mut git = self.git()?;
        git.object_cache_size_if_unset(OBJECT_CACHE_BYTES);
        let default = self.default_branch_of(&git)?;
        let mut pending = Vec::new();
        let mut since = Since::default();
        for (name, commit) in branches(&git, &format!("refs/heads/{BRANCH_PREFIX}"))? {
            pending.extend(PendingBranch::find(&git, &default, name, commit, &mut since)?);
        }
        pending.sort_by(|a, b| (a.time, &a.name).cmp(&(b.time, &b.name)));
        Ok(pending)
    }

    /// One of [`pending_branches`](Self::pending_branches); `None` if there is none of this name that is not merged.
    ///
    /// # Errors
    /// As for those.
    pub fn pending_branch(&self, name: &str) -> Result<Option<PendingBranch>, Error> {
        let mut git = self.git()?;
        let commit = tip(&git, &format!("refs/heads/{name}"))?;
        let Some(commit) = commit.filter(|_| name.starts_with(BRANCH_PREFIX)) else { return Ok(None) };
        git.object_cache_size_if_unset(OBJECT_CACHE_BYTES);
        let default = self.default_branch_of(&git)?;
        PendingBranch::find(&git, &default, name.to_owned(), commit, &mut Since::default())
    }

    /// nugget's local branches that are not merged, and whether all were looked at `within` the time, the newest first. The
    /// repository is opened once for all.
    ///
    /// # Errors
    /// Those of [`default_branch`](Self::default_branch), and when history cannot be read.
    pub fn unmerged_branches(&self, within: Duration) -> Result<(HashSet<String>, bool), Error> {
        let begun = Instant::now();
        let mut git = self.git()?;
        git.object_cache_size_if_unset(OBJECT_CACHE_BYTES);
        let default = self.default_branch_of(&git)?;
        let (mut unmerged, mut since) = (HashSet::new(), Since::default());
        // Most names have their date.
        for (name, commit) in branches(&git, &format!("refs/heads/{BRANCH_PREFIX}"))?.into_iter().rev() {
            if begun.elapsed() > within {
                return Ok((unmerged, false));
            }
            if !Standing::find(&git, &default, commit, &mut since)?.is_merged {
                unmerged.insert(name);
            }
        }
        Ok((unmerged, true))
    }

    /// True if the default branch, local or remote, contains the branch's commits. Also true after a squash or rebase:
    /// each added file is there, as proposed or, if the branch is one commit, edited ([`is_edited_copy`]); each edited
    /// file has the branch's content; each removed file is gone. What was there once since the branch was started, or is
    /// there under another path, counts as well.
    ///
    /// # Errors
    /// [`Error::NoSuchBranch`], those of [`default_branch`](Self::default_branch), and when history
    /// cannot be read.
    pub fn is_merged(&self, branch: &str) -> Result<bool, Error> {
        let git = self.git()?;
        let commit = local_tip(&git, branch)?;
        Ok(Standing::find(&git, &self.default_branch_of(&git)?, commit, &mut Since::default())?.is_merged)
    }

    /// Those of these commits that are merged as [`is_merged`](Self::is_merged) says it of a branch, which need not be here
    /// any more: into `tip` alone or, with `None`, into the default branch. Not those that the repository lacks.
    ///
    /// # Errors
    /// Those of [`default_branch`](Self::default_branch), and when history cannot be read.
    pub fn merged_among(
        &self,
        commits: impl IntoIterator<Item = CommitId>,
        tip: Option<CommitId>,
    ) -> Result<HashSet<CommitId>, Error> {
        let mut git = self.git()?;
        git.object_cache_size_if_unset(OBJECT_CACHE_BYTES);
        let into = match tip {
            Some(tip) => Branch { name: String::new(), tip, local: None, remote: Some(tip) },
            None => self.default_branch_of(&git)?,
        };
        let mut since = Since::default();
        let mut merged = HashSet::new();
        for commit in commits {
            if git.has_object(commit.0) && Standing::find(&git, &into, commit, &mut since)?.is_merged {
                merged.insert(commit);
            }
        }
        Ok(merged)
    }

    /// What the default branch has got of a branch by its last commit, which need not be a branch here: after a merge that
    /// contains the commit, what that merge has taken. Empty if the repository lacks the commit.
    ///
    /// # Errors
    /// Those of [`default_branch`](Self::default_branch), and when history cannot be read.
    pub fn merged_files(&self, commit: CommitId) -> Result<Vec<MergedFile>, Error> {
        let git = self.git()?;
        let default = self.default_branch_of(&git)?;
        if !git.has_object(commit.0) {
            return Ok(Vec::new());
        }
        let mut since = Since::default();
        for tip in tips(&default) {
            if common_ancestor(&git, tip, commit)? == Some(commit) {
                return files_of_merge(&git, tip, commit, &mut since);
            }
        }
        Ok(Standing::find(&git, &default, commit, &mut since)?.files)
    }

    /// Where a commit of the default branch has the file that a branch changes or removes at `path`, if it was renamed
    /// there since the branch was started.
    ///
    /// # Errors
    /// As [`is_merged`](Self::is_merged).
    pub fn renamed_since(&self, branch: &str, path: &str, at: CommitId) -> Result<Option<String>, Error> {
        let git = self.git()?;
        let commit = local_tip(&git, branch)?;
        let base = fork_point(&git, &self.default_branch_of(&git)?, commit)?;
        let Some(base) = base.filter(|base| git.has_object(base.0)) else { return Ok(None) };
        let Some(before) = entry(&tree_of(&git, base)?, path)?.map(|entry| entry.object_id()) else {
            return Ok(None);
        };
        let wanted = Wanted { path, id: before, commit: base };
        Ok(Since::default().renamed(&git, base, at, &wanted)?.map(|file| file.path))
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
        read_changed(&git, base, commit)
    }
}

impl Repository {
    /// The commits of a branch that the default branch does not contain, by the last one, oldest first. A file larger than
    /// [`BLOB_BYTES_MAX`](crate::BLOB_BYTES_MAX) is left out.
    ///
    /// # Errors
    /// Those of [`default_branch`](Self::default_branch), and when history cannot be read.
    pub fn branch_commits(&self, tip: CommitId) -> Result<Vec<BranchCommit>, Error> {
        let git = self.git()?;
        let mut commits = Vec::new();
        for commit in own_commits(&git, &self.default_branch_of(&git)?, tip)?.into_iter().rev() {
            let reading = || format!("read commit {commit}");
            let seconds = git.find_commit(commit.0).during(reading)?.time().during(reading)?.seconds;
            let time = Timestamp::from_second(seconds).unwrap_or_default();
            let files = read_changed(&git, parent_of(&git, commit)?, commit)?;
            commits.push(BranchCommit { commit, time, files });
        }
        Ok(commits)
    }

    /// The message of a commit, without hidden characters.
    ///
    /// # Errors
    /// When the commit cannot be read.
    pub fn message_of(&self, commit: CommitId) -> Result<String, Error> {
        let git = self.git()?;
        let found = git.find_commit(commit.0).during(|| format!("read commit {commit}"))?;
        Ok(text::strip_hidden(&String::from_utf8_lossy(found.message_raw_sloppy())))
    }

    /// How many of a branch's own commits are newer than a time, up to a limit. Merges do not count.
    ///
    /// # Errors
    /// [`Error::NoSuchBranch`], those of [`default_branch`](Self::default_branch), and when history
    /// cannot be read.
    pub fn commits_since(&self, branch: &str, since: Timestamp, limit: usize) -> Result<usize, Error> {
        let git = self.git()?;
        let default = self.default_branch_of(&git)?;
        let tip = local_tip(&git, branch)?;
        let walking = || format!("walk the history of {tip}");
        let hidden: Vec<_> = tips(&default).map(|tip| tip.0).collect();
        let mut newer = 0;
        for info in git.rev_walk([tip.0]).with_hidden(hidden).all().during(walking)? {
            let info = info.during(walking)?;
            let commit = git.find_commit(info.id).during(walking)?;
            let is_newer = commit.time().during(walking)?.seconds >= since.as_second();
            newer += usize::from(is_newer && info.parent_ids.len() < 2);
            if newer >= limit {
                break;
            }
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

    /// The paths below a folder (`""` for all) at which two commits have different files.
    ///
    /// # Errors
    /// When a commit cannot be read.
    pub fn paths_between(&self, one: CommitId, other: CommitId, folder: &str) -> Result<Vec<String>, Error> {
        let git = self.git()?;
        let paths = differing(Some(&tree_of(&git, one)?), &tree_of(&git, other)?)?;
        let is_below = |path: &str| {
            folder.is_empty() || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
        };
        Ok(paths.into_iter().filter(|path| is_below(path)).collect())
    }

    /// Whether a work tree has a branch checked out, or will return to it after a rebase or a bisection.
    ///
    /// # Errors
    /// When the repository cannot be opened.
    pub fn is_checked_out(&self, branch: &str) -> Result<bool, Error> {
        Ok(is_in_use(&self.git()?, branch))
    }

    /// The commit on which a branch was started; `None` if it has a history of its own.
    ///
    /// # Errors
    /// As [`branch_files`](Self::branch_files).
    pub fn branch_base(&self, branch: &str) -> Result<Option<CommitId>, Error> {
        let git = self.git()?;
        let commit = local_tip(&git, branch)?;
        fork_point(&git, &self.default_branch_of(&git)?, commit)
    }

    /// The last version of a file that the default branch has got of a branch, before the branch changed the file again:
    /// as after a squashed merge of its first commits.
    pub(crate) fn merged_version(
        &self,
        branch: &str,
        base: Option<CommitId>,
        path: &str,
    ) -> Result<Option<Vec<u8>>, Error> {
        let git = self.git()?;
        let default = self.default_branch_of(&git)?;
        let id = |commit: CommitId| -> Result<_, Error> {
            Ok(entry(&tree_of(&git, commit)?, path)?.map(|found| found.object_id()))
        };
        let commits = own_commits(&git, &default, local_tip(&git, branch)?)?;
        let (Some((tip, earlier)), before) = (commits.split_first(), base.map(id).transpose()?.flatten())
        else {
            return Ok(None);
        };
        // As for nearly all files: the default branch has not touched it.
        if earlier.is_empty() || id(default.tip)? == before {
            return Ok(None);
        }
        // Of each version the commit that made it, newest first.
        let mut versions: Vec<(gix::ObjectId, CommitId)> = Vec::new();
        let last = id(*tip)?;
        for commit in earlier {
            let Some(version) =
                id(*commit)?.filter(|version| Some(*version) != last && Some(*version) != before)
            else {
                continue;
            };
            match versions.last_mut() {
                Some((same, made_by)) if *same == version => *made_by = *commit,
                _ => versions.push((version, *commit)),
            }
        }
        let mut since = Since::default();
        for (_, commit) in versions {
            let files = Standing::find(&git, &default, commit, &mut since)?.files;
            if files.iter().any(|file| file.path == path && file.is_merged) {
                return self.read_at(commit, path);
            }
        }
        Ok(None)
    }
}

fn local_tip(git: &gix::Repository, branch: &str) -> Result<CommitId, Error> {
    tip(git, &format!("refs/heads/{branch}"))?
        .ok_or_else(|| Error::NoSuchBranch { branch: branch.to_owned() })
}

/// What the default branch has of a branch that it may not contain.
#[derive(Default)]
struct Standing {
    is_merged: bool,
    /// What the branch does; empty if the default branch contains it.
    files: Vec<MergedFile>,
    /// The paths of those files that the default branch has elsewhere, or has had.
    elsewhere: BTreeSet<String>,
}

impl Standing {
    fn find(
        git: &gix::Repository,
        default: &Branch,
        commit: CommitId,
        since: &mut Since,
    ) -> Result<Self, Error> {
        let unmerged = own_commits(git, default, commit)?;
        let Some(first) = unmerged.last() else { return Ok(Self { is_merged: true, ..Self::default() }) };
        // A branch that has grown may have been merged before: what was added to a file since would count as edited away.
        let is_single = unmerged.len() == 1;
        let base = parent_of(git, *first)?;
        let changed = changed_files(git, base, commit)?;
        let removed = removed_files(git, base, commit)?;
        let base = base.filter(|base| git.has_object(base.0));
        let tree_before = base.map(|base| tree_of(git, base)).transpose()?;
        let mut standing = Self::default();
        for file in &changed {
            let before = tree_before.as_ref().map(|before| entry(before, &file.path)).transpose()?;
            // What became of an edit after a squash is not known: others may have edited the file as well.
            let is_left_out = before.flatten().is_none();
            standing.files.push(MergedFile { path: file.path.clone(), is_merged: false, is_left_out });
        }
        for file in &removed {
            let path = file.path.clone();
            standing.files.push(MergedFile { path, is_merged: false, is_left_out: false });
        }
        for tip in tips(default) {
            let tree = tree_of(git, tip)?;
            let mut has_all = !standing.files.is_empty();
            for (file, at) in changed.iter().zip(0..) {
                let before = tree_before.as_ref().map(|before| entry(before, &file.path)).transpose()?;
                let is_edit = before.flatten().is_some();
                let found = entry(&tree, &file.path)?;
                standing.files[at].is_left_out &= found.is_none();
                let original = || whereabouts::text(git, commit, &file.path, file.id);
                let is_there = match found {
                    Some(found) if found.object_id() == file.id => true,
                    // Merged with an edit, unless another unit of the same name is there.
                    Some(found) if is_single && !is_edit => {
                        let text = whereabouts::text(git, tip, &file.path, found.object_id())?;
                        is_edited_copy(&text, &original()?)
                    }
                    _ => false,
                };
                let is_elsewhere = !is_there
                    && match base {
                        Some(base) => {
                            let accepts_edited = is_single && !is_edit;
                            is_elsewhere(git, since, base, tip, commit, file, accepts_edited)?
                        }
                        None => false,
                    };
                if is_elsewhere {
                    standing.elsewhere.insert(file.path.clone());
                }
                standing.files[at].is_merged |= is_there || is_elsewhere;
                standing.files[at].is_left_out &= !is_elsewhere;
                has_all &= is_there || is_elsewhere;
            }
            for (file, at) in removed.iter().zip(changed.len()..) {
                let is_gone = match base {
                    Some(base) => is_removed(git, since, base, tip, file)?,
                    None => entry(&tree, &file.path)?.is_none(),
                };
                standing.files[at].is_merged |= is_gone;
                has_all &= is_gone;
            }
            standing.is_merged |= has_all;
        }
        Ok(standing)
    }
}

/// The commits of the default branch, here and at the remote.
fn tips(default: &Branch) -> impl Iterator<Item = CommitId> {
    let remote = default.remote.filter(|remote| Some(*remote) != default.local);
    default.local.into_iter().chain(remote)
}

/// Whether a commit of the default branch has a branch's file under another path, or has had it since `base`. With
/// `accepts_edited` also as a person has edited it.
fn is_elsewhere(
    git: &gix::Repository,
    since: &mut Since,
    base: CommitId,
    tip: CommitId,
    branch: CommitId,
    file: &File,
    accepts_edited: bool,
) -> Result<bool, Error> {
    if since.has_brought(git, base, tip, branch, file.id)? {
        return Ok(true);
    }
    if !accepts_edited {
        return Ok(false);
    }
    let wanted = Wanted { path: &file.path, id: file.id, commit: branch };
    let Some(renamed) = since.renamed(git, base, tip, &wanted)? else { return Ok(false) };
    let text = whereabouts::text(git, tip, &renamed.path, renamed.id)?;
    Ok(is_same_unit(&text, &whereabouts::text(git, branch, &file.path, file.id)?))
}

/// Whether a commit of the default branch has lost a file of `base`, and not only its path.
fn is_removed(
    git: &gix::Repository,
    since: &mut Since,
    base: CommitId,
    tip: CommitId,
    file: &File,
) -> Result<bool, Error> {
    if entry(&tree_of(git, tip)?, &file.path)?.is_some() {
        return Ok(false);
    }
    let wanted = Wanted { path: &file.path, id: file.id, commit: base };
    Ok(since.renamed(git, base, tip, &wanted)?.is_none())
}

/// What was taken of a branch by the merge with which `tip` has got its commit: a merge may leave files out.
fn files_of_merge(
    git: &gix::Repository,
    tip: CommitId,
    commit: CommitId,
    since: &mut Since,
) -> Result<Vec<MergedFile>, Error> {
    let line = first_parents(git, tip, [commit])?;
    let parent = |of: CommitId| -> Result<Option<CommitId>, Error> {
        let found = git.find_commit(of.0).during(|| format!("read commit {of}"))?;
        Ok(found.parent_ids().next().map(|parent| CommitId(parent.detach())))
    };
    let merged = |file: File, is_merged| MergedFile { path: file.path, is_merged, is_left_out: !is_merged };
    let oldest = line.last().map(|oldest| parent(*oldest)).transpose()?.flatten();
    if line.is_empty() || oldest == Some(commit) {
        // The default branch was moved forward to the commit.
        let base = parent(commit)?;
        let files = changed_files(git, base, commit)?.into_iter().chain(removed_files(git, base, commit)?);
        return Ok(files.map(|file| merged(file, true)).collect());
    }
    // The oldest commit of the line that contains it. The first one does.
    let (mut low, mut high) = (0, line.len() - 1);
    while low < high {
        let middle = (low + high).div_ceil(2);
        match common_ancestor(git, line[middle], commit)? == Some(commit) {
            true => low = middle,
            false => high = middle - 1,
        }
    }
    let merge = line[low];
    let Some(ours) = parent(merge)? else { return Ok(Vec::new()) };
    let base = common_ancestor(git, ours, commit)?;
    let (tree, tree_of_ours) = (tree_of(git, merge)?, tree_of(git, ours)?);
    let mut files = Vec::new();
    for file in changed_files(git, base, commit)? {
        let id = |tree: &gix::Tree<'_>| -> Result<_, Error> {
            Ok(entry(tree, &file.path)?.map(|found| found.object_id()))
        };
        let (found, before) = (id(&tree)?, id(&tree_of_ours)?);
        let is_there = found.is_some() && (found == Some(file.id) || found != before);
        let is_merged = is_there
            || match base {
                Some(base) => is_elsewhere(git, since, base, merge, commit, &file, true)?,
                None => false,
            };
        files.push(merged(file, is_merged));
    }
    if let Some(base) = base {
        for file in removed_files(git, Some(base), commit)? {
            let is_gone = is_removed(git, since, base, merge, &file)?;
            files.push(merged(file, is_gone));
        }
    }
    Ok(files)
}

/// The commits of a branch that neither default branch contains, newest first, along first parents.
fn own_commits(git: &gix::Repository, default: &Branch, commit: CommitId) -> Result<Vec<CommitId>, Error> {
    let history = History::of_tips(git, &tips(default).collect::<Vec<_>>())?;
    let mut line = Vec::new();
    let mut next = Some(commit.0);
    while let Some(id) = next.filter(|id| !history.contains(*id)) {
        line.push(CommitId(id));
        let found = git.find_commit(id).during(|| format!("walk the history of {commit}"))?;
        // In a shallow clone the parent may be missing.
        next =
            found.parent_ids().next().map(|parent| parent.detach()).filter(|parent| git.has_object(*parent));
    }
    Ok(line)
}

/// A commit and its first parents, newest first, as far as none of `hidden` contains them.
fn first_parents(
    git: &gix::Repository,
    commit: CommitId,
    hidden: impl IntoIterator<Item = CommitId>,
) -> Result<Vec<CommitId>, Error> {
    let walking = || format!("walk the history of {commit}");
    let hidden = hidden.into_iter().map(|tip| tip.0);
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
    let own = own_commits(git, default, commit)?;
    parent_of(git, own.last().copied().unwrap_or(commit))
}

fn parent_of(git: &gix::Repository, commit: CommitId) -> Result<Option<CommitId>, Error> {
    let found = git.find_commit(commit.0).during(|| format!("read commit {commit}"))?;
    Ok(found.parent_ids().next().map(|parent| CommitId(parent.detach())))
}

/// The files that a commit has and its base does not, sorted by path.
fn read_changed(
    git: &gix::Repository,
    base: Option<CommitId>,
    commit: CommitId,
) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let mut files = Vec::new();
    for file in changed_files(git, base, commit)? {
        match read_blob(git, commit, &file.path, file.id) {
            Ok(content) => files.push((file.path, content)),
            Err(error @ Error::TooLarge { .. }) => tracing::warn!(%error, "left a file out"),
            Err(error) => return Err(error),
        }
    }
    files.sort_unstable();
    Ok(files)
}

pub(crate) fn changed_files(
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
