//! Where nugget keeps what is not knowledge: the queue, the spool, the locks, the logs.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;

use crate::Error;

/// The folders of one brain under `$XDG_STATE_HOME/nugget/`.
///
/// They lie outside of the brain, so that a clone, a clean-up or a checkout of it loses no capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatePaths {
    folder: PathBuf,
}

impl StatePaths {
    /// The places of the brain at `root`, named after its real path: two ways to the same brain
    /// lead to one queue. Nothing is created yet.
    pub fn for_brain(root: &Path) -> Self {
        let root = fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
        let digest = blake3::hash(root.as_os_str().as_encoded_bytes()).to_hex();
        let name =
            root.file_name().map_or_else(String::new, |name| knowledge::name::slug(&name.to_string_lossy()));
        let name = if name.is_empty() { "brain".to_owned() } else { name };
        Self { folder: state_folder().join(format!("{name}-{}", &digest[..10])) }
    }

    /// The places in a folder that the caller has chosen, as for a brain that is to leave nothing
    /// outside of it. Nothing is created yet.
    pub fn in_folder(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Creates the folders, for the user alone (0700).
    pub fn create(&self) -> Result<(), Error> {
        for path in [self.folder.clone(), self.spool(), self.logs()] {
            create_private_folder(&path).map_err(|source| Error::Write { path, source })?;
        }
        Ok(())
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn queue(&self) -> PathBuf {
        self.folder.join("queue.db")
    }

    /// Captures that could not be written to the queue, one file each.
    pub fn spool(&self) -> PathBuf {
        self.folder.join("spool")
    }

    pub fn wait_lock(&self) -> PathBuf {
        self.folder.join("wait.lock")
    }

    pub fn drain_lock(&self) -> PathBuf {
        self.folder.join("drain.lock")
    }

    /// Held by whoever makes the index, with word of how far it has come.
    pub fn indexing(&self) -> PathBuf {
        self.folder.join("indexing")
    }

    /// Held by the process that makes the index anew in the background.
    pub fn reindex_lock(&self) -> PathBuf {
        self.folder.join("reindex.lock")
    }

    /// What sessions have been told already, a file for each.
    pub fn sessions(&self) -> PathBuf {
        self.folder.join("sessions")
    }

    pub fn logs(&self) -> PathBuf {
        self.folder.join("logs")
    }
}

/// Creates a folder and its parents with mode 0700; one that exists stays as it is.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// `$XDG_STATE_HOME/nugget`, where the state of every brain lies.
pub fn state_folder() -> PathBuf {
    let home =
        strategy().map_or_else(std::env::temp_dir, |xdg| xdg.state_dir().unwrap_or_else(|| xdg.data_dir()));
    home.join("nugget")
}

/// `$XDG_CONFIG_HOME/nugget/config.toml`.
pub fn config_file() -> PathBuf {
    strategy().map_or_else(std::env::temp_dir, |xdg| xdg.config_dir()).join("nugget").join("config.toml")
}

/// `$XDG_CACHE_HOME/nugget/vectors.db`: vectors that were computed once, for all brains.
pub fn vector_cache() -> PathBuf {
    strategy().map_or_else(std::env::temp_dir, |xdg| xdg.cache_dir()).join("nugget").join("vectors.db")
}

/// `$XDG_DATA_HOME/nugget/runtime`: where `nugget runtime install` puts the ONNX Runtime library.
pub fn runtime_folder() -> PathBuf {
    strategy().map_or_else(std::env::temp_dir, |xdg| xdg.data_dir()).join("nugget").join("runtime")
}

/// `$XDG_DATA_HOME/nugget/install`: what `nugget install` has changed, for `nugget uninstall`.
pub fn install_folder() -> PathBuf {
    runtime_folder().with_file_name("install")
}

/// Where a brain is made when no folder is named: `~/brain`.
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
    fn two_ways_to_one_brain_share_one_queue() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("brain");
        fs::create_dir(&root).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&root, &link).unwrap();
        assert_eq!(StatePaths::for_brain(&root), StatePaths::for_brain(&link));
        assert_ne!(StatePaths::for_brain(&root), StatePaths::for_brain(folder.path()));
    }
}
