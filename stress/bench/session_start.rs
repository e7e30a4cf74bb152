//! What a session waits for as it begins, and a prompt, in a large brain: each beside a process that does
//! nothing, in turns.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::corpus::{Corpus, MADE};
use super::{bar, embedder, machine};
use crate::machine::{Hooked, Machine, Random, Session};
use crate::times::{Times, ratio};

const PATIENCE: Duration = Duration::from_secs(120);
/// What was promised, in milliseconds.
const SESSION_MS_MAX: f64 = 50.0;
const PROMPT_MS_MAX: f64 = 150.0;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many units the brain has
    #[arg(long, default_value_t = 10_000)]
    units: usize,
    /// How often each begins
    #[arg(long, default_value_t = 60)]
    rounds: usize,
}

pub(crate) fn run(arguments: &Arguments, program: &Path, seed: u64) -> Result<Value> {
    eprintln!("session-start --seed {seed}, {} units", arguments.units);
    let mut machine = machine(program, None)?;
    // What is measured is the work, also where it would be cut off.
    for name in ["NUGGET_SESSION_START_DEADLINE_MS", "NUGGET_USER_PROMPT_DEADLINE_MS"] {
        machine.variables.push((name.to_owned(), "60000".to_owned()));
    }
    machine.variables.push(("NUGGET_USER_PROMPT_ENABLED".to_owned(), "on".to_owned()));
    let corpus = Corpus::new(seed, arguments.units, &embedder(None)?)?;
    let written = corpus.write(&machine)?;
    machine.ok(&["index"])?;
    let mut random = Random::new(seed);
    let project = machine.path("project");
    std::fs::create_dir_all(project.join(".git"))?;
    // Libraries that units are tagged with, as in a project that the brain knows something about.
    let tags = machine.ok(&["list", "--json"])?;
    let tags: Value = serde_json::from_str(&tags)?;
    let units = tags["units"].as_array().context("no units")?;
    let uses = units.iter().step_by(units.len() / 40 + 1).filter_map(|unit| unit["tags"][0].as_str());
    let uses: String = uses.map(|name| format!("{name} = '1'\n")).collect();
    std::fs::write(project.join("Cargo.toml"), format!("[dependencies]\n{uses}"))?;
    // A ledger with a branch that waits.
    let session = Session::new(&machine, &mut random, &[1, 2, 3])?;
    ensure!(machine.hook(&session, &[])? == Hooked::Acknowledged, "the hook was refused");
    machine.until(
        "the capture has ended",
        PATIENCE,
        || Ok(machine.state().is_ok() && machine.is_quiet()?),
    )?;

    let (mut nothing, mut start, mut compact, mut prompt) =
        (Times::default(), Times::default(), Times::default(), Times::default());
    let mut said = (0, 0);
    for round in 0..arguments.rounds {
        nothing.time(|| Ok(Command::new("true").status()?.success()))?;
        let begin = |source: &str| {
            json!({"session_id": format!("s-{round}"), "transcript_path": session.transcript, "cwd": project,
                "hook_event_name": "SessionStart", "source": source})
        };
        let told = start.take(|| hook(&machine, "session-start", &begin("startup")))?;
        ensure!(told.contains("bear on this project"), "nothing was said of the project: {told}");
        compact.take(|| hook(&machine, "session-start", &begin("compact")))?;
        let asked = json!({"session_id": format!("s-{round}"), "cwd": project, "hook_event_name": "UserPromptSubmit",
            "prompt": corpus.question(&mut random)});
        let told = prompt.take(|| hook(&machine, "user-prompt", &asked))?;
        said.0 += usize::from(!told.is_empty());
        said.1 += 1;
    }
    Ok(json!({
        "units": arguments.units, "chunks": written.chunks, "brain": MADE,
        "true_process": nothing.told(),
        "session_start": start.told(), "session_start_p50_to_true": ratio(&start, &nothing, 50),
        "after_compaction": compact.told(), "after_compaction_p50_to_true": ratio(&compact, &nothing, 50),
        "user_prompt": prompt.told(), "user_prompt_p50_to_true": ratio(&prompt, &nothing, 50),
        "prompts_told_something": format!("{} of {}", said.0, said.1),
        "session_start_ms": bar(start.percentile(50), SESSION_MS_MAX),
        "user_prompt_ms": bar(prompt.percentile(50), PROMPT_MS_MAX),
    }))
}

fn hook(machine: &Machine, command: &str, input: &Value) -> Result<String> {
    let mut child = machine.command(&[command]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().context("no stdin")?;
    stdin.write_all(format!("{input}\n").as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{command}: {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}
