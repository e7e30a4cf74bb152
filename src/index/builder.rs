//! Building: what has to change, and publishing the next generation with it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use brain::Files;
use knowledge::text::is_hidden;
use knowledge::wikilink::wikilinks;
use knowledge::{CountTokens, Embedding, Unit};
use rayon::prelude::*;
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, TransactionBehavior, params};

use crate::chunk::{self, Piece};
use crate::error::Error;
use crate::file_table::{self, FileRow, Progress, Seen};
use crate::generation::{Generation, ModelLabel};
use crate::hnsw::{CHANGED_PART, Graph};
use crate::records::{ChunkRow, TextHash};
use crate::store::{self, BuilderLock, Store};
use crate::vectors::{self, Vectors};
use crate::{full_text, schema, token_vectors, triggers};

/// What a plan compares with the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Only what has changed.
    Changed,
    /// Everything, as if there were no index yet.
    Rebuild,
}

/// What a generation holds and what was done for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Report {
    /// The number of the generation; 0 if none was ever published.
    pub generation: u64,
    /// Units in the index.
    pub units: usize,
    /// Chunks in the index.
    pub chunks: usize,
    /// Texts that were embedded for this generation.
    pub embedded: usize,
    /// Files that are new or have other content.
    pub changed: usize,
    /// Files that are gone.
    pub removed: usize,
    /// Files that are not in the index because of an error.
    pub problems: usize,
}

/// A unit that was cut into pieces by the caller.
#[derive(Clone, Debug)]
pub struct PrechunkedUnit {
    /// The unit; its body is not used.
    pub unit: Unit,
    /// In the order of the text.
    pub pieces: Vec<Piece>,
}

/// What has to change for the next generation. Holds the builder's lock: publish it or drop it.
pub struct Plan {
    store: Arc<Store>,
    connection: Connection,
    model: ModelLabel,
    /// The generation that it starts from; `None` if there is none.
    before: Option<Generation>,
    work: Work,
    // The last field, so that the connection is closed before another builder begins.
    _lock: BuilderLock,
}

#[derive(Default)]
struct Work {
    /// Whether everything of the generation before is deleted first.
    clear: bool,
    /// New or changed rows of the table of files.
    files: Vec<FileRow>,
    files_removed: Vec<String>,
    units_removed: BTreeSet<String>,
    units: Vec<NewUnit>,
    /// The different texts that need a vector.
    texts: Vec<String>,
    /// The place of each text in `texts`.
    text_indexes: HashMap<TextHash, usize>,
    /// How many files are new or have other content.
    changed: usize,
}

struct NewUnit {
    unit: Unit,
    path: String,
    chunks: Vec<NewChunk>,
}

struct NewChunk {
    piece: Piece,
    text_hash: TextHash,
    vector: VectorSource,
}

/// Where a new chunk's vector comes from.
enum VectorSource {
    /// The embedding of a chunk with the same text in the generation before.
    Reused(StoredEmbedding),
    /// An index into the plan's texts.
    Text(usize),
}

/// An embedding as the database keeps it.
struct StoredEmbedding {
    vector: Vec<u8>,
    tokens: Vec<u8>,
}

impl NewChunk {
    fn embedding<'e>(&'e self, embeddings: &'e [StoredEmbedding]) -> &'e StoredEmbedding {
        match &self.vector {
            VectorSource::Reused(embedding) => embedding,
            VectorSource::Text(index) => &embeddings[*index],
        }
    }
}

impl Work {
    /// `reused`: finds the embedding of an equal text in the generation before.
    fn add_unit(
        &mut self,
        path: String,
        unit: Unit,
        pieces: Vec<Piece>,
        mut reused: impl FnMut(&TextHash) -> rusqlite::Result<Option<StoredEmbedding>>,
    ) -> rusqlite::Result<()> {
        let mut chunks = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let text = piece.embedding_text();
            let mut text_hash = TextHash::default();
            text_hash.copy_from_slice(&blake3::hash(text.as_bytes()).as_bytes()[..16]);
            let vector = match reused(&text_hash)? {
                Some(embedding) => VectorSource::Reused(embedding),
                None => VectorSource::Text(*self.text_indexes.entry(text_hash).or_insert_with(|| {
                    self.texts.push(text);
                    self.texts.len() - 1
                })),
            };
            chunks.push(NewChunk { piece, text_hash, vector });
        }
        self.units.push(NewUnit { unit, path, chunks });
        Ok(())
    }
}

impl Plan {
    pub(crate) fn from_files(
        store: Arc<Store>,
        lock: BuilderLock,
        (brain, mut seen): (&dyn Files, Option<Seen>),
        model: &ModelLabel,
        tokens: &dyn CountTokens,
        mode: Mode,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, Error> {
        let mut find = || -> Result<_, Error> {
            let mut connection = store.writer(&lock)?;
            if mode == Mode::Rebuild && !is_sound(&connection) {
                store.mark_damaged();
                drop(connection);
                connection = store.writer(&lock)?;
            }
            let before = Generation::read(&connection).map_err(store.sqlite())?;
            let is_same_model = before.as_ref().is_some_and(|before| before.model == *model);
            let before_to_reuse = before.as_ref().filter(|_| mode == Mode::Changed && is_same_model);
            let work = find_work(&store, &connection, before_to_reuse, brain, seen.take(), tokens, progress)?;
            Ok((connection, before, work))
        };
        let (connection, before, work) = match find() {
            // The damage was marked where it was found; the second time the database is made again.
            Err(Error::Sqlite { source, .. }) if schema::is_damage(&source) => find()?,
            found => found?,
        };
        Ok(Self { store, connection, model: model.clone(), before, work, _lock: lock })
    }

    pub(crate) fn from_prechunked(
        store: Arc<Store>,
        lock: BuilderLock,
        units: Vec<PrechunkedUnit>,
        model: &ModelLabel,
    ) -> Result<Self, Error> {
        let connection = store.writer(&lock)?;
        let before = Generation::read(&connection).map_err(store.sqlite())?;
        let mut work = Work { clear: true, changed: units.len(), ..Work::default() };
        for PrechunkedUnit { unit, pieces } in units {
            let path = unit.id.as_str().to_owned();
            work.add_unit(path, unit, pieces, |_| Ok(None)).map_err(store.sqlite())?;
        }
        Ok(Self { store, connection, model: model.clone(), before, work, _lock: lock })
    }

    /// Whether the index agrees with the files, so that there is nothing to publish.
    pub fn is_empty(&self) -> bool {
        let work = &self.work;
        !work.clear
            && work.files.is_empty()
            && work.files_removed.is_empty()
            && work.units_removed.is_empty()
            && work.units.is_empty()
    }

    /// The texts that need a vector, breadcrumb included, each once.
    pub fn texts(&self) -> &[String] {
        &self.work.texts
    }

    /// Publishes the next generation, given one embedding for each of [`Plan::texts`], in their order. An empty plan
    /// publishes nothing and reports the present generation.
    ///
    /// All rows change in one transaction. A process killed at any point leaves the generation before whole.
    ///
    /// # Errors
    /// If a vector is missing, is zero or has other dimensions than the model, or if the disk is full.
    pub fn publish(mut self, embeddings: Vec<Embedding>) -> Result<Report, Error> {
        if embeddings.len() != self.work.texts.len() {
            return Err(Error::VectorCount { wanted: self.work.texts.len(), given: embeddings.len() });
        }
        let stored = |Embedding { vector, tokens }: Embedding| {
            let vector = vectors::to_embedding(&vector, self.model.dimensions)?;
            Ok(StoredEmbedding { vector, tokens })
        };
        let embeddings: Vec<_> = embeddings.into_par_iter().map(stored).collect::<Result<_, Error>>()?;
        if self.is_empty() {
            return self.report();
        }
        self.write(&embeddings)?;
        let report = self.report()?;
        // The generation is published; without a graph it is searched exactly.
        if report.chunks >= self.store.limits.graph
            && let Err(error) = self.update_graph(report.chunks)
        {
            tracing::warn!(%error, "failed to make a vector graph");
        }
        store::truncate_log(&self.connection);
        Ok(report)
    }

    fn write(&mut self, embeddings: &[StoredEmbedding]) -> Result<(), Error> {
        let sqlite = self.store.sqlite();
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(&sqlite)?;
        let removed = match self.work.clear {
            true => triggers::all(&transaction),
            false => triggers::of_units(&transaction, self.work.units_removed.iter().map(String::as_str)),
        };
        let removed = removed.map_err(&sqlite)?;
        apply(&transaction, &self.work, embeddings).map_err(&sqlite)?;
        let added = self.work.units.iter().map(|new| new.unit.id.as_str());
        let added = triggers::of_units(&transaction, added).map_err(&sqlite)?;
        if removed != added || !self.store.has_triggers() {
            let mut triggers = triggers::all(&transaction).map_err(&sqlite)?;
            triggers.extend(removed);
            self.store.write_triggers(&triggers)?;
        }
        failpoint::here!("index-after-triggers");
        let generation = Generation {
            number: self.before.as_ref().map_or(0, |before| before.number) + 1,
            model: self.model.clone(),
            rules: chunk::RULES_VERSION,
            units: count(&transaction, "SELECT count(*) FROM units").map_err(&sqlite)?,
            chunks: count(&transaction, "SELECT count(*) FROM chunks").map_err(&sqlite)?,
            built: jiff::Timestamp::now().to_string(),
        };
        generation.write(&transaction).map_err(&sqlite)?;
        transaction.commit().map_err(&sqlite)?;
        failpoint::here!("index-after-commit");
        Ok(())
    }

    /// Reports the present generation.
    fn report(&self) -> Result<Report, Error> {
        let count = |sql| count(&self.connection, sql).map_err(self.store.sqlite());
        let present = Generation::read(&self.connection).map_err(self.store.sqlite())?;
        let (generation, units, chunks) =
            present.map_or((0, 0, 0), |present| (present.number, present.units, present.chunks));
        Ok(Report {
            generation,
            units,
            chunks,
            problems: count("SELECT count(*) FROM files WHERE problem IS NOT NULL")?,
            embedded: self.work.texts.len(),
            changed: self.work.changed,
            removed: self.work.files_removed.len(),
        })
    }

    /// Builds the graph if there is none, or if too much has changed since it was built.
    fn update_graph(&self, chunks: usize) -> Result<(), Error> {
        let (connection, dimensions) = (&self.connection, self.model.dimensions);
        if let Some(graph) = Graph::read(connection, dimensions).map_err(self.store.sqlite())? {
            let kept = "SELECT count(*) FROM chunks WHERE row <= (SELECT row_max FROM graph)";
            let kept = count(connection, kept).map_err(self.store.sqlite())?;
            let changed = chunks.saturating_sub(kept) + graph.len().saturating_sub(kept);
            if changed * CHANGED_PART < graph.len() {
                return Ok(());
            }
        }
        let vectors =
            Vectors::read(connection, String::new(), &self.model, None).map_err(self.store.sqlite())?;
        Graph::build(connection, &vectors)
    }
}

/// Compares the brain's files with the index and cuts the new units.
///
/// `before`: the generation whose vectors may be reused; `None` if everything is read and embedded again. Files
/// are also all read again after the chunking rules changed.
/// `seen`: what was read in this generation already.
fn find_work(
    store: &Store,
    connection: &Connection,
    before: Option<&Generation>,
    brain: &dyn Files,
    seen: Option<Seen>,
    tokens: &dyn CountTokens,
    progress: &mut dyn FnMut(Progress),
) -> Result<Work, Error> {
    let (files, known) = match seen {
        Some(Seen { files, rows, .. }) => (files, rows),
        None => {
            let read = || file_table::read_rows(connection).map_err(store.sqlite());
            let (files, known) = file_table::list_files_while(brain, read);
            (files?, known?)
        }
    };
    let is_usable = |before: &Generation| {
        before.rules == chunk::RULES_VERSION && file_table::covers_units(&known, before.units)
    };
    let clear = !before.is_some_and(is_usable);
    let changes = file_table::find_changes(store, connection, brain, &files, &known, clear, progress)?;
    let Some(changes) = changes else { return Ok(Work::default()) };
    let mut work = Work {
        clear,
        changed: changes.changed,
        files: changes.rows,
        files_removed: changes.removed,
        units_removed: if clear { BTreeSet::new() } else { changes.units_removed },
        ..Work::default()
    };
    let pieces: Vec<_> = changes.units.par_iter().map(|(_, unit)| chunk::chunk(unit, tokens)).collect();
    let mut statement = connection
        .prepare_cached("SELECT row, embedding FROM chunks WHERE text_hash = ?1 LIMIT 1")
        .map_err(store.sqlite())?;
    let mut reused = |hash: &TextHash| match before {
        Some(_) => {
            let read = |row: &Row<'_>| {
                let tokens = token_vectors::read(connection, ChunkRow(row.get(0)?))?;
                Ok(StoredEmbedding { vector: row.get(1)?, tokens })
            };
            statement.query_row([hash], read).optional()
        }
        None => Ok(None),
    };
    for ((path, unit), mut pieces) in changes.units.into_iter().zip(pieces) {
        for piece in &mut pieces {
            let chars = || piece.breadcrumb.chars().chain(piece.text.chars());
            let is_blank = || chars().all(|c| c.is_whitespace() || is_hidden(c));
            let is_empty = || is_blank() || tokens.count(&piece.embedding_text()) == 0;
            // Nothing of it can be embedded, and all others would wait for it. Of other alphabets a tokenizer may strip
            // what is a letter here: combining vowels, as if they were accents.
            if !chars().any(|c| c.is_ascii_alphanumeric()) && is_empty() {
                piece.text.clone_from(&path);
            }
        }
        work.add_unit(path, unit, pieces, &mut reused).map_err(store.sqlite())?;
    }
    Ok(work)
}

/// Writes the changes into the tables of the next generation.
fn apply(transaction: &Transaction<'_>, work: &Work, embeddings: &[StoredEmbedding]) -> rusqlite::Result<()> {
    if work.clear {
        transaction.execute_batch(schema::CLEAR)?;
    }
    for path in &work.files_removed {
        transaction.prepare_cached("DELETE FROM files WHERE path = ?1")?.execute([path])?;
    }
    for id in &work.units_removed {
        token_vectors::delete_of_unit(transaction, id)?;
        for sql in [
            "DELETE FROM chunks_fts WHERE rowid IN (SELECT row FROM chunks WHERE unit_id = ?1)",
            "DELETE FROM chunks WHERE unit_id = ?1",
            "DELETE FROM relationships WHERE source_id = ?1",
            "DELETE FROM triggers WHERE unit_id = ?1",
            "DELETE FROM units WHERE id = ?1",
        ] {
            transaction.prepare_cached(sql)?.execute([id])?;
        }
    }
    for row in &work.files {
        file_table::write_row(transaction, row)?;
    }
    for NewUnit { unit, path, chunks } in &work.units {
        insert_unit(transaction, unit, path)?;
        for (position, chunk) in chunks.iter().enumerate() {
            let NewChunk { piece, text_hash, .. } = chunk;
            let embedding = chunk.embedding(embeddings);
            transaction
                .prepare_cached(
                    "INSERT INTO chunks(unit_id, position, heading_level, heading_breadcrumb, text, tokens,
                     text_hash, embedding) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                )?
                .execute(params![
                    unit.id.as_str(),
                    position,
                    piece.level,
                    piece.breadcrumb,
                    piece.text,
                    piece.tokens,
                    text_hash,
                    embedding.vector
                ])?;
            let row = transaction.last_insert_rowid();
            token_vectors::insert(transaction, row, &embedding.tokens)?;
            let [heading, text, parts] = full_text::columns(
                &piece.breadcrumb,
                &unit.tags,
                unit.description.as_deref(),
                position as u32,
                &piece.text,
            );
            transaction
                .prepare_cached(
                    "INSERT INTO chunks_fts(rowid, heading, text, parts) VALUES (?1, ?2, ?3, ?4)",
                )?
                .execute((row, heading, text, parts))?;
        }
    }
    Ok(())
}

/// The relation that a wikilink in a unit's text stands for.
const LINKS_TO: &str = "links_to";

fn insert_unit(transaction: &Transaction<'_>, unit: &Unit, path: &str) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT INTO units VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)")?
        .execute(params![
            unit.id.as_str(),
            path,
            unit.title,
            unit.kind.as_str(),
            unit.domain.as_str(),
            serde_json::Value::from(unit.tags.clone()).to_string(),
            unit.confidence,
            unit.source,
            unit.description,
            unit.status,
            unit.created.map(|time| time.to_string()),
            unit.last_modified.map(|time| time.to_string()),
        ])?;
    for related in unit.related.iter().filter(|related| related.id != unit.id) {
        transaction
            .prepare_cached("INSERT OR IGNORE INTO relationships VALUES (?1, ?2, ?3)")?
            .execute(params![unit.id.as_str(), related.id.as_str(), related.relation.as_str()])?;
    }
    for link in wikilinks(&unit.body) {
        for target in link.ids().filter(|target| *target != unit.id) {
            transaction
                .prepare_cached("INSERT OR IGNORE INTO relationships VALUES (?1, ?2, ?3)")?
                .execute(params![unit.id.as_str(), target.as_str(), LINKS_TO])?;
        }
    }
    triggers::insert(transaction, unit)
}

fn count(connection: &Connection, sql: &str) -> rusqlite::Result<usize> {
    connection.query_row(sql, [], |row| row.get(0))
}

/// Whether every page of the database is sound. The full-text table's content is not checked: it is deleted.
fn is_sound(connection: &Connection) -> bool {
    let pages = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    pages.is_ok_and(|answer| answer == "ok")
}

#[cfg(test)]
impl Plan {
    /// Does everything that publishing does except the commit, as a killed process leaves it.
    pub(crate) fn write_without_commit(mut self, vector: &[f32]) {
        let stored = |_: &String| StoredEmbedding {
            vector: vectors::to_embedding(vector, self.model.dimensions).unwrap(),
            tokens: Vec::new(),
        };
        let embeddings: Vec<_> = self.work.texts.iter().map(stored).collect();
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        apply(&transaction, &self.work, &embeddings).unwrap();
    }
}
