//! Cuts a unit's markdown into pieces for the search.
//!
//! A piece is an exact slice of the file, so that a result can be quoted and found again in the file. Only secrets are
//! removed before cutting.

use std::ops::Range;

use knowledge::{CountTokens, Unit, text};
use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use text_splitter::{ChunkConfig, ChunkSizer, MarkdownSplitter};

/// The most tokens of one piece, including its breadcrumb and the model's two special tokens.
///
/// The built-in model reads 256 of them; the rest is found by its words only. Measured over the retrieval sets, a vector
/// for each half brought no clear gain (some sets up, some down, all within the noise) at twice the time and space, and
/// smaller pieces cut more thoughts in two.
pub const TOKENS_MAX: usize = 512;

/// A piece with fewer tokens says too little to be found by its meaning, and is joined with its neighbour.
pub const TOKENS_MIN: usize = 50;

/// How many tokens before a cut are repeated after it, so that one of the pieces has the whole thought: 12.5 %.
pub const OVERLAP_TOKENS: usize = 64;

/// The version of the rules by which files are read and cut: after a change, all are read again.
pub(crate) const RULES_VERSION: u32 = 4;

/// Small pieces are not joined beyond this, to leave room for the breadcrumb.
const JOINED_TOKENS_MAX: usize = 384;

/// A tokenizer may make one token of an endless word, which is useless to a model and to a person. So every this many
/// bytes count as at least one token. This also saves tokenizing texts that are obviously too long.
const BYTES_PER_TOKEN_MAX: usize = 16;

/// The splitter's time grows with the square of the length of its text, so it gets no more than this at a time: a
/// megabyte in one paragraph then takes a second instead of half a minute.
const SPLIT_BYTES_MAX: usize = 16 * 1024;

/// As much of what was considered instead as fits into one piece, in characters: in no script are they more than as many tokens.
const ALTERNATIVES_CHARS_MAX: usize = 450;

/// The longest heading in a breadcrumb, in characters.
const HEADING_CHARS_MAX: usize = 80;

/// One piece of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The level of the heading that it begins under; 1 for the text under the title.
    pub level: u8,
    /// The unit's title and the headings above, `Go Concurrency > Worker Pools > Bounded`.
    pub breadcrumb: String,
    /// The text as in the file, trimmed.
    pub text: String,
    /// The tokens of `text` alone.
    pub tokens: u32,
    /// The range of `text` in the body; empty for what is from the front matter.
    pub span: Range<usize>,
}

impl Piece {
    /// The text to embed: the breadcrumb and the text, without hidden characters.
    pub fn embedding_text(&self) -> String {
        match self.breadcrumb.as_str() {
            "" => text::strip_hidden(&self.text),
            breadcrumb => text::strip_hidden(&format!("{breadcrumb}\n\n{}", self.text)),
        }
    }
}

/// Cuts a unit at its headings `##` and `###`, joins pieces under [`TOKENS_MIN`], and cuts pieces over [`TOKENS_MAX`] at
/// paragraphs. A unit without a body is one piece of its title and description. What was considered instead, which stands in
/// the front matter alone, is a piece of its own.
///
/// The first `#` is the title. A later one, which only imported files have, begins a section as `##` does.
pub fn chunk(unit: &Unit, tokens: &dyn CountTokens) -> Vec<Piece> {
    let sizer = Sizer(tokens);
    let body = unit.body.as_str();
    let from_front_matter = |text: String| {
        let tokens = count(&sizer, &text);
        Piece { level: 1, breadcrumb: unit.title.clone(), text, tokens, span: 0..0 }
    };
    let alternatives = (!unit.alternatives.is_empty()).then(|| {
        let listed = text::one_line(&unit.alternatives.join("; "), ALTERNATIVES_CHARS_MAX);
        from_front_matter(format!("Considered instead: {listed}"))
    });
    if body.trim().is_empty() {
        let text = match &unit.description {
            Some(description) => format!("{}\n\n{description}", unit.title),
            None => unit.title.clone(),
        };
        return std::iter::once(from_front_matter(text)).chain(alternatives).collect();
    }
    let mut pieces: Vec<Group> = Vec::new();
    for group in join_forward(sections(body, &sizer)) {
        let small = group.size < TOKENS_MIN;
        let parts = cut(body, group, &unit.title, &sizer);
        match pieces.last_mut() {
            Some(before) if small && parts.len() == 1 && before.takes_back(&parts[0]) => {
                before.absorb(&parts[0]);
            }
            _ => pieces.extend(parts),
        }
    }
    pieces
        .into_iter()
        .map(|group| {
            let text = body[group.span.clone()].to_owned();
            let tokens = if group.counted { as_tokens(group.size) } else { count(&sizer, &text) };
            let breadcrumb = breadcrumb(&unit.title, &group.path);
            Piece { level: group.level, breadcrumb, text, tokens, span: group.span }
        })
        .chain(alternatives)
        .collect()
}

/// Makes pieces of a text that was cut elsewhere: one piece, even if it has headings, or several if it is over
/// [`TOKENS_MAX`]. `title` is the breadcrumb of all pieces.
pub fn split(title: &str, text: &str, tokens: &dyn CountTokens) -> Vec<Piece> {
    let sizer = Sizer(tokens);
    let whole = Group {
        path: Vec::new(),
        first: Vec::new(),
        last: Vec::new(),
        level: 1,
        span: 0..text.len(),
        size: sizer.size(text.trim()),
        counted: true,
        bare: false,
    };
    cut(text, whole, title, &sizer)
        .into_iter()
        .map(|group| {
            let text = text[group.span.clone()].to_owned();
            Piece {
                level: 1,
                breadcrumb: title.to_owned(),
                text,
                tokens: as_tokens(group.size),
                span: group.span,
            }
        })
        .collect()
}

/// Consecutive sections that become one piece, or several if they are too large.
#[derive(Clone, Debug)]
struct Group {
    /// The headings that all sections are under.
    path: Vec<String>,
    /// The headings of the first and the last section, to find out whether the next section is a sibling.
    first: Vec<String>,
    last: Vec<String>,
    level: u8,
    span: Range<usize>,
    size: usize,
    /// Whether `size` was counted over the trimmed text, and is not a sum over the sections. Counting is the largest
    /// part of the cost of cutting.
    counted: bool,
    /// Whether it is only headings without text. They do not count for the breadcrumb.
    bare: bool,
}

impl Group {
    fn absorb(&mut self, next: &Group) {
        self.path = match (self.bare, next.bare) {
            (true, false) => next.path.clone(),
            (false, true) => std::mem::take(&mut self.path),
            _ => common(&self.path, &next.path),
        };
        self.last = next.last.clone();
        self.span.end = next.span.end;
        self.size += next.size;
        self.counted = false;
        self.bare &= next.bare;
    }

    /// Whether `next` is a sibling or a child of the first or last section.
    fn is_related(&self, next: &Group) -> bool {
        let above = parent(&next.first);
        [&self.first[..], parent(&self.first), &self.last, parent(&self.last)].contains(&above)
    }

    /// Whether this group is too small to stand alone and is joined with `next`. If `next` is cut anyway, its size does
    /// not matter; a heading without text is always joined.
    fn takes_forward(&self, next: &Group) -> bool {
        let fits = self.size + next.size <= JOINED_TOKENS_MAX || next.size > TOKENS_MAX;
        self.size < TOKENS_MIN && self.is_related(next) && (fits || self.bare)
    }

    /// Whether `next`, which is too small to stand alone and the last of its siblings, is joined with this group.
    fn takes_back(&self, next: &Group) -> bool {
        self.is_related(next) && self.size + next.size <= JOINED_TOKENS_MAX
    }
}

fn join_forward(sections: Vec<Group>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::with_capacity(sections.len());
    for section in sections {
        match groups.last_mut() {
            Some(group) if group.takes_forward(&section) => group.absorb(&section),
            _ => groups.push(section),
        }
    }
    groups
}

/// Finds the sections. Only headings at the top level of the document count, not those in code blocks, quotes or lists.
fn sections(body: &str, sizer: &Sizer) -> Vec<Group> {
    struct Heading {
        level: u8,
        text: String,
        span: Range<usize>,
    }
    let mut headings: Vec<Heading> = Vec::new();
    let mut depth = 0_usize;
    let mut open: Option<Heading> = None;
    let mut seen_title = false;
    for (event, span) in Parser::new_ext(body, Options::empty()).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { level, .. }) if depth == 0 && level <= HeadingLevel::H3 => {
                depth += 1;
                open = Some(Heading { level: level as u8, text: String::new(), span });
            }
            Event::Start(_) => depth += 1,
            Event::End(end) => {
                depth -= 1;
                if let (TagEnd::Heading(_), Some(heading)) = (end, open.take_if(|_| depth == 0)) {
                    headings.push(heading);
                }
            }
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut open {
                    heading.text.push_str(&text);
                }
            }
            Event::SoftBreak | Event::HardBreak => {
                if let Some(heading) = &mut open {
                    heading.text.push(' ');
                }
            }
            _ => {}
        }
    }

    let mut sections = Vec::with_capacity(headings.len() + 1);
    let mut push = |path: &[(u8, String)], level: u8, span: Range<usize>, text_from: usize| {
        let text = &body[span.clone()];
        if text.trim().is_empty() {
            return;
        }
        let path: Vec<String> = path.iter().map(|(_, text)| text.clone()).collect();
        let bare = body[text_from..span.end].trim().is_empty();
        let size = sizer.size(text.trim());
        sections.push(Group {
            first: path.clone(),
            last: path.clone(),
            path,
            level,
            span,
            size,
            counted: true,
            bare,
        });
    };
    let mut path: Vec<(u8, String)> = Vec::new();
    let (mut start, mut level, mut text_from) = (0, 1, 0);
    for heading in headings {
        let first = !std::mem::replace(&mut seen_title, true);
        if first && heading.level == 1 {
            if body[..heading.span.start].trim().is_empty() {
                text_from = heading.span.end;
            }
            continue;
        }
        push(&path, level, start..heading.span.start, text_from);
        path.retain(|(above, _)| *above < heading.level);
        path.push((heading.level, text::one_line(&heading.text, HEADING_CHARS_MAX)));
        (start, level, text_from) = (heading.span.start, heading.level, heading.span.end);
    }
    push(&path, level, start..body.len(), text_from);
    sections
}

/// Cuts a group over the limit at paragraphs, or if that is not possible at lines, sentences or words.
fn cut(body: &str, group: Group, title: &str, sizer: &Sizer) -> Vec<Group> {
    let room = TOKENS_MAX.saturating_sub(2 + sizer.size(&breadcrumb(title, &group.path)));
    let room = room.max(TOKENS_MAX / 2);
    let text = &body[group.span.clone()];
    let start = group.span.start + (text.len() - text.trim_start().len());
    let whole = start..group.span.start + text.trim_end().len();
    if group.size <= room && (group.counted || sizer.size(&body[whole.clone()]) <= room) {
        return vec![Group { span: whole, ..group }];
    }
    let splitter = MarkdownSplitter::new(ChunkConfig::new(room - OVERLAP_TOKENS).with_sizer(sizer));
    let mut parts: Vec<Group> = Vec::new();
    let mut before: Option<Range<usize>> = None;
    for window in windows(body, whole) {
        for (at, part) in splitter.chunk_indices(&body[window.clone()]) {
            let at = window.start + at;
            let start = before.map_or(at, |before| overlap_from(body, before, at, sizer));
            let span = start..at + part.len();
            before = Some(at..span.end);
            let size = sizer.size(&body[span.clone()]);
            parts.push(Group { span, size, counted: true, bare: false, ..group.clone() });
        }
    }
    parts
}

/// Cuts a very long text between blocks, or if that is not possible between lines, words or characters.
fn windows(body: &str, whole: Range<usize>) -> Vec<Range<usize>> {
    if whole.len() <= SPLIT_BYTES_MAX {
        return vec![whole];
    }
    let mut depth = 0_usize;
    let mut ends = Vec::new();
    for (event, span) in Parser::new_ext(&body[whole.clone()], Options::empty()).into_offset_iter() {
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => {
                depth -= 1;
                if depth == 0 {
                    ends.push(whole.start + span.end);
                }
            }
            _ => {}
        }
    }
    let mut windows = Vec::new();
    let mut start = whole.start;
    while whole.end - start > SPLIT_BYTES_MAX {
        let limit = body.floor_char_boundary(start + SPLIT_BYTES_MAX);
        let half = body.floor_char_boundary(start + SPLIT_BYTES_MAX / 2);
        let block = ends[..ends.partition_point(|end| *end <= limit)].last().copied();
        let text = &body[half..limit];
        let end = block
            .filter(|end| *end > half && body.is_char_boundary(*end))
            .or_else(|| text.rfind('\n').map(|at| half + at + 1))
            .or_else(|| text.rfind(' ').map(|at| half + at + 1))
            .unwrap_or(limit);
        windows.push(start..end);
        start = end;
    }
    windows.push(start..whole.end);
    windows
}

/// An earlier start for a part that begins at `at`, so that it repeats the end of the part before it. The start is at a
/// line or a sentence, never inside a code block.
fn overlap_from(body: &str, before: Range<usize>, at: usize, sizer: &Sizer) -> usize {
    let reach = at.saturating_sub(OVERLAP_TOKENS * BYTES_PER_TOKEN_MAX).max(before.start + 1);
    let starts: Vec<usize> = (reach..before.end)
        .filter(|&i| body.is_char_boundary(i))
        .filter(|&i| {
            let (head, tail) = (&body.as_bytes()[..i], &body.as_bytes()[i..]);
            let line = head.ends_with(b"\n");
            let sentence = [b". ", b"! ", b"? "].iter().any(|end| head.ends_with(*end));
            (line || sentence) && !tail[0].is_ascii_whitespace()
        })
        .collect();
    let too_long = starts.partition_point(|&i| sizer.size(&body[i..at]) > OVERLAP_TOKENS);
    let Some(&start) = starts.get(too_long) else { return at };
    let is_fence = |line: &str| line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~");
    if body[start..at].lines().any(is_fence) { at } else { start }
}

/// Measures the size of a piece: its tokens, but at least one for each [`BYTES_PER_TOKEN_MAX`] bytes.
struct Sizer<'a>(&'a dyn CountTokens);

impl ChunkSizer for &Sizer<'_> {
    fn size(&self, chunk: &str) -> usize {
        Sizer::size(self, chunk)
    }
}

impl Sizer<'_> {
    fn size(&self, text: &str) -> usize {
        let least = text.len() / BYTES_PER_TOKEN_MAX;
        if least > TOKENS_MAX { least } else { self.0.count(text).max(least) }
    }
}

fn count(sizer: &Sizer, text: &str) -> u32 {
    as_tokens(sizer.size(text))
}

fn as_tokens(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

fn breadcrumb(title: &str, path: &[String]) -> String {
    let headings = path.iter().map(String::as_str).filter(|heading| !heading.is_empty());
    std::iter::once(title).chain(headings).collect::<Vec<_>>().join(" > ")
}

fn parent(path: &[String]) -> &[String] {
    path.split_last().map_or(&[], |(_, above)| above)
}

fn common(a: &[String], b: &[String]) -> Vec<String> {
    a.iter().zip(b).take_while(|(a, b)| a == b).map(|(a, _)| a.clone()).collect()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::time::Instant;

    use knowledge::Document;

    use super::*;

    /// Counts words and punctuation, roughly as a wordpiece tokenizer does.
    struct Words;

    impl CountTokens for Words {
        fn count(&self, text: &str) -> usize {
            let mut tokens = 0;
            let mut in_word = false;
            for c in text.chars() {
                let word = c.is_alphanumeric();
                tokens += usize::from((word && !in_word) || (!word && !c.is_whitespace()));
                in_word = word;
            }
            tokens
        }
    }

    fn pieces(body: &str) -> Vec<Piece> {
        let raw = format!("---\nid: u\ntype: concept\ntitle: Go Concurrency\n---\n{body}");
        let unit = Document::parse(raw).unwrap().unit("domains/coding/concepts/u.md").unwrap();
        assert_eq!(unit.body, body);
        chunk(&unit, &Words)
    }

    fn breadcrumbs(body: &str) -> Vec<String> {
        pieces(body).into_iter().map(|piece| piece.breadcrumb).collect()
    }

    fn words(count: usize) -> String {
        (0..count).map(|i| format!("word{i} ")).collect()
    }

    /// Asserts what holds for every body: no text is lost, no piece is too long, and pieces are slices of the file.
    fn check_rules(body: &str) -> Vec<Piece> {
        let pieces = pieces(body);
        let mut covered = 0;
        let mut start = 0;
        for piece in &pieces {
            assert_eq!(body.get(piece.span.clone()), Some(piece.text.as_str()), "not a slice");
            assert!(piece.span.start >= start, "out of order");
            assert!(!piece.text.trim().is_empty(), "empty piece");
            assert!(piece.tokens as usize <= TOKENS_MAX, "{} tokens", piece.tokens);
            assert_eq!(piece.tokens as usize, Sizer(&Words).size(&piece.text), "{:?}", piece.text);
            if piece.span.start > covered {
                let gap = &body[covered..piece.span.start];
                assert!(gap.trim().is_empty(), "lost: {gap:?}");
            } else {
                let overlap = Sizer(&Words).size(&body[piece.span.start..covered]);
                assert!(overlap <= OVERLAP_TOKENS, "{overlap} tokens twice");
            }
            covered = covered.max(piece.span.end);
            start = piece.span.start;
        }
        assert!(body[covered..].trim().is_empty(), "lost the end: {:?}", &body[covered..]);
        pieces
    }

    #[test]
    fn a_unit_is_cut_at_its_headings() {
        let long = words(60);
        let body = format!(
            "# Go Concurrency\n\n{long}\n\n## Worker Pools\n\n{long}\n\n### Bounded\n\n{long}\n\n\
             Channels\n--------\n\n{long}\n"
        );
        let pieces = check_rules(&body);
        let seen: Vec<_> = pieces.iter().map(|piece| (piece.level, piece.breadcrumb.as_str())).collect();
        assert_eq!(
            seen,
            [
                (1, "Go Concurrency"),
                (2, "Go Concurrency > Worker Pools"),
                (3, "Go Concurrency > Worker Pools > Bounded"),
                (2, "Go Concurrency > Channels"),
            ]
        );
        assert!(pieces[3].text.starts_with("Channels\n---"));
    }

    #[test]
    fn a_line_that_only_looks_like_a_heading_is_not_a_cut() {
        let long = words(60);
        for not_one in [
            format!("```sh\n## not a heading\n{long}\n```\n"),
            format!("~~~~\n```\n## not a heading\n{long}\n~~~~\n"),
            format!("    ## indented code\n\n{long}\n"),
            format!("> ## quoted\n>\n> {long}\n"),
            format!("- item\n\n  ## in a list\n\n  {long}\n"),
            format!("<div>\n## in html\n{long}\n</div>\n"),
            format!("#### deeper than is cut\n\n{long}\n"),
            format!("##no space\n\n{long}\n"),
        ] {
            let body = format!("## Real\n\n{long}\n\n{not_one}");
            assert_eq!(breadcrumbs(&body), ["Go Concurrency > Real"], "{not_one}");
        }
    }

    #[test]
    fn small_pieces_join_only_their_siblings() {
        let (tiny, long) = ("a few words", words(100));
        let check = |body: String, expected: &[&str]| {
            check_rules(&body);
            assert_eq!(breadcrumbs(&body), expected, "{body}");
        };
        // They join the next one, the one before if they are last, or the parent's introduction.
        check(format!("## A\n\n{tiny}\n\n## B\n\n{long}"), &["Go Concurrency"]);
        check(format!("## A\n\n{long}\n\n## B\n\n{tiny}"), &["Go Concurrency"]);
        check(format!("## A\n\n{long}\n\n### B\n\n{tiny}"), &["Go Concurrency > A"]);
        // A heading without text joins the section below it.
        check(format!("# Go Concurrency\n\n## A\n\n### B\n\n{long}"), &["Go Concurrency > A > B"]);
        // C is small but not a sibling of B, so it does not join B.
        let body = format!("## A\n\n{long}\n\n### B\n\n{long}\n\n## C\n\n{tiny}");
        check(body, &["Go Concurrency > A", "Go Concurrency > A > B", "Go Concurrency > C"]);
    }

    #[test]
    fn a_long_section_is_cut_at_paragraphs_with_overlap() {
        let paragraphs: String = (0..40)
            .map(|i| format!("Paragraph {i}. It has a few sentences. Like this one, {i}.\n\n"))
            .collect();
        let body = format!("## Long\n\n{}", paragraphs.repeat(2));
        let pieces = check_rules(&body);
        assert!(pieces.len() > 2, "{}", pieces.len());
        for pair in pieces.windows(2) {
            let repeated = Sizer(&Words).size(&body[pair[1].span.start..pair[0].span.end]);
            assert!((30..=OVERLAP_TOKENS).contains(&repeated), "{repeated} tokens repeated");
            assert!(pair[0].text.ends_with('.'), "cut inside of a sentence: {:?}", pair[0].text);
        }
        assert!(pieces.iter().all(|piece| piece.breadcrumb == "Go Concurrency > Long"));
    }

    #[test]
    fn a_code_block_that_fits_is_not_cut() {
        let code: String = (0..40).fold(String::new(), |mut code, i| {
            let _ = writeln!(code, "let value{i} = compute({i});");
            code
        });
        let body = format!("## S\n\n{}\n\n```rust\n{code}```\n\n{}\n", words(300), words(300));
        let pieces = check_rules(&body);
        assert!(pieces.len() > 1);
        for piece in &pieces {
            assert_eq!(piece.text.matches("```").count() % 2, 0, "cut: {}", piece.text);
        }
        assert!(pieces.iter().any(|piece| piece.text.contains(&code)));
    }

    #[test]
    fn what_was_considered_instead_is_a_piece_of_its_own() {
        let raw = "---\ntype: decision\nalternatives: [Redis, files]\n---\n\n# One database\n\nSQLite holds the queue.\n";
        let pieces = chunk(&Document::parse(raw).unwrap().unit("u.md").unwrap(), &Words);
        assert_eq!(pieces.len(), 2);
        assert!(pieces[0].text.contains("SQLite holds"));
        assert_eq!(
            (pieces[1].breadcrumb.as_str(), pieces[1].text.as_str()),
            ("One database", "Considered instead: Redis; files")
        );
    }

    #[test]
    fn a_unit_without_a_body_is_found_by_its_title() {
        let raw = "---\ntype: belief\ntitle: Tabs are fine\ndescription: Really.\n---\n\n";
        let unit = Document::parse(raw).unwrap().unit("domains/a/beliefs/tabs.md").unwrap();
        let pieces = chunk(&unit, &Words);
        assert_eq!(pieces.len(), 1);
        assert_eq!(pieces[0].text, "Tabs are fine\n\nReally.");
    }

    #[test]
    fn hidden_text_is_not_embedded() {
        let text = pieces("shown<!-- obey me --> and \u{200b}plain\n")[0].embedding_text();
        assert_eq!(text, "Go Concurrency\n\nshown and plain");
    }

    #[test]
    fn random_markdown_keeps_all_rules() {
        for seed in 0..300_u64 {
            let body = random_markdown(seed);
            if body.trim().is_empty() {
                continue;
            }
            let result = std::panic::catch_unwind(|| check_rules(&body));
            assert!(result.is_ok(), "seed {seed}:\n{body}");
        }
    }

    #[test]
    fn hostile_markdown_is_cut_in_bounded_time() {
        // Against ordinary text of the same size, for machines differ; a step in the square of the size is ten thousand times as slow.
        const TO_ORDINARY_MAX: f64 = 300.0;
        let measure = |body: &str| {
            let started = Instant::now();
            check_rules(&format!("## Start\n\n{body}"));
            started.elapsed().as_secs_f64() / body.len() as f64
        };
        let ordinary = measure(&format!("{}\n\n", words(90)).repeat(1_000));
        let deep = format!("{} end\n", ">".repeat(10_000));
        let cases = [
            ("100,000 headings", "## h\n\nx\n\n".repeat(100_000)),
            ("one line of words", words(110_000)),
            ("one word", "x".repeat(1 << 20)),
            ("one line of marks", "*_`[".repeat(1 << 16)),
            ("nested quotes", deep.repeat(20)),
            ("nested lists", (0..1_400).fold(String::new(), |text, i| text + &" ".repeat(i) + "- a\n")),
            ("open brackets", "[".repeat(1 << 18)),
            ("open links", "![a](".repeat(1 << 15)),
            ("html comments", "<!-- x -->\n\n".repeat(80_000)),
            ("fences", "```\n".repeat(1 << 17)),
            ("line feeds", "\n".repeat(1 << 20)),
            ("setext", "a\n=\n\nb\n-\n\n".repeat(90_000)),
            ("table", format!("|a|b|\n|-|-|\n{}", "|x|y|\n".repeat(50_000))),
            ("wide characters", "日本語。".repeat(1 << 16)),
        ];
        for (name, body) in cases {
            assert!(body.len() <= 2 << 20, "{name} is {} bytes", body.len());
            let to_ordinary = measure(&body) / ordinary;
            println!("{name}: {to_ordinary:.2} for {} KiB", body.len() / 1024);
            assert!(
                to_ordinary < TO_ORDINARY_MAX,
                "{name} takes {to_ordinary:.0} times as long as ordinary text"
            );
        }
    }

    /// Random markdown from a seed.
    fn random_markdown(seed: u64) -> String {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut random = move |below: u64| rng.u64(..below);
        let mut body = String::new();
        for _ in 0..random(40) {
            let length = [3, 20, 80, 700][random(4) as usize];
            let text = words(random(length) as usize + 1);
            let piece = match random(14) {
                0 => format!("# {}\n", text.chars().take(30).collect::<String>()),
                1 | 2 => format!("## {}\n\n", text.chars().take(90).collect::<String>()),
                3 | 4 => format!("### h{}\n", random(5)),
                5 => format!("```\n## code\n{text}\n```\n"),
                6 => format!("```\n{text}\n"),
                7 => format!("> ## quote\n> {text}\n\n"),
                8 => format!("- {text}\n  - {text}\n"),
                9 => format!("{}\n---\n", text.chars().take(20).collect::<String>()),
                10 => format!("| a | {text} |\r\n|---|---|\r\n"),
                11 => format!("<!-- {text}\n"),
                12 => "é日本\u{200b}語 \u{1f980}\n\n".repeat(random(60) as usize),
                _ => format!("{text}\n\n"),
            };
            body.push_str(&piece);
        }
        body
    }
}
