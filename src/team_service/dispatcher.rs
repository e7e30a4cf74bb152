//! Finds brains with work, and works on them in turns: a few at once, each on a thread of its own.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use actors::{ServerWorker, Setup, sync};
use jiff::Timestamp;
use knowledge::text::error_chain;
use team::{BrainId, BrainRow, ServerId, TeamLedger, TeamStore};
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
/// How long captures of a brain are worked on while another brain waits for its turn; and no longer than half a lease, as
/// that is how long work may wait.
const TURN_MAX: Duration = Duration::from_secs(30);

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

impl Task {
    fn is_sync(&self) -> bool {
        matches!(self, Self::Sync(_))
    }
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
    /// Whether a brain with captures waits for its turn.
    is_turn_due: AtomicBool,
    /// The tasks that wait for a clone of their brain.
    cloning: Mutex<HashSet<Task>>,
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
        let (stop, is_turn_due) = (AtomicBool::new(false), AtomicBool::new(false));
        let (cloning, compared) = (Mutex::default(), Mutex::default());
        let work = Work { store, server, settings, worker, counters, stop, is_turn_due, cloning, compared };
        Self { work: Arc::new(work) }
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
            let (work, after) = (Arc::clone(&self.work), last);
            let can_sync = self.work.free_places(&under_way, Task::is_sync) > 0;
            let found = tokio::task::spawn_blocking(move || work.look(after, can_sync)).await;
            let mut is_turn_due = false;
            for task in found.unwrap_or_default() {
                if let Task::Captures(brain) = task {
                    let is_captures = |task: &Task| !task.is_sync();
                    is_turn_due =
                        !under_way.contains(&task) && self.work.free_places(&under_way, is_captures) == 0;
                    if is_turn_due {
                        break;
                    }
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
            self.work.is_turn_due.store(is_turn_due, Ordering::SeqCst);
            tokio::select! {
                () = tokio::time::sleep(self.work.settings.poll_every) => {}
                _ = stop.changed() => {}
            }
        }
        self.work.stop.store(true, Ordering::SeqCst);
        let work = Arc::clone(&self.work);
        let _ = tokio::task::spawn_blocking(move || work.store.heartbeat(work.server, true)).await;
        // A clone is not waited for: it holds nothing that others wait for.
        let all_ended =
            async { while running.len() > self.work.clones() && running.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_PATIENCE, all_ended).await.is_err() {
            tracing::warn!("work is left to other servers, which take it over when its lease ends");
        } else {
            let work = Arc::clone(&self.work);
            let _ = tokio::task::spawn_blocking(move || work.store.retire_server(work.server)).await;
        }
    }
}

impl Work {
    /// How many more tasks of a kind may be begun. One that waits for a clone takes no place, up to as many as there are: a
    /// host that does not answer holds up no brain that is cloned.
    fn free_places(&self, under_way: &HashSet<Task>, is_of_kind: impl Fn(&Task) -> bool) -> usize {
        let count = |tasks: &HashSet<Task>| tasks.iter().filter(|task| is_of_kind(task)).count();
        let places = self.settings.brains_at_once;
        (places + count(&self.cloning()).min(places)).saturating_sub(count(under_way))
    }

    fn cloning(&self) -> MutexGuard<'_, HashSet<Task>> {
        self.cloning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clones(&self) -> usize {
        self.cloning().len()
    }

    /// Says that this server lives, takes back what others have left, and finds brains with captures and one to sync.
    fn look(&self, after: BrainId, can_sync: bool) -> Vec<Task> {
        let looked = || -> Result<Vec<Task>, team::Error> {
            self.store.heartbeat(self.server, false)?;
            let taken_back = self.store.reap_expired()?;
            self.counters.takeovers.fetch_add(taken_back as u64, Ordering::Relaxed);
            let ready = self.store.ready_brains(after, BRAINS_PER_LOOK, Timestamp::now())?;
            let captures = ready.into_iter().map(|ready| Task::Captures(ready.brain));
            // Last, as the claim is held from here on.
            let Settings { sync_every, lease, .. } = self.settings;
            let sync = match can_sync {
                true => self.store.claim_sync(self.server, sync_every, lease)?,
                false => None,
            };
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
        let setup = self.open(Task::Captures(brain), &row)?;
        let ledger = TeamLedger::new(self.store.clone(), brain, self.server, self.settings.lease);
        let held = ledger.clone();
        let renewal = Renewal::start(self.settings.lease, move || held.extend_leases().map(drop));
        // The turn begins when the worker asks first, so that none ends before anything was done.
        let (begun, turn) = (OnceCell::new(), TURN_MAX.min(self.settings.lease / 2));
        let is_over = || {
            let worked = begun.get_or_init(Instant::now).elapsed();
            self.stop.load(Ordering::SeqCst) || (self.is_turn_due.load(Ordering::SeqCst) && worked >= turn)
        };
        let worked = self.worker.work(&setup, ledger, &is_over);
        drop(renewal);
        Ok(worked?)
    }

    fn open(&self, task: Task, brain: &BrainRow) -> Result<Setup, CloneError> {
        self.cloning().insert(task);
        let opened = brain_clone::open(&self.settings, brain);
        self.cloning().remove(&task);
        opened
    }

    fn sync(&self, brain: BrainId) -> Result<(), WorkError> {
        let Some(row) = self.store.brain_by_id(brain)? else { return Ok(()) };
        let (store, server, lease) = (self.store.clone(), self.server, self.settings.lease);
        let renewal = Renewal::start(lease, move || store.renew_sync(server, brain, lease));
        let synced = self.sync_clone(&row);
        drop(renewal);
        // Also after a failure: the next one is due when the next one is due.
        self.store.finish_sync(self.server, brain)?;
        synced
    }

    fn sync_clone(&self, row: &BrainRow) -> Result<(), WorkError> {
        let setup = self.open(Task::Sync(row.id), row)?;
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

/// Renews claims as long as it lives, each third of their lease.
struct Renewal {
    ended: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Renewal {
    fn start<E>(lease: Duration, renew: impl Fn() -> Result<(), E> + Send + 'static) -> Self
    where
        E: std::error::Error + 'static,
    {
        let ended = Arc::<AtomicBool>::default();
        let has_ended = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            while !has_ended.load(Ordering::SeqCst) {
                if let Err(error) = renew() {
                    tracing::warn!(error = error_chain(&error), "failed to renew claims");
                }
                std::thread::park_timeout(lease / 3);
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
