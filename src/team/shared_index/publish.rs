//! Publishing: writes the difference between a local generation and the published one.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use index::{ChunkRecord, ModelLabel, Problem, UnitRecord};
use knowledge::UnitId;
use postgres::types::{ToSql, Type};
use postgres::{Client, Row};

use crate::shared_index::error::Error;
use crate::shared_index::postings::{self, BUCKET_ROWS, Occurrence, PostingList};
use crate::shared_index::source::{DIMENSIONS_MAX, Source, SourceUnit, UnitDigest, vectors_table};
use crate::shared_index::words::{RULES_VERSION, Term, Tokenizer, WordsOfTexts};
use index::full_text;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Only the units that differ are written.
    Changed,
    /// Everything is deleted and written, as if nothing was published yet.
    Whole,
}

/// What was published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// The generation that readers see after the commit. The one before if there was no difference.
    pub generation: i64,
    /// Units that are new or differ.
    pub units_written: usize,
    /// Units that are gone.
    pub units_removed: usize,
    /// Vectors that were written; those of equal texts of a unit are kept.
    pub vectors_written: usize,
    /// Posting lists that were written.
    pub lists_written: usize,
    /// Whether everything was written: asked for, or because the model or the rules of the words are others, or most rows
    /// were free.
    pub is_whole: bool,
}

/// Units are read in groups of so many.
const GROUP_UNITS: usize = 256;
/// Chunks are written in batches of about so many, so that a bucket of posting lists is mostly written once.
const BATCH_CHUNKS: usize = 4 * BUCKET_ROWS as usize;

/// Writes what differs between a local generation and the published one, and moves the brain to its next generation, all in
/// the caller's transaction, which is to be in the brain's scope and `READ COMMITTED`. Readers keep the generation that they
/// pinned.
///
/// `expected_generation` is the one that the caller knows as published; the row of the brain is locked, so that of two
/// publishers one waits and is then refused. `commit` is the commit that the local generation was built from. Without a
/// difference the generation stays and only the commit is noted.
///
/// # Errors
/// [`Error::OtherGeneration`] if another publisher was first; if the local index or the database fails. The caller then
/// drops the transaction.
pub(crate) fn publish(
    transaction: &mut Client,
    brain: i32,
    source: &dyn Source,
    commit: &str,
    expected_generation: i64,
    mode: Mode,
) -> Result<Published, Error> {
    let model = source.model().ok_or(Error::NoGeneration)?.clone();
    if model.dimensions > DIMENSIONS_MAX {
        return Err(Error::Dimensions { given: model.dimensions });
    }
    let before = BrainRow::lock(transaction, brain)?;
    if before.generation != expected_generation {
        return Err(Error::OtherGeneration { expected: expected_generation, found: before.generation });
    }
    let is_whole = mode == Mode::Whole || !before.can_be_changed(&model);
    let digests = source.digests().map_err(Error::Local)?;
    let mut publisher = Publisher::new(transaction, brain, source, model.dimensions, &before)?;
    if is_whole {
        publisher.clear()?;
    }
    let published = publisher.digests()?;
    let is_new = |(id, digest): &(UnitId, UnitDigest)| {
        published.get(id.as_str()).is_none_or(|of| of.as_slice() != digest.as_slice())
    };
    let written: Vec<(UnitId, UnitDigest)> = digests.iter().filter(|unit| is_new(unit)).cloned().collect();
    let present: BTreeSet<&str> = digests.iter().map(|(id, _)| id.as_str()).collect();
    let removed: Vec<&str> =
        published.keys().map(String::as_str).filter(|id| !present.contains(id)).collect();
    publisher.remove(&removed)?;
    publisher.write(&written)?;
    let has_problems = publisher.write_problems()?;
    let Publisher { transaction, next_row, chunks, words, mut report, .. } = publisher;
    report.units_written = written.len();
    report.units_removed = removed.len();
    report.is_whole = is_whole;
    let is_changed = is_whole || has_problems || !written.is_empty() || !removed.is_empty();
    report.generation = before.generation + i64::from(is_changed);
    transaction.query_typed(
        "UPDATE brains SET generation = $2, served_commit = $3, model = $4, dimensions = $5, units = $6, chunks = $7,
            words = $8, next_row = $9, index_rules = $10 WHERE id = $1",
        &[
            (&brain, Type::INT4),
            (&report.generation, Type::INT8),
            (&commit, Type::TEXT),
            (&model.name, Type::TEXT),
            (&(model.dimensions as i32), Type::INT4),
            (&(digests.len() as i64), Type::INT8),
            (&chunks, Type::INT8),
            (&words, Type::INT8),
            (&next_row, Type::INT8),
            (&RULES_VERSION, Type::INT4),
        ],
    )?;
    Ok(report)
}

fn delete_all(transaction: &mut Client, brain: i32) -> Result<(), Error> {
    for table in
        ["units", "problems", "relations", "chunks", "token_vectors", "postings", "vectors", "other_vectors"]
    {
        let sql = format!("DELETE FROM {table} WHERE brain = $1");
        transaction.query_typed(&sql, &[(&brain, Type::INT4)])?;
    }
    Ok(())
}

/// What `brains` says about the published generation.
struct BrainRow {
    generation: i64,
    model: String,
    dimensions: i32,
    chunks: i64,
    words: i64,
    next_row: i64,
    rules: i32,
}

impl BrainRow {
    fn lock(transaction: &mut Client, brain: i32) -> Result<Self, Error> {
        let sql = "SELECT generation, model, dimensions, chunks, words, next_row, index_rules FROM brains WHERE id = $1
            FOR UPDATE";
        let rows = transaction.query_typed(sql, &[(&brain, Type::INT4)])?;
        let row = rows.first().ok_or(Error::NoSuchBrain { brain })?;
        Ok(Self {
            generation: row.try_get(0)?,
            model: row.try_get(1)?,
            dimensions: row.try_get(2)?,
            chunks: row.try_get(3)?,
            words: row.try_get(4)?,
            next_row: row.try_get(5)?,
            rules: row.try_get(6)?,
        })
    }

    /// Whether a difference can be written. Where most rows are free, the posting lists are short and many.
    /// In generation 0 nothing counts as published, as after a backup was restored with or without its rows.
    fn can_be_changed(&self, model: &ModelLabel) -> bool {
        self.generation > 0
            && self.model == model.name
            && self.dimensions as usize == model.dimensions
            && self.rules == RULES_VERSION
            && self.next_row <= 2 * self.chunks + BUCKET_ROWS
    }
}

struct Publisher<'p> {
    transaction: &'p mut Client,
    brain: i32,
    source: &'p dyn Source,
    vectors_table: &'static str,
    tokenizer: Tokenizer,
    free_rows: BTreeSet<i64>,
    next_row: i64,
    /// Rows from here on have no posting lists yet.
    listed_rows: i64,
    chunks: i64,
    words: i64,
    report: Published,
}

/// A chunk of a published unit.
struct PublishedChunk {
    row: i64,
    breadcrumb: String,
    text: String,
    columns: [String; 3],
}

/// What is written at a time.
#[derive(Default)]
struct Batch {
    units_removed: Vec<String>,
    units: Vec<(UnitDigest, SourceUnit)>,
    /// With their new rows.
    chunks: Vec<ChunkRecord>,
    /// Rows whose vectors are deleted.
    vectors_removed: Vec<i64>,
    vectors: Vec<(i64, Vec<f32>, Vec<u8>)>,
    /// What the posting lists hold and should no longer hold.
    texts_removed: Vec<(i64, [String; 3])>,
    texts: Vec<(i64, [String; 3])>,
}

impl<'p> Publisher<'p> {
    fn new(
        transaction: &'p mut Client,
        brain: i32,
        source: &'p dyn Source,
        dimensions: usize,
        before: &BrainRow,
    ) -> Result<Self, Error> {
        Ok(Self {
            transaction,
            brain,
            source,
            vectors_table: vectors_table(dimensions),
            tokenizer: Tokenizer::new()?,
            free_rows: BTreeSet::new(),
            next_row: before.next_row,
            listed_rows: before.next_row,
            chunks: before.chunks,
            words: before.words,
            report: Published::default(),
        })
    }

    fn clear(&mut self) -> Result<(), Error> {
        delete_all(self.transaction, self.brain)?;
        (self.next_row, self.listed_rows, self.chunks, self.words) = (0, 0, 0, 0);
        Ok(())
    }

    fn query(&mut self, sql: &str, parameters: &[(&(dyn ToSql + Sync), Type)]) -> Result<Vec<Row>, Error> {
        let mut all: Vec<(&(dyn ToSql + Sync), Type)> = vec![(&self.brain, Type::INT4)];
        all.extend(parameters.iter().cloned());
        Ok(self.transaction.query_typed(sql, &all)?)
    }

    fn digests(&mut self) -> Result<HashMap<String, Vec<u8>>, Error> {
        let rows = self.query("SELECT id, digest FROM units WHERE brain = $1", &[])?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    /// The chunks of published units, in their order.
    fn published_chunks(&mut self, units: &[&str]) -> Result<HashMap<String, Vec<PublishedChunk>>, Error> {
        let sql = "SELECT c.unit, c.row, c.breadcrumb, c.text, c.position, u.tags, u.description
            FROM units u JOIN chunks c ON c.brain = $1 AND c.unit = u.id
            WHERE u.brain = $1 AND u.id = ANY ($2) ORDER BY c.unit, c.position";
        let mut found: HashMap<String, Vec<PublishedChunk>> = HashMap::new();
        for row in self.query(sql, &[(&units, Type::TEXT_ARRAY)])? {
            let (breadcrumb, text): (String, String) = (row.try_get(2)?, row.try_get(3)?);
            let position = row.try_get::<_, i32>(4)?.unsigned_abs();
            let (tags, description): (Vec<String>, Option<String>) = (row.try_get(5)?, row.try_get(6)?);
            let columns = full_text::columns(&breadcrumb, &tags, description.as_deref(), position, &text);
            let chunk = PublishedChunk { row: row.try_get(1)?, breadcrumb, text, columns };
            found.entry(row.try_get(0)?).or_default().push(chunk);
        }
        Ok(found)
    }

    /// Deletes units. Their rows become free.
    fn remove(&mut self, units: &[&str]) -> Result<(), Error> {
        for group in units.chunks(GROUP_UNITS) {
            let mut batch = Batch {
                units_removed: group.iter().map(|id| (*id).to_owned()).collect(),
                ..Batch::default()
            };
            for chunk in self.published_chunks(group)?.into_values().flatten() {
                self.release(&mut batch, chunk);
            }
            self.flush(batch)?;
        }
        Ok(())
    }

    fn release(&mut self, batch: &mut Batch, chunk: PublishedChunk) {
        self.free_rows.insert(chunk.row);
        self.chunks -= 1;
        batch.vectors_removed.push(chunk.row);
        batch.texts_removed.push((chunk.row, chunk.columns));
    }

    fn write(&mut self, units: &[(UnitId, UnitDigest)]) -> Result<(), Error> {
        let mut batch = Batch::default();
        for group in units.chunks(GROUP_UNITS) {
            let ids: Vec<&str> = group.iter().map(|(id, _)| id.as_str()).collect();
            let mut published = self.published_chunks(&ids)?;
            for (id, digest) in group {
                let Some(unit) = self.source.unit(id).map_err(Error::Local)? else { continue };
                let before = published.remove(id.as_str()).unwrap_or_default();
                self.add_unit(&mut batch, *digest, without_nul(unit), before)?;
            }
            if batch.chunks.len() >= BATCH_CHUNKS {
                self.flush(std::mem::take(&mut batch))?;
            }
        }
        self.flush(batch)
    }

    /// A chunk with the text of a published one keeps its row and vectors; another takes a free row, first one of its unit.
    fn add_unit(
        &mut self,
        batch: &mut Batch,
        digest: UnitDigest,
        unit: SourceUnit,
        before: Vec<PublishedChunk>,
    ) -> Result<(), Error> {
        let mut kept: HashMap<(String, String), Vec<PublishedChunk>> = HashMap::new();
        for chunk in before.into_iter().rev() {
            kept.entry((chunk.breadcrumb.clone(), chunk.text.clone())).or_default().push(chunk);
        }
        let key = |chunk: &ChunkRecord| (chunk.breadcrumb.clone(), chunk.text.clone());
        let same: Vec<Option<PublishedChunk>> =
            unit.chunks.iter().map(|chunk| kept.get_mut(&key(chunk)).and_then(Vec::pop)).collect();
        kept.into_values().flatten().for_each(|chunk| self.release(batch, chunk));
        let UnitRecord { tags, description, .. } = &unit.record;
        for (chunk, same) in unit.chunks.iter().zip(same) {
            let ChunkRecord { breadcrumb, text, position, .. } = chunk;
            let columns = full_text::columns(breadcrumb, tags, description.as_deref(), *position, text);
            let row = match same {
                Some(same) => {
                    if same.columns != columns {
                        batch.texts_removed.push((same.row, same.columns));
                        batch.texts.push((same.row, columns));
                    }
                    same.row
                }
                None => {
                    let row = self.free_row();
                    let embedding = self.source.embedding(chunk).map_err(Error::Local)?;
                    batch.vectors.push((row, embedding.vector, embedding.tokens));
                    batch.texts.push((row, columns));
                    row
                }
            };
            batch.chunks.push(ChunkRecord { row: index::ChunkRow(row), ..chunk.clone() });
        }
        batch.units_removed.push(unit.record.id.as_str().to_owned());
        batch.units.push((digest, unit));
        Ok(())
    }

    fn free_row(&mut self) -> i64 {
        self.chunks += 1;
        self.free_rows.pop_first().unwrap_or_else(|| {
            self.next_row += 1;
            self.next_row - 1
        })
    }

    fn flush(&mut self, batch: Batch) -> Result<(), Error> {
        let Batch { units_removed, vectors_removed, .. } = &batch;
        if !units_removed.is_empty() {
            for sql in [
                "DELETE FROM units WHERE brain = $1 AND id = ANY ($2)",
                "DELETE FROM relations WHERE brain = $1 AND source = ANY ($2)",
                "DELETE FROM chunks WHERE brain = $1 AND unit = ANY ($2)",
            ] {
                self.query(sql, &[(units_removed, Type::TEXT_ARRAY)])?;
            }
        }
        if !vectors_removed.is_empty() {
            for table in [self.vectors_table, "token_vectors"] {
                let sql = format!("DELETE FROM {table} WHERE brain = $1 AND row = ANY ($2)");
                self.query(&sql, &[(vectors_removed, Type::INT8_ARRAY)])?;
            }
        }
        self.insert_units(&batch.units)?;
        self.insert_chunks(&batch.chunks)?;
        self.insert_vectors(&batch.vectors)?;
        self.write_words(&batch)?;
        self.listed_rows = self.next_row;
        Ok(())
    }

    fn insert_units(&mut self, units: &[(UnitDigest, SourceUnit)]) -> Result<(), Error> {
        if units.is_empty() {
            return Ok(());
        }
        fn all<'u, T: 'u>(
            units: &'u [(UnitDigest, SourceUnit)],
            get: impl Fn(&'u SourceUnit) -> T,
        ) -> Vec<T> {
            units.iter().map(|(_, unit)| get(unit)).collect()
        }
        // An array of arrays must be even, so tags travel as one text each.
        const BETWEEN_TAGS: &str = "\u{1f}";
        let digests: Vec<&[u8]> = units.iter().map(|(digest, _)| digest.as_slice()).collect();
        let text = |get: fn(&UnitRecord) -> Option<String>| all(units, |unit| get(&unit.record));
        let ids = text(|unit| Some(unit.id.as_str().to_owned()));
        let chunks = all(units, |unit| unit.chunks.len() as i32);
        let tags = text(|unit| (!unit.tags.is_empty()).then(|| unit.tags.join(BETWEEN_TAGS)));
        let confidences = all(units, |unit| unit.record.confidence);
        self.query(
            "INSERT INTO units SELECT $1, id, digest, chunks, path, title, type, domain,
                coalesce(string_to_array(tags, $17), '{}'), confidence, source, description, status, created,
                last_modified, reviewed_by
            FROM unnest($2::text[], $3::bytea[], $4::int[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
                $10::float8[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[])
            AS new(id, digest, chunks, path, title, type, domain, tags, confidence, source, description, status, created,
                last_modified, reviewed_by)",
            &[
                (&ids, Type::TEXT_ARRAY),
                (&digests, Type::BYTEA_ARRAY),
                (&chunks, Type::INT4_ARRAY),
                (&text(|unit| Some(unit.path.clone())), Type::TEXT_ARRAY),
                (&text(|unit| Some(unit.title.clone())), Type::TEXT_ARRAY),
                (&text(|unit| Some(unit.kind.as_str().to_owned())), Type::TEXT_ARRAY),
                (&text(|unit| Some(unit.domain.as_str().to_owned())), Type::TEXT_ARRAY),
                (&tags, Type::TEXT_ARRAY),
                (&confidences, Type::FLOAT8_ARRAY),
                (&text(|unit| Some(unit.source.clone())), Type::TEXT_ARRAY),
                (&text(|unit| unit.description.clone()), Type::TEXT_ARRAY),
                (&text(|unit| unit.status.clone()), Type::TEXT_ARRAY),
                (&text(|unit| unit.created.map(|time| time.to_string())), Type::TEXT_ARRAY),
                (&text(|unit| unit.last_modified.map(|time| time.to_string())), Type::TEXT_ARRAY),
                (&text(|unit| unit.reviewed_by.clone()), Type::TEXT_ARRAY),
                (&BETWEEN_TAGS, Type::TEXT),
            ],
        )?;
        let relations: Vec<(&str, &str, &str)> = units
            .iter()
            .flat_map(|(_, unit)| {
                let source = unit.record.id.as_str();
                unit.relations.iter().map(move |edge| (source, edge.other.as_str(), edge.relation.as_str()))
            })
            .collect();
        let sources: Vec<&str> = relations.iter().map(|(source, ..)| *source).collect();
        let targets: Vec<&str> = relations.iter().map(|(_, target, _)| *target).collect();
        let kinds: Vec<&str> = relations.iter().map(|(.., kind)| *kind).collect();
        self.query(
            "INSERT INTO relations SELECT $1, * FROM unnest($2::text[], $3::text[], $4::text[])",
            &[(&sources, Type::TEXT_ARRAY), (&targets, Type::TEXT_ARRAY), (&kinds, Type::TEXT_ARRAY)],
        )?;
        Ok(())
    }

    fn insert_chunks(&mut self, chunks: &[ChunkRecord]) -> Result<(), Error> {
        if chunks.is_empty() {
            return Ok(());
        }
        let rows: Vec<i64> = chunks.iter().map(|chunk| chunk.row.0).collect();
        let units: Vec<&str> = chunks.iter().map(|chunk| chunk.unit.as_str()).collect();
        let positions: Vec<i32> = chunks.iter().map(|chunk| chunk.position as i32).collect();
        let levels: Vec<i16> = chunks.iter().map(|chunk| i16::from(chunk.level)).collect();
        let breadcrumbs: Vec<&str> = chunks.iter().map(|chunk| chunk.breadcrumb.as_str()).collect();
        let texts: Vec<&str> = chunks.iter().map(|chunk| chunk.text.as_str()).collect();
        let tokens: Vec<i32> = chunks.iter().map(|chunk| chunk.tokens as i32).collect();
        self.query(
            "INSERT INTO chunks SELECT $1, * FROM unnest($2::bigint[], $3::text[], $4::int[], $5::smallint[], $6::text[],
                $7::text[], $8::int[])",
            &[
                (&rows, Type::INT8_ARRAY),
                (&units, Type::TEXT_ARRAY),
                (&positions, Type::INT4_ARRAY),
                (&levels, Type::INT2_ARRAY),
                (&breadcrumbs, Type::TEXT_ARRAY),
                (&texts, Type::TEXT_ARRAY),
                (&tokens, Type::INT4_ARRAY),
            ],
        )?;
        Ok(())
    }

    fn insert_vectors(&mut self, vectors: &[(i64, Vec<f32>, Vec<u8>)]) -> Result<(), Error> {
        if vectors.is_empty() {
            return Ok(());
        }
        self.report.vectors_written += vectors.len();
        let rows: Vec<i64> = vectors.iter().map(|(row, ..)| *row).collect();
        let texts: Vec<String> = vectors.iter().map(|(_, vector, _)| as_text(vector)).collect();
        let table = self.vectors_table;
        self.query(
            &format!(
                "INSERT INTO {table} SELECT $1, row, embedding::halfvec FROM unnest($2::bigint[], $3::text[])
                AS new(row, embedding)"
            ),
            &[(&rows, Type::INT8_ARRAY), (&texts, Type::TEXT_ARRAY)],
        )?;
        let with_tokens = || vectors.iter().filter(|(.., tokens)| !tokens.is_empty());
        let rows: Vec<i64> = with_tokens().map(|(row, ..)| *row).collect();
        let tokens: Vec<&[u8]> = with_tokens().map(|(.., tokens)| tokens.as_slice()).collect();
        self.query(
            "INSERT INTO token_vectors SELECT $1, * FROM unnest($2::bigint[], $3::bytea[])",
            &[(&rows, Type::INT8_ARRAY), (&tokens, Type::BYTEA_ARRAY)],
        )?;
        Ok(())
    }

    fn write_words(&mut self, batch: &Batch) -> Result<(), Error> {
        let removed = self.tokenizer.words_of(batch.texts_removed.iter().map(|(row, text)| (*row, text)))?;
        let added = self.tokenizer.words_of(batch.texts.iter().map(|(row, text)| (*row, text)))?;
        let count =
            |words: &WordsOfTexts| words.lengths.values().map(|length| i64::from(*length)).sum::<i64>();
        self.words += count(&added) - count(&removed);
        for (bucket, changes) in changes_by_bucket(removed, added) {
            self.write_lists(bucket, changes)?;
        }
        Ok(())
    }

    fn write_lists(&mut self, bucket: i32, changes: BTreeMap<Term, ListChange>) -> Result<(), Error> {
        let mut lists = self.read_lists(bucket, &changes)?;
        let mut written = ListColumns::default();
        let mut emptied: Vec<Term> = Vec::new();
        for (term, change) in changes {
            let mut list = lists.remove(&term).unwrap_or_default();
            change.apply(&mut list);
            if list.is_empty() {
                emptied.push(term);
            } else {
                written.push(bucket, term, &list);
            }
        }
        self.report.lists_written += written.terms.len();
        self.query(
            "INSERT INTO postings SELECT $1, term, $2, holding, body, places
            FROM unnest($3::bytea[], $4::int[], $5::bytea[], $6::bytea[]) AS new(term, holding, body, places)
            ON CONFLICT (brain, term, bucket)
            DO UPDATE SET holding = excluded.holding, body = excluded.body, places = excluded.places",
            &[
                (&bucket, Type::INT4),
                (&written.terms, Type::BYTEA_ARRAY),
                (&written.holding, Type::INT4_ARRAY),
                (&written.bodies, Type::BYTEA_ARRAY),
                (&written.places, Type::BYTEA_ARRAY),
            ],
        )?;
        if !emptied.is_empty() {
            let sql = "DELETE FROM postings WHERE brain = $1 AND bucket = $2 AND term = ANY ($3)";
            self.query(sql, &[(&bucket, Type::INT4), (&emptied, Type::BYTEA_ARRAY)])?;
        }
        Ok(())
    }

    fn read_lists(
        &mut self,
        bucket: i32,
        changes: &BTreeMap<Term, ListChange>,
    ) -> Result<HashMap<Term, PostingList>, Error> {
        if i64::from(bucket) * BUCKET_ROWS >= self.listed_rows {
            return Ok(HashMap::new());
        }
        let terms: Vec<&[u8]> = changes.keys().map(Vec::as_slice).collect();
        let sql =
            "SELECT term, body, places FROM postings WHERE brain = $1 AND bucket = $2 AND term = ANY ($3)";
        let rows = self.query(sql, &[(&bucket, Type::INT4), (&terms, Type::BYTEA_ARRAY)])?;
        let list = |row: &Row| {
            let list = postings::decode(bucket, row.try_get(1)?, row.try_get(2)?);
            Ok((row.try_get(0)?, list.ok_or(Error::DamagedList { brain: self.brain })?))
        };
        rows.iter().map(list).collect()
    }

    /// Whether the problems were others.
    fn write_problems(&mut self) -> Result<bool, Error> {
        let mut problems = self.source.problems().map_err(Error::Local)?;
        for Problem { path, what, .. } in &mut problems {
            clean(path);
            clean(what);
        }
        problems.sort_by(|a, b| a.path.cmp(&b.path));
        let rows = self.query("SELECT path, line, what FROM problems WHERE brain = $1 ORDER BY path", &[])?;
        let problem = |row: &Row| -> Result<Problem, Error> {
            let line = row.try_get::<_, i64>(1)?.unsigned_abs() as usize;
            Ok(Problem { path: row.try_get(0)?, line, what: row.try_get(2)? })
        };
        if rows.iter().map(problem).collect::<Result<Vec<_>, _>>()? == problems {
            return Ok(false);
        }
        self.query("DELETE FROM problems WHERE brain = $1", &[])?;
        let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
        let lines: Vec<i64> = problems.iter().map(|problem| problem.line as i64).collect();
        let whats: Vec<&str> = problems.iter().map(|problem| problem.what.as_str()).collect();
        self.query(
            "INSERT INTO problems SELECT $1, * FROM unnest($2::text[], $3::bigint[], $4::text[])",
            &[(&paths, Type::TEXT_ARRAY), (&lines, Type::INT8_ARRAY), (&whats, Type::TEXT_ARRAY)],
        )?;
        Ok(true)
    }
}

/// How one posting list changes.
#[derive(Default)]
struct ListChange {
    removed: Vec<i64>,
    added: Vec<(i64, Occurrence)>,
}

impl ListChange {
    fn apply(self, list: &mut PostingList) {
        for row in &self.removed {
            list.remove(row);
        }
        list.extend(self.added);
    }
}

fn changes_by_bucket(
    removed: WordsOfTexts,
    added: WordsOfTexts,
) -> BTreeMap<i32, BTreeMap<Term, ListChange>> {
    let mut changes: BTreeMap<i32, BTreeMap<Term, ListChange>> = BTreeMap::new();
    let mut change = |row: i64, term: &Term, change: &dyn Fn(&mut ListChange)| {
        let of_bucket = changes.entry(postings::bucket_of(row)).or_default();
        match of_bucket.get_mut(term) {
            Some(of_term) => change(of_term),
            None => change(of_bucket.entry(term.clone()).or_default()),
        }
    };
    for (term, texts) in &removed.words {
        texts.iter().for_each(|(row, _)| change(*row, term, &|list| list.removed.push(*row)));
    }
    for (term, texts) in &added.words {
        for (row, places) in texts {
            let length = added.lengths.get(row).copied().unwrap_or_default();
            let occurrence = Occurrence { length, places: places.clone() };
            change(*row, term, &|list| list.added.push((*row, occurrence.clone())));
        }
    }
    changes
}

#[derive(Default)]
struct ListColumns {
    terms: Vec<Term>,
    holding: Vec<i32>,
    bodies: Vec<Vec<u8>>,
    places: Vec<Vec<u8>>,
}

impl ListColumns {
    fn push(&mut self, bucket: i32, term: Term, list: &PostingList) {
        let (body, places) = postings::encode(bucket, list);
        self.terms.push(term);
        self.holding.push(list.len() as i32);
        self.bodies.push(body);
        self.places.push(places);
    }
}

fn as_text(vector: &[f32]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(vector.len() * 10);
    for (at, number) in vector.iter().enumerate() {
        let before = if at == 0 { '[' } else { ',' };
        // Writing to a string does not fail.
        let _ = write!(text, "{before}{number}");
    }
    text.push(']');
    text
}

/// PostgreSQL's texts hold no NUL.
fn clean(text: &mut String) {
    if text.contains('\0') {
        *text = text.replace('\0', "\u{fffd}");
    }
}

fn without_nul(mut unit: SourceUnit) -> SourceUnit {
    let record = &mut unit.record;
    [&mut record.path, &mut record.title, &mut record.source].into_iter().for_each(clean);
    let optional = [&mut record.description, &mut record.status, &mut record.reviewed_by];
    optional.into_iter().flatten().for_each(clean);
    record.tags.iter_mut().for_each(clean);
    for chunk in &mut unit.chunks {
        clean(&mut chunk.breadcrumb);
        clean(&mut chunk.text);
    }
    unit
}
