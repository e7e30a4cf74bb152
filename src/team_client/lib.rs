//! The client of a team server: hands captures over and asks questions.
//!
//! It never retries and never waits longer than its deadline: the queue that calls it decides when to try again. A
//! token is only sent over TLS, or to this machine.
//!
//! ```no_run
//! # async fn run(capture: team_client::Capture) -> Result<(), Box<dyn std::error::Error>> {
//! let client = team_client::TeamClient::new("https://brains.example.com", "ngt_…")?;
//! let receipt = client.hand_over(&capture).await?;
//! println!("capture {} is {}", receipt.id, receipt.state);
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]
#![warn(clippy::missing_errors_doc)]

mod answer;
mod capture;
mod login;

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use knowledge::text::one_line;
use reqwest::header::{ACCEPT, HeaderValue, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use answer::{SHOWN, ShownUnit, TeamAnswer};
pub use capture::{Capture, CaptureFault, CaptureKey, FORMAT};
pub use login::{CurrentServer, FILE_NAME as LOGIN_FILE, Login, LoginError, TeamServer};

const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// A capture has up to 16 MiB: at 3 Mbit/s that takes 45 s.
const HAND_OVER_DEADLINE: Duration = Duration::from_secs(90);
const WHOAMI_DEADLINE: Duration = Duration::from_secs(10);
/// An answer has at most 16,000 tokens.
const RESPONSE_BYTES_MAX: usize = 4 << 20;
/// The wait before another try if the server names none.
const RETRY_DEFAULT: Duration = Duration::from_secs(60);
/// A server cannot ask for a longer wait.
const RETRY_MAX: Duration = Duration::from_secs(3600);
/// The longest sentence of the server that is shown, in characters.
const WHY_CHARS_MAX: usize = 400;
/// The revision of MCP in which each request stands for itself.
const PROTOCOL: &str = "2026-07-28";
const TOOL: &str = "get_relevant_context";
/// What to do about a brain that a token does not have, or not any more.
pub const ANOTHER_TOKEN: &str = "ask an administrator for a token that has it, and give it to `nugget login`";

/// The connection to one team server with one token.
#[derive(Clone)]
pub struct TeamClient {
    client: reqwest::Client,
    base: Url,
    authorization: HeaderValue,
}

/// Why a client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The address is no URL, or neither https nor on this machine.
    #[error("the team server's address must be an https URL")]
    Address,
    /// The token has characters that no token has.
    #[error("the token has characters that no token has")]
    Token,
    /// The HTTP client cannot be set up.
    #[error("the HTTP client cannot be set up")]
    Client(#[source] reqwest::Error),
}

/// What a server said no to, and what that means for the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandOverError {
    /// It may work later: the server is busy, or cannot be reached.
    #[error("{why}")]
    Retry {
        /// The wait before the next try.
        after: Duration,
        /// What happened.
        why: String,
    },
    /// It works after a person has done something: the token, its scopes or its brains are not right.
    #[error("{why}")]
    Blocked {
        /// What happened, and what to do.
        why: String,
    },
    /// It may work later, but perhaps not for this capture: the server answers, and failed at it or was not given it in
    /// time.
    #[error("{why}")]
    NotTaken {
        /// What happened.
        why: String,
    },
    /// It never works: the capture itself is refused.
    #[error("{why}")]
    Refused {
        /// What is wrong with it.
        why: String,
    },
    /// It never works: the capture is larger than the server takes.
    #[error("{why}")]
    TooLarge {
        /// How large it may be.
        why: String,
    },
}

/// The server's acknowledgement: the capture is stored and will not be lost.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Receipt {
    /// The server's id of it.
    pub id: i64,
    /// The brain's slug.
    pub brain: String,
    /// Its stage, or how it ended.
    pub state: String,
    /// Whether it was new to the server.
    pub new: bool,
}

/// What a token may do.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Whoami {
    /// Who the token belongs to.
    pub subject: String,
    /// The slugs of its brains.
    pub brains: Vec<String>,
    /// `read`, `capture`, `admin`.
    pub scopes: Vec<String>,
    /// When it expires, in RFC 3339.
    pub expires: Option<String>,
    /// The repositories of its brains. Older servers do not tell them.
    #[serde(default)]
    pub repositories: Vec<BrainRepository>,
}

impl Whoami {
    /// The day on which it expires.
    pub fn last_day(&self) -> Option<&str> {
        self.expires.as_deref()?.split('T').next()
    }

    /// When it expires.
    pub fn expires(&self) -> Option<Timestamp> {
        self.expires.as_deref()?.parse().ok()
    }
}

/// The repository of a brain on a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrainRepository {
    /// The brain's slug.
    pub brain: String,
    /// Its address, without user name, password and query.
    pub remote: String,
    /// The commit whose units the server answers with; `None` before the first.
    pub commit: Option<String>,
}

impl TeamClient {
    /// A client of the server at `url`, such as `https://brains.example.com`. Certificates are checked by the
    /// system's verifier, and redirects are not followed: one would carry the token to another host.
    ///
    /// # Errors
    /// [`SetupError`] for an address that is not https (or on this machine), and for a token that is no header.
    pub fn new(url: &str, token: &str) -> Result<Self, SetupError> {
        let mut base = Url::parse(url).map_err(|_| SetupError::Address)?;
        let is_local = is_loopback(&base);
        let is_safe = base.scheme() == "https" || base.scheme() == "http" && is_local;
        if !is_safe || base.cannot_be_a_base() {
            return Err(SetupError::Address);
        }
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        let mut authorization =
            HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| SetupError::Token)?;
        authorization.set_sensitive(true);
        // Fails if a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = reqwest::Client::builder()
            .user_agent(concat!("nugget/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(CONNECT_DEADLINE);
        let builder = if is_local { builder.no_proxy() } else { builder };
        let client = builder.build().map_err(SetupError::Client)?;
        Ok(Self { client, base, authorization })
    }

    /// Asks the server who the token belongs to.
    ///
    /// # Errors
    /// [`HandOverError`] as for a capture.
    pub async fn whoami(&self) -> Result<Whoami, HandOverError> {
        let request = self.request(Method::GET, &["v1", "whoami"])?.timeout(WHOAMI_DEADLINE);
        read_json(&send(request).await?)
    }

    /// Hands a capture over. To do so twice changes nothing.
    ///
    /// # Errors
    /// [`HandOverError::Retry`] if it may work later, [`HandOverError::NotTaken`] if others may work before,
    /// [`HandOverError::Blocked`] if a person has to do something first, and [`HandOverError::Refused`] or
    /// [`HandOverError::TooLarge`] if the server will never take it.
    pub async fn hand_over(&self, capture: &Capture) -> Result<Receipt, HandOverError> {
        let key = capture.key().to_string();
        let request = self.request(Method::PUT, &["v1", "captures", &key])?;
        read_json(&send(request.timeout(HAND_OVER_DEADLINE).json(capture)).await?)
    }

    /// Calls the server's tool with `arguments` about a brain.
    ///
    /// # Errors
    /// [`HandOverError::Refused`] if the arguments are wrong, [`HandOverError::Retry`] with the tool's sentence if it
    /// could not answer, else as for a capture.
    pub async fn ask(
        &self,
        brain: &str,
        arguments: &Map<String, Value>,
        deadline: Duration,
    ) -> Result<TeamAnswer, HandOverError> {
        let call = json!({
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {
                "name": TOOL,
                "arguments": arguments,
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": PROTOCOL,
                    "io.modelcontextprotocol/clientInfo": { "name": "nugget", "version": env!("CARGO_PKG_VERSION") },
                    "io.modelcontextprotocol/clientCapabilities": {},
                },
            },
        });
        let request = self
            .request(Method::POST, &["mcp", brain])?
            .timeout(deadline)
            .header(ACCEPT, "application/json, text/event-stream")
            .header("mcp-protocol-version", PROTOCOL)
            .header("mcp-method", "tools/call")
            .header("mcp-name", TOOL)
            .json(&call);
        read_json::<RpcResponse>(&send(request).await?)?.into_answer()
    }

    fn request(&self, method: Method, path: &[&str]) -> Result<RequestBuilder, HandOverError> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        Ok(self.client.request(method, url).header("authorization", self.authorization.clone()))
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    host == "localhost" || host.trim_matches(['[', ']']).parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// Sends a request and returns the body of a success.
async fn send(request: RequestBuilder) -> Result<Vec<u8>, HandOverError> {
    let mut response = request.send().await.map_err(unreachable)?;
    let status = response.status();
    let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await.map_err(unreachable)? {
        body.extend_from_slice(&part);
        if body.len() > RESPONSE_BYTES_MAX {
            return Err(retry(None, "the team server's answer is too long".to_owned()));
        }
    }
    if status.is_success() { Ok(body) } else { Err(classify(status, after, &body)) }
}

fn classify(status: StatusCode, after: Option<u64>, body: &[u8]) -> HandOverError {
    let problem: Option<Problem> = serde_json::from_slice(body).ok();
    let code = problem.as_ref().map(|problem| problem.code.clone()).unwrap_or_default();
    let why = why(status, problem);
    match (status.as_u16(), code.as_str()) {
        // Without a code it is a proxy's answer, which knows nothing of captures: another setting lets this one through.
        (413, "") => HandOverError::NotTaken { why },
        (400 | 406 | 409 | 415 | 422, "") | (401 | 403..=405, _) => HandOverError::Blocked { why },
        // The server was well enough to say so; it may be this capture that it fails at.
        (_, "broken_body" | "crashed" | "too_slow") => HandOverError::NotTaken { why },
        (400 | 406 | 409 | 415 | 422, _) => HandOverError::Refused { why },
        (413, _) => HandOverError::TooLarge { why },
        // With a time the server means everybody.
        (408 | 500, _) if after.is_none() => HandOverError::NotTaken { why },
        // A proxy's redirect to a page for people to sign in.
        (300..400, _) => HandOverError::Blocked { why },
        _ => retry(after, why),
    }
}

fn retry(after: Option<u64>, why: String) -> HandOverError {
    HandOverError::Retry { after: after.map_or(RETRY_DEFAULT, Duration::from_secs).min(RETRY_MAX), why }
}

fn unreachable(error: reqwest::Error) -> HandOverError {
    if error.is_timeout() && !error.is_connect() {
        return HandOverError::NotTaken { why: "the team server did not answer in time".to_owned() };
    }
    retry(None, format!("the team server cannot be reached: {}", root_cause(&error)))
}

/// What went wrong below HTTP: the name has no address, nothing listens, the certificate is not trusted.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    one_line(&cause.to_string(), WHY_CHARS_MAX)
}

/// What a server says of a request that it refuses (RFC 9457).
#[derive(Deserialize)]
struct Problem {
    #[serde(default)]
    code: String,
    detail: String,
    hint: Option<String>,
}

/// The server's own sentence and hint, or its status.
fn why(status: StatusCode, problem: Option<Problem>) -> String {
    let Some(Problem { code, detail, hint }) = problem else {
        return format!("the team server answered {status}");
    };
    // Its hint is for programs that send requests.
    let (detail, hint) = match (status, code.as_str()) {
        (StatusCode::UNAUTHORIZED, _) => (detail, Some("`nugget login` sets another token".to_owned())),
        (_, "unknown_brain") => (detail, Some(ANOTHER_TOKEN.to_owned())),
        (_, "unavailable") => ("the team's server cannot reach its database".to_owned(), hint),
        _ => (detail, hint),
    };
    let sentence = match hint {
        Some(hint) => format!("{detail}; {hint}"),
        None => detail,
    };
    one_line(&sentence, WHY_CHARS_MAX)
}

fn read_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, HandOverError> {
    serde_json::from_slice(body)
        .map_err(|_| retry(None, "the address does not answer as a team server".to_owned()))
}

/// The response to a call of a tool (MCP, `CallToolResult`).
#[derive(Deserialize)]
struct RpcResponse {
    result: Option<ToolResult>,
    error: Option<RpcError>,
}

#[derive(Deserialize)]
struct ToolResult {
    content: Vec<Content>,
    #[serde(default, rename = "isError")]
    is_error: bool,
    #[serde(default, rename = "_meta")]
    meta: Map<String, Value>,
}

#[derive(Deserialize)]
struct Content {
    #[serde(default)]
    text: String,
}

#[derive(Deserialize)]
struct RpcError {
    message: String,
}

impl RpcResponse {
    fn into_answer(self) -> Result<TeamAnswer, HandOverError> {
        let Some(result) = self.result else {
            let message = self.error.map(|error| error.message);
            let why = message.unwrap_or_else(|| "the team server's answer has no result".to_owned());
            return Err(HandOverError::Refused { why });
        };
        let texts: Vec<_> = result.content.into_iter().map(|content| content.text).collect();
        let text = texts.join("\n");
        if result.is_error {
            return Err(retry(None, text));
        }
        Ok(TeamAnswer { text, shown: answer::read_shown(&result.meta) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_over_tls_or_stays_on_this_machine() {
        for url in ["https://a.example", "http://127.0.0.1:80", "http://localhost", "http://[::1]/x"] {
            assert!(TeamClient::new(url, "ngt_x").is_ok(), "{url}");
        }
        for url in ["http://a.example", "ftp://127.0.0.1", "localhost:80", "", "http://127.0.0.1.example"] {
            assert!(matches!(TeamClient::new(url, "ngt_x"), Err(SetupError::Address)), "{url}");
        }
        assert!(matches!(TeamClient::new("https://a.example", "a\nb"), Err(SetupError::Token)));
    }

    #[test]
    fn each_status_says_what_the_caller_does_next() {
        let class = |status: u16, body: &str| match classify(
            StatusCode::from_u16(status).unwrap(),
            Some(7),
            body.as_bytes(),
        ) {
            HandOverError::Retry { after, .. } if after == Duration::from_secs(7) => "retry",
            HandOverError::Retry { .. } => "wrong wait",
            HandOverError::Blocked { .. } => "blocked",
            HandOverError::NotTaken { .. } => "not taken",
            HandOverError::Refused { .. } => "refused",
            HandOverError::TooLarge { .. } => "too large",
        };
        let of_server = |code: &str| json!({ "code": code, "detail": "no" }).to_string();
        let check = |statuses: &[u16], body: &str, expected: &str| {
            statuses.iter().for_each(|&status| assert_eq!(class(status, body), expected, "{status} {body}"));
        };
        for body in [String::new(), of_server("x")] {
            check(&[408, 429, 500, 502, 503, 504], &body, "retry");
            check(&[302, 401, 403, 404], &body, "blocked");
        }
        check(&[400, 409, 415, 422], &of_server("malformed_json"), "refused");
        check(&[413], &of_server("too_large"), "too large");
        check(&[503], &of_server("crashed"), "not taken");
        check(&[503], &of_server("too_slow"), "not taken");
        check(&[400], &of_server("broken_body"), "not taken");
        // A proxy's.
        for body in ["", "<html>", "{}", r#"{"detail":"no"}"#] {
            check(&[400, 409, 415, 422], body, "blocked");
            check(&[413], body, "not taken");
        }
        let without_time = |status: StatusCode| classify(status, None, b"");
        for status in [StatusCode::REQUEST_TIMEOUT, StatusCode::INTERNAL_SERVER_ERROR] {
            assert!(matches!(without_time(status), HandOverError::NotTaken { .. }), "{status}");
        }
        assert!(matches!(without_time(StatusCode::BAD_GATEWAY), HandOverError::Retry { .. }));
    }

    #[test]
    fn what_a_laptops_owner_can_do_is_said_in_place_of_what_a_program_can() {
        let why = |status, code: &str| {
            let body = json!({ "code": code, "detail": "no", "hint": "`GET /v1/whoami`" }).to_string();
            why(StatusCode::from_u16(status).unwrap(), serde_json::from_str(&body).ok())
        };
        assert_eq!(why(401, "revoked_token"), "no; `nugget login` sets another token");
        assert_eq!(why(404, "unknown_brain"), format!("no; {ANOTHER_TOKEN}"));
        assert!(why(503, "unavailable").starts_with("the team's server cannot reach its database"));
        assert_eq!(why(403, "missing_scope"), "no; `GET /v1/whoami`");
    }

    #[test]
    fn a_long_wait_is_cut() {
        assert!(matches!(
            retry(Some(u64::MAX), String::new()),
            HandOverError::Retry { after: RETRY_MAX, .. }
        ));
    }
}
