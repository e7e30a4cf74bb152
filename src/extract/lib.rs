//! Turns a conversation into knowledge worth reviewing.
//!
//! An extractor proposes and never decides: it writes no file, and it gives nothing a name. It would
//! rather miss a lesson than waste the minute of the person who reviews it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use knowledge::{Candidate, Rejected};
use serde::{Deserialize, Serialize};
use transcript::Conversation;

pub mod claude_code;
mod condense;
mod fallback;
mod filter;
mod heuristic;
mod ledger;
mod messages_api;
mod model_extractor;
mod parse;
mod prompt;

pub use claude_code::ClaudeCode;
pub use fallback::FallbackExtractor;
pub use heuristic::HeuristicExtractor;
pub use ledger::{Ledger, LedgerError, NoLedger, Reserved, Spending};
pub use messages_api::MessagesApi;
pub use model_extractor::{
    Backend, BackendAnswer, BackendError, Cost, Limits, ModelExtractor, Question, build_questions,
};

/// Finds knowledge in a conversation.
#[async_trait]
pub trait Extractor: Send + Sync {
    /// What a unit's `source` says: `heuristic`, `claude-api`, `claude-p`.
    fn name(&self) -> &str;

    /// # Errors
    /// [`Error::Retry`] when it may work later, [`Error::Permanent`] when it never will.
    async fn extract(
        &self,
        conversation: &Conversation,
        context: &ExtractionContext,
    ) -> Result<Extraction, Error>;
}

/// What an extractor is told besides the conversation.
#[derive(Clone)]
pub struct ExtractionContext {
    /// Where calls of models are paid from, and where their answers are kept.
    pub ledger: Arc<dyn Ledger>,
    /// What the brain holds already, the nearest first. Relations may point to these and to no other.
    pub known: Vec<KnownUnit>,
    /// How long this capture has been waiting since it was first tried.
    pub waited: Duration,
}

/// Without a brain and without a budget.
impl Default for ExtractionContext {
    fn default() -> Self {
        Self { ledger: Arc::new(NoLedger), known: Vec::new(), waited: Duration::ZERO }
    }
}

impl fmt::Debug for ExtractionContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtractionContext")
            .field("known", &self.known)
            .field("waited", &self.waited)
            .finish_non_exhaustive()
    }
}

/// A unit of the brain, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownUnit {
    pub id: String,
    pub title: String,
    /// What it is about, in a sentence; empty where it does not say.
    pub description: String,
}

/// What one conversation gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Extraction {
    /// The strongest first.
    pub candidates: Vec<Candidate>,
    /// What was looked at and left out, with the reason.
    pub rejected: Vec<Rejected>,
    /// Why there is no candidate, when there is none.
    #[serde(rename = "nothing")]
    pub empty_reason: Option<String>,
    /// The name of the extractor that found this.
    #[serde(rename = "by")]
    pub extractor: String,
}

/// Why a conversation could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Busy, offline or over a limit; `retry_after` is when the other side said to come back.
    #[error("{message}")]
    Retry {
        message: String,
        retry_after: Option<Duration>,
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    #[error("{message}")]
    Permanent {
        message: String,
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}
