//! Measures the search for sessions that the hook missed, among many transcripts, in turns with a process that
//! does nothing.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use fastrand::Rng;
use serde_json::{Value, json};

use crate::sandbox::{Sandbox, Session};
use crate::timing::{Durations, ratio};

#[derive(clap::Args)]
pub(crate) struct SweepBenchArgs {
    /// The number of transcripts
    #[arg(long, default_value_t = 10_000)]
    transcripts: usize,
    /// How many times they are searched
    #[arg(long, default_value_t = 20)]
    rounds: usize,
}

pub(crate) fn run(args: &SweepBenchArgs, binary: &Path, seed: u64) -> Result<Value> {
    eprintln!("sweep --seed {seed}, {} transcripts", args.transcripts);
    let mut sandbox = Sandbox::new(binary)?;
    sandbox.variables.push(("NUGGET_SWEEP_IDLE_MINUTES".to_owned(), "0".to_owned()));
    let folder = sandbox.path(".claude/projects/-home-dev-shop");
    fs::create_dir_all(&folder)?;
    let mut rng = Rng::with_seed(seed);
    for _ in 0..args.transcripts {
        let session = Session::new(&sandbox, &mut rng, &[])?;
        fs::rename(&session.transcript, folder.join(format!("{}.jsonl", session.id)))?;
    }
    let (mut true_process, mut sweep) = (Durations::default(), Durations::default());
    for _ in 0..args.rounds {
        true_process.measure_ok(|| Ok(Command::new("true").status()?.success()))?;
        let output = sweep.measure(|| sandbox.run_ok(&["sync", "--all", "--dry-run"]))?;
        let found = output.replace(',', "");
        ensure!(found.contains(&args.transcripts.to_string()), "not all sessions were found: {output}");
    }
    Ok(json!({
        "transcripts": args.transcripts, "true_process": true_process.summary(), "sweep": sweep.summary(),
        "p50_to_true": ratio(&sweep, &true_process, 50),
    }))
}
