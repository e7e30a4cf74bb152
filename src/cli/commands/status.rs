//! `nugget status`: what became of the sessions, at a glance.

use std::process::ExitCode;

use actors::service::{DRAINER_REPORT, DrainerReport};
use brain::Places;
use jiff::Timestamp;
use queue::{Capture, FileLocks, Queue, Spool, State, Tally};
use serde_json::json;

use crate::fault::Fault;
use crate::output;
use crate::session::Door;

const AFTER: &str = "\
Examples:
  nugget status
  nugget status --json | jq .queue";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// The most captures to show, newest first
    #[arg(long, default_value_t = 10, value_name = "N")]
    limit: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, door: &Door) -> Result<ExitCode, Fault> {
        let config = door.config()?;
        let brain = door.brain(&config)?;
        let places = Places::of(brain.root());
        let locks = FileLocks::new(places.wait_lock(), places.drain_lock());
        let now = Timestamp::now();
        let spooled = Spool::new(places.spool()).list()?.len();
        // Looking must not make anything: a brain without captures has no queue yet.
        let (tally, captures, report) = if places.queue().is_file() {
            let queue = Queue::open(&places.queue())?;
            (queue.tally()?, queue.captures(self.limit)?, queue.last_report(DRAINER_REPORT)?)
        } else {
            (Tally::default(), Vec::new(), None)
        };
        let running = locks.is_draining();
        let report = report
            .and_then(|(pid, at, body)| Some((pid, at, serde_json::from_str::<DrainerReport>(&body).ok()?)));
        let current = report.filter(|_| running);

        if self.json {
            let drainer = json!({
                "running": running,
                "pid": current.as_ref().map(|(pid, ..)| pid),
                "since": current.as_ref().map(|(_, _, report)| report.since),
                "actors": current.as_ref().map(|(_, _, report)| &report.actors),
            });
            output::print_json(&json!({
                "brain": brain.root(),
                "queue": tally,
                "spooled": spooled,
                "drainer": drainer,
                "captures": captures,
            }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut text = format!("brain    {}\n", brain.root().display());
        text.push_str(&format!("captures {}\n", told(&tally, spooled)));
        text.push_str(&match (&current, running) {
            (Some((pid, _, report)), _) => {
                format!("drainer  running (process {pid}, for {})\n", output::age(report.since, now))
            }
            (None, true) => "drainer  running\n".to_owned(),
            (None, false) if tally.unfinished() > 0 => {
                "drainer  not running; the next session that ends starts it, or `nugget retry --all`\n"
                    .to_owned()
            }
            (None, false) => "drainer  not running, nothing to do\n".to_owned(),
        });
        if let Some((_, _, report)) = &current {
            for actor in report.actors.iter().filter(|actor| actor.restarts > 0) {
                let error = actor.last_error.as_deref().unwrap_or_default();
                text.push_str(&format!(
                    "         {} was restarted {} times: {error}\n",
                    actor.name, actor.restarts
                ));
            }
        }
        if !captures.is_empty() {
            text.push('\n');
            text.push_str(&table(&captures, now));
        }
        output::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn told(tally: &Tally, spooled: usize) -> String {
    let counts = [
        (spooled as u64, "spooled"),
        (tally.queued, "queued"),
        (tally.running, "running"),
        (tally.retrying, "retrying"),
        (tally.done, "done"),
        (tally.nothing, "nothing to save"),
        (tally.dead, "dead"),
    ];
    let told: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    if told.is_empty() { "none yet".to_owned() } else { told.join(", ") }
}

fn table(captures: &[Capture], now: Timestamp) -> String {
    let mut rows = vec![["ID", "AGE", "STATE", "SESSION", "RESULT"].map(str::to_owned).to_vec()];
    rows.extend(captures.iter().map(|capture| {
        let reason = || output::safe(capture.reason.as_deref().unwrap_or_default());
        let result = match capture.state {
            State::Done => {
                format!("{} ({} units)", capture.branch.as_deref().unwrap_or_default(), capture.units)
            }
            State::Nothing => reason(),
            State::Dead => format!("{}; nugget retry {}", reason(), capture.id),
            State::Retrying => {
                let wait = capture.next_attempt.map_or(0, |next| next.duration_since(now).as_secs().max(0));
                format!("{} in {wait} s: {}", capture.stage, reason())
            }
            State::Queued | State::Running => capture.stage.to_string(),
        };
        vec![
            capture.id.to_string(),
            output::age(capture.added, now),
            capture.state.to_string(),
            capture.session_id.short(),
            result,
        ]
    }));
    output::table(&rows)
}
