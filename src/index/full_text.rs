//! The texts of the full-text index, and the phrases that a search looks for in it: identifiers are found whole and by
//! their parts.
//!
//! A change here, or of the tokenizer, raises the version of every index that is built with it.

use std::collections::HashSet;

use knowledge::text::{self, split_camel_case};

/// The tokenizer, in the words of FTS5.
pub const TOKENIZER: &str = "porter unicode61 remove_diacritics 2";

/// The most phrases of one query that are searched: a question has ten, a pasted log has thousands.
const PHRASES_MAX: usize = 64;

/// The other forms of the texts' identifiers, separated by spaces, each identifier once.
///
/// FTS5's tokenizer reads `parseConfig` as one word and `parse_config` as two. The other forms are `parse config` and
/// `parseconfig`, so that each way of writing finds the other. They are indexed in a column of their own.
fn parts_of_identifiers(texts: &[&str]) -> String {
    let mut seen = HashSet::new();
    let mut parts = String::new();
    let words = texts.iter().flat_map(|text| marked_words(text)).flat_map(identifiers);
    for word in words.filter(|word| seen.insert(*word)) {
        for form in other_forms(word) {
            if !parts.is_empty() {
                parts.push(' ');
            }
            parts.push_str(&form);
        }
    }
    parts
}

/// The columns of a chunk: heading, text and the parts of its identifiers. A unit's first chunk has its description.
pub fn columns(
    breadcrumb: &str,
    tags: &[String],
    description: Option<&str>,
    position: u32,
    text: &str,
) -> [String; 3] {
    let mut heading = format!("{breadcrumb}\n{}", tags.join(" "));
    if let Some(description) = description.filter(|_| position == 0) {
        heading.push('\n');
        heading.push_str(description);
    }
    let (heading, text) = (text::strip_hidden(&heading), text::strip_hidden(text));
    let parts = parts_of_identifiers(&[&heading, &text]);
    [heading, text, parts].map(|column| text::with_word_breaks(&column).into_owned())
}

/// The phrases that a search for any of the terms looks for, each a word or words that stand together; none if no term has
/// a letter or digit.
pub fn phrases(terms: &[String]) -> Vec<String> {
    let mut seen = HashSet::new();
    terms
        .iter()
        .filter(|term| term.chars().any(char::is_alphanumeric))
        .flat_map(|term| std::iter::once(term.clone()).chain(identifiers(term).flat_map(other_forms)))
        .flat_map(|form| text::indexed_parts(&form))
        .filter(|form| seen.insert(form.to_lowercase()))
        .take(PHRASES_MAX)
        .collect()
}

/// A query of FTS5 for chunks that contain any of the terms; `None` if there is no phrase.
///
/// Every phrase is quoted, so that nothing in it is an operator.
pub(crate) fn any_of(terms: &[String]) -> Option<String> {
    let quoted: Vec<String> = phrases(terms).iter().map(|phrase| quote(phrase)).collect();
    if quoted.is_empty() { None } else { Some(quoted.join(" OR ")) }
}

/// Quotes a term for FTS5. A NUL would end the query early.
fn quote(term: &str) -> String {
    format!("\"{}\"", term.replace('\0', " ").replace('"', "\"\""))
}

fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| word.len() >= 3)
}

/// The words of a text that may be identifiers with parts: those with an underscore, a capital after the first letter, or
/// a character outside of ASCII. Most words have none of these, which a scan of the bytes finds quickly.
fn marked_words(text: &str) -> impl Iterator<Item = &str> {
    let bytes = text.as_bytes();
    let is_of_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            let start = at;
            let mut is_marked = false;
            while at < bytes.len() && is_of_word(bytes[at]) {
                let byte = bytes[at];
                is_marked |= byte == b'_' || !byte.is_ascii() || (byte.is_ascii_uppercase() && at > start);
                at += 1;
            }
            let end = at;
            at += 1;
            if is_marked {
                // Both ends are beside an ASCII byte or at an end of the text, so they are character boundaries.
                return text.get(start..end);
            }
        }
        None
    })
}

/// The other forms of an identifier: its parts separated, and its parts joined.
fn other_forms(word: &str) -> Vec<String> {
    let word = word.trim_matches('_');
    let parts: Vec<&str> = word.split('_').filter(|part| !part.is_empty()).collect();
    let words = parts.iter().flat_map(|part| split_camel_case(part));
    let words: Vec<&str> = words.filter(|word| word.len() >= 2).collect();
    let mut forms = Vec::new();
    if words.len() > parts.len() {
        forms.push(words.join(" ").to_lowercase());
    }
    if parts.len() > 1 {
        forms.push(parts.concat().to_lowercase());
    }
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_have_split_and_joined_forms() {
        let check =
            |text: &str, expected: &str| assert_eq!(parts_of_identifiers(&[text]), expected, "{text}");
        check("call parseConfig twice: parseConfig", "parse config");
        check("read_file", "readfile");
        check("parseHTTPHeader2 in std::io", "parse http header2");
        check("SQLITE_BUSY and sqliteBusy", "sqlitebusy sqlite busy");
        check("plain words, 日本語, F16", "");
        check("__init__", "");
        check("größeÄndern", "größe ändern");
        check("aB—cD ß_x Überall x—y", "ßx");
        check("(tokenizeAll)", "tokenize all");
        assert_eq!(parts_of_identifiers(&["readFile", "read_file readFile"]), "read file readfile");
    }

    /// Compares the quick scan with testing every word.
    #[test]
    fn no_identifier_with_parts_is_skipped() {
        let letters = ["a", "bc", "D", "EF", "_", "__", "1", "ß", "É", "—", " ", "-", ".", "\n", "日"];
        let mut with_parts = 0;
        for seed in 0..2_000_u32 {
            let mut random = blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof();
            let mut drawn = [0; 24];
            random.fill(&mut drawn);
            let text: String = drawn.iter().map(|&at| letters[usize::from(at) % letters.len()]).collect();
            let mut seen = HashSet::new();
            let words = identifiers(&text).filter(|word| seen.insert(*word));
            let expected = words.flat_map(other_forms).collect::<Vec<_>>().join(" ");
            assert_eq!(parts_of_identifiers(&[&text]), expected, "seed {seed}: {text:?}");
            with_parts += u32::from(!expected.is_empty());
        }
        assert!(with_parts > 500);
    }

    #[test]
    fn a_term_contains_no_operator() {
        let check = |terms: &[&str], expected: Option<&str>| {
            let terms: Vec<String> = terms.iter().map(|term| (*term).to_owned()).collect();
            assert_eq!(any_of(&terms).as_deref(), expected, "{terms:?}");
        };
        check(&[], None);
        check(&["", "*", "-", "\"", "()"], None);
        check(&["a\"b", "NEAR"], Some("\"a\"\"b\" OR \"NEAR\""));
        check(&["x\0y"], Some("\"x y\""));
        check(&["parseConfig"], Some("\"parseConfig\" OR \"parse config\""));
        check(&["same", "Same"], Some("\"same\""));
        check(&["APIの値"], Some("\"API\" OR \"\u{200b}の\u{200b}値\""));
    }
}
