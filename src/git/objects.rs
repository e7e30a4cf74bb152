//! Builds a commit as objects in memory and writes them to the disk.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gix::bstr::ByteSlice as _;
use gix::objs::tree::{Editor, EntryKind};
use gix::objs::{Kind, Write as _, WriteTo};

use crate::error::{During as _, Error};
use crate::filters::{Filtered, first_filtered};
use crate::path::{self, HiddenNames};
use crate::repository::{entry, tree_of};
use crate::types::{CommitId, Identity, NewFile};

/// A commit that is not written yet, with all objects that its base does not have.
pub(crate) struct NewCommit {
    pub commit: gix::ObjectId,
    pub tree: gix::ObjectId,
    /// How many files the commit adds, changes or removes.
    pub files: usize,
    /// Blobs first, then trees from the leaves up, then the commit: each object after those that it names.
    objects: Vec<Object>,
}

struct Object {
    id: gix::ObjectId,
    kind: Kind,
    data: Vec<u8>,
}

/// The author, time and message of a commit. The committer is the author.
pub(crate) struct CommitInfo<'a> {
    pub author: &'a Identity,
    pub time: jiff::Timestamp,
    pub message: &'a str,
    /// A second parent.
    pub merges: Option<CommitId>,
}

/// How long to wait for a garbage collection that started before our reference existed. In a brain it takes a
/// fraction of a second.
const COLLECTION_WAIT_MAX: Duration = Duration::from_secs(10);

impl NewCommit {
    /// Adds the files to a base commit, or to an empty tree, and removes others from it. Nothing is written.
    ///
    /// # Errors
    /// [`Error::PathTaken`] when a new file exists with other content, lies below another file, or is given
    /// twice; [`Error::NothingToEdit`], also for a file to remove that does not exist; [`Error::InvalidPath`],
    /// [`Error::Filtered`], [`Error::InvalidCommit`].
    pub(crate) fn new(
        git: &gix::Repository,
        base: Option<CommitId>,
        files: &[NewFile],
        removes: &[String],
        hidden: HiddenNames,
        info: &CommitInfo<'_>,
    ) -> Result<Self, Error> {
        let base_tree = match base {
            Some(commit) => tree_of(git, commit)?,
            None => git.empty_tree(),
        };
        let root = base_tree.decode().during(|| "read the base's tree".to_owned())?;
        let mut editor = Editor::new(root.into(), &git.objects, git.object_hash());
        let mut new = Self {
            commit: git.object_hash().null(),
            tree: git.object_hash().null(),
            files: 0,
            objects: vec![],
        };
        let (mut seen, mut folders, mut written) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        for file in files {
            path::check(&file.path, hidden, file.edits)?;
            let taken = || Error::PathTaken { path: file.path.clone() };
            if folders.contains(file.path.as_str()) || !seen.insert(file.path.as_str()) {
                return Err(taken());
            }
            for (at, _) in file.path.match_indices('/') {
                let folder = &file.path[..at];
                let is_file = entry(&base_tree, folder)?.is_some_and(|found| !found.mode().is_tree());
                if is_file || seen.contains(folder) {
                    return Err(taken());
                }
                folders.insert(folder);
            }
            let id = hash(git, &file.content)?;
            let kind = match entry(&base_tree, &file.path)? {
                Some(same) if same.mode().is_blob() && same.object_id() == id => continue,
                // An executable file stays one: on some disks all are.
                Some(found) if file.edits && found.mode().is_blob() => found.mode().kind(),
                Some(_) => return Err(taken()),
                None if file.edits => return Err(Error::NothingToEdit { path: file.path.clone() }),
                None => EntryKind::Blob,
            };
            editor
                .upsert(file.path.split('/').map(|part| part.as_bytes().as_bstr()), kind, id)
                .during(|| format!("add {} to the base's tree", file.path))?;
            new.objects.push(Object { id, kind: Kind::Blob, data: file.content.clone() });
            written.push(file.path.as_str());
            new.files += 1;
        }
        if let Some(base) = base
            && let Some(Filtered { path, filter }) = first_filtered(git, base, written.into_iter())?
        {
            return Err(Error::Filtered { path, filter });
        }
        for removed in removes {
            path::check(removed, hidden, true)?;
            if !seen.insert(removed.as_str()) {
                return Err(Error::PathTaken { path: removed.clone() });
            }
            if !entry(&base_tree, removed)?.is_some_and(|found| found.mode().is_blob()) {
                return Err(Error::NothingToEdit { path: removed.clone() });
            }
            editor
                .remove_leaf(removed.split('/').map(|part| part.as_bytes().as_bstr()))
                .during(|| format!("remove {removed} from the base's tree"))?;
            new.files += 1;
        }
        new.tree =
            editor.write(|tree| add(&mut new.objects, git, tree)).during(|| "build the tree".to_owned())?;
        let signature = signature(info)?;
        let commit = gix::objs::Commit {
            tree: new.tree,
            parents: base.iter().chain(&info.merges).map(|parent| parent.0).collect(),
            author: signature.clone(),
            committer: signature,
            encoding: None,
            message: message(info.message)?.into(),
            extra_headers: Vec::new(),
        };
        new.commit = add(&mut new.objects, git, &commit).during(|| "build the commit".to_owned())?;
        Ok(new)
    }

    /// Writes all objects and syncs them and their folders, so that after a power cut no reference names a
    /// missing object.
    ///
    /// Each is written as a loose object even if it exists: the existing one may be truncated by a power cut
    /// during an earlier attempt, or old, unreferenced and about to be pruned.
    pub(crate) fn write(&self, git: &gix::Repository) -> Result<(), Error> {
        write(git, self.objects.iter())
    }

    /// Writes the objects again that a concurrent garbage collection removed: one that started before our
    /// reference existed removes its objects as unreferenced. Waits for the end of the collection.
    ///
    /// `git prune` alone leaves no sign that it is running; only the short time protects from it.
    pub(crate) fn restore_after_gc(
        &self,
        reopen: impl Fn() -> Result<gix::Repository, Error>,
    ) -> Result<(), Error> {
        let start = Instant::now();
        let git = reopen()?;
        let collector = running_collector(git.common_dir());
        loop {
            let running = collector.is_some() && running_collector(git.common_dir()) == collector;
            // Opened again, so that no removed pack is still in use.
            let git = reopen()?;
            let lost: Vec<_> = self.objects.iter().filter(|object| !git.has_object(object.id)).collect();
            if !lost.is_empty() {
                tracing::info!(objects = lost.len(), "restored objects that a garbage collection removed");
                write(&git, lost.into_iter())?;
            }
            if !running {
                return Ok(());
            }
            if start.elapsed() > COLLECTION_WAIT_MAX {
                tracing::warn!(
                    "a garbage collection of the brain is still running; continuing without waiting"
                );
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn add(
    objects: &mut Vec<Object>,
    git: &gix::Repository,
    object: &dyn WriteTo,
) -> Result<gix::ObjectId, gix::Error> {
    let mut data = Vec::new();
    object.write_to(&mut data).map_err(gix::Error::from_error)?;
    let id = gix::objs::compute_hash(git.object_hash(), object.kind(), &data)?;
    objects.push(Object { id, kind: object.kind(), data });
    Ok(id)
}

fn write<'a>(git: &gix::Repository, objects: impl Iterator<Item = &'a Object>) -> Result<(), Error> {
    let folder = git.objects.store_ref().path().to_owned();
    let loose = gix::odb::loose::Store::at(&folder, git.object_hash());
    let mut paths = Vec::new();
    for object in objects {
        // `git prune` removes empty folders, possibly between our creating and using one.
        let mut attempts = 0;
        while let Err(error) = loose.write_buf(object.kind, &object.data) {
            attempts += 1;
            if attempts == 5 {
                return Err(error).during(|| format!("write object {}", object.id));
            }
        }
        paths.push(loose.object_path(&object.id));
        failpoint::here!("git-amid-objects");
    }
    let mut folders: BTreeSet<PathBuf> =
        paths.iter().filter_map(|path| path.parent()).map(PathBuf::from).collect();
    folders.insert(folder);
    for path in paths.iter().chain(&folders) {
        sync(path)?;
    }
    Ok(())
}

/// The id of a file's content.
pub(crate) fn hash(git: &gix::Repository, content: &[u8]) -> Result<gix::ObjectId, Error> {
    gix::objs::compute_hash(git.object_hash(), Kind::Blob, content).during(|| "hash a file".to_owned())
}

/// Removes a file, if it exists.
pub(crate) fn remove_file(path: &Path) -> Result<(), Error> {
    match std::fs::remove_file(path) {
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Err(Error::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Syncs a file or folder. A missing one is no error: git moved its content and synced it there.
pub(crate) fn sync(path: &Path) -> Result<(), Error> {
    match std::fs::File::open(path).and_then(|file| file.sync_all()) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io("sync", path)(error)),
        _ => Ok(()),
    }
}

/// The content of `gc.pid`, if the garbage collection that it names is running on this machine.
fn running_collector(common_dir: &Path) -> Option<String> {
    let content = std::fs::read_to_string(common_dir.join("gc.pid")).ok()?;
    let (process, host) = content.trim().split_once(' ')?;
    let is_running = system::process::is_running(process.parse().ok()?);
    let is_here = system::process::host_name() == host.as_bytes();
    (is_here && is_running).then_some(content)
}

fn signature(info: &CommitInfo<'_>) -> Result<gix::actor::Signature, Error> {
    let Identity { name, email } = info.author;
    let field = |what, text: &str| {
        let text = text.trim();
        let bad = |c: char| matches!(c, '<' | '>') || c.is_control();
        if text.is_empty() || text.contains(bad) {
            let reason = format!("{text:?} is empty or has control characters or angle brackets");
            return Err(Error::InvalidCommit { what, reason });
        }
        Ok(text.into())
    };
    // git stores whole seconds, and none before 1970.
    let time = gix::date::Time { seconds: info.time.as_second().max(0), offset: 0 };
    Ok(gix::actor::Signature {
        name: field("author's name", name)?,
        email: field("author's address", email)?,
        time,
    })
}

/// The message as it is committed: with one line feed at its end.
pub(crate) fn message(text: &str) -> Result<String, Error> {
    let text = text.trim();
    if text.is_empty() || text.contains('\0') {
        return Err(Error::InvalidCommit {
            what: "message",
            reason: "it is empty or has a NUL byte".to_owned(),
        });
    }
    Ok(format!("{text}\n"))
}
