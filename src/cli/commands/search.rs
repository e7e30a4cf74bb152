//! `nugget search`: finds what was said in sessions.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use ::archive::{
    ContextMessage, Markers, MessageKind, Prepared, QuestionVector, Role, SearchHit, SearchQuery,
    SearchResults,
};
use actors::{Roles, Service};
use brain::Config;
use embed::{Embedder, ModelChoice};
use jiff::Timestamp;
use retrieve::{FoundUnit, Query, Review};
use serde_json::json;

use super::completions;
use super::sessions::{FilterArgs, find, number_of_results, render, require_project};
use crate::archive::open_archive;
use crate::context::Context;
use crate::error::{CliError, MISSING, USAGE};
use crate::index_update::update_before_question;
use crate::output::{self, safe};
use crate::{async_runtime, pager, settings};

const AFTER: &str = "\
Searches the archive of sessions: what you typed and what the model answered,
also in sessions whose transcripts Claude Code has deleted; of tools the calls
and the errors, no other output. What is found was said and not reviewed;
`nugget ask` searches the reviewed units, and --all both.

Words are found in all their forms (\"retries\" finds \"retry\"), and messages of
the same meaning follow. \"a phrase\", prefix*, AND, OR, NOT and NEAR() are
understood; any other punctuation is ignored.

Examples:
  nugget search exponential backoff
  nugget search '\"connection reset\" NOT redis' --project . --days 30
  nugget search deadlock --role user --context 2
  nugget search --tool Bash --file src/queue.rs migration
  nugget search --all how do we retry payments";

/// How long the search of the units may take.
const DEADLINE: Duration = Duration::from_secs(60);
/// How many characters of a neighbour are shown.
const NEIGHBOUR_CHARS_MAX: usize = 160;

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct SearchArgs {
    /// The words, with or without quotes
    #[arg(value_name = "QUERY")]
    query: Vec<String>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Only what was written by: user (you), assistant, system (the client, and tools that failed)
    #[arg(long, value_name = "ROLE", value_parser = ["user", "assistant", "system"])]
    role: Option<String>,
    /// Only in this session: the beginning of its id. Prints each message that was found
    #[arg(long, value_name = "ID", add = clap_complete::ArgValueCompleter::new(completions::sessions))]
    session: Option<String>,
    /// Search what the model thought, too
    #[arg(long)]
    thinking: bool,
    /// Search the reviewed units, too; both in one list, of which the filters choose only the sessions
    #[arg(long)]
    all: bool,
    /// Only by words, not by meaning
    #[arg(long)]
    words: bool,
    /// The most results
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = number_of_results())]
    limit: usize,
    /// How many messages before and after each hit to print
    #[arg(long, default_value_t = 0, value_name = "N")]
    context: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A result of either kind.
enum Found {
    Unit(Box<FoundUnit>),
    Message(Box<SearchHit>),
}

impl SearchArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let config = context.config()?;
        let now = Timestamp::now();
        let mut filter = self.filter.filter(now)?;
        filter.role = self.role.as_deref().map(|role| match role {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            _ => Role::System,
        });
        let text = knowledge::text::strip_hidden(&self.query.join(" ")).trim().to_owned();
        if text.is_empty() && self.session.is_none() && filter == ::archive::Filter::default() {
            return Err(CliError::new("there is nothing to search for")
                .code(USAGE)
                .hint("nugget search \"exponential backoff\""));
        }
        let archive = open_archive()?;
        let mut results = SearchResults::default();
        let model = (!self.words && !text.is_empty()).then(|| local_model(&config)).flatten();
        let mut prepared = Prepared::All;
        if let Some(archive) = &archive {
            if let Some(given) = &self.session {
                filter.session = Some(find(archive, given)?.id);
            }
            let query = SearchQuery {
                text: text.clone(),
                filter: filter.clone(),
                thinking: self.thinking,
                limit: self.limit,
                // A list of sessions; within one, of all that was said.
                per_session: usize::from(self.session.is_none() && !text.is_empty()),
                context: self.context,
            };
            let markers = Markers { before: MARKS.0, after: MARKS.1 };
            if let Some(settings) = &model {
                prepared = archive.prepared(&embed::model_name(settings))?;
            }
            results = match &model {
                Some(settings) if prepared != Prepared::Nothing => {
                    archive.search_by_meaning(&query, markers, || question_vector(settings, &text))?
                }
                _ => archive.search(&query, markers)?,
            };
        }
        if let Some(archive) = archive.as_ref().filter(|_| results.hits.is_empty()) {
            require_project(archive, filter.project.as_deref())?;
        }
        let by_words = match prepared {
            Prepared::Nothing => Some("searched by words alone"),
            Prepared::Newer => Some("older messages were searched by words alone"),
            Prepared::All => None,
        };
        if let Some(by_words) = by_words {
            output::note(&format!(
                "note: {by_words}; the search by meaning is prepared while a session runs"
            ));
        }
        let units = if self.all && !text.is_empty() {
            search_units(context, &config, &text, self.limit)?
        } else {
            Vec::new()
        };
        let found = merged(units, std::mem::take(&mut results.hits), self.limit);
        if self.json {
            let (mut units, mut messages) = (Vec::new(), Vec::new());
            for one in &found {
                match one {
                    Found::Unit(unit) => units.push(json!(unit)),
                    Found::Message(hit) => {
                        let mut value = json!(hit);
                        value["snippet"] = json!(unmarked(&hit.snippet));
                        value["resume"] = json!(render::resume_command(&hit.session));
                        value["is_transcript_gone"] = json!(!render::has_transcript(&hit.session));
                        messages.push(value);
                    }
                }
            }
            return output::print_json(&json!({
                "query": text,
                "units": units,
                "messages": messages,
                "is_syntax_ignored": results.is_syntax_ignored,
                "has_partial_matches": results.has_partial_matches,
            }));
        }
        if results.is_syntax_ignored {
            output::note("note: not an expression that can be searched for, so its words were searched for");
        }
        if found.is_empty() {
            return output::print(match archive {
                None => {
                    "no session is archived yet: `nugget sessions sync` adds those on the disk; `nugget ask` searches the reviewed units\n"
                }
                Some(archive) if archive.session_count()? == 0 => {
                    "the archive is empty: `nugget sessions sync` adds the sessions on the disk (with --again also those that were pruned)\n"
                }
                Some(_) => "nothing was found; `nugget ask` searches the reviewed units\n",
            });
        }
        let blocks: Vec<String> = found.iter().map(|found| describe(found, now)).collect();
        pager::print(context, &blocks.join("\n"))
    }
}

/// What stands around found words until they are printed; no message contains them.
const MARKS: (&str, &str) = ("\u{E000}", "\u{E001}");
const BEFORE: char = '\u{E000}';
const AFTER_IT: char = '\u{E001}';

/// The settings of the model, if it embeds messages.
fn local_model(config: &Config) -> Option<embed::Settings> {
    let settings = settings::embedding(config);
    // Nothing of the archive is sent to a provider, so that its messages have no vectors of one; and words need none.
    (!matches!(settings.model, ModelChoice::Remote(_) | ModelChoice::Off)).then_some(settings)
}

fn question_vector(settings: &embed::Settings, text: &str) -> Option<QuestionVector> {
    match Embedder::load(settings).and_then(|embedder| embedder.embed_query(text)) {
        Ok(found) => Some((embed::model_name(settings), found.vector)),
        Err(error) => {
            let error = knowledge::text::error_chain(&error);
            output::note(&format!("warning: searched by words alone ({})", safe(&error)));
            None
        }
    }
}

/// The reviewed units; none without a brain.
fn search_units(
    context: &Context,
    config: &Config,
    text: &str,
    limit: usize,
) -> Result<Vec<FoundUnit>, CliError> {
    let brain = match context.brain(config) {
        Err(error) if error.code == MISSING => {
            output::note(&format!("note: only sessions were searched: {}", error.line()));
            return Ok(Vec::new());
        }
        brain => brain?,
    };
    let mut setup = context.setup(config, &brain)?;
    setup.reranker = None;
    let query = Query::listing(text, limit, Timestamp::now());
    async_runtime::multi_thread()?.block_on(async {
        let service = Service::start(&setup, Roles::Read).await?;
        update_before_question(&service, &setup).await;
        let answer = service.ask(query, DEADLINE).await;
        let answer = answer.map_err(|error| settings::model_error(error, &setup.embed))?;
        service.shutdown().await;
        Ok(answer.units)
    })
}

/// One list of both: by their places, and of the same place the reviewed one first.
fn merged(units: Vec<FoundUnit>, messages: Vec<SearchHit>, limit: usize) -> Vec<Found> {
    let mut units = units.into_iter().map(|unit| Found::Unit(Box::new(unit)));
    let mut messages = messages.into_iter().map(|message| Found::Message(Box::new(message)));
    let mut found = Vec::new();
    loop {
        let before = found.len();
        found.extend(units.next());
        found.extend(messages.next());
        if found.len() == before || found.len() >= limit {
            found.truncate(limit);
            return found;
        }
    }
}

fn describe(found: &Found, now: Timestamp) -> String {
    let bold = anstyle::Style::new().bold();
    let dim = anstyle::Style::new().dimmed();
    match found {
        Found::Unit(unit) => format!(
            "{bold}{}{bold:#}\n  {dim}{} {}, {}{dim:#}\n  {}\n",
            safe(&unit.title),
            if unit.is_memory() { "memory" } else { "unit" },
            safe(unit.id.as_str()),
            describe_review(unit.review),
            safe(&unit.summary)
        ),
        Found::Message(hit) => {
            let session = &hit.session;
            let mut text = format!(
                "{bold}{}{bold:#} {dim}{} in {}, session {}{}{dim:#}\n",
                who(hit.kind, &hit.tools),
                render::ago_in_words(hit.at.or(session.ended), now),
                render::project(session),
                render::short_id(session),
                if hit.by_meaning && !hit.by_words { ", close in meaning" } else { "" },
            );
            for message in &hit.before {
                text.push_str(&neighbour(message));
            }
            for line in
                output::wrap(&marked(&hit.snippet), output::terminal_width().saturating_sub(2).min(100))
            {
                text.push_str(&format!("  {line}\n"));
            }
            for message in &hit.after {
                text.push_str(&neighbour(message));
            }
            text.push_str(&format!("  {dim}{}{dim:#}\n", render::resume(session)));
            text
        }
    }
}

fn describe_review(review: Review) -> &'static str {
    match review {
        Review::Accepted | Review::Merged | Review::UncommittedEdit => "reviewed",
        Review::Pending => "waits for review",
        Review::Unreviewed => "not reviewed",
    }
}

/// The snippet with the found words in bold; in brackets where bold cannot be seen.
fn marked(snippet: &str) -> String {
    if !io::stdout().is_terminal() {
        return safe(&unmarked(snippet));
    }
    let bold = anstyle::Style::new().bold();
    let mut text = String::new();
    for part in snippet.split_inclusive([BEFORE, AFTER_IT]) {
        let (words, mark) = match part.chars().last() {
            Some(mark @ (BEFORE | AFTER_IT)) => (&part[..part.len() - mark.len_utf8()], Some(mark)),
            _ => (part, None),
        };
        text.push_str(&safe(words));
        match mark {
            Some(BEFORE) => text.push_str(&bold.render().to_string()),
            Some(_) => text.push_str(&bold.render_reset().to_string()),
            None => {}
        }
    }
    text
}

fn unmarked(snippet: &str) -> String {
    snippet.replace(MARKS.0, "[").replace(MARKS.1, "]")
}

fn neighbour(message: &ContextMessage) -> String {
    let dim = anstyle::Style::new().dimmed();
    let words = knowledge::text::one_line(&safe(&message.content), NEIGHBOUR_CHARS_MAX);
    format!("  {dim}{}: {words}{dim:#}\n", who(message.kind, &[]))
}

fn who(kind: MessageKind, tools: &[String]) -> String {
    match kind {
        MessageKind::Prompt => "You".to_owned(),
        MessageKind::ToolCall if !tools.is_empty() => safe(&format!("Assistant, {}", tools.join(", "))),
        MessageKind::Thinking => "Assistant, thinking".to_owned(),
        MessageKind::Answer | MessageKind::ToolCall => "Assistant".to_owned(),
        MessageKind::ToolResult => "Tool".to_owned(),
        MessageKind::Injected | MessageKind::System => "Client".to_owned(),
    }
}
