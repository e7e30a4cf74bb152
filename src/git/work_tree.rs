//! Reads and writes plain files of the work tree without following symbolic links.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, OFlags};
use rustix::io::Errno;

use crate::error::Error;
use crate::types::BLOB_BYTES_MAX;

/// The name of a file while its content is written. Always the same, so that the next attempt overwrites what a
/// killed process left behind.
pub(crate) const TEMPORARY: &str = ".nugget-merge.tmp";

/// What is at a path of the work tree.
pub(crate) enum WorkTreeFile {
    Missing,
    File(Vec<u8>),
    /// A folder, a symbolic link or the like, or one of these as a parent.
    Other,
}

/// Reads the file at a path of which no part is a symbolic link.
pub(crate) fn read(root: &Path, path: &str) -> Result<WorkTreeFile, Error> {
    let failed = |errno: Errno| Error::io("open", root.join(path))(errno.into());
    let (folder, name) = match open_parent(root, path, false) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(WorkTreeFile::Missing),
        Err(Errno::NOTDIR | Errno::LOOP) => return Ok(WorkTreeFile::Other),
        Err(errno) => return Err(failed(errno)),
    };
    // Without waiting for the writer of a named pipe.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = match rustix::fs::openat(&folder, name, flags, rustix::fs::Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(WorkTreeFile::Missing),
        Err(Errno::LOOP | Errno::NXIO) => return Ok(WorkTreeFile::Other),
        Err(errno) => return Err(failed(errno)),
    };
    let io = Error::io("read", root.join(path));
    let mut read_content = || -> std::io::Result<WorkTreeFile> {
        let metadata = file.metadata()?;
        // Larger than any file that is merged, so it is another one.
        if !metadata.is_file() || metadata.len() > BLOB_BYTES_MAX {
            return Ok(WorkTreeFile::Other);
        }
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        Ok(WorkTreeFile::File(content))
    };
    read_content().map_err(io)
}

/// Opens the parent folder of a path below the root; also returns the path's last part. No symbolic link is
/// followed.
fn open_parent<'a>(root: &Path, path: &'a str, create: bool) -> Result<(OwnedFd, &'a str), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let no_mode = rustix::fs::Mode::empty();
    let mut folder = rustix::fs::openat(CWD, root, flags, no_mode)?;
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    for part in folders.split('/').filter(|part| !part.is_empty()) {
        if create {
            match rustix::fs::mkdirat(&folder, part, rustix::fs::Mode::from_raw_mode(0o777)) {
                Ok(()) => rustix::fs::fsync(&folder)?,
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        folder = rustix::fs::openat(&folder, part, flags | OFlags::NOFOLLOW, no_mode)?;
    }
    Ok((folder, name))
}

/// Writes a file of the work tree atomically: under a temporary name first, then under its own. A new file never
/// replaces another one, even if that was created after the check.
pub(crate) fn write(
    root: &Path,
    path: &str,
    content: &[u8],
    is_new: bool,
    is_executable: bool,
) -> Result<(), Error> {
    let create = || -> std::io::Result<()> {
        let (folder, name) = open_parent(root, path, true)?;
        match rustix::fs::unlinkat(&folder, TEMPORARY, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = rustix::fs::Mode::from_raw_mode(if is_executable { 0o777 } else { 0o666 });
        let mut file = File::from(rustix::fs::openat(&folder, TEMPORARY, flags, mode)?);
        let mut write = || -> std::io::Result<()> {
            file.write_all(content)?;
            file.sync_all()?;
            if is_new {
                rustix::fs::linkat(&folder, TEMPORARY, &folder, name, AtFlags::empty())?;
                rustix::fs::unlinkat(&folder, TEMPORARY, AtFlags::empty())?;
            } else {
                rustix::fs::renameat(&folder, TEMPORARY, &folder, name)?;
            }
            Ok(())
        };
        if let Err(error) = write() {
            // The first error is returned; the next attempt overwrites the temporary file.
            let _ = rustix::fs::unlinkat(&folder, TEMPORARY, AtFlags::empty());
            return Err(error);
        }
        rustix::fs::fsync(&folder)?;
        Ok(())
    };
    create().map_err(Error::io("write", root.join(path)))
}

/// Removes a file of the work tree and the folders that become empty, as git does.
pub(crate) fn remove(root: &Path, path: &str) -> Result<(), Error> {
    let remove = |path: &str, flags| -> Result<(), Errno> {
        let (folder, name) = open_parent(root, path, false)?;
        rustix::fs::unlinkat(&folder, name, flags)?;
        rustix::fs::fsync(&folder)
    };
    match remove(path, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(Error::io("remove", root.join(path))(errno.into())),
    }
    let mut folder = path;
    while let Some((above, _)) = folder.rsplit_once('/') {
        // A folder that is not empty stays.
        if remove(above, AtFlags::REMOVEDIR).is_err() {
            break;
        }
        folder = above;
    }
    Ok(())
}
