//! Making the index: the pipeline without the model, the model's share of a real build, one changed
//! file, and opening a brain in which nothing has changed.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use brain::Brain;
use embed::Embedder;
use index::{Index, Mode, VectorCache};
use serde_json::{Value, json};

use super::corpus::{Corpus, MADE, cache_of, put_file};
use super::{RuntimeArguments, bar, client, embedder, machine};
use crate::machine::{Machine, Random};
use crate::times::{Times, hundredths};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many units the brain has
    #[arg(long, default_value_t = 10_000)]
    units: usize,
    /// How many units are embedded by the model for its share; a unit has three chunks
    #[arg(long, default_value_t = 100)]
    embedded: usize,
    /// How often one file is changed
    #[arg(long, default_value_t = 20)]
    changes: usize,
    #[command(flatten)]
    runtime: RuntimeArguments,
}

const MEGABYTES_PER_SECOND_MIN: f64 = 20.0;
const SHARE_MIN: f64 = 0.9;
const CHANGED_MS_MAX: f64 = 100.0;
const OPEN_MS_MAX: f64 = 100.0;
const ROUNDS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn run(arguments: &Arguments, program: &Path, seed: u64) -> Result<Value> {
    let (runtime, library) = arguments.runtime.best();
    eprintln!("index --seed {seed}, {} units, {runtime}: {MADE}", arguments.units);
    let machine = machine(program, library)?;
    let embedder = embedder(library)?;
    let corpus = Corpus::new(seed, arguments.units, &embedder)?;
    let written = corpus.write(&machine)?;
    let megabytes = written.bytes as f64 / 1e6;
    let brain = Brain::open(&machine.brain())?;

    // Each phase on its own, as the indexing actor calls them, and the whole as the program does it.
    let (mut plan, mut publish, mut process, mut read) =
        (Times::default(), Times::default(), Times::default(), Times::default());
    let folder = machine.brain().join(".nugget");
    for _ in 0..ROUNDS {
        read.take(|| read_all(&brain))?;
        // From nothing, as a first build: one over an index that is there also proves that one sound.
        let _ = std::fs::remove_dir_all(&folder);
        let index = Index::open(&folder)?;
        let planned = plan.take(|| {
            Ok(index.plan(&brain, corpus.label(), embedder.tokenizer(), Mode::Rebuild, &mut |_| ())?)
        })?;
        let vectors = VectorCache::open(&cache_of(&machine)).get(corpus.label(), planned.texts());
        let vectors =
            vectors.into_iter().collect::<Option<Vec<_>>>().context("a vector is not in the cache")?;
        publish.take(|| Ok(planned.publish(vectors)?))?;
    }
    for _ in 0..ROUNDS {
        process.time(|| Ok(machine.run(&["index", "--rebuild"])?.status.success()))?;
    }
    let rate = |ms: f64| megabytes / (ms / 1000.0);
    let pipeline_ms = plan.percentile(50) + publish.percentile(50);

    let unchanged = open_unchanged(&brain, &folder, &corpus)?;
    let (changed, searchable) = change(arguments, &machine, &corpus, &brain, &embedder)?;
    let share = share_of_model(arguments, program, library, &corpus)?;

    Ok(json!({
        "runtime": runtime, "units": arguments.units, "chunks": written.chunks,
        "markdown_mb": hundredths(megabytes), "brain": MADE,
        "pipeline_mb_per_s": hundredths(rate(pipeline_ms)),
        "plan": plan.told(), "publish": publish.told(),
        "baseline_reading_and_hashing": read.told(),
        "pipeline_to_reading_and_hashing": hundredths(pipeline_ms / read.percentile(50)),
        "process_with_all_vectors_cached": process.told(),
        "process_mb_per_s": hundredths(rate(process.percentile(50))),
        "model_share_of_a_real_build": share,
        "one_changed_file": changed.told(),
        "one_changed_file_searchable_at_a_server": searchable.told(),
        "unchanged_brain_opens": unchanged.told(),
        "bars": {
            "pipeline_mb_per_s": { "measured": hundredths(rate(pipeline_ms)), "limit": MEGABYTES_PER_SECOND_MIN,
                                   "held": rate(pipeline_ms) >= MEGABYTES_PER_SECOND_MIN },
            "model_share": { "measured": share["share"], "limit": SHARE_MIN,
                             "held": share["share"].as_f64().is_some_and(|share| share >= SHARE_MIN) },
            "one_changed_file_ms": bar(searchable.percentile(50), CHANGED_MS_MAX),
            "unchanged_brain_opens_ms": bar(unchanged.percentile(50), OPEN_MS_MAX),
        },
    }))
}

/// What any index must do at least: every file read and hashed.
fn read_all(brain: &Brain) -> Result<()> {
    let mut hasher = blake3::Hasher::new();
    for file in brain.files()? {
        hasher.update(brain.read(&file.path)?.as_bytes());
    }
    ensure!(hasher.finalize().as_bytes().iter().any(|byte| *byte != 0), "no hash");
    Ok(())
}

/// Opening the index and finding it current, each time as a new process would.
fn open_unchanged(brain: &Brain, folder: &Path, corpus: &Corpus) -> Result<Times> {
    let mut times = Times::default();
    // The first look notes that no file was written just now.
    for _ in 0..2 {
        Index::open(folder)?.is_current(brain, corpus.label())?;
    }
    for _ in 0..20 {
        times.take(|| {
            let index = Index::open(folder)?;
            ensure!(index.is_current(brain, corpus.label())?, "an unchanged brain is not current");
            Ok(())
        })?;
    }
    Ok(times)
}

/// One file gets another text: until a generation with it is there, and until a server answers with it.
/// The vectors of the new text are in the cache already.
fn change(
    arguments: &Arguments,
    machine: &Machine,
    corpus: &Corpus,
    brain: &Brain,
    embedder: &Embedder,
) -> Result<(Times, Times)> {
    let (mut alone, mut served) = (Times::default(), Times::default());
    let mut random = Random::new(7);
    let mut write = |edition: u64, mark: &str| -> Result<()> {
        let mut made = corpus.unit_again(random.below(arguments.units as u64) as usize, edition);
        made.text.push_str(&format!("\n## The {mark} {mark}\n\n{mark} is what the {mark} of {mark} is.\n"));
        corpus.know(machine, &made)?;
        put_file(&machine.brain(), &made)
    };
    let index = Index::open(&machine.brain().join(".nugget"))?;
    for edition in 0..arguments.changes as u64 {
        write(1 + edition, &format!("zq{edition}x"))?;
        alone.take(|| {
            ensure!(!index.is_current(brain, corpus.label())?, "the change was not seen");
            let plan = index.plan(brain, corpus.label(), embedder.tokenizer(), Mode::Changed, &mut |_| ())?;
            let vectors = plan.texts().iter().map(|text| corpus.vector(text)).collect();
            plan.publish(vectors)?;
            ensure!(
                index.pin()?.document_frequency(&format!("zq{edition}x"))? > 0,
                "the change is not there"
            );
            Ok(())
        })?;
    }
    let mut server = client(machine)?;
    let mut questions = Random::new(11);
    server.ask(&corpus.question(&mut questions))?.context("the server was killed")?;
    for edition in 0..arguments.changes as u64 {
        let mark = format!("zw{edition}x");
        let question = format!("what is {mark}, the {mark} of {mark}?");
        // From here on the server looks at the files before it answers.
        std::thread::sleep(Duration::from_millis(6_050));
        write(1_000 + edition, &mark)?;
        let begun = Instant::now();
        loop {
            let answer = server.ask(&question)?.context("the server was killed")?;
            if answer.contains(&mark) {
                break;
            }
            ensure!(begun.elapsed() < PATIENCE, "a changed file is not found: {answer}");
        }
        let until_found = begun.elapsed().as_secs_f64() * 1000.0;
        // What the same question takes when nothing has changed is not the change's doing.
        let begun = Instant::now();
        server.ask(&question)?.context("the server was killed")?;
        served.0.push(until_found - begun.elapsed().as_secs_f64() * 1000.0);
    }
    server.end()?;
    Ok((alone, served))
}

/// The same build with the model and without it, by the real program.
fn share_of_model(
    arguments: &Arguments,
    program: &Path,
    library: Option<&Path>,
    corpus: &Corpus,
) -> Result<Value> {
    let machine = machine(program, library)?;
    let mut chunks = 0;
    for nth in 0..arguments.embedded.min(arguments.units) {
        let made = corpus.unit(nth);
        chunks += corpus.texts(&made)?.len();
        put_file(&machine.brain(), &made)?;
    }
    let (mut with, mut without) = (Times::default(), Times::default());
    with.time(|| Ok(machine.run(&["index", "--rebuild"])?.status.success()))?;
    for _ in 0..ROUNDS {
        without.time(|| Ok(machine.run(&["index", "--rebuild"])?.status.success()))?;
    }
    let (with, without) = (with.percentile(50), without.percentile(50));
    Ok(json!({
        "chunks": chunks, "with_the_model_ms": hundredths(with), "vectors_cached_ms": hundredths(without),
        "chunks_per_s": hundredths(chunks as f64 / (with / 1000.0)),
        "share": hundredths((1.0 - without / with) * 100.0) / 100.0,
    }))
}
