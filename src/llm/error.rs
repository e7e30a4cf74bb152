//! Errors of calls.

use std::time::Duration;

use crate::api::Api;

/// What servers say of a request that is longer than the model's context: Anthropic, OpenAI and vLLM, llama.cpp, Ollama,
/// LM Studio.
const TOO_LARGE: &[&str] = &[
    "too long",
    "too large",
    "context length",
    "context_length",
    "context size",
    "context window",
    "context the overflows",
    "n_ctx",
];

/// Why a call has no usable answer.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are named after what the message shows")]
pub enum Error {
    /// The key file is missing or not readable.
    #[error("failed to read the key file {path}")]
    KeyFile { path: String, source: std::io::Error },
    /// The HTTP client or its TLS provider failed to start.
    #[error("failed to set up the HTTP client")]
    Client(#[source] reqwest::Error),
    /// The key is not a valid header value.
    #[error("the key holds characters that no header may have")]
    Key,
    /// The deadline passed before the answer was complete.
    #[error("the model did not answer within {0:?}")]
    Deadline(Duration),
    /// The request or its answer was lost on the way.
    #[error("failed to reach the model")]
    Transport(#[source] reqwest::Error),
    /// There is no server at an address on this machine.
    #[error("no server answers at {url}")]
    NotRunning { url: String, source: reqwest::Error },
    /// The server does not have the model. `available` has the names of those that it has.
    #[error("the server at {url} has no model `{model}`")]
    UnknownModel { url: String, model: String, available: Vec<String> },
    /// The server answered with an error, and may have named a time for the next attempt. `kinds` has the error's `type`
    /// and `code`; `has_begun` is whether a part of the answer came before it.
    #[error("the model's server answered {status}: {message}")]
    Status {
        status: u16,
        kinds: Vec<String>,
        message: String,
        retry_after: Option<Duration>,
        has_begun: bool,
    },
    /// The server sent the request elsewhere, where it does not go: it carries the key.
    #[error("the model's server answered {status}: the request is sent on to {to}")]
    Redirect { status: u16, to: String },
    /// What answered is no model: a proxy, or the login page of a network.
    #[error("the answer is a web page and not the model's")]
    WebPage,
    /// The answer ended before it was complete, as when the server crashes.
    #[error("the model's answer ends before it is complete")]
    Incomplete,
    /// The answer is not what the API documents.
    #[error("the model's answer cannot be read: {0}")]
    Answer(String),
    /// The answer reached the token limit of the request.
    #[error("the model's answer was cut off at {0} tokens")]
    Truncated(u32),
    /// The server read only a part of the request.
    #[error("the server read only {0} tokens of the request")]
    InputCut(u64),
    /// The model refused to answer.
    #[error("the model declined to answer")]
    Refused,
}

impl Error {
    /// Whether the same request may succeed later.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Deadline(_) | Self::Transport(_) | Self::NotRunning { .. } | Self::Incomplete => true,
            _ if self.is_too_large() => false,
            // OpenAI answers 429 also when the account has no credit left.
            Self::Status { status: 429, .. } => !self.is_kind("insufficient_quota"),
            Self::Status { status, .. } => matches!(status, 408 | 500..=599),
            _ => false,
        }
    }

    /// Whether the same request may succeed once its cause is removed: a busy server has time again, or a person gives a
    /// valid key, the right address, a model that the server has, or credit. Not what is about the request itself.
    pub fn is_curable(&self, api: Api) -> bool {
        match self {
            _ if self.is_too_large() => false,
            // The Claude API says with this type that the credit is used up, too.
            Self::Status { status: 400, .. } => {
                self.is_kind("billing_error")
                    || (api == Api::Messages && self.is_kind("invalid_request_error"))
            }
            Self::Status { status, .. } => *status != 422,
            Self::KeyFile { .. }
            | Self::Key
            | Self::UnknownModel { .. }
            | Self::Redirect { .. }
            | Self::WebPage => true,
            _ => self.is_temporary(),
        }
    }

    /// The error at its place in a stream of events.
    pub(crate) fn after_events(mut self, has_events: bool) -> Self {
        if let Self::Status { has_begun, .. } = &mut self {
            *has_begun = has_events;
        }
        self
    }

    fn is_kind(&self, kind: &str) -> bool {
        matches!(self, Self::Status { kinds, .. } if kinds.iter().any(|named| named == kind))
    }

    /// How long the server wants to be left alone, if it said so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Whether the request was longer than the model can read: a shorter one may succeed.
    pub fn is_too_large(&self) -> bool {
        match self {
            Self::InputCut(_) | Self::Status { status: 413, .. } => true,
            Self::Status { status: 400 | 422 | 500, message, .. } => {
                // "max_tokens is too large" is about the answer that is asked for.
                let message = message.to_ascii_lowercase().replace("tokens is too large", "");
                TOO_LARGE.iter().any(|words| message.contains(words))
            }
            _ => false,
        }
    }

    /// Whether the server may have charged for the request.
    pub fn may_have_cost(&self) -> bool {
        match self {
            Self::Deadline(_)
            | Self::Answer(_)
            | Self::Incomplete
            | Self::Truncated(_)
            | Self::InputCut(_)
            | Self::Refused => true,
            Self::Transport(error) => !error.is_connect(),
            Self::Status { has_begun, .. } => *has_begun,
            Self::KeyFile { .. }
            | Self::Client(_)
            | Self::Key
            | Self::NotRunning { .. }
            | Self::UnknownModel { .. }
            | Self::Redirect { .. }
            | Self::WebPage => false,
        }
    }
}

/// The error of an answer that is no JSON, or of one that was cut off.
pub(crate) fn not_parsed(error: &serde_json::Error) -> Error {
    if error.is_eof() { Error::Incomplete } else { Error::Answer(error.to_string()) }
}
