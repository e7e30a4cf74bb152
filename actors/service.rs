//! The actors put together, for those who need them: the drainer, and the doors that ask.

use std::sync::Arc;
use std::time::{Duration, Instant};

use brain::{Brain, Places};
use extract::Extractor;
use index::{Index, Mode, Report};
use jiff::Timestamp;
use queue::{FileLocks, Held, Queue, Spool, hand_over};
use ractor::{Actor, ActorRef};
use retrieve::{Answer, Query};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::AskError;
use crate::address::{Address, address};
use crate::embedding::{self, Embedding, Model};
use crate::extraction::{self, Extraction};
use crate::git::{self, Git};
use crate::indexing::{self, Advance, Indexing, Refresh};
use crate::intake::{self, Intake};
use crate::retrieval::{self, Retrieval};
use crate::stage::chain;
use crate::supervisor::{self, Child, Seat, Supervisor};
use crate::sweep::{self, Sweeps};
use crate::vitals::{ActorReport, Vitals};

/// How often a drainer looks for new rows.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often a drainer leaves word for `nugget status`.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// The name under which it does.
pub const DRAINER_REPORT: &str = "drainer";

/// How long an actor may take over one message before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(120);
/// The same for those that wait for models or large transcripts.
const PATIENCE_LONG: Duration = Duration::from_secs(900);

/// Everything that the actors of a brain need to know.
#[derive(Clone)]
pub struct Setup {
    pub brain: Brain,
    pub places: Places,
    pub embed: embed::Settings,
    pub extractor: Arc<dyn Extractor>,
    /// Candidates below it are rejected, from 0 to 1.
    pub confidence_min: f64,
    /// The branch of reviewed knowledge, when it is named.
    pub default_branch: Option<String>,
    /// How long a drainer waits for more work before it goes.
    pub linger: Duration,
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
    vitals: Vec<(Arc<Vitals>, Presence)>,
    index: Index,
    /// Rings every stage of a capture.
    bells: Vec<Bell>,
    indexing: Address<indexing::Message>,
    retrieval: Option<Address<retrieval::Message>>,
}

type Presence = Box<dyn Fn() -> bool + Send + Sync>;
type Bell = Box<dyn Fn() + Send + Sync>;

impl Service {
    /// Starts the actors; blocks for as long as the index takes to open.
    pub async fn start(setup: &Setup, roles: Roles) -> Result<Self, StartError> {
        let queue = match roles {
            Roles::Write => Some(Queue::open(&setup.places.queue())?),
            Roles::Read => None,
        };
        Self::start_with(setup, roles, queue, Model::new(setup.embed.clone())).await
    }

    async fn start_with(
        setup: &Setup,
        roles: Roles,
        queue: Option<Queue>,
        model: Model,
    ) -> Result<Self, StartError> {
        let index = Index::open(&setup.brain.derived_folder())?;
        let mut tree = Tree::default();
        let (embedding_seat, embedding) = tree.place("embedding", PATIENCE);
        let (indexing_seat, indexing) = tree.place("indexing", PATIENCE_LONG);
        let mut bells: Vec<Bell> = Vec::new();
        let mut retrieval = None;
        let mut git_bell = None;
        if let (Roles::Write, Some(queue)) = (roles, &queue) {
            let (intake_seat, intake_bell) = tree.place("intake", PATIENCE_LONG);
            let (extraction_seat, extraction) = tree.place("extraction", PATIENCE_LONG);
            let (git_seat, git) = tree.place("git", PATIENCE);
            tree.seat(
                intake_seat,
                || Intake,
                intake::Arguments {
                    queue: queue.clone(),
                    bell: intake_bell.clone(),
                    next: extraction.clone(),
                },
            );
            tree.seat(
                extraction_seat,
                || Extraction,
                extraction::Arguments {
                    queue: queue.clone(),
                    extractor: Arc::clone(&setup.extractor),
                    confidence_min: setup.confidence_min,
                    bell: extraction.clone(),
                    next: embedding.clone(),
                },
            );
            tree.seat(
                git_seat,
                || Git,
                git::Arguments {
                    queue: queue.clone(),
                    root: setup.brain.root().to_owned(),
                    default_branch: setup.default_branch.clone(),
                    index: index.clone(),
                    bell: git.clone(),
                },
            );
            bells = vec![
                bell(intake_bell, || intake::Message::Wake),
                bell(extraction, || extraction::Message::Wake),
                bell(embedding.clone(), || embedding::Message::Wake),
                bell(indexing.clone(), || indexing::Message::Wake),
                bell(git.clone(), || git::Message::Wake),
            ];
            git_bell = Some(git);
        }
        if roles == Roles::Read {
            let (seat, bell) = tree.place("retrieval", PATIENCE);
            tree.seat(
                seat,
                || Retrieval,
                retrieval::Arguments {
                    index: index.clone(),
                    model: model.clone(),
                    embedding: embedding.clone(),
                    bell: bell.clone(),
                },
            );
            retrieval = Some(bell);
        }
        tree.seat(
            embedding_seat,
            || Embedding,
            embedding::Arguments {
                queue: queue.clone(),
                model: model.clone(),
                bell: embedding.clone(),
                next: indexing.clone(),
            },
        );
        tree.seat(
            indexing_seat,
            || Indexing,
            indexing::Arguments {
                queue,
                brain: setup.brain.clone(),
                index: index.clone(),
                model,
                embedding,
                bell: indexing.clone(),
                next: git_bell,
            },
        );
        let arguments = supervisor::Arguments { children: tree.children };
        let (supervisor, ended) = Actor::spawn(None, Supervisor, arguments)
            .await
            .map_err(|error| StartError::Actors(error.to_string()))?;
        Ok(Self { supervisor, ended, vitals: tree.vitals, index, bells, indexing, retrieval })
    }

    /// The index that the service reads and keeps.
    pub fn index(&self) -> &Index {
        &self.index
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
        progress: Option<watch::Sender<Advance>>,
        deadline: Duration,
    ) -> Result<Option<Report>, AskError> {
        let question = |reply| indexing::Message::Refresh(Refresh { mode, progress, reply: Some(reply) });
        self.indexing.ask(deadline, question).await?.map_err(AskError::Failed)
    }

    /// What each actor shows of itself.
    pub fn actors(&self) -> Vec<ActorReport> {
        self.vitals.iter().map(|(vitals, present)| vitals.report(present())).collect()
    }

    /// Tells every stage that there may be work.
    fn wake(&self) {
        for ring in &self.bells {
            ring();
        }
    }

    fn is_busy(&self) -> bool {
        self.vitals.iter().any(|(vitals, _)| vitals.is_busy())
    }

    /// Lets every actor finish what it has in hand, then ends the tree.
    pub async fn shutdown(self) {
        if self.supervisor.cast(supervisor::Message::Shutdown).is_ok() {
            let _ = self.ended.await;
        }
    }
}

fn bell<M: ractor::Message>(address: Address<M>, wake: fn() -> M) -> Bell {
    Box::new(move || address.ring(wake()))
}

/// Actors being put together: each has its place, and with it its address, before any is started.
#[derive(Default)]
struct Tree {
    children: Vec<Box<dyn Child>>,
    vitals: Vec<(Arc<Vitals>, Presence)>,
}

/// A place in the tree that waits for its actor's arguments.
struct Place<M> {
    lease: crate::address::Lease<M>,
    vitals: Arc<Vitals>,
}

impl Tree {
    fn place<M: ractor::Message>(
        &mut self,
        name: &'static str,
        patience: Duration,
    ) -> (Place<M>, Address<M>) {
        let vitals = Arc::new(Vitals::new(name, patience));
        let (lease, address) = address(Arc::clone(&vitals));
        let there = address.clone();
        self.vitals.push((Arc::clone(&vitals), Box::new(move || there.get().is_some())));
        (Place { lease, vitals }, address)
    }

    fn seat<A>(&mut self, place: Place<A::Msg>, actor: fn() -> A, arguments: A::Arguments)
    where
        A: Actor,
        A::Arguments: Clone + Sync,
    {
        self.children.push(Box::new(Seat { actor, arguments, lease: place.lease, vitals: place.vitals }));
    }
}

/// What a drainer says of itself, for `nugget status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainerReport {
    pub since: Timestamp,
    pub actors: Vec<ActorReport>,
}

/// What [`drain`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// How often it has had the drain lock.
    pub rounds: u32,
    /// Why the last round ended early, if it did.
    pub failed: bool,
}

/// Works the queue of a brain until there is nothing to do and nobody has come with more.
///
/// `room` is the place in the waiting room that a hook has handed over. Returns at once when
/// somebody else is about to look. Blocks; makes its own runtime.
pub fn drain(setup: &Setup, room: Option<Held>) -> Result<Drained, StartError> {
    let locks = FileLocks::new(setup.places.wait_lock(), setup.places.drain_lock());
    let queue = Queue::open(&setup.places.queue())?;
    let spool = Spool::new(setup.places.spool());
    // The model outlives a round: two rounds in a row load it once.
    let model = Model::new(setup.embed.clone());
    let mut drained = Drained::default();
    let mut error = None;
    hand_over(
        &locks,
        room,
        || {
            drained.rounds += 1;
            if let Err(failure) = round(setup, &queue, &spool, &model) {
                tracing::error!(error = chain(&failure), "the drainer has failed");
                error = Some(failure);
            }
        },
        || {
            let _ = queue.absorb(&spool, Timestamp::now());
            // A round that failed is not tried again at once; the next hook or server is.
            queue.is_due(Timestamp::now()).unwrap_or(false)
        },
    );
    error.map_or(Ok(drained), Err)
}

/// One tenure of the drain lock.
fn round(setup: &Setup, queue: &Queue, spool: &Spool, model: &Model) -> Result<(), StartError> {
    failpoint::here!("drain-after-lock");
    // Whoever had these in hand is gone: the lock says so, whatever any clock says.
    queue.reclaim(None)?;
    if let Err(error) = queue.absorb(spool, Timestamp::now()) {
        tracing::warn!(error = chain(&error), "failed to take in the spool");
    }
    let mut sweeps = Sweeps::default();
    if queue.unfinished()? == 0 {
        // Nobody has to wait for anything: the sweep may bring the work.
        sweeps.start_if_due(setup.sweep.as_ref(), &setup.brain, queue);
        sweeps.wait();
    }
    if queue.unfinished()? == 0 {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| StartError::Actors(error.to_string()))?;
    runtime.block_on(async {
        let service = Service::start_with(setup, Roles::Write, Some(queue.clone()), model.clone()).await?;
        let worked = work_until_idle(setup, queue, spool, &service, sweeps).await;
        service.shutdown().await;
        worked
    })?;
    failpoint::here!("drain-before-checkpoint");
    queue.checkpoint()?;
    failpoint::here!("drain-before-unlock");
    Ok(())
}

async fn work_until_idle(
    setup: &Setup,
    queue: &Queue,
    spool: &Spool,
    service: &Service,
    mut sweeps: Sweeps,
) -> Result<(), StartError> {
    let since = Timestamp::now();
    let mut last_work = Instant::now();
    let mut last_report: Option<Instant> = None;
    loop {
        let now = Timestamp::now();
        if let Err(error) = queue.absorb(spool, now) {
            tracing::warn!(error = chain(&error), "failed to take in the spool");
        }
        sweeps.start_if_due(setup.sweep.as_ref(), &setup.brain, queue);
        let sweeping = sweeps.is_under_way();
        let unfinished = queue.unfinished()?;
        if unfinished > 0 || service.is_busy() {
            // A capture that waits for its retry keeps the drainer here: nobody else would come.
            last_work = Instant::now();
            if queue.is_due(now)? {
                service.wake();
            }
        } else if last_work.elapsed() >= setup.linger && !sweeping {
            break;
        }
        if last_report.is_none_or(|at| at.elapsed() >= REPORT_EVERY) {
            let report = DrainerReport { since, actors: service.actors() };
            if let Ok(body) = serde_json::to_string(&report) {
                queue.report(DRAINER_REPORT, &body, now)?;
            }
            last_report = Some(Instant::now());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let report = DrainerReport { since, actors: service.actors() };
    if let Ok(body) = serde_json::to_string(&report) {
        queue.report(DRAINER_REPORT, &body, Timestamp::now())?;
    }
    Ok(())
}
