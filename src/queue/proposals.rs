//! The units that captures proposed, merged or not, and the transcript lines that they rest on.

use jiff::Timestamp;
use knowledge::SessionId;
use rusqlite::{Transaction, params};

use crate::store::Queue;
use crate::{Capture, Error};

/// A unit that a capture adds or changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProposedUnit {
    /// The unit's id.
    pub name: String,
    /// Whether the capture adds it; otherwise it changes an existing unit.
    pub is_new: bool,
    /// The unit's title.
    pub title: String,
    /// The embedding model that computed the vector.
    pub model: String,
    /// The embedding of the unit's text, `[dimensions] f32`; empty if there is none.
    pub vector: Vec<f32>,
    /// What is added to an existing unit: titles and embeddings.
    pub additions: Vec<(String, Vec<f32>)>,
    /// The transcript lines that it rests on: each line's uuid and an excerpt.
    pub evidence: Vec<(String, String)>,
}

/// A unit that another capture proposed, merged or not.
#[derive(Clone, Debug, PartialEq)]
pub struct EarlierProposal {
    /// The unit's id.
    pub name: String,
    /// Its title.
    pub title: String,
    /// The embedding model that computed the vector.
    pub model: String,
    /// Its embedding, `[dimensions] f32`; empty if there is none.
    pub vector: Vec<f32>,
    /// Whether a person has rejected it.
    pub is_rejected: bool,
}

/// A transcript line that a unit rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvidenceLine {
    /// The capture that proposed the unit.
    pub capture: i64,
    /// The capture's session.
    pub session: SessionId,
    /// The session's transcript.
    pub transcript: std::path::PathBuf,
    /// When the capture was announced.
    pub captured: Timestamp,
    /// The line's uuid.
    pub line: String,
    /// What the line says, redacted and shortened.
    pub excerpt: String,
}

impl Queue {
    /// What captures other than this one proposed, newest first, and what was merged after all the rest: the brain has it.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn proposed_by_others(&self, capture: i64, limit: usize) -> Result<Vec<EarlierProposal>, Error> {
        let sql = "SELECT name, title, model, vector FROM names JOIN captures ON captures.id = capture_id
                   WHERE capture_id <> ?1 AND title <> ''
                   ORDER BY coalesce(pull_state, 'open') = 'merged', capture_id DESC, name LIMIT ?2";
        self.query(sql, params![capture, limit], |row| {
            let bytes: Vec<u8> = row.get(3)?;
            Ok(EarlierProposal {
                name: row.get(0)?,
                title: row.get(1)?,
                model: row.get(2)?,
                vector: read_vector(&bytes),
                is_rejected: false,
            })
        })
    }

    /// The lines that a unit rests on, oldest first, as far as this queue has its captures.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn evidence(&self, unit: &str) -> Result<Vec<EvidenceLine>, Error> {
        let sql =
            "SELECT capture_id, line, excerpt FROM evidence WHERE unit = ?1 ORDER BY capture_id, position";
        let rows: Vec<(i64, String, String)> =
            self.query(sql, [unit], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let mut captures: Vec<Capture> = Vec::new();
        let mut lines = Vec::new();
        for (id, line, excerpt) in rows {
            if captures.last().is_none_or(|capture| capture.id != id) {
                captures.extend(self.capture(id)?);
            }
            let Some(capture) = captures.last().filter(|capture| capture.id == id) else {
                continue;
            };
            lines.push(EvidenceLine {
                capture: id,
                session: capture.session_id.clone(),
                transcript: capture.transcript.clone(),
                captured: capture.added,
                line,
                excerpt,
            });
        }
        Ok(lines)
    }
}

/// Reads a stored vector, `[n] f32` little-endian.
pub fn read_vector(bytes: &[u8]) -> Vec<f32> {
    let (numbers, _) = bytes.as_chunks();
    numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// The bytes that a vector is stored as: `[n] f32` little-endian.
pub fn write_vector(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Replaces what the capture proposed before.
pub(crate) fn store(
    transaction: &Transaction<'_>,
    capture: i64,
    units: &[ProposedUnit],
) -> Result<(), Error> {
    transaction.execute("DELETE FROM names WHERE capture_id = ?1", [capture])?;
    transaction.execute("DELETE FROM additions WHERE capture_id = ?1", [capture])?;
    transaction.execute("DELETE FROM evidence WHERE capture_id = ?1", [capture])?;
    for unit in units {
        if unit.is_new {
            let vector = write_vector(&unit.vector);
            transaction
                .prepare_cached(
                    "INSERT INTO names (name, capture_id, title, model, vector) VALUES (?1, ?2, ?3, ?4, ?5)",
                )?
                .execute(params![unit.name, capture, unit.title, unit.model, vector])?;
        }
        for (position, (title, vector)) in (0_i64..).zip(&unit.additions) {
            transaction
                .prepare_cached("INSERT OR REPLACE INTO additions VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
                .execute(params![unit.name, capture, position, title, unit.model, write_vector(vector)])?;
        }
        // Two proposals of one session may change the same unit.
        let first: i64 = transaction
            .prepare_cached("SELECT count(*) FROM evidence WHERE unit = ?1 AND capture_id = ?2")?
            .query_row(params![unit.name, capture], |row| row.get(0))?;
        for (position, (line, excerpt)) in (first..).zip(&unit.evidence) {
            transaction
                .prepare_cached("INSERT INTO evidence VALUES (?1, ?2, ?3, ?4, ?5)")?
                .execute(params![unit.name, capture, position, line, excerpt])?;
        }
    }
    Ok(())
}
