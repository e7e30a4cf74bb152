//! Files the past of a project under its new key: a repository is known by its folder until it has a remote.

use rusqlite::{Transaction, params};

use crate::error::Error;
use crate::memories::note_change;
use crate::project::key_with_remote;
use crate::store::Writer;

/// Renames the projects whose repositories have a remote now.
pub(crate) fn follow_remotes(writer: &mut Writer) -> Result<(), Error> {
    let sql = "SELECT DISTINCT project FROM sessions WHERE project >= '/' AND project < '0'";
    let keys: Vec<String> =
        writer.connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for old in keys {
        if let Some(new) = key_with_remote(&old) {
            let transaction = writer.begin()?;
            rename(&transaction, &old, &new)?;
            transaction.commit()?;
        }
    }
    Ok(())
}

fn rename(transaction: &Transaction<'_>, old: &str, new: &str) -> Result<(), Error> {
    for table in ["sessions", "records", "memories", "memory_vectors", "shown", "questions"] {
        let sql = format!("UPDATE {table} SET project = ?2 WHERE project = ?1");
        transaction.execute(&sql, params![old, new])?;
    }
    let forgotten = "INSERT OR IGNORE INTO forgotten_memories
        SELECT ?2, digest FROM forgotten_memories WHERE project = ?1";
    transaction.execute(forgotten, params![old, new])?;
    // Weights are learned again.
    for sql in ["DELETE FROM forgotten_memories WHERE project = ?1", "DELETE FROM weights WHERE scope = ?1"] {
        transaction.execute(sql, [old])?;
    }
    note_change(transaction, old)?;
    note_change(transaction, new)
}
