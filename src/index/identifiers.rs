//! Words as the full-text index sees them: identifiers found whole and by their parts.

use std::collections::HashSet;

use knowledge::text::split_camel_case;

/// The most terms of one query that are looked up: a person asks with ten, a pasted log has
/// thousands.
const TERMS_MAX: usize = 64;

/// The parts of the texts' identifiers, one after the other, each identifier once.
///
/// The tokenizer takes `parseConfig` for one word and `parse_config` for two; this gives
/// `parse config` for the first and `parseconfig` for the second, so that each way of writing finds
/// the other. They are indexed in a column of their own beside the text.
pub(crate) fn parts_of_identifiers(texts: &[&str]) -> String {
    let mut seen = HashSet::new();
    let mut parts = String::new();
    let words = texts.iter().flat_map(|text| with_marks(text)).flat_map(identifiers);
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

/// A query of FTS5 for chunks that hold any of the terms; `None` when no term has a letter or digit.
///
/// Every term is quoted: nothing in it is an operator.
pub(crate) fn any_of(terms: &[String]) -> Option<String> {
    let mut seen = HashSet::new();
    let quoted: Vec<String> = terms
        .iter()
        .filter(|term| term.chars().any(char::is_alphanumeric))
        .flat_map(|term| std::iter::once(term.clone()).chain(identifiers(term).flat_map(other_forms)))
        .filter(|form| seen.insert(form.to_lowercase()))
        .take(TERMS_MAX)
        .map(|form| quote(&form))
        .collect();
    if quoted.is_empty() { None } else { Some(quoted.join(" OR ")) }
}

/// A term as a string of FTS5. A NUL would end the query early.
fn quote(term: &str) -> String {
    format!("\"{}\"", term.replace('\0', " ").replace('"', "\"\""))
}

fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| word.len() >= 3)
}

/// The stretches of a text that may hold an identifier with parts: with a mark between letters, a capital after the
/// first, or what is not ASCII. Most words of a text have none of these, which their bytes tell at a glance.
fn with_marks(text: &str) -> impl Iterator<Item = &str> {
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
                // Both ends are beside ASCII, or ends of the text.
                return text.get(start..end);
            }
        }
        None
    })
}

/// How else an identifier may be written: its parts apart, and its parts in one.
fn other_forms(word: &str) -> Vec<String> {
    let word = word.trim_matches('_');
    let parts: Vec<&str> = word.split('_').filter(|part| !part.is_empty()).collect();
    let humps: Vec<&str> =
        parts.iter().flat_map(|part| split_camel_case(part)).filter(|hump| hump.len() >= 2).collect();
    let mut forms = Vec::new();
    if humps.len() > parts.len() {
        forms.push(humps.join(" ").to_lowercase());
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
    fn identifiers_are_found_by_their_parts_and_as_one() {
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

    /// Against looking at every word.
    #[test]
    fn no_identifier_with_parts_is_passed_over() {
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
    fn nothing_in_a_term_is_an_operator() {
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
    }
}
