//! What the stages hand on to each other.

use jiff::Timestamp;
use knowledge::{Candidate, Embedding, Rejected};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, error_chain};

/// The session of a capture, for titles and dates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Session {
    pub(crate) project: Option<String>,
    #[serde(default)]
    pub(crate) begun: Option<Timestamp>,
    pub(crate) ended: Option<Timestamp>,
}

/// What extraction hands on to embedding, and embedding (with the vectors) to indexing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Findings {
    pub(crate) session: Session,
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) rejected: Vec<Rejected>,
    /// Who found them: `heuristic`, or the model's name.
    pub(crate) by: String,
    /// One for each candidate, added by embedding.
    #[serde(default)]
    pub(crate) vectors: Vec<Vec<f32>>,
    /// The name of the model that computed the vectors.
    #[serde(default)]
    pub(crate) model: String,
}

impl Findings {
    /// The text of each candidate that is compared with the brain.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.candidates.iter().map(text_to_compare).collect()
    }
}

/// A candidate is compared by the vector of its whole text only.
pub(crate) fn vectors_of(embeddings: Vec<Embedding>) -> Vec<Vec<f32>> {
    embeddings.into_iter().map(|embedding| embedding.vector).collect()
}

/// The text of a candidate that is compared with the brain: that of its unit's first chunk.
pub(crate) fn text_to_compare(candidate: &Candidate) -> String {
    format!("{}\n\n{}", candidate.title, candidate.body)
}

pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(value).map_err(|error| Failure::permanent(error_chain(&error)))
}

pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes).map_err(|error| Failure::permanent(error_chain(&error)))
}
