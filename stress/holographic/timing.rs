//! Times recall of a fact and search among notes, and prints the memory in use.

use holographic::{FactLayout, FactStore, NOTE_DIMENSION, NoteIndex, NoteText};
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::{Duration, Instant};

const RUNS: usize = 1_000;

/// The bar of a recall at 16,384 dimensions, in milliseconds.
const RECALL_MS_MAX: f64 = 1.0;

/// Prints the tables; returns the median of a recall among 2,000 facts.
pub(crate) fn run() -> Value {
    println!("facts at 16,384 dimensions: microseconds, median and 99th percentile of {RUNS}");
    println!("facts   recall p50    p99   inexact p50    unknown p50   load ms   memory KiB");
    let mut recall_ms = 0.0;
    for facts in [10, 50, 100, 200, 500, 1_000, 2_000] {
        recall_ms = time_facts(facts) as f64 / 1e3;
    }
    println!();
    println!("notes: microseconds, median and 99th percentile of {RUNS}");
    println!("notes   dimension   search p50    p99   insert p50   load ms   memory KiB");
    for dimension in [NOTE_DIMENSION, 4_096, 16_384] {
        for notes in [200, 2_000] {
            time_notes(notes, dimension);
        }
    }
    println!();
    json!({ "recall_of_2000_facts_p50_ms": recall_ms, "held": recall_ms < RECALL_MS_MAX })
}

/// The median in microseconds.
fn time_facts(count: usize) -> u128 {
    let started = Instant::now();
    let mut store = FactStore::with_layout(FactLayout::default());
    for i in 0..count {
        store.remember(&fact_key(i), &format!("the value of fact {i}, some twenty or thirty bytes"));
    }
    let load = started.elapsed();
    let recalls = times(|run| store.recall(&fact_key(run * 7919 % count)).map(|found| found.confidence));
    let inexact = times(|run| {
        let key = fact_key(run * 7919 % count);
        store.recall(&key.replacen("rt", "tr", 1)).map(|found| found.confidence)
    });
    let unknown = times(|_| store.recall("granite garden walls").map(|found| found.confidence));
    println!(
        "{count:>5} {:>12} {:>6} {:>14} {:>13} {:>9} {:>12}",
        percentile(&recalls, 50),
        percentile(&recalls, 99),
        percentile(&inexact, 50),
        percentile(&unknown, 50),
        load.as_millis(),
        store.memory_bytes() / 1024,
    );
    percentile(&recalls, 50)
}

fn fact_key(i: usize) -> String {
    let places = ["staging", "review", "production", "nightly", "local"];
    format!("{} port of service {i}", places[i % places.len()])
}

fn time_notes(count: usize, dimension: usize) {
    let started = Instant::now();
    let mut index = NoteIndex::with_dimension(dimension);
    (0..count).for_each(|i| index.insert(&note(i)));
    let load = started.elapsed();
    let searches =
        times(|run| index.search(&format!("why does part{} fail on port{}", run % 97, run % 31), 5).len());
    let inserts = times(|run| index.insert(&note(run % count)));
    println!(
        "{count:>5} {dimension:>11} {:>12} {:>6} {:>12} {:>9} {:>12}",
        percentile(&searches, 50),
        percentile(&searches, 99),
        percentile(&inserts, 50),
        load.as_millis(),
        index.memory_bytes() / 1024,
    );
}

/// A note with a content of about 1,000 bytes.
fn note(i: usize) -> NoteText {
    let sentence = |k: usize| {
        let n = i * 31 + k * 17;
        format!("Part{} waits for port{} when worker{} restarts, unless step{n} ran.", n % 97, n % 31, n % 53)
    };
    NoteText {
        id: format!("note-{i}"),
        title: format!("Part{} and port{}", i % 97, i % 31),
        content: (0..16).map(sentence).collect::<Vec<_>>().join(" "),
        tags: vec![format!("part{}", i % 97), "ports".into()],
        kind: "note".into(),
        durable: true,
        confidence: 0.9,
        ..NoteText::default()
    }
}

fn times<T>(work: impl FnMut(usize) -> T) -> Vec<Duration> {
    let mut work = work;
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|run| {
            let started = Instant::now();
            black_box(work(run));
            started.elapsed()
        })
        .collect();
    times.sort_unstable();
    times
}

fn percentile(sorted: &[Duration], percent: usize) -> u128 {
    sorted[(sorted.len() - 1) * percent / 100].as_micros()
}
