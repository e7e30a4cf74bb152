//! git's own lock files, taken so that the next holder of the repository's lock recognises those of a
//! killed nugget.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::error::Error;
use crate::lock::Lock;

/// What a lock file of ours holds. git's own are empty, or hold what they are going to be.
const MARK: &[u8] = b"held by nugget\n";

/// How far the clock of a file system may be ahead of ours.
pub(crate) const CLOCKS_APART_MAX: Duration = Duration::from_secs(2);

/// A lock file; removed on drop.
pub(crate) struct MarkedLock {
    path: PathBuf,
}

impl MarkedLock {
    /// Takes the lock on `target`, `target.lock`. The path of the lock when somebody else keeps it for
    /// longer than `patience`.
    ///
    /// # Errors
    /// When it cannot be made; also with [`ErrorKind::NotFound`] or [`ErrorKind::NotADirectory`] when
    /// its folder cannot be made.
    pub(crate) fn take(
        common_dir: &Path,
        target: &Path,
        held: &Lock,
        patience: Duration,
    ) -> Result<Result<Self, PathBuf>, Error> {
        let path = lock_of(target);
        // Linked, so that it is never there without its mark. Only holders of the repository's lock get
        // here, so the name is ours.
        let marked = common_dir.join("nugget-lock.tmp");
        // A new file each time: the old one may be the lock that a killed process left.
        match std::fs::remove_file(&marked) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::io("remove", &marked)(error));
            }
            _ => {}
        }
        std::fs::write(&marked, MARK).map_err(Error::io("write", &marked))?;
        let taken = Self::link(&marked, path, held, patience);
        std::fs::remove_file(&marked).map_err(Error::io("remove", &marked))?;
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
                // `git pack-refs` removes folders that it emptied, also between our making one and our
                // using it.
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

/// Removes the locks of ours below a folder whose makers are gone.
pub(crate) fn sweep(folder: &Path, held: &Lock) -> Result<(), Error> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "lock") && is_left_behind(&path, held) {
                remove(&path)?;
            }
        }
    }
    Ok(())
}

/// Removes the lock on one file, when it is ours and its maker is gone.
pub(crate) fn sweep_one(target: &Path, held: &Lock) -> Result<(), Error> {
    let path = lock_of(target);
    if is_left_behind(&path, held) { remove(&path) } else { Ok(()) }
}

pub(crate) fn lock_of(target: &Path) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

/// Whether a lock is of a nugget that is gone: it has our mark, and is older than our hold on the
/// repository, which whoever made it had; or it is of a time to come, and the clock has been set back.
fn is_left_behind(path: &Path, held: &Lock) -> bool {
    let Ok(modified) = std::fs::symlink_metadata(path).and_then(|metadata| metadata.modified()) else {
        return false;
    };
    (modified <= held.since() || modified > SystemTime::now() + CLOCKS_APART_MAX)
        && std::fs::read(path).is_ok_and(|said| said == MARK)
}

fn remove(path: &Path) -> Result<(), Error> {
    tracing::info!(path = %path.display(), "removed the lock of a killed process");
    std::fs::remove_file(path).map_err(Error::io("remove", path))
}
