//! What the archive needs of a client's transcripts, whatever their form.

use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use transcript::{FileStamp, Ignore};

use crate::record::{Message, Request, SessionFacts};

/// Tool outputs are kept to about this many bytes, head and tail, unless the settings say otherwise.
pub const OUTPUT_BYTES_MAX: usize = 16 << 10;

/// How much of a failed call's output is part of its result's words, so that a search finds it.
const ERROR_BYTES_MAX: usize = 2 << 10;

/// The beginning of a failed call's output: where it says what failed. Outputs are not searched otherwise.
pub(crate) fn error_words(output: &str) -> &str {
    output[..output.floor_char_boundary(ERROR_BYTES_MAX)].trim()
}

/// The transcripts of one client.
///
/// An implementation lists files and classifies lines. It never decides what is stored, and does not keep track of
/// positions.
pub trait TranscriptSource: Sync {
    /// The client's name, which is stored with each session.
    fn name(&self) -> &'static str;

    /// The folders that transcripts are looked for in, whether or not they exist.
    fn folders(&self) -> Vec<PathBuf>;

    /// Lists the transcripts on disk, in no order.
    fn discover(&self) -> Vec<FileStamp>;

    /// Reads the beginning of a transcript.
    ///
    /// # Errors
    /// When the file cannot be read.
    fn head(&self, path: &Path) -> io::Result<TranscriptHead>;

    /// A reader of the lines of one transcript. `state` is what [`LineReader::state`] gave where the last reader
    /// stopped; empty at the beginning.
    fn reader(&self, context: ReaderContext, state: &str) -> Box<dyn LineReader>;
}

/// What the beginning of a transcript says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TranscriptHead {
    /// The session's id, unique among the client's sessions.
    pub session: String,
    /// Of a subagent: the session that called it.
    pub parent: Option<String>,
    /// The folder that the session began in.
    pub cwd: Option<String>,
    /// Whether a person or a model said anything.
    pub has_conversation: bool,
}

/// What the reader of a transcript's lines is told.
#[derive(Clone, Debug)]
pub struct ReaderContext {
    /// The files whose contents must not be read.
    pub ignore: Ignore,
    /// About how many bytes of a tool's output are kept.
    pub output_bytes_max: usize,
}

impl Default for ReaderContext {
    fn default() -> Self {
        Self { ignore: Ignore::default(), output_bytes_max: OUTPUT_BYTES_MAX }
    }
}

/// Reads the lines of one transcript, one after the other.
pub trait LineReader {
    /// Classifies a line, without its line feed. What it tells of the session goes to `facts`.
    fn read(&mut self, line: &[u8], facts: &mut SessionFacts) -> LineRead;

    /// What the reader of the next lines must know.
    fn state(&self) -> String;
}

/// The class of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineRead {
    /// It says or does something.
    Message(Box<Message>),
    /// Files that the client has recorded as changed.
    ChangedFiles(Vec<String>),
    /// The tokens of a call of a model, where no line of its answer has them.
    Request {
        /// When it ended.
        at: Option<Timestamp>,
        /// The tokens.
        request: Box<Request>,
    },
    /// It is known, and nothing of it is kept but what it told of the session.
    Skipped,
    /// Its type is not known.
    Unknown {
        /// The type, as the line names it.
        kind: String,
    },
    /// It cannot be understood.
    Malformed {
        /// Why not.
        reason: &'static str,
    },
}

/// The type of a line as it is counted. It comes from the file, so a long or unusual one, and a secret, becomes `other`.
pub(crate) fn unknown(kind: &str) -> LineRead {
    let is_plain = kind.len() <= 64
        && kind.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/' | '.'));
    let is_plain = is_plain && transcript::clean(kind) == kind;
    LineRead::Unknown { kind: if is_plain { kind } else { "other" }.to_owned() }
}
