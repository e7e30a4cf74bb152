//! The two hand-over locks of the worker process, as locked files.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use system::file::Identity;

use crate::Error;
use crate::handover::Handover;

/// How long a lock file may refuse to be opened or locked until a process gives up, and lets another try.
const REFUSAL_MAX: Duration = Duration::from_secs(3);
const RETRY_EVERY: Duration = Duration::from_millis(200);

/// The hand-over locks of one brain. Both are `flock`s: the kernel releases them when their holder
/// ends, however it ends. The files are never removed.
#[derive(Clone, Debug)]
pub struct FileLocks {
    standby: PathBuf,
    drain: PathBuf,
}

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub struct LockGuard {
    file: Option<File>,
}

impl LockGuard {
    fn new(file: File) -> Self {
        Self { file: Some(file) }
    }

    /// Passes the lock to a child process as its standard input. It stays held while the child, or a
    /// process that the child passes it to, is running, or until one of them unlocks it.
    pub fn into_stdin(mut self) -> Stdio {
        self.file.take().map_or_else(Stdio::null, Stdio::from)
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        // Unlocked explicitly and not only by closing: the standard input is a duplicate of it.
        if let Some(file) = &self.file {
            let _ = fs2::FileExt::unlock(file);
        }
    }
}

impl FileLocks {
    /// Uses these two files, which are created when they are first locked.
    pub fn new(standby: PathBuf, drain: PathBuf) -> Self {
        Self { standby, drain }
    }

    /// Takes the standby lock; `None` if another process holds it.
    ///
    /// # Errors
    /// When the file cannot be opened or locked.
    pub fn try_standby_lock(&self) -> Result<Option<LockGuard>, Error> {
        try_lock(&self.standby)
    }

    /// Takes the drain lock; `None` if another process holds it.
    ///
    /// # Errors
    /// When the file cannot be opened or locked.
    pub fn try_drain_lock(&self) -> Result<Option<LockGuard>, Error> {
        try_lock(&self.drain)
    }

    /// Checks that the lock files, where they exist, can be opened. Locks nothing: a process that finds the
    /// standby lock taken leaves its work to the holder.
    ///
    /// # Errors
    /// When a file cannot be opened: no worker can run then.
    pub fn check(&self) -> Result<(), Error> {
        let existing = [&self.standby, &self.drain].into_iter().filter(|path| path.exists());
        existing.into_iter().try_for_each(|path| match open(path) {
            Ok(_) => Ok(()),
            Err(source) => Err(Error::File { path: path.clone(), source }),
        })
    }

    /// Whether a process holds the drain lock, that is, whether a worker is running.
    pub fn is_draining(&self) -> bool {
        is_held(&self.drain)
    }
}

impl Handover for FileLocks {
    type StandbyLock = LockGuard;
    type DrainLock = LockGuard;
    type Error = Error;

    fn try_standby(&self) -> Result<Option<LockGuard>, Error> {
        self.try_standby_lock()
    }

    fn lock_drain(&self) -> Result<LockGuard, Error> {
        // A file system may refuse to lock for a moment, and a process may be out of file descriptors.
        let until = Instant::now() + REFUSAL_MAX;
        loop {
            let locked =
                open(&self.drain).and_then(|file| fs2::FileExt::lock_exclusive(&file).map(|()| file));
            match locked {
                Ok(file) => return Ok(LockGuard::new(file)),
                Err(source) if Instant::now() >= until => {
                    return Err(Error::File { path: self.drain.clone(), source });
                }
                Err(_) => std::thread::sleep(RETRY_EVERY),
            }
        }
    }
}

/// The lock that the parent process passed as standard input, if it did.
pub fn lock_from_stdin(path: &Path) -> Option<LockGuard> {
    let file = system::file::stdin_as_file().ok()?;
    let is_same = Identity::from_metadata(&file.metadata().ok()?) == Identity::from_path(path)?;
    // A lock that this file holds already is taken again at once; if it was never locked, it is taken now.
    (is_same && fs2::FileExt::try_lock_exclusive(&file).is_ok()).then(|| LockGuard::new(file))
}

/// Whether another process holds a lock. A file that cannot be opened is not locked.
pub fn is_held(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| match fs2::FileExt::try_lock_shared(&file) {
        Ok(()) => {
            let _ = fs2::FileExt::unlock(&file);
            false
        }
        Err(_) => true,
    })
}

fn try_lock(path: &Path) -> Result<Option<LockGuard>, Error> {
    let failed = |source| Error::File { path: path.to_owned(), source };
    let file = open(path).map_err(failed)?;
    match fs2::FileExt::try_lock_exclusive(&file) {
        Ok(()) => Ok(Some(LockGuard::new(file))),
        Err(error) if error.kind() == fs2::lock_contended_error().kind() => Ok(None),
        Err(source) => Err(failed(source)),
    }
}

fn open(path: &Path) -> io::Result<File> {
    system::file::private_options().create(true).truncate(false).read(true).write(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let locks = FileLocks::new(folder.path().join("wait"), folder.path().join("drain"));
        let standby = locks.try_standby_lock().unwrap().unwrap();
        assert!(locks.try_standby_lock().unwrap().is_none());
        assert!(is_held(&folder.path().join("wait")));
        drop(standby);
        assert!(!is_held(&folder.path().join("wait")));
        assert!(!locks.is_draining());
        let drain = locks.lock_drain().unwrap();
        assert!(locks.is_draining());
        drop(drain);
        assert!(!locks.is_draining());
    }

    #[test]
    fn a_lock_passed_to_a_child_stays_held() {
        let folder = tempfile::tempdir().unwrap();
        let locks = FileLocks::new(folder.path().join("wait"), folder.path().join("drain"));
        let stdin = locks.try_standby_lock().unwrap().unwrap().into_stdin();
        assert!(locks.try_standby_lock().unwrap().is_none());
        drop(stdin);
        assert!(locks.try_standby_lock().unwrap().is_some());
    }
    #[test]
    fn a_lock_that_cannot_be_opened_is_given_up_and_frees_the_standby_lock() {
        let folder = tempfile::tempdir().unwrap();
        let (standby, drain) = (folder.path().join("wait"), folder.path().join("drain"));
        std::fs::create_dir(&drain).unwrap();
        let locks = FileLocks::new(standby, drain.clone());
        let held = locks.try_standby_lock().unwrap();
        let failed = crate::hand_over(&locks, held, || panic!("it has no lock"), || true);
        assert!(matches!(failed, Err(Error::File { path, .. }) if path == drain));
        assert!(locks.try_standby_lock().unwrap().is_some(), "another process can take over");
        assert!(matches!(locks.check(), Err(Error::File { path, .. }) if path == drain));
        std::fs::remove_dir(&drain).unwrap();
        locks.check().unwrap();
    }
}
