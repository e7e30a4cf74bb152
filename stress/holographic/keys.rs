//! Which key a question is taken to mean, beside the seed's program.

use holographic::{FactLayout, FactStore};
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Default)]
struct Row {
    questions: usize,
    same: usize,
    ours_right: usize,
    seed_right: usize,
}

/// Prints the table. `data` is what `seed.mjs resolve` wrote.
pub(crate) fn run(data: &Value) {
    let mut store = FactStore::with_layout(FactLayout { dimension: 1_024, ..FactLayout::default() });
    for fact in list(&data["facts"]) {
        store.remember(fact["key"].as_str().unwrap_or_default(), fact["value"].as_str().unwrap_or_default());
    }
    let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
    for question in list(&data["questions"]) {
        let ours = store.resolve(question["text"].as_str().unwrap_or_default()).map(|(key, _)| key);
        let (theirs, answer) = (question["found"].as_str(), question["answer"].as_str());
        let row = rows.entry(question["kind"].as_str().unwrap_or_default()).or_default();
        row.questions += 1;
        row.same += usize::from(ours == theirs);
        row.ours_right += usize::from(ours == answer);
        row.seed_right += usize::from(theirs == answer);
    }
    println!("{} facts", store.len());
    println!("question    asked   same key   ours right   seed's right");
    for (kind, row) in rows {
        println!(
            "{kind:<10} {:>6} {:>10} {:>12} {:>14}",
            row.questions, row.same, row.ours_right, row.seed_right
        );
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
