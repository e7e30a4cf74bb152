//! Wake-ups of actors: a model of `Mailbox` (`wake`, `wake_again`, `clear_wake`) and its owner (`publish`,
//! `first_wake`) in `actors/mailbox.rs`, of a stage's actor, which claims one job for each wake-up and
//! wakes itself while it finds one, and of the supervisor that starts it, restarts it after a crash, and
//! drains it in a shutdown (`actors/supervisor.rs`).
//!
//! All messages of the model are the same wake-up, so a mailbox is the number of them. The flag is always
//! swapped where the actors store it, because loom does not model the single order that `SeqCst` gives.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering::AcqRel, Ordering::SeqCst};
use loom::thread;

use crate::explore;

/// A mailbox is a bit that says whether it is closed, and the number of wake-ups.
const CLOSED: usize = 1;
const WAKE: usize = 2;

struct World {
    /// Jobs that are committed and unclaimed.
    jobs: AtomicUsize,
    /// Whether a wake-up is pending.
    wake_pending: AtomicBool,
    /// The actor that receives messages: the number of a run, or 0 for none.
    current: AtomicUsize,
    /// By run; the one at 0 is always closed.
    mailboxes: [AtomicUsize; 3],
    senders_left: AtomicUsize,
    /// The most wake-ups that were in a mailbox at once.
    wakes_max: AtomicUsize,
}

/// The parts of the protocol that its variants change.
#[derive(Clone, Copy)]
struct Protocol {
    wake: fn(&World),
    /// Whether the actor clears the flag before it looks for a job.
    clears_first: bool,
    /// How an actor that found a job makes itself look again.
    wake_again: fn(&World, usize),
}

/// The protocol of the product.
const AS_BUILT: Protocol = Protocol { wake: World::wake, clears_first: true, wake_again: World::wake_again };

/// An actor that ignores the flag when it wakes itself.
const IGNORES_FLAG: Protocol = Protocol { wake_again: World::send_to_itself, ..AS_BUILT };

impl World {
    fn new(senders: usize) -> Arc<Self> {
        Arc::new(Self {
            jobs: AtomicUsize::new(0),
            wake_pending: AtomicBool::new(false),
            current: AtomicUsize::new(0),
            mailboxes: [AtomicUsize::new(CLOSED), AtomicUsize::new(0), AtomicUsize::new(0)],
            senders_left: AtomicUsize::new(senders),
            wakes_max: AtomicUsize::new(0),
        })
    }

    fn wake(&self) {
        if self.wake_pending.swap(true, SeqCst) {
            return;
        }
        if !self.send_to_current() {
            self.wake_pending.swap(false, SeqCst);
        }
    }

    fn wake_and_clear(&self) {
        if self.wake_pending.swap(true, SeqCst) {
            return;
        }
        self.send_to_current();
        self.wake_pending.swap(false, SeqCst);
    }

    /// `Mailbox::wake`: reads the current actor, then sends a message, which a stopped actor refuses.
    fn send_to_current(&self) -> bool {
        self.send(self.current.fetch_add(0, AcqRel))
    }

    fn send(&self, run: usize) -> bool {
        let open = |mailbox| (mailbox & CLOSED == 0).then_some(mailbox + WAKE);
        let Ok(before) = self.mailboxes[run].fetch_update(AcqRel, AcqRel, open) else { return false };
        self.wakes_max.fetch_max(before / WAKE + 1, AcqRel);
        true
    }

    fn send_to_itself(&self, run: usize) {
        self.send(run);
    }

    fn wake_again(&self, run: usize) {
        if !self.wake_pending.swap(true, SeqCst) && !self.send(run) {
            self.wake_pending.swap(false, SeqCst);
        }
    }

    fn publish(&self, run: usize) {
        self.wake_pending.swap(false, SeqCst);
        self.current.swap(run, AcqRel);
    }

    /// Claims one job, as a transaction does. Only one actor claims at a time.
    fn claim(&self) -> bool {
        let found = self.unclaimed() != 0;
        if found {
            self.jobs.fetch_sub(1, AcqRel);
        }
        found
    }

    fn handle(&self, run: usize, protocol: Protocol) {
        if protocol.clears_first {
            self.wake_pending.swap(false, SeqCst);
        }
        let found = self.claim();
        if !protocol.clears_first {
            self.wake_pending.swap(false, SeqCst);
        }
        if found {
            (protocol.wake_again)(self, run);
        }
    }

    /// Handles messages until the mailbox is empty, and closed or no sender is left.
    fn handle_all(&self, run: usize, protocol: Protocol) {
        loop {
            let no_sender_left = self.senders_left.fetch_add(0, AcqRel) == 0;
            let mailbox = self.mailboxes[run].fetch_add(0, AcqRel);
            if mailbox >= WAKE {
                self.mailboxes[run].fetch_sub(WAKE, AcqRel);
                self.handle(run, protocol);
            } else if no_sender_left || mailbox == CLOSED {
                return;
            } else {
                thread::yield_now();
            }
        }
    }

    /// Accepts no more messages; those in the mailbox are still handled.
    fn close(&self, run: usize) {
        self.mailboxes[run].fetch_or(CLOSED, AcqRel);
    }

    /// Loses the messages in the mailbox, and withdraws the actor, as the supervisor does.
    fn crash(&self, run: usize) {
        self.mailboxes[run].swap(CLOSED, AcqRel);
        self.publish(0);
    }

    fn unclaimed(&self) -> usize {
        self.jobs.fetch_add(0, AcqRel)
    }

    fn check(&self, wakes_max: usize) {
        assert_eq!(self.unclaimed(), 0, "work is left unclaimed");
        assert!(self.wakes_max.fetch_add(0, AcqRel) <= wakes_max, "wake-ups pile up");
    }
}

fn sender(world: &Arc<World>, protocol: Protocol, jobs: usize) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || {
        for _ in 0..jobs {
            world.jobs.fetch_add(1, AcqRel);
            (protocol.wake)(&world);
        }
        world.senders_left.fetch_sub(1, AcqRel);
    })
}

/// One actor that never stops, with threads that commit this many jobs each.
fn check_one_actor(preemptions: usize, protocol: Protocol, jobs: &'static [usize], wakes_max: usize) {
    explore(preemptions, move || {
        let world = World::new(jobs.len());
        world.publish(1);
        (protocol.wake_again)(&world, 1);
        let senders: Vec<_> = jobs.iter().map(|jobs| sender(&world, protocol, *jobs)).collect();
        world.handle_all(1, protocol);
        for sender in senders {
            sender.join().unwrap();
        }
        world.check(wakes_max);
    });
}

#[test]
fn an_actor_claims_all_work_with_one_pending_wake_up() {
    check_one_actor(3, AS_BUILT, &[1, 1], 1);
    check_one_actor(2, AS_BUILT, &[3], 1);
}

#[test]
#[should_panic(expected = "wake-ups pile up")]
fn control_ignoring_the_flag_piles_up_wake_ups() {
    check_one_actor(2, IGNORES_FLAG, &[2], 1);
}

#[test]
#[should_panic(expected = "work is left unclaimed")]
fn control_clearing_after_the_look_leaves_work_unclaimed() {
    check_one_actor(3, Protocol { clears_first: false, ..AS_BUILT }, &[1, 1], usize::MAX);
}

#[test]
#[should_panic(expected = "wake-ups pile up")]
fn control_clearing_on_success_piles_up_wake_ups() {
    check_one_actor(2, Protocol { wake: World::wake_and_clear, ..AS_BUILT }, &[1, 1], 1);
}

/// A shutdown drains the mailbox and stops the actor; the second run is in the next worker process.
fn check_shutdown(looks_at_start: bool) {
    explore(2, move || {
        let world = World::new(1);
        world.publish(1);
        world.send(1);
        let sender = sender(&world, AS_BUILT, 2);
        let supervisor = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.close(1))
        };
        world.handle_all(1, AS_BUILT);
        sender.join().unwrap();
        supervisor.join().unwrap();
        assert!(world.mailboxes[1].fetch_add(0, AcqRel) < WAKE, "an accepted wake-up was not handled");
        world.publish(2);
        if looks_at_start {
            world.send(2);
        }
        world.handle_all(2, AS_BUILT);
        world.check(3);
    });
}

#[test]
fn work_added_during_a_shutdown_is_claimed_by_the_next_run() {
    check_shutdown(true);
}

#[test]
#[should_panic(expected = "work is left unclaimed")]
fn control_a_run_without_a_first_look_leaves_work_unclaimed() {
    check_shutdown(false);
}

/// When a restarted actor looks for work for the first time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstLook {
    /// From `pre_start`: it may be over before the supervisor publishes the actor.
    BesidePublication,
    /// As built: the supervisor wakes the actor after it has published it.
    AfterPublication,
}

/// A first run crashes with wake-ups in its mailbox, and a second is started. With `rounds` the worker
/// process looks for due work in the end and wakes the actor, like the loop in `actors/service.rs`.
fn check_restart(first_look: FirstLook, rounds: bool) {
    explore(2, move || {
        let world = World::new(2);
        world.publish(1);
        let sender = sender(&world, AS_BUILT, 2);
        world.crash(1);
        if first_look == FirstLook::BesidePublication {
            world.send(2);
        }
        let run = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.handle_all(2, AS_BUILT))
        };
        world.publish(2);
        if first_look == FirstLook::AfterPublication {
            world.send(2);
        }
        sender.join().unwrap();
        if rounds && world.unclaimed() != 0 {
            world.wake();
        }
        world.senders_left.fetch_sub(1, AcqRel);
        run.join().unwrap();
        world.check(4);
    });
}

#[test]
fn a_restart_and_the_workers_rounds_leave_nothing_unclaimed() {
    check_restart(FirstLook::BesidePublication, true);
}

#[test]
fn a_first_look_after_the_publication_needs_no_rounds() {
    check_restart(FirstLook::AfterPublication, false);
}

#[test]
#[should_panic(expected = "work is left unclaimed")]
fn control_a_look_beside_the_publication_needs_rounds() {
    check_restart(FirstLook::BesidePublication, false);
}
