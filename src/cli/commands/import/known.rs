//! What the brain has already, waits on branches, or was brought in before: by content, by likeness and by
//! where it comes from.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use actors::brain_view::BrainView;
use brain::{Brain, Files as _};
use git::Repository;
use knowledge::name::file_stem;
use knowledge::{Document, Unit, UnitId, text};

use super::notes::Part;
use crate::commands::show::{Shelf, read_all};
use crate::error::CliError;

/// From this part of its runs of words on, a text says nothing that the other does not say.
const LIKENESS: f64 = 0.85;
/// Words in a run.
const RUN: usize = 3;
/// With fewer runs a text is compared as a whole only.
const RUNS_MIN: usize = 5;

pub(super) enum Verdict {
    New,
    /// An earlier import made this file of it, and the section has changed since.
    Update {
        path: String,
    },
    Known {
        reason: String,
    },
}

/// A text that is known.
struct Text {
    id: String,
    /// `in the brain`, `on branch …`, `in this import`.
    place: String,
    words: HashSet<String>,
}

#[derive(Default)]
pub(super) struct Known {
    texts: Vec<Text>,
    by_digest: HashMap<String, usize>,
    /// Which texts have a run of words.
    runs: HashMap<u64, Vec<u32>>,
    /// The imported units of the brain: where from, which digest, which path.
    imported: HashMap<(String, Option<String>), (String, String)>,
    names: HashSet<String>,
    /// What earlier imports proposed, and on which branch.
    record: HashMap<String, String>,
}

impl Known {
    pub(super) fn of(brain: &Brain, repository: &Repository, record: &Path) -> Result<Self, CliError> {
        let mut known = Self { record: read_record(record), ..Self::default() };
        let view = BrainView::open(brain);
        let Shelf { units, .. } = read_all(&view)?;
        for (path, unit) in &units {
            known.put(unit.id.as_str(), "in the brain", &whole(unit));
            if let Ok(document) =
                view.read(path).map_err(drop).and_then(|raw| Document::parse(raw).map_err(drop))
            {
                for (file, section, digest) in sources(&document) {
                    known.imported.insert((file, section), (digest, path.clone()));
                }
            }
        }
        for path in repository.paths_under(repository.default_branch()?.tip, "domains")? {
            known.names.insert(file_stem(&path).to_owned());
        }
        for branch in repository.pending_branches()? {
            for (path, content) in repository.branch_files(&branch.name)? {
                let document = String::from_utf8(content)
                    .map_err(drop)
                    .and_then(|raw| Document::parse(raw).map_err(drop));
                if let Some(unit) = document.ok().and_then(|document| document.unit(&path).ok()) {
                    known.put(unit.id.as_str(), &format!("on branch {}", branch.name), &whole(&unit));
                }
            }
        }
        Ok(known)
    }

    /// What was proposed and refused counts as new again.
    pub(super) fn forget_record(&mut self) {
        self.record.clear();
    }

    pub(super) fn judge(&self, part: &Part, file: &str) -> Verdict {
        let digest = digest(part);
        if let Some(&same) = self.by_digest.get(&digest) {
            return self.known(same);
        }
        if let Some((former, path)) = self.imported.get(&(file.to_owned(), part.section.clone())) {
            return match *former == digest {
                true => Verdict::Known { reason: "imported before".to_owned() },
                false => Verdict::Update { path: path.clone() },
            };
        }
        if let Some(branch) = self.record.get(&digest) {
            let reason = format!("proposed before on {branch} and not merged; --again proposes it anew");
            return Verdict::Known { reason };
        }
        self.alike(part).map_or(Verdict::New, |like| self.known(like))
    }

    /// The text that says all that this one says, numbers included, if there is one.
    fn alike(&self, part: &Part) -> Option<usize> {
        let canonical = text::canonical(&as_text(part));
        let runs = runs(&canonical);
        if runs.len() < RUNS_MIN {
            return None;
        }
        let mut shared: HashMap<u32, usize> = HashMap::new();
        for run in &runs {
            for &other in self.runs.get(run).into_iter().flatten() {
                *shared.entry(other).or_default() += 1;
            }
        }
        // `--lane 7` is not `--lane 8`.
        let literals: Vec<&str> =
            canonical.split(' ').filter(|word| word.contains(|c: char| c.is_ascii_digit())).collect();
        let wanted = (runs.len() as f64 * LIKENESS).ceil() as usize;
        let mut alike: Vec<(usize, u32)> = shared
            .into_iter()
            .filter(|(_, count)| *count >= wanted)
            .map(|(other, count)| (count, other))
            .collect();
        alike.sort_unstable_by(|a, b| b.cmp(a));
        alike.into_iter().map(|(_, other)| other as usize).find(|&other| {
            self.texts
                .get(other)
                .is_some_and(|text| literals.iter().all(|literal| text.words.contains(*literal)))
        })
    }

    fn known(&self, at: usize) -> Verdict {
        let reason = match self.texts.get(at) {
            Some(text) => format!("known already: {} {}", text.id, text.place),
            None => "known already".to_owned(),
        };
        Verdict::Known { reason }
    }

    /// Something of this import.
    pub(super) fn add(&mut self, id: &str, part: &Part) {
        self.put(id, "in this import", &as_text(part));
    }

    fn put(&mut self, id: &str, place: &str, text: &str) {
        let canonical = text::canonical(text);
        let at = self.texts.len();
        self.names.insert(id.to_owned());
        self.by_digest.entry(digest_of(&canonical)).or_insert(at);
        for run in runs(&canonical) {
            self.runs.entry(run).or_default().push(at as u32);
        }
        let literals = canonical.split(' ').filter(|word| word.contains(|c: char| c.is_ascii_digit()));
        self.texts.push(Text {
            id: id.to_owned(),
            place: place.to_owned(),
            words: literals.map(str::to_owned).collect(),
        });
    }

    /// An id that nothing has yet.
    pub(super) fn name(&mut self, plain: &UnitId, digest: &str) -> UnitId {
        let mut id = plain.clone();
        let mut tries = 0;
        while self.names.contains(id.as_str()) {
            let suffix = if tries == 0 { digest[..4].to_owned() } else { format!("{}{tries}", &digest[..4]) };
            id = plain.with_suffix(&suffix);
            tries += 1;
        }
        self.names.insert(id.as_str().to_owned());
        id
    }
}

/// What a part says, in the form in which its unit says it.
fn as_text(part: &Part) -> String {
    format!("# {}\n\n{}", part.title, part.body)
}

fn whole(unit: &Unit) -> String {
    let body = unit.body.trim_start();
    if body.starts_with('#') { body.to_owned() } else { format!("# {}\n\n{body}", unit.title) }
}

/// Tells a part from any other: 16 hexadecimal digits over its title and its words.
pub(super) fn digest(part: &Part) -> String {
    digest_of(&text::canonical(&as_text(part)))
}

fn digest_of(canonical: &str) -> String {
    blake3::hash(canonical.as_bytes()).to_hex()[..16].to_owned()
}

/// Whether a unit still says what its import put there.
pub(super) fn is_as_imported(document: &Document) -> bool {
    let now = digest_of(&text::canonical(document.body()));
    matches!(&sources(document)[..], [(_, _, digest)] if *digest == now)
}

/// The files, sections and digests that a unit was imported from.
fn sources(document: &Document) -> Vec<(String, Option<String>, String)> {
    let Some(serde_yaml::Value::Sequence(entries)) = document.get("sources") else { return Vec::new() };
    let entry = |entry: &serde_yaml::Value| {
        let text = |key: &str| entry.get(key).and_then(|value| value.as_str()).map(str::to_owned);
        Some((text("file")?, text("section"), text("digest")?))
    };
    entries.iter().filter_map(entry).collect()
}

fn runs(canonical: &str) -> HashSet<u64> {
    let words: Vec<&str> = canonical.split(' ').collect();
    let hash = |run: &[&str]| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&blake3::hash(run.join(" ").as_bytes()).as_bytes()[..8]);
        u64::from_le_bytes(bytes)
    };
    words.windows(RUN).map(hash).collect()
}

/// What earlier imports proposed; what cannot be read is forgotten.
fn read_record(path: &Path) -> HashMap<String, String> {
    std::fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// Adds to what imports have proposed.
pub(super) fn record<'a>(
    path: &PathBuf,
    branch: &str,
    digests: impl Iterator<Item = &'a str>,
) -> Result<(), CliError> {
    let mut record = read_record(path);
    record.extend(digests.map(|digest| (digest.to_owned(), branch.to_owned())));
    let folder = path.parent().ok_or_else(|| io::Error::other("the record has no folder"))?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer(&mut file, &record)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(title: &str, body: &str) -> Part {
        Part {
            title: title.to_owned(),
            section: None,
            description: String::new(),
            body: body.to_owned(),
            kind: "concept".into(),
            tags: Vec::new(),
            domain: None,
            confidence: None,
        }
    }

    fn is_known(known: &Known, title: &str, body: &str) -> bool {
        matches!(known.judge(&part(title, body), "x.md"), Verdict::Known { .. })
    }

    #[test]
    fn what_is_said_already_is_known_in_whatever_dress_but_not_with_another_number() {
        let mut known = Known::default();
        let body =
            "Run the slow suite with `--lane 7` before each merge, since lane 7 alone has the database.";
        known.add("lane", &part("Lanes", body));
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
    fn a_name_is_given_once() {
        let mut known = Known::default();
        let id = UnitId::from_title("Lanes");
        let names: Vec<String> = (0..3).map(|_| known.name(&id, "abcdef").to_string()).collect();
        assert_eq!(names, ["lanes", "lanes-abcd", "lanes-abcd1"]);
    }
}
