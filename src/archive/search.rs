//! Search by words, by meaning, and by both.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;
use knowledge::rank::{RRF_K, reciprocal_rank};
use knowledge::text::{indexed_parts, is_stop_word, one_line, with_word_breaks, without_word_breaks};
use rusqlite::{Connection, OptionalExtension as _, Row, params, params_from_iter};
use serde::Serialize;

use crate::error::Error;
use crate::filter::{Conditions, Filter};
use crate::record::{MessageKind, Role};
use crate::sessions::{Session, ShownMessage, add_tokens, read_message, session_of_row, tools_of};
use crate::store::{Archive, Texts};
use crate::vectors::{Scored, joined, nearest};

/// How many words a snippet has.
const SNIPPET_WORDS: i64 = 28;
/// How much of a message without a marked word is shown.
const START_CHARS: usize = 240;
const CONTEXT_CHARS_MAX: usize = 600;
/// From how many candidates of each list two are fused or sessions are ranked, for each hit that is asked for.
const RANKED_FACTOR: usize = 4;
const RANKED_MIN: usize = 100;
const TERMS_MAX: usize = 32;
const PARTS_MAX: usize = 64;
/// From this cosine on a message is found by its meaning alone: of a few sessions one is always the nearest. The questions of
/// `stress archive --find` have the same hits with it and without.
const MEANING_MIN: f64 = 0.3;
/// The constant of reciprocal rank fusion for sessions: small, so that the first of a list counts. Chosen on half of the
/// questions of `stress archive --find`.
const SESSION_RRF_K: f64 = 1.0;

/// What to search for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchQuery {
    /// Words, or an expression of FTS5: `"a phrase"`, `prefix*`, `AND`, `OR`, `NOT`, `NEAR()`. Empty: every message
    /// that the filter lets through, the newest first.
    pub text: String,
    /// Which messages.
    pub filter: Filter,
    /// Whether to search what the model thought, too.
    pub thinking: bool,
    /// The most hits.
    pub limit: usize,
    /// The most hits of one session, with its subagents'; 0 for any number. If it is not 0, sessions are ranked, each by
    /// its best messages, and the hits of one follow each other.
    pub per_session: usize,
    /// How many prompts and answers before and after each hit to return.
    pub context: usize,
}

/// A question's vector, and the name of the model that made it.
pub type QuestionVector = (String, Vec<f32>);

/// What stands before and after a found word in a snippet.
#[derive(Clone, Copy, Debug)]
pub struct Markers<'a> {
    /// Before it.
    pub before: &'a str,
    /// After it.
    pub after: &'a str,
}

/// What a search has found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SearchResults {
    /// The best first.
    pub hits: Vec<SearchHit>,
    /// Whether the text looked like an expression and was none, so that its words were searched for.
    pub is_syntax_ignored: bool,
    /// Whether too few messages have all words, so that those with some of them follow.
    pub has_partial_matches: bool,
}

/// A message that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SearchHit {
    /// The message's number in this archive.
    pub message: i64,
    /// What it is.
    pub kind: MessageKind,
    /// Who is counted as its author.
    pub role: Role,
    /// When it was written.
    pub at: Option<Timestamp>,
    /// A part of it with the found words marked; its beginning if it was found by meaning alone.
    pub snippet: String,
    /// The tools that it calls.
    pub tools: Vec<String>,
    /// The first session that has it.
    pub session: Session,
    /// Prompts and answers before and after it, in order, each cut.
    pub before: Vec<ContextMessage>,
    /// Those after it.
    pub after: Vec<ContextMessage>,
    /// The higher, the better; comparable within one search.
    pub score: f64,
    /// Whether its words were found.
    pub by_words: bool,
    /// Whether its meaning is close.
    pub by_meaning: bool,
}

/// A message beside a hit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContextMessage {
    /// What it is.
    pub kind: MessageKind,
    /// Who is counted as its author.
    pub role: Role,
    /// When it was written.
    pub at: Option<Timestamp>,
    /// Its beginning.
    pub content: String,
}

/// An expression of FTS5, and a wider one for the hits that it does not have.
struct Expression {
    all: String,
    any: Option<String>,
    is_syntax_ignored: bool,
}

impl Archive {
    /// Searches messages by their words. Found words are marked in the snippets.
    ///
    /// # Errors
    /// When the archive cannot be read. No text of a query is an error.
    pub fn search(&self, query: &SearchQuery, markers: Markers<'_>) -> Result<SearchResults, Error> {
        let wanted = if query.per_session == 0 { query.limit } else { ranked_count(query) };
        let words = self.search_words(query, wanted, query.text.trim().is_empty(), Matches::All)?;
        self.fused_sessions(query, markers, wanted, words, &[])
    }

    /// Searches messages by their words and, at the same time, by their meaning; `vector` makes the question's vector, or
    /// has no model.
    ///
    /// # Errors
    /// When the archive cannot be read. No text of a query is an error.
    pub fn search_by_meaning(
        &self,
        query: &SearchQuery,
        markers: Markers<'_>,
        vector: impl FnOnce() -> Option<QuestionVector> + Send,
    ) -> Result<SearchResults, Error> {
        let expression = match has_syntax(&query.text) {
            true => expression(&*self.connection()?, &query.text, query.thinking)?,
            false => None,
        };
        if expression.is_some_and(|expression| !expression.is_syntax_ignored) {
            // What operators and phrases do not match is not wanted, however close its meaning is.
            return self.search(query, markers);
        }
        let wanted = ranked_count(query);
        let (words, meaning) = std::thread::scope(|scope| {
            let meaning = scope.spawn(|| match vector() {
                Some((model, vector)) => nearest(self, &model, &vector, &query.filter, wanted),
                None => Ok(Vec::new()),
            });
            (self.search_words(query, wanted, false, Matches::All), joined(meaning))
        });
        let mut meaning = meaning?;
        meaning.retain(|message| message.score >= MEANING_MIN);
        self.fused_sessions(query, markers, wanted, words?, &meaning)
    }

    fn search_words(
        &self,
        query: &SearchQuery,
        wanted: usize,
        all: bool,
        matches: Matches,
    ) -> Result<WordMatches, Error> {
        let connection = self.connection()?;
        let mut results = SearchResults::default();
        let expression = expression(&connection, &query.text, query.thinking)?;
        let mut words = Vec::new();
        match &expression {
            None if all => words = newest(&connection, query, wanted)?,
            None => {}
            Some(expression) => {
                results.is_syntax_ignored = expression.is_syntax_ignored;
                words = matching(&connection, &expression.all, &query.filter, wanted, matches)?;
                if let Some(any) = expression.any.as_ref().filter(|_| words.len() < wanted) {
                    let found = matching(&connection, any, &query.filter, wanted, matches)?;
                    let before = words.len();
                    let known: HashSet<i64> = words.iter().map(|found| found.message).collect();
                    words.extend(found.into_iter().filter(|found| !known.contains(&found.message)));
                    words.truncate(wanted);
                    results.has_partial_matches = words.len() > before;
                }
            }
        }
        Ok(WordMatches { words, expression, results })
    }

    /// The results of both searches. Where the many messages of a few sessions leave no place for other sessions, the best
    /// message of each is found as well.
    fn fused_sessions(
        &self,
        query: &SearchQuery,
        markers: Markers<'_>,
        wanted: usize,
        mut words: WordMatches,
        meaning: &[Scored],
    ) -> Result<SearchResults, Error> {
        let results = self.fused(query, markers, &words, meaning)?;
        let is_cut = query.per_session > 0 && words.words.len() >= wanted;
        if !is_cut || results.hits.len() >= query.limit {
            return Ok(results);
        }
        let best = self.search_words(query, query.limit, false, Matches::BestOfSessions)?;
        let known: HashSet<i64> = words.words.iter().map(|found| found.message).collect();
        words.words.extend(best.words.into_iter().filter(|found| !known.contains(&found.message)));
        words.results.has_partial_matches |= best.results.has_partial_matches;
        self.fused(query, markers, &words, meaning)
    }

    /// The results of both searches.
    fn fused(
        &self,
        query: &SearchQuery,
        markers: Markers<'_>,
        WordMatches { words, expression, results }: &WordMatches,
        meaning: &[Scored],
    ) -> Result<SearchResults, Error> {
        let mut results = results.clone();
        let mut connection = self.connection()?;
        // What is there now stays until all of it is read.
        let connection = connection.transaction()?;
        let mut ranked = fuse(words, meaning);
        if query.per_session > 0 {
            ranked = rank_sessions(&connection, words, meaning, ranked, query.per_session)?;
        }
        let marked = expression.as_ref().map(|expression| expression.any.as_ref().unwrap_or(&expression.all));
        let mut found = Vec::new();
        let mut texts = Texts::new(&connection);
        for candidate in ranked {
            if found.len() == query.limit {
                break;
            }
            let shown = message_of(&connection, candidate.message, &mut texts)?;
            found.extend(shown.map(|shown| (candidate, shown)));
        }
        let snippets = match marked {
            Some(expression) if !found.is_empty() => {
                snippets(found.iter().map(|(_, (.., shown))| shown), expression, markers)?
            }
            _ => HashMap::new(),
        };
        let mut sessions: HashMap<i64, Session> = HashMap::new();
        for (candidate, (session, ordinal, mut shown)) in found {
            let Candidate { message, score, by_words, by_meaning } = candidate;
            let snippet = snippets.get(&message).cloned();
            let start = || {
                let tools = shown.tools.first().map(|tool| format!("{}: {}", tool.name, tool.input));
                let text =
                    [&shown.content, &shown.thinking].into_iter().find(|text| !text.is_empty()).cloned();
                one_line(&text.or(tools).unwrap_or_default(), START_CHARS)
            };
            let in_session = match sessions.entry(session) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let mut found = session_of_row(&connection, session)?;
                    add_tokens(&connection, &mut found)?;
                    new.insert(found)
                }
            };
            results.hits.push(SearchHit {
                message,
                kind: shown.kind,
                role: shown.role,
                at: shown.at,
                snippet: snippet.unwrap_or_else(start),
                session: in_session.clone(),
                before: neighbours(&connection, session, ordinal, query.context, true)?,
                after: neighbours(&connection, session, ordinal, query.context, false)?,
                tools: std::mem::take(&mut shown.tools).into_iter().map(|tool| tool.name).collect(),
                score,
                by_words,
                by_meaning,
            });
        }
        Ok(results)
    }
}

/// Which messages that match are found.
#[derive(Clone, Copy, PartialEq)]
enum Matches {
    All,
    /// Of each session, with its subagents, one.
    BestOfSessions,
}

/// What the search by words has found.
struct WordMatches {
    words: Vec<Scored>,
    expression: Option<Expression>,
    /// Without hits.
    results: SearchResults,
}

/// How many messages are ranked.
fn ranked_count(query: &SearchQuery) -> usize {
    query.limit.saturating_mul(RANKED_FACTOR).max(RANKED_MIN)
}

/// Makes an expression of a text; `None` if it has no word.
fn expression(connection: &Connection, text: &str, thinking: bool) -> Result<Option<Expression>, Error> {
    // FTS5 would find such a word only at the beginning of a message.
    let text = &text.replace('^', " ");
    let columns = if thinking { "" } else { "{content tools} : " };
    let mut is_syntax_ignored = false;
    if has_syntax(text) {
        let raw = format!("{columns}({})", with_word_breaks(&without_plain_stop_words(text)));
        if is_valid(connection, &raw)? {
            return Ok(Some(Expression { all: raw, any: None, is_syntax_ignored }));
        }
        is_syntax_ignored = true;
    }
    let words = telling_words(text);
    if words.is_empty() {
        return Ok(None);
    }
    // Quoted, a word may contain anything; what the tokenizer splits becomes a phrase.
    let words = words.iter().take(TERMS_MAX).map(|word| word.replace(['"', '\0'], ""));
    let (words, parts): (Vec<_>, Vec<_>) =
        words.map(|word| (with_word_breaks(&word).into_owned(), indexed_parts(&word))).unzip();
    let parts = parts.concat();
    let join = |words: &[String], operator: &str| format!("{columns}(\"{}\")", words.join(operator));
    let any = (parts.len() > 1).then(|| join(&parts[..parts.len().min(PARTS_MAX)], "\" OR \""));
    Ok(Some(Expression { all: join(&words, "\" AND \""), any, is_syntax_ignored }))
}

/// A text without the stop words beside its phrases, which need not occur: a question with a phrase in it is no expression
/// that somebody has thought out. One with operators is left as it is.
fn without_plain_stop_words(text: &str) -> String {
    let has_operator = |part: &str| has_syntax(part) || part.contains(['{', '}', ':', ')']);
    if text.split('"').step_by(2).any(has_operator) {
        return text.to_owned();
    }
    let parts = text.split('"').enumerate().map(|(number, part)| match number % 2 {
        0 => {
            let is_telling = |word: &&str| !is_stop_word(&plain(word));
            part.split_whitespace().filter(is_telling).collect::<Vec<_>>().join(" ")
        }
        _ => format!(" \"{part}\" "),
    });
    parts.collect()
}

/// A word without its punctuation.
fn plain(word: &str) -> String {
    word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase()
}

/// The words of a text that tell what it is about; all of them if none does.
pub(crate) fn telling_words(text: &str) -> Vec<&str> {
    let words: Vec<&str> =
        text.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).collect();
    let telling: Vec<&str> = words.iter().copied().filter(|word| !is_stop_word(&plain(word))).collect();
    if telling.is_empty() { words } else { telling }
}

fn has_syntax(text: &str) -> bool {
    let is_operator = |word: &str| matches!(word, "AND" | "OR" | "NOT") || word.starts_with("NEAR(");
    text.contains(['"', '(', '*', '+']) || text.split_whitespace().any(is_operator)
}

fn is_valid(connection: &Connection, expression: &str) -> Result<bool, Error> {
    let mut statement =
        connection.prepare_cached("SELECT 1 FROM messages WHERE messages MATCH ?1 LIMIT 1")?;
    let found = statement.query([expression]).and_then(|mut rows| rows.next().map(|_| ()));
    match found.map_err(Error::from) {
        Ok(()) => Ok(true),
        // Control flow does not read the text: a statement that is known to be correct fails only by its parameter,
        // and what is wrong with the database has an error of its own.
        Err(Error::Sqlite(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The messages that match an expression, the best first.
fn matching(
    connection: &Connection,
    expression: &str,
    filter: &Filter,
    limit: usize,
    matches: Matches,
) -> Result<Vec<Scored>, Error> {
    let mut conditions = filter.of_messages();
    let text = conditions.param(expression.to_owned());
    let limit = conditions.param(limit as i64);
    let (best, group) = match matches {
        Matches::All => ("messages.rank", ""),
        Matches::BestOfSessions => ("min(messages.rank)", "GROUP BY coalesce(s.parent, s.session)"),
    };
    let join = if *filter != Filter::default() || matches == Matches::BestOfSessions {
        "JOIN messages_meta m ON m.id = messages.rowid JOIN sessions s ON s.id = m.session"
    } else {
        ""
    };
    // What was said weighs more than what was thought or called.
    let sql = format!(
        "SELECT messages.rowid, -{best} FROM messages {join} WHERE messages.messages MATCH {text} AND {}
            AND messages.rank MATCH 'bm25(4.0, 1.0, 2.0)' {group} ORDER BY {best} LIMIT {limit}",
        conditions.sql()
    );
    scored(connection, &sql, &conditions)
}

fn scored(connection: &Connection, sql: &str, conditions: &Conditions) -> Result<Vec<Scored>, Error> {
    let mut statement = connection.prepare_cached(sql)?;
    let read = |row: &Row<'_>| Ok(Scored { message: row.get(0)?, score: row.get(1)? });
    let rows = statement.query_map(params_from_iter(&conditions.params), read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn newest(connection: &Connection, query: &SearchQuery, limit: usize) -> Result<Vec<Scored>, Error> {
    let mut conditions = query.filter.of_messages();
    if !query.thinking {
        conditions.add_plain(format!("m.kind <> {}", MessageKind::Thinking.number()));
    }
    // Most results of tools have no words of their own.
    conditions.add_plain(format!(
        "(m.content_length + m.thinking_length > 0 OR m.kind = {})",
        MessageKind::ToolCall.number()
    ));
    let limit = conditions.param(limit as i64);
    let sql = format!(
        "SELECT m.id, 0.0 FROM messages_meta m JOIN sessions s ON s.id = m.session WHERE {} ORDER BY m.at_ms DESC
            LIMIT {limit}",
        conditions.sql()
    );
    scored(connection, &sql, &conditions)
}

/// A message that may be a hit.
#[derive(Clone, Debug, Default)]
struct Candidate {
    message: i64,
    score: f64,
    by_words: bool,
    by_meaning: bool,
}

/// Reciprocal rank fusion of two lists of messages: their scores cannot be compared.
fn fuse(words: &[Scored], meaning: &[Scored]) -> Vec<Candidate> {
    let mut candidates: BTreeMap<i64, Candidate> = BTreeMap::new();
    for (list, is_words) in [(words, true), (meaning, false)] {
        for (rank, Scored { message, .. }) in list.iter().enumerate() {
            let candidate = candidates.entry(*message).or_default();
            candidate.message = *message;
            candidate.score += reciprocal_rank(rank, RRF_K);
            *(if is_words { &mut candidate.by_words } else { &mut candidate.by_meaning }) = true;
        }
    }
    let mut ranked: Vec<Candidate> = candidates.into_values().collect();
    // Of equals the newer first.
    ranked.sort_by(|a, b| b.score.total_cmp(&a.score).then(b.message.cmp(&a.message)));
    ranked
}

/// Ranks sessions by their places in both lists, a subagent's as its caller's, and keeps the best messages of each.
fn rank_sessions(
    connection: &Connection,
    words: &[Scored],
    meaning: &[Scored],
    candidates: Vec<Candidate>,
    per_session: usize,
) -> Result<Vec<Candidate>, Error> {
    let sql = "SELECT coalesce(p.id, s.id) FROM messages_meta m JOIN sessions s ON s.id = m.session
        LEFT JOIN sessions p ON p.session = s.parent WHERE m.id = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let mut session_of: HashMap<i64, i64> = HashMap::new();
    for candidate in &candidates {
        let session = statement.query_row([candidate.message], |row| row.get(0)).optional()?;
        session_of.extend(session.map(|session| (candidate.message, session)));
    }
    let mut scores: HashMap<i64, f64> = HashMap::new();
    for list in [words, meaning] {
        let mut seen = HashSet::new();
        let sessions = list.iter().filter_map(|found| session_of.get(&found.message).copied());
        let sessions = sessions.filter(|session| seen.insert(*session));
        for (rank, session) in sessions.enumerate() {
            *scores.entry(session).or_default() += reciprocal_rank(rank, SESSION_RRF_K);
        }
    }
    let mut counts: HashMap<i64, usize> = HashMap::new();
    let mut kept: Vec<(f64, i64, Candidate)> = Vec::new();
    for candidate in candidates {
        // Deleted since it was found.
        let Some(&session) = session_of.get(&candidate.message) else { continue };
        let count = counts.entry(session).or_default();
        *count += 1;
        if *count <= per_session {
            let score = scores.get(&session).copied().unwrap_or_default();
            kept.push((score, session, candidate));
        }
    }
    kept.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
    Ok(kept.into_iter().map(|(score, _, candidate)| Candidate { score, ..candidate }).collect())
}

/// A message with its session and its place there; `None` if it was deleted.
fn message_of(
    connection: &Connection,
    message: i64,
    texts: &mut Texts<'_>,
) -> Result<Option<(i64, i64, ShownMessage)>, Error> {
    let sql = "SELECT id, kind, at_ms, blob, position, content_length, thinking_length, session, ordinal
        FROM messages_meta WHERE id = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([message])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let mut shown = read_message(row, texts)?;
    shown.tools = tools_of(connection, message)?;
    Ok(Some((row.get(7)?, row.get(8)?, shown)))
}

/// Marks the found words. The archive keeps no text beside its words, so that the few found messages are indexed once
/// more, in memory, with the same tokenizer: what was found there is found here.
fn snippets<'a>(
    shown: impl Iterator<Item = &'a ShownMessage>,
    expression: &str,
    markers: Markers<'_>,
) -> Result<HashMap<i64, String>, Error> {
    let memory = Connection::open_in_memory()?;
    memory.execute_batch(
        "CREATE VIRTUAL TABLE messages USING fts5(content, thinking, tools, tokenize = 'porter unicode61')",
    )?;
    for message in shown {
        let tools: Vec<String> =
            message.tools.iter().map(|tool| format!("{}: {}", tool.name, tool.input)).collect();
        let sql = "INSERT INTO messages (rowid, content, thinking, tools) VALUES (?1, ?2, ?3, ?4)";
        let tools = tools.join("\n");
        let words = [&message.content, &message.thinking, &tools].map(|text| with_word_breaks(text));
        let params = params![message.message, words[0], words[1], words[2]];
        memory.prepare_cached(sql)?.execute(params)?;
    }
    let sql = "SELECT rowid, snippet(messages, -1, ?2, ?3, '…', ?4) FROM messages WHERE messages MATCH ?1";
    let mut statement = memory.prepare(sql)?;
    let params = params![expression, markers.before, markers.after, SNIPPET_WORDS];
    let rows = statement
        .query_map(params, |row| Ok((row.get(0)?, without_word_breaks(&row.get::<_, String>(1)?))))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The prompts and answers before or after a place, in order.
fn neighbours(
    connection: &Connection,
    session: i64,
    ordinal: i64,
    count: usize,
    is_before: bool,
) -> Result<Vec<ContextMessage>, Error> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let (compare, order) = if is_before { ("<", "DESC") } else { (">", "ASC") };
    let sql = format!(
        "SELECT m.id, m.kind, m.at_ms, m.blob, m.position, m.content_length, m.thinking_length
        FROM session_messages v JOIN messages_meta m ON m.id = v.message
        WHERE v.session = ?1 AND v.ordinal {compare} ?2 AND m.kind IN (?3, ?4) AND m.content_length > 0
        ORDER BY v.ordinal {order} LIMIT ?5"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let (prompt, answer) = (MessageKind::Prompt.number(), MessageKind::Answer.number());
    let mut rows = statement.query(params![session, ordinal, prompt, answer, count as i64])?;
    let mut texts = Texts::new(connection);
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let ShownMessage { kind, role, at, content, .. } = read_message(row, &mut texts)?;
        let end = content.char_indices().nth(CONTEXT_CHARS_MAX).map_or(content.len(), |(at, _)| at);
        let content = if end < content.len() { format!("{}…", &content[..end]) } else { content };
        found.push(ContextMessage { kind, role, at, content });
    }
    if is_before {
        found.reverse();
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_deleted_during_a_search_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let archive = Archive::open(&folder.path().join("archive.db")).unwrap();
        let rows = "INSERT INTO sessions (id, session, source, project, path, cwd, transcript, archived_ms)
                VALUES (1, 's1', 'claude-code', 'p', '', '', '', 0);
            INSERT INTO messages_meta (id, session, ordinal, uuid, kind) VALUES (1, 1, 0, x'01', 0);";
        archive.connection().unwrap().execute_batch(rows).unwrap();
        for per_session in [0, 1] {
            let scored = |message| Scored { message, score: 1.0 };
            let results = SearchResults::default();
            let words = WordMatches { words: vec![scored(7), scored(1)], expression: None, results };
            let query = SearchQuery { limit: 1, per_session, ..SearchQuery::default() };
            let markers = Markers { before: "[", after: "]" };
            let found = archive.fused_sessions(&query, markers, 100, words, &[scored(8)]).unwrap();
            assert_eq!(found.hits.iter().map(|hit| hit.message).collect::<Vec<_>>(), [1], "{per_session}");
        }
    }
}
