//! What the server needs of the database's side, as traits. Every method may block, and is called on a thread that may.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};
use team_client::{BrainRepository, CaptureKey, TeamAnswer};

use mcp::context_tool::Task;

/// The implementations that one server works with.
#[derive(Clone)]
pub struct Parts {
    /// Who a token belongs to.
    pub access: Arc<dyn Access>,
    /// Where captures are stored.
    pub captures: Arc<dyn Captures>,
    /// Who answers questions.
    pub questions: Arc<dyn Questions>,
    /// Whether the database is well.
    pub health: Arc<dyn Health>,
}

/// The database's side cannot answer now: 503 for the client.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct Unavailable {
    /// What is missing, for the log. Never sent to a client.
    pub what: String,
    /// When a client is to try again.
    pub retry_after: Duration,
    /// What it came from.
    #[source]
    pub source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The id of a brain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BrainId(pub i32);

/// The id of a stored capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CaptureId(pub i64);

/// A brain that a token may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Brain {
    /// Its id.
    pub id: BrainId,
    /// Its name in addresses, unique on the server.
    pub slug: String,
}

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Ask questions.
    Read,
    /// Hand captures over, and see what became of them.
    Capture,
    /// See the metrics.
    Admin,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 3] = [Self::Read, Self::Capture, Self::Admin];

    /// Its name in tokens and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Capture => "capture",
            Self::Admin => "admin",
        }
    }
}

/// Who a valid token belongs to, and what it may do.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The person or the machine.
    pub subject: String,
    /// The brains that it may use. All others do not exist for it.
    pub brains: Vec<Brain>,
    /// What it may do with them.
    pub scopes: Vec<Scope>,
    /// When the token expires, to be shown: [`Access`] has checked it.
    pub expires: Option<Timestamp>,
}

/// What an opaque token stands for.
#[derive(Clone, Debug)]
pub enum FoundToken {
    /// Who it belongs to.
    Valid(Identity),
    /// It was revoked.
    Revoked,
    /// Its time is over.
    Expired,
}

/// The digest under which an opaque token is stored: BLAKE3 of the whole token, `ngt_` included.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash(pub [u8; 32]);

impl TokenHash {
    /// The digest of a token.
    pub fn from_token(token: &str) -> Self {
        Self(*blake3::hash(token.as_bytes()).as_bytes())
    }
}

/// Not the digest, which a log has no use for.
impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

/// The claims of a JWT whose signature, issuer, audience and times were checked.
#[derive(Clone, Debug)]
pub struct Claims {
    /// `iss`
    pub issuer: String,
    /// `sub`
    pub subject: String,
    /// `exp`
    pub expires: Timestamp,
    /// All of them.
    pub all: Map<String, Value>,
}

/// What a request did, for the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Asked a question.
    Ask,
    /// Was refused: its token has not the scope, or not the brain.
    Refused,
}

/// One line of the record of who did what.
#[derive(Clone, Debug)]
pub struct AuditEvent {
    /// When.
    pub at: Timestamp,
    /// Whose token.
    pub subject: String,
    /// What.
    pub action: Action,
    /// The brain, if it is one of the token's.
    pub brain: Option<BrainId>,
}

/// Tokens, and the record of their use.
pub trait Access: Send + Sync {
    /// What an opaque token stands for, or `None` if there is no such token.
    ///
    /// # Errors
    /// [`Unavailable`] if it cannot be looked up.
    fn find_token(&self, hash: &TokenHash) -> Result<Option<FoundToken>, Unavailable>;

    /// The identity that a JWT's claims stand for, or `None` if they stand for none.
    ///
    /// # Errors
    /// [`Unavailable`] if it cannot be looked up.
    fn find_claims(&self, claims: &Claims) -> Result<Option<Identity>, Unavailable>;

    /// The repositories of brains, as they may be shown to who has their token.
    ///
    /// # Errors
    /// [`Unavailable`] if they cannot be looked up.
    fn repositories(&self, brains: &[Brain]) -> Result<Vec<BrainRepository>, Unavailable>;

    /// Records who did what. A failure is for the implementation to log.
    fn audit(&self, event: &AuditEvent);
}

/// A capture whose fields, key and digest were checked.
#[derive(Clone, Debug)]
pub struct NewCapture {
    /// The key: the same key in the same brain is the same capture.
    pub key: CaptureKey,
    /// The session's id.
    pub session: String,
    /// The project: a folder or a repository's URL.
    pub project: Option<String>,
    /// Where the session ran.
    pub origin: Option<String>,
    /// Why the session ended.
    pub end_reason: Option<String>,
    /// When it ended.
    pub ended: Timestamp,
    /// The uuids of its lines.
    pub lines: Vec<String>,
    /// What the intake stored. Opaque here: to be parsed with care.
    pub intake: Vec<u8>,
}

/// What is known of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureState {
    /// Its id.
    pub id: CaptureId,
    /// The brain's slug.
    pub brain: String,
    /// Its stage, or how it ended: one word.
    pub state: String,
}

/// Why a capture is not stored.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// It contradicts what is stored: 409. The sentence is sent to the client.
    #[error("{0}")]
    Conflict(String),
    /// It can never be stored: 422. The sentence is sent to the client.
    #[error("{0}")]
    Unacceptable(String),
    /// Its brain was removed meanwhile: 404.
    #[error("there is no such brain")]
    UnknownBrain,
    /// Not now: 503.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// The store of captures.
pub trait Captures: Send + Sync {
    /// Stores a capture so that it survives a crash, with the record of who handed it over, and returns its state and
    /// whether it was new. The same key again changes nothing.
    ///
    /// # Errors
    /// [`CaptureError`] says which answer the client gets.
    fn accept(
        &self,
        identity: &Identity,
        brain: &Brain,
        capture: NewCapture,
    ) -> Result<(CaptureState, bool), CaptureError>;

    /// A capture of one of the identity's brains. `None` for any other.
    ///
    /// # Errors
    /// [`Unavailable`] if it cannot be looked up.
    fn find(&self, identity: &Identity, id: CaptureId) -> Result<Option<CaptureState>, Unavailable>;
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QuestionError {
    /// The brain cannot be asked yet. The sentence is sent to the client's model.
    #[error("{0}")]
    NotReady(String),
    /// Not now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// Answers questions.
pub trait Questions: Send + Sync {
    /// The answer to a task, from one of the identity's brains and nothing else.
    ///
    /// # Errors
    /// [`QuestionError`] becomes an error of the tool.
    fn answer(&self, identity: &Identity, brain: &Brain, task: &Task) -> Result<TeamAnswer, QuestionError>;
}

/// A number for `/metrics`.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name in Prometheus' style: `nugget_queue_age_seconds`.
    pub name: &'static str,
    /// One sentence on it.
    pub help: &'static str,
    /// Whether it only ever grows.
    pub is_counter: bool,
    /// Names and values. Never a text, a token or a session's id.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: f64,
}

/// The state of what the server depends on.
pub trait Health: Send + Sync {
    /// Whether requests can be answered.
    ///
    /// # Errors
    /// [`Unavailable`] says for the log what is missing.
    fn ready(&self) -> Result<(), Unavailable>;

    /// The numbers of the database's side.
    fn metrics(&self) -> Vec<Metric>;
}
