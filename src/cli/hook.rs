//! What the hooks of Claude Code have in common: one line of JSON on stdin, and little time.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use brain::{Config, StatePaths};
use jiff::Timestamp;
use queue::{Showing, Shown, ShownBy};
use serde::Deserialize;
use transcript::json_scan;

use crate::commands::context::full_path;
use crate::context::Context;
use crate::error::{CliError, USAGE};
use crate::{learning, output};

/// How long the start of the process may have taken before the deadline's clock starts.
const STARTUP: Duration = Duration::from_millis(15);
/// How long the process waits for what is recorded after its answer, which usually takes a millisecond.
const RECORD_WAIT: Duration = Duration::from_millis(60);
/// How long the line of a hook that only queues or declines its session may take to arrive. Some clients leave stdin open
/// for ever.
pub(crate) const STDIN_DEADLINE: Duration = Duration::from_millis(800);

/// The hook's line of JSON.
#[derive(Deserialize)]
pub(crate) struct HookInput {
    pub(crate) session_id: String,
    pub(crate) transcript_path: Option<PathBuf>,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) hook_event_name: Option<String>,
    pub(crate) source: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) prompt: Option<String>,
    pub(crate) tool_name: Option<String>,
    pub(crate) tool_input: Option<serde_json::Value>,
    /// What a failed tool has answered.
    pub(crate) error: Option<String>,
    /// What a tool has answered that has not failed.
    pub(crate) tool_response: Option<serde_json::Value>,
    /// Whether the person has stopped the tool.
    pub(crate) is_interrupt: Option<bool>,
    /// The subagent that acts.
    pub(crate) agent_id: Option<String>,
}

/// Reads one line of stdin, unless it is blank or comes too late.
pub(crate) fn read_line_in_time(deadline: Duration) -> Option<Vec<u8>> {
    let line = system::file::read_stdin_line(guard::LINE_BYTES_MAX, Instant::now() + deadline)?;
    Some(line).filter(|line| !line.iter().all(u8::is_ascii_whitespace))
}

/// What a hook prints, and what it records once that is printed.
pub(crate) struct HookAnswer {
    pub(crate) text: String,
    record: Option<Box<dyn FnOnce() + Send>>,
}

impl HookAnswer {
    /// An answer, recorded by `write` as shown to its session; `None` if there is neither.
    pub(crate) fn recorded(
        text: String,
        config: &Config,
        by: ShownBy,
        session: &str,
        shown: Vec<Shown>,
        write: impl FnOnce(&Showing) + Send + 'static,
    ) -> Option<Self> {
        let is_recorded = learning::is_enabled(config) && !shown.is_empty();
        let showing = is_recorded.then(|| Showing::by_hook(by, session, Timestamp::now(), shown));
        let record = showing.map(|showing| Box::new(move || write(&showing)) as Box<dyn FnOnce() + Send>);
        (!text.is_empty() || record.is_some()).then_some(Self { text, record })
    }
}

/// Writes what was shown into the brain's queue.
pub(crate) fn into_queue(places: &StatePaths) -> impl FnOnce(&Showing) + Send + 'static {
    let places = places.clone();
    move |showing| {
        // Without the queue nothing is captured either; `nugget doctor` says so.
        if places.folder().is_dir() || places.create().is_ok() {
            let _ = queue::record_shown(&places.queue(), showing);
        }
    }
}

impl From<String> for HookAnswer {
    fn from(text: String) -> Self {
        Self { text, record: None }
    }
}

/// Runs a hook's work with a deadline and prints its result. A failure or a timeout prints nothing. What is recorded of it
/// is written after that, and not waited for if it takes long.
pub(crate) fn answer_in_time(
    deadline_ms: u64,
    work: impl FnOnce(HookInput) -> Option<HookAnswer> + Send + 'static,
) -> Result<(), CliError> {
    if std::io::stdin().is_terminal() {
        return Err(CliError::new("this command is a hook of Claude Code")
            .code(USAGE)
            .hint("`nugget install` sets it up; it reads one line of JSON on stdin"));
    }
    if brain::config::is_disabled() {
        return Ok(());
    }
    let deadline = Duration::from_millis(deadline_ms).saturating_sub(STARTUP);
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let input = read_line_in_time(deadline).and_then(|line| json_scan::parse(&line).ok());
        let answer = input.and_then(work);
        let (text, record) = answer.map_or((None, None), |answer| (Some(answer.text), answer.record));
        let is_sent = sender.send(text).is_ok();
        if let Some(record) = record.filter(|_| is_sent) {
            record();
        }
    });
    if let Ok(Some(answer)) = receiver.recv_timeout(deadline) {
        if !answer.is_empty() {
            // Fails only if the client has gone.
            let _ = output::print(&format!("{answer}\n"));
        }
        // Ends when the thread does.
        let _ = receiver.recv_timeout(RECORD_WAIT);
    }
    Ok(())
}

/// Declines the session of a hook that runs with `NUGGET_DISABLE`, as far as its line comes in time: a client that is
/// killed calls no hook at the end. A failure is not reported, as a hook must never fail the session.
pub(crate) fn decline_early(context: &Context) {
    if std::io::stdin().is_terminal() {
        return;
    }
    let line = read_line_in_time(STDIN_DEADLINE);
    let input: Option<HookInput> = line.and_then(|line| json_scan::parse(&line).ok());
    if let Some(transcript) = input.and_then(|input| input.transcript_path).filter(|path| path.is_absolute())
    {
        let _ = decline(context, &transcript);
    }
}

/// Records that sweeps must not capture the session of a transcript, which need not exist yet; nor the brain.
pub(crate) fn decline(context: &Context, transcript: &Path) -> Result<(), CliError> {
    if !brain::paths::has_home() {
        return Err(CliError::no_home());
    }
    let root = context.root(&context.config_and_errors().0);
    let places = StatePaths::for_brain(&full_path(&root)?);
    places.create()?;
    Ok(queue::decline(&places.queue(), &full_path(transcript)?, Timestamp::now())?)
}

/// The folder that the session was started in: its `cwd` follows every `cd`.
pub(crate) fn project_folder(cwd: Option<PathBuf>) -> Option<PathBuf> {
    non_empty("CLAUDE_PROJECT_DIR").map(PathBuf::from).or(cwd)
}

fn non_empty(variable: &str) -> Option<OsString> {
    std::env::var_os(variable).filter(|value| !value.is_empty())
}

/// An upper bound of a text's tokens, without loading a tokenizer: one for every three letters of a word, one
/// for each ASCII symbol, and two for any other character.
pub(crate) fn tokens_max(text: &str) -> usize {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).map(|word| word.len().div_ceil(3));
    let marks = text.chars().filter(|c| !c.is_ascii_alphanumeric() && !c.is_whitespace());
    words.sum::<usize>() + marks.map(|mark| if mark.is_ascii() { 1 } else { 2 }).sum::<usize>()
}

/// Lines about units, as many as fit.
pub(crate) struct Lines(Vec<(String, String)>);

impl Lines {
    /// The lines that fit into so many tokens, up to the first that does not, each with its unit.
    pub(crate) fn fitting(mut room: usize, lines: impl Iterator<Item = (String, String)>) -> Self {
        let fitting = lines.map_while(|(line, unit)| {
            room = room.checked_sub(tokens_max(&line))?;
            Some((line, unit))
        });
        Self(fitting.collect())
    }

    /// The text of the lines whose units are told to a session, and what is recorded of all of them.
    pub(crate) fn withhold(self, config: &Config, session: &str) -> (String, Vec<Shown>) {
        let (mut text, mut shown) = (String::new(), Vec::new());
        for (rank, (line, unit)) in self.0.into_iter().enumerate() {
            let is_withheld = learning::is_withheld(config, session, &unit);
            shown.push(Shown::unit(&unit, rank, tokens_max(&line), is_withheld));
            if !is_withheld {
                text.push_str(&line);
            }
        }
        (text, shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_never_below_the_tokens() {
        let tokenizer = embed::Embedder::load(&embed::Settings::default()).unwrap().tokenizer().clone();
        for text in [
            "Send an idempotency key with every retried payment (bug, payments; send-an-idempotency-key)",
            "Größe des Überlaufs prüfen",
            "連線池必須有上限",
            "- a_b::c(d) -> e[0] != f && g;",
        ] {
            let tokens = knowledge::CountTokens::count(&tokenizer, text);
            assert!(tokens_max(text) >= tokens, "{text}: {tokens}");
        }
    }
}
