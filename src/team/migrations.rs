//! The tables' versions. A migration expands first and contracts in a later version, so that servers of the version
//! before can work beside it; each says from which version on.

use crate::store::Transaction;
use crate::{Error, Result, TeamStore};

/// The versions of the tables before and after a migration; zero where there were none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// Before.
    pub from: i32,
    /// After.
    pub to: i32,
}

/// The change from the version before.
struct Migration {
    /// The oldest version whose servers can work with the tables after it.
    readable_from: i32,
    sql: &'static str,
}

/// The position, counted from one, is the version.
const MIGRATIONS: &[Migration] = &[
    Migration { readable_from: 1, sql: include_str!("migrations/001_base.sql") },
    Migration { readable_from: 1, sql: include_str!("migrations/002_index.sql") },
    Migration { readable_from: 1, sql: include_str!("migrations/003_other_dimensions.sql") },
    Migration { readable_from: 1, sql: include_str!("migrations/004_sessions_of_jobs.sql") },
    Migration { readable_from: 1, sql: include_str!("migrations/005_token_vectors_in_rows.sql") },
];

/// Any number, the same in all versions: who has this lock migrates.
const LOCK: i64 = 0x6e75_6767_6574;

const POSTGRES_MIN: i32 = 14;
/// The first with `hnsw.iterative_scan`; `halfvec` is in 0.7.
const VECTOR_MIN: (u32, u32) = (0, 8);

/// The roles of the tables are of the whole PostgreSQL: the owner of another installation there is one of them, and sees
/// what it can connect to. At each start, as a restored database has the rights of a new one. Where another role owns the
/// database, it only warns.
const CLOSE: &str = "
DO $$ BEGIN
    IF has_database_privilege('public', current_database(), 'CONNECT') THEN
        EXECUTE format('REVOKE CONNECT ON DATABASE %I FROM PUBLIC', current_database());
    END IF;
END $$";

const CREATE: &str = "
CREATE SCHEMA IF NOT EXISTS nugget;
CREATE TABLE IF NOT EXISTS nugget.schema_version (
    version int PRIMARY KEY, readable_from int NOT NULL, at timestamptz NOT NULL DEFAULT now())";

impl TeamStore {
    /// Creates or migrates the tables. Servers that start together wait for each other. Returns what was done.
    ///
    /// # Errors
    /// [`Error::TooOld`], [`Error::Newer`], or when the role may not create tables and roles.
    pub fn migrate(&self) -> Result<Migrated> {
        self.run("BEGIN", migrate)
    }

    /// Checks that the server answers and that its tables are those of this program.
    ///
    /// # Errors
    /// [`Error::NotMigrated`], [`Error::Newer`], or when the server cannot be reached.
    pub fn check(&self) -> Result<()> {
        self.run("BEGIN READ ONLY", check)
    }
}

fn latest() -> i32 {
    MIGRATIONS.len() as i32
}

fn migrate(transaction: &mut Transaction) -> Result<Migrated> {
    check_server(transaction)?;
    // Building an index may take long, and so may another server's migration.
    transaction.batch_execute(&format!(
        "SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0; SELECT pg_advisory_xact_lock({LOCK})"
    ))?;
    let (version, readable_from) = version(transaction)?;
    check_readable(version, readable_from)?;
    transaction.batch_execute(CLOSE)?;
    let migrated = Migrated { from: version, to: version.max(latest()) };
    if version >= latest() {
        return Ok(migrated);
    }
    transaction
        .batch_execute("CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public")
        .map_err(no_vector)?;
    check_server(transaction)?;
    transaction.batch_execute(CREATE)?;
    for (number, migration) in (1..).zip(MIGRATIONS).skip(version as usize) {
        transaction.batch_execute(migration.sql)?;
        transaction.execute(
            "INSERT INTO nugget.schema_version (version, readable_from) VALUES ($1, $2)",
            &[&number, &migration.readable_from],
        )?;
    }
    Ok(migrated)
}

/// pgvector is missing, or only a superuser may create it.
fn no_vector(error: Error) -> Error {
    match error {
        Error::Postgres(error) if error.as_db_error().is_some() => Error::NoVector(error),
        other => other,
    }
}

fn check(transaction: &mut Transaction) -> Result<()> {
    check_server(transaction)?;
    let (version, readable_from) = version(transaction)?;
    check_readable(version, readable_from)?;
    if version < latest() {
        return Err(Error::NotMigrated { found: version, needed: latest() });
    }
    Ok(())
}

/// Checks PostgreSQL's version, and that of pgvector, if the database has it.
fn check_server(transaction: &mut Transaction) -> Result<()> {
    let sql = "SELECT current_setting('server_version_num'),
        (SELECT extversion FROM pg_extension WHERE extname = 'vector')";
    let row = transaction.query_one(sql, &[])?;
    let (number, vector): (String, Option<String>) = (row.get(0), row.get(1));
    let version = number.parse::<i32>().unwrap_or(0) / 10_000;
    if version < POSTGRES_MIN {
        return Err(Error::TooOld { version });
    }
    match vector {
        Some(version) if is_old_vector(&version) => Err(Error::OldVector { version }),
        _ => Ok(()),
    }
}

/// A version that cannot be read is none of those that were ever too old.
fn is_old_vector(version: &str) -> bool {
    let mut parts = version.split('.').map(str::parse);
    matches!((parts.next(), parts.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < VECTOR_MIN)
}

fn check_readable(version: i32, readable_from: i32) -> Result<()> {
    if readable_from > latest() { Err(Error::Newer { version, readable_from }) } else { Ok(()) }
}

/// The newest version, and from which version on it is readable; zeros when there are no tables.
fn version(transaction: &mut Transaction) -> Result<(i32, i32)> {
    // A scan of the catalog and not to_regclass, which may answer from a cache from before the wait for the lock.
    let sql = "SELECT EXISTS (SELECT FROM pg_catalog.pg_tables WHERE schemaname = 'nugget' AND tablename = 'schema_version')";
    let exists: bool = transaction.query_one(sql, &[])?.get(0);
    if !exists {
        return Ok((0, 0));
    }
    let sql = "SELECT version, readable_from FROM nugget.schema_version ORDER BY version DESC LIMIT 1";
    let row = transaction.query_opt(sql, &[])?;
    Ok(row.map_or((0, 0), |row| (row.get(0), row.get(1))))
}
