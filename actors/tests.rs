//! The guarantees of the actors, tested with a real queue and a real git repository.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use index::Mode;
use jiff::Timestamp;
use queue::{ATTEMPTS_MAX, Capture, Stage, State};
use retrieve::Query;
use tokio::time::Instant;

use crate::health::ActorReport;
use crate::jobs::{Clock, WorkPoint};
use crate::service::{Roles, Service, StartError};
use crate::testing::simulation::in_virtual_time;
use crate::testing::{
    Act, FAULT_POINTS, Fault, Faults, Teacher, Testbed, epoch, stage_of, teacher, vector_of, vector_of_words,
};
use crate::worker::{WORKER_REPORT, WorkerReport};

/// Longer than anything here takes, also on a machine that is busy with builds.
const DEADLINE: Duration = Duration::from_secs(120);

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < DEADLINE, "waited too long until {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn drain(bed: &Testbed) {
    assert_eq!(bed.worker().drain(None).unwrap().rounds, 1);
}

/// Works as a process does, in virtual time, with a wall clock that agrees with it.
async fn work_in_virtual_time(bed: &mut Testbed) -> Vec<ActorReport> {
    let begun = Instant::now();
    bed.jobs.clock = Clock::new(move || epoch() + begun.elapsed());
    bed.pace.poll_every = Duration::from_secs(1);
    let worker = bed.worker();
    let sweep = worker.prepare().unwrap().unwrap();
    let service = Service::start_with(&bed.setup, Roles::Write, bed.parts()).await.unwrap();
    worker.work_until_idle(&service, sweep).await.unwrap();
    let actors = service.actors();
    service.shutdown().await;
    actors
}

fn report_of(actors: &[ActorReport], name: &str) -> ActorReport {
    actors.iter().find(|actor| actor.name == name).unwrap().clone()
}

/// Injects one fault, at the first capture that reaches the point.
fn once(at: WorkPoint, fault: Fault) -> Faults {
    let injected = AtomicBool::new(false);
    Faults::new(
        move |point, _| {
            if point == at && !injected.swap(true, Ordering::SeqCst) { fault } else { Fault::None }
        },
    )
}

/// A point at which the first caller reports that it is there and waits until the gate is opened.
struct Gate {
    reached: Mutex<mpsc::Receiver<()>>,
    open: mpsc::Sender<()>,
}

impl Gate {
    fn new() -> (Self, impl Fn() + Send + Sync + 'static) {
        let (report, reached) = mpsc::channel();
        let (open, opened) = mpsc::channel::<()>();
        let (opened, was_reached) = (Mutex::new(opened), AtomicBool::new(false));
        let pass = move || {
            if !was_reached.swap(true, Ordering::SeqCst) {
                report.send(()).unwrap();
                // A gate that is dropped is open.
                let _ = opened.lock().unwrap().recv_timeout(DEADLINE);
            }
        };
        (Self { reached: Mutex::new(reached), open }, pass)
    }

    fn is_reached(&self) -> bool {
        self.reached.lock().unwrap().try_recv().is_ok()
    }

    fn open(&self) {
        self.open.send(()).unwrap();
    }
}

/// The capture of the session `s1` if nothing fails.
fn capture_without_faults() -> Capture {
    let bed = Testbed::new(teacher());
    let id = bed.session("s1");
    drain(&bed);
    bed.capture(id)
}

#[track_caller]
fn assert_done_once(bed: &Testbed, id: i64, expected: &Capture) {
    let capture = bed.capture(id);
    assert_eq!(
        (capture.state, &capture.branch, &capture.commit, capture.units, &capture.reason),
        (State::Done, &expected.branch, &expected.commit, 1, &None)
    );
    assert_eq!(bed.branches().len(), 1);
    bed.assert_one_commit_for_each_branch();
    assert_eq!(bed.queue().tally().unwrap().running, 0);
}

#[test]
fn a_capture_passes_all_stages_and_makes_one_branch() {
    let mut bed = Testbed::new(extract::HeuristicExtractor);
    bed.model.fake = None;
    let transcript =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/transcripts/synthetic/adr_outbox.jsonl");
    let announcement = queue::Announcement { transcript: transcript.into(), ..bed.announcement("s1") };
    let id = bed.queue().add(&announcement, Timestamp::now()).unwrap().id();
    drain(&bed);
    let capture = bed.capture(id);
    assert_eq!((capture.state, capture.stage), (State::Done, Stage::Git), "{capture:?}");
    let branches = bed.branches();
    assert_eq!((branches.len(), Some(&branches[0].0)), (1, capture.branch.as_ref()));
    assert_eq!(branches[0].1.len(), capture.units as usize);
    let tip = bed.repository.tip(&branches[0].0).unwrap().unwrap();
    assert_eq!(Some(tip.to_string()), capture.commit);
}

#[test]
fn a_job_survives_a_crash_of_its_actor_at_any_point() {
    let expected = capture_without_faults();
    for point in FAULT_POINTS {
        let bed = Testbed::new(teacher()).with_faults(once(point, Fault::Panic));
        let id = bed.session("s1");
        drain(&bed);
        assert_done_once(&bed, id, &expected);
        // What `nugget status` shows about it.
        let (_, _, report) = bed.queue().last_report(WORKER_REPORT).unwrap().unwrap();
        let report: WorkerReport = serde_json::from_str(&report).unwrap();
        for actor in report.actors {
            let has_failed = actor.name == stage_of(point).as_str();
            assert_eq!((actor.restarts, actor.mailbox), (u32::from(has_failed), 0), "{point:?}: {actor:?}");
            let error = format!("{} failed: injected at {point:?}", actor.name);
            assert_eq!(actor.last_error, has_failed.then_some(error));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_actor_is_replaced_and_its_job_done_once() {
    let expected = tokio::task::spawn_blocking(capture_without_faults).await.unwrap();
    for point in
        FAULT_POINTS.into_iter().filter(|point| !matches!(point, WorkPoint::Planned | WorkPoint::Proposed))
    {
        let held = Arc::new(AtomicU32::new(0));
        let bed = Testbed::new(teacher()).with_faults(Faults::new({
            let held = Arc::clone(&held);
            move |at, _| {
                let is_first = at == point && held.fetch_add(1, Ordering::SeqCst) == 0;
                if is_first { Fault::Hang } else { Fault::None }
            }
        }));
        let id = bed.session("s1");
        let service = Service::start_with(&bed.setup, Roles::Write, bed.parts()).await.unwrap();
        let name = stage_of(point).as_str();
        until("the job is held", || held.load(Ordering::SeqCst) == 1).await;
        service.cell(name).unwrap().kill();
        until("the capture has ended", || bed.capture(id).state.is_final()).await;
        assert_done_once(&bed, id, &expected);
        assert_eq!(report_of(&service.actors(), name).restarts, 1);
        service.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_actor_and_the_work_it_leaves_make_one_commit() {
    let expected = tokio::task::spawn_blocking(capture_without_faults).await.unwrap();
    for point in [WorkPoint::Planned, WorkPoint::Proposed] {
        let (gate, pass) = Gate::new();
        let bed = Testbed::new(teacher()).with_faults(Faults::new(move |at, _| {
            if at == point {
                pass();
            }
            Fault::None
        }));
        let id = bed.session("s1");
        let service = Service::start_with(&bed.setup, Roles::Write, bed.parts()).await.unwrap();
        until("the blocking work has begun", || gate.is_reached()).await;
        service.cell("git").unwrap().kill();
        until("the next incarnation has claimed it", || bed.capture(id).attempts == 2).await;
        gate.open();
        until("the capture has ended", || bed.capture(id).state.is_final()).await;
        assert_done_once(&bed, id, &expected);
        service.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stopped_actor_finishes_its_job_and_is_replaced() {
    let expected = tokio::task::spawn_blocking(capture_without_faults).await.unwrap();
    // Without a remote and a server two stages have nothing to do.
    let is_used = |stage: &Stage| !matches!(stage, Stage::Delivery | Stage::Upload);
    for stage in Stage::ALL.into_iter().filter(is_used) {
        let (gate, pass) = Gate::new();
        let claims = Arc::new(AtomicU32::new(0));
        let bed = Testbed::new(teacher()).with_faults(Faults::new({
            let claims = Arc::clone(&claims);
            move |at, _| {
                if at == WorkPoint::Claimed(stage) {
                    claims.fetch_add(1, Ordering::SeqCst);
                    pass();
                }
                Fault::None
            }
        }));
        let id = bed.session("s1");
        let service = Service::start_with(&bed.setup, Roles::Write, bed.parts()).await.unwrap();
        let restarts = || report_of(&service.actors(), stage.as_str()).restarts;
        until("the job is held", || gate.is_reached()).await;
        service.cell(stage.as_str()).unwrap().stop(None);
        gate.open();
        until("the actor is replaced", || restarts() == 1).await;
        until("the capture has ended", || {
            // The wake-up of the next stage may be lost: the worker process sends another one.
            service.wake();
            bed.capture(id).state.is_final()
        })
        .await;
        assert_done_once(&bed, id, &expected);
        assert_eq!(claims.load(Ordering::SeqCst), 1);
        service.shutdown().await;
    }
}

/// As for something that a person has to do, perhaps days later.
#[test]
fn a_worker_whose_captures_wait_looks_rarely_and_writes_nothing() {
    let wait = Duration::from_secs(30);
    let mut bed = Testbed::new(Teacher::new(move |_, attempt| match attempt {
        0 => Act::Retry(Some(wait)),
        _ => Act::Teach,
    }));
    let id = bed.session("s1");
    let other = rusqlite::Connection::open(bed.queue().path()).unwrap();
    let version = || other.pragma_query_value(None, "data_version", |row| row.get::<_, i64>(0)).unwrap();
    let looks = Arc::new(AtomicU32::new(0));
    in_virtual_time(1, 200, async {
        let (begun, counted) = (Instant::now(), Arc::clone(&looks));
        bed.jobs.clock = Clock::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
            epoch() + begun.elapsed()
        });
        let worker = bed.worker();
        let sweep = worker.prepare().unwrap().unwrap();
        let service = Service::start_with(&bed.setup, Roles::Write, bed.parts()).await.unwrap();
        let watching = async {
            tokio::time::sleep(wait / 3).await;
            let before = (version(), looks.load(Ordering::SeqCst));
            tokio::time::sleep(wait / 3).await;
            assert_eq!(version(), before.0, "something was written");
            let looked = looks.load(Ordering::SeqCst) - before.1;
            assert!((1..=60).contains(&looked), "it looked {looked} times in ten seconds");
        };
        let (worked, ()) = tokio::join!(worker.work_until_idle(&service, sweep), watching);
        worked.unwrap();
        service.shutdown().await;
    });
    assert_eq!(bed.capture(id).state, State::Done);
}

#[test]
fn a_job_that_always_fails_is_dead_after_five_attempts() {
    for (act, reason) in [
        (Act::Hang, "extraction made no progress for 900s"),
        (Act::Panic, "extraction failed: the extractor is broken"),
        (Act::Retry(None), "too busy"),
    ] {
        let attempts = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&attempts);
        let mut bed = Testbed::new(Teacher::new(move |conversation, _| {
            if conversation.session_id == "poison" {
                counted.fetch_add(1, Ordering::SeqCst);
                act
            } else {
                Act::Teach
            }
        }));
        let (poison, healthy) = (bed.session("poison"), bed.session("healthy"));
        let actors = in_virtual_time(1, 200, work_in_virtual_time(&mut bed));
        let capture = bed.capture(poison);
        assert_eq!(
            (capture.state, capture.attempts, capture.reason.as_deref()),
            (State::Dead, ATTEMPTS_MAX, Some(reason))
        );
        assert_eq!(attempts.load(Ordering::SeqCst), ATTEMPTS_MAX);
        assert_eq!(bed.capture(healthy).state, State::Done);
        let failures = if matches!(act, Act::Retry(_)) { 0 } else { ATTEMPTS_MAX };
        assert_eq!(report_of(&actors, "extraction").restarts, failures);
    }
}

#[test]
fn an_extractor_that_computes_without_end_is_replaced() {
    static OVER: AtomicBool = AtomicBool::new(false);
    let mut bed = Testbed::new(Teacher::new(|conversation, _| {
        if conversation.session_id == "poison" { Act::Spin(&OVER) } else { Act::Teach }
    }));
    bed.pace.patience_long = Duration::from_millis(200);
    bed.pace.abandon_after = Duration::from_millis(50);
    let (poison, healthy) = (bed.session("poison"), bed.session("healthy"));
    drain(&bed);
    OVER.store(true, Ordering::SeqCst);
    assert_eq!(bed.capture(poison).state, State::Dead);
    assert_eq!(bed.capture(healthy).state, State::Done);
}

#[test]
fn blocking_work_that_never_ends_delays_no_other_capture() {
    let (gate, gone) = mpsc::channel::<()>();
    let gone = Mutex::new(gone);
    let mut bed = Testbed::new(teacher());
    bed.model.fake = Some(Arc::new(move |text| {
        if text.contains("poison") {
            // Until the test is over.
            let _ = gone.lock().map(|gone| gone.recv());
        }
        Ok(vector_of(text))
    }));
    bed.pace.patience = Duration::from_millis(200);
    bed.pace.abandon_after = Duration::from_millis(50);
    let (poison, healthy) = (bed.session("poison"), bed.session("healthy"));
    drain(&bed);
    drop(gate);
    assert_eq!(bed.capture(poison).state, State::Dead);
    assert_eq!(bed.capture(healthy).state, State::Done);
}

#[test]
fn a_requested_wait_is_no_attempt_and_is_respected() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let wait = Duration::from_secs(30);
    let mut bed = Testbed::new(Teacher::new({
        let asked = Arc::clone(&asked);
        move |_, time| {
            asked.lock().unwrap().push(Instant::now());
            if time < 3 * ATTEMPTS_MAX { Act::Retry(Some(wait)) } else { Act::Teach }
        }
    }));
    bed = bed.with_faults(Faults::new(|_, claim| {
        assert_eq!(claim.capture.attempts, 1);
        Fault::None
    }));
    let id = bed.session("s1");
    in_virtual_time(2, 200, work_in_virtual_time(&mut bed));
    assert_eq!(bed.capture(id).state, State::Done);
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len() as u32, 3 * ATTEMPTS_MAX + 1);
    assert!(asked.windows(2).all(|times| times[1] - times[0] >= wait));
}

#[test]
fn a_permanent_failure_is_dead_at_once() {
    let mut bed = Testbed::new(Teacher::new(|_, _| Act::Permanent));
    let id = bed.session("s1");
    let actors = in_virtual_time(3, 200, work_in_virtual_time(&mut bed));
    let capture = bed.capture(id);
    assert_eq!(
        (capture.state, capture.attempts, capture.reason.as_deref()),
        (State::Dead, 1, Some("not allowed"))
    );
    assert_eq!(report_of(&actors, "extraction").restarts, 0);
}

#[test]
fn ten_thousand_wakeups_are_one_message() {
    let bed = Testbed::new(Teacher::new(|_, _| Act::Hang));
    bed.session("s1");
    in_virtual_time(4, 200, async {
        let service = Service::start_with(&bed.setup, Roles::Write, bed.parts()).await.unwrap();
        let extraction = || report_of(&service.actors(), "extraction");
        let is_held = || bed.capture(1).stage == Stage::Extraction && bed.capture(1).state == State::Running;
        until("the job is held", is_held).await;
        for _ in 0..10_000 {
            service.wake();
        }
        assert_eq!((extraction().mailbox, extraction().state.as_str()), (1, "busy"));
        service.cell("extraction").unwrap().kill();
        until("it is replaced", || extraction().state == "down").await;
        assert_eq!(extraction().mailbox, 0, "its wake-ups are lost with it");
    });
}

#[test]
fn wakeups_do_not_pile_up_in_a_long_queue() {
    let mut bed = Testbed::new(Teacher::new(|_, _| Act::TeachAfter(Duration::from_secs(1))));
    for session in 0..30 {
        bed.session(&format!("s{session}"));
    }
    let bed = &mut bed;
    in_virtual_time(5, 200, async {
        let begun = Instant::now();
        bed.jobs.clock = Clock::new(move || epoch() + begun.elapsed());
        let service = Service::start_with(&bed.setup, Roles::Write, bed.parts()).await.unwrap();
        while bed.queue().unfinished().unwrap() > 0 {
            service.wake();
            for actor in service.actors() {
                assert!(actor.mailbox <= 2, "{actor:?}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        service.shutdown().await;
    });
    assert_eq!(bed.queue().tally().unwrap().done, 30);
}

#[test]
fn restarts_wait_twice_as_long_each_time_up_to_a_limit() {
    let failures = Arc::new(Mutex::new(Vec::new()));
    let mut bed = Testbed::new(Teacher::new({
        let failures = Arc::clone(&failures);
        move |_, _| {
            failures.lock().unwrap().push(Instant::now());
            Act::Panic
        }
    }));
    for session in ["a", "b", "c"] {
        bed.session(session);
    }
    let actors = in_virtual_time(6, 200, work_in_virtual_time(&mut bed));
    assert_eq!(bed.queue().tally().unwrap().dead, 3);
    assert_eq!(report_of(&actors, "extraction").restarts, 15);
    let failures = failures.lock().unwrap();
    for (number, times) in failures.windows(2).enumerate() {
        let (wait, least) = (times[1] - times[0], Duration::from_millis(20 << number));
        let least = least.min(Duration::from_secs(15));
        // Beyond the wait itself: claims, and the last look of an idle actor.
        assert!(least <= wait && wait < least + Duration::from_secs(3), "restart {number}: {wait:?}");
    }
}

#[test]
fn a_shutdown_finishes_the_current_jobs_and_leaves_the_rest() {
    let looks = Arc::new(Mutex::new(HashMap::<String, u32>::new()));
    let mut bed = Testbed::new(Teacher::new({
        let looks = Arc::clone(&looks);
        move |conversation, _| {
            *looks.lock().unwrap().entry(conversation.session_id.clone()).or_default() += 1;
            Act::TeachAfter(Duration::from_secs(5))
        }
    }));
    for session in 0..10 {
        bed.session(&format!("s{session}"));
    }
    in_virtual_time(7, 200, async {
        let service = Service::start_with(&bed.setup, Roles::Write, bed.parts()).await.unwrap();
        until("the third is extracted", || looks.lock().unwrap().len() == 3).await;
        service.shutdown().await;
    });
    assert_eq!(bed.queue().tally().unwrap().running, 0);
    let captures = bed.queue().captures(10).unwrap();
    let waiting = captures.iter().filter(|capture| capture.stage <= Stage::Extraction).count();
    assert_eq!(waiting, 10 - looks.lock().unwrap().len());
    assert!(waiting > 5);
    in_virtual_time(8, 200, work_in_virtual_time(&mut bed));
    assert_eq!(bed.queue().tally().unwrap().done, 10);
    assert!(looks.lock().unwrap().values().all(|times| *times == 1), "{looks:?}");
}

#[test]
fn a_shutdown_stops_embedding_after_those_who_need_it() {
    let bed = Testbed::new(teacher());
    bed.note("note.md", "# A note\n\nThat has to be embedded first.\n");
    let id = bed.session("s1");
    in_virtual_time(9, 200, async {
        let service = Service::start_with(&bed.setup, Roles::Write, bed.parts()).await.unwrap();
        let is_compared =
            || bed.capture(id).stage == Stage::Indexing && bed.capture(id).state == State::Running;
        until("the capture is compared", is_compared).await;
        service.shutdown().await;
    });
    let capture = bed.capture(id);
    assert_eq!((capture.stage, capture.state, capture.reason), (Stage::Git, State::Queued, None));
}

#[test]
fn a_round_that_fails_is_not_repeated_at_once() {
    let bed = Testbed::new(teacher());
    let id = bed.session("s1");
    // Instead of the index's folder.
    bed.note(".nugget", "");
    let (report, ended) = mpsc::channel();
    let bed = Arc::new(bed);
    let drained = std::thread::spawn({
        let bed = Arc::clone(&bed);
        move || {
            let drained = bed.worker().drain(None);
            report.send(()).unwrap();
            drained
        }
    });
    ended.recv_timeout(DEADLINE).expect("the worker exits");
    assert!(matches!(drained.join().unwrap(), Err(StartError::Index(_))));
    assert_eq!(bed.capture(id).state, State::Queued);
    std::fs::remove_file(bed.setup.brain.derived_folder()).unwrap();
    drain(&bed);
    assert_eq!(bed.capture(id).state, State::Done);
}

fn question(text: &str) -> Query {
    Query::new(text, epoch())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_keeps_every_mailbox_working() {
    let mut bed = Testbed::new(teacher());
    bed.model.fake = Some(Arc::new(|text| Ok(vector_of_words(text))));
    let service = Service::start_with(&bed.setup, Roles::Read, bed.parts()).await.unwrap();
    for (number, name) in ["embedding", "indexing", "retrieval", "embedding"].into_iter().enumerate() {
        let restarts = || report_of(&service.actors(), name).restarts;
        let before = restarts();
        service.cell(name).unwrap().kill();
        // A request to the actor that was killed may have to be repeated; indexing does so for embedding.
        until("it is replaced", || name == "embedding" || restarts() > before).await;
        bed.note(&format!("note-{number}.md"), &format!("# Note {number}\n\nOn subject{number}.\n"));
        service.refresh(Mode::Changed, None, DEADLINE).await.unwrap().unwrap();
        let answer = service.ask(question(&format!("subject{number}")), DEADLINE).await.unwrap();
        assert!(!answer.words_only);
        assert!(answer.units.iter().any(|unit| unit.path == format!("note-{number}.md")), "{answer:?}");
    }
    service.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_without_a_vector_is_searched_by_words() {
    for panics in [false, true] {
        let mut bed = Testbed::new(teacher());
        bed.note("note.md", "# Outbox\n\nEvents leave through the outbox.\n");
        let is_down = Arc::new(AtomicBool::new(false));
        bed.model.fake = Some(Arc::new({
            let is_down = Arc::clone(&is_down);
            move |text| match is_down.load(Ordering::SeqCst) {
                false => Ok(vector_of(text)),
                true if panics => panic!("the model has crashed"),
                true => Err(embed::Error::Runtime("no model".to_owned())),
            }
        }));
        let service = Service::start_with(&bed.setup, Roles::Read, bed.parts()).await.unwrap();
        service.refresh(Mode::Changed, None, DEADLINE).await.unwrap().unwrap();
        is_down.store(true, Ordering::SeqCst);
        let answer = service.ask(question("outbox"), DEADLINE).await.unwrap();
        assert!(answer.words_only);
        assert_eq!(answer.units[0].path, "note.md");
        service.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_gets_its_vector_while_the_index_is_rebuilt() {
    let mut bed = Testbed::new(teacher());
    for number in 0..40 {
        bed.note(&format!("note-{number}.md"), &format!("# Note {number}\n\nOn subject{number}.\n"));
    }
    let (gate, pass) = Gate::new();
    let is_shut = Arc::new(AtomicBool::new(false));
    bed.model.fake = Some(Arc::new({
        let is_shut = Arc::clone(&is_shut);
        move |text| {
            // Passages wait there, questions do not.
            if is_shut.load(Ordering::SeqCst) && text.contains("Note") {
                pass();
            }
            Ok(vector_of_words(text))
        }
    }));
    let service = Arc::new(Service::start_with(&bed.setup, Roles::Read, bed.parts()).await.unwrap());
    let first = service.refresh(Mode::Changed, None, DEADLINE).await.unwrap().unwrap();
    is_shut.store(true, Ordering::SeqCst);
    for number in 0..40 {
        // Otherwise its vector would be in the cache.
        bed.note(&format!("note-{number}.md"), &format!("# Note {number}\n\nStill on subject{number}.\n"));
    }
    let rebuild = tokio::spawn({
        let service = Arc::clone(&service);
        async move { service.refresh(Mode::Rebuild, None, DEADLINE).await }
    });
    until("the rebuild has begun", || gate.is_reached()).await;
    for number in 0..5 {
        let answer = service.ask(question(&format!("subject{number}")), DEADLINE).await.unwrap();
        assert_eq!((answer.words_only, answer.generation), (false, first.generation));
        assert_eq!(answer.units[0].path, format!("note-{number}.md"));
    }
    assert!(!rebuild.is_finished());
    gate.open();
    let second = rebuild.await.unwrap().unwrap().unwrap();
    assert!(second.generation > first.generation);
}

/// A brain that has the unit `lesson-of-s1`, merged.
fn with_one_unit(faults: Faults) -> Testbed {
    let bed = Testbed::new(teacher()).with_faults(faults);
    let first = bed.session("s1");
    drain(&bed);
    bed.git(&["merge", "-q", "--no-edit", &bed.capture(first).branch.unwrap()]);
    bed
}

const UNIT: &str = "domains/testing/concepts/lesson-of-s1.md";

fn teach(bed: &Testbed, session: &str, lesson: &str) -> Capture {
    bed.say(session, &[lesson]);
    let id = bed.announce(session);
    drain(bed);
    bed.capture(id)
}

#[test]
fn a_unit_that_a_later_session_adds_to_keeps_its_text() {
    let bed = with_one_unit(Faults::none());
    let before = bed.git(&["show", &format!("main:{UNIT}")]);
    let capture = teach(&bed, "s2", "lesson two adds_to lesson-of-s1");
    assert_eq!((capture.state, capture.units), (State::Done, 1), "{capture:?}");
    let branch = capture.branch.unwrap();
    assert_eq!(bed.git(&["diff", "--name-status", "main", &branch]), format!("M\t{UNIT}\n"));
    let after = bed.git(&["show", &format!("{branch}:{UNIT}")]);
    for line in before.lines().filter(|line| !line.starts_with("last_modified")) {
        assert!(after.contains(line), "{line:?} is lost in\n{after}");
    }
    assert!(after.contains("## lesson two adds_to lesson-of-s1\n\nWhat was said"), "{after}");
    let document = knowledge::Document::parse(after).unwrap();
    let sessions: Vec<_> = document.get("sources").unwrap().as_sequence().unwrap().clone();
    let sessions: Vec<_> = sessions.iter().map(|source| source["session"].as_str().unwrap()).collect();
    assert_eq!(sessions, ["s1", "s2"]);
    assert!(bed.git(&["log", "-1", "--format=%B", &branch]).contains("Completed:\n- domains/"));
    let origins = bed.queue().evidence("lesson-of-s1").unwrap();
    let sessions: Vec<_> = origins.iter().map(|origin| origin.session.as_str()).collect();
    assert_eq!(sessions, ["s1", "s2"]);
}

#[test]
fn two_additions_to_one_unit_are_one_unit() {
    let bed = with_one_unit(Faults::none());
    bed.say("s2", &["lesson two adds_to lesson-of-s1", "lesson three adds_to lesson-of-s1"]);
    let id = bed.announce("s2");
    drain(&bed);
    let capture = bed.capture(id);
    assert_eq!((capture.state, capture.units), (State::Done, 1), "{capture:?}");
    let message = bed.git(&["log", "-1", "--format=%B", &capture.branch.unwrap()]);
    assert_eq!(message.matches(UNIT).count(), 1, "{message}");
    assert!(message.contains("lesson two") && message.contains("lesson three"), "{message}");
}

/// Notes the units that an extraction is told of.
struct Told(Arc<Mutex<Vec<String>>>);

#[async_trait::async_trait]
impl extract::Extractor for Told {
    fn name(&self) -> &str {
        "told"
    }

    async fn extract(
        &self,
        conversation: &transcript::Conversation,
        context: &extract::ExtractionContext,
    ) -> Result<extract::Extraction, extract::Error> {
        *self.0.lock().unwrap() = context.known.units.iter().map(|unit| unit.id.clone()).collect();
        teacher().extract(conversation, context).await
    }
}

#[test]
fn a_model_is_told_of_a_unit_that_was_merged_just_now() {
    let told = Arc::<Mutex<Vec<String>>>::default();
    let bed = Testbed::new(Told(Arc::clone(&told)));
    let first = bed.session("s1");
    drain(&bed);
    bed.git(&["merge", "-q", "--no-edit", &bed.capture(first).branch.unwrap()]);
    teach(&bed, "s2", "lesson two");
    assert_eq!(*told.lock().unwrap(), ["lesson-of-s1"]);
}

#[test]
fn a_unit_that_a_later_session_replaces_is_marked() {
    let bed = with_one_unit(Faults::none());
    // Each line is a second later than the one before.
    bed.say("s2", &["good morning"]);
    let capture = teach(&bed, "s2", "lesson two replaces lesson-of-s1");
    assert_eq!((capture.state, capture.units), (State::Done, 1), "as its commit says: {capture:?}");
    bed.git(&["merge", "-q", "--no-edit", &capture.branch.unwrap()]);
    let unit = |path: &str| {
        let text = bed.git(&["show", &format!("main:{path}")]);
        knowledge::Document::parse(text).unwrap().unit(path).unwrap()
    };
    let old = unit(UNIT);
    let new = unit("domains/testing/concepts/lesson-two-replaces-lesson-of-s1.md");
    assert_eq!(old.status.as_deref(), Some("superseded"));
    let related = |unit: &knowledge::Unit| {
        let related =
            unit.related.iter().map(|related| (related.id.to_string(), related.relation.to_string()));
        related.collect::<Vec<_>>()
    };
    assert_eq!(related(&old), [(new.id.to_string(), "superseded_by".to_owned())]);
    assert_eq!(related(&new), [(old.id.to_string(), "supersedes".to_owned())]);
}

#[test]
fn a_session_that_is_not_later_than_a_unit_leaves_it_alone() {
    let bed = with_one_unit(Faults::none());
    let capture = teach(&bed, "s2", "lesson two replaces lesson-of-s1");
    assert_eq!((capture.state, capture.units), (State::Done, 1), "{capture:?}");
    let changes = bed.git(&["diff", "--name-status", "main", &capture.branch.unwrap()]);
    assert_eq!(changes, "A\tdomains/testing/concepts/lesson-two-replaces-lesson-of-s1.md\n");
}

#[test]
fn what_is_known_or_proposed_is_not_proposed_again() {
    let bed = with_one_unit(Faults::none());
    let same = teach(&bed, "s2", "lesson two same lesson-of-s1");
    assert_eq!(same.state, State::Nothing);
    assert_eq!(same.reason.as_deref(), Some("nothing new: known already: lesson-of-s1"));
    assert_eq!(teach(&bed, "s3", "lesson three").state, State::Done);
    let again = teach(&bed, "s4", "lesson three");
    assert_eq!(again.state, State::Nothing);
    assert_eq!(again.reason.as_deref(), Some("nothing new: proposed before: lesson-three"));
    // A candidate that names a missing unit becomes a unit of its own.
    let alone = teach(&bed, "s5", "lesson five adds_to nothing-there");
    assert_eq!((alone.state, alone.units), (State::Done, 1));
}

#[test]
fn a_planned_edit_is_planned_again_after_another_edit() {
    let root = Arc::new(std::sync::OnceLock::<std::path::PathBuf>::new());
    let seen = Arc::clone(&root);
    let armed = std::sync::atomic::AtomicBool::new(true);
    let faults = Faults::new(move |point, claim| {
        let is_it = point == WorkPoint::Planned && claim.capture.session_id.as_str() == "s2";
        if !is_it || !armed.swap(false, Ordering::SeqCst) {
            return Fault::None;
        }
        let root = seen.get().unwrap();
        let path = root.join(UNIT);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, format!("{text}\nWritten by hand.\n")).unwrap();
        crate::testing::git(root, &["commit", "-qam", "by hand"]);
        Fault::Panic
    });
    let bed = with_one_unit(faults);
    root.set(bed.setup.brain.root().to_owned()).unwrap();
    let capture = teach(&bed, "s2", "lesson two adds_to lesson-of-s1");
    let branch = capture.branch.unwrap();
    let text = bed.git(&["show", &format!("{branch}:{UNIT}")]);
    assert!(text.contains("Written by hand.") && text.contains("## lesson two"), "{text}");
    bed.git(&["merge", "-q", "--ff-only", &branch]);
    assert_eq!(bed.git(&["for-each-ref", "refs/heads/nugget/"]).lines().count(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_killed_archiving_actor_is_restarted_and_takes_everything_once() {
    let expected = tokio::task::spawn_blocking(capture_without_faults).await.unwrap();
    let (gate, pass) = Gate::new();
    let bed = Testbed::new(teacher()).with_archive(pass);
    bed.client_session("old", &["why is it so?", "and what else?"]);
    let id = bed.session("s1");
    let service = Service::start_with(&bed.setup, Roles::Write, bed.parts()).await.unwrap();
    until("the archive hangs", || gate.is_reached()).await;
    until("the capture has ended meanwhile", || bed.capture(id).state.is_final()).await;
    assert_done_once(&bed, id, &expected);
    until("nothing waits for the archive", || !service.has_work()).await;
    assert!(service.is_archiving());
    service.cell("archiving").unwrap().kill();
    let archived = [("old".to_owned(), 2), ("s1".to_owned(), 1)];
    until("everything is archived", || bed.archived() == archived).await;
    // What was left behind goes on, and takes nothing twice.
    gate.open();
    service.wake_archiving();
    until("it is idle", || !service.is_archiving()).await;
    assert_eq!(bed.archived(), archived);
    assert_eq!(report_of(&service.actors(), "archiving").restarts, 1);
    service.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hung_archiving_actor_is_killed_and_archives_later() {
    let (gate, pass) = Gate::new();
    let mut bed = Testbed::new(teacher()).with_archive(pass);
    bed.pace.patience_long = Duration::from_secs(2);
    bed.client_session("old", &["why is it so?"]);
    let service = Service::start_with(&bed.setup, Roles::Read, bed.parts()).await.unwrap();
    until("the archive hangs", || gate.is_reached()).await;
    until("the supervisor has replaced it", || bed.archived() == [("old".to_owned(), 1)]).await;
    let report = report_of(&service.actors(), "archiving");
    assert_eq!(report.restarts, 1);
    assert!(report.last_error.unwrap().contains("made no progress"));
    service.shutdown().await;
    gate.open();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn messages_are_embedded_by_the_one_embedding_actor_while_others_are_idle() {
    let bed = Testbed::new(teacher()).with_archive(|| ());
    let lines: Vec<String> = (0..20).map(|number| format!("question {number} about the harbour")).collect();
    bed.client_session("old", &lines.iter().map(String::as_str).collect::<Vec<_>>());
    let service = Service::start_with(&bed.setup, Roles::Write, bed.parts()).await.unwrap();
    let embedded = || {
        let path = &bed.setup.archive.as_ref().unwrap().path;
        let archive = archive::Archive::open_existing(path).unwrap();
        archive.map(|archive| archive.embedded(&bed.model.name()).unwrap())
    };
    until("all messages have vectors", || embedded() == Some((20, 20))).await;
    assert!(report_of(&service.actors(), "embedding").handled >= 3, "in batches of eight");
    service.shutdown().await;
    // By a search by meaning alone: the fake model gives equal vectors to equal texts.
    let service = Service::start_with(&bed.setup, Roles::Read, bed.parts()).await.unwrap();
    let search = crate::SessionSearch { text: lines[3].clone(), limit: 5, ..crate::SessionSearch::default() };
    let found = service.search_sessions(search, DEADLINE).await.unwrap().unwrap();
    assert_eq!((found.searched, found.hits[0].session.as_str()), (1, "old"));
    assert!(found.hits[0].lines.iter().any(|(_, text)| *text == lines[3]), "{:?}", found.hits[0]);
    service.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_message_without_tokens_stops_no_older_one_from_being_embedded() {
    let mut bed = Testbed::new(teacher()).with_archive(|| ());
    // As the built-in model, which reads no such character.
    bed.model.fake = Some(Arc::new(|text| match text.contains('\u{fffd}') {
        true => Err(embed::Error::Empty),
        false => Ok(vector_of(text)),
    }));
    bed.client_session("old", &["why is the harbour closed?", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}"]);
    let service = Service::start_with(&bed.setup, Roles::Write, bed.parts()).await.unwrap();
    let archive = || archive::Archive::open_existing(&bed.setup.archive.as_ref().unwrap().path).unwrap();
    let embedded = || archive().map(|archive| archive.embedded(&bed.model.name()).unwrap());
    until("both messages are done", || embedded() == Some((2, 2))).await;
    let remembered = || archive().unwrap().unremembered(Some(&bed.model.name()), 1).unwrap().is_empty();
    until("the session's memories are made", remembered).await;
    service.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_shutdown_ends_a_long_look_into_transcripts_soon() {
    let (gate, pass) = Gate::new();
    let bed = Testbed::new(teacher()).with_archive(pass);
    bed.client_session("old", &["why is it so?"]);
    let service = Service::start_with(&bed.setup, Roles::Read, bed.parts()).await.unwrap();
    until("the archive hangs", || gate.is_reached()).await;
    // The look goes on once the end is asked for.
    tokio::join!(service.shutdown(), async { gate.open() });
    assert_eq!(bed.archived(), [], "what was not begun is left for the next process");
}

/// Says that the session `old` was shown a unit.
fn tell(bed: &Testbed, unit: &str) {
    let items = vec![queue::Shown::unit(unit, 0, 9, false)];
    let showing = queue::Showing::by_hook(queue::ShownBy::Guard, "old", epoch(), items);
    bed.queue().record_shown(&showing).unwrap();
}

/// How many shown units were judged how.
fn judged(bed: &Testbed) -> Vec<(String, u64)> {
    let archive = archive::Archive::open_existing(&bed.setup.archive.as_ref().unwrap().path).unwrap();
    archive.map_or(Vec::new(), |archive| archive.citation_counts("brain", archive::SHARED_SCOPE).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_round_of_learning_waits_for_the_one_that_goes_on() {
    let bed = Testbed::new(teacher()).with_archive(|| ()).with_learning();
    bed.client_session("old", &["why is it so?", "and what else?"]);
    tell(&bed, "unit-1");
    // Another process, which has looked already.
    let path = &bed.setup.archive.as_ref().unwrap().path;
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let waiting = path.with_extension("learn-wait.lock");
    let locks = queue::FileLocks::new(waiting.clone(), path.with_extension("learn.lock"));
    let other = locks.try_drain_lock().unwrap().unwrap();
    let service = Service::start_with(&bed.setup, Roles::Write, bed.parts()).await.unwrap();
    until("it waits", || queue::is_held(&waiting)).await;
    assert_eq!(judged(&bed), []);
    drop(other);
    until("it is judged", || judged(&bed) == [("ignored".to_owned(), 1)]).await;
    service.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_killed_learning_actor_is_restarted_and_judges_what_is_archived_once() {
    let bed = Testbed::new(teacher()).with_archive(|| ()).with_learning();
    bed.client_session("old", &["why is it so?", "and what else?"]);
    tell(&bed, "unit-1");
    let service = Service::start_with(&bed.setup, Roles::Write, bed.parts()).await.unwrap();
    until("the first is judged", || judged(&bed) == [("ignored".to_owned(), 1)]).await;
    assert!(!service.has_work(), "nothing waits for learning");
    tell(&bed, "unit-2");
    service.cell("learning").unwrap().kill();
    until("the second is judged by the next one", || judged(&bed) == [("ignored".to_owned(), 2)]).await;
    assert_eq!(report_of(&service.actors(), "learning").restarts, 1);
    assert_eq!(bed.queue().showings(0, 10).unwrap(), []);
    service.shutdown().await;
}
