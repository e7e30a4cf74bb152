//! What is published: one generation of a local index.

use index::{ChunkRecord, Edge, ModelLabel, Problem, Snapshot, UnitRecord};
use knowledge::UnitId;

/// The dimensions of the vectors that are searched by a graph in large brains; those of the built-in model.
pub const GRAPH_DIMENSIONS: usize = 384;
/// The most dimensions of a vector; pgvector's limit.
pub const DIMENSIONS_MAX: usize = 16_000;

/// The table with the vectors of a model.
pub(crate) fn vectors_table(dimensions: usize) -> &'static str {
    if dimensions == GRAPH_DIMENSIONS { "vectors" } else { "other_vectors" }
}

/// One whole generation of a local index, as it is published.
#[expect(clippy::missing_errors_doc, reason = "each fails if the local index cannot be read")]
pub trait Source {
    /// The model of the vectors; `None` before the first generation.
    fn model(&self) -> Option<&ModelLabel>;
    /// All units, each with the digest of everything that is published of it.
    fn digests(&self) -> Result<Vec<(UnitId, UnitDigest)>, index::Error>;
    /// A unit with its chunks; `None` if there is no such unit.
    fn unit(&self, unit: &UnitId) -> Result<Option<SourceUnit>, index::Error>;
    /// The embedding of a chunk of [`SourceUnit::chunks`].
    fn embedding(&self, chunk: &ChunkRecord) -> Result<SourceEmbedding, index::Error>;
    /// The files that are not in the index.
    fn problems(&self) -> Result<Vec<Problem>, index::Error>;
}

/// The BLAKE3 digest of a unit's fields, its relations and its chunks' texts.
pub type UnitDigest = [u8; 32];

/// A unit as it is published.
#[derive(Clone, Debug)]
pub struct SourceUnit {
    /// Its fields.
    pub record: UnitRecord,
    /// Its chunks in their order. Their rows are the source's own.
    pub chunks: Vec<ChunkRecord>,
    /// The relations that it states to units that exist.
    pub relations: Vec<Edge>,
}

/// The vectors of a chunk.
#[derive(Clone, Debug)]
pub struct SourceEmbedding {
    /// `[dimensions]`, L2-normalised; each number is one of f16.
    pub vector: Vec<f32>,
    /// As [`Snapshot::token_vectors`]; empty if the model has none.
    pub tokens: Vec<u8>,
}

impl SourceUnit {
    /// See [`UnitDigest`].
    pub fn digest(&self) -> UnitDigest {
        let mut hasher = blake3::Hasher::new();
        let mut add = |field: &[u8]| {
            hasher.update(&(field.len() as u64).to_le_bytes()).update(field);
        };
        add(format!("{:?}", self.record).as_bytes());
        for Edge { other, relation, .. } in &self.relations {
            add(other.as_str().as_bytes());
            add(relation.as_str().as_bytes());
        }
        for ChunkRecord { level, breadcrumb, text, tokens, .. } in &self.chunks {
            add(&[*level]);
            add(breadcrumb.as_bytes());
            add(text.as_bytes());
            add(&tokens.to_le_bytes());
        }
        *hasher.finalize().as_bytes()
    }
}

/// A snapshot with vectors ([`index::Index::pin`]) and without a filter.
impl Source for Snapshot {
    fn model(&self) -> Option<&ModelLabel> {
        self.model()
    }

    fn digests(&self) -> Result<Vec<(UnitId, UnitDigest)>, index::Error> {
        let digest = |record: UnitRecord| {
            let id = record.id.clone();
            Ok((id, with_chunks(self, record)?.digest()))
        };
        self.units()?.into_iter().map(digest).collect()
    }

    fn unit(&self, unit: &UnitId) -> Result<Option<SourceUnit>, index::Error> {
        self.unit(unit)?.map(|record| with_chunks(self, record)).transpose()
    }

    fn embedding(&self, chunk: &ChunkRecord) -> Result<SourceEmbedding, index::Error> {
        let vector = self.vector(chunk.row).ok_or(index::Error::NoSuchChunk { row: chunk.row.0 })?;
        Ok(SourceEmbedding { vector, tokens: self.token_vectors(chunk.row)? })
    }

    fn problems(&self) -> Result<Vec<Problem>, index::Error> {
        self.problems()
    }
}

fn with_chunks(snapshot: &Snapshot, record: UnitRecord) -> Result<SourceUnit, index::Error> {
    let chunks = snapshot.chunks_of(&record.id)?;
    let mut relations = snapshot.related(&record.id)?;
    relations.retain(|edge| edge.outgoing);
    Ok(SourceUnit { record, chunks, relations })
}
