//! An error as a person gets it: what happened, what is safe, what to do next.

use std::error::Error;
use std::io::Write as _;

use brain::config::ConfigError;

pub(crate) const FAILED: u8 = 1;
pub(crate) const USAGE: u8 = 2;
pub(crate) const MISSING: u8 = 3;
pub(crate) const DEAD: u8 = 4;

#[derive(Debug)]
pub(crate) struct CliError {
    pub code: u8,
    message: String,
    hint: Option<String>,
}

impl CliError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { code: FAILED, message: message.into(), hint: None }
    }

    pub(crate) fn code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    pub(crate) fn print(&self) {
        let mut stderr = anstream::stderr().lock();
        let red = anstyle::AnsiColor::Red.on_default().bold();
        // Whatever is in the message, it is one line: paths and other people's words come in it.
        let line = |text: &str| knowledge::text::one_line(&transcript::redact::redact(text), 600);
        let _ = writeln!(stderr, "{red}error:{red:#} {}", line(&self.message));
        if let Some(hint) = &self.hint {
            let _ = writeln!(stderr, "hint: {}", line(hint));
        }
    }

    /// All of it on one line, for a place within a sentence.
    pub(crate) fn line(&self) -> String {
        let text = match &self.hint {
            Some(hint) => format!("{} ({hint})", self.message),
            None => self.message.clone(),
        };
        knowledge::text::one_line(&transcript::redact::redact(&text), 600)
    }

    fn of(error: &(dyn Error + 'static)) -> Self {
        Self::new(knowledge::text::error_chain(error))
    }
}

impl From<brain::Error> for CliError {
    fn from(error: brain::Error) -> Self {
        let fault = Self::of(&error);
        match &error {
            brain::Error::Missing { path } | brain::Error::NotABrain { path } => {
                fault.code(MISSING).hint(format!("run `nugget init --path {}` to make one", path.display()))
            }
            brain::Error::NotAFolder { .. } => {
                fault.code(MISSING).hint("give a folder with --brain or --path")
            }
            brain::Error::Manifest { .. } => {
                fault.hint("mend that file; `version: 1` and `name: …` are all it needs")
            }
            _ => fault,
        }
    }
}

impl From<queue::Error> for CliError {
    fn from(error: queue::Error) -> Self {
        let fault = Self::of(&error);
        match &error {
            queue::Error::Unknown { .. } => fault.code(MISSING).hint("`nugget status` lists the captures"),
            queue::Error::Newer { .. } => fault.hint("another version of nugget is in use: update this one"),
            queue::Error::Open { .. } | queue::Error::File { .. } => fault.hint(
                "check that the state folder is on a local disk with room and that you may write to it",
            ),
            _ => fault,
        }
    }
}

impl From<git::Error> for CliError {
    fn from(error: git::Error) -> Self {
        let fault = Self::of(&error);
        match error.hint() {
            Some(hint) => fault.hint(hint),
            None => fault,
        }
    }
}

impl From<github::Error> for CliError {
    fn from(error: github::Error) -> Self {
        let fault = Self::of(&error);
        let fault = match &error {
            github::Error::InvalidSlug { .. } | github::Error::InvalidApi { .. } => fault.code(USAGE),
            _ => fault,
        };
        match error.hint() {
            Some(hint) => fault.hint(hint),
            None => fault,
        }
    }
}

impl From<actors::StartError> for CliError {
    fn from(error: actors::StartError) -> Self {
        let fault = Self::of(&error);
        match &error {
            actors::StartError::Index(_) => {
                fault.hint("the index is derived: delete the brain's .nugget folder and try again")
            }
            _ => fault,
        }
    }
}

impl From<actors::AskError> for CliError {
    fn from(error: actors::AskError) -> Self {
        Self::of(&error).hint("try again with -v to see what the service is doing")
    }
}

impl From<llm::Error> for CliError {
    fn from(error: llm::Error) -> Self {
        Self::of(&error)
    }
}

impl From<embed::Error> for CliError {
    fn from(error: embed::Error) -> Self {
        let fault = Self::of(&error);
        match &error {
            embed::Error::NoKey { .. } | embed::Error::KeyRefused { .. } => {
                fault.code(USAGE).hint("`embed.provider = \"local\"` needs no key and sends nothing")
            }
            embed::Error::UnknownDimensions { .. } => {
                fault.code(USAGE).hint("the provider's manual tells it")
            }
            _ => fault,
        }
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> Self {
        Self::of(&error)
    }
}

impl From<serde_json::Error> for CliError {
    fn from(error: serde_json::Error) -> Self {
        Self::of(&error)
    }
}

/// All that is wrong with the settings, as one fault.
pub(crate) fn of_settings(errors: &[ConfigError]) -> CliError {
    let messages: Vec<String> = errors.iter().map(|error| CliError::of(error).message).collect();
    let fault = CliError::new(messages.join("; ")).code(USAGE);
    let nearest = errors.iter().find_map(|error| match error {
        ConfigError::Unknown { nearest, .. } => *nearest,
        _ => None,
    });
    match nearest {
        Some(nearest) => fault.hint(format!("did you mean `{nearest}`? `nugget config` lists all settings")),
        None => fault.hint("`nugget config` lists all settings"),
    }
}
