//! Takes over captures from laptops.

use jiff::Timestamp;
use knowledge::SessionId;

use super::rows::storable;
use crate::store::Transaction;
use crate::{BrainId, Error, Result};

/// A capture after its intake on a laptop.
#[derive(Clone, Debug)]
pub struct NewCapture<'a> {
    /// blake3 of the session and its lines' uuids: the same key is the same capture.
    pub key: [u8; 32],
    /// The session, as Claude Code names it.
    pub session: &'a SessionId,
    /// The name of the project that the session worked in, if known.
    pub project: Option<&'a str>,
    /// When the session ended, if known.
    pub ended: Option<Timestamp>,
    /// The uuids of the transcript's lines that it consists of.
    pub lines: &'a [String],
    /// What intake stored for extraction.
    pub body: &'a [u8],
    /// Who hands it over.
    pub subject: &'a str,
    /// How it was announced: `hook`, `command`, ….
    pub origin: &'a str,
}

/// The capture that a hand-over made, or had made before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The capture's number.
    pub id: i64,
    /// Whether this hand-over made it.
    pub is_new: bool,
}

/// All rows of a new capture, and its number. Lines are inserted in the order of their uuids, so that two hand-overs
/// with common lines wait for each other and never in a circle. A brain may have been removed since its token was read.
const ACCEPT: &str = "
WITH capture AS (
    INSERT INTO captures (brain, key, session_id, project, subject, origin, ended)
        SELECT id, $2, $3, $4, $5, $6, $7 FROM brains WHERE id = $1
        ON CONFLICT (brain, key) DO NOTHING RETURNING id),
act AS (
    INSERT INTO audit (subject, action, brain, object) SELECT $5, 'capture.hand_over', $1, id FROM capture),
job AS (INSERT INTO jobs (brain, id, session_id, stage) SELECT $1, id, $3, 'extraction' FROM capture),
result AS (INSERT INTO results (brain, capture_id, body) SELECT $1, id, $8 FROM capture),
line AS (
    INSERT INTO lines (brain, uuid, capture_id)
        SELECT $1, uuid, id FROM capture, unnest($9::text[]) AS uuid ORDER BY uuid
        ON CONFLICT DO NOTHING RETURNING 1)
SELECT id, (SELECT count(*) FROM line) FROM capture";

pub(super) fn accept(
    transaction: &mut Transaction,
    brain: BrainId,
    capture: &NewCapture<'_>,
) -> Result<Accepted> {
    let session = storable(capture.session.as_str());
    let key = capture.key.as_slice();
    let inserted = transaction.query_opt(
        ACCEPT,
        &[
            &brain.0,
            &key,
            &session,
            &capture.project.map(storable),
            &storable(capture.subject),
            &storable(capture.origin),
            &capture.ended,
            &capture.body,
            &capture.lines,
        ],
    )?;
    let Some(row) = inserted else {
        let sql = "SELECT id FROM captures WHERE brain = $1 AND key = $2";
        let known = transaction.query_opt(sql, &[&brain.0, &key])?;
        let known = known.ok_or_else(|| Error::Brain { what: format!("there is no brain {brain}") })?;
        return Ok(Accepted { id: known.get(0), is_new: false });
    };
    let (id, new_lines): (i64, i64) = (row.get(0), row.get(1));
    if new_lines == 0 && !capture.lines.is_empty() {
        end_as_known(transaction, brain, id)?;
    }
    Ok(Accepted { id, is_new: true })
}

/// Ends a capture of whose lines other captures have all: a copy of the session that was resumed on another laptop.
fn end_as_known(transaction: &mut Transaction, brain: BrainId, id: i64) -> Result<()> {
    transaction.execute(
        "UPDATE captures SET outcome = 'nothing', stage = 'extraction', finished = now(),
             reason = 'all of its lines were captured before' WHERE brain = $1 AND id = $2",
        &[&brain.0, &id],
    )?;
    transaction.execute("DELETE FROM jobs WHERE brain = $1 AND id = $2", &[&brain.0, &id])?;
    transaction.execute("DELETE FROM results WHERE brain = $1 AND capture_id = $2", &[&brain.0, &id])?;
    Ok(())
}
