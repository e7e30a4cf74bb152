//! Measures the SessionStart and UserPromptSubmit hooks in a large brain, in turns with a process that does
//! nothing.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use serde_json::{Value, json};

use super::corpus::{Corpus, SYNTHETIC};
use super::{embedder, limit};
use crate::sandbox::{HookOutcome, Sandbox, Session};
use crate::timing::{Durations, ratio};

const TIMEOUT: Duration = Duration::from_secs(120);
/// Limits in milliseconds.
const SESSION_MS_MAX: f64 = 50.0;
const PROMPT_MS_MAX: f64 = 150.0;

#[derive(clap::Args)]
pub(crate) struct SessionStartBenchArgs {
    /// The number of units in the brain
    #[arg(long, default_value_t = 10_000)]
    units: usize,
    /// How many times each hook runs
    #[arg(long, default_value_t = 60)]
    rounds: usize,
}

pub(crate) fn run(args: &SessionStartBenchArgs, binary: &Path, seed: u64) -> Result<Value> {
    eprintln!("session-start --seed {seed}, {} units", args.units);
    let mut sandbox = Sandbox::new(binary)?;
    // Without the usual deadlines, the complete work is measured.
    for name in ["NUGGET_SESSION_START_DEADLINE_MS", "NUGGET_USER_PROMPT_DEADLINE_MS"] {
        sandbox.variables.push((name.to_owned(), "60000".to_owned()));
    }
    sandbox.variables.push(("NUGGET_USER_PROMPT_ENABLED".to_owned(), "on".to_owned()));
    let corpus = Corpus::new(seed, args.units, &embedder()?)?;
    let written = corpus.write(&sandbox)?;
    sandbox.run_ok(&["index"])?;
    let mut rng = Rng::with_seed(seed);
    let project = sandbox.path("project");
    std::fs::create_dir_all(project.join(".git"))?;
    // The project depends on libraries that units are tagged with.
    let tags = sandbox.run_ok(&["list", "--json"])?;
    let tags: Value = serde_json::from_str(&tags)?;
    let units = tags["units"].as_array().context("no units")?;
    let uses = units.iter().step_by(units.len() / 40 + 1).filter_map(|unit| unit["tags"][0].as_str());
    let uses: String = uses.map(|name| format!("{name} = '1'\n")).collect();
    std::fs::write(project.join("Cargo.toml"), format!("[dependencies]\n{uses}"))?;
    // A branch waits for review.
    let session = Session::new(&sandbox, &mut rng, &[1, 2, 3])?;
    ensure!(sandbox.hook(&session, &[])? == HookOutcome::Acknowledged, "the hook was refused");
    sandbox.wait_until("the capture has ended", TIMEOUT, || {
        Ok(sandbox.state().is_ok() && sandbox.is_quiet()?)
    })?;

    let (mut true_process, mut start, mut compact, mut prompt) =
        (Durations::default(), Durations::default(), Durations::default(), Durations::default());
    let mut with_context = 0;
    for round in 0..args.rounds {
        true_process.measure_ok(|| Ok(Command::new("true").status()?.success()))?;
        let input = |source: &str| {
            json!({"session_id": format!("s-{round}"), "transcript_path": session.transcript, "cwd": project,
                "hook_event_name": "SessionStart", "source": source})
        };
        let output = start.measure(|| hook(&sandbox, "session-start", &input("startup")))?;
        ensure!(output.contains("bear on this project"), "the output does not mention the project: {output}");
        compact.measure(|| hook(&sandbox, "session-start", &input("compact")))?;
        let prompted = json!({"session_id": format!("s-{round}"), "cwd": project, "hook_event_name": "UserPromptSubmit",
            "prompt": corpus.question(&mut rng)});
        let output = prompt.measure(|| hook(&sandbox, "user-prompt", &prompted))?;
        with_context += usize::from(!output.is_empty());
    }
    Ok(json!({
        "units": args.units, "chunks": written.chunks, "brain": SYNTHETIC,
        "true_process": true_process.summary(),
        "session_start": start.summary(), "session_start_p50_to_true": ratio(&start, &true_process, 50),
        "after_compaction": compact.summary(), "after_compaction_p50_to_true": ratio(&compact, &true_process, 50),
        "user_prompt": prompt.summary(), "user_prompt_p50_to_true": ratio(&prompt, &true_process, 50),
        "prompts_with_context": format!("{with_context} of {}", args.rounds),
        "session_start_ms": limit(start.percentile(50), SESSION_MS_MAX),
        "user_prompt_ms": limit(prompt.percentile(50), PROMPT_MS_MAX),
    }))
}

fn hook(sandbox: &Sandbox, command: &str, input: &Value) -> Result<String> {
    let mut child = sandbox.command(&[command]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().context("no stdin")?;
    stdin.write_all(format!("{input}\n").as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{command}: {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}
