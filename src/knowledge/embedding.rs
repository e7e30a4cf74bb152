//! The vectors of a text.

/// The vectors of a text: what a model computes and the index keeps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Embedding {
    /// The vector of the whole text: `[dimensions] f32`, L2-normalised.
    pub vector: Vec<f32>,
    /// The vectors of its tokens, in the form that the model's crate packs and compares; empty if the model has none.
    pub tokens: Vec<u8>,
}

impl From<Vec<f32>> for Embedding {
    fn from(vector: Vec<f32>) -> Self {
        Self { vector, tokens: Vec::new() }
    }
}
