//! The data that is kept of a session.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::discover::FileStamp;

/// The result of reading a transcript.
#[derive(Clone, Debug, Default)]
pub struct ParsedTranscript {
    /// What was said and done.
    pub conversation: Conversation,
    /// What became of each line.
    pub counts: LineCounts,
    /// The `uuid` of every line that was taken, in the order of the file. `known` must return `true` for
    /// them when the file is read again.
    pub lines: Vec<String>,
    /// The file's stamp when it was opened; `None` for a stream.
    pub stamp: Option<FileStamp>,
    /// Whether the project's `.nuggetignore` covers everything; then nothing was taken.
    pub is_ignored: bool,
}

/// A session as a sequence of events: who said what, which tools ran, and their results. Every text is
/// redacted and free of hidden characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    /// The session's id.
    pub session_id: String,
    /// The name of the folder that the session was started in.
    pub project: Option<String>,
    /// That folder as an absolute path on the machine that the session ran on.
    pub cwd: Option<String>,
    /// The time of the earliest line that was taken.
    pub started: Option<Timestamp>,
    /// The time of the latest line that was taken.
    pub ended: Option<Timestamp>,
    /// What happened, in the order of the file.
    pub events: Vec<Event>,
    /// What nugget told the session. It was not learned there, so it is no event, but an extractor needs it
    /// to distinguish recalled from new knowledge.
    #[serde(default)]
    pub recalled: Vec<String>,
    /// What hooks other than nugget's added to the session, which was not learned there either.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hook_texts: Vec<String>,
}

impl Conversation {
    /// What people said, in order: the texts that they typed, their answers and the notes on these.
    pub fn human_words(&self) -> impl Iterator<Item = &str> {
        self.events.iter().flat_map(|event| event.kind.human_words())
    }
}

/// One event of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The `uuid` of its line in the transcript. One line may hold several events.
    pub line: String,
    /// When it happened.
    pub at: Option<Timestamp>,
    /// Whether a subagent did it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sidechain: bool,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened in an [`Event`].
///
/// The model's thinking is not kept: it is often absent, never shown to the person, and full of guesses
/// that the session later refutes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum EventKind {
    /// A person's own words, never shortened.
    Human {
        /// The words.
        text: String,
    },
    /// A person's answer to a question of the model (`AskUserQuestion`), in place of the call and its result.
    Choice {
        /// What the model asked.
        question: String,
        /// The question's subject in a word or two.
        header: String,
        /// The answers that the model offered.
        options: Vec<ChoiceOption>,
        /// What the person answered: the label of an option, several of them joined by `, `, or the person's
        /// own words, never shortened.
        answer: String,
        /// What the person added to the answer; empty if nothing, and never shortened.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        notes: String,
    },
    /// An answer of the model, or what a subagent or a background task reported to it.
    Assistant {
        /// The answer.
        text: String,
    },
    /// A call of a tool by the model, or by a person with `!`.
    ToolCall {
        /// The call's id.
        id: String,
        /// The tool's name.
        name: String,
        /// One line: the tool and its main argument.
        summary: String,
        /// The arguments that are kept.
        input: ToolInput,
        /// Whether a person called it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_human: bool,
    },
    /// The result of a tool call.
    ToolResult {
        /// The call's id.
        id: String,
        /// False if the tool reported a failure, or the call was refused or interrupted.
        ok: bool,
        /// A command's exit code, if the client recorded it.
        exit_code: Option<i32>,
        /// The output; of a long one the head and the tail.
        output: String,
    },
}

impl EventKind {
    /// What a person said in it; nothing if it was not done by a person.
    pub fn human_words(&self) -> impl Iterator<Item = &str> {
        let words = match self {
            Self::Human { text } => [text.as_str(), ""],
            Self::Choice { answer, notes, .. } if answer.trim() == notes.trim() => [answer.as_str(), ""],
            Self::Choice { answer, notes, .. } => [answer.as_str(), notes.as_str()],
            Self::Assistant { .. } | Self::ToolCall { .. } | Self::ToolResult { .. } => ["", ""],
        };
        words.into_iter().filter(|words| !words.is_empty())
    }

    /// Whether a person said it.
    pub fn is_human(&self) -> bool {
        matches!(self, Self::Human { .. } | Self::Choice { .. })
    }
}

/// One of the answers that the model offered with a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChoiceOption {
    /// A few words, which are the answer if the person chose it.
    pub label: String,
    /// What the choice would mean.
    #[serde(default)]
    pub description: String,
}

/// The parts of a tool's input that say what was done, each cut to a few kilobytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolInput {
    /// A shell command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The file's path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The text that an edit removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
    /// The text that an edit or a new file added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
    /// A query, a pattern, an address or a prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
}

/// How the lines of a transcript were classified:
/// `lines == conversation + sum of skipped_kinds + malformed + own + known`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineCounts {
    /// All bytes that were read, including the unfinished tail.
    pub bytes: u64,
    /// Lines that end with a line feed.
    pub lines: u64,
    /// Lines with events.
    pub conversation: u64,
    /// Lines that are not part of the conversation, by `type` or `type/subtype`.
    pub skipped_kinds: BTreeMap<String, u64>,
    /// Lines that could not be understood.
    pub malformed: u64,
    /// Why lines were malformed; the sum is `malformed`.
    pub malformed_reasons: BTreeMap<String, u64>,
    /// Lines from nugget or another hook, and calls of nugget with their results.
    pub own: u64,
    /// Lines that were captured before, or that occur twice in this file.
    pub known: u64,
    /// The bytes after the last line feed: a line that is still being written.
    pub partial_tail_bytes: u64,
}

impl LineCounts {
    /// The number of lines that are not part of the conversation.
    pub fn skipped(&self) -> u64 {
        self.skipped_kinds.values().sum()
    }
}
