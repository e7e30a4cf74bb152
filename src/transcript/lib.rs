//! Reads Claude Code's session transcripts and keeps what people and tools said in them.
//!
//! The format is not ours and changes with every release of the client, so nothing in a transcript is
//! fatal: a line that is not understood is counted and skipped. This crate writes nothing, and no secret
//! that [`redact`] recognises leaves it.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("s1.jsonl");
//! let line = r#"{"type":"user","uuid":"u1","message":{"role":"user","content":"use tabs"}}"#;
//! std::fs::write(&path, format!("{line}\n"))?;
//!
//! let parsed = transcript::read(&path, &|_uuid| false)?;
//! assert_eq!(parsed.conversation.human_words().collect::<Vec<_>>(), ["use tabs"]);
//! assert_eq!((parsed.counts.lines, parsed.counts.conversation), (1, 1));
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs, clippy::missing_errors_doc)]

mod clean;
mod conversation;
mod discover;
mod exclude;
mod ignore;
mod ignored_calls;
pub mod json_scan;
mod line;
mod path;
mod plan;
mod question;
pub mod raw_json;
mod reader;
pub mod redact;
mod shell;

pub use self::ignore::{Ignore, read_text};
pub use clean::{clean, clean_and_cut, head_and_tail, without_marked};
pub use conversation::{
    ChoiceOption, Conversation, Event, EventKind, LineCounts, ParsedTranscript, ToolInput,
};
pub use discover::{
    FOUND_MAX, FileStamp, Head, LINE_BYTES_MAX, client_folder, discover, discover_with_subagents,
    has_only_bookkeeping_after, read_head,
};
pub use exclude::Exclude;
pub use ignored_calls::{IgnoredCalls, LEFT_OUT};
pub use line::{
    BACKGROUND_FIELDS, FILE_FIELDS, HELD, OWN_TOOLS, command_output, is_own_call, is_own_call_by_any_name,
    named_files, nonhuman_kind, typed_command, typed_text,
};
pub use path::without_dots;
pub use plan::approved_plan;
pub use question::{TOOL as QUESTION_TOOL, answered_questions};
pub use reader::{Error, Extent, for_each_line, is_whole, read, read_tail};

#[cfg(test)]
mod tests;
