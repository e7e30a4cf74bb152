//! Records: why code is as it is, by what sessions show. Nobody has reviewed them.

use std::fmt;

use jiff::Timestamp;
use knowledge::text::{indexed_parts, with_word_breaks};
use rusqlite::types::Value;
use rusqlite::{Row, params, params_from_iter};
use serde::Serialize;

use crate::Session;
use crate::error::Error;
use crate::record::MessageKind;
use crate::sessions::{COLUMNS, read_session, time};
use crate::store::{Archive, Texts};

/// What a record rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Derivation {
    /// Rules, without a model.
    #[default]
    Rules,
    /// A model that has read the session.
    Model,
}

impl Derivation {
    fn named(name: &str) -> Self {
        if name == Self::Model.as_str() { Self::Model } else { Self::Rules }
    }

    /// Its name in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rules => "rules",
            Self::Model => "model",
        }
    }
}

impl fmt::Display for Derivation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A record that is to be stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewRecord {
    /// What it rests on.
    pub derivation: Derivation,
    /// The type, as in front matter.
    pub kind: String,
    /// The file or folder within the project; empty for all of it.
    pub path: String,
    /// A name in the file.
    pub symbol: Option<String>,
    /// One sentence.
    pub summary: String,
    /// More about it.
    pub detail: Option<String>,
    /// What was considered instead.
    pub alternatives: Vec<String>,
    /// From 0 to 1.
    pub confidence: f64,
    /// The digest of the file when the session was done with it.
    pub sha256: Option<[u8; 32]>,
    /// The message that asked for it.
    pub prompt: Option<i64>,
    /// When it happened.
    pub at: Timestamp,
    /// From when on it should no longer be relied on.
    pub stale_after: Option<Timestamp>,
}

/// A record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Its number in this archive.
    pub id: i64,
    /// The session's id.
    pub session: String,
    /// The client that the session ran in.
    pub source: String,
    /// What it says.
    pub record: NewRecord,
    /// The newest record of the same place and type, if another session has a newer one.
    pub superseded_by: Option<i64>,
    /// Its rank among those that match the query's words: negative, the smaller the better.
    pub rank: Option<f64>,
}

/// Which records are wanted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordQuery {
    /// The project's key.
    pub project: String,
    /// Of these files and folders, of the folders above them, and of all of the project. Empty paths mean the project.
    pub paths: Vec<String>,
    /// Words, of which at least one must occur.
    pub words: Option<String>,
    /// Only of this symbol.
    pub symbol: Option<String>,
    /// Only of these types.
    pub kinds: Vec<String>,
    /// Only from then on.
    pub since: Option<Timestamp>,
    /// At most so many of each place, the newest.
    pub limit: usize,
}

/// A part of a session: what a person asked, and which files were then edited.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// The message's number; `None` before the first prompt.
    pub prompt: Option<i64>,
    /// What was asked.
    pub text: String,
    /// When.
    pub at: Option<Timestamp>,
    /// The edits, in order.
    pub edits: Vec<EditCall>,
}

/// A call of a tool that edits files.
#[derive(Clone, Debug, PartialEq)]
pub struct EditCall {
    /// The message that makes it.
    pub message: i64,
    /// The tool's name.
    pub tool: String,
    /// Its input: JSON, unless redaction or shortening broke it.
    pub input: String,
    /// The beginning of what it returned; `None` if nothing has come.
    pub output: Option<String>,
    /// Whether it failed or was refused.
    pub is_error: bool,
    /// When.
    pub at: Option<Timestamp>,
}

/// A file that a session changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedFile {
    /// The path as the session had it.
    pub path: String,
    /// How many edits the model made.
    pub times: u64,
    /// How often a person changed what the model was about to write.
    pub tuned: u64,
    /// The time of the last edit.
    pub last: Option<Timestamp>,
}

/// The tools of all clients that edit files.
const EDITORS: &str = "'Edit', 'MultiEdit', 'NotebookEdit', 'Write', 'apply_patch', 'shell', 'exec_command'";
const OUTPUT_CHARS_MAX: i64 = 200;
const WORDS_MAX: usize = 16;

impl Archive {
    /// Sessions from which records were not derived yet, or that have grown since; the newest first.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn underived(&self, limit: usize) -> Result<Vec<Session>, Error> {
        let sql = format!(
            "SELECT {COLUMNS} FROM sessions s WHERE s.derived <> s.messages ORDER BY s.id DESC LIMIT ?1"
        );
        let connection = self.connection()?;
        let mut statement = connection.prepare(&sql)?;
        Ok(statement.query_map([limit as i64], read_session)?.collect::<Result<_, _>>()?)
    }

    /// What was asked in a session, and what was edited then.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn turns(&self, session: &Session) -> Result<Vec<Turn>, Error> {
        let connection = self.connection()?;
        let sql = format!(
            "SELECT m.id, m.kind, m.at_ms, m.blob, m.position, m.content_length,
                t.id, n.name, t.input_blob, t.input_at, t.input_length, t.is_answered, t.is_error, t.output_blob,
                t.output_at, min(t.output_length, {OUTPUT_CHARS_MAX})
            FROM session_messages v JOIN messages_meta m ON m.id = v.message
            LEFT JOIN tool_uses t ON t.message = m.id AND t.name IN (SELECT id FROM names WHERE name IN ({EDITORS}))
            LEFT JOIN names n ON n.id = t.name
            WHERE v.session = ?1 AND (m.kind = ?2 OR t.id IS NOT NULL) ORDER BY v.ordinal, t.id"
        );
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params![session.row, MessageKind::Prompt.number()])?;
        let (mut texts, mut outputs) = (Texts::new(&connection), Texts::new(&connection));
        let mut turns: Vec<Turn> = Vec::new();
        while let Some(row) = rows.next()? {
            let (message, at) = (row.get(0)?, time(row.get(2)?));
            if row.get::<_, i64>(1)? == MessageKind::Prompt.number() {
                let text = texts.get(row.get(3)?, row.get(4)?, row.get(5)?)?;
                turns.push(Turn { prompt: Some(message), text, at, edits: Vec::new() });
                continue;
            }
            if turns.is_empty() {
                turns.push(Turn { prompt: None, text: String::new(), at, edits: Vec::new() });
            }
            let is_answered: bool = row.get(11)?;
            // The end of the output may be within a character.
            let output = outputs.get(row.get(13)?, row.get(14)?, row.get(15)?).unwrap_or_default();
            let edit = EditCall {
                message,
                tool: row.get(7)?,
                input: texts.get(row.get(8)?, row.get(9)?, row.get(10)?)?,
                output: is_answered.then_some(output),
                is_error: row.get(12)?,
                at,
            };
            if let Some(turn) = turns.last_mut() {
                turn.edits.push(edit);
            }
        }
        Ok(turns)
    }

    /// The files that a session changed.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn changed_files(&self, session: &Session) -> Result<Vec<ChangedFile>, Error> {
        let sql = "SELECT n.name, f.times, f.tuned, f.last_ms FROM file_modifications f
            JOIN names n ON n.id = f.file WHERE f.session = ?1 ORDER BY n.name";
        let connection = self.connection()?;
        let mut statement = connection.prepare_cached(sql)?;
        let read = |row: &Row<'_>| {
            Ok(ChangedFile {
                path: row.get(0)?,
                times: row.get(1)?,
                tuned: row.get(2)?,
                last: time(row.get(3)?),
            })
        };
        Ok(statement.query_map([session.row], read)?.collect::<Result<_, _>>()?)
    }

    /// The sessions that changed a file whose path ends like this, the newest first.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn sessions_that_changed(&self, ending: &str, limit: usize) -> Result<Vec<Session>, Error> {
        let sql = format!(
            "SELECT {COLUMNS} FROM sessions s WHERE s.id IN (
                SELECT f.session FROM file_modifications f JOIN names n ON n.id = f.file
                WHERE n.name = ?1 OR substr(n.name, -length(?1) - 1) IN ('/' || ?1, '\\' || ?1))
            ORDER BY s.ended_ms DESC LIMIT ?2"
        );
        let connection = self.connection()?;
        let mut statement = connection.prepare_cached(&sql)?;
        Ok(statement.query_map(params![ending, limit as i64], read_session)?.collect::<Result<_, _>>()?)
    }

    /// Replaces the records of a session. Waits for no other writer: SQLite lets one in at a time. Nothing is stored if
    /// the session was deleted, or if there was something new to make records of, since it was read.
    ///
    /// # Errors
    /// When the archive cannot be written.
    pub fn replace_records(&self, session: &Session, records: &[NewRecord]) -> Result<(), Error> {
        self.write(|transaction| {
            let sql = "UPDATE sessions SET derived = ?4
                WHERE id = ?1 AND session = ?2 AND derived = ?3 AND project = ?5";
            let (messages, project) = (session.messages as i64, &session.project);
            let params = params![session.row, session.id, session.derived, messages, project];
            if transaction.prepare_cached(sql)?.execute(params)? == 0 {
                return Ok(());
            }
            transaction.prepare_cached("DELETE FROM records WHERE session = ?1")?.execute([session.row])?;
            let sql =
                "INSERT INTO records (session, project, derivation, type, path, symbol, summary, detail,
                    alternatives, confidence, sha256, prompt, at_ms, stale_after_ms)
                VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
            let mut insert = transaction.prepare_cached(sql)?;
            let sql = "INSERT INTO records_words (rowid, summary, detail) VALUES (?1, ?2, ?3)";
            let mut words = transaction.prepare_cached(sql)?;
            for record in records {
                insert.execute(params![
                    session.row,
                    session.project,
                    record.derivation.as_str(),
                    record.kind,
                    record.path,
                    record.symbol,
                    record.summary,
                    record.detail,
                    serde_json::to_string(&record.alternatives).unwrap_or_default(),
                    record.confidence,
                    record.sha256.map(|digest| digest.to_vec()),
                    record.prompt,
                    record.at.as_millisecond(),
                    record.stale_after.map(Timestamp::as_millisecond),
                ])?;
                let detail = record.detail.as_deref().map(with_word_breaks);
                let id = transaction.last_insert_rowid();
                words.execute(params![id, with_word_breaks(&record.summary), detail])?;
            }
            Ok(())
        })
    }

    /// Finds records by their place and by their words.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn records(&self, query: &RecordQuery) -> Result<Vec<Record>, Error> {
        let connection = self.connection()?;
        let mut found: Vec<Record> = Vec::new();
        let mut add = |records: Vec<Record>| {
            for record in records {
                let of_prompt = said_of_prompt(&record);
                let is_same = |known: &Record| {
                    known.id == record.id || (of_prompt.is_some() && said_of_prompt(known) == of_prompt)
                };
                match found.iter_mut().find(|known| is_same(known)) {
                    Some(known) => known.rank = known.rank.or(record.rank),
                    None => found.push(record),
                }
            }
        };
        for place in places(&query.paths) {
            let (condition, values) = match &place {
                Place::At(path) => ("r.path = {}", vec![Value::from(path.clone())]),
                Place::Below(folder) => (
                    "r.path > {} AND r.path < {}",
                    vec![Value::from(format!("{folder}/")), Value::from(format!("{folder}0"))],
                ),
            };
            add(select(&connection, query, "", &[(condition, values)], "r.at_ms DESC, r.id DESC", "NULL")?);
        }
        let words = query.words.as_deref().map(any_word).unwrap_or_default();
        if !words.is_empty() {
            let join = "JOIN records_words w ON w.rowid = r.id";
            let matches = [("w.records_words MATCH {}", vec![Value::from(words)])];
            add(select(&connection, query, join, &matches, "w.rank", "w.rank")?);
        }
        Ok(found)
    }

    /// The text of a message.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn message_text(&self, message: i64) -> Result<Option<String>, Error> {
        let connection = self.connection()?;
        let sql = "SELECT blob, position, content_length FROM messages_meta WHERE id = ?1";
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query([message])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        Ok(Some(Texts::new(&connection).get(row.get(0)?, row.get(1)?, row.get(2)?)?))
    }
}

/// What a record says, and of which prompt. A fork has what its origin has of a prompt that both have.
fn said_of_prompt(record: &Record) -> Option<(i64, &str, &str, Option<&str>, &str)> {
    let NewRecord { prompt, kind, path, symbol, summary, .. } = &record.record;
    Some(((*prompt)?, kind, path, symbol.as_deref(), summary))
}

enum Place {
    At(String),
    Below(String),
}

/// The places whose records bear on these paths.
fn places(paths: &[String]) -> Vec<Place> {
    let mut at: Vec<&str> = Vec::new();
    for path in paths {
        let above = path.match_indices('/').map(|(end, _)| &path[..end]);
        for one in above.chain([path.as_str(), ""]) {
            if !at.contains(&one) {
                at.push(one);
            }
        }
    }
    let below = paths.iter().filter(|path| !path.is_empty()).map(|path| Place::Below(path.clone()));
    at.into_iter().map(|path| Place::At(path.to_owned())).chain(below).collect()
}

/// Expressions that each find a word of a text in the index of records or of memories, or two letters of a script without
/// spaces that are beside each other.
pub(crate) fn words_of(text: &str) -> Vec<String> {
    crate::search::telling_words(text)
        .into_iter()
        .flat_map(indexed_parts)
        .filter(|part| part.contains(char::is_alphanumeric))
        .take(WORDS_MAX)
        .map(|part| format!("\"{}\"", part.replace(['"', '\0'], "")))
        .collect()
}

/// An expression that finds what has any of these words.
pub(crate) fn any_word(text: &str) -> String {
    words_of(text).join(" OR ")
}

fn select(
    connection: &rusqlite::Connection,
    query: &RecordQuery,
    join: &str,
    conditions: &[(&str, Vec<Value>)],
    order: &str,
    rank: &str,
) -> Result<Vec<Record>, Error> {
    let mut values: Vec<Value> = vec![query.project.clone().into()];
    let mut sql = vec!["r.project = ?1".to_owned()];
    for (condition, of_condition) in conditions {
        let mut condition = (*condition).to_owned();
        for value in of_condition {
            values.push(value.clone());
            condition = condition.replacen("{}", &format!("?{}", values.len()), 1);
        }
        sql.push(condition);
    }
    let mut equals = |column: &str, of: &[String]| {
        let numbers: Vec<String> = of
            .iter()
            .map(|value| {
                values.push(value.clone().into());
                format!("?{}", values.len())
            })
            .collect();
        sql.push(format!("{column} IN ({})", numbers.join(", ")));
    };
    if !query.kinds.is_empty() {
        equals("r.type", &query.kinds);
    }
    if let Some(symbol) = &query.symbol {
        equals("r.symbol", std::slice::from_ref(symbol));
    }
    if let Some(since) = query.since {
        values.push(since.as_millisecond().into());
        sql.push(format!("r.at_ms >= ?{}", values.len()));
    }
    values.push((query.limit as i64).into());
    let sql = format!(
        "SELECT r.id, s.session, s.source, r.derivation, r.type, r.path, r.symbol, r.summary, r.detail,
            r.alternatives, r.confidence, r.sha256, r.prompt, r.at_ms, r.stale_after_ms, {rank},
            iif(r.path = '', NULL, (SELECT n.id FROM records n
                WHERE n.project = r.project AND n.path = r.path AND n.type = r.type AND n.at_ms > r.at_ms
                AND n.session <> r.session ORDER BY n.at_ms DESC LIMIT 1))
        FROM records r JOIN sessions s ON s.id = r.session {join}
        WHERE {} ORDER BY {order} LIMIT ?{}",
        sql.join(" AND "),
        values.len()
    );
    let mut statement = connection.prepare_cached(&sql)?;
    Ok(statement.query_map(params_from_iter(&values), read_record)?.collect::<Result<_, _>>()?)
}

fn read_record(row: &Row<'_>) -> rusqlite::Result<Record> {
    let alternatives: String = row.get(9)?;
    let record = NewRecord {
        derivation: Derivation::named(&row.get::<_, String>(3)?),
        kind: row.get(4)?,
        path: row.get(5)?,
        symbol: row.get(6)?,
        summary: row.get(7)?,
        detail: row.get(8)?,
        alternatives: serde_json::from_str(&alternatives).unwrap_or_default(),
        confidence: row.get(10)?,
        sha256: row.get(11)?,
        prompt: row.get(12)?,
        at: time(row.get(13)?).unwrap_or_default(),
        stale_after: time(row.get(14)?),
    };
    Ok(Record {
        id: row.get(0)?,
        session: row.get(1)?,
        source: row.get(2)?,
        record,
        rank: row.get(15)?,
        superseded_by: row.get(16)?,
    })
}
