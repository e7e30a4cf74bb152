//! The cost of model calls, the brain's budget that bounds it, and the answers that were paid for.

use jiff::{SignedDuration, Timestamp};
use queue::{BUDGET_SPAN, Budget, CallCost, Claim, Reservation};

use super::claims::after;
use crate::store::Transaction;
use crate::{BrainId, Result};

/// The first number of the advisory lock under which a brain's budget is checked; the second is the brain.
const LOCK: i32 = 0x7370_656e;

const SPAN: SignedDuration = SignedDuration::from_secs(BUDGET_SPAN.as_secs() as i64);

/// Enters a call at the most that it may cost, if the budget allows it. Reservations of a brain wait for each other, on
/// whichever server.
pub(super) fn reserve(
    transaction: &mut Transaction,
    brain: BrainId,
    claim: Option<&Claim>,
    estimate: &CallCost,
    budget: &Budget,
    now: Timestamp,
) -> Result<Reservation> {
    // A statement of its own, so that the next one sees what others have entered while this one waited.
    transaction.execute("SELECT pg_advisory_xact_lock($1, $2)", &[&LOCK, &brain.0])?;
    let since = now.checked_sub(SPAN).unwrap_or(Timestamp::MIN);
    // A row from further ahead than the span was written while the clock was wrong.
    let spent = transaction.query_one(
        "SELECT coalesce(sum(input_tokens + output_tokens + cache_write_tokens + cache_read_tokens), 0)::bigint,
                coalesce(sum(microdollars), 0)::bigint
         FROM spend WHERE brain = $1 AND at > $2 AND at < $3",
        &[&brain.0, &since, &after(now, SPAN)],
    )?;
    let (tokens, microdollars) = (unsigned(spent.get(0)), unsigned(spent.get(1)));
    if tokens.saturating_add(estimate.tokens()) > budget.tokens
        || microdollars.saturating_add(estimate.microdollars) > budget.microdollars
    {
        return Ok(Reservation::OverBudget { tokens, microdollars });
    }
    let capture = claim.map(|claim| claim.capture.id);
    let row = transaction.query_one(
        "INSERT INTO spend (brain, at, capture_id, estimated, model, backend, input_tokens, output_tokens,
             cache_write_tokens, cache_read_tokens, microdollars)
         VALUES ($1, $2, $3, true, $4, $5, $6, $7, $8, $9, $10) RETURNING id",
        &[
            &brain.0,
            &now,
            &capture,
            &estimate.model,
            &estimate.backend,
            &signed(estimate.input_tokens),
            &signed(estimate.output_tokens),
            &signed(estimate.cache_write_tokens),
            &signed(estimate.cache_read_tokens),
            &signed(estimate.microdollars),
        ],
    )?;
    Ok(Reservation::Granted(row.get(0)))
}

/// Replaces a call's estimate by its cost.
pub(super) fn settle(
    transaction: &mut Transaction,
    brain: BrainId,
    reservation: i64,
    cost: &CallCost,
) -> Result<()> {
    transaction.execute(
        "UPDATE spend SET estimated = false, model = $3, backend = $4, input_tokens = $5, output_tokens = $6,
             cache_write_tokens = $7, cache_read_tokens = $8, microdollars = $9 WHERE brain = $1 AND id = $2",
        &[
            &brain.0,
            &reservation,
            &cost.model,
            &cost.backend,
            &signed(cost.input_tokens),
            &signed(cost.output_tokens),
            &signed(cost.cache_write_tokens),
            &signed(cost.cache_read_tokens),
            &signed(cost.microdollars),
        ],
    )?;
    Ok(())
}

pub(super) fn release(transaction: &mut Transaction, brain: BrainId, reservation: i64) -> Result<()> {
    transaction.execute("DELETE FROM spend WHERE brain = $1 AND id = $2", &[&brain.0, &reservation])?;
    Ok(())
}

/// The cost of a capture's model calls, in millionths of a dollar, and whether some of it is an estimate.
pub(super) fn capture_cost(
    transaction: &mut Transaction,
    brain: BrainId,
    capture: i64,
) -> Result<(u64, bool)> {
    let row = transaction.query_one(
        "SELECT coalesce(sum(microdollars), 0)::bigint, coalesce(bool_or(estimated), false)
         FROM spend WHERE brain = $1 AND capture_id = $2",
        &[&brain.0, &capture],
    )?;
    Ok((unsigned(row.get(0)), row.get(1)))
}

pub(super) fn saved_answer(
    transaction: &mut Transaction,
    brain: BrainId,
    claim: &Claim,
    question: &str,
) -> Result<Option<Vec<u8>>> {
    let sql = "SELECT body FROM answers WHERE brain = $1 AND capture_id = $2 AND question = $3";
    Ok(transaction.query_opt(sql, &[&brain.0, &claim.capture.id, &question])?.map(|row| row.get(0)))
}

/// Stores an answer until the capture ends. A worker that was replaced may store one too, since it was paid for; but
/// not for a capture that has ended, where nobody would delete it.
pub(super) fn save_answer(
    transaction: &mut Transaction,
    brain: BrainId,
    claim: &Claim,
    question: &str,
    body: &[u8],
) -> Result<()> {
    transaction.execute(
        "INSERT INTO answers (brain, capture_id, question, body)
         SELECT brain, id, $3, $4 FROM jobs WHERE brain = $1 AND id = $2 FOR KEY SHARE
         ON CONFLICT (brain, capture_id, question) DO UPDATE SET body = excluded.body",
        &[&brain.0, &claim.capture.id, &question, &body],
    )?;
    Ok(())
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
