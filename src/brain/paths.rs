//! The paths of nugget's files outside of the brain: queue, spool, locks, logs, settings and caches.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

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
        let is_new = !self.folder.exists();
        for path in [self.folder.clone(), self.spool(), self.logs()] {
            create_private_folder(&path).map_err(|source| Error::Write { path: path.clone(), source })?;
            if fs::metadata(&path).is_ok_and(|found| system::file::mode(&found) & 0o077 != 0) {
                // Fails if somebody else owns the folder; `nugget doctor` says so.
                let _ = system::file::make_private(&path);
            }
        }
        if !self.key_file().exists() {
            self.write_key(is_new);
        }
        Ok(())
    }

    /// What the archive calls the brain. It lies in the folder, so that it stays when the folder is renamed after its brain
    /// was moved.
    pub fn key(&self) -> String {
        let key = fs::read_to_string(self.key_file()).unwrap_or_default();
        if key.is_empty() { self.name() } else { key }
    }

    /// Another brain may be made where this one was, so that the name alone is the key of folders without this file only.
    fn write_key(&self, is_new: bool) {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let key = if is_new { format!("{}-{:x}", self.name(), since.as_nanos()) } else { self.name() };
        // Without the file, the name is the key. Of two processes the first one decides.
        if let Ok(mut file) = create_private_file(&self.key_file())
            && file.metadata().is_ok_and(|found| found.len() == 0)
        {
            let _ = file.write_all(key.as_bytes());
        }
    }

    fn key_file(&self) -> PathBuf {
        self.folder.join("key")
    }

    fn name(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
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

    /// The folder, a file in it, or a folder on the way to it, that another user's ownership or mode keeps from this one,
    /// as `sudo nugget` leaves behind. Root may use all.
    pub fn blocked_file(&self) -> Option<Blocked> {
        let state = state_folder();
        let above = [state.parent(), Some(&*state)].into_iter().flatten();
        let is_blocked = |folder: &&Path| {
            fs::symlink_metadata(folder).is_ok_and(|found| !system::file::is_own(&found))
                && !system::file::is_writable(folder)
        };
        if system::process::is_root() {
            return None;
        }
        let above = above
            .filter(|_| self.folder.starts_with(&state))
            .find(is_blocked)
            .map(|folder| Blocked { file: folder.to_owned(), folder: folder.to_owned(), is_foreign: true });
        above.or_else(|| blocked_below(&self.folder, 3, |_| true))
    }

    /// The folder of log files.
    pub fn logs(&self) -> PathBuf {
        self.folder.join("logs")
    }
}

/// A file or folder that this user may not use as nugget does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The file.
    pub file: PathBuf,
    /// The folder of nugget's that it is in, or the file itself.
    pub folder: PathBuf,
    /// Whether it belongs to another user. If not, its own mode denies access.
    pub is_foreign: bool,
}

/// A file of the brain at `root`, or of its repository, that another user owns and this one may not write, as
/// `sudo nugget` and `sudo git` leave behind. In a repository that belongs to another user as a whole, git decides.
pub fn blocked_in_brain(root: &Path) -> Option<Blocked> {
    if system::process::is_root() || !fs::metadata(root).is_ok_and(|found| system::file::is_own(&found)) {
        return None;
    }
    // The folders of objects, but not each object: those are never written again.
    let places =
        [(".git", 2), (".git/refs", 6), ("domains", 4), (crate::DERIVED_FOLDER, 3), (crate::BRAIN_YAML, 0)];
    let blocked = places.into_iter().find_map(|(place, depth)| {
        blocked_below(&root.join(place), depth, |file| !system::file::is_writable(file))
    });
    blocked.map(|blocked| Blocked { folder: root.to_owned(), ..blocked })
}

/// A file of the cache of vectors that belongs to another user.
pub fn blocked_in_cache() -> Option<Blocked> {
    if system::process::is_root() {
        return None;
    }
    blocked_below(vector_cache().parent()?, 1, |file| !system::file::is_writable(file))
}

/// The first file below a folder, or the folder, that cannot be read, or belongs to another user and `is_in_the_way`.
fn blocked_below(folder: &Path, depth: usize, is_in_the_way: impl Fn(&Path) -> bool) -> Option<Blocked> {
    const FILES_MAX: usize = 10_000;
    let is_foreign =
        |file: &Path| fs::symlink_metadata(file).is_ok_and(|found| !system::file::is_own(&found));
    let blocked = |entry: Result<walkdir::DirEntry, walkdir::Error>| match entry {
        Ok(entry) if is_foreign(entry.path()) && is_in_the_way(entry.path()) => Some(entry.into_path()),
        Ok(_) => None,
        Err(error) => {
            let is_denied =
                error.io_error().is_some_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied);
            is_denied.then(|| error.path().unwrap_or(folder).to_owned())
        }
    };
    let entries = walkdir::WalkDir::new(folder).max_depth(depth).into_iter().take(FILES_MAX);
    let file = entries.filter_map(blocked).next()?;
    let is_foreign = !fs::symlink_metadata(&file).is_ok_and(|found| system::file::is_own(&found));
    Some(Blocked { file, folder: folder.to_owned(), is_foreign })
}

/// `$XDG_STATE_HOME/nugget`: the state of all brains.
pub fn state_folder() -> PathBuf {
    base_folder("XDG_STATE_HOME", ".local/state").join("nugget")
}

/// `$XDG_CONFIG_HOME/nugget/config.toml`.
pub fn config_file() -> PathBuf {
    base_folder("XDG_CONFIG_HOME", ".config").join("nugget").join("config.toml")
}

/// `$XDG_CACHE_HOME/nugget/vectors.db`: the cache of vectors, shared by all brains.
pub fn vector_cache() -> PathBuf {
    base_folder("XDG_CACHE_HOME", ".cache").join("nugget").join("vectors.db")
}

/// `$XDG_DATA_HOME/nugget/runtime`: the ONNX Runtime library of `nugget runtime install`.
pub fn runtime_folder() -> PathBuf {
    base_folder("XDG_DATA_HOME", ".local/share").join("nugget").join("runtime")
}

/// `$XDG_DATA_HOME/nugget/install`: the record of what `nugget install` changed, for `nugget uninstall`.
pub fn install_folder() -> PathBuf {
    runtime_folder().with_file_name("install")
}

/// `~/brain`: the brain's folder if none is given.
pub fn default_brain() -> PathBuf {
    home_or_root().join("brain")
}

/// The person's home folder; `None` if it is unknown. A relative `HOME` would be another folder in each working folder.
pub fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| home.is_absolute())
}

/// Whether settings and state have a folder of their own. Without one nothing should be done.
pub fn has_home() -> bool {
    home().is_some() || ["XDG_CONFIG_HOME", "XDG_STATE_HOME"].iter().all(|name| absolute(name).is_some())
}

fn base_folder(variable: &str, below_home: &str) -> PathBuf {
    absolute(variable).unwrap_or_else(|| home_or_root().join(below_home))
}

fn absolute(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Where no home is known, `/`: nobody but root can put a file there for this user to obey, as in `/tmp`.
fn home_or_root() -> PathBuf {
    home().unwrap_or_else(|| PathBuf::from("/"))
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
