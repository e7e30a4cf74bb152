//! A Messages API on loopback that answers the real client from a script.
//!
//! Speaks what Claude Code needs: `POST /v1/messages` with and without streaming, token counts and the list
//! of models. It keeps no state between requests; the request itself says which answer is due.

use std::collections::BTreeMap;
use std::io::{BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use serde_json::{Value, json};

use crate::http;

/// In a prompt, the script's name follows this.
const SCRIPT_MARK: &str = "SCRIPT:";
const OUTPUT_TOKENS: u64 = 42;

/// What the model answers.
#[derive(Clone, Default)]
pub(super) struct Scripts {
    /// By name: the content blocks of each answer, in order. The newest user text that contains `SCRIPT:name`
    /// selects a script, and the number of assistant messages since then selects its answer.
    pub(super) by_name: BTreeMap<&'static str, Vec<Value>>,
    /// The answer to requests without tools that ask for a session's title.
    pub(super) title: &'static str,
}

/// Serves until it is dropped.
pub(super) struct ScriptedApi {
    /// `http://127.0.0.1:PORT`
    pub(super) url: String,
    requests: Arc<Mutex<Vec<String>>>,
    is_over: Arc<AtomicBool>,
}

impl ScriptedApi {
    pub(super) fn start(scripts: Scripts) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}", listener.local_addr()?);
        let api = Self { url, requests: Arc::default(), is_over: Arc::default() };
        let (requests, is_over) = (Arc::clone(&api.requests), Arc::clone(&api.is_over));
        let scripts = Arc::new(scripts);
        http::serve_connections(
            listener,
            move || is_over.load(Ordering::Relaxed),
            move |stream| serve(stream, &requests, &scripts),
        );
        Ok(api)
    }

    /// The bodies of all requests since the start or since [`Self::forget_requests`].
    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn forget_requests(&self) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Drop for ScriptedApi {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
    }
}

fn serve(mut stream: TcpStream, requests: &Mutex<Vec<String>>, scripts: &Scripts) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(received) = http::read_request(&mut reader)? {
        let number = {
            let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
            requests.push(String::from_utf8_lossy(&received.body).into_owned());
            requests.len()
        };
        let path = received.target.split('?').next().unwrap_or_default();
        let input_tokens = (received.body.len() as u64 / 4).max(1);
        match (received.method.as_str(), path) {
            ("POST", "/v1/messages") => {
                let body: Value = serde_json::from_slice(&received.body).unwrap_or_default();
                let blocks = with_ids(answer(&body, scripts), number);
                let message = message(&body, number, input_tokens);
                if body["stream"] == true {
                    stream_message(&mut stream, &message, &blocks)?;
                } else {
                    respond(&mut stream, 200, &complete(message, &blocks))?;
                }
            }
            ("POST", "/v1/messages/count_tokens") => {
                respond(&mut stream, 200, &json!({ "input_tokens": input_tokens }))?;
            }
            ("GET", "/v1/models") => {
                let models = json!({ "data": [], "has_more": false, "first_id": null, "last_id": null });
                respond(&mut stream, 200, &models)?;
            }
            // The client tests the connection; an answer to HEAD has no body.
            ("HEAD", _) => stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?,
            _ => {
                let error = json!({ "type": "not_found_error", "message": "not found" });
                respond(&mut stream, 404, &json!({ "type": "error", "error": error }))?;
            }
        }
    }
    Ok(())
}

/// The content blocks that a request is answered with.
fn answer(body: &Value, scripts: &Scripts) -> Vec<Value> {
    let text = |text: &str| vec![json!({ "type": "text", "text": text })];
    let has_tools = body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
    if !has_tools && body.to_string().contains("title") {
        return text(scripts.title);
    }
    let messages = body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (at, message) in messages.iter().enumerate().rev() {
        if message["role"] != "user" {
            continue;
        }
        if let Some(name) = script_name(&message["content"]) {
            let answered = messages[at + 1..].iter().filter(|later| later["role"] == "assistant").count();
            let block = scripts.by_name.get(name.as_str()).and_then(|answers| answers.get(answered));
            return block.map_or_else(|| text("The script has ended."), |block| vec![block.clone()]);
        }
    }
    text("No script was named.")
}

/// The last script that a user message names, outside of what the client adds by itself.
fn script_name(content: &Value) -> Option<String> {
    let blocks = content.as_array().map(Vec::as_slice).unwrap_or(std::slice::from_ref(content));
    let texts = blocks.iter().filter_map(|block| block.as_str().or_else(|| block["text"].as_str()));
    texts
        .filter(|text| !text.trim_start().starts_with("<system-reminder>"))
        .filter_map(|text| text.rsplit_once(SCRIPT_MARK))
        .map(|(_, rest)| rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect())
        .next_back()
}

/// Gives each tool call an id of its own.
fn with_ids(mut blocks: Vec<Value>, number: usize) -> Vec<Value> {
    for (at, block) in blocks.iter_mut().enumerate() {
        if block["type"] == "tool_use" {
            block["id"] = format!("toolu_{number:06}_{at}").into();
        }
    }
    blocks
}

/// The message as it begins: without content and without an end.
fn message(body: &Value, number: usize, input_tokens: u64) -> Value {
    json!({
        "id": format!("msg_{number:06}"), "type": "message", "role": "assistant", "model": body["model"],
        "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": {
            "input_tokens": input_tokens, "output_tokens": 1, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0, "service_tier": "standard",
        },
    })
}

fn stop_reason(blocks: &[Value]) -> &'static str {
    if blocks.iter().any(|block| block["type"] == "tool_use") { "tool_use" } else { "end_turn" }
}

fn complete(mut message: Value, blocks: &[Value]) -> Value {
    message["content"] = blocks.into();
    message["stop_reason"] = stop_reason(blocks).into();
    message["usage"]["output_tokens"] = OUTPUT_TOKENS.into();
    message
}

fn respond(stream: &mut TcpStream, status: u16, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status} Status\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// Server-sent events as the Messages API streams them, each in a chunk of its own.
fn stream_message(stream: &mut TcpStream, message: &Value, blocks: &[Value]) -> std::io::Result<()> {
    stream.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
    )?;
    let mut send = |name: &str, mut event: Value| -> std::io::Result<()> {
        event["type"] = name.into();
        let text = format!("event: {name}\ndata: {event}\n\n");
        write!(stream, "{:x}\r\n{text}\r\n", text.len())?;
        stream.flush()
    };
    send("message_start", json!({ "message": message }))?;
    for (index, block) in blocks.iter().enumerate() {
        let (empty, delta) = if block["type"] == "tool_use" {
            let empty = json!({ "type": "tool_use", "id": block["id"], "name": block["name"], "input": {} });
            (empty, json!({ "type": "input_json_delta", "partial_json": block["input"].to_string() }))
        } else {
            (json!({ "type": "text", "text": "" }), json!({ "type": "text_delta", "text": block["text"] }))
        };
        send("content_block_start", json!({ "index": index, "content_block": empty }))?;
        send("content_block_delta", json!({ "index": index, "delta": delta }))?;
        send("content_block_stop", json!({ "index": index }))?;
    }
    let delta = json!({ "stop_reason": stop_reason(blocks), "stop_sequence": null });
    send("message_delta", json!({ "delta": delta, "usage": { "output_tokens": OUTPUT_TOKENS } }))?;
    send("message_stop", json!({}))?;
    stream.write_all(b"0\r\n\r\n")
}

/// The messages of a request.
pub(super) fn messages(request: &str) -> Vec<Value> {
    let request: Value = serde_json::from_str(request).unwrap_or_default();
    request["messages"].as_array().cloned().unwrap_or_default()
}

/// The tool results of a request, the newest last.
pub(super) fn tool_results(request: &str) -> Vec<Value> {
    let blocks = messages(request)
        .into_iter()
        .flat_map(|message| message["content"].as_array().cloned().unwrap_or_default());
    blocks.filter(|block| block["type"] == "tool_result").collect()
}

/// The newest tool result of a request, as JSON.
pub(super) fn last_tool_result(request: &str) -> Option<String> {
    tool_results(request).last().map(Value::to_string)
}
