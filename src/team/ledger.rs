//! The ledger of one brain on PostgreSQL, for one server among several.

mod accept;
mod claims;
mod decisions;
mod delivery;
mod pauses;
mod proposals;
mod rows;
mod spend;
mod stats;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use queue::{
    Branch, Budget, CallCost, Capture, Claim, Decision, EarlierProposal, FileDecision, Finish, Ledger, Pause,
    ProposedUnit, PullRequest, PullState, Reservation, Stage, State, Tally, TranscriptStamp,
};

pub use accept::{Accepted, NewCapture};

use crate::store::Transaction;
use crate::{BrainId, Error, Result, ServerId, TeamStore};

/// The captures of one brain, as one server works on them. Clones share the claims that they hold.
///
/// A claim lasts for the lease, by the database's clock, and longer only by [`extend_leases`](Self::extend_leases).
/// After that any server may [take it over](TeamStore::reap_expired); whatever the late writer then stores is refused
/// with [`queue::Error::Stale`]. `now` is used for the times that are recorded and for what is due.
///
/// A server has one ledger for each brain (or clones of it): claims are extended only by the ledger that returned them,
/// so that a claim whose answer was lost on its way here is given to another worker.
#[derive(Clone, Debug)]
pub struct TeamLedger {
    store: TeamStore,
    brain: BrainId,
    server: ServerId,
    lease: Duration,
    held: Arc<Mutex<HashSet<i64>>>,
}

impl TeamStore {
    /// Queues a brain's failed captures again, or one of them, and ends all waits and pauses. Returns how many had failed.
    ///
    /// # Errors
    /// [`queue::Error::Unknown`] if the one is not a capture of this brain; when the database cannot be written.
    pub fn retry(&self, brain: BrainId, id: Option<i64>) -> Result<usize> {
        self.brain(brain).write(|transaction| claims::retry(transaction, brain, id))
    }

    /// What waits in a brain, and for whom.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn brain_status(&self, brain: BrainId) -> Result<BrainStatus> {
        // One look into an index each: a brain may have a million captures.
        let sql = "WITH unfinished AS (SELECT since FROM jobs WHERE brain = $1),
                failed AS (SELECT id FROM captures WHERE brain = $1 AND outcome = 'dead'),
                offered AS (SELECT branch, pull_number, units, finished FROM captures
                    WHERE brain = $1 AND outcome = 'done' AND pushed IS NOT NULL
                        AND coalesce(pull_state, 'open') = 'open')
            SELECT (SELECT count(*) FROM unfinished), (SELECT min(since) FROM unfinished),
                (SELECT count(*) FROM failed), (SELECT count(DISTINCT branch) FROM offered),
                (SELECT count(DISTINCT pull_number) FROM offered), (SELECT sum(units) FROM offered),
                (SELECT min(finished) FROM offered)";
        let pauses = "SELECT stage, why FROM pauses WHERE brain = $1 ORDER BY stage";
        self.brain(brain).read(|transaction| {
            let row = transaction.query_one(sql, &[&brain.0])?;
            let failures = rows::select(
                transaction,
                "c.outcome = 'dead' ORDER BY c.id DESC LIMIT $2",
                &[&brain.0, &FAILURES_MAX],
            )?;
            let pauses = transaction.query(pauses, &[&brain.0])?;
            let count = |column: usize| row.get::<_, Option<i64>>(column).unwrap_or_default().cast_unsigned();
            Ok(BrainStatus {
                waiting: count(0),
                waiting_since: row.get(1),
                failed: count(2),
                failures,
                in_review: count(3),
                pull_requests: count(4),
                units_in_review: count(5),
                in_review_since: row.get(6),
                paused: pauses.iter().map(|row| (row.get(0), row.get(1))).collect(),
            })
        })
    }
}

/// How many failed captures the status of a brain has: enough to see what is wrong.
const FAILURES_MAX: i64 = 5;

/// What waits in a brain.
#[derive(Clone, Debug, PartialEq)]
pub struct BrainStatus {
    /// Captures that are worked on or wait for a stage.
    pub waiting: u64,
    /// Since when the oldest of them does.
    pub waiting_since: Option<Timestamp>,
    /// Captures that have failed for good.
    pub failed: u64,
    /// The latest of them, a few at most.
    pub failures: Vec<Capture>,
    /// Branches that wait for a person; captures may share one.
    pub in_review: u64,
    /// Their pull requests.
    pub pull_requests: u64,
    /// Their units.
    pub units_in_review: u64,
    /// Since when the oldest of them waits.
    pub in_review_since: Option<Timestamp>,
    /// Stages that wait for another side, and why.
    pub paused: Vec<(String, String)>,
}

impl TeamLedger {
    /// The ledger of a brain for this server, which holds each claim for `lease`.
    pub fn new(store: TeamStore, brain: BrainId, server: ServerId, lease: Duration) -> Self {
        Self { store, brain, server, lease, held: Arc::default() }
    }

    /// Stores a capture that a laptop hands over, and the audit's line of it: once for each key, however often it is sent.
    /// When this returns, the capture is on disk.
    ///
    /// # Errors
    /// [`Error::Brain`] when the brain was removed; when the ledger cannot be written. It may be stored nevertheless: hand it over again.
    pub fn accept(&self, capture: &NewCapture<'_>) -> Result<Accepted> {
        let accept = || {
            self.store.brain(self.brain).write(|transaction| accept::accept(transaction, self.brain, capture))
        };
        match accept() {
            // The key makes a second time harmless.
            Err(Error::CommitUnknown(_)) => accept(),
            accepted => accepted,
        }
    }

    /// Extends the claims that this ledger has returned and that nobody has settled: each lasts for a lease from now.
    /// To be called each third of a lease. Returns how many there are; claims that were taken over are forgotten.
    ///
    /// # Errors
    /// When the ledger cannot be written.
    pub fn extend_leases(&self) -> Result<usize, queue::Error> {
        let held: Vec<i64> = self.held().iter().copied().collect();
        if held.is_empty() {
            return Ok(0);
        }
        let kept: HashSet<i64> =
            self.write(|transaction| claims::extend(transaction, self.brain, &held, self.lease))?;
        self.held().retain(|token| kept.contains(token) || !held.contains(token));
        Ok(kept.len())
    }

    /// Deletes a capture's record. Its lines become free. What it proposed is forgotten, and what it cost is not.
    ///
    /// # Errors
    /// [`queue::Error::Unknown`] when this brain has no such capture.
    pub fn forget(&self, id: i64) -> Result<(), queue::Error> {
        self.write(|transaction| claims::forget(transaction, self.brain, id))
    }

    fn held(&self) -> MutexGuard<'_, HashSet<i64>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write<T>(&self, work: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T, queue::Error> {
        Ok(self.store.brain(self.brain).write(work)?)
    }

    fn read<T>(&self, work: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T, queue::Error> {
        Ok(self.store.brain(self.brain).read(work)?)
    }

    /// [`write`](Self::write) for what ends a claim. It is no longer held afterwards, nor when it was taken over.
    fn settle<T>(
        &self,
        claim: &Claim,
        work: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T, queue::Error> {
        let settled = self.write(work);
        if matches!(settled, Ok(_) | Err(queue::Error::Stale { .. })) {
            self.held().remove(&claim.token);
        }
        settled
    }

    fn release(&self, stage: Option<Stage>, error: Option<&str>) -> Result<usize, queue::Error> {
        let released =
            self.write(|transaction| claims::release(transaction, self.brain, self.server, stage, error))?;
        let mut held = self.held();
        for token in &released {
            held.remove(token);
        }
        Ok(released.len())
    }
}

type Answer<T> = Result<T, queue::Error>;

impl Ledger for TeamLedger {
    fn claim(&self, stage: Stage, now: Timestamp) -> Answer<Option<Claim>> {
        let claimed = self
            .store
            .brain(self.brain)
            .write(|transaction| claims::claim(transaction, self.brain, self.server, self.lease, stage, now));
        match claimed {
            Ok(claim) => {
                self.held().extend(claim.as_ref().map(|claim| claim.token));
                Ok(claim)
            }
            // Another worker claimed a capture at this stage at the same moment, and one at a time is worked on.
            Err(error) if error.violates("jobs_one_git") || error.violates("jobs_one_delivery") => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn advance(&self, claim: &Claim, next: Stage, result: &[u8]) -> Answer<()> {
        self.settle(claim, |transaction| claims::advance(transaction, self.brain, claim, next, result))
    }

    /// The stamp is not stored: it is about a file on the laptop that read it.
    fn advance_with_lines(
        &self,
        claim: &Claim,
        next: Stage,
        result: &[u8],
        lines: &[String],
        _stamp: Option<&TranscriptStamp>,
    ) -> Answer<Vec<String>> {
        let taken = self.write(|transaction| {
            claims::advance_with_lines(transaction, self.brain, claim, next, result, lines)
        })?;
        if taken.is_empty() {
            self.held().remove(&claim.token);
        }
        Ok(taken)
    }

    fn advance_with_branch(&self, claim: &Claim, next: Stage, result: &[u8], branch: &Branch) -> Answer<()> {
        self.settle(claim, |transaction| {
            claims::advance(transaction, self.brain, claim, next, result)?;
            claims::record_branch(transaction, self.brain, claim.capture.id, branch)
        })
    }

    /// The stamp is not stored: it is about a file on the laptop that read it.
    fn finish_with_transcript(
        &self,
        claim: &Claim,
        finish: &Finish,
        _stamp: Option<&TranscriptStamp>,
        now: Timestamp,
    ) -> Answer<()> {
        self.settle(claim, |transaction| claims::finish(transaction, self.brain, claim, finish, now))
    }

    fn fail(&self, claim: &Claim, error: &str, after: Option<Duration>, now: Timestamp) -> Answer<State> {
        self.settle(claim, |transaction| claims::fail(transaction, self.brain, claim, error, after, now))
    }

    /// Only what this server has claimed.
    fn release_claims(&self, stage: Option<Stage>) -> Answer<usize> {
        self.release(stage, None)
    }

    /// Only what this server has claimed.
    fn release_failed(&self, stage: Stage, error: &str) -> Answer<usize> {
        self.release(Some(stage), Some(error))
    }

    fn retry(&self, id: Option<i64>) -> Answer<usize> {
        self.write(|transaction| claims::retry(transaction, self.brain, id))
    }

    fn is_taken(&self, capture: i64, line: &str) -> Answer<bool> {
        self.read(|transaction| claims::is_taken(transaction, self.brain, capture, line))
    }

    fn save_result(&self, claim: &Claim, result: &[u8], units: &[ProposedUnit]) -> Answer<Vec<String>> {
        self.write(|transaction| proposals::save_result(transaction, self.brain, claim, result, units))
    }

    fn saved_result(&self, id: i64) -> Answer<Option<Vec<u8>>> {
        self.read(|transaction| claims::saved_result(transaction, self.brain, id))
    }

    fn is_name_taken(&self, capture: i64, name: &str) -> Answer<bool> {
        self.read(|transaction| proposals::is_name_taken(transaction, self.brain, capture, name))
    }

    fn proposed_by_others(&self, capture: i64, limit: usize) -> Answer<Vec<EarlierProposal>> {
        self.read(|transaction| proposals::proposed_by_others(transaction, self.brain, capture, limit))
    }

    fn rejected(&self, limit: usize) -> Answer<Vec<EarlierProposal>> {
        self.read(|transaction| decisions::rejected(transaction, self.brain, limit))
    }

    fn pause(&self, claim: &Claim, why: &str, wait: Option<Duration>, now: Timestamp) -> Answer<Timestamp> {
        self.settle(claim, |transaction| pauses::pause(transaction, self.brain, claim, why, wait, now))
    }

    fn resume(&self, stage: Stage) -> Answer<()> {
        self.write(|transaction| pauses::resume(transaction, self.brain, stage))
    }

    fn pauses(&self) -> Answer<Vec<Pause>> {
        self.read(|transaction| pauses::list(transaction, self.brain))
    }

    fn record_push(&self, claim: &Claim, commit: &str) -> Answer<()> {
        self.write(|transaction| delivery::record_push(transaction, self.brain, claim, commit))
    }

    fn record_batch(&self, claim: &Claim, branch: &Branch) -> Answer<()> {
        self.write(|transaction| delivery::record_batch(transaction, self.brain, claim, branch))
    }

    fn record_pull_request(&self, claim: &Claim, pull: &PullRequest) -> Answer<()> {
        self.write(|transaction| delivery::record_pull_request(transaction, self.brain, claim, pull))
    }

    fn set_pull_state(&self, id: i64, commit: Option<&str>, state: PullState) -> Answer<()> {
        self.write(|transaction| delivery::set_pull_state(transaction, self.brain, id, commit, state))
    }

    fn awaiting_decision(&self) -> Answer<Vec<Capture>> {
        self.read(|transaction| delivery::awaiting_decision(transaction, self.brain))
    }

    fn redeliver(&self) -> Answer<usize> {
        self.write(|transaction| delivery::redeliver(transaction, self.brain))
    }

    fn reopen(&self, id: i64, stage: Stage, input: &[u8]) -> Answer<bool> {
        self.write(|transaction| delivery::reopen(transaction, self.brain, id, stage, input))
    }

    fn decisions(&self) -> Answer<Vec<FileDecision>> {
        self.read(|transaction| decisions::list(transaction, self.brain))
    }

    fn decide(&self, branch: &str, paths: &[&str], decision: &Decision, now: Timestamp) -> Answer<()> {
        self.write(|transaction| decisions::decide(transaction, self.brain, branch, paths, decision, now))
    }

    fn forget_decisions(&self, branch: &str, paths: &[&str]) -> Answer<()> {
        self.write(|transaction| decisions::forget(transaction, self.brain, branch, paths))
    }

    fn remember_rejected(
        &self,
        branch: &str,
        unit: &str,
        title: &str,
        because: Option<&str>,
        now: Timestamp,
    ) -> Answer<()> {
        self.write(|transaction| {
            decisions::remember_rejected(transaction, self.brain, branch, unit, title, because, now)
        })
    }

    fn capture(&self, id: i64) -> Answer<Option<Capture>> {
        self.read(|transaction| rows::get(transaction, self.brain, id))
    }

    fn captures(&self, limit: usize) -> Answer<Vec<Capture>> {
        self.read(|transaction| rows::latest(transaction, self.brain, limit))
    }

    fn capture_of_branch(&self, branch: &str) -> Answer<Option<Capture>> {
        self.read(|transaction| rows::of_branch(transaction, self.brain, branch))
    }

    fn reserve_spend(
        &self,
        claim: Option<&Claim>,
        estimate: &CallCost,
        budget: &Budget,
        now: Timestamp,
    ) -> Answer<Reservation> {
        self.write(|transaction| spend::reserve(transaction, self.brain, claim, estimate, budget, now))
    }

    fn settle_spend(&self, reservation: i64, cost: &CallCost) -> Answer<()> {
        self.write(|transaction| spend::settle(transaction, self.brain, reservation, cost))
    }

    fn release_spend(&self, reservation: i64) -> Answer<()> {
        self.write(|transaction| spend::release(transaction, self.brain, reservation))
    }

    fn capture_cost(&self, capture: i64) -> Answer<(u64, bool)> {
        self.read(|transaction| spend::capture_cost(transaction, self.brain, capture))
    }

    fn saved_answer(&self, claim: &Claim, question: &str) -> Answer<Option<Vec<u8>>> {
        self.read(|transaction| spend::saved_answer(transaction, self.brain, claim, question))
    }

    fn save_answer(&self, claim: &Claim, question: &str, body: &[u8]) -> Answer<()> {
        self.write(|transaction| spend::save_answer(transaction, self.brain, claim, question, body))
    }

    fn report(&self, name: &str, body: &str, now: Timestamp) -> Answer<()> {
        self.write(|transaction| stats::report(transaction, self.brain, name, body, now))
    }

    fn last_report(&self, name: &str) -> Answer<Option<(u32, Timestamp, String)>> {
        self.read(|transaction| stats::last_report(transaction, self.brain, name))
    }

    fn tally(&self) -> Answer<Tally> {
        self.read(|transaction| stats::tally(transaction, self.brain))
    }

    fn unfinished(&self) -> Answer<u64> {
        self.read(|transaction| stats::unfinished(transaction, self.brain))
    }

    fn is_due(&self, now: Timestamp) -> Answer<bool> {
        self.read(|transaction| stats::is_due(transaction, self.brain, true, now))
    }

    fn is_claimable(&self, now: Timestamp) -> Answer<bool> {
        self.read(|transaction| stats::is_due(transaction, self.brain, false, now))
    }

    fn next_due(&self) -> Answer<Option<Timestamp>> {
        self.read(|transaction| stats::next_due(transaction, self.brain))
    }

    fn waits_for_delivery(&self, now: Timestamp) -> Answer<bool> {
        self.read(|transaction| stats::waits_for_delivery(transaction, self.brain, now))
    }
}
