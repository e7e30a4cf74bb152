//! The commands: what a person types, what they read, and how it ends.
//!
//! Nothing below this crate writes to the terminal, and nothing here decides how the work is done.

mod allocator;
mod commands;
mod context;
mod error;
mod extractor;
#[cfg(feature = "failpoints")]
mod fake_extractor;
mod integration;
mod json_edit;
mod output;
mod plugin;
mod project;
mod remote;
mod subprocess;
mod tui;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::error::CliError;

const HELP: &str = "\
Examples:
  nugget demo
  nugget init --path ~/brain
  nugget import claude-md --dry-run
  nugget ask \"how do we keep workers from piling up?\"
  nugget status --watch
  nugget install

Exit codes:
  0  done, also when there was nothing to do or nothing to find
  1  it failed; the message says what is safe and what to do
  2  wrong usage or wrong settings
  3  there is no such brain, unit, capture or file
  4  a capture that was waited for has ended as a dead letter

`nugget COMMAND --help` has more, with examples.";

/// What a person wants to do, and the commands for it. One that is named nowhere here stands at the end.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Begin", &["demo", "init", "clone", "install", "uninstall", "import"]),
    ("Ask and read", &["ask", "list", "show", "why", "export"]),
    ("Watch over what sessions bring", &["status", "sync", "retry", "forget-capture", "spend", "doctor"]),
    ("Called by Claude Code", &["serve", "capture-session", "session-start", "user-prompt"]),
    ("Set up and look after", &["config", "index", "runtime", "eval", "completions", "man"]),
];

/// A memory for Claude Code: what a session learned is reviewed by you, and found by
/// the next one
#[derive(Parser)]
#[command(name = "nugget", version, after_help = HELP, max_term_width = 80, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,

    /// The brain's folder [default: the setting `brain`, then ~/brain]
    #[arg(long, global = true, value_name = "DIR")]
    brain: Option<PathBuf>,

    /// Say more on stderr; twice for everything (NUGGET_LOG takes a filter)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Subcommand)]
enum Command {
    /// Show the whole flywheel in a scratch folder
    Demo(commands::demo::Arguments),
    /// Make a brain, or adopt a folder or repository as one
    Init(commands::init::Arguments),
    /// Make nugget part of Claude Code: hooks, server, skill
    Install(commands::install::Arguments),
    /// Take nugget out of Claude Code again
    Uninstall(commands::uninstall::Arguments),
    /// Bring a brain that is kept elsewhere to this machine
    Clone(commands::clone::Arguments),
    /// Check everything that nugget stands on
    Doctor(commands::doctor::Arguments),
    /// Queue a session for capture (what the hook calls)
    CaptureSession(commands::capture_session::Arguments),
    /// Show captures, the drainer, the index and what to review
    Status(commands::status::Arguments),
    /// Bring merges back, and find sessions that no hook announced
    Sync(commands::sync::Arguments),
    /// Ask the brain
    Ask(commands::ask::Arguments),
    /// Serve the brain to Claude Code (MCP over stdio)
    Serve(commands::serve::Arguments),
    /// Bring the derived index up to date
    Index(commands::index::Arguments),
    /// Print one unit
    Show(commands::show::Arguments),
    /// Show the conversation that a unit comes from
    Why(commands::why::Arguments),
    /// List the units
    List(commands::list::Arguments),
    /// Try dead captures again, and waiting ones now
    Retry(commands::retry::Retry),
    /// Strike a capture from the ledger
    ForgetCapture(commands::retry::Forget),
    /// Show what models have cost, and what is left of the budget
    Spend(commands::spend::Arguments),
    /// Print the settings in force and where each comes from
    Config(commands::config::Arguments),
    /// Show what runs the model, or bring in a faster runtime
    Runtime(commands::runtime::Arguments),
    /// Measure the search on a set of questions with known answers
    Eval(commands::eval::EvalArgs),
    /// Bring in notes, CLAUDE.md files or Claude Code's own memory
    Import(commands::import::ImportArgs),
    /// Write the units as JSON, a web page, or a folder to share
    Export(commands::export::ExportArgs),
    /// Print a completion script for your shell
    Completions(commands::completions::Arguments),
    /// Print the manual, or write its pages to a folder
    Man(commands::man::Arguments),
    /// Tell a session that begins what is known (the hooks SessionStart and PreCompact)
    #[command(hide = true)]
    SessionStart(commands::session_start::Arguments),
    /// Tell what is known about a prompt (the hook UserPromptSubmit)
    #[command(hide = true)]
    UserPrompt(commands::user_prompt::Arguments),
    /// Work the queue of the brain until it is empty (hooks start this by themselves)
    #[command(hide = true)]
    Drain(commands::drain::Arguments),
}

/// Runs the program with its arguments and says how it ended.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    allocator::settle();
    if std::env::var_os(commands::completions::VARIABLE).is_some() {
        clap_complete::CompleteEnv::with_factory(command).var(commands::completions::VARIABLE).complete();
    }
    let parsed = command()
        .try_get_matches_from(arguments)
        .and_then(|matches| <Arguments as clap::FromArgMatches>::from_arg_matches(&matches));
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) => {
            let code = if error.use_stderr() { 2 } else { 0 };
            // A closed pipe is the only way in which this fails, and then nobody reads.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    match dispatch(arguments) {
        Ok(code) => code,
        Err(fault) => {
            fault.print();
            ExitCode::from(fault.code)
        }
    }
}

fn dispatch(Arguments { command, brain, verbose }: Arguments) -> Result<ExitCode, CliError> {
    let context = context::Context::new(brain, verbose);
    // Those that nobody watches log to a file, and say so to who watches all the same.
    if !matches!(command, Command::Drain(_) | Command::Serve(_) | Command::Index(_)) {
        context.log_to_stderr();
    }
    match command {
        Command::Demo(arguments) => arguments.run(&context),
        Command::Init(arguments) => arguments.run(&context),
        Command::Install(arguments) => arguments.run(&context),
        Command::Uninstall(arguments) => arguments.run(&context),
        Command::SessionStart(arguments) => arguments.run(context),
        Command::UserPrompt(arguments) => arguments.run(context),
        Command::Clone(arguments) => arguments.run(&context),
        Command::Doctor(arguments) => arguments.run(&context),
        Command::CaptureSession(arguments) => arguments.run(&context),
        Command::Status(arguments) => arguments.run(&context),
        Command::Sync(arguments) => arguments.run(&context),
        Command::Ask(arguments) => arguments.run(&context),
        Command::Serve(arguments) => arguments.run(&context),
        Command::Index(arguments) => arguments.run(&context),
        Command::Show(arguments) => arguments.run(&context),
        Command::Why(arguments) => arguments.run(&context),
        Command::List(arguments) => arguments.run(&context),
        Command::Retry(arguments) => arguments.run(&context),
        Command::ForgetCapture(arguments) => arguments.run(&context),
        Command::Spend(arguments) => arguments.run(&context),
        Command::Config(arguments) => arguments.run(&context),
        Command::Runtime(arguments) => arguments.run(&context),
        Command::Eval(arguments) => arguments.run(&context),
        Command::Import(arguments) => arguments.run(&context),
        Command::Export(arguments) => arguments.run(&context),
        Command::Completions(arguments) => arguments.run(),
        Command::Man(arguments) => arguments.run(),
        Command::Drain(arguments) => arguments.run(&context),
    }
}

/// The command line's shape, for parsing, completions, the manual and tests of its help.
pub fn command() -> clap::Command {
    let command = <Arguments as clap::CommandFactory>::command();
    let commands = grouped(&command);
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{commands}Options:\n{{options}}{{after-help}}"
    ))
}

/// The commands, by what a person wants to do.
fn grouped(command: &clap::Command) -> String {
    let visible: Vec<(&str, String)> = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .map(|command| (command.get_name(), command.get_about().map(ToString::to_string).unwrap_or_default()))
        .collect();
    let width = visible.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let is_named = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let others: Vec<&str> = visible.iter().map(|(name, _)| *name).filter(|name| !is_named(name)).collect();
    let mut text = String::new();
    for (heading, names) in GROUPS.into_iter().chain([("More", &others[..])]) {
        let lines: Vec<String> = names
            .iter()
            .filter_map(|name| visible.iter().find(|(known, _)| known == name))
            .map(|(name, about)| format!("  {name:<width$}  {about}\n"))
            .collect();
        if !lines.is_empty() {
            text.push_str(&format!("{heading}:\n{}\n", lines.concat()));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_every_command_is_for_something() {
        command().debug_assert();
        let help = command().render_help().to_string();
        assert!(!help.contains("More:"), "{help}");
        let too_long: Vec<&str> = help.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(too_long.is_empty(), "{too_long:?}");
    }
}
