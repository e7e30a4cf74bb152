//! Measures the tools for notes in a running server: a brain with thousands of linked notes and of facts.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use jiff::Timestamp;
use knowledge::Document;
use notes::{NewNote, Notebook, content};
use serde_json::{Value, json};

use super::corpus::{Corpus, SYNTHETIC};
use super::{embedder, limit, start_server};
use crate::sandbox::Sandbox;
use crate::timing::{Durations, ratio};

#[derive(clap::Args)]
pub(crate) struct NotesBenchArgs {
    /// The number of notes
    #[arg(long, default_value_t = 2_000)]
    notes: usize,
    /// The number of links between them
    #[arg(long, default_value_t = 10_000)]
    links: usize,
    /// The number of facts
    #[arg(long, default_value_t = 500)]
    facts: usize,
    /// How often each tool is called
    #[arg(long, default_value_t = 200)]
    rounds: usize,
}

/// Limits in milliseconds.
const SEARCH_MS_MAX: f64 = 10.0;
const WARM_UP: usize = 10;
/// A note is shorter than other units; the real model embeds each.
const CONTENT_CHARS: usize = 400;
const REASONS: [&str; 4] = ["explains it", "came out of it", "is the same problem", "replaced by"];
const TOOLS: &str = "get_relevant_context,create_note,search_notes,recall";

pub(crate) fn run(args: &NotesBenchArgs, binary: &Path, seed: u64) -> Result<Value> {
    eprintln!("notes --seed {seed}, {} notes, {} links: {SYNTHETIC}", args.notes, args.links);
    let mut sandbox = Sandbox::new(binary)?;
    let plain = [
        ("NUGGET_MCP_TOOLS", TOOLS),
        ("NUGGET_NOTES_AGENT_WRITES_PER_HOUR", "10000"),
        ("NUGGET_SWEEP_ENABLED", "off"),
    ];
    sandbox.variables.extend(plain.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let corpus = Corpus::new(seed, args.notes, &embedder()?)?;
    let mut random = Rng::with_seed(seed);
    let links = write(args, &corpus, &sandbox, &mut random)?;
    sandbox.git(&["add", "."])?;
    sandbox.git(&["commit", "-qm", "notes"])?;
    sandbox.run_ok(&["index"])?;

    let mut server = start_server(&sandbox)?;
    let mut call = |tool: &str, arguments: Value| -> Result<(f64, String)> {
        let begun = Instant::now();
        let answer = server.call(tool, arguments)?.context("the server was killed")?;
        let answer = answer.map_err(|error| anyhow::anyhow!("{tool}: {error}"))?;
        Ok((begun.elapsed().as_secs_f64() * 1e3, answer))
    };
    let (mut search, mut asked, mut missed) =
        (Durations::default(), Durations::default(), Durations::default());
    let (mut recall, mut create) = (Durations::default(), Durations::default());
    let mut found = 0;
    for round in 0..WARM_UP + args.rounds {
        let question = corpus.question(&mut random);
        let (searched, answer) = call("search_notes", json!({ "query": question }))?;
        let (question, _) = call("get_relevant_context", json!({ "task_description": question }))?;
        found += usize::from(answer.contains(" note in ") || answer.contains(" fact in "));
        let key = random.usize(..args.facts);
        let (recalled, answer) = call("recall", json!({ "key": key_of(key) }))?;
        ensure!(answer.contains(&value_of(key)), "another value: {answer}");
        // The shortest way through the server: nothing is like this key.
        let (nothing, _) = call("recall", json!({ "key": "?" }))?;
        if round >= WARM_UP {
            search.0.push(searched);
            asked.0.push(question);
            recall.0.push(recalled);
            missed.0.push(nothing);
        }
    }
    for round in 0..args.rounds.min(50) {
        let title = format!("written by the benchmark {round}");
        create.0.push(call("create_note", json!({ "title": title, "content": "A sentence of it." }))?.0);
    }
    server.shut_down()?;
    let mut true_process = Durations::default();
    for _ in 0..20 {
        true_process.measure_ok(|| Ok(std::process::Command::new("true").status()?.success()))?;
    }
    Ok(json!({
        "notes": args.notes, "links": links, "facts": args.facts, "brain": SYNTHETIC,
        "search": search.summary(), "question": asked.summary(), "searches_that_found": format!("{found} of {}", WARM_UP + args.rounds),
        "recall": recall.summary(), "call_that_finds_nothing": missed.summary(), "create": create.summary(),
        "true_process": true_process.summary(),
        "search_to_empty_call_p50": ratio(&search, &missed, 50),
        "search_to_question_p50": ratio(&search, &asked, 50),
        "create_to_true_p50": ratio(&create, &true_process, 50),
        "limits": { "search_ms": limit(search.percentile(50), SEARCH_MS_MAX) },
    }))
}

fn key_of(number: usize) -> String {
    format!("host of the service number {number}")
}

fn value_of(number: usize) -> String {
    format!("srv-{number}.internal")
}

/// Writes the brain's files; returns how many links they have.
fn write(args: &NotesBenchArgs, corpus: &Corpus, sandbox: &Sandbox, random: &mut Rng) -> Result<usize> {
    let now: Timestamp = "2026-11-01T00:00:00Z".parse()?;
    let mut notebook = Notebook::new([]);
    let mut ids = Vec::new();
    for number in 0..args.notes {
        let file = corpus.unit(number);
        let unit = Document::parse(file.text)?.unit(&file.path)?;
        let text: String = content(&unit).chars().take(CONTENT_CHARS).collect();
        ids.push(notebook.create(NewNote::note(unit.title, text), now)?);
    }
    for number in 0..args.facts {
        notebook.remember(NewNote::fact(key_of(number), value_of(number)), now)?;
    }
    let mut links = 0;
    for _ in 0..2 * args.links {
        let mut any = || &ids[random.usize(..ids.len())];
        let (one, other) = (any(), any());
        if one != other && links < args.links {
            let reason = REASONS[random.usize(..REASONS.len())];
            links += usize::from(notebook.link(one, other, reason, now)?);
        }
    }
    for change in notebook.changes() {
        let path = sandbox.brain().join(&change.path);
        std::fs::create_dir_all(path.parent().context("no folder")?)?;
        std::fs::write(path, change.text.unwrap_or_default())?;
    }
    Ok(links)
}
