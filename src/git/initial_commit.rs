//! Creates the first commit of a brain without commits.

use std::collections::BTreeSet;

use gix::bstr::ByteSlice as _;
use jiff::Timestamp;

use crate::error::{During as _, Error};
use crate::lock::Lock;
use crate::objects::{CommitInfo, NewCommit};
use crate::path::HiddenNames;
use crate::references::{Edited, ReflogEntry, update};
use crate::repository::Repository;
use crate::types::{CommitId, Identity, NewFile};

impl Repository {
    /// Commits the files as the first commit of the branch that `HEAD` names, and adds them to the index, so
    /// that `git status` is clean. The work tree must have the files with the same content.
    ///
    /// Returns `None` and writes nothing if the repository has a commit already or the user has staged files:
    /// then the user commits them. An attempt that was killed can be repeated. The caller must not hold the
    /// repository's lock.
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
        let info = CommitInfo { author, time, message, merges: None };
        let new = NewCommit::new(&git, None, files, &[], HiddenNames::Allowed, &info)?;
        if has_staged_others(&git, files)? {
            return Ok(None);
        }
        new.write(&git)?;
        // The index before the branch: after a kill in between, the files are staged for the user's own first
        // commit. In the other order git would show them as deleted.
        if !git.is_bare() {
            self.write_index(&git, &new)?;
        }
        let name = branch.as_bstr().to_str_lossy().into_owned();
        let entry = ReflogEntry {
            author,
            seconds: time.as_second(),
            message: &format!("commit (initial): {}", message.trim().lines().next().unwrap_or_default()),
            is_head: true,
        };
        let held = Lock::acquire(&self.lock_path()?)?;
        if let Edited::Found(Some(_)) = update(&git, &held, &name, None, new.commit, Some(&entry))? {
            return Ok(None);
        }
        new.restore_after_gc(|| self.git())?;
        Ok(Some(CommitId(new.commit)))
    }

    fn write_index(&self, git: &gix::Repository, new: &NewCommit) -> Result<(), Error> {
        let writing = || "write the index".to_owned();
        let mut index = git.index_from_tree(&new.tree).during(writing)?;
        // The files' metadata, so that git need not read them to see that they are unchanged.
        for (entry, path) in index.entries_mut_with_paths() {
            let Ok(path) = path.to_path() else { continue };
            if let Ok(metadata) = gix::index::fs::Metadata::from_path_no_follow(&self.root().join(path)) {
                entry.stat = gix::index::entry::Stat::from_fs(&metadata).during(writing)?;
            }
        }
        index.write(gix::index::write::Options::default()).during(writing)
    }
}

/// Whether the index has entries other than these files, as after `git add` in a repository without commits.
fn has_staged_others(git: &gix::Repository, files: &[NewFile]) -> Result<bool, Error> {
    let Some(index) = git.try_index().during(|| "read the index".to_owned())? else { return Ok(false) };
    let ours: BTreeSet<&[u8]> = files.iter().map(|file| file.path.as_bytes()).collect();
    Ok(index.entries().iter().any(|entry| !ours.contains::<[u8]>(entry.path(&index).as_bytes())))
}
