//! Carries findings out on the texts of the files.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use knowledge::value::Values;
use knowledge::words::{share_of, words};
use knowledge::{Document, Domain, Unit, UnitId, UnitType, markdown, name};
use serde_yaml::Value;

use crate::finding::{Change, Finding};
use crate::links::{self, FileNames, NewLink, stamp};
use crate::observed::{MERGED_HEADING, Observed, Settings, own_text};

/// The relation of two units that cannot both hold.
pub(crate) const CONTRADICTS: &str = "contradicts";
const SUPERSEDES: &str = "supersedes";
const SUPERSEDED_BY: &str = "superseded_by";

/// The share of a paragraph's words that a text must contain to say the same. What is not carried over is lost with its
/// file, so it is more than what finds two units alike.
const REPEATED_SHARE: f64 = 0.9;

/// A file that findings change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// Relative to the brain.
    pub path: String,
    /// Its new text; `None` if it is removed.
    pub text: Option<String>,
    /// The reasons of all findings that touch it, in their order.
    pub reasons: Vec<String>,
    /// The path of the change without which this one would lose text or leave a relation to nothing: of the file that
    /// takes over what a removed one says.
    pub part_of: Option<String>,
}

/// What the files are after all findings are carried out, by path. A file that stays as it is, is left out.
///
/// Findings may touch the same file. Every byte that none of them is about stays. A finding whose unit is missing, or
/// was merged away by another one, changes nothing. No unit moves to one of the
/// [`other_paths`](Settings::other_paths).
pub fn apply(
    findings: &[Finding],
    units: &[Observed<'_>],
    settings: &Settings,
    now: Timestamp,
) -> Vec<FileChange> {
    let mut files = Files::new(units, &settings.other_paths, now);
    // What is removed from a unit must be gone before it is merged, and a file moves last.
    let mut ordered: Vec<&Finding> = findings.iter().collect();
    ordered.sort_by_key(|finding| order(&finding.change));
    for finding in ordered {
        files.carry_out(finding);
    }
    files.into_changes()
}

fn order(change: &Change) -> u8 {
    match change {
        Change::Unlink { .. } => 0,
        Change::Merge { .. } => 1,
        Change::Promote { .. } => 3,
        _ => 2,
    }
}

struct Files<'a> {
    files: Vec<File<'a>>,
    by_id: BTreeMap<&'a UnitId, usize>,
    other_paths: &'a BTreeSet<String>,
    names: FileNames<'a>,
    now: Timestamp,
}

struct File<'a> {
    observed: &'a Observed<'a>,
    document: Document,
    /// Where it is afterwards; `None` if it is removed.
    path: Option<String>,
    reasons: Vec<String>,
    /// The file of which the change is a part.
    part_of: Option<usize>,
}

impl<'a> Files<'a> {
    fn new(units: &'a [Observed<'a>], other_paths: &'a BTreeSet<String>, now: Timestamp) -> Self {
        let mut files = Vec::new();
        let mut by_id = BTreeMap::new();
        for observed in units {
            let Ok(document) = Document::parse(observed.text) else { continue };
            by_id.insert(&observed.unit.id, files.len());
            files.push(File {
                observed,
                document,
                path: Some(observed.path.to_owned()),
                reasons: Vec::new(),
                part_of: None,
            });
        }
        let name = |observed: &'a Observed<'a>| {
            (observed.unit.id.as_str(), (observed.path, observed.unit.title.as_str()))
        };
        Self { files, by_id, other_paths, names: units.iter().map(name).collect(), now }
    }

    fn get(&mut self, id: &UnitId) -> Option<&mut File<'a>> {
        let at = *self.by_id.get(id)?;
        self.files.get_mut(at).filter(|file| file.path.is_some())
    }

    fn carry_out(&mut self, finding: &Finding) {
        let units = finding.change.units();
        if units.iter().any(|id| self.get(id).is_none()) {
            return;
        }
        match &finding.change {
            Change::Merge { from, into } => self.merge(from, into, &finding.reason),
            Change::Supersede { old, new } => self.supersede(old, new),
            Change::Contradict { one, other } => self.link(one, other, Some(CONTRADICTS), &finding.reason),
            Change::Link { one, other } => {
                let reason = shared_tags(self, one, other);
                self.link(one, other, None, &reason);
            }
            Change::Unlink { from, to } => {
                self.edit(from, |document, names, _| links::remove(document, to, names))
            }
            Change::Archive { unit } => self.edit(unit, |document, _, now| {
                document.set("status", &"archived".into());
                document.set("archived", &stamp(now));
            }),
            Change::Expire { unit } => {
                self.edit(unit, |document, _, now| document.set("stale_after", &stamp(now)))
            }
            Change::Promote { unit, to } => self.promote(unit, to),
            Change::Rewrite { .. } => return,
        }
        for id in units {
            if let Some(file) = self.by_id.get(id).and_then(|&at| self.files.get_mut(at)) {
                file.reasons.push(finding.reason.clone());
            }
        }
    }

    fn edit(&mut self, id: &UnitId, change: impl FnOnce(&mut Document, &FileNames<'_>, Timestamp)) {
        let file = self.by_id.get(id).and_then(|&at| self.files.get_mut(at));
        if let Some(file) = file.filter(|file| file.path.is_some()) {
            change(&mut file.document, &self.names, self.now);
        }
    }

    fn link(&mut self, one: &UnitId, other: &UnitId, relation: Option<&str>, reason: &str) {
        for (from, to) in [(one, other), (other, one)] {
            let link = NewLink { to, relation, reason };
            self.edit(from, |document, names, now| links::add(document, &link, names, now));
        }
    }

    fn supersede(&mut self, old: &UnitId, new: &UnitId) {
        self.edit(old, |document, names, now| {
            document.set("status", &"superseded".into());
            set_last_modified(document, now);
            let link = NewLink { to: new, relation: Some(SUPERSEDED_BY), reason: "" };
            links::add(document, &link, names, now);
        });
        self.edit(new, |document, names, now| {
            let link = NewLink { to: old, relation: Some(SUPERSEDES), reason: "" };
            links::add(document, &link, names, now);
        });
    }

    fn merge(&mut self, from: &UnitId, into: &UnitId, reason: &str) {
        let kept = self.by_id.get(into).copied();
        let Some(removed) = self.get(from) else { return };
        removed.path = None;
        removed.part_of = kept;
        let (observed, document) = (removed.observed, removed.document.clone());
        self.edit(into, |kept, names, now| {
            add_text(kept, observed, from);
            for key in ["tags", "aliases", "sources", "scope", "alternatives"] {
                add_items(kept, key, &document);
            }
            // Links by the title of what is removed find it so.
            let is_other = |unit: Unit| unit.title.to_lowercase() != observed.unit.title.to_lowercase();
            if kept.unit("").is_ok_and(is_other) {
                let title = vec![Value::from(observed.unit.title.as_str())];
                add_items(kept, "aliases", &Document::compose(&[("aliases", title.into())], ""));
            }
            if kept.get("enforce").is_none()
                && let Some(enforce) = document.get("enforce")
            {
                kept.set("enforce", &enforce);
            }
            links::add_all(kept, into, &document, names);
            set_last_modified(kept, now);
        });
        // To parse a file is dear: most do not mention the unit.
        let mentions = |file: &File<'_>| {
            let text = file.document.as_str();
            text.contains(from.as_str())
                || text.contains(name::file_stem(observed.path))
                || file.observed.unit.related.iter().any(|related| related.id == *from)
        };
        for file in self.files.iter_mut().filter(|file| file.path.is_some() && mentions(file)) {
            let before = file.document.clone();
            links::point_to(&mut file.document, &file.observed.unit.id, from, into, &self.names);
            if file.document != before && file.observed.unit.id != *into {
                file.reasons.push(reason.to_owned());
                file.part_of = kept;
            }
        }
    }

    fn promote(&mut self, id: &UnitId, to: &UnitType) {
        let Some(file) = self.get(id) else { return };
        let unit = file.observed.unit;
        let domain = Domain::sanitized(unit.domain.as_str());
        // Notes link it by this name.
        let stem = name::file_stem(file.observed.path);
        let target = format!("domains/{domain}/{}/{stem}.md", to.folder());
        let is_taken = self.other_paths.contains(&target)
            || self
                .files
                .iter()
                .any(|file| file.observed.path == target || file.path.as_ref() == Some(&target));
        let Some(file) = self.get(id) else { return };
        file.document.set("type", &to.as_str().into());
        if is_taken {
            return;
        }
        // What the old path implied is written down before the file leaves it.
        for (key, value) in
            [("id", unit.id.as_str()), ("domain", unit.domain.as_str()), ("title", &unit.title)]
        {
            let moved = file.document.unit(&target).ok();
            let implied = moved.map(|unit| match key {
                "id" => unit.id.as_str().to_owned(),
                "domain" => unit.domain.as_str().to_owned(),
                _ => unit.title,
            });
            if implied.as_deref() != Some(value) {
                file.document.set(key, &value.into());
            }
        }
        file.path = Some(target);
    }

    fn into_changes(self) -> Vec<FileChange> {
        let paths: Vec<Option<String>> = self.files.iter().map(|file| file.path.clone()).collect();
        let mut changes = BTreeMap::new();
        for file in self.files {
            let old = file.observed.path;
            let is_moved = file.path.as_deref() != Some(old);
            let part_of = file.part_of.and_then(|main| paths[main].clone());
            if is_moved {
                let removed = FileChange {
                    path: old.to_owned(),
                    text: None,
                    reasons: file.reasons.clone(),
                    part_of: file.path.clone().or_else(|| part_of.clone()),
                };
                changes.insert(old.to_owned(), removed);
            }
            let Some(path) = file.path else { continue };
            if is_moved || file.document.as_str() != file.observed.text {
                let text = Some(file.document.as_str().to_owned());
                changes.insert(path.clone(), FileChange { path, text, reasons: file.reasons, part_of });
            }
        }
        changes.into_values().collect()
    }
}

/// Adds the paragraphs that a unit does not have yet, below a heading that names where they come from.
fn add_text(kept: &mut Document, removed: &Observed<'_>, id: &UnitId) {
    let Ok(unit) = kept.unit("") else { return };
    let with_lf = |text: &str| text.replace("\r\n", "\n");
    let known = format!("{}\n{}\n{}", unit.title, unit.description.unwrap_or_default(), with_lf(&unit.body));
    let (known_words, known_values) = (words(&known), Values::new(&known));
    let says_more = |text: &str| {
        let (code, prose): (Vec<_>, Vec<_>) = markdown::lines(text).partition(|line| line.is_code);
        let [code, prose] = [code, prose].map(|lines| lines.iter().map(|line| line.text).collect::<String>());
        !known.contains(code.trim())
            || !prose.is_empty()
                && (Values::new(&prose).missing_in(&known_values).is_some()
                    || share_of(&words(&prose), &known_words) < REPEATED_SHARE)
    };
    let body = removed.unit.body.trim();
    let text = with_lf(own_text(removed.unit));
    // What it got from earlier merges goes along as it is.
    let earlier = body.find(MERGED_HEADING).map_or("", |at| &body[at..]);
    let mut parts = vec![removed.unit.title.trim()];
    parts.extend(removed.unit.description.as_deref().map(str::trim));
    parts.extend(paragraphs(&text));
    parts.retain(|part| !part.is_empty() && says_more(part));
    let mut body = kept.body().trim_end().to_owned();
    if !parts.is_empty() {
        body.push_str(&format!("\n\n{MERGED_HEADING}{id}\n\n{}", parts.join("\n\n")));
    }
    if !earlier.is_empty() {
        body.push_str(&format!("\n\n{}", earlier.trim()));
    }
    if body != kept.body().trim_end() {
        kept.set_body(&format!("{body}\n"));
    }
}

/// The paragraphs of a markdown text. Code is not taken apart.
fn paragraphs(text: &str) -> Vec<&str> {
    let (mut paragraphs, mut start) = (Vec::new(), 0);
    for line in markdown::lines(text).filter(|line| !line.is_code && line.text.trim().is_empty()) {
        paragraphs.push(text[start..line.start].trim_end());
        start = line.start + line.text.len();
    }
    paragraphs.push(text[start..].trim_end());
    paragraphs
}

/// Adds the items of a list that another file has.
fn add_items(document: &mut Document, key: &str, other: &Document) {
    let items = |document: &Document| match document.get(key) {
        Some(Value::Sequence(items)) => Some(items),
        Some(Value::String(text)) => Some(text.split(',').map(|item| item.trim().into()).collect()),
        _ => None,
    };
    let Some(more) = items(other) else { return };
    let before = items(document).unwrap_or_default();
    let mut all = before.clone();
    let mut seen: BTreeSet<String> = all.iter().map(|item| format!("{item:?}")).collect();
    all.extend(more.into_iter().filter(|item| seen.insert(format!("{item:?}"))));
    if all != before {
        document.set(key, &Value::Sequence(all));
    }
}

/// Sets the time of the last change, unless the unit was changed later.
fn set_last_modified(document: &mut Document, now: Timestamp) {
    let changed = document.unit("").ok().and_then(|unit| unit.last_modified);
    if changed.is_none_or(|changed| changed < now) {
        document.set("last_modified", &stamp(now));
    }
}

/// The reason of a link between two units.
fn shared_tags(files: &mut Files<'_>, one: &UnitId, other: &UnitId) -> String {
    let mut tags = |id: &UnitId| -> Vec<String> {
        files.get(id).and_then(|file| file.document.unit("").ok()).map(|unit| unit.tags).unwrap_or_default()
    };
    let (one, other) = (tags(one), tags(other));
    let shared: Vec<&str> =
        one.iter().filter(|tag| other.contains(tag)).map(String::as_str).take(3).collect();
    format!("both about {}", shared.join(", "))
}
