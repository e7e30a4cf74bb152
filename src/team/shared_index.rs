//! A brain's index in PostgreSQL: publishing a local generation, and answering questions from what was published.
//!
//! The source of truth is git. A server that holds a clone builds an ordinary local index, and [`TeamStore::publish`] writes
//! what differs from the published generation in one transaction. A [`TeamSnapshot`] is an [`index::Reader`] over one
//! generation. Nothing here embeds a text.

mod error;
mod lists;
mod postings;
mod prefetched;
pub(crate) mod publish;
mod source;
mod team_snapshot;
#[cfg(test)]
mod test_database;
#[cfg(test)]
mod tests;
mod words;

pub use error::Error as IndexError;
pub use publish::{Mode as PublishMode, Published};
pub use source::{DIMENSIONS_MAX, GRAPH_DIMENSIONS, Source, SourceEmbedding, SourceUnit, UnitDigest};
pub use team_snapshot::{EF_SEARCH, EXACT_CHUNKS_MAX, TeamSnapshot};
