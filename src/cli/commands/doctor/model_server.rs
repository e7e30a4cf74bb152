//! Checks the server of the model that the settings name, and finds those on this machine that could be used.

use brain::Config;
use brain::config::Origin;
use llm::local_servers::{self, LocalServer};

use crate::async_runtime;
use crate::extractor::{self, NoModel};

/// The most models that are named.
const MODELS_NAMED_MAX: usize = 5;

/// The setting of this, which leaves room for the instructions and the answer in the context that the guide has a local
/// server started with.
const PART_TOKENS: &str = "extract.part_tokens";
const LOCAL_PART_TOKENS: u32 = 8000;

/// What is known of a server.
pub(super) struct Finding {
    pub(super) is_ok: bool,
    pub(super) message: String,
    pub(super) fix: Option<String>,
}

/// What is wrong with the server of `model.api = "openai"`; without a model, which local server could be one.
pub(super) fn check(config: &Config, offline: bool) -> Option<Finding> {
    let runtime = async_runtime::current_thread().ok()?;
    match extractor::chat_model(config) {
        Some(Ok(settings)) if offline && !llm::is_loopback(&settings.url) => None,
        Some(Ok(settings)) => Some(runtime.block_on(check_server(settings))),
        Some(Err(why)) => {
            let message = why.to_string();
            let fix = matches!(why, NoModel::Name).then(|| {
                let found = runtime.block_on(find());
                let model = found.first().and_then(|server| server.models.first());
                format!("nugget config set model.name {}", model.map_or("NAME", String::as_str))
            });
            Some(Finding { is_ok: false, message, fix })
        }
        None if extractor::has_no_model(config) => {
            runtime.block_on(find()).first().map(|server| suggest(server, config))
        }
        None => None,
    }
}

async fn find() -> Vec<LocalServer> {
    let places = local_servers::usual(std::env::var("OLLAMA_HOST").ok().as_deref());
    let places: Vec<_> = places.iter().map(|(name, url)| (*name, url.as_str())).collect();
    local_servers::find(&places, local_servers::DEADLINE).await
}

async fn check_server(settings: llm::Settings) -> Finding {
    let (url, model) = (settings.url.clone(), settings.model.clone());
    let client = match llm::Client::new(settings) {
        Ok(client) => client,
        Err(error) => return Finding { is_ok: false, message: error.to_string(), fix: None },
    };
    match client.check_model().await {
        Ok(()) => Finding { is_ok: true, message: format!("{url} has {model}"), fix: None },
        Err(error) => Finding { is_ok: false, message: error.to_string(), fix: client.hint(&error) },
    }
}

/// The commands that make a local server read sessions.
fn suggest(server: &LocalServer, config: &Config) -> Finding {
    let LocalServer { name, url, models } = server;
    let set = |model: &str| {
        let mut commands = format!(
            "nugget config set model.api openai && nugget config set model.url {url} && nugget config set model.name {model}"
        );
        if config.get(PART_TOKENS).1 == Origin::Default {
            commands.push_str(&format!(" && nugget config set {PART_TOKENS} {LOCAL_PART_TOKENS}"));
        }
        commands
    };
    let (message, fix) = match models.first() {
        Some(model) => {
            let named =
                models.iter().take(MODELS_NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
            let message =
                format!("{name} runs at {url} and could read sessions on this machine with {named}");
            (message, set(model))
        }
        None => {
            let load =
                local_servers::pull_command(url, "MODEL").unwrap_or_else(|| "load a model there".to_owned());
            let message =
                format!("{name} runs at {url}, but has no model that could read sessions on this machine");
            (message, format!("{load}, then {}", set("MODEL")))
        }
    };
    Finding { is_ok: true, message, fix: Some(fix) }
}
