//! The way to a model: the Claude Messages API over HTTPS.
//!
//! Every call has a deadline, and the key is never shown: not in errors, logs or `Debug`.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use backoff::ExponentialBackoffBuilder;
use serde::Deserialize;
use serde_json::json;

/// The version of the API that the requests are written for.
const API_VERSION: &str = "2023-06-01";
/// How much of an error's body is read and shown.
const ERROR_CHARS_MAX: usize = 300;

/// A key that shows itself to nobody but the server.
#[derive(Clone)]
pub struct Key(String);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    /// The key from the file, or else from `ANTHROPIC_API_KEY`; `None` when there is none.
    pub fn find(file: Option<&Path>) -> Result<Option<Self>, Error> {
        let text = match file {
            Some(path) => std::fs::read_to_string(path)
                .map_err(|source| Error::KeyFile { path: path.display().to_string(), source })?,
            None => std::env::var("ANTHROPIC_API_KEY").unwrap_or_default(),
        };
        let key = text.trim();
        Ok((!key.is_empty()).then(|| Self(key.to_owned())))
    }
}

#[derive(Clone, Debug)]
pub struct Settings {
    /// `https://api.anthropic.com`, without the path.
    pub url: String,
    pub model: String,
    pub key: Key,
    /// For one request with its retries.
    pub deadline: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to read the key file {path}")]
    KeyFile { path: String, source: std::io::Error },
    #[error("failed to set up the HTTP client")]
    Client(#[source] reqwest::Error),
    #[error("the key holds characters that no header may have")]
    Key,
    #[error("the model did not answer within {0:?}")]
    Deadline(Duration),
    #[error("failed to reach the model")]
    Transport(#[source] reqwest::Error),
    /// The server's refusal, with its word on when to come back.
    #[error("the model's server answered {status}: {message}")]
    Status { status: u16, message: String, after: Option<Duration> },
    #[error("the model's answer cannot be read: {0}")]
    Answer(String),
    #[error("the model's answer was cut off at {0} tokens")]
    Truncated(u32),
    #[error("the model declined to answer")]
    Refused,
}

impl Error {
    /// Whether the same request may well succeed later.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Deadline(_) | Self::Transport(_) => true,
            Self::Status { status, .. } => matches!(status, 408 | 429 | 500..=599),
            _ => false,
        }
    }
}

/// What a model said, and what it cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub text: String,
    pub input_tokens: u32,
    pub output_tokens: u32,
}

/// A client of the Messages API.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    settings: Settings,
}

impl Client {
    /// # Errors
    /// When the TLS provider or the HTTP client cannot be set up.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        // The first caller installs it; a second finds it there.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            // A redirect would carry the key to another host.
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(settings.deadline.min(Duration::from_secs(10)))
            .build()
            .map_err(Error::Client)?;
        Ok(Self { http, settings })
    }

    /// Asks once, with retries for what is temporary, all within the deadline.
    pub async fn ask(&self, system: &str, user: &str, output_tokens_max: u32) -> Result<Reply, Error> {
        let policy = ExponentialBackoffBuilder::new()
            .with_initial_interval(Duration::from_millis(500))
            .with_max_elapsed_time(Some(self.settings.deadline))
            .build();
        let attempt = || async {
            self.send(system, user, output_tokens_max).await.map_err(|error| match &error {
                Error::Status { after: Some(after), .. } if error.is_temporary() => {
                    let after = *after;
                    backoff::Error::retry_after(error, after)
                }
                _ if error.is_temporary() => backoff::Error::transient(error),
                _ => backoff::Error::permanent(error),
            })
        };
        match tokio::time::timeout(self.settings.deadline, backoff::future::retry(policy, attempt)).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::Deadline(self.settings.deadline)),
        }
    }

    async fn send(&self, system: &str, user: &str, output_tokens_max: u32) -> Result<Reply, Error> {
        let mut key = reqwest::header::HeaderValue::from_str(&self.settings.key.0).map_err(|_| Error::Key)?;
        key.set_sensitive(true);
        let body = json!({
            "model": self.settings.model,
            "max_tokens": output_tokens_max,
            "system": system,
            "messages": [{ "role": "user", "content": user }],
        });
        let response = self
            .http
            .post(format!("{}/v1/messages", self.settings.url.trim_end_matches('/')))
            .header("x-api-key", key)
            .header("anthropic-version", API_VERSION)
            .json(&body)
            .send()
            .await
            .map_err(Error::Transport)?;
        let status = response.status();
        let after = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let text = response.text().await.map_err(Error::Transport)?;
        if !status.is_success() {
            let message = serde_json::from_str::<ErrorBody>(&text).map_or(text, |body| body.error.message);
            return Err(Error::Status {
                status: status.as_u16(),
                message: message.chars().filter(|c| !c.is_control()).take(ERROR_CHARS_MAX).collect(),
                after: after.map(Duration::from_secs),
            });
        }
        let body: MessageBody =
            serde_json::from_str(&text).map_err(|error| Error::Answer(error.to_string()))?;
        let text: String = body.content.iter().filter_map(|block| block.text.as_deref()).collect();
        match body.stop_reason.as_deref() {
            Some("max_tokens") => Err(Error::Truncated(output_tokens_max)),
            Some("refusal") => Err(Error::Refused),
            _ if text.trim().is_empty() => Err(Error::Answer("it holds no text".to_owned())),
            _ => Ok(Reply {
                text,
                input_tokens: body.usage.input_tokens,
                output_tokens: body.usage.output_tokens,
            }),
        }
    }
}

#[derive(Deserialize)]
struct ErrorBody {
    error: ErrorMessage,
}

#[derive(Deserialize)]
struct ErrorMessage {
    message: String,
}

#[derive(Deserialize)]
struct MessageBody {
    content: Vec<Block>,
    stop_reason: Option<String>,
    #[serde(default)]
    usage: Usage,
}

#[derive(Deserialize)]
struct Block {
    text: Option<String>,
}

#[derive(Default, Deserialize)]
struct Usage {
    #[serde(default)]
    input_tokens: u32,
    #[serde(default)]
    output_tokens: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// A server on loopback that gives the scripted answers in turn and keeps the requests.
    async fn server(answers: Vec<(&'static str, &'static str, String)>) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        tokio::spawn(async move {
            for (status, headers, body) in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                let mut part = [0; 4096];
                loop {
                    let text = String::from_utf8_lossy(&request).into_owned();
                    if let Some((head, body)) = text.split_once("\r\n\r\n") {
                        let length = head.lines().find_map(|line| {
                            line.to_ascii_lowercase()
                                .strip_prefix("content-length:")?
                                .trim()
                                .parse::<usize>()
                                .ok()
                        });
                        if body.len() >= length.unwrap_or(0) {
                            break;
                        }
                    }
                    let read = stream.read(&mut part).await.unwrap();
                    request.extend_from_slice(&part[..read]);
                }
                log.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}",
                    body.len()
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        (url, seen)
    }

    fn client(url: String) -> Client {
        Client::new(Settings {
            url,
            model: "claude-test".into(),
            key: Key("sk-canary".into()),
            deadline: Duration::from_secs(10),
        })
        .unwrap()
    }

    fn message(text: &str, stop: &str) -> String {
        json!({"content": [{"type": "text", "text": text}], "stop_reason": stop, "usage": {"input_tokens": 3, "output_tokens": 2}})
            .to_string()
    }

    #[tokio::test]
    async fn a_busy_server_is_asked_again_after_the_time_it_names() {
        let (url, seen) = server(vec![
            ("429 Too Many Requests", "retry-after: 1\r\n", r#"{"error":{"message":"slow down"}}"#.into()),
            ("529 Overloaded", "", r#"{"error":{"message":"overloaded"}}"#.into()),
            ("200 OK", "", message("hello", "end_turn")),
        ])
        .await;
        let reply = client(url).ask("be brief", "hi", 100).await.unwrap();
        assert_eq!(reply, Reply { text: "hello".into(), input_tokens: 3, output_tokens: 2 });
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 3);
        assert!(
            seen[0].starts_with("POST /v1/messages ") && seen[0].contains("anthropic-version: 2023-06-01")
        );
    }

    #[tokio::test]
    async fn a_refused_key_is_an_error_at_once_that_does_not_show_the_key() {
        let (url, seen) =
            server(vec![("401 Unauthorized", "", r#"{"error":{"message":"invalid x-api-key"}}"#.into())])
                .await;
        let client = client(url);
        let error = client.ask("s", "u", 10).await.unwrap_err();
        assert!(!error.is_temporary());
        let shown = format!("{error} {error:?} {client:?}");
        assert!(shown.contains("401") && !shown.contains("sk-canary"), "{shown}");
        assert_eq!(seen.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_cut_off_a_refused_and_a_garbled_answer_are_told_apart() {
        let (url, _) = server(vec![
            ("200 OK", "", message("half", "max_tokens")),
            ("200 OK", "", message("", "refusal")),
            ("200 OK", "", "<html>".into()),
            ("302 Found", "location: http://127.0.0.1:1/\r\n", String::new()),
        ])
        .await;
        let client = client(url);
        assert!(matches!(client.ask("s", "u", 10).await, Err(Error::Truncated(10))));
        assert!(matches!(client.ask("s", "u", 10).await, Err(Error::Refused)));
        assert!(matches!(client.ask("s", "u", 10).await, Err(Error::Answer(_))));
        assert!(matches!(client.ask("s", "u", 10).await, Err(Error::Status { status: 302, .. })));
    }
}
