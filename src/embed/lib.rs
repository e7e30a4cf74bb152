//! Text embeddings, by the model in the binary, by the user's own ONNX model, or by a provider.
//!
//! This is the only crate that knows a model runtime. It never downloads anything: the built-in model is part of the
//! binary, and the user's own model is read from the disk. Texts are sent to no one but the provider that the settings
//! name.
//!
//! ```
//! use embed::{Embedder, Settings};
//!
//! let embedder = Embedder::load(&Settings::default()).unwrap();
//! let [pool, threads, cats] = ["Limit the number of workers", "Bound how many threads run at once", "A cat sleeps"]
//!     .map(|text| embedder.embed_document(text).unwrap());
//! let cosine = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f32>();
//! assert_eq!(pool.len(), 384);
//! assert!(cosine(&pool, &threads) > cosine(&pool, &cats));
//! ```
#![warn(missing_docs, clippy::missing_errors_doc)]

mod onnx;
mod provider;
mod runtime;
mod session_pool;
mod token_table;
mod tokenizer;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use provider::{Provider, RemoteModel};
use provider::{Purpose, RemoteClient};
pub use runtime::Runtime;
use session_pool::{Priority, SessionPool};
pub use token_table::TokenTable;
pub use tokenizer::Tokenizer;

/// The built-in model: all-MiniLM-L6-v2 with int8 weights and f32 arithmetic; see `weights/README.md`.
static BUILT_IN_MODEL: &[u8] = include_bytes!("weights/minilm-w8.onnx");
static BUILT_IN_TOKENIZER: &[u8] = include_bytes!("weights/tokenizer-256-nopad.json");
/// The name of the built-in model, with which its vectors are labelled.
pub const BUILT_IN_NAME: &str = "all-MiniLM-L6-v2/w8";
/// The length of the built-in model's vectors.
pub const BUILT_IN_DIMENSIONS: usize = 384;

/// The default of [`Settings::sessions_max`].
pub const SESSIONS_MAX_DEFAULT: usize = 2;

/// Computes the vectors of texts. Any number of threads may share one.
pub struct Embedder {
    name: String,
    dimensions: usize,
    tokenizer: Tokenizer,
    engine: Engine,
}

enum Engine {
    /// Runs one text at a time: this is the fastest on a CPU, and a vector then depends on nothing but its text.
    Local {
        sessions: SessionPool,
        query_prefix: String,
        document_prefix: String,
    },
    Remote(RemoteClient),
}

/// The model, its runtime, and the limit of its copies.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The model.
    pub model: ModelChoice,
    /// The ONNX Runtime library (1.24 or later), or its folder. Without it, `ORT_DYLIB_PATH`, the folder of the
    /// executable and `runtime_folder` are searched; if none has a library, the built-in runtime is used.
    pub runtime_library: Option<PathBuf>,
    /// The folder of downloaded libraries.
    pub runtime_folder: Option<PathBuf>,
    /// Whether to load fast rather than to run fast: for a process that embeds one question.
    pub fast_start: bool,
    /// The limit of open sessions; at least 1. Each holds the model's weights (about 60 MB) and runs one text at a time
    /// on one thread.
    pub sessions_max: usize,
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

impl Default for Settings {
    fn default() -> Self {
        Self {
            model: ModelChoice::BuiltIn,
            runtime_library: None,
            runtime_folder: None,
            fast_start: false,
            sessions_max: SESSIONS_MAX_DEFAULT,
        }
    }
}

/// Why there is no model or no vector.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the variants and their fields are")]
pub enum Error {
    #[error("there is nothing to embed: the text has no words")]
    Empty,
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

    /// How long the provider wants to be left alone, if it said so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Provider { source, .. } if self.is_temporary() => source.retry_after(),
            _ => None,
        }
    }
}

impl Embedder {
    /// Opens the model, its tokenizer and the runtime (0.1 to 0.3 s for the built-in model). The first call of a process
    /// chooses the runtime. Nothing is sent to a provider yet.
    ///
    /// # Errors
    /// If a file of the user's own model is missing or invalid, or the model has unknown inputs or outputs; if the
    /// provider's key is missing. A runtime library that does not work is no error: it is skipped.
    pub fn load(settings: &Settings) -> Result<Self, Error> {
        Self::load_with(settings, || Tokenizer::load(settings))
    }

    /// The same with a tokenizer that was loaded with these settings elsewhere, so that a process holds one. It is called
    /// for while the model loads.
    ///
    /// # Errors
    /// As for [`Embedder::load`], and those of `tokenizer`.
    pub fn load_with(
        settings: &Settings,
        tokenizer: impl FnOnce() -> Result<Tokenizer, Error> + Send,
    ) -> Result<Self, Error> {
        if let ModelChoice::Remote(remote) = &settings.model {
            let remote = RemoteClient::open(remote)?;
            return Ok(Self {
                name: model_name(settings),
                dimensions: remote.dimensions(),
                tokenizer: tokenizer()?,
                engine: Engine::Remote(remote),
            });
        }
        let begun = Instant::now();
        let (tokenizer, sessions) = std::thread::scope(|scope| {
            let tokenizer = scope.spawn(tokenizer);
            let sessions = SessionPool::open(settings);
            (tokenizer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), sessions)
        });
        let (tokenizer, sessions) = (tokenizer?, sessions?);
        tracing::info!(ms = begun.elapsed().as_millis() as u64, runtime = %sessions.runtime(), "loaded the model");
        let mut dimensions = BUILT_IN_DIMENSIONS;
        let (mut query_prefix, mut document_prefix) = (String::new(), String::new());
        if let ModelChoice::Onnx(own) = &settings.model {
            let probe = tokenizer.model_input("", "what does this model answer?")?;
            dimensions = sessions.run(&probe, Priority::Query)?.len();
            query_prefix.clone_from(&own.query_prefix);
            document_prefix.clone_from(&own.document_prefix);
        }
        let engine = Engine::Local { sessions, query_prefix, document_prefix };
        Ok(Self { name: model_name(settings), dimensions, tokenizer, engine })
    }

    /// Frees the model's weights (about 45 MB); the next text loads them again, in 0.1 to 0.2 s. For a process that has
    /// been idle for minutes. The tokenizer stays loaded.
    pub fn unload(&self) {
        if let Engine::Local { sessions, .. } = &self.engine {
            sessions.close_free();
        }
    }

    /// The name with which the index labels the vectors: vectors of equal names are comparable.
    pub fn model_name(&self) -> &str {
        &self.name
    }

    /// The length of every vector.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// The vector of a part of a document: `[dimensions] f32`, L2-normalised. Text beyond the model's token limit is
    /// ignored. Waits while a query needs the session.
    ///
    /// # Errors
    /// [`Error::Empty`] for a text without visible characters; otherwise if the model fails.
    pub fn embed_document(&self, text: &str) -> Result<Vec<f32>, Error> {
        self.embed(text, Purpose::Document)
    }

    /// The vector of a query: `[dimensions] f32`, L2-normalised. It is computed before waiting documents.
    ///
    /// # Errors
    /// As for [`Embedder::embed_document`].
    pub fn embed_query(&self, text: &str) -> Result<Vec<f32>, Error> {
        self.embed(text, Purpose::Query)
    }

    /// The vectors of several parts of documents, in their order. A provider gets them in few requests.
    ///
    /// # Errors
    /// The first error of [`Embedder::embed_document`].
    pub fn embed_documents(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, Error> {
        match &self.engine {
            Engine::Local { .. } => texts.iter().map(|text| self.embed_document(text)).collect(),
            Engine::Remote(remote) => {
                if texts.iter().any(|text| self.tokenizer.is_blank(text)) {
                    return Err(Error::Empty);
                }
                let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                remote.embed(&texts, Purpose::Document)
            }
        }
    }

    /// What computes the vectors.
    pub fn runtime(&self) -> Runtime {
        match &self.engine {
            Engine::Local { sessions, .. } => sessions.runtime(),
            Engine::Remote(remote) => Runtime::for_provider(remote.settings()),
        }
    }

    /// The model's tokenizer; for a provider the built-in one.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    fn embed(&self, text: &str, purpose: Purpose) -> Result<Vec<f32>, Error> {
        // Checked without the prefix, which is never blank.
        if self.tokenizer.is_blank(text) {
            return Err(Error::Empty);
        }
        let (sessions, prefix, priority) = match (&self.engine, purpose) {
            (Engine::Local { sessions, query_prefix, .. }, Purpose::Query) => {
                (sessions, query_prefix, Priority::Query)
            }
            (Engine::Local { sessions, document_prefix, .. }, Purpose::Document) => {
                (sessions, document_prefix, Priority::Document)
            }
            (Engine::Remote(remote), purpose) => {
                return remote.embed(&[text], purpose)?.pop().ok_or(Error::Empty);
            }
        };
        let input = self.tokenizer.model_input(prefix, text)?;
        let vector = sessions.run(&input, priority)?;
        if vector.len() != self.dimensions {
            let what = format!("{} numbers, expected {}", vector.len(), self.dimensions);
            return Err(Error::Outputs { model: self.name.clone(), what });
        }
        normalized(vector).map_err(|what| Error::Outputs { model: self.name.clone(), what })
    }
}

/// The name with which the index labels the vectors of these settings; the model is not loaded. For the user's own model
/// it has a digest of all that changes the vectors: `file-stem@1a2b3c4d`.
pub fn model_name(settings: &Settings) -> String {
    match &settings.model {
        ModelChoice::BuiltIn => BUILT_IN_NAME.to_owned(),
        ModelChoice::Onnx(own) => {
            let stem = own.path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
            let name = own.name.clone().or(stem).unwrap_or_else(|| "model".to_owned());
            let digest = own_digest(own).unwrap_or_else(|_| "unreadable".to_owned());
            format!("{name}@{digest}")
        }
        ModelChoice::Remote(remote) => remote.name(),
    }
}

/// The length of the vectors of these settings, or `None` if the model has to be loaded to know it.
///
/// # Errors
/// [`Error::UnknownDimensions`] if the length of a provider's vectors is neither known nor set.
pub fn known_dimensions(settings: &Settings) -> Result<Option<usize>, Error> {
    match &settings.model {
        ModelChoice::BuiltIn => Ok(Some(BUILT_IN_DIMENSIONS)),
        ModelChoice::Onnx(_) => Ok(None),
        ModelChoice::Remote(remote) => remote.dimensions().map(Some),
    }
}

/// Checks these settings without loading the model or sending a request: that a provider has its key.
///
/// # Errors
/// [`Error::NoKey`] or [`Error::UnknownDimensions`], and errors of reading the key.
pub fn check_settings(settings: &Settings) -> Result<(), Error> {
    match &settings.model {
        ModelChoice::Remote(remote) => remote.check(),
        ModelChoice::BuiltIn | ModelChoice::Onnx(_) => Ok(()),
    }
}

/// The runtime that these settings choose, and the ONNX Runtime libraries that were skipped, each with the reason.
/// Nothing is started.
pub fn find_runtime(settings: &Settings) -> (Runtime, Vec<String>) {
    match &settings.model {
        ModelChoice::Remote(remote) => (Runtime::for_provider(remote), Vec::new()),
        _ => runtime::find(settings),
    }
}

/// The minor version of the ONNX Runtime library at this path, if it is usable.
pub fn probe(library: &Path) -> Option<u32> {
    runtime::probe(library).ok()
}

/// Eight hexadecimal digits over all that changes the vectors. The model's file is sampled, for it may have gigabytes;
/// training or quantising it again changes it everywhere.
fn own_digest(own: &OnnxModel) -> std::io::Result<String> {
    const WINDOWS: u64 = 16;
    const WINDOW_BYTES: u64 = 64 << 10;
    let mut hasher = blake3::Hasher::new();
    for path in [&own.path, &own.tokenizer] {
        let mut file = std::fs::File::open(path)?;
        let size = file.metadata()?.len();
        hasher.update(&size.to_le_bytes());
        let last = size.saturating_sub(WINDOW_BYTES);
        for window in 0..WINDOWS {
            let start = u128::from(last) * u128::from(window) / u128::from(WINDOWS - 1);
            std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(start as u64))?;
            let mut bytes = Vec::with_capacity(WINDOW_BYTES as usize);
            std::io::Read::read_to_end(&mut std::io::Read::take(&mut file, WINDOW_BYTES), &mut bytes)?;
            hasher.update(&bytes);
        }
    }
    let shape = (own.pooling, &own.query_prefix, &own.document_prefix, own.tokens_max);
    hasher.update(format!("{shape:?}").as_bytes());
    Ok(hasher.finalize().to_hex()[..8].to_owned())
}

/// Scales to length 1. A vector without a direction is an error, since its distances would mean nothing.
fn normalized(mut vector: Vec<f32>) -> Result<Vec<f32>, String> {
    let norm = vector.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
    if !norm.is_finite() {
        return Err("it has numbers that are not finite".to_owned());
    }
    if norm < 1e-12 {
        return Err("it is zero".to_owned());
    }
    for x in &mut vector {
        *x = (f64::from(*x) / norm) as f32;
    }
    Ok(vector)
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::Read { what, path: path.to_owned(), source })
}

#[cfg(test)]
mod tests;
