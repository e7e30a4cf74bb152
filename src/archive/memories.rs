//! Memories: what sessions were about, topic by topic. Nobody has reviewed them.
//!
//! Each belongs to one session and goes with it. Those that say the same are linked, not rewritten: of a group the newest
//! is recalled and the others point to it, so that deleting one session never takes what another one said.

use jiff::Timestamp;
use knowledge::text::{canonical, with_word_breaks};
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params, params_from_iter};
use serde::Serialize;

use crate::Session;
use crate::error::Error;
use crate::filter::{Conditions, Filter};
use crate::project;
use crate::record::{MessageId, MessageKind};
use crate::records::{Derivation, any_word, words_of};
use crate::sessions::{COLUMNS, read_session, time};
use crate::store::{Archive, Texts};
use crate::vectors::{EMBEDDED_BYTES_MIN, dot, quantize};
use crate::writer::name_id;

/// A memory that is to be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct NewMemory {
    /// One or two sentences.
    pub summary: String,
    /// The original words.
    pub dialogue: String,
    /// The numbers of the messages that it rests on.
    pub turns: Vec<i64>,
    /// When the topic ended.
    pub at: Timestamp,
    /// What it rests on.
    pub derivation: Derivation,
    /// The vector of the summary, if there is one.
    pub vector: Option<Vec<f32>>,
}

/// What the vectors of memories were made by, and from where on two say the same.
#[derive(Clone, Debug)]
pub struct Embedded<'a> {
    /// The model's name.
    pub model: &'a str,
    /// The least cosine of two memories that say the same.
    pub same: f64,
}

/// A memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Memory {
    /// Its number in this archive.
    pub id: i64,
    /// The session's id.
    pub session: String,
    /// The branch that was checked out there.
    pub branch: Option<String>,
    /// The project's key.
    pub project: String,
    /// What it rests on: `rules`, `model`.
    pub derivation: String,
    /// One or two sentences.
    pub summary: String,
    /// The original words.
    pub dialogue: String,
    /// The numbers of the messages that it rests on.
    pub turns: Vec<i64>,
    /// When the topic ended.
    pub at: Timestamp,
    /// When it was stored.
    pub updated: Timestamp,
    /// How many topics of sessions say the same, with this one. What a fork has of another session counts once.
    pub times: u64,
}

impl Memory {
    /// The project's name: of the repository, not of its work tree.
    pub fn project_name(&self) -> &str {
        project::name_of(&self.project)
    }
}

/// Which memories are wanted. Of those that say the same, only the newest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryQuery {
    /// The project's key; `None` for all projects.
    pub project: Option<String>,
    /// The project as a person names it: what [`Filter::project`] takes.
    pub named_project: Option<String>,
    /// Words, of which at least one must occur; the best first. Without them the newest are first.
    pub words: Option<String>,
    /// Of the words only the rarest, which together occur at most so often: BM25 takes some microseconds for each time.
    /// None if even the rarest occurs more often.
    pub entries_max: Option<u64>,
    /// At most so many.
    pub limit: usize,
}

/// A prompt or an answer of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// The message's number.
    pub message: i64,
    /// Whether a person typed it; otherwise it is the model's.
    pub is_prompt: bool,
    /// What was said.
    pub text: String,
    /// When.
    pub at: Option<Timestamp>,
    /// Its vector, L2-normalised. Short messages have none.
    pub vector: Option<Vec<f32>>,
}

/// A memory that has no vector of the model in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnembeddedMemory {
    /// Its number.
    pub id: i64,
    /// Its summary.
    pub summary: String,
}

/// The vectors of one project's memories, as they were at one moment.
#[derive(Clone, Debug, Default)]
pub struct MemoryVectors {
    /// Grows with every change of the project's memories.
    change: i64,
    model: String,
    memories: Vec<i64>,
    scales: Vec<f64>,
    /// int8, `[memories, dimensions]`.
    bodies: Vec<u8>,
    dimensions: usize,
}

impl MemoryVectors {
    /// The memories that are nearest to a vector with their cosines, the nearest first; at most `limit`.
    pub fn nearest(&self, vector: &[f32], limit: usize) -> Vec<(i64, f64)> {
        if self.dimensions == 0 || vector.len() != self.dimensions {
            return Vec::new();
        }
        let (scale, question) = quantize(vector);
        let cosines = self.bodies.chunks_exact(self.dimensions).zip(&self.scales);
        let cosines = cosines.map(|(body, of_memory)| scale * of_memory * f64::from(dot(&question, body)));
        let mut found: Vec<(i64, f64)> = self.memories.iter().copied().zip(cosines).collect();
        let by_cosine = |a: &(i64, f64), b: &(i64, f64)| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0));
        if found.len() > limit && limit > 0 {
            found.select_nth_unstable_by(limit - 1, by_cosine);
            found.truncate(limit);
        }
        found.sort_by(by_cosine);
        found.truncate(limit);
        found
    }

    /// The cosine of a memory with a vector; `None` if the memory has none.
    pub fn cosine(&self, memory: i64, vector: &[f32]) -> Option<f64> {
        let at = self.memories.binary_search(&memory).ok().filter(|_| vector.len() == self.dimensions)?;
        let (scale, question) = quantize(vector);
        let body = &self.bodies[at * self.dimensions..(at + 1) * self.dimensions];
        Some(scale * self.scales[at] * f64::from(dot(&question, body)))
    }

    /// How many memories there are.
    pub fn len(&self) -> usize {
        self.memories.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.memories.is_empty()
    }
}

impl Archive {
    /// Sessions of people whose memories were not made yet, or that have grown since; the newest first. With a model,
    /// only those whose prompts and answers all have a vector of it.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn unremembered(&self, model: Option<&str>, limit: usize) -> Result<Vec<Session>, Error> {
        let sql = format!(
            "SELECT {COLUMNS} FROM sessions s WHERE s.remembered <> s.messages AND s.parent IS NULL
                AND (?1 IS NULL OR NOT EXISTS (
                    SELECT 1 FROM session_messages v JOIN messages_meta m ON m.id = v.message
                    LEFT JOIN vectors e ON e.message = m.id AND e.model = (SELECT id FROM names WHERE name = ?1)
                    WHERE v.session = s.id AND m.kind IN (?2, ?3) AND m.content_length >= ?4 AND e.message IS NULL))
            ORDER BY s.id DESC LIMIT ?5"
        );
        let (prompt, answer) = (MessageKind::Prompt.number(), MessageKind::Answer.number());
        let connection = self.connection()?;
        let mut statement = connection.prepare_cached(&sql)?;
        let params = params![model, prompt, answer, EMBEDDED_BYTES_MIN, limit as i64];
        Ok(statement.query_map(params, read_session)?.collect::<Result<_, _>>()?)
    }

    /// The prompts and answers of a session in order, with their vectors of this model.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn said(&self, session: &Session, model: Option<&str>) -> Result<Vec<Said>, Error> {
        let sql = "SELECT m.id, m.kind, m.at_ms, m.blob, m.position, m.content_length, e.scale, e.body
            FROM session_messages v JOIN messages_meta m ON m.id = v.message
            LEFT JOIN vectors e ON e.message = m.id AND e.model = (SELECT id FROM names WHERE name = ?2)
            WHERE v.session = ?1 AND m.kind IN (?3, ?4) AND m.content_length > 0 ORDER BY v.ordinal";
        let connection = self.connection()?;
        let (prompt, answer) = (MessageKind::Prompt.number(), MessageKind::Answer.number());
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query(params![session.row, model, prompt, answer])?;
        let mut texts = Texts::new(&connection);
        let mut said = Vec::new();
        while let Some(row) = rows.next()? {
            let scale: Option<f64> = row.get(6)?;
            let body = row.get_ref(7)?.as_blob_or_null().map_err(rusqlite::Error::from)?;
            said.push(Said {
                message: row.get(0)?,
                is_prompt: row.get::<_, i64>(1)? == prompt,
                at: time(row.get(2)?),
                text: texts.get(row.get(3)?, row.get(4)?, row.get(5)?)?,
                // A text without tokens has an empty one.
                vector: scale.zip(body).filter(|(scale, _)| *scale > 0.0).map(|(_, body)| normalized(body)),
            });
        }
        Ok(said)
    }

    /// Replaces the memories of a session, and links those that say the same as others of the project. Nothing is
    /// stored if the session was deleted, has grown, or was said more of since it was read. Returns how many are stored.
    ///
    /// # Errors
    /// When the archive cannot be written.
    pub fn replace_memories(
        &self,
        session: &Session,
        memories: &[NewMemory],
        embedded: Option<&Embedded<'_>>,
    ) -> Result<usize, Error> {
        self.write(|transaction| {
            let sql = "UPDATE sessions SET remembered = messages
                WHERE id = ?1 AND session = ?2 AND messages = ?3 AND remembered = ?4 AND project = ?5";
            let (messages, project) = (session.messages as i64, &session.project);
            let params = params![session.row, session.id, messages, session.remembered, project];
            if transaction.prepare_cached(sql)?.execute(params)? == 0 {
                return Ok(0);
            }
            delete_of_session(transaction, session.row)?;
            let now = Timestamp::now().as_millisecond();
            let mut stored = 0;
            for memory in memories {
                if is_forgotten(transaction, &session.project, &memory.summary)? {
                    continue;
                }
                let sql = "INSERT INTO memories
                    (session, project, derivation, summary, dialogue, turns, created_ms, updated_ms)
                    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
                transaction.prepare_cached(sql)?.execute(params![
                    session.row,
                    session.project,
                    memory.derivation.as_str(),
                    memory.summary,
                    memory.dialogue,
                    serde_json::to_string(&memory.turns).unwrap_or_default(),
                    memory.at.as_millisecond(),
                    now,
                ])?;
                let id = transaction.last_insert_rowid();
                transaction
                    .prepare_cached("INSERT INTO memories_words (rowid, summary) VALUES (?1, ?2)")?
                    .execute(params![id, with_word_breaks(&memory.summary)])?;
                let copied = copy_of(transaction, id)?;
                if let Some(other) = copied {
                    link(transaction, id, other)?;
                }
                if let Some((vector, embedded)) = memory.vector.as_ref().zip(embedded) {
                    store_vector(transaction, &session.project, id, vector, embedded.model)?;
                    if copied.is_none() {
                        link_same(transaction, &session.project, id, vector, embedded)?;
                    }
                }
                stored += 1;
            }
            note_change(transaction, &session.project)?;
            Ok(stored)
        })
    }

    /// Finds memories.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn memories(&self, query: &MemoryQuery) -> Result<Vec<Memory>, Error> {
        let connection = self.connection()?;
        let mut conditions = Conditions::default();
        conditions.add_plain("m.merged_into IS NULL");
        if let Some(project) = &query.project {
            conditions.add("m.project = {}", project.clone());
        }
        let mut sessions = "";
        if query.named_project.is_some() {
            sessions = "JOIN sessions s ON s.id = m.session";
            let filter = Filter { project: query.named_project.clone(), ..Filter::default() };
            filter.of_any_session(&mut conditions);
        }
        let (mut join, mut order) = ("", "m.created_ms DESC, m.id DESC");
        if let Some(words) = &query.words {
            let words = match query.entries_max {
                Some(entries_max) => rarest(&connection, words, entries_max)?,
                None => any_word(words),
            };
            if words.is_empty() {
                return Ok(Vec::new());
            }
            conditions.add("w.memories_words MATCH {}", words);
            (join, order) = ("JOIN memories_words w ON w.rowid = m.id", "w.rank, m.id DESC");
        }
        // The texts of those that are returned only: what is sorted is read whole.
        let limit = conditions.param(query.limit as i64);
        let sql = format!(
            "SELECT m.id FROM memories m {sessions} {join} WHERE {}
            ORDER BY {order} LIMIT {limit}",
            conditions.sql()
        );
        let mut statement = connection.prepare_cached(&sql)?;
        let ids: Vec<i64> = statement
            .query_map(params_from_iter(&conditions.params), |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        let mut memory = connection.prepare_cached(&format!("SELECT {MEMORY} WHERE m.id = ?1"))?;
        // One may have been deleted since.
        let found = ids.into_iter().map(|id| Ok(memory.query_row([id], read_memory).optional()?));
        found.filter_map(Result::transpose).collect()
    }

    /// How many memories there are to recall, of a project or of all.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn memory_count(&self, project: Option<&str>) -> Result<u64, Error> {
        let sql = "SELECT count(*) FROM memories WHERE merged_into IS NULL AND (?1 IS NULL OR project = ?1)";
        Ok(self.connection()?.prepare_cached(sql)?.query_row([project], |row| row.get(0))?)
    }

    /// One memory by its number.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn memory(&self, id: i64) -> Result<Option<Memory>, Error> {
        let connection = self.connection()?;
        let sql = format!("SELECT {MEMORY} WHERE m.id = ?1");
        Ok(connection.prepare_cached(&sql)?.query_row([id], read_memory).optional()?)
    }

    /// The files that the project's latest sessions changed, by those on this branch first; at most `limit`.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn last_changed_files(
        &self,
        project: &str,
        branch: Option<&str>,
        sessions: usize,
        limit: usize,
    ) -> Result<Vec<String>, Error> {
        let sql = "SELECT n.name FROM (
                SELECT id, row_number() OVER (ORDER BY branch IS ?2 DESC, ended_ms DESC) place FROM sessions
                WHERE project = ?1 AND parent IS NULL ORDER BY branch IS ?2 DESC, ended_ms DESC LIMIT ?3) s
            JOIN file_modifications f ON f.session = s.id JOIN names n ON n.id = f.file
            GROUP BY n.name ORDER BY min(s.place), max(f.last_ms) DESC LIMIT ?4";
        let connection = self.connection()?;
        let mut statement = connection.prepare_cached(sql)?;
        let params = params![project, branch, sessions as i64, limit as i64];
        Ok(statement.query_map(params, |row| row.get(0))?.collect::<Result<_, _>>()?)
    }

    /// The vectors of a project's memories by this model; `known` is what an earlier call gave, and is returned if
    /// nothing has changed since.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn memory_vectors(
        &self,
        project: &str,
        model: &str,
        known: Option<&MemoryVectors>,
    ) -> Result<Option<MemoryVectors>, Error> {
        let mut connection = self.connection()?;
        let transaction = connection.transaction()?;
        let change = "SELECT number FROM memory_changes WHERE project = ?1";
        let change: i64 = transaction
            .prepare_cached(change)?
            .query_row([project], |row| row.get(0))
            .optional()?
            .unwrap_or(0);
        if known.is_some_and(|known| known.change == change && known.model == model) {
            return Ok(None);
        }
        let mut found = MemoryVectors { change, model: model.to_owned(), ..MemoryVectors::default() };
        for_each_vector(&transaction, project, model, |memory, scale, body| {
            if found.dimensions == 0 {
                found.dimensions = body.len();
            }
            if body.len() == found.dimensions {
                found.memories.push(memory);
                found.scales.push(scale);
                found.bodies.extend_from_slice(body);
            }
        })?;
        Ok(Some(found))
    }

    /// Memories that have no vector of this model, the newest first.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn unembedded_memories(&self, model: &str, limit: usize) -> Result<Vec<UnembeddedMemory>, Error> {
        let sql = "SELECT m.id, m.summary FROM memories m
            LEFT JOIN memory_vectors v ON v.memory = m.id AND v.model = (SELECT id FROM names WHERE name = ?1)
            WHERE v.memory IS NULL ORDER BY m.id DESC LIMIT ?2";
        let connection = self.connection()?;
        let mut statement = connection.prepare_cached(sql)?;
        let read = |row: &Row<'_>| Ok(UnembeddedMemory { id: row.get(0)?, summary: row.get(1)? });
        Ok(statement.query_map(params![model, limit as i64], read)?.collect::<Result<_, _>>()?)
    }

    /// Stores vectors of memories, in place of those of another model. A memory that was deleted meanwhile is left out.
    ///
    /// # Errors
    /// When the archive cannot be written.
    pub fn store_memory_vectors(&self, model: &str, vectors: &[(i64, Vec<f32>)]) -> Result<(), Error> {
        self.write(|transaction| {
            for (id, vector) in vectors {
                let sql = "SELECT project FROM memories WHERE id = ?1";
                let project: Option<String> =
                    transaction.prepare_cached(sql)?.query_row([id], |row| row.get(0)).optional()?;
                if let Some(project) = project {
                    store_vector(transaction, &project, *id, vector, model)?;
                    note_change(transaction, &project)?;
                }
            }
            Ok(())
        })
    }
}

const MEMORY: &str =
    "m.id, s.session, s.branch, m.project, m.derivation, m.summary, m.dialogue, m.turns, m.created_ms,
    m.updated_ms, 1 + (SELECT count(DISTINCT o.turns) FROM memories o WHERE o.merged_into = m.id AND o.turns <> m.turns)
    FROM memories m JOIN sessions s ON s.id = m.session";

fn read_memory(row: &Row<'_>) -> rusqlite::Result<Memory> {
    let turns: String = row.get(7)?;
    Ok(Memory {
        id: row.get(0)?,
        session: row.get(1)?,
        branch: row.get(2)?,
        project: row.get(3)?,
        derivation: row.get(4)?,
        summary: row.get(5)?,
        dialogue: row.get(6)?,
        turns: serde_json::from_str(&turns).unwrap_or_default(),
        at: time(row.get(8)?).unwrap_or_default(),
        updated: time(row.get(9)?).unwrap_or_default(),
        times: row.get(10)?,
    })
}

/// Deletes a memory and those that say the same, and notes not to make them again. `false` if there is none.
pub(crate) fn forget(transaction: &Transaction<'_>, id: i64) -> Result<bool, Error> {
    // The one that the others point to last.
    let of_group = "SELECT id, project, summary FROM memories
        WHERE coalesce(merged_into, id) = (SELECT coalesce(merged_into, id) FROM memories WHERE id = ?1)
        ORDER BY merged_into IS NULL";
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let found: Vec<(i64, String, String)> =
        transaction.prepare_cached(of_group)?.query_map([id], read)?.collect::<Result<_, _>>()?;
    for (id, project, summary) in &found {
        for sql in [
            "INSERT OR IGNORE INTO forgotten_memories VALUES (?1, ?2)",
            "DELETE FROM model_topics WHERE digest = ?2
                AND session IN (SELECT session FROM sessions WHERE project = ?1)",
        ] {
            transaction.prepare_cached(sql)?.execute(params![project, &digest(summary)[..]])?;
        }
        delete_one(transaction, *id)?;
        note_change(transaction, project)?;
    }
    Ok(!found.is_empty())
}

/// Deletes the memories of a session. Those of other sessions that said the same stay.
pub(crate) fn delete_of_session(transaction: &Transaction<'_>, session: i64) -> Result<(), Error> {
    let sql = "SELECT id FROM memories WHERE session = ?1 ORDER BY merged_into IS NULL";
    let ids: Vec<i64> =
        transaction.prepare_cached(sql)?.query_map([session], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for id in &ids {
        delete_one(transaction, *id)?;
    }
    if !ids.is_empty() {
        let sql = "SELECT project FROM sessions WHERE id = ?1";
        let project: String = transaction.prepare_cached(sql)?.query_row([session], |row| row.get(0))?;
        note_change(transaction, &project)?;
    }
    Ok(())
}

/// Deletes a memory. The newest of those that pointed to it takes its place.
fn delete_one(transaction: &Transaction<'_>, id: i64) -> Result<(), Error> {
    let heir = "SELECT id FROM memories WHERE merged_into = ?1 ORDER BY created_ms DESC, id DESC LIMIT 1";
    let heir: Option<i64> = transaction.prepare_cached(heir)?.query_row([id], |row| row.get(0)).optional()?;
    if let Some(heir) = heir {
        let sql = "UPDATE memories SET merged_into = iif(id = ?2, NULL, ?2) WHERE merged_into = ?1";
        transaction.prepare_cached(sql)?.execute(params![id, heir])?;
    }
    transaction.prepare_cached("DELETE FROM memory_vectors WHERE memory = ?1")?.execute([id])?;
    transaction.prepare_cached("DELETE FROM memories WHERE id = ?1")?.execute([id])?;
    Ok(())
}

/// Links a memory with the nearest one of the project if both say the same.
fn link_same(
    transaction: &Transaction<'_>,
    project: &str,
    id: i64,
    vector: &[f32],
    embedded: &Embedded<'_>,
) -> Result<(), Error> {
    let (scale, question) = quantize(vector);
    let mut nearest: Option<(i64, f64)> = None;
    for_each_vector(transaction, project, embedded.model, |other, of_other, body| {
        let cosine = scale * of_other * f64::from(dot(&question, body));
        let is_nearer = nearest.is_none_or(|(_, best)| cosine > best);
        if other != id && body.len() == question.len() && is_nearer {
            nearest = Some((other, cosine));
        }
    })?;
    let Some((other, _)) = nearest.filter(|(_, cosine)| *cosine >= embedded.same) else { return Ok(()) };
    link(transaction, id, other)
}

/// The memory that a session which this one was forked from, or resumed, has of the same messages.
fn copy_of(transaction: &Transaction<'_>, id: i64) -> Result<Option<i64>, Error> {
    let sql = "SELECT o.id FROM memories m JOIN memories o ON o.project = m.project AND o.turns = m.turns
        WHERE m.id = ?1 AND o.session <> m.session AND o.merged_into IS NULL LIMIT 1";
    Ok(transaction.prepare_cached(sql)?.query_row([id], |row| row.get(0)).optional()?)
}

/// Has the older one of two memories point to the newer, with what pointed to it.
fn link(transaction: &Transaction<'_>, id: i64, other: i64) -> Result<(), Error> {
    let newer = "SELECT id FROM memories WHERE id IN (?1, ?2) ORDER BY created_ms DESC, id DESC LIMIT 1";
    let newer: i64 = transaction.prepare_cached(newer)?.query_row([id, other], |row| row.get(0))?;
    let older = if newer == id { other } else { id };
    let sql = "UPDATE memories SET merged_into = ?2 WHERE id = ?1 OR merged_into = ?1";
    transaction.prepare_cached(sql)?.execute([older, newer])?;
    Ok(())
}

/// An expression that finds the rarest words of a text, as far as they occur at most so often in memories together.
fn rarest(connection: &Connection, text: &str, entries_max: u64) -> Result<String, Error> {
    let sql = "SELECT count(*) FROM memories_words WHERE memories_words MATCH ?1";
    let mut count = connection.prepare_cached(sql)?;
    let mut words: Vec<(u64, String)> = Vec::new();
    for word in words_of(text) {
        let holding = count.query_row([&word], |row| row.get(0))?;
        words.push((holding, word));
    }
    words.sort();
    let mut entries = 0;
    let fits = |(holding, _): &&(u64, String)| {
        entries += holding;
        entries <= entries_max
    };
    let words: Vec<&str> = words.iter().take_while(fits).map(|(_, word)| word.as_str()).collect();
    Ok(words.join(" OR "))
}

/// Calls `see` with each memory of a project that is recalled, the factor of its vector and its numbers.
fn for_each_vector(
    connection: &Connection,
    project: &str,
    model: &str,
    mut see: impl FnMut(i64, f64, &[u8]),
) -> Result<(), Error> {
    // A join with `memories` for each row would take most of the time.
    let merged = "SELECT id FROM memories WHERE merged_into IS NOT NULL AND project = ?1";
    let merged: std::collections::HashSet<i64> = connection
        .prepare_cached(merged)?
        .query_map([project], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let sql = "SELECT memory, scale, body FROM memory_vectors
        WHERE project = ?1 AND model = (SELECT id FROM names WHERE name = ?2) AND scale > 0";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![project, model])?;
    while let Some(row) = rows.next()? {
        let memory = row.get(0)?;
        if !merged.contains(&memory) {
            see(memory, row.get(1)?, row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?);
        }
    }
    Ok(())
}

fn store_vector(
    transaction: &Transaction<'_>,
    project: &str,
    id: i64,
    vector: &[f32],
    model: &str,
) -> Result<(), Error> {
    let model = name_id(transaction, model)?;
    let (scale, body) = quantize(vector);
    let sql = "INSERT OR REPLACE INTO memory_vectors VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    transaction.prepare_cached(sql)?.execute(params![
        project,
        id,
        model,
        vector.len() as i64,
        scale,
        body
    ])?;
    Ok(())
}

pub(crate) fn note_change(transaction: &Transaction<'_>, project: &str) -> Result<(), Error> {
    let sql = "INSERT INTO memory_changes VALUES (?1, 1) ON CONFLICT DO UPDATE SET number = number + 1";
    transaction.prepare_cached(sql)?.execute([project])?;
    Ok(())
}

fn is_forgotten(transaction: &Transaction<'_>, project: &str, summary: &str) -> Result<bool, Error> {
    let sql = "SELECT EXISTS (SELECT 1 FROM forgotten_memories WHERE project = ?1 AND digest = ?2)";
    Ok(transaction
        .prepare_cached(sql)?
        .query_row(params![project, &digest(summary)[..]], |row| row.get(0))?)
}

/// Of a summary, whatever its case and spaces.
pub(crate) fn digest(summary: &str) -> [u8; 16] {
    MessageId::digest(canonical(summary).as_bytes()).0
}

/// The numbers of a stored vector, L2-normalised.
fn normalized(body: &[u8]) -> Vec<f32> {
    let numbers = body.iter().map(|number| f32::from(*number as i8));
    let norm = numbers.clone().map(|number| number * number).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    numbers.map(|number| number / norm).collect()
}
