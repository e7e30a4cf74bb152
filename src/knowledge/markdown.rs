//! What of a markdown text is code, and what of it a renderer hides, as CommonMark reads it.

use std::borrow::Cow;
use std::ops::Range;

use pulldown_cmark::{Event, Options, Parser, Tag};

/// A line of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'t> {
    /// Where it begins in the text.
    pub start: usize,
    /// With its line feed.
    pub text: &'t str,
    /// Whether it is of a code block, or a fence of one.
    pub is_code: bool,
}

/// The lines of a markdown text.
pub fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let mut blocks = code_blocks(text).into_iter().peekable();
    let mut end = 0;
    text.split_inclusive('\n').map(move |text| {
        let start = end;
        end += text.len();
        while blocks.next_if(|block| block.end <= start).is_some() {}
        Line { start, text, is_code: blocks.peek().is_some_and(|block| block.start < end) }
    })
}

fn code_blocks(text: &str) -> Vec<Range<usize>> {
    if !["```", "~~~", "    ", "\t"].iter().any(|mark| text.contains(mark)) {
        return Vec::new();
    }
    let blocks = events(text).filter(|(event, _)| matches!(event, Event::Start(Tag::CodeBlock(_))));
    blocks.map(|(_, span)| span).collect()
}

/// What closes the code block in which a text ends, if it leaves one open.
pub fn open_fence(text: &str) -> Option<String> {
    let followed = format!("{text}\n\nend");
    let open = code_blocks(&followed).pop().filter(|block| block.end > text.len() + 2)?;
    let fence = followed[open].trim_start();
    let mark = fence.chars().next()?;
    Some(fence.chars().take_while(|&c| c == mark).collect())
}

/// As on a forge, where a cell of a table ends what is code in another one, and an indented paragraph of a footnote is none.
fn events(text: &str) -> impl Iterator<Item = (Event<'_>, Range<usize>)> {
    Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES).into_offset_iter()
}

/// A line without the marks around what is emphasised. Code stays as it is, and so does what only looks like a mark:
/// `2**16`, `src/**/*.rs`, `__init__`.
pub fn without_emphasis(line: &str) -> Cow<'_, str> {
    without_marks(line, &['*', '_'], |event, span| {
        let width = match event {
            Event::Start(Tag::Strong) => 2,
            Event::Start(Tag::Emphasis) => 1,
            _ => return 0,
        };
        if is_emphasis(line, span, &line[span.start + width..span.end - width]) { width } else { 0 }
    })
}

/// A line without the marks around code.
pub fn without_code_marks(line: &str) -> Cow<'_, str> {
    let width = |span: &Range<usize>| line[span.clone()].bytes().take_while(|&byte| byte == b'`').count();
    without_marks(line, &['`'], |event, span| if matches!(event, Event::Code(_)) { width(span) } else { 0 })
}

/// A line without as many bytes at the start and at the end of each element as `width` says.
fn without_marks<'t>(
    line: &'t str,
    marks: &[char],
    width: impl Fn(&Event<'_>, &Range<usize>) -> usize,
) -> Cow<'t, str> {
    if !line.contains(marks) {
        return Cow::Borrowed(line);
    }
    let ends = |(event, span): (Event<'_>, Range<usize>)| {
        let width = width(&event, &span);
        [span.start..span.start + width, span.end - width..span.end]
    };
    let mut marks: Vec<Range<usize>> = events(line).flat_map(ends).collect();
    marks.sort_by_key(|mark| mark.start);
    let mut plain = String::with_capacity(line.len());
    let mut end = 0;
    for mark in marks.into_iter().filter(|mark| !mark.is_empty()) {
        plain.push_str(&line[end..mark.start]);
        end = mark.end;
    }
    plain.push_str(&line[end..]);
    Cow::Owned(plain)
}

/// Whether a person who writes these marks means emphasis: not within a word or a path, and not around one name.
fn is_emphasis(line: &str, span: &Range<usize>, inside: &str) -> bool {
    let is_of_path = |c: char| matches!(c, '/' | '\\');
    // Other scripts emphasise within what has no spaces.
    let joins = |c: char| c.is_ascii_alphanumeric() || is_of_path(c);
    let is_name = line[span.start..].starts_with('_') && !inside.contains(char::is_whitespace);
    !line[..span.start].ends_with(joins)
        && !line[span.end..].starts_with(joins)
        && !inside.starts_with(is_of_path)
        && !inside.ends_with(is_of_path)
        && !is_name
}

const OPEN: &str = "<!--";
const CLOSE: &str = "-->";

/// What is done with a comment that is never closed, behind which a renderer hides the rest of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unclosed {
    /// It is removed with the rest.
    Removed,
    /// The rest is shown.
    Shown,
}

/// A text without its HTML comments, but for those that are kept. Code stays as it is. A mark that begins no comment is
/// escaped, also one whose halves stood on both sides of a comment.
pub(crate) fn without_comments(text: &str, unclosed: Unclosed, is_kept: impl Fn(&str) -> bool) -> String {
    let escaped = |text: &str| text.replace(OPEN, "&lt;!--");
    let mut clean = String::with_capacity(text.len());
    // What is not escaped yet.
    let mut shown = String::new();
    let mut end = 0;
    for (event, span) in events(text) {
        let is_code = match event {
            Event::Start(Tag::CodeBlock(_)) | Event::Code(_) => true,
            Event::Start(Tag::HtmlBlock) | Event::InlineHtml(_) => false,
            _ => continue,
        };
        shown.push_str(&text[end..span.start]);
        end = span.end;
        let mut rest = &text[span];
        if is_code {
            clean.push_str(&escaped(&std::mem::take(&mut shown)));
            clean.push_str(rest);
            continue;
        }
        while let Some(start) = rest.find(OPEN) {
            // The mark at its end may share dashes with the one at its start.
            let Some(close) = rest[start + 2..].find(CLOSE) else {
                match unclosed {
                    Unclosed::Removed => return clean + &escaped(&(shown + &rest[..start])),
                    Unclosed::Shown => break,
                }
            };
            shown.push_str(&rest[..start]);
            let (comment, after) = rest[start..].split_at(2 + close + CLOSE.len());
            if is_kept(comment) {
                clean.push_str(&escaped(&std::mem::take(&mut shown)));
                clean.push_str(comment);
            }
            rest = after;
        }
        shown.push_str(rest);
    }
    shown.push_str(&text[end..]);
    clean + &escaped(&shown)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    const PARTS: &[&str] = &[
        "<!--",
        "-->",
        "<!-",
        "`",
        "``",
        "```\n",
        "~~~\n",
        "\n",
        "\n\n",
        "    ",
        "\t",
        "> ",
        "- ",
        "1. ",
        "# ",
        "| a |",
        "|-|\n",
        "a",
        "é",
        "\r\n",
        "<div>",
        "</div>",
        "<b ",
        "[a](",
        "[a]: b\n",
        "]",
        "![",
        "[^1]",
        "[^1]: ",
        "*",
        "**",
        "_",
        "\\",
        "&lt;",
        "<?",
        "?>",
        "]]>",
        "<![CDATA[",
        "<a@b.c>",
    ];

    #[test]
    fn an_open_code_block_is_closed_by_its_fence() {
        for (text, fence) in [
            ("```sh\nrun", Some("```")),
            ("```\na\n```\n~~~~ md\n```", Some("~~~~")),
            ("  ````\n```", Some("````")),
            ("```\na\n```", None),
            ("- ```\n  a", None),
            ("a\n\n    b", None),
            ("", None),
        ] {
            assert_eq!(open_fence(text).as_deref(), fence, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_outside_of_comments_is_lost(parts in vec(select(PARTS), 0..24)) {
            let text = parts.concat();
            let shown = without_comments(&text, Unclosed::Shown, |_| true);
            prop_assert_eq!(shown.replace("&lt;", "<"), text.replace("&lt;", "<"));
            let _ = without_comments(&text, Unclosed::Removed, |_| false);
        }

        #[test]
        fn a_line_loses_only_marks(parts in vec(select(PARTS), 0..24)) {
            let line = parts.concat().replace('\n', "");
            let marks = |text: &str| text.replace(['*', '_'], "");
            prop_assert_eq!(marks(&without_emphasis(&line)), marks(&line));
        }

        #[test]
        fn the_lines_of_a_text_are_all_of_it(parts in vec(select(PARTS), 0..24)) {
            let text = parts.concat();
            prop_assert_eq!(lines(&text).map(|line| line.text).collect::<String>(), text);
        }
    }
}
