//! Links between notes as Obsidian writes them: `[[file]]`, `[[folder/file#heading|shown text]]`.

use std::ops::Range;

use crate::markdown;
use crate::name::{UnitId, file_stem, nfc, tag};

/// A link in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wikilink<'t> {
    /// Where it stands, with its brackets and the `!` of one that embeds what it names.
    pub span: Range<usize>,
    /// What it names: a file without its ending, a path or a title.
    pub target: &'t str,
    /// The place in the file, with its `#`; empty for the whole file.
    pub heading: &'t str,
    /// The text that is shown instead of the target.
    pub shown: Option<&'t str>,
    /// Whether what it names is shown in its place.
    pub embeds: bool,
    /// Whether it stands in a row of a table, where the bar before the shown text is written `\|`.
    pub in_table: bool,
}

impl Wikilink<'_> {
    /// The ids of the unit that it most likely names: the one that nugget makes of a title, and the name of a file that has
    /// other letters.
    pub fn ids(&self) -> impl Iterator<Item = UnitId> {
        let stem = file_stem(self.target).trim();
        let by_name = (!stem.is_ascii() || stem.is_empty()).then(|| UnitId::verbatim(nfc(stem)));
        let of_title = (!tag(stem).is_empty()).then(|| UnitId::from_title(stem));
        of_title.into_iter().chain(by_name)
    }

    /// Whether it names the file at this path, as [`is_at`] says.
    pub fn names_file(&self, path: &str) -> bool {
        is_at(self.target, path)
    }

    /// A link to the same place in another file, as it is written.
    pub fn to_file(&self, file: &str, shown: Option<&str>) -> String {
        let mark = if self.embeds { "!" } else { "" };
        let bar = if self.in_table { "\\|" } else { "|" };
        let shown = shown.map(|shown| format!("{bar}{shown}")).unwrap_or_default();
        format!("{mark}[[{file}{}{shown}]]", self.heading)
    }
}

/// Whether a target is the file at this path: by its name, or by the end of its path if it has a folder. Case does not count.
pub fn is_at(target: &str, path: &str) -> bool {
    let folded = |path: &str| nfc(path.strip_suffix(".md").unwrap_or(path)).to_lowercase();
    // Obsidian takes paths from the note as well.
    let target = folded(target.trim_start_matches("../").trim_start_matches("./").trim_start_matches('/'));
    folded(path).strip_suffix(&target).is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

/// A text with what `new` gives in the place of links; where it gives nothing, the link stays.
pub fn rewritten(text: &str, new: impl Fn(&Wikilink<'_>) -> Option<String>) -> String {
    let mut rewritten = String::with_capacity(text.len());
    let mut from = 0;
    for link in wikilinks(text) {
        if let Some(new) = new(&link) {
            rewritten.push_str(&text[from..link.span.start]);
            rewritten.push_str(&new);
            from = link.span.end;
        }
    }
    rewritten + &text[from..]
}

/// The link that a text consists of.
pub fn sole_link(text: &str) -> Option<Wikilink<'_>> {
    let text = text.trim();
    wikilinks(text).into_iter().next().filter(|link| link.span == (0..text.len()))
}

/// The id that a text names, also as a link.
pub fn target_id(text: &str) -> &str {
    sole_link(text).map_or(text, |link| file_stem(link.target))
}

/// The links of a markdown text, in order. What stands in code is none.
pub fn wikilinks(text: &str) -> Vec<Wikilink<'_>> {
    if !text.contains("[[") {
        return Vec::new();
    }
    let lines = markdown::lines(text).filter(|line| !line.is_code);
    lines.flat_map(|line| links_of_line(text, line.start..line.start + line.text.len())).collect()
}

fn links_of_line(text: &str, line: Range<usize>) -> Vec<Wikilink<'_>> {
    let mut links = Vec::new();
    let last_end = text[line.clone()].rfind("]]").map_or(line.start, |end| line.start + end);
    let is_row = text[line.clone()].trim_start().starts_with('|');
    let mut at = line.start;
    while let Some(found) = text[at..line.end].find(['`', '[']) {
        at += found;
        if text[at..].starts_with('`') {
            let ticks = text[at..line.end].bytes().take_while(|&byte| byte == b'`').count();
            let after = at + ticks;
            let end = text[after..line.end].find(&text[at..after]);
            at = end.map_or(after, |end| after + end + ticks);
        } else if let Some(length) = text[at..line.end]
            .strip_prefix("[[")
            .filter(|_| at < last_end)
            .and_then(|inside| inside.find("]]"))
        {
            let inside = &text[at + 2..at + 2 + length];
            let (named, shown) = inside.split_once('|').map_or((inside, None), |(a, b)| (a, Some(b.trim())));
            let escaped = named.strip_suffix('\\').filter(|_| shown.is_some());
            let in_table = is_row || escaped.is_some();
            let named = escaped.unwrap_or(named);
            let embeds = text[line.start..at].ends_with('!');
            let (target, heading) = named.split_at(named.find('#').unwrap_or(named.len()));
            let (target, heading) = (target.trim(), heading.trim());
            let span = at - usize::from(embeds)..at + length + 4;
            at = span.end;
            if !target.is_empty() && !target.contains('[') {
                links.push(Wikilink { span, target, heading, shown, embeds, in_table });
            }
        } else {
            at += 1;
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_of_code() {
        let text = "See [[jwt-tokens]] and [[notes/Caches.md#Size|the caches]], not `[[code]]` or [a](b).\n\
                    ```\n[[fenced]]\n```\n[[]] [[#here]] [[ Two words ]] [[open\n[[last]]";
        let found: Vec<_> = wikilinks(text).iter().map(|link| (link.target, link.shown)).collect();
        let expected = [
            ("jwt-tokens", None),
            ("notes/Caches.md", Some("the caches")),
            ("Two words", None),
            ("last", None),
        ];
        assert_eq!(found, expected);
        let ids = |text| -> Vec<_> {
            wikilinks(text).iter().flat_map(Wikilink::ids).map(|id| id.to_string()).collect()
        };
        assert_eq!(ids(text), ["jwt-tokens", "caches", "two-words", "last"]);
        assert_eq!(ids("[[База]] [[→]]"), ["baza", "База", "→"]);
        let headings: Vec<_> = wikilinks(text).iter().map(|link| link.heading).collect();
        assert_eq!(headings, ["", "#Size", "", ""]);
        for link in wikilinks(text) {
            assert!(text[link.span.clone()].starts_with("[[") && text[link.span].ends_with("]]"));
        }
    }

    #[test]
    fn a_target_with_a_folder_is_the_end_of_a_path() {
        let path = "domains/web/notes/Up A.md";
        for (target, names_it) in [
            ("up a", true),
            ("notes/Up A.md", true),
            ("../notes/up a", true),
            ("./Up A", true),
            ("domains/web/notes/up a", true),
            ("Daily/up a", false),
            ("tes/up a", false),
            ("p a", false),
            ("x/domains/web/notes/up a", false),
        ] {
            assert_eq!(is_at(target, path), names_it, "{target}");
        }
    }

    #[test]
    fn a_link_is_written_as_its_place_wants_it() {
        let text = "![[a#b]] [[a|x]]\n| [[a\\|x]] | ![[a]] |\n";
        let written =
            rewritten(text, |link| Some(link.to_file("c", Some(link.shown.unwrap_or(link.target)))));
        assert_eq!(written, "![[c#b|a]] [[c|x]]\n| [[c\\|x]] | ![[c\\|a]] |\n");
        assert_eq!(rewritten(text, |_| Some(String::new())), " \n|  |  |\n");
        assert_eq!(rewritten(text, |_| None), text);
    }

    #[test]
    fn only_a_code_block_hides_the_links_in_its_lines() {
        let targets = |text| -> Vec<_> { wikilinks(text).iter().map(|link| link.target).collect() };
        assert_eq!(targets("```run``` [[a]]\n[[b]]"), ["a", "b"]);
        assert_eq!(targets("```\n~~~\n```\n[[a]]"), ["a"]);
        assert!(targets("````\n```\n[[a]]\n````\n").is_empty());
    }

    #[test]
    fn marks_without_an_end_are_read_once() {
        let open = "[".repeat(1 << 20);
        assert!(wikilinks(&open).is_empty());
        assert!(wikilinks(&"[[[a,".repeat(150_000)).is_empty());
        assert_eq!(wikilinks(&format!("[[a]] {open}")).len(), 1);
        assert_eq!(wikilinks(&format!("[[a]] [[b {open}")).len(), 1);
    }

    #[test]
    fn a_text_is_a_link_or_has_one() {
        assert_eq!(sole_link(" [[a b|c]]\n").unwrap().target, "a b");
        for text in ["", "a", "see [[a]]", "[[a]] and [[b]]", "[[a]]."] {
            assert_eq!(sole_link(text), None, "{text}");
        }
    }

    #[test]
    fn any_text_is_searched_without_a_panic() {
        for text in ["[[", "]]", "[[a]", "[[é|ü]]", "``[[a]]", "`", "[[[[a]]]]", "[[\u{1f980}]]"] {
            let _ = wikilinks(text);
        }
    }
}
