//! The worker process: works on the queue of a brain until nothing is left to do.

use std::cell::RefCell;
use std::time::Duration;

use jiff::Timestamp;
use queue::{FileLocks, LockGuard, Queue, Spool, hand_over};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::archiving;
use crate::embedding_model::EmbeddingModel;
use crate::failure::{Failure, error_chain};
use crate::health::ActorReport;
use crate::jobs::Jobs;
use crate::merge_record;
use crate::notes::NoteError;
use crate::reflection::{self, Pass, ReflectionError};
use crate::review_remote::ReviewError;
use crate::service::{Pace, Parts, Roles, Service, StartError};
use crate::setup::Setup;
use crate::sweep::BackgroundSweep;
use crate::sync::BackgroundSync;
use crate::unqueued_branches;

/// How often a worker reports its state for `nugget status`, if it has changed.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// How often a worker looks at the queue while its captures wait, perhaps for days for something that a person does.
const REST_MAX: Duration = Duration::from_secs(1);
/// Captures that only wait for the remote keep a worker for this many times as long as it waits for more
/// work: a network may be down for days, and the next hook or server checks again.
const REMOTE_LINGER_FACTOR: u32 = 30;
/// How long a worker that has nothing else to do waits for the archive. What is not archived by then is next time.
const ARCHIVING_PATIENCE: Duration = Duration::from_secs(60);
/// The name of a worker's report in the queue.
pub const WORKER_REPORT: &str = "drainer";

/// The state of a worker, for `nugget status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// When it began to work on the queue.
    pub since: Timestamp,
    /// The state of each of its actors.
    pub actors: Vec<ActorReport>,
}

/// What [`drain`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainSummary {
    /// How often it has held the worker lock.
    pub rounds: u32,
    /// Whether it has left work as its settings are no longer those of now, and no other process will look at it.
    pub is_outdated: bool,
}

/// Works on the queue of a brain until there is nothing to do and no more work has come for a while.
///
/// `waiting` is the lock of the next worker, if a hook has handed it over. Returns at once if another
/// process will look at the queue anyway. Blocks; creates its own runtime.
///
/// # Errors
/// When the queue, the index or the actors fail; the work stays in the queue.
pub fn drain(setup: &Setup, waiting: Option<LockGuard>) -> Result<DrainSummary, StartError> {
    let queue = Queue::open(&setup.places.queue())?;
    let worker = Worker {
        setup,
        jobs: Jobs::new(queue.clone()).of_settings(&setup.settings),
        queue,
        spool: Spool::new(setup.places.spool()),
        // Shared by all rounds, so that it is loaded once.
        model: EmbeddingModel::new(setup.embed.clone()),
        pace: Pace::default(),
    };
    worker.drain(waiting)
}

pub(crate) struct Worker<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) queue: Queue,
    /// The same queue, as the stages use it.
    pub(crate) jobs: Jobs,
    pub(crate) spool: Spool,
    pub(crate) model: EmbeddingModel,
    pub(crate) pace: Pace,
}

impl Worker<'_> {
    pub(crate) fn drain(&self, waiting: Option<LockGuard>) -> Result<DrainSummary, StartError> {
        let places = &self.setup.places;
        let locks = FileLocks::new(places.wait_lock(), places.drain_lock());
        let mut summary = DrainSummary::default();
        let error = RefCell::new(None);
        hand_over(
            &locks,
            waiting,
            || {
                summary.rounds += 1;
                if let Err(failure) = self.round() {
                    tracing::error!(error = error_chain(&failure), "the worker has failed");
                    error.replace(Some(failure));
                }
            },
            || {
                self.add_spooled();
                // A round that failed is not repeated at once, but by the next hook or server; nor is there another one with
                // settings that are outdated.
                let is_over = error.borrow().is_some() || self.is_outdated().unwrap_or(false);
                !is_over && self.queue.is_due(self.jobs.clock.now()).unwrap_or(false)
            },
        )
        .inspect_err(|error| {
            tracing::error!(error = error_chain(error), "the worker cannot lock the queue")
        })?;
        if let Some(failure) = error.into_inner() {
            return Err(failure);
        }
        let is_left = || !queue::is_held(&places.wait_lock()) && !queue::is_held(&places.drain_lock());
        summary.is_outdated = self.is_outdated()? && self.queue.unfinished()? > 0 && is_left();
        Ok(summary)
    }

    /// Works while it holds the worker lock.
    fn round(&self) -> Result<(), StartError> {
        failpoint::here!("drain-after-lock");
        // It may have waited for the lock since it read them.
        if self.is_outdated()? {
            return Ok(());
        }
        // Every capture would meet it, and only a person can end it.
        if let Err(error @ git::Error::NotTrusted { .. }) = git::Repository::open(self.setup.brain.root()) {
            return Err(StartError::NotTrusted(error));
        }
        let Some(sweep) = self.prepare()? else {
            self.archive();
            self.reflect();
            return Ok(());
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|error| StartError::Actors(error.to_string()))?;
        let worked = runtime.block_on(self.work(sweep));
        // Dropping it would wait for the longest blocking work: for ever, if that hangs.
        runtime.shutdown_timeout(self.pace.abandon_after);
        worked?;
        self.reflect();
        failpoint::here!("drain-before-checkpoint");
        self.queue.checkpoint()?;
        failpoint::here!("drain-before-unlock");
        Ok(())
    }

    /// Finds out whether there is anything to do; if so, returns the sweep that goes on in the background.
    pub(crate) fn prepare(&self) -> Result<Option<BackgroundSweep>, StartError> {
        // The lock proves that the previous worker is gone, whatever any clock says.
        self.jobs.take_over_all()?;
        self.add_spooled();
        self.queue_undelivered();
        self.queue_unqueued_branches();
        self.record_merged();
        let mut sweep = BackgroundSweep::default();
        if !self.has_work()? {
            // No work waits for this one: the sweep may find some.
            sweep.start_if_due(self.setup.sweep.as_ref(), &self.setup.brain, &self.queue);
            sweep.wait();
        }
        Ok(self.has_work()?.then_some(sweep))
    }

    /// Archives what is new, while no capture needs this worker.
    fn archive(&self) {
        let Some(settings) = &self.setup.archive else { return };
        let (queue, begun) = (&self.queue, Instant::now());
        let is_cancelled = || {
            begun.elapsed() >= ARCHIVING_PATIENCE
                || queue.is_due(self.jobs.clock.now()).unwrap_or(true)
                || self.is_outdated().unwrap_or(true)
        };
        if let Err(error) = archiving::run_round(settings, queue, &|| (), &is_cancelled) {
            tracing::warn!(error = error_chain(&error), "the session archive is not up to date");
        }
    }

    /// Makes the daily reflection pass, while no capture needs this worker.
    fn reflect(&self) {
        let (queue, now) = (&self.queue, self.jobs.clock.now());
        let has_captures = || queue.is_due(self.jobs.clock.now()).unwrap_or(true);
        if !self.setup.reflects_daily || has_captures() || !reflection::is_due(queue, now) {
            return;
        }
        // The project of the sessions that it looks at is not known here, so what is stale stays as it is.
        let pass =
            Pass { since: None, stale: &|_| Vec::new(), progress: &|_, _| (), is_cancelled: &has_captures };
        let done = reflection::look(self.setup, &pass, now).and_then(|found| {
            let proposed = reflection::propose(self.setup, &found, now)?;
            reflection::remember(queue, &found, now)?;
            Ok(proposed)
        });
        match done {
            Ok(Some(proposed)) => tracing::info!(branch = proposed.branch, "proposed what to tidy up"),
            Ok(None) | Err(ReflectionError::Cancelled) => {}
            Err(error) => tracing::warn!(error = error_chain(&error), "the reflection pass has failed"),
        }
    }

    /// Whether there is any capture but those that wait for the remote.
    fn has_work(&self) -> Result<bool, queue::Error> {
        let queue = &self.queue;
        Ok(queue.unfinished()? > 0 && !queue.waits_for_delivery(self.jobs.clock.now())?)
    }

    /// Queues what was captured before there was a remote, once there is one.
    fn queue_undelivered(&self) {
        let queue_all = || -> Result<usize, Failure> {
            if !self.setup.delivery.enabled || self.setup.repository()?.remote()?.is_none() {
                return Ok(0);
            }
            Ok(self.queue.redeliver()?)
        };
        match queue_all() {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "queued captures from before there was a remote"),
            Err(failure) => tracing::warn!(error = failure.message, "failed to check for a remote"),
        }
    }

    fn queue_unqueued_branches(&self) {
        let queue_all = || -> Result<usize, NoteError> {
            let repository = self.setup.repository()?;
            unqueued_branches::queue_unqueued(self.setup, &repository, &self.queue, self.jobs.clock.now())
        };
        match queue_all() {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "queued branches that a killed process had made"),
            Err(error) => {
                tracing::warn!(
                    error = error_chain(&error),
                    "failed to look for branches that are not queued"
                );
            }
        }
    }

    /// Records what a person has merged with git, or left out then, before a session is compared with it. With a remote a
    /// sync does it.
    fn record_merged(&self) {
        let record = || -> Result<(), ReviewError> {
            let repository = self.setup.repository()?;
            if self.setup.delivery.enabled && repository.remote()?.is_some() {
                return Ok(());
            }
            merge_record::record_merged(&repository, &self.queue, self.jobs.clock.now())
        };
        if let Err(error) = record() {
            tracing::warn!(error = error_chain(&error), "failed to look for what was merged");
        }
    }

    async fn work(&self, sweep: BackgroundSweep) -> Result<(), StartError> {
        let parts = Parts { jobs: Some(self.jobs.clone()), model: self.model.clone(), pace: self.pace };
        let service = Service::start_with(self.setup, Roles::Write, parts).await?;
        let worked = self.work_until_idle(&service, sweep).await;
        service.shutdown().await;
        worked
    }

    pub(crate) async fn work_until_idle(
        &self,
        service: &Service,
        mut sweep: BackgroundSweep,
    ) -> Result<(), StartError> {
        let (queue, clock) = (&self.queue, &self.jobs.clock);
        let since = clock.now();
        let mut last_work = Instant::now();
        let mut last_report: Option<(Instant, String)> = None;
        let mut sync = BackgroundSync::default();
        let mut unfinished_before = None;
        loop {
            if service.has_ended() {
                return Err(StartError::Actors("the supervisor has ended".to_owned()));
            }
            if !self.setup.places.queue().exists() {
                tracing::info!("the queue was deleted");
                break;
            }
            let now = clock.now();
            let is_outdated = self.is_outdated()?;
            if is_outdated && !service.has_work() {
                tracing::info!("the settings have changed");
                break;
            }
            self.add_spooled();
            if let Err(error) = queue.truncate_large_log() {
                tracing::warn!(error = error_chain(&error), "failed to truncate the queue's log");
            }
            if !is_outdated {
                sweep.start_if_due(self.setup.sweep.as_ref(), &self.setup.brain, queue);
                sync.start_if_due(self.setup, queue, now);
            }
            let unfinished = queue.unfinished()?;
            if unfinished_before.replace(unfinished).is_some_and(|before| before != unfinished) {
                service.wake_archiving();
            }
            let is_archiving = service.is_archiving() && last_work.elapsed() < ARCHIVING_PATIENCE;
            let in_background = sweep.is_running() || sync.is_running() || is_archiving;
            if !service.has_work() && queue.waits_for_delivery(now)? {
                if last_work.elapsed() >= self.setup.linger * REMOTE_LINGER_FACTOR && !in_background {
                    break;
                }
            } else if unfinished > 0 || service.has_work() {
                // A capture that waits for its retry keeps the worker: no other process would come for it.
                last_work = Instant::now();
                if queue.is_claimable(now)? {
                    service.wake();
                }
            } else if last_work.elapsed() >= self.setup.linger && !in_background {
                break;
            }
            if last_report.as_ref().is_none_or(|(at, _)| at.elapsed() >= REPORT_EVERY) {
                self.report(since, service, &mut last_report)?;
            }
            let is_resting =
                unfinished > 0 && !in_background && !service.has_work() && !queue.is_claimable(now)?;
            let rest = if is_resting { self.rest(now)? } else { self.pace.poll_every };
            tokio::time::sleep(rest).await;
        }
        self.report(since, service, &mut last_report)
    }

    /// How long there is nothing to do but to look for what others have changed.
    fn rest(&self, now: Timestamp) -> Result<Duration, queue::Error> {
        let due = self.queue.next_due()?.and_then(|due| Duration::try_from(due.duration_since(now)).ok());
        // One that is due and cannot be claimed waits for another one.
        let due = due.filter(|due| !due.is_zero());
        Ok(due.unwrap_or(REST_MAX).min(REST_MAX).max(self.pace.poll_every))
    }

    fn is_outdated(&self) -> Result<bool, queue::Error> {
        self.setup.settings.is_outdated(&self.queue)
    }

    fn add_spooled(&self) {
        if let Err(error) = self.queue.add_spooled(&self.spool, self.jobs.clock.now()) {
            tracing::warn!(error = error_chain(&error), "failed to queue what is in the spool");
        }
    }

    /// Reports the state if it is not that of the `last` report: a worker that waits for days writes nothing.
    fn report(
        &self,
        since: Timestamp,
        service: &Service,
        last: &mut Option<(Instant, String)>,
    ) -> Result<(), StartError> {
        let report = WorkerReport { since, actors: service.actors() };
        if let Ok(body) = serde_json::to_string(&report) {
            if last.as_ref().is_none_or(|(_, reported)| *reported != body) {
                self.queue.report(WORKER_REPORT, &body, self.jobs.clock.now())?;
            }
            *last = Some((Instant::now(), body));
        }
        Ok(())
    }
}
