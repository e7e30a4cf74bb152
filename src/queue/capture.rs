//! A capture and its states.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use jiff::Timestamp;
use knowledge::SessionId;
use serde::{Deserialize, Serialize};

use crate::Error;

/// How often one stage of a capture is tried before it becomes a dead letter.
pub const ATTEMPTS_MAX: u32 = 5;

/// What a door tells the queue: this session's transcript wants to be captured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    pub session: SessionId,
    pub transcript: PathBuf,
    /// The folder that the session worked in, when known.
    pub cwd: Option<PathBuf>,
    /// `hook`, `command` or `sweep`; of a row of the ledger also `import`.
    pub origin: String,
    /// Why the session ended, in the client's word.
    pub reason: Option<String>,
}

/// How far a capture has come. A stage names the actor that works on it next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Announced; the transcript is to be read.
    Intake,
    /// The conversation is kept; knowledge is to be found in it.
    Extraction,
    /// Candidates are kept; their vectors are to be computed.
    Embedding,
    /// Vectors are kept; what the brain knows already is to be left out.
    Indexing,
    /// The units are kept; their branch is to be made.
    Git,
    /// The branch is there; the remote is to have it, with its pull request.
    Delivery,
}

impl Stage {
    pub const ALL: [Self; 6] =
        [Self::Intake, Self::Extraction, Self::Embedding, Self::Indexing, Self::Git, Self::Delivery];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Intake => "intake",
            Self::Extraction => "extraction",
            Self::Embedding => "embedding",
            Self::Indexing => "indexing",
            Self::Git => "git",
            Self::Delivery => "delivery",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Stage {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL
            .into_iter()
            .find(|stage| stage.as_str() == text)
            .ok_or_else(|| Error::Value { what: format!("stage {text:?}") })
    }
}

/// How a capture ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Its units are on a branch, and where there is a remote, there with their pull request.
    Done,
    /// The session held nothing worth keeping.
    Nothing,
    /// It failed too often, or in a way that no retry mends.
    Dead,
}

impl Outcome {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Nothing => "nothing",
            Self::Dead => "dead",
        }
    }
}

/// What a person sees of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Queued,
    Running,
    /// It has failed and waits for its next attempt.
    Retrying,
    Done,
    Nothing,
    Dead,
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::Done => "done",
            Self::Nothing => "nothing",
            Self::Dead => "dead",
        }
    }

    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Nothing | Self::Dead)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What has become of a capture's pull request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullState {
    Open,
    /// Its knowledge is on the default branch, with a pull request or without one.
    Merged,
    /// A person has said no, or it had become empty.
    Closed,
}

impl PullState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Merged => "merged",
            Self::Closed => "closed",
        }
    }
}

impl fmt::Display for PullState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for PullState {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        [Self::Open, Self::Merged, Self::Closed]
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| Error::Value { what: format!("state of a pull request {text:?}") })
    }
}

/// A row of the ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capture {
    pub id: i64,
    pub session_id: SessionId,
    pub transcript: PathBuf,
    pub cwd: Option<PathBuf>,
    pub origin: String,
    pub state: State,
    pub stage: Stage,
    /// At the present stage; counted as a job is claimed, before the work.
    pub attempts: u32,
    pub branch: Option<String>,
    pub commit: Option<String>,
    pub units: u32,
    /// The commit that the remote is known to have.
    pub pushed: Option<String>,
    pub pull_number: Option<u64>,
    pub pull_url: Option<String>,
    /// `None` until there is a pull request; where the remote knows none, until the branch is merged.
    pub pull_state: Option<PullState>,
    /// Why there is nothing to save, or what went wrong last.
    pub reason: Option<String>,
    pub added: Timestamp,
    pub started: Option<Timestamp>,
    pub finished: Option<Timestamp>,
    /// When a retrying capture is tried next.
    pub next_attempt: Option<Timestamp>,
}

/// A capture in the hands of a stage.
#[derive(Clone, Debug)]
pub struct Claim {
    pub capture: Capture,
    /// What the stage before has kept, empty for the first.
    pub input: Vec<u8>,
    /// Tells this claim from any later one of the same capture.
    pub(crate) token: i64,
}

/// How a stage ends a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    Done { branch: String, commit: String, units: u32 },
    Nothing { reason: String },
    Dead { reason: String },
}

/// How many captures are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    pub queued: u64,
    pub running: u64,
    pub retrying: u64,
    pub done: u64,
    pub nothing: u64,
    pub dead: u64,
}

impl Tally {
    /// Captures that still need a drainer.
    pub fn unfinished(&self) -> u64 {
        self.queued + self.running + self.retrying
    }
}
