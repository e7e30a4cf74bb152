//! Measures questions to `nugget serve` over its pipes, with the question's embedding.
//!
//! The baselines run in turns with it: the question's embedding alone, BM25 by SQLite's FTS5 over the same
//! texts, and a plain scan over the same vectors. Eight sessions are eight server processes that are asked at
//! the same moment, as with eight Claude Code sessions.

use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use embed::{Embedder, TOKEN_BYTES, TokenMatcher};
use fastrand::Rng;
use index::Index;
use serde_json::{Value, json};

use super::corpus::{Corpus, SYNTHETIC};
use super::{embedder, limit, start_server};
use crate::sandbox::{McpClient, ProcessKind, Sandbox};
use crate::timing::{Durations, hundredths, processor_ms, ratio};

#[derive(clap::Args)]
pub(crate) struct SearchBenchArgs {
    /// The number of units in the brain; a unit has three chunks
    #[arg(long, default_value_t = 10_000)]
    units: usize,
    /// The number of questions for each server
    #[arg(long, default_value_t = 200)]
    queries: usize,
    /// The number of servers that are asked at once
    #[arg(long, default_value_t = 8)]
    sessions: usize,
    /// The number of questions with a pause before each, after which the server checks the brain's files first
    #[arg(long, default_value_t = 3)]
    spaced: usize,
}

/// Longer than a server relies on its last check of the files.
const PAUSE: Duration = Duration::from_millis(6_050);
/// The number of questions before the measurement, so that the model and the index are in memory.
const WARM_UP: usize = 5;
/// The number of results of each baseline, as in nugget's two searches.
const CANDIDATES: usize = 50;
/// FTS5 alone takes several times as long as nugget, and is asked only every so many questions.
const WORDS_EVERY: usize = 4;
/// The work of comparing one question with its candidates token by token: passages, tokens of each, tokens of the question.
const TOKEN_PRODUCT: [usize; 3] = [100, 150, 12];
const TOKEN_PRODUCT_ROUNDS: usize = 200;

pub(crate) fn run(args: &SearchBenchArgs, binary: &Path, seed: u64) -> Result<Value> {
    eprintln!("search --seed {seed}, {} units: {SYNTHETIC}", args.units);
    let sandbox = Sandbox::new(binary)?;
    let embedder = embedder()?;
    let corpus = Corpus::new(seed, args.units, &embedder)?;
    let started = Instant::now();
    let written = corpus.write(&sandbox)?;
    eprintln!("{} chunks written, {:.0} s", written.chunks, started.elapsed().as_secs_f64());
    let started = Instant::now();
    sandbox.run_ok(&["index"])?;
    let index_seconds = started.elapsed().as_secs_f64();
    eprintln!("indexed, {index_seconds:.0} s");

    let mut rng = Rng::with_seed(seed);
    let mut questions = || (0..args.queries).map(|_| corpus.question(&mut rng)).collect::<Vec<_>>();
    let baseline = Baseline::new(&sandbox, &corpus)?;
    let single = measure_single(&questions(), &sandbox, &embedder, &baseline)?;
    let mut spaced = Durations::default();
    let mut server = start_warm_server(&sandbox, &questions())?;
    for question in questions().iter().take(args.spaced) {
        // The pause itself is the condition; there is no event to wait for.
        std::thread::sleep(PAUSE);
        spaced.measure(|| ask(&mut server, question))?;
    }
    server.shut_down()?;
    let all: Vec<Vec<String>> = (0..args.sessions).map(|_| questions()).collect();
    let many = at_once(&all, &sandbox)?;

    let token_product = token_product(seed)?;
    let p50_max = if baseline.chunks >= 60_000 { 40.0 } else { 12.0 };
    let mut limits = json!({
        "p50_ms": limit(single.product.percentile(50), p50_max),
        "token_product_ms": limit(token_product.percentile(50), 3.0),
        "at_once_p99_to_single_p99": limit(many.percentile(99) / single.product.percentile(99), 4.0),
    });
    if baseline.chunks < 60_000 {
        limits["p99_ms"] = limit(single.product.percentile(99), 30.0);
    }
    Ok(json!({
        "units": args.units, "chunks": baseline.chunks,
        "markdown_mb": hundredths(written.bytes as f64 / 1e6), "brain": SYNTHETIC,
        "first_index_seconds": hundredths(index_seconds),
        "answers_with_units": hundredths(single.answered as f64 / args.queries.max(1) as f64),
        "get_relevant_context": single.product.summary(),
        "processor_ms_of_a_question": hundredths(single.processor_ms),
        "after_a_pause": spaced.summary(),
        "at_once": many.summary(),
        "baseline_embedding": single.embedding.summary(),
        "baseline_fts5": single.words.summary(),
        "baseline_plain_scan": single.scan.summary(),
        "token_product": token_product.summary(),
        "p50_to_embedding": ratio(&single.product, &single.embedding, 50),
        "p50_to_fts5": ratio(&single.product, &single.words, 50),
        "p50_to_plain_scan": ratio(&single.product, &single.scan, 50),
        "at_once_sessions": args.sessions,
        "at_once_p99_to_single_p99": ratio(&many, &single.product, 99),
        "limits": limits,
    }))
}

/// Starts a server and asks it a few questions.
fn start_warm_server(sandbox: &Sandbox, questions: &[String]) -> Result<McpClient> {
    let mut server = start_server(sandbox)?;
    for question in questions.iter().take(WARM_UP) {
        ask(&mut server, question)?;
    }
    Ok(server)
}

fn ask(server: &mut McpClient, question: &str) -> Result<String> {
    server.ask(question)?.context("the server was killed")
}

#[derive(Default)]
struct Single {
    product: Durations,
    embedding: Durations,
    words: Durations,
    scan: Durations,
    answered: usize,
    /// The processor time of all server threads for one question, which other load changes little.
    processor_ms: f64,
}

/// Asks one server, in turns with the baselines, so that other load on the computer affects all alike.
fn measure_single(
    questions: &[String],
    sandbox: &Sandbox,
    embedder: &Embedder,
    baseline: &Baseline,
) -> Result<Single> {
    let mut single = Single::default();
    let mut server = start_warm_server(sandbox, questions)?;
    let process = sandbox.processes().into_iter().find(|process| process.kind == ProcessKind::Server);
    let pid = process.context("no server runs")?.pid.as_raw_nonzero().to_string();
    let before = processor_ms(&pid)?.0;
    for (number, question) in questions.iter().enumerate() {
        let answer = single.product.measure(|| ask(&mut server, question))?;
        single.answered += usize::from(answer.contains("domains/") || answer.contains("confidence"));
        let vector = single.embedding.measure(|| Ok(embedder.embed_query(question)?.vector))?;
        if number.is_multiple_of(WORDS_EVERY) {
            single.words.measure(|| baseline.words(question))?;
        }
        single.scan.measure(|| Ok(baseline.scan(&vector)))?;
    }
    single.processor_ms = (processor_ms(&pid)?.0 - before) / questions.len().max(1) as f64;
    server.shut_down()?;
    Ok(single)
}

/// Compares a question with as many candidates as it has, token by token, on one thread.
fn token_product(seed: u64) -> Result<Durations> {
    let [passages, tokens, question_tokens] = TOKEN_PRODUCT;
    let mut rng = Rng::with_seed(seed);
    let mut packed = |tokens: usize| {
        let mut bytes = vec![0; tokens * TOKEN_BYTES];
        rng.fill(&mut bytes);
        bytes
    };
    let matcher = TokenMatcher::new(&packed(question_tokens), &vec![1.0; question_tokens]);
    let matcher = matcher.context("a question without tokens")?;
    let passages: Vec<Vec<u8>> = (0..passages).map(|_| packed(tokens)).collect();
    let mut times = Durations::default();
    for _ in 0..TOKEN_PRODUCT_ROUNDS {
        let sum =
            times.measure(|| Ok(passages.iter().map(|passage| matcher.similarity(passage)).sum::<f64>()))?;
        ensure!(sum.is_finite(), "not a number");
    }
    Ok(times)
}

fn at_once(questions: &[Vec<String>], sandbox: &Sandbox) -> Result<Durations> {
    let servers =
        questions.iter().map(|asked| start_warm_server(sandbox, asked)).collect::<Result<Vec<_>>>()?;
    let barrier = Barrier::new(servers.len());
    let measured = std::thread::scope(|scope| {
        let threads: Vec<_> = servers
            .into_iter()
            .zip(questions)
            .map(|(mut server, asked)| {
                let barrier = &barrier;
                scope.spawn(move || -> Result<Durations> {
                    let mut times = Durations::default();
                    let mut failed = None;
                    for question in asked {
                        // A thread that has failed must still wait, or the others would block.
                        barrier.wait();
                        if failed.is_none() {
                            failed = times.measure(|| ask(&mut server, question)).err();
                        }
                    }
                    failed.map_or(Ok(times), Err)
                })
            })
            .collect();
        let panicked = |_| anyhow::anyhow!("a session's thread panicked");
        threads.into_iter().map(|thread| thread.join().map_err(panicked)?).collect::<Result<Vec<_>>>()
    })?;
    Ok(Durations(measured.into_iter().flat_map(|times| times.0).collect()))
}

/// The simplest searches over the same texts and vectors.
pub(super) struct Baseline {
    database: rusqlite::Connection,
    rows: Vec<i64>,
    dimensions: usize,
    /// `[chunks, dimensions]`
    vectors: Vec<f32>,
    pub(super) chunks: usize,
}

impl Baseline {
    fn new(sandbox: &Sandbox, corpus: &Corpus) -> Result<Self> {
        let pinned = Index::open(&sandbox.brain().join(".nugget"))?.pin()?;
        let dimensions = corpus.label().dimensions;
        let mut database = rusqlite::Connection::open(sandbox.path("baseline.db"))?;
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
