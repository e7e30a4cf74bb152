//! The Messages API on loopback: as strict about requests as the real one, and
//! as unreliable as a test requires.

use std::io::{BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::http;

/// The only accepted key. No redactor knows its form, so a leak would show.
pub(crate) const KEY: &str = "canary-key-7d1f0a93e5";

pub(crate) struct Request {
    /// The number of the request, from 0.
    pub(crate) number: usize,
    pub(crate) body: Value,
}

impl Request {
    /// Returns the text between the marks of the transcript.
    pub(crate) fn user(&self) -> &str {
        self.body["messages"][0]["content"].as_str().unwrap()
    }
}

pub(crate) enum Reply {
    /// A call of the tool with this input.
    Call(Value),
    /// The same call with this stop reason, such as `max_tokens` or `refusal`.
    CallWithStopReason(Value, &'static str),
    /// Text without a tool call.
    Text(&'static str),
    /// An error of the API, with the value of `retry-after`.
    Error(u16, &'static str, Option<u32>),
    /// Bytes that are not a valid response.
    Garbage(&'static str),
    /// No response until the client disconnects or the server is dropped.
    Silence,
    /// This reply after a delay.
    Slow(Duration, Box<Reply>),
}

/// A server that runs until it is dropped.
pub(crate) struct MessagesApi {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<Value>>>,
    billed: Arc<Mutex<u64>>,
    is_over: Arc<AtomicBool>,
}

impl MessagesApi {
    pub(crate) fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let api = Self { url, requests: Arc::default(), billed: Arc::default(), is_over: Arc::default() };
        let (requests, billed, is_over) =
            (Arc::clone(&api.requests), Arc::clone(&api.billed), Arc::clone(&api.is_over));
        let answer = Arc::new(answer);
        let watched = Arc::clone(&is_over);
        http::serve_connections(
            listener,
            move || watched.load(Ordering::Relaxed),
            move |stream| serve(stream, &requests, &billed, &is_over, &*answer),
        );
        api
    }

    /// Returns the bodies of all accepted requests.
    pub(crate) fn requests(&self) -> Vec<Value> {
        self.requests.lock().unwrap().clone()
    }

    /// Returns all tokens that the server has billed.
    pub(crate) fn billed_tokens(&self) -> u64 {
        *self.billed.lock().unwrap()
    }
}

impl Drop for MessagesApi {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
    }
}

fn serve(
    mut stream: TcpStream,
    requests: &Mutex<Vec<Value>>,
    billed: &Mutex<u64>,
    is_over: &AtomicBool,
    answer: &dyn Fn(&Request) -> Reply,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(received) = http::read_request(&mut reader)? {
        let body: Value = serde_json::from_slice(&received.body).unwrap_or_default();
        let refusal = if (received.method.as_str(), received.target.as_str()) != ("POST", "/v1/messages") {
            Some((404, "not found"))
        } else if received.header("x-api-key") != KEY {
            Some((401, "invalid x-api-key"))
        } else if received.header("anthropic-version") != "2023-06-01" {
            Some((400, "anthropic-version: header is required"))
        } else {
            find_mistake(&body).map(|mistake| (400, mistake))
        };
        if let Some((status, message)) = refusal {
            respond(&mut stream, status, None, &error(status, message))?;
            continue;
        }
        let number = {
            let mut requests = requests.lock().unwrap();
            requests.push(body.clone());
            requests.len() - 1
        };
        let request = Request { number, body };
        let mut reply = answer(&request);
        while let Reply::Slow(pause, then) = reply {
            std::thread::sleep(pause);
            reply = *then;
        }
        let (content, stop) = match reply {
            Reply::Call(input) => (call(&request, &input), "tool_use"),
            Reply::CallWithStopReason(input, stop) => (call(&request, &input), stop),
            Reply::Text(text) => (json!([{ "type": "text", "text": text }]), "end_turn"),
            Reply::Error(status, message, after) => {
                respond(&mut stream, status, after, &error(status, message))?;
                continue;
            }
            Reply::Garbage(text) => {
                respond(&mut stream, 200, None, text)?;
                continue;
            }
            Reply::Silence => {
                while !is_over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(20));
                }
                return Ok(());
            }
            Reply::Slow(..) => return Ok(()),
        };
        let input_tokens = request.body.to_string().len() as u64 / 4;
        let output_tokens = content.to_string().len() as u64 / 4;
        *billed.lock().unwrap() += input_tokens + output_tokens;
        let message = json!({
            "id": format!("msg_{number:04}"), "type": "message", "role": "assistant",
            "model": request.body["model"], "content": content, "stop_reason": stop, "stop_sequence": null,
            "usage": {
                "input_tokens": input_tokens, "output_tokens": output_tokens,
                "cache_creation_input_tokens": 0, "cache_read_input_tokens": null, "service_tier": "standard",
            },
        });
        respond(&mut stream, 200, None, &message.to_string())?;
    }
    Ok(())
}

/// Returns what the real API would reject in a request.
fn find_mistake(body: &Value) -> Option<&'static str> {
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    let tools = body["tools"].as_array();
    let has_tool = |name: &Value| tools.is_some_and(|tools| tools.iter().any(|tool| tool["name"] == *name));
    if !is_text(&body["model"]) {
        Some("model: Field required")
    } else if body["max_tokens"].as_u64().is_none_or(|max| max == 0) {
        Some("max_tokens: Input should be greater than or equal to 1")
    } else if body["messages"][0]["role"] != "user" || !is_text(&body["messages"][0]["content"]) {
        Some("messages: at least one message is required")
    } else if tools.is_some_and(|tools| tools.iter().any(|tool| tool["input_schema"]["type"] != "object")) {
        Some("tools.0.custom.input_schema.type: Field required")
    } else if body["tool_choice"]["type"] == "tool" && !has_tool(&body["tool_choice"]["name"]) {
        Some("tool_choice.name: Tool not found in provided tools")
    } else {
        None
    }
}

/// Builds a call of the only tool offered.
fn call(request: &Request, input: &Value) -> Value {
    json!([{ "type": "tool_use", "id": "toolu_01", "name": request.body["tools"][0]["name"], "input": input }])
}

fn error(status: u16, message: &str) -> String {
    let kind = match status {
        401 => "authentication_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    };
    json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "req_01" })
        .to_string()
}

fn respond(stream: &mut TcpStream, status: u16, after: Option<u32>, body: &str) -> std::io::Result<()> {
    let after = after.map_or_else(String::new, |after| format!("retry-after: {after}\r\n"));
    write!(
        stream,
        "HTTP/1.1 {status} Status\r\ncontent-type: application/json\r\nrequest-id: req_01\r\n{after}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}
