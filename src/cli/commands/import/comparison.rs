//! Compares the sections of notes with what the brain has, what waits on branches, and what was imported before.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

use actors::BrainView;
use brain::{Brain, Files as _};
use extract::notes::NoteSection;
use extract::text_index::{TextIndex, text_digest};
use git::Repository;
use knowledge::name::file_stem;
use knowledge::{Document, Unit, UnitId};

use crate::error::CliError;
use crate::unit_files::{UnitFiles, read_units};

/// How a section compares with what is known.
pub(super) enum Comparison {
    New,
    /// It, or what its file says beside it, has changed since an earlier import made a unit of it, at this path.
    Changed {
        path: String,
    },
    Known {
        reason: String,
    },
}

/// A unit that has a text.
struct TextSource {
    id: String,
    /// `in the brain`, `on branch …`, `in this import`.
    place: String,
}

/// A unit that an earlier import has made.
struct ImportedUnit {
    /// Of the text that it was made of.
    digest: String,
    path: String,
    document: Document,
}

/// What is known before an import, and what the import adds.
#[derive(Default)]
pub(super) struct KnownTexts {
    texts: TextIndex<TextSource>,
    /// Each imported unit of the brain, by its file and section.
    imported: HashMap<(String, Option<String>), ImportedUnit>,
    /// The units on branches that an import has made of a text, by the text's digest.
    waiting: HashMap<String, Vec<(TextSource, Document)>>,
    ids: HashSet<String>,
    /// The branch on which an earlier import proposed a section, by its digest.
    proposed: HashMap<String, String>,
}

impl KnownTexts {
    /// Reads the brain, the branches that wait for review, and the record of earlier imports.
    pub(super) fn read(brain: &Brain, repository: &Repository, record: &Path) -> Result<Self, CliError> {
        let mut known = Self { proposed: read_record(record), ..Self::default() };
        let view = BrainView::open(brain);
        let UnitFiles { units, .. } = read_units(&view)?;
        for (path, unit) in &units {
            known.add(unit.id.as_str(), "in the brain", &unit_text(unit));
            if let Some(document) = view.read(path).ok().and_then(|raw| Document::parse(raw).ok()) {
                for (file, section, digest) in import_sources(&document) {
                    let unit = ImportedUnit { digest, path: path.clone(), document: document.clone() };
                    known.imported.insert((file, section), unit);
                }
            }
        }
        for path in repository.paths_under(repository.default_branch()?.tip, brain::UNITS_FOLDER)? {
            known.ids.insert(file_stem(&path).to_owned());
        }
        for branch in repository.pending_branches()? {
            for (path, content) in repository.branch_files(&branch.name)? {
                let document = String::from_utf8(content).ok().and_then(|raw| Document::parse(raw).ok());
                let Some(document) = document else { continue };
                let Ok(unit) = document.unit(&path) else { continue };
                let place = format!("on branch {}", branch.name);
                known.add(unit.id.as_str(), &place, &unit_text(&unit));
                for (_, _, digest) in import_sources(&document) {
                    let source = TextSource { id: unit.id.to_string(), place: place.clone() };
                    known.waiting.entry(digest).or_default().push((source, document.clone()));
                }
            }
        }
        Ok(known)
    }

    /// Forgets what earlier imports proposed, so that what was refused counts as new.
    pub(super) fn forget_proposed(&mut self) {
        self.proposed.clear();
    }

    /// Compares a section of a file. `is_changed` tells whether the file says something else beside its text than at the
    /// import of a unit.
    pub(super) fn compare(
        &self,
        section: &NoteSection,
        file: &str,
        is_changed: impl Fn(&Document) -> bool,
    ) -> Comparison {
        let known = |TextSource { id, place }: &TextSource| Comparison::Known {
            reason: format!("known already: {id} {place}"),
        };
        let digest = section_digest(section);
        let imported = self.imported.get(&(file.to_owned(), section.section.clone()));
        if let Some(unit) = imported.filter(|unit| unit.digest == digest && is_changed(&unit.document)) {
            let waiting = self.waiting.get(&digest).into_iter().flatten();
            let mut same = waiting.filter(|(_, document)| !is_changed(document));
            let changed = || Comparison::Changed { path: unit.path.clone() };
            return same.next().map_or_else(changed, |(source, _)| known(source));
        }
        if let Some(same) = self.texts.find_same(&digest) {
            return known(same);
        }
        if let Some(unit) = imported {
            return match unit.digest == digest {
                true => Comparison::Known { reason: "imported before".to_owned() },
                false => Comparison::Changed { path: unit.path.clone() },
            };
        }
        if let Some(branch) = self.proposed.get(&digest) {
            let reason = format!("proposed before on {branch} and not merged; --again proposes it again");
            return Comparison::Known { reason };
        }
        self.texts.find_similar(&section_text(section)).map_or(Comparison::New, known)
    }

    /// Adds a section that this import proposes.
    pub(super) fn add_section(&mut self, id: &str, section: &NoteSection) {
        self.add(id, "in this import", &section_text(section));
    }

    /// Why a unit of an export is not proposed: it was before, or another unit has its text.
    pub(super) fn reason_against(&self, unit: &Unit, digest: &str, updates: bool) -> Option<String> {
        if let Some(branch) = self.proposed.get(digest) {
            return Some(format!("proposed before on {branch} and not merged; --again proposes it again"));
        }
        let same = self.texts.find_same(&text_digest(&unit_text(unit))).filter(|_| !updates)?;
        Some(format!("known already: {} {}", same.id, same.place))
    }

    fn add(&mut self, id: &str, place: &str, text: &str) {
        self.ids.insert(id.to_owned());
        self.texts.insert(TextSource { id: id.to_owned(), place: place.to_owned() }, text);
    }

    /// Makes an id unique, and reserves it.
    pub(super) fn unique_id(&mut self, plain: &UnitId, digest: &str) -> UnitId {
        let mut id = plain.clone();
        let mut tries = 0;
        while self.ids.contains(id.as_str()) {
            let suffix = if tries == 0 { digest[..4].to_owned() } else { format!("{}{tries}", &digest[..4]) };
            id = plain.with_suffix(&suffix);
            tries += 1;
        }
        self.ids.insert(id.as_str().to_owned());
        id
    }
}

/// The text of a section, in the form of its unit.
fn section_text(section: &NoteSection) -> String {
    format!("# {}\n\n{}", section.title, section.body)
}

fn unit_text(unit: &Unit) -> String {
    let body = unit.body.trim_start();
    if body.starts_with('#') { body.to_owned() } else { format!("# {}\n\n{body}", unit.title) }
}

/// Identifies a section by the words of its title and body.
pub(super) fn section_digest(section: &NoteSection) -> String {
    text_digest(&section_text(section))
}

/// Whether a unit still has the text that its import gave it.
pub(super) fn is_as_imported(document: &Document) -> bool {
    let digest_now = text_digest(document.body());
    matches!(&import_sources(document)[..], [(_, _, digest)] if *digest == digest_now)
}

/// What the last import of a unit took from its note's front matter.
pub(super) fn imported_keys(document: &Document) -> serde_yaml::Mapping {
    let sources = document.get("sources");
    let mut entries = sources.as_ref().and_then(|sources| sources.as_sequence()).into_iter().flatten();
    let keys = entries.find_map(|entry| entry.get("keys")?.as_mapping());
    keys.cloned().unwrap_or_default()
}

/// The file, section and digest of each import of a unit.
fn import_sources(document: &Document) -> Vec<(String, Option<String>, String)> {
    let Some(serde_yaml::Value::Sequence(entries)) = document.get("sources") else { return Vec::new() };
    let entry = |entry: &serde_yaml::Value| {
        let text = |key: &str| entry.get(key).and_then(|value| value.as_str()).map(str::to_owned);
        Some((text("file")?, text("section"), text("digest")?))
    };
    entries.iter().filter_map(entry).collect()
}

/// Reads what earlier imports proposed. A record that cannot be read counts as empty.
fn read_record(path: &Path) -> HashMap<String, String> {
    std::fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// Adds the digests of proposed sections to the record.
pub(super) fn record_proposed<'a>(
    path: &Path,
    branch: &str,
    digests: impl Iterator<Item = &'a str>,
) -> Result<(), CliError> {
    let folder = path.parent().ok_or_else(|| io::Error::other("the record has no folder"))?;
    let _lock = system::file::lock_folder(folder)?;
    let mut record = read_record(path);
    record.extend(digests.map(|digest| (digest.to_owned(), branch.to_owned())));
    Ok(system::file::replace_private_file(path, &serde_json::to_vec(&record)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(title: &str, body: &str) -> NoteSection {
        NoteSection {
            title: title.to_owned(),
            section: None,
            description: String::new(),
            body: body.to_owned(),
            kind: "concept".into(),
            is_typed: false,
            tags: Vec::new(),
            domain: None,
            confidence: None,
        }
    }

    fn is_known(known: &KnownTexts, title: &str, body: &str) -> bool {
        let compared = known.compare(&section(title, body), "x.md", |_| false);
        matches!(compared, Comparison::Known { .. })
    }

    #[test]
    fn a_known_text_is_recognised_unless_a_number_differs() {
        let mut known = KnownTexts::default();
        let body =
            "Run the slow suite with `--lane 7` before each merge, since lane 7 alone has the database.";
        known.add_section("lane", &section("Lanes", body));
        assert!(is_known(&known, "Lanes", body));
        assert!(is_known(&known, "lanes!", &format!("* {}", body.replace(", ", " -- "))));
        assert!(!is_known(&known, "Lanes", &body.replace('7', "8")));
        assert!(!is_known(
            &known,
            "Lanes",
            &format!("{body} Never run it on a Friday, whatever anybody says to you.")
        ));
        assert!(is_known(&known, "Lanes", "Run the slow suite with `--lane 7` before each merge"));
    }

    #[test]
    fn imports_at_the_same_time_are_all_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("imported.json");
        let digests: Vec<String> = (0..16).map(|number| format!("digest-{number}")).collect();
        std::thread::scope(|scope| {
            for digest in &digests {
                let path = &path;
                scope.spawn(move || record_proposed(path, "b", std::iter::once(digest.as_str())).unwrap());
            }
        });
        assert_eq!(read_record(&path).len(), digests.len());
    }

    #[test]
    fn an_id_is_given_once() {
        let mut known = KnownTexts::default();
        let id = UnitId::from_title("Lanes");
        let ids: Vec<String> = (0..3).map(|_| known.unique_id(&id, "abcdef").to_string()).collect();
        assert_eq!(ids, ["lanes", "lanes-abcd", "lanes-abcd1"]);
    }
}
