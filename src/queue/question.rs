//! A question with the candidates that retrieval found, as a re-ranker learns from them: one blob in the queue and in the
//! archive.

use serde::{Deserialize, Serialize};

/// The most candidates, and the largest vectors that are read.
const CANDIDATES_MAX: usize = 100;
const DIMENSIONS_MAX: usize = 8192;

/// A question with its candidates, best first by the order without learning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    /// The model of the vectors.
    pub model: String,
    /// The question's vector, `[dimensions] f32`.
    pub vector: Vec<f32>,
    /// The candidates.
    pub candidates: Vec<QuestionCandidate>,
}

/// One of a question's candidates.
#[derive(Clone, Debug, PartialEq)]
pub struct QuestionCandidate {
    /// A unit's id.
    pub id: String,
    /// The score of the order without learning, on the scale of a cosine.
    pub score: f64,
    /// Its vector, `[dimensions] f32`.
    pub vector: Vec<f32>,
}

/// What stands before the numbers.
#[derive(Serialize, Deserialize)]
struct Head {
    model: String,
    dimensions: usize,
    ids: Vec<String>,
    scores: Vec<f64>,
    /// What makes floats of the int8 numbers: the question's, then each candidate's.
    scales: Vec<f32>,
}

impl Question {
    /// One line of JSON, then the vectors as int8 numbers: a quarter of the size, and of the same order for what is
    /// learned from them. Candidates whose vectors have other dimensions are left out.
    pub fn to_bytes(&self) -> Vec<u8> {
        let fits = |candidate: &&QuestionCandidate| candidate.vector.len() == self.vector.len();
        let candidates: Vec<&QuestionCandidate> =
            self.candidates.iter().filter(fits).take(CANDIDATES_MAX).collect();
        let vectors =
            std::iter::once(&self.vector).chain(candidates.iter().map(|candidate| &candidate.vector));
        let (mut scales, mut numbers) = (Vec::new(), Vec::new());
        for vector in vectors {
            let largest = vector.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
            let scale = if largest > 0.0 && largest.is_finite() { largest / 127.0 } else { 0.0 };
            scales.push(scale);
            numbers.extend(
                vector.iter().map(
                    |number| {
                        if scale == 0.0 { 0 } else { (number / scale).round() as i8 as u8 }
                    },
                ),
            );
        }
        let head = Head {
            model: self.model.clone(),
            dimensions: self.vector.len(),
            ids: candidates.iter().map(|candidate| candidate.id.clone()).collect(),
            scores: candidates.iter().map(|candidate| candidate.score).collect(),
            scales,
        };
        let mut bytes = serde_json::to_vec(&head).unwrap_or_default();
        bytes.push(b'\n');
        bytes.extend(numbers);
        bytes
    }

    /// Reads what [`Question::to_bytes`] wrote; `None` for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let head: Head = serde_json::from_slice(&bytes[..end]).ok()?;
        let numbers = &bytes[end + 1..];
        let count = head.ids.len();
        let is_sound = (1..=DIMENSIONS_MAX).contains(&head.dimensions)
            && count <= CANDIDATES_MAX
            && head.scores.len() == count
            && head.scales.len() == count + 1
            && numbers.len() == head.dimensions * (count + 1);
        if !is_sound {
            return None;
        }
        let mut vectors = numbers.chunks_exact(head.dimensions).zip(&head.scales).map(|(numbers, scale)| {
            numbers.iter().map(|number| f32::from(*number as i8) * scale).collect::<Vec<f32>>()
        });
        let vector = vectors.next()?;
        let candidates = head.ids.into_iter().zip(head.scores).zip(vectors);
        let candidates =
            candidates.map(|((id, score), vector)| QuestionCandidate { id, score, vector }).collect();
        Some(Self { model: head.model, vector, candidates })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> Question {
        let candidate = |id: &str, score, vector: [f32; 3]| QuestionCandidate {
            id: id.to_owned(),
            score,
            vector: vector.to_vec(),
        };
        Question {
            model: "minilm".into(),
            vector: vec![0.6, -0.8, 0.0],
            candidates: vec![candidate("a", 0.75, [1.0, 0.0, 0.0]), candidate("b\n", -0.0, [0.0; 3])],
        }
    }

    #[test]
    fn a_question_is_read_back_to_within_a_hundredth() {
        let found = Question::from_bytes(&question().to_bytes()).unwrap();
        assert_eq!((found.model.as_str(), found.candidates.len()), ("minilm", 2));
        for (found, expected) in found.candidates.iter().zip(question().candidates) {
            assert_eq!((&found.id, found.score), (&expected.id, expected.score));
            assert!(found.vector.iter().zip(&expected.vector).all(|(a, b)| (a - b).abs() < 0.005));
        }
        assert!(found.vector.iter().zip(question().vector).all(|(a, b)| (a - b).abs() < 0.005));
        let rounded = found.to_bytes();
        assert_eq!(Question::from_bytes(&rounded).unwrap(), found, "what was rounded once stays as it is");
    }

    #[test]
    fn what_is_cut_or_changed_is_no_question() {
        let bytes = question().to_bytes();
        for end in 0..bytes.len() {
            assert_eq!(Question::from_bytes(&bytes[..end]), None, "{end}");
        }
        let mut long = bytes.clone();
        long.push(0);
        assert_eq!(Question::from_bytes(&long), None);
    }

    #[test]
    fn a_candidate_of_another_model_is_left_out() {
        let mut question = question();
        question.candidates[0].vector.push(1.0);
        assert_eq!(Question::from_bytes(&question.to_bytes()).unwrap().candidates.len(), 1);
    }
}
