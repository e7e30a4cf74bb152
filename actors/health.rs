//! What an actor reports about itself: to the supervisor, and to `nugget status`.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// The state of one actor, across its restarts.
#[derive(Debug)]
pub(crate) struct Health {
    name: &'static str,
    created: Instant,
    /// How long one message may take before the actor counts as hung.
    patience: Duration,
    /// How many messages wait for the present incarnation of the actor: they are lost with it, while a sender may
    /// still count one.
    messages: Mutex<Arc<AtomicU32>>,
    handled: AtomicU64,
    restarts: AtomicU32,
    /// Milliseconds from `created` to the start of the current message, plus one; 0 when idle.
    busy_since: AtomicU64,
    last_error: Mutex<Option<String>>,
}

/// The state of one actor as `nugget status --json` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorReport {
    /// The actor's name, such as `indexing`.
    pub name: String,
    /// `idle`, `busy` or `down`.
    pub state: String,
    /// How many messages wait.
    pub mailbox: u32,
    /// How many messages it has taken up.
    pub handled: u64,
    /// How often it failed and was started again.
    pub restarts: u32,
    /// The last error, whether or not the actor failed with it.
    pub last_error: Option<String>,
}

impl Health {
    pub(crate) fn new(name: &'static str, patience: Duration) -> Self {
        Self {
            name,
            created: Instant::now(),
            patience,
            messages: Mutex::default(),
            handled: AtomicU64::new(0),
            restarts: AtomicU32::new(0),
            busy_since: AtomicU64::new(0),
            last_error: Mutex::new(None),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Counts a message that is about to be sent; returns the count, to take it back if the actor refuses it.
    pub(crate) fn message_sent(&self) -> Arc<AtomicU32> {
        let messages = self.messages();
        messages.fetch_add(1, Ordering::Relaxed);
        messages
    }

    fn messages(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Marks the actor as busy with a message until the guard is dropped, by a panic as well.
    pub(crate) fn begin(&self) -> Busy<'_> {
        // First, so that it is at no time idle between the two.
        self.beat();
        let less = |count: u32| count.checked_sub(1);
        let _ = self.messages().fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        self.handled.fetch_add(1, Ordering::Relaxed);
        Busy { health: self }
    }

    /// Reports progress within a long message, so that the supervisor does not take the actor for hung.
    pub(crate) fn beat(&self) {
        self.busy_since.store(self.created.elapsed().as_millis() as u64 + 1, Ordering::SeqCst);
    }

    /// The actor has failed; the messages that waited are lost with it.
    pub(crate) fn failed(&self, error: &str) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
        *self.messages.lock().unwrap_or_else(PoisonError::into_inner) = Arc::default();
        self.busy_since.store(0, Ordering::SeqCst);
        self.record_error(error);
    }

    /// Why the actor failed last, if it ever did.
    pub(crate) fn last_failure(&self) -> Option<String> {
        (self.restarts() > 0).then(|| self.last_error()).flatten()
    }

    /// Keeps an error that did not bring the actor down.
    pub(crate) fn record_error(&self, error: &str) {
        if let Ok(mut last) = self.last_error.lock() {
            *last = Some(error.to_owned());
        }
    }

    fn last_error(&self) -> Option<String> {
        self.last_error.lock().ok().and_then(|last| last.clone())
    }

    /// Whether the current message has taken longer than the actor's patience.
    pub(crate) fn is_hung(&self) -> bool {
        let since = self.busy_since.load(Ordering::SeqCst);
        since > 0 && self.created.elapsed() > Duration::from_millis(since - 1) + self.patience
    }

    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    fn restarts(&self) -> u32 {
        self.restarts.load(Ordering::Relaxed)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy_since.load(Ordering::SeqCst) > 0
    }

    /// Whether it works on a message, or has one to work on.
    pub(crate) fn has_work(&self) -> bool {
        self.messages().load(Ordering::Relaxed) > 0 || self.is_busy()
    }

    pub(crate) fn report(&self, is_running: bool) -> ActorReport {
        let state = match (is_running, self.is_busy()) {
            (false, _) => "down",
            (true, true) => "busy",
            (true, false) => "idle",
        };
        ActorReport {
            name: self.name.to_owned(),
            state: state.to_owned(),
            mailbox: self.messages().load(Ordering::Relaxed),
            handled: self.handled.load(Ordering::Relaxed),
            restarts: self.restarts(),
            last_error: self.last_error(),
        }
    }
}

/// Held while an actor works on a message.
pub(crate) struct Busy<'a> {
    health: &'a Health,
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
    fn a_message_counts_only_for_the_incarnation_it_was_sent_to() {
        let health = Health::new("git", Duration::ZERO);
        let mailbox = || health.report(true).mailbox;
        let early = health.message_sent();
        assert_eq!(mailbox(), 1);
        health.failed("test");
        assert_eq!(mailbox(), 0);
        early.fetch_sub(1, Ordering::Relaxed);
        assert_eq!(mailbox(), 0, "it was not counted any more");
        let late = health.message_sent();
        health.message_sent();
        early.fetch_sub(1, Ordering::Relaxed);
        assert_eq!(mailbox(), 2);
        late.fetch_sub(1, Ordering::Relaxed);
        drop(health.begin());
        drop(health.begin());
        assert_eq!(mailbox(), 0);
        assert_eq!((health.report(true).restarts, health.last_failure().as_deref()), (1, Some("test")));
    }
}
