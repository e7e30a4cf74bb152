//! Paths as texts: nothing here looks at a disk.

/// A path as seen from a folder, without `.` and `..`; `None` where that depends on what is not known, as with a
/// variable. One below the home folder keeps its `~/`.
pub(crate) fn resolve(path: &str, folder: Option<&str>) -> Option<String> {
    let is_plain = !path.starts_with('-') && !path.contains(['$', '`', '*', '?', '\n']);
    if is_plain { resolve_verbatim(path, folder) } else { None }
}

/// [`resolve`] of a path that no shell reads: `app/$id.tsx` is a file's name.
pub(crate) fn resolve_verbatim(path: &str, folder: Option<&str>) -> Option<String> {
    let is_in_home = |path: &str| path == "~" || path.starts_with("~/");
    if path.is_empty() || path.starts_with('~') && !is_in_home(path) || path.contains('\0') {
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

/// Longer folders are above no path that a unit names, in bytes.
const FOLDER_BYTES_MAX: usize = 1 << 10;

/// The folders above a path, the highest first: of `a/b/c` `a` and `a/b`.
pub(crate) fn above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(end, _)| &path[..end])
}

/// A folder's path and its ends: of `a/b` also `b`.
pub(crate) fn ends(folder: &str) -> impl Iterator<Item = &str> {
    let ends = folder.match_indices('/').map(|(start, _)| &folder[start + 1..]);
    std::iter::once(folder).chain(ends).filter(|end| end.len() <= FOLDER_BYTES_MAX)
}

/// Whether a pattern such as `*.rs`, `*/a.rs` or `**` below a folder stands for a path there, or for something below
/// that. Behind `**` there may be anything.
pub(crate) fn names(pattern: &str, path: &str) -> bool {
    let mut names = parts(path);
    for pattern in parts(pattern) {
        match names.next() {
            Some(name) if pattern != "**" => {
                if !is_name(pattern, name) {
                    return false;
                }
            }
            _ => return true,
        }
    }
    names.next().is_none()
}

/// Whether a pattern with `*` and `?` stands for a name.
fn is_name(pattern: &str, name: &str) -> bool {
    let [pattern, name]: [Vec<char>; 2] = [pattern, name].map(|text| text.chars().collect());
    let is_hidden = name.first() == Some(&'.') && pattern.first() != Some(&'.');
    let (mut at, mut next) = (0, 0);
    // The last `*`, and how much of the name stands before what it stands for ends.
    let mut star = None;
    while next < name.len() {
        match (pattern.get(at), star) {
            (Some('*'), _) => {
                star = Some((at, next));
                at += 1;
            }
            (Some(c), _) if *c == '?' || *c == name[next] => (at, next) = (at + 1, next + 1),
            (_, Some((place, end))) => {
                star = Some((place, end + 1));
                (at, next) = (place + 1, end + 1);
            }
            (_, None) => return false,
        }
    }
    !is_hidden && pattern[at..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_stands_for_the_names_that_the_shell_puts_for_it() {
        for (pattern, path) in [
            ("*.rs", "a.rs"),
            ("q*e?e", "queue"),
            ("*", "a"),
            ("*/a.rs", "queue/a.rs"),
            ("*/a.rs", "queue"),
            ("q*/**", "queue/b/c"),
            ("**", "a/b"),
            ("**/*.rs", "a/b.rs"),
            ("*a*b*", "xaxbx"),
            (".*", ".env"),
        ] {
            assert!(names(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("*.rs", "a.md"),
            ("*.rs", "queue/a.rs"),
            ("*/a.rs", "queue/b.rs"),
            ("*", ".env"),
            ("?", "ab"),
            ("*b", "abc"),
        ] {
            assert!(!names(pattern, path), "{pattern} {path}");
        }
    }
}
