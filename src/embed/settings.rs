//! Settings: which model, where it is, and how it is run.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The model and its runtime.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The model.
    pub model: ModelChoice,
    /// The ONNX Runtime library (1.24 or later), or its folder. Without it, `ORT_DYLIB_PATH`, the folder of the
    /// executable and `runtime_folder` are searched. Only an ONNX model of the user's needs one.
    pub runtime_library: Option<PathBuf>,
    /// The folder of downloaded libraries.
    pub runtime_folder: Option<PathBuf>,
    /// How many parts of documents the built-in model reads at the same time, each on a thread of its own; 0 is as 1.
    /// Questions do not wait for them.
    pub threads: usize,
}

/// A model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ModelChoice {
    /// The model in the binary.
    #[default]
    BuiltIn,
    /// The user's own model.
    Onnx(OnnxModel),
    /// A provider's model.
    Remote(RemoteModel),
    /// None: a text's vector has its words alone. It finds near copies and no paraphrases, so questions have none.
    Off,
}

/// The user's own encoder as an ONNX file, with the inputs `input_ids` and optionally `attention_mask` and
/// `token_type_ids` (int64 `[1, tokens]`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnnxModel {
    /// The model's file.
    pub path: PathBuf,
    /// The model's `tokenizer.json`.
    pub tokenizer: PathBuf,
    /// How token vectors become the vector of the text.
    pub pooling: Pooling,
    /// Put before every query, for example `"query: "`.
    pub query_prefix: String,
    /// Put before every document.
    pub document_prefix: String,
    /// Longer texts are cut to this number of tokens, including special tokens. `None`: the limit in the tokenizer's
    /// file, or else 512.
    pub tokens_max: Option<usize>,
    /// The model's name in the index. `None`: the file name without its extension.
    pub name: Option<String>,
}

/// How token vectors become the vector of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pooling {
    /// The mean over all tokens.
    #[default]
    Mean,
    /// The vector of the first token.
    Cls,
    /// The model pools by itself: its output `sentence_embedding` is used.
    None,
}

/// A protocol for embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// OpenAI's.
    OpenAi,
    /// Voyage AI's.
    Voyage,
}

impl Provider {
    /// The base address of the provider's own service.
    pub fn url(self) -> &'static str {
        match self {
            Self::OpenAi => "https://api.openai.com/v1",
            Self::Voyage => "https://api.voyageai.com/v1",
        }
    }

    /// The environment variable with the key.
    pub fn key_variable(self) -> &'static str {
        match self {
            Self::OpenAi => "OPENAI_API_KEY",
            Self::Voyage => "VOYAGE_API_KEY",
        }
    }

    /// The default model.
    pub fn model(self) -> &'static str {
        match self {
            Self::OpenAi => "text-embedding-3-small",
            Self::Voyage => "voyage-3.5",
        }
    }

    /// The prefix of names of models.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Voyage => "voyage",
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenAi => "OpenAI",
            Self::Voyage => "Voyage",
        })
    }
}

/// A model at a provider. It has no key, only the place of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteModel {
    /// The protocol.
    pub provider: Provider,
    /// The model's name.
    pub model: String,
    /// The address without `/embeddings`: the provider's, or that of a compatible server.
    pub url: String,
    /// A file with the key; `None` for the provider's environment variable. A compatible server may need no key.
    pub key_file: Option<PathBuf>,
    /// The length of the vectors; `None` for the model's own length, which must then be known here.
    pub dimensions: Option<usize>,
    /// Put before every query.
    pub query_prefix: String,
    /// Put before every document.
    pub document_prefix: String,
    /// The time for one request with its retries.
    pub deadline: Duration,
}
