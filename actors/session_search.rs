//! Searches archived sessions for a model that asks: by words, and by meaning as far as messages are embedded.

use std::path::Path;

use archive::{Archive, Filter, Markers, QuestionVector, SearchHit, SearchQuery};
use jiff::Timestamp;

/// How many prompts and answers before and after a found message are returned.
const CONTEXT: usize = 1;

/// How many messages of one session are returned: two cost the reader twice the tokens, and mostly say the same.
const PER_SESSION: usize = 1;

/// What to search sessions for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionSearch {
    /// Words, or an expression of FTS5.
    pub text: String,
    /// A project's folder or name.
    pub project: Option<String>,
    /// Nothing that is older.
    pub since: Option<Timestamp>,
    /// The most messages.
    pub limit: usize,
}

/// What was found in sessions. Nobody has reviewed it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FoundSessions {
    /// The best first.
    pub hits: Vec<FoundMessage>,
    /// How many sessions are archived.
    pub searched: u64,
}

/// A message of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundMessage {
    /// The session's id.
    pub session: String,
    /// The client.
    pub source: String,
    /// The folder that the session ran in.
    pub project: String,
    /// The session's transcript, which may be gone.
    pub transcript: String,
    /// When the message was written.
    pub at: Option<Timestamp>,
    /// Who wrote it and what, with the messages around it.
    pub lines: Vec<(&'static str, String)>,
}

/// Searches the archive, if there is one. `vector` is the question's, with the name of its model.
pub(crate) fn search(
    path: &Path,
    search: SessionSearch,
    vector: Option<QuestionVector>,
) -> Result<FoundSessions, archive::Error> {
    let Some(archive) = Archive::open_existing(path)? else { return Ok(FoundSessions::default()) };
    // A folder that cannot be read is searched for by its name.
    let key = |project: String| archive::project_key(&project).unwrap_or(project);
    let project = search.project.map(key);
    let query = SearchQuery {
        text: search.text,
        filter: Filter { project, since: search.since, ..Filter::default() },
        limit: search.limit,
        per_session: PER_SESSION,
        context: CONTEXT,
        ..SearchQuery::default()
    };
    let markers = Markers { before: "", after: "" };
    let results = match vector {
        Some(vector) => archive.search_by_meaning(&query, markers, || Some(vector))?,
        None => archive.search(&query, markers)?,
    };
    Ok(FoundSessions {
        hits: results.hits.into_iter().map(found_message).collect(),
        searched: archive.session_count()?,
    })
}

fn found_message(hit: SearchHit) -> FoundMessage {
    let around = |messages: Vec<archive::ContextMessage>| {
        messages.into_iter().map(|message| (message.role.as_str(), message.content))
    };
    let mut lines: Vec<(&'static str, String)> = around(hit.before).collect();
    lines.push((hit.role.as_str(), hit.snippet));
    lines.extend(around(hit.after));
    FoundMessage {
        session: hit.session.id,
        source: hit.session.source,
        project: hit.session.cwd,
        transcript: hit.session.transcript,
        at: hit.at,
        lines,
    }
}
