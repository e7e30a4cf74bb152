//! Stores what was read of transcripts. Only this file adds messages.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use jiff::Timestamp;
use knowledge::text::{is_stop_word, one_line, with_word_breaks};
use rusqlite::{OptionalExtension as _, Transaction, params};

use crate::block::{Block, pack};
use crate::error::Error;
use crate::links;
use crate::project::Project;
use crate::reader::Piece;
use crate::record::{MessageId, MessageKind, Part, Placed, Request, ToolResult};
use crate::source::TranscriptHead;
use crate::store::Texts;

const FIRST_PROMPT_CHARS_MAX: usize = 300;
/// How much of a prompt tells what it is about; pasted text follows.
const TOPIC_BYTES_MAX: usize = 2 << 10;
const TOPICS_OF_PROMPT_MAX: usize = 40;
/// The most malformed lines of a file that are kept by number.
const MALFORMED_KEPT_MAX: i64 = 100;

/// A transcript whose pieces are stored.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) path: String,
    pub(crate) source: &'static str,
    pub(crate) head: TranscriptHead,
    pub(crate) size: u64,
    pub(crate) modified_ms: i64,
    /// Whether it is read again from its beginning, as it was rewritten.
    pub(crate) is_rewritten: bool,
    /// Whether the piece is the file's first, so that earlier counts of its lines no longer hold.
    pub(crate) is_first: bool,
}

/// What storing has changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stored {
    pub(crate) messages: u64,
    /// Messages whose text was replaced: their lines were rewritten.
    pub(crate) changed: u64,
    pub(crate) tool_uses: u64,
    /// The sessions that have something new, and whether each is new itself.
    pub(crate) sessions: HashMap<i64, bool>,
}

/// Writes within one transaction.
pub(crate) struct PieceWriter<'t> {
    transaction: &'t Transaction<'t>,
    names: &'t mut HashMap<String, i64>,
    now: Timestamp,
}

struct SessionRow {
    id: i64,
    is_new: bool,
    next_ordinal: i64,
    cwd: String,
    is_subagent: bool,
}

/// Where a text lies: its block, its beginning there and its length.
type Place = (Option<i64>, i64, i64);

fn read_place(row: &rusqlite::Row<'_>) -> rusqlite::Result<Place> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
}

/// What is known of a change of a file.
#[derive(Clone, Copy)]
enum Change {
    /// Only that it was changed.
    Some,
    /// The model's edit, and when.
    Edit(Option<i64>),
    /// An edit that counts in an earlier session, and when it was made.
    Copied(Option<i64>),
    /// A person has changed what the model was about to write.
    Tuning,
}

#[derive(Default)]
struct Added {
    messages: i64,
    changed: i64,
    prompts: i64,
    answers: i64,
    tool_uses: i64,
    /// Calls that are stored with another session.
    shared_tool_uses: i64,
    first_prompt: Option<String>,
    started_ms: Option<i64>,
    ended_ms: Option<i64>,
}

impl<'t> PieceWriter<'t> {
    /// `names` are the ids that are known already; they are kept between transactions that were committed.
    pub(crate) fn new(
        transaction: &'t Transaction<'t>,
        names: &'t mut HashMap<String, i64>,
        now: Timestamp,
    ) -> Self {
        Self { transaction, names, now }
    }

    /// Stores a piece of a transcript, and how far it was read.
    pub(crate) fn store(&mut self, origin: &Origin, piece: Piece, stored: &mut Stored) -> Result<(), Error> {
        let Piece {
            blocks,
            changed_files,
            requests,
            facts,
            end,
            unknown,
            malformed,
            malformed_count,
            is_last,
            ..
        } = piece;
        let has_content = !blocks.is_empty() || !changed_files.is_empty();
        let session = match self.session(&origin.head.session)? {
            Some(session) => Some(session),
            // Nothing was said yet: a session without a message is none.
            None if !has_content => None,
            None => Some(self.add_session(origin)?),
        };
        if let Some(mut session) = session {
            let mut added = Added::default();
            for block in blocks {
                self.store_block(&mut session, block, &mut added)?;
            }
            for file in &changed_files {
                self.note_file(&session, file, Change::Some)?;
            }
            let mut title = facts.title;
            for (last, summary) in facts.summaries {
                if self.has_message(session.id, last)? {
                    title = Some(summary);
                    break;
                }
            }
            for (at, request) in &requests {
                self.note_counts(session.id, origin, request, at.map(Timestamp::as_millisecond))?;
            }
            let sql = "UPDATE sessions SET branch = coalesce(?2, branch), client_version = coalesce(?3, client_version),
                    model = coalesce(?4, model), title = coalesce(?5, title),
                    first_prompt = coalesce(first_prompt, ?6),
                    started_ms = coalesce(min(started_ms, ?7), started_ms, ?7),
                    ended_ms = coalesce(max(ended_ms, ?8), ended_ms, ?8),
                    messages = messages + ?9, prompts = prompts + ?10, answers = answers + ?11,
                    tool_uses = tool_uses + ?12, next_ordinal = ?13, transcript = ?14
                WHERE id = ?1";
            self.transaction.prepare_cached(sql)?.execute(params![
                session.id,
                facts.branch,
                facts.client_version,
                facts.model,
                title,
                added.first_prompt,
                added.started_ms,
                added.ended_ms,
                added.messages,
                added.prompts,
                added.answers,
                added.tool_uses + added.shared_tool_uses,
                session.next_ordinal,
                origin.path,
            ])?;
            stored.messages += added.messages as u64;
            stored.changed += added.changed as u64;
            stored.tool_uses += added.tool_uses as u64;
            if added.messages > 0 || session.is_new {
                self.transaction
                    .prepare_cached("INSERT OR IGNORE INTO unlinked VALUES (?1)")?
                    .execute([session.id])?;
                *stored.sessions.entry(session.id).or_default() |= session.is_new;
            }
        }
        let session = self.session(&origin.head.session)?.map(|session| session.id);
        let mut all_unknown: std::collections::BTreeMap<String, u64> = Default::default();
        let mut all_malformed = malformed_count as i64;
        if !origin.is_first {
            let sql = "SELECT unknown, malformed FROM extraction_state WHERE path = ?1";
            let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?));
            let before = self.transaction.prepare_cached(sql)?.query_row([&origin.path], read).optional()?;
            if let Some((unknown, malformed)) = before {
                all_unknown = serde_json::from_str(&unknown).unwrap_or_default();
                all_malformed += malformed;
            }
        }
        for (kind, count) in unknown {
            *all_unknown.entry(kind).or_default() += count;
        }
        let sql = "INSERT OR REPLACE INTO extraction_state
            (path, source, session, bytes, lines, digest, size, modified_ms, reader_state, unknown, malformed)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
        self.transaction.prepare_cached(sql)?.execute(params![
            origin.path,
            origin.source,
            session,
            end.bytes as i64,
            end.lines as i64,
            end.digest,
            // Until it is read to its end, it has to look changed.
            if is_last { origin.size as i64 } else { -1 },
            origin.modified_ms,
            end.reader_state,
            serde_json::to_string(&all_unknown).unwrap_or_default(),
            all_malformed,
        ])?;
        self.note_malformed(&origin.path, &malformed, origin.is_first)
    }

    /// Records that nothing of a file is taken, and why.
    pub(crate) fn store_skipped(
        &self,
        path: &str,
        source: &str,
        size: u64,
        modified_ms: i64,
        why: &str,
    ) -> Result<(), Error> {
        // What was read of it before stays, so that it goes on from there should the reason go.
        let sql = "INSERT INTO extraction_state (path, source, size, modified_ms, skipped) VALUES (?1, ?2, ?3, ?4, ?5)
            ON CONFLICT (path) DO UPDATE SET size = ?3, modified_ms = ?4, skipped = ?5";
        let params = params![path, source, size as i64, modified_ms, why];
        self.transaction.prepare_cached(sql)?.execute(params)?;
        Ok(())
    }

    fn note_malformed(&self, path: &str, lines: &[(u64, &str)], is_first: bool) -> Result<(), Error> {
        if is_first {
            self.transaction
                .prepare_cached("DELETE FROM malformed_lines WHERE path = ?1")?
                .execute([path])?;
        }
        if lines.is_empty() {
            return Ok(());
        }
        let sql = "INSERT OR IGNORE INTO malformed_lines SELECT ?1, ?2, ?3
            WHERE (SELECT count(*) FROM malformed_lines WHERE path = ?1) < ?4";
        let mut insert = self.transaction.prepare_cached(sql)?;
        for (line, reason) in lines {
            insert.execute(params![path, *line as i64, reason, MALFORMED_KEPT_MAX])?;
        }
        Ok(())
    }

    fn session(&self, session: &str) -> Result<Option<SessionRow>, Error> {
        let sql = "SELECT id, next_ordinal, cwd, parent IS NOT NULL FROM sessions WHERE session = ?1";
        let read = |row: &rusqlite::Row<'_>| {
            Ok(SessionRow {
                id: row.get(0)?,
                is_new: false,
                next_ordinal: row.get(1)?,
                cwd: row.get(2)?,
                is_subagent: row.get(3)?,
            })
        };
        Ok(self.transaction.prepare_cached(sql)?.query_row([session], read).optional()?)
    }

    fn add_session(&self, origin: &Origin) -> Result<SessionRow, Error> {
        let cwd = transcript::clean(origin.head.cwd.as_deref().unwrap_or_default());
        let project = Project::from_folder(Path::new(&cwd));
        let sql =
            "INSERT INTO sessions (session, parent, source, project, path, cwd, transcript, archived_ms)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        self.transaction.prepare_cached(sql)?.execute(params![
            origin.head.session,
            origin.head.parent,
            origin.source,
            project.key,
            project.path.to_string_lossy(),
            cwd,
            origin.path,
            self.now.as_millisecond(),
        ])?;
        let is_subagent = origin.head.parent.is_some();
        Ok(SessionRow {
            id: self.transaction.last_insert_rowid(),
            is_new: true,
            next_ordinal: 0,
            cwd,
            is_subagent,
        })
    }

    fn store_block(
        &mut self,
        session: &mut SessionRow,
        block: Block,
        added: &mut Added,
    ) -> Result<(), Error> {
        let mut seen = HashSet::new();
        let mut texts = Texts::new(self.transaction);
        // Of each message that is to be stored: the row whose text it replaces.
        let mut replaced = Vec::new();
        let mut keep = Vec::with_capacity(block.messages.len());
        for placed in &block.messages {
            let id = placed.message.id;
            let row = self.message(id)?;
            let is_kept = match row {
                None => seen.insert(id),
                Some((message, owner)) if owner != session.id => {
                    self.share(session, message, &block, placed, added)?;
                    false
                }
                Some((message, _)) => self.is_changed(message, &block, placed, &mut texts)?,
            };
            if is_kept {
                replaced.push(row.map(|(message, _)| message));
            }
            keep.push(is_kept);
        }
        if !keep.contains(&true) {
            return Ok(());
        }
        let block = if keep.contains(&false) { block.retain(&keep) } else { block };
        let blob = if block.text.is_empty() { None } else { Some(self.add_blob(session.id, &block)?) };
        for (placed, replaced) in block.messages.iter().zip(replaced) {
            match replaced {
                None => self.store_message(session, &block, blob, placed, added)?,
                Some(row) => {
                    self.replace_text(row, &block, blob, placed)?;
                    added.changed += 1;
                }
            }
        }
        Ok(())
    }

    /// Whether a line that is read again says something else. One that says nothing any more is no reason to forget
    /// what it said.
    fn is_changed(
        &self,
        row: i64,
        block: &Block,
        placed: &Placed,
        texts: &mut Texts<'_>,
    ) -> Result<bool, Error> {
        let is_same = |texts: &mut Texts<'_>, (blob, at, length): Place, new: &str| {
            Ok::<_, Error>(new.is_empty() || texts.get(blob, at, length)? == new)
        };
        let said = &block.text[placed.content.start as usize..placed.thinking.end as usize];
        if !is_same(texts, self.place_of_text(row)?, said)? {
            return Ok(true);
        }
        for (tool, input) in placed.message.tool_uses.iter().zip(&placed.inputs) {
            if let Some(place) = self.place_of_input(row, &tool.id)?
                && !is_same(texts, place, block.part(input))?
            {
                return Ok(true);
            }
        }
        for (result, output) in placed.message.tool_results.iter().zip(&placed.outputs) {
            for (_, place) in self.places_of_output(row, &result.id)? {
                if !is_same(texts, place, block.part(output))? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn place_of_text(&self, row: i64) -> Result<Place, Error> {
        let sql = "SELECT blob, position, content_length + thinking_length FROM messages_meta WHERE id = ?1";
        Ok(self.transaction.prepare_cached(sql)?.query_row([row], read_place)?)
    }

    fn place_of_input(&self, row: i64, tool: &str) -> Result<Option<Place>, Error> {
        let sql =
            "SELECT input_blob, input_at, input_length FROM tool_uses WHERE message = ?1 AND tool_id = ?2";
        Ok(self.transaction.prepare_cached(sql)?.query_row(params![row, tool], read_place).optional()?)
    }

    /// The calls that a message holds the output of, and where that lies.
    fn places_of_output(&self, row: i64, tool: &str) -> Result<Vec<(i64, Place)>, Error> {
        let sql = "SELECT output_blob, output_at, output_length, id FROM tool_uses
            WHERE result = ?1 AND tool_id = ?2";
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(3)?, read_place(row)?));
        let mut statement = self.transaction.prepare_cached(sql)?;
        Ok(statement.query_map(params![row, tool], read)?.collect::<Result<_, _>>()?)
    }

    /// Makes a message's content, thinking and calls of tools searchable.
    fn add_words(&self, row: i64, texts: [&str; 3]) -> Result<(), Error> {
        let [content, thinking, tools] = texts.map(with_word_breaks);
        let sql = "INSERT INTO messages (rowid, content, thinking, tools) VALUES (?1, ?2, ?3, ?4)";
        self.transaction.prepare_cached(sql)?.execute(params![row, content, thinking, tools])?;
        Ok(())
    }

    /// Replaces what a message says by what its line says now.
    fn replace_text(&self, row: i64, block: &Block, blob: Option<i64>, placed: &Placed) -> Result<(), Error> {
        let Placed { message, content, thinking, inputs, outputs } = placed;
        let old = self.place_of_text(row)?;
        let old_text = Texts::new(self.transaction).get(old.0, old.1, old.2)?;
        let sql = "SELECT iif(kind = ?2, content_length, 0) FROM messages_meta WHERE id = ?1";
        let params = params![row, MessageKind::Prompt.number()];
        let old_prompt: usize = self.transaction.prepare_cached(sql)?.query_row(params, |row| row.get(0))?;
        self.blank(old)?;
        let sql = "UPDATE messages_meta SET kind = ?2, blob = ?3, position = ?4, content_length = ?5,
            thinking_length = ?6 WHERE id = ?1";
        let (content_length, thinking_length) = (content.len() as i64, thinking.len() as i64);
        let params =
            params![row, message.kind.number(), blob, content.start, content_length, thinking_length];
        self.transaction.prepare_cached(sql)?.execute(params)?;
        for table in ["messages WHERE rowid", "vectors WHERE message"] {
            self.transaction.prepare_cached(&format!("DELETE FROM {table} = ?1"))?.execute([row])?;
        }
        self.add_words(row, [block.part(content), block.part(thinking), &message.tool_words])?;
        for (tool, input) in message.tool_uses.iter().zip(inputs) {
            if let Some(old) = self.place_of_input(row, &tool.id)? {
                self.blank(old)?;
            }
            let sql = "UPDATE tool_uses SET input_blob = ?3, input_at = ?4, input_length = ?5
                WHERE message = ?1 AND tool_id = ?2";
            let params = params![row, tool.id, blob, input.start, input.len() as i64];
            self.transaction.prepare_cached(sql)?.execute(params)?;
        }
        for (result, output) in message.tool_results.iter().zip(outputs) {
            for (call, old) in self.places_of_output(row, &result.id)? {
                self.blank(old)?;
                self.store_output(call, row, result, blob, output)?;
            }
        }
        let is_prompt = message.kind == MessageKind::Prompt;
        let prompts = (&old_text[..old_prompt], if is_prompt { block.part(content) } else { "" });
        let starts = [&old_text, block.part(content)].map(|text| one_line(text, FIRST_PROMPT_CHARS_MAX));
        let sql = "SELECT session FROM session_messages WHERE message = ?1";
        let mut statement = self.transaction.prepare_cached(sql)?;
        let sessions: Vec<i64> = statement.query_map([row], |row| row.get(0))?.collect::<Result<_, _>>()?;
        for session in sessions {
            // What was derived of the old text is derived again.
            let sql =
                "UPDATE sessions SET derived = min(derived, 0) - 1, remembered = min(remembered, 0) - 1,
                first_prompt = iif(first_prompt = ?2, ?3, first_prompt) WHERE id = ?1";
            self.transaction.prepare_cached(sql)?.execute(params![session, starts[0], starts[1]])?;
            if prompts.0 != prompts.1 {
                self.note_topics(session, prompts.0, -1)?;
                self.note_topics(session, prompts.1, 1)?;
                links::make_again(self.transaction, session)?;
            }
        }
        Ok(())
    }

    /// Overwrites a text that was replaced: whoever rewrites a line may have had a reason to.
    fn blank(&self, (blob, at, length): Place) -> Result<(), Error> {
        let Some(blob) = blob.filter(|_| length > 0) else { return Ok(()) };
        let (at, end) = (at as usize, (at + length) as usize);
        let sql = "SELECT length FROM blobs WHERE id = ?1";
        let whole: i64 = self.transaction.prepare_cached(sql)?.query_row([blob], |row| row.get(0))?;
        let mut text = Texts::new(self.transaction).get(Some(blob), 0, whole)?;
        text.replace_range(at..end, &" ".repeat(end - at));
        let sql = "UPDATE blobs SET body = ?2 WHERE id = ?1";
        self.transaction.prepare_cached(sql)?.execute(params![blob, pack(&text)])?;
        Ok(())
    }

    fn add_blob(&self, session: i64, block: &Block) -> Result<i64, Error> {
        let sql = "INSERT INTO blobs (session, length, body) VALUES (?1, ?2, ?3)";
        let params = params![session, block.text.len() as i64, block.packed];
        self.transaction.prepare_cached(sql)?.execute(params)?;
        Ok(self.transaction.last_insert_rowid())
    }

    /// A message that is stored already, and the session that it belongs to.
    fn message(&self, id: MessageId) -> Result<Option<(i64, i64)>, Error> {
        let mut statement =
            self.transaction.prepare_cached("SELECT id, session FROM messages_meta WHERE uuid = ?1")?;
        Ok(statement.query_row([&id.0[..]], |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
    }

    /// Whether a session has a message, alone or with another one.
    fn has_message(&self, session: i64, id: MessageId) -> Result<bool, Error> {
        let sql = "SELECT 1 FROM messages_meta m WHERE uuid = ?1 AND (session = ?2 OR EXISTS
            (SELECT 1 FROM shared_messages WHERE message = m.id AND session = ?2))";
        Ok(self.transaction.prepare_cached(sql)?.exists(params![&id.0[..], session])?)
    }

    /// Notes that a session has a message of another one too. Which of them was archived first must not show: only the
    /// text, the tokens and the results of tools are kept once.
    fn share(
        &mut self,
        session: &mut SessionRow,
        message: i64,
        block: &Block,
        placed: &Placed,
        added: &mut Added,
    ) -> Result<(), Error> {
        let sql = "SELECT 1 FROM shared_messages WHERE message = ?1 AND session = ?2";
        let is_new = !self.transaction.prepare_cached(sql)?.exists([message, session.id])?;
        if is_new {
            let params = params![session.id, session.next_ordinal, message];
            self.transaction
                .prepare_cached("INSERT INTO shared_messages VALUES (?1, ?2, ?3)")?
                .execute(params)?;
            session.next_ordinal += 1;
            added.shared_tool_uses += placed.message.tool_uses.len() as i64;
            let at_ms = placed.message.at.map(Timestamp::as_millisecond);
            for file in &placed.message.changed_files {
                self.note_file(session, file, Change::Copied(at_ms))?;
            }
        }
        self.note_said(session, block, placed, is_new, added)
    }

    /// Notes on its session that a message was said, and when. Time and first prompt may be noted again.
    fn note_said(
        &mut self,
        session: &SessionRow,
        block: &Block,
        placed: &Placed,
        is_new: bool,
        added: &mut Added,
    ) -> Result<(), Error> {
        let at_ms = placed.message.at.map(Timestamp::as_millisecond);
        added.started_ms = added.started_ms.into_iter().chain(at_ms).min();
        added.ended_ms = added.ended_ms.into_iter().chain(at_ms).max();
        let text = block.part(&placed.content);
        let is_prompt = placed.message.kind == MessageKind::Prompt && !text.is_empty();
        // A subagent's prompt is a model's.
        let is_task = session.is_subagent && placed.message.kind == MessageKind::Injected && !text.is_empty();
        if (is_prompt || is_task) && added.first_prompt.is_none() {
            added.first_prompt = Some(one_line(text, FIRST_PROMPT_CHARS_MAX));
        }
        if !is_new {
            return Ok(());
        }
        added.messages += 1;
        added.prompts += i64::from(is_prompt);
        added.answers += i64::from(placed.message.kind == MessageKind::Answer && !text.is_empty());
        if is_prompt {
            self.note_topics(session.id, text, 1)?;
            links::note_mentions(self.transaction, session.id, text)?;
        }
        Ok(())
    }

    fn store_message(
        &mut self,
        session: &mut SessionRow,
        block: &Block,
        blob: Option<i64>,
        placed: &Placed,
        added: &mut Added,
    ) -> Result<(), Error> {
        let Placed { message, content, thinking, inputs, outputs } = placed;
        let at_ms = message.at.map(Timestamp::as_millisecond);
        let request = message
            .request
            .as_ref()
            .map(|request| self.note_request(session.id, request, at_ms))
            .transpose()?;
        let has_text = !content.is_empty() || !thinking.is_empty();
        let sql =
            "INSERT INTO messages_meta (session, ordinal, uuid, parent, kind, at_ms, request, blob, position,
            content_length, thinking_length) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
        self.transaction.prepare_cached(sql)?.execute(params![
            session.id,
            session.next_ordinal,
            &message.id.0[..],
            message.parent.as_ref().map(|parent| &parent.0[..]),
            message.kind.number(),
            at_ms,
            request,
            blob.filter(|_| has_text),
            if has_text { content.start } else { 0 },
            content.len() as i64,
            thinking.len() as i64,
        ])?;
        let row = self.transaction.last_insert_rowid();
        session.next_ordinal += 1;
        if has_text || !message.tool_words.is_empty() {
            self.add_words(row, [block.part(content), block.part(thinking), &message.tool_words])?;
        }
        for (tool, input) in message.tool_uses.iter().zip(inputs) {
            let name = self.name(&tool.name)?;
            let sql = "INSERT INTO tool_uses (session, message, tool_id, name, at_ms, input_blob, input_at, input_length)
                VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
            let length = input.len() as i64;
            let params = params![session.id, row, tool.id, name, at_ms, blob, input.start, length];
            self.transaction.prepare_cached(sql)?.execute(params)?;
            added.tool_uses += 1;
        }
        for (result, output) in message.tool_results.iter().zip(outputs) {
            for call in self.unanswered_calls(session.id, &result.id)? {
                self.store_output(call, row, result, blob, output)?;
            }
        }
        for file in &message.changed_files {
            self.note_file(session, file, Change::Edit(at_ms))?;
        }
        for file in &message.tuned_files {
            self.note_file(session, file, Change::Tuning)?;
        }
        self.note_said(session, block, placed, true, added)
    }

    /// Stores the output of a call, which came with the message in this row.
    fn store_output(
        &self,
        call: i64,
        row: i64,
        result: &ToolResult,
        blob: Option<i64>,
        output: &Part,
    ) -> Result<(), Error> {
        let sql = "UPDATE tool_uses SET is_answered = 1, is_error = ?2, output_blob = ?3, output_at = ?4,
            output_length = ?5, output_bytes = ?6, output_digest = ?7, result = ?8 WHERE id = ?1";
        let (bytes, digest) = result.whole.map(|(bytes, digest)| (bytes as i64, digest.to_vec())).unzip();
        let length = output.len() as i64;
        let params = params![call, result.is_error, blob, output.start, length, bytes, digest, row];
        self.transaction.prepare_cached(sql)?.execute(params)?;
        Ok(())
    }

    /// The calls in a session's messages whose result is not stored yet. Ids of other sessions' calls may be the same, and
    /// of some calls there is none. They are updated one by one: a statement that may change several rows makes FTS5 write
    /// out all the words that it has collected, which took a third of a first sync.
    fn unanswered_calls(&self, session: i64, tool: &str) -> Result<Vec<i64>, Error> {
        if tool.is_empty() {
            return Ok(Vec::new());
        }
        let sql =
            "SELECT t.id FROM tool_uses t WHERE t.tool_id = ?1 AND t.is_answered = 0 AND (t.session = ?2
            OR EXISTS (SELECT 1 FROM shared_messages s WHERE s.message = t.message AND s.session = ?2))";
        let mut statement = self.transaction.prepare_cached(sql)?;
        Ok(statement.query_map(params![tool, session], |row| row.get(0))?.collect::<Result<_, _>>()?)
    }

    /// Counts a call that no message is part of. If another session has the same counts of another time, it is another
    /// call: only a copy of the line has its time.
    fn note_counts(
        &mut self,
        session: i64,
        origin: &Origin,
        request: &Request,
        at_ms: Option<i64>,
    ) -> Result<(), Error> {
        let own = Request { key: format!("{} of {}", request.key, origin.head.session), ..request.clone() };
        let sql = "SELECT 1 FROM requests WHERE id = ?2 OR id = ?1 AND session <> ?3 AND at_ms IS NOT ?4";
        let params = params![request_row(&request.key), request_row(&own.key), session, at_ms];
        let is_own = self.transaction.prepare_cached(sql)?.exists(params)?;
        self.note_request(session, if is_own { &own } else { request }, at_ms)?;
        Ok(())
    }

    /// Counts a call of a model once: the lines of an answer repeat its tokens, and the last has them all.
    fn note_request(&mut self, session: i64, request: &Request, at_ms: Option<i64>) -> Result<i64, Error> {
        let id = request_row(&request.key);
        let model = self.name(&request.model)?;
        let sql =
            "INSERT INTO requests VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (id) DO UPDATE SET
            input = max(input, ?6), output = max(output, ?7), cache_read = max(cache_read, ?8),
            cache_write = max(cache_write, ?9)
            WHERE input < ?6 OR output < ?7 OR cache_read < ?8 OR cache_write < ?9";
        self.transaction.prepare_cached(sql)?.execute(params![
            id,
            session,
            request.request_id,
            model,
            at_ms,
            request.input as i64,
            request.output as i64,
            request.cache_read as i64,
            request.cache_write as i64,
        ])?;
        Ok(id)
    }

    /// Notes a change of a file.
    fn note_file(&mut self, session: &SessionRow, file: &str, change: Change) -> Result<(), Error> {
        let is_absolute = file.starts_with('/') || file.contains(":\\");
        let file = if is_absolute || session.cwd.is_empty() {
            file.to_owned()
        } else {
            format!("{}/{file}", session.cwd.trim_end_matches('/'))
        };
        let file = self.name(&file)?;
        let sql =
            "INSERT INTO file_modifications (session, file, times, last_ms, tuned) VALUES (?1, ?2, ?3, ?4, ?5)
            ON CONFLICT DO UPDATE SET times = times + ?3, last_ms = coalesce(max(last_ms, ?4), last_ms, ?4),
            tuned = tuned + ?5";
        let (times, at_ms, tuned) = match change {
            Change::Some => (0, None, 0),
            Change::Edit(at_ms) => (1, at_ms, 0),
            Change::Copied(at_ms) => (0, at_ms, 0),
            Change::Tuning => (0, None, 1),
        };
        let params = params![session.id, file, times, at_ms, tuned];
        self.transaction.prepare_cached(sql)?.execute(params)?;
        Ok(())
    }

    /// Counts the words of a prompt that may tell what it is about, each so many times.
    fn note_topics(&self, session: i64, prompt: &str, count: i64) -> Result<(), Error> {
        let prompt = &prompt[..prompt.floor_char_boundary(TOPIC_BYTES_MAX)];
        let mut words: HashMap<String, i64> = HashMap::new();
        for word in prompt.split(|c: char| !c.is_alphanumeric() && c != '_') {
            let is_telling =
                word.chars().count() >= 4 && word.chars().any(char::is_alphabetic) && word.len() <= 40;
            let word = word.to_lowercase();
            if is_telling
                && !is_stop_word(&word)
                && (words.len() < TOPICS_OF_PROMPT_MAX || words.contains_key(&word))
            {
                *words.entry(word).or_default() += 1;
            }
        }
        let sql = "INSERT INTO topics VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET times = times + ?3";
        let mut insert = self.transaction.prepare_cached(sql)?;
        for (word, times) in words {
            insert.execute(params![session, word, times * count])?;
        }
        if count < 0 {
            let sql = "DELETE FROM topics WHERE session = ?1 AND times <= 0";
            self.transaction.prepare_cached(sql)?.execute([session])?;
        }
        Ok(())
    }

    fn name(&mut self, name: &str) -> Result<i64, Error> {
        if let Some(id) = self.names.get(name) {
            return Ok(*id);
        }
        let id = name_id(self.transaction, name)?;
        if self.names.len() >= 100_000 {
            self.names.clear();
        }
        self.names.insert(name.to_owned(), id);
        Ok(id)
    }
}

/// The row of a call of a model.
fn request_row(key: &str) -> i64 {
    let mut id = [0; 8];
    id.copy_from_slice(&MessageId::digest(key.as_bytes()).0[..8]);
    i64::from_le_bytes(id)
}

/// The id of a name, which is added if it is new.
pub(crate) fn name_id(transaction: &Transaction<'_>, name: &str) -> Result<i64, Error> {
    let find = "SELECT id FROM names WHERE name = ?1";
    let found = transaction.prepare_cached(find)?.query_row([name], |row| row.get(0)).optional()?;
    if let Some(id) = found {
        return Ok(id);
    }
    transaction.prepare_cached("INSERT INTO names (name) VALUES (?1)")?.execute([name])?;
    Ok(transaction.last_insert_rowid())
}
