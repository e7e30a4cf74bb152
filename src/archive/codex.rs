//! Codex's rollout files: `<client folder>/sessions/**/rollout-*.jsonl`, one JSON object a line.
//!
//! Each line has a time, a type and a payload. What was said is there twice, as an item of the conversation and as an
//! event for the screen; only the items are read. Lines have no ids, so that a line is known by its digest: a resumed
//! session's file that begins with a copy of another's lines shares them.

use std::io::{self, BufRead as _, Read as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use knowledge::text::one_line;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use transcript::{
    FileStamp, IgnoredCalls, LEFT_OUT, clean, clean_and_cut, is_own_call_by_any_name, json_scan, named_files,
    without_dots,
};

use crate::claude_code::{
    INJECTED_BYTES_MAX, INPUT_BYTES_MAX, OPEN_CALLS_MAX, OWN_LEFT_OUT, TOOL_WORDS_CHARS_MAX, cut, push,
    shorten,
};
use crate::record::{Message, MessageId, MessageKind, Request, SessionFacts, ToolResult, ToolUse};
use crate::source::{
    LineRead, LineReader, ReaderContext, TranscriptHead, TranscriptSource, error_words, unknown,
};

/// How much of a file is read for its head: the instructions in its first line are long.
const HEAD_BYTES_MAX: u64 = 4 << 20;
/// How texts begin that the client puts before a person's first prompt.
const INJECTED: &[&str] = &[
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md instructions",
    "<permissions instructions>",
    "<collaboration_mode>",
    "<turn_aborted>",
    "<skill>",
    "<subagent_notification>",
];
/// Events for the screen: each is an item too, or says nothing.
const KNOWN_EVENTS: &[&str] = &[
    "agent_message",
    "agent_reasoning",
    "agent_reasoning_raw_content",
    "agent_reasoning_section_break",
    "context_compacted",
    "entered_review_mode",
    "error",
    "exec_command_end",
    "exited_review_mode",
    "item_completed",
    "mcp_tool_call_end",
    "patch_apply_end",
    "plan_update",
    "stream_error",
    "task_complete",
    "task_started",
    "thread_name_updated",
    "thread_rolled_back",
    "turn_aborted",
    "turn_complete",
    "turn_started",
    "undo_completed",
    "user_message",
    "view_image_tool_call",
    "warning",
    "web_search_end",
];

/// The rollout files of Codex.
#[derive(Clone, Debug)]
pub struct Codex {
    folders: Vec<PathBuf>,
}

impl Codex {
    /// Reads the client's folders, with `sessions/` in each.
    pub fn new(folders: Vec<PathBuf>) -> Self {
        Self { folders }
    }

    /// Whether a file is named as Codex names its rollout files.
    pub fn is_rollout(path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("rollout-") && name.ends_with(".jsonl")
    }

    /// Whether a call asks nugget.
    pub(crate) fn is_own(tool: &ToolUse) -> bool {
        let command = json_scan::parse(tool.input.as_bytes()).ok().as_ref().and_then(command_of);
        is_own_call_by_any_name(&tool.name, command.as_deref())
    }

    /// The client's folder: `CODEX_HOME`, otherwise `~/.codex`.
    pub fn client_folder() -> Option<PathBuf> {
        let variable =
            |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        variable("CODEX_HOME")
            .or_else(|| Some(std::env::home_dir().filter(|home| home.is_absolute())?.join(".codex")))
    }
}

impl TranscriptSource for Codex {
    fn name(&self) -> &'static str {
        "codex"
    }

    fn folders(&self) -> Vec<PathBuf> {
        let folders = self.folders.iter();
        folders.flat_map(|folder| ["sessions", "archived_sessions"].map(|name| folder.join(name))).collect()
    }

    fn discover(&self) -> Vec<FileStamp> {
        let roots = self.folders().into_iter().filter_map(|root| std::fs::canonicalize(root).ok());
        let files = roots.flat_map(|root| walkdir::WalkDir::new(root).max_depth(6).into_iter().flatten());
        files
            .filter(|entry| entry.file_type().is_file() && Self::is_rollout(entry.path()))
            .filter_map(|entry| {
                Some(FileStamp::from_metadata(entry.path().to_owned(), &entry.metadata().ok()?))
            })
            .take(transcript::FOUND_MAX)
            .collect()
    }

    fn head(&self, path: &Path) -> io::Result<TranscriptHead> {
        // The name ends with the session's id: `rollout-2026-01-02T03-04-05-<id>.jsonl`.
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut head = TranscriptHead { session: id_of(&stem).to_owned(), ..TranscriptHead::default() };
        let mut lines = io::BufReader::new(std::fs::File::open(path)?.take(HEAD_BYTES_MAX));
        let mut line = Vec::new();
        while head.cwd.is_none() || !head.has_conversation {
            line.clear();
            if lines.read_until(b'\n', &mut line)? == 0 {
                break;
            }
            let Ok(line) = json_scan::parse::<Line>(&line) else { continue };
            match line.kind.as_str() {
                "session_meta" | "turn_context" => {
                    head.cwd = head.cwd.or_else(|| text(&line.payload, "cwd")).filter(|cwd| !cwd.is_empty());
                    // A subagent's file names the session that started it.
                    let spawn = line.payload.pointer("/source/subagent/thread_spawn/parent_thread_id");
                    head.parent = head.parent.or_else(|| Some(spawn?.as_str()?.to_owned()));
                }
                "response_item" => head.has_conversation = true,
                _ => {}
            }
        }
        if let Some(parent) = &head.parent {
            head.session = format!("{parent}/{}", head.session);
        }
        Ok(head)
    }

    fn reader(&self, context: ReaderContext, state: &str) -> Box<dyn LineReader> {
        Box::new(Reader { context, state: serde_json::from_str(state).unwrap_or_default() })
    }
}

#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    timestamp: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    payload: Value,
}

/// What is remembered from line to line, and from one reading of a file to the next.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct State {
    model: String,
    own: Vec<String>,
    /// The folder of the last turn.
    cwd: String,
    /// The digest of the last counts of tokens.
    counted: [u8; 16],
    #[serde(flatten)]
    ignored: IgnoredCalls,
}

struct Reader {
    context: ReaderContext,
    state: State,
}

impl LineReader for Reader {
    fn read(&mut self, line: &[u8], facts: &mut SessionFacts) -> LineRead {
        if line.iter().all(u8::is_ascii_whitespace) {
            return LineRead::Skipped;
        }
        let Some(kind) = json_scan::value_of(line, "type").and_then(json_scan::text) else {
            return LineRead::Malformed { reason: "no JSON object with a type" };
        };
        match kind.as_str() {
            "session_meta" | "turn_context" | "response_item" | "event_msg" => {}
            "compacted" | "ghost_snapshot" => return LineRead::Skipped,
            other => return unknown(other),
        }
        let payload =
            json_scan::value_of(line, "payload").and_then(|payload| json_scan::value_of(payload, "type"));
        let payload = payload.and_then(json_scan::text).unwrap_or_default();
        if kind == "event_msg" && payload != "token_count" {
            return match payload.as_str() {
                known if KNOWN_EVENTS.contains(&known) => LineRead::Skipped,
                // Parts of a text that is repeated whole, and beginnings of what has an end.
                part if part.ends_with("_delta") || part.ends_with("_begin") => LineRead::Skipped,
                other => unknown(&format!("event_msg/{other}")),
            };
        }
        let Ok(parsed) = json_scan::parse::<Line>(line) else {
            return LineRead::Malformed { reason: "not JSON" };
        };
        match kind.as_str() {
            "event_msg" => self.read_tokens(&parsed),
            "response_item" => self.read_item(line, &parsed, &payload),
            _ => {
                self.note_facts(&parsed.payload, facts);
                LineRead::Skipped
            }
        }
    }

    fn state(&self) -> String {
        serde_json::to_string(&self.state).unwrap_or_default()
    }
}

impl Reader {
    fn note_facts(&mut self, payload: &Value, facts: &mut SessionFacts) {
        let fact = |value: Option<String>| {
            value.filter(|value| !value.is_empty()).map(|value| one_line(&clean(&value), 1000))
        };
        if let Some(model) = fact(text(payload, "model")) {
            self.state.model.clone_from(&model);
            facts.model = Some(model);
        }
        if let Some(cwd) = text(payload, "cwd") {
            self.state.cwd = cwd;
        }
        facts.cwd = facts.cwd.take().or_else(|| fact(text(payload, "cwd")));
        facts.client_version = fact(text(payload, "cli_version")).or(facts.client_version.take());
        let branch = payload.pointer("/git/branch").and_then(Value::as_str).map(str::to_owned);
        facts.branch = fact(branch).or(facts.branch.take());
    }

    /// The tokens of the call that has just ended.
    fn read_tokens(&mut self, parsed: &Line) -> LineRead {
        let Some(usage) = parsed.payload.pointer("/info/last_token_usage") else { return LineRead::Skipped };
        let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or_default().min(1 << 32);
        let (input, cached) = (count("input_tokens"), count("cached_input_tokens"));
        // The counts up to here name a call: the client repeats the line when only its limits have changed.
        let key = format!("codex {} {}", self.state.model, parsed.payload["info"]);
        let counted = MessageId::digest(key.as_bytes()).0;
        if std::mem::replace(&mut self.state.counted, counted) == counted {
            return LineRead::Skipped;
        }
        let request = Request {
            key,
            request_id: None,
            model: if self.state.model.is_empty() { "unknown".to_owned() } else { self.state.model.clone() },
            input: input.saturating_sub(cached),
            output: count("output_tokens"),
            cache_read: cached,
            cache_write: 0,
        };
        LineRead::Request { at: parsed.timestamp.parse().ok(), request: Box::new(request) }
    }

    fn read_item(&mut self, line: &[u8], parsed: &Line, kind: &str) -> LineRead {
        let payload = &parsed.payload;
        let mut message = Message::new(MessageId::digest(line), MessageKind::Answer);
        message.at = parsed.timestamp.parse::<Timestamp>().ok();
        match kind {
            "message" => {
                let said = parts(payload.get("content"));
                message.kind = match text(payload, "role").as_deref() {
                    Some("assistant") => MessageKind::Answer,
                    Some("user") if !INJECTED.iter().any(|mark| said.trim_start().starts_with(mark)) => {
                        MessageKind::Prompt
                    }
                    _ => MessageKind::Injected,
                };
                message.content = match message.kind {
                    MessageKind::Injected => clean_and_cut(&said, INJECTED_BYTES_MAX),
                    _ => cut(clean(&said)),
                };
            }
            "reasoning" => {
                message.kind = MessageKind::Thinking;
                let mut thought = parts(payload.get("summary"));
                push(&mut thought, &parts(payload.get("content")));
                message.thinking = cut(clean(&thought));
                if message.thinking.is_empty() {
                    return LineRead::Skipped;
                }
            }
            "function_call" | "custom_tool_call" | "local_shell_call" | "web_search_call"
            | "tool_search_call" => {
                self.read_call(payload, kind, &mut message);
            }
            "function_call_output"
            | "custom_tool_call_output"
            | "local_shell_call_output"
            | "tool_search_output" => {
                message.kind = MessageKind::ToolResult;
                let result = self.read_output(payload);
                if result.is_error {
                    error_words(&result.output).clone_into(&mut message.content);
                }
                message.tool_results.push(result);
            }
            "ghost_snapshot" | "compaction" | "compaction_summary" | "other" => return LineRead::Skipped,
            other => return unknown(&format!("response_item/{other}")),
        }
        LineRead::Message(Box::new(message))
    }

    fn read_call(&mut self, payload: &Value, kind: &str, message: &mut Message) {
        message.kind = MessageKind::ToolCall;
        let name = text(payload, "name").unwrap_or_else(|| kind.trim_end_matches("_call").to_owned());
        let id = text(payload, "call_id").or_else(|| text(payload, "id")).unwrap_or_default();
        // Arguments are JSON in a string, or the text itself.
        let raw = ["arguments", "input", "action"].iter().find_map(|field| match payload.get(field)? {
            Value::String(raw) => Some(raw.clone()),
            other => Some(other.to_string()),
        });
        let raw = raw.unwrap_or_default();
        let arguments: Value = json_scan::parse(raw.as_bytes()).unwrap_or_default();
        let command = command_of(&arguments);
        let patch =
            [text(&arguments, "patch"), text(&arguments, "input"), command.clone(), Some(raw.clone())];
        let patch = patch.into_iter().flatten().find(|patch| patch.contains("*** Begin Patch"));
        let files = patch.as_deref().map(patched_files).unwrap_or_default();
        let ignore = &mut self.context.ignore;
        let folder = ["workdir", "working_directory"].iter().find_map(|field| text(&arguments, field));
        ignore.enter(folder.as_deref().unwrap_or(&self.state.cwd));
        let session = arguments.get("session_id").map(Value::to_string);
        let others = named_files(&name, raw.as_bytes());
        let named = files.iter().chain(&others).map(String::as_str);
        if self.state.ignored.begin(ignore, &id, command.as_deref(), named, session.as_deref()) {
            let about = files.join(" ");
            let shown = serde_json::json!({ "about": about, "rest": LEFT_OUT }).to_string();
            message.tool_uses.push(ToolUse {
                id,
                name: clean(&name),
                input: clean_and_cut(&shown, INPUT_BYTES_MAX),
            });
            return;
        }
        if is_own_call_by_any_name(&name, command.as_deref()) {
            remember(&mut self.state.own, &id);
        }
        let query = ["query", "pattern", "path", "url"].iter().find_map(|field| text(&arguments, field));
        let argument = (!files.is_empty()).then(|| files.join(" ")).or(command).or(query).unwrap_or_default();
        let name = one_line(&clean(&name), 200);
        let argument = clean_and_cut(&argument, 2 << 10);
        message.tool_words = one_line(&format!("{name}: {argument}"), TOOL_WORDS_CHARS_MAX);
        // A patch names files from the folder that it is applied in.
        let folder = Path::new(&self.state.cwd).join(folder.unwrap_or_default());
        let place = |file: &String| without_dots(&folder.join(file)).to_string_lossy().into_owned();
        message.changed_files = files.iter().map(|file| clean_and_cut(&place(file), 1 << 10)).collect();
        message.tool_uses.push(ToolUse { id, name, input: clean_and_cut(&raw, INPUT_BYTES_MAX) });
    }

    fn read_output(&mut self, payload: &Value) -> ToolResult {
        let id = text(payload, "call_id").unwrap_or_default();
        let mut output = match payload.get("output") {
            Some(Value::String(output)) => output.clone(),
            Some(Value::Object(output)) => {
                output.get("content").and_then(Value::as_str).unwrap_or_default().to_owned()
            }
            Some(list @ Value::Array(_)) => parts(Some(list)),
            _ => payload.get("tools").map(Value::to_string).unwrap_or_default(),
        };
        // Older versions wrap it: `{"output":"…","metadata":{"exit_code":0}}`.
        let wrapped = json_scan::parse::<Value>(output.as_bytes()).ok();
        let exit_code = wrapped.as_ref().and_then(|wrapped| wrapped.pointer("/metadata/exit_code")?.as_i64());
        if let Some(inner) =
            wrapped.as_ref().filter(|_| exit_code.is_some()).and_then(|wrapped| text(wrapped, "output"))
        {
            output = inner;
        }
        let said = output.lines().take(5).find_map(|line| {
            line.strip_prefix("Process exited with code ")
                .or_else(|| line.strip_prefix("Exit code: "))?
                .trim()
                .parse()
                .ok()
        });
        let is_error = exit_code.or(said).is_some_and(|code: i64| code != 0)
            || payload.pointer("/output/success") == Some(&Value::Bool(false));
        if forget(&mut self.state.own, &id) {
            OWN_LEFT_OUT.clone_into(&mut output);
        } else if let Some(rest) = self.state.ignored.end(&self.context.ignore, &id, &output) {
            output = rest;
        }
        let (output, whole) = shorten(&output, self.context.output_bytes_max);
        ToolResult { id, output, is_error, whole }
    }
}

/// The id at the end of a file's name: what follows `rollout-` and the time.
fn id_of(stem: &str) -> &str {
    let rest = stem.strip_prefix("rollout-").unwrap_or(stem);
    let is_time = |time: &str| {
        time.bytes().zip(*b"0000-00-00T00-00-00-").all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            form => byte == form,
        })
    };
    match rest.split_at_checked("0000-00-00T00-00-00-".len()) {
        Some((time, id)) if is_time(time) && !id.is_empty() => id,
        _ => stem,
    }
}

/// The command of a call's arguments: a text, or its words.
pub(crate) fn command_of(arguments: &Value) -> Option<String> {
    ["cmd", "command"].iter().find_map(|field| match arguments.get(field)? {
        Value::String(command) => Some(command.clone()),
        Value::Array(words) => Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")),
        _ => None,
    })
}

/// The files that a patch adds, changes, moves or deletes.
pub(crate) fn patched_files(patch: &str) -> Vec<String> {
    let marks = ["*** Update File: ", "*** Add File: ", "*** Delete File: ", "*** Move to: "];
    let file =
        |line: &str| marks.iter().find_map(|mark| line.trim_end().strip_prefix(mark).map(str::to_owned));
    patch.lines().filter_map(file).collect()
}

fn remember(calls: &mut Vec<String>, id: &str) {
    if calls.len() < OPEN_CALLS_MAX {
        calls.push(id.to_owned());
    }
}

fn forget(calls: &mut Vec<String>, id: &str) -> bool {
    let before = calls.len();
    calls.retain(|call| call != id);
    calls.len() < before
}

fn text(value: &Value, name: &str) -> Option<String> {
    value.get(name)?.as_str().map(str::to_owned)
}

/// The texts of a list of parts, or a text itself.
fn parts(content: Option<&Value>) -> String {
    let mut said = String::new();
    match content {
        Some(Value::String(text)) => text.clone_into(&mut said),
        Some(Value::Array(list)) => {
            for part in list {
                match part.get("text").and_then(Value::as_str) {
                    Some(text) => push(&mut said, text),
                    None if part.get("image_url").is_some() => push(&mut said, "[image]"),
                    None => {}
                }
            }
        }
        _ => {}
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_follows_the_time_in_a_files_name() {
        for id in ["019a2b3c-4d5e-7f60-8123-456789abcdef", "short", "a-b"] {
            assert_eq!(id_of(&format!("rollout-2026-01-02T03-04-05-{id}")), id);
        }
        assert_eq!(id_of("rollout-of-something-else"), "rollout-of-something-else");
    }
}
