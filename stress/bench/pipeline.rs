//! Measures the index: a build without the model, the model's share of a real build, one changed file, and
//! opening an unchanged brain.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use brain::Brain;
use embed::{Embedder, TOKEN_BYTES};
use fastrand::Rng;
use index::{Index, Mode, VectorCache};
use serde_json::{Value, json};

use super::corpus::{Corpus, SYNTHETIC, put_file, vector_cache_path};
use super::{embedder, limit, start_server};
use crate::sandbox::Sandbox;
use crate::timing::{Durations, hundredths};

#[derive(clap::Args)]
pub(crate) struct IndexBenchArgs {
    /// The number of units in the brain
    #[arg(long, default_value_t = 10_000)]
    units: usize,
    /// The number of units that the model embeds to measure its share; a unit has three chunks
    #[arg(long, default_value_t = 100)]
    embedded: usize,
    /// How many times one file is changed
    #[arg(long, default_value_t = 20)]
    changes: usize,
}

const MEGABYTES_PER_SECOND_MIN: f64 = 20.0;
const SHARE_MIN: f64 = 0.9;
const CHANGED_MS_MAX: f64 = 100.0;
const OPEN_MS_MAX: f64 = 100.0;
/// The growth of the index by the vector of a token.
const BYTES_PER_TOKEN_MAX: f64 = 34.0;
const ROUNDS: usize = 3;
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn run(args: &IndexBenchArgs, binary: &Path, seed: u64) -> Result<Value> {
    eprintln!("index --seed {seed}, {} units: {SYNTHETIC}", args.units);
    let sandbox = Sandbox::new(binary)?;
    let embedder = embedder()?;
    let corpus = Corpus::new(seed, args.units, &embedder)?;
    let written = corpus.write(&sandbox)?;
    let megabytes = written.bytes as f64 / 1e6;
    let brain = Brain::open(&sandbox.brain())?;

    // Each phase as the indexing actor calls it, and the whole build as a process.
    let (mut plan, mut publish, mut process, mut read) =
        (Durations::default(), Durations::default(), Durations::default(), Durations::default());
    let folder = sandbox.brain().join(".nugget");
    for _ in 0..ROUNDS {
        read.measure(|| read_all(&brain))?;
        // Without an existing index, which a rebuild would also check.
        let _ = std::fs::remove_dir_all(&folder);
        let index = Index::open(&folder)?;
        let planned = plan.measure(|| {
            Ok(index.plan(&brain, corpus.label(), embedder.tokenizer(), Mode::Rebuild, &mut |_| ())?)
        })?;
        let vectors = VectorCache::open(&vector_cache_path(&sandbox)).get(corpus.label(), planned.texts());
        let vectors =
            vectors.into_iter().collect::<Option<Vec<_>>>().context("a vector is not in the cache")?;
        publish.measure(|| Ok(planned.publish(vectors)?))?;
    }
    for _ in 0..ROUNDS {
        process.measure_ok(|| Ok(sandbox.run(&["index", "--rebuild"])?.status.success()))?;
    }
    let rate = |ms: f64| megabytes / (ms / 1000.0);
    let pipeline_ms = plan.percentile(50) + publish.percentile(50);

    let growth = growth_by_tokens(&sandbox, &corpus, &brain, &embedder)?;
    let unchanged = open_unchanged(&brain, &folder, &corpus)?;
    let (changed, searchable) = change_one_file(args, &sandbox, &corpus, &brain, &embedder)?;
    let share = share_of_model(args, binary, &corpus)?;

    Ok(json!({
        "units": args.units, "chunks": written.chunks,
        "markdown_mb": hundredths(megabytes), "brain": SYNTHETIC,
        "pipeline_mb_per_s": hundredths(rate(pipeline_ms)),
        "plan": plan.summary(), "publish": publish.summary(),
        "baseline_reading_and_hashing": read.summary(),
        "pipeline_to_reading_and_hashing": hundredths(pipeline_ms / read.percentile(50)),
        "process_with_all_vectors_cached": process.summary(),
        "process_mb_per_s": hundredths(rate(process.percentile(50))),
        "model_share_of_a_real_build": share,
        "growth_by_tokens": growth,
        "one_changed_file": changed.summary(),
        "one_changed_file_searchable_at_a_server": searchable.summary(),
        "unchanged_brain_opens": unchanged.summary(),
        "limits": {
            "pipeline_mb_per_s": { "measured": hundredths(rate(pipeline_ms)), "limit": MEGABYTES_PER_SECOND_MIN,
                                   "held": rate(pipeline_ms) >= MEGABYTES_PER_SECOND_MIN },
            "model_share": { "measured": share["share"], "limit": SHARE_MIN,
                             "held": share["share"].as_f64().is_some_and(|share| share >= SHARE_MIN) },
            "bytes_per_token": { "measured": growth["bytes_per_token"], "limit": BYTES_PER_TOKEN_MAX,
                                 "held": growth["bytes_per_token"].as_f64().is_some_and(|bytes| bytes <= BYTES_PER_TOKEN_MAX) },
            "one_changed_file_ms": limit(searchable.percentile(50), CHANGED_MS_MAX),
            "unchanged_brain_opens_ms": limit(unchanged.percentile(50), OPEN_MS_MAX),
        },
    }))
}

/// The baseline of any indexer: every file is read and hashed.
fn read_all(brain: &Brain) -> Result<()> {
    let mut hasher = blake3::Hasher::new();
    for file in brain.files()? {
        hasher.update(brain.read(&file.path)?.as_bytes());
    }
    ensure!(hasher.finalize().as_bytes().iter().any(|byte| *byte != 0), "no hash");
    Ok(())
}

/// Builds the index with and without the vectors of the tokens, and compares the files.
fn growth_by_tokens(sandbox: &Sandbox, corpus: &Corpus, brain: &Brain, embedder: &Embedder) -> Result<Value> {
    let build = |name: &str, keep_tokens: bool| -> Result<(u64, usize, Durations)> {
        let folder = sandbox.path(name);
        let index = Index::open(&folder)?;
        let plan = index.plan(brain, corpus.label(), embedder.tokenizer(), Mode::Rebuild, &mut |_| ())?;
        let found = VectorCache::open(&vector_cache_path(sandbox)).get(corpus.label(), plan.texts());
        let mut embeddings = found.into_iter().collect::<Option<Vec<_>>>().context("a vector is missing")?;
        if !keep_tokens {
            embeddings.iter_mut().for_each(|embedding| embedding.tokens.clear());
        }
        let tokens = embeddings.iter().map(|embedding| embedding.tokens.len() / TOKEN_BYTES).sum();
        let mut publish = Durations::default();
        publish.measure(|| Ok(plan.publish(embeddings)?))?;
        drop(index);
        let file = folder.join("index.db");
        let database = rusqlite::Connection::open(&file)?;
        database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok((std::fs::metadata(&file)?.len(), tokens, publish))
    };
    let (without, _, publish_without) = build("without-tokens", false)?;
    let (with, tokens, publish_with) = build("with-tokens", true)?;
    Ok(json!({
        "tokens": tokens,
        "bytes_per_token": hundredths(with.saturating_sub(without) as f64 / tokens.max(1) as f64),
        "publish_ms": hundredths(publish_with.percentile(50)),
        "publish_without_ms": hundredths(publish_without.percentile(50)),
    }))
}

/// Opens the index and checks that it is current, each time as a new process would.
fn open_unchanged(brain: &Brain, folder: &Path, corpus: &Corpus) -> Result<Durations> {
    let mut times = Durations::default();
    // The first check records that no file was written just now.
    for _ in 0..2 {
        Index::open(folder)?.is_current(brain, corpus.label())?;
    }
    for _ in 0..20 {
        times.measure(|| {
            let index = Index::open(folder)?;
            ensure!(
                index.is_current(brain, corpus.label())?,
                "the index of an unchanged brain is not current"
            );
            Ok(())
        })?;
    }
    Ok(times)
}

/// Changes one file, and measures the time until a generation contains it and until a server answers with it.
/// The vectors of the new text are in the cache.
fn change_one_file(
    args: &IndexBenchArgs,
    sandbox: &Sandbox,
    corpus: &Corpus,
    brain: &Brain,
    embedder: &Embedder,
) -> Result<(Durations, Durations)> {
    let (mut alone, mut served) = (Durations::default(), Durations::default());
    let mut rng = Rng::with_seed(7);
    // Returns the unit's title.
    let mut write = |edition: u64, mark: &str| -> Result<String> {
        let mut file = corpus.unit_edition(rng.usize(..args.units), edition);
        let title = file.text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default().to_owned();
        file.text.push_str(&format!("\n## The {mark} {mark}\n\n{mark} is what the {mark} of {mark} is.\n"));
        corpus.cache_vectors(sandbox, &file)?;
        put_file(&sandbox.brain(), &file)?;
        Ok(title)
    };
    let index = Index::open(&sandbox.brain().join(".nugget"))?;
    for edition in 0..args.changes as u64 {
        write(1 + edition, &format!("zq{edition}x"))?;
        alone.measure(|| {
            ensure!(!index.is_current(brain, corpus.label())?, "the change was not detected");
            let plan = index.plan(brain, corpus.label(), embedder.tokenizer(), Mode::Changed, &mut |_| ())?;
            let vectors = plan.texts().iter().map(|text| corpus.embedding(text)).collect();
            plan.publish(vectors)?;
            ensure!(
                index.pin()?.document_frequency(&format!("zq{edition}x"))? > 0,
                "the change is not in the index"
            );
            Ok(())
        })?;
    }
    let mut server = start_server(sandbox)?;
    let mut questions = Rng::with_seed(11);
    server.ask(&corpus.question(&mut questions))?.context("the server was killed")?;
    for edition in 0..args.changes as u64 {
        let mark = format!("zw{edition}x");
        // After this time the server checks the files before it answers.
        std::thread::sleep(Duration::from_millis(6_050));
        let title = write(1_000 + edition, &mark)?;
        // With the title: the vectors of made text are too far from a question of one unknown word.
        let question = format!("{title}: what is {mark}, the {mark} of {mark}?");
        let started = Instant::now();
        loop {
            let answer = server.ask(&question)?.context("the server was killed")?;
            if answer.contains(&mark) {
                break;
            }
            ensure!(started.elapsed() < TIMEOUT, "the changed file was not found: {answer}");
        }
        let until_found = started.elapsed().as_secs_f64() * 1000.0;
        // Subtract what the same question takes without a change.
        let started = Instant::now();
        server.ask(&question)?.context("the server was killed")?;
        served.0.push(until_found - started.elapsed().as_secs_f64() * 1000.0);
    }
    server.shut_down()?;
    Ok((alone, served))
}

/// Builds the same index with the model and with cached vectors, each in a process.
fn share_of_model(args: &IndexBenchArgs, binary: &Path, corpus: &Corpus) -> Result<Value> {
    let sandbox = Sandbox::new(binary)?;
    let mut chunks = 0;
    for nth in 0..args.embedded.min(args.units) {
        let file = corpus.unit(nth);
        chunks += corpus.texts(&file)?.len();
        put_file(&sandbox.brain(), &file)?;
    }
    let (mut with, mut without) = (Durations::default(), Durations::default());
    with.measure_ok(|| Ok(sandbox.run(&["index", "--rebuild"])?.status.success()))?;
    for _ in 0..ROUNDS {
        without.measure_ok(|| Ok(sandbox.run(&["index", "--rebuild"])?.status.success()))?;
    }
    let (with, without) = (with.percentile(50), without.percentile(50));
    Ok(json!({
        "chunks": chunks, "with_the_model_ms": hundredths(with), "vectors_cached_ms": hundredths(without),
        "chunks_per_s": hundredths(chunks as f64 / (with / 1000.0)),
        "share": hundredths((1.0 - without / with) * 100.0) / 100.0,
    }))
}
