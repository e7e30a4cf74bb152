//! What an extractor proposes, before it has a name, a file or a reviewer.

use serde::{Deserialize, Serialize};

use crate::name::UnitId;
use crate::unit::{Related, UnitType};

/// A piece of knowledge found in a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    #[serde(rename = "type")]
    pub kind: UnitType,
    /// Free text; made safe by `Domain::sanitized` when the unit is written.
    pub domain: String,
    /// States the lesson, in one line.
    pub title: String,
    /// One sentence that says what it is about, for summaries.
    pub description: String,
    /// Markdown without the title's heading: when it applies, what to do, why, how it was learned.
    pub body: String,
    pub tags: Vec<String>,
    /// How sure the extractor is that this is right and worth keeping, from 0 to 1.
    pub confidence: f64,
    pub related: Vec<Related>,
    /// The lines of the transcript that it rests on, in order.
    pub evidence: Vec<Evidence>,
    /// How it bears on a unit that the brain holds already, where anybody has said so.
    #[serde(rename = "bearing", default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
}

/// What a candidate is to a unit of the brain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlap {
    pub id: UnitId,
    pub how: OverlapKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverlapKind {
    /// The unit says it already.
    Same,
    /// The unit stays right, and is more complete with it.
    AddsTo,
    /// The unit is wrong or outdated since.
    Replaces,
}

impl OverlapKind {
    /// As models and the queue write it.
    pub const KNOWN: [(&str, Self); 3] =
        [("same", Self::Same), ("adds_to", Self::AddsTo), ("replaces", Self::Replaces)];
}

/// One line of a transcript that a candidate rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The line's `uuid`, its identity through resumes and forks.
    pub line: String,
    /// What it says, redacted and cut short.
    pub excerpt: String,
}

/// A candidate that was not good enough, and why; a reviewer may want to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    pub title: String,
    pub reason: String,
}
