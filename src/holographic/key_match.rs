//! Which known key a question means.

use std::cmp::Reverse;

use knowledge::text::is_unspaced;

use crate::words::key_words;

/// How a question was matched to a known key, from the surest to the least sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyMatch {
    /// The question is the key, but for upper and lower case.
    Exact,
    /// The question contains the key as words of its own, or the key the beginning of a word.
    Substring,
    /// More than half of the words of the shorter one are in the other; half, where the spelling is close.
    Words,
    /// The spelling is close: a normalised Levenshtein similarity of at least 0.55.
    Spelling,
}

/// The least share of common words that makes a match.
const WORDS_SHARED_MIN: f64 = 0.5;

/// The least similarity in spelling that makes half of the words enough: "staging host" is not "production host".
const SPELLING_OF_HALF_MIN: f64 = 0.7;

/// The least similarity in spelling that makes a match.
///
/// Of 100 questions on unknown subjects it lets none find one of 200 keys, and of 100 misspelt keys it
/// alone finds all.
const SPELLING_MIN: f64 = 0.55;

/// The longest question in bytes whose spelling is compared: the work grows with its length times that
/// of all keys.
const SPELLED_BYTES_MAX: usize = 256;

/// A key as it is compared: in lower case, its words and those with a number.
#[derive(Clone, Debug)]
pub(crate) struct ComparedKey {
    pub(crate) lower: String,
    words: Vec<String>,
    numbers: Vec<String>,
}

impl ComparedKey {
    pub(crate) fn new(key: &str) -> ComparedKey {
        let lower = key.trim().to_lowercase();
        let numbers = lower.split(|c: char| !c.is_alphanumeric());
        let numbers = numbers.filter(|word| word.contains(|c: char| c.is_ascii_digit()));
        let numbers = numbers.map(str::to_owned).collect();
        ComparedKey { lower, words: key_words(key), numbers }
    }

    /// The size in bytes of what is allocated.
    pub(crate) fn bytes(&self) -> usize {
        let words = self.words.iter().chain(&self.numbers).map(|word| word.len() + size_of::<String>());
        self.lower.len() + words.sum::<usize>()
    }

    /// Whether each has a number in place of one of the other: "replica 3" is not "replica 1", and "v3" not "v2", but "v2"
    /// may be of 2026.
    fn differs_in_number(&self, other: &ComparedKey) -> bool {
        let letters = |word: &str| word.replace(|c: char| c.is_ascii_digit(), "");
        let is_like = |a: &String, b: &String| letters(a) == letters(b);
        let lacks = |a: &ComparedKey, b: &ComparedKey| {
            let has_other = |n: &String| !a.numbers.contains(n) && a.numbers.iter().any(|m| is_like(m, n));
            b.numbers.iter().any(has_other)
        };
        lacks(self, other) && lacks(other, self)
    }
}

/// The position of the key that `question` means, and how it matched; the earlier of two equal matches.
pub(crate) fn find_key<'a>(
    keys: impl Iterator<Item = &'a ComparedKey> + Clone,
    question: &str,
) -> Option<(usize, KeyMatch)> {
    let question = ComparedKey::new(question);
    if question.lower.is_empty() {
        return None;
    }
    let positions = keys.enumerate().filter(|(_, key)| !key.differs_in_number(&question));
    let exact = || positions.clone().find(|(_, key)| key.lower == question.lower).map(|(at, _)| at);
    let substring = || best(positions.clone(), |key| substring_score(key, &question));
    let words = || best(positions.clone(), |key| words_score(key, &question));
    let spelling = || best(positions.clone(), |key| spelling_score(key, &question));
    exact()
        .map(|at| (at, KeyMatch::Exact))
        .or_else(|| Some((substring()?, KeyMatch::Substring)))
        .or_else(|| Some((words()?, KeyMatch::Words)))
        .or_else(|| Some((spelling()?, KeyMatch::Spelling)))
}

/// The position of the highest score; of equal ones the earlier.
fn best<'a, S: PartialOrd>(
    keys: impl Iterator<Item = (usize, &'a ComparedKey)>,
    score: impl Fn(&ComparedKey) -> Option<S>,
) -> Option<usize> {
    let mut best: Option<(usize, S)> = None;
    for (at, key) in keys {
        if let Some(score) = score(key)
            && best.as_ref().is_none_or(|(_, highest)| score > *highest)
        {
            best = Some((at, score));
        }
    }
    best.map(|(at, _)| at)
}

/// Of several keys the one closest in length is meant: "deploy port" for "what is the deploy port",
/// although "deploy" is contained as well.
fn substring_score(key: &ComparedKey, question: &ComparedKey) -> Option<Reverse<usize>> {
    let contains =
        has_words(&question.lower, &key.lower, true) || has_words(&key.lower, &question.lower, false);
    contains.then_some(Reverse(key.lower.len().abs_diff(question.lower.len())))
}

/// Whether a text holds these words: from the beginning of a word on, and if `whole`, to the end of one. Letters of a script
/// without spaces are words of their own.
fn has_words(text: &str, words: &str, whole: bool) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() && !is_unspaced(c));
    let (first, last) = (words.chars().next(), words.chars().next_back());
    text.match_indices(words).any(|(at, found)| {
        let (before, after) = (text[..at].chars().next_back(), text[at + found.len()..].chars().next());
        !(is_part(before) && is_part(first) || whole && is_part(after) && is_part(last))
    })
}

/// The share of common words in the shorter one, and to decide between equals the share in the longer
/// one and then the spelling: "uploader lmit" means "uploader limit", no other key of the uploader.
fn words_score(key: &ComparedKey, question: &ComparedKey) -> Option<(f64, f64, f64)> {
    let shared = key.words.iter().filter(|word| question.words.contains(word)).count() as f64;
    let (a, b) = (key.words.len().max(1), question.words.len().max(1));
    let share = shared / a.min(b) as f64;
    if share < WORDS_SHARED_MIN {
        return None;
    }
    let spelling = spelling(key, question);
    (share > WORDS_SHARED_MIN || spelling >= SPELLING_OF_HALF_MIN)
        .then(|| (share, shared / a.max(b) as f64, spelling))
}

fn spelling_score(key: &ComparedKey, question: &ComparedKey) -> Option<f64> {
    let (a, b) = (key.lower.chars().count(), question.lower.chars().count());
    // The distance is at least the difference in length, which rules most keys out.
    let is_hopeless = a.abs_diff(b) as f64 > a.max(b) as f64 * (1.0 - SPELLING_MIN);
    let similarity = if is_hopeless { 0.0 } else { spelling(key, question) };
    (similarity >= SPELLING_MIN).then_some(similarity)
}

/// The normalised Levenshtein similarity, in 0..=1; 0 for a question too long to be a misspelt key.
fn spelling(key: &ComparedKey, question: &ComparedKey) -> f64 {
    if question.lower.len() > SPELLED_BYTES_MAX {
        return 0.0;
    }
    strsim::normalized_levenshtein(&key.lower, &question.lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(keys: &[&str], question: &str) -> Option<(usize, KeyMatch)> {
        let keys: Vec<ComparedKey> = keys.iter().map(|key| ComparedKey::new(key)).collect();
        find_key(keys.iter(), question)
    }

    const KEYS: &[&str] = &["deploy", "deploy port", "redis-password", "release_branch", "on-call rota"];

    #[test]
    fn exact_key_wins_in_any_case() {
        assert_eq!(found(KEYS, " Deploy "), Some((0, KeyMatch::Exact)));
    }

    #[test]
    fn longest_contained_key_is_meant() {
        assert_eq!(found(KEYS, "what is the deploy port now"), Some((1, KeyMatch::Substring)));
    }

    #[test]
    fn part_of_a_key_finds_it() {
        assert_eq!(found(KEYS, "rota"), Some((4, KeyMatch::Substring)));
    }

    #[test]
    fn letters_inside_a_word_and_one_common_word_find_nothing() {
        let keys = ["ip", "ci", "log", "staging host"];
        for question in ["shipping address", "what is the capacity", "catalog", "production host"] {
            assert_eq!(found(&keys, question), None, "{question}");
        }
        assert_eq!(found(&keys, "which IP?"), Some((0, KeyMatch::Substring)));
    }

    #[test]
    fn a_key_is_found_within_a_sentence_without_spaces() {
        let keys = ["部署端口", "api キー", "deploy port"];
        assert_eq!(found(&keys, "请问我们现在的部署端口是多少"), Some((0, KeyMatch::Substring)));
        assert_eq!(found(&keys, "今のapi キーは何ですか"), Some((1, KeyMatch::Substring)));
        assert_eq!(found(&["ip"], "shippingの住所"), None);
    }

    #[test]
    fn shared_words_find_a_key_in_another_order() {
        assert_eq!(found(KEYS, "password of redis"), Some((2, KeyMatch::Words)));
    }

    #[test]
    fn spelling_decides_between_keys_that_share_a_word() {
        let keys = ["uploader port", "uploader retry", "uploader limit"];
        assert_eq!(found(&keys, "uploader lmit"), Some((2, KeyMatch::Words)));
    }

    #[test]
    fn another_number_is_another_key() {
        assert_eq!(found(&["replica 1", "replica 1 host"], "replica 3 host"), None);
        assert_eq!(found(&["replica 12"], "replica 1"), None);
        assert_eq!(
            found(&["replica 1 host", "replica 3 host"], "host replica 3"),
            Some((1, KeyMatch::Words))
        );
        assert_eq!(found(&["replica host 1"], "host of the replica"), Some((0, KeyMatch::Words)));
    }

    #[test]
    fn a_number_is_compared_with_those_of_words_alike() {
        assert_eq!(found(&["api v2 timeout"], "timeout of the api in 2026"), Some((0, KeyMatch::Words)));
        assert_eq!(found(&["s3 bucket"], "bucket of s3 in 2026"), Some((0, KeyMatch::Words)));
        assert_eq!(
            found(&["api v2 timeout", "api v3 timeout"], "timeout of api v3"),
            Some((1, KeyMatch::Words))
        );
        assert_eq!(found(&["api v2 timeout"], "timeout of api v3"), None);
    }

    #[test]
    fn misspelt_key_is_found() {
        assert_eq!(found(KEYS, "relase_brnach"), Some((3, KeyMatch::Spelling)));
    }

    #[test]
    fn unknown_subject_finds_nothing() {
        assert_eq!(found(KEYS, "walnut garden"), None);
        assert_eq!(found(KEYS, ""), None);
        assert_eq!(found(&[], "deploy"), None);
    }

    #[test]
    fn anagram_is_not_close_in_spelling() {
        assert_eq!(found(&["listen"], "tinsel"), None);
    }
}
