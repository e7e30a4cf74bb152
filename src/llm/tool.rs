//! Requests for an answer in a given shape: the model is to call one tool, and the arguments of that call are the answer.

use serde_json::Value;

use crate::usage::Usage;

/// The tool that the model is to call; its schema is the shape of the answer.
#[derive(Clone, Debug)]
pub struct Tool {
    /// Its name in the request and in the answer.
    pub name: &'static str,
    /// What it does, for the model.
    pub description: &'static str,
    /// The JSON schema of an object. The server does not enforce it.
    pub schema: Value,
}

/// One request. System text and tool are the stable part: the server is asked to cache them.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The system text.
    pub system: &'a str,
    /// The tool that is forced, or offered if the model takes no forced tool.
    pub tool: &'a Tool,
    /// The user's message; it is redacted before it is sent.
    pub user: &'a str,
    /// The limit of the answer in tokens.
    pub output_tokens_max: u32,
}

/// The answer to a [`Request`], with its tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolAnswer {
    /// The model that answered. The request may name an alias without a date, the answer has the date.
    pub model: String,
    /// Why the model stopped.
    pub stop: Stop,
    /// The arguments of the tool call, not checked against the schema, or why there are none.
    pub input: Result<Value, String>,
    /// The tokens of the call.
    pub usage: Usage,
}

/// The text that a model wrote, with its tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Never empty.
    pub text: String,
    /// The tokens of the call.
    pub usage: Usage,
}

/// Why the model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The answer is complete.
    Done,
    /// The answer reached the token limit; the input may be cut anywhere.
    OutputLimit,
    /// Request and answer together exceed the context window.
    ContextFull,
    /// The model refused.
    Refusal,
}
