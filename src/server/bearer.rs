//! Who sends a request: reads the bearer token (RFC 6750) and finds its identity.
//!
//! A token is never logged, repeated in an answer, or looked up as it is: only its digest leaves this file.

use std::sync::Arc;
use std::time::Instant;

use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;

use crate::jwt::JwtError;
use crate::metrics::Step;
use crate::parts::{Action, AuditEvent, Brain, BrainId, FoundToken, Identity, Scope, TokenHash};
use crate::problem::Problem;
use crate::rate_limit::{RateLimit, TokenKey};
use crate::shared::{RETRY_SOON, Shared, unavailable};

/// What opaque tokens begin with.
const PREFIX: &str = "ngt_";
/// The longest token: JWTs with many groups have some KiB.
const TOKEN_BYTES_MAX: usize = 8 << 10;
/// The well-known address of RFC 9728, section 3.
pub(crate) const METADATA: &str = "/.well-known/oauth-protected-resource";

/// The sender of a request.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) identity: Arc<Identity>,
    /// What its rate and its bodies are counted under.
    pub(crate) key: TokenKey,
}

impl Caller {
    /// Finds out who sends a request to a path.
    pub(crate) async fn authenticate(
        shared: &Shared,
        headers: &HeaderMap,
        path: &str,
    ) -> Result<Self, Problem> {
        let begun = Instant::now();
        let caller = find(shared, headers, path).await;
        shared.metrics.observe(Step::Token, begun.elapsed());
        caller
    }

    /// Whether the token has a scope.
    pub(crate) async fn needs(&self, shared: &Shared, scope: Scope) -> Result<(), Problem> {
        if self.identity.scopes.contains(&scope) {
            return Ok(());
        }
        self.audit(shared, Action::Refused, None).await;
        let scope = scope.as_str();
        let problem = Problem::new(
            StatusCode::FORBIDDEN,
            "missing_scope",
            format!("the token has not the scope `{scope}`"),
        )
        .hint(format!("ask an administrator for a token with the scope `{scope}`"))
        .challenge(format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\""));
        Err(problem)
    }

    /// The token's brain with this slug.
    pub(crate) async fn brain(&self, shared: &Shared, slug: &str) -> Result<Brain, Problem> {
        match self.identity.brains.iter().find(|brain| brain.slug == slug) {
            Some(brain) => Ok(brain.clone()),
            None => {
                self.audit(shared, Action::Refused, None).await;
                Err(Problem::unknown_brain())
            }
        }
    }

    /// Counts a request of the token.
    pub(crate) fn count(&self, rate: &RateLimit) -> Result<(), Problem> {
        rate.check(&self.key, Instant::now()).map_err(|wait| {
            let detail = "the token sends more requests than it may";
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", detail).retry_after(wait)
        })
    }

    pub(crate) fn audit_event(&self, action: Action, brain: Option<BrainId>) -> AuditEvent {
        AuditEvent { at: Timestamp::now(), subject: self.identity.subject.clone(), action, brain }
    }

    async fn audit(&self, shared: &Shared, action: Action, brain: Option<BrainId>) {
        let event = self.audit_event(action, brain);
        // A record that fails does not change the answer.
        let _ = shared.call(Step::Audit, move |parts| parts.access.audit(&event)).await;
    }
}

async fn find(shared: &Shared, headers: &HeaderMap, path: &str) -> Result<Caller, Problem> {
    let refuse = |code, detail: &str| unauthorized(shared, path, code, detail);
    let Some(token) = bearer_token(headers) else {
        let is_missing = !headers.contains_key(AUTHORIZATION);
        return Err(if is_missing {
            refuse("missing_token", "the request has no token")
        } else {
            refuse("invalid_token", "`Authorization` is not one bearer token")
        });
    };
    let (key, identity) = if token.starts_with(PREFIX) {
        let hash = TokenHash::from_token(token);
        let found = shared.call(Step::LookUp, move |parts| parts.access.find_token(&hash)).await?;
        let identity = match found.map_err(|error| unavailable(&error))? {
            Some(FoundToken::Valid(identity)) => Some(identity),
            Some(FoundToken::Revoked) => return Err(refuse("revoked_token", "the token was revoked")),
            Some(FoundToken::Expired) => return Err(refuse("expired_token", "the token has expired")),
            None => None,
        };
        (hash.0, identity)
    } else if let Some(jwt) = &shared.jwt {
        let claims = jwt.verify(token).await.map_err(|error| match error {
            JwtError::Invalid => refuse("invalid_token", "the token is not valid"),
            JwtError::Expired => refuse("expired_token", "the token has expired"),
            JwtError::NoKeys => {
                Problem::busy("no_issuer_keys", "the issuer's keys cannot be fetched now", RETRY_SOON)
            }
        })?;
        let sender = format!("{}\0{}", claims.issuer, claims.subject);
        let found = shared.call(Step::LookUp, move |parts| parts.access.find_claims(&claims)).await?;
        (*blake3::hash(sender.as_bytes()).as_bytes(), found.map_err(|error| unavailable(&error))?)
    } else {
        return Err(refuse("invalid_token", "the token is not valid"));
    };
    let identity = identity.ok_or_else(|| refuse("invalid_token", "the token is not valid"))?;
    Ok(Caller { identity: Arc::new(identity), key })
}

/// The token of the only `Authorization` header, if that is a bearer token (RFC 6750, section 2.1).
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().filter(|_| values.next().is_none())?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    let is_valid = !token.is_empty() && token.len() <= TOKEN_BYTES_MAX && token.bytes().all(is_token);
    (scheme.eq_ignore_ascii_case("bearer") && is_valid).then_some(token)
}

fn unauthorized(shared: &Shared, path: &str, code: &'static str, detail: &str) -> Problem {
    let resource = if is_mcp_path(path) { path } else { "" };
    let mut challenge = format!("Bearer resource_metadata=\"{}{METADATA}{resource}\"", shared.public_url);
    if code != "missing_token" {
        challenge.push_str(", error=\"invalid_token\"");
    }
    Problem::new(StatusCode::UNAUTHORIZED, code, detail)
        .hint("send `Authorization: Bearer …` with a token that an administrator made for you")
        .challenge(challenge)
}

/// Whether a path is that of an MCP endpoint, whatever brains there are.
pub(crate) fn is_mcp_path(path: &str) -> bool {
    let is_slug = |slug: &str| {
        (1..=100).contains(&slug.len())
            && slug.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    path == "/mcp" || path.strip_prefix("/mcp/").is_some_and(is_slug)
}
