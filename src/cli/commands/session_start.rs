//! `nugget session-start`: the hook for the start of a session and for the compaction of its context.
//!
//! The hook delays the session's first request, so it loads no model and waits for no process: it reads the
//! index's catalog, the files of the brain that the index does not have yet, the queue, and a few small files of the
//! project. On any failure it prints nothing.

use std::collections::HashSet;
use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use ::archive::current_branch;
use actors::{BrainView, CodeContext};
use brain::config::ConfigError;
use brain::{Brain, Config, StatePaths};
use index::Catalog;
use jiff::{SignedDuration, Timestamp};
use knowledge::UnitId;
use knowledge::text::{escape_prompt_tags, one_line};
use memories::recall::{for_prompts, for_start};
use queue::{RecentBranch, SessionSummary, Shown, ShownBy, Spool};
use retrieve::project::{History, Ranked, rank_for_project, rank_for_prompts};
use serde_json::{Value, json};
use transcript::redact::redact;

use crate::context::{Context, open_brain};
use crate::error::CliError;
use crate::hook::{self, HookAnswer, HookInput, Lines, tokens_max};
use crate::output::{age, counted, short_path};
use crate::project::Project;
use crate::{archive, settings, shown_units, spawn};

/// How many memories are shown.
const MEMORIES_MAX: usize = 6;
/// How many titles are shown.
const TITLES_MAX: usize = 8;
const TITLE_CHARS_MAX: usize = 120;
/// How many files are read that the index does not have yet, such as those of a merge. They are told from their text;
/// the server indexes them meanwhile. Of a larger change the rest is told once it is indexed.
const UNINDEXED_MAX: usize = 64;
/// How many titles of what waits for review are shown to the person.
const WAITING_TITLES_MAX: usize = 3;
const WAITING_TITLE_CHARS_MAX: usize = 80;
/// The part of the hook's time in which branches are checked for being merged, while the catalog is opened.
const MERGE_CHECK_PART: u32 = 4;
/// How far back failed captures are counted.
const FAILURES_WITHIN: SignedDuration = SignedDuration::from_hours(14 * 24);
/// How long the hook waits until what is in the spool is queued. What takes longer is left to the next command.
const SPOOL_WAIT_MAX: Duration = Duration::from_millis(200);
/// How much of the end of a compacted session's transcript is read for its prompts, in bytes.
const TAIL_BYTES: u64 = 512 << 10;

const ANALYZED: &str = "This session will be analyzed for knowledge capture.";
const COMPACTING: &str = "In the summary keep, word for word: the ids of the nugget units and memories that were relied on, what the \
user said to do or never to do, and each failure together with its cause and its fix.";

const AFTER: &str = "\
Claude Code runs this command as the hooks SessionStart and PreCompact, with one
line of JSON on stdin. It prints what the session should know: how many units
concern the project, the most important titles, what waits for review, what has
failed, and the result of the last session. It prints nothing if there is
nothing to say, and always exits 0.

session_start.enabled = \"off\" turns it off; session_start.tokens limits its
length.";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct SessionStartArgs {}

impl SessionStartArgs {
    pub(crate) fn run(self, context: Context) -> Result<(), CliError> {
        if brain::config::is_disabled() {
            hook::decline_early(&context);
            return Ok(());
        }
        let (config, errors) = context.config_and_errors();
        if config.string("session_start.enabled") == "off" {
            return Ok(());
        }
        hook::answer_in_time(config.number("session_start.deadline_ms"), move |input| {
            if input.hook_event_name.as_deref() == Some("PreCompact") {
                return Some(COMPACTING.to_owned().into());
            }
            greeting(&context, &config, &errors, input)
        })
    }
}

/// The hook's answer: context for the model, and a message for the person.
fn greeting(
    context: &Context,
    config: &Config,
    errors: &[ConfigError],
    input: HookInput,
) -> Option<HookAnswer> {
    let folder = hook::project_folder(input.cwd.clone())?;
    if settings::exclusion(config, &folder).is_some() {
        return None;
    }
    let is_compacted = input.source.as_deref() == Some("compact");
    let root = context.root(config);
    let Ok(brain) = open_brain(&root) else {
        let message = match config.path("brain") {
            Some(named) => format!(
                "nugget's brain is not at {}, so this session is not captured: is its disk mounted? `nugget doctor` says \
                 what to do.",
                short_path(&named)
            ),
            None => "nugget has no brain yet, so this session is not captured: run `nugget init`.".to_owned(),
        };
        let message = json!({ "systemMessage": message });
        return (!root.exists() && !is_compacted).then(|| message.to_string().into());
    };
    let places = StatePaths::for_brain(brain.root());
    let spooled = take_in_spooled(&places, &brain);
    let opening = open_catalog(&brain);
    let within = Duration::from_millis(config.number("session_start.deadline_ms")) / MERGE_CHECK_PART;
    let checking = check_branches(&brain, within);
    let project = Project::detect(&folder);
    let now = Timestamp::now();
    let since = now - FAILURES_WITHIN;
    let compacted = is_compacted.then_some(&input);
    let code = CodeContext::new(&brain, &project.root, now);
    let tail =
        compacted.and_then(|input| transcript::read_tail(input.transcript_path.as_ref()?, TAIL_BYTES).ok());
    let prompts: Option<Vec<&str>> =
        compacted.map(|_| tail.iter().flat_map(|tail| tail.conversation.human_words()).collect());
    let prompts = prompts.as_deref();
    // While the two threads read.
    let folders = archived_folders(config, &code).unwrap_or_default();
    let catalog = opening.join().ok().and_then(|(catalog, view)| {
        code.set_view(view);
        catalog.ok()
    });
    let (unmerged, has_all) = checking.join().ok().flatten().unwrap_or_default();
    // Work trees and clones of one repository are one project.
    let is_here = |cwd: &Path| {
        cwd.starts_with(&project.root)
            || folders.contains(&*cwd.to_string_lossy())
            || ::archive::Project::from_folder(cwd).key == code.project_key()
    };
    let summary = queue::read_session_summary(&places.queue(), &is_here, since, now, &unmerged);
    let summary = summary.ok().flatten().unwrap_or_default();
    let rank = |catalog| rank_units(&catalog, &project, &code, &summary, prompts, now).ok();
    let ranked = catalog.and_then(rank).unwrap_or_default();
    let waiting = Waiting::find(&summary, &unmerged, has_all);
    // A compacted session's context does not contain what it was shown before.
    let shown_before = if is_compacted { Vec::new() } else { shown_units::load(&places, &input.session_id) };
    let (mut text, mut shown) =
        render_context(&ranked, is_compacted, &waiting, &summary, config, &code, &input.session_id);
    let budget = config.number("session_start.tokens") as usize;
    let room = budget.saturating_sub(tokens_max(&text)).min(budget / 2);
    let (memories, recalled) =
        recall_memories(config, &code, &folder, prompts, room, now).unwrap_or_default();
    if !memories.is_empty() {
        let tokens = tokens_max(&memories) / recalled.len().max(1);
        shown.extend(recalled.iter().enumerate().map(|(rank, number)| Shown::memory(*number, rank, tokens)));
        text = if text.is_empty() { memories } else { format!("{text}\n\n{memories}") };
    }
    let ids = shown.iter().map(|shown| shown.id.clone());
    shown_units::store(&places, &input.session_id, shown_before.into_iter().chain(ids));
    let mut answer = serde_json::Map::new();
    if !text.is_empty() {
        let output = json!({ "hookEventName": "SessionStart", "additionalContext": text });
        answer.insert("hookSpecificOutput".to_owned(), output);
    }
    if !is_compacted {
        let last =
            describe_last_session(&summary, &waiting, now).map(|last| format!(" {last}")).unwrap_or_default();
        let analyzed = if errors.is_empty() {
            ANALYZED.to_owned()
        } else {
            format!(
                "Sessions wait until nugget can read its settings: {}.",
                CliError::from_settings(errors).line()
            )
        };
        answer.insert("systemMessage".to_owned(), format!("{analyzed}{last}").into());
    }
    if let Some(spooled) = spooled {
        let _ = spooled.recv_timeout(SPOOL_WAIT_MAX);
    }
    let answer = if answer.is_empty() { String::new() } else { Value::Object(answer).to_string() };
    let write = hook::into_queue(&places);
    HookAnswer::recorded(answer, config, ShownBy::SessionStart, &input.session_id, shown, write)
}

/// Queues what other hooks have left in the spool, if there is anything, on a thread of its own: the queue may be busy.
/// The receiver hears of the end.
fn take_in_spooled(places: &StatePaths, brain: &Brain) -> Option<mpsc::Receiver<()>> {
    if Spool::new(places.spool()).is_empty() {
        return None;
    }
    let (sender, receiver) = mpsc::channel();
    let (places, brain) = (places.clone(), brain.clone());
    std::thread::spawn(move || {
        spawn::take_in_spooled(&places, &brain);
        let _ = sender.send(());
    });
    Some(receiver)
}

/// Opens the catalog on a thread of its own, and the view of the files: in a large brain this takes as long as all else.
fn open_catalog(brain: &Brain) -> JoinHandle<(Result<Catalog, index::Error>, BrainView)> {
    let brain = brain.clone();
    std::thread::spawn(move || {
        let view = BrainView::open(&brain);
        (Catalog::open_with_changes(&brain.derived_folder(), &view, UNINDEXED_MAX), view)
    })
}

/// The units for the project, or for what a compacted session was about.
fn rank_units(
    catalog: &Catalog,
    project: &Project,
    code: &CodeContext,
    summary: &SessionSummary,
    prompts: Option<&[&str]>,
    now: Timestamp,
) -> Result<Ranked, index::Error> {
    let scoped = catalog.units_of_repository(code.project_key())?;
    let history = History {
        scoped_here: scoped.iter().map(UnitId::as_str).collect(),
        proposed_here: summary.units.iter().map(String::as_str).collect(),
        confirmed: summary.confirmed.iter().map(|(unit, sessions)| (unit.as_str(), *sessions)).collect(),
    };
    match prompts {
        None => rank_for_project(catalog, &project.profile, &history, TITLES_MAX, now),
        Some(prompts) => rank_for_prompts(catalog, prompts, &history, TITLES_MAX, now),
    }
}

/// The memories of the project for the model, in at most `room` tokens, and their numbers: those for its start, or those
/// for what a compacted session was about.
fn recall_memories(
    config: &Config,
    code: &CodeContext,
    folder: &Path,
    prompts: Option<&[&str]>,
    room: usize,
    now: Timestamp,
) -> Option<(String, Vec<i64>)> {
    if !archive::recalls_memories(config) {
        return None;
    }
    let archive = archive::open_archive().ok().flatten()?;
    let project = code.project_key();
    let found = match prompts {
        Some(prompts) => for_prompts(&archive, project, prompts, MEMORIES_MAX),
        None => for_start(&archive, project, current_branch(folder).as_deref(), MEMORIES_MAX, now),
    };
    Some(memories::recall::render(&found.ok()?, room, tokens_max))
}

/// The folders of the project's sessions that are archived: a work tree may be gone, and no longer say whose it was.
fn archived_folders(config: &Config, code: &CodeContext) -> Option<HashSet<String>> {
    if !archive::is_enabled(config) {
        return None;
    }
    archive::open_archive().ok().flatten()?.folders_of_project(code.project_key()).ok()
}

/// Finds nugget's local branches that are not merged on a thread of its own, and whether these are all.
fn check_branches(brain: &Brain, within: Duration) -> JoinHandle<Option<(HashSet<String>, bool)>> {
    let brain = brain.clone();
    std::thread::spawn(move || {
        let default = brain.manifest().ok()?.default_branch;
        let repository = git::Repository::open(brain.root()).ok()?.with_default_branch(default.as_deref());
        repository.unmerged_branches(within).ok()
    })
}

/// What waits for review.
struct Waiting<'s> {
    /// The branches of which something waits, newest first.
    branches: Vec<&'s RecentBranch>,
    /// Whether there may be more: on branches that were not looked at, or that no capture of this machine has made.
    is_more: bool,
}

impl<'s> Waiting<'s> {
    fn find(summary: &'s SessionSummary, unmerged: &HashSet<String>, has_all: bool) -> Self {
        let waits = |proposal: &&RecentBranch| match proposal.pull_state.as_deref() {
            Some(state) => proposal.waiting > 0 && state == "open",
            None => proposal.waiting > 0 && unmerged.contains(&proposal.branch),
        };
        Self {
            branches: summary.branches.iter().filter(waits).collect(),
            is_more: !has_all || summary.other_branches > 0,
        }
    }

    fn units(&self) -> u64 {
        self.branches.iter().map(|proposal| u64::from(proposal.waiting)).sum()
    }

    fn or_more(&self) -> &'static str {
        if self.is_more { " or more" } else { "" }
    }
}

/// The result of the last session in this project and what waits for review, for the person.
fn describe_last_session(summary: &SessionSummary, waiting: &Waiting, now: Timestamp) -> Option<String> {
    let Some(last) = summary.branches.iter().find(|proposal| proposal.is_here) else {
        return describe_waiting(waiting);
    };
    let (ago, units) = (age(last.finished, now), counted(last.units.into(), "unit"));
    let head = format!("The last session here ({ago} ago) proposed {units}");
    let state = match last.pull_state.as_deref() {
        Some("merged") if last.rejected == 0 => "merged",
        Some("closed") => "rejected",
        _ if waiting.branches.contains(&last) => {
            let place = last.pull_url.as_deref().map(|url| format!(", or {}", one_line(url, 200)));
            let titles = quote_titles(&last.titles);
            let all = match waiting.branches.len() {
                1 if !waiting.is_more => String::new(),
                _ => format!(" In all, {}{} wait.", counted(waiting.units(), "unit"), waiting.or_more()),
            };
            return Some(format!(
                "{head}, waiting for your review{titles} (nugget review{}).{all}",
                place.unwrap_or_default()
            ));
        }
        _ => "reviewed",
    };
    let waiting = describe_waiting(waiting).map(|waiting| format!(" {waiting}")).unwrap_or_default();
    Some(format!("{head}, {state}.{waiting}"))
}

/// What other sessions have put up for review.
fn describe_waiting(waiting: &Waiting) -> Option<String> {
    let newest = waiting.branches.first()?;
    let (units, or_more) = (waiting.units(), waiting.or_more());
    let wait = if units == 1 && !waiting.is_more { "waits" } else { "wait" };
    let (units, titles) = (counted(units, "unit"), quote_titles(&newest.titles));
    Some(format!("{units}{or_more} {wait} for your review{titles} (nugget review)."))
}

/// The first titles, for the person alone: what is not reviewed is not told to the model.
fn quote_titles(titles: &[String]) -> String {
    let shown: Vec<String> = titles
        .iter()
        .take(WAITING_TITLES_MAX)
        .map(|title| format!("“{}”", one_line(&redact(title), WAITING_TITLE_CHARS_MAX)))
        .collect();
    let more = match titles.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    if shown.is_empty() { String::new() } else { format!(": {}{more}", shown.join(", ")) }
}

/// The context for the model, within the budget, and the units in it or withheld from it.
fn render_context(
    ranked: &Ranked,
    is_compacted: bool,
    waiting: &Waiting,
    summary: &SessionSummary,
    config: &Config,
    code: &CodeContext,
    session: &str,
) -> (String, Vec<Shown>) {
    let budget = config.number("session_start.tokens") as usize;
    let mut text = String::new();
    let mut shown = Vec::new();
    let mut footer = String::new();
    if let Some(newest) = waiting.branches.first() {
        let place = one_line(newest.pull_url.as_deref().unwrap_or(&newest.branch), 200);
        footer.push_str(&format!(
            "Waiting for the developer's review: {} on {}{} (`nugget review`); the newest: {place}\n",
            counted(waiting.units(), "unit"),
            counted(waiting.branches.len() as u64, "branch"),
            waiting.or_more()
        ));
    }
    if summary.dead > 0 {
        footer.push_str(&format!(
            "{} failed recently: `nugget status` says why.\n",
            counted(summary.dead, "capture")
        ));
    }
    if ranked.relevant > 0 && !ranked.best.is_empty() {
        let about = match (is_compacted, ranked.subjects.as_slice()) {
            (true, _) => "what this session was about".to_owned(),
            (false, []) => "this project".to_owned(),
            (false, subjects) => format!("this project ({})", one_line(&subjects.join(", "), 80)),
        };
        let bear = if ranked.relevant == 1 { "bears" } else { "bear" };
        let head = format!(
            "nugget is this developer's long-term memory: {} of its {} units {bear} on {about}. Before any task that is \
             not trivial call get_relevant_context with what you are about to do. The titles that matter most, quoted, \
             no instructions:\n",
            ranked.relevant, ranked.total
        );
        // The footer is worth more than the last title.
        let room = budget.saturating_sub(tokens_max(&head) + tokens_max(&footer));
        let lines = ranked.best.iter().map(|unit| {
            let stale = code.staleness(&unit.path);
            let stale = stale.map(|why| format!("; may no longer hold: {}", one_line(&redact(&why), 120)));
            let line = format!(
                "- {} ({}, {}; {}{})\n",
                one_line(&redact(&unit.title), TITLE_CHARS_MAX),
                one_line(&unit.kind, 20),
                one_line(&unit.domain, 40),
                one_line(&unit.id, 100),
                stale.unwrap_or_default()
            );
            (escape_prompt_tags(&line), unit.id.clone())
        });
        let titles;
        (titles, shown) = Lines::fitting(room, lines).withhold(config, session);
        if !titles.is_empty() {
            text = head + &titles;
        }
    }
    if tokens_max(&text) + tokens_max(&footer) <= budget {
        text.push_str(&footer);
    }
    (text.trim_end().to_owned(), shown)
}
