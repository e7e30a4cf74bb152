//! A database of a test's own, on the server of `NUGGET_TEST_POSTGRES` or on a private one.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use knowledge::SessionId;
use postgres::{Client, NoTls};
use queue::suite::LedgerUnderTest;
use queue::{Ledger, Stage};
use team::private_postgres::{PrivatePostgres, Programs};
use team::{Accepted, BrainId, NewBrain, NewCapture, TeamLedger, TeamStore};

pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// The URL of a maintenance database, whose role may create roles and databases.
const SERVER_VARIABLE: &str = "NUGGET_TEST_POSTGRES";

/// The role that owns the tests' databases. It is no superuser: one would see the rows of all brains.
const OWNER: &str = "nugget_test";

/// A private server in a folder, which is removed with it.
pub(crate) struct PrivateServer {
    pub(crate) postgres: Option<PrivatePostgres>,
    pub(crate) folder: tempfile::TempDir,
}

impl PrivateServer {
    pub(crate) fn start() -> Option<Self> {
        let programs = PrivatePostgres::find().filter(Programs::have_vector)?;
        let folder = tempfile::Builder::new().prefix("pg").tempdir().unwrap();
        let postgres = PrivatePostgres::start(&programs, folder.path()).unwrap();
        Some(Self { postgres: Some(postgres), folder })
    }

    pub(crate) fn postgres(&self) -> &PrivatePostgres {
        self.postgres.as_ref().unwrap()
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        self.postgres = None;
    }
}

/// The private server that tests of this process share while one of them uses it.
static SHARED: Mutex<Weak<PrivateServer>> = Mutex::new(Weak::new());

fn shared() -> Option<Arc<PrivateServer>> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = shared.upgrade() {
        return Some(server);
    }
    let server = Arc::new(PrivateServer::start()?);
    *shared = Arc::downgrade(&server);
    Some(server)
}

/// A migrated database, which is dropped with this.
pub(crate) struct TestDatabase {
    pub(crate) url: String,
    admin_url: String,
    name: String,
    _server: Option<Arc<PrivateServer>>,
}

impl TestDatabase {
    /// `None`, with a line that says so, where no PostgreSQL is found; on CI that is a failure.
    pub(crate) fn new() -> Option<Self> {
        let (admin_url, server) = match std::env::var(SERVER_VARIABLE) {
            Ok(url) => (url, None),
            Err(_) => match shared() {
                Some(server) => (server.postgres().url("postgres"), Some(server)),
                None => {
                    assert!(
                        std::env::var_os("NUGGET_REQUIRE_POSTGRES").is_none(),
                        "no PostgreSQL to test with"
                    );
                    println!("skipped: no PostgreSQL; set {SERVER_VARIABLE} or install one");
                    return None;
                }
            },
        };
        let database = Self::create(admin_url, server);
        database.store(2).migrate().unwrap();
        Some(database)
    }

    pub(crate) fn create(admin_url: String, server: Option<Arc<PrivateServer>>) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("nugget_test_{}_{number}", std::process::id());
        let mut client = Client::connect(&admin_url, NoTls).unwrap();
        client.batch_execute(&roles()).unwrap();
        client.batch_execute(&format!("CREATE DATABASE {name} OWNER {OWNER}")).unwrap();
        // pgvector is not one of the extensions that a database's owner may create.
        let mut inside = Client::connect(&with_database(&admin_url, &name), NoTls).unwrap();
        inside.batch_execute("CREATE EXTENSION vector").unwrap();
        let url = with_user_and_database(&admin_url, OWNER, &name);
        Self { url, admin_url, name, _server: server }
    }

    pub(crate) fn store(&self, connections_max: u32) -> TeamStore {
        TeamStore::connect_with(&self.url, connections_max).unwrap()
    }

    /// A connection that sees everything.
    pub(crate) fn superuser(&self) -> Client {
        let admin = Client::connect(&self.admin_url, NoTls).unwrap();
        drop(admin);
        let mut client = Client::connect(&with_database(&self.admin_url, &self.name), NoTls).unwrap();
        client.batch_execute("SET search_path = nugget, public").unwrap();
        client
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let Ok(mut client) = Client::connect(&self.admin_url, NoTls) else { return };
        let _ = client.batch_execute(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
    }
}

/// The owner, and the roles of the migrations, which belong to the server and may be there from another database.
fn roles() -> String {
    let mut sql = format!("SELECT pg_advisory_lock(42); {}", create_role(OWNER, "LOGIN CREATEROLE"));
    for role in ["nugget_server", "nugget_dispatch", "nugget_access"] {
        sql += &create_role(role, "NOLOGIN");
        sql += &format!("GRANT {role} TO {OWNER};");
    }
    sql
}

fn create_role(name: &str, options: &str) -> String {
    format!(
        "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{name}') THEN
             CREATE ROLE {name} {options}; END IF; END $$;"
    )
}

pub(crate) fn with_database(url: &str, database: &str) -> String {
    let (start, query) = url.split_once('?').unwrap_or((url, ""));
    let (server, _) = start.rsplit_once('/').unwrap();
    format!("{server}/{database}?{query}")
}

pub(crate) fn with_user_and_database(url: &str, user: &str, database: &str) -> String {
    let url = with_database(url, database);
    let (scheme, rest) = url.split_once("://").unwrap();
    let (_, host) = rest.split_once('@').unwrap();
    format!("{scheme}://{user}@{host}")
}

/// A brain in a database of its own, and the ledger of one server.
pub(crate) struct TeamUnderTest {
    pub(crate) ledger: TeamLedger,
    pub(crate) store: TeamStore,
    pub(crate) brain: BrainId,
    pub(crate) database: TestDatabase,
}

impl TeamUnderTest {
    pub(crate) fn new() -> Option<Self> {
        Self::with_connections(8)
    }

    pub(crate) fn with_connections(connections_max: u32) -> Option<Self> {
        let database = TestDatabase::new()?;
        let store = database.store(connections_max);
        let brain = create_brain(&store, "one");
        let server = store.register_server("host-1", "0.0.0").unwrap();
        let ledger = TeamLedger::new(store.clone(), brain, server, LEASE);
        Some(Self { ledger, store, brain, database })
    }

    /// The ledger of another server on the same brain.
    pub(crate) fn other_server(&self, lease: Duration) -> TeamLedger {
        let server = self.store.register_server("host-2", "0.0.0").unwrap();
        TeamLedger::new(self.store.clone(), self.brain, server, lease)
    }
}

impl LedgerUnderTest for TeamUnderTest {
    fn ledger(&self) -> &dyn Ledger {
        &self.ledger
    }

    fn add(&self, session: &str, stage: Stage) -> i64 {
        let id = accept(&self.ledger, session, fastrand::u64(..)).id;
        let brain = self.store.brain(self.brain);
        let sql = "UPDATE jobs SET stage = $2 WHERE id = $1";
        brain.write(|transaction| transaction.execute(sql, &[&id, &stage.as_str()])).unwrap();
        id
    }

    fn forget(&self, id: i64) {
        self.ledger.forget(id).unwrap();
    }
}

pub(crate) fn create_brain(store: &TeamStore, slug: &str) -> BrainId {
    let brain = NewBrain {
        slug,
        remote: "https://git.example.org/brain.git",
        default_branch: Some("main"),
        model: "m",
        dimensions: 384,
    };
    store.create_brain(&brain, "test").unwrap()
}

/// Hands over a capture without lines, under a key made from the number.
pub(crate) fn accept(ledger: &TeamLedger, session: &str, number: u64) -> Accepted {
    accept_lines(ledger, session, number, &[])
}

pub(crate) fn accept_lines(ledger: &TeamLedger, session: &str, number: u64, lines: &[String]) -> Accepted {
    try_accept(ledger, session, number, lines).unwrap()
}

pub(crate) fn try_accept(
    ledger: &TeamLedger,
    session: &str,
    number: u64,
    lines: &[String],
) -> team::Result<Accepted> {
    ledger.accept(&NewCapture {
        key: key(number),
        session: &SessionId::verbatim(session),
        project: Some("payments"),
        ended: None,
        lines,
        body: b"",
        subject: "alice",
        origin: "hook",
    })
}

pub(crate) fn key(number: u64) -> [u8; 32] {
    *blake3::hash(&number.to_le_bytes()).as_bytes()
}
