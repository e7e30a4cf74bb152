//! Questions to `nugget serve` over its pipes, the question's embedding included.
//!
//! Beside it, in turns: the embedding of the question alone, BM25 alone by SQLite's FTS5 over the same
//! texts, and a plain scan over the same vectors. Eight sessions are eight processes, as with eight
//! Claude Codes; they ask at the same moment, again and again.

use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use embed::Embedder;
use index::Index;
use serde_json::{Value, json};

use super::corpus::{Corpus, MADE};
use super::{RuntimeArguments, bar, client, embedder, machine};
use crate::machine::{Client, Kind, Machine, Random};
use crate::times::{Times, hundredths, processor_ms, ratio};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many units the brain has; a unit has three chunks
    #[arg(long, default_value_t = 10_000)]
    units: usize,
    /// How many questions one server is asked
    #[arg(long, default_value_t = 400)]
    queries: usize,
    /// How many servers are asked at once
    #[arg(long, default_value_t = 8)]
    sessions: usize,
    /// How many questions are asked with a pause before each, as sessions do: the server then looks at
    /// the brain's files first
    #[arg(long, default_value_t = 20)]
    spaced: usize,
    #[command(flatten)]
    runtime: RuntimeArguments,
}

/// Longer than a server trusts its last look at the files.
const PAUSE: Duration = Duration::from_millis(6_050);
/// Questions before the clock runs: the model and the index are then in memory.
const WARM: usize = 5;
/// How many candidates each baseline gives, as the product's two searches do.
const CANDIDATES: usize = 50;

pub(crate) fn run(arguments: &Arguments, program: &Path, seed: u64) -> Result<Value> {
    let (runtime, library) = arguments.runtime.best();
    eprintln!("search --seed {seed}, {} units, {runtime}: {MADE}", arguments.units);
    let machine = machine(program, library)?;
    let embedder = embedder(library)?;
    let corpus = Corpus::new(seed, arguments.units, &embedder)?;
    let begun = Instant::now();
    let written = corpus.write(&machine)?;
    eprintln!("{} chunks written, {:.0} s", written.chunks, begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    machine.ok(&["index"])?;
    let index_seconds = begun.elapsed().as_secs_f64();
    eprintln!("indexed, {index_seconds:.0} s");

    let mut random = Random::new(seed);
    let mut questions = || (0..arguments.queries).map(|_| corpus.question(&mut random)).collect::<Vec<_>>();
    let baseline = Baseline::new(&machine, &corpus)?;
    let single = alone(&questions(), &machine, &embedder, &baseline)?;
    let mut spaced = Times::default();
    let mut server = warm(&machine, &questions())?;
    for question in questions().iter().take(arguments.spaced) {
        // What is measured is what happens after a pause; there is nothing to wait for.
        std::thread::sleep(PAUSE);
        spaced.take(|| ask(&mut server, question))?;
    }
    server.end()?;
    let all: Vec<Vec<String>> = (0..arguments.sessions).map(|_| questions()).collect();
    let many = at_once(&all, &machine)?;

    let p50_max = if baseline.chunks >= 60_000 { 40.0 } else { 25.0 };
    let mut bars = json!({
        "p50_ms": bar(single.product.percentile(50), p50_max),
        "at_once_p99_to_single_p99": bar(many.percentile(99) / single.product.percentile(99), 4.0),
    });
    if baseline.chunks < 60_000 {
        bars["p99_ms"] = bar(single.product.percentile(99), 60.0);
    }
    Ok(json!({
        "runtime": runtime, "units": arguments.units, "chunks": baseline.chunks,
        "markdown_mb": hundredths(written.bytes as f64 / 1e6), "brain": MADE,
        "first_index_seconds": hundredths(index_seconds),
        "answers_with_units": hundredths(single.answered as f64 / arguments.queries.max(1) as f64),
        "get_relevant_context": single.product.told(),
        "processor_ms_of_a_question": hundredths(single.processor_ms),
        "after_a_pause": spaced.told(),
        "at_once": many.told(),
        "baseline_embedding": single.embedding.told(),
        "baseline_fts5": single.words.told(),
        "baseline_plain_scan": single.scan.told(),
        "p50_to_embedding": ratio(&single.product, &single.embedding, 50),
        "p50_to_fts5": ratio(&single.product, &single.words, 50),
        "p50_to_plain_scan": ratio(&single.product, &single.scan, 50),
        "at_once_sessions": arguments.sessions,
        "at_once_p99_to_single_p99": ratio(&many, &single.product, 99),
        "bars": bars,
    }))
}

/// A server that has answered a few questions.
fn warm(machine: &Machine, questions: &[String]) -> Result<Client> {
    let mut server = client(machine)?;
    for question in questions.iter().take(WARM) {
        ask(&mut server, question)?;
    }
    Ok(server)
}

fn ask(server: &mut Client, question: &str) -> Result<String> {
    server.ask(question)?.context("the server was killed")
}

#[derive(Default)]
struct Single {
    product: Times,
    embedding: Times,
    words: Times,
    scan: Times,
    answered: usize,
    /// Processor time of the server for one question, all its threads: what neighbours do not change.
    processor_ms: f64,
}

/// One server, and the baselines in turns with it, so that a noisy neighbour falls upon all alike.
fn alone(
    questions: &[String],
    machine: &Machine,
    embedder: &Embedder,
    baseline: &Baseline,
) -> Result<Single> {
    let mut single = Single::default();
    let mut server = warm(machine, questions)?;
    let process = machine.processes().into_iter().find(|process| process.kind == Kind::Server);
    let pid = process.context("there is no server")?.pid.as_raw_nonzero().to_string();
    let before = processor_ms(&pid)?.0;
    for question in questions {
        let answer = single.product.take(|| ask(&mut server, question))?;
        single.answered += usize::from(answer.contains("domains/") || answer.contains("confidence"));
        let vector = single.embedding.take(|| Ok(embedder.embed_query(question)?))?;
        single.words.take(|| baseline.words(question))?;
        single.scan.take(|| Ok(baseline.scan(&vector)))?;
    }
    single.processor_ms = (processor_ms(&pid)?.0 - before) / questions.len().max(1) as f64;
    server.end()?;
    Ok(single)
}

fn at_once(questions: &[Vec<String>], machine: &Machine) -> Result<Times> {
    let servers = questions.iter().map(|asked| warm(machine, asked)).collect::<Result<Vec<_>>>()?;
    let barrier = Barrier::new(servers.len());
    let taken = std::thread::scope(|scope| {
        let threads: Vec<_> = servers
            .into_iter()
            .zip(questions)
            .map(|(mut server, asked)| {
                let barrier = &barrier;
                scope.spawn(move || -> Result<Times> {
                    let mut times = Times::default();
                    let mut failed = None;
                    for question in asked {
                        // All wait for all, also one that has failed.
                        barrier.wait();
                        if failed.is_none() {
                            failed = times.take(|| ask(&mut server, question)).err();
                        }
                    }
                    failed.map_or(Ok(times), Err)
                })
            })
            .collect();
        let fell = |_| anyhow::anyhow!("a session's thread fell");
        threads.into_iter().map(|thread| thread.join().map_err(fell)?).collect::<Result<Vec<_>>>()
    })?;
    Ok(Times(taken.into_iter().flat_map(|times| times.0).collect()))
}

/// The same texts and vectors, searched as plainly as can be.
pub(super) struct Baseline {
    database: rusqlite::Connection,
    rows: Vec<i64>,
    dimensions: usize,
    /// `[chunks, dimensions]`
    vectors: Vec<f32>,
    pub(super) chunks: usize,
}

impl Baseline {
    fn new(machine: &Machine, corpus: &Corpus) -> Result<Self> {
        let pinned = Index::open(&machine.brain().join(".nugget"))?.pin()?;
        let dimensions = corpus.label().dimensions;
        let mut database = rusqlite::Connection::open(machine.path("baseline.db"))?;
        database.execute_batch(
            "PRAGMA journal_mode = WAL;
             CREATE VIRTUAL TABLE words USING fts5(text, tokenize = 'porter unicode61', content = '');",
        )?;
        let (mut rows, mut vectors) = (Vec::new(), Vec::new());
        let transaction = database.transaction()?;
        for unit in pinned.units()? {
            for chunk in pinned.chunks_of(&unit.id)? {
                let text = format!("{}\n{}", chunk.breadcrumb, chunk.text);
                transaction
                    .prepare_cached("INSERT INTO words(rowid, text) VALUES (?1, ?2)")?
                    .execute(rusqlite::params![chunk.row.0, text])?;
                rows.push(chunk.row.0);
                vectors.extend(pinned.vector(chunk.row).context("a chunk without a vector")?);
            }
        }
        transaction.commit()?;
        ensure!(rows.len() == pinned.chunks_count(), "chunks without a unit");
        Ok(Self { database, chunks: rows.len(), rows, dimensions, vectors })
    }

    fn words(&self, question: &str) -> Result<Vec<i64>> {
        let words = question.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        let query = words.map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" OR ");
        let mut statement = self
            .database
            .prepare_cached("SELECT rowid FROM words WHERE words MATCH ?1 ORDER BY rank LIMIT ?2")?;
        let rows = statement.query_map((query, CANDIDATES), |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    fn scan(&self, query: &[f32]) -> Vec<i64> {
        let dot = |row: &[f32]| row.iter().zip(query).map(|(a, b)| a * b).sum::<f32>();
        let mut scores: Vec<(f32, i64)> =
            self.vectors.chunks_exact(self.dimensions).map(dot).zip(self.rows.iter().copied()).collect();
        scores.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        scores.into_iter().take(CANDIDATES).map(|(_, row)| row).collect()
    }
}
