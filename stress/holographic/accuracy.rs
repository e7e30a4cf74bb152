//! How often a fact is recalled rightly, beside what theory expects and what the seed's program reaches.
//!
//! Two layouts of ours are measured. `one bank` superposes all facts and cleans up among all values, which is what the
//! four banks of the seed's program amount to: it adds up the similarities of all of them, so that the signal of one bank,
//! √(4/n), meets the noise of four, 2·1/√(2D). `64 a bank` is the default.

use holographic::{FactLayout, FactStore, expected_accuracy};
use serde_json::{Value, json};

const FACTS: [usize; 7] = [10, 50, 100, 200, 500, 1_000, 2_000];
const DIMENSIONS: [usize; 5] = [1_024, 2_048, 4_096, 8_192, 16_384];
/// The bar: so many points from theory at most.
const POINTS_MAX: f64 = 2.0;
/// Changes the tokens of keys and values, and so every vector.
const SEED: u64 = 20_260_731;

/// Prints the table; returns the largest difference from theory, in points. `seeds_own` is what `seed.mjs capacity` wrote.
pub(crate) fn run(recalls: usize, seeds_own: Option<&Value>) -> Value {
    println!("right recalls in per cent of at least {recalls}, seed {SEED}");
    println!();
    println!("                          one bank              64 a bank          seed's program");
    println!("facts  dimension    ours   theory  diff     ours   theory  diff   right (recalls)");
    let mut largest = 0.0f64;
    for facts in FACTS {
        for dimension in DIMENSIONS {
            let one = measure(facts, dimension, facts, recalls);
            let default = measure(facts, dimension, 64, recalls);
            let difference = |cell: Cell| cell.right - cell.expected;
            largest = largest.max(difference(one).abs()).max(difference(default).abs());
            println!(
                "{facts:>5} {dimension:>10} {:>7.2} {:>8.2} {:>5.2} {:>8.2} {:>8.2} {:>5.2}   {}",
                one.right,
                one.expected,
                difference(one),
                default.right,
                default.expected,
                difference(default),
                seed_cell(seeds_own, facts, dimension),
            );
        }
    }
    println!();
    json!({ "points_from_theory_max": (largest * 100.0).round() / 100.0, "held": largest <= POINTS_MAX })
}

/// Shares in per cent.
#[derive(Clone, Copy)]
struct Cell {
    right: f64,
    expected: f64,
}

/// Fills stores of `facts` until they make so many recalls, and asks for every fact once.
fn measure(facts: usize, dimension: usize, facts_per_bank: usize, recalls: usize) -> Cell {
    let layout = FactLayout { dimension, facts_per_bank, facts_max: facts };
    let stores = recalls.div_ceil(facts);
    let right: usize = (0..stores).map(|store| right_recalls(layout, store)).sum();
    let full_banks = facts / facts_per_bank;
    let rest = facts % facts_per_bank;
    let in_full_banks = (full_banks * facts_per_bank) as f64;
    let expected = in_full_banks * expected_accuracy(dimension, facts_per_bank, facts_per_bank)
        + rest as f64 * expected_accuracy(dimension, rest, rest);
    Cell { right: 100.0 * right as f64 / (stores * facts) as f64, expected: 100.0 * expected / facts as f64 }
}

fn right_recalls(layout: FactLayout, store_number: usize) -> usize {
    let mut store = FactStore::with_layout(layout);
    for i in 0..layout.facts_max {
        store
            .remember(&format!("key {SEED} {store_number} {i}"), &format!("value {SEED} {store_number} {i}"));
    }
    let is_right = |(key, value): &(&str, &str)| store.recall(key).is_some_and(|found| found.value == *value);
    store.facts().filter(is_right).count()
}

fn seed_cell(data: Option<&Value>, facts: usize, dimension: usize) -> String {
    let cells = data.and_then(|data| data["cells"].as_array()).map_or(&[][..], Vec::as_slice);
    let cell = cells.iter().find(|cell| cell["facts"] == facts && cell["dimension"] == dimension);
    cell.map_or_else(String::new, |cell| {
        let (right, recalls) =
            (cell["right"].as_f64().unwrap_or(0.0), cell["recalls"].as_f64().unwrap_or(0.0));
        format!("{:>6.2} ({recalls})", 100.0 * right / recalls)
    })
}
