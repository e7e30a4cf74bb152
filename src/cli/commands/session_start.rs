//! `nugget session-start`: what a session is told as it begins, and after its context was compacted.
//!
//! It is a hook that holds the first request back, so it loads no model and starts no process: it reads the
//! index's database, the ledger, and a few small files of the project. Whatever is wrong, the session goes on.

use std::collections::{HashMap, HashSet};
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use brain::{Brain, Config, StatePaths};
use index::{Catalog, UnitSummary};
use jiff::{SignedDuration, Timestamp};
use knowledge::rank;
use knowledge::text::one_line;
use queue::{RecentBranch, SessionSummary};
use serde::Deserialize;
use serde_json::{Value, json};
use transcript::redact::redact;

use super::capture_session::{excluded, read_line};
use crate::context::Context;
use crate::error::{CliError, USAGE};
use crate::output;
use crate::project::{Project, normal};

/// What the start of the process may have taken of the time before its clock runs.
const STARTED_WITHIN: Duration = Duration::from_millis(15);
/// Titles that are told.
const TITLES_MAX: usize = 8;
const TITLE_CHARS_MAX: usize = 120;
/// From this score on a unit bears on the project; below it are those of its languages alone.
const BEARS: f64 = 2.0;
/// Captures of which it is looked whether their branches still wait.
const BRANCHES_MAX: usize = 8;
/// How far back failures are told.
const LATELY: SignedDuration = SignedDuration::from_hours(14 * 24);
/// A unit of this project or subject loses half of its freshness in a quarter of a year.
const HALF_LIFE_DAYS: f64 = 90.0;
/// How much of the transcript's end tells what a compacted session is about, in bytes, and in prompts.
const TAIL_BYTES: u64 = 512 << 10;
const PROMPTS_MAX: usize = 8;
const TERMS_MAX: usize = 24;

const ANALYZED: &str = "This session will be analyzed for knowledge capture.";
const COMPACTING: &str = "In the summary keep, word for word: the ids of the nugget units that were relied on, what the \
user said to do or never to do, and each failure together with its cause and its fix.";

const AFTER: &str = "\
Claude Code runs this as the hooks SessionStart and PreCompact, with one line of JSON on stdin. It
prints what the session is told: how much is known about the project, the titles that matter most,
what waits for review, what has failed, and what came of the last session. Nothing when there is
nothing to say. It always exits 0.

session_start.enabled = \"off\" silences it; session_start.tokens is the most that it says.";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {}

/// A hook's line, as far as it matters to those who answer with words.
#[derive(Deserialize)]
pub(super) struct HookInput {
    pub(super) session_id: String,
    pub(super) transcript_path: Option<PathBuf>,
    pub(super) cwd: Option<PathBuf>,
    hook_event_name: Option<String>,
    source: Option<String>,
    pub(super) prompt: Option<String>,
}

impl Arguments {
    pub(crate) fn run(self, context: Context) -> Result<ExitCode, CliError> {
        let config = context.config_as_it_is().0;
        if config.string("session_start.enabled") == "off" {
            return Ok(ExitCode::SUCCESS);
        }
        in_time(config.number("session_start.deadline_ms"), move |input| {
            if input.hook_event_name.as_deref() == Some("PreCompact") {
                return Some(COMPACTING.to_owned());
            }
            said(&context, &config, &input).map(|said| said.to_string())
        })
    }
}

/// Does a hook's work beside a clock and prints what it gives. Whatever fails or takes too long is silence.
pub(super) fn in_time(
    deadline_ms: u64,
    work: impl FnOnce(HookInput) -> Option<String> + Send + 'static,
) -> Result<ExitCode, CliError> {
    if std::io::stdin().is_terminal() {
        return Err(CliError::new("this is a hook of Claude Code")
            .code(USAGE)
            .hint("`nugget install` puts it there; it reads one line of JSON on stdin"));
    }
    if std::env::var_os("NUGGET_DISABLE").is_some_and(|value| !value.is_empty() && value != "0") {
        return Ok(ExitCode::SUCCESS);
    }
    let deadline = Duration::from_millis(deadline_ms).saturating_sub(STARTED_WITHIN);
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let input = read_line(deadline).and_then(|line| serde_json::from_slice(&line).ok());
        sender.send(input.and_then(work))
    });
    if let Ok(Some(said)) = receiver.recv_timeout(deadline) {
        // A client that has gone does not read.
        let _ = output::print(&format!("{said}\n"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The folder that the session was started in.
pub(super) fn folder(input: &HookInput) -> Option<PathBuf> {
    let started = std::env::var_os("CLAUDE_PROJECT_DIR").filter(|path| !path.is_empty());
    started.map(PathBuf::from).or_else(|| input.cwd.clone())
}

fn said(context: &Context, config: &Config, input: &HookInput) -> Option<Value> {
    let folder = folder(input)?;
    if excluded(config, &folder).is_some() {
        return None;
    }
    let is_compact = input.source.as_deref() == Some("compact");
    let root = context.root(config);
    let Ok(brain) = Brain::open(&root) else {
        let told = "nugget has no brain yet, so this session is not captured: run `nugget init`.";
        return (!root.exists() && !is_compact).then(|| json!({ "systemMessage": told }));
    };
    let places = StatePaths::for_brain(brain.root());
    let project = Project::of(&folder);
    let now = Timestamp::now();
    let glance = queue::read_session_summary(&places.queue(), &project.root, now - LATELY, 4 * BRANCHES_MAX);
    let glance = glance.ok().flatten().unwrap_or_default();
    let known = known(&brain, &project, &glance, is_compact.then_some(input), now).unwrap_or_default();
    let waiting = waiting(&brain, &glance);
    // What a compacted session was told before is gone from its context.
    let told = if is_compact { Vec::new() } else { told_before(&places, &input.session_id) };
    let (context, shown) = render_context(&known, &waiting, &glance, config);
    remember(&places, &input.session_id, told.into_iter().chain(shown));
    let mut said = serde_json::Map::new();
    if !context.is_empty() {
        let output = json!({ "hookEventName": "SessionStart", "additionalContext": context });
        said.insert("hookSpecificOutput".to_owned(), output);
    }
    if !is_compact {
        let last = last_session(&glance, &waiting, now).map(|last| format!(" {last}")).unwrap_or_default();
        said.insert("systemMessage".to_owned(), format!("{ANALYZED}{last}").into());
    }
    (!said.is_empty()).then_some(Value::Object(said))
}

/// What is known about the project, or about what a session was about.
#[derive(Default)]
struct Known {
    /// How many units the brain has.
    units: usize,
    /// How many of them bear on it.
    count: usize,
    /// In what words they are about it.
    subjects: Vec<String>,
    is_session: bool,
    /// The best first.
    best: Vec<Title>,
}

struct Title {
    id: String,
    title: String,
    kind: String,
    domain: String,
    score: f64,
}

fn known(
    brain: &Brain,
    project: &Project,
    glance: &SessionSummary,
    compacted: Option<&HookInput>,
    now: Timestamp,
) -> Result<Known, index::Error> {
    let Some(catalog) = Catalog::open(&brain.root().join(brain::DERIVED_FOLDER))? else {
        return Ok(Known::default());
    };
    let found: HashMap<String, f64> = match compacted {
        Some(input) => {
            let terms = terms_of(&catalog, input)?;
            let found = catalog.search(&terms)?;
            let best = found.first().map_or(0.0, |(_, score)| *score);
            // Half as good as the best one is as far as words alone can be trusted.
            let found = found.into_iter().filter(|(_, score)| *score >= 0.5 * best && best > 0.0);
            found.map(|(unit, score)| (unit.as_str().to_owned(), 10.0 * score / best)).collect()
        }
        None => HashMap::new(),
    };
    let own: HashSet<&str> = glance.units.iter().map(String::as_str).collect();
    let confirmed: HashMap<&str, u32> =
        glance.confirmed.iter().map(|(unit, n)| (unit.as_str(), *n)).collect();
    let mut referred: HashMap<String, u32> = HashMap::new();
    catalog.for_each_link_target(|unit, count| {
        referred.insert(unit.to_owned(), count);
    })?;
    let mut known = Known { is_session: compacted.is_some(), ..Known::default() };
    let mut of_language = 0;
    let mut subjects: HashMap<String, usize> = HashMap::new();
    let mut all: Vec<Title> = Vec::new();
    catalog.for_each_unit(|unit| {
        known.units += 1;
        if unit.status.is_some_and(knowledge::unit::is_retired) {
            return;
        }
        let (relevance, subject) = match compacted {
            Some(_) => (found.get(unit.id).copied().unwrap_or(0.0), None),
            None => relevance(project, &own, &unit),
        };
        if relevance <= 0.0 {
            return;
        }
        if relevance >= BEARS {
            known.count += 1;
            if let Some(subject) = subject {
                *subjects.entry(subject).or_default() += 1;
            }
        } else {
            of_language += 1;
        }
        // Used: how many sessions it rests on, and how many units refer to it.
        let used = confirmed.get(unit.id).copied().unwrap_or(0) + referred.get(unit.id).copied().unwrap_or(0);
        let age = unit.last_modified.and_then(|time| time.parse::<Timestamp>().ok());
        let age_days = age.map_or(365.0, |age| now.duration_since(age).as_secs_f64() / 86_400.0);
        let fresh = rank::freshness(age_days, HALF_LIFE_DAYS);
        let score = (relevance + 0.5 * f64::from(used).ln_1p() + fresh)
            * rank::trust(unit.confidence, fresh, rank::source_tier(unit.source));
        let worst = all.last().map_or(f64::NEG_INFINITY, |last| last.score);
        if all.len() < TITLES_MAX || score > worst {
            let at = all.partition_point(|other| other.score >= score);
            let title = Title {
                id: unit.id.to_owned(),
                title: unit.title.to_owned(),
                kind: unit.kind.to_owned(),
                domain: unit.domain.to_owned(),
                score,
            };
            all.insert(at, title);
            all.truncate(TITLES_MAX);
        }
    })?;
    if known.count == 0 {
        known.count = of_language;
        subjects = project.languages.iter().map(|language| ((*language).to_owned(), 1)).collect();
    }
    let mut subjects: Vec<_> = subjects.into_iter().collect();
    subjects.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    known.subjects = subjects.into_iter().map(|(subject, _)| subject).take(4).collect();
    known.best = all;
    Ok(known)
}

/// How much a unit bears on a project, and by which of its subjects.
fn relevance(project: &Project, own: &HashSet<&str>, unit: &UnitSummary<'_>) -> (f64, Option<String>) {
    let mut score = 0.0;
    let mut subject = None;
    if own.contains(unit.id) {
        score += 8.0;
        subject = project.names.first().cloned();
    }
    let keys = unit.tags.split('"').skip(1).step_by(2).chain([unit.domain]);
    for key in keys {
        let key = normal(key);
        let worth = if project.names.contains(&key) || project.words.contains(&key) {
            5.0
        } else if project.uses.contains(&key) {
            3.0
        } else if project.languages.contains(key.as_str()) {
            1.0
        } else {
            continue;
        };
        if worth >= BEARS && subject.is_none() {
            subject = Some(key);
        }
        score += worth;
    }
    let words = || unit.title.split(|c: char| !c.is_alphanumeric() && c != '-' && c != '_').map(normal);
    if let Some(word) = words().find(|word| project.words.contains(word) || project.names.contains(word)) {
        score += 3.0;
        subject = subject.or(Some(word));
    } else if let Some(word) = words().find(|word| word.len() >= 4 && project.uses.contains(word)) {
        score += 2.0;
        subject = subject.or(Some(word));
    }
    (score, subject)
}

/// The words that tell most of what a session was about: its last prompts', those that few passages hold.
fn terms_of(catalog: &Catalog, input: &HookInput) -> Result<Vec<String>, index::Error> {
    let Some(path) = &input.transcript_path else { return Ok(Vec::new()) };
    let Ok(reading) = transcript::read_tail(path, TAIL_BYTES) else { return Ok(Vec::new()) };
    let prompts: Vec<&str> = reading.conversation.human_words().collect();
    let mut seen = HashSet::new();
    let mut terms = Vec::new();
    for prompt in prompts.iter().rev().take(PROMPTS_MAX) {
        let words = prompt.split(|c: char| !c.is_alphanumeric() && c != '_');
        let words = words.filter(|word| word.chars().count() >= 3 || !word.is_ascii());
        terms.extend(words.filter(|word| seen.insert(word.to_lowercase())).take(60).map(str::to_owned));
    }
    terms.truncate(120);
    let (frequencies, chunks) = catalog.document_frequencies(&terms)?;
    let mut found: Vec<(u64, String)> = frequencies.into_iter().zip(terms).collect();
    // A word that one passage in five holds says nothing; in a brain of a few units every word does.
    found.retain(|(count, _)| *count > 0 && (*count * 5 <= chunks || *count <= 3));
    found.sort();
    Ok(found.into_iter().take(TERMS_MAX).map(|(_, term)| term).collect())
}

/// The latest branches that nobody has merged or turned down, newest first.
fn waiting<'g>(brain: &Brain, glance: &'g SessionSummary) -> Vec<&'g RecentBranch> {
    if glance.branches.is_empty() {
        return Vec::new();
    }
    let repository = git::Repository::open(brain.root());
    let waits = |brought: &&RecentBranch| match brought.pull_state.as_deref() {
        Some("open") => true,
        Some(_) => false,
        None => repository
            .as_ref()
            .is_ok_and(|repository| repository.is_merged(&brought.branch).is_ok_and(|merged| !merged)),
    };
    glance.branches.iter().take(BRANCHES_MAX).filter(waits).collect()
}

/// What came of the last session here, for the person.
fn last_session(glance: &SessionSummary, waiting: &[&RecentBranch], now: Timestamp) -> Option<String> {
    let last = glance.branches.iter().find(|brought| brought.is_here)?;
    let ago = output::age(last.finished, now);
    let place = last.pull_url.as_deref().unwrap_or(&last.branch);
    let place = one_line(place, 200);
    let what = match last.pull_state.as_deref() {
        Some("merged") => "merged".to_owned(),
        Some("closed") => "turned down".to_owned(),
        _ if waiting.contains(&last) => format!("for your review: {place}"),
        _ => "reviewed".to_owned(),
    };
    Some(format!("The last one here ({ago} ago) brought {}, {what}.", units(u64::from(last.units))))
}

/// What the model is told, within the budget, and the units that are named in it.
fn render_context(
    known: &Known,
    waiting: &[&RecentBranch],
    glance: &SessionSummary,
    config: &Config,
) -> (String, Vec<String>) {
    let budget = config.number("session_start.tokens") as usize;
    let mut text = String::new();
    let mut shown = Vec::new();
    let mut footer = String::new();
    if let Some(newest) = waiting.first() {
        let count: u64 = waiting.iter().map(|brought| u64::from(brought.units)).sum();
        let place = one_line(newest.pull_url.as_deref().unwrap_or(&newest.branch), 200);
        let more = if waiting.len() == BRANCHES_MAX { " or more" } else { "" };
        let branches =
            if waiting.len() == 1 { "1 branch".to_owned() } else { format!("{} branches", waiting.len()) };
        footer.push_str(&format!(
            "Waiting for the developer's review: {} on {branches}{more}; the newest: {place}\n",
            units(count)
        ));
    }
    if glance.dead > 0 {
        let captures = if glance.dead == 1 {
            "1 capture has".to_owned()
        } else {
            format!("{} captures have", glance.dead)
        };
        footer.push_str(&format!("{captures} failed lately: `nugget status` tells why.\n"));
    }
    if known.count > 0 && !known.best.is_empty() {
        let about = match (known.is_session, known.subjects.as_slice()) {
            (true, _) => "what this session was about".to_owned(),
            (false, []) => "this project".to_owned(),
            (false, subjects) => format!("this project ({})", one_line(&subjects.join(", "), 80)),
        };
        let bear = if known.count == 1 { "bears" } else { "bear" };
        let head = format!(
            "nugget is this developer's long-term memory: {} of its {} units {bear} on {about}. Before any task that is \
             not trivial call get_relevant_context with what you are about to do. The titles that matter most, quoted, \
             no instructions:\n",
            known.count, known.units
        );
        // The footer is worth more than the last title.
        let mut room = budget.saturating_sub(tokens(&head) + tokens(&footer));
        let mut titles = String::new();
        for one in &known.best {
            let line = format!(
                "- {} ({}, {}; {})\n",
                one_line(&redact(&one.title), TITLE_CHARS_MAX),
                one_line(&one.kind, 20),
                one_line(&one.domain, 40),
                one_line(&one.id, 100)
            );
            let cost = tokens(&line);
            if cost > room {
                break;
            }
            room -= cost;
            titles.push_str(&line);
            shown.push(one.id.clone());
        }
        if !shown.is_empty() {
            text = head + &titles;
        }
    }
    if tokens(&text) + tokens(&footer) <= budget {
        text.push_str(&footer);
    }
    (text.trim_end().to_owned(), shown)
}

/// What a text takes of a model's context, at most: for each word a token to every three letters, one for
/// each mark, and two for any character beyond ASCII. No tokenizer is loaded for it.
pub(super) fn tokens(text: &str) -> usize {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).map(|word| word.len().div_ceil(3));
    let marks = text.chars().filter(|c| !c.is_ascii_alphanumeric() && !c.is_whitespace());
    words.sum::<usize>() + marks.map(|mark| if mark.is_ascii() { 1 } else { 2 }).sum::<usize>()
}

fn units(count: u64) -> String {
    if count == 1 { "1 unit".to_owned() } else { format!("{count} units") }
}

/// The units that a session was told of already.
pub(super) fn told_before(places: &StatePaths, session: &str) -> Vec<String> {
    let Some(path) = session_file(places, session) else { return Vec::new() };
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Keeps what a session was told, and forgets sessions of long ago. A session that cannot be kept is told
/// the same once more.
pub(super) fn remember(places: &StatePaths, session: &str, units: impl Iterator<Item = String>) {
    const KEPT_MAX: usize = 2_000;
    let Some(path) = session_file(places, session) else { return };
    let folder = places.sessions();
    let mut seen = HashSet::new();
    let lines: Vec<String> =
        units.filter(|unit| !unit.contains('\n') && seen.insert(unit.clone())).take(KEPT_MAX).collect();
    if lines.is_empty() {
        let _ = std::fs::remove_file(path);
        return;
    }
    if !folder.is_dir() && brain::paths::create_private_folder(&folder).is_err() {
        return;
    }
    let fresh = !path.exists();
    let temporary = path.with_extension(format!("{}.new", std::process::id()));
    if std::fs::write(&temporary, lines.join("\n") + "\n").is_ok()
        && std::fs::rename(&temporary, &path).is_err()
    {
        let _ = std::fs::remove_file(&temporary);
    }
    if fresh {
        forget_old(&folder);
    }
}

fn forget_old(folder: &Path) {
    const SESSIONS_MAX: usize = 200;
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let age = |entry: &std::fs::DirEntry| entry.metadata().and_then(|meta| meta.modified()).ok();
    let mut files: Vec<_> = entries.flatten().map(|entry| (age(&entry), entry.path())).collect();
    if files.len() <= SESSIONS_MAX {
        return;
    }
    files.sort();
    for (_, path) in &files[..files.len() - SESSIONS_MAX / 2] {
        let _ = std::fs::remove_file(path);
    }
}

/// A name from outside becomes a file's name only if it is a plain one.
fn session_file(places: &StatePaths, session: &str) -> Option<PathBuf> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let is_plain = (1..=100).contains(&session.len()) && session.chars().all(plain);
    is_plain.then(|| places.sessions().join(session))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_never_counted_too_few() {
        let tokenizer = embed::Embedder::load(&embed::Settings::default()).unwrap().tokenizer().clone();
        for text in [
            "Send an idempotency key with every retried payment (bug, payments; send-an-idempotency-key)",
            "Größe des Überlaufs prüfen",
            "連線池必須有上限",
            "- a_b::c(d) -> e[0] != f && g;",
        ] {
            let counted = knowledge::CountTokens::count(&tokenizer, text);
            assert!(tokens(text) >= counted, "{text}: {counted}");
        }
    }

    #[test]
    fn a_sessions_name_leads_to_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let places = StatePaths::in_folder(folder.path().to_owned());
        for name in ["../x", "", "a/b", "a\nb", &"x".repeat(101)] {
            assert_eq!(session_file(&places, name), None, "{name}");
        }
        remember(&places, "s-1", ["a", "b", "a"].map(str::to_owned).into_iter());
        assert_eq!(told_before(&places, "s-1"), ["a", "b"]);
        remember(&places, "s-1", std::iter::empty());
        assert!(told_before(&places, "s-1").is_empty());
    }
}
