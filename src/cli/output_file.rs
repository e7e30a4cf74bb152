//! Writes the file that a person has named with `-o`.

use std::fs::{File, Metadata};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::CliError;

/// The mode of a new file, less the umask.
const MODE: u32 = 0o644;
/// As many symbolic links are followed as Linux follows.
const LINKS_MAX: usize = 40;

/// The file that was named; `None` is standard output, which `-` names, too.
pub(crate) fn named(output: &Option<PathBuf>) -> Option<&Path> {
    output.as_deref().filter(|path| path.as_os_str() != "-")
}

/// Writes a file: atomically, but through links, so that they stay, and with the mode that it has.
pub(crate) fn write_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let failed = |error: io::Error| {
        CliError::new(format!("failed to write {}: {error}", path.display()))
            .hint("give a file in a folder that you may write to")
    };
    let target = &follow_links(path).map_err(failed)?;
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(CliError::new(format!("no such folder: {}", folder.display()))
            .hint("create it, or give a file in another folder"));
    }
    let found = std::fs::metadata(target).ok();
    // A device, pipe or socket is written to, and so is a file with other names or another owner: a rename would replace
    // the one and separate the other.
    let is_written_through = |found: &&Metadata| {
        !found.is_file() || system::file::has_other_names(found) || !system::file::is_own(found)
    };
    if let Some(found) = found.as_ref().filter(is_written_through) {
        let file = File::options().write(true).truncate(found.is_file()).open(target).map_err(failed)?;
        let mut file = BufWriter::new(file);
        write(&mut file)?;
        return file.flush().map_err(failed);
    }
    let mode = found.as_ref().map_or(MODE, system::file::mode);
    let permissions = system::file::permissions(mode);
    let mut file =
        tempfile::Builder::new().permissions(permissions.clone()).tempfile_in(folder).map_err(failed)?;
    let mut out = BufWriter::new(file.as_file_mut());
    write(&mut out)?;
    out.flush().map_err(failed)?;
    drop(out);
    if found.is_some() {
        // Whatever the umask.
        file.as_file().set_permissions(permissions).map_err(failed)?;
    }
    file.persist(target).map_err(|error| failed(error.error))?;
    Ok(())
}

/// The path at the end of symbolic links, also where there is no file yet.
fn follow_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match std::fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("")).join(target),
            // It is no link, or does not exist.
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}
