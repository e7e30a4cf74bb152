//! The entries of `related` in a unit's file. Keys that are unknown here stay.

use std::collections::BTreeMap;

use jiff::Timestamp;
use knowledge::name::file_stem;
use knowledge::related::{entries, reason, repeat_in_links, target};
use knowledge::wikilink::rewritten;
use knowledge::{Document, UnitId};
use serde_yaml::{Mapping, Value};

/// The paths of the units' files and their titles, by id: a file that a person has renamed keeps its id.
pub type FileNames<'a> = BTreeMap<&'a str, (&'a str, &'a str)>;

/// A link that is added to a file.
pub(crate) struct NewLink<'a> {
    pub(crate) to: &'a UnitId,
    /// `None` for the general relation, which is not written.
    pub(crate) relation: Option<&'a str>,
    pub(crate) reason: &'a str,
}

/// Adds a link, unless the file has one to this unit with this relation and reason.
pub(crate) fn add(document: &mut Document, link: &NewLink<'_>, names: &FileNames<'_>, now: Timestamp) {
    let mut entry = Mapping::new();
    entry.insert("id".into(), link.to.as_str().into());
    if let Some(relation) = link.relation {
        entry.insert("relation".into(), relation.into());
    }
    if !link.reason.is_empty() {
        entry.insert("reason".into(), link.reason.into());
    }
    entry.insert("created".into(), stamp(now));
    let mut entries = entries(document);
    entries.push(Value::Mapping(entry));
    replace(document, entries, names);
}

/// Removes a unit file's relations to another unit, whose file `names` has, if there is one.
pub fn remove(document: &mut Document, to: &UnitId, names: &FileNames<'_>) {
    let kept = entries(document).into_iter().filter(|entry| target(entry) != Some(to.as_str())).collect();
    replace(document, kept, names);
}

/// Adds the links of another file, without those to the file's own unit.
pub(crate) fn add_all(document: &mut Document, own: &UnitId, other: &Document, names: &FileNames<'_>) {
    let mut all = entries(document);
    all.extend(entries(other).into_iter().filter(|entry| target(entry) != Some(own.as_str())));
    replace(document, all, names);
}

/// Makes the links to one unit links to another, in the front matter and in the text.
pub(crate) fn point_to(
    document: &mut Document,
    own: &UnitId,
    from: &UnitId,
    to: &UnitId,
    names: &FileNames<'_>,
) {
    let moved = entries(document).into_iter().filter_map(|mut entry| {
        if target(&entry) != Some(from.as_str()) {
            return Some(entry);
        }
        match &mut entry {
            Value::Mapping(keys) => drop(keys.insert("id".into(), to.as_str().into())),
            plain => *plain = to.as_str().into(),
        }
        Some(entry).filter(|_| to != own)
    });
    replace(document, moved.collect(), names);
    let body = document.body().to_owned();
    let file = |id: &UnitId| names.get(id.as_str()).map(|(file, _)| *file);
    let moved = rewritten(&body, |link| {
        let leads_there =
            link.target == from.as_str() || file(from).is_some_and(|file| link.names_file(file));
        leads_there.then(|| link.to_file(file(to).map_or(to.as_str(), file_stem), link.shown))
    });
    if moved != body {
        document.set_body(&moved);
    }
}

/// Writes the entries, each target, relation and reason once, the one with most keys, and repeats their targets in `links` for Obsidian if the file has
/// that key.
fn replace(document: &mut Document, all: Vec<Value>, names: &FileNames<'_>) {
    let size = |entry: &Value| entry.as_mapping().map_or(0, Mapping::len);
    let (mut places, mut entries) = (BTreeMap::new(), Vec::<Value>::new());
    for entry in all {
        let says = (target(&entry).map(str::to_owned), relation(&entry), reason(&entry).to_lowercase());
        let at = *places.entry(says).or_insert(entries.len());
        match entries.get_mut(at) {
            None => entries.push(entry),
            Some(same) if size(same) < size(&entry) => *same = entry,
            Some(_) => {}
        }
    }
    let before = document.get("related");
    if entries.is_empty() && before.is_none() || before.as_ref() == Some(&Value::Sequence(entries.clone())) {
        return;
    }
    let shown = self::entries(document);
    document.set("related", &Value::Sequence(entries));
    if document.get("links").is_some() {
        repeat_in_links(document, &shown, |id| names.get(id).map(|(path, title)| (file_stem(path), *title)));
    }
}

fn relation(entry: &Value) -> Option<String> {
    entry.get("relation").and_then(Value::as_str).map(str::to_owned)
}

/// A time as front matter has it.
pub(crate) fn stamp(time: Timestamp) -> Value {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into()
}
