//! The state of an index for `nugget status`: read in a millisecond or two, without vectors, and without creating,
//! repairing or locking anything.

use std::path::Path;
use std::time::Duration;

use brain::BrainFile;
use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use serde::Serialize;

use crate::schema::{self, State};
use crate::store::DATABASE;

/// The state of the newest generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IndexStatus {
    /// Its number.
    pub generation: u64,
    /// When it was published.
    pub built: Option<Timestamp>,
    /// The model of its vectors.
    pub model: String,
    /// Units in the index.
    pub units: usize,
    /// Chunks in the index.
    pub chunks: usize,
    /// Files that are not in the index because of an error, and are still as they were then.
    pub problems: usize,
    /// Files that were added, changed or removed since, by size and time.
    pub behind: usize,
}

/// Reads the state of the index in a brain's derived folder. `files`: the brain's present files.
///
/// `None` if there is no generation, or none that this version can read.
pub fn read_status(folder: &Path, files: &[BrainFile]) -> Option<IndexStatus> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(folder.join(DATABASE), flags).ok()?;
    connection.busy_timeout(Duration::from_millis(200)).ok()?;
    read(&connection, files).unwrap_or_else(|error| {
        tracing::debug!(%error, "failed to read the state of the index");
        None
    })
}

fn read(connection: &Connection, files: &[BrainFile]) -> rusqlite::Result<Option<IndexStatus>> {
    if schema::inspect(connection)? != State::Ours {
        return Ok(None);
    }
    let transaction = connection.unchecked_transaction()?;
    let found = transaction
        .query_row("SELECT number, built, model, units, chunks FROM generation", [], |row| {
            Ok(IndexStatus {
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
    let Some(mut status) = found else { return Ok(None) };
    let mut statement = transaction
        .prepare("SELECT path, size, modified_ns, problem IS NOT NULL FROM files ORDER BY path")?;
    let mut rows = statement.query([])?;
    // Both are sorted by path.
    let mut files = files.iter().peekable();
    while let Some(row) = rows.next()? {
        let path = row.get_ref(0)?.as_str()?;
        while files.next_if(|file| file.path.as_str() < path).is_some() {
            status.behind += 1;
        }
        let stamp = (row.get::<_, u64>(1)?, row.get::<_, i64>(2)?);
        let same = files
            .next_if(|file| file.path == path)
            .is_some_and(|file| (file.size, i64::try_from(file.modified_ns).unwrap_or(i64::MAX)) == stamp);
        status.behind += usize::from(!same);
        status.problems += usize::from(same && row.get::<_, bool>(3)?);
    }
    status.behind += files.count();
    Ok(Some(status))
}
