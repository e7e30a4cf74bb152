//! Brings what a person has chosen from a proposal to the default branch: a commit is prepared on any base, then the
//! local branch is moved to it as by a fast-forward.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::command::GitCommand;
use crate::error::{During as _, Error};
use crate::fast_forward::{FastForward, Refusal, Source, is_checked_out_elsewhere, operation};
use crate::lock::Lock;
use crate::objects::{CommitInfo, NewCommit};
use crate::path::HiddenNames;
use crate::ref_lock::sweep_one;
use crate::references::{Edited, ReflogEntry, is_in_use, reference_name, update};
use crate::repository::{Repository, branches, common_ancestor, read_blob};
use crate::review_branches::{changed_files, removed_files};
use crate::types::{BRANCH_PREFIX, CommitId, Identity, NewFile};

/// How long one call of git may take that uses neither network nor work tree.
const DEADLINE: Duration = Duration::from_secs(20);
/// The files that `git merge-file` compares, in the git folder. Always the same names, as the lock allows one at a
/// time and a killed process leaves them behind.
const MERGE_FILES: [&str; 3] = ["nugget-merge-ours.tmp", "nugget-merge-base.tmp", "nugget-merge-theirs.tmp"];

/// The lines between which [`Repository::merge_text`] puts both texts of a conflict.
pub const CONFLICT_LINES: [&str; 3] = ["<<<<<<< main", "=======", ">>>>>>> proposed"];

/// A commit that brings files of a branch onto a base of the caller's choice.
#[derive(Clone, Debug)]
pub struct Merge<'a> {
    /// The commit to build on.
    pub base: CommitId,
    /// The branch's commit, if all of the branch is merged: it becomes the second parent.
    pub branch: Option<CommitId>,
    /// The files as they are after the merge.
    pub files: &'a [NewFile],
    /// The paths of the files that it removes.
    pub removes: &'a [String],
    /// The commit message.
    pub message: &'a str,
    /// The date of author and committer, to the second.
    pub time: Timestamp,
    /// Author and committer.
    pub author: &'a Identity,
}

/// A commit whose objects are stored, but which no reference names yet.
pub struct PreparedMerge {
    new: NewCommit,
}

impl PreparedMerge {
    /// The commit.
    pub fn commit(&self) -> CommitId {
        CommitId(self.new.commit)
    }
}

/// A file that a branch adds or changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchFile {
    /// The path relative to the root.
    pub path: String,
    /// The content that the branch has changed: where it was started or, if the default branch has got an earlier version
    /// of the branch since, that version. `None` if the branch adds the file.
    pub base: Option<Vec<u8>>,
    /// The content on the branch.
    pub content: Vec<u8>,
}

/// What a commit changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The files that it adds or changes.
    pub files: Vec<BranchFile>,
    /// The files that it removes: path and content.
    pub removals: Vec<(String, Vec<u8>)>,
}

/// Two texts that were merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergedText {
    /// Both edits are in it.
    Clean(Vec<u8>),
    /// Both changed the same lines, which stand between git's conflict markers.
    Conflict(Vec<u8>),
}

impl Repository {
    /// The files that a branch adds or changes, as [`branch_files`](Self::branch_files), with what they were before.
    ///
    /// # Errors
    /// As [`branch_files`](Self::branch_files).
    pub fn branch_changes(&self, branch: &str) -> Result<Vec<BranchFile>, Error> {
        let base = self.branch_base(branch)?;
        let git = self.git()?;
        // In a shallow clone the parent may be missing.
        let base = base.filter(|base| git.has_object(base.0));
        let mut files = Vec::new();
        for (path, content) in self.branch_files(branch)? {
            let base = match self.merged_version(branch, base, &path)? {
                Some(merged) => Some(merged),
                None => base.map(|base| self.read_at(base, &path)).transpose()?.flatten(),
            };
            files.push(BranchFile { path, base, content });
        }
        Ok(files)
    }

    /// The files that the branch's base has and the branch no longer has, as pairs of path and content. A file larger
    /// than [`BLOB_BYTES_MAX`](crate::BLOB_BYTES_MAX) is left out.
    ///
    /// # Errors
    /// As [`branch_files`](Self::branch_files).
    pub fn branch_removals(&self, branch: &str) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let git = self.git()?;
        let (Some(tip), Some(base)) = (self.tip(branch)?, self.branch_base(branch)?) else {
            return Ok(Vec::new());
        };
        let mut removed = Vec::new();
        for file in removed_files(&git, Some(base), tip)? {
            match read_blob(&git, base, &file.path, file.id) {
                Ok(content) => removed.push((file.path, content)),
                Err(error @ Error::TooLarge { .. }) => tracing::warn!(%error, "left a file out"),
                Err(error) => return Err(error),
            }
        }
        Ok(removed)
    }

    /// What a commit changes since it and another one were the same: the files that it adds or changes, and those that it
    /// removes as pairs of path and content.
    ///
    /// # Errors
    /// [`Error::TooLarge`], and when a commit or the history cannot be read.
    pub fn changes_since_fork(&self, commit: CommitId, other: CommitId) -> Result<Changes, Error> {
        let git = self.git()?;
        let base = common_ancestor(&git, commit, other)?;
        let mut changes = Changes::default();
        for file in changed_files(&git, base, commit)? {
            let base = base.map(|base| self.read_at(base, &file.path)).transpose()?.flatten();
            let content = read_blob(&git, commit, &file.path, file.id)?;
            changes.files.push(BranchFile { path: file.path, base, content });
        }
        if let Some(base) = base {
            for file in removed_files(&git, Some(base), commit)? {
                let content = read_blob(&git, base, &file.path, file.id)?;
                changes.removals.push((file.path, content));
            }
        }
        Ok(changes)
    }

    /// nugget's local branches that are merged, with their commits.
    ///
    /// # Errors
    /// As [`is_merged`](Self::is_merged).
    pub fn merged_branches(&self) -> Result<Vec<(String, CommitId)>, Error> {
        let mut branches = branches(&self.git()?, &format!("refs/heads/{BRANCH_PREFIX}"))?;
        let merged = self.merged_among(branches.iter().map(|(_, commit)| *commit), None)?;
        branches.retain(|(_, commit)| merged.contains(commit));
        Ok(branches)
    }

    /// Merges two edits of a text line by line, as `git merge-file` does. `held` proves that the repository's lock is
    /// held.
    ///
    /// # Errors
    /// [`Error::NoGit`], and failures of the disk.
    pub fn merge_text(
        &self,
        held: &Lock,
        base: &[u8],
        ours: &[u8],
        theirs: &[u8],
    ) -> Result<MergedText, Error> {
        let _ = held;
        let git = self.git()?;
        let folder = git.common_dir().canonicalize().map_err(Error::io("find", git.common_dir()))?;
        for (name, content) in MERGE_FILES.into_iter().zip([ours, base, theirs]) {
            let path = folder.join(name);
            std::fs::write(&path, content).map_err(Error::io("write", path))?;
        }
        let mut command = GitCommand::new(&folder, None, true);
        command.arguments(["merge-file", "-p", "-q", "-L", "main", "-L", "before", "-L", "proposed"]);
        command.arguments(MERGE_FILES);
        let output = command.run(Instant::now() + DEADLINE);
        for name in MERGE_FILES {
            let _ = std::fs::remove_file(folder.join(name));
        }
        let output = output?;
        match (output.is_success, output.stdout.is_empty()) {
            (true, _) => Ok(MergedText::Clean(output.stdout)),
            (false, false) => Ok(MergedText::Conflict(output.stdout)),
            (false, true) => Err(output.failure()),
        }
    }

    /// The name and address that the user has given git; `None` if either is missing or git cannot be asked.
    pub fn user_identity(&self) -> Option<Identity> {
        let mut command = GitCommand::new(self.root(), None, true);
        command.arguments(["config", "--null", "--get-regexp", r"^user\.(name|email)$"]);
        let printed = command.run(Instant::now() + DEADLINE).ok()?.ok().ok()?;
        let printed = String::from_utf8(printed).ok()?;
        let (mut name, mut email) = (None, None);
        // The last value counts.
        for (key, value) in printed.split('\0').filter_map(|entry| entry.split_once('\n')) {
            let value = knowledge::text::one_line(value, 200).replace(['<', '>'], "");
            let value = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
            match key {
                "user.name" => name = value,
                _ => email = value,
            }
        }
        Some(Identity { name: name?, email: email? })
    }

    /// Whether the user has git sign commits, which those that are made here are not. `false` if git cannot be asked.
    pub fn signs_commits(&self) -> bool {
        let mut command = GitCommand::new(self.root(), None, true);
        command.arguments(["config", "--type=bool", "--get", "commit.gpgSign"]);
        let printed = command.run(Instant::now() + DEADLINE);
        printed.is_ok_and(|output| output.is_success && output.stdout.trim_ascii() == b"true")
    }

    /// Stores the objects of a commit for the default branch. `None` if the base has all files as they are and no
    /// branch is to become a parent. No reference is changed.
    ///
    /// # Errors
    /// As [`propose`](Self::propose).
    pub fn prepare_merge(&self, held: &Lock, merge: &Merge<'_>) -> Result<Option<PreparedMerge>, Error> {
        let _ = held;
        let git = self.git()?;
        let info = CommitInfo {
            author: merge.author,
            time: merge.time,
            message: merge.message,
            merges: merge.branch,
        };
        let new =
            NewCommit::new(&git, Some(merge.base), merge.files, merge.removes, HiddenNames::Refused, &info)?;
        if new.files == 0 && merge.branch.is_none() {
            return Ok(None);
        }
        new.write(&git)?;
        Ok(Some(PreparedMerge { new }))
    }

    /// Moves the local default branch to a prepared commit; see [`advance_default`](Self::advance_default).
    ///
    /// # Errors
    /// As [`fast_forward`](Self::fast_forward).
    pub fn complete_merge(
        &self,
        held: &Lock,
        merge: &PreparedMerge,
        name: &str,
    ) -> Result<FastForward, Error> {
        let outcome = self.advance_default(held, merge.commit(), name)?;
        if matches!(outcome, FastForward::Done { .. }) {
            merge.new.restore_after_gc(|| self.git())?;
        }
        Ok(outcome)
    }

    /// Moves one of nugget's branches from its commit to a prepared one that contains it.
    ///
    /// # Errors
    /// [`Error::CheckedOut`] when a work tree has the branch, [`Error::BranchMoved`] when it is not at `from`,
    /// [`Error::ForeignBranch`], and failures of the disk.
    pub fn move_branch(
        &self,
        held: &Lock,
        branch: &str,
        from: CommitId,
        to: &PreparedMerge,
    ) -> Result<(), Error> {
        let git = self.git()?;
        if is_in_use(&git, branch) {
            return Err(Error::CheckedOut { branch: branch.to_owned() });
        }
        let reference = reference_name(branch)?;
        if update(&git, held, &reference, Some(from.0), to.commit().0, None)? != Edited::Done {
            return Err(Error::BranchMoved { branch: branch.to_owned() });
        }
        to.new.restore_after_gc(|| self.git())
    }

    /// Moves the local default branch forward to a commit. Where the branch is checked out, its files and the index
    /// follow, as with [`fast_forward`](Self::fast_forward); unlike there, edits and staged changes of files that the
    /// commit does not change stay as they are. Where no work tree has the branch, only the branch is moved.
    ///
    /// # Errors
    /// As [`fast_forward`](Self::fast_forward).
    pub fn advance_default(&self, held: &Lock, to: CommitId, name: &str) -> Result<FastForward, Error> {
        let git = self.git()?;
        let default = self.default_branch_of(&git)?;
        let reference = format!("refs/heads/{}", default.name);
        let head = git.head_name().during(|| "read HEAD".to_owned())?;
        let is_here = head.is_some_and(|head| head.as_bstr() == reference.as_str());
        let from = match default.local {
            Some(from) if !is_here && !git.is_bare() => from,
            _ => {
                let source = Source {
                    name: name.to_owned(),
                    to,
                    is_reviewed: false,
                    may_remove: true,
                    allows_other_edits: true,
                };
                return self.merge(held, git, default, &source);
            }
        };
        if is_in_use(&git, &default.name) {
            // During a rebase the branch is not checked out, but git returns to it.
            let own = git.state().filter(|_| !is_checked_out_elsewhere(&git, &reference));
            let refusal = own.map(|state| Refusal::InProgress(operation(&state).to_owned()));
            return Ok(FastForward::Refused(refusal.unwrap_or(Refusal::CheckedOutElsewhere)));
        }
        match common_ancestor(&git, from, to)? {
            Some(base) if base == to => return Ok(FastForward::AlreadyThere),
            Some(base) if base == from => {}
            _ => return Ok(FastForward::Refused(Refusal::NotAFastForward)),
        }
        sweep_one(&git.common_dir().join(&reference), held)?;
        let entry = ReflogEntry {
            author: &Identity::default(),
            seconds: Timestamp::now().as_second(),
            message: &format!("merge {name}: Fast-forward"),
            is_head: false,
        };
        match update(&git, held, &reference, Some(from.0), to.0, Some(&entry))? {
            Edited::Done => Ok(FastForward::Done { from, to }),
            Edited::Found(_) => Err(Error::BranchMoved { branch: default.name }),
        }
    }
}

#[cfg(test)]
mod tests;
