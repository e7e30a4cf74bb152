use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use jiff::SignedDuration;
use queue::{Finish, Stage};

use super::*;

struct Fixture {
    folder: tempfile::TempDir,
    brain: Brain,
    queue: Queue,
    settings: Settings,
    now: Timestamp,
}

/// A brain that was created a day ago.
fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let brain = Brain::init(&folder.path().join("brain")).unwrap().brain;
    let queue = Queue::open(&folder.path().join("queue.db")).unwrap();
    let now: Timestamp = "2026-11-20T14:12:00Z".parse().unwrap();
    queue.capture_start(now - SignedDuration::from_hours(24)).unwrap();
    let settings = Settings {
        folders: vec![folder.path().join("client")],
        idle: Duration::from_secs(15 * 60),
        daily_cap: 20,
        exclude: Exclude::default(),
        state: "/home/ann/.local/state/nugget".into(),
    };
    Fixture { folder, brain, queue, settings, now }
}

impl Fixture {
    /// Writes a transcript that was last written to that many minutes ago.
    fn transcript(&self, session: &str, cwd: &str, minutes_ago: i64) -> PathBuf {
        let path = self.folder.path().join(format!("client/projects/-p/{session}.jsonl"));
        let line = serde_json::json!({
            "type": "user", "uuid": session, "cwd": cwd, "sessionId": session,
            "message": { "role": "user", "content": "hello" },
        });
        self.write(&path, &format!("{line}\n"), minutes_ago);
        path
    }

    fn write(&self, path: &Path, text: &str, minutes_ago: i64) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        let modified = self.now - SignedDuration::from_mins(minutes_ago);
        File::options().write(true).open(path).unwrap().set_modified(SystemTime::from(modified)).unwrap();
    }

    fn sweep(&self) -> SweepOutcome {
        sweep(&self.settings, &self.brain, &self.queue, SweepScope::Automatic, self.now).unwrap()
    }

    fn by_command(&self, scope: SweepScope) -> SweepOutcome {
        sweep(&self.settings, &self.brain, &self.queue, scope, self.now).unwrap()
    }

    /// Reads every queued transcript, as intake does.
    fn work(&self) {
        while let Some(claim) = self.queue.claim(Stage::Intake, self.now).unwrap() {
            let stamp = transcript::read(&claim.capture.transcript, &|_| false).unwrap().stamp.unwrap();
            let nothing = Finish::Nothing { reason: "n".into() };
            self.queue.finish_with_transcript(&claim, &nothing, Some(&seen(&stamp)), self.now).unwrap();
        }
    }
}

fn sessions(swept: &SweepOutcome) -> Vec<&str> {
    swept.queued.iter().map(|session| session.session_id.as_str()).collect()
}

fn skipped(swept: &SweepOutcome) -> Vec<(SkipReason, u64)> {
    swept.skipped.iter().map(|(skip, count)| (*skip, *count)).collect()
}

#[test]
fn a_session_that_the_hook_missed_is_found_once_it_is_idle() {
    let mut fixture = fixture();
    fixture.transcript("a", "/w", 14);
    assert_eq!(skipped(&fixture.sweep()), [(SkipReason::Active, 1)]);
    fixture.now += SignedDuration::from_mins(1);
    let swept = fixture.sweep();
    assert_eq!(sessions(&swept), ["a"]);
    let capture = fixture.queue.capture(swept.queued[0].capture.unwrap()).unwrap().unwrap();
    assert_eq!((capture.origin.as_str(), capture.cwd.as_deref()), ("sweep", Some(Path::new("/w"))));
    assert_eq!(skipped(&fixture.sweep()), [(SkipReason::Waiting, 1)]);
    fixture.work();
    assert_eq!(skipped(&fixture.sweep()), [(SkipReason::Unchanged, 1)]);
    assert_eq!(fixture.queue.tally().unwrap().nothing, 1);
}

#[test]
fn a_session_that_was_written_to_is_found_again() {
    let mut fixture = fixture();
    let path = fixture.transcript("a", "/w", 60);
    fixture.sweep();
    fixture.work();
    let text = fs::read_to_string(&path).unwrap();
    fixture.write(&path, &format!("{text}{{}}\n"), 20);
    assert_eq!(sessions(&fixture.sweep()), ["a"]);
    fixture.work();
    fixture.write(&path, &format!("{text}{{}}\n"), 18);
    assert_eq!(sessions(&fixture.sweep()), ["a"], "the same size, written again");
    fixture.work();
    fixture.now += SignedDuration::from_hours(1);
    assert_eq!(skipped(&fixture.sweep()), [(SkipReason::Unchanged, 1)]);
}

#[test]
fn lines_written_after_the_hooks_are_no_reason_to_capture_again() {
    let mut fixture = fixture();
    let path = fixture.transcript("a", "/w", 60);
    fixture.sweep();
    fixture.work();
    let text = fs::read_to_string(&path).unwrap();
    let bookkeeping = "{\"type\":\"file-history-snapshot\"}\n{\"type\":\"cost-state\",\"sessionId\":\"a\"}\n";
    let grown = text.clone() + bookkeeping;
    fixture.write(&path, &grown, 20);
    assert_eq!(skipped(&fixture.sweep()), [(SkipReason::Unchanged, 1)]);
    fixture.now += SignedDuration::from_hours(1);
    assert_eq!(skipped(&fixture.sweep()), [(SkipReason::Unchanged, 1)]);
    let asked = r#"{"type":"user","uuid":"b","message":{"role":"user","content":"again"}}"#;
    fixture.write(&path, &format!("{grown}{asked}\n"), 20);
    assert_eq!(sessions(&fixture.sweep()), ["a"], "a conversation that goes on");
    fixture.work();
    fixture.write(
        &path,
        &format!("{}{bookkeeping}", text.replace("hello", "a longer word, in another line\\n").repeat(3)),
        20,
    );
    assert_eq!(sessions(&fixture.sweep()), ["a"], "rewritten: what was read did not end here");
}

#[test]
fn the_cap_limits_automatic_sweeps_newest_first() {
    let mut fixture = fixture();
    for i in 0..1000 {
        fixture.transcript(&format!("{i:04}"), "/w", 20 + i);
    }
    let swept = fixture.sweep();
    assert_eq!((sessions(&swept).len(), sessions(&swept)[0], sessions(&swept)[19]), (20, "0000", "0019"));
    assert_eq!(skipped(&swept), [(SkipReason::Later, 980)]);
    fixture.work();
    assert!(fixture.sweep().queued.is_empty(), "the day's cap is used up");
    fixture.now += SignedDuration::from_hours(24);
    assert_eq!(sessions(&fixture.sweep())[0], "0020");
    assert_eq!(fixture.queue.tally().unwrap().queued, 20);
    let swept = fixture.by_command(SweepScope::Since(fixture.now - SignedDuration::from_hours(27)));
    assert_eq!(swept.queued.len(), 180 - 20 - 40 + 1, "a command has no cap");
    assert_eq!(
        fixture.queue.known_transcripts(fixture.now).unwrap().swept_today,
        20,
        "it does not use up the cap either"
    );
}

#[test]
fn sessions_older_than_the_brain_are_left_unless_asked_for() {
    let fixture = fixture();
    fixture.transcript("new", "/w", 23 * 60);
    fixture.transcript("old", "/w", 25 * 60);
    fixture.transcript("ancient", "/w", 60 * 24 * 60);
    let swept = fixture.sweep();
    assert_eq!((sessions(&swept), skipped(&swept)), (vec!["new"], vec![(SkipReason::Old, 2)]));
    let swept = fixture.by_command(SweepScope::Since(fixture.now - SignedDuration::from_hours(48)));
    assert_eq!(
        (sessions(&swept), skipped(&swept)),
        (vec!["old"], vec![(SkipReason::Waiting, 1), (SkipReason::Old, 1)])
    );
    assert_eq!(sessions(&fixture.by_command(SweepScope::All)), ["ancient"]);
}

#[test]
fn the_first_sweep_of_a_brain_begins_at_its_creation() {
    let fixture = fixture();
    let queue = Queue::open(&fixture.folder.path().join("another.db")).unwrap();
    let now = Timestamp::now();
    let swept = sweep(&fixture.settings, &fixture.brain, &queue, SweepScope::Automatic, now).unwrap();
    assert_eq!(swept.found, 0);
    let since = queue.known_transcripts(now).unwrap().since.unwrap();
    assert!(now.duration_since(since).unsigned_abs() < Duration::from_secs(600), "{since}");
}

#[test]
fn a_clock_that_jumps_neither_hides_nor_repeats_sessions() {
    let mut fixture = fixture();
    fixture.transcript("a", "/w", 30);
    fixture.transcript("old", "/w", 60 * 24 * 60);
    let today = fixture.now;
    // Ten years back: what was written in the future is idle, the old sessions stay old, and what is written
    // by this clock is found as well.
    fixture.now = "2016-11-20T14:12:00Z".parse().unwrap();
    fixture.transcript("b", "/w", 20);
    fixture.transcript("c", "/w", 2);
    let swept = fixture.sweep();
    assert_eq!(sessions(&swept), ["a", "b"]);
    assert_eq!(skipped(&swept), [(SkipReason::Active, 1), (SkipReason::Old, 1)]);
    fixture.work();
    // And forward again: nothing is captured twice.
    fixture.now = today;
    assert_eq!(skipped(&fixture.sweep()), [(SkipReason::Unchanged, 2), (SkipReason::Old, 2)]);

    let idle = |modified_ms| is_idle(modified_ms, fixture.settings.idle, today);
    assert!(idle(i64::MAX) && idle(i64::MIN));
    assert!(!idle(today.as_millisecond() + 60_000), "another clock is a minute ahead");
    // The brain was created while the clock was ten years ahead; the clock has been corrected since.
    let beginning = "2036-11-20T00:00:00Z".parse().unwrap();
    let is_in_scope = |minutes: i64| is_since(today.as_millisecond() - minutes * 60_000, beginning, today);
    assert_eq!([20, 30 * 60].map(is_in_scope), [true, false]);
}

#[test]
fn excluded_own_and_empty_transcripts_are_opened_once() {
    let mut fixture = fixture();
    fixture.settings.exclude = Exclude::new("secret-*", None);
    fixture.transcript("secret", "/w/secret-x/src", 30);
    fixture.transcript("own", "/home/ann/.local/state/nugget/brain-1/calls", 30);
    let empty = fixture.folder.path().join("client/projects/-p/empty.jsonl");
    fixture.write(&empty, "{\"type\":\"mode\",\"cwd\":\"/w\"}\n", 30);
    let agent = fixture.folder.path().join("client/projects/-p/agent-1.jsonl");
    fixture.write(&agent, "{\"type\":\"user\",\"cwd\":\"/w\"}\n", 30);
    let expected = [(SkipReason::Excluded, 1), (SkipReason::Own, 1), (SkipReason::Empty, 1)];
    assert_eq!(skipped(&fixture.sweep()), expected);
    // Their content is not read again: unreadable files give the same answer.
    for name in ["secret", "own", "empty"] {
        let path = fixture.folder.path().join(format!("client/projects/-p/{name}.jsonl"));
        let metadata = fs::metadata(&path).unwrap();
        fs::write(&path, "x".repeat(metadata.len() as usize)).unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(metadata.modified().unwrap()).unwrap();
    }
    assert_eq!(skipped(&fixture.sweep()), expected);
    // They are opened again under another setting.
    fixture.transcript("secret", "/w/secret-x/src", 30);
    fixture.settings.exclude = Exclude::default();
    assert_eq!(sessions(&fixture.sweep()), ["secret"]);
}

#[test]
fn declined_forgotten_and_failed_sessions_are_left() {
    let fixture = fixture();
    let declined = fixture.transcript("declined", "/w", 30);
    queue::decline(fixture.queue.path(), &declined, fixture.now).unwrap();
    fixture.transcript("dead", "/w", 31);
    fixture.transcript("forgotten", "/w", 32);
    assert_eq!(fixture.sweep().queued.len(), 2);
    let dead = fixture.queue.claim(Stage::Intake, fixture.now).unwrap().unwrap();
    fixture.queue.finish(&dead, &Finish::Dead { reason: "d".into() }, fixture.now).unwrap();
    fixture.work();
    fixture.queue.forget(2, fixture.now).unwrap();
    let left = [(SkipReason::Dead, 1), (SkipReason::Forgotten, 1), (SkipReason::Declined, 1)];
    assert_eq!(skipped(&fixture.sweep()), left);
    assert_eq!(sessions(&fixture.by_command(SweepScope::All)), ["forgotten"]);
}

#[test]
fn planning_a_sweep_changes_nothing() {
    let fixture = fixture();
    fixture.transcript("a", "/w", 30);
    let before = fs::read(fixture.queue.path()).unwrap();
    let known = fixture.queue.known_transcripts(fixture.now).unwrap();
    let swept = plan(&fixture.settings, &fixture.brain, &known, SweepScope::All, fixture.now);
    assert_eq!((sessions(&swept), swept.queued[0].capture), (vec!["a"], None));
    assert_eq!(fixture.queue.tally().unwrap().unfinished(), 0);
    assert_eq!(fs::read(fixture.queue.path()).unwrap(), before);
}

#[test]
fn servers_do_not_repeat_each_others_sweeps() {
    let fixture = fixture();
    let minute = Duration::from_secs(60);
    assert!(!is_recent(&fixture.queue, minute, fixture.now));
    fixture.sweep();
    assert!(is_recent(&fixture.queue, minute, fixture.now + SignedDuration::from_secs(30)));
    assert!(!is_recent(&fixture.queue, minute, fixture.now + SignedDuration::from_secs(61)));
    assert!(!is_recent(&fixture.queue, minute, fixture.now - SignedDuration::from_hours(1)));
}
