//! Measures the memory of an idle server.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use fastrand::Rng;
use serde_json::{Value, json};

use super::corpus::{Corpus, SYNTHETIC};
use super::{embedder, limit, start_server};
use crate::sandbox::{ProcessKind, Sandbox};
use crate::timing::hundredths;

#[derive(clap::Args)]
pub(crate) struct IdleBenchArgs {
    /// The number of units in the brain
    #[arg(long, default_value_t = 1_000)]
    units: usize,
    /// Seconds without a question before the memory is read
    #[arg(long, default_value_t = 5)]
    quiet: u64,
}

const MEGABYTES_MAX: f64 = 60.0;

pub(crate) fn run(args: &IdleBenchArgs, binary: &Path, seed: u64) -> Result<Value> {
    eprintln!("idle --seed {seed}, {} units", args.units);
    let sandbox = Sandbox::new(binary)?;
    let corpus = Corpus::new(seed, args.units, &embedder()?)?;
    let written = corpus.write(&sandbox)?;
    sandbox.run_ok(&["index"])?;
    let mut server = start_server(&sandbox)?;
    let before = memory(&sandbox)?;
    server.ask(&corpus.question(&mut Rng::with_seed(seed)))?.context("the server was killed")?;
    let at_once = memory(&sandbox)?;
    let after = memory_after(&sandbox, Duration::from_secs(args.quiet))?;
    server.shut_down()?;
    Ok(json!({
        "units": args.units, "quiet_seconds": args.quiet, "chunks": written.chunks, "brain": SYNTHETIC,
        "after_one_answer": {
            "resident_mb": after.resident, "private_mb": after.private,
            "resident_to_right_after_answer": hundredths(after.resident / at_once.resident),
            "resident_to_before_question": hundredths(after.resident / before.resident),
        },
        "limits": { "resident_mb": limit(after.resident, MEGABYTES_MAX) },
    }))
}

/// The memory after `quiet` without a question. Waits for a fixed time, since an idle server gives no signal.
fn memory_after(sandbox: &Sandbox, quiet: Duration) -> Result<Memory> {
    let started = Instant::now();
    loop {
        let now = memory(sandbox)?;
        if started.elapsed() > quiet {
            return Ok(now);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

struct Memory {
    resident: f64,
    /// Anonymous memory, which is not backed by a file.
    private: f64,
}

/// The memory of the sandbox's only server, in megabytes.
fn memory(sandbox: &Sandbox) -> Result<Memory> {
    let server = sandbox.processes().into_iter().find(|process| process.kind == ProcessKind::Server);
    let server = server.context("no server runs")?;
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid.as_raw_nonzero()))?;
    let field = |name: &str| -> Result<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such field")?;
        let number = line.split_whitespace().next().context("no number")?;
        Ok(hundredths(number.parse::<f64>()? * 1024.0 / 1e6))
    };
    Ok(Memory { resident: field("VmRSS:")?, private: field("RssAnon:")? })
}
