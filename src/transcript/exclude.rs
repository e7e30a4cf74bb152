//! Patterns of the projects whose sessions must not be captured.

use std::path::{Component, Path};

/// Patterns of folders: separated by commas, or each on a line.
///
/// A pattern without a slash matches the name of the session's folder or of any folder above it:
/// `secret-*`. A pattern with a slash is a path from the root or, with `~/`, from home, and covers
/// everything below it. `*` matches any characters within a name, `**` any folders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclude {
    text: String,
    patterns: Vec<Pattern>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Name(String),
    Path(Vec<String>),
}

impl Pattern {
    fn parse(text: &str, home: Option<&Path>) -> Option<Self> {
        let pattern = text.trim();
        let expanded = pattern.strip_prefix("~/").and_then(|rest| Some(home?.join(rest)));
        let pattern = expanded.map_or_else(|| pattern.into(), |path| path.to_string_lossy().into_owned());
        let inner = pattern.trim_end_matches('/');
        match inner.contains('/') {
            true => Some(Self::Path(split_names(inner).map(str::to_owned).collect())),
            false => (!pattern.is_empty()).then(|| Self::Name(inner.to_owned())),
        }
    }
}

impl Exclude {
    /// Parses the patterns. `home` is what `~` stands for.
    pub fn new(text: &str, home: Option<&Path>) -> Self {
        let patterns = text.split(',').filter_map(|pattern| Pattern::parse(pattern, home));
        Self { patterns: patterns.collect(), text: text.to_owned() }
    }

    /// Adds the lines of a file, each of which is one pattern; one that begins with `#` is none.
    #[must_use]
    pub fn with_lines(mut self, lines: &str, home: Option<&Path>) -> Self {
        let lines = lines.strip_prefix('\u{feff}').unwrap_or(lines).lines().map(str::trim);
        for line in lines.filter(|line| !line.starts_with('#')) {
            if let Some(pattern) = Pattern::parse(line, home) {
                self.patterns.push(pattern);
                self.text.push('\n');
                self.text.push_str(line);
            }
        }
        self
    }

    /// The patterns as they were written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a session that ran in this folder is excluded.
    pub fn covers(&self, cwd: &Path) -> bool {
        let normal = |part: Component<'_>| match part {
            Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
            _ => None,
        };
        let cwd: Vec<String> = cwd.components().filter_map(normal).collect();
        self.patterns.iter().any(|pattern| match pattern {
            Pattern::Name(name) => cwd.iter().any(|folder| matches_name(name.as_bytes(), folder.as_bytes())),
            Pattern::Path(path) => is_below(path, &cwd),
        })
    }
}

fn split_names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty())
}

/// Whether the pattern matches the folder or one above it. Row by row instead of recursive, so that no
/// pattern takes longer than its length times the path's.
fn is_below(pattern: &[String], cwd: &[String]) -> bool {
    let mut reached = vec![false; cwd.len() + 1];
    reached[0] = true;
    for name in pattern {
        let mut next = vec![false; cwd.len() + 1];
        for at in 0..=cwd.len() {
            next[at] = match name.as_str() {
                "**" => reached[at] || (at > 0 && next[at - 1]),
                name => at > 0 && reached[at - 1] && matches_name(name.as_bytes(), cwd[at - 1].as_bytes()),
            };
        }
        reached = next;
    }
    reached.contains(&true)
}

/// Whether a name matches a pattern in which `*` stands for any characters.
fn matches_name(pattern: &[u8], name: &[u8]) -> bool {
    let mut reached = vec![false; name.len() + 1];
    reached[0] = true;
    for byte in pattern {
        let mut next = vec![false; name.len() + 1];
        for at in 0..=name.len() {
            next[at] = match byte {
                b'*' => reached[at] || (at > 0 && next[at - 1]),
                byte => at > 0 && reached[at - 1] && *byte == name[at - 1],
            };
        }
        reached = next;
    }
    reached[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_matches_any_folder_and_a_path_all_below_it() {
        let check = |patterns: &str, cwd: &str, expected: bool| {
            let exclude = Exclude::new(patterns, Some(Path::new("/home/ann")));
            assert_eq!(exclude.covers(Path::new(cwd)), expected, "{patterns} and {cwd}");
        };
        check("secret-*", "/home/ann/secret-x", true);
        check("secret-*", "/home/ann/secret-x/src", true);
        check("secret-*", "/home/ann/my-secret-x", false);
        check("x, client", "/w/client", true);
        check("clien", "/w/client", false);
        check("~/work", "/home/ann/work/a", true);
        check("~/work/", "/home/ann/work", true);
        check("~/work", "/home/ann/works", false);
        check("/w/*/private", "/w/a/private/b", true);
        check("/w/*/private", "/w/a/b/private", false);
        check("/w/**/private", "/w/a/b/private", true);
        check("/w/**/private", "/w/private", true);
        check("/w", "/v/w", false);
        check("", "/w", false);
        check(" , ,", "/w", false);
        check("*", "/w", true);
        check("a,b", "/w/a,b", false);
        check("a*a*a*a*a*a*a*a*a*a*b", &format!("/{}", "a".repeat(200)), false);
    }

    #[test]
    fn a_line_is_one_pattern() {
        let exclude = Exclude::new("x, y", None)
            .with_lines("\u{feff}shop\r\n# z\n\n  a, b\n~/w\n", Some(Path::new("/h")));
        for (cwd, expected) in [
            ("/w/x", true),
            ("/w/y", true),
            ("/w/shop", true),
            ("/w/a, b", true),
            ("/h/w", true),
            ("/w/a", false),
            ("/w/z", false),
        ] {
            assert_eq!(exclude.covers(Path::new(cwd)), expected, "{cwd}");
        }
        assert_eq!(exclude.as_str(), "x, y\nshop\na, b\n~/w");
    }
}
