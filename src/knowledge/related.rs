//! What a unit's file says that it is related to: the entries of `related`, and `links`, which repeats their targets as
//! Obsidian reads them.

use serde_yaml::Value;

use crate::document::Document;
use crate::name::file_stem;
use crate::text;
use crate::wikilink::{sole_link, target_id};

/// A longer reason is cut.
pub const REASON_CHARS_MAX: usize = 300;

/// The entries of `related`. An id of digits that YAML takes for a number is text.
pub fn entries(document: &Document) -> Vec<Value> {
    let Some(Value::Sequence(mut entries)) = document.get("related") else { return Vec::new() };
    for entry in &mut entries {
        let id = match entry {
            Value::Mapping(keys) => keys.get_mut("id"),
            plain => Some(plain),
        };
        if let Some(id) = id
            && let Value::Number(number) = id
        {
            *id = number.to_string().into();
        }
    }
    entries
}

/// The id that an entry names.
pub fn target(entry: &Value) -> Option<&str> {
    entry.get("id").unwrap_or(entry).as_str().map(target_id)
}

/// Why it is related, in one line; empty for no reason.
pub fn reason(entry: &Value) -> String {
    text::one_line(entry.get("reason").and_then(Value::as_str).unwrap_or_default(), REASON_CHARS_MAX)
}

/// Brings `links` up to date after `related` has changed from `before`: what is related is linked, what no longer is, is
/// not. Entries that name neither are a person's, and stay as they are. `file` gives the name of a unit's file and its
/// title; what was related before and has no file that is known, is left as it is.
pub fn repeat_in_links<'f>(
    document: &mut Document,
    before: &[Value],
    file: impl Fn(&str) -> Option<(&'f str, &'f str)>,
) {
    let written = match document.get("links") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Sequence(links)) => links,
        Some(_) => return,
    };
    let now = entries(document);
    let now: Vec<&str> = now.iter().filter_map(target).collect();
    let stem = |id: &str| file(id).map_or_else(|| id.to_owned(), |(stem, _)| stem.to_owned());
    let link_to = |id: &str| {
        let stem = stem(id);
        let shown = file(id).map(|(_, title)| title);
        let shown = shown.filter(|title| *title != stem && !title.contains(['[', ']', '|']));
        Value::from(shown.map_or_else(|| format!("[[{stem}]]"), |title| format!("[[{stem}|{title}]]")))
    };
    let mut missing: Vec<&str> = Vec::new();
    for id in &now {
        let is_known = file(id).is_some() || !before.iter().any(|entry| target(entry) == Some(*id));
        if is_known && !missing.contains(id) {
            missing.push(id);
        }
    }
    let mut links = Vec::new();
    for link in &written {
        let named = link.as_str().and_then(sole_link).filter(|link| link.heading.is_empty());
        let named = named.map(|link| file_stem(link.target));
        let is_it = |id: &str| named.is_some_and(|named| named == id || named == stem(id));
        match missing.iter().position(|id| is_it(id)) {
            Some(at) => {
                let id = missing.remove(at);
                links.push(if named == Some(stem(id).as_str()) { link.clone() } else { link_to(id) });
            }
            None if before.iter().filter_map(target).any(|id| is_it(id) && !now.contains(&id)) => {}
            None => links.push(link.clone()),
        }
    }
    links.extend(missing.into_iter().map(link_to));
    if links != written {
        document.set("links", &Value::Sequence(links));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(front: &str, before: &str) -> String {
        let mut document = Document::parse(format!("---\ntype: note\n{front}---\n")).unwrap();
        let before: Vec<Value> = serde_yaml::from_str(before).unwrap();
        repeat_in_links(&mut document, &before, |id| (id == "beta").then_some(("Beta file", "Beta")));
        document.as_str().trim_start_matches("---\ntype: note\n").trim_end_matches("---\n").to_owned()
    }

    #[test]
    fn links_of_a_person_stay() {
        let own = "links:\n- '[[Meeting notes]]'\n- https://example.com/spec\n- '[[beta#Costs]]'\n";
        assert_eq!(links(own, "[]"), own);
        let related = format!("related: [beta]\n{own}");
        let linked = format!("{related}- '[[Beta file|Beta]]'\n");
        assert_eq!(links(&related, "[]"), linked);
        assert_eq!(links(&linked, "[beta]"), linked, "a repetition changes nothing");
        assert_eq!(links(&linked.replace("[beta]", "[]"), "[beta]"), format!("related: []\n{own}"));
        let scalar = "related: [beta]\nlinks: https://example.com\n";
        assert_eq!(links(scalar, "[]"), scalar);
    }

    #[test]
    fn what_is_related_is_linked_by_its_file() {
        let expected = "related: [beta]\nlinks:\n- '[[Beta file|Beta]]'\n";
        assert_eq!(links("related: [beta]\nlinks: ['[[beta|Beta]]']\n", "[beta]"), expected);
        let shown = "related: ['[[beta]]']\nlinks: ['[[Beta file|mine]]']\n";
        assert_eq!(links(shown, "[]"), shown);
    }

    #[test]
    fn an_id_of_digits_is_text() {
        let document = Document::parse("---\ntype: note\nrelated: [2024, {id: 7}, a]\n---\n").unwrap();
        let entries = entries(&document);
        let targets: Vec<&str> = entries.iter().filter_map(target).collect();
        assert_eq!(targets, ["2024", "7", "a"]);
    }
}
