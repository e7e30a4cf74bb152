//! Answers: units with their passages.

use jiff::Timestamp;
use knowledge::{Domain, UnitId, UnitType};
use serde::Serialize;

use crate::stages::StageReport;

/// The answer to a question, best unit first.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// The units shown; empty if nothing in the brain is relevant.
    pub units: Vec<FoundUnit>,
    /// Further relevant units with their titles, for which there was no room.
    pub more: Vec<(UnitId, String)>,
    /// Units about the files of the question, by their scope, that are not among the others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub about_files: Vec<FileUnit>,
    /// What was found and is not shown, because it is too weak beside the best match.
    pub left_out: Vec<LeftOut>,
    /// How many of `more` the text names; it only counts the others.
    pub more_named: usize,
    /// How many units were searched.
    pub searched: usize,
    /// How many memories of earlier sessions were searched besides.
    #[serde(skip_serializing_if = "is_zero")]
    pub memories_searched: usize,
    /// What decided the order: [`LOCAL`], or the name of a model.
    pub reranked_by: String,
    /// Why a model that was to decide the order did not.
    pub rerank_trouble: Option<String>,
    /// The stages in the order in which they ran.
    pub stages: Vec<StageReport>,
    /// Whether the search went by words only, as there was no vector of the question.
    pub words_only: bool,
    /// The generation of the index; 0 if there is none yet.
    pub generation: u64,
    /// What can be learned from the answer; `None` unless the question asks for it.
    #[serde(skip)]
    pub learning: Option<LearningData>,
}

/// What can be learned from an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LearningData {
    /// The model of the vectors.
    pub model: String,
    /// The question's vector; empty for a search by words only, from which no order is learned.
    pub vector: Vec<f32>,
    /// The units that could be shown, best first by the order without learning.
    pub candidates: Vec<UnitCandidate>,
    /// Whether units were drawn by chance. Each candidate then has a probability; otherwise those shown have 1.
    pub is_drawn: bool,
    /// Units that were taken out of the answer, to measure whether they help: their ids, places and tokens.
    pub withheld: Vec<(UnitId, usize, usize)>,
}

/// A unit that could be shown.
#[derive(Clone, Debug, PartialEq)]
pub struct UnitCandidate {
    /// Its id.
    pub id: UnitId,
    /// The score of its best passage without learning, on the scale of a cosine.
    pub score: f64,
    /// The vector of that passage.
    pub vector: Vec<f32>,
    /// The probability that it was drawn; 0 for one that was not.
    pub propensity: f64,
}

/// A unit about a file of the question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileUnit {
    /// Its id.
    pub id: UnitId,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: UnitType,
    /// Its title, redacted as all of its texts.
    pub title: String,
    /// Its description, or the beginning of its text.
    pub detail: String,
    /// The file.
    pub file: String,
    /// Why it may no longer hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale: Option<String>,
}

/// A unit that was found and is not part of the answer.
#[derive(Clone, Debug, Serialize)]
pub struct LeftOut {
    /// Its id.
    pub id: UnitId,
    /// Its title, redacted.
    pub title: String,
    /// Its score, as a part of the best score.
    pub part_of_best_score: f64,
    /// How sure it is that it bears on the question, as a part of the best match.
    pub part_of_best_evidence: f64,
    /// Why it was left out.
    pub why: &'static str,
}

impl Answer {
    /// The answer with what a person has reviewed only: what a model on another machine may be sent. Without `more`, whose
    /// titles do not tell whether they are.
    pub fn reviewed(&self) -> Self {
        let mut answer = Self { more: Vec::new(), more_named: 0, ..self.clone() };
        answer.units.retain(FoundUnit::is_reviewed);
        answer
    }

    /// The units and memories that the text shows, in its order, each with about how many tokens it takes.
    pub fn shown(&self) -> impl Iterator<Item = (&UnitId, usize)> {
        let units = self.units.iter().map(|unit| {
            let passages: usize = unit.passages.iter().map(|passage| passage.tokens).sum();
            // The header's share is about that of the summary and the id.
            (&unit.id, passages + (unit.summary.len() + unit.id.as_str().len()) / 4)
        });
        units.chain(self.about_files.iter().map(|unit| (&unit.id, unit.detail.len() / 4)))
    }
}

/// [`Answer::reranked_by`] if no model decided the order.
pub const LOCAL: &str = "local";

impl FoundUnit {
    /// Whether it is a memory of an earlier session: it has no file in the brain.
    pub fn is_memory(&self) -> bool {
        self.path.is_empty()
    }

    /// Whether a person has reviewed it.
    pub fn is_reviewed(&self) -> bool {
        !matches!(self.review, Review::Unreviewed | Review::Pending)
    }
}

/// A unit in an answer, or a memory.
#[derive(Clone, Debug, Serialize)]
pub struct FoundUnit {
    /// Its id.
    pub id: UnitId,
    /// Its title, redacted as all of its texts.
    pub title: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: UnitType,
    /// Its domain.
    pub domain: Domain,
    /// Its file, relative to the brain.
    pub path: String,
    /// From 0 to 1.
    pub confidence: f64,
    /// What wrote it.
    pub source: String,
    /// The date of its last change, if its file has one.
    pub last_modified: Option<Timestamp>,
    /// Days since its last change.
    pub age_days: Option<f64>,
    /// Its status, if its file has one.
    pub status: Option<String>,
    /// Whether a person has accepted it.
    pub review: Review,
    /// Who merged it, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reviewed_by: Option<String>,
    /// The score by which the units are ordered. Comparable within one answer only.
    pub score: f64,
    /// The relevance by a model, 0 to 10.
    pub judged: Option<f64>,
    /// Why it may no longer hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale: Option<String>,
    /// Why it was found.
    pub why: String,
    /// Its description, or else its first sentence; empty if there is neither, or no room.
    pub summary: String,
    /// Its passages in the order of the file.
    pub passages: Vec<Passage>,
}

/// Whether a person has accepted a unit. Units of review branches are never shown, even where such a branch is
/// checked out, but for the notes of agents on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Review {
    /// It is in the brain's folder, and git does not say more.
    #[default]
    Accepted,
    /// Its file is as in the default branch.
    Merged,
    /// Its file has changes in the work tree that are not committed.
    UncommittedEdit,
    /// Nobody has: it is a memory of an earlier session.
    Unreviewed,
    /// Nobody has yet: it is a note of an agent that waits for its review.
    Pending,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A part of a unit in an answer.
#[derive(Clone, Debug, Serialize)]
pub struct Passage {
    /// `<unit id>#<position>`.
    pub chunk_id: String,
    /// The headings above it.
    pub breadcrumb: String,
    /// The text of the file, redacted; it ends with an ellipsis if only a part fits.
    pub text: String,
    /// 0 for a passage that was added because it is near one that was found.
    pub score: f64,
    /// Its tokens in the answer, with its headings and marks.
    pub tokens: usize,
}
