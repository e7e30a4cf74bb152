//! `nugget why`: the conversation that a unit comes from.

use std::collections::BTreeMap;
use std::process::ExitCode;

use actors::brain_view::BrainView;
use brain::StatePaths;
use knowledge::text::one_line;
use queue::{EvidenceLine, Queue};
use serde::Serialize;
use serde_json::json;
use transcript::{Event, EventKind};

use super::show::read_all;
use crate::context::Context;
use crate::error::{CliError, MISSING};
use crate::output;

/// How much of one event is printed.
const EVENT_CHARS_MAX: usize = 600;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  nugget why bounded-worker-pools\n  nugget why bounded-worker-pools --around 3"
)]
pub(crate) struct Arguments {
    /// The unit's id, merged or not
    #[arg(add = clap_complete::ArgValueCompleter::new(super::completions::units))]
    id: String,
    /// How much of the conversation before and after each line is shown
    #[arg(long, value_name = "N", default_value_t = 1)]
    around: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One session that a unit comes from.
#[derive(Serialize)]
struct Told {
    session: String,
    captured: String,
    transcript: String,
    /// Whether the transcript is still there; else there are only the excerpts.
    transcript_exists: bool,
    lines: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    line: String,
    /// What was kept of it: redacted, and cut short.
    excerpt: String,
    /// It with what was said around it; empty when the transcript does not have it any more.
    conversation: Vec<String>,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        let config = context.config()?;
        let brain = context.brain(&config)?;
        let shelf = read_all(&BrainView::open(&brain))?;
        let unit = shelf.units.iter().find(|(_, unit)| unit.id.as_str() == self.id);
        let ledger = StatePaths::for_brain(brain.root()).queue();
        let origins = if ledger.exists() { Queue::open(&ledger)?.evidence(&self.id)? } else { Vec::new() };
        if unit.is_none() && origins.is_empty() {
            return Err(CliError::new(format!("there is no unit {:?}", self.id))
                .code(MISSING)
                .hint("`nugget list` shows all ids that are merged"));
        }
        let told = tell(origins, self.around);
        let (path, title) = match unit {
            Some((path, unit)) => (Some(path.as_str()), Some(unit.title.as_str())),
            None => (None, None),
        };
        if self.json {
            output::print_json(&json!({ "id": self.id, "path": path, "title": title, "sessions": told }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut text = format!("{}\n", output::safe(title.unwrap_or(&self.id)));
        text.push_str(&format!("{}\n", path.unwrap_or("not merged yet")));
        if told.is_empty() {
            text.push_str(
                "\nIt was written by hand, or captured on another machine: this one's ledger does not know it.\n",
            );
        }
        for session in &told {
            text.push_str(&format!("\nsession {}, captured {}\n", session.session, session.captured));
            if session.transcript_exists {
                text.push_str(&format!("{}\n", output::safe(&session.transcript)));
            } else {
                text.push_str("its transcript is gone (Claude Code deletes them after 30 days): these are the excerpts that were kept\n");
            }
            for line in &session.lines {
                text.push('\n');
                let shown = if line.conversation.is_empty() {
                    std::slice::from_ref(&line.excerpt)
                } else {
                    &line.conversation
                };
                for said in shown {
                    for row in output::safe(said).lines() {
                        text.push_str(&format!("  {row}\n"));
                    }
                }
            }
        }
        output::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn tell(origins: Vec<EvidenceLine>, around: usize) -> Vec<Told> {
    let mut captures: BTreeMap<i64, Vec<EvidenceLine>> = BTreeMap::new();
    for origin in origins {
        captures.entry(origin.capture).or_default().push(origin);
    }
    captures
        .into_values()
        .filter_map(|lines| {
            let first = lines.first()?;
            let (session, transcript) = (first.session.to_string(), first.transcript.clone());
            let captured = first.captured.strftime("%Y-%m-%d %H:%M").to_string();
            let reading = transcript::read(&transcript, &|_| false).ok();
            let events = reading.as_ref().map(|reading| reading.conversation.events.as_slice());
            let lines = lines
                .into_iter()
                .map(|origin| Line {
                    conversation: events.map(|events| near(events, &origin.line, around)).unwrap_or_default(),
                    line: origin.line,
                    excerpt: origin.excerpt,
                })
                .collect();
            let transcript_exists = reading.is_some();
            Some(Told {
                session,
                captured,
                transcript: transcript.display().to_string(),
                transcript_exists,
                lines,
            })
        })
        .collect()
}

/// A line's events with those around them.
fn near(events: &[Event], line: &str, around: usize) -> Vec<String> {
    let Some(first) = events.iter().position(|event| event.line == line) else { return Vec::new() };
    let last = events.iter().rposition(|event| event.line == line).unwrap_or(first);
    let range = first.saturating_sub(around)..(last + around + 1).min(events.len());
    range
        .clone()
        .zip(&events[range])
        .map(|(at, event)| {
            let mark = if (first..=last).contains(&at) { ">" } else { " " };
            format!("{mark} {}", said(event))
        })
        .collect()
}

fn said(event: &Event) -> String {
    let (who, text) = match &event.kind {
        EventKind::Human { text } => ("you", text.as_str()),
        EventKind::Assistant { text } => ("claude", text.as_str()),
        EventKind::ToolCall { summary, .. } => ("tool", summary.as_str()),
        EventKind::ToolResult { ok: true, output, .. } => ("result", output.as_str()),
        EventKind::ToolResult { output, .. } => ("failed", output.as_str()),
    };
    format!("{who}: {}", one_line(text, EVENT_CHARS_MAX))
}
