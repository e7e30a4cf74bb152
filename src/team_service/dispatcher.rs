//! Finds brains with work, and works on them: a few at once, each on a thread of its own.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use actors::{ServerWorker, sync};
use jiff::Timestamp;
use knowledge::text::error_chain;
use team::{BrainId, ServerId, TeamLedger, TeamStore};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::health::Counters;
use crate::publishing::{self, Outcome, PublishError};
use crate::{CloneError, Settings, brain_clone};

/// How long what is under way may take after the server was told to stop. What is not done then is taken over by another
/// server when its lease ends.
const STOP_PATIENCE: Duration = Duration::from_secs(30);
/// How many brains one look returns; the next look goes on behind them.
const BRAINS_PER_LOOK: usize = 64;

/// Why work on a brain has ended.
#[derive(Debug, thiserror::Error)]
enum WorkError {
    #[error(transparent)]
    Clone(#[from] CloneError),
    #[error(transparent)]
    Team(#[from] team::Error),
    #[error("failed to work on captures")]
    Work(#[from] actors::StartError),
    #[error("failed to sync with git")]
    Sync(#[from] sync::SyncError),
    #[error(transparent)]
    Publish(#[from] PublishError),
}

/// What is done with a brain.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Task {
    /// Captures are worked on.
    Captures(BrainId),
    /// Merges are fetched, decisions recorded, and the index is published.
    Sync(BrainId),
}

pub(crate) struct Dispatcher {
    work: Arc<Work>,
}

struct Work {
    store: TeamStore,
    server: ServerId,
    settings: Settings,
    worker: ServerWorker,
    counters: Arc<Counters>,
    stop: AtomicBool,
    /// The brains of which this server has compared what is published with its own index.
    compared: Mutex<HashSet<BrainId>>,
}

impl Dispatcher {
    pub(crate) fn new(
        store: TeamStore,
        server: ServerId,
        settings: Settings,
        worker: ServerWorker,
        counters: Arc<Counters>,
    ) -> Self {
        let (stop, compared) = (AtomicBool::new(false), Mutex::default());
        Self { work: Arc::new(Work { store, server, settings, worker, counters, stop, compared }) }
    }

    /// Works until `stop` says so.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut under_way: HashSet<Task> = HashSet::new();
        let mut running = JoinSet::new();
        let mut last = BrainId(0);
        while !*stop.borrow_and_update() {
            while let Some(ended) = running.try_join_next() {
                // A crash is caught where it happens, so every task says which one it was.
                if let Ok(task) = ended {
                    under_way.remove(&task);
                }
            }
            let free = self.work.settings.brains_at_once.saturating_sub(under_way.len());
            let (work, after) = (Arc::clone(&self.work), last);
            let found = tokio::task::spawn_blocking(move || work.look(after, free)).await;
            let found = found.unwrap_or_default();
            for task in found {
                if under_way.len() >= self.work.settings.brains_at_once {
                    break;
                }
                if let Task::Captures(brain) = task {
                    last = brain;
                }
                if under_way.insert(task) {
                    let work = Arc::clone(&self.work);
                    running.spawn_blocking(move || {
                        let done = catch_unwind(AssertUnwindSafe(|| work.run(task)));
                        if done.is_err() {
                            tracing::error!("work on a brain has crashed");
                            work.counters.failures.fetch_add(1, Ordering::Relaxed);
                        }
                        task
                    });
                }
            }
            tokio::select! {
                () = tokio::time::sleep(self.work.settings.poll_every) => {}
                _ = stop.changed() => {}
            }
        }
        self.work.stop.store(true, Ordering::SeqCst);
        let work = Arc::clone(&self.work);
        let _ = tokio::task::spawn_blocking(move || work.store.heartbeat(work.server, true)).await;
        let all_ended = async { while running.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_PATIENCE, all_ended).await.is_err() {
            tracing::warn!("work is left to other servers, which take it over when its lease ends");
        } else {
            let work = Arc::clone(&self.work);
            let _ = tokio::task::spawn_blocking(move || work.store.retire_server(work.server)).await;
        }
    }
}

impl Work {
    /// Says that this server lives, takes back what others have left, and finds up to `free` tasks.
    fn look(&self, after: BrainId, free: usize) -> Vec<Task> {
        let looked = || -> Result<Vec<Task>, team::Error> {
            self.store.heartbeat(self.server, false)?;
            let taken_back = self.store.reap_expired()?;
            self.counters.takeovers.fetch_add(taken_back as u64, Ordering::Relaxed);
            if free == 0 {
                return Ok(Vec::new());
            }
            let settings = &self.settings;
            let sync = self.store.claim_sync(self.server, settings.sync_every, 10 * settings.lease)?;
            let ready = self.store.ready_brains(after, BRAINS_PER_LOOK, Timestamp::now())?;
            let captures = ready.into_iter().map(|ready| Task::Captures(ready.brain));
            Ok(sync.map(Task::Sync).into_iter().chain(captures).collect())
        };
        looked().unwrap_or_else(|error| {
            tracing::warn!(error = error_chain(&error), "the database cannot be asked for work");
            Vec::new()
        })
    }

    fn run(&self, task: Task) {
        let begun = Instant::now();
        let done = match task {
            Task::Captures(brain) => self.work_on(brain),
            Task::Sync(brain) => self.sync(brain),
        };
        if let Err(error) = done {
            self.counters.failures.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(error = error_chain(&error), "work on a brain has failed");
            // Its captures stay ready: they are not tried in a circle.
            let pause = Duration::from_secs(1).saturating_sub(begun.elapsed());
            std::thread::sleep(pause);
        }
    }

    fn work_on(&self, brain: BrainId) -> Result<(), WorkError> {
        let Some(row) = self.store.brain_by_id(brain)? else {
            return Ok(self.store.delete_leftovers(brain)?);
        };
        let setup = brain_clone::open(&self.settings, &row)?;
        let ledger = TeamLedger::new(self.store.clone(), brain, self.server, self.settings.lease);
        let renewal = Renewal::start(ledger.clone(), self.settings.lease / 3);
        let worked = self.worker.work(&setup, ledger, &self.stop);
        drop(renewal);
        Ok(worked?)
    }

    fn sync(&self, brain: BrainId) -> Result<(), WorkError> {
        let Some(row) = self.store.brain_by_id(brain)? else { return Ok(()) };
        let synced = self.sync_clone(&row);
        // Also after a failure: the next one is due when the next one is due.
        self.store.finish_sync(self.server, brain)?;
        synced
    }

    fn sync_clone(&self, row: &team::BrainRow) -> Result<(), WorkError> {
        let setup = brain_clone::open(&self.settings, row)?;
        let ledger = TeamLedger::new(self.store.clone(), row.id, self.server, self.settings.lease);
        sync::sync(&setup, &ledger, Timestamp::now())?;
        let compared = || self.compared.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = !compared().contains(&row.id);
        match publishing::publish(&self.store, &self.worker, &setup, row.id, is_first) {
            Ok(Outcome::Published) => drop(self.counters.published.fetch_add(1, Ordering::Relaxed)),
            Ok(Outcome::Same) => {}
            Ok(Outcome::NotNow) => return Ok(()),
            // Another server was first; the next sync compares again.
            Err(PublishError::Team(error)) if error.is_other_generation() => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        compared().insert(row.id);
        Ok(())
    }
}

/// Renews the claims of a ledger as long as it lives.
struct Renewal {
    ended: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Renewal {
    fn start(ledger: TeamLedger, every: Duration) -> Self {
        let ended = Arc::<AtomicBool>::default();
        let has_ended = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            while !has_ended.load(Ordering::SeqCst) {
                if let Err(error) = ledger.extend_leases() {
                    tracing::warn!(error = error_chain(&error), "failed to renew claims");
                }
                std::thread::park_timeout(every);
            }
        });
        Self { ended, thread: Some(thread) }
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
