//! Reads request bodies within bounds of size, time and memory.

use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody as _};
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use crate::body_memory::Reserved;
use crate::metrics::Step;
use crate::problem::Problem;
use crate::rate_limit::TokenKey;
use crate::shared::{RETRY_SOON, Shared};

/// How long the rest of a refused body is read for.
const DISCARD_DEADLINE: Duration = Duration::from_secs(5);

/// A body in memory, with its share of the memory for bodies.
pub(crate) struct ReadBody {
    pub(crate) bytes: Bytes,
    /// To be kept as long as what was made of the bytes.
    pub(crate) reserved: Reserved,
}

/// Reads a token's body of at most `bytes_max`.
pub(crate) async fn read(
    shared: &Shared,
    token: &TokenKey,
    headers: &HeaderMap,
    body: &mut Option<Body>,
    bytes_max: usize,
) -> Result<ReadBody, Problem> {
    let begun = Instant::now();
    if headers.get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        let detail = "the body is compressed, which is not supported";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_coding", detail));
    }
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let too_long = || {
        let detail = format!("the body is longer than {} KiB", bytes_max >> 10);
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail)
    };
    if length.is_some_and(|length| length > bytes_max) {
        return Err(too_long());
    }
    let reserved = shared.bodies.reserve(token, length.unwrap_or(bytes_max));
    let reserved = reserved
        .ok_or_else(|| Problem::busy("no_memory", "the server reads too many bodies at once", RETRY_SOON))?;
    let reading = Limited::new(body.take().unwrap_or_default(), bytes_max).collect();
    let read = tokio::time::timeout(shared.settings.limits.body_timeout, reading).await;
    shared.metrics.observe(Step::Body, begun.elapsed());
    match read {
        Ok(Ok(read)) => Ok(ReadBody { bytes: read.to_bytes(), reserved }),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_long().closing()),
        Ok(Err(_)) => {
            let detail = "the body could not be read to its end";
            Err(Problem::new(StatusCode::BAD_REQUEST, "broken_body", detail).closing())
        }
        Err(_) => {
            let detail = "the body did not arrive in time";
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "slow_body", detail).closing())
        }
    }
}

/// Refuses a body that does not claim to be JSON.
pub(crate) fn check_is_json(headers: &HeaderMap) -> Result<(), Problem> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let detail = "`Content-Type` must be application/json";
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_type", detail))
}

/// Reads what is left of a refused body and forgets it: a client that still sends would not see the answer if the
/// connection was closed. Apart from the request, which is done.
pub(crate) fn discard(body: Option<Body>, bytes_max: usize) {
    let Some(mut body) = body else { return };
    if body.is_end_stream() {
        return;
    }
    let discarding = async move {
        let mut left = bytes_max;
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            match left.checked_sub(length) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    };
    tokio::spawn(tokio::time::timeout(DISCARD_DEADLINE, discarding));
}
