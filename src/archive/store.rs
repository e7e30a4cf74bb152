//! The database: connections, and the lock of the one writer.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use queue::{BusyTimeout, FileLocks, LockGuard};
use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::block;
use crate::error::Error;
use crate::schema::MIGRATIONS;

const CONNECTIONS_MAX: u32 = 6;
const RETRY_EVERY: Duration = Duration::from_millis(20);
/// Pages of the writer that wait for the end of the transaction.
const WRITER_CACHE_KIB: i64 = 48 << 10;
const READER_CACHE_KIB: i64 = 8 << 10;

/// The file's name in the state folder.
pub const FILE_NAME: &str = "archive.db";

/// The archive of one user's sessions.
///
/// Any number of threads and processes may read while one writes. Dropping it closes the connections.
#[derive(Clone, Debug)]
pub struct Archive {
    pool: r2d2::Pool<SqliteConnectionManager>,
    path: PathBuf,
}

pub(crate) type Pooled = r2d2::PooledConnection<SqliteConnectionManager>;

/// The right to write, until it is dropped.
pub(crate) struct Writer {
    pub(crate) connection: Connection,
    _lock: LockGuard,
}

impl Writer {
    /// A transaction that has SQLite's write lock from the beginning: one that first reads and then wants to write
    /// would be refused at once, whatever its busy timeout.
    pub(crate) fn begin(&mut self) -> Result<Transaction<'_>, Error> {
        Ok(self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?)
    }

    /// Moves the log into the database and empties it: until then it has what was deleted. `false` if another process
    /// reads for longer than `patience`; the next sync tries it again. The last that a writer does.
    pub(crate) fn empty_log(&self, patience: Duration) -> Result<bool, Error> {
        self.connection.busy_timeout(patience)?;
        let is_busy: bool =
            self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
        Ok(!is_busy)
    }
}

impl Archive {
    /// Opens the archive, and creates it, with its folder, if it does not exist.
    ///
    /// # Errors
    /// [`Error::Open`], or [`Error::Newer`] when a later version wrote the file.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_with(path, BusyTimeout::Worker)
    }

    fn open_with(path: &Path, timeout: BusyTimeout) -> Result<Self, Error> {
        if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
            let failed = |source| Error::File { path: folder.to_owned(), source };
            system::file::create_private_folder(folder).map_err(failed)?;
        }
        // One connection first: it creates the tables, and its error is clearer than the pool's.
        drop(queue::open_database(path, timeout, &MIGRATIONS).map_err(Error::from_queue)?);
        let manager = SqliteConnectionManager::file(path).with_init(move |connection| {
            queue::set_up_connection(connection, timeout)?;
            connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)
        });
        let pool = r2d2::Pool::builder()
            .max_size(CONNECTIONS_MAX)
            .min_idle(Some(0))
            .connection_timeout(Duration::from_secs(20))
            .build(manager)?;
        Ok(Self { pool, path: path.to_owned() })
    }

    /// Opens the archive if there is one; creates nothing. Waits less for a process that has locked it: somebody waits
    /// for what is read.
    ///
    /// # Errors
    /// Those of [`Archive::open`].
    pub fn open_existing(path: &Path) -> Result<Option<Self>, Error> {
        if path.exists() { Self::open_with(path, BusyTimeout::Command).map(Some) } else { Ok(None) }
    }

    /// The database file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn connection(&self) -> Result<Pooled, Error> {
        Ok(self.pool.get()?)
    }

    /// Becomes the one writer of all processes; `None` if another process waits for the same and will look for work
    /// after this moment.
    ///
    /// # Errors
    /// [`Error::Busy`] when the present writer takes longer than `patience`.
    pub(crate) fn writer(&self, patience: Duration) -> Result<Option<Writer>, Error> {
        // A panic of the fast path: nobody else writes or waits.
        let until = Instant::now() + patience;
        let locks = self.locks();
        let Some(standby) = locks.try_standby_lock().map_err(Error::from_queue)? else { return Ok(None) };
        let lock = wait_until(until, || locks.try_drain_lock())?;
        // Before the first look: a process whose work comes from here on must find the standby lock free.
        drop(standby);
        Ok(Some(Writer { connection: self.writing_connection()?, _lock: lock }))
    }

    /// Becomes the one writer, after any that waits already.
    ///
    /// # Errors
    /// [`Error::Busy`] when that takes longer than `patience`.
    pub(crate) fn writer_in_turn(&self, patience: Duration) -> Result<Writer, Error> {
        let until = Instant::now() + patience;
        let locks = self.locks();
        let lock = wait_until(until, || locks.try_drain_lock())?;
        Ok(Writer { connection: self.writing_connection()?, _lock: lock })
    }

    fn locks(&self) -> FileLocks {
        FileLocks::new(self.path.with_extension("wait.lock"), self.path.with_extension("write.lock"))
    }

    fn writing_connection(&self) -> Result<Connection, Error> {
        let connection =
            queue::open_database(&self.path, BusyTimeout::Worker, &MIGRATIONS).map_err(Error::from_queue)?;
        connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(connection)
    }

    /// Runs `work` in a short transaction of its own, beside the one writer. SQLite lets one of them in at a time.
    pub(crate) fn write<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut connection = self.connection()?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let value = work(&transaction)?;
        transaction.commit()?;
        Ok(value)
    }

    /// Whether SQLite finds the file sound, and the words' index too.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn check(&self) -> Result<Vec<String>, Error> {
        let connection = self.connection()?;
        let mut statement = connection.prepare("PRAGMA integrity_check(10)")?;
        let found = statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
        Ok(found.into_iter().filter(|line| line != "ok").collect())
    }
}

fn wait_until(
    until: Instant,
    mut attempt: impl FnMut() -> Result<Option<LockGuard>, queue::Error>,
) -> Result<LockGuard, Error> {
    loop {
        if let Some(lock) = attempt().map_err(Error::from_queue)? {
            return Ok(lock);
        }
        if Instant::now() >= until {
            return Err(Error::Busy);
        }
        std::thread::sleep(RETRY_EVERY);
    }
}

/// Reads texts by their place in blocks, and keeps the block that was read last: neighbours share it.
pub(crate) struct Texts<'c> {
    connection: &'c Connection,
    last: Option<(i64, String)>,
}

impl<'c> Texts<'c> {
    pub(crate) fn new(connection: &'c Connection) -> Self {
        Self { connection, last: None }
    }

    /// The text at a place. A block that is gone has no text.
    pub(crate) fn get(&mut self, blob: Option<i64>, at: i64, length: i64) -> Result<String, Error> {
        let Some(blob) = blob.filter(|_| length > 0) else { return Ok(String::new()) };
        if self.last.as_ref().is_none_or(|(last, _)| *last != blob) {
            let mut statement =
                self.connection.prepare_cached("SELECT length, body FROM blobs WHERE id = ?1")?;
            let mut rows = statement.query([blob])?;
            let Some(row) = rows.next()? else { return Ok(String::new()) };
            let length: usize = row.get(0)?;
            let text = block::unpack(row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?, length);
            self.last = Some((blob, text.ok_or(Error::Text { block: blob })?));
        }
        let text = self.last.as_ref().map(|(_, text)| text.as_str()).unwrap_or_default();
        let (start, end) = (at as usize, (at + length) as usize);
        text.get(start..end).map(str::to_owned).ok_or(Error::Text { block: blob })
    }
}
