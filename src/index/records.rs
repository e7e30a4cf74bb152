//! What a search returns: chunks, units, relations and problems, and how their rows are read.

use jiff::Timestamp;
use knowledge::{Domain, Relation, UnitId, UnitType};
use rusqlite::Row;
use rusqlite::types::FromSql;
use serde::{Deserialize, Serialize};

/// The hash of a chunk's text as it is embedded.
pub(crate) type TextHash = [u8; 16];

/// The row number of a chunk. It stands for one text and one vector as long as the database exists, and is never
/// reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChunkRow(pub i64);

/// A chunk with its score.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hit {
    /// The chunk.
    pub chunk: ChunkRow,
    /// Higher is better.
    pub score: f64,
}

/// The best of these hits, best first, at most `limit`; of equals the earlier chunk comes first.
pub fn best_hits(mut hits: Vec<Hit>, limit: usize) -> Vec<Hit> {
    let by_score = |a: &Hit, b: &Hit| b.score.total_cmp(&a.score).then(a.chunk.cmp(&b.chunk));
    if limit < hits.len() {
        hits.select_nth_unstable_by(limit, by_score);
        hits.truncate(limit);
    }
    hits.sort_unstable_by(by_score);
    hits
}

/// A chunk: a piece of a unit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChunkRecord {
    /// Its row number.
    pub row: ChunkRow,
    /// `<unit id>#<position>`.
    pub id: String,
    /// Its unit.
    pub unit: UnitId,
    /// Its position in the unit, from 0.
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

/// A chunk, and the chunks before and after it in its unit.
pub type WithNeighbours = (ChunkRecord, Vec<ChunkRow>);

/// A unit in the index. Its body is in its chunks and in its file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UnitRecord {
    /// Its id.
    pub id: UnitId,
    /// Its file, relative to the brain.
    pub path: String,
    /// Its title.
    pub title: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: UnitType,
    /// Its domain.
    pub domain: Domain,
    /// Its tags.
    pub tags: Vec<String>,
    /// From 0 to 1.
    pub confidence: f64,
    /// Where it comes from.
    pub source: String,
    /// One sentence.
    pub description: Option<String>,
    /// `superseded`, for one.
    pub status: Option<String>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// When it was last changed.
    pub last_modified: Option<Timestamp>,
    /// Who merged its file into the default branch, from
    /// [`Index::note_reviewers`](crate::Index::note_reviewers).
    pub reviewed_by: Option<String>,
}

/// A relation between a unit and another one that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Edge {
    /// The other unit.
    pub other: UnitId,
    /// How they relate.
    pub relation: Relation,
    /// Whether the requested unit states the relation; otherwise the other one does.
    pub outgoing: bool,
}

/// A file that is not in the index, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file, relative to the brain.
    pub path: String,
    /// The line of the error, from 1.
    pub line: usize,
    /// What is wrong.
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
