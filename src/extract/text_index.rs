//! Finds texts that say the same, regardless of punctuation and formatting.
//!
//! Texts are compared by their shingles, the runs of three words (Broder 1997). No model and no vectors are needed.

use std::collections::{HashMap, HashSet};

use knowledge::text;

/// The share of a text's shingles that another text must contain to say the same.
const SIMILARITY_MIN: f64 = 0.85;
/// The words of a shingle.
const SHINGLE_WORDS: usize = 3;
/// A text with fewer shingles is compared by its digest only.
const SHINGLES_MIN: usize = 5;

/// A set of texts, each with a label of the caller's.
#[derive(Debug)]
pub struct TextIndex<T> {
    texts: Vec<IndexedText<T>>,
    by_digest: HashMap<String, usize>,
    /// The texts that contain a shingle.
    by_shingle: HashMap<u64, Vec<u32>>,
}

#[derive(Debug)]
struct IndexedText<T> {
    label: T,
    /// The words with a digit.
    numbers: HashSet<String>,
}

impl<T> Default for TextIndex<T> {
    fn default() -> Self {
        Self { texts: Vec::new(), by_digest: HashMap::new(), by_shingle: HashMap::new() }
    }
}

impl<T> TextIndex<T> {
    /// Adds a text.
    pub fn insert(&mut self, label: T, text: &str) {
        let canonical = text::canonical(text);
        let at = self.texts.len();
        self.by_digest.entry(canonical_digest(&canonical)).or_insert(at);
        for shingle in shingles(&canonical) {
            self.by_shingle.entry(shingle).or_default().push(at as u32);
        }
        let numbers = numbers(&canonical).map(str::to_owned).collect();
        self.texts.push(IndexedText { label, numbers });
    }

    /// The first text with the same words.
    pub fn find_same(&self, digest: &str) -> Option<&T> {
        self.by_digest.get(digest).map(|&at| &self.texts[at].label)
    }

    /// The text that contains nearly all of this one, and all of its numbers.
    pub fn find_similar(&self, text: &str) -> Option<&T> {
        let canonical = text::canonical(text);
        let shingles = shingles(&canonical);
        if shingles.len() < SHINGLES_MIN {
            return None;
        }
        let mut shared: HashMap<u32, usize> = HashMap::new();
        for shingle in &shingles {
            for &other in self.by_shingle.get(shingle).into_iter().flatten() {
                *shared.entry(other).or_default() += 1;
            }
        }
        let count_min = (shingles.len() as f64 * SIMILARITY_MIN).ceil() as usize;
        let mut similar: Vec<(usize, u32)> = shared
            .into_iter()
            .filter(|(_, count)| *count >= count_min)
            .map(|(other, count)| (count, other))
            .collect();
        similar.sort_unstable_by(|a, b| b.cmp(a));
        // `--lane 7` is not `--lane 8`.
        let numbers: Vec<&str> = numbers(&canonical).collect();
        let similar = similar.into_iter().map(|(_, other)| &self.texts[other as usize]);
        let mut similar = similar.filter(|text| numbers.iter().all(|number| text.numbers.contains(*number)));
        similar.next().map(|text| &text.label)
    }
}

/// Identifies a text by its words: 16 hexadecimal digits, the same for any punctuation and formatting.
pub fn text_digest(text: &str) -> String {
    canonical_digest(&text::canonical(text))
}

fn canonical_digest(canonical: &str) -> String {
    blake3::hash(canonical.as_bytes()).to_hex()[..16].to_owned()
}

fn numbers(canonical: &str) -> impl Iterator<Item = &str> {
    canonical.split(' ').filter(|word| word.contains(|c: char| c.is_ascii_digit()))
}

fn shingles(canonical: &str) -> HashSet<u64> {
    let words: Vec<&str> = canonical.split(' ').collect();
    let hash = |shingle: &[&str]| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&blake3::hash(shingle.join(" ").as_bytes()).as_bytes()[..8]);
        u64::from_le_bytes(bytes)
    };
    words.windows(SHINGLE_WORDS).map(hash).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatting_does_not_matter_but_numbers_and_additions_do() {
        let text =
            "Run the slow suite with `--lane 7` before each merge, since lane 7 alone has the database.";
        let mut index = TextIndex::default();
        index.insert("lane", text);
        assert_eq!(index.find_same(&text_digest(&text.to_uppercase())), Some(&"lane"));
        assert!(index.find_similar(text).is_some());
        assert!(index.find_similar(&format!("* {}", text.replace(", ", " -- "))).is_some());
        assert!(index.find_similar("Run the slow suite with `--lane 7` before each merge").is_some());
        assert!(index.find_similar(&text.replace('7', "8")).is_none());
        let longer = format!("{text} Never run it on a Friday, whatever anybody says to you.");
        assert!(index.find_similar(&longer).is_none());
    }
}
