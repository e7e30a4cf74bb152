//! What an answer is made of, and what is asked.

use archive::Derivation;
use jiff::Timestamp;
use knowledge::UnitType;
use serde::Serialize;

/// A piece of knowledge about code.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// A unit's id, or `record-` and a number.
    pub id: String,
    /// Its type.
    pub kind: UnitType,
    /// One sentence.
    pub summary: String,
    /// More about it.
    pub detail: Option<String>,
    /// The file or folder that it bears on; `None` for the whole project.
    pub path: Option<String>,
    /// A name in the file.
    pub symbol: Option<String>,
    /// From 0 to 1.
    pub confidence: f64,
    /// When it was learned; `None` for a unit that does not say.
    pub at: Option<Timestamp>,
    /// From when on it should no longer be relied on.
    pub stale_after: Option<Timestamp>,
    /// What was considered instead.
    pub alternatives: Vec<String>,
    /// Whether a person has reviewed it.
    pub is_reviewed: bool,
    /// What an unreviewed one rests on; `None` for a unit.
    pub derivation: Option<Derivation>,
    /// The session that it comes from.
    pub session: Option<String>,
    /// The client of the session, or the unit's source.
    pub agent: String,
    /// The digest of the file when it was learned.
    pub sha256: Option<[u8; 32]>,
    /// The id of a newer one of the same place and type.
    pub superseded_by: Option<String>,
    /// The message that asked for it.
    pub prompt: Option<i64>,
    /// Its rank among those that match the query's words, as BM25 has it: negative, the smaller the better.
    pub rank: Option<f64>,
    /// Why it may no longer hold.
    pub stale: Option<StaleReason>,
}

impl Default for Item {
    fn default() -> Self {
        Self {
            id: String::new(),
            kind: UnitType::Intent,
            summary: String::new(),
            detail: None,
            path: None,
            symbol: None,
            confidence: 0.0,
            at: None,
            stale_after: None,
            alternatives: Vec::new(),
            is_reviewed: false,
            derivation: None,
            session: None,
            agent: String::new(),
            sha256: None,
            superseded_by: None,
            prompt: None,
            rank: None,
            stale: None,
        }
    }
}

/// Why a piece of knowledge may no longer hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StaleReason {
    /// The file is not as it was when it was learned.
    FileChanged,
    /// There is a newer one of the same place and type.
    Superseded,
    /// Its `stale_after` is past.
    Expired,
}

impl StaleReason {
    /// In words, for people.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::FileChanged => "the file has changed since",
            Self::Superseded => "there is a newer one",
            Self::Expired => "its date is past",
        }
    }
}

/// Why a unit may no longer hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Staleness {
    /// Why.
    pub reason: StaleReason,
    /// The file that has changed.
    pub file: Option<String>,
}

impl Staleness {
    /// In words, for people.
    pub fn in_words(&self) -> String {
        match &self.file {
            Some(file) => format!("{file} has changed since"),
            None => self.reason.in_words().to_owned(),
        }
    }
}

/// How much of each item is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Depth {
    /// Summaries only.
    Summary,
    /// With details.
    #[default]
    Standard,
    /// With units whole, and with the prompts that led to them.
    Deep,
}

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    /// A file or folder within the project; `None` for all of it.
    pub path: Option<String>,
    /// A name in the file.
    pub symbol: Option<String>,
    /// Words.
    pub query: Option<String>,
    /// Only of these types.
    pub kinds: Vec<UnitType>,
    /// Only what was learned from then on.
    pub since: Option<Timestamp>,
    /// The limit in tokens, of four characters each.
    pub budget: usize,
    /// How much of each item is shown.
    pub depth: Depth,
}
