//! The client of the Messages API.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use transcript::redact::redact;

use crate::endpoint::{Auth, Endpoint};
use crate::error::Error;
use crate::key::Key;
use crate::retry::retry;
use crate::usage::Usage;

/// The version of the Messages API that the requests follow.
const API_VERSION: &str = "2023-06-01";
/// Longer answers are refused. The longest that a model can write is far shorter.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// Where a [`Client`] sends its requests, and with what.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The base address without a path: `https://api.anthropic.com`.
    pub url: String,
    /// The model's name.
    pub model: String,
    /// Sent as `x-api-key`.
    pub key: Key,
    /// The time for one request with its retries.
    pub deadline: Duration,
}

/// The text that a model wrote, with its tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Never empty.
    pub text: String,
    /// Tokens of the request.
    pub input_tokens: u32,
    /// Tokens of the reply.
    pub output_tokens: u32,
}

/// A client of the Messages API.
#[derive(Clone, Debug)]
pub struct Client {
    endpoint: Endpoint,
    pub(crate) settings: Settings,
    /// Set once the server has said that this model takes no forced tool.
    pub(crate) only_offers_tools: Arc<AtomicBool>,
}

impl Client {
    /// A client with these settings. Sends nothing.
    ///
    /// # Errors
    /// [`Error::Client`] if the HTTP client cannot be set up.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let endpoint = Endpoint::new(
            format!("{}/v1/messages", settings.url.trim_end_matches('/')),
            Auth::ApiKey(settings.key.clone()),
            &[("anthropic-version", API_VERSION)],
            settings.deadline,
            ANSWER_BYTES_MAX,
        )?;
        Ok(Self { endpoint, settings, only_offers_tools: Arc::default() })
    }

    /// The name of the model in the settings.
    pub fn model(&self) -> &str {
        &self.settings.model
    }

    /// Sends one message and returns the text of the answer. Temporary failures are retried within the deadline.
    ///
    /// # Errors
    /// As for [`retry`]; [`Error::Truncated`] and [`Error::Refused`] for an answer that is not complete.
    pub async fn ask(&self, system: &str, user: &str, output_tokens_max: u32) -> Result<Reply, Error> {
        retry(self.settings.deadline, || self.send(system, user, output_tokens_max)).await
    }

    async fn send(&self, system: &str, user: &str, output_tokens_max: u32) -> Result<Reply, Error> {
        let body = self
            .post(&json!({
                "model": self.settings.model,
                "max_tokens": output_tokens_max,
                "system": system,
                "messages": [{ "role": "user", "content": redact(user) }],
            }))
            .await?;
        let text: String = body.content.iter().filter_map(|block| block.text.as_deref()).collect();
        match body.stop_reason.as_deref() {
            Some("max_tokens") => Err(Error::Truncated(output_tokens_max)),
            Some("refusal") => Err(Error::Refused),
            _ if text.trim().is_empty() => Err(Error::Answer("it holds no text".to_owned())),
            _ => Ok(Reply {
                text,
                input_tokens: u32::try_from(body.usage.input_tokens).unwrap_or(u32::MAX),
                output_tokens: u32::try_from(body.usage.output_tokens).unwrap_or(u32::MAX),
            }),
        }
    }

    /// Sends one request without retries.
    pub(crate) async fn post(&self, body: &Value) -> Result<MessageBody, Error> {
        let text = self.endpoint.post(body).await?;
        serde_json::from_str(&text).map_err(|error| Error::Answer(error.to_string()))
    }
}

#[derive(Deserialize)]
pub(crate) struct MessageBody {
    pub(crate) content: Vec<Block>,
    pub(crate) stop_reason: Option<String>,
    pub(crate) model: Option<String>,
    #[serde(default)]
    pub(crate) usage: Usage,
}

/// A content block of any type: `text` is set for a text, the others for a tool call.
#[derive(Deserialize)]
pub(crate) struct Block {
    text: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) input: Option<Value>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::Mutex;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// Starts a server on loopback that gives the scripted answers in turn and records the requests.
    pub(crate) async fn server(
        answers: Vec<(&'static str, &'static str, String)>,
    ) -> (String, Arc<Mutex<Vec<String>>>) {
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

    pub(crate) fn client(url: String) -> Client {
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
    async fn a_busy_server_is_retried_after_its_retry_after() {
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
    async fn a_refused_key_fails_at_once_and_is_not_shown() {
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
    async fn truncated_refused_and_malformed_answers_are_distinct_errors() {
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
