//! Cleans a text before it is kept: removes what a person marked private and what the client added,
//! redacts secrets, and shortens a long text to its head and tail.

use std::borrow::Cow;
use std::ops::Range;

use knowledge::text::visible;
use memchr::memchr_iter;

use crate::redact::redact;

/// Bytes that redaction sees beyond the head and the tail that are kept: a secret that the cut goes
/// through is still complete within this margin.
const MARGIN_BYTES: usize = 32 << 10;

/// Cleans a text without shortening it: removes hidden characters, what is between `<private>` and
/// `</private>`, and the client's reminders, and redacts secrets.
pub fn clean(text: &str) -> String {
    let text = without_marked(text);
    match redact(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(redacted) => redacted,
    }
}

/// A text as [`clean`] returns it, but with its secrets.
pub fn without_marked(text: &str) -> String {
    let mut text = without_hidden(text);
    // Most texts have neither, and telling that is quicker than a search in lower case.
    if has_tag(&text, "<system-reminder") {
        text = Cow::Owned(without_element(&text, "system-reminder", Unclosed::Keep));
    }
    if has_tag(&text, "<private") {
        text = Cow::Owned(without_element(&text, "private", Unclosed::Drop));
    }
    after_private(&text).trim().to_owned()
}

/// Whether a tag begins in a text, in upper or lower case.
fn has_tag(text: &str, tag: &str) -> bool {
    let (text, tag) = (text.as_bytes(), tag.as_bytes());
    memchr_iter(b'<', text)
        .any(|at| text.get(at..at + tag.len()).is_some_and(|found| found.eq_ignore_ascii_case(tag)))
}

/// The text after a `</private>` whose element was opened in an earlier message, or not at all: what is
/// before it may be what somebody meant to hide.
fn after_private(text: &str) -> &str {
    if has_tag(text, "</private") {
        &text[private_elements(text).unopened.unwrap_or_default()..]
    } else {
        text
    }
}

fn private_elements(text: &str) -> Elements {
    if has_tag(text, "<private") || has_tag(text, "</private") {
        elements(text, "private")
    } else {
        Elements::default()
    }
}

/// Cleans a text and shortens it to about `bytes_max` bytes: the first two thirds and the last third.
pub fn clean_and_cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max + 2 * MARGIN_BYTES {
        return head_and_tail(&clean(text), bytes_max);
    }
    let (head, tail) = shares(bytes_max);
    let head_raw = &text[..text.floor_char_boundary(head + MARGIN_BYTES)];
    let tail_start = text.ceil_char_boundary(text.len() - tail - MARGIN_BYTES);
    let private = private_elements(&without_hidden(text));
    if private.unopened.is_some() {
        return head_and_tail(&clean(text), bytes_max);
    }
    // What a person marked as private in the part that is left out may go on to the end.
    let is_tail_private = private.unclosed.is_some_and(|at| at < without_hidden(&text[..tail_start]).len());
    let tail_raw = if is_tail_private { "" } else { &text[tail_start..] };
    // An element that begins in the head may end in the part that is left out, so an unclosed one is
    // removed to the end of the head.
    let head_cleaned = without_element(&clean(head_raw), "system-reminder", Unclosed::Drop);
    let tail_cleaned = clean(tail_raw);
    // Where cleaning has removed much, what is kept would reach to the cut, and to a secret that it went through.
    let reaches_cut = |cleaned: &str, share: usize| cleaned.len() < share + MARGIN_BYTES / 2;
    if reaches_cut(&head_cleaned, head) || !is_tail_private && reaches_cut(&tail_cleaned, tail) {
        return head_and_tail(&clean(text), bytes_max);
    }
    let head_kept = &head_cleaned[..head_cleaned.floor_char_boundary(head)];
    let tail_kept = &tail_cleaned[tail_cleaned.ceil_char_boundary(tail_cleaned.len().saturating_sub(tail))..];
    format!(
        "{head_kept}\n[… {} bytes left out …]\n{tail_kept}",
        text.len() - head_kept.len() - tail_kept.len()
    )
}

/// Shortens a clean text as [`clean_and_cut`] does.
pub fn head_and_tail(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let (head, tail) = shares(bytes_max);
    let head = &text[..text.floor_char_boundary(head)];
    let tail = &text[text.ceil_char_boundary(text.len() - tail)..];
    format!("{head}\n[… {} bytes left out …]\n{tail}", text.len() - head.len() - tail.len())
}

fn shares(bytes_max: usize) -> (usize, usize) {
    (bytes_max - bytes_max / 3, bytes_max / 3)
}

/// The text inside an element; `None` if there is no such element.
pub(crate) fn element_text<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let start = text.find(&format!("<{name}>"))? + name.len() + 2;
    let end = text[start..].find(&format!("</{name}>")).map_or(text.len(), |at| start + at);
    Some(&text[start..end])
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Unclosed {
    /// The text is about the element.
    Keep,
    /// The end was forgotten, and what follows may be what somebody meant to hide.
    Drop,
}

/// Removes every `<name>…</name>`, also nested ones, in upper or lower case.
pub(crate) fn without_element(text: &str, name: &str, unclosed: Unclosed) -> String {
    let Elements { closed: mut removed, unclosed: first, .. } = elements(text, name);
    // More were opened than closed: everything that any of them may contain.
    if let Some(start) = first.filter(|_| unclosed == Unclosed::Drop) {
        removed.retain(|range| range.start < start);
        removed.push(start..text.len());
    }
    let mut kept = String::with_capacity(text.len());
    let mut at = 0;
    for range in removed {
        kept.push_str(&text[at..range.start]);
        at = range.end;
    }
    kept.push_str(&text[at..]);
    kept
}

/// The elements of one name in a text.
#[derive(Default)]
struct Elements {
    /// The outermost ones that are closed.
    closed: Vec<Range<usize>>,
    /// Where the first one begins that is not closed.
    unclosed: Option<usize>,
    /// The end of the last tag that closes none.
    unopened: Option<usize>,
}

fn elements(text: &str, name: &str) -> Elements {
    let (open, close) = (format!("<{name}"), format!("</{name}"));
    let lower = text.to_ascii_lowercase();
    let (mut opened, mut found) = (Vec::new(), Elements::default());
    for at in memchr_iter(b'<', lower.as_bytes()) {
        let tag_end = |tag: &str| {
            let rest = lower[at..].strip_prefix(tag)?.trim_ascii_start().strip_prefix('>')?;
            Some(lower.len() - rest.len())
        };
        if tag_end(&open).is_some() {
            opened.push(at);
        } else if let Some(end) = tag_end(&close) {
            match opened.pop() {
                Some(start) => {
                    while found.closed.last().is_some_and(|inner| inner.start > start) {
                        found.closed.pop();
                    }
                    found.closed.push(start..end);
                }
                None => found.unopened = Some(end),
            }
        }
    }
    found.unclosed = opened.first().copied();
    found
}

/// Removes terminal escapes and invisible characters. Runs before redaction: a zero-width space in a key
/// must not hide the key from it.
pub(crate) fn without_hidden(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n' | b'\t');
    if text.as_bytes().iter().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut parts = text.split("\u{1b}[");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let part = part.trim_start_matches(|c| matches!(c, ' '..='?'));
        kept.push_str(part.strip_prefix(|c| matches!(c, '@'..='~')).unwrap_or(part));
    }
    Cow::Owned(visible(&kept).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_marked_private_is_removed() {
        let check = |text: &str, expected: &str| assert_eq!(clean(text), expected, "{text}");
        check("a <private>secret</private>b", "a b");
        check("a <PRIVATE>x<private>y</private>z</Private>b", "a b");
        check("a <private>never closed, so all of it", "a");
        check("opened before</private> seen", "seen");
        check("a <private>b</private> c</private> d", "d");
        check("a <private>b <private>c</private> never closed", "a");
        check("a <private >b</private\n>c", "a c");
        check("a <private > never closed", "a");
        check("a <privateer>b</privateer>", "a <privateer>b</privateer>");
        check("about the <system-reminder> tag", "about the <system-reminder> tag");
        check("do it<system-reminder>\ninjected\n</system-reminder>", "do it");
    }

    #[test]
    fn an_element_is_removed_whatever_is_around_it() {
        let check = |unclosed, text: &str, expected: &str| {
            assert_eq!(without_element(text, "a", unclosed), expected, "{text}");
        };
        check(Unclosed::Keep, "1<a>2<a>3</a>4", "1<a>24");
        check(Unclosed::Keep, "1<a>2<a>3</a>4</a>5<a>6</a>7", "157");
        check(Unclosed::Keep, "1</a>2<a>3</a>4</a>", "1</a>24</a>");
        check(Unclosed::Drop, "1<a>2</a>3<a>4<a>5</a>6", "13");
        check(Unclosed::Drop, "1<A>2</a>3", "13");
    }

    #[test]
    fn hostile_nesting_is_read_once() {
        // Searched again from each tag, these would be hundreds of billions of steps.
        let count = 100_000;
        let private = "<private>".repeat(count) + &"</private>".repeat(count) + "seen";
        assert_eq!(clean(&private), "seen");
        let reminders = "<system-reminder>".repeat(count);
        assert_eq!(clean(&reminders), reminders);
    }

    #[test]
    fn colours_and_hidden_characters_are_removed() {
        assert_eq!(clean("\u{1b}[31;1merror\u{1b}[0m: no\u{200b}pe"), "error: nope");
        assert_eq!(clean("10 %\r20 %\r\nthree\r\r\nfour\r"), "10 %\n20 %\nthree\nfour");
    }

    #[test]
    fn a_long_text_keeps_its_head_and_tail() {
        let text = format!("first line\n{}\nlast line", "é".repeat(1 << 20));
        let kept = clean_and_cut(&text, 3000);
        assert!(kept.starts_with("first line") && kept.ends_with("last line") && kept.len() < 3100);
    }

    #[test]
    fn what_is_private_to_the_end_is_not_in_the_tail() {
        let left_out = "y ".repeat(200_000);
        let kept = |middle: &str, end: &str| {
            clean_and_cut(&format!("begin {left_out}{middle} {left_out}{end}"), 3000)
        };
        for (middle, end) in [
            ("<private>", "the diary"),
            ("<PRI\u{200b}VATE>", "the diary"),
            ("<private>a<private>b</private>", "the diary"),
            ("<private>", "the diary <private>too</private>"),
        ] {
            let kept = kept(middle, end);
            assert!(kept.starts_with("begin") && !kept.contains("diary"), "{middle}");
            assert!(!kept.ends_with("y"), "{middle}");
        }
        for middle in ["</private>", "</private>a<private>b</private>", "<private>a</private></PRIVATE >"] {
            let kept = kept(middle, "the end");
            assert!(!kept.contains("begin") && kept.ends_with("the end"), "{middle}");
        }
        for (middle, end) in [
            ("<private>a</private>", "the end"),
            ("<private>", "the diary</private> the end"),
            ("", "the end<private>the diary"),
            ("</private>", "the end"),
        ] {
            let kept = kept(middle, end);
            assert!(kept.ends_with("the end") && !kept.contains("diary"), "{middle}");
        }
    }

    #[test]
    fn a_cut_through_a_secret_shows_nothing_of_it() {
        let key = "ghp_abcdefghijABCDEFGHIJ0123456789abcdef";
        for before in 1900..2100 {
            for length in [6_000, 200_000] {
                let mut text = "x".repeat(before) + " " + key + " ";
                text.push_str(&"y ".repeat(length));
                let kept = clean_and_cut(&text, 3000);
                assert!(!kept.contains("ghp_"), "{before}");
            }
        }
        for after in 900..1100 {
            for length in [6_000, 200_000] {
                let text = format!("{}{key} {}", "y ".repeat(length), "x".repeat(after));
                let kept = clean_and_cut(&text, 3000);
                let shown = |part: &[u8]| kept.contains(std::str::from_utf8(part).unwrap());
                assert!(!key.as_bytes().windows(8).any(shown), "{after}: {kept}");
            }
        }
        // What is removed around the key brings it to where the raw text is cut.
        let hidden = format!("<private>{}</private>", "z ".repeat(16_600));
        let colours = "\u{1b}[0m".repeat(8_400);
        let rest = "y ".repeat(50_000);
        for removed in [hidden, colours] {
            let after = (500..800).step_by(7).map(|gap| format!("{removed}{}{key} {rest}", "x ".repeat(gap)));
            let before = (50..300).step_by(7).map(|gap| format!("{rest}{key} {}{removed}", "x ".repeat(gap)));
            for text in after.chain(before) {
                let kept = clean_and_cut(&text, 3000);
                let shown = |part: &[u8]| kept.contains(std::str::from_utf8(part).unwrap());
                assert!(!key.as_bytes().windows(8).any(shown), "{kept}");
            }
        }
        let text = format!("a<private>{}</private>b", "s".repeat(1 << 20));
        let kept = clean_and_cut(&text, 3000);
        assert!(!kept.contains('s') || !kept.contains("ss"), "{kept}");
    }
}
