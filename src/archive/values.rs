//! The values that occur in the archive, for shells that complete a filter.

use crate::error::Error;
use crate::store::Archive;

/// What a filter is by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The folder of a session's project.
    Project,
    /// A branch that was checked out.
    Branch,
    /// A model.
    Model,
    /// A client.
    Source,
    /// A tool.
    Tool,
    /// A file that was changed.
    File,
}

impl Archive {
    /// The values that occur, each once, at most `limit`; the latest sessions' first where they are of sessions.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn values(&self, field: Field, limit: usize) -> Result<Vec<String>, Error> {
        let of_sessions = |column: &str| {
            format!(
                "SELECT {column} FROM sessions WHERE {column} IS NOT NULL AND parent IS NULL
                GROUP BY {column} ORDER BY max(id) DESC LIMIT ?1"
            )
        };
        let sql = match field {
            Field::Project => of_sessions("path"),
            Field::Branch => of_sessions("branch"),
            Field::Model => of_sessions("model"),
            Field::Source => of_sessions("source"),
            Field::Tool => {
                "SELECT name FROM names WHERE id IN (SELECT name FROM tool_uses) LIMIT ?1".to_owned()
            }
            Field::File => {
                "SELECT name FROM names WHERE id IN (SELECT file FROM file_modifications) LIMIT ?1".to_owned()
            }
        };
        let connection = self.connection()?;
        let mut statement = connection.prepare(&sql)?;
        let values = statement.query_map([limit as i64], |row| row.get(0))?;
        Ok(values.collect::<Result<_, _>>()?)
    }
}
