//! The MCP server: its tools over stdin and stdout, for the current and the previous version of the protocol.
//!
//! Stdout carries the protocol and nothing else. This crate never writes to the brain but what an agent asks it to note,
//! on a branch for review. It starts without one, too: its
//! tool then says what to do, and serves the brain as soon as there is one.
//!
//! ```no_run
//! # async fn run(setup: actors::Setup) -> Result<(), mcp::Error> {
//! let settings = mcp::Settings { limit: 8, budget_tokens: 2000, ensure_worker: std::sync::Arc::new(|| ()) };
//! mcp::serve(&[mcp::TOOL], move || Ok((setup.clone(), settings.clone()))).await
//! # }
//! ```
#![warn(missing_docs)]
#![warn(clippy::missing_errors_doc)]

mod argument;
pub mod context_tool;
mod from_server;
mod history;
pub mod message;
mod notes;
mod stdio;

use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use ::notes::{Edit, NewNote, Notebook};
use actors::index_progress::{self, IndexProgress};
use actors::notes::{NoteError, NoteStore, Written};
use actors::{AskError, Facts, Roles, Service, Setup};
use index::Mode;
use jiff::Timestamp;
use knowledge::text::error_chain;
use retrieve::{Answer, Query};
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    CallToolResult, ContentBlock, Implementation, JsonObject, ProgressNotificationParam, ProgressToken,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, ServerInitializeError};
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler, ServiceExt as _, tool, tool_handler, tool_router};
use serde_json::{Value, json};
use team_client::TeamAnswer;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::context_tool::{Task, tool_meta};
use crate::from_server::{AskedHere, ServerLink};

pub use crate::context_tool::NAME as TOOL;
use crate::stdio::Stdio;

/// How long a call waits for the index to catch up with the brain's files before it answers from
/// the last generation.
const REFRESH_PATIENCE: Duration = Duration::from_millis(400);
/// The same for the first call after a merge, and for those before a new server has checked the index: the session that
/// begins after a merge is to find it. A few units take less than a second to index; where there is more, the present
/// generation answers.
const MERGE_REFRESH_PATIENCE: Duration = Duration::from_secs(2);
/// The same while the index has no unit, as just after a brain was created: there is nothing else to answer with.
const FIRST_REFRESH_PATIENCE: Duration = Duration::from_secs(20);
/// Calls closer together than this check the files once: than [`CHECK_FACTOR`] times the duration of the last check,
/// within these bounds, so that many sessions in a large brain do not spend their time on checks.
const CHECK_INTERVAL: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1000)..=Duration::from_millis(5000);
const CHECK_FACTOR: u32 = 20;
/// Calls closer together than this do not wait for the check, which takes tens of milliseconds in a brain of ten
/// thousand files: it runs in parallel to the answer, and the next call gets what it found.
const BACKGROUND_CHECK_INTERVAL: Duration = Duration::from_millis(3000);
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);
/// How often a waiting client is sent the progress of the index.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);
/// How often a server makes sure that a worker runs if captures are queued.
const ENSURE_WORKER_EVERY: Duration = Duration::from_secs(45);
/// How long a server that ends waits for what it has begun, which may be a large index.
const END_PATIENCE: Duration = Duration::from_millis(300);
/// In a call's `_meta`: the client's id of it, which its transcript has, too.
const TOOL_USE: &str = "claudecode/toolUseId";
/// The source of what an agent wrote down.
const AGENT: &str = "agent";

/// Limits of an answer, and what the server does besides.
#[derive(Clone)]
pub struct Settings {
    /// The most passages.
    pub limit: usize,
    /// The most tokens.
    pub budget_tokens: usize,
    /// Called from time to time: starts a worker if captures are queued and none runs.
    pub ensure_worker: Arc<dyn Fn() + Send + Sync>,
}

/// Why the server ended with an error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection to the client failed.
    #[error("the connection failed: {0}")]
    Connection(String),
}

/// Finds the brain and its settings; an error says what is wrong and what to do, for the person. Called again with
/// each call of the tool as long as it fails, and after the brain has disappeared or its settings have changed.
type OpenBrain = Arc<dyn Fn() -> Result<(Setup, Settings), String> + Send + Sync>;

/// Serves until stdin ends, stdout is closed, or the client sends a signal, which all mean the same: the client needs
/// it no more. `tools` are the names of the tools that it has. Without a brain it serves as well: clients remember for long that a server has failed to start.
///
/// # Errors
/// When signals cannot be received, or the connection fails.
pub async fn serve(
    tools: &[&str],
    open: impl Fn() -> Result<(Setup, Settings), String> + Send + Sync + 'static,
) -> Result<(), Error> {
    // First of all, so that no signal is missed.
    let end_signal = system::signal::end_signal().map_err(|error| Error::Connection(error.to_string()))?;
    tracing::info!(process = std::process::id(), "serving");
    let server = Nugget { tool_router: tool_router(tools), open: Arc::new(open), served: Arc::default() };
    // Opened before the first call, but the handshake does not wait for it.
    let tending = tokio::spawn(server.clone().tend_regularly());
    let connection = async {
        let stdio = Stdio::open();
        loop {
            match server.clone().serve(stdio.clone()).await {
                Ok(running) => {
                    return running
                        .waiting()
                        .await
                        .map(drop)
                        .map_err(|error| Error::Connection(error.to_string()));
                }
                // Stdin ended before the first message: `nugget serve < /dev/null`.
                Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
                // The handshake begins again with the next message.
                Err(
                    error @ (ServerInitializeError::ExpectedInitializeRequest(_)
                    | ServerInitializeError::InitializeFailed(_)),
                ) => tracing::info!(%error, "the handshake has failed"),
                Err(error) => return Err(Error::Connection(error.to_string())),
            }
        }
    };
    let connected = tokio::select! {
        connected = connection => connected,
        signal = end_signal => {
            tracing::info!(signal, "ended by a signal");
            Ok(())
        }
    };
    tracing::info!(process = std::process::id(), "stopped serving");
    tending.abort();
    // A task that runs on while the runtime ends reports what is missing as failures.
    let _ = tending.await;
    if let Some(served) = server.served.lock().await.take() {
        served.background.end().await;
        served.service.shutdown_within(END_PATIENCE).await;
    }
    connected
}

/// What a client loads into every session: the server's instructions, and each of these tools as `tools/list` gives it
/// to a model, which is its name, description and schema.
pub fn always_loaded(tools: &[&str]) -> String {
    let router = tool_router(tools);
    let mut loaded = instructions(&router).to_owned();
    for tool in router.list_all() {
        let tool = json!({
            "name": tool.name,
            "description": tool.description,
            "input_schema": tool.input_schema.as_ref(),
        });
        loaded.push_str(&format!("\n{tool}"));
    }
    loaded
}

/// What a client is told of the server. A tool that it does not have is not asked for.
fn instructions(router: &ToolRouter<Nugget>) -> &'static str {
    if router.has_route(TOOL) { context_tool::INSTRUCTIONS } else { context_tool::INSTRUCTIONS_WITHOUT_IT }
}

/// The tools that the server has.
fn tool_router(tools: &[&str]) -> ToolRouter<Nugget> {
    let mut router = Nugget::tool_router();
    for tool in [TOOL, history::NAME].into_iter().chain(notes::ALL).filter(|tool| !tools.contains(tool)) {
        router.remove_route(tool);
    }
    router
}

#[derive(Clone)]
struct Nugget {
    tool_router: ToolRouter<Self>,
    open: OpenBrain,
    /// The brain that is served; `None` until there is one.
    served: Arc<Mutex<Option<ServedBrain>>>,
}

/// A brain with the service that answers from it. Clones share it.
#[derive(Clone)]
struct ServedBrain {
    setup: Setup,
    service: Arc<Service>,
    settings: Settings,
    begun: Instant,
    /// Milliseconds from `begun` to the last check of the files, plus one.
    checked_at: Arc<AtomicU64>,
    /// Milliseconds that the last check took that found no change.
    check_took: Arc<AtomicU64>,
    /// What was merged when the index was last known to have it, or waited for.
    merges: Arc<std::sync::Mutex<Option<String>>>,
    /// The file with the progress of the index, whichever process builds it.
    progress_file: Arc<Path>,
    facts: Arc<Facts>,
    notes: Arc<NoteStore>,
    server: Arc<ServerLink>,
    background: Arc<Background>,
}

/// Tasks that end with the last clone of a served brain, or when told to.
#[derive(Default)]
struct Background(std::sync::Mutex<JoinSet<()>>);

impl Background {
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    async fn end(&self) {
        let mut tasks = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.shutdown().await;
    }
}

/// How the index relates to the brain's files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IndexState {
    /// It matched them at the last check.
    Current,
    /// The same, and the next check is to begin once there is an answer, which it would slow down.
    Due,
    /// It matches them now: a generation was published.
    Updated,
    /// It does not match them yet.
    Behind,
}

/// A client that asked for the progress of its call.
type ProgressListener = (Peer<RoleServer>, ProgressToken);

#[tool_router]
impl Nugget {
    #[tool(
        name = "get_relevant_context",
        description = context_tool::DESCRIPTION,
        input_schema = context_tool::input_schema(),
        annotations(read_only_hint = true, destructive_hint = false, open_world_hint = false),
        meta = tool_meta()
    )]
    async fn get_relevant_context(
        &self,
        Parameters(arguments): Parameters<JsonObject>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        // Parsed here and not by the macro, which would answer a malformed call as if the tool had run.
        let task = Task::parse(&arguments).map_err(|what| ErrorData::invalid_params(what, None))?;
        let token = context.meta.get_progress_token();
        let listener = token.map(|token| (context.peer.clone(), token));
        let tool_use = context.meta.get(TOOL_USE).and_then(Value::as_str).map(str::to_owned);
        self.run(context, move |served| async move {
            let from_here = match served.server.ask(&arguments).await {
                Ok(TeamAnswer { text, shown }) => {
                    let shown = shown.into_iter().map(|unit| (unit.id, unit.tokens)).collect();
                    served.service.record_units(shown, tool_use).await;
                    return Ok(text);
                }
                Err(AskedHere { why }) => why,
            };
            let answer = served.answer(task, listener, tool_use).await;
            let answer = answer.map(|text| format!("{text}{from_here}"));
            answer.map_err(|error| {
                format!("the brain could not be searched: {error}; `nugget doctor` says what to do")
            })
        })
        .await
    }

    #[tool(
        name = "search_sessions",
        description = history::DESCRIPTION,
        input_schema = history::input_schema(),
        annotations(read_only_hint = true, destructive_hint = false, open_world_hint = false),
        meta = tool_meta()
    )]
    async fn search_sessions(
        &self,
        Parameters(arguments): Parameters<JsonObject>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let request =
            history::Request::parse(&arguments).map_err(|what| ErrorData::invalid_params(what, None))?;
        self.run(context, move |served| async move { served.search_sessions(request).await }).await
    }

    #[tool(
        name = "create_note",
        description = notes::CREATE_DESCRIPTION,
        input_schema = notes::input_schema(&[("title", "One line"), ("content", "Markdown; [[title]] links a note"), ("tags?", "")]),
        annotations(read_only_hint = false, destructive_hint = false, open_world_hint = false),
        meta = tool_meta()
    )]
    async fn create_note(
        &self,
        Parameters(arguments): Parameters<JsonObject>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let invalid = |what| ErrorData::invalid_params(what, None);
        let title = notes::text(&arguments, "title").map_err(invalid)?;
        let content = notes::text(&arguments, "content").map_err(invalid)?;
        let tags = notes::tags(&arguments).map_err(invalid)?;
        self.run(context, move |served| async move { served.create_note(title, content, tags).await }).await
    }

    #[tool(
        name = "add_link",
        description = notes::LINK_DESCRIPTION,
        input_schema = notes::input_schema(&[("note", "Id or title"), ("other", "Id or title"), ("reason", "")]),
        annotations(read_only_hint = false, destructive_hint = false, open_world_hint = false),
        meta = tool_meta()
    )]
    async fn add_link(
        &self,
        Parameters(arguments): Parameters<JsonObject>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let invalid = |what| ErrorData::invalid_params(what, None);
        let ends = ["note", "other", "reason"].map(|name| notes::text(&arguments, name));
        let [note, other, reason] = ends;
        let (note, other) = (note.map_err(invalid)?, other.map_err(invalid)?);
        let reason = reason.map_err(invalid)?;
        self.run(context, move |served| async move { served.add_link(note, other, reason).await }).await
    }

    #[tool(
        name = "edit_note",
        description = notes::EDIT_DESCRIPTION,
        input_schema = notes::input_schema(&[("note", "Id or title"), ("old_text?", "As it stands in the note, once"), ("new_text?", ""), ("title?", "")]),
        annotations(read_only_hint = false, destructive_hint = true, open_world_hint = false),
        meta = tool_meta()
    )]
    async fn edit_note(
        &self,
        Parameters(arguments): Parameters<JsonObject>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let invalid = |what| ErrorData::invalid_params(what, None);
        let note = notes::text(&arguments, "note").map_err(invalid)?;
        // Indentation and line ends count.
        let text = |name| notes::raw_text(&arguments, name).map_err(invalid);
        let (old, new) = (text("old_text")?.unwrap_or_default(), text("new_text")?);
        let change = match (old.trim().is_empty(), new) {
            (false, Some(new)) => Some((old, new)),
            (false, None) => {
                return Err(invalid("`new_text` is missing: an empty one removes the text".to_owned()));
            }
            (true, Some(new)) if !new.trim().is_empty() => {
                return Err(invalid("`old_text` is missing".to_owned()));
            }
            (true, _) => None,
        };
        let title = notes::optional_text(&arguments, "title").map_err(invalid)?;
        if change.is_none() && title.is_none() {
            return Err(invalid("nothing to change: give `old_text` and `new_text`, or `title`".to_owned()));
        }
        self.run(context, move |served| async move { served.edit_note(note, title, change).await }).await
    }

    #[tool(
        name = "search_notes",
        description = notes::SEARCH_DESCRIPTION,
        input_schema = notes::input_schema(&[("query", "")]),
        annotations(read_only_hint = true, destructive_hint = false, open_world_hint = false),
        meta = tool_meta()
    )]
    async fn search_notes(
        &self,
        Parameters(arguments): Parameters<JsonObject>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let query = notes::text(&arguments, "query").map_err(|what| ErrorData::invalid_params(what, None))?;
        let tool_use = context.meta.get(TOOL_USE).and_then(Value::as_str).map(str::to_owned);
        self.run(context, move |served| async move { served.search_notes(query, tool_use).await }).await
    }

    #[tool(
        name = "remember",
        description = notes::REMEMBER_DESCRIPTION,
        input_schema = notes::input_schema(&[("key", ""), ("value", "")]),
        annotations(read_only_hint = false, destructive_hint = false, open_world_hint = false),
        meta = tool_meta()
    )]
    async fn remember(
        &self,
        Parameters(arguments): Parameters<JsonObject>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let invalid = |what| ErrorData::invalid_params(what, None);
        let key = notes::text(&arguments, "key").map_err(invalid)?;
        let value = notes::text(&arguments, "value").map_err(invalid)?;
        self.run(context, move |served| async move { served.remember(key, value).await }).await
    }

    #[tool(
        name = "recall",
        description = notes::RECALL_DESCRIPTION,
        input_schema = notes::input_schema(&[("key", "The key, or a question that names it")]),
        annotations(read_only_hint = true, destructive_hint = false, open_world_hint = false),
        meta = tool_meta()
    )]
    async fn recall(
        &self,
        Parameters(arguments): Parameters<JsonObject>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let key = notes::text(&arguments, "key").map_err(|what| ErrorData::invalid_params(what, None))?;
        let tool_use = context.meta.get(TOOL_USE).and_then(Value::as_str).map(str::to_owned);
        self.run(context, move |served| async move { served.recall(key, tool_use).await }).await
    }

    #[tool(
        name = "forget",
        description = notes::FORGET_DESCRIPTION,
        input_schema = notes::input_schema(&[("key", "")]),
        annotations(read_only_hint = false, destructive_hint = true, open_world_hint = false),
        meta = tool_meta()
    )]
    async fn forget(
        &self,
        Parameters(arguments): Parameters<JsonObject>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let key = notes::text(&arguments, "key").map_err(|what| ErrorData::invalid_params(what, None))?;
        self.run(context, move |served| async move { served.forget(key).await }).await
    }
}

impl Nugget {
    /// Answers a call of a tool, until the client cancels it.
    async fn run<F>(
        &self,
        context: RequestContext<RoleServer>,
        answer: impl FnOnce(ServedBrain) -> F + Send + 'static,
    ) -> Result<CallToolResult, ErrorData>
    where
        F: Future<Output = Result<String, String>> + Send,
    {
        // In a task of its own: a call whose body panics would never be answered.
        let this = self.clone();
        let mut answering = tokio::spawn(async move {
            match this.served_brain().await {
                Ok(served) => answer(served).await,
                Err(what_to_do) => Err(format!(
                    "nugget has no brain to search: {what_to_do}. Tell the developer; the next call finds it without a restart."
                )),
            }
        });
        let answer = tokio::select! {
            answer = &mut answering => answer,
            () = context.ct.cancelled() => {
                answering.abort();
                tracing::info!(id = %context.id, "the client has cancelled its call");
                // Not sent: the protocol has no answer to a cancelled call.
                return Err(ErrorData::internal_error("cancelled", None));
            }
        };
        let failed = |error: String| CallToolResult::error(vec![ContentBlock::text(error)]);
        Ok(match answer {
            Ok(Ok(text)) => CallToolResult::success(vec![ContentBlock::text(text)]),
            Ok(Err(error)) => failed(error),
            Err(_) => failed("the search has crashed; `nugget doctor` may say why".to_owned()),
        })
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Nugget {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("nugget", env!("CARGO_PKG_VERSION")))
            .with_instructions(instructions(&self.tool_router))
    }
}

impl Nugget {
    /// Opens the brain, and from time to time does what nobody calls for.
    async fn tend_regularly(self) {
        if let Err(error) = self.served_brain().await {
            tracing::warn!(error, "no brain is served yet");
        }
        loop {
            tokio::time::sleep(ENSURE_WORKER_EVERY).await;
            if let Ok(served) = self.served_brain().await {
                served.tend().await;
            }
        }
    }

    /// The brain that is served, by the settings of now; opened if it is not yet. The error says what to do.
    async fn served_brain(&self) -> Result<ServedBrain, String> {
        let mut served = self.served.lock().await;
        if let Some(present) = &*served
            && present.setup.brain.is_present()
            && !present.setup.settings.is_file_changed()
        {
            return Ok(present.clone());
        }
        // Its service ends with the last call that it answers.
        *served = None;
        let open = Arc::clone(&self.open);
        let opened = tokio::task::spawn_blocking(move || open()).await;
        let (setup, settings) = opened.map_err(|_| "opening it has crashed".to_owned())??;
        let started = ServedBrain::start(&setup, settings).await.map_err(|error| {
            let folder = setup.brain.derived_folder();
            let error = error_chain(&error);
            format!(
                "{error} (the index is derived: if this stays, delete {} and ask again)",
                folder.display()
            )
        })?;
        tracing::info!(brain = %setup.brain.root().display(), "serving a brain");
        Ok(served.insert(started).clone())
    }
}

impl ServedBrain {
    async fn start(setup: &Setup, settings: Settings) -> Result<Self, actors::StartError> {
        let service = Arc::new(Service::start(setup, Roles::Read).await?);
        let background = Arc::new(Background::default());
        let started = Self {
            setup: setup.clone(),
            service,
            settings,
            begun: Instant::now(),
            checked_at: Arc::default(),
            check_took: Arc::default(),
            merges: Arc::default(),
            progress_file: setup.places.indexing().into(),
            facts: Arc::default(),
            server: Arc::new(ServerLink::new(setup.places.folder())),
            notes: Arc::default(),
            background: Arc::clone(&background),
        };
        let this = started.clone();
        background.spawn(async move { this.tend().await });
        // The index is brought up to date before the first call.
        let this = started.clone();
        background.spawn(async move {
            let merged = this.new_merges().await;
            match this.service.refresh(Mode::Changed, None, ANSWER_DEADLINE).await {
                Ok(_) => this.note_merges(merged),
                Err(error) => tracing::warn!(%error, "the index is not up to date yet"),
            }
        });
        Ok(started)
    }

    /// Wakes the archive, and looks after the queue.
    async fn tend(&self) {
        self.service.wake_archiving();
        let ensure_worker = Arc::clone(&self.settings.ensure_worker);
        let _ = tokio::task::spawn_blocking(move || ensure_worker()).await;
    }

    /// Asks what the files hold now. Also returns whether the index, and with it the answer, may be behind them.
    async fn ask_present(
        &self,
        query: Query,
        listener: Option<ProgressListener>,
    ) -> Result<(Answer, bool), String> {
        // Asks the present generation at once, as the files have rarely changed; to check them takes as long as
        // the answer.
        let mut early = pin!(self.service.ask(query.clone(), ANSWER_DEADLINE));
        let mut found = None;
        let state = {
            let mut updating = pin!(self.update_index());
            let mut reporting = pin!(self.report_progress(listener));
            loop {
                tokio::select! {
                    state = &mut updating => break state,
                    answer = &mut early, if found.is_none() => found = Some(answer),
                    () = &mut reporting => break IndexState::Current,
                }
            }
        };
        let early = match found {
            Some(found) => found.ok(),
            None if state == IndexState::Updated => None,
            None => early.await.ok(),
        };
        let index = self.service.index();
        let is_present = |answer: &Answer| {
            index.pin_without_vectors().is_ok_and(|snapshot| snapshot.generation() == answer.generation)
        };
        let answer = match early.filter(is_present) {
            Some(answer) => answer,
            None => self.service.ask(query, ANSWER_DEADLINE).await.map_err(|error| error.to_string())?,
        };
        if state == IndexState::Due {
            self.check_in_background();
        }
        Ok((answer, state == IndexState::Behind))
    }

    async fn answer(
        &self,
        task: Task,
        listener: Option<ProgressListener>,
        tool_use: Option<String>,
    ) -> Result<String, String> {
        let query = task.into_query(self.settings.limit, self.settings.budget_tokens, Timestamp::now());
        let (answer, is_behind) = self.ask_present(query, listener).await?;
        let outdated = self.outdated(is_behind);
        if let Some(progress) = outdated.as_ref().filter(|_| answer.generation == 0) {
            return Ok(format!(
                "The brain is being indexed for the first time{progress}: ask again in a moment.\n"
            ));
        }
        self.service.record_shown(&answer, tool_use).await;
        let mut text = retrieve::render(&answer);
        text.extend(outdated.map(|progress| outdated_note(&progress)));
        Ok(text)
    }

    /// How far the index is, in brackets or empty, if it may be behind the files.
    fn outdated(&self, is_behind: bool) -> Option<String> {
        let progress = index_progress::read(&self.progress_file);
        (is_behind || progress.is_some()).then(|| {
            let counted =
                progress.map(|IndexProgress { done, of, .. }| format!(" ({done} of {of} texts embedded)"));
            counted.unwrap_or_default()
        })
    }

    /// Does something to the notes as an agent, on a thread that may block. What is written is found at once: the next
    /// question waits for the index to have it.
    async fn write_notes<T: Send + 'static>(
        &self,
        message: String,
        operation: impl FnOnce(&mut Notebook, Timestamp) -> Result<T, NoteError> + Send + 'static,
    ) -> Result<(T, Written), String> {
        let (setup, notes) = (self.setup.clone(), Arc::clone(&self.notes));
        let write = move || {
            let now = Timestamp::now();
            notes.write_as_agent(&setup, &message, now, |notebook| operation(notebook, now))
        };
        let done =
            tokio::task::spawn_blocking(write).await.map_err(|_| "writing it has crashed".to_owned())?;
        let done = done.map_err(|error| error_chain(&error))?;
        // A worker delivers the branch.
        let ensure_worker = Arc::clone(&self.settings.ensure_worker);
        tokio::task::spawn_blocking(move || ensure_worker());
        Ok(done)
    }

    async fn create_note(&self, title: String, content: String, tags: Vec<String>) -> Result<String, String> {
        let new = NewNote {
            source: AGENT.to_owned(),
            tags: actors::notes::checked_tags(tags).map_err(|error| error.to_string())?,
            ..NewNote::note(checked(&title)?, checked(&content)?)
        };
        let without = notes::left_out(&[(&title, &new.title), (&content, &new.content)]);
        let message = format!("Note {}", new.title);
        let (id, written) = self.write_notes(message, |notebook, now| Ok(notebook.create(new, now)?)).await?;
        Ok(notes::written(&format!("noted as {id}{without}"), &written))
    }

    async fn add_link(&self, note: String, other: String, reason: String) -> Result<String, String> {
        let reason = checked(&reason)?;
        let message = format!("Link {} and {}", checked(&note)?, checked(&other)?);
        let link = move |notebook: &mut Notebook, now| {
            let one = notebook.find_to_change(&note)?.unit.id.clone();
            let other = notebook.find_to_change(&other)?.unit.id.clone();
            notebook.link(&one, &other, &reason, now)?;
            Ok((one, other))
        };
        let ((one, other), written) = self.write_notes(message, link).await?;
        Ok(notes::written(&format!("linked {one} and {other}"), &written))
    }

    /// Changes a note's title, or a part of its text: the old text and the new one.
    async fn edit_note(
        &self,
        note: String,
        title: Option<String>,
        change: Option<(String, String)>,
    ) -> Result<String, String> {
        let (old, new) = change.unzip();
        let given = [title, new];
        let title = given[0].as_deref().map(checked).transpose()?;
        let new = given[1].as_deref().map(checked_part).transpose()?;
        let texts = given.iter().zip([&title, &new]);
        let texts = texts.filter_map(|(given, written)| Some((given.as_deref()?, written.as_deref()?)));
        let without = notes::left_out(&texts.collect::<Vec<_>>());
        let message = format!("Edit note {}", checked(&note)?);
        let edit = move |notebook: &mut Notebook, now| {
            let unit = &notebook.find_note_to_change(&note)?.unit;
            let id = unit.id.clone();
            let part = old.zip(new);
            if let Some((old, new)) = &part {
                let changed = notebook.content_with(&id, old, new)?;
                actors::notes::checked_whole(::notes::content(unit), changed)?;
            }
            notebook.edit(&id, Edit { title, part, ..Edit::default() }, now)?;
            Ok(id)
        };
        let (id, written) = self.write_notes(message, edit).await?;
        Ok(notes::written(&format!("edited {id}{without}"), &written))
    }

    async fn search_notes(&self, query: String, tool_use: Option<String>) -> Result<String, String> {
        let query = notes::query(query, self.settings.budget_tokens);
        let (answer, is_behind) = self.ask_present(query, None).await?;
        self.service.record_shown(&answer, tool_use).await;
        let mut text = notes::found(&answer);
        text.extend(self.outdated(is_behind).map(|progress| outdated_note(&progress)));
        Ok(text)
    }

    async fn remember(&self, key: String, value: String) -> Result<String, String> {
        let key = checked(&key)?;
        let given = value;
        let value = actors::notes::checked_value(&key, &given).map_err(|error| error.to_string())?;
        let without = notes::left_out(&[(&given, &value)]);
        let new = NewNote { source: AGENT.to_owned(), ..NewNote::fact(key, value) };
        let message = format!("Remember {}", new.title);
        let (done, written) =
            self.write_notes(message, |notebook, now| Ok(notebook.remember(new, now)?)).await?;
        Ok(notes::written(&format!("remembered as {}{without}", done.id()), &written))
    }

    async fn recall(&self, key: String, tool_use: Option<String>) -> Result<String, String> {
        let (facts, setup, question) = (Arc::clone(&self.facts), self.setup.clone(), key.clone());
        let recall = move || facts.recall(&setup, &question);
        let fact =
            tokio::task::spawn_blocking(recall).await.map_err(|_| "recalling it has crashed".to_owned())?;
        let fact = fact.map_err(|error| error_chain(&error))?;
        if let Some(fact) = &fact {
            let shown = vec![(fact.id.as_str().to_owned(), (fact.key.len() + fact.value.len()) / 4)];
            self.service.record_units(shown, tool_use).await;
        }
        Ok(notes::recalled(&key, fact.as_ref()))
    }

    async fn forget(&self, key: String) -> Result<String, String> {
        let message = format!("Forget {}", checked(&key)?);
        let remove = move |notebook: &mut Notebook, now| {
            let missing = || ::notes::Error::NoFact { key: key.clone() };
            let id = notebook.fact(&key).ok_or_else(missing)?.unit.id.clone();
            notebook.remove(&id, now)?;
            Ok(id)
        };
        let (id, written) = self.write_notes(message, remove).await?;
        Ok(notes::written(&format!("forgotten: {id}"), &written))
    }

    async fn search_sessions(&self, request: history::Request) -> Result<String, String> {
        let budget = request.budget_tokens.unwrap_or(self.settings.budget_tokens);
        let failed = |error: AskError| {
            format!("the sessions could not be searched: {error}; `nugget doctor` says what to do")
        };
        let search = request.search(Timestamp::now());
        match self.service.search_sessions(search, ANSWER_DEADLINE).await.map_err(failed)? {
            None => {
                Err("sessions are not archived: `archive.enabled` is off in nugget's settings".to_owned())
            }
            Some(found) => {
                // A text never has more tokens than bytes.
                let count = |text: &str| self.service.count_tokens(text).unwrap_or(text.len());
                Ok(history::render(&found, budget, count))
            }
        }
    }

    /// Sends the progress of the index to the client, if it asked for it; never ends.
    async fn report_progress(&self, listener: Option<ProgressListener>) {
        let Some((peer, token)) = listener else { return std::future::pending().await };
        let mut sent = 0;
        loop {
            tokio::time::sleep(PROGRESS_EVERY).await;
            // The protocol wants a number that grows.
            let Some(building) = index_progress::read(&self.progress_file).filter(|now| now.done > sent)
            else {
                continue;
            };
            sent = building.done;
            let progress = ProgressNotificationParam::new(token.clone(), sent as f64)
                .with_total(building.of as f64)
                .with_message("indexing the brain");
            if peer.notify_progress(progress).await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Brings the index up to date with the files, within bounds.
    async fn update_index(&self) -> IndexState {
        let now = self.begun.elapsed().as_millis() as u64 + 1;
        let last = self.checked_at.load(Ordering::SeqCst);
        let age = Duration::from_millis(now.saturating_sub(last));
        let interval = CHECK_FACTOR * Duration::from_millis(self.check_took.load(Ordering::SeqCst));
        let interval = interval.clamp(*CHECK_INTERVAL.start(), *CHECK_INTERVAL.end());
        let merged = self.new_merges().await;
        let is_merged = merged.is_some();
        // Its folder may have been deleted since it was checked.
        let has_none =
            self.service.index().pin_without_vectors().is_ok_and(|snapshot| snapshot.generation() == 0);
        if !is_merged && !has_none && last > 0 && age < interval {
            return IndexState::Current;
        }
        // There is always a time in which a call does not wait for its check.
        if !is_merged
            && !has_none
            && last > 0
            && age < BACKGROUND_CHECK_INTERVAL.max(interval + *CHECK_INTERVAL.start())
        {
            self.checked_at.store(now, Ordering::SeqCst);
            return IndexState::Due;
        }
        let is_empty = self.service.index().pin().is_ok_and(|snapshot| snapshot.units_count() == 0);
        let patience = match (is_empty, is_merged) {
            (true, _) => FIRST_REFRESH_PATIENCE,
            (false, true) => MERGE_REFRESH_PATIENCE,
            (false, false) => REFRESH_PATIENCE,
        };
        let refreshed = self.refresh(patience).await;
        // Waited for once: an index that takes longer is answered from before.
        self.note_merges(merged);
        match refreshed {
            Ok(state) => {
                self.checked_at.store(now, Ordering::SeqCst);
                state
            }
            Err(error) => {
                tracing::info!(%error, "answering from the last generation");
                IndexState::Behind
            }
        }
    }

    fn check_in_background(&self) {
        let this = self.clone();
        self.background.spawn(async move {
            if let Err(error) = this.refresh(ANSWER_DEADLINE).await {
                tracing::info!(%error, "the index is not up to date yet");
            }
        });
    }

    /// Notes that the index has what was merged, or was waited for.
    fn note_merges(&self, merged: Option<String>) {
        if merged.is_some() {
            *self.merges.lock().unwrap_or_else(PoisonError::into_inner) = merged;
        }
    }

    /// What was merged, if that has changed since it was noted; a few references are read for it. `None` for a brain
    /// that is no repository.
    async fn new_merges(&self) -> Option<String> {
        let setup = self.setup.clone();
        let read = move || actors::merged_commits(&setup.brain, setup.default_branch.as_deref());
        let merged = tokio::task::spawn_blocking(read).await.ok().flatten();
        let known = self.merges.lock().unwrap_or_else(PoisonError::into_inner);
        merged.filter(|merged| known.as_ref() != Some(merged))
    }

    /// Checks the files, and updates the index if they have changed.
    async fn refresh(&self, patience: Duration) -> Result<IndexState, AskError> {
        let begun = Instant::now();
        if self.service.refresh(Mode::Changed, None, patience).await?.is_some() {
            return Ok(IndexState::Updated);
        }
        self.check_took.store(begun.elapsed().as_millis() as u64, Ordering::SeqCst);
        Ok(IndexState::Current)
    }
}

/// What an answer says if the index may be behind the files.
fn outdated_note(progress: &str) -> String {
    format!(
        "\nThe index may be behind the brain's files{progress}; this answer is from its previous state. Ask again later for what is new.\n"
    )
}

/// An agent's text as it may be written down.
fn checked(text: &str) -> Result<String, String> {
    actors::notes::checked(text).map_err(|error: NoteError| error.to_string())
}

/// As [`checked`], for a part of a text.
fn checked_part(text: &str) -> Result<String, String> {
    actors::notes::checked_part(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transcripts_are_read_without_the_answers_of_every_tool() {
        let router = Nugget::tool_router();
        let mut offered: Vec<String> = router.list_all().iter().map(|tool| tool.name.to_string()).collect();
        let mut own = transcript::OWN_TOOLS.map(str::to_owned);
        offered.sort();
        own.sort();
        assert_eq!(offered, own);
    }

    #[test]
    fn only_the_named_tools_are_loaded_into_sessions() {
        let loaded = |tools: &[&str]| always_loaded(tools);
        assert!(!loaded(&[TOOL]).contains("search_sessions"));
        let both = loaded(&[TOOL, history::NAME]);
        assert!(both.contains("\"search_sessions\"") && both.contains("unreviewed history"), "{both}");
        assert!(both.len() > loaded(&[TOOL]).len() + 400);
    }
}
