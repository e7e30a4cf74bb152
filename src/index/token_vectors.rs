//! The vectors of the chunks' tokens: read for the candidates of a question, and never held in memory.
//!
//! They are written in the transaction that publishes their generation, as everything else of it.

use rusqlite::{Connection, Transaction};

use crate::records::ChunkRow;

/// A chunk's vectors are kept in pieces of ten tokens, which fill the database's pages: a token of the model's input takes
/// 32.8 to 33.6 bytes of the file. Whole, the vectors of a chunk would leave pages half empty (35 to 42 bytes).
const PIECE_BYTES: usize = 10 * 32;
/// The numbers of a chunk's pieces follow each other. Those of 512 tokens, the most that the model reads, fit.
const PIECES_MAX: i64 = 64;

pub(crate) fn insert(transaction: &Transaction<'_>, chunk: i64, tokens: &[u8]) -> rusqlite::Result<()> {
    let mut statement =
        transaction.prepare_cached("INSERT INTO token_vectors(piece, data) VALUES (?1, ?2)")?;
    for (number, piece) in (chunk * PIECES_MAX..(chunk + 1) * PIECES_MAX).zip(tokens.chunks(PIECE_BYTES)) {
        statement.execute((number, piece))?;
    }
    Ok(())
}

/// Empty for a chunk without token vectors.
pub(crate) fn read(connection: &Connection, chunk: ChunkRow) -> rusqlite::Result<Vec<u8>> {
    let mut statement = connection
        .prepare_cached("SELECT data FROM token_vectors WHERE piece >= ?1 AND piece < ?2 ORDER BY piece")?;
    let mut rows = statement.query((chunk.0 * PIECES_MAX, (chunk.0 + 1) * PIECES_MAX))?;
    let mut tokens = Vec::new();
    while let Some(row) = rows.next()? {
        tokens.extend_from_slice(row.get_ref(0)?.as_blob()?);
    }
    Ok(tokens)
}

/// Deletes those of a unit's chunks, before the chunks are deleted. The rows of a unit's chunks follow each other, for
/// they are inserted together.
pub(crate) fn delete_of_unit(transaction: &Transaction<'_>, unit: &str) -> rusqlite::Result<()> {
    let sql = "DELETE FROM token_vectors WHERE piece >= (SELECT min(row) FROM chunks WHERE unit_id = ?1) * ?2
               AND piece < (SELECT max(row) + 1 FROM chunks WHERE unit_id = ?1) * ?2";
    transaction.prepare_cached(sql)?.execute((unit, PIECES_MAX)).map(drop)
}
