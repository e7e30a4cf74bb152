//! The session archive: what sessions said and did, kept when the client has deleted its transcripts, and found again.
//!
//! One SQLite database for each user, `archive.db` in the state folder. [`Archive::sync`] takes what is new in
//! transcripts, [`Archive::search`] and its sisters read. It never removes anything because a file is gone, never sends
//! anything anywhere, and nothing that [`transcript::redact`] recognises as a secret reaches the database.
//!
//! ```
//! use archive::{Archive, ClaudeCode, Markers, SearchQuery, SyncSettings};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let client = folder.path().join("client");
//! # let state = folder.path().join("state");
//! # std::fs::create_dir_all(client.join("projects/-home-you-shop"))?;
//! let transcript = client.join("projects/-home-you-shop/5a3b7c1e-0000-4000-8000-000000000001.jsonl");
//! let line = r#"{"type":"user","uuid":"5a3b7c1e-0000-4000-8000-00000000000a","cwd":"/home/you/shop",
//!     "message":{"role":"user","content":"why is each invoice mailed twice?"}}"#;
//! std::fs::write(&transcript, line.replace('\n', "") + "\n")?;
//!
//! let archive = Archive::open(&state.join(archive::FILE_NAME))?;
//! let summary = archive.sync(&[&ClaudeCode::new(vec![client])], &SyncSettings::new(&state))?;
//! assert_eq!((summary.sessions_new, summary.messages), (1, 1));
//!
//! // The client deletes transcripts after 30 days. The archive does not.
//! std::fs::remove_file(&transcript)?;
//! let query = SearchQuery { text: "mailed invoices".into(), limit: 10, ..SearchQuery::default() };
//! let found = archive.search(&query, Markers { before: "[", after: "]" })?;
//! assert_eq!(found.hits[0].snippet, "why is each [invoice] [mailed] twice?");
//! assert_eq!(found.hits[0].session.cwd, "/home/you/shop");
//! # Ok(())
//! # }
//! ```
//!
//! # What lies where
//!
//! The tables are in `schema.rs`. Where they differ from what one would write first, this is why:
//!
//! - **Texts lie compressed in blocks** of 64 KiB (`blobs`), several messages of one session together; a message has
//!   its place in one. Texts of a session repeat each other, so that together they take about half of what each would
//!   alone. zlib, because gix brings it anyway. A search unpacks one block for each hit, in well under a millisecond.
//! - **The words' index has no text** (FTS5 with `content = ''`): it would be kept twice otherwise. Snippets are made by
//!   indexing the few found messages once more in memory. Phrases need the positions of words, so these are kept;
//!   outputs of tools are not indexed, only a line about each call and the beginning of each error.
//! - **Tokens lie in `requests`**, one row for each call of a model: a client repeats them on each line of a streamed
//!   answer, and here they cannot be counted twice.
//! - **A message belongs to the first session that had it**; sessions that were resumed under a new id or forked have
//!   it in `shared_messages`, so that each reads whole and nothing is stored or counted twice.
//! - **A tool's output** over [`OUTPUT_BYTES_MAX`] is kept head and tail, with the length and the digest of the whole.
//!
//! # How it is fed
//!
//! Rows and `extraction_state` change in one transaction: after a kill the next sync goes on at the same line. A file
//! whose size and time are the same is not opened. One whose time alone, whose beginning or whose last bytes that were
//! read have changed is read again, and known messages are recognised by their `uuid`. A line that is still being
//! written is left for the next time. One process writes at a time, by the lock protocol of the queue
//! ([`queue::FileLocks`]); readers never wait.
//!
//! Other agents' transcripts are one more [`TranscriptSource`]. The crate `txcript` was weighed for that and not used:
//! it needs a newer Rust than this workspace, and converts whole sessions, where an archive reads on from an offset.
#![warn(missing_docs, clippy::missing_errors_doc)]

mod block;
mod claude_code;
mod codex;
mod conversation;
mod error;
mod feedback;
mod filter;
mod links;
mod memories;
mod model_findings;
mod overview;
mod project;
mod reader;
mod record;
mod records;
mod remove;
mod rename;
mod schema;
mod search;
mod sessions;
mod source;
mod store;
mod sync;
#[cfg(test)]
mod tests;
mod values;
mod vectors;
mod writer;

pub use claude_code::ClaudeCode;
pub use codex::Codex;
pub use conversation::read_conversation;
pub use error::Error;
pub use feedback::{
    ArchivedShown, ChangedScope, Citation, ExtractionOutcome, JudgedQuestion, Learned, Recalled,
    SHARED_SCOPE, SessionFailures, ShownUnit,
};
pub use filter::Filter;
pub use memories::{Embedded, Memory, MemoryQuery, MemoryVectors, NewMemory, Said, UnembeddedMemory};
pub use model_findings::ModelFindings;
pub use overview::{DayStats, Excerpt, FileCount, ModelStats, ProjectContext, Stats, Thread, ToolStats};
pub use project::{Project, current_branch, project_key, project_name, shown_key};
pub use record::{Message, MessageId, MessageKind, Request, Role, SessionFacts, ToolResult, ToolUse};
pub use records::{ChangedFile, Derivation, EditCall, NewRecord, Record, RecordQuery, Turn};
pub use remove::Removal;
pub use search::{ContextMessage, Markers, QuestionVector, SearchHit, SearchQuery, SearchResults};
pub use sessions::{Related, Session, ShownMessage, ShownTool, Tokens};
pub use source::{LineRead, LineReader, OUTPUT_BYTES_MAX, ReaderContext, TranscriptHead, TranscriptSource};
pub use store::{Archive, FILE_NAME};
pub use sync::{FailedFile, MalformedLine, Progress, SyncSettings, SyncSummary};
pub use values::Field;
pub use vectors::{Prepared, Unembedded, UnembeddedMessages};
