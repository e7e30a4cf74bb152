//! Finds the markdown files of a brain.

use std::fs::{self, DirEntry, ReadDir};
use std::io;
use std::path::{Path, PathBuf};

use ignore::gitignore::Gitignore;
use rayon::prelude::*;

/// The folder of the units, in the root.
pub const UNITS_FOLDER: &str = "domains";

/// Folders of code projects that hold other people's texts.
const FOREIGN_FOLDERS: [&str; 3] = ["node_modules", "target", "vendor"];
/// How deep files lie at most, so that the walk of a hostile tree ends.
const DEPTH_MAX: usize = 16;

/// A markdown file of a brain, as listed in its folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrainFile {
    /// Relative to the root, with `/` between its parts.
    pub path: String,
    /// In bytes.
    pub size: u64,
    /// The modification time in nanoseconds since the epoch. An equal size and time say that the file is unchanged.
    pub modified_ns: i128,
}

/// The markdown files below `root`, in no particular order; see [`Brain::files`](crate::Brain::files).
pub(crate) fn files_below(root: &Path) -> io::Result<Vec<BrainFile>> {
    let entries = fs::read_dir(root)?;
    let root = Folder { path: root.to_owned(), name: String::new(), depth: 0, is_of_units: false };
    Ok(root.files(entries, None))
}

/// A folder of a brain.
struct Folder {
    path: PathBuf,
    /// Its path in the brain, with `/` between its parts and at the end; empty for the root.
    name: String,
    depth: usize,
    /// Whether it is `domains/` or lies in it.
    is_of_units: bool,
}

impl Folder {
    /// The files of this folder and of those in it: none if it is a repository within the brain's.
    fn files(&self, entries: ReadDir, outer: Option<&Ignored<'_>>) -> Vec<BrainFile> {
        let own = if self.is_of_units { None } else { Ignored::read(&self.path, outer) };
        let ignored = own.as_ref().or(outer).filter(|_| !self.is_of_units);
        let mut files = Vec::new();
        let mut folders = Vec::new();
        for entry in entries.flatten() {
            let name = entry.file_name();
            if name == ".git" && self.depth > 0 {
                return Vec::new();
            }
            let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else { continue };
            let Ok(kind) = entry.file_type() else { continue };
            let is_ignored =
                || ignored.is_some_and(|ignored| ignored.covers(&self.path.join(name), kind.is_dir()));
            if kind.is_dir() {
                let is_of_units = self.is_of_units || self.depth == 0 && name == UNITS_FOLDER;
                if self.depth + 1 < DEPTH_MAX && (is_of_units || !is_foreign(name) && !is_ignored()) {
                    folders.push(Self {
                        path: self.path.join(name),
                        name: format!("{}{name}/", self.name),
                        depth: self.depth + 1,
                        is_of_units,
                    });
                }
            } else if kind.is_file() && is_unit_name(name, self.depth + 1) && !is_ignored() {
                files.extend(brain_file(format!("{}{name}", self.name), &entry));
            }
        }
        // Most of the time goes into the system's calls.
        files.par_extend(folders.par_iter().flat_map_iter(|folder| {
            fs::read_dir(&folder.path).map(|entries| folder.files(entries, ignored)).unwrap_or_default()
        }));
        files
    }
}

/// `None` for a file that has vanished since it was listed.
fn brain_file(path: String, entry: &DirEntry) -> Option<BrainFile> {
    let metadata = entry.metadata().ok()?;
    let modified = metadata.modified().ok();
    let since = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let modified_ns = since.map_or(0, |since| since.as_nanos() as i128);
    Some(BrainFile { path, size: metadata.len(), modified_ns })
}

/// The `.gitignore` of a folder, and those of the folders around it.
struct Ignored<'a> {
    rules: Gitignore,
    outer: Option<&'a Self>,
}

impl<'a> Ignored<'a> {
    /// Reads the folder's file, if it has one. An invalid line is skipped.
    fn read(folder: &Path, outer: Option<&'a Self>) -> Option<Self> {
        let file = folder.join(".gitignore");
        file.is_file().then(|| Self { rules: Gitignore::new(file).0, outer })
    }

    /// Whether the innermost file that says something about the path ignores it.
    fn covers(&self, path: &Path, is_folder: bool) -> bool {
        let files = std::iter::successors(Some(self), |ignored| ignored.outer);
        let mut found = files.map(|ignored| ignored.rules.matched(path, is_folder));
        found.find(|found| !found.is_none()).is_some_and(|found| found.is_ignore())
    }
}

/// Whether a file name at this depth can be a unit. The Open Knowledge Format reserves `index.md` and `log.md`; at the
/// root, files such as `README.md` describe the repository.
fn is_unit_name(name: &str, depth: usize) -> bool {
    let is_any_of = |names: &[&str]| names.iter().any(|one| name.eq_ignore_ascii_case(one));
    let about_the_repository =
        ["readme.md", "changelog.md", "contributing.md", "license.md", "security.md", "code_of_conduct.md"];
    let reserved = is_any_of(&["index.md", "log.md"]) || (depth == 1 && is_any_of(&about_the_repository));
    let is_markdown = name.len().checked_sub(3).and_then(|at| name.get(at..));
    is_markdown.is_some_and(|end| end.eq_ignore_ascii_case(".md")) && !reserved
}

/// Whether [`Brain::files`](crate::Brain::files) would list a regular file at this path, with `/` between its parts.
pub fn is_unit_path(path: &str) -> bool {
    let depth = path.split('/').count();
    let is_plain = |part: &str| !part.is_empty() && !part.starts_with('.');
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_foreign = || path.split('/').next() != Some(UNITS_FOLDER) && path.split('/').any(is_foreign);
    depth <= DEPTH_MAX && path.split('/').all(is_plain) && is_unit_name(name, depth) && !is_foreign()
}

/// Whether a folder of this name holds other people's texts.
fn is_foreign(name: &str) -> bool {
    FOREIGN_FOLDERS.contains(&name)
}
