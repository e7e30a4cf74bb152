//! Paths to files that need not exist.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// A path without `.` and `..`, by its text alone: what it leads to need not exist.
pub fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// Where an absolute path leads, as far as it exists.
pub(crate) fn without_links(path: &Path) -> PathBuf {
    let mut existing = path.ancestors().filter(|_| path.is_absolute());
    let found = existing.find_map(|folder| {
        let rest = path.strip_prefix(folder).ok()?;
        Some(fs::canonicalize(folder).ok()?.join(rest))
    });
    found.unwrap_or_else(|| path.to_owned())
}
