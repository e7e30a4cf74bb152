//! Errors of loading and running a model.

use std::path::PathBuf;
use std::time::Duration;

use crate::settings::Provider;

/// Why there is no model or no vector.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the variants and their fields are")]
pub enum Error {
    #[error("there is nothing to embed: the text has no words")]
    Empty,
    #[error("the model knows hardly any of these words")]
    UnknownWords,
    #[error("failed to read the {what} {}", path.display())]
    Read { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{} is not a tokenizer (tokenizer.json)", path.display())]
    NotATokenizer { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{model} is not a model that {runtime} can load")]
    NotAModel { model: String, runtime: String, source: ort::Error },
    #[error("{model} has unsupported inputs: {what}")]
    Inputs { model: String, what: String },
    #[error("{model} gives no usable vector: {what}")]
    Outputs { model: String, what: String },
    #[error(
        "a model of your own needs the ONNX Runtime library, and none was found: run `nugget runtime install`"
    )]
    NoLibrary,
    #[error("the built-in model is damaged")]
    Damaged,
    #[error("failed to tokenize a text of {bytes} bytes")]
    Tokenize { bytes: usize, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("failed to run {model}")]
    Run { model: String, source: ort::Error },
    #[error("no model runtime could be started: {0}")]
    Runtime(String),
    #[error("there is no key for {provider}: set {} or `embed.key_file`", provider.key_variable())]
    NoKey { provider: Provider },
    #[error("{provider} refused the key: check {} or `embed.key_file`", provider.key_variable())]
    KeyRefused { provider: Provider, source: llm::Error },
    #[error("the vector length of {model} is not known: set `embed.dimensions`")]
    UnknownDimensions { model: String },
    #[error("{provider} at {url} gave no vectors")]
    Provider { provider: Provider, url: String, source: llm::Error },
}

impl Error {
    /// Whether the same call may succeed later without any change.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Provider { source, .. } => source.is_temporary(),
            _ => false,
        }
    }

    /// Whether a provider may have refused the request for one of its texts, as one that is too long for its model.
    pub(crate) fn is_refused_text(&self) -> bool {
        matches!(self, Self::Provider { source: llm::Error::Status { status: 400 | 413 | 422, .. }, .. })
    }

    /// How long the provider wants to be left alone, if it said so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Provider { source, .. } if self.is_temporary() => source.retry_after(),
            _ => None,
        }
    }
}
