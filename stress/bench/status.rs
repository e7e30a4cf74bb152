//! Measures `nugget status` from exec to exit in a large brain with captures, in turns with a process that does
//! true_process.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use brain::Brain;
use fastrand::Rng;
use index::{Index, Mode, ModelLabel};
use serde_json::{Value, json};

use super::limit;
use crate::sandbox::{Sandbox, Session};
use crate::timing::{Durations, ratio};

#[derive(clap::Args)]
pub(crate) struct StatusBenchArgs {
    /// The number of units in the brain
    #[arg(long, default_value_t = 10_000)]
    units: usize,
    /// The number of captures in the queue
    #[arg(long, default_value_t = 20)]
    captures: usize,
    /// How many times it runs
    #[arg(long, default_value_t = 100)]
    rounds: usize,
}

const TIMEOUT: Duration = Duration::from_secs(120);
const MS_MAX: f64 = 50.0;

pub(crate) fn run(args: &StatusBenchArgs, binary: &Path, seed: u64) -> Result<Value> {
    eprintln!("status --seed {seed}, {} units", args.units);
    let sandbox = Sandbox::new(binary)?;
    write_units(&sandbox, args.units)?;
    let mut rng = Rng::with_seed(seed);
    for _ in 0..args.captures {
        sandbox.hook(&Session::new(&sandbox, &mut rng, &[])?, &[])?;
    }
    sandbox.wait_until("the captures have ended", TIMEOUT, || {
        Ok(sandbox.state().is_ok() && sandbox.is_quiet()?)
    })?;

    // In turns, so that other load on the computer affects all alike.
    let (mut true_process, mut text, mut json) =
        (Durations::default(), Durations::default(), Durations::default());
    for _ in 0..args.rounds {
        true_process.measure_ok(|| Ok(Command::new("true").status()?.success()))?;
        text.measure_ok(|| Ok(sandbox.run(&["status"])?.status.success()))?;
        json.measure_ok(|| Ok(sandbox.run(&["status", "--json"])?.status.success()))?;
    }
    Ok(json!({
        "units": args.units,
        "captures": args.captures,
        "true_process": true_process.summary(),
        "status": text.summary(),
        "status_json": json.summary(),
        "p50_to_true": ratio(&text, &true_process, 50),
        "limits": { "p50_ms": limit(text.percentile(50), MS_MAX), "json_p50_ms": limit(json.percentile(50), MS_MAX) },
    }))
}

/// Writes units and their index. `status` reads only files and rows, so the vectors do not matter.
fn write_units(sandbox: &Sandbox, units: usize) -> Result<()> {
    const DIMENSIONS: usize = 8;
    let folder = sandbox.brain().join("domains/coding/concepts");
    std::fs::create_dir_all(&folder)?;
    for number in 0..units {
        let text = format!(
            "---\nid: unit-{number}\ntype: concept\ntitle: Unit {number}\n---\n# Unit {number}\n\nText of unit {number}.\n"
        );
        std::fs::write(folder.join(format!("unit-{number}.md")), text)?;
    }
    let brain = Brain::open(&sandbox.brain())?;
    let model = ModelLabel { name: "made".to_owned(), dimensions: DIMENSIONS };
    let plan =
        Index::open(&brain.derived_folder())?.plan(&brain, &model, &Words, Mode::Changed, &mut |_| {})?;
    let vector = |number: usize| {
        let mut vector = vec![0.1; DIMENSIONS];
        vector[number % DIMENSIONS] = 1.0;
        vector.into()
    };
    let vectors = (0..plan.texts().len()).map(vector).collect();
    plan.publish(vectors)?;
    Ok(())
}

struct Words;

impl knowledge::CountTokens for Words {
    fn count(&self, text: &str) -> usize {
        text.split_whitespace().count()
    }
}
