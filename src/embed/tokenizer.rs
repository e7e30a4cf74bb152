//! Text to the token ids of the model, and how many they are.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use ahash::AHashMap;
use knowledge::CountTokens;
use tokenizers::{PostProcessor, Tokenizer as Inner, TruncationDirection};

use crate::{BUILT_IN_TOKENIZER, Error, ModelChoice, Settings, TokenTable, read};

/// The tokenizer of the model. Cheap to clone; loading it does not load the model.
#[derive(Clone)]
pub struct Tokenizer {
    shared: Arc<Shared>,
}

struct Shared {
    inner: Inner,
    tokens_max: usize,
    words: RwLock<AHashMap<String, Arc<[u32]>>>,
    table: OnceLock<Option<TokenTable>>,
    model: ModelChoice,
}

/// When the tokenizer's file does not say where it cuts.
const TOKENS_MAX_DEFAULT: usize = 512;
/// A token of natural text or code has 3 to 6 bytes. What lies beyond 64 for each token the model takes is
/// not even looked at, so that a text of megabytes costs no more than one of a page.
const BYTES_PER_TOKEN_MAX: usize = 64;
/// The words whose tokens are remembered: more than a brain's usual vocabulary, at most some 5 MB.
const WORDS_KEPT_MAX: usize = 50_000;
/// Longer words are not words: identifiers and hashes, tokenized anew each time.
const WORD_BYTES_KEPT_MAX: usize = 32;

impl Tokenizer {
    /// Reads the tokenizer that goes with the model (15 ms for the built-in one).
    ///
    /// # Errors
    /// When the file of a model of the user's own is missing or is no tokenizer.
    pub fn load(settings: &Settings) -> Result<Self, Error> {
        let (parsed, path, tokens_max) = match &settings.model {
            // A provider's own tokenizer is not needed: it counts roughly, and the built-in table of words
            // goes with it.
            ModelChoice::BuiltIn | ModelChoice::Remote(_) => {
                (Inner::from_bytes(BUILT_IN_TOKENIZER), "built in".into(), None)
            }
            ModelChoice::Onnx(own) => {
                let bytes = read("tokenizer", &own.tokenizer)?;
                (Inner::from_bytes(bytes), own.tokenizer.clone(), own.tokens_max)
            }
        };
        let not_a_tokenizer = |source| Error::NotATokenizer { path: path.clone(), source };
        let mut inner = parsed.map_err(not_a_tokenizer)?;
        let tokens_max = tokens_max
            .or(inner.get_truncation().map(|truncation| truncation.max_length))
            .unwrap_or(TOKENS_MAX_DEFAULT)
            .max(8);
        // One tokenizer both counts whole texts and cuts those for the model, so it must not cut by itself.
        inner.with_truncation(None).map_err(not_a_tokenizer)?;
        inner.with_padding(None);
        // A text that speaks of `[SEP]` means the letters.
        inner.set_encode_special_tokens(true);
        let shared = Shared {
            inner,
            tokens_max,
            words: RwLock::default(),
            table: OnceLock::new(),
            model: settings.model.clone(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// How many tokens of a text the model sees, its special tokens included.
    pub fn tokens_max(&self) -> usize {
        self.shared.tokens_max
    }

    /// The tokens of one word, without the model's special ones. Remembered, for the same words come again.
    pub fn pieces(&self, word: &str) -> Arc<[u32]> {
        let keep = word.len() <= WORD_BYTES_KEPT_MAX;
        if keep && let Some(pieces) = self.words().get(word) {
            return Arc::clone(pieces);
        }
        // Not under the lock: the others need not wait for it.
        let pieces: Arc<[u32]> = match self.shared.inner.encode_fast(word, false) {
            Ok(encoding) => encoding.get_ids().into(),
            Err(_) => [].into(),
        };
        if keep {
            let mut words = self.shared.words.write().unwrap_or_else(PoisonError::into_inner);
            if words.len() >= WORDS_KEPT_MAX {
                words.clear();
            }
            words.insert(word.to_owned(), Arc::clone(&pieces));
        }
        pieces
    }

    /// The model's own vectors of its tokens, when the model's file shows them. For the built-in model they
    /// are read in place; a model of the user's own is read from the disk the first time.
    pub fn token_table(&self) -> Option<&TokenTable> {
        self.shared.table.get_or_init(|| TokenTable::read(&self.shared.model)).as_ref()
    }

    /// Whether nothing is left of the text for the model.
    pub(crate) fn is_blank(&self, text: &str) -> bool {
        text.chars().all(|c| c.is_whitespace() || knowledge::text::is_hidden(c))
    }

    /// The ids of a text as the model takes them: cut to its limit, with its special tokens.
    pub(crate) fn model_input(&self, prefix: &str, text: &str) -> Result<Vec<i64>, Error> {
        let failed = |source| Error::Tokenize { bytes: text.len(), source };
        let inner = &self.shared.inner;
        let seen = match prefix {
            "" => Cow::Borrowed(self.seen(text)),
            prefix => Cow::Owned(format!("{prefix}{}", self.seen(text))),
        };
        let mut encoding = inner.encode_fast(&*seen, false).map_err(failed)?;
        if encoding.is_empty() {
            return Err(Error::Empty);
        }
        let special = inner.get_post_processor().map_or(0, |processor| processor.added_tokens(false));
        let room = self.shared.tokens_max.saturating_sub(special).max(1);
        encoding.truncate(room, 0, TruncationDirection::Right);
        let encoding = inner.post_process(encoding, None, true).map_err(failed)?;
        Ok(encoding.get_ids().iter().map(|&id| i64::from(id)).collect())
    }

    fn seen<'t>(&self, text: &'t str) -> &'t str {
        let text = text.trim_start();
        &text[..text.floor_char_boundary(self.shared.tokens_max * BYTES_PER_TOKEN_MAX)]
    }

    fn words(&self) -> std::sync::RwLockReadGuard<'_, AHashMap<String, Arc<[u32]>>> {
        self.shared.words.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CountTokens for Tokenizer {
    /// Counts the whole text, also what the model would not see.
    fn count(&self, text: &str) -> usize {
        // A text that cannot be tokenized is still counted, at the usual four bytes a token.
        self.shared.inner.encode_fast(text, false).map_or(text.len() / 4, |encoding| encoding.len())
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("tokens_max", &self.shared.tokens_max).finish_non_exhaustive()
    }
}
