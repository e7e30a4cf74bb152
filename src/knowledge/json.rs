//! JSON that JavaScript has written. Where it has cut a text within a character, one half of that stands alone, as
//! `\ud83d`: an escape that no Rust string can hold, and that parsers refuse.

use std::borrow::Cow;

/// Half a character is shown as this.
const REPLACEMENT: &[u8] = br"\ufffd";
/// The length of `\ud83d`, in bytes.
const ESCAPE_BYTES: usize = 6;

/// Parses JSON; what is refused is tried again with U+FFFD for each half of a character.
///
/// # Errors
/// What `parse` says of the JSON.
pub fn parse_lenient<T, E>(json: &[u8], parse: impl Fn(&[u8]) -> Result<T, E>) -> Result<T, E> {
    parse(json).or_else(|error| match without_halves(json) {
        Cow::Borrowed(_) => Err(error),
        Cow::Owned(whole) => parse(&whole),
    })
}

/// JSON with U+FFFD in place of each half of a character.
pub fn without_halves(json: &[u8]) -> Cow<'_, [u8]> {
    let (mut whole, mut copied, mut at) = (Vec::new(), 0, 0);
    while let Some(found) = json[at..].iter().position(|byte| *byte == b'\\') {
        at += found;
        let next = at + ESCAPE_BYTES;
        at = match code_unit(&json[at..]) {
            Some(0xd800..0xdc00) if matches!(json.get(next..).and_then(code_unit), Some(0xdc00..0xe000)) => {
                next + ESCAPE_BYTES
            }
            Some(0xd800..0xe000) => {
                whole.extend_from_slice(&json[copied..at]);
                whole.extend_from_slice(REPLACEMENT);
                copied = next;
                next
            }
            // Also behind `\\`, whose second half escapes nothing.
            _ => (at + 2).min(json.len()),
        };
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    whole.extend_from_slice(&json[copied..]);
    Cow::Owned(whole)
}

/// The number in `\u0041`, if the text begins with such an escape.
fn code_unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(br"\u")?.get(..4)?;
    digits.iter().try_fold(0, |code, digit| Some(code << 4 | char::from(*digit).to_digit(16)? as u16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_half_a_character_is_replaced() {
        for (json, expected) in [
            (r#""a \ud83d b""#, r#""a \ufffd b""#),
            (r#""\uDE00\ud83d""#, r#""\ufffd\ufffd""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\\\ud83d""#, r#""\\\ufffd""#),
            (r#""\ud83d\n\u0041""#, r#""\ufffd\n\u0041""#),
        ] {
            assert_eq!(String::from_utf8_lossy(&without_halves(json.as_bytes())), expected, "{json}");
        }
        for json in [r#""\ud83d\ude00""#, r#""\\ud83d""#, r#""\u00e4\n""#, r#""\ud8"#, r"\", ""] {
            assert!(matches!(without_halves(json.as_bytes()), Cow::Borrowed(_)), "{json}");
        }
    }
}
