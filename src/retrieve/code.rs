//! Whether a text is code.

/// The part of its characters that are punctuation of code, from which on a text is code. Of the passages of dialogues none
/// reach it, of books and reports one in twenty, of functions all but one in a hundred.
const SIGNS_PART: f64 = 0.015;

/// Whether a passage is mostly code. Prose with a short example is not.
pub(crate) fn is_code(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let is_sign = |at: usize| match bytes[at] {
        b'{' | b'}' | b'<' | b'>' | b'=' | b';' | b'_' => true,
        // A call, an index, a member.
        b'(' | b'[' => at > 0 && is_word(&bytes[at - 1]),
        b'.' => at > 0 && is_word(&bytes[at - 1]) && bytes.get(at + 1).is_some_and(is_word),
        _ => false,
    };
    let signs = (0..bytes.len()).filter(|&at| is_sign(at)).count();
    signs as f64 >= SIGNS_PART * bytes.len() as f64 && signs > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_told_from_prose() {
        for code in [
            "def paste(xsel=False):\n    \"\"\"Returns the clipboard.\"\"\"\n    return read(xsel)",
            "pub fn len(&self) -> usize {\n    self.rows.len()\n}",
            "SELECT row, embedding FROM chunks WHERE text_hash = ?1;",
        ] {
            assert!(is_code(code), "{code}");
        }
        for prose in [
            "Caroline (8 May, 2023): I went to a support group yesterday; it was so powerful. [photo: a dog]",
            "A deferred transaction that upgrades to a write fails at once, whatever the busy timeout says. Begin every \
             write with `BEGIN IMMEDIATE`; the helper open_for_write does so for all of them, in each process.",
            "",
        ] {
            assert!(!is_code(prose), "{prose}");
        }
    }
}
