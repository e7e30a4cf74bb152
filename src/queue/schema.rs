//! The tables, and how a connection is set up.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, TransactionBehavior};

use crate::Error;

/// Each brings the tables from the version before to its own: the first makes them.
pub(crate) const STEPS: [&str; 3] = [FIRST, PROPOSED, DELIVERED];

/// What the remote has of a capture, and stages that are put off as a whole.
const DELIVERED: &str = "
ALTER TABLE captures ADD COLUMN pushed TEXT;         -- the commit that the remote has
ALTER TABLE captures ADD COLUMN pull_number INTEGER;
ALTER TABLE captures ADD COLUMN pull_url TEXT;
ALTER TABLE captures ADD COLUMN pull_state TEXT;     -- open, merged, closed
CREATE INDEX captures_open ON captures(id) WHERE pull_state = 'open';
CREATE TABLE pauses (
    stage    TEXT PRIMARY KEY,
    since_ms INTEGER NOT NULL,
    until_ms INTEGER NOT NULL,
    times    INTEGER NOT NULL,             -- how often it was found wanting in a row
    why      TEXT NOT NULL
) WITHOUT ROWID;
";

/// What is known of the units that captures have proposed, while they wait for their review and after;
/// and where each comes from, which outlives the transcript.
const PROPOSED: &str = "
ALTER TABLE names ADD COLUMN title TEXT NOT NULL DEFAULT '';
ALTER TABLE names ADD COLUMN model TEXT NOT NULL DEFAULT '';
ALTER TABLE names ADD COLUMN vector BLOB NOT NULL DEFAULT x'';
CREATE TABLE evidence (
    unit       TEXT NOT NULL,
    capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE,
    position   INTEGER NOT NULL,
    line       TEXT NOT NULL,             -- its uuid
    excerpt    TEXT NOT NULL,             -- redacted and cut short
    PRIMARY KEY (unit, capture_id, position)
) WITHOUT ROWID;
CREATE INDEX evidence_capture ON evidence(capture_id);
";

const FIRST: &str = "
CREATE TABLE captures (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id    TEXT NOT NULL,
    transcript    TEXT NOT NULL,
    cwd           TEXT,
    origin        TEXT NOT NULL,
    end_reason    TEXT,
    stage         TEXT NOT NULL,
    claim         INTEGER,           -- the claim that works on it, if any
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
-- What a stage has kept for the next one; gone when the capture has ended and no pull request is open.
CREATE TABLE results (
    capture_id INTEGER PRIMARY KEY REFERENCES captures(id) ON DELETE CASCADE,
    body       BLOB NOT NULL
);
-- Which lines of which transcripts have been captured: a line's uuid is its identity, whatever
-- file a resume or a fork has copied it to.
CREATE TABLE lines (
    uuid       TEXT PRIMARY KEY,
    capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX lines_capture ON lines(capture_id);
-- The ids that captures have given to units: taken, also while their branches wait for review.
CREATE TABLE names (
    name       TEXT PRIMARY KEY,
    capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX names_capture ON names(capture_id);
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counters VALUES ('claim', 0);
-- What each transcript was like as it was last read, or looked into and passed over: one that is
-- still like that holds nothing new. The capture's number stays when it is struck from the ledger.
CREATE TABLE seen (
    transcript  TEXT PRIMARY KEY,
    size        INTEGER NOT NULL,
    modified_ms INTEGER NOT NULL,
    capture_id  INTEGER,
    passed_over TEXT
) WITHOUT ROWID;
-- What calls of models have cost, each entered before it is made. A capture's number stays when it
-- is struck from the ledger: the money is gone all the same.
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
-- What was made of the answers of models, so that a retry does not pay for them again; gone when the
-- capture ends.
CREATE TABLE answers (
    capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE,
    question   TEXT NOT NULL,             -- a digest
    body       BLOB NOT NULL,
    PRIMARY KEY (capture_id, question)
) WITHOUT ROWID;
-- What a running process says of itself, for `nugget status`.
CREATE TABLE reports (
    name  TEXT PRIMARY KEY,
    pid   INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    body  TEXT NOT NULL
) WITHOUT ROWID;
";

/// How long a connection may wait for another's write.
#[derive(Clone, Copy)]
pub(crate) enum Patience {
    /// A hook has about 1.5 s in all and a spool to fall back on.
    Hook,
    Worker,
}

impl Patience {
    fn limit(self) -> Duration {
        match self {
            Self::Hook => Duration::from_millis(400),
            Self::Worker => Duration::from_secs(20),
        }
    }
}

/// Opens the queue, making its tables if it is new.
pub(crate) fn open(path: &Path, patience: Patience) -> Result<Connection, Error> {
    let wrong = |source| Error::Open { path: path.to_owned(), source };
    let mut connection = Connection::open(path).map_err(wrong)?;
    set_up(&connection, patience).map_err(wrong)?;
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(wrong)?;
    let present = STEPS.len() as i64;
    match version {
        version if version == present => {}
        0.. if version < present => bring_up_to_date(&mut connection).map_err(wrong)?,
        other => return Err(Error::Newer { path: path.to_owned(), version: other }),
    }
    Ok(connection)
}

pub(crate) fn set_up(connection: &Connection, patience: Patience) -> rusqlite::Result<()> {
    wait_with_jitter(connection, patience)?;
    // NORMAL: a power cut may take the last rows, never the file; the sweep finds their sessions
    // again. A killed process loses nothing.
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON;
             PRAGMA cache_size = -512;",
    )?;
    if matches!(patience, Patience::Hook) {
        // A hook writes one row and goes; moving the log into the database is the drainer's work.
        connection.execute_batch("PRAGMA wal_autocheckpoint = 0;")?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    }
    Ok(())
}

/// SQLite's own busy handler sleeps in fixed steps, so that processes that start together keep
/// colliding; a jittered one brought the slowest of 64 hooks from 1.8 s under 0.5 s.
fn wait_with_jitter(connection: &Connection, patience: Patience) -> rusqlite::Result<()> {
    // The handler is a plain function, so what it has to know lies in the thread.
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
    let handler: fn(i32) -> bool = match patience {
        Patience::Hook => |tries| step(tries, Patience::Hook.limit()),
        Patience::Worker => |tries| step(tries, Patience::Worker.limit()),
    };
    connection.busy_handler(Some(handler))
}

/// Whether the tables are of this version: for those who only read and make nothing.
pub(crate) fn is_present(connection: &Connection) -> rusqlite::Result<bool> {
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    Ok(version == STEPS.len() as i64)
}

fn bring_up_to_date(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have done it while this one waited for the lock.
    let version: u32 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    for (number, step) in (1..).zip(STEPS).skip(version as usize) {
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "user_version", number)?;
    }
    transaction.commit()
}
