//! Tests whether a word looks random rather than written, and decodes base64 and hexadecimal text.

use base64::alphabet;
use base64::engine::{DecodePaddingMode, Engine as _, GeneralPurpose, GeneralPurposeConfig};

/// Whether a word looks like a key: long, with mixed letters and digits, and with a key's entropy.
pub(super) fn is_random(word: &[u8]) -> bool {
    let is_constant = word.contains(&b'_') && !word.iter().any(u8::is_ascii_lowercase);
    word.len() >= 16 && is_mixed(word, 2, 4) && entropy(word) >= 3.0 && !is_constant && !is_placeholder(word)
}

/// A weaker test than [`is_random`], for a part of a key.
pub(super) fn looks_random(word: &[u8]) -> bool {
    let rises = word.windows(2).filter(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase());
    let class = |byte: u8| (byte.is_ascii_digit(), byte.is_ascii_lowercase(), byte.is_ascii_uppercase());
    let changes = word.windows(2).filter(|pair| class(pair[0]) != class(pair[1])).count();
    let has_digit = word.iter().any(u8::is_ascii_digit);
    word.len() >= 6 && (has_digit && changes >= 3 || rises.count() >= 2) && entropy(word) >= 2.2
}

/// Whether a word of eight bytes or more looks like a password that a program made: letters and digits that change every
/// three bytes, as those of `sha256sum` and `getDb2Password` do not. A colour is none.
pub(super) fn is_jumbled(word: &[u8]) -> bool {
    let class = |byte: u8| (byte.is_ascii_digit(), byte.is_ascii_uppercase());
    // A capital belongs to the small letters behind it.
    let is_change = |pair: &&[u8]| {
        class(pair[0]) != class(pair[1]) && !(pair[0].is_ascii_uppercase() && pair[1].is_ascii_lowercase())
    };
    word.len() >= 8
        && !word.starts_with(b"#")
        && word.split(|byte| !byte.is_ascii_alphanumeric()).any(|part| {
            let runs = 1 + part.windows(2).filter(is_change).count();
            let has_digit = part.iter().any(u8::is_ascii_digit);
            part.len() >= 6 && has_digit && runs >= 4 && runs * 3 >= part.len()
        })
}

/// Whether a word has at least so many digits and so many changes between classes of characters.
pub(super) fn is_mixed(word: &[u8], digits_min: usize, changes_min: usize) -> bool {
    let changes = word
        .windows(2)
        .filter(|pair| {
            pair[0].is_ascii_digit() != pair[1].is_ascii_digit()
                || pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase()
        })
        .count();
    let digits = word.iter().filter(|byte| byte.is_ascii_digit()).count();
    digits >= digits_min && changes >= changes_min
}

/// Shannon entropy of the word's bytes, in bits per byte.
pub(super) fn entropy(word: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for &byte in word {
        counts[usize::from(byte)] += 1;
    }
    let length = word.len() as f64;
    counts
        .iter()
        .filter(|&&count| count > 0)
        .map(|&count| f64::from(count) / length)
        .map(|share| -share * share.log2())
        .sum()
}

/// Whether a value stands for a secret or names its source instead of being the secret.
pub(super) fn is_placeholder(value: &[u8]) -> bool {
    const MARKS: [&str; 16] = [
        "redacted",
        "example",
        "placeholder",
        "changeme",
        "change-me",
        "change_me",
        "your-",
        "your_",
        "xxxx",
        "****",
        "....",
        "dummy",
        "process.env",
        "os.environ",
        "${",
        "#{",
    ];
    let lower = value.to_ascii_lowercase();
    value.first().is_some_and(|first| b"$%{<&*[".contains(first))
        || MARKS.iter().any(|mark| memchr::memmem::find(&lower, mark.as_bytes()).is_some())
}

/// Whether a value has only letters, `_`, `-` and `.`: an identifier or prose.
pub(super) fn is_word(value: &[u8]) -> bool {
    value.iter().all(|byte| byte.is_ascii_alphabetic() || b"_-.".contains(byte))
}

/// Decodes base64 or hexadecimal digits, if the result is printable text.
pub(super) fn decode_text(run: &[u8]) -> Option<Vec<u8>> {
    let text = |bytes: Vec<u8>| (bytes.len() >= 5 && bytes.iter().copied().all(is_text)).then_some(bytes);
    let is_hex = run.len().is_multiple_of(2) && run.iter().all(u8::is_ascii_hexdigit);
    if is_hex {
        let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or(0) as u8;
        return text(run.chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect());
    }
    // Most long words decode to noise, which the first few bytes show.
    let mut groups = run.chunks_exact(4).take(4).take_while(|group| !group.contains(&b'='));
    let starts_as_text = groups.all(|group| {
        let bits = group.iter().fold(0, |bits, &byte| bits << 6 | base64_value(byte));
        bits.to_be_bytes()[1..].iter().copied().all(is_text)
    });
    if !starts_as_text {
        return None;
    }
    text(decode_base64(run)?)
}

fn is_text(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t')
}

/// The value of a digit of base64, of either alphabet.
fn base64_value(digit: u8) -> u32 {
    u32::from(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' | b'-' => 62,
        _ => 63,
    })
}

/// Decodes base64 of either alphabet, padded or not, and ignores a last group of one character.
fn decode_base64(run: &[u8]) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::RequireNone),
    );
    let digits = run.iter().take_while(|&&byte| byte != b'=').map(|byte| match byte {
        b'-' => b'+',
        b'_' => b'/',
        &byte => byte,
    });
    let mut digits: Vec<u8> = digits.collect();
    if digits.len() % 4 == 1 {
        digits.pop();
    }
    LENIENT.decode(digits).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_text_is_decoded() {
        let decoded = |run: &str| decode_text(run.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(decoded("dXNlcjpodW50ZXIy").as_deref(), Some("user:hunter2"));
        assert_eq!(decoded("dXNlcjpodW50ZXI=").as_deref(), Some("user:hunter"));
        assert_eq!(decoded("68756e74657232").as_deref(), Some("hunter2"));
        assert_eq!(decoded("9f86d081884c7d659a2feaa0c55ad015"), None);
        assert_eq!(decoded("an_ordinary_identifier"), None);
    }
}
