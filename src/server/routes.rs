//! The addresses of the server, and what is done around each request.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};
use tracing::Instrument as _;

use crate::bearer::{Caller, METADATA, is_mcp_path};
use crate::captures;
use crate::hosts::check_host;
use crate::metrics::Step;
use crate::parts::Scope;
use crate::problem::{Problem, Refused};
use crate::questions::{self, Endpoint};
use crate::shared::{RETRY_SOON, Shared, unavailable};

/// The routes as metrics name them.
const ROUTES: [&str; 9] = [
    "/healthz",
    "/readyz",
    "/metrics",
    METADATA,
    "/.well-known/oauth-protected-resource/{*path}",
    "/v1/whoami",
    "/v1/captures/{key}",
    "/mcp",
    "/mcp/{brain}",
];
/// The route of what is none of them.
const NO_ROUTE: &str = "none";
/// Answered whatever else goes on.
const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

pub(crate) fn router(shared: &Arc<Shared>) -> Router {
    let endpoint = Endpoint::new(Arc::clone(shared));
    let mcp = Router::new()
        .route("/mcp", any(questions::mcp))
        .route("/mcp/{brain}", any(questions::mcp))
        .with_state(endpoint);
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route(METADATA, get(metadata))
        .route("/.well-known/oauth-protected-resource/{*path}", get(metadata))
        .route("/v1/whoami", get(whoami))
        .route("/v1/captures/{key}", get(captures::get).put(captures::put))
        .with_state(Arc::clone(shared))
        .merge(mcp)
        .fallback(async || Problem::unknown_path())
        .method_not_allowed_fallback(async || {
            let detail = "this address does not take this method";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", detail)
        })
        .layer(from_fn_with_state(Arc::clone(shared), around))
}

/// Lets a request in if there is room, and counts it.
async fn around(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let matched = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let route = ROUTES.into_iter().find(|route| matched == Some(*route)).unwrap_or(NO_ROUTE);
    let place = Arc::clone(&shared.requests).try_acquire_owned();
    let response = if place.is_ok() || PROBES.contains(&route) {
        let span =
            tracing::info_span!("request", method = %request.method(), route, status = tracing::field::Empty);
        let response = next.run(request).instrument(span.clone()).await;
        span.record("status", response.status().as_u16());
        response
    } else {
        Problem::busy("busy", "the server works on as many requests as it can", RETRY_SOON).into_response()
    };
    drop(place);
    if let Some(Refused(reason)) = response.extensions().get() {
        shared.metrics.count_refused(reason);
    }
    shared.metrics.count_request(route, response.status().as_u16());
    shared.metrics.observe(Step::Request, begun.elapsed());
    response
}

/// The process lives.
async fn healthz() -> &'static str {
    "ok\n"
}

/// Requests can be answered, and the server does not end.
async fn readyz(State(shared): State<Arc<Shared>>) -> Result<&'static str, Problem> {
    if shared.is_draining.load(Ordering::Acquire) {
        return Err(Problem::busy("draining", "the server is about to end", RETRY_SOON));
    }
    if !shared.is_ready().await {
        return Err(Problem::busy("not_ready", "the server cannot reach what it needs now", RETRY_SOON));
    }
    Ok("ready\n")
}

async fn metrics(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Problem> {
    if !shared.settings.open_metrics {
        let caller = Caller::authenticate(&shared, request.headers(), request.uri().path()).await?;
        caller.count(&shared.question_rate)?;
        caller.needs(&shared, Scope::Admin).await?;
    }
    // Without the database there are still the server's own numbers.
    let mut others = shared.database_metrics().await;
    others.extend(shared.gauges());
    let text = shared.metrics.render(others);
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

/// Who may make tokens for which resource (RFC 9728, section 3). The same for brains that do not exist.
async fn metadata(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Problem> {
    let resource = request.uri().path().strip_prefix(METADATA).unwrap_or_default();
    if !resource.is_empty() && !is_mcp_path(resource) {
        return Err(Problem::unknown_path());
    }
    let mut document = json!({
        "resource": format!("{}{resource}", shared.public_url),
        "resource_name": "nugget",
        "scopes_supported": Scope::ALL,
        "bearer_methods_supported": ["header"],
    });
    if let Some(jwt) = &shared.settings.jwt {
        document["authorization_servers"] = json!([jwt.issuer]);
    }
    Ok(json_response(&document))
}

async fn whoami(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Problem> {
    let (head, _) = request.into_parts();
    let caller = Caller::authenticate(&shared, &head.headers, head.uri.path()).await?;
    caller.count(&shared.question_rate)?;
    check_host(&shared, &head)?;
    let identity = Arc::clone(&caller.identity);
    let brains: Vec<_> = caller.identity.brains.iter().map(|brain| &brain.slug).collect();
    let repositories =
        shared.call(Step::LookUp, move |parts| parts.access.repositories(&identity.brains)).await?;
    let repositories = repositories.map_err(|error| unavailable(&error))?;
    let identity = &caller.identity;
    Ok(json_response(&json!({
        "subject": identity.subject,
        "brains": brains,
        "scopes": identity.scopes,
        "expires": identity.expires,
        "repositories": repositories,
    })))
}

fn json_response(value: &Value) -> Response {
    ([(CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}
