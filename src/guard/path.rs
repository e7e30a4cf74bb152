//! Paths as texts: nothing here looks at a disk.

/// A path as seen from a folder, without `.` and `..`; `None` where that depends on what is not known, as with a
/// variable. One below the home folder keeps its `~/`.
pub(crate) fn resolve(path: &str, folder: Option<&str>) -> Option<String> {
    let is_in_home = |path: &str| path == "~" || path.starts_with("~/");
    if path.is_empty()
        || path.starts_with('-')
        || path.starts_with('~') && !is_in_home(path)
        || path.contains(['$', '`', '*', '?', '\n', '\0'])
    {
        return None;
    }
    let whole = match path {
        path if path.starts_with('/') || is_in_home(path) => path.to_owned(),
        path => format!("{}/{path}", folder?),
    };
    let (start, inner) = match whole.strip_prefix('~') {
        Some(inner) => ("~/", inner),
        None => ("/", whole.as_str()),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in inner.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                // What lies above the home folder is not known.
                if parts.pop().is_none() && start == "~/" {
                    return None;
                }
            }
            part => parts.push(part),
        }
    }
    Some(format!("{start}{}", parts.join("/")))
}

/// The parts of a path, without empty ones and `.`.
pub(crate) fn parts(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('/').filter(|part| !matches!(*part, "" | "."))
}

/// The key of the triggers whose path begins with this part and goes on; with none, of all whose path is from the root of
/// the repository.
pub(crate) fn key_below(first: &str) -> String {
    format!("below {first}")
}
