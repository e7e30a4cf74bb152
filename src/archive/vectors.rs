//! The meaning of messages: vectors that a caller's model makes.
//!
//! A vector is kept as int8 numbers with one factor: a quarter of the size of f32, and of the same order for all that a
//! person sees. All of them are compared, which takes tens of milliseconds for 200,000; the model itself is not known
//! here.

use std::num::NonZero;
use std::ops::Range;
use std::thread::ScopedJoinHandle;

use multiversion::multiversion;
use rusqlite::{Connection, params, params_from_iter};

use crate::error::Error;
use crate::filter::{Conditions, Filter};
use crate::record::MessageKind;
use crate::store::{Archive, Texts};
use crate::writer::name_id;

/// How much of a message its vector stands for.
const EMBEDDED_BYTES_MAX: usize = 2 << 10;
/// Shorter texts mean nothing alone: `yes`, `go on`.
pub(crate) const EMBEDDED_BYTES_MIN: i64 = 12;

/// The most threads that compare vectors.
const PARTS_MAX: usize = 4;

/// How much of the database is mapped while vectors are compared; the rest is read as usual.
const MAPPED_BYTES_MAX: i64 = 2 << 30;

/// How many messages one call looks at for those without a vector.
const LOOKED_AT_MAX: i64 = 20_000;

/// A message that has no vector yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unembedded {
    /// The message's number in this archive.
    pub message: i64,
    /// Its text, cut to what a model reads.
    pub text: String,
}

/// Some of the messages that have no vector yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnembeddedMessages {
    /// The newest first.
    pub messages: Vec<Unembedded>,
    /// Where to go on: all messages of the range with a higher number have a vector or are listed. `None` at its end.
    pub rest: Option<Range<i64>>,
}

/// How far the vectors of a model reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// No message has one.
    Nothing,
    /// The newer messages have one.
    Newer,
    /// All have one, but for those of the last moments; or there is no message that could have one.
    All,
}

impl Archive {
    /// Lists messages that have no vector of this model, the newest first: what people typed, and answers. It looks at
    /// a bounded number of the range's messages, so that a call takes milliseconds whatever the size of the archive.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn unembedded(
        &self,
        model: &str,
        range: Range<i64>,
        limit: usize,
    ) -> Result<UnembeddedMessages, Error> {
        let connection = self.connection()?;
        let first = "SELECT min(id) FROM
            (SELECT id FROM messages_meta WHERE id >= ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3)";
        let params = params![range.start, range.end, LOOKED_AT_MAX];
        let first: Option<i64> = connection.prepare_cached(first)?.query_row(params, |row| row.get(0))?;
        let Some(first) = first else { return Ok(UnembeddedMessages::default()) };
        let sql = "SELECT m.id, m.blob, m.position, m.content_length FROM messages_meta m
            LEFT JOIN vectors v ON v.message = m.id AND v.model = (SELECT id FROM names WHERE name = ?1)
            WHERE m.id >= ?6 AND m.id < ?7 AND m.kind IN (?2, ?3) AND m.content_length >= ?4 AND v.message IS NULL
            ORDER BY m.id DESC LIMIT ?5";
        let (prompt, answer) = (MessageKind::Prompt.number(), MessageKind::Answer.number());
        let mut statement = connection.prepare_cached(sql)?;
        let params = params![model, prompt, answer, EMBEDDED_BYTES_MIN, limit as i64, first, range.end];
        let mut rows = statement.query(params)?;
        let mut texts = Texts::new(&connection);
        let mut messages = Vec::new();
        while let Some(row) = rows.next()? {
            // A damaged one is done without a vector, so that older messages get theirs.
            let mut text = match texts.get(row.get(1)?, row.get(2)?, row.get(3)?) {
                Err(Error::Text { .. }) => String::new(),
                text => text?,
            };
            text.truncate(text.floor_char_boundary(EMBEDDED_BYTES_MAX));
            messages.push(Unembedded { message: row.get(0)?, text });
        }
        let end = match messages.last() {
            Some(last) if messages.len() == limit => last.message,
            _ => first,
        };
        Ok(UnembeddedMessages { messages, rest: Some(range.start..end).filter(|rest| !rest.is_empty()) })
    }

    /// How far the vectors of this model reach. They are made from the newest message to the oldest, so that a look at the
    /// oldest is enough, whatever the size of the archive.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn prepared(&self, model: &str) -> Result<Prepared, Error> {
        let connection = self.connection()?;
        let sql = "WITH model AS (SELECT id FROM names WHERE name = ?1)
            SELECT EXISTS (SELECT 1 FROM vectors WHERE model IN model),
                coalesce((SELECT EXISTS (SELECT 1 FROM vectors v WHERE v.message = m.id AND v.model IN model)
                    FROM messages_meta m WHERE m.kind IN (?2, ?3) AND m.content_length >= ?4 ORDER BY m.id LIMIT 1), 1)";
        let (prompt, answer) = (MessageKind::Prompt.number(), MessageKind::Answer.number());
        let params = params![model, prompt, answer, EMBEDDED_BYTES_MIN];
        let mut statement = connection.prepare_cached(sql)?;
        let (has_any, has_oldest): (bool, bool) =
            statement.query_row(params, |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(match (has_any, has_oldest) {
            (_, true) => Prepared::All,
            (true, false) => Prepared::Newer,
            (false, false) => Prepared::Nothing,
        })
    }

    /// The number of the last message, which only grows; 0 without any.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn last_message(&self) -> Result<i64, Error> {
        let sql = "SELECT coalesce(max(id), 0) FROM messages_meta";
        Ok(self.connection()?.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
    }

    /// Stores vectors of messages, in place of those of another model. A message that was deleted meanwhile is left
    /// out; one with an empty vector, as the model reads nothing of it, is done and never found by meaning.
    ///
    /// # Errors
    /// When the archive cannot be written.
    pub fn store_vectors(&self, model: &str, vectors: &[(i64, Vec<f32>)]) -> Result<(), Error> {
        self.write(|transaction| {
            let model = name_id(transaction, model)?;
            let sql = "INSERT OR REPLACE INTO vectors SELECT id, ?2, ?3, ?4 FROM messages_meta WHERE id = ?1";
            let mut insert = transaction.prepare_cached(sql)?;
            for (message, vector) in vectors {
                let (scale, body) = quantize(vector);
                insert.execute(params![message, model, scale, body])?;
            }
            Ok(())
        })
    }

    /// How many messages have a vector of this model, and how many could have one.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn embedded(&self, model: &str) -> Result<(u64, u64), Error> {
        let connection = self.connection()?;
        let sql =
            "SELECT (SELECT count(*) FROM vectors WHERE model = (SELECT id FROM names WHERE name = ?1)),
            (SELECT count(*) FROM messages_meta WHERE kind IN (?2, ?3) AND content_length >= ?4)";
        let (prompt, answer) = (MessageKind::Prompt.number(), MessageKind::Answer.number());
        let params = params![model, prompt, answer, EMBEDDED_BYTES_MIN];
        Ok(connection.prepare_cached(sql)?.query_row(params, |row| Ok((row.get(0)?, row.get(1)?)))?)
    }
}

/// A message of one list, and how well it matches: by BM25, or by the cosine of the vectors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scored {
    pub(crate) message: i64,
    pub(crate) score: f64,
}

/// The messages whose vectors are closest to one, the closest first. All vectors are compared on all processors.
pub(crate) fn nearest(
    archive: &Archive,
    model: &str,
    vector: &[f32],
    filter: &Filter,
    limit: usize,
) -> Result<Vec<Scored>, Error> {
    let mut conditions = filter.of_messages();
    if *filter != Filter::default() {
        conditions.add("v.model = (SELECT id FROM names WHERE name = {})", model.to_owned());
        let from = "vectors v JOIN messages_meta m ON m.id = v.message JOIN sessions s ON s.id = m.session";
        let connection = archive.connection()?;
        return nearest_of(&connection, from, &conditions, vector, limit);
    }
    let end = archive.last_message()? + 1;
    let parts = std::thread::available_parallelism().map_or(1, NonZero::get).min(PARTS_MAX) as i64;
    let parts = std::thread::scope(|scope| {
        let nearest_in = |range: Range<i64>| {
            let mut conditions = filter.of_messages();
            conditions.add("v.message >= {}", range.start);
            conditions.add("v.message < {}", range.end);
            // Reading one table in its order is quicker than finding each of nearly all rows by the index of models.
            conditions.add("+v.model = (SELECT id FROM names WHERE name = {})", model.to_owned());
            let connection = archive.connection()?;
            // Otherwise the threads wait for one another at the lock of SQLite's page cache.
            connection.pragma_update(None, "mmap_size", MAPPED_BYTES_MAX)?;
            let found = nearest_of(&connection, "vectors v", &conditions, vector, limit);
            connection.pragma_update(None, "mmap_size", 0)?;
            found
        };
        let parts: Vec<_> = (0..parts)
            .map(|part| scope.spawn(move || nearest_in(end * part / parts..end * (part + 1) / parts)))
            .collect();
        parts.into_iter().map(joined).collect::<Result<Vec<_>, Error>>()
    })?;
    let mut best = parts.concat();
    keep_best(&mut best, limit);
    Ok(best)
}

/// What the thread returns, or its panic.
pub(crate) fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn nearest_of(
    connection: &Connection,
    from: &str,
    conditions: &Conditions,
    vector: &[f32],
    limit: usize,
) -> Result<Vec<Scored>, Error> {
    let sql =
        format!("SELECT v.message, v.scale, v.body FROM {from} WHERE {} AND v.scale > 0", conditions.sql());
    let (question_scale, question) = quantize(vector);
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(&conditions.params))?;
    let mut best: Vec<Scored> = Vec::new();
    while let Some(row) = rows.next()? {
        let scale: f64 = row.get(1)?;
        let body = row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
        let score = question_scale * scale * f64::from(dot(&question, body));
        best.push(Scored { message: row.get(0)?, score });
        if best.len() > limit.saturating_mul(2) {
            keep_best(&mut best, limit);
        }
    }
    keep_best(&mut best, limit);
    Ok(best)
}

fn keep_best(best: &mut Vec<Scored>, limit: usize) {
    best.sort_by(|a, b| b.score.total_cmp(&a.score).then(b.message.cmp(&a.message)));
    best.truncate(limit);
}

/// The numbers as int8, and the factor that makes them what they were.
pub(crate) fn quantize(vector: &[f32]) -> (f64, Vec<u8>) {
    let largest = vector.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
    if largest == 0.0 || !largest.is_finite() {
        return (0.0, vec![0; vector.len()]);
    }
    let scale = largest / 127.0;
    (f64::from(scale), vector.iter().map(|number| (number / scale).round() as i8 as u8).collect())
}

#[multiversion(targets("x86_64+avx2", "aarch64+neon"))]
pub(crate) fn dot(a: &[u8], b: &[u8]) -> i32 {
    let mut sum = 0;
    for (a, b) in a.iter().zip(b) {
        sum += i32::from(*a as i8) * i32::from(*b as i8);
    }
    sum
}
