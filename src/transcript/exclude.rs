//! Patterns of the projects whose sessions must not be captured.

use std::path::{Component, Path};

use crate::path::without_links;

/// Patterns of folders: separated by commas, or each on a line.
///
/// A pattern without a slash matches the name of the session's folder or of any folder above it:
/// `secret-*`. A pattern with a slash is a path from the root or, with `~/`, from home, and covers
/// everything below it, `~` all of home and `/` everything. `*` matches any characters within a name, `**` any
/// folders. A path through links is known by either name: clients report where they lead. A path of Windows is one
/// with `\` or `/`, from its drive.
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
    /// The pattern and, of a path through links, where they lead.
    fn parse(text: &str, home: Option<&Path>) -> Vec<Self> {
        let pattern = text.trim();
        let below_home = if pattern == "~" { Some("") } else { pattern.strip_prefix("~/") };
        let expanded = below_home.and_then(|rest| Some(home?.join(rest)));
        let pattern = expanded.map_or_else(|| pattern.into(), |path| path.to_string_lossy().into_owned());
        if !pattern.trim_end_matches('/').contains('/') && !pattern.starts_with('/') {
            let name = pattern.trim_end_matches('/');
            let names = names_of(Path::new(name));
            let is_path = name.contains('\\') && !names.is_empty();
            let mut patterns = if name.is_empty() { vec![] } else { vec![Self::Name(name.to_owned())] };
            patterns.extend(is_path.then_some(Self::Path(names)));
            return patterns;
        }
        let names: Vec<String> =
            pattern.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let plain = names.iter().take_while(|name| !name.contains('*')).count();
        let folder = without_links(&Path::new("/").join(names[..plain].join("/")));
        let linked = names_of(&folder).into_iter().chain(names[plain..].iter().cloned()).collect();
        vec![Self::Path(names), Self::Path(linked)]
    }
}

impl Exclude {
    /// Parses the patterns. `home` is what `~` stands for.
    pub fn new(text: &str, home: Option<&Path>) -> Self {
        let patterns = text.split(',').flat_map(|pattern| Pattern::parse(pattern, home));
        Self { patterns: patterns.collect(), text: text.to_owned() }
    }

    /// Adds the lines of a file, each of which is one pattern; one that begins with `#` is none.
    #[must_use]
    pub fn with_lines(mut self, lines: &str, home: Option<&Path>) -> Self {
        let lines = lines.strip_prefix('\u{feff}').unwrap_or(lines).lines().map(str::trim);
        for line in lines.filter(|line| !line.starts_with('#')) {
            let patterns = Pattern::parse(line, home);
            if !patterns.is_empty() {
                self.patterns.extend(patterns);
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
        [names_of(cwd), names_of(&without_links(cwd))].iter().any(|cwd| {
            self.patterns.iter().any(|pattern| match pattern {
                Pattern::Name(name) => {
                    cwd.iter().any(|folder| matches_name(name.as_bytes(), folder.as_bytes()))
                }
                Pattern::Path(path) => is_below(path, cwd),
            })
        })
    }
}

/// The names of the folders that a path goes through. One that is not absolute comes from another system, as a session
/// of Windows that is read under WSL.
fn names_of(path: &Path) -> Vec<String> {
    if !path.is_absolute() {
        let path = path.to_string_lossy();
        return path.split(['/', '\\']).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    }
    let normal = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        _ => None,
    };
    path.components().filter_map(normal).collect()
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
        check("/", "/w/a", true);
        check("~", "/home/ann/work", true);
        check("~", "/home/bob", false);
        check("payroll", r"C:\Users\me\payroll", true);
        check("payroll", r"C:\Users\me\payroll\src", true);
        check(r"C:\Users\*\payroll", r"C:\Users\me\payroll\src", true);
        check(r"C:\Users\me\pay", r"C:\Users\me\payroll", false);
        check("C:/Users/me", r"C:\Users\me\payroll", true);
        check("~/work", r"C:\home\ann\work", false);
        check(r"C:\", r"C:\Users\me", true);
        check(r"\", "/w", false);
        check("b", r"/w/a\b", false);
        check(r"a\b", r"/w/a\b", true);
        check("a*a*a*a*a*a*a*a*a*a*b", &format!("/{}", "a".repeat(200)), false);
    }

    #[test]
    fn a_linked_folder_is_excluded_by_either_name() {
        let folder = tempfile::tempdir().unwrap();
        let home = std::fs::canonicalize(folder.path()).unwrap();
        std::fs::create_dir_all(home.join("disk/data/x")).unwrap();
        std::os::unix::fs::symlink(home.join("disk/data"), home.join("work")).unwrap();
        for (pattern, cwd, expected) in [
            ("~/work", "disk/data/x", true),
            ("~/work", "disk/data/new", true),
            ("~/work/*/src", "disk/data/x/src", true),
            ("~/work", "disk/other", false),
            ("~/disk/data", "work/x", true),
            ("data", "work/x", true),
            ("~/gone/work", "gone/work", true),
        ] {
            let exclude = Exclude::new(pattern, Some(&home));
            assert_eq!(exclude.covers(&home.join(cwd)), expected, "{pattern} and {cwd}");
        }
        let exclude = Exclude::new("", Some(&home)).with_lines("~/work", Some(&home));
        assert!(exclude.covers(&home.join("disk/data/x")));
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
