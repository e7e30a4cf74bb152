//! One request and its answer: deadlines, redirects, and what an answer that is no success means.

use std::error::Error as StdError;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, DATE, HeaderMap, HeaderValue, LOCATION, USER_AGENT};
use http::{Method, Request, Response, Uri};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use octocrab::{AuthState, OctoBody, Octocrab, OctocrabBuilder};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower_service::Service;

use crate::client::Settings;
use crate::error::{Error, ErrorBody, Refusal};
use crate::host::checked;
use crate::token::Token;
use crate::types::Slug;

const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// A page of 100 pull requests has about 2 MiB.
const ANSWER_BYTES_MAX: usize = 16 << 20;
const REDIRECTS_MAX: u32 = 3;
/// Stands for a clock of which nothing is known yet.
const NO_SKEW: i64 = i64::MIN;

/// The way to one GitHub with one token.
#[derive(Debug)]
pub(crate) struct HttpClient {
    crab: Octocrab,
    base: Uri,
    host: String,
    token: Token,
    authorization: HeaderValue,
    deadline: Duration,
    requests: AtomicU64,
    /// How far the server's clock is ahead of ours, in seconds.
    skew_seconds: AtomicI64,
}

/// What is asked, of what, and how it is called should it go wrong.
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    /// With the query, without the base: `/repos/o/n`.
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
    pub(crate) slug: Option<&'a Slug>,
    pub(crate) what: String,
}

pub(crate) struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    /// Whether the thing has moved: what was asked for has another name today.
    pub(crate) was_redirected: bool,
}

impl HttpClient {
    pub(crate) fn new(settings: &Settings, token: &Token) -> Result<Self, Error> {
        let host = checked(&settings.api)?;
        let base = settings.api.trim_end_matches('/').parse();
        let base = base.map_err(|_| Error::InvalidApi { reason: "it is not an address" })?;
        // The first caller installs it; a second finds it there.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(settings.deadline.min(CONNECT_DEADLINE))
            .read_timeout(settings.deadline)
            .build()
            .map_err(|error| Error::Client(error.into()))?;
        // octocrab starts a task, and panics where there is none to run it.
        tokio::runtime::Handle::try_current().map_err(|error| Error::Client(error.into()))?;
        // Its own client repeats requests, follows redirects and knows no proxy: this one does what it
        // is told, and is the one that the models are asked through.
        let built =
            OctocrabBuilder::new_empty().with_service(Courier(client)).with_auth(AuthState::None).build();
        let crab = match built {
            Ok(crab) => crab,
            Err(never) => match never {},
        };
        let mut authorization = HeaderValue::from_str(&format!("Bearer {}", token.reveal()))
            .map_err(|_| Error::InvalidToken { from: "the caller".to_owned() })?;
        authorization.set_sensitive(true);
        Ok(Self {
            crab,
            base,
            host,
            token: token.clone(),
            authorization,
            deadline: settings.deadline,
            requests: AtomicU64::new(0),
            skew_seconds: AtomicI64::new(NO_SKEW),
        })
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(crate) fn skew_seconds(&self) -> Option<i64> {
        Some(self.skew_seconds.load(Ordering::Relaxed)).filter(|skew| *skew != NO_SKEW)
    }

    /// One request with all its redirects, within the deadline. Any status is an answer.
    pub(crate) async fn ask(&self, ask: &Ask<'_>) -> Result<Answer, Error> {
        let begun = std::time::Instant::now();
        let answer = tokio::time::timeout(self.deadline, self.follow(ask)).await;
        let answer = answer.unwrap_or_else(|_| Err(self.timed_out()));
        let (path, took) = (&ask.path, begun.elapsed());
        match &answer {
            Ok(answer) => {
                tracing::debug!(method = %ask.method, %path, status = answer.status, ?took, "asked")
            }
            Err(error) => tracing::debug!(method = %ask.method, %path, %error, ?took, "asked in vain"),
        }
        answer
    }

    /// The same, for whom only success is an answer.
    pub(crate) async fn get_through(&self, ask: &Ask<'_>) -> Result<Answer, Error> {
        let answer = self.ask(ask).await?;
        if answer.is_success() {
            Ok(answer)
        } else {
            Err(self.refusal(&answer).read(&self.host, ask.slug, &ask.what))
        }
    }

    async fn follow(&self, ask: &Ask<'_>) -> Result<Answer, Error> {
        let base_path = self.base.path().trim_end_matches('/');
        let mut path = format!("{base_path}{}", ask.path);
        for hop in 0..=REDIRECTS_MAX {
            let uri = self.uri(&path).ok_or_else(|| Error::InvalidRequest {
                what: "the address",
                reason: "it has characters that cannot stand there",
            })?;
            let mut answer = self.send(uri, ask).await?;
            answer.was_redirected = hop > 0;
            let location = answer.headers.get(LOCATION).and_then(|value| value.to_str().ok());
            match (answer.status, location) {
                // The method stays: GitHub says so, and a POST that became a GET would look like success.
                (301 | 302 | 307 | 308, Some(location)) => path = self.same_host(location, &ask.what)?,
                _ => return Ok(answer),
            }
        }
        Err(Error::Answer { what: ask.what.clone(), told: "it redirects again and again".to_owned() })
    }

    /// Path and query of a redirect within this host. To no other host goes the token.
    fn same_host(&self, location: &str, what: &str) -> Result<String, Error> {
        // `//HOST/…` is another host by the standard, and a path by this parser.
        let to: Option<Uri> = if location.starts_with("//") { None } else { location.parse().ok() };
        let is_same = |uri: &Uri| {
            uri.authority().is_none()
                || (uri.scheme() == self.base.scheme() && uri.authority() == self.base.authority())
        };
        match to.as_ref().filter(|uri| is_same(uri)).and_then(Uri::path_and_query) {
            Some(path) => Ok(path.to_string()),
            None => {
                let host = to.as_ref().and_then(Uri::host).unwrap_or("another place");
                Err(Error::Redirected { what: what.to_owned(), host: self.clean(host) })
            }
        }
    }

    fn uri(&self, path: &str) -> Option<Uri> {
        let mut parts = self.base.clone().into_parts();
        parts.path_and_query = Some(path.parse().ok()?);
        Uri::from_parts(parts).ok()
    }

    async fn send(&self, uri: Uri, ask: &Ask<'_>) -> Result<Answer, Error> {
        let request = Request::builder()
            .method(ask.method.clone())
            .uri(uri)
            .header(ACCEPT, "application/vnd.github+json")
            .header(USER_AGENT, concat!("nugget/", env!("CARGO_PKG_VERSION")))
            .header(AUTHORIZATION, self.authorization.clone());
        // Adds `x-github-api-version`.
        let request = self.crab.build_request(request, ask.body.as_ref());
        let request = request.map_err(|error| Error::Client(error.into()))?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let response = self.crab.execute(request).await.map_err(|error| self.trouble(&error))?;
        let (parts, mut body) = response.into_parts();
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| match self.trouble(&error) {
                // There was a connection, so there is doubt whether the work has been done.
                Error::Offline { host, told } => Error::Broken { host, told },
                error => error,
            })?;
            bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            if bytes.len() > ANSWER_BYTES_MAX {
                let told = format!("it is longer than {} MiB", ANSWER_BYTES_MAX >> 20);
                return Err(Error::Answer { what: ask.what.clone(), told });
            }
        }
        let answer = Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: bytes,
            was_redirected: false,
        };
        if let Some(date) = answer.date() {
            self.skew_seconds.store(date.as_second() - Timestamp::now().as_second(), Ordering::Relaxed);
        }
        Ok(answer)
    }

    /// Why there is no answer.
    fn trouble(&self, error: &octocrab::Error) -> Error {
        let (mut cause, mut request): (&(dyn StdError + 'static), Option<&reqwest::Error>) = (error, None);
        while let Some(next) = cause.source() {
            cause = next;
            request = request.or(cause.downcast_ref());
        }
        // The innermost says it best, and has no address in it.
        let told = knowledge::text::one_line(&self.clean(&cause.to_string()), 200);
        let host = self.host.clone();
        match request {
            Some(request) if request.is_timeout() && !request.is_connect() => self.timed_out(),
            Some(request) if request.is_connect() => Error::Offline { host, told },
            _ => Error::Broken { host, told },
        }
    }

    fn timed_out(&self) -> Error {
        Error::TimedOut { host: self.host.clone(), waited: self.deadline }
    }

    /// What an answer that is no success says.
    pub(crate) fn refusal(&self, answer: &Answer) -> Refusal {
        let number = |name: &str| answer.header(name)?.trim().parse::<i64>().ok();
        Refusal {
            status: answer.status,
            retry_after: number("retry-after").and_then(|seconds| u64::try_from(seconds).ok()),
            remaining: number("x-ratelimit-remaining").and_then(|left| u64::try_from(left).ok()),
            reset: number("x-ratelimit-reset"),
            now: answer.date().unwrap_or_else(Timestamp::now).as_second(),
            wants_sso: answer.header("x-github-sso").is_some_and(|value| value.starts_with("required")),
            told: ErrorBody::read(&answer.body, |text| self.clean(text)),
        }
    }

    /// A server that repeats the request in its words must not make the token be shown.
    fn clean(&self, text: &str) -> String {
        text.replace(self.token.reveal(), "…")
    }
}

impl Answer {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The server's clock.
    pub(crate) fn date(&self) -> Option<Timestamp> {
        let text = self.header(DATE.as_str())?;
        jiff::fmt::rfc2822::parse(text).ok().map(|date| date.timestamp())
    }

    pub(crate) fn json<T: DeserializeOwned>(&self, what: &str) -> Result<T, Error> {
        serde_json::from_slice(&self.body)
            .map_err(|error| Error::Answer { what: what.to_owned(), told: error.to_string() })
    }
}

/// Carries octocrab's requests by the client that all of nugget uses: with the proxies of the
/// environment and the certificates of the system, without redirects and without a second attempt.
#[derive(Clone)]
struct Courier(reqwest::Client);

type BoxError = Box<dyn StdError + Send + Sync>;

impl Service<Request<OctoBody>> for Courier {
    type Response = Response<reqwest::Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<OctoBody>) -> Self::Future {
        let client = self.0.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let request = reqwest::Request::try_from(Request::from_parts(parts, body))?;
            Ok(client.execute(request).await?.into())
        })
    }
}

/// A piece of a path or query, with everything encoded that could mean something there.
pub(crate) fn encoded(text: &str) -> String {
    const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(text, ENCODED).to_string()
}
