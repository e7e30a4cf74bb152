//! The words of a text, without those that say nothing of its subject.

/// The words of a note or a question about notes, in lower case and in order: runs of at least two
/// letters, digits, `/`, `_`, `:` or `-`, so that paths and identifiers stay whole.
pub(crate) fn note_words(text: &str) -> Vec<String> {
    split(text, |c| matches!(c, '/' | '_' | ':' | '-')).filter(|word| !COMMON.contains(&&**word)).collect()
}

/// The words of a fact's key or a question about facts, in lower case and without doubles: runs of at
/// least two letters or digits, so that `deploy-port` and `deploy port` are equal.
pub(crate) fn key_words(text: &str) -> Vec<String> {
    let is_common = |word: &str| COMMON.contains(&word) || COMMON_IN_QUESTIONS.contains(&word);
    unique(split(text, |_| false).filter(|word| !is_common(word)))
}

/// The items without doubles, in order of their first occurrence.
pub(crate) fn unique<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut kept = Vec::new();
    for item in items {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    kept
}

fn split(text: &str, joins: impl Fn(char) -> bool) -> impl Iterator<Item = String> {
    let lower = text.to_lowercase();
    let words: Vec<String> = lower
        .split(|c: char| !c.is_alphanumeric() && !joins(c))
        .filter(|word| word.chars().nth(1).is_some())
        .map(str::to_owned)
        .collect();
    words.into_iter()
}

/// Too common in any text to tell one note from another.
const COMMON: &[&str] = &[
    "an", "the", "this", "that", "it", "its", // what is meant
    "is", "are", "was", "be", "has", "have", // states
    "and", "or", "but", // joins
    "as", "at", "by", "for", "from", "in", "of", "on", "to", "with", // places
];

/// Common in questions besides.
const COMMON_IN_QUESTIONS: &[&str] = &[
    "what", "which", "who", "whom", "where", "when", "why", "how", // question words
    "me", "my", "we", "our", "you", "your", "he", "she", "they", "them", "their", // persons
    "these", "those", "here", "there", // what is meant
    "were", "been", "being", "had", "do", "does", "did", // states
    "can", "could", "may", "might", "must", "need", "shall", "should", "will", "would", // modal verbs
    "not", "no", "nor", "if", "so", "then", "than", // joins
    "about", "after", "again", "before", "during", "into", "through", "up", // places and times
    "all", "any", "both", "each", "few", "more", "most", "other", "own", "same", "some",
    "such", // amounts
    "also", "further", "just", "now", "once", "only", "too", "very", // emphasis
    "run", "show", "tell", "use", "using", // requests
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_words_keep_paths_and_identifiers_whole() {
        assert_eq!(note_words("The file src/auth_v2 is read."), ["file", "src/auth_v2", "read"]);
    }

    #[test]
    fn key_words_split_identifiers_and_drop_doubles() {
        assert_eq!(key_words("How do I use deploy-port, Deploy_Port?"), ["deploy", "port"]);
    }

    #[test]
    fn words_of_other_alphabets_count() {
        assert_eq!(note_words("Größe der Straße"), ["größe", "der", "straße"]);
        assert_eq!(key_words("порт сервера"), ["порт", "сервера"]);
    }

    #[test]
    fn one_letter_is_no_word() {
        assert!(note_words("a b c ! ?").is_empty());
    }
}
