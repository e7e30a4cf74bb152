//! The words of a whole new generation, gathered in memory while the rest of it is made.
//!
//! Gathering and sorting words is the largest part of making an index without the model, and one connection to
//! a database does one thing at a time. A generation that keeps nothing of the one before gets its words' table
//! from another database, in memory, whose tables (FTS5's own, with their contents as the same library writes
//! them) are copied into the transaction that makes the generation.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, Transaction, params_from_iter};

use crate::schema;

/// What each chunk of a unit is found by: heading, text and parts of identifiers.
pub(crate) type Words = Vec<[String; 3]>;

pub(crate) struct Aside {
    sender: Sender<Option<Vec<Words>>>,
    thread: JoinHandle<rusqlite::Result<Option<Connection>>>,
}

impl Aside {
    /// `first_row`: of the first chunk; the others follow.
    pub(crate) fn begin(first_row: i64) -> Self {
        let (sender, receiver) = channel();
        Self { sender, thread: std::thread::spawn(move || gather(first_row, &receiver)) }
    }

    /// The words of the next units.
    pub(crate) fn add(&self, words: Vec<Words>) {
        // It fails when the thread has, which is told in the end.
        let _ = self.sender.send(Some(words));
    }

    /// Puts all words into the transaction's table, which must be empty.
    ///
    /// The table of words must not be used in this connection afterwards: it would go by what it knows of its
    /// contents from before.
    pub(crate) fn copy_into(self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        let _ = self.sender.send(None);
        let gathered = match self.thread.join() {
            Ok(gathered) => gathered?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        // `None` is for those that nobody waits for.
        let Some(gathered) = gathered else { return Ok(()) };
        for table in ["chunks_fts_data", "chunks_fts_idx", "chunks_fts_docsize"] {
            copy(&gathered, transaction, table)?;
        }
        Ok(())
    }
}

/// The words' table in a database of its own; `None` when it is not wanted any more.
fn gather(first_row: i64, receiver: &Receiver<Option<Vec<Words>>>) -> rusqlite::Result<Option<Connection>> {
    let mut connection = Connection::open_in_memory()?;
    connection.pragma_update(None, "journal_mode", "OFF")?;
    connection.execute_batch(schema::WORDS)?;
    let transaction = connection.transaction()?;
    let mut row = first_row;
    loop {
        match receiver.recv() {
            Ok(Some(units)) => {
                for words in units.iter().flatten() {
                    put(&transaction, row, words)?;
                    row += 1;
                }
            }
            Ok(None) => break,
            Err(_) => return Ok(None),
        }
    }
    transaction.commit()?;
    Ok(Some(connection))
}

pub(crate) fn put(
    transaction: &Transaction<'_>,
    row: i64,
    [heading, text, parts]: &[String; 3],
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT INTO chunks_fts(rowid, heading, text, parts) VALUES (?1, ?2, ?3, ?4)")?
        .execute((row, heading, text, parts))
        .map(drop)
}

/// Makes a table the same as that of another database.
pub(crate) fn copy(from: &Connection, to: &Transaction<'_>, table: &str) -> rusqlite::Result<()> {
    to.execute(&format!("DELETE FROM {table}"), [])?;
    let mut read = from.prepare(&format!("SELECT * FROM {table}"))?;
    let columns = read.column_count();
    let places = vec!["?"; columns].join(", ");
    let mut write = to.prepare(&format!("INSERT INTO {table} VALUES ({places})"))?;
    let mut rows = read.query([])?;
    while let Some(row) = rows.next()? {
        let values: Vec<ToSqlOutput<'_>> =
            (0..columns).map(|at| row.get_ref(at).map(ToSqlOutput::Borrowed)).collect::<Result<_, _>>()?;
        write.execute(params_from_iter(values))?;
    }
    Ok(())
}
