//! A database of a test's own, in which brains can be made.

use std::ops::{Deref, DerefMut};

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

    /// A connection that sees everything.
    pub(crate) fn connect(&self) -> Client {
        self.database.superuser()
    }

    pub(crate) fn new_brain(&self) -> i32 {
        let BrainId(id) = support::create_brain(&self.store, &format!("brain-{}", fastrand::u64(..)));
        id
    }
}

/// A transaction in the scope of a brain, rolled back unless it is committed.
pub(crate) struct Scope<'c> {
    client: &'c mut Client,
    is_open: bool,
}

pub(crate) fn scope(client: &mut Client, brain: i32) -> Scope<'_> {
    let begin = format!("BEGIN; SET LOCAL ROLE nugget_server; SET LOCAL nugget.brains = '{brain}'");
    client.batch_execute(&begin).unwrap();
    Scope { client, is_open: true }
}

impl Scope<'_> {
    pub(crate) fn commit(mut self) -> Result<(), postgres::Error> {
        self.is_open = false;
        self.client.batch_execute("COMMIT")
    }
}

impl Deref for Scope<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client
    }
}

impl DerefMut for Scope<'_> {
    fn deref_mut(&mut self) -> &mut Client {
        self.client
    }
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        if self.is_open {
            let _ = self.client.batch_execute("ROLLBACK");
        }
    }
}
