//! A capture, its stages and its states.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use jiff::Timestamp;
use knowledge::SessionId;
use serde::{Deserialize, Serialize};

use crate::Error;

/// How often one stage of a capture is attempted before the capture fails for good (a dead letter).
pub const ATTEMPTS_MAX: u32 = 5;

/// The origin of captures that the client's hook announced.
pub const ORIGIN_HOOK: &str = "hook";
/// The origin of captures that a person asked for.
pub const ORIGIN_COMMAND: &str = "command";
/// The origin of captures that a sweep added.
pub const ORIGIN_SWEEP: &str = "sweep";
/// The origin of a branch that an import made.
pub const ORIGIN_IMPORT: &str = "import";
/// The origin of a branch with a person's edit or removal of a unit.
pub const ORIGIN_EDIT: &str = "edit";
/// The origin of a branch with notes that agents wrote.
pub const ORIGIN_NOTES: &str = "notes";
/// The origin of a branch that the reflection pass made.
pub const ORIGIN_REFLECTION: &str = "reflection";
/// All origins of captures and branches.
pub const ORIGINS: [&str; 7] =
    [ORIGIN_HOOK, ORIGIN_COMMAND, ORIGIN_SWEEP, ORIGIN_IMPORT, ORIGIN_EDIT, ORIGIN_NOTES, ORIGIN_REFLECTION];

/// A request to capture a session's transcript.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// The session, as Claude Code names it.
    pub session: SessionId,
    /// The transcript's path.
    pub transcript: PathBuf,
    /// The folder that the session worked in, if known.
    pub cwd: Option<PathBuf>,
    /// One of [`ORIGINS`].
    pub origin: String,
    /// Why the session ended, in the client's words.
    pub reason: Option<String>,
}

impl Announcement {
    /// An announcement of which neither the folder nor the reason for the end is known.
    pub fn new(session: SessionId, transcript: impl Into<PathBuf>, origin: &str) -> Self {
        Self { session, transcript: transcript.into(), cwd: None, origin: origin.to_owned(), reason: None }
    }
}

/// How far a capture has come. A stage names the actor that works on the capture next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Announced; the transcript must be read.
    Intake,
    /// The conversation is stored; a team's server must be given it, which does the rest.
    Upload,
    /// The conversation is stored; knowledge must be extracted from it.
    Extraction,
    /// Candidates are stored; their vectors must be computed.
    Embedding,
    /// Vectors are stored; candidates that the brain already knows must be removed.
    Indexing,
    /// The units are stored; their branch must be created.
    Git,
    /// The branch exists; it must be pushed, and its pull request opened.
    Delivery,
}

impl Stage {
    /// All stages, in the order that a capture passes them: after intake a team's server, or the others here.
    pub const ALL: [Self; 7] = [
        Self::Intake,
        Self::Upload,
        Self::Extraction,
        Self::Embedding,
        Self::Indexing,
        Self::Git,
        Self::Delivery,
    ];

    /// The name that is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Intake => "intake",
            Self::Upload => "upload",
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

/// The state of a capture as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It waits for its first attempt at its stage.
    Queued,
    /// A worker has claimed it.
    Running,
    /// Its last attempt failed, and it waits for the next one.
    Retrying,
    /// Ended: its units are on a branch and, if there is a remote, pushed with a pull request.
    Done,
    /// Ended: the session held nothing worth saving.
    Nothing,
    /// Ended: it failed too often, or in a way that no retry can fix.
    Dead,
}

impl State {
    /// The name that is shown.
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

    /// Whether the capture has ended.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Nothing | Self::Dead)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The state of a capture's pull request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullState {
    /// It waits for review.
    Open,
    /// Its knowledge is on the default branch, with or without a pull request.
    Merged,
    /// A person rejected it, or it became empty.
    Closed,
}

impl PullState {
    /// The name that is stored and shown.
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

/// A row of the queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capture {
    /// Its number, unique within the queue and never reused.
    pub id: i64,
    /// The session that is captured.
    pub session_id: SessionId,
    /// The session's transcript.
    pub transcript: PathBuf,
    /// The folder that the session worked in, if known.
    pub cwd: Option<PathBuf>,
    /// `hook`, `command`, `sweep`, `import` or `edit`.
    pub origin: String,
    /// Its state.
    pub state: State,
    /// The stage that works on it next, or at which it ended.
    pub stage: Stage,
    /// Attempts at the present stage; counted when the capture is claimed, before the work.
    pub attempts: u32,
    /// The branch with its units.
    pub branch: Option<String>,
    /// The branch's commit.
    pub commit: Option<String>,
    /// How many units are on the branch.
    pub units: u32,
    /// The last commit that is known to be on the remote.
    pub pushed: Option<String>,
    /// The pull request's number.
    pub pull_number: Option<u64>,
    /// The pull request's address.
    pub pull_url: Option<String>,
    /// `None` until there is a pull request or, on a remote without pull requests, until the branch is merged.
    pub pull_state: Option<PullState>,
    /// Why there is nothing to save, or the last error.
    pub reason: Option<String>,
    /// When it was announced.
    pub added: Timestamp,
    /// When it was first claimed.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub finished: Option<Timestamp>,
    /// When a capture that was retried, or that waits for what others do, is attempted next.
    pub next_attempt: Option<Timestamp>,
}

/// A capture that a stage has claimed.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The capture as it was when it was claimed.
    pub capture: Capture,
    /// What the previous stage stored; empty for the first stage.
    pub input: Vec<u8>,
    /// Distinguishes this claim from later claims of the same capture.
    pub token: i64,
}

/// How a stage ends a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// Its units are on this branch.
    Done(Branch),
    /// A team's server has it, and does the rest.
    Uploaded {
        /// What the server calls it, for people.
        receipt: String,
    },
    /// There is nothing to save.
    Nothing {
        /// Why, for people.
        reason: String,
    },
    /// No retry can help.
    Dead {
        /// The error.
        reason: String,
    },
}

/// The branch that holds a capture's units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The branch's name.
    pub name: String,
    /// Its commit.
    pub commit: String,
    /// How many units are on it.
    pub units: u32,
}

/// A capture's pull request, as last read from the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullRequest {
    /// Its number.
    pub number: u64,
    /// Its address.
    pub url: String,
    /// Its state.
    pub state: PullState,
}

/// Number of captures in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// See [`State::Queued`].
    pub queued: u64,
    /// See [`State::Running`].
    pub running: u64,
    /// See [`State::Retrying`].
    pub retrying: u64,
    /// See [`State::Done`].
    pub done: u64,
    /// See [`State::Nothing`].
    pub nothing: u64,
    /// See [`State::Dead`].
    pub dead: u64,
}

impl Tally {
    /// Captures that have not ended.
    pub fn unfinished(&self) -> u64 {
        self.queued + self.running + self.retrying
    }
}
