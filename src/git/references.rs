//! Writes references so that a killed process leaves nothing behind that stops the user's git.
//!
//! gix's transactions lock `packed-refs` only to read it, and nobody may remove a lock of git or gix that a killed
//! process left behind. nugget's locks are marked; see [`crate::ref_lock`].

use std::collections::BTreeSet;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gix::ObjectId;
use gix::bstr::ByteSlice as _;

use crate::error::{During as _, Error};
use crate::lock::Lock;
use crate::objects::{remove_file, sync};
use crate::ref_lock::{MarkedLock, sweep_one};
use crate::repository::{Repository, branches, remote_name, tip};
use crate::types::{BRANCH_PREFIX, CommitId, Identity};

/// How long to wait for git: at one reference, and while it packs all references.
const REFERENCE_WAIT_MAX: Duration = Duration::from_secs(2);
const PACKED_WAIT_MAX: Duration = Duration::from_secs(10);

impl Repository {
    /// The commit of a remote branch as last fetched or pushed. Does not use the network.
    ///
    /// # Errors
    /// When git's references cannot be read.
    pub fn remote_tip(&self, branch: &str) -> Result<Option<CommitId>, Error> {
        let git = self.git()?;
        tip(&git, &format!("refs/remotes/{}/{branch}", remote_name(&git)))
    }

    /// nugget's branches at the remote as last fetched or pushed, by short name. Does not use the network.
    ///
    /// # Errors
    /// When git's references cannot be read.
    pub fn remote_branches(&self) -> Result<Vec<(String, CommitId)>, Error> {
        let git = self.git()?;
        let remote = remote_name(&git);
        let found = branches(&git, &format!("refs/remotes/{remote}/{BRANCH_PREFIX}"))?;
        let short = |(name, commit): (String, CommitId)| {
            Some((name.strip_prefix(&format!("{remote}/"))?.to_owned(), commit))
        };
        Ok(found.into_iter().filter_map(short).collect())
    }

    /// Deletes a local branch of nugget's. `false` if it does not exist.
    ///
    /// # Errors
    /// [`Error::ForeignBranch`]; [`Error::BranchMoved`] when it is not at `expected`; [`Error::CheckedOut`] when
    /// a work tree has it checked out, or is rebasing or bisecting it; failures of the disk.
    pub fn delete_branch(&self, held: &Lock, branch: &str, expected: CommitId) -> Result<bool, Error> {
        let git = self.git()?;
        let reference = reference_name(branch)?;
        sweep_one(&git.common_dir().join("packed-refs"), held)?;
        if is_in_use(&git, branch) {
            return Err(Error::CheckedOut { branch: branch.to_owned() });
        }
        match delete(&git, held, &reference, expected.0)? {
            Edited::Done => Ok(true),
            Edited::Found(None) => Ok(false),
            Edited::Found(Some(_)) => Err(Error::BranchMoved { branch: branch.to_owned() }),
        }
    }
}

/// The result of an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edited {
    Done,
    /// The reference was not as expected but at this commit, or missing. Nothing was changed.
    Found(Option<ObjectId>),
}

/// An entry for the reflogs, if the repository keeps them.
pub(crate) struct ReflogEntry<'a> {
    pub author: &'a Identity,
    pub seconds: i64,
    pub message: &'a str,
    /// Whether `HEAD` names the reference, so that its log gets the entry as well.
    pub is_head: bool,
}

/// Sets a reference that is at `expected` (`None`: missing) to a commit. Synced to the disk when it returns.
pub(crate) fn update(
    git: &gix::Repository,
    held: &Lock,
    reference: &str,
    expected: Option<ObjectId>,
    commit: ObjectId,
    entry: Option<&ReflogEntry<'_>>,
) -> Result<Edited, Error> {
    let path = git.common_dir().join(reference);
    let _lock = lock(git, held, &path, REFERENCE_WAIT_MAX)?;
    let found = direct(git, reference)?;
    if found != expected {
        return Ok(Edited::Found(found));
    }
    if let Some(entry) = entry {
        log(git, reference, found, commit, entry)?;
    }
    replace(git, &path, format!("{commit}\n").as_bytes())?;
    Ok(Edited::Done)
}

/// Makes a reference a symbolic one, such as `refs/remotes/origin/HEAD`.
pub(crate) fn set_symbolic(
    git: &gix::Repository,
    held: &Lock,
    reference: &str,
    target: &str,
) -> Result<(), Error> {
    let path = git.common_dir().join(reference);
    let _lock = lock(git, held, &path, REFERENCE_WAIT_MAX)?;
    replace(git, &path, format!("ref: {target}\n").as_bytes())
}

/// Deletes a reference that is at `expected`, and its log.
pub(crate) fn delete(
    git: &gix::Repository,
    held: &Lock,
    reference: &str,
    expected: ObjectId,
) -> Result<Edited, Error> {
    let mut edited = Edited::Done;
    delete_all(git, held, [(reference.to_owned(), expected)], |_, found| edited = Edited::Found(found))?;
    Ok(edited)
}

/// Deletes references that are where they are expected, and their logs; hands out those that are not. `packed-refs` is
/// written once for all: a repository may have a thousand branches.
pub(crate) fn delete_all(
    git: &gix::Repository,
    held: &Lock,
    references: impl IntoIterator<Item = (String, ObjectId)>,
    mut moved: impl FnMut(&str, Option<ObjectId>),
) -> Result<(), Error> {
    let (mut deleted, mut locks) = (BTreeSet::new(), Vec::new());
    for (reference, expected) in references {
        let lock = lock(git, held, &git.common_dir().join(&reference), REFERENCE_WAIT_MAX)?;
        let found = direct(git, &reference)?;
        if found == Some(expected) {
            deleted.insert(reference);
            locks.push(lock);
        } else {
            moved(&reference, found);
        }
    }
    // The packed ones first, as git does: otherwise they would be visible for a moment.
    unpack(git, held, &deleted)?;
    let mut folders = BTreeSet::new();
    for reference in &deleted {
        let path = git.common_dir().join(reference);
        remove_file(&path)?;
        folders.extend(path.parent().map(Path::to_owned));
        remove_file(&git.common_dir().join("logs").join(reference))?;
    }
    folders.iter().try_for_each(|folder| sync(folder))
}

/// The commit that a reference contains; `None` for a symbolic one.
fn direct(git: &gix::Repository, reference: &str) -> Result<Option<ObjectId>, Error> {
    let found = git.try_find_reference(reference).during(|| format!("read {reference}"))?;
    Ok(found.and_then(|found| found.try_id().map(gix::Id::detach)))
}

fn lock(git: &gix::Repository, held: &Lock, path: &Path, patience: Duration) -> Result<MarkedLock, Error> {
    MarkedLock::take(git.common_dir(), path, held, patience)?.map_err(|path| Error::ReferenceLocked { path })
}

/// Replaces a file atomically. It is synced before it gets its name: git stops at a reference that a power cut
/// left empty.
fn replace(git: &gix::Repository, path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let temporary = git.common_dir().join("nugget-reference.tmp");
    // A killed process may have left one behind.
    remove_file(&temporary)?;
    let write = || -> std::io::Result<()> {
        let mut file = std::fs::File::create_new(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(Error::io("write", &temporary))?;
    let mut renamed = std::fs::rename(&temporary, path);
    if renamed.as_ref().is_err_and(|error| error.kind() == ErrorKind::IsADirectory) {
        // Empty folders of a deleted branch, such as `a/b` for `a`.
        remove_empty_folders(path);
        renamed = std::fs::rename(&temporary, path);
    }
    renamed.map_err(Error::io("replace", path))?;
    let refs = git.common_dir().join("refs");
    path.ancestors().skip(1).take_while(|folder| folder.starts_with(&refs)).try_for_each(sync)
}

fn remove_empty_folders(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty_folders(&entry.path());
        }
    }
    // A folder that is not empty stays; the next operation on it reports that.
    let _ = std::fs::remove_dir(folder);
}

/// Removes references from `packed-refs`, under git's lock on it.
fn unpack(git: &gix::Repository, held: &Lock, references: &BTreeSet<String>) -> Result<(), Error> {
    let path = git.common_dir().join("packed-refs");
    let read = || match std::fs::read(&path) {
        Ok(bytes) => Ok(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(Error::io("read", &path)(error)),
    };
    if without(&read()?, references).is_none() {
        return Ok(());
    }
    let _lock = lock(git, held, &path, PACKED_WAIT_MAX)?;
    match without(&read()?, references) {
        Some(bytes) => {
            replace(git, &path, &bytes)?;
            path.parent().map_or(Ok(()), sync)
        }
        None => Ok(()),
    }
}

/// The content of `packed-refs` without some references and their peeled lines; `None` if it has none of them.
fn without(packed: &[u8], references: &BTreeSet<String>) -> Option<Vec<u8>> {
    let mut kept = Vec::with_capacity(packed.len());
    let (mut found, mut is_below) = (false, false);
    for line in packed.split_inclusive(|&byte| byte == b'\n') {
        let name = line.trim_ascii_end().get(41..).and_then(|name| name.to_str().ok());
        let is_it = !line.starts_with(b"#")
            && !line.starts_with(b"^")
            && name.is_some_and(|name| references.contains(name));
        is_below = is_it || (is_below && line.starts_with(b"^"));
        found |= is_it;
        if !is_below {
            kept.extend_from_slice(line);
        }
    }
    found.then_some(kept)
}

/// Adds a line to the reflogs as git does: to an existing one, or to a new one if the repository keeps them.
fn log(
    git: &gix::Repository,
    reference: &str,
    from: Option<ObjectId>,
    to: ObjectId,
    entry: &ReflogEntry<'_>,
) -> Result<(), Error> {
    let from = from.unwrap_or_else(|| git.object_hash().null());
    let Identity { name, email } = entry.author;
    let message = knowledge::text::one_line(entry.message, 500);
    let line = format!("{from} {to} {name} <{email}> {} +0000\t{message}\n", entry.seconds.max(0));
    let configuration = git.config_snapshot();
    let creates = match configuration.string("core.logAllRefUpdates") {
        Some(value) if value.eq_ignore_ascii_case(b"always") => true,
        Some(_) => configuration.boolean("core.logAllRefUpdates").unwrap_or(false),
        None => !git.is_bare(),
    };
    let mut logs: Vec<PathBuf> = vec![git.common_dir().join("logs").join(reference)];
    if entry.is_head {
        logs.push(git.git_dir().join("logs/HEAD"));
    }
    for path in logs {
        if creates && let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
        }
        let mut options = std::fs::OpenOptions::new();
        match options.append(true).create(creates).open(&path) {
            Ok(mut file) => file.write_all(line.as_bytes()).map_err(Error::io("write", &path))?,
            Err(error) if error.kind() == ErrorKind::NotFound && !creates => {}
            Err(error) => return Err(Error::io("open", &path)(error)),
        }
    }
    Ok(())
}

/// The full name of a branch that nugget may write.
pub(crate) fn reference_name(branch: &str) -> Result<String, Error> {
    let name = format!("refs/heads/{branch}");
    let is_ours = branch.strip_prefix(BRANCH_PREFIX).is_some_and(|rest| !rest.is_empty());
    if !is_ours || gix::validate::reference::branch_name(name.as_str().into()).is_err() {
        return Err(Error::ForeignBranch { branch: branch.to_owned() });
    }
    Ok(name)
}

/// Whether a work tree has the branch checked out, or will return to it after a rebase or a bisection.
pub(crate) fn is_in_use(git: &gix::Repository, branch: &str) -> bool {
    let full = format!("refs/heads/{branch}");
    work_tree_folders(git).iter().any(|folder| {
        let names = |file: &str, name: &str| read(folder, file) == name;
        head_of(folder) == format!("ref: {full}")
            || names("rebase-merge/head-name", &full)
            || names("rebase-apply/head-name", &full)
            || names("BISECT_START", branch)
    })
}

/// The git folders of all work trees.
pub(crate) fn work_tree_folders(git: &gix::Repository) -> Vec<PathBuf> {
    let linked = std::fs::read_dir(git.common_dir().join("worktrees")).into_iter().flatten().flatten();
    linked.map(|entry| entry.path()).chain([git.common_dir().to_owned()]).collect()
}

/// The content of a work tree's `HEAD`.
pub(crate) fn head_of(folder: &Path) -> String {
    read(folder, "HEAD")
}

fn read(folder: &Path, file: &str) -> String {
    std::fs::read_to_string(folder.join(file)).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_packed_references_are_removed() {
        let id = "1111111111111111111111111111111111111111";
        let packed = format!(
            "# pack-refs with: peeled fully-peeled sorted \n{id} refs/heads/a\n{id} refs/heads/nugget/a\n^{id}\n\
             {id} refs/heads/nugget/ab\n^{id}\n{id} refs/heads/nugget/b\n"
        );
        let named = |names: &[&str]| names.iter().map(|name| format!("refs/heads/{name}")).collect();
        let left = without(packed.as_bytes(), &named(&["nugget/a", "nugget/b", "nugget/c"])).unwrap();
        let expected = packed.replace(&format!("{id} refs/heads/nugget/a\n^{id}\n"), "");
        let expected = expected.replace(&format!("{id} refs/heads/nugget/b\n"), "");
        assert_eq!(String::from_utf8(left).unwrap(), expected);
        assert_eq!(without(packed.as_bytes(), &named(&["nugget"])), None);
    }
}
