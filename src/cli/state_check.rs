//! Finds what keeps a worker from working for a brain.

use std::path::{Path, PathBuf};

use brain::StatePaths;
use brain::paths::{self, Blocked};
use jiff::{SignedDuration, Timestamp};
use knowledge::text::error_chain;
use queue::{FileLocks, Spool};
use team_client::LoginError;

use crate::error::CliError;
use crate::output::{self, counted};

/// With less free space neither the queue nor the index can be written.
const FREE_BYTES_MIN: u64 = 1 << 20;
/// How long a session may be in the spool. A command takes it in, unless the queue is busy for seconds.
const SPOOLED_MAX: SignedDuration = SignedDuration::from_secs(60);

/// What is wrong with the brain's repository or state folder, and how to fix it.
pub(crate) struct StateProblem {
    pub(crate) message: String,
    pub(crate) fix: String,
}

impl StateProblem {
    /// Looks for a repository of another user, for files that are in the way or cannot be written, and for locks that
    /// cannot be opened. Creates and locks nothing.
    pub(crate) fn find(root: &Path, places: &StatePaths) -> Option<Self> {
        if let Err(git::Error::NotTrusted { message, .. }) = git::Repository::open(root) {
            // git names the command that makes an exception.
            let command = message.lines().map(str::trim).find(|line| line.starts_with("git config"));
            let fix = format!(
                "if you trust its owner: {}",
                command.unwrap_or("git config --global --add safe.directory FOLDER")
            );
            let message = message.lines().next().unwrap_or_default().to_owned();
            return Some(Self { message, fix });
        }
        if let Some(problem) = Self::find_blocked(root, places) {
            return Some(problem);
        }
        if let Some(problem) = Self::find_read_only(root, places) {
            return Some(problem);
        }
        if let Some(problem) = Self::find_unwritable(places) {
            return Some(problem);
        }
        let repository = root.join(".git");
        if repository.is_dir() && !system::process::is_root() && !system::file::is_writable(&repository) {
            return Some(Self {
                message: format!(
                    "{} cannot be written, so that nothing is noted or merged",
                    repository.display()
                ),
                fix: format!("chmod -R u+rwX '{}'", root.display()),
            });
        }
        if let Some(problem) = Self::find_full_disk(root, places) {
            return Some(problem);
        }
        let error = FileLocks::new(places.wait_lock(), places.drain_lock()).check().err()?;
        let message = format!("no worker can run: {}", CliError::from(error).message);
        let folder = [places.wait_lock(), places.drain_lock()].into_iter().find(|lock| lock.is_dir());
        let fix = match folder {
            Some(folder) => format!("rmdir '{}'", folder.display()),
            None => "make that file readable and writable, or remove it".to_owned(),
        };
        Some(Self { message, fix })
    }

    /// Looks whether the file system of the state folder or the brain is read-only.
    pub(crate) fn find_read_only(root: &Path, places: &StatePaths) -> Option<Self> {
        let folder =
            folders(root, places).find(|folder| system::file::is_read_only(folder).is_ok_and(|is| is))?;
        Some(Self {
            message: format!("{} is on a read-only file system", folder.display()),
            fix: "mount it so that it can be written, or use a brain elsewhere with --brain".to_owned(),
        })
    }

    /// Looks whether the mode of the state folder, or of the folder that it is to be created in, keeps files out, or that
    /// of a file of the queue's keeps rows out.
    pub(crate) fn find_unwritable(places: &StatePaths) -> Option<Self> {
        if system::process::is_root() {
            return None;
        }
        let folder = places.folder().ancestors().find(|folder| folder.exists())?;
        if system::file::is_writable(folder) {
            let files = ["", "-wal", "-shm"].map(|end| {
                let mut file = places.queue().into_os_string();
                file.push(end);
                PathBuf::from(file)
            });
            let file = files.into_iter().find(|file| file.exists() && !system::file::is_writable(file))?;
            let file = file.display();
            return Some(Self {
                message: format!("{file} cannot be written, so that the queue takes no capture"),
                fix: format!("chmod u+rw '{file}'"),
            });
        }
        Some(Self {
            message: format!("{} cannot be written, so that nothing is captured or asked", folder.display()),
            fix: "make it writable, or set XDG_STATE_HOME to a folder that is".to_owned(),
        })
    }

    /// Looks whether the disk of the state folder or the brain is full.
    pub(crate) fn find_full_disk(root: &Path, places: &StatePaths) -> Option<Self> {
        // A read-only file system, as of an image, has no free space.
        let is_full = |folder: &&Path| {
            system::file::free_bytes(folder).is_ok_and(|free| free < FREE_BYTES_MIN)
                && !system::file::is_read_only(folder).is_ok_and(|is| is)
        };
        let folder = folders(root, places).find(is_full)?;
        Some(Self {
            message: format!("the disk that holds {} is full", folder.display()),
            fix: "free some space; what is queued waits until then and is not lost".to_owned(),
        })
    }

    /// Looks whether sessions stay in the spool, though each command queues what is there.
    pub(crate) fn find_waiting(places: &StatePaths) -> Option<Self> {
        let now = Timestamp::now();
        let stored = Spool::new(places.spool()).times().into_iter();
        let stored = stored.filter_map(|stored| Timestamp::try_from(stored).ok());
        let waiting: Vec<_> = stored.filter(|stored| now.duration_since(*stored) > SPOOLED_MAX).collect();
        let oldest = waiting.iter().min()?;
        let (sessions, age) = (counted(waiting.len() as u64, "session"), output::age(*oldest, now));
        let is = if waiting.len() == 1 { "is" } else { "are" };
        Some(Self {
            message: format!("{sessions} in the spool for {age} {is} not taken in by the queue"),
            fix: "`nugget status -v` says why; nothing is lost".to_owned(),
        })
    }

    /// That nothing can be handed over to the team's server, as the file with the login cannot be used.
    pub(crate) fn of_login(error: &LoginError) -> Self {
        Self {
            message: format!("nothing is handed over to the team's server: {}", error_chain(error)),
            fix: "nugget login URL; or nugget logout, to have captures read here".to_owned(),
        }
    }

    /// Looks for files of another user, and for files that cannot be read, in the state folder, the brain and the cache.
    pub(crate) fn find_blocked(root: &Path, places: &StatePaths) -> Option<Self> {
        let blocked = places.blocked_file();
        let blocked = blocked.or_else(|| paths::blocked_in_brain(root)).or_else(paths::blocked_in_cache);
        let Blocked { file, folder, is_foreign } = blocked?;
        let (file, folder) = (file.display(), folder.display());
        Some(match is_foreign {
            true => Self {
                message: format!("{file} belongs to another user, as after `sudo nugget`"),
                fix: format!("sudo chown -R \"$(id -un)\" '{folder}'"),
            },
            false => Self {
                message: format!("{file} cannot be read: permission denied"),
                fix: format!("chmod -R u+rwX '{folder}'"),
            },
        })
    }
}

/// The state folder and the brain. A missing one will be created on the disk of its parent.
pub(crate) fn folders<'a>(root: &'a Path, places: &'a StatePaths) -> impl Iterator<Item = &'a Path> {
    let folders = [places.folder(), root];
    folders.into_iter().filter_map(|folder| folder.ancestors().find(|folder| folder.exists()))
}
