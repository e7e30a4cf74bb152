//! What a model that has read a session says of it: what it was about, and why code is as it is.
//!
//! The model reads a session when it is captured, which may be before it is archived, and reads it again when it goes on.
//! So this lies by the client's id, beside what was said before of the same session, until the session is deleted.

use knowledge::CodeRecord;
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::Session;
use crate::error::Error;
use crate::memories::digest;
use crate::record::MessageId;
use crate::store::Archive;

/// What a model says of a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelFindings {
    /// What it was about: a summary, and the `uuid`s of the lines that it rests on.
    pub topics: Vec<(String, Vec<String>)>,
    /// Why code is as it is.
    pub records: Vec<CodeRecord>,
}

impl ModelFindings {
    /// Whether the model said nothing.
    pub fn is_empty(&self) -> bool {
        self.topics.is_empty() && self.records.is_empty()
    }
}

impl Archive {
    /// Notes what a model says of a session, beside what it said before of the same session, and has the session's
    /// memories and records made again. The session need not be archived yet; one that a person had deleted is left out.
    ///
    /// # Errors
    /// When the archive cannot be written.
    pub fn note_findings(&self, session: &str, findings: &ModelFindings) -> Result<(), Error> {
        self.write(|transaction| {
            let forgotten = "SELECT EXISTS (SELECT 1 FROM forgotten WHERE session = ?1)";
            if transaction.prepare_cached(forgotten)?.query_row([session], |row| row.get(0))? {
                return Ok(());
            }
            let mut added = 0;
            for (summary, lines) in &findings.topics {
                let lines = serde_json::to_string(lines).unwrap_or_default();
                // Not what a person has deleted.
                let sql =
                    "INSERT OR IGNORE INTO model_topics SELECT ?1, ?2, ?3, ?4 WHERE NOT EXISTS (SELECT 1
                    FROM forgotten_memories f JOIN sessions s ON s.project = f.project
                    WHERE s.session = ?1 AND f.digest = ?2)";
                let params = params![session, &digest(summary)[..], summary, lines];
                added += transaction.prepare_cached(sql)?.execute(params)?;
            }
            if added > 0 {
                transaction
                    .prepare_cached(
                        "UPDATE sessions SET remembered = min(remembered, 0) - 1 WHERE session = ?1",
                    )?
                    .execute([session])?;
            }
            let mut added = 0;
            for record in &findings.records {
                let CodeRecord { kind, path, symbol, summary, .. } = record;
                let says =
                    [kind.as_str(), path.as_deref().unwrap_or(""), symbol.as_deref().unwrap_or(""), summary];
                let record = serde_json::to_string(record).unwrap_or_default();
                added += transaction
                    .prepare_cached("INSERT OR IGNORE INTO model_records VALUES (?1, ?2, ?3)")?
                    .execute(params![session, &digest(&says.join("\n"))[..], record])?;
            }
            if added > 0 {
                transaction
                    .prepare_cached("UPDATE sessions SET derived = min(derived, 0) - 1 WHERE session = ?1")?
                    .execute([session])?;
            }
            Ok(())
        })
    }

    /// What a model said that a session was about, each with the numbers of the messages that it rests on.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn noted_topics(&self, session: &Session) -> Result<Vec<(String, Vec<i64>)>, Error> {
        let connection = self.connection()?;
        let mut statement =
            connection.prepare_cached("SELECT summary, lines FROM model_topics WHERE session = ?1")?;
        let mut rows = statement.query([&session.id])?;
        let mut topics = Vec::new();
        while let Some(row) = rows.next()? {
            let lines: Vec<String> = serde_json::from_str(&row.get::<_, String>(1)?).unwrap_or_default();
            topics.push((row.get(0)?, messages(&connection, &lines)?));
        }
        Ok(topics)
    }

    /// Why code is as it is, as a model said of a session, each with the numbers of the messages that it rests on.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn noted_records(&self, session: &Session) -> Result<Vec<(CodeRecord, Vec<i64>)>, Error> {
        let connection = self.connection()?;
        let mut statement =
            connection.prepare_cached("SELECT record FROM model_records WHERE session = ?1")?;
        let mut rows = statement.query([&session.id])?;
        let mut records = Vec::new();
        while let Some(row) = rows.next()? {
            // One that cannot be read says nothing.
            if let Ok(record) = serde_json::from_str::<CodeRecord>(&row.get::<_, String>(0)?) {
                let messages = messages(&connection, &record.lines)?;
                records.push((record, messages));
            }
        }
        Ok(records)
    }
}

/// The numbers of the messages of these lines, as far as they are archived.
fn messages(connection: &Connection, lines: &[String]) -> Result<Vec<i64>, Error> {
    let mut message = connection.prepare_cached("SELECT id FROM messages_meta WHERE uuid = ?1")?;
    let mut found = Vec::new();
    for line in lines {
        let uuid = MessageId::parse(line).0;
        found.extend(message.query_row([&uuid[..]], |row| row.get::<_, i64>(0)).optional()?);
    }
    Ok(found)
}
