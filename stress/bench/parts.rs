//! What a question costs part by part, in the processor's time of one thread: a figure that neighbours on
//! the machine do not change.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use index::Index;
use jiff::Timestamp;
use retrieve::Query;
use serde_json::{Value, json};

use super::corpus::Corpus;
use super::{RuntimeArguments, embedder};
use crate::machine::Random;
use crate::times::hundredths;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The brain that was left by another bench
    brain: PathBuf,
    /// How many units it has
    #[arg(long, default_value_t = 10_000)]
    units: usize,
    /// How many questions
    #[arg(long, default_value_t = 100)]
    queries: usize,
    #[command(flatten)]
    runtime: RuntimeArguments,
}

pub(crate) fn run(arguments: &Arguments, seed: u64) -> Result<Value> {
    let embedder = embedder(arguments.runtime.best().1)?;
    let corpus = Corpus::new(seed, arguments.units, &embedder)?;
    let index = Index::open(&arguments.brain.join(".nugget"))?;
    let mut parts: BTreeMap<&str, f64> = BTreeMap::new();
    let mut took = |part: &'static str, ms: f64| *parts.entry(part).or_default() += ms;
    let before = thread_ms()?;
    drop(index.pin()?);
    let first = thread_ms()? - before;
    let mut random = Random::new(seed);
    for _ in 0..arguments.queries {
        let text = corpus.question(&mut random);
        let begun = thread_ms()?;
        let vector = Some(embedder.embed_query(&text)?);
        let embedded = thread_ms()?;
        took("embed", embedded - begun);
        let pinned = index.pin()?;
        let query = Query { vector, ..Query::new(text, Timestamp::now()) };
        let answer = retrieve::retrieve(&pinned, &query, embedder.tokenizer())?;
        took("retrieve", thread_ms()? - embedded);
        for stage in answer.stages {
            took(stage.name, stage.micros as f64 / 1000.0);
        }
    }
    let parts: serde_json::Map<String, Value> = parts
        .into_iter()
        .map(|(part, ms)| (part.to_owned(), hundredths(ms / arguments.queries as f64).into()))
        .collect();
    Ok(json!({ "first_pin_ms": hundredths(first), "mean_ms": parts }))
}

/// Processor time of this thread so far.
fn thread_ms() -> Result<f64> {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: f64 = line.split(' ').next().context("an empty schedstat")?.parse()?;
    Ok(nanoseconds / 1e6)
}
