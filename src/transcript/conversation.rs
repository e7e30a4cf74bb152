//! What is kept of a session.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::discover::FileStamp;

/// What one reading of a transcript gave.
#[derive(Clone, Debug, Default)]
pub struct ParsedTranscript {
    pub conversation: Conversation,
    pub tally: LineCounts,
    /// The `uuid` of every line that was taken now, in the order of the file; what `known` must
    /// answer `true` for at the next reading.
    pub lines: Vec<String>,
    /// What the file was like as it was opened; `None` for a stream.
    pub stamp: Option<FileStamp>,
    /// Whether the project's `.nuggetignore` covers all of it: then nothing was taken.
    pub is_ignored: bool,
}

/// A session as people would tell it: who said what, which tools ran, how that went. Every text in
/// it is redacted and free of hidden characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    pub session_id: String,
    /// The name of the folder that the session was started in.
    pub project: Option<String>,
    /// That folder, as an absolute path of the machine that the session ran on.
    pub cwd: Option<String>,
    /// When the first line that was taken was written, and the last.
    pub started: Option<Timestamp>,
    pub ended: Option<Timestamp>,
    pub events: Vec<Event>,
    /// What nugget and other hooks put into the session: not learned in it, so never an event, but
    /// an extractor must know it to tell what was recalled from what is new.
    #[serde(default)]
    pub recalled: Vec<String>,
}

impl Conversation {
    /// What people typed, in order.
    pub fn human_words(&self) -> impl Iterator<Item = &str> {
        self.events.iter().filter_map(|event| match &event.kind {
            EventKind::Human { text } => Some(text.as_str()),
            _ => None,
        })
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The `uuid` of its line in the transcript. One line may hold several events.
    pub line: String,
    pub at: Option<Timestamp>,
    /// Whether a subagent did it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sidechain: bool,
    #[serde(flatten)]
    pub kind: EventKind,
}

/// The model's thinking is not kept: it is often absent, never shown to the person, and full of
/// guesses that the session later refutes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum EventKind {
    /// A person's own words, never cut.
    Human { text: String },
    /// What the model answered.
    Assistant { text: String },
    /// A tool that the model, or a person with `!`, called.
    ToolCall {
        id: String,
        name: String,
        /// One line: the tool and what it was called with.
        summary: String,
        input: ToolInput,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_human: bool,
    },
    /// What came of the call with the same id.
    ToolResult {
        id: String,
        /// False when the tool says that it failed, or was refused or interrupted.
        ok: bool,
        /// A command's, where the client told it.
        exit_code: Option<i32>,
        /// Its head and its tail if it was long.
        output: String,
    },
}

/// The parts of a tool's input that tell what was done, each cut to a few kilobytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolInput {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What an edit took out, and what it or a newly written file put in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
    /// A query, a pattern, an address or a prompt, for the tools that take one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
}

/// Where every line went:
/// `lines == conversation + skipped_kinds' sum + malformed + own + known`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineCounts {
    /// All bytes seen, the unfinished tail included.
    pub bytes: u64,
    /// Lines that end with a line feed.
    pub lines: u64,
    /// Lines that gave events.
    pub conversation: u64,
    /// Lines that are no conversation, by `type` or `type/subtype`.
    pub skipped_kinds: BTreeMap<String, u64>,
    pub malformed: u64,
    /// Why they were malformed; the sum is `malformed`.
    pub malformed_reasons: BTreeMap<String, u64>,
    /// What nugget or another hook put in, nugget's own calls and answers.
    pub own: u64,
    /// Lines captured before, or that stand twice in this file.
    pub known: u64,
    /// The bytes after the last line feed: a line that is still being written.
    pub partial_tail_bytes: u64,
}

impl LineCounts {
    /// The lines that were skipped as no conversation.
    pub fn skipped(&self) -> u64 {
        self.skipped_kinds.values().sum()
    }
}
