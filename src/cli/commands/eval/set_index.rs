//! Builds a temporary index of a question set.

use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;

use embed::{Embedder, Tokenizer};
use index::{ChunkRow, Filter, Index, ModelLabel, PrechunkedUnit, Snapshot, VectorCache, chunk};
use knowledge::{Domain, Embedding, Unit, UnitId, UnitType, unit};
use rayon::prelude::*;

use super::question_set::QuestionSet;
use crate::error::CliError;
use crate::output;

/// How many texts are embedded, and put into the cache, at a time.
const BATCH: usize = 32;

/// The index of one set.
pub(super) struct SetIndex {
    index: Index,
    /// The item that each chunk belongs to.
    items: HashMap<ChunkRow, usize>,
    /// The chunks of each scope.
    scopes: HashMap<String, Filter>,
    pub chunks: usize,
    /// How many vectors were computed and not found in the cache.
    pub embedded: usize,
    /// How long it took to build.
    pub seconds: f64,
}

impl SetIndex {
    pub(super) fn build(set: &QuestionSet, embedder: &Embedder, folder: &Path) -> Result<Self, CliError> {
        let started = Instant::now();
        let (units, items_of_units) = prechunked_units(set, embedder.tokenizer());
        let ids: Vec<UnitId> = units.iter().map(|prechunked| prechunked.unit.id.clone()).collect();
        let label = ModelLabel { name: embedder.model_name().to_owned(), dimensions: embedder.dimensions() };
        let index = Index::open(folder).map_err(index_failed)?;
        let plan = index.plan_prechunked(units, &label).map_err(index_failed)?;
        let (vectors, embedded) = embed_texts(plan.texts(), &label, embedder)?;
        let report = plan.publish(vectors).map_err(index_failed)?;
        let snapshot = index.pin().map_err(index_failed)?;
        let mut items = HashMap::new();
        for (id, items_of_unit) in ids.iter().zip(items_of_units) {
            let chunks = snapshot.chunks_of(id).map_err(index_failed)?;
            items.extend(chunks.into_iter().map(|chunk| chunk.row).zip(items_of_unit));
        }
        let mut scopes: HashMap<String, Vec<ChunkRow>> = HashMap::new();
        for (row, item) in &items {
            if let Some(scope) = &set.items[*item].scope {
                scopes.entry(scope.clone()).or_default().push(*row);
            }
        }
        let scopes = scopes.into_iter().map(|(scope, rows)| (scope, rows.into_iter().collect())).collect();
        let seconds = started.elapsed().as_secs_f64();
        Ok(Self { index, items, scopes, chunks: report.chunks, embedded, seconds })
    }

    pub(super) fn snapshot(&self) -> Result<Snapshot, CliError> {
        self.index.pin().map_err(index_failed)
    }

    /// The chunks of a scope; none of an unknown one.
    pub(super) fn filter(&self, scope: &str) -> Filter {
        self.scopes.get(scope).cloned().unwrap_or_default()
    }

    pub(super) fn item_of(&self, chunk: ChunkRow) -> Option<usize> {
        self.items.get(&chunk).copied()
    }

    /// The items of ranked chunks, each at the rank of its best chunk.
    pub(super) fn ranked_items(&self, chunks: impl Iterator<Item = ChunkRow>) -> Vec<usize> {
        let mut ranked = Vec::new();
        for item in chunks.filter_map(|chunk| self.item_of(chunk)) {
            if !ranked.contains(&item) {
                ranked.push(item);
            }
        }
        ranked
    }
}

/// The units that the items make up, and for each unit the item of each of its pieces.
fn prechunked_units(set: &QuestionSet, tokenizer: &Tokenizer) -> (Vec<PrechunkedUnit>, Vec<Vec<usize>>) {
    let mut documents: Vec<Vec<usize>> = Vec::new();
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    for (number, item) in set.items.iter().enumerate() {
        match &item.doc {
            Some(doc) => {
                let document = *numbers.entry(doc).or_insert(documents.len());
                if document == documents.len() {
                    documents.push(Vec::new());
                }
                documents[document].push(number);
            }
            None => documents.push(vec![number]),
        }
    }
    let mut units = Vec::with_capacity(documents.len());
    let mut items_of_units = Vec::with_capacity(documents.len());
    for (number, mut members) in documents.into_iter().enumerate() {
        members.sort_by_key(|&item| set.items[item].position);
        let (mut pieces, mut items) = (Vec::new(), Vec::new());
        for &member in &members {
            let item = &set.items[member];
            for piece in chunk::split(item.title.as_deref().unwrap_or_default(), &item.text, tokenizer) {
                if !piece.embedding_text().trim().is_empty() {
                    pieces.push(piece);
                    items.push(member);
                }
            }
        }
        let title = members.first().and_then(|&first| set.items[first].title.clone()).unwrap_or_default();
        let unit = Unit {
            id: UnitId::verbatim(format!("unit-{number}")),
            kind: UnitType::Concept,
            domain: Domain::verbatim("eval"),
            title,
            description: None,
            tags: Vec::new(),
            confidence: unit::CONFIDENCE_DEFAULT,
            source: String::new(),
            related: Vec::new(),
            created: None,
            last_modified: None,
            status: None,
            stability: None,
            category: None,
            scope: Vec::new(),
            alternatives: Vec::new(),
            stale_after: None,
            enforce: None,
            body: String::new(),
        };
        units.push(PrechunkedUnit { unit, pieces });
        items_of_units.push(items);
    }
    (units, items_of_units)
}

/// A vector for each text, from the cache or computed, and how many were computed.
fn embed_texts(
    texts: &[String],
    label: &ModelLabel,
    embedder: &Embedder,
) -> Result<(Vec<Embedding>, usize), CliError> {
    let cache = VectorCache::open(&brain::paths::vector_cache());
    let mut vectors = cache.get(label, texts);
    let missing: Vec<usize> = (0..texts.len()).filter(|&at| vectors[at].is_none()).collect();
    let bar = output::progress_bar("embedding", missing.len());
    for batch in missing.chunks(BATCH) {
        let computed: Vec<_> = batch.par_iter().map(|&at| embedder.embed_document(&texts[at])).collect();
        for (&at, vector) in batch.iter().zip(computed) {
            vectors[at] = Some(vector.map_err(embedding_failed)?);
        }
        let entries = batch.iter().filter_map(|&at| Some((texts[at].as_str(), vectors[at].as_ref()?)));
        cache.put(label, entries);
        bar.inc(batch.len() as u64);
    }
    bar.finish_and_clear();
    Ok((vectors.into_iter().flatten().collect(), missing.len()))
}

fn index_failed(error: index::Error) -> CliError {
    actors::StartError::Index(error).into()
}

pub(super) fn embedding_failed(error: embed::Error) -> CliError {
    CliError::new(format!("the embedding model failed: {error}"))
        .hint("`nugget config` shows which model is set")
}
