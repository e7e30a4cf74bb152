//! Chat completions on loopback, as Ollama, LM Studio, llama.cpp and vLLM serve them: as strict about requests as the
//! real ones, with their errors, and streamed in pieces that split characters.

use std::io::{BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::http;

/// The models that the server has.
pub(crate) const MODELS: &[&str] = &["nomic-embed-text:latest", "qwen3:8b", "gemma3:4b"];
/// The key of a server that requires one. No redactor knows its form, so a leak would show.
pub(crate) const KEY: &str = "canary-key-59c2e7b1d4";

pub(crate) struct Request {
    /// The number of the request, from 0.
    pub(crate) number: usize,
    pub(crate) body: Value,
}

impl Request {
    pub(crate) fn system(&self) -> &str {
        self.body["messages"][0]["content"].as_str().unwrap()
    }

    pub(crate) fn user(&self) -> &str {
        self.body["messages"][1]["content"].as_str().unwrap()
    }
}

pub(crate) enum Reply {
    /// What the model writes, with its reason to stop.
    Text(String, &'static str),
    /// The same, of a model that reasons first: in a field of its own when streamed.
    Reasoned(String),
    /// The same with a token count of the request, as of a server that has cut it.
    Counted(String, u64),
    /// An error, with the value of `retry-after`.
    Error(u16, &'static str, Option<u32>),
    /// No response until the client disconnects or the server is dropped.
    Silence,
}

impl Reply {
    pub(crate) fn json(value: &Value) -> Self {
        Self::Text(value.to_string(), "stop")
    }
}

/// What the server is like.
#[derive(Clone, Copy, Default)]
pub(crate) struct Traits {
    /// Answers 401 without the key.
    pub(crate) needs_key: bool,
    /// Answers with one object although a stream was asked for.
    pub(crate) ignores_stream: bool,
    /// Refuses `response_format`.
    pub(crate) has_no_schema: bool,
}

#[derive(Default)]
struct Log {
    bodies: Vec<Value>,
    /// Method, path and `authorization` of all requests.
    heads: Vec<(String, String)>,
    tokens: u64,
}

/// A server that runs until it is dropped.
pub(crate) struct OpenAiApi {
    pub(crate) url: String,
    log: Arc<Mutex<Log>>,
    is_over: Arc<AtomicBool>,
}

impl OpenAiApi {
    pub(crate) fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_with(Traits::default(), answer)
    }

    pub(crate) fn start_with(
        traits: Traits,
        answer: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::listen(TcpListener::bind("127.0.0.1:0").unwrap(), traits, answer)
    }

    pub(crate) fn listen(
        listener: TcpListener,
        traits: Traits,
        answer: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let url = format!("http://{}", listener.local_addr().unwrap());
        let api = Self { url, log: Arc::default(), is_over: Arc::default() };
        let (log, is_over) = (Arc::clone(&api.log), Arc::clone(&api.is_over));
        let (answer, watched) = (Arc::new(answer), Arc::clone(&is_over));
        http::serve_connections(
            listener,
            move || watched.load(Ordering::Relaxed),
            move |stream| serve(stream, traits, &log, &is_over, &*answer),
        );
        api
    }

    /// The bodies of all completions that were answered.
    pub(crate) fn requests(&self) -> Vec<Value> {
        self.log.lock().unwrap().bodies.clone()
    }

    /// Method and path of all requests, with their `authorization`.
    pub(crate) fn heads(&self) -> Vec<(String, String)> {
        self.log.lock().unwrap().heads.clone()
    }

    /// All tokens that the server has counted.
    pub(crate) fn counted_tokens(&self) -> u64 {
        self.log.lock().unwrap().tokens
    }
}

impl Drop for OpenAiApi {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
    }
}

fn serve(
    mut stream: TcpStream,
    traits: Traits,
    log: &Mutex<Log>,
    is_over: &AtomicBool,
    answer: &dyn Fn(&Request) -> Reply,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(received) = http::read_request(&mut reader)? {
        let path = format!("{} {}", received.method, received.target);
        let authorization = received.header("authorization").to_owned();
        log.lock().unwrap().heads.push((path.clone(), authorization.clone()));
        let body: Value = serde_json::from_slice(&received.body).unwrap_or_default();
        let refusal = match path.as_str() {
            _ if traits.needs_key && authorization != format!("Bearer {KEY}") => {
                Some((401, "Unauthorized".to_owned()))
            }
            "GET /v1/models" => {
                let models: Vec<Value> = MODELS
                    .iter()
                    .map(|id| json!({ "id": id, "object": "model", "created": 1_763_000_000, "owned_by": "library" }))
                    .collect();
                respond(&mut stream, 200, None, &json!({ "object": "list", "data": models }).to_string())?;
                continue;
            }
            "POST /v1/chat/completions" => find_mistake(&body, traits),
            _ => Some((404, "404 page not found".to_owned())),
        };
        if let Some((status, message)) = refusal {
            respond(&mut stream, status, None, &error(status, &message))?;
            continue;
        }
        let number = {
            let mut log = log.lock().unwrap();
            log.bodies.push(body.clone());
            log.bodies.len() - 1
        };
        let request = Request { number, body };
        let mut prompt_tokens = request.body["messages"].to_string().len() as u64 / 3;
        let (reasoning, text, finish) = match answer(&request) {
            Reply::Text(text, finish) => ("", text, finish),
            Reply::Reasoned(text) => ("The user wants {\"units\": [", text, "stop"),
            Reply::Counted(text, tokens) => {
                prompt_tokens = tokens;
                ("", text, "stop")
            }
            Reply::Error(status, message, after) => {
                respond(&mut stream, status, after, &error(status, message))?;
                continue;
            }
            Reply::Silence => {
                while !is_over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(20));
                }
                return Ok(());
            }
        };
        let completion_tokens = (reasoning.len() + text.len()) as u64 / 3 + 1;
        log.lock().unwrap().tokens += prompt_tokens + completion_tokens;
        let usage = json!({ "prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens });
        let model = &request.body["model"];
        if request.body["stream"] == true && !traits.ignores_stream {
            let has_usage = request.body["stream_options"]["include_usage"] == true;
            let events = events(model, reasoning, &text, finish, has_usage.then_some(&usage));
            write_chunked(&mut stream, &events)?;
            continue;
        }
        let content =
            if reasoning.is_empty() { text } else { format!("<think>\n{reasoning}\n</think>\n\n{text}") };
        let completion = json!({
            "id": format!("chatcmpl-{number}"), "object": "chat.completion", "created": 1_763_000_000, "model": model,
            "system_fingerprint": "fp_ollama", "usage": usage,
            "choices": [{ "index": 0, "message": { "role": "assistant", "content": content }, "finish_reason": finish }],
        });
        respond(&mut stream, 200, None, &completion.to_string())?;
    }
    Ok(())
}

/// What the real servers would refuse of a request.
fn find_mistake(body: &Value, traits: Traits) -> Option<(u16, String)> {
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    let message = |at: usize, role: &str| {
        body["messages"][at]["role"] == role && is_text(&body["messages"][at]["content"])
    };
    let name = body["model"].as_str().unwrap_or_default();
    let format = &body["response_format"];
    let bad = |message: &str| Some((400, message.to_owned()));
    if !MODELS.contains(&name) {
        Some((404, format!("model \"{name}\" not found, try pulling it first")))
    } else if !message(0, "system") || !message(1, "user") {
        bad("[] is too short - 'messages'")
    } else if body["max_tokens"].as_u64().is_none_or(|max| max == 0) {
        bad("max_tokens must be at least 1")
    } else if !body["stream_options"].is_null() && body["stream"] != true {
        bad("The 'stream_options' parameter is only allowed when 'stream' is enabled.")
    } else if !format.is_null() && traits.has_no_schema {
        bad("This response_format type is unavailable now")
    } else if !format.is_null()
        && (format["type"] != "json_schema"
            || !is_text(&format["json_schema"]["name"])
            || format["json_schema"]["schema"]["type"] != "object")
    {
        bad("response_format: json_schema with a name and a schema is required")
    } else {
        None
    }
}

/// The stream of an answer: the role, the reasoning, the text in pieces, the reason to stop, the usage, the end.
fn events(model: &Value, reasoning: &str, text: &str, finish: &str, usage: Option<&Value>) -> String {
    let event = |choices: Value, usage: Option<&Value>| {
        let mut event = json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_763_000_000,
            "model": model, "choices": choices });
        if let Some(usage) = usage {
            event["usage"] = usage.clone();
        }
        format!("data: {event}\n\n")
    };
    let delta = |delta: Value, finish: Value| {
        event(json!([{ "index": 0, "delta": delta, "finish_reason": finish }]), None)
    };
    let mut events = String::from(": ping\n\n");
    events.push_str(&delta(json!({ "role": "assistant", "content": "" }), Value::Null));
    for piece in reasoning.split_inclusive(' ') {
        events.push_str(&delta(json!({ "reasoning_content": piece }), Value::Null));
    }
    for piece in text.split_inclusive([' ', '\n']) {
        events.push_str(&delta(json!({ "content": piece }), Value::Null));
    }
    events.push_str(&delta(json!({}), finish.into()));
    if usage.is_some() {
        events.push_str(&event(json!([]), usage));
    }
    events + "data: [DONE]\n\n"
}

/// Writes a chunked response whose pieces have a prime length, so that they split lines and characters.
fn write_chunked(stream: &mut TcpStream, text: &str) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )?;
    for piece in text.as_bytes().chunks(97) {
        write!(stream, "{:x}\r\n", piece.len())?;
        stream.write_all(piece)?;
        stream.write_all(b"\r\n")?;
    }
    // The client may have closed the connection after the event `[DONE]`.
    stream.write_all(b"0\r\n\r\n")
}

fn error(status: u16, message: &str) -> String {
    let kind = if status == 404 { "not_found_error" } else { "invalid_request_error" };
    json!({ "error": { "message": message, "type": kind, "param": null, "code": null } }).to_string()
}

fn respond(stream: &mut TcpStream, status: u16, after: Option<u32>, body: &str) -> std::io::Result<()> {
    let after = after.map_or_else(String::new, |after| format!("retry-after: {after}\r\n"));
    write!(
        stream,
        "HTTP/1.1 {status} Status\r\ncontent-type: application/json\r\n{after}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}
