//! Size and time of each transcript when it was last read, so that a sweep over thousands of them
//! finds the few that hold something new.
//!
//! The time in a file or a row may come from a clock that was wrong. Distances between times are
//! therefore measured in both directions, and two stamps match only if they are equal.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{OptionalExtension as _, Transaction, TransactionBehavior, params};

use crate::Error;
use crate::capture::{Announcement, ORIGIN_HOOK, ORIGIN_SWEEP, State};
use crate::rows::{Added, end, insert};
use crate::schema::{self, BusyTimeout};
use crate::store::{Queue, timestamp};

/// The time that a sweep's daily cap covers.
pub const SWEEP_CAP_SPAN: Duration = Duration::from_secs(24 * 60 * 60);
/// Rows that one transaction adds: a hook waits for no more than that.
const BATCH: usize = 100;
const DECLINED: &str = "declined";

/// Path, size and time of a transcript at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranscriptStamp {
    /// Its real path.
    pub transcript: PathBuf,
    /// In bytes.
    pub size: u64,
    /// Milliseconds since the epoch.
    pub modified_ms: i64,
}

/// What the queue knows about a transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TranscriptStatus {
    /// No capture has read it, or it has changed since.
    New,
    /// A capture has read it, and it has not changed.
    Read,
    /// A capture has read this many bytes of it, and it is longer now.
    Grown(u64),
    /// A capture has read it, it has not changed, and the capture's record was deleted.
    Forgotten,
    /// A capture of it has not ended.
    Waiting,
    /// Its last capture is dead and waits for a person.
    Dead,
    /// Its session must not be captured, even if it has changed since.
    Declined,
    /// A sweep has inspected it, it has not changed, and it was skipped for this reason.
    Skipped(String),
}

/// What the queue knows about all transcripts at one moment.
#[derive(Clone, Debug, Default)]
pub struct KnownTranscripts {
    rows: HashMap<String, Row>,
    /// Sessions and transcripts of unfinished captures.
    waiting: HashSet<String>,
    /// Sessions and transcripts of captures that died before they read the transcript.
    unread: HashSet<String>,
    /// The transcripts that the client's hook has announced.
    pub announced: Vec<PathBuf>,
    /// Captures that sweeps added within a [`SWEEP_CAP_SPAN`] of now.
    pub swept_today: u32,
    /// Sessions that ended before this time are not captured; `None` until the first sweep sets it.
    pub since: Option<Timestamp>,
}

#[derive(Clone, Debug)]
struct Row {
    size: u64,
    modified_ms: i64,
    skip_reason: Option<String>,
    /// The outcome of its capture; `None` if there is no capture, or not any more.
    capture: Option<Option<String>>,
}

impl KnownTranscripts {
    /// The status of a session's transcript, given its present stamp.
    pub fn status(&self, session: &str, stamp: &TranscriptStamp) -> TranscriptStatus {
        let transcript = stamp.transcript.to_string_lossy();
        let is_in = |set: &HashSet<String>| set.contains(session) || set.contains(transcript.as_ref());
        let row = self.rows.get(transcript.as_ref());
        // Before all else: what is written from then on is not for anybody, whatever a capture has read before.
        if row.is_some_and(|row| row.skip_reason.as_deref() == Some(DECLINED)) {
            return TranscriptStatus::Declined;
        }
        if is_in(&self.waiting) {
            return TranscriptStatus::Waiting;
        }
        if is_in(&self.unread) {
            return TranscriptStatus::Dead;
        }
        match row.filter(|row| (row.size, row.modified_ms) == (stamp.size, stamp.modified_ms)) {
            None => match row {
                Some(Row { size, skip_reason: None, capture: Some(outcome), .. })
                    if *size < stamp.size && outcome.as_deref() != Some("dead") =>
                {
                    TranscriptStatus::Grown(*size)
                }
                _ => TranscriptStatus::New,
            },
            Some(Row { skip_reason: Some(reason), .. }) => TranscriptStatus::Skipped(reason.clone()),
            Some(Row { capture: None, .. }) => TranscriptStatus::Forgotten,
            Some(Row { capture: Some(outcome), .. }) if outcome.as_deref() == Some("dead") => {
                TranscriptStatus::Dead
            }
            Some(_) => TranscriptStatus::Read,
        }
    }
}

impl Queue {
    /// Reads what is known about transcripts; takes a few milliseconds for ten thousand of them.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn known_transcripts(&self, now: Timestamp) -> Result<KnownTranscripts, Error> {
        let mut connection = self.connection()?;
        // One transaction, so that a capture which ends in the meantime is in one of the sets.
        let transaction = connection.transaction()?;
        let mut known = KnownTranscripts {
            swept_today: swept_today(&transaction, now)?,
            since: transaction
                .query_row("SELECT value FROM counters WHERE name = 'since_ms'", [], |row| row.get(0))
                .optional()?
                .map(timestamp)
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
        let mut statement =
            transaction.prepare_cached("SELECT DISTINCT transcript FROM captures WHERE origin = ?1")?;
        let announced = statement.query_map([ORIGIN_HOOK], |row| row.get::<_, String>(0))?;
        known.announced = announced.map(|path| path.map(PathBuf::from)).collect::<Result<_, _>>()?;
        let mut statement = transaction.prepare_cached(
            "SELECT s.transcript, s.size, s.modified_ms, s.passed_over, c.id IS NOT NULL, c.outcome
             FROM seen AS s LEFT JOIN captures AS c ON c.id = s.capture_id",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let has_capture: bool = row.get(4)?;
            known.rows.insert(
                row.get(0)?,
                Row {
                    size: row.get::<_, i64>(1)?.unsigned_abs(),
                    modified_ms: row.get(2)?,
                    skip_reason: row.get(3)?,
                    capture: has_capture.then(|| row.get(5)).transpose()?,
                },
            );
        }
        Ok(known)
    }

    /// Adds captures of the sessions that a sweep found, in their order, up to the daily cap.
    ///
    /// Each is checked once more in the transaction that adds it, because another process may have added
    /// it in the meantime. Returns the new capture of each, or `None` if none was added.
    ///
    /// # Errors
    /// When the queue cannot be written.
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
                for (announcement, stamp) in batch {
                    let id = match room {
                        0 => None,
                        _ if is_covered(transaction, announcement, stamp)? => None,
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

    /// Records that transcripts were inspected and skipped, each with the reason.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn skip_transcripts(&self, skipped: &[(TranscriptStamp, String)]) -> Result<(), Error> {
        for batch in skipped.chunks(BATCH) {
            self.write(|transaction| {
                batch.iter().try_for_each(|(stamp, reason)| store(transaction, stamp, None, Some(reason)))
            })?;
        }
        Ok(())
    }

    /// Records that transcripts which a capture has read have grown by nothing that it would read.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn note_growth(&self, grown: &[TranscriptStamp]) -> Result<(), Error> {
        for batch in grown.chunks(BATCH) {
            self.write(|transaction| {
                batch.iter().try_for_each(|stamp| {
                    transaction
                        .prepare_cached(
                            "UPDATE seen SET size = ?2, modified_ms = ?3
                             WHERE transcript = ?1 AND size < ?2 AND capture_id IS NOT NULL",
                        )?
                        .execute(params![
                            stamp.transcript.to_string_lossy(),
                            stamp.size as i64,
                            stamp.modified_ms
                        ])?;
                    Ok(())
                })
            })?;
        }
        Ok(())
    }

    /// The time from which sessions are captured. The first call sets it to `first`.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn capture_start(&self, first: Timestamp) -> Result<Timestamp, Error> {
        self.write(|transaction| {
            transaction.execute(
                "INSERT OR IGNORE INTO counters VALUES ('since_ms', ?1)",
                [first.as_millisecond()],
            )?;
            timestamp(transaction.query_row(
                "SELECT value FROM counters WHERE name = 'since_ms'",
                [],
                |row| row.get(0),
            )?)
        })
    }
}

/// Records from a hook that a session must not be captured: no sweep adds it, even if its transcript
/// grows, and a capture that has not read it yet ends. A later announcement of the session counts again.
///
/// # Errors
/// When the queue cannot be opened or written within 0.4 s.
pub fn decline(path: &Path, transcript: &Path, now: Timestamp) -> Result<(), Error> {
    let stamp = TranscriptStamp { transcript: transcript.to_owned(), size: 0, modified_ms: 0 };
    let mut connection = schema::open(path, BusyTimeout::Hook)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    store(&transaction, &stamp, None, Some(DECLINED))?;
    // Also one that reads it at this moment: its claim is stale then.
    let unread: Vec<i64> = transaction
        .prepare(
            "SELECT id FROM captures WHERE stage = 'intake' AND (outcome IS NULL OR outcome = 'dead')
             AND (transcript = ?1 OR session_id = ?2)",
        )?
        .query_map(
            [transcript.to_string_lossy(), transcript.file_stem().unwrap_or_default().to_string_lossy()],
            |row| row.get(0),
        )?
        .collect::<Result<_, _>>()?;
    for id in unread {
        end(&transaction, id, State::Nothing, Some("the session went on with NUGGET_DISABLE"), now)?;
    }
    Ok(transaction.commit()?)
}

/// Stores the stamp of a transcript that a capture read.
pub(crate) fn store_read(
    transaction: &Transaction<'_>,
    stamp: &TranscriptStamp,
    capture: i64,
) -> Result<(), Error> {
    store(transaction, stamp, Some(capture), None)
}

fn store(
    transaction: &Transaction<'_>,
    stamp: &TranscriptStamp,
    capture: Option<i64>,
    skip_reason: Option<&str>,
) -> Result<(), Error> {
    let size = i64::try_from(stamp.size).unwrap_or(i64::MAX);
    transaction.prepare_cached("INSERT OR REPLACE INTO seen VALUES (?1, ?2, ?3, ?4, ?5)")?.execute(
        params![stamp.transcript.to_string_lossy(), size, stamp.modified_ms, capture, skip_reason],
    )?;
    Ok(())
}

/// Whether a session has an unfinished capture, or one that read the transcript as it is now, or is declined.
fn is_covered(
    transaction: &Transaction<'_>,
    announcement: &Announcement,
    stamp: &TranscriptStamp,
) -> Result<bool, Error> {
    let waiting = transaction
        .prepare_cached("SELECT 1 FROM captures WHERE session_id = ?1 AND outcome IS NULL")?
        .exists([announcement.session.as_str()])?;
    let read = || {
        transaction
            .prepare_cached(
                "SELECT 1 FROM seen LEFT JOIN captures ON captures.id = seen.capture_id
                 WHERE seen.transcript = ?1
                 AND (size = ?2 AND modified_ms = ?3 AND captures.id IS NOT NULL OR passed_over = ?4)",
            )?
            .exists(params![
                stamp.transcript.to_string_lossy(),
                stamp.size as i64,
                stamp.modified_ms,
                DECLINED
            ])
    };
    Ok(waiting || read()?)
}

fn swept_today(transaction: &Transaction<'_>, now: Timestamp) -> Result<u32, Error> {
    // In both directions: rows written by a clock in the future must not use up the cap for ever.
    Ok(transaction
        .prepare_cached("SELECT count(*) FROM captures WHERE origin = ?1 AND abs(added_ms - ?2) < ?3")?
        .query_row(params![ORIGIN_SWEEP, now.as_millisecond(), SWEEP_CAP_SPAN.as_millis() as i64], |row| {
            row.get(0)
        })?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestQueue, announcement};
    use crate::{Finish, Stage};

    fn found(session: &str, size: u64) -> (Announcement, TranscriptStamp) {
        let announcement = Announcement { origin: ORIGIN_SWEEP.to_owned(), ..announcement(session) };
        let transcript = announcement.transcript.clone();
        (announcement, TranscriptStamp { transcript, size, modified_ms: 7 })
    }

    impl TestQueue {
        fn add_all(&self, names: &[&str], cap: Option<u32>) -> Vec<Option<i64>> {
            let found: Vec<_> = names.iter().map(|name| found(name, 1)).collect();
            self.queue.add_found(&found, cap, self.now).unwrap()
        }

        fn record(&self, session: &str, size: u64) -> TranscriptStatus {
            self.queue.known_transcripts(self.now).unwrap().status(session, &found(session, size).1)
        }

        fn read(&self, session: &str, size: u64) {
            let claim = self.claim(Stage::Intake).unwrap();
            assert_eq!(claim.capture.session_id.as_str(), session);
            let nothing = Finish::Nothing { reason: "n".into() };
            self.queue
                .finish_with_transcript(&claim, &nothing, Some(&found(session, size).1), self.now)
                .unwrap();
        }
    }

    #[test]
    fn a_transcript_is_new_until_read_and_again_when_it_changes() {
        let test = TestQueue::new();
        assert_eq!(test.record("a", 1), TranscriptStatus::New);
        let id = test.add_all(&["a"], None)[0].unwrap();
        assert_eq!(test.record("a", 1), TranscriptStatus::Waiting);
        assert_eq!(test.add_all(&["a"], None), [None]);
        test.read("a", 1);
        assert_eq!(test.record("a", 1), TranscriptStatus::Read);
        assert_eq!(test.add_all(&["a"], None), [None]);
        assert_eq!(test.record("a", 2), TranscriptStatus::Grown(1));
        test.queue.forget(id, test.now).unwrap();
        assert_eq!(test.record("a", 1), TranscriptStatus::Forgotten);
    }

    #[test]
    fn intake_stores_the_stamp_in_the_same_transaction() {
        let test = TestQueue::new();
        test.add_all(&["a", "b"], None);
        let first = test.claim(Stage::Intake).unwrap();
        let second = test.claim(Stage::Intake).unwrap();
        let lines = ["x".to_owned()];
        let advance = |claim, name: &str| {
            let stamp = found(name, 1).1;
            test.queue.advance_with_lines(claim, Stage::Extraction, b"", &lines, Some(&stamp)).unwrap()
        };
        assert!(advance(&first, "a").is_empty());
        assert_eq!(advance(&second, "b"), ["x"], "the other capture has the line");
        for claim in [&first, &second] {
            // The first has advanced; what its stale claim says about the file is not stored either.
            let stamp = found("c", 1).1;
            let stale = test.queue.finish_with_transcript(
                claim,
                &Finish::Nothing { reason: "n".into() },
                Some(&stamp),
                test.now,
            );
            assert_eq!(stale.is_err(), claim.capture.session_id.as_str() == "a");
        }
        let rows: Vec<String> = {
            let connection = test.queue.connection().unwrap();
            let mut statement = connection
                .prepare("SELECT transcript || ' ' || capture_id FROM seen ORDER BY transcript")
                .unwrap();
            statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
        };
        assert_eq!(rows, ["/t/a.jsonl 1", "/t/c.jsonl 2"]);
    }

    #[test]
    fn the_daily_cap_holds_when_the_clock_jumps() {
        let mut test = TestQueue::new();
        let names = |letter: char| (0..5).map(|i| format!("{letter}{i}")).collect::<Vec<_>>();
        let add = |test: &TestQueue, letter: char| {
            let names = names(letter);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            test.add_all(&names, Some(3)).iter().flatten().count()
        };
        assert_eq!((add(&test, 'a'), add(&test, 'b')), (3, 0));
        test.now = "2026-11-21T14:11:00Z".parse().unwrap();
        assert_eq!(add(&test, 'c'), 0, "a minute short of a day");
        test.now = "2026-11-20T10:00:00Z".parse().unwrap();
        assert_eq!(add(&test, 'd'), 0, "four hours back");
        test.now = "2016-11-20T14:12:00Z".parse().unwrap();
        assert_eq!((add(&test, 'e'), add(&test, 'f')), (3, 0), "ten years back");
        test.now = "2036-11-20T14:12:00Z".parse().unwrap();
        assert_eq!(add(&test, 'g'), 3, "ten years on");
        assert_eq!(test.queue.known_transcripts(test.now).unwrap().swept_today, 3);
    }

    #[test]
    fn parallel_sweeps_add_each_session_once_within_the_cap() {
        let test = TestQueue::new();
        let path = test.queue.path().to_owned();
        let added: usize = std::thread::scope(|scope| {
            let sweeps: Vec<_> = (0..4)
                .map(|_| {
                    let (path, now) = (&path, test.now);
                    scope.spawn(move || {
                        let all: Vec<_> = (0..30).map(|i| found(&format!("s{i}"), 1)).collect();
                        let ids = Queue::open(path).unwrap().add_found(&all, Some(20), now).unwrap();
                        ids.iter().flatten().count()
                    })
                })
                .collect();
            sweeps.into_iter().map(|sweep| sweep.join().unwrap()).sum()
        });
        assert_eq!((added, test.queue.tally().unwrap().queued), (20, 20));
    }

    #[test]
    fn a_dead_capture_is_left_to_a_person() {
        let test = TestQueue::new();
        test.add_all(&["a"], None);
        let claim = test.claim(Stage::Intake).unwrap();
        test.queue.finish(&claim, &Finish::Dead { reason: "d".into() }, test.now).unwrap();
        assert_eq!(test.record("a", 2), TranscriptStatus::Dead);
        test.queue.retry(Some(claim.capture.id)).unwrap();
        assert_eq!(test.record("a", 2), TranscriptStatus::Waiting);
        // A capture that died after it read the transcript: later lines belong to another capture.
        let claim = test.claim(Stage::Intake).unwrap();
        let stamp = found("a", 2).1;
        test.queue.advance_with_lines(&claim, Stage::Extraction, b"", &[], Some(&stamp)).unwrap();
        let claim = test.claim(Stage::Extraction).unwrap();
        test.queue.finish(&claim, &Finish::Dead { reason: "d".into() }, test.now).unwrap();
        assert_eq!(
            (test.record("a", 2), test.record("a", 3)),
            (TranscriptStatus::Dead, TranscriptStatus::New)
        );
    }

    #[test]
    fn skipped_and_declined_transcripts_are_recorded() {
        let test = TestQueue::new();
        let why = "excluded".to_owned();
        test.queue.skip_transcripts(&[(found("a", 1).1, why.clone())]).unwrap();
        assert_eq!(test.record("a", 1), TranscriptStatus::Skipped(why));
        assert_eq!(test.record("a", 2), TranscriptStatus::New);
        decline(test.queue.path(), Path::new("/t/b.jsonl"), test.now).unwrap();
        assert_eq!(test.record("b", 5), TranscriptStatus::Declined);
        assert_eq!(test.add_all(&["b"], None), [None], "it was declined while the sweep looked");
        let first: Timestamp = "2026-11-01T00:00:00Z".parse().unwrap();
        assert_eq!(test.queue.capture_start(first).unwrap(), first);
        assert_eq!(test.queue.capture_start(test.now).unwrap(), first);
    }

    #[test]
    fn a_declined_session_is_read_by_no_earlier_capture() {
        let test = TestQueue::new();
        let state = |id| test.queue.capture(id).unwrap().unwrap().state;
        let decline = || decline(test.queue.path(), Path::new("/t/a.jsonl"), test.now).unwrap();
        let waits = test.add("a");
        decline();
        assert_eq!((state(waits), test.record("a", 1)), (State::Nothing, TranscriptStatus::Declined));
        // One that reads it, and one that died and would be tried again.
        let reads = test.add("a");
        let claim = test.claim(Stage::Intake).unwrap();
        decline();
        let stamp = found("a", 1).1;
        let read = test.queue.advance_with_lines(&claim, Stage::Extraction, b"", &[], Some(&stamp));
        assert!(matches!(read, Err(Error::Stale { .. })), "{read:?}");
        let dead = test.add("a");
        let claim = test.claim(Stage::Intake).unwrap();
        test.queue.finish(&claim, &Finish::Dead { reason: "d".into() }, test.now).unwrap();
        decline();
        assert_eq!((state(reads), state(dead)), (State::Nothing, State::Nothing));
        // A later announcement counts; what it has read by the next time goes on.
        let later = test.add("a");
        let claim = test.claim(Stage::Intake).unwrap();
        test.queue.advance_with_lines(&claim, Stage::Extraction, b"", &[], Some(&stamp)).unwrap();
        assert_eq!(test.record("a", 1), TranscriptStatus::Waiting);
        decline();
        assert_eq!((state(later), test.record("a", 1)), (State::Queued, TranscriptStatus::Declined));
    }
}
