//! Reads the messages in a line, and says what is wrong with one that is none (JSON-RPC 2.0, section 5.1).

use std::collections::HashMap;

use knowledge::json::parse_lenient;
use rmcp::RoleServer;
use rmcp::model::{ClientRequest, ErrorCode, JsonRpcMessage};
use rmcp::service::RxJsonRpcMessage;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// A well-formed message of the client.
pub type Message = RxJsonRpcMessage<RoleServer>;

/// The requests that the server answers. Other methods are unknown, whatever their parameters are.
const METHODS: [&str; 5] = ["initialize", "server/discover", "ping", "tools/list", "tools/call"];

/// The error that answers a malformed message.
#[derive(Debug, PartialEq)]
pub struct Refusal {
    /// The request's, or null where none can be read.
    id: Value,
    code: ErrorCode,
    message: String,
}

impl Refusal {
    /// The refusal of something that is no request.
    pub fn invalid(id: Value, message: impl Into<String>) -> Self {
        Self { id, code: ErrorCode::INVALID_REQUEST, message: message.into() }
    }

    /// The message that answers it.
    pub fn to_json(&self) -> Value {
        json!({ "jsonrpc": "2.0", "id": self.id, "error": { "code": self.code, "message": self.message } })
    }
}

/// The messages in a line, or what is wrong with them; none for an empty line and for what is never answered. Each
/// message of a batch stands for itself.
pub fn parse(line: &[u8]) -> Vec<Result<Message, Refusal>> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() {
        return Vec::new();
    }
    let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
    match parse_lenient(line, |line| serde_json::from_slice(line)) {
        Ok(Value::Array(batch)) if !batch.is_empty() => batch.into_iter().filter_map(read).collect(),
        Ok(message) => read(message).into_iter().collect(),
        Err(error) => vec![Err(unreadable(line, &error))],
    }
}

/// What is wrong with a line that is no JSON, or JSON beyond what is read: numbers without end, or deep nesting.
fn unreadable(line: &[u8], error: &serde_json::Error) -> Refusal {
    match serde_json::from_slice::<HashMap<String, &RawValue>>(line) {
        Ok(members) => {
            let id = members.get("id").and_then(|id| serde_json::from_str(id.get()).ok());
            Refusal::invalid(echo(id.as_ref()), format!("the message cannot be read: {error}"))
        }
        Err(_) => Refusal {
            id: Value::Null,
            code: ErrorCode::PARSE_ERROR,
            message: format!("the line is not a JSON message: {error}"),
        },
    }
}

/// `None` for what is never answered: a notification that has no meaning here, and an answer, as the server asks
/// nothing.
fn read(message: Value) -> Option<Result<Message, Refusal>> {
    let Value::Object(mut message) = message else {
        return Some(Err(Refusal::invalid(Value::Null, "a message is a JSON object")));
    };
    let id = message.get("id").cloned();
    let refuse = |what: &str| Some(Err(Refusal::invalid(echo(id.as_ref()), what)));
    if message.get("jsonrpc").is_none_or(|version| version != "2.0") {
        return refuse("`jsonrpc` must be \"2.0\"");
    }
    let Some(method) = message.get("method") else {
        return if is_answer(&message) { None } else { refuse("`method` is missing") };
    };
    let Some(method) = method.as_str().map(str::to_owned) else { return refuse("`method` must be a string") };
    if message.contains_key("result") || message.contains_key("error") {
        return refuse("a request has no `result` and no `error`");
    }
    if id.as_ref().is_some_and(|id| !id.is_string() && !id.is_i64()) {
        return refuse("`id` must be a string or a whole number");
    }
    let wrong_parameters = |what: String| {
        let id = id.clone()?;
        Some(Err(Refusal { id, code: ErrorCode::INVALID_PARAMS, message: what }))
    };
    match message.get("params") {
        Some(Value::Null) => drop(message.shift_remove("params")),
        Some(Value::Object(_)) | None => {}
        Some(_) => return wrong_parameters("`params` must be an object".to_owned()),
    }
    match serde_json::from_value::<Message>(Value::Object(message)) {
        // rmcp takes a request whose parameters it cannot read for one of an unknown method.
        Ok(JsonRpcMessage::Request(request))
            if matches!(request.request, ClientRequest::CustomRequest(_)) && METHODS.contains(&&*method) =>
        {
            wrong_parameters(format!("`params` of {method} are not those that the protocol defines"))
        }
        Ok(message) => Some(Ok(message)),
        Err(error) => wrong_parameters(error.to_string()),
    }
}

/// The id that an error repeats.
fn echo(id: Option<&Value>) -> Value {
    id.filter(|id| id.is_string() || id.is_number()).cloned().unwrap_or_default()
}

fn is_answer(message: &Map<String, Value>) -> bool {
    let error = message.get("error");
    message.contains_key("id")
        && message.contains_key("result") != error.is_some()
        && error.is_none_or(|error| error["code"].is_i64() && error["message"].is_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_that_ends_within_a_character_is_read() {
        let line = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":"\ud83d"}}}"#;
        assert!(matches!(parse(line).as_slice(), [Ok(_)]));
    }
}
