//! What is promised about speed, measured: each figure beside a baseline of the same run, since a
//! figure alone says more about the machine than about the program.
//!
//! Run it of a release build; a debug build is for seeing that it works.

mod ask;
mod corpus;
mod graph;
mod idle;
mod parts;
mod pipeline;
mod search;
mod session_start;
mod status;
pub(crate) mod transcript;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::Subcommand;
use embed::{Embedder, Settings};
use serde_json::{Value, json};

use crate::machine::{Client, Machine};
use crate::{Common, hooks};

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// How long a session's end takes: one hook alone, and many at once
    Hooks(hooks::Arguments),
    /// What a session that begins is told, and a prompt, in a large brain
    SessionStart(session_start::Arguments),
    /// Questions to a server that runs already, in a large brain, alone and eight at once
    Search(search::Arguments),
    /// `nugget ask` from exec to answer, and what each part of it takes
    Ask(ask::Arguments),
    /// Making the index, without and with the model; one changed file; opening an unchanged brain
    Index(pipeline::Arguments),
    /// The vector graph against the exact scan: recall and time, and from how many chunks on it pays
    Graph(graph::Arguments),
    /// Memory of a server that waits
    Idle(idle::Arguments),
    /// `nugget status` from exec to exit, in a large brain
    Status(status::Arguments),
    /// Reading and condensing a session of 100 MB
    Transcript(transcript::Arguments),
    /// What a question costs part by part, in a brain that another bench has left
    #[command(hide = true)]
    Parts(parts::Arguments),
    /// The names of all benches
    List,
}

/// Which runtime runs the model.
#[derive(Clone, clap::Args)]
pub(crate) struct RuntimeArguments {
    /// The ONNX Runtime library; without it the built-in runtime is measured alone
    #[arg(long, env = "ORT_DYLIB_PATH", value_name = "PATH")]
    runtime: Option<PathBuf>,
}

impl RuntimeArguments {
    /// The runtimes to measure, by name: the built-in one, then the library where there is one.
    fn all(&self) -> Vec<(&'static str, Option<&Path>)> {
        let mut all = vec![("tract", None)];
        all.extend(self.library().map(|library| ("onnx_runtime", Some(library))));
        all
    }

    /// The fastest there is.
    fn best(&self) -> (&'static str, Option<&Path>) {
        self.library().map_or(("tract", None), |library| ("onnx_runtime", Some(library)))
    }

    fn library(&self) -> Option<&Path> {
        self.runtime.as_deref().filter(|path| !path.as_os_str().is_empty())
    }
}

/// Runs one bench, or all of them with what they do by default, and prints each result as it comes.
pub(crate) fn run(bench: Option<Bench>, common: &Common, seed: u64) -> Result<Value> {
    let chosen = match bench {
        Some(bench) => vec![bench],
        None => vec![
            Bench::Hooks(defaults()?),
            Bench::SessionStart(defaults()?),
            Bench::Search(defaults()?),
            Bench::Ask(defaults()?),
            Bench::Index(defaults()?),
            Bench::Graph(defaults()?),
            Bench::Idle(defaults()?),
            Bench::Status(defaults()?),
            Bench::Transcript(defaults()?),
        ],
    };
    for bench in chosen {
        let begun = Instant::now();
        let program = common.program();
        let (name, mut result) = match bench {
            Bench::Hooks(arguments) => ("hooks", hooks::run(&arguments, &program, seed)?),
            Bench::SessionStart(arguments) => {
                ("session-start", session_start::run(&arguments, &program, seed)?)
            }
            Bench::Search(arguments) => ("search", search::run(&arguments, &program, seed)?),
            Bench::Ask(arguments) => ("ask", ask::run(&arguments, &program, seed)?),
            Bench::Index(arguments) => ("index", pipeline::run(&arguments, &program, seed)?),
            Bench::Graph(arguments) => ("graph", graph::run(&arguments, seed)?),
            Bench::Idle(arguments) => ("idle", idle::run(&arguments, &program, seed)?),
            Bench::Status(arguments) => ("status", status::run(&arguments, &program, seed)?),
            Bench::Transcript(arguments) => ("transcript", transcript::run(&arguments)?),
            Bench::Parts(arguments) => ("parts", parts::run(&arguments, seed)?),
            Bench::List => {
                let all = <Bench as Subcommand>::augment_subcommands(clap::Command::new("bench"));
                for command in all.get_subcommands() {
                    common.say(&format!(
                        "{:<10} {}",
                        command.get_name(),
                        command.get_about().unwrap_or_default()
                    ));
                }
                continue;
            }
        };
        result["seconds"] = begun.elapsed().as_secs().into();
        if cfg!(debug_assertions) {
            result["build"] = "debug: its figures mean nothing".into();
        }
        common.report(name, seed, &result);
    }
    Ok(Value::Null)
}

/// What a bench does when nothing is asked of it.
fn defaults<A: clap::Args>() -> Result<A> {
    let command = A::augment_args(clap::Command::new("bench").no_binary_name(true));
    let matches = command.try_get_matches_from(std::iter::empty::<String>())?;
    Ok(A::from_arg_matches(&matches)?)
}

/// The model as this program runs it, for the baselines.
fn embedder(runtime: Option<&Path>) -> Result<Embedder> {
    let settings = Settings { runtime_library: runtime.map(Path::to_owned), ..Settings::default() };
    Ok(Embedder::load(&settings)?)
}

/// A machine whose processes run the model by this runtime.
fn machine(program: &Path, runtime: Option<&Path>) -> Result<Machine> {
    let mut machine = Machine::new(program)?;
    use_runtime(&mut machine, runtime);
    Ok(machine)
}

fn use_runtime(machine: &mut Machine, runtime: Option<&Path>) {
    machine.variables.retain(|(name, _)| name != "NUGGET_EMBED_RUNTIME_LIBRARY");
    if let Some(runtime) = runtime {
        machine.variables.push(("NUGGET_EMBED_RUNTIME_LIBRARY".to_owned(), runtime.display().to_string()));
    }
}

fn client(machine: &Machine) -> Result<Client> {
    Client::start(machine)?.context("the server was killed")
}

/// A figure that was promised.
fn bar(value: f64, limit: f64) -> Value {
    json!({ "measured": crate::times::hundredths(value), "limit": limit, "held": value < limit })
}
