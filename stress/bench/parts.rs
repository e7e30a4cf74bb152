//! Measures the processor time of each part of a question on one thread, which other load on the computer
//! changes little.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use fastrand::Rng;
use index::Index;
use jiff::Timestamp;
use retrieve::Query;
use serde_json::{Value, json};

use super::corpus::Corpus;
use super::embedder;
use crate::timing::hundredths;

#[derive(clap::Args)]
pub(crate) struct PartsBenchArgs {
    /// A brain that another benchmark has left
    brain: PathBuf,
    /// The number of units in it
    #[arg(long, default_value_t = 10_000)]
    units: usize,
    /// The number of questions
    #[arg(long, default_value_t = 100)]
    queries: usize,
}

pub(crate) fn run(args: &PartsBenchArgs, seed: u64) -> Result<Value> {
    let embedder = embedder()?;
    let corpus = Corpus::new(seed, args.units, &embedder)?;
    let index = Index::open(&args.brain.join(".nugget"))?;
    let mut parts: BTreeMap<&str, f64> = BTreeMap::new();
    let mut add = |part: &'static str, ms: f64| *parts.entry(part).or_default() += ms;
    let before = thread_ms()?;
    drop(index.pin()?);
    let first = thread_ms()? - before;
    let mut rng = Rng::with_seed(seed);
    for _ in 0..args.queries {
        let text = corpus.question(&mut rng);
        let begun = thread_ms()?;
        let embedding = Some(embedder.embed_query(&text)?);
        let embedded = thread_ms()?;
        add("embed", embedded - begun);
        let pinned = index.pin()?;
        let query = Query::new(text, Timestamp::now()).with_embedding(embedding);
        let answer = retrieve::retrieve(&pinned, &query, embedder.tokenizer())?;
        add("retrieve", thread_ms()? - embedded);
        for stage in answer.stages {
            add(stage.name, stage.micros as f64 / 1000.0);
        }
    }
    let parts: serde_json::Map<String, Value> = parts
        .into_iter()
        .map(|(part, ms)| (part.to_owned(), hundredths(ms / args.queries as f64).into()))
        .collect();
    Ok(json!({ "first_pin_ms": hundredths(first), "mean_ms": parts }))
}

/// The processor time of this thread in milliseconds.
fn thread_ms() -> Result<f64> {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: f64 = line.split(' ').next().context("an empty schedstat")?.parse()?;
    Ok(nanoseconds / 1e6)
}
