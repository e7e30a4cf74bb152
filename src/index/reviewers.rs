//! Who reviewed each file, from the brain's history.

use rusqlite::{OptionalExtension as _, TransactionBehavior, params};

use crate::error::Error;
use crate::store::{BuilderLock, Store};

pub(crate) fn commit(store: &Store) -> Result<Option<String>, Error> {
    let connection = store.reader()?;
    let commit = connection.query_row("SELECT commit_name FROM reviewed", [], |row| row.get(0)).optional();
    commit.map_err(store.sqlite())
}

pub(crate) fn note<'p>(
    store: &Store,
    commit: &str,
    is_whole: bool,
    by_path: impl IntoIterator<Item = (&'p str, Option<&'p str>)>,
) -> Result<bool, Error> {
    let Some(lock) = BuilderLock::try_take(store.folder())? else { return Ok(false) };
    let mut connection = store.writer(&lock)?;
    let write = || -> rusqlite::Result<()> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if is_whole {
            transaction.execute("DELETE FROM reviewers", [])?;
        }
        for (path, name) in by_path {
            match name {
                Some(name) => transaction
                    .prepare_cached("INSERT OR REPLACE INTO reviewers (path, name) VALUES (?1, ?2)")?
                    .execute(params![path, name])?,
                None => transaction
                    .prepare_cached("DELETE FROM reviewers WHERE path = ?1")?
                    .execute(params![path])?,
            };
        }
        transaction.execute("INSERT OR REPLACE INTO reviewed (id, commit_name) VALUES (1, ?1)", [commit])?;
        transaction.commit()
    };
    write().map_err(store.sqlite())?;
    Ok(true)
}
