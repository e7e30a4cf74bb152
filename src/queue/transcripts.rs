//! What the ledger knows of transcripts: how each was when it was last read, so that a sweep over
//! thousands of them finds the few that hold something new.
//!
//! A time that a file or a row carries may come from a clock that was wrong. Distances between
//! times are therefore measured both ways, and two looks agree only if they are equal.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{OptionalExtension as _, Transaction, TransactionBehavior, params};

use crate::capture::Announcement;
use crate::schema::{self, Patience};
use crate::store::{Added, Queue, insert};
use crate::{Error, store};

/// The origin of what a sweep has found.
pub const ORIGIN_SWEEP: &str = "sweep";
/// What a sweep's cap counts over.
pub const SWEEP_CAP_SPAN: Duration = Duration::from_secs(24 * 60 * 60);
/// How many rows one transaction adds: a hook that comes meanwhile waits for no more than that.
const BATCH: usize = 100;
const DECLINED: &str = "declined";

/// What a transcript was like when somebody looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranscriptStamp {
    /// Its real path.
    pub transcript: PathBuf,
    /// In bytes.
    pub size: u64,
    /// Milliseconds since the epoch.
    pub modified_ms: i64,
}

/// What the ledger says of a transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TranscriptStatus {
    /// Nobody has read it, or it has changed since.
    New,
    /// A capture has read it as it is.
    Read,
    /// The same, but that capture was struck from the ledger.
    Forgotten,
    /// A capture of it is under way.
    Waiting,
    /// Its last capture is a dead letter, for a person to look at.
    Dead,
    /// Its session was to be left alone, whatever was added to it since.
    Declined,
    /// A sweep has looked into it as it is, and passed it over for this reason.
    Skipped(String),
}

/// What the ledger knows of all transcripts, as of one moment.
#[derive(Clone, Debug, Default)]
pub struct KnownTranscripts {
    seen: HashMap<String, Row>,
    /// Sessions and transcripts of captures that have not ended.
    waiting: HashSet<String>,
    /// The same of those that died before the transcript was read.
    unread: HashSet<String>,
    /// Captures that sweeps have added within a [`SWEEP_CAP_SPAN`] of now.
    pub swept_today: u32,
    /// Since when sessions are this ledger's concern, once a sweep has said so.
    pub since: Option<Timestamp>,
}

#[derive(Clone, Debug)]
struct Row {
    size: u64,
    modified_ms: i64,
    passed_over: Option<String>,
    /// How its capture ended; `None` if there is none (any more).
    capture: Option<Option<String>>,
}

impl KnownTranscripts {
    pub fn status(&self, session: &str, seen: &TranscriptStamp) -> TranscriptStatus {
        let transcript = seen.transcript.to_string_lossy();
        let is_in = |set: &HashSet<String>| set.contains(session) || set.contains(transcript.as_ref());
        if is_in(&self.waiting) {
            return TranscriptStatus::Waiting;
        }
        let row = self.seen.get(transcript.as_ref());
        if row.is_some_and(|row| row.passed_over.as_deref() == Some(DECLINED)) {
            return TranscriptStatus::Declined;
        }
        if is_in(&self.unread) {
            return TranscriptStatus::Dead;
        }
        match row.filter(|row| (row.size, row.modified_ms) == (seen.size, seen.modified_ms)) {
            None => TranscriptStatus::New,
            Some(Row { passed_over: Some(reason), .. }) => TranscriptStatus::Skipped(reason.clone()),
            Some(Row { capture: None, .. }) => TranscriptStatus::Forgotten,
            Some(Row { capture: Some(outcome), .. }) if outcome.as_deref() == Some("dead") => {
                TranscriptStatus::Dead
            }
            Some(_) => TranscriptStatus::Read,
        }
    }
}

impl Queue {
    /// Reads what is known of transcripts; a few milliseconds for ten thousand of them.
    pub fn known_transcripts(&self, now: Timestamp) -> Result<KnownTranscripts, Error> {
        let mut connection = self.connection()?;
        // All in one transaction, so that a capture which ends meanwhile is in one of the sets.
        let transaction = connection.transaction()?;
        let mut known = KnownTranscripts {
            swept_today: swept_today(&transaction, now)?,
            since: transaction
                .query_row("SELECT value FROM counters WHERE name = 'since_ms'", [], |row| row.get(0))
                .optional()?
                .map(store::timestamp)
                .transpose()?,
            ..KnownTranscripts::default()
        };
        let sets = [
            ("outcome IS NULL", &mut known.waiting),
            ("outcome = 'dead' AND stage = 'intake'", &mut known.unread),
        ];
        for (condition, set) in sets {
            let mut statement = transaction
                .prepare_cached(&format!("SELECT session_id, transcript FROM captures WHERE {condition}"))?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                set.insert(row.get(0)?);
                set.insert(row.get(1)?);
            }
        }
        let mut statement = transaction.prepare_cached(
            "SELECT s.transcript, s.size, s.modified_ms, s.passed_over, c.id IS NOT NULL, c.outcome
             FROM seen AS s LEFT JOIN captures AS c ON c.id = s.capture_id",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let is_there: bool = row.get(4)?;
            known.seen.insert(
                row.get(0)?,
                Row {
                    size: row.get::<_, i64>(1)?.unsigned_abs(),
                    modified_ms: row.get(2)?,
                    passed_over: row.get(3)?,
                    capture: is_there.then(|| row.get(5)).transpose()?,
                },
            );
        }
        Ok(known)
    }

    /// Adds captures of what a sweep has found, in their order, no more in a day than the cap.
    ///
    /// Whatever the sweep saw is looked at once more as it is written: another may have added the
    /// same meanwhile. Returns, for each, the capture that it has become, if it has.
    pub fn add_found(
        &self,
        found: &[(Announcement, TranscriptStamp)],
        daily_cap: Option<u32>,
        now: Timestamp,
    ) -> Result<Vec<Option<i64>>, Error> {
        let mut added = Vec::with_capacity(found.len());
        for batch in found.chunks(BATCH) {
            let ids = self.write(|transaction| {
                let mut room = match daily_cap {
                    Some(cap) => cap.saturating_sub(swept_today(transaction, now)?),
                    None => u32::MAX,
                };
                let mut ids = Vec::with_capacity(batch.len());
                for (announcement, seen) in batch {
                    let id = match room {
                        0 => None,
                        _ if is_taken_up(transaction, announcement, seen)? => None,
                        _ => match insert(transaction, announcement, now)? {
                            Added::New(id) => Some(id),
                            Added::AlreadyQueued(_) => None,
                        },
                    };
                    room -= u32::from(id.is_some());
                    ids.push(id);
                }
                Ok(ids)
            })?;
            added.extend(ids);
        }
        Ok(added)
    }

    /// Remembers that transcripts were looked into and passed over, each with the reason.
    pub fn skip_transcripts(&self, passed: &[(TranscriptStamp, String)]) -> Result<(), Error> {
        for batch in passed.chunks(BATCH) {
            self.write(|transaction| {
                batch.iter().try_for_each(|(seen, reason)| keep(transaction, seen, None, Some(reason)))
            })?;
        }
        Ok(())
    }

    /// Since when sessions are this ledger's concern; the first who asks decides.
    pub fn since(&self, first: Timestamp) -> Result<Timestamp, Error> {
        self.write(|transaction| {
            transaction.execute(
                "INSERT OR IGNORE INTO counters VALUES ('since_ms', ?1)",
                [first.as_millisecond()],
            )?;
            store::timestamp(transaction.query_row(
                "SELECT value FROM counters WHERE name = 'since_ms'",
                [],
                |row| row.get(0),
            )?)
        })
    }
}

/// Remembers, as a hook does it, that a session is to be left alone: no sweep takes it up, though
/// its transcript may still grow. A later announcement of it counts again.
pub fn decline(path: &Path, transcript: &Path) -> Result<(), Error> {
    let seen = TranscriptStamp { transcript: transcript.to_owned(), size: 0, modified_ms: 0 };
    let mut connection = schema::open(path, Patience::Hook)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    keep(&transaction, &seen, None, Some(DECLINED))?;
    Ok(transaction.commit()?)
}

/// Keeps what a transcript was like as a capture read it.
pub(crate) fn keep_read(
    transaction: &Transaction<'_>,
    seen: &TranscriptStamp,
    capture: i64,
) -> Result<(), Error> {
    keep(transaction, seen, Some(capture), None)
}

fn keep(
    transaction: &Transaction<'_>,
    seen: &TranscriptStamp,
    capture: Option<i64>,
    passed_over: Option<&str>,
) -> Result<(), Error> {
    let size = i64::try_from(seen.size).unwrap_or(i64::MAX);
    transaction
        .prepare_cached("INSERT OR REPLACE INTO seen VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![seen.transcript.to_string_lossy(), size, seen.modified_ms, capture, passed_over])?;
    Ok(())
}

/// Whether a session has a capture in the works, or one that has read the transcript as it is.
fn is_taken_up(
    transaction: &Transaction<'_>,
    announcement: &Announcement,
    seen: &TranscriptStamp,
) -> Result<bool, Error> {
    let waiting = transaction
        .prepare_cached("SELECT 1 FROM captures WHERE session_id = ?1 AND outcome IS NULL")?
        .exists([announcement.session.as_str()])?;
    let read = || {
        transaction
            .prepare_cached(
                "SELECT 1 FROM seen JOIN captures ON captures.id = seen.capture_id
                 WHERE seen.transcript = ?1 AND size = ?2 AND modified_ms = ?3",
            )?
            .exists(params![seen.transcript.to_string_lossy(), seen.size as i64, seen.modified_ms])
    };
    Ok(waiting || read()?)
}

fn swept_today(transaction: &Transaction<'_>, now: Timestamp) -> Result<u32, Error> {
    // Both ways: rows that a clock in the future has left behind must not use up the cap for ever.
    Ok(transaction
        .prepare_cached("SELECT count(*) FROM captures WHERE origin = ?1 AND abs(added_ms - ?2) < ?3")?
        .query_row(params![ORIGIN_SWEEP, now.as_millisecond(), SWEEP_CAP_SPAN.as_millis() as i64], |row| {
            row.get(0)
        })?)
}

#[cfg(test)]
mod tests {
    use knowledge::SessionId;

    use super::*;
    use crate::{Finish, Stage};

    struct Fixture {
        _folder: tempfile::TempDir,
        queue: Queue,
        now: Timestamp,
    }

    fn fixture() -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let queue = Queue::open(&folder.path().join("queue.db")).unwrap();
        Fixture { _folder: folder, queue, now: "2026-11-20T14:12:00Z".parse().unwrap() }
    }

    fn found(session: &str, size: u64) -> (Announcement, TranscriptStamp) {
        let transcript = PathBuf::from(format!("/t/{session}.jsonl"));
        let announcement = Announcement {
            session: SessionId::verbatim(session),
            transcript: transcript.clone(),
            cwd: None,
            origin: ORIGIN_SWEEP.to_owned(),
            reason: None,
        };
        (announcement, TranscriptStamp { transcript, size, modified_ms: 7 })
    }

    impl Fixture {
        fn add(&self, names: &[&str], cap: Option<u32>) -> Vec<Option<i64>> {
            let found: Vec<_> = names.iter().map(|name| found(name, 1)).collect();
            self.queue.add_found(&found, cap, self.now).unwrap()
        }

        fn record(&self, session: &str, size: u64) -> TranscriptStatus {
            self.queue.known_transcripts(self.now).unwrap().status(session, &found(session, size).1)
        }

        fn read(&self, session: &str, size: u64) {
            let claim = self.queue.claim(Stage::Intake, self.now).unwrap().unwrap();
            assert_eq!(claim.capture.session_id.as_str(), session);
            let nothing = Finish::Nothing { reason: "n".into() };
            self.queue
                .finish_with_transcript(&claim, &nothing, Some(&found(session, size).1), self.now)
                .unwrap();
        }
    }

    #[test]
    fn a_transcript_is_new_until_a_capture_has_read_it_and_again_when_it_has_changed() {
        let fixture = fixture();
        assert_eq!(fixture.record("a", 1), TranscriptStatus::New);
        let id = fixture.add(&["a"], None)[0].unwrap();
        assert_eq!(fixture.record("a", 1), TranscriptStatus::Waiting);
        assert_eq!(fixture.add(&["a"], None), [None]);
        fixture.read("a", 1);
        assert_eq!(fixture.record("a", 1), TranscriptStatus::Read);
        assert_eq!(fixture.add(&["a"], None), [None]);
        assert_eq!(fixture.record("a", 2), TranscriptStatus::New);
        fixture.queue.forget(id).unwrap();
        assert_eq!(fixture.record("a", 1), TranscriptStatus::Forgotten);
    }

    #[test]
    fn what_intake_passes_on_is_remembered_in_the_same_transaction() {
        let fixture = fixture();
        fixture.add(&["a", "b"], None);
        let first = fixture.queue.claim(Stage::Intake, fixture.now).unwrap().unwrap();
        let second = fixture.queue.claim(Stage::Intake, fixture.now).unwrap().unwrap();
        let lines = ["x".to_owned()];
        let advance = |claim, name: &str| {
            let seen = found(name, 1).1;
            fixture.queue.advance_with_lines(claim, Stage::Extraction, b"", &lines, Some(&seen)).unwrap()
        };
        assert!(advance(&first, "a").is_empty());
        assert_eq!(advance(&second, "b"), ["x"], "taken by the other");
        for claim in [&first, &second] {
            // The first has gone on; what its late claim says of the file is not kept either.
            let seen = found("c", 1).1;
            let late = fixture.queue.finish_with_transcript(
                claim,
                &Finish::Nothing { reason: "n".into() },
                Some(&seen),
                fixture.now,
            );
            assert_eq!(late.is_err(), claim.capture.session_id.as_str() == "a");
        }
        let rows: Vec<String> = {
            let connection = fixture.queue.connection().unwrap();
            let mut statement = connection
                .prepare("SELECT transcript || ' ' || capture_id FROM seen ORDER BY transcript")
                .unwrap();
            statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
        };
        assert_eq!(rows, ["/t/a.jsonl 1", "/t/c.jsonl 2"]);
    }

    #[test]
    fn the_cap_counts_a_day_whichever_way_the_clock_jumps() {
        let mut fixture = fixture();
        let names = |letter: char| (0..5).map(|i| format!("{letter}{i}")).collect::<Vec<_>>();
        let add = |fixture: &Fixture, letter: char| {
            let names = names(letter);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            fixture.add(&names, Some(3)).iter().flatten().count()
        };
        assert_eq!((add(&fixture, 'a'), add(&fixture, 'b')), (3, 0));
        fixture.now = "2026-11-21T14:11:00Z".parse().unwrap();
        assert_eq!(add(&fixture, 'c'), 0, "a minute short of a day");
        fixture.now = "2026-11-20T10:00:00Z".parse().unwrap();
        assert_eq!(add(&fixture, 'd'), 0, "some hours back");
        fixture.now = "2016-11-20T14:12:00Z".parse().unwrap();
        assert_eq!((add(&fixture, 'e'), add(&fixture, 'f')), (3, 0), "ten years back");
        fixture.now = "2036-11-20T14:12:00Z".parse().unwrap();
        assert_eq!(add(&fixture, 'g'), 3, "ten years on");
        assert_eq!(fixture.queue.known_transcripts(fixture.now).unwrap().swept_today, 3);
    }

    #[test]
    fn two_sweeps_at_once_add_each_session_once_and_keep_the_cap() {
        let fixture = fixture();
        let path = fixture.queue.path().to_owned();
        let added: usize = std::thread::scope(|scope| {
            let sweeps: Vec<_> = (0..4)
                .map(|_| {
                    let (path, now) = (&path, fixture.now);
                    scope.spawn(move || {
                        let all: Vec<_> = (0..30).map(|i| found(&format!("s{i}"), 1)).collect();
                        let ids = Queue::open(path).unwrap().add_found(&all, Some(20), now).unwrap();
                        ids.iter().flatten().count()
                    })
                })
                .collect();
            sweeps.into_iter().map(|sweep| sweep.join().unwrap()).sum()
        });
        assert_eq!((added, fixture.queue.tally().unwrap().queued), (20, 20));
    }

    #[test]
    fn a_dead_letter_is_left_to_a_person() {
        let fixture = fixture();
        fixture.add(&["a"], None);
        let claim = fixture.queue.claim(Stage::Intake, fixture.now).unwrap().unwrap();
        fixture.queue.finish(&claim, &Finish::Dead { reason: "d".into() }, fixture.now).unwrap();
        assert_eq!(fixture.record("a", 2), TranscriptStatus::Dead);
        fixture.queue.retry(Some(claim.capture.id)).unwrap();
        assert_eq!(fixture.record("a", 2), TranscriptStatus::Waiting);
        // One that died after its transcript was read: what comes later is another capture's.
        let claim = fixture.queue.claim(Stage::Intake, fixture.now).unwrap().unwrap();
        let seen = found("a", 2).1;
        fixture.queue.advance_with_lines(&claim, Stage::Extraction, b"", &[], Some(&seen)).unwrap();
        let claim = fixture.queue.claim(Stage::Extraction, fixture.now).unwrap().unwrap();
        fixture.queue.finish(&claim, &Finish::Dead { reason: "d".into() }, fixture.now).unwrap();
        assert_eq!(
            (fixture.record("a", 2), fixture.record("a", 3)),
            (TranscriptStatus::Dead, TranscriptStatus::New)
        );
    }

    #[test]
    fn what_was_passed_over_or_declined_is_remembered() {
        let fixture = fixture();
        let why = "excluded".to_owned();
        fixture.queue.skip_transcripts(&[(found("a", 1).1, why.clone())]).unwrap();
        assert_eq!(fixture.record("a", 1), TranscriptStatus::Skipped(why));
        assert_eq!(fixture.record("a", 2), TranscriptStatus::New);
        decline(fixture.queue.path(), Path::new("/t/b.jsonl")).unwrap();
        assert_eq!(fixture.record("b", 5), TranscriptStatus::Declined);
        let first: Timestamp = "2026-11-01T00:00:00Z".parse().unwrap();
        assert_eq!(fixture.queue.since(first).unwrap(), first);
        assert_eq!(fixture.queue.since(fixture.now).unwrap(), first);
    }
}
