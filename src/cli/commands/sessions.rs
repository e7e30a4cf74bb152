//! `nugget sessions`: the sessions that the archive keeps.

pub(crate) mod render;
mod report;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::archive::{Archive, Field, Filter, Removal, Session, SyncSummary, project_key, shown_key};
use actors::archiving::QueuedSessions;
use brain::Config;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use knowledge::name::folder_name;
use queue::{Capture, Queue, State};
use serde_json::json;

use self::render::{Format, Shown};
use super::completions;
use super::sync::{parse_last_moment, parse_moment};
use crate::archive::{archive_path, is_enabled, open_archive, other_source, source_names, sync_settings};
use crate::context::Context;
use crate::error::{CliError, MISSING, USAGE};
use crate::output::{self, counted, thousands};
use crate::output_file::{named, write_file};
use crate::whole_number::whole_number;
use crate::{lookup, pager};

const AFTER: &str = "\
Claude Code deletes transcripts after 30 days; the archive keeps what was said
in them: every session is added when it ends, and `nugget sessions sync` adds
what is on the disk now. Recognised secrets are removed on the way in, and
nothing of it leaves this machine unless `mcp.tools` or `recall.memories` lets
Claude read it.
`archive.enabled = \"off\"` adds nothing from then on.

A session is named by its id or by the beginning of it.

Examples:
  nugget sessions                          the newest, with what was captured
  nugget sessions --project . --days 7
  nugget sessions show 5a3b7c1e --tools
  nugget sessions context .                where the project stands
  nugget sessions related 5a3b7c1e         the same files, topics or branch
  nugget sessions stats --days 30
  nugget sessions sync                     take in what is on disk
  nugget sessions forget 5a3b7c1e
  nugget search \"exponential backoff\"      find what was said in them";

/// How long a command waits for another process that is writing to the archive.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// How many lines that could not be understood are listed.
const MALFORMED_LISTED: usize = 10;

#[derive(clap::Args)]
#[command(after_help = AFTER, args_conflicts_with_subcommands = true)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    command: Option<SessionsCommand>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(clap::Subcommand)]
enum SessionsCommand {
    /// Print a session's conversation
    Show(ShowArgs),
    /// List the sessions that are related to one, and why
    Related(RelatedArgs),
    /// Print where a project stands: its last sessions, files, open threads and decisions
    Context(ContextArgs),
    /// Print figures: sessions, tokens, cost, tools, models, files, days
    Stats(StatsArgs),
    /// Write sessions to a file
    Export(ExportArgs),
    /// Add what is new on the disk to the archive
    Sync(SyncArgs),
    /// Delete sessions that ended long ago from the archive
    Prune(PruneArgs),
    /// Delete a session from the archive, and never add it again
    Forget(ForgetArgs),
}

/// Which sessions and messages.
#[derive(clap::Args, Clone, Default)]
pub(crate) struct FilterArgs {
    /// Only of this project: a folder (. for this one), its name, or its remote
    #[arg(long, value_name = "P", add = clap_complete::ArgValueCompleter::new(completions::projects))]
    project: Option<String>,
    /// Not before: 30m, 12h, 7d, 4w, a date, or a time, as 2026-11-01T18:00 (of your time zone)
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Not after; of a date, its whole day
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// Only of the last N days
    #[arg(long, value_name = "N", conflicts_with = "since", value_parser = whole_number(0_u32..))]
    days: Option<u32>,
    /// Only with this branch checked out; feature/* for all that begin so
    #[arg(long, value_name = "B", add = clap_complete::ArgValueCompleter::new(completions::branches))]
    branch: Option<String>,
    /// Only by models whose name contains this
    #[arg(long, value_name = "M", add = clap_complete::ArgValueCompleter::new(completions::models))]
    model: Option<String>,
    /// Only sessions that changed this file: a path, or the end of one
    #[arg(long, value_name = "PATH", add = clap_complete::ArgValueCompleter::new(completions::changed_files))]
    file: Option<String>,
    /// Only with calls of this tool
    #[arg(long, value_name = "T", add = clap_complete::ArgValueCompleter::new(completions::tools))]
    tool: Option<String>,
    /// Only of this client
    #[arg(long, value_name = "S", value_parser = source_names())]
    source: Option<String>,
}

impl FilterArgs {
    pub(crate) fn filter(&self, now: Timestamp) -> Result<Filter, CliError> {
        let moment = |text: &Option<String>, parse: fn(&str, Timestamp) -> Option<Timestamp>| {
            text.as_ref()
                .map(|text| {
                    parse(text, now).ok_or_else(|| {
                        CliError::new(format!("{text:?} is not a time"))
                            .code(USAGE)
                            .hint("give 7d, 12h, 2026-11-01, \"2026-11-01 18:00\", …")
                    })
                })
                .transpose()
        };
        let days = self.days.map(|days| now.saturating_sub(Duration::from_secs(86_400) * days));
        Ok(Filter {
            project: self.project.as_deref().map(project_key).transpose()?,
            since: match days {
                Some(since) => Some(since.unwrap_or(Timestamp::MIN)),
                None => moment(&self.since, parse_moment)?,
            },
            until: moment(&self.until, parse_last_moment)?,
            branch: self.branch.clone(),
            model: self.model.clone(),
            file: self.file.clone(),
            tool: self.tool.clone(),
            source: self.source.clone(),
            ..Filter::default()
        })
    }
}

/// The most results of one command: more than a person reads, and few enough for the memory.
const LIMIT_MAX: usize = 1_000_000;

/// Reads a number of results.
pub(super) fn number_of_results() -> impl clap::builder::TypedValueParser<Value = usize> {
    whole_number(1..=LIMIT_MAX)
}

#[derive(clap::Args)]
struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// The most sessions to list
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = number_of_results())]
    limit: usize,
    /// List those of subagents too
    #[arg(long)]
    subagents: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  nugget sessions show 5a3b7c1e\n  nugget sessions show 5a3b7c1e --tools --format markdown > session.md"
)]
struct ShowArgs {
    /// The session's id or its beginning, as `nugget sessions` lists it
    #[arg(value_name = "SESSION", add = clap_complete::ArgValueCompleter::new(completions::sessions))]
    id: String,
    #[command(flatten)]
    shown: Shown,
    /// How to print it
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    format: Format,
    /// Print JSON (the same as --format json)
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

#[derive(clap::Args)]
struct RelatedArgs {
    /// The session's id or its beginning
    #[arg(value_name = "SESSION", add = clap_complete::ArgValueCompleter::new(completions::sessions))]
    id: String,
    /// The most sessions to list
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = number_of_results())]
    limit: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  nugget sessions context .\n  nugget sessions context shop --days 7 --format markdown"
)]
struct ContextArgs {
    /// A folder, the project's name, or its remote [default: this folder]
    #[arg(value_name = "PROJECT", add = clap_complete::ArgValueCompleter::new(completions::projects))]
    project: Option<String>,
    /// How far back to look
    #[arg(long, default_value_t = 30, value_name = "N", value_parser = whole_number(0_u32..))]
    days: u32,
    /// How to print it
    #[arg(long, value_enum, default_value = "plain", value_name = "FORMAT")]
    format: report::ContextFormat,
    /// Print JSON (the same as --format json)
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

#[derive(clap::Args)]
struct StatsArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  nugget sessions export --days 30 -o sessions.md\n  nugget sessions export --project . --format jsonl | jq .message.content"
)]
struct ExportArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Only this session, with its subagents': the beginning of its id
    #[arg(long, value_name = "ID", add = clap_complete::ArgValueCompleter::new(completions::sessions))]
    session: Option<String>,
    #[command(flatten)]
    shown: Shown,
    /// markdown, or jsonl: one message on each line
    #[arg(long, value_enum, default_value = "markdown", value_name = "FORMAT")]
    format: ExportFormat,
    /// The file to write [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print what was written as JSON
    #[arg(long, requires = "output")]
    json: bool,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq)]
enum ExportFormat {
    Markdown,
    Jsonl,
}

#[derive(clap::Args)]
struct SyncArgs {
    /// Only of this client
    #[arg(long, value_name = "S", value_parser = source_names())]
    source: Option<String>,
    /// Read everything again, also what has not changed
    #[arg(long)]
    again: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  nugget sessions prune --older-than 180d --dry-run\n  nugget sessions prune --older-than 2026-01-01"
)]
struct PruneArgs {
    /// Sessions that ended before: 180d, 26w, or a date
    #[arg(long, value_name = "WHEN")]
    older_than: String,
    /// Print what would be deleted; change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct ForgetArgs {
    /// The session's id or its beginning
    #[arg(value_name = "SESSION", add = clap_complete::ArgValueCompleter::new(completions::sessions))]
    id: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl SessionsArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        match self.command {
            None => self.list.run(context),
            Some(SessionsCommand::Show(args)) => args.run(context),
            Some(SessionsCommand::Related(args)) => args.run(context),
            Some(SessionsCommand::Context(args)) => args.run(context),
            Some(SessionsCommand::Stats(args)) => args.run(context),
            Some(SessionsCommand::Export(args)) => args.run(),
            Some(SessionsCommand::Sync(args)) => args.run(context),
            Some(SessionsCommand::Prune(args)) => args.run(),
            Some(SessionsCommand::Forget(args)) => args.run(),
        }
    }
}

/// The archive, or what to say if there is none yet.
fn open() -> Result<Archive, CliError> {
    let archive = open_archive()?;
    archive
        .ok_or_else(|| CliError::new("no session is archived yet").code(MISSING).hint("nugget sessions sync"))
}

/// A session, with other ids for one that does not exist.
pub(super) fn find(archive: &Archive, given: &str) -> Result<Session, CliError> {
    let given = given.trim().trim_end_matches('…');
    match archive.session(given) {
        Err(error @ ::archive::Error::UnknownSession { .. }) => {
            let newest = archive.sessions(&Filter::default(), true, 200)?;
            let near = lookup::nearest(newest.iter().map(|session| session.id.as_str()), given);
            let hint = match near.as_slice() {
                [] => "`nugget sessions` lists them; `nugget search` finds what was said".to_owned(),
                near => format!("did you mean {}?", lookup::listed(near)),
            };
            Err(CliError::from(error).hint(hint))
        }
        found => Ok(found?),
    }
}

/// An error if there are sessions, but none of the project that a person has named.
pub(super) fn require_project(archive: &Archive, project: Option<&str>) -> Result<(), CliError> {
    let Some(project) = project else { return Ok(()) };
    let of_project = Filter { project: Some(project.to_owned()), ..Filter::default() };
    if archive.session_count()? == 0 || !archive.sessions(&of_project, true, 1)?.is_empty() {
        return Ok(());
    }
    let folders = archive.values(Field::Project, usize::MAX >> 1)?;
    let mut names: Vec<&str> = Vec::new();
    for name in folders.iter().filter_map(|folder| folder_name(folder)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let project = shown_key(project);
    let message = format!("no archived session is of the project {project}");
    Err(lookup::unknown(message, folder_name(project).unwrap_or(project), &names))
}

impl ListArgs {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let now = Timestamp::now();
        let filter = self.filter.filter(now)?;
        let Some(archive) = open_archive()? else {
            if self.json {
                return output::print_json(&json!({ "sessions": [] }));
            }
            return output::print(
                "no session is archived yet: `nugget sessions sync` adds those on the disk\n",
            );
        };
        require_project(&archive, filter.project.as_deref())?;
        let sessions = archive.sessions(&filter, self.subagents, self.limit)?;
        let captures = captures_by_session(context);
        if self.json {
            let sessions: Vec<_> = sessions
                .iter()
                .map(|session| {
                    let mut value = json!(session);
                    value["capture"] = captures.get(&session.id).map_or(
                        json!(null),
                        |capture| json!({ "id": capture.id, "state": capture.state, "units": capture.units }),
                    );
                    value
                })
                .collect();
            return output::print_json(&json!({ "sessions": sessions }));
        }
        if sessions.is_empty() {
            return output::print(match filter == Filter::default() {
                true => {
                    "the archive is empty: `nugget sessions sync` adds the sessions on the disk (with --again also those that were pruned)\n"
                }
                false => "no session matches\n",
            });
        }
        let rows = sessions.iter().map(|session| (session, captures.get(&session.id)));
        let mut text = match io::stdout().is_terminal() {
            true => rows.map(|(session, capture)| render::entry(session, capture, now)).collect(),
            false => {
                let rows = rows.map(|(session, capture)| render::row(session, capture, now));
                output::table(&render::ROW_HEAD, rows)
            }
        };
        if sessions.len() == self.limit {
            text.push_str(&format!(
                "\nthe newest {}; --limit lists more\n",
                counted(self.limit as u64, "session")
            ));
        }
        pager::print(context, &text)
    }
}

/// What was captured of each session in the brain's queue, if there is a brain with one: the last capture, with the units
/// of all. A session that ends again, grown or not, is captured again.
fn captures_by_session(context: &Context) -> HashMap<String, Capture> {
    let captures = || -> Result<Vec<Capture>, CliError> {
        let (_, _, places) = context.open()?;
        if !places.queue().is_file() {
            return Ok(Vec::new());
        }
        Ok(Queue::open(&places.queue())?.captures(usize::MAX >> 1)?)
    };
    let mut by_session: HashMap<String, Capture> = HashMap::new();
    // The newest first.
    for capture in captures().unwrap_or_default() {
        match by_session.entry(capture.session_id.as_str().to_owned()) {
            Entry::Vacant(vacant) => {
                vacant.insert(capture);
            }
            Entry::Occupied(mut last) => {
                let last = last.get_mut();
                last.units = last.units.saturating_add(capture.units);
                if last.state == State::Nothing && capture.state == State::Done {
                    last.state = State::Done;
                }
            }
        }
    }
    by_session
}

impl ShowArgs {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let archive = open()?;
        let session = find(&archive, &self.id)?;
        let format = if self.json { Format::Json } else { self.format };
        let mut messages = Vec::new();
        archive.show(&session.id, |message| {
            messages.extend(self.shown.select(message));
            true
        })?;
        match format {
            Format::Json => output::print_json(&json!({ "session": session, "messages": messages })),
            Format::Markdown => output::print(&render::markdown(&session, &messages)),
            Format::Html => output::print(&render::html(&session, &messages)),
            Format::Text => pager::print(context, &render::text(&session, &messages, Timestamp::now())),
        }
    }
}

impl RelatedArgs {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let archive = open()?;
        let session = find(&archive, &self.id)?;
        let related = archive.related(&session.id, self.limit)?;
        if self.json {
            return output::print_json(&json!({ "session": session, "related": related }));
        }
        if related.is_empty() {
            return output::print("no other session is related to it\n");
        }
        let now = Timestamp::now();
        let rows = related.iter().map(|related| {
            vec![
                render::short_id(&related.session),
                render::ago(related.session.ended, now),
                related.relationship.replace('_', " "),
                format!("{}; {}", output::safe(&related.reason), render::subject(&related.session)),
            ]
        });
        pager::print(context, &output::table(&["SESSION", "AGO", "HOW", "WHY"], rows))
    }
}

impl ContextArgs {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let archive = open()?;
        let now = Timestamp::now();
        let since = now.saturating_sub(Duration::from_secs(86_400) * self.days).unwrap_or(Timestamp::MIN);
        let key = project_key(self.project.as_deref().unwrap_or("."))?;
        // A folder without sessions is no error where nobody has named it.
        require_project(&archive, self.project.as_ref().map(|_| key.as_str()))?;
        let found = archive.context(&key, Some(since))?;
        let format = if self.json { report::ContextFormat::Json } else { self.format };
        if format == report::ContextFormat::Json {
            return output::print_json(&found);
        }
        if found.sessions.is_empty() {
            return output::print(&format!(
                "no session of {} in the last {}\n",
                output::safe(shown_key(&key)),
                counted(u64::from(self.days), "day")
            ));
        }
        let text = report::context(&found, &captures_by_session(context), self.days, now);
        match format {
            report::ContextFormat::Markdown => output::print(&text),
            _ => pager::print(context, &report::without_marks(&text)),
        }
    }
}

impl StatsArgs {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let archive = open()?;
        let filter = self.filter.filter(Timestamp::now())?;
        require_project(&archive, filter.project.as_deref())?;
        let stats = archive.stats(&filter, &TimeZone::system())?;
        match self.json {
            true => output::print_json(&stats),
            false => pager::print(context, &report::stats(&stats)),
        }
    }
}

impl ExportArgs {
    fn run(&self) -> Result<(), CliError> {
        let archive = open()?;
        let mut filter = self.filter.filter(Timestamp::now())?;
        if let Some(given) = &self.session {
            filter.session = Some(find(&archive, given)?.id);
        }
        require_project(&archive, filter.project.as_deref())?;
        let sessions = archive.sessions(&filter, true, usize::MAX >> 1)?;
        let output = named(&self.output);
        if sessions.is_empty() {
            if output.is_some() {
                return Err(CliError::new("no session matches, so that nothing was written")
                    .code(MISSING)
                    .hint("`nugget sessions` lists the sessions; it takes the same options"));
            }
            output::note("note: no session matches");
        }
        let mut written = 0;
        let mut write = |out: &mut dyn Write| -> Result<(), CliError> {
            // The oldest first, as one reads.
            for session in sessions.iter().rev() {
                written += self.write_session(&archive, session, out)?;
            }
            Ok(out.flush()?)
        };
        match output {
            None => {
                let mut out = io::BufWriter::new(io::stdout().lock());
                match write(&mut out) {
                    // `nugget sessions export | head`
                    Err(_) if out.flush().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe) => {
                        Ok(())
                    }
                    result => result,
                }
            }
            Some(path) => {
                write_file(path, |out| write(out))?;
                match self.json {
                    true => output::print_json(&json!({
                        "path": path, "sessions": sessions.len(), "messages": written,
                    })),
                    false => output::print(&format!(
                        "wrote {} with {} to {}\n",
                        counted(sessions.len() as u64, "session"),
                        counted(written, "message"),
                        output::safe(&path.display().to_string())
                    )),
                }
            }
        }
    }

    fn write_session(
        &self,
        archive: &Archive,
        session: &Session,
        out: &mut dyn Write,
    ) -> Result<u64, CliError> {
        let mut messages = 0;
        let mut result = match self.format {
            ExportFormat::Markdown => out.write_all(render::markdown_head(session).as_bytes()),
            ExportFormat::Jsonl => Ok(()),
        };
        archive.show(&session.id, |message| {
            let Some(message) = self.shown.select(message) else { return true };
            messages += 1;
            result = match self.format {
                ExportFormat::Markdown => out.write_all(render::markdown_message(&message).as_bytes()),
                ExportFormat::Jsonl => {
                    let line =
                        json!({ "session": session.id, "project": session.project, "message": message });
                    writeln!(out, "{line}")
                }
            };
            result.is_ok()
        })?;
        result?;
        Ok(messages)
    }
}

impl SyncArgs {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let config = context.config()?;
        if !is_enabled(&config) {
            return Err(CliError::new("sessions are not archived: `archive.enabled` is \"off\"")
                .hint("nugget config set archive.enabled on"));
        }
        let archive = Archive::open(&archive_path())?;
        let (summary, folders) = sync(&config, &archive, self.source.as_deref(), self.again)?;
        let since = sync_settings(&config).keep_since(Timestamp::now());
        let pruned = since.map(|since| archive.keep_since(since, PATIENCE)).transpose()?;
        let pruned = pruned.map_or(0, |removal| removal.sessions.len() as u64);
        if self.json {
            let mut value = json!(summary);
            value["pruned"] = json!(pruned);
            return output::print_json(&value);
        }
        let mut text = describe(&summary, &folders);
        if pruned > 0 {
            let sessions = counted(pruned, "session");
            text.push_str(&format!("deleted {sessions} that `archive.retention_days` does not keep\n"));
        }
        output::print(&text)
    }
}

/// Adds what is new, with a progress bar. Returns the folders that it looked into, too.
fn sync(
    config: &Config,
    archive: &Archive,
    source: Option<&str>,
    again: bool,
) -> Result<(SyncSummary, Vec<PathBuf>), CliError> {
    let settings = sync_settings(config);
    let codex = other_source();
    let mut sources = settings.sources();
    sources.push(&codex);
    sources.retain(|known| source.is_none_or(|source| source == known.name()));
    let bar = output::progress_bar("archiving, MB", 0);
    let now = Timestamp::now();
    let queued = QueuedSessions::read(&settings.state, now)?;
    let is_declined = |path: &Path| queued.is_declined(path);
    let mut settings = settings.sync_settings(now, &is_declined);
    settings.again = again;
    settings.patience = PATIENCE;
    let progress = |progress: &::archive::Progress| {
        if progress.bytes_total < 1_000_000 {
            return;
        }
        bar.set_length(progress.bytes_total / 1_000_000);
        bar.set_position(progress.bytes / 1_000_000);
    };
    settings.progress = &progress;
    let summary = archive.sync_in_turn(&sources, &settings);
    bar.finish_and_clear();
    let summary = summary?;
    let spinner = output::spinner("noting what was asked for and changed");
    let derived = provenance::derive::derive_pending(archive, usize::MAX >> 1, &|| false);
    spinner.finish_and_clear();
    derived?;
    Ok((summary, sources.iter().flat_map(|source| source.folders()).collect()))
}

/// What a sync has done in these folders.
fn describe(summary: &SyncSummary, folders: &[PathBuf]) -> String {
    let seconds = summary.milliseconds as f64 / 1000.0;
    let mut text = match summary.messages {
        0 if summary.found == 0 => "there are no transcripts in\n".to_owned(),
        0 => format!("nothing new ({seconds:.1} s)\n"),
        messages => format!(
            "added {} of {}, {} new ({seconds:.1} s)\n",
            counted(messages, "message"),
            counted(summary.sessions, "session"),
            thousands(summary.sessions_new),
        ),
    };
    let mut rows: Vec<(u64, String)> = vec![(summary.unchanged, "unchanged".to_owned())];
    rows.extend(summary.skipped.iter().map(|(reason, count)| (*count, describe_skip(reason).to_owned())));
    rows.push((summary.rewritten, "rewritten since, and read again".to_owned()));
    rows.push((summary.changed, "messages of other words than before, replaced".to_owned()));
    rows.push((summary.malformed, "lines that cannot be understood".to_owned()));
    let kinds: Vec<&str> = summary.unknown.keys().map(String::as_str).take(8).collect();
    rows.push((
        summary.unknown.values().sum(),
        format!("lines of unknown types: {}", output::safe(&kinds.join(", "))),
    ));
    rows.push((summary.failed.len() as u64, "transcripts that cannot be read".to_owned()));
    for (count, what) in rows.into_iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!("{:>8} {what}\n", thousands(count)));
    }
    for folder in folders.iter().filter(|_| summary.found == 0) {
        let why = match std::fs::read_dir(folder) {
            Ok(_) => String::new(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => " (no such folder)".to_owned(),
            Err(error) => format!(" ({error})"),
        };
        text.push_str(&format!("  {}{why}\n", output::short_path(folder)));
    }
    for line in summary.malformed_lines.iter().take(MALFORMED_LISTED) {
        text.push_str(&format!(
            "  {}:{}: {}\n",
            output::short_path(&line.path),
            line.line,
            output::safe(&line.reason)
        ));
    }
    for failed in summary.failed.iter().take(MALFORMED_LISTED) {
        text.push_str(&format!("  {}: {}\n", output::short_path(&failed.path), output::safe(&failed.error)));
    }
    text
}

fn describe_skip(reason: &str) -> &str {
    match reason {
        "excluded" => "excluded (capture.exclude, .nuggetignore)",
        "own" => "nugget's own calls",
        "declined" => "ran with NUGGET_DISABLE",
        "old" => "older than `archive.retention_days`",
        other => other,
    }
}

impl PruneArgs {
    fn run(&self) -> Result<(), CliError> {
        let now = Timestamp::now();
        let refused = |what: &str| {
            CliError::new(format!("{:?} {what}", self.older_than))
                .code(USAGE)
                .hint("give days, weeks or a date: 180d, 26w, 2026-01-01")
        };
        let before = parse_moment(&self.older_than, now).ok_or_else(|| refused("is not a time"))?;
        // Whoever writes 6m may mean months, and would lose all.
        if self.older_than.trim().ends_with(['m', 'h']) {
            return Err(refused("is in minutes or hours"));
        }
        if before > now {
            return Err(refused("is in the future"));
        }
        let removal = open()?.prune(before, self.dry_run, PATIENCE)?;
        note_in_log(removal.is_in_log);
        if self.json {
            return output::print_json(&json!({ "dry_run": self.dry_run, "removed": removal }));
        }
        let count = removal.sessions.len() as u64;
        if count == 0 {
            return output::print("no session is that old\n");
        }
        let what = if self.dry_run { "would delete" } else { "deleted" };
        let mut text =
            format!("{what} {} with {}\n", counted(count, "session"), counted(removal.messages, "message"));
        if self.dry_run {
            let rows = removal.sessions.iter().map(|session| {
                vec![render::short_id(session), render::ago(session.ended, now), render::subject(session)]
            });
            text.push_str(&output::table(&["SESSION", "AGO", "FIRST PROMPT"], rows));
        } else if removal.sessions.iter().any(render::has_transcript) {
            text.push_str(
                "some are still on the disk: `nugget sessions sync --again` would add them again\n",
            );
        }
        output::print(&text)
    }
}

/// Says that what was deleted is not overwritten yet, if so.
pub(super) fn note_in_log(is_in_log: bool) {
    if is_in_log {
        output::note(
            "note: another process reads the archive, as an export into a pager does; what was deleted is overwritten \
             on the disk by the first `nugget sessions sync` or background round after it has ended",
        );
    }
}

/// What other sessions still have of one that was deleted.
fn still_there(removal: &Removal) -> String {
    if removal.shared == 0 {
        return String::new();
    }
    let ids: Vec<String> = removal
        .shared_with
        .iter()
        .map(|id| format!("  nugget sessions forget {}\n", output::safe(id)))
        .collect();
    format!(
        "{} more of it {} kept: other sessions, resumed or forked, have the same. To delete those:\n{}",
        counted(removal.shared, "message"),
        if removal.shared == 1 { "is" } else { "are" },
        ids.concat()
    )
}

impl ForgetArgs {
    fn run(&self) -> Result<(), CliError> {
        let archive = open()?;
        let session = find(&archive, &self.id)?;
        let removal = archive.forget(&session.id, PATIENCE)?;
        note_in_log(removal.is_in_log);
        if self.json {
            return output::print_json(&json!({ "removed": removal }));
        }
        let subagents = removal.sessions.len().saturating_sub(1) as u64;
        let with =
            if subagents > 0 { format!(" and {} of subagents", thousands(subagents)) } else { String::new() };
        output::print(&format!(
            "deleted session {}{with} with {} from the archive; it is never added again.\nThe transcript is \
             the client's, and stays where it is.\n{}",
            output::safe(&session.id),
            counted(removal.messages, "message"),
            still_there(&removal),
        ))
    }
}
