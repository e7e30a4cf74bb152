//! The links of a note, as its front matter has them: `related`, each with a reason and a date, and `links`, which repeats
//! their targets as Obsidian reads them.

use jiff::Timestamp;
use knowledge::wikilink::wikilinks;
use knowledge::{Document, UnitId, text};
use serde_yaml::{Mapping, Value};

use crate::error::Error;
use crate::new_note::stamp;

/// The most links of one note: what is related to everything says little about each.
const LINKS_MAX: usize = 64;
const REASON_CHARS_MAX: usize = 300;

/// A link as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The other unit.
    pub to: UnitId,
    /// Why, in a few words; empty for no reason.
    pub reason: String,
}

impl Link {
    /// A link with its reason in one line.
    pub fn new(to: UnitId, reason: &str) -> Self {
        Self { to, reason: text::one_line(&text::strip_hidden(reason), REASON_CHARS_MAX) }
    }

    fn is(&self, item: &Value) -> bool {
        target(item) == Some(self.to.as_str()) && reason(item).to_lowercase() == self.reason.to_lowercase()
    }
}

/// Adds a link; `false` if the note has it.
pub(crate) fn add(document: &mut Document, link: &Link, now: Timestamp) -> Result<bool, Error> {
    let mut items = items(document);
    if items.iter().any(|item| link.is(item)) {
        return Ok(false);
    }
    if items.len() >= LINKS_MAX {
        return Err(Error::TooMuch { what: "number of links", limit: LINKS_MAX.to_string() });
    }
    let mut item = Mapping::new();
    item.insert("id".into(), link.to.as_str().into());
    if !link.reason.is_empty() {
        item.insert("reason".into(), link.reason.as_str().into());
    }
    item.insert("created".into(), stamp(now));
    items.push(Value::Mapping(item));
    document.set("related", &Value::Sequence(items));
    Ok(true)
}

/// Removes the links to a unit, or only the one with this reason; returns how many.
pub(crate) fn remove(document: &mut Document, to: &UnitId, only: Option<&str>) -> usize {
    let before = items(document);
    let is_meant = |item: &Value| match only {
        Some(reason) => Link::new(to.clone(), reason).is(item),
        None => target(item) == Some(to.as_str()),
    };
    let kept: Vec<Value> = before.iter().filter(|item| !is_meant(item)).cloned().collect();
    let removed = before.len() - kept.len();
    if removed > 0 {
        document.set("related", &Value::Sequence(kept));
    }
    removed
}

/// Replaces `links`: what the note is related to, as Obsidian's properties have it. `title` gives the title of a unit.
pub(crate) fn repeat_as_wikilinks<'t>(document: &mut Document, title: impl Fn(&str) -> Option<&'t str>) {
    let mut links: Vec<Value> = Vec::new();
    for item in items(document) {
        let Some(id) = target(&item) else { continue };
        let shown = title(id).filter(|title| *title != id && !title.contains(['[', ']', '|']));
        let link =
            Value::from(shown.map_or_else(|| format!("[[{id}]]"), |title| format!("[[{id}|{title}]]")));
        if !links.contains(&link) {
            links.push(link);
        }
    }
    let before = document.get("links");
    let links = Value::Sequence(links);
    if before.as_ref() != Some(&links) && (before.is_some() || links != Value::Sequence(Vec::new())) {
        document.set("links", &links);
    }
}

/// A text with the wikilinks to these targets replaced, each from its target and the text that it shows.
pub(crate) fn rewritten(
    text: &str,
    is_meant: impl Fn(&str) -> bool,
    link: impl Fn(&str, &str) -> String,
) -> String {
    let mut rewritten = String::new();
    let mut from = 0;
    for found in wikilinks(text).into_iter().filter(|link| is_meant(link.target)) {
        rewritten.push_str(&text[from..found.span.start]);
        rewritten.push_str(&link(found.target, found.shown.unwrap_or(found.target)));
        from = found.span.end;
    }
    rewritten + &text[from..]
}

/// The content with each wikilink to a title written as one to the unit's file, which is what Obsidian follows.
pub(crate) fn resolved(content: &str, find: impl Fn(&str) -> Option<UnitId>) -> String {
    let other = |target: &str| find(target).filter(|id| id.as_str() != target);
    let link = |target: &str, shown: &str| {
        find(target).map_or_else(|| format!("[[{target}]]"), |id| format!("[[{id}|{shown}]]"))
    };
    rewritten(content, |target| other(target).is_some(), link)
}

fn items(document: &Document) -> Vec<Value> {
    match document.get("related") {
        Some(Value::Sequence(items)) => items,
        _ => Vec::new(),
    }
}

fn target(item: &Value) -> Option<&str> {
    item.get("id").unwrap_or(item).as_str()
}

fn reason(item: &Value) -> String {
    text::one_line(item.get("reason").and_then(Value::as_str).unwrap_or_default(), REASON_CHARS_MAX)
}
