//! Files that only their owner may read, who owns a file, and which file it is.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

/// How much of standard input is read at once.
const READ_BYTES: usize = 64 << 10;

/// How long a folder's lock is waited for: it is held for milliseconds.
const FOLDER_LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
const FOLDER_LOCK_POLL_EVERY: Duration = Duration::from_millis(10);

const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_FOLDER: u32 = 0o700;

/// Options for a file that is created with mode 0600, less the umask.
pub fn private_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(PRIVATE_FILE);
    options
}

/// Creates a folder and its parents with mode 0700. An existing folder stays as it is.
///
/// # Errors
/// If the folder cannot be created.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(path)
}

/// Creates a file that only its owner may read and write, whatever the umask. An existing file keeps its content,
/// and gets that mode.
///
/// # Errors
/// If the file cannot be opened, or is not a regular file.
pub fn create_private_file(path: &Path) -> io::Result<File> {
    let file = private_options().create(true).append(true).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    // Fails if somebody else owns the file, who then decides about it.
    let _ = file.set_permissions(permissions(PRIVATE_FILE));
    Ok(file)
}

/// Replaces a file's content, so that a crash or a kill leaves the old content or the new one. The file is private.
///
/// # Errors
/// When it cannot be written; then it is as it was.
pub fn replace_private_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or_else(|| io::Error::other("the file has no folder"))?;
    let mut file = tempfile::Builder::new().prefix(".nugget-").tempfile_in(folder)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// Locks a folder until the result is dropped, so that what is read in it and written back is no other process's. A file
/// system without locks locks nothing.
///
/// # Errors
/// When the folder cannot be opened, or another process has held the lock for 5 s.
pub fn lock_folder(folder: &Path) -> io::Result<File> {
    let file = File::open(folder)?;
    let until = Instant::now() + FOLDER_LOCK_WAIT_MAX;
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(FOLDER_LOCK_POLL_EVERY)
            }
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "another process has locked the folder"));
            }
            Ok(()) | Err(TryLockError::Error(_)) => return Ok(file),
        }
    }
}

/// Gives a file or folder to another user, which only root may; does nothing if it is theirs.
///
/// # Errors
/// If the system refuses.
pub fn give_to(path: &Path, user: u32, group: u32) -> io::Result<()> {
    match fs::metadata(path)?.uid() == user {
        true => Ok(()),
        false => std::os::unix::fs::chown(path, Some(user), Some(group)),
    }
}

/// Gives a file mode 0600, or a folder mode 0700.
///
/// # Errors
/// If it is missing, or somebody else's.
pub fn make_private(path: &Path) -> io::Result<()> {
    let mode = if fs::metadata(path)?.is_dir() { PRIVATE_FOLDER } else { PRIVATE_FILE };
    fs::set_permissions(path, permissions(mode))
}

/// The permissions of a mode such as `0o644`.
pub fn permissions(mode: u32) -> Permissions {
    Permissions::from_mode(mode)
}

/// The mode of a file, without its type.
pub fn mode(metadata: &Metadata) -> u32 {
    metadata.permissions().mode() & 0o7777
}

/// Whether the file belongs to the user whom this process runs as.
pub fn is_own(metadata: &Metadata) -> bool {
    metadata.uid() == rustix::process::geteuid().as_raw()
}

/// Whether the file has more than one name (hard links).
pub fn has_other_names(metadata: &Metadata) -> bool {
    metadata.nlink() > 1
}

/// Whether this process may write to the file, or create files in the folder.
pub fn is_writable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}

/// Which file it is, whatever its names. If a file is deleted or replaced under a running process, open handles keep the
/// deleted one; its identity shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// The identity of no file, which differs from every other.
    pub const NONE: Self = Self { device: 0, inode: 0 };

    /// The identity of the file that has this metadata.
    pub fn from_metadata(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    /// The identity of the file at this path, links followed; `None` if there is none.
    pub fn from_path(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|metadata| Self::from_metadata(&metadata))
    }
}

/// A second handle on what this process has as standard input.
///
/// # Errors
/// When the process is out of file descriptors, or was started without a standard input.
pub fn stdin_as_file() -> io::Result<File> {
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

/// One line of standard input without its end, or what there is of it at the end of the input: not all of it, as some
/// clients leave it open for ever. `None` if the line is longer than `bytes_max` or has not come whole by `until`.
pub fn read_stdin_line(bytes_max: usize, until: Instant) -> Option<Vec<u8>> {
    let stdin = io::stdin();
    let mut line = Vec::new();
    loop {
        let wait = until.saturating_duration_since(Instant::now());
        let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
        let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        match rustix::event::poll(&mut ready, Some(&timeout)) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return None,
        }
        let read = line.len();
        line.resize(read + READ_BYTES, 0);
        match rustix::io::read(&stdin, &mut line[read..]) {
            Ok(0) => {
                line.truncate(read);
                return Some(line);
            }
            Ok(count) => line.truncate(read + count),
            Err(Errno::INTR | Errno::AGAIN) => line.truncate(read),
            Err(_) => return None,
        }
        if let Some(end) = line[read..].iter().position(|byte| *byte == b'\n') {
            line.truncate(read + end);
            return (line.len() <= bytes_max).then_some(line);
        }
        if line.len() > bytes_max {
            return None;
        }
    }
}

/// The bytes that this user may still write to the disk that holds a folder.
///
/// # Errors
/// When the system does not tell.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Whether the file system of a folder is read-only.
///
/// # Errors
/// When the system does not tell.
pub fn is_read_only(folder: &Path) -> io::Result<bool> {
    Ok(rustix::fs::statvfs(folder)?.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode_of(path: &Path) -> u32 {
        mode(&fs::metadata(path).unwrap())
    }

    #[test]
    fn a_private_file_keeps_its_content_and_loses_other_readers() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        create_private_folder(&inner).unwrap();
        assert_eq!((mode_of(&inner), mode_of(inner.parent().unwrap())), (0o700, 0o700));
        let path = inner.join("file");
        fs::write(&path, "text").unwrap();
        fs::set_permissions(&path, permissions(0o644)).unwrap();
        create_private_file(&path).unwrap();
        assert_eq!((mode_of(&path), fs::read_to_string(&path).unwrap()), (0o600, "text".to_owned()));
        fs::set_permissions(&inner, permissions(0o755)).unwrap();
        make_private(&inner).unwrap();
        assert_eq!(mode_of(&inner), 0o700);
        assert!(create_private_file(&inner).is_err());
        assert!(is_own(&fs::metadata(&path).unwrap()));
    }

    #[test]
    fn an_identity_is_of_the_file_and_not_of_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (folder.path().join("first"), folder.path().join("second"));
        fs::write(&first, "").unwrap();
        fs::hard_link(&first, &second).unwrap();
        let identity = Identity::from_path(&first);
        assert!(identity.is_some() && identity == Identity::from_path(&second));
        fs::write(folder.path().join("new"), "").unwrap();
        fs::rename(folder.path().join("new"), &first).unwrap();
        assert_ne!(identity, Identity::from_path(&first));
        assert_eq!(Identity::from_path(&folder.path().join("missing")), None);
    }

    #[test]
    fn a_folder_has_free_bytes_and_a_missing_one_has_not() {
        let folder = tempfile::tempdir().unwrap();
        assert!(free_bytes(folder.path()).unwrap() > 0);
        assert!(free_bytes(&folder.path().join("missing")).is_err());
        assert!(!is_read_only(folder.path()).unwrap());
    }
}
