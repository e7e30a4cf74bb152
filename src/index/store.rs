//! The index's folder: its database and connections, its lock, and what is cached of it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::error::{Error, io_error};
use crate::hnsw::Graph;
use crate::schema::{self, State};
use crate::vectors::VectorSet;

pub(crate) type Pool = r2d2::Pool<SqliteConnectionManager>;
pub(crate) type Pooled = r2d2::PooledConnection<SqliteConnectionManager>;

/// Questions answered at the same time; a further one waits for one of them to end.
const CONNECTIONS_MAX: u32 = 8;
/// How long a statement waits for another connection's short exclusive moments.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long opening waits when the database has to be made and somebody else holds the lock.
const REMAKE_PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 10_000 });
/// The same when there is an older generation to go on with.
const REOPEN_PATIENCE: Duration = Duration::from_millis(100);

/// At most, and only while much is written.
const WRITER_CACHE_KIB: i64 = 64 << 10;

pub(crate) const DATABASE: &str = "index.db";
const LOCK: &str = "index.lock";
/// Left by a reader that met damage, which it may not mend: the builder does.
const DAMAGED: &str = "index.damaged";

pub(crate) struct Store {
    folder: PathBuf,
    pub(crate) limits: Limits,
    open: RwLock<(Identity, Pool)>,
    /// The newest generation's vectors that anyone asked for.
    vectors: Mutex<Option<Arc<VectorSet>>>,
    /// How many chunks hold a term, of the newest generation that anyone asked: the words of all questions
    /// are much the same, and the most common ones take the longest to count.
    frequencies: Mutex<Frequencies>,
    /// The newest graph that anyone asked for, by file name; `None` inside when it was bad.
    graph: Mutex<Option<(String, Option<Arc<Graph>>)>>,
}

#[derive(Default)]
pub(crate) struct Frequencies {
    /// Number and time of the generation.
    generation: (u64, String),
    counts: HashMap<String, u64>,
}

/// At most half a megabyte of them.
const FREQUENCIES_MAX: usize = 8_192;

impl Frequencies {
    pub(crate) fn get(&self, generation: &(u64, String), query: &str) -> Option<u64> {
        if self.generation == *generation { self.counts.get(query).copied() } else { None }
    }

    pub(crate) fn put(&mut self, generation: &(u64, String), query: String, count: u64) {
        if self.generation != *generation || self.counts.len() >= FREQUENCIES_MAX {
            *self = Self { generation: generation.clone(), counts: HashMap::new() };
        }
        self.counts.insert(query, count);
    }
}

/// From how many chunks or units on something is done; a test has other limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// A graph is made.
    pub(crate) graph: usize,
    /// Small changes leave the vector file as it is.
    pub(crate) tail: usize,
}

/// Packing fewer chunks than this, and reading them again, takes no longer than the rest of a change.
const TAIL_CHUNKS_MIN: usize = 4_096;

impl Default for Limits {
    fn default() -> Self {
        Self { graph: crate::hnsw::CHUNKS_MIN, tail: TAIL_CHUNKS_MIN }
    }
}

/// Which file a path led to when it was opened. When the folder is deleted under a running process
/// the open connections go on with the deleted file; this tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity(u64, u64);

impl Identity {
    /// No file's, so that each reader looks again for the file that is there.
    const NONE: Self = Self(0, 0);

    #[cfg(unix)]
    pub(crate) fn of(metadata: &fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Self(metadata.dev(), metadata.ino())
    }

    #[cfg(not(unix))]
    pub(crate) fn of(_: &fs::Metadata) -> Self {
        Self::NONE
    }

    fn at(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|metadata| Self::of(&metadata))
    }
}

/// Proof of being the only builder. Held by an open file, so that it goes with its process however
/// that ends; the file is never removed, or two could hold locks on two files of one name.
pub(crate) struct BuilderLock {
    _file: File,
}

impl BuilderLock {
    /// Waits for as long as another builder works.
    pub(crate) fn wait(folder: &Path) -> Result<Self, Error> {
        loop {
            let file = Self::open(folder)?;
            fs2::FileExt::lock_exclusive(&file).map_err(io_error("lock", &folder.join(LOCK)))?;
            if let Some(lock) = Self::proven(file, folder) {
                return Ok(lock);
            }
        }
    }

    /// `None` when another builder is at work.
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
            if let Some(lock) = Self::proven(file, folder) {
                return Ok(Some(lock));
            }
        }
    }

    fn open(folder: &Path) -> Result<File, Error> {
        make_folder(folder)?;
        let path = folder.join(LOCK);
        let mut options = File::options();
        options.create(true).truncate(false).write(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(&path).map_err(io_error("open", &path))
    }

    /// The folder may have been deleted and made again while we waited: then this file is nobody's.
    fn proven(file: File, folder: &Path) -> Option<Self> {
        let ours = file.metadata().ok().map(|metadata| Identity::of(&metadata));
        (ours == Identity::at(&folder.join(LOCK))).then_some(Self { _file: file })
    }
}

impl Store {
    pub(crate) fn open(folder: &Path, limits: Limits) -> Result<Self, Error> {
        while_vanishing(folder, || Self::open_once(folder, limits))
    }

    fn open_once(folder: &Path, limits: Limits) -> Result<Self, Error> {
        make_folder(folder)?;
        let wanted = |state| state != State::Ours || folder.join(DAMAGED).exists();
        let made = if wanted(look(folder)?) { make_or_wait(folder, true, REMAKE_PATIENCE) } else { Ok(()) };
        let open = match made {
            // Whoever holds the lock is about to make it, however slow the disk: until then there is
            // nothing to be found, which is no reason to refuse a question.
            Err(Error::Locked { .. }) => (Identity::NONE, nothing_yet(folder)?),
            made => made.and_then(|()| connect_pool(folder))?,
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
            (Identity::at(&self.folder.join(DATABASE)) == Some(open.0)).then(|| open.1.clone())
        };
        let pool = match pool.map_or_else(|| self.reopen(), Ok) {
            // A reader waits for no builder: what was open is whole, though its file is gone.
            Err(Error::Locked { .. }) => self.left_over()?,
            pool => pool?,
        };
        pool.get().map_err(|source| Error::Pool { path: self.folder.clone(), source })
    }

    /// What was open before the database was removed, if it can still be read, or else nothing.
    fn left_over(&self) -> Result<Pool, Error> {
        let pool = self.open.read().unwrap_or_else(PoisonError::into_inner).1.clone();
        let is_whole = pool.get().is_ok_and(|connection| {
            connection.query_row("SELECT count(*) FROM generation", [], |row| row.get::<_, i64>(0)).is_ok()
        });
        if is_whole { Ok(pool) } else { nothing_yet(&self.folder) }
    }

    /// A connection to the generation before the first.
    pub(crate) fn nothing(&self) -> Result<Pooled, Error> {
        let pool = nothing_yet(&self.folder)?;
        pool.get().map_err(|source| Error::Pool { path: self.folder.clone(), source })
    }

    /// The database was removed or replaced since it was opened.
    fn reopen(&self) -> Result<Pool, Error> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let started = Instant::now();
        loop {
            match look(&self.folder)? {
                State::Ours => {}
                State::OtherVersion => return Err(Error::OtherVersion { path: self.folder.clone() }),
                State::Empty | State::Damaged => make_or_wait(&self.folder, false, REOPEN_PATIENCE)?,
            }
            match connect_pool(&self.folder) {
                Ok(opened) => {
                    *open = opened;
                    return Ok(open.1.clone());
                }
                // Removed once more since it was made.
                Err(_) if !self.folder.join(DATABASE).exists() && started.elapsed() < REMAKE_PATIENCE => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// A connection for the builder, to a database that is there and sound as far as a look tells.
    pub(crate) fn writer(&self, lock: &BuilderLock) -> Result<Connection, Error> {
        ensure(&self.folder, lock, false)?;
        let path = self.folder.join(DATABASE);
        connect(&path).map_err(self.sqlite())
    }

    /// Says that the database must be made anew.
    pub(crate) fn mark_damaged(&self) {
        tracing::warn!(folder = %self.folder.display(), "the index is damaged and will be made anew");
        if let Err(error) = fs::write(self.folder.join(DAMAGED), "") {
            tracing::warn!(%error, "failed to mark the index as damaged");
        }
    }

    pub(crate) fn is_marked_damaged(&self) -> bool {
        self.folder.join(DAMAGED).exists()
    }

    /// Turns an error of the database into ours, and marks the database when it says damage.
    pub(crate) fn sqlite(&self) -> impl Fn(rusqlite::Error) -> Error + '_ {
        |source| {
            if schema::is_damage(&source) && !schema::has_no_tables(&source) {
                self.mark_damaged();
            }
            Error::Sqlite { path: self.folder.join(DATABASE), source }
        }
    }

    pub(crate) fn cached_vectors(&self) -> MutexGuard<'_, Option<Arc<VectorSet>>> {
        self.vectors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn cached_frequencies(&self) -> MutexGuard<'_, Frequencies> {
        self.frequencies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn cached_graph(&self) -> MutexGuard<'_, Option<(String, Option<Arc<Graph>>)>> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the folder, for its owner alone, and keeps it out of git whatever the brain's own
/// `.gitignore` says.
fn make_folder(folder: &Path) -> Result<(), Error> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(io_error("create", folder))?;
    let ignore = folder.join(".gitignore");
    if !ignore.exists() {
        fs::write(&ignore, "*\n").map_err(io_error("write", &ignore))?;
    }
    Ok(())
}

fn look(folder: &Path) -> Result<State, Error> {
    let path = folder.join(DATABASE);
    if !path.exists() {
        return Ok(State::Empty);
    }
    let to_ours = |source| Error::Sqlite { path: path.clone(), source };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = match Connection::open_with_flags(&path, flags) {
        Ok(connection) => connection,
        Err(error) if schema::is_damage(&error) => return Ok(State::Damaged),
        Err(error) => return Err(to_ours(error)),
    };
    leave_log_alone(&connection).map_err(to_ours)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(to_ours)?;
    schema::inspect(&connection).map_err(to_ours)
}

/// Makes the database, unless somebody else is at it: a damaged one that they work on is left to
/// them, and one that is not there at all is waited for, which takes them milliseconds on a quiet
/// disk; [`Error::Locked`] when it took longer than `patience`.
fn make_or_wait(folder: &Path, any_version: bool, patience: Duration) -> Result<(), Error> {
    let started = Instant::now();
    loop {
        if let Some(lock) = BuilderLock::try_take(folder)? {
            return ensure(folder, &lock, any_version);
        }
        if look(folder)? == State::Ours {
            return Ok(());
        }
        if started.elapsed() > patience {
            return Err(Error::Locked { path: folder.to_owned() });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Makes the database what it should be. `any_version`: also when it is whole, of another version.
fn ensure(folder: &Path, lock: &BuilderLock, any_version: bool) -> Result<(), Error> {
    let state = match look(folder)? {
        State::Ours if folder.join(DAMAGED).exists() => State::Damaged,
        state => state,
    };
    match state {
        State::Ours => return Ok(()),
        State::OtherVersion if !any_version => return Err(Error::OtherVersion { path: folder.to_owned() }),
        // An empty one as well: a file that was cut to nothing may still be held by others, whose
        // locks on it would keep it from being filled.
        State::Empty | State::OtherVersion | State::Damaged => drop_database(folder, lock)?,
    }
    let path = folder.join(DATABASE);
    let to_ours = |source| Error::Sqlite { path: path.clone(), source };
    let mut connection = connect(&path).map_err(to_ours)?;
    schema::create(&mut connection).map_err(to_ours)
}

/// The log goes first: a database without its log is at worst old, a log without its database
/// would be played into the next one.
fn drop_database(folder: &Path, _lock: &BuilderLock) -> Result<(), Error> {
    for name in ["index.db-wal", "index.db-shm", "index.db-journal", DATABASE, DAMAGED] {
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
    leave_log_alone(&connection)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // A power cut may take the newest generation, never the database: the next plan makes it again.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    make_room(&connection)?;
    Ok(connection)
}

/// A generation is one transaction: with less room its pages are written out and read again.
fn make_room(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(32);
    connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)
}

fn connect_pool(folder: &Path) -> Result<(Identity, Pool), Error> {
    let path = folder.join(DATABASE);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    loop {
        let before = fs::metadata(&path).map_err(io_error("read", &path))?;
        let manager = SqliteConnectionManager::file(&path).with_flags(flags).with_init(for_reading);
        let pool = pool(manager);
        // One connection is made now and kept by the pool: while it has the file open no other file
        // can get its number.
        drop(pool.get().map_err(|source| Error::Pool { path: folder.to_owned(), source })?);
        let identity = Identity::of(&before);
        if Identity::at(&path) == Some(identity) {
            return Ok((identity, pool));
        }
    }
}

/// A log beyond this is emptied after a generation.
const LOG_BYTES_MAX: u64 = 4 << 20;

/// How long an index may take to be deleted, or to be made anew after it.
const VANISHING_MAX: Duration = Duration::from_secs(2);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// A database that seems damaged may be one whose log was deleted a moment before it, or the log of the one
/// before beside a new one. It is damaged when it still seems so after this.
const DAMAGE_STANDS_AFTER: Duration = Duration::from_millis(300);

/// Tries again what may have failed because somebody is deleting the folder, file by file: the next look
/// finds it gone, or made anew.
pub(crate) fn while_vanishing<T>(folder: &Path, look: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    use rusqlite::ErrorCode::{CannotOpen, DatabaseCorrupt, NotADatabase, ReadOnly, SystemIoFailure};
    let patience = |error: &Error| match error {
        Error::Sqlite { source, .. } => match source.sqlite_error_code() {
            Some(SystemIoFailure | CannotOpen | ReadOnly) => VANISHING_MAX,
            Some(DatabaseCorrupt | NotADatabase) => DAMAGE_STANDS_AFTER,
            _ if schema::has_no_tables(source) => VANISHING_MAX,
            _ => Duration::ZERO,
        },
        Error::Pool { .. } => VANISHING_MAX,
        Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => VANISHING_MAX,
        _ => Duration::ZERO,
    };
    let path = folder.join(DATABASE);
    let mut begun = Instant::now();
    let mut looked_at = Identity::at(&path);
    loop {
        match look() {
            Err(error) if begun.elapsed() < patience(&error) => {
                tracing::info!(%error, "the index is looked for again");
                std::thread::sleep(LOOK_AGAIN_AFTER);
                // Another file is another matter.
                let present = Identity::at(&path);
                if present != looked_at {
                    (begun, looked_at) = (Instant::now(), present);
                }
            }
            looked => return looked,
        }
    }
}

/// The generation before the first, in memory: what is read while the database cannot be made. It is
/// no file's, so that each question looks anew for the one that is.
fn nothing_yet(folder: &Path) -> Result<Pool, Error> {
    tracing::warn!(folder = %folder.display(), "the index is not made yet");
    let manager = SqliteConnectionManager::memory().with_init(|connection| {
        schema::create(connection)?;
        for_reading(connection)
    });
    Ok(pool(manager))
}

fn for_reading(connection: &mut Connection) -> rusqlite::Result<()> {
    leave_log_alone(connection)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(())
}

/// Empties the log when a generation has made it large. Nobody else does: see [`leave_log_alone`]. A reader that
/// needs it is not waited for; the next generation tries again.
pub(crate) fn truncate_log(folder: &Path, connection: &Connection) {
    let log = folder.join(format!("{DATABASE}-wal"));
    if fs::metadata(log).is_ok_and(|metadata| metadata.len() > LOG_BYTES_MAX)
        && let Err(error) = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
    {
        tracing::debug!(%error, "the log of the index could not be emptied");
    }
}

/// Has the connection leave the log where it is when it closes. SQLite's last connection to a file removes the
/// log by its name; where the folder was deleted and made anew meanwhile, that is the new database's, and what
/// was committed there would be gone.
fn leave_log_alone(connection: &Connection) -> rusqlite::Result<()> {
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
