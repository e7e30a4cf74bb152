//! Reads all units of a brain from its files, without the index.

use std::collections::HashMap;

use brain::Files;
use knowledge::{Document, Unit, UnitId};

use crate::error::CliError;
use crate::lookup;

/// The units in a brain's files.
#[derive(Default)]
pub(crate) struct UnitFiles {
    /// Each unit with its path.
    pub(crate) units: Vec<(String, Unit)>,
    /// Why other files are not units.
    pub(crate) problems: Vec<String>,
}

/// Reads every unit. A file that is not a unit is listed as a problem.
pub(crate) fn read_units(brain: &dyn Files) -> Result<UnitFiles, CliError> {
    let mut found = UnitFiles::default();
    let mut paths: HashMap<UnitId, String> = HashMap::new();
    for file in brain.files()? {
        let text = match brain.read(&file.path) {
            Ok(text) => text,
            Err(error) => {
                found.problems.push(format!("{}:1: {}", file.path, error.reason()));
                continue;
            }
        };
        match Document::parse(text).and_then(|document| document.unit(&file.path)) {
            Ok(unit) => {
                let owner = paths.entry(unit.id.clone()).or_insert_with(|| file.path.clone());
                if *owner != file.path {
                    let what = index::id_is_taken(unit.id.as_str(), owner);
                    found.problems.push(format!("{}:1: {what}", file.path));
                }
                found.units.push((file.path, unit));
            }
            Err(error) => found.problems.push(format!("{}:{}: {}", file.path, error.line, error.what)),
        }
    }
    Ok(found)
}

/// The unit with this id or path, or with the only id that begins so.
pub(crate) fn find_unit(mut units: Vec<(String, Unit)>, id: &str) -> Result<(String, Unit), CliError> {
    if let Some(at) = units.iter().position(|(path, _)| path == id) {
        return Ok(units.swap_remove(at));
    }
    let ids: Vec<&str> = units.iter().map(|(_, unit)| unit.id.as_str()).collect();
    let at = lookup::position(&ids, id, "unit").map_err(|error| {
        error.or_hint("`nugget list` shows all ids; a unit on a branch has to be merged first")
    })?;
    Ok(units.swap_remove(at))
}
