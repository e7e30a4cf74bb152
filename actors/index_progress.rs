//! Word of an index that is being made, left by its maker for whoever looks, in a file that the maker holds
//! locked: a maker that is killed leaves no word, whatever the file says.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How far the next generation has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexProgress {
    pub pid: u32,
    pub since: Timestamp,
    /// The model that the next generation's vectors are of.
    pub model: String,
    /// That of the present generation, which answers until then; `None` when there is none yet.
    pub present: Option<String>,
    /// Texts that have their vector, of those that need one.
    pub done: usize,
    pub of: usize,
}

/// Who makes an index at the moment, by the sign at this path.
pub fn read(path: &Path) -> Option<IndexProgress> {
    if !queue::is_held(path) {
        return None;
    }
    // Between two writes it may be torn for a moment.
    (0..3).find_map(|_| serde_json::from_slice(&std::fs::read(path).ok()?).ok())
}

/// The maker's end. It is a courtesy: whatever fails here is passed over.
pub(crate) struct Sign {
    file: Option<File>,
    word: IndexProgress,
}

impl Sign {
    pub(crate) fn raise(path: &Path, model: String, present: Option<String>, of: usize) -> Self {
        let word =
            IndexProgress { pid: std::process::id(), since: Timestamp::now(), model, present, done: 0, of };
        let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(path).ok();
        // Whoever looks holds it for a moment; there is never a second maker.
        let mut sign = Self { file: file.filter(|file| file.lock().is_ok()), word };
        sign.tell(0);
        sign
    }

    pub(crate) fn tell(&mut self, done: usize) {
        self.word.done = done;
        if let (Some(file), Ok(mut bytes)) = (&self.file, serde_json::to_vec(&self.word)) {
            bytes.push(b'\n');
            // Not emptied first: whoever looks would find nothing in between.
            let _ = file.write_all_at(&bytes, 0).and_then(|()| file.set_len(bytes.len() as u64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_is_seen_for_as_long_as_its_maker_lives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("indexing");
        assert_eq!(read(&path), None);
        let long = "a model with a long name".to_owned();
        drop(Sign::raise(&path, long, None, 1_000_000));
        assert_eq!(read(&path), None);
        let mut sign = Sign::raise(&path, "new".to_owned(), Some("old".to_owned()), 20);
        sign.tell(8);
        let word = read(&path).unwrap();
        assert_eq!((word.model.as_str(), word.present.as_deref()), ("new", Some("old")));
        assert_eq!((word.done, word.of, word.pid), (8, 20, std::process::id()));
        drop(sign);
        assert_eq!(read(&path), None);
    }
}
