//! Measures the guard's hook in a large brain, in turns with a process that does nothing: actions that no unit bears on,
//! which are nearly all, and one that a session is told about; alone and eight at once.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::corpus::{Corpus, SYNTHETIC};
use super::{embedder, limit};
use crate::sandbox::Sandbox;
use crate::timing::{Durations, ratio};

/// The p50 of an action that nothing bears on, in times of a process that does nothing.
const RATIO_MAX: f64 = 3.0;
/// The p99 of eight at once, in milliseconds.
const AT_ONCE_MS_MAX: f64 = 25.0;

#[derive(clap::Args)]
pub(crate) struct GuardBenchArgs {
    /// The number of units in the brain
    #[arg(long, default_value_t = 10_000)]
    units: usize,
    /// How many times the hook runs alone
    #[arg(long, default_value_t = 300)]
    rounds: usize,
    /// How many hooks run at the same moment
    #[arg(long, default_value_t = 8)]
    at_once: usize,
}

pub(crate) fn run(args: &GuardBenchArgs, binary: &Path, seed: u64) -> Result<Value> {
    eprintln!("guard --seed {seed}, {} units", args.units);
    let mut sandbox = Sandbox::new(binary)?;
    // Without the usual deadline, the complete work is measured.
    sandbox.variables.push(("NUGGET_GUARD_DEADLINE_MS".to_owned(), "60000".to_owned()));
    Corpus::new(seed, args.units, &embedder()?)?.write(&sandbox)?;
    for number in 0..args.units.div_ceil(10) {
        // A tenth of the units bear on something; some of them on programs that are run all the time.
        let scope = match number % 4 {
            0 => format!("{{path: src/module{number}/file.rs}}"),
            1 => format!("{{command: tool{number} run --flag{number}}}"),
            2 => format!("{{command: git subcommand{number}}}"),
            _ => format!("{{error: the frobnicator{number} is not available}}"),
        };
        let unit = format!(
            "---\ntype: bug\nscope: [{scope}]\n---\n\n# Guarded {number}\n\nThe text of unit {number}.\n"
        );
        std::fs::write(sandbox.brain().join(format!("guarded-{number}.md")), unit)?;
    }
    sandbox.run_ok(&["index"])?;
    let project = sandbox.path("project");
    std::fs::create_dir_all(project.join(".git"))?;

    let input = |session: &str, event: &str, tool: &str, tool_input: Value| {
        let mut input = json!({"session_id": session, "transcript_path": "/x", "cwd": project, "hook_event_name": event,
            "tool_name": tool, "tool_input": tool_input});
        if event == "PostToolUseFailure" {
            let output = "error: something else went wrong in src/lib.rs:12:5\n".repeat(100);
            input["error"] = format!("Exit code 1\n{output}").into();
        } else if event == "PostToolUse" {
            let output = "test a::b::c ... ok\n".repeat(250);
            input["tool_response"] = json!({"stdout": output, "stderr": "", "interrupted": false});
        }
        input
    };
    let bash =
        |session: &str, command: &str| input(session, "PreToolUse", "Bash", json!({"command": command}));
    let silent = [
        bash("s", "cd src && git -c a=b status --short && cargo test --workspace 2>&1 | tail -20"),
        bash("s", "for f in src/*.rs; do sed -n 1,5p \"$f\"; done; git log --oneline -5"),
        input(
            "s",
            "PreToolUse",
            "Edit",
            json!({"file_path": project.join("src/lib.rs"),
            "old_string": "fn a() {}\n".repeat(50), "new_string": "fn b() { c() }\n".repeat(50)}),
        ),
        input("s", "PostToolUseFailure", "Bash", json!({"command": "cargo test"})),
        input("s", "PostToolUse", "Bash", json!({"command": "cargo test 2>&1 | tail -200"})),
    ];
    // As the plugin's script runs it.
    let program = binary.with_file_name("nugget-guard");
    let hook = |input: &Value| run_hook(&sandbox, &program, input);
    let (mut true_process, mut own_process) = (Durations::default(), Durations::default());
    let (mut nothing, mut told, mut again) =
        (Durations::default(), Durations::default(), Durations::default());
    for round in 0..args.rounds {
        true_process.measure_ok(|| Ok(Command::new("true").status()?.success()))?;
        // The same program, which ends as soon as it has begun.
        own_process.measure_ok(|| {
            let mut command = sandbox.command_of(&program);
            Ok(command
                .env("NUGGET_DISABLE", "1")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .status()?
                .success())
        })?;
        let output = nothing.measure(|| hook(&silent[round % silent.len()]))?;
        ensure!(output.is_empty(), "nothing bears on that: {output}");
        let speak = bash(&format!("t-{round}"), "git subcommand2 x");
        let output = told.measure(|| hook(&speak))?;
        ensure!(output.contains("guarded-2"), "the unit is told: {output}");
        let output = again.measure(|| hook(&speak))?;
        ensure!(output.is_empty(), "twice: {output}");
    }
    // As the end of a session does: it moves what hooks have logged into the queue's database.
    sandbox.run_ok(&["drain"])?;
    let mut at_once = Durations::default();
    for round in 0..args.rounds.div_ceil(args.at_once).max(20) {
        let run = |nth: usize| {
            let mut one = Durations::default();
            // One of them in ten speaks, which is ten times as often as allowed.
            let speak = bash(&format!("u-{round}-{nth}"), "git subcommand2 x");
            let is_told = (round * args.at_once + nth).is_multiple_of(10);
            let input = if is_told { &speak } else { &silent[nth % silent.len()] };
            let output = one.measure(|| hook(input))?;
            ensure!(output.is_empty() != is_told, "{output}");
            Ok(one)
        };
        let measured = std::thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> = (0..args.at_once).map(|nth| scope.spawn(move || run(nth))).collect();
            let panicked = |_| anyhow::anyhow!("a hook's thread panicked");
            threads.into_iter().map(|thread| thread.join().map_err(panicked)?).collect::<Result<Vec<_>>>()
        })?;
        at_once.0.extend(measured.into_iter().flat_map(|one| one.0));
    }
    let times = nothing.percentile(50) / true_process.percentile(50);
    Ok(json!({
        "units": args.units + args.units.div_ceil(10), "brain": SYNTHETIC,
        "true_process": true_process.summary(), "own_process": own_process.summary(),
        "nothing_p50_to_own_process": ratio(&nothing, &own_process, 50),
        "nothing": nothing.summary(), "nothing_p50_to_true": ratio(&nothing, &true_process, 50),
        "told": told.summary(), "told_p50_to_true": ratio(&told, &true_process, 50),
        "told_before": again.summary(),
        "at_once": at_once.summary(),
        "p50_to_true": limit(times, RATIO_MAX),
        "at_once_p99_ms": limit(at_once.percentile(99), AT_ONCE_MS_MAX),
    }))
}

fn run_hook(sandbox: &Sandbox, program: &Path, input: &Value) -> Result<String> {
    let mut child = sandbox.command_of(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().context("no stdin")?;
    stdin.write_all(format!("{input}\n").as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "guard: {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}
