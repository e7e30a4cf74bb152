//! Where an actor can be reached, through every restart.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ractor::{ActorRef, RpcReplyPort};
use tokio::sync::watch;

use crate::AskError;
use crate::health::Health;

/// A restarted actor is a new `ActorRef`, and the old one refuses messages. An `Mailbox` always
/// holds the living one, or none while the supervisor waits to start it again.
pub struct Mailbox<M> {
    current: watch::Receiver<Option<ActorRef<M>>>,
    rung: Arc<AtomicBool>,
    health: Arc<Health>,
}

impl<M> Clone for Mailbox<M> {
    fn clone(&self) -> Self {
        Self { current: self.current.clone(), rung: Arc::clone(&self.rung), health: Arc::clone(&self.health) }
    }
}

/// The supervisor's end of an [`Mailbox`].
pub struct Lease<M> {
    current: watch::Sender<Option<ActorRef<M>>>,
    rung: Arc<AtomicBool>,
}

/// A new address, with nobody at it yet.
pub fn address<M>(health: Arc<Health>) -> (Lease<M>, Mailbox<M>) {
    let (sender, receiver) = watch::channel(None);
    let rung = Arc::new(AtomicBool::new(false));
    (Lease { current: sender, rung: Arc::clone(&rung) }, Mailbox { current: receiver, rung, health })
}

impl<M: ractor::Message> Lease<M> {
    /// Says who lives at the address now.
    pub fn publish(&self, actor: Option<ActorRef<M>>) {
        // A bell that had rung in the last life's mailbox is lost with it.
        self.rung.store(false, Ordering::SeqCst);
        self.current.send_replace(actor);
    }

    /// Rings for a life that has just been published: it looks at what was left behind, and at what
    /// was rung for while nobody was home. Were it to look before, what came in between would be
    /// seen by nobody.
    pub fn first_ring(&self, actor: &ActorRef<M>, health: &Health, wake: M) {
        self.rung.store(true, Ordering::SeqCst);
        let life = health.arrived();
        if actor.cast(wake).is_err() {
            health.refused(life);
            self.rung.store(false, Ordering::SeqCst);
        }
    }
}

impl<M: ractor::Message> Mailbox<M> {
    /// Who lives there, if anybody does at the moment.
    pub fn get(&self) -> Option<ActorRef<M>> {
        self.current.borrow().clone()
    }

    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Rings the actor's bell, unless it is ringing already.
    ///
    /// Mailboxes are unbounded; this keeps one at a single doorbell however much work arrives.
    pub fn ring(&self, wake: M) {
        if self.rung.swap(true, Ordering::SeqCst) {
            return;
        }
        if !self.send(wake) {
            // Nobody is home. The next life of the actor looks into the queue first of all.
            self.rung.store(false, Ordering::SeqCst);
        }
    }

    /// Called by the actor that has done one job and wants to look for the next: one job a message,
    /// so that a stop need not wait for all of them. A bell that rings already is enough; two would
    /// never end.
    pub fn ring_again(&self, myself: &ActorRef<M>, wake: M) {
        if !self.rung.swap(true, Ordering::SeqCst) {
            let life = self.health.arrived();
            if myself.cast(wake).is_err() {
                self.health.refused(life);
                self.rung.store(false, Ordering::SeqCst);
            }
        }
    }

    /// Called by the actor as it answers the bell, before it looks into the queue: what rings from
    /// now on is about something that it may not see.
    pub fn answer(&self) {
        self.rung.store(false, Ordering::SeqCst);
    }

    /// Sends a message; whether somebody was there to take it.
    pub fn send(&self, message: M) -> bool {
        let Some(actor) = self.get() else { return false };
        let life = self.health.arrived();
        let sent = actor.cast(message).is_ok();
        if !sent {
            self.health.refused(life);
        }
        sent
    }

    /// Asks and waits for the answer, all within the deadline; a restart in between is waited for.
    ///
    /// # Errors
    /// When nobody answers in time. An actor that fell with the question in its mailbox or in its
    /// hands is such a case: whoever asked may ask again.
    pub async fn ask<T: Send + 'static>(
        &self,
        deadline: Duration,
        question: impl FnOnce(RpcReplyPort<T>) -> M,
    ) -> Result<T, AskError> {
        let name = self.health.name();
        let asking = async {
            let mut current = self.current.clone();
            let actor = match current.wait_for(Option::is_some).await {
                Ok(actor) => actor.clone(),
                Err(_) => None,
            };
            let actor = actor?;
            let (reply, answer) = ractor::concurrency::oneshot();
            let life = self.health.arrived();
            if actor.cast(question(reply.into())).is_err() {
                self.health.refused(life);
                return None;
            }
            answer.await.ok()
        };
        match tokio::time::timeout(deadline, asking).await {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) | Err(_) => Err(AskError::NoAnswer(name)),
        }
    }
}
