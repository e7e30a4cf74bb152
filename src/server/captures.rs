//! `PUT /v1/captures/{key}` stores a capture, `GET /v1/captures/{id}` tells what became of it.

use std::fmt::Display;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::error::Category;
use serde_json::json;
use sha2::{Digest as _, Sha256, Sha512};
use team_client::{Capture, CaptureKey, FORMAT};

use crate::bearer::Caller;
use crate::body;
use crate::metrics::Step;
use crate::parts::{Brain, CaptureError, CaptureId, CaptureState, NewCapture, Parts, Scope};
use crate::problem::Problem;
use crate::shared::{Shared, unavailable};

/// The longest part of a parser's message that is repeated, in characters.
const MESSAGE_CHARS_MAX: usize = 200;

pub(crate) async fn put(
    State(shared): State<Arc<Shared>>,
    key: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    let (head, body) = request.into_parts();
    let mut body = Some(body);
    let stored = store(&shared, head.uri.path(), key.ok(), &head.headers, &mut body).await;
    body::discard(body, shared.settings.limits.capture_bytes_max);
    let (state, is_new) = match stored {
        Ok(stored) => stored,
        Err(problem) => return problem.into_response(),
    };
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let location = format!("/v1/captures/{}", state.id.0);
    let mut receipt = receipt(&state);
    receipt["new"] = is_new.into();
    (status, [(CONTENT_TYPE, "application/json".to_owned()), (LOCATION, location)], receipt.to_string())
        .into_response()
}

pub(crate) async fn get(
    State(shared): State<Arc<Shared>>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Problem> {
    let caller = Caller::authenticate(&shared, request.headers(), request.uri().path()).await?;
    caller.count(&shared.question_rate)?;
    caller.needs(&shared, Scope::Capture).await?;
    let unknown = || {
        let detail = "there is no such capture in a brain of this token";
        Problem::new(StatusCode::NOT_FOUND, "unknown_capture", detail)
    };
    let id = id.ok().and_then(|Path(id)| id.parse().ok()).ok_or_else(unknown)?;
    let identity = Arc::clone(&caller.identity);
    let find = move |parts: &Parts| parts.captures.find(&identity, CaptureId(id));
    let found = shared.call(Step::Capture, find).await?.map_err(|error| unavailable(&error))?;
    // Whatever the store says: a capture is shown to those who have its brain.
    let is_own = |state: &CaptureState| caller.identity.brains.iter().any(|brain| brain.slug == state.brain);
    let state = found.filter(is_own).ok_or_else(unknown)?;
    Ok(([(CONTENT_TYPE, "application/json")], receipt(&state).to_string()).into_response())
}

fn receipt(state: &CaptureState) -> serde_json::Value {
    json!({ "id": state.id.0, "brain": state.brain, "state": state.state })
}

async fn store(
    shared: &Shared,
    path: &str,
    key: Option<Path<String>>,
    headers: &HeaderMap,
    body: &mut Option<Body>,
) -> Result<(CaptureState, bool), Problem> {
    let caller = Caller::authenticate(shared, headers, path).await?;
    caller.count(&shared.capture_rate)?;
    caller.needs(shared, Scope::Capture).await?;
    let key = key.and_then(|Path(key)| CaptureKey::parse(&key)).ok_or_else(|| {
        Problem::new(StatusCode::BAD_REQUEST, "malformed_key", "the key in the address is not 64 hex digits")
    })?;
    body::check_is_json(headers)?;
    let bytes_max = shared.settings.limits.capture_bytes_max;
    let read = body::read(shared, &caller.key, headers, body, bytes_max).await?;
    let digests = content_digests(headers)?;
    // Digests and JSON of 16 MiB take a while: apart from the threads that serve connections.
    let reading = move |_: &Parts| {
        check_digests(&digests, &read.bytes)?;
        let (slug, capture) = parse(&read.bytes, key)?;
        Ok((slug, capture, read.reserved))
    };
    let (slug, capture, reserved) = shared.call(Step::Parse, reading).await??;
    let brain = match slug {
        Some(slug) => caller.brain(shared, &slug).await?,
        None => only_brain(&caller)?,
    };
    let identity = Arc::clone(&caller.identity);
    let storing = move |parts: &Parts| {
        // The capture is as large as its body, until it is stored.
        let _reserved = reserved;
        parts.captures.accept(&identity, &brain, capture)
    };
    shared.call(Step::Capture, storing).await?.map_err(|error| match error {
        CaptureError::Conflict(detail) => Problem::new(StatusCode::CONFLICT, "conflict", detail),
        CaptureError::Unacceptable(detail) => invalid(detail),
        CaptureError::UnknownBrain => Problem::unknown_brain(),
        CaptureError::Unavailable(error) => unavailable(&error),
    })
}

fn only_brain(caller: &Caller) -> Result<Brain, Problem> {
    match &caller.identity.brains[..] {
        [brain] => Ok(brain.clone()),
        _ => Err(invalid("`brain` is missing, and the token has not exactly one brain")
            .hint("name one of the brains that `GET /v1/whoami` lists")),
    }
}

fn invalid(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_capture", detail)
}

/// Reads and checks a capture. Returns the brain that it names, too.
fn parse(bytes: &[u8], key: CaptureKey) -> Result<(Option<String>, NewCapture), Problem> {
    /// Read first: another version may have other fields.
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let Version { format } = serde_json::from_slice(bytes).map_err(|error| unreadable(&error))?;
    if format != FORMAT {
        return Err(invalid(format!("the format is {format}, and this server knows {FORMAT}"))
            .hint("update nugget on the older side"));
    }
    let capture: Capture = serde_json::from_slice(bytes).map_err(|error| unreadable(&error))?;
    let intake = capture.checked_intake().map_err(|fault| invalid(fault.to_string()))?;
    if capture.key() != key {
        return Err(invalid("the key in the address is not that of the session and its lines"));
    }
    let Capture { brain, session, project, origin, end_reason, ended, lines, .. } = capture;
    Ok((brain, NewCapture { key, session, project, origin, end_reason, ended, lines, intake }))
}

/// 422 for JSON of a wrong shape, 400 for what is no JSON.
fn unreadable(error: &serde_json::Error) -> Problem {
    let message: String =
        error.to_string().chars().filter(|c| !c.is_control()).take(MESSAGE_CHARS_MAX).collect();
    match error.classify() {
        Category::Data => invalid(format!("the body is not a capture: {message}")),
        _ => Problem::new(
            StatusCode::BAD_REQUEST,
            "malformed_json",
            format!("the body is not JSON: {message}"),
        ),
    }
}

/// The digests of the body that the client sends along (RFC 9530, section 2).
struct ContentDigests {
    sha256: Option<Vec<u8>>,
    sha512: Option<Vec<u8>>,
}

fn content_digests(headers: &HeaderMap) -> Result<ContentDigests, Problem> {
    let malformed = |_: &dyn Display| {
        let detail = "`Content-Digest` cannot be read: it is like `sha-256=:base64:`";
        Problem::new(StatusCode::BAD_REQUEST, "malformed_digest", detail)
    };
    let mut digests = ContentDigests { sha256: None, sha512: None };
    for value in headers.get_all("content-digest") {
        let value = value.to_str().map_err(|error| malformed(&error))?;
        for member in value.split(',') {
            let (name, digest) = member.trim().split_once('=').ok_or_else(|| malformed(&""))?;
            let digest = digest.strip_prefix(':').and_then(|digest| digest.strip_suffix(':'));
            let digest =
                STANDARD.decode(digest.ok_or_else(|| malformed(&""))?).map_err(|error| malformed(&error))?;
            match name {
                "sha-256" => digests.sha256 = Some(digest),
                "sha-512" => digests.sha512 = Some(digest),
                // Unknown ones are ignored, as the standard says.
                _ => {}
            }
        }
    }
    Ok(digests)
}

fn check_digests(digests: &ContentDigests, bytes: &[u8]) -> Result<(), Problem> {
    let is_intact = digests.sha256.as_ref().is_none_or(|digest| digest[..] == Sha256::digest(bytes)[..])
        && digests.sha512.as_ref().is_none_or(|digest| digest[..] == Sha512::digest(bytes)[..]);
    if is_intact {
        return Ok(());
    }
    Err(Problem::new(StatusCode::BAD_REQUEST, "wrong_digest", "the body is not what `Content-Digest` says"))
}
