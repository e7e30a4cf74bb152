//! The doorbell of an actor: a model of `Address::ring`, `Address::answer` and `Lease::publish` in
//! `actors/address.rs`, of an actor that claims one job for each bell and rings itself while it finds
//! one (`actors/indexing.rs` and the other stages), and of the supervisor that starts it, anew after a
//! fall, and drains it in a shutdown (`actors/supervisor.rs`).

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering::AcqRel, Ordering::SeqCst};
use loom::thread;

use crate::explore;

/// An actor's mailbox: closed or open, the bells that others rang, and its own.
const CLOSED: usize = 1;
const RUNG: usize = 1 << 1;
const OWN: usize = 1 << 8;

fn rung(mailbox: usize) -> usize {
    (mailbox % OWN) / RUNG
}

struct World {
    /// Jobs that are committed and not claimed.
    jobs: AtomicUsize,
    flag: AtomicBool,
    /// Who lives at the address: the number of a life, or 0.
    address: AtomicUsize,
    /// By life; 0 stands for nobody's.
    mailboxes: [AtomicUsize; 3],
    ringers_left: AtomicUsize,
    /// The most bells of others that were in a mailbox at once.
    rung_max: AtomicUsize,
}

/// The parts of the protocol that the broken variants change.
#[derive(Clone, Copy)]
struct Protocol {
    ring: fn(&World),
    answer_first: bool,
}

const AS_BUILT: Protocol = Protocol { ring: World::ring, answer_first: true };

impl World {
    fn new(ringers: usize) -> Arc<Self> {
        Arc::new(Self {
            jobs: AtomicUsize::new(0),
            flag: AtomicBool::new(false),
            address: AtomicUsize::new(0),
            mailboxes: [AtomicUsize::new(CLOSED), AtomicUsize::new(0), AtomicUsize::new(0)],
            ringers_left: AtomicUsize::new(ringers),
            rung_max: AtomicUsize::new(0),
        })
    }

    fn ring(&self) {
        if self.flag.swap(true, SeqCst) {
            return;
        }
        if !self.send() {
            self.flag.store(false, SeqCst);
        }
    }

    fn ring_and_clear(&self) {
        if self.flag.swap(true, SeqCst) {
            return;
        }
        self.send();
        self.flag.store(false, SeqCst);
    }

    /// `Address::send`: a look at who lives there, then a message, which a dead one refuses.
    fn send(&self) -> bool {
        let life = self.address.fetch_add(0, AcqRel);
        let open = |mailbox| (mailbox & CLOSED == 0).then_some(mailbox + RUNG);
        let Ok(before) = self.mailboxes[life].fetch_update(AcqRel, AcqRel, open) else { return false };
        self.rung_max.fetch_max(rung(before) + 1, AcqRel);
        true
    }

    fn publish(&self, life: usize) {
        self.flag.store(false, SeqCst);
        self.address.swap(life, AcqRel);
    }

    /// Takes one bell out of a mailbox.
    fn take(&self, life: usize) -> bool {
        let mailbox = self.mailboxes[life].fetch_add(0, AcqRel);
        let bell = if rung(mailbox) > 0 { RUNG } else { OWN };
        if mailbox & !CLOSED == 0 {
            return false;
        }
        self.mailboxes[life].fetch_sub(bell, AcqRel);
        true
    }

    fn ring_itself(&self, life: usize) {
        self.mailboxes[life].fetch_add(OWN, AcqRel);
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
            self.flag.store(false, SeqCst);
        }
        let found = self.claim();
        if !protocol.answer_first {
            self.flag.store(false, SeqCst);
        }
        if found {
            self.ring_itself(life);
        }
    }

    /// Lives until its mailbox is closed and empty, or nobody will ring again.
    fn live(&self, life: usize, protocol: Protocol) {
        loop {
            let nobody_comes = self.ringers_left.fetch_add(0, AcqRel) == 0;
            let is_closed = self.mailboxes[life].fetch_add(0, AcqRel) & CLOSED != 0;
            if self.take(life) {
                self.handle(life, protocol);
            } else if nobody_comes || is_closed {
                return;
            } else {
                thread::yield_now();
            }
        }
    }

    /// Falls: what is in its mailbox is lost, and the supervisor takes the address back.
    fn fall(&self, life: usize) {
        self.mailboxes[life].swap(CLOSED, AcqRel);
        self.publish(0);
    }

    /// Takes no more messages; those that are there are still handled.
    fn close(&self, life: usize) {
        self.mailboxes[life].fetch_or(CLOSED, AcqRel);
    }

    fn unseen(&self) -> usize {
        self.jobs.fetch_add(0, AcqRel)
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
fn check_living(preemptions: usize, protocol: Protocol, jobs: &'static [usize]) {
    explore(preemptions, move || {
        let world = World::new(jobs.len());
        world.publish(1);
        world.ring_itself(1);
        let ringers: Vec<_> = jobs.iter().map(|jobs| ringer(&world, protocol, *jobs)).collect();
        world.live(1, protocol);
        for ringer in ringers {
            ringer.join().unwrap();
        }
        assert_eq!(world.unseen(), 0, "work is left unseen");
        assert!(world.rung_max.fetch_add(0, AcqRel) <= 1, "bells pile up");
    });
}

#[test]
fn a_living_actor_sees_all_work_and_has_one_bell() {
    check_living(4, AS_BUILT, &[1, 1]);
    check_living(3, AS_BUILT, &[2, 1]);
    check_living(2, AS_BUILT, &[1, 1, 1]);
}

#[test]
#[should_panic(expected = "work is left unseen")]
fn control_answering_after_the_look_leaves_work_unseen() {
    check_living(3, Protocol { answer_first: false, ..AS_BUILT }, &[1, 1]);
}

#[test]
#[should_panic(expected = "bells pile up")]
fn control_clearing_the_flag_on_success_piles_up_bells() {
    check_living(3, Protocol { ring: World::ring_and_clear, ..AS_BUILT }, &[1, 1]);
}

/// A shutdown drains the mailbox and stops; `next` is the life in the next drainer, which looks as it
/// starts.
fn check_shutdown(preemptions: usize, next_looks: bool) {
    explore(preemptions, move || {
        let world = World::new(2);
        world.publish(1);
        world.ring_itself(1);
        let ringers = [ringer(&world, AS_BUILT, 1), ringer(&world, AS_BUILT, 1)];
        let supervisor = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.close(1))
        };
        world.live(1, AS_BUILT);
        for thread in ringers.into_iter().chain([supervisor]) {
            thread.join().unwrap();
        }
        assert_eq!(rung(world.mailboxes[1].fetch_add(0, AcqRel)), 0, "an accepted bell is not heard");
        world.publish(2);
        if next_looks {
            world.ring_itself(2);
        }
        world.live(2, AS_BUILT);
        assert_eq!(world.unseen(), 0, "work is left unseen");
        assert!(world.rung_max.fetch_add(0, AcqRel) <= 1, "bells pile up");
    });
}

#[test]
fn what_comes_during_a_shutdown_is_seen_by_the_next_life() {
    check_shutdown(2, true);
}

#[test]
#[should_panic(expected = "work is left unseen")]
fn control_a_next_life_that_does_not_look_as_it_starts_leaves_work_unseen() {
    check_shutdown(2, false);
}

/// When a life looks first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstLook {
    /// From `pre_start`: it may be over before the supervisor has published the address.
    BesideThePublication,
    AfterThePublication,
}

/// A first life falls with bells in its mailbox, and a second is started. With rounds, the drainer
/// looks in the end for work that is due and rings, as `work_until_idle` in `actors/service.rs` does.
fn check_restart(preemptions: usize, first_look: FirstLook, rounds: bool) {
    explore(preemptions, move || {
        let world = World::new(1 + usize::from(rounds));
        world.publish(1);
        let ringers = vec![ringer(&world, AS_BUILT, 2)];
        world.fall(1);
        let life = {
            let world = Arc::clone(&world);
            if first_look == FirstLook::BesideThePublication {
                world.ring_itself(2);
            }
            thread::spawn(move || world.live(2, AS_BUILT))
        };
        world.publish(2);
        if first_look == FirstLook::AfterThePublication {
            world.ring_itself(2);
        }
        for ringer in ringers {
            ringer.join().unwrap();
        }
        if rounds {
            if world.unseen() != 0 {
                world.ring();
            }
            world.ringers_left.fetch_sub(1, AcqRel);
        }
        life.join().unwrap();
        // The second life may have gone, as nobody would ring, before its first bell was there.
        world.live(2, AS_BUILT);
        assert_eq!(world.unseen(), 0, "work is left unseen");
        assert!(world.rung_max.fetch_add(0, AcqRel) <= 2, "bells pile up");
    });
}

#[test]
fn a_restarted_actor_and_the_drainers_rounds_leave_nothing_unseen() {
    check_restart(3, FirstLook::BesideThePublication, true);
}

#[test]
fn a_first_look_after_the_publication_needs_no_rounds() {
    check_restart(3, FirstLook::AfterThePublication, false);
}

#[test]
#[should_panic(expected = "work is left unseen")]
fn control_a_first_look_beside_the_publication_needs_the_drainers_rounds() {
    check_restart(3, FirstLook::BesideThePublication, false);
}
