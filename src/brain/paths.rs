//! The paths of nugget's files outside of the brain: queue, spool, locks, logs, settings and caches.

use std::fs;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;
pub use system::file::{create_private_file, create_private_folder};

use crate::Error;

/// The folders of one brain under `$XDG_STATE_HOME/nugget/`.
///
/// They are outside of the brain, so that cloning, cleaning or checking out the brain loses no capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatePaths {
    folder: PathBuf,
}

impl StatePaths {
    /// The paths for the brain at `root`, derived from its canonical path: all paths to one brain share one queue.
    /// Creates nothing.
    pub fn for_brain(root: &Path) -> Self {
        let root = fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
        let digest = blake3::hash(root.as_os_str().as_encoded_bytes()).to_hex();
        let name =
            root.file_name().map_or_else(String::new, |name| knowledge::name::slug(&name.to_string_lossy()));
        let name = if name.is_empty() { "brain".to_owned() } else { name };
        Self { folder: state_folder().join(format!("{name}-{}", &digest[..10])) }
    }

    /// The paths in a given folder, for a brain that must leave nothing elsewhere. Creates nothing.
    pub fn in_folder(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Creates the folders with mode 0700.
    ///
    /// # Errors
    /// If a folder cannot be created.
    pub fn create(&self) -> Result<(), Error> {
        for path in [self.folder.clone(), self.spool(), self.logs()] {
            create_private_folder(&path).map_err(|source| Error::Write { path: path.clone(), source })?;
            if fs::metadata(&path).is_ok_and(|found| system::file::mode(&found) & 0o077 != 0) {
                // Fails if somebody else owns the folder; `nugget doctor` says so.
                let _ = system::file::make_private(&path);
            }
        }
        Ok(())
    }

    /// The folder that all others are in.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The queue's database.
    pub fn queue(&self) -> PathBuf {
        self.folder.join("queue.db")
    }

    /// The folder of captures that could not be written to the queue, one file each.
    pub fn spool(&self) -> PathBuf {
        self.folder.join("spool")
    }

    /// The lock of the worker process that waits to become the next one.
    pub fn wait_lock(&self) -> PathBuf {
        self.folder.join("wait.lock")
    }

    /// The lock of the running worker process.
    pub fn drain_lock(&self) -> PathBuf {
        self.folder.join("drain.lock")
    }

    /// Locked by the process that builds the index; contains its progress.
    pub fn indexing(&self) -> PathBuf {
        self.folder.join("indexing")
    }

    /// The lock of the process that rebuilds the index in the background.
    pub fn reindex_lock(&self) -> PathBuf {
        self.folder.join("reindex.lock")
    }

    /// The folder of what each session was already shown, one file each.
    pub fn sessions(&self) -> PathBuf {
        self.folder.join("sessions")
    }

    /// A file below the folder that belongs to another user, as `sudo nugget` leaves behind. Root may use all.
    pub fn foreign_file(&self) -> Option<PathBuf> {
        if system::process::is_root() {
            return None;
        }
        let entries = walkdir::WalkDir::new(&self.folder).max_depth(3).into_iter().take(10_000).flatten();
        let is_foreign = |entry: &walkdir::DirEntry| {
            entry.metadata().is_ok_and(|metadata| !system::file::is_own(&metadata))
        };
        entries.into_iter().find(is_foreign).map(walkdir::DirEntry::into_path)
    }

    /// The folder of log files.
    pub fn logs(&self) -> PathBuf {
        self.folder.join("logs")
    }
}

/// `$XDG_STATE_HOME/nugget`: the state of all brains.
pub fn state_folder() -> PathBuf {
    let home =
        strategy().map_or_else(std::env::temp_dir, |xdg| xdg.state_dir().unwrap_or_else(|| xdg.data_dir()));
    home.join("nugget")
}

/// `$XDG_CONFIG_HOME/nugget/config.toml`.
pub fn config_file() -> PathBuf {
    strategy().map_or_else(std::env::temp_dir, |xdg| xdg.config_dir()).join("nugget").join("config.toml")
}

/// `$XDG_CACHE_HOME/nugget/vectors.db`: the cache of vectors, shared by all brains.
pub fn vector_cache() -> PathBuf {
    strategy().map_or_else(std::env::temp_dir, |xdg| xdg.cache_dir()).join("nugget").join("vectors.db")
}

/// `$XDG_DATA_HOME/nugget/runtime`: the ONNX Runtime library of `nugget runtime install`.
pub fn runtime_folder() -> PathBuf {
    strategy().map_or_else(std::env::temp_dir, |xdg| xdg.data_dir()).join("nugget").join("runtime")
}

/// `$XDG_DATA_HOME/nugget/install`: the record of what `nugget install` changed, for `nugget uninstall`.
pub fn install_folder() -> PathBuf {
    runtime_folder().with_file_name("install")
}

/// `~/brain`: the brain's folder if none is given.
pub fn default_brain() -> PathBuf {
    strategy().map_or_else(|| PathBuf::from("brain"), |xdg| xdg.home_dir().join("brain"))
}

fn strategy() -> Option<etcetera::base_strategy::Xdg> {
    etcetera::base_strategy::Xdg::new().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_paths_to_one_brain_share_one_queue() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("brain");
        fs::create_dir(&root).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&root, &link).unwrap();
        assert_eq!(StatePaths::for_brain(&root), StatePaths::for_brain(&link));
        assert_ne!(StatePaths::for_brain(&root), StatePaths::for_brain(folder.path()));
    }
}
