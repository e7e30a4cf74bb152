//! Estimates how likely a reviewer merges what a detector found: logistic regression over named features, one of which is
//! what the built-in model, fine-tuned, says to its text.
//!
//! `weights.json` holds the weights and says how they were trained; `lesson.bf16` is what fine-tuning changed.

use std::collections::HashMap;
use std::sync::LazyLock;

use embed::Classifier;
use serde::Deserialize;

use super::features::Features;

/// The feature with the log-odds of the fine-tuned model.
const READ_BY_MODEL: &str = "read by the model";

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
static CLASSIFIER: LazyLock<Classifier> =
    LazyLock::new(|| Classifier::read(include_bytes!("lesson.bf16")).expect("a file of this crate"));

/// What the fine-tuned model says to a candidate's text: the feature with the most weight.
pub(super) fn read(text: &str) -> (&'static str, f64) {
    // A text without visible characters says nothing either way.
    (READ_BY_MODEL, CLASSIFIER.log_odds(text).map_or(0.0, f64::from))
}

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
