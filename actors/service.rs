//! The actors put together, for those who need them: the drainer, and the doors that ask.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use brain::{Brain, StatePaths};
use extract::Extractor;
use index::{Index, Mode, Report};
use jiff::Timestamp;
use queue::{Budget, FileLocks, LockGuard, Queue, Spool, hand_over};
use ractor::{Actor, ActorCell, ActorRef};
use retrieve::{Answer, Query};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::delivery::{self, Delivery};
use crate::embedding::{self, Embedding, Model};
use crate::extraction::{self, Extraction};
use crate::git::Git;
use crate::health::{ActorReport, Health};
use crate::indexing::{self, Indexing, Refresh, RefreshProgress};
use crate::intake::{self, Intake};
use crate::mailbox::{Mailbox, address};
use crate::pipeline::{Jobs, chain};
use crate::retrieval::{self, Retrieval};
use crate::supervisor::{self, Child, Seat, Supervisor};
use crate::sweep::{self, BackgroundSweep};
use crate::sync::BackgroundSync;
use crate::{AskError, ModelReranker};

/// How often a drainer leaves word for `nugget status`.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// Captures that only wait for the remote keep a drainer for so many times as long as it waits for more work:
/// a network may be gone for days, and the next hook or server looks again.
const LINGER_FOR_REMOTE: u32 = 30;
/// The name under which it does.
pub const WORKER_REPORT: &str = "drainer";

/// The waits that tests make shorter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// How long an actor may take over one message before it counts as hung.
    pub(crate) patience: Duration,
    /// With those that wait for models or read large transcripts.
    pub(crate) patience_long: Duration,
    /// How often a drainer looks for new rows.
    pub(crate) look_every: Duration,
    /// How long closures that nobody waits for any more may go on before the process goes from
    /// under them.
    pub(crate) abandon_after: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(120),
            patience_long: Duration::from_secs(900),
            look_every: Duration::from_millis(50),
            abandon_after: Duration::from_secs(5),
        }
    }
}

/// What a tree of actors is made of, besides what its brain says; a test puts in others.
#[derive(Clone)]
pub(crate) struct Parts {
    /// The queue to work on, where there is one.
    pub(crate) jobs: Option<Jobs>,
    pub(crate) model: Model,
    pub(crate) pace: Pace,
}

/// Everything that the actors of a brain need to know.
#[derive(Clone)]
pub struct Setup {
    pub brain: Brain,
    pub places: StatePaths,
    pub embed: embed::Settings,
    pub extractor: Arc<dyn Extractor>,
    /// What calls of models may cost.
    pub budget: Budget,
    /// Who may be asked for the order of what was found; `None` for the local order.
    pub reranker: Option<ModelReranker>,
    /// Candidates below it are rejected, from 0 to 1.
    pub confidence_min: f64,
    /// The branch of reviewed knowledge, when it is named.
    pub default_branch: Option<String>,
    /// How long a drainer waits for more work before it goes.
    pub linger: Duration,
    /// How the brain's remote is dealt with, where it has one.
    pub delivery: delivery::Settings,
    /// How sessions are found that no hook announced; `None` to leave them.
    pub sweep: Option<sweep::Settings>,
}

/// Which actors are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Roles {
    /// All stages of a capture.
    Write,
    /// What answers questions and keeps the index.
    Read,
}

/// What went wrong before the service was there.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("failed to open the queue")]
    Queue(#[from] queue::Error),
    #[error("failed to open the index")]
    Index(#[from] index::Error),
    #[error("failed to start the service: {0}")]
    Actors(String),
}

/// A running tree of actors.
pub struct Service {
    supervisor: ActorRef<supervisor::Message>,
    ended: JoinHandle<()>,
    health: Vec<(Arc<Health>, Presence)>,
    index: Index,
    model: Model,
    /// Rings every stage of a capture.
    bells: Vec<Bell>,
    indexing: Mailbox<indexing::Message>,
    retrieval: Option<Mailbox<retrieval::Message>>,
}

/// Who is at an actor's place at the moment.
type Presence = Box<dyn Fn() -> Option<ActorCell> + Send + Sync>;
type Bell = Box<dyn Fn() + Send + Sync>;

impl Service {
    /// Starts the actors; blocks for as long as the index takes to open.
    pub async fn start(setup: &Setup, roles: Roles) -> Result<Self, StartError> {
        let jobs = match roles {
            Roles::Write => Some(Jobs::new(Queue::open(&setup.places.queue())?)),
            Roles::Read => None,
        };
        let model = Model::new(setup.embed.clone());
        Self::start_with(setup, roles, Parts { jobs, model, pace: Pace::default() }).await
    }

    pub(crate) async fn start_with(setup: &Setup, roles: Roles, parts: Parts) -> Result<Self, StartError> {
        let Parts { jobs, model, pace } = parts;
        let begun = Instant::now();
        let index = Index::open(&setup.brain.derived_folder())?;
        tracing::info!(ms = begun.elapsed().as_millis() as u64, "opened the index");
        let mut tree = Tree::default();
        let (embedding_seat, embedding) = tree.place("embedding", pace.patience);
        let (indexing_seat, indexing) = tree.place("indexing", pace.patience_long);
        let mut bells: Vec<Bell> = Vec::new();
        let mut retrieval = None;
        let mut git_bell = None;
        if let (Roles::Write, Some(jobs)) = (roles, &jobs) {
            let (intake_seat, intake_bell) = tree.place("intake", pace.patience_long);
            let (extraction_seat, extraction) = tree.place("extraction", pace.patience_long);
            let (git_seat, git) = tree.place("git", pace.patience);
            let (delivery_seat, delivery) = tree.place("delivery", pace.patience_long);
            tree.seat(
                intake_seat,
                || Intake,
                Some(|| intake::Message::Wake),
                intake::Arguments { jobs: jobs.clone(), bell: intake_bell.clone(), next: extraction.clone() },
            );
            tree.seat(
                extraction_seat,
                || Extraction,
                Some(|| extraction::Message::Wake),
                extraction::Arguments {
                    jobs: jobs.clone(),
                    extractor: Arc::clone(&setup.extractor),
                    budget: setup.budget,
                    index: index.clone(),
                    confidence_min: setup.confidence_min,
                    bell: extraction.clone(),
                    next: embedding.clone(),
                },
            );
            tree.seat(
                git_seat,
                || Git,
                Some(|| crate::git::Message::Wake),
                crate::git::Arguments {
                    jobs: jobs.clone(),
                    root: setup.brain.root().to_owned(),
                    default_branch: setup.default_branch.clone(),
                    index: index.clone(),
                    delivers: setup.delivery.enabled,
                    bell: git.clone(),
                    next: delivery.clone(),
                },
            );
            tree.seat(
                delivery_seat,
                || Delivery,
                Some(|| delivery::Message::Wake),
                delivery::Arguments {
                    jobs: jobs.clone(),
                    root: setup.brain.root().to_owned(),
                    default_branch: setup.default_branch.clone(),
                    settings: setup.delivery.clone(),
                    bell: delivery.clone(),
                    way: delivery::Known::default(),
                },
            );
            bells = vec![
                bell(intake_bell, || intake::Message::Wake),
                bell(extraction, || extraction::Message::Wake),
                bell(embedding.clone(), || embedding::Message::Wake),
                bell(indexing.clone(), || indexing::Message::Wake),
                bell(git.clone(), || crate::git::Message::Wake),
                bell(delivery, || delivery::Message::Wake),
            ];
            git_bell = Some(git);
        }
        if roles == Roles::Read {
            let (seat, bell) = tree.place("retrieval", pace.patience);
            tree.seat(
                seat,
                || Retrieval,
                None,
                retrieval::Arguments {
                    index: index.clone(),
                    model: model.clone(),
                    embedding: embedding.clone(),
                    root: setup.brain.root().to_owned(),
                    default_branch: setup.default_branch.clone(),
                    reviews: retrieval::Reviews::default(),
                    language: retrieval::Language::default(),
                    judge: setup.reranker.clone(),
                    bell: bell.clone(),
                },
            );
            retrieval = Some(bell);
        }
        tree.seat(
            indexing_seat,
            || Indexing,
            Some(|| indexing::Message::Wake),
            indexing::Arguments {
                jobs: jobs.clone(),
                brain: setup.brain.clone(),
                default_branch: setup.default_branch.clone(),
                index: index.clone(),
                model: model.clone(),
                embedding: embedding.clone(),
                sign: setup.places.indexing().into(),
                bell: indexing.clone(),
                next: git_bell,
            },
        );
        // The last one, as the others ask it.
        tree.seat(
            embedding_seat,
            || Embedding,
            Some(|| embedding::Message::Wake),
            embedding::Arguments { jobs, model: model.clone(), bell: embedding, next: indexing.clone() },
        );
        let arguments = supervisor::Arguments { children: tree.children };
        let (supervisor, ended) = Actor::spawn(None, Supervisor, arguments)
            .await
            .map_err(|error| StartError::Actors(error.to_string()))?;
        Ok(Self { supervisor, ended, health: tree.health, index, model, bells, indexing, retrieval })
    }

    /// The index that the service reads and keeps.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Loads the model in a thread of its own, beside what is done before the one question of this process.
    pub fn preload_model(&self) {
        let model = self.model.clone();
        tokio::task::spawn_blocking(move || model.preload_model());
    }

    /// Lets go of the model's weights; the next question or text loads them again.
    pub fn unload_model(&self) {
        self.model.unload();
    }

    /// The model of the present generation, when the settings name another: until all is embedded anew, the
    /// present one answers.
    pub fn outdated_index_model(&self) -> Option<String> {
        let pinned = self.index.pin().ok()?;
        let present = &pinned.model()?.name;
        (*present != self.model.name()).then(|| present.clone())
    }

    /// Answers a question from the present generation of the index.
    pub async fn ask(&self, query: Query, deadline: Duration) -> Result<Answer, AskError> {
        let Some(retrieval) = &self.retrieval else { return Err(AskError::NoAnswer("retrieval")) };
        let answer = retrieval.ask(deadline, |reply| retrieval::Message::Ask(query, reply)).await?;
        answer.map_err(AskError::Failed)
    }

    /// Brings the index up to date with the brain's files. `None` when it was.
    pub async fn refresh(
        &self,
        mode: Mode,
        progress: Option<watch::Sender<RefreshProgress>>,
        deadline: Duration,
    ) -> Result<Option<Report>, AskError> {
        let question = |reply| indexing::Message::Refresh(Refresh { mode, progress, reply: Some(reply) });
        self.indexing.ask(deadline, question).await?.map_err(AskError::Failed)
    }

    /// What each actor shows of itself.
    pub fn actors(&self) -> Vec<ActorReport> {
        self.health.iter().map(|(health, present)| health.report(present().is_some())).collect()
    }

    /// Tells every stage that there may be work.
    pub(crate) fn wake(&self) {
        for ring in &self.bells {
            ring();
        }
    }

    /// Whether the tree is there at all; its supervisor restarts every actor but itself.
    fn has_ended(&self) -> bool {
        self.ended.is_finished()
    }

    fn is_busy(&self) -> bool {
        self.health.iter().any(|(health, _)| health.is_busy())
    }

    /// The present life of an actor, or the supervisor.
    #[cfg(test)]
    pub(crate) fn cell(&self, name: &str) -> Option<ActorCell> {
        if name == "supervisor" {
            return Some(self.supervisor.get_cell());
        }
        self.health.iter().find(|(health, _)| health.name() == name).and_then(|(_, present)| present())
    }

    /// Lets every actor finish what it has in hand, then ends the tree.
    pub async fn shutdown(self) {
        if self.supervisor.cast(supervisor::Message::Shutdown).is_ok() {
            let _ = self.ended.await;
        }
    }
}

fn bell<M: ractor::Message>(address: Mailbox<M>, wake: fn() -> M) -> Bell {
    Box::new(move || address.ring(wake()))
}

/// Actors being put together: each has its place, and with it its address, before any is started.
#[derive(Default)]
struct Tree {
    children: Vec<Box<dyn Child>>,
    health: Vec<(Arc<Health>, Presence)>,
}

/// A place in the tree that waits for its actor's arguments.
struct Place<M> {
    lease: crate::mailbox::Lease<M>,
    health: Arc<Health>,
}

impl Tree {
    fn place<M: ractor::Message>(
        &mut self,
        name: &'static str,
        patience: Duration,
    ) -> (Place<M>, Mailbox<M>) {
        let health = Arc::new(Health::new(name, patience));
        let (lease, address) = address(Arc::clone(&health));
        let there = address.clone();
        self.health.push((Arc::clone(&health), Box::new(move || there.get().map(|actor| actor.get_cell()))));
        (Place { lease, health }, address)
    }

    fn seat<A>(
        &mut self,
        place: Place<A::Msg>,
        actor: fn() -> A,
        wake: Option<fn() -> A::Msg>,
        arguments: A::Arguments,
    ) where
        A: Actor,
        A::Arguments: Clone + Sync,
    {
        let Place { lease, health } = place;
        self.children.push(Box::new(Seat { actor, arguments, lease, health, wake }));
    }
}

/// What a drainer says of itself, for `nugget status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerReport {
    pub since: Timestamp,
    pub actors: Vec<ActorReport>,
}

/// What [`drain`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainSummary {
    /// How often it has had the drain lock.
    pub rounds: u32,
    /// Why the last round ended early, if it did.
    pub failed: bool,
}

/// Works the queue of a brain until there is nothing to do and nobody has come with more.
///
/// `room` is the place in the waiting room that a hook has handed over. Returns at once when
/// somebody else is about to look. Blocks; makes its own runtime.
pub fn drain(setup: &Setup, room: Option<LockGuard>) -> Result<DrainSummary, StartError> {
    // The model outlives a round: two rounds in a row load it once.
    let drainer = Drainer {
        setup,
        jobs: Jobs::new(Queue::open(&setup.places.queue())?),
        spool: Spool::new(setup.places.spool()),
        // One text after the other: a second copy of the weights would be 100 MB for little.
        model: Model::new(embed::Settings { sessions_max: 1, ..setup.embed.clone() }),
        pace: Pace::default(),
    };
    drainer.drain(room)
}

pub(crate) struct Drainer<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) jobs: Jobs,
    pub(crate) spool: Spool,
    pub(crate) model: Model,
    pub(crate) pace: Pace,
}

impl Drainer<'_> {
    pub(crate) fn drain(&self, room: Option<LockGuard>) -> Result<DrainSummary, StartError> {
        let places = &self.setup.places;
        let locks = FileLocks::new(places.wait_lock(), places.drain_lock());
        let mut drained = DrainSummary::default();
        let error = RefCell::new(None);
        hand_over(
            &locks,
            room,
            || {
                drained.rounds += 1;
                if let Err(failure) = self.round() {
                    tracing::error!(error = chain(&failure), "the drainer has failed");
                    error.replace(Some(failure));
                }
            },
            || {
                self.add_spooled();
                // A round that failed is not tried again at once; the next hook or server is.
                error.borrow().is_none() && self.jobs.queue.is_due(self.jobs.clock.now()).unwrap_or(false)
            },
        );
        error.into_inner().map_or(Ok(drained), Err)
    }

    /// One tenure of the drain lock.
    fn round(&self) -> Result<(), StartError> {
        failpoint::here!("drain-after-lock");
        let Some(sweeps) = self.prepare()? else { return Ok(()) };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|error| StartError::Actors(error.to_string()))?;
        let worked = runtime.block_on(self.work(sweeps));
        // Dropping it would wait for as long as the longest closure takes: for ever, if one hangs.
        runtime.shutdown_timeout(self.pace.abandon_after);
        worked?;
        failpoint::here!("drain-before-checkpoint");
        self.jobs.queue.checkpoint()?;
        failpoint::here!("drain-before-unlock");
        Ok(())
    }

    /// Finds out whether there is anything to do; if so, with the sweeps that go on beside it.
    pub(crate) fn prepare(&self) -> Result<Option<BackgroundSweep>, StartError> {
        // Whoever had these in hand is gone: the lock says so, whatever any clock says.
        self.jobs.take_over_all()?;
        self.add_spooled();
        let queue = &self.jobs.queue;
        self.redeliver();
        let mut sweeps = BackgroundSweep::default();
        if !self.has_work()? {
            // Nobody has to wait for anything: the sweep may bring the work.
            sweeps.start_if_due(self.setup.sweep.as_ref(), &self.setup.brain, queue);
            sweeps.wait();
        }
        Ok(self.has_work()?.then_some(sweeps))
    }

    /// Whether there is any capture but those that wait for the remote.
    fn has_work(&self) -> Result<bool, queue::Error> {
        let queue = &self.jobs.queue;
        Ok(queue.unfinished()? > 0 && !queue.waits_for_delivery(self.jobs.clock.now())?)
    }

    /// What was captured before there was a remote is delivered once there is one.
    fn redeliver(&self) {
        let Setup { brain, default_branch, delivery: settings, .. } = self.setup;
        if !settings.enabled {
            return;
        }
        let late = delivery::open(brain.root(), default_branch.as_deref())
            .and_then(|repository| delivery::redeliver(&repository, &self.jobs.queue, settings));
        match late {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "queued what was captured before there was a remote"),
            Err(failure) => tracing::warn!(error = failure.message, "failed to look for a remote"),
        }
    }

    async fn work(&self, sweeps: BackgroundSweep) -> Result<(), StartError> {
        let parts = Parts { jobs: Some(self.jobs.clone()), model: self.model.clone(), pace: self.pace };
        let service = Service::start_with(self.setup, Roles::Write, parts).await?;
        let worked = self.work_until_idle(&service, sweeps).await;
        service.shutdown().await;
        worked
    }

    pub(crate) async fn work_until_idle(
        &self,
        service: &Service,
        mut sweeps: BackgroundSweep,
    ) -> Result<(), StartError> {
        let Jobs { queue, clock, .. } = &self.jobs;
        let since = clock.now();
        let mut last_work = Instant::now();
        let mut last_report: Option<Instant> = None;
        let mut syncs = BackgroundSync::default();
        loop {
            if service.has_ended() {
                return Err(StartError::Actors("their supervisor has ended".to_owned()));
            }
            let now = clock.now();
            self.add_spooled();
            if let Err(error) = queue.truncate_large_log() {
                tracing::warn!(error = chain(&error), "the queue's log could not be emptied");
            }
            sweeps.start_if_due(self.setup.sweep.as_ref(), &self.setup.brain, queue);
            syncs.start_if_due(self.setup, queue, now);
            let looking = sweeps.is_under_way() || syncs.is_under_way();
            let unfinished = queue.unfinished()?;
            if !service.is_busy() && queue.waits_for_delivery(now)? {
                if last_work.elapsed() >= self.setup.linger * LINGER_FOR_REMOTE && !looking {
                    break;
                }
            } else if unfinished > 0 || service.is_busy() {
                // A capture that waits for its retry keeps the drainer here: nobody else would come.
                last_work = Instant::now();
                if queue.is_claimable(now)? {
                    service.wake();
                }
            } else if last_work.elapsed() >= self.setup.linger && !looking {
                break;
            }
            if last_report.is_none_or(|at| at.elapsed() >= REPORT_EVERY) {
                self.report(since, service)?;
                last_report = Some(Instant::now());
            }
            tokio::time::sleep(self.pace.look_every).await;
        }
        self.report(since, service)
    }

    fn add_spooled(&self) {
        if let Err(error) = self.jobs.queue.add_spooled(&self.spool, self.jobs.clock.now()) {
            tracing::warn!(error = chain(&error), "failed to take in the spool");
        }
    }

    fn report(&self, since: Timestamp, service: &Service) -> Result<(), StartError> {
        let report = WorkerReport { since, actors: service.actors() };
        if let Ok(body) = serde_json::to_string(&report) {
            self.jobs.queue.report(WORKER_REPORT, &body, self.jobs.clock.now())?;
        }
        Ok(())
    }
}
