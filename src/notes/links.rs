//! The links of a note: in its front matter `related`, each with a reason and a date, and wikilinks in its text.

use jiff::Timestamp;
use knowledge::name::nfc;
use knowledge::related::{REASON_CHARS_MAX, entries, reason, target};
use knowledge::wikilink::rewritten;
use knowledge::{Document, UnitId, text};
use serde_yaml::{Mapping, Value};

use crate::error::Error;
use crate::new_note::stamp;

/// The most links of one note: what is related to everything says little about each.
const LINKS_MAX: usize = 64;

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
    let mut items = entries(document);
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
    let before = entries(document);
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

/// The content with each wikilink to a title, an alias or an id written as one to the unit's file, which is what Obsidian
/// follows. `find` gives the name of the file.
pub(crate) fn resolved<'f>(content: &str, find: impl Fn(&str) -> Option<&'f str>) -> String {
    rewritten(content, |link| {
        let target = link.target;
        // A path is a file's name already.
        let file = find(target).filter(|file| nfc(file) != nfc(target) && !target.contains('/'))?;
        Some(link.to_file(file, link.shown.or(Some(target))))
    })
}
