//! The error type of the command line: what happened, what to do next, and the exit code.
//!
//! The libraries below return typed errors. They become a [`CliError`] here, where its exit code and its hint
//! are decided once.

use std::error::Error;
use std::path::Path;

use actors::notes::NoteError;
use brain::config::{ConfigError, Origin, variable_name};

/// Exit code: the command failed.
pub(crate) const FAILED: u8 = 1;
/// Exit code: wrong usage or wrong settings.
pub(crate) const USAGE: u8 = 2;
/// Exit code: there is no such brain, unit, capture, session or file.
pub(crate) const MISSING: u8 = 3;
/// Exit code: the capture that the command waited for failed for good.
pub(crate) const CAPTURE_FAILED: u8 = 4;

/// The most characters of a line of an error or hint, and the most lines, that are printed.
const LINE_CHARS_MAX: usize = 600;
const LINES_MAX: usize = 8;

/// What to do about a queue whose file is damaged.
const DAMAGED_QUEUE: &str = "move queue.db, queue.db-wal and queue.db-shm in nugget's state folder away (`nugget doctor` \
                             names it): captures that were not pushed yet are lost with it, and `nugget sync --since 7d` \
                             reads their sessions again";

/// An error that ends a command.
#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) code: u8,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl CliError {
    /// An error with the exit code [`FAILED`] and no hint.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { code: FAILED, message: message.into(), hint: None }
    }

    pub(crate) fn code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// With a hint, unless it has a better one.
    pub(crate) fn or_hint(self, hint: &str) -> Self {
        Self { hint: self.hint.or_else(|| Some(hint.to_owned())), ..self }
    }

    /// What a person is told: the message, and the hint if there is one.
    pub(crate) fn message_and_hint(&self) -> (String, Option<String>) {
        (printable(&self.message), self.hint.as_deref().map(printable))
    }

    /// The error as `--json` prints it.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        serde_json::json!({ "error": {
            "message": printable(&self.message),
            "hint": self.hint.as_deref().map(printable),
            "exit_code": self.code,
        }})
    }

    /// The message and the hint on one line, for use inside a sentence.
    pub(crate) fn line(&self) -> String {
        let text = match &self.hint {
            Some(hint) => printable(&format!("{} ({hint})", self.message)),
            None => printable(&self.message),
        };
        knowledge::text::one_line(&text, LINE_CHARS_MAX)
    }

    /// There is no folder that is this person's alone.
    pub(crate) fn no_home() -> Self {
        Self::new("HOME is not set to an absolute path")
            .hint("set HOME, or XDG_CONFIG_HOME and XDG_STATE_HOME")
    }

    /// All problems of the settings as one error.
    pub(crate) fn from_settings(errors: &[ConfigError]) -> Self {
        let messages: Vec<String> = errors.iter().map(|error| knowledge::text::error_chain(error)).collect();
        let error = Self::new(messages.join("; ")).code(USAGE);
        let broken = errors.iter().find_map(|error| match error {
            ConfigError::Read { path, source } | ConfigError::Write { path, source } => Some((path, source)),
            _ => None,
        });
        if let Some((path, source)) = broken {
            let error = error.code(FAILED);
            return match source.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    // What is missing is of no use to `ls`.
                    let exists = |path: &&Path| path.symlink_metadata().is_ok();
                    let existing = path.ancestors().filter(exists).take(2);
                    let mut shown: Vec<String> = existing.map(|path| path.display().to_string()).collect();
                    shown.reverse();
                    error.hint(format!("see who may use it: ls -ld {}", shown.join(" ")))
                }
                _ => error,
            };
        }
        if errors.iter().any(|error| matches!(error, ConfigError::Toml { .. })) {
            return error
                .hint("`nugget config edit` opens it; sessions that end meanwhile wait, none is lost");
        }
        let unknown = errors.iter().find_map(|error| match error {
            ConfigError::Unknown { origin, nearest, .. } => Some((origin, *nearest)),
            _ => None,
        });
        match unknown {
            Some((Origin::Variable(variable), nearest)) => {
                let or = nearest.map(|name| format!(", or did you mean {}?", variable_name(name)));
                error.hint(format!("`unset {variable}`{}", or.unwrap_or_default()))
            }
            Some((_, Some(name))) => {
                error.hint(format!("did you mean `{name}`? `nugget config` lists all settings"))
            }
            _ => error.hint("`nugget config` lists all settings"),
        }
    }
}

/// A text without secrets and control characters: paths and texts from elsewhere are part of messages. It is one line,
/// except where a program's own words have several and a command to copy stands on one of them.
fn printable(text: &str) -> String {
    let text = transcript::redact::redact(text);
    let lines: Vec<String> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .take(LINES_MAX)
        .map(|line| {
            let indent = if line.starts_with(['\t', ' ']) { "    " } else { "" };
            format!("{indent}{}", knowledge::text::one_line(line, LINE_CHARS_MAX))
        })
        .collect();
    lines.join("\n")
}

/// The message is the error's and those of its sources, joined by colons.
impl<E: Error + 'static> From<E> for CliError {
    fn from(error: E) -> Self {
        let (code, hint) = code_and_hint(&error);
        Self { code, message: knowledge::text::error_chain(&error), hint }
    }
}

fn code_and_hint(error: &(dyn Error + 'static)) -> (u8, Option<String>) {
    let hint = |code, hint: &str| (code, Some(hint.to_owned()));
    let of_git = match (error.downcast_ref(), error.downcast_ref()) {
        (Some(actors::review::ReviewError::Git(error)), _)
        | (_, Some(actors::StartError::NotTrusted(error))) => Some(error),
        _ => match error.downcast_ref() {
            Some(NoteError::Git(error)) => Some(error),
            _ => error.downcast_ref::<git::Error>(),
        },
    };
    let of_notes = match error.downcast_ref() {
        Some(NoteError::Notes(error)) => Some(error),
        _ => error.downcast_ref::<notes::Error>(),
    };
    let of_queue = match error.downcast_ref() {
        Some(actors::StartError::Queue(error)) => Some(error),
        _ => error.downcast_ref::<queue::Error>(),
    };
    if let Some(error) = of_git {
        (FAILED, error.hint().map(str::to_owned))
    } else if let Some(error) = of_notes {
        match error {
            notes::Error::Missing { .. } => hint(
                MISSING,
                "`nugget note list` shows all; one on a branch has to be merged first, and a new file committed",
            ),
            notes::Error::NoFact { .. } => {
                hint(MISSING, "`nugget list --type fact` shows all; one on a branch has to be merged first")
            }
            notes::Error::Ambiguous { .. } | notes::Error::NotWhole { .. } => {
                hint(USAGE, "name it by its whole id")
            }
            notes::Error::NotANote { id, .. } => {
                hint(USAGE, &format!("`nugget edit {id}` and `nugget rm {id}` are for units of other types"))
            }
            notes::Error::Outside { id, .. } => {
                hint(USAGE, &format!("`nugget edit {id}` and `nugget rm {id}` propose it"))
            }
            notes::Error::SameId { .. } => {
                hint(FAILED, "give all but one another id, or remove them: `nugget rm PATH` proposes it")
            }
            notes::Error::Changed { .. } => hint(FAILED, "try again"),
            _ => (USAGE, None),
        }
    } else if let Some(NoteError::Unpushed { is_unfinished: true, .. }) = error.downcast_ref() {
        hint(FAILED, "finish that first: `git status` in the brain says how")
    } else if let Some(NoteError::Unpushed { .. }) = error.downcast_ref() {
        hint(
            FAILED,
            "push your commits of the default branch, or check it out without changes, and try again",
        )
    } else if let Some(error) = error.downcast_ref::<github::Error>() {
        let is_usage = matches!(error, github::Error::InvalidSlug { .. } | github::Error::InvalidApi { .. });
        let hint = match error {
            // In the background it is tried again; a command has ended.
            github::Error::Offline { .. }
            | github::Error::TimedOut { .. }
            | github::Error::ConnectionLost { .. } => {
                Some("run the command again when GitHub can be reached")
            }
            github::Error::RateLimited { .. } | github::Error::SecondaryLimit { .. } => {
                Some("run the command again after that time")
            }
            error => error.hint(),
        };
        (if is_usage { USAGE } else { FAILED }, hint.map(str::to_owned))
    } else if let Some(brain::Error::Missing { path }) = error.downcast_ref() {
        let path = path.display();
        hint(
            MISSING,
            &format!(
                "`nugget init --path {path}` creates one, `nugget clone URL {path}` brings yours; of one that was moved, \
                 `nugget config set brain DIR` says where it is"
            ),
        )
    } else if let Some(brain::Error::NotABrain { path }) = error.downcast_ref() {
        hint(MISSING, &format!("run `nugget init --path {}` to create one", path.display()))
    } else if let Some(brain::Error::NotAFolder { .. }) = error.downcast_ref() {
        hint(MISSING, "give a folder with --brain or --path")
    } else if let Some(brain::Error::Manifest { .. }) = error.downcast_ref() {
        hint(FAILED, "fix that file; it needs only `version: 1` and `name: …`")
    } else if of_queue.is_some_and(queue::Error::is_damaged) {
        hint(FAILED, DAMAGED_QUEUE)
    } else if let Some(queue::Error::Unknown { .. }) = error.downcast_ref() {
        hint(MISSING, "`nugget status` lists the captures")
    } else if let Some(queue::Error::Newer { .. }) = error.downcast_ref() {
        hint(FAILED, "a newer version of nugget has used this queue: update this one")
    } else if let Some(queue::Error::Open { .. } | queue::Error::File { .. }) = error.downcast_ref() {
        hint(
            FAILED,
            "check that the state folder is on a local disk with free space and that you may write to it",
        )
    } else if let Some(error) = error.downcast_ref::<archive::Error>() {
        archive_code_and_hint(error)
    } else if is_denied(error) {
        hint(
            FAILED,
            "you may not use that file or folder: see whose it is by `ls -ld`, or run this as that user",
        )
    } else if let Some(actors::StartError::Index(_)) = error.downcast_ref() {
        hint(FAILED, "the index is derived: delete the brain's .nugget folder and try again")
    } else if error.is::<actors::AskError>() {
        hint(FAILED, "try again with -v to see what the service is doing")
    } else if let Some(embed::Error::NoKey { .. } | embed::Error::KeyRefused { .. }) = error.downcast_ref() {
        hint(USAGE, "`embed.provider = \"local\"` needs no key and sends nothing")
    } else if let Some(embed::Error::UnknownDimensions { .. }) = error.downcast_ref() {
        hint(USAGE, "the provider's documentation says how many there are")
    } else {
        (FAILED, None)
    }
}

/// Whether an error comes of a file or folder that belongs to somebody else.
fn is_denied(error: &(dyn Error + 'static)) -> bool {
    let of_system = |error: &(dyn Error + 'static)| {
        let error = error.downcast_ref::<std::io::Error>();
        error.is_some_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    };
    std::iter::successors(Some(error), |&error| error.source()).any(of_system)
}

fn archive_code_and_hint(error: &archive::Error) -> (u8, Option<String>) {
    use archive::Error as E;
    let (code, hint) = match error {
        E::Newer { .. } => (FAILED, "update nugget: a newer version has used this archive".to_owned()),
        E::Busy | E::Pool(_) => (FAILED, "try again in a moment".to_owned()),
        E::DiskFull => (FAILED, "free some space; what is archived is safe".to_owned()),
        E::Damaged(_) | E::Text { .. } => {
            let hint =
                "move archive.db in nugget's state folder away: what is still on disk is archived again";
            (FAILED, hint.to_owned())
        }
        E::File { source, .. } if source.kind() == std::io::ErrorKind::IsADirectory => {
            (FAILED, "move that folder away".to_owned())
        }
        E::Open { .. } | E::File { .. } => {
            (FAILED, "make that file and its folder yours, readable and writable".to_owned())
        }
        E::Sqlite(_) => (FAILED, "`nugget doctor -v` checks the archive".to_owned()),
        E::UnknownSession { .. } => (MISSING, "`nugget sessions` lists them".to_owned()),
        E::AmbiguousSession { .. } => (USAGE, "give more of the id".to_owned()),
    };
    (code, Some(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_else_owns_is_no_damaged_index() {
        let hint = |kind: std::io::ErrorKind| {
            let source = kind.into();
            let error = index::Error::Io { action: "create", path: "/brain/.nugget".into(), source };
            CliError::from(actors::StartError::Index(error)).hint.unwrap()
        };
        assert!(hint(std::io::ErrorKind::PermissionDenied).starts_with("you may not use that"));
        assert!(hint(std::io::ErrorKind::NotFound).contains("delete the brain's .nugget folder"));
    }
}
