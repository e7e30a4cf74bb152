//! Renders a conversation for a model: people's messages in full, everything else shortened.
//!
//! The text is split into parts, preferably where a person begins to speak. Each event has a number, by which a
//! model cites it. All but the first line of an event are indented, so that no text of a session can pass for an
//! event or for the end of the session.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;

use knowledge::Evidence;
use knowledge::text::one_line;
use regex::Regex;
use transcript::{ChoiceOption, Conversation, Event, EventKind, ToolInput, approved_plan};

use crate::tool_output::reports_failure;

const SUMMARY_CHARS_MAX: usize = 200;
const EDIT_CHARS_MAX: usize = 600;
const OUTPUT_CHARS_MAX: usize = 1_000;
/// Of what was only looked at: the model says itself what it found there.
const LOOKED_AT_CHARS_MAX: usize = 300;
/// Of a commit message or the text of a pull request: causes are often stated only there.
const MESSAGE_CHARS_MAX: usize = 6_000;
/// Of a subagent's report, which stands for the subagent's whole transcript.
const REPORT_CHARS_MAX: usize = 24_000;
/// Claude Code keeps at most 12 KiB of an output; this is nearly all of an error.
const ERROR_CHARS_MAX: usize = 8_000;
const PROSE_CHARS_MAX: usize = 12_000;
const EXCERPT_CHARS_MAX: usize = 240;
const FILES_NAMED_MAX: usize = 8;

/// Estimates the tokens of a text: one for four ASCII characters, and one for each other character.
pub(crate) fn estimate_tokens(text: &str) -> usize {
    let ascii = text.bytes().filter(u8::is_ascii).count();
    ascii.div_ceil(4) + (text.chars().count() - ascii)
}

/// A conversation, rendered for a model.
pub(crate) struct Condensed<'a> {
    conversation: &'a Conversation,
    pieces: Vec<Piece>,
}

/// A text that is never split: an event, or a section of a very long one.
struct Piece {
    /// The index of the event in the conversation.
    event: usize,
    text: String,
    tokens: usize,
    /// Whether a person's message begins here.
    starts_turn: bool,
}

/// Adjacent pieces, by their indices.
pub(crate) type Part = Range<usize>;

impl<'a> Condensed<'a> {
    /// Renders a conversation. No piece has many more than `piece_tokens_max` tokens.
    pub(crate) fn new(conversation: &'a Conversation, piece_tokens_max: usize) -> Self {
        let mut results: HashMap<&str, usize> = HashMap::new();
        let mut calls: HashMap<&str, usize> = HashMap::new();
        for (at, event) in conversation.events.iter().enumerate() {
            match &event.kind {
                EventKind::ToolCall { id, .. } => drop(calls.entry(id).or_insert(at)),
                EventKind::ToolResult { id, .. } => drop(results.entry(id).or_insert(at)),
                _ => {}
            }
        }
        let mut pieces = Vec::new();
        for (at, event) in conversation.events.iter().enumerate() {
            let result = match &event.kind {
                EventKind::ToolCall { id, .. } => results.get(id.as_str()).filter(|&&result| result > at),
                // Rendered with its call.
                EventKind::ToolResult { id, .. } if calls.get(id.as_str()).is_some_and(|&call| call < at) => {
                    continue;
                }
                _ => None,
            };
            let result = result.map(|&at| (at, &conversation.events[at].kind));
            let (head, body) = render_event(event, result, conversation.cwd.as_deref().unwrap_or_default());
            let is_human = event.kind.is_human();
            for (number, section) in split_text(&body, piece_tokens_max).into_iter().enumerate() {
                let continued = if number == 0 { "" } else { " (continued)" };
                let mut text = format!("[{}] {head}{continued}\n", at + 1);
                for line in section.split('\n').filter(|_| !section.is_empty()) {
                    text.push_str("  ");
                    text.push_str(line);
                    text.push('\n');
                }
                let tokens = estimate_tokens(&text);
                pieces.push(Piece { event: at, text, tokens, starts_turn: is_human && number == 0 });
            }
        }
        Self { conversation, pieces }
    }

    /// Splits the whole session into parts of at most about `budget` tokens.
    pub(crate) fn parts(&self, budget: usize) -> Vec<Part> {
        self.split(0..self.pieces.len(), budget)
    }

    /// Splits a part into smaller ones. A part ends where a person begins to speak, if that is in its second half, and
    /// otherwise where it is full.
    pub(crate) fn split(&self, part: Part, budget: usize) -> Vec<Part> {
        let mut parts = Vec::new();
        let (mut start, mut size) = (part.start, 0);
        let mut turn = None;
        let mut at = part.start;
        while at < part.end {
            let piece = &self.pieces[at];
            if at > start && size + piece.tokens > budget {
                let end = if piece.starts_turn { at } else { turn.unwrap_or(at) };
                parts.push(start..end);
                (start, at, size, turn) = (end, end, 0, None);
                continue;
            }
            if piece.starts_turn && size * 2 >= budget {
                turn = Some(at);
            }
            size += piece.tokens;
            at += 1;
        }
        if start < part.end {
            parts.push(start..part.end);
        }
        parts
    }

    /// The text of a part, after a line that summarises what came before it.
    pub(crate) fn text(&self, part: &Part) -> String {
        let mut text = self.summary_before(part).unwrap_or_default();
        for piece in &self.pieces[part.clone()] {
            text.push_str(&piece.text);
        }
        text
    }

    /// The indices of the events in a part, results with their calls.
    pub(crate) fn events(&self, part: &Part) -> Range<usize> {
        let Some(first) = self.pieces.get(part.start) else { return 0..0 };
        let end = self.pieces.get(part.end).map_or(self.conversation.events.len(), |next| next.event);
        first.event..end.max(first.event + 1)
    }

    /// The evidence for an event number that a model cited, if the part contains the event.
    pub(crate) fn evidence(&self, part: &Part, number: usize) -> Option<Evidence> {
        let event = self.conversation.events.get(number.checked_sub(1)?)?;
        let is_shown = self.pieces[part.clone()].iter().any(|piece| {
            piece.event + 1 == number
                || piece.text.lines().next().is_some_and(|line| line.ends_with(&format!("[{number}]")))
        });
        let text = match &event.kind {
            EventKind::Human { text } | EventKind::Assistant { text } => text.clone(),
            EventKind::Choice { question, answer, notes, .. } => {
                format!("{answer} {notes} (asked: {question})")
            }
            EventKind::ToolCall { summary, .. } => summary.clone(),
            EventKind::ToolResult { output, .. } => tail(output, EXCERPT_CHARS_MAX),
        };
        let excerpt = one_line(&text, EXCERPT_CHARS_MAX);
        is_shown.then(|| Evidence { line: event.line.clone(), excerpt })
    }

    /// Whether a person wrote the transcript line with this uuid. An approved plan was written by the assistant.
    pub(crate) fn is_human(&self, line: &str) -> bool {
        let is_plan =
            |kind: &EventKind| matches!(kind, EventKind::Human { text } if approved_plan(text).is_some());
        let mut events = self.conversation.events.iter();
        events.any(|event| event.line == line && event.kind.is_human() && !is_plan(&event.kind))
    }

    fn summary_before(&self, part: &Part) -> Option<String> {
        let first = self.pieces.get(part.start)?.event;
        if part.start == 0 {
            return None;
        }
        let before = &self.conversation.events[..first];
        let human: Vec<&str> = before
            .iter()
            .filter_map(|event| match &event.kind {
                EventKind::Human { text } => Some(text.as_str()),
                _ => None,
            })
            .collect();
        let (mut commands, mut failed) = (0, 0);
        for event in before {
            match &event.kind {
                EventKind::ToolCall { input: ToolInput { command: Some(_), .. }, .. } => commands += 1,
                EventKind::ToolResult { ok: false, .. } => failed += 1,
                _ => {}
            }
        }
        let mut summary = "[before this part]".to_owned();
        if let Some(first) = human.first() {
            summary.push_str(&format!(" The session began with: \"{}\".", one_line(first, 200)));
        }
        if let Some(last) = human.last().filter(|_| human.len() > 1) {
            summary.push_str(&format!(" The last request was: \"{}\".", one_line(last, 200)));
        }
        summary.push_str(&format!(" {commands} commands were run, {failed} calls failed."));
        let mut files: Vec<&str> = Vec::new();
        for event in before.iter().rev() {
            if let EventKind::ToolCall { input: ToolInput { file: Some(file), new: Some(_), .. }, .. } =
                &event.kind
                && !files.contains(&file.as_str())
                && files.len() < FILES_NAMED_MAX
            {
                files.push(file);
            }
        }
        if !files.is_empty() {
            summary.push_str(&format!(" Changed last: {}.", one_line(&files.join(", "), 300)));
        }
        summary.push('\n');
        Some(summary)
    }
}

/// The first line of an event without its number, and the text that is indented below it. Paths in calls and results
/// are relative to `cwd`, the session's folder.
fn render_event(event: &Event, result: Option<(usize, &EventKind)>, cwd: &str) -> (String, String) {
    let by = if event.sidechain { "subagent " } else { "" };
    match &event.kind {
        EventKind::Human { text } => match approved_plan(text) {
            Some(plan) => {
                ("plan that the assistant wrote and the human approved:".to_owned(), plan.trim().to_owned())
            }
            None => ("human:".to_owned(), text.clone()),
        },
        EventKind::Choice { question, options, answer, notes, .. } => {
            ("human, asked by the assistant:".to_owned(), render_choice(question, options, answer, notes))
        }
        EventKind::Assistant { text } => {
            let chars_max = if event.sidechain { REPORT_CHARS_MAX } else { PROSE_CHARS_MAX };
            (format!("{by}assistant:"), head_and_tail(text, chars_max))
        }
        EventKind::ToolCall { name, summary, input, by_human, .. } => {
            let by = if *by_human { "human ran " } else { by };
            let (head, mut body) = render_call(name, summary, input, cwd);
            let outcome = match result {
                Some((at, EventKind::ToolResult { ok, exit_code, output, .. })) => {
                    let (outcome, output) = render_result(Some((name, input)), *ok, *exit_code, output, cwd);
                    body.push_str(&output);
                    format!("{outcome} [{}]", at + 1)
                }
                _ => "no result".to_owned(),
            };
            (format!("{by}{head} → {outcome}"), body)
        }
        EventKind::ToolResult { ok, exit_code, output, .. } => {
            let (outcome, output) = render_result(None, *ok, *exit_code, output, cwd);
            (format!("{by}result of an earlier call: {outcome}"), output)
        }
    }
}

/// A call in one line, and the text that it wrote: an edit, a commit message.
fn render_call(name: &str, summary: &str, input: &ToolInput, cwd: &str) -> (String, String) {
    let argument = match (&input.command, &input.subject, &input.file) {
        (Some(command), _, _) => relative(command, cwd),
        (None, Some(subject), Some(file)) => format!("{subject} in {}", relative(file, cwd)),
        (None, Some(text), None) | (None, None, Some(text)) => relative(text, cwd),
        (None, None, None) => return (one_line(summary, SUMMARY_CHARS_MAX), String::new()),
    };
    if input.command.is_some() && writes_to_people(&argument) && argument.chars().count() > SUMMARY_CHARS_MAX
    {
        let message: Vec<&str> = argument.lines().filter(|line| !is_client_trailer(line)).collect();
        let head = format!("{name}: {}", one_line(&argument, SUMMARY_CHARS_MAX / 4));
        return (head, head_and_tail(&message.join("\n"), MESSAGE_CHARS_MAX) + "\n");
    }
    (one_line(&format!("{name}: {argument}"), SUMMARY_CHARS_MAX), render_edit(input))
}

/// Whether a command writes a commit message or a text on a forge.
fn writes_to_people(command: &str) -> bool {
    static WRITES: LazyLock<Regex> = LazyLock::new(|| {
        let expression = r"(?x) \bgit\s(?:[^\n|;&]*\s)?(?:commit|tag|notes)\b
            | \b(?:gh|glab)\s+(?:pr|mr|issue|release)\s+(?:create|new|comment|note|edit|review|close|merge)\b
            | \bgh\s+api\b[^\n]*\sbody=";
        Regex::new(expression).expect("a constant expression")
    });
    WRITES.is_match(command)
}

/// Whether a command only shows files, folders or changes, as the tools for that do.
fn only_looks(command: &str) -> bool {
    static LOOKS: LazyLock<Regex> = LazyLock::new(|| {
        let expression = r"^(?:cd|pwd|cat|bat|head|nl|sed\s+-n|ls|eza|tree|find|fd|grep|rg|wc|sort|uniq|echo|git\s+(?:--no-pager\s+)?(?:diff|status|branch))(?:\s|$)";
        Regex::new(expression).expect("a constant expression")
    });
    let command = command.replace("2>&1", "");
    command
        .split(['|', ';', '&', '\n'])
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .all(|part| LOOKS.is_match(part))
}

/// Whether the client adds this line to commits and pull requests by itself.
fn is_client_trailer(line: &str) -> bool {
    line.starts_with("Co-Authored-By: Claude") || line.contains("Generated with [Claude Code]")
}

/// A text with the paths below the session's folder relative to it.
fn relative(text: &str, cwd: &str) -> String {
    // A short path is the root of a file system or a home folder's parent.
    if cwd.matches(['/', '\\']).count() < 2 {
        return text.to_owned();
    }
    text.replace(&format!("{cwd}/"), "").replace(&format!("{cwd}\\"), "")
}

/// A question with the options that were offered, of which `(x)` marks the chosen ones, and what the person said.
fn render_choice(question: &str, options: &[ChoiceOption], answer: &str, notes: &str) -> String {
    let mut text = format!("question: {question}\n");
    for option in options {
        let mark = if is_chosen(&option.label, options, answer) { "(x)" } else { "( )" };
        let about = if option.description.is_empty() { "" } else { ": " };
        text.push_str(&format!("{mark} {}{about}{}\n", option.label, option.description));
    }
    text.push_str(&format!("answer: {answer}"));
    if !notes.is_empty() && notes != answer {
        text.push_str(&format!("\nnotes: {notes}"));
    }
    text
}

/// Whether an option is the answer or in the list of labels that is the answer. Labels may contain commas.
fn is_chosen(label: &str, options: &[ChoiceOption], answer: &str) -> bool {
    if options.iter().any(|option| option.label == answer) {
        return label == answer;
    }
    answer.starts_with(&format!("{label}, "))
        || answer.ends_with(&format!(", {label}"))
        || answer.contains(&format!(", {label}, "))
}

/// How a call ended, in a word, and what is shown of its output. `call` is its tool's name and input, if known.
fn render_result(
    call: Option<(&str, &ToolInput)>,
    ok: bool,
    exit_code: Option<i32>,
    output: &str,
    cwd: &str,
) -> (String, String) {
    // A file or a report may quote what a failed command prints.
    let is_command = call.is_none_or(|(_, input)| input.command.is_some());
    let failed = !ok || exit_code.is_some_and(|code| code != 0) || (is_command && reports_failure(output));
    let chars_max = match call {
        _ if failed => ERROR_CHARS_MAX,
        Some(("Task" | "Agent", _)) => REPORT_CHARS_MAX,
        Some(("Read" | "NotebookRead" | "Grep" | "Glob" | "LS" | "TodoWrite", _)) => LOOKED_AT_CHARS_MAX,
        // That it succeeded is said already, and what was written is shown with the call.
        Some(("Edit" | "MultiEdit" | "Write" | "NotebookEdit" | "TaskCreate" | "TaskUpdate", _)) => 0,
        Some((_, ToolInput { command: Some(command), .. }))
            if writes_to_people(command) || only_looks(command) =>
        {
            LOOKED_AT_CHARS_MAX
        }
        _ => OUTPUT_CHARS_MAX,
    };
    let output = match chars_max {
        0 => String::new(),
        chars_max => head_and_tail(relative(output, cwd).trim(), chars_max),
    };
    let word = match (failed, exit_code) {
        (true, Some(code)) => format!("failed (exit {code})"),
        (true, None) => "failed".to_owned(),
        (false, _) => "ok".to_owned(),
    };
    (word, output)
}

/// The removed and the added lines of an edit, which are often the only record of a fix, without those at its
/// beginning and end that stay. A text for no file is a plan that the person refused.
fn render_edit(input: &ToolInput) -> String {
    let Some(new) = &input.new else { return String::new() };
    if input.file.is_none() {
        return head_and_tail(new, EDIT_CHARS_MAX);
    }
    let (old, new): (Vec<&str>, Vec<&str>) =
        (input.old.as_deref().unwrap_or_default().lines().collect(), new.lines().collect());
    let first = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let (old, new) = (&old[first..], &new[first..]);
    let last = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    let mut lines = String::new();
    for (sign, text) in [('-', &old[..old.len() - last]), ('+', &new[..new.len() - last])] {
        for line in head_and_tail(&text.join("\n"), EDIT_CHARS_MAX).lines() {
            lines.push_str(&format!("{sign} {line}\n"));
        }
    }
    lines
}

/// Keeps the first third and the last two thirds of the allowed length, because most outputs end with the error.
fn head_and_tail(text: &str, chars_max: usize) -> String {
    let chars = text.chars().count();
    if chars <= chars_max {
        return text.to_owned();
    }
    let head: String = text.chars().take(chars_max / 3).collect();
    let end: String = text.chars().skip(chars - chars_max * 2 / 3).collect();
    format!("{head}\n[… {} characters left out …]\n{end}", chars - chars_max)
}

/// The last characters of a text.
fn tail(text: &str, chars_max: usize) -> String {
    let chars = text.trim().chars().count();
    text.trim().chars().skip(chars.saturating_sub(chars_max)).collect()
}

/// Splits a text into sections of at most `tokens_max` tokens, at the end of a line where possible.
///
/// Joined with line feeds, the sections give the text, except for lines that are themselves too long.
fn split_text(text: &str, tokens_max: usize) -> Vec<&str> {
    if estimate_tokens(text) <= tokens_max {
        return vec![text];
    }
    let mut sections = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        // In quarters of a token.
        let mut room = tokens_max.max(1) * 4;
        let mut end = rest.len();
        for (at, c) in rest.char_indices() {
            let cost = if c.is_ascii() { 1 } else { 4 };
            if cost > room && at > 0 {
                end = at;
                break;
            }
            room = room.saturating_sub(cost);
        }
        let cut =
            if end == rest.len() { None } else { rest[..end].rfind('\n').filter(|&cut| cut * 2 >= end) };
        sections.push(&rest[..cut.unwrap_or(end)]);
        rest = &rest[cut.map_or(end, |cut| cut + 1)..];
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event(at: usize, kind: EventKind) -> Event {
        Event { line: format!("line-{at}"), at: None, sidechain: false, kind }
    }

    fn human(text: &str) -> EventKind {
        EventKind::Human { text: text.to_owned() }
    }

    fn conversation(kinds: Vec<EventKind>) -> Conversation {
        let events = kinds.into_iter().enumerate().map(|(at, kind)| event(at, kind)).collect();
        Conversation { events, ..Conversation::default() }
    }

    fn run(id: &str, command: &str) -> EventKind {
        let input = ToolInput { command: Some(command.to_owned()), ..ToolInput::default() };
        EventKind::ToolCall {
            id: id.into(),
            name: "Bash".into(),
            summary: format!("Bash: {command}"),
            input,
            by_human: false,
        }
    }

    fn ended(id: &str, ok: bool, output: &str) -> EventKind {
        EventKind::ToolResult { id: id.into(), ok, exit_code: (!ok).then_some(101), output: output.into() }
    }

    #[test]
    fn an_approved_plan_is_the_assistants() {
        let conversation = conversation(vec![
            human("Implement the following plan:\n\n# Retries"),
            human("only twice, please"),
        ]);
        let condensed = Condensed::new(&conversation, 1_000);
        let text = condensed.text(&condensed.parts(1_000)[0]);
        assert_eq!(
            text,
            "[1] plan that the assistant wrote and the human approved:\n  # Retries\n[2] human:\n  only twice, please\n"
        );
        assert_eq!(["line-0", "line-1"].map(|line| condensed.is_human(line)), [false, true]);
    }

    #[test]
    fn a_refused_plan_is_shown_before_what_the_human_said() {
        let input = ToolInput {
            subject: Some("# Retries".into()),
            new: Some("# Retries\n\nThe client tries three times.".into()),
            ..ToolInput::default()
        };
        let plan = EventKind::ToolCall {
            id: "p".into(),
            name: "ExitPlanMode".into(),
            summary: String::new(),
            input,
            by_human: false,
        };
        let conversation = conversation(vec![plan, human("the proxy does that")]);
        let condensed = Condensed::new(&conversation, 1_000);
        assert_eq!(
            condensed.text(&condensed.parts(1_000)[0]),
            "[1] ExitPlanMode: # Retries → no result\n  # Retries\n  \n  The client tries three times.\n\
             [2] human:\n  the proxy does that\n"
        );
    }

    /// The text below the events that begin with `head`, without its indentation.
    fn below(text: &str, head: &str) -> String {
        let mut found = String::new();
        let mut inside = false;
        for line in text.lines() {
            match line.strip_prefix("  ") {
                Some(line) if inside => found.push_str(line),
                Some(_) => {}
                None => inside = line.split_once("] ").is_some_and(|(_, rest)| rest.starts_with(head)),
            }
        }
        found
    }

    #[test]
    fn events_are_numbered_and_results_follow_their_calls() {
        let conversation = conversation(vec![
            human("please\nfix [2] it"),
            run("a", "cargo test"),
            ended("a", false, "error[E0308]: mismatched types"),
            EventKind::Assistant { text: "It was the type.".into() },
        ]);
        let condensed = Condensed::new(&conversation, 1_000);
        assert_eq!(
            condensed.text(&(0..3)),
            "[1] human:\n  please\n  fix [2] it\n[2] Bash: cargo test → failed (exit 101) [3]\n  error[E0308]: mismatched types\n[4] assistant:\n  It was the type.\n"
        );
        let cited = |number| condensed.evidence(&(0..3), number).map(|evidence| evidence.line);
        assert_eq!(
            [cited(0), cited(5), cited(3), cited(4)],
            [None, None, Some("line-2".into()), Some("line-3".into())]
        );
        assert_eq!(condensed.evidence(&(0..1), 2), None, "only events of the part can be cited");
        assert_eq!(condensed.events(&(1..2)), 1..3, "a result belongs to its call");
    }

    #[test]
    fn a_choice_is_shown_with_its_question_options_and_notes() {
        let option = |label: &str, description: &str| ChoiceOption {
            label: label.to_owned(),
            description: description.to_owned(),
        };
        let choice = |answer: &str, notes: &str| EventKind::Choice {
            question: "Where do we cache?".to_owned(),
            header: "Cache".to_owned(),
            options: vec![option("Redis, shared", "One more server."), option("In memory", "")],
            answer: answer.to_owned(),
            notes: notes.to_owned(),
        };
        let conversation = conversation(vec![
            choice("In memory", "one server\nfor now"),
            choice("Redis, shared, In memory", ""),
            choice("neither: the database is fast enough", ""),
        ]);
        let condensed = Condensed::new(&conversation, 1_000);
        assert_eq!(
            condensed.text(&(0..1)),
            "[1] human, asked by the assistant:\n  question: Where do we cache?\n  ( ) Redis, shared: One more server.\n  (x) In memory\n  answer: In memory\n  notes: one server\n  for now\n"
        );
        assert!(condensed.pieces[1].text.contains("(x) Redis, shared:"), "{}", condensed.pieces[1].text);
        assert!(condensed.pieces[1].text.contains("(x) In memory"), "{}", condensed.pieces[1].text);
        assert!(!condensed.pieces[2].text.contains("(x)"), "{}", condensed.pieces[2].text);
        assert!(condensed.is_human("line-2") && condensed.pieces[2].starts_turn);
        let evidence = condensed.evidence(&(0..3), 1).unwrap();
        assert_eq!(
            (evidence.line.as_str(), evidence.excerpt.as_str()),
            ("line-0", "In memory one server for now (asked: Where do we cache?)")
        );
    }

    #[test]
    fn outputs_are_cut_and_errors_are_kept() {
        let long: String = (0..700).map(|n| format!("row {n}\n")).collect();
        let conversation = conversation(vec![
            run("a", "ls"),
            ended("a", true, &long),
            run("b", "make"),
            ended("b", false, &long),
        ]);
        let condensed = Condensed::new(&conversation, 100_000);
        let (good, bad) = (condensed.text(&(0..1)), condensed.text(&(1..2)));
        assert!(
            good.contains("row 0\n") && good.contains("row 699\n") && good.contains("left out"),
            "{good}"
        );
        assert!(good.len() < 1_500, "{}", good.len());
        assert!(bad.lines().count() == 702 && bad.starts_with("[before this part]"), "{bad}");
    }

    /// What the model is shown of a call in a session in `/home/dev/shop`, and of its result.
    fn shown(name: &str, input: ToolInput, ok: bool, output: &str) -> String {
        let call = EventKind::ToolCall {
            id: "a".into(),
            name: name.into(),
            summary: String::new(),
            input,
            by_human: false,
        };
        let result = EventKind::ToolResult { id: "a".into(), ok, exit_code: None, output: output.into() };
        let conversation =
            Conversation { cwd: Some("/home/dev/shop".into()), ..conversation(vec![call, result]) };
        Condensed::new(&conversation, 100_000).text(&(0..1))
    }

    #[test]
    fn a_report_is_kept_and_what_was_only_looked_at_is_cut() {
        let long: String = (0..1_500).map(|n| format!("/home/dev/shop/src/row_{n}.rs\n")).collect();
        let file = |path: &str| ToolInput { file: Some(path.into()), ..ToolInput::default() };
        let subject = |text: &str| ToolInput { subject: Some(text.into()), ..ToolInput::default() };
        let command = |text: &str| ToolInput { command: Some(text.into()), ..ToolInput::default() };
        let report = shown("Task", subject("Find the rows"), true, &long);
        assert!(
            report.starts_with("[1] Task: Find the rows → ok [2]\n") && report.contains("src/row_750.rs")
        );
        assert!(!report.contains("/home/dev"), "paths are relative");
        for (name, input) in [
            ("Read", file("/home/dev/shop/src/row_1.rs")),
            ("Grep", ToolInput { file: Some("/home/dev/shop/src".into()), ..subject("row") }),
            ("Bash", command("cd /home/dev/shop && rg -n row src 2>&1 | head -50")),
            ("Bash", command("git commit -m 'Add rows'")),
        ] {
            let text = shown(name, input.clone(), true, &long);
            assert!(text.len() < 600 && text.contains("left out"), "{text}");
            let failed = shown(name, input, false, &long);
            assert!(failed.len() > 5_000 && failed.contains("→ failed [2]"), "{failed}");
        }
        let tested = shown("Bash", command("cargo test | grep row"), true, &long);
        assert!((900..1_500).contains(&tested.len()), "{tested}");
        let read = shown("Read", file("/home/dev/shop/tests/a.rs"), true, "--- FAIL: a name in a file");
        assert!(read.starts_with("[1] Read: tests/a.rs → ok [2]\n"), "{read}");
        let grep =
            shown("Grep", ToolInput { file: Some("/home/dev/shop/src".into()), ..subject("row") }, true, "");
        assert_eq!(grep, "[1] Grep: row in src → ok [2]\n");
    }

    #[test]
    fn messages_to_people_are_kept_whole() {
        let cause = "The lease ran out before the upload ended, because the clock counts sleep. ".repeat(20);
        for head in
            ["git add -A && git commit -m \"$(cat <<'EOF'", "gh pr create --title Fix --body \"$(cat <<'EOF'"]
        {
            let command = format!(
                "{head}\nRenew the lease\n\n{cause}\nThe end.\n\n🤖 Generated with [Claude Code](https://claude.com/claude-code)\n\nCo-Authored-By: Claude <noreply@anthropic.com>\nEOF\n)\""
            );
            let input = ToolInput { command: Some(command), ..ToolInput::default() };
            let text = shown("Bash", input, true, "[main 0a1b2c3] Renew the lease");
            assert!(text.contains(cause.trim()) && text.contains("The end.\n"), "{text}");
            assert!(text.contains("→ ok [2]\n") && text.contains("[main 0a1b2c3] Renew the lease"), "{text}");
            assert!(!text.contains("Generated with") && !text.contains("Co-Authored-By"), "{text}");
        }
        let other = ToolInput { command: Some(format!("psql -c '{cause}'")), ..ToolInput::default() };
        assert!(shown("Bash", other, true, "").len() < 300);
    }

    #[test]
    fn an_edit_shows_the_lines_that_change() {
        let input = ToolInput {
            file: Some("/home/dev/shop/src/a.rs".into()),
            old: Some("fn a() {\n    one();\n    two();\n}".into()),
            new: Some("fn a() {\n    one();\n    lock();\n    two();\n}".into()),
            ..ToolInput::default()
        };
        let text = shown("Edit", input, true, "The file /home/dev/shop/src/a.rs has been updated.");
        assert_eq!(text, "[1] Edit: src/a.rs → ok [2]\n  +     lock();\n  \n");
    }

    #[test]
    fn a_part_begins_with_a_person_after_a_summary() {
        let mut kinds = Vec::new();
        for turn in 0..6 {
            kinds.push(human(&format!("request number {turn}")));
            for step in 0..5 {
                let id = format!("{turn}-{step}");
                kinds.push(run(&id, &format!("step {step}")));
                kinds.push(ended(&id, step != 3, "some output"));
            }
        }
        let conversation = conversation(kinds);
        let condensed = Condensed::new(&conversation, 100);
        let parts = condensed.parts(150);
        assert!(parts.len() > 1);
        for part in &parts[1..] {
            let text = condensed.text(part);
            let lines: Vec<&str> = text.lines().collect();
            assert!(
                lines[0].starts_with("[before this part] The session began with: \"request number 0\""),
                "{text}"
            );
            assert!(lines[1].contains("human:"), "{text}");
        }
        assert_eq!(
            parts.iter().map(|part| condensed.events(part).len()).sum::<usize>(),
            conversation.events.len()
        );
    }

    #[test]
    fn tokens_are_estimated_for_every_script() {
        assert_eq!(estimate_tokens("four char"), 3);
        assert_eq!(estimate_tokens("日本語"), 3);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        /// For messages and parts of any size.
        #[test]
        fn no_text_of_a_person_is_lost(
            turns in prop::collection::vec((any::<bool>(), "(\\PC|\n|\\[1\\] human:|  ){0,400}"), 0..12),
            budget in 8_usize..400,
        ) {
            let kinds = turns
                .iter()
                .map(|(by_human, text)| if *by_human { human(text) } else { EventKind::Assistant { text: text.clone() } });
            let conversation = conversation(kinds.collect());
            let condensed = Condensed::new(&conversation, budget / 2);
            let parts = condensed.parts(budget);
            prop_assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
            let rendered: String = parts.iter().map(|part| below(&condensed.text(part), "human:")).collect();
            let said: String = conversation.human_words().collect::<String>().replace('\n', "");
            prop_assert_eq!(rendered, said);
            for part in &parts {
                let size: usize = condensed.pieces[part.clone()].iter().map(|piece| piece.tokens).sum();
                prop_assert!(size <= budget || part.len() == 1, "{} of {}", size, budget);
            }
        }
    }
}
