//! The row that names the published generation.

use rusqlite::{Connection, OptionalExtension as _, params};
use serde::{Deserialize, Serialize};

/// The model that vectors come from. Vectors of different models cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelLabel {
    /// The model's name, with its version.
    pub name: String,
    /// The length of its vectors.
    pub dimensions: usize,
}

/// A published state of the index.
pub(crate) struct Generation {
    pub(crate) number: u64,
    pub(crate) model: ModelLabel,
    /// The version of the chunking rules.
    pub(crate) rules: u32,
    pub(crate) units: usize,
    pub(crate) chunks: usize,
    /// When it was published. Numbers start again with a new database, so the number and this time together
    /// identify a generation.
    pub(crate) built: String,
}

impl Generation {
    /// Identifies the generation among those of all databases that were in its folder.
    pub(crate) fn key(&self) -> String {
        format!("{} {}", self.number, self.built)
    }

    /// `None` before the first generation.
    pub(crate) fn read(connection: &Connection) -> rusqlite::Result<Option<Self>> {
        connection
            .prepare_cached("SELECT number, model, dimensions, rules, units, chunks, built FROM generation")?
            .query_row([], |row| {
                Ok(Self {
                    number: row.get(0)?,
                    model: ModelLabel { name: row.get(1)?, dimensions: row.get(2)? },
                    rules: row.get(3)?,
                    units: row.get(4)?,
                    chunks: row.get(5)?,
                    built: row.get(6)?,
                })
            })
            .optional()
    }

    /// Replaces the row.
    pub(crate) fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        let Self { number, model, rules, units, chunks, built } = self;
        connection
            .execute(
                "INSERT OR REPLACE INTO generation VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![number, model.name, model.dimensions, rules, units, chunks, built],
            )
            .map(drop)
    }
}
