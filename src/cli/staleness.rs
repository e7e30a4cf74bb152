//! Which units may no longer hold in the project at hand.

use std::path::Path;

use ::archive::Project;
use jiff::Timestamp;
use knowledge::Unit;
use provenance::Staleness;
use provenance::context::unit_staleness;
use provenance::stale::StaleCheck;

/// Checks units against the files of the project that a folder is in.
pub(crate) fn check<'u>(
    units: impl IntoIterator<Item = &'u Unit>,
    folder: &Path,
    now: Timestamp,
) -> Vec<Option<Staleness>> {
    let project = Project::from_folder(&std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned()));
    let mut check = StaleCheck::new(&project.path, now);
    units.into_iter().map(|unit| unit_staleness(unit, &project.key, &mut check)).collect()
}
