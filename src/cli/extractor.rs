//! Builds the extractor and the model clients that the settings name.

use std::sync::Arc;
use std::time::Duration;

use actors::{ApiBudget, ModelReranker};
use brain::{Config, StatePaths};
use extract::{
    Backend, ClaudeCode, Extractor, FallbackExtractor, HeuristicExtractor, Limits, MessagesApi,
    ModelExtractor, claude_code,
};
use queue::Budget;

use crate::error::CliError;
use crate::output;

const NO_KEY: &str = "`extract.backend` is claude-api but there is no key: set ANTHROPIC_API_KEY or `model.key_file`, then run `nugget retry`";
const NOT_LOGGED_IN: &str = "`extract.backend` is claude-p, but `claude` is not installed or not logged in: run `claude auth login`, then `nugget retry`";

/// The extractor that the settings name. IndexProgress it makes no request.
pub(crate) fn extractor(config: &Config) -> Result<Arc<dyn Extractor>, CliError> {
    let limits = limits(config);
    let modelled = |backend: Arc<dyn Backend>| ModelExtractor::new(backend, limits);
    let extractor: Arc<dyn Extractor> = match config.string("extract.backend").as_str() {
        "heuristic" => Arc::new(HeuristicExtractor),
        "claude-p" => Arc::new(FallbackExtractor::strict(Some(modelled(claude(config))), NOT_LOGGED_IN)),
        "claude-api" => {
            let api = key(config)?.map(|key| api(config, key)).transpose()?;
            Arc::new(FallbackExtractor::strict(api.map(modelled), NO_KEY))
        }
        _ => Arc::new(FallbackExtractor::with_models(vec![match key(config) {
            Ok(Some(key)) => modelled(api(config, key)?),
            Ok(None) => modelled(claude(config)),
            // A missing key file must not fail a capture; `nugget config` reports it.
            Err(error) => {
                tracing::warn!(error = %error, "not using the API to read sessions");
                modelled(claude(config))
            }
        }])),
    };
    #[cfg(feature = "failpoints")]
    let extractor = crate::fake_extractor::wrap(extractor);
    Ok(extractor)
}

/// How much is sent to a model at once.
pub(crate) fn limits(config: &Config) -> Limits {
    Limits {
        part_tokens: config.number("extract.part_tokens") as usize,
        output_tokens_max: config.number("extract.output_tokens_max") as u32,
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
pub(crate) fn client(config: &Config, deadline: Duration) -> Result<Option<llm::Client>, llm::Error> {
    let Some(key) = key(config)? else { return Ok(None) };
    llm::Client::new(llm::Settings {
        url: config.string("model.url"),
        model: config.string("model.name"),
        key,
        deadline,
    })
    .map(Some)
}

/// The model that reranks results; `None` if there is no key or the settings turn it off.
pub(crate) fn model_reranker(config: &Config, places: &StatePaths) -> Option<ModelReranker> {
    if config.string("retrieve.rerank") == "off" {
        return None;
    }
    let deadline = Duration::from_millis(config.number("retrieve.rerank_deadline_ms"));
    match client(config, deadline) {
        Ok(client) => Some(ModelReranker { client: client?, budget: api_budget(config, places), deadline }),
        // A missing key file must not fail a search; `nugget ask` reports it when it writes an answer.
        Err(error) => {
            tracing::warn!(%error, "results keep their local order");
            None
        }
    }
}

/// What reads sessions, and where they are sent.
pub(crate) fn destination(config: &Config) -> String {
    let url = config.string("model.url");
    let by_api = format!("the Claude API at {url}; they are sent there, redacted");
    let by_client = "`claude -p` if you are logged in; they are then sent to Anthropic, redacted";
    match (config.string("extract.backend").as_str(), key(config)) {
        ("heuristic", _) => "rules; nothing leaves this machine".to_owned(),
        ("claude-api", Ok(Some(_))) => by_api,
        ("claude-api", Ok(None)) => "nothing: there is no key".to_owned(),
        ("claude-p", _) => by_client.to_owned(),
        (_, Ok(Some(_))) => by_api,
        ("claude-api", Err(error)) => format!("nothing: {error}"),
        (_, Err(error)) => format!("{by_client}; otherwise rules ({error})"),
        (_, Ok(None)) => format!("{by_client}; otherwise rules, and nothing leaves this machine"),
    }
}

/// One line for a person who sets nugget up: what reads sessions, at what cost, and how to keep them on this machine.
pub(crate) fn describe_for_setup(config: &Config) -> String {
    let reader = output::safe(&destination(config));
    if config.string("extract.backend") == "heuristic" {
        return format!("sessions are read by {reader}\n");
    }
    let dollars = config.number("spend.cents_per_day") as f64 / 100.0;
    format!(
        "sessions are read by {reader}; at most ${dollars:.2} a day (extract.backend = \"heuristic\" in {} \
         keeps them here)\n",
        output::short_path(config.file())
    )
}

fn key(config: &Config) -> Result<Option<llm::Key>, llm::Error> {
    llm::Key::find(config.path("model.key_file").as_deref())
}

fn deadline(config: &Config) -> Duration {
    config.seconds("extract.deadline_seconds")
}

fn api(config: &Config, key: llm::Key) -> Result<Arc<dyn Backend>, llm::Error> {
    let client = llm::Client::new(llm::Settings {
        url: config.string("model.url"),
        model: config.string("extract.model"),
        key,
        deadline: deadline(config),
    })?;
    Ok(Arc::new(MessagesApi::new(client)))
}

fn claude(config: &Config) -> Arc<dyn Backend> {
    Arc::new(ClaudeCode::new(claude_code::Settings {
        program: config.path("extract.claude").unwrap_or_else(|| "claude".into()),
        model: config.string("extract.model"),
        deadline: deadline(config),
        folder: claude_code::working_folder(&brain::paths::state_folder()),
    }))
}
