//! Sends one request through octocrab: deadline, redirects within the host, and the response.

use std::error::Error as StdError;
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use octocrab::{AuthState, OctoBody, Octocrab, OctocrabBuilder};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{ACCEPT, AUTHORIZATION, DATE, HeaderMap, HeaderValue, LOCATION};
use reqwest::{Method, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower_service::Service;

use crate::error::Error;
use crate::host::checked_url;
use crate::refusal::{ErrorBody, Refusal};
use crate::token::Token;
use crate::types::Slug;

const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// A page of 100 pull requests has about 2 MiB.
const RESPONSE_BYTES_MAX: usize = 16 << 20;
const REDIRECTS_MAX: u32 = 3;
/// The skew before the first response.
const NO_SKEW: i64 = i64::MIN;

/// The connection to one GitHub host with one token.
#[derive(Debug)]
pub(crate) struct HttpClient {
    client: ReqwestService,
    /// Made with the first request: octocrab spawns a task, for which it needs the runtime.
    crab: OnceLock<Octocrab>,
    base: Url,
    host: String,
    token: Token,
    deadline: Duration,
    requests: AtomicU64,
    /// How far the server's clock is ahead of ours, in seconds.
    skew_seconds: AtomicI64,
}

/// A request, and how errors name its subject.
pub(crate) struct ApiRequest<'a> {
    pub(crate) method: Method,
    /// The path with the query, without the API's base: `/repos/o/n`.
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
    pub(crate) slug: Option<&'a Slug>,
    pub(crate) what: String,
}

pub(crate) struct ApiResponse {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    /// Whether the request was redirected: the repository has another name now.
    pub(crate) was_redirected: bool,
}

impl HttpClient {
    pub(crate) fn new(api: &str, deadline: Duration, token: &Token) -> Result<Self, Error> {
        let (base, host) = checked_url(api)?;
        // Fails if it is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut authorization = HeaderValue::from_str(&format!("Bearer {}", token.reveal()))
            .map_err(|_| Error::InvalidToken { from: "the caller".to_owned() })?;
        authorization.set_sensitive(true);
        let headers = [
            (ACCEPT, HeaderValue::from_static("application/vnd.github+json")),
            (AUTHORIZATION, authorization),
        ];
        let client = reqwest::Client::builder()
            .user_agent(concat!("nugget/", env!("CARGO_PKG_VERSION")))
            .default_headers(HeaderMap::from_iter(headers))
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(deadline.min(CONNECT_DEADLINE))
            .read_timeout(deadline)
            .build()
            .map_err(|error| Error::Client(error.into()))?;
        let client = ReqwestService(client);
        Ok(Self {
            client,
            crab: OnceLock::new(),
            base,
            host,
            token: token.clone(),
            deadline,
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

    /// Sends one request and follows its redirects, within the deadline. A response of any status is `Ok`.
    pub(crate) async fn send(&self, request: &ApiRequest<'_>) -> Result<ApiResponse, Error> {
        let start = std::time::Instant::now();
        let response = tokio::time::timeout(self.deadline, self.follow(request)).await;
        let response = response.unwrap_or_else(|_| Err(self.timed_out()));
        let (path, took) = (&request.path, start.elapsed());
        match &response {
            Ok(response) => {
                tracing::debug!(method = %request.method, %path, status = response.status, ?took, "request done")
            }
            Err(error) => tracing::debug!(method = %request.method, %path, %error, ?took, "request failed"),
        }
        response
    }

    /// As [`Self::send`], but an unsuccessful response is an error.
    pub(crate) async fn send_checked(&self, request: &ApiRequest<'_>) -> Result<ApiResponse, Error> {
        let response = self.send(request).await?;
        if response.is_success() {
            Ok(response)
        } else {
            Err(self.refusal(&response).into_error(&self.host, request.slug, &request.what))
        }
    }

    async fn follow(&self, request: &ApiRequest<'_>) -> Result<ApiResponse, Error> {
        let mut url = self.base.clone();
        let (path, query) = request.path.split_once('?').unzip();
        url.set_path(&format!("{}{}", self.base.path().trim_end_matches('/'), path.unwrap_or(&request.path)));
        url.set_query(query);
        for hop in 0..=REDIRECTS_MAX {
            let mut response = self.send_once(url.clone(), request).await?;
            response.was_redirected = hop > 0;
            match (response.status, response.header(LOCATION.as_str())) {
                // The method stays, as GitHub documents: a POST that became a GET would look successful.
                (301 | 302 | 307 | 308, Some(location)) => {
                    url = self.same_host(&url, location, &request.what)?
                }
                _ => return Ok(response),
            }
        }
        let message = "too many redirects".to_owned();
        Err(Error::InvalidResponse { what: request.what.clone(), message })
    }

    /// The target of a redirect within this host. The token is never sent to another host.
    fn same_host(&self, from: &Url, location: &str, what: &str) -> Result<Url, Error> {
        let to = from.join(location).ok();
        let is_same = |to: &Url| (to.scheme(), to.authority()) == (self.base.scheme(), self.base.authority());
        to.clone().filter(is_same).ok_or_else(|| {
            let host = to.as_ref().and_then(Url::host_str).unwrap_or("another place");
            Error::Redirected { what: what.to_owned(), host: self.clean(host) }
        })
    }

    async fn send_once(&self, url: Url, request: &ApiRequest<'_>) -> Result<ApiResponse, Error> {
        let builder = Request::builder().method(request.method.clone()).uri(url.as_str());
        // Adds the header `x-github-api-version`.
        let crab = self.crab.get_or_init(|| self.client.clone().into_octocrab());
        let built = crab.build_request(builder, request.body.as_ref());
        let built = built.map_err(|error| Error::Client(error.into()))?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let answer = crab.execute(built).await.map_err(|error| self.connection_error(&error))?;
        let (parts, mut stream) = answer.into_parts();
        let mut body = Vec::new();
        while let Some(frame) = stream.frame().await {
            let frame = frame.map_err(|error| match self.connection_error(&error) {
                // There was a connection, so GitHub may have executed the request.
                Error::Offline { host, message } => Error::ConnectionLost { host, message },
                error => error,
            })?;
            body.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            if body.len() > RESPONSE_BYTES_MAX {
                let message = format!("it is longer than {} MiB", RESPONSE_BYTES_MAX >> 20);
                return Err(Error::InvalidResponse { what: request.what.clone(), message });
            }
        }
        let (status, headers) = (parts.status.as_u16(), parts.headers);
        let response = ApiResponse { status, headers, body, was_redirected: false };
        if let Some(date) = response.date() {
            self.skew_seconds.store(date.as_second() - Timestamp::now().as_second(), Ordering::Relaxed);
        }
        Ok(response)
    }

    /// The error for a request without a complete response.
    fn connection_error(&self, error: &octocrab::Error) -> Error {
        let (mut cause, mut request): (&(dyn StdError + 'static), Option<&reqwest::Error>) = (error, None);
        while let Some(next) = cause.source() {
            cause = next;
            request = request.or(cause.downcast_ref());
        }
        // The innermost error is the most specific, and contains no address.
        let message = knowledge::text::one_line(&self.clean(&cause.to_string()), 200);
        let host = self.host.clone();
        match request {
            Some(request) if request.is_connect() => Error::Offline { host, message },
            Some(request) if request.is_timeout() => self.timed_out(),
            _ => Error::ConnectionLost { host, message },
        }
    }

    fn timed_out(&self) -> Error {
        Error::TimedOut { host: self.host.clone(), waited: self.deadline }
    }

    /// The parts of an unsuccessful response that decide what it means.
    pub(crate) fn refusal(&self, response: &ApiResponse) -> Refusal {
        let number = |name: &str| response.header(name)?.trim().parse::<i64>().ok();
        Refusal {
            status: response.status,
            retry_after: number("retry-after").and_then(|seconds| u64::try_from(seconds).ok()),
            remaining: number("x-ratelimit-remaining").and_then(|left| u64::try_from(left).ok()),
            reset: number("x-ratelimit-reset"),
            now: response.date().unwrap_or_else(Timestamp::now).as_second(),
            wants_sso: response.header("x-github-sso").is_some_and(|value| value.starts_with("required")),
            body: ErrorBody::parse(&response.body, |text| self.clean(text)),
        }
    }

    /// Removes the token from a text of the server, which may repeat the request.
    fn clean(&self, text: &str) -> String {
        text.replace(self.token.reveal(), "…")
    }
}

impl ApiResponse {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
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
            .map_err(|error| Error::InvalidResponse { what: what.to_owned(), message: error.to_string() })
    }
}

/// Sends octocrab's requests with reqwest: with the proxies of the environment and the certificates of the system,
/// without redirects and repetitions.
#[derive(Clone, Debug)]
struct ReqwestService(reqwest::Client);

impl ReqwestService {
    /// octocrab's own client repeats requests, follows redirects and supports no proxy.
    fn into_octocrab(self) -> Octocrab {
        let built = OctocrabBuilder::new_empty().with_service(self).with_auth(AuthState::None).build();
        match built {
            Ok(crab) => crab,
            Err(never) => match never {},
        }
    }
}

type BoxError = Box<dyn StdError + Send + Sync>;

impl Service<Request<OctoBody>> for ReqwestService {
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

/// All characters that have a meaning in a path or query.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Percent-encodes a part of a path or query.
pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}
