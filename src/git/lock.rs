//! A lock between processes: `flock` on a file that is never removed.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::error::Error;

/// A held lock; given back on drop, and by the kernel when the process dies.
///
/// The file stays: whoever removed it could leave two processes each holding a lock on a file of
/// that name. The handle is close-on-exec, so that a child process does not keep the lock.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
    since: SystemTime,
}

/// The longest pause between two attempts of [`Lock::acquire_within`].
const PAUSE_MAX: Duration = Duration::from_millis(20);

impl Lock {
    /// Waits for the lock for as long as it takes. Creates the file (0600) and its folder (0700).
    ///
    /// # Errors
    /// When the file cannot be made, opened or locked.
    pub fn acquire(path: &Path) -> Result<Self, Error> {
        loop {
            let file = open(path)?;
            match fs2::FileExt::lock_exclusive(&file) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(Error::Lock { path: path.to_owned(), source }),
            }
            if let Some(lock) = Self::holding(file, path)? {
                return Ok(lock);
            }
        }
    }

    /// Takes the lock if nobody holds it; `None` if somebody does, this process included.
    ///
    /// # Errors
    /// When the file cannot be made, opened or locked.
    pub fn try_acquire(path: &Path) -> Result<Option<Self>, Error> {
        loop {
            let file = open(path)?;
            match fs2::FileExt::try_lock_exclusive(&file) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(Error::Lock { path: path.to_owned(), source }),
            }
            if let Some(lock) = Self::holding(file, path)? {
                return Ok(Some(lock));
            }
        }
    }

    /// Waits for the lock until `patience` has passed, by the monotonic clock.
    ///
    /// `flock` knows no time-out, so this asks again and again, with pauses of at most 20 ms.
    ///
    /// # Errors
    /// [`Error::LockTimeout`], or when the file cannot be made, opened or locked.
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

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// When the lock was taken, by the clock that stamps files: a file with an older stamp was
    /// written before, so by somebody who is gone if only holders of the lock write it.
    pub(crate) fn since(&self) -> SystemTime {
        self.since
    }

    /// `None` when the name has come to mean another file while we waited: a lock on a file that
    /// nobody else can find excludes nobody.
    fn holding(mut file: File, path: &Path) -> Result<Option<Self>, Error> {
        let failed = |source| Error::Lock { path: path.to_owned(), source };
        let held = file.metadata().map_err(failed)?;
        match std::fs::metadata(path) {
            Ok(named) if (named.dev(), named.ino()) == (held.dev(), held.ino()) => {}
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(failed(source)),
        }
        // The stamp is asked of the file system: its clock runs some milliseconds behind ours.
        file.write_all(b"\n").map_err(failed)?;
        let since = file.metadata().and_then(|metadata| metadata.modified()).map_err(failed)?;
        Ok(Some(Self { file, path: path.to_owned(), since }))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing would do, were there not a chance that a child forked in between holds a copy.
        if let Err(error) = fs2::FileExt::unlock(&self.file) {
            tracing::warn!(path = %self.path.display(), %error, "failed to unlock");
        }
    }
}

fn open(path: &Path) -> Result<File, Error> {
    let failed = |source| Error::Lock { path: path.to_owned(), source };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    }
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(failed)
}
