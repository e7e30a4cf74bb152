//! Kills hooks, workers and servers at random instants while many sessions end at once, then lets each
//! failpoint in the code end the process three times, and checks all invariants after each part.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use fastrand::Rng;
use serde_json::{Value, json};

use crate::faults;
use crate::invariants::{self, EndedSession, FailedCaptures};
use crate::sandbox::{HookOutcome, McpClient, ProcessKind, RULE_WORDINGS, Sandbox, Session};

/// Once nothing is killed any more, another capture must end within this time.
const STALL_MAX: Duration = Duration::from_secs(120);
/// How long one failpoint may take, with all its deaths and the recovery.
const FAILPOINT_TIMEOUT: Duration = Duration::from_secs(90);
/// How often a failpoint ends the process; fewer than the five attempts of a capture.
const DEATHS: usize = 3;
/// The average number of kills that each round must reach at least.
const KILLS_EACH_MIN: usize = 10;
/// The number of kills after which the sandbox recovers and is checked.
const CHECK_EVERY: usize = 1000;
const SERVERS: usize = 2;

#[derive(clap::Args)]
pub(crate) struct StormArgs {
    /// How many sessions end at once
    #[arg(long, default_value_t = 64)]
    sessions: usize,
    /// How many processes are killed at random instants, over all rounds
    #[arg(long, default_value_t = 200)]
    kills: usize,
    /// The least number of rounds; more follow until all kills are done
    #[arg(long, default_value_t = 2)]
    rounds: u32,
    /// Test only these failpoints [default: all of them]
    #[arg(long, value_name = "NAME")]
    point: Vec<String>,
}

/// What it takes to reach a failpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reached {
    /// By a hook or the processes that it starts.
    ByHook,
    /// Only while the queue is locked for longer than a hook waits.
    BySpooling,
}

const FAILPOINTS: &[(&str, Reached)] = &[
    ("hook-before-row", Reached::ByHook),
    ("hook-after-row", Reached::ByHook),
    ("hook-before-spawn", Reached::ByHook),
    ("hook-after-spawn", Reached::ByHook),
    ("spool-after-write", Reached::BySpooling),
    ("spool-after-rename", Reached::BySpooling),
    ("spool-after-row", Reached::BySpooling),
    ("drain-detached", Reached::ByHook),
    ("drain-with-room", Reached::ByHook),
    ("drain-after-lock", Reached::ByHook),
    ("intake-after-read", Reached::ByHook),
    ("intake-before-advance", Reached::ByHook),
    ("intake-after-advance", Reached::ByHook),
    ("extraction-before-keep", Reached::ByHook),
    ("extraction-after-keep", Reached::ByHook),
    ("embedding-before-advance", Reached::ByHook),
    ("embedding-after-advance", Reached::ByHook),
    ("indexing-before-publish", Reached::ByHook),
    ("index-after-triggers", Reached::ByHook),
    ("index-after-commit", Reached::ByHook),
    ("indexing-before-advance", Reached::ByHook),
    ("git-after-plan", Reached::ByHook),
    ("git-after-keep", Reached::ByHook),
    ("git-amid-objects", Reached::ByHook),
    ("git-after-objects", Reached::ByHook),
    ("git-before-ref", Reached::ByHook),
    ("git-after-ref", Reached::ByHook),
    ("git-before-finish", Reached::ByHook),
    ("git-after-finish", Reached::ByHook),
    ("drain-before-checkpoint", Reached::ByHook),
    ("drain-before-unlock", Reached::ByHook),
];

pub(crate) fn run(args: &StormArgs, binary: &Path, seed: u64) -> Result<Value> {
    println!("storm --seed {seed}");
    let bytes = std::fs::read(binary).with_context(|| binary.display().to_string())?;
    let has = |name: &str| memchr::memmem::find(&bytes, name.as_bytes()).is_some();
    ensure!(has("hook-after-row"), "this nugget has no failpoints: run `cargo test --test stress -- storm`");
    for (name, _) in FAILPOINTS {
        ensure!(has(name), "the binary has no failpoint {name}");
    }
    for name in &args.point {
        ensure!(FAILPOINTS.iter().any(|(known, _)| known == name), "there is no failpoint {name}");
    }
    drop(bytes);

    let mut rng = Rng::with_seed(seed);
    let mut sandbox = Sandbox::new(binary)?;
    let script = format!("seed={seed},delay_ms=0..40,fail=0.1");
    sandbox.variables.push(("SCRIPTED_EXTRACTION".to_owned(), script));
    let mut storm = Storm { sandbox, rng: Rng::with_seed(rng.u64(..)), sessions: Vec::new(), marker: 10_000 };
    let result = storm.run(args, binary, &mut rng);
    if result.is_err() {
        eprintln!("sandbox kept in {}", storm.sandbox.keep().display());
    }
    result
}

struct Storm {
    sandbox: Sandbox,
    rng: Rng,
    sessions: Vec<EndedSession>,
    /// The last marker that was used.
    marker: u64,
}

#[derive(Default)]
struct KillCounts {
    by_kind: BTreeMap<ProcessKind, usize>,
    total: usize,
}

impl Storm {
    fn run(&mut self, args: &StormArgs, binary: &Path, rng: &mut Rng) -> Result<Value> {
        // The first session creates the queue.
        self.recover_and_check()?;
        let mut killed = KillCounts::default();
        let (mut rounds, mut checked) = (0, 0);
        let started = Instant::now();
        let rounds_max = args.rounds as usize + args.kills / KILLS_EACH_MIN;
        while killed.total < args.kills || (args.kills > 0 && rounds < args.rounds) {
            ensure!((rounds as usize) < rounds_max, "{} kills in {rounds} rounds", killed.total);
            rounds += 1;
            self.round(args, rounds, &mut killed)?;
            if killed.total - checked >= CHECK_EVERY {
                checked = killed.total;
                println!("checked: {}", self.recover_and_check()?);
            }
            println!(
                "round {rounds}: {} sessions, {} killed, {} s",
                self.sessions.len(),
                killed.total,
                started.elapsed().as_secs()
            );
        }
        let after_storm = if rounds > 0 { self.recover_and_check()? } else { Value::Null };

        let mut failpoints = 0;
        for (name, reached) in FAILPOINTS {
            if args.point.is_empty() || args.point.iter().any(|point| point == name) {
                self.failpoint(name, *reached).with_context(|| format!("failpoint {name}"))?;
                failpoints += 1;
            }
        }
        let after_failpoints = if failpoints > 0 { self.recover_and_check()? } else { Value::Null };
        let faults = if args.point.is_empty() { faults::run(binary, rng)? } else { Value::Null };
        let count = |kind| killed.by_kind.get(&kind).copied().unwrap_or(0);
        Ok(json!({
            "rounds": rounds,
            "sessions": self.sessions.len(),
            "acknowledged": self.sessions.iter().filter(|ended| ended.acknowledged).count(),
            "killed": killed.total,
            "killed_hooks": count(ProcessKind::Hook),
            "killed_launchers": count(ProcessKind::Launcher),
            "killed_workers": count(ProcessKind::Worker),
            "killed_servers": count(ProcessKind::Server),
            "after_storm": after_storm,
            "failpoints": failpoints,
            "failpoint_deaths": failpoints * DEATHS,
            "after_failpoints": after_failpoints,
            "faults": faults,
        }))
    }

    fn new_session(&mut self) -> Result<Session> {
        // Six of ten sessions state a rule.
        let count = [1, 1, 1, 1, 2, 3, 0, 0, 0, 0][self.rng.usize(..10)];
        let markers: Vec<u64> = (1..=count).map(|next| self.marker + next).collect();
        self.marker += count;
        Session::new(&self.sandbox, &mut self.rng, &markers)
    }

    /// Runs the hooks of many sessions at once while processes are killed. Sessions of earlier rounds whose
    /// hooks did not acknowledge them end again.
    fn round(&mut self, args: &StormArgs, round: u32, killed: &mut KillCounts) -> Result<()> {
        let mut again: Vec<usize> = Vec::new();
        for (at, ended) in self.sessions.iter_mut().enumerate() {
            // Some sessions go on and end again: the new part becomes a new capture, or part of one that has
            // not started.
            let may_continue = ended.acknowledged
                && ended.session.markers.len() < RULE_WORDINGS
                && again.len() < args.sessions / 2;
            if may_continue && self.rng.u64(..100) < 5 {
                self.marker += 1;
                ended.session.state_rule(&mut self.rng, self.marker)?;
                ended.acknowledged = false;
            }
            if !ended.acknowledged {
                again.push(at);
            }
        }
        while again.len() < args.sessions {
            again.push(self.sessions.len());
            let session = self.new_session()?;
            self.sessions.push(EndedSession { session, acknowledged: false });
        }
        self.sandbox.add_unit(&format!("shelf-{round}"))?;
        if round.is_multiple_of(5) {
            // As git does by itself in a larger repository; from then on refs are also looked up in the pack.
            self.sandbox.git(&["pack-refs", "--all"])?;
        }
        let wanted = (killed.total + (args.kills / args.rounds.max(1) as usize).max(1)).min(args.kills);

        let (sandbox, is_over) = (&self.sandbox, AtomicBool::new(false));
        let sessions: Vec<(usize, Session)> =
            again.iter().map(|at| (*at, self.sessions[*at].session.clone())).collect();
        let killer_seed = self.rng.u64(..);
        let outcomes = std::thread::scope(|scope| -> Result<Vec<(usize, HookOutcome)>> {
            let servers: Vec<_> =
                (0..SERVERS).map(|_| scope.spawn(|| ask_until(sandbox, &is_over))).collect();
            let hooks: Vec<_> = sessions
                .iter()
                .map(|(at, session)| scope.spawn(move || Ok((*at, sandbox.hook(session, &[])?))))
                .collect();
            let killing = kill_at_random(sandbox, &mut Rng::with_seed(killer_seed), wanted, killed, || {
                hooks.iter().all(|hook| hook.is_finished())
            });
            let outcomes: Result<Vec<_>> = hooks
                .into_iter()
                .map(|hook| hook.join().map_err(|_| anyhow::anyhow!("a hook's thread panicked"))?)
                .collect();
            is_over.store(true, Ordering::SeqCst);
            for server in servers {
                server.join().map_err(|_| anyhow::anyhow!("a server's thread panicked"))??;
            }
            killing?;
            outcomes
        })?;
        for (at, outcome) in outcomes {
            ensure!(outcome != HookOutcome::Refused, "a hook could not keep its session");
            self.sessions[at].acknowledged |= outcome == HookOutcome::Acknowledged;
        }
        Ok(())
    }

    /// Lets one plain hook recover everything and checks the invariants; then retries the failed captures
    /// and checks again, more strictly.
    fn recover_and_check(&mut self) -> Result<Value> {
        let started = Instant::now();
        let session = Session::new(&self.sandbox, &mut self.rng, &[])?;
        ensure!(self.sandbox.hook(&session, &[])? == HookOutcome::Acknowledged, "a plain hook was refused");
        self.sessions.push(EndedSession { session, acknowledged: true });
        let sandbox = &self.sandbox;
        recover(sandbox, "everything has ended after one plain hook")?;
        let recovered_seconds = started.elapsed().as_secs_f64();
        let first = invariants::check(sandbox, &self.sessions, FailedCaptures::Allowed)?;
        sandbox.run_ok(&["retry", "--all"])?;
        recover(sandbox, "the retried captures have ended")?;
        let second = invariants::check(sandbox, &self.sessions, FailedCaptures::Forbidden)?;
        Ok(json!({
            "done": second.done, "nothing": second.nothing, "units": second.units,
            "failed_before_retry": first.failed, "recovered_seconds": (recovered_seconds * 10.0).round() / 10.0,
        }))
    }

    /// Lets one failpoint end the process three times, with a restart after each.
    fn failpoint(&mut self, name: &str, reached: Reached) -> Result<()> {
        let started = Instant::now();
        let marks = self.sandbox.path(&format!("marks-{name}"));
        std::fs::create_dir(&marks)?;
        let deaths = || std::fs::read_dir(&marks).map_or(0, Iterator::count);
        let (fatal, marks_folder) = (format!("{name}={DEATHS}"), marks.display().to_string());
        let variables = [("FAILPOINTS", fatal.as_str()), ("FAILPOINT_MARKS", marks_folder.as_str())];
        self.marker += 1;
        let session = Session::new(&self.sandbox, &mut self.rng, &[self.marker])?;
        self.sessions.push(EndedSession { session, acknowledged: false });
        let mut at = self.sessions.len() - 1;
        let mut unit = 0;
        loop {
            if started.elapsed() > FAILPOINT_TIMEOUT {
                let status = self.sandbox.run_ok(&["status"])?;
                bail!(
                    "ended the process {} times, and did not recover within {FAILPOINT_TIMEOUT:?}\n{status}",
                    deaths()
                );
            }
            let is_idle = self.sandbox.processes().is_empty();
            let ended = &mut self.sessions[at];
            if ended.acknowledged && !is_idle {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            if ended.acknowledged && deaths() == DEATHS && self.sandbox.is_quiet()? {
                return Ok(());
            }
            // The index publishes a generation only if a unit has changed.
            if name.contains("index") && deaths() < DEATHS {
                unit += 1;
                self.sandbox.add_unit(&format!("{name}-{unit}"))?;
            }
            if !ended.acknowledged {
                let lock = (reached == Reached::BySpooling).then(|| lock_queue(&self.sandbox)).transpose()?;
                let outcome = self.sandbox.hook(&ended.session, &variables)?;
                drop(lock);
                ensure!(outcome != HookOutcome::Refused, "a hook could not keep its session");
                ended.acknowledged = outcome == HookOutcome::Acknowledged;
            } else if self.sandbox.is_quiet()? {
                // This capture has ended without reaching the failpoint often enough: start another one.
                self.marker += 1;
                let session = Session::new(&self.sandbox, &mut self.rng, &[self.marker])?;
                self.sessions.push(EndedSession { session, acknowledged: false });
                at = self.sessions.len() - 1;
            } else {
                let mut retry = self.sandbox.command(&["retry", "--all"]);
                retry.envs(variables).stdout(std::process::Stdio::null()).status()?;
            }
        }
    }
}

/// Waits until no process runs and no capture waits, as long as captures keep ending.
fn recover(sandbox: &Sandbox, condition: &str) -> Result<()> {
    let progress = Cell::new((u64::MAX, Instant::now()));
    sandbox.wait_until(condition, Duration::MAX, || {
        let left = sandbox.queue()?.tally()?.unfinished();
        if left != progress.get().0 {
            progress.set((left, Instant::now()));
        }
        let stalled = progress.get().1.elapsed();
        ensure!(
            stalled < STALL_MAX,
            "{condition}: {left} captures are stuck\n{}",
            sandbox.run_ok(&["status"])?
        );
        sandbox.is_quiet()
    })
}

/// Locks the queue until the connection is dropped; hooks cannot write to it meanwhile.
fn lock_queue(sandbox: &Sandbox) -> Result<rusqlite::Connection> {
    let connection = rusqlite::Connection::open(sandbox.state()?.join("queue.db"))?;
    connection.busy_timeout(Duration::from_secs(10))?;
    connection.execute_batch("BEGIN IMMEDIATE")?;
    Ok(connection)
}

/// Kills processes at random instants until `wanted` is reached, all work is done or 30 seconds have passed.
fn kill_at_random(
    sandbox: &Sandbox,
    rng: &mut Rng,
    wanted: usize,
    killed: &mut KillCounts,
    hooks_are_done: impl Fn() -> bool,
) -> Result<()> {
    let started = Instant::now();
    // Chosen when a process is first seen; `None` for a process that is spared.
    let mut kill_times: HashMap<rustix::process::Pid, Option<Instant>> = HashMap::new();
    let (mut idle_since, mut done_since) = (None::<Instant>, None::<Instant>);
    while started.elapsed() < Duration::from_secs(30) {
        let processes = sandbox.processes();
        let now = Instant::now();
        for process in &processes {
            let mut within = |percent: u64, limit_ms: u64| {
                let wait = Duration::from_micros(rng.u64(..limit_ms * 1000));
                (rng.u64(..100) < percent).then(|| now + wait)
            };
            let kill_time = *kill_times.entry(process.pid).or_insert_with(|| match process.kind {
                ProcessKind::Hook => within(60, 60),
                ProcessKind::Launcher => within(30, 30),
                // Some workers run long enough to process everything.
                ProcessKind::Worker => within(40, 100).or_else(|| within(90, 1500)),
                ProcessKind::Server => within(80, 3000),
                ProcessKind::Other => None,
            });
            let due = kill_time.is_some_and(|time| time <= now);
            if due && killed.total < wanted && sandbox.kill(*process) {
                killed.total += 1;
                *killed.by_kind.entry(process.kind).or_default() += 1;
            }
        }
        kill_times.retain(|pid, _| processes.iter().any(|process| process.pid == *pid));
        if hooks_are_done() {
            let has_workers = processes
                .iter()
                .any(|process| matches!(process.kind, ProcessKind::Launcher | ProcessKind::Worker));
            let idle = *idle_since.get_or_insert(now);
            idle_since = idle_since.filter(|_| !has_workers);
            // No worker is left, or a spared one waits for retries: the next round's hooks start new ones.
            let spared = done_since.get_or_insert(now).elapsed() > Duration::from_secs(3);
            if killed.total >= wanted
                || spared
                || (!has_workers && idle.elapsed() > Duration::from_millis(200))
            {
                return Ok(());
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Asks servers without a pause, and starts another one when one is killed.
fn ask_until(sandbox: &Sandbox, is_over: &AtomicBool) -> Result<()> {
    while !is_over.load(Ordering::SeqCst) {
        let Some(mut client) = McpClient::start(sandbox)? else { continue };
        while !is_over.load(Ordering::SeqCst) {
            let Some(text) = client.ask("which jars of jam are on the shelf?")? else { break };
            // What sessions taught is not served before it is reviewed.
            ensure!(!text.contains("importer"), "an unreviewed unit was served: {text}");
            std::thread::sleep(Duration::from_millis(20));
        }
        if is_over.load(Ordering::SeqCst) {
            client.shut_down()?;
        }
    }
    Ok(())
}
