//! `nugget status`: what became of the sessions, at a glance.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use actors::ActorReport;
use actors::building::{self, Building};
use actors::service::{DRAINER_REPORT, DrainerReport};
use actors::sweep::{SWEEP_REPORT, SweepReport};
use brain::{Brain, Places};
use jiff::Timestamp;
use queue::{Capture, FileLocks, Pause, Queue, Spool, Stage, State, Tally};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::MissedTickBehavior;

use crate::fault::{Fault, USAGE};
use crate::output;
use crate::screen::Screen;
use crate::session::{Door, embed_settings};

/// What `--json` prints, as a JSON Schema.
const SCHEMA: &str = include_str!("../status.schema.json");
/// How often `--watch` looks.
const EVERY: Duration = Duration::from_secs(1);

const AFTER: &str = "\
Examples:
  nugget status
  nugget status --watch
  nugget status --json | jq .queue";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// The most captures to show, newest first
    #[arg(long, default_value_t = 10, value_name = "N")]
    limit: usize,
    /// Look again every second, until Ctrl-C
    #[arg(long, conflicts_with_all = ["json", "schema"])]
    watch: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print the JSON Schema of what --json prints
    #[arg(long, conflicts_with = "json")]
    schema: bool,
}

impl Arguments {
    pub(crate) fn run(self, door: &Door) -> Result<ExitCode, Fault> {
        if self.schema {
            output::print(SCHEMA)?;
            return Ok(ExitCode::SUCCESS);
        }
        let config = door.config()?;
        let brain = door.brain(&config)?;
        let embed = embed_settings(&config);
        let embedder = format!("{}, model {}", embed::runtime_of(&embed).0, embed::model_name(&embed));
        if self.watch {
            self.watch(&brain, &embedder)?;
        } else if self.json {
            output::print_json(&Picture::take(&brain, self.limit, &embedder)?.json(&brain))?;
        } else {
            output::print(&Picture::take(&brain, self.limit, &embedder)?.text(&brain))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn watch(&self, brain: &Brain, embedder: &str) -> Result<(), Fault> {
        if !std::io::stdout().is_terminal() {
            return Err(Fault::new("--watch needs a terminal")
                .code(USAGE)
                .hint("for a program there is `nugget status --json`"));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            // Before the screen is taken, so that no signal finds it taken and nobody listening.
            let mut end = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
                .into_iter()
                .map(signal)
                .collect::<Result<Vec<_>, _>>()?;
            let mut screen = Screen::enter(std::io::stdout())?;
            let mut ticks = tokio::time::interval(EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let [interrupt, terminate, hang_up] = &mut end[..] else { return Ok(()) };
            loop {
                tokio::select! {
                    _ = ticks.tick() => {
                        let text = Picture::take(brain, self.limit, embedder)?.text(brain);
                        screen.draw(&text, output::terminal_height())?;
                    }
                    _ = interrupt.recv() => return Ok(()),
                    _ = terminate.recv() => return Ok(()),
                    _ = hang_up.recv() => return Ok(()),
                }
            }
        })
    }
}

/// The brain's remote, as far as it is known without asking it.
struct Remote {
    url: String,
    lag: Option<forge::Lag>,
    synced: Option<Timestamp>,
    trouble: Option<String>,
    waits: Option<Pause>,
}

impl Remote {
    fn look(brain: &Brain) -> Option<Self> {
        let name = brain.manifest().ok().and_then(|manifest| manifest.default_branch);
        let repository = forge::Repository::open(brain.root()).ok()?.with_default_branch(name.as_deref());
        let url = repository.remote().ok()??.shown();
        Some(Self { url, lag: repository.lag().ok(), synced: None, trouble: None, waits: None })
    }

    fn json(&self) -> Value {
        let lag = self.lag.as_ref();
        json!({
            "url": self.url,
            "branch": lag.map(|lag| &lag.branch),
            "behind": lag.map_or(0, |lag| lag.behind),
            "ahead": lag.map_or(0, |lag| lag.ahead),
            "left": lag.and_then(|lag| lag.blocked.as_ref()).map(ToString::to_string),
            "synced": self.synced,
            "trouble": self.trouble,
            "waits": self.waits.as_ref().map(|pause| {
                json!({ "since": pause.since, "until": pause.until, "why": pause.why })
            }),
        })
    }

    fn told(&self, now: Timestamp) -> String {
        let synced = match self.synced {
            Some(at) => format!("looked at {} ago", output::age(at, now)),
            None => "not looked at yet: nugget sync".to_owned(),
        };
        let mut text = format!("remote   {} ({synced})\n", output::safe(&self.url));
        if let Some(lag) = &self.lag {
            let commits =
                |count: usize| if count == 1 { "1 commit".to_owned() } else { format!("{count} commits") };
            if lag.behind > 0 {
                let why = lag.blocked.as_ref().map(|why| format!(": {}", output::safe(&why.to_string())));
                text.push_str(&format!(
                    "         the checkout is {} behind {}{}\n",
                    commits(lag.behind),
                    output::safe(&lag.branch),
                    why.unwrap_or_default()
                ));
            }
            if lag.ahead > 0 {
                text.push_str(&format!(
                    "         {} of {} not pushed yet (git push)\n",
                    commits(lag.ahead),
                    output::safe(&lag.branch)
                ));
            }
        }
        if let Some(trouble) = &self.trouble {
            text.push_str(&format!("         the last look failed: {}\n", output::safe(trouble)));
        }
        if let Some(pause) = &self.waits {
            let left = pause.until.duration_since(now).as_secs().max(0);
            text.push_str(&format!(
                "         delivery waits, for {}; again in {left} s: {}\n",
                output::age(pause.since, now),
                output::safe(&pause.why)
            ));
        }
        text
    }
}

/// All that there is to see at one moment.
struct Picture {
    now: Timestamp,
    tally: Tally,
    spooled: usize,
    sweep: Option<(Timestamp, SweepReport)>,
    remote: Option<Remote>,
    running: bool,
    /// The drainer's process and what it says of itself, while it runs.
    drainer: Option<(u32, DrainerReport)>,
    captures: Vec<Capture>,
    /// Who is making the index at the moment.
    building: Option<Building>,
    embedder: String,
}

impl Picture {
    fn take(brain: &Brain, limit: usize, embedder: &str) -> Result<Self, Fault> {
        let places = Places::of(brain.root());
        let running = FileLocks::new(places.wait_lock(), places.drain_lock()).is_draining();
        let mut picture = Self {
            now: Timestamp::now(),
            tally: Tally::default(),
            spooled: Spool::new(places.spool()).list()?.len(),
            sweep: None,
            remote: Remote::look(brain),
            running,
            drainer: None,
            captures: Vec::new(),
            building: building::look(&places.indexing()),
            embedder: embedder.to_owned(),
        };
        // Looking must not make anything: a brain without captures has no queue yet.
        if places.queue().is_file() {
            let queue = Queue::open(&places.queue())?;
            picture.tally = queue.tally()?;
            picture.captures = queue.captures(limit)?;
            if let Some((pid, _, body)) = queue.last_report(DRAINER_REPORT)?.filter(|_| running) {
                picture.drainer = serde_json::from_str(&body).ok().map(|report| (pid, report));
            }
            if let Some((_, at, body)) = queue.last_report(SWEEP_REPORT)? {
                picture.sweep = serde_json::from_str(&body).ok().map(|report| (at, report));
            }
            if let Some(remote) = &mut picture.remote {
                let last = actors::sync::last(&queue)?;
                remote.trouble = last.as_ref().and_then(|(_, synced)| synced.trouble.clone());
                remote.synced = last.map(|(at, _)| at);
                remote.waits = queue.pauses()?.into_iter().find(|pause| pause.stage == Stage::Delivery);
            }
        }
        Ok(picture)
    }

    /// As `status.schema.json` describes it.
    fn json(&self, brain: &Brain) -> Value {
        let drainer = self.drainer.as_ref();
        json!({
            "brain": brain.root(),
            "queue": self.tally,
            "spooled": self.spooled,
            "sweep": self.sweep.as_ref().map(|(at, report)| json!({
                "at": at,
                "found": report.found,
                "queued": report.queued,
                "skipped": report.skipped,
            })),
            "remote": self.remote.as_ref().map(Remote::json),
            "drainer": {
                "running": self.running,
                "pid": drainer.map(|(pid, _)| pid),
                "since": drainer.map(|(_, report)| report.since),
                "actors": drainer.map(|(_, report)| &report.actors),
            },
            "index": { "embedder": self.embedder, "building": self.building },
            "captures": self.captures,
        })
    }

    fn text(&self, brain: &Brain) -> String {
        let mut text = format!("brain    {}\n", brain.root().display());
        text.push_str(&format!("captures {}\n", told(&self.tally, self.spooled)));
        text.push_str(&match (&self.drainer, self.running) {
            (Some((pid, report)), _) => {
                format!("drainer  running (process {pid}, for {})\n", output::age(report.since, self.now))
            }
            (None, true) => "drainer  running\n".to_owned(),
            (None, false) if self.tally.unfinished() > 0 => {
                "drainer  not running; the next session that ends starts it, or `nugget retry --all`\n"
                    .to_owned()
            }
            (None, false) => "drainer  not running, nothing to do\n".to_owned(),
        });
        text.push_str(&format!("vectors  by {}\n", output::safe(&self.embedder)));
        if let Some(building) = &self.building {
            text.push_str(&told_building(building, self.now));
        }
        if let Some((at, report)) = &self.sweep {
            let age = output::age(*at, self.now);
            let (queued, found) = (report.queued, report.found);
            text.push_str(&format!("sweep    {age} ago: {queued} queued of {found} sessions on disk\n"));
        }
        if let Some(remote) = &self.remote {
            text.push_str(&remote.told(self.now));
        }
        if let Some((_, report)) = &self.drainer {
            text.push('\n');
            text.push_str(&actors(&report.actors));
        }
        if !self.captures.is_empty() {
            text.push('\n');
            text.push_str(&table(&self.captures, self.now));
        }
        text
    }
}

fn told_building(building: &Building, now: Timestamp) -> String {
    let Building { pid, since, model, present, done, of } = building;
    let age = output::age(*since, now);
    let what = match present {
        Some(present) if present != model => {
            format!("anew by {}; until then that of {} answers", output::safe(model), output::safe(present))
        }
        _ => "what is new".to_owned(),
    };
    format!("index    {done} of {of} texts embedded, {what} (process {pid}, for {age})\n")
}

fn actors(actors: &[ActorReport]) -> String {
    let mut rows = vec![["ACTOR", "STATE", "MAILBOX", "RESTARTS", "LAST ERROR"].map(str::to_owned).to_vec()];
    rows.extend(actors.iter().map(|actor| {
        let error = output::safe(actor.last_error.as_deref().unwrap_or_default());
        vec![
            actor.name.clone(),
            actor.state.clone(),
            actor.mailbox.to_string(),
            actor.restarts.to_string(),
            error,
        ]
    }));
    output::table(&rows)
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
                let place = capture.pull_url.as_deref().or(capture.branch.as_deref()).unwrap_or_default();
                let state = match capture.pull_state {
                    Some(state) => format!(", {state}"),
                    None if capture.pushed.is_some() => ", pushed".to_owned(),
                    None => String::new(),
                };
                output::safe(&format!("{place} ({} units{state})", capture.units))
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
