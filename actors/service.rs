//! The actors of a brain as one service, for the worker and for the processes that answer questions.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use index::{Index, Mode, Report};
use knowledge::CountTokens as _;
use queue::Queue;
use ractor::{Actor, ActorRef};
use retrieve::{Answer, Query};
use team_client::CurrentServer;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::archiving::{self, Archiving};
use crate::background::run_blocking;
use crate::delivery::DeliveryWorker;
use crate::embedding::{EmbeddingRequest, EmbeddingWorker};
use crate::embedding_model::EmbeddingModel;
use crate::extraction::ExtractionWorker;
use crate::failure::error_chain;
use crate::git::GitWorker;
use crate::health::{ActorReport, Health};
use crate::indexing::{IndexingWorker, Refresh, RefreshProgress};
use crate::intake::IntakeWorker;
use crate::jobs::Jobs;
use crate::learned_order::{LearnedOrder, ShownAnswer};
use crate::learning::{self, Learning};
use crate::mailbox::{AskError, Mailbox};
use crate::retrieval::{Ask, Retrieval};
use crate::session_search::{self, FoundSessions, SessionSearch};
use crate::setup::Setup;
use crate::stage_actor::{StageActor, StageMailbox, StageMessage, StageWakers, StageWorker};
use crate::supervisor::{self, Child, RestartableActor, Supervisor};
use crate::upload::UploadWorker;

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

/// The names of the actors that nothing waits for.
const ARCHIVING: &str = "archiving";
const LEARNING: &str = "learning";

/// How long an answer waits for the record of what it shows.
const RECORD_PATIENCE: Duration = Duration::from_millis(50);

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
    /// git refuses to work in the brain's repository.
    #[error(transparent)]
    NotTrusted(git::Error),
    /// The actors or their runtime failed.
    #[error("failed to start the service: {0}")]
    Actors(String),
}

/// A running tree of actors.
pub struct Service {
    supervisor: ActorRef<supervisor::Message>,
    ended: JoinHandle<()>,
    children: Vec<Arc<dyn Child>>,
    index: Index,
    model: EmbeddingModel,
    wakers: StageWakers,
    indexing: StageMailbox<IndexingWorker>,
    retrieval: Option<Arc<Mailbox<Ask>>>,
    embedding: StageMailbox<EmbeddingWorker>,
    /// The archive's database, if sessions are archived.
    archive: Option<PathBuf>,
    archiving: Option<Arc<Mailbox<archiving::Wake>>>,
    learning: Option<Arc<Mailbox<learning::Wake>>>,
    /// Set to end the work of the archive soon.
    stop_archiving: Arc<AtomicBool>,
    learned: Option<Arc<LearnedOrder>>,
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
        let setup = Arc::new(setup.clone());
        let mut tree = TreeBuilder { jobs: jobs.clone(), ..TreeBuilder::default() };
        let embedding = tree.stage_mailbox::<EmbeddingWorker>(pace.patience);
        let indexing = tree.stage_mailbox::<IndexingWorker>(pace.patience_long);
        if let (Roles::Write, Some(jobs)) = (roles, &jobs) {
            let (setup, jobs, index) = (Arc::clone(&setup), jobs.clone(), index.clone());
            let intake = tree.stage_mailbox::<IntakeWorker>(pace.patience_long);
            let extraction = tree.stage_mailbox::<ExtractionWorker>(pace.patience_long);
            let git = tree.stage_mailbox::<GitWorker>(pace.patience);
            let delivery = tree.stage_mailbox::<DeliveryWorker>(pace.patience_long);
            let queue = jobs.queue.clone();
            let upload = tree.stage_mailbox::<UploadWorker>(pace.patience_long);
            let server = CurrentServer::new(setup.places.folder());
            let exclude = setup.exclude.clone();
            tree.add_stage(intake, IntakeWorker { queue: queue.clone(), server: server.clone(), exclude });
            let worker = UploadWorker {
                queue: queue.clone(),
                setup: Arc::clone(&setup),
                index: index.clone(),
                server,
            };
            tree.add_stage(upload, worker);
            let worker = ExtractionWorker {
                jobs: jobs.clone(),
                setup: Arc::clone(&setup),
                index: index.clone(),
                indexing: Arc::clone(&indexing),
            };
            tree.add_stage(extraction, worker);
            tree.add_stage(git, GitWorker { jobs, setup: Arc::clone(&setup), index });
            tree.add_stage(delivery, DeliveryWorker { queue, setup, session: Arc::default() });
        }
        let learned = setup.learning.clone();
        let learned =
            learned.map(|settings| Arc::new(LearnedOrder::new(settings, setup.workspace.as_deref())));
        let mut retrieval = None;
        if roles == Roles::Read {
            let mailbox = Arc::new(Mailbox::new("retrieval", pace.patience));
            let actor = Retrieval {
                index: index.clone(),
                model: model.clone(),
                embedding: Arc::clone(&embedding),
                setup: Arc::clone(&setup),
                reviews: Arc::default(),
                memories: Arc::default(),
                last_model: Arc::default(),
                last_filter: Arc::default(),
                learned: learned.clone(),
                health: Arc::clone(mailbox.health()),
            };
            retrieval = Some(Arc::clone(&mailbox));
            tree.add(mailbox, actor, None);
        }
        let worker = IndexingWorker {
            queue: jobs.map(|jobs| jobs.queue),
            setup: Arc::clone(&setup),
            index: index.clone(),
            model: model.clone(),
            embedding: Arc::clone(&embedding),
            health: Arc::clone(indexing.health()),
        };
        tree.add_stage(Arc::clone(&indexing), worker);
        let (mut archiving, stop_archiving) = (None, Arc::<AtomicBool>::default());
        let is_learning = setup.archive.is_some() && setup.learning.is_some();
        let learning = is_learning.then(|| Arc::new(Mailbox::new(LEARNING, pace.patience_long)));
        if let Some(settings) = &setup.archive {
            let mailbox = Arc::new(Mailbox::new(ARCHIVING, pace.patience_long));
            let actor = Archiving {
                settings: settings.clone(),
                mark: setup.settings.clone(),
                queue: setup.places.queue(),
                is_server: roles == Roles::Read,
                model: model.clone(),
                embedding: Arc::clone(&embedding),
                mailbox: Arc::clone(&mailbox),
                learning: learning.clone(),
                others: tree.healths(),
                stop: Arc::clone(&stop_archiving),
                memory: Arc::default(),
            };
            archiving = Some(Arc::clone(&mailbox));
            tree.add(mailbox, actor, Some(|| archiving::Wake));
        }
        if let (Some(mailbox), Some(settings)) = (&learning, &setup.learning) {
            let actor = Learning {
                settings: settings.clone(),
                mailbox: Arc::clone(mailbox),
                stop: Arc::clone(&stop_archiving),
                error: Arc::default(),
            };
            tree.add(Arc::clone(mailbox), actor, Some(|| learning::Wake));
        }
        // The last one, as others send it requests while they stop.
        tree.add_stage(Arc::clone(&embedding), EmbeddingWorker::new(model.clone()));
        let archive = setup.archive.as_ref().map(|settings| settings.path.clone());
        let TreeBuilder { children, wakers, .. } = tree;
        let (supervisor, ended) = Actor::spawn(None, Supervisor, children.clone())
            .await
            .map_err(|error| StartError::Actors(error.to_string()))?;
        Ok(Self {
            supervisor,
            ended,
            children,
            index,
            model,
            wakers,
            indexing,
            retrieval,
            embedding,
            archive,
            archiving,
            learning,
            stop_archiving,
            learned,
        })
    }

    /// The index that the service reads and updates.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// The model of the present index, if the settings name another one: it answers until everything is
    /// embedded again.
    pub fn outdated_index_model(&self) -> Option<String> {
        let snapshot = self.index.pin_without_vectors().ok()?;
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

    /// Records that a session is shown an answer; `tool_use` is the client's id of its call. It is done in the background
    /// and waited for only a little, as it usually takes a millisecond. A failure is a line in the log.
    pub async fn record_shown(&self, answer: &Answer, tool_use: Option<String>) {
        let Some(learned) = &self.learned else { return };
        let Some(shown) = ShownAnswer::from_answer(answer, tool_use) else { return };
        let learned = Arc::clone(learned);
        let recording = tokio::task::spawn_blocking(move || learned.record(shown));
        let _ = tokio::time::timeout(RECORD_PATIENCE, recording).await;
    }

    /// Records that a session is shown units that no question here found, as a fact recalled by its key, or the units of a
    /// team server's answer: their ids, each with about how many tokens it takes. As [`record_shown`](Self::record_shown).
    pub async fn record_units(&self, units: Vec<(String, usize)>, tool_use: Option<String>) {
        let Some(learned) = self.learned.as_ref().filter(|_| !units.is_empty()) else { return };
        let shown = ShownAnswer::of_units(units, tool_use);
        let learned = Arc::clone(learned);
        let recording = tokio::task::spawn_blocking(move || learned.record(shown));
        let _ = tokio::time::timeout(RECORD_PATIENCE, recording).await;
    }

    /// Searches archived sessions. `None` if sessions are not archived.
    ///
    /// # Errors
    /// When the archive cannot be read, or not within the deadline.
    pub async fn search_sessions(
        &self,
        search: SessionSearch,
        deadline: Duration,
    ) -> Result<Option<FoundSessions>, AskError> {
        let Some(path) = self.archive.clone() else { return Ok(None) };
        let searching = async {
            let vector = self.question_vector(search.text.clone(), deadline).await;
            run_blocking(move || session_search::search(&path, search, vector)).await
        };
        match tokio::time::timeout(deadline, searching).await {
            Ok(found) => found.map(Some).map_err(|error| AskError::Failed(error_chain(&error))),
            Err(_) => Err(AskError::NoAnswer(ARCHIVING)),
        }
    }

    /// Only by a model in this process, as messages have vectors of no other. Without it, words are enough.
    async fn question_vector(&self, text: String, deadline: Duration) -> Option<(String, Vec<f32>)> {
        let model = self.model.name();
        if !self.model.embeds_archive() {
            return None;
        }
        let name = model.clone();
        let request = |reply| StageMessage::Request(EmbeddingRequest::Query { text, model: name, reply });
        let found = self.embedding.ask(deadline, request).await.ok()?.ok()?;
        Some((model, found.vector))
    }

    /// How many tokens a text has for the embedding model; about so many for a language model.
    ///
    /// # Errors
    /// When the model's tokenizer cannot be loaded.
    pub fn count_tokens(&self, text: &str) -> Result<usize, AskError> {
        let tokenizer = self.model.counter().map_err(|error| AskError::Failed(error_chain(&error)))?;
        Ok(tokenizer.count(text))
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
        self.children.iter().map(|child| child.health().report(child.cell().is_some())).collect()
    }

    /// Tells every stage that there may be work.
    pub(crate) fn wake(&self) {
        self.wakers.wake_all();
    }

    /// Tells the archive that there may be something new in transcripts.
    pub fn wake_archiving(&self) {
        if let Some(archiving) = &self.archiving {
            archiving.wake(archiving::Wake);
        }
    }

    /// Whether the archive is being worked on or learned from, or is about to be.
    pub(crate) fn is_archiving(&self) -> bool {
        self.archiving.as_ref().is_some_and(|archiving| archiving.health().has_work())
            || self.learning.as_ref().is_some_and(|learning| learning.health().has_work())
    }

    /// Whether the supervisor has ended, which restarts every actor but itself.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_finished()
    }

    /// Whether any actor is at work, or has a message to work on, but those of the archive, which nothing waits for.
    pub(crate) fn has_work(&self) -> bool {
        let mut healths = self.children.iter().map(|child| child.health());
        healths.any(|health| ![ARCHIVING, LEARNING].contains(&health.name()) && health.has_work())
    }

    /// The running actor of this name, or the supervisor.
    #[cfg(test)]
    pub(crate) fn cell(&self, name: &str) -> Option<ractor::ActorCell> {
        if name == "supervisor" {
            return Some(self.supervisor.get_cell());
        }
        self.children.iter().find(|child| child.health().name() == name).and_then(|child| child.cell())
    }

    /// Lets every actor finish its job, then ends the tree.
    pub async fn shutdown(mut self) {
        if self.begin_shutdown() {
            let _ = (&mut self.ended).await;
        }
    }

    /// The same for a service that others share, and waits no longer than this: the jobs that are left end with the
    /// process.
    pub async fn shutdown_within(&self, patience: Duration) {
        if self.begin_shutdown() {
            let _ = self.supervisor.wait(Some(patience)).await;
        }
    }

    /// Returns whether there is something to wait for.
    fn begin_shutdown(&self) -> bool {
        self.stop_archiving.store(true, Ordering::SeqCst);
        self.supervisor.cast(supervisor::Message::Shutdown).is_ok()
    }
}

/// The actors that nobody has shut down end by themselves.
impl Drop for Service {
    fn drop(&mut self) {
        self.begin_shutdown();
    }
}

/// Collects the actors of a service: each gets its mailbox before any of them is started.
#[derive(Default)]
struct TreeBuilder {
    jobs: Option<Jobs>,
    wakers: StageWakers,
    children: Vec<Arc<dyn Child>>,
}

impl TreeBuilder {
    fn stage_mailbox<W: StageWorker>(&self, patience: Duration) -> StageMailbox<W> {
        let mailbox = Arc::new(Mailbox::new(W::STAGE.as_str(), patience));
        self.wakers.register(W::STAGE, Arc::clone(&mailbox));
        mailbox
    }

    /// Of all actors so far.
    fn healths(&self) -> Arc<[Arc<Health>]> {
        self.children.iter().map(|child| Arc::clone(child.health())).collect()
    }

    fn add<A>(&mut self, mailbox: Arc<Mailbox<A::Msg>>, actor: A, wake: Option<fn() -> A::Msg>)
    where
        A: Actor<Arguments = ()> + Clone,
    {
        self.children.push(Arc::new(RestartableActor { actor, mailbox, wake }));
    }

    fn add_stage<W: StageWorker>(&mut self, mailbox: StageMailbox<W>, worker: W) {
        let (jobs, wakers) = (self.jobs.clone(), self.wakers.clone());
        let actor = StageActor { worker, jobs, mailbox: Arc::clone(&mailbox), wakers };
        self.add(mailbox, actor, Some(|| StageMessage::Wake));
    }
}
