//! `nugget completions`: scripts for shells, which ask nugget itself what may come next.

use std::ffi::OsStr;
use std::process::ExitCode;

use brain::{Brain, Config, StatePaths};
use clap_complete::CompletionCandidate;
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};
use queue::{Queue, State};

use crate::error::CliError;
use crate::output;

/// The variable by which a script asks. Not the library's usual `COMPLETE`: a hook that inherits one from
/// somewhere would complete words in the place of capturing its session.
pub(crate) const VARIABLE: &str = "NUGGET_COMPLETE";
/// How many values are offered.
const OFFERED_MAX: usize = 200;

const AFTER: &str = "\
Completes commands, flags, the ids of units and the numbers of captures. The
script asks the `nugget` on your PATH, so it need not be made again after an
update.

Examples:
  nugget completions bash > ~/.local/share/bash-completion/completions/nugget
  nugget completions zsh > ~/.zfunc/_nugget        # with ~/.zfunc in fpath
  nugget completions fish > ~/.config/fish/completions/nugget.fish";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// The shell
    shell: Shell,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let shell: &dyn EnvCompleter = match self.shell {
            Shell::Bash => &Bash,
            Shell::Zsh => &Zsh,
            Shell::Fish => &Fish,
        };
        let mut script = Vec::new();
        shell.write_registration(VARIABLE, "nugget", "nugget", "nugget", &mut script)?;
        output::print(&String::from_utf8_lossy(&script))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The ids of the brain's units: nugget's files are named after them.
pub(crate) fn units(begun: &OsStr) -> Vec<CompletionCandidate> {
    let (Some(brain), Some(begun)) = (brain(), begun.to_str()) else { return Vec::new() };
    let files = brain.files().unwrap_or_default();
    let ids = files.iter().filter_map(|file| {
        let name = file.path.rsplit('/').next()?.strip_suffix(".md")?;
        // A note's id is its path.
        Some(if file.path.starts_with("domains/") { name } else { file.path.strip_suffix(".md")? })
    });
    let offered = ids.filter(|id| id.starts_with(begun) && !id.contains(char::is_control));
    offered.take(OFFERED_MAX).map(CompletionCandidate::new).collect()
}

/// The numbers of captures that can be tried again.
pub(crate) fn dead_captures(begun: &OsStr) -> Vec<CompletionCandidate> {
    captures(begun, |state| matches!(state, State::Dead | State::Retrying))
}

/// The numbers of all captures, newest first.
pub(crate) fn all_captures(begun: &OsStr) -> Vec<CompletionCandidate> {
    captures(begun, |_| true)
}

fn captures(begun: &OsStr, is_meant: impl Fn(State) -> bool) -> Vec<CompletionCandidate> {
    let places =
        brain().map(|brain| StatePaths::for_brain(brain.root()).queue()).filter(|path| path.is_file());
    let captures = places.and_then(|path| Queue::open(&path).ok()?.captures(OFFERED_MAX).ok());
    let begun = begun.to_string_lossy();
    let meant = captures.into_iter().flatten().filter(|capture| is_meant(capture.state));
    meant
        .map(|capture| (capture.id.to_string(), format!("{}, {}", capture.state, capture.session_id.short())))
        .filter(|(id, _)| id.starts_with(&*begun))
        .map(|(id, told)| CompletionCandidate::new(id).help(Some(told.into())))
        .collect()
}

/// The brain of the settings; `--brain` on the line is not looked at.
fn brain() -> Option<Brain> {
    let (config, _) = Config::load();
    Brain::open(&config.path("brain").unwrap_or_else(brain::paths::default_brain)).ok()
}
