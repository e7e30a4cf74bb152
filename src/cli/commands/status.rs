//! `nugget status`: shows what waits for the person, and what is being done.

mod remote;
mod team;
mod view;
mod watch;

use std::time::Duration;

use actors::BrainView;
use actors::archiving::{self, ArchiveReport};
use actors::index_progress::{self, IndexProgress};
use actors::sweep::{SWEEP_REPORT, SweepReport};
use actors::{WORKER_REPORT, WorkerReport};
use brain::{Brain, Config, Files as _, StatePaths};
use git::CommitId;
use index::IndexStatus;
use jiff::{SignedDuration, Timestamp};
use knowledge::name::file_stem;
use queue::{
    BUDGET_SPAN, Budget, Capture, Decision, FileDecision, FileLocks, GuardTally, PullState, Queue, Spool,
    Stage, State, Tally, ended_branch,
};
use serde::Serialize;
use serde_json::{Value, json};

use self::remote::RemoteStatus;
use self::team::ServerStatus;
use crate::archive::{is_enabled, open_archive};
use crate::context::Context;
use crate::error::CliError;
use crate::remote::{open_repository, unfinished};
use crate::spawn::take_in_spooled;
use crate::state_check::StateProblem;
use crate::whole_number::whole_number;
use crate::{extractor, output, pager, settings};

/// The JSON Schema of what `--json` prints.
const SCHEMA: &str = include_str!("../status.schema.json");
/// How many captures are shown without `--limit`.
const CAPTURES_MAX: usize = 10;
/// How long a worker may take to start after a hook has queued a capture.
const WORKER_STARTS_WITHIN: SignedDuration = SignedDuration::from_secs(10);
/// How many of the captures that wait are read: most of them have one reason.
const WAITING_READ_MAX: usize = 100;
/// How many captures are named that are being worked on.
const RUNNING_MAX: usize = 3;
/// The actors that work on no capture. They are shown after those of the stages.
const OTHER_ACTORS: [&str; 3] = ["retrieval", "archiving", "learning"];
/// How many failures are shown, and how old a final one may be.
const FAILURES_MAX: usize = 3;
const FAILURES_WITHIN: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Over which time the guard's words are counted.
const GUARD_WITHIN: SignedDuration = SignedDuration::from_hours(7 * 24);

const AFTER: &str = "\
It says what waits for you and what is being done. With -v it also shows the
worker, its actors, the stages of the queue and the index.

Colors are used only if stdout is a terminal and NO_COLOR is not set. With
--watch, q or Ctrl-C quits; if stdout is not a terminal, the text is printed
again every second.

Examples:
  nugget status
  nugget status --watch
  nugget status --json --all | jq '.captures[].state'";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct StatusArgs {
    /// How many captures to show, newest first [default: 10]
    #[arg(long, value_name = "N", value_parser = whole_number(0_u32..))]
    limit: Option<u32>,
    /// Show all captures
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Update every second, until q or Ctrl-C
    #[arg(long, conflicts_with_all = ["json", "schema"])]
    watch: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print the JSON Schema of what --json prints
    #[arg(long, conflicts_with = "json")]
    schema: bool,
}

impl StatusArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        if self.schema {
            return output::print_verbatim(SCHEMA);
        }
        let (config, brain, _) = context.open()?;
        let embedding = settings::embedding(&config);
        let embedder =
            format!("{}, model {}", embed::find_runtime(&embedding).0, embed::model_name(&embedding));
        let limit = match self.limit {
            // The largest number that SQLite takes.
            None if self.all => i64::MAX as usize,
            limit => limit.map_or(CAPTURES_MAX, |limit| limit as usize),
        };
        let read = || Status::read(&brain, &config, limit, &embedder);
        let is_detailed = context.verbosity > 0;
        if self.watch {
            watch::watch(read, |status: &Status, width| status.lines(width, is_detailed))
        } else if self.json {
            output::print_json(&read()?.to_json())
        } else {
            let lines = read()?.lines(output::row_width(), is_detailed);
            pager::print(context, &output::styled(&lines))
        }
    }
}

/// The status at one moment.
struct Status {
    now: Timestamp,
    brain: Brain,
    tally: Tally,
    /// Unfinished captures by stage.
    depths: Vec<(Stage, u64)>,
    spooled: usize,
    /// When the next waiting capture is due.
    next_retry: Option<Timestamp>,
    sweep: Option<(Timestamp, SweepReport)>,
    /// Why a model has not read all of the last session, and when that was.
    unread: Option<(Timestamp, String)>,
    /// The last look for what is not archived.
    archive: Option<(Timestamp, ArchiveReport)>,
    /// How often the guard spoke within [`GUARD_WITHIN`].
    guard: GuardTally,
    remote: Option<RemoteStatus>,
    /// The team's server that the brain belongs to.
    server: Option<ServerStatus>,
    is_running: bool,
    /// What keeps a worker from running.
    problem: Option<StateProblem>,
    /// Whether it could not be read what waits for review.
    is_review_unknown: bool,
    /// An operation of git's that a person has begun.
    unfinished: Option<git::Unfinished>,
    /// The worker's process id and report, while it runs.
    worker: Option<(u32, WorkerReport)>,
    /// The latest captures, as many as were asked for.
    captures: Vec<Capture>,
    /// The captures that a worker works on.
    running: Vec<Capture>,
    /// The oldest of those that have a reason to wait.
    waiting: Vec<Capture>,
    /// The reviews of the captures that are done.
    reviews: Vec<Review>,
    /// What waits on other branches: of older captures, or made elsewhere.
    other_reviews: Vec<Review>,
    /// The latest failures.
    failures: Vec<Capture>,
    spend: Spend,
    /// The present generation of the index.
    index: Option<IndexStatus>,
    /// The build in progress.
    building: Option<IndexProgress>,
    embedder: String,
}

/// What models have cost in the last 24 hours, and their budget.
#[derive(Clone, Serialize)]
struct Spend {
    tokens: u64,
    microdollars: u64,
    budget_tokens: u64,
    budget_microdollars: u64,
    /// What to know of a model without a known price.
    unknown_prices: Option<String>,
}

/// The review of a branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Review {
    /// `None` for one that was made elsewhere.
    capture: Option<i64>,
    branch: String,
    state: ReviewState,
    /// The titles of what waits, if it does.
    titles: Vec<String>,
    /// How many units were put off.
    #[serde(skip)]
    put_off: usize,
    /// How many of its files were merged in the inbox.
    #[serde(skip)]
    merged: usize,
    /// How many of its files were rejected, or left out when it was merged.
    #[serde(skip)]
    rejected: usize,
}

impl Review {
    /// The review of a capture, without what waits; `None` if git cannot tell. `is_own` tells the files of the capture where
    /// several share a branch; `is_ended` that the branch is another one of that name by now; `merged_at` the commit at
    /// which it is merged without that being recorded.
    fn read(
        repository: &git::Repository,
        capture: &Capture,
        decisions: &[FileDecision],
        is_own: impl Fn(&str) -> bool,
        is_ended: bool,
        merged_at: Option<CommitId>,
    ) -> Option<Self> {
        let branch = capture.branch.clone()?;
        let decided_as = if is_ended { ended_branch(&branch, capture.id) } else { branch.clone() };
        let own = || decisions.iter().filter(|file| file.branch == decided_as && is_own(&file.path));
        let merged = own().filter(|file| file.decision == Decision::Merged).count();
        let mut rejected = own().filter(|file| matches!(file.decision, Decision::Rejected { .. })).count();
        if let Some(commit) = merged_at {
            let outcome = actors::merge_outcome(repository, decisions, &branch, commit).unwrap_or_default();
            let count = |paths: &[String]| paths.iter().filter(|path| is_own(path)).count();
            rejected += count(&outcome.left_out);
            rejected = rejected.saturating_sub(count(&outcome.rejected_in_it));
        }
        let state = match capture.pull_state {
            _ if merged_at.is_some() => ReviewState::Merged,
            Some(PullState::Merged) => ReviewState::Merged,
            Some(PullState::Closed) => ReviewState::Closed,
            Some(PullState::Open) => ReviewState::Waiting,
            None if is_ended => ReviewState::Merged,
            None => match repository.tip(&branch) {
                Ok(Some(_)) => ReviewState::Waiting,
                Ok(None) => ReviewState::Gone,
                Err(_) => return None,
            },
        };
        Some(Self {
            capture: Some(capture.id),
            branch,
            state,
            titles: Vec::new(),
            put_off: 0,
            merged,
            rejected,
        })
    }

    /// Ends a review of which everything is decided, though its branch stays until what was merged is pushed. What was added
    /// to a branch that is only at the remote cannot be said.
    fn end_if_decided(&mut self, repository: &git::Repository) {
        let is_decided = self.state == ReviewState::Waiting
            && self.titles.is_empty()
            && self.put_off == 0
            && self.merged + self.rejected > 0;
        if is_decided && repository.tip(&self.branch).is_ok_and(|tip| tip.is_some()) {
            self.state = if self.merged > 0 { ReviewState::Merged } else { ReviewState::Closed };
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum ReviewState {
    Waiting,
    Merged,
    /// Its pull request was closed.
    Closed,
    /// The branch was deleted without a merge.
    Gone,
}

/// The commit of a capture's branch of which it is to be found out whether it is merged, as that is not recorded. A branch
/// that was closed is only looked at while it exists.
fn commit_to_look_for(repository: &git::Repository, capture: &Capture) -> Option<CommitId> {
    let tip = repository.tip(capture.branch.as_deref()?).ok()?;
    match capture.pull_state {
        Some(PullState::Merged) => None,
        Some(PullState::Closed) => tip,
        Some(PullState::Open) | None => tip.or_else(|| capture.commit.as_deref()?.parse().ok()),
    }
}

/// Whether a worker should be at some of the captures that are not finished: more are than have come since one takes to
/// start, of the newest `captures`, and than wait for a team's server that cannot be reached.
pub(super) fn needs_worker(
    unfinished: u64,
    captures: &[Capture],
    depths: &[(Stage, u64)],
    is_server_away: bool,
    now: Timestamp,
) -> bool {
    let is_new = |capture: &&Capture| {
        !capture.state.is_final() && now.duration_since(capture.added) < WORKER_STARTS_WITHIN
    };
    let new = captures.iter().filter(is_new).count() as u64;
    // Why these wait is known, and no worker would change it.
    let at_server = depths.iter().find(|(stage, _)| *stage == Stage::Upload && is_server_away);
    unfinished > new.max(at_server.map_or(0, |(_, waiting)| *waiting))
}

impl Status {
    fn read(brain: &Brain, config: &Config, limit: usize, embedder: &str) -> Result<Self, CliError> {
        let places = StatePaths::for_brain(brain.root());
        take_in_spooled(&places, brain);
        let now = Timestamp::now();
        let (server, login_problem) = match ServerStatus::read(&places) {
            Ok(server) => (server, None),
            Err(error) => (None, Some(StateProblem::of_login(&error))),
        };
        let problem = StateProblem::find(brain.root(), &places);
        let problem = problem.or_else(|| StateProblem::find_waiting(&places)).or(login_problem);
        let Budget { tokens: budget_tokens, microdollars: budget_microdollars } = extractor::budget(config);
        let mut status = Self {
            now,
            brain: brain.clone(),
            tally: Tally::default(),
            depths: Stage::ALL.into_iter().map(|stage| (stage, 0)).collect(),
            spooled: Spool::new(places.spool()).list()?.len(),
            next_retry: None,
            sweep: None,
            unread: None,
            archive: None,
            guard: GuardTally::default(),
            remote: RemoteStatus::read(brain),
            server,
            is_running: FileLocks::new(places.wait_lock(), places.drain_lock()).is_draining(),
            problem,
            is_review_unknown: false,
            unfinished: unfinished(brain),
            worker: None,
            captures: Vec::new(),
            running: Vec::new(),
            waiting: Vec::new(),
            reviews: Vec::new(),
            other_reviews: Vec::new(),
            failures: Vec::new(),
            spend: Spend {
                tokens: 0,
                microdollars: 0,
                budget_tokens,
                budget_microdollars,
                unknown_prices: extractor::unknown_prices(config),
            },
            index: None,
            building: index_progress::read(&places.indexing()),
            embedder: embedder.to_owned(),
        };
        // Listing the files of a large brain takes as long as everything else.
        status.index = std::thread::scope(|scope| {
            let index = scope.spawn(|| {
                let branch = brain.manifest().ok().and_then(|manifest| manifest.default_branch);
                BrainView::with_pending_notes(brain, branch.as_deref(), &places.queue())
                    .files()
                    .map(|files| index::read_status(&brain.derived_folder(), &files))
            });
            // The command creates nothing, and a brain without captures has no queue yet.
            let path = Some(places.queue()).filter(|path| path.is_file());
            let queue = path.map(|path| Queue::open(&path)).transpose()?;
            if let Some(queue) = &queue {
                status.read_queue(queue, limit)?;
            }
            status.read_reviews(brain, queue.as_ref());
            let index = index.join().map_err(|_| CliError::new("reading the brain's files crashed"))?;
            Ok::<_, CliError>(index?)
        })?;
        status.read_archive(config);
        Ok(status)
    }

    fn read_queue(&mut self, queue: &Queue, limit: usize) -> Result<(), CliError> {
        self.tally = queue.tally()?;
        self.depths = queue.stage_depths()?;
        self.next_retry = queue.next_due()?.filter(|due| *due > self.now);
        self.captures = queue.captures(limit)?;
        self.running = queue.running(RUNNING_MAX)?;
        self.waiting = queue.waiting(WAITING_READ_MAX)?;
        if !self.is_running {
            self.set_back_unworked();
        }
        self.failures = queue.recent_failures(FAILURES_MAX, FAILURES_WITHIN, self.now)?;
        for call in queue.model_calls(self.now.checked_sub(BUDGET_SPAN).unwrap_or(Timestamp::UNIX_EPOCH))? {
            self.spend.tokens += call.cost.tokens();
            self.spend.microdollars += call.cost.microdollars;
        }
        if let Some((pid, _, body)) = queue.last_report(WORKER_REPORT)?.filter(|_| self.is_running) {
            self.worker = serde_json::from_str(&body).ok().map(|mut report: WorkerReport| {
                let shown = || Stage::ALL.into_iter().map(Stage::as_str).chain(OTHER_ACTORS);
                let place = |name: &str| shown().position(|actor| actor == name).unwrap_or(usize::MAX);
                report.actors.sort_by_key(|actor| place(&actor.name));
                (pid, report)
            });
        }
        if let Some((_, at, body)) = queue.last_report(SWEEP_REPORT)? {
            self.sweep = serde_json::from_str(&body).ok().map(|report| (at, report));
        }
        self.unread = actors::last_unread(queue);
        self.archive = archiving::last_report(queue);
        self.guard = queue.guard_tally(self.now - GUARD_WITHIN)?;
        if let Some(remote) = &mut self.remote {
            remote.read_queue(queue)?;
        }
        if let Some(server) = &mut self.server {
            server.read_queue(queue)?;
        }
        Ok(())
    }

    /// What a worker that was killed had claimed waits again: the next one takes it up.
    fn set_back_unworked(&mut self) {
        self.tally.queued += std::mem::take(&mut self.tally.running);
        self.running.clear();
        for capture in self.captures.iter_mut().filter(|capture| capture.state == State::Running) {
            capture.state = State::Queued;
        }
    }

    /// What the archive itself says: since the last look another process may have filled or broken it.
    fn read_archive(&mut self, config: &Config) {
        if !is_enabled(config) {
            return;
        }
        let count = open_archive()
            .and_then(|archive| Ok(archive.map(|archive| archive.session_count()).transpose()?));
        match (count, &mut self.archive) {
            (Ok(count), Some((_, report))) => report.sessions = count.unwrap_or(report.sessions),
            (Ok(_), None) => {}
            (Err(error), Some((_, report))) => {
                report.error.get_or_insert(error.message);
            }
            (Err(error), none) => {
                *none = Some((self.now, ArchiveReport { sessions: 0, error: Some(error.message) }));
            }
        }
    }

    /// Reads the reviews of the captures, except where git cannot tell, and what waits on other branches.
    fn read_reviews(&mut self, brain: &Brain, queue: Option<&Queue>) {
        let Ok(repository) = open_repository(brain).and_then(|found| found.opened()) else { return };
        let decisions = queue.and_then(|queue| queue.decisions().ok()).unwrap_or_default();
        let is_done = |capture: &&Capture| capture.state == State::Done && capture.branch.is_some();
        let commits: Vec<Option<CommitId>> = self
            .captures
            .iter()
            .map(|capture| is_done(&capture).then(|| commit_to_look_for(&repository, capture)).flatten())
            .collect();
        let merged = repository.merged_among(commits.iter().copied().flatten(), None).ok();
        let review = |(capture, commit): (&Capture, &Option<CommitId>)| {
            let owners = queue?.captures_of_units(capture.branch.as_deref()?).ok()?;
            let is_own = |path: &str| owners.get(file_stem(path)).is_none_or(|owner| owner.id == capture.id);
            // Notes of agents are written to a branch of the same name again once it is merged.
            let is_ended = capture.origin == queue::ORIGIN_NOTES
                && self.captures.iter().any(|later| later.id > capture.id && later.branch == capture.branch);
            let commit = commit.filter(|_| !is_ended);
            let is_merged =
                commit.is_some_and(|commit| merged.as_ref().is_some_and(|merged| merged.contains(&commit)));
            let is_known = merged.is_some() || capture.pull_state.is_some();
            let merged_at = commit.filter(|_| is_merged);
            is_known.then(|| Review::read(&repository, capture, &decisions, is_own, is_ended, merged_at))?
        };
        let captures = self.captures.iter().zip(&commits);
        self.reviews = captures.filter(|(capture, _)| is_done(capture)).filter_map(review).collect();
        let items = crate::waiting::undecided_items(brain, queue).unwrap_or_else(|error| {
            self.is_review_unknown = true;
            let fix = error.hint.unwrap_or_else(|| "nugget doctor".to_owned());
            self.problem.get_or_insert(StateProblem { message: error.message, fix });
            Vec::new()
        });
        for item in items {
            let title = item.title().to_owned();
            let capture = item.capture.as_ref().map(|capture| capture.id);
            let mut reviews = self.reviews.iter_mut().chain(&mut self.other_reviews);
            match reviews.find(|review| review.branch == item.branch && review.capture == capture) {
                Some(review) if review.state != ReviewState::Waiting => {}
                Some(review) if item.later.is_some() => review.put_off += 1,
                Some(review) => review.titles.push(title),
                None => self.other_reviews.push(Review {
                    capture,
                    branch: item.branch,
                    state: ReviewState::Waiting,
                    put_off: usize::from(item.later.is_some()),
                    titles: if item.later.is_some() { Vec::new() } else { vec![title] },
                    merged: 0,
                    rejected: 0,
                }),
            }
        }
        for review in &mut self.reviews {
            review.end_if_decided(&repository);
        }
    }

    /// The reviews that wait for the person. One of which all that is left was put off does not.
    fn waiting(&self) -> impl Iterator<Item = &Review> {
        let reviews = self.reviews.iter().chain(&self.other_reviews);
        reviews.filter(|review| {
            review.state == ReviewState::Waiting && (review.put_off == 0 || !review.titles.is_empty())
        })
    }

    /// Whether captures wait although no worker runs, for longer than one takes to start.
    fn is_stalled(&self) -> bool {
        let is_paused = self.server.as_ref().is_some_and(|server| server.pause.is_some());
        !self.is_running
            && needs_worker(self.tally.unfinished(), &self.captures, &self.depths, is_paused, self.now)
    }

    /// How many units wait for review.
    fn to_review(&self) -> usize {
        self.waiting().map(|review| review.titles.len()).sum()
    }

    /// How many units were put off.
    fn put_off(&self) -> usize {
        let reviews = self.reviews.iter().chain(&self.other_reviews);
        reviews.filter(|review| review.state == ReviewState::Waiting).map(|review| review.put_off).sum()
    }

    /// How many captures there are that are not listed.
    fn captures_left_out(&self) -> u64 {
        let Tally { queued, running, retrying, done, nothing, dead } = self.tally;
        let all = queued + running + retrying + done + nothing + dead;
        all.saturating_sub(self.captures.len() as u64)
    }

    /// As `status.schema.json` describes it.
    fn to_json(&self) -> Value {
        let worker = self.worker.as_ref();
        let index = self.index.as_ref();
        let stages: serde_json::Map<String, Value> =
            self.depths.iter().map(|(stage, depth)| (stage.to_string(), (*depth).into())).collect();
        json!({
            "brain": self.brain.root(),
            "queue": self.tally,
            "stages": stages,
            "spooled": self.spooled,
            "next_retry": self.next_retry,
            "unread": self.unread.as_ref().map(|(at, why)| json!({ "at": at, "why": why })),
            "sweep": self.sweep.as_ref().map(|(at, report)| json!({
                "at": at,
                "found": report.found,
                "queued": report.queued,
                "skipped": report.skipped,
            })),
            "archive": self.archive.as_ref().map(|(at, report)| json!({
                "at": at,
                "sessions": report.sessions,
                "error": report.error,
            })),
            "guard": self.guard,
            "unfinished": self.unfinished.as_ref().map(ToString::to_string),
            "remote": self.remote.as_ref().map(RemoteStatus::to_json),
            "server": self.server.as_ref().map(ServerStatus::to_json),
            "drainer": {
                "running": self.is_running,
                "problem": self.problem.as_ref().map(|problem| &problem.message),
                "fix": self.problem.as_ref().map(|problem| &problem.fix),
                "pid": worker.map(|(pid, _)| pid),
                "since": worker.map(|(_, report)| report.since),
                "actors": worker.map(|(_, report)| &report.actors),
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
            "to_review": (!self.is_review_unknown).then(|| self.to_review()),
            "put_off": self.put_off(),
            "captures": self.captures,
            "captures_left_out": self.captures_left_out(),
            "reviews": self.reviews.iter().chain(&self.other_reviews).collect::<Vec<_>>(),
            "troubles": self.failures,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_names_every_origin_and_stage() {
        let schema: Value = serde_json::from_str(SCHEMA).unwrap();
        let capture = &schema["$defs"]["capture"]["properties"];
        assert_eq!(capture["origin"]["enum"], json!(queue::ORIGINS));
        let stages = json!(Stage::ALL.map(Stage::as_str));
        assert_eq!(capture["stage"]["enum"], stages);
        assert_eq!(schema["properties"]["stages"]["propertyNames"]["enum"], stages);
    }
}
