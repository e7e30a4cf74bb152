//! What nugget remembers: units of knowledge, their names, their relations and how they are ranked.
//!
//! Nothing here reads a clock, a disk or a network, so that every rule can be tested as arithmetic.

pub mod candidate;
pub mod document;
pub mod name;
pub mod rank;
pub mod text;
pub mod unit;
pub mod value;

pub use candidate::{Candidate, Evidence, Overlap, OverlapKind, Rejected};
pub use document::{Document, FrontMatterError};
pub use name::{Domain, SessionId, UnitId};
pub use text::CountTokens;
pub use unit::{Related, Relation, Unit, UnitType};
