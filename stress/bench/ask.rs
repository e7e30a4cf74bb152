//! `nugget ask --no-llm` as a new process, from exec to its end.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};

use super::corpus::{Corpus, MADE};
use super::{RuntimeArguments, bar, embedder, machine, use_runtime};
use crate::machine::Random;
use crate::times::{Times, hundredths, processor_ms, ratio};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many units the brain has
    #[arg(long, default_value_t = 1_000)]
    units: usize,
    /// How many questions are asked
    #[arg(long, default_value_t = 40)]
    queries: usize,
    #[command(flatten)]
    runtime: RuntimeArguments,
}

pub(crate) fn run(arguments: &Arguments, program: &Path, seed: u64) -> Result<Value> {
    eprintln!("ask --seed {seed}, {} units", arguments.units);
    let (_, library) = arguments.runtime.best();
    let mut machine = machine(program, library)?;
    let corpus = Corpus::new(seed, arguments.units, &embedder(library)?)?;
    let written = corpus.write(&machine)?;
    machine.ok(&["index"])?;
    let (mut nothing, mut version) = (Times::default(), Times::default());
    let (mut figures, mut bars) = (Map::new(), Map::new());
    for (name, library) in arguments.runtime.all() {
        use_runtime(&mut machine, library);
        let mut random = Random::new(seed);
        machine.ok(&["ask", "--no-llm", &corpus.question(&mut random)])?;
        let mut whole = Times::default();
        for _ in 0..arguments.queries {
            nothing.time(|| Ok(Command::new("true").status()?.success()))?;
            version.time(|| Ok(machine.run(&["--version"])?.status.success()))?;
            let question = corpus.question(&mut random);
            whole.time(|| Ok(machine.run(&["ask", "--no-llm", &question])?.status.success()))?;
        }
        let before = processor_ms("self")?.1;
        for _ in 0..arguments.queries.min(20) {
            machine.ok(&["ask", "--no-llm", &corpus.question(&mut random)])?;
        }
        let processor = (processor_ms("self")?.1 - before) / arguments.queries.clamp(1, 20) as f64;
        // Apart, since saying it takes time.
        let mut parts: Map<String, Value> = Map::new();
        let mut times: std::collections::BTreeMap<String, Times> = Default::default();
        for _ in 0..arguments.queries.min(20) {
            let question = corpus.question(&mut random);
            for (part, ms) in timings(&machine, &question)? {
                times.entry(part).or_default().0.push(ms);
            }
        }
        let total: f64 = times.get("total").map_or(f64::NAN, |times| times.percentile(50));
        for (part, times) in &times {
            let ms = times.percentile(50);
            parts.insert(part.clone(), json!({ "p50_ms": hundredths(ms), "share": hundredths(ms / total) }));
        }
        let limit = if library.is_some() { 250.0 } else { 400.0 };
        bars.insert(name.to_owned(), bar(whole.percentile(50), limit));
        let mut told = whole.told();
        told["p50_to_true"] = ratio(&whole, &nothing, 50).into();
        told["p50_to_version"] = ratio(&whole, &version, 50).into();
        told["processor_ms"] = hundredths(processor).into();
        told["parts"] = parts.into();
        figures.insert(name.to_owned(), told);
    }
    Ok(json!({
        "units": arguments.units, "chunks": written.chunks, "brain": MADE,
        "baseline_true": nothing.told(), "baseline_version": version.told(), "ask": figures, "bars": bars,
    }))
}

/// What each part of one question took, in milliseconds: the line that `--timings` writes.
fn timings(machine: &crate::machine::Machine, question: &str) -> Result<Vec<(String, f64)>> {
    let output = machine.run(&["ask", "--no-llm", "--timings", question])?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "nugget ask: {told}");
    let line = told.lines().rev().find(|line| line.starts_with('{')).context("no timings were told")?;
    let parts: Map<String, Value> = serde_json::from_str(line)?;
    Ok(parts.into_iter().filter_map(|(part, ms)| Some((part, ms.as_f64()?))).collect())
}
