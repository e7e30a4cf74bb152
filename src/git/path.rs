//! Checks which paths may be written into a tree.

use gix::bstr::ByteSlice as _;
use gix::validate::path::component;

use crate::error::Error;

/// Whether a path may have parts that begin with a dot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HiddenNames {
    Allowed,
    /// For proposals, whose paths a model may have chosen: knowledge is never hidden, while
    /// `.gitattributes`, `.github/workflows` and similar files change what git or GitHub does.
    Refused,
}

/// Checks a relative path with `/` as the separator.
///
/// Brains are copied between systems, so each part of a new path must be safe on all of them: no `.git` in any spelling
/// that NTFS or HFS+ treat as equal, no device names, no characters that Windows refuses. With `is_known`, where a person
/// has chosen the path, names that are only of no use elsewhere are allowed.
pub(crate) fn check(path: &str, hidden: HiddenNames, is_known: bool) -> Result<(), Error> {
    let invalid = |reason: &str| Error::InvalidPath { path: path.to_owned(), reason: reason.to_owned() };
    if path.len() > 1024 {
        return Err(invalid("it is longer than 1024 bytes"));
    }
    if path.contains('\0') {
        return Err(invalid("it has a NUL byte"));
    }
    let options = component::Options { protect_windows: !is_known, ..component::Options::default() };
    for part in path.split('/') {
        component(part.as_bytes().as_bstr(), None, options).map_err(|error| invalid(&error.to_string()))?;
        if hidden == HiddenNames::Refused && part.starts_with('.') {
            return Err(invalid("hidden files are not knowledge"));
        }
        // What makes an emoji of a letter is in the names of many notes.
        let is_hidden = |c| knowledge::text::is_hidden(c) && c != '\u{fe0f}';
        if !is_known && part.contains(is_hidden) {
            return Err(invalid("it has invisible characters"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_outside_the_brain_or_inside_git_is_refused() {
        let bad_anywhere = [
            "",
            "/etc/passwd",
            "a//b.md",
            "a/",
            "..",
            "../x.md",
            "a/../b.md",
            "./a.md",
            ".git/config",
            ".GIT/x",
            "a/.Git/hooks/post-checkout",
            ".g\u{200c}it/config",
            "\u{200d}.git/config",
            "git~1/config",
            ".git /config",
            ".git./config",
            ".git::$INDEX_ALLOCATION/config",
            "a\0b.md",
        ];
        let bad_elsewhere = [
            "a\\b.md",
            "..\\b.md",
            "C:/x.md",
            "a\nb.md",
            "nul",
            "a/com1.md",
            "a/b?.md",
            "trailing ",
            "dot.",
            "a/\u{202e}dm.exe",
            "a/\u{1f468}\u{200d}\u{1f33e}.md",
        ];
        for path in bad_anywhere.into_iter().chain(bad_elsewhere) {
            let error = check(path, HiddenNames::Allowed, false).expect_err(path);
            assert!(matches!(error, Error::InvalidPath { .. }), "{path:?}: {error}");
            let is_fine_here = check(path, HiddenNames::Allowed, true).is_ok();
            assert_eq!(is_fine_here, bad_elsewhere.contains(&path), "{path:?}");
        }
        check(&"x/".repeat(600), HiddenNames::Allowed, true).unwrap_err();
    }

    #[test]
    fn only_the_first_commit_may_have_hidden_files() {
        for path in [".gitignore", ".gitattributes", ".github/workflows/x.yml", "a/.b/c.md"] {
            check(path, HiddenNames::Allowed, false).unwrap();
            check(path, HiddenNames::Refused, false).unwrap_err();
        }
        check("domains/coding/patterns/bounded-worker-pools.md", HiddenNames::Refused, false).unwrap();
        check("notes/Ünïcode names.md", HiddenNames::Refused, false).unwrap();
        check("notes/⚙\u{fe0f} Setup.md", HiddenNames::Refused, false).unwrap();
    }
}
