//! Pauses of a whole stage, for failures that would hit every capture of the brain at it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use queue::{Claim, OTHERS_FIRST, PAUSE_FIRST, PAUSE_MAX, PAUSES_OF_ONE, Pause, REQUESTED_PAUSE_MAX, Stage};

use super::rows::hold;
use super::rows::storable;
use crate::store::Transaction;
use crate::{BrainId, Result};

/// A pause that ends further ahead than this was set by a clock that jumped, and is ignored.
pub(super) const PAUSE_SPAN: SignedDuration =
    SignedDuration::from_secs(2 * REQUESTED_PAUSE_MAX.as_secs() as i64);

pub(super) fn pause(
    transaction: &mut Transaction,
    brain: BrainId,
    claim: &Claim,
    why: &str,
    wait: Option<Duration>,
    now: Timestamp,
) -> Result<Timestamp> {
    hold(transaction, brain, claim)?;
    let why = storable(why);
    let requested = wait.map(|wait| wait.min(REQUESTED_PAUSE_MAX).as_secs_f64());
    // The wait of the n-th pause in a row, from n = 0, unless one was requested: first * 2^n, up to the longest.
    let until: Timestamp = transaction
        .query_one(
            "INSERT INTO pauses AS p (brain, stage, since, until, times, why)
                 VALUES ($1, $2, $3::timestamptz, $3::timestamptz + make_interval(secs => coalesce($5::float8, $6::float8)), 1, $4)
             ON CONFLICT (brain, stage) DO UPDATE SET since = least(p.since, $3::timestamptz), times = p.times + 1, why = $4,
                 until = $3::timestamptz + make_interval(secs => coalesce($5::float8, least($6 * 2 ^ least(p.times, 16), $7::float8)))
             RETURNING until",
            &[
                &brain.0,
                &claim.capture.stage.as_str(),
                &now,
                &why,
                &requested,
                &PAUSE_FIRST.as_secs_f64(),
                &PAUSE_MAX.as_secs_f64(),
            ],
        )?
        .get(0);
    // Attempts stay at one: the capture was attempted, and no number of pauses makes it dead.
    transaction.execute(
        "UPDATE jobs SET claim = NULL, server = NULL, lease_until = NULL, attempts = least(attempts, 1), reason = $3,
             not_before = $4
         WHERE brain = $1 AND id = $2",
        &[&brain.0, &claim.capture.id, &why, &until],
    )?;
    Ok(until)
}

pub(super) fn resume(transaction: &mut Transaction, brain: BrainId, stage: Stage) -> Result<()> {
    let sql = "WITH pause AS (DELETE FROM pauses WHERE brain = $1 AND stage = $2 RETURNING until, times)
        UPDATE jobs SET not_before = CASE
            WHEN pause.times >= $3 THEN pause.until + make_interval(secs => $4) ELSE 'epoch' END
        FROM pause WHERE brain = $1 AND stage = $2 AND claim IS NULL AND attempts <= 1 AND not_before > 'epoch'";
    let (many, wait) = (PAUSES_OF_ONE.cast_signed(), OTHERS_FIRST.as_secs_f64());
    transaction.execute(sql, &[&brain.0, &stage.as_str(), &many, &wait])?;
    Ok(())
}

pub(super) fn list(transaction: &mut Transaction, brain: BrainId) -> Result<Vec<Pause>> {
    let sql = "SELECT stage, since, until, times, why FROM pauses WHERE brain = $1 ORDER BY stage";
    let rows = transaction.query(sql, &[&brain.0])?;
    let read = |row: &postgres::Row| {
        Ok(Pause {
            stage: row.get::<_, &str>(0).parse()?,
            since: row.get(1),
            until: row.get(2),
            times: row.get::<_, i32>(3).try_into().unwrap_or(0),
            why: row.get(4),
        })
    };
    rows.iter().map(read).collect()
}
