//! Estimates how likely a reviewer merges what a detector found: logistic regression over named features.
//!
//! `weights.json` holds the weights and says how they were trained.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::features::Features;

#[derive(Deserialize)]
struct Model {
    /// The score from which a candidate is proposed.
    threshold: f64,
    /// The same for a stated cause, whose set phrase already says much.
    threshold_of_causes: f64,
    weights: HashMap<String, f64>,
}

static MODEL: LazyLock<Model> =
    LazyLock::new(|| serde_json::from_str(include_str!("weights.json")).expect("a file of this crate"));

/// How likely a reviewer merges a candidate with these features, from 0 to 1.
pub(super) fn score(features: &Features) -> f64 {
    let sum: f64 = features
        .iter()
        .map(|(name, value)| MODEL.weights.get(*name).copied().unwrap_or_default() * value)
        .sum();
    1.0 / (1.0 + (-sum).exp())
}

/// The score from which what a detector found is proposed.
pub(super) fn threshold(detector: &str) -> f64 {
    if detector == "causes" { MODEL.threshold_of_causes } else { MODEL.threshold }
}
