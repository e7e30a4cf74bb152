//! Measures what memories of earlier sessions add to a question and to the start of a session: a project with thousands of
//! them, with recall on and off in turns.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use archive::{Archive, Derivation, NewMemory};
use fastrand::Rng;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::corpus::{Corpus, SYNTHETIC};
use super::{embedder, limit, start_server};
use crate::sandbox::{McpClient, Sandbox};
use crate::timing::{Durations, hundredths, processor_ms, ratio};

#[derive(clap::Args)]
pub(crate) struct MemoriesBenchArgs {
    /// The number of memories in the project
    #[arg(long, default_value_t = 10_000)]
    memories: usize,
    /// The number of units in the brain
    #[arg(long, default_value_t = 1_000)]
    units: usize,
    /// The number of questions, and of starts
    #[arg(long, default_value_t = 120)]
    rounds: usize,
}

/// Limits in milliseconds.
const ADDED_MS_MAX: f64 = 3.0;
const SESSION_MS_MAX: f64 = 50.0;
const WARM_UP: usize = 8;
/// Memories are of several sessions, so that each transaction is as short as in use.
const PER_SESSION: usize = 500;
const RECALL: &str = "NUGGET_RECALL_MEMORIES";

pub(crate) fn run(args: &MemoriesBenchArgs, binary: &Path, seed: u64) -> Result<Value> {
    eprintln!("memories --seed {seed}, {} memories, {} units: {SYNTHETIC}", args.memories, args.units);
    let mut sandbox = Sandbox::new(binary)?;
    let client = sandbox.path("client").to_string_lossy().into_owned();
    for (name, value) in [
        ("CLAUDE_CONFIG_DIR", client.as_str()),
        ("NUGGET_SWEEP_ENABLED", "off"),
        ("NUGGET_SESSION_START_DEADLINE_MS", "60000"),
        (RECALL, "off"),
    ] {
        sandbox.variables.push((name.to_owned(), value.to_owned()));
    }
    let corpus = Corpus::new(seed, args.units, &embedder()?)?;
    let written = corpus.write(&sandbox)?;
    sandbox.run_ok(&["index"])?;
    let mut rng = Rng::with_seed(seed);
    let stored = store(&sandbox, &corpus, args.memories, &mut rng)?;

    let mut without = start_server(&sandbox)?;
    recall(&mut sandbox, "on");
    let mut with = start_server(&sandbox)?;
    let questions: Vec<String> = (0..WARM_UP + args.rounds).map(|_| corpus.question(&mut rng)).collect();
    let ask = |server: &mut McpClient, question: &str| server.ask(question)?.context("the server was killed");
    for question in &questions[..WARM_UP] {
        ask(&mut without, question)?;
        ask(&mut with, question)?;
    }
    let (mut off, mut on, mut added, mut recalled) =
        (Durations::default(), Durations::default(), Durations::default(), 0);
    let processor = |server: &McpClient| processor_ms(&server.pid().to_string()).map(|(own, _)| own);
    let before = (processor(&without)?, processor(&with)?);
    for (round, question) in questions[WARM_UP..].iter().enumerate() {
        let mut one = |server: &mut McpClient, times: &mut Durations| -> Result<f64> {
            let begun = Instant::now();
            let answer = ask(server, question)?;
            let ms = begun.elapsed().as_secs_f64() * 1e3;
            times.0.push(ms);
            recalled += usize::from(answer.contains("taken from an earlier session"));
            Ok(ms)
        };
        // By turns first, since the second finds the processor's caches warm.
        let (ms_off, ms_on) = if round % 2 == 0 {
            let first = one(&mut without, &mut off)?;
            (first, one(&mut with, &mut on)?)
        } else {
            let first = one(&mut with, &mut on)?;
            (one(&mut without, &mut off)?, first)
        };
        added.0.push(ms_on - ms_off);
    }
    let rounds = args.rounds.max(1) as f64;
    let processor_added = (processor(&with)? - before.1 - (processor(&without)? - before.0)) / rounds;
    without.shut_down()?;
    with.shut_down()?;

    let (mut true_process, mut start_off, mut start_on) =
        (Durations::default(), Durations::default(), Durations::default());
    for round in 0..args.rounds.min(60) {
        true_process.measure_ok(|| Ok(Command::new("true").status()?.success()))?;
        for (value, times) in [("off", &mut start_off), ("on", &mut start_on)] {
            recall(&mut sandbox, value);
            let output = times.measure(|| start(&sandbox, round))?;
            ensure!(output.contains("Memory [0]") == (value == "on"), "{value}: {output}");
        }
    }
    Ok(json!({
        "memories": stored, "units": args.units, "chunks": written.chunks, "brain": SYNTHETIC,
        "question_without": off.summary(), "question_with": on.summary(),
        "answers_with_a_memory": format!("{recalled} of {}", args.rounds),
        "added_p50_ms": hundredths(added.percentile(50)),
        "with_to_without_p50": ratio(&on, &off, 50),
        "processor_ms_added": hundredths(processor_added),
        "true_process": true_process.summary(),
        "session_start_without": start_off.summary(), "session_start_with": start_on.summary(),
        "session_start_with_to_without": ratio(&start_on, &start_off, 50),
        "session_start_with_to_true": ratio(&start_on, &true_process, 50),
        "limits": {
            "added_ms": limit(added.percentile(50), ADDED_MS_MAX),
            "session_start_ms": limit(start_on.percentile(50), SESSION_MS_MAX),
        },
    }))
}

/// The folder in which servers run.
fn root(sandbox: &Sandbox) -> PathBuf {
    sandbox.brain().parent().map_or_else(|| sandbox.brain(), Path::to_owned)
}

fn recall(sandbox: &mut Sandbox, value: &str) {
    for (_, known) in sandbox.variables.iter_mut().filter(|(name, _)| name == RECALL) {
        value.clone_into(known);
    }
}

/// Archives sessions of the sandbox's folder, with so many memories whose words are those of the brain's units.
fn store(sandbox: &Sandbox, corpus: &Corpus, count: usize, rng: &mut Rng) -> Result<u64> {
    let folder = sandbox.path("client/projects/-sandbox");
    std::fs::create_dir_all(&folder)?;
    let now = Timestamp::now();
    for number in 0..count.div_ceil(PER_SESSION) {
        let line = json!({
            "type": "user", "uuid": format!("session-{number}"), "cwd": root(sandbox),
            "timestamp": (now - Duration::from_secs(86_400)).to_string(),
            "message": { "role": "user", "content": corpus.question(rng) },
        });
        std::fs::write(folder.join(format!("session-{number}.jsonl")), format!("{line}\n"))?;
    }
    sandbox.run_ok(&["sessions", "sync"])?;
    let archive = Archive::open(&sandbox.path("state/nugget").join(archive::FILE_NAME))?;
    let mut left = count;
    for (number, session) in archive.unremembered(None, count)?.iter().enumerate() {
        let memories: Vec<NewMemory> = (0..left.min(PER_SESSION))
            .map(|nth| {
                let found = corpus.unit(number * PER_SESSION + nth).text;
                let found =
                    found.rsplit("## ").next().unwrap_or_default().chars().take(400).collect::<String>();
                let summary =
                    format!("{}: {}", corpus.question(rng), found.chars().take(180).collect::<String>());
                let age = Duration::from_secs(60 * rng.u64(..500_000));
                NewMemory {
                    summary,
                    dialogue: format!("assistant: {found}"),
                    turns: vec![(number * PER_SESSION + nth) as i64],
                    at: now - age,
                    derivation: Derivation::Rules,
                    vector: None,
                }
            })
            .collect();
        left -= memories.len();
        archive.replace_memories(session, &memories, None)?;
    }
    let model = &corpus.label().name;
    let unembedded = archive.unembedded_memories(model, count)?;
    for some in unembedded.chunks(PER_SESSION) {
        let vectors: Vec<_> = some.iter().map(|memory| (memory.id, corpus.vector(&memory.summary))).collect();
        archive.store_memory_vectors(model, &vectors)?;
    }
    Ok(archive.memory_count(None)?)
}

/// The hook at the start of a session.
fn start(sandbox: &Sandbox, round: usize) -> Result<String> {
    let input = json!({
        "session_id": format!("s-{round}"), "cwd": root(sandbox), "hook_event_name": "SessionStart", "source": "startup",
    });
    let mut child =
        sandbox.command(&["session-start"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().context("no stdin")?;
    stdin.write_all(format!("{input}\n").as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "session-start: {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}
