//! The root of the tree: starts every actor, restarts the fallen, kills the hung, and stops all of
//! them in the end.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::time::Instant;

use crate::health::Health;
use crate::mailbox::Lease;

/// How long a shutdown may take before what is left is abandoned to the queue.
const STOP_MAX: Duration = Duration::from_secs(10);
/// The first wait before a restart; it doubles with each fall.
const RESTART_FIRST: Duration = Duration::from_millis(20);
/// The longest wait before a restart: what bounds the restarts of an actor that always falls,
/// without ever giving up the work of the others.
const RESTART_MAX: Duration = Duration::from_secs(15);
/// A life as long as this counts as healthy, and the next fall as the first.
const HEALTHY: Duration = Duration::from_secs(60);
const WATCH_EVERY: Duration = Duration::from_millis(500);

pub struct Supervisor;

pub enum Message {
    /// Start the child with this number (again).
    Start(usize),
    /// Look for children that hang.
    Watch,
    /// Let every child finish what it has in hand, then stop.
    Shutdown,
}

pub struct Arguments {
    /// The last one is the one that others ask.
    pub children: Vec<Box<dyn Child>>,
}

pub struct State {
    children: Vec<Kept>,
    stopping: bool,
}

struct Kept {
    child: Box<dyn Child>,
    living: Option<ActorCell>,
    started: Instant,
    falls: u32,
    /// Whether we have killed it for hanging.
    hung: bool,
}

/// What the supervisor has to know of an actor in order to keep it alive.
pub trait Child: Send + Sync {
    fn health(&self) -> &Arc<Health>;
    /// Starts it under the parent and publishes its address.
    fn start(&self, parent: ActorCell) -> Starting<'_>;
    /// Takes its address back.
    fn vacate(&self);
}

pub type Starting<'a> = Pin<Box<dyn Future<Output = Result<ActorCell, ActorProcessingErr>> + Send + 'a>>;

/// An actor with the arguments for each of its lives.
pub struct Seat<A: Actor> {
    pub actor: fn() -> A,
    pub arguments: A::Arguments,
    pub lease: Lease<A::Msg>,
    pub health: Arc<Health>,
    /// What makes it look for work, if it works from the queue.
    pub wake: Option<fn() -> A::Msg>,
}

impl<A> Child for Seat<A>
where
    A: Actor,
    A::Arguments: Clone + Sync,
{
    fn health(&self) -> &Arc<Health> {
        &self.health
    }

    fn start(&self, parent: ActorCell) -> Starting<'_> {
        Box::pin(async move {
            // Unnamed: names are global to a process, and tests run many trees in one.
            let (actor, _) =
                Actor::spawn_linked(None, (self.actor)(), self.arguments.clone(), parent).await?;
            let cell = actor.get_cell();
            self.lease.publish(Some(actor.clone()));
            if let Some(wake) = self.wake {
                self.lease.first_ring(&actor, &self.health, wake());
            }
            Ok(cell)
        })
    }

    fn vacate(&self) {
        self.lease.publish(None);
    }
}

impl Actor for Supervisor {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let kept = |child| Kept { child, living: None, started: Instant::now(), falls: 0, hung: false };
        let mut state =
            State { children: arguments.children.into_iter().map(kept).collect(), stopping: false };
        for number in 0..state.children.len() {
            state.start(number, &myself).await;
        }
        myself.send_interval(WATCH_EVERY, || Message::Watch);
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Start(number) => state.start(number, &myself).await,
            Message::Watch => state.watch(),
            Message::Shutdown => {
                state.stopping = true;
                // When a parent exits ractor kills its children, so they are stopped first.
                let _ = tokio::time::timeout(STOP_MAX, state.stop()).await;
                myself.stop(Some("shut down".to_owned()));
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Message>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(actor, error) => {
                state.fell(&myself, actor.get_id(), &error.to_string())
            }
            // A killed actor ends up here, as one that was stopped does; neither was asked to by us.
            SupervisionEvent::ActorTerminated(actor, _, reason) => {
                state.fell(&myself, actor.get_id(), reason.as_deref().unwrap_or("stopped"));
            }
            _ => {}
        }
        Ok(())
    }
}

impl State {
    async fn start(&mut self, number: usize, myself: &ActorRef<Message>) {
        let Some(kept) = self.children.get_mut(number) else { return };
        if self.stopping || kept.living.is_some() {
            return;
        }
        match kept.child.start(myself.get_cell()).await {
            Ok(cell) => {
                kept.living = Some(cell);
                kept.started = Instant::now();
            }
            Err(error) => {
                kept.child.health().fell(&error.to_string());
                kept.schedule(number, myself);
            }
        }
    }

    fn fell(&mut self, myself: &ActorRef<Message>, id: ActorId, error: &str) {
        if self.stopping {
            return;
        }
        let found = self
            .children
            .iter_mut()
            .enumerate()
            .find(|(_, kept)| kept.living.as_ref().is_some_and(|living| living.get_id() == id));
        let Some((number, kept)) = found else { return };
        let health = kept.child.health();
        let error = if std::mem::take(&mut kept.hung) {
            format!("{} gave no sign of life for {:?}", health.name(), health.patience())
        } else {
            format!("{} fell: {error}", health.name())
        };
        tracing::error!(actor = health.name(), error, "an actor has fallen");
        kept.living = None;
        kept.child.vacate();
        kept.child.health().fell(&error);
        kept.schedule(number, myself);
    }

    /// Waits until all have finished what they have in hand; the last one goes after the others, as a
    /// job in their hands may need it. The bells in their mailboxes are not heard any more: what they
    /// rang for stays in the queue.
    async fn stop(&self) {
        let living: Vec<&ActorCell> = self.children.iter().filter_map(|kept| kept.living.as_ref()).collect();
        let Some((last, others)) = living.split_last() else { return };
        for cell in others {
            cell.stop(None);
        }
        for cell in others {
            let _ = cell.wait(None).await;
        }
        let _ = last.stop_and_wait(None, None).await;
    }

    /// A hung actor cannot be waited for and never says so: it is killed, and its work claimed anew.
    fn watch(&mut self) {
        for kept in &mut self.children {
            if let Some(living) = kept.living.as_ref().filter(|_| kept.child.health().is_hung()) {
                tracing::error!(actor = kept.child.health().name(), "an actor hangs and is killed");
                living.kill();
                kept.hung = true;
            }
        }
    }
}

impl Kept {
    fn schedule(&mut self, number: usize, myself: &ActorRef<Message>) {
        if self.started.elapsed() > HEALTHY {
            self.falls = 0;
        }
        let wait = RESTART_FIRST.saturating_mul(1 << self.falls.min(16)).min(RESTART_MAX);
        self.falls += 1;
        myself.send_after(wait, move || Message::Start(number));
    }
}
