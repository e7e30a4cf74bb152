//! Nugget's holographic index: short facts and notes kept as vectors that are superposed, and found
//! again by algebra.
//!
//! The vectors are Fourier Holographic Reduced Representations (FHRR): complex numbers of modulus 1,
//! made from a token's text by seeded phases (T. Plate, "Holographic Reduced Representations", IEEE
//! Transactions on Neural Networks 6(3), 1995, and the circular vectors in his book of that name,
//! 2003). [`FactStore`] recalls a value by its key, [`NoteIndex`] finds notes by their words.
//!
//! This crate never does input or output. It reads no file and no clock; a vector exists in memory
//! only and is made again from its tokens.
//!
//! ```
//! use holographic::{FactStore, NoteIndex, NoteText};
//!
//! let mut facts = FactStore::new();
//! facts.remember("deploy port", "8443");
//! let recalled = facts.recall("what is the deploy port?").expect("the key is known");
//! assert_eq!(recalled.value, "8443");
//!
//! let mut notes = NoteIndex::new();
//! notes.insert(&NoteText {
//!     id: "n1".into(),
//!     title: "Token rotation".into(),
//!     content: "Refresh tokens rotate every hour.".into(),
//!     ..NoteText::default()
//! });
//! assert_eq!(notes.search("token rotation", 5)[0].id, "n1");
//! ```
//!
//! # Differences from NeoVertex1/nuggets
//!
//! The design is that of the program nuggets. `stress/holographic` measures both on the same data, and
//! `docs/notes.md` has the results. On purpose these differ:
//!
//! - **Seeds.** There a vector's seed is the first four bytes of its token, so that all words of a
//!   title have one vector. Here it is the whole token.
//! - **Roles.** There a note's token is bound to its place in the list of tokens, and a query's words
//!   have a name of their own, so that a query's word never meets the same word of a note: the vector
//!   score depends on the numbers of tokens alone. Here the words of titles, contents, tags and queries
//!   share a role.
//! - **Banks.** There a recall adds up the similarities in all banks, and with them the noise of those
//!   that lack the key: four banks are as accurate as one. Here it reads the bank that holds the key.
//! - **Confidence.** There a softmax at temperature 0.9 gives every value about the same probability.
//!   Here the temperature follows from the noise, and the confidence is the probability of being right.
//! - **Keys.** There the spelling ratio counts common letters in any order, so that a question on an
//!   unknown subject finds some fact nearly always. Here it is Levenshtein's; and where several keys
//!   contain the question or share its words, the closest is taken, not the first.
//! - **Words** may be of any alphabet.

mod facts;
mod key_match;
mod notes;
mod theory;
mod vector;
mod words;

pub use facts::{FactLayout, FactStore, Recall, Remembered};
pub use key_match::KeyMatch;
pub use notes::{BASIS_TOKENS_MAX, NOTE_DIMENSION, NoteHit, NoteIndex, NoteText};
pub use theory::expected_accuracy;
pub use vector::{Bundle, DEFAULT_DIMENSION, Phases};

/// A vector of real numbers for a text, by its words alone: texts are as similar as they share words. `length` is even.
///
/// # Panics
/// If `length` is odd.
#[must_use]
pub fn vector_of_words(text: &str, length: usize) -> Vec<f32> {
    assert!(length.is_multiple_of(2), "a complex number is two real ones");
    let mut bundle = Bundle::new(length / 2);
    let words = words::unique(words::note_words(text).into_iter());
    // A text without words is like itself only.
    let words = if words.is_empty() { vec![text.to_owned()] } else { words };
    for word in words {
        bundle.add(&Phases::from_token(&word, length / 2));
    }
    bundle.parts().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_as_similar_as_they_share_words() {
        let cosine = |a: &str, b: &str| {
            let (a, b) = (vector_of_words(a, 384), vector_of_words(b, 384));
            let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| f64::from(x * y)).sum::<f64>();
            product(&a, &b) / (product(&a, &a) * product(&b, &b)).sqrt()
        };
        let text = "Refresh tokens rotate every hour on the gateway";
        assert!((cosine(text, "refresh TOKENS rotate every hour, on the gateway!") - 1.0).abs() < 1e-6);
        let half = cosine(text, "Refresh tokens rotate when a laptop sleeps");
        assert!((0.3..0.75).contains(&half), "{half}");
        assert!(cosine(text, "The cat sleeps under a blanket").abs() < 0.25);
        assert!(cosine("!!", "??").abs() < 0.25);
    }
}
