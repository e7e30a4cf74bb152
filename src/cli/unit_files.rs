//! Reads all units of a brain from its files, without the index.

use std::collections::BTreeSet;

use brain::Files;
use knowledge::name::{file_stem, nfc, split_owners, written_tag};
use knowledge::unit::is_retired;
use knowledge::{Document, Unit, UnitType};

use crate::error::{CliError, USAGE};
use crate::{lookup, output};

/// The units in a brain's files.
#[derive(Default)]
pub(crate) struct UnitFiles {
    /// Each unit with its path.
    pub(crate) units: Vec<(String, Unit)>,
    /// Files with the id of a unit whose file is another one.
    pub(crate) copies: Vec<(String, Unit)>,
    /// Why other files are not units.
    pub(crate) problems: Vec<String>,
    broken: Vec<BrokenFile>,
}

/// A file that is no unit.
struct BrokenFile {
    path: String,
    /// What its line `id:` says.
    id: Option<String>,
    problem: String,
}

impl UnitFiles {
    /// The unit with this id or path, or with the only id that begins so.
    pub(crate) fn find(&self, given: &str) -> Result<(String, Unit), CliError> {
        if let Some(found) = self.units.iter().chain(&self.copies).find(|(path, _)| is_path(path, given)) {
            return Ok(found.clone());
        }
        let ids: Vec<&str> = self.units.iter().map(|(_, unit)| unit.id.as_str()).collect();
        // What is named as a whole is not taken for the beginning of another id.
        if let Some(error) = self.broken(given).filter(|_| !ids.contains(&nfc(given.trim()).as_str())) {
            return Err(error);
        }
        let at = lookup::position(&ids, given, "unit").map_err(|error| {
            error.or_hint("`nugget list` shows all ids; a unit on a branch has to be merged first")
        })?;
        Ok(self.units[at].clone())
    }

    /// Why a file with this id, name or path is no unit, if there is one.
    pub(crate) fn broken(&self, given: &str) -> Option<CliError> {
        let name = nfc(given.trim());
        let is_it = |file: &&BrokenFile| {
            file.id.as_ref() == Some(&name)
                || nfc(file_stem(&file.path)) == name
                || is_path(&file.path, given)
        };
        let file = self.broken.iter().find(is_it)?;
        Some(CliError::new(output::safe(&file.problem)).hint("correct that file in your own editor"))
    }
}

/// Whether a unit has all of these tags, however they are written.
pub(crate) fn has_tags(unit: &Unit, wanted: &[String]) -> bool {
    wanted.iter().all(|wanted| unit.tags.iter().any(|tag| written_tag(tag) == written_tag(wanted)))
}

/// The title as lists have it: of a unit that no longer holds with its status.
pub(crate) fn title_with_status(unit: &Unit) -> String {
    match unit.status.as_deref().filter(|status| is_retired(status)) {
        Some(status) => format!("{} ({})", unit.title, status.trim()),
        None => unit.title.clone(),
    }
}

/// An error for a type that neither nugget nor the brain has.
pub(crate) fn check_type<'a>(given: &str, units: impl Iterator<Item = &'a Unit>) -> Result<(), CliError> {
    let mut known: Vec<&str> = UnitType::KNOWN.iter().map(UnitType::as_str).collect();
    let of_brain: BTreeSet<&str> = units.map(|unit| unit.kind.as_str()).collect();
    known.extend(of_brain.into_iter().filter(|kind| matches!(UnitType::from(*kind), UnitType::Other(_))));
    if known.contains(&given) {
        return Ok(());
    }
    Err(lookup::unknown(format!("{given:?} is no type of a unit"), given, &known).code(USAGE))
}

/// Whether a path, perhaps without its ending, is that of a file.
pub(crate) fn is_path(path: &str, given: &str) -> bool {
    let (path, given) = (nfc(path), nfc(given.trim()));
    path == given || given.contains('/') && path.strip_suffix(".md") == Some(&given)
}

/// Reads every unit. A file that is not a unit is listed as a problem.
pub(crate) fn read_units(brain: &dyn Files) -> Result<UnitFiles, CliError> {
    let mut found = UnitFiles::default();
    let mut units = Vec::new();
    for file in brain.files()? {
        let (id, problem) = match brain.read(&file.path) {
            Ok(text) => {
                let id = id_line(&text);
                match Document::parse(text).and_then(|document| document.unit(&file.path)) {
                    Ok(unit) => {
                        units.push((file.path, unit));
                        continue;
                    }
                    Err(error) => (id, format!("{}:{}: {}", file.path, error.line, error.what)),
                }
            }
            Err(error) => (None, format!("{}:1: {}", file.path, error.reason())),
        };
        found.problems.push(problem.clone());
        found.broken.push(BrokenFile { path: file.path, id, problem });
    }
    let is_pending = |path: &str| brain.is_pending(path);
    let (units, copies) = split_owners(units, |(path, unit)| (unit.id.as_str(), path), is_pending);
    found.units = units;
    for (owner, (path, unit)) in copies {
        found.problems.push(format!("{path}:1: {}", index::id_is_taken(unit.id.as_str(), &owner)));
        found.copies.push((path, unit));
    }
    Ok(found)
}

/// The id in a file's front matter, which need not be valid.
fn id_line(text: &str) -> Option<String> {
    let mut lines = text.lines().skip(1).take_while(|line| line.trim_end() != "---");
    let id = lines.find_map(|line| line.strip_prefix("id:"))?;
    Some(nfc(id.trim().trim_matches(['"', '\''])))
}
