//! What a search returns: chunks, units, relations and problems, and how their rows are read.

use jiff::Timestamp;
use knowledge::{Domain, Relation, UnitId, UnitType};
use rusqlite::Row;
use rusqlite::types::FromSql;
use serde::{Deserialize, Serialize};

/// The number of a chunk in the index. It stands for one text and one vector for as long as the
/// database lives, and is never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChunkRow(pub i64);

/// A chunk with its score; higher is better.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hit {
    pub chunk: ChunkRow,
    pub score: f64,
}

/// A piece of a unit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChunkRecord {
    pub row: ChunkRow,
    /// `<unit id>#<position>`.
    pub id: String,
    pub unit: UnitId,
    /// 0 for the first of its unit.
    pub position: u32,
    /// The level of the heading that it begins under; 1 for the text under the title.
    pub level: u8,
    /// The unit's title and the headings above, `Go Concurrency > Worker Pools > Bounded`.
    pub breadcrumb: String,
    /// As it is in the file, without the breadcrumb.
    pub text: String,
    /// Tokens of `text`.
    pub tokens: u32,
}

/// A chunk, and those before and after it in its unit.
pub type WithNeighbours = (ChunkRecord, Vec<ChunkRow>);

/// What the index knows of a unit; its body is in its chunks and its file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UnitRecord {
    pub id: UnitId,
    pub path: String,
    pub title: String,
    #[serde(rename = "type")]
    pub kind: UnitType,
    pub domain: Domain,
    pub tags: Vec<String>,
    pub confidence: f64,
    pub source: String,
    pub description: Option<String>,
    pub status: Option<String>,
    pub created: Option<Timestamp>,
    pub last_modified: Option<Timestamp>,
    /// Who has let its file into the default branch, as [`Index::note_reviewers`](crate::Index::note_reviewers)
    /// was told.
    pub reviewed_by: Option<String>,
}

/// A relation of a unit with another that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Edge {
    pub other: UnitId,
    pub relation: Relation,
    /// Whether it is the unit asked about that states the relation.
    pub outgoing: bool,
}

/// A file that is not in the index, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub path: String,
    /// 1 for the first.
    pub line: usize,
    pub what: String,
}

pub(crate) fn chunk_record(row: &Row<'_>) -> rusqlite::Result<ChunkRecord> {
    let unit: String = row.get(1)?;
    let position: u32 = row.get(2)?;
    Ok(ChunkRecord {
        row: ChunkRow(row.get(0)?),
        id: format!("{unit}#{position}"),
        unit: UnitId::verbatim(unit),
        position,
        level: row.get(3)?,
        breadcrumb: row.get(4)?,
        text: row.get(5)?,
        tokens: row.get(6)?,
    })
}

pub(crate) fn unit_record(row: &Row<'_>) -> rusqlite::Result<UnitRecord> {
    fn text<T: FromSql>(row: &Row<'_>, index: usize) -> rusqlite::Result<T> {
        row.get(index)
    }
    let time = |index| -> rusqlite::Result<Option<Timestamp>> {
        Ok(text::<Option<String>>(row, index)?.and_then(|time| time.parse().ok()))
    };
    Ok(UnitRecord {
        id: UnitId::verbatim(text::<String>(row, 0)?),
        path: row.get(1)?,
        title: row.get(2)?,
        kind: text::<String>(row, 3)?.as_str().into(),
        domain: Domain::verbatim(text::<String>(row, 4)?),
        tags: serde_json::from_str(&text::<String>(row, 5)?).unwrap_or_default(),
        confidence: row.get(6)?,
        source: row.get(7)?,
        description: row.get(8)?,
        status: row.get(9)?,
        created: time(10)?,
        last_modified: time(11)?,
        reviewed_by: row.get(12)?,
    })
}
