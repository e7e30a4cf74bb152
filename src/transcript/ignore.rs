//! A project's `.nuggetignore`: the files whose contents must not be read.

use std::collections::HashSet;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::clean::without_hidden;
use crate::path::{without_dots, without_links};
use crate::shell::{self, Word, pieces, without_braces};

const FILE: &str = ".nuggetignore";
const FILE_BYTES_MAX: u64 = 64 << 10;
const FOLDERS_MAX: usize = 64;
/// A longer word is no path with `*` or `?`.
const GLOB_BYTES_MAX: usize = 512;
/// A longer word names no file.
const NAME_BYTES_MAX: usize = 4 << 10;
/// How much is compared for one command: of a path, its bytes for each folder in it; of one with `*` or `?`, its bytes
/// for each byte of the patterns. Two such words of 8 bytes and 100 patterns of 20 bytes make 32,000.
const STEPS_MAX: usize = 10_000_000;
/// What it counts to look up where a path leads, for each of its bytes.
const LINK_STEPS: usize = 8;
/// What reads all that is in a folder. Beside other words, a name without `/` may be anything: `build` is rarely the folder.
const READERS_OF_FOLDERS: [&str; 22] = [
    "find", "fd", "fdfind", "grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack", "tree", "diff", "tar",
    "zip", "cp", "scp", "rsync", "xargs", "log", "show", "blame", "archive",
];
/// The most ends of a file's name in a line of a search that are tried.
const SEPARATORS_MAX: usize = 32;
/// The longest line that names two files of a diff, in bytes, and the most spaces at which the first may end.
const NAMES_BYTES_MAX: usize = 8 << 10;
const SPACES_MAX: usize = 32;

/// A project's `.nuggetignore`, in the syntax of `.gitignore`.
///
/// A line that covers everything (`*`, `**`, `/`) means that no session of the project is captured. Any
/// other line names files: what tools printed of them, and what was written into them, is not read.
#[derive(Clone, Debug, Default)]
pub struct Ignore {
    root: PathBuf,
    /// Where the root leads, if there are links in it.
    real_root: PathBuf,
    /// The folder that relative paths start from.
    cwd: PathBuf,
    /// The folder that the paths in a diff start from.
    repository: PathBuf,
    files: Option<Gitignore>,
    /// The parts of each pattern's path.
    patterns: Vec<Vec<String>>,
    /// The length of all patterns.
    pattern_bytes: usize,
    everything: bool,
}

impl Ignore {
    /// Loads the file from the folder that a session ran in or, within one repository, from a folder
    /// above it. A file that is missing covers nothing, and one that cannot be read or is too long everything; an invalid
    /// line is skipped. A folder of another system has no file here.
    pub fn load(cwd: &Path) -> Self {
        let is_repository = |folder: &&Path| folder.join(".git").exists();
        for folder in cwd.ancestors().take(FOLDERS_MAX).filter(|_| cwd.is_absolute()) {
            let file = folder.join(FILE);
            let text = read_text(&file, FILE_BYTES_MAX);
            let is_unread = match &text {
                Some(_) => fs::metadata(&file).is_ok_and(|found| found.len() > FILE_BYTES_MAX),
                None => file.is_file(),
            };
            if is_unread {
                return Self { everything: true, ..Self::default() };
            }
            if let Some(text) = text {
                let mut loaded = Self::new(folder, cwd, &text);
                if let Some(repository) = folder.ancestors().take(FOLDERS_MAX).find(is_repository) {
                    repository.clone_into(&mut loaded.repository);
                }
                return loaded;
            }
            if is_repository(&folder) {
                break;
            }
        }
        Self::default()
    }

    fn new(root: &Path, cwd: &Path, text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut builder = GitignoreBuilder::new(root);
        let mut everything = false;
        let (mut patterns, mut pattern_bytes) = (Vec::new(), 0);
        for line in text.lines() {
            match line.trim() {
                "*" | "**" | "/" | "/*" | "**/*" => everything = true,
                pattern => {
                    let _ = builder.add_line(None, line);
                    if !pattern.is_empty() && !pattern.starts_with(['#', '!']) {
                        patterns.push(parts_of_pattern(pattern));
                        pattern_bytes += pattern.len();
                    }
                }
            }
        }
        let files = builder.build().ok().filter(|files| !files.is_empty());
        let [root, cwd] = [root, cwd].map(Path::to_owned);
        let real_root = without_links(&root);
        Self { repository: root.clone(), root, real_root, cwd, files, patterns, pattern_bytes, everything }
    }

    /// Lets relative paths start from the folder that the session has gone to.
    pub fn enter(&mut self, cwd: &str) {
        if self.files.is_some() && Path::new(cwd).is_absolute() && self.cwd != Path::new(cwd) {
            self.cwd = PathBuf::from(cwd);
        }
    }

    /// Whether no session of the project may be captured.
    pub fn covers_everything(&self) -> bool {
        self.everything
    }

    /// Whether a file must not be read. The path is absolute or relative to the session's folder.
    pub fn covers(&self, file: &str) -> bool {
        self.covers_from(&self.cwd, file)
    }

    fn covers_from(&self, folder: &Path, file: &str) -> bool {
        let Some(files) = &self.files else { return false };
        let path = self.inner(&folder.join(file));
        path.is_some_and(|path| files.matched_path_or_any_parents(path, false).is_ignore())
    }

    /// A path from the project's folder, if it is in it, also by the name of a link.
    fn inner(&self, path: &Path) -> Option<PathBuf> {
        let path = without_dots(path);
        let inner = match path.strip_prefix(&self.root) {
            Ok(inner) => inner.to_owned(),
            Err(_) => {
                let path = without_links(path.parent()?).join(path.file_name()?);
                path.strip_prefix(&self.real_root).ok()?.to_owned()
            }
        };
        (!inner.as_os_str().is_empty()).then_some(inner)
    }

    /// Whether a command names a covered file.
    pub fn is_named_in(&self, command: &str) -> bool {
        self.covered_file(command).is_some()
    }

    /// A command that names a covered file with its program and that file only: the rest may be what it writes there.
    /// `None` if it names none.
    pub fn without_content(&self, command: &str) -> Option<String> {
        let file = self.covered_file(command)?;
        let mut words = command.split_whitespace();
        // Not a value that is set for the program, as in `TOKEN=… cat`.
        let program = words.next().filter(|word| {
            word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '/' | '_' | '-'))
        });
        Some(
            program
                .filter(|program| *program != file)
                .map_or(file.clone(), |program| format!("{program} {file}")),
        )
    }

    /// The first covered file or folder that a command names. If there is more to compare than may be, it is the name
    /// with which that is so.
    fn covered_file(&self, command: &str) -> Option<String> {
        let files = self.files.as_ref()?;
        let folders = self.folders(command);
        let words: Vec<Word> = shell::words(command).into_iter().flat_map(without_braces).collect();
        let mut seen = HashSet::new();
        let texts = pieces(command).chain(words.iter().map(|word| word.text.as_str()));
        let texts = texts.filter(|text| text.len() <= NAME_BYTES_MAX && seen.insert(*text));
        let mut steps = STEPS_MAX;
        let is_reader =
            |word: &Word| READERS_OF_FOLDERS.contains(&word.text.rsplit('/').next().unwrap_or_default());
        let reads_folders = words.iter().any(is_reader);
        // Where another path leads has to be looked up.
        let is_elsewhere = |path: &Path| !path.starts_with(&self.root);
        let mut is_named = |path: &Path, may_be_folder: bool| {
            if is_elsewhere(path) && is_beyond(&mut steps, path, LINK_STEPS) {
                return true;
            }
            self.inner(path).is_some_and(|path| {
                let is_covered = |is_folder| files.matched_path_or_any_parents(&path, is_folder).is_ignore();
                is_beyond(&mut steps, &path, path.components().count())
                    || is_covered(false)
                    || may_be_folder && is_covered(true)
            })
        };
        for text in texts {
            // As in `git show HEAD:hr/pay.csv`.
            let repository = Some(&self.repository).filter(|_| text.contains(':'));
            for name in names(text) {
                let in_repository = repository.map(|folder| folder.join(name));
                let may_be_folder = reads_folders || name.contains('/');
                if self.paths(name, &folders).chain(in_repository).any(|path| is_named(&path, may_be_folder))
                {
                    return Some(name.to_owned());
                }
            }
        }
        let globs = words.iter().filter(|word| word.is_glob).flat_map(|word| names(&word.text));
        let mut globs = globs.filter(|name| name.len() <= GLOB_BYTES_MAX && name.contains(['*', '?', '[']));
        let mut may_be_named = |path: &Path| {
            is_elsewhere(path) && is_beyond(&mut steps, path, LINK_STEPS)
                || self.inner(path).is_some_and(|path| {
                    is_beyond(&mut steps, &path, self.pattern_bytes) || self.may_cover(&path)
                })
        };
        globs.find(|name| self.paths(name, &folders).any(|path| may_be_named(&path))).map(str::to_owned)
    }

    /// Whether a path such as `hr/*.csv` can stand for a covered file.
    fn may_cover(&self, path: &Path) -> bool {
        let parts: Vec<String> =
            path.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
        self.patterns.iter().any(|pattern| {
            can_be_equal(&parts, pattern, |part| part == "**", |part, other| can_be_one_name(part, other))
        })
    }

    /// The paths that a name in a command may stand for, in each of the folders. Behind a variable or `~` it may start
    /// in any folder above the project, too.
    fn paths<'a>(&'a self, name: &'a str, folders: &'a [PathBuf]) -> impl Iterator<Item = PathBuf> + 'a {
        let behind = behind_variable(name).into_iter().flat_map(|rest| {
            let above = self.root.ancestors().take(FOLDERS_MAX);
            folders.iter().map(PathBuf::as_path).chain(above).map(move |folder| folder.join(rest))
        });
        folders.iter().map(move |folder| folder.join(name)).chain(behind)
    }

    /// The folders that a command runs in: the session's, and every one that `cd` may lead to. Which subshell has gone
    /// where is not looked at: too many folders hide a file, too few would show one.
    pub(crate) fn folders(&self, command: &str) -> Vec<PathBuf> {
        let mut folders = vec![self.cwd.clone()];
        if self.files.is_none() {
            return folders;
        }
        let words = shell::words(command);
        for words in [pieces(command).collect(), words.iter().map(|word| word.text.as_str()).collect()] {
            self.add_entered(words, &mut folders);
        }
        folders
    }

    /// Adds the folders that the words of a command lead to.
    fn add_entered(&self, words: Vec<&str>, folders: &mut Vec<PathBuf>) {
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            match word {
                // Behind its options.
                "cd" | "pushd" => while words.next_if(|word| word.starts_with('-')).is_some() {},
                "-C" => {}
                _ => continue,
            }
            let Some(to) = words.peek() else { return };
            let reached: Vec<PathBuf> = self.paths(to, folders).map(|path| without_dots(&path)).collect();
            for folder in reached {
                if folders.len() < FOLDERS_MAX && !folders.contains(&folder) {
                    folders.push(folder);
                }
            }
        }
    }

    /// A tool's output without what is of a covered file: the lines that a search found there, its part of a diff, and
    /// of several files that were printed. `None` if nothing is. `folders` are those that the tool ran in.
    pub(crate) fn without_covered(&self, output: &str, folders: &[PathBuf]) -> Option<String> {
        self.files.as_ref()?;
        let is_covered = |file: &str| {
            !file.is_empty()
                && (self.covers(file) || folders.iter().any(|folder| self.covers_from(folder, file)))
        };
        let is_found = |line: &str| {
            // Where a line's number is missing, a space is no part of a name that has a separator itself.
            let ends_name = |at: usize| is_number(&line[at..]) || !line[..at].contains(' ');
            let separators = line.match_indices([':', '-']).take(SEPARATORS_MAX).enumerate();
            let mut ends = separators.filter(|(place, (at, _))| *place == 0 || ends_name(*at));
            ends.any(|(_, (at, _))| is_covered(&line[..at]))
                || line.split_once(':').is_some_and(|(file, _)| is_covered(file))
        };
        let in_diff = |file: &str| is_covered(file) || self.covers_from(&self.repository, file);
        let mut is_in_covered = false;
        let mut kept = Vec::new();
        let mut is_changed = false;
        for line in output.lines() {
            let shown = without_hidden(line);
            let start = shown.trim_start_matches(GRAPH);
            let graph = &shown[..shown.len() - start.len()];
            // A space alone may begin a line of the file.
            let ends_part = graph.is_empty() || !graph.trim().is_empty();
            if let Some(is_of_covered) = starts_diff(start, in_diff) {
                is_in_covered = is_of_covered || is_in_covered && !ends_part;
            } else if let Some(name) = shown.strip_prefix("==> ").and_then(|name| name.strip_suffix(" <==")) {
                is_in_covered = is_covered(name);
            } else if is_commit(start) && ends_part {
                is_in_covered = false;
            }
            if is_in_covered || is_found(&shown) {
                is_changed = true;
            } else {
                kept.push(line);
            }
        }
        is_changed.then(|| kept.join("\n"))
    }
}

/// What `git log --graph` writes before a line.
const GRAPH: [char; 6] = ['|', '*', '/', '\\', '_', ' '];
/// How the part of a diff about one file begins.
const DIFF_STARTS: [&str; 3] = ["diff --git ", "diff --cc ", "diff --combined "];

/// Whether a line begins the part of a diff about one file, and if so, whether that one is covered.
fn starts_diff(line: &str, is_covered: impl Fn(&str) -> bool) -> Option<bool> {
    if let Some(names) = DIFF_STARTS.iter().find_map(|start| line.strip_prefix(start)) {
        return Some(names_in_diff(names).any(|name| is_covered(&name)));
    }
    // The command that `diff -r` repeats.
    let words = shell::words(line.strip_prefix("diff -")?);
    Some(words.iter().rev().take(2).any(|word| is_covered(&word.text)))
}

/// Whether what stands behind a file's name is a line's number: `:12:` or `-12-`.
fn is_number(text: &str) -> bool {
    let mut chars = text.chars();
    let separator = chars.next();
    let behind = chars.as_str().trim_start_matches(|c: char| c.is_ascii_digit());
    behind.len() < chars.as_str().len() && behind.chars().next() == separator
}

/// Whether a line of `git log` or `git show` begins another commit, so that the diff before it has ended.
fn is_commit(line: &str) -> bool {
    let hash = line.strip_prefix("commit ").and_then(|rest| rest.get(..40));
    hash.is_some_and(|hash| hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The paths that the first line of a diff may name, which does not say where the first of two ends.
fn names_in_diff(names: &str) -> impl Iterator<Item = String> {
    let names = if names.len() <= NAMES_BYTES_MAX { names } else { "" };
    let spaces = names.match_indices(' ').take(SPACES_MAX);
    let halves = spaces.flat_map(|(at, _)| [&names[..at], &names[at + 1..]]);
    halves.chain([names]).flat_map(|name| {
        let name = without_quotes(name);
        // `a/`, `b/`, or what git calls the work tree and the index.
        let inner =
            name.split_once('/').filter(|(side, _)| side.len() == 1).map(|(_, inner)| inner.to_owned());
        [Some(name), inner].into_iter().flatten()
    })
}

/// A path as git writes it, with bytes beyond ASCII as `\303\244` in quotes.
fn without_quotes(name: &str) -> String {
    let Some(inner) = name.strip_prefix('"') else { return name.to_owned() };
    let mut rest = inner.strip_suffix('"').unwrap_or(inner).as_bytes();
    let mut plain = Vec::new();
    while let Some((&byte, behind)) = rest.split_first() {
        let code = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| byte == b'\\') {
            Some(code) => {
                plain.push(code);
                rest = &behind[3..];
            }
            None => {
                plain.extend(Some(byte).filter(|byte| *byte != b'\\'));
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// Whether more is compared than may be, with a path and so many parts of what it is compared to.
fn is_beyond(steps: &mut usize, path: &Path, parts: usize) -> bool {
    let left = steps.checked_sub(path.as_os_str().len().saturating_mul(parts));
    *steps = left.unwrap_or_default();
    left.is_none()
}

/// The names that a word may contain: all of it, and its parts, without the signs that stand before one.
fn names(word: &str) -> Vec<&str> {
    let mut names: Vec<&str> = std::iter::once(word)
        .chain(word.split([':', '=', ',']))
        .flat_map(|part| [part, part.trim_start_matches(['@', '{']).trim_end_matches('}')])
        .filter(|name| !name.is_empty())
        .collect();
    names.dedup();
    names
}

/// A path behind `~/`, `$NAME/` or `${NAME}/`.
fn behind_variable(name: &str) -> Option<&str> {
    let (start, rest) = name.split_once('/')?;
    (start == "~" || start.starts_with('$')).then_some(rest)
}

/// The parts of the paths that a pattern covers: also those below what it names.
fn parts_of_pattern(pattern: &str) -> Vec<String> {
    let inner = pattern.trim_end_matches('/');
    // Without a slash it may be in any folder.
    let anywhere = (!inner.contains('/')).then_some("**");
    let parts = inner.split('/').filter(|part| !part.is_empty());
    anywhere.into_iter().chain(parts).chain(["**"]).map(str::to_owned).collect()
}

/// Whether a name with `*` and `?` and a part of a pattern can stand for one and the same name.
fn can_be_one_name(name: &str, pattern: &str) -> bool {
    if name.starts_with(['*', '?']) && pattern.starts_with('.') {
        return false;
    }
    let [name, pattern] = [name, pattern].map(|text| {
        let mut plain = Vec::new();
        let mut rest = text.char_indices();
        let last_end = text.rfind(']').unwrap_or_default();
        while let Some((at, c)) = rest.next() {
            // A class of characters stands for one of them.
            let is_class = c == '[' && at < last_end && rest.any(|(_, c)| c == ']');
            plain.push(if is_class { '?' } else { c });
        }
        plain
    });
    can_be_equal(&name, &pattern, |c| *c == '*', |a, b| a == b || *a == '?' || *b == '?')
}

/// Whether two sequences can stand for the same one, where a `star` stands for any number of items.
fn can_be_equal<T>(a: &[T], b: &[T], star: impl Fn(&T) -> bool, equal: impl Fn(&T, &T) -> bool) -> bool {
    // For each rest of `b`, whether it and the rest of `a` can be equal; from the end.
    let mut after = vec![false; b.len() + 1];
    for i in (0..=a.len()).rev() {
        let mut here = vec![false; b.len() + 1];
        for j in (0..=b.len()).rev() {
            here[j] = match (a.get(i), b.get(j)) {
                (None, None) => true,
                (Some(x), y) if star(x) => after[j] || y.is_some() && here[j + 1],
                (x, Some(y)) if star(y) => here[j + 1] || x.is_some() && after[j],
                (Some(x), Some(y)) => equal(x, y) && after[j + 1],
                _ => false,
            };
        }
        after = here;
    }
    after[0]
}

/// The first `bytes_max` bytes of a file as text. A named pipe is not opened, because that would wait for its writer.
pub fn read_text(path: &Path, bytes_max: u64) -> Option<String> {
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(bytes_max).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_git() {
        let ignore = Ignore::new(
            Path::new("/w/shop"),
            Path::new("/w/shop/api"),
            "# payroll\n*.env\n/secrets/\nsalaries.csv\n!demo.env\n",
        );
        let check = |file: &str, expected: bool| assert_eq!(ignore.covers(file), expected, "{file}");
        check("/w/shop/api/prod.env", true);
        check("/w/shop/api/demo.env", false);
        check("prod.env", true);
        check("../secrets/a/b.txt", true);
        check("secrets/b.txt", false);
        check("/w/other/prod.env", false);
        check("../../prod.env", false);
        check("", false);
        assert!(ignore.is_named_in("cat ../salaries.csv | head") && !ignore.is_named_in("cargo test"));
        for (command, kept) in [
            ("cat ../salaries.csv", Some("cat ../salaries.csv")),
            ("cat > prod.env <<'EOF'\nPASSWORD=heron\nEOF", Some("cat prod.env")),
            ("TOKEN=heron tee prod.env", Some("prod.env")),
            ("prod.env heron", Some("prod.env")),
            ("cargo test", None),
        ] {
            assert_eq!(ignore.without_content(command).as_deref(), kept, "{command}");
        }
        let found = "src/a.rs:3:x\nprod.env:1:y\n/w/shop/salaries.csv-2-z\nend";
        assert_eq!(ignore.without_covered(found, &[]).as_deref(), Some("src/a.rs:3:x\nend"));
        assert!(!ignore.covers_everything());
    }

    #[test]
    fn a_file_is_known_where_a_command_has_gone_to() {
        let mut ignore = Ignore::new(Path::new("/w/shop"), Path::new("/w/shop"), "/hr/pay.csv\n");
        for (command, expected) in [
            ("cd hr && cat pay.csv", true),
            ("(cd src; ls); cd hr; cat ./pay.csv", true),
            ("cd src && cat ../hr/pay.csv", true),
            ("git -C hr show HEAD -- pay.csv", true),
            ("cd /w/shop/hr\ncat pay.csv", true),
            ("cat pay.csv", false),
            ("cd src && cat pay.csv", false),
        ] {
            assert_eq!(ignore.is_named_in(command), expected, "{command}");
        }
        ignore.enter("/w/shop/hr");
        assert!(ignore.is_named_in("cat pay.csv") && !ignore.is_named_in("cat hr/pay.csv"));
    }

    #[test]
    fn a_word_that_the_shell_expands_may_be_a_covered_file() {
        let ignore = Ignore::new(
            Path::new("/w/shop"),
            Path::new("/w/shop"),
            "/hr/pay-2026.csv\n*.env\n/vault/\n!x.env\n",
        );
        for (command, expected) in [
            ("head -3 hr/*.csv", true),
            ("head -3 hr/pay-20?6.csv", true),
            ("cat h*/pay*", true),
            ("cat vault/*", true),
            ("cat v*/a", true),
            ("cat config/prod*", true),
            ("cat **/pay-2026.csv", true),
            ("cd hr && head *.csv", true),
            ("head -3 hr/*.tsv", false),
            ("cat src/*.rs", false),
            ("cat hr/deep/*.csv", false),
            ("psql -c 'select * from hr'", false),
            ("grep -n \"pay.*\" src/a.rs", false),
            ("cat > notes.md <<'EOF'\n* one\nEOF", false),
        ] {
            assert_eq!(ignore.is_named_in(command), expected, "{command}");
        }
    }

    #[test]
    fn the_parts_of_an_output_about_a_covered_file_are_left_out() {
        let patterns = "/hr/pay.csv\n/hr/my pay.csv\ngehälter.csv\n";
        let ignore = Ignore::new(Path::new("/w/shop"), Path::new("/w/shop/src"), patterns);
        let diff = |names: &str| format!("diff --git {names}\n--- x\n+++ y\n@@ -1 +1 @@\n-heron\n+heron 2");
        let other = "diff --git a/src/a.rs b/src/a.rs\n@@ -1 +1 @@\n+kept";
        for names in [
            "a/hr/pay.csv b/hr/pay.csv",
            "hr/pay.csv hr/pay.csv",
            "i/hr/pay.csv w/hr/pay.csv",
            "a/hr/my pay.csv b/hr/my pay.csv",
            "a/hr/pay.csv b/docs/pay.csv",
            "\"a/geh\\303\\244lter.csv\" \"b/geh\\303\\244lter.csv\"",
        ] {
            let output = format!("{}\n{other}\n{}", diff(names), diff(names));
            assert_eq!(ignore.without_covered(&output, &[]).as_deref(), Some(other), "{names}");
        }
        assert_eq!(ignore.without_covered(other, &[]), None);
        let commit = format!("commit {}\nAuthor: ann", "1a".repeat(20));
        let log = format!("{commit}\n\n{}\n\n{commit}", diff("a/hr/pay.csv b/hr/pay.csv"));
        assert_eq!(ignore.without_covered(&log, &[]), Some(format!("{commit}\n\n{commit}")));
        let printed = "==> a.rs <==\nkept\n\n==> ../hr/pay.csv <==\nheron\n\n==> b.rs <==\nkept";
        let rest = "==> a.rs <==\nkept\n\n==> b.rs <==\nkept";
        assert_eq!(ignore.without_covered(printed, &[]).as_deref(), Some(rest));
        let folders = ignore.folders("cd ../hr && grep -rn heron .");
        assert_eq!(ignore.without_covered("./pay.csv:1:heron\nend", &folders).as_deref(), Some("end"));
    }

    fn check_commands(ignore: &Ignore, named: &[&str], not_named: &[&str]) {
        let wrong = |commands: &[&str], is_named: bool| -> Vec<String> {
            let wrong = commands.iter().filter(|command| ignore.is_named_in(command) != is_named);
            wrong.map(|command| (*command).to_owned()).collect()
        };
        assert_eq!((wrong(named, true), wrong(not_named, false)), (Vec::new(), Vec::new()));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_that_cannot_be_read_covers_everything() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!Ignore::load(folder.path()).covers_everything());
        // Its first byte cannot be read by anyone.
        std::os::unix::fs::symlink("/proc/self/mem", folder.path().join(FILE)).unwrap();
        assert!(Ignore::load(folder.path()).covers_everything());
    }

    #[test]
    fn a_file_that_is_too_long_to_be_read_whole_covers_everything() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), "a.env\n".repeat(20_000)).unwrap();
        assert!(Ignore::load(folder.path()).covers_everything());
        fs::write(folder.path().join(FILE), "a.env\n").unwrap();
        assert!(!Ignore::load(folder.path()).covers_everything());
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_line() {
        let root = Path::new("/w/shop");
        assert!(Ignore::new(root, root, "\u{feff}*.env\n").covers("a.env"));
        assert!(Ignore::new(root, root, "\u{feff}*\n").covers_everything());
    }

    #[test]
    fn a_file_is_known_behind_a_revision_or_a_sign() {
        let patterns = "/.env\n/secrets/a.txt\n/conf/prod.toml\n";
        let ignore = Ignore::new(Path::new("/w/shop"), Path::new("/w/shop/src"), patterns);
        check_commands(
            &ignore,
            &[
                "git show HEAD:.env",
                "git show HEAD~2:secrets/a.txt",
                "git show \"main:secrets/a.txt\"",
                "git cat-file -p HEAD:./../secrets/a.txt",
                "git show :0:.env",
                "docker run -v $PWD/../.env:/app/.env x",
                "curl -d @../.env http://x",
                "curl -F file=@../.env http://x",
                "cd .. && cat {.env,a.txt}",
                "cat ../{a.txt,.env}",
                "cat ../conf/{dev,prod}.toml",
            ],
            &[
                "git show HEAD:src/a.rs",
                "git show HEAD:secrets/b.txt",
                "docker run -p 8080:80 x",
                "curl -d @body.json http://localhost:3000/secrets",
                "cat {a,b}.txt",
                "cat ../conf/{dev,test}.toml",
                "cat .env",
            ],
        );
        assert_eq!(ignore.without_content("curl -u me:heron:@../.env").as_deref(), Some("curl ../.env"));
    }

    #[test]
    fn a_command_that_names_a_covered_folder_names_its_files() {
        let ignore = Ignore::new(Path::new("/w/shop"), Path::new("/w/shop"), "secrets/\n/hr/pay.csv\n");
        check_commands(
            &ignore,
            &[
                "find secrets -type f -exec cat {} +",
                "/usr/bin/find secrets",
                "git log -p -- secrets",
                "du secrets/",
                "grep -rh pay secrets/",
                "rg --no-filename pay conf/secrets",
                "cd -- secrets && cat a.txt",
                "cd -- hr && cat pay.csv",
                "cd -P hr; cat pay.csv",
                "pushd -n 'hr' && cat pay.csv",
                "cd - && cd hr && cat pay.csv",
                "cd $PWD/hr && cat pay.csv",
            ],
            &[
                "find src -type f",
                "grep -rh pay hr/",
                "cat src/secrets.rs",
                "cd - && cat pay.csv",
                "cargo test",
                "cargo test secrets",
                "git commit -m 'secrets have a folder'",
            ],
        );
        assert!(!ignore.covers("secrets"), "its name alone is no content");
    }

    #[test]
    fn lines_around_a_found_one_are_left_out_whatever_the_name() {
        let patterns = "*.env\n.env-prod\n/hr-data/\nmy-pay list.csv\n";
        let ignore = Ignore::new(Path::new("/w/shop"), Path::new("/w/shop"), patterns);
        for covered in [
            "conf/prod-db.env:3:pay",
            "conf/prod-db.env-4-heron",
            "conf/prod-db.env-heron",
            "./.env-prod-4-URL=http://heron",
            ".env-prod-heron",
            "hr-data/a-b.csv-4-heron",
            "my-pay list.csv-4-heron",
            "my-pay list.csv:4:heron",
            "2026-11-16-a-b-c-d-e-f-g-h-i.env-4-heron",
        ] {
            let output = format!("src/a-b.rs-1-kept\n{covered}\nend");
            assert_eq!(
                ignore.without_covered(&output, &[]).as_deref(),
                Some("src/a-b.rs-1-kept\nend"),
                "{covered}"
            );
        }
        for kept in [
            "src/prod-env.rs-4-x",
            "2026-11-16T17:00:00.000Z INFO started",
            "- read the file prod.env-style",
            "a-1-b-2-c",
            "test result: ok. 3 passed",
        ] {
            assert_eq!(ignore.without_covered(kept, &[]), None, "{kept}");
        }
    }

    #[test]
    fn colours_and_the_graph_of_a_log_hide_no_covered_file() {
        let ignore = Ignore::new(Path::new("/w/shop"), Path::new("/w/shop"), "*.env\n/hr/my pay.csv\n");
        let check = |output: &str, expected: Option<&str>| {
            assert_eq!(ignore.without_covered(output, &[]).as_deref(), expected, "{output}");
        };
        check(
            "\u{1b}[1mdiff --git a/a.env b/a.env\u{1b}[m\n+heron\n\u{1b}[1mdiff --git a/b b/b\u{1b}[m\n+k",
            Some("\u{1b}[1mdiff --git a/b b/b\u{1b}[m\n+k"),
        );
        check(
            "\u{1b}[35ma.env\u{1b}[m\u{1b}[36m:\u{1b}[m\u{1b}[32m1\u{1b}[m\u{1b}[36m:\u{1b}[mheron\nb:1:k",
            Some("b:1:k"),
        );
        let commit = format!("commit {}", "1a".repeat(20));
        let log = format!("* {commit}\n| diff --git a/a.env b/a.env\n| +heron\n* {commit}\n|\\  kept");
        check(&log, Some(&format!("* {commit}\n* {commit}\n|\\  kept")));
        check("  diff --git a/a.env b/a.env\n  +heron", Some(""));
        check(
            "diff -ru old/a.env new/a.env\n-heron\ndiff -ru old/b new/b\n-k",
            Some("diff -ru old/b new/b\n-k"),
        );
        check("diff -r 'hr/my pay.csv' 'new/my pay.csv'\n< heron", Some(""));
        // A line of the covered file itself.
        check("diff --git a/a.env b/a.env\n diff --git a/b b/b\n-heron", Some(""));
        check("diff --git a/b.rs b/b.rs\n diff --git c\n+ | * a.env\n\u{1b}[31mred\u{1b}[m", None);
    }

    #[test]
    fn what_the_shell_expands_is_seen_behind_quotes_and_comments() {
        let ignore = Ignore::new(Path::new("/w/shop"), Path::new("/w/shop"), "*.env\n/hr/pay.csv\n");
        check_commands(
            &ignore,
            &[
                "# don't worry\ncat conf/*",
                "cd x # it's there\ncat conf/*",
                "echo it\\'s; cat conf/*",
                "echo $'it\\'s'; cat conf/*",
                "cat <<EOF\nhi\nEOF\ncat conf/*",
                "cat <<-'EOF'\nit's\n\tEOF\ncat conf/*",
                "wc -l <<< x; cat conf/*",
                "echo $((1 << 2))\ncat conf/*",
                "cat conf/[a-z].en[v]",
                "[ -f x ]; cat [a-z]*[.]en*",
                "X=\"$(cat conf/*)\"",
                "echo \"`cat conf/*`\"",
                "cat \"$PWD\"/conf/*",
                "cat \"hr\"/pa*",
            ],
            &[
                "git commit -m \"$(cat <<'EOF'\nfix: don't\n\n* one\nEOF\n)\"",
                "cat > notes.md <<EOF\n* one\nEOF\ncargo test",
                "echo 'a * b'; echo \"c * d\"",
                "echo \\* done",
                "[ -f a.txt ] && cat src/[a-z]*.rs",
                "if [[ -n $X ]]; then echo ${X[0]}; fi",
                "cargo test # * all",
                "echo \"$(ls src/*.rs)\" '*'",
            ],
        );
    }

    #[test]
    fn a_name_with_a_space_is_found_in_a_command() {
        let ignore = Ignore::new(Path::new("/w/shop"), Path::new("/w/shop"), "my pay.csv\n/hr data/a.csv\n");
        check_commands(
            &ignore,
            &[
                "cat \"my pay.csv\"",
                "cat 'my pay.csv'|head",
                "cat my\\ pay.csv",
                "cat hr/my\" pay\".csv",
                "csvcut --file='my pay.csv'",
                "git show HEAD:'hr/my pay.csv'",
                "cd \"hr data\" && cat a.csv",
            ],
            &["cat my pay.txt", "cat my; cat pay.csv", "echo \"my pay\"", "cd hr data && cat a.csv"],
        );
        let shown = ignore.without_content("tee \"my pay.csv\" <<< heron");
        assert_eq!(shown.as_deref(), Some("tee my pay.csv"));
    }

    #[test]
    fn a_path_behind_a_variable_or_home_is_known() {
        let root = Path::new("/home/ann/w/shop");
        let ignore = Ignore::new(root, root, "/secrets/\n");
        check_commands(
            &ignore,
            &[
                "cat $PWD/secrets/a.txt",
                "cat \"$PWD\"/secrets/a.txt",
                "cat ${ROOT}/secrets/a.txt",
                "cat $HOME/w/shop/secrets/a.txt",
                "cat ~/w/shop/secrets/a.txt",
                "cd ~/w/shop/secrets; cat a.txt",
                "head $PWD/sec*/a.txt",
                "cat $(pwd)/secrets/a.txt",
                "cat \"$(git rev-parse --show-toplevel)/secrets/a.txt\"",
            ],
            &["cat $PWD/src/a.rs", "cat ~/w/other/secrets/a.txt", "cat ~/.bashrc", "echo $HOME $1"],
        );
    }

    #[test]
    fn a_command_with_too_much_to_compare_counts_as_covered() {
        let root = Path::new("/w/shop");
        let patterns: String = (0..30).map(|at| format!("conf/x{at}*.env\n")).collect();
        let ignore = Ignore::new(root, root, &patterns);
        let globs =
            |name: &str, count: usize| -> String { (0..count).map(|at| format!("{name}*{at} ")).collect() };
        let folders: String = (0..8).map(|at| format!("cd d{at}; ")).collect();
        // Much for the folders that a path goes through, and for the patterns.
        for name in ["lib/ab?".repeat(60).as_str(), "lib/ab"] {
            assert!(ignore.is_named_in(&format!("{folders} ls {}", globs(name, 1000))), "{name}");
        }
        assert!(!ignore.is_named_in(&format!("cd src; ls {}", globs("lib/ab", 100))));
    }

    #[test]
    fn the_file_is_searched_within_the_repository() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().join("shop");
        fs::create_dir_all(project.join(".git")).unwrap();
        fs::create_dir_all(project.join("src/deep")).unwrap();
        fs::write(folder.path().join(FILE), "*").unwrap();
        assert!(
            !Ignore::load(&project.join("src/deep")).covers_everything(),
            "the file above the repository was used"
        );
        fs::write(project.join(FILE), "# all\n*\n").unwrap();
        assert!(Ignore::load(&project.join("src/deep")).covers_everything());
        assert!(Ignore::load(&project).covers_everything());
        assert!(!Ignore::load(Path::new("/nonexistent/x")).covers_everything());
        let up = std::env::current_dir().unwrap().components().skip(1).map(|_| "../").collect::<String>();
        let relative = Path::new(&up).join(project.strip_prefix("/").unwrap());
        assert!(relative.join(FILE).exists());
        assert!(!Ignore::load(&relative).covers_everything(), "a folder of another system");
    }
}
