//! Reads what Claude Code wrote about a session and keeps what people and tools said in it.
//!
//! The format is not ours and changes with every release of the client, so nothing in a transcript
//! is ever fatal: a line that is not understood is counted and passed over. Nothing is written here,
//! and no secret that [`redact`] knows leaves this crate.

mod clean;
mod conversation;
mod discover;
mod exclude;
mod ignore;
mod json_scan;
mod line;
mod reader;
pub mod redact;

pub use self::ignore::Ignore;
pub use clean::whole as clean;
pub use conversation::{Conversation, Event, EventKind, LineCounts, ParsedTranscript, ToolInput};
pub use discover::{FOUND_MAX, FileStamp, Head, client_folder, discover, read_head};
pub use exclude::Exclude;
pub use reader::{Error, LINE_BYTES_MAX, read, read_tail};

#[cfg(test)]
mod tests;
