//! What a project was about lately, and figures over the whole archive.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use knowledge::text::one_line;
use rusqlite::{Connection, Row, params, params_from_iter};
use serde::Serialize;
use transcript::{Conversation, Event, EventKind, QUESTION_TOOL, answered_questions};

use crate::error::Error;
use crate::filter::{Conditions, Filter};
use crate::project::shown_key;
use crate::record::MessageKind;
use crate::sessions::{COLUMNS, Session, Tokens, add_tokens, read_message, read_session, read_usage, time};
use crate::store::{Archive, Texts};

const LIST_MAX: usize = 20;
const EXCERPT_CHARS: usize = 300;
/// A longer prompt is no mere reply to an offer.
const REPLY_BYTES_MAX: i64 = 400;
const TOOLS_MAX: usize = 40;

/// What a project was about lately.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProjectContext {
    /// The project's key; empty if there is no session of it.
    pub project: String,
    /// The keys of other projects that can be named so. Nothing here is theirs.
    pub also_named: Vec<String>,
    /// How many sessions it has.
    pub sessions_count: u64,
    /// The last of them, the newest first.
    pub sessions: Vec<Session>,
    /// The files that most sessions changed.
    pub files: Vec<FileCount>,
    /// Sessions that ended without an answer to the last prompt, or with a question or a failure.
    pub open_threads: Vec<Thread>,
    /// What people chose among options that the model laid out, the newest first.
    pub decisions: Vec<Excerpt>,
}

/// How often a file was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileCount {
    /// The file.
    pub path: String,
    /// By how many sessions.
    pub sessions: u64,
    /// How many times in all, as far as known.
    pub times: u64,
}

/// A session that was not finished.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Thread {
    /// The session.
    pub session: String,
    /// When it ended.
    pub at: Option<Timestamp>,
    /// Why it looks unfinished.
    pub why: String,
    /// The last words.
    pub text: String,
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Excerpt {
    /// The session.
    pub session: String,
    /// The message's number in this archive.
    pub message: i64,
    /// When it was written.
    pub at: Option<Timestamp>,
    /// The words.
    pub text: String,
}

/// Figures over sessions.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    /// Sessions, without those of subagents.
    pub sessions: u64,
    /// Sessions of subagents.
    pub subagents: u64,
    /// Messages, each counted once.
    pub messages: u64,
    /// Messages by who is counted as the author.
    pub by_role: BTreeMap<String, u64>,
    /// Calls of tools.
    pub tool_uses: u64,
    /// Files that were changed; in a time, those that a session changed last within it.
    pub files: u64,
    /// Tokens of all calls of models.
    pub tokens: Tokens,
    /// What they cost by the price list, in millionths of a dollar, without the calls that have no price.
    pub cost_microdollars: u64,
    /// Calls of models that are not in the price list.
    pub calls_without_price: u64,
    /// By model, the most expensive first.
    pub models: Vec<ModelStats>,
    /// By tool, the most called first.
    pub tools: Vec<ToolStats>,
    /// The files that most sessions changed.
    pub top_files: Vec<FileCount>,
    /// By day in UTC, or in the time zone that was asked for, the oldest first. Days without a message are left out.
    pub days: Vec<DayStats>,
    /// The time of the first and of the last message.
    pub span: Option<(Timestamp, Timestamp)>,
}

/// The calls of one model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelStats {
    /// The model.
    pub model: String,
    /// Its calls.
    pub requests: u64,
    /// Their tokens.
    pub tokens: Tokens,
    /// What they cost, in millionths of a dollar; `None` if the price list does not have the model.
    pub cost_microdollars: Option<u64>,
}

/// The calls of one tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ToolStats {
    /// The tool.
    pub tool: String,
    /// Its calls.
    pub uses: u64,
    /// Those that failed or were refused.
    pub errors: u64,
}

/// One day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DayStats {
    /// The day as `2026-11-22`.
    pub day: String,
    /// Sessions with a message on it, without those of subagents.
    pub sessions: u64,
    /// Messages.
    pub messages: u64,
}

impl Archive {
    /// What a project was about since a time; of several that are named so, the one that a session was in last.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn context(&self, project: &str, since: Option<Timestamp>) -> Result<ProjectContext, Error> {
        let connection = self.connection()?;
        let filter = Filter { project: Some(project.to_owned()), since, ..Filter::default() };
        let mut conditions = filter.of_sessions();
        conditions.add_plain("s.parent IS NULL");
        let projects = format!(
            "SELECT s.project FROM sessions s WHERE {} GROUP BY s.project
            ORDER BY s.project = {} DESC, max(s.ended_ms) DESC",
            conditions.sql(),
            conditions.param(project.to_owned())
        );
        let projects: Vec<String> = connection
            .prepare(&projects)?
            .query_map(params_from_iter(&conditions.params), |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        let (key, others) = projects.split_first().map_or(("", &[][..]), |(key, others)| (key, others));
        conditions.add("s.project = {}", key.to_owned());
        let mut of_files = filter.of_rows("f.last_ms");
        of_files.add("s.project = {}", key.to_owned());
        let sql = format!(
            "SELECT {COLUMNS} FROM sessions s WHERE {} ORDER BY s.ended_ms DESC, s.id DESC LIMIT {LIST_MAX}",
            conditions.sql()
        );
        let count = format!("SELECT count(*) FROM sessions s WHERE {}", conditions.sql());
        let sessions_count =
            connection.query_row(&count, params_from_iter(&conditions.params), |row| row.get(0))?;
        let mut sessions: Vec<Session> = connection
            .prepare(&sql)?
            .query_map(params_from_iter(&conditions.params), read_session)?
            .collect::<Result<_, _>>()?;
        sessions.iter_mut().try_for_each(|session| add_tokens(&connection, session))?;
        let (mut open_threads, mut decided) = (Vec::new(), Vec::new());
        for session in &sessions {
            open_threads.extend(open_thread(&connection, session)?);
            decided.extend(decisions(&connection, session)?.into_iter().rev());
        }
        // A session that was resumed has the choices of the one before, too.
        let mut seen = BTreeSet::new();
        decided.retain(|decision: &Excerpt| seen.insert((decision.message, decision.text.clone())));
        decided.truncate(LIST_MAX);
        Ok(ProjectContext {
            project: shown_key(key).to_owned(),
            also_named: others.iter().map(|key| shown_key(key).to_owned()).collect(),
            files: top_files(&connection, &of_files)?,
            decisions: decided,
            open_threads,
            sessions_count,
            sessions,
        })
    }

    /// Figures over the sessions that the filter lets through; of one that goes on before or after the filter's time, over
    /// what happened within it. Days begin at midnight of the time zone.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn stats(&self, filter: &Filter, zone: &TimeZone) -> Result<Stats, Error> {
        let connection = self.connection()?;
        let mut stats = Stats::default();
        let of_sessions = filter.of_sessions();
        let sql = format!(
            "SELECT count(*) FILTER (WHERE s.parent IS NULL), count(s.parent) FROM sessions s WHERE {}",
            of_sessions.sql()
        );
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        (stats.sessions, stats.subagents) =
            connection.query_row(&sql, params_from_iter(&of_sessions.params), read)?;
        let of_messages = filter.of_rows("m.at_ms");
        let sql = format!(
            "SELECT m.kind, count(*), min(m.at_ms), max(m.at_ms) FROM messages_meta m
            JOIN sessions s ON s.id = m.session WHERE {} GROUP BY m.kind",
            of_messages.sql()
        );
        let mut statement = connection.prepare(&sql)?;
        let mut rows = statement.query(params_from_iter(&of_messages.params))?;
        while let Some(row) = rows.next()? {
            let (kind, count): (i64, u64) = (row.get(0)?, row.get(1)?);
            *stats.by_role.entry(MessageKind::from_number(kind).role().as_str().to_owned()).or_default() +=
                count;
            stats.messages += count;
            if let Some((first, last)) = time(row.get(2)?).zip(time(row.get(3)?)) {
                let (begun, ended) = stats.span.unwrap_or((first, last));
                stats.span = Some((begun.min(first), ended.max(last)));
            }
        }
        let of_calls = filter.of_rows("t.at_ms");
        let sql = format!(
            "SELECT n.name, count(*), sum(t.is_error) FROM tool_uses t JOIN sessions s ON s.id = t.session
            JOIN names n ON n.id = t.name WHERE {} GROUP BY t.name ORDER BY 2 DESC, 1",
            of_calls.sql()
        );
        let read =
            |row: &Row<'_>| Ok(ToolStats { tool: row.get(0)?, uses: row.get(1)?, errors: row.get(2)? });
        stats.tools = connection
            .prepare(&sql)?
            .query_map(params_from_iter(&of_calls.params), read)?
            .collect::<Result<_, _>>()?;
        stats.tool_uses = stats.tools.iter().map(|tool| tool.uses).sum();
        stats.tools.truncate(TOOLS_MAX);
        let of_files = filter.of_rows("f.last_ms");
        let sql = format!(
            "SELECT count(DISTINCT f.file) FROM file_modifications f JOIN sessions s ON s.id = f.session
            WHERE {}",
            of_files.sql()
        );
        stats.files = connection.query_row(&sql, params_from_iter(&of_files.params), |row| row.get(0))?;
        stats.top_files = top_files(&connection, &of_files)?;
        add_models(&connection, &filter.of_rows("r.at_ms"), &mut stats)?;
        stats.days = days(&connection, &of_messages, zone)?;
        Ok(stats)
    }
}

fn top_files(connection: &Connection, conditions: &Conditions) -> Result<Vec<FileCount>, Error> {
    let sql = format!(
        "SELECT n.name, count(*), sum(f.times) FROM file_modifications f JOIN sessions s ON s.id = f.session
        JOIN names n ON n.id = f.file WHERE {} GROUP BY f.file ORDER BY 2 DESC, 3 DESC, 1 LIMIT {LIST_MAX}",
        conditions.sql()
    );
    let read = |row: &Row<'_>| Ok(FileCount { path: row.get(0)?, sessions: row.get(1)?, times: row.get(2)? });
    let mut statement = connection.prepare(&sql)?;
    let files = statement.query_map(params_from_iter(&conditions.params), read)?;
    Ok(files.collect::<Result<_, _>>()?)
}

/// Why a session looks unfinished, if it does: by its last prompt or answer, and the tool that was called last.
fn open_thread(connection: &Connection, session: &Session) -> Result<Option<Thread>, Error> {
    let sql = "SELECT m.id, m.kind, m.at_ms, m.blob, m.position, m.content_length, m.thinking_length
        FROM session_messages v JOIN messages_meta m ON m.id = v.message
        WHERE v.session = ?1 AND m.kind IN (?2, ?3) AND m.content_length > 0 ORDER BY v.ordinal DESC LIMIT 1";
    let (prompt, answer) = (MessageKind::Prompt.number(), MessageKind::Answer.number());
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![session.row, prompt, answer])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let last = read_message(row, &mut Texts::new(connection))?;
    let failed = "SELECT is_error FROM tool_uses WHERE session = ?1 ORDER BY id DESC LIMIT 1";
    let failed: Option<bool> =
        connection.prepare_cached(failed)?.query_map([session.row], |row| row.get(0))?.next().transpose()?;
    let why = if last.kind == MessageKind::Prompt {
        "the last prompt has no answer"
    } else if last.content.trim_end().ends_with('?') {
        "it ended with a question"
    } else if failed == Some(true) {
        "the last tool failed"
    } else {
        return Ok(None);
    };
    // A question stands at the end.
    let content = last.content.trim();
    let tail = content.char_indices().rev().nth(EXCERPT_CHARS).map_or(0, |(at, _)| at);
    let text = if last.kind == MessageKind::Prompt { content } else { &content[tail..] };
    Ok(Some(Thread {
        session: session.id.clone(),
        at: session.ended,
        why: why.to_owned(),
        text: one_line(text, EXCERPT_CHARS),
    }))
}

/// What people chose in a session among options that the model laid out: by an answer to the client's own question, or
/// by a short reply.
fn decisions(connection: &Connection, session: &Session) -> Result<Vec<Excerpt>, Error> {
    let sql = "SELECT m.id, m.kind, m.at_ms, m.blob, m.position, m.content_length, 0, t.input_blob, t.input_at,
            t.input_length, t.output_blob, t.output_at, t.output_length
        FROM session_messages v JOIN messages_meta m ON m.id = v.message
        LEFT JOIN tool_uses t ON t.message = m.id AND t.is_answered = 1 AND t.name = (SELECT id FROM names WHERE name = ?2)
        WHERE v.session = ?1 ORDER BY v.ordinal";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![session.row, QUESTION_TOOL])?;
    let (mut texts, mut inputs, mut outputs) =
        (Texts::new(connection), Texts::new(connection), Texts::new(connection));
    let mut conversation = Conversation::default();
    let mut places: Vec<(i64, Option<i64>)> = Vec::new();
    // Where the text of the answer before lies, if nothing was done since.
    let mut answer: Option<(Option<i64>, i64, i64)> = None;
    while let Some(row) = rows.next()? {
        let kind = MessageKind::from_number(row.get(1)?);
        let place = (row.get(3)?, row.get(4)?, row.get(5)?);
        let mut said = Vec::new();
        match kind {
            MessageKind::Answer => answer = Some(place),
            MessageKind::Prompt => {
                if let Some((blob, at, length)) = answer.take().filter(|_| place.2 <= REPLY_BYTES_MAX) {
                    said.push(EventKind::Assistant { text: texts.get(blob, at, length)? });
                    said.push(EventKind::Human { text: texts.get(place.0, place.1, place.2)? });
                }
            }
            MessageKind::ToolCall => answer = None,
            _ => {}
        }
        let input = inputs.get(
            row.get(7)?,
            row.get::<_, Option<i64>>(8)?.unwrap_or(0),
            row.get::<_, Option<i64>>(9)?.unwrap_or(0),
        )?;
        if !input.is_empty() {
            let output = outputs.get(row.get(10)?, row.get(11)?, row.get(12)?)?;
            said.extend(answered_questions(&input, &output));
        }
        for kind in said {
            conversation.events.push(Event { line: String::new(), at: None, sidechain: false, kind });
            places.push((row.get(0)?, row.get(2)?));
        }
    }
    // What was chosen says little without what was asked.
    let is_whole = |(_, text): &(usize, String)| text.contains("? ") || text.contains(": ");
    let choices = extract::find_choices(&conversation).into_iter().filter(is_whole);
    let found = choices.filter_map(|(event, text)| {
        let (message, at) = *places.get(event)?;
        Some(Excerpt {
            session: session.id.clone(),
            message,
            at: time(at),
            text: one_line(&text, EXCERPT_CHARS),
        })
    });
    Ok(found.collect())
}

fn add_models(connection: &Connection, conditions: &Conditions, stats: &mut Stats) -> Result<(), Error> {
    let sql = format!(
        "SELECT n.name, r.input, r.output, r.cache_read, r.cache_write FROM requests r
        JOIN sessions s ON s.id = r.session JOIN names n ON n.id = r.model WHERE {}",
        conditions.sql()
    );
    let mut models: BTreeMap<String, ModelStats> = BTreeMap::new();
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query(params_from_iter(&conditions.params))?;
    while let Some(row) = rows.next()? {
        let name = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
        let usage = read_usage(row, 1)?;
        if !models.contains_key(name) {
            let new = ModelStats {
                model: name.to_owned(),
                requests: 0,
                tokens: Tokens::default(),
                cost_microdollars: None,
            };
            models.insert(name.to_owned(), new);
        }
        let Some(model) = models.get_mut(name) else { continue };
        let cost = llm::list_microdollars(name, &usage);
        model.requests += 1;
        model.tokens.add(&usage);
        model.cost_microdollars = cost.map(|cost| cost + model.cost_microdollars.unwrap_or(0));
        stats.tokens.add(&usage);
        stats.cost_microdollars += cost.unwrap_or(0);
        stats.calls_without_price += u64::from(cost.is_none());
    }
    stats.models = models.into_values().collect();
    stats.models.sort_by(|a, b| b.cost_microdollars.cmp(&a.cost_microdollars).then(a.model.cmp(&b.model)));
    Ok(())
}

fn days(connection: &Connection, conditions: &Conditions, zone: &TimeZone) -> Result<Vec<DayStats>, Error> {
    // By quarters of an hour: SQLite knows no time zones, and no zone's day begins within a quarter of an hour.
    let sql = format!(
        "SELECT m.at_ms / 900000, iif(s.parent IS NULL, s.id, NULL), count(*) FROM messages_meta m JOIN sessions s ON s.id = m.session
        WHERE m.at_ms IS NOT NULL AND {} GROUP BY 1, 2",
        conditions.sql()
    );
    let mut days: BTreeMap<String, (BTreeSet<i64>, u64)> = BTreeMap::new();
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query(params_from_iter(&conditions.params))?;
    while let Some(row) = rows.next()? {
        let quarter: i64 = row.get(0)?;
        let Ok(at) = Timestamp::from_millisecond(quarter * 900_000) else { continue };
        let day = at.to_zoned(zone.clone()).date().to_string();
        let (sessions, messages) = days.entry(day).or_default();
        sessions.extend(row.get::<_, Option<i64>>(1)?);
        *messages += row.get::<_, u64>(2)?;
    }
    let day = |(day, (sessions, messages)): (String, (BTreeSet<i64>, u64))| DayStats {
        day,
        sessions: sessions.len() as u64,
        messages,
    };
    Ok(days.into_iter().map(day).collect())
}
