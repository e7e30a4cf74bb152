//! The files that are served in place of the work tree's when the checkout is not at the newest reviewed commit:
//! that commit's, except where the user has uncommitted edits.

use std::collections::{BTreeMap, BTreeSet};

use gix::ObjectId;
use gix::index::entry::{Flags, Stage};

use crate::error::{During as _, Error};
use crate::objects::hash;
use crate::references::reference_name;
use crate::repository::{Branch, Repository, common_ancestor, entry, files_beyond, read_blob, tip, tree_of};
use crate::review_snapshot::has_same_lines;
use crate::types::CommitId;
use crate::whereabouts::{Since, Wanted};
use crate::work_tree::{self, WorkTreeFile};

/// The files that replace those of the work tree, at one moment.
pub struct Overlay {
    /// The newest reviewed commit.
    pub commit: CommitId,
    files: BTreeMap<String, Option<Blob>>,
    git: gix::ThreadSafeRepository,
}

/// A file of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blob {
    id: ObjectId,
    /// The size in bytes.
    pub size: u64,
}

impl Blob {
    /// The first eight bytes of the object id. Blobs with equal prefixes are equal, unless somebody crafted a
    /// collision.
    pub fn id_prefix(&self) -> u64 {
        let (first, _) = self.id.as_bytes().split_at(8);
        first.iter().fold(0, |prefix, byte| prefix << 8 | u64::from(*byte))
    }
}

impl Overlay {
    /// The paths with a replacement; `None` if the path is served as missing.
    pub fn files(&self) -> impl Iterator<Item = (&str, Option<Blob>)> {
        self.files.iter().map(|(path, blob)| (path.as_str(), *blob))
    }

    /// Leaves out the paths that a rule does not keep.
    pub fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.files.retain(|path, _| is_kept(path));
    }

    /// Whether a path has a replacement, or is served as missing.
    pub fn has(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    /// Whether a file of the work tree is not served.
    pub fn removes(&self, path: &str) -> bool {
        matches!(self.files.get(path), Some(None))
    }

    /// The content of a replacement; `None` if the path has none.
    ///
    /// # Errors
    /// [`Error::TooLarge`], and when the commit cannot be read.
    pub fn read(&self, path: &str) -> Result<Option<Vec<u8>>, Error> {
        match self.files.get(path) {
            Some(Some(blob)) => read_blob(&self.git.to_thread_local(), self.commit, path, blob.id).map(Some),
            _ => Ok(None),
        }
    }
}

impl Repository {
    /// The files that are served in place of those in the work tree. `None` if all of the newest reviewed commit is
    /// checked out, which takes reading two references.
    ///
    /// The newest reviewed commit is that of the remote's default branch, as last fetched, if the local branch
    /// is behind it; else that of the local branch. If both have commits of their own, each path is served from
    /// the branch that changed it, or from the local one if both did. A file that differs from the checked-out
    /// commit only in its line endings counts as unedited, as does one that a sparse checkout leaves out.
    ///
    /// # Errors
    /// Those of [`default_branch`](Self::default_branch), and when history cannot be read.
    pub fn overlay(&self) -> Result<Option<Overlay>, Error> {
        let git = self.git()?;
        let default = self.default_branch_of(&git)?;
        let head_commit = tip(&git, "HEAD")?;
        let (commit, other) = self.reviewed_tip(&git, &default)?;
        let left_out = LeftOut::read(&git)?;
        if head_commit == Some(commit) && other.is_none() && left_out.is_none() {
            return Ok(None);
        }
        let is_left_out = |path: &str| left_out.as_ref().is_some_and(|left_out| left_out.has(path));
        let head = head_commit.map(|head| tree_of(&git, head)).transpose()?;
        let tree = tree_of(&git, commit)?;
        let mut wanted: BTreeMap<String, Option<ObjectId>> = BTreeMap::new();
        for path in differing(head.as_ref(), &tree)? {
            let id = blob_at(&tree, &path)?;
            wanted.insert(path, id);
        }
        if left_out.is_some() {
            let files = files_beyond(None, &tree, "")?.into_iter().filter(|file| is_left_out(&file.path));
            wanted.extend(files.map(|file| (file.path, Some(file.id))));
        }
        if let Some((base, remote)) = other {
            let (base, remote) = (tree_of(&git, base)?, tree_of(&git, remote)?);
            for path in differing(Some(&base), &remote)? {
                if blob_at(&tree, &path)? == blob_at(&base, &path)? {
                    let id = blob_at(&remote, &path)?;
                    wanted.insert(path, id);
                }
            }
        }
        let mut files = BTreeMap::new();
        let mut since = Since::default();
        let mut edited_elsewhere = BTreeSet::new();
        for (path, id) in wanted {
            let checked_out = head.as_ref().map(|head| blob_at(head, &path)).transpose()?.flatten();
            let is_left_out = is_left_out(&path);
            if checked_out == id && !is_left_out {
                continue;
            }
            if self.is_unedited(&git, &path, checked_out, is_left_out)? {
                let size = |id: ObjectId| {
                    git.find_header(id).during(|| format!("read {path}")).map(|found| found.size())
                };
                let blob = id.map(|id| size(id).map(|size| Blob { id, size })).transpose()?;
                files.insert(path, blob);
            } else if let (Some(before), None, Some(base)) = (checked_out, id, head_commit) {
                // An edit of a file that was renamed meanwhile stands for the renamed one.
                let wanted = Wanted { path: &path, id: before, commit: base };
                edited_elsewhere.extend(since.renamed(&git, base, commit, &wanted)?.map(|file| file.path));
            }
        }
        files.retain(|path, _| !edited_elsewhere.contains(path));
        Ok(Some(Overlay { commit, files, git: git.clone().into_sync() }))
    }

    /// The newest reviewed commit. If the remote's branch has diverged, also their common ancestor and the
    /// remote's commit.
    pub(crate) fn reviewed_tip(
        &self,
        git: &gix::Repository,
        default: &Branch,
    ) -> Result<(CommitId, Option<(CommitId, CommitId)>), Error> {
        Ok(match (default.local, default.remote) {
            (Some(local), Some(remote)) if local != remote => match common_ancestor(git, local, remote)? {
                Some(base) if base == local => (remote, None),
                Some(base) if base == remote => (local, None),
                Some(base) => (local, Some((base, remote))),
                None => (local, None),
            },
            (Some(local), _) => (local, None),
            // The tip is one of the two.
            (None, _) => (default.tip, None),
        })
    }

    /// The files that one of nugget's branches adds and that no reviewed commit has or has had, also under another path, to
    /// be served as pending. `None` if there is no such branch, or nothing in it.
    ///
    /// # Errors
    /// Those of [`default_branch`](Self::default_branch), and when history cannot be read.
    pub fn pending_files(&self, branch: &str) -> Result<Option<Overlay>, Error> {
        let git = self.git()?;
        let Some(commit) = tip(&git, &reference_name(branch)?)? else { return Ok(None) };
        let default = self.default_branch_of(&git)?;
        let base = self.branch_base(branch)?.filter(|base| git.has_object(base.0));
        let base = base.map(|base| tree_of(&git, base)).transpose()?;
        let reviewed = [default.local, default.remote].into_iter().flatten();
        let reviewed = reviewed.map(|tip| tree_of(&git, tip)).collect::<Result<Vec<_>, _>>()?;
        let mut files = BTreeMap::new();
        for file in files_beyond(base.as_ref(), &tree_of(&git, commit)?, "")? {
            let mut is_known = false;
            for tree in base.iter().chain(&reviewed) {
                is_known |= entry(tree, &file.path)?.is_some();
            }
            if !is_known {
                let size = git.find_header(file.id).during(|| format!("read {}", file.path))?.size();
                files.insert(file.path, Some(Blob { id: file.id, size }));
            }
        }
        if !files.is_empty() {
            for merged in self.merged_files(commit)?.into_iter().filter(|file| file.is_merged) {
                files.remove(&merged.path);
            }
        }
        Ok((!files.is_empty()).then(|| Overlay { commit, files, git: git.clone().into_sync() }))
    }

    /// Whether the work tree's file equals that of the checked-out commit (`None`: the commit has none), or is missing as a
    /// sparse checkout leaves it out.
    fn is_unedited(
        &self,
        git: &gix::Repository,
        path: &str,
        checked_out: Option<ObjectId>,
        is_left_out: bool,
    ) -> Result<bool, Error> {
        let Ok(found) = work_tree::read(self.root(), path) else { return Ok(false) };
        match (found, checked_out) {
            (WorkTreeFile::Missing, None) => Ok(true),
            (WorkTreeFile::Missing, Some(_)) => Ok(is_left_out),
            (WorkTreeFile::File(content), Some(id)) => {
                if hash(git, &content)? == id {
                    return Ok(true);
                }
                let known = git.find_blob(id).during(|| format!("read {path}"))?;
                Ok(has_same_lines(&known.data, &content))
            }
            _ => Ok(false),
        }
    }
}

/// The index of a sparse checkout, which tells what the work tree lacks without a person's having deleted it.
struct LeftOut {
    index: gix::worktree::Index,
}

impl LeftOut {
    /// `None` where the checkout is not sparse.
    fn read(git: &gix::Repository) -> Result<Option<Self>, Error> {
        if git.config_snapshot().boolean("core.sparseCheckout") != Some(true) {
            return Ok(None);
        }
        let index = git.try_index().during(|| "read the index".to_owned())?;
        Ok(index.map(|index| Self { index }))
    }

    /// Whether a file, or a folder around it that a sparse index has in place of its files, is left out.
    fn has(&self, path: &str) -> bool {
        let is_skipped = |name: &str| {
            let entry = self.index.entry_by_path_and_stage(name.into(), Stage::Unconflicted);
            entry.is_some_and(|entry| entry.flags.contains(Flags::SKIP_WORKTREE))
        };
        let in_folder = || path.match_indices('/').any(|(at, _)| is_skipped(&path[..=at]));
        is_skipped(path) || self.index.is_sparse() && in_folder()
    }
}

/// The paths at which two trees have different files.
pub(crate) fn differing(one: Option<&gix::Tree<'_>>, two: &gix::Tree<'_>) -> Result<BTreeSet<String>, Error> {
    let mut paths: BTreeSet<String> = files_beyond(one, two, "")?.into_iter().map(|file| file.path).collect();
    if let Some(one) = one {
        paths.extend(files_beyond(Some(two), one, "")?.into_iter().map(|file| file.path));
    }
    Ok(paths)
}

fn blob_at(tree: &gix::Tree<'_>, path: &str) -> Result<Option<ObjectId>, Error> {
    let found = entry(tree, path)?.filter(|found| found.mode().is_blob());
    Ok(found.map(|found| found.object_id()))
}
