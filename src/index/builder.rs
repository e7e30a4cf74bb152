//! Building: what has to change, and the next generation with it changed.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::sync::Arc;

use brain::Files;
use knowledge::{CountTokens, Unit, text};
use rayon::prelude::*;
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};

use crate::chunk::{self, Piece};
use crate::file_table::{self, FileRow, FileRows};
use crate::hnsw::{self, Graph};
use crate::snapshot::Part;
use crate::store::{BuilderLock, Store, io_error};
use crate::vectors::{self, Packer, Vectors};
use crate::{Error, ModelLabel, identifiers, schema, snapshot, store};

/// A vector file is made anew when this part of its chunks, one in so many, was added or is gone.
const TAIL_PART: usize = 8;

/// What a plan looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Only what has changed.
    Changed,
    /// Everything, as if there had been no index.
    Rebuild,
}

/// How far a plan has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Files that were compared, and read where needed.
    pub files: usize,
    pub files_total: usize,
}

/// What a generation holds and what was done for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Report {
    pub generation: u64,
    pub units: usize,
    pub chunks: usize,
    /// Texts that were embedded for it.
    pub embedded: usize,
    /// Files that are new or other than before.
    pub changed: usize,
    /// Files that are gone.
    pub removed: usize,
    /// Files that are not in the index.
    pub problems: usize,
}

/// A unit that was cut already.
#[derive(Clone, Debug)]
pub struct PrechunkedUnit {
    pub unit: Unit,
    /// In the order of the text.
    pub pieces: Vec<Piece>,
}

/// What has to change for the next generation. Holds the builder's lock: publish it or drop it.
pub struct Plan {
    store: Arc<Store>,
    connection: Connection,
    model: ModelLabel,
    /// The generation that it starts from; `None` when there is none.
    before: Option<Generation>,
    /// The number that the next one will have.
    number: u64,
    /// The row of its first new chunk; the others follow.
    first_row: i64,
    work: Work,
    // Last, so that the connection is closed before another builder begins.
    _lock: BuilderLock,
}

#[derive(Default)]
struct Work {
    /// Nothing of the generation before is kept.
    clear: bool,
    /// What is known of all files from then on; `None` where there are none.
    known: Option<FileRows>,
    /// New or other rows of the table of files.
    files: Vec<Arc<FileRow>>,
    files_removed: Vec<String>,
    units_removed: BTreeSet<String>,
    units: Vec<NewUnit>,
    /// The different texts that need a vector.
    texts: Vec<String>,
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
    vector: Source,
}

impl NewChunk {
    fn embedding<'e>(&'e self, embeddings: &'e [Vec<u8>]) -> &'e [u8] {
        match &self.vector {
            Source::Kept(embedding) => embedding,
            Source::Text(index) => &embeddings[*index],
        }
    }
}

/// Where a new chunk's vector comes from.
enum Source {
    /// A chunk with the same text had it already.
    Kept(Vec<u8>),
    /// An index into the plan's texts.
    Text(usize),
}

type TextHash = [u8; 16];

pub(crate) struct Generation {
    number: u64,
    pub(crate) model: ModelLabel,
    pub(crate) rules: u32,
    units: usize,
    vectors_file: String,
    vectors_hash: String,
    packed_chunks: usize,
    packed_row_max: i64,
    /// When it was made, which tells it from one of the same number in another database.
    built: String,
}

impl Generation {
    /// Tells it from every other, also from those of another database.
    pub(crate) fn key(&self) -> (u64, String) {
        (self.number, self.built.clone())
    }
}

impl Plan {
    pub(crate) fn make(
        store: Arc<Store>,
        lock: BuilderLock,
        brain: &dyn Files,
        model: &ModelLabel,
        tokens: &dyn CountTokens,
        mode: Mode,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, Error> {
        let make = |progress: &mut dyn FnMut(Progress)| -> Result<_, Error> {
            let mut connection = store.writer(&lock)?;
            if mode == Mode::Rebuild && !is_sound(&connection) {
                store.mark_damaged();
                drop(connection);
                connection = store.writer(&lock)?;
            }
            let work = Maker::new(&store, &connection, brain, tokens, mode, model)?.make(progress)?;
            Ok((connection, work))
        };
        let (connection, made) = match make(progress) {
            // The damage was marked where it was met; this time the database is made anew.
            Err(Error::Sqlite { source, .. }) if schema::is_damage(&source) => make(progress)?,
            other => other?,
        };
        let Made { before, first_row, work } = made;
        let number = next_number(&store, before.as_ref())?;
        let model = model.clone();
        let plan = Self { store, connection, model, before, number, first_row, work, _lock: lock };
        plan.tidy()?;
        Ok(plan)
    }

    pub(crate) fn given(
        store: Arc<Store>,
        lock: BuilderLock,
        units: Vec<PrechunkedUnit>,
        model: &ModelLabel,
    ) -> Result<Self, Error> {
        let connection = store.writer(&lock)?;
        let before = generation_of(&connection).map_err(store.sqlite())?;
        let first_row = next_row(&connection).map_err(store.sqlite())?;
        let mut work = Work { clear: true, changed: units.len(), ..Work::default() };
        let mut known = HashMap::new();
        for PrechunkedUnit { unit, pieces } in units {
            let chunks = pieces.into_iter().map(|piece| {
                let text = piece.embedding_text();
                let text_hash = text_hash(&text);
                let vector = Source::Text(text_number(text, text_hash, &mut work.texts, &mut known));
                NewChunk { piece, text_hash, vector }
            });
            let chunks = chunks.collect();
            let path = unit.id.as_str().to_owned();
            work.units.push(NewUnit { unit, path, chunks });
        }
        let number = next_number(&store, before.as_ref())?;
        let model = model.clone();
        Ok(Self { store, connection, model, before, number, first_row, work, _lock: lock })
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

    /// Makes the next generation, given one vector for each of [`Plan::texts`], in their order.
    /// An empty plan publishes nothing and reports the generation that is there.
    ///
    /// All rows change in one transaction; the vector file is on the disk before it ends. A process
    /// killed anywhere leaves the generation before, whole.
    ///
    /// # Errors
    /// When a vector is missing, is zero or has other dimensions than the model, or the disk is full.
    pub fn publish(mut self, vectors: Vec<Vec<f32>>) -> Result<Report, Error> {
        if vectors.len() != self.work.texts.len() {
            return Err(Error::VectorCount { wanted: self.work.texts.len(), given: vectors.len() });
        }
        let dimensions = self.model.dimensions;
        let to_embedding = |vector: &Vec<f32>| vectors::to_embedding(vector, dimensions);
        let embeddings: Vec<Vec<u8>> = vectors.par_iter().map(to_embedding).collect::<Result<_, _>>()?;
        if self.is_empty() {
            let number = self.before.as_ref().map_or(0, |before| before.number);
            return self.report(number);
        }
        let packed = self.write(&embeddings)?;
        store::keep_log_small(self.store.folder(), &self.connection);
        self.tidy()?;
        let report = self.report(self.number)?;
        // The generation stands; without a graph it is searched exactly.
        if let Some(bytes) = packed
            && report.chunks >= self.store.limits.graph
            && let Err(error) = self.renew_graph(&bytes)
        {
            tracing::warn!(%error, "failed to make a vector graph");
        }
        Ok(report)
    }

    /// Writes the generation; the bytes of its vector file when that is a new one.
    fn write(&mut self, embeddings: &[Vec<u8>]) -> Result<Option<Vec<u8>>, Error> {
        let (store, model, number) = (self.store.clone(), self.model.clone(), self.number);
        let (work, first_row) = (&self.work, self.first_row);
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(store.sqlite())?;
        let before = self.before.as_ref().filter(|_| !work.clear);
        let packed_row_max = before.map_or(0, |before| before.packed_row_max);
        apply(&transaction, work, embeddings, first_row, packed_row_max).map_err(store.sqlite())?;
        let chunks: usize = one(&transaction, "SELECT count(*) FROM chunks").map_err(store.sqlite())?;
        let kept = match before {
            Some(before) => kept(&store, &transaction, before, chunks).map_err(store.sqlite())?,
            None => None,
        };
        let (file, bytes) = match kept {
            Some(kept) => (kept, None),
            None => {
                let row_max = forget_gone(&transaction).map_err(store.sqlite())?;
                let part = Part::Until(row_max);
                let packer = snapshot::pack(&transaction, model.dimensions, chunks, part);
                let (file, bytes) =
                    VectorFile::put(&store, number, packer.map_err(store.sqlite())??, row_max)?;
                (file, Some(bytes))
            }
        };
        failpoint::here!("index-after-vector-file");
        let built = jiff::Timestamp::now().to_string();
        transaction
            .execute(
                "INSERT OR REPLACE INTO generation(id, number, model, dimensions, rules, vectors_file,
                     vectors_hash, packed_chunks, packed_row_max, units, chunks, built)
                 VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, (SELECT count(*) FROM units), ?9, ?10)",
                params![
                    number,
                    model.name,
                    model.dimensions,
                    chunk::RULES_VERSION,
                    file.name,
                    file.hash,
                    file.chunks,
                    file.row_max,
                    chunks,
                    built
                ],
            )
            .map_err(store.sqlite())?;
        transaction.commit().map_err(store.sqlite())?;
        *store.cached_files() = work.known.clone().map(|known| ((number, built), known));
        failpoint::here!("index-after-commit");
        Ok(bytes)
    }

    /// Removes the files of generations past and those that a killed builder left. The generation
    /// before the newest keeps its vectors, for a reader that has just pinned it.
    fn tidy(&self) -> Result<(), Error> {
        let newest = generation_of(&self.connection).map_err(self.store.sqlite())?;
        let graph: Option<String> = self
            .connection
            .query_row("SELECT file FROM graph", [], |row| row.get(0))
            .optional()
            .map_err(self.store.sqlite())?;
        let before = self.before.as_ref().map(|before| before.vectors_file.as_str());
        let newest = newest.as_ref().map(|newest| newest.vectors_file.as_str());
        let traces = derived_files(&self.store)?;
        // Before anything is published, the file before this generation's is the newest but one.
        let other = |name: &&str| Some(*name) != newest && !name.ends_with(".tmp");
        let past = traces.iter().map(String::as_str).filter(other);
        let past = past.filter_map(|name| Some((vectors::generation_of(name, "vectors")?, name)));
        let limit = newest.and_then(|name| vectors::generation_of(name, "vectors")).unwrap_or(0);
        let previous = past.filter(|(number, _)| *number < limit).max().map(|(_, name)| name);
        for name in &traces {
            let name = name.as_str();
            if [newest, before, previous, graph.as_deref()].contains(&Some(name)) {
                continue;
            }
            let path = self.store.folder().join(name);
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(%error, file = %path.display(), "failed to remove an old file of the index");
            }
        }
        Ok(())
    }

    fn report(&self, generation: u64) -> Result<Report, Error> {
        let count = |sql| one(&self.connection, sql).map_err(self.store.sqlite());
        Ok(Report {
            generation,
            units: count("SELECT count(*) FROM units")?,
            chunks: count("SELECT count(*) FROM chunks")?,
            problems: count("SELECT count(*) FROM files WHERE problem IS NOT NULL")?,
            embedded: self.work.texts.len(),
            changed: self.work.changed,
            removed: self.work.files_removed.len(),
        })
    }

    /// Makes the graph anew when there is none or too much has changed since it was made.
    fn renew_graph(&self, bytes: &[u8]) -> Result<(), Error> {
        let sql = "SELECT file, size, row_max, chunks FROM graph";
        let present = self
            .connection
            .query_row(sql, [], |row| {
                Ok((
                    row.get::<_, String>(0)?,
                    row.get::<_, u64>(1)?,
                    row.get::<_, i64>(2)?,
                    row.get::<_, usize>(3)?,
                ))
            })
            .optional()
            .map_err(self.store.sqlite())?;
        let Some(vectors) = Vectors::parse(&vectors::hash(bytes), bytes) else { return Ok(()) };
        if let Some((file, size, row_max, chunks)) = present {
            let whole =
                fs::metadata(self.store.folder().join(file)).is_ok_and(|metadata| metadata.len() == size);
            let kept = vectors.iter().take_while(|(row, _)| *row <= row_max).count();
            let (added, gone) = (vectors.len() - kept, chunks.saturating_sub(kept));
            if whole && (added + gone) * hnsw::CHANGED_PART < chunks {
                return Ok(());
            }
        }
        let (graph, bytes) = Graph::build(&vectors)?;
        let hash = vectors::hash(&bytes);
        let file = vectors::file_name("graph", self.number, &hash);
        vectors::write_whole(self.store.folder(), &file, &bytes)?;
        self.connection
            .execute(
                "INSERT OR REPLACE INTO graph VALUES (1, ?1, ?2, ?3, ?4, ?5)",
                params![file, hash, bytes.len() as u64, graph.row_max, vectors.len()],
            )
            .map_err(self.store.sqlite())?;
        self.tidy()
    }
}

/// The vector file of a generation.
struct VectorFile {
    name: String,
    hash: String,
    chunks: usize,
    /// Its last row.
    row_max: i64,
}

impl VectorFile {
    fn put(store: &Store, number: u64, packer: Packer, row_max: i64) -> Result<(Self, Vec<u8>), Error> {
        let chunks = packer.len();
        let bytes = packer.finish();
        let hash = vectors::hash(&bytes);
        let name = vectors::file_name("vectors", number, &hash);
        vectors::write_whole(store.folder(), &name, &bytes)?;
        Ok((Self { name, hash, chunks, row_max }, bytes))
    }
}

/// The vector file of the generation before, when it will do for the next one: it is there, and few
/// chunks were added or are gone since it was made. Writing a large one, and reading it again in every
/// process, takes longer than everything else about a changed file.
fn kept(
    store: &Store,
    transaction: &Transaction<'_>,
    before: &Generation,
    chunks: usize,
) -> rusqlite::Result<Option<VectorFile>> {
    let gone: usize = one(transaction, "SELECT count(*) FROM gone")?;
    let added = (chunks + gone).saturating_sub(before.packed_chunks);
    let few = (added + gone) * TAIL_PART < before.packed_chunks;
    let bytes = Vectors::file_bytes(before.model.dimensions, before.packed_chunks);
    let path = store.folder().join(&before.vectors_file);
    let whole = || fs::metadata(path).is_ok_and(|metadata| metadata.len() == bytes);
    // Where a graph is missing it is made of a file.
    let graph = || -> rusqlite::Result<bool> {
        let sql = "SELECT file, size FROM graph";
        let graph = transaction
            .query_row(sql, [], |row| Ok((row.get::<_, String>(0)?, row.get::<_, u64>(1)?)))
            .optional()?;
        let is_whole = |(file, size): (String, u64)| {
            fs::metadata(store.folder().join(file)).is_ok_and(|metadata| metadata.len() == size)
        };
        Ok(graph.is_some_and(is_whole))
    };
    let enough = chunks >= store.limits.tail;
    let kept = enough && few && whole() && (chunks < store.limits.graph || graph()?);
    Ok(kept.then(|| VectorFile {
        name: before.vectors_file.clone(),
        hash: before.vectors_hash.clone(),
        chunks: before.packed_chunks,
        row_max: before.packed_row_max,
    }))
}

/// Makes ready for a file of all chunks that there are; its last row.
fn forget_gone(transaction: &Transaction<'_>) -> rusqlite::Result<i64> {
    transaction.execute_batch("DELETE FROM gone")?;
    transaction.query_row("SELECT coalesce(max(row), 0) FROM chunks", [], |row| row.get(0))
}

/// One more than any generation that has left a trace, so that a number is not used twice even
/// when the database was dropped.
fn next_number(store: &Store, before: Option<&Generation>) -> Result<u64, Error> {
    let traces = derived_files(store)?;
    let traces = traces.iter().filter_map(|name| vectors::generation_of(name, "vectors"));
    Ok(traces.chain(before.map(|before| before.number)).max().unwrap_or(0) + 1)
}

fn derived_files(store: &Store) -> Result<Vec<String>, Error> {
    let folder = store.folder();
    let names = fs::read_dir(folder).map_err(io_error("list", folder))?;
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter(|name| name.starts_with("vectors-") || name.starts_with("graph-")).collect())
}

/// What is found.
struct Made {
    before: Option<Generation>,
    first_row: i64,
    work: Work,
}

/// Finds the work.
struct Maker<'a> {
    store: &'a Store,
    connection: &'a Connection,
    brain: &'a dyn Files,
    tokens: &'a dyn CountTokens,
    before: Option<Generation>,
    /// Everything is read and cut again: another model, other rules, or a rebuild.
    reread: bool,
    /// Vectors of the generation before may be used.
    reuse: bool,
}

impl<'a> Maker<'a> {
    fn new(
        store: &'a Store,
        connection: &'a Connection,
        brain: &'a dyn Files,
        tokens: &'a dyn CountTokens,
        mode: Mode,
        model: &ModelLabel,
    ) -> Result<Self, Error> {
        let before = generation_of(connection).map_err(store.sqlite())?;
        let same_model = before.as_ref().is_some_and(|before| before.model == *model);
        let same_rules = before.as_ref().is_some_and(|before| before.rules == chunk::RULES_VERSION);
        let reuse = mode == Mode::Changed && same_model;
        Ok(Self { store, connection, brain, tokens, before, reread: !(reuse && same_rules), reuse })
    }

    fn make(self, progress: &mut dyn FnMut(Progress)) -> Result<Made, Error> {
        let first_row = next_row(self.connection).map_err(self.store.sqlite())?;
        let known = match &self.before {
            Some(before) => {
                file_table::known(self.store, self.connection, before).map_err(self.store.sqlite())?
            }
            None => FileRows::default(),
        };
        let units = self.before.as_ref().map_or(0, |before| before.units);
        let clear = self.reread || !file_table::are_all_known(&known, units);
        let seen = file_table::look_at_all(self.store, self.connection, self.brain, &known, clear, progress)?;
        let Some(seen) = seen else {
            return Ok(Made { before: self.before, first_row, work: Work::default() });
        };
        let mut work = Work {
            clear,
            changed: seen.changed,
            known: Some(seen.rows.into()),
            files: seen.written,
            files_removed: seen.removed,
            units_removed: if clear { BTreeSet::new() } else { seen.units_removed },
            ..Work::default()
        };
        let mut texts: HashMap<TextHash, usize> = HashMap::new();
        let cut: Vec<_> = seen.units.par_iter().map(|(_, unit)| chunk::chunk(unit, self.tokens)).collect();
        for ((path, unit), pieces) in seen.units.into_iter().zip(cut) {
            let chunks = self.chunks(pieces, &mut work.texts, &mut texts)?;
            work.units.push(NewUnit { unit, path, chunks });
        }
        Ok(Made { before: self.before, first_row, work })
    }

    /// Finds out where each piece's vector comes from.
    fn chunks(
        &self,
        pieces: Vec<Piece>,
        texts: &mut Vec<String>,
        known: &mut HashMap<TextHash, usize>,
    ) -> Result<Vec<NewChunk>, Error> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT embedding FROM chunks WHERE text_hash = ?1 LIMIT 1")
            .map_err(self.store.sqlite())?;
        let mut kept = |hash: &TextHash| -> Result<Option<Vec<u8>>, Error> {
            if !self.reuse {
                return Ok(None);
            }
            statement.query_row([hash], |row| row.get(0)).optional().map_err(self.store.sqlite())
        };
        pieces
            .into_iter()
            .map(|piece| {
                let text = piece.embedding_text();
                let text_hash = text_hash(&text);
                let vector = match kept(&text_hash)? {
                    Some(embedding) => Source::Kept(embedding),
                    None => Source::Text(text_number(text, text_hash, texts, known)),
                };
                Ok(NewChunk { piece, text_hash, vector })
            })
            .collect()
    }
}

fn text_hash(text: &str) -> TextHash {
    let mut hash = TextHash::default();
    hash.copy_from_slice(&blake3::hash(text.as_bytes()).as_bytes()[..16]);
    hash
}

/// The place of a text among the different texts that need a vector.
fn text_number(
    text: String,
    hash: TextHash,
    texts: &mut Vec<String>,
    known: &mut HashMap<TextHash, usize>,
) -> usize {
    *known.entry(hash).or_insert_with(|| {
        texts.push(text);
        texts.len() - 1
    })
}

/// `packed_row_max`: the last row of the vector file; what is deleted up to it is kept in `gone`.
fn apply(
    transaction: &Transaction<'_>,
    work: &Work,
    embeddings: &[Vec<u8>],
    first_row: i64,
    packed_row_max: i64,
) -> rusqlite::Result<()> {
    if work.clear {
        transaction.execute_batch(schema::CLEAR)?;
    }
    for path in &work.files_removed {
        transaction.prepare_cached("DELETE FROM files WHERE path = ?1")?.execute([path])?;
    }
    for id in &work.units_removed {
        transaction
            .prepare_cached(
                "INSERT INTO gone SELECT row, embedding FROM chunks WHERE unit_id = ?1 AND row <= ?2",
            )?
            .execute(params![id, packed_row_max])?;
        for sql in [
            "DELETE FROM chunks_fts WHERE rowid IN (SELECT row FROM chunks WHERE unit_id = ?1)",
            "DELETE FROM chunks WHERE unit_id = ?1",
            "DELETE FROM relationships WHERE source_id = ?1",
            "DELETE FROM units WHERE id = ?1",
        ] {
            transaction.prepare_cached(sql)?.execute([id])?;
        }
    }
    for row in &work.files {
        file_table::put(transaction, row)?;
    }
    let mut row = first_row;
    for NewUnit { unit, path, chunks } in &work.units {
        put_unit(transaction, unit, path)?;
        for (position, chunk) in chunks.iter().enumerate() {
            let NewChunk { piece, text_hash, .. } = chunk;
            transaction
                .prepare_cached(
                    "INSERT INTO chunks(row, unit_id, position, heading_level, heading_breadcrumb, text,
                     tokens, text_hash, embedding) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                )?
                .execute(params![
                    row,
                    unit.id.as_str(),
                    position,
                    piece.level,
                    piece.breadcrumb,
                    piece.text,
                    piece.tokens,
                    text_hash,
                    chunk.embedding(embeddings)
                ])?;
            let [heading, text, parts] = searchable(unit, position, piece);
            transaction
                .prepare_cached(
                    "INSERT INTO chunks_fts(rowid, heading, text, parts) VALUES (?1, ?2, ?3, ?4)",
                )?
                .execute((row, heading, text, parts))?;
            row += 1;
        }
    }
    Ok(())
}

/// The columns of a chunk in the full-text table: heading, text and the parts of its identifiers.
fn searchable(unit: &Unit, position: usize, piece: &Piece) -> [String; 3] {
    let mut heading = format!("{}\n{}", piece.breadcrumb, unit.tags.join(" "));
    if let Some(description) = unit.description.as_ref().filter(|_| position == 0) {
        heading.push('\n');
        heading.push_str(description);
    }
    let (heading, text) = (text::visible(&heading), text::visible(&piece.text));
    let parts = identifiers::parts_of_identifiers(&[&heading, &text]);
    [heading, text, parts]
}

/// The row that the next chunk gets.
fn next_row(connection: &Connection) -> rusqlite::Result<i64> {
    let sql = "SELECT coalesce(max(seq), 0) + 1 FROM sqlite_sequence WHERE name = 'chunks'";
    connection.query_row(sql, [], |row| row.get(0))
}

fn put_unit(transaction: &Transaction<'_>, unit: &Unit, path: &str) -> rusqlite::Result<()> {
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
    Ok(())
}

pub(crate) fn generation_of(connection: &Connection) -> rusqlite::Result<Option<Generation>> {
    connection
        .prepare_cached(
            "SELECT number, model, dimensions, rules, vectors_file, vectors_hash, packed_chunks, packed_row_max,
                    built, units FROM generation",
        )?
        .query_row([], |row| {
            Ok(Generation {
                number: row.get(0)?,
                model: ModelLabel { name: row.get(1)?, dimensions: row.get(2)? },
                rules: row.get(3)?,
                vectors_file: row.get(4)?,
                vectors_hash: row.get(5)?,
                packed_chunks: row.get(6)?,
                packed_row_max: row.get(7)?,
                built: row.get(8)?,
                units: row.get(9)?,
            })
        })
        .optional()
}

fn one(connection: &Connection, sql: &str) -> rusqlite::Result<usize> {
    connection.query_row(sql, [], |row| row.get(0))
}

/// Whether every page is sound, and fit to be written to. What the words' table holds is of no matter: it is emptied.
fn is_sound(connection: &Connection) -> bool {
    let pages = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    pages.is_ok_and(|answer| answer == "ok")
}

#[cfg(test)]
impl Plan {
    /// All of publishing but the commit, as a killed process leaves it.
    pub(crate) fn write_and_die(mut self, vector: &[f32]) {
        let embeddings =
            vec![vectors::to_embedding(vector, self.model.dimensions).unwrap(); self.work.texts.len()];
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        apply(&transaction, &self.work, &embeddings, self.first_row, i64::MAX).unwrap();
        let part = Part::Until(i64::MAX);
        let bytes = snapshot::pack(&transaction, self.model.dimensions, 0, part).unwrap().unwrap().finish();
        let file = vectors::file_name("vectors", self.number, &vectors::hash(&bytes));
        vectors::write_whole(self.store.folder(), &file, &bytes).unwrap();
    }
}
