//! One JSON request over HTTPS and its answer, for every provider.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::Url;
use reqwest::header::HeaderValue;
use serde::Deserialize;
use serde_json::Value;
use transcript::redact::redact;

use crate::error::Error;
use crate::key::Key;

/// The longest part of an error body that is shown, in characters.
const ERROR_CHARS_MAX: usize = 300;

/// The last event of a stream.
const DONE: &[u8] = b"\ndata: [DONE]";

/// The header that carries the key.
#[derive(Clone, Debug)]
pub enum Auth {
    /// `x-api-key: …`
    ApiKey(Option<Key>),
    /// `authorization: Bearer …`; `None` for a local server without authentication.
    Bearer(Option<Key>),
}

impl Auth {
    fn key(&self) -> Option<&Key> {
        match self {
            Self::ApiKey(key) | Self::Bearer(key) => key.as_ref(),
        }
    }
}

/// Whether an address is on this machine, so that what is sent there does not leave it.
pub fn is_loopback(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else { return false };
    match url.host_str().unwrap_or_default() {
        "localhost" => true,
        host => host.trim_matches(['[', ']']).parse().is_ok_and(|address: IpAddr| address.is_loopback()),
    }
}

/// An HTTPS address that takes JSON requests. Redirects are not followed: one would carry the key to another host.
/// A proxy is not used for an address on this machine: what is sent there would leave it.
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
        let builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(deadline.min(Duration::from_secs(10)));
        let builder = if is_loopback(&url) { builder.no_proxy() } else { builder };
        let client = builder.build().map_err(Error::Client)?;
        Ok(Self { client, url, auth, headers, answer_bytes_max })
    }

    /// The same server at another address of it.
    pub(crate) fn at(&self, url: String) -> Self {
        Self { url, ..self.clone() }
    }

    /// Sends one request without retries and returns the body of the answer. A stream of server-sent events is read
    /// to its end, or to the event `[DONE]`.
    ///
    /// # Errors
    /// [`Error::Status`] for any status but success; the key is removed from the message if the server repeated it.
    /// [`Error::Redirect`] if the server sends the request elsewhere, [`Error::WebPage`] if a page is the answer.
    /// [`Error::Transport`] if the server cannot be reached, [`Error::NotRunning`] if that is on this machine,
    /// [`Error::Key`] if the key is no valid header, and [`Error::Answer`] if the answer is too long.
    pub async fn post(&self, body: &Value) -> Result<String, Error> {
        self.send(self.client.post(&self.url).json(body)).await
    }

    /// Reads without sending a body. Otherwise as [`Endpoint::post`].
    ///
    /// # Errors
    /// As for [`Endpoint::post`].
    pub async fn get(&self) -> Result<String, Error> {
        self.send(self.client.get(&self.url)).await
    }

    async fn send(&self, mut request: reqwest::RequestBuilder) -> Result<String, Error> {
        for (name, value) in self.headers {
            request = request.header(*name, *value);
        }
        let (name, prefix) = match &self.auth {
            Auth::ApiKey(_) => ("x-api-key", ""),
            Auth::Bearer(_) => ("authorization", "Bearer "),
        };
        if let Some(key) = self.auth.key() {
            let mut value =
                HeaderValue::from_str(&format!("{prefix}{}", key.text)).map_err(|_| Error::Key)?;
            value.set_sensitive(true);
            request = request.header(name, value);
        }
        let mut response = match request.send().await {
            Err(error) if error.is_connect() && is_loopback(&self.url) => {
                return Err(Error::NotRunning { url: self.origin(), source: error });
            }
            response => response.map_err(Error::Transport)?,
        };
        let status = response.status();
        if status.is_redirection()
            && let Some(to) = response.headers().get("location").and_then(|value| value.to_str().ok())
        {
            return Err(Error::Redirect { status: status.as_u16(), to: self.redirect_target(to) });
        }
        let after = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        // No pause at all would be a request after the other.
        let after = after.map(Duration::from_secs).filter(|after| !after.is_zero());
        let mut bytes = Vec::new();
        while let Some(part) = response.chunk().await.map_err(Error::Transport)? {
            bytes.extend_from_slice(&part);
            if bytes.len() > self.answer_bytes_max {
                return Err(Error::Answer(format!("it is longer than {} MiB", self.answer_bytes_max >> 20)));
            }
            // In JSON a line break is escaped, so this is never part of an answer.
            let tail = &bytes[bytes.len().saturating_sub(part.len() + DONE.len())..];
            if tail.windows(DONE.len()).any(|window| window == DONE) {
                break;
            }
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        // Neither JSON nor a stream of events begins like this.
        let is_page = text.trim_start_matches('\u{feff}').trim_start().starts_with('<');
        match serde_json::from_str::<ErrorBody>(&text) {
            _ if status.is_success() && is_page => Err(Error::WebPage),
            _ if status.is_success() => Ok(text),
            _ if is_page => Err(self.error(status.as_u16(), Vec::new(), "a web page", after)),
            Ok(body) => {
                let (kinds, message) = body.into_parts();
                Err(self.error(status.as_u16(), kinds, &message, after))
            }
            Err(_) => Err(self.error(status.as_u16(), Vec::new(), &text, after)),
        }
    }

    /// An error that the server reports.
    pub(crate) fn error(
        &self,
        status: u16,
        kinds: Vec<String>,
        message: &str,
        retry_after: Option<Duration>,
    ) -> Error {
        Error::Status { status, kinds, message: self.shown(message), retry_after, has_begun: false }
    }

    /// A text of the server's, for a message.
    fn shown(&self, text: &str) -> String {
        // The key must not be printed if the server repeats the request in its error.
        let text = match self.auth.key() {
            Some(key) => text.replace(&key.text, "…"),
            None => text.to_owned(),
        };
        text.chars().filter(|c| !c.is_control()).take(ERROR_CHARS_MAX).collect()
    }

    /// The address of a redirect without what may be secret in it.
    fn redirect_target(&self, to: &str) -> String {
        let target = Url::parse(&self.url).and_then(|base| base.join(to));
        let target = target.map_or_else(
            |_| "an address that is none".to_owned(),
            |url| format!("{}{}", url.origin().ascii_serialization(), url.path()),
        );
        self.shown(&redact(&target))
    }

    /// Scheme, host and port.
    pub(crate) fn origin(&self) -> String {
        Url::parse(&self.url).map_or_else(|_| self.url.clone(), |url| url.origin().ascii_serialization())
    }
}

/// The error formats of the providers: `{"error": {"message": …, "code": …}}`, `{"error": …}`, `{"detail": …}`, or
/// `{"message": …}`.
#[derive(Deserialize)]
#[serde(untagged)]
enum ErrorBody {
    Error { error: ErrorMessage },
    Text { error: String },
    Detail { detail: String },
    Message { message: String },
}

#[derive(Deserialize)]
struct ErrorMessage {
    message: String,
    #[serde(rename = "type")]
    kind: Option<Value>,
    code: Option<Value>,
}

impl ErrorBody {
    /// The kinds of the error, and its message.
    fn into_parts(self) -> (Vec<String>, String) {
        match self {
            Self::Error { error: ErrorMessage { message, kind, code } } => {
                let text = |value: &Option<Value>| value.as_ref()?.as_str().map(str::to_owned);
                let (kind, code) = (text(&kind), text(&code));
                let message = match &code {
                    Some(code) => format!("{message} ({code})"),
                    None => message,
                };
                (kind.into_iter().chain(code).collect(), message)
            }
            Self::Text { error: text } | Self::Detail { detail: text } | Self::Message { message: text } => {
                (Vec::new(), text)
            }
        }
    }
}
