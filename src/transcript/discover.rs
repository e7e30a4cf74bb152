//! Finds the client's transcripts on disk, and reads the head of one to learn which project it is of.
//!
//! This file uses no clock and no queue: the caller decides what a transcript's age or size means.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use crate::json_scan;

/// The most transcripts that [`discover`] lists. Far above what a client keeps; a folder with more is a
/// mistake, and its first ones are as good as any.
pub const FOUND_MAX: usize = 100_000;
/// The longest line that is read, in bytes. Real lines reach a few megabytes, where a tool returned an
/// image; a longer one is counted as malformed and costs no memory.
pub const LINE_BYTES_MAX: usize = 64 << 20;
/// After how many bytes [`read_head`] no longer looks for what was said. A session's folder is mostly named within its
/// first kilobytes, but behind the images that a person has pasted into the first prompt.
const HEAD_BYTES_MAX: u64 = 4 << 20;
/// The types of the lines that a conversation is read from.
const CONVERSATION_KINDS: [&str; 3] = ["user", "assistant", "attachment"];

/// Path, size and time of a transcript at one moment. Two equal stamps mean the same lines.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileStamp {
    /// The file's canonical path, so that two paths to one file compare equal.
    pub path: PathBuf,
    /// In bytes.
    pub size: u64,
    /// Milliseconds since the epoch; negative before it.
    pub modified_ms: i64,
}

impl FileStamp {
    /// The stamp of a file with this canonical path.
    pub fn from_metadata(path: PathBuf, metadata: &Metadata) -> Self {
        let modified_ms = metadata.modified().map_or(0, |time| match time.duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
        });
        Self { path, size: metadata.len(), modified_ms }
    }

    /// The session's id, which is the file's stem; empty if it is not UTF-8.
    pub fn session_id(&self) -> &str {
        self.path.file_stem().and_then(OsStr::to_str).unwrap_or_default()
    }
}

/// Lists the transcripts of a client's sessions, `<folder>/projects/*/*.jsonl`, in no order.
///
/// Transcripts of subagents are not sessions: `agent-*.jsonl` and deeper folders are left out. So are
/// symbolic links and names that are not UTF-8, which no client writes. A folder that cannot be read
/// lists nothing.
pub fn discover(client_folder: &Path) -> Vec<FileStamp> {
    list(client_folder, false)
}

/// Lists what [`discover`] does, and the transcripts of subagents: `agent-*.jsonl` beside a session's, and
/// `<session>/subagents/agent-*.jsonl`.
pub fn discover_with_subagents(client_folder: &Path) -> Vec<FileStamp> {
    list(client_folder, true)
}

fn list(client_folder: &Path, with_subagents: bool) -> Vec<FileStamp> {
    let mut found = Vec::new();
    // The path to the projects may contain links, as people keep settings elsewhere; below it, none.
    let Ok(projects) = fs::canonicalize(client_folder.join("projects")) else { return found };
    for project in entries(&projects) {
        if !project.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        for entry in entries(&project.path()) {
            if with_subagents && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                for agent in entries(&entry.path().join("subagents")) {
                    if stem(&agent.path()).is_some_and(|stem| stem.starts_with("agent-")) {
                        found.extend(stamp(&agent));
                    }
                }
            }
            let path = entry.path();
            if stem(&path).is_some_and(|stem| with_subagents || !stem.starts_with("agent-")) {
                found.extend(stamp(&entry));
            }
            if found.len() >= FOUND_MAX {
                return found;
            }
        }
    }
    found
}

/// The stem of a transcript's name; `None` if the name is another's.
fn stem(path: &Path) -> Option<&str> {
    path.to_str()?;
    (path.extension() == Some(OsStr::new("jsonl"))).then(|| path.file_stem()?.to_str()).flatten()
}

/// The stamp of the entry itself, not of a link's target; `None` if it is no file or was deleted meanwhile.
fn stamp(entry: &fs::DirEntry) -> Option<FileStamp> {
    let metadata = entry.metadata().ok()?;
    metadata.is_file().then(|| FileStamp::from_metadata(entry.path(), &metadata))
}

fn entries(folder: &Path) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

/// The client's folder: `CLAUDE_CONFIG_DIR`, otherwise `~/.claude`.
pub fn client_folder() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("CLAUDE_CONFIG_DIR")
        .or_else(|| Some(std::env::home_dir().filter(|home| home.is_absolute())?.join(".claude")))
}

/// What the head of a transcript says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The folder in which the session began.
    pub cwd: Option<PathBuf>,
    /// Whether a person or a model said anything; also true if the head is too short to tell.
    pub has_conversation: bool,
    /// The session that the first line with one names: of a subagent's transcript, the session that called it.
    pub session_id: Option<String>,
}

/// Reads the head of a transcript. The name of the project's folder does not tell where a session ran,
/// because its encoding loses which characters were slashes.
///
/// As the folder tells whether a session may be read at all, it is looked for in the whole file if need be.
///
/// # Errors
/// When the file cannot be read.
pub fn read_head(path: &Path) -> io::Result<Head> {
    let mut lines = BufReader::new(File::open(path)?);
    let mut head = Head::default();
    let mut line = Vec::new();
    let mut bytes = 0;
    while head.cwd.is_none() || !head.has_conversation && bytes < HEAD_BYTES_MAX {
        line.clear();
        let count = lines.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line)?;
        if count == 0 {
            break;
        }
        bytes += count as u64;
        if count == LINE_BYTES_MAX && !line.ends_with(b"\n") {
            lines.skip_until(b'\n')?;
            continue;
        }
        let Some(kind) = json_scan::value_of(&line, "type").and_then(json_scan::text) else { continue };
        head.has_conversation |= matches!(kind.as_str(), "user" | "assistant");
        if head.cwd.is_none() {
            let cwd = json_scan::value_of(&line, "cwd").and_then(json_scan::text);
            head.cwd = cwd.filter(|cwd| !cwd.is_empty()).map(PathBuf::from);
        }
        if head.session_id.is_none() {
            let session = json_scan::value_of(&line, "sessionId").and_then(json_scan::text);
            head.session_id = session.filter(|session| !session.is_empty());
        }
    }
    // There may be more than was read.
    head.has_conversation |= bytes >= HEAD_BYTES_MAX;
    Ok(head)
}

/// Whether everything after this many bytes is whole lines that no conversation is read from. After its hooks
/// for a session's end the client writes such lines, with the session's cost for example.
///
/// # Errors
/// When the file cannot be read.
pub fn has_only_bookkeeping_after(path: &Path, bytes: u64) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let (Some(before), true) = (bytes.checked_sub(1), size.saturating_sub(bytes) < HEAD_BYTES_MAX) else {
        return Ok(false);
    };
    file.seek(SeekFrom::Start(before))?;
    let mut lines = BufReader::new(file).split(b'\n');
    // What was read must have ended with a whole line.
    if lines.next().transpose()?.is_none_or(|line| !line.is_empty()) {
        return Ok(false);
    }
    for line in lines {
        let line = line?;
        let kind = json_scan::value_of(&line, "type").and_then(json_scan::text);
        if kind.is_none_or(|kind| CONVERSATION_KINDS.contains(&kind.as_str())) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn only_transcripts_of_sessions_are_listed() {
        let client = tempfile::tempdir().unwrap();
        let projects = client.path().join("projects");
        write(&projects.join("-home-a/1111.jsonl"), "{}\n");
        write(&projects.join("-home-b/2222.jsonl"), "");
        for path in [
            "-home-a/agent-9.jsonl",
            "-home-a/1111/subagents/agent-8.jsonl",
            "-home-a/1111/3333.jsonl",
            "-home-a/notes.md",
            "-home-a/memory/MEMORY.md",
            "4444.jsonl",
        ] {
            write(&projects.join(path), "{}\n");
        }
        fs::create_dir(projects.join("-home-a/5555.jsonl")).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", projects.join("-home-a/6666.jsonl")).unwrap();
        std::os::unix::fs::symlink(projects.join("-home-a"), projects.join("-home-c")).unwrap();
        let mut found = discover(client.path());
        found.sort_by(|a, b| a.path.cmp(&b.path));
        let listed: Vec<_> = found.iter().map(|stamp| (stamp.session_id(), stamp.size)).collect();
        assert_eq!(listed, [("1111", 3), ("2222", 0)]);
        assert!(discover(&client.path().join("nowhere")).is_empty());
    }

    #[test]
    fn a_linked_client_folder_gives_canonical_paths() {
        let client = tempfile::tempdir().unwrap();
        write(&client.path().join("real/projects/-p/1.jsonl"), "{}\n");
        std::os::unix::fs::symlink(client.path().join("real"), client.path().join("link")).unwrap();
        let found = discover(&client.path().join("link"));
        assert_eq!(found, discover(&client.path().join("real")));
        // The stamp from reading the file equals the one from listing it.
        let linked = client.path().join("link/projects/-p/1.jsonl");
        assert_eq!(crate::read(&linked, &|_| false).unwrap().stamp.as_ref(), found.first());
    }

    #[test]
    fn the_head_has_the_first_folder_and_whether_anyone_spoke() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let check = |text: &str, cwd: Option<&str>, has_conversation: bool| {
            fs::write(&path, text).unwrap();
            let expected = Head { cwd: cwd.map(PathBuf::from), has_conversation, session_id: None };
            assert_eq!(read_head(&path).unwrap(), expected, "{}", &text[..text.len().min(200)]);
        };
        let user = r#"{"type":"user","uuid":"u","cwd":"/a/b","message":{"cwd":"/no"}}"#;
        check(&format!("{{\"type\":\"mode\"}}\nnot json\n{user}\n"), Some("/a/b"), true);
        check(
            "{\"type\":\"attachment\",\"cwd\":\"/a\"}\n{\"type\":\"assistant\",\"cwd\":\"/b\"}\n",
            Some("/a"),
            true,
        );
        check("{\"type\":\"mode\"}\n{\"type\":\"system\",\"cwd\":\"/a\"}\n", Some("/a"), false);
        check("", None, false);
        let long =
            |bytes: usize, rest: &str| format!("{{\"type\":\"x\",\"y\":\"{}\"{rest}}}\n", "z".repeat(bytes));
        check(&long(5 << 20, r#","cwd":"/a""#), Some("/a"), true);
        check(&format!("{}{user}\n", long(5 << 20, "")), Some("/a/b"), true);
        // Nothing is read of such a line.
        check(&format!("{}{user}\n", long(LINE_BYTES_MAX, r#","cwd":"/no""#)), Some("/a/b"), true);
    }
}
