//! The settings of learning and of receipts, and what the hooks need of them.

use actors::learning::Settings;
use brain::{Brain, Config, StatePaths};
use feedback::receipts;

use crate::archive;

/// The client's id of the session that this process belongs to: Claude Code gives it to servers and commands.
const SESSION: &str = "CLAUDE_CODE_SESSION_ID";

/// Whether it is recorded what sessions are shown, and learned from it. The archive is where that is kept.
pub(crate) fn is_enabled(config: &Config) -> bool {
    config.string("learn.enabled") == "on" && config.string("archive.enabled") == "on"
}

/// Whether a unit is withheld from a session to measure whether it helps.
pub(crate) fn is_withheld(config: &Config, session: &str, unit: &str) -> bool {
    let share = config.decimal("receipts.holdout");
    share > 0.0 && is_enabled(config) && receipts::is_withheld(session, unit, share)
}

/// What is learned for a brain; `None` if nothing is.
pub(crate) fn settings(config: &Config, brain: &Brain) -> Option<Settings> {
    is_enabled(config).then(|| settings_of(config, brain))
}

/// The same, whether or not learning is enabled.
pub(crate) fn settings_of(config: &Config, brain: &Brain) -> Settings {
    let places = StatePaths::for_brain(brain.root());
    Settings {
        archive: archive::archive_path(),
        queue: places.queue(),
        brain: places.key(),
        index: brain.derived_folder(),
        session: std::env::var(SESSION).ok().filter(|session| !session.is_empty()),
        is_shared: config.string("learn.share") == "on",
        explores: config.string("learn.explore") == "on",
        candidates_max: config.number("learn.candidates") as usize,
        shown_max: config.number("learn.shown") as usize,
        temperature: config.decimal("learn.temperature"),
        baseline: config.decimal("learn.baseline"),
        rate: config.decimal("learn.rate"),
        holdout: config.decimal("receipts.holdout"),
    }
}
