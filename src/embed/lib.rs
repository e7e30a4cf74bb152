//! Text to vectors, by the model that is built into the binary, by an ONNX model of the user's own, or by a
//! provider's.
//!
//! The only crate that knows a model runtime. It never downloads anything: the built-in model is part of
//! the binary, and a model of the user's own is read from the disk. It sends texts to nobody but the provider
//! that the settings name.

mod onnx;
mod remote;
mod runtime;
mod session_pool;
mod token_table;
mod tokenizer;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use remote::{Provider, RemoteModel};
use remote::{Purpose, Remote};
pub use runtime::Runtime;
use session_pool::{Sessions, Urgency};
pub use token_table::TokenTable;
pub use tokenizer::Tokenizer;

/// The built-in model: all-MiniLM-L6-v2 with int8 weights and f32 arithmetic; see `weights/README.md`.
static BUILT_IN_MODEL: &[u8] = include_bytes!("weights/minilm-w8.onnx");
static BUILT_IN_TOKENIZER: &[u8] = include_bytes!("weights/tokenizer-256-nopad.json");
/// What its vectors are labelled with.
pub const BUILT_IN_NAME: &str = "all-MiniLM-L6-v2/w8";
/// How long the built-in model's vectors are.
pub const BUILT_IN_DIMENSIONS: usize = 384;

/// What `sessions_max` is when nobody says.
pub const SESSIONS_MAX_DEFAULT: usize = 2;

/// Turns texts into vectors. Any number of threads may share it.
pub struct Embedder {
    name: String,
    dimensions: usize,
    tokenizer: Tokenizer,
    engine: Engine,
}

enum Engine {
    /// One text at a time, because that is the fastest per text on a CPU, and because a vector then depends
    /// on nothing but its text.
    Local {
        sessions: Sessions,
        query_prefix: String,
        document_prefix: String,
    },
    Remote(Remote),
}

/// Which model, by which runtime, and how many copies of it at most.
#[derive(Clone, Debug)]
pub struct Settings {
    pub model: ModelChoice,
    /// The ONNX Runtime library (1.24 or later), or the folder it lies in. Without it, `ORT_DYLIB_PATH`, the
    /// folder of the executable and `runtime_folder` are looked at; when there is none, the built-in runtime
    /// serves.
    pub runtime_library: Option<PathBuf>,
    /// Where libraries are put that were fetched.
    pub runtime_folder: Option<PathBuf>,
    /// Whether to be there soon rather than to run fast: for a process that embeds one question.
    pub for_one_question: bool,
    /// How many sessions may be open at once: each holds the model's weights (some 60 MB) and runs one text
    /// at a time on one thread. 0 counts as 1.
    pub sessions_max: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ModelChoice {
    #[default]
    BuiltIn,
    Onnx(OnnxModel),
    Remote(RemoteModel),
}

/// An encoder of the user's own as ONNX, with inputs `input_ids`, optionally `attention_mask` and
/// `token_type_ids` (int64 `[1, tokens]`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnnxModel {
    pub path: PathBuf,
    /// The model's `tokenizer.json`.
    pub tokenizer: PathBuf,
    pub pooling: Pooling,
    /// Put before every query, `"query: "` for one.
    pub query_prefix: String,
    /// Put before every document.
    pub document_prefix: String,
    /// Longer texts are cut here, special tokens included. `None`: what the tokenizer's file says, or else 512.
    pub tokens_max: Option<usize>,
    /// What the index calls the model. `None`: the file's name without its extension.
    pub name: Option<String>,
}

/// How the vectors of the tokens become the vector of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pooling {
    /// The mean over all tokens.
    #[default]
    Mean,
    /// The vector of the first token.
    Cls,
    /// The model does it itself: its output `sentence_embedding` is taken.
    None,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            model: ModelChoice::BuiltIn,
            runtime_library: None,
            runtime_folder: None,
            for_one_question: false,
            sessions_max: SESSIONS_MAX_DEFAULT,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is nothing to embed: the text has no words")]
    Empty,
    #[error("failed to read the {what} {}", path.display())]
    Read { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{} is not a tokenizer (tokenizer.json)", path.display())]
    NotATokenizer { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{model} is not a model that {runtime} can load")]
    NotAModel { model: String, runtime: String, source: ort::Error },
    #[error("{model} cannot be fed: {what}")]
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
    #[error("{provider} refuses the key: check {} or `embed.key_file`", provider.key_variable())]
    KeyRefused { provider: Provider, source: llm::Error },
    #[error("how long the vectors of {model} are is not known: set `embed.dimensions`")]
    UnknownDimensions { model: String },
    #[error("{provider} at {url} gives no vectors")]
    Provider { provider: Provider, url: String, source: llm::Error },
}

impl Error {
    /// Whether the same may well succeed later, without anybody doing anything.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Provider { source, .. } => source.is_temporary(),
            _ => false,
        }
    }

    /// When the provider wants to be asked again, if it said so.
    pub fn after(&self) -> Option<Duration> {
        match self {
            Self::Provider { source, .. } if self.is_temporary() => source.after(),
            _ => None,
        }
    }
}

impl Embedder {
    /// Opens the model, its tokenizer and the runtime (0.1 to 0.3 s for the built-in model). The runtime is
    /// chosen once for a process, by the first to get here. A provider is asked for nothing yet.
    ///
    /// # Errors
    /// When a file of a model of the user's own is missing or is not what it should be, or wants inputs or
    /// gives outputs that are not known here; when the key of a provider is missing. Not for a runtime
    /// library that does not work: it is passed over.
    pub fn load(settings: &Settings) -> Result<Self, Error> {
        Self::load_with(settings, || Tokenizer::load(settings))
    }

    /// The same with a tokenizer of these settings from elsewhere, so that a process holds it once. It is asked
    /// for while the model is opened.
    ///
    /// # Errors
    /// Those of [`Embedder::load`].
    pub fn load_with(
        settings: &Settings,
        tokenizer: impl FnOnce() -> Result<Tokenizer, Error> + Send,
    ) -> Result<Self, Error> {
        if let ModelChoice::Remote(remote) = &settings.model {
            let remote = Remote::open(remote)?;
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
            let sessions = Sessions::open(settings);
            (tokenizer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), sessions)
        });
        let (tokenizer, sessions) = (tokenizer?, sessions?);
        tracing::info!(ms = begun.elapsed().as_millis() as u64, runtime = %sessions.runtime(), "loaded the model");
        let mut dimensions = BUILT_IN_DIMENSIONS;
        let (mut query_prefix, mut document_prefix) = (String::new(), String::new());
        if let ModelChoice::Onnx(own) = &settings.model {
            let probe = tokenizer.model_input("", "what does this model answer?")?;
            dimensions = sessions.run(&probe, Urgency::Now)?.len();
            query_prefix.clone_from(&own.query_prefix);
            document_prefix.clone_from(&own.document_prefix);
        }
        let engine = Engine::Local { sessions, query_prefix, document_prefix };
        Ok(Self { name: model_name(settings), dimensions, tokenizer, engine })
    }

    /// Frees the model's weights (some 45 MB); the next text loads them again, in 0.1 to 0.2 s. For a process that
    /// has been idle for minutes. The tokenizer stays, and a provider holds nothing.
    pub fn unload(&self) {
        if let Engine::Local { sessions, .. } = &self.engine {
            sessions.close_free();
        }
    }

    /// What the index labels its vectors with: equal names give comparable vectors.
    pub fn model_name(&self) -> &str {
        &self.name
    }

    /// How long every vector is.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// The vector of a piece of a document: `[dimensions] f32`, L2-normalised. What goes beyond the model's
    /// limit of tokens is not seen. Waits while a query needs the session.
    ///
    /// # Errors
    /// [`Error::Empty`] for a text without anything to read; otherwise when the model fails.
    pub fn embed_document(&self, text: &str) -> Result<Vec<f32>, Error> {
        self.embed(text, Purpose::Document)
    }

    /// The vector of a query: `[dimensions] f32`, L2-normalised. Goes before documents that wait.
    ///
    /// # Errors
    /// As for [`Embedder::embed_document`].
    pub fn embed_query(&self, text: &str) -> Result<Vec<f32>, Error> {
        self.embed(text, Purpose::Query)
    }

    /// The vectors of several pieces of documents, in their order. A provider gets them in few requests.
    ///
    /// # Errors
    /// As for [`Embedder::embed_document`], of the first that fails.
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

    /// Who does the work.
    pub fn runtime(&self) -> Runtime {
        match &self.engine {
            Engine::Local { sessions, .. } => sessions.runtime(),
            Engine::Remote(remote) => Runtime::of_provider(remote.settings()),
        }
    }

    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    fn embed(&self, text: &str, purpose: Purpose) -> Result<Vec<f32>, Error> {
        // Looked at before the prefix is put on, which would make a text of nothing.
        if self.tokenizer.is_blank(text) {
            return Err(Error::Empty);
        }
        let (sessions, prefix, urgency) = match (&self.engine, purpose) {
            (Engine::Local { sessions, query_prefix, .. }, Purpose::Query) => {
                (sessions, query_prefix, Urgency::Now)
            }
            (Engine::Local { sessions, document_prefix, .. }, Purpose::Document) => {
                (sessions, document_prefix, Urgency::Later)
            }
            (Engine::Remote(remote), purpose) => {
                return remote.embed(&[text], purpose)?.pop().ok_or(Error::Empty);
            }
        };
        let input = self.tokenizer.model_input(prefix, text)?;
        let vector = sessions.run(&input, urgency)?;
        if vector.len() != self.dimensions {
            let what = format!("{} numbers where {} were expected", vector.len(), self.dimensions);
            return Err(Error::Outputs { model: self.name.clone(), what });
        }
        normalized(vector).map_err(|what| Error::Outputs { model: self.name.clone(), what })
    }
}

/// What the index labels the vectors of these settings with, without loading the model. For a model of the
/// user's own it holds a digest of all that changes its vectors: `file-stem@1a2b3c4d`.
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

/// How long the vectors of these settings are, as far as that is known without loading the model: not for a
/// model of the user's own.
///
/// # Errors
/// When the length of a provider's vectors is neither known nor set.
pub fn known_dimensions(settings: &Settings) -> Result<Option<usize>, Error> {
    match &settings.model {
        ModelChoice::BuiltIn => Ok(Some(BUILT_IN_DIMENSIONS)),
        ModelChoice::Onnx(_) => Ok(None),
        ModelChoice::Remote(remote) => remote.dimensions().map(Some),
    }
}

/// Whether these settings can work, as far as that is known without asking anybody: a provider's key is there.
///
/// # Errors
/// What is missing.
pub fn check(settings: &Settings) -> Result<(), Error> {
    match &settings.model {
        ModelChoice::Remote(remote) => remote.check(),
        ModelChoice::BuiltIn | ModelChoice::Onnx(_) => Ok(()),
    }
}

/// What would do the work under these settings, with the ONNX Runtime libraries that were found and would not
/// be taken, each with the reason. Nothing is started.
pub fn runtime_of(settings: &Settings) -> (Runtime, Vec<String>) {
    match &settings.model {
        ModelChoice::Remote(remote) => (Runtime::of_provider(remote), Vec::new()),
        _ => runtime::find(settings),
    }
}

/// The minor version of the ONNX Runtime library at this path, if it is one that would be taken.
pub fn probe(library: &Path) -> Option<u32> {
    runtime::probe(library).ok()
}

/// Eight hexadecimal digits over what changes the vectors. The model's file is sampled, not read whole: it
/// may be of gigabytes, and training or quantising it anew changes it everywhere.
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

/// Scales to length 1; a vector that has no direction is refused, since its distances would mean nothing.
fn normalized(mut vector: Vec<f32>) -> Result<Vec<f32>, String> {
    let norm = vector.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
    if !norm.is_finite() {
        return Err("it holds numbers that are not finite".to_owned());
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
