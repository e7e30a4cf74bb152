//! The doorbell of an actor: a model of `Address` (`ring`, `ring_again`, `answer`) and `Lease`
//! (`publish`, `first_ring`) in `actors/address.rs`, of an actor that claims one job for each bell and
//! rings itself while it finds one (`actors/indexing.rs` and the other stages), and of the supervisor
//! that starts it, anew after a fall, and drains it in a shutdown (`actors/supervisor.rs`).
//!
//! All messages of the model are the same bell, so a mailbox is how many it holds. The flag is always
//! swapped, where the actors store: loom knows nothing of the one order that `SeqCst` gives.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering::AcqRel, Ordering::SeqCst};
use loom::thread;

use crate::explore;

/// A mailbox: closed or open, and its bells.
const CLOSED: usize = 1;
const BELL: usize = 2;

struct World {
    /// Jobs that are committed and not claimed.
    jobs: AtomicUsize,
    flag: AtomicBool,
    /// Who lives at the address: the number of a life, or 0.
    address: AtomicUsize,
    /// By life; 0 stands for nobody's.
    mailboxes: [AtomicUsize; 3],
    ringers_left: AtomicUsize,
    /// The most bells that were in a mailbox at once.
    bells_max: AtomicUsize,
}

/// The parts of the protocol in which its variants differ.
#[derive(Clone, Copy)]
struct Protocol {
    ring: fn(&World),
    answer_first: bool,
    /// How an actor that found a job sees to it that it looks again.
    again: fn(&World, usize),
}

/// As the actors do at present.
const AS_BUILT: Protocol = Protocol { ring: World::ring, answer_first: true, again: World::ring_itself };

/// An actor that goes past the flag when it rings itself.
const PAST_THE_FLAG: Protocol = Protocol { again: World::cast_to_itself, ..AS_BUILT };

impl World {
    fn new(ringers: usize) -> Arc<Self> {
        Arc::new(Self {
            jobs: AtomicUsize::new(0),
            flag: AtomicBool::new(false),
            address: AtomicUsize::new(0),
            mailboxes: [AtomicUsize::new(CLOSED), AtomicUsize::new(0), AtomicUsize::new(0)],
            ringers_left: AtomicUsize::new(ringers),
            bells_max: AtomicUsize::new(0),
        })
    }

    fn ring(&self) {
        if self.flag.swap(true, SeqCst) {
            return;
        }
        if !self.send() {
            self.flag.swap(false, SeqCst);
        }
    }

    fn ring_and_clear(&self) {
        if self.flag.swap(true, SeqCst) {
            return;
        }
        self.send();
        self.flag.swap(false, SeqCst);
    }

    /// `Address::send`: a look at who lives there, then a message, which a dead one refuses.
    fn send(&self) -> bool {
        self.cast(self.address.fetch_add(0, AcqRel))
    }

    fn cast(&self, life: usize) -> bool {
        let open = |mailbox| (mailbox & CLOSED == 0).then_some(mailbox + BELL);
        let Ok(before) = self.mailboxes[life].fetch_update(AcqRel, AcqRel, open) else { return false };
        self.bells_max.fetch_max(before / BELL + 1, AcqRel);
        true
    }

    fn cast_to_itself(&self, life: usize) {
        self.cast(life);
    }

    fn ring_itself(&self, life: usize) {
        if !self.flag.swap(true, SeqCst) && !self.cast(life) {
            self.flag.swap(false, SeqCst);
        }
    }

    fn publish(&self, life: usize) {
        self.flag.swap(false, SeqCst);
        self.address.swap(life, AcqRel);
    }

    /// Claims one job, as a transaction does. Only one life at a time claims.
    fn claim(&self) -> bool {
        let found = self.unseen() != 0;
        if found {
            self.jobs.fetch_sub(1, AcqRel);
        }
        found
    }

    fn handle(&self, life: usize, protocol: Protocol) {
        if protocol.answer_first {
            self.flag.swap(false, SeqCst);
        }
        let found = self.claim();
        if !protocol.answer_first {
            self.flag.swap(false, SeqCst);
        }
        if found {
            (protocol.again)(self, life);
        }
    }

    /// Lives until its mailbox is empty, and closed or nobody left who might ring.
    fn live(&self, life: usize, protocol: Protocol) {
        loop {
            let nobody_comes = self.ringers_left.fetch_add(0, AcqRel) == 0;
            let mailbox = self.mailboxes[life].fetch_add(0, AcqRel);
            if mailbox >= BELL {
                self.mailboxes[life].fetch_sub(BELL, AcqRel);
                self.handle(life, protocol);
            } else if nobody_comes || mailbox == CLOSED {
                return;
            } else {
                thread::yield_now();
            }
        }
    }

    /// Takes no more messages; those that are there are still handled.
    fn close(&self, life: usize) {
        self.mailboxes[life].fetch_or(CLOSED, AcqRel);
    }

    /// What is in its mailbox is lost, and the supervisor takes the address back.
    fn fall(&self, life: usize) {
        self.mailboxes[life].swap(CLOSED, AcqRel);
        self.publish(0);
    }

    fn unseen(&self) -> usize {
        self.jobs.fetch_add(0, AcqRel)
    }

    fn check(&self, bells_max: usize) {
        assert_eq!(self.unseen(), 0, "work is left unseen");
        assert!(self.bells_max.fetch_add(0, AcqRel) <= bells_max, "bells pile up");
    }
}

fn ringer(world: &Arc<World>, protocol: Protocol, jobs: usize) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || {
        for _ in 0..jobs {
            world.jobs.fetch_add(1, AcqRel);
            (protocol.ring)(&world);
        }
        world.ringers_left.fetch_sub(1, AcqRel);
    })
}

/// An actor that lives throughout, with threads that commit so many jobs each.
fn check_living(preemptions: usize, protocol: Protocol, jobs: &'static [usize], bells_max: usize) {
    explore(preemptions, move || {
        let world = World::new(jobs.len());
        world.publish(1);
        (protocol.again)(&world, 1);
        let ringers: Vec<_> = jobs.iter().map(|jobs| ringer(&world, protocol, *jobs)).collect();
        world.live(1, protocol);
        for ringer in ringers {
            ringer.join().unwrap();
        }
        world.check(bells_max);
    });
}

#[test]
fn a_living_actor_sees_all_work_and_has_one_bell() {
    check_living(3, AS_BUILT, &[1, 1], 1);
    check_living(2, AS_BUILT, &[3], 1);
}

#[test]
#[should_panic(expected = "bells pile up")]
fn control_an_actor_that_goes_past_the_flag_has_more_than_one_bell() {
    check_living(2, PAST_THE_FLAG, &[2], 1);
}

#[test]
#[should_panic(expected = "work is left unseen")]
fn control_answering_after_the_look_leaves_work_unseen() {
    check_living(3, Protocol { answer_first: false, ..AS_BUILT }, &[1, 1], usize::MAX);
}

#[test]
#[should_panic(expected = "bells pile up")]
fn control_clearing_the_flag_on_success_piles_up_bells() {
    check_living(2, Protocol { ring: World::ring_and_clear, ..AS_BUILT }, &[1, 1], 1);
}

/// A shutdown drains the mailbox and stops; the second life is that of the next drainer.
fn check_shutdown(looks_as_it_starts: bool) {
    explore(2, move || {
        let world = World::new(1);
        world.publish(1);
        world.cast(1);
        let ringer = ringer(&world, AS_BUILT, 2);
        let supervisor = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.close(1))
        };
        world.live(1, AS_BUILT);
        ringer.join().unwrap();
        supervisor.join().unwrap();
        assert!(world.mailboxes[1].fetch_add(0, AcqRel) < BELL, "an accepted bell is not heard");
        world.publish(2);
        if looks_as_it_starts {
            world.cast(2);
        }
        world.live(2, AS_BUILT);
        world.check(3);
    });
}

#[test]
fn what_comes_during_a_shutdown_is_seen_by_the_next_life() {
    check_shutdown(true);
}

#[test]
#[should_panic(expected = "work is left unseen")]
fn control_a_next_life_that_does_not_look_as_it_starts_leaves_work_unseen() {
    check_shutdown(false);
}

/// When a life looks first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstLook {
    /// From `pre_start`, as built: it may be over before the supervisor has published the address.
    BesideThePublication,
    AfterThePublication,
}

/// A first life falls with bells in its mailbox, and a second is started. With rounds, the drainer
/// looks in the end for work that is due and rings, as `work_until_idle` in `actors/service.rs` does.
fn check_restart(first_look: FirstLook, rounds: bool) {
    explore(2, move || {
        let world = World::new(2);
        world.publish(1);
        let ringer = ringer(&world, AS_BUILT, 2);
        world.fall(1);
        if first_look == FirstLook::BesideThePublication {
            world.cast(2);
        }
        let life = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.live(2, AS_BUILT))
        };
        world.publish(2);
        if first_look == FirstLook::AfterThePublication {
            world.cast(2);
        }
        ringer.join().unwrap();
        if rounds && world.unseen() != 0 {
            world.ring();
        }
        world.ringers_left.fetch_sub(1, AcqRel);
        life.join().unwrap();
        world.check(4);
    });
}

#[test]
fn a_restarted_actor_and_the_drainers_rounds_leave_nothing_unseen() {
    check_restart(FirstLook::BesideThePublication, true);
}

#[test]
fn a_first_look_after_the_publication_needs_no_rounds() {
    check_restart(FirstLook::AfterThePublication, false);
}

#[test]
#[should_panic(expected = "work is left unseen")]
fn control_a_first_look_beside_the_publication_needs_the_drainers_rounds() {
    check_restart(FirstLook::BesideThePublication, false);
}
