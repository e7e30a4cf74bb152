//! `nugget status`: what became of the sessions, at a glance.

mod remote;
mod view;
mod watch;

use std::process::ExitCode;
use std::time::Duration;

use actors::brain_view::BrainView;
use actors::index_progress::{self, IndexProgress};
use actors::service::{WORKER_REPORT, WorkerReport};
use actors::sweep::{SWEEP_REPORT, SweepReport};
use brain::{Brain, Config, Files as _, StatePaths};
use git::Repository;
use index::IndexStatus;
use jiff::Timestamp;
use queue::{BUDGET_SPAN, Budget, Capture, FileLocks, PullState, Queue, Spool, Stage, State, Tally};
use serde::Serialize;
use serde_json::{Value, json};

use self::remote::Remote;
use crate::context::{Context, embed_settings};
use crate::error::CliError;
use crate::{extractor, output};

/// What `--json` prints, as a JSON Schema.
const SCHEMA: &str = include_str!("../status.schema.json");
/// How many failures are told, and how old a final one may be.
const TROUBLES_MAX: usize = 3;
const TROUBLES_WITHIN: Duration = Duration::from_secs(7 * 24 * 60 * 60);

const AFTER: &str = "\
Colours are left out where stdout is no terminal and with NO_COLOR. While it is
watched, q or Ctrl-C ends it; where stdout is no terminal the text comes again
every second.

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
    /// Look again every second, until q or Ctrl-C
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
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        if self.schema {
            output::print(SCHEMA)?;
            return Ok(ExitCode::SUCCESS);
        }
        let config = context.config()?;
        let brain = context.brain(&config)?;
        let embed = embed_settings(&config);
        let embedder = format!("{}, model {}", embed::runtime_of(&embed).0, embed::model_name(&embed));
        let look = || Picture::take(&brain, &config, self.limit, &embedder);
        if self.watch {
            watch::watch(look)?;
        } else if self.json {
            output::print_json(&look()?.json())?;
        } else {
            output::print(&output::styled(&look()?.lines(output::terminal_width())))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// All that there is to see at one moment.
struct Picture {
    now: Timestamp,
    brain: Brain,
    tally: Tally,
    /// Unfinished captures by stage.
    depths: Vec<(Stage, u64)>,
    spooled: usize,
    /// When the next capture that waits is due.
    next_retry: Option<Timestamp>,
    sweep: Option<(Timestamp, SweepReport)>,
    remote: Option<Remote>,
    running: bool,
    /// The drainer's process and what it says of itself, while it runs.
    drainer: Option<(u32, WorkerReport)>,
    captures: Vec<Capture>,
    /// What became of the branches of those of them that are done, by their numbers.
    reviews: Vec<Review>,
    /// The latest failures.
    troubles: Vec<Capture>,
    spend: Spend,
    /// The present generation.
    index: Option<IndexStatus>,
    /// Who is making the index at the moment.
    building: Option<IndexProgress>,
    embedder: String,
}

/// What models have cost in the last 24 hours, beside what they may.
#[derive(Clone, Copy, Serialize)]
struct Spend {
    tokens: u64,
    microdollars: u64,
    budget_tokens: u64,
    budget_microdollars: u64,
}

/// How far the review of a capture's branch is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Review {
    capture: i64,
    branch: String,
    state: ReviewState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum ReviewState {
    Waiting,
    Merged,
    /// Its pull request was closed.
    Closed,
    /// There is no such branch any more.
    Gone,
}

impl Picture {
    fn take(brain: &Brain, config: &Config, limit: usize, embedder: &str) -> Result<Self, CliError> {
        let places = StatePaths::for_brain(brain.root());
        let now = Timestamp::now();
        let Budget { tokens: budget_tokens, microdollars: budget_microdollars } = extractor::budget(config);
        let mut picture = Self {
            now,
            brain: brain.clone(),
            tally: Tally::default(),
            depths: Stage::ALL.into_iter().map(|stage| (stage, 0)).collect(),
            spooled: Spool::new(places.spool()).list()?.len(),
            next_retry: None,
            sweep: None,
            remote: Remote::look(brain),
            running: FileLocks::new(places.wait_lock(), places.drain_lock()).is_draining(),
            drainer: None,
            captures: Vec::new(),
            reviews: Vec::new(),
            troubles: Vec::new(),
            spend: Spend { tokens: 0, microdollars: 0, budget_tokens, budget_microdollars },
            index: None,
            building: index_progress::read(&places.indexing()),
            embedder: embedder.to_owned(),
        };
        // The files of a large brain take as long as all the rest.
        picture.index = std::thread::scope(|scope| {
            let index = scope.spawn(|| {
                BrainView::open(brain)
                    .files()
                    .map(|files| index::read_status(&brain.derived_folder(), &files))
            });
            // Looking must not make anything: a brain without captures has no queue yet.
            if places.queue().is_file() {
                picture.look_into(&Queue::open(&places.queue())?, limit)?;
                picture.reviews = reviews(brain, &picture.captures);
            }
            let index =
                index.join().map_err(|_| CliError::new("the look at the brain's files has crashed"))?;
            Ok::<_, CliError>(index?)
        })?;
        Ok(picture)
    }

    fn look_into(&mut self, queue: &Queue, limit: usize) -> Result<(), CliError> {
        self.tally = queue.tally()?;
        self.depths = queue.stage_depths()?;
        self.next_retry = queue.next_due()?.filter(|due| *due > self.now);
        self.captures = queue.captures(limit)?;
        self.troubles = queue.recent_failures(TROUBLES_MAX, TROUBLES_WITHIN, self.now)?;
        for call in queue.model_calls(self.now.checked_sub(BUDGET_SPAN).unwrap_or(Timestamp::UNIX_EPOCH))? {
            self.spend.tokens += call.cost.tokens();
            self.spend.microdollars += call.cost.microdollars;
        }
        if let Some((pid, _, body)) = queue.last_report(WORKER_REPORT)?.filter(|_| self.running) {
            self.drainer = serde_json::from_str(&body).ok().map(|report| (pid, report));
        }
        if let Some((_, at, body)) = queue.last_report(SWEEP_REPORT)? {
            self.sweep = serde_json::from_str(&body).ok().map(|report| (at, report));
        }
        if let Some(remote) = &mut self.remote {
            remote.look_into(queue)?;
        }
        Ok(())
    }

    /// As `status.schema.json` describes it.
    fn json(&self) -> Value {
        let drainer = self.drainer.as_ref();
        let index = self.index.as_ref();
        let stages: serde_json::Map<String, Value> =
            self.depths.iter().map(|(stage, depth)| (stage.to_string(), (*depth).into())).collect();
        json!({
            "brain": self.brain.root(),
            "queue": self.tally,
            "stages": stages,
            "spooled": self.spooled,
            "next_retry": self.next_retry,
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
            "index": {
                "generation": index.map(|index| index.generation),
                "built": index.and_then(|index| index.built),
                "model": index.map(|index| &index.model),
                "units": index.map(|index| index.units),
                "chunks": index.map(|index| index.chunks),
                "problems": index.map(|index| index.problems),
                "behind": index.map(|index| index.behind),
                "embedder": self.embedder,
                "building": self.building,
            },
            "spend": self.spend,
            "captures": self.captures,
            "reviews": self.reviews,
            "troubles": self.troubles,
        })
    }
}

/// How far the review of each capture's branch is; nothing of those about which git cannot be asked.
fn reviews(brain: &Brain, captures: &[Capture]) -> Vec<Review> {
    let done = |capture: &&Capture| capture.state == State::Done && capture.branch.is_some();
    if !captures.iter().any(|capture| done(&capture)) {
        return Vec::new();
    }
    let named = brain.manifest().ok().and_then(|manifest| manifest.default_branch);
    let Ok(repository) = Repository::open(brain.root()) else { return Vec::new() };
    let repository = repository.with_default_branch(named.as_deref());
    let review = |capture: &Capture| {
        let branch = capture.branch.clone()?;
        let state = match (capture.pull_state, repository.is_merged(&branch)) {
            (Some(PullState::Merged), _) | (_, Ok(true)) => ReviewState::Merged,
            (Some(PullState::Closed), _) => ReviewState::Closed,
            (Some(PullState::Open), _) | (None, Ok(false)) => ReviewState::Waiting,
            (None, Err(git::Error::NoSuchBranch { .. })) => ReviewState::Gone,
            (None, Err(_)) => return None,
        };
        Some(Review { capture: capture.id, branch, state })
    };
    captures.iter().filter(done).filter_map(review).collect()
}
