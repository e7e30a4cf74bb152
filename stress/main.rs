//! Stress: many processes, killed anywhere, on disks that are full and with clocks that jump.
//!
//! Everything is asked of the real program. Each command makes a machine of its own in a folder that
//! goes away, prints its seed, and fails when a promise of the README is broken.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program of its own, for people")]

mod audit;
mod backlog;
mod bench;
mod client;
mod delivery;
mod hooks;
mod machine;
mod mcp;
mod readers;
mod storm;
// The tests' GitHub; its helpers are for tests, and not all are wanted here.
#[path = "../tests/support/github_api.rs"]
#[expect(dead_code, clippy::unwrap_used, reason = "shared with the tests")]
mod github_api;
#[path = "../tests/support/openapi.rs"]
#[expect(clippy::unwrap_used, reason = "shared with the tests")]
mod openapi;
mod times;
mod troubles;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

const HELP: &str = "\
Examples:
  cargo test --features failpoints --test stress -- storm --sessions 64 --kills 200
  cargo test --features failpoints --test stress -- storm --seed 7 --kills 0 --point git-before-ref
  cargo test --test stress -- readers --swaps 1000
  cargo test --test stress -- backlog --captures 10000
  cargo test --features failpoints --test stress -- delivery --captures 200
  cargo test --test stress -- hooks --sessions 64 --rounds 20 --binary target/release/nugget
  npm install --prefix target/mcp @modelcontextprotocol/conformance @modelcontextprotocol/sdk node@22
  cargo test --test stress -- mcp --modules target/mcp/node_modules
  cargo test --release --test stress -- bench
  cargo test --release --test stress -- bench search --units 10000

Exit codes: 0 all promises held, 1 one was broken, 2 wrong usage.";

/// Breaks nugget on purpose, and measures what is promised about its speed.
#[derive(Parser)]
#[command(name = "stress", after_help = HELP, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
pub(crate) struct Common {
    /// Where chance begins; printed, so that a run can be repeated [default: the clock]
    #[arg(long, global = true)]
    seed: Option<u64>,
    /// The nugget to test [default: the one that cargo has built beside this program]
    #[arg(long, global = true, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Print the result as one line of JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Sessions end at once while hooks, drainers and servers are killed; then everything is audited
    Storm(storm::Arguments),
    /// Servers answer while the index is swapped under them, torn and deleted
    Readers(readers::Arguments),
    /// Thousands of captures wait for one drainer, whose memory and log stay small
    Backlog(backlog::Arguments),
    /// The way to the remote: killed at every step, then a backlog from days without a network
    Delivery(delivery::Arguments),
    /// How long a session's end takes: one hook alone, and many at once
    Hooks(hooks::Arguments),
    /// Run all benches, or one of them
    Bench {
        #[command(subcommand)]
        bench: Option<bench::Bench>,
    },
    /// The real Claude Code client reads a session, against a scripted API
    Client(client::Arguments),
    /// What `serve` writes, against the protocol's schema and its conformance suite; needs npm packages
    Mcp(mcp::Arguments),
    /// One row into a SQLite database, and nothing else: what a hook is compared with
    #[command(hide = true)]
    Insert { path: PathBuf },
    /// One pass over a transcript: `json`, `read` or `condense`
    #[command(hide = true)]
    Pass { what: String, path: PathBuf },
}

impl Common {
    fn program(&self) -> PathBuf {
        self.binary.clone().unwrap_or_else(|| env!("CARGO_BIN_EXE_nugget").into())
    }

    fn seed(&self) -> u64 {
        let clock =
            || std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64 % 1_000_000);
        self.seed.unwrap_or_else(clock)
    }

    /// Prints a line for people.
    fn say(&self, line: &str) {
        if !self.json {
            println!("{line}");
        }
    }

    /// Prints a result: every number with its name.
    fn report(&self, test: &str, seed: u64, result: &serde_json::Value) {
        let mut line = serde_json::json!({ "test": test, "seed": seed });
        if let (Some(line), Some(result)) = (line.as_object_mut(), result.as_object()) {
            line.extend(result.clone());
        }
        if self.json {
            println!("{line}");
            return;
        }
        for (name, value) in line.as_object().into_iter().flatten() {
            println!("{name:<40} {value}");
        }
    }
}

fn main() -> ExitCode {
    let Arguments { command, common } = Arguments::parse();
    let seed = common.seed();
    let begun = std::time::Instant::now();
    let (test, result) = match command {
        Command::Storm(arguments) => ("storm", storm::run(&arguments, &common.program(), seed)),
        Command::Readers(arguments) => ("readers", readers::run(&arguments, &common.program(), seed)),
        Command::Client(arguments) => ("client", client::run(&arguments, &common.program(), seed)),
        Command::Backlog(arguments) => ("backlog", backlog::run(&arguments, &common.program(), seed)),
        Command::Delivery(arguments) => ("delivery", delivery::run(&arguments, &common.program(), seed)),
        Command::Mcp(arguments) => ("mcp", mcp::run(&arguments, &common.program(), seed)),
        Command::Hooks(arguments) => ("hooks", hooks::run(&arguments, &common.program(), seed)),
        Command::Bench { bench } => ("bench", bench::run(bench, &common, seed)),
        Command::Insert { path } => ("insert", hooks::insert(&path)),
        Command::Pass { what, path } => {
            ("pass", bench::transcript::pass(&what, &path).map(|()| serde_json::Value::Null))
        }
    };
    match result {
        Ok(serde_json::Value::Null) => ExitCode::SUCCESS,
        Ok(mut result) => {
            result["seconds"] = begun.elapsed().as_secs().into();
            result["held"] = true.into();
            common.report(test, seed, &result);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{test} --seed {seed}: {error:#}");
            common.report(test, seed, &serde_json::json!({ "held": false, "error": format!("{error:#}") }));
            ExitCode::FAILURE
        }
    }
}
