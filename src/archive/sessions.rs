//! Sessions: lists of them, one as a conversation, and those that are related.

use std::collections::HashSet;

use jiff::Timestamp;
use llm::Usage;
use rusqlite::{Connection, Row, params, params_from_iter};
use serde::Serialize;

use crate::error::Error;
use crate::filter::Filter;
use crate::project;
use crate::record::{MessageKind, Role};
use crate::source::error_words;
use crate::store::{Archive, Texts};

/// A session.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Session {
    /// The client's id; of a subagent the id of the session that called it, `/`, and its own.
    pub id: String,
    /// Of a subagent: the session that called it.
    pub parent: Option<String>,
    /// The client.
    pub source: String,
    /// The project's key.
    pub project: String,
    /// The project's folder when the session began.
    pub path: String,
    /// The folder that the session began in.
    pub cwd: String,
    /// The branch that was checked out last.
    pub branch: Option<String>,
    /// The client's version.
    pub client_version: Option<String>,
    /// The last model.
    pub model: Option<String>,
    /// A title, if the client has made one.
    pub title: Option<String>,
    /// The beginning of the first prompt.
    pub first_prompt: Option<String>,
    /// The time of the first message.
    pub started: Option<Timestamp>,
    /// The time of the last message.
    pub ended: Option<Timestamp>,
    /// Messages of any kind, with those that an earlier session had first.
    pub messages: u64,
    /// What a person typed.
    pub prompts: u64,
    /// Texts of the model.
    pub answers: u64,
    /// Calls of tools.
    pub tool_uses: u64,
    /// Files that were changed.
    pub files: u64,
    /// The tokens of all calls of models; those of shared messages count in the first session only.
    pub tokens: Tokens,
    /// What they cost by the price list, in millionths of a dollar. Models that are not in it count nothing.
    pub cost_microdollars: u64,
    /// The transcript when it was read last.
    pub transcript: String,
    #[serde(skip)]
    pub(crate) row: i64,
    /// Of how many messages its records were made; negative, and another number each time, when they must be made again.
    #[serde(skip)]
    pub(crate) derived: i64,
    /// The same of its memories.
    #[serde(skip)]
    pub(crate) remembered: i64,
}

impl Session {
    /// The name of its project: of the repository, also where it ran in a work tree of another name.
    pub fn project_name(&self) -> &str {
        project::name_of(&self.project)
    }
}

impl Archive {
    /// The folders in which sessions of a project ran, also those that are gone.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn folders_of_project(&self, project: &str) -> Result<HashSet<String>, Error> {
        let connection = self.connection()?;
        let mut statement =
            connection.prepare_cached("SELECT DISTINCT cwd FROM sessions WHERE project = ?1")?;
        Ok(statement.query_map([project], |row| row.get(0))?.collect::<Result<_, _>>()?)
    }
}

/// Tokens of calls of models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tokens {
    /// Input tokens that were neither read from the cache nor written to it.
    pub input: u64,
    /// Tokens that the model wrote.
    pub output: u64,
    /// Input tokens that were read from the cache.
    pub cache_read: u64,
    /// Input tokens that were written to the cache.
    pub cache_write: u64,
}

impl Tokens {
    pub(crate) fn add(&mut self, usage: &Usage) {
        self.input += usage.input_tokens;
        self.output += usage.output_tokens;
        self.cache_read += usage.cache_read_input_tokens;
        self.cache_write += usage.cache_creation_input_tokens;
    }
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShownMessage {
    /// The message's number in this archive.
    pub message: i64,
    /// What it is.
    pub kind: MessageKind,
    /// Who is counted as its author.
    pub role: Role,
    /// When it was written.
    pub at: Option<Timestamp>,
    /// What was said.
    pub content: String,
    /// What the model thought.
    pub thinking: String,
    /// The calls of tools in it, with their results.
    pub tools: Vec<ShownTool>,
}

/// A call of a tool, with its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShownTool {
    /// The client's id of the call.
    #[serde(skip)]
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The input: JSON, unless redaction or shortening broke it.
    pub input: String,
    /// The output, if it has come; of a long one the head and the tail.
    pub output: Option<String>,
    /// Whether the tool failed, or the call was refused.
    pub is_error: bool,
    /// The length of the whole output in bytes, if it was shortened.
    pub output_bytes: Option<u64>,
}

/// A session that is related to another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Related {
    /// The session.
    pub session: Session,
    /// `continues`, `continued_by`, `related_to`, `mentions`, `mentioned_by`, `subagent`, `called_by`.
    pub relationship: String,
    /// From 0 to 1.
    pub weight: f64,
    /// Why, in a few words.
    pub reason: String,
}

pub(crate) const COLUMNS: &str = "s.id, s.session, s.parent, s.source, s.project, s.path, s.cwd, s.branch,
    s.client_version, s.model, s.title, s.first_prompt, s.started_ms, s.ended_ms, s.messages, s.prompts, s.answers,
    s.tool_uses, s.transcript, (SELECT count(*) FROM file_modifications f WHERE f.session = s.id),
    s.derived, s.remembered";

pub(crate) fn read_session(row: &Row<'_>) -> rusqlite::Result<Session> {
    Ok(Session {
        row: row.get(0)?,
        id: row.get(1)?,
        parent: row.get(2)?,
        source: row.get(3)?,
        project: row.get(4)?,
        path: row.get(5)?,
        cwd: row.get(6)?,
        branch: row.get(7)?,
        client_version: row.get(8)?,
        model: row.get(9)?,
        title: row.get(10)?,
        first_prompt: row.get(11)?,
        started: time(row.get(12)?),
        ended: time(row.get(13)?),
        messages: row.get(14)?,
        prompts: row.get(15)?,
        answers: row.get(16)?,
        tool_uses: row.get(17)?,
        transcript: row.get(18)?,
        files: row.get(19)?,
        tokens: Tokens::default(),
        cost_microdollars: 0,
        derived: row.get(20)?,
        remembered: row.get(21)?,
    })
}

pub(crate) fn time(ms: Option<i64>) -> Option<Timestamp> {
    ms.and_then(|ms| Timestamp::from_millisecond(ms).ok())
}

/// Adds up the tokens of a session, and their price: call by call, as the price of some depends on its length.
pub(crate) fn add_tokens(connection: &Connection, session: &mut Session) -> Result<(), Error> {
    let sql = "SELECT n.name, r.input, r.output, r.cache_read, r.cache_write
        FROM requests r JOIN names n ON n.id = r.model WHERE r.session = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([session.row])?;
    while let Some(row) = rows.next()? {
        let usage = read_usage(row, 1)?;
        session.tokens.add(&usage);
        let model = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
        session.cost_microdollars += llm::list_microdollars(model, &usage).unwrap_or(0);
    }
    Ok(())
}

pub(crate) fn read_usage(row: &Row<'_>, from: usize) -> rusqlite::Result<Usage> {
    Ok(Usage {
        input_tokens: row.get(from)?,
        output_tokens: row.get(from + 1)?,
        cache_read_input_tokens: row.get(from + 2)?,
        cache_creation_input_tokens: row.get(from + 3)?,
    })
}

pub(crate) fn session_of_row(connection: &Connection, row: i64) -> Result<Session, Error> {
    let sql = format!("SELECT {COLUMNS} FROM sessions s WHERE s.id = ?1");
    Ok(connection.prepare_cached(&sql)?.query_row([row], read_session)?)
}

/// The one session whose id begins like this.
pub(crate) fn find(connection: &Connection, prefix: &str) -> Result<Session, Error> {
    // Every id begins with nothing: a variable of a shell that is not set must not name the only session.
    if prefix.trim_matches(['/', ' ']).is_empty() {
        return Err(Error::UnknownSession { prefix: prefix.to_owned() });
    }
    let exact = format!("SELECT {COLUMNS} FROM sessions s WHERE s.session = ?1");
    if let Some(found) = connection.prepare_cached(&exact)?.query_map([prefix], read_session)?.next() {
        return Ok(found?);
    }
    let filter = Filter { session: Some(prefix.to_owned()), ..Filter::default() };
    let conditions = filter.of_sessions();
    // A session comes before its subagents, whose ids begin with its own.
    let sql = format!(
        "SELECT {COLUMNS} FROM sessions s WHERE {} ORDER BY s.parent IS NOT NULL LIMIT 1000",
        conditions.sql()
    );
    let found: Vec<Session> = connection
        .prepare(&sql)?
        .query_map(params_from_iter(&conditions.params), read_session)?
        .collect::<Result<_, _>>()?;
    let tops = found.iter().filter(|session| session.parent.is_none()).count();
    let count = if tops > 0 { tops } else { found.len() };
    let prefix = prefix.to_owned();
    match (count, found.into_iter().next()) {
        (1, Some(session)) => Ok(session),
        (0, _) | (_, None) => Err(Error::UnknownSession { prefix }),
        (count, _) => Err(Error::AmbiguousSession { prefix, count: count as u64 }),
    }
}

impl Archive {
    /// Lists sessions, the newest first. Subagents' are listed only if `with_subagents`.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn sessions(
        &self,
        filter: &Filter,
        with_subagents: bool,
        limit: usize,
    ) -> Result<Vec<Session>, Error> {
        let connection = self.connection()?;
        let mut conditions = filter.of_sessions();
        if !with_subagents {
            conditions.add_plain("s.parent IS NULL");
        }
        let limit = conditions.param(limit as i64);
        let sql = format!(
            "SELECT {COLUMNS} FROM sessions s WHERE {} ORDER BY s.ended_ms DESC NULLS LAST, s.id DESC LIMIT {limit}",
            conditions.sql()
        );
        let mut statement = connection.prepare(&sql)?;
        let sessions = statement.query_map(params_from_iter(&conditions.params), read_session)?;
        let mut sessions: Vec<Session> = sessions.collect::<Result<_, _>>()?;
        sessions.iter_mut().try_for_each(|session| add_tokens(&connection, session))?;
        Ok(sessions)
    }

    /// How many sessions there are, without subagents'.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn session_count(&self) -> Result<u64, Error> {
        let sql = "SELECT count(*) FROM sessions WHERE parent IS NULL";
        Ok(self.connection()?.query_row(sql, [], |row| row.get(0))?)
    }

    /// The session whose id begins like this.
    ///
    /// # Errors
    /// [`Error::UnknownSession`], [`Error::AmbiguousSession`], or when the archive cannot be read.
    pub fn session(&self, prefix: &str) -> Result<Session, Error> {
        let connection = self.connection()?;
        let mut session = find(&connection, prefix)?;
        add_tokens(&connection, &mut session)?;
        Ok(session)
    }

    /// A session's conversation in order, with what it shares with an earlier session. `visit` gets one message at a
    /// time, so that a session of any length needs little memory; it says whether to go on.
    ///
    /// # Errors
    /// Those of [`Archive::session`].
    pub fn show(&self, prefix: &str, mut visit: impl FnMut(ShownMessage) -> bool) -> Result<Session, Error> {
        let connection = self.connection()?;
        let mut session = find(&connection, prefix)?;
        add_tokens(&connection, &mut session)?;
        let sql = "SELECT m.id, m.kind, m.at_ms, m.blob, m.position, m.content_length, m.thinking_length
            FROM session_messages v JOIN messages_meta m ON m.id = v.message WHERE v.session = ?1 ORDER BY v.ordinal";
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query([session.row])?;
        let mut texts = Texts::new(&connection);
        while let Some(row) = rows.next()? {
            let mut message = read_message(row, &mut texts)?;
            message.tools = tools_of(&connection, message.message)?;
            if message.kind == MessageKind::ToolResult {
                // What failed is shown as the output of its call. A search finds it at the end of its result.
                let mut errors = errors_of(&connection, message.message)?;
                while let Some(at) = last_of(&errors, &message.content) {
                    let error = errors.swap_remove(at);
                    message.content.truncate(message.content.len() - error.len());
                    message.content.truncate(message.content.trim_end().len());
                }
            }
            if !visit(message) {
                break;
            }
        }
        Ok(session)
    }

    /// The sessions that are related to one, the closest first.
    ///
    /// # Errors
    /// Those of [`Archive::session`].
    pub fn related(&self, prefix: &str, limit: usize) -> Result<Vec<Related>, Error> {
        let connection = self.connection()?;
        let session = find(&connection, prefix)?;
        let sql = "SELECT target, relationship, weight, reason FROM links WHERE source = ?1
            UNION ALL SELECT source, CASE relationship WHEN 'continues' THEN 'continued_by'
                WHEN 'mentions' THEN 'mentioned_by' ELSE relationship END, weight, reason
                FROM links WHERE target = ?1
            UNION ALL SELECT id, 'subagent', 1.0, 'called by it' FROM sessions WHERE parent = ?2
            UNION ALL SELECT id, 'called_by', 1.0, 'called it' FROM sessions WHERE session = ?3
            ORDER BY 3 DESC, 1 DESC LIMIT ?4";
        let params = params![session.row, session.id, session.parent, limit as i64];
        let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
        let found: Vec<(i64, String, f64, String)> =
            connection.prepare_cached(sql)?.query_map(params, read)?.collect::<Result<_, _>>()?;
        found
            .into_iter()
            .map(|(row, relationship, weight, reason)| {
                let mut session = session_of_row(&connection, row)?;
                add_tokens(&connection, &mut session)?;
                Ok(Related { session, relationship, weight, reason })
            })
            .collect()
    }
}

/// How the outputs of the failed calls begin that a message holds.
fn errors_of(connection: &Connection, message: i64) -> Result<Vec<String>, Error> {
    let sql =
        "SELECT output_blob, output_at, output_length FROM tool_uses WHERE result = ?1 AND is_error = 1";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([message])?;
    let mut texts = Texts::new(connection);
    let mut errors = Vec::new();
    while let Some(row) = rows.next()? {
        errors.push(error_words(&texts.get(row.get(0)?, row.get(1)?, row.get(2)?)?).to_owned());
    }
    errors.retain(|error| !error.is_empty());
    Ok(errors)
}

/// The longest of these errors that is the end of a text, from the beginning of a line.
fn last_of(errors: &[String], text: &str) -> Option<usize> {
    let is_last =
        |error: &str| text.strip_suffix(error).is_some_and(|rest| rest.is_empty() || rest.ends_with('\n'));
    let last = errors.iter().enumerate().filter(|(_, error)| is_last(error));
    last.max_by_key(|(_, error)| error.len()).map(|(at, _)| at)
}

/// Reads `id, kind, at_ms, blob, position, content_length, thinking_length`.
pub(crate) fn read_message(row: &Row<'_>, texts: &mut Texts<'_>) -> Result<ShownMessage, Error> {
    let kind = MessageKind::from_number(row.get(1)?);
    let (blob, at): (Option<i64>, i64) = (row.get(3)?, row.get(4)?);
    let (content, thinking): (i64, i64) = (row.get(5)?, row.get(6)?);
    Ok(ShownMessage {
        message: row.get(0)?,
        kind,
        role: kind.role(),
        at: time(row.get(2)?),
        content: texts.get(blob, at, content)?,
        thinking: texts.get(blob, at + content, thinking)?,
        tools: Vec::new(),
    })
}

/// The calls of tools in a message.
pub(crate) fn tools_of(connection: &Connection, message: i64) -> Result<Vec<ShownTool>, Error> {
    let sql =
        "SELECT n.name, t.input_blob, t.input_at, t.input_length, t.is_answered, t.is_error, t.output_blob,
            t.output_at, t.output_length, t.output_bytes, t.tool_id
        FROM tool_uses t JOIN names n ON n.id = t.name WHERE t.message = ?1 ORDER BY t.id";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([message])?;
    let (mut inputs, mut outputs) = (Texts::new(connection), Texts::new(connection));
    let mut tools = Vec::new();
    while let Some(row) = rows.next()? {
        let is_answered: bool = row.get(4)?;
        let output = outputs.get(row.get(6)?, row.get(7)?, row.get(8)?)?;
        tools.push(ShownTool {
            id: row.get(10)?,
            name: row.get(0)?,
            input: inputs.get(row.get(1)?, row.get(2)?, row.get(3)?)?,
            output: is_answered.then_some(output),
            is_error: row.get(5)?,
            output_bytes: row.get(9)?,
        });
    }
    Ok(tools)
}
