//! Who reads sessions, as the settings have it.

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

const NO_KEY: &str = "`extract.backend` is claude-api and there is no key: set ANTHROPIC_API_KEY or `model.key_file`, then run `nugget retry`";
const NOT_LOGGED_IN: &str = "`extract.backend` is claude-p, and it is not installed or nobody is logged in: run `claude auth login`, then `nugget retry`";

/// The extractor that the settings ask for. Nothing is asked of anybody yet.
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
            // A capture must not fail for a file that is not there; `nugget config` says what is wrong.
            Err(error) => {
                tracing::warn!(error = %error, "sessions are read without the API");
                modelled(claude(config))
            }
        }])),
    };
    #[cfg(feature = "failpoints")]
    let extractor = crate::fake_extractor::wrap(extractor);
    Ok(extractor)
}

/// How much a model is asked at once.
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

/// Who pays for what is asked outside of captures.
pub(crate) fn api_budget(config: &Config, places: &StatePaths) -> ApiBudget {
    ApiBudget::new(places.queue(), budget(config))
}

/// A client for questions; `None` without a key.
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

/// Who orders what was found, besides the local order.
pub(crate) fn model_reranker(config: &Config, places: &StatePaths) -> Option<ModelReranker> {
    if config.string("retrieve.rerank") == "off" {
        return None;
    }
    let deadline = Duration::from_millis(config.number("retrieve.rerank_deadline_ms"));
    match client(config, deadline) {
        Ok(client) => Some(ModelReranker { client: client?, budget: api_budget(config, places), deadline }),
        // An answer must not fail for a file that is not there; who asks for a written one is told.
        Err(error) => {
            tracing::warn!(%error, "the local order stands");
            None
        }
    }
}

/// Where sessions go, for people who want to know before they do.
pub(crate) fn destination(config: &Config) -> String {
    let url = config.string("model.url");
    let by_api = format!("the Claude API at {url}; what they say, redacted, is sent there");
    let by_client =
        "`claude -p`, if somebody is logged in; what they say, redacted, is then sent to Anthropic";
    match (config.string("extract.backend").as_str(), key(config)) {
        ("heuristic", _) => "rules; nothing leaves this machine".to_owned(),
        ("claude-api", Ok(Some(_))) => by_api,
        ("claude-api", Ok(None)) => "nobody: there is no key".to_owned(),
        ("claude-p", _) => by_client.to_owned(),
        (_, Ok(Some(_))) => format!("{by_api} (extract.backend = \"heuristic\" keeps them here)"),
        ("claude-api", Err(error)) => format!("nobody: {error}"),
        (_, Err(error)) => format!("{by_client}; otherwise rules ({error})"),
        (_, Ok(None)) => format!("{by_client}; otherwise rules, and nothing leaves this machine"),
    }
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
