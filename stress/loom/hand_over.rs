//! The hand-over between workers: the code of `src/queue/handover.rs` with two locks and processes that
//! are killed at every point of it.

use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering::AcqRel};
use loom::thread;

use crate::explore;
use crate::handover::{Handover, hand_over};

/// What the processes share: two kernel locks and a queue.
struct World {
    standby: AtomicBool,
    drain: AtomicBool,
    ready: AtomicUsize,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            standby: AtomicBool::new(false),
            drain: AtomicBool::new(false),
            ready: AtomicUsize::new(0),
        })
    }

    fn pending(&self) -> usize {
        self.ready.fetch_add(0, AcqRel)
    }
}

fn try_lock(lock: &AtomicBool) -> bool {
    !lock.swap(true, AcqRel)
}

fn is_set(flag: &AtomicBool) -> bool {
    flag.fetch_or(false, AcqRel)
}

/// Where a process is killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Point {
    /// It has the standby lock and has not asked for the drain lock yet.
    Standby,
    /// It has the standby lock while another process drains.
    Waiting,
    /// It has both locks.
    BothLocks,
    /// It has released the standby lock and has not looked into the queue yet.
    StandbyReleased,
    /// The queue was empty when it last looked; it still has the drain lock.
    Drained,
    /// It has released the drain lock.
    Unlocked,
    /// It has looked once more, and has not acted on the result yet.
    Looked,
}

/// What a process does, and where it is killed.
#[derive(Clone, Copy)]
struct Plan {
    run: fn(&Rc<Process>),
    commits: bool,
    killed_at: Option<Point>,
}

const UNHARMED: Plan = Plan { run: as_built, commits: true, killed_at: None };

/// A process that has committed no work itself when it is killed, such as a worker that was started for
/// the work of others.
fn killed(point: Point) -> Plan {
    Plan { commits: false, killed_at: Some(point), ..UNHARMED }
}

struct Process {
    world: Arc<World>,
    plan: Plan,
    killed: Cell<bool>,
    has_standby: Cell<bool>,
    has_drain: Cell<bool>,
}

impl Process {
    fn new(world: Arc<World>, plan: Plan) -> Rc<Self> {
        let (killed, has_standby, has_drain) = Default::default();
        Rc::new(Self { world, plan, killed, has_standby, has_drain })
    }

    fn run(world: Arc<World>, plan: Plan) {
        let process = Self::new(world, plan);
        if plan.commits {
            process.world.ready.fetch_add(1, AcqRel);
        }
        (plan.run)(&process);
    }

    fn start(world: &Arc<World>, plan: Plan) -> thread::JoinHandle<()> {
        let world = Arc::clone(world);
        thread::spawn(move || Self::run(world, plan))
    }

    /// Whether the process has been killed, here or before. The kernel releases its locks.
    fn is_killed_at(&self, point: Point) -> bool {
        if !self.killed.get() && self.plan.killed_at == Some(point) {
            self.killed.set(true);
            self.release(&self.has_standby, &self.world.standby);
            self.release(&self.has_drain, &self.world.drain);
        }
        self.killed.get()
    }

    fn release(&self, held: &Cell<bool>, lock: &AtomicBool) {
        if held.replace(false) {
            lock.swap(false, AcqRel);
        }
    }

    fn work(&self) {
        if self.is_killed_at(Point::StandbyReleased) {
            return;
        }
        while self.world.ready.swap(0, AcqRel) != 0 {}
        self.is_killed_at(Point::Drained);
    }

    fn is_pending(&self) -> bool {
        if self.is_killed_at(Point::Unlocked) {
            return false;
        }
        let pending = self.world.pending() != 0;
        !self.is_killed_at(Point::Looked) && pending
    }
}

struct StandbyGuard(Rc<Process>);
struct DrainGuard(Rc<Process>);

impl Drop for StandbyGuard {
    fn drop(&mut self) {
        self.0.release(&self.0.has_standby, &self.0.world.standby);
    }
}

impl Drop for DrainGuard {
    fn drop(&mut self) {
        self.0.release(&self.0.has_drain, &self.0.world.drain);
    }
}

impl Handover for Rc<Process> {
    type StandbyLock = StandbyGuard;
    type DrainLock = DrainGuard;
    type Error = Infallible;

    fn try_standby(&self) -> Result<Option<StandbyGuard>, Infallible> {
        if self.killed.get() || !try_lock(&self.world.standby) {
            return Ok(None);
        }
        self.has_standby.set(true);
        Ok(Some(StandbyGuard(Rc::clone(self))))
    }

    fn lock_drain(&self) -> Result<DrainGuard, Infallible> {
        self.is_killed_at(Point::Standby);
        while !self.killed.get() {
            if try_lock(&self.world.drain) {
                self.has_drain.set(true);
                self.is_killed_at(Point::BothLocks);
                break;
            }
            self.is_killed_at(Point::Waiting);
            thread::yield_now();
        }
        Ok(DrainGuard(Rc::clone(self)))
    }
}

fn as_built(process: &Rc<Process>) {
    let Ok(()) = hand_over(process, None, || process.work(), || process.is_pending());
}

/// Like a hook that takes the standby lock and starts a worker that inherits it.
fn by_inheritance(process: &Rc<Process>) {
    if let Ok(Some(standby)) = process.try_standby() {
        let Ok(()) = hand_over(process, Some(standby), || process.work(), || process.is_pending());
    }
}

fn with_a_single_lock(process: &Rc<Process>) {
    if try_lock(&process.world.drain) {
        process.has_drain.set(true);
        let drain = DrainGuard(Rc::clone(process));
        process.work();
        drop(drain);
    }
}

fn looking_before_releasing_standby(process: &Rc<Process>) {
    let Ok(Some(standby)) = process.try_standby() else { return };
    let Ok(drain) = process.lock_drain();
    process.work();
    drop(standby);
    drop(drain);
}

/// Runs the processes concurrently; with `sweep` another one afterwards, like the next hook, or the
/// periodic check of an MCP server.
fn check(preemptions: usize, plans: &[Plan], sweep: bool) {
    let plans = plans.to_vec();
    explore(preemptions, move || {
        let world = World::new();
        let threads: Vec<_> = plans.iter().map(|plan| Process::start(&world, *plan)).collect();
        for thread in threads {
            thread.join().unwrap();
        }
        if sweep {
            Process::run(Arc::clone(&world), Plan { commits: false, ..UNHARMED });
        }
        assert_eq!(world.pending(), 0, "lost wake-up: a job is stranded");
        assert!(!is_set(&world.standby) && !is_set(&world.drain), "a lock is held, but no process is left");
    });
}

fn all(run: fn(&Rc<Process>), count: usize) -> Vec<Plan> {
    vec![Plan { run, ..UNHARMED }; count]
}

#[test]
fn two_processes_strand_nothing() {
    check(4, &all(as_built, 2), false);
}

#[test]
fn three_processes_strand_nothing() {
    check(2, &all(as_built, 3), false);
}

#[test]
fn workers_that_inherit_standby_strand_nothing() {
    check(4, &all(by_inheritance, 2), false);
    check(2, &all(by_inheritance, 3), false);
}

#[test]
#[should_panic(expected = "lost wake-up")]
fn control_a_single_lock_strands_work() {
    check(3, &all(with_a_single_lock, 2), false);
}

#[test]
#[should_panic(expected = "lost wake-up")]
fn control_looking_before_releasing_standby_strands_work() {
    check(3, &all(looking_before_releasing_standby, 2), false);
}

#[test]
fn a_worker_killed_after_draining_strands_nothing() {
    for point in [Point::Drained, Point::Unlocked, Point::Looked] {
        check(4, &[killed(point), UNHARMED], false);
        check(2, &[killed(point), UNHARMED, UNHARMED], false);
    }
}

/// One process drains and another is on standby, which is killed while the first still drains. A process
/// that commits in the meantime may have left its work to the one on standby.
fn check_killed_waiter(point: Point, looks_after_unlocking: bool) {
    explore(4, move || {
        let world = World::new();
        let worker = Process::new(Arc::clone(&world), Plan { commits: false, ..UNHARMED });
        let mut hook = None;
        let Ok(()) = hand_over(
            &worker,
            None,
            || {
                worker.work();
                if hook.is_none() {
                    let waiter = Process::start(&world, killed(point));
                    hook = Some(Process::start(&world, UNHARMED));
                    waiter.join().unwrap();
                }
            },
            || looks_after_unlocking && worker.is_pending(),
        );
        hook.unwrap().join().unwrap();
        assert_eq!(world.pending(), 0, "lost wake-up: a job is stranded");
    });
}

#[test]
fn a_process_killed_on_standby_strands_nothing() {
    check_killed_waiter(Point::Standby, true);
    check_killed_waiter(Point::Waiting, true);
}

#[test]
#[should_panic(expected = "lost wake-up")]
fn control_without_a_last_look_a_kill_on_standby_strands_work() {
    check_killed_waiter(Point::Waiting, false);
}

#[test]
fn the_next_process_finds_the_work_of_a_killed_one() {
    use Point::{BothLocks, Drained, Looked, Standby, StandbyReleased, Unlocked, Waiting};
    for point in [Standby, Waiting, BothLocks, StandbyReleased, Drained, Unlocked, Looked] {
        let with_work = Plan { commits: true, ..killed(point) };
        check(3, &[with_work, UNHARMED], true);
        check(1, &[with_work, UNHARMED, UNHARMED], true);
    }
}

/// What the two locks do not guarantee, and the sweep is for: others left their work to the process that
/// is killed, and no worker is running.
macro_rules! control_without_a_sweep {
    ($($name:ident: $point:expr;)*) => {$(
        #[test]
        #[should_panic(expected = "lost wake-up")]
        fn $name() {
            check(3, &[killed($point), UNHARMED], false);
        }
    )*};
}

control_without_a_sweep! {
    control_a_kill_on_standby_needs_the_sweep: Point::Standby;
    control_a_kill_with_both_locks_needs_the_sweep: Point::BothLocks;
    control_a_kill_before_the_first_look_needs_the_sweep: Point::StandbyReleased;
}
