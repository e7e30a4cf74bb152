//! Merging one of nugget's branches into the default branch where that is a fast-forward: the one
//! operation that changes the user's work tree, index and branch, and only when asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gix::bstr::{BString, ByteSlice as _};
use gix::index::entry::{Flags, Mode, Stage, Stat};
use gix::objs::Kind;
use rustix::fs::{AtFlags, CWD, OFlags};
use rustix::io::Errno;

use crate::error::{During as _, Error};
use crate::lock::Lock;
use crate::objects::sync;
use crate::path::{self, Hidden};
use crate::propose::{Identity, reference_name};
use crate::ref_lock::{MarkedLock, sweep_one};
use crate::references::{Edited, Entry, update};
use crate::repository::{Branch, CommitId, Repository, read_blob, tip, tree_of};

/// What became of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FastForward {
    Done {
        from: CommitId,
        to: CommitId,
    },
    /// The default branch has the branch's commits.
    AlreadyThere,
    /// It would not be safe or not be a fast-forward; nothing was changed.
    Refused(Refusal),
}

/// Why a merge is left to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `HEAD` is elsewhere: on this branch, or on none.
    OtherBranchCheckedOut(Option<String>),
    /// The default branch is checked out in another work tree, which would fall behind.
    CheckedOutElsewhere,
    /// Such as a rebase.
    InProgress(String),
    /// The default branch has commits that the branch has not.
    NotAFastForward,
    /// A path at which index and commit differ.
    Staged(String),
    /// A path at which work tree and index differ.
    Changed(String),
    /// A file that git does not track lies where a new one goes, or where its folder goes.
    InTheWay(String),
    /// The branch does more than adding and editing plain files: what, and where.
    Beyond(&'static str, String),
    /// Another git process has the index.
    IndexLocked(PathBuf),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherBranchCheckedOut(Some(branch)) => write!(f, "{branch} is checked out"),
            Self::OtherBranchCheckedOut(None) => write!(f, "no branch is checked out"),
            Self::CheckedOutElsewhere => {
                write!(f, "the default branch is checked out in another work tree")
            }
            Self::InProgress(what) => write!(f, "a {what} is in progress"),
            Self::NotAFastForward => {
                write!(f, "the default branch has commits that the branch has not")
            }
            Self::Staged(path) => write!(f, "{path} has staged changes"),
            Self::Changed(path) => write!(f, "{path} has changes that are not committed"),
            Self::InTheWay(path) => write!(f, "{path} is in the way and not tracked by git"),
            Self::Beyond(what, path) => write!(f, "the branch {what} {path}"),
            Self::IndexLocked(path) => write!(f, "another git is at work: {} exists", path.display()),
        }
    }
}

/// How long another writer of the index is waited for, such as an editor's `git status`.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(1);

/// The name under which a file's content is written before it gets its own. Always the same, so that
/// what a killed process left is written over.
const TEMPORARY: &str = ".nugget-merge.tmp";

impl Repository {
    /// Merges one of nugget's branches into the default branch, which must be checked out, when that
    /// is a fast-forward and loses nothing of the user's. A file that is there already with the very
    /// content that the branch gives it is no obstacle.
    ///
    /// Files come first, then the index, then the branch: killed in between, `git status` shows the
    /// files as untracked or modified, then as staged, and a repetition completes the merge. Files get
    /// the bytes of the commit, no filter is run. In a bare repository only the branch is moved.
    ///
    /// `held` proves that the repository's lock is held.
    ///
    /// # Errors
    /// [`Error::ForeignBranch`], [`Error::NoSuchBranch`], those of
    /// [`default_branch`](Self::default_branch), and failures of the disk; also when somebody else
    /// moves the default branch at this very moment, in which case the files are left staged.
    pub fn fast_forward(&self, held: &Lock, branch: &str) -> Result<FastForward, Error> {
        let git = self.git()?;
        let to = tip(&git, &reference_name(branch)?)?
            .ok_or_else(|| Error::NoSuchBranch { branch: branch.to_owned() })?;
        let default = self.default_branch_of(&git)?;
        self.merge(held, git, default, &Source { name: branch.to_owned(), to, is_reviewed: false })
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

    /// Why a merge would be refused. Nothing is locked or written.
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
    /// As the reflog tells it.
    pub name: String,
    pub to: CommitId,
    /// Whether it is the remote's default branch, which a person has made what it is: it may remove files
    /// and have hidden ones. A proposal may not.
    pub is_reviewed: bool,
}

/// A merge that has been found safe. No git process changes the index while it lives.
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
    becomes: Becomes,
    /// Whether it lies in the work tree as it should.
    is_there: bool,
}

enum Becomes {
    New(Vec<u8>),
    Edited(Vec<u8>),
    Nothing,
}

impl Change {
    /// Whether the work tree has what the merge would make of it.
    fn is_made(&self, found: &Found) -> bool {
        match (&self.becomes, found) {
            (Becomes::New(new) | Becomes::Edited(new), Found::File(content)) => content == new,
            (Becomes::Nothing, Found::Nothing) => true,
            _ => false,
        }
    }
}

type Unless<T> = Result<T, FastForward>;

impl Merge {
    /// Without a hold on the repository nothing is locked, and the merge is not to be carried out.
    fn prepare(
        repository: &Repository,
        held: Option<&Lock>,
        git: gix::Repository,
        default: Branch,
        source: &Source,
    ) -> Result<Unless<Self>, Error> {
        let refused = |reason| Ok(Err(FastForward::Refused(reason)));
        let to = source.to;
        let reference = format!("refs/heads/{}", default.name);

        // Killed at its very end, a merge is complete but for this.
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
        // From here on nothing is checked out or committed in this work tree by others.
        let head = git.head_name().during(|| "read HEAD".to_owned())?;
        if !git.is_bare() && head.as_ref().is_none_or(|head| head.as_bstr() != reference.as_str()) {
            let name = head.map(|head| head.shorten().to_str_lossy().into_owned());
            return refused(Refusal::OtherBranchCheckedOut(name));
        }
        // Read anew under the lock. Where only the remote has it, another branch is checked out, or none.
        let Some(from) = tip(&git, &reference)? else { return Err(Error::Unborn { branch: default.name }) };
        match common_ancestor(&git, from, to)? {
            Some(base) if base == to => return Ok(Err(FastForward::AlreadyThere)),
            Some(base) if base == from => {}
            _ => return refused(Refusal::NotAFastForward),
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
        for change in tree.changes.iter().filter(|change| !change.is_there) {
            match &change.becomes {
                Becomes::New(content) => place(&tree.root, &change.path, content, true)?,
                Becomes::Edited(content) => place(&tree.root, &change.path, content, false)?,
                Becomes::Nothing => remove(&tree.root, &change.path)?,
            }
        }
        Ok(())
    }

    /// Written beside the index and then given its name; the lock stays, so that no commit comes
    /// between this and the moving of the branch.
    fn write_index(&mut self) -> Result<(), Error> {
        let Some(tree) = &mut self.tree else { return Ok(()) };
        let writing = || "write the index".to_owned();
        let mut new = Vec::new();
        let is_gone = |change: &&Change| matches!(change.becomes, Becomes::Nothing);
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
                None => new.push((stat, change.id, name)),
            }
        }
        for (stat, id, name) in new {
            tree.index.dangerously_push_entry(stat, id, Flags::empty(), Mode::FILE, name);
        }
        tree.index.sort_entries();
        // It would name the trees of before.
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
        let entry = Entry {
            by: &Identity::default(),
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
    /// Each tracked file must be as the index has it, and the index as the commit, except where they
    /// are already as they are going to be.
    fn check(
        repository: &Repository,
        git: &gix::Repository,
        from: CommitId,
        source: &Source,
        lock: Option<MarkedLock>,
    ) -> Result<Result<Self, Refusal>, Error> {
        let to = source.to;
        let (before, after) = (files_of(git, from)?, files_of(git, to)?);
        let show = |path: &BString| path.to_str_lossy().into_owned();
        let hidden = if source.is_reviewed { Hidden::Allowed } else { Hidden::Refused };
        let root = repository.root().to_owned();
        let mut changes = Vec::new();
        for (path, (id, mode)) in before.iter().filter(|(path, _)| !after.contains_key(*path)) {
            if !source.is_reviewed {
                return Ok(Err(Refusal::Beyond("removes", show(path))));
            }
            let name = path.to_str().ok().filter(|path| path::check(path, hidden).is_ok());
            match name.filter(|_| *mode == Mode::FILE) {
                Some(name) => changes.push(Change {
                    path: name.to_owned(),
                    id: *id,
                    becomes: Becomes::Nothing,
                    is_there: false,
                }),
                None => return Ok(Err(Refusal::Beyond("removes", show(path)))),
            }
        }
        for (path, (id, mode)) in &after {
            let there = before.get(path);
            if there == Some(&(*id, *mode)) {
                continue;
            }
            if *mode != Mode::FILE || there.is_some_and(|(_, mode)| *mode != Mode::FILE) {
                return Ok(Err(Refusal::Beyond("has something else than a plain file at", show(path))));
            }
            let Some(name) = path.to_str().ok().filter(|path| path::check(path, hidden).is_ok()) else {
                return Ok(Err(Refusal::Beyond("writes to the unusual path", show(path))));
            };
            let content = match read_blob(git, to, name, *id) {
                Ok(content) => content,
                Err(Error::TooLarge { .. }) => {
                    return Ok(Err(Refusal::Beyond("has the very large file", show(path))));
                }
                Err(error) => return Err(error),
            };
            let becomes = if there.is_none() { Becomes::New(content) } else { Becomes::Edited(content) };
            changes.push(Change { path: name.to_owned(), id: *id, becomes, is_there: false });
        }
        changes.sort_by(|a, b| a.path.cmp(&b.path));

        let index = match git.open_index() {
            Ok(index) => index,
            // As after `rm .git/index`: everything appears as deleted.
            Err(_) if !git.index_path().exists() => {
                let path = before.keys().next().map(show).unwrap_or_default();
                return Ok(Err(Refusal::Staged(path)));
            }
            Err(error) => return Err(error).during(|| "read the index".to_owned()),
        };
        let has_modes = git.config_snapshot().boolean("core.fileMode").unwrap_or(true);
        for entry in index.entries() {
            let path = entry.path(&index).to_owned();
            let found = Some((entry.id, entry.mode));
            let is_plain =
                entry.stage() == Stage::Unconflicted && !entry.flags.contains(Flags::INTENT_TO_ADD);
            if !is_plain || (before.get(&path).copied() != found && after.get(&path).copied() != found) {
                return Ok(Err(Refusal::Staged(show(&path))));
            }
            let change = path
                .to_str()
                .ok()
                .and_then(|path| changes.binary_search_by(|change| change.path.as_str().cmp(path)).ok());
            let unseen = entry.flags.intersects(Flags::SKIP_WORKTREE | Flags::ASSUME_VALID);
            match change {
                Some(_) if unseen => {
                    return Ok(Err(Refusal::Beyond("edits the hidden file", show(&path))));
                }
                Some(at) => {
                    let change = &mut changes[at];
                    let found = open_plain(&root, &change.path)?;
                    change.is_there = change.is_made(&found);
                    // One that is about to be replaced is compared byte by byte, whatever its stamp.
                    let is_kept = match &found {
                        Found::File(content) => hash(git, content)? == entry.id,
                        Found::Nothing | Found::Other => false,
                    };
                    if !change.is_there && !is_kept {
                        return Ok(Err(Refusal::Changed(change.path.clone())));
                    }
                }
                None if unseen || entry.mode == Mode::COMMIT => {}
                None if is_clean(git, &root, &index, entry, has_modes)? => {}
                None => return Ok(Err(Refusal::Changed(show(&path)))),
            }
        }
        // One that is removed may be gone from the index already.
        let mut kept = before.keys().filter(|path| after.contains_key(*path));
        if let Some(path) = kept.find(|path| index.entry_by_path(path.as_bstr()).is_none()) {
            return Ok(Err(Refusal::Staged(show(path))));
        }
        for change in changes.iter_mut().filter(|change| !change.is_there) {
            let found = open_plain(&root, &change.path)?;
            change.is_there = change.is_made(&found);
            match (&change.becomes, found) {
                (Becomes::New(_), Found::Nothing) => {}
                (Becomes::New(_), _) if !change.is_there => {
                    return Ok(Err(Refusal::InTheWay(change.path.clone())));
                }
                // Gone from the index, and yet there: the user keeps it, as after `git rm --cached`.
                (Becomes::Nothing, _)
                    if !change.is_there
                        && index.entry_by_path(change.path.as_bytes().as_bstr()).is_none() =>
                {
                    return Ok(Err(Refusal::Staged(change.path.clone())));
                }
                _ => {}
            }
        }
        Ok(Ok(Self { root, index, changes, _lock: lock }))
    }
}

pub(crate) fn common_ancestor(
    git: &gix::Repository,
    one: CommitId,
    two: CommitId,
) -> Result<Option<CommitId>, Error> {
    let comparing = || format!("compare {one} with {two}");
    let bases = git.merge_bases_many(one.0, &[two.0]).during(comparing)?;
    Ok(bases.first().map(|base| CommitId(base.detach())))
}

fn is_checked_out_elsewhere(git: &gix::Repository, reference: &str) -> bool {
    let Ok(entries) = std::fs::read_dir(git.common_dir().join("worktrees")) else { return false };
    let own = git.git_dir().canonicalize().ok();
    let head = format!("ref: {reference}");
    entries.flatten().map(|entry| entry.path()).any(|folder| {
        folder.canonicalize().ok() != own
            && std::fs::read_to_string(folder.join("HEAD")).is_ok_and(|text| text.trim_end() == head)
    })
}

fn operation(state: &gix::state::InProgress) -> &'static str {
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

/// Everything that is not a folder in a commit, with its mode as the index has it.
fn files_of(
    git: &gix::Repository,
    commit: CommitId,
) -> Result<BTreeMap<BString, (gix::ObjectId, Mode)>, Error> {
    let tree = tree_of(git, commit)?.id;
    let index = git.index_from_tree(&tree).during(|| format!("read the files of {commit}"))?;
    let entries = index.entries().iter();
    Ok(entries.map(|entry| (entry.path(&index).to_owned(), (entry.id, entry.mode))).collect())
}

/// Whether a tracked file is as the index has it, by its stamp or, if that is of no help, its content.
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
    // Asked first: a file of another size need not be read, however large it is.
    if git.find_header(entry.id).during(reading)?.size() != metadata.len() {
        return Ok(false);
    }
    let content = match entry.mode {
        Mode::SYMLINK => std::fs::read_link(&path).map(|to| to.into_os_string().into_vec()),
        _ => std::fs::read(&path),
    };
    Ok(hash(git, &content.map_err(Error::io("read", &path))?)? == entry.id)
}

pub(crate) fn hash(git: &gix::Repository, content: &[u8]) -> Result<gix::ObjectId, Error> {
    gix::objs::compute_hash(git.object_hash(), Kind::Blob, content).during(|| "hash a file".to_owned())
}

pub(crate) enum Found {
    Nothing,
    File(Vec<u8>),
    /// A folder, a symbolic link, …, or one of these on the way.
    Other,
}

/// The file at a path of which no part is a symbolic link.
pub(crate) fn open_plain(root: &Path, path: &str) -> Result<Found, Error> {
    let failed = |errno: Errno| Error::io("open", root.join(path))(errno.into());
    let (folder, name) = match folder_of(root, path, false) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(Found::Nothing),
        Err(Errno::NOTDIR | Errno::LOOP) => return Ok(Found::Other),
        Err(errno) => return Err(failed(errno)),
    };
    // Without waiting for whoever is to write into a pipe.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = match rustix::fs::openat(&folder, name, flags, rustix::fs::Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(Found::Nothing),
        Err(Errno::LOOP | Errno::NXIO) => return Ok(Found::Other),
        Err(errno) => return Err(failed(errno)),
    };
    let io = Error::io("read", root.join(path));
    let mut read = || -> std::io::Result<Found> {
        let metadata = file.metadata()?;
        // Larger than anything that is merged: it is another file.
        if !metadata.is_file() || metadata.len() > crate::BLOB_BYTES_MAX {
            return Ok(Found::Other);
        }
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        Ok(Found::File(content))
    };
    read().map_err(io)
}

/// The folder of a path below the root, and the path's last part. No symbolic link is followed.
fn folder_of<'a>(root: &Path, path: &'a str, make: bool) -> Result<(OwnedFd, &'a str), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let no_mode = rustix::fs::Mode::empty();
    let mut folder = rustix::fs::openat(CWD, root, flags, no_mode)?;
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    for part in folders.split('/').filter(|part| !part.is_empty()) {
        if make {
            match rustix::fs::mkdirat(&folder, part, rustix::fs::Mode::from_raw_mode(0o777)) {
                Ok(()) => rustix::fs::fsync(&folder)?,
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        folder = rustix::fs::openat(&folder, part, flags | OFlags::NOFOLLOW, no_mode)?;
    }
    Ok((folder, name))
}

/// Writes a file of the work tree whole: under another name, then under its own. A new one replaces
/// nothing, whatever has appeared there since it was looked at.
fn place(root: &Path, path: &str, content: &[u8], is_new: bool) -> Result<(), Error> {
    let place = || -> std::io::Result<()> {
        let (folder, name) = folder_of(root, path, true)?;
        match rustix::fs::unlinkat(&folder, TEMPORARY, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        let mut file = File::from(rustix::fs::openat(&folder, TEMPORARY, flags, mode)?);
        let mut write = || -> std::io::Result<()> {
            file.write_all(content)?;
            file.sync_all()?;
            if is_new {
                rustix::fs::linkat(&folder, TEMPORARY, &folder, name, AtFlags::empty())?;
                rustix::fs::unlinkat(&folder, TEMPORARY, AtFlags::empty())?;
            } else {
                rustix::fs::renameat(&folder, TEMPORARY, &folder, name)?;
            }
            Ok(())
        };
        if let Err(error) = write() {
            // What failed is the error to tell; the next attempt writes over this.
            let _ = rustix::fs::unlinkat(&folder, TEMPORARY, AtFlags::empty());
            return Err(error);
        }
        rustix::fs::fsync(&folder)?;
        Ok(())
    };
    place().map_err(Error::io("write", root.join(path)))
}

/// Removes a file of the work tree, and the folders that it leaves empty, as git does.
fn remove(root: &Path, path: &str) -> Result<(), Error> {
    let remove = |path: &str, flags| -> Result<(), Errno> {
        let (folder, name) = folder_of(root, path, false)?;
        rustix::fs::unlinkat(&folder, name, flags)?;
        rustix::fs::fsync(&folder)
    };
    match remove(path, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(Error::io("remove", root.join(path))(errno.into())),
    }
    let mut folder = path;
    while let Some((above, _)) = folder.rsplit_once('/') {
        // One that is not empty stays.
        if remove(above, AtFlags::REMOVEDIR).is_err() {
            break;
        }
        folder = above;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
