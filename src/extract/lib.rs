//! Extracts knowledge worth reviewing from conversations and notes.
//!
//! An [`Extractor`] reads a conversation and proposes candidates: [`HeuristicExtractor`] by rules,
//! [`FallbackExtractor`] with a model ([`ModelApi`], [`ClaudeCode`]) and with the rules where no model is
//! available. It prefers missing a lesson to wasting a reviewer's time.
//!
//! It never decides what becomes knowledge: it writes no file, names no unit and does not know git.
//!
//! ```
//! use extract::{ExtractionContext, Extractor as _, HeuristicExtractor};
//! use transcript::{Conversation, Event, EventKind};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), extract::Error> {
//! let text = "Always run database migrations inside a transaction.".to_owned();
//! let event = Event { line: "1".to_owned(), at: None, sidechain: false, kind: EventKind::Human { text } };
//! let conversation = Conversation { events: vec![event], ..Conversation::default() };
//!
//! let extraction = HeuristicExtractor.extract(&conversation, &ExtractionContext::default()).await?;
//! assert_eq!(extraction.candidates[0].title, "Always run database migrations inside a transaction");
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs, clippy::missing_errors_doc)]

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use knowledge::{Candidate, CodeRecord, Rejected};
use serde::{Deserialize, Serialize};
use transcript::Conversation;

pub mod claude_code;
mod condense;
mod fallback;
mod filter;
mod heuristic;
mod injection;
mod ledger;
mod model_api;
mod model_extractor;
pub mod notes;
mod parse;
mod prompt;
mod sentences;
mod similarity;
pub mod text_index;
mod tool_output;

pub use claude_code::ClaudeCode;
pub use fallback::FallbackExtractor;
pub use heuristic::{HeuristicExtractor, ScoredCandidate, find_choices, score_candidates};
pub use injection::find_injection;
pub use ledger::{LedgerError, ModelBudget, Reserved, Spending, Unlimited};
pub use model_api::ModelApi;
pub use model_extractor::{
    Backend, BackendAnswer, BackendError, Cost, Limits, ModelExtractor, Question, build_questions,
};
pub use prompt::AlsoAsked;
pub use sentences::{Sentence, split_sentences};

/// Finds knowledge in a conversation.
#[async_trait]
pub trait Extractor: Send + Sync {
    /// The `source` of the units that it finds: `heuristic`, `claude-api`, `openai-compatible`, `claude-p`.
    fn name(&self) -> &str;

    /// Extracts candidates from a conversation.
    ///
    /// # Errors
    /// [`Error::Continues`] when there is more to read, [`Error::Retry`] when it may work later, [`Error::Permanent`] when it
    /// never will.
    async fn extract(
        &self,
        conversation: &Conversation,
        context: &ExtractionContext,
    ) -> Result<Extraction, Error>;
}

/// What an extractor needs besides the conversation.
///
/// The default is an empty brain and [`Unlimited`].
#[derive(Clone)]
pub struct ExtractionContext {
    /// Accounts for model calls and saves their answers.
    pub ledger: Arc<dyn ModelBudget>,
    /// What the brain has already.
    pub known: Known,
    /// The time since this capture was first tried.
    pub waited: Duration,
    /// Another number once a person has had a failed capture tried again, as after they have fixed the cause.
    pub trial: i64,
}

impl Default for ExtractionContext {
    fn default() -> Self {
        Self { ledger: Arc::new(Unlimited), known: Known::default(), waited: Duration::ZERO, trial: 0 }
    }
}

impl fmt::Debug for ExtractionContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtractionContext")
            .field("known", &self.known)
            .field("waited", &self.waited)
            .field("trial", &self.trial)
            .finish_non_exhaustive()
    }
}

/// What a model is told of the brain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The nearest units, the nearest first. Relations may point only to these.
    pub units: Vec<KnownUnit>,
    /// The domains of all units, the most used first.
    pub domains: Vec<String>,
    /// Titles of what was proposed before and is not in the brain, the nearest first.
    pub proposed: Vec<String>,
}

/// A unit of the brain, as a model is shown it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownUnit {
    /// The unit's id.
    pub id: String,
    /// The unit's title.
    pub title: String,
    /// One sentence; empty if the unit has none.
    pub description: String,
    /// The day of its last change, such as `2026-02-03`; empty if it is not known.
    pub day: String,
}

/// What a part of a session was about, as a model put it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topic {
    /// One or two sentences, redacted.
    pub summary: String,
    /// The `uuid`s of the lines that it rests on; at least one.
    pub lines: Vec<String>,
}

/// The result of one conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Extraction {
    /// The proposed lessons, the strongest first.
    pub candidates: Vec<Candidate>,
    /// What was considered and left out, with the reason.
    pub rejected: Vec<Rejected>,
    /// What the session was about, topic by topic, if a model was asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topics: Vec<Topic>,
    /// Why code is as it is, if a model was asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<CodeRecord>,
    /// Why there is no candidate; `None` if there is one.
    #[serde(rename = "nothing")]
    pub empty_reason: Option<String>,
    /// Why a model that was asked has not read all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
    /// The name of the extractor that found this.
    #[serde(rename = "by")]
    pub extractor: String,
}

/// Why a conversation was not read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It takes longer than one turn. What was read is saved, and the next turn goes on from there.
    #[error("the model continues with part {part} of {parts}")]
    Continues {
        /// The next part.
        part: usize,
        /// How many there are.
        parts: usize,
    },
    /// It may work later: the other side is busy, offline or over a limit.
    #[error("{message}")]
    Retry {
        /// What happened.
        message: String,
        /// When the other side said to come back.
        retry_after: Option<Duration>,
        /// The cause.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// It will not work until a person changes something.
    #[error("{message}")]
    Permanent {
        /// What happened.
        message: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}
