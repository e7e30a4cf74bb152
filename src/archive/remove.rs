//! Deletes sessions for good. Nothing else does: a transcript that is gone takes nothing with it.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, Row, Transaction, params};
use serde::Serialize;
use transcript::named_files;

use crate::block::pack;
use crate::claude_code::EDITORS as CLAUDE_CODE_EDITORS;
use crate::codex::patched_files;
use crate::error::Error;
use crate::feedback;
use crate::memories;
use crate::sessions::{COLUMNS, Session, add_tokens, find, read_session, session_of_row};
use crate::store::{Archive, Texts, Writer};
use crate::sync::{FORGOTTEN, old};

/// How many sessions are deleted in one transaction.
const DELETED_AT_ONCE: usize = 50;
/// What makes a call one whose result is not stored.
const UNANSWERED: &str =
    "is_answered = 0, is_error = 0, result = NULL, output_blob = NULL, output_length = 0,
    output_bytes = NULL, output_digest = NULL";
/// How long to wait for others' reads before what was deleted is overwritten. A search ends by then; an export into a
/// pager may take as long as a person likes.
const READER_PATIENCE: Duration = Duration::from_secs(2);

/// What was deleted, or would be.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Removal {
    /// The sessions, with subagents', the oldest first.
    pub sessions: Vec<Session>,
    /// The messages that only they have.
    pub messages: u64,
    /// The messages that other sessions have too: they stay.
    pub shared: u64,
    /// Those sessions.
    pub shared_with: Vec<String>,
    /// Whether it is not overwritten on the disk yet, because another process reads the archive. A later sync does it.
    pub is_in_log: bool,
}

/// Why sessions are deleted, which decides whether a sync takes them again.
#[derive(Clone, Copy)]
pub(crate) enum Reason {
    /// A person deletes what is older than this. It is taken again, whole, if everything is or if it goes on.
    Pruned,
    /// The settings keep no session that ended before. It is taken again once they do.
    Old(Timestamp),
    /// It is never taken again.
    Forgotten,
}

impl Archive {
    /// Deletes the sessions that ended before a time, with their subagents'. Says only what it would delete if
    /// `is_dry_run`.
    ///
    /// # Errors
    /// [`Error::Busy`] when another process writes for longer than `patience`.
    pub fn prune(&self, before: Timestamp, is_dry_run: bool, patience: Duration) -> Result<Removal, Error> {
        let old = |connection: &Connection| ended_before(connection, before);
        if is_dry_run {
            let connection = self.connection()?;
            return removal(&connection, old(&connection)?);
        }
        self.remove(old, Reason::Pruned, patience)
    }

    /// Deletes the sessions that ended before a time, with their subagents', as long as
    /// [`SyncSettings::keep_since`](crate::SyncSettings::keep_since) does not take them: a sync that does adds them again.
    ///
    /// # Errors
    /// As [`Archive::prune`].
    pub fn keep_since(&self, since: Timestamp, patience: Duration) -> Result<Removal, Error> {
        self.remove(|connection| ended_before(connection, since), Reason::Old(since), patience)
    }

    /// Deletes a session, its subagents' and what only they have, overwrites it on the disk, and never takes it again.
    ///
    /// # Errors
    /// Those of [`Archive::session`], and [`Error::Busy`] when another process writes for longer than `patience`.
    pub fn forget(&self, prefix: &str, patience: Duration) -> Result<Removal, Error> {
        let id = find(&*self.connection()?, prefix)?.id;
        let of_session = |connection: &Connection| match with_subagents(connection, &id)? {
            sessions if sessions.is_empty() => Err(Error::UnknownSession { prefix: prefix.to_owned() }),
            sessions => Ok(sessions),
        };
        self.remove(of_session, Reason::Forgotten, patience)
    }

    /// Deletes a memory and those that say the same, overwrites them on the disk, and does not make them again. Returns
    /// [`Removal::is_in_log`], or `None` if there is none of this number.
    ///
    /// # Errors
    /// [`Error::Busy`] when another process writes for longer than `patience`.
    pub fn forget_memory(&self, id: i64, patience: Duration) -> Result<Option<bool>, Error> {
        let mut writer = self.writer_in_turn(patience)?;
        let transaction = writer.begin()?;
        let is_found = memories::forget(&transaction, id)?;
        transaction.commit()?;
        is_found.then(|| overwrite(&mut writer, &["memories_words"]).map(|done| !done)).transpose()
    }

    pub(crate) fn remove(
        &self,
        choose: impl Fn(&Connection) -> Result<Vec<Session>, Error>,
        reason: Reason,
        patience: Duration,
    ) -> Result<Removal, Error> {
        if choose(&*self.connection()?)?.is_empty() {
            return Ok(Removal::default());
        }
        let mut writer = self.writer_in_turn(patience)?;
        // Another process may have written while this one waited: a session went on, or its row is another one's.
        let mut removal = removal(&writer.connection, choose(&writer.connection)?)?;
        for some in removal.sessions.chunks(DELETED_AT_ONCE) {
            let transaction = writer.begin()?;
            for session in some {
                delete(&transaction, session, reason)?;
            }
            transaction.commit()?;
        }
        remove_names(&mut writer)?;
        removal.is_in_log = !overwrite(&mut writer, &["messages", "records_words", "memories_words"])?;
        Ok(removal)
    }
}

/// The sessions that ended before a time, with their subagents'.
pub(crate) fn ended_before(connection: &Connection, before: Timestamp) -> Result<Vec<Session>, Error> {
    let sql = format!(
        "SELECT {COLUMNS} FROM sessions s
        LEFT JOIN sessions p ON p.session = s.parent
        WHERE coalesce(p.ended_ms, s.ended_ms, s.archived_ms) < ?1 ORDER BY s.ended_ms, s.id"
    );
    read_all(connection, &sql, params![before.as_millisecond()])
}

/// A session, its subagents' and theirs. These name their caller by the last part of its id.
fn with_subagents(connection: &Connection, id: &str) -> Result<Vec<Session>, Error> {
    let sql = format!(
        "WITH RECURSIVE calls (session) AS (
            SELECT ?1 UNION SELECT s.session FROM calls c
                JOIN sessions s ON s.parent IN (c.session, substr(c.session, instr(c.session, '/') + 1))
        ) SELECT {COLUMNS} FROM calls JOIN sessions s USING (session) ORDER BY s.ended_ms, s.id"
    );
    read_all(connection, &sql, params![id])
}

fn read_all(
    connection: &Connection,
    sql: &str,
    params: impl rusqlite::Params,
) -> Result<Vec<Session>, Error> {
    let mut statement = connection.prepare(sql)?;
    let mut sessions: Vec<Session> = statement.query_map(params, read_session)?.collect::<Result<_, _>>()?;
    sessions.iter_mut().try_for_each(|session| add_tokens(connection, session))?;
    Ok(sessions)
}

/// Counts the messages that go with sessions, and those that stay with others.
fn removal(connection: &Connection, sessions: Vec<Session>) -> Result<Removal, Error> {
    let only = "SELECT count(*) FROM messages_meta m WHERE m.session = ?1
        AND NOT EXISTS (SELECT 1 FROM shared_messages s WHERE s.message = m.id)";
    let shared = "WITH mine (message) AS (SELECT id FROM messages_meta WHERE session = ?1
            UNION ALL SELECT message FROM shared_messages WHERE session = ?1)
        SELECT mine.message, m.session FROM mine JOIN messages_meta m ON m.id = mine.message WHERE m.session <> ?1
        UNION ALL SELECT mine.message, s.session FROM mine JOIN shared_messages s ON s.message = mine.message
            WHERE s.session <> ?1";
    let rows: BTreeSet<i64> = sessions.iter().map(|session| session.row).collect();
    let mut removal = Removal { sessions, ..Removal::default() };
    let (mut going, mut staying, mut others) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for session in &rows {
        removal.messages +=
            connection.prepare_cached(only)?.query_row([session], |row| row.get::<_, u64>(0))?;
        let mut statement = connection.prepare_cached(shared)?;
        let mut found = statement.query([session])?;
        while let Some(row) = found.next()? {
            let (message, other): (i64, i64) = (row.get(0)?, row.get(1)?);
            if rows.contains(&other) {
                going.insert(message);
            } else {
                staying.insert(message);
                others.insert(other);
            }
        }
    }
    removal.messages += going.difference(&staying).count() as u64;
    removal.shared = staying.len() as u64;
    for other in others {
        removal.shared_with.push(session_of_row(connection, other)?.id);
    }
    Ok(removal)
}

/// Deletes the names of files, tools and models that nothing uses any more. Which these are is found for all at once;
/// SQLite's own check would look through whole tables for each of them.
fn remove_names(writer: &mut Writer) -> Result<(), Error> {
    writer.connection.pragma_update(None, "foreign_keys", false)?;
    let removed = (|| {
        let transaction = writer.begin()?;
        let used = "SELECT group_concat(format('SELECT %w FROM %w WHERE %w IS NOT NULL', k.\"from\", t.name, k.\"from\"),
                ' UNION ')
            FROM sqlite_schema t, pragma_foreign_key_list(t.name) k WHERE k.\"table\" = 'names'";
        let used: String = transaction.query_row(used, [], |row| row.get(0))?;
        transaction.execute(&format!("DELETE FROM names WHERE id NOT IN ({used})"), [])?;
        Ok(transaction.commit()?)
    })();
    writer.connection.pragma_update(None, "foreign_keys", true)?;
    removed
}

/// Deleted words are only marked as deleted until their segment is merged; deleted rows are overwritten at once, but
/// stay in the log until it is emptied. `false` if that has to be done later.
fn overwrite(writer: &mut Writer, words: &[&str]) -> Result<bool, Error> {
    let transaction = writer.begin()?;
    for table in words {
        transaction.execute(&format!("INSERT INTO {table} ({table}) VALUES ('optimize')"), [])?;
    }
    transaction.commit()?;
    writer.empty_log(READER_PATIENCE)
}

fn delete(transaction: &Transaction<'_>, session: &Session, reason: Reason) -> Result<(), Error> {
    hand_over_shared(transaction, session.row)?;
    memories::delete_of_session(transaction, session.row)?;
    transaction.execute(
        "DELETE FROM messages WHERE rowid IN (SELECT id FROM messages_meta WHERE session = ?1)",
        [session.row],
    )?;
    // The output of a call that an earlier session has too may be this one's.
    let of_others = format!(
        "UPDATE tool_uses SET {UNANSWERED} WHERE message IN (SELECT message FROM shared_messages WHERE session = ?1)
            AND output_blob IN (SELECT id FROM blobs WHERE session = ?1)"
    );
    transaction.execute(&of_others, [session.row])?;
    feedback::delete_of_session(transaction, session.row)?;
    for sql in [
        "DELETE FROM vectors WHERE message IN (SELECT id FROM messages_meta WHERE session = ?1)",
        "DELETE FROM tool_uses WHERE session = ?1",
        "DELETE FROM shared_messages WHERE session = ?1",
        "DELETE FROM messages_meta WHERE session = ?1",
        "DELETE FROM requests WHERE session = ?1",
        "DELETE FROM file_modifications WHERE session = ?1",
        "DELETE FROM records WHERE session = ?1",
        "DELETE FROM topics WHERE session = ?1",
        "DELETE FROM links WHERE source = ?1 OR target = ?1",
        "DELETE FROM unlinked WHERE session = ?1",
        "DELETE FROM blobs WHERE session = ?1",
    ] {
        transaction.execute(sql, [session.row])?;
    }
    if let Reason::Forgotten = reason {
        let now = Timestamp::now().as_millisecond();
        transaction.execute("INSERT OR IGNORE INTO forgotten VALUES (?1, ?2)", params![session.id, now])?;
    }
    let skipped = match reason {
        Reason::Pruned => None,
        Reason::Old(before) => Some(old(before)),
        Reason::Forgotten => Some(FORGOTTEN.to_owned()),
    };
    let lines =
        "DELETE FROM malformed_lines WHERE path IN (SELECT path FROM extraction_state WHERE session = ?1)";
    transaction.execute(lines, [session.row])?;
    // The file is known as one to leave alone, or until it changes, and nothing else of it.
    let state =
        "UPDATE extraction_state SET session = NULL, bytes = 0, lines = 0, digest = x'', reader_state = '',
        unknown = '{}', malformed = 0, skipped = coalesce(?2, skipped) WHERE session = ?1";
    transaction.execute(state, params![session.row, skipped])?;
    for table in ["model_topics", "model_records"] {
        transaction.execute(&format!("DELETE FROM {table} WHERE session = ?1"), [&session.id])?;
    }
    transaction.execute("DELETE FROM sessions WHERE id = ?1", [session.row])?;
    Ok(())
}

/// Gives the messages that other sessions have too to the first of them, with their texts, tool calls and edits of files.
fn hand_over_shared(transaction: &Transaction<'_>, session: i64) -> Result<(), Error> {
    let sql =
        "SELECT m.id, min(s.session), m.blob, m.position, m.content_length, m.thinking_length, m.request
        FROM messages_meta m JOIN shared_messages s ON s.message = m.id
        WHERE m.session = ?1 AND s.session <> ?1 GROUP BY m.id ORDER BY m.ordinal";
    struct Shared {
        message: i64,
        heir: i64,
        blob: Option<i64>,
        at: i64,
        content: i64,
        thinking: i64,
        request: Option<i64>,
    }
    let read = |row: &Row<'_>| {
        Ok(Shared {
            message: row.get(0)?,
            heir: row.get(1)?,
            blob: row.get(2)?,
            at: row.get(3)?,
            content: row.get(4)?,
            thinking: row.get(5)?,
            request: row.get(6)?,
        })
    };
    let shared: Vec<Shared> =
        transaction.prepare(sql)?.query_map([session], read)?.collect::<Result<_, _>>()?;
    let edited = "SELECT f.file, n.name FROM file_modifications f JOIN names n ON n.id = f.file
        WHERE f.session = ?1 AND f.times > 0";
    let edited: Vec<(i64, String)> = transaction
        .prepare_cached(edited)?
        .query_map([session], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    let mut texts = Texts::new(transaction);
    // The texts of all messages of one heir lie in one new block.
    let mut moved: HashMap<i64, (i64, String)> = HashMap::new();
    for one in &shared {
        if let std::collections::hash_map::Entry::Vacant(vacant) = moved.entry(one.heir) {
            transaction
                .execute("INSERT INTO blobs (session, length, body) VALUES (?1, 0, x'')", [one.heir])?;
            vacant.insert((transaction.last_insert_rowid(), String::new()));
        }
        let Some((blob, text)) = moved.get_mut(&one.heir) else { continue };
        let at = text.len() as i64;
        text.push_str(&texts.get(one.blob, one.at, one.content + one.thinking)?);
        transaction.execute(
            "UPDATE messages_meta SET session = ?2, blob = iif(blob IS NULL, NULL, ?3), position = ?4,
                ordinal = (SELECT ordinal FROM shared_messages WHERE message = ?1 AND session = ?2) WHERE id = ?1",
            params![one.message, one.heir, *blob, at],
        )?;
        transaction.execute(
            "DELETE FROM shared_messages WHERE message = ?1 AND session = ?2",
            params![one.message, one.heir],
        )?;
        if let Some(request) = one.request {
            transaction
                .execute("UPDATE requests SET session = ?2 WHERE id = ?1", params![request, one.heir])?;
        }
        let tools =
            "SELECT t.id, n.name, t.input_blob, t.input_at, t.input_length, t.output_blob, t.output_at, t.output_length,
                t.result IS NULL OR EXISTS (SELECT 1 FROM session_messages WHERE message = t.result AND session = ?2),
                t.result IS NULL OR EXISTS (SELECT 1 FROM session_messages WHERE message = t.result AND session <> ?3)
            FROM tool_uses t JOIN names n ON n.id = t.name WHERE t.message = ?1";
        let mut statement = transaction.prepare_cached(tools)?;
        let mut rows = statement.query([one.message, one.heir, session])?;
        let mut calls = Vec::new();
        while let Some(row) = rows.next()? {
            let input = texts.get(row.get(2)?, row.get(3)?, row.get(4)?)?;
            let (is_of_heir, is_kept): (bool, bool) = (row.get(8)?, row.get(9)?);
            let output = match row.get::<_, Option<i64>>(5)? {
                output if is_of_heir => Some((output, texts.get(output, row.get(6)?, row.get(7)?)?)),
                _ => None,
            };
            calls.push((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, input, output, is_kept));
        }
        for (call, tool, input, output, is_kept) in calls {
            let params = params![call, one.heir, *blob, text.len() as i64];
            text.push_str(&input);
            transaction.execute(
                "UPDATE tool_uses SET session = ?2, input_blob = ?3, input_at = ?4 WHERE id = ?1",
                params,
            )?;
            if let Some((output_blob, output)) = output {
                let params = params![call, output_blob.map(|_| *blob), text.len() as i64];
                text.push_str(&output);
                transaction
                    .execute("UPDATE tool_uses SET output_blob = ?2, output_at = ?3 WHERE id = ?1", params)?;
            } else if !is_kept {
                // Only the session that goes has the result.
                transaction.execute(&format!("UPDATE tool_uses SET {UNANSWERED} WHERE id = ?1"), [call])?;
            }
            for named in edited_by(&tool, &input) {
                let is_named = |(_, path): &&(i64, String)| is_end_of(&named, path);
                let Some((file, _)) = edited.iter().filter(is_named).min_by_key(|(_, path)| path.len())
                else {
                    continue;
                };
                let sql = "UPDATE file_modifications SET times = times + 1 WHERE session = ?1 AND file = ?2";
                transaction.prepare_cached(sql)?.execute([one.heir, *file])?;
            }
        }
        // The output of a call that stays with an earlier session.
        let outputs = "SELECT id, output_blob, output_at, output_length FROM tool_uses WHERE result = ?1
            AND session <> ?2 AND output_blob IN (SELECT id FROM blobs WHERE session = ?2)";
        let mut statement = transaction.prepare_cached(outputs)?;
        let mut rows = statement.query(params![one.message, session])?;
        let mut calls = Vec::new();
        while let Some(row) = rows.next()? {
            calls.push((row.get::<_, i64>(0)?, texts.get(row.get(1)?, row.get(2)?, row.get(3)?)?));
        }
        for (call, output) in calls {
            let params = params![call, *blob, text.len() as i64];
            text.push_str(&output);
            transaction
                .execute("UPDATE tool_uses SET output_blob = ?2, output_at = ?3 WHERE id = ?1", params)?;
        }
    }
    for (heir, (blob, text)) in moved {
        let derived = "UPDATE sessions SET derived = min(derived, 0) - 1 WHERE id = ?1";
        transaction.execute(derived, [heir])?;
        let params = params![blob, text.len() as i64, pack(&text)];
        transaction.execute("UPDATE blobs SET length = ?2, body = ?3 WHERE id = ?1", params)?;
    }
    Ok(())
}

/// The files that a call edits, as it names them.
fn edited_by(tool: &str, input: &str) -> Vec<String> {
    if CLAUDE_CODE_EDITORS.contains(&tool) {
        return named_files(tool, input.as_bytes());
    }
    // Of a patch in JSON, too, which may have been shortened.
    patched_files(&input.replace("\\n", "\n"))
}

fn is_end_of(named: &str, path: &str) -> bool {
    let before = path.strip_suffix(named.trim_start_matches("./"));
    before.is_some_and(|before| before.is_empty() || before.ends_with(['/', '\\']))
}
