//! The error type of the command line: what happened, what to do next, and the exit code.
//!
//! The libraries below return typed errors. They become a [`CliError`] here, where its exit code and its hint
//! are decided once.

use std::error::Error;
use std::io::Write as _;

use brain::config::ConfigError;

/// Exit code: the command failed.
pub(crate) const FAILED: u8 = 1;
/// Exit code: wrong usage or wrong settings.
pub(crate) const USAGE: u8 = 2;
/// Exit code: there is no such brain, unit, capture or file.
pub(crate) const MISSING: u8 = 3;
/// Exit code: the capture that the command waited for failed for good.
pub(crate) const CAPTURE_FAILED: u8 = 4;

/// The most characters of an error or hint that are printed.
const LINE_CHARS_MAX: usize = 600;

/// An error that ends a command.
#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) code: u8,
    message: String,
    hint: Option<String>,
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

    /// Prints the error and its hint to stderr.
    pub(crate) fn print(&self) {
        let mut stderr = anstream::stderr().lock();
        let red = anstyle::AnsiColor::Red.on_default().bold();
        let _ = writeln!(stderr, "{red}error:{red:#} {}", printable(&self.message));
        if let Some(hint) = &self.hint {
            let _ = writeln!(stderr, "hint: {}", printable(hint));
        }
    }

    /// The message and the hint on one line, for use inside a sentence.
    pub(crate) fn line(&self) -> String {
        match &self.hint {
            Some(hint) => printable(&format!("{} ({hint})", self.message)),
            None => printable(&self.message),
        }
    }

    /// The message is the error's and those of its sources, joined by colons.
    fn from_error(error: &(dyn Error + 'static)) -> Self {
        Self::new(knowledge::text::error_chain(error))
    }

    fn hint_if_any(self, hint: Option<&str>) -> Self {
        match hint {
            Some(hint) => self.hint(hint),
            None => self,
        }
    }

    /// All problems of the settings as one error.
    pub(crate) fn from_settings(errors: &[ConfigError]) -> Self {
        let messages: Vec<String> = errors.iter().map(|error| Self::from_error(error).message).collect();
        let error = Self::new(messages.join("; ")).code(USAGE);
        let nearest = errors.iter().find_map(|error| match error {
            ConfigError::Unknown { nearest, .. } => *nearest,
            _ => None,
        });
        match nearest {
            Some(name) => error.hint(format!("did you mean `{name}`? `nugget config` lists all settings")),
            None => error.hint("`nugget config` lists all settings"),
        }
    }
}

/// One line without secrets and control characters: paths and texts from elsewhere are part of messages.
fn printable(text: &str) -> String {
    knowledge::text::one_line(&transcript::redact::redact(text), LINE_CHARS_MAX)
}

impl From<brain::Error> for CliError {
    fn from(error: brain::Error) -> Self {
        let cli_error = Self::from_error(&error);
        match &error {
            brain::Error::Missing { path } | brain::Error::NotABrain { path } => cli_error
                .code(MISSING)
                .hint(format!("run `nugget init --path {}` to create one", path.display())),
            brain::Error::NotAFolder { .. } => {
                cli_error.code(MISSING).hint("give a folder with --brain or --path")
            }
            brain::Error::Manifest { .. } => {
                cli_error.hint("fix that file; it needs only `version: 1` and `name: …`")
            }
            _ => cli_error,
        }
    }
}

impl From<queue::Error> for CliError {
    fn from(error: queue::Error) -> Self {
        let cli_error = Self::from_error(&error);
        match &error {
            queue::Error::Unknown { .. } => {
                cli_error.code(MISSING).hint("`nugget status` lists the captures")
            }
            queue::Error::Newer { .. } => {
                cli_error.hint("a newer version of nugget has used this queue: update this one")
            }
            queue::Error::Open { .. } | queue::Error::File { .. } => cli_error.hint(
                "check that the state folder is on a local disk with free space and that you may write to it",
            ),
            _ => cli_error,
        }
    }
}

impl From<git::Error> for CliError {
    fn from(error: git::Error) -> Self {
        Self::from_error(&error).hint_if_any(error.hint())
    }
}

impl From<github::Error> for CliError {
    fn from(error: github::Error) -> Self {
        let is_usage = matches!(error, github::Error::InvalidSlug { .. } | github::Error::InvalidApi { .. });
        let code = if is_usage { USAGE } else { FAILED };
        Self::from_error(&error).code(code).hint_if_any(error.hint())
    }
}

impl From<actors::StartError> for CliError {
    fn from(error: actors::StartError) -> Self {
        let hint = matches!(error, actors::StartError::Index(_))
            .then_some("the index is derived: delete the brain's .nugget folder and try again");
        Self::from_error(&error).hint_if_any(hint)
    }
}

impl From<actors::AskError> for CliError {
    fn from(error: actors::AskError) -> Self {
        Self::from_error(&error).hint("try again with -v to see what the service is doing")
    }
}

impl From<llm::Error> for CliError {
    fn from(error: llm::Error) -> Self {
        Self::from_error(&error)
    }
}

impl From<embed::Error> for CliError {
    fn from(error: embed::Error) -> Self {
        let cli_error = Self::from_error(&error);
        match &error {
            embed::Error::NoKey { .. } | embed::Error::KeyRefused { .. } => {
                cli_error.code(USAGE).hint("`embed.provider = \"local\"` needs no key and sends nothing")
            }
            embed::Error::UnknownDimensions { .. } => {
                cli_error.code(USAGE).hint("the provider's documentation says how many there are")
            }
            _ => cli_error,
        }
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> Self {
        Self::from_error(&error)
    }
}

impl From<serde_json::Error> for CliError {
    fn from(error: serde_json::Error) -> Self {
        Self::from_error(&error)
    }
}
