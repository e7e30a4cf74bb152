//! What a server asks about all brains: which have work, whose leases have ended, and how long work waits.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use queue::{REQUESTED_PAUSE_MAX, RETRY_MAX, Stage};

use crate::store::Transaction;
use crate::{BrainId, Result, TeamStore};

/// How many claims one call takes back; the next call goes on.
const REAPED_MAX: i64 = 1_000;
/// How often a stage of a capture may be taken back from a server that is gone before it counts as an attempt.
pub const TAKEOVERS_MAX: i32 = 20;

/// A brain with captures that a worker can claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyBrain {
    /// The brain.
    pub brain: BrainId,
    /// The stages at which captures are due, in the order of the stages.
    pub stages: Vec<Stage>,
}

/// How many captures of all brains are at a stage, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageAge {
    /// The stage.
    pub stage: Stage,
    /// Captures that nobody has claimed.
    pub waiting: u64,
    /// Captures that a worker has claimed.
    pub running: u64,
    /// For how long the oldest of those that wait has been at the stage; zero when none waits.
    pub oldest: Duration,
}

/// The brains after `$1` and up to `$2` with due captures, and the stages of these. The index of unclaimed jobs is
/// entered once for each brain and stage, so a brain with many captures costs no more than one with few.
const READY: &str = "
WITH RECURSIVE waiting(brain) AS (
    (SELECT brain FROM jobs WHERE claim IS NULL AND brain > $1 ORDER BY brain LIMIT 1)
    UNION ALL
    SELECT (SELECT j.brain FROM jobs j WHERE j.claim IS NULL AND j.brain > w.brain ORDER BY j.brain LIMIT 1)
    FROM waiting w WHERE w.brain < $2)
SELECT w.brain, array_agg(s.stage ORDER BY s.position)
FROM waiting w, unnest($3::text[]) WITH ORDINALITY AS s(stage, position),
    LATERAL (SELECT FROM jobs j WHERE j.brain = w.brain AND j.stage = s.stage AND j.claim IS NULL
        AND (j.not_before <= $4 OR j.not_before > $5) AND NOT waits_for_session(j.brain, j.id) LIMIT 1) AS due
WHERE w.brain <= $2
  AND NOT EXISTS (SELECT FROM pauses p
      WHERE p.brain = w.brain AND p.stage = s.stage AND p.until > $4 AND p.until <= $6)
  AND NOT EXISTS (SELECT FROM jobs o WHERE o.brain = w.brain AND o.stage = 'git' AND o.claim IS NOT NULL AND s.stage = 'git')
  AND NOT EXISTS (SELECT FROM jobs o
      WHERE o.brain = w.brain AND o.stage = 'delivery' AND o.claim IS NOT NULL AND s.stage = 'delivery')
GROUP BY w.brain ORDER BY w.brain LIMIT $7";

impl TeamStore {
    /// Brains with captures that are due, beginning after `after` and, at the highest number, again from the lowest.
    ///
    /// Whoever passes the last brain of one answer to the next call gives each brain its turn, however many captures
    /// another one has.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn ready_brains(&self, after: BrainId, limit: usize, now: Timestamp) -> Result<Vec<ReadyBrain>> {
        self.dispatch(|transaction| {
            let mut found = ready(transaction, after, BrainId(i32::MAX), limit, now)?;
            let rest = limit - found.len().min(limit);
            if rest > 0 {
                found.extend(ready(transaction, BrainId(i32::MIN), after, rest, now)?);
            }
            Ok(found)
        })
    }

    /// Ends the claims whose lease is over, of any server: their captures can be claimed again, and the late worker is
    /// refused. A server that ends takes all of its claims with it, so the first [`TAKEOVERS_MAX`] of a stage are no attempts
    /// of their captures; a capture that ends every server dies after that. Returns how many there were, at most 1,000.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn reap_expired(&self) -> Result<usize> {
        let sql = "WITH late AS (
                SELECT brain, id FROM jobs WHERE claim IS NOT NULL AND lease_until < statement_timestamp()
                ORDER BY lease_until LIMIT $1 FOR UPDATE SKIP LOCKED)
            UPDATE jobs SET claim = NULL, server = NULL, lease_until = NULL, takeovers = takeovers + 1,
                attempts = attempts - CASE WHEN takeovers < $2 THEN 1 ELSE 0 END
            FROM late WHERE jobs.brain = late.brain AND jobs.id = late.id";
        let reaped = self.dispatch(|transaction| transaction.execute(sql, &[&REAPED_MAX, &TAKEOVERS_MAX]))?;
        Ok(reaped as usize)
    }

    /// How many captures of all brains wait at each stage and for how long, for metrics.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn queue_ages(&self) -> Result<Vec<StageAge>> {
        let sql = "SELECT stage, count(*) FILTER (WHERE claim IS NULL), count(claim),
                greatest(0, extract(epoch FROM clock_timestamp() - min(since) FILTER (WHERE claim IS NULL)))::float8
            FROM jobs GROUP BY stage";
        let rows = self.dispatch(|transaction| transaction.query(sql, &[]))?;
        let age = |stage: Stage| {
            let row = rows.iter().find(|row| row.get::<_, &str>(0) == stage.as_str());
            StageAge {
                stage,
                waiting: row.map_or(0, |row| row.get::<_, i64>(1).cast_unsigned()),
                running: row.map_or(0, |row| row.get::<_, i64>(2).cast_unsigned()),
                oldest: Duration::from_secs_f64(row.map_or(0.0, |row| row.get(3))),
            }
        };
        Ok(Stage::ALL.into_iter().map(age).collect())
    }
}

fn ready(
    transaction: &mut Transaction,
    after: BrainId,
    last: BrainId,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<ReadyBrain>> {
    let stages: Vec<&str> = Stage::ALL.into_iter().map(Stage::as_str).collect();
    let later = |span: Duration| {
        SignedDuration::try_from(2 * span)
            .ok()
            .and_then(|span| now.checked_add(span).ok())
            .unwrap_or(Timestamp::MAX)
    };
    // Times further ahead than these were set by a clock that jumped.
    let (retry_end, pause_end) = (later(RETRY_MAX), later(REQUESTED_PAUSE_MAX));
    let limit = limit as i64;
    let rows =
        transaction.query(READY, &[&after.0, &last.0, &stages, &now, &retry_end, &pause_end, &limit])?;
    let read = |row: &postgres::Row| {
        let stages: Vec<&str> = row.get(1);
        let stages = stages.into_iter().map(str::parse).collect::<Result<_, queue::Error>>()?;
        Ok(ReadyBrain { brain: BrainId(row.get(0)), stages })
    };
    rows.iter().map(read).collect()
}
