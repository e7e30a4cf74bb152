//! Topic memories: what sessions were about and what was found, one memory for each topic, recalled by later sessions of
//! the same project. Nobody has reviewed them, and every text that shows one says so.
//!
//! This is the prospective reflection of Reflective Memory Management (Tan et al., ACL 2025, section 4) without a model:
//! [`topics`] cuts a conversation where its subject changes, [`summary`] takes the sentence that says most about each
//! topic, and the archive links those that say the same, where the paper's appendix D.1.2 asks a model whether to merge or
//! to add. [`derive`] does it for the sessions of an archive; [`recall`] chooses and renders what a session is told.
//!
//! A model that reads a session anyway may say what it was about; it then stands for what it has read. This crate
//! never writes a summary of its own words, never calls a model, and leaves out a topic rather than keep one that says
//! little.
//!
//! ```
//! use archive::Said;
//! use memories::derive::memories_of;
//!
//! let said = |message, is_prompt, text: &str| Said {
//!     message, is_prompt, text: text.to_owned(), at: None, vector: None,
//! };
//! let found = memories_of(&[
//!     said(1, true, "Why is each invoice mailed twice?"),
//!     said(2, false, "Let me look at the queue."),
//!     said(3, false, "The root cause: `ack()` is called before the mail is sent, so a restart delivers the job \
//!         again instead of dropping it."),
//! ], &[]);
//! assert!(found[0].summary.starts_with("Why is each invoice mailed twice: The root cause"));
//! assert_eq!(found[0].turns, [1, 3]);
//! ```
#![warn(missing_docs, clippy::missing_errors_doc)]

pub mod derive;
pub mod recall;
pub mod summary;
pub mod topics;
