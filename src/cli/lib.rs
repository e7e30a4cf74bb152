//! The command line of nugget: parses arguments, runs commands and prints results.
//!
//! This is the only crate that writes to the terminal. It does not decide how knowledge is extracted, ranked or
//! stored: the crates below do.
//!
//! ```
//! assert_eq!(cli::command().get_name(), "nugget");
//! ```

#![warn(missing_docs, clippy::missing_errors_doc)]

mod archive;
mod async_runtime;
mod client_settings;
mod commands;
mod context;
mod editor;
mod error;
mod extractor;
#[cfg(debug_assertions)]
mod fake_extractor;
mod hook;
mod index_update;
mod integration;
mod json_edit;
mod learning;
mod logging;
mod lookup;
mod new_brain;
mod note_change;
mod output;
mod output_file;
mod pager;
mod plugin;
mod project;
mod proposal;
mod remote;
mod settings;
mod shown_units;
mod spawn;
mod staleness;
mod state_check;
mod subprocess;
mod tui;
mod unit_change;
mod unit_files;
mod usage;
mod waiting;
mod whole_number;

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::error::CliError;

const HELP: &str = "\
Examples:
  nugget demo
  nugget init --path ~/brain
  nugget import claude-md --dry-run
  nugget ask how do we keep workers from piling up
  nugget review
  nugget status --watch
  nugget install

Exit codes:
  0  success, also if there was nothing to do or to find
  1  failure; the message says what happened and what to do
  2  wrong usage or wrong settings
  3  no such brain, unit, capture, session or file
  4  a capture that was waited for has failed, or was not handed over

`nugget COMMAND --help` has details and examples.";

/// The commands in `--help`, by use. A test keeps the list complete.
const GROUPS: [(&str, &[&str]); 8] = [
    ("Start", &["demo", "init", "clone", "install", "import"]),
    ("Daily use", &["review", "ask", "context", "why", "list", "show", "edit", "rm", "status", "sync"]),
    ("Notes", &["note", "remember", "recall", "forget"]),
    ("Sessions", &["search", "sessions", "memories", "learn", "receipts"]),
    (
        "Maintenance",
        &["doctor", "reflect", "retry", "forget-capture", "index", "spend", "config", "uninstall"],
    ),
    ("Team", &["login", "logout", "server"]),
    ("More tools", &["export", "eval", "runtime", "completions", "man"]),
    ("For Claude Code", &["serve", "capture-session"]),
];

/// A memory for Claude Code: it captures what sessions learn, you review it, and
/// later sessions recall it.
#[derive(Parser)]
#[command(name = "nugget", version, after_help = HELP, max_term_width = 80, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// The brain's folder [default: the setting `brain`, then ~/brain]
    #[arg(long, global = true, value_name = "DIR")]
    brain: Option<PathBuf>,

    /// Log more to stderr; repeat for more detail (NUGGET_LOG takes a filter)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,

    /// Print long output at once ($PAGER shows it otherwise, in a terminal)
    #[arg(long, global = true)]
    no_pager: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Show capture, review and recall in a temporary folder
    Demo(commands::demo::DemoArgs),
    /// Create a brain, or adopt a folder or repository as one
    Init(commands::init::InitArgs),
    /// Add nugget to Claude Code: hooks, server, skill
    Install(commands::install::InstallArgs),
    /// Remove nugget from Claude Code
    Uninstall(commands::uninstall::UninstallArgs),
    /// Clone an existing brain to this machine
    Clone(commands::clone::CloneArgs),
    /// Check the setup
    Doctor(commands::doctor::DoctorArgs),
    /// Queue a session for capture (the SessionEnd hook)
    CaptureSession(commands::capture_session::CaptureSessionArgs),
    /// Show what waits for you, and what is being done
    Status(commands::status::StatusArgs),
    /// Show what waits for review; merge, edit or reject it
    Review(commands::review::ReviewArgs),
    /// Fetch merges, and queue sessions the hook missed
    Sync(commands::sync::SyncArgs),
    /// Ask the brain a question
    Ask(commands::ask::AskArgs),
    /// Find what was said in sessions
    Search(commands::search::SearchArgs),
    /// List, read and export the sessions that are kept
    Sessions(commands::sessions::SessionsArgs),
    /// Show what was learned from what sessions used
    Learn(commands::learn::LearnArgs),
    /// Show what sessions were told, and whether it helped
    Receipts(commands::receipts::ReceiptsArgs),
    /// List, read and delete what earlier sessions were about
    Memories(commands::memories::MemoriesArgs),
    /// Write, link and find notes
    Note(commands::note::NoteArgs),
    /// Remember a value under a key
    Remember(commands::remember::RememberArgs),
    /// Print what is remembered under a key
    Recall(commands::recall::RecallArgs),
    /// Remove what is remembered under a key
    Forget(commands::forget::ForgetArgs),
    /// Propose how to tidy up the brain
    Reflect(commands::reflect::ReflectArgs),
    /// Hand this brain's captures and questions to a server
    Login(commands::login::LoginArgs),
    /// Leave the team's server
    Logout(commands::login::LogoutArgs),
    /// Run a team's server, and manage its brains and tokens
    Server(commands::server::ServerArgs),
    /// Serve the brain to Claude Code (MCP over stdio)
    Serve(commands::serve::ServeArgs),
    /// Bring the derived index up to date
    Index(commands::index::IndexArgs),
    /// Print one unit
    Show(commands::show::ShowArgs),
    /// Tell what is known about a file, a folder or a project
    Context(commands::context::ContextArgs),
    /// Show where a unit or a line of code comes from
    Why(commands::why::WhyArgs),
    /// List the units
    List(commands::list::ListArgs),
    /// Edit a unit; the change waits for review
    Edit(commands::edit::EditArgs),
    /// Remove units; the removal waits for review
    Rm(commands::rm::RmArgs),
    /// Retry failed captures, and waiting ones now
    Retry(commands::retry::RetryArgs),
    /// Delete a capture record
    ForgetCapture(commands::forget_capture::ForgetCaptureArgs),
    /// Show what model calls cost, and the remaining budget
    Spend(commands::spend::SpendArgs),
    /// Print the settings and their origins, or change them
    Config(commands::config::ConfigArgs),
    /// Show the model runtime, or install the ONNX Runtime
    Runtime(commands::runtime::RuntimeArgs),
    /// Measure the search on questions with known answers
    Eval(commands::eval::EvalArgs),
    /// Import notes, CLAUDE.md files or Claude Code's own memory
    Import(commands::import::ImportArgs),
    /// Write the units as JSON, a web page, or a folder to share
    Export(commands::export::ExportArgs),
    /// Print a completion script for your shell
    Completions(commands::completions::CompletionsArgs),
    /// Print the manual, or write its pages to a folder
    Man(commands::man::ManArgs),
    /// Print what a new session should know (the hooks SessionStart and PreCompact)
    #[command(hide = true)]
    SessionStart(commands::session_start::SessionStartArgs),
    /// Print units that match a prompt (the hook UserPromptSubmit)
    #[command(hide = true)]
    UserPrompt(commands::user_prompt::UserPromptArgs),
    /// Print units that bear on an action (the hooks PreToolUse, PostToolUse and PostToolUseFailure)
    #[command(hide = true)]
    Guard(commands::guard::GuardArgs),
    /// Process the brain's queue until it is empty (hooks and servers start this)
    #[command(hide = true)]
    Drain(commands::drain::DrainArgs),
}

/// Runs a command line, of which the first item is the program's name, and returns its exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    system::allocator::configure();
    if std::env::var_os(commands::completions::VARIABLE).is_some() {
        clap_complete::CompleteEnv::with_factory(command).var(commands::completions::VARIABLE).complete();
    }
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    // This hook runs at every action: the definition of all commands and the log take longer than its work.
    if arguments.len() == 2 && arguments[1] == "guard" {
        return run_guard();
    }
    let parse = |command: clap::Command| {
        let matches = command.try_get_matches_from(&arguments)?;
        <Cli as clap::FromArgMatches>::from_arg_matches(&matches)
    };
    let parsed = match parse(<Cli as clap::CommandFactory>::command()) {
        // A hook that exits with 2 would stop the client's action.
        Err(error) if error.use_stderr() && is_hook(&arguments) => return ExitCode::SUCCESS,
        // With the texts of the help, which no command that is run waits for.
        Err(_) => parse(command()),
        parsed => parsed,
    };
    let result = match parsed {
        Ok(cli) => dispatch(cli),
        Err(error) => match usage::explain(&error, &command(), &arguments) {
            Some(error) => Err(error),
            None => {
                // Fails only if the pipe is closed.
                let _ = error.print();
                return ExitCode::from(if error.use_stderr() { error::USAGE } else { 0 });
            }
        },
    };
    exit_code(result, &arguments)
}

/// Runs the hook before an action and after a failure; without the parser of all the commands, which takes longer.
fn run_guard() -> ExitCode {
    // Whatever is wrong, the action goes on.
    let _ = commands::guard::GuardArgs {}.run(context::Context::new(None, 0, false));
    ExitCode::SUCCESS
}

/// Whether the client runs this command as a hook, with a message on stdin.
fn is_hook(arguments: &[OsString]) -> bool {
    const HOOKS: [&str; 3] = ["guard", "session-start", "user-prompt"];
    let is_named = arguments.get(1).is_some_and(|name| HOOKS.iter().any(|hook| name == hook));
    is_named && !std::io::stdin().is_terminal()
}

/// Prints an error, and returns the exit code.
fn exit_code(result: Result<ExitCode, CliError>, arguments: &[OsString]) -> ExitCode {
    result.unwrap_or_else(|error| {
        output::print_error(&error);
        if usage::wants_json(arguments) {
            output::print_json_error(&error);
        }
        ExitCode::from(error.code)
    })
}

fn dispatch(Cli { command, brain, verbose, no_pager }: Cli) -> Result<ExitCode, CliError> {
    let context = context::Context::new(brain, verbose, !no_pager);
    // These log to a file, or decide it themselves.
    if !matches!(command, Command::Drain(_) | Command::Serve(_) | Command::Server(_) | Command::Index(_)) {
        context.log_to_stderr();
    }
    // Hooks have a brain to open first, and must not fail the session; the others here need no folder of this person's.
    if !brain::paths::has_home()
        && !matches!(
            command,
            Command::CaptureSession(_)
                | Command::SessionStart(_)
                | Command::UserPrompt(_)
                | Command::Guard(_)
                | Command::Demo(_)
                | Command::Completions(_)
                | Command::Man(_)
        )
    {
        return Err(CliError::no_home());
    }
    // Every other command looks at the spool: no further hook may ever come. A hook has no time for it, and a worker and
    // a server look for themselves.
    if !matches!(
        command,
        Command::CaptureSession(_)
            | Command::SessionStart(_)
            | Command::UserPrompt(_)
            | Command::Drain(_)
            | Command::Serve(_)
            | Command::Server(_)
            | Command::Completions(_)
            | Command::Man(_)
    ) {
        context.take_in_spooled();
    }
    let outer = context.clone();
    // What these write is not in the state folder.
    let needs_state = !matches!(command, Command::Config(_) | Command::Install(_) | Command::Uninstall(_));
    run_command(command, context).map_err(|error| if needs_state { outer.with_cause(error) } else { error })
}

fn run_command(command: Command, context: context::Context) -> Result<ExitCode, CliError> {
    match command {
        Command::Demo(args) => args.run(&context)?,
        Command::Init(args) => return args.run(&context),
        Command::Install(args) => args.run(&context)?,
        Command::Uninstall(args) => args.run(&context)?,
        Command::SessionStart(args) => args.run(context)?,
        Command::UserPrompt(args) => args.run(context)?,
        Command::Guard(args) => args.run(context)?,
        Command::Clone(args) => args.run(&context)?,
        Command::Doctor(args) => return args.run(&context),
        Command::CaptureSession(args) => return args.run(&context),
        Command::Status(args) => args.run(&context)?,
        Command::Review(args) => return args.run(&context),
        Command::Sync(args) => args.run(&context)?,
        Command::Ask(args) => args.run(&context)?,
        Command::Search(args) => args.run(&context)?,
        Command::Sessions(args) => args.run(&context)?,
        Command::Learn(args) => args.run(&context)?,
        Command::Receipts(args) => args.run(&context)?,
        Command::Memories(args) => args.run()?,
        Command::Reflect(args) => args.run(&context)?,
        Command::Note(args) => args.run(&context)?,
        Command::Remember(args) => args.run(&context)?,
        Command::Recall(args) => args.run(&context)?,
        Command::Forget(args) => args.run(&context)?,
        Command::Login(args) => args.run(&context)?,
        Command::Logout(args) => args.run(&context)?,
        Command::Server(args) => args.run(context)?,
        Command::Serve(args) => args.run(context)?,
        Command::Index(args) => args.run(&context)?,
        Command::Show(args) => args.run(&context)?,
        Command::Context(args) => args.run(&context)?,
        Command::Why(args) => args.run(&context)?,
        Command::List(args) => args.run(&context)?,
        Command::Edit(args) => args.run(&context)?,
        Command::Rm(args) => args.run(&context)?,
        Command::Retry(args) => args.run(&context)?,
        Command::ForgetCapture(args) => args.run(&context)?,
        Command::Spend(args) => args.run(&context)?,
        Command::Config(args) => args.run(&context)?,
        Command::Runtime(args) => args.run(&context)?,
        Command::Eval(args) => args.run(&context)?,
        Command::Import(args) => args.run(&context)?,
        Command::Export(args) => args.run(&context)?,
        Command::Completions(args) => args.run()?,
        Command::Man(args) => args.run(&context, crate::command())?,
        Command::Drain(args) => args.run(&context)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The definition of the command line, for parsing, completions and the manual.
pub fn command() -> clap::Command {
    let command = <Cli as clap::CommandFactory>::command();
    let commands = render_groups(&command);
    let command = command.mut_subcommands(|command| pass_examples_on(command, "nugget"));
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{commands}Options:\n{{options}}{{after-help}}"
    ))
}

/// Gives subcommands without a text of their own the examples of `command` that use them.
fn pass_examples_on(command: clap::Command, above: &str) -> clap::Command {
    let path = format!("{above} {}", command.get_name());
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    command.mut_subcommands(|subcommand| {
        let start = format!("  {path} {}", subcommand.get_name());
        let uses = |line: &&str| {
            line.strip_prefix(&start).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
        };
        let examples: Vec<&str> = help.lines().filter(uses).collect();
        let subcommand = match (subcommand.get_after_help().is_some(), examples.as_slice()) {
            (true, _) | (_, []) => subcommand,
            (false, [one]) => subcommand.after_help(format!("Example:\n{one}")),
            (false, several) => subcommand.after_help(format!("Examples:\n{}", several.join("\n"))),
        };
        pass_examples_on(subcommand, &path)
    })
}

/// The visible commands with their descriptions, by group.
fn render_groups(command: &clap::Command) -> String {
    let abouts: HashMap<&str, String> = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .map(|command| (command.get_name(), command.get_about().map(ToString::to_string).unwrap_or_default()))
        .collect();
    let width = abouts.keys().map(|name| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (heading, names) in GROUPS {
        text.push_str(&format!("{heading}:\n"));
        for name in names {
            let about = abouts.get(name).map_or("", String::as_str);
            text.push_str(&format!("  {name:<width$}  {about}\n"));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `check` with each command that people run, and its words.
    fn for_each_command(command: &clap::Command, path: &str, check: &mut dyn FnMut(&str, &clap::Command)) {
        for subcommand in command.get_subcommands().filter(|command| !command.is_hide_set()) {
            let path = format!("{path} {}", subcommand.get_name());
            check(&path, subcommand);
            for_each_command(subcommand, &path, check);
        }
    }

    #[test]
    fn every_command_has_examples_within_80_columns() {
        let mut wrong = Vec::new();
        for_each_command(&command(), "nugget", &mut |path, command| {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            if !help.contains("Example") {
                wrong.push(format!("{path}: no example"));
            }
            if let Some(line) = help.lines().find(|line| line.chars().count() > 80) {
                wrong.push(format!("{path}: {line}"));
            }
        });
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn the_help_lists_every_command_once_within_80_columns() {
        let command = command();
        command.clone().debug_assert();
        let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
        let mut visible: Vec<&str> =
            visible.map(clap::Command::get_name).filter(|name| *name != "help").collect();
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        visible.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, visible);
        let help = command.clone().render_help().to_string();
        let too_long: Vec<&str> = help.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(too_long.is_empty(), "{too_long:?}");
    }
}
