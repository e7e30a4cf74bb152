//! Makes units of sections, and the commit that proposes them.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::Path;

use actors::review::IMPORT_BRANCH_PREFIX;
use extract::notes::{NoteKind, NoteSection};
use git::{CommitId, NewFile, Repository};
use jiff::Timestamp;
use knowledge::{Document, Domain, Unit, UnitId, text};
use serde::Serialize;
use serde_yaml::{Mapping, Value};

use super::comparison::{self, KnownTexts, section_digest};
use super::sources::{self, SourceFile};
use crate::error::CliError;

/// The confidence in what a person wrote.
const CONFIDENCE_PERSON: f64 = 0.8;
/// The confidence in what a model wrote and nobody reviewed.
const CONFIDENCE_MEMORY: f64 = 0.6;

/// Why no unit enforces what its note does.
pub(super) const ENFORCE_LEFT_OUT: &str = "only a person sets it, in review or with `nugget edit`";

/// How many words in braces at the beginning of a rule's pattern are told apart.
const ALTERNATIVES_MAX: usize = 64;

/// A unit that the import proposes. The serialised fields are the JSON output.
#[derive(Serialize)]
pub(super) struct ProposedUnit {
    id: String,
    path: String,
    pub title: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub domain: String,
    /// The file that it comes from.
    file: String,
    section: Option<String>,
    /// Whether it replaces the content of a unit that an earlier import made.
    pub updates: bool,
    #[serde(skip)]
    content: String,
    #[serde(skip)]
    pub digest: String,
    /// What an update says beside the text: the text alone may be one that was proposed before.
    #[serde(skip)]
    change: String,
}

impl ProposedUnit {
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The file and section that it comes from.
    pub(super) fn source(&self) -> String {
        let section = self.section.as_ref().map(|section| format!(": {section}")).unwrap_or_default();
        format!("{}{section}", self.file)
    }

    /// A unit whose file is taken as it is.
    pub(super) fn verbatim(
        path: String,
        unit: &Unit,
        source: &SourceFile,
        content: &str,
        updates: bool,
        digest: String,
    ) -> Self {
        Self {
            id: unit.id.to_string(),
            path,
            title: unit.title.clone(),
            kind: unit.kind.to_string(),
            domain: unit.domain.to_string(),
            file: source.shown.clone(),
            section: None,
            updates,
            content: content.to_owned(),
            digest,
            change: String::new(),
        }
    }

    pub(super) fn to_file(&self) -> NewFile {
        NewFile { path: self.path.clone(), content: self.content.clone().into_bytes(), edits: self.updates }
    }
}

/// The keys of a note's front matter that its units have too, as they are.
const KEPT_KEYS: [&str; 4] = ["scope", "alternatives", "stale_after", "status"];
/// The keys that units have also of a note that has not.
const OWN_KEYS: [&str; 3] = ["type", "tags", "confidence"];

/// What a note's front matter says beside its subject, and whether it is enforced.
#[derive(Clone, Default)]
pub(super) struct NoteKeys {
    kept: Vec<(&'static str, Value)>,
    /// What a unit has of the [`OWN_KEYS`] of which the note says nothing.
    own: Vec<(&'static str, Value)>,
    /// Only a person makes a unit refuse actions, in review or with `nugget edit`: it is not imported.
    pub is_enforced: bool,
}

impl NoteKeys {
    /// Reads the front matter, and returns what of it says nothing to a brain. A key that no unit could have so is left
    /// out; [`split_note`](extract::notes::split_note) says so.
    pub(super) fn read(raw: &str, source: &SourceFile) -> (Self, Vec<String>) {
        let Ok(document) = Document::parse(raw) else { return Default::default() };
        let is_possible = |key: &str, value: &Value| {
            Document::compose(&[("type", "note".into()), (key, value.clone())], "").unit("note.md").is_ok()
        };
        let is_kept = |key: &str, value: &Value| {
            // A word such as `draft` is the site's, but what no longer holds must not come back as current.
            key != "status" || value.as_str().is_some_and(knowledge::unit::is_retired)
        };
        let kept = KEPT_KEYS.into_iter().filter_map(|key| {
            let mut value = document.get(key).filter(|value| !value.is_null() && is_possible(key, value))?;
            if !is_kept(key, &value) {
                return None;
            }
            clean_strings(&mut value);
            Some((key, value))
        });
        let enforce = document.get("enforce").filter(|value| !value.is_null());
        let is_enforced = enforce.is_some_and(|value| is_possible("enforce", &value));
        let mut kept: Vec<_> = kept.collect();
        let mut problems = Vec::new();
        // The rules of Claude Code name files by patterns; a unit has the folders that these are in.
        if source.kind == NoteKind::Instructions
            && kept.iter().all(|(key, _)| *key != "scope")
            && let Some(paths) = document.get("paths")
        {
            let mut scopes = Vec::new();
            for pattern in patterns(&paths) {
                let pattern = text::strip_hidden(&transcript::clean(&pattern));
                match folder_of(&pattern) {
                    Some(path) if scopes.contains(&path) => {}
                    Some(path) => scopes.push(path),
                    None => problems.push(format!(
                        "`paths` has {pattern}, which is in no folder: a scope has no patterns"
                    )),
                }
            }
            if !scopes.is_empty() {
                let folder = source.path.parent().filter(|folder| !is_of_client(folder));
                let project = folder.map(|folder| ::archive::Project::from_folder(folder).key);
                // Without a remote it is a path of this machine, which says nothing on another one.
                let repository = project.filter(|key| !key.starts_with('/'));
                let scope = |path: String| match &repository {
                    Some(repository) => Value::Mapping(Mapping::from_iter([
                        ("repository".into(), repository.as_str().into()),
                        ("path".into(), path.into()),
                    ])),
                    None => path.into(),
                };
                kept.push(("scope", Value::Sequence(scopes.into_iter().map(scope).collect())));
            }
        }
        (Self { kept, own: Vec::new(), is_enforced }, problems)
    }

    /// With the type, the tags and the confidence of a section.
    pub(super) fn with_section(&self, section: &NoteSection, source: &SourceFile) -> Self {
        let mut keys = self.clone();
        let tags = section.tags.iter().map(|tag| knowledge::name::written_tag(tag));
        let tags: Vec<Value> = tags.filter(|tag| !tag.is_empty()).map(Value::from).collect();
        let confidence = match source.kind {
            NoteKind::Memory => CONFIDENCE_MEMORY,
            _ => CONFIDENCE_PERSON,
        };
        let is_said = [section.is_typed, !tags.is_empty(), section.confidence.is_some()];
        let values = [
            section.kind.as_str().into(),
            Value::Sequence(tags),
            section.confidence.unwrap_or(confidence).into(),
        ];
        for ((key, value), is_said) in OWN_KEYS.into_iter().zip(values).zip(is_said) {
            if is_said { &mut keys.kept } else { &mut keys.own }.push((key, value));
        }
        keys
    }

    /// All keys of units that are compared with those of the note.
    fn names() -> impl Iterator<Item = &'static str> {
        OWN_KEYS.into_iter().chain(KEPT_KEYS)
    }

    /// What a unit that has nothing to say has for a key.
    fn unset(&self, key: &str) -> Value {
        match (self.own.iter().find(|(name, _)| *name == key), key) {
            (Some((_, value)), _) => value.clone(),
            (None, "status") => "active".into(),
            (None, "stale_after") => Value::Null,
            _ => Value::Sequence(Vec::new()),
        }
    }

    /// Whether an update would change a unit.
    pub(super) fn is_changed(&self, document: &Document) -> bool {
        let mut updated = document.clone();
        self.update(&mut updated);
        Self::names().any(|key| updated.get(key) != document.get(key))
    }

    /// Puts into a unit what the note says otherwise than at the last import. Returns the keys of which the note says
    /// nothing, and the unit something that the import did not write.
    fn update(&self, document: &mut Document) -> Vec<&'static str> {
        let imported = comparison::imported_keys(document);
        let mut left = Vec::new();
        for key in Self::names() {
            let said = self.kept.iter().find(|(name, _)| *name == key).map(|(_, value)| value);
            let imported = imported.get(key);
            let unset = self.unset(key);
            let has = document.get(key).filter(|value| !value.is_null() && *value != unset);
            match said {
                Some(value) if imported != Some(value) => document.set(key, value),
                // What a person has made of it since stays.
                Some(_) => {}
                // The type that was guessed of an earlier text is as good.
                None if has.is_none() || key == "type" && imported.is_none() => {}
                None if has.as_ref() == imported => document.set(key, &unset),
                None => left.push(key),
            }
        }
        left
    }
}

/// Whether a folder is among the user's own of the client, which bear on every project, though they may be in a repository
/// of settings. Its path has no links.
fn is_of_client(folder: &Path) -> bool {
    let client = transcript::client_folder();
    let own = client.iter().flat_map(|client| [client.clone(), client.join("rules")]);
    own.filter_map(|own| std::fs::canonicalize(own).ok()).any(|own| folder.starts_with(own))
}

/// The patterns of a rule's `paths`: a list, or words between commas.
fn patterns(paths: &Value) -> Vec<String> {
    let words: Vec<&str> = match paths {
        Value::Sequence(items) => items.iter().filter_map(Value::as_str).collect(),
        Value::String(words) => split_outside_braces(words),
        _ => Vec::new(),
    };
    words.into_iter().flat_map(|word| alternatives(word.trim())).collect()
}

/// The parts between the commas that are in no braces.
fn split_outside_braces(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let is_end = |c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    text.split(is_end).collect()
}

/// One pattern for each of the words in the braces that a pattern begins with. Elsewhere braces are below a folder.
fn alternatives(pattern: &str) -> Vec<String> {
    let in_braces = pattern.strip_prefix('{').and_then(|inner| inner.split_once('}'));
    match in_braces.map(|(words, rest)| (words.split(','), rest)) {
        // Each gets the rest of the pattern, so many would make much of little.
        Some((words, rest)) if words.clone().count() <= ALTERNATIVES_MAX => {
            words.map(|word| format!("{}{rest}", word.trim())).collect()
        }
        _ => vec![pattern.to_owned()],
    }
}

/// The file that a pattern names, or the folder that all of its files are in; `None` for a pattern without one.
fn folder_of(pattern: &str) -> Option<String> {
    let parts = pattern.split('/').filter(|part| !part.is_empty() && *part != ".");
    let plain: Vec<&str> = parts.take_while(|part| !part.contains(['*', '?', '[', '{', '!'])).collect();
    (!plain.is_empty()).then(|| plain.join("/"))
}

/// Removes hidden text, secrets and private parts.
fn clean_strings(value: &mut Value) {
    match value {
        Value::String(found) => *found = text::strip_hidden(&transcript::clean(found)),
        Value::Sequence(items) => items.iter_mut().for_each(clean_strings),
        Value::Mapping(entries) => {
            let cleaned = std::mem::take(entries).into_iter().map(|(mut key, mut value)| {
                clean_strings(&mut key);
                clean_strings(&mut value);
                (key, value)
            });
            *entries = cleaned.collect();
        }
        _ => {}
    }
}

/// Makes a new unit of a section.
pub(super) fn new_unit(
    section: &NoteSection,
    keys: &NoteKeys,
    source: &SourceFile,
    known: &mut KnownTexts,
    now: Timestamp,
) -> ProposedUnit {
    let folder = source.domain.as_deref().filter(|folder| *transcript::redact::redact(folder) == **folder);
    let domain = section.domain.as_deref().or(folder).unwrap_or("general");
    let domain = Domain::sanitized(domain);
    let digest = section_digest(section);
    let id = known.unique_id(&UnitId::from_title(&section.title), &digest);
    let path = format!("domains/{domain}/{}/{id}.md", section.kind.folder());
    let extractor = match source.kind {
        NoteKind::Memory => "auto-memory",
        _ => "import",
    };
    let keyed = keys.own.iter().chain(&keys.kept);
    let value = |key: &str| {
        keyed.clone().find(|(name, _)| *name == key).map_or(Value::Null, |(_, value)| value.clone())
    };
    let mut front = vec![
        ("id", id.as_str().into()),
        ("type", value("type")),
        ("domain", domain.as_str().into()),
        ("title", section.title.as_str().into()),
        ("description", section.description.as_str().into()),
        ("tags", value("tags")),
        ("confidence", value("confidence")),
        ("source", extractor.into()),
    ];
    front.extend(keys.kept.iter().filter(|(key, _)| KEPT_KEYS.contains(key)).cloned());
    front.extend([
        ("created", timestamp(source.modified.unwrap_or(now))),
        ("last_modified", timestamp(now)),
        ("sources", provenance(section, keys, source, &digest, now)),
    ]);
    let document = Document::compose(&front, &unit_body(section));
    ProposedUnit {
        id: id.as_str().to_owned(),
        path,
        title: section.title.clone(),
        kind: section.kind.as_str().to_owned(),
        domain: domain.as_str().to_owned(),
        file: source.shown.clone(),
        section: section.section.clone(),
        updates: false,
        content: document.as_str().to_owned(),
        digest,
        change: String::new(),
    }
}

/// Puts the current text of a section into the unit that an earlier import made of it, and returns it with the keys that
/// only the unit has; or the reason why that would overwrite somebody's work.
pub(super) fn update_unit(
    section: &NoteSection,
    keys: &NoteKeys,
    source: &SourceFile,
    repository: &Repository,
    base: CommitId,
    path: &str,
    now: Timestamp,
) -> Result<Result<(ProposedUnit, Vec<&'static str>), String>, CliError> {
    let content = repository.read_at(base, path)?.and_then(|bytes| String::from_utf8(bytes).ok());
    let Some(mut document) = content.and_then(|text| Document::parse(text).ok()) else {
        return Ok(Err(format!("its unit {path} is not on the default branch")));
    };
    let Ok(unit) = document.unit(path) else {
        return Ok(Err(format!("its unit {path} cannot be read")));
    };
    if !comparison::is_as_imported(&document) {
        return Ok(Err(format!(
            "changed, but its unit {} was changed by a person too: update it by hand",
            unit.id
        )));
    }
    let digest = section_digest(section);
    document.set_body(&format!("\n{}\n", unit_body(section).trim()));
    document.set("title", &section.title.as_str().into());
    document.set("description", &section.description.as_str().into());
    let left = keys.update(&mut document);
    document.set("last_modified", &timestamp(now));
    document.set("sources", &provenance(section, keys, source, &digest, now));
    let kind = document.get("type").and_then(|kind| kind.as_str().map(str::to_owned));
    let unit = ProposedUnit {
        id: unit.id.as_str().to_owned(),
        path: path.to_owned(),
        title: section.title.clone(),
        kind: kind.unwrap_or_else(|| unit.kind.as_str().to_owned()),
        domain: unit.domain.as_str().to_owned(),
        file: source.shown.clone(),
        section: section.section.clone(),
        updates: true,
        content: document.as_str().to_owned(),
        digest,
        change: keys.kept.iter().map(|(key, value)| format!("{key} {value:?}\n")).collect(),
    };
    Ok(Ok((unit, left)))
}

fn unit_body(section: &NoteSection) -> String {
    format!("# {}\n\n{}", section.title, text::demote_headings(&section.body))
}

fn timestamp(time: Timestamp) -> Value {
    Value::from(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// The `sources` of a unit.
fn provenance(
    section: &NoteSection,
    keys: &NoteKeys,
    source: &SourceFile,
    digest: &str,
    now: Timestamp,
) -> Value {
    let mut entry = Mapping::new();
    entry.insert("file".into(), source.shown.as_str().into());
    if let Some(section) = &section.section {
        entry.insert("section".into(), section.as_str().into());
    }
    entry.insert("digest".into(), digest.into());
    entry.insert("time".into(), timestamp(source.modified.unwrap_or(now)));
    if !keys.kept.is_empty() {
        let kept = keys.kept.iter().map(|(key, value)| ((*key).into(), value.clone()));
        entry.insert("keys".into(), Value::Mapping(kept.collect()));
    }
    Value::Sequence(vec![Value::Mapping(entry)])
}

/// Names the branch after its content, so that the same import twice makes one branch; the one of another machine is
/// another one.
pub(super) fn branch_name(brain: &Path, units: &[ProposedUnit], now: Timestamp) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&system::process::host_name());
    hasher.update(brain.as_os_str().as_encoded_bytes());
    for unit in units {
        hasher.update(unit.path.as_bytes()).update(unit.digest.as_bytes()).update(&[u8::from(unit.updates)]);
        hasher.update(unit.change.as_bytes());
    }
    format!("{IMPORT_BRANCH_PREFIX}{}-{}", now.strftime("%Y%m%d"), &hasher.finalize().to_hex()[..8])
}

pub(super) fn commit_message(units: &[ProposedUnit], sources: &[OsString]) -> String {
    let from: Vec<String> = sources.iter().map(|source| sources::display_path(Path::new(source))).collect();
    let mut message = format!(
        "Knowledge imported from {}\n\n{}, imported as written, without a model.\n",
        text::escape_forge_syntax(&text::one_line(&from.join(", "), 60)),
        counted(units.len(), "unit"),
    );
    for (heading, updates) in [("Added", false), ("Changed", true)] {
        let mut listed = HashSet::new();
        for unit in units.iter().filter(|unit| unit.updates == updates) {
            if listed.is_empty() {
                message.push_str(&format!("\n{heading}:\n"));
            }
            if listed.insert(&unit.path) {
                let title = text::escape_forge_syntax(&text::one_line(&unit.title, 100));
                let file = text::escape_forge_syntax(&text::one_line(&unit.file, 100));
                message.push_str(&format!("- {}\n  {title} ({}, from {file})\n", unit.path, unit.kind));
            }
        }
    }
    message
}

/// `1 unit`, `2 units`.
pub(super) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(raw: &str) -> (NoteKeys, Vec<String>) {
        let source = SourceFile {
            path: "/shop/.claude/rules/api.md".into(),
            shown: "~/shop/.claude/rules/api.md".to_owned(),
            kind: NoteKind::Instructions,
            project: None,
            domain: None,
            modified: None,
        };
        NoteKeys::read(raw, &source)
    }

    #[test]
    fn the_paths_of_a_rule_are_its_scope() {
        let raw = "---\npaths: ['src/api/**/*.ts', 'src/api/*.js', src/lib.rs, '**/*.md']\n---\nText\n";
        let (keys, problems) = keys(raw);
        assert_eq!(keys.kept, [("scope", serde_yaml::from_str("[src/api, src/lib.rs]").unwrap())]);
        assert!(problems.len() == 1 && problems[0].contains("**/*.md"), "{problems:?}");
    }

    #[test]
    fn a_comma_in_braces_does_not_end_a_pattern() {
        for (paths, folders) in [
            ("src/**/*.{ts,tsx}", "[src]"),
            ("'{app,lib}/**/*.ts, tests/**/*.test.ts'", "[app, lib, tests]"),
            ("['{app,lib/core}/**', 'web/{a,b}.ts']", "[app, lib/core, web]"),
        ] {
            let (keys, problems) = keys(&format!("---\npaths: {paths}\n---\nText\n"));
            assert_eq!(keys.kept, [("scope", serde_yaml::from_str(folders).unwrap())], "{paths}");
            assert!(problems.is_empty(), "{problems:?}");
        }
    }

    #[test]
    fn only_a_status_that_retires_a_unit_is_kept() {
        let status = |word: &str| keys(&format!("---\nstatus: {word}\n---\nText\n")).0.kept;
        assert_eq!(status("superseded"), [("status", "superseded".into())]);
        assert!(status("draft").is_empty());
    }
}
