//! The triggers of units: on which actions they bear.

use guard::Trigger;
use knowledge::unit::{is_retired, is_unreviewed};
use knowledge::{Enforce, Unit, UnitId};
use rusqlite::{Connection, Transaction, params};

/// A trigger of a unit, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundTrigger {
    /// The unit.
    pub unit: UnitId,
    /// What it bears on.
    pub trigger: Trigger,
    /// Whether the first such action of a session is refused.
    pub is_held: bool,
    /// From when on the unit should no longer be relied on.
    pub stale_after: Option<jiff::Timestamp>,
}

/// The key of the units that a repository's name is in the scope of. No action has it.
pub(crate) fn repository_key(repository: &str) -> String {
    format!("repository {}", repository.trim_end_matches('/').trim_end_matches(".git").to_lowercase())
}

/// The key of the units that have a file or folder of this name in their scope, of any type. No action has it.
pub(crate) fn file_key(name: &str) -> String {
    format!("file {name}")
}

pub(crate) fn insert(transaction: &Transaction<'_>, unit: &Unit) -> rusqlite::Result<()> {
    let status = unit.status.as_deref();
    for (position, scope) in unit.scope.iter().enumerate().filter(|_| !status.is_some_and(is_retired)) {
        let repository = scope.repository.as_deref().map(repository_key);
        // What nobody has reviewed is not told of a file.
        let path = scope.path.as_deref().filter(|_| !status.is_some_and(is_unreviewed));
        let name = path.and_then(|path| path.trim_end_matches('/').split('/').next_back());
        for key in repository.into_iter().chain(name.map(file_key)) {
            transaction
                .prepare_cached("INSERT INTO triggers VALUES (?1, ?2, ?3, '{}', 0, NULL)")?
                .execute(params![key, unit.id.as_str(), position])?;
        }
    }
    for (position, trigger) in guard::triggers_of(unit).iter().enumerate() {
        let Ok(text) = serde_json::to_string(trigger) else { continue };
        for key in trigger.keys() {
            transaction.prepare_cached("INSERT INTO triggers VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?.execute(
                params![
                    key,
                    unit.id.as_str(),
                    position,
                    text,
                    unit.enforce == Some(Enforce::Hold),
                    unit.stale_after.map(|time| time.to_string()),
                ],
            )?;
        }
    }
    Ok(())
}

/// All triggers that an action may match, as JSON with their keys.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<Vec<(String, String)>> {
    keys_and_triggers(connection, "", [])
}

/// The same of these units alone, in the order of keys.
pub(crate) fn of_units<'u>(
    connection: &Connection,
    units: impl Iterator<Item = &'u str>,
) -> rusqlite::Result<Vec<(String, String)>> {
    let units = serde_json::json!(units.collect::<Vec<_>>()).to_string();
    keys_and_triggers(connection, "AND unit_id IN (SELECT value FROM json_each(?1))", [units])
}

fn keys_and_triggers(
    connection: &Connection,
    condition: &str,
    parameters: impl rusqlite::Params,
) -> rusqlite::Result<Vec<(String, String)>> {
    let sql = format!(
        "SELECT DISTINCT key, pattern FROM triggers WHERE pattern <> '{{}}' {condition} ORDER BY key, pattern"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    statement.query_map(parameters, |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// The triggers that are stored under any of the keys.
pub(crate) fn find(connection: &Connection, keys: &[String]) -> rusqlite::Result<Vec<FoundTrigger>> {
    let sql = "SELECT unit_id, pattern, held, stale_after FROM triggers
        WHERE key IN (SELECT value FROM json_each(?1))";
    read(connection, sql, &serde_json::json!(keys).to_string())
}

/// The triggers of a unit.
pub(crate) fn find_of_unit(connection: &Connection, unit: &UnitId) -> rusqlite::Result<Vec<FoundTrigger>> {
    // One may be stored under several keys.
    let sql = "SELECT DISTINCT unit_id, pattern, held, stale_after FROM triggers WHERE unit_id = ?1";
    read(connection, sql, unit.as_str())
}

fn read(connection: &Connection, sql: &str, parameter: &str) -> rusqlite::Result<Vec<FoundTrigger>> {
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([parameter])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        // One that cannot be read bears on nothing.
        let Ok(trigger) = serde_json::from_str(row.get_ref(1)?.as_str()?) else { continue };
        found.push(FoundTrigger {
            unit: UnitId::verbatim(row.get::<_, String>(0)?),
            trigger,
            is_held: row.get(2)?,
            stale_after: row.get::<_, Option<String>>(3)?.and_then(|time| time.parse().ok()),
        });
    }
    Ok(found)
}
