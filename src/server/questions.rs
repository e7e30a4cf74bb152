//! MCP over streamable HTTP: each POST stands for itself, and its answer is JSON. One tool, as over stdio.
//!
//! Who asks which brain is settled before rmcp sees a request. rmcp speaks the protocol's revisions, checks `Host` and
//! `Origin`, and never sees the token.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, ORIGIN};
use http::request::Parts as Head;
use http::{HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt as _, Full};
use mcp::context_tool::{DESCRIPTION, INSTRUCTIONS, Task, input_schema, tool_meta};
use mcp::message;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    CallToolResult, ContentBlock, ErrorCode, Implementation, JsonObject, MetaObject, ServerCapabilities,
    ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler, tool, tool_handler, tool_router};
use serde_json::json;
use team_client::{SHOWN, TeamAnswer};
use tracing::Instrument as _;

use crate::bearer::Caller;
use crate::body;
use crate::hosts::{PUBLIC_URL_HINT, allowed_hosts};
use crate::metrics::Step;
use crate::parts::{Action, Brain, Parts, QuestionError, Scope};
use crate::problem::{Problem, Refused};
use crate::settings::Settings;
use crate::shared::Shared;

/// The longest text of rmcp that becomes a problem's detail, in bytes.
const TRANSPORT_TEXT_BYTES_MAX: usize = 300;

/// What the handler of `/mcp` works with.
#[derive(Clone)]
pub(crate) struct Endpoint {
    shared: Arc<Shared>,
    service: StreamableHttpService<Tools, NeverSessionManager>,
}

impl Endpoint {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let tools = Tools { tool_router: Tools::tool_router() };
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_sse_keep_alive(None)
            .with_max_request_body_bytes(shared.settings.limits.question_bytes_max)
            .with_allowed_hosts(allowed_hosts(&shared.settings, &shared.public_url))
            .with_allowed_origins(allowed_origins(&shared.settings))
            .enforce_origin_validation();
        let service = StreamableHttpService::new(move || Ok(tools.clone()), Arc::default(), config);
        Self { shared, service }
    }
}

fn allowed_origins(settings: &Settings) -> Vec<String> {
    let local = ["http://localhost:*", "http://127.0.0.1:*"].map(str::to_owned);
    let local = local.into_iter().filter(|_| settings.listen.ip().is_loopback());
    local.chain(settings.allowed_origins.iter().cloned()).collect()
}

/// A question's sender and brain, which the tool finds in its request.
#[derive(Clone)]
struct Asked {
    shared: Arc<Shared>,
    caller: Caller,
    brain: Brain,
}

pub(crate) async fn mcp(
    State(endpoint): State<Endpoint>,
    slug: Result<Option<Path<String>>, PathRejection>,
    request: Request,
) -> Response {
    let (head, body) = request.into_parts();
    let mut body = Some(body);
    let answered =
        answer(endpoint.clone(), slug.map(|slug| slug.map(|Path(slug)| slug)).ok(), head, &mut body).await;
    body::discard(body, endpoint.shared.settings.limits.question_bytes_max);
    answered.unwrap_or_else(IntoResponse::into_response)
}

async fn answer(
    endpoint: Endpoint,
    slug: Option<Option<String>>,
    mut head: Head,
    body: &mut Option<Body>,
) -> Result<Response, Problem> {
    let shared = &endpoint.shared;
    let caller = Caller::authenticate(shared, &head.headers, head.uri.path()).await?;
    caller.count(&shared.question_rate)?;
    caller.needs(shared, Scope::Read).await?;
    let brain = match slug {
        Some(Some(slug)) => caller.brain(shared, &slug).await?,
        Some(None) => only_brain(&caller)?,
        None => return Err(Problem::unknown_brain()),
    };
    head.headers.remove(AUTHORIZATION);
    head.extensions.clear();
    let mut bytes = Bytes::new();
    if head.method == Method::POST {
        body::check_is_json(&head.headers)?;
        let bytes_max = shared.settings.limits.question_bytes_max;
        let read = body::read(shared, &caller.key, &head.headers, body, bytes_max).await?;
        if let Some(response) = refuse_malformed(&read.bytes) {
            return Ok(response);
        }
        bytes = read.bytes.clone();
    }
    head.extensions.insert(Asked { shared: Arc::clone(shared), caller, brain });
    // In a task of its own: a bug in the protocol's code is an answer, not a broken connection.
    let service = endpoint.service.clone();
    let has_origin = head.headers.contains_key(ORIGIN);
    let request = http::Request::from_parts(head, Full::new(bytes));
    let handling = async move { service.handle(request).await }.in_current_span();
    let crashed =
        || Problem::busy("crashed", "the request could not be worked on", crate::shared::RETRY_SOON);
    let response = tokio::spawn(handling).await.map_err(|_| crashed())?;
    Ok(as_problem(response.map(Body::new), has_origin).await)
}

fn only_brain(caller: &Caller) -> Result<Brain, Problem> {
    match &caller.identity.brains[..] {
        [brain] => Ok(brain.clone()),
        _ => {
            Err(Problem::new(StatusCode::NOT_FOUND, "brain_not_named", "the token has not exactly one brain")
                .hint("use the address `/mcp/{brain}`; `GET /v1/whoami` lists the token's brains"))
        }
    }
}

/// The answer to what is no message, or to several: an error of JSON-RPC. `None` if there is one message.
fn refuse_malformed(bytes: &[u8]) -> Option<Response> {
    let mut messages = message::parse(bytes);
    let refusal = match (messages.pop(), messages.pop()) {
        (Some(Ok(_)), None) => return None,
        (Some(Err(refusal)), None) => refusal,
        // Nothing that is answered: a response, or an unknown notification.
        (None, _) if !bytes.trim_ascii().is_empty() => return Some(StatusCode::ACCEPTED.into_response()),
        (None, _) => message::Refusal::invalid(serde_json::Value::Null, "the body is empty"),
        (Some(_), Some(_)) => {
            message::Refusal::invalid(serde_json::Value::Null, "a body is one message, not several")
        }
    };
    let refusal = refusal.to_json();
    // Wrong parameters are the tool's matter, as they are over stdio; the rest is no request.
    let is_request = refusal["error"]["code"] == ErrorCode::INVALID_PARAMS.0;
    let status = if is_request { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    let mut response = (status, [(CONTENT_TYPE, "application/json")], refusal.to_string()).into_response();
    response.extensions_mut().insert(Refused("malformed_message"));
    Some(response)
}

/// rmcp says in plain text what is wrong with a request's headers.
async fn as_problem(response: Response, has_origin: bool) -> Response {
    let status = response.status();
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if status.is_success() || kind.starts_with("application/json") {
        return response;
    }
    if status.is_server_error() {
        return Problem::busy("crashed", "the request could not be worked on", crate::shared::RETRY_SOON)
            .into_response();
    }
    let allow = response.headers().get(ALLOW).cloned();
    let text = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[..text.len().min(TRANSPORT_TEXT_BYTES_MAX)]).into_owned();
    let mut problem = Problem::new(status, "mcp_transport", text);
    // What rmcp forbids is the request's host or, of a page in a browser, its origin.
    if status == StatusCode::FORBIDDEN && !has_origin {
        problem = problem.hint(PUBLIC_URL_HINT);
    }
    let mut response = problem.into_response();
    if let Some(allow) = allow {
        response.headers_mut().insert(ALLOW, HeaderValue::from_bytes(allow.as_bytes()).unwrap_or(allow));
    }
    response
}

#[derive(Clone)]
struct Tools {
    tool_router: ToolRouter<Self>,
}

#[tool_router]
impl Tools {
    #[tool(
        name = "get_relevant_context",
        description = DESCRIPTION,
        input_schema = input_schema(),
        annotations(read_only_hint = true, destructive_hint = false, open_world_hint = false),
        meta = tool_meta()
    )]
    async fn get_relevant_context(
        &self,
        Parameters(arguments): Parameters<JsonObject>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let task = Task::parse(&arguments).map_err(|what| ErrorData::invalid_params(what, None))?;
        let asked = context.extensions.get::<Head>().and_then(|head| head.extensions.get::<Asked>()).cloned();
        // Never so: the handler of the address puts it there.
        let asked = asked.ok_or_else(|| ErrorData::internal_error("the request has no brain", None))?;
        Ok(match asked.answer(task).await {
            Ok(TeamAnswer { text, shown }) => {
                let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
                result.meta = Some(MetaObject(JsonObject::from_iter([(SHOWN.to_owned(), json!(shown))])));
                result
            }
            Err(sentence) => CallToolResult::error(vec![ContentBlock::text(sentence)]),
        })
    }
}

impl Asked {
    /// The answer to a task. An error is a sentence for the client's model.
    async fn answer(self, task: Task) -> Result<TeamAnswer, String> {
        let event = self.caller.audit_event(Action::Ask, Some(self.brain.id));
        let identity = Arc::clone(&self.caller.identity);
        let asking = move |parts: &Parts| {
            parts.access.audit(&event);
            parts.questions.answer(&identity, &self.brain, &task)
        };
        match self.shared.call(Step::Question, asking).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(QuestionError::NotReady(sentence))) => Err(sentence),
            Ok(Err(QuestionError::Unavailable(error))) => {
                let problem = crate::shared::unavailable(&error);
                Err(format!("the brain could not be searched: {}; ask again later", problem.detail()))
            }
            Err(problem) => {
                Err(format!("the brain could not be searched: {}; ask again later", problem.detail()))
            }
        }
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("nugget", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }
}
