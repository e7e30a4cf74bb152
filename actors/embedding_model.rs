//! The embedding model that the actors of a process share.

use std::path::Path;
use std::sync::Arc;

use embed::{Embedder, ModelChoice, Settings, Tokenizer};
use index::ModelLabel;
use knowledge::Embedding;
use once_cell::sync::OnceCell;

/// The most texts of each thread in one request: few, so that the time between two requests is short.
const BATCH_MAX: usize = 8;

/// The embedding model of the settings, loaded when it is first needed and kept across restarts of actors.
#[derive(Clone)]
pub(crate) struct EmbeddingModel {
    settings: Settings,
    tokenizer: Arc<OnceCell<Tokenizer>>,
    built_in_tokenizer: Arc<OnceCell<Tokenizer>>,
    embedder: Arc<OnceCell<Embedder>>,
    /// The built-in model, if the settings name another one and the index still has vectors of this one.
    built_in: Arc<OnceCell<Embedder>>,
    pub(crate) cache: Arc<Path>,
    #[cfg(test)]
    pub(crate) fake: Option<crate::testing::FakeModel>,
}

impl EmbeddingModel {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            tokenizer: Arc::default(),
            built_in_tokenizer: Arc::default(),
            embedder: Arc::default(),
            built_in: Arc::default(),
            cache: brain::paths::vector_cache().into(),
            #[cfg(test)]
            fake: None,
        }
    }

    /// The file that keeps computed vectors, for all brains.
    pub(crate) fn cache(&self) -> &Path {
        &self.cache
    }

    /// The name in the label of this model's vectors: that of the loaded one, whose files may have changed since, or what
    /// the settings and files say before it is loaded.
    pub(crate) fn name(&self) -> String {
        let loaded = self.embedder.get().map(|embedder| embedder.model_name().to_owned());
        loaded.unwrap_or_else(|| embed::model_name(&self.settings))
    }

    /// The label of this model's vectors. Only an ONNX model of the user's must be loaded for it.
    pub(crate) fn label(&self) -> Result<ModelLabel, embed::Error> {
        Ok(match embed::known_dimensions(&self.settings)? {
            Some(dimensions) => ModelLabel { name: self.name(), dimensions },
            None => {
                let embedder = self.embedder()?;
                ModelLabel { name: embedder.model_name().to_owned(), dimensions: embedder.dimensions() }
            }
        })
    }

    /// The most passages in one request.
    pub(crate) fn batch_max(&self) -> usize {
        match &self.settings.model {
            ModelChoice::Remote(remote) => remote.texts_max(),
            ModelChoice::BuiltIn => BATCH_MAX * self.settings.threads.max(1),
            ModelChoice::Onnx(_) | ModelChoice::Off => BATCH_MAX,
        }
    }

    /// Whether messages and memories are embedded: only by a model in this process, as they do not leave this machine.
    pub(crate) fn embeds_archive(&self) -> bool {
        !matches!(self.settings.model, ModelChoice::Remote(_) | ModelChoice::Off)
    }

    /// Whether questions are to be compared by meaning: not if the settings want no model.
    pub(crate) fn has_meaning(&self) -> bool {
        self.settings.model != ModelChoice::Off
    }

    /// Whether questions can be embedded by the model of this name: that of the settings, or the built-in
    /// one, which is always available.
    pub(crate) fn supports(&self, name: &str) -> bool {
        name == embed::BUILT_IN_NAME || name == self.name()
    }

    /// The tokenizer, which is a small part of the model.
    pub(crate) fn tokenizer(&self) -> Result<&Tokenizer, embed::Error> {
        self.tokenizer.get_or_try_init(|| Tokenizer::load(&self.settings))
    }

    /// What counts the tokens of an answer: the model's tokenizer, or the built-in one where that cannot be loaded. An index
    /// of another model can be searched then, or by words.
    pub(crate) fn counter(&self) -> Result<&Tokenizer, embed::Error> {
        let built_in = || Settings { model: ModelChoice::BuiltIn, ..self.settings.clone() };
        self.tokenizer().or_else(|_| self.built_in_tokenizer.get_or_try_init(|| Tokenizer::load(&built_in())))
    }

    /// The model. Blocks while it is loaded for the first time.
    pub(crate) fn embedder(&self) -> Result<&Embedder, embed::Error> {
        self.load_once(&self.embedder, &self.settings)
    }

    fn load_once<'m>(
        &self,
        slot: &'m OnceCell<Embedder>,
        settings: &Settings,
    ) -> Result<&'m Embedder, embed::Error> {
        slot.get_or_try_init(|| match settings.model == self.settings.model {
            true => Embedder::load_with(settings, || self.tokenizer().cloned()),
            false => Embedder::load(settings),
        })
    }

    /// The vector of a question by the model of this name; [`supports`](Self::supports) says which there are.
    pub(crate) fn embed_query(&self, text: &str, name: &str) -> Result<Embedding, embed::Error> {
        #[cfg(test)]
        if let Some(fake) = &self.fake {
            return fake(text).map(Embedding::from);
        }
        let embedder = match name {
            embed::BUILT_IN_NAME if self.settings.model != ModelChoice::BuiltIn => {
                let settings = Settings { model: ModelChoice::BuiltIn, ..self.settings.clone() };
                self.load_once(&self.built_in, &settings)?
            }
            _ => self.embedder()?,
        };
        embedder.embed_query(text)
    }

    /// Gives back memory that the next text needs again.
    pub(crate) fn rest(&self) {
        self.embedder.get().into_iter().chain(self.built_in.get()).for_each(Embedder::rest);
    }

    pub(crate) fn embed_documents(&self, texts: &[String]) -> Result<Vec<Embedding>, embed::Error> {
        #[cfg(test)]
        if let Some(fake) = &self.fake {
            return texts.iter().map(|text| fake(text).map(Embedding::from)).collect();
        }
        self.embedder()?.embed_documents(texts)
    }
}
