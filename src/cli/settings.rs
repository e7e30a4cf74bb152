//! Translates the configuration into the settings of the other crates.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brain::Config;
use brain::config::ConfigError;
use embed::{ModelChoice, OnnxModel, Pooling, Provider, RemoteModel};

use crate::error::CliError;

/// How the brain's remote is used.
pub(crate) fn delivery(config: &Config) -> actors::DeliverySettings {
    let minutes = config.number("sync.minutes");
    actors::DeliverySettings {
        enabled: config.string("delivery.enabled") == "on",
        api: config.string("github.api"),
        batch: actors::BatchWindow::parse(&config.string("delivery.batch")),
        sync_every: (minutes > 0).then(|| Duration::from_secs(60 * minutes)),
    }
}

/// What a sweep looks for, whether or not sweeps are enabled.
pub(crate) fn sweep(config: &Config) -> actors::sweep::Settings {
    let home = brain::paths::home();
    let named = config.string("sweep.folders");
    let named = named.split(',').map(str::trim).filter(|folder| !folder.is_empty());
    let mut folders: Vec<PathBuf> = named
        .map(|folder| match (folder.strip_prefix("~/"), &home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(folder),
        })
        .collect();
    if folders.is_empty() {
        folders.extend(transcript::client_folder());
    }
    actors::sweep::Settings {
        folders,
        idle: Duration::from_secs(60 * config.number("sweep.idle_minutes")),
        daily_cap: u32::try_from(config.number("sweep.daily_cap")).unwrap_or(u32::MAX),
        exclude: excluded_projects(config),
        state: brain::paths::state_folder(),
    }
}

/// The projects that are not captured: those of the setting, and the lines of `.nuggetignore` beside the
/// configuration file. A file that cannot be read names none: it is an error of the settings (see
/// [`read_excluded_projects`]).
pub(crate) fn excluded_projects(config: &Config) -> transcript::Exclude {
    let home = brain::paths::home();
    let lines = read_excluded_projects(config).unwrap_or_default();
    transcript::Exclude::new(&config.string("capture.exclude"), home.as_deref())
        .with_lines(&lines, home.as_deref())
}

/// Reads the `.nuggetignore` beside the configuration file, which may be missing.
///
/// # Errors
/// When it cannot be read: which projects may be captured is not known then.
pub(crate) fn read_excluded_projects(config: &Config) -> Result<String, ConfigError> {
    let path = config.file().with_file_name(".nuggetignore");
    match std::fs::read(&path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(source) => Err(ConfigError::Read { path, source }),
    }
}

/// The rule that excludes a project from capture, if there is one.
pub(crate) fn exclusion(config: &Config, project: &Path) -> Option<&'static str> {
    if excluded_projects(config).covers(project) {
        Some("capture.exclude")
    } else {
        transcript::Ignore::load(project).covers_everything().then_some("its .nuggetignore")
    }
}

/// The embedding model. A person waits for it: it may use all processors.
pub(crate) fn embedding(config: &Config) -> embed::Settings {
    let model = match config.string("embed.provider").as_str() {
        "openai" => ModelChoice::Remote(remote_model(config, Provider::OpenAi)),
        "voyage" => ModelChoice::Remote(remote_model(config, Provider::Voyage)),
        "off" => ModelChoice::Off,
        _ => config.path("embed.model").map_or(ModelChoice::BuiltIn, |path| local_model(config, path)),
    };
    embed::Settings {
        model,
        runtime_library: config.path("embed.runtime_library"),
        runtime_folder: Some(brain::paths::runtime_folder()),
        threads: std::thread::available_parallelism().map_or(1, NonZero::get),
    }
}

/// The setting that names the embedding model, where it is not the built-in one.
pub(crate) fn model_setting(embed: &embed::Settings) -> Option<&'static str> {
    match embed.model {
        ModelChoice::Onnx(_) => Some("embed.model"),
        ModelChoice::Remote(_) => Some("embed.provider"),
        ModelChoice::BuiltIn | ModelChoice::Off => None,
    }
}

/// A failed question or index, which a model of the person's own may be the cause of.
pub(crate) fn model_error(error: actors::AskError, embed: &embed::Settings) -> CliError {
    let error = CliError::from(error);
    match model_setting(embed) {
        Some(setting) => error.hint(format!(
            "if the model is the cause, correct the setting `{setting}` (`nugget config get {setting}`); -v shows more"
        )),
        None => error,
    }
}

/// The same for a process that nobody waits for, beside which people work: it leaves half of the processors free.
pub(crate) fn background_embedding(config: &Config) -> embed::Settings {
    let settings = embedding(config);
    embed::Settings { threads: settings.threads / 2, ..settings }
}

fn local_model(config: &Config, path: PathBuf) -> ModelChoice {
    let beside = || path.parent().unwrap_or(Path::new("")).join("tokenizer.json");
    ModelChoice::Onnx(OnnxModel {
        tokenizer: config.path("embed.tokenizer").unwrap_or_else(beside),
        pooling: match config.string("embed.pooling").as_str() {
            "cls" => Pooling::Cls,
            "sentence" => Pooling::None,
            _ => Pooling::Mean,
        },
        query_prefix: config.string("embed.query_prefix"),
        document_prefix: config.string("embed.document_prefix"),
        tokens_max: usize::try_from(config.number("embed.tokens_max")).ok(),
        name: None,
        path,
    })
}

fn remote_model(config: &Config, provider: Provider) -> RemoteModel {
    let or = |name: &str, default: &str| match config.string(name) {
        text if text.is_empty() => default.to_owned(),
        text => text,
    };
    RemoteModel {
        provider,
        model: or("embed.model", provider.model()),
        url: or("embed.url", provider.url()),
        key_file: config.path("embed.key_file"),
        dimensions: usize::try_from(config.number("embed.dimensions")).ok().filter(|&number| number > 0),
        query_prefix: config.string("embed.query_prefix"),
        document_prefix: config.string("embed.document_prefix"),
        deadline: config.seconds("embed.deadline_seconds"),
    }
}
