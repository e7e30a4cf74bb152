//! What note search by holographic vectors and words finds on question sets, beside its words alone.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use holographic::{NoteIndex, NoteText};
use retrieve::metrics::{NDCG_AT_10, RankingMetrics, mean};
use serde_json::{Value, json};

/// Asks every question of a set whose answers are known; returns the mean nDCG@10 of both ways of scoring.
pub(crate) fn run(set: &Path) -> Result<Value> {
    let read =
        |name: &str| fs::read_to_string(set.join(name)).with_context(|| set.join(name).display().to_string());
    let rows = |name: &str| -> Result<Vec<Value>> {
        read(name)?.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    };
    let (corpus, queries) = (rows("corpus.jsonl")?, rows("queries.jsonl")?);
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let numbers: HashMap<String, usize> =
        corpus.iter().enumerate().map(|(number, row)| (text(row, "id"), number)).collect();
    let scopes: HashMap<String, String> =
        corpus.iter().map(|row| (text(row, "id"), text(row, "scope"))).collect();
    let mut relevant: HashMap<String, BTreeMap<usize, f64>> = HashMap::new();
    for line in read("qrels.tsv")?.lines() {
        let mut fields = line.split('\t');
        let (Some(query), Some(item), Some(grade)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        if let (Some(&number), Ok(grade)) = (numbers.get(item), grade.parse()) {
            relevant.entry(query.to_owned()).or_default().insert(number, grade);
        }
    }
    let mut index = NoteIndex::new();
    for row in &corpus {
        index.insert(&NoteText {
            id: text(row, "id"),
            title: text(row, "title"),
            content: text(row, "text"),
            kind: "note".to_owned(),
            durable: true,
            confidence: 0.9,
            ..NoteText::default()
        });
    }
    let (mut both, mut words) = (Vec::new(), Vec::new());
    for query in &queries {
        let Some(relevant) = relevant.get(&text(query, "id")) else { continue };
        let scope = text(query, "scope");
        let is_in_scope = |id: &str| scope.is_empty() || scopes.get(id).is_some_and(|of| *of == scope);
        let hits = index.search_where(&text(query, "text"), usize::MAX, is_in_scope);
        let ranked: Vec<usize> = hits.iter().take(50).map(|hit| numbers[hit.id]).collect();
        both.push(RankingMetrics::measure(&ranked, relevant).values[NDCG_AT_10]);
        let mut by_words: Vec<_> = hits.iter().map(|hit| (hit.text_score, numbers[hit.id])).collect();
        by_words.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let ranked: Vec<usize> = by_words.into_iter().take(50).map(|(_, number)| number).collect();
        words.push(RankingMetrics::measure(&ranked, relevant).values[NDCG_AT_10]);
    }
    let rounded = |values: &[f64]| (mean(values) * 1000.0).round() / 1000.0;
    let (both, words) = (rounded(&both), rounded(&words));
    let name = set.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    println!("{name:<16} nDCG@10: words and vectors {both:.3}, words alone {words:.3}");
    Ok(json!({ "set": name, "words_and_vectors": both, "words": words }))
}
