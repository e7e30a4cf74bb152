//! What the index knows of the brain's files, and what has changed since.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use brain::{BrainFile, Files};
use knowledge::{Document, Unit};
use rayon::prelude::*;
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, TransactionBehavior, params};
use transcript::redact::redact;

use crate::builder::{Generation, Progress, generation_of};
use crate::store::{BuilderLock, Store};
use crate::{Error, ModelLabel, chunk, schema};

/// A file that was written less than this before it was read may change again without its time
/// changing: file systems count time in steps of up to two seconds.
const SETTLING_NS: i128 = 2_000_000_000;

/// How many files are read before progress is told.
const READ_AT_ONCE: usize = 512;

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

/// All rows of the table of files, by path.
pub(crate) type FileRows = Arc<[Arc<FileRow>]>;

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

    /// The id of the unit that was made of it.
    fn owned(&self) -> Option<&str> {
        self.unit_id.as_deref().filter(|_| self.problem.is_none())
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

/// The row of a path among rows by path, for paths that are asked for in ascending order: one walk over both
/// instead of a search for each.
fn beside<'r>(rows: &'r [Arc<FileRow>]) -> impl FnMut(&str) -> Option<&'r Arc<FileRow>> {
    let mut rest = rows;
    move |path| {
        while let Some((first, after)) = rest.split_first() {
            match first.path.as_str().cmp(path) {
                std::cmp::Ordering::Less => rest = after,
                std::cmp::Ordering::Equal => return Some(first),
                std::cmp::Ordering::Greater => return None,
            }
        }
        None
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
    let known = known(store, &transaction, &generation).map_err(store.sqlite())?;
    if known.len() != files.len() {
        return Ok(false);
    }
    // A server asks again and again and the rows are those of last time; a builder elsewhere may have noted a
    // file's new time without a new generation.
    let mut noted_elsewhere = false;
    let mut settled = Vec::new();
    for (file, row) in files.iter().zip(&*known) {
        if file.path != row.path {
            return Ok(false);
        }
        let fresh;
        let mut row = row.as_ref();
        if !row.has_stamp(file) {
            let found = file_of(&transaction, &row.path).map_err(store.sqlite())?;
            let Some(found) = found.filter(|found| found.has_stamp(file)) else { return Ok(false) };
            fresh = found;
            row = &fresh;
            noted_elsewhere = true;
        }
        if row.looks_like(file) {
            continue;
        }
        let now = FileRow::new(file);
        let same = match read_content(brain, &file.path) {
            Content::Text { hash, .. } => row.hash == Some(hash),
            Content::Unreadable(what) => row.hash.is_none() && row.problem == Some((1, what)),
            Content::Gone => false,
        };
        if !same {
            return Ok(false);
        }
        if now.settled && !row.settled {
            settled.push(FileRow { settled: true, ..row.clone() });
        }
    }
    drop(transaction);
    drop(connection);
    if !settled.is_empty() {
        settle(store, &settled);
    }
    if noted_elsewhere || !settled.is_empty() {
        *store.cached_files() = None;
    }
    Ok(true)
}

/// The rows of a generation: those of last time, or read anew where there is another one.
pub(crate) fn known(
    store: &Store,
    connection: &Connection,
    generation: &Generation,
) -> rusqlite::Result<FileRows> {
    let key = generation.key();
    if let Some((_, rows)) = store.cached_files().as_ref().filter(|known| known.0 == key) {
        return Ok(rows.clone());
    }
    let rows = files_of(connection)?;
    *store.cached_files() = Some((key, rows.clone()));
    Ok(rows)
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

/// What has become of the files.
#[derive(Default)]
pub(crate) struct Seen {
    /// What is known of them from now on, by path.
    pub(crate) rows: Vec<Arc<FileRow>>,
    /// The units of files that were read, by path.
    pub(crate) units: Vec<(String, Unit)>,
    /// Rows that are new or other than before.
    pub(crate) written: Vec<Arc<FileRow>>,
    pub(crate) removed: Vec<String>,
    /// Units that go, or are put in anew.
    pub(crate) units_removed: BTreeSet<String>,
    /// How many files are new or have other content.
    pub(crate) changed: usize,
}

/// Finds what has changed; `known`: what was known before, of which nothing is believed when `is_reread`.
/// `None` when no file has other content: new times are noted then.
pub(crate) fn look_at_all(
    store: &Store,
    connection: &Connection,
    brain: &dyn Files,
    known: &[Arc<FileRow>],
    is_reread: bool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Option<Seen>, Error> {
    let files = brain.files().map_err(Error::Brain)?;
    let mut look = Look::at(brain, &files, known, is_reread, progress);
    let removed: Vec<String> = {
        let mut now = beside(&look.rows);
        known.iter().filter(|row| now(&row.path).is_none()).map(|row| row.path.clone()).collect()
    };
    if look.changed.is_empty() && removed.is_empty() && !is_reread {
        if !look.touched.is_empty() {
            stamp(connection, &look.touched).map_err(store.sqlite())?;
            *store.cached_files() = None;
        }
        return Ok(None);
    }
    let units_removed = look.give_ids(brain, &files, known);
    let mut before = beside(known);
    let is_new = |row: &&Arc<FileRow>| is_reread || before(&row.path) != Some(*row);
    let written = look.rows.iter().filter(is_new).cloned().collect();
    let Look { rows, units, changed, .. } = look;
    Ok(Some(Seen { rows, units, written, removed, units_removed, changed: changed.len() }))
}

/// One look at all files.
#[derive(Default)]
struct Look {
    /// By path.
    rows: Vec<Arc<FileRow>>,
    /// The units of files that were read, by path.
    units: Vec<(String, Unit)>,
    /// Paths of files that are new or have other content.
    changed: HashSet<String>,
    /// Rows of files with another time and the same content.
    touched: Vec<Arc<FileRow>>,
}

impl Look {
    /// Compares every file with what is known of it, and reads those that may have changed.
    fn at(
        brain: &dyn Files,
        files: &[BrainFile],
        known: &[Arc<FileRow>],
        is_reread: bool,
        progress: &mut dyn FnMut(Progress),
    ) -> Self {
        let mut look = Self::default();
        let mut before = beside(known);
        let mut rows: Vec<Option<Arc<FileRow>>> = Vec::with_capacity(files.len());
        let mut suspects = Vec::new();
        for (at, file) in files.iter().enumerate() {
            let before = before(&file.path).filter(|_| !is_reread);
            let same = before.filter(|row| row.looks_like(file));
            if same.is_none() {
                suspects.push((at, before));
            }
            rows.push(same.cloned());
        }
        let mut compared = files.len() - suspects.len();
        for block in suspects.chunks(READ_AT_ONCE) {
            progress(Progress { files: compared, files_total: files.len() });
            compared += block.len();
            let read_one = |(at, before): &(usize, Option<&Arc<FileRow>>)| {
                read(brain, &files[*at], before.map(Arc::as_ref))
            };
            let found: Vec<_> = block.par_iter().map(read_one).collect();
            for ((at, before), found) in block.iter().zip(found) {
                let Some((row, unit)) = found else { continue };
                let row = Arc::new(row);
                match before {
                    Some(before) if before.says_the_same_as(&row) => {
                        if **before != row {
                            look.touched.push(row.clone());
                        }
                    }
                    _ => {
                        look.changed.insert(row.path.clone());
                        look.units.extend(unit.map(|unit| (row.path.clone(), unit)));
                    }
                }
                rows[*at] = Some(row);
            }
        }
        progress(Progress { files: files.len(), files_total: files.len() });
        look.rows = rows.into_iter().flatten().collect();
        look
    }

    /// Of several files that claim one id the first by path has it; the others are problems. Leaves
    /// only the units to be put in, and returns the ids of those to be taken out before.
    fn give_ids(
        &mut self,
        brain: &dyn Files,
        files: &[BrainFile],
        known: &[Arc<FileRow>],
    ) -> BTreeSet<String> {
        // A file that was second until now may be first from now on, so it is read along.
        for row in &mut self.rows {
            if row.unit_id.is_none() || row.problem.is_none() || self.changed.contains(&row.path) {
                continue;
            }
            let Ok(at) = files.binary_search_by(|file| file.path.cmp(&row.path)) else { continue };
            let Some((found, unit)) = read(brain, &files[at], None) else { continue };
            self.units.extend(unit.map(|unit| (row.path.clone(), unit)));
            *row = Arc::new(found);
        }
        let mut winners: HashMap<&str, &str> = HashMap::with_capacity(self.rows.len());
        let mut others = Vec::new();
        for (at, row) in self.rows.iter().enumerate() {
            let Some(id) = row.unit_id.as_deref() else { continue };
            let winner = *winners.entry(id).or_insert(&row.path);
            let problem = (winner != row.path).then(|| (1, format!("has the id `{id}` of {winner}")));
            if row.problem != problem {
                others.push((at, problem));
            }
        }
        let owned = known.iter().filter_map(|row| row.owned().map(|id| (id, &row.path)));
        let goes =
            |id: &str, path: &String| self.changed.contains(path) || winners.get(id) != Some(&path.as_str());
        let removed = owned.filter(|(id, path)| goes(id, path)).map(|(id, _)| id.to_owned()).collect();
        for (at, problem) in others {
            Arc::make_mut(&mut self.rows[at]).problem = problem;
        }
        // Those that were read along came last.
        self.units.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut row = beside(&self.rows);
        self.units.retain(|(path, _)| row(path).is_some_and(|row| row.owned().is_some()));
        removed
    }
}

/// Reads a file, and its unit unless `before` has the same content; `None` when it is gone.
fn read(brain: &dyn Files, file: &BrainFile, before: Option<&FileRow>) -> Option<(FileRow, Option<Unit>)> {
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

/// Notes new times of files whose content is the same, so that they are not read again.
fn stamp(connection: &Connection, rows: &[Arc<FileRow>]) -> rusqlite::Result<()> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    for row in rows {
        put(&transaction, row)?;
    }
    transaction.commit()
}

pub(crate) fn put(transaction: &Transaction<'_>, row: &FileRow) -> rusqlite::Result<()> {
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

const COLUMNS: &str =
    "SELECT path, size, modified_ns, settled, hash, unit_id, problem_line, problem FROM files";

fn files_of(connection: &Connection) -> rusqlite::Result<FileRows> {
    let sql = format!("{COLUMNS} ORDER BY path");
    let mut statement = connection.prepare_cached(&sql)?;
    statement.query_map([], |row| file_row(row).map(Arc::new))?.collect()
}

fn file_of(connection: &Connection, path: &str) -> rusqlite::Result<Option<FileRow>> {
    connection.prepare_cached(&format!("{COLUMNS} WHERE path = ?1"))?.query_row([path], file_row).optional()
}

fn file_row(row: &Row<'_>) -> rusqlite::Result<FileRow> {
    Ok(FileRow {
        path: row.get(0)?,
        size: row.get(1)?,
        modified_ns: row.get(2)?,
        settled: row.get(3)?,
        hash: row.get(4)?,
        unit_id: row.get(5)?,
        problem: row.get::<_, Option<usize>>(6)?.zip(row.get(7)?),
    })
}

/// Whether as many units are known by their files as there are: a generation of given units has none.
pub(crate) fn are_all_known(rows: &[Arc<FileRow>], units: usize) -> bool {
    rows.iter().filter(|row| row.owned().is_some()).count() == units
}
