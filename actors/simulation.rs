//! The tree of actors in a made-up world: a clock that jumps, faults from a script, processes that
//! die at any moment. All of it comes from a seed, so that a failure can be looked at again.
//!
//! Closures, which really run on threads of their own and go on when nobody waits for them, are
//! tasks here that do the same: they last a made-up while, then happen at once.
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

use crate::pipeline::Clock;
use crate::service::{Drainer, Pace, Roles, Service};
use crate::sweep::BackgroundSweep;
use crate::testbed::{Act, Fault, Faults, Place, Teacher, Testbed, epoch};

thread_local! {
    /// How long closures take; `None` where they are real.
    static WORK: RefCell<Option<(Random, u64)>> = const { RefCell::new(None) };
}

/// How long the next closure takes, if this thread is a simulation.
pub(crate) fn duration_of_work() -> Option<Duration> {
    WORK.with_borrow_mut(|work| {
        let (random, ms_max) = work.as_mut()?;
        Some(Duration::from_millis(random.skewed(*ms_max)))
    })
}

pub(crate) fn is_on() -> bool {
    WORK.with_borrow(Option::is_some)
}

/// Runs a future to its end in virtual time, with simulated closures of up to so many milliseconds.
pub(crate) fn in_virtual_time<F: Future>(seed: u64, closure_ms_max: u64, future: F) -> F::Output {
    struct Off;
    impl Drop for Off {
        fn drop(&mut self) {
            WORK.set(None);
        }
    }
    WORK.set(Some((Random::new(seed), closure_ms_max)));
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
/// The longest that a closure takes, in milliseconds: long, so that much happens meanwhile.
const CLOSURE_MS_MAX: u64 = 3_000;
/// When the last thing of the script happens, in milliseconds.
const SCRIPT_MS: u64 = 60_000;
/// By when everything must be over, all waits, snoozes and restarts included.
const PEACE_BY_MS: u64 = 4 * 3_600_000;
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
    look_every: Duration::from_secs(1),
    abandon_after: Duration::ZERO,
};

/// What happens from outside.
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
    /// The process is gone, as by SIGKILL.
    Die,
}

/// What happens inside, at the n-th time that a place is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strike {
    Fall,
    Hang,
    Die,
}

/// All that is going to happen.
struct Script {
    /// By time, in milliseconds.
    events: VecDeque<(u64, Event)>,
    strikes: HashMap<(Place, u32), Strike>,
    /// What the extractor does with each session, attempt by attempt; the last from then on.
    acts: Vec<Vec<Act>>,
    /// Which session is a fork of the one before it: its transcript begins with that one's lines.
    forks: Vec<bool>,
}

impl Script {
    fn of(random: &mut Random) -> Self {
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
        add(6, &mut |_| Event::Die);
        let jumps = [-TEN_YEARS_MS, TEN_YEARS_MS, -3_600_000, 3_600_000, -1_500];
        add(6, &mut |random| Event::Jump(random.pick(&jumps)));
        // Stable, so that of two things at one moment the first one written happens first.
        events.sort_by_key(|(at, _)| *at);
        let mut strikes = HashMap::new();
        for _ in 0..random.skewed(24) {
            let strike = random.pick(&[Strike::Fall, Strike::Fall, Strike::Hang, Strike::Die]);
            strikes.insert((random.pick(&Place::ALL), random.skewed(12) as u32), strike);
        }
        let acts = (0..sessions).map(|_| acts(random)).collect();
        let forks = (0..sessions).map(|session| session > 0 && random.chance(4)).collect();
        Self { events: events.into(), strikes, acts, forks }
    }
}

fn acts(random: &mut Random) -> Vec<Act> {
    let mut acts = Vec::new();
    for _ in 0..random.skewed(7) {
        let snooze = Duration::from_secs(random.skewed(40));
        acts.push(random.pick(&[Act::Retry(None), Act::Retry(Some(snooze)), Act::Panic, Act::Hang]));
    }
    // Longer than the patience with an extractor, at times.
    let slowly = Act::TeachAfter(Duration::from_millis(random.skewed(25_000)));
    let usual = [Act::Teach, Act::Teach, Act::Teach, slowly, Act::Nothing, Act::Permanent];
    let poison = [Act::Panic, Act::Hang, Act::Retry(None)];
    acts.push(if random.chance(8) { random.pick(&poison) } else { random.pick(&usual) });
    acts
}

/// What all in a simulation know and tell.
#[derive(Default)]
struct World {
    /// What happens, line by line: the same for the same seed.
    trace: Mutex<Vec<String>>,
    /// How old the world was when the present process was born, and when that was.
    before: Mutex<Duration>,
    born: Mutex<Option<Instant>>,
    /// By how many milliseconds the wall clock is off.
    off_ms: AtomicI64,
    reached: Mutex<HashMap<Place, u32>>,
    claims: Mutex<BTreeMap<(i64, Stage), u32>>,
    /// What may have brought an actor down so far.
    faults: AtomicU32,
    /// The process is as good as dead: nothing is to happen in it any more.
    is_dead: AtomicBool,
    death: Notify,
}

impl World {
    fn age(&self) -> Duration {
        let born = *self.born.lock().unwrap();
        *self.before.lock().unwrap() + born.map_or(Duration::ZERO, |born| born.elapsed())
    }

    fn wall(&self) -> Timestamp {
        let ms = epoch().as_millisecond() + 86_400_000 + self.age().as_millis() as i64;
        Timestamp::from_millisecond(ms + self.off_ms.load(Ordering::SeqCst)).unwrap()
    }

    fn tell(&self, what: impl Display) {
        self.trace.lock().unwrap().push(format!("{:>10.3} {what}", self.age().as_secs_f64()));
    }

    fn strike(&self, strikes: &HashMap<(Place, u32), Strike>, place: Place, claim: &Claim) -> Fault {
        if self.is_dead.load(Ordering::SeqCst) {
            return Fault::Panic;
        }
        let capture = &claim.capture;
        if let Place::Claimed(stage) = place {
            *self.claims.lock().unwrap().entry((capture.id, stage)).or_default() += 1;
        }
        let time = {
            let mut reached = self.reached.lock().unwrap();
            let time = reached.entry(place).or_default();
            *time += 1;
            *time - 1
        };
        let strike = strikes.get(&(place, time));
        self.tell(format_args!("capture {} attempt {} {place:?} {strike:?}", capture.id, capture.attempts));
        match strike {
            None => return Fault::None,
            Some(Strike::Die) => {
                self.is_dead.store(true, Ordering::SeqCst);
                self.death.notify_one();
            }
            Some(_) => {}
        }
        self.faults.fetch_add(1, Ordering::SeqCst);
        // A closure of git's cannot hang here without stopping the whole world.
        let can_hang = !matches!(place, Place::Planned | Place::Proposed);
        if strike == Some(&Strike::Hang) && can_hang { Fault::Hang } else { Fault::Panic }
    }
}

/// A world that comes of a seed, from its first event until all captures have ended.
struct Simulation {
    world: Arc<World>,
    script: Script,
    random: Random,
    bed: Arc<Testbed>,
    /// All lessons, with the sessions whose transcripts hold them.
    lessons: BTreeMap<String, BTreeSet<usize>>,
    lines: Vec<Vec<String>>,
    lives: u32,
}

/// Runs a seed and returns what happened, or what went wrong and what had happened until then.
fn run(seed: u64) -> Result<Vec<String>, String> {
    quieten();
    let world = Arc::new(World::default());
    let ran = catch_unwind(AssertUnwindSafe(|| run_in(&world, seed)));
    let trace = std::mem::take(&mut *world.trace.lock().unwrap_or_else(PoisonError::into_inner));
    ran.map(|()| trace.clone()).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        format!("NUGGET_SIM_SEED={seed}: {}\n{}", text.unwrap_or_default(), trace.join("\n"))
    })
}

/// Panics are part of the play; what one says that is not is in the seed's report.
fn quieten() {
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
    let script = Script::of(&mut random);
    let teacher = Teacher::new({
        let (world, acts) = (Arc::clone(&world), script.acts.clone());
        move |conversation, attempt| {
            let session = number_of(&conversation.session_id);
            let act = acts[session][(attempt as usize).min(acts[session].len() - 1)];
            world.tell(format_args!("session {session} is looked at: {act:?}"));
            if matches!(act, Act::Panic | Act::Hang | Act::TeachAfter(_)) {
                world.faults.fetch_add(1, Ordering::SeqCst);
            }
            act
        }
    });
    let mut bed = Testbed::new(teacher).with_faults(Faults::of({
        let (world, strikes) = (Arc::clone(&world), script.strikes.clone());
        move |place, claim| world.strike(&strikes, place, claim)
    }));
    bed.jobs.clock = Clock::of({
        let world = Arc::clone(&world);
        move || world.wall()
    });
    bed.pace = PACE;
    bed.setup.linger = Duration::from_secs(random.below(5));
    let lines = vec![Vec::new(); script.acts.len()];
    let (bed, lessons) = (Arc::new(bed), BTreeMap::new());
    let mut simulation = Simulation { world, script, random, bed, lessons, lines, lives: 0 };
    simulation.run();
    simulation.check();
}

/// The same first eight characters for all: with the same times, their branches want one name.
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
                self.live();
                // Somebody comes and looks, at the latest a server within the minute.
                *self.world.before.lock().unwrap() += Duration::from_millis(self.random.skewed(60_000));
            } else {
                let Some((at, event)) = self.script.events.pop_front() else { return };
                let mut before = self.world.before.lock().unwrap();
                *before = (*before).max(Duration::from_millis(at));
                drop(before);
                self.happen(&event, None);
            }
            assert!(self.world.age() < Duration::from_millis(PEACE_BY_MS), "it never ends");
            assert!(self.lives < 200, "processes without end");
        }
    }

    /// The life of one process: it drains until nothing is left to do, or dies.
    fn live(&mut self) {
        self.lives += 1;
        let world = Arc::clone(&self.world);
        world.tell("a drainer starts");
        let faults_before = world.faults.load(Ordering::SeqCst);
        let seed = self.random.next();
        let age = in_virtual_time(seed, CLOSURE_MS_MAX, async {
            *world.born.lock().unwrap() = Some(Instant::now());
            let bed = Arc::clone(&self.bed);
            let drainer = bed.drainer();
            if let Some(sweeps) = drainer.prepare().unwrap() {
                let service = Service::start_with(&bed.setup, Roles::Write, bed.parts()).await.unwrap();
                let how = self.drain(&drainer, &service, sweeps).await;
                world.tell(how);
                if !world.is_dead.load(Ordering::SeqCst) {
                    let restarts: u32 = service.actors().iter().map(|actor| actor.restarts).sum();
                    let faults = world.faults.load(Ordering::SeqCst) - faults_before;
                    assert!(restarts <= faults, "{restarts} restarts for {faults} faults");
                    service.shutdown().await;
                }
            }
            world.age()
        });
        *world.before.lock().unwrap() = age;
        *world.born.lock().unwrap() = None;
        world.is_dead.store(false, Ordering::SeqCst);
    }

    async fn drain(&mut self, drainer: &Drainer<'_>, service: &Service, sweeps: BackgroundSweep) -> String {
        let world = Arc::clone(&self.world);
        let supervisor = service.cell("supervisor").unwrap();
        let work = drainer.work_until_idle(service, sweeps);
        tokio::pin!(work);
        loop {
            let next = self.script.events.front().map(|(at, _)| Duration::from_millis(*at));
            let until_next = next.map_or(Duration::from_millis(700), |at| at.saturating_sub(world.age()));
            tokio::select! {
                biased;
                () = world.death.notified() => return "the process dies".to_owned(),
                ended = &mut work => return format!("the drainer goes: {ended:?}"),
                () = tokio::time::sleep(until_next.min(Duration::from_millis(700))) => {}
            }
            assert!(supervisor.get_children().len() <= 6, "an actor has two lives");
            for actor in service.actors() {
                assert!(actor.mailbox <= 2, "{actor:?}");
            }
            assert!(world.age() < Duration::from_millis(PEACE_BY_MS), "it never ends");
            if next.is_some_and(|at| at <= world.age())
                && let Some((_, event)) = self.script.events.pop_front()
            {
                self.happen(&event, Some(service));
                if matches!(event, Event::Die) {
                    world.is_dead.store(true, Ordering::SeqCst);
                    return "the process dies".to_owned();
                }
            }
        }
    }

    fn happen(&mut self, event: &Event, service: Option<&Service>) {
        self.world.tell(format_args!("{event:?}"));
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
                // Two jumps of ten years in one direction are one too many.
                let off = self.world.off_ms.load(Ordering::SeqCst) + ms;
                if off.abs() <= TEN_YEARS_MS + 10_000_000 {
                    self.world.off_ms.store(off, Ordering::SeqCst);
                }
            }
            Event::Die => {}
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
        let mut stillborn = 0;
        for capture in &captures {
            let session = number_of(capture.session_id.as_str());
            self.world.tell(format_args!(
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
                    stillborn += u32::from(capture.stage == Stage::Git);
                }
                other => panic!("capture {} is {other}", capture.id),
            }
            for stage in Stage::ALL {
                let snoozes = if stage == Stage::Extraction { 7 } else { 0 };
                let claimed = claims.get(&(capture.id, stage)).copied().unwrap_or_default();
                assert!(
                    claimed <= ATTEMPTS_MAX + snoozes,
                    "capture {} was at {stage} {claimed} times",
                    capture.id
                );
            }
        }
        // A capture may be dead of the very last step: its branch is there and it does not know.
        assert!(unclaimed.len() <= stillborn as usize, "branches that no capture knows: {unclaimed:?}");
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

/// Runs many seeds, as many at once as there are processors.
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
fn a_seed_tells_the_same_story_twice() {
    for seed in 0..8 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
