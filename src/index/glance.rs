//! What an index says of itself, for who looks from outside: read in a millisecond or two, without its
//! vectors, and without making, mending or locking anything.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use brain::BrainFile;
use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use serde::Serialize;

use crate::schema::{self, State};
use crate::store::DATABASE;

/// The present generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Glance {
    pub generation: u64,
    /// When it was published.
    pub built: Option<Timestamp>,
    /// The model that its vectors are of.
    pub model: String,
    pub units: usize,
    pub chunks: usize,
    /// Files that are not in it, as they cannot be read as units.
    pub problems: usize,
    /// Files that are new, other or gone since it was made, by size and time.
    pub behind: usize,
}

/// Looks at the index in a brain's derived folder; `files` are the brain's at this moment. `None` when there
/// is no generation, or none that this version can read.
pub fn glance(folder: &Path, files: &[BrainFile]) -> Option<Glance> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(folder.join(DATABASE), flags).ok()?;
    connection.busy_timeout(Duration::from_millis(200)).ok()?;
    look(&connection, files).unwrap_or_else(|error| {
        tracing::debug!(%error, "the index cannot be looked at");
        None
    })
}

fn look(connection: &Connection, files: &[BrainFile]) -> rusqlite::Result<Option<Glance>> {
    if schema::inspect(connection)? != State::Ours {
        return Ok(None);
    }
    let transaction = connection.unchecked_transaction()?;
    let found = transaction
        .query_row("SELECT number, built, model, units, chunks FROM generation", [], |row| {
            Ok(Glance {
                generation: row.get(0)?,
                built: row.get::<_, String>(1)?.parse().ok(),
                model: row.get(2)?,
                units: row.get(3)?,
                chunks: row.get(4)?,
                problems: 0,
                behind: 0,
            })
        })
        .optional()?;
    let Some(mut glance) = found else { return Ok(None) };
    let mut statement =
        transaction.prepare("SELECT path, size, modified_ns, problem IS NOT NULL FROM files")?;
    let mut rows = statement.query([])?;
    let mut known: HashMap<String, (u64, i64)> = HashMap::new();
    while let Some(row) = rows.next()? {
        known.insert(row.get(0)?, (row.get(1)?, row.get(2)?));
        glance.problems += usize::from(row.get::<_, bool>(3)?);
    }
    let mut same = 0;
    for file in files {
        let stamp = (file.size, i64::try_from(file.modified_ns).unwrap_or(i64::MAX));
        match known.get(&file.path) {
            Some(known) if *known == stamp => same += 1,
            Some(_) => {
                same += 1;
                glance.behind += 1;
            }
            None => glance.behind += 1,
        }
    }
    glance.behind += known.len() - same;
    Ok(Some(glance))
}
