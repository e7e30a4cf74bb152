//! The actors of a brain as one service, for the worker and for the processes that answer questions.

use std::sync::Arc;
use std::time::Duration;

use brain::{Brain, StatePaths};
use extract::Extractor;
use index::{Index, Mode, Report};
use queue::{Budget, Queue};
use ractor::{Actor, ActorCell, ActorRef};
use retrieve::{Answer, Query};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::delivery::DeliveryWorker;
use crate::embedding::EmbeddingWorker;
use crate::embedding_model::EmbeddingModel;
use crate::extraction::ExtractionWorker;
use crate::git::GitWorker;
use crate::health::{ActorReport, Health};
use crate::indexing::{IndexingWorker, Refresh, RefreshProgress};
use crate::intake::IntakeWorker;
use crate::jobs::Jobs;
use crate::mailbox::{AskError, Mailbox, MailboxOwner, mailbox};
use crate::model_rerank::ModelReranker;
use crate::remote::DeliverySettings;
use crate::retrieval::{Ask, Retrieval};
use crate::stage_actor::{StageActor, StageMailbox, StageMessage, StageWakers, StageWorker};
use crate::supervisor::{self, Child, RestartableActor, Supervisor};
use crate::sweep;

/// The waits that tests make shorter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// How long an actor may take for one message before it counts as hung.
    pub(crate) patience: Duration,
    /// The same for actors that wait for models or read large transcripts.
    pub(crate) patience_long: Duration,
    /// How often a worker looks for new rows.
    pub(crate) poll_every: Duration,
    /// How long blocking work that nobody waits for any more may go on before the process exits.
    pub(crate) abandon_after: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(120),
            patience_long: Duration::from_secs(900),
            poll_every: Duration::from_millis(50),
            abandon_after: Duration::from_secs(5),
        }
    }
}

/// What the actors need besides a [`Setup`]; tests pass others.
#[derive(Clone)]
pub(crate) struct Parts {
    /// The queue to work on, if there is one.
    pub(crate) jobs: Option<Jobs>,
    pub(crate) model: EmbeddingModel,
    pub(crate) pace: Pace,
}

/// What the actors of a brain need to know.
#[derive(Clone)]
pub struct Setup {
    /// The brain that they serve.
    pub brain: Brain,
    /// Its state folder.
    pub places: StatePaths,
    /// Settings of the embedding model.
    pub embed: embed::Settings,
    /// Finds knowledge in conversations.
    pub extractor: Arc<dyn Extractor>,
    /// What calls of language models may cost.
    pub budget: Budget,
    /// Asks a language model for the order of results; `None` for the local order.
    pub reranker: Option<ModelReranker>,
    /// Candidates below it are rejected, from 0 to 1.
    pub confidence_min: f64,
    /// The branch of reviewed knowledge, if `brain.yaml` names it.
    pub default_branch: Option<String>,
    /// How long a worker waits for more work before it exits.
    pub linger: Duration,
    /// Settings for the brain's remote, if it has one.
    pub delivery: DeliverySettings,
    /// How sessions that the hook missed are found; `None` to leave them.
    pub sweep: Option<sweep::Settings>,
}

/// Which actors are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Roles {
    /// All stages of a capture.
    Write,
    /// What answers questions and updates the index.
    Read,
}

/// Why the service could not start, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The queue cannot be used.
    #[error("failed to open the queue")]
    Queue(#[from] queue::Error),
    /// The index cannot be used.
    #[error("failed to open the index")]
    Index(#[from] index::Error),
    /// The actors or their runtime failed.
    #[error("failed to start the service: {0}")]
    Actors(String),
}

/// A running tree of actors.
pub struct Service {
    supervisor: ActorRef<supervisor::Message>,
    ended: JoinHandle<()>,
    actors: Vec<ActorHandle>,
    index: Index,
    model: EmbeddingModel,
    wakers: StageWakers,
    indexing: StageMailbox<IndexingWorker>,
    retrieval: Option<Mailbox<Ask>>,
}

/// Reads the state of one actor.
struct ActorHandle {
    health: Arc<Health>,
    /// The running actor.
    current: Box<dyn Fn() -> Option<ActorCell> + Send + Sync>,
}

impl Service {
    /// Starts the actors; blocks while the index is opened.
    ///
    /// # Errors
    /// When the queue or the index cannot be opened, or the actors cannot be started.
    pub async fn start(setup: &Setup, roles: Roles) -> Result<Self, StartError> {
        let jobs = match roles {
            Roles::Write => Some(Jobs::new(Queue::open(&setup.places.queue())?)),
            Roles::Read => None,
        };
        let model = EmbeddingModel::new(setup.embed.clone());
        Self::start_with(setup, roles, Parts { jobs, model, pace: Pace::default() }).await
    }

    pub(crate) async fn start_with(setup: &Setup, roles: Roles, parts: Parts) -> Result<Self, StartError> {
        let Parts { jobs, model, pace } = parts;
        let begun = Instant::now();
        let index = Index::open(&setup.brain.derived_folder())?;
        tracing::info!(ms = begun.elapsed().as_millis() as u64, "opened the index");
        let mut tree = TreeBuilder { jobs: jobs.clone(), ..TreeBuilder::default() };
        let embedding_slot = tree.stage_slot::<EmbeddingWorker>(pace.patience);
        let indexing_slot = tree.stage_slot::<IndexingWorker>(pace.patience_long);
        let (embedding, indexing) = (embedding_slot.mailbox.clone(), indexing_slot.mailbox.clone());
        let root = setup.brain.root().to_owned();
        if let (Roles::Write, Some(jobs)) = (roles, &jobs) {
            let intake = tree.stage_slot::<IntakeWorker>(pace.patience_long);
            let extraction = tree.stage_slot::<ExtractionWorker>(pace.patience_long);
            let git = tree.stage_slot::<GitWorker>(pace.patience);
            let delivery = tree.stage_slot::<DeliveryWorker>(pace.patience_long);
            tree.add_stage(intake, IntakeWorker { queue: jobs.queue.clone() });
            let extraction_worker = ExtractionWorker {
                jobs: jobs.clone(),
                extractor: Arc::clone(&setup.extractor),
                budget: setup.budget,
                index: index.clone(),
                confidence_min: setup.confidence_min,
            };
            tree.add_stage(extraction, extraction_worker);
            let git_worker = GitWorker {
                jobs: jobs.clone(),
                root: root.clone(),
                default_branch: setup.default_branch.clone(),
                index: index.clone(),
                delivers: setup.delivery.enabled,
            };
            tree.add_stage(git, git_worker);
            let delivery_worker = DeliveryWorker {
                queue: jobs.queue.clone(),
                root: root.clone(),
                default_branch: setup.default_branch.clone(),
                settings: setup.delivery.clone(),
                session: Arc::default(),
            };
            tree.add_stage(delivery, delivery_worker);
        }
        let mut retrieval = None;
        if roles == Roles::Read {
            let slot = tree.slot("retrieval", pace.patience);
            retrieval = Some(slot.mailbox.clone());
            let actor = Retrieval {
                index: index.clone(),
                model: model.clone(),
                embedding: embedding.clone(),
                root,
                default_branch: setup.default_branch.clone(),
                reviews: Arc::default(),
                last_model: Arc::default(),
                reranker: setup.reranker.clone(),
                health: Arc::clone(slot.mailbox.health()),
            };
            tree.add(slot, actor, None);
        }
        let indexing_worker = IndexingWorker {
            queue: jobs.map(|jobs| jobs.queue),
            brain: setup.brain.clone(),
            default_branch: setup.default_branch.clone(),
            index: index.clone(),
            model: model.clone(),
            embedding,
            progress_file: setup.places.indexing().into(),
            health: Arc::clone(indexing.health()),
        };
        tree.add_stage(indexing_slot, indexing_worker);
        // The last one, as others send it requests while they stop.
        tree.add_stage(embedding_slot, EmbeddingWorker::new(model.clone()));
        let TreeBuilder { children, actors, wakers, .. } = tree;
        let (supervisor, ended) = Actor::spawn(None, Supervisor, children)
            .await
            .map_err(|error| StartError::Actors(error.to_string()))?;
        Ok(Self { supervisor, ended, actors, index, model, wakers, indexing, retrieval })
    }

    /// The index that the service reads and updates.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Loads the model on a thread of its own, in parallel to what is done before the only question of this
    /// process.
    pub fn preload_model(&self) {
        let model = self.model.clone();
        tokio::task::spawn_blocking(move || model.preload_for_one_question());
    }

    /// Frees the memory of the model; the next question or text loads it again.
    pub fn unload_model(&self) {
        self.model.unload();
    }

    /// The model of the present index, if the settings name another one: it answers until everything is
    /// embedded again.
    pub fn outdated_index_model(&self) -> Option<String> {
        let snapshot = self.index.pin().ok()?;
        let present = &snapshot.model()?.name;
        (*present != self.model.name()).then(|| present.clone())
    }

    /// Answers a question from the present generation of the index.
    ///
    /// # Errors
    /// When the search fails, or does not end within the deadline.
    pub async fn ask(&self, query: Query, deadline: Duration) -> Result<Answer, AskError> {
        let Some(retrieval) = &self.retrieval else { return Err(AskError::NoAnswer("retrieval")) };
        let answer = retrieval.ask(deadline, |reply| Ask { query, reply }).await?;
        answer.map_err(AskError::Failed)
    }

    /// Brings the index up to date with the brain's files. `None` if it was.
    ///
    /// # Errors
    /// When the index cannot be built, or not within the deadline.
    pub async fn refresh(
        &self,
        mode: Mode,
        progress: Option<watch::Sender<RefreshProgress>>,
        deadline: Duration,
    ) -> Result<Option<Report>, AskError> {
        let request = |reply| StageMessage::Request(Refresh { mode, progress, reply });
        self.indexing.ask(deadline, request).await?.map_err(AskError::Failed)
    }

    /// The state of each actor.
    pub fn actors(&self) -> Vec<ActorReport> {
        self.actors.iter().map(|actor| actor.health.report((actor.current)().is_some())).collect()
    }

    /// Tells every stage that there may be work.
    pub(crate) fn wake(&self) {
        self.wakers.wake_all();
    }

    /// Whether the supervisor has ended, which restarts every actor but itself.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_finished()
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.actors.iter().any(|actor| actor.health.is_busy())
    }

    /// The running actor of this name, or the supervisor.
    #[cfg(test)]
    pub(crate) fn cell(&self, name: &str) -> Option<ActorCell> {
        if name == "supervisor" {
            return Some(self.supervisor.get_cell());
        }
        self.actors.iter().find(|actor| actor.health.name() == name).and_then(|actor| (actor.current)())
    }

    /// Lets every actor finish its job, then ends the tree.
    pub async fn shutdown(self) {
        if self.supervisor.cast(supervisor::Message::Shutdown).is_ok() {
            let _ = self.ended.await;
        }
    }
}

/// Collects the actors of a service: each gets its mailbox before any of them is started.
#[derive(Default)]
struct TreeBuilder {
    jobs: Option<Jobs>,
    wakers: StageWakers,
    children: Vec<Box<dyn Child>>,
    actors: Vec<ActorHandle>,
}

/// The mailbox of an actor that is still to be added.
struct Slot<M> {
    owner: MailboxOwner<M>,
    mailbox: Mailbox<M>,
}

impl TreeBuilder {
    fn slot<M: ractor::Message>(&mut self, name: &'static str, patience: Duration) -> Slot<M> {
        let health = Arc::new(Health::new(name, patience));
        let (owner, mailbox) = mailbox(Arc::clone(&health));
        let current = mailbox.clone();
        let current = Box::new(move || current.get().map(|actor| actor.get_cell()));
        self.actors.push(ActorHandle { health, current });
        Slot { owner, mailbox }
    }

    fn stage_slot<W: StageWorker>(&mut self, patience: Duration) -> Slot<StageMessage<W::Request>> {
        let slot = self.slot(W::STAGE.as_str(), patience);
        self.wakers.register(W::STAGE, slot.mailbox.clone());
        slot
    }

    fn add<A>(&mut self, slot: Slot<A::Msg>, actor: A, wake: Option<fn() -> A::Msg>)
    where
        A: Actor<Arguments = ()> + Clone,
    {
        self.children.push(Box::new(RestartableActor { actor, owner: slot.owner, wake }));
    }

    fn add_stage<W: StageWorker>(&mut self, slot: Slot<StageMessage<W::Request>>, worker: W) {
        let (jobs, wakers) = (self.jobs.clone(), self.wakers.clone());
        let actor = StageActor { worker, jobs, mailbox: slot.mailbox.clone(), wakers };
        self.add(slot, actor, Some(|| StageMessage::Wake));
    }
}
