//! Where an announcement goes when the queue cannot take it: a file of its own.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::capture::Announcement;

/// A folder of announcements, one file each, complete or not there at all.
#[derive(Clone, Debug)]
pub struct Spool {
    folder: PathBuf,
}

impl Spool {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Keeps an announcement: write, fsync, rename, fsync the folder.
    pub fn put(&self, announcement: &Announcement) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        // Named after what it holds, so that a hook that is run twice leaves one file.
        let body = serde_json::to_vec(announcement)?;
        let name = blake3::hash(&body).to_hex()[..16].to_owned();
        let temporary = self.folder.join(format!("{name}.{}.new", std::process::id()));
        let mut file = File::options().write(true).create(true).truncate(true).open(&temporary)?;
        file.write_all(&body)?;
        file.sync_all()?;
        failpoint::here!("spool-after-write");
        fs::rename(&temporary, self.folder.join(format!("{name}.json")))?;
        failpoint::here!("spool-after-rename");
        File::open(&self.folder)?.sync_all()
    }

    /// The announcements kept, each with its file; to be removed once its row is committed.
    /// A file that cannot be read as one is set aside with the ending `.bad`.
    ///
    /// What a hook has left that was killed as it wrote is taken in if it is whole, and removed if
    /// it is torn: nobody was told that it is kept.
    pub fn list(&self) -> io::Result<Vec<(PathBuf, Announcement)>> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let is_left = match path.extension().and_then(|ending| ending.to_str()) {
                Some("json") => false,
                Some("new") if !writer_lives(&path) => true,
                _ => continue,
            };
            match fs::read(&path).map(|body| serde_json::from_slice(&body)) {
                Ok(Ok(announcement)) => found.push((path, announcement)),
                Ok(Err(_)) if is_left => self.remove(&path)?,
                Ok(Err(_)) => fs::rename(&path, path.with_extension("bad"))?,
                // Another process has taken it in meanwhile.
                Err(_) => {}
            }
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(found)
    }

    pub fn remove(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Whether the process whose number is in a temporary file's name is there.
fn writer_lives(path: &Path) -> bool {
    let number = || path.file_stem()?.to_str()?.rsplit('.').next()?.parse().ok();
    number()
        .and_then(rustix::process::Pid::from_raw)
        .is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}
