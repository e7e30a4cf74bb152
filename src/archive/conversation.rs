//! A transcript as the conversation that a capture learns from, whichever client wrote it.
//!
//! Claude Code's transcripts are read by [`transcript::read`]. Those of Codex go through the same line reader as into the
//! archive, so that both know its format, its secrets and what must not be read by the same rules.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use knowledge::text::one_line;
use serde_json::Value;
use transcript::{Error, Event, EventKind, FileStamp, LineCounts, ParsedTranscript, ToolInput, json_scan};

use crate::claude_code::{OWN_LEFT_OUT, ignore_of};
use crate::codex::{Codex, command_of};
use crate::project::project_name;
use crate::record::{Message, MessageId, MessageKind, SessionFacts, ToolUse};
use crate::source::{LineRead, ReaderContext, TranscriptHead, TranscriptSource as _};

/// How much of a tool's output a conversation keeps, head and tail.
const OUTPUT_BYTES_MAX: usize = 4 << 10;
const EDIT_BYTES_MAX: usize = 4 << 10;

const PROJECT_CHARS_MAX: usize = 100;

/// Reads a transcript as a conversation: up to its last line feed, and without the lines that are `known`.
///
/// # Errors
/// Those of [`transcript::read`].
pub fn read_conversation(path: &Path, known: &dyn Fn(&str) -> bool) -> Result<ParsedTranscript, Error> {
    let mut parsed = match Codex::is_rollout(path) {
        true => read_codex(path, known)?,
        false => transcript::read(path, known)?,
    };
    let name = parsed.conversation.cwd.as_deref().and_then(|cwd| project_name(Path::new(cwd)));
    parsed.conversation.project = name.map(|name| one_line(&transcript::clean(&name), PROJECT_CHARS_MAX));
    Ok(parsed)
}

fn read_codex(path: &Path, known: &dyn Fn(&str) -> bool) -> Result<ParsedTranscript, Error> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Error::Missing { path: path.to_owned() },
        _ => Error::Unreadable { path: path.to_owned(), source },
    };
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Error::NotAFile { path: path.to_owned() });
    }
    let codex = Codex::new(Vec::new());
    let head = codex.head(path).map_err(failed)?;
    let mut parsed = read_rollout(&codex, path, &head, known).map_err(failed)?;
    let conversation = &mut parsed.conversation;
    // A subagent's id follows its caller's.
    conversation.session_id = head.session.rsplit('/').next().unwrap_or_default().to_owned();
    if !parsed.is_ignored {
        conversation.cwd = head.cwd;
        conversation.started = conversation.events.iter().filter_map(|event| event.at).min();
        conversation.ended = conversation.events.iter().filter_map(|event| event.at).max();
    }
    Ok(parsed)
}

fn read_rollout(
    codex: &Codex,
    path: &Path,
    head: &TranscriptHead,
    known: &dyn Fn(&str) -> bool,
) -> io::Result<ParsedTranscript> {
    let mut parsed = ParsedTranscript::default();
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let canonical = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    parsed.stamp = Some(FileStamp::from_metadata(canonical, &metadata));
    let ignore = ignore_of(head.cwd.as_deref());
    parsed.is_ignored = ignore.covers_everything();
    if parsed.is_ignored {
        return Ok(parsed);
    }
    let mut reader = codex.reader(ReaderContext { ignore, output_bytes_max: OUTPUT_BYTES_MAX }, "");
    let mut facts = SessionFacts::default();
    let (mut seen, mut own) = (HashSet::new(), HashSet::new());
    let counts = &mut parsed.counts;
    let extent = transcript::for_each_line(file.take(metadata.len()), |line| {
        counts.lines += 1;
        let message = match line.map(|line| reader.read(line, &mut facts)) {
            Some(LineRead::Message(message)) => message,
            Some(LineRead::Malformed { reason }) => return malformed(counts, reason),
            None => return malformed(counts, "too long"),
            Some(LineRead::Unknown { kind }) => {
                *counts.skipped_kinds.entry(kind).or_default() += 1;
                return;
            }
            Some(LineRead::Skipped | LineRead::ChangedFiles(_) | LineRead::Request { .. }) => {
                *counts.skipped_kinds.entry("codex".to_owned()).or_default() += 1;
                return;
            }
        };
        let name = line_name(message.id);
        if known(&name) || !seen.insert(name.clone()) {
            counts.known += 1;
            return;
        }
        let at = message.at;
        let (kinds, is_own) = events(*message, &mut own);
        if is_own {
            counts.own += 1;
        } else if kinds.is_empty() {
            *counts.skipped_kinds.entry("codex".to_owned()).or_default() += 1;
        } else {
            counts.conversation += 1;
            let event = |kind| Event { line: name.clone(), at, sidechain: false, kind };
            parsed.conversation.events.extend(kinds.into_iter().map(event));
            parsed.lines.push(name);
        }
    })?;
    parsed.counts.bytes = extent.bytes;
    parsed.counts.partial_tail_bytes = extent.tail_bytes;
    Ok(parsed)
}

fn malformed(counts: &mut LineCounts, reason: &str) {
    counts.malformed += 1;
    *counts.malformed_reasons.entry(reason.to_owned()).or_default() += 1;
}

/// The name of a line that has no id of its own, in place of a `uuid`.
fn line_name(id: MessageId) -> String {
    id.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a message says and does, and whether it is a call of nugget or its result. `own` are the ids of such calls.
fn events(message: Message, own: &mut HashSet<String>) -> (Vec<EventKind>, bool) {
    let mut events = Vec::new();
    match message.kind {
        MessageKind::Prompt if !message.content.trim().is_empty() => {
            events.push(EventKind::Human { text: message.content });
        }
        MessageKind::Answer if !message.content.trim().is_empty() => {
            events.push(EventKind::Assistant { text: message.content });
        }
        _ => {}
    }
    let mut is_own = false;
    for tool in message.tool_uses {
        if Codex::is_own(&tool) {
            own.insert(tool.id);
            is_own = true;
            continue;
        }
        let input = input_of(&tool, message.changed_files.first());
        events.push(EventKind::ToolCall {
            id: tool.id,
            name: tool.name,
            summary: message.tool_words.clone(),
            input,
            by_human: false,
        });
    }
    for result in message.tool_results {
        if own.remove(&result.id) || result.output == OWN_LEFT_OUT {
            is_own = true;
            continue;
        }
        events.push(EventKind::ToolResult {
            id: result.id,
            ok: !result.is_error,
            exit_code: None,
            output: result.output,
        });
    }
    (events, is_own)
}

/// The parts of a call that say what was done: of a patch the lines that it removes and adds.
fn input_of(tool: &ToolUse, file: Option<&String>) -> ToolInput {
    let arguments: Value = json_scan::parse(tool.input.as_bytes()).unwrap_or_default();
    let Some(file) = file else {
        let subject = ["query", "pattern", "path", "url"]
            .iter()
            .find_map(|name| arguments.get(name)?.as_str().map(str::to_owned));
        return ToolInput { command: command_of(&arguments), subject, ..ToolInput::default() };
    };
    let patch = ["patch", "input"].iter().find_map(|name| arguments.get(name)?.as_str().map(str::to_owned));
    let patch = patch.or_else(|| command_of(&arguments)).unwrap_or_else(|| tool.input.clone());
    let side = |mark: char| {
        let lines = patch.lines().filter_map(|line| line.strip_prefix(mark));
        let mut text = lines.collect::<Vec<_>>().join("\n");
        text.truncate(text.floor_char_boundary(EDIT_BYTES_MAX));
        Some(text).filter(|text| !text.is_empty())
    };
    ToolInput { file: Some(file.clone()), old: side('-'), new: side('+'), ..ToolInput::default() }
}
