//! The rows of the table `captures`: adding them and reading them.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Params, Row, Transaction, TransactionBehavior, params};

use crate::Error;
use crate::capture::{Announcement, Capture, Claim, State};
use crate::schema::{self, BusyTimeout};
use crate::spool::Spool;
use crate::store::{Queue, timestamp};

/// The result of adding an announcement. Both variants hold the capture's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// A new capture was added.
    New(i64),
    /// The session already waits for intake; that capture will read the transcript as it is by then.
    AlreadyQueued(i64),
}

impl Added {
    /// The capture's number.
    pub fn id(self) -> i64 {
        match self {
            Self::New(id) | Self::AlreadyQueued(id) => id,
        }
    }
}

/// Adds a capture from a hook: one connection, one row, and at most 0.4 s of waiting for other writers.
///
/// # Errors
/// When the queue cannot be opened or written in that time.
pub fn announce(path: &Path, announcement: &Announcement, now: Timestamp) -> Result<Added, Error> {
    let mut connection = schema::open(path, BusyTimeout::Hook)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let added = insert(&transaction, announcement, now)?;
    transaction.commit()?;
    Ok(added)
}

impl Queue {
    /// Adds a capture, unless its session already waits for intake.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn add(&self, announcement: &Announcement, now: Timestamp) -> Result<Added, Error> {
        self.write(|transaction| insert(transaction, announcement, now))
    }

    /// Adds the announcements that hooks left in the spool. A file is removed after its row is committed.
    /// Returns how many there were.
    ///
    /// # Errors
    /// When the spool cannot be read or the queue cannot be written.
    pub fn add_spooled(&self, spool: &Spool, now: Timestamp) -> Result<usize, Error> {
        let failed = |source| Error::File { path: self.path().to_owned(), source };
        let found = spool.list().map_err(failed)?;
        for (path, announcement) in &found {
            self.add(announcement, now)?;
            failpoint::here!("spool-after-row");
            spool.remove(path).map_err(failed)?;
        }
        Ok(found.len())
    }

    /// The capture with this number.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn capture(&self, id: i64) -> Result<Option<Capture>, Error> {
        get(&*self.connection()?, id)
    }

    /// The latest captures, newest first.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn captures(&self, limit: usize) -> Result<Vec<Capture>, Error> {
        self.select("ORDER BY id DESC LIMIT ?1", [limit])
    }

    /// The captures that a `WHERE` and `ORDER BY` clause selects.
    pub(crate) fn select(&self, clause: &str, params: impl Params) -> Result<Vec<Capture>, Error> {
        self.query(&format!("{SELECT} {clause}"), params, read)
    }
}

pub(crate) fn insert(
    transaction: &Transaction<'_>,
    announcement: &Announcement,
    now: Timestamp,
) -> Result<Added, Error> {
    let transcript = announcement.transcript.to_string_lossy();
    let waiting: Option<i64> = transaction
        .prepare_cached(
            "SELECT id FROM captures WHERE session_id = ?1 AND transcript = ?2 AND stage = 'intake'
             AND outcome IS NULL AND claim IS NULL",
        )?
        .query_row(params![announcement.session.as_str(), transcript], |row| row.get(0))
        .optional()?;
    if let Some(id) = waiting {
        return Ok(Added::AlreadyQueued(id));
    }
    transaction
        .prepare_cached(
            "INSERT INTO captures (session_id, transcript, cwd, origin, end_reason, stage, added_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, 'intake', ?6)",
        )?
        .execute(params![
            announcement.session.as_str(),
            transcript,
            announcement.cwd.as_ref().map(|cwd| cwd.to_string_lossy()),
            announcement.origin,
            announcement.reason,
            now.as_millisecond(),
        ])?;
    Ok(Added::New(transaction.last_insert_rowid()))
}

/// Fails with [`Error::Stale`] unless the claim is still valid.
pub(crate) fn check_claim(transaction: &Transaction<'_>, claim: &Claim) -> Result<(), Error> {
    let id = claim.capture.id;
    let is_valid = transaction
        .prepare_cached("SELECT 1 FROM captures WHERE id = ?1 AND claim = ?2 AND outcome IS NULL")?
        .exists(params![id, claim.token])?;
    if is_valid { Ok(()) } else { Err(Error::Stale { id }) }
}

/// Ends a capture, and deletes what only its stages needed.
pub(crate) fn end(
    transaction: &Transaction<'_>,
    id: i64,
    outcome: State,
    reason: Option<&str>,
    now: Timestamp,
) -> Result<(), Error> {
    transaction.execute(
        "UPDATE captures SET outcome = ?2, claim = NULL, finished_ms = ?4, reason = ?3 WHERE id = ?1",
        params![id, outcome.as_str(), reason, now.as_millisecond()],
    )?;
    // A dead capture keeps its stage's input: a retry goes on from there.
    if outcome != State::Dead {
        // While its pull request is open, its branch may have to be made again on a newer base; what a server was given may
        // have to be given to it again.
        transaction.execute(
            "DELETE FROM results WHERE capture_id = ?1 AND NOT (?2 = 'done' AND EXISTS (
                 SELECT 1 FROM captures WHERE id = ?1 AND (pull_state = 'open' OR stage = 'upload')))",
            params![id, outcome.as_str()],
        )?;
        transaction.execute("DELETE FROM answers WHERE capture_id = ?1", [id])?;
    }
    Ok(())
}

const SELECT: &str = "SELECT id, session_id, transcript, cwd, origin, stage, claim IS NOT NULL, attempts,
    not_before_ms, outcome, reason, branch, commit_id, units, added_ms, started_ms, finished_ms,
    pushed, pull_number, pull_url, pull_state FROM captures";

pub(crate) fn get(connection: &Connection, id: i64) -> Result<Option<Capture>, Error> {
    let mut statement = connection.prepare_cached(&format!("{SELECT} WHERE id = ?1"))?;
    let mut rows = statement.query([id])?;
    rows.next()?.map(read).transpose()
}

fn read(row: &Row<'_>) -> Result<Capture, Error> {
    let attempts: u32 = row.get(7)?;
    let state = state(row.get::<_, Option<String>>(9)?.as_deref(), row.get(6)?, attempts > 0)?;
    // One that waits for what others do is queued, and is not due before its time either.
    let waits = matches!(state, State::Retrying | State::Queued);
    let next_attempt = Some(row.get(8)?).filter(|due: &i64| waits && *due > 0);
    Ok(Capture {
        id: row.get(0)?,
        session_id: knowledge::SessionId::verbatim(row.get::<_, String>(1)?),
        transcript: PathBuf::from(row.get::<_, String>(2)?),
        cwd: row.get::<_, Option<String>>(3)?.map(PathBuf::from),
        origin: row.get(4)?,
        state,
        stage: row.get::<_, String>(5)?.parse()?,
        attempts,
        branch: row.get(11)?,
        commit: row.get(12)?,
        units: row.get(13)?,
        pushed: row.get(17)?,
        pull_number: row.get(18)?,
        pull_url: row.get(19)?,
        pull_state: row.get::<_, Option<String>>(20)?.map(|state| state.parse()).transpose()?,
        reason: row.get(10)?,
        added: timestamp(row.get(14)?)?,
        started: row.get::<_, Option<i64>>(15)?.map(timestamp).transpose()?,
        finished: row.get::<_, Option<i64>>(16)?.map(timestamp).transpose()?,
        next_attempt: next_attempt.map(timestamp).transpose()?,
    })
}

/// The state that a row's columns stand for: its outcome, whether it is claimed, whether it was attempted.
pub(crate) fn state(outcome: Option<&str>, is_claimed: bool, was_attempted: bool) -> Result<State, Error> {
    Ok(match outcome {
        Some("done") => State::Done,
        Some("nothing") => State::Nothing,
        Some("dead") => State::Dead,
        Some(other) => {
            return Err(Error::Value { what: format!("outcome {other:?}") });
        }
        None if is_claimed => State::Running,
        None if was_attempted => State::Retrying,
        None => State::Queued,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestQueue, announcement};
    use crate::{Finish, Stage};

    #[test]
    fn a_session_that_already_waits_is_not_queued_twice() {
        let test = TestQueue::new();
        let id = test.add("s1");
        assert_eq!(test.queue.add(&announcement("s1"), test.now).unwrap(), Added::AlreadyQueued(id));
        let claim = test.claim(Stage::Intake).unwrap();
        let second = test.add("s1");
        assert_ne!(second, id, "a session that ends after its transcript was claimed gets a new capture");
        assert!(test.claim(Stage::Intake).is_none(), "the new capture waits for the running one");
        test.queue.finish(&claim, &Finish::Nothing { reason: "empty".into() }, test.now).unwrap();
        assert_eq!(test.claim(Stage::Intake).unwrap().capture.id, second);
    }

    #[test]
    fn spooled_announcements_are_added_once() {
        let test = TestQueue::new();
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::new(folder.path().join("spool"));
        spool.put(&announcement("s1")).unwrap();
        spool.put(&announcement("s1")).unwrap();
        spool.put(&announcement("s2")).unwrap();
        std::fs::write(folder.path().join("spool/torn.json"), "{\"session\":").unwrap();
        assert_eq!(test.queue.add_spooled(&spool, test.now).unwrap(), 2);
        assert_eq!(test.queue.add_spooled(&spool, test.now).unwrap(), 0);
        assert_eq!(test.queue.tally().unwrap().queued, 2);
    }

    #[test]
    fn files_of_a_killed_hook_are_added_or_removed() {
        let test = TestQueue::new();
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::new(folder.path().to_owned());
        let leave = |name: &str, body: &str| std::fs::write(folder.path().join(name), body).unwrap();
        let dead_process = i32::MAX;
        let complete = serde_json::to_string(&announcement("complete")).unwrap();
        leave(&format!("1.{dead_process}.new"), &complete);
        leave(&format!("2.{dead_process}.new"), &complete[..20]);
        let own = format!("3.{}.new", std::process::id());
        leave(&own, &complete[..20]);
        assert_eq!(test.queue.add_spooled(&spool, test.now).unwrap(), 1);
        let names: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [own.as_str()], "its writer is still running");
    }

    #[test]
    fn parallel_hooks_and_workers_lose_no_row() {
        let test = TestQueue::new();
        let path = test.queue.path().to_owned();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (path, now) = (&path, test.now);
                scope.spawn(move || {
                    for i in 0..10 {
                        announce(path, &announcement(&format!("s{thread}-{i}")), now).unwrap();
                    }
                });
            }
        });
        assert_eq!(test.queue.tally().unwrap().queued, 80);
    }
}
