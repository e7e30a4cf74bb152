//! Candidates: what an extractor proposes, before it has an id, a file or a review.

use serde::{Deserialize, Serialize};

use crate::name::UnitId;
use crate::unit::{Related, UnitType};

/// A piece of knowledge found in a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The type of the unit.
    #[serde(rename = "type")]
    pub kind: UnitType,
    /// Any text; [`Domain::sanitized`](crate::Domain::sanitized) makes a safe folder name of it when the unit is
    /// written.
    pub domain: String,
    /// The lesson, in one line.
    pub title: String,
    /// One sentence that says what it is about, for summaries.
    pub description: String,
    /// Markdown without the title's heading: when the lesson applies, what to do, why, how it was learned.
    pub body: String,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// How sure the extractor is that the lesson is right and worth keeping, from 0 to 1.
    pub confidence: f64,
    /// Units of the brain that it relates to.
    pub related: Vec<Related>,
    /// The lines of the transcript that support it, in order.
    pub evidence: Vec<Evidence>,
    /// How it overlaps with a unit of the brain; `None` if it is not known to overlap.
    #[serde(rename = "bearing", default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
    /// The `source` of the unit, where that is another than the extractor of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// Why code is as it is, as a model that has read a session puts it. It is no candidate: nobody reviews it, and it never
/// leaves the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CodeRecord {
    /// One of [`UnitType::OF_CODE`].
    #[serde(rename = "type")]
    pub kind: UnitType,
    /// The file or folder as the session named it; `None` for all of the project.
    pub path: Option<String>,
    /// A name in the file.
    pub symbol: Option<String>,
    /// One sentence.
    pub summary: String,
    /// One to three sentences more.
    pub detail: Option<String>,
    /// What was considered instead.
    pub alternatives: Vec<String>,
    /// From 0 to 1.
    pub confidence: f64,
    /// The `uuid`s of the lines that it rests on; at least one.
    pub lines: Vec<String>,
}

impl CodeRecord {
    /// The longest summary, in characters.
    pub const SUMMARY_CHARS_MAX: usize = 120;
}

/// How a candidate overlaps with a unit of the brain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlap {
    /// The unit of the brain.
    pub id: UnitId,
    /// What the candidate does to it.
    pub how: OverlapKind,
}

/// What a candidate does to a unit that it overlaps with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverlapKind {
    /// Nothing: the unit says the same.
    Same,
    /// Completes it: the unit stays right.
    AddsTo,
    /// Replaces it: the unit is wrong or outdated.
    Replaces,
}

impl OverlapKind {
    /// The name of each kind in the answers of models.
    pub const KNOWN: [(&str, Self); 3] =
        [("same", Self::Same), ("adds_to", Self::AddsTo), ("replaces", Self::Replaces)];
}

/// One line of a transcript that supports a candidate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The line's `uuid`, which stays the same when a session is resumed or forked.
    pub line: String,
    /// The line's text, redacted and shortened.
    pub excerpt: String,
}

/// A candidate that was rejected. Reviewers are shown what was rejected and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    /// The candidate's title.
    pub title: String,
    /// Why it was rejected.
    pub reason: String,
}
