//! git's own lock files (`NAME.lock`), marked so that the next holder of the repository's lock recognises those
//! that a killed nugget process left behind.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::error::Error;
use crate::lock::Lock;
use crate::objects::remove_file;

/// The content of nugget's lock files. git's own are empty, or contain the new content of the locked file.
const MARK: &[u8] = b"held by nugget\n";

/// How far the clock of a file system may be ahead of ours.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(2);

/// A lock file; removed on drop.
pub(crate) struct MarkedLock {
    path: PathBuf,
}

impl MarkedLock {
    /// Takes the lock on `target`, that is `target.lock`. Returns the lock's path as the inner error if another
    /// process keeps it for longer than `patience`.
    ///
    /// # Errors
    /// [`Error::Io`] when the lock cannot be created.
    pub(crate) fn take(
        common_dir: &Path,
        target: &Path,
        held: &Lock,
        patience: Duration,
    ) -> Result<Result<Self, PathBuf>, Error> {
        let path = lock_of(target);
        // The lock is created as a hard link, so that it never exists without its mark. Only holders of the
        // repository's lock use this name.
        let marked = common_dir.join("nugget-lock.tmp");
        // A new file each time: the old one may be the lock that a killed process left behind.
        remove_file(&marked)?;
        std::fs::write(&marked, MARK).map_err(Error::io("write", &marked))?;
        let taken = Self::link(&marked, path, held, patience);
        remove_file(&marked)?;
        taken
    }

    fn link(
        marked: &Path,
        path: PathBuf,
        held: &Lock,
        patience: Duration,
    ) -> Result<Result<Self, PathBuf>, Error> {
        let start = Instant::now();
        let mut attempts = 0;
        loop {
            match std::fs::hard_link(marked, &path) {
                Ok(()) => return Ok(Ok(Self { path })),
                // `git pack-refs` removes empty folders, possibly between our creating and using one.
                Err(error) if error.kind() == ErrorKind::NotFound && attempts < 5 => {
                    attempts += 1;
                    if let Some(folder) = path.parent() {
                        std::fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
                    }
                }
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(Error::io("create", &path)(error));
                }
                Err(_) if is_left_behind(&path, held) => remove(&path)?,
                Err(_) if start.elapsed() >= patience => return Ok(Err(path)),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

impl Drop for MarkedLock {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "failed to remove git's lock file");
        }
    }
}

/// Removes the marked locks below a folder that killed processes left behind.
pub(crate) fn sweep(folder: &Path, held: &Lock) -> Result<(), Error> {
    lock_files(folder).iter().filter(|path| is_left_behind(path, held)).try_for_each(|path| remove(path))
}

/// Removes the marked lock on one file if a killed process left it behind.
pub(crate) fn sweep_one(target: &Path, held: &Lock) -> Result<(), Error> {
    let path = lock_of(target);
    if is_left_behind(&path, held) { remove(&path) } else { Ok(()) }
}

/// Removes all stale lock files, marked or not, below the folder of nugget's own branches. Only a holder of the
/// repository's lock writes there, so the process that created an older one was killed. A lock that git holds
/// at this moment is younger and stays.
pub(crate) fn clear_stale_locks(folder: &Path, held: &Lock) {
    for path in lock_files(folder) {
        let modified = std::fs::symlink_metadata(&path).and_then(|metadata| metadata.modified());
        if modified.is_ok_and(|modified| modified < held.since() || is_in_the_future(modified))
            && let Err(error) = remove(&path)
        {
            tracing::warn!(path = %path.display(), %error, "failed to remove a stale lock");
        }
    }
}

pub(crate) fn lock_of(target: &Path) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

/// All lock files below a folder.
pub(crate) fn lock_files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "lock") {
                found.push(path);
            }
        }
    }
    found
}

/// Whether a killed nugget process left this lock behind: it has the mark, and is older than our hold on the
/// repository, which its creator had at the time; or it is from the future, as the clock was set back.
fn is_left_behind(path: &Path, held: &Lock) -> bool {
    let Ok(modified) = std::fs::symlink_metadata(path).and_then(|metadata| metadata.modified()) else {
        return false;
    };
    (modified <= held.since() || is_in_the_future(modified))
        && std::fs::read(path).is_ok_and(|content| content == MARK)
}

fn is_in_the_future(modified: SystemTime) -> bool {
    modified > SystemTime::now() + CLOCK_SKEW_MAX
}

fn remove(path: &Path) -> Result<(), Error> {
    std::fs::remove_file(path).map_err(Error::io("remove", path))?;
    tracing::info!(path = %path.display(), "removed the lock of a killed process");
    Ok(())
}
