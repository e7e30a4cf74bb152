//! What an actor shows of itself: to the watchdog, and to `nugget status` from outside.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// The signs of life of one actor, through every restart.
#[derive(Debug)]
pub struct Health {
    name: &'static str,
    born: Instant,
    /// How long one message may take before the actor counts as hung.
    patience: Duration,
    mailbox: Mailbox,
    handled: AtomicU64,
    restarts: AtomicU32,
    /// Milliseconds since `born` at which the message in hand was taken up, plus one; 0 when idle.
    busy_since: AtomicU64,
    last_error: Mutex<Option<String>>,
}

/// [`Health`] as `nugget status --json` shows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorReport {
    pub name: String,
    /// `idle`, `busy` or `down`.
    pub state: String,
    pub mailbox: u32,
    pub handled: u64,
    pub restarts: u32,
    pub last_error: Option<String>,
}

impl Health {
    pub fn new(name: &'static str, patience: Duration) -> Self {
        Self {
            name,
            born: Instant::now(),
            patience,
            mailbox: Mailbox::default(),
            handled: AtomicU64::new(0),
            restarts: AtomicU32::new(0),
            busy_since: AtomicU64::new(0),
            last_error: Mutex::new(None),
        }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    /// A message is being put into the mailbox.
    pub fn arrived(&self) -> Life {
        self.mailbox.arrived()
    }

    /// A message that had [`arrived`](Self::arrived) was refused.
    pub fn refused(&self, life: Life) {
        self.mailbox.left(Some(life));
    }

    /// The actor takes a message up; it is idle again when the guard goes, in a panic as well.
    pub fn begin(&self) -> Busy<'_> {
        self.mailbox.left(None);
        self.handled.fetch_add(1, Ordering::Relaxed);
        self.busy_since.store(self.born.elapsed().as_millis() as u64 + 1, Ordering::SeqCst);
        Busy { health: self }
    }

    /// The actor has fallen; its mailbox is lost with it.
    pub fn fell(&self, error: &str) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
        self.mailbox.lost();
        self.busy_since.store(0, Ordering::SeqCst);
        self.failed(error);
    }

    /// What the last life fell of, if there was one.
    pub fn last_fall(&self) -> Option<String> {
        (self.restarts() > 0).then(|| self.last_error.lock().ok().and_then(|last| last.clone())).flatten()
    }

    /// Something went wrong without the actor falling.
    pub fn failed(&self, error: &str) {
        if let Ok(mut last) = self.last_error.lock() {
            *last = Some(error.to_owned());
        }
    }

    /// Whether the message in hand has taken longer than the actor's patience.
    pub fn is_hung(&self) -> bool {
        let since = self.busy_since.load(Ordering::SeqCst);
        since > 0 && self.born.elapsed() > Duration::from_millis(since - 1) + self.patience
    }

    pub fn patience(&self) -> Duration {
        self.patience
    }

    pub fn restarts(&self) -> u32 {
        self.restarts.load(Ordering::Relaxed)
    }

    pub fn is_busy(&self) -> bool {
        self.busy_since.load(Ordering::SeqCst) > 0
    }

    pub fn report(&self, alive: bool) -> ActorReport {
        let state = match (alive, self.is_busy()) {
            (false, _) => "down",
            (true, true) => "busy",
            (true, false) => "idle",
        };
        ActorReport {
            name: self.name.to_owned(),
            state: state.to_owned(),
            mailbox: self.mailbox.count(),
            handled: self.handled.load(Ordering::Relaxed),
            restarts: self.restarts(),
            last_error: self.last_error.lock().ok().and_then(|last| last.clone()),
        }
    }
}

/// Which of an actor's lives a message was sent to: it counts in that one's mailbox and in no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life(u32);

/// How many messages wait. A life's mailbox is lost with it, while a sender may still hold on to it;
/// so the count and the life that it is of (its upper half) change as one.
#[derive(Debug, Default)]
struct Mailbox(AtomicU64);

impl Mailbox {
    const COUNT: u64 = u32::MAX as u64;

    fn arrived(&self) -> Life {
        Life((self.0.fetch_add(1, Ordering::Relaxed) >> 32) as u32)
    }

    fn left(&self, life: Option<Life>) {
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
            let is_meant = life.is_none_or(|life| u64::from(life.0) == now >> 32);
            (is_meant && now & Self::COUNT > 0).then(|| now - 1)
        });
    }

    fn lost(&self) {
        let next = |now: u64| Some(((now >> 32) + 1) << 32);
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    fn count(&self) -> u32 {
        (self.0.load(Ordering::Relaxed) & Self::COUNT) as u32
    }
}

/// Held while an actor works on a message.
pub struct Busy<'a> {
    health: &'a Health,
}

impl Busy<'_> {
    /// A sign of life in the midst of long work, so that the watchdog does not take it for hung.
    pub fn beat(&self) {
        let now = self.health.born.elapsed().as_millis() as u64 + 1;
        self.health.busy_since.store(now, Ordering::SeqCst);
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.health.busy_since.store(0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_counts_only_in_its_own_mailbox() {
        let health = Health::new("git", Duration::ZERO);
        let mailbox = || health.report(true).mailbox;
        let early = health.arrived();
        assert_eq!(mailbox(), 1);
        health.fell("test");
        assert_eq!(mailbox(), 0);
        health.refused(early);
        assert_eq!(mailbox(), 0, "it was gone already");
        let late = health.arrived();
        health.arrived();
        health.refused(early);
        assert_eq!(mailbox(), 2);
        health.refused(late);
        drop(health.begin());
        drop(health.begin());
        assert_eq!(mailbox(), 0);
        assert_eq!((health.report(true).restarts, health.last_fall().as_deref()), (1, Some("test")));
    }
}
