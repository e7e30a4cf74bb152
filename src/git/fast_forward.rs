//! Merges a proposal or the fetched default branch into the local default branch if that is a fast-forward. The one
//! operation that changes the user's work tree, index and branch, and only when asked.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gix::bstr::{BString, ByteSlice as _};
use gix::index::entry::{Flags, Mode, Stage, Stat};

use crate::error::{During as _, Error};
use crate::filters::{Filtered, first_filtered};
use crate::lock::Lock;
use crate::objects::{hash, sync};
use crate::path::{self, HiddenNames};
use crate::ref_lock::{MarkedLock, sweep_one};
use crate::references::{Edited, ReflogEntry, head_of, reference_name, update, work_tree_folders};
use crate::repository::{Branch, Repository, blob_id, common_ancestor, read_blob, tip, tree_of, upstream};
use crate::review_snapshot::has_same_lines;
use crate::types::{BLOB_BYTES_MAX, CommitId, Identity};
use crate::work_tree::{self, WorkTreeFile};

/// The result of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FastForward {
    /// The default branch was moved.
    Done {
        /// The commit before the merge.
        from: CommitId,
        /// The commit after the merge.
        to: CommitId,
    },
    /// The default branch has the branch's commits already.
    AlreadyThere,
    /// The merge is not a fast-forward or not safe. Nothing was changed.
    Refused(Refusal),
}

/// Why a merge is left to the user. Paths are relative to the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `HEAD` names another branch, or no branch.
    OtherBranchCheckedOut(Option<String>),
    /// Only the remote has the default branch, as after it was renamed there.
    NoLocalBranch {
        /// The default branch.
        branch: String,
        /// The default branch with the remote's name before it.
        upstream: String,
        /// The branch that `HEAD` names.
        head: Option<String>,
    },
    /// The remote's default branch no longer has commits that it had, and that the local one has.
    RemoteRewritten {
        /// The default branch with the remote's name before it.
        upstream: String,
        /// The remote's commit before.
        removed: CommitId,
    },
    /// The default branch is checked out in another work tree, which would become outdated.
    CheckedOutElsewhere,
    /// Another operation, such as a rebase.
    InProgress(String),
    /// The default branch has commits that the branch does not have.
    NotAFastForward,
    /// The index differs from the commit at this path.
    Staged(String),
    /// The work tree differs from the index at this path.
    Changed(String),
    /// An untracked file is at the path of a new file or of its folder.
    UntrackedInTheWay(String),
    /// git has a filter for a file at this path, as of git-crypt or LFS.
    Filtered(String),
    /// The checkout has only some of the files.
    Sparse,
    /// The branch does more than add and edit plain files: what it does, and at which path.
    Unsupported(&'static str, String),
    /// Another git process has locked the index with this file.
    IndexLocked(PathBuf),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherBranchCheckedOut(Some(branch)) => write!(f, "{branch} is checked out"),
            Self::OtherBranchCheckedOut(None) => write!(f, "no branch is checked out"),
            Self::NoLocalBranch { branch, upstream, head } => {
                write!(
                    f,
                    "the remote's default branch is {branch}, and there is no branch of that name here: "
                )?;
                match head.as_ref().filter(|head| *head != branch) {
                    Some(head) => write!(
                        f,
                        "if {head} was renamed there, `git branch -m {head} {branch}`, then `git branch -u {upstream}`; \
                         else `git switch {branch}`"
                    ),
                    None => write!(f, "`git switch {branch}`"),
                }
            }
            Self::RemoteRewritten { upstream, removed } => {
                let removed = removed.to_string();
                write!(
                    f,
                    "{upstream} was rewritten and no longer has {removed:.10}, which is here: `git rebase --onto {upstream} \
                     {removed:.10}` follows it; a push or pull would keep what was removed"
                )
            }
            Self::CheckedOutElsewhere => {
                write!(f, "the default branch is checked out in another work tree")
            }
            Self::InProgress(what) => write!(f, "a {what} is in progress"),
            Self::NotAFastForward => {
                write!(
                    f,
                    "the default branch has commits that are not there; `git pull --no-rebase` joins both, then `git push`"
                )
            }
            Self::Staged(path) => write!(f, "{path} has staged changes"),
            Self::Changed(path) => write!(f, "{path} has uncommitted changes"),
            Self::UntrackedInTheWay(path) => write!(f, "the untracked file {path} is in the way"),
            Self::Filtered(path) => {
                write!(
                    f,
                    "git has a filter for {path}, which nugget does not run; use `git pull` or `git merge`"
                )
            }
            Self::Sparse => write!(f, "the checkout is sparse; use `git pull` or `git merge`"),
            Self::Unsupported(what, path) => write!(f, "the branch {what} {path}"),
            Self::IndexLocked(path) => write!(f, "another git process is running: {} exists", path.display()),
        }
    }
}

impl Refusal {
    /// Whether its text says by which commands of git it ends, whatever else the branches lack.
    pub fn names_its_fix(&self) -> bool {
        matches!(self, Self::NoLocalBranch { .. } | Self::RemoteRewritten { .. })
    }
}

/// How long to wait for another writer of the index, such as an editor's `git status`.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(1);

impl Repository {
    /// Merges one of nugget's branches into the default branch, which must be checked out, if that is a
    /// fast-forward and loses no change of the user's. A file that already has the branch's content is no
    /// obstacle.
    ///
    /// The files are written first, then the index, then the branch: after a kill in between, `git status` shows
    /// the files as untracked or modified, then as staged, and a repetition completes the merge. Files get the
    /// bytes of the commit; no filter is run. In a bare repository only the branch is moved.
    ///
    /// `held` proves that the repository's lock is held.
    ///
    /// # Errors
    /// [`Error::ForeignBranch`], [`Error::NoSuchBranch`], those of
    /// [`default_branch`](Self::default_branch), and failures of the disk; [`Error::BranchMoved`] when another
    /// process moves the default branch at the same time, and then the files stay staged.
    pub fn fast_forward(&self, held: &Lock, branch: &str) -> Result<FastForward, Error> {
        let git = self.git()?;
        let to = tip(&git, &reference_name(branch)?)?
            .ok_or_else(|| Error::NoSuchBranch { branch: branch.to_owned() })?;
        let default = self.default_branch_of(&git)?;
        let source = Source {
            name: branch.to_owned(),
            to,
            is_reviewed: false,
            may_remove: false,
            allows_other_edits: false,
        };
        self.merge(held, git, default, &source)
    }

    pub(crate) fn merge(
        &self,
        held: &Lock,
        git: gix::Repository,
        default: Branch,
        source: &Source,
    ) -> Result<FastForward, Error> {
        let mut merge = match Merge::prepare(self, Some(held), git, default, source)? {
            Ok(merge) => merge,
            Err(outcome) => return Ok(outcome),
        };
        merge.write_files()?;
        merge.write_index()?;
        merge.move_branch(held)?;
        Ok(FastForward::Done { from: merge.from, to: merge.to })
    }

    /// Why a merge would be refused. Takes no lock and writes nothing.
    pub(crate) fn refusal(
        &self,
        git: gix::Repository,
        default: Branch,
        source: &Source,
    ) -> Result<Option<Refusal>, Error> {
        match Merge::prepare(self, None, git, default, source)? {
            Err(FastForward::Refused(reason)) => Ok(Some(reason)),
            _ => Ok(None),
        }
    }
}

/// What is merged into the default branch.
pub(crate) struct Source {
    /// The name for the reflog.
    pub name: String,
    pub to: CommitId,
    /// Whether this is the remote's default branch, which people have reviewed: it may have hidden files. A proposal may
    /// not.
    pub is_reviewed: bool,
    /// Whether it may remove files: of a proposal only what a person has decided, file by file.
    pub may_remove: bool,
    /// Whether files that are not merged may have staged and uncommitted changes, as with `git merge`.
    pub allows_other_edits: bool,
}

/// A merge that was checked and is safe. Its lock keeps git processes from changing the index.
struct Merge {
    git: gix::Repository,
    branch: String,
    reference: String,
    from: CommitId,
    to: CommitId,
    /// `None` in a bare repository.
    tree: Option<WorkTree>,
}

struct WorkTree {
    root: PathBuf,
    index: gix::index::File,
    changes: Vec<Change>,
    _lock: Option<MarkedLock>,
}

/// A file that the branch adds, edits or removes.
struct Change {
    path: String,
    id: gix::ObjectId,
    /// The content after the merge; `None` to remove the file.
    content: Option<Vec<u8>>,
    /// Plain or executable.
    mode: Mode,
    is_new: bool,
    /// Whether the work tree has the result already.
    is_done: bool,
}

impl Change {
    /// Whether this is the file's state after the merge.
    fn is_result(&self, found: &WorkTreeFile) -> bool {
        match (&self.content, found) {
            (Some(new), WorkTreeFile::File(content)) => content == new,
            (None, WorkTreeFile::Missing) => true,
            _ => false,
        }
    }
}

impl Merge {
    /// Checks the merge. Without `held` it takes no locks, and the merge must not be executed.
    fn prepare(
        repository: &Repository,
        held: Option<&Lock>,
        git: gix::Repository,
        default: Branch,
        source: &Source,
    ) -> Result<Result<Self, FastForward>, Error> {
        let refused = |reason| Ok(Err(FastForward::Refused(reason)));
        let to = source.to;
        let reference = format!("refs/heads/{}", default.name);

        // A merge that was killed at its end leaves only this lock behind.
        if let Some(held) = held {
            sweep_one(&git.common_dir().join(&reference), held)?;
        }
        let lock = match held.filter(|_| !git.is_bare()) {
            None => None,
            Some(held) => match MarkedLock::take(git.common_dir(), &git.index_path(), held, LOCK_WAIT_MAX)? {
                Ok(lock) => Some(lock),
                Err(path) => return refused(Refusal::IndexLocked(path)),
            },
        };
        // From here on no other process checks out or commits in this work tree.
        let head = git.head_name().during(|| "read HEAD".to_owned())?;
        let is_here = head.as_ref().is_some_and(|head| head.as_bstr() == reference.as_str());
        let head = head.map(|head| head.shorten().to_str_lossy().into_owned());
        // Read again under the lock.
        let Some(from) = tip(&git, &reference)? else {
            let upstream = upstream(&git, &default);
            return refused(Refusal::NoLocalBranch { branch: default.name, upstream, head });
        };
        if !git.is_bare() && !is_here {
            return refused(Refusal::OtherBranchCheckedOut(head));
        }
        match common_ancestor(&git, from, to)? {
            Some(base) if base == to => return Ok(Err(FastForward::AlreadyThere)),
            Some(base) if base == from => {}
            // A person joins both already; git would refuse to pull.
            _ => {
                return refused(match git.state() {
                    Some(state) => Refusal::InProgress(operation(&state).to_owned()),
                    None => Refusal::NotAFastForward,
                });
            }
        }
        if is_checked_out_elsewhere(&git, &reference) {
            return refused(Refusal::CheckedOutElsewhere);
        }
        let tree = match git.is_bare() {
            true => None,
            false => {
                if let Some(state) = git.state() {
                    return refused(Refusal::InProgress(operation(&state).to_owned()));
                }
                match WorkTree::check(repository, &git, from, source, lock)? {
                    Ok(tree) => Some(tree),
                    Err(reason) => return refused(reason),
                }
            }
        };
        Ok(Ok(Self { git, branch: source.name.clone(), reference, from, to, tree }))
    }

    fn write_files(&mut self) -> Result<(), Error> {
        let Some(tree) = &mut self.tree else { return Ok(()) };
        for change in tree.changes.iter().filter(|change| !change.is_done) {
            match &change.content {
                Some(content) => {
                    let is_executable = change.mode == Mode::FILE_EXECUTABLE;
                    work_tree::write(&tree.root, &change.path, content, change.is_new, is_executable)?;
                }
                None => work_tree::remove(&tree.root, &change.path)?,
            }
        }
        Ok(())
    }

    /// Writes the index to a temporary file and renames it. The lock stays, so that no commit happens before
    /// the branch is moved.
    fn write_index(&mut self) -> Result<(), Error> {
        let Some(tree) = &mut self.tree else { return Ok(()) };
        let writing = || "write the index".to_owned();
        let mut new = Vec::new();
        let is_gone = |change: &&Change| change.content.is_none();
        let gone: BTreeSet<&[u8]> =
            tree.changes.iter().filter(is_gone).map(|change| change.path.as_bytes()).collect();
        tree.index.remove_entries(|_, path, _| gone.contains(path.as_bytes()));
        for change in tree.changes.iter().filter(|change| !is_gone(change)) {
            let path = tree.root.join(&change.path);
            let metadata =
                gix::index::fs::Metadata::from_path_no_follow(&path).map_err(Error::io("read", &path))?;
            let stat = Stat::from_fs(&metadata).during(writing)?;
            let name = change.path.as_bytes().as_bstr();
            match tree.index.entry_mut_by_path_and_stage(name, Stage::Unconflicted) {
                Some(entry) => (entry.id, entry.stat) = (change.id, stat),
                None => new.push((stat, change.id, change.mode, name)),
            }
        }
        for (stat, id, mode, name) in new {
            tree.index.dangerously_push_entry(stat, id, Flags::empty(), mode, name);
        }
        tree.index.sort_entries();
        // The cached trees are those before the merge.
        tree.index.remove_tree();
        let target = tree.index.path().to_owned();
        let path = target.with_file_name("nugget-index.tmp");
        let mut file = File::create(&path).map_err(Error::io("create", &path))?;
        let mut bytes = Vec::new();
        tree.index.write_to(&mut bytes, gix::index::write::Options::default()).during(writing)?;
        file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(Error::io("write", &path))?;
        if let Ok(metadata) = target.metadata() {
            file.set_permissions(metadata.permissions()).map_err(Error::io("write", &path))?;
        }
        std::fs::rename(&path, &target).map_err(Error::io("replace", &target))?;
        target.parent().map_or(Ok(()), sync)
    }

    fn move_branch(&self, held: &Lock) -> Result<(), Error> {
        let entry = ReflogEntry {
            author: &Identity::default(),
            seconds: jiff::Timestamp::now().as_second(),
            message: &format!("merge {}: Fast-forward", self.branch),
            is_head: self.tree.is_some(),
        };
        match update(&self.git, held, &self.reference, Some(self.from.0), self.to.0, Some(&entry))? {
            Edited::Done => Ok(()),
            Edited::Found(_) => Err(Error::BranchMoved { branch: self.reference.clone() }),
        }
    }
}

impl WorkTree {
    /// Checks that each tracked file is as in the index, and the index as in the commit, except where they
    /// already have the state after the merge.
    fn check(
        repository: &Repository,
        git: &gix::Repository,
        from: CommitId,
        source: &Source,
        lock: Option<MarkedLock>,
    ) -> Result<Result<Self, Refusal>, Error> {
        let to = source.to;
        let (before, after) = (files_of(git, from)?, files_of(git, to)?);
        let display = |path: &BString| path.to_str_lossy().into_owned();
        let hidden = if source.is_reviewed { HiddenNames::Allowed } else { HiddenNames::Refused };
        let root = repository.root().to_owned();
        let mut changes = Vec::new();
        for path in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
            let (old, new) = (before.get(path), after.get(path));
            let Some(&(id, mode)) = new.or(old).filter(|_| old != new) else { continue };
            let unsupported = |what| Ok(Err(Refusal::Unsupported(what, display(path))));
            let (irregular, unusual) = match new {
                Some(_) => ("has something other than a plain file at", "writes to the unusual path"),
                None if !source.may_remove => return unsupported("removes"),
                None => ("removes", "removes"),
            };
            // An executable file may be edited, as on some disks all are; no file becomes one.
            let is_plain = match old {
                Some((_, before)) => *before == mode && matches!(mode, Mode::FILE | Mode::FILE_EXECUTABLE),
                None => mode == Mode::FILE,
            };
            if !is_plain {
                return unsupported(irregular);
            }
            let is_known = source.is_reviewed || old.is_some();
            let is_allowed = |path: &&str| path::check(path, hidden, is_known).is_ok();
            let Some(name) = path.to_str().ok().filter(is_allowed) else {
                return unsupported(unusual);
            };
            let content = match new.map(|_| read_blob(git, to, name, id)).transpose() {
                Err(Error::TooLarge { .. }) => return unsupported("has the very large file"),
                content => content?,
            };
            let (path, is_new) = (name.to_owned(), old.is_none());
            changes.push(Change { path, id, content, mode, is_new, is_done: false });
        }

        let paths = changes.iter().map(|change| change.path.as_str());
        if let Some(Filtered { path, .. }) = first_filtered(git, to, paths)? {
            return Ok(Err(Refusal::Filtered(path)));
        }
        let index = match git.open_index() {
            Ok(index) => index,
            // As after `rm .git/index`: git shows all files as deleted.
            Err(_) if !git.index_path().exists() => {
                let path = before.keys().next().map(display).unwrap_or_default();
                return Ok(Err(Refusal::Staged(path)));
            }
            Err(error) => return Err(error).during(|| "read the index".to_owned()),
        };
        // Which folders a sparse checkout has is not read: what a person merges of a proposal is written, what comes
        // from the remote may be meant to stay away.
        let is_partial = || git.config_snapshot().boolean("core.sparseCheckout") == Some(true);
        let has_new = || changes.iter().any(|change| change.is_new);
        if index.is_sparse() || (source.is_reviewed && has_new() && is_partial()) {
            return Ok(Err(Refusal::Sparse));
        }
        let has_modes = git.config_snapshot().boolean("core.fileMode").unwrap_or(true);
        for entry in index.entries() {
            let path = entry.path(&index).to_owned();
            let is_merged = || before.get(&path) != after.get(&path);
            if source.allows_other_edits && entry.stage() == Stage::Unconflicted && !is_merged() {
                continue;
            }
            let found = Some((entry.id, entry.mode));
            let is_plain =
                entry.stage() == Stage::Unconflicted && !entry.flags.contains(Flags::INTENT_TO_ADD);
            let change = path
                .to_str()
                .ok()
                .and_then(|path| changes.binary_search_by(|change| change.path.as_str().cmp(path)).ok());
            let is_known = before.get(&path).copied() == found || after.get(&path).copied() == found;
            let is_known = match change {
                Some(at) if !is_known => was_between(git, from, to, &changes[at].path, entry.id)?,
                _ => is_known,
            };
            if !is_plain || !is_known {
                return Ok(Err(Refusal::Staged(display(&path))));
            }
            let unseen = entry.flags.intersects(Flags::SKIP_WORKTREE | Flags::ASSUME_VALID);
            match change {
                Some(_) if unseen => {
                    return Ok(Err(Refusal::Unsupported("edits the hidden file", display(&path))));
                }
                Some(at) => {
                    let change = &mut changes[at];
                    let found = work_tree::read(&root, &change.path)?;
                    change.is_done = change.is_result(&found);
                    // A file that will be replaced is compared by content, not by its timestamp.
                    let is_unedited = || match &found {
                        WorkTreeFile::File(content) => {
                            let id = hash(git, content)?;
                            Ok(id == entry.id
                                || is_converted(git, entry.id, content)?
                                || was_between(git, from, to, &change.path, id)?)
                        }
                        WorkTreeFile::Missing | WorkTreeFile::Other => Ok::<_, Error>(false),
                    };
                    if !change.is_done && !is_unedited()? {
                        return Ok(Err(Refusal::Changed(change.path.clone())));
                    }
                }
                None if unseen || entry.mode == Mode::COMMIT => {}
                None if is_clean(git, &root, &index, entry, has_modes)? => {}
                None => return Ok(Err(Refusal::Changed(display(&path)))),
            }
        }
        // A removed file may be missing in the index already.
        let is_kept = |path: &&BString| match after.get(*path) {
            Some(after) => !source.allows_other_edits || before.get(*path) != Some(after),
            None => false,
        };
        let mut kept = before.keys().filter(is_kept);
        if let Some(path) = kept.find(|path| index.entry_by_path(path.as_bstr()).is_none()) {
            return Ok(Err(Refusal::Staged(display(path))));
        }
        for change in changes.iter_mut().filter(|change| !change.is_done) {
            let found = work_tree::read(&root, &change.path)?;
            change.is_done = change.is_result(&found);
            if change.is_new && !change.is_done && !matches!(found, WorkTreeFile::Missing) {
                let is_ours = match &found {
                    WorkTreeFile::File(content) => {
                        was_between(git, from, to, &change.path, hash(git, content)?)?
                    }
                    _ => false,
                };
                if !is_ours {
                    return Ok(Err(Refusal::UntrackedInTheWay(change.path.clone())));
                }
                change.is_new = false;
            }
            // In the work tree but not in the index: the user keeps it, as after `git rm --cached`.
            let is_indexed = || index.entry_by_path(change.path.as_bytes().as_bstr()).is_some();
            if change.content.is_none() && !change.is_done && !is_indexed() {
                return Ok(Err(Refusal::Staged(change.path.clone())));
            }
        }
        Ok(Ok(Self { root, index, changes, _lock: lock }))
    }
}

pub(crate) fn is_checked_out_elsewhere(git: &gix::Repository, reference: &str) -> bool {
    let own = git.git_dir().canonicalize().ok();
    work_tree_folders(git)
        .iter()
        .any(|folder| folder.canonicalize().ok() != own && head_of(folder) == format!("ref: {reference}"))
}

pub(crate) fn operation(state: &gix::state::InProgress) -> &'static str {
    use gix::state::InProgress;
    match state {
        InProgress::ApplyMailbox | InProgress::ApplyMailboxRebase => "`git am`",
        InProgress::Bisect => "bisection",
        InProgress::CherryPick | InProgress::CherryPickSequence => "cherry-pick",
        InProgress::Merge => "merge",
        InProgress::Rebase | InProgress::RebaseInteractive => "rebase",
        InProgress::Revert | InProgress::RevertSequence => "revert",
    }
}

/// All files of a commit with their modes as in the index.
fn files_of(
    git: &gix::Repository,
    commit: CommitId,
) -> Result<BTreeMap<BString, (gix::ObjectId, Mode)>, Error> {
    let tree = tree_of(git, commit)?.id;
    let index = git.index_from_tree(&tree).during(|| format!("read the files of {commit}"))?;
    let entries = index.entries().iter();
    Ok(entries.map(|entry| (entry.path(&index).to_owned(), (entry.id, entry.mode))).collect())
}

/// How many commits are searched for what a killed merge has left behind.
const COMMITS_BETWEEN_MAX: usize = 1000;

/// Whether a commit that is merged has this content at the path: a merge up to there was killed.
fn was_between(
    git: &gix::Repository,
    from: CommitId,
    to: CommitId,
    path: &str,
    id: gix::ObjectId,
) -> Result<bool, Error> {
    let walking = || format!("walk the history of {to}");
    let walk = git.rev_walk([to.0]).with_hidden([from.0]).all().during(walking)?;
    for commit in walk.take(COMMITS_BETWEEN_MAX) {
        if blob_id(git, CommitId(commit.during(walking)?.id), path)? == Some(id) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a work tree's file is a tracked one whose line endings git has changed.
fn is_converted(git: &gix::Repository, tracked: gix::ObjectId, content: &[u8]) -> Result<bool, Error> {
    let comparing = || format!("compare {tracked}");
    if git.find_header(tracked).during(comparing)?.size().max(content.len() as u64) > BLOB_BYTES_MAX {
        return Ok(false);
    }
    Ok(has_same_lines(&git.find_blob(tracked).during(comparing)?.data, content))
}

/// Whether a tracked file is as in the index: by its timestamp or, if that does not decide, by its content.
fn is_clean(
    git: &gix::Repository,
    root: &Path,
    index: &gix::index::File,
    entry: &gix::index::Entry,
    has_modes: bool,
) -> Result<bool, Error> {
    let Ok(name) = entry.path(index).to_path() else { return Ok(false) };
    let path = root.join(name);
    let metadata = match gix::index::fs::Metadata::from_path_no_follow(&path) {
        Ok(metadata) => metadata,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(false);
        }
        Err(error) => return Err(Error::io("read", path)(error)),
    };
    let reading = || format!("compare {}", path.display());
    let same_kind = match entry.mode {
        Mode::SYMLINK => metadata.is_symlink(),
        Mode::FILE_EXECUTABLE => metadata.is_file() && (metadata.is_executable() || !has_modes),
        Mode::FILE => metadata.is_file() && (!metadata.is_executable() || !has_modes),
        _ => false,
    };
    if !same_kind {
        return Ok(false);
    }
    let options = gix::index::entry::stat::Options::default();
    let stat = Stat::from_fs(&metadata).during(reading)?;
    if entry.stat.matches(&stat, options) && !entry.stat.is_racy(index.timestamp(), options) {
        return Ok(true);
    }
    // The size first: a large file of another size need not be read.
    let has_same_size = git.find_header(entry.id).during(reading)?.size() == metadata.len();
    if !has_same_size && metadata.len() > BLOB_BYTES_MAX {
        return Ok(false);
    }
    let content = match entry.mode {
        Mode::SYMLINK => std::fs::read_link(&path).map(|to| to.into_os_string().into_encoded_bytes()),
        _ => std::fs::read(&path),
    };
    let content = content.map_err(Error::io("read", &path))?;
    Ok(hash(git, &content)? == entry.id
        || (entry.mode != Mode::SYMLINK && is_converted(git, entry.id, &content)?))
}

#[cfg(test)]
mod tests;
