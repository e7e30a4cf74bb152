//! Turns a conversation into knowledge worth reviewing.
//!
//! An extractor proposes and never decides: it writes no file, and it gives nothing a name. It would
//! rather miss a lesson than waste the minute of the person who reviews it.

use std::time::Duration;

use async_trait::async_trait;
use knowledge::{Candidate, Rejected};
use serde::{Deserialize, Serialize};
use transcript::Conversation;

mod heuristic;

pub use heuristic::Heuristic;

/// Finds knowledge in a conversation.
#[async_trait]
pub trait Extractor: Send + Sync {
    /// What a unit's `source` says: `heuristic`, `claude`.
    fn name(&self) -> &str;

    /// # Errors
    /// [`Error::Retry`] when it may work later, [`Error::Permanent`] when it never will.
    async fn extract(&self, conversation: &Conversation) -> Result<Extraction, Error>;
}

/// What one conversation gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Extraction {
    /// The strongest first.
    pub candidates: Vec<Candidate>,
    /// What was looked at and left out, with the reason.
    pub rejected: Vec<Rejected>,
    /// Why there is no candidate, when there is none.
    pub nothing: Option<String>,
    /// The name of the extractor that found this.
    pub by: String,
}

/// Why a conversation could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Busy, offline or over a limit; `after` is when the other side said to come back.
    #[error("{what}")]
    Retry {
        what: String,
        after: Option<Duration>,
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    #[error("{what}")]
    Permanent {
        what: String,
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}
