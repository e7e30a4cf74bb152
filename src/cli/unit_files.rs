//! Reads all units of a brain from its files, without the index.

use brain::Files;
use knowledge::{Document, Unit};

use crate::error::CliError;

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
    for file in brain.files()? {
        let text = match brain.read(&file.path) {
            Ok(text) => text,
            Err(error) => {
                found.problems.push(error.to_string());
                continue;
            }
        };
        match Document::parse(text).and_then(|document| document.unit(&file.path)) {
            Ok(unit) => found.units.push((file.path, unit)),
            Err(error) => found.problems.push(format!("{}:{}: {}", file.path, error.line, error.what)),
        }
    }
    Ok(found)
}
