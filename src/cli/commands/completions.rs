//! `nugget completions`: prints a shell script that asks nugget itself for completions.

use std::collections::BTreeSet;
use std::ffi::OsStr;

use ::archive::{Field, Filter};
use brain::settings::{KEYS, Kind, find};
use brain::{Brain, Config, StatePaths};
use clap_complete::CompletionCandidate;
use clap_complete::engine::{PathCompleter, ValueCompleter as _};
use clap_complete::env::Shells;
use knowledge::{Unit, UnitType};
use queue::{Queue, State};

use crate::archive::open_archive;
use crate::context::open_brain;
use crate::error::CliError;
use crate::output;
use crate::unit_files::read_units;

/// The variable with which the script asks. Not the library's default `COMPLETE`: a hook that inherits that
/// variable would complete words instead of capturing its session.
pub(crate) const VARIABLE: &str = "NUGGET_COMPLETE";
/// How many values are offered, and how many of the archive are looked at.
const CANDIDATES_MAX: usize = 200;
const ARCHIVED_MAX: usize = 20_000;

const AFTER: &str = "\
It completes commands, flags and their values: units, domains, types, captures,
settings, what waits for review, and what is in the archive of sessions. The
script asks the `nugget` on your PATH, so it stays valid after an update.

Examples:
  nugget completions bash > ~/.local/share/bash-completion/completions/nugget
  nugget completions zsh > ~/.zfunc/_nugget        # with ~/.zfunc in fpath
  nugget completions fish > ~/.config/fish/completions/nugget.fish";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_parser = ["bash", "zsh", "fish"])]
    shell: String,
}

impl CompletionsArgs {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let mut script = Vec::new();
        if let Some(shell) = Shells::builtins().completer(&self.shell) {
            shell.write_registration(VARIABLE, "nugget", "nugget", "nugget", &mut script)?;
        }
        output::print_verbatim(&String::from_utf8_lossy(&script))
    }
}

/// The ids of the brain's units, by file name.
pub(crate) fn units(prefix: &OsStr) -> Vec<CompletionCandidate> {
    let (Some(brain), Some(prefix)) = (brain(), prefix.to_str()) else { return Vec::new() };
    let files = brain.files().unwrap_or_default();
    let ids = files.iter().filter_map(|file| {
        let name = file.path.rsplit('/').next()?.strip_suffix(".md")?;
        // The id of a note is its path.
        Some(if file.path.starts_with("domains/") { name } else { file.path.strip_suffix(".md")? })
    });
    let offered = ids.filter(|id| id.starts_with(prefix) && !id.contains(char::is_control));
    offered.take(CANDIDATES_MAX).map(CompletionCandidate::new).collect()
}

/// The ids of notes and facts.
pub(crate) fn notes(prefix: &OsStr) -> Vec<CompletionCandidate> {
    candidates(of_units_where(is_note, |unit| unit.id.as_str().to_owned()), prefix)
}

/// The keys of facts.
pub(crate) fn facts(prefix: &OsStr) -> Vec<CompletionCandidate> {
    let is_fact = |unit: &Unit| unit.kind == UnitType::Fact;
    candidates(of_units_where(is_fact, |unit| unit.title.clone()), prefix)
}

fn is_note(unit: &Unit) -> bool {
    matches!(unit.kind, UnitType::Note | UnitType::Fact)
}

/// The ids of what waits for review.
pub(crate) fn review_items(prefix: &OsStr) -> Vec<CompletionCandidate> {
    let (Some(brain), Some(prefix)) = (brain(), prefix.to_str()) else { return Vec::new() };
    let path = StatePaths::for_brain(brain.root()).queue();
    let queue = Some(path).filter(|path| path.is_file()).and_then(|path| Queue::open(&path).ok());
    let items = crate::waiting::items_to_review(&brain, queue.as_ref()).unwrap_or_default().into_iter();
    items
        .filter(|item| item.id.starts_with(prefix) && !item.id.contains(char::is_control))
        .take(CANDIDATES_MAX)
        .map(|item| {
            let title = knowledge::text::one_line(item.title(), 80);
            CompletionCandidate::new(item.id).help(Some(title.into()))
        })
        .collect()
}

/// The settings.
pub(crate) fn settings(prefix: &OsStr) -> Vec<CompletionCandidate> {
    let prefix = prefix.to_string_lossy();
    let keys = KEYS.iter().filter(|key| key.name.starts_with(&*prefix));
    keys.map(|key| CompletionCandidate::new(key.name).help(Some(key.help.into()))).collect()
}

/// The values of the setting that is named before: its words, and what it is now.
pub(crate) fn setting_values(prefix: &OsStr) -> Vec<CompletionCandidate> {
    // The completer is given one word; the others are this process's arguments.
    let mut words = std::env::args().skip_while(|word| word != "set").skip(1);
    let Some(key) = words.find_map(|word| find(&word)) else { return Vec::new() };
    let (config, _) = Config::load();
    let mut values = match &key.kind {
        Kind::OneOf(words) | Kind::SomeOf(words) => words.iter().map(|word| (*word).to_owned()).collect(),
        _ => vec![config.string(key.name), key.default.to_owned()],
    };
    values.dedup();
    candidates(values, prefix)
}

/// The domains that have units.
pub(crate) fn domains(prefix: &OsStr) -> Vec<CompletionCandidate> {
    candidates(of_units(|unit| unit.domain.as_str().to_owned()), prefix)
}

/// The types of units: those that nugget knows, and those of the brain.
pub(crate) fn types(prefix: &OsStr) -> Vec<CompletionCandidate> {
    let known = UnitType::KNOWN.iter().map(|kind| kind.as_str().to_owned());
    candidates(known.chain(of_units(|unit| unit.kind.as_str().to_owned())), prefix)
}

/// The tags of units.
pub(crate) fn tags(prefix: &OsStr) -> Vec<CompletionCandidate> {
    let units = brain().and_then(|brain| read_units(&brain).ok()).unwrap_or_default().units;
    candidates(units.into_iter().flat_map(|(_, unit)| unit.tags), prefix)
}

fn of_units(what: impl Fn(&Unit) -> String) -> Vec<String> {
    of_units_where(|_| true, what)
}

fn of_units_where(is_meant: impl Fn(&Unit) -> bool, what: impl Fn(&Unit) -> String) -> Vec<String> {
    let units = brain().and_then(|brain| read_units(&brain).ok()).unwrap_or_default().units;
    units.iter().filter(|(_, unit)| is_meant(unit)).map(|(_, unit)| what(unit)).collect()
}

/// The values that begin so, sorted, each once.
fn candidates(values: impl IntoIterator<Item = String>, prefix: &OsStr) -> Vec<CompletionCandidate> {
    let prefix = prefix.to_string_lossy();
    let is_offered = |value: &String| {
        !value.is_empty() && value.starts_with(&*prefix) && !value.contains(char::is_control)
    };
    let values: BTreeSet<String> = values.into_iter().filter(is_offered).collect();
    values.into_iter().take(CANDIDATES_MAX).map(CompletionCandidate::new).collect()
}

/// The numbers of captures that can be retried.
pub(crate) fn failed_captures(prefix: &OsStr) -> Vec<CompletionCandidate> {
    captures(prefix, |state| matches!(state, State::Dead | State::Retrying))
}

/// The numbers of all captures, newest first.
pub(crate) fn all_captures(prefix: &OsStr) -> Vec<CompletionCandidate> {
    captures(prefix, |_| true)
}

fn captures(prefix: &OsStr, is_offered: impl Fn(State) -> bool) -> Vec<CompletionCandidate> {
    let queue =
        brain().map(|brain| StatePaths::for_brain(brain.root()).queue()).filter(|path| path.is_file());
    let captures = queue.and_then(|path| Queue::open(&path).ok()?.captures(CANDIDATES_MAX).ok());
    let prefix = prefix.to_string_lossy();
    let offered = captures.into_iter().flatten().filter(|capture| is_offered(capture.state));
    offered
        .flat_map(|capture| {
            let (id, session) = (capture.id.to_string(), capture.session_id.short());
            // A capture is named by its session, too; both would be twice the list.
            let by_session =
                (!prefix.is_empty()).then(|| (session.clone(), format!("{}, {id}", capture.state)));
            [Some((id, format!("{}, {session}", capture.state))), by_session].into_iter().flatten()
        })
        .filter(|(id, _)| id.starts_with(&*prefix))
        .map(|(id, help)| CompletionCandidate::new(id).help(Some(help.into())))
        .collect()
}

/// Where an import may come from: the two names, and paths.
pub(crate) fn import_sources(prefix: &OsStr) -> Vec<CompletionCandidate> {
    let mut sources = candidates(["claude-md", "auto-memory"].map(str::to_owned), prefix);
    sources.extend(PathCompleter::any().complete(prefix));
    sources
}

/// The projects that have sessions in the archive, by the names of their folders.
pub(crate) fn projects(prefix: &OsStr) -> Vec<CompletionCandidate> {
    let name = |path: String| path.rsplit('/').find(|part| !part.is_empty()).map(str::to_owned);
    let mut projects = candidates(archived(Field::Project).into_iter().filter_map(name), prefix);
    projects.extend(PathCompleter::dir().complete(prefix));
    projects
}

pub(crate) fn branches(prefix: &OsStr) -> Vec<CompletionCandidate> {
    candidates(archived(Field::Branch), prefix)
}

pub(crate) fn models(prefix: &OsStr) -> Vec<CompletionCandidate> {
    candidates(archived(Field::Model), prefix)
}

pub(crate) fn tools(prefix: &OsStr) -> Vec<CompletionCandidate> {
    candidates(archived(Field::Tool), prefix)
}

/// The ids of archived sessions, newest first, without those of subagents.
pub(crate) fn sessions(prefix: &OsStr) -> Vec<CompletionCandidate> {
    let Some(prefix) = prefix.to_str() else { return Vec::new() };
    let filter = Filter { session: Some(prefix.to_owned()), ..Filter::default() };
    let archive = open_archive().ok().flatten();
    let found = archive.and_then(|archive| archive.sessions(&filter, false, CANDIDATES_MAX).ok());
    found
        .into_iter()
        .flatten()
        .filter(|session| session.id.starts_with(prefix) && !session.id.contains(char::is_control))
        .map(|session| {
            let subject = session.title.or(session.first_prompt).unwrap_or_default();
            let subject = knowledge::text::one_line(&output::safe(&subject), 80);
            CompletionCandidate::new(session.id).help(Some(subject.into()))
        })
        .collect()
}

/// The files that sessions have changed, by their paths or names, and those that are here.
pub(crate) fn changed_files(prefix: &OsStr) -> Vec<CompletionCandidate> {
    let is_path = prefix.to_string_lossy().contains('/');
    let changed = archived(Field::File).into_iter();
    let changed = changed
        .filter_map(|path| if is_path { Some(path) } else { path.rsplit('/').next().map(str::to_owned) });
    let mut files = candidates(changed, prefix);
    files.extend(PathCompleter::any().complete(prefix));
    files
}

/// The values that occur in the archive of sessions; none without one.
fn archived(field: Field) -> Vec<String> {
    let archive = open_archive().ok().flatten();
    archive.and_then(|archive| archive.values(field, ARCHIVED_MAX).ok()).unwrap_or_default()
}

/// The brain that the command line names with `--brain`, else that of the settings.
fn brain() -> Option<Brain> {
    let mut words = std::env::args().skip(1);
    let mut named = None;
    while let Some(word) = words.next() {
        match word.strip_prefix("--brain") {
            Some("") => named = words.next(),
            Some(value) if value.starts_with('=') => named = Some(value[1..].to_owned()),
            _ => {}
        }
    }
    let (mut config, _) = Config::load();
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        config.set_flag("brain", named, "--brain").ok()?;
    }
    open_brain(&config.path("brain").unwrap_or_else(brain::paths::default_brain)).ok()
}
