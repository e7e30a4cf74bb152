//! Which paths may be written into a tree.

use gix::bstr::ByteSlice as _;
use gix::validate::path::component;

use crate::error::Error;

/// Whether names that begin with a dot may be written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hidden {
    Allowed,
    /// For proposals, whose paths come from a model in the end: knowledge is never hidden, while
    /// `.gitattributes`, `.github/workflows` and their kind make git or a forge do things.
    Refused,
}

/// Checks a relative path with `/` between its parts.
///
/// Each part must be safe on every system, whichever this one is, as brains travel: no `.git` in
/// any spelling that NTFS or HFS+ take for it, no device names, no characters that Windows refuses.
pub(crate) fn check(path: &str, hidden: Hidden) -> Result<(), Error> {
    let invalid = |reason: &str| Error::InvalidPath { path: path.to_owned(), reason: reason.to_owned() };
    if path.len() > 1024 {
        return Err(invalid("it is longer than 1024 bytes"));
    }
    for part in path.split('/') {
        component(part.as_bytes().as_bstr(), None, component::Options::default())
            .map_err(|error| invalid(&error.to_string()))?;
        if hidden == Hidden::Refused && part.starts_with('.') {
            return Err(invalid("hidden files are not knowledge"));
        }
        if part.contains(knowledge::text::is_hidden) {
            return Err(invalid("it holds invisible characters"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leaves_the_brain_or_reaches_git_is_refused() {
        let bad = [
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
            "a\\b.md",
            "..\\b.md",
            "C:/x.md",
            "a\0b.md",
            "a\nb.md",
            "nul",
            "a/com1.md",
            "a/b?.md",
            "trailing ",
            "dot.",
            "a/\u{202e}dm.exe",
        ];
        for path in bad {
            let error = check(path, Hidden::Allowed).expect_err(path);
            assert!(matches!(error, Error::InvalidPath { .. }), "{path:?}: {error}");
        }
        check(&"x/".repeat(600), Hidden::Allowed).unwrap_err();
    }

    #[test]
    fn a_proposal_may_not_hide_files_and_the_first_commit_may() {
        for path in [".gitignore", ".gitattributes", ".github/workflows/x.yml", "a/.b/c.md"] {
            check(path, Hidden::Allowed).unwrap();
            check(path, Hidden::Refused).unwrap_err();
        }
        check("domains/coding/patterns/bounded-worker-pools.md", Hidden::Refused).unwrap();
        check("notes/Ünïcode names.md", Hidden::Refused).unwrap();
    }
}
