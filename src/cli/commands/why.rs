//! `nugget why`: shows the conversation that a unit, or a line of code, comes from.

mod line;

use std::collections::BTreeMap;

use actors::BrainView;
use brain::{Brain, Files as _};
use jiff::Timestamp;
use knowledge::Document;
use knowledge::text::one_line;
use queue::{EvidenceLine, Queue};
use serde::Serialize;
use serde_json::json;
use transcript::{Event, EventKind};

use super::completions;
use crate::context::Context;
use crate::error::{CliError, USAGE};
use crate::unit_files::{UnitFiles, read_units};
use crate::waiting::items_to_review;
use crate::{lookup, output, pager};

/// How many characters of one event are printed.
const EVENT_CHARS_MAX: usize = 600;

#[derive(clap::Args)]
#[command(after_help = "\
Of a line of code it shows the commit, the session that wrote it, what was asked
for there, and the reviewed units about the file. The session is found by its
edits, through renames and moves; where nothing shows it, it says so.

Examples:
  nugget why bounded-worker-pools
  nugget why bounded-worker-pools --around 3
  nugget why src/auth.ts:42
  nugget why src/auth.ts:40-60 --json")]
pub(crate) struct WhyArgs {
    /// The unit's id or its beginning, merged or not; or a line of a file, or some
    #[arg(value_name = "UNIT|FILE:LINE", add = clap_complete::ArgValueCompleter::new(completions::units))]
    id: String,
    /// How many messages to show before and after each line
    #[arg(long, value_name = "N", default_value_t = 1)]
    around: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A session that a unit comes from.
#[derive(Serialize)]
struct SourceSession {
    session: String,
    captured: String,
    #[serde(skip)]
    captured_at: Timestamp,
    transcript: String,
    /// If not, there are only the excerpts.
    transcript_exists: bool,
    lines: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    line: String,
    /// The stored part of the line: redacted and shortened.
    excerpt: String,
    /// The line with those around it; empty if the transcript no longer has it.
    conversation: Vec<String>,
}

impl WhyArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        if let Some(range) = line::LineRange::parse(&self.id) {
            return line::run(context, &range, self.json);
        }
        if line::is_wrong_range(&self.id) {
            return Err(CliError::new(format!("{} is no range of lines", output::safe(&self.id)))
                .code(USAGE)
                .hint("FILE:LINE or FILE:FIRST-LAST, from line 1"));
        }
        let (_, brain, places) = context.open()?;
        let view = BrainView::open(&brain);
        let files = read_units(&view)?;
        let units = &files.units;
        let queue =
            Some(places.queue()).filter(|path| path.exists()).map(|path| Queue::open(&path)).transpose()?;
        let id = self.resolve_id(&brain, &files, queue.as_ref()).map_err(|error| {
            if !std::path::Path::new(&self.id).is_file() {
                return error;
            }
            let file = output::safe(&self.id);
            error.hint(format!("of a line: nugget why {file}:LINE; of the file: nugget context {file}"))
        })?;
        let unit = units.iter().find(|(_, unit)| unit.id.as_str() == id);
        let (evidence, forgotten) = match &queue {
            Some(queue) => (queue.evidence(&id)?, queue.forgotten(&id)?),
            None => (Vec::new(), None),
        };
        let sessions = source_sessions(evidence, self.around);
        let raw = unit.and_then(|(path, _)| view.read(path).ok()).unwrap_or_default();
        let imported = imported_from(&raw);
        let (path, title) = match unit {
            Some((path, unit)) => (Some(path.as_str()), Some(unit.title.as_str())),
            None => (None, None),
        };
        if self.json {
            let forgotten = forgotten.map(|(at, session)| json!({ "session": session, "at": at }));
            return output::print_json(&json!({
                "id": id, "path": path, "title": title, "sessions": sessions, "forgotten": forgotten,
                "imported_from": imported,
            }));
        }
        let mut text = format!("{}\n", output::safe_title(title.unwrap_or(&id)));
        text.push_str(&format!("{}\n", path.unwrap_or("not among the merged units")));
        match &forgotten {
            Some((at, session)) => text.push_str(&format!(
                "\nsession {session}: forgotten on {} with `nugget forget-capture`; its words are no longer kept here\n",
                output::local_time(*at)
            )),
            None if sessions.is_empty() && !imported.is_empty() => {
                text.push_str(&format!("\nimported from {}\n", output::safe(&imported.join(", "))));
            }
            None if sessions.is_empty() => {
                text.push_str("\nno session on this machine: it was written by hand or captured elsewhere\n");
            }
            None => {}
        }
        for session in &sessions {
            text.push_str(&format!(
                "\nsession {}, captured {}\n",
                session.session,
                output::local_time(session.captured_at)
            ));
            if session.transcript_exists {
                text.push_str(&format!("{}\n", output::safe(&session.transcript)));
            } else {
                text.push_str(
                    "its transcript is gone (Claude Code deletes them after 30 days); stored excerpts:\n",
                );
            }
            for line in &session.lines {
                text.push('\n');
                let shown = if line.conversation.is_empty() {
                    std::slice::from_ref(&line.excerpt)
                } else {
                    &line.conversation
                };
                for message in shown {
                    for row in output::safe(message).lines() {
                        text.push_str(&format!("  {row}\n"));
                    }
                }
            }
        }
        pager::print(context, &text)
    }

    /// The id that is meant: of a unit that is merged, waits for review, or was once captured.
    fn resolve_id(
        &self,
        brain: &Brain,
        files: &UnitFiles,
        queue: Option<&Queue>,
    ) -> Result<String, CliError> {
        let waiting = items_to_review(brain, queue).unwrap_or_default();
        let mut ids: Vec<&str> = files.units.iter().map(|(_, unit)| unit.id.as_str()).collect();
        ids.extend(waiting.iter().map(|item| item.unit_id()));
        ids.sort_unstable();
        ids.dedup();
        match lookup::position(&ids, &self.id, "unit") {
            Ok(at) => Ok(ids[at].to_owned()),
            // Merged nowhere now, but once proposed or forgotten.
            Err(_)
                if queue.is_some_and(|queue| {
                    queue.evidence(&self.id).is_ok_and(|lines| !lines.is_empty())
                        || queue.forgotten(&self.id).is_ok_and(|forgotten| forgotten.is_some())
                }) =>
            {
                Ok(self.id.clone())
            }
            Err(error) => Err(files
                .broken(&self.id)
                .unwrap_or_else(|| error.or_hint("`nugget list` shows the ids of all merged units"))),
        }
    }
}

/// The files, with their sections, that an import has made a unit of.
fn imported_from(raw: &str) -> Vec<String> {
    let sources = Document::parse(raw).ok().and_then(|document| document.get("sources"));
    let sources = sources.as_ref().and_then(|sources| sources.as_sequence()).map_or(&[][..], Vec::as_slice);
    let file = |source: &serde_yaml::Value| {
        let text = |key: &str| Some(one_line(source.get(key)?.as_str()?, EVENT_CHARS_MAX));
        let file = text("file")?;
        Some(text("section").map_or_else(|| file.clone(), |section| format!("{file}: {section}")))
    };
    sources.iter().filter_map(file).collect()
}

fn source_sessions(evidence: Vec<EvidenceLine>, around: usize) -> Vec<SourceSession> {
    let mut captures: BTreeMap<i64, Vec<EvidenceLine>> = BTreeMap::new();
    for line in evidence {
        captures.entry(line.capture).or_default().push(line);
    }
    captures
        .into_values()
        .filter_map(|lines| {
            let first = lines.first()?;
            let (session, transcript) = (first.session.to_string(), first.transcript.clone());
            let captured_at = first.captured;
            let captured = captured_at.strftime("%Y-%m-%d %H:%M").to_string();
            let reading = ::archive::read_conversation(&transcript, &|_| false).ok();
            let events = reading.as_ref().map(|reading| reading.conversation.events.as_slice());
            let lines = lines
                .into_iter()
                .map(|line| Line {
                    conversation: events
                        .map(|events| surroundings(events, &line.line, around))
                        .unwrap_or_default(),
                    line: line.line,
                    excerpt: line.excerpt,
                })
                .collect();
            let transcript_exists = reading.is_some();
            Some(SourceSession {
                session,
                captured,
                captured_at,
                transcript: transcript.display().to_string(),
                transcript_exists,
                lines,
            })
        })
        .collect()
}

/// The events of a transcript line with those around them.
fn surroundings(events: &[Event], line: &str, around: usize) -> Vec<String> {
    let Some(first) = events.iter().position(|event| event.line == line) else { return Vec::new() };
    let last = events.iter().rposition(|event| event.line == line).unwrap_or(first);
    let range = first.saturating_sub(around)..(last + around + 1).min(events.len());
    range
        .clone()
        .zip(&events[range])
        .map(|(at, event)| {
            let mark = if (first..=last).contains(&at) { ">" } else { " " };
            format!("{mark} {}", describe(event))
        })
        .collect()
}

fn describe(event: &Event) -> String {
    let (speaker, text) = match &event.kind {
        EventKind::Human { text } => ("you", text.as_str()),
        EventKind::Choice { question, answer, notes, .. } => {
            return format!("you: {}", one_line(&format!("{question} {answer} {notes}"), EVENT_CHARS_MAX));
        }
        EventKind::Assistant { text } => ("claude", text.as_str()),
        EventKind::ToolCall { summary, .. } => ("tool", summary.as_str()),
        EventKind::ToolResult { ok: true, output, .. } => ("result", output.as_str()),
        EventKind::ToolResult { output, .. } => ("failed", output.as_str()),
    };
    format!("{speaker}: {}", one_line(text, EVENT_CHARS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_imported_unit_names_its_file_and_section() {
        let raw = "---\ntype: belief\nsources:\n- file: ~/shop/CLAUDE.md\n  section: Style\n  digest: ab\n- session: s1\n---\n";
        assert_eq!(imported_from(raw), ["~/shop/CLAUDE.md: Style"]);
        assert!(imported_from("# By hand\n").is_empty());
    }
}
