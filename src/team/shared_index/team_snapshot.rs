//! Reading one generation of a shared index.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ops::DerefMut;
use std::time::{Duration, Instant};

use index::{ChunkRecord, ChunkRow, Edge, Hit, ModelLabel, Reader, UnitRecord, WithNeighbours};
use knowledge::UnitId;
use postgres::types::{ToSql, Type};
use postgres::{Client, Row, SimpleQueryMessage, SimpleQueryRow};

use crate::shared_index::error::Error;
use crate::shared_index::lists::{Damaged, Depth, ListRow, Phrase, ReadLists, Totals, depths};
use crate::shared_index::prefetched::{
    Prefetched, UNIT_COLUMNS, UNIT_COLUMNS_COUNT, half_vector, inner_product, unit_record,
};
use crate::shared_index::source::{GRAPH_DIMENSIONS, vectors_table};
use crate::shared_index::words::{Term, Tokenizer};
use index::full_text;

/// Up to so many chunks of a brain all vectors are compared; above, the partition's graph is searched, which only models
/// of [`GRAPH_DIMENSIONS`] have.
pub const EXACT_CHUNKS_MAX: u64 = 8_000;
/// `hnsw.ef_search`: how many candidates a search of the graph keeps.
pub const EF_SEARCH: u32 = 100;
/// So many more chunks than asked for are read and scored exactly with the question's vector in f32, which pgvector
/// rounds to f16.
const RESCORED: usize = 10;
/// The texts of the neighbours of so many of the first chunks are read with them: a search adds these neighbours to its
/// candidates. Of the others only the vectors are read.
const WHOLE_NEIGHBOURS_OF: usize = 16;

/// One whole generation of a brain's shared index: a connection in a read transaction.
///
/// Every look-up of something that no `prefetch_…` has read is a round trip to the database.
pub struct TeamSnapshot<C: DerefMut<Target = Client>> {
    brain: i32,
    generation: u64,
    model: Option<ModelLabel>,
    units: usize,
    totals: Totals,
    client: RefCell<C>,
    round_trips: Cell<usize>,
    waited: Cell<Duration>,
    tokenizer: RefCell<Option<Tokenizer>>,
    /// The phrases of each term that was looked up.
    phrases: RefCell<HashMap<String, Vec<Phrase>>>,
    lists: RefCell<ReadLists>,
    read: RefCell<Prefetched>,
}

type Parameter<'p> = (&'p (dyn ToSql + Sync), Type);

impl<C: DerefMut<Target = Client>> TeamSnapshot<C> {
    /// Begins a read transaction in the brain's scope on a connection that is in none, and pins the newest generation:
    /// one round trip. The transaction ends when the snapshot is dropped.
    ///
    /// # Errors
    /// [`Error::NoSuchBrain`], or if the database fails.
    pub fn open(mut client: C, brain: i32) -> Result<Self, Error> {
        let started = Instant::now();
        let messages = client.simple_query(&opening(brain));
        let row = match messages {
            Ok(messages) => messages.into_iter().find_map(|message| match message {
                SimpleQueryMessage::Row(row) => Some(row),
                _ => None,
            }),
            Err(error) => {
                // The connection may go back to a pool.
                let _ = client.batch_execute("ROLLBACK");
                return Err(error.into());
            }
        };
        let Some(row) = row else {
            client.batch_execute("ROLLBACK")?;
            return Err(Error::NoSuchBrain { brain });
        };
        let generation = number(&row, 0);
        let model = row
            .get(1)
            .filter(|_| generation > 0)
            .map(|name| ModelLabel { name: name.to_owned(), dimensions: number(&row, 2) as usize });
        Ok(Self {
            brain,
            generation,
            model,
            units: number(&row, 5) as usize,
            totals: Totals { chunks: number(&row, 3), words: number(&row, 4) },
            client: RefCell::new(client),
            round_trips: Cell::new(1),
            waited: Cell::new(started.elapsed()),
            tokenizer: RefCell::default(),
            phrases: RefCell::default(),
            lists: RefCell::default(),
            read: RefCell::default(),
        })
    }

    /// How many round trips to the database were made, without the one that ends the transaction.
    pub fn round_trips(&self) -> usize {
        self.round_trips.get()
    }

    /// How long these round trips took together.
    pub fn waited(&self) -> Duration {
        self.waited.get()
    }

    fn vectors_table(&self) -> &'static str {
        vectors_table(self.model.as_ref().map_or(GRAPH_DIMENSIONS, |model| model.dimensions))
    }

    /// Runs a statement in one round trip. It is planned for its parameters each time, so that the partition of the brain
    /// is known and the vector graph can be used. The result has built-in types only: those of others would be looked up.
    fn query(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
        let started = Instant::now();
        let rows = self.client.borrow_mut().query_typed(sql, parameters);
        self.round_trips.set(self.round_trips.get() + 1);
        self.waited.set(self.waited.get() + started.elapsed());
        Ok(rows?)
    }

    fn damaged(&self, Damaged: Damaged) -> Error {
        Error::DamagedList { brain: self.brain }
    }

    /// The phrases that searches for these terms look for: for each term its own, as words.
    fn phrases_of(&self, terms: &[String]) -> Result<Vec<Vec<Phrase>>, Error> {
        let mut known = self.phrases.borrow_mut();
        let new: HashSet<&String> = terms.iter().filter(|term| !known.contains_key(*term)).collect();
        let new: Vec<(&String, Vec<String>)> =
            new.into_iter().map(|term| (term, full_text::phrases(std::slice::from_ref(term)))).collect();
        let texts: Vec<String> = new.iter().flat_map(|(_, texts)| texts.iter().cloned()).collect();
        let mut words = self.words_of(&texts)?.into_iter();
        for (term, texts) in new {
            known.insert(term.clone(), words.by_ref().take(texts.len()).collect());
        }
        Ok(terms.iter().map(|term| known.get(term).cloned().unwrap_or_default()).collect())
    }

    fn words_of(&self, phrases: &[String]) -> Result<Vec<Phrase>, Error> {
        if phrases.is_empty() {
            return Ok(Vec::new());
        }
        let mut tokenizer = self.tokenizer.borrow_mut();
        let tokenizer = match &mut *tokenizer {
            Some(tokenizer) => tokenizer,
            none => none.insert(Tokenizer::new()?),
        };
        Ok(tokenizer.words_of_phrases(phrases)?)
    }

    /// Reads what is missing of the lists of these words: one round trip, or none.
    fn read_lists(&self, wanted: &HashMap<Term, Depth>) -> Result<(), Error> {
        let missing = self.lists.borrow().missing(wanted);
        if missing.is_empty() {
            return Ok(());
        }
        let at_least = |depth| -> Vec<&[u8]> {
            missing.iter().filter(|(_, of)| **of >= depth).map(|(term, _)| term.as_slice()).collect()
        };
        let (all, chunks, places) =
            (at_least(Depth::Holding), at_least(Depth::Chunks), at_least(Depth::Places));
        let rows = self.query(
            LISTS,
            &[
                (&self.brain, Type::INT4),
                (&all, Type::BYTEA_ARRAY),
                (&chunks, Type::BYTEA_ARRAY),
                (&places, Type::BYTEA_ARRAY),
            ],
        )?;
        let row = |row: &Row| {
            Ok(ListRow {
                term: row.try_get(0)?,
                bucket: row.try_get(1)?,
                holding: u64::from(row.try_get::<_, i32>(2)?.unsigned_abs()),
                body: row.try_get(3)?,
                places: row.try_get(4)?,
            })
        };
        let rows = rows.iter().map(row).collect::<Result<Vec<_>, postgres::Error>>()?;
        self.lists.borrow_mut().add(missing, rows);
        Ok(())
    }

    fn best_by_words(&self, terms: &[String], limit: usize) -> Result<Vec<Hit>, Error> {
        // The phrases of all terms together, of which there is a limit and each is once.
        let phrases = self.words_of(&full_text::phrases(terms))?;
        self.read_lists(&depths(&phrases, Depth::Chunks))?;
        self.lists.borrow().best(&phrases, self.totals, limit).map_err(|damaged| self.damaged(damaged))
    }

    fn holding(&self, term: &str) -> Result<u64, Error> {
        let phrases = self.phrases_of(&[term.to_owned()])?.pop().unwrap_or_default();
        self.read_lists(&counted(&phrases))?;
        self.lists.borrow().holding_any(&phrases).map_err(|damaged| self.damaged(damaged))
    }

    fn nearest_to(&self, vector: &[f32], limit: usize) -> Result<Vec<Hit>, Error> {
        let vector = vector.to_vec();
        let has_graph = vector.len() == GRAPH_DIMENSIONS;
        let sql = nearest_sql(self.vectors_table(), has_graph && self.totals.chunks > EXACT_CHUNKS_MAX);
        let count = i64::try_from(limit + RESCORED).unwrap_or(i64::MAX);
        let parameters: [Parameter<'_>; 3] =
            [(&self.brain, Type::INT4), (&vector, Type::FLOAT4_ARRAY), (&count, Type::INT8)];
        let mut hits = Vec::new();
        let mut read = self.read.borrow_mut();
        for row in self.query(&sql, &parameters)? {
            let (number, sent): (i64, &[u8]) = (row.try_get(0)?, row.try_get(1)?);
            let found = half_vector(sent);
            hits.push(Hit { chunk: ChunkRow(number), score: inner_product(&vector, &found) });
            read.put_vector(number, found);
        }
        hits.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.chunk.cmp(&b.chunk)));
        hits.truncate(limit);
        Ok(hits)
    }

    /// Reads the chunks, their neighbours and the vectors of both: one round trip, or none.
    fn read_chunks(&self, chunks: &[ChunkRow]) -> Result<(), Error> {
        let mut read = self.read.borrow_mut();
        let missing = |chunk: &&ChunkRow| !read.has_surroundings(**chunk);
        let all: Vec<i64> = chunks.iter().filter(missing).map(|chunk| chunk.0).collect();
        if all.is_empty() {
            return Ok(());
        }
        let first: Vec<i64> = chunks
            .iter()
            .take(WHOLE_NEIGHBOURS_OF)
            .map(|chunk| chunk.0)
            .filter(|row| all.contains(row))
            .collect();
        let parameters: [Parameter<'_>; 3] =
            [(&self.brain, Type::INT4), (&all, Type::INT8_ARRAY), (&first, Type::INT8_ARRAY)];
        for row in self.query(&surroundings(self.vectors_table()), &parameters)? {
            put_chunk(&mut read, &row)?;
        }
        Ok(())
    }

    /// Reads units with all of their chunks and the chunks' vectors: one round trip, or none.
    fn read_units(&self, units: &[UnitId]) -> Result<(), Error> {
        let mut read = self.read.borrow_mut();
        let missing: Vec<&UnitId> = units.iter().filter(|unit| read.chunks_of(unit).is_none()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let ids: Vec<&str> = missing.iter().map(|unit| unit.as_str()).collect();
        let parameters: [Parameter<'_>; 2] = [(&self.brain, Type::INT4), (&ids, Type::TEXT_ARRAY)];
        let rows = self.query(&whole_units(self.vectors_table()), &parameters)?;
        for unit in &missing {
            read.put_unit(unit, None);
            read.whole.insert((*unit).clone());
        }
        for row in rows {
            put_chunk(&mut read, &row)?;
        }
        Ok(())
    }

    fn read_relations(&self, units: &[UnitId]) -> Result<(), Error> {
        let mut read = self.read.borrow_mut();
        let missing: Vec<&UnitId> = units.iter().filter(|unit| !read.relations.contains_key(*unit)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let ids: Vec<&str> = missing.iter().map(|unit| unit.as_str()).collect();
        let parameters: [Parameter<'_>; 2] = [(&self.brain, Type::INT4), (&ids, Type::TEXT_ARRAY)];
        let rows = self.query(RELATIONS, &parameters)?;
        for unit in missing {
            read.relations.insert(unit.clone(), Vec::new());
        }
        for row in rows {
            let other = UnitId::verbatim(row.try_get::<_, String>(1)?);
            let edge = Edge { other, relation: row.try_get::<_, &str>(2)?.into(), outgoing: row.try_get(3)? };
            read.relations.entry(UnitId::verbatim(row.try_get::<_, String>(0)?)).or_default().push(edge);
        }
        for edges in read.relations.values_mut() {
            edges.sort_by(|a, b| {
                let relations = a.relation.as_str().cmp(b.relation.as_str());
                b.outgoing.cmp(&a.outgoing).then_with(|| a.other.cmp(&b.other)).then(relations)
            });
        }
        Ok(())
    }

    fn read_token_vectors(&self, chunks: &[ChunkRow]) -> Result<(), Error> {
        let mut read = self.read.borrow_mut();
        let missing = chunks.iter().filter(|chunk| !read.token_vectors.contains_key(&chunk.0));
        let missing: Vec<i64> = missing.map(|chunk| chunk.0).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let rows = self.query(TOKEN_VECTORS, &[(&self.brain, Type::INT4), (&missing, Type::INT8_ARRAY)])?;
        read.token_vectors.extend(missing.into_iter().map(|row| (row, Vec::new())));
        for row in rows {
            read.token_vectors.insert(row.try_get(0)?, row.try_get(1)?);
        }
        Ok(())
    }

    /// What `get` finds of a chunk's vector, which is read if it is missing. A database that fails here is logged: these
    /// look-ups have no error, and without a vector a chunk is not similar to anything.
    fn with_vector<T>(&self, chunk: ChunkRow, get: impl Fn(&[half::f16]) -> T) -> Option<T> {
        if self.read.borrow().vector(chunk).is_none()
            && let Err(error) = self.read_chunks(&[chunk])
        {
            tracing::warn!(%error, brain = self.brain, "failed to read a vector");
        }
        self.read.borrow().vector(chunk).map(get)
    }

    fn chunk_record(&self, chunk: ChunkRow) -> Result<ChunkRecord, index::Error> {
        if !self.read.borrow().chunks.contains_key(&chunk.0) {
            self.read_chunks(&[chunk])?;
        }
        let read = self.read.borrow();
        read.chunks.get(&chunk.0).cloned().ok_or(index::Error::NoSuchChunk { row: chunk.0 })
    }
}

impl<C: DerefMut<Target = Client>> Reader for TeamSnapshot<C> {
    fn generation(&self) -> u64 {
        self.generation
    }

    fn key(&self) -> String {
        format!("{} {}", self.brain, self.generation)
    }

    fn model(&self) -> Option<&ModelLabel> {
        self.model.as_ref()
    }

    fn admits(&self, _chunk: ChunkRow) -> bool {
        true
    }

    fn chunks_count(&self) -> usize {
        self.totals.chunks as usize
    }

    fn units_count(&self) -> usize {
        self.units
    }

    fn bm25(&self, terms: &[String], limit: usize) -> Result<Vec<Hit>, index::Error> {
        Ok(self.best_by_words(terms, limit)?)
    }

    fn nearest(&self, vector: &[f32], limit: usize) -> Result<Vec<Hit>, index::Error> {
        let Some(model) = &self.model else { return Ok(Vec::new()) };
        if vector.len() != model.dimensions {
            return Err(index::Error::Dimensions { wanted: model.dimensions, given: vector.len() });
        }
        let norm = vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        if !norm.is_finite() || norm < 1e-12 {
            return Err(index::Error::NotAVector);
        }
        let normalised: Vec<f32> = vector.iter().map(|x| (f64::from(*x) / norm) as f32).collect();
        Ok(self.nearest_to(&normalised, limit)?)
    }

    fn vector(&self, chunk: ChunkRow) -> Option<Vec<f32>> {
        use half::slice::HalfFloatSliceExt as _;
        self.with_vector(chunk, |vector| vector.to_f32_vec())
    }

    fn token_vectors(&self, chunk: ChunkRow) -> Result<Vec<u8>, index::Error> {
        self.read_token_vectors(&[chunk])?;
        Ok(self.read.borrow().token_vectors.get(&chunk.0).cloned().unwrap_or_default())
    }

    fn similarity(&self, chunk: ChunkRow, vector: &[f32]) -> Option<f64> {
        let product = |of: &[half::f16]| (of.len() == vector.len()).then(|| inner_product(vector, of));
        self.with_vector(chunk, product).flatten()
    }

    fn chunk(&self, chunk: ChunkRow) -> Result<ChunkRecord, index::Error> {
        self.chunk_record(chunk)
    }

    fn chunks_with_neighbours(&self, chunks: &[ChunkRow]) -> Result<Vec<WithNeighbours>, index::Error> {
        self.read_chunks(chunks)?;
        chunks.iter().map(|chunk| Ok((self.chunk_record(*chunk)?, self.neighbours(*chunk)?))).collect()
    }

    fn chunks_of(&self, unit: &UnitId) -> Result<Vec<ChunkRecord>, index::Error> {
        self.read_units(std::slice::from_ref(unit))?;
        Ok(self.read.borrow().chunks_of(unit).unwrap_or_default())
    }

    fn neighbours(&self, chunk: ChunkRow) -> Result<Vec<ChunkRow>, index::Error> {
        if self.read.borrow().neighbours(chunk).is_none() {
            self.read_chunks(&[chunk])?;
        }
        Ok(self.read.borrow().neighbours(chunk).unwrap_or_default())
    }

    fn document_frequency(&self, term: &str) -> Result<u64, index::Error> {
        Ok(self.holding(term)?)
    }

    fn related(&self, unit: &UnitId) -> Result<Vec<Edge>, index::Error> {
        self.read_relations(std::slice::from_ref(unit))?;
        Ok(self.read.borrow().relations.get(unit).cloned().unwrap_or_default())
    }

    fn unit(&self, unit: &UnitId) -> Result<Option<UnitRecord>, index::Error> {
        if !self.read.borrow().knows_unit(unit) {
            self.read_units(std::slice::from_ref(unit))?;
        }
        Ok(self.read.borrow().unit(unit).cloned())
    }

    fn prefetch_frequencies(&self, terms: &[String]) -> Result<(), index::Error> {
        let mut wanted: HashMap<Term, Depth> = HashMap::new();
        for phrases in self.phrases_of(terms)? {
            for (term, depth) in counted(&phrases) {
                let known = wanted.entry(term).or_insert(depth);
                *known = depth.max(*known);
            }
        }
        Ok(self.read_lists(&wanted)?)
    }

    fn prefetch_chunks(&self, chunks: &[ChunkRow]) -> Result<(), index::Error> {
        Ok(self.read_chunks(chunks)?)
    }

    fn prefetch_token_vectors(&self, chunks: &[ChunkRow]) -> Result<(), index::Error> {
        Ok(self.read_token_vectors(chunks)?)
    }

    fn prefetch_relations(&self, units: &[UnitId]) -> Result<(), index::Error> {
        Ok(self.read_relations(units)?)
    }

    fn prefetch_units(&self, units: &[UnitId]) -> Result<(), index::Error> {
        Ok(self.read_units(units)?)
    }
}

impl<C: DerefMut<Target = Client>> Drop for TeamSnapshot<C> {
    fn drop(&mut self) {
        if let Err(error) = self.client.get_mut().batch_execute("ROLLBACK") {
            tracing::warn!(%error, "failed to end a read transaction");
        }
    }
}

/// How deep the words of one term's phrases have to be read to count the chunks that hold any.
fn counted(phrases: &[Phrase]) -> HashMap<Term, Depth> {
    let single = if phrases.len() == 1 { Depth::Holding } else { Depth::Chunks };
    depths(phrases, single)
}

/// Every statement of a question looks up a few rows by their keys, or walks the vector graph. The planner's estimates for
/// arrays and policies are rough, and a wrong one reads the whole brain: so it is told.
fn opening(brain: i32) -> String {
    format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL ROLE nugget_server;
        SET LOCAL nugget.brains = '{brain}';
        SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off;
        SET LOCAL enable_sort = off; SET LOCAL jit = off; SET LOCAL max_parallel_workers_per_gather = 0;
        SET LOCAL hnsw.iterative_scan = relaxed_order; SET LOCAL hnsw.ef_search = {EF_SEARCH};
        SELECT generation, model, dimensions, chunks, words, units FROM brains WHERE id = {brain}"
    )
}

/// Chunks by their rows (`$2`) with the chunks beside them, two on each side for the rows of `$3`; the text of one only if
/// nothing lies between, and the unit only beside a chunk that was asked for.
///
/// `LIMIT` and `OFFSET` keep each look-up as it is written, one key at a time, whatever the planner expects of arrays.
fn surroundings(vectors: &str) -> String {
    format!(
        "WITH asked AS (
            SELECT c.unit, c.position, CASE WHEN key.row = ANY ($3) THEN 2 ELSE 1 END AS reach
            FROM unnest($2::bigint[]) AS key(row) CROSS JOIN LATERAL (
                SELECT unit, position FROM chunks WHERE brain = $1 AND row = key.row LIMIT 1) c),
        near AS MATERIALIZED (
            SELECT unit, position + step AS position, bool_or(abs(step) < reach) AS with_text, bool_or(step = 0) AS is_asked
            FROM asked, generate_series(-reach, reach) AS step GROUP BY 1, 2)
        SELECT near.unit, {UNIT_COLUMNS}, c.row, c.position, c.level, c.breadcrumb,
            CASE WHEN near.with_text THEN c.text END, c.tokens, halfvec_send(v.embedding)
        FROM near
            CROSS JOIN LATERAL (
                SELECT * FROM chunks WHERE brain = $1 AND unit = near.unit AND position = near.position LIMIT 1) c
            CROSS JOIN LATERAL (SELECT embedding FROM {vectors} WHERE brain = $1 AND row = c.row LIMIT 1) v
            LEFT JOIN LATERAL (SELECT * FROM units WHERE brain = $1 AND id = near.unit AND near.is_asked LIMIT 1) u ON true"
    )
}

/// Units by their ids (`$2`) with all of their chunks.
fn whole_units(vectors: &str) -> String {
    format!(
        "SELECT key.id, {UNIT_COLUMNS}, c.row, c.position, c.level, c.breadcrumb, c.text, c.tokens,
            halfvec_send(v.embedding)
        FROM unnest($2::text[]) AS key(id)
            CROSS JOIN LATERAL (SELECT * FROM units WHERE brain = $1 AND id = key.id LIMIT 1) u
            LEFT JOIN LATERAL (SELECT * FROM chunks WHERE brain = $1 AND unit = key.id OFFSET 0) c ON true
            LEFT JOIN LATERAL (SELECT embedding FROM {vectors} WHERE brain = $1 AND row = c.row LIMIT 1) v ON true"
    )
}

/// The relations of units (`$2`), both ways.
const RELATIONS: &str = "SELECT e.* FROM unnest($2::text[]) AS key(id) CROSS JOIN LATERAL (
        SELECT source, target, relation, true FROM relations WHERE brain = $1 AND source = key.id OFFSET 0) e
    UNION ALL
    SELECT e.* FROM unnest($2::text[]) AS key(id) CROSS JOIN LATERAL (
        SELECT target, source, relation, false FROM relations WHERE brain = $1 AND target = key.id OFFSET 0) e";

const TOKEN_VECTORS: &str = "SELECT row, data FROM token_vectors WHERE brain = $1 AND row = ANY ($2)";

/// The lists of the words of `$2`, with the chunks of those of `$3` and the places of those of `$4`.
const LISTS: &str = "SELECT term, bucket, holding, CASE WHEN term = ANY ($3) THEN body END,
        CASE WHEN term = ANY ($4) THEN places END
    FROM postings WHERE brain = $1 AND term = ANY ($2)";

/// The nearest vectors, by the graph or by comparing all of the brain.
///
/// In relaxed order a later part of the walk may find nearer ones than an earlier part: all are sorted here anyway, and
/// in strict order they would be dropped. What is sent is made of the found vectors alone: in one SELECT it would be made of
/// all that are compared.
fn nearest_sql(vectors: &str, by_graph: bool) -> String {
    // The sum is no expression of the graph's index.
    let sum = if by_graph { "" } else { " + 0" };
    format!(
        "SELECT row, halfvec_send(embedding) FROM (
            SELECT row, embedding FROM {vectors} WHERE brain = $1
            ORDER BY (embedding <#> $2::real[]::halfvec){sum} LIMIT $3) AS found"
    )
}

fn number(row: &SimpleQueryRow, column: usize) -> u64 {
    row.get(column).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Takes a row of a unit's id, of [`UNIT_COLUMNS`] and of a chunk. The unit or the chunk may be missing.
fn put_chunk(read: &mut Prefetched, row: &Row) -> Result<(), Error> {
    let at = |column: usize| UNIT_COLUMNS_COUNT + column;
    let unit = UnitId::verbatim(row.try_get::<_, String>(0)?);
    if row.try_get::<_, Option<i32>>(1)?.is_some() && read.unit(&unit).is_none() {
        read.put_unit(&unit, Some(unit_record(row)?));
    }
    let Some(number) = row.try_get::<_, Option<i64>>(at(0))? else { return Ok(()) };
    let position = row.try_get::<_, i32>(at(1))?.unsigned_abs();
    read.put_position(number, &unit, position);
    if let Some(sent) = row.try_get(at(6))? {
        read.put_vector(number, half_vector(sent));
    }
    let Some(text) = row.try_get(at(4))? else { return Ok(()) };
    let record = ChunkRecord {
        row: ChunkRow(number),
        id: format!("{}#{position}", unit.as_str()),
        unit,
        position,
        level: u8::try_from(row.try_get::<_, i16>(at(2))?).unwrap_or(u8::MAX),
        breadcrumb: row.try_get(at(3))?,
        text,
        tokens: row.try_get::<_, i32>(at(5))?.unsigned_abs(),
    };
    read.chunks.insert(number, record);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared_index::test_database::TestDatabase;

    fn nearest_plan(client: &mut Client, brain: i32, sql: &str) -> String {
        let vector = vec![0.1_f32; 384];
        let parameters: [Parameter<'_>; 2] = [(&vector, Type::FLOAT4_ARRAY), (&10_i64, Type::INT8)];
        plan(client, brain, sql, &parameters)
    }

    fn plan(client: &mut Client, brain: i32, sql: &str, parameters: &[Parameter<'_>]) -> String {
        client.batch_execute(&opening(brain)).unwrap();
        let mut all: Vec<Parameter<'_>> = vec![(&brain, Type::INT4)];
        all.extend(parameters.iter().cloned());
        let rows = client.query_typed(&format!("EXPLAIN {sql}"), &all).unwrap();
        client.batch_execute("ROLLBACK").unwrap();
        rows.iter().map(|row| format!("{}\n", row.get::<_, &str>(0))).collect()
    }

    #[test]
    fn a_search_walks_the_graph_of_one_partition() {
        let Some(database) = TestDatabase::new() else { return };
        let (brain, mut client) = (database.new_brain(), database.connect());
        let load = "INSERT INTO vectors SELECT brain, row, (SELECT array_agg(random()) FROM generate_series(1, 384)
            WHERE row = row)::real[]::halfvec(384) FROM generate_series(1, 3) brain, generate_series(1, 300) row";
        client.batch_execute(load).unwrap();
        for analysed in ["", "ANALYZE vectors"] {
            client.batch_execute(analysed).unwrap();
            let graph = nearest_plan(&mut client, brain, &nearest_sql("vectors", true));
            let partitions = graph.matches(" on vectors").count();
            assert!(graph.contains("_graph") && partitions == 1 && !graph.contains("Sort"), "{graph}");
            let exact = nearest_plan(&mut client, brain, &nearest_sql("vectors", false));
            assert!(!exact.contains("_graph") && exact.matches(" on vectors").count() >= 1, "{exact}");
            assert!(!exact.contains("Append"), "{exact}");
        }
    }

    #[test]
    fn a_look_up_reads_no_other_rows_where_there_are_many_brains() {
        let Some(database) = TestDatabase::new() else { return };
        let (brain, mut client) = (database.new_brain(), database.connect());
        client
            .batch_execute(
                "CREATE TEMP TABLE made AS
                    SELECT brain, row FROM generate_series(1, 30) brain, generate_series(1, 1000) row;
                INSERT INTO units SELECT brain, 'u' || row, '', 1, '', '', '', '', '{}', 1, '' FROM made;
                INSERT INTO chunks SELECT brain, row, 'u' || row, 0, 1, '', '', 1 FROM made;
                INSERT INTO relations SELECT brain, 'u' || row, 'u' || row % 7, 'uses' FROM made;
                INSERT INTO token_vectors SELECT brain, row, '' FROM made;
                INSERT INTO postings SELECT brain, ('w' || row)::bytea, 0, 1, '', '' FROM made;
                INSERT INTO vectors SELECT brain, row, array_fill(0.1, ARRAY[384])::real[]::halfvec(384) FROM made
                    WHERE row < 10;
                ANALYZE",
            )
            .unwrap();
        let (rows, ids): (Vec<i64>, Vec<String>) = (1..=20).map(|row| (row, format!("u{row}"))).unzip();
        let words: Vec<&[u8]> = vec![b"w1", b"w2", b"w3"];
        let by_rows: [Parameter<'_>; 2] = [(&rows, Type::INT8_ARRAY), (&rows, Type::INT8_ARRAY)];
        let by_ids: [Parameter<'_>; 1] = [(&ids, Type::TEXT_ARRAY)];
        let by_words: Vec<Parameter<'_>> = vec![(&words, Type::BYTEA_ARRAY); 3];
        for (sql, parameters) in [
            (surroundings("vectors").as_str(), &by_rows[..]),
            (whole_units("vectors").as_str(), &by_ids[..]),
            (RELATIONS, &by_ids[..]),
            (TOKEN_VECTORS, &by_rows[..1]),
            (LISTS, &by_words[..]),
        ] {
            let plan = plan(&mut client, brain, sql, parameters);
            let filters = plan.lines().filter(|line| line.contains("Filter:"));
            // A filter that is evaluated once reads no row.
            let of_rows = filters.filter(|line| !line.contains("One-Time Filter"));
            let others: Vec<&str> = of_rows.filter(|line| !line.contains("Filter: CASE")).collect();
            assert!(others.is_empty() && !plan.contains("Seq Scan"), "{plan}");
        }
    }

    #[test]
    fn the_token_vectors_of_a_chunk_lie_in_its_row() {
        let Some(database) = TestDatabase::new() else { return };
        let (brain, mut client) = (database.new_brain(), database.connect());
        let insert =
            "INSERT INTO token_vectors SELECT $1, $2::int, decode(repeat('ab', $2::int * 32), 'hex')";
        let mut size_elsewhere = |tokens: i32| -> i64 {
            client.execute(insert, &[&brain, &tokens]).unwrap();
            let sql =
                "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = 'token_vectors'::regclass";
            client.query_one(sql, &[]).unwrap().get(0)
        };
        assert_eq!(size_elsewhere(250), 0);
        assert!(size_elsewhere(300) > 0, "not seen");
    }
}
