//! A database of a test's own, in which brains can be made.

use postgres::Client;
use team::{BrainId, TeamStore};

use crate::support;

pub(crate) struct TestDatabase {
    database: support::TestDatabase,
    store: TeamStore,
}

impl TestDatabase {
    /// `None` where no PostgreSQL is found.
    pub(crate) fn new() -> Option<Self> {
        let database = support::TestDatabase::new()?;
        let store = database.store(4);
        Some(Self { database, store })
    }

    pub(crate) fn store(&self) -> &TeamStore {
        &self.store
    }

    /// A connection that sees everything.
    pub(crate) fn connect(&self) -> Client {
        self.database.superuser()
    }

    pub(crate) fn new_brain(&self) -> i32 {
        let BrainId(id) = support::create_brain(&self.store, &format!("brain-{}", fastrand::u64(..)));
        id
    }
}

/// Begins a transaction in the scope of a brain.
pub(crate) fn begin(client: &mut Client, brain: i32) {
    let begin = format!("BEGIN; SET LOCAL ROLE nugget_server; SET LOCAL nugget.brains = '{brain}'");
    client.batch_execute(&begin).unwrap();
}
