//! `nugget status` from exec to exit, in a large brain with captures, beside a process that does nothing.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use brain::Brain;
use index::{Index, Mode, ModelLabel};
use serde_json::{Value, json};

use super::bar;
use crate::machine::{Machine, Random, Session};
use crate::times::{Times, ratio};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many units the brain has
    #[arg(long, default_value_t = 10_000)]
    units: usize,
    /// How many captures the ledger has
    #[arg(long, default_value_t = 20)]
    captures: usize,
    /// How often it is asked
    #[arg(long, default_value_t = 100)]
    rounds: usize,
}

const PATIENCE: Duration = Duration::from_secs(120);
const MS_MAX: f64 = 50.0;

pub(crate) fn run(arguments: &Arguments, program: &Path, seed: u64) -> Result<Value> {
    eprintln!("status --seed {seed}, {} units", arguments.units);
    let machine = Machine::new(program)?;
    fill(&machine, arguments.units)?;
    let mut random = Random::new(seed);
    for _ in 0..arguments.captures {
        machine.hook(&Session::new(&machine, &mut random, &[])?, &[])?;
    }
    machine
        .until("the captures have ended", PATIENCE, || Ok(machine.state().is_ok() && machine.is_quiet()?))?;

    // In turns, so that a noisy neighbour falls upon all alike.
    let (mut nothing, mut told, mut json) = (Times::default(), Times::default(), Times::default());
    for _ in 0..arguments.rounds {
        nothing.time(|| Ok(Command::new("true").status()?.success()))?;
        told.time(|| Ok(machine.run(&["status"])?.status.success()))?;
        json.time(|| Ok(machine.run(&["status", "--json"])?.status.success()))?;
    }
    Ok(json!({
        "units": arguments.units,
        "captures": arguments.captures,
        "true_process": nothing.told(),
        "status": told.told(),
        "status_json": json.told(),
        "p50_to_true": ratio(&told, &nothing, 50),
        "bars": { "p50_ms": bar(told.percentile(50), MS_MAX), "json_p50_ms": bar(json.percentile(50), MS_MAX) },
    }))
}

/// Units and their index. What is looked at is files and rows: which vectors there are makes no difference.
fn fill(machine: &Machine, units: usize) -> Result<()> {
    const DIMENSIONS: usize = 8;
    let folder = machine.brain().join("domains/coding/concepts");
    std::fs::create_dir_all(&folder)?;
    for number in 0..units {
        let text = format!(
            "---\nid: unit-{number}\ntype: concept\ntitle: Unit {number}\n---\n# Unit {number}\n\nWhat unit {number} knows.\n"
        );
        std::fs::write(folder.join(format!("unit-{number}.md")), text)?;
    }
    let brain = Brain::open(&machine.brain())?;
    let model = ModelLabel { name: "made".to_owned(), dimensions: DIMENSIONS };
    let plan =
        Index::open(&brain.derived_folder())?.plan(&brain, &model, &Words, Mode::Changed, &mut |_| {})?;
    let vector = |number: usize| {
        let mut vector = vec![0.1; DIMENSIONS];
        vector[number % DIMENSIONS] = 1.0;
        vector
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
