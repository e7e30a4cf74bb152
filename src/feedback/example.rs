//! One question with what was shown for it and what became of it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::weights::{Weights, bounded};

/// Whether a session used what it was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// There is evidence that it was used.
    Used,
    /// The session said that it is wrong, or did what it warns of.
    Contradicted,
    /// Neither.
    Ignored,
}

/// An item that retrieval found.
#[derive(Clone, Debug)]
pub struct Candidate {
    embedding: Arc<[f32]>,
    base_score: f64,
}

impl Candidate {
    /// With its embedding, `[dimensions] f32` of length 1, and the score of the order without learning. The weights add to
    /// this score a difference of cosines, so it should be on that scale.
    pub fn new(embedding: &[f32], base_score: f64) -> Self {
        Self { embedding: bounded(embedding), base_score }
    }
}

/// A candidate that the session was shown.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// Its position among the candidates.
    pub candidate: usize,
    /// The probability that it was shown at all, [`crate::sampling::Draw::propensity`]: 1 without exploration.
    pub propensity: f64,
    /// What became of it.
    pub outcome: Outcome,
}

/// One question: its candidates, those that were shown in their order, and what became of them.
#[derive(Clone, Debug)]
pub struct Example {
    group: u64,
    query: Arc<[f32]>,
    candidates: Vec<Candidate>,
    shown: Vec<Shown>,
}

/// Why an example cannot be learned from. It is left out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExampleError {
    /// Embeddings of different lengths.
    #[error("embeddings of {0} and {1} dimensions")]
    Dimensions(usize, usize),
    /// A value is NaN or infinite, or a propensity is not above 0 and at most 1.
    #[error("a value is out of its range")]
    Value,
    /// Something shown is not among the candidates, or is so twice.
    #[error("what was shown is no list of different candidates")]
    Shown,
}

impl Example {
    /// `group` is any number for the session, equal for the questions of one session: they are never on both sides of a
    /// split, and count as one in an interval.
    ///
    /// # Errors
    /// If the parts do not fit together, or if a value is not a number.
    pub fn new(
        group: u64,
        query: &[f32],
        candidates: Vec<Candidate>,
        shown: Vec<Shown>,
    ) -> Result<Self, ExampleError> {
        for candidate in &candidates {
            if candidate.embedding.len() != query.len() {
                return Err(ExampleError::Dimensions(candidate.embedding.len(), query.len()));
            }
            if !candidate.base_score.is_finite() || candidate.embedding.iter().any(|value| !value.is_finite())
            {
                return Err(ExampleError::Value);
            }
        }
        if query.iter().any(|value| !value.is_finite())
            || shown.iter().any(|shown| !(shown.propensity > 0.0 && shown.propensity <= 1.0))
        {
            return Err(ExampleError::Value);
        }
        let mut is_shown = vec![false; candidates.len()];
        for shown in &shown {
            match is_shown.get_mut(shown.candidate) {
                Some(seen @ false) => *seen = true,
                _ => return Err(ExampleError::Shown),
            }
        }
        Ok(Self { group, query: bounded(query), candidates, shown })
    }

    /// The session's number.
    pub fn group(&self) -> u64 {
        self.group
    }

    /// What was shown, in its order.
    pub fn shown(&self) -> &[Shown] {
        &self.shown
    }

    /// The number of items shown that were used.
    pub fn used(&self) -> usize {
        self.shown.iter().filter(|shown| shown.outcome == Outcome::Used).count()
    }

    /// The length of its embeddings.
    pub fn dimensions(&self) -> usize {
        self.query.len()
    }

    pub(crate) fn query(&self) -> &[f32] {
        &self.query
    }

    pub(crate) fn embedding(&self, candidate: usize) -> &[f32] {
        &self.candidates[candidate].embedding
    }

    pub(crate) fn base_scores(&self) -> Vec<f64> {
        self.candidates.iter().map(|candidate| candidate.base_score).collect()
    }

    /// The candidates' scores under weights of the same dimensions.
    pub(crate) fn scores(&self, weights: &Weights) -> Vec<f64> {
        match weights.adapt(&self.query) {
            Ok(adapted) => self
                .candidates
                .iter()
                .map(|candidate| adapted.score(candidate.base_score, &candidate.embedding))
                .collect(),
            Err(_) => self.base_scores(),
        }
    }

    /// The candidates that could have been shown: without exploration only those that were.
    pub(crate) fn supported(&self) -> Vec<usize> {
        if self.shown.iter().all(|shown| shown.propensity > 1.0 - 1e-9) {
            self.shown.iter().map(|shown| shown.candidate).collect()
        } else {
            (0..self.candidates.len()).collect()
        }
    }
}
