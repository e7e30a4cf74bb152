//! Where a command logs to. Secrets are redacted from every event.

use std::io::{self, Write};

use brain::StatePaths;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_appender::rolling::RollingFileAppender;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};
use transcript::redact::redact;

use crate::context::Context;

/// How many daily log files are kept.
const LOG_FILES_MAX: usize = 7;
/// Log lines that wait to be written; more are dropped.
const WAITING_LINES_MAX: usize = 8_192;
/// The crates of this workspace that log.
const CRATES: [&str; 17] = [
    "actors",
    "brain",
    "cli",
    "embed",
    "extract",
    "git",
    "github",
    "index",
    "llm",
    "mcp",
    "queue",
    "retrieve",
    "server",
    "team",
    "team_client",
    "team_service",
    "transcript",
];

impl Context {
    /// Logs to stderr, as much as `-v` asks for.
    pub(crate) fn log_to_stderr(&self) {
        self.log_to_stderr_from("off");
    }

    /// Logs to stderr from a level on, which `-v` and `NUGGET_LOG` change.
    fn log_to_stderr_from(&self, level: &str) {
        let _ = tracing_subscriber::registry().with(self.stderr_layer(level)).try_init();
    }

    /// Logs what a team's server does to stderr, and sends its spans to an OpenTelemetry collector if there is one.
    pub(crate) fn log_server(&self, telemetry: Option<&server::Telemetry>) {
        let layers = tracing_subscriber::registry().with(self.stderr_layer("info"));
        let _ = layers.with(telemetry.map(server::Telemetry::layer)).try_init();
    }

    fn stderr_layer<S>(&self, level: &str) -> impl tracing_subscriber::Layer<S> + use<S>
    where
        S: tracing::Subscriber + for<'span> LookupSpan<'span>,
    {
        fmt::layer()
            .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
            .with_writer(Redacting(io::stderr))
            .with_filter(self.filter(level))
    }

    /// Logs to the brain's log folder, if there is a brain, and warnings to stderr too: for a server, whose client
    /// keeps its stderr. `-v` raises the level on stderr, `NUGGET_LOG` on both.
    pub(crate) fn log_to_file_and_stderr(&self, places: Option<&StatePaths>) -> Option<WorkerGuard> {
        let stderr = self.stderr_layer("warn");
        let (file, guard) = places.and_then(appender).map(write_behind).unzip();
        let file = file.map(|file| {
            fmt::layer().with_ansi(false).with_writer(Redacting(file)).with_filter(self.filter("info"))
        });
        let _ = tracing_subscriber::registry().with(file).with(stderr).try_init();
        guard
    }

    /// Logs to the brain's log folder, for background processes. Dropping the guard writes the rest.
    pub(crate) fn log_to_file(&self, places: &StatePaths) -> Option<WorkerGuard> {
        let (file, guard) = write_behind(appender(places)?);
        let _ = fmt()
            .with_env_filter(self.filter("info"))
            .with_ansi(false)
            .with_writer(Redacting(file))
            .try_init();
        Some(guard)
    }

    /// The filter of `NUGGET_LOG`, else by `-v`; `quiet` is the level without `-v`.
    fn filter(&self, quiet: &str) -> EnvFilter {
        let own_crates = |level: &str| CRATES.map(|name| format!("{name}={level}")).join(",");
        let default = match self.verbosity {
            0 if quiet == "off" => "off".to_owned(),
            0 => own_crates(quiet),
            1 => own_crates("info"),
            2 => own_crates("debug"),
            // The tokenizer writes a line for each character: 90 MB for a brain of twenty units.
            _ => "trace,tokenizers=info".to_owned(),
        };
        EnvFilter::try_from_env("NUGGET_LOG").unwrap_or_else(|_| EnvFilter::new(default))
    }
}

/// Writes lines on a thread of its own. The default of 128,000 lines that wait takes 4 MB, used or not.
fn write_behind(appender: RollingFileAppender) -> (NonBlocking, WorkerGuard) {
    NonBlockingBuilder::default().buffered_lines_limit(WAITING_LINES_MAX).finish(appender)
}

/// One file a day in the brain's log folder.
fn appender(places: &StatePaths) -> Option<RollingFileAppender> {
    let appender = tracing_appender::rolling::Builder::new()
        .rotation(tracing_appender::rolling::Rotation::DAILY)
        .filename_prefix("nugget")
        .filename_suffix("log")
        .max_log_files(LOG_FILES_MAX)
        .build(places.logs())
        .ok();
    for file in std::fs::read_dir(places.logs()).into_iter().flatten().flatten() {
        let _ = system::file::make_private(&file.path());
    }
    appender
}

/// Redacts secrets: events may quote a server's answer or a file.
struct Redacting<W>(W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for Redacting<W> {
    type Writer = Redacting<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Redacting(self.0.make_writer())
    }
}

impl<W: Write> Write for Redacting<W> {
    /// The subscriber passes each event in one call.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.0.write_all(redact(&String::from_utf8_lossy(event)).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
