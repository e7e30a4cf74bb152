//! Merging one of nugget's branches into the default branch where that is a fast-forward: the one
//! operation that changes the user's work tree, index and branch, and only when asked for.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gix::bstr::{BString, ByteSlice as _};
use gix::index::entry::{Flags, Mode, Stage, Stat};
use gix::objs::Kind;
use gix::refs::Target;
use gix::refs::transaction::{PreviousValue, RefEdit};
use rustix::fs::{AtFlags, CWD, OFlags};
use rustix::io::Errno;

use crate::error::{During as _, Error};
use crate::lock::Lock;
use crate::objects::sync;
use crate::path::{self, Hidden};
use crate::propose::{Identity, reference_name};
use crate::repository::{CommitId, Repository, read_blob, tip, tree_of};

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

/// What our lock on the index holds, so that the next holder of the repository's lock knows that it
/// may be removed. git's own are empty, or an index.
const MARK: &[u8] = b"held by nugget\n";

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
        let mut merge = match Merge::prepare(self, held, branch)? {
            Ok(merge) => merge,
            Err(outcome) => return Ok(outcome),
        };
        merge.write_files()?;
        merge.write_index()?;
        merge.move_branch()?;
        Ok(FastForward::Done { from: merge.from, to: merge.to })
    }
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
    _lock: IndexLock,
}

/// A file that the branch adds or edits.
struct Change {
    path: String,
    id: gix::ObjectId,
    content: Vec<u8>,
    is_new: bool,
    /// Whether it lies in the work tree as it should.
    is_there: bool,
}

type Unless<T> = Result<T, FastForward>;

impl Merge {
    fn prepare(repository: &Repository, held: &Lock, branch: &str) -> Result<Unless<Self>, Error> {
        let refused = |reason| Ok(Err(FastForward::Refused(reason)));
        let git = repository.git()?;
        let to = tip(&git, &reference_name(branch)?)?
            .ok_or_else(|| Error::NoSuchBranch { branch: branch.to_owned() })?;
        let default = repository.default_branch_of(&git)?;
        let reference = format!("refs/heads/{}", default.name);

        let lock = match git.is_bare() {
            true => None,
            false => match IndexLock::take(&git.index_path(), held)? {
                Ok(lock) => Some(lock),
                Err(path) => return refused(Refusal::IndexLocked(path)),
            },
        };
        // From here on nothing is checked out or committed in this work tree by others.
        let head = git.head_name().during(|| "read HEAD".to_owned())?;
        if lock.is_some() && head.as_ref().is_none_or(|head| head.as_bstr() != reference.as_str()) {
            let name = head.map(|head| head.shorten().to_str_lossy().into_owned());
            return refused(Refusal::OtherBranchCheckedOut(name));
        }
        let Some(from) = tip(&git, &reference)? else {
            return Err(Error::Unborn { branch: default.name });
        };
        match common_ancestor(&git, from, to)? {
            Some(base) if base == to => return Ok(Err(FastForward::AlreadyThere)),
            Some(base) if base == from => {}
            _ => return refused(Refusal::NotAFastForward),
        }
        if is_checked_out_elsewhere(&git, &reference) {
            return refused(Refusal::CheckedOutElsewhere);
        }
        let tree = match lock {
            None => None,
            Some(lock) => {
                if let Some(state) = git.state() {
                    return refused(Refusal::InProgress(operation(&state).to_owned()));
                }
                match WorkTree::check(repository, &git, from, to, lock)? {
                    Ok(tree) => Some(tree),
                    Err(reason) => return refused(reason),
                }
            }
        };
        Ok(Ok(Self { git, branch: branch.to_owned(), reference, from, to, tree }))
    }

    fn write_files(&mut self) -> Result<(), Error> {
        let Some(tree) = &mut self.tree else { return Ok(()) };
        for change in tree.changes.iter().filter(|change| !change.is_there) {
            place(&tree.root, change)?;
        }
        Ok(())
    }

    /// Written beside the index and then given its name; the lock stays, so that no commit comes
    /// between this and the moving of the branch.
    fn write_index(&mut self) -> Result<(), Error> {
        let Some(tree) = &mut self.tree else { return Ok(()) };
        let writing = || "write the index".to_owned();
        let mut new = Vec::new();
        for change in &tree.changes {
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

    fn move_branch(&self) -> Result<(), Error> {
        let moving = || format!("move {} to {}", self.reference, self.to);
        // By way of HEAD, so that its reflog tells of it as well.
        let name = if self.tree.is_some() { "HEAD" } else { self.reference.as_str() };
        let edit = RefEdit::update(
            name.try_into().during(moving)?,
            self.to.0,
            PreviousValue::MustExistAndMatch(Target::Object(self.from.0)),
            format!("merge {}: Fast-forward", self.branch),
        )
        .with_deref(true);
        let by = Identity::default();
        let signature = gix::actor::Signature {
            name: by.name.into(),
            email: by.email.into(),
            time: gix::date::Time { seconds: jiff::Timestamp::now().as_second(), offset: 0 },
        };
        let mut buffer = gix::date::parse::TimeBuf::default();
        let wait = |seconds| gix::lock::acquire::Fail::AfterDurationWithBackoff(Duration::from_secs(seconds));
        let prepared = self.git.refs.transaction().prepare(Some(edit), wait(2), wait(10)).during(moving)?;
        // Synced before it gets its name: a branch that a power cut left empty would stop git itself.
        let path = self.git.common_dir().join(&self.reference);
        sync(&self.git.common_dir().join(format!("{}.lock", self.reference)))?;
        prepared.commit(Some(signature.to_ref(&mut buffer))).during(moving)?;
        path.parent().map_or(Ok(()), sync)
    }
}

impl WorkTree {
    /// Each tracked file must be as the index has it, and the index as the commit, except where they
    /// are already as they are going to be.
    fn check(
        repository: &Repository,
        git: &gix::Repository,
        from: CommitId,
        to: CommitId,
        lock: IndexLock,
    ) -> Result<Result<Self, Refusal>, Error> {
        let (before, after) = (files_of(git, from)?, files_of(git, to)?);
        let show = |path: &BString| path.to_str_lossy().into_owned();
        if let Some(path) = before.keys().find(|path| !after.contains_key(*path)) {
            return Ok(Err(Refusal::Beyond("removes", show(path))));
        }
        let root = repository.root().to_owned();
        let mut changes = Vec::new();
        for (path, (id, mode)) in &after {
            let there = before.get(path);
            if there == Some(&(*id, *mode)) {
                continue;
            }
            if *mode != Mode::FILE || there.is_some_and(|(_, mode)| *mode != Mode::FILE) {
                return Ok(Err(Refusal::Beyond("has something else than a plain file at", show(path))));
            }
            let Some(name) = path.to_str().ok().filter(|path| path::check(path, Hidden::Refused).is_ok())
            else {
                return Ok(Err(Refusal::Beyond("writes to the unusual path", show(path))));
            };
            let content = match read_blob(git, to, name, *id) {
                Ok(content) => content,
                Err(Error::TooLarge { .. }) => {
                    return Ok(Err(Refusal::Beyond("has the very large file", show(path))));
                }
                Err(error) => return Err(error),
            };
            let (path, is_new) = (name.to_owned(), there.is_none());
            changes.push(Change { path, id: *id, content, is_new, is_there: false });
        }

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
        let mut in_index = 0;
        for entry in index.entries() {
            let path = entry.path(&index).to_owned();
            let found = Some((entry.id, entry.mode));
            let is_plain =
                entry.stage() == Stage::Unconflicted && !entry.flags.contains(Flags::INTENT_TO_ADD);
            if !is_plain || (before.get(&path).copied() != found && after.get(&path).copied() != found) {
                return Ok(Err(Refusal::Staged(show(&path))));
            }
            in_index += usize::from(before.contains_key(&path));
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
                    change.is_there = matches!(&found, Found::File(content) if *content == change.content);
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
        if in_index != before.len() {
            let has = |path: &BString| index.entry_by_path(path.as_bstr()).is_some();
            let path = before.keys().find(|path| !has(path)).map(show).unwrap_or_default();
            return Ok(Err(Refusal::Staged(path)));
        }
        for change in changes.iter_mut().filter(|change| change.is_new && !change.is_there) {
            match open_plain(&root, &change.path)? {
                Found::Nothing => {}
                Found::File(content) if content == change.content => change.is_there = true,
                Found::File(_) | Found::Other => return Ok(Err(Refusal::InTheWay(change.path.clone()))),
            }
        }
        Ok(Ok(Self { root, index, changes, _lock: lock }))
    }
}

/// git's lock on the index, `index.lock`.
struct IndexLock {
    path: PathBuf,
}

impl IndexLock {
    /// The path of the lock when somebody else keeps it.
    fn take(index: &Path, held: &Lock) -> Result<Result<Self, PathBuf>, Error> {
        let path = index.with_file_name("index.lock");
        // Linked, so that it is never there without its mark.
        let marked = index.with_file_name("nugget-index-lock.tmp");
        std::fs::write(&marked, MARK).map_err(Error::io("write", &marked))?;
        let taken = Self::link(&marked, path, held);
        std::fs::remove_file(&marked).map_err(Error::io("remove", &marked))?;
        taken
    }

    fn link(marked: &Path, path: PathBuf, held: &Lock) -> Result<Result<Self, PathBuf>, Error> {
        let start = Instant::now();
        loop {
            match std::fs::hard_link(marked, &path) {
                Ok(()) => return Ok(Ok(Self { path })),
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(Error::io("create", &path)(error));
                }
                Err(_) if is_left_behind(&path, held) => {
                    tracing::info!(path = %path.display(), "removed the lock of a killed process");
                    std::fs::remove_file(&path).map_err(Error::io("remove", &path))?;
                }
                Err(_) if start.elapsed() >= LOCK_WAIT_MAX => return Ok(Err(path)),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

impl Drop for IndexLock {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "failed to unlock the index");
        }
    }
}

/// Whether a lock on the index is of a nugget that is gone: it has our mark, and is older than our
/// hold on the repository, which whoever made it had.
fn is_left_behind(path: &Path, held: &Lock) -> bool {
    let modified = std::fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| modified <= held.since())
        && std::fs::read(path).is_ok_and(|said| said == MARK)
}

fn common_ancestor(git: &gix::Repository, one: CommitId, two: CommitId) -> Result<Option<CommitId>, Error> {
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

fn hash(git: &gix::Repository, content: &[u8]) -> Result<gix::ObjectId, Error> {
    gix::objs::compute_hash(git.object_hash(), Kind::Blob, content).during(|| "hash a file".to_owned())
}

enum Found {
    Nothing,
    File(Vec<u8>),
    /// A folder, a symbolic link, …, or one of these on the way.
    Other,
}

/// The file at a path of which no part is a symbolic link.
fn open_plain(root: &Path, path: &str) -> Result<Found, Error> {
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
fn place(root: &Path, change: &Change) -> Result<(), Error> {
    let place = || -> std::io::Result<()> {
        let (folder, name) = folder_of(root, &change.path, true)?;
        match rustix::fs::unlinkat(&folder, TEMPORARY, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        let mut file = File::from(rustix::fs::openat(&folder, TEMPORARY, flags, mode)?);
        let mut write = || -> std::io::Result<()> {
            file.write_all(&change.content)?;
            file.sync_all()?;
            if change.is_new {
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
    place().map_err(Error::io("write", root.join(&change.path)))
}

#[cfg(test)]
mod tests;
