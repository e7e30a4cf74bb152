//! Units of knowledge: their files, names, relations and ranking, and the rules for their text.
//!
//! This crate never reads a clock, a disk or the network, so that every rule can be tested as a pure function.
//!
//! ```
//! use knowledge::{Document, UnitType};
//!
//! let file = "---\ntype: pattern\ntags: [go]\n---\n\n# Bounded worker pools\n\nStart as many as there are CPUs.\n";
//! let unit = Document::parse(file)?.unit("domains/coding/patterns/worker-pools.md")?;
//! assert_eq!(unit.id.as_str(), "worker-pools");
//! assert_eq!(unit.kind, UnitType::Pattern);
//! assert_eq!(unit.title, "Bounded worker pools");
//! # Ok::<(), knowledge::FrontMatterError>(())
//! ```

#![warn(missing_docs, clippy::missing_errors_doc)]

pub mod candidate;
pub mod document;
pub mod document_merge;
pub mod embedding;
pub mod json;
pub mod markdown;
pub mod name;
pub mod opposed;
pub mod rank;
pub mod related;
pub mod text;
pub mod unit;
pub mod value;
pub mod wikilink;
pub mod words;

pub use candidate::{Candidate, CodeRecord, Evidence, Overlap, OverlapKind, Rejected};
pub use document::{Document, FrontMatterError};
pub use document_merge::{is_edited_copy, is_same_unit, merge_documents};
pub use embedding::Embedding;
pub use name::{Domain, SessionId, UnitId};
pub use text::CountTokens;
pub use unit::{Enforce, Related, Relation, Scope, Unit, UnitType};
