//! The progress of an index that is being built, in a file that its builder keeps locked. A file that is not
//! locked was left by a builder that was killed, and is ignored.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The progress of the next generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexProgress {
    /// The process that builds it.
    pub pid: u32,
    /// When it began.
    pub since: Timestamp,
    /// The model of the next generation's vectors.
    pub model: String,
    /// The model of the present generation, which answers until then; `None` if there is none yet.
    pub present: Option<String>,
    /// How many texts have their new vector.
    pub done: usize,
    /// How many texts need one.
    pub of: usize,
}

/// Reads the progress of the builder that is at work, from the file at this path.
pub fn read(path: &Path) -> Option<IndexProgress> {
    if !queue::is_held(path) {
        return None;
    }
    // During a write it may be incomplete for a moment.
    (0..3).find_map(|_| serde_json::from_slice(&std::fs::read(path).ok()?).ok())
}

/// The builder's end. Errors are ignored, as the progress is only informative.
pub(crate) struct ProgressFile {
    file: Option<File>,
    progress: IndexProgress,
}

impl ProgressFile {
    pub(crate) fn create(path: &Path, model: String, present: Option<String>, of: usize) -> Self {
        let progress =
            IndexProgress { pid: std::process::id(), since: Timestamp::now(), model, present, done: 0, of };
        let file = system::file::private_options().create(true).truncate(false).write(true).open(path).ok();
        // Readers lock it for a moment; there is never a second builder.
        let mut this = Self { file: file.filter(|file| file.lock().is_ok()), progress };
        this.update(0);
        this
    }

    pub(crate) fn update(&mut self, done: usize) {
        self.progress.done = done;
        if let (Some(file), Ok(mut bytes)) = (&mut self.file, serde_json::to_vec(&self.progress)) {
            bytes.push(b'\n');
            // Not truncated first: a reader would find nothing in between.
            let write = |file: &mut File| {
                file.rewind()?;
                file.write_all(&bytes)?;
                file.set_len(bytes.len() as u64)
            };
            let _ = write(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_readable_while_its_builder_holds_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("indexing");
        assert_eq!(read(&path), None);
        let long = "a model with a long name".to_owned();
        drop(ProgressFile::create(&path, long, None, 1_000_000));
        assert_eq!(read(&path), None);
        let mut file = ProgressFile::create(&path, "new".to_owned(), Some("old".to_owned()), 20);
        file.update(8);
        let progress = read(&path).unwrap();
        assert_eq!((progress.model.as_str(), progress.present.as_deref()), ("new", Some("old")));
        assert_eq!((progress.done, progress.of, progress.pid), (8, 20, std::process::id()));
        drop(file);
        assert_eq!(read(&path), None);
    }
}
