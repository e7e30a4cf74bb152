//! The tables, their migrations, and the settings of a connection.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use crate::Error;

/// Each migrates the tables from the previous version; the first creates them.
pub(crate) const MIGRATIONS: [&str; 6] = [INITIAL, PROPOSALS, DELIVERY, REVIEW, GUARD, SHOWN];

/// What sessions were shown, until the archive has it: one row each time.
const SHOWN: &str = "
CREATE TABLE shown (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    key      INTEGER NOT NULL UNIQUE,      -- random: the archive has those of all brains
    source   TEXT NOT NULL,                -- session-start, prompt, guard, tool
    session  TEXT,
    tool_use TEXT,                         -- the call that it answers
    at_ms    INTEGER NOT NULL,
    items    TEXT NOT NULL,                -- JSON
    question BLOB                          -- with its candidates and their vectors
);
CREATE INDEX shown_at ON shown(at_ms);
";

/// What the guard has told which session.
const GUARD: &str = "
CREATE TABLE guard (
    session TEXT NOT NULL,
    unit    TEXT NOT NULL,
    word    TEXT NOT NULL,                 -- told, held, withheld
    at_ms   INTEGER NOT NULL,
    PRIMARY KEY (session, unit, word)
) WITHOUT ROWID;
CREATE INDEX guard_at ON guard(at_ms);
";

/// What a person has decided about each file of a branch, and what is not to be proposed again. Neither is deleted
/// with a capture's record.
const REVIEW: &str = "
CREATE TABLE additions (                   -- what captures add to existing units
    unit       TEXT NOT NULL,
    capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE,
    position   INTEGER NOT NULL,
    title      TEXT NOT NULL,
    model      TEXT NOT NULL,
    vector     BLOB NOT NULL,
    PRIMARY KEY (unit, capture_id, position)
) WITHOUT ROWID;
CREATE INDEX additions_capture ON additions(capture_id);
CREATE TABLE decisions (
    branch   TEXT NOT NULL,
    path     TEXT NOT NULL,
    decision TEXT NOT NULL,                -- merged, rejected, later
    because  TEXT,
    until_ms INTEGER,
    at_ms    INTEGER NOT NULL,
    PRIMARY KEY (branch, path)
) WITHOUT ROWID;
CREATE TABLE rejected (
    unit    TEXT NOT NULL,
    title   TEXT NOT NULL,
    model   TEXT NOT NULL,
    vector  BLOB NOT NULL,
    because TEXT,
    at_ms   INTEGER NOT NULL,
    PRIMARY KEY (unit, title, model)
) WITHOUT ROWID;
CREATE INDEX captures_branch ON captures(branch) WHERE branch IS NOT NULL;
";

/// What was pushed, the pull request, and pauses of whole stages.
const DELIVERY: &str = "
ALTER TABLE captures ADD COLUMN pushed TEXT;         -- the commit that the remote has
ALTER TABLE captures ADD COLUMN pull_number INTEGER;
ALTER TABLE captures ADD COLUMN pull_url TEXT;
ALTER TABLE captures ADD COLUMN pull_state TEXT;     -- open, merged, closed
CREATE INDEX captures_open ON captures(id) WHERE pull_state = 'open';
CREATE TABLE pauses (
    stage    TEXT PRIMARY KEY,
    since_ms INTEGER NOT NULL,
    until_ms INTEGER NOT NULL,
    times    INTEGER NOT NULL,             -- pauses in a row
    why      TEXT NOT NULL
) WITHOUT ROWID;
";

/// The units that captures proposed, before and after their review, and the lines that each rests on,
/// which outlive the transcript.
const PROPOSALS: &str = "
ALTER TABLE names ADD COLUMN title TEXT NOT NULL DEFAULT '';
ALTER TABLE names ADD COLUMN model TEXT NOT NULL DEFAULT '';
ALTER TABLE names ADD COLUMN vector BLOB NOT NULL DEFAULT x'';
CREATE TABLE evidence (
    unit       TEXT NOT NULL,
    capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE,
    position   INTEGER NOT NULL,
    line       TEXT NOT NULL,             -- its uuid
    excerpt    TEXT NOT NULL,             -- redacted and shortened
    PRIMARY KEY (unit, capture_id, position)
) WITHOUT ROWID;
CREATE INDEX evidence_capture ON evidence(capture_id);
";

const INITIAL: &str = "
CREATE TABLE captures (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id    TEXT NOT NULL,
    transcript    TEXT NOT NULL,
    cwd           TEXT,
    origin        TEXT NOT NULL,
    end_reason    TEXT,
    stage         TEXT NOT NULL,
    claim         INTEGER,           -- the current claim, if any
    attempts      INTEGER NOT NULL DEFAULT 0,
    not_before_ms INTEGER NOT NULL DEFAULT 0,
    outcome       TEXT,              -- done, nothing, dead; NULL while unfinished
    reason        TEXT,
    branch        TEXT,
    commit_id     TEXT,
    units         INTEGER NOT NULL DEFAULT 0,
    added_ms      INTEGER NOT NULL,
    started_ms    INTEGER,
    finished_ms   INTEGER
);
CREATE INDEX captures_unfinished ON captures(stage, id) WHERE outcome IS NULL;
CREATE INDEX captures_session ON captures(session_id);
-- What a stage stored for the next one; deleted when the capture has ended and no pull request is open.
CREATE TABLE results (
    capture_id INTEGER PRIMARY KEY REFERENCES captures(id) ON DELETE CASCADE,
    body       BLOB NOT NULL
);
-- The transcript lines that were captured. A line is identified by its uuid, whatever file a resume
-- or a fork copied it to.
CREATE TABLE lines (
    uuid       TEXT PRIMARY KEY,
    capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX lines_capture ON lines(capture_id);
-- The ids that captures gave to units. They are taken even while their branches wait for review.
CREATE TABLE names (
    name       TEXT PRIMARY KEY,
    capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX names_capture ON names(capture_id);
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counters VALUES ('claim', 0);
-- Size and time of each transcript when it was last read, or inspected and skipped: an unchanged one
-- holds nothing new. The capture's number stays when its record is deleted.
CREATE TABLE seen (
    transcript  TEXT PRIMARY KEY,
    size        INTEGER NOT NULL,
    modified_ms INTEGER NOT NULL,
    capture_id  INTEGER,
    passed_over TEXT
) WITHOUT ROWID;
-- The cost of model calls, each entered before it is made. A capture's number stays when its record
-- is deleted: the money is spent all the same.
CREATE TABLE spend (
    id                 INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms              INTEGER NOT NULL,
    capture_id         INTEGER,
    estimated          INTEGER NOT NULL,  -- until the call has ended
    model              TEXT NOT NULL,
    backend            TEXT NOT NULL,
    input_tokens       INTEGER NOT NULL,
    output_tokens      INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    cache_read_tokens  INTEGER NOT NULL,
    microdollars       INTEGER NOT NULL
);
CREATE INDEX spend_at ON spend(at_ms);
-- Parsed answers of models, so that a retry does not pay for them again; deleted when the capture ends.
CREATE TABLE answers (
    capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE,
    question   TEXT NOT NULL,             -- a digest
    body       BLOB NOT NULL,
    PRIMARY KEY (capture_id, question)
) WITHOUT ROWID;
-- Status reports of running processes, for `nugget status`.
CREATE TABLE reports (
    name  TEXT PRIMARY KEY,
    pid   INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    body  TEXT NOT NULL
) WITHOUT ROWID;
";

/// How long a connection waits for another writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusyTimeout {
    /// A hook has about 1.5 s in all, and a spool to fall back on.
    Hook,
    /// A person waits for an answer.
    Command,
    /// Any other process.
    Worker,
}

impl BusyTimeout {
    fn duration(self) -> Duration {
        match self {
            Self::Hook => Duration::from_millis(400),
            Self::Command => Duration::from_secs(5),
            Self::Worker => Duration::from_secs(20),
        }
    }
}

/// Opens the queue's database, and creates or migrates its tables.
pub(crate) fn open(path: &Path, timeout: BusyTimeout) -> Result<Connection, Error> {
    open_database(path, timeout, &MIGRATIONS)
}

/// Opens a database of the state folder as every one is opened: mode 0600, write-ahead log, deleted content
/// overwritten. Creates or migrates its tables: each migration is from the previous version, the first creates them.
///
/// # Errors
/// [`Error::Open`], or [`Error::Newer`] when a later version wrote the file.
pub fn open_database(path: &Path, timeout: BusyTimeout, migrations: &[&str]) -> Result<Connection, Error> {
    let failed = |source| Error::Open { path: path.to_owned(), source };
    // SQLite gives its other files the mode of this one.
    if !path.exists() {
        system::file::private_options()
            .create(true)
            .append(true)
            .open(path)
            .map_err(|source| Error::File { path: path.to_owned(), source })?;
    }
    let mut connection = Connection::open(path).map_err(failed)?;
    set_up(&connection, timeout).map_err(failed)?;
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(failed)?;
    let current = migrations.len() as i64;
    match version {
        version if version == current => {}
        0.. if version < current => migrate(&mut connection, migrations).map_err(failed)?,
        other => {
            return Err(Error::Newer { path: path.to_owned(), version: other });
        }
    }
    Ok(connection)
}

/// Sets up a connection to a database that [`open_database`] has created.
///
/// # Errors
/// When the database cannot be used.
pub fn set_up(connection: &Connection, timeout: BusyTimeout) -> rusqlite::Result<()> {
    wait_with_jitter(connection, timeout)?;
    use_wal(connection, timeout)?;
    // NORMAL: a power failure may lose the last rows, never the file; the sweep finds their sessions
    // again. A killed process loses nothing.
    // secure_delete: what is deleted is overwritten, and not only marked as free.
    connection.execute_batch(
        "PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON; PRAGMA secure_delete = ON; PRAGMA cache_size = -512;",
    )?;
    if matches!(timeout, BusyTimeout::Hook) {
        // A hook writes one row and exits; moving the log into the database is the worker's job.
        connection.execute_batch("PRAGMA wal_autocheckpoint = 0;")?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    }
    Ok(())
}

/// How long files beside the database may be such that they cannot be opened.
const UNOPENABLE_MAX: Duration = Duration::from_millis(200);

/// While another connection does the same to a new file, SQLite refuses at once, without the busy handler. A process of
/// root's gives the files that it makes beside the database to the owner a moment after it has made them.
fn use_wal(connection: &Connection, timeout: BusyTimeout) -> rusqlite::Result<()> {
    let begun = Instant::now();
    loop {
        let used = connection.pragma_update(None, "journal_mode", "WAL");
        let patience = match used.as_ref().err().and_then(rusqlite::Error::sqlite_error_code) {
            Some(ErrorCode::DatabaseBusy) => timeout.duration(),
            Some(ErrorCode::CannotOpen) => UNOPENABLE_MAX,
            _ => return used,
        };
        if begun.elapsed() >= patience {
            return used;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Installs a busy handler with jittered waits. SQLite's own sleeps in fixed steps, so processes that
/// start together keep colliding; jitter brought the slowest of 64 hooks from 1.8 s to under 0.5 s.
fn wait_with_jitter(connection: &Connection, timeout: BusyTimeout) -> rusqlite::Result<()> {
    // The handler is a plain function, so its state is thread-local.
    thread_local! {
        static SINCE: std::cell::Cell<Option<Instant>> = const { std::cell::Cell::new(None) };
    }
    fn step(tries: i32, limit: Duration) -> bool {
        let since = SINCE.with(|since| {
            if tries == 0 {
                since.set(Some(Instant::now()));
            }
            since.get().unwrap_or_else(Instant::now)
        });
        if since.elapsed() > limit {
            return false;
        }
        let ceiling_us = 1000_u64 << (tries.clamp(0, 4) as u32);
        std::thread::sleep(Duration::from_micros(200 + fastrand::u64(..ceiling_us)));
        true
    }
    let handler: fn(i32) -> bool = match timeout {
        BusyTimeout::Hook => |tries| step(tries, BusyTimeout::Hook.duration()),
        BusyTimeout::Command => |tries| step(tries, BusyTimeout::Command.duration()),
        BusyTimeout::Worker => |tries| step(tries, BusyTimeout::Worker.duration()),
    };
    connection.busy_handler(Some(handler))
}

/// Whether the tables have the current version, for read-only callers that must not migrate.
pub(crate) fn is_current(connection: &Connection) -> rusqlite::Result<bool> {
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    Ok(version == MIGRATIONS.len() as i64)
}

fn migrate(connection: &mut Connection, migrations: &[&str]) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have migrated while this one waited for the lock.
    let version: u32 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    for (number, migration) in (1..).zip(migrations).skip(version as usize) {
        transaction.execute_batch(migration)?;
        transaction.pragma_update(None, "user_version", number)?;
    }
    transaction.commit()
}
