//! Remembers which units a session was shown, so that it is not shown them again.

use std::collections::HashSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use brain::StatePaths;

const UNITS_MAX: usize = 2_000;
/// Above this many sessions the older half is removed.
const SESSIONS_MAX: usize = 200;

/// The units that a session was shown.
pub(crate) fn load(places: &StatePaths, session: &str) -> Vec<String> {
    let Some(path) = session_file(places, session) else { return Vec::new() };
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Stores the units that a session was shown, and removes old sessions. If it fails, the session may be shown
/// the same units again.
pub(crate) fn store(places: &StatePaths, session: &str, units: impl Iterator<Item = String>) {
    let Some(path) = session_file(places, session) else { return };
    let folder = places.sessions();
    let mut unique = HashSet::new();
    let lines: Vec<String> =
        units.filter(|unit| !unit.contains('\n') && unique.insert(unit.clone())).take(UNITS_MAX).collect();
    if lines.is_empty() {
        let _ = std::fs::remove_file(path);
        return;
    }
    if !folder.is_dir() && brain::paths::create_private_folder(&folder).is_err() {
        return;
    }
    let is_new = !path.exists();
    let temporary = path.with_extension(format!("{}.new", std::process::id()));
    let write = || {
        brain::paths::create_private_file(&temporary)?.write_all((lines.join("\n") + "\n").as_bytes())?;
        std::fs::rename(&temporary, &path)
    };
    if write().is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    if is_new {
        remove_old(&folder);
    }
}

fn remove_old(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let modified = |entry: &std::fs::DirEntry| entry.metadata().and_then(|meta| meta.modified()).ok();
    let mut files: Vec<_> = entries.flatten().map(|entry| (modified(&entry), entry.path())).collect();
    if files.len() <= SESSIONS_MAX {
        return;
    }
    files.sort();
    for (_, path) in &files[..files.len() - SESSIONS_MAX / 2] {
        let _ = std::fs::remove_file(path);
    }
}

/// The session's file; `None` for an id that is not a plain file name.
fn session_file(places: &StatePaths, session: &str) -> Option<PathBuf> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let is_name = (1..=100).contains(&session.len()) && session.chars().all(is_plain);
    is_name.then(|| places.sessions().join(session))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_session_id_becomes_a_file_name() {
        let folder = tempfile::tempdir().unwrap();
        let places = StatePaths::in_folder(folder.path().to_owned());
        for name in ["../x", "", "a/b", "a\nb", &"x".repeat(101)] {
            assert_eq!(session_file(&places, name), None, "{name}");
        }
        store(&places, "s-1", ["a", "b", "a"].map(str::to_owned).into_iter());
        assert_eq!(load(&places, "s-1"), ["a", "b"]);
        store(&places, "s-1", std::iter::empty());
        assert!(load(&places, "s-1").is_empty());
    }
}
