//! What is served when the checkout is not at the newest reviewed commit: that commit's files, where the user
//! has no edit of their own that is not committed.

use std::collections::{BTreeMap, BTreeSet};

use gix::ObjectId;

use crate::error::{During as _, Error};
use crate::fast_forward::{Found, common_ancestor, hash, open_plain};
use crate::repository::{Branch, CommitId, Repository, entry, files_beyond, lines, read_blob, tip, tree_of};

/// What lies over the work tree, at one moment.
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
    /// In bytes.
    pub size: u64,
}

impl Blob {
    /// The first eight bytes of its name: two blobs that have the same are the same, but for an attack.
    pub fn id_prefix(&self) -> u64 {
        let (first, _) = self.id.as_bytes().split_at(8);
        first.iter().fold(0, |stamp, byte| stamp << 8 | u64::from(*byte))
    }
}

impl Overlay {
    /// The paths at which something else is served than what lies in the work tree; `None` for nothing.
    pub fn files(&self) -> impl Iterator<Item = (&str, Option<Blob>)> {
        self.files.iter().map(|(path, blob)| (path.as_str(), *blob))
    }

    /// The content of a file that is files over the work tree; `None` when none is.
    ///
    /// # Errors
    /// [`Error::TooLarge`], and when it cannot be read.
    pub fn read(&self, path: &str) -> Result<Option<Vec<u8>>, Error> {
        match self.files.get(path) {
            Some(Some(blob)) => read_blob(&self.git.to_thread_local(), self.commit, path, blob.id).map(Some),
            _ => Ok(None),
        }
    }
}

impl Repository {
    /// What is served in place of what is checked out; `None`, after a look at two references, when the newest
    /// reviewed commit is checked out.
    ///
    /// That commit is the remote's default branch, as last fetched, where the local one is behind it, and else
    /// the local one. Where both have commits of their own, each path is served as the one has it that has
    /// changed it, and as the local one has it when both have. What differs from the checked-out commit only
    /// in how its lines end is no edit.
    ///
    /// # Errors
    /// Those of [`default_branch`](Self::default_branch), and when history cannot be read.
    pub fn overlay(&self) -> Result<Option<Overlay>, Error> {
        let git = self.git()?;
        let default = self.default_branch_of(&git)?;
        let head = tip(&git, "HEAD")?;
        let (commit, other) = self.reviewed_tip(&git, &default)?;
        if head == Some(commit) && other.is_none() {
            return Ok(None);
        }
        let head = head.map(|head| tree_of(&git, head)).transpose()?;
        let tree = tree_of(&git, commit)?;
        let mut wanted: BTreeMap<String, Option<ObjectId>> = BTreeMap::new();
        for path in differing(head.as_ref(), &tree)? {
            let id = blob_at(&tree, &path)?;
            wanted.insert(path, id);
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
        for (path, id) in wanted {
            let checked_out = head.as_ref().map(|head| blob_at(head, &path)).transpose()?.flatten();
            if checked_out != id && self.is_unedited(&git, &path, checked_out)? {
                let size = |id: ObjectId| {
                    git.find_header(id).during(|| format!("read {path}")).map(|found| found.size())
                };
                let blob = id.map(|id| size(id).map(|size| Blob { id, size })).transpose()?;
                files.insert(path, blob);
            }
        }
        Ok(Some(Overlay { commit, files, git: git.clone().into_sync() }))
    }

    /// The newest reviewed commit, and where the remote's has gone another way since: from which commit, to
    /// which.
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

    /// Whether the work tree has a file as the checked-out commit has it (`None`: not at all).
    fn is_unedited(
        &self,
        git: &gix::Repository,
        path: &str,
        checked_out: Option<ObjectId>,
    ) -> Result<bool, Error> {
        let Ok(found) = open_plain(self.root(), path) else { return Ok(false) };
        match (found, checked_out) {
            (Found::Nothing, None) => Ok(true),
            (Found::File(content), Some(id)) => {
                if hash(git, &content)? == id {
                    return Ok(true);
                }
                let known = git.find_blob(id).during(|| format!("read {path}"))?;
                Ok(lines(&known.data).eq(lines(&content)))
            }
            _ => Ok(false),
        }
    }
}

/// The paths at which two trees have different files.
fn differing(one: Option<&gix::Tree<'_>>, two: &gix::Tree<'_>) -> Result<BTreeSet<String>, Error> {
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
