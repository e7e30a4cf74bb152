//! The queue as the stages use it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use queue::{Claim, Ledger, Stage};

use crate::health::Health;
use crate::settings_mark::SettingsMark;

/// The queue, the time of day that it goes by, and which incarnation of each stage's actor may claim.
#[derive(Clone)]
pub(crate) struct Jobs {
    pub(crate) queue: Arc<dyn Ledger>,
    pub(crate) clock: Clock,
    /// Nothing is claimed once the settings are others: what was queued since goes by those.
    settings: SettingsMark,
    /// Called as a job passes certain points; only tests observe them.
    pub(crate) observer: Option<Arc<dyn WorkObserver>>,
    /// By stage, the incarnation of its actor that may claim.
    claimants: Arc<[Mutex<u64>; Stage::ALL.len()]>,
    /// The incarnation that has this value.
    incarnation: u64,
}

/// A point in the work on a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WorkPoint {
    /// The job is claimed, nothing is done.
    Claimed(Stage),
    /// The work is done, its result is not kept.
    Worked(Stage),
    /// In the blocking work of git: the plan is kept, the repository untouched.
    Planned,
    /// In the blocking work of git: the branch exists, the queue does not know.
    Proposed,
}

/// Is told how far a job has come; it may panic, or never return.
pub(crate) trait WorkObserver: Send + Sync {
    fn reached<'a>(
        &'a self,
        point: WorkPoint,
        claim: &'a Claim,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

    /// The same on a thread that may block.
    fn reached_blocking(&self, point: WorkPoint, claim: &Claim);
}

impl Jobs {
    pub(crate) fn new(queue: impl Ledger + 'static) -> Self {
        Self::shared(Arc::new(queue))
    }

    pub(crate) fn shared(queue: Arc<dyn Ledger>) -> Self {
        let (clock, claimants) = (Clock::default(), Arc::default());
        let settings = SettingsMark::default();
        Self { queue, clock, settings, observer: None, claimants, incarnation: 0 }
    }

    /// The same for a process that has read these settings.
    pub(crate) fn of_settings(self, settings: &SettingsMark) -> Self {
        Self { settings: settings.clone(), ..self }
    }

    pub(crate) async fn reached(&self, point: WorkPoint, claim: &Claim) {
        if let Some(observer) = &self.observer {
            observer.reached(point, claim).await;
        }
    }

    pub(crate) fn reached_blocking(&self, point: WorkPoint, claim: &Claim) {
        if let Some(observer) = &self.observer {
            observer.reached_blocking(point, claim);
        }
    }

    /// Makes all jobs of a worker process that is known to be gone claimable again.
    pub(crate) fn take_over_all(&self) -> Result<(), queue::Error> {
        let mut claimants = Stage::ALL.map(|stage| self.claimant(stage));
        claimants.iter_mut().for_each(|claimant| **claimant += 1);
        self.queue.release_claims(None).map(drop)
    }

    /// Makes the jobs of the last incarnation of a stage's actor claimable again.
    ///
    /// That incarnation may have left blocking work behind that is about to claim. Nobody would work on what
    /// it claimed from now on, nor take it for abandoned; so it can claim nothing any more.
    pub(crate) fn take_over(&mut self, stage: Stage, health: &Health) -> Result<(), queue::Error> {
        let claimants = Arc::clone(&self.claimants);
        let mut claimant = claimants[stage as usize].lock().unwrap_or_else(PoisonError::into_inner);
        *claimant += 1;
        self.incarnation = *claimant;
        match health.last_failure() {
            Some(reason) => self.queue.release_failed(stage, &reason).map(drop),
            None => self.queue.release_claims(Some(stage)).map(drop),
        }
    }

    pub(crate) fn claim(&self, stage: Stage) -> Result<Option<Claim>, queue::Error> {
        let claimant = self.claimant(stage);
        match *claimant == self.incarnation && !self.settings.is_outdated(&*self.queue)? {
            true => self.queue.claim(stage, self.clock.now()),
            false => Ok(None),
        }
    }

    fn claimant(&self, stage: Stage) -> MutexGuard<'_, u64> {
        self.claimants[stage as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time of day, for what is stored. It jumps, so no wait is measured by it.
#[derive(Clone)]
pub(crate) struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Default for Clock {
    fn default() -> Self {
        Self::new(Timestamp::now)
    }
}

impl Clock {
    pub(crate) fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.0)()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn work_left_by_an_earlier_incarnation_claims_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let health = Health::new("intake", Duration::ZERO);
        let mut killed = crate::testing::jobs_with_one_capture(&folder);
        let mut successor = killed.clone();
        killed.take_over(Stage::Intake, &health).unwrap();
        successor.take_over(Stage::Intake, &health).unwrap();
        assert!(killed.claim(Stage::Intake).unwrap().is_none());
        assert!(successor.claim(Stage::Intake).unwrap().is_some());
        successor.take_over_all().unwrap();
        assert!(successor.claim(Stage::Intake).unwrap().is_none(), "another process has taken over");
    }
}
