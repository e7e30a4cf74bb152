//! Measures `nugget ask --no-llm` as a new process, from exec to exit.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::corpus::{Corpus, SYNTHETIC};
use super::{embedder, limit};
use crate::sandbox::Sandbox;
use crate::timing::{Durations, hundredths, processor_ms, ratio};

#[derive(clap::Args)]
pub(crate) struct AskBenchArgs {
    /// The number of units in the brain
    #[arg(long, default_value_t = 1_000)]
    units: usize,
    /// The number of questions
    #[arg(long, default_value_t = 40)]
    queries: usize,
}

const P50_MS_MAX: f64 = 120.0;

pub(crate) fn run(args: &AskBenchArgs, binary: &Path, seed: u64) -> Result<Value> {
    eprintln!("ask --seed {seed}, {} units", args.units);
    let sandbox = Sandbox::new(binary)?;
    let corpus = Corpus::new(seed, args.units, &embedder()?)?;
    let written = corpus.write(&sandbox)?;
    sandbox.run_ok(&["index"])?;
    let (mut true_process, mut version) = (Durations::default(), Durations::default());
    let mut rng = Rng::with_seed(seed);
    sandbox.run_ok(&["ask", "--no-llm", &corpus.question(&mut rng)])?;
    let mut total_time = Durations::default();
    for _ in 0..args.queries {
        true_process.measure_ok(|| Ok(Command::new("true").status()?.success()))?;
        version.measure_ok(|| Ok(sandbox.run(&["--version"])?.status.success()))?;
        let question = corpus.question(&mut rng);
        total_time.measure_ok(|| Ok(sandbox.run(&["ask", "--no-llm", &question])?.status.success()))?;
    }
    let before = processor_ms("self")?.1;
    for _ in 0..args.queries.min(20) {
        sandbox.run_ok(&["ask", "--no-llm", &corpus.question(&mut rng)])?;
    }
    let processor = (processor_ms("self")?.1 - before) / args.queries.clamp(1, 20) as f64;
    // Measured separately, since `--timings` takes time itself.
    let mut parts: Map<String, Value> = Map::new();
    let mut times: std::collections::BTreeMap<String, Durations> = Default::default();
    for _ in 0..args.queries.min(20) {
        let question = corpus.question(&mut rng);
        for (part, ms) in timings(&sandbox, &question)? {
            times.entry(part).or_default().0.push(ms);
        }
    }
    let total: f64 = times.get("total").map_or(f64::NAN, |times| times.percentile(50));
    for (part, times) in &times {
        let ms = times.percentile(50);
        parts.insert(part.clone(), json!({ "p50_ms": hundredths(ms), "share": hundredths(ms / total) }));
    }
    let mut figure = total_time.summary();
    figure["p50_to_true"] = ratio(&total_time, &true_process, 50).into();
    figure["p50_to_version"] = ratio(&total_time, &version, 50).into();
    figure["processor_ms"] = hundredths(processor).into();
    figure["parts"] = parts.into();
    Ok(json!({
        "units": args.units, "chunks": written.chunks, "brain": SYNTHETIC,
        "baseline_true": true_process.summary(), "baseline_version": version.summary(), "ask": figure, "limits": { "p50_ms": limit(total_time.percentile(50), P50_MS_MAX) },
    }))
}

/// The milliseconds of each part of one question, from the line that `--timings` writes.
fn timings(sandbox: &Sandbox, question: &str) -> Result<Vec<(String, f64)>> {
    let output = sandbox.run(&["ask", "--no-llm", "--timings", question])?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "nugget ask: {stderr}");
    let line = stderr.lines().rev().find(|line| line.starts_with('{')).context("no timings were written")?;
    let parts: Map<String, Value> = serde_json::from_str(line)?;
    Ok(parts.into_iter().filter_map(|(part, ms)| Some((part, ms.as_f64()?))).collect())
}
