//! What a person has decided about the items of branches, and what was rejected, so that it is not proposed again.

use jiff::Timestamp;
use postgres::Row;
use queue::{Decision, EarlierProposal, FileDecision};

use super::proposals;
use super::rows::storable;
use crate::store::Transaction;
use crate::{BrainId, Result};

pub(super) fn list(transaction: &mut Transaction, brain: BrainId) -> Result<Vec<FileDecision>> {
    let sql =
        "SELECT branch, path, decision, because, until FROM decisions WHERE brain = $1 ORDER BY branch, path";
    transaction.query(sql, &[&brain.0])?.iter().map(read).collect()
}

fn read(row: &Row) -> Result<FileDecision> {
    let decision = match row.get(2) {
        "merged" => Decision::Merged,
        "rejected" => Decision::Rejected { because: row.get(3) },
        "later" => {
            Decision::Later { until: row.get::<_, Option<Timestamp>>(4).unwrap_or(Timestamp::UNIX_EPOCH) }
        }
        other => return Err(queue::Error::Value { what: format!("decision {other:?}") }.into()),
    };
    Ok(FileDecision { branch: row.get(0), path: row.get(1), decision })
}

pub(super) fn decide(
    transaction: &mut Transaction,
    brain: BrainId,
    branch: &str,
    paths: &[&str],
    decision: &Decision,
    now: Timestamp,
) -> Result<()> {
    let (word, because, until) = match decision {
        Decision::Merged => ("merged", None, None),
        Decision::Rejected { because } => ("rejected", because.as_deref(), None),
        Decision::Later { until } => ("later", None, Some(until)),
    };
    transaction.execute(
        "INSERT INTO decisions (brain, branch, path, decision, because, until, at)
         SELECT DISTINCT $1::int, $2, path, $4, $5, $6::timestamptz, $7::timestamptz FROM unnest($3::text[]) AS path
         ON CONFLICT (brain, branch, path) DO UPDATE
             SET decision = excluded.decision, because = excluded.because, until = excluded.until, at = excluded.at",
        &[&brain.0, &branch, &paths, &word, &because.map(storable), &until, &now],
    )?;
    Ok(())
}

pub(super) fn forget(
    transaction: &mut Transaction,
    brain: BrainId,
    branch: &str,
    paths: &[&str],
) -> Result<()> {
    let sql = "DELETE FROM decisions WHERE brain = $1 AND branch = $2 AND path = ANY ($3)";
    transaction.execute(sql, &[&brain.0, &branch, &paths])?;
    Ok(())
}

/// Records what the branch's captures proposed of the unit; only its title where they are not known: an import, or a
/// capture whose record was deleted.
pub(super) fn remember_rejected(
    transaction: &mut Transaction,
    brain: BrainId,
    branch: &str,
    unit: &str,
    title: &str,
    because: Option<&str>,
    now: Timestamp,
) -> Result<()> {
    transaction.execute(
        "WITH made AS (SELECT id FROM captures WHERE brain = $1 AND branch = $2),
         known AS (
             SELECT title, model, vector FROM names
                 WHERE brain = $1 AND name = $3 AND title <> '' AND capture_id IN (SELECT id FROM made)
             UNION ALL
             SELECT title, model, vector FROM additions
                 WHERE brain = $1 AND unit = $3 AND capture_id IN (SELECT id FROM made)),
         found AS (
             SELECT DISTINCT ON (title, model) title, model, vector FROM known
             UNION ALL
             SELECT $4, '', '' WHERE NOT EXISTS (SELECT FROM known))
         INSERT INTO rejected (brain, unit, title, model, vector, because, at)
             SELECT $1, $3, title, model, vector, $5, $6 FROM found
         ON CONFLICT (brain, unit, title, model) DO UPDATE
             SET vector = excluded.vector, because = excluded.because, at = excluded.at",
        &[&brain.0, &branch, &unit, &storable(title), &because.map(storable), &now],
    )?;
    Ok(())
}

pub(super) fn rejected(
    transaction: &mut Transaction,
    brain: BrainId,
    limit: usize,
) -> Result<Vec<EarlierProposal>> {
    let rows = transaction.query(
        "SELECT unit, title, model, vector FROM rejected WHERE brain = $1 ORDER BY at DESC, unit, title LIMIT $2",
        &[&brain.0, &(limit as i64)],
    )?;
    Ok(rows.iter().map(|row| proposals::read(row, true)).collect())
}
