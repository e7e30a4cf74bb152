//! A project's `.nuggetignore`: the files whose contents must not be read.

use std::fs;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};

const FILE: &str = ".nuggetignore";
const FILE_BYTES_MAX: u64 = 64 << 10;
const FOLDERS_MAX: usize = 64;
/// A longer word is no path with `*` or `?`.
const GLOB_BYTES_MAX: usize = 512;
/// The most words with `*` or `?` of one command that are looked at.
const GLOBS_MAX: usize = 1000;
/// The longest line that names two files of a diff, in bytes, and the most spaces at which the first may end.
const NAMES_BYTES_MAX: usize = 8 << 10;
const SPACES_MAX: usize = 32;

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

/// A project's `.nuggetignore`, in the syntax of `.gitignore`.
///
/// A line that covers everything (`*`, `**`, `/`) means that no session of the project is captured. Any
/// other line names files: what tools printed of them, and what was written into them, is not read.
#[derive(Clone, Debug, Default)]
pub struct Ignore {
    root: PathBuf,
    /// The folder that relative paths start from.
    cwd: PathBuf,
    /// The folder that the paths in a diff start from.
    repository: PathBuf,
    files: Option<Gitignore>,
    /// The parts of each pattern's path.
    patterns: Vec<Vec<String>>,
    everything: bool,
}

impl Ignore {
    /// Loads the file from the folder that a session ran in or, within one repository, from a folder
    /// above it. A file that is missing or unreadable covers nothing; an invalid line is skipped.
    pub fn load(cwd: &Path) -> Self {
        let is_repository = |folder: &&Path| folder.join(".git").exists();
        for folder in cwd.ancestors().take(FOLDERS_MAX) {
            if let Some(text) = read_text(&folder.join(FILE), FILE_BYTES_MAX) {
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
        let mut patterns = Vec::new();
        for line in text.lines() {
            match line.trim() {
                "*" | "**" | "/" | "/*" | "**/*" => everything = true,
                pattern => {
                    let _ = builder.add_line(None, line);
                    if !pattern.is_empty() && !pattern.starts_with(['#', '!']) {
                        patterns.push(parts_of_pattern(pattern));
                    }
                }
            }
        }
        let files = builder.build().ok().filter(|files| !files.is_empty());
        let [root, cwd] = [root, cwd].map(Path::to_owned);
        Self { repository: root.clone(), root, cwd, files, patterns, everything }
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
        let path = without_dots(&folder.join(file));
        let Ok(path) = path.strip_prefix(&self.root) else { return false };
        !path.as_os_str().is_empty() && files.matched_path_or_any_parents(path, false).is_ignore()
    }

    /// Whether a word such as `hr/*.csv` can stand for a covered file.
    fn may_cover(&self, folder: &Path, word: &str) -> bool {
        if word.len() > GLOB_BYTES_MAX {
            return false;
        }
        let path = without_dots(&folder.join(word));
        let Ok(path) = path.strip_prefix(&self.root) else { return false };
        let parts: Vec<String> =
            path.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
        self.patterns.iter().any(|pattern| {
            can_be_equal(&parts, pattern, |part| part == "**", |part, other| can_be_one_name(part, other))
        })
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

    /// The first covered file that a command names.
    fn covered_file(&self, command: &str) -> Option<String> {
        self.files.as_ref()?;
        let folders = self.folders(command);
        let is_in_any = |covers: &dyn Fn(&Path) -> bool| folders.iter().any(|folder| covers(folder));
        let named = words(command).find(|word| is_in_any(&|folder| self.covers_from(folder, word)));
        let named = named.map(str::to_owned);
        named.or_else(|| {
            let expanded = expanded_by_shell(command);
            let mut globs = words(&expanded).filter(|word| word.contains(['*', '?'])).take(GLOBS_MAX);
            globs.find(|word| is_in_any(&|folder| self.may_cover(folder, word))).map(str::to_owned)
        })
    }

    /// The folders that a command runs in: the session's, and every one that `cd` may lead to. Which subshell has gone
    /// where is not looked at: too many folders hide a file, too few would show one.
    pub(crate) fn folders(&self, command: &str) -> Vec<PathBuf> {
        let mut folders = vec![self.cwd.clone()];
        let mut words = words(if self.files.is_some() { command } else { "" });
        while let Some(word) = words.next() {
            if matches!(word, "cd" | "pushd" | "-C")
                && let Some(to) = words.next()
            {
                let reached: Vec<PathBuf> =
                    folders.iter().map(|folder| without_dots(&folder.join(to))).collect();
                for folder in reached {
                    if folders.len() < FOLDERS_MAX && !folders.contains(&folder) {
                        folders.push(folder);
                    }
                }
            }
        }
        folders
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
            line.split_once([':', '-']).is_some_and(|(file, _)| is_covered(file))
                || line.split_once(':').is_some_and(|(file, _)| is_covered(file))
        };
        let in_diff = |file: &str| is_covered(file) || self.covers_from(&self.repository, file);
        let mut is_in_covered = false;
        let mut kept = Vec::new();
        let mut is_changed = false;
        for line in output.lines() {
            if let Some(names) = DIFF_STARTS.iter().find_map(|start| line.strip_prefix(start)) {
                is_in_covered = names_in_diff(names).any(|name| in_diff(&name));
            } else if let Some(name) = line.strip_prefix("==> ").and_then(|name| name.strip_suffix(" <==")) {
                is_in_covered = is_covered(name);
            } else if is_commit(line) {
                is_in_covered = false;
            }
            if is_in_covered || is_found(line) {
                is_changed = true;
            } else {
                kept.push(line);
            }
        }
        is_changed.then(|| kept.join("\n"))
    }
}

/// How the part of a diff about one file begins.
const DIFF_STARTS: [&str; 3] = ["diff --git ", "diff --cc ", "diff --combined "];

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

/// The words of a command, also those within quotes.
fn words(command: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| c.is_whitespace() || "\"'`<>|;&()=,".contains(c);
    command.split(ends).filter(|word| !word.is_empty())
}

/// The part of a command in which the shell puts names for `*` and `?`: no quotes, and no here-document.
fn expanded_by_shell(command: &str) -> String {
    let mut quote = None;
    let mut kept = String::new();
    for c in command.split("<<").next().unwrap_or_default().chars() {
        match quote {
            Some(end) => quote = quote.filter(|_| c != end),
            None if matches!(c, '"' | '\'') => quote = Some(c),
            None => kept.push(c),
        }
    }
    kept
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
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            // A class of characters stands for one of them.
            let is_class = c == '[' && rest.by_ref().any(|c| c == ']');
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

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_line() {
        let root = Path::new("/w/shop");
        assert!(Ignore::new(root, root, "\u{feff}*.env\n").covers("a.env"));
        assert!(Ignore::new(root, root, "\u{feff}*\n").covers_everything());
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
    }
}
