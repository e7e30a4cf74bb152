//! The vector graph against the exact scan, both through the product's own index.
//!
//! Without `--data` over made vectors; with it over real text by the real model: the texts of the sets
//! are cut into overlapping windows of words until there are as many as asked for. Their vectors are kept
//! for the next run.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, ensure};
use embed::Embedder;
use index::{Index, PrechunkedUnit, VectorCache, chunk};
use knowledge::{Domain, Unit, UnitId, UnitType};
use serde_json::{Value, json};

use super::corpus::{Corpus, MADE};
use super::{RuntimeArguments, embedder};
use crate::machine::Random;
use crate::times::{Times, hundredths, ratio};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many chunks
    #[arg(long, default_value_t = 100_000)]
    chunks: usize,
    /// How many questions
    #[arg(long, default_value_t = 200)]
    queries: usize,
    /// A folder with `corpus.jsonl` and `queries.jsonl`; may be given several times
    #[arg(long, value_name = "DIR")]
    data: Vec<PathBuf>,
    #[command(flatten)]
    runtime: RuntimeArguments,
}

const RECALL_MIN: f64 = 0.98;
const DEPTH: usize = 50;
/// Words of a window, and how many words further the next one begins at least.
const WINDOW: usize = 16;
const STEP_MIN: usize = 4;
const BATCH: usize = 256;

pub(crate) fn run(arguments: &Arguments, seed: u64) -> Result<Value> {
    eprintln!("graph --seed {seed}, {} chunks", arguments.chunks);
    let embedder = embedder(arguments.runtime.best().1)?;
    let (what, texts, vectors, queries) = if arguments.data.is_empty() {
        made(arguments, seed, &embedder)?
    } else {
        real(arguments, seed, &embedder)?
    };
    let folder = tempfile::tempdir()?;
    let label =
        index::ModelLabel { name: embedder.model_name().to_owned(), dimensions: embedder.dimensions() };
    let units = texts.iter().enumerate().map(|(nth, text)| given(nth, text)).collect::<Result<Vec<_>>>()?;
    let (mut without, mut with) = (Times::default(), Times::default());
    let exact = Index::open_with_graph_from(folder.path(), usize::MAX)?;
    without.take(|| Ok(exact.plan_prechunked(units.clone(), &label)?.publish(vectors.clone())?))?;
    let graph = Index::open_with_graph_from(folder.path(), 0)?;
    with.take(|| Ok(graph.plan_prechunked(units, &label)?.publish(vectors)?))?;

    // The first question to each reads its files.
    let first = queries.first().context("no question")?;
    let (mut load_exact, mut load_graph) = (Times::default(), Times::default());
    load_exact.take(|| Ok(exact.pin()?.nearest(first, DEPTH)?))?;
    load_graph.take(|| Ok(graph.pin()?.nearest(first, DEPTH)?))?;
    let (exact, graph) = (exact.pin()?, graph.pin()?);
    let (mut scan, mut by_graph) = (Times::default(), Times::default());
    let (mut found_10, mut found_50) = (0, 0);
    for query in &queries {
        let all = scan.take(|| Ok(exact.nearest(query, DEPTH)?))?;
        let proposed = by_graph.take(|| Ok(graph.nearest(query, DEPTH)?))?;
        let common = |depth: usize| {
            let of_all = |hit: &&index::Hit| all.iter().take(depth).any(|other| other.chunk == hit.chunk);
            proposed.iter().take(depth).filter(of_all).count()
        };
        found_10 += common(10);
        found_50 += common(DEPTH);
    }
    let wanted = |depth: usize| (queries.len() * depth.min(texts.len())) as f64;
    let recall_10 = found_10 as f64 / wanted(10);
    Ok(json!({
        "vectors": what, "chunks": texts.len(), "queries": queries.len(),
        "recall_at_10": (recall_10 * 10_000.0).round() / 10_000.0,
        "recall_at_50": (found_50 as f64 / wanted(DEPTH) * 10_000.0).round() / 10_000.0,
        "graph": by_graph.told(), "exact_scan": scan.told(),
        "exact_p50_to_graph": ratio(&scan, &by_graph, 50),
        "graph_is_made_in_s": hundredths((with.percentile(50) - without.percentile(50)) / 1000.0),
        "first_question_exact_ms": hundredths(load_exact.percentile(50)),
        "first_question_graph_ms": hundredths(load_graph.percentile(50)),
        "graph_from_chunks": index::GRAPH_FROM_CHUNKS,
        "bars": { "recall_at_10": { "measured": hundredths(recall_10), "limit": RECALL_MIN, "held": recall_10 >= RECALL_MIN } },
    }))
}

type Set = (String, Vec<String>, Vec<Vec<f32>>, Vec<Vec<f32>>);

fn made(arguments: &Arguments, seed: u64, embedder: &Embedder) -> Result<Set> {
    let corpus = Corpus::new(seed, arguments.chunks.div_ceil(3), embedder)?;
    let mut texts = Vec::with_capacity(arguments.chunks);
    let mut nth = 0;
    while texts.len() < arguments.chunks {
        texts.extend(corpus.texts(&corpus.unit(nth))?);
        nth += 1;
    }
    texts.truncate(arguments.chunks);
    let vectors = texts.iter().map(|text| corpus.vector(text)).collect();
    let mut random = Random::new(seed);
    let queries = (0..arguments.queries)
        .map(|_| Ok(embedder.embed_query(&corpus.question(&mut random))?))
        .collect::<Result<Vec<_>>>()?;
    Ok((format!("{MADE} (no --data was given)"), texts, vectors, queries))
}

fn real(arguments: &Arguments, seed: u64, embedder: &Embedder) -> Result<Set> {
    let read = |folder: &Path, name: &str| -> Result<Vec<String>> {
        let path = folder.join(name);
        let lines = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        lines
            .lines()
            .map(|line| Ok(serde_json::from_str::<Value>(line)?["text"].as_str().unwrap_or("").to_owned()))
            .collect()
    };
    let (mut items, mut questions) = (Vec::new(), Vec::new());
    for folder in &arguments.data {
        items.extend(read(folder, "corpus.jsonl")?);
        questions.extend(read(folder, "queries.jsonl")?);
    }
    let texts = windows(&items, arguments.chunks);
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-windows.db");
    let vectors = embed_all(embedder, &cache, &texts)?;
    let mut random = Random::new(seed);
    ensure!(!questions.is_empty(), "the sets have no questions");
    let queries = (0..arguments.queries)
        .map(|_| Ok(embedder.embed_query(&questions[random.below(questions.len() as u64) as usize])?))
        .collect::<Result<Vec<_>>>()?;
    let what = format!("real text by the real model: windows of {WINDOW} words of {} passages", items.len());
    Ok((what, texts, vectors, queries))
}

/// As many different windows as asked for, if the texts have them.
fn windows(items: &[String], count: usize) -> Vec<String> {
    let words: usize = items.iter().map(|item| item.split_whitespace().count()).sum();
    let step = (words / count.max(1)).clamp(STEP_MIN, WINDOW);
    let mut seen = std::collections::HashSet::new();
    let mut texts = Vec::with_capacity(count);
    for item in items {
        let words: Vec<&str> = item.split_whitespace().collect();
        for start in (0..words.len()).step_by(step) {
            let text = words[start..words.len().min(start + WINDOW)].join(" ");
            if texts.len() < count && text.chars().any(char::is_alphanumeric) && seen.insert(text.clone()) {
                texts.push(text);
            }
        }
    }
    texts
}

fn embed_all(embedder: &Embedder, cache: &Path, texts: &[String]) -> Result<Vec<Vec<f32>>> {
    let cache = VectorCache::open(cache);
    let label =
        index::ModelLabel { name: embedder.model_name().to_owned(), dimensions: embedder.dimensions() };
    let known = cache.get(&label, texts);
    let missing: Vec<&str> = texts
        .iter()
        .zip(&known)
        .filter(|(_, known)| known.is_none())
        .map(|(text, _)| text.as_str())
        .collect();
    if !missing.is_empty() {
        eprintln!("embedding {} texts", missing.len());
    }
    let next = AtomicUsize::new(0);
    let batches: Vec<&[&str]> = missing.chunks(BATCH).collect();
    std::thread::scope(|scope| {
        let work = || -> Result<()> {
            while let Some(batch) = batches.get(next.fetch_add(1, Ordering::SeqCst)) {
                let vectors: Vec<Vec<f32>> =
                    batch.iter().map(|text| Ok(embedder.embed_document(text)?)).collect::<Result<_>>()?;
                cache.put(&label, batch.iter().copied().zip(vectors.iter().map(Vec::as_slice)));
            }
            Ok(())
        };
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        let fell = |_| anyhow::anyhow!("a thread fell");
        threads.into_iter().try_for_each(|thread| thread.join().map_err(fell)?)
    })?;
    cache.get(&label, texts).into_iter().collect::<Option<Vec<_>>>().context("the cache has lost a vector")
}

/// A unit of one chunk.
fn given(nth: usize, text: &str) -> Result<PrechunkedUnit> {
    let id = UnitId::verbatim(format!("w{nth}"));
    let piece =
        chunk::Piece { level: 1, breadcrumb: String::new(), text: text.to_owned(), tokens: 1, span: 0..0 };
    let unit = Unit {
        id,
        kind: UnitType::Concept,
        domain: Domain::verbatim("bench".to_owned()),
        title: format!("w{nth}"),
        tags: Vec::new(),
        confidence: 0.5,
        source: "bench".to_owned(),
        related: Vec::new(),
        created: None,
        last_modified: None,
        description: None,
        status: None,
        body: String::new(),
    };
    Ok(PrechunkedUnit { unit, pieces: vec![piece] })
}
