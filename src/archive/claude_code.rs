//! Claude Code's transcripts: `<client folder>/projects/*/*.jsonl`, one JSON object a line.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use knowledge::json::without_halves;
use knowledge::text::one_line;
use serde::Deserialize;
use serde_json::value::RawValue;
use transcript::raw_json::{Block, blocks, flag, string};
use transcript::{
    BACKGROUND_FIELDS, FILE_FIELDS, FileStamp, Ignore, IgnoredCalls, LEFT_OUT, clean, clean_and_cut,
    head_and_tail, is_own_call, json_scan, named_files, typed_text,
};

use crate::record::{Message, MessageId, MessageKind, Request, SessionFacts, ToolResult, ToolUse};
use crate::source::{
    LineRead, LineReader, ReaderContext, TranscriptHead, TranscriptSource, error_words, unknown,
};

/// Far above any answer; what is longer was not typed or written by a model.
const TEXT_BYTES_MAX: usize = 512 << 10;
/// Files that a model writes are part of the input of a tool.
pub(crate) const INPUT_BYTES_MAX: usize = 32 << 10;
pub(crate) const INJECTED_BYTES_MAX: usize = 16 << 10;
pub(crate) const TOOL_WORDS_CHARS_MAX: usize = 300;
const TITLE_CHARS_MAX: usize = 300;
/// The most summaries that are kept until their messages are known.
const SUMMARIES_MAX: usize = 20;
/// Calls whose results never came are forgotten from this many on.
pub(crate) const OPEN_CALLS_MAX: usize = 1000;
pub(crate) const OWN_LEFT_OUT: &str = "[left out: an answer of nugget]";
/// Types of lines of which nothing is kept.
const KNOWN_TYPES: &[&str] = &[
    "agent-name",
    "api-request",
    "api-request-blob",
    "api-request-shape",
    "atis-latch",
    "bridge-session",
    "cost-state",
    "last-prompt",
    "mode",
    "permission-mode",
    "pr-link",
    "progress",
    "queue-operation",
    "tag",
    "tools-used",
];
/// The id under which the last command is remembered that a person ran with `!`: its output names no call.
const TYPED_COMMAND: &str = "!";
/// Tools that change the file that they name.
pub(crate) const EDITORS: &[&str] = &["Edit", "MultiEdit", "NotebookEdit", "Write"];

/// The transcripts of Claude Code.
#[derive(Clone, Debug)]
pub struct ClaudeCode {
    folders: Vec<PathBuf>,
}

impl ClaudeCode {
    /// The client's name.
    pub const NAME: &'static str = "claude-code";

    /// Reads the client's folders, with `projects/` in each.
    pub fn new(folders: Vec<PathBuf>) -> Self {
        Self { folders }
    }
}

impl TranscriptSource for ClaudeCode {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn folders(&self) -> Vec<PathBuf> {
        self.folders.iter().map(|folder| folder.join("projects")).collect()
    }

    fn discover(&self) -> Vec<FileStamp> {
        self.folders.iter().flat_map(|folder| transcript::discover_with_subagents(folder)).collect()
    }

    fn head(&self, path: &Path) -> io::Result<TranscriptHead> {
        let head = transcript::read_head(path)?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        // The ids of subagents are short, and unique only within their session.
        let parent = stem.starts_with("agent-").then(|| parent_of(path).or(head.session_id)).flatten();
        Ok(TranscriptHead {
            session: parent.as_ref().map_or_else(|| stem.clone(), |parent| format!("{parent}/{stem}")),
            parent,
            cwd: head.cwd.map(|cwd| cwd.to_string_lossy().into_owned()),
            has_conversation: head.has_conversation,
        })
    }

    fn reader(&self, context: ReaderContext, state: &str) -> Box<dyn LineReader> {
        let state = serde_json::from_str(state).unwrap_or_default();
        Box::new(Reader { context, state })
    }
}

/// The session whose folder holds the transcript of a subagent.
fn parent_of(path: &Path) -> Option<String> {
    let folder = path.parent()?;
    (folder.file_name()? == "subagents").then_some(())?;
    Some(folder.parent()?.file_name()?.to_string_lossy().into_owned())
}

/// What is remembered from line to line, and from one reading of a file to the next.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
struct State {
    /// Ids of calls of nugget whose results have not come yet.
    own: BTreeSet<String>,
    #[serde(flatten)]
    ignored: IgnoredCalls,
}

struct Reader {
    context: ReaderContext,
    state: State,
}

/// The fields of a line that are used. All are raw, so that a field of an unexpected type costs only that field.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    #[serde(borrow)]
    uuid: Option<&'a RawValue>,
    #[serde(borrow)]
    parent_uuid: Option<&'a RawValue>,
    #[serde(borrow)]
    timestamp: Option<&'a RawValue>,
    #[serde(borrow)]
    cwd: Option<&'a RawValue>,
    #[serde(borrow)]
    git_branch: Option<&'a RawValue>,
    #[serde(borrow)]
    version: Option<&'a RawValue>,
    #[serde(borrow)]
    request_id: Option<&'a RawValue>,
    #[serde(borrow)]
    is_compact_summary: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    attachment: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_use_result: Option<&'a RawValue>,
    #[serde(borrow)]
    summary: Option<&'a RawValue>,
    #[serde(borrow)]
    leaf_uuid: Option<&'a RawValue>,
    #[serde(borrow)]
    ai_title: Option<&'a RawValue>,
    #[serde(borrow)]
    custom_title: Option<&'a RawValue>,
    #[serde(borrow)]
    snapshot: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ApiMessage<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

impl LineReader for Reader {
    fn read(&mut self, line: &[u8], facts: &mut SessionFacts) -> LineRead {
        let Some(kind) = json_scan::value_of(line, "type").and_then(json_scan::text) else {
            return LineRead::Malformed { reason: "no JSON object with a type" };
        };
        match kind.as_str() {
            "user" | "assistant" | "system" | "summary" | "ai-title" | "custom-title" => {}
            "file-history-snapshot" | "file-history-delta" => {}
            "attachment" => {
                let sub = json_scan::value_of(line, "attachment")
                    .and_then(|attachment| json_scan::value_of(attachment, "type"))
                    .and_then(json_scan::text);
                if sub.is_none_or(|sub| sub != "queued_command") {
                    return LineRead::Skipped;
                }
            }
            known if KNOWN_TYPES.contains(&known) => return LineRead::Skipped,
            other => return unknown(other),
        }
        let Ok(parsed) = serde_json::from_slice::<Line<'_>>(line) else {
            return LineRead::Malformed { reason: "not JSON" };
        };
        note_facts(&parsed, facts);
        if let Some(cwd) = string(parsed.cwd) {
            self.context.ignore.enter(&cwd);
        }
        match kind.as_str() {
            "user" => self.read_user(line, &parsed),
            "assistant" => self.read_assistant(line, &parsed, facts),
            "system" => read_system(line, &parsed),
            "attachment" => read_queued(line, &parsed),
            "file-history-snapshot" | "file-history-delta" => read_snapshot(&parsed),
            _ => {
                let title = string(parsed.summary.or(parsed.ai_title).or(parsed.custom_title));
                if let Some(title) = title.filter(|title| !title.trim().is_empty()) {
                    let title = one_line(&clean(&title), TITLE_CHARS_MAX);
                    match string(parsed.leaf_uuid) {
                        Some(leaf) => {
                            facts.summaries.truncate(SUMMARIES_MAX - 1);
                            facts.summaries.insert(0, (MessageId::parse(&leaf), title));
                        }
                        None => facts.title = Some(title),
                    }
                }
                LineRead::Skipped
            }
        }
    }

    fn state(&self) -> String {
        if self.state.own.is_empty() && self.state.ignored.is_empty() {
            return String::new();
        }
        serde_json::to_string(&self.state).unwrap_or_default()
    }
}

impl Reader {
    fn read_user(&mut self, bytes: &[u8], line: &Line<'_>) -> LineRead {
        let content =
            line.message.and_then(|message| json_scan::value_of(message.get().as_bytes(), "content"));
        if content.is_some_and(|content| !content.starts_with(b"\"") && !content.starts_with(b"[")) {
            return LineRead::Malformed { reason: "a message that is no text" };
        }
        let mut message = start(bytes, line, MessageKind::Prompt);
        let mut text = content.and_then(json_scan::text).unwrap_or_default();
        for block in blocks(content) {
            match string(block.kind).as_deref() {
                Some("tool_result") => {
                    let result = self.read_result(&block);
                    message.tool_results.push(result);
                }
                Some("image") => push(&mut text, "[image]"),
                _ => push(&mut text, &string(block.text).unwrap_or_default()),
            }
        }
        if !message.tool_results.is_empty() {
            message.tuned_files.extend(tuned_file(line));
            message.kind = MessageKind::ToolResult;
            message.content = clean_and_cut(&text, INJECTED_BYTES_MAX);
            for result in message.tool_results.iter().filter(|result| result.is_error) {
                push(&mut message.content, error_words(&result.output));
            }
        } else if flag(line.is_compact_summary) || transcript::nonhuman_kind(bytes, &text).is_some() {
            message.kind = MessageKind::Injected;
            if let Some(rest) = self.without_ignored(&text) {
                text = rest;
            }
            message.content = clean_and_cut(&text, INJECTED_BYTES_MAX);
        } else {
            message.content = cut(typed_text(&text));
        }
        LineRead::Message(Box::new(message))
    }

    /// A command that a person ran with `!`, or its output, without what must not be read; `None` if that changes nothing.
    fn without_ignored(&mut self, text: &str) -> Option<String> {
        let (ignore, calls) = (&self.context.ignore, &mut self.state.ignored);
        if let Some(command) = transcript::typed_command(text) {
            let is_ignored = calls.begin(ignore, TYPED_COMMAND, Some(command), None, None);
            let shown = ignore.without_content(command).filter(|_| is_ignored)?;
            return Some(format!("<bash-input>{shown}</bash-input>"));
        }
        let rest = calls.end(ignore, TYPED_COMMAND, &transcript::command_output(text)?)?;
        Some(format!("<bash-stdout>{rest}</bash-stdout>"))
    }

    fn read_result(&mut self, block: &Block<'_>) -> ToolResult {
        let id = string(block.tool_use_id).unwrap_or_default().into_owned();
        let mut text =
            block.content.and_then(|content| json_scan::text(content.get().as_bytes())).unwrap_or_default();
        for part in blocks(block.content.map(|content| content.get().as_bytes())) {
            match string(part.kind).as_deref() {
                Some("image") => push(&mut text, "[image]"),
                _ => push(&mut text, &string(part.text).unwrap_or_default()),
            }
        }
        if self.state.own.remove(&id) {
            OWN_LEFT_OUT.clone_into(&mut text);
        } else if let Some(rest) = self.state.ignored.end(&self.context.ignore, &id, &text) {
            text = rest;
        }
        let (output, whole) = shorten(&text, self.context.output_bytes_max);
        ToolResult { id, output, is_error: flag(block.is_error), whole }
    }

    fn read_assistant(&mut self, bytes: &[u8], line: &Line<'_>, facts: &mut SessionFacts) -> LineRead {
        let mut message = start(bytes, line, MessageKind::Answer);
        let Some(api) = line.message.and_then(|raw| serde_json::from_str::<ApiMessage<'_>>(raw.get()).ok())
        else {
            return LineRead::Message(Box::new(message));
        };
        let model = string(api.model).filter(|model| !model.is_empty() && model != "<synthetic>");
        if let Some(model) = &model {
            facts.model = Some(one_line(model, 100));
            message.request = request(line, &api, model);
        }
        let content = api.content.map(|content| content.get().as_bytes());
        let mut text = content.and_then(json_scan::text).unwrap_or_default();
        let mut thinking = String::new();
        for block in blocks(content) {
            match string(block.kind).as_deref() {
                Some("text") => push(&mut text, &string(block.text).unwrap_or_default()),
                Some("thinking") => push(&mut thinking, &string(block.thinking).unwrap_or_default()),
                Some("tool_use" | "server_tool_use" | "mcp_tool_use") => self.read_call(&block, &mut message),
                _ => {}
            }
        }
        message.content = cut(clean(&text));
        message.thinking = cut(clean(&thinking));
        message.kind = match () {
            () if !message.content.is_empty() => MessageKind::Answer,
            () if !message.tool_uses.is_empty() => MessageKind::ToolCall,
            () => MessageKind::Thinking,
        };
        LineRead::Message(Box::new(message))
    }

    fn read_call(&mut self, block: &Block<'_>, message: &mut Message) {
        let id = string(block.id).unwrap_or_default().into_owned();
        let name = string(block.name).unwrap_or_default();
        let raw = block.input.map_or("", RawValue::get);
        let field = |name: &str| json_scan::value_of(raw.as_bytes(), name).and_then(json_scan::text);
        let mut command = field("command");
        let file = FILE_FIELDS.iter().find_map(|name| field(name));
        let background = BACKGROUND_FIELDS.iter().find_map(|name| field(name));
        let (ignore, calls) = (&self.context.ignore, &mut self.state.ignored);
        let files = named_files(&name, raw.as_bytes());
        let named = files.iter().map(String::as_str);
        let is_ignored = calls.begin(ignore, &id, command.as_deref(), named, background.as_deref());
        let input = if is_ignored {
            command = command.map(|command| ignore.without_content(&command).unwrap_or_default());
            // What the call is about, without what it would write.
            let about = command.as_deref().or(file.as_deref()).unwrap_or_default();
            let shown = serde_json::json!({ "about": about, "rest": LEFT_OUT });
            clean_and_cut(&shown.to_string(), INPUT_BYTES_MAX)
        } else {
            if is_own_call(&name, command.as_deref()) {
                remember(&mut self.state.own, &id);
            }
            clean_and_cut(&String::from_utf8_lossy(&without_halves(raw.as_bytes())), INPUT_BYTES_MAX)
        };
        if EDITORS.contains(&name.as_ref())
            && let Some(file) = &file
        {
            message.changed_files.push(clean_and_cut(file, 1 << 10));
        }
        let subject = ["pattern", "query", "url", "description", "skill", "subject", "prompt"];
        let argument = command.or(file).or_else(|| subject.iter().find_map(|name| field(name)));
        let argument = argument.map(|argument| clean_and_cut(&argument, 2 << 10)).unwrap_or_default();
        let name = one_line(&clean(&name), 200);
        push(&mut message.tool_words, &one_line(&format!("{name}: {argument}"), TOOL_WORDS_CHARS_MAX));
        message.tool_uses.push(ToolUse { id, name, input });
    }
}

/// The file of an edit that a person changed before it was made.
fn tuned_file(line: &Line<'_>) -> Option<String> {
    let result = line.tool_use_result?.get().as_bytes();
    let is_tuned = json_scan::value_of(result, "userModified") == Some(b"true");
    let file = || json_scan::value_of(result, "filePath").and_then(json_scan::text);
    is_tuned.then(file).flatten().map(|file| clean_and_cut(&file, 1 << 10))
}

fn note_facts(line: &Line<'_>, facts: &mut SessionFacts) {
    let note = |fact: &mut Option<String>, raw: Option<&RawValue>| {
        if let Some(text) = string(raw).filter(|text| !text.is_empty())
            && fact.as_deref() != Some(text.as_ref())
        {
            *fact = Some(one_line(&clean(&text), 1000));
        }
    };
    if facts.cwd.is_none() {
        note(&mut facts.cwd, line.cwd);
    }
    note(&mut facts.branch, line.git_branch);
    note(&mut facts.client_version, line.version);
}

fn start(bytes: &[u8], line: &Line<'_>, kind: MessageKind) -> Message {
    let id = string(line.uuid).filter(|uuid| !uuid.is_empty());
    let id = id.map_or_else(|| MessageId::digest(bytes), |uuid| MessageId::parse(&uuid));
    let parent = string(line.parent_uuid).filter(|uuid| !uuid.is_empty());
    Message {
        parent: parent.map(|uuid| MessageId::parse(&uuid)),
        at: string(line.timestamp).and_then(|at| at.parse::<Timestamp>().ok()),
        ..Message::new(id, kind)
    }
}

fn request(line: &Line<'_>, api: &ApiMessage<'_>, model: &str) -> Option<Request> {
    let usage = api.usage?.get().as_bytes();
    let request_id = string(line.request_id).filter(|id| !id.is_empty()).map(Cow::into_owned);
    let key = string(api.id).filter(|id| !id.is_empty()).map(Cow::into_owned);
    // An impossibly large count is limited, so that no sum overflows.
    let count = |name: &str| {
        let value = json_scan::value_of(usage, name).and_then(|value| std::str::from_utf8(value).ok());
        value.and_then(|value| value.parse::<u64>().ok()).unwrap_or_default().min(1 << 32)
    };
    Some(Request {
        key: key.or_else(|| request_id.clone())?,
        request_id: request_id.map(|id| one_line(&id, 100)),
        model: one_line(model, 100),
        input: count("input_tokens"),
        output: count("output_tokens"),
        cache_read: count("cache_read_input_tokens"),
        cache_write: count("cache_creation_input_tokens"),
    })
}

fn read_system(bytes: &[u8], line: &Line<'_>) -> LineRead {
    let text = line.content.and_then(|content| json_scan::text(content.get().as_bytes()));
    let Some(text) = text.filter(|text| !text.trim().is_empty()) else { return LineRead::Skipped };
    let mut message = start(bytes, line, MessageKind::System);
    message.content = clean_and_cut(&text, INJECTED_BYTES_MAX);
    LineRead::Message(Box::new(message))
}

/// Reads what a person typed while the model worked, or what a subagent reported then.
fn read_queued(bytes: &[u8], line: &Line<'_>) -> LineRead {
    let field =
        |name: &str| line.attachment.and_then(|value| json_scan::value_of(value.get().as_bytes(), name));
    let is_typed = field("commandMode").and_then(json_scan::text).is_none_or(|mode| mode == "prompt");
    let mut text = field("prompt").and_then(json_scan::text).unwrap_or_default();
    for block in blocks(field("prompt")) {
        push(&mut text, &string(block.text).unwrap_or_default());
    }
    let is_human = is_typed && transcript::nonhuman_kind(bytes, &text).is_none();
    let mut message = start(bytes, line, if is_human { MessageKind::Prompt } else { MessageKind::Injected });
    message.content =
        if is_human { cut(typed_text(&text)) } else { clean_and_cut(&text, INJECTED_BYTES_MAX) };
    LineRead::Message(Box::new(message))
}

fn read_snapshot(line: &Line<'_>) -> LineRead {
    let backups = line
        .snapshot
        .and_then(|snapshot| json_scan::value_of(snapshot.get().as_bytes(), "trackedFileBackups"))
        .and_then(json_scan::Entries::new);
    let files = backups
        .into_iter()
        .flatten()
        .filter_map(|(key, _)| Some(clean_and_cut(&json_scan::key(key)?, 1 << 10)));
    LineRead::ChangedFiles(files.collect())
}

fn remember(calls: &mut BTreeSet<String>, id: &str) {
    if calls.len() < OPEN_CALLS_MAX {
        calls.insert(id.to_owned());
    }
}

/// Cleans a text and shortens it to its head and tail; with the length and digest of the whole if it was shortened.
pub(crate) fn shorten(text: &str, bytes_max: usize) -> (String, Option<(u64, [u8; 16])>) {
    let whole = (text.len() > bytes_max).then(|| (text.len() as u64, MessageId::digest(text.as_bytes()).0));
    (clean_and_cut(text, bytes_max), whole)
}

/// A clean text; of one that nobody typed, by its length, the head and the tail.
pub(crate) fn cut(text: String) -> String {
    if text.len() <= TEXT_BYTES_MAX { text } else { head_and_tail(&text, TEXT_BYTES_MAX) }
}

pub(crate) fn push(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push('\n');
    }
    text.push_str(more);
}

/// The project's `.nuggetignore`, for the folder that a session runs in.
pub(crate) fn ignore_of(cwd: Option<&str>) -> Ignore {
    cwd.map(|cwd| Ignore::load(Path::new(cwd))).unwrap_or_default()
}
