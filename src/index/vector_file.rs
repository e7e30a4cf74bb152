//! The vector file of a generation: written by the builder, kept while few chunks change, remade by readers.

use std::fs;

use rusqlite::{Connection, OptionalExtension as _, Transaction};

use crate::error::{Error, io_error};
use crate::generation::Generation;
use crate::store::Store;
use crate::vectors::{self, Packer, Vectors};

/// A vector file is written again when one in so many of its chunks was added or removed since.
const TAIL_PART: usize = 8;

/// Which rows are packed.
#[derive(Clone, Copy)]
pub(crate) enum Rows {
    /// Those of the vector file: all up to its last row, removed chunks included.
    UpTo(i64),
    /// Those after the last row of the vector file.
    After(i64),
}

/// Packs embeddings from the database in the format of the vector file.
pub(crate) fn pack(
    store: &Store,
    connection: &Connection,
    dimensions: usize,
    rows: Rows,
) -> Result<Packer, Error> {
    let mut packer = Packer::new(dimensions);
    let (sql, row) = match rows {
        Rows::UpTo(row) => (
            "SELECT row, embedding FROM chunks WHERE row <= ?1
             UNION ALL SELECT row, embedding FROM gone WHERE row <= ?1 ORDER BY row",
            row,
        ),
        Rows::After(row) => ("SELECT row, embedding FROM chunks WHERE row > ?1 ORDER BY row", row),
    };
    let mut statement = connection.prepare_cached(sql).map_err(store.sqlite())?;
    let mut rows = statement.query([row]).map_err(store.sqlite())?;
    while let Some(row) = rows.next().map_err(store.sqlite())? {
        let number = row.get(0).map_err(store.sqlite())?;
        let embedding = row.get_ref(1).and_then(|value| Ok(value.as_blob()?)).map_err(store.sqlite())?;
        packer.push(number, embedding)?;
    }
    Ok(packer)
}

/// What a generation's row says about its vector file.
pub(crate) struct VectorFile {
    pub(crate) name: String,
    pub(crate) hash: String,
    pub(crate) chunks: usize,
    /// Its last row.
    pub(crate) row_max: i64,
}

impl VectorFile {
    /// Writes the vectors of all chunks in the transaction to a new file, and returns its bytes.
    pub(crate) fn write(
        store: &Store,
        transaction: &Transaction<'_>,
        generation: u64,
        dimensions: usize,
    ) -> Result<(Self, Vec<u8>), Error> {
        transaction.execute_batch("DELETE FROM gone").map_err(store.sqlite())?;
        let sql = "SELECT coalesce(max(row), 0) FROM chunks";
        let row_max = transaction.query_row(sql, [], |row| row.get(0)).map_err(store.sqlite())?;
        let packer = pack(store, transaction, dimensions, Rows::UpTo(row_max))?;
        let chunks = packer.len();
        let bytes = packer.finish();
        let hash = vectors::hash(&bytes);
        let name = vectors::file_name("vectors", generation, &hash);
        vectors::write_whole(store.folder(), &name, &bytes)?;
        Ok((Self { name, hash, chunks, row_max }, bytes))
    }

    /// The vector file of the generation before, if the next generation can use it: the file is whole, and few
    /// chunks were added or removed since it was written. Writing a large file, and reading it again in every
    /// process, takes longer than everything else about one changed unit.
    pub(crate) fn keep(
        store: &Store,
        transaction: &Transaction<'_>,
        before: &Generation,
        chunks: usize,
    ) -> rusqlite::Result<Option<Self>> {
        let gone: usize = transaction.query_row("SELECT count(*) FROM gone", [], |row| row.get(0))?;
        let added = (chunks + gone).saturating_sub(before.packed_chunks);
        let is_small_change = (added + gone) * TAIL_PART < before.packed_chunks;
        let bytes = Vectors::file_bytes(before.model.dimensions, before.packed_chunks);
        let is_kept = chunks >= store.limits.tail
            && is_small_change
            && has_size(store, &before.vectors_file, bytes)
            // A missing graph is built from the bytes of a new file.
            && (chunks < store.limits.graph || has_graph(store, transaction)?);
        Ok(is_kept.then(|| Self {
            name: before.vectors_file.clone(),
            hash: before.vectors_hash.clone(),
            chunks: before.packed_chunks,
            row_max: before.packed_row_max,
        }))
    }
}

/// Whether a file of the index has this size in bytes.
pub(crate) fn has_size(store: &Store, file: &str, size: u64) -> bool {
    fs::metadata(store.folder().join(file)).is_ok_and(|metadata| metadata.len() == size)
}

fn has_graph(store: &Store, connection: &Connection) -> rusqlite::Result<bool> {
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, u64>(1)?));
    let graph = connection.query_row("SELECT file, size FROM graph", [], read).optional()?;
    Ok(graph.is_some_and(|(file, size)| has_size(store, &file, size)))
}

/// The vectors of a generation's file. A missing or damaged file is remade from the database.
pub(crate) fn read(
    store: &Store,
    connection: &Connection,
    generation: &Generation,
) -> Result<Vectors, Error> {
    let Generation { vectors_file: file, vectors_hash: hash, packed_row_max, .. } = generation;
    let path = store.folder().join(file);
    if let Some(vectors) = fs::read(&path).ok().and_then(|bytes| Vectors::parse(hash, &bytes)) {
        return Ok(vectors);
    }
    tracing::warn!(file = %path.display(), "remaking a vector file that is missing or damaged");
    let rows = Rows::UpTo(*packed_row_max);
    let bytes = pack(store, connection, generation.model.dimensions, rows)?.finish();
    if let Some(vectors) = Vectors::parse(hash, &bytes) {
        // A reader may write the file: its name stands for exactly these bytes. If writing fails, the answers
        // are the same, and the next process remakes the file.
        if let Err(error) = vectors::write_whole(store.folder(), file, &bytes) {
            tracing::warn!(%error, "failed to write a remade vector file");
        }
        return Ok(vectors);
    }
    store.mark_damaged();
    Ok(Vectors::parse(&vectors::hash(&bytes), &bytes).unwrap_or_else(Vectors::empty))
}

/// The names of all vector and graph files, temporary ones included.
pub(crate) fn list_files(store: &Store) -> Result<Vec<String>, Error> {
    let folder = store.folder();
    let names = fs::read_dir(folder).map_err(io_error("list", folder))?;
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter(|name| name.starts_with("vectors-") || name.starts_with("graph-")).collect())
}

/// Removes the files of past generations and those that a killed builder left. The vectors of the generation
/// before the newest stay, for a reader that has just pinned it.
pub(crate) fn remove_old_files(store: &Store, connection: &Connection) -> Result<(), Error> {
    let newest = Generation::read(connection).map_err(store.sqlite())?;
    let newest = newest.as_ref().map(|newest| newest.vectors_file.as_str());
    let graph: Option<String> = connection
        .query_row("SELECT file FROM graph", [], |row| row.get(0))
        .optional()
        .map_err(store.sqlite())?;
    let files = list_files(store)?;
    let number = newest.and_then(|name| vectors::generation_of(name, "vectors")).unwrap_or(0);
    let older = files.iter().filter(|name| !name.ends_with(".tmp"));
    let older = older.filter_map(|name| Some((vectors::generation_of(name, "vectors")?, name.as_str())));
    let previous = older.filter(|(older, _)| *older < number).max().map(|(_, name)| name);
    for name in &files {
        if [newest, previous, graph.as_deref()].contains(&Some(name.as_str())) {
            continue;
        }
        let path = store.folder().join(name);
        if let Err(error) = fs::remove_file(&path) {
            tracing::warn!(%error, file = %path.display(), "failed to remove an old file of the index");
        }
    }
    Ok(())
}
