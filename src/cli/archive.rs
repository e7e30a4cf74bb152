//! The session archive as commands and processes use it: where it is, what feeds it, and what is left out.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actors::archiving::Settings;
use archive::{Archive, ClaudeCode, Codex, TranscriptSource};
use brain::Config;

use crate::error::CliError;
use crate::settings;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// `$XDG_STATE_HOME/nugget/archive.db`: one archive for each user, beside the state folders of brains.
pub(crate) fn archive_path() -> PathBuf {
    brain::paths::state_folder().join(archive::FILE_NAME)
}

/// Whether sessions are archived (`archive.enabled`).
pub(crate) fn is_enabled(config: &Config) -> bool {
    config.string("archive.enabled") == "on"
}

/// Whether sessions are told what earlier sessions were about (`recall.memories`).
pub(crate) fn recalls_memories(config: &Config) -> bool {
    config.string("recall.memories") == "on" && is_enabled(config)
}

/// The transcripts that are archived without a command.
fn sources(config: &Config) -> Vec<Arc<dyn TranscriptSource + Send + Sync>> {
    vec![Arc::new(ClaudeCode::new(settings::sweep(config).folders))]
}

/// The transcripts that only a command archives: nugget is not installed in their client.
pub(crate) fn other_source() -> Codex {
    Codex::new(Codex::client_folder().into_iter().collect())
}

/// The names of the clients whose transcripts are archived.
pub(crate) fn source_names() -> [&'static str; 2] {
    [ClaudeCode::new(Vec::new()).name(), Codex::new(Vec::new()).name()]
}

/// What is archived, and where, whether or not sessions are archived. [`Settings::sync_settings`] gives those of a sync
/// by a command; sessions that ran with `NUGGET_DISABLE` are known to [`actors::archiving::QueuedSessions`].
pub(crate) fn sync_settings(config: &Config) -> Settings {
    let sweep = settings::sweep(config);
    let days = config.number("archive.retention_days");
    Settings {
        path: archive_path(),
        sources: sources(config),
        exclude: sweep.exclude,
        state: sweep.state,
        idle: sweep.idle,
        retention: (days > 0).then(|| DAY * u32::try_from(days).unwrap_or(u32::MAX)),
    }
}

/// The archive if there is one; creates nothing.
pub(crate) fn open_archive() -> Result<Option<Archive>, CliError> {
    Ok(Archive::open_existing(&archive_path())?)
}
