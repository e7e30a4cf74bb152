//! What a server keeps in memory while nobody asks.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use super::corpus::{Corpus, MADE};
use super::{RuntimeArguments, bar, client, embedder, machine, use_runtime};
use crate::machine::{Kind, Machine, Random};
use crate::times::hundredths;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many units the brain has
    #[arg(long, default_value_t = 1_000)]
    units: usize,
    /// After how many seconds without a question the memory is read; half a second gives back what is free,
    /// half a minute the program's pages, and five minutes the model
    #[arg(long, default_value_t = 35)]
    quiet: u64,
    #[command(flatten)]
    runtime: RuntimeArguments,
}

const MEGABYTES_MAX: f64 = 120.0;

pub(crate) fn run(arguments: &Arguments, program: &Path, seed: u64) -> Result<Value> {
    eprintln!("idle --seed {seed}, {} units", arguments.units);
    let (_, library) = arguments.runtime.best();
    let mut machine = machine(program, library)?;
    let corpus = Corpus::new(seed, arguments.units, &embedder(library)?)?;
    let written = corpus.write(&machine)?;
    machine.ok(&["index"])?;
    let (mut figures, mut bars) = (Map::new(), Map::new());
    for (name, library) in arguments.runtime.all() {
        use_runtime(&mut machine, library);
        let mut server = client(&machine)?;
        let before = memory(&machine)?;
        server.ask(&corpus.question(&mut Random::new(seed)))?.context("the server was killed")?;
        let at_once = memory(&machine)?;
        let after = settled(&machine, Duration::from_secs(arguments.quiet))?;
        server.end()?;
        bars.insert(name.to_owned(), bar(after.resident, MEGABYTES_MAX));
        figures.insert(
            name.to_owned(),
            json!({
                "resident_mb": after.resident, "of_it_private_mb": after.private,
                "to_resident_right_after_the_answer": hundredths(after.resident / at_once.resident),
                "to_resident_before_the_question": hundredths(after.resident / before.resident),
            }),
        );
    }
    Ok(json!({
        "units": arguments.units, "quiet_seconds": arguments.quiet, "chunks": written.chunks, "brain": MADE, "after_one_answer": figures, "bars": bars,
    }))
}

/// What is left when it has been quiet for a while: nothing else tells that a server rests.
fn settled(machine: &Machine, quiet: Duration) -> Result<Memory> {
    let begun = Instant::now();
    loop {
        let now = memory(machine)?;
        if begun.elapsed() > quiet {
            return Ok(now);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

struct Memory {
    resident: f64,
    /// Not shared with the program's file.
    private: f64,
}

/// In megabytes, of the one server.
fn memory(machine: &Machine) -> Result<Memory> {
    let server = machine.processes().into_iter().find(|process| process.kind == Kind::Server);
    let server = server.context("there is no server")?;
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid.as_raw_nonzero()))?;
    let field = |name: &str| -> Result<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such field")?;
        let number = line.split_whitespace().next().context("no number")?;
        Ok(hundredths(number.parse::<f64>()? * 1024.0 / 1e6))
    };
    Ok(Memory { resident: field("VmRSS:")?, private: field("RssAnon:")? })
}
