//! Whether what was learned still holds.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::item::{Item, StaleReason};

/// Larger files are not read.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The digest of a file's content; `None` if there is no such file, or if it is larger than 16 MiB.
pub fn file_digest(path: &Path) -> Option<[u8; 32]> {
    let metadata = std::fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return None;
    }
    let mut hasher = Sha256::new();
    let mut file = io::Read::take(File::open(path).ok()?, FILE_BYTES_MAX);
    let mut buffer = vec![0; 64 << 10];
    loop {
        match io::Read::read(&mut file, &mut buffer) {
            Ok(0) => return Some(hasher.finalize().into()),
            Ok(count) => hasher.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// Reads a digest that is written as 64 hexadecimal digits.
pub fn parse_digest(text: &str) -> Option<[u8; 32]> {
    let digits = text.trim();
    if digits.len() != 64 || !digits.is_ascii() {
        return None;
    }
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(digest)
}

/// Checks items against the files of a project, and reads each file once.
pub struct StaleCheck {
    root: PathBuf,
    now: Timestamp,
    digests: HashMap<String, Option<[u8; 32]>>,
}

impl StaleCheck {
    /// For the project in a folder.
    pub fn new(root: &Path, now: Timestamp) -> Self {
        Self { root: root.to_owned(), now, digests: HashMap::new() }
    }

    /// Why an item may no longer hold. A file that is gone says nothing: it may have moved.
    pub fn check(&mut self, item: &Item) -> Option<StaleReason> {
        if let (Some(path), Some(learned)) = (&item.path, item.sha256)
            && self.digest(path).is_some_and(|now| now != learned)
        {
            return Some(StaleReason::FileChanged);
        }
        if item.path.is_some() && item.superseded_by.is_some() {
            return Some(StaleReason::Superseded);
        }
        item.stale_after.is_some_and(|until| until < self.now).then_some(StaleReason::Expired)
    }

    fn digest(&mut self, path: &str) -> Option<[u8; 32]> {
        let is_inside =
            Path::new(path).components().all(|part| matches!(part, std::path::Component::Normal(_)));
        let root = &self.root;
        *self
            .digests
            .entry(path.to_owned())
            .or_insert_with(|| if is_inside { file_digest(&root.join(path)) } else { None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_that_holds_is_given() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "one").unwrap();
        let learned = file_digest(&folder.path().join("a"));
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let check = |item: &Item| StaleCheck::new(folder.path(), now).check(item);
        let mut item = Item { path: Some("a".into()), sha256: learned, ..Item::default() };
        assert_eq!(check(&item), None);
        item.stale_after = Some("2025-01-01T00:00:00Z".parse().unwrap());
        assert_eq!(check(&item), Some(StaleReason::Expired));
        item.superseded_by = Some("b".into());
        assert_eq!(check(&item), Some(StaleReason::Superseded));
        std::fs::write(folder.path().join("a"), "two").unwrap();
        assert_eq!(check(&item), Some(StaleReason::FileChanged));
        std::fs::remove_file(folder.path().join("a")).unwrap();
        assert_eq!(check(&item), Some(StaleReason::Superseded), "a file that is gone says nothing");
        item.path = Some("../a".into());
        item.superseded_by = None;
        item.stale_after = None;
        assert_eq!(check(&item), None);
    }

    #[test]
    fn a_digest_is_read_from_hexadecimal_digits() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "").unwrap();
        assert_eq!(parse_digest(empty), file_digest(&folder.path().join("a")));
        assert_eq!((parse_digest("abc"), parse_digest(&"g".repeat(64))), (None, None));
        assert_eq!(file_digest(folder.path()), None);
    }
}
