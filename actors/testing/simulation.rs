//! Simulates the worker: a clock that jumps, faults from a script, processes that are killed at any moment.
//! All of it comes from a seed, so that a failure can be reproduced.
//!
//! Blocking work, which really runs on threads of its own and goes on when nobody waits for it, is simulated
//! by tasks that do the same: they wait for a random time, then do all of the work at once.
//!
//! `NUGGET_SIM_SEEDS=2000` runs more seeds, `NUGGET_SIM_SEED=7` runs that one.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt::Display;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use queue::{ATTEMPTS_MAX, Claim, Stage, State};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::jobs::{Clock, WorkPoint};
use crate::service::{Pace, Roles, Service};
use crate::sweep::BackgroundSweep;
use crate::testing::{Act, FAULT_POINTS, Fault, Faults, Teacher, Testbed, epoch};
use crate::worker::Worker;

thread_local! {
    /// How long blocking work takes; `None` where it is real.
    static WORK: RefCell<Option<(Random, u64)>> = const { RefCell::new(None) };
    /// Where blocking work is written down.
    static WORLD: RefCell<Option<Arc<World>>> = const { RefCell::new(None) };
}

/// How long the next blocking work takes, if this thread is a simulation.
pub(crate) fn duration_of_work<W>(_: &W) -> Option<Duration> {
    WORK.with_borrow_mut(|work| {
        let (random, ms_max) = work.as_mut()?;
        let duration = Duration::from_millis(random.skewed(*ms_max));
        WORLD.with_borrow(|world| {
            if let Some(world) = world {
                world.record(format_args!("work of {duration:?}: {}", std::any::type_name::<W>()));
            }
        });
        Some(duration)
    })
}

pub(crate) fn is_on() -> bool {
    WORK.with_borrow(Option::is_some)
}

/// Runs a future to its end in virtual time, with simulated blocking work of up to so many milliseconds.
pub(crate) fn in_virtual_time<F: Future>(seed: u64, work_ms_max: u64, future: F) -> F::Output {
    struct Off;
    impl Drop for Off {
        fn drop(&mut self) {
            WORK.set(None);
        }
    }
    WORK.set(Some((Random::new(seed), work_ms_max)));
    let _off = Off;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(future)
}

/// Random numbers from a seed.
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0.u64(..end)
    }

    fn chance(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    /// Below `end`, mostly far below.
    fn skewed(&mut self, end: u64) -> u64 {
        let below = self.below(end) + 1;
        self.below(below)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

const SESSIONS_MAX: u64 = 6;
/// The longest that blocking work takes, in milliseconds: long, so that much happens meanwhile.
const WORK_MS_MAX: u64 = 3_000;
/// When the last event of the script happens, in milliseconds.
const SCRIPT_MS: u64 = 60_000;
/// When everything must have ended, including all waits and restarts.
const END_BY_MS: u64 = 4 * 3_600_000;
const TEN_YEARS_MS: i64 = 10 * 365 * 86_400_000;
const ACTORS: [&str; 11] = [
    "intake",
    "intake",
    "extraction",
    "extraction",
    "embedding",
    "embedding",
    "indexing",
    "indexing",
    "git",
    "git",
    "supervisor",
];
const PACE: Pace = Pace {
    patience: Duration::from_secs(10),
    patience_long: Duration::from_secs(20),
    poll_every: Duration::from_secs(1),
    abandon_after: Duration::ZERO,
};

/// An event from outside.
#[derive(Clone, Debug)]
enum Event {
    /// A session ends, with so many new lessons in it.
    Announce {
        session: usize,
        lessons: usize,
        by_spool: bool,
    },
    Kill(&'static str),
    Stop(&'static str),
    /// The wall clock jumps, by milliseconds.
    Jump(i64),
    /// The process is killed, as by SIGKILL.
    KillProcess,
}

/// A fault, at the n-th time that a point is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Injected {
    Panic,
    Hang,
    KillProcess,
}

/// Everything that is going to happen.
struct Script {
    /// By time, in milliseconds.
    events: VecDeque<(u64, Event)>,
    faults: HashMap<(WorkPoint, u32), Injected>,
    /// What the extractor does with each session, attempt by attempt; the last from then on.
    acts: Vec<Vec<Act>>,
    /// Which session is a fork of the one before it: its transcript begins with that one's lines.
    forks: Vec<bool>,
}

impl Script {
    fn random(random: &mut Random) -> Self {
        let sessions = 1 + random.below(SESSIONS_MAX) as usize;
        let mut events = Vec::new();
        for session in 0..sessions {
            for _ in 0..1 + random.skewed(4) {
                let (at, by_spool) = (random.below(SCRIPT_MS), random.chance(4));
                let lessons = if random.chance(6) { 0 } else { 1 + random.skewed(3) as usize };
                events.push((at, Event::Announce { session, lessons, by_spool }));
                if random.chance(6) {
                    // A hook that ran twice.
                    events.push((at, Event::Announce { session, lessons: 0, by_spool: random.chance(2) }));
                }
            }
        }
        let mut add = |count: u64, event: &mut dyn FnMut(&mut Random) -> Event| {
            for _ in 0..random.skewed(count) {
                events.push((random.below(SCRIPT_MS), event(random)));
            }
        };
        add(24, &mut |random| Event::Kill(random.pick(&ACTORS)));
        add(12, &mut |random| Event::Stop(random.pick(&ACTORS)));
        add(6, &mut |_| Event::KillProcess);
        let jumps = [-TEN_YEARS_MS, TEN_YEARS_MS, -3_600_000, 3_600_000, -1_500];
        add(6, &mut |random| Event::Jump(random.pick(&jumps)));
        // Stable, so that of two events at one moment the first one written happens first.
        events.sort_by_key(|(at, _)| *at);
        let mut faults = HashMap::new();
        for _ in 0..random.skewed(24) {
            let fault =
                random.pick(&[Injected::Panic, Injected::Panic, Injected::Hang, Injected::KillProcess]);
            faults.insert((random.pick(&FAULT_POINTS), random.skewed(12) as u32), fault);
        }
        let acts = (0..sessions).map(|_| acts(random)).collect();
        let forks = (0..sessions).map(|session| session > 0 && random.chance(4)).collect();
        Self { events: events.into(), faults, acts, forks }
    }
}

fn acts(random: &mut Random) -> Vec<Act> {
    let mut acts = Vec::new();
    for _ in 0..random.skewed(7) {
        let wait = Duration::from_secs(random.skewed(40));
        acts.push(random.pick(&[Act::Retry(None), Act::Retry(Some(wait)), Act::Panic, Act::Hang]));
    }
    // Sometimes longer than the patience with an extractor.
    let slowly = Act::TeachAfter(Duration::from_millis(random.skewed(25_000)));
    let usual = [Act::Teach, Act::Teach, Act::Teach, slowly, Act::Nothing, Act::Permanent];
    let poison = [Act::Panic, Act::Hang, Act::Retry(None)];
    acts.push(if random.chance(8) { random.pick(&poison) } else { random.pick(&usual) });
    acts
}

/// What all parts of a simulation share.
#[derive(Default)]
struct World {
    /// What happens, line by line: the same for the same seed.
    trace: Mutex<Vec<String>>,
    /// The age of the world when the present process started, and when that was.
    before: Mutex<Duration>,
    process_started: Mutex<Option<Instant>>,
    /// By how many milliseconds the wall clock is off.
    off_ms: AtomicI64,
    reached: Mutex<HashMap<WorkPoint, u32>>,
    claims: Mutex<BTreeMap<(i64, Stage), u32>>,
    /// How many faults may have made an actor fail so far.
    faults: AtomicU32,
    /// The process counts as killed: nothing may happen in it any more.
    is_killed: AtomicBool,
    killed: Notify,
}

impl World {
    fn age(&self) -> Duration {
        let started = *self.process_started.lock().unwrap();
        *self.before.lock().unwrap() + started.map_or(Duration::ZERO, |started| started.elapsed())
    }

    fn wall(&self) -> Timestamp {
        let ms = epoch().as_millisecond() + 86_400_000 + self.age().as_millis() as i64;
        Timestamp::from_millisecond(ms + self.off_ms.load(Ordering::SeqCst)).unwrap()
    }

    fn record(&self, event: impl Display) {
        self.trace.lock().unwrap().push(format!("{:>10.3} {event}", self.age().as_secs_f64()));
    }

    fn fault(&self, faults: &HashMap<(WorkPoint, u32), Injected>, point: WorkPoint, claim: &Claim) -> Fault {
        if self.is_killed.load(Ordering::SeqCst) {
            return Fault::Panic;
        }
        let capture = &claim.capture;
        if let WorkPoint::Claimed(stage) = point {
            *self.claims.lock().unwrap().entry((capture.id, stage)).or_default() += 1;
        }
        let time = {
            let mut reached = self.reached.lock().unwrap();
            let time = reached.entry(point).or_default();
            *time += 1;
            *time - 1
        };
        let injected = faults.get(&(point, time));
        self.record(format_args!(
            "capture {} attempt {} {point:?} {injected:?}",
            capture.id, capture.attempts
        ));
        match injected {
            None => return Fault::None,
            Some(Injected::KillProcess) => {
                self.is_killed.store(true, Ordering::SeqCst);
                self.killed.notify_one();
            }
            Some(_) => {}
        }
        self.faults.fetch_add(1, Ordering::SeqCst);
        // The blocking work of git cannot hang here without stopping the whole simulation.
        let can_hang = !matches!(point, WorkPoint::Planned | WorkPoint::Proposed);
        if injected == Some(&Injected::Hang) && can_hang { Fault::Hang } else { Fault::Panic }
    }
}

/// One simulated world, from its first event until all captures have ended.
struct Simulation {
    world: Arc<World>,
    script: Script,
    random: Random,
    bed: Arc<Testbed>,
    /// All lessons, with the sessions whose transcripts contain them.
    lessons: BTreeMap<String, BTreeSet<usize>>,
    lines: Vec<Vec<String>>,
    processes: u32,
}

/// Runs a seed and returns what happened, or what went wrong and what had happened until then.
fn run(seed: u64) -> Result<Vec<String>, String> {
    silence_panics();
    let world = Arc::new(World::default());
    WORLD.set(Some(Arc::clone(&world)));
    let ran = catch_unwind(AssertUnwindSafe(|| run_in(&world, seed)));
    let trace = std::mem::take(&mut *world.trace.lock().unwrap_or_else(PoisonError::into_inner));
    WORLD.set(None);
    ran.map(|()| trace.clone()).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        format!("NUGGET_SIM_SEED={seed}: {}\n{}", text.unwrap_or_default(), trace.join("\n"))
    })
}

/// Hides the messages of panics that are injected; those of others are in the seed's report.
fn silence_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !is_on() {
                usual(panic);
            }
        }));
    });
}

fn run_in(world: &Arc<World>, seed: u64) {
    let world = Arc::clone(world);
    let mut random = Random::new(seed);
    let script = Script::random(&mut random);
    let teacher = Teacher::new({
        let (world, acts) = (Arc::clone(&world), script.acts.clone());
        move |conversation, attempt| {
            let session = number_of(&conversation.session_id);
            let act = acts[session][(attempt as usize).min(acts[session].len() - 1)];
            world.record(format_args!("session {session} is extracted: {act:?}"));
            if matches!(act, Act::Panic | Act::Hang | Act::TeachAfter(_)) {
                world.faults.fetch_add(1, Ordering::SeqCst);
            }
            act
        }
    });
    let mut bed = Testbed::new(teacher).with_faults(Faults::new({
        let (world, faults) = (Arc::clone(&world), script.faults.clone());
        move |point, claim| world.fault(&faults, point, claim)
    }));
    bed.jobs.clock = Clock::new({
        let world = Arc::clone(&world);
        move || world.wall()
    });
    bed.pace = PACE;
    bed.setup.linger = Duration::from_secs(random.below(5));
    let lines = vec![Vec::new(); script.acts.len()];
    let (bed, lessons) = (Arc::new(bed), BTreeMap::new());
    let mut simulation = Simulation { world, script, random, bed, lessons, lines, processes: 0 };
    simulation.run();
    simulation.check();
}

/// All begin with the same eight characters: with the same times, their branches want the same name.
fn name_of(session: usize) -> String {
    format!("00000000-{session}")
}

fn number_of(name: &str) -> usize {
    name.rsplit('-').next().unwrap().parse().unwrap()
}

impl Simulation {
    fn run(&mut self) {
        loop {
            let pending = self.bed.queue().tally().unwrap().unfinished() > 0
                || !self.bed.spool().list().unwrap().is_empty();
            if pending {
                self.run_process();
                // Another process looks at the queue, at the latest a server within the minute.
                *self.world.before.lock().unwrap() += Duration::from_millis(self.random.skewed(60_000));
            } else {
                let Some((at, event)) = self.script.events.pop_front() else { return };
                let mut before = self.world.before.lock().unwrap();
                *before = (*before).max(Duration::from_millis(at));
                drop(before);
                self.apply(&event, None);
            }
            assert!(self.world.age() < Duration::from_millis(END_BY_MS), "it never ends");
            assert!(self.processes < 200, "processes without end");
        }
    }

    /// Runs one process: it works until nothing is left to do, or is killed.
    fn run_process(&mut self) {
        self.processes += 1;
        let world = Arc::clone(&self.world);
        world.record("a worker starts");
        let faults_before = world.faults.load(Ordering::SeqCst);
        let seed = self.random.next();
        let age = in_virtual_time(seed, WORK_MS_MAX, async {
            *world.process_started.lock().unwrap() = Some(Instant::now());
            let bed = Arc::clone(&self.bed);
            let worker = bed.worker();
            if let Some(sweep) = worker.prepare().unwrap() {
                let service = Service::start_with(&bed.setup, Roles::Write, bed.parts()).await.unwrap();
                let end = self.work(&worker, &service, sweep).await;
                world.record(end);
                if !world.is_killed.load(Ordering::SeqCst) {
                    let restarts: u32 = service.actors().iter().map(|actor| actor.restarts).sum();
                    let faults = world.faults.load(Ordering::SeqCst) - faults_before;
                    assert!(restarts <= faults, "{restarts} restarts for {faults} faults");
                    service.shutdown().await;
                }
            }
            world.age()
        });
        *world.before.lock().unwrap() = age;
        *world.process_started.lock().unwrap() = None;
        world.is_killed.store(false, Ordering::SeqCst);
    }

    async fn work(&mut self, worker: &Worker<'_>, service: &Service, sweep: BackgroundSweep) -> String {
        let world = Arc::clone(&self.world);
        let supervisor = service.cell("supervisor").unwrap();
        let work = worker.work_until_idle(service, sweep);
        tokio::pin!(work);
        loop {
            let next = self.script.events.front().map(|(at, _)| Duration::from_millis(*at));
            let until_next = next.map_or(Duration::from_millis(700), |at| at.saturating_sub(world.age()));
            tokio::select! {
                biased;
                () = world.killed.notified() => return "the process is killed".to_owned(),
                ended = &mut work => return format!("the worker exits: {ended:?}"),
                () = tokio::time::sleep(until_next.min(Duration::from_millis(700))) => {}
            }
            assert!(supervisor.get_children().len() <= Stage::ALL.len(), "an actor runs twice");
            for actor in service.actors() {
                assert!(actor.mailbox <= 2, "{actor:?}");
            }
            assert!(world.age() < Duration::from_millis(END_BY_MS), "it never ends");
            if next.is_some_and(|at| at <= world.age())
                && let Some((_, event)) = self.script.events.pop_front()
            {
                self.apply(&event, Some(service));
                if matches!(event, Event::KillProcess) {
                    world.is_killed.store(true, Ordering::SeqCst);
                    return "the process is killed".to_owned();
                }
            }
        }
    }

    fn apply(&mut self, event: &Event, service: Option<&Service>) {
        self.world.record(format_args!("{event:?}"));
        let cell = |name: &str| service.and_then(|service| service.cell(name));
        match event {
            Event::Announce { session, lessons, by_spool } => self.announce(*session, *lessons, *by_spool),
            Event::Kill(name) => {
                if let Some(cell) = cell(name) {
                    self.world.faults.fetch_add(1, Ordering::SeqCst);
                    cell.kill();
                }
            }
            Event::Stop(name) => {
                if let Some(cell) = cell(name) {
                    self.world.faults.fetch_add(1, Ordering::SeqCst);
                    cell.stop(None);
                }
            }
            Event::Jump(ms) => {
                // Two jumps of ten years in one direction would leave the range of times.
                let off = self.world.off_ms.load(Ordering::SeqCst) + ms;
                if off.abs() <= TEN_YEARS_MS + 10_000_000 {
                    self.world.off_ms.store(off, Ordering::SeqCst);
                }
            }
            Event::KillProcess => {}
        }
    }

    fn announce(&mut self, session: usize, lessons: usize, by_spool: bool) {
        let name = name_of(session);
        if self.script.forks[session] && self.lines[session].is_empty() {
            self.lines[session] = self.lines[session - 1].clone();
            for lesson in &self.lines[session] {
                self.lessons.get_mut(lesson).unwrap().insert(session);
            }
            self.bed.fork(&name_of(session - 1), &name);
        }
        for _ in 0..lessons {
            let lesson = format!("lesson {} of session {session}", self.lines[session].len());
            self.bed.say(&name, &[&lesson]);
            self.lines[session].push(lesson.clone());
            self.lessons.insert(lesson, BTreeSet::from([session]));
        }
        let announcement = self.bed.announcement(&name);
        if by_spool {
            self.bed.spool().put(&announcement).unwrap();
        } else {
            self.bed.queue().add(&announcement, self.world.wall()).unwrap();
        }
    }

    fn check(&self) {
        let tally = self.bed.queue().tally().unwrap();
        assert_eq!((tally.unfinished(), tally.running), (0, 0), "{tally:?}");
        let claims = self.world.claims.lock().unwrap();
        let captures = self.bed.queue().captures(1_000).unwrap();
        let branches: BTreeMap<String, Vec<String>> = self.bed.branches().into_iter().collect();
        let mut unclaimed: BTreeSet<&String> = branches.keys().collect();
        let mut troubled = BTreeSet::new();
        let mut failed_at_git = 0;
        for capture in &captures {
            let session = number_of(capture.session_id.as_str());
            self.world.record(format_args!(
                "capture {} of session {session} is {} at {}: {:?} {:?} {:?}",
                capture.id, capture.state, capture.stage, capture.reason, capture.branch, capture.commit
            ));
            match capture.state {
                State::Done => {
                    let branch = capture.branch.as_ref().unwrap();
                    assert!(unclaimed.remove(branch), "{branch} is no branch, or two captures'");
                    assert_eq!(branches[branch].len(), capture.units as usize);
                    let tip = self.bed.repository.tip(branch).unwrap().unwrap().to_string();
                    assert_eq!(Some(tip), capture.commit);
                }
                State::Nothing => {
                    assert!(capture.reason.is_some());
                    if self.script.acts[session].iter().any(|act| matches!(act, Act::Nothing)) {
                        troubled.insert(session);
                    }
                }
                State::Dead => {
                    assert!(capture.reason.is_some());
                    troubled.insert(session);
                    let refused = capture.reason.as_deref() == Some("not allowed");
                    let tried = capture.attempts;
                    assert!(refused || tried == ATTEMPTS_MAX, "dead after {tried} attempts");
                    failed_at_git += u32::from(capture.stage == Stage::Git);
                }
                other => panic!("capture {} is {other}", capture.id),
            }
            for stage in Stage::ALL {
                let waits = if stage == Stage::Extraction { 7 } else { 0 };
                let claimed = claims.get(&(capture.id, stage)).copied().unwrap_or_default();
                assert!(
                    claimed <= ATTEMPTS_MAX + waits,
                    "capture {} was at {stage} {claimed} times",
                    capture.id
                );
            }
        }
        // A capture may fail at the very last step: its branch exists and the capture does not know it.
        assert!(unclaimed.len() <= failed_at_git as usize, "branches that no capture knows: {unclaimed:?}");
        self.bed.assert_one_commit_for_each_branch();
        let mut learned: BTreeMap<String, u32> = BTreeMap::new();
        for path in branches.values().flatten() {
            *learned.entry(path.rsplit('/').next().unwrap().to_owned()).or_default() += 1;
        }
        for (lesson, sessions) in &self.lessons {
            let times = learned.remove(&format!("{}.md", lesson.replace(' ', "-"))).unwrap_or_default();
            let expected = if sessions.is_disjoint(&troubled) { 1..=1 } else { 0..=1 };
            assert!(expected.contains(&times), "{lesson:?} was learned {times} times");
        }
        assert!(learned.is_empty(), "learned besides: {learned:?}");
    }
}

/// Runs many seeds in parallel, one for each processor.
fn run_all(seeds: Range<u64>) {
    let next = Mutex::new(seeds);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from).min(8) {
            scope.spawn(|| {
                loop {
                    let seed = next.lock().unwrap().next();
                    let Some(seed) = seed else { return };
                    if let Err(failure) = run(seed) {
                        failures.lock().unwrap().push(failure);
                        return;
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn every_capture_ends_once_with_at_most_one_branch() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    run_all(match (number("NUGGET_SIM_SEED"), number("NUGGET_SIM_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, count) => 0..count.unwrap_or(200),
    });
}

#[test]
fn a_seed_has_the_same_trace_twice() {
    for seed in 0..8 {
        let lines = || run(seed).unwrap_or_else(|failure| failure.lines().map(str::to_owned).collect());
        let (first, second) = (lines(), lines());
        let same = first.iter().zip(&second).take_while(|(first, second)| first == second).count();
        let around = |trace: &[String]| trace[same.saturating_sub(6)..trace.len().min(same + 6)].join("\n");
        assert!(
            first == second,
            "seed {seed}: from line {same} on, once\n{}\nand once\n{}",
            around(&first),
            around(&second)
        );
    }
}
