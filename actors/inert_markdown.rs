//! Changes what a forge would act on in the markdown that a session has written: remote images, mentions, references to
//! issues, closing words, commands for builds.
//!
//! Code is left as it is: a forge interprets nothing in it. Everything else, raw HTML too, goes through
//! [`text::escape_forge_syntax_in_markdown`].

use knowledge::text;
use pulldown_cmark::{Event, Options, Parser, Tag};

/// The markdown without what a forge would act on. An inert text stays the same.
pub(crate) fn inert_markdown(markdown: &str) -> String {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let code = Parser::new_ext(markdown, options).into_offset_iter().filter_map(|(event, range)| {
        matches!(event, Event::Code(_) | Event::Start(Tag::CodeBlock(_))).then_some(range)
    });
    let mut inert = String::with_capacity(markdown.len());
    let mut done = 0;
    for range in code {
        // A range is never within another one: code holds only text.
        inert.push_str(&text::escape_forge_syntax_in_markdown(&markdown[done..range.start]));
        inert.push_str(&markdown[range.clone()]);
        done = range.end;
    }
    inert + &text::escape_forge_syntax_in_markdown(&markdown[done..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        ] {
            assert_eq!(inert_markdown(markdown), expected);
        }
    }

    proptest! {
        #[test]
        fn no_markdown_has_a_remote_image_or_a_mention(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "`", "``", "```\n", "\n", "\n\n", "    ", "- ", "> ", "<div>", "</div>", "\\", "[", "]", "(", ")", "!",
                    "![p](http://e.x/p)", "![p][r]", "\n[r]: http://e.x/p\n", "<img src=http://e.x/p>", "@me", " ", "#12",
                ]),
                0..24,
            )
        ) {
            let inert = inert_markdown(&parts.concat());
            let mut code = 0;
            for event in Parser::new(&inert) {
                match event {
                    Event::Start(Tag::Image { .. }) => prop_assert!(false, "an image: {inert:?}"),
                    Event::Html(html) | Event::InlineHtml(html) => prop_assert!(!html.contains("<img"), "{inert:?}"),
                    Event::Start(Tag::CodeBlock(_)) => code += 1,
                    Event::End(pulldown_cmark::TagEnd::CodeBlock) => code -= 1,
                    Event::Text(text) if code == 0 => prop_assert!(!text.contains("@me"), "{inert:?}"),
                    _ => {}
                }
            }
        }
    }
}
