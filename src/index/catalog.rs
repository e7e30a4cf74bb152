//! Read-only access to units and words for hooks: opens the database only, within milliseconds.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use brain::Files;
use knowledge::{Unit, UnitId};
use rusqlite::{Connection, OpenFlags, Params, Row};

use crate::error::Error;
use crate::records::{UnitRecord, unit_record};
use crate::schema::{self, State};
use crate::snapshot::UNIT_BY_ID;
use crate::store::DATABASE;
use crate::triggers::{self, FoundTrigger};
use crate::{file_table, full_text};

/// How long a statement waits for a builder's short exclusive locks.
const BUSY_TIMEOUT: Duration = Duration::from_millis(20);
/// Chunks that make the beginning of a unit's text.
const BODY_CHUNKS: usize = 8;
/// Chunks that a search by words returns at most.
const PASSAGES_MAX: usize = 60;

/// The newest generation without its vectors. Never changes or repairs the index.
pub struct Catalog {
    connection: Connection,
    path: std::path::PathBuf,
    /// Units that the generation does not have yet.
    new: Vec<(String, Unit)>,
    /// The ids that the generation has for files that were changed or removed since.
    outdated: HashSet<String>,
}

/// A unit in the index, borrowed from its row.
#[derive(Clone, Copy, Debug)]
pub struct UnitSummary<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its file, relative to the brain.
    pub path: &'a str,
    /// Its title.
    pub title: &'a str,
    /// Its type.
    pub kind: &'a str,
    /// Its domain.
    pub domain: &'a str,
    /// A JSON array of strings.
    pub tags: &'a str,
    /// From 0 to 1.
    pub confidence: f64,
    /// Where it comes from.
    pub source: &'a str,
    /// `superseded`, for one.
    pub status: Option<&'a str>,
    /// When it was last changed, RFC 3339.
    pub last_modified: Option<&'a str>,
}

impl Catalog {
    /// Opens the index in a brain's derived folder; `None` if there is none that this version can read.
    ///
    /// # Errors
    /// If the database cannot be opened.
    pub fn open(folder: &Path) -> Result<Option<Self>, Error> {
        let path = folder.join(DATABASE);
        if !path.is_file() {
            return Ok(None);
        }
        let wrong = |source| Error::Sqlite { path: path.clone(), source };
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&path, flags).map_err(wrong)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(wrong)?;
        if schema::inspect(&connection).map_err(wrong)? != State::Ours {
            return Ok(None);
        }
        // All reads see one generation.
        connection.execute_batch("BEGIN").map_err(wrong)?;
        Ok(Some(Self { connection, path, new: Vec::new(), outdated: HashSet::new() }))
    }

    /// As [`open`](Self::open), with the units of files that the index does not have as they are, such as those of a
    /// merge a moment ago: they are visited, though no search finds them. At most `limit` files are read for it, new
    /// ones first. Without an index there are only these.
    ///
    /// # Errors
    /// If the database cannot be opened or read, or the files cannot be listed.
    pub fn open_with_changes(folder: &Path, files: &dyn Files, limit: usize) -> Result<Self, Error> {
        let mut catalog = match Self::open(folder)? {
            Some(catalog) => catalog,
            None => Self::empty()?,
        };
        let read_known = || {
            file_table::read_rows(&catalog.connection)
                .map_err(|source| Error::Sqlite { path: catalog.path.clone(), source })
        };
        let file_table::Unindexed { units, outdated } = file_table::find_unindexed(files, limit, read_known)?;
        (catalog.new, catalog.outdated) = (units, outdated);
        Ok(catalog)
    }

    fn empty() -> Result<Self, Error> {
        let path = std::path::PathBuf::from(":memory:");
        let create = || {
            let mut connection = Connection::open_in_memory()?;
            schema::create(&mut connection, BUSY_TIMEOUT)?;
            Ok(connection)
        };
        let connection = create().map_err(|source| Error::Sqlite { path: path.clone(), source })?;
        Ok(Self { connection, path, new: Vec::new(), outdated: HashSet::new() })
    }

    /// Calls `visit` for every unit, in no particular order.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn for_each_unit(&self, mut visit: impl FnMut(UnitSummary<'_>)) -> Result<(), Error> {
        for (path, unit) in &self.new {
            visit(UnitSummary {
                id: unit.id.as_str(),
                path,
                title: &unit.title,
                kind: unit.kind.as_str(),
                domain: unit.domain.as_str(),
                tags: &serde_json::json!(unit.tags).to_string(),
                confidence: unit.confidence,
                source: &unit.source,
                status: unit.status.as_deref(),
                last_modified: unit.last_modified.map(|time| time.to_string()).as_deref(),
            });
        }
        let sql = "SELECT id, title, type, domain, tags, confidence, source, status, last_modified, path FROM units";
        self.rows(sql, [], |row| {
            let text = |index: usize| row.get_ref(index).and_then(|value| Ok(value.as_str()?));
            let maybe = |index: usize| row.get_ref(index).and_then(|value| Ok(value.as_str_or_null()?));
            if self.outdated.contains(text(0)?) {
                return Ok(());
            }
            visit(UnitSummary {
                id: text(0)?,
                path: text(9)?,
                title: text(1)?,
                kind: text(2)?,
                domain: text(3)?,
                tags: text(4)?,
                confidence: row.get(5)?,
                source: text(6)?,
                status: maybe(7)?,
                last_modified: maybe(8)?,
            });
            Ok(())
        })
    }

    /// The triggers that are stored under any of the keys. Those of units that the generation does not have yet are not
    /// among them.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn triggers(&self, keys: &[String]) -> Result<Vec<FoundTrigger>, Error> {
        triggers::find(&self.connection, keys)
            .map_err(|source| Error::Sqlite { path: self.path.clone(), source })
    }

    /// The triggers of one unit.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn triggers_of(&self, unit: &UnitId) -> Result<Vec<FoundTrigger>, Error> {
        triggers::find_of_unit(&self.connection, unit)
            .map_err(|source| Error::Sqlite { path: self.path.clone(), source })
    }

    /// The units whose scope names a file or folder of one of these names, as the parts of a path are.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn units_of_files<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Result<Vec<UnitId>, Error> {
        let keys: Vec<String> = names.into_iter().map(triggers::file_key).collect();
        let mut units: Vec<_> = self.triggers(&keys)?.into_iter().map(|found| found.unit).collect();
        units.sort();
        units.dedup();
        Ok(units)
    }

    /// The units whose scope names a repository.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn units_of_repository(&self, repository: &str) -> Result<Vec<UnitId>, Error> {
        let found = self.triggers(&[triggers::repository_key(repository)])?;
        Ok(found.into_iter().map(|found| found.unit).collect())
    }

    /// A unit by its id.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn unit(&self, id: &UnitId) -> Result<Option<UnitRecord>, Error> {
        let mut found = None;
        self.rows(UNIT_BY_ID, [id.as_str()], |row| {
            found = Some(unit_record(row)?);
            Ok(())
        })?;
        Ok(found)
    }

    /// The beginning of a unit's text, without its title.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn body(&self, id: &UnitId) -> Result<String, Error> {
        let mut body = String::new();
        let sql = format!("SELECT text FROM chunks WHERE unit_id = ?1 ORDER BY position LIMIT {BODY_CHUNKS}");
        self.rows(&sql, [id.as_str()], |row| {
            body.push_str(row.get_ref(0)?.as_str()?);
            body.push_str("\n\n");
            Ok(())
        })?;
        Ok(body)
    }

    /// Calls `visit` for every unit that others relate to, with their number.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn for_each_link_target(&self, mut visit: impl FnMut(&str, u32)) -> Result<(), Error> {
        let sql = "SELECT target_id, count(*) FROM relationships GROUP BY target_id";
        self.rows(sql, [], |row| {
            visit(row.get_ref(0)?.as_str()?, row.get(1)?);
            Ok(())
        })
    }

    /// The number of chunks that contain each term, and the number of all chunks.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn document_frequencies(&self, terms: &[String]) -> Result<(Vec<u64>, u64), Error> {
        let mut found = Vec::with_capacity(terms.len());
        for term in terms {
            let mut count = 0;
            if let Some(query) = full_text::any_of(std::slice::from_ref(term)) {
                let sql = "SELECT count(*) FROM chunks_fts WHERE chunks_fts MATCH ?1";
                self.rows(sql, [query], |row| {
                    count = row.get::<_, i64>(0)?.unsigned_abs();
                    Ok(())
                })?;
            }
            found.push(count);
        }
        let mut chunks = 0;
        self.rows("SELECT chunks FROM generation", [], |row| {
            chunks = row.get::<_, i64>(0)?.unsigned_abs();
            Ok(())
        })?;
        Ok((found, chunks))
    }

    /// The units whose chunks match the terms best, each with the score of its best chunk (BM25, higher is better), best
    /// first.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn search(&self, terms: &[String]) -> Result<Vec<(UnitId, f64)>, Error> {
        let Some(query) = full_text::any_of(terms) else { return Ok(Vec::new()) };
        let sql = "SELECT chunks.unit_id, best.score FROM
                       (SELECT rowid, -rank AS score FROM chunks_fts WHERE chunks_fts MATCH ?1
                            AND rank MATCH 'bm25(1.0, 1.0, 1.0)' ORDER BY rank LIMIT ?2) AS best
                   JOIN chunks ON chunks.row = best.rowid ORDER BY best.score DESC";
        let mut found: Vec<(UnitId, f64)> = Vec::new();
        self.rows(sql, (query, PASSAGES_MAX), |row| {
            let id = row.get_ref(0)?.as_str()?;
            if found.iter().all(|(unit, _)| unit.as_str() != id) {
                found.push((UnitId::verbatim(id), row.get(1)?));
            }
            Ok(())
        })?;
        Ok(found)
    }

    fn rows<P: Params>(
        &self,
        sql: &str,
        params: P,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), Error> {
        let all = || -> rusqlite::Result<()> {
            let mut statement = self.connection.prepare_cached(sql)?;
            let mut rows = statement.query(params)?;
            while let Some(row) = rows.next()? {
                read(row)?;
            }
            Ok(())
        };
        all().map_err(|source| Error::Sqlite { path: self.path.clone(), source })
    }
}
