//! One JSON request over HTTPS and its answer, and how it is repeated: what every provider needs alike.

use std::future::Future;
use std::time::{Duration, Instant};

use backoff::ExponentialBackoffBuilder;
use reqwest::header::HeaderValue;
use serde::Deserialize;
use serde_json::Value;

use crate::{Error, Key};

/// How much of an error's body is read and shown.
const ERROR_CHARS_MAX: usize = 300;
/// The first pause before another attempt; those after it are longer, each with a random part.
const PAUSE: Duration = Duration::from_millis(500);

/// How a server wants the key.
#[derive(Clone, Debug)]
pub enum Auth {
    /// `x-api-key: …`
    ApiKey(Key),
    /// `authorization: Bearer …`; a server of one's own may want none.
    Bearer(Option<Key>),
}

impl Auth {
    fn key(&self) -> Option<&Key> {
        match self {
            Self::ApiKey(key) => Some(key),
            Self::Bearer(key) => key.as_ref(),
        }
    }
}

/// Where requests go. Redirects are not followed: one would carry the key to another host.
#[derive(Clone, Debug)]
pub struct Endpoint {
    client: reqwest::Client,
    url: String,
    auth: Auth,
    headers: &'static [(&'static str, &'static str)],
    answer_bytes_max: usize,
}

impl Endpoint {
    /// The full address of one call, with the headers that go with every request. An answer that is longer
    /// than `answer_bytes_max` is refused.
    ///
    /// # Errors
    /// When the TLS provider or the HTTP client cannot be set up.
    pub fn new(
        url: String,
        auth: Auth,
        headers: &'static [(&'static str, &'static str)],
        deadline: Duration,
        answer_bytes_max: usize,
    ) -> Result<Self, Error> {
        // The first caller installs it; a second finds it there.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(deadline.min(Duration::from_secs(10)))
            .build()
            .map_err(Error::Client)?;
        Ok(Self { client, url, auth, headers, answer_bytes_max })
    }

    /// One request, one answer; nothing is tried again.
    ///
    /// # Errors
    /// [`Error::Status`] for anything but success, without the key should the server have repeated it.
    pub async fn post(&self, body: &Value) -> Result<String, Error> {
        let mut request = self.client.post(&self.url).json(body);
        for (name, value) in self.headers {
            request = request.header(*name, *value);
        }
        let (name, value) = match &self.auth {
            Auth::ApiKey(key) => ("x-api-key", Some(key.0.clone())),
            Auth::Bearer(key) => ("authorization", key.as_ref().map(|key| format!("Bearer {}", key.0))),
        };
        if let Some(value) = value {
            let mut value = HeaderValue::from_str(&value).map_err(|_| Error::Key)?;
            value.set_sensitive(true);
            request = request.header(name, value);
        }
        let mut response = request.send().await.map_err(Error::Transport)?;
        let status = response.status();
        let after = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let mut bytes = Vec::new();
        while let Some(part) = response.chunk().await.map_err(Error::Transport)? {
            bytes.extend_from_slice(&part);
            if bytes.len() > self.answer_bytes_max {
                return Err(Error::Answer(format!("it is longer than {} MiB", self.answer_bytes_max >> 20)));
            }
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if status.is_success() {
            return Ok(text);
        }
        let mut message = serde_json::from_str::<ErrorBody>(&text).map_or(text, ErrorBody::message);
        // A server that repeats the request in its error must not make the key be printed.
        if let Some(key) = self.auth.key() {
            message = message.replace(&key.0, "…");
        }
        Err(Error::Status {
            status: status.as_u16(),
            message: message.chars().filter(|c| !c.is_control()).take(ERROR_CHARS_MAX).collect(),
            after: after.map(Duration::from_secs),
        })
    }
}

/// Repeats what fails for a passing reason, later each time and at the time that the server names, all
/// within the deadline.
///
/// # Errors
/// The last attempt's; at once when another cannot help, or when the server wants to be left alone for
/// longer than the deadline. [`Error::Deadline`] when an attempt is under way at its end.
pub async fn retried<T, F>(deadline: Duration, attempt: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let begun = Instant::now();
    let policy = ExponentialBackoffBuilder::new()
        .with_initial_interval(PAUSE)
        .with_max_elapsed_time(Some(deadline))
        .build();
    let attempt = || async {
        attempt().await.map_err(|error| match error.after() {
            _ if !error.is_temporary() => backoff::Error::permanent(error),
            Some(after) if begun.elapsed() + after >= deadline => backoff::Error::permanent(error),
            Some(after) => backoff::Error::retry_after(error, after),
            None => backoff::Error::transient(error),
        })
    };
    match tokio::time::timeout(deadline, backoff::future::retry(policy, attempt)).await {
        Ok(answer) => answer,
        Err(_) => Err(Error::Deadline(deadline)),
    }
}

/// An error as the providers word it: `{"error": {"message": …, "code": …}}`, or `{"detail": …}`.
#[derive(Deserialize)]
#[serde(untagged)]
enum ErrorBody {
    Error { error: ErrorMessage },
    Detail { detail: String },
}

#[derive(Deserialize)]
struct ErrorMessage {
    message: String,
    code: Option<Value>,
}

impl ErrorBody {
    fn message(self) -> String {
        match self {
            Self::Error { error: ErrorMessage { message, code: Some(Value::String(code)) } } => {
                format!("{message} ({code})")
            }
            Self::Error { error } => error.message,
            Self::Detail { detail } => detail,
        }
    }
}
