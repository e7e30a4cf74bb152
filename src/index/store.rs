//! The index's folder: its database and connections, the builder's lock, and the caches.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use brain::paths::{create_private_file, create_private_folder};
use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use system::file::Identity;

use crate::error::{Error, io_error};
use crate::hnsw::Graph;
use crate::schema::{self, State};
use crate::vectors::Vectors;

pub(crate) type Pool = r2d2::Pool<SqliteConnectionManager>;
pub(crate) type Pooled = r2d2::PooledConnection<SqliteConnectionManager>;

/// Questions that are answered at the same time; a further one waits for one of them to end.
const CONNECTIONS_MAX: u32 = 8;
/// How long a statement waits for another connection's short exclusive locks.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long opening waits if the database has to be made and another process holds the lock.
const CREATE_TIMEOUT: Duration = Duration::from_secs(10);
/// The same if an older generation can still be served.
const REOPEN_TIMEOUT: Duration = Duration::from_millis(100);

/// The largest page cache; it is only filled while much is written.
const WRITER_CACHE_KIB: i64 = 64 << 10;

pub(crate) const DATABASE: &str = "index.db";
const LOCK: &str = "index.lock";
/// Left by a reader that found damage: only the builder may repair it.
const DAMAGED: &str = "index.damaged";

pub(crate) struct Store {
    folder: PathBuf,
    pub(crate) limits: Limits,
    open: RwLock<(Identity, Pool)>,
    /// The vectors of the newest generation that was read.
    vectors: Mutex<Option<Arc<Vectors>>>,
    /// How many chunks of the newest generation contain a term. Questions share many words, and the most common ones
    /// take the longest to count.
    frequencies: Mutex<Frequencies>,
    /// The newest graph that was read, by its hash; `None` inside if it was damaged.
    graph: Mutex<Option<(String, Option<Arc<Graph>>)>>,
}

#[derive(Default)]
pub(crate) struct Frequencies {
    /// The generation's key.
    generation: String,
    counts: HashMap<String, u64>,
}

/// About half a megabyte.
const FREQUENCIES_MAX: usize = 8_192;

impl Frequencies {
    pub(crate) fn get(&self, generation: &str, query: &str) -> Option<u64> {
        if self.generation == generation { self.counts.get(query).copied() } else { None }
    }

    pub(crate) fn put(&mut self, generation: &str, query: String, count: u64) {
        if self.generation != generation || self.counts.len() >= FREQUENCIES_MAX {
            *self = Self { generation: generation.to_owned(), counts: HashMap::new() };
        }
        self.counts.insert(query, count);
    }
}

/// Limits that tests change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// From how many chunks on a graph is built.
    pub(crate) graph: usize,
    /// How long opening waits if the database has to be made and another process holds the lock.
    pub(crate) create_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { graph: crate::hnsw::CHUNKS_MIN, create_timeout: CREATE_TIMEOUT }
    }
}

/// The lock of the only builder. It is held by an open file, so that it ends with its process. The file is never
/// removed: otherwise two processes could lock two files of one name.
pub(crate) struct BuilderLock {
    file: File,
}

impl BuilderLock {
    /// Waits as long as another builder works.
    pub(crate) fn wait(folder: &Path) -> Result<Self, Error> {
        loop {
            let file = Self::open(folder)?;
            fs2::FileExt::lock_exclusive(&file).map_err(io_error("lock", &folder.join(LOCK)))?;
            if let Some(lock) = Self::validate(file, folder) {
                return Ok(lock);
            }
        }
    }

    /// `None` if another builder holds the lock.
    pub(crate) fn try_take(folder: &Path) -> Result<Option<Self>, Error> {
        loop {
            let file = Self::open(folder)?;
            match fs2::FileExt::try_lock_exclusive(&file) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == fs2::lock_contended_error().raw_os_error() => {
                    return Ok(None);
                }
                Err(source) => return Err(io_error("lock", &folder.join(LOCK))(source)),
            }
            if let Some(lock) = Self::validate(file, folder) {
                return Ok(Some(lock));
            }
        }
    }

    fn open(folder: &Path) -> Result<File, Error> {
        create_folder(folder)?;
        let path = folder.join(LOCK);
        create_private_file(&path).map_err(io_error("open", &path))
    }

    #[cfg(test)]
    pub(crate) fn copy_of_a_child(&self) -> File {
        self.file.try_clone().unwrap()
    }

    fn validate(file: File, folder: &Path) -> Option<Self> {
        let lock = Self { file };
        lock.is_valid(folder).then_some(lock)
    }

    /// The folder may have been deleted and made again meanwhile. Then the file at the path is another one, which another
    /// builder may have locked, and this lock is void.
    fn is_valid(&self, folder: &Path) -> bool {
        let ours = self.file.metadata().ok().map(|metadata| Identity::from_metadata(&metadata));
        ours == Identity::from_path(&folder.join(LOCK))
    }
}

impl Drop for BuilderLock {
    fn drop(&mut self) {
        // Closing is not enough: a child that is being started at this moment holds a copy of the file until it runs its
        // program, and the next builder would be refused.
        if let Err(error) = self.file.unlock() {
            tracing::warn!(%error, "failed to unlock the index's folder");
        }
    }
}

impl Store {
    pub(crate) fn open(folder: &Path, limits: Limits) -> Result<Self, Error> {
        retry_while_replaced(folder, || Self::open_once(folder, limits))
    }

    fn open_once(folder: &Path, limits: Limits) -> Result<Self, Error> {
        create_folder(folder)?;
        let needs_making = |state| state != State::Ours || folder.join(DAMAGED).exists();
        let created = if needs_making(inspect(folder)?) {
            create_or_wait(folder, true, limits.create_timeout)
        } else {
            Ok(())
        };
        let open = match created {
            // The holder of the lock is about to make it. Until then the index is empty, which is better than failing
            // a question.
            Err(Error::Locked { .. }) => (Identity::NONE, empty_pool(folder)?),
            created => created.and_then(|()| connect_pool(folder))?,
        };
        Ok(Self {
            folder: folder.to_owned(),
            limits,
            open: RwLock::new(open),
            vectors: Mutex::new(None),
            frequencies: Mutex::default(),
            graph: Mutex::new(None),
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns a connection for reading the database that is at the path now.
    pub(crate) fn reader(&self) -> Result<Pooled, Error> {
        let pool = {
            let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
            (Identity::from_path(&self.folder.join(DATABASE)) == Some(open.0)).then(|| open.1.clone())
        };
        let pool = match pool.map_or_else(|| self.reopen(), Ok) {
            // A reader waits for no builder: the open database is whole, though its file is deleted.
            Err(Error::Locked { .. }) => self.previous_pool()?,
            pool => pool?,
        };
        pool.get().map_err(|source| Error::Pool { path: self.folder.clone(), source })
    }

    /// The connections from before the database was removed if they can still be read, else an empty database.
    fn previous_pool(&self) -> Result<Pool, Error> {
        let pool = self.open.read().unwrap_or_else(PoisonError::into_inner).1.clone();
        let is_whole = pool.get().is_ok_and(|connection| {
            connection.query_row("SELECT count(*) FROM generation", [], |row| row.get::<_, i64>(0)).is_ok()
        });
        if is_whole { Ok(pool) } else { empty_pool(&self.folder) }
    }

    /// A connection to an empty database.
    pub(crate) fn empty(&self) -> Result<Pooled, Error> {
        let pool = empty_pool(&self.folder)?;
        pool.get().map_err(|source| Error::Pool { path: self.folder.clone(), source })
    }

    /// Opens the database again after it was removed or replaced.
    fn reopen(&self) -> Result<Pool, Error> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let started = Instant::now();
        loop {
            match inspect(&self.folder)? {
                State::Ours => {}
                State::OtherVersion => return Err(Error::OtherVersion { path: self.folder.clone() }),
                State::Empty | State::Damaged => create_or_wait(&self.folder, false, REOPEN_TIMEOUT)?,
            }
            match connect_pool(&self.folder) {
                Ok(opened) => {
                    *open = opened;
                    return Ok(open.1.clone());
                }
                // Removed again since it was made.
                Err(_)
                    if !self.folder.join(DATABASE).exists()
                        && started.elapsed() < self.limits.create_timeout => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// A connection for the builder. The database is created, or created again if it is damaged.
    pub(crate) fn writer(&self, lock: &BuilderLock) -> Result<Connection, Error> {
        create_if_needed(&self.folder, lock, false)?;
        let path = self.folder.join(DATABASE);
        connect(&path).map_err(self.sqlite())
    }

    /// Whether there is a copy of the triggers.
    pub(crate) fn has_triggers(&self) -> bool {
        self.folder.join(guard::TRIGGER_FILE).exists()
    }

    /// Writes the copy of the triggers that hooks read, before a change of the index is committed: with those that the
    /// change removes, so that it lacks none whenever this process or the machine stops. Without a copy, hooks read the
    /// index.
    pub(crate) fn write_triggers(&self, triggers: &[(String, String)]) -> Result<(), Error> {
        let path = self.folder.join(guard::TRIGGER_FILE);
        let new = path.with_extension("new");
        let remove = |path: &Path| match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        let write = || {
            let bytes = guard::encode_triggers(triggers).ok_or(io::ErrorKind::FileTooLarge)?;
            remove(&new)?;
            let mut file = create_private_file(&new)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.folder)?.sync_all()
        };
        write().or_else(|error| {
            tracing::warn!(%error, "failed to copy the triggers; hooks read the index");
            remove(&path).map_err(io_error("remove", &path))
        })
    }

    /// Marks the database as damaged, so that the next builder makes it again.
    pub(crate) fn mark_damaged(&self) {
        tracing::warn!(folder = %self.folder.display(), "the index is damaged and will be rebuilt");
        if let Err(error) = fs::write(self.folder.join(DAMAGED), "") {
            tracing::warn!(%error, "failed to mark the index as damaged");
        }
    }

    pub(crate) fn is_marked_damaged(&self) -> bool {
        self.folder.join(DAMAGED).exists()
    }

    /// Converts an error of the database, and marks the database if the error means damage.
    pub(crate) fn sqlite(&self) -> impl Fn(rusqlite::Error) -> Error + '_ {
        |source| {
            if schema::is_damage(&source) && !schema::has_no_tables(&source) {
                self.mark_damaged();
            }
            Error::Sqlite { path: self.folder.join(DATABASE), source }
        }
    }

    pub(crate) fn cached_vectors(&self) -> MutexGuard<'_, Option<Arc<Vectors>>> {
        self.vectors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn cached_frequencies(&self) -> MutexGuard<'_, Frequencies> {
        self.frequencies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn cached_graph(&self) -> MutexGuard<'_, Option<(String, Option<Arc<Graph>>)>> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates the folder with mode 0700 and a `.gitignore` of its own, in case the brain's lacks it. It is an error if the
/// brain's folder is gone: a reader that outlives it must not bring it back.
fn create_folder(folder: &Path) -> Result<(), Error> {
    if folder.parent().is_some_and(|brain| !brain.as_os_str().is_empty() && !brain.is_dir()) {
        return Err(io_error("create", folder)(io::ErrorKind::NotFound.into()));
    }
    create_private_folder(folder).map_err(io_error("create", folder))?;
    // Whoever made the repository may have put it there, and what is written to it would land outside of the brain.
    if let Some(link) = find_link(folder).map_err(io_error("read", folder))? {
        return Err(io_error("use", &link)(io::Error::other("it is a symbolic link")));
    }
    let ignore = folder.join(".gitignore");
    if !ignore.exists() {
        fs::write(&ignore, "*\n").map_err(io_error("write", &ignore))?;
    }
    Ok(())
}

/// The folder, or something in it, if that is a symbolic link.
fn find_link(folder: &Path) -> io::Result<Option<PathBuf>> {
    if folder.is_symlink() {
        return Ok(Some(folder.to_owned()));
    }
    let entries = fs::read_dir(folder)?.filter_map(Result::ok).map(|entry| entry.path());
    Ok({ entries }.find(|path| path.is_symlink()))
}

/// Finds out what the database is, without changing it.
fn inspect(folder: &Path) -> Result<State, Error> {
    let path = folder.join(DATABASE);
    if !path.exists() {
        return Ok(State::Empty);
    }
    let to_error = |source| Error::Sqlite { path: path.clone(), source };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = match Connection::open_with_flags(&path, flags) {
        Ok(connection) => connection,
        Err(error) if schema::is_damage(&error) => return Ok(State::Damaged),
        Err(error) => return Err(to_error(error)),
    };
    keep_log_on_close(&connection).map_err(to_error)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(to_error)?;
    schema::inspect(&connection).map_err(to_error)
}

/// Creates the database, or waits while another process creates it, which takes milliseconds on an idle disk.
/// [`Error::Locked`] if that takes longer than `timeout`.
fn create_or_wait(folder: &Path, any_version: bool, timeout: Duration) -> Result<(), Error> {
    let started = Instant::now();
    loop {
        if let Some(lock) = BuilderLock::try_take(folder)? {
            match create_if_needed(folder, &lock, any_version) {
                // The folder was deleted, and another process may make it again.
                Err(Error::Locked { .. }) if started.elapsed() <= timeout => {}
                done => return done,
            }
        }
        if inspect(folder)? == State::Ours {
            return Ok(());
        }
        if started.elapsed() > timeout {
            return Err(Error::Locked { path: folder.to_owned() });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Creates the database if it is missing or damaged. `any_version`: also if it is whole and of another version.
fn create_if_needed(folder: &Path, lock: &BuilderLock, any_version: bool) -> Result<(), Error> {
    let state = match inspect(folder)? {
        State::Ours if folder.join(DAMAGED).exists() => State::Damaged,
        state => state,
    };
    match state {
        State::Ours => return Ok(()),
        State::OtherVersion if !any_version => return Err(Error::OtherVersion { path: folder.to_owned() }),
        // An empty file is dropped as well: other processes may hold locks on it that block writing.
        State::Empty | State::OtherVersion | State::Damaged => drop_database(folder, lock)?,
    }
    let path = folder.join(DATABASE);
    let to_error = |source| Error::Sqlite { path: path.clone(), source };
    let mut connection = connect(&path).map_err(to_error)?;
    schema::create(&mut connection, BUSY_TIMEOUT).map_err(to_error)
}

/// Removes the log first: a database without its log is at worst old, but a log without its database would be
/// replayed into the next one. The copy of the triggers is of the same version, and made with the next generation.
fn drop_database(folder: &Path, lock: &BuilderLock) -> Result<(), Error> {
    // Otherwise it would be another builder's.
    if !lock.is_valid(folder) {
        return Err(Error::Locked { path: folder.to_owned() });
    }
    let files = ["index.db-wal", "index.db-shm", "index.db-journal", guard::TRIGGER_FILE, DATABASE, DAMAGED];
    for name in files {
        let path = folder.join(name);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(io_error("remove", &path)(source));
            }
            _ => {}
        }
    }
    Ok(())
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    keep_log_on_close(&connection)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // A power cut may lose the newest generation, but not the database; the next plan publishes it again.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.set_prepared_statement_cache_capacity(32);
    // A generation is one transaction: with a smaller cache its pages are written out and read again.
    connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
    Ok(connection)
}

fn connect_pool(folder: &Path) -> Result<(Identity, Pool), Error> {
    let path = folder.join(DATABASE);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    loop {
        let before = fs::metadata(&path).map_err(io_error("read", &path))?;
        let manager = SqliteConnectionManager::file(&path).with_flags(flags).with_init(set_up_reader);
        let pool = pool(manager);
        // One connection is opened now and kept by the pool: while it has the file open, no other file can get its
        // inode number.
        drop(pool.get().map_err(|source| Error::Pool { path: folder.to_owned(), source })?);
        let identity = Identity::from_metadata(&before);
        if Identity::from_path(&path) == Some(identity) {
            return Ok((identity, pool));
        }
    }
}

/// How long deleting an index, or creating it again, may take.
const REPLACEMENT_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// A database may look damaged for a moment: its log was deleted before it, or the log of the old database is still
/// beside the new one. After this time it is considered damaged.
const DAMAGE_TIMEOUT: Duration = Duration::from_millis(300);

/// Retries an operation that may have failed because another process is deleting the folder, file by file, or
/// creating it again.
pub(crate) fn retry_while_replaced<T>(
    folder: &Path,
    mut action: impl FnMut() -> Result<T, Error>,
) -> Result<T, Error> {
    use rusqlite::ErrorCode::{
        CannotOpen, DatabaseCorrupt, FileLockingProtocolFailed, NotADatabase, ReadOnly, SystemIoFailure,
    };
    let timeout = |error: &Error| match error {
        Error::Sqlite { source, .. } => match source.sqlite_error_code() {
            Some(SystemIoFailure | CannotOpen | ReadOnly | FileLockingProtocolFailed) => REPLACEMENT_TIMEOUT,
            Some(DatabaseCorrupt | NotADatabase) => DAMAGE_TIMEOUT,
            _ if schema::has_no_tables(source) => REPLACEMENT_TIMEOUT,
            _ => Duration::ZERO,
        },
        Error::Pool { .. } => REPLACEMENT_TIMEOUT,
        Error::Io { source, .. }
            if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) =>
        {
            REPLACEMENT_TIMEOUT
        }
        _ => Duration::ZERO,
    };
    let path = folder.join(DATABASE);
    // The time begins with the first failure, since SQLite itself waits up to ten seconds before it gives up on a log
    // whose database was deleted meanwhile; and again with another file.
    let mut failing: Option<(Instant, Option<Identity>)> = None;
    loop {
        let error = match action() {
            Err(error) => error,
            done => return done,
        };
        let present = Identity::from_path(&path);
        let (since, _) = match failing {
            Some(known) if known.1 == present => known,
            _ => *failing.insert((Instant::now(), present)),
        };
        if since.elapsed() >= timeout(&error) {
            return Err(error);
        }
        tracing::info!(%error, "retrying to open the index");
        std::thread::sleep(RETRY_PAUSE);
    }
}

/// An empty database in memory, for reading while the real one cannot be made. Each question looks for the real one
/// again.
fn empty_pool(folder: &Path) -> Result<Pool, Error> {
    tracing::warn!(folder = %folder.display(), "the index does not exist yet");
    let manager = SqliteConnectionManager::memory().with_init(|connection| {
        schema::create(connection, BUSY_TIMEOUT)?;
        set_up_reader(connection)
    });
    Ok(pool(manager))
}

fn set_up_reader(connection: &mut Connection) -> rusqlite::Result<()> {
    keep_log_on_close(connection)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.set_prepared_statement_cache_capacity(32);
    // Opens the log now and not at the first question: it is opened by name, and by then the folder may have been deleted
    // and made again, with another database's log in it. The first question meets any error again.
    let _ = connection.query_row("PRAGMA schema_version", [], |_| Ok(()));
    Ok(())
}

/// Empties the log after a generation; nothing else does: see [`keep_log_on_close`]. The first process to open the
/// database reads the whole log, and the guard is one at every action. Does not wait for a reader that needs the log; the
/// next generation tries again.
pub(crate) fn truncate_log(connection: &Connection) {
    let emptied = connection
        .busy_timeout(Duration::ZERO)
        .and_then(|()| connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())));
    if let Err(error) = emptied.and(connection.busy_timeout(BUSY_TIMEOUT)) {
        tracing::debug!(%error, "failed to empty the log of the index");
    }
}

/// Keeps the log when the connection closes. SQLite's last connection to a file removes the log by name; if the folder
/// was deleted and created again, that log belongs to the new database, and its commits would be lost.
fn keep_log_on_close(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map(drop)
}

fn pool(manager: SqliteConnectionManager) -> Pool {
    r2d2::Pool::builder()
        .max_size(CONNECTIONS_MAX)
        .min_idle(Some(0))
        .test_on_check_out(false)
        .idle_timeout(None)
        .max_lifetime(None)
        .connection_timeout(BUSY_TIMEOUT)
        .build_unchecked(manager)
}
