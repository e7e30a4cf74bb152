//! One JSON request over HTTPS and its answer, for every provider.

use std::time::Duration;

use reqwest::header::HeaderValue;
use serde::Deserialize;
use serde_json::Value;

use crate::error::Error;
use crate::key::Key;

/// The longest part of an error body that is shown, in characters.
const ERROR_CHARS_MAX: usize = 300;

/// The header that carries the key.
#[derive(Clone, Debug)]
pub enum Auth {
    /// `x-api-key: …`
    ApiKey(Key),
    /// `authorization: Bearer …`; `None` for a local server without authentication.
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

/// An HTTPS address that takes JSON requests. Redirects are not followed: one would carry the key to another host.
#[derive(Clone, Debug)]
pub struct Endpoint {
    client: reqwest::Client,
    url: String,
    auth: Auth,
    headers: &'static [(&'static str, &'static str)],
    answer_bytes_max: usize,
}

impl Endpoint {
    /// An endpoint at the full `url` of one call. `headers` go with every request, `deadline` limits the connection
    /// (to 10 s at most), and an answer longer than `answer_bytes_max` is refused.
    ///
    /// # Errors
    /// [`Error::Client`] if the HTTP client cannot be set up.
    pub fn new(
        url: String,
        auth: Auth,
        headers: &'static [(&'static str, &'static str)],
        deadline: Duration,
        answer_bytes_max: usize,
    ) -> Result<Self, Error> {
        // Fails if a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(deadline.min(Duration::from_secs(10)))
            .build()
            .map_err(Error::Client)?;
        Ok(Self { client, url, auth, headers, answer_bytes_max })
    }

    /// Sends one request without retries and returns the body of the answer.
    ///
    /// # Errors
    /// [`Error::Status`] for any status but success; the key is removed from the message if the server repeated it.
    /// [`Error::Transport`] if the server cannot be reached, [`Error::Key`] if the key is no valid header, and
    /// [`Error::Answer`] if the answer is too long.
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
        // The key must not be printed if the server repeats the request in its error.
        if let Some(key) = self.auth.key() {
            message = message.replace(&key.0, "…");
        }
        Err(Error::Status {
            status: status.as_u16(),
            message: message.chars().filter(|c| !c.is_control()).take(ERROR_CHARS_MAX).collect(),
            retry_after: after.map(Duration::from_secs),
        })
    }
}

/// The error formats of the providers: `{"error": {"message": …, "code": …}}`, or `{"detail": …}`.
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
