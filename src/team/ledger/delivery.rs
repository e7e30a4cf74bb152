//! Which branches and pull requests the remote has, and which captures still wait for it.

use queue::{Branch, Capture, Claim, PullRequest, PullState, Stage};

use super::claims::store_result;
use super::rows;
use super::rows::hold;
use crate::store::Transaction;
use crate::{BrainId, Result};

pub(super) fn record_push(
    transaction: &mut Transaction,
    brain: BrainId,
    claim: &Claim,
    commit: &str,
) -> Result<()> {
    hold(transaction, brain, claim)?;
    let sql = "UPDATE captures SET pushed = $3 WHERE brain = $1 AND id = $2";
    transaction.execute(sql, &[&brain.0, &claim.capture.id, &commit])?;
    Ok(())
}

pub(super) fn record_batch(
    transaction: &mut Transaction,
    brain: BrainId,
    claim: &Claim,
    branch: &Branch,
) -> Result<()> {
    hold(transaction, brain, claim)?;
    let Branch { name, commit, units } = branch;
    transaction.execute(
        "UPDATE captures SET branch = $3, commit_id = $4, pushed = $4, units = $5 WHERE brain = $1 AND id = $2",
        &[&brain.0, &claim.capture.id, name, commit, &units.cast_signed()],
    )?;
    Ok(())
}

pub(super) fn record_pull_request(
    transaction: &mut Transaction,
    brain: BrainId,
    claim: &Claim,
    pull: &PullRequest,
) -> Result<()> {
    hold(transaction, brain, claim)?;
    transaction.execute(
        "UPDATE captures SET pull_number = $3, pull_url = $4, pull_state = $5 WHERE brain = $1 AND id = $2",
        &[&brain.0, &claim.capture.id, &pull.number.cast_signed(), &pull.url, &pull.state.as_str()],
    )?;
    Ok(())
}

/// Records the state of a capture's pull request. Once it is decided, what was stored for making the branch again is
/// deleted.
pub(super) fn set_pull_state(
    transaction: &mut Transaction,
    brain: BrainId,
    id: i64,
    commit: Option<&str>,
    state: PullState,
) -> Result<()> {
    transaction.execute(
        "WITH capture AS (
             UPDATE captures SET pull_state = $3
             WHERE brain = $1 AND id = $2 AND ($4::text IS NULL OR commit_id = $4) RETURNING id, outcome)
         DELETE FROM results
         WHERE brain = $1 AND $3 <> 'open' AND capture_id = (SELECT id FROM capture WHERE outcome = 'done')",
        &[&brain.0, &id, &state.as_str(), &commit],
    )?;
    Ok(())
}

pub(super) fn awaiting_decision(transaction: &mut Transaction, brain: BrainId) -> Result<Vec<Capture>> {
    let condition = "c.outcome = 'done' AND c.pushed IS NOT NULL AND coalesce(c.pull_state, 'open') = 'open'
        ORDER BY c.id";
    rows::select(transaction, condition, &[&brain.0])
}

pub(super) fn redeliver(transaction: &mut Transaction, brain: BrainId) -> Result<usize> {
    let queued = transaction.execute(
        "WITH undelivered AS (
             UPDATE captures SET outcome = NULL, finished = NULL, reason = NULL
             WHERE brain = $1 AND outcome = 'done' AND branch IS NOT NULL AND pushed IS NULL AND pull_state IS NULL
             RETURNING id, session_id)
         INSERT INTO jobs (brain, id, session_id, stage) SELECT $1, id, session_id, 'delivery' FROM undelivered",
        &[&brain.0],
    )?;
    Ok(queued as usize)
}

pub(super) fn reopen(
    transaction: &mut Transaction,
    brain: BrainId,
    id: i64,
    stage: Stage,
    input: &[u8],
) -> Result<bool> {
    let reopened = transaction.execute(
        "WITH decided AS (
             UPDATE captures SET outcome = NULL, finished = NULL, reason = NULL
             WHERE brain = $1 AND id = $2 AND outcome = 'done' AND pull_state = 'open' RETURNING id, session_id)
         INSERT INTO jobs (brain, id, session_id, stage) SELECT $1, id, session_id, $3 FROM decided",
        &[&brain.0, &id, &stage.as_str()],
    )?;
    if reopened > 0 {
        store_result(transaction, brain, id, input)?;
    }
    Ok(reopened > 0)
}
