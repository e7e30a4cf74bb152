//! The table of the brain's files, and what has changed in the brain since it was written.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{SystemTime, UNIX_EPOCH};

use brain::{BrainFile, Files};
use knowledge::name::{id_owners, split_owners};
use knowledge::{Document, Unit};
use rayon::prelude::*;
use rusqlite::{Connection, Row, Transaction, TransactionBehavior, params};
use transcript::redact::redact;

use crate::error::Error;
use crate::generation::{Generation, ModelLabel};
use crate::store::{BuilderLock, Store};
use crate::{chunk, schema};

/// A file written less than this before it was read may change again without a new modification time: file
/// systems count time in steps of up to two seconds.
const SETTLING_NS: i128 = 2_000_000_000;

/// How many files are read between two reports of progress.
const READ_AT_ONCE: usize = 512;

/// How far a plan has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Files that were compared, and read where needed.
    pub files: usize,
    /// All files of the brain.
    pub files_total: usize,
}

/// A row of the table of files: what the index knows about a file of the brain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileRow {
    path: String,
    size: u64,
    modified_ns: i64,
    /// Whether an equal size and time prove that the file has not changed.
    settled: bool,
    /// `None` for a file that cannot be read.
    hash: Option<[u8; 32]>,
    /// The id that its front matter claims, even if another file has that id.
    unit_id: Option<String>,
    /// The line and the reason why the file is not in the index.
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

    /// Whether size and time prove that the file has not changed.
    fn is_unchanged(&self, file: &BrainFile) -> bool {
        self.settled && self.hash.is_some() && self.has_stamp(file)
    }

    /// Whether reading the file again gave the same content or the same problem.
    fn has_same_content(&self, other: &Self) -> bool {
        self.hash == other.hash && self.unit_id == other.unit_id && self.problem == other.problem
    }

    fn has_stamp(&self, file: &BrainFile) -> bool {
        self.size == file.size && self.modified_ns == nanoseconds(file)
    }

    /// The id of the unit that the index holds for this file.
    fn indexed_id(&self) -> Option<&str> {
        self.unit_id.as_deref().filter(|_| self.problem.is_none())
    }
}

fn nanoseconds(file: &BrainFile) -> i64 {
    i64::try_from(file.modified_ns).unwrap_or(i64::MAX)
}

/// Redacts secrets that a person has written into their brain: they stay in the file, and are neither kept in the
/// index nor returned by a search.
fn remove_secrets(unit: &mut Unit) {
    let texts = [&mut unit.title, &mut unit.body].into_iter().chain(unit.description.as_mut());
    for text in texts.chain(&mut unit.alternatives) {
        if let Cow::Owned(clean) = redact(text) {
            *text = clean;
        }
    }
}

/// The result of reading a file.
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
        Err(error) => Content::Unreadable(error.reason()),
    }
}

/// Lists the brain's files on a thread of its own while `read` runs: in a large brain both take long.
pub(crate) fn list_files_while<R>(
    brain: &dyn Files,
    read: impl FnOnce() -> R,
) -> (Result<Vec<BrainFile>, Error>, R) {
    std::thread::scope(|scope| {
        let listing = scope.spawn(|| brain.files());
        let read = read();
        let files = listing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (files.map_err(Error::Brain), read)
    })
}

/// What a comparison of a brain with its index says.
pub enum Comparison {
    /// A plan would be empty.
    Current,
    /// Something has changed. What was read for that, unless all has to be read again.
    Outdated(Option<Seen>),
}

/// A brain's files, listed while the index had this generation, and its rows of them.
pub struct Seen {
    generation: String,
    pub(crate) files: Vec<BrainFile>,
    pub(crate) rows: Vec<FileRow>,
}

impl Seen {
    /// Whether the index still has the generation: what another builder has published since was listed later.
    pub(crate) fn is_of(&self, store: &Store) -> bool {
        let read = || Generation::read(&*store.reader()?).map_err(store.sqlite());
        read().ok().flatten().is_some_and(|generation| generation.key() == self.generation)
    }
}

/// Whether the index agrees with the brain's files, model and rules.
pub(crate) fn compare(store: &Store, brain: &dyn Files, model: &ModelLabel) -> Result<Comparison, Error> {
    if store.is_marked_damaged() {
        return Ok(Comparison::Outdated(None));
    }
    let mut connection = store.reader()?;
    let transaction = connection.transaction().map_err(store.sqlite())?;
    // Before the files are listed: none of them is then older than the generation.
    let generation = match Generation::read(&transaction) {
        Err(error) if schema::has_no_tables(&error) => None,
        generation => generation.map_err(store.sqlite())?,
    };
    let is_usable =
        |generation: &Generation| generation.model == *model && generation.rules == chunk::RULES_VERSION;
    let Some(generation) = generation.filter(is_usable) else { return Ok(Comparison::Outdated(None)) };
    let read_known = || read_rows(&transaction).map_err(store.sqlite());
    let (files, rows) = list_files_while(brain, read_known);
    let (files, rows) = (files?, rows?);
    match agree(store, brain, &files, &rows) {
        true => Ok(Comparison::Current),
        false => Ok(Comparison::Outdated(Some(Seen { generation: generation.key(), files, rows }))),
    }
}

/// Whether the rows are those of the files. Only files that were written moments before they were indexed are read again,
/// once.
fn agree(store: &Store, brain: &dyn Files, files: &[BrainFile], rows: &[FileRow]) -> bool {
    if rows.len() != files.len() {
        return false;
    }
    let mut settled = Vec::new();
    for (file, row) in files.iter().zip(rows) {
        if file.path != row.path || !row.has_stamp(file) {
            return false;
        }
        if row.is_unchanged(file) {
            continue;
        }
        let now = FileRow::new(file);
        let is_same = match read_content(brain, &file.path) {
            Content::Text { hash, .. } => row.hash == Some(hash),
            Content::Unreadable(what) => row.hash.is_none() && row.problem == Some((1, what)),
            Content::Gone => false,
        };
        if !is_same {
            return false;
        }
        if now.settled && !row.settled {
            settled.push(row);
        }
    }
    if !settled.is_empty()
        && let Err(error) = mark_settled(store, &settled)
    {
        tracing::debug!(%error, "failed to mark files as settled");
    }
    true
}

/// What a generation does not have yet.
pub(crate) struct Unindexed {
    /// The units of new and changed files, with their paths.
    pub(crate) units: Vec<(String, Unit)>,
    /// The ids that the generation has for files that were changed or removed since.
    pub(crate) outdated: HashSet<String>,
}

/// The units of files that are new or have another size or time than the table says, and the ids that the table has for
/// these files and for those that are gone. At most `limit` files are read, new ones first; changed ones beyond it
/// count as unchanged.
pub(crate) fn find_unindexed(
    brain: &dyn Files,
    limit: usize,
    read_known: impl FnOnce() -> Result<Vec<FileRow>, Error>,
) -> Result<Unindexed, Error> {
    let (files, known) = list_files_while(brain, read_known);
    let (files, known) = (files?, known?);
    let (mut present, mut suspects, mut outdated) = (Vec::new(), Vec::new(), HashSet::new());
    // Both are sorted.
    let mut rows = known.iter().peekable();
    for file in &files {
        while let Some(gone) = rows.next_if(|row| row.path < file.path) {
            outdated.extend(gone.indexed_id().map(str::to_owned));
        }
        let before = rows.next_if(|row| row.path == file.path);
        present.extend(before);
        if before.is_none_or(|row| !row.has_stamp(file)) {
            suspects.push((file, before));
        }
    }
    outdated.extend(rows.filter_map(|gone| gone.indexed_id().map(str::to_owned)));
    suspects.sort_by_key(|(_, before)| before.is_some());
    suspects.truncate(limit);
    let mut units = Vec::new();
    for (file, before) in suspects {
        // A file with the same content gives no unit.
        if let Some((_, Some(unit))) = read_file(brain, file, before) {
            outdated.extend(before.and_then(|row| row.indexed_id().map(str::to_owned)));
            units.push((file.path.clone(), unit));
        }
    }
    if units.is_empty() {
        return Ok(Unindexed { units, outdated });
    }
    let indexed = present.into_iter().filter_map(|row| Some((row.indexed_id()?, row.path.as_str())));
    let indexed: HashMap<&str, &str> = indexed.filter(|(id, _)| !outdated.contains(*id)).collect();
    let is_pending = |path: &str| brain.is_pending(path);
    let (mut units, _) = split_owners(units, |(path, unit)| (unit.id.as_str(), path), is_pending);
    // A copy of a file that the index has is no unit.
    units.retain(|(path, unit)| {
        let id = unit.id.as_str();
        indexed.get(id).is_none_or(|owner| id_owners([(id, *owner), (id, path)], is_pending)[id] == path)
    });
    outdated.extend(units.iter().map(|(_, unit)| unit.id.as_str().to_owned()));
    Ok(Unindexed { units, outdated })
}

/// Marks rows so that their files need not be read again. Does nothing while a builder works: the builder marks
/// them itself.
fn mark_settled(store: &Store, rows: &[&FileRow]) -> Result<(), Error> {
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
}

/// What has changed in the brain since the table was written.
pub(crate) struct Changes {
    /// The units to insert, by path.
    pub(crate) units: Vec<(String, Unit)>,
    /// Rows that are new or differ from the table.
    pub(crate) rows: Vec<FileRow>,
    /// Paths of files that are gone.
    pub(crate) removed: Vec<String>,
    /// Ids of units to delete before the new ones are inserted.
    pub(crate) units_removed: BTreeSet<String>,
    /// How many files are new or have other content.
    pub(crate) changed: usize,
}

/// Compares a brain's files with the table's rows, or reads all of them if `is_reread`.
///
/// Returns `None` if no file has other content; new modification times are then written to the table.
pub(crate) fn find_changes(
    store: &Store,
    connection: &Connection,
    brain: &dyn Files,
    files: &[BrainFile],
    known: &[FileRow],
    is_reread: bool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Option<Changes>, Error> {
    let trusted: &[FileRow] = if is_reread { &[] } else { known };
    let trusted: HashMap<&str, &FileRow> = trusted.iter().map(|row| (row.path.as_str(), row)).collect();
    let mut scan = Scan::run(brain, files, &trusted, progress);
    let removed: Vec<String> = {
        let present: HashSet<&str> = scan.rows.iter().map(|row| row.path.as_str()).collect();
        let paths = known.iter().map(|row| &row.path);
        paths.filter(|path| !present.contains(path.as_str())).cloned().collect()
    };
    if scan.changed.is_empty() && removed.is_empty() && !is_reread {
        if !scan.touched.is_empty() {
            write_rows(connection, &scan.touched).map_err(store.sqlite())?;
        }
        return Ok(None);
    }
    let units_removed = scan.assign_ids(brain, files, known);
    let Scan { mut rows, units, changed, .. } = scan;
    rows.retain(|row| trusted.get(row.path.as_str()) != Some(&row));
    Ok(Some(Changes { units, rows, removed, units_removed, changed: changed.len() }))
}

/// One pass over all files.
#[derive(Default)]
struct Scan {
    /// The rows of all files as they are now, by path.
    rows: Vec<FileRow>,
    /// The units of files that were read.
    units: Vec<(String, Unit)>,
    /// Paths of files that are new or have other content.
    changed: HashSet<String>,
    /// Rows of files with another time and the same content.
    touched: Vec<FileRow>,
}

impl Scan {
    /// Compares every file with its known row, and reads those that may have changed.
    fn run(
        brain: &dyn Files,
        files: &[BrainFile],
        known: &HashMap<&str, &FileRow>,
        progress: &mut dyn FnMut(Progress),
    ) -> Self {
        let mut scan = Self::default();
        let mut suspects = Vec::new();
        for file in files {
            match known.get(file.path.as_str()) {
                Some(row) if row.is_unchanged(file) => scan.rows.push((*row).clone()),
                row => suspects.push((file, row.copied())),
            }
        }
        let mut compared = scan.rows.len();
        for block in suspects.chunks(READ_AT_ONCE) {
            progress(Progress { files: compared, files_total: files.len() });
            compared += block.len();
            let found: Vec<_> =
                block.par_iter().map(|(file, before)| read_file(brain, file, *before)).collect();
            for ((_, before), found) in block.iter().zip(found) {
                let Some((row, unit)) = found else { continue };
                match before {
                    Some(before) if before.has_same_content(&row) => {
                        if **before != row {
                            scan.touched.push(row.clone());
                        }
                    }
                    _ => {
                        scan.changed.insert(row.path.clone());
                        scan.units.extend(unit.map(|unit| (row.path.clone(), unit)));
                    }
                }
                scan.rows.push(row);
            }
        }
        progress(Progress { files: files.len(), files_total: files.len() });
        scan.rows.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        scan
    }

    /// Gives each id to one of the files that claim it; the others become problems.
    ///
    /// Keeps only the units to insert in `units`, and returns the ids of the units to delete before.
    fn assign_ids(&mut self, brain: &dyn Files, files: &[BrainFile], known: &[FileRow]) -> BTreeSet<String> {
        // An unchanged file whose id another file had may get the id now, so it is read as well.
        for row in &mut self.rows {
            if row.unit_id.is_none() || row.problem.is_none() || self.changed.contains(&row.path) {
                continue;
            }
            let Ok(at) = files.binary_search_by(|file| file.path.cmp(&row.path)) else { continue };
            let Some((found, unit)) = read_file(brain, &files[at], None) else { continue };
            self.units.extend(unit.map(|unit| (row.path.clone(), unit)));
            *row = found;
        }
        let claims = self.rows.iter().filter_map(|row| Some((row.unit_id.as_deref()?, row.path.as_str())));
        let owners = id_owners(claims, |path| brain.is_pending(path));
        let mut problems = Vec::new();
        for (at, row) in self.rows.iter().enumerate() {
            let Some(id) = row.unit_id.as_deref() else { continue };
            let owner = owners.get(id).filter(|owner| **owner != row.path);
            let problem = owner.map(|owner| (1, id_is_taken(id, owner)));
            if row.problem != problem {
                problems.push((at, problem));
            }
        }
        let is_outdated =
            |id: &str, path: &String| self.changed.contains(path) || owners.get(id) != Some(&path.as_str());
        let indexed = known.iter().filter_map(|row| row.indexed_id().map(|id| (id, &row.path)));
        let removed =
            indexed.filter(|(id, path)| is_outdated(id, path)).map(|(id, _)| id.to_owned()).collect();
        for (at, problem) in problems {
            self.rows[at].problem = problem;
        }
        let indexed = self.rows.iter().filter(|row| row.indexed_id().is_some());
        let indexed: HashSet<&str> = indexed.map(|row| row.path.as_str()).collect();
        self.units.retain(|(path, _)| indexed.contains(path.as_str()));
        self.units.sort_by(|(a, _), (b, _)| a.cmp(b));
        removed
    }
}

/// What is wrong with a file whose id another file has.
pub fn id_is_taken(id: &str, owner: &str) -> String {
    format!("has the id `{id}` of {owner}: give one of them another")
}

/// Reads a file, and parses its unit unless `before` has the same content. `None` if the file is gone.
fn read_file(
    brain: &dyn Files,
    file: &BrainFile,
    before: Option<&FileRow>,
) -> Option<(FileRow, Option<Unit>)> {
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
                    remove_secrets(&mut unit);
                    found = Some(unit);
                }
                Err(error) => row.problem = Some((error.line, error.what)),
            }
        }
    }
    Some((row, found))
}

/// Writes new times of files with the same content, so that they are not read again.
fn write_rows(connection: &Connection, rows: &[FileRow]) -> rusqlite::Result<()> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    for row in rows {
        write_row(&transaction, row)?;
    }
    transaction.commit()
}

pub(crate) fn write_row(transaction: &Transaction<'_>, row: &FileRow) -> rusqlite::Result<()> {
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

/// All rows, by path.
pub(crate) fn read_rows(connection: &Connection) -> rusqlite::Result<Vec<FileRow>> {
    let sql = "SELECT path, size, modified_ns, settled, hash, unit_id, problem_line, problem
               FROM files ORDER BY path";
    connection.prepare_cached(sql)?.query_map([], file_row)?.collect()
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

/// Whether each of the index's `units` comes from a file: one of [`Index::plan_prechunked`] does not.
///
/// [`Index::plan_prechunked`]: crate::Index::plan_prechunked
pub(crate) fn covers_units(rows: &[FileRow], units: usize) -> bool {
    rows.iter().filter(|row| row.indexed_id().is_some()).count() == units
}
