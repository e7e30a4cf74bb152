//! The vectors of a text, and from which cosines on two texts are alike.

/// From this cosine on two texts say the same in nearly the same words. No restatement in the test `similarity` of the
/// actors reaches it: MiniLM gives the same lesson in other words .58 to .79.
pub const SAME_COSINE: f64 = 0.92;
/// From this cosine on two units of one type and field are about the same thing. Other lessons of the same field have .32
/// to .54, additions to the same subject .38 to .64: these become units of their own, which costs a reviewer less than a
/// unit with unrelated additions.
pub const ABOUT_COSINE: f64 = 0.66;

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
