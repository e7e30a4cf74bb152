//! Reading one pinned generation.

use std::sync::Arc;

use knowledge::{UnitId, UnitType};
use rusqlite::{OptionalExtension as _, Params, Row};

use crate::error::Error;
use crate::filter::Filter;
use crate::generation::{Generation, ModelLabel};
use crate::hnsw::Graph;
use crate::records::{
    ChunkRecord, ChunkRow, Edge, Hit, Problem, UnitRecord, WithNeighbours, best_hits, chunk_record,
    unit_record,
};
use crate::store::{self, Pooled, Store};
use crate::vectors::{self, Vectors};
use crate::{full_text, schema, token_vectors};

/// One whole generation: a connection in a read transaction, and the generation's vectors.
pub struct Snapshot {
    store: Arc<Store>,
    connection: Pooled,
    /// `None` before the first generation.
    generation: Option<Generation>,
    vectors: Arc<Vectors>,
    filter: Option<Filter>,
}

/// Whether a snapshot reads the vectors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vectored {
    Yes,
    No,
}

impl Snapshot {
    pub(crate) fn new(store: Arc<Store>, vectored: Vectored) -> Result<Self, Error> {
        let snapshot = store::retry_while_replaced(store.folder(), || {
            let connection = store.reader()?;
            Self::open(Arc::clone(&store), connection, vectored)
        });
        match snapshot {
            // A builder was killed before it had created the tables. Until the next one creates them, the index is
            // empty.
            Err(Error::Sqlite { source, .. }) if schema::has_no_tables(&source) => {
                let connection = store.empty()?;
                Self::open(store, connection, vectored)
            }
            snapshot => snapshot,
        }
    }

    fn open(store: Arc<Store>, connection: Pooled, vectored: Vectored) -> Result<Self, Error> {
        // From here on `drop` ends the transaction if something fails below.
        let vectors = Arc::new(Vectors::empty(String::new()));
        let mut snapshot = Self { connection, generation: None, vectors, filter: None, store };
        snapshot.sql(snapshot.connection.execute_batch("BEGIN"))?;
        snapshot.generation = snapshot.sql(Generation::read(&snapshot.connection))?;
        if let Some(generation) = snapshot.generation.as_ref().filter(|_| vectored == Vectored::Yes) {
            snapshot.vectors = snapshot.vectors_of(generation)?;
        }
        Ok(snapshot)
    }

    /// The generation's number; 0 before the first.
    pub fn generation(&self) -> u64 {
        self.generation.as_ref().map_or(0, |generation| generation.number)
    }

    /// Identifies the generation; numbers start again after the index was deleted.
    pub fn key(&self) -> String {
        self.generation.as_ref().map_or_else(String::new, Generation::key)
    }

    /// The model of the vectors; `None` before the first generation.
    pub fn model(&self) -> Option<&ModelLabel> {
        self.generation.as_ref().map(|generation| &generation.model)
    }

    /// Restricts searches, counts and neighbours to these chunks; `None` for all. Chunks and units that are requested
    /// by row or id are returned all the same.
    pub fn restrict(&mut self, filter: Option<Filter>) {
        self.filter = filter;
    }

    /// The chunks of units of these types, for [`restrict`](Self::restrict).
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn filter_of_kinds(&self, kinds: &[UnitType]) -> Result<Filter, Error> {
        let sql =
            "SELECT chunks.row FROM chunks JOIN units ON units.id = chunks.unit_id WHERE units.type = ?1";
        let count = "SELECT count(*) FROM units WHERE type = ?1";
        let (mut rows, mut units) = (Vec::new(), 0);
        for kind in kinds {
            rows.extend(self.all(sql, [kind.as_str()], |row| Ok(ChunkRow(row.get(0)?)))?);
            units += self.all(count, [kind.as_str()], |row| row.get::<_, usize>(0))?.iter().sum::<usize>();
        }
        let mut filter: Filter = rows.into_iter().collect();
        filter.units = Some(units);
        Ok(filter)
    }

    /// Whether the restriction, if there is one, lets a chunk in.
    pub fn admits(&self, chunk: ChunkRow) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.admits(chunk))
    }

    /// The number of chunks that the filter admits.
    pub fn chunks_count(&self) -> usize {
        let chunks = self.generation.as_ref().map_or(0, |generation| generation.chunks);
        self.filter.as_ref().map_or(chunks, Filter::len)
    }

    /// The number of units; of a filter by types, the number of theirs.
    pub fn units_count(&self) -> usize {
        let units = self.generation.as_ref().map_or(0, |generation| generation.units);
        self.filter.as_ref().and_then(|filter| filter.units).unwrap_or(units)
    }

    /// Finds the chunks that contain any of the terms, best first, at most `limit`.
    ///
    /// The score is FTS5's BM25 (k1 = 1.2, b = 0.75), positive. A term may be any text and is never read as an
    /// operator; an identifier matches in all ways of writing (`parseConfig`, `parse_config`).
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn bm25(&self, terms: &[String], limit: usize) -> Result<Vec<Hit>, Error> {
        let Some(query) = full_text::any_of(terms) else { return Ok(Vec::new()) };
        let sql = "SELECT rowid, -bm25(chunks_fts) FROM chunks_fts WHERE chunks_fts MATCH ?1";
        let read = |row: &Row<'_>| Ok(Hit { chunk: ChunkRow(row.get(0)?), score: row.get(1)? });
        let mut hits = self.all(sql, [query], read)?;
        // The filter is not a table, so that a reader need not write: other rows are skipped here.
        hits.retain(|hit| self.admits(hit.chunk));
        Ok(best_hits(hits, limit))
    }

    /// Finds the chunks nearest to the vector, best first, at most `limit`. The score is the cosine.
    ///
    /// The search is exact, except in the largest brains (100,000 chunks and more), where a graph proposes candidates.
    ///
    /// # Errors
    /// If the vector has other dimensions than the index, or is zero or not finite.
    pub fn nearest(&self, vector: &[f32], limit: usize) -> Result<Vec<Hit>, Error> {
        let Some(model) = self.model() else { return Ok(Vec::new()) };
        let query = vectors::normalised(vector, model.dimensions)?;
        let filter = self.filter.as_ref();
        let admits = |row| filter.is_none_or(|filter| filter.admits(ChunkRow(row)));
        // A graph proposes the nearest of all chunks, of which the filter may admit few.
        let graph = if filter.is_some() { None } else { self.graph()? };
        let Some(graph) = graph else { return Ok(self.vectors.scan(&query, limit, i64::MIN, admits)) };
        let mut hits = self.vectors.scan(&query, limit, graph.row_max, admits);
        hits.extend(graph.candidates(&query, limit)?.into_iter().filter_map(|row| {
            let chunk = ChunkRow(row);
            self.vectors.similarity(chunk, &query).map(|score| Hit { chunk, score })
        }));
        Ok(best_hits(hits, limit))
    }

    /// A chunk's vector: `[dimensions]` f32, L2-normalised to within f16's precision.
    pub fn vector(&self, chunk: ChunkRow) -> Option<Vec<f32>> {
        self.vectors.vector(chunk)
    }

    /// The vectors of a chunk's tokens as its [`Embedding::tokens`](knowledge::Embedding::tokens); empty if its model has
    /// none, or there is no such chunk.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn token_vectors(&self, chunk: ChunkRow) -> Result<Vec<u8>, Error> {
        self.sql(token_vectors::read(&self.connection, chunk))
    }

    /// The cosine of a chunk with an L2-normalised vector; `None` if this generation has no such chunk or other
    /// dimensions.
    pub fn similarity(&self, chunk: ChunkRow, vector: &[f32]) -> Option<f64> {
        self.vectors.similarity(chunk, vector)
    }

    /// Reads a chunk.
    ///
    /// # Errors
    /// If this generation has no such chunk.
    pub fn chunk(&self, chunk: ChunkRow) -> Result<ChunkRecord, Error> {
        let sql = "SELECT row, unit_id, position, heading_level, heading_breadcrumb, text, tokens
                   FROM chunks WHERE row = ?1";
        self.all(sql, [chunk.0], chunk_record)?.pop().ok_or(Error::NoSuchChunk { row: chunk.0 })
    }

    /// Reads several chunks, in the requested order.
    ///
    /// # Errors
    /// If this generation lacks one of them.
    pub fn chunks(&self, chunks: &[ChunkRow]) -> Result<Vec<ChunkRecord>, Error> {
        chunks.iter().map(|chunk| self.chunk(*chunk)).collect()
    }

    /// Reads several chunks with their [`Snapshot::neighbours`], in the requested order.
    ///
    /// # Errors
    /// If this generation lacks one of them.
    pub fn chunks_with_neighbours(&self, chunks: &[ChunkRow]) -> Result<Vec<WithNeighbours>, Error> {
        let sql = "SELECT row, unit_id, position, heading_level, heading_breadcrumb, text, tokens,
                       (SELECT near.row FROM chunks AS near
                        WHERE near.unit_id = this.unit_id AND near.position = this.position - 1),
                       (SELECT near.row FROM chunks AS near
                        WHERE near.unit_id = this.unit_id AND near.position = this.position + 1)
                   FROM chunks AS this WHERE row = ?1";
        let read = || -> rusqlite::Result<Vec<Option<WithNeighbours>>> {
            let mut statement = self.connection.prepare_cached(sql)?;
            let mut one = |chunk: &ChunkRow| {
                let found = statement.query_row([chunk.0], |row| {
                    let near: [Option<i64>; 2] = [row.get(7)?, row.get(8)?];
                    let near = near.into_iter().flatten().map(ChunkRow).filter(|row| self.admits(*row));
                    Ok((chunk_record(row)?, near.collect()))
                });
                found.optional()
            };
            chunks.iter().map(&mut one).collect()
        };
        let found = self.sql(read())?;
        let there = |(found, chunk): (Option<_>, &ChunkRow)| found.ok_or(Error::NoSuchChunk { row: chunk.0 });
        found.into_iter().zip(chunks).map(there).collect()
    }

    /// A unit's chunks, in order; empty for an unknown unit.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn chunks_of(&self, unit: &UnitId) -> Result<Vec<ChunkRecord>, Error> {
        let sql = "SELECT row, unit_id, position, heading_level, heading_breadcrumb, text, tokens
                   FROM chunks WHERE unit_id = ?1 ORDER BY position";
        let mut chunks = self.all(sql, [unit.as_str()], chunk_record)?;
        chunks.retain(|chunk| self.admits(chunk.row));
        Ok(chunks)
    }

    /// The chunks before and after a chunk in its unit.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn neighbours(&self, chunk: ChunkRow) -> Result<Vec<ChunkRow>, Error> {
        let sql = "SELECT near.row FROM chunks AS this
                   JOIN chunks AS near ON near.unit_id = this.unit_id
                       AND near.position IN (this.position - 1, this.position + 1)
                   WHERE this.row = ?1 ORDER BY near.position";
        let mut near = self.all(sql, [chunk.0], |row| row.get(0).map(ChunkRow))?;
        near.retain(|row| self.admits(*row));
        Ok(near)
    }

    /// The number of chunks that contain the term, as [`Snapshot::bm25`] finds them: stemmed, and with identifiers in
    /// all ways of writing.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn document_frequency(&self, term: &str) -> Result<u64, Error> {
        let Some(query) = full_text::any_of(&[term.to_owned()]) else { return Ok(0) };
        if self.filter.is_some() {
            let sql = "SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ?1";
            let rows = self.all(sql, [query], |row| row.get(0).map(ChunkRow))?;
            return Ok(rows.into_iter().filter(|row| self.admits(*row)).count() as u64);
        }
        if let Some(known) = self.store.cached_frequencies().get(&self.key(), &query) {
            return Ok(known);
        }
        let sql = "SELECT count(*) FROM chunks_fts WHERE chunks_fts MATCH ?1";
        let count = self.all(sql, [&query], |row| row.get(0))?.pop().unwrap_or(0);
        self.store.cached_frequencies().put(&self.key(), query, count);
        Ok(count)
    }

    /// A unit's relations in both directions: first those that it states, then those that others state about it.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn related(&self, unit: &UnitId) -> Result<Vec<Edge>, Error> {
        let sql = "SELECT target_id, relation_type, 1 FROM relationships
                       JOIN units ON units.id = target_id WHERE source_id = ?1
                   UNION ALL
                   SELECT source_id, relation_type, 0 FROM relationships WHERE target_id = ?1
                   ORDER BY 3 DESC, 1, 2";
        self.all(sql, [unit.as_str()], |row| {
            let relation: String = row.get(1)?;
            Ok(Edge {
                other: UnitId::verbatim(row.get::<_, String>(0)?),
                relation: relation.as_str().into(),
                outgoing: row.get(2)?,
            })
        })
    }

    /// A unit by its id; `None` if it is not in the index.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn unit(&self, unit: &UnitId) -> Result<Option<UnitRecord>, Error> {
        Ok(self.all(UNIT_BY_ID, [unit.as_str()], unit_record)?.pop())
    }

    /// All units, by id.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn units(&self) -> Result<Vec<UnitRecord>, Error> {
        self.all(UNITS, [], unit_record)
    }

    /// The files that are not in the index, by path.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn problems(&self) -> Result<Vec<Problem>, Error> {
        let sql = "SELECT path, problem_line, problem FROM files WHERE problem IS NOT NULL ORDER BY path";
        self.all(sql, [], |row| Ok(Problem { path: row.get(0)?, line: row.get(1)?, what: row.get(2)? }))
    }

    fn all<T, P: Params>(
        &self,
        sql: &str,
        params: P,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Error> {
        let rows = self
            .connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_map(params, read)?.collect::<rusqlite::Result<_>>());
        self.sql(rows)
    }

    fn sql<T>(&self, result: rusqlite::Result<T>) -> Result<T, Error> {
        result.map_err(self.store.sqlite())
    }

    /// The generation's vectors, from the cache if it holds those of this generation.
    fn vectors_of(&self, generation: &Generation) -> Result<Arc<Vectors>, Error> {
        let key = generation.key();
        let mut cached = self.store.cached_vectors();
        if let Some(vectors) = cached.as_ref().filter(|vectors| vectors.key == key) {
            return Ok(vectors.clone());
        }
        let vectors = Vectors::read(&self.connection, key, &generation.model, cached.as_deref());
        let vectors = Arc::new(self.sql(vectors)?);
        if vectors.len() != generation.chunks {
            self.store.mark_damaged();
        }
        *cached = Some(vectors.clone());
        Ok(vectors)
    }

    /// The vector graph; `None` if there are too few chunks for one, or it is missing or damaged.
    fn graph(&self) -> Result<Option<Arc<Graph>>, Error> {
        if self.vectors.len() < self.store.limits.graph {
            return Ok(None);
        }
        let hash = self.all("SELECT hash FROM graph", [], |row| row.get::<_, String>(0))?.pop();
        let Some(hash) = hash else { return Ok(None) };
        let mut cached = self.store.cached_graph();
        match cached.as_ref() {
            Some((known, graph)) if *known == hash => Ok(graph.clone()),
            _ => {
                let graph = self.sql(Graph::read(&self.connection, self.vectors.dimensions()))?.map(Arc::new);
                if graph.is_none() {
                    tracing::warn!("the vector graph is damaged");
                }
                *cached = Some((hash, graph.clone()));
                Ok(graph)
            }
        }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::warn!(%error, "failed to end a read transaction");
        }
    }
}

const UNITS: &str =
    "SELECT id, units.path, title, type, domain, tags, confidence, source, description, status,
    created, last_modified, name FROM units LEFT JOIN reviewers ON reviewers.path = units.path ORDER BY id";
pub(crate) const UNIT_BY_ID: &str =
    "SELECT id, units.path, title, type, domain, tags, confidence, source, description, status,
    created, last_modified, name FROM units LEFT JOIN reviewers ON reviewers.path = units.path WHERE id = ?1";
