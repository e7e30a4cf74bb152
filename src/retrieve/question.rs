//! Questions and their limits.

use std::sync::Arc;

use feedback::Weights;
use index::UnitRecord;
use jiff::civil::{Date, Time};
use jiff::{Timestamp, tz::TimeZone};
use knowledge::{Embedding, UnitId, UnitType};
use serde::Serialize;

use crate::memory::MemoryCandidate;

/// The default limit of units, and of passages found, in an answer.
pub const LIMIT_DEFAULT: usize = 10;
/// The default limit of an answer in tokens.
pub const BUDGET_TOKENS_DEFAULT: usize = 2_000;
/// The smallest budget: below it an answer has no room to say that something was found.
pub const BUDGET_TOKENS_MIN: usize = 64;

/// A question.
#[derive(Clone, Debug)]
pub struct Query {
    /// The question as it was asked.
    pub text: String,
    /// The text's vector by the model of the index: `[dimensions] f32`, L2-normalised. `None` for a search by words
    /// only.
    pub vector: Option<Vec<f32>>,
    /// The vectors of the text's tokens by the same model: its [`Embedding::tokens`]. Empty if there are none.
    pub tokens: Vec<u8>,
    /// Paths that the question is about. Units that name them are candidates too and rank a little higher; whether
    /// there is an answer at all depends on the text alone.
    pub files: Vec<String>,
    /// The types of units that are searched; empty for all.
    pub kinds: Vec<UnitType>,
    /// The limit of units, and of passages found. The passages that [`Depth::Deep`] adds are not counted.
    pub limit: usize,
    /// The limit of the rendered answer in tokens, as the token model counts them; at least
    /// [`BUDGET_TOKENS_MIN`].
    pub budget_tokens: usize,
    /// How much of each unit the answer shows.
    pub depth: Depth,
    /// The time from which the ages of units are counted.
    pub now: Timestamp,
    /// The zone of the days that the question names; `None` for this machine's.
    pub zone: Option<TimeZone>,
    /// Memories of earlier sessions that may bear on the question: candidates besides the units, which stay as they are.
    pub memories: Vec<MemoryCandidate>,
    /// How many memories those were chosen from.
    pub memories_searched: usize,
    /// What the order does without. For measurements.
    pub without: Vec<Signal>,
    /// Whether it is recorded what the answer shows: only such an answer may be drawn by chance.
    pub is_recorded: bool,
    /// What learning does with the answer; `None` for nothing.
    pub learning: Option<Learning>,
}

/// What learning does with an answer.
#[derive(Clone, Debug)]
pub struct Learning {
    /// Learned weights for the model of the index; `None` for the base order.
    pub weights: Option<Arc<Weights>>,
    /// How many of the best units they move, and are kept to learn from.
    pub candidates_max: usize,
    /// The draw of what is shown; `None` to show the best.
    pub exploration: Option<Exploration>,
}

/// A draw of what is shown, as [`feedback::sampling::explore`] does it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exploration {
    /// How many units are shown.
    pub shown_max: usize,
    /// How much chance there is in it.
    pub temperature: f64,
    /// The same seed draws the same.
    pub seed: u64,
}

/// A part of the final order that can be left out, to measure what it adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The dates in the question and in the passages.
    Dates,
    /// The comparison of the question with the passages token by token.
    Late,
    /// The scores of the passages around.
    Context,
    /// The form of an answer: its speaker, a time, and that it does not ask.
    Form,
}

impl Query {
    /// A question without a vector and with the default limits.
    pub fn new(text: impl Into<String>, now: Timestamp) -> Self {
        Self {
            text: text.into(),
            vector: None,
            tokens: Vec::new(),
            files: Vec::new(),
            kinds: Vec::new(),
            limit: LIMIT_DEFAULT,
            budget_tokens: BUDGET_TOKENS_DEFAULT,
            depth: Depth::Standard,
            now,
            zone: None,
            memories: Vec::new(),
            memories_searched: 0,
            without: Vec::new(),
            is_recorded: false,
            learning: None,
        }
    }

    /// A question for a list of as many units, of which no text is shown but a sentence each.
    pub fn listing(text: impl Into<String>, limit: usize, now: Timestamp) -> Self {
        Self { limit, budget_tokens: usize::MAX, depth: Depth::Summary, ..Self::new(text, now) }
    }

    /// The memory with this id, in the form of a unit.
    pub(crate) fn memory(&self, id: &UnitId) -> Option<UnitRecord> {
        self.memories.iter().find(|memory| memory.id() == *id).map(MemoryCandidate::unit)
    }

    /// The day of a time, where the question is asked. Midnight in UTC is that of a date without a time.
    pub(crate) fn day_of(&self, time: Timestamp) -> Date {
        let in_utc = time.to_zoned(TimeZone::UTC);
        if in_utc.time() == Time::midnight() {
            return in_utc.date();
        }
        time.to_zoned(self.zone.clone().unwrap_or_else(TimeZone::system)).date()
    }

    /// The same question with its vectors; `None` for a search by words only.
    #[must_use]
    pub fn with_embedding(self, embedding: Option<Embedding>) -> Self {
        let (vector, tokens) =
            embedding.map_or((None, Vec::new()), |Embedding { vector, tokens }| (Some(vector), tokens));
        Self { vector, tokens, ..self }
    }
}

/// How much of each unit an answer shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Depth {
    /// One sentence for each unit.
    Summary,
    /// The sentences, and the passages that match.
    #[default]
    Standard,
    /// The same with the passages around them, as far as the budget allows.
    Deep,
}

impl Depth {
    /// All depths, from the least to the most.
    pub const ALL: [Self; 3] = [Self::Summary, Self::Standard, Self::Deep];

    /// The name in settings and requests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Summary => "summary",
            Self::Standard => "standard",
            Self::Deep => "deep",
        }
    }

    /// The factor on the default budget: a deep answer gets twice as much.
    pub fn budget_factor(self) -> usize {
        if self == Self::Deep { 2 } else { 1 }
    }
}

impl std::str::FromStr for Depth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|depth| depth.as_str() == text);
        found.ok_or_else(|| "it is one of summary, standard, deep".to_owned())
    }
}
