//! The signature of an error message: its words without what changes from one occurrence to the next.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

/// Of a longer output only the beginning and the end are read, in bytes: there are the first error and the summary.
const OUTPUT_END_BYTES: usize = 8 << 10;
/// What stands for a path, and for a place such as `file.rs:12:5`.
const PATH: &str = "/";
/// Words of a pattern.
const WORDS_MAX: usize = 40;

/// A part of an error's message, as its words: in lower case, each number as `0`, each path as `/`, without quotes and
/// other marks. Paths and places do not count, as a unit may quote an error without them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Signature {
    words: Vec<String>,
}

impl Signature {
    /// `None` if the message has no word to find it by.
    pub(crate) fn new(message: &str) -> Option<Self> {
        let mut words = words_of(message);
        // Of a message that was cut, the last word is a part of one.
        if message.trim_end().ends_with('…') {
            words.pop();
        }
        words.truncate(WORDS_MAX);
        let signature = Self { words };
        signature.key().is_some().then_some(signature)
    }

    /// The word to look it up by: the longest, which tends to be the rarest.
    pub(crate) fn key(&self) -> Option<&str> {
        let letters = |word: &&String| word.chars().any(char::is_alphabetic);
        self.words.iter().filter(letters).max_by_key(|word| word.len()).map(String::as_str)
    }

    /// The number of words that are neither numbers nor paths.
    pub(crate) fn plain_words(&self) -> usize {
        self.words.iter().filter(|word| word.chars().any(char::is_alphabetic)).count()
    }
}

/// The words of a failed action's output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Output {
    words: Vec<String>,
}

impl Output {
    pub(crate) fn new(text: &str) -> Self {
        if text.len() <= 2 * OUTPUT_END_BYTES {
            return Self { words: words_of(text) };
        }
        let head = text.floor_char_boundary(OUTPUT_END_BYTES);
        let tail = text.ceil_char_boundary(text.len() - OUTPUT_END_BYTES);
        // A mark that no pattern has keeps the two ends apart.
        let words =
            words_of(&text[..head]).into_iter().chain(["\u{0}".to_owned()]).chain(words_of(&text[tail..]));
        Self { words: words.collect() }
    }

    /// Whether the output contains a signature, word by word.
    pub(crate) fn contains(&self, signature: &Signature) -> bool {
        // One that an earlier version made has its paths.
        let wanted: Vec<&String> = signature.words.iter().filter(|word| *word != PATH).collect();
        self.words.windows(wanted.len().max(1)).any(|window| window.iter().eq(wanted.iter().copied()))
    }

    /// The different words that a signature could be looked up by.
    pub(crate) fn keys(&self) -> HashSet<&str> {
        let letters = |word: &&String| word.chars().any(char::is_alphabetic);
        self.words.iter().filter(letters).map(String::as_str).collect()
    }
}

fn words_of(text: &str) -> Vec<String> {
    let plain = without_escapes(text);
    plain.split_whitespace().filter_map(word).filter(|word| word != PATH).collect()
}

/// A word as it is compared; `None` for one of marks alone.
fn word(raw: &str) -> Option<String> {
    let is_mark = |c: char| !c.is_alphanumeric() && !matches!(c, '/' | '_' | '-' | '.');
    let trimmed = raw.trim_matches(|c: char| is_mark(c) || c == '.');
    // `(os error 2)`, `file.rs:12:5:`, `/a/b.go:3`.
    if trimmed.contains('/') && !trimmed.contains("//") || trimmed.starts_with('~') {
        return Some(PATH.to_owned());
    }
    let mut places = trimmed.split(':');
    if places.next().is_some_and(|name| name.contains(|c: char| c.is_ascii_alphabetic()))
        && places
            .next()
            .is_some_and(|line| !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit()))
    {
        return Some(PATH.to_owned());
    }
    let lower = trimmed.to_lowercase();
    let is_hex = lower.len() >= 7
        && lower.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
        && lower.chars().any(|c| c.is_ascii_digit());
    if is_hex || lower.starts_with("0x") {
        return Some("0".to_owned());
    }
    let mut normal = String::with_capacity(lower.len());
    // A code such as `E0502` or `TS2345` says which error it is; another number does not.
    let is_code = lower.starts_with(|c: char| c.is_ascii_alphabetic());
    for c in lower.chars() {
        let is_number = c.is_ascii_digit() && !is_code;
        if is_number && !normal.ends_with('0') {
            normal.push('0');
        } else if !is_number && (c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '[' | ']' | ':' | '='))
        {
            normal.push(c);
        }
    }
    (!normal.is_empty() && normal.chars().any(char::is_alphanumeric)).then_some(normal)
}

/// The text without the escape sequences of terminals.
fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        let sequence = after.strip_prefix('[').unwrap_or(after);
        let end = sequence.find(|c: char| c.is_ascii_alphabetic()).map_or(sequence.len(), |at| at + 1);
        rest = &sequence[end..];
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, output: &str) -> bool {
        Output::new(output).contains(&Signature::new(pattern).unwrap())
    }

    #[test]
    fn what_changes_between_occurrences_does_not_count() {
        for (pattern, output) in [
            (
                "open /tmp/a/b.txt: no such file or directory",
                "Error: open /home/me/x.rs: No such file or directory\n",
            ),
            (
                "listen tcp :8080: bind: address already in use",
                "listen tcp :9999: bind: address already in use",
            ),
            ("could not find `foo` in crate", "error: could not find 'foo' in crate `bar`"),
            (
                "thread 'parser::names' panicked at byte index 4 is not a char boundary; it is inside …",
                "Exit code 101\nthread 'parser::names' panicked at src/parser.rs:41:19: byte index 7 is not a char \
                 boundary; it is inside 'ä'",
            ),
            ("dial localhost:8080: connection refused", "Error: dial localhost:9090: connection refused"),
            ("cannot open the file because it is lock…", "cannot open the file because it is locked"),
            ("took 31 seconds, limit 30", "\u{1b}[31mtook 7 seconds, limit 12\u{1b}[0m"),
            ("commit 9f8b1c2d3e is not known", "commit 0000000aaaa is not known here"),
            ("Database Is Locked (code 6)", "Error: database is locked (code 5)"),
            ("illegal option -- A", "cat: illegal option -- A\nusage: cat"),
            ("error[E0502]: cannot borrow", "error[E0502]: cannot borrow `x` as mutable"),
        ] {
            assert!(matches(pattern, output), "{pattern}");
        }
    }

    #[test]
    fn another_error_is_another_error() {
        for (pattern, output) in [
            ("error[E0502]: cannot borrow", "error[E0499]: cannot borrow `x` as mutable"),
            ("could not find `foo` in crate", "could not find `other` in crate"),
            ("no such file", "no such table, no file"),
        ] {
            assert!(!matches(pattern, output), "{pattern}");
        }
        assert_eq!(Signature::new("12 / 4 :: --"), None);
    }

    #[test]
    fn both_ends_of_a_long_output_are_read() {
        let middle = "x ".repeat(40_000);
        assert!(matches("first failure", &format!("first failure {middle} é")));
        assert!(matches("last failure", &format!("é{middle} last failure")));
    }
}
