//! A project's `.nuggetignore`: the files whose contents must not be read.

use std::fs;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};

const FILE: &str = ".nuggetignore";
const FILE_BYTES_MAX: u64 = 64 << 10;
const FOLDERS_MAX: usize = 64;

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
    files: Option<Gitignore>,
    everything: bool,
}

impl Ignore {
    /// Loads the file from the folder that a session ran in or, within one repository, from a folder
    /// above it. A file that is missing or unreadable covers nothing; an invalid line is skipped.
    pub fn load(cwd: &Path) -> Self {
        for folder in cwd.ancestors().take(FOLDERS_MAX) {
            if let Some(text) = read_text(&folder.join(FILE), FILE_BYTES_MAX) {
                return Self::new(folder, cwd, &text);
            }
            if folder.join(".git").exists() {
                break;
            }
        }
        Self::default()
    }

    fn new(root: &Path, cwd: &Path, text: &str) -> Self {
        let mut builder = GitignoreBuilder::new(root);
        let mut everything = false;
        for line in text.lines() {
            match line.trim() {
                "*" | "**" | "/" | "/*" | "**/*" => everything = true,
                _ => {
                    let _ = builder.add_line(None, line);
                }
            }
        }
        let files = builder.build().ok().filter(|files| !files.is_empty());
        Self { root: root.to_owned(), cwd: cwd.to_owned(), files, everything }
    }

    /// Whether no session of the project may be captured.
    pub fn covers_everything(&self) -> bool {
        self.everything
    }

    /// Whether a file must not be read. The path is absolute or relative to the session's folder.
    pub fn covers(&self, file: &str) -> bool {
        let Some(files) = &self.files else { return false };
        let path = without_dots(&self.cwd.join(file));
        let Ok(path) = path.strip_prefix(&self.root) else { return false };
        !path.as_os_str().is_empty() && files.matched_path_or_any_parents(path, false).is_ignore()
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
                .map_or(file.to_owned(), |program| format!("{program} {file}")),
        )
    }

    /// The first covered file that a command names.
    fn covered_file<'c>(&self, command: &'c str) -> Option<&'c str> {
        self.files.as_ref()?;
        let ends = |c: char| c.is_whitespace() || "\"'`<>|;&()=,".contains(c);
        command.split(ends).find(|word| !word.is_empty() && self.covers(word))
    }

    /// A tool's output without the lines that a search found in a covered file; `None` if there are none.
    pub fn without_matches_in_covered(&self, output: &str) -> Option<String> {
        self.files.as_ref()?;
        let is_found = |line: &&str| {
            line.split_once([':', '-']).is_some_and(|(file, _)| !file.is_empty() && self.covers(file))
                || line.split_once(':').is_some_and(|(file, _)| !file.is_empty() && self.covers(file))
        };
        output
            .lines()
            .any(|line| is_found(&line))
            .then(|| output.lines().filter(|line| !is_found(line)).collect::<Vec<_>>().join("\n"))
    }
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
        assert_eq!(ignore.without_matches_in_covered(found).as_deref(), Some("src/a.rs:3:x\nend"));
        assert!(!ignore.covers_everything());
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
