//! A lock between processes: `flock` on a file that is never removed.

use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use system::file::Identity;

use crate::error::Error;

/// A held lock. It is released on drop, and by the kernel when the process ends.
///
/// The file stays: removing it could leave two processes each holding a lock on a file of that name. The
/// handle is close-on-exec, so that a child process does not keep the lock.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
    since: SystemTime,
}

/// The longest pause between two attempts of [`Lock::acquire_within`].
const PAUSE_MAX: Duration = Duration::from_millis(20);

impl Lock {
    /// Waits for the lock without a time limit. Creates the file (0600) and its folder (0700).
    ///
    /// # Errors
    /// [`Error::Lock`] when the file cannot be created, opened or locked.
    pub fn acquire(path: &Path) -> Result<Self, Error> {
        loop {
            if let Some(lock) = Self::attempt(path, |file| file.lock().map_err(TryLockError::Error))? {
                return Ok(lock);
            }
        }
    }

    /// Takes the lock if it is free. `None` if a process holds it, including this one.
    ///
    /// # Errors
    /// [`Error::Lock`] when the file cannot be created, opened or locked.
    pub fn try_acquire(path: &Path) -> Result<Option<Self>, Error> {
        Self::attempt(path, File::try_lock)
    }

    fn attempt(path: &Path, lock: fn(&File) -> Result<(), TryLockError>) -> Result<Option<Self>, Error> {
        let attempt = || -> std::io::Result<Option<Self>> {
            loop {
                let mut file = open(path)?;
                match lock(&file) {
                    Ok(()) => {}
                    Err(TryLockError::WouldBlock) => return Ok(None),
                    Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(TryLockError::Error(error)) => return Err(error),
                }
                let held = file.metadata()?;
                match std::fs::metadata(path) {
                    Ok(named) if Identity::from_metadata(&named) == Identity::from_metadata(&held) => {}
                    // A lock on a file that no other process can find excludes nobody.
                    Ok(_) => continue,
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                }
                // The file system's clock runs some milliseconds behind ours, so the time is read from the file.
                file.write_all(b"\n")?;
                let since = file.metadata()?.modified()?;
                return Ok(Some(Self { file, path: path.to_owned(), since }));
            }
        };
        attempt().map_err(|source| Error::Lock { path: path.to_owned(), source })
    }

    /// Waits for the lock until `patience` has passed, by the monotonic clock.
    ///
    /// `flock` has no time-out, so this tries again and again, with pauses of at most 20 ms.
    ///
    /// # Errors
    /// [`Error::LockTimeout`]; [`Error::Lock`] when the file cannot be created, opened or locked.
    pub fn acquire_within(path: &Path, patience: Duration) -> Result<Self, Error> {
        let start = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            if let Some(lock) = Self::try_acquire(path)? {
                return Ok(lock);
            }
            let waited = start.elapsed();
            if waited >= patience {
                return Err(Error::LockTimeout { path: path.to_owned(), waited });
            }
            std::thread::sleep(pause.min(patience - waited));
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// The path of the lock file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// When the lock was taken, by the file system's clock. If only holders of the lock write a file, an older
    /// one was written by a process that has ended.
    pub(crate) fn since(&self) -> SystemTime {
        self.since
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: a child that was forked in between may hold a copy of the handle.
        if let Err(error) = self.file.unlock() {
            tracing::warn!(path = %self.path.display(), %error, "failed to unlock");
        }
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        system::file::create_private_folder(folder)?;
    }
    system::file::private_options().read(true).write(true).create(true).truncate(false).open(path)
}
