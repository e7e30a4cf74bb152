//! The embedder: a model with its tokenizer.

use std::sync::OnceLock;

use knowledge::Embedding;
use rayon::iter::{IntoParallelRefIterator as _, ParallelIterator as _};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::built_in::{BUILT_IN_DIMENSIONS, BUILT_IN_MODEL, BUILT_IN_NAME};
use crate::error::Error;
use crate::minilm::{self, MiniLm};
use crate::onnx_session::OnnxSession;
use crate::provider::{Purpose, RemoteClient};
use crate::runtime::{Runtime, find_runtime};
use crate::settings::{ModelChoice, OnnxModel, Settings};
use crate::token_vectors::Projection;
use crate::tokenizer::Tokenizer;
use crate::vector::normalized;

/// Computes the vectors of texts. Any number of threads may share one.
pub struct Embedder {
    name: String,
    dimensions: usize,
    tokenizer: Tokenizer,
    engine: Engine,
}

/// Each thread runs one text at a time: this is the fastest on a CPU, and a vector then depends on nothing but its text.
enum Engine {
    /// The built-in model, without a runtime.
    BuiltIn {
        model: MiniLm,
        projection: Projection,
        /// More than one thread for documents: not those that a question's search uses.
        threads: usize,
        pool: OnceLock<Option<ThreadPool>>,
    },
    /// A model in the ONNX Runtime.
    Onnx {
        session: OnnxSession,
        query_prefix: String,
        document_prefix: String,
    },
    Remote(RemoteClient),
    /// No model.
    Words,
}

/// The name of vectors of words alone, without a model.
const WORDS_NAME: &str = "words-1";
const WORDS_DIMENSIONS: usize = 384;

impl Embedder {
    /// Opens the model and its tokenizer (7 ms for the built-in ones, nearly all for the tokenizer). Nothing is sent to a
    /// provider yet.
    ///
    /// # Errors
    /// If a file of the user's own model is missing or invalid, or the model has unknown inputs or outputs; if the
    /// provider's key is missing. A runtime library that does not work is no error: it is skipped.
    pub fn load(settings: &Settings) -> Result<Self, Error> {
        Self::load_with(settings, || Tokenizer::load(settings))
    }

    /// The same with a tokenizer that was loaded with these settings elsewhere, so that a process holds one.
    ///
    /// # Errors
    /// As for [`Embedder::load`], and those of `tokenizer`.
    pub fn load_with(
        settings: &Settings,
        tokenizer: impl FnOnce() -> Result<Tokenizer, Error>,
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
        if settings.model == ModelChoice::Off {
            return Ok(Self {
                name: model_name(settings),
                dimensions: WORDS_DIMENSIONS,
                tokenizer: tokenizer()?,
                engine: Engine::Words,
            });
        }
        let ModelChoice::Onnx(own) = &settings.model else {
            return Ok(Self {
                name: model_name(settings),
                dimensions: BUILT_IN_DIMENSIONS,
                tokenizer: tokenizer()?,
                engine: Engine::BuiltIn {
                    model: MiniLm::read(BUILT_IN_MODEL)?,
                    projection: Projection::built_in(),
                    threads: settings.threads,
                    pool: OnceLock::new(),
                },
            });
        };
        let (tokenizer, session) = (tokenizer()?, OnnxSession::open(own, settings)?);
        let dimensions = session.run(&tokenizer.model_input("", "what does this model answer?")?)?.len();
        let (query_prefix, document_prefix) = (own.query_prefix.clone(), own.document_prefix.clone());
        let engine = Engine::Onnx { session, query_prefix, document_prefix };
        Ok(Self { name: model_name(settings), dimensions, tokenizer, engine })
    }

    /// The name with which the index labels the vectors: vectors of equal names are comparable.
    pub fn model_name(&self) -> &str {
        &self.name
    }

    /// The length of every vector.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// The vector of a part of a document, and by the built-in model those of its tokens. Text beyond the model's token
    /// limit is ignored.
    ///
    /// # Errors
    /// [`Error::Empty`] for a text without visible characters; otherwise if the model fails.
    pub fn embed_document(&self, text: &str) -> Result<Embedding, Error> {
        self.embed(text, Purpose::Document)
    }

    /// The vector of a query, and by the built-in model those of its tokens.
    ///
    /// # Errors
    /// As for [`Embedder::embed_document`]; [`Error::UnknownWords`] for one that the built-in model cannot read.
    pub fn embed_query(&self, text: &str) -> Result<Embedding, Error> {
        self.embed(text, Purpose::Query)
    }

    /// The vectors of several parts of documents, in their order. A provider gets them in few requests.
    ///
    /// # Errors
    /// The first error of [`Embedder::embed_document`].
    pub fn embed_documents(&self, texts: &[String]) -> Result<Vec<Embedding>, Error> {
        if let Some(pool) = self.pool().filter(|_| texts.len() > 1) {
            return pool.install(|| texts.par_iter().map(|text| self.embed_document(text)).collect());
        }
        match &self.engine {
            Engine::BuiltIn { .. } | Engine::Onnx { .. } | Engine::Words => {
                texts.iter().map(|text| self.embed_document(text)).collect()
            }
            Engine::Remote(remote) => {
                if texts.iter().any(|text| self.tokenizer.is_blank(text)) {
                    return Err(Error::Empty);
                }
                let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                let vectors = remote.embed(&texts, Purpose::Document)?;
                Ok(vectors.into_iter().map(Embedding::from).collect())
            }
        }
    }

    /// Takes the built-in model's weights out of memory until the next text, with the program's other constants: they are a
    /// third of what a server at rest has (24 of 79 MB).
    pub fn rest(&self) {
        if let Engine::BuiltIn { .. } = &self.engine {
            system::pages::release_constants(BUILT_IN_MODEL);
        }
    }

    /// The threads for documents, if there is more than one.
    fn pool(&self) -> Option<&ThreadPool> {
        let Engine::BuiltIn { threads: threads @ 2.., pool, .. } = &self.engine else { return None };
        pool.get_or_init(|| ThreadPoolBuilder::new().num_threads(*threads).build().ok()).as_ref()
    }

    /// What computes the vectors.
    pub fn runtime(&self) -> Runtime {
        match &self.engine {
            Engine::BuiltIn { .. } => Runtime::BuiltIn,
            Engine::Onnx { session, .. } => session.runtime(),
            Engine::Remote(remote) => Runtime::for_provider(remote.settings()),
            Engine::Words => Runtime::Off,
        }
    }

    /// The model's tokenizer; for a provider the built-in one.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    fn embed(&self, text: &str, purpose: Purpose) -> Result<Embedding, Error> {
        // Checked without the prefix, which is never blank.
        if self.tokenizer.is_blank(text) {
            return Err(Error::Empty);
        }
        let mut tokens = Vec::new();
        let vector = match (&self.engine, purpose) {
            (Engine::BuiltIn { model, projection, .. }, purpose) => {
                let input = self.tokenizer.model_input("", text)?;
                if purpose == Purpose::Query && self.tokenizer.is_mostly_unknown(&input) {
                    return Err(Error::UnknownWords);
                }
                let hidden = model.token_vectors(&input);
                tokens = projection.pack(&hidden);
                minilm::mean(&hidden)
            }
            (Engine::Onnx { session, query_prefix, .. }, Purpose::Query) => {
                session.run(&self.tokenizer.model_input(query_prefix, text)?)?
            }
            (Engine::Onnx { session, document_prefix, .. }, Purpose::Document) => {
                session.run(&self.tokenizer.model_input(document_prefix, text)?)?
            }
            (Engine::Words, _) => holographic::vector_of_words(text, WORDS_DIMENSIONS),
            (Engine::Remote(remote), purpose) => {
                return remote.embed(&[text], purpose)?.pop().map(Embedding::from).ok_or(Error::Empty);
            }
        };
        if vector.len() != self.dimensions {
            let what = format!("{} numbers, expected {}", vector.len(), self.dimensions);
            return Err(Error::Outputs { model: self.name.clone(), what });
        }
        let vector = normalized(vector).map_err(|what| Error::Outputs { model: self.name.clone(), what })?;
        Ok(Embedding { vector, tokens })
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
        ModelChoice::Off => WORDS_NAME.to_owned(),
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
        ModelChoice::Off => Ok(Some(WORDS_DIMENSIONS)),
        ModelChoice::Remote(remote) => remote.dimensions().map(Some),
    }
}

/// Checks these settings without loading the model or sending a request: that a provider has its key, and the user's own
/// model its runtime.
///
/// # Errors
/// [`Error::NoLibrary`], [`Error::NoKey`] or [`Error::UnknownDimensions`], and errors of reading the key.
pub fn check_settings(settings: &Settings) -> Result<(), Error> {
    match &settings.model {
        ModelChoice::Remote(remote) => remote.check(),
        ModelChoice::Onnx(own) => {
            for (what, path) in [("model", &own.path), ("tokenizer", &own.tokenizer)] {
                let failed = |source| Error::Read { what, path: path.clone(), source };
                std::fs::File::open(path).map_err(failed)?;
            }
            match find_runtime(settings).0 {
                Runtime::Missing => Err(Error::NoLibrary),
                _ => Ok(()),
            }
        }
        ModelChoice::BuiltIn | ModelChoice::Off => Ok(()),
    }
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

#[cfg(test)]
mod tests;
