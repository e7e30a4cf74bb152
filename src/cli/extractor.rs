//! Builds the extractor and the model clients that the settings name.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use actors::{ApiBudget, ModelReranker};
use brain::config::Origin;
use brain::{Config, StatePaths};
use extract::{
    AlsoAsked, Backend, ClaudeCode, Extractor, FallbackExtractor, HeuristicExtractor, Limits, ModelApi,
    ModelExtractor, claude_code,
};
use jiff::{SignedDuration, Timestamp};
use llm::Api;
use queue::{Budget, Queue};

use crate::archive;
use crate::async_runtime;
use crate::error::CliError;
use crate::output;

/// The model of `claude -p` where the settings name none of Claude's.
const CLAUDE_MODEL: &str = "claude-haiku-4-5";

const NOT_LOGGED_IN: &str = "`claude` is not installed or not logged in";

/// How long a call of a model is a sign that there was a key or a login.
const KEY_REMEMBERED_FOR: SignedDuration = SignedDuration::from_hours(7 * 24);

/// What reads sessions by the settings, and why.
enum Reader {
    /// The server of a model. If it is the `only` one, nothing else reads a session that it cannot read.
    Model {
        settings: llm::Settings,
        only: bool,
    },
    /// `claude -p` if it is logged in.
    ClaudeCode {
        only: bool,
        why: String,
    },
    Rules {
        why: String,
    },
    /// A model was chosen that cannot be asked.
    Nothing {
        why: NoModel,
    },
}

/// Why the model of the settings cannot be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoModel {
    #[error("there is no key: set {0} or `model.key_file`")]
    Key(&'static str),
    #[error("`model.api` is openai, but `model.name` names no model")]
    Name,
    #[error(transparent)]
    KeyFile(llm::Error),
    #[error(transparent)]
    Client(llm::Error),
}

impl Reader {
    /// The only place that decides. It makes no request, so whether `claude` is logged in is found out later.
    fn choose(config: &Config) -> Self {
        let settings = model_settings(config, &extract_model(config), deadline(config));
        if config.string("extract.backend") != "heuristic" && budget(config).tokens == 0 {
            return Self::Rules { why: "the budget is 0 (`spend.tokens_per_day`)".to_owned() };
        }
        match (config.string("extract.backend").as_str(), settings) {
            ("heuristic", _) => Self::Rules { why: "`extract.backend` is heuristic".to_owned() },
            ("claude-p", _) => {
                Self::ClaudeCode { only: true, why: "`extract.backend` is claude-p".to_owned() }
            }
            ("api", Ok(settings)) => Self::Model { settings, only: true },
            ("api", Err(why)) => Self::Nothing { why },
            (_, Ok(settings)) => Self::Model { settings, only: false },
            // Who has chosen another model than Claude wants nothing to be sent to Claude.
            (_, Err(why)) if api(config) == Api::OpenAi => Self::Rules { why: why.to_string() },
            // A missing key file must not fail a capture.
            (_, Err(why)) => Self::ClaudeCode { only: false, why: why.to_string() },
        }
    }
}

/// The extractor that the settings name. It makes no request yet.
///
/// `queue` is the file of the queue that it works for, whose record of calls tells whether there was a key before.
pub(crate) fn extractor(config: &Config, queue: Option<&Path>) -> Result<Arc<dyn Extractor>, CliError> {
    let limits = limits(config);
    let modelled = |backend: Arc<dyn Backend>| ModelExtractor::new(backend, limits);
    let retry = "then run `nugget retry`";
    let folder = claude_code::working_folder(&brain::paths::state_folder());
    let extractor: Arc<dyn Extractor> = match Reader::choose(config) {
        Reader::Rules { .. } if config.string("extract.backend") == "heuristic" => {
            Arc::new(HeuristicExtractor)
        }
        Reader::Rules { .. } => {
            Arc::new(FallbackExtractor::with_models(Vec::new()).noting(missing_model(config, queue)))
        }
        Reader::Nothing { why } => {
            Arc::new(FallbackExtractor::strict(None, format!("`extract.backend` is api, but {why}; {retry}")))
        }
        Reader::Model { settings, only } => {
            let model = modelled(Arc::new(ModelApi::new(llm::Client::new(settings)?)));
            match only {
                // It can always be asked.
                true => Arc::new(FallbackExtractor::strict(Some(model), String::new())),
                false => Arc::new(FallbackExtractor::with_models(vec![model])),
            }
        }
        Reader::ClaudeCode { only: true, .. } => Arc::new(FallbackExtractor::strict(
            Some(modelled(claude(config, folder))),
            format!(
                "`extract.backend` is claude-p, but `claude` is not installed or not logged in: run `claude auth login`, {retry}"
            ),
        )),
        Reader::ClaudeCode { only: false, .. } => {
            let claude = modelled(claude(config, folder));
            Arc::new(FallbackExtractor::with_models(vec![claude]).noting(missing_model(config, queue)))
        }
    };
    #[cfg(debug_assertions)]
    let extractor = crate::fake_extractor::wrap(extractor);
    Ok(extractor)
}

/// Whether a session is sent to a model.
pub(crate) fn asks_a_model(config: &Config) -> bool {
    matches!(Reader::choose(config), Reader::Model { .. } | Reader::ClaudeCode { .. })
}

/// How much is sent to a model at once.
pub(crate) fn limits(config: &Config) -> Limits {
    Limits {
        part_tokens: config.number("extract.part_tokens") as usize,
        output_tokens_max: config.number("extract.output_tokens_max") as u32,
        also_asked: AlsoAsked {
            topics: archive::recalls_memories(config),
            records: archive::is_enabled(config),
        },
        ..Limits::default()
    }
}

pub(crate) fn budget(config: &Config) -> Budget {
    Budget {
        tokens: config.number("spend.tokens_per_day"),
        microdollars: config.number("spend.cents_per_day") * 10_000,
    }
}

/// The budget for model calls outside of captures.
pub(crate) fn api_budget(config: &Config, places: &StatePaths) -> ApiBudget {
    ApiBudget::new(places.queue(), budget(config))
}

/// A client for reranking and answers; `None` without a key.
pub(crate) fn client(config: &Config, deadline: Duration) -> Result<Option<llm::Client>, NoModel> {
    match model_settings(config, &config.string("model.name"), deadline) {
        Ok(settings) => llm::Client::new(settings).map(Some).map_err(NoModel::Client),
        Err(NoModel::Key(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A client that is sent the texts of units; `None` unless the server of a model reads sessions.
pub(crate) fn client_for_units(config: &Config) -> Result<Option<llm::Client>, NoModel> {
    match Reader::choose(config) {
        Reader::Model { .. } => client(config, config.seconds("model.deadline_seconds")),
        _ => Ok(None),
    }
}

/// The model that reranks results; `None` if there is no key or the settings turn it off.
pub(crate) fn model_reranker(config: &Config, places: &StatePaths) -> Option<ModelReranker> {
    if config.string("retrieve.rerank") == "off" {
        return None;
    }
    let deadline = Duration::from_millis(config.number("retrieve.rerank_deadline_ms"));
    match client(config, deadline) {
        Ok(client) => Some(ModelReranker::new(client?, api_budget(config, places), deadline)),
        // A missing key file must not fail a search; `nugget ask` reports it when it writes an answer.
        Err(error) => {
            tracing::warn!(%error, "results keep their local order");
            None
        }
    }
}

/// The model behind `model.api = "openai"`; `None` with another protocol, or if no session is sent to it.
pub(crate) fn chat_model(config: &Config) -> Option<Result<llm::Settings, NoModel>> {
    let is_used =
        matches!(config.string("extract.backend").as_str(), "auto" | "api") && api(config) == Api::OpenAi;
    is_used.then(|| model_settings(config, &extract_model(config), deadline(config)))
}

/// Whether a model may read sessions, but no server of one is set up.
pub(crate) fn has_no_model(config: &Config) -> bool {
    matches!(Reader::choose(config), Reader::ClaudeCode { only: false, .. })
}

/// What reads sessions, and where they are sent.
pub(crate) fn destination(config: &Config) -> String {
    Reader::choose(config).describe(config, None)
}

/// What reads sessions.
pub(crate) struct Destination {
    /// In words, with the reason.
    pub(crate) text: String,
    /// Whether a model was chosen that cannot be asked, so that captures fail.
    pub(crate) is_nothing: bool,
    /// What a person can do about that.
    pub(crate) fix: Option<String>,
}

/// As [`destination`], after finding out whether `claude` is logged in, if it would be asked.
pub(crate) fn destination_now(config: &Config, time_max: Duration) -> Destination {
    let reader = Reader::choose(config);
    let is_ready = match (&reader, async_runtime::current_thread()) {
        (Reader::ClaudeCode { .. }, Ok(runtime)) => {
            // It writes no session there, and the state folder may not exist yet.
            let claude = claude(config, std::env::temp_dir());
            runtime.block_on(async { tokio::time::timeout(time_max, claude.is_ready()).await.ok()?.ok() })
        }
        _ => None,
    };
    let fix = match (&reader, is_ready) {
        (Reader::Nothing { why }, _) => Some(match why {
            NoModel::Key(variable) => {
                format!(
                    "set {variable} where Claude Code is started, or `nugget config set model.key_file FILE`"
                )
            }
            NoModel::Name => "nugget config set model.name NAME".to_owned(),
            NoModel::KeyFile(_) | NoModel::Client(_) => KEY_FILE_FIX.to_owned(),
        }),
        (Reader::ClaudeCode { only: true, .. }, Some(false)) => Some("claude auth login".to_owned()),
        _ => None,
    };
    Destination { text: reader.describe(config, is_ready), is_nothing: fix.is_some(), fix }
}

/// What is done about a key file that cannot be used.
const KEY_FILE_FIX: &str = "write the key into that file, in one line, or name another in `model.key_file`";

/// What is wrong with the key of the model, so that every call of it fails, and what a person can do.
pub(crate) fn key_problem(config: &Config) -> Option<(String, String)> {
    let file = config.path("model.key_file");
    let empty = || {
        Some((format!("{} (`model.key_file`) is empty", file.as_ref()?.display()), KEY_FILE_FIX.to_owned()))
    };
    match model_settings(config, &config.string("model.name"), deadline(config)) {
        Err(NoModel::KeyFile(error)) => Some((knowledge::text::error_chain(&error), KEY_FILE_FIX.to_owned())),
        Err(NoModel::Key(_)) => empty(),
        Ok(llm::Settings { key: None, .. }) => empty(),
        Ok(llm::Settings { key: Some(key), .. }) if !key.is_valid() => Some((
            format!("the key in {} has several lines or control characters", key.place()),
            "put the key there and nothing else, in one line".to_owned(),
        )),
        _ => None,
    }
}

/// Why the model that should read sessions cannot be asked, where one is meant: its key file cannot be read, or it has
/// been asked within a week with a key that is now missing, as in the environment of a worker that a hook has started, or
/// with a login that may have ended.
fn missing_model(config: &Config, queue: Option<&Path>) -> Option<String> {
    let error = model_settings(config, &extract_model(config), deadline(config)).err()?;
    match error {
        NoModel::KeyFile(error) => Some(knowledge::text::error_chain(&error)),
        NoModel::Key(variable) => {
            let since = Timestamp::now().checked_sub(KEY_REMEMBERED_FOR).ok()?;
            let calls = Queue::open(queue.filter(|path| path.is_file())?).ok()?.model_calls(since).ok()?;
            let of_key = api(config).label();
            let mut backends = calls.iter().rev().map(|call| call.cost.backend.as_str());
            // Who has chosen another model than Claude wants nothing to be sent to Claude.
            let of_login = |backend: &str| backend == "claude-p" && api(config) == Api::Messages;
            let last = backends.find(|backend| *backend == of_key || of_login(backend))?;
            Some(match last == of_key {
                true => format!(
                    "there is no key in the environment of the worker that read it: set {variable} where Claude Code is started, or `model.key_file`"
                ),
                false => format!("{NOT_LOGGED_IN}: `claude auth login`"),
            })
        }
        NoModel::Name | NoModel::Client(_) => None,
    }
}

/// One line for a person who sets nugget up: what reads sessions, at what cost, and how to keep them on this machine.
pub(crate) fn describe_for_setup(config: &Config) -> String {
    let dollars = config.number("spend.cents_per_day") as f64 / 100.0;
    let cost = format!("redacted, at most ${dollars:.2} a day");
    let keep = "keep them here: nugget config set extract.backend heuristic";
    let reader = match Reader::choose(config) {
        Reader::ClaudeCode { only, .. } => {
            let otherwise = if only { "" } else { ", else rules" };
            format!("`claude -p` if logged in (sent {cost}){otherwise}; {keep}")
        }
        Reader::Model { settings: llm::Settings { api: Api::Messages, url, .. }, .. } => {
            format!("the Claude API at {url} ({cost}); {keep}")
        }
        reader => reader.describe(config, None),
    };
    format!("sessions are read by {}\n", output::safe(&reader))
}

impl Reader {
    /// What reads sessions, why, and where they are sent. `is_logged_in` says of `claude` what is known.
    fn describe(&self, config: &Config, is_logged_in: Option<bool>) -> String {
        const BY_CLIENT: &str = "`claude -p` if you are logged in; they are then sent to Anthropic, redacted";
        let here = stays_here(config);
        match (self, is_logged_in) {
            (Self::Rules { .. }, _) if config.string("extract.backend") == "heuristic" => {
                format!("rules; {here}")
            }
            (Self::Rules { why }, _) => format!("rules, because {why}; {here}"),
            (Self::Nothing { why }, _) => format!("nothing: {why}"),
            (Self::ClaudeCode { why, .. }, Some(true)) => {
                format!(
                    "`claude -p`, because it is logged in and {why}; they are sent to Anthropic, redacted"
                )
            }
            (Self::ClaudeCode { only: true, .. }, Some(false)) => format!("nothing: {NOT_LOGGED_IN}"),
            (Self::ClaudeCode { only: false, why }, Some(false)) => {
                format!("rules, because {NOT_LOGGED_IN} and {why}; {here}")
            }
            (Self::ClaudeCode { only: true, .. }, None) => BY_CLIENT.to_owned(),
            (Self::ClaudeCode { only: false, .. }, None) if config.path("model.key_file").is_none() => {
                format!("{BY_CLIENT}; otherwise rules, and {here}")
            }
            (Self::ClaudeCode { only: false, why }, None) => format!("{BY_CLIENT}; otherwise rules ({why})"),
            (Self::Model { settings, only }, _) => {
                let llm::Settings { api, url, model, .. } = settings;
                let keep = if *only { "" } else { " (extract.backend = \"heuristic\" keeps them here)" };
                let mut text = match api {
                    Api::Messages => format!("the Claude API at {url}; they are sent there, redacted{keep}"),
                    Api::OpenAi if settings.is_local() => format!("{model} at {url}; {here}"),
                    Api::OpenAi if llm::is_loopback(url) => {
                        format!("{model} at {url}, which sends them on to Ollama's servers, redacted{keep}")
                    }
                    Api::OpenAi => format!("{model} at {url}; they are sent there, redacted{keep}"),
                };
                if let Some(unknown) = unknown_price(settings) {
                    text.push_str(&format!("; {unknown}"));
                }
                text
            }
        }
    }
}

/// What is said where no session is sent away: what is sent all the same.
fn stays_here(config: &Config) -> String {
    let asked = model_settings(config, &config.string("model.name"), deadline(config)).ok();
    match asked.filter(|settings| !settings.is_local() && budget(config).tokens > 0) {
        Some(llm::Settings { url, .. }) => {
            let (what, off) = match config.string("retrieve.rerank").as_str() {
                "off" => ("questions of `nugget ask` are", ""),
                _ => ("questions are", " (retrieve.rerank = \"off\": only those of `nugget ask`)"),
            };
            format!("no session leaves this machine; {what} sent to {url} with what is found{off}")
        }
        None if matches!(config.string("embed.provider").as_str(), "local" | "off") => {
            "nothing leaves this machine".to_owned()
        }
        None => "no session leaves this machine".to_owned(),
    }
}

/// What is said of a model whose price is unknown.
fn unknown_price(settings: &llm::Settings) -> Option<String> {
    (!settings.rates().is_known(&settings.model)).then(|| {
        format!(
            "the price of {} is unknown and counts as the highest (set model.price_input and model.price_output)",
            settings.model
        )
    })
}

/// What is said in an account of costs about the models in force whose prices are unknown.
pub(crate) fn unknown_prices(config: &Config) -> Option<String> {
    let names = [extract_model(config), config.string("model.name")];
    names.iter().find_map(|name| unknown_price(&model_settings(config, name, deadline(config)).ok()?))
}

fn api(config: &Config) -> Api {
    match config.string("model.api").as_str() {
        "openai" => Api::OpenAi,
        _ => Api::Messages,
    }
}

/// The model that reads sessions: `model.name` unless another is named.
fn extract_model(config: &Config) -> String {
    Some(config.string("extract.model"))
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| config.string("model.name"))
}

/// How the model of this name is asked.
pub(crate) fn model_settings(
    config: &Config,
    model: &str,
    deadline: Duration,
) -> Result<llm::Settings, NoModel> {
    let api = api(config);
    let url = Some(config.string("model.url")).filter(|url| !url.is_empty());
    let url = url.unwrap_or_else(|| api.official_url().to_owned());
    let file = config.path("model.key_file");
    let needs_key = api == Api::Messages || !llm::is_loopback(&url);
    let key = match file {
        // The key in the environment is that of a provider, and a server on this machine need not see it.
        None if !needs_key => None,
        file => llm::Key::find_in(file.as_deref(), api.key_variable()).map_err(NoModel::KeyFile)?,
    };
    if key.is_none() && needs_key {
        return Err(NoModel::Key(api.key_variable()));
    }
    // The default is one of Claude's.
    let (default, origin) = config.get("model.name");
    if api == Api::OpenAi && origin == Origin::Default && model == default {
        return Err(NoModel::Name);
    }
    let price = |name: &str| config.string(name).parse().ok();
    let rates = llm::Rates {
        input_cents: price("model.price_input"),
        output_cents: price("model.price_output"),
        is_local: false,
    };
    Ok(llm::Settings { api, url, model: model.to_owned(), key, rates, deadline })
}

fn deadline(config: &Config) -> Duration {
    config.seconds("extract.deadline_seconds")
}

fn claude(config: &Config, folder: PathBuf) -> Arc<dyn Backend> {
    let model = match (config.string("extract.model"), api(config)) {
        (model, _) if !model.is_empty() => model,
        (_, Api::Messages) => config.string("model.name"),
        (_, Api::OpenAi) => CLAUDE_MODEL.to_owned(),
    };
    Arc::new(ClaudeCode::new(claude_code::Settings {
        program: config.path("extract.claude").unwrap_or_else(|| "claude".into()),
        model,
        deadline: deadline(config),
        folder,
    }))
}
