//! Finds the entries of a JSON object from its bytes, without building values.
//!
//! Nine tenths of a transcript's bytes are in lines that are not used. Deciding that from the
//! top-level `type`, wherever it is and whatever is nested before it, costs one pass over
//! the quotes and brackets and no allocation.

use knowledge::json::parse_lenient;
use memchr::memchr2;
use serde::de::DeserializeOwned;

/// The entries of an object: each key as written between its quotes, and the bytes of its value.
/// Ends at the first thing that is not JSON; parsing the line tells why.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    bytes: &'a [u8],
    at: usize,
    is_ended: bool,
}

impl<'a> Entries<'a> {
    /// `None` if the bytes do not begin an object.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let at = skip_space(bytes, 0);
        (bytes.get(at) == Some(&b'{')).then_some(Self { bytes, at: at + 1, is_ended: false })
    }

    fn entry(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let start = skip_space(self.bytes, self.at);
        let start =
            if self.bytes.get(start) == Some(&b',') { skip_space(self.bytes, start + 1) } else { start };
        if self.bytes.get(start) != Some(&b'"') {
            return None;
        }
        let key_end = string_end(self.bytes, start + 1)?;
        let colon = skip_space(self.bytes, key_end);
        if self.bytes.get(colon) != Some(&b':') {
            return None;
        }
        let value = skip_space(self.bytes, colon + 1);
        let end = value_end(self.bytes, value)?;
        self.at = end;
        Some((&self.bytes[start + 1..key_end - 1], &self.bytes[value..end]))
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_ended {
            return None;
        }
        let entry = self.entry();
        self.is_ended = entry.is_none();
        entry
    }
}

/// The bytes of the value under a top-level key.
pub fn value_of<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    Entries::new(object)?.find(|(key, _)| is_key(key, name)).map(|(_, value)| value)
}

/// The text of a JSON string, if the bytes are one.
pub fn text(value: &[u8]) -> Option<String> {
    (value.first() == Some(&b'"')).then(|| parse(value).ok()).flatten()
}

/// Parses what JavaScript has written, also where it has cut a text within a character.
///
/// # Errors
/// When it is no JSON, or not of this type.
pub fn parse<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    parse_lenient(json, |json| serde_json::from_slice(json))
}

/// The text of a key, as written between its quotes.
pub fn key(raw: &[u8]) -> Option<String> {
    parse(&[b"\"", raw, b"\""].concat()).ok()
}

fn is_key(raw: &[u8], name: &str) -> bool {
    // `"\u0074ype"` is the same key. No known client writes it, and checking costs nothing.
    raw == name.as_bytes() || raw.contains(&b'\\') && key(raw).is_some_and(|key| key == name)
}

fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
        at += 1;
    }
    at
}

/// The position after the closing quote of the string whose text begins at `at`.
fn string_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// The position after the value that begins at `at`. Not recursive: depth costs no stack.
fn value_end(bytes: &[u8], at: usize) -> Option<usize> {
    match bytes.get(at)? {
        b'"' => string_end(bytes, at + 1),
        b'{' | b'[' => {
            let mut depth = 0_usize;
            let mut at = at;
            loop {
                match bytes.get(at)? {
                    b'"' => at = string_end(bytes, at + 1)?,
                    b'{' | b'[' => {
                        depth += 1;
                        at += 1;
                    }
                    b'}' | b']' => {
                        depth -= 1;
                        at += 1;
                        if depth == 0 {
                            return Some(at);
                        }
                    }
                    _ => at += 1,
                }
            }
        }
        b',' | b'}' | b']' | b':' => None,
        _ => {
            let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n');
            Some(bytes[at..].iter().position(ends).map_or(bytes.len(), |length| at + length))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(line: &str) -> Option<String> {
        value_of(line.as_bytes(), "type").and_then(text)
    }

    #[test]
    fn the_top_level_type_is_found_anywhere_in_the_object() {
        let check =
            |line: &str, expected: Option<&str>| assert_eq!(kind(line).as_deref(), expected, "{line}");
        check(r#"{"type":"user"}"#, Some("user"));
        check(r#"{"a":{"type":"user"},"type":"mode"}"#, Some("mode"));
        check(r#"{"a":"\"type\":\"user\"","b":[{"type":"x"},"}"],"type" : "assistant" }"#, Some("assistant"));
        check(r#"{"a":"\\","type":"user"}"#, Some("user"));
        check(r#"{"\u0074ype":"user"}"#, Some("user"));
        check(r#"{"n":-1.5e3,"t":true,"z":null,"type":"x"}"#, Some("x"));
        check(r#"{"type":7}"#, None);
        check(r#"{"a":"never closed"#, None);
        check(r#"["type","user"]"#, None);
        check("", None);
    }

    #[test]
    fn depth_costs_no_stack() {
        let line = format!(r#"{{"a":{}{},"type":"user"}}"#, "[".repeat(300_000), "]".repeat(300_000));
        assert_eq!(kind(&line).as_deref(), Some("user"));
    }
}
