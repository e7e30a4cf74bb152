//! Finds and reads the files to import, within limits.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use brain::Config;
use extract::notes::NoteKind;
use jiff::Timestamp;
use serde::Serialize;

use super::other_format::other_format;
use crate::error::{CliError, MISSING, USAGE};
use crate::output::{safe, short_path};
use crate::settings;

/// The largest file that is read. Notes that people write have a few kilobytes.
const FILE_BYTES_MAX: u64 = 512 * 1024;
const FILES_MAX: usize = 5_000;
const DEPTH_MAX: usize = 16;
/// Folders with other people's texts.
const FOREIGN_FOLDERS: [&str; 6] = ["node_modules", "target", "vendor", "dist", "build", "venv"];

/// A file to import.
#[derive(Debug)]
pub(super) struct SourceFile {
    /// The canonical path.
    pub path: PathBuf,
    /// The path as it is shown and recorded, with `~` for the home folder.
    pub shown: String,
    pub kind: NoteKind,
    /// The name of its project.
    pub project: Option<String>,
    /// The domain of its units.
    pub domain: Option<String>,
    pub modified: Option<Timestamp>,
}

impl SourceFile {
    /// The file name without its extension.
    pub(super) fn stem(&self) -> String {
        self.path.file_stem().map_or_else(|| "note".into(), |stem| stem.to_string_lossy().into_owned())
    }
}

/// What does not become a unit, and why. The fields are keys of the JSON output.
#[derive(Serialize)]
pub(super) struct LeftOut {
    pub what: String,
    pub reason: String,
}

/// Finds the files of all named sources, each once.
///
/// # Errors
/// When a named path does not exist or is in the brain.
pub(super) fn find(
    names: &[OsString],
    config: &Config,
    brain: &Path,
    left_out: &mut Vec<LeftOut>,
) -> Result<Vec<SourceFile>, CliError> {
    let mut finder = Finder { config, left_out, found: Vec::new(), seen: HashSet::new() };
    for name in names {
        match name.to_str() {
            Some("claude-md") => finder.add_claude_md(),
            Some("auto-memory") => finder.add_auto_memory(),
            _ => finder.add_path(Path::new(name), brain)?,
        }
    }
    Ok(finder.found)
}

struct Finder<'a> {
    config: &'a Config,
    left_out: &'a mut Vec<LeftOut>,
    found: Vec<SourceFile>,
    seen: HashSet<PathBuf>,
}

impl Finder<'_> {
    /// Adds the user's own instructions, then those of each project.
    fn add_claude_md(&mut self) {
        if let Some(client) = transcript::client_folder() {
            self.add_file(&client.join("CLAUDE.md"), NoteKind::Instructions, None, None);
            self.add_folder(&client.join("rules"), NoteKind::Instructions, None, |_| None);
        }
        let mut projects: Vec<PathBuf> = Vec::new();
        if let Ok(here) = std::env::current_dir() {
            let home = brain::paths::home();
            projects.extend(
                here.ancestors()
                    .take_while(|folder| Some(*folder) != home.as_deref() && folder.parent().is_some())
                    .map(Path::to_owned),
            );
        }
        projects.extend(projects_with_sessions());
        let mut seen = HashSet::new();
        for project in projects.into_iter().filter(|project| seen.insert(project.clone())) {
            let files = ["CLAUDE.md", "CLAUDE.local.md", ".claude/CLAUDE.md"].map(|name| project.join(name));
            let rules = project.join(".claude/rules");
            if !files.iter().any(|path| path.exists()) && !rules.is_dir() {
                continue;
            }
            if self.is_excluded(&project) {
                continue;
            }
            let name = project.file_name().map(lossy);
            for path in &files {
                self.add_file(path, NoteKind::Instructions, name.clone(), name.clone());
            }
            self.add_folder(&rules, NoteKind::Instructions, name.as_deref(), |_| name.clone());
        }
    }

    /// Adds the memories that Claude Code has written for each project.
    fn add_auto_memory(&mut self) {
        let Some(projects) = transcript::client_folder().map(|client| client.join("projects")) else {
            return;
        };
        let mut folders: Vec<PathBuf> =
            std::fs::read_dir(projects).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        folders.sort();
        for folder in folders {
            let memory = folder.join("memory");
            if !memory.is_dir() {
                continue;
            }
            let cwd = working_folder(&folder);
            if cwd.as_deref().is_some_and(|cwd| self.is_excluded(cwd)) {
                continue;
            }
            // The folder name does not tell which dashes were slashes, so only its last word is used.
            let name = match cwd.as_deref().and_then(Path::file_name) {
                Some(name) => lossy(name),
                None => {
                    let name = lossy(folder.file_name().unwrap_or_default());
                    name.rsplit('-').find(|part| !part.is_empty()).unwrap_or("general").to_owned()
                }
            };
            self.add_folder(&memory, NoteKind::Memory, Some(&name), |_| Some(name.clone()));
        }
    }

    /// Adds a file, or the notes in a folder.
    fn add_path(&mut self, path: &Path, brain: &Path) -> Result<(), CliError> {
        let shown = display_path(path);
        let real = std::fs::canonicalize(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => missing(&shown, "no such file or folder"),
            _ => missing(&shown, &error.to_string()),
        })?;
        if real.starts_with(std::fs::canonicalize(brain).unwrap_or_else(|_| brain.to_owned())) {
            return Err(CliError::new(format!("{shown} is already in the brain"))
                .hint("`nugget init --path DIR` adopts a folder of notes as it is"));
        }
        if real.is_dir() {
            let name = real.file_name().map(lossy);
            let root = real.clone();
            self.add_folder(&real, NoteKind::Note, None, move |file| {
                // The domain is the first folder below the root, or the root itself.
                let inner = file.strip_prefix(&root).ok()?.parent()?.components().next();
                inner.map(|part| lossy(part.as_os_str())).or_else(|| name.clone())
            });
        } else {
            if let Some(format) = other_format(&real) {
                return Err(CliError::new(format!(
                    "{shown} is an export of a brain as {format}, which has no files"
                ))
                .code(USAGE)
                .hint("`nugget export --format okf -o DIR` writes a folder that can be imported"));
            }
            let is_instructions =
                matches!(real.file_name().and_then(OsStr::to_str), Some("CLAUDE.md" | "CLAUDE.local.md"));
            let kind = if is_instructions { NoteKind::Instructions } else { NoteKind::Note };
            let folder = real.parent().and_then(Path::file_name).map(lossy);
            self.add_file(&real, kind, folder.clone().filter(|_| is_instructions), folder);
        }
        Ok(())
    }

    /// Adds the notes below a folder. Symbolic links are not followed, hidden and foreign folders not entered; a foreign one
    /// with notes is listed.
    fn add_folder(
        &mut self,
        folder: &Path,
        kind: NoteKind,
        project: Option<&str>,
        domain: impl Fn(&Path) -> Option<String>,
    ) {
        let mut walk = walkdir::WalkDir::new(folder).max_depth(DEPTH_MAX).sort_by_file_name().into_iter();
        while let Some(entry) = walk.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.add_unread(&error);
                    continue;
                }
            };
            let path = entry.path();
            let name = entry.file_name().to_string_lossy();
            let is_folder = entry.file_type().is_dir();
            let is_foreign = is_folder && FOREIGN_FOLDERS.contains(&&*name);
            if entry.depth() > 0 && (name.starts_with('.') || is_foreign) {
                if is_foreign && has_notes(path) {
                    let reason =
                        "by its name a folder of other people's texts; name it to import it".to_owned();
                    self.left_out.push(LeftOut { what: shown_in(path), reason });
                }
                if is_folder {
                    walk.skip_current_dir();
                }
                continue;
            }
            if is_folder && entry.depth() == DEPTH_MAX {
                let reason = format!("more than {DEPTH_MAX} folders deep; name it to import it");
                self.left_out.push(LeftOut { what: shown_in(path), reason });
            }
            let is_note = is_note(path);
            if entry.path_is_symlink() && (is_note || path.is_dir()) {
                let reason = "a symbolic link, which is not followed; name it to import it".to_owned();
                self.left_out.push(LeftOut { what: shown_in(path), reason });
            }
            if !is_note || !entry.file_type().is_file() {
                continue;
            }
            if kind == NoteKind::Note && path.file_name() == Some(OsStr::new("CLAUDE.md")) {
                let name = path.parent().and_then(Path::file_name).map(lossy);
                self.add_file(path, NoteKind::Instructions, name, domain(path));
                continue;
            }
            // MEMORY.md usually only lists the other files.
            if kind == NoteKind::Memory
                && path.file_name() == Some(OsStr::new("MEMORY.md"))
                && is_link_list(path)
            {
                continue;
            }
            self.add_file(path, kind, project.map(str::to_owned), domain(path));
        }
    }

    /// Lists what a folder's walk could not read. A folder that does not exist is none that was named.
    fn add_unread(&mut self, error: &walkdir::Error) {
        let is_missing = error.io_error().is_some_and(|error| error.kind() == std::io::ErrorKind::NotFound);
        let Some(path) = error.path().filter(|_| !is_missing) else { return };
        let reason = match error.io_error() {
            Some(error) => format!("cannot be read: {error}"),
            None => "cannot be read".to_owned(),
        };
        self.left_out.push(LeftOut { what: shown_in(path), reason });
    }

    fn add_file(&mut self, path: &Path, kind: NoteKind, project: Option<String>, domain: Option<String>) {
        let shown = display_path(path);
        let real = match std::fs::canonicalize(path) {
            Ok(real) => real,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => {
                self.left_out.push(LeftOut { what: shown, reason: error.to_string() });
                return;
            }
        };
        if !self.seen.insert(real.clone()) {
            return;
        }
        if self.found.len() >= FILES_MAX {
            self.left_out.push(LeftOut { what: shown, reason: format!("more than {FILES_MAX} files") });
            return;
        }
        let modified = real.metadata().and_then(|metadata| metadata.modified()).ok();
        let modified = modified.and_then(|time| Timestamp::try_from(time).ok());
        self.found.push(SourceFile { path: real, shown, kind, project, domain, modified });
    }

    /// Whether a project is excluded; if so, it is listed as left out.
    fn is_excluded(&mut self, project: &Path) -> bool {
        let Some(by) = settings::exclusion(self.config, project) else { return false };
        self.left_out.push(LeftOut { what: display_path(project), reason: format!("excluded by {by}") });
        true
    }
}

/// Reads a text file.
///
/// # Errors
/// Why the file cannot be imported.
pub(super) fn read(path: &Path) -> Result<String, String> {
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    // Opening a pipe would block, and reading it might never end.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err("is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("is larger than {} KB", FILE_BYTES_MAX / 1024));
    }
    if bytes.contains(&0) {
        return Err("is not a text file".to_owned());
    }
    let mut text = String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
    // The line ends of old Macs.
    if text.contains('\r') && !text.contains('\n') {
        text = text.replace('\r', "\n");
    }
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

fn is_note(path: &Path) -> bool {
    let ending = path.extension().map(OsStr::to_ascii_lowercase).unwrap_or_default();
    matches!(ending.to_str(), Some("md" | "markdown" | "txt"))
}

/// Whether a folder itself has a note; what packages bring lies deeper.
fn has_notes(folder: &Path) -> bool {
    std::fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| is_note(&entry.path()))
}

/// Whether a file contains only links to other files. One that cannot be read is listed as such later.
fn is_link_list(path: &Path) -> bool {
    let Ok(text) = read(path) else { return false };
    text.lines().map(str::trim).all(|line| {
        let item = line.trim_start_matches(['-', '*', ' ']);
        line.is_empty() || line.starts_with('#') || (item.starts_with('[') && item.contains(".md)"))
    })
}

/// The folders in which sessions ran, according to their transcripts.
fn projects_with_sessions() -> Vec<PathBuf> {
    let Some(client) = transcript::client_folder() else { return Vec::new() };
    let folders = std::fs::read_dir(client.join("projects")).into_iter().flatten().flatten();
    let mut projects: Vec<PathBuf> = folders.filter_map(|folder| working_folder(&folder.path())).collect();
    projects.sort();
    projects
}

/// The working folder of the sessions in a folder of transcripts.
fn working_folder(folder: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    // To open a pipe would wait for its writer.
    let transcripts = files.filter(|path| path.extension() == Some(OsStr::new("jsonl")) && path.is_file());
    transcripts.take(3).find_map(|path| transcript::read_head(&path).ok()?.cwd)
}

/// A path for display, with `~` for the home folder, because its name is private.
pub(super) fn display_path(path: &Path) -> String {
    let real = std::fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    let absolute = real.unwrap_or_else(|_| path.to_owned());
    match path.to_str() {
        Some("claude-md" | "auto-memory") => safe(&path.to_string_lossy()),
        _ => transcript::redact::redact(&short_path(&absolute)).into_owned(),
    }
}

/// A path of a folder for display; unlike [`display_path`] it follows no link.
fn shown_in(path: &Path) -> String {
    transcript::redact::redact(&short_path(path)).into_owned()
}

fn lossy(name: &OsStr) -> String {
    name.to_string_lossy().into_owned()
}

/// The error for a path that was named and cannot be used.
fn missing(path: &str, reason: &str) -> CliError {
    CliError::new(format!("{path}: {reason}"))
        .code(MISSING)
        .hint("give a file, a folder, claude-md or auto-memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_folder_has_beside_notes_is_listed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::write(root.join("mac.md"), "# Mac\rOld line ends.\r").unwrap();
        std::os::unix::fs::symlink("mac.md", root.join("link.md")).unwrap();
        std::os::unix::fs::symlink(".", root.join("loop")).unwrap();
        let deep = root.join("d/".repeat(DEPTH_MAX));
        for folder in ["build", "vendor/module", ".trash"].map(|name| root.join(name)).iter().chain([&deep]) {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join("ci.md"), "# Builds\n\nA build of main takes four minutes.\n")
                .unwrap();
        }
        let (config, _) = Config::from_sources(&root.join("config.toml"), []);
        let mut left_out = Vec::new();
        let mut finder =
            Finder { config: &config, left_out: &mut left_out, found: Vec::new(), seen: HashSet::new() };
        finder.add_folder(root, NoteKind::Note, None, |_| None);
        finder.add_folder(&root.join("none"), NoteKind::Note, None, |_| None);
        assert_eq!(finder.found.len(), 1);
        assert_eq!(read(&root.join("mac.md")).unwrap(), "# Mac\nOld line ends.\n");
        let reasons: Vec<&str> = left_out.iter().map(|left| left.reason.as_str()).collect();
        let link = "a symbolic link, which is not followed; name it to import it";
        let foreign = "by its name a folder of other people's texts; name it to import it";
        assert_eq!(reasons, [foreign, "more than 16 folders deep; name it to import it", link, link]);
    }
}
