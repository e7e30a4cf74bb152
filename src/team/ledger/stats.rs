//! Counts, due times and status reports of a brain. Claimed and unclaimed jobs are counted apart, as each have an index.

use jiff::Timestamp;
use queue::{State, Tally};

use super::claims::{NO_EARLIER_IN_SESSION, RETRY_SPAN, after, one_at_a_time};
use super::pauses::PAUSE_SPAN;
use super::rows;
use super::rows::storable;
use crate::store::Transaction;
use crate::{BrainId, Result};

pub(super) fn report(
    transaction: &mut Transaction,
    brain: BrainId,
    name: &str,
    body: &str,
    now: Timestamp,
) -> Result<()> {
    transaction.execute(
        "INSERT INTO reports (brain, name, pid, at, body) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (brain, name) DO UPDATE SET pid = excluded.pid, at = excluded.at, body = excluded.body",
        &[&brain.0, &name, &i64::from(std::process::id()), &now, &storable(body)],
    )?;
    Ok(())
}

pub(super) fn last_report(
    transaction: &mut Transaction,
    brain: BrainId,
    name: &str,
) -> Result<Option<(u32, Timestamp, String)>> {
    let sql = "SELECT pid, at, body FROM reports WHERE brain = $1 AND name = $2";
    let row = transaction.query_opt(sql, &[&brain.0, &name])?;
    Ok(row.map(|row| (row.get::<_, i64>(0).try_into().unwrap_or(0), row.get(1), row.get(2))))
}

/// The number of captures in each state. It reads all of the brain's captures.
pub(super) fn tally(transaction: &mut Transaction, brain: BrainId) -> Result<Tally> {
    let counts = transaction.query(
        "SELECT outcome, false, false, count(*) FROM captures WHERE brain = $1 AND outcome IS NOT NULL GROUP BY 1
         UNION ALL
         SELECT NULL, false, attempts > 0, count(*) FROM jobs WHERE brain = $1 AND claim IS NULL GROUP BY 3
         UNION ALL
         SELECT NULL, true, true, count(*) FROM jobs WHERE brain = $1 AND claim IS NOT NULL",
        &[&brain.0],
    )?;
    let mut tally = Tally::default();
    for row in counts {
        *match rows::state(row.get(0), row.get(1), row.get(2))? {
            State::Queued => &mut tally.queued,
            State::Running => &mut tally.running,
            State::Retrying => &mut tally.retrying,
            State::Done => &mut tally.done,
            State::Nothing => &mut tally.nothing,
            State::Dead => &mut tally.dead,
        } += row.get::<_, i64>(3).cast_unsigned();
    }
    Ok(tally)
}

pub(super) fn unfinished(transaction: &mut Transaction, brain: BrainId) -> Result<u64> {
    let row = transaction.query_one(
        "SELECT (SELECT count(*) FROM jobs WHERE brain = $1 AND claim IS NULL)
             + (SELECT count(*) FROM jobs WHERE brain = $1 AND claim IS NOT NULL)",
        &[&brain.0],
    )?;
    Ok(row.get::<_, i64>(0).cast_unsigned())
}

/// Whether any unfinished capture is due; `claimed` also counts those that a worker works on, and those that wait for one
/// of these: for an earlier one of their session, or for the one at a time at git and delivery.
pub(super) fn is_due(
    transaction: &mut Transaction,
    brain: BrainId,
    claimed: bool,
    now: Timestamp,
) -> Result<bool> {
    let is_due = |claim: &str| {
        format!(
            "SELECT 1 FROM jobs j
             WHERE j.brain = $1 AND j.claim {claim} AND (j.not_before <= $3 OR j.not_before > $4)
               AND NOT EXISTS (SELECT FROM pauses p
                   WHERE p.brain = $1 AND p.stage = j.stage AND p.until > $3 AND p.until <= $5)"
        )
    };
    let sql = format!(
        "SELECT 1 WHERE EXISTS ({} AND ($2 OR ({} AND {NO_EARLIER_IN_SESSION})))
             OR ($2 AND EXISTS ({}))",
        is_due("IS NULL"),
        one_at_a_time("j.stage"),
        is_due("IS NOT NULL")
    );
    let found = transaction
        .query_opt(&sql, &[&brain.0, &claimed, &now, &after(now, RETRY_SPAN), &after(now, PAUSE_SPAN)])?;
    Ok(found.is_some())
}

pub(super) fn next_due(transaction: &mut Transaction, brain: BrainId) -> Result<Option<Timestamp>> {
    let row = transaction.query_one(
        "SELECT min(greatest(j.not_before, p.until))
         FROM jobs j LEFT JOIN pauses p ON p.brain = j.brain AND p.stage = j.stage
         WHERE j.brain = $1 AND j.claim IS NULL",
        &[&brain.0],
    )?;
    Ok(row.get(0))
}

pub(super) fn waits_for_delivery(
    transaction: &mut Transaction,
    brain: BrainId,
    now: Timestamp,
) -> Result<bool> {
    let row = transaction.query_one(
        "SELECT EXISTS (SELECT FROM jobs WHERE brain = $1 AND claim IS NULL AND stage = 'delivery')
             AND NOT EXISTS (SELECT FROM jobs WHERE brain = $1 AND claim IS NULL AND stage <> 'delivery')
             AND NOT EXISTS (SELECT FROM jobs WHERE brain = $1 AND claim IS NOT NULL)",
        &[&brain.0],
    )?;
    Ok(row.get::<_, bool>(0) && !is_due(transaction, brain, true, now)?)
}
