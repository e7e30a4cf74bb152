//! The units that captures proposed, and the transcript lines that they rest on.

use std::collections::HashMap;

use queue::{Claim, EarlierProposal, ProposedUnit, read_vector, write_vector};

use super::claims::store_result;
use super::rows::hold;
use super::rows::storable;
use crate::store::Transaction;
use crate::{BrainId, Result};

/// Stores what a stage decided, in place of what the capture proposed before. Returns the names that another capture
/// has; if there are any, nothing is stored.
pub(super) fn save_result(
    transaction: &mut Transaction,
    brain: BrainId,
    claim: &Claim,
    result: &[u8],
    units: &[ProposedUnit],
) -> Result<Vec<String>> {
    let id = claim.capture.id;
    hold(transaction, brain, claim)?;
    for table in ["names", "additions", "evidence"] {
        let sql = format!("DELETE FROM {table} WHERE brain = $1 AND capture_id = $2");
        transaction.execute(&sql, &[&brain.0, &id])?;
    }
    let taken = store_names(transaction, brain, id, units)?;
    if !taken.is_empty() {
        transaction.roll_back();
        return Ok(taken);
    }
    store_additions(transaction, brain, id, units)?;
    store_evidence(transaction, brain, id, units)?;
    store_result(transaction, brain, id, result)?;
    Ok(taken)
}

/// Gives the capture the names of its new units, and returns those that another capture has.
fn store_names(
    transaction: &mut Transaction,
    brain: BrainId,
    id: i64,
    units: &[ProposedUnit],
) -> Result<Vec<String>> {
    let new: Vec<_> = units.iter().filter(|unit| unit.is_new).collect();
    if new.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<&str> = new.iter().map(|unit| unit.name.as_str()).collect();
    let titles: Vec<String> = new.iter().map(|unit| storable(&unit.title)).collect();
    let models: Vec<&str> = new.iter().map(|unit| unit.model.as_str()).collect();
    let vectors: Vec<Vec<u8>> = new.iter().map(|unit| write_vector(&unit.vector)).collect();
    // In the order of the names: two captures with common names wait for each other and never in a circle.
    transaction.execute(
        "INSERT INTO names (brain, name, capture_id, title, model, vector)
         SELECT $1, name, $2, title, model, vector
         FROM unnest($3::text[], $4::text[], $5::text[], $6::bytea[]) AS new(name, title, model, vector) ORDER BY name
         ON CONFLICT DO NOTHING",
        &[&brain.0, &id, &names, &titles, &models, &vectors],
    )?;
    // A statement of its own: it sees what others have committed while the one above waited for them.
    let taken = transaction.query(
        "SELECT name FROM unnest($3::text[]) WITH ORDINALITY AS wanted(name, position) JOIN names USING (name)
         WHERE brain = $1 AND capture_id <> $2 ORDER BY position",
        &[&brain.0, &id, &names],
    )?;
    Ok(taken.iter().map(|row| row.get(0)).collect())
}

fn store_additions(
    transaction: &mut Transaction,
    brain: BrainId,
    id: i64,
    units: &[ProposedUnit],
) -> Result<()> {
    let additions =
        || units.iter().flat_map(|unit| (0_i32..).zip(&unit.additions).map(move |each| (unit, each)));
    if additions().next().is_none() {
        return Ok(());
    }
    let names: Vec<&str> = additions().map(|(unit, _)| unit.name.as_str()).collect();
    let models: Vec<&str> = additions().map(|(unit, _)| unit.model.as_str()).collect();
    let positions: Vec<i32> = additions().map(|(_, (position, _))| position).collect();
    let titles: Vec<String> = additions().map(|(_, (_, (title, _)))| storable(title)).collect();
    let vectors: Vec<Vec<u8>> = additions().map(|(_, (_, (_, vector)))| write_vector(vector)).collect();
    // Of two proposals that change the same unit, the later one's are kept.
    transaction.execute(
        "INSERT INTO additions (brain, unit, capture_id, position, title, model, vector)
         SELECT DISTINCT ON (unit, position) $1, unit, $2, position, title, model, vector
         FROM unnest($3::text[], $4::int[], $5::text[], $6::text[], $7::bytea[]) WITH ORDINALITY
             AS new(unit, position, title, model, vector, number)
         ORDER BY unit, position, number DESC",
        &[&brain.0, &id, &names, &positions, &titles, &models, &vectors],
    )?;
    Ok(())
}

fn store_evidence(
    transaction: &mut Transaction,
    brain: BrainId,
    id: i64,
    units: &[ProposedUnit],
) -> Result<()> {
    // Two proposals of one session may change the same unit: positions go on.
    let mut next: HashMap<&str, i32> = HashMap::new();
    let (mut names, mut positions, mut lines, mut excerpts) = (vec![], vec![], vec![], vec![]);
    for unit in units {
        for (line, excerpt) in &unit.evidence {
            let position = next.entry(&unit.name).or_default();
            names.push(unit.name.as_str());
            positions.push(*position);
            lines.push(storable(line));
            excerpts.push(storable(excerpt));
            *position += 1;
        }
    }
    if names.is_empty() {
        return Ok(());
    }
    transaction.execute(
        "INSERT INTO evidence (brain, unit, capture_id, position, line, excerpt)
         SELECT $1, unit, $2, position, line, excerpt
         FROM unnest($3::text[], $4::int[], $5::text[], $6::text[]) AS new(unit, position, line, excerpt)",
        &[&brain.0, &id, &names, &positions, &lines, &excerpts],
    )?;
    Ok(())
}

pub(super) fn is_name_taken(
    transaction: &mut Transaction,
    brain: BrainId,
    capture: i64,
    name: &str,
) -> Result<bool> {
    let sql = "SELECT 1 FROM names WHERE brain = $1 AND name = $2 AND capture_id <> $3";
    Ok(transaction.query_opt(sql, &[&brain.0, &name, &capture])?.is_some())
}

pub(super) fn proposed_by_others(
    transaction: &mut Transaction,
    brain: BrainId,
    capture: i64,
    limit: usize,
) -> Result<Vec<EarlierProposal>> {
    let rows = transaction.query(
        "SELECT name, title, model, vector FROM names
         JOIN captures ON captures.brain = names.brain AND captures.id = capture_id
         WHERE names.brain = $1 AND capture_id <> $2 AND title <> ''
         ORDER BY coalesce(pull_state, 'open') = 'merged', capture_id DESC, name LIMIT $3",
        &[&brain.0, &capture, &(limit as i64)],
    )?;
    Ok(rows.iter().map(|row| read(row, false)).collect())
}

/// Reads the columns name, title, model, vector.
pub(super) fn read(row: &postgres::Row, is_rejected: bool) -> EarlierProposal {
    EarlierProposal {
        name: row.get(0),
        title: row.get(1),
        model: row.get(2),
        vector: read_vector(row.get(3)),
        is_rejected,
    }
}
