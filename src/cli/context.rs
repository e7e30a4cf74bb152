//! What every command finds out first: the settings, the brain, and what the service needs.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use actors::{Setup, sweep};
use brain::{Brain, Config, StatePaths};
use embed::{ModelChoice, OnnxModel, Pooling, Provider, RemoteModel};
use queue::FileLocks;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use transcript::redact::redact;

use crate::error::{self, CliError, MISSING};
use crate::extractor;

/// The global flags.
pub(crate) struct Context {
    brain: Option<PathBuf>,
    verbose: u8,
}

impl Context {
    pub(crate) fn new(brain: Option<PathBuf>, verbose: u8) -> Self {
        Self { brain, verbose }
    }

    /// The settings; anything wrong with them is an error.
    pub(crate) fn config(&self) -> Result<Config, CliError> {
        let (config, errors) = self.config_as_it_is();
        if errors.is_empty() { Ok(config) } else { Err(error::of_settings(&errors)) }
    }

    /// The settings with what is wrong with them, for a hook that must go on.
    pub(crate) fn config_as_it_is(&self) -> (Config, Vec<brain::config::ConfigError>) {
        let (mut config, mut errors) = Config::load();
        if let Some(brain) = &self.brain {
            let set = config.set_flag("brain", brain.display().to_string(), "--brain");
            errors.extend(set.err());
        }
        (config, errors)
    }

    /// Where the brain is, or would be.
    pub(crate) fn root(&self, config: &Config) -> PathBuf {
        config.path("brain").unwrap_or_else(brain::paths::default_brain)
    }

    /// The brain, which must be there.
    pub(crate) fn brain(&self, config: &Config) -> Result<Brain, CliError> {
        let root = self.root(config);
        match Brain::open(&root) {
            Err(error @ brain::Error::Missing { .. }) if config.path("brain").is_none() => {
                Err(CliError::from(error)
                    .code(MISSING)
                    .hint("run `nugget init` to make a brain, or name yours with --brain DIR"))
            }
            result => Ok(result?),
        }
    }

    /// What the service needs to know about the brain.
    pub(crate) fn setup(&self, config: &Config, brain: &Brain) -> Result<Setup, CliError> {
        let places = StatePaths::for_brain(brain.root());
        places.create()?;
        let manifest = brain.manifest()?;
        Ok(Setup {
            brain: brain.clone(),
            reranker: extractor::model_reranker(config, &places),
            places,
            embed: embed_settings(config),
            extractor: extractor::extractor(config)?,
            budget: extractor::budget(config),
            confidence_min: config.number("extract.confidence_min") as f64 / 100.0,
            default_branch: manifest.default_branch,
            linger: config.seconds("drainer.linger_seconds"),
            delivery: delivery_settings(config),
            sweep: (config.string("sweep.enabled") == "on").then(|| sweep_settings(config)),
        })
    }

    /// Logs to stderr, as much as was asked for.
    pub(crate) fn log_to_stderr(&self) {
        let filter = self.filter("off");
        let _ = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(Redacting(std::io::stderr))
            .try_init();
    }

    /// Logs to the brain's log folder, and what is wrong to stderr too: for a server, whose stderr its client
    /// keeps. `-v` says more on stderr, `NUGGET_LOG` in both places.
    pub(crate) fn log_to_both(
        &self,
        places: &StatePaths,
    ) -> Option<tracing_appender::non_blocking::WorkerGuard> {
        use tracing_subscriber::layer::SubscriberExt as _;
        use tracing_subscriber::util::SubscriberInitExt as _;
        use tracing_subscriber::{Layer as _, fmt};
        let stderr = fmt::layer()
            .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
            .with_writer(Redacting(io::stderr))
            .with_filter(self.filter("warn"));
        let (file, guard) = match appender(places) {
            Some(appender) => {
                let (writer, guard) = tracing_appender::non_blocking(appender);
                let layer = fmt::layer().with_ansi(false).with_writer(Redacting(writer));
                (Some(layer.with_filter(self.filter("info"))), Some(guard))
            }
            None => (None, None),
        };
        let _ = tracing_subscriber::registry().with(file).with(stderr).try_init();
        guard
    }

    /// Logs to the brain's log folder, for processes that nobody watches. The guard writes the rest
    /// when dropped.
    pub(crate) fn log_to_file(
        &self,
        places: &StatePaths,
    ) -> Option<tracing_appender::non_blocking::WorkerGuard> {
        let appender = appender(places)?;
        let (writer, guard) = tracing_appender::non_blocking(appender);
        let filter = self.filter("info");
        let _ = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(false)
            .with_writer(Redacting(writer))
            .try_init();
        Some(guard)
    }

    fn filter(&self, quiet: &str) -> EnvFilter {
        let ours = |level: &str| {
            let crates = [
                "actors",
                "brain",
                "cli",
                "embed",
                "extract",
                "forge",
                "github",
                "index",
                "mcp",
                "model",
                "queue",
                "retrieve",
                "transcript",
            ];
            crates.map(|name| format!("{name}={level}")).join(",")
        };
        let default = match self.verbose {
            0 if quiet == "off" => "off".to_owned(),
            0 => ours(quiet),
            1 => ours("info"),
            2 => ours("debug"),
            _ => "trace".to_owned(),
        };
        EnvFilter::try_from_env("NUGGET_LOG").unwrap_or_else(|_| EnvFilter::new(default))
    }
}

/// A file for each day in the brain's log folder; those of the last week are kept.
fn appender(places: &StatePaths) -> Option<tracing_appender::rolling::RollingFileAppender> {
    tracing_appender::rolling::Builder::new()
        .rotation(tracing_appender::rolling::Rotation::DAILY)
        .filename_prefix("nugget")
        .filename_suffix("log")
        .max_log_files(7)
        .build(places.logs())
        .ok()
}

/// Writes events without secrets: a server's words and a file's may be in them.
struct Redacting<W>(W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for Redacting<W> {
    type Writer = Redacting<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Redacting(self.0.make_writer())
    }
}

impl<W: Write> Write for Redacting<W> {
    /// Each event comes whole.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.0.write_all(redact(&String::from_utf8_lossy(event)).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// How the brain's remote is dealt with.
pub(crate) fn delivery_settings(config: &Config) -> actors::DeliverySettings {
    let minutes = config.number("sync.minutes");
    actors::DeliverySettings {
        enabled: config.string("delivery.enabled") == "on",
        api: config.string("github.api"),
        sync_every: (minutes > 0).then(|| Duration::from_secs(60 * minutes)),
    }
}

/// What a sweep goes by, whether or not it is switched on.
pub(crate) fn sweep_settings(config: &Config) -> sweep::Settings {
    let home = std::env::var_os("HOME").map(PathBuf::from);
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
    sweep::Settings {
        folders,
        idle: Duration::from_secs(60 * config.number("sweep.idle_minutes")),
        daily_cap: u32::try_from(config.number("sweep.daily_cap")).unwrap_or(u32::MAX),
        exclude: exclude(config),
        state: brain::paths::state_folder(),
    }
}

/// The projects that are not captured: what the setting names, and the lines of `.nuggetignore` beside
/// the settings.
pub(crate) fn exclude(config: &Config) -> transcript::Exclude {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let file = config.file().with_file_name(".nuggetignore");
    let lines = std::fs::read_to_string(file).unwrap_or_default();
    let lines = lines.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let patterns: Vec<String> = std::iter::once(config.string("capture.exclude"))
        .chain(lines.map(str::to_owned))
        .filter(|pattern| !pattern.is_empty())
        .collect();
    transcript::Exclude::new(&patterns.join(","), home.as_deref())
}

pub(crate) fn embed_settings(config: &Config) -> embed::Settings {
    let model = match config.string("embed.provider").as_str() {
        "openai" => ModelChoice::Remote(remote_model(config, Provider::OpenAi)),
        "voyage" => ModelChoice::Remote(remote_model(config, Provider::Voyage)),
        _ => config.path("embed.model").map_or(ModelChoice::BuiltIn, |path| own_model(config, path)),
    };
    embed::Settings {
        model,
        runtime_library: config.path("embed.runtime_library"),
        runtime_folder: Some(brain::paths::runtime_folder()),
        ..embed::Settings::default()
    }
}

fn own_model(config: &Config, path: PathBuf) -> ModelChoice {
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

/// Sees to it that somebody works the queue: when nobody waits to, starts a drainer that outlives
/// this process, its terminal and its client.
///
/// The place in the waiting room goes with it, as its standard input, so that there is no moment in
/// which nobody has it. The child starts a session of its own and leaves the work to a child of
/// *its* own, which then belongs to nobody: a client that kills a hook with all its descendants does
/// not find it.
pub(crate) fn ensure_drainer(places: &StatePaths, brain: &Brain) -> Result<(), CliError> {
    let locks = FileLocks::new(places.wait_lock(), places.drain_lock());
    let Some(place) = locks.try_standby_lock()? else { return Ok(()) };
    failpoint::here!("hook-before-spawn");
    spawn_drainer(place.into_stdin(), brain, &["--detach"])?;
    Ok(())
}

/// Starts `nugget drain` with the given standard input and nothing else of this process.
pub(crate) fn spawn_drainer(stdin: Stdio, brain: &Brain, flags: &[&str]) -> std::io::Result<()> {
    spawn("drain", stdin, brain, flags)
}

/// Starts `nugget index --background`, which outlives this process and its terminal.
pub(crate) fn spawn_indexer(brain: &Brain) -> std::io::Result<()> {
    spawn("index", Stdio::null(), brain, &["--background"])
}

fn spawn(command: &str, stdin: Stdio, brain: &Brain, flags: &[&str]) -> std::io::Result<()> {
    let null = || File::options().write(true).open("/dev/null").map(Stdio::from);
    // Not waited for: it is either a short step on the way or the drainer itself.
    Command::new(std::env::current_exe()?)
        .arg(command)
        .arg("--brain")
        .arg(brain.root())
        .args(flags)
        .current_dir("/")
        .stdin(stdin)
        .stdout(null()?)
        .stderr(null()?)
        .spawn()
        .map(drop)
}
