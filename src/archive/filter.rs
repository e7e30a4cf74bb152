//! Which sessions and messages a query is about.

use jiff::Timestamp;
use rusqlite::types::Value;

use crate::record::Role;

/// Which sessions and messages a query is about. What is `None` does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The project's key, its folder, the one that the session ran in, or the name of the project's folder.
    pub project: Option<String>,
    /// The beginning of the session's id, or of a subagent's own id; or of both, with a `/` between.
    pub session: Option<String>,
    /// Not before. Of a session: it ended then or later.
    pub since: Option<Timestamp>,
    /// Not after. Of a session: it began then or earlier.
    pub until: Option<Timestamp>,
    /// The branch that was checked out, or its beginning followed by `*`.
    pub branch: Option<String>,
    /// A part of the model's name.
    pub model: Option<String>,
    /// A file that the session changed: a path or the end of one.
    pub file: Option<String>,
    /// The name of a tool that the message calls; of a session: that it has called.
    pub tool: Option<String>,
    /// Who wrote the message: a person, the model, or the client with its tools. Sessions have no role.
    pub role: Option<Role>,
    /// The client: `claude-code`, `codex`.
    pub source: Option<String>,
}

/// Conditions of a statement, joined by AND, with their parameters.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    conditions: Vec<String>,
    pub(crate) params: Vec<Value>,
}

impl Conditions {
    pub(crate) fn add(&mut self, condition: &str, param: impl Into<Value>) {
        self.params.push(param.into());
        self.conditions.push(condition.replace("{}", &format!("?{}", self.params.len())));
    }

    pub(crate) fn add_plain(&mut self, condition: impl Into<String>) {
        self.conditions.push(condition.into());
    }

    /// A parameter that is no condition: its number.
    pub(crate) fn param(&mut self, param: impl Into<Value>) -> String {
        self.params.push(param.into());
        format!("?{}", self.params.len())
    }

    pub(crate) fn sql(&self) -> String {
        if self.conditions.is_empty() { "1".to_owned() } else { self.conditions.join(" AND ") }
    }
}

impl Filter {
    /// Conditions on a row `s` of `sessions`, without the time.
    pub(crate) fn of_any_session(&self, conditions: &mut Conditions) {
        if let Some(project) = &self.project {
            let exact = match project.trim_end_matches('/') {
                "" => "/",
                project => project,
            };
            let (number, like) =
                (conditions.param(exact.to_owned()), conditions.param(format!("%/{}", escape(exact))));
            conditions.add_plain(format!(
                "(s.project = {number} OR s.path = {number} OR s.cwd = {number} OR s.path LIKE {like} ESCAPE '\\'
                OR s.project LIKE {like} ESCAPE '\\' OR s.project LIKE {like} || '/.git' ESCAPE '\\')"
            ));
        }
        if let Some(branch) = &self.branch {
            match branch.strip_suffix('*') {
                Some(start) => conditions.add("s.branch LIKE {} ESCAPE '\\'", format!("{}%", escape(start))),
                None => conditions.add("s.branch = {}", branch.clone()),
            }
        }
        if let Some(file) = &self.file {
            let name = escape(file.trim_start_matches("./"));
            conditions.add(
                "s.id IN (SELECT f.session FROM file_modifications f JOIN names n ON n.id = f.file
                    WHERE '/' || n.name LIKE '%/' || {} ESCAPE '\\')",
                name.trim_start_matches('/').to_owned(),
            );
        }
        if let Some(source) = &self.source {
            conditions.add("s.source = {}", source.clone());
        }
    }

    /// Conditions on a row `s` of `sessions`.
    pub(crate) fn of_sessions(&self) -> Conditions {
        let mut conditions = Conditions::default();
        self.of_any_session(&mut conditions);
        if let Some(session) = &self.session {
            let number = conditions.param(start_of_id(session));
            let sql = format!(
                "(s.session LIKE {number} ESCAPE '\\' OR s.session LIKE '%/' || {number} ESCAPE '\\')"
            );
            conditions.add_plain(sql);
        }
        if let Some(since) = self.since {
            conditions.add("s.ended_ms >= {}", since.as_millisecond());
        }
        if let Some(until) = self.until {
            conditions.add("s.started_ms <= {}", until.as_millisecond());
        }
        if let Some(model) = &self.model {
            conditions.add("s.model LIKE '%' || {} || '%' ESCAPE '\\'", escape(model));
        }
        if let Some(tool) = &self.tool {
            conditions.add(
                "s.id IN (SELECT v.session FROM tool_uses t JOIN names n ON n.id = t.name
                    JOIN session_messages v ON v.message = t.message WHERE n.name = {} COLLATE NOCASE)",
                tool.clone(),
            );
        }
        conditions
    }

    /// Conditions on a row of a session `s` that has its time in this column.
    pub(crate) fn of_rows(&self, at: &str) -> Conditions {
        let mut conditions = self.of_sessions();
        self.within(&mut conditions, at);
        conditions
    }

    fn within(&self, conditions: &mut Conditions, at: &str) {
        if let Some(since) = self.since {
            conditions.add(&format!("{at} >= {{}}"), since.as_millisecond());
        }
        if let Some(until) = self.until {
            conditions.add(&format!("{at} <= {{}}"), until.as_millisecond());
        }
    }

    /// Conditions on a row `m` of `messages_meta` and its session `s`.
    pub(crate) fn of_messages(&self) -> Conditions {
        let mut conditions = Conditions::default();
        self.of_any_session(&mut conditions);
        if let Some(session) = &self.session {
            let number = conditions.param(start_of_id(session));
            let ids = format!(
                "(SELECT id FROM sessions WHERE session LIKE {number} ESCAPE '\\' OR session LIKE '%/' || {number} ESCAPE '\\')"
            );
            conditions.add_plain(format!(
                "(m.session IN {ids} OR m.id IN (SELECT message FROM shared_messages WHERE session IN {ids}))"
            ));
        }
        self.within(&mut conditions, "m.at_ms");
        if let Some(role) = self.role {
            let kinds: Vec<String> = role.written().iter().map(|kind| kind.number().to_string()).collect();
            conditions.add_plain(format!("m.kind IN ({})", kinds.join(", ")));
        }
        if let Some(model) = &self.model {
            conditions.add(
                "coalesce((SELECT n.name FROM requests r JOIN names n ON n.id = r.model WHERE r.id = m.request), s.model)
                    LIKE '%' || {} || '%' ESCAPE '\\'",
                escape(model),
            );
        }
        if let Some(tool) = &self.tool {
            conditions.add(
                "EXISTS (SELECT 1 FROM tool_uses t JOIN names n ON n.id = t.name
                    WHERE t.message = m.id AND n.name = {} COLLATE NOCASE)",
                tool.clone(),
            );
        }
        conditions
    }
}

/// The pattern of ids that begin like this. Those of subagents are printed as the beginnings of both of their parts.
fn start_of_id(given: &str) -> String {
    match given.split_once('/') {
        Some((parent, own)) => format!("{}%/{}%", escape(parent), escape(own)),
        None => format!("{}%", escape(given)),
    }
}

/// A text as it stands in a pattern of LIKE.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_")
}
