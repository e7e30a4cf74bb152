//! The commands: what a person types, what they read, and how it ends.
//!
//! Nothing below this crate writes to the terminal, and nothing here decides how the work is done.

mod commands;
mod fault;
mod memory;
mod output;
mod reading;
mod screen;
#[cfg(feature = "failpoints")]
mod scripted;
mod session;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::fault::Fault;

const HELP: &str = "\
Examples:
  nugget demo
  nugget init --path ~/brain
  nugget capture-session --transcript SESSION.jsonl --wait
  nugget ask \"how do we keep workers from piling up?\"
  claude mcp add --scope user nugget -- nugget serve

Exit codes:
  0  done, also when there was nothing to do or nothing to find
  1  it failed; the message says what is safe and what to do
  2  wrong usage or wrong settings
  3  there is no such brain, unit or capture
  4  a capture that was waited for has ended as a dead letter";

/// A memory for Claude Code: what a session learned is reviewed by you and found by the next one.
#[derive(Parser)]
#[command(name = "nugget", version, after_help = HELP, max_term_width = 100, propagate_version = true)]
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
    /// Queue a session for capture (what the hook calls)
    CaptureSession(commands::capture_session::Arguments),
    /// Show captures, the drainer and recent results
    Status(commands::status::Arguments),
    /// Queue sessions that no hook announced, as far back as you like
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
    Retry(commands::ledger::Retry),
    /// Strike a capture from the ledger
    ForgetCapture(commands::ledger::Forget),
    /// Show what models have cost, and what is left of the budget
    Spend(commands::spend::Arguments),
    /// Print the settings in force and where each comes from
    Config(commands::config::Arguments),
    /// Show what runs the model, or bring in a faster runtime
    Runtime(commands::runtime::Arguments),
    /// Measure the search on a set of questions with known answers
    Eval(commands::eval::Arguments),
    /// Print a completion script for your shell
    Completions(commands::completions::Arguments),
    /// Work the queue of the brain until it is empty (hooks start this by themselves)
    #[command(hide = true)]
    Drain(commands::drain::Arguments),
}

/// Runs the program with its arguments and says how it ended.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    memory::settle();
    let arguments = match Arguments::try_parse_from(arguments) {
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

fn dispatch(Arguments { command, brain, verbose }: Arguments) -> Result<ExitCode, Fault> {
    let door = session::Door::new(brain, verbose);
    match command {
        Command::Demo(arguments) => arguments.run(&door),
        Command::Init(arguments) => arguments.run(&door),
        Command::CaptureSession(arguments) => arguments.run(&door),
        Command::Status(arguments) => arguments.run(&door),
        Command::Sync(arguments) => arguments.run(&door),
        Command::Ask(arguments) => arguments.run(&door),
        Command::Serve(arguments) => arguments.run(&door),
        Command::Index(arguments) => arguments.run(&door),
        Command::Show(arguments) => arguments.run(&door),
        Command::Why(arguments) => arguments.run(&door),
        Command::List(arguments) => arguments.run(&door),
        Command::Retry(arguments) => arguments.run(&door),
        Command::ForgetCapture(arguments) => arguments.run(&door),
        Command::Spend(arguments) => arguments.run(&door),
        Command::Config(arguments) => arguments.run(&door),
        Command::Runtime(arguments) => arguments.run(&door),
        Command::Eval(arguments) => arguments.run(&door),
        Command::Completions(arguments) => arguments.run(),
        Command::Drain(arguments) => arguments.run(&door),
    }
}

/// The command line's shape, for completions and for tests of its help.
pub fn command() -> clap::Command {
    <Arguments as clap::CommandFactory>::command()
}
