//! Splits notes that people wrote into sections that may become units.
//!
//! Reads no files: the caller passes the text.

use std::collections::HashSet;

use knowledge::{Document, UnitType, markdown, text};
use transcript::redact::redact;

use crate::sentences::{sentence_end, without_bullet};

/// A note up to this size, in bytes, is one section; a longer one is split at its headings.
const NOTE_BYTES_MAX: usize = 6_000;
/// A section up to this size, in bytes, is not split further.
const SECTION_BYTES_MAX: usize = 4_000;
/// A section with fewer words is too short to be found.
const WORDS_MIN: usize = 6;
const TITLE_CHARS_MAX: usize = 120;

/// The kind of a file with notes, which decides how it is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteKind {
    /// CLAUDE.md or a rule: each section is a separate subject.
    Instructions,
    /// A memory of Claude Code: one fact for each file.
    Memory,
    /// Any other note: split only if it is long.
    Note,
}

/// A section of a note, as the unit that it may become.
#[derive(Clone, Debug, PartialEq)]
pub struct NoteSection {
    /// The title, in one line.
    pub title: String,
    /// The heading and those above it, separated by ` > `, with a number from the second of the same on; `None` for a
    /// whole file.
    pub section: Option<String>,
    /// The description, in one line.
    pub description: String,
    /// The markdown below the heading.
    pub body: String,
    /// The type, from the front matter or guessed from the words.
    pub kind: UnitType,
    /// Whether the type is from the front matter.
    pub is_typed: bool,
    /// The tags in the front matter.
    pub tags: Vec<String>,
    /// The domain in the front matter.
    pub domain: Option<String>,
    /// The confidence in the front matter.
    pub confidence: Option<f64>,
}

/// A section, or a key of the front matter, that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedSection {
    /// The heading, or the title of the file.
    pub section: String,
    /// Why it is left out.
    pub reason: String,
}

/// The keys of a unit that a note may have in its front matter.
const NOTE_KEYS: [&str; 9] =
    ["type", "title", "description", "domain", "tags", "confidence", "scope", "alternatives", "stale_after"];
/// What is shown as the section of a key in the front matter.
const FRONT_MATTER: &str = "front matter";

/// Splits a note into sections, without hidden text, secrets and `<private>` parts.
///
/// `file_stem` is the file name without its extension. `project` is put before titles that mean nothing without it.
pub fn split_note(
    raw: &str,
    kind: NoteKind,
    file_stem: &str,
    project: Option<&str>,
) -> (Vec<NoteSection>, Vec<SkippedSection>) {
    let mut skipped = Vec::new();
    let mut skip = |section: &str, reason: String| {
        skipped.push(SkippedSection { section: section.to_owned(), reason });
    };
    let document = Document::parse(raw).ok();
    let front = |key: &str| {
        let value = document.as_ref()?.get(key)?;
        let text = text::strip_hidden(&transcript::clean(value.as_str()?));
        (!text.trim().is_empty()).then_some(text)
    };
    let unit = document.as_ref().filter(|document| document.has_front_matter());
    let unit = unit.and_then(|document| match document.partial_unit("note.md", &NOTE_KEYS) {
        Ok((unit, errors)) => {
            errors.into_iter().for_each(|error| skip(FRONT_MATTER, error.to_string()));
            Some(unit)
        }
        Err(error) => {
            skip(FRONT_MATTER, error.to_string());
            None
        }
    });
    // A secret is recognised only as it is written: not in the lower case of a tag or a folder.
    let is_secret = |text: &str| *redact(text) != *text;
    let mut tags = unit.as_ref().map(|unit| unit.tags.clone()).unwrap_or_default();
    let tags_all = tags.len();
    tags.retain(|tag| !is_secret(tag));
    if tags.len() < tags_all {
        skip(FRONT_MATTER, "a tag is a secret".to_owned());
    }
    let tags: Vec<String> = tags.iter().map(|tag| text::strip_hidden(&transcript::clean(tag))).collect();
    let is_secret_key = |key: &str| {
        let value = document.as_ref().and_then(|document| document.get(key));
        value.as_ref().and_then(|value| value.as_str()).is_some_and(is_secret)
    };
    let is_secret_domain = is_secret_key("domain");
    if is_secret_domain {
        skip(FRONT_MATTER, "the domain is a secret".to_owned());
    }
    let file_stem = &redact(file_stem);
    let project = project.map(redact);
    let written = transcript::clean(document.as_ref().map_or(raw, |document| document.body()));
    let body = text::strip_hidden_to_store(&written, "");
    let named = front("title").or_else(|| front("name").map(|name| name.replace(['-', '_'], " ")));
    let (heading, rest) = split_title(&body);
    let title = named.or(heading).unwrap_or_else(|| match kind {
        // The file name says nothing here, the first sentence does.
        NoteKind::Instructions => first_sentence(&rest).trim_end_matches('.').to_owned(),
        _ => file_stem.replace(['-', '_'], " "),
    });
    let title = capitalise(&title);

    let mut sections: Vec<(Vec<String>, String)> = Vec::new();
    let is_split = match kind {
        NoteKind::Instructions => true,
        NoteKind::Memory => false,
        NoteKind::Note => rest.len() > NOTE_BYTES_MAX,
    };
    if is_split {
        split_at_headings(&[], &rest, &mut sections);
    } else {
        sections.push((Vec::new(), rest));
    }
    let own_type = front("type").filter(|_| !is_secret_key("type"));
    let own_type = own_type.and_then(|named| named_type(&text::one_line(&named, 100), kind));
    let has_confidence = document.as_ref().is_some_and(|document| {
        let alone = document.partial_unit("note.md", &["confidence"]);
        document.get("confidence").is_some() && alone.is_ok_and(|(_, errors)| errors.is_empty())
    });
    let mut found = Vec::new();
    let mut paths = HashSet::new();
    let mut has_text = false;
    for (headings, body) in sections {
        let body = body.trim().to_owned();
        let words = text::canonical(&text::with_word_breaks(&body));
        let words = words.split(' ').filter(|word| !word.is_empty()).count();
        let section = (!headings.is_empty()).then(|| numbered(headings.join(" > "), &mut paths));
        let shown = section.clone().unwrap_or_else(|| title.clone());
        if words < WORDS_MIN {
            if words > 0 {
                has_text = true;
                skip(&shown, format!("too short to be a unit: fewer than {WORDS_MIN} words"));
            }
            continue;
        }
        has_text = true;
        let heading = headings.last().cloned();
        // "Testing" says nothing without its project.
        let above = match kind {
            NoteKind::Instructions => project.as_deref().map(str::to_owned),
            _ => heading.is_some().then(|| title.clone()),
        };
        let heading = heading.unwrap_or_else(|| title.clone());
        let full = match above {
            Some(above) if !text::canonical(&heading).contains(&text::canonical(&above)) => {
                format!("{above}: {heading}")
            }
            _ => heading,
        };
        let full = text::one_line(&full, TITLE_CHARS_MAX);
        let named = own_type.clone();
        found.push(NoteSection {
            is_typed: named.is_some(),
            kind: named.unwrap_or_else(|| guess_type(&full, &body, kind, front("type").as_deref())),
            description: front("description")
                .filter(|_| section.is_none())
                .map_or_else(|| first_sentence(&body), |text| text::one_line(&text, 300)),
            tags: tags.clone(),
            domain: front("domain").filter(|_| !is_secret_domain),
            confidence: unit.as_ref().map(|unit| unit.confidence).filter(|_| has_confidence),
            title: full,
            section,
            body,
        });
    }
    if !has_text {
        skip(&title, "has no text".to_owned());
    }
    (found, skipped)
}

/// The path of a section, which no other section of the file has.
fn numbered(path: String, taken: &mut HashSet<String>) -> String {
    let numbers = (2..).map(|number| format!("{path} ({number})"));
    let free = std::iter::once(path.clone()).chain(numbers).find(|path| !taken.contains(path));
    let free = free.unwrap_or(path);
    taken.insert(free.clone());
    free
}

fn capitalise(title: &str) -> String {
    let mut chars = title.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Splits off the first heading if it is the title: the only heading of its level.
fn split_title(body: &str) -> (Option<String>, String) {
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

/// Splits a text at its highest headings, and a large section again.
fn split_at_headings(above: &[String], body: &str, sections: &mut Vec<(Vec<String>, String)>) {
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
        if text.len() > SECTION_BYTES_MAX {
            split_at_headings(&path, text, sections);
        } else {
            sections.push((path, text.to_owned()));
        }
    }
}

/// The headings outside code blocks: byte offset, level and text.
pub(crate) fn headings(body: &str) -> Vec<(usize, usize, String)> {
    let mut found = Vec::new();
    for line in markdown::lines(body).filter(|line| !line.is_code) {
        let level = line.text.bytes().take_while(|&byte| byte == b'#').count();
        if (1..=6).contains(&level) && line.text[level..].starts_with([' ', '\t']) {
            let heading = line.text[level..].trim();
            // The closing marks stand apart from the text: not those of "C#".
            let open = heading.trim_end_matches('#');
            let heading = if open.is_empty() || open.ends_with([' ', '\t']) { open } else { heading };
            let title = plain_line(heading);
            if !title.is_empty() {
                found.push((line.start, level, title));
            }
        }
    }
    found
}

/// A line without the marks of emphasis and code.
fn plain_line(line: &str) -> String {
    text::one_line(&markdown::without_code_marks(&markdown::without_emphasis(line)), 200)
}

fn first_sentence(body: &str) -> String {
    let mut lines = body.lines().map(|line| line.trim_start_matches(['>', ' ']));
    let line = lines.find(|line| line.chars().any(char::is_alphabetic) && !line.starts_with("```"));
    let line = without_bullet(line.unwrap_or_default());
    let line = markdown::without_emphasis(&line);
    plain_line(&line[..sentence_end(&line)])
}

/// The type of the units of a note that names it.
fn named_type(named: &str, kind: NoteKind) -> Option<UnitType> {
    let known = UnitType::from(named.to_lowercase().as_str());
    if UnitType::KNOWN.contains(&known) {
        return Some(known);
    }
    // The words of Claude Code's memories are not the user's.
    (kind != NoteKind::Memory).then(|| UnitType::from(named))
}

/// Guesses the type from the words in the title and the body.
fn guess_type(title: &str, body: &str, kind: NoteKind, declared: Option<&str>) -> UnitType {
    match (kind, declared) {
        // The types of Claude Code's memories.
        (NoteKind::Memory, Some("feedback" | "user")) => return UnitType::Belief,
        (NoteKind::Memory, Some("project" | "reference")) => return UnitType::Concept,
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
    let count: usize = orders.iter().map(|word| body.matches(word).count()).sum();
    if count > 0 && (kind == NoteKind::Instructions || count * 40 > body.split(' ').count()) {
        return UnitType::Belief;
    }
    UnitType::Concept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn titles(raw: &str, kind: NoteKind, context: Option<&str>) -> Vec<(String, &'static str)> {
        let (sections, _) = split_note(raw, kind, "my-file", context);
        let kinds = ["pattern", "concept", "decision", "bug", "belief"];
        let kind_of =
            |section: &NoteSection| kinds.into_iter().find(|kind| section.kind.as_str() == *kind).unwrap();
        sections.iter().map(|section| (section.title.clone(), kind_of(section))).collect()
    }

    #[test]
    fn instructions_are_split_at_their_headings() {
        let raw = "# Shop\n\nA web shop in Rust with a queue and two workers beside it.\n\n## Commands\n\n```sh\n# not a heading\ncargo test --workspace\n```\nRun them before each commit.\n\n## Style\n\nNever use unwrap outside of tests, and always write whole words.\n\n## TBD\n\nsoon\n";
        assert_eq!(
            titles(raw, NoteKind::Instructions, Some("shop")),
            [
                ("Shop".to_owned(), "concept"),
                ("shop: Commands".to_owned(), "concept"),
                ("shop: Style".to_owned(), "belief"),
            ]
        );
        let (sections, skipped) = split_note(raw, NoteKind::Instructions, "CLAUDE", Some("shop"));
        assert_eq!(sections[1].section.as_deref(), Some("Commands"));
        assert!(sections[1].body.contains("# not a heading"));
        assert_eq!(
            skipped,
            [SkippedSection {
                section: "TBD".to_owned(),
                reason: "too short to be a unit: fewer than 6 words".to_owned()
            }]
        );
    }

    #[test]
    fn a_comment_mark_hides_no_later_section() {
        let raw = "# Shop\n\n## Templates\n\nNever leave `<!--` unclosed in any of the templates.\n\n\
                   ## Deploys\n\nNever deploy on a Friday, nobody is there on Saturday.\n";
        let (sections, _) = split_note(raw, NoteKind::Instructions, "CLAUDE", Some("shop"));
        let bodies: Vec<&str> = sections.iter().map(|section| section.body.as_str()).collect();
        assert_eq!(
            bodies,
            [
                "Never leave `<!--` unclosed in any of the templates.",
                "Never deploy on a Friday, nobody is there on Saturday."
            ]
        );
        let open = raw.replace("Never leave `<!--`", "<!-- Never leave it");
        let (sections, _) = split_note(&open, NoteKind::Instructions, "CLAUDE", Some("shop"));
        assert_eq!(sections.len(), 2, "what a renderer hides becomes visible");
        assert!(sections[0].body.starts_with("&lt;!-- Never"), "{}", sections[0].body);
    }

    #[test]
    fn a_note_in_a_script_without_spaces_is_long_enough() {
        let raw = "# 数据库\n\n数据库迁移必须在事务中运行，否则失败会留下半个模式，第二天没有人能够部署。\n\n## 以后\n\n待定\n";
        let (sections, skipped) = split_note(raw, NoteKind::Instructions, "CLAUDE", None);
        assert_eq!((sections.len(), skipped.len()), (1, 1), "{skipped:?}");
    }

    #[test]
    fn a_title_and_a_description_keep_code_and_abbreviations() {
        for (heading, title) in [
            ("## Calling COM from C#", "Calling COM from C#"),
            ("## Calling COM from C# ##", "Calling COM from C#"),
            ("## Never use `SELECT *` ", "Never use SELECT *"),
            ("## *Never* use **`2**16`** sockets", "Never use 2**16 sockets"),
            ("## Never use ``a`b``", "Never use a`b"),
        ] {
            let raw = format!("# Shop\n\n{heading}\n\nIt costs a day each time somebody does.\n");
            assert_eq!(titles(&raw, NoteKind::Instructions, None)[0].0, title);
        }
        for (body, description) in [
            (
                "Prefer short names, e.g. `id`, to long ones. They fit.",
                "Prefer short names, e.g. id, to long ones.",
            ),
            (
                "- Run `cargo clippy . --all-targets` first. Then push.",
                "Run cargo clippy . --all-targets first.",
            ),
            ("**Never** ship on a Friday! Nobody is there.", "Never ship on a Friday!"),
            ("One line without an end", "One line without an end"),
        ] {
            assert_eq!(first_sentence(body), description);
        }
    }

    #[test]
    fn a_memory_is_one_section_with_its_name_and_type() {
        let raw = "---\nname: prefers-small-commits\ndescription: Small commits with reasons\ntype: feedback\n---\n\nThe user wants one idea in each commit.\n\n## Why\n\nThey read the history when something breaks.\n";
        let (sections, _) = split_note(raw, NoteKind::Memory, "feedback_commits", None);
        assert_eq!(sections.len(), 1);
        assert_eq!(
            (sections[0].title.as_str(), sections[0].kind.as_str()),
            ("Prefers small commits", "belief")
        );
        assert_eq!(sections[0].description, "Small commits with reasons");
    }

    #[test]
    fn the_tags_of_a_note_without_a_type_are_kept() {
        let raw = "---\ntags: [net, retry]\nconfidence: 85\n---\n\n# Retries\n\nRetry a request that failed at most three times.\n";
        let (sections, skipped) = split_note(raw, NoteKind::Note, "retries", None);
        assert_eq!((sections[0].tags.join(" "), sections[0].confidence), ("net retry".to_owned(), None));
        assert_eq!(sections[0].kind, UnitType::Concept);
        let reason = "line 3: `confidence` must be a number from 0 to 1".to_owned();
        assert_eq!(skipped, [SkippedSection { section: "front matter".to_owned(), reason }]);
    }

    #[test]
    fn a_type_of_the_users_own_is_kept() {
        let kind_of = |named: &str, kind: NoteKind| {
            let raw =
                format!("---\ntype: {named}\n---\n\nKnead the dough for ten minutes and let it rest.\n");
            let section = split_note(&raw, kind, "bread", None).0.remove(0);
            (section.kind.to_string(), section.is_typed)
        };
        assert_eq!(kind_of("recipe", NoteKind::Note), ("recipe".to_owned(), true));
        assert_eq!(kind_of("Decision", NoteKind::Note), ("decision".to_owned(), true));
        assert_eq!(kind_of("reference", NoteKind::Memory), ("concept".to_owned(), false));
        let secret = format!("ghp_{}", "abcdefghijklmnopqrstuvwxyz0123456789");
        assert_eq!(kind_of(&secret, NoteKind::Note), ("concept".to_owned(), false));
    }

    #[test]
    fn a_note_without_text_is_listed() {
        for raw in ["", "# Only a heading\n", "<private>all of it</private>\n"] {
            let (sections, skipped) = split_note(raw, NoteKind::Note, "empty", None);
            assert!(sections.is_empty() && skipped.len() == 1, "{raw:?}");
            assert_eq!(skipped[0].reason, "has no text");
        }
    }

    #[test]
    fn a_secret_in_the_front_matter_is_no_tag_and_no_domain() {
        let secret = format!("ghp_{}", "abcdefghijklmnopqrstuvwxyz0123456789");
        let raw = format!(
            "---\ntype: decision\ntags: [net, {secret}]\ndomain: {secret}\n---\n\nRetry a request that failed at most three times.\n"
        );
        let (sections, skipped) = split_note(&raw, NoteKind::Note, &secret, None);
        assert_eq!((sections[0].tags.join(" "), &sections[0].domain), ("net".to_owned(), &None));
        assert!(!format!("{sections:?}{skipped:?}").to_lowercase().contains("ghp"), "{sections:?}");
        assert_eq!(skipped.len(), 2);
    }

    #[test]
    fn a_long_note_is_split_and_a_short_one_is_not() {
        let short = "# Caches\n\n## Owners\n\nA cache without an owner is a leak, every time.\n";
        assert_eq!(titles(short, NoteKind::Note, None), [("Caches".to_owned(), "concept")]);
        let part = "Some words about the matter at hand. ".repeat(100);
        let long = format!("# Caches\n\n## Owners\n\n{part}\n\n## Keys\n\n{part}\n");
        assert_eq!(
            titles(&long, NoteKind::Note, None),
            [("Caches: Owners".to_owned(), "concept"), ("Caches: Keys".to_owned(), "concept")]
        );
    }

    #[test]
    fn sections_of_one_heading_have_paths_of_their_own() {
        let raw = "## Notes\n\nThe first notes, with a few words in them.\n\n## Notes (2)\n\nA heading that somebody has numbered by hand.\n\n## Notes\n\nThe last notes, with a few words in them.\n";
        let (sections, _) = split_note(raw, NoteKind::Instructions, "CLAUDE", None);
        let paths: Vec<_> = sections.iter().filter_map(|section| section.section.as_deref()).collect();
        assert_eq!(paths, ["Notes", "Notes (2)", "Notes (3)"]);
    }

    #[test]
    fn secret_private_and_hidden_text_is_removed() {
        let secret = format!("AKIA{}", "IOSFODNN7EXAMPL3");
        let raw = format!(
            "---\nname: \"key {secret}\"\ndescription: d\n---\nThe key is {secret} and <private>my own business</private> the rest\u{202e} is <!-- hidden --> for all to see.\n"
        );
        let (sections, _) = split_note(&raw, NoteKind::Memory, "x", None);
        let shown = format!("{:?}", sections[0]);
        for gone in [secret.as_str(), "my own business", "\u{202e}", "hidden"] {
            assert!(!shown.contains(gone), "{shown}");
        }
    }
}
