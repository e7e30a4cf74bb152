//! The database's tables and versions.

use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

/// A chunk with its embedding has about 2 KB, so that a page of 4 KB would hold one and be half empty. Larger pages do
/// not pay: a search reads many chunks, mostly one per page.
pub(crate) const PAGE_BYTES: i64 = 8 << 10;

/// The version of the tables and their content, which has the rules of `guard` for triggers in it. A database of another
/// version is dropped and rebuilt.
pub(crate) const VERSION: i64 = 12;

/// "nugg": marks the database as an index.
const APPLICATION_ID: i64 = 0x6e75_6767;

/// Embeddings are kept as f16, little endian: half the space of f32, and an error of the cosine below 1e-3.
///
/// `reviewers` says who merged a path into the default branch, up to the commit in `reviewed`. It belongs to no
/// generation: a merge may change it without changing a file.
///
/// `triggers` says on which actions each unit bears: `pattern` is a JSON object of `guard`, found by its keys. A held unit
/// refuses the first such action. Under `repository …`, which is the key of no action, are the units whose scope names that
/// repository.
///
/// Chunk rows are never numbered twice (`AUTOINCREMENT`): a row stands for one vector, so that the graph of an older
/// generation can be used for a newer one.
///
/// `chunks_fts` keeps no text (`content=''`): the indexed text differs from the displayed one, which is in `chunks`. It
/// has no hidden characters, and its identifiers are split.
///
/// `hashsize` lets FTS5 collect the words of a large change in 32 MB of memory instead of 1 MB, so that they are sorted
/// once and not merged repeatedly.
const TABLES: &str = "
    CREATE TABLE generation (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        number INTEGER NOT NULL,
        model TEXT NOT NULL,
        dimensions INTEGER NOT NULL,
        rules INTEGER NOT NULL,
        units INTEGER NOT NULL,
        chunks INTEGER NOT NULL,
        built TEXT NOT NULL
    );
    CREATE TABLE graph (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        hash TEXT NOT NULL,
        row_max INTEGER NOT NULL,
        data BLOB NOT NULL
    );
    CREATE TABLE files (
        path TEXT PRIMARY KEY,
        size INTEGER NOT NULL,
        modified_ns INTEGER NOT NULL,
        settled INTEGER NOT NULL,
        hash BLOB,
        unit_id TEXT,
        problem_line INTEGER,
        problem TEXT
    ) WITHOUT ROWID;
    CREATE TABLE units (
        id TEXT PRIMARY KEY,
        path TEXT NOT NULL UNIQUE,
        title TEXT NOT NULL,
        type TEXT NOT NULL,
        domain TEXT NOT NULL,
        tags TEXT NOT NULL,
        confidence REAL NOT NULL,
        source TEXT NOT NULL,
        description TEXT,
        status TEXT,
        created TEXT,
        last_modified TEXT
    ) WITHOUT ROWID;
    CREATE TABLE reviewers (
        path TEXT PRIMARY KEY,
        name TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE reviewed (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        commit_name TEXT NOT NULL
    );
    CREATE TABLE chunks (
        row INTEGER PRIMARY KEY AUTOINCREMENT,
        unit_id TEXT NOT NULL REFERENCES units(id),
        position INTEGER NOT NULL,
        heading_level INTEGER NOT NULL,
        heading_breadcrumb TEXT NOT NULL,
        text TEXT NOT NULL,
        tokens INTEGER NOT NULL,
        text_hash BLOB NOT NULL,
        embedding BLOB NOT NULL,
        UNIQUE (unit_id, position)
    );
    CREATE INDEX chunks_by_text ON chunks(text_hash);
    CREATE TABLE token_vectors (
        piece INTEGER PRIMARY KEY,
        data BLOB NOT NULL
    );
    CREATE TABLE relationships (
        source_id TEXT NOT NULL REFERENCES units(id),
        target_id TEXT NOT NULL,
        relation_type TEXT NOT NULL,
        PRIMARY KEY (source_id, target_id, relation_type)
    ) WITHOUT ROWID;
    CREATE INDEX relationships_by_target ON relationships(target_id);
    CREATE TABLE triggers (
        key TEXT NOT NULL,
        unit_id TEXT NOT NULL REFERENCES units(id),
        position INTEGER NOT NULL,
        pattern TEXT NOT NULL,
        held INTEGER NOT NULL,
        stale_after TEXT,
        PRIMARY KEY (key, unit_id, position)
    ) WITHOUT ROWID;
    CREATE INDEX triggers_by_unit ON triggers(unit_id);
    CREATE VIRTUAL TABLE chunks_fts USING fts5(
        heading, text, parts,
        content='', contentless_delete=1,
        tokenize='porter unicode61 remove_diacritics 2'
    );
    INSERT INTO chunks_fts(chunks_fts, rank) VALUES ('hashsize', 33554432);
";

/// Empties every table of a generation; the numbering of chunk rows continues.
pub(crate) const CLEAR: &str = "
    DELETE FROM generation;
    DELETE FROM graph;
    DELETE FROM files;
    DELETE FROM relationships;
    DELETE FROM triggers;
    DELETE FROM token_vectors;
    DELETE FROM chunks;
    DELETE FROM units;
    INSERT INTO chunks_fts(chunks_fts) VALUES ('delete-all');
";

/// The state of a database file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Empty,
    Ours,
    OtherVersion,
    Damaged,
}

/// Finds the state of a database without changing it.
pub(crate) fn inspect(connection: &Connection) -> rusqlite::Result<State> {
    let read_state = || -> rusqlite::Result<State> {
        let number = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        let tables = number("SELECT count(*) FROM sqlite_schema")?;
        let (version, application) = (number("PRAGMA user_version")?, number("PRAGMA application_id")?);
        if tables == 0 {
            return Ok(State::Empty);
        }
        if (version, application) != (VERSION, APPLICATION_ID) {
            return Ok(State::OtherVersion);
        }
        number("SELECT count(*) FROM generation")?;
        Ok(State::Ours)
    };
    match read_state() {
        Err(error) if is_damage(&error) => Ok(State::Damaged),
        other => other,
    }
}

/// Creates the tables in an empty database, unless another process has: if the folder was just deleted, so was the
/// lock, and two processes may hold one each. It is an error that the database is damaged if it is not empty.
pub(crate) fn create(connection: &mut Connection, timeout: Duration) -> rusqlite::Result<()> {
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    use_wal(connection, timeout)?;
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    match inspect(&transaction)? {
        State::Empty => {}
        State::Ours => return Ok(()),
        // The log of a database that was deleted is still beside the new one.
        State::OtherVersion | State::Damaged => {
            let corrupt = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
            return Err(rusqlite::Error::SqliteFailure(corrupt, None));
        }
    }
    transaction.execute_batch(TABLES)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    // The file alone must show its version, even without its log.
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}

/// Sets the mode of a write-ahead log. While another connection does the same to a new file, SQLite refuses at once and
/// does not wait for the busy timeout, so it is tried again here.
pub(crate) fn use_wal(connection: &Connection, timeout: Duration) -> rusqlite::Result<()> {
    let begun = Instant::now();
    loop {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && begun.elapsed() < timeout =>
            {
                std::thread::sleep(Duration::from_millis(2));
            }
            other => return other,
        }
    }
}

/// Whether an error says that there are no tables yet: another process is about to create them, or was killed before.
/// A database that lacks only this table is found damaged by the next builder.
pub(crate) fn has_no_tables(error: &rusqlite::Error) -> bool {
    error.to_string().contains("no such table: generation")
}

/// Whether an error says that the file is damaged. A missing table or column counts as damage, because the version
/// promises it.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(failure, message) => match failure.code {
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => true,
            // The file ends where a page should be: it is truncated, or the log is another database's.
            ErrorCode::SystemIoFailure => failure.extended_code == rusqlite::ffi::SQLITE_IOERR_SHORT_READ,
            ErrorCode::Unknown => message.as_deref().is_some_and(|message| message.starts_with("no such ")),
            _ => false,
        },
        rusqlite::Error::SqlInputError { msg, .. } => msg.starts_with("no such "),
        rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..) => true,
        _ => false,
    }
}
