//! The hand-over between drainers: the code of `src/queue/handover.rs` over two locks, with processes
//! that are killed at every point of it.

use std::cell::Cell;
use std::rc::Rc;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering::AcqRel};
use loom::thread;

use crate::explore;
use crate::handover::{Handover, hand_over};

/// What processes share: two locks of the kernel and a queue.
struct World {
    room: AtomicBool,
    drain: AtomicBool,
    ready: AtomicUsize,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            room: AtomicBool::new(false),
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
    /// In the waiting room, before it asks for the drain lock.
    Entered,
    /// In the waiting room, while another drains.
    Waiting,
    /// It has both locks.
    BothLocks,
    /// Out of the room, before it looks into the queue.
    LeftRoom,
    /// The queue was empty when it last looked; it has the drain lock still.
    Drained,
    Unlocked,
    /// It has looked once more, and done nothing about it yet.
    Looked,
}

/// A process: what it does, and when it ends.
#[derive(Clone, Copy)]
struct Plan {
    run: fn(&Rc<Process>),
    commits: bool,
    dies: Option<Point>,
}

const LIVING: Plan = Plan { run: as_built, commits: true, dies: None };

/// A process that had nothing of its own in the queue when it was killed, such as a drainer that was
/// started for the work of others.
fn killed(point: Point) -> Plan {
    Plan { commits: false, dies: Some(point), ..LIVING }
}

struct Process {
    world: Arc<World>,
    plan: Plan,
    dead: Cell<bool>,
    in_room: Cell<bool>,
    drains: Cell<bool>,
}

impl Process {
    fn new(world: Arc<World>, plan: Plan) -> Rc<Self> {
        let (dead, in_room, drains) = Default::default();
        Rc::new(Self { world, plan, dead, in_room, drains })
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

    /// Whether the process is dead, here or since before. The kernel gives back what it held.
    fn ends_at(&self, point: Point) -> bool {
        if !self.dead.get() && self.plan.dies == Some(point) {
            self.dead.set(true);
            self.release(&self.in_room, &self.world.room);
            self.release(&self.drains, &self.world.drain);
        }
        self.dead.get()
    }

    fn release(&self, held: &Cell<bool>, lock: &AtomicBool) {
        if held.replace(false) {
            lock.swap(false, AcqRel);
        }
    }

    fn work(&self) {
        if self.ends_at(Point::LeftRoom) {
            return;
        }
        while self.world.ready.swap(0, AcqRel) != 0 {}
        self.ends_at(Point::Drained);
    }

    fn is_pending(&self) -> bool {
        if self.ends_at(Point::Unlocked) {
            return false;
        }
        let pending = self.world.pending() != 0;
        !self.ends_at(Point::Looked) && pending
    }
}

struct Room(Rc<Process>);
struct Drain(Rc<Process>);

impl Drop for Room {
    fn drop(&mut self) {
        self.0.release(&self.0.in_room, &self.0.world.room);
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        self.0.release(&self.0.drains, &self.0.world.drain);
    }
}

impl Handover for Rc<Process> {
    type StandbyLock = Room;
    type DrainLock = Drain;

    fn try_standby(&self) -> Option<Room> {
        if self.dead.get() || !try_lock(&self.world.room) {
            return None;
        }
        self.in_room.set(true);
        Some(Room(Rc::clone(self)))
    }

    fn lock_drain(&self) -> Drain {
        self.ends_at(Point::Entered);
        while !self.dead.get() {
            if try_lock(&self.world.drain) {
                self.drains.set(true);
                self.ends_at(Point::BothLocks);
                break;
            }
            self.ends_at(Point::Waiting);
            thread::yield_now();
        }
        Drain(Rc::clone(self))
    }
}

fn as_built(process: &Rc<Process>) {
    hand_over(process, None, || process.work(), || process.is_pending());
}

/// As a hook does that takes the place and starts a worker which inherits it.
fn by_inheritance(process: &Rc<Process>) {
    if let Some(room) = process.try_standby() {
        hand_over(process, Some(room), || process.work(), || process.is_pending());
    }
}

fn with_a_single_lock(process: &Rc<Process>) {
    if try_lock(&process.world.drain) {
        process.drains.set(true);
        let drain = Drain(Rc::clone(process));
        process.work();
        drop(drain);
    }
}

fn looking_before_it_leaves_the_room(process: &Rc<Process>) {
    let Some(room) = process.try_standby() else { return };
    let drain = process.lock_drain();
    process.work();
    drop(room);
    drop(drain);
}

/// Runs the processes at the same time; then, with a sweep, one that comes by later, as any next hook
/// and the minute's look of a server do.
fn check(preemptions: usize, plans: &[Plan], sweep: bool) {
    let plans = plans.to_vec();
    explore(preemptions, move || {
        let world = World::new();
        let threads: Vec<_> = plans.iter().map(|plan| Process::start(&world, *plan)).collect();
        for thread in threads {
            thread.join().unwrap();
        }
        if sweep {
            Process::run(Arc::clone(&world), Plan { commits: false, ..LIVING });
        }
        assert_eq!(world.pending(), 0, "lost wake-up: a job is stranded");
        assert!(!is_set(&world.room) && !is_set(&world.drain), "a lock is held by nobody");
    });
}

fn all(run: fn(&Rc<Process>), count: usize) -> Vec<Plan> {
    vec![Plan { run, ..LIVING }; count]
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
fn workers_that_inherit_their_place_strand_nothing() {
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
fn control_looking_before_leaving_the_room_strands_work() {
    check(3, &all(looking_before_it_leaves_the_room, 2), false);
}

#[test]
fn a_drainer_killed_after_its_drain_strands_nothing() {
    for point in [Point::Drained, Point::Unlocked, Point::Looked] {
        check(4, &[killed(point), LIVING], false);
        check(2, &[killed(point), LIVING, LIVING], false);
    }
}

/// A drainer lives, and another waits, which is killed while the first still drains; whoever commits
/// meanwhile may have left its work to the one who waits.
fn check_killed_waiter(point: Point, looks_after_unlocking: bool) {
    explore(4, move || {
        let world = World::new();
        let drainer = Process::new(Arc::clone(&world), Plan { commits: false, ..LIVING });
        let mut hook = None;
        hand_over(
            &drainer,
            None,
            || {
                drainer.work();
                if hook.is_none() {
                    let waiter = Process::start(&world, killed(point));
                    hook = Some(Process::start(&world, LIVING));
                    waiter.join().unwrap();
                }
            },
            || looks_after_unlocking && drainer.is_pending(),
        );
        hook.unwrap().join().unwrap();
        assert_eq!(world.pending(), 0, "lost wake-up: a job is stranded");
    });
}

#[test]
fn a_waiter_killed_while_a_drainer_lives_strands_nothing() {
    check_killed_waiter(Point::Entered, true);
    check_killed_waiter(Point::Waiting, true);
}

#[test]
#[should_panic(expected = "lost wake-up")]
fn control_without_a_look_after_unlocking_a_killed_waiter_strands_work() {
    check_killed_waiter(Point::Waiting, false);
}

#[test]
fn whoever_comes_next_finds_what_a_process_left_that_was_killed_anywhere() {
    use Point::{BothLocks, Drained, Entered, LeftRoom, Looked, Unlocked, Waiting};
    for point in [Entered, Waiting, BothLocks, LeftRoom, Drained, Unlocked, Looked] {
        let with_work = Plan { commits: true, ..killed(point) };
        check(3, &[with_work, LIVING], true);
        check(1, &[with_work, LIVING, LIVING], true);
    }
}

/// What the two locks do not give, and the sweep is for: others had left their work to the process
/// that is killed, and no drainer lives.
macro_rules! control_without_a_sweep {
    ($($name:ident: $point:expr;)*) => {$(
        #[test]
        #[should_panic(expected = "lost wake-up")]
        fn $name() {
            check(3, &[killed($point), LIVING], false);
        }
    )*};
}

control_without_a_sweep! {
    control_a_waiter_killed_without_a_drainer_needs_the_sweep: Point::Entered;
    control_a_drainer_killed_with_both_locks_needs_the_sweep: Point::BothLocks;
    control_a_drainer_killed_before_its_first_look_needs_the_sweep: Point::LeftRoom;
}
