//! Finds what keeps a worker from working for a brain.

use std::path::Path;

use brain::StatePaths;
use queue::FileLocks;

use crate::error::CliError;

/// What is wrong with the brain's repository or state folder, and how to mend it.
pub(crate) struct StateProblem {
    pub(crate) message: String,
    pub(crate) fix: String,
}

impl StateProblem {
    /// Looks for a repository or files of another user, and for locks that cannot be opened. Creates and locks nothing.
    pub(crate) fn find(root: &Path, places: &StatePaths) -> Option<Self> {
        if let Err(error @ git::Error::NotTrusted { .. }) = git::Repository::open(root) {
            let fix = error.hint().unwrap_or_default().to_owned();
            return Some(Self { message: error.to_string(), fix });
        }
        if let Some(file) = places.foreign_file() {
            let message = format!("{} belongs to another user, as after `sudo nugget`", file.display());
            let fix = format!("sudo chown -R \"$(id -un)\" '{}'", places.folder().display());
            return Some(Self { message, fix });
        }
        let error = FileLocks::new(places.wait_lock(), places.drain_lock()).check().err()?;
        let message = format!("no worker can run: {}", CliError::from(error).line());
        Some(Self { message, fix: "make that file readable and writable, or remove it".to_owned() })
    }
}
