//! From a file that somebody wrote to the units in it: where it is cut, and what each part is called.
//!
//! Nothing here reads a disk, so that every rule is a test.

use knowledge::{Document, UnitType, text};

/// A note up to this size stays whole; a longer one is cut at its headings. In bytes.
const NOTE_BYTES_MAX: usize = 6_000;
/// A part up to this size is not cut further. In bytes.
const PART_BYTES_MAX: usize = 4_000;
/// A part with fewer words says too little to be found.
const WORDS_MIN: usize = 6;
const TITLE_CHARS_MAX: usize = 120;

/// What kind of file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// CLAUDE.md and rules: each section is a matter of its own.
    Instructions,
    /// Claude Code's own memory: one fact to a file.
    Memory,
    /// Whatever else.
    Note,
}

/// What may become a unit.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    pub title: String,
    /// The headings above and its own, with ` > ` between; `None` for a whole file.
    pub section: Option<String>,
    pub description: String,
    pub body: String,
    pub kind: UnitType,
    pub tags: Vec<String>,
    /// What the file itself says of it.
    pub domain: Option<String>,
    pub confidence: Option<f64>,
}

/// The parts of a file, cleaned of what is hidden or secret, and why others are none.
///
/// `stem` is the file's name without its ending; `context` goes before titles that say nothing without it.
pub(super) fn parts(
    raw: &str,
    kind: Kind,
    stem: &str,
    context: Option<&str>,
) -> (Vec<Part>, Vec<(String, String)>) {
    let mut left_out = Vec::new();
    let document = Document::parse(raw).ok();
    let front = |key: &str| {
        let value = document.as_ref()?.get(key)?;
        let text = text::strip_hidden(&transcript::clean(value.as_str()?));
        (!text.trim().is_empty()).then_some(text)
    };
    let unit = document.as_ref().filter(|document| document.has_front_matter());
    let unit = unit.and_then(|document| document.unit("note.md").ok());
    let body =
        text::strip_hidden(&transcript::clean(document.as_ref().map_or(raw, |document| document.body())));
    let named = front("title").or_else(|| front("name").map(|name| name.replace(['-', '_'], " ")));
    let (heading, rest) = own_title(&body);
    let title = named.or(heading).unwrap_or_else(|| match kind {
        // The name of the file says nothing; what it begins with does.
        Kind::Instructions => first_sentence(&rest).trim_end_matches('.').to_owned(),
        _ => stem.replace(['-', '_'], " "),
    });
    let title = capitalised(&title);

    let mut sections: Vec<(Vec<String>, String)> = Vec::new();
    let is_cut = match kind {
        Kind::Instructions => true,
        Kind::Memory => false,
        Kind::Note => rest.len() > NOTE_BYTES_MAX,
    };
    if is_cut {
        cut(&[], &rest, &mut sections);
    } else {
        sections.push((Vec::new(), rest));
    }
    let mut parts = Vec::new();
    for (headings, body) in sections {
        let body = body.trim().to_owned();
        let words = text::canonical(&body).split(' ').filter(|word| !word.is_empty()).count();
        let section = (!headings.is_empty()).then(|| headings.join(" > "));
        let shown = section.clone().unwrap_or_else(|| title.clone());
        if words < WORDS_MIN {
            if words > 0 {
                left_out.push((shown, "too short to be a unit".to_owned()));
            }
            continue;
        }
        let own = headings.last().cloned();
        // "Testing" says nothing without the project that it is of.
        let above = match kind {
            Kind::Instructions => context.map(str::to_owned),
            _ => own.is_some().then(|| title.clone()),
        };
        let own = own.unwrap_or_else(|| title.clone());
        let full = match above {
            Some(above) if !text::canonical(&own).contains(&text::canonical(&above)) => {
                format!("{above}: {own}")
            }
            _ => own,
        };
        let full = text::one_line(&plain(&full), TITLE_CHARS_MAX);
        let known = unit.as_ref().map(|unit| unit.kind.clone()).filter(|kind| UnitType::KNOWN.contains(kind));
        parts.push(Part {
            kind: known.unwrap_or_else(|| guess(&full, &body, kind, front("type").as_deref())),
            description: front("description")
                .filter(|_| section.is_none())
                .map_or_else(|| first_sentence(&body), |text| text::one_line(&text, 300)),
            tags: unit.as_ref().map(|unit| unit.tags.clone()).unwrap_or_default(),
            domain: front("domain"),
            confidence: unit
                .as_ref()
                .map(|unit| unit.confidence)
                .filter(|_| front_has(document.as_ref(), "confidence")),
            title: full,
            section,
            body,
        });
    }
    (parts, left_out)
}

fn capitalised(title: &str) -> String {
    let mut chars = title.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

fn front_has(document: Option<&Document>, key: &str) -> bool {
    document.is_some_and(|document| document.get(key).is_some())
}

/// The heading that a file begins with and what follows, when it is a title: the only one of its level.
fn own_title(body: &str) -> (Option<String>, String) {
    let body = body.trim_start();
    let first = headings(body).into_iter().next();
    match first {
        Some((0, level, title))
            if headings(body).iter().filter(|(_, other, _)| *other <= level).count() == 1 =>
        {
            let rest = body.split_once('\n').map_or("", |(_, rest)| rest);
            (Some(title), rest.to_owned())
        }
        _ => (None, body.to_owned()),
    }
}

/// Cuts a text at its highest headings, and again where a part is large.
fn cut(above: &[String], body: &str, sections: &mut Vec<(Vec<String>, String)>) {
    let found = headings(body);
    let Some(level) = found.iter().map(|(_, level, _)| *level).min() else {
        sections.push((above.to_vec(), body.to_owned()));
        return;
    };
    let tops: Vec<_> = found.into_iter().filter(|(_, other, _)| *other == level).collect();
    let first = tops.first().map_or(body.len(), |(at, ..)| *at);
    sections.push((above.to_vec(), body[..first].to_owned()));
    for (number, (at, _, title)) in tops.iter().enumerate() {
        let end = tops.get(number + 1).map_or(body.len(), |(next, ..)| *next);
        let text = body[*at..end].split_once('\n').map_or("", |(_, rest)| rest);
        let path: Vec<String> = above.iter().cloned().chain([title.clone()]).collect();
        if text.len() > PART_BYTES_MAX {
            cut(&path, text, sections);
        } else {
            sections.push((path, text.to_owned()));
        }
    }
}

/// Headings outside of fences: where their lines begin, their levels and texts.
fn headings(body: &str) -> Vec<(usize, usize, String)> {
    let mut found = Vec::new();
    let mut fence: Option<&str> = None;
    let mut at = 0;
    for line in body.split_inclusive('\n') {
        let text = line.trim();
        let mark = ["```", "~~~"].into_iter().find(|mark| text.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            _ => {}
        }
        let level = line.bytes().take_while(|&byte| byte == b'#').count();
        if fence.is_none() && (1..=6).contains(&level) && line[level..].starts_with([' ', '\t']) {
            let title = plain(text.trim_matches('#'));
            if !title.is_empty() {
                found.push((at, level, title));
            }
        }
        at += line.len();
    }
    found
}

/// A line without the marks of emphasis and code.
fn plain(line: &str) -> String {
    text::one_line(&line.replace(['*', '`'], ""), 200)
}

fn first_sentence(body: &str) -> String {
    let mut lines = body.lines().map(|line| line.trim().trim_start_matches(['-', '*', '>', '#', ' ']));
    let line = lines.find(|line| line.chars().any(char::is_alphabetic) && !line.starts_with("```"));
    let line = plain(line.unwrap_or_default());
    let end = line.find(". ").map_or(line.len(), |at| at + 1);
    text::one_line(&line[..end], 200)
}

/// What a text seems to be, by the words that people use in each.
fn guess(title: &str, body: &str, kind: Kind, said: Option<&str>) -> UnitType {
    match (kind, said) {
        // The kinds of Claude Code's memory.
        (Kind::Memory, Some("feedback" | "user")) => return UnitType::Belief,
        (Kind::Memory, Some("project" | "reference")) => return UnitType::Concept,
        _ => {}
    }
    let title = text::canonical(title);
    let has = |words: &[&str]| words.iter().any(|word| format!(" {title} ").contains(&format!(" {word} ")));
    if has(&["decision", "decisions", "adr", "we chose", "why we", "decided"]) {
        return UnitType::Decision;
    }
    if has(&[
        "bug",
        "bugs",
        "gotcha",
        "gotchas",
        "pitfall",
        "pitfalls",
        "troubleshooting",
        "known issues",
        "fix",
    ]) {
        return UnitType::Bug;
    }
    if has(&["how to", "workflow", "recipe", "steps", "pattern", "patterns", "deploying", "release process"])
    {
        return UnitType::Pattern;
    }
    if has(&[
        "architecture",
        "overview",
        "structure",
        "commands",
        "layout",
        "glossary",
        "stack",
        "dependencies",
    ]) {
        return UnitType::Concept;
    }
    if has(&["rules", "style", "conventions", "guidelines", "preferences", "always", "never", "must"]) {
        return UnitType::Belief;
    }
    let body = format!(" {} ", text::canonical(body));
    let orders = [" always ", " never ", " must ", " prefer ", " do not ", " don t ", " avoid "];
    let ordered: usize = orders.iter().map(|word| body.matches(word).count()).sum();
    if ordered > 0 && (kind == Kind::Instructions || ordered * 40 > body.split(' ').count()) {
        return UnitType::Belief;
    }
    UnitType::Concept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn titles(raw: &str, kind: Kind, context: Option<&str>) -> Vec<(String, &'static str)> {
        let (parts, _) = parts(raw, kind, "my-file", context);
        let kinds = ["pattern", "concept", "decision", "bug", "belief"];
        let kind_of = |part: &Part| kinds.into_iter().find(|kind| part.kind.as_str() == *kind).unwrap();
        parts.iter().map(|part| (part.title.clone(), kind_of(part))).collect()
    }

    #[test]
    fn instructions_are_cut_at_their_sections() {
        let raw = "# Shop\n\nA web shop in Rust with a queue and two workers beside it.\n\n## Commands\n\n```sh\n# not a heading\ncargo test --workspace\n```\nRun them before each commit.\n\n## Style\n\nNever use unwrap outside of tests, and always write whole words.\n\n## TBD\n\nsoon\n";
        assert_eq!(
            titles(raw, Kind::Instructions, Some("shop")),
            [
                ("Shop".to_owned(), "concept"),
                ("shop: Commands".to_owned(), "concept"),
                ("shop: Style".to_owned(), "belief"),
            ]
        );
        let (parts, left_out) = parts(raw, Kind::Instructions, "CLAUDE", Some("shop"));
        assert_eq!(parts[1].section.as_deref(), Some("Commands"));
        assert!(parts[1].body.contains("# not a heading"));
        assert_eq!(left_out, [("TBD".to_owned(), "too short to be a unit".to_owned())]);
    }

    #[test]
    fn a_memory_is_one_unit_with_the_name_and_kind_that_it_has() {
        let raw = "---\nname: prefers-small-commits\ndescription: Small commits with reasons\ntype: feedback\n---\n\nThe user wants one idea in each commit.\n\n## Why\n\nThey read the history when something breaks.\n";
        let (parts, _) = parts(raw, Kind::Memory, "feedback_commits", None);
        assert_eq!(parts.len(), 1);
        assert_eq!((parts[0].title.as_str(), parts[0].kind.as_str()), ("Prefers small commits", "belief"));
        assert_eq!(parts[0].description, "Small commits with reasons");
    }

    #[test]
    fn a_long_note_is_cut_and_a_short_one_is_not() {
        let short = "# Caches\n\n## Owners\n\nA cache without an owner is a leak, every time.\n";
        assert_eq!(titles(short, Kind::Note, None), [("Caches".to_owned(), "concept")]);
        let part = "Some words about the matter at hand. ".repeat(100);
        let long = format!("# Caches\n\n## Owners\n\n{part}\n\n## Keys\n\n{part}\n");
        assert_eq!(
            titles(&long, Kind::Note, None),
            [("Caches: Owners".to_owned(), "concept"), ("Caches: Keys".to_owned(), "concept")]
        );
    }

    #[test]
    fn what_is_secret_private_or_hidden_does_not_come_in() {
        let secret = format!("AKIA{}", "IOSFODNN7EXAMPL3");
        let raw = format!(
            "---\nname: \"key {secret}\"\ndescription: d\n---\nThe key is {secret} and <private>my own business</private> the rest\u{202e} is <!-- hidden --> for all to see.\n"
        );
        let (parts, _) = parts(&raw, Kind::Memory, "x", None);
        let told = format!("{:?}", parts[0]);
        for gone in [secret.as_str(), "my own business", "\u{202e}", "hidden"] {
            assert!(!told.contains(gone), "{told}");
        }
    }
}
