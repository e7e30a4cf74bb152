//! Stress tests and benchmarks of the real binary: killed processes, full disks, clocks that jump.
//!
//! Each command works in a temporary sandbox, prints its seed, and fails if one of nugget's guarantees is
//! broken.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

mod archive;
mod backlog;
mod bench;
mod benchmarks;
mod client;
mod delivery;
mod extraction;
mod faults;
mod guard;
mod holographic;
mod hooks;
mod invariants;
mod learn;
mod mcp;
mod notes;
mod provenance;
mod readers;
mod reflect;
mod sandbox;
mod sde;
mod storm;
mod suites;
mod team;
mod timing;
// The test servers are shared with tests/; not all of their helpers are used here.
#[path = "../tests/support/github_api.rs"]
#[expect(dead_code, clippy::unwrap_used, reason = "shared with the tests")]
mod github_api;
#[path = "../tests/support/http.rs"]
mod http;
#[path = "../tests/support/learning_world.rs"]
#[expect(clippy::unwrap_used, reason = "shared with the tests")]
mod learning_world;
#[path = "../tests/support/openapi.rs"]
#[expect(clippy::unwrap_used, reason = "shared with the tests")]
mod openapi;
#[path = "../tests/support/precision.rs"]
#[expect(dead_code, reason = "shared with the tests, which ask single words too")]
mod precision;
#[path = "../tests/support/suites.rs"]
#[expect(clippy::unwrap_used, reason = "shared with the tests")]
mod shared_suites;
#[path = "../tests/support/terminal.rs"]
#[expect(dead_code, clippy::unwrap_used, reason = "shared with the tests")]
mod terminal;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

const HELP: &str = "\
Examples:
  cargo test --test stress -- storm --sessions 64 --kills 200
  cargo test --test stress -- storm --seed 7 --kills 0 --point git-before-ref
  cargo test --test stress -- readers --swaps 1000
  cargo test --test stress -- backlog --captures 10000
  cargo test --test stress -- delivery --captures 200
  cargo test --test stress -- hooks --sessions 64 --rounds 20 --binary target/release/nugget
  cargo test --test stress -- client --client PATH/claude
  npm install --prefix target/mcp @modelcontextprotocol/conformance @modelcontextprotocol/sdk node@22
  cargo test --test stress -- mcp --modules target/mcp/node_modules
  cargo test --test stress -- suites --strings 20
  cargo test --release --test stress -- bench
  cargo test --release --test stress -- bench search --units 10000
  cargo test --test stress -- bench precision --questions
  cargo test --test stress -- archive --kills 500
  cargo test --test stress -- archive --faults
  cargo test --release --test stress -- archive --scale
  cargo test --release --test stress -- extraction tokens ~/.claude/projects/FOLDER
  cargo test --test stress -- provenance lines --repository CLONE --sessions FOLDER
  cargo test --test stress -- provenance openqed PATH/openqed
  cargo test --release --test stress -- guard SESSIONS/REPOSITORY --units stress/guard/units/REPOSITORY
  cargo test --release --test stress -- sde --data PATH/sde-bench
  cargo test --release --test stress -- learn --data target/datasets/dialogue-turns
  cargo test --test stress -- learn --kills 500
  cargo test --test stress -- notes --agents 8 --kills 200
  cargo test --test stress -- team --captures 1000 --kills 500 --postgres-kills 20 --stops 20 --cuts 20 --upgrades 20
  cargo test --release --test stress -- reflect --through-binary
  cargo test --release --test stress -- holographic
  cargo test --release --test stress -- benchmarks --row hooks --row status

Exit codes: 0 all guarantees held, 1 one was broken, 2 wrong usage.";

/// Stress tests and benchmarks of nugget.
#[derive(Parser)]
#[command(name = "stress", after_help = HELP, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
pub(crate) struct Common {
    /// Seed of all random choices; printed, so that a run can be repeated [default: from the clock]
    #[arg(long, global = true)]
    seed: Option<u64>,
    /// The nugget binary to test [default: the one that cargo built with this program]
    #[arg(long, global = true, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Print the result as one line of JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Kill hooks, workers and servers while many sessions end at once, then check that nothing is lost
    Storm(storm::StormArgs),
    /// Ask servers while the index is replaced and deleted under them
    Readers(readers::ReadersArgs),
    /// Let one worker process thousands of waiting captures, and check its memory and its log
    Backlog(backlog::BacklogArgs),
    /// Deliver to a GitHub server: kill the process at every step, then deliver a backlog after days offline
    Delivery(delivery::DeliveryArgs),
    /// Measure the SessionEnd hook: one alone, and many at once
    Hooks(hooks::HooksArgs),
    /// Run all benchmarks, or one of them
    Bench {
        #[command(subcommand)]
        bench: Option<bench::Bench>,
    },
    /// Run benchmarks and storms, and write their figures to docs/benchmarks.md
    Benchmarks(benchmarks::BenchmarksArgs),
    /// Measure how sessions are read, offline and by a model, on transcripts of your own
    Extraction {
        #[command(subcommand)]
        extraction: extraction::Extraction,
    },
    /// Replay the actions of real sessions against units that were written from their failures
    Guard(guard::GuardArgs),
    /// Ask for decisions that were made in earlier conversations, by the tasks of sde-bench
    Sde(sde::SdeArgs),
    /// Learn the order of question sets from simulated citations and measure it before and after, or kill rounds of learning
    Learn(learn::LearnArgs),
    /// Find planted defects in made brains, by the rules or through the real binary
    Reflect(reflect::ReflectArgs),
    /// Measure the holographic index against theory, a clock and the seed's program
    Holographic(holographic::HolographicArgs),
    /// Let agents write and link notes at once while their servers are killed
    Notes(notes::NotesArgs),
    /// Let laptops hand captures over while a team's servers and PostgreSQL are killed
    Team(team::TeamArgs),
    /// Kill syncs of the session archive, compare its counts with a script's, or measure it
    Archive(archive::ArchiveArgs),
    /// Trace lines to sessions, compare scores with openqed's program, or measure both
    Provenance {
        #[command(subcommand)]
        what: provenance::Provenance,
    },
    /// Run the real Claude Code client with nugget against a scripted API
    Client(client::ClientArgs),
    /// Check what `serve` writes against the MCP schema and conformance suite; needs npm packages
    Mcp(mcp::McpArgs),
    /// Give every naughty string to every argument of every command
    Suites(suites::SuitesArgs),
    /// Insert one row into a SQLite database: the baseline for a hook
    #[command(hide = true)]
    Insert { path: PathBuf },
    /// Sync a client's transcripts into an archive: the process that `archive` kills
    #[command(hide = true)]
    ArchiveSync {
        client: PathBuf,
        state: PathBuf,
        #[arg(long, default_value_t = 0)]
        threads: usize,
    },
    /// Do one round of learning in a made world: the process that `learn --kills` kills
    #[command(hide = true)]
    LearnRound { folder: PathBuf },
    /// Process a transcript once: `json`, `read` or `condense`
    #[command(hide = true)]
    Pass { what: String, path: PathBuf },
}

impl Common {
    fn binary(&self) -> PathBuf {
        self.binary.clone().unwrap_or_else(|| env!("CARGO_BIN_EXE_nugget").into())
    }

    fn seed(&self) -> u64 {
        let clock =
            || std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64 % 1_000_000);
        self.seed.unwrap_or_else(clock)
    }

    /// Prints a line, except with `--json`.
    fn print(&self, line: &str) {
        if !self.json {
            println!("{line}");
        }
    }

    /// Prints a result: one line for each value, or one line of JSON.
    fn report(&self, command: &str, seed: u64, result: &serde_json::Value) {
        let mut line = serde_json::json!({ "test": command, "seed": seed });
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
    let Cli { command, common } = Cli::parse();
    let seed = common.seed();
    let started = std::time::Instant::now();
    let (name, result) = match command {
        Command::Storm(args) => ("storm", storm::run(&args, &common.binary(), seed)),
        Command::Readers(args) => ("readers", readers::run(&args, &common.binary(), seed)),
        Command::Client(args) => ("client", client::run(&args, &common.binary(), seed)),
        Command::Backlog(args) => ("backlog", backlog::run(&args, &common.binary(), seed)),
        Command::Delivery(args) => ("delivery", delivery::run(&args, &common.binary(), seed)),
        Command::Mcp(args) => ("mcp", mcp::run(&args, &common.binary(), seed)),
        Command::Suites(args) => ("suites", suites::run(&args, &common.binary(), seed)),
        Command::Hooks(args) => ("hooks", hooks::run(&args, &common.binary(), seed)),
        Command::Benchmarks(args) => ("benchmarks", benchmarks::run(&args, &common, seed)),
        Command::Bench { bench } => ("bench", bench::run(bench, &common, seed)),
        Command::Extraction { extraction } => ("extraction", extraction::run(&extraction)),
        Command::Provenance { what } => ("provenance", provenance::run(&what, &common.binary(), seed)),
        Command::Guard(args) => ("guard", guard::run(&args)),
        Command::Learn(args) => ("learn", learn::run(&args, &common.binary(), seed)),
        Command::LearnRound { folder } => {
            ("learn-round", learn::run_round(&folder).map(|()| serde_json::Value::Null))
        }
        Command::Reflect(args) => ("reflect", reflect::run(&args, &common.binary())),
        Command::Holographic(args) => ("holographic", holographic::run(&args)),
        Command::Notes(args) => ("notes", notes::run(&args, &common.binary(), seed)),
        Command::Team(args) => ("team", team::run(&args, &common.binary(), seed)),
        Command::Sde(args) => ("sde", sde::run(&args, &common.binary())),
        Command::Archive(args) => ("archive", archive::run(&args, &common.binary(), seed)),
        Command::ArchiveSync { client, state, threads } => {
            ("archive-sync", archive::run_sync(&client, &state, threads).map(|()| serde_json::Value::Null))
        }
        Command::Insert { path } => ("insert", hooks::insert(&path)),
        Command::Pass { what, path } => {
            ("pass", bench::transcript::run_pass(&what, &path).map(|()| serde_json::Value::Null))
        }
    };
    match result {
        Ok(serde_json::Value::Null) => ExitCode::SUCCESS,
        Ok(mut result) => {
            result["seconds"] = started.elapsed().as_secs().into();
            result["held"] = true.into();
            common.report(name, seed, &result);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{name} --seed {seed}: {error:#}");
            common.report(name, seed, &serde_json::json!({ "held": false, "error": format!("{error:#}") }));
            ExitCode::FAILURE
        }
    }
}
