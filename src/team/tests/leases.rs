//! Claims of several servers: leases, take-overs, fences, and what each brain gets.

use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use queue::{Error, Finish, Ledger as _, ProposedUnit, Stage, State};
use team::{BrainId, TAKEOVERS_MAX};

use crate::support::{LEASE, TeamUnderTest, accept, accept_lines, create_brain};

fn now() -> Timestamp {
    "2026-11-20T14:12:00Z".parse().unwrap()
}

fn nothing() -> Finish {
    Finish::Nothing { reason: "empty".into() }
}

/// Calls until there is a result, for at most ten seconds.
fn until<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        if let Some(value) = poll() {
            return value;
        }
        std::thread::yield_now();
    }
    panic!("did not happen in time: {what}");
}

#[test]
fn a_lease_that_ends_is_taken_over_and_the_late_writer_refused() {
    let Some(test) = TeamUnderTest::new() else { return };
    let lease = Duration::from_millis(300);
    let (slow, other) = (test.other_server(lease), &test.ledger);
    let id = accept(other, "s", 1).id;
    let begun = Instant::now();
    let late = slow.claim(Stage::Extraction, now()).unwrap().unwrap();
    assert!(other.claim(Stage::Extraction, now()).unwrap().is_none());
    until("the lease ends", || (test.store.reap_expired().unwrap() == 1).then_some(()));
    assert!(begun.elapsed() >= lease, "taken over before the lease ended");
    let current = other.claim(Stage::Extraction, now()).unwrap().unwrap();
    assert_eq!((current.capture.id, current.capture.attempts), (id, 1), "its server's end is not its fault");

    let stale = slow.advance(&late, Stage::Embedding, b"late");
    assert!(matches!(stale, Err(Error::Stale { id: refused }) if refused == id), "{stale:?}");
    assert!(matches!(slow.save_result(&late, b"late", &[]), Err(Error::Stale { .. })));
    assert_eq!(slow.extend_leases().unwrap(), 0, "the claim is forgotten");
    other.advance(&current, Stage::Embedding, b"current").unwrap();
    assert_eq!(other.saved_result(id).unwrap().as_deref(), Some(&b"current"[..]));
}

#[test]
fn a_capture_that_ends_every_server_dies_in_the_end() {
    let Some(test) = TeamUnderTest::new() else { return };
    let id = accept(&test.ledger, "poison", 1).id;
    let mut ended = 0;
    while let Some(claim) =
        test.other_server(Duration::from_millis(1)).claim(Stage::Extraction, now()).unwrap()
    {
        assert_eq!(claim.capture.id, id);
        ended += 1;
        until("the lease ends", || (test.store.reap_expired().unwrap() == 1).then_some(()));
    }
    assert_eq!(ended, TAKEOVERS_MAX + queue::ATTEMPTS_MAX as i32);
    assert_eq!(
        (
            test.ledger.capture(id).unwrap().unwrap().state,
            test.store.brain_status(test.brain).unwrap().failed
        ),
        (State::Dead, 1)
    );
    assert_eq!(test.store.retry(test.brain, None).unwrap(), 1);
    assert!(test.ledger.claim(Stage::Extraction, now()).unwrap().is_some());
}

#[test]
fn an_extended_lease_is_not_taken_over() {
    let Some(test) = TeamUnderTest::new() else { return };
    let short = test.other_server(Duration::from_millis(1));
    accept(&short, "s", 1);
    let claim = short.claim(Stage::Extraction, now()).unwrap().unwrap();
    let long = test.other_server(LEASE);
    assert_eq!(long.extend_leases().unwrap(), 0, "it is another server's");
    assert_eq!(short.extend_leases().unwrap(), 1);
    until("the lease ends", || (test.store.reap_expired().unwrap() == 1).then_some(()));
    assert!(matches!(short.advance(&claim, Stage::Embedding, b""), Err(Error::Stale { .. })));

    let claim = test.ledger.claim(Stage::Extraction, now()).unwrap().unwrap();
    assert_eq!(test.ledger.extend_leases().unwrap(), 1);
    assert_eq!(test.store.reap_expired().unwrap(), 0);
    test.ledger.finish_with_transcript(&claim, &nothing(), None, now()).unwrap();
    assert_eq!(test.ledger.extend_leases().unwrap(), 0, "a settled claim is held no longer");
}

#[test]
fn a_server_releases_only_its_own_claims() {
    let Some(test) = TeamUnderTest::new() else { return };
    let other = test.other_server(LEASE);
    for number in 0..4 {
        accept(&other, &format!("s{number}"), number);
    }
    let mine = test.ledger.claim(Stage::Extraction, now()).unwrap().unwrap();
    let theirs = other.claim(Stage::Extraction, now()).unwrap().unwrap();
    assert_eq!(test.ledger.release_failed(Stage::Extraction, "panic").unwrap(), 1);
    assert_eq!(test.ledger.release_claims(None).unwrap(), 0);
    other.advance(&theirs, Stage::Embedding, b"").unwrap();
    assert!(matches!(test.ledger.advance(&mine, Stage::Embedding, b""), Err(Error::Stale { .. })));
    let again = test.ledger.claim(Stage::Extraction, now()).unwrap().unwrap();
    assert_eq!((again.capture.attempts, again.capture.reason.as_deref()), (2, Some("panic")));
}

#[test]
fn a_brain_has_one_branch_and_one_push_at_a_time() {
    let Some(test) = TeamUnderTest::with_connections(12) else { return };
    let other = test.other_server(LEASE);
    for stage in [Stage::Git, Stage::Delivery] {
        for number in 0..20_u64 {
            let accepted = accept(&test.ledger, &format!("s{stage}{number}"), fastrand::u64(..));
            let claim = test.ledger.claim(Stage::Extraction, now()).unwrap().unwrap();
            assert_eq!(claim.capture.id, accepted.id);
            test.ledger.advance(&claim, stage, b"").unwrap();
        }
        // The index itself, when workers try at the same moment.
        for _ in 0..20 {
            let claims: Vec<_> = std::thread::scope(|scope| {
                let claim = |number: usize| {
                    let ledger = if number.is_multiple_of(2) { &test.ledger } else { &other };
                    ledger.claim(stage, now()).unwrap().map(|claim| (number, claim))
                };
                let workers: Vec<_> = (0..8).map(|number| scope.spawn(move || claim(number))).collect();
                workers.into_iter().filter_map(|worker| worker.join().unwrap()).collect()
            });
            assert_eq!(claims.len(), 1, "at {stage}");
            for (number, claim) in claims {
                let ledger = if number.is_multiple_of(2) { &test.ledger } else { &other };
                ledger.finish_with_transcript(&claim, &nothing(), None, now()).unwrap();
            }
        }
    }
    assert_eq!(test.ledger.tally().unwrap().nothing, 40);
}

/// A worker that finds something to claim wakes all of its actors, and looks again at once.
#[test]
fn what_waits_for_another_servers_branch_or_push_is_not_claimable() {
    let Some(test) = TeamUnderTest::new() else { return };
    let other = test.other_server(LEASE);
    for stage in [Stage::Git, Stage::Delivery] {
        for number in 0..2 {
            accept(&test.ledger, &format!("{stage}{number}"), fastrand::u64(..));
            let claim = test.ledger.claim(Stage::Extraction, now()).unwrap().unwrap();
            test.ledger.advance(&claim, stage, b"").unwrap();
        }
        assert!(test.ledger.is_claimable(now()).unwrap());
        let first = other.claim(stage, now()).unwrap().unwrap();
        assert!(!test.ledger.is_claimable(now()).unwrap(), "{stage}");
        assert!(test.ledger.is_due(now()).unwrap());
        other.finish_with_transcript(&first, &nothing(), None, now()).unwrap();
        let second = test.ledger.claim(stage, now()).unwrap().unwrap();
        test.ledger.finish_with_transcript(&second, &nothing(), None, now()).unwrap();
    }
}

#[test]
fn a_line_with_a_zero_byte_in_its_name_is_stored() {
    let Some(test) = TeamUnderTest::new() else { return };
    accept(&test.ledger, "s", 1);
    let claim = test.ledger.claim(Stage::Extraction, now()).unwrap().unwrap();
    let evidence = vec![("l\0".to_owned(), "said\0".to_owned())];
    let unit = ProposedUnit { name: "u".into(), is_new: true, evidence, ..ProposedUnit::default() };
    assert!(test.ledger.save_result(&claim, b"r", &[unit]).unwrap().is_empty());
}

#[test]
fn a_hand_over_sent_again_is_the_same_capture() {
    let Some(test) = TeamUnderTest::new() else { return };
    let lines = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let first = accept_lines(&test.ledger, "s", 1, &lines(&["a", "b"]));
    assert!(first.is_new);
    let again = accept_lines(&test.ledger, "s", 1, &lines(&["a", "b"]));
    assert_eq!((again.id, again.is_new), (first.id, false));
    let capture = test.ledger.capture(first.id).unwrap().unwrap();
    assert_eq!((capture.state, capture.stage), (State::Queued, Stage::Extraction));
    assert_eq!(capture.cwd.as_deref(), Some(Path::new("payments")));
    assert!(test.ledger.is_taken(first.id + 1, "a").unwrap());

    let copy = accept_lines(&test.ledger, "s", 2, &lines(&["b", "a"]));
    let copy = test.ledger.capture(copy.id).unwrap().unwrap();
    assert_eq!(copy.state, State::Nothing, "all of its lines are another capture's");
    let more = accept_lines(&test.ledger, "s", 3, &lines(&["b", "c"]));
    assert_eq!(test.ledger.capture(more.id).unwrap().unwrap().state, State::Queued);
}

#[test]
fn hand_overs_at_the_same_moment_are_one_capture() {
    let Some(test) = TeamUnderTest::with_connections(12) else { return };
    for number in 0..20 {
        let accepted: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| accept(&test.ledger, "s", number))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(accepted.iter().filter(|accepted| accepted.is_new).count(), 1);
        assert!(accepted.iter().all(|each| each.id == accepted[0].id));
    }
    assert_eq!(test.ledger.tally().unwrap().queued, 20);
}

#[test]
fn a_session_is_extracted_in_its_order() {
    let Some(test) = TeamUnderTest::new() else { return };
    let first = accept(&test.ledger, "s", 1).id;
    let second = accept(&test.ledger, "s", 2).id;
    let claim = test.ledger.claim(Stage::Extraction, now()).unwrap().unwrap();
    assert_eq!(claim.capture.id, first);
    assert!(test.ledger.claim(Stage::Extraction, now()).unwrap().is_none());
    test.ledger.advance(&claim, Stage::Delivery, b"").unwrap();
    assert_eq!(test.ledger.claim(Stage::Extraction, now()).unwrap().unwrap().capture.id, second);
}

#[test]
fn each_brain_with_due_work_has_its_turn() {
    let Some(test) = TeamUnderTest::new() else { return };
    let ledger_of = |brain| {
        team::TeamLedger::new(test.store.clone(), brain, test.store.register_server("h", "0").unwrap(), LEASE)
    };
    let brains: Vec<BrainId> = ["b", "c", "d"].map(|slug| create_brain(&test.store, slug)).into();
    for (brain, count) in brains.iter().zip([50, 1, 1]) {
        for number in 0..count {
            accept(&ledger_of(*brain), &format!("s{number}"), number);
        }
    }
    let ready = |after: BrainId, limit| {
        let ready = test.store.ready_brains(after, limit, now()).unwrap();
        assert!(ready.iter().all(|each| each.stages == [Stage::Extraction]));
        ready.iter().map(|each| each.brain).collect::<Vec<_>>()
    };
    assert_eq!(ready(BrainId(0), 10), brains);
    assert_eq!(ready(BrainId(0), 2), brains[..2]);
    assert_eq!(ready(brains[1], 2), [brains[2], brains[0]]);
    assert_eq!(ready(brains[2], 10), brains, "it begins again");
    // What waits for a pause or a retry is not due, and nor is a second branch of a brain.
    let ledger = ledger_of(brains[2]);
    let claim = ledger.claim(Stage::Extraction, now()).unwrap().unwrap();
    ledger.pause(&claim, "offline", None, now()).unwrap();
    assert_eq!(ready(BrainId(0), 10), brains[..2]);
    let ledger = ledger_of(brains[0]);
    let ages = test.store.queue_ages().unwrap();
    let extraction = ages.iter().find(|age| age.stage == Stage::Extraction).unwrap();
    assert_eq!((extraction.waiting, extraction.running), (52, 0));
    assert!(extraction.oldest > Duration::ZERO && extraction.oldest < Duration::from_secs(60));
    while let Some(claim) = ledger.claim(Stage::Extraction, now()).unwrap() {
        ledger.advance(&claim, Stage::Git, b"").unwrap();
    }
    let git = || test.store.ready_brains(BrainId(0), 10, now()).unwrap()[0].stages.clone();
    assert_eq!(git(), [Stage::Git]);
    ledger.claim(Stage::Git, now()).unwrap().unwrap();
    assert_eq!(ready(BrainId(0), 10), brains[1..2]);
}

#[test]
fn a_brain_whose_captures_wait_for_their_session_is_not_ready() {
    let Some(test) = TeamUnderTest::new() else { return };
    let is_ready = || !test.store.ready_brains(BrainId(0), 10, now()).unwrap().is_empty();
    accept(&test.ledger, "s", 0);
    accept(&test.ledger, "s", 1);
    assert!(is_ready());
    let first = test.ledger.claim(Stage::Extraction, now()).unwrap().unwrap();
    assert!(!is_ready(), "the second waits for the first");
    accept(&test.ledger, "other", 2);
    assert!(is_ready());
    let other = test.ledger.claim(Stage::Extraction, now()).unwrap().unwrap();
    assert!(!is_ready());
    test.ledger.advance(&other, Stage::Delivery, b"").unwrap();
    test.ledger.advance(&first, Stage::Delivery, b"").unwrap();
    let ready = test.store.ready_brains(BrainId(0), 10, now()).unwrap();
    assert_eq!(ready[0].stages, [Stage::Extraction, Stage::Delivery]);
}

/// The first burst of a new database finds no statistics, and plans that suit a few rows only.
#[test]
fn claims_among_ten_thousand_jobs_stay_quick_without_statistics() {
    let Some(test) = TeamUnderTest::new() else { return };
    let mut superuser = test.database.superuser();
    superuser
        .batch_execute(
            "ALTER TABLE jobs SET (autovacuum_enabled = off); ALTER TABLE captures SET (autovacuum_enabled = off);
             INSERT INTO captures (brain, key, session_id, subject, origin)
                 SELECT 1, sha256(n::text::bytea), n::text, 'a', 'hook' FROM generate_series(1, 10000) n;
             INSERT INTO jobs (brain, id, session_id, stage) SELECT brain, id, session_id, 'extraction' FROM captures",
        )
        .unwrap();
    let begun = Instant::now();
    for _ in 0..50 {
        assert_eq!(test.store.ready_brains(BrainId(0), 1, now()).unwrap().len(), 1);
        let claim = test.ledger.claim(Stage::Extraction, now()).unwrap().unwrap();
        test.ledger.advance(&claim, Stage::Git, b"").unwrap();
        let claim = test.ledger.claim(Stage::Git, now()).unwrap().unwrap();
        test.ledger.finish_with_transcript(&claim, &nothing(), None, now()).unwrap();
    }
    // Half a second here; with a key (brain, id) each claim alone took 9 s.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}
