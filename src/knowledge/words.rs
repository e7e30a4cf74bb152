//! The words of a text that say what it is about.

use std::collections::BTreeSet;

use crate::text::{is_stop_word, stem};

/// The stems of a text's words, without those that say nothing about its subject.
pub type Words = BTreeSet<String>;

/// The stems of a text's words, once each.
pub fn words(text: &str) -> Words {
    let lower = text.to_lowercase();
    let words = lower.split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '_');
    let words = words.filter(|word| word.len() > 1 && !is_stop_word(word));
    // Twice: "deploys" becomes "deploy", and only that "deplo", as "deploy" does.
    words.map(|word| stem(&stem(word.strip_suffix("'s").unwrap_or(word)))).collect()
}

/// The share of the words of `part` that `all` contains, from 0 to 1.
pub fn share_of(part: &Words, all: &Words) -> f64 {
    if part.is_empty() { 0.0 } else { part.intersection(all).count() as f64 / part.len() as f64 }
}

/// The shared words of two texts among all of their words, from 0 to 1 (Jaccard, 1901).
pub fn jaccard(one: &Words, other: &Words) -> f64 {
    let shared = one.intersection(other).count();
    let all = one.len() + other.len() - shared;
    if all == 0 { 0.0 } else { shared as f64 / all as f64 }
}
