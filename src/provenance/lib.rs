//! Why code is as it is: which knowledge bears on a file, whether it still holds, and which session wrote a line.
//!
//! Knowledge comes from two places, and an answer says from which. *Units* were reviewed by a person; those with a
//! `scope` bear on code. *Records* lie in the archive: [`derive`] makes them of sessions by rules, and a model that reads
//! a session anyway adds to them. Nobody has reviewed those, and they never leave the machine.
//!
//! [`context`] answers for a file, a folder or a project: candidates by scope and by words, [`score`] ranks them, [`pack`]
//! fits them into a token limit. [`trace`] finds the session, and the prompt, that wrote a line.
//!
//! Formulas, weights, and the fields of an answer are those of openqed (<https://github.com/openqed-com/openqed>, MIT), so
//! that both give the same order for the same records. Three things differ on purpose:
//! a file also gets what is known of the folders above it and of the whole project, as its documentation says; details
//! go to the item that they belong to, also after one that did not fit; and the prompts of depth `deep` are there.
//!
//! ```
//! use jiff::Timestamp;
//! use knowledge::UnitType;
//! use provenance::{Depth, Item, Question, pack, score};
//!
//! let now: Timestamp = "2026-11-23T00:00:00Z".parse()?;
//! let question = Question { path: Some("src/auth.ts".into()), ..Question::default() };
//! let item = Item {
//!     kind: UnitType::Constraint,
//!     summary: "must support Node 18+".into(),
//!     path: Some("src/auth.ts".into()),
//!     confidence: 0.9,
//!     at: Some(now),
//!     ..Item::default()
//! };
//! // .30 scope + .20 type + .15 recency + .10 × .9 confidence, and .20 for a constraint
//! assert!((score::score(&item, &question, now) - 0.94).abs() < 1e-9);
//! let packed = pack::pack(vec![item], 2000, Depth::Standard, "");
//! assert_eq!((packed.items.len(), packed.is_truncated), (1, false));
//! # Ok::<(), jiff::Error>(())
//! ```
#![warn(missing_docs, clippy::missing_errors_doc)]

pub mod context;
pub mod derive;
pub mod edits;
pub mod item;
pub mod pack;
pub mod score;
pub mod stale;
pub mod trace;

pub use item::{Depth, Item, Question, StaleReason, Staleness};
