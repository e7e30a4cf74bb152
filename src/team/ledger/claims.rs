//! Moves captures through their stages: claim, advance, finish, fail, release, retry, forget.

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use queue::{ATTEMPTS_MAX, Branch, Claim, Finish, PAUSES_OF_ONE, RETRY_MAX, Stage, State, retry_wait};

use super::pauses::PAUSE_SPAN;

use super::rows::{self, COLUMNS, COLUMNS_COUNT, stale, storable};
use crate::store::Transaction;
use crate::{BrainId, Result, ServerId};

/// A retry that is due further ahead than this was set by a clock that jumped, and counts as due.
pub(super) const RETRY_SPAN: SignedDuration = SignedDuration::from_secs(2 * RETRY_MAX.as_secs() as i64);

/// How many captures that were attempted too often one call ends before it returns; the next call goes on.
const DEAD_MAX: usize = 100;

/// Condition on a row `j` of `jobs` of brain `$1`: at its first stage a capture waits for its session's earlier ones.
pub(super) const NO_EARLIER_IN_SESSION: &str =
    "(j.stage NOT IN ('intake', 'extraction') OR NOT EXISTS (SELECT FROM jobs o
         WHERE o.brain = $1 AND o.session_id = j.session_id AND o.stage <> 'delivery' AND o.id < j.id))";

/// Condition: at git and at delivery of brain `$1` no other capture is claimed, where `stage` is that stage.
pub(super) fn one_at_a_time(stage: &str) -> String {
    let is_free = |one: &str| {
        format!(
            "({stage} <> '{one}' OR NOT EXISTS (SELECT FROM jobs o
                 WHERE o.brain = $1 AND o.stage = '{one}' AND o.claim IS NOT NULL))"
        )
    };
    ["git", "delivery"].map(is_free).join(" AND ")
}

/// Claims the oldest capture that is due, or after many pauses the one that was not tried for the longest time, and reads
/// it with its input. Rows are found by `id = (SELECT …)` and not by a join, for which the planner, where it has no
/// statistics, may read all rows of the brain.
///
/// One at a time is claimed at git and delivery; a unique index holds this also when two workers try at once. A capture
/// waits at its first stage for its session's earlier ones until they are proposed, so that no line is captured twice
/// and a session's second half knows what its first half proposed.
static CLAIM: LazyLock<String> = LazyLock::new(|| {
    let due = |condition: &str, order: &str| {
        format!(
            "SELECT j.id FROM jobs j
             WHERE {condition}
               AND j.brain = $1 AND j.stage = $2 AND j.claim IS NULL AND (j.not_before <= $3 OR j.not_before > $4)
               AND {} AND {NO_EARLIER_IN_SESSION}
             ORDER BY {order} LIMIT 1 FOR UPDATE OF j SKIP LOCKED",
            one_at_a_time("$2")
        )
    };
    let oldest = due("NOT EXISTS (SELECT FROM pause WHERE holds OR is_long)", "j.id");
    // A pause makes the capture that has failed due at its end, and the others are due from earlier on.
    let least_tried = due("EXISTS (SELECT FROM pause WHERE is_long AND NOT holds)", "j.not_before, j.id");
    format!(
        "WITH pause AS MATERIALIZED (
             SELECT until > $3 AND until <= $5 AS holds, times >= {PAUSES_OF_ONE} AS is_long
             FROM pauses WHERE brain = $1 AND stage = $2),
         oldest AS ({oldest}),
         least_tried AS ({least_tried}),
         found AS (SELECT id FROM oldest UNION ALL SELECT id FROM least_tried),
         j AS (
             UPDATE jobs SET claim = nextval('claim_seq'), server = $6, attempts = attempts + 1,
                 lease_until = clock_timestamp() + make_interval(secs => $7)
             WHERE brain = $1 AND id = (SELECT id FROM found) RETURNING *),
         started AS (
             UPDATE captures SET started = $3 WHERE brain = $1 AND id = (SELECT id FROM j) AND started IS NULL)
         SELECT {COLUMNS}, j.claim, r.body FROM j JOIN captures c ON c.brain = $1 AND c.id = (SELECT id FROM j)
         LEFT JOIN results r ON r.brain = $1 AND r.capture_id = (SELECT id FROM j)"
    )
});

pub(super) fn claim(
    transaction: &mut Transaction,
    brain: BrainId,
    server: ServerId,
    lease: Duration,
    stage: Stage,
    now: Timestamp,
) -> Result<Option<Claim>> {
    let lease = lease.as_secs_f64();
    for _ in 0..DEAD_MAX {
        let found = transaction.query_opt(
            &CLAIM,
            &[
                &brain.0,
                &stage.as_str(),
                &now,
                &after(now, RETRY_SPAN),
                &after(now, PAUSE_SPAN),
                &server.0,
                &lease,
            ],
        )?;
        let Some(row) = found else { return Ok(None) };
        // The statement sees the capture as it was before it.
        let mut capture = rows::read(&row)?;
        capture.started.get_or_insert(now);
        let token = row.get(COLUMNS_COUNT);
        let input: Option<Vec<u8>> = row.get(COLUMNS_COUNT + 1);
        let claim = Claim { capture, input: input.unwrap_or_default(), token };
        if claim.capture.attempts <= ATTEMPTS_MAX {
            return Ok(Some(claim));
        }
        let reason = claim.capture.reason.as_deref().unwrap_or("every attempt ended the worker process");
        tracing::error!(capture = claim.capture.id, %stage, reason, "a capture was attempted too often");
        end(transaction, brain, &claim, State::Dead, Some(reason), now)?;
    }
    Ok(None)
}

/// A moment later than `now`, or the last one that there is.
pub(super) fn after(now: Timestamp, span: SignedDuration) -> Timestamp {
    now.checked_add(span).unwrap_or(Timestamp::MAX)
}

/// Stores a stage's result and passes the capture on to the next stage.
pub(super) fn advance(
    transaction: &mut Transaction,
    brain: BrainId,
    claim: &Claim,
    next: Stage,
    result: &[u8],
) -> Result<()> {
    let advanced = transaction.query_opt(
        "WITH job AS (
             UPDATE jobs SET stage = $4, since = clock_timestamp(), claim = NULL, server = NULL, lease_until = NULL,
                 attempts = 0, takeovers = 0, not_before = 'epoch', reason = NULL
             WHERE brain = $1 AND id = $2 AND claim = $3 RETURNING id),
         result AS (
             INSERT INTO results (brain, capture_id, body) SELECT $1, id, $5 FROM job
             ON CONFLICT (brain, capture_id) DO UPDATE SET body = excluded.body)
         SELECT id FROM job",
        &[&brain.0, &claim.capture.id, &claim.token, &next.as_str(), &result],
    )?;
    advanced.map(drop).ok_or_else(|| stale(claim))
}

/// [`advance`], which also assigns the lines to the capture. Returns those that another capture has; if there are any,
/// nothing is stored.
pub(super) fn advance_with_lines(
    transaction: &mut Transaction,
    brain: BrainId,
    claim: &Claim,
    next: Stage,
    result: &[u8],
    lines: &[String],
) -> Result<Vec<String>> {
    transaction.execute(
        "INSERT INTO lines (brain, uuid, capture_id) SELECT $1, uuid, $2 FROM unnest($3::text[]) AS uuid ORDER BY uuid
         ON CONFLICT DO NOTHING",
        &[&brain.0, &claim.capture.id, &lines],
    )?;
    // A statement of its own: it sees what others have committed while the one above waited for them.
    let taken = transaction.query(
        "SELECT uuid FROM unnest($3::text[]) WITH ORDINALITY AS wanted(uuid, position) JOIN lines USING (uuid)
         WHERE brain = $1 AND capture_id <> $2 ORDER BY position",
        &[&brain.0, &claim.capture.id, &lines],
    )?;
    if !taken.is_empty() {
        transaction.roll_back();
        return Ok(taken.iter().map(|row| row.get(0)).collect());
    }
    advance(transaction, brain, claim, next, result)?;
    Ok(Vec::new())
}

pub(super) fn is_taken(
    transaction: &mut Transaction,
    brain: BrainId,
    capture: i64,
    line: &str,
) -> Result<bool> {
    let sql = "SELECT 1 FROM lines WHERE brain = $1 AND uuid = $2 AND capture_id <> $3";
    Ok(transaction.query_opt(sql, &[&brain.0, &line, &capture])?.is_some())
}

pub(super) fn saved_result(
    transaction: &mut Transaction,
    brain: BrainId,
    id: i64,
) -> Result<Option<Vec<u8>>> {
    let sql = "SELECT body FROM results WHERE brain = $1 AND capture_id = $2";
    Ok(transaction.query_opt(sql, &[&brain.0, &id])?.map(|row| row.get(0)))
}

/// Stores what a stage decided, or the input that it is to start from.
pub(super) fn store_result(
    transaction: &mut Transaction,
    brain: BrainId,
    id: i64,
    result: &[u8],
) -> Result<()> {
    transaction.execute(
        "INSERT INTO results (brain, capture_id, body) VALUES ($1, $2, $3)
         ON CONFLICT (brain, capture_id) DO UPDATE SET body = excluded.body",
        &[&brain.0, &id, &result],
    )?;
    Ok(())
}

pub(super) fn record_branch(
    transaction: &mut Transaction,
    brain: BrainId,
    id: i64,
    branch: &Branch,
) -> Result<()> {
    transaction.execute(
        "UPDATE captures SET branch = $3, commit_id = $4, units = $5 WHERE brain = $1 AND id = $2",
        &[&brain.0, &id, &branch.name, &branch.commit, &branch.units.cast_signed()],
    )?;
    Ok(())
}

pub(super) fn finish(
    transaction: &mut Transaction,
    brain: BrainId,
    claim: &Claim,
    finish: &Finish,
    now: Timestamp,
) -> Result<()> {
    match finish {
        Finish::Done(branch) => {
            end(transaction, brain, claim, State::Done, None, now)?;
            record_branch(transaction, brain, claim.capture.id, branch)
        }
        // What a laptop's ledger says of what this one has: here it is an end like any other.
        Finish::Uploaded { receipt } => end(transaction, brain, claim, State::Done, Some(receipt), now),
        Finish::Nothing { reason } => end(transaction, brain, claim, State::Nothing, Some(reason), now),
        Finish::Dead { reason } => end(transaction, brain, claim, State::Dead, Some(reason), now),
    }
}

/// Ends a capture. A dead one keeps its stage's input and its answers: a retry goes on from there. While its pull
/// request is open, its branch may have to be made again on a newer base.
fn end(
    transaction: &mut Transaction,
    brain: BrainId,
    claim: &Claim,
    outcome: State,
    reason: Option<&str>,
    now: Timestamp,
) -> Result<()> {
    let ended = transaction.query_opt(
        "WITH job AS (
             DELETE FROM jobs WHERE brain = $1 AND id = $2 AND claim = $3 RETURNING id, stage, attempts),
         capture AS (
             UPDATE captures c SET outcome = $4, reason = $5, finished = $6, stage = job.stage,
                 attempts = least(job.attempts, $7)
             FROM job WHERE c.brain = $1 AND c.id = (SELECT id FROM job) RETURNING c.id, c.pull_state),
         result AS (
             DELETE FROM results WHERE brain = $1 AND $4 <> 'dead' AND capture_id = (
                 SELECT id FROM capture WHERE $4 <> 'done' OR pull_state IS DISTINCT FROM 'open')),
         answer AS (
             DELETE FROM answers WHERE brain = $1 AND $4 <> 'dead' AND capture_id = (SELECT id FROM capture))
         SELECT id FROM job",
        &[
            &brain.0,
            &claim.capture.id,
            &claim.token,
            &outcome.as_str(),
            &reason.map(storable),
            &now,
            &ATTEMPTS_MAX.cast_signed(),
        ],
    )?;
    ended.map(drop).ok_or_else(|| stale(claim))
}

pub(super) fn fail(
    transaction: &mut Transaction,
    brain: BrainId,
    claim: &Claim,
    error: &str,
    requested: Option<Duration>,
    now: Timestamp,
) -> Result<State> {
    if requested.is_none() && claim.capture.attempts >= ATTEMPTS_MAX {
        end(transaction, brain, claim, State::Dead, Some(error), now)?;
        return Ok(State::Dead);
    }
    let wait = requested.unwrap_or_else(|| retry_wait(&claim.capture)).min(RETRY_MAX);
    let due = after(now, SignedDuration::try_from(wait).unwrap_or(RETRY_SPAN));
    // A wait that the other side asked for is no attempt.
    let attempts = i32::from(requested.is_some());
    let released = transaction.execute(
        "UPDATE jobs SET claim = NULL, server = NULL, lease_until = NULL, reason = $4, not_before = $5,
             attempts = attempts - $6
         WHERE brain = $1 AND id = $2 AND claim = $3",
        &[&brain.0, &claim.capture.id, &claim.token, &storable(error), &due, &attempts],
    )?;
    if released == 0 { Err(stale(claim)) } else { Ok(State::Retrying) }
}

/// Releases what a server has claimed, and returns the claims' tokens. Each stays counted as an attempt.
pub(super) fn release(
    transaction: &mut Transaction,
    brain: BrainId,
    server: ServerId,
    stage: Option<Stage>,
    error: Option<&str>,
) -> Result<Vec<i64>> {
    let released = transaction.query(
        "WITH held AS (
             SELECT id, claim FROM jobs
             WHERE brain = $1 AND server = $2 AND claim IS NOT NULL AND ($3::text IS NULL OR stage = $3) FOR UPDATE)
         UPDATE jobs SET claim = NULL, server = NULL, lease_until = NULL, reason = coalesce($4, reason)
         FROM held WHERE jobs.brain = $1 AND jobs.id = held.id RETURNING held.claim",
        &[&brain.0, &server.0, &stage.map(Stage::as_str), &error.map(storable)],
    )?;
    Ok(released.iter().map(|row| row.get(0)).collect())
}

/// Extends claims by a lease from now, and returns those that are still valid.
pub(super) fn extend(
    transaction: &mut Transaction,
    brain: BrainId,
    tokens: &[i64],
    lease: Duration,
) -> Result<HashSet<i64>> {
    let extended = transaction.query(
        "UPDATE jobs SET lease_until = clock_timestamp() + make_interval(secs => $3)
         WHERE brain = $1 AND claim = ANY ($2) RETURNING claim",
        &[&brain.0, &tokens, &lease.as_secs_f64()],
    )?;
    Ok(extended.iter().map(|row| row.get(0)).collect())
}

pub(super) fn retry(transaction: &mut Transaction, brain: BrainId, id: Option<i64>) -> Result<usize> {
    let revived = transaction.execute(
        "WITH dead AS (
             UPDATE captures SET outcome = NULL, started = NULL, finished = NULL
             WHERE brain = $1 AND outcome = 'dead' AND ($2::bigint IS NULL OR id = $2)
             RETURNING id, session_id, stage, reason)
         INSERT INTO jobs (brain, id, session_id, stage, reason) SELECT $1, id, session_id, stage, reason FROM dead",
        &[&brain.0, &id],
    )?;
    transaction.execute(
        "UPDATE jobs SET not_before = 'epoch' WHERE brain = $1 AND claim IS NULL AND ($2::bigint IS NULL OR id = $2)",
        &[&brain.0, &id],
    )?;
    transaction.execute("DELETE FROM pauses WHERE brain = $1", &[&brain.0])?;
    match id {
        Some(id) if rows::get(transaction, brain, id)?.is_none() => Err(queue::Error::Unknown { id }.into()),
        _ => Ok(revived as usize),
    }
}

pub(super) fn forget(transaction: &mut Transaction, brain: BrainId, id: i64) -> Result<()> {
    transaction.execute("DELETE FROM lines WHERE brain = $1 AND capture_id = $2", &[&brain.0, &id])?;
    match transaction.execute("DELETE FROM captures WHERE brain = $1 AND id = $2", &[&brain.0, &id])? {
        0 => Err(queue::Error::Unknown { id }.into()),
        _ => Ok(()),
    }
}
