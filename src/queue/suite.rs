//! The tests that every implementation of [`Ledger`] passes, whichever database it uses.
//!
//! A crate with an implementation calls [`ledger_suite!`](crate::ledger_suite) in a module of tests, with a function
//! that makes a [`LedgerUnderTest`] of an empty ledger.

// A test that fails panics with what it found.
#![expect(clippy::unwrap_used, clippy::missing_panics_doc, clippy::print_stdout, reason = "these are tests")]

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::{
    ATTEMPTS_MAX, Branch, Budget, CallCost, Capture, Claim, Decision, Error, FileDecision, Finish, Ledger,
    OTHERS_FIRST, PAUSES_OF_ONE, ProposedUnit, PullRequest, PullState, Reservation, Stage, State, Tally,
};

/// An empty ledger, and what a test needs of it beside the trait.
pub trait LedgerUnderTest: Sync {
    /// The ledger.
    fn ledger(&self) -> &dyn Ledger;
    /// Adds a capture of this session that waits at a stage, with an empty input. Returns its number.
    fn add(&self, session: &str, stage: Stage) -> i64;
    /// Deletes a capture's record.
    fn forget(&self, id: i64);
}

/// Makes a test of each function of [`suite`](crate::suite). The argument is a function that returns a
/// [`LedgerUnderTest`](crate::suite::LedgerUnderTest).
#[macro_export]
macro_rules! ledger_suite {
    ($make:expr) => {
        $crate::ledger_suite! { $make;
            each_stage_gets_what_the_previous_one_stored
            a_claim_has_its_token_and_is_running
            a_stale_claim_changes_nothing
            a_job_that_kills_its_process_is_dead_after_five_attempts
            a_job_that_crashes_its_worker_is_dead_with_the_last_crash
            a_dead_capture_goes_on_where_it_failed
            waits_grow_and_the_last_error_is_the_reason
            a_requested_wait_is_no_attempt
            a_retried_capture_counts_as_first_tried_then
            a_clock_that_jumps_back_ten_years_strands_no_retry
            a_line_belongs_to_one_capture
            a_capture_that_does_not_exist_cannot_be_retried
            parallel_workers_claim_each_capture_once
            captures_are_listed_newest_first
            text_with_a_nul_character_is_kept
            a_paused_stage_has_one_probe_and_counts_no_attempt
            a_short_outage_changes_no_order
            captures_that_pause_their_stage_each_time_hold_up_no_other
            other_stages_run_during_a_pause_and_retry_ends_it
            a_pause_set_by_a_jumping_clock_strands_nothing
            a_stale_claim_pauses_nothing
            a_resumed_session_is_read_while_its_branch_is_waiting
            a_session_waits_for_its_earlier_capture
            captures_can_share_a_branch
            the_branch_can_be_made_again_while_its_pull_request_is_open
            a_stale_claim_records_nothing
            branches_from_before_a_remote_are_delivered_by_age
            a_name_belongs_to_one_capture
            what_others_proposed_is_listed_newest_first
            a_rejection_outlives_the_record_of_its_capture
            the_last_decision_about_a_file_counts
            a_call_beyond_the_budget_is_refused
            a_budget_covers_24_hours_and_survives_a_wrong_clock
            parallel_reservations_stay_within_the_budget
            an_answer_is_kept_until_its_capture_ends
            the_last_report_of_a_name_counts
            random_steps_agree_with_the_rules
        }
    };
    ($make:expr; $($name:ident)*) => {
        $(#[test]
        fn $name() {
            if let Some(test) = $make() {
                $crate::suite::$name(&test);
            }
        })*
    };
}

/// The time at which the tests begin.
fn start() -> Timestamp {
    "2026-11-20T14:12:00Z".parse().unwrap()
}

fn claim(test: &dyn LedgerUnderTest, stage: Stage) -> Option<Claim> {
    test.ledger().claim(stage, start()).unwrap()
}

fn capture(test: &dyn LedgerUnderTest, id: i64) -> Capture {
    test.ledger().capture(id).unwrap().unwrap()
}

fn nothing(reason: &str) -> Finish {
    Finish::Nothing { reason: reason.to_owned() }
}

fn finish(test: &dyn LedgerUnderTest, claim: &Claim, finish: &Finish) -> Result<(), Error> {
    test.ledger().finish_with_transcript(claim, finish, None, start())
}

/// Adds a capture whose branch exists and waits for delivery.
fn add_with_branch(test: &dyn LedgerUnderTest, session: &str) -> i64 {
    let id = test.add(session, Stage::Git);
    let claim = claim(test, Stage::Git).unwrap();
    assert_eq!(claim.capture.id, id);
    let branch = Branch { name: format!("nugget/{session}"), commit: "c0".into(), units: 2 };
    test.ledger().advance_with_branch(&claim, Stage::Delivery, b"input", &branch).unwrap();
    id
}

fn finish_delivery(test: &dyn LedgerUnderTest, claim: &Claim) {
    let Capture { branch, commit, units, .. } = claim.capture.clone();
    let branch = Branch { name: branch.unwrap(), commit: commit.unwrap(), units };
    finish(test, claim, &Finish::Done(branch)).unwrap();
}

// Claims.

/// A claim has what the previous stage stored.
pub fn each_stage_gets_what_the_previous_one_stored(test: &dyn LedgerUnderTest) {
    let id = test.add("s1", Stage::Intake);
    let first = claim(test, Stage::Intake).unwrap();
    assert_eq!((first.capture.id, first.capture.attempts, first.input.len()), (id, 1, 0));
    assert!(claim(test, Stage::Intake).is_none());
    test.ledger().advance(&first, Stage::Extraction, b"words").unwrap();
    let second = claim(test, Stage::Extraction).unwrap();
    assert_eq!(second.input, b"words");
    let branch = Branch { name: "nugget/x".into(), commit: "c0".into(), units: 2 };
    finish(test, &second, &Finish::Done(branch)).unwrap();
    let ended = capture(test, id);
    assert_eq!((ended.state, ended.branch.as_deref(), ended.units), (State::Done, Some("nugget/x"), 2));
    assert_eq!((ended.stage, ended.attempts, ended.finished), (Stage::Extraction, 1, Some(start())));
    assert_eq!(test.ledger().tally().unwrap(), Tally { done: 1, ..Tally::default() });
    assert_eq!(test.ledger().saved_result(id).unwrap(), None);
}

/// A claim is what the ledger shows of the capture afterwards.
pub fn a_claim_has_its_token_and_is_running(test: &dyn LedgerUnderTest) {
    let id = test.add("s1", Stage::Intake);
    assert_eq!(capture(test, id).state, State::Queued);
    let first = claim(test, Stage::Intake).unwrap();
    assert_eq!(first.capture, capture(test, id));
    assert_eq!((first.capture.state, first.capture.next_attempt), (State::Running, None));
    assert!(first.capture.started.is_some());
    test.ledger().release_claims(Some(Stage::Git)).unwrap();
    assert_eq!(test.ledger().release_claims(None).unwrap(), 1);
    assert_ne!(claim(test, Stage::Intake).unwrap().token, first.token);
}

/// A claim that was replaced can store nothing.
pub fn a_stale_claim_changes_nothing(test: &dyn LedgerUnderTest) {
    let id = test.add("s1", Stage::Intake);
    let stale = claim(test, Stage::Intake).unwrap();
    assert_eq!(test.ledger().release_claims(Some(Stage::Intake)).unwrap(), 1);
    let current = claim(test, Stage::Intake).unwrap();
    let ledger = test.ledger();
    let branch = Branch { name: "b".into(), commit: "c".into(), units: 1 };
    let pull = PullRequest { number: 1, url: "u".into(), state: PullState::Open };
    assert!(matches!(finish(test, &stale, &nothing("late")), Err(Error::Stale { .. })));
    assert!(matches!(ledger.advance(&stale, Stage::Git, b""), Err(Error::Stale { .. })));
    assert!(matches!(ledger.advance_with_branch(&stale, Stage::Git, b"", &branch), Err(Error::Stale { .. })));
    let lines = ["line".to_owned()];
    let advanced = ledger.advance_with_lines(&stale, Stage::Git, b"", &lines, None);
    assert!(matches!(advanced, Err(Error::Stale { .. })));
    assert!(!ledger.is_taken(id + 1, "line").unwrap(), "a line was taken by a stale claim");
    assert!(matches!(ledger.fail(&stale, "x", None, start()), Err(Error::Stale { .. })));
    assert!(matches!(ledger.save_result(&stale, b"", &[]), Err(Error::Stale { .. })));
    assert!(matches!(ledger.record_push(&stale, "c"), Err(Error::Stale { .. })));
    assert!(matches!(ledger.record_pull_request(&stale, &pull), Err(Error::Stale { .. })));
    assert_eq!(capture(test, id).state, State::Running);
    ledger.advance(&current, Stage::Extraction, b"").unwrap();
    assert!(matches!(ledger.advance(&current, Stage::Git, b""), Err(Error::Stale { .. })));
}

/// Attempts are counted before the work.
pub fn a_job_that_kills_its_process_is_dead_after_five_attempts(test: &dyn LedgerUnderTest) {
    let id = test.add("poison", Stage::Intake);
    test.add("healthy", Stage::Intake);
    for _ in 0..ATTEMPTS_MAX {
        assert_eq!(claim(test, Stage::Intake).unwrap().capture.id, id);
        test.ledger().release_claims(None).unwrap();
    }
    assert_eq!(claim(test, Stage::Intake).unwrap().capture.session_id.as_str(), "healthy");
    let dead = capture(test, id);
    let reason = dead.reason.as_deref();
    assert_eq!((dead.state, reason), (State::Dead, Some("every attempt ended the worker process")));
    assert_eq!(dead.attempts, ATTEMPTS_MAX);
    assert_eq!(test.ledger().retry(Some(id)).unwrap(), 1);
    assert_eq!(capture(test, id).state, State::Queued);
}

/// The crash of a worker is stored as the last error.
pub fn a_job_that_crashes_its_worker_is_dead_with_the_last_crash(test: &dyn LedgerUnderTest) {
    let id = test.add("poison", Stage::Intake);
    for attempt in 1..=ATTEMPTS_MAX {
        claim(test, Stage::Intake).unwrap();
        assert_eq!(test.ledger().release_failed(Stage::Git, "elsewhere").unwrap(), 0);
        assert_eq!(test.ledger().release_failed(Stage::Intake, &format!("panic {attempt}")).unwrap(), 1);
    }
    assert!(claim(test, Stage::Intake).is_none());
    let dead = capture(test, id);
    assert_eq!((dead.state, dead.reason.as_deref()), (State::Dead, Some("panic 5")));
}

/// A retry begins at the stage of the failure, with its input.
pub fn a_dead_capture_goes_on_where_it_failed(test: &dyn LedgerUnderTest) {
    let id = test.add("s", Stage::Intake);
    let ledger = test.ledger();
    ledger.advance(&claim(test, Stage::Intake).unwrap(), Stage::Embedding, b"kept").unwrap();
    let at_embedding = claim(test, Stage::Embedding).unwrap();
    ledger.save_answer(&at_embedding, "q", b"answer").unwrap();
    finish(test, &at_embedding, &Finish::Dead { reason: "no retry helps".into() }).unwrap();
    let dead = capture(test, id);
    assert_eq!(
        (dead.state, dead.stage, dead.reason.as_deref()),
        (State::Dead, Stage::Embedding, Some("no retry helps"))
    );
    assert_eq!(ledger.unfinished().unwrap(), 0);
    assert_eq!(ledger.retry(None).unwrap(), 1);
    let again = claim(test, Stage::Embedding).unwrap();
    assert_eq!((again.input.as_slice(), again.capture.attempts), (&b"kept"[..], 1));
    assert_eq!(ledger.saved_answer(&again, "q").unwrap().as_deref(), Some(&b"answer"[..]));
    assert_eq!(ledger.retry(None).unwrap(), 0);
}

/// Waits double, within their jitter.
pub fn waits_grow_and_the_last_error_is_the_reason(test: &dyn LedgerUnderTest) {
    let id = test.add("s1", Stage::Intake);
    let mut now = start();
    for attempt in 1..=ATTEMPTS_MAX {
        let claim = test.ledger().claim(Stage::Intake, now).unwrap().unwrap();
        let state = test.ledger().fail(&claim, &format!("error {attempt}"), None, now).unwrap();
        if attempt < ATTEMPTS_MAX {
            assert_eq!(state, State::Retrying);
            assert!(test.ledger().claim(Stage::Intake, now).unwrap().is_none(), "claimed before it is due");
            let due = test.ledger().next_due().unwrap().unwrap();
            assert_eq!(capture(test, id).next_attempt, Some(due));
            let wait = due.duration_since(now).as_secs_f64();
            let expected = f64::from(1 << (attempt - 1));
            assert!((expected * 0.49..expected * 1.51).contains(&wait), "attempt {attempt}: {wait} s");
            now = due;
        }
    }
    let ended = capture(test, id);
    assert_eq!((ended.state, ended.reason.as_deref()), (State::Dead, Some("error 5")));
}

/// A wait that the other side asked for counts no attempt.
pub fn a_requested_wait_is_no_attempt(test: &dyn LedgerUnderTest) {
    test.add("s1", Stage::Intake);
    let mut now = start();
    for _ in 0..20 {
        let claim = test.ledger().claim(Stage::Intake, now).unwrap().unwrap();
        assert_eq!(claim.capture.attempts, 1);
        test.ledger().fail(&claim, "429", Some(Duration::from_secs(30)), now).unwrap();
        now = test.ledger().next_due().unwrap().unwrap();
    }
}

/// A time that is too far ahead counts as due.
pub fn a_clock_that_jumps_back_ten_years_strands_no_retry(test: &dyn LedgerUnderTest) {
    test.add("s1", Stage::Intake);
    let claim = claim(test, Stage::Intake).unwrap();
    test.ledger().fail(&claim, "x", None, start()).unwrap();
    let past = "2016-11-20T14:12:00Z".parse().unwrap();
    assert!(test.ledger().is_due(past).unwrap());
    assert!(test.ledger().claim(Stage::Intake, past).unwrap().is_some());
}

/// Of two captures with a common line, the second stores nothing and learns which it is.
pub fn a_line_belongs_to_one_capture(test: &dyn LedgerUnderTest) {
    let lines = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    test.add("original", Stage::Intake);
    test.add("fork", Stage::Intake);
    let original = claim(test, Stage::Intake).unwrap();
    let fork = claim(test, Stage::Intake).unwrap();
    let advance = |claim: &Claim, names: &[&str]| {
        test.ledger().advance_with_lines(claim, Stage::Extraction, b"", &lines(names), None).unwrap()
    };
    assert!(advance(&original, &["a", "b"]).is_empty());
    assert_eq!(advance(&fork, &["b", "c"]), ["b"]);
    assert_eq!(capture(test, fork.capture.id).stage, Stage::Intake);
    assert!(!test.ledger().is_taken(original.capture.id, "c").unwrap(), "taken by a refused capture");
    assert!(test.ledger().is_taken(fork.capture.id, "a").unwrap());
    assert!(!test.ledger().is_taken(original.capture.id, "a").unwrap());
    test.forget(original.capture.id);
    assert!(!test.ledger().is_taken(fork.capture.id, "a").unwrap());
    assert!(advance(&fork, &["b", "c"]).is_empty());
}

/// A person who retries a failed capture has fixed something: it waits as long as a new one.
pub fn a_retried_capture_counts_as_first_tried_then(test: &dyn LedgerUnderTest) {
    let id = test.add("s1", Stage::Intake);
    let first = claim(test, Stage::Intake).unwrap();
    let dead = Finish::Dead { reason: "no key".to_owned() };
    test.ledger().finish_with_transcript(&first, &dead, None, start()).unwrap();
    test.ledger().retry(Some(id)).unwrap();
    let later = start() + jiff::SignedDuration::from_hours(7);
    let second = test.ledger().claim(Stage::Intake, later).unwrap().unwrap();
    assert_eq!((first.capture.started, second.capture.started), (Some(start()), Some(later)));
}

/// A number that no capture has is an error.
pub fn a_capture_that_does_not_exist_cannot_be_retried(test: &dyn LedgerUnderTest) {
    assert!(matches!(test.ledger().retry(Some(7)), Err(Error::Unknown { id: 7 })));
    assert_eq!(test.ledger().capture(7).unwrap(), None);
    assert_eq!(test.ledger().retry(None).unwrap(), 0);
}

/// Eight workers share the captures, and none is worked on twice.
pub fn parallel_workers_claim_each_capture_once(test: &dyn LedgerUnderTest) {
    let added: Vec<i64> = (0..40).map(|number| test.add(&format!("s{number}"), Stage::Embedding)).collect();
    let claimed: Vec<i64> = std::thread::scope(|scope| {
        let work = || {
            let mut ids = Vec::new();
            while let Some(claim) = claim(test, Stage::Embedding) {
                ids.push(claim.capture.id);
                finish(test, &claim, &nothing("done")).unwrap();
            }
            ids
        };
        let workers: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let mut sorted = claimed;
    sorted.sort_unstable();
    assert_eq!(sorted, added);
    assert_eq!(test.ledger().tally().unwrap(), Tally { nothing: 40, ..Tally::default() });
}

/// The list is cut at its limit.
pub fn captures_are_listed_newest_first(test: &dyn LedgerUnderTest) {
    let ids: Vec<i64> = (0..5).map(|number| test.add(&format!("s{number}"), Stage::Intake)).collect();
    let listed: Vec<i64> = test.ledger().captures(3).unwrap().iter().map(|capture| capture.id).collect();
    assert_eq!(listed, [ids[4], ids[3], ids[2]]);
    assert_eq!(test.ledger().unfinished().unwrap(), 5);
}

/// Sessions hold any character; a database may not, and then it keeps another one in its place.
pub fn text_with_a_nul_character_is_kept(test: &dyn LedgerUnderTest) {
    let id = test.add("s", Stage::Indexing);
    let first = claim(test, Stage::Indexing).unwrap();
    let unit = ProposedUnit {
        name: "u".into(),
        is_new: true,
        title: "T\0itle".into(),
        model: "m".into(),
        evidence: vec![("line".into(), "before\0after".into())],
        ..ProposedUnit::default()
    };
    assert!(test.ledger().save_result(&first, b"\0", &[unit]).unwrap().is_empty());
    assert_eq!(test.ledger().saved_result(id).unwrap().as_deref(), Some(&b"\0"[..]));
    test.ledger().report("r", "a\0b", start()).unwrap();
    test.ledger().fail(&first, "bad \0 byte", None, start()).unwrap();
    let reason = capture(test, id).reason.unwrap();
    assert!(reason.starts_with("bad ") && reason.ends_with(" byte"), "{reason:?}");
}

// Pauses.

/// During a pause one capture probes, and the others are not touched.
pub fn a_paused_stage_has_one_probe_and_counts_no_attempt(test: &dyn LedgerUnderTest) {
    let ids: Vec<i64> = (0..40).map(|number| add_with_branch(test, &format!("s{number}"))).collect();
    let ledger = test.ledger();
    let mut now = start();
    let mut waits = Vec::new();
    for round in 0..20_usize {
        let claim = ledger.claim(Stage::Delivery, now).unwrap().unwrap();
        // First the oldest, then each once.
        assert_eq!(claim.capture.id, ids[(round + 1).saturating_sub(PAUSES_OF_ONE as usize)]);
        let until = ledger.pause(&claim, "offline", None, now).unwrap();
        assert!(ledger.claim(Stage::Delivery, now).unwrap().is_none());
        assert!(!ledger.is_due(now).unwrap());
        assert!(!ledger.is_claimable(now).unwrap());
        assert!(ledger.waits_for_delivery(now).unwrap());
        assert_eq!(ledger.next_due().unwrap(), Some(until));
        waits.push(until.duration_since(now).as_secs());
        now = until;
        assert!(ledger.is_due(now).unwrap());
    }
    assert_eq!(waits[..9], [5, 10, 20, 40, 80, 160, 320, 640, 900]);
    assert_eq!(waits[19], 900);
    let first = capture(test, ids[0]);
    assert_eq!((first.state, first.attempts, first.reason.as_deref()), (State::Retrying, 1, Some("offline")));
    assert_eq!(capture(test, ids[17]).attempts, 0);
    let pause = ledger.pauses().unwrap().remove(0);
    assert_eq!((pause.stage, pause.times, pause.why.as_str()), (Stage::Delivery, 20, "offline"));
    assert_eq!((pause.since, pause.until), (start(), now));
    // The other side answers: all go on, those first that have not failed.
    for id in &ids[17..] {
        let claim = ledger.claim(Stage::Delivery, now).unwrap().unwrap();
        assert_eq!(claim.capture.id, *id);
        ledger.resume(Stage::Delivery).unwrap();
        assert_eq!(ledger.pauses().unwrap(), []);
        finish_delivery(test, &claim);
    }
    assert!(ledger.claim(Stage::Delivery, now).unwrap().is_none());
    assert_eq!(ledger.claim(Stage::Delivery, now + OTHERS_FIRST).unwrap().unwrap().capture.id, ids[0]);
}

/// After a short row of pauses all go on, the oldest first.
pub fn a_short_outage_changes_no_order(test: &dyn LedgerUnderTest) {
    let ids: Vec<i64> = (0..3).map(|number| add_with_branch(test, &format!("s{number}"))).collect();
    let ledger = test.ledger();
    let mut now = start();
    for _ in 0..PAUSES_OF_ONE - 1 {
        let claim = ledger.claim(Stage::Delivery, now).unwrap().unwrap();
        assert_eq!(claim.capture.id, ids[0]);
        now = ledger.pause(&claim, "offline", None, now).unwrap();
    }
    for id in ids {
        let claim = ledger.claim(Stage::Delivery, now).unwrap().unwrap();
        ledger.resume(Stage::Delivery).unwrap();
        assert_eq!(claim.capture.id, id);
        finish_delivery(test, &claim);
    }
}

/// Captures that pause their stage whenever they are tried hold up no other for long.
pub fn captures_that_pause_their_stage_each_time_hold_up_no_other(test: &dyn LedgerUnderTest) {
    let bad: Vec<i64> = (0..5).map(|number| add_with_branch(test, &format!("bad{number}"))).collect();
    let good: Vec<i64> = (0..9).map(|number| add_with_branch(test, &format!("good{number}"))).collect();
    let ledger = test.ledger();
    let mut now = start();
    let (mut finished, mut pauses) = (Vec::new(), 0);
    while finished.len() < good.len() {
        let claim = ledger.claim(Stage::Delivery, now).unwrap().unwrap();
        if bad.contains(&claim.capture.id) {
            pauses += 1;
            assert!(pauses <= 8, "{finished:?}");
            now = ledger.pause(&claim, "the connection was reset", None, now).unwrap();
        } else {
            ledger.resume(Stage::Delivery).unwrap();
            finish_delivery(test, &claim);
            finished.push(claim.capture.id);
        }
    }
    assert_eq!(finished, good);
}

/// A pause is of one stage, and a person can end it.
pub fn other_stages_run_during_a_pause_and_retry_ends_it(test: &dyn LedgerUnderTest) {
    let id = add_with_branch(test, "s1");
    let first = claim(test, Stage::Delivery).unwrap();
    test.ledger().pause(&first, "401", Some(Duration::from_secs(600)), start()).unwrap();
    test.add("s2", Stage::Intake);
    assert!(test.ledger().is_due(start()).unwrap());
    assert!(!test.ledger().waits_for_delivery(start()).unwrap());
    assert!(claim(test, Stage::Intake).is_some());
    test.ledger().retry(Some(id)).unwrap();
    assert_eq!(claim(test, Stage::Delivery).unwrap().capture.id, id);
}

/// A pause that ends too far ahead is ignored.
pub fn a_pause_set_by_a_jumping_clock_strands_nothing(test: &dyn LedgerUnderTest) {
    add_with_branch(test, "s1");
    let first = claim(test, Stage::Delivery).unwrap();
    test.ledger().pause(&first, "offline", None, start()).unwrap();
    let past = "2016-11-20T14:12:00Z".parse().unwrap();
    assert!(test.ledger().is_due(past).unwrap());
    assert!(test.ledger().claim(Stage::Delivery, past).unwrap().is_some());
}

/// A claim that was replaced cannot pause its stage.
pub fn a_stale_claim_pauses_nothing(test: &dyn LedgerUnderTest) {
    add_with_branch(test, "s1");
    let stale = claim(test, Stage::Delivery).unwrap();
    test.ledger().release_claims(Some(Stage::Delivery)).unwrap();
    claim(test, Stage::Delivery).unwrap();
    assert!(matches!(test.ledger().pause(&stale, "x", None, start()), Err(Error::Stale { .. })));
    assert_eq!(test.ledger().pauses().unwrap(), []);
}

/// A capture that waits for delivery holds no other of its session up.
pub fn a_resumed_session_is_read_while_its_branch_is_waiting(test: &dyn LedgerUnderTest) {
    add_with_branch(test, "s");
    let first = claim(test, Stage::Delivery).unwrap();
    test.ledger().pause(&first, "offline", None, start()).unwrap();
    let second = test.add("s", Stage::Intake);
    assert_eq!(claim(test, Stage::Intake).unwrap().capture.id, second);
}

/// At intake a session's captures are worked on in their order.
pub fn a_session_waits_for_its_earlier_capture(test: &dyn LedgerUnderTest) {
    test.add("s", Stage::Embedding);
    let second = test.add("s", Stage::Intake);
    let other = test.add("other", Stage::Intake);
    assert_eq!(claim(test, Stage::Intake).unwrap().capture.id, other);
    assert!(claim(test, Stage::Intake).is_none(), "the session's first capture is not proposed yet");
    let first = claim(test, Stage::Embedding).unwrap();
    assert!(!test.ledger().is_claimable(start()).unwrap(), "a worker is woken for nothing");
    finish(test, &first, &nothing("empty")).unwrap();
    assert!(test.ledger().is_claimable(start()).unwrap());
    assert_eq!(claim(test, Stage::Intake).unwrap().capture.id, second);
}

// Delivery.

/// Captures that are delivered together have one branch, and each its own commit there.
pub fn captures_can_share_a_branch(test: &dyn LedgerUnderTest) {
    let ledger = test.ledger();
    let ids = ["s1", "s2"].map(|session| {
        let id = add_with_branch(test, session);
        let claimed = claim(test, Stage::Delivery).unwrap();
        let shared =
            Branch { name: "nugget/batch-1".into(), commit: format!("commit of {session}"), units: 3 };
        ledger.record_batch(&claimed, &shared).unwrap();
        finish(test, &claimed, &Finish::Done(shared)).unwrap();
        let late = Branch { name: "nugget/batch-2".into(), commit: "late".into(), units: 1 };
        let late = ledger.record_batch(&claimed, &late);
        assert!(matches!(late, Err(Error::Stale { .. })), "{late:?}");
        id
    });
    for (id, session) in ids.into_iter().zip(["s1", "s2"]) {
        let ended = capture(test, id);
        let commit = format!("commit of {session}");
        assert_eq!((ended.commit.as_ref(), ended.pushed.as_ref()), (Some(&commit), Some(&commit)));
        assert_eq!((ended.branch.as_deref(), ended.units), (Some("nugget/batch-1"), 3));
    }
    assert_eq!(ledger.capture_of_branch("nugget/batch-1").unwrap().unwrap().id, ids[1]);
    assert_eq!(ledger.awaiting_decision().unwrap().len(), 2);
}

/// What a branch is made from is kept until its pull request is decided.
pub fn the_branch_can_be_made_again_while_its_pull_request_is_open(test: &dyn LedgerUnderTest) {
    let id = add_with_branch(test, "s1");
    let ledger = test.ledger();
    let first = claim(test, Stage::Delivery).unwrap();
    assert_eq!((first.input.as_slice(), first.capture.branch.as_deref()), (&b"input"[..], Some("nugget/s1")));
    ledger.record_push(&first, "c0").unwrap();
    let pull = PullRequest { number: 7, url: "https://example.org/7".into(), state: PullState::Open };
    ledger.record_pull_request(&first, &pull).unwrap();
    finish_delivery(test, &first);
    let ended = capture(test, id);
    assert_eq!(
        (ended.state, ended.pushed.as_deref(), ended.pull_number, ended.pull_state),
        (State::Done, Some("c0"), Some(7), Some(PullState::Open))
    );
    assert_eq!(ledger.saved_result(id).unwrap().as_deref(), Some(&b"input"[..]));
    assert_eq!(ledger.capture_of_branch("nugget/s1").unwrap(), Some(ended.clone()));
    assert_eq!(ledger.awaiting_decision().unwrap(), [ended]);

    assert!(ledger.reopen(id, Stage::Git, b"again").unwrap());
    assert!(!ledger.reopen(id, Stage::Git, b"again").unwrap(), "reopened while it is worked on");
    assert_eq!(ledger.awaiting_decision().unwrap(), []);
    let second = claim(test, Stage::Git).unwrap();
    assert_eq!(second.input, b"again");
    finish_delivery(test, &second);
    assert!(ledger.saved_result(id).unwrap().is_some());
    ledger.set_pull_state(id, Some("another commit"), PullState::Merged).unwrap();
    assert_eq!(
        ledger.capture(id).unwrap().unwrap().pull_state,
        Some(PullState::Open),
        "the branch has grown"
    );
    ledger.set_pull_state(id, None, PullState::Merged).unwrap();
    assert_eq!(ledger.saved_result(id).unwrap(), None);
    assert!(!ledger.reopen(id, Stage::Git, b"again").unwrap());
    assert_eq!(ledger.awaiting_decision().unwrap(), []);
}

/// A claim that was replaced cannot record a push.
pub fn a_stale_claim_records_nothing(test: &dyn LedgerUnderTest) {
    let id = add_with_branch(test, "s1");
    let stale = claim(test, Stage::Delivery).unwrap();
    test.ledger().release_claims(Some(Stage::Delivery)).unwrap();
    claim(test, Stage::Delivery).unwrap();
    assert!(matches!(test.ledger().record_push(&stale, "c"), Err(Error::Stale { .. })));
    assert_eq!(capture(test, id).pushed, None);
}

/// Branches that were made without a remote are queued again, once.
pub fn branches_from_before_a_remote_are_delivered_by_age(test: &dyn LedgerUnderTest) {
    let ids: Vec<i64> = ["s1", "s2"].map(|session| add_with_branch(test, session)).into();
    for _ in 0..2 {
        finish_delivery(test, &claim(test, Stage::Delivery).unwrap());
    }
    assert_eq!(test.ledger().redeliver().unwrap(), 2);
    assert_eq!(test.ledger().redeliver().unwrap(), 0);
    for id in ids {
        let again = claim(test, Stage::Delivery).unwrap();
        assert_eq!((again.capture.id, again.capture.attempts), (id, 1));
        test.ledger().record_push(&again, "c").unwrap();
        finish_delivery(test, &again);
    }
    assert_eq!(test.ledger().redeliver().unwrap(), 0);
    assert_eq!(test.ledger().awaiting_decision().unwrap().len(), 2);
}

// Proposals and decisions.

fn new_unit(name: &str, title: &str, vector: &[f32]) -> ProposedUnit {
    ProposedUnit {
        name: name.into(),
        is_new: true,
        title: title.into(),
        model: "m".into(),
        vector: vector.to_vec(),
        ..ProposedUnit::default()
    }
}

/// Of two captures that give a unit the same name, the second stores nothing and learns which it is.
pub fn a_name_belongs_to_one_capture(test: &dyn LedgerUnderTest) {
    let ids = ["s1", "s2"].map(|session| test.add(session, Stage::Indexing));
    let (first, second) = (claim(test, Stage::Indexing).unwrap(), claim(test, Stage::Indexing).unwrap());
    let ledger = test.ledger();
    let save = |claim: &Claim, names: &[&str]| {
        let units: Vec<_> = names.iter().map(|name| new_unit(name, name, &[1.0])).collect();
        ledger.save_result(claim, b"plan", &units).unwrap()
    };
    assert!(save(&first, &["pools", "waits"]).is_empty());
    assert_eq!(save(&second, &["locks", "waits", "pools"]), ["waits", "pools"]);
    assert_eq!(ledger.saved_result(ids[1]).unwrap().unwrap_or_default(), b"");
    assert!(!ledger.is_name_taken(ids[0], "locks").unwrap(), "taken by a refused capture");
    // The same capture may decide again, and what it no longer proposes is free.
    assert!(save(&first, &["pools"]).is_empty());
    assert!(
        ledger.is_name_taken(ids[1], "pools").unwrap() && !ledger.is_name_taken(ids[0], "pools").unwrap()
    );
    assert!(save(&second, &["locks", "waits"]).is_empty());
}

/// A capture's own proposals are not among them.
pub fn what_others_proposed_is_listed_newest_first(test: &dyn LedgerUnderTest) {
    let ids = ["s1", "s2", "s3"].map(|session| test.add(session, Stage::Indexing));
    for id in ids {
        let claim = claim(test, Stage::Indexing).unwrap();
        let units =
            [new_unit(&format!("b-{id}"), "B", &[0.25, -1.5]), new_unit(&format!("a-{id}"), "A", &[])];
        let edited = ProposedUnit {
            name: "known".into(),
            evidence: vec![("l".into(), "e".into())],
            ..ProposedUnit::default()
        };
        let units = [&units[..], &[edited.clone(), edited]].concat();
        assert!(test.ledger().save_result(&claim, b"", &units).unwrap().is_empty());
    }
    let others = test.ledger().proposed_by_others(ids[1], 3).unwrap();
    let names: Vec<_> = others.iter().map(|unit| unit.name.clone()).collect();
    assert_eq!(names, [format!("a-{}", ids[2]), format!("b-{}", ids[2]), format!("a-{}", ids[0])]);
    assert_eq!((others[1].vector.as_slice(), others[1].is_rejected), (&[0.25, -1.5][..], false));
    // What was merged takes no place from what waits or was closed.
    test.ledger().set_pull_state(ids[2], None, PullState::Merged).unwrap();
    let others = test.ledger().proposed_by_others(ids[1], 3).unwrap();
    let names: Vec<_> = others.iter().map(|unit| unit.name.clone()).collect();
    assert_eq!(names, [format!("a-{}", ids[0]), format!("b-{}", ids[0]), format!("a-{}", ids[2])]);
}

/// What was rejected is known after its capture's record is deleted.
pub fn a_rejection_outlives_the_record_of_its_capture(test: &dyn LedgerUnderTest) {
    let id = add_with_branch(test, "s1");
    let first = claim(test, Stage::Delivery).unwrap();
    let vector = vec![0.5, -0.5];
    let edited = ProposedUnit {
        name: "known".into(),
        model: "m".into(),
        additions: vec![("One more".into(), vector.clone()), ("And one".into(), vector.clone())],
        ..ProposedUnit::default()
    };
    let units = [new_unit("pools", "Bound pools", &vector), edited];
    let ledger = test.ledger();
    assert!(ledger.save_result(&first, b"", &units).unwrap().is_empty());
    finish_delivery(test, &first);
    assert_eq!(ledger.capture_of_branch("nugget/s1").unwrap().unwrap().id, id);
    for (unit, title) in [("pools", "Bound pools"), ("known", "Known"), ("written", "By hand")] {
        ledger.remember_rejected("nugget/s1", unit, title, Some("no"), start()).unwrap();
        ledger.remember_rejected("nugget/s1", unit, title, Some("no"), start()).unwrap();
    }
    test.forget(id);
    assert_eq!(ledger.capture(id).unwrap(), None);
    let rejected = ledger.rejected(9).unwrap();
    let rows: Vec<_> = rejected
        .iter()
        .map(|unit| (unit.name.as_str(), unit.title.as_str(), unit.vector.len(), unit.is_rejected))
        .collect();
    assert_eq!(
        rows,
        [
            ("known", "And one", 2, true),
            ("known", "One more", 2, true),
            ("pools", "Bound pools", 2, true),
            ("written", "By hand", 0, true)
        ]
    );
    assert_eq!(rejected[2].vector, vector);
}

/// A later decision replaces an earlier one.
pub fn the_last_decision_about_a_file_counts(test: &dyn LedgerUnderTest) {
    let ledger = test.ledger();
    let until = start() + jiff::SignedDuration::from_hours(5);
    ledger.decide("nugget/s1", &["a.md", "b.md"], &Decision::Later { until }, start()).unwrap();
    let because = Some("it is wrong".to_owned());
    let rejected = Decision::Rejected { because };
    ledger.decide("nugget/s1", &["a.md"], &rejected, start()).unwrap();
    ledger.decide("nugget/s0", &["z.md"], &Decision::Merged, start()).unwrap();
    let of = |branch: &str, path: &str, decision| FileDecision {
        branch: branch.into(),
        path: path.into(),
        decision,
    };
    assert_eq!(
        ledger.decisions().unwrap(),
        [
            of("nugget/s0", "z.md", Decision::Merged),
            of("nugget/s1", "a.md", rejected),
            of("nugget/s1", "b.md", Decision::Later { until })
        ]
    );
    ledger.forget_decisions("nugget/s1", &["a.md", "z.md"]).unwrap();
    let left: Vec<_> = ledger.decisions().unwrap().into_iter().map(|decision| decision.path).collect();
    assert_eq!(left, ["z.md", "b.md"]);
}

// Spend.

const BUDGET: Budget = Budget { tokens: 100, microdollars: 1_000 };

fn call(tokens: u64) -> CallCost {
    CallCost {
        model: "m".into(),
        backend: "claude-api".into(),
        input_tokens: tokens,
        microdollars: tokens * 2,
        ..CallCost::default()
    }
}

fn reserve(test: &dyn LedgerUnderTest, tokens: u64, now: Timestamp) -> Reservation {
    test.ledger().reserve_spend(None, &call(tokens), &BUDGET, now).unwrap()
}

/// A call counts at its estimate until its cost is known.
pub fn a_call_beyond_the_budget_is_refused(test: &dyn LedgerUnderTest) {
    let ledger = test.ledger();
    let id = test.add("s", Stage::Extraction);
    let claim = claim(test, Stage::Extraction).unwrap();
    let granted = ledger.reserve_spend(Some(&claim), &call(60), &BUDGET, start()).unwrap();
    let Reservation::Granted(first) = granted else { panic!("60 of 100 tokens were refused") };
    assert_eq!(ledger.capture_cost(id).unwrap(), (120, true));
    assert_eq!(reserve(test, 41, start()), Reservation::OverBudget { tokens: 60, microdollars: 120 });
    ledger.settle_spend(first, &call(30)).unwrap();
    assert_eq!(ledger.capture_cost(id).unwrap(), (60, false));
    let Reservation::Granted(second) = reserve(test, 70, start()) else {
        panic!("70 of 70 tokens were refused")
    };
    assert!(matches!(reserve(test, 1, start()), Reservation::OverBudget { .. }));
    ledger.release_spend(second).unwrap();
    let dollars = Budget { tokens: 1_000_000, microdollars: 61 };
    let refused = ledger.reserve_spend(None, &call(1), &dollars, start()).unwrap();
    assert_eq!(refused, Reservation::OverBudget { tokens: 30, microdollars: 60 });
}

/// What was spent longer ago, or by a clock that was ahead, does not count.
pub fn a_budget_covers_24_hours_and_survives_a_wrong_clock(test: &dyn LedgerUnderTest) {
    let later = |hours: i64| start() + jiff::SignedDuration::from_hours(hours);
    assert!(matches!(reserve(test, 100, start()), Reservation::Granted(_)));
    assert!(matches!(reserve(test, 1, later(23)), Reservation::OverBudget { .. }));
    assert!(matches!(reserve(test, 1, later(25)), Reservation::Granted(_)));
    let past = "1999-01-01T00:00:00Z".parse().unwrap();
    assert!(matches!(reserve(test, 100, past), Reservation::Granted(_)));
}

/// Two calls never use the same part of the budget.
pub fn parallel_reservations_stay_within_the_budget(test: &dyn LedgerUnderTest) {
    let granted: usize = std::thread::scope(|scope| {
        let work =
            || (0..10).filter(|_| matches!(reserve(test, 7, start()), Reservation::Granted(_))).count();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(granted, 14, "98 of 100");
}

/// No attempt pays for the same answer again.
pub fn an_answer_is_kept_until_its_capture_ends(test: &dyn LedgerUnderTest) {
    test.add("s", Stage::Intake);
    let claim = claim(test, Stage::Intake).unwrap();
    let ledger = test.ledger();
    ledger.save_answer(&claim, "q", b"one").unwrap();
    ledger.save_answer(&claim, "q", b"two").unwrap();
    assert_eq!(ledger.saved_answer(&claim, "q").unwrap().as_deref(), Some(&b"two"[..]));
    assert_eq!(ledger.saved_answer(&claim, "other").unwrap(), None);
    finish(test, &claim, &nothing("r")).unwrap();
    assert_eq!(ledger.saved_answer(&claim, "q").unwrap(), None);
}

/// A report has its process and its time.
pub fn the_last_report_of_a_name_counts(test: &dyn LedgerUnderTest) {
    let ledger = test.ledger();
    assert_eq!(ledger.last_report("sync").unwrap(), None);
    let later = start() + Duration::from_secs(1);
    ledger.report("sync", "one", start()).unwrap();
    ledger.report("sync", "two", later).unwrap();
    assert_eq!(ledger.last_report("sync").unwrap(), Some((std::process::id(), later, "two".to_owned())));
}

// The rules as a model.

/// What the model knows of a capture.
#[derive(Clone, Debug, PartialEq)]
struct Expected {
    stage: Stage,
    state: State,
    input: Vec<u8>,
}

/// 400 random claims, advances, releases and ends leave the ledger as a model of the rules says.
pub fn random_steps_agree_with_the_rules(test: &dyn LedgerUnderTest) {
    const STAGES: [Stage; 3] = [Stage::Extraction, Stage::Embedding, Stage::Indexing];
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut expected: HashMap<i64, Expected> = HashMap::new();
    let mut claims: Vec<Claim> = Vec::new();
    for step in 0..400_u32 {
        let stage = STAGES[random.usize(..STAGES.len())];
        match random.u8(..6) {
            0 => {
                let id = test.add(&format!("s{step}"), stage);
                expected.insert(id, Expected { stage, state: State::Queued, input: Vec::new() });
            }
            1 | 2 => {
                let waiting = |state| matches!(state, State::Queued | State::Retrying);
                let oldest = expected.iter().filter(|(_, each)| each.stage == stage && waiting(each.state));
                let oldest = oldest.map(|(id, _)| *id).min();
                let claimed = claim(test, stage);
                assert_eq!(claimed.as_ref().map(|claim| claim.capture.id), oldest, "step {step}");
                if let Some(claimed) = claimed {
                    let of_model = expected.get_mut(&claimed.capture.id).unwrap();
                    of_model.state = State::Running;
                    assert_eq!(claimed.input, of_model.input, "step {step}");
                    claims.push(claimed);
                }
            }
            3 if !claims.is_empty() => {
                let claim = claims.swap_remove(random.usize(..claims.len()));
                let of_model = expected.get_mut(&claim.capture.id).unwrap();
                let input = step.to_le_bytes();
                test.ledger().advance(&claim, stage, &input).unwrap();
                *of_model = Expected { stage, state: State::Queued, input: input.to_vec() };
            }
            4 if !claims.is_empty() => {
                let claim = claims.swap_remove(random.usize(..claims.len()));
                finish(test, &claim, &nothing("model")).unwrap();
                expected.get_mut(&claim.capture.id).unwrap().state = State::Nothing;
            }
            5 if !claims.is_empty() => {
                // A wait that is over at once, and counts no attempt.
                let claim = claims.swap_remove(random.usize(..claims.len()));
                test.ledger().fail(&claim, "again", Some(Duration::ZERO), start()).unwrap();
                expected.get_mut(&claim.capture.id).unwrap().state = State::Queued;
            }
            _ => {}
        }
    }
    for (id, of_model) in &expected {
        let found = capture(test, *id);
        assert_eq!((found.stage, found.state), (of_model.stage, of_model.state), "capture {id}");
    }
    let unfinished = expected.values().filter(|each| !each.state.is_final()).count();
    assert_eq!(test.ledger().unfinished().unwrap(), unfinished as u64);
}
