//! Compares the vector graph with the exact scan, both through nugget's own index.
//!
//! Without `--data` the vectors are synthetic. With it, the real model embeds overlapping windows of words from
//! the texts of the sets, as many as `--chunks`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use embed::{Embedder, Settings};
use fastrand::Rng;
use index::{Index, PrechunkedUnit, chunk};
use knowledge::Embedding;
use knowledge::{Domain, Unit, UnitId, UnitType};
use serde_json::{Value, json};

use super::corpus::{Corpus, SYNTHETIC};
use crate::timing::{Durations, hundredths, ratio};

#[derive(clap::Args)]
pub(crate) struct GraphBenchArgs {
    /// The number of chunks
    #[arg(long, default_value_t = 100_000)]
    chunks: usize,
    /// The number of questions
    #[arg(long, default_value_t = 200)]
    queries: usize,
    /// A folder with `corpus.jsonl` and `queries.jsonl`, see stress/datasets; may be repeated
    #[arg(long, value_name = "DIR")]
    data: Vec<PathBuf>,
}

const RECALL_MIN: f64 = 0.98;
const DEPTH: usize = 50;
/// The words of a window, and the least distance between the starts of two windows.
const WINDOW: usize = 16;
const STEP_MIN: usize = 4;

pub(crate) fn run(args: &GraphBenchArgs, seed: u64) -> Result<Value> {
    eprintln!("graph --seed {seed}, {} chunks", args.chunks);
    let embedder = Embedder::load(&Settings { threads: 2, ..Settings::default() })?;
    let (what, texts, vectors, queries) = if args.data.is_empty() {
        synthetic(args, seed, &embedder)?
    } else {
        from_data_sets(args, seed, &embedder)?
    };
    let folder = tempfile::tempdir()?;
    let label =
        index::ModelLabel { name: embedder.model_name().to_owned(), dimensions: embedder.dimensions() };
    let units =
        texts.iter().enumerate().map(|(nth, text)| prechunked_unit(nth, text)).collect::<Result<Vec<_>>>()?;
    let (mut without, mut with) = (Durations::default(), Durations::default());
    let exact = Index::open_with_graph_from(folder.path(), usize::MAX)?;
    without.measure(|| Ok(exact.plan_prechunked(units.clone(), &label)?.publish(vectors.clone())?))?;
    let graph = Index::open_with_graph_from(folder.path(), 0)?;
    with.measure(|| Ok(graph.plan_prechunked(units, &label)?.publish(vectors)?))?;

    // The first question to each index reads its files.
    let first = queries.first().context("no question")?;
    let (mut load_exact, mut load_graph) = (Durations::default(), Durations::default());
    load_exact.measure(|| Ok(exact.pin()?.nearest(first, DEPTH)?))?;
    load_graph.measure(|| Ok(graph.pin()?.nearest(first, DEPTH)?))?;
    let (exact, graph) = (exact.pin()?, graph.pin()?);
    let (mut scan, mut by_graph) = (Durations::default(), Durations::default());
    let (mut found_10, mut found_50) = (0, 0);
    for query in &queries {
        let all = scan.measure(|| Ok(exact.nearest(query, DEPTH)?))?;
        let proposed = by_graph.measure(|| Ok(graph.nearest(query, DEPTH)?))?;
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
        "graph": by_graph.summary(), "exact_scan": scan.summary(),
        "exact_p50_to_graph": ratio(&scan, &by_graph, 50),
        "graph_build_s": hundredths((with.percentile(50) - without.percentile(50)) / 1000.0),
        "first_question_exact_ms": hundredths(load_exact.percentile(50)),
        "first_question_graph_ms": hundredths(load_graph.percentile(50)),
        "graph_from_chunks": index::GRAPH_FROM_CHUNKS,
        "limits": { "recall_at_10": { "measured": hundredths(recall_10), "limit": RECALL_MIN, "held": recall_10 >= RECALL_MIN } },
    }))
}

type Set = (String, Vec<String>, Vec<Embedding>, Vec<Vec<f32>>);

fn synthetic(args: &GraphBenchArgs, seed: u64, embedder: &Embedder) -> Result<Set> {
    let corpus = Corpus::new(seed, args.chunks.div_ceil(3), embedder)?;
    let mut texts = Vec::with_capacity(args.chunks);
    let mut nth = 0;
    while texts.len() < args.chunks {
        texts.extend(corpus.texts(&corpus.unit(nth))?);
        nth += 1;
    }
    texts.truncate(args.chunks);
    let vectors = texts.iter().map(|text| corpus.vector(text).into()).collect();
    let mut rng = Rng::with_seed(seed);
    let queries = (0..args.queries)
        .map(|_| Ok(embedder.embed_query(&corpus.question(&mut rng))?.vector))
        .collect::<Result<Vec<_>>>()?;
    Ok((format!("{SYNTHETIC} (no --data was given)"), texts, vectors, queries))
}

fn from_data_sets(args: &GraphBenchArgs, seed: u64, embedder: &Embedder) -> Result<Set> {
    let read = |folder: &Path, name: &str| -> Result<Vec<String>> {
        let path = folder.join(name);
        let lines = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        lines
            .lines()
            .map(|line| Ok(serde_json::from_str::<Value>(line)?["text"].as_str().unwrap_or("").to_owned()))
            .collect()
    };
    let (mut items, mut questions) = (Vec::new(), Vec::new());
    for folder in &args.data {
        items.extend(read(folder, "corpus.jsonl")?);
        questions.extend(read(folder, "queries.jsonl")?);
    }
    let texts = windows(&items, args.chunks);
    eprintln!("embedding {} texts", texts.len());
    let vectors = embedder.embed_documents(&texts)?;
    let mut rng = Rng::with_seed(seed);
    ensure!(!questions.is_empty(), "the sets have no questions");
    let queries = (0..args.queries)
        .map(|_| Ok(embedder.embed_query(&questions[rng.usize(..questions.len())])?.vector))
        .collect::<Result<Vec<_>>>()?;
    let what = format!(
        "real text embedded by the real model: windows of {WINDOW} words from {} passages",
        items.len()
    );
    Ok((what, texts, vectors, queries))
}

/// At most `count` different windows of the texts.
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

/// A unit of one chunk.
fn prechunked_unit(nth: usize, text: &str) -> Result<PrechunkedUnit> {
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
        stability: None,
        category: None,
        scope: Vec::new(),
        alternatives: Vec::new(),
        stale_after: None,
        enforce: None,
        body: String::new(),
    };
    Ok(PrechunkedUnit { unit, pieces: vec![piece] })
}
