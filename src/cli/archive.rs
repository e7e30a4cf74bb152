//! Where the archive of sessions is, and what feeds it.

use std::path::{Path, PathBuf};

use archive::{ClaudeCode, Codex, SyncSettings, TranscriptSource};
use brain::Config;
use jiff::Timestamp;
use queue::{Queue, TranscriptStamp, TranscriptStatus};

use crate::context::Context;
use crate::settings;

/// The archive's file: one for each user.
pub(crate) fn archive_path() -> PathBuf {
    brain::paths::state_folder().join(archive::FILE_NAME)
}

/// The clients whose transcripts are archived.
pub(crate) fn sources(config: &Config) -> Vec<Box<dyn TranscriptSource>> {
    vec![
        Box::new(ClaudeCode::new(settings::sweep(config).folders)),
        Box::new(Codex::new(Codex::client_folder().into_iter().collect())),
    ]
}

/// What is archived, by the settings.
pub(crate) fn sync_settings<'a>(config: &Config) -> SyncSettings<'a> {
    let mut settings = SyncSettings::new(brain::paths::state_folder());
    settings.exclude = settings::excluded_projects(config);
    settings
}

/// Whether the session of a transcript ran with `NUGGET_DISABLE`, as the queue of this brain knows.
pub(crate) fn declined(context: &Context) -> impl Fn(&Path) -> bool + use<> {
    let known = context.open().ok().and_then(|(_, _, places)| {
        let queue = places.queue().is_file().then(|| Queue::open(&places.queue()).ok()).flatten()?;
        queue.known_transcripts(Timestamp::now()).ok()
    });
    move |path| {
        let stamp = TranscriptStamp { transcript: path.to_owned(), size: 0, modified_ms: 0 };
        known.as_ref().is_some_and(|known| known.status("", &stamp) == TranscriptStatus::Declined)
    }
}

/// The model for the meaning of messages: that of the settings if it runs on this machine, else the built-in one.
/// Nothing of the archive is sent to a provider.
pub(crate) fn embedding(config: &Config) -> embed::Settings {
    let settings = settings::embedding(config);
    match settings.model {
        embed::ModelChoice::Remote(_) => embed::Settings { model: embed::ModelChoice::BuiltIn, ..settings },
        _ => settings,
    }
}
