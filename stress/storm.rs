//! Sessions end at once while hooks, drainers and servers are killed at random instants; then each
//! named place in the code is fatal three times; then everything is audited.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::audit::{Deaths, Ended, audit};
use crate::machine::{Client, Hooked, Kind, Machine, Random, Session, WORDINGS};
use crate::troubles;

/// Once nobody kills any more, no longer than this without one more capture ended.
const STANDSTILL_MAX: Duration = Duration::from_secs(120);
/// How long one place may take to be fatal three times and to be recovered from.
const PLACE_PATIENCE: Duration = Duration::from_secs(90);
/// How often a place is fatal: a capture is tried five times.
const DEATHS: usize = 3;
/// A round that kills nobody is none; so many kills at least are expected of each, on the average.
const KILLS_EACH_MIN: usize = 10;
/// After so many kills everything is let recover and audited.
const AUDIT_EVERY: usize = 1000;
const SERVERS: usize = 2;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many sessions end at once
    #[arg(long, default_value_t = 64)]
    sessions: usize,
    /// How many processes are killed at random instants, over all rounds
    #[arg(long, default_value_t = 200)]
    kills: usize,
    /// At least so many rounds; there are more until all kills are done
    #[arg(long, default_value_t = 2)]
    rounds: u32,
    /// Only these places of the code are made fatal [default: all of them]
    #[arg(long, value_name = "NAME")]
    point: Vec<String>,
}

/// Where a place of the code is reached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    /// In a hook, or behind any.
    Hook,
    /// Only when the queue is busy for too long.
    Spool,
}

const PLACES: &[(&str, Where)] = &[
    ("hook-before-row", Where::Hook),
    ("hook-after-row", Where::Hook),
    ("hook-before-spawn", Where::Hook),
    ("hook-after-spawn", Where::Hook),
    ("spool-after-write", Where::Spool),
    ("spool-after-rename", Where::Spool),
    ("spool-after-row", Where::Spool),
    ("drain-detached", Where::Hook),
    ("drain-with-room", Where::Hook),
    ("drain-after-lock", Where::Hook),
    ("intake-after-read", Where::Hook),
    ("intake-before-advance", Where::Hook),
    ("intake-after-advance", Where::Hook),
    ("extraction-before-keep", Where::Hook),
    ("extraction-after-keep", Where::Hook),
    ("embedding-before-advance", Where::Hook),
    ("embedding-after-advance", Where::Hook),
    ("indexing-before-publish", Where::Hook),
    ("index-after-vector-file", Where::Hook),
    ("index-after-commit", Where::Hook),
    ("indexing-before-advance", Where::Hook),
    ("git-after-plan", Where::Hook),
    ("git-after-keep", Where::Hook),
    ("git-amid-objects", Where::Hook),
    ("git-after-objects", Where::Hook),
    ("git-before-ref", Where::Hook),
    ("git-after-ref", Where::Hook),
    ("git-before-finish", Where::Hook),
    ("git-after-finish", Where::Hook),
    ("drain-before-checkpoint", Where::Hook),
    ("drain-before-unlock", Where::Hook),
];

pub(crate) fn run(arguments: &Arguments, program: &Path, seed: u64) -> Result<Value> {
    println!("storm --seed {seed}");
    let bytes = std::fs::read(program).with_context(|| program.display().to_string())?;
    let has = |name: &str| memchr::memmem::find(&bytes, name.as_bytes()).is_some();
    ensure!(
        cfg!(feature = "failpoints") && has("hook-after-row"),
        "this nugget has no failpoints: run `cargo test --features failpoints --test stress -- storm`"
    );
    for (name, _) in PLACES {
        ensure!(has(name), "there is no place {name} in the program");
    }
    for name in &arguments.point {
        ensure!(PLACES.iter().any(|(known, _)| known == name), "there is no place {name}");
    }
    drop(bytes);

    let mut random = Random::new(seed);
    let mut machine = Machine::new(program)?;
    let script = format!("seed={seed},delay_ms=0..40,fail=0.1");
    machine.variables.push(("SCRIPTED_EXTRACTION".to_owned(), script));
    let mut storm =
        Storm { machine, random: Random::new(random.next()), sessions: Vec::new(), marker: 10_000 };
    let result = storm.all(arguments, program, &mut random);
    if result.is_err() {
        eprintln!("the machine is kept in {}", storm.machine.keep().display());
    }
    result
}

struct Storm {
    machine: Machine,
    random: Random,
    sessions: Vec<Ended>,
    /// The last one given away.
    marker: u64,
}

#[derive(Default)]
struct Killed {
    by_kind: BTreeMap<Kind, usize>,
    total: usize,
}

impl Storm {
    fn all(&mut self, arguments: &Arguments, program: &Path, random: &mut Random) -> Result<Value> {
        // The first one makes the queue.
        self.settle()?;
        let mut killed = Killed::default();
        let (mut rounds, mut audited) = (0, 0);
        let begun = Instant::now();
        let rounds_max = arguments.rounds as usize + arguments.kills / KILLS_EACH_MIN;
        while killed.total < arguments.kills || (arguments.kills > 0 && rounds < arguments.rounds) {
            ensure!((rounds as usize) < rounds_max, "{} kills in {rounds} rounds", killed.total);
            rounds += 1;
            self.round(arguments, rounds, &mut killed)?;
            if killed.total - audited >= AUDIT_EVERY {
                audited = killed.total;
                println!("audit: {}", self.settle()?);
            }
            println!(
                "round {rounds}: {} sessions, {} killed, {} s",
                self.sessions.len(),
                killed.total,
                begun.elapsed().as_secs()
            );
        }
        let stormed = if rounds > 0 { self.settle()? } else { Value::Null };

        let mut places = 0;
        for (name, kind) in PLACES {
            if arguments.point.is_empty() || arguments.point.iter().any(|point| point == name) {
                self.place(name, *kind).with_context(|| format!("place {name}"))?;
                places += 1;
            }
        }
        let broken = if places > 0 { self.settle()? } else { Value::Null };
        let troubles = if arguments.point.is_empty() { troubles::all(program, random)? } else { Value::Null };
        let count = |kind| killed.by_kind.get(&kind).copied().unwrap_or(0);
        Ok(json!({
            "rounds": rounds,
            "sessions": self.sessions.len(),
            "acknowledged": self.sessions.iter().filter(|ended| ended.acknowledged).count(),
            "killed": killed.total,
            "killed_hooks": count(Kind::Hook),
            "killed_steps": count(Kind::Step),
            "killed_drainers": count(Kind::Drainer),
            "killed_servers": count(Kind::Server),
            "after_storm": stormed,
            "places": places,
            "place_deaths": places * DEATHS,
            "after_places": broken,
            "troubles": troubles,
        }))
    }

    fn new_session(&mut self) -> Result<Session> {
        // Six of ten have something to keep.
        let count = [1, 1, 1, 1, 2, 3, 0, 0, 0, 0][self.random.below(10) as usize];
        let markers: Vec<u64> = (1..=count).map(|next| self.marker + next).collect();
        self.marker += count;
        Session::new(&self.machine, &mut self.random, &markers)
    }

    /// One storm: the hooks of many sessions at once, and those of the round before that nobody was
    /// told about, while processes are killed.
    fn round(&mut self, arguments: &Arguments, round: u32, killed: &mut Killed) -> Result<()> {
        let mut again: Vec<usize> = Vec::new();
        for (at, ended) in self.sessions.iter_mut().enumerate() {
            // Sessions go on and end again: what is new of them is a capture of its own, or part of one that
            // has not begun.
            let may_go_on = ended.acknowledged
                && ended.session.markers.len() < WORDINGS
                && again.len() < arguments.sessions / 2;
            if may_go_on && self.random.chance(5) {
                self.marker += 1;
                ended.session.learn(&mut self.random, self.marker)?;
                ended.acknowledged = false;
            }
            if !ended.acknowledged {
                again.push(at);
            }
        }
        while again.len() < arguments.sessions {
            again.push(self.sessions.len());
            let session = self.new_session()?;
            self.sessions.push(Ended { session, acknowledged: false });
        }
        self.machine.add_unit(&format!("shelf-{round}"))?;
        if round.is_multiple_of(5) {
            // As git does by itself once there is enough to pack; from then on every branch is looked up in
            // the pack as well.
            self.machine.git(&["pack-refs", "--all"])?;
        }
        let wanted =
            (killed.total + (arguments.kills / arguments.rounds.max(1) as usize).max(1)).min(arguments.kills);

        let (machine, over) = (&self.machine, AtomicBool::new(false));
        let sessions: Vec<(usize, Session)> =
            again.iter().map(|at| (*at, self.sessions[*at].session.clone())).collect();
        let killer_seed = self.random.next();
        let told = std::thread::scope(|scope| -> Result<Vec<(usize, Hooked)>> {
            let servers: Vec<_> = (0..SERVERS).map(|_| scope.spawn(|| converse(machine, &over))).collect();
            let hooks: Vec<_> = sessions
                .iter()
                .map(|(at, session)| scope.spawn(move || Ok((*at, machine.hook(session, &[])?))))
                .collect();
            let killing = kill(machine, &mut Random::new(killer_seed), wanted, killed, || {
                hooks.iter().all(|hook| hook.is_finished())
            });
            let told: Result<Vec<_>> = hooks
                .into_iter()
                .map(|hook| hook.join().map_err(|_| anyhow::anyhow!("a hook's thread fell"))?)
                .collect();
            over.store(true, Ordering::SeqCst);
            for server in servers {
                server.join().map_err(|_| anyhow::anyhow!("a server's thread fell"))??;
            }
            killing?;
            told
        })?;
        for (at, hooked) in told {
            ensure!(hooked != Hooked::Refused, "a hook could keep its session nowhere");
            self.sessions[at].acknowledged |= hooked == Hooked::Acknowledged;
        }
        Ok(())
    }

    /// Lets everything recover by one plain hook, and audits; then brings the dead back and audits
    /// again, more strictly.
    fn settle(&mut self) -> Result<Value> {
        let begun = Instant::now();
        let session = Session::new(&self.machine, &mut self.random, &[])?;
        ensure!(self.machine.hook(&session, &[])? == Hooked::Acknowledged, "a plain hook was refused");
        self.sessions.push(Ended { session, acknowledged: true });
        let machine = &self.machine;
        recover(machine, "one plain hook has everything finished")?;
        let recovered_seconds = begun.elapsed().as_secs_f64();
        let first = audit(machine, &self.sessions, Deaths::Allowed)?;
        machine.ok(&["retry", "--all"])?;
        recover(machine, "the dead have ended otherwise")?;
        let second = audit(machine, &self.sessions, Deaths::Forbidden)?;
        Ok(json!({
            "done": second.done, "nothing": second.nothing, "units": second.units,
            "dead_before_retry": first.dead, "recovered_seconds": (recovered_seconds * 10.0).round() / 10.0,
        }))
    }

    /// Makes one place of the code fatal, three times, with a restart after each.
    fn place(&mut self, name: &str, kind: Where) -> Result<()> {
        let begun = Instant::now();
        let marks = self.machine.path(&format!("marks-{name}"));
        std::fs::create_dir(&marks)?;
        let deaths = || std::fs::read_dir(&marks).map_or(0, Iterator::count);
        let (fatal, marks_folder) = (format!("{name}=return({DEATHS})"), marks.display().to_string());
        let variables = [("FAILPOINTS", fatal.as_str()), ("FAILPOINT_MARKS", marks_folder.as_str())];
        self.marker += 1;
        let session = Session::new(&self.machine, &mut self.random, &[self.marker])?;
        self.sessions.push(Ended { session, acknowledged: false });
        let mut at = self.sessions.len() - 1;
        let mut unit = 0;
        loop {
            if begun.elapsed() > PLACE_PATIENCE {
                let status = self.machine.ok(&["status"])?;
                bail!("was fatal {} times, and is not done with in {PLACE_PATIENCE:?}\n{status}", deaths());
            }
            let quiet = self.machine.processes().is_empty();
            let ended = &mut self.sessions[at];
            if ended.acknowledged && !quiet {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            if ended.acknowledged && deaths() == DEATHS && self.machine.is_quiet()? {
                return Ok(());
            }
            // Something new for the index, as a generation is published only then.
            if name.contains("index") && deaths() < DEATHS {
                if name.contains("first") {
                    // There is a first generation only where there is none. Where somebody makes one meanwhile,
                    // the next turn deletes it.
                    let _ = std::fs::remove_dir_all(self.machine.brain().join(".nugget"));
                }
                unit += 1;
                self.machine.add_unit(&format!("{name}-{unit}"))?;
            }
            if !ended.acknowledged {
                let busy = (kind == Where::Spool).then(|| hold(&self.machine)).transpose()?;
                let hooked = self.machine.hook(&ended.session, &variables)?;
                drop(busy);
                ensure!(hooked != Hooked::Refused, "a hook could keep its session nowhere");
                ended.acknowledged = hooked == Hooked::Acknowledged;
            } else if self.machine.is_quiet()? {
                // The place lies behind the end of a capture, or only on the way of a new one.
                self.marker += 1;
                let session = Session::new(&self.machine, &mut self.random, &[self.marker])?;
                self.sessions.push(Ended { session, acknowledged: false });
                at = self.sessions.len() - 1;
            } else {
                let mut retry = self.machine.command(&["retry", "--all"]);
                retry.envs(variables).stdout(std::process::Stdio::null()).status()?;
            }
        }
    }
}

/// Waits until nothing works and nothing waits, for as long as it goes on.
fn recover(machine: &Machine, what: &str) -> Result<()> {
    let moved = Cell::new((u64::MAX, Instant::now()));
    machine.until(what, Duration::MAX, || {
        let left = machine.queue()?.tally()?.unfinished();
        if left != moved.get().0 {
            moved.set((left, Instant::now()));
        }
        let standstill = moved.get().1.elapsed();
        ensure!(
            standstill < STANDSTILL_MAX,
            "{what}: {left} captures are stuck\n{}",
            machine.ok(&["status"])?
        );
        machine.is_quiet()
    })
}

/// Keeps the queue busy for longer than a hook waits; until dropped.
fn hold(machine: &Machine) -> Result<rusqlite::Connection> {
    let connection = rusqlite::Connection::open(machine.state()?.join("queue.db"))?;
    connection.busy_timeout(Duration::from_secs(10))?;
    connection.execute_batch("BEGIN IMMEDIATE")?;
    Ok(connection)
}

/// Kills processes at random instants of their lives until enough have died, everything is done or
/// it takes too long.
fn kill(
    machine: &Machine,
    random: &mut Random,
    wanted: usize,
    killed: &mut Killed,
    hooks_are_done: impl Fn() -> bool,
) -> Result<()> {
    let begun = Instant::now();
    // Each process gets its hour as it is first seen; `None` for those that are spared.
    let mut fates: HashMap<rustix::process::Pid, Option<Instant>> = HashMap::new();
    let (mut idle_since, mut done_since) = (None::<Instant>, None::<Instant>);
    while begun.elapsed() < Duration::from_secs(30) {
        let living = machine.processes();
        let now = Instant::now();
        for process in &living {
            let mut hour = |per_cent: u64, limit_ms: u64| {
                let wait = Duration::from_micros(random.below(limit_ms * 1000));
                random.chance(per_cent).then(|| now + wait)
            };
            let fate = *fates.entry(process.pid).or_insert_with(|| match process.kind {
                Kind::Hook => hour(60, 60),
                Kind::Step => hour(30, 30),
                // Some live long enough to get through everything.
                Kind::Drainer => hour(40, 100).or_else(|| hour(90, 1500)),
                Kind::Server => hour(80, 3000),
                Kind::Other => None,
            });
            let due = fate.is_some_and(|hour| hour <= now);
            if due && killed.total < wanted && machine.kill(*process) {
                killed.total += 1;
                *killed.by_kind.entry(process.kind).or_default() += 1;
            }
        }
        fates.retain(|pid, _| living.iter().any(|process| process.pid == *pid));
        if hooks_are_done() {
            let works = living.iter().any(|process| matches!(process.kind, Kind::Step | Kind::Drainer));
            let idle = *idle_since.get_or_insert(now);
            idle_since = idle_since.filter(|_| !works);
            // Nobody works any more, or one that was spared waits for retries: what is left is for the
            // next round's hooks to wake.
            let spared = done_since.get_or_insert(now).elapsed() > Duration::from_secs(3);
            if killed.total >= wanted || spared || (!works && idle.elapsed() > Duration::from_millis(200)) {
                return Ok(());
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Asks a server question after question, and starts the next one when it is killed.
fn converse(machine: &Machine, over: &AtomicBool) -> Result<()> {
    while !over.load(Ordering::SeqCst) {
        let Some(mut client) = Client::start(machine)? else { continue };
        while !over.load(Ordering::SeqCst) {
            let Some(text) = client.ask("which jars of jam are on the shelf?")? else { break };
            // Nothing of a session is served before it is reviewed.
            ensure!(!text.contains("importer"), "an unreviewed unit was served: {text}");
            std::thread::sleep(Duration::from_millis(20));
        }
        if over.load(Ordering::SeqCst) {
            client.end()?;
        }
    }
    Ok(())
}
