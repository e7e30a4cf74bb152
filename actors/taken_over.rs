//! The branches of the person's other machines that wait for review here too.

use std::collections::BTreeMap;

use jiff::Timestamp;
use queue::Ledger;
use serde::{Deserialize, Serialize};

/// The name of the report that keeps them.
const REPORT: &str = "taken-over";

/// The branches by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TakenOver(pub(crate) BTreeMap<String, TakenOverBranch>);

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TakenOverBranch {
    /// The commit at which it was taken over, or brought up to date.
    pub(crate) commit: String,
    /// The ids and titles of the units that it has, so that a session here does not propose them again.
    pub(crate) units: Vec<(String, String)>,
}

impl TakenOver {
    pub(crate) fn read(queue: &dyn Ledger) -> Result<Self, queue::Error> {
        let kept = queue.last_report(REPORT)?;
        Ok(kept.and_then(|(_, _, body)| serde_json::from_str(&body).ok()).unwrap_or_default())
    }

    pub(crate) fn write(&self, queue: &dyn Ledger, now: Timestamp) -> Result<(), queue::Error> {
        queue.report(REPORT, &serde_json::to_string(self).unwrap_or_default(), now)
    }

    /// The ids and titles of all units.
    pub(crate) fn units(&self) -> impl Iterator<Item = &(String, String)> {
        self.0.values().flat_map(|branch| &branch.units)
    }
}
