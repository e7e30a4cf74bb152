//! What the stages of a capture need of the queue, whichever database holds it.

use std::fmt::Debug;
use std::time::Duration;

use jiff::Timestamp;

use crate::{
    Branch, Budget, CallCost, Capture, Claim, Decision, EarlierProposal, Error, FileDecision, Finish, Pause,
    ProposedUnit, PullRequest, PullState, Queue, Reservation, Stage, State, Tally, TranscriptStamp,
};

/// Declares the trait and implements it for [`Queue`] by its own methods, which have the documentation.
macro_rules! ledger {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {
        /// The captures of one brain, and where each of them is in its stages.
        ///
        /// Work exists only as rows: a stage claims a capture, and leaves it in the transaction that stores the stage's
        /// result. A claim that another one has replaced changes nothing any more ([`Error::Stale`]).
        ///
        /// # Errors
        /// Each method fails when the database cannot be read or written.
        #[expect(clippy::missing_errors_doc, reason = "those of the trait")]
        pub trait Ledger: Debug + Send + Sync {
            $($(#[$doc])* fn $name(&self, $($argument: $type),*) -> Result<$result, Error>;)*
        }

        impl Ledger for Queue {
            $(fn $name(&self, $($argument: $type),*) -> Result<$result, Error> {
                Queue::$name(self, $($argument),*)
            })*
        }
    };
}

ledger! {
    /// See [`Queue::claim`].
    fn claim(stage: Stage, now: Timestamp) -> Option<Claim>;
    /// See [`Queue::advance`].
    fn advance(claim: &Claim, next: Stage, result: &[u8]) -> ();
    /// See [`Queue::advance_with_lines`].
    fn advance_with_lines(
        claim: &Claim,
        next: Stage,
        result: &[u8],
        lines: &[String],
        stamp: Option<&TranscriptStamp>,
    ) -> Vec<String>;
    /// See [`Queue::advance_with_branch`].
    fn advance_with_branch(claim: &Claim, next: Stage, result: &[u8], branch: &Branch) -> ();
    /// See [`Queue::finish_with_transcript`].
    fn finish_with_transcript(
        claim: &Claim,
        finish: &Finish,
        stamp: Option<&TranscriptStamp>,
        now: Timestamp,
    ) -> ();
    /// See [`Queue::fail`].
    fn fail(claim: &Claim, error: &str, after: Option<Duration>, now: Timestamp) -> State;
    /// See [`Queue::release_claims`].
    fn release_claims(stage: Option<Stage>) -> usize;
    /// See [`Queue::release_failed`].
    fn release_failed(stage: Stage, error: &str) -> usize;
    /// See [`Queue::retry`].
    fn retry(id: Option<i64>) -> usize;
    /// See [`Queue::is_taken`].
    fn is_taken(capture: i64, line: &str) -> bool;
    /// See [`Queue::save_result`].
    fn save_result(claim: &Claim, result: &[u8], units: &[ProposedUnit]) -> Vec<String>;
    /// See [`Queue::saved_result`].
    fn saved_result(id: i64) -> Option<Vec<u8>>;
    /// See [`Queue::is_name_taken`].
    fn is_name_taken(capture: i64, name: &str) -> bool;
    /// See [`Queue::proposed_by_others`].
    fn proposed_by_others(capture: i64, limit: usize) -> Vec<EarlierProposal>;
    /// See [`Queue::rejected`].
    fn rejected(limit: usize) -> Vec<EarlierProposal>;
    /// See [`Queue::pause`].
    fn pause(claim: &Claim, why: &str, wait: Option<Duration>, now: Timestamp) -> Timestamp;
    /// See [`Queue::resume`].
    fn resume(stage: Stage) -> ();
    /// See [`Queue::pauses`].
    fn pauses() -> Vec<Pause>;
    /// See [`Queue::record_push`].
    fn record_push(claim: &Claim, commit: &str) -> ();
    /// See [`Queue::record_batch`].
    fn record_batch(claim: &Claim, branch: &Branch) -> ();
    /// See [`Queue::record_pull_request`].
    fn record_pull_request(claim: &Claim, pull: &PullRequest) -> ();
    /// See [`Queue::set_pull_state`].
    fn set_pull_state(id: i64, commit: Option<&str>, state: PullState) -> ();
    /// See [`Queue::awaiting_decision`].
    fn awaiting_decision() -> Vec<Capture>;
    /// See [`Queue::redeliver`].
    fn redeliver() -> usize;
    /// See [`Queue::reopen`].
    fn reopen(id: i64, stage: Stage, input: &[u8]) -> bool;
    /// See [`Queue::decisions`].
    fn decisions() -> Vec<FileDecision>;
    /// See [`Queue::decide`].
    fn decide(branch: &str, paths: &[&str], decision: &Decision, now: Timestamp) -> ();
    /// See [`Queue::forget_decisions`].
    fn forget_decisions(branch: &str, paths: &[&str]) -> ();
    /// See [`Queue::remember_rejected`].
    fn remember_rejected(branch: &str, unit: &str, title: &str, because: Option<&str>, now: Timestamp) -> ();
    /// See [`Queue::capture`].
    fn capture(id: i64) -> Option<Capture>;
    /// See [`Queue::captures`].
    fn captures(limit: usize) -> Vec<Capture>;
    /// See [`Queue::capture_of_branch`].
    fn capture_of_branch(branch: &str) -> Option<Capture>;
    /// See [`Queue::reserve_spend`].
    fn reserve_spend(
        claim: Option<&Claim>,
        estimate: &CallCost,
        budget: &Budget,
        now: Timestamp,
    ) -> Reservation;
    /// See [`Queue::settle_spend`].
    fn settle_spend(reservation: i64, cost: &CallCost) -> ();
    /// See [`Queue::release_spend`].
    fn release_spend(reservation: i64) -> ();
    /// See [`Queue::capture_cost`].
    fn capture_cost(capture: i64) -> (u64, bool);
    /// See [`Queue::saved_answer`].
    fn saved_answer(claim: &Claim, question: &str) -> Option<Vec<u8>>;
    /// See [`Queue::save_answer`].
    fn save_answer(claim: &Claim, question: &str, body: &[u8]) -> ();
    /// See [`Queue::report`].
    fn report(name: &str, body: &str, now: Timestamp) -> ();
    /// See [`Queue::last_report`].
    fn last_report(name: &str) -> Option<(u32, Timestamp, String)>;
    /// See [`Queue::tally`].
    fn tally() -> Tally;
    /// See [`Queue::unfinished`].
    fn unfinished() -> u64;
    /// See [`Queue::is_due`].
    fn is_due(now: Timestamp) -> bool;
    /// See [`Queue::is_claimable`].
    fn is_claimable(now: Timestamp) -> bool;
    /// See [`Queue::next_due`].
    fn next_due() -> Option<Timestamp>;
    /// See [`Queue::waits_for_delivery`].
    fn waits_for_delivery(now: Timestamp) -> bool;
}
