//! The embedding services of OpenAI and Voyage on loopback: as strict about requests as the real ones, and
//! as unreliable as a test requires. Vectors are made from the words of a text, so texts that share words
//! are near each other.

use std::io::{BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::http;

/// The only accepted key. No redactor knows its form, so a leak would show.
pub(crate) const KEY: &str = "canary-embed-key-4be07c55";

/// How many texts one request may hold; the real limit of Voyage.
const TEXTS_MAX: usize = 1000;

#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// The requested vectors.
    Vectors,
    /// The requested vectors, last first.
    Shuffled,
    /// One vector too few.
    Missing,
    /// Vectors of another length than requested.
    Dimensions(usize),
    /// Vectors of zeros.
    Zero,
    /// An error of the service, with the value of `retry-after`.
    Error(u16, &'static str, Option<u32>),
    /// A redirect to this address.
    Redirect(String),
    /// Bytes that are not a valid response.
    Garbage,
    /// No response until the client disconnects or the server is dropped.
    Silence,
}

/// A server that runs until it is dropped.
pub(crate) struct EmbeddingsApi {
    /// The base URL, with `/v1`.
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<Value>>>,
    is_over: Arc<AtomicBool>,
}

impl EmbeddingsApi {
    /// Starts the server; `answer` gets the number of the request, from 0, and its body.
    pub(crate) fn start(answer: impl Fn(usize, &Value) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let api = Self { url, requests: Arc::default(), is_over: Arc::default() };
        let (requests, is_over) = (Arc::clone(&api.requests), Arc::clone(&api.is_over));
        let answer = Arc::new(answer);
        let watched = Arc::clone(&is_over);
        http::serve_connections(
            listener,
            move || watched.load(Ordering::Relaxed),
            move |stream| serve(stream, &requests, &is_over, &*answer),
        );
        api
    }

    /// Starts a server whose responses all wait until `may_pass` is true.
    pub(crate) fn start_gated(may_pass: &Arc<AtomicBool>) -> Self {
        let may_pass = Arc::clone(may_pass);
        Self::start(move |_, _| {
            while !may_pass.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
            Reply::Vectors
        })
    }

    /// Returns the bodies of all accepted requests.
    pub(crate) fn requests(&self) -> Vec<Value> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for EmbeddingsApi {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.url.trim_start_matches("http://").trim_end_matches("/v1"));
    }
}

fn serve(
    mut stream: TcpStream,
    requests: &Mutex<Vec<Value>>,
    is_over: &AtomicBool,
    answer: &dyn Fn(usize, &Value) -> Reply,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(received) = http::read_request(&mut reader)? {
        let body: Value = serde_json::from_slice(&received.body).unwrap_or_default();
        let is_voyage = body["model"].as_str().is_some_and(|model| model.starts_with("voyage"));
        let refusal = if (received.method.as_str(), received.target.as_str()) != ("POST", "/v1/embeddings") {
            Some((404, "not found"))
        } else if received.header("authorization") != format!("Bearer {KEY}") {
            Some((401, "Incorrect API key provided: canary-embed-key-4be07c55."))
        } else {
            find_mistake(&body, is_voyage).map(|mistake| (400, mistake))
        };
        if let Some((status, message)) = refusal {
            respond(&mut stream, status, "", &error(is_voyage, message))?;
            continue;
        }
        let number = {
            let mut requests = requests.lock().unwrap();
            requests.push(body.clone());
            requests.len() - 1
        };
        let native = if is_voyage { 1024 } else { 1536 };
        let asked = body.get("dimensions").or_else(|| body.get("output_dimension"));
        let mut dimensions = asked.and_then(Value::as_u64).unwrap_or(native) as usize;
        let texts: Vec<&str> = body["input"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let reply = answer(number, &body);
        if let Reply::Dimensions(other) = reply {
            dimensions = other;
        }
        let mut data: Vec<Value> = texts
            .iter()
            .enumerate()
            .map(|(index, text)| {
                let vector = if matches!(reply, Reply::Zero) {
                    vec![0.0; dimensions]
                } else {
                    vector(text, dimensions)
                };
                json!({ "object": "embedding", "index": index, "embedding": vector })
            })
            .collect();
        match reply {
            Reply::Vectors | Reply::Dimensions(_) | Reply::Zero => {}
            Reply::Shuffled => data.reverse(),
            Reply::Missing => drop(data.pop()),
            Reply::Error(status, message, after) => {
                let after = after.map_or_else(String::new, |after| format!("retry-after: {after}\r\n"));
                respond(&mut stream, status, &after, &error(is_voyage, message))?;
                continue;
            }
            Reply::Redirect(location) => {
                respond(&mut stream, 307, &format!("location: {location}\r\n"), "")?;
                continue;
            }
            Reply::Garbage => {
                respond(&mut stream, 200, "", "<html>a proxy's greeting</html>")?;
                continue;
            }
            Reply::Silence => {
                while !is_over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(20));
                }
                return Ok(());
            }
        }
        let tokens = texts.iter().map(|text| text.len() / 4 + 1).sum::<usize>();
        let usage = if is_voyage {
            json!({ "total_tokens": tokens })
        } else {
            json!({ "prompt_tokens": tokens, "total_tokens": tokens })
        };
        let answer = json!({ "object": "list", "data": data, "model": body["model"], "usage": usage });
        respond(&mut stream, 200, "", &answer.to_string())?;
    }
    Ok(())
}

/// Returns what the real services would reject in a request.
fn find_mistake(body: &Value, is_voyage: bool) -> Option<&'static str> {
    let texts = body["input"].as_array();
    let is_text = |text: &Value| text.as_str().is_some_and(|text| !text.is_empty());
    let known: &[&str] = if is_voyage {
        &["model", "input", "input_type", "output_dimension", "truncation", "output_dtype"]
    } else {
        &["model", "input", "encoding_format", "dimensions", "user"]
    };
    if body.as_object().is_none_or(|object| object.keys().any(|key| !known.contains(&key.as_str()))) {
        Some("unrecognized request argument supplied")
    } else if texts.is_none_or(|texts| texts.is_empty() || !texts.iter().all(is_text)) {
        Some("'$.input' is invalid")
    } else if texts.is_some_and(|texts| texts.len() > TEXTS_MAX) {
        Some("the batch size limit is exceeded")
    } else if is_voyage && !matches!(body["input_type"].as_str(), Some("query" | "document")) {
        Some("input_type must be query or document")
    } else {
        None
    }
}

/// Makes an unnormalised vector, as some servers do.
fn vector(text: &str, dimensions: usize) -> Vec<f32> {
    let mut vector = vec![0.01_f32; dimensions];
    for word in text.to_lowercase().split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() > 2) {
        let hash = word.bytes().fold(5381_usize, |hash, byte| hash.wrapping_mul(33) ^ usize::from(byte));
        vector[hash % dimensions] += 3.0;
    }
    vector
}

fn error(is_voyage: bool, message: &str) -> String {
    if is_voyage {
        return json!({ "detail": message }).to_string();
    }
    let code = message.contains("quota").then_some("insufficient_quota");
    json!({ "error": { "message": message, "type": "invalid_request_error", "param": null, "code": code } })
        .to_string()
}

fn respond(stream: &mut TcpStream, status: u16, headers: &str, body: &str) -> std::io::Result<()> {
    write!(
        stream,
        "HTTP/1.1 {status} Status\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}
