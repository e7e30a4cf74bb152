//! The first commit of a brain that has none.

use std::collections::BTreeSet;

use gix::bstr::ByteSlice as _;
use jiff::Timestamp;

use crate::error::{During as _, Error};
use crate::lock::Lock;
use crate::objects::{Draft, Stamp};
use crate::path::Hidden;
use crate::propose::{Identity, NewFile};
use crate::references::{Edited, Entry, update};
use crate::repository::{CommitId, Repository};

impl Repository {
    /// Commits the files as the first commit of the branch that `HEAD` names, and enters them into
    /// the index, so that `git status` is clean. They must lie in the work tree with these very bytes.
    ///
    /// `None`, and nothing is written, when there is a commit already or the user has staged files:
    /// the files are then left for the user to commit. An attempt that was killed can be repeated. The
    /// repository's lock must not be held by the caller.
    ///
    /// # Errors
    /// [`Error::InvalidPath`], [`Error::PathTaken`], [`Error::InvalidCommit`], and failures of the
    /// disk.
    pub fn create_initial_commit(
        &self,
        files: &[NewFile],
        message: &str,
        time: Timestamp,
        author: &Identity,
    ) -> Result<Option<CommitId>, Error> {
        let git = self.git()?;
        let head = git.head().during(|| "read HEAD".to_owned())?;
        let (true, Some(branch)) = (head.is_unborn(), head.referent_name().map(ToOwned::to_owned)) else {
            return Ok(None);
        };
        let stamp = Stamp { by: author, at: time, message };
        let draft = Draft::new(&git, None, files, Hidden::Allowed, &stamp)?;
        if has_staged_others(&git, files)? {
            return Ok(None);
        }
        draft.write(&git)?;
        // Before the branch: killed in between, the files are staged for the user's own first commit.
        // The other way round they would appear as deleted.
        if !git.is_bare() {
            self.write_index(&git, &draft)?;
        }
        let name = branch.as_bstr().to_str_lossy().into_owned();
        let entry = Entry {
            by: author,
            seconds: time.as_second(),
            message: &format!("commit (initial): {}", message.trim().lines().next().unwrap_or_default()),
            is_head: true,
        };
        let held = Lock::acquire(&self.lock_path()?)?;
        if let Edited::Found(Some(_)) = update(&git, &held, &name, None, draft.commit, Some(&entry))? {
            return Ok(None);
        }
        draft.outlast_collector(|| self.git())?;
        Ok(Some(CommitId(draft.commit)))
    }

    fn write_index(&self, git: &gix::Repository, draft: &Draft) -> Result<(), Error> {
        let writing = || "write the index".to_owned();
        let mut index = git.index_from_tree(&draft.tree).during(writing)?;
        // What the files look like on the disk, so that git need not read them to see that they are
        // unchanged.
        for (entry, path) in index.entries_mut_with_paths() {
            let Ok(path) = path.to_path() else { continue };
            if let Ok(metadata) = gix::index::fs::Metadata::from_path_no_follow(&self.root().join(path)) {
                entry.stat = gix::index::entry::Stat::from_fs(&metadata).during(writing)?;
            }
        }
        index.write(gix::index::write::Options::default()).during(writing)
    }
}

/// Whether the index has entries that are not among the files, as after `git add` in a repository
/// without commits.
fn has_staged_others(git: &gix::Repository, files: &[NewFile]) -> Result<bool, Error> {
    let Some(index) = git.try_index().during(|| "read the index".to_owned())? else { return Ok(false) };
    let ours: BTreeSet<&[u8]> = files.iter().map(|file| file.path.as_bytes()).collect();
    Ok(index.entries().iter().any(|entry| !ours.contains::<[u8]>(entry.path(&index).as_bytes())))
}
