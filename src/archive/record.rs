//! What a line of a transcript becomes.

use std::ops::Range;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageKind {
    /// A person typed it.
    Prompt,
    /// Text of the model.
    Answer,
    /// Only what the model thought.
    Thinking,
    /// Only calls of tools.
    ToolCall,
    /// What tools returned.
    ToolResult,
    /// What the client put into the model's input: reminders, summaries, outputs of commands.
    Injected,
    /// What the client told the person.
    System,
}

/// Who is counted as the author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The model's input: prompts, tool results, what the client adds.
    User,
    /// The model.
    Assistant,
    /// The client.
    System,
}

impl MessageKind {
    const ALL: [Self; 7] = [
        Self::Prompt,
        Self::Answer,
        Self::Thinking,
        Self::ToolCall,
        Self::ToolResult,
        Self::Injected,
        Self::System,
    ];

    pub(crate) fn number(self) -> i64 {
        self as i64
    }

    pub(crate) fn from_number(number: i64) -> Self {
        usize::try_from(number).ok().and_then(|at| Self::ALL.get(at).copied()).unwrap_or(Self::Injected)
    }

    /// Who is counted as its author.
    pub fn role(self) -> Role {
        match self {
            Self::Prompt | Self::ToolResult | Self::Injected => Role::User,
            Self::Answer | Self::Thinking | Self::ToolCall => Role::Assistant,
            Self::System => Role::System,
        }
    }
}

impl Role {
    /// The messages that it wrote itself. What tools return and what the client adds goes to the model as the user's,
    /// and is none of a person's words.
    pub(crate) fn written(self) -> &'static [MessageKind] {
        match self {
            Self::User => &[MessageKind::Prompt],
            Self::Assistant => &[MessageKind::Answer, MessageKind::Thinking, MessageKind::ToolCall],
            Self::System => &[MessageKind::System, MessageKind::Injected, MessageKind::ToolResult],
        }
    }

    /// Its name, as clients write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::System => "system",
        }
    }
}

/// The identity of a message, whatever files it was copied to: the 16 bytes of its `uuid`, or of its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageId(pub [u8; 16]);

impl MessageId {
    /// The bytes of a UUID in its usual form; of any other text a digest.
    pub fn parse(text: &str) -> Self {
        let mut bytes = [0; 16];
        let mut digits = text.bytes().filter(|byte| *byte != b'-').map(|byte| char::from(byte).to_digit(16));
        let is_uuid = text.len() == 36
            && bytes.iter_mut().all(|byte| match (digits.next().flatten(), digits.next().flatten()) {
                (Some(high), Some(low)) => {
                    *byte = (high << 4 | low) as u8;
                    true
                }
                _ => false,
            })
            && digits.next().is_none();
        if is_uuid { Self(bytes) } else { Self::digest(text.as_bytes()) }
    }

    /// The first 16 bytes of the digest.
    pub fn digest(bytes: &[u8]) -> Self {
        let mut first = [0; 16];
        first.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
        Self(first)
    }
}

/// The tokens of one call of a model. Lines of one answer repeat them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The id of the answer, which all of its lines share; the request's if it has none.
    pub key: String,
    /// The id that the provider gave the request.
    pub request_id: Option<String>,
    /// The model.
    pub model: String,
    /// Input tokens that were neither read from the cache nor written to it.
    pub input: u64,
    /// Tokens that the model wrote.
    pub output: u64,
    /// Input tokens that were read from the cache.
    pub cache_read: u64,
    /// Input tokens that were written to the cache.
    pub cache_write: u64,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolUse {
    /// The call's id.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// Its input as JSON, redacted and shortened.
    pub input: String,
}

/// What a tool returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    /// The call's id.
    pub id: String,
    /// Redacted; of a long one the head and the tail.
    pub output: String,
    /// Whether the tool failed, or the call was refused.
    pub is_error: bool,
    /// Length in bytes and digest of the whole output, if it was shortened.
    pub whole: Option<(u64, [u8; 16])>,
}

/// One line of a transcript that says or does something. Every text is redacted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its identity.
    pub id: MessageId,
    /// The message before it.
    pub parent: Option<MessageId>,
    /// What it is.
    pub kind: MessageKind,
    /// When it was written.
    pub at: Option<Timestamp>,
    /// What was said.
    pub content: String,
    /// What the model thought.
    pub thinking: String,
    /// A few words of each call of a tool, which a search finds.
    pub tool_words: String,
    /// The call of the model that it is part of.
    pub request: Option<Request>,
    /// Calls of tools.
    pub tool_uses: Vec<ToolUse>,
    /// What tools returned.
    pub tool_results: Vec<ToolResult>,
    /// The files that its calls change.
    pub changed_files: Vec<String>,
    /// The files of which a person changed what the model was about to write.
    pub tuned_files: Vec<String>,
}

impl Message {
    /// A message that says nothing yet.
    pub fn new(id: MessageId, kind: MessageKind) -> Self {
        Self {
            id,
            parent: None,
            kind,
            at: None,
            content: String::new(),
            thinking: String::new(),
            tool_words: String::new(),
            request: None,
            tool_uses: Vec::new(),
            tool_results: Vec::new(),
            changed_files: Vec::new(),
            tuned_files: Vec::new(),
        }
    }
}

/// What lines tell of their session. Later lines replace what earlier ones told, except the first prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFacts {
    /// The folder that it runs in.
    pub cwd: Option<String>,
    /// The branch that is checked out there.
    pub branch: Option<String>,
    /// The client's version.
    pub client_version: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// A title, or a summary in a line.
    pub title: Option<String>,
    /// The latest summaries in a line, the last first, each with the message that it ends with: a client writes those of
    /// other sessions, too.
    pub summaries: Vec<(MessageId, String)>,
}

/// A part of a text block.
pub(crate) type Part = Range<u32>;

/// A message whose texts lie in a block.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) message: Message,
    pub(crate) content: Part,
    pub(crate) thinking: Part,
    pub(crate) inputs: Vec<Part>,
    pub(crate) outputs: Vec<Part>,
}
