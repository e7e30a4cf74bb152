//! Which units may no longer hold in the project at hand.

use std::path::Path;

use ::archive::Project;
use jiff::Timestamp;
use knowledge::Unit;
use knowledge::unit::is_retired;
use provenance::StaleReason;
use provenance::context::unit_staleness;
use provenance::stale::StaleCheck;
use serde::Serialize;

/// Why a unit may no longer hold.
#[derive(Serialize)]
pub(crate) struct Staleness {
    pub(crate) reason: StaleReason,
    /// The file that has changed.
    pub(crate) file: Option<String>,
}

impl Staleness {
    pub(crate) fn in_words(&self) -> String {
        match &self.file {
            Some(file) => format!("{file} has changed since"),
            None => self.reason.in_words().to_owned(),
        }
    }
}

/// Checks units against the files of the project that a folder is in. Units that were replaced are not checked: they do
/// not hold anyway.
pub(crate) fn check<'u>(
    units: impl IntoIterator<Item = &'u Unit>,
    folder: &Path,
    now: Timestamp,
) -> Vec<Option<Staleness>> {
    let project = Project::of(&std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned()));
    let mut check = StaleCheck::new(&project.path, now);
    let mut of_unit = |unit: &Unit| {
        let is_live = !unit.status.as_deref().is_some_and(is_retired);
        let found = is_live.then(|| unit_staleness(unit, &project.key, &mut check)).flatten();
        found.map(|(reason, file)| Staleness { reason, file })
    };
    units.into_iter().map(&mut of_unit).collect()
}
