//! Connections, and transactions with a scope: one brain's rows, the dispatcher's view, or access.

use std::collections::HashMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use postgres::types::ToSql;
use postgres::{Client, Row, Statement};
use r2d2::PooledConnection;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::is_lost;
use crate::shared_index::IndexError;
use crate::{Error, Result, tls};

/// Connections of one process. A transaction takes a few milliseconds, and PostgreSQL allows 100 in all by default.
const CONNECTIONS_MAX: u32 = 16;
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// How long a connection may be silent while it has unanswered data, before it counts as lost.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// Values of a statement's parameters.
pub(crate) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The number of a brain in the team's database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BrainId(pub i32);

impl fmt::Display for BrainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The database of a team. Clones share the connections.
#[derive(Clone)]
pub struct TeamStore {
    pool: r2d2::Pool<Manager>,
}

impl fmt::Debug for TeamStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TeamStore").field("connections", &self.pool.state().connections).finish()
    }
}

impl TeamStore {
    /// Connects to a `postgres://` URL. TLS is needed unless the server is on a socket or a loopback address, or the URL
    /// says `sslmode=disable`; certificates are checked against the system's roots.
    ///
    /// # Errors
    /// When the URL is not valid or the server cannot be reached.
    pub fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url, CONNECTIONS_MAX)
    }

    /// [`connect`](Self::connect) with at most this many connections.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_with(url: &str, connections_max: u32) -> Result<Self> {
        let (mut config, tls) = tls::parse(url)?;
        config.application_name("nugget").connect_timeout(Duration::from_secs(5));
        config.keepalives(true).keepalives_idle(SILENCE_MAX).tcp_user_timeout(SILENCE_MAX);
        let manager = Manager { config, tls };
        // One connection first: its error is clearer than the pool's.
        let first = r2d2::ManageConnection::connect(&manager);
        drop(first.map_err(|source| Error::Connect { address: tls::address(&manager.config), source })?);
        let pool = r2d2::Pool::builder()
            .max_size(connections_max)
            .min_idle(Some(1))
            // It would be a round trip for each transaction; instead, what fails on a lost connection is run again.
            .test_on_check_out(false)
            .connection_timeout(CONNECT_WAIT)
            .build(manager)?;
        Ok(Self { pool })
    }

    /// The scope of one brain: its transactions see and change no other brain's rows, whatever the statement says.
    pub fn brain(&self, id: BrainId) -> Brain<'_> {
        Brain { store: self, id }
    }

    /// Runs `work` in a transaction of the dispatcher, which sees the open jobs of all brains but not what they hold.
    ///
    /// It may run twice, as [`Brain::write`] says.
    ///
    /// # Errors
    /// What `work` returns, or when the transaction cannot be committed.
    pub fn dispatch<T>(&self, work: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.run("BEGIN; SET LOCAL ROLE nugget_dispatch", work)
    }

    /// Runs `work` in a transaction that sees brains, tokens, projects and the audit, and no content.
    pub(crate) fn access<T>(&self, work: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.run("BEGIN; SET LOCAL ROLE nugget_access", work)
    }

    /// A connection that is in no transaction.
    pub(crate) fn checkout(&self) -> Result<PooledClient> {
        Ok(PooledClient(self.pool.get()?))
    }

    /// The same, and it answers.
    pub(crate) fn checkout_answering(&self) -> Result<PooledClient> {
        Ok(PooledClient(self.answering()?))
    }

    /// Connections in use and in all, for metrics.
    pub fn connections(&self) -> (u32, u32) {
        let state = self.pool.state();
        (state.connections - state.idle_connections, state.connections)
    }

    /// Begins, works and commits; once more if that failed before anything was committed and may succeed now: the
    /// connection was lost, or two transactions waited for each other.
    pub(crate) fn run<T>(
        &self,
        begin: &str,
        mut work: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        off_the_runtime(|| match attempt(self.pool.get()?, begin, &mut work) {
            Err(error) if error.can_retry() => {
                tracing::debug!(?error, "a transaction is run again");
                attempt(self.answering()?, begin, &mut work)
            }
            done => done,
        })
    }

    /// A connection that answers: the others of the pool were likely lost with the one that failed.
    fn answering(&self) -> Result<PooledConnection<Manager>> {
        for _ in 0..self.pool.max_size() {
            let mut connection = self.pool.get()?;
            match connection.client.is_valid(CONNECT_WAIT) {
                Ok(()) => return Ok(connection),
                Err(_) => connection.is_lost = true,
            }
        }
        Ok(self.pool.get()?)
    }
}

/// Runs work that blocks where it may: the client of PostgreSQL waits on a runtime of its own, which a thread that drives
/// another one must not. An actor that is started or restarted asks the ledger on such a thread.
fn off_the_runtime<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// The rows of one brain.
#[derive(Clone, Copy, Debug)]
pub struct Brain<'a> {
    store: &'a TeamStore,
    id: BrainId,
}

impl Brain<'_> {
    /// The brain's number.
    pub fn id(&self) -> BrainId {
        self.id
    }

    /// Runs `work` in a transaction that reads the brain's rows as they are at its first statement.
    ///
    /// `work` may run twice: after a lost connection it is run again.
    ///
    /// # Errors
    /// What `work` returns, or when the server cannot be reached.
    pub fn read<T>(&self, work: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.store.run(&self.begin(READ), work)
    }

    /// Runs `work` in a transaction that may change the brain's rows, and commits it.
    ///
    /// `work` may run twice: after a lost connection, a deadlock or a serialization failure before the commit, when
    /// nothing has been stored. A connection that is lost during the commit is [`Error::CommitUnknown`].
    ///
    /// # Errors
    /// What `work` returns, or when the transaction cannot be committed.
    pub fn write<T>(&self, work: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.store.run(&self.begin("BEGIN"), work)
    }

    fn begin(&self, begin: &str) -> String {
        format!("{begin}; SET LOCAL ROLE nugget_server; SET LOCAL nugget.brains = '{}'", self.id)
    }
}

const READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

fn attempt<T>(
    connection: PooledConnection<Manager>,
    begin: &str,
    work: &mut impl FnMut(&mut Transaction) -> Result<T>,
) -> Result<T> {
    let mut transaction = Transaction::begin(connection, begin)?;
    // Dropped on an error, which rolls it back.
    let value = work(&mut transaction).inspect_err(|error| transaction.note(error))?;
    transaction.end()?;
    Ok(value)
}

/// An open transaction. It is rolled back when it is dropped.
pub struct Transaction {
    connection: PooledConnection<Manager>,
    is_open: bool,
    is_unwanted: bool,
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("is_open", &self.is_open).finish_non_exhaustive()
    }
}

impl Transaction {
    /// Begins with one round trip.
    fn begin(connection: PooledConnection<Manager>, begin: &str) -> Result<Self> {
        let mut transaction = Self { connection, is_open: true, is_unwanted: false };
        let begun = transaction.connection.client.batch_execute(begin).map_err(Error::from);
        begun.inspect_err(|error| transaction.note(error))?;
        Ok(transaction)
    }

    /// All rows of a query. The statement is prepared once for each connection.
    ///
    /// # Errors
    /// When the statement fails.
    pub fn query(&mut self, sql: &str, params: Params<'_>) -> Result<Vec<Row>> {
        let statement = self.connection.prepare(sql)?;
        Ok(self.connection.client.query(&statement, params)?)
    }

    /// The first row of a query.
    ///
    /// # Errors
    /// When the statement fails.
    pub fn query_opt(&mut self, sql: &str, params: Params<'_>) -> Result<Option<Row>> {
        Ok(self.query(sql, params)?.into_iter().next())
    }

    /// The one row of a query.
    ///
    /// # Errors
    /// When the statement fails or there is no or another row.
    pub fn query_one(&mut self, sql: &str, params: Params<'_>) -> Result<Row> {
        let statement = self.connection.prepare(sql)?;
        Ok(self.connection.client.query_one(&statement, params)?)
    }

    /// Runs a statement, and returns how many rows it has changed.
    ///
    /// # Errors
    /// When the statement fails.
    pub fn execute(&mut self, sql: &str, params: Params<'_>) -> Result<u64> {
        let statement = self.connection.prepare(sql)?;
        Ok(self.connection.client.execute(&statement, params)?)
    }

    /// Runs statements without parameters, in one round trip.
    pub(crate) fn batch_execute(&mut self, sql: &str) -> Result<()> {
        Ok(self.connection.client.batch_execute(sql)?)
    }

    /// The connection, for what this type does not offer (`COPY`, binary rows). It must not end the transaction.
    pub fn client(&mut self) -> &mut Client {
        &mut self.connection.client
    }

    /// Makes the end of this transaction a roll-back, although its work succeeds.
    pub fn roll_back(&mut self) {
        self.is_unwanted = true;
    }

    fn note(&mut self, error: &Error) {
        if let Error::Postgres(error) | Error::Index(IndexError::Postgres(error)) = error {
            self.connection.is_lost |= is_lost(error);
        }
    }

    fn end(mut self) -> Result<()> {
        if self.is_unwanted {
            return Ok(());
        }
        self.is_open = false;
        self.connection.client.batch_execute("COMMIT").map_err(|error| match error.as_db_error() {
            // An answer that the session survives says that the transaction was rolled back.
            Some(_) if !is_lost(&error) => Error::Postgres(error),
            _ => {
                self.connection.is_lost = true;
                Error::CommitUnknown(error)
            }
        })
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.is_open && !self.connection.is_lost {
            self.connection.is_lost = self.connection.client.batch_execute("ROLLBACK").is_err();
        }
    }
}

/// A connection of the pool, to which it goes back when this is dropped.
pub struct PooledClient(PooledConnection<Manager>);

impl Deref for PooledClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.0.client
    }
}

impl DerefMut for PooledClient {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.0.client
    }
}

/// A connection with the statements that it has prepared.
pub(crate) struct Connection {
    client: Client,
    statements: HashMap<String, Statement>,
    is_lost: bool,
}

impl Connection {
    fn prepare(&mut self, sql: &str) -> Result<Statement> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql)?;
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }
}

struct Manager {
    config: postgres::Config,
    tls: MakeRustlsConnect,
}

/// Waits end: a statement after 60 s, a lock after 10 s, a transaction that its client forgot after 60 s. What is
/// acknowledged is on disk, also where the server's default is otherwise.
const SET_UP: &str = "
SET search_path = nugget, public; SET client_min_messages = warning;
SET statement_timeout = '60s'; SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '60s';
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";

impl r2d2::ManageConnection for Manager {
    type Connection = Connection;
    type Error = postgres::Error;

    fn connect(&self) -> Result<Connection, postgres::Error> {
        let mut client = self.config.connect(self.tls.clone())?;
        client.batch_execute(SET_UP)?;
        Ok(Connection { client, statements: HashMap::new(), is_lost: false })
    }

    fn is_valid(&self, connection: &mut Connection) -> Result<(), postgres::Error> {
        connection.client.is_valid(CONNECT_WAIT)
    }

    fn has_broken(&self, connection: &mut Connection) -> bool {
        connection.is_lost || connection.client.is_closed()
    }
}
