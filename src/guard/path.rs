//! Paths as texts: nothing here looks at a disk.

/// A path as seen from a folder, without `.` and `..`; `None` where that depends on what is not known, as with a
/// variable or a home folder.
pub(crate) fn resolve(path: &str, folder: Option<&str>) -> Option<String> {
    if path.is_empty() || path.starts_with(['~', '-']) || path.contains(['$', '`', '*', '?', '\n', '\0']) {
        return None;
    }
    let whole = if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", folder?) };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    Some(format!("/{}", parts.join("/")))
}

/// The parts of a path, without empty ones and `.`.
pub(crate) fn parts(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('/').filter(|part| !matches!(*part, "" | "."))
}
