//! A session as a person reads it: a row of a list, a conversation as text, markdown or a page.

use ::archive::{MessageKind, Session, ShownMessage, ShownTool};
use jiff::Timestamp;
use queue::{Capture, State};

use crate::output::{self, counted, safe, thousands};

/// How many characters of a tool's input and output are shown in a conversation.
const TOOL_CHARS_MAX: usize = 2_000;
/// How many characters of a call are shown on its line.
const CALL_CHARS_MAX: usize = 100;
/// How many cells of a branch's name are shown.
const BRANCH_CELLS_MAX: usize = 24;
/// How many characters of a first prompt are shown.
const SUBJECT_CHARS_MAX: usize = 120;

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Markdown,
    Html,
    Json,
}

/// Which parts of a conversation are shown.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct Shown {
    /// Show what tools were given and what they returned
    #[arg(long)]
    tools: bool,
    /// Show what the model thought
    #[arg(long)]
    thinking: bool,
}

impl Shown {
    /// The message with what is to be shown of it; `None` if that is nothing.
    pub(crate) fn select(self, mut message: ShownMessage) -> Option<ShownMessage> {
        if !self.thinking {
            message.thinking.clear();
        }
        if !self.tools {
            for tool in &mut message.tools {
                tool.output = None;
                tool.input = call_line(tool);
            }
        }
        let is_noise =
            matches!(message.kind, MessageKind::ToolResult | MessageKind::Injected | MessageKind::System);
        if is_noise && !self.tools {
            return None;
        }
        let is_empty =
            message.content.trim().is_empty() && message.thinking.is_empty() && message.tools.is_empty();
        (!is_empty).then_some(message)
    }
}

/// What a call was about, in a line: the command, the file, the pattern.
fn call_line(tool: &ShownTool) -> String {
    let input: serde_json::Value = serde_json::from_str(&tool.input).unwrap_or_default();
    let telling = ["command", "file_path", "path", "pattern", "query", "url", "description", "prompt"];
    let text = telling.iter().find_map(|name| input[name].as_str()).unwrap_or(&tool.input);
    knowledge::text::one_line(text, CALL_CHARS_MAX)
}

/// The part of a session's id that people type.
pub(crate) fn short_id(session: &Session) -> String {
    short(&session.id)
}

/// As much of an id as tells it from others: of one that begins with its time, the whole time.
pub(crate) fn short(id: &str) -> String {
    let chars = |id: &str| match id.as_bytes().get(14) {
        Some(b'7') if id.len() == 36 => 13,
        _ if id.starts_with("agent-") => 14,
        _ if id.starts_with("20") && id.contains('T') => 36,
        _ => 8,
    };
    let parts: Vec<&str> = id.split('/').map(|part| cut(part, chars(part))).collect();
    safe(&parts.join("/"))
}

fn cut(text: &str, chars: usize) -> &str {
    text.char_indices().nth(chars).map_or(text, |(at, _)| &text[..at])
}

pub(crate) fn ago(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or_else(|| "?".to_owned(), |at| output::age(at, now))
}

pub(crate) fn ago_in_words(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or_else(|| "? ago".to_owned(), |at| output::ago(at, now))
}

/// What a session was about, in a line.
pub(crate) fn subject(session: &Session) -> String {
    let text = session.title.as_deref().or(session.first_prompt.as_deref()).unwrap_or("(no prompt)");
    knowledge::text::one_line(&safe(text), SUBJECT_CHARS_MAX)
}

/// The name of the session's project.
pub(crate) fn project(session: &Session) -> String {
    let name = session.project_name();
    safe(if name.is_empty() { "?" } else { name })
}

pub(crate) fn dollars(microdollars: u64) -> String {
    match microdollars {
        0 => String::new(),
        1..=4_999 => "<$0.01".to_owned(),
        _ => format!("${:.2}", microdollars as f64 / 1e6),
    }
}

/// A number of tokens in a few characters: `950`, `12k`, `3.4M`.
pub(crate) fn short_count(count: u64) -> String {
    match count {
        0..=9_999 => thousands(count),
        10_000..=999_999 => format!("{}k", count / 1_000),
        _ => format!("{:.1}M", count as f64 / 1e6),
    }
}

/// A session in two lines.
pub(crate) fn entry(session: &Session, capture: Option<&Capture>, now: Timestamp) -> String {
    let bold = anstyle::Style::new().bold();
    let dim = anstyle::Style::new().dimmed();
    let mut facts = vec![project(session)];
    // What came of it and its cost are not what a narrow terminal cuts off.
    facts.extend(capture.map(outcome));
    facts.extend(Some(dollars(session.cost_microdollars)).filter(|cost| !cost.is_empty()));
    facts.extend(session.branch.as_deref().map(|branch| output::fit(&safe(branch), BRANCH_CELLS_MAX)));
    facts.push(format!("{}, {}", counted(session.prompts, "prompt"), counted(session.answers, "answer")));
    let tools = if session.tool_uses == 1 { "tool" } else { "tools" };
    facts.push(format!("{} {tools}", short_count(session.tool_uses)));
    facts.push(format!("{} tokens", short_count(tokens(session))));
    let width = output::terminal_width();
    let id = short_id(session);
    let line = format!("{} · {}", ago_in_words(session.ended, now), facts.join(" · "));
    format!(
        "{bold}{id}{bold:#}  {dim}{}{dim:#}\n  {}\n",
        output::fit(&line, width.saturating_sub(output::width(&id) + 2)),
        output::fit(&subject(session), width.saturating_sub(2))
    )
}

pub(crate) const ROW_HEAD: [&str; 11] = [
    "SESSION",
    "AGO",
    "PROJECT",
    "BRANCH",
    "PROMPTS",
    "ANSWERS",
    "TOOLS",
    "TOKENS",
    "COST",
    "CAPTURE",
    "FIRST PROMPT",
];

fn tokens(session: &Session) -> u64 {
    let tokens = &session.tokens;
    tokens.input + tokens.output + tokens.cache_read + tokens.cache_write
}

/// A session in one line, for a pipe.
pub(crate) fn row(session: &Session, capture: Option<&Capture>, now: Timestamp) -> Vec<String> {
    vec![
        short_id(session),
        ago(session.ended, now),
        project(session),
        session.branch.as_deref().map(safe).unwrap_or_default(),
        thousands(session.prompts),
        thousands(session.answers),
        thousands(session.tool_uses),
        short_count(tokens(session)),
        dollars(session.cost_microdollars),
        capture.map(outcome).unwrap_or_default(),
        subject(session),
    ]
}

/// What came of a session's capture.
pub(crate) fn outcome(capture: &Capture) -> String {
    match capture.state {
        State::Done => counted(u64::from(capture.units), "unit"),
        State::Nothing => "nothing".to_owned(),
        State::Dead => "failed".to_owned(),
        State::Queued | State::Running | State::Retrying => "waits".to_owned(),
    }
}

/// What a session is, in a few lines.
fn facts(session: &Session) -> Vec<String> {
    let mut facts = vec![format!("Session {}", safe(&session.id))];
    let mut place = vec![safe(&session.cwd)];
    place.extend(session.branch.as_deref().map(|branch| format!("on {}", safe(branch))));
    facts.push(place.join(" "));
    let mut figures = vec![
        counted(session.prompts, "prompt"),
        counted(session.answers, "answer"),
        counted(session.tool_uses, "tool call"),
    ];
    figures.extend(session.model.as_deref().map(safe));
    figures.extend(Some(dollars(session.cost_microdollars)).filter(|cost| !cost.is_empty()));
    facts.push(figures.join(", "));
    facts
}

/// Whether the client still has a session's transcript.
pub(crate) fn has_transcript(session: &Session) -> bool {
    std::path::Path::new(&session.transcript).exists()
}

/// The command that goes on with a session; `None` if its client cannot.
pub(crate) fn resume_command(session: &Session) -> Option<String> {
    let id = safe(session.parent.as_deref().unwrap_or(&session.id));
    let command = if session.source == "codex" { "codex resume" } else { "claude --resume" };
    has_transcript(session).then(|| format!("{command} {id}"))
}

/// How to go on with a session, or that only the archive has it.
pub(crate) fn resume(session: &Session) -> String {
    resume_command(session).unwrap_or_else(|| "the transcript is gone; the archive has the text".to_owned())
}

fn who(message: &ShownMessage) -> &'static str {
    match message.kind {
        MessageKind::Prompt => "You",
        MessageKind::Thinking => "Assistant, thinking",
        MessageKind::Answer | MessageKind::ToolCall => "Assistant",
        MessageKind::ToolResult => "Tool",
        MessageKind::Injected | MessageKind::System => "Client",
    }
}

fn time(at: Option<Timestamp>) -> String {
    at.map(output::local_time).unwrap_or_default()
}

/// The conversation for a terminal.
pub(crate) fn text(session: &Session, messages: &[ShownMessage], now: Timestamp) -> String {
    let bold = anstyle::Style::new().bold();
    let dim = anstyle::Style::new().dimmed();
    let mut text = format!("{bold}{}{bold:#}\n", subject(session));
    for line in facts(session) {
        text.push_str(&format!("{dim}{line}{dim:#}\n"));
    }
    text.push_str(&format!("{dim}{}; {}{dim:#}\n", ago_in_words(session.ended, now), resume(session)));
    for message in messages {
        text.push_str(&format!("\n{bold}{}{bold:#} {dim}{}{dim:#}\n", who(message), time(message.at)));
        if !message.thinking.is_empty() {
            text.push_str(&format!("{dim}{}{dim:#}\n", safe_lines(&message.thinking)));
        }
        if !message.content.trim().is_empty() {
            text.push_str(&format!("{}\n", safe_lines(message.content.trim())));
        }
        for tool in &message.tools {
            let failed = if tool.is_error { " (failed)" } else { "" };
            text.push_str(&format!("  {dim}{}: {}{failed}{dim:#}\n", safe(&tool.name), call_line(tool)));
            if let Some(output) = &tool.output {
                for line in shortened(output).lines() {
                    text.push_str(&format!("    {dim}{}{dim:#}\n", safe(line)));
                }
            }
        }
    }
    text
}

fn safe_lines(text: &str) -> String {
    text.lines().map(safe).collect::<Vec<_>>().join("\n")
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(TOOL_CHARS_MAX) {
        Some((at, _)) => format!("{}\n…", &text[..at]),
        None => text.to_owned(),
    }
}

pub(crate) fn markdown_head(session: &Session) -> String {
    format!("# {}\n\n{}\n\n", subject(session), facts(session).join("  \n"))
}

pub(crate) fn markdown_message(message: &ShownMessage) -> String {
    let mut text = format!("## {} {}\n\n", who(message), time(message.at));
    if !message.thinking.is_empty() {
        let quoted: Vec<String> = message.thinking.lines().map(|line| format!("> {}", safe(line))).collect();
        text.push_str(&format!("{}\n\n", quoted.join("\n")));
    }
    if !message.content.trim().is_empty() {
        text.push_str(&format!("{}\n\n", safe_lines(message.content.trim())));
    }
    for tool in &message.tools {
        let failed = if tool.is_error { " (failed)" } else { "" };
        text.push_str(&format!("- **{}**{failed}\n\n{}\n", safe(&tool.name), fenced(&tool.input)));
        if let Some(output) = &tool.output {
            text.push_str(&fenced(output));
            text.push('\n');
        }
    }
    text
}

/// A code block that its own content cannot end.
fn fenced(text: &str) -> String {
    let ticks = text.split(|c| c != '`').map(str::len).max().unwrap_or(0).max(2) + 1;
    let fence = "`".repeat(ticks);
    format!("{fence}\n{}\n{fence}\n", safe_lines(&shortened(text)))
}

pub(crate) fn markdown(session: &Session, messages: &[ShownMessage]) -> String {
    messages.iter().fold(markdown_head(session), |text, message| text + &markdown_message(message))
}

/// The conversation as a page that loads nothing and runs nothing.
pub(crate) fn html(session: &Session, messages: &[ShownMessage]) -> String {
    let mut body = format!("<h1>{}</h1>\n", escaped(&subject(session)));
    for line in facts(session) {
        body.push_str(&format!("<p class=facts>{}</p>\n", escaped(&line)));
    }
    for message in messages {
        let class = who(message).to_lowercase();
        body.push_str(&format!(
            "<article class={class}><h2>{} <time>{}</time></h2>\n",
            who(message),
            escaped(&time(message.at))
        ));
        if !message.thinking.is_empty() {
            body.push_str(&format!(
                "<details><summary>thinking</summary><pre>{}</pre></details>\n",
                escaped(&safe_lines(&message.thinking))
            ));
        }
        if !message.content.trim().is_empty() {
            body.push_str(&format!("<pre>{}</pre>\n", escaped(&safe_lines(message.content.trim()))));
        }
        for tool in &message.tools {
            let failed = if tool.is_error { " (failed)" } else { "" };
            body.push_str(&format!(
                "<details><summary>{}: {}{failed}</summary><pre>{}</pre>",
                escaped(&safe(&tool.name)),
                escaped(&call_line(tool)),
                escaped(&safe_lines(&shortened(&tool.input)))
            ));
            if let Some(output) = &tool.output {
                body.push_str(&format!("<pre>{}</pre>", escaped(&safe_lines(&shortened(output)))));
            }
            body.push_str("</details>\n");
        }
        body.push_str("</article>\n");
    }
    PAGE.replace("{title}", &escaped(&subject(session))).replace("{body}", &body)
}

const PAGE: &str = r#"<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title><style>
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1rem; margin: 0; } time, .facts { opacity: .65; font-weight: normal; }
.facts { margin: 0; overflow-wrap: anywhere; }
article { border-left: 3px solid #8884; margin: 1rem 0; padding: .25rem 1rem; } article.you { border-color: #3b82f6; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font: inherit; } details pre { font-family: monospace; font-size: .85rem; }
</style></head><body>
{body}</body></html>
"#;

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}
