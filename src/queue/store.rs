//! The queue's database: connections, write transactions, the write-ahead log, and status reports.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::{Params, Row, Transaction, TransactionBehavior, params};

use crate::Error;
use crate::schema::{self, BusyTimeout};

const CONNECTIONS_MAX: u32 = 6;
/// The write-ahead log is emptied once it is larger than this.
const LOG_BYTES_MAX: u64 = 6 << 20;

/// The queue of one brain.
#[derive(Clone, Debug)]
pub struct Queue {
    pool: r2d2::Pool<SqliteConnectionManager>,
    path: PathBuf,
    /// Held during a write. The writers of one process wait for each other here and do not have to
    /// sleep until SQLite lets them in.
    write_lock: Arc<Mutex<()>>,
}

impl Queue {
    /// Opens the queue, and creates it if it does not exist.
    ///
    /// # Errors
    /// [`Error::Open`], or [`Error::Newer`] when a later version wrote the file.
    pub fn open(path: &Path) -> Result<Self, Error> {
        // One connection first: it creates the tables, and its error is clearer than the pool's.
        drop(schema::open(path, BusyTimeout::Worker)?);
        let manager = SqliteConnectionManager::file(path)
            .with_init(|connection| schema::set_up(connection, BusyTimeout::Worker));
        let pool = r2d2::Pool::builder()
            .max_size(CONNECTIONS_MAX)
            .min_idle(Some(1))
            .connection_timeout(Duration::from_secs(20))
            .build(manager)?;
        Ok(Self { pool, path: path.to_owned(), write_lock: Arc::default() })
    }

    /// The database file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Stores a report for `nugget status` under a name, in place of the previous one.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn report(&self, name: &str, body: &str, now: Timestamp) -> Result<(), Error> {
        let sql = "INSERT OR REPLACE INTO reports VALUES (?1, ?2, ?3, ?4)";
        self.execute(sql, params![name, std::process::id(), now.as_millisecond(), body]).map(drop)
    }

    /// The last report under a name: process id, time, text.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn last_report(&self, name: &str) -> Result<Option<(u32, Timestamp, String)>, Error> {
        let sql = "SELECT pid, at_ms, body FROM reports WHERE name = ?1";
        let read = |row: &Row<'_>| Ok((row.get(0)?, timestamp(row.get(1)?)?, row.get(2)?));
        Ok(self.query(sql, [name], read)?.pop())
    }

    /// Calls [`checkpoint`](Self::checkpoint) if the log has grown large. SQLite's own checkpoints never
    /// restart the log while anyone reads, and with five stages at work somebody always does: over
    /// 10,000 captures it grew to 181 MiB.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn truncate_large_log(&self) -> Result<(), Error> {
        let mut log = self.path.clone().into_os_string();
        log.push("-wal");
        match std::fs::metadata(log) {
            Ok(metadata) if metadata.len() > LOG_BYTES_MAX => self.checkpoint(),
            _ => Ok(()),
        }
    }

    /// Moves the write-ahead log into the database and empties it.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn checkpoint(&self) -> Result<(), Error> {
        let connection = self.connection()?;
        let _guard = self.lock_writes();
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(())
    }

    /// Runs one statement, and returns how many rows it has changed.
    pub(crate) fn execute(&self, sql: &str, params: impl Params) -> Result<usize, Error> {
        self.write(|transaction| Ok(transaction.execute(sql, params)?))
    }

    /// Reads all rows of a query.
    pub(crate) fn query<T>(
        &self,
        sql: &str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let connection = self.connection()?;
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(read(row)?);
        }
        Ok(found)
    }

    /// Reads the one number of a query.
    pub(crate) fn count(&self, sql: &str) -> Result<u64, Error> {
        Ok(self.connection()?.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
    }

    fn lock_writes(&self) -> MutexGuard<'_, ()> {
        self.write_lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn connection(&self) -> Result<r2d2::PooledConnection<SqliteConnectionManager>, Error> {
        Ok(self.pool.get()?)
    }

    /// Runs `work` in a transaction and commits it.
    ///
    /// The transaction takes SQLite's write lock when it begins: one that first reads and then wants
    /// to write would be refused at once, whatever its busy timeout.
    pub(crate) fn write<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut connection = self.connection()?;
        let _guard = self.lock_writes();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let value = work(&transaction)?;
        transaction.commit()?;
        Ok(value)
    }
}

pub(crate) fn timestamp(ms: i64) -> Result<Timestamp, Error> {
    Timestamp::from_millisecond(ms).map_err(|_| Error::Value { what: format!("time {ms}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestQueue;

    #[test]
    fn a_queue_of_a_newer_nugget_is_left_alone() {
        let test = TestQueue::new();
        let connection = rusqlite::Connection::open(test.queue.path()).unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();
        assert!(matches!(Queue::open(test.queue.path()), Err(Error::Newer { version: 99, .. })));
    }

    #[test]
    fn a_new_queue_is_opened_by_many_at_once() {
        for _ in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let (path, start) = (folder.path().join("queue.db"), std::sync::Barrier::new(8));
            std::thread::scope(|threads| {
                for _ in 0..8 {
                    threads.spawn(|| {
                        start.wait();
                        assert_eq!(Queue::open(&path).unwrap().captures(1).unwrap().len(), 0);
                    });
                }
            });
        }
    }
}
