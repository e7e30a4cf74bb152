//! The root of the actor tree: starts every actor, restarts those that fail, kills those that hang, and
//! stops all of them at shutdown.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::time::Instant;

use crate::health::Health;
use crate::mailbox::Mailbox;

/// How long a shutdown may take before unfinished jobs are left in the queue.
const STOP_MAX: Duration = Duration::from_secs(10);
/// The first wait before a restart; it doubles with each failure.
const RESTART_WAIT_MIN: Duration = Duration::from_millis(20);
/// The longest wait before a restart: bounds the restarts of an actor that always fails, without giving up
/// the work of the others.
const RESTART_WAIT_MAX: Duration = Duration::from_secs(15);
/// An actor that ran for this long counts as healthy, and its next failure as the first.
const HEALTHY_AFTER: Duration = Duration::from_secs(60);
const HANG_CHECK_EVERY: Duration = Duration::from_millis(500);

pub(crate) struct Supervisor;

pub(crate) enum Message {
    /// Start the child with this number, again if need be.
    Start(usize),
    /// Kill children that hang.
    CheckForHangs,
    /// Let every child finish its job, then stop.
    Shutdown,
}

pub(crate) struct State {
    children: Vec<ChildState>,
    stopping: bool,
}

struct ChildState {
    child: Arc<dyn Child>,
    running: Option<ActorCell>,
    started: Instant,
    failures: u32,
    /// Whether the supervisor has killed it because it hung.
    hung: bool,
}

/// What the supervisor needs to know about an actor.
pub(crate) trait Child: Send + Sync {
    fn health(&self) -> &Arc<Health>;
    /// Starts the actor under the parent and publishes it in its mailbox.
    fn start(&self, parent: ActorCell) -> StartFuture<'_>;
    /// Takes the actor out of its mailbox.
    fn withdraw(&self);
    /// The running actor.
    fn cell(&self) -> Option<ActorCell>;
}

pub(crate) type StartFuture<'a> =
    Pin<Box<dyn Future<Output = Result<ActorCell, ActorProcessingErr>> + Send + 'a>>;

/// An actor that can be started any number of times.
pub(crate) struct RestartableActor<A: Actor> {
    pub(crate) actor: A,
    pub(crate) mailbox: Arc<Mailbox<A::Msg>>,
    /// The message that makes it look for work, if it works from the queue.
    pub(crate) wake: Option<fn() -> A::Msg>,
}

impl<A> Child for RestartableActor<A>
where
    A: Actor<Arguments = ()> + Clone,
{
    fn health(&self) -> &Arc<Health> {
        self.mailbox.health()
    }

    fn start(&self, parent: ActorCell) -> StartFuture<'_> {
        Box::pin(async move {
            // Unnamed: names are global to a process, and tests run many trees in one.
            let (actor, _) = Actor::spawn_linked(None, self.actor.clone(), (), parent).await?;
            self.mailbox.publish(Some(actor.clone()));
            if let Some(wake) = self.wake {
                self.mailbox.wake_again(&actor, wake());
            }
            Ok(actor.get_cell())
        })
    }

    fn withdraw(&self) {
        self.mailbox.publish(None);
    }

    fn cell(&self) -> Option<ActorCell> {
        self.mailbox.get().map(|actor| actor.get_cell())
    }
}

impl Actor for Supervisor {
    type Msg = Message;
    type State = State;
    /// The last child is stopped last, as the others send it requests.
    type Arguments = Vec<Arc<dyn Child>>;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        children: Vec<Arc<dyn Child>>,
    ) -> Result<State, ActorProcessingErr> {
        let stopped =
            |child| ChildState { child, running: None, started: Instant::now(), failures: 0, hung: false };
        let mut state = State { children: children.into_iter().map(stopped).collect(), stopping: false };
        for number in 0..state.children.len() {
            state.start(number, &myself).await;
        }
        myself.send_interval(HANG_CHECK_EVERY, || Message::CheckForHangs);
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
            Message::CheckForHangs => state.kill_hung(),
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
                state.failed(&myself, actor.get_id(), &error.to_string())
            }
            // A killed actor arrives here, as does one that was stopped; the supervisor asked for neither.
            SupervisionEvent::ActorTerminated(actor, _, reason) => {
                state.failed(&myself, actor.get_id(), reason.as_deref().unwrap_or("stopped"));
            }
            _ => {}
        }
        Ok(())
    }
}

impl State {
    async fn start(&mut self, number: usize, myself: &ActorRef<Message>) {
        let Some(state) = self.children.get_mut(number) else { return };
        if self.stopping || state.running.is_some() {
            return;
        }
        match state.child.start(myself.get_cell()).await {
            Ok(cell) => {
                state.running = Some(cell);
                state.started = Instant::now();
            }
            Err(error) => {
                state.child.health().failed(&error.to_string());
                state.schedule_restart(number, myself);
            }
        }
    }

    fn failed(&mut self, myself: &ActorRef<Message>, id: ActorId, error: &str) {
        if self.stopping {
            return;
        }
        let is_it = |state: &ChildState| state.running.as_ref().is_some_and(|running| running.get_id() == id);
        let Some(number) = self.children.iter().position(is_it) else { return };
        let state = &mut self.children[number];
        let health = state.child.health();
        let error = if std::mem::take(&mut state.hung) {
            format!("{} made no progress for {:?}", health.name(), health.patience())
        } else {
            format!("{} failed: {error}", health.name())
        };
        tracing::error!(actor = health.name(), error, "an actor has failed");
        state.running = None;
        state.child.withdraw();
        state.child.health().failed(&error);
        state.schedule_restart(number, myself);
    }

    /// Waits until all have finished their jobs. The last one stops after the others, as a job of theirs
    /// may need it. Wake-ups in their mailboxes are not handled any more: the work stays in the queue.
    async fn stop(&self) {
        let running: Vec<&ActorCell> =
            self.children.iter().filter_map(|state| state.running.as_ref()).collect();
        let Some((last, others)) = running.split_last() else { return };
        for cell in others {
            cell.stop(None);
        }
        for cell in others {
            let _ = cell.wait(None).await;
        }
        let _ = last.stop_and_wait(None, None).await;
    }

    /// A hung actor cannot be waited for and never reports that it hangs: it is killed, and its job claimed
    /// again.
    fn kill_hung(&mut self) {
        for state in &mut self.children {
            if let Some(running) = state.running.as_ref().filter(|_| state.child.health().is_hung()) {
                tracing::error!(actor = state.child.health().name(), "an actor hangs and is killed");
                running.kill();
                state.hung = true;
            }
        }
    }
}

impl ChildState {
    fn schedule_restart(&mut self, number: usize, myself: &ActorRef<Message>) {
        if self.started.elapsed() > HEALTHY_AFTER {
            self.failures = 0;
        }
        let wait = RESTART_WAIT_MIN.saturating_mul(1 << self.failures.min(16)).min(RESTART_WAIT_MAX);
        self.failures += 1;
        myself.send_after(wait, move || Message::Start(number));
    }
}
