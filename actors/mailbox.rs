//! How to send messages to an actor, across its restarts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ractor::{ActorRef, RpcReplyPort};
use tokio::sync::watch;

use crate::health::Health;

/// Why a request to an actor was not answered.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The actor is restarting, or its answer did not come in time.
    #[error("{0} did not answer in time")]
    NoAnswer(&'static str),
    /// The actor answered that the request failed.
    #[error("{0}")]
    Failed(String),
}

/// Sends messages to an actor, across its restarts.
///
/// A restarted actor is a new `ActorRef`, and the old one refuses messages. A mailbox always refers to the
/// running actor, or to none while the supervisor waits before it restarts it.
pub(crate) struct Mailbox<M> {
    current: watch::Sender<Option<ActorRef<M>>>,
    /// Whether a wake-up is waiting to be handled.
    wake_pending: AtomicBool,
    health: Arc<Health>,
}

impl<M: ractor::Message> Mailbox<M> {
    /// A mailbox that has no actor yet.
    pub(crate) fn new(name: &'static str, patience: Duration) -> Self {
        let health = Arc::new(Health::new(name, patience));
        Self { current: watch::Sender::new(None), wake_pending: AtomicBool::new(false), health }
    }

    /// Called by the supervisor: directs messages to this actor from now on.
    pub(crate) fn publish(&self, actor: Option<ActorRef<M>>) {
        // A wake-up for the previous actor is lost with it.
        self.wake_pending.store(false, Ordering::SeqCst);
        self.current.send_replace(actor);
    }

    /// The running actor, if there is one.
    pub(crate) fn get(&self) -> Option<ActorRef<M>> {
        self.current.borrow().clone()
    }

    pub(crate) fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Tells the actor to look for work, unless a wake-up is pending already.
    ///
    /// The queues of messages are unbounded; this keeps each at a single wake-up however much work arrives.
    pub(crate) fn wake(&self, wake: M) {
        if self.wake_pending.swap(true, Ordering::SeqCst) {
            return;
        }
        match self.get() {
            Some(actor) => self.send_wake(&actor, wake),
            // The next actor begins with a look into the queue.
            None => self.wake_pending.store(false, Ordering::SeqCst),
        }
    }

    /// Called by the actor that has done one job and looks for the next: one job for each message, so that
    /// a stop need not wait for all of them. One pending wake-up is enough; with two there would be no end. Called
    /// by the supervisor for an actor that it has just published: it looks at the work that was left behind or
    /// added while no actor was running.
    pub(crate) fn wake_again(&self, myself: &ActorRef<M>, wake: M) {
        if !self.wake_pending.swap(true, Ordering::SeqCst) {
            self.send_wake(myself, wake);
        }
    }

    /// Called by the actor as it handles a wake-up, before it looks into the queue: a wake-up that comes
    /// after this may be about work that this look does not see.
    pub(crate) fn clear_wake(&self) {
        self.wake_pending.store(false, Ordering::SeqCst);
    }

    fn send_wake(&self, actor: &ActorRef<M>, wake: M) {
        if !self.send(actor, wake) {
            self.wake_pending.store(false, Ordering::SeqCst);
        }
    }

    /// Sends a message; returns whether the actor was there to take it.
    fn send(&self, actor: &ActorRef<M>, message: M) -> bool {
        let count = self.health.message_sent();
        let sent = actor.cast(message).is_ok();
        if !sent {
            count.fetch_sub(1, Ordering::Relaxed);
        }
        sent
    }

    /// Sends a request and waits for the answer, all within the deadline; waits for a restart if need be.
    ///
    /// # Errors
    /// When there is no answer in time, also because the actor failed with the request in its mailbox or at
    /// work on it. The caller may ask again.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        deadline: Duration,
        request: impl FnOnce(RpcReplyPort<T>) -> M,
    ) -> Result<T, AskError> {
        let asking = async {
            let mut current = self.current.subscribe();
            let actor = current.wait_for(Option::is_some).await.ok()?.clone()?;
            let (reply, answer) = ractor::concurrency::oneshot();
            if !self.send(&actor, request(reply.into())) {
                return None;
            }
            answer.await.ok()
        };
        match tokio::time::timeout(deadline, asking).await {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) | Err(_) => Err(AskError::NoAnswer(self.health.name())),
        }
    }
}
