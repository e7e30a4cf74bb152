//! How one worker process hands over to the next without losing a wake-up.
//!
//! There are two locks. A process that has committed work tries the **standby** lock. If it is taken,
//! another process is about to look for work and will find this one's too. The holder of the standby
//! lock waits for the **drain** lock, releases the standby lock *before* it looks for work, drains the
//! queue, releases the drain lock, and looks once more. A process that commits work after that last
//! look therefore finds the standby lock free and becomes the next worker.
//!
//! This file has no dependencies: the models in `stress/loom` compile it as it is.

/// The two locks. A guard unlocks when it is dropped; the end of its process drops it too.
pub trait Handover {
    /// A guard of the standby lock.
    type StandbyLock;
    /// A guard of the drain lock.
    type DrainLock;
    /// Why a lock cannot be taken, now or later.
    type Error;

    /// Takes the standby lock if it is free.
    ///
    /// # Errors
    /// If the lock cannot be used at all.
    fn try_standby(&self) -> Result<Option<Self::StandbyLock>, Self::Error>;

    /// Waits until no other process drains, and takes the drain lock.
    ///
    /// # Errors
    /// If the lock cannot be used at all.
    fn lock_drain(&self) -> Result<Self::DrainLock, Self::Error>;
}

/// Drains until nothing is pending or another process is on standby.
///
/// `standby` is the standby lock if the caller already holds it. `work` drains the queue; `is_pending`
/// says whether anything is left.
///
/// # Errors
/// If a lock cannot be used. The standby lock is free again then, so that another process can try.
pub fn hand_over<H: Handover>(
    locks: &H,
    standby: Option<H::StandbyLock>,
    mut work: impl FnMut(),
    mut is_pending: impl FnMut() -> bool,
) -> Result<(), H::Error> {
    let mut next = match standby {
        Some(standby) => Some(standby),
        None => locks.try_standby()?,
    };
    while let Some(standby) = next {
        let drain = locks.lock_drain()?;
        // Before the first look: a process that commits from here on must find the standby lock free.
        drop(standby);
        work();
        drop(drain);
        next = if is_pending() { locks.try_standby()? } else { None };
    }
    Ok(())
}
