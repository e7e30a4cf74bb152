//! Which files are meant, and what they hold: bounded, whatever lies there.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use transcript::{Exclude, Ignore};

use super::notes::Kind;
use super::{LeftOut, missing};
use crate::error::CliError;
use crate::output::safe;

/// The largest file that is read: what people write has a few kilobytes.
const FILE_BYTES_MAX: u64 = 512 * 1024;
const FILES_MAX: usize = 5_000;
const DEPTH_MAX: usize = 16;
/// Folders that hold other people's words.
const FOREIGN: [&str; 6] = ["node_modules", "target", "vendor", "dist", "build", "venv"];

/// A file to import.
#[derive(Debug)]
pub(super) struct Source {
    /// Its real path.
    pub path: PathBuf,
    /// As its owner writes it.
    pub shown: String,
    pub kind: Kind,
    /// The project that it speaks of.
    pub project: Option<String>,
    /// The field that its units belong to.
    pub domain: Option<String>,
    pub modified: Option<Timestamp>,
}

impl Source {
    pub(super) fn stem(&self) -> String {
        self.path.file_stem().map_or_else(|| "note".into(), |stem| stem.to_string_lossy().into_owned())
    }
}

/// Finds all files of the sources, each once.
pub(super) fn find(
    named: &[OsString],
    exclude: &Exclude,
    brain: &Path,
    left_out: &mut Vec<LeftOut>,
) -> Result<Vec<Source>, CliError> {
    let mut finder = Finder { exclude, left_out, found: Vec::new(), seen: HashSet::new() };
    for name in named {
        match name.to_str() {
            Some("claude-md") => finder.claude_md(),
            Some("auto-memory") => finder.auto_memory(),
            _ => finder.path(Path::new(name), brain)?,
        }
    }
    Ok(finder.found)
}

struct Finder<'a> {
    exclude: &'a Exclude,
    left_out: &'a mut Vec<LeftOut>,
    found: Vec<Source>,
    seen: HashSet<PathBuf>,
}

impl Finder<'_> {
    /// The user's own instructions, then those of each project.
    fn claude_md(&mut self) {
        if let Some(client) = transcript::client_folder() {
            self.add(&client.join("CLAUDE.md"), Kind::Instructions, None, None);
            self.folder(&client.join("rules"), Kind::Instructions, None, |_| None);
        }
        let mut projects: Vec<PathBuf> = Vec::new();
        if let Ok(here) = std::env::current_dir() {
            let home = std::env::var_os("HOME").map(PathBuf::from);
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
            if self.is_left_alone(&project) {
                continue;
            }
            let name = project.file_name().map(|name| name.to_string_lossy().into_owned());
            for path in &files {
                self.add(path, Kind::Instructions, name.clone(), name.clone());
            }
            self.folder(&rules, Kind::Instructions, name.as_deref(), |_| name.clone());
        }
    }

    /// What the client has written for each project below its folder.
    fn auto_memory(&mut self) {
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
            let cwd = cwd_of(&folder);
            if cwd.as_deref().is_some_and(|cwd| self.is_left_alone(cwd)) {
                continue;
            }
            // The folder's name has lost which characters were slashes; its last word is better than none.
            let name = match cwd.as_deref().and_then(Path::file_name) {
                Some(name) => name.to_string_lossy().into_owned(),
                None => {
                    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    name.rsplit('-').find(|part| !part.is_empty()).unwrap_or("general").to_owned()
                }
            };
            self.folder(&memory, Kind::Memory, Some(&name), |_| Some(name.clone()));
        }
    }

    fn path(&mut self, path: &Path, brain: &Path) -> Result<(), CliError> {
        let shown = shown(path);
        let real = std::fs::canonicalize(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => missing(&shown, "there is no such file or folder"),
            _ => missing(&shown, &error.to_string()),
        })?;
        if real.starts_with(std::fs::canonicalize(brain).unwrap_or_else(|_| brain.to_owned())) {
            return Err(CliError::new(format!("{shown} lies in the brain already"))
                .hint("`nugget init --path DIR` adopts a folder of notes as it is"));
        }
        if real.is_dir() {
            let name = real.file_name().map(|name| name.to_string_lossy().into_owned());
            let root = real.clone();
            self.folder(&real, Kind::Note, None, move |file| {
                // The first folder on the way names the field, else the folder of all.
                let inner = file.strip_prefix(&root).ok()?.parent()?.components().next();
                inner.map(|part| part.as_os_str().to_string_lossy().into_owned()).or_else(|| name.clone())
            });
        } else {
            let is_instructions =
                matches!(real.file_name().and_then(OsStr::to_str), Some("CLAUDE.md" | "CLAUDE.local.md"));
            let kind = if is_instructions { Kind::Instructions } else { Kind::Note };
            let folder =
                real.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
            self.add(&real, kind, folder.clone().filter(|_| is_instructions), folder);
        }
        Ok(())
    }

    /// The notes below a folder. Links are not followed, hidden and foreign folders not entered.
    fn folder(
        &mut self,
        folder: &Path,
        kind: Kind,
        project: Option<&str>,
        domain: impl Fn(&Path) -> Option<String>,
    ) {
        let wanted = |entry: &walkdir::DirEntry| {
            let name = entry.file_name().to_string_lossy();
            let foreign = entry.file_type().is_dir() && FOREIGN.contains(&&*name);
            entry.depth() == 0 || !(name.starts_with('.') || foreign)
        };
        let walk = walkdir::WalkDir::new(folder).max_depth(DEPTH_MAX).sort_by_file_name().into_iter();
        for entry in walk.filter_entry(wanted).filter_map(Result::ok) {
            let path = entry.path();
            let ending = path.extension().map(OsStr::to_ascii_lowercase).unwrap_or_default();
            let is_note = matches!(ending.to_str(), Some("md" | "markdown" | "txt"));
            if !is_note || !entry.file_type().is_file() {
                continue;
            }
            if kind == Kind::Note && path.file_name() == Some(OsStr::new("CLAUDE.md")) {
                let of = path.parent().and_then(Path::file_name);
                let name = of.map(|name| name.to_string_lossy().into_owned());
                self.add(path, Kind::Instructions, name, domain(path));
                continue;
            }
            // The memory's list of its own files.
            if kind == Kind::Memory && path.file_name() == Some(OsStr::new("MEMORY.md")) && is_list(path) {
                continue;
            }
            self.add(path, kind, project.map(str::to_owned), domain(path));
        }
    }

    fn add(&mut self, path: &Path, kind: Kind, project: Option<String>, domain: Option<String>) {
        let shown = shown(path);
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
        self.found.push(Source { path: real, shown, kind, project, domain, modified });
    }

    fn is_left_alone(&mut self, project: &Path) -> bool {
        let by = if self.exclude.covers(project) {
            "capture.exclude"
        } else if Ignore::load(project).covers_everything() {
            "its .nuggetignore"
        } else {
            return false;
        };
        self.left_out.push(LeftOut { what: shown(project), reason: format!("{by} covers it") });
        true
    }
}

/// The text of a file, or why it is none.
pub(super) fn read(path: &Path) -> Result<String, String> {
    let told = |error: std::io::Error| format!("cannot be read: {error}");
    // A pipe would never end, and to open one would wait for its other side.
    if !std::fs::metadata(path).map_err(told)?.is_file() {
        return Err("is no file".to_owned());
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(told)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(told)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("is larger than {} KB", FILE_BYTES_MAX / 1024));
    }
    if bytes.contains(&0) {
        return Err("is no text".to_owned());
    }
    let text = String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Whether a file holds nothing but links to others.
fn is_list(path: &Path) -> bool {
    let Ok(text) = read(path) else { return true };
    text.lines().map(str::trim).all(|line| {
        let item = line.trim_start_matches(['-', '*', ' ']);
        line.is_empty() || line.starts_with('#') || (item.starts_with('[') && item.contains(".md)"))
    })
}

/// The folders in which sessions ran, by what their transcripts say.
fn projects_with_sessions() -> Vec<PathBuf> {
    let Some(client) = transcript::client_folder() else { return Vec::new() };
    let folders = std::fs::read_dir(client.join("projects")).into_iter().flatten().flatten();
    let mut projects: Vec<PathBuf> = folders.filter_map(|folder| cwd_of(&folder.path())).collect();
    projects.sort();
    projects
}

/// Where the sessions of a folder of transcripts ran, by one of them.
fn cwd_of(folder: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let transcripts = files.filter(|path| path.extension() == Some(OsStr::new("jsonl")));
    transcripts.take(3).find_map(|path| transcript::read_head(&path).ok()?.cwd)
}

/// A path as its owner writes it; the name of the home folder is nobody's business.
pub(super) fn shown(path: &Path) -> String {
    let real = std::fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    let absolute = real.unwrap_or_else(|_| path.to_owned());
    let named = matches!(path.to_str(), Some("claude-md" | "auto-memory"));
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.parent().is_some());
    let home = home.map(|home| std::fs::canonicalize(&home).unwrap_or(home));
    let below = home.and_then(|home| absolute.strip_prefix(home).ok().map(Path::to_owned));
    match below {
        _ if named => safe(&path.to_string_lossy()),
        Some(below) => transcript::redact::redact(&safe(&format!("~/{}", below.display()))).into_owned(),
        None => transcript::redact::redact(&safe(&absolute.to_string_lossy())).into_owned(),
    }
}
