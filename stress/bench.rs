//! Benchmarks: each figure has a baseline from the same run, since a figure alone says more about the computer
//! than about nugget.
//!
//! The figures of a debug build mean nothing; it only shows that the benchmarks work.

mod ask;
mod corpus;
mod graph;
mod guard;
mod idle;
mod memories;
mod notes;
mod parts;
mod pipeline;
mod precision;
mod search;
mod session_start;
mod status;
mod sweep;
pub(crate) mod transcript;

use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::Subcommand;
use embed::{Embedder, Settings};
use serde_json::{Value, json};

use crate::sandbox::{McpClient, Sandbox};
use crate::{Common, hooks};

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// The SessionEnd hook: one alone, and many at once
    Hooks(hooks::HooksArgs),
    /// The SessionStart and UserPromptSubmit hooks in a large brain
    SessionStart(session_start::SessionStartBenchArgs),
    /// The guard's hook in a large brain: actions that nothing bears on, one that is told, and eight at once
    Guard(guard::GuardBenchArgs),
    /// Questions to a running server in a large brain: one session, and eight at once
    Search(search::SearchBenchArgs),
    /// `nugget ask` from exec to exit, with the time of each part
    Ask(ask::AskBenchArgs),
    /// Answers on three brains with judged questions: the share of relevant text, and questions about other subjects
    Precision(precision::PrecisionBenchArgs),
    /// Building the index with and without the model, one changed file, and opening an unchanged brain
    Index(pipeline::IndexBenchArgs),
    /// The vector graph against the exact scan: recall and time
    Graph(graph::GraphBenchArgs),
    /// Memory of an idle server
    Idle(idle::IdleBenchArgs),
    /// What 10,000 memories of sessions add to a question and to the start of a session
    Memories(memories::MemoriesBenchArgs),
    /// The tools for notes in a running server: search, recall and writing among 2,000 notes
    Notes(notes::NotesBenchArgs),
    /// `nugget status` from exec to exit in a large brain
    Status(status::StatusBenchArgs),
    /// The search for sessions that the hook missed, among many transcripts
    Sweep(sweep::SweepBenchArgs),
    /// Reading and condensing a session of 100 MB
    Transcript(transcript::TranscriptBenchArgs),
    /// Processor time of each part of a question, in a brain that another benchmark has left
    #[command(hide = true)]
    Parts(parts::PartsBenchArgs),
    /// List all benchmarks
    List,
}

/// Runs one benchmark, or all of them with default arguments, and prints each result.
pub(crate) fn run(bench: Option<Bench>, common: &Common, seed: u64) -> Result<Value> {
    let chosen = match bench {
        Some(bench) => vec![bench],
        None => vec![
            Bench::Hooks(defaults()?),
            Bench::SessionStart(defaults()?),
            Bench::Guard(defaults()?),
            Bench::Search(defaults()?),
            Bench::Ask(defaults()?),
            Bench::Precision(defaults()?),
            Bench::Index(defaults()?),
            Bench::Graph(defaults()?),
            Bench::Idle(defaults()?),
            Bench::Memories(defaults()?),
            Bench::Notes(defaults()?),
            Bench::Status(defaults()?),
            Bench::Sweep(defaults()?),
            Bench::Transcript(defaults()?),
        ],
    };
    for bench in chosen {
        let started = Instant::now();
        let binary = common.binary();
        let (name, mut result) = match bench {
            Bench::Hooks(args) => ("hooks", hooks::run(&args, &binary, seed)?),
            Bench::SessionStart(args) => ("session-start", session_start::run(&args, &binary, seed)?),
            Bench::Guard(args) => ("guard", guard::run(&args, &binary, seed)?),
            Bench::Search(args) => ("search", search::run(&args, &binary, seed)?),
            Bench::Ask(args) => ("ask", ask::run(&args, &binary, seed)?),
            Bench::Precision(args) => ("precision", precision::run(&args)?),
            Bench::Index(args) => ("index", pipeline::run(&args, &binary, seed)?),
            Bench::Graph(args) => ("graph", graph::run(&args, seed)?),
            Bench::Idle(args) => ("idle", idle::run(&args, &binary, seed)?),
            Bench::Memories(args) => ("memories", memories::run(&args, &binary, seed)?),
            Bench::Notes(args) => ("notes", notes::run(&args, &binary, seed)?),
            Bench::Status(args) => ("status", status::run(&args, &binary, seed)?),
            Bench::Sweep(args) => ("sweep", sweep::run(&args, &binary, seed)?),
            Bench::Transcript(args) => ("transcript", transcript::run(&args)?),
            Bench::Parts(args) => ("parts", parts::run(&args, seed)?),
            Bench::List => {
                let all = <Bench as Subcommand>::augment_subcommands(clap::Command::new("bench"));
                for command in all.get_subcommands() {
                    common.print(&format!(
                        "{:<10} {}",
                        command.get_name(),
                        command.get_about().unwrap_or_default()
                    ));
                }
                continue;
            }
        };
        result["seconds"] = started.elapsed().as_secs().into();
        if cfg!(debug_assertions) && name != "precision" {
            result["build"] = "debug: the figures mean nothing".into();
        }
        common.report(name, seed, &result);
    }
    Ok(Value::Null)
}

/// The default arguments of a benchmark.
fn defaults<A: clap::Args>() -> Result<A> {
    let command = A::augment_args(clap::Command::new("bench").no_binary_name(true));
    let matches = command.try_get_matches_from(std::iter::empty::<String>())?;
    Ok(A::from_arg_matches(&matches)?)
}

/// Loads the model in this process, for the baselines.
fn embedder() -> Result<Embedder> {
    Ok(Embedder::load(&Settings::default())?)
}

/// Starts a server, which must not be killed.
fn start_server(sandbox: &Sandbox) -> Result<McpClient> {
    McpClient::start(sandbox)?.context("the server was killed")
}

/// A figure with the limit that it must stay below.
fn limit(value: f64, limit: f64) -> Value {
    json!({ "measured": crate::timing::hundredths(value), "limit": limit, "held": value < limit })
}
