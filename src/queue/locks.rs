//! The two hand-over locks of the worker process, as locked files.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::Error;
use crate::handover::Handover;

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

    /// Whether a process holds the drain lock, that is, whether a worker is running.
    pub fn is_draining(&self) -> bool {
        is_held(&self.drain)
    }
}

impl Handover for FileLocks {
    type StandbyLock = LockGuard;
    type DrainLock = LockGuard;

    fn try_standby(&self) -> Option<LockGuard> {
        self.try_standby_lock().ok().flatten()
    }

    fn lock_drain(&self) -> LockGuard {
        // A file system that briefly refuses to lock must not lead to two workers. Asking until it
        // answers costs nothing, because nobody waits for this process.
        loop {
            match open(&self.drain).and_then(|file| fs2::FileExt::lock_exclusive(&file).map(|()| file)) {
                Ok(file) => return LockGuard::new(file),
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(200)),
            }
        }
    }
}

/// The lock that the parent process passed as standard input, if it did.
pub fn lock_from_stdin(path: &Path) -> Option<LockGuard> {
    let file = File::from(io::stdin().as_fd().try_clone_to_owned().ok()?);
    let same = |a: &File, b: &Path| -> Option<bool> {
        use std::os::unix::fs::MetadataExt as _;
        let (a, b) = (a.metadata().ok()?, std::fs::metadata(b).ok()?);
        Some(a.dev() == b.dev() && a.ino() == b.ino())
    };
    // A lock that this file holds already is taken again at once; if it was never locked, it is taken now.
    (same(&file, path)? && fs2::FileExt::try_lock_exclusive(&file).is_ok()).then(|| LockGuard::new(file))
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
    File::options().create(true).truncate(false).read(true).write(true).mode(0o600).open(path)
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
        let drain = locks.lock_drain();
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
}
