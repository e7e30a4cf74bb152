//! Announcements as files, for when a hook cannot write to the queue.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::capture::Announcement;

/// A folder of announcements, one file each. A file is complete or does not exist.
#[derive(Clone, Debug)]
pub struct Spool {
    folder: PathBuf,
}

impl Spool {
    /// A spool in this folder, which [`put`](Self::put) creates.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Stores an announcement: write, fsync, rename, fsync the folder.
    ///
    /// # Errors
    /// When one of these fails.
    pub fn put(&self, announcement: &Announcement) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        // Named after its content, so that a hook that runs twice leaves one file.
        let body = serde_json::to_vec(announcement)?;
        let name = blake3::hash(&body).to_hex()[..16].to_owned();
        let temporary = self.folder.join(format!("{name}.{}.new", std::process::id()));
        let mut file =
            system::file::private_options().write(true).create(true).truncate(true).open(&temporary)?;
        file.write_all(&body)?;
        file.sync_all()?;
        failpoint::here!("spool-after-write");
        fs::rename(&temporary, self.folder.join(format!("{name}.json")))?;
        failpoint::here!("spool-after-rename");
        File::open(&self.folder)?.sync_all()
    }

    /// The stored announcements, each with its file, which the caller removes after committing its row.
    /// A file that does not parse is renamed to end in `.bad`.
    ///
    /// The temporary file of a killed hook is used if it is complete and removed if it is not: nobody
    /// was told that it is stored.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn list(&self) -> io::Result<Vec<(PathBuf, Announcement)>> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?;
            // To read a named pipe would wait for its writer.
            if !entry.file_type()?.is_file() {
                continue;
            }
            let path = entry.path();
            let is_temporary = match path.extension().and_then(|ending| ending.to_str()) {
                Some("json") => false,
                Some("new") if !is_writer_running(&path) => true,
                _ => continue,
            };
            match fs::read(&path).map(|body| serde_json::from_slice(&body)) {
                Ok(Ok(announcement)) => found.push((path, announcement)),
                Ok(Err(_)) if is_temporary => self.remove(&path)?,
                Ok(Err(_)) => fs::rename(&path, path.with_extension("bad"))?,
                // Another process has removed it in the meantime.
                Err(_) => {}
            }
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(found)
    }

    /// Whether nothing is stored. Corrupt files do not count.
    pub fn is_empty(&self) -> bool {
        self.stored().next().is_none()
    }

    /// When each announcement was stored, in no order. Corrupt files do not count.
    pub fn times(&self) -> Vec<SystemTime> {
        self.stored().filter_map(|path| fs::metadata(path).ok()?.modified().ok()).collect()
    }

    fn stored(&self) -> impl Iterator<Item = PathBuf> {
        let paths = fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.path());
        paths.filter(|path| path.extension().is_some_and(|ending| ending == "json" || ending == "new"))
    }

    /// The files that hold no announcement, such as those that [`list`](Self::list) has renamed, sorted. Nothing else
    /// says which sessions they announced.
    pub fn corrupt(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let is_corrupt = |path: &PathBuf| match path.extension().and_then(|ending| ending.to_str()) {
            Some("bad") => true,
            Some("json") => {
                !path.is_file()
                    || File::open(path).is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
            }
            _ => false,
        };
        let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_corrupt).collect();
        found.sort();
        found
    }

    /// Removes a file of the spool; it is no error if it is gone.
    ///
    /// # Errors
    /// When it exists and cannot be removed.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Whether the process whose id is in a temporary file's name is running.
fn is_writer_running(path: &Path) -> bool {
    let number = || path.file_stem()?.to_str()?.rsplit('.').next()?.parse().ok();
    number().is_some_and(system::process::is_running)
}
