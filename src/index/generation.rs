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
    pub(crate) vectors_file: String,
    pub(crate) vectors_hash: String,
    /// How many chunks the vector file holds.
    pub(crate) packed_chunks: usize,
    /// The last chunk row of the vector file.
    pub(crate) packed_row_max: i64,
    pub(crate) units: usize,
    pub(crate) chunks: usize,
    /// When it was published. Numbers start again with a new database, so the number and this time together
    /// identify a generation.
    pub(crate) built: String,
}

impl Generation {
    /// `None` before the first generation.
    pub(crate) fn read(connection: &Connection) -> rusqlite::Result<Option<Self>> {
        connection
            .prepare_cached(
                "SELECT number, model, dimensions, rules, vectors_file, vectors_hash, packed_chunks,
                        packed_row_max, units, chunks, built FROM generation",
            )?
            .query_row([], |row| {
                Ok(Self {
                    number: row.get(0)?,
                    model: ModelLabel { name: row.get(1)?, dimensions: row.get(2)? },
                    rules: row.get(3)?,
                    vectors_file: row.get(4)?,
                    vectors_hash: row.get(5)?,
                    packed_chunks: row.get(6)?,
                    packed_row_max: row.get(7)?,
                    units: row.get(8)?,
                    chunks: row.get(9)?,
                    built: row.get(10)?,
                })
            })
            .optional()
    }

    /// Replaces the row.
    pub(crate) fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection
            .execute(
                "INSERT OR REPLACE INTO generation(id, number, model, dimensions, rules, vectors_file,
                     vectors_hash, packed_chunks, packed_row_max, units, chunks, built)
                 VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                params![
                    self.number,
                    self.model.name,
                    self.model.dimensions,
                    self.rules,
                    self.vectors_file,
                    self.vectors_hash,
                    self.packed_chunks,
                    self.packed_row_max,
                    self.units,
                    self.chunks,
                    self.built
                ],
            )
            .map(drop)
    }
}
