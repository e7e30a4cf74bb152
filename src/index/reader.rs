//! What a search needs of one generation of an index, whichever database holds it.

use knowledge::UnitId;

use crate::error::Error;
use crate::generation::ModelLabel;
use crate::records::{ChunkRecord, ChunkRow, Edge, Hit, UnitRecord, WithNeighbours};
use crate::snapshot::Snapshot;

/// One whole generation of an index. What each method returns is said at the method of [`Snapshot`] with its name.
///
/// Where each look-up is a round trip to another machine, a search first says what it is about to look up (`prefetch_…`):
/// all of it comes in one, and the look-ups that follow are answered from it.
#[expect(clippy::missing_errors_doc, reason = "each fails if the index cannot be read")]
pub trait Reader {
    /// See [`Snapshot::generation`].
    fn generation(&self) -> u64;
    /// See [`Snapshot::key`].
    fn key(&self) -> String;
    /// See [`Snapshot::model`].
    fn model(&self) -> Option<&ModelLabel>;
    /// See [`Snapshot::admits`].
    fn admits(&self, chunk: ChunkRow) -> bool;
    /// See [`Snapshot::chunks_count`].
    fn chunks_count(&self) -> usize;
    /// See [`Snapshot::units_count`].
    fn units_count(&self) -> usize;
    /// See [`Snapshot::bm25`].
    fn bm25(&self, terms: &[String], limit: usize) -> Result<Vec<Hit>, Error>;
    /// See [`Snapshot::nearest`].
    fn nearest(&self, vector: &[f32], limit: usize) -> Result<Vec<Hit>, Error>;
    /// See [`Snapshot::vector`].
    fn vector(&self, chunk: ChunkRow) -> Option<Vec<f32>>;
    /// See [`Snapshot::token_vectors`].
    fn token_vectors(&self, chunk: ChunkRow) -> Result<Vec<u8>, Error>;
    /// See [`Snapshot::similarity`].
    fn similarity(&self, chunk: ChunkRow, vector: &[f32]) -> Option<f64>;
    /// See [`Snapshot::chunk`].
    fn chunk(&self, chunk: ChunkRow) -> Result<ChunkRecord, Error>;
    /// See [`Snapshot::chunks_with_neighbours`].
    fn chunks_with_neighbours(&self, chunks: &[ChunkRow]) -> Result<Vec<WithNeighbours>, Error>;
    /// See [`Snapshot::chunks_of`].
    fn chunks_of(&self, unit: &UnitId) -> Result<Vec<ChunkRecord>, Error>;
    /// See [`Snapshot::neighbours`].
    fn neighbours(&self, chunk: ChunkRow) -> Result<Vec<ChunkRow>, Error>;
    /// See [`Snapshot::document_frequency`].
    fn document_frequency(&self, term: &str) -> Result<u64, Error>;
    /// See [`Snapshot::related`].
    fn related(&self, unit: &UnitId) -> Result<Vec<Edge>, Error>;
    /// See [`Snapshot::unit`].
    fn unit(&self, unit: &UnitId) -> Result<Option<UnitRecord>, Error>;

    /// The frequencies of these terms are about to be read.
    fn prefetch_frequencies(&self, _terms: &[String]) -> Result<(), Error> {
        Ok(())
    }

    /// These chunks, the numbers of their neighbours, the vectors of both and the chunks' units are about to be read.
    fn prefetch_chunks(&self, _chunks: &[ChunkRow]) -> Result<(), Error> {
        Ok(())
    }

    /// The vectors of these chunks' tokens are about to be read.
    fn prefetch_token_vectors(&self, _chunks: &[ChunkRow]) -> Result<(), Error> {
        Ok(())
    }

    /// The relations of these units are about to be read.
    fn prefetch_relations(&self, _units: &[UnitId]) -> Result<(), Error> {
        Ok(())
    }

    /// These units, their chunks and the chunks' vectors are about to be read.
    fn prefetch_units(&self, _units: &[UnitId]) -> Result<(), Error> {
        Ok(())
    }
}

impl Reader for Snapshot {
    fn generation(&self) -> u64 {
        self.generation()
    }

    fn key(&self) -> String {
        self.key()
    }

    fn model(&self) -> Option<&ModelLabel> {
        self.model()
    }

    fn admits(&self, chunk: ChunkRow) -> bool {
        self.admits(chunk)
    }

    fn chunks_count(&self) -> usize {
        self.chunks_count()
    }

    fn units_count(&self) -> usize {
        self.units_count()
    }

    fn bm25(&self, terms: &[String], limit: usize) -> Result<Vec<Hit>, Error> {
        self.bm25(terms, limit)
    }

    fn nearest(&self, vector: &[f32], limit: usize) -> Result<Vec<Hit>, Error> {
        self.nearest(vector, limit)
    }

    fn vector(&self, chunk: ChunkRow) -> Option<Vec<f32>> {
        self.vector(chunk)
    }

    fn token_vectors(&self, chunk: ChunkRow) -> Result<Vec<u8>, Error> {
        self.token_vectors(chunk)
    }

    fn similarity(&self, chunk: ChunkRow, vector: &[f32]) -> Option<f64> {
        self.similarity(chunk, vector)
    }

    fn chunk(&self, chunk: ChunkRow) -> Result<ChunkRecord, Error> {
        self.chunk(chunk)
    }

    fn chunks_with_neighbours(&self, chunks: &[ChunkRow]) -> Result<Vec<WithNeighbours>, Error> {
        self.chunks_with_neighbours(chunks)
    }

    fn chunks_of(&self, unit: &UnitId) -> Result<Vec<ChunkRecord>, Error> {
        self.chunks_of(unit)
    }

    fn neighbours(&self, chunk: ChunkRow) -> Result<Vec<ChunkRow>, Error> {
        self.neighbours(chunk)
    }

    fn document_frequency(&self, term: &str) -> Result<u64, Error> {
        self.document_frequency(term)
    }

    fn related(&self, unit: &UnitId) -> Result<Vec<Edge>, Error> {
        self.related(unit)
    }

    fn unit(&self, unit: &UnitId) -> Result<Option<UnitRecord>, Error> {
        self.unit(unit)
    }
}
