//! Changes what a forge would act on in the markdown that a session has written: remote images, mentions, references to
//! issues, closing words, commands for builds.
//!
//! Code is left as it is: a forge interprets nothing in it. Everything else, raw HTML too, goes through
//! [`text::escape_forge_syntax_in_markdown`].

use std::collections::HashSet;
use std::ops::Range;

use knowledge::text;
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag};

/// How often a text is read at most: what is changed in it may make code or prose of what follows.
const READINGS_MAX: usize = 4;

/// The markdown without what a forge would act on. An inert text stays the same.
pub(crate) fn inert_markdown(markdown: &str) -> String {
    let mut inert = read(markdown);
    for _ in 1..READINGS_MAX {
        let again = read(&inert);
        if again == inert {
            break;
        }
        inert = again;
    }
    inert
}

fn read(markdown: &str) -> String {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    // Where there are no footnotes, a paragraph of one is code; where there are, it is prose.
    let with_notes: HashSet<_> = code(markdown, options | Options::ENABLE_FOOTNOTES).collect();
    let mut code: Vec<_> = code(markdown, options).filter(|code| with_notes.contains(code)).collect();
    // A forge may find a table where this parser finds none. What reaches over its cells is no code then.
    let is_rule = |line: &str| {
        line.contains(['|', ':']) && line.contains('-') && line.chars().all(|c| "|:-> \t".contains(c))
    };
    if markdown.lines().any(is_rule) {
        let is_torn = |(form, range): &(Form, Range<usize>)| {
            *form == Form::Span && markdown[range.clone()].contains(['|', '\n'])
        };
        let has_torn = code.iter().any(is_torn);
        code.retain(|(form, _)| *form == Form::Fenced || *form == Form::Span && !has_torn);
    }
    let mut inert = String::with_capacity(markdown.len());
    let mut done = 0;
    for (_, range) in code {
        // A range is never within another one: code holds only text.
        inert.push_str(&text::escape_forge_syntax_in_markdown(&markdown[done..range.start]));
        // A forge takes what follows an address for a part of it, with the mark that would begin the code.
        let word = inert.rsplit(|c: char| c.is_whitespace()).next().unwrap_or_default();
        if word.contains("://") {
            inert.push(' ');
        }
        inert.push_str(&markdown[range.clone()]);
        done = range.end;
    }
    inert + &text::escape_forge_syntax_in_markdown(&markdown[done..])
}

/// How code is marked.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Form {
    Span,
    Indented,
    Fenced,
}

/// What is code, in order.
fn code(markdown: &str, options: Options) -> impl Iterator<Item = (Form, Range<usize>)> {
    Parser::new_ext(markdown, options).into_offset_iter().filter_map(|(event, range)| match event {
        Event::Code(_) => Some((Form::Span, range)),
        Event::Start(Tag::CodeBlock(CodeBlockKind::Indented)) => Some((Form::Indented, range)),
        Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(_))) => Some((Form::Fenced, range)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use pulldown_cmark::{TagEnd, TextMergeStream};

    #[test]
    fn prose_acts_on_nothing_and_code_stays() {
        let markdown = "\
Thanks @octocat, fixes #12 and closes GH-4 [skip ci].

#13 is first. ![p](http://evil.example/p.png) <img src=\"http://evil.example/q.png\">

```sh
git commit -m 'fixes #12 @octocat [skip ci]'
```

    curl @file ![x](http://a/b)

Use `@Transactional` and `vec![1]`, see [the docs](https://docs.rs/x#12).";
        let expected = "\
Thanks @ octocat, fixes # 12 and closes GH -4 (skip ci).

\\# 13 is first. ! [p](http://evil.example/p.png) &lt;img src=\"http://evil.example/q.png\">

```sh
git commit -m 'fixes #12 @octocat [skip ci]'
```

    curl @file ![x](http://a/b)

Use `@Transactional` and `vec![1]`, see [the docs](https://docs.rs/x#12).";
        assert_eq!(inert_markdown(markdown), expected);
        assert_eq!(inert_markdown(expected), expected);
    }

    #[test]
    fn what_only_looks_like_code_is_no_code() {
        for (markdown, expected) in [
            ("\\`@me`", "\\`@ me`"),
            ("`a\nb` @me `c", "`a\nb` @ me `c"),
            ("`a\n\n@me`", "`a\n\n@ me`"),
            ("<div>\n`<img src=x>`\n</div>", "<div>\n`&lt;img src=x>`\n</div>"),
            ("- ```\n@me", "- ```\n@ me"),
            (
                "See[^1].\n\n[^1]: First.\n\n    Thanks @me, closes #12 ![x](https://e.x/p)",
                "See[^1].\n\n[^1]: First.\n\n    Thanks @ me, closes # 12 ! [x](https://e.x/p)",
            ),
            ("See http://e.x/p`a @me` `@me`", "See http://e.x/p `a @me` `@me`"),
            ("<img src=x>\n```\n\n@me\n```\n@me", "&lt;img src=x>\n```\n\n@ me\n```\n@ me"),
            ("a `\n\\| b | `@me` |\n|---|", "a `\n\\| b | `@ me` |\n|---|"),
            ("&commat;me &#x40;me &num;12 @&#109;e", "&amp;commat;me &amp;#x40;me &amp;num;12 @&amp;# 109;e"),
            ("a &amp; b &rarr; c, `&commat;me` & more; ü&", "a &amp; b &rarr; c, `&commat;me` & more; ü&"),
        ] {
            assert_eq!(inert_markdown(markdown), expected);
            assert_eq!(inert_markdown(expected), expected);
        }
    }

    proptest! {
        #[test]
        fn no_markdown_has_a_remote_image_or_a_mention(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "`", "``", "```\n", "\n", "\n\n", "    ", "- ", "> ", "<div>", "</div>", "\\", "[", "]", "(", ")", "!",
                    "![p](http://e.x/p)", "![p][r]", "\n[r]: http://e.x/p\n", "<img src=http://e.x/p>", "@me", " ", "#12",
                    "[^1]", "\n\n[^1]: ", "&commat;me", "&#64;me", "@&#x6d;e",
                ]),
                0..24,
            )
        ) {
            let inert = inert_markdown(&parts.concat());
            for options in [Options::empty(), Options::ENABLE_FOOTNOTES] {
                let mut code = 0;
                // An entity is a text of its own.
                for event in TextMergeStream::new(Parser::new_ext(&inert, options)) {
                    match event {
                        Event::Start(Tag::Image { .. }) => prop_assert!(false, "an image: {inert:?}"),
                        Event::Html(html) | Event::InlineHtml(html) => {
                            prop_assert!(!html.contains("<img"), "{inert:?}")
                        }
                        Event::Start(Tag::CodeBlock(_)) => code += 1,
                        Event::End(TagEnd::CodeBlock) => code -= 1,
                        Event::Text(text) if code == 0 => prop_assert!(!text.contains("@me"), "{inert:?}"),
                        _ => {}
                    }
                }
            }
        }
    }
}
