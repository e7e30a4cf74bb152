//! Classifies one line of a transcript and adds its events to the conversation.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

use jiff::Timestamp;
use knowledge::name::folder_name;
use knowledge::text::one_line;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::clean::{self, Unclosed};
use crate::conversation::{Conversation, Event, EventKind, ToolInput};
use crate::ignore::Ignore;
use crate::ignored_calls::IgnoredCalls;
use crate::json_scan;
use crate::plan;
use crate::question::{self, Question};
use crate::raw_json::{Block, blocks, flag, string};
use crate::shell;

const OUTPUT_BYTES_MAX: usize = 12 << 10;
/// A subagent's report is all that is read of its work.
const REPORT_BYTES_MAX: usize = 32 << 10;
const ASSISTANT_BYTES_MAX: usize = 64 << 10;
/// A commit message or the text of a pull request is part of a command.
const COMMAND_BYTES_MAX: usize = 8 << 10;
const EDIT_BYTES_MAX: usize = 2 << 10;
const RECALLED_BYTES_MAX: usize = 16 << 10;
const RECALLED_COUNT_MAX: usize = 64;
/// When everything but human words has grown to this many bytes, later texts are cut to a line each.
const KEPT_BYTES_MAX: usize = 48 << 20;
const KIND_BYTES_MAX: usize = 64;
/// How a message begins that a subagent or a command in the background has ended.
const NOTIFICATION: &str = "<task-notification>";

/// The class of a line.
pub(crate) enum LineOutcome {
    Conversation { uuid: String },
    Own,
    Known,
    Skipped { kind: String },
    Malformed { reason: &'static str },
}

/// Reads the lines of one transcript, and the state that is needed from line to line.
#[derive(Default)]
pub(crate) struct LineReader {
    /// Ids of calls of nugget's tools, whose results are nugget's too.
    own_calls: HashSet<String>,
    /// The id of the last command that a person ran with `!`; its output is on a later line.
    last_human_command: Option<String>,
    kept_bytes: usize,
    /// The project's `.nuggetignore`, loaded at the first line that names the folder.
    ignore: Ignore,
    ignored_calls: IgnoredCalls,
    /// What the person was asked, by the id of the call.
    questions: HashMap<String, Vec<Question>>,
    /// The plans that the model asked the person to approve, by call.
    plans: HashMap<String, String>,
    /// Ids of calls of subagents.
    agent_calls: HashSet<String>,
    /// Ids of calls of other servers' tools.
    server_calls: HashSet<String>,
    /// Hashes of the notifications that were read.
    notifications: HashSet<u64>,
}

/// The fields of a line that are used. All are raw, so that a field of an unexpected type costs only
/// that field and not the line.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    #[serde(borrow)]
    uuid: Option<&'a RawValue>,
    #[serde(borrow)]
    timestamp: Option<&'a RawValue>,
    #[serde(borrow)]
    session_id: Option<&'a RawValue>,
    #[serde(borrow)]
    cwd: Option<&'a RawValue>,
    #[serde(borrow)]
    is_sidechain: Option<&'a RawValue>,
    #[serde(borrow)]
    is_meta: Option<&'a RawValue>,
    #[serde(borrow)]
    is_compact_summary: Option<&'a RawValue>,
    #[serde(borrow)]
    repeats_compact_summary: Option<&'a RawValue>,
    #[serde(borrow)]
    is_api_error_message: Option<&'a RawValue>,
    #[serde(borrow)]
    origin: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt_source: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_use_result: Option<&'a RawValue>,
    #[serde(borrow)]
    attachment: Option<&'a RawValue>,
}

impl LineReader {
    /// Classifies a line and adds its events to the conversation.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        is_known: &mut dyn FnMut(&str) -> bool,
        ignore: &dyn Fn(&Path) -> Ignore,
        conversation: &mut Conversation,
    ) -> LineOutcome {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return skipped("blank");
        }
        let Some(kind) = json_scan::value_of(bytes, "type").and_then(json_scan::text) else {
            return LineOutcome::Malformed { reason: "no JSON object with a type" };
        };
        let kind = match kind.as_str() {
            "user" | "assistant" => kind,
            "attachment" => match sub_kind(bytes, "attachment", "type") {
                Some(sub) if sub.starts_with("hook_") || sub == "queued_command" => {
                    format!("attachment/{sub}")
                }
                sub => return skipped(&format!("attachment/{}", sub.unwrap_or_default())),
            },
            "system" => {
                let subtype =
                    json_scan::value_of(bytes, "subtype").and_then(json_scan::text).unwrap_or_default();
                return skipped(&format!("system/{subtype}"));
            }
            other => return skipped(other),
        };
        let Ok(text) = std::str::from_utf8(bytes) else {
            return LineOutcome::Malformed { reason: "not UTF-8" };
        };
        let Ok(line) = serde_json::from_str::<Line<'_>>(text) else {
            return LineOutcome::Malformed { reason: "not JSON" };
        };
        let Some(uuid) = string(line.uuid).filter(|uuid| !uuid.is_empty()) else {
            return LineOutcome::Malformed { reason: "no uuid" };
        };
        // The first folder is where the session began; a later one may be the target of a `cd`.
        if let Some(cwd) = string(line.cwd).filter(|cwd| !cwd.is_empty()) {
            if conversation.cwd.is_none() {
                self.ignore = ignore(Path::new(cwd.as_ref()));
                let cwd = clean::clean(&cwd);
                conversation.project = folder_name(&cwd).map(|name| one_line(name, 100));
                conversation.cwd = Some(cwd);
            }
            self.ignore.enter(&cwd);
        }
        let known = is_known(&uuid);
        let content = self.read(&kind, &line, &uuid);
        // Recalled texts are collected from known lines too: the answer may be before the new part, and
        // its repetition within it.
        let told = [
            (&mut conversation.recalled, content.recalled),
            (&mut conversation.hook_texts, content.hook_texts),
        ];
        for (kept, new) in told {
            for text in new {
                if kept.len() < RECALLED_COUNT_MAX && !kept.contains(&text) {
                    kept.push(text);
                }
            }
        }
        if let Some(id) = string(line.session_id).filter(|id| !id.is_empty()) {
            conversation.session_id = id.into_owned();
        }
        if known {
            return LineOutcome::Known;
        }
        if content.events.is_empty() {
            return content.if_empty;
        }
        let at = string(line.timestamp).and_then(|at| at.parse::<Timestamp>().ok());
        if let Some(at) = at {
            conversation.started = Some(conversation.started.map_or(at, |first| first.min(at)));
            conversation.ended = Some(conversation.ended.map_or(at, |last| last.max(at)));
        }
        let sidechain = content.by_subagent || flag(line.is_sidechain);
        conversation.events.extend(content.events.into_iter().map(|kind| Event {
            line: uuid.clone().into_owned(),
            at,
            sidechain,
            kind,
        }));
        LineOutcome::Conversation { uuid: uuid.into_owned() }
    }

    /// Whether no session of the project may be captured.
    pub(crate) fn is_ignored(&self) -> bool {
        self.ignore.covers_everything()
    }

    fn read(&mut self, kind: &str, line: &Line<'_>, uuid: &str) -> LineContent {
        match kind {
            "user" => self.read_user(line, uuid),
            "assistant" => self.read_assistant(line),
            "attachment/queued_command" => self.read_queued(line),
            _ => read_hook(line),
        }
    }

    fn read_user(&mut self, line: &Line<'_>, uuid: &str) -> LineContent {
        let content =
            line.message.and_then(|message| json_scan::value_of(message.get().as_bytes(), "content"));
        let blocks = blocks(content);
        let results: Vec<_> = blocks
            .iter()
            .filter(|block| string(block.kind).is_some_and(|kind| kind == "tool_result"))
            .collect();
        if !results.is_empty() {
            let mut read = LineContent::empty(LineOutcome::Own);
            for block in results {
                self.read_result(line, block, &mut read);
            }
            for beside in blocks.iter().filter_map(|block| string(block.text)) {
                read.events.extend(self.read_said(line, uuid, &beside).events);
            }
            return read;
        }
        let mut text = content.and_then(json_scan::text).unwrap_or_default();
        for block in &blocks {
            if let Some(more) = string(block.text) {
                text = if text.is_empty() { more.into_owned() } else { format!("{text}\n\n{more}") };
            }
        }
        self.read_said(line, uuid, &text)
    }

    /// Reads the text of a `user` line: what a person typed, or what the client wrote in its place.
    fn read_said(&mut self, line: &Line<'_>, uuid: &str, text: &str) -> LineContent {
        if flag(line.is_compact_summary) || flag(line.repeats_compact_summary) {
            return LineContent::empty(skipped("user/compact_summary"));
        }
        let start = text.trim_start();
        if let Some(command) = typed_command(start) {
            self.last_human_command = Some(uuid.to_owned());
            // Also of a command that asks nugget: it may print a file as well.
            let is_ignored = self.ignored_calls.begin(&self.ignore, uuid, Some(command), None, None);
            if is_own_call("Bash", Some(command)) {
                self.own_calls.insert(uuid.to_owned());
                return LineContent::empty(LineOutcome::Own);
            }
            let shown = if is_ignored { self.ignore.without_content(command) } else { None };
            let command = clean::clean_and_cut(shown.as_deref().unwrap_or(command), COMMAND_BYTES_MAX);
            return LineContent::one(EventKind::ToolCall {
                id: uuid.to_owned(),
                name: "Bash".to_owned(),
                summary: one_line(&format!("Bash: {command}"), 200),
                input: ToolInput { command: Some(command), ..ToolInput::default() },
                by_human: true,
            });
        }
        if let Some(mut output) = command_output(start) {
            let Some(id) = self.last_human_command.take() else {
                return LineContent::empty(skipped("user/bash_output"));
            };
            if let Some(rest) = self.ignored_calls.end(&self.ignore, &id, &output) {
                output = rest;
            }
            if self.own_calls.contains(&id) {
                let recalled = vec![clean::clean_and_cut(&output, RECALLED_BYTES_MAX)];
                return LineContent { recalled, ..LineContent::empty(LineOutcome::Own) };
            }
            let what = EventKind::ToolResult {
                id,
                ok: !output.contains("Exit code "),
                exit_code: None,
                output: self.output(output.trim(), OUTPUT_BYTES_MAX),
            };
            return LineContent::one(what);
        }
        if start.starts_with(NOTIFICATION) {
            return self.read_notification(start);
        }
        if let Some(words) = command_words(start).filter(|_| nonhuman_origin(line).is_none()) {
            return human_content(&words);
        }
        if let Some(kind) = kind_unless_human(line, start) {
            return LineContent::empty(skipped(kind));
        }
        human_content(text)
    }

    /// Reads what a subagent or a command in the background reported. The client may write it twice: when it arrives
    /// while the model works, and when the model gets it.
    fn read_notification(&mut self, text: &str) -> LineContent {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        if !self.notifications.insert(hasher.finish()) {
            return LineContent::empty(skipped("user/task_notification"));
        }
        let summary = clean::element_text(text, "summary").unwrap_or_default().trim();
        // The report may contain such an element itself.
        let result = text.split_once("<result>").and_then(|(_, rest)| rest.rsplit_once("</result>"));
        let report = [summary, result.map(|(result, _)| result.trim()).unwrap_or_default()].join("\n");
        let mut read = LineContent::empty(skipped("user/task_notification"));
        read.by_subagent = true;
        self.push_assistant(report.trim(), &mut read);
        read
    }

    /// Reads what a person typed while the model worked, or what a subagent reported, which the client stores as an
    /// attachment.
    fn read_queued(&mut self, line: &Line<'_>) -> LineContent {
        let field = |name: &str| {
            line.attachment.and_then(|attachment| json_scan::value_of(attachment.get().as_bytes(), name))
        };
        let is_typed = field("commandMode").and_then(json_scan::text).is_none_or(|mode| mode == "prompt");
        let mut text = field("prompt").and_then(json_scan::text).unwrap_or_default();
        for block in blocks(field("prompt")) {
            text.push_str(&string(block.text).unwrap_or_default());
        }
        if text.trim_start().starts_with(NOTIFICATION) {
            return self.read_notification(&text);
        }
        if !is_typed || flag(line.is_meta) || kind_unless_human(line, text.trim_start()).is_some() {
            return LineContent::empty(skipped("attachment/queued_command"));
        }
        human_content(&text)
    }

    fn read_result(&mut self, line: &Line<'_>, block: &Block<'_>, read: &mut LineContent) {
        let id = string(block.tool_use_id).unwrap_or_default();
        let mut text =
            block.content.and_then(|content| json_scan::text(content.get().as_bytes())).unwrap_or_default();
        for part in blocks(block.content.map(|content| content.get().as_bytes())) {
            if let Some(more) = string(part.text) {
                if !text.is_empty() {
                    text.push('\n');
                }
                text.push_str(&more);
            }
        }
        if self.own_calls.contains(id.as_ref()) {
            let rest = self.ignored_calls.end(&self.ignore, &id, &text);
            read.recalled.push(clean::clean_and_cut(rest.as_deref().unwrap_or(&text), RECALLED_BYTES_MAX));
            return;
        }
        let failed = flag(block.is_error);
        if failed && text.contains(HELD) {
            read.recalled.push(clean::clean_and_cut(&text, RECALLED_BYTES_MAX));
            return;
        }
        if self.read_answers(&id, line.tool_use_result, &text, read)
            || self.read_decision_on_plan(&id, failed, &text, read)
        {
            return;
        }
        // A refusal contains what the person said instead: the most informative words of a session. Of a server's tool the
        // client records an error in the same form, and it may say anything.
        if let Some(words) =
            refusal_words(&text).filter(|_| failed && !self.server_calls.contains(id.as_ref()))
        {
            read.events.push(EventKind::Human { text: clean::clean(words) });
            return;
        }
        if let Some(rest) = self.ignored_calls.end(&self.ignore, &id, &text) {
            text = rest;
        }
        let interrupted = line.tool_use_result.is_some_and(|result| {
            json_scan::value_of(result.get().as_bytes(), "interrupted").is_some_and(|value| value == b"true")
        });
        let exit_code = exit_code(&text);
        let text = text.strip_prefix("<tool_use_error>").unwrap_or(&text);
        let text = text.strip_suffix("</tool_use_error>").unwrap_or(text);
        let bytes_max =
            if self.agent_calls.contains(id.as_ref()) { REPORT_BYTES_MAX } else { OUTPUT_BYTES_MAX };
        read.events.push(EventKind::ToolResult {
            id: id.into_owned(),
            ok: !failed && !interrupted,
            exit_code: if failed { exit_code } else { None },
            output: self.output(text, bytes_max),
        });
    }

    /// Reads what the person answered to the model's questions; false if the call asked the person nothing.
    fn read_answers(&self, id: &str, result: Option<&RawValue>, text: &str, read: &mut LineContent) -> bool {
        let Some(questions) = self.questions.get(id) else { return false };
        let result = result.map(|result| result.get().as_bytes());
        let choices = question::choices(questions, result, text);
        let words = refusal_words(text);
        if text.starts_with("<tool_use_error>") {
            // The person never saw the questions.
            read.if_empty = skipped("user/question_error");
        } else if choices.is_empty() {
            // What the person says instead, there or next, is about the questions.
            let subject = question::asked(questions);
            read.events.push(EventKind::ToolCall {
                id: id.to_owned(),
                name: question::TOOL.to_owned(),
                summary: one_line(&format!("{}: {subject}", question::TOOL), 200),
                input: ToolInput { subject: Some(subject), ..ToolInput::default() },
                by_human: false,
            });
        }
        read.events.extend(choices);
        read.events.extend(words.map(|words| EventKind::Human { text: clean::clean(words) }));
        true
    }

    /// Reads whether the person approved a plan, and of a refused one what they said; false if the call was about none.
    fn read_decision_on_plan(&mut self, id: &str, failed: bool, text: &str, read: &mut LineContent) -> bool {
        let Some(plan) = self.plans.remove(id) else { return false };
        read.if_empty = skipped("user/plan");
        if text.starts_with("<tool_use_error>") {
            // The person never saw the plan.
            return true;
        }
        if !failed {
            let approved = plan::approved_in(text).map(|plan| self.output(plan, ASSISTANT_BYTES_MAX));
            let plan = approved.unwrap_or(plan);
            if !plan.is_empty() {
                read.events.push(EventKind::Human { text: plan::as_message(&plan) });
            }
            return true;
        }
        read.events.push(EventKind::ToolCall {
            id: id.to_owned(),
            name: plan::TOOL.to_owned(),
            summary: one_line(&format!("{}: {plan}", plan::TOOL), 200),
            input: ToolInput {
                subject: plan.lines().next().map(str::to_owned),
                new: Some(plan),
                ..ToolInput::default()
            },
            by_human: false,
        });
        read.events.extend(refusal_words(text).map(|words| EventKind::Human { text: clean::clean(words) }));
        true
    }

    fn read_assistant(&mut self, line: &Line<'_>) -> LineContent {
        if flag(line.is_api_error_message) {
            return LineContent::empty(skipped("assistant/api_error"));
        }
        let content =
            line.message.and_then(|message| json_scan::value_of(message.get().as_bytes(), "content"));
        let mut read = LineContent::empty(skipped("assistant/empty"));
        if let Some(text) = content.and_then(json_scan::text) {
            self.push_assistant(&text, &mut read);
        }
        for block in blocks(content) {
            match string(block.kind).as_deref() {
                Some("text") => self.push_assistant(&string(block.text).unwrap_or_default(), &mut read),
                Some("tool_use") => self.read_call(&block, &mut read),
                Some("thinking" | "redacted_thinking") => {
                    if let LineOutcome::Skipped { kind } = &mut read.if_empty {
                        *kind = "assistant/thinking".to_owned();
                    }
                }
                _ => {}
            }
        }
        read
    }

    fn push_assistant(&mut self, text: &str, read: &mut LineContent) {
        let text = clean::clean_and_cut(text, self.allowed_bytes(ASSISTANT_BYTES_MAX));
        self.kept_bytes += text.len();
        if !text.is_empty() {
            read.events.push(EventKind::Assistant { text });
        }
    }

    fn read_call(&mut self, block: &Block<'_>, read: &mut LineContent) {
        let id = string(block.id).unwrap_or_default();
        let name = string(block.name).unwrap_or_default();
        let raw_input = block.input.map(|input| input.get().as_bytes());
        let raw_field = |name: &str| {
            raw_input.and_then(|input| json_scan::value_of(input, name)).and_then(json_scan::text)
        };
        let field =
            |name: &str, bytes_max: usize| raw_field(name).map(|text| clean::clean_and_cut(&text, bytes_max));
        let raw_command = raw_field("command");
        let command = field("command", COMMAND_BYTES_MAX);
        if is_own_call(&name, command.as_deref()) {
            // It may print a file as well.
            self.ignored_calls.begin(&self.ignore, &id, raw_command.as_deref(), None, None);
            self.own_calls.insert(id.into_owned());
            read.if_empty = LineOutcome::Own;
            return;
        }
        // The questions are kept with their answers.
        if name == question::TOOL
            && let Some(questions) =
                raw_input.map(question::questions).filter(|questions| !questions.is_empty())
        {
            self.questions.insert(id.into_owned(), questions);
            read.if_empty = skipped("assistant/question");
            return;
        }
        // A plan is kept with what the person decided.
        if name == plan::TOOL {
            let plan = field("plan", self.allowed_bytes(ASSISTANT_BYTES_MAX)).unwrap_or_default();
            self.kept_bytes += plan.len();
            self.plans.insert(id.into_owned(), plan);
            read.if_empty = skipped("assistant/plan");
            return;
        }
        if matches!(name.as_ref(), "Task" | "Agent") {
            self.agent_calls.insert(id.clone().into_owned());
        }
        if name.starts_with("mcp__") {
            self.server_calls.insert(id.clone().into_owned());
        }
        let subject = ["pattern", "query", "url", "description", "prompt", "skill", "subject"];
        let mut input = ToolInput {
            file: FILE_FIELDS.iter().find_map(|name| field(name, 1 << 10)),
            old: field("old_string", EDIT_BYTES_MAX),
            new: ["new_string", "content", "new_source"].iter().find_map(|name| field(name, EDIT_BYTES_MAX)),
            subject: subject.iter().find_map(|name| field(name, EDIT_BYTES_MAX)),
            command,
        };
        let files = raw_input.map(|input| named_files(&name, input)).unwrap_or_default();
        let background = BACKGROUND_FIELDS.iter().find_map(|name| raw_field(name));
        let (command, files) = (raw_command.as_deref(), files.iter().map(String::as_str));
        if self.ignored_calls.begin(&self.ignore, &id, command, files, background.as_deref()) {
            (input.old, input.new, input.subject) = (None, None, None);
            // What the call is about, without what it would write.
            let shown = command.map(|command| self.ignore.without_content(command).unwrap_or_default());
            input.command = shown.map(|command| clean::clean_and_cut(&command, COMMAND_BYTES_MAX));
        }
        let argument = input.command.as_deref().or(input.file.as_deref()).or(input.subject.as_deref());
        let summary = one_line(&format!("{name}: {}", argument.unwrap_or_default()), 200);
        self.kept_bytes += [&input.command, &input.file, &input.old, &input.new, &input.subject]
            .into_iter()
            .flatten()
            .map(String::len)
            .sum::<usize>();
        let name = one_line(&clean::clean(&name), 200);
        read.events.push(EventKind::ToolCall { id: id.into_owned(), name, summary, input, by_human: false });
    }

    fn output(&mut self, text: &str, bytes_max: usize) -> String {
        let output = clean::clean_and_cut(text, self.allowed_bytes(bytes_max));
        self.kept_bytes += output.len();
        output
    }

    fn allowed_bytes(&self, wanted: usize) -> usize {
        if self.kept_bytes < KEPT_BYTES_MAX { wanted } else { 240 }
    }
}

/// The content of a line, and its class if it has no events.
struct LineContent {
    events: Vec<EventKind>,
    recalled: Vec<String>,
    /// What hooks other than nugget's added to the session.
    hook_texts: Vec<String>,
    /// Whether a subagent did it, although the line is in the transcript of the session.
    by_subagent: bool,
    if_empty: LineOutcome,
}

impl LineContent {
    fn empty(if_empty: LineOutcome) -> Self {
        let (events, recalled, hook_texts) = (Vec::new(), Vec::new(), Vec::new());
        Self { events, recalled, hook_texts, by_subagent: false, if_empty }
    }

    fn one(event: EventKind) -> Self {
        Self { events: vec![event], ..Self::empty(skipped("user/empty")) }
    }
}

fn human_content(text: &str) -> LineContent {
    let text = typed_text(text);
    if text.is_empty() {
        LineContent::empty(skipped("user/empty"))
    } else {
        LineContent::one(EventKind::Human { text })
    }
}

/// A person's words, cleaned, without what an editor added to them.
pub fn typed_text(text: &str) -> String {
    let mut text = Cow::Borrowed(text);
    // What an editor adds to a person's words: the open file, the selected lines.
    for element in ["ide_opened_file", "ide_selection", "ide_diagnostics"] {
        if text.contains(element) {
            text = Cow::Owned(clean::without_element(&text, element, Unclosed::Keep));
        }
    }
    clean::clean(&text)
}

/// The kind of a `user` line with this text, if it was not written by a person.
pub fn nonhuman_kind(line: &[u8], text: &str) -> Option<&'static str> {
    let start = text.trim_start();
    let line = serde_json::from_slice(line).ok()?;
    if start.starts_with("<bash-") {
        return Some("user/command");
    }
    if command_words(start).is_some() {
        return nonhuman_origin(&line);
    }
    kind_unless_human(&line, start)
}

/// What a person typed after the name of a slash command, with the name; `None` if nothing.
fn command_words(start: &str) -> Option<String> {
    let name = clean::element_text(start, "command-name").filter(|_| start.starts_with("<command-"))?;
    let words = clean::element_text(start, "command-args")?.trim();
    words.contains(char::is_alphabetic).then(|| format!("{} {words}", name.trim()))
}

/// The kind under which the line is counted, if it was not written by a person.
fn kind_unless_human(line: &Line<'_>, start: &str) -> Option<&'static str> {
    const ELEMENTS: [(&str, &str); 7] = [
        ("<command-name>", "user/command"),
        ("<command-message>", "user/command"),
        ("<command-args>", "user/command"),
        ("<local-command-", "user/local_command"),
        (NOTIFICATION, "user/task_notification"),
        ("[Request interrupted by user", "user/interrupted"),
        ("This session is being continued from a previous conversation", "user/compact_summary"),
    ];
    let element = ELEMENTS.iter().find(|(mark, _)| start.starts_with(mark));
    element.map(|(_, kind)| *kind).or_else(|| nonhuman_origin(line))
}

/// The kind under which the line is counted, if the client says that no person wrote it.
fn nonhuman_origin(line: &Line<'_>) -> Option<&'static str> {
    let origin = line
        .origin
        .and_then(|origin| json_scan::value_of(origin.get().as_bytes(), "kind"))
        .and_then(json_scan::text);
    match origin.as_deref() {
        Some("human") | None => {}
        Some("task-notification") => return Some("user/task_notification"),
        Some(_) => return Some("user/not_human"),
    }
    if string(line.prompt_source).is_some_and(|source| source == "system") {
        return Some("user/not_human");
    }
    if flag(line.is_meta) {
        return Some("user/meta");
    }
    // In a subagent's transcript the prompt was written by the model that called it.
    flag(line.is_sidechain).then_some("user/subagent_prompt")
}

/// Reads the output of a hook, nugget's or another's: it was not learned in this session.
fn read_hook(line: &Line<'_>) -> LineContent {
    let mut read = LineContent::empty(LineOutcome::Own);
    let content =
        line.attachment.and_then(|attachment| json_scan::value_of(attachment.get().as_bytes(), "content"));
    let texts = content.and_then(|content| {
        let one = json_scan::text(content).map(|text| vec![text]);
        one.or_else(|| json_scan::parse::<Vec<String>>(content).ok())
    });
    let texts = texts
        .into_iter()
        .flatten()
        .filter(|text| !text.trim().is_empty())
        .map(|text| clean::clean_and_cut(&text, RECALLED_BYTES_MAX));
    // Each text of nugget's hooks names nugget or its tool.
    (read.recalled, read.hook_texts) =
        texts.partition(|text| text.contains("nugget") || text.contains("get_relevant_context"));
    read
}

/// The fields of a call that may hold the path of a file.
pub const FILE_FIELDS: [&str; 3] = ["file_path", "notebook_path", "path"];

/// The files that a call names. Of a tool of another server every text may be one: `{"paths":["a","b"]}`.
pub fn named_files(tool: &str, input: &[u8]) -> Vec<String> {
    let mut files = Vec::new();
    if tool.contains("__") {
        let mut values = vec![json_scan::parse(input).unwrap_or_default()];
        while let Some(value) = values.pop() {
            match value {
                Value::String(text) => files.push(text.trim_start_matches("file://").to_owned()),
                Value::Array(list) => values.extend(list),
                Value::Object(fields) => values.extend(fields.into_values()),
                _ => {}
            }
        }
    } else {
        let field = |name: &&str| json_scan::value_of(input, name).and_then(json_scan::text);
        files.extend(FILE_FIELDS.iter().find_map(field));
    }
    files
}

/// The fields of a call that may hold the id of a command in the background.
pub const BACKGROUND_FIELDS: [&str; 3] = ["bash_id", "task_id", "shell_id"];

/// The command in a message, if a person ran it with `!`.
pub fn typed_command(text: &str) -> Option<&str> {
    let start = text.trim_start();
    clean::element_text(start, "bash-input").filter(|_| start.starts_with("<bash-input>"))
}

/// What a command printed that a person ran with `!`, if the message has that.
pub fn command_output(text: &str) -> Option<String> {
    let start = text.trim_start();
    (start.starts_with("<bash-stdout>") || start.starts_with("<bash-stderr>")).then(|| {
        ["bash-stdout", "bash-stderr"]
            .map(|element| clean::element_text(start, element).unwrap_or_default())
            .join("\n")
    })
}

/// The tools of nugget's server. What they return was known before, and is not learned again. What they are given waits
/// for review already. The first two have names of their own, whatever the server is called.
pub const OWN_TOOLS: [&str; 9] = [
    "get_relevant_context",
    "search_sessions",
    "create_note",
    "add_link",
    "edit_note",
    "search_notes",
    "remember",
    "recall",
    "forget",
];

/// How the guard's refusal of an action begins. The client records it as the result of the tool.
pub const HELD: &str = "nugget holds this back once";

/// Commands of nugget that tell nothing of what it knows.
const SILENT: [&str; 8] = ["config", "doctor", "index", "init", "install", "spend", "status", "uninstall"];
/// Parts of a command that print nothing, or what the model has typed.
const QUIET: [&str; 15] = [
    ":", "[", "cd", "done", "echo", "export", "fi", "popd", "printf", "pushd", "set", "sleep", "test",
    "true", "}",
];
/// What may stand before a program.
const BEFORE_PROGRAM: [&str; 17] = [
    "!", "builtin", "command", "do", "elif", "else", "env", "exec", "if", "nice", "nohup", "sudo", "then",
    "time", "timeout", "while", "{",
];

/// Whether a command line asks nugget: whether any part of it is told what nugget knows, or no part is another program.
fn asks_nugget(command: &str) -> bool {
    if !command.contains("nugget") {
        return false;
    }
    let (mut is_nugget, mut has_others) = (false, false);
    for (words, is_piped) in shell::parts(command) {
        let is_before = |word: &&str| {
            BEFORE_PROGRAM.contains(word)
                || word.contains('=')
                || word.starts_with(|c: char| c == '-' || c.is_ascii_digit())
        };
        let mut words = words.iter().map(String::as_str).skip_while(is_before);
        match words.next().and_then(|program| program.rsplit('/').next()) {
            Some("nugget") => {
                is_nugget = true;
                if words.find(|word| !word.starts_with('-')).is_some_and(|word| !SILENT.contains(&word)) {
                    return true;
                }
            }
            // Behind nugget a filter prints parts of its answer.
            Some(program) => has_others |= !is_piped && !QUIET.contains(&program),
            None => {}
        }
    }
    is_nugget && !has_others
}

/// Whether a call asks nugget: one of its tools, or its command line.
pub fn is_own_call(name: &str, command: Option<&str>) -> bool {
    let is_tool =
        name.strip_prefix("mcp__").and_then(|name| name.rsplit_once("__")).is_some_and(|(server, tool)| {
            OWN_TOOLS[..2].contains(&tool) || server.contains("nugget") && OWN_TOOLS.contains(&tool)
        });
    is_tool || command.is_some_and(asks_nugget)
}

/// As [`is_own_call`], where a tool may be named without its server, as by Codex.
pub fn is_own_call_by_any_name(name: &str, command: Option<&str>) -> bool {
    OWN_TOOLS.contains(&name) || is_own_call(name, command)
}

/// What the person typed when refusing a call; `None` if nothing, or if the words are the client's.
fn refusal_words(text: &str) -> Option<&str> {
    let (_, words) = text.strip_prefix("The user doesn't want to")?.split_once("the user said:\n")?;
    let words = words.split("\n\nNote: The user's next message may contain a correction").next()?.trim();
    (!words.is_empty() && !words.starts_with(question::UNFINISHED)).then_some(words)
}

fn exit_code(text: &str) -> Option<i32> {
    let rest = text.strip_prefix("Error: ").unwrap_or(text).strip_prefix("Exit code ")?;
    rest.split(|c: char| !c.is_ascii_digit() && c != '-').next()?.parse().ok()
}

fn sub_kind(bytes: &[u8], outer: &str, inner: &str) -> Option<String> {
    json_scan::value_of(json_scan::value_of(bytes, outer)?, inner).and_then(json_scan::text)
}

/// The class of a skipped line. Kinds come from the file, so long or unusual ones become `other`.
fn skipped(kind: &str) -> LineOutcome {
    let is_plain = kind.len() <= KIND_BYTES_MAX
        && kind.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/' | '.'));
    LineOutcome::Skipped { kind: if is_plain { kind.to_owned() } else { "other".to_owned() } }
}
