//! Nugget's holographic index: short facts and notes kept as vectors that are superposed, and found
//! again by algebra.
//!
//! The vectors are Fourier Holographic Reduced Representations (FHRR): complex numbers of modulus 1,
//! made from a token's text by seeded phases (T. Plate, "Holographic Reduced Representations", IEEE
//! Transactions on Neural Networks 6(3), 1995; and the book of that name, CSLI 2003, chapter 4.2 for
//! the frequency domain). [`FactStore`] recalls a value by its key, [`NoteIndex`] finds notes by
//! their words.
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
