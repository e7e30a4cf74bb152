//! How one drainer hands over to the next without losing a wake-up.
//!
//! Two locks. Who has committed work tries the *waiting room*; if it is taken, somebody is about to
//! look, and the work is theirs. Who has the waiting room waits for the *drain* lock, leaves the
//! room **before** it looks, drains, unlocks, and looks once more. Whoever commits work after the
//! last look therefore finds the room empty and becomes the next drainer.
//!
//! This file has no dependencies: the models in `stress/loom` compile it as it is here.

/// The two locks. A guard unlocks when dropped; the death of its process drops it as well.
pub trait Handover {
    type StandbyLock;
    type DrainLock;

    /// Enters the waiting room if it is empty.
    fn try_standby(&self) -> Option<Self::StandbyLock>;

    /// Waits until nobody else drains.
    fn lock_drain(&self) -> Self::DrainLock;
}

/// Drains until nothing is pending or somebody else waits to.
///
/// `room` is the place in the waiting room that the caller has, if it has been handed one.
/// `work` drains the queue; `is_pending` looks whether there is anything left.
pub fn hand_over<H: Handover>(
    locks: &H,
    room: Option<H::StandbyLock>,
    mut work: impl FnMut(),
    mut is_pending: impl FnMut() -> bool,
) {
    let mut room = room.or_else(|| locks.try_standby());
    while let Some(place) = room {
        let drain = locks.lock_drain();
        // Before the first look: whoever commits from here on must find the room empty.
        drop(place);
        work();
        drop(drain);
        room = if is_pending() { locks.try_standby() } else { None };
    }
}
