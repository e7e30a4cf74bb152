//! Moves captures through their stages: claim, advance, finish, fail, release, retry, forget.

use std::time::Duration;

use backoff::backoff::Backoff as _;
use jiff::Timestamp;
use knowledge::SessionId;
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use crate::Error;
use crate::capture::{ATTEMPTS_MAX, Branch, Capture, Claim, Finish, Stage, State};
use crate::pauses;
use crate::proposals::{self, ProposedUnit};
use crate::rows::{check_claim, end, get};
use crate::store::Queue;
use crate::transcripts::{self, TranscriptStamp};
use crate::upload;

/// The first wait before a retry; each further one is about twice as long, plus or minus half.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// The longest wait before a retry.
pub const RETRY_MAX: Duration = Duration::from_secs(15 * 60);
/// A retry that is due further ahead than this was set by a clock that jumped, and counts as due.
pub(crate) const RETRY_SPAN_MS: i64 = 2 * RETRY_MAX.as_millis() as i64;

/// The report that a forgotten capture leaves for each of its units: this, then the unit's id.
const FORGOTTEN_REPORT: &str = "forgotten/";
/// The report with the commit at which a branch is left as it is: this, then the branch.
const LEFT_REPORT: &str = "left/";
const LINE_OWNER: &str = "SELECT 1 FROM lines WHERE uuid = ?1 AND capture_id <> ?2";
const NAME_OWNER: &str = "SELECT 1 FROM names WHERE name = ?1 AND capture_id <> ?2";

/// Condition on a row of `captures`: at intake a session's captures are claimed in their order, so that no line is
/// captured twice; a capture that only waits for delivery or for a server has read its lines already.
pub(crate) const NO_EARLIER_IN_SESSION: &str = "(stage <> 'intake' OR NOT EXISTS (
    SELECT 1 FROM captures AS other
    WHERE other.session_id = captures.session_id AND other.outcome IS NULL
      AND other.stage NOT IN ('delivery', 'upload') AND other.id < captures.id))";

impl Queue {
    /// Claims the oldest capture that waits at a stage and is due, or after a [`pause`](Self::pause) maybe another one.
    ///
    /// The attempt is counted here, before the work, so that a job that kills its process is still
    /// parked in the end. At intake a session that has a running capture waits for it.
    ///
    /// # Errors
    /// When the queue cannot be read or written.
    pub fn claim(&self, stage: Stage, now: Timestamp) -> Result<Option<Claim>, Error> {
        let now_ms = now.as_millisecond();
        // All stages are woken together, and most of them find nothing: that needs no write lock.
        if !self.has_unclaimed(stage)? {
            return Ok(None);
        }
        self.write(|transaction| {
            let Some(order) = pauses::order_of_claims(transaction, stage, now_ms)? else {
                return Ok(None);
            };
            loop {
                let found: Option<(i64, u32, Option<String>)> = transaction
                    .prepare_cached(&format!(
                        "SELECT id, attempts, reason FROM captures
                         WHERE stage = ?1 AND outcome IS NULL AND claim IS NULL
                           AND (not_before_ms <= ?2 OR not_before_ms > ?3) AND {NO_EARLIER_IN_SESSION}
                         ORDER BY {order} LIMIT 1"
                    ))?
                    .query_row(params![stage.as_str(), now_ms, now_ms + RETRY_SPAN_MS], |row| {
                        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                    })
                    .optional()?;
                let Some((id, attempts, last_error)) = found else {
                    return Ok(None);
                };
                if attempts >= ATTEMPTS_MAX {
                    let reason = last_error.as_deref().unwrap_or("every attempt ended the worker process");
                    end(transaction, id, State::Dead, Some(reason), now)?;
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
        let connection = self.connection()?;
        let mut statement = connection.prepare_cached(
            "SELECT 1 FROM captures WHERE stage = ?1 AND outcome IS NULL AND claim IS NULL LIMIT 1",
        )?;
        Ok(statement.exists([stage.as_str()])?)
    }

    /// Stores a stage's result and passes the capture on to the next stage, in one transaction.
    ///
    /// # Errors
    /// [`Error::Stale`] when the capture was claimed again since.
    pub fn advance(&self, claim: &Claim, next: Stage, result: &[u8]) -> Result<(), Error> {
        self.write(|transaction| advance(transaction, claim, next, result))
    }

    /// [`advance`](Self::advance) for intake: also assigns the lines to this capture, and stores the
    /// stamp of the transcript as it was read.
    ///
    /// Returns the lines that another capture took in the meantime. If there are any, nothing has
    /// changed, and the caller reads again without them.
    ///
    /// # Errors
    /// [`Error::Stale`] when the capture was claimed again since.
    pub fn advance_with_lines(
        &self,
        claim: &Claim,
        next: Stage,
        result: &[u8],
        lines: &[String],
        stamp: Option<&TranscriptStamp>,
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
            if let Some(stamp) = stamp {
                transcripts::store_read(transaction, stamp, claim.capture.id)?;
            }
            Ok(taken)
        })
    }

    /// Whether another capture has taken a line.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn is_taken(&self, capture: i64, line: &str) -> Result<bool, Error> {
        is_owned_by_other(&*self.connection()?, LINE_OWNER, line, capture)
    }

    /// Stores what a stage decided before it acts on it, so that the next attempt does exactly the
    /// same. The names of new units become this capture's.
    ///
    /// Returns the names that another capture has. If there are any, nothing is stored.
    ///
    /// # Errors
    /// [`Error::Stale`] when the capture was claimed again since.
    pub fn save_result(
        &self,
        claim: &Claim,
        result: &[u8],
        units: &[ProposedUnit],
    ) -> Result<Vec<String>, Error> {
        let id = claim.capture.id;
        self.write(|transaction| {
            check_claim(transaction, claim)?;
            let mut taken = Vec::new();
            for unit in units.iter().filter(|unit| unit.is_new) {
                if is_owned_by_other(transaction, NAME_OWNER, &unit.name, id)? {
                    taken.push(unit.name.clone());
                }
            }
            if !taken.is_empty() {
                return Ok(taken);
            }
            proposals::store(transaction, id, units)?;
            store_result(transaction, id, result)?;
            Ok(taken)
        })
    }

    /// What is stored for the capture's stage, or for making its branch again.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn saved_result(&self, id: i64) -> Result<Option<Vec<u8>>, Error> {
        let sql = "SELECT body FROM results WHERE capture_id = ?1";
        Ok(self.query(sql, [id], |row| Ok(row.get(0)?))?.pop())
    }

    /// Whether another capture has given a unit this name.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn is_name_taken(&self, capture: i64, name: &str) -> Result<bool, Error> {
        is_owned_by_other(&*self.connection()?, NAME_OWNER, name, capture)
    }

    /// [`advance`](Self::advance) for git: also records the branch that it made.
    ///
    /// # Errors
    /// [`Error::Stale`] when the capture was claimed again since.
    pub fn advance_with_branch(
        &self,
        claim: &Claim,
        next: Stage,
        result: &[u8],
        branch: &Branch,
    ) -> Result<(), Error> {
        self.write(|transaction| {
            advance(transaction, claim, next, result)?;
            record_branch(transaction, claim.capture.id, branch)
        })
    }

    /// Ends a capture.
    ///
    /// # Errors
    /// [`Error::Stale`] when the capture was claimed again since.
    pub fn finish(&self, claim: &Claim, finish: &Finish, now: Timestamp) -> Result<(), Error> {
        self.finish_with_transcript(claim, finish, None, now)
    }

    /// [`finish`](Self::finish) for intake: also stores the stamp of the transcript as it was read.
    ///
    /// # Errors
    /// [`Error::Stale`] when the capture was claimed again since.
    pub fn finish_with_transcript(
        &self,
        claim: &Claim,
        finish: &Finish,
        stamp: Option<&TranscriptStamp>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let id = claim.capture.id;
        self.write(|transaction| {
            check_claim(transaction, claim)?;
            if let Some(stamp) = stamp {
                transcripts::store_read(transaction, stamp, id)?;
            }
            match finish {
                Finish::Done(branch) => {
                    record_branch(transaction, id, branch)?;
                    end(transaction, id, State::Done, None, now)
                }
                Finish::Uploaded { receipt } => {
                    upload::delete_old(transaction, now)?;
                    end(transaction, id, State::Done, Some(receipt), now)
                }
                Finish::Nothing { reason } => end(transaction, id, State::Nothing, Some(reason), now),
                Finish::Dead { reason } => end(transaction, id, State::Dead, Some(reason), now),
            }
        })
    }

    /// Releases a capture after a failure: due again after a growing, jittered wait, or dead after
    /// [`ATTEMPTS_MAX`] attempts. `after` is a wait that the other side asked for; it does not count as
    /// an attempt, because the job did nothing wrong.
    ///
    /// # Errors
    /// [`Error::Stale`] when the capture was claimed again since.
    pub fn fail(
        &self,
        claim: &Claim,
        error: &str,
        after: Option<Duration>,
        now: Timestamp,
    ) -> Result<State, Error> {
        let id = claim.capture.id;
        self.write(|transaction| {
            check_claim(transaction, claim)?;
            if after.is_none() && claim.capture.attempts >= ATTEMPTS_MAX {
                end(transaction, id, State::Dead, Some(error), now)?;
                return Ok(State::Dead);
            }
            let wait = after.unwrap_or_else(|| retry_wait(&claim.capture)).min(RETRY_MAX);
            let due_ms = now.as_millisecond() + wait.as_millis() as i64;
            transaction.execute(
                "UPDATE captures SET claim = NULL, reason = ?2, not_before_ms = ?3, attempts = attempts - ?4
                 WHERE id = ?1",
                params![id, error, due_ms, u32::from(after.is_some())],
            )?;
            Ok(State::Retrying)
        })
    }

    /// Releases what an earlier worker of a stage had claimed; of every stage for `None`, which only
    /// the holder of the drain lock may ask for. Returns how many captures that were.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn release_claims(&self, stage: Option<Stage>) -> Result<usize, Error> {
        let sql = "UPDATE captures SET claim = NULL
                   WHERE outcome IS NULL AND claim IS NOT NULL AND (?1 IS NULL OR stage = ?1)";
        self.execute(sql, [stage.map(Stage::as_str)])
    }

    /// Releases what a worker of a stage had claimed when it crashed, and stores the crash as the last
    /// error: it becomes the reason if the capture crashes the worker on every attempt.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn release_failed(&self, stage: Stage, error: &str) -> Result<usize, Error> {
        let sql = "UPDATE captures SET claim = NULL, reason = ?2
                   WHERE outcome IS NULL AND claim IS NOT NULL AND stage = ?1";
        self.execute(sql, params![stage.as_str(), error])
    }

    /// Retries a dead capture, or all of them, from the stage where it failed, and ends all waits and
    /// pauses. A dead one counts as not tried before. Returns how many dead captures there were.
    ///
    /// # Errors
    /// [`Error::Unknown`] when there is no such capture.
    pub fn retry(&self, id: Option<i64>) -> Result<usize, Error> {
        self.write(|transaction| {
            let changed = transaction.execute(
                "UPDATE captures SET outcome = NULL, claim = NULL, attempts = 0, not_before_ms = 0,
                     started_ms = NULL, finished_ms = NULL WHERE outcome = 'dead' AND (?1 IS NULL OR id = ?1)",
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

    /// Deletes a capture's record, also from the write-ahead log. Its lines become free: the session can be captured
    /// again. Kept is only [when it was forgotten](Self::forgotten), for each unit that it has proposed, and the commit of
    /// its branch, which is [not queued again](Self::left_at).
    ///
    /// # Errors
    /// [`Error::Unknown`] when there is no such capture.
    pub fn forget(&self, id: i64, now: Timestamp) -> Result<(), Error> {
        self.write(|transaction| {
            transaction.execute(
                "INSERT OR REPLACE INTO reports
                     SELECT DISTINCT ?2 || unit, ?3, ?4, session_id
                     FROM evidence JOIN captures ON captures.id = capture_id WHERE capture_id = ?1",
                params![id, FORGOTTEN_REPORT, std::process::id(), now.as_millisecond()],
            )?;
            transaction.execute(
                "INSERT OR REPLACE INTO reports
                     SELECT ?2 || branch, ?3, ?4, commit_id FROM captures WHERE id = ?1 AND commit_id IS NOT NULL",
                params![id, LEFT_REPORT, std::process::id(), now.as_millisecond()],
            )?;
            match transaction.execute("DELETE FROM captures WHERE id = ?1", [id])? {
                0 => Err(Error::Unknown { id }),
                _ => Ok(()),
            }
        })?;
        self.checkpoint()
    }

    /// Deletes the records of all captures that have ended, and what was decided and rejected in reviews: the brain that
    /// they made is gone, and their sessions can be captured again into another one. Returns how many captures there were.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn forget_ended(&self) -> Result<usize, Error> {
        let forgotten = self.write(|transaction| {
            transaction.execute_batch("DELETE FROM decisions; DELETE FROM rejected;")?;
            Ok(transaction.execute("DELETE FROM captures WHERE outcome IS NOT NULL", [])?)
        })?;
        self.checkpoint()?;
        Ok(forgotten)
    }

    /// Records that a branch at this commit, of which the queue knows nothing, is not to be queued.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn leave(&self, branch: &str, commit: &str, now: Timestamp) -> Result<(), Error> {
        self.report(&format!("{LEFT_REPORT}{branch}"), commit, now)
    }

    /// The commit at which a branch is not to be queued: its capture was forgotten, or it was [left](Self::leave).
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn left_at(&self, branch: &str) -> Result<Option<String>, Error> {
        Ok(self.last_report(&format!("{LEFT_REPORT}{branch}"))?.map(|(_, _, commit)| commit))
    }

    /// When the last record of a session that a unit comes from was deleted, and which session it was.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn forgotten(&self, unit: &str) -> Result<Option<(Timestamp, SessionId)>, Error> {
        let report = self.last_report(&format!("{FORGOTTEN_REPORT}{unit}"))?;
        Ok(report.map(|(_, at, session)| (at, SessionId::verbatim(session))))
    }
}

fn is_owned_by_other(connection: &Connection, owner: &str, key: &str, capture: i64) -> Result<bool, Error> {
    Ok(connection.prepare_cached(owner)?.exists(params![key, capture])?)
}

fn advance(transaction: &Transaction<'_>, claim: &Claim, next: Stage, result: &[u8]) -> Result<(), Error> {
    check_claim(transaction, claim)?;
    let id = claim.capture.id;
    store_result(transaction, id, result)?;
    transaction.execute(
        "UPDATE captures SET stage = ?2, claim = NULL, attempts = 0, not_before_ms = 0, reason = NULL WHERE id = ?1",
        params![id, next.as_str()],
    )?;
    Ok(())
}

pub(crate) fn store_result(transaction: &Transaction<'_>, id: i64, result: &[u8]) -> Result<(), Error> {
    transaction.execute("INSERT OR REPLACE INTO results VALUES (?1, ?2)", params![id, result])?;
    Ok(())
}

fn record_branch(transaction: &Transaction<'_>, id: i64, branch: &Branch) -> Result<(), Error> {
    transaction.execute(
        "UPDATE captures SET branch = ?2, commit_id = ?3, units = ?4 WHERE id = ?1",
        params![id, branch.name, branch.commit, branch.units],
    )?;
    Ok(())
}

/// The wait before a capture's next attempt, jittered by half either way. The jitter is a hash of the
/// session and the attempt: it separates captures as well as chance does, and a replay repeats it.
pub fn retry_wait(capture: &Capture) -> Duration {
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
    use crate::testing::TestQueue;

    /// How many of the queue's files contain the text.
    fn files_with(test: &TestQueue, text: &str) -> usize {
        let files = std::fs::read_dir(test.queue.path().parent().unwrap()).unwrap();
        let contents = files.map(|file| std::fs::read(file.unwrap().path()).unwrap());
        contents.filter(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes())).count()
    }

    #[test]
    fn what_is_deleted_is_in_no_file_any_more() {
        let test = TestQueue::new();
        let small = "said in one row of a page";
        let large = "said on pages of its own. ".repeat(2_000);
        for text in [small, &large] {
            // Forgotten by a person, with the log.
            let id = test.add("forgotten");
            let claim = test.claim(Stage::Intake).unwrap();
            test.queue.advance(&claim, Stage::Extraction, text.as_bytes()).unwrap();
            test.queue.checkpoint().unwrap();
            assert_eq!(files_with(&test, &text[..25]), 1);
            test.queue.forget(id, test.now).unwrap();
            assert_eq!(files_with(&test, &text[..25]), 0);

            // Deleted with the end of a capture: gone once the log has been emptied.
            test.add("finished");
            let claim = test.claim(Stage::Intake).unwrap();
            test.queue.advance(&claim, Stage::Extraction, text.as_bytes()).unwrap();
            let claim = test.claim(Stage::Extraction).unwrap();
            test.queue.checkpoint().unwrap();
            test.queue.finish(&claim, &Finish::Nothing { reason: "all known".into() }, test.now).unwrap();
            test.queue.checkpoint().unwrap();
            assert_eq!(files_with(&test, &text[..25]), 0);
        }
    }
}
