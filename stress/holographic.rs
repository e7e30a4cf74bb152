//! The holographic index: accuracy against theory, times, and the order and the keys of the seed's program.
//!
//! The seed's program is `NeoVertex1/nuggets` on GitHub. `node stress/holographic/seed.mjs notes|resolve|capacity FOLDER
//! OUT` runs its modules, made plain JavaScript by the reader, on invented data, and writes what they answer.

mod accuracy;
mod keys;
mod order;
mod seed_vector;
mod sets;
mod timing;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

#[derive(clap::Args)]
pub(crate) struct HolographicArgs {
    /// How many recalls are made for each number of facts and dimension
    #[arg(long, default_value_t = 2_000)]
    recalls: usize,
    /// A folder with `notes.json`, `resolve.json` and `capacity.json` of the seed's program
    #[arg(long, value_name = "FOLDER")]
    seeds_own: Option<PathBuf>,
    /// Only search these question sets, as `nugget eval` reads them
    #[arg(long, value_name = "SET", num_args = 1..)]
    sets: Vec<PathBuf>,
}

pub(crate) fn run(args: &HolographicArgs) -> Result<Value> {
    if !args.sets.is_empty() {
        let sets = args.sets.iter().map(|set| sets::run(set)).collect::<Result<Vec<_>>>()?;
        return Ok(json!({ "sets": sets }));
    }
    let read = |name: &str| args.seeds_own.as_deref().map(|folder| read(&folder.join(name))).transpose();
    let accuracy = accuracy::run(args.recalls, read("capacity.json")?.as_ref());
    if let Some(data) = read("notes.json")? {
        order::run(&data);
    }
    if let Some(data) = read("resolve.json")? {
        keys::run(&data);
    }
    Ok(json!({ "accuracy": accuracy, "times": timing::run() }))
}

fn read(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}
