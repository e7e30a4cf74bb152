//! The one form of every refusal: problem JSON (RFC 9457) with a sentence, and a hint where a person can do something.

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde_json::json;

/// Why a request is refused, as metrics count it.
#[derive(Clone, Copy)]
pub(crate) struct Refused(pub(crate) &'static str);

/// A refusal. Its texts are the server's own, and repeat nothing of a token.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    /// A stable word for programs and metrics.
    code: &'static str,
    detail: String,
    hint: Option<String>,
    retry_after: Option<Duration>,
    challenge: Option<String>,
    closes: bool,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        let (hint, retry_after, challenge) = (None, None, None);
        Self { status, code, detail: detail.into(), hint, retry_after, challenge, closes: false }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    pub(crate) fn retry_after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    /// Sets `WWW-Authenticate`.
    pub(crate) fn challenge(self, challenge: String) -> Self {
        Self { challenge: Some(challenge), ..self }
    }

    /// Ends the connection, whose rest cannot be read as a request.
    pub(crate) fn closing(self) -> Self {
        Self { closes: true, ..self }
    }

    /// Too much to do, or something that is needed does not answer.
    pub(crate) fn busy(code: &'static str, detail: impl Into<String>, wait: Duration) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, detail).retry_after(wait)
    }

    /// The sentence.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// The same for a brain that does not exist and for one that the token may not see.
    pub(crate) fn unknown_brain() -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown_brain", "there is no such brain for this token")
            .hint("`GET /v1/whoami` lists the token's brains; an administrator makes tokens for others")
    }

    pub(crate) fn unknown_path() -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown_path", "there is nothing at this address")
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = json!({
            "type": "about:blank",
            "title": self.status.canonical_reason().unwrap_or_default(),
            "status": self.status.as_u16(),
            "code": self.code,
            "detail": self.detail,
        });
        if let Some(hint) = self.hint {
            body["hint"] = hint.into();
        }
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(wait) = self.retry_after {
            // A part of a second is rounded up, as 0 would mean at once.
            headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs_f64().ceil().max(1.0) as u64));
        }
        if let Some(challenge) = self.challenge.and_then(|text| HeaderValue::from_str(&text).ok()) {
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        if self.closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response.extensions_mut().insert(Refused(self.code));
        response
    }
}
