//! What was read of a generation, so that nothing is read twice for a question.

use std::collections::{HashMap, HashSet};

use half::f16;
use half::slice::HalfFloatSliceExt as _;
use index::{ChunkRecord, ChunkRow, Edge, UnitRecord};
use jiff::Timestamp;
use knowledge::{Domain, UnitId};
use postgres::Row;

/// What was read, by chunk row and by unit.
#[derive(Default)]
pub(crate) struct Prefetched {
    /// Chunks with their texts.
    pub(crate) chunks: HashMap<i64, ChunkRecord>,
    /// The unit and position of each chunk, also of those whose texts were not read.
    positions: HashMap<i64, (UnitId, u32)>,
    rows: HashMap<(UnitId, u32), i64>,
    vectors: HashMap<i64, Vec<f16>>,
    /// Each unit with the number of its chunks; `None` for one that does not exist.
    units: HashMap<UnitId, Option<(UnitRecord, u32)>>,
    /// The units all of whose chunks were read.
    pub(crate) whole: HashSet<UnitId>,
    pub(crate) relations: HashMap<UnitId, Vec<Edge>>,
    pub(crate) token_vectors: HashMap<i64, Vec<u8>>,
}

impl Prefetched {
    pub(crate) fn put_vector(&mut self, row: i64, vector: Vec<f16>) {
        self.vectors.insert(row, vector);
    }

    pub(crate) fn vector(&self, row: ChunkRow) -> Option<&[f16]> {
        self.vectors.get(&row.0).map(Vec::as_slice)
    }

    pub(crate) fn put_position(&mut self, row: i64, unit: &UnitId, position: u32) {
        self.positions.insert(row, (unit.clone(), position));
        self.rows.insert((unit.clone(), position), row);
    }

    pub(crate) fn put_unit(&mut self, unit: &UnitId, found: Option<(UnitRecord, u32)>) {
        self.units.insert(unit.clone(), found);
    }

    pub(crate) fn knows_unit(&self, unit: &UnitId) -> bool {
        self.units.contains_key(unit)
    }

    pub(crate) fn unit(&self, unit: &UnitId) -> Option<&UnitRecord> {
        self.units.get(unit)?.as_ref().map(|(record, _)| record)
    }

    /// The chunks before and after; `None` if they are not all known.
    pub(crate) fn neighbours(&self, row: ChunkRow) -> Option<Vec<ChunkRow>> {
        let (unit, position) = self.positions.get(&row.0)?;
        let chunks = self.units.get(unit)?.as_ref().map_or(0, |(_, chunks)| *chunks);
        let near = [position.checked_sub(1), position.checked_add(1)].into_iter().flatten();
        let near = near.filter(|near| *near < chunks);
        near.map(|near| self.rows.get(&(unit.clone(), near)).copied().map(ChunkRow)).collect()
    }

    /// Whether a chunk, its neighbours and the vectors of all are known.
    pub(crate) fn has_surroundings(&self, row: ChunkRow) -> bool {
        let has_vectors =
            |near: Vec<ChunkRow>| near.iter().chain([&row]).all(|row| self.vectors.contains_key(&row.0));
        self.chunks.contains_key(&row.0) && self.neighbours(row).is_some_and(has_vectors)
    }

    /// All chunks of a unit in their order; `None` if they were not all read.
    pub(crate) fn chunks_of(&self, unit: &UnitId) -> Option<Vec<ChunkRecord>> {
        if let Some(None) = self.units.get(unit) {
            return Some(Vec::new());
        }
        if !self.whole.contains(unit) {
            return None;
        }
        let chunks = self.units.get(unit)?.as_ref().map_or(0, |(_, chunks)| *chunks);
        let row = |position| self.rows.get(&(unit.clone(), position));
        (0..chunks).map(|position| self.chunks.get(row(position)?).cloned()).collect()
    }
}

/// The columns that [`unit_record`] reads after the unit's id, of a table `u`.
pub(crate) const UNIT_COLUMNS: &str =
    "u.chunks, u.path, u.title, u.type, u.domain, u.tags, u.confidence, u.source,
    u.description, u.status, u.created, u.last_modified, u.reviewed_by";
/// With the id.
pub(crate) const UNIT_COLUMNS_COUNT: usize = 14;

/// Reads a unit and the number of its chunks from its id and [`UNIT_COLUMNS`].
pub(crate) fn unit_record(row: &Row) -> Result<(UnitRecord, u32), postgres::Error> {
    let time = |at| -> Result<Option<Timestamp>, postgres::Error> {
        Ok(row.try_get::<_, Option<&str>>(at)?.and_then(|time| time.parse().ok()))
    };
    let record = UnitRecord {
        id: UnitId::verbatim(row.try_get::<_, String>(0)?),
        path: row.try_get(2)?,
        title: row.try_get(3)?,
        kind: row.try_get::<_, &str>(4)?.into(),
        domain: Domain::verbatim(row.try_get::<_, String>(5)?),
        tags: row.try_get(6)?,
        confidence: row.try_get(7)?,
        source: row.try_get(8)?,
        description: row.try_get(9)?,
        status: row.try_get(10)?,
        created: time(11)?,
        last_modified: time(12)?,
        reviewed_by: row.try_get(13)?,
    };
    Ok((record, row.try_get::<_, i32>(1)?.unsigned_abs()))
}

/// Reads what pgvector's `halfvec_send` writes: the number of dimensions and an unused number, 16 bits each, then the
/// numbers, all with the highest byte first.
pub(crate) fn half_vector(sent: &[u8]) -> Vec<f16> {
    let numbers = sent.get(4..).unwrap_or_default();
    numbers.as_chunks::<2>().0.iter().map(|pair| f16::from_be_bytes(*pair)).collect()
}

/// The inner product of a query and a stored vector.
pub(crate) fn inner_product(query: &[f32], vector: &[f16]) -> f64 {
    const LANES: usize = 16;
    let wide = vector.to_f32_vec();
    let mut sums = [0.0_f32; LANES];
    let ((query, query_rest), (wide, wide_rest)) = (query.as_chunks::<LANES>(), wide.as_chunks::<LANES>());
    for (a, b) in query.iter().zip(wide) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = query_rest.iter().zip(wide_rest).map(|(a, b)| a * b).sum();
    f64::from(sums.iter().sum::<f32>() + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sent_vector_is_read() {
        let sent = [0, 2, 0, 0, 0x3c, 0x00, 0xb8, 0x00];
        assert_eq!(half_vector(&sent), [f16::from_f32(1.0), f16::from_f32(-0.5)]);
        assert!(half_vector(&[0]).is_empty());
    }
}
