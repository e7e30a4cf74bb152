//! `nugget why FILE:LINE`: the session that wrote a line, what was asked for there, and what is known about the file.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ::archive::Archive;
use git::BlamedLine;
use jiff::Timestamp;
use knowledge::text::one_line;
use provenance::trace::{self, Origin, Tracer};
use provenance::{Depth, Question};
use serde::Serialize;
use serde_json::json;

use crate::archive::open_archive;
use crate::commands::context::{self, ProjectPath};
use crate::commands::sessions::render;
use crate::context::Context;
use crate::error::{CliError, MISSING, USAGE};
use crate::output::{self, safe};
use crate::pager;

/// The most lines that are traced at once.
const LINES_MAX: usize = 500;
/// Lines before and after, which may tell whose a line is that tells nothing by itself.
const AROUND: usize = 4;
const GIT_DEADLINE: Duration = Duration::from_secs(60);
const PROMPT_CHARS_MAX: usize = 400;
const KNOWLEDGE_TOKENS: usize = 600;

/// Lines of a file, as the command line names them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LineRange {
    file: PathBuf,
    first: usize,
    last: usize,
}

impl LineRange {
    /// Reads `FILE:LINE` or `FILE:FIRST-LAST`; `None` if it is neither.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (file, lines) = text.rsplit_once(':')?;
        let (first, last) = lines.split_once('-').unwrap_or((lines, lines));
        let number = |text: &str| text.parse::<usize>().ok().filter(|number| *number > 0);
        let (first, last) = (number(first)?, number(last)?);
        (!file.is_empty() && first <= last).then(|| Self { file: file.into(), first, last })
    }
}

/// Whether a text is a file with lines that cannot be: `a.rs:0`, `a.rs:9-3`.
pub(super) fn is_wrong_range(text: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some((file, lines)) = text.rsplit_once(':') else { return false };
    let (first, last) = lines.split_once('-').unwrap_or((lines, lines));
    !file.is_empty() && is_number(first) && is_number(last) && LineRange::parse(text).is_none()
}

/// Lines that follow one another and come from the same commit and the same edit.
#[derive(Serialize)]
struct Passage {
    first: usize,
    last: usize,
    text: Vec<String>,
    commit: Option<Commit>,
    /// `None` if the archive does not show which session wrote them.
    session: Option<WritingSession>,
}

#[derive(Serialize, PartialEq)]
struct Commit {
    id: String,
    subject: String,
    author: String,
    date: Option<Timestamp>,
    /// The file's path then.
    path: String,
}

#[derive(Serialize, PartialEq)]
struct WritingSession {
    id: String,
    title: Option<String>,
    branch: Option<String>,
    /// What the person had asked for.
    prompt: String,
    at: Option<Timestamp>,
    /// Whether it was written in another file, and moved.
    moved: bool,
    transcript_exists: bool,
    /// The command that goes on with the session, if its client can.
    resume: Option<String>,
}

pub(super) fn run(context: &Context, range: &LineRange, json: bool) -> Result<(), CliError> {
    let now = Timestamp::now();
    if range.last - range.first >= LINES_MAX {
        return Err(CliError::new(format!("{} lines are too many", range.last - range.first + 1))
            .code(USAGE)
            .hint(format!("at most {LINES_MAX} at once")));
    }
    if !range.file.is_file() {
        return Err(CliError::new(format!("there is no file {}", range.file.display())).code(MISSING));
    }
    let target = ProjectPath::from_path(&range.file)?;
    let root = &target.project.path;
    let path = target.path.clone().unwrap_or_default();
    let lines = blame(root, &path, range)?;
    let archive = open_archive()?;
    let passages = passages(&lines, range, archive.as_ref(), &target.project.key)?;
    let units = context::read_all_units(context)?;
    let question = Question {
        path: Some(path.clone()),
        budget: KNOWLEDGE_TOKENS,
        depth: Depth::Summary,
        ..Question::default()
    };
    let known = context::ask(&question, &target.project, &units, None, false, now)?;
    if json {
        return output::print_json(&json!({ "file": path, "passages": passages, "knowledge": known }));
    }
    let mut text = String::new();
    for passage in &passages {
        text.push_str(&describe(passage, &path, archive.is_some(), now));
        text.push('\n');
    }
    if known.nuggets.is_empty() {
        text.push_str("no reviewed unit is about this file\n");
    } else {
        text.push_str(&context::render(&path, &known, now));
    }
    pager::print(context, &text)
}

/// The lines with their commits, and some around them; of a file that git does not track only the lines.
fn blame(root: &Path, path: &str, range: &LineRange) -> Result<Vec<BlamedLine>, CliError> {
    let content = std::fs::read(&range.file)?;
    let content = String::from_utf8_lossy(&content);
    let lines: Vec<&str> = content.lines().collect();
    if range.first > lines.len() {
        let count = output::counted(lines.len() as u64, "line");
        return Err(CliError::new(format!("{path} has {count}")).code(USAGE));
    }
    let first = range.first.saturating_sub(AROUND).max(1);
    let last = (range.last + AROUND).min(lines.len());
    if root.join(".git").exists()
        && let Some(found) = git::blame(root, path, first, last, Instant::now() + GIT_DEADLINE)?
    {
        return Ok(found);
    }
    let own = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
    Ok((first..=last)
        .map(|number| BlamedLine {
            number,
            text: lines[number - 1].to_owned(),
            path: path.to_owned(),
            before: own(&lines[number.saturating_sub(4)..number - 1]),
            after: own(&lines[number..(number + 3).min(lines.len())]),
            ..BlamedLine::default()
        })
        .collect())
}

fn passages(
    lines: &[BlamedLine],
    range: &LineRange,
    archive: Option<&Archive>,
    project: &str,
) -> Result<Vec<Passage>, CliError> {
    let mut tracer = archive.map(|archive| Tracer::new(archive, project));
    let mut passages: Vec<Passage> = Vec::new();
    let traced: Vec<trace::Line> = lines.iter().map(traced).collect();
    let wanted = |line: &BlamedLine| (range.first..=range.last).contains(&line.number);
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| wanted(line)) {
        let origin = match &mut tracer {
            Some(tracer) => tracer.trace_among(&traced, at)?,
            None => None,
        };
        let session = origin.map(writing_session);
        let commit = line.commit.as_ref().map(|id| Commit {
            id: id.clone(),
            subject: line.subject.clone(),
            author: line.author.clone(),
            date: line.authored,
            path: line.path.clone(),
        });
        match passages.last_mut() {
            Some(last)
                if last.commit == commit && last.session == session && last.last + 1 == line.number =>
            {
                last.last = line.number;
                last.text.push(line.text.clone());
            }
            _ => passages.push(Passage {
                first: line.number,
                last: line.number,
                text: vec![line.text.clone()],
                commit,
                session,
            }),
        }
    }
    Ok(passages)
}

fn traced(line: &BlamedLine) -> trace::Line {
    trace::Line {
        path: line.path.clone(),
        text: line.text.clone(),
        before: line.before.clone(),
        after: line.after.clone(),
        authored: line.authored,
        committed: line.committed,
        commit: line.commit.clone(),
    }
}

fn writing_session(origin: Origin) -> WritingSession {
    let session = origin.session;
    WritingSession {
        transcript_exists: render::has_transcript(&session),
        resume: render::resume_command(&session),
        title: session.title.or(session.first_prompt),
        id: session.id,
        branch: session.branch,
        prompt: one_line(&origin.prompt_text, PROMPT_CHARS_MAX),
        at: origin.at,
        moved: origin.is_moved,
    }
}

fn describe(passage: &Passage, path: &str, has_archive: bool, now: Timestamp) -> String {
    let width = output::terminal_width();
    let mut text = String::new();
    let digits = passage.last.to_string().len();
    for (number, line) in (passage.first..).zip(&passage.text) {
        let line = line.replace('\t', "    ");
        text.push_str(&output::fit(&format!("{number:>digits$}  {}", safe(&line)), width));
        text.push('\n');
    }
    let mut add = |row: String| {
        for row in output::wrap(&row, width.saturating_sub(2)) {
            text.push_str(&format!("  {row}\n"));
        }
    };
    let day = |at: Option<Timestamp>| {
        at.map(|at| format!("{} ({})", output::local_day(at), output::age(at, now))).unwrap_or_default()
    };
    match &passage.commit {
        None => add("not committed".to_owned()),
        Some(commit) => {
            let id: String = commit.id.chars().take(8).collect();
            let author = safe(&commit.author);
            add(format!("commit {id} by {author}, {}: {}", day(commit.date), safe(&commit.subject)));
            if commit.path != path {
                add(format!("it was in {} then", safe(&commit.path)));
            }
        }
    }
    match &passage.session {
        Some(session) => {
            let branch = session.branch.as_ref().map(|branch| format!(", branch {}", safe(branch)));
            let moved = if session.moved { ", in another file, from which it was moved" } else { "" };
            add(format!(
                "written in session {}, {}{}{moved}",
                render::short(&session.id),
                day(session.at),
                branch.unwrap_or_default()
            ));
            if !session.prompt.is_empty() {
                add(format!("asked: {}", safe(&session.prompt)));
            }
            match &session.resume {
                Some(resume) => add(format!("continue it: {resume}")),
                None => add(format!("read it: nugget sessions show {}", render::short(&session.id))),
            }
        }
        None if passage.text.iter().all(|line| line.trim().is_empty()) => {}
        None if has_archive => {
            add("no archived session is known to have written it".to_owned());
        }
        None => add("no session is archived (`nugget sessions sync` adds those on the disk)".to_owned()),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_continued_by_the_client_that_wrote_it() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, line: serde_json::Value| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{line}\n")).unwrap();
        };
        let id = "00000000-0000-4000-8000-000000000007";
        let rollout = format!("codex/sessions/2026/01/02/rollout-2026-01-02T03-04-00-{id}.jsonl");
        let content = json!([{ "type": "input_text", "text": "cache the rates" }]);
        let payload = json!({ "type": "message", "role": "user", "content": content });
        write(
            &rollout,
            json!({ "timestamp": "2026-01-02T03:04:05Z", "type": "response_item", "payload": payload }),
        );
        let message = json!({ "role": "user", "content": "cache the rates" });
        let line =
            json!({ "type": "user", "uuid": "u1", "timestamp": "2026-01-02T03:04:05Z", "message": message });
        write("client/projects/-p/s1/subagents/agent-a.jsonl", line);
        let archive = Archive::open(&folder.path().join("archive.db")).unwrap();
        let client = ::archive::ClaudeCode::new(vec![folder.path().join("client")]);
        let codex = ::archive::Codex::new(vec![folder.path().join("codex")]);
        let settings = ::archive::SyncSettings::new(folder.path().to_owned());
        archive.sync(&[&client, &codex], &settings).unwrap();
        let sessions = archive.sessions(&::archive::Filter::default(), true, 10).unwrap();
        let mut resumed: Vec<_> = sessions
            .into_iter()
            .map(|session| {
                let origin = Origin {
                    session,
                    prompt: None,
                    prompt_text: String::new(),
                    message: 1,
                    at: None,
                    neighbours: 0,
                    is_moved: false,
                };
                let (commit, session) = (None, Some(writing_session(origin)));
                let passage = Passage { first: 1, last: 1, text: vec!["x".into()], commit, session };
                describe(&passage, "a.rs", true, Timestamp::UNIX_EPOCH)
            })
            .map(|text| text.split("continue it: ").nth(1).unwrap_or(&text).trim().to_owned())
            .collect();
        resumed.sort();
        assert_eq!(resumed, ["claude --resume s1".to_owned(), format!("codex resume {id}")]);
    }

    #[test]
    fn a_session_that_cannot_be_continued_is_read_by_an_id_that_finds_it() {
        for (id, named) in [
            ("5a3b7c1e-0000-4000-8000-000000000001", "5a3b7c1e"),
            ("019a9f00-1111-7000-8000-000000000001", "019a9f00-1111"),
            ("5a3b7c1e-0000-4000-8000-000000000001/agent-a1b2c3d4", "5a3b7c1e/agent-a1b2c3d4"),
        ] {
            let session = WritingSession {
                id: id.to_owned(),
                title: None,
                branch: None,
                prompt: String::new(),
                at: None,
                transcript_exists: false,
                resume: None,
                moved: false,
            };
            let passage =
                Passage { first: 1, last: 1, text: vec!["x".into()], commit: None, session: Some(session) };
            let text = describe(&passage, "a.rs", true, Timestamp::UNIX_EPOCH);
            assert!(text.contains(&format!("written in session {named},")), "{text}");
            assert!(text.trim_end().ends_with(&format!("sessions show {named}")), "{text}");
        }
    }

    #[test]
    fn a_place_is_a_file_with_a_line_or_a_range() {
        let parse = |text: &str| LineRange::parse(text).map(|range| (range.file, range.first, range.last));
        assert_eq!(parse("src/a.rs:12"), Some(("src/a.rs".into(), 12, 12)));
        assert_eq!(parse("C:\\a.rs:3-9"), Some(("C:\\a.rs".into(), 3, 9)));
        for other in ["bounded-worker-pools", "a.rs:0", "a.rs:9-3", ":4", "a.rs:x", "a:1-"] {
            assert_eq!(parse(other), None, "{other}");
        }
        assert!(is_wrong_range("a.rs:0") && is_wrong_range("a.rs:9-3"));
        assert!(
            !is_wrong_range("a.rs:9") && !is_wrong_range("bounded-worker-pools") && !is_wrong_range("a:x")
        );
    }
}
