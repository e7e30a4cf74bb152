//! Building: what has to change, and the next generation with it changed.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use brain::{BrainFile, Files, parallel};
use knowledge::{CountTokens, Document, Unit, text};
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};
use transcript::redact::redact;

use crate::chunk::{self, Piece};
use crate::graph::{self, Graph};
use crate::read::Part;
use crate::store::{BuilderLock, Store, io_error};
use crate::vectors::{self, Vectors};
use crate::{Error, ModelLabel, read, schema, store, words};

/// A file that was written less than this before it was read may change again without its time
/// changing: file systems count time in steps of up to two seconds.
const SETTLING_NS: i128 = 2_000_000_000;

/// How many files are read before progress is told.
const READ_AT_ONCE: usize = 512;
/// How many units' words are prepared at once.
const PREPARE_AT_ONCE: usize = 256;

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
pub struct Given {
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
    work: Work,
    // Last, so that the connection is closed before another builder begins.
    _lock: BuilderLock,
}

#[derive(Default)]
struct Work {
    /// Nothing of the generation before is kept.
    clear: bool,
    /// New or other rows of the table of files.
    files: Vec<FileRow>,
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

/// Where a new chunk's vector comes from.
enum Source {
    /// A chunk with the same text had it already.
    Kept(Vec<u8>),
    /// An index into the plan's texts.
    Text(usize),
}

type TextHash = [u8; 16];

struct Generation {
    number: u64,
    model: ModelLabel,
    rules: u32,
    vectors_file: String,
    vectors_hash: String,
    packed_chunks: usize,
    packed_row_max: i64,
    /// When it was made, which tells it from one of the same number in another database.
    built: String,
}

/// A row of the table of files: what the index knows of a file of the brain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileRow {
    path: String,
    size: u64,
    modified_ns: i64,
    /// Whether size and time are enough to tell that it has not changed.
    settled: bool,
    /// `None` for a file that cannot be read.
    hash: Option<[u8; 32]>,
    /// The id that its front matter claims, whether it got it or not.
    unit_id: Option<String>,
    problem: Option<(usize, String)>,
}

impl FileRow {
    fn new(file: &BrainFile) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as i128);
        Self {
            path: file.path.clone(),
            size: file.size,
            modified_ns: nanoseconds(file),
            settled: file.modified_ns < now - SETTLING_NS,
            hash: None,
            unit_id: None,
            problem: None,
        }
    }

    fn looks_like(&self, file: &BrainFile) -> bool {
        self.settled && self.hash.is_some() && self.has_stamp(file)
    }

    /// Whether another look gave the same content, or the same trouble in getting it.
    fn says_the_same_as(&self, other: &Self) -> bool {
        self.hash == other.hash && self.unit_id == other.unit_id && self.problem == other.problem
    }

    fn has_stamp(&self, file: &BrainFile) -> bool {
        self.size == file.size && self.modified_ns == nanoseconds(file)
    }
}

fn nanoseconds(file: &BrainFile) -> i64 {
    i64::try_from(file.modified_ns).unwrap_or(i64::MAX)
}

/// A person may have written a secret into their brain. It stays in their file, and is neither kept in
/// the index nor told to whoever asks.
fn without_secrets(unit: &mut Unit) {
    for text in [Some(&mut unit.title), Some(&mut unit.body), unit.description.as_mut()].into_iter().flatten()
    {
        if let Cow::Owned(clean) = redact(text) {
            *text = clean;
        }
    }
}

/// What reading a file gave.
enum Content {
    Text { text: String, hash: [u8; 32] },
    Unreadable(String),
    Gone,
}

fn read_content(brain: &dyn Files, path: &str) -> Content {
    match brain.read(path) {
        Ok(text) => {
            let hash = *blake3::hash(text.as_bytes()).as_bytes();
            Content::Text { text, hash }
        }
        Err(brain::Error::Read { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Content::Gone
        }
        Err(brain::Error::Read { source, .. }) => Content::Unreadable(format!("cannot be read: {source}")),
        Err(brain::Error::TooLarge { .. }) => {
            Content::Unreadable(format!("larger than {} KiB", brain::UNIT_BYTES_MAX / 1024))
        }
        Err(brain::Error::NotUtf8 { .. }) => Content::Unreadable("not UTF-8".to_owned()),
        Err(error) => Content::Unreadable(error.to_string()),
    }
}

pub(crate) fn is_current(store: &Store, brain: &dyn Files, model: &ModelLabel) -> Result<bool, Error> {
    if store.is_marked_damaged() {
        return Ok(false);
    }
    let files = brain.files().map_err(Error::Brain)?;
    let mut connection = store.reader()?;
    let transaction = connection.transaction().map_err(store.sqlite())?;
    let generation = match generation_of(&transaction) {
        Ok(Some(generation)) => generation,
        Ok(None) => return Ok(false),
        Err(error) if schema::is_unmade(&error) => return Ok(false),
        Err(error) => return Err(store.sqlite()(error)),
    };
    if generation.model != *model || generation.rules != chunk::RULES_VERSION {
        return Ok(false);
    }
    // A server asks again and again; only where the rows of last time do not agree are they read anew, for
    // a builder may have noted something without a new generation.
    let key = (generation.number, generation.built);
    let known = store.cached_files().clone().filter(|known| known.0 == key);
    if let Some(known) = known
        && agrees(store, brain, &files, &known.1)
    {
        return Ok(true);
    }
    let rows = Arc::new(files_of(&transaction).map_err(store.sqlite())?);
    drop(transaction);
    drop(connection);
    *store.cached_files() = Some((key, rows.clone()));
    Ok(agrees(store, brain, &files, &rows))
}

/// Whether the files are what is known of them.
fn agrees(store: &Store, brain: &dyn Files, files: &[BrainFile], known: &[FileRow]) -> bool {
    if known.len() != files.len() {
        return false;
    }
    let mut settled = Vec::new();
    for (file, known) in files.iter().zip(known) {
        if file.path != known.path || !known.has_stamp(file) {
            return false;
        }
        if known.looks_like(file) {
            continue;
        }
        let now = FileRow::new(file);
        let same = match read_content(brain, &file.path) {
            Content::Text { hash, .. } => known.hash == Some(hash),
            Content::Unreadable(what) => known.hash.is_none() && known.problem == Some((1, what)),
            Content::Gone => false,
        };
        if !same {
            return false;
        }
        if now.settled && !known.settled {
            settled.push(FileRow { settled: true, ..known.clone() });
        }
    }
    if !settled.is_empty() {
        settle(store, &settled);
        *store.cached_files() = None;
    }
    true
}

/// Notes that files need not be read again, if no builder is at work; it would do so itself.
fn settle(store: &Store, rows: &[FileRow]) {
    let note = || -> Result<(), Error> {
        let Some(lock) = BuilderLock::try_take(store.folder())? else { return Ok(()) };
        let mut connection = store.writer(&lock)?;
        let mut write = || -> rusqlite::Result<()> {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for row in rows {
                transaction
                    .prepare_cached(
                        "UPDATE files SET settled = 1
                         WHERE path = ?1 AND size = ?2 AND modified_ns = ?3 AND hash IS ?4",
                    )?
                    .execute(params![row.path, row.size, row.modified_ns, row.hash])?;
            }
            transaction.commit()
        };
        write().map_err(store.sqlite())
    };
    if let Err(error) = note() {
        tracing::debug!(%error, "failed to note that files have settled");
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
        let (connection, (before, work)) = match make(progress) {
            // The damage was marked where it was met; this time the database is made anew.
            Err(Error::Sqlite { source, .. }) if schema::is_damage(&source) => make(progress)?,
            other => other?,
        };
        let number = next_number(&store, before.as_ref())?;
        let plan = Self { store, connection, model: model.clone(), before, number, work, _lock: lock };
        plan.tidy()?;
        Ok(plan)
    }

    pub(crate) fn given(
        store: Arc<Store>,
        lock: BuilderLock,
        units: Vec<Given>,
        model: &ModelLabel,
    ) -> Result<Self, Error> {
        let connection = store.writer(&lock)?;
        let before = generation_of(&connection).map_err(store.sqlite())?;
        let mut work = Work { clear: true, changed: units.len(), ..Work::default() };
        let mut known = HashMap::new();
        for Given { unit, pieces } in units {
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
        Ok(Self { store, connection, model: model.clone(), before, number, work, _lock: lock })
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
        let embeddings: Vec<Vec<u8>> =
            parallel::map(&vectors, |vector| vectors::to_embedding(vector, dimensions))
                .into_iter()
                .collect::<Result<_, _>>()?;
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
        let work = &self.work;
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(store.sqlite())?;
        let before = self.before.as_ref().filter(|_| !work.clear);
        apply(&transaction, work, embeddings, before.map_or(0, |before| before.packed_row_max))
            .map_err(store.sqlite())?;
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
                let bytes =
                    read::pack(&transaction, model.dimensions, chunks, part).map_err(store.sqlite())??;
                let hash = vectors::hash(&bytes);
                let name = vectors::file_name("vectors", number, &hash);
                vectors::write_whole(store.folder(), &name, &bytes)?;
                (VectorFile { name, hash, chunks, row_max }, Some(bytes))
            }
        };
        failpoint::here!("index-after-vector-file");
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
                    jiff::Timestamp::now().to_string()
                ],
            )
            .map_err(store.sqlite())?;
        transaction.commit().map_err(store.sqlite())?;
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
            if whole && (added + gone) * graph::CHANGED_PART < chunks {
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

    fn make(self, progress: &mut dyn FnMut(Progress)) -> Result<(Option<Generation>, Work), Error> {
        let known = files_of(self.connection).map_err(self.store.sqlite())?;
        let known: BTreeMap<String, FileRow> = known.into_iter().map(|row| (row.path.clone(), row)).collect();
        let files = self.brain.files().map_err(Error::Brain)?;
        let mut seen = self.compare(&files, &known, progress);
        let removed: Vec<String> =
            known.keys().filter(|path| !seen.rows.contains_key(*path)).cloned().collect();
        if seen.changed.is_empty() && removed.is_empty() && !self.reread {
            self.stamp(&seen.touched)?;
            return Ok((self.before, Work::default()));
        }
        let units_removed = self.give_ids(&files, &mut seen)?;
        let mut work = Work {
            clear: self.reread,
            changed: seen.changed.len(),
            files_removed: removed,
            units_removed,
            ..Work::default()
        };
        let mut texts: HashMap<TextHash, usize> = HashMap::new();
        let units: Vec<(String, Unit)> = seen.units.into_iter().collect();
        let cut = parallel::map(&units, |(_, unit)| {
            let texts = chunk::chunk(unit, self.tokens).into_iter().map(|piece| {
                let text = piece.embedding_text();
                (piece, text_hash(&text), text)
            });
            texts.collect::<Vec<_>>()
        });
        for ((path, unit), pieces) in units.into_iter().zip(cut) {
            let chunks = self.chunks(pieces, &mut work.texts, &mut texts)?;
            work.units.push(NewUnit { unit, path, chunks });
        }
        // Rows that stay as they are need not be written.
        let is_new = |row: &FileRow| work.clear || known.get(&row.path) != Some(row);
        work.files = seen.rows.into_values().filter(is_new).collect();
        Ok((self.before, work))
    }

    /// Compares every file with what is known of it, and reads those that may have changed.
    fn compare(
        &self,
        files: &[BrainFile],
        known: &BTreeMap<String, FileRow>,
        progress: &mut dyn FnMut(Progress),
    ) -> Seen {
        let mut seen = Seen::default();
        let mut suspects = Vec::new();
        for file in files {
            let before = known.get(&file.path).filter(|_| !self.reread);
            match before.filter(|row| row.looks_like(file)) {
                Some(row) => drop(seen.rows.insert(file.path.clone(), row.clone())),
                None => suspects.push((file, before)),
            }
        }
        for block in suspects.chunks(READ_AT_ONCE) {
            progress(Progress { files: seen.rows.len(), files_total: files.len() });
            let found = parallel::map(block, |(file, before)| look(self.brain, file, *before));
            for ((file, before), found) in block.iter().zip(found) {
                let Some((row, unit)) = found else { continue };
                match before {
                    Some(before) if before.says_the_same_as(&row) => {
                        if **before != row {
                            seen.touched.push(row.clone());
                        }
                    }
                    _ => {
                        seen.changed.insert(file.path.clone());
                        seen.units.extend(unit.map(|unit| (file.path.clone(), unit)));
                    }
                }
                seen.rows.insert(file.path.clone(), row);
            }
        }
        progress(Progress { files: files.len(), files_total: files.len() });
        seen
    }

    /// Of several files that claim one id the first by path has it; the others are problems. Leaves
    /// in `seen` the units to be put in, and returns the ids of those to be taken out before.
    fn give_ids(&self, files: &[BrainFile], seen: &mut Seen) -> Result<BTreeSet<String>, Error> {
        let owners = owners_of(self.connection).map_err(self.store.sqlite())?;
        let owns = |row: &FileRow| {
            row.unit_id.as_ref().is_none_or(|id| owners.get(id).is_some_and(|path| *path == row.path))
        };
        // A file that was second until now may be first from now on, so it is read along.
        let second = |row: &&FileRow| !seen.changed.contains(&row.path) && !owns(row);
        let second: Vec<String> = seen.rows.values().filter(second).map(|row| row.path.clone()).collect();
        for path in second {
            let Ok(at) = files.binary_search_by(|file| file.path.cmp(&path)) else { continue };
            let Some((row, unit)) = look(self.brain, &files[at], None) else { continue };
            seen.units.extend(unit.map(|unit| (path.clone(), unit)));
            seen.rows.insert(path, row);
        }
        let mut winners: BTreeMap<String, String> = BTreeMap::new();
        for row in seen.rows.values() {
            if let Some(id) = &row.unit_id {
                winners.entry(id.clone()).or_insert_with(|| row.path.clone());
            }
        }
        for row in seen.rows.values_mut() {
            let Some(id) = &row.unit_id else { continue };
            let winner = &winners[id];
            if *winner == row.path {
                row.problem = None;
            } else {
                row.problem = Some((1, format!("has the id `{id}` of {winner}")));
                seen.units.remove(&row.path);
            }
        }
        let goes = |id: &String, path: &String| seen.changed.contains(path) || winners.get(id) != Some(path);
        Ok(owners.iter().filter(|(id, path)| goes(id, path)).map(|(id, _)| id.clone()).collect())
    }

    /// Finds out where each piece's vector comes from.
    fn chunks(
        &self,
        pieces: Vec<(Piece, TextHash, String)>,
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
            .map(|(piece, text_hash, text)| {
                let vector = match kept(&text_hash)? {
                    Some(embedding) => Source::Kept(embedding),
                    None => Source::Text(text_number(text, text_hash, texts, known)),
                };
                Ok(NewChunk { piece, text_hash, vector })
            })
            .collect()
    }

    /// Notes new times of files whose content is the same, so that they are not read again.
    fn stamp(&self, rows: &[FileRow]) -> Result<(), Error> {
        if rows.is_empty() {
            return Ok(());
        }
        let write = || -> rusqlite::Result<()> {
            let transaction = Transaction::new_unchecked(self.connection, TransactionBehavior::Immediate)?;
            for row in rows {
                put_file(&transaction, row)?;
            }
            transaction.commit()
        };
        write().map_err(self.store.sqlite())
    }
}

/// Reads a file, and its unit unless `before` has the same content; `None` when it is gone.
fn look(brain: &dyn Files, file: &BrainFile, before: Option<&FileRow>) -> Option<(FileRow, Option<Unit>)> {
    let mut row = FileRow::new(file);
    let mut found = None;
    match read_content(brain, &file.path) {
        Content::Gone => return None,
        Content::Unreadable(what) => row.problem = Some((1, what)),
        Content::Text { hash, .. } if before.is_some_and(|before| before.hash == Some(hash)) => {
            row.hash = Some(hash);
            row.unit_id = before.and_then(|before| before.unit_id.clone());
            row.problem = before.and_then(|before| before.problem.clone());
        }
        Content::Text { text, hash } => {
            row.hash = Some(hash);
            match Document::parse(text).and_then(|document| document.unit(&file.path)) {
                Ok(mut unit) => {
                    row.unit_id = Some(unit.id.as_str().to_owned());
                    without_secrets(&mut unit);
                    found = Some(unit);
                }
                Err(error) => row.problem = Some((error.line, error.what)),
            }
        }
    }
    Some((row, found))
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

/// What the files are now.
#[derive(Default)]
struct Seen {
    /// By path.
    rows: BTreeMap<String, FileRow>,
    /// The units of files that were read, by path.
    units: BTreeMap<String, Unit>,
    /// Paths of files that are new or have other content.
    changed: BTreeSet<String>,
    /// Rows of files with another time and the same content.
    touched: Vec<FileRow>,
}

/// `packed_row_max`: the last row of the vector file; what is deleted up to it is kept in `gone`.
fn apply(
    transaction: &Transaction<'_>,
    work: &Work,
    embeddings: &[Vec<u8>],
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
        put_file(transaction, row)?;
    }
    if work.units.len() <= PREPARE_AT_ONCE {
        let words: Vec<_> = work.units.iter().map(searchable).collect();
        return put_units(transaction, &work.units, &words, embeddings);
    }
    // The words of the next units are prepared while those of the last ones are written.
    std::thread::scope(|scope| {
        let (prepared, next) = std::sync::mpsc::sync_channel(2);
        scope.spawn(move || {
            let blocks = work.units.chunks(PREPARE_AT_ONCE);
            // It fails when the writer has failed, and then nobody needs it.
            blocks
                .map(|block| block.iter().map(searchable).collect())
                .try_for_each(|words| prepared.send(words))
        });
        for block in work.units.chunks(PREPARE_AT_ONCE) {
            // None comes when the other thread has panicked, which the scope passes on.
            let Ok(words): Result<Vec<Words>, _> = next.recv() else { break };
            put_units(transaction, block, &words, embeddings)?;
        }
        Ok(())
    })
}

/// What each chunk of a unit is found by: heading, text and parts of identifiers.
type Words = Vec<[String; 3]>;

fn put_units(
    transaction: &Transaction<'_>,
    units: &[NewUnit],
    words: &[Words],
    embeddings: &[Vec<u8>],
) -> rusqlite::Result<()> {
    for (NewUnit { unit, path, chunks }, words) in units.iter().zip(words) {
        put_unit(transaction, unit, path)?;
        for ((position, chunk), [heading, text, parts]) in chunks.iter().enumerate().zip(words) {
            let NewChunk { piece, text_hash, vector } = chunk;
            let embedding = match vector {
                Source::Kept(embedding) => embedding,
                Source::Text(index) => &embeddings[*index],
            };
            transaction
                .prepare_cached(
                    "INSERT INTO chunks(unit_id, position, heading_level, heading_breadcrumb, text,
                     tokens, text_hash, embedding) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                )?
                .execute(params![
                    unit.id.as_str(),
                    position,
                    piece.level,
                    piece.breadcrumb,
                    piece.text,
                    piece.tokens,
                    text_hash,
                    embedding
                ])?;
            let row = transaction.last_insert_rowid();
            transaction
                .prepare_cached(
                    "INSERT INTO chunks_fts(rowid, heading, text, parts) VALUES (?1, ?2, ?3, ?4)",
                )?
                .execute(params![row, heading, text, parts])?;
        }
    }
    Ok(())
}

fn searchable(NewUnit { unit, chunks, .. }: &NewUnit) -> Words {
    let tags = unit.tags.join(" ");
    let of_chunk = |(position, NewChunk { piece, .. }): (usize, &NewChunk)| {
        let mut heading = format!("{}\n{tags}", piece.breadcrumb);
        if let Some(description) = unit.description.as_ref().filter(|_| position == 0) {
            heading.push('\n');
            heading.push_str(description);
        }
        let (heading, text) = (text::visible(&heading), text::visible(&piece.text));
        let parts = words::parts_of_identifiers(&format!("{heading}\n{text}"));
        [heading, text, parts]
    };
    chunks.iter().enumerate().map(of_chunk).collect()
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

fn put_file(transaction: &Transaction<'_>, row: &FileRow) -> rusqlite::Result<()> {
    let (line, problem) = row.problem.as_ref().map(|(line, what)| (*line, what.as_str())).unzip();
    transaction
        .prepare_cached("INSERT OR REPLACE INTO files VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?
        .execute(params![
            row.path,
            row.size,
            row.modified_ns,
            row.settled,
            row.hash,
            row.unit_id,
            line,
            problem
        ])
        .map(drop)
}

/// All rows of the table of files, by path.
fn files_of(connection: &Connection) -> rusqlite::Result<Vec<FileRow>> {
    let sql = "SELECT path, size, modified_ns, settled, hash, unit_id, problem_line, problem FROM files
               ORDER BY path";
    connection
        .prepare_cached(sql)?
        .query_map([], |row| {
            Ok(FileRow {
                path: row.get(0)?,
                size: row.get(1)?,
                modified_ns: row.get(2)?,
                settled: row.get(3)?,
                hash: row.get(4)?,
                unit_id: row.get(5)?,
                problem: row.get::<_, Option<usize>>(6)?.zip(row.get(7)?),
            })
        })?
        .collect()
}

/// Which file each unit was read from.
fn owners_of(connection: &Connection) -> rusqlite::Result<BTreeMap<String, String>> {
    connection
        .prepare_cached("SELECT id, path FROM units")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

fn generation_of(connection: &Connection) -> rusqlite::Result<Option<Generation>> {
    connection
        .prepare_cached(
            "SELECT number, model, dimensions, rules, vectors_file, vectors_hash, packed_chunks, packed_row_max,
                    built FROM generation",
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
            })
        })
        .optional()
}

fn one(connection: &Connection, sql: &str) -> rusqlite::Result<usize> {
    connection.query_row(sql, [], |row| row.get(0))
}

/// The database's own tests, of every page and of the words.
fn is_sound(connection: &Connection) -> bool {
    let words = "INSERT INTO chunks_fts(chunks_fts) VALUES ('integrity-check')";
    let pages = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    pages.is_ok_and(|answer| answer == "ok") && connection.execute_batch(words).is_ok()
}

#[cfg(test)]
impl Plan {
    /// All of publishing but the commit, as a killed process leaves it.
    pub(crate) fn write_and_die(mut self, vector: &[f32]) {
        let embeddings =
            vec![vectors::to_embedding(vector, self.model.dimensions).unwrap(); self.work.texts.len()];
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        apply(&transaction, &self.work, &embeddings, i64::MAX).unwrap();
        let part = Part::Until(i64::MAX);
        let bytes = read::pack(&transaction, self.model.dimensions, 0, part).unwrap().unwrap();
        let file = vectors::file_name("vectors", self.number, &vectors::hash(&bytes));
        vectors::write_whole(self.store.folder(), &file, &bytes).unwrap();
    }
}
