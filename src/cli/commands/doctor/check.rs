//! The result of one check.

use std::error::Error;

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Ok,
    Warning,
    Failure,
}

/// The result of one check.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) level: Level,
    pub(super) message: String,
    /// What a person can do about it.
    pub(super) fix: Option<String>,
}

impl Check {
    pub(super) fn new(name: &'static str, level: Level, message: impl Into<String>) -> Self {
        // Paths and texts from elsewhere are part of messages.
        let message = knowledge::text::one_line(&transcript::redact::redact(&message.into()), 400);
        Self { name, level, message, fix: None }
    }

    pub(super) fn ok(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, Level::Ok, message)
    }

    pub(super) fn warning(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, Level::Warning, message)
    }

    pub(super) fn failure(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, Level::Failure, message)
    }

    pub(super) fn fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }

    /// An error and its sources, with the error's hint.
    pub(super) fn error(
        name: &'static str,
        level: Level,
        error: &(dyn Error + 'static),
        hint: Option<&str>,
    ) -> Self {
        let fix = hint.map(str::to_owned);
        Self { fix, ..Self::new(name, level, knowledge::text::error_chain(error)) }
    }
}
