//! Reads captures.

use std::path::PathBuf;

use jiff::Timestamp;
use knowledge::SessionId;
use postgres::Row;
use queue::{Capture, Claim, State};

use crate::store::{Params, Transaction};
use crate::{BrainId, Error, Result};

/// The columns of a [`Capture`], of the tables `captures AS c` and `jobs AS j`.
pub(super) const COLUMNS: &str = "c.id, c.session_id, c.project, c.origin, coalesce(j.stage, c.stage), j.claim IS NOT NULL,
    coalesce(j.attempts, c.attempts), j.not_before, c.outcome, CASE WHEN c.outcome IS NULL THEN j.reason ELSE c.reason END,
    c.branch, c.commit_id, c.units, c.pushed, c.pull_number, c.pull_url, c.pull_state, c.added, c.started, c.finished";

/// How many [`COLUMNS`] there are.
pub(super) const COLUMNS_COUNT: usize = 20;

pub(super) fn get(transaction: &mut Transaction, brain: BrainId, id: i64) -> Result<Option<Capture>> {
    Ok(select(transaction, "c.id = $2", &[&brain.0, &id])?.pop())
}

pub(super) fn latest(transaction: &mut Transaction, brain: BrainId, limit: usize) -> Result<Vec<Capture>> {
    select(transaction, "true ORDER BY c.id DESC LIMIT $2", &[&brain.0, &(limit as i64)])
}

/// The latest capture that made a branch.
pub(super) fn of_branch(
    transaction: &mut Transaction,
    brain: BrainId,
    branch: &str,
) -> Result<Option<Capture>> {
    Ok(select(transaction, "c.branch = $2 ORDER BY c.id DESC LIMIT 1", &[&brain.0, &branch])?.pop())
}

/// The captures of brain `$1` for which a condition holds.
pub(super) fn select(
    transaction: &mut Transaction,
    condition: &str,
    params: Params<'_>,
) -> Result<Vec<Capture>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM captures c LEFT JOIN jobs j ON j.brain = c.brain AND j.id = c.id
         WHERE c.brain = $1 AND {condition}"
    );
    transaction.query(&sql, params)?.iter().map(read).collect()
}

pub(super) fn read(row: &Row) -> Result<Capture> {
    let attempts: i32 = row.get(6);
    let state = state(row.get(8), row.get(5), attempts > 0)?;
    let next_attempt: Option<Timestamp> = row.get(7);
    let waits = matches!(state, State::Retrying | State::Queued);
    Ok(Capture {
        id: row.get(0),
        session_id: SessionId::verbatim(row.get::<_, String>(1)),
        // The transcript is a file on the laptop that handed the capture over.
        transcript: PathBuf::new(),
        cwd: row.get::<_, Option<String>>(2).map(PathBuf::from),
        origin: row.get(3),
        state,
        stage: row.get::<_, &str>(4).parse()?,
        attempts: attempts.try_into().unwrap_or(0),
        branch: row.get(10),
        commit: row.get(11),
        units: row.get::<_, i32>(12).try_into().unwrap_or(0),
        pushed: row.get(13),
        pull_number: row.get::<_, Option<i64>>(14).map(i64::cast_unsigned),
        pull_url: row.get(15),
        pull_state: row.get::<_, Option<&str>>(16).map(str::parse).transpose()?,
        reason: row.get(9),
        added: row.get(17),
        started: row.get(18),
        finished: row.get(19),
        next_attempt: next_attempt.filter(|due| waits && *due > Timestamp::UNIX_EPOCH),
    })
}

/// The state that a row's columns stand for: its outcome, whether it is claimed, whether it was attempted.
pub(super) fn state(outcome: Option<&str>, is_claimed: bool, was_attempted: bool) -> Result<State> {
    Ok(match outcome {
        Some("done") => State::Done,
        Some("nothing") => State::Nothing,
        Some("dead") => State::Dead,
        Some(other) => return Err(Error::Ledger(queue::Error::Value { what: format!("outcome {other:?}") })),
        None if is_claimed => State::Running,
        None if was_attempted => State::Retrying,
        None => State::Queued,
    })
}

/// The text without the one character that PostgreSQL's type `text` cannot hold.
pub(super) fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// Fails with [`queue::Error::Stale`] unless the claim is still valid, and keeps it so until the transaction's end.
pub(super) fn hold(transaction: &mut Transaction, brain: BrainId, claim: &Claim) -> Result<()> {
    let sql = "SELECT 1 FROM jobs WHERE brain = $1 AND id = $2 AND claim = $3 FOR NO KEY UPDATE";
    match transaction.query_opt(sql, &[&brain.0, &claim.capture.id, &claim.token])? {
        Some(_) => Ok(()),
        None => Err(stale(claim)),
    }
}

pub(super) fn stale(claim: &Claim) -> Error {
    Error::Ledger(queue::Error::Stale { id: claim.capture.id })
}
