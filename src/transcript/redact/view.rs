//! Views of a text: decoded or joined forms whose bytes map back to the original.
//!
//! A secret may be written with escapes, percent codes or hidden characters, or across a line break.
//! Rules search such views, and their findings are mapped back. The decoders are written by hand because
//! they must keep that mapping, and read broken and nested encodings that a library would refuse.

use std::ops::Range;

use knowledge::text::is_hidden;

/// How far a full-width form of an ASCII character is from it.
const FULL_WIDTH: u32 = 0xfee0;

/// A decoded or joined form of a text.
pub(super) struct View {
    pub(super) bytes: Vec<u8>,
    /// In order; together they cover `bytes`.
    pieces: Vec<Piece>,
    /// Where in `bytes` lines were joined, and whether the text marks the continuation explicitly.
    pub(super) joins: Vec<(usize, bool)>,
}

/// A range that is copied verbatim, or one sequence that stands for other bytes.
#[derive(Clone, Copy)]
struct Piece {
    start: usize,
    origin: (usize, usize),
    is_verbatim: bool,
}

impl View {
    fn with_room(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), pieces: Vec::new(), joins: Vec::new() }
    }

    fn push_verbatim(&mut self, text: &[u8], origin: Range<usize>) {
        if origin.is_empty() {
            return;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&text[origin.clone()]);
        match self.pieces.last_mut() {
            Some(last) if last.is_verbatim && last.origin.1 == origin.start => last.origin.1 = origin.end,
            _ => self.pieces.push(Piece { start, origin: (origin.start, origin.end), is_verbatim: true }),
        }
    }

    fn push_decoded(&mut self, bytes: &[u8], origin: Range<usize>) {
        let piece = Piece { start: self.bytes.len(), origin: (origin.start, origin.end), is_verbatim: false };
        self.pieces.push(piece);
        self.bytes.extend_from_slice(bytes);
    }

    /// Removes the last bytes.
    fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
        while self.pieces.last().is_some_and(|piece| piece.start >= length) {
            self.pieces.pop();
        }
        if let Some(last) = self.pieces.last_mut().filter(|last| last.is_verbatim) {
            last.origin.1 = last.origin.0 + (length - last.start);
        }
    }

    /// The range of the original that a range of this view stands for.
    pub(super) fn origin(&self, found: &Range<usize>) -> Range<usize> {
        let piece = |at: usize| self.pieces[self.pieces.partition_point(|piece| piece.start <= at) - 1];
        let first = piece(found.start);
        let last = piece(found.end - 1);
        let start =
            if first.is_verbatim { first.origin.0 + (found.start - first.start) } else { first.origin.0 };
        let end = if last.is_verbatim { last.origin.0 + (found.end - last.start) } else { last.origin.1 };
        start..end
    }

    /// The text with escapes, percent codes and full-width letters decoded and hidden characters removed; `None` if there
    /// are none.
    pub(super) fn unescaped(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let suspicious = |byte: u8| {
            matches!(byte, b'\\' | b'%' | 0..=8 | 11..=31 | 127)
                || matches!(byte, 0xc2 | 0xcd | 0xd8 | 0xe1 | 0xe2 | 0xe3 | 0xef | 0xf3)
        };
        let first = bytes.iter().position(|&byte| suspicious(byte))?;
        let mut view = Self::with_room(bytes.len());
        view.push_verbatim(bytes, 0..first);
        let (mut at, mut changed) = (first, false);
        while at < bytes.len() {
            let byte = bytes[at];
            if !suspicious(byte) {
                let next =
                    bytes[at..].iter().position(|&byte| suspicious(byte)).map_or(bytes.len(), |n| at + n);
                view.push_verbatim(bytes, at..next);
                at = next;
                continue;
            }
            let end = match byte {
                b'\\' => view.escape(bytes, at),
                b'%' => view.percent(bytes, at),
                0x1b if bytes.get(at + 1) == Some(&b'[') => {
                    let rest = &bytes[at + 2..];
                    let parameters = rest.iter().take_while(|byte| matches!(byte, b' '..=b'?')).count();
                    Some((at + 3 + parameters).min(bytes.len()))
                }
                _ => {
                    let c = text[at..].chars().next().unwrap_or_default();
                    let end = at + c.len_utf8();
                    // An input method of Japanese or Chinese types these for ASCII.
                    let half = u32::from(c).checked_sub(FULL_WIDTH).and_then(|c| u8::try_from(c).ok());
                    match half.filter(u8::is_ascii_graphic) {
                        Some(half) => {
                            view.push_decoded(&[half], at..end);
                            Some(end)
                        }
                        None => is_hidden(c).then_some(end),
                    }
                }
            };
            match end {
                Some(end) => {
                    changed = true;
                    at = end;
                }
                None => {
                    // Of several backslashes, what follows the last one has told for all of them.
                    let width = match byte {
                        b'\\' => skip(bytes, at, b"\\") - at,
                        _ => text[at..].chars().next().map_or(1, char::len_utf8),
                    };
                    view.push_verbatim(bytes, at..at + width);
                    at += width;
                }
            }
        }
        changed.then_some(view)
    }

    /// Decodes `\n`, `\"`, `\u0041` and the like, escaped any number of times. Returns where it ends.
    fn escape(&mut self, bytes: &[u8], at: usize) -> Option<usize> {
        let slashes = bytes[at..].iter().take_while(|&&byte| byte == b'\\').count();
        let next = at + slashes;
        let (read, end): (Option<u8>, usize) = match bytes.get(next)? {
            b'n' | b'r' => (Some(b'\n'), next + 1),
            b't' => (Some(b'\t'), next + 1),
            &c @ (b'"' | b'\'' | b'/' | b'`') => (Some(c), next + 1),
            b'u' => match hex(bytes.get(next + 1..next + 5)?).filter(|code| (0x20..0x7f).contains(code)) {
                Some(code) => (u8::try_from(code).ok(), next + 5),
                None => return None,
            },
            b'x' => match hex(bytes.get(next + 1..next + 3)?).filter(|code| (0x20..0x7f).contains(code)) {
                Some(code) => (u8::try_from(code).ok(), next + 3),
                None => return None,
            },
            _ => return None,
        };
        self.push_decoded(&[read?], at..end);
        Some(end)
    }

    /// Decodes `%41`, and also `%2541`. Returns where it ends.
    fn percent(&mut self, bytes: &[u8], at: usize) -> Option<usize> {
        let mut next = at + 1;
        while bytes.get(next..next + 2) == Some(b"25") {
            next += 2;
        }
        let (code, end) = match hex(bytes.get(next..next + 2)?) {
            Some(code) => (code, next + 2),
            None => return None,
        };
        let code = u8::try_from(code).ok().filter(|code| (0x20..0x7f).contains(code) || *code == b'\n')?;
        self.push_decoded(&[code], at..end);
        Some(end)
    }

    /// The text with words joined that were broken across lines: removes the marks of diffs, quotations
    /// and comments, a backslash, and the operator between two string literals. `None` if no line ends
    /// in a word that may continue.
    pub(super) fn joined_lines(text: &[u8]) -> Option<Self> {
        let mut view = Self::with_room(text.len());
        let mut at = 0;
        while let Some(found) = memchr::memchr2(b'\n', b'"', &text[at..]).map(|found| at + found) {
            view.push_verbatim(text, at..found);
            match view.join(text, found) {
                Some((length, next, is_explicit)) => {
                    view.truncate(length);
                    view.joins.push((length, is_explicit));
                    at = next;
                }
                None => {
                    view.push_verbatim(text, found..found + 1);
                    at = found + 1;
                }
            }
        }
        view.push_verbatim(text, at..text.len());
        (!view.joins.is_empty()).then_some(view)
    }

    /// The length of the view to keep, where the text continues, and whether it says so explicitly.
    fn join(&self, text: &[u8], at: usize) -> Option<(usize, usize, bool)> {
        if text[at] == b'"' {
            // `"…" + "…"` on one line.
            let next = skip(text, at + 1, b" ");
            let operator = matches!(text.get(next), Some(b'+' | b'.' | b'&'));
            let next = skip(text, next + usize::from(operator), b" ");
            let continues = operator && text.get(next) == Some(&b'"');
            let before = self.bytes.last().is_some_and(|&byte| is_token(byte));
            return (continues && before && text.get(next + 1).is_some_and(|&byte| is_token(byte)))
                .then_some((self.bytes.len(), next + 1, true));
        }
        let trim = |end: usize, marks: &[u8]| {
            end - self.bytes[..end].iter().rev().take_while(|byte| marks.contains(byte)).count()
        };
        let ends_with = |end: usize, marks: &[u8]| end > 0 && marks.contains(&self.bytes[end - 1]);
        let mut end = trim(self.bytes.len(), b" \t\r");
        let continues = ends_with(end, b"\\");
        if continues {
            end = trim(end - 1, b" \t");
        } else if ends_with(end, b"+.&") {
            // They may belong to the word itself, unless a quote closes before them.
            let before = trim(end - 1, b" \t");
            if ends_with(before, b"\"'`") {
                end = before;
            }
        }
        let closes = ends_with(end, b"\"'`");
        end -= usize::from(closes);
        if end == 0 || !is_token(self.bytes[end - 1]) {
            return None;
        }
        // A mark at the start of both lines belongs to a diff, a quotation or a comment, not to a word.
        let line = memchr::memrchr(b'\n', &text[..at]).map_or(0, |before| before + 1);
        let line = skip(text, line, b" \t");
        let mut next = skip(text, at + 1, b" \t");
        if matches!(text.get(next), Some(b'+' | b'-' | b'>' | b'|' | b'#' | b'*'))
            && text.get(line) == text.get(next)
        {
            next = skip(text, next + 1, b" \t");
        } else if text[next..].starts_with(b"//") && text[line..].starts_with(b"//") {
            next = skip(text, next + 2, b" \t");
        }
        if closes {
            if matches!(text.get(next), Some(b'+' | b'.' | b'&')) {
                next = skip(text, next + 1, b" \t");
            }
            if !matches!(text.get(next), Some(b'"' | b'\'' | b'`')) {
                return None;
            }
            next += 1;
        }
        let is_explicit = continues || closes;
        let length = text[next..].iter().take_while(|&&byte| is_token(byte)).count();
        let word = &text[next..next + length];
        (length > 0 && (is_explicit || looks_cut(word))).then_some((end, next, is_explicit))
    }
}

/// Whether a word may be the rest of a random one: no word of a language looks like that.
fn looks_cut(word: &[u8]) -> bool {
    let mixed = |pair: &[u8]| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase();
    word.iter().any(u8::is_ascii_digit) || word.windows(2).any(mixed)
}

/// Whether a byte may be part of a token, as people and programs write them.
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'_' | b'-' | b'+' | b'/' | b'=' | b'.' | b'~' | b'%' | b':')
}

fn skip(text: &[u8], at: usize, marks: &[u8]) -> usize {
    let at = at.min(text.len());
    at + text[at..].iter().take_while(|byte| marks.contains(byte)).count()
}

fn hex(digits: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(view: Option<View>, text: &str, read: &str, found: &str, origin: &str) {
        let view = view.unwrap();
        assert_eq!(String::from_utf8_lossy(&view.bytes), read);
        let at = read.find(found).unwrap();
        assert_eq!(&text[view.origin(&(at..at + found.len()))], origin);
    }

    #[test]
    fn decoded_text_maps_back_to_the_original() {
        for (text, read, found, origin) in [
            (r#"{\"a\":\"k\\\"ey\"}"#, "{\"a\":\"k\"ey\"}", "k\"ey", r#"k\\\"ey"#),
            (r"a\u0067hp_x", "aghp_x", "ghp", r"\u0067hp"),
            ("x%3Dgh%2570_y", "x=ghp_y", "ghp_y", "gh%2570_y"),
            ("ｇｈｐ＿x ｗ＝", "ghp_x w=", "ghp_x", "ｇｈｐ＿x"),
            ("é gh\u{200b}p_\u{1b}[31mx\u{1b}[0m", "é ghp_x", "ghp_x", "gh\u{200b}p_\u{1b}[31mx"),
        ] {
            check(View::unescaped(text), text, read, found, origin);
        }
        assert!(View::unescaped("nothing like that: é").is_none());
    }

    #[test]
    fn a_run_of_backslashes_is_read_once() {
        // Read again from each of them, these would be a million times a million steps.
        let text = "\\".repeat(1 << 20);
        assert!(View::unescaped(&text).is_none());
        assert_eq!(View::unescaped(&format!("{text}q\\n")).unwrap().bytes.len(), text.len() + 2);
    }

    #[test]
    fn broken_words_are_joined() {
        for (text, read, found, origin) in [
            ("+ ghp_a\n+ b3c d\nend", "+ ghp_ab3c d\nend", "ghp_ab3c", "ghp_a\n+ b3c"),
            ("k = \"ghp_a\" +\n    \"bc\"", "k = \"ghp_abc\"", "ghp_abc", "ghp_a\" +\n    \"bc"),
            ("k = 'ghp_a'\n  'bc'", "k = 'ghp_abc'", "ghp_abc", "ghp_a'\n  'bc"),
            ("ghp_a\\\nbc\nd3e", "ghp_abcd3e", "ghp_abcd3e", "ghp_a\\\nbc\nd3e"),
            ("f(\"ghp_a\" + \"bc\")", "f(\"ghp_abc\")", "ghp_abc", "ghp_a\" + \"bc"),
            ("// ghp_a\n// bCc", "// ghp_abCc", "ghp_abCc", "ghp_a\n// bCc"),
        ] {
            check(View::joined_lines(text.as_bytes()), text, read, found, origin);
        }
        assert!(View::joined_lines(b"one line\nand another\n+ more").is_none());
    }
}
