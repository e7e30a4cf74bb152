//! Exact values in lessons: numbers, names and negations that make two similar lessons different.
//!
//! `--lane 7` is not `--lane 8`, and "never" is not "always". A similarity of words or vectors cannot distinguish them.

/// The first value of a lesson that a known text does not contain: a number beside the same word, a name from code
/// (`` `uploads` ``, `max_conns`, `--force`), a word in double quotes, a single letter.
///
/// Case matters only for single letters, as in the flags `-v` and `-V`. Values are compared as text, not by meaning:
/// the same duration in another unit ("30 s", "half a minute") counts as missing.
pub fn missing_value<'a>(lesson: &'a str, known: &str) -> Option<&'a str> {
    Values::new(lesson).missing_in(&Values::new(known))
}

/// As [`missing_value`], but only for values with a digit: numbers, and names like `eu-1`.
pub fn missing_number<'a>(lesson: &'a str, known: &str) -> Option<&'a str> {
    let has_digit = |word: &Word<'_>| word.text.contains(|c: char| c.is_ascii_digit());
    Values::new(lesson).first_missing(&Values::new(known), has_digit)
}

/// The words of a text, read once to be compared with those of many others.
#[derive(Clone, Debug)]
pub struct Values<'a>(Vec<Word<'a>>);

impl<'a> Values<'a> {
    /// Reads a text.
    pub fn new(text: &'a str) -> Self {
        Self(words(text))
    }

    /// See [`missing_value`].
    pub fn missing_in(&self, known: &Values<'_>) -> Option<&'a str> {
        self.first_missing(known, |word| word.kind != Kind::Word)
    }

    fn first_missing(&self, known: &Values<'_>, counts: impl Fn(&Word<'a>) -> bool) -> Option<&'a str> {
        let missing =
            (0..self.0.len()).find(|&at| counts(&self.0[at]) && !contains_value(&self.0, at, &known.0))?;
        Some(self.0[missing].text)
    }
}

/// Whether a text says that something is no longer true.
pub fn is_correction(text: &str) -> bool {
    const SIGNS: [&str; 8] = [
        "no longer",
        "not any more",
        "not anymore",
        "turned out to be wrong",
        "is outdated",
        "used to be",
        "we switched from",
        "contrary to what",
    ];
    let text = text.to_lowercase();
    SIGNS.iter().any(|sign| text.contains(sign))
}

/// Whether a sentence has an odd number of negations: "never" and "not" are negative, "never … without" is not.
pub fn is_negative(text: &str) -> bool {
    text.split_whitespace().filter(|word| is_negation(&bare(word))).count() % 2 == 1
}

pub(crate) fn is_negation(word: &str) -> bool {
    const NEGATIONS: [&str; 9] =
        ["never", "not", "no", "dont", "cannot", "without", "avoid", "stop", "neither"];
    NEGATIONS.contains(&word) || word.ends_with("n't")
}

/// A word in lower case without the punctuation around it.
fn bare(word: &str) -> String {
    word.trim_matches(|c: char| !c.is_alphanumeric()).replace('’', "'").to_lowercase()
}

fn contains_value(lesson: &[Word<'_>], at: usize, known: &[Word<'_>]) -> bool {
    let beside = |words: &[Word<'_>], at: usize, other: &[Word<'_>], there: usize| {
        let before = at.checked_sub(1).zip(there.checked_sub(1));
        let is_same = |here: usize, there: usize| {
            let (here, there) = (words.get(here), other.get(there));
            here.zip(there).is_some_and(|(here, there)| here.singular == there.singular)
        };
        before.is_some_and(|(here, there)| is_same(here, there)) || is_same(at + 1, there + 1)
    };
    known.iter().enumerate().any(|(there, word)| {
        let alone = lesson.len() == 1 || lesson[at].kind != Kind::Number;
        lesson[at].key == word.key && (alone || beside(lesson, at, known, there))
    })
}

/// What is compared of a word.
fn key(word: &str) -> String {
    if word.len() == 1 { word.to_owned() } else { word.to_lowercase() }
}

/// A word without a plural ending.
fn plain(word: &str) -> &str {
    word.strip_suffix('s').filter(|stem| stem.len() > 2).unwrap_or(word)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Word,
    Name,
    Number,
}

#[derive(Clone, Debug)]
struct Word<'a> {
    text: &'a str,
    kind: Kind,
    key: String,
    /// The key without a plural ending.
    singular: String,
}

impl<'a> Word<'a> {
    fn new(text: &'a str, kind: Kind) -> Self {
        Self { text, kind, key: key(text), singular: key(plain(text)) }
    }
}

/// Words that may stand between a number and the word that it belongs to.
const FILLERS: [&str; 24] = [
    "a", "an", "the", "of", "to", "at", "in", "on", "for", "and", "or", "is", "are", "be", "was", "by",
    "with", "as", "its", "it", "than", "you", "we", "must",
];

/// The words of a text in order, without fillers and punctuation.
fn words(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    for (piece, in_code) in pieces(text) {
        let is_between = |c: char| c.is_whitespace() || "()[]{}<>,;=/|".contains(c);
        for raw in piece.split(is_between) {
            let start = raw.trim_start_matches(|c: char| !c.is_alphanumeric() && c != '-' && c != '_');
            let bare = start.trim_start_matches('-');
            // The sign of a number belongs to it; other dashes begin a flag or a list item.
            let signed = start.len() == bare.len() + 1 && bare.starts_with(|c: char| c.is_ascii_digit());
            let text = if signed { start } else { bare };
            let text = text.trim_end_matches(|c: char| !c.is_alphanumeric() && !"_+#".contains(c));
            let is_flag = start.len() > bare.len() && !text.is_empty() && !signed;
            if !text.contains(|c: char| c.is_alphanumeric()) {
                continue;
            }
            let kind = match text.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit()) {
                true => Kind::Number,
                false if in_code || is_flag || is_name(text) => Kind::Name,
                false => Kind::Word,
            };
            if kind == Kind::Word && FILLERS.iter().any(|filler| filler.eq_ignore_ascii_case(text)) {
                continue;
            }
            let (text, unit) = split_unit(text, kind);
            words.push(Word::new(text, kind));
            words.extend(unit.map(|text| Word::new(text, Kind::Word)));
        }
    }
    words
}

/// Splits a number from its unit: `30s`, `30-second` and `30 s` mean the same.
fn split_unit(text: &str, kind: Kind) -> (&str, Option<&str>) {
    let end = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    match kind == Kind::Number && !unit.is_empty() && unit.chars().all(char::is_alphabetic) {
        true => (number.trim_end_matches('-'), Some(unit)),
        false => (text, None),
    }
}

/// Whether a word outside of code is a name and not a word of the language.
fn is_name(word: &str) -> bool {
    let mut letters = word.chars();
    let single = letters.next().filter(|_| letters.next().is_none());
    if let Some(letter) = single {
        return letter.is_uppercase() && !matches!(letter, 'A' | 'I');
    }
    let dotted = word.contains('.') && word.split('.').all(|part| part.len() > 1);
    let humped = || word.chars().zip(word.chars().skip(1)).any(|(a, b)| a.is_lowercase() && b.is_uppercase());
    let signs = |c: char| c.is_ascii_digit() || "_@:+#".contains(c);
    dotted || word.contains(signs) || humped()
}

/// Splits a text into pieces, each with whether it is quoted as code or as a value.
fn pieces(text: &str) -> Vec<(&str, bool)> {
    let mut pieces = Vec::new();
    quoted(
        text,
        |c| c == '`',
        |piece, in_code| match in_code {
            true => pieces.push((piece, true)),
            false => {
                quoted(piece, |c| matches!(c, '"' | '“' | '”'), |piece, quoted| pieces.push((piece, quoted)))
            }
        },
    );
    pieces
}

/// Calls `take` for each piece with whether it is inside quotation marks; the last piece may be unclosed.
fn quoted<'a>(text: &'a str, mark: impl Fn(char) -> bool, mut take: impl FnMut(&'a str, bool)) {
    let pieces: Vec<&str> = text.split(mark).collect();
    for (at, piece) in pieces.iter().enumerate() {
        take(piece, at % 2 == 1 && at + 1 < pieces.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_different_value_is_missing() {
        for (lesson, known, value) in [
            ("run `check --lane 6` first", "Run `check --lane 3` first", "6"),
            ("use port 9090", "Use port 8080", "9090"),
            ("use port 9090", "Use port 8080, with 9090 workers", "9090"),
            ("8080 for staging and 9090 for production", "9090 for staging and 8080 for production", "8080"),
            ("wait 30s", "Wait 45 s", "30"),
            ("an offset of -5 hours", "an offset of 5 hours", "-5"),
            ("pin v1.2 of it", "Pin v1.3 of it", "v1.2"),
            ("call it with -V", "Call it with -v", "V"),
            ("push with `--verify`", "Push with `--no-verify`", "verify"),
            ("put it on drive D", "Put it on drive E", "D"),
            ("set max_conns", "Set min_conns", "max_conns"),
            ("keep config.toml", "Keep config.yaml", "config.toml"),
            ("name the region \"eu\"", "Name the region \"us\"", "eu"),
            ("build it with `C++`", "Build it with `C`", "C++"),
        ] {
            assert_eq!(missing_value(lesson, known), Some(value), "{lesson} | {known}");
        }
    }

    #[test]
    fn the_same_value_is_found_in_any_markup() {
        for (lesson, known) in [
            ("first run `check --lane 7`, always", "- Always run `check --lane 7` first"),
            ("run check --lane=7", "Run `check --lane 7` first"),
            ("the port is 8080", "> Use port 8080."),
            ("at most 30 connections", "Never more than 30 connection"),
            ("wait 30s", "Wait (30 s) for it"),
            ("wait for the 30-second limit", "a limit: 30 second limits"),
            ("push with `--no-verify`", "**Push** with --no-verify"),
            ("A retry is safe", "Retries are safe"),
            ("never use floats, e.g. for money", "Never use floats"),
            ("8080", "port 8080"),
        ] {
            assert_eq!(missing_value(lesson, known), None, "{lesson} | {known}");
        }
    }

    #[test]
    fn names_are_not_numbers() {
        let lesson = "keep 5 jobs in `max_jobs`";
        assert_eq!(missing_number(lesson, "Keep 5 jobs in `min_jobs`"), None);
        assert_eq!(missing_number(lesson, "Keep 6 jobs in `max_jobs`"), Some("5"));
        assert_eq!(missing_number("deploy to `eu-1`", "Deploy to `eu-2`"), Some("eu-1"));
    }
}
