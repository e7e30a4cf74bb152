//! The queue itself: adding, claiming, advancing, ending.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backoff::backoff::Backoff as _;
use jiff::Timestamp;
use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, TransactionBehavior, params};

use crate::capture::{ATTEMPTS_MAX, Announcement, Capture, Claim, Finish, Outcome, Stage, State, Tally};
use crate::delivery::{self, Branch};
use crate::proposals::{self, ProposedUnit};
use crate::schema::{self, Patience};
use crate::transcripts::{self, TranscriptStamp};
use crate::{Error, Spool};

/// The first wait before a retry; each further one is about twice as long, give or take half.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// The longest wait before a retry. A time further ahead than this was set by a clock that jumped.
pub(crate) const RETRY_MAX: Duration = Duration::from_secs(15 * 60);
const CONNECTIONS_MAX: u32 = 6;
/// From this size on the log is begun anew.
const LOG_BYTES_MAX: u64 = 6 << 20;

/// What became of an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    New(i64),
    /// The same session was waiting already; its capture will read the transcript as it is then.
    AlreadyQueued(i64),
}

impl Added {
    pub fn id(self) -> i64 {
        match self {
            Self::New(id) | Self::AlreadyQueued(id) => id,
        }
    }
}

/// The queue of one brain, for those who work on it or look into it.
#[derive(Clone, Debug)]
pub struct Queue {
    pool: r2d2::Pool<SqliteConnectionManager>,
    path: PathBuf,
    /// Held by whoever writes: in one process they take turns, and need not sleep until SQLite lets them in.
    writing: Arc<Mutex<()>>,
}

/// Adds a capture the way a hook does: one connection, one row, no more than 0.4 s of waiting for
/// others' writes.
pub fn announce(path: &Path, announcement: &Announcement, now: Timestamp) -> Result<Added, Error> {
    let mut connection = schema::open(path, Patience::Hook)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let added = insert(&transaction, announcement, now)?;
    transaction.commit()?;
    Ok(added)
}

impl Queue {
    /// Opens the queue, making it if there is none.
    pub fn open(path: &Path) -> Result<Self, Error> {
        // One connection first: it makes the tables, and its error is clearer than the pool's.
        drop(schema::open(path, Patience::Worker)?);
        let manager = SqliteConnectionManager::file(path)
            .with_init(|connection| schema::set_up(connection, Patience::Worker));
        let pool = r2d2::Pool::builder()
            .max_size(CONNECTIONS_MAX)
            .min_idle(Some(1))
            .connection_timeout(Duration::from_secs(20))
            .build(manager)?;
        Ok(Self { pool, path: path.to_owned(), writing: Arc::default() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn add(&self, announcement: &Announcement, now: Timestamp) -> Result<Added, Error> {
        self.write(|transaction| insert(transaction, announcement, now))
    }

    /// Takes in what hooks have left in the spool; a file goes once its row is committed.
    pub fn add_spooled(&self, spool: &Spool, now: Timestamp) -> Result<usize, Error> {
        let wrong = |source| Error::File { path: self.path.clone(), source };
        let found = spool.list().map_err(wrong)?;
        for (path, announcement) in &found {
            self.add(announcement, now)?;
            failpoint::here!("spool-after-row");
            spool.remove(path).map_err(wrong)?;
        }
        Ok(found.len())
    }

    /// Claims the oldest capture that waits at a stage and is due.
    ///
    /// The attempt is counted here, before the work, so that a job which kills its process is still
    /// parked in the end. At intake a session that has a capture in the works waits for it: what
    /// that one takes, this one must not take again. One that is to be delivered has taken it.
    pub fn claim(&self, stage: Stage, now: Timestamp) -> Result<Option<Claim>, Error> {
        let now_ms = now.as_millisecond();
        // Bells ring for all stages at once, and most often all but one have nothing: no turn for that.
        if !self.has_unclaimed(stage)? {
            return Ok(None);
        }
        self.write(|transaction| {
            if delivery::is_paused(transaction, stage, now_ms)? {
                return Ok(None);
            }
            loop {
                let found: Option<(i64, u32)> = transaction
                    .prepare_cached(
                        "SELECT id, attempts FROM captures AS c
                         WHERE stage = ?1 AND outcome IS NULL AND claim IS NULL
                           AND (not_before_ms <= ?2 OR not_before_ms > ?3)
                           AND (?1 <> 'intake' OR NOT EXISTS (
                               SELECT 1 FROM captures AS other
                               WHERE other.session_id = c.session_id AND other.outcome IS NULL
                                 AND other.stage <> 'delivery' AND other.id < c.id))
                         ORDER BY id LIMIT 1",
                    )?
                    .query_row(
                        params![stage.as_str(), now_ms, now_ms + RETRY_MAX.as_millis() as i64 * 2],
                        |row| Ok((row.get(0)?, row.get(1)?)),
                    )
                    .optional()?;
                let Some((id, attempts)) = found else { return Ok(None) };
                if attempts >= ATTEMPTS_MAX {
                    let reason = "it ended the process that worked on it, each time";
                    end(transaction, id, Outcome::Dead, Some(reason), now)?;
                    continue;
                }
                transaction.execute("UPDATE counters SET value = value + 1 WHERE name = 'claim'", [])?;
                let token: i64 =
                    transaction
                        .query_row("SELECT value FROM counters WHERE name = 'claim'", [], |row| row.get(0))?;
                transaction.execute(
                    "UPDATE captures SET claim = ?2, attempts = attempts + 1,
                         started_ms = coalesce(started_ms, ?3) WHERE id = ?1",
                    params![id, token, now_ms],
                )?;
                let capture = get(transaction, id)?.ok_or(Error::Unknown { id })?;
                let input = transaction
                    .query_row("SELECT body FROM results WHERE capture_id = ?1", [id], |row| row.get(0))
                    .optional()?
                    .unwrap_or_default();
                return Ok(Some(Claim { capture, input, token }));
            }
        })
    }

    fn has_unclaimed(&self, stage: Stage) -> Result<bool, Error> {
        let connection = self.pool.get()?;
        let mut statement = connection.prepare_cached(
            "SELECT 1 FROM captures WHERE stage = ?1 AND outcome IS NULL AND claim IS NULL LIMIT 1",
        )?;
        Ok(statement.exists([stage.as_str()])?)
    }

    /// Keeps a stage's result and passes the capture on to the next stage, in one transaction.
    ///
    /// # Errors
    /// [`Error::Stale`] when the claim has been given to somebody else since.
    pub fn advance(&self, claim: &Claim, next: Stage, result: &[u8]) -> Result<(), Error> {
        self.write(|transaction| advance(transaction, claim, next, result))
    }

    /// [`advance`](Self::advance) for intake: takes the lines for this capture as well, and keeps
    /// what the transcript was like as it was read.
    ///
    /// Returns the lines that another capture has taken meanwhile; the caller reads again without
    /// them, and nothing has been changed.
    pub fn advance_with_lines(
        &self,
        claim: &Claim,
        next: Stage,
        result: &[u8],
        lines: &[String],
        seen: Option<&TranscriptStamp>,
    ) -> Result<Vec<String>, Error> {
        self.write(|transaction| {
            let mut taken = Vec::new();
            for line in lines {
                if is_owned_by_other(transaction, LINE_OWNER, line, claim.capture.id)? {
                    taken.push(line.clone());
                }
            }
            if !taken.is_empty() {
                return Ok(taken);
            }
            let mut take = transaction.prepare_cached("INSERT OR IGNORE INTO lines VALUES (?1, ?2)")?;
            for line in lines {
                take.execute(params![line, claim.capture.id])?;
            }
            advance(transaction, claim, next, result)?;
            if let Some(seen) = seen {
                transcripts::keep_read(transaction, seen, claim.capture.id)?;
            }
            Ok(taken)
        })
    }

    /// Whether a line has been taken by another capture than this one.
    pub fn is_taken(&self, capture: i64, line: &str) -> Result<bool, Error> {
        is_owned_by_other(&*self.pool.get()?, LINE_OWNER, line, capture)
    }

    /// Keeps what a stage has decided before it acts on it, so that the next attempt does the very
    /// same; the names that it gives become this capture's.
    ///
    /// Returns the names that another capture has; nothing is kept then.
    pub fn save_result(
        &self,
        claim: &Claim,
        result: &[u8],
        units: &[ProposedUnit],
    ) -> Result<Vec<String>, Error> {
        let id = claim.capture.id;
        self.write(|transaction| {
            check(transaction, claim)?;
            let mut taken = Vec::new();
            for unit in units.iter().filter(|unit| unit.is_new) {
                if is_owned_by_other(transaction, NAME_OWNER, &unit.name, id)? {
                    taken.push(unit.name.clone());
                }
            }
            if !taken.is_empty() {
                return Ok(taken);
            }
            proposals::keep(transaction, id, units)?;
            transaction.execute("INSERT OR REPLACE INTO results VALUES (?1, ?2)", params![id, result])?;
            Ok(taken)
        })
    }

    /// Whether another capture than this one has given a unit this name.
    pub fn is_name_taken(&self, capture: i64, name: &str) -> Result<bool, Error> {
        is_owned_by_other(&*self.pool.get()?, NAME_OWNER, name, capture)
    }

    /// [`advance`](Self::advance) for git: notes the branch that it has made as well.
    ///
    /// # Errors
    /// [`Error::Stale`] when the claim has been given to somebody else since.
    pub fn advance_with_branch(
        &self,
        claim: &Claim,
        next: Stage,
        result: &[u8],
        branch: &Branch,
    ) -> Result<(), Error> {
        self.write(|transaction| {
            advance(transaction, claim, next, result)?;
            note_branch(transaction, claim.capture.id, branch)
        })
    }

    /// Ends a capture.
    pub fn finish(&self, claim: &Claim, finish: &Finish, now: Timestamp) -> Result<(), Error> {
        self.finish_with_transcript(claim, finish, None, now)
    }

    /// [`finish`](Self::finish) for intake: keeps what the transcript was like as well.
    pub fn finish_with_transcript(
        &self,
        claim: &Claim,
        finish: &Finish,
        seen: Option<&TranscriptStamp>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let id = claim.capture.id;
        self.write(|transaction| {
            check(transaction, claim)?;
            if let Some(seen) = seen {
                transcripts::keep_read(transaction, seen, id)?;
            }
            match finish {
                Finish::Done { branch, commit, units } => {
                    let branch = Branch { name: branch.clone(), commit: commit.clone(), units: *units };
                    note_branch(transaction, id, &branch)?;
                    end(transaction, id, Outcome::Done, None, now)
                }
                Finish::Nothing { reason } => end(transaction, id, Outcome::Nothing, Some(reason), now),
                Finish::Dead { reason } => end(transaction, id, Outcome::Dead, Some(reason), now),
            }
        })
    }

    /// Gives a capture back after a failure: due again after a growing, jittered wait, or dead
    /// after [`ATTEMPTS_MAX`] attempts. `after` is what the other side asked for; such a snooze is
    /// no attempt, for the job did nothing wrong.
    pub fn fail(
        &self,
        claim: &Claim,
        error: &str,
        after: Option<Duration>,
        now: Timestamp,
    ) -> Result<State, Error> {
        let id = claim.capture.id;
        self.write(|transaction| {
            check(transaction, claim)?;
            if after.is_none() && claim.capture.attempts >= ATTEMPTS_MAX {
                end(transaction, id, Outcome::Dead, Some(error), now)?;
                return Ok(State::Dead);
            }
            let wait = after.unwrap_or_else(|| retry_wait(&claim.capture)).min(RETRY_MAX);
            transaction.execute(
                "UPDATE captures SET claim = NULL, reason = ?2, not_before_ms = ?3, attempts = attempts - ?4
                 WHERE id = ?1",
                params![
                    id,
                    error,
                    now.as_millisecond() + wait.as_millis() as i64,
                    u32::from(after.is_some())
                ],
            )?;
            Ok(State::Retrying)
        })
    }

    /// Makes claimable again what an earlier life of a stage had in hand; of every stage when
    /// `None`, which only the holder of the drain lock may ask for.
    pub fn release_claims(&self, stage: Option<Stage>) -> Result<usize, Error> {
        self.write(|transaction| {
            Ok(transaction.execute(
                "UPDATE captures SET claim = NULL
                 WHERE outcome IS NULL AND claim IS NOT NULL AND (?1 IS NULL OR stage = ?1)",
                [stage.map(Stage::as_str)],
            )?)
        })
    }

    /// Makes claimable again what a fallen life of a stage had in hand, and keeps what it fell of:
    /// should the capture bring down every life, that is why it is dead.
    pub fn release_failed(&self, stage: Stage, why: &str) -> Result<usize, Error> {
        self.write(|transaction| {
            Ok(transaction.execute(
                "UPDATE captures SET claim = NULL, reason = ?2
                 WHERE outcome IS NULL AND claim IS NOT NULL AND stage = ?1",
                params![stage.as_str(), why],
            )?)
        })
    }

    /// Brings a dead capture back, or all of them: it starts again at the stage where it died.
    pub fn retry(&self, id: Option<i64>) -> Result<usize, Error> {
        self.write(|transaction| {
            let changed = transaction.execute(
                "UPDATE captures SET outcome = NULL, claim = NULL, attempts = 0, not_before_ms = 0,
                     finished_ms = NULL WHERE outcome = 'dead' AND (?1 IS NULL OR id = ?1)",
                [id],
            )?;
            transaction.execute(
                "UPDATE captures SET not_before_ms = 0 WHERE outcome IS NULL AND claim IS NULL AND (?1 IS NULL OR id = ?1)",
                [id],
            )?;
            transaction.execute("DELETE FROM pauses", [])?;
            match id {
                Some(id) if get(transaction, id)?.is_none() => Err(Error::Unknown { id }),
                _ => Ok(changed),
            }
        })
    }

    /// Strikes a capture from the ledger. Its lines are free again: the session may be captured anew.
    pub fn forget(&self, id: i64) -> Result<(), Error> {
        self.write(|transaction| match transaction.execute("DELETE FROM captures WHERE id = ?1", [id])? {
            0 => Err(Error::Unknown { id }),
            _ => Ok(()),
        })
    }

    pub fn tally(&self) -> Result<Tally, Error> {
        let connection = self.pool.get()?;
        let mut statement = connection.prepare_cached(
            "SELECT outcome, claim IS NOT NULL, attempts > 0, count(*) FROM captures GROUP BY 1, 2, 3",
        )?;
        let mut rows = statement.query([])?;
        let mut tally = Tally::default();
        while let Some(row) = rows.next()? {
            let count = row.get::<_, i64>(3)?.unsigned_abs();
            match state(row.get::<_, Option<String>>(0)?.as_deref(), row.get(1)?, row.get(2)?)? {
                State::Queued => tally.queued += count,
                State::Running => tally.running += count,
                State::Retrying => tally.retrying += count,
                State::Done => tally.done += count,
                State::Nothing => tally.nothing += count,
                State::Dead => tally.dead += count,
            }
        }
        Ok(tally)
    }

    /// How many captures have not ended; asked often, so only they are looked at.
    pub fn unfinished(&self) -> Result<u64, Error> {
        let connection = self.pool.get()?;
        let mut statement =
            connection.prepare_cached("SELECT count(*) FROM captures WHERE outcome IS NULL")?;
        Ok(statement.query_row([], |row| row.get::<_, i64>(0))?.unsigned_abs())
    }

    /// Whether any capture can be worked on now. The cheap look of a drainer about to go.
    pub fn is_due(&self, now: Timestamp) -> Result<bool, Error> {
        let connection = self.pool.get()?;
        let now_ms = now.as_millisecond();
        let mut statement = connection.prepare_cached(&format!(
            "SELECT 1 FROM captures WHERE outcome IS NULL AND (not_before_ms <= ?1 OR not_before_ms > ?2)
             AND {} LIMIT 1",
            delivery::NOT_PAUSED
        ))?;
        Ok(statement.exists(params![
            now_ms,
            now_ms + RETRY_MAX.as_millis() as i64 * 2,
            now_ms + delivery::PAUSE_SPAN_MS
        ])?)
    }

    /// Whether any capture waits to be claimed now. Nobody need look for those in somebody's hands.
    pub fn is_claimable(&self, now: Timestamp) -> Result<bool, Error> {
        let connection = self.pool.get()?;
        let now_ms = now.as_millisecond();
        let mut statement = connection.prepare_cached(&format!(
            "SELECT 1 FROM captures WHERE outcome IS NULL AND claim IS NULL
             AND (not_before_ms <= ?1 OR not_before_ms > ?2) AND {} LIMIT 1",
            delivery::NOT_PAUSED
        ))?;
        Ok(statement.exists(params![
            now_ms,
            now_ms + RETRY_MAX.as_millis() as i64 * 2,
            now_ms + delivery::PAUSE_SPAN_MS
        ])?)
    }

    /// When the next retry is due, if any waits.
    pub fn next_due(&self) -> Result<Option<Timestamp>, Error> {
        let connection = self.pool.get()?;
        let due: Option<i64> = connection.query_row(
            "SELECT min(max(not_before_ms, coalesce((SELECT until_ms FROM pauses WHERE pauses.stage = captures.stage), 0)))
             FROM captures WHERE outcome IS NULL AND claim IS NULL",
            [],
            |row| row.get(0),
        )?;
        due.map(timestamp).transpose()
    }

    pub fn capture(&self, id: i64) -> Result<Option<Capture>, Error> {
        get(&*self.pool.get()?, id)
    }

    /// The latest captures, newest first.
    pub fn captures(&self, limit: usize) -> Result<Vec<Capture>, Error> {
        let connection = self.pool.get()?;
        let mut statement = connection.prepare_cached(&format!("{SELECT} ORDER BY id DESC LIMIT ?1"))?;
        let mut rows = statement.query([limit as i64])?;
        let mut captures = Vec::new();
        while let Some(row) = rows.next()? {
            captures.push(read(row)?);
        }
        Ok(captures)
    }

    /// Leaves word for `nugget status`.
    pub fn report(&self, name: &str, body: &str, now: Timestamp) -> Result<(), Error> {
        self.write(|transaction| {
            transaction.execute(
                "INSERT OR REPLACE INTO reports VALUES (?1, ?2, ?3, ?4)",
                params![name, std::process::id(), now.as_millisecond(), body],
            )?;
            Ok(())
        })
    }

    /// What was last reported under a name: process, time, text.
    pub fn last_report(&self, name: &str) -> Result<Option<(u32, Timestamp, String)>, Error> {
        let connection = self.pool.get()?;
        let row: Option<(u32, i64, String)> = connection
            .query_row("SELECT pid, at_ms, body FROM reports WHERE name = ?1", [name], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .optional()?;
        row.map(|(pid, at, body)| Ok((pid, timestamp(at)?, body))).transpose()
    }

    /// Does as [`checkpoint`](Self::checkpoint) when the log has grown large. SQLite's own checkpoints never
    /// begin it anew while anybody reads, and with five stages at work somebody always does: over 10,000
    /// captures it grew to 181 MiB.
    pub fn truncate_large_log(&self) -> Result<(), Error> {
        let mut log = self.path.clone().into_os_string();
        log.push("-wal");
        match std::fs::metadata(log) {
            Ok(metadata) if metadata.len() > LOG_BYTES_MAX => self.checkpoint(),
            _ => Ok(()),
        }
    }

    /// Moves the write-ahead log into the database and empties it; for a drainer with nothing to do.
    pub fn checkpoint(&self) -> Result<(), Error> {
        let connection = self.pool.get()?;
        let _turn = self.turn();
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(())
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn connection(&self) -> Result<r2d2::PooledConnection<SqliteConnectionManager>, Error> {
        Ok(self.pool.get()?)
    }

    /// Every write takes the write lock as it begins: a transaction that first reads and then wants
    /// to write would be refused at once, whatever the patience.
    pub(crate) fn write<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut connection = self.pool.get()?;
        let _turn = self.turn();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let value = work(&transaction)?;
        transaction.commit()?;
        Ok(value)
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

const LINE_OWNER: &str = "SELECT 1 FROM lines WHERE uuid = ?1 AND capture_id <> ?2";
const NAME_OWNER: &str = "SELECT 1 FROM names WHERE name = ?1 AND capture_id <> ?2";

fn is_owned_by_other(connection: &Connection, owner: &str, key: &str, capture: i64) -> Result<bool, Error> {
    Ok(connection.prepare_cached(owner)?.exists(params![key, capture])?)
}

pub(crate) fn check(transaction: &Transaction<'_>, claim: &Claim) -> Result<(), Error> {
    let id = claim.capture.id;
    let in_force = transaction
        .prepare_cached("SELECT 1 FROM captures WHERE id = ?1 AND claim = ?2 AND outcome IS NULL")?
        .exists(params![id, claim.token])?;
    if in_force { Ok(()) } else { Err(Error::Stale { id }) }
}

fn advance(transaction: &Transaction<'_>, claim: &Claim, next: Stage, result: &[u8]) -> Result<(), Error> {
    check(transaction, claim)?;
    let id = claim.capture.id;
    transaction.execute("INSERT OR REPLACE INTO results VALUES (?1, ?2)", params![id, result])?;
    transaction.execute(
        "UPDATE captures SET stage = ?2, claim = NULL, attempts = 0, not_before_ms = 0, reason = NULL WHERE id = ?1",
        params![id, next.as_str()],
    )?;
    Ok(())
}

fn note_branch(transaction: &Transaction<'_>, id: i64, branch: &Branch) -> Result<(), Error> {
    transaction.execute(
        "UPDATE captures SET branch = ?2, commit_id = ?3, units = ?4 WHERE id = ?1",
        params![id, branch.name, branch.commit, branch.units],
    )?;
    Ok(())
}

fn end(
    transaction: &Transaction<'_>,
    id: i64,
    outcome: Outcome,
    reason: Option<&str>,
    now: Timestamp,
) -> Result<(), Error> {
    // A dead letter keeps what its stage was given: a retry goes on from there. The last error of
    // a job that ended its process is worth more than the remark that it did.
    transaction.execute(
        "UPDATE captures SET outcome = ?2, claim = NULL, finished_ms = ?4,
             reason = CASE WHEN ?2 = 'dead' AND reason IS NOT NULL AND ?3 LIKE 'it ended the process%'
                           THEN reason ELSE ?3 END
         WHERE id = ?1",
        params![id, outcome.as_str(), reason, now.as_millisecond()],
    )?;
    if outcome != Outcome::Dead {
        // While its pull request is open it may have to be made anew, on what was merged meanwhile.
        transaction.execute(
            "DELETE FROM results WHERE capture_id = ?1 AND NOT (?2 = 'done' AND EXISTS (
                 SELECT 1 FROM captures WHERE id = ?1 AND pull_state = 'open'))",
            params![id, outcome.as_str()],
        )?;
        transaction.execute("DELETE FROM answers WHERE capture_id = ?1", [id])?;
    }
    Ok(())
}

pub(crate) const SELECT: &str =
    "SELECT id, session_id, transcript, cwd, origin, stage, claim IS NOT NULL, attempts,
    not_before_ms, outcome, reason, branch, commit_id, units, added_ms, started_ms, finished_ms,
    pushed, pull_number, pull_url, pull_state FROM captures";

pub(crate) fn get(connection: &Connection, id: i64) -> Result<Option<Capture>, Error> {
    let mut statement = connection.prepare_cached(&format!("{SELECT} WHERE id = ?1"))?;
    let mut rows = statement.query([id])?;
    rows.next()?.map(read).transpose()
}

pub(crate) fn read(row: &Row<'_>) -> Result<Capture, Error> {
    let attempts: u32 = row.get(7)?;
    let state = state(row.get::<_, Option<String>>(9)?.as_deref(), row.get(6)?, attempts > 0)?;
    let next_attempt = (state == State::Retrying).then(|| row.get(8)).transpose()?;
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
        pull_number: row.get::<_, Option<i64>>(18)?.map(i64::unsigned_abs),
        pull_url: row.get(19)?,
        pull_state: row.get::<_, Option<String>>(20)?.map(|state| state.parse()).transpose()?,
        reason: row.get(10)?,
        added: timestamp(row.get(14)?)?,
        started: row.get::<_, Option<i64>>(15)?.map(timestamp).transpose()?,
        finished: row.get::<_, Option<i64>>(16)?.map(timestamp).transpose()?,
        next_attempt: next_attempt.map(timestamp).transpose()?,
    })
}

fn state(outcome: Option<&str>, claimed: bool, tried: bool) -> Result<State, Error> {
    Ok(match outcome {
        Some("done") => State::Done,
        Some("nothing") => State::Nothing,
        Some("dead") => State::Dead,
        Some(other) => return Err(Error::Value { what: format!("outcome {other:?}") }),
        None if claimed => State::Running,
        None if tried => State::Retrying,
        None => State::Queued,
    })
}

pub(crate) fn timestamp(ms: i64) -> Result<Timestamp, Error> {
    Timestamp::from_millisecond(ms).map_err(|_| Error::Value { what: format!("time {ms}") })
}

/// The wait before a capture's next attempt, jittered by half either way. The jitter comes of the
/// session and the attempt: it sets captures apart as well as chance does, and a replay repeats it.
fn retry_wait(capture: &Capture) -> Duration {
    let mut policy = backoff::ExponentialBackoffBuilder::new()
        .with_initial_interval(RETRY_FIRST)
        .with_multiplier(2.0)
        .with_randomization_factor(0.0)
        .with_max_interval(RETRY_MAX)
        .with_max_elapsed_time(None)
        .build();
    let mut wait = RETRY_FIRST;
    for _ in 0..capture.attempts {
        wait = policy.next_backoff().unwrap_or(RETRY_MAX);
    }
    let digest = blake3::hash(format!("{} {}", capture.session_id, capture.attempts).as_bytes());
    let jitter = f64::from(u16::from_le_bytes([digest.as_bytes()[0], digest.as_bytes()[1]])) / 65536.0;
    wait.mul_f64(0.5 + jitter)
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn announcement(session: &str) -> Announcement {
        Announcement {
            session: knowledge::SessionId::verbatim(session),
            transcript: format!("/t/{session}.jsonl").into(),
            cwd: None,
            origin: "hook".into(),
            reason: None,
        }
    }

    impl Fixture {
        fn add(&self, session: &str) -> i64 {
            self.queue.add(&announcement(session), self.now).unwrap().id()
        }

        fn claim(&self, stage: Stage) -> Option<Claim> {
            self.queue.claim(stage, self.now).unwrap()
        }

        fn state(&self, id: i64) -> State {
            self.queue.capture(id).unwrap().unwrap().state
        }
    }

    #[test]
    fn a_capture_goes_through_its_stages_with_what_each_has_kept() {
        let fixture = fixture();
        let id = fixture.add("s1");
        let claim = fixture.claim(Stage::Intake).unwrap();
        assert_eq!((claim.capture.id, claim.capture.attempts, claim.input.len()), (id, 1, 0));
        assert!(fixture.claim(Stage::Intake).is_none());
        fixture.queue.advance(&claim, Stage::Extraction, b"words").unwrap();
        let claim = fixture.claim(Stage::Extraction).unwrap();
        assert_eq!(claim.input, b"words");
        let done = Finish::Done { branch: "nugget/x".into(), commit: "c0".into(), units: 2 };
        fixture.queue.finish(&claim, &done, fixture.now).unwrap();
        let capture = fixture.queue.capture(id).unwrap().unwrap();
        assert_eq!(
            (capture.state, capture.branch.as_deref(), capture.units),
            (State::Done, Some("nugget/x"), 2)
        );
        assert_eq!(fixture.queue.tally().unwrap(), Tally { done: 1, ..Tally::default() });
    }

    #[test]
    fn a_session_that_waits_already_is_not_queued_twice() {
        let fixture = fixture();
        let id = fixture.add("s1");
        assert_eq!(fixture.queue.add(&announcement("s1"), fixture.now).unwrap(), Added::AlreadyQueued(id));
        let claim = fixture.claim(Stage::Intake).unwrap();
        let second = fixture.add("s1");
        assert_ne!(second, id, "what ends after the reading has begun is a capture of its own");
        assert!(fixture.claim(Stage::Intake).is_none(), "and waits for the one in the works");
        fixture.queue.finish(&claim, &Finish::Nothing { reason: "empty".into() }, fixture.now).unwrap();
        assert_eq!(fixture.claim(Stage::Intake).unwrap().capture.id, second);
    }

    #[test]
    fn a_late_claim_changes_nothing() {
        let fixture = fixture();
        let id = fixture.add("s1");
        let late = fixture.claim(Stage::Intake).unwrap();
        assert_eq!(fixture.queue.release_claims(Some(Stage::Intake)).unwrap(), 1);
        let current = fixture.claim(Stage::Intake).unwrap();
        let nothing = Finish::Nothing { reason: "late".into() };
        assert!(matches!(fixture.queue.finish(&late, &nothing, fixture.now), Err(Error::Stale { .. })));
        assert!(matches!(fixture.queue.advance(&late, Stage::Git, b""), Err(Error::Stale { .. })));
        assert!(matches!(fixture.queue.fail(&late, "x", None, fixture.now), Err(Error::Stale { .. })));
        assert_eq!(fixture.state(id), State::Running);
        fixture.queue.advance(&current, Stage::Extraction, b"").unwrap();
    }

    #[test]
    fn a_job_that_kills_its_process_is_dead_after_five_attempts_and_the_next_one_runs() {
        let fixture = fixture();
        let id = fixture.add("poison");
        fixture.add("healthy");
        for _ in 0..ATTEMPTS_MAX {
            assert_eq!(fixture.claim(Stage::Intake).unwrap().capture.id, id);
            fixture.queue.release_claims(None).unwrap();
        }
        assert_eq!(fixture.claim(Stage::Intake).unwrap().capture.session_id.as_str(), "healthy");
        assert_eq!(fixture.state(id), State::Dead);
        assert_eq!(fixture.queue.retry(Some(id)).unwrap(), 1);
        assert_eq!(fixture.state(id), State::Queued);
    }

    #[test]
    fn failures_wait_longer_each_time_and_end_as_a_dead_letter_with_the_last_error() {
        let mut fixture = fixture();
        let id = fixture.add("s1");
        for attempt in 1..=ATTEMPTS_MAX {
            let claim = fixture.claim(Stage::Intake).unwrap();
            let state = fixture.queue.fail(&claim, &format!("error {attempt}"), None, fixture.now).unwrap();
            if attempt < ATTEMPTS_MAX {
                assert_eq!(state, State::Retrying);
                assert!(fixture.claim(Stage::Intake).is_none(), "not before its time");
                let due = fixture.queue.next_due().unwrap().unwrap();
                let wait = due.duration_since(fixture.now).as_secs_f64();
                let expected = f64::from(1 << (attempt - 1));
                assert!((expected * 0.49..expected * 1.51).contains(&wait), "attempt {attempt}: {wait} s");
                fixture.now = due;
            }
        }
        let capture = fixture.queue.capture(id).unwrap().unwrap();
        assert_eq!((capture.state, capture.reason.as_deref()), (State::Dead, Some("error 5")));
    }

    #[test]
    fn a_snooze_is_no_attempt() {
        let mut fixture = fixture();
        fixture.add("s1");
        for _ in 0..20 {
            let claim = fixture.claim(Stage::Intake).unwrap();
            assert_eq!(claim.capture.attempts, 1);
            fixture.queue.fail(&claim, "429", Some(Duration::from_secs(30)), fixture.now).unwrap();
            fixture.now = fixture.queue.next_due().unwrap().unwrap();
        }
    }

    #[test]
    fn a_clock_that_jumped_back_ten_years_strands_no_retry() {
        let mut fixture = fixture();
        fixture.add("s1");
        let claim = fixture.claim(Stage::Intake).unwrap();
        fixture.queue.fail(&claim, "x", None, fixture.now).unwrap();
        fixture.now = "2016-11-20T14:12:00Z".parse().unwrap();
        assert!(fixture.queue.is_due(fixture.now).unwrap());
        assert!(fixture.claim(Stage::Intake).is_some());
    }

    #[test]
    fn a_line_belongs_to_one_capture_only() {
        let fixture = fixture();
        let lines = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        fixture.add("original");
        fixture.add("fork");
        let original = fixture.claim(Stage::Intake).unwrap();
        let fork = fixture.claim(Stage::Intake).unwrap();
        let first = lines(&["a", "b"]);
        let taken =
            fixture.queue.advance_with_lines(&original, Stage::Extraction, b"", &first, None).unwrap();
        assert!(taken.is_empty());
        let taken = fixture
            .queue
            .advance_with_lines(&fork, Stage::Extraction, b"", &lines(&["b", "c"]), None)
            .unwrap();
        assert_eq!(taken, ["b"]);
        assert_eq!(fixture.queue.capture(fork.capture.id).unwrap().unwrap().stage, Stage::Intake);
        assert!(fixture.queue.is_taken(fork.capture.id, "a").unwrap());
        assert!(!fixture.queue.is_taken(original.capture.id, "a").unwrap());
        fixture.queue.forget(original.capture.id).unwrap();
        assert!(!fixture.queue.is_taken(fork.capture.id, "a").unwrap());
    }

    #[test]
    fn what_was_spooled_is_taken_in_once() {
        let fixture = fixture();
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::new(folder.path().join("spool"));
        spool.put(&announcement("s1")).unwrap();
        spool.put(&announcement("s1")).unwrap();
        spool.put(&announcement("s2")).unwrap();
        std::fs::write(folder.path().join("spool/torn.json"), "{\"session\":").unwrap();
        assert_eq!(fixture.queue.add_spooled(&spool, fixture.now).unwrap(), 2);
        assert_eq!(fixture.queue.add_spooled(&spool, fixture.now).unwrap(), 0);
        assert_eq!(fixture.queue.tally().unwrap().queued, 2);
    }

    #[test]
    fn what_a_killed_hook_left_in_the_spool_is_taken_in_or_removed() {
        let fixture = fixture();
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::new(folder.path().to_owned());
        let left = |name: &str, body: &str| std::fs::write(folder.path().join(name), body).unwrap();
        let gone = i32::MAX;
        let whole = serde_json::to_string(&announcement("whole")).unwrap();
        left(&format!("1.{gone}.new"), &whole);
        left(&format!("2.{gone}.new"), &whole[..20]);
        let mine = format!("3.{}.new", std::process::id());
        left(&mine, &whole[..20]);
        assert_eq!(fixture.queue.add_spooled(&spool, fixture.now).unwrap(), 1);
        let names: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [mine.as_str()], "its writer is still at it");
    }

    #[test]
    fn hooks_and_workers_write_at_once_and_no_row_is_lost() {
        let fixture = fixture();
        let path = fixture.queue.path().to_owned();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (path, now) = (&path, fixture.now);
                scope.spawn(move || {
                    for i in 0..10 {
                        announce(path, &announcement(&format!("s{thread}-{i}")), now).unwrap();
                    }
                });
            }
        });
        assert_eq!(fixture.queue.tally().unwrap().queued, 80);
    }

    #[test]
    fn a_queue_of_a_newer_nugget_is_left_alone() {
        let fixture = fixture();
        let connection = Connection::open(fixture.queue.path()).unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();
        assert!(matches!(Queue::open(fixture.queue.path()), Err(Error::Newer { version: 99, .. })));
    }
}
