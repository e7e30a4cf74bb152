//! The tokenizer of the model: token ids, and the number of tokens in a text.

use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use ahash::AHashMap;
use knowledge::CountTokens;
use knowledge::text::is_latin;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::{
    DecoderWrapper, Model as _, NormalizerWrapper, PostProcessor, PostProcessorWrapper, PreTokenizerWrapper,
    Tokenizer as Inner, TokenizerImpl, TruncationDirection,
};

use crate::built_in::BUILT_IN_TOKENIZER;
use crate::error::Error;
use crate::settings::{ModelChoice, Settings};
use crate::token_table::TokenTable;

/// The tokenizer of the model. Cheap to clone; loading it does not load the model.
#[derive(Clone)]
pub struct Tokenizer {
    shared: Arc<Shared>,
}

struct Shared {
    inner: Inner,
    tokens_max: usize,
    /// The token ids of words that were asked for.
    words: RwLock<AHashMap<String, Arc<[u32]>>>,
    table: OnceLock<Option<TokenTable>>,
    model: ModelChoice,
    /// The token that stands for what is not in the vocabulary.
    unknown: Option<u32>,
    /// Whether no token reaches over a space, and each character of ASCII punctuation is a token, as in BERT's tokenizer:
    /// then a text has the tokens of its words, which are cached.
    splits_at_punctuation: bool,
}

/// Of a known kind, a tokenizer loads in half of the time.
type BertTokenizer =
    TokenizerImpl<WordPiece, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;

/// The limit of tokens if the tokenizer's file has none.
const TOKENS_MAX_DEFAULT: usize = 512;
/// A token of natural text or code has 3 to 6 bytes. Text beyond 64 bytes for each token of the model's limit is not
/// tokenized, so that a text of megabytes takes no longer than a page.
const BYTES_PER_TOKEN_MAX: usize = 64;
/// The limit of words in the cache: more than the usual vocabulary of a brain, at most about 5 MB.
const WORDS_KEPT_MAX: usize = 50_000;
/// Longer words are identifiers and hashes, which are not cached.
const WORD_BYTES_KEPT_MAX: usize = 32;

impl Tokenizer {
    /// Loads the tokenizer of the model (7 ms for the built-in one), without the model.
    ///
    /// # Errors
    /// If the tokenizer file of the user's own model is missing or invalid.
    pub fn load(settings: &Settings) -> Result<Self, Error> {
        let (parsed, path, tokens_max) = match &settings.model {
            // Without it the built-in tokenizer counts well enough, and its token table serves the re-ranker.
            ModelChoice::BuiltIn | ModelChoice::Remote(_) | ModelChoice::Off => {
                (BertTokenizer::from_bytes(BUILT_IN_TOKENIZER).map(Inner::from), "built in".into(), None)
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
        // The same tokenizer counts whole texts, so it must not truncate by itself.
        inner.with_truncation(None).map_err(not_a_tokenizer)?;
        inner.with_padding(None);
        // A text that contains `[SEP]` means the characters.
        inner.set_encode_special_tokens(true);
        let unknown = inner.token_to_id("[UNK]");
        let shared = Shared {
            inner,
            unknown,
            tokens_max,
            words: RwLock::default(),
            table: OnceLock::new(),
            model: settings.model.clone(),
            splits_at_punctuation: !matches!(settings.model, ModelChoice::Onnx(_)),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The model's limit of tokens for a text, including special tokens.
    pub fn tokens_max(&self) -> usize {
        self.shared.tokens_max
    }

    /// The token ids of one word, without special tokens. Short words are cached.
    pub fn token_ids(&self, word: &str) -> Arc<[u32]> {
        let keep = word.len() <= WORD_BYTES_KEPT_MAX;
        if keep && let Some(pieces) = self.words().get(word) {
            return Arc::clone(pieces);
        }
        // Not under the lock, so that other threads need not wait.
        let pieces = self.pieces(word).unwrap_or_default();
        if keep {
            let mut words = self.shared.words.write().unwrap_or_else(PoisonError::into_inner);
            if words.len() >= WORDS_KEPT_MAX {
                words.clear();
            }
            words.insert(word.to_owned(), Arc::clone(&pieces));
        }
        pieces
    }

    /// The token ids of words, one word after the other, and where those of each word end. Threads that ask for thousands of
    /// words each wait less for each other than with [`token_ids`](Self::token_ids).
    pub fn token_ids_of(&self, words: &[&str]) -> (Vec<u32>, Vec<usize>) {
        let (mut ids, mut ends) = (Vec::with_capacity(words.len() * 2), Vec::with_capacity(words.len()));
        let mut cached = self.words();
        for word in words {
            if let Some(pieces) = cached.get(*word) {
                ids.extend_from_slice(pieces);
            } else {
                drop(cached);
                ids.extend_from_slice(&self.token_ids(word));
                cached = self.words();
            }
            ends.push(ids.len());
        }
        (ids, ends)
    }

    fn pieces(&self, word: &str) -> tokenizers::Result<Arc<[u32]>> {
        let Shared { inner, splits_at_punctuation, .. } = &*self.shared;
        // BERT's tokenizer only lower-cases such a word before it cuts it.
        if *splits_at_punctuation && !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric())
        {
            let tokens = inner.get_model().tokenize(&word.to_ascii_lowercase())?;
            return Ok(tokens.iter().map(|token| token.id).collect());
        }
        Ok(inner.encode_fast(word, false)?.get_ids().into())
    }

    /// The model's table of word embeddings, or `None` if its file has none. The built-in table is read in place; the
    /// user's own model is read from the disk the first time.
    pub fn token_table(&self) -> Option<&TokenTable> {
        self.shared.table.get_or_init(|| TokenTable::read(&self.shared.model)).as_ref()
    }

    /// The cosine of each of these tokens with each of those, `[these, those]` row by row. `None` if the model's file has
    /// no table; then only equal tokens are similar.
    pub fn cosines(&self, these: &[u32], those: &[u32]) -> Option<Vec<f32>> {
        self.token_table().map(|table| table.cosines(these, those))
    }

    /// Whether the text has no visible characters.
    pub(crate) fn is_blank(&self, text: &str) -> bool {
        text.chars().all(|c| c.is_whitespace() || knowledge::text::is_hidden(c))
    }

    /// Whether the model reads anything of the text: [`Error::Empty`] is the answer for one of which it does not.
    pub fn has_tokens(&self, text: &str) -> bool {
        let encoding = || self.shared.inner.encode_fast(self.head(text), false);
        !self.is_blank(text) && encoding().is_ok_and(|encoding| !encoding.is_empty())
    }

    /// The token ids of a text for the model: with special tokens, truncated to the limit.
    pub(crate) fn model_input(&self, prefix: &str, text: &str) -> Result<Vec<u32>, Error> {
        let failed = |source| Error::Tokenize { bytes: text.len(), source };
        let inner = &self.shared.inner;
        let head = match prefix {
            "" => Cow::Borrowed(self.head(text)),
            prefix => Cow::Owned(format!("{prefix}{}", self.head(text))),
        };
        let mut encoding = inner.encode_fast(&*head, false).map_err(failed)?;
        if encoding.is_empty() {
            return Err(Error::Empty);
        }
        let special = inner.get_post_processor().map_or(0, |processor| processor.added_tokens(false));
        let room = self.shared.tokens_max.saturating_sub(special).max(1);
        encoding.truncate(room, 0, TruncationDirection::Right);
        let encoding = inner.post_process(encoding, None, true).map_err(failed)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Whether a word, of which these are the tokens, is not in the vocabulary, or hardly more of it than its letters, as
    /// those of most scripts but Latin: such tokens say nothing about the word.
    pub fn has_letters_only(&self, word: &str, tokens: &[u32]) -> bool {
        tokens.iter().any(|token| Some(*token) == self.shared.unknown)
            || !word.is_ascii() && is_in_other_script(word) && tokens.len() * 2 > word.chars().count()
    }

    /// Whether most of a text, as the model is to read it, is not in the vocabulary, or all of it only by its letters: of such
    /// texts, as in Japanese or Russian, any two would be alike.
    pub(crate) fn is_mostly_unknown(&self, input: &[u32]) -> bool {
        let Shared { inner, unknown, .. } = &*self.shared;
        let special = inner.get_post_processor().map_or(0, |processor| processor.added_tokens(false));
        let text = input.get(1..input.len().saturating_sub(1)).unwrap_or_default();
        let is_unknown = |id: &u32| Some(*id) == *unknown;
        let token = |id: &u32| inner.id_to_token(*id).unwrap_or_default();
        text.iter().filter(|id| is_unknown(id)).count() * 2 > input.len().saturating_sub(special)
            || text.iter().any(|id| !is_unknown(id) && is_in_other_script(&token(id)))
                && text.iter().all(|id| is_unknown(id) || !token(id).contains(is_latin))
    }

    /// The ids of a text's tokens as the model reads them: truncated to the limit, without special tokens.
    pub fn text_token_ids(&self, text: &str) -> Vec<u32> {
        let ids = self.model_input("", text).unwrap_or_default();
        ids.get(1..ids.len().saturating_sub(1)).unwrap_or_default().to_vec()
    }

    /// The part of a text that can be within the limit.
    fn head<'t>(&self, text: &'t str) -> &'t str {
        let text = text.trim_start();
        &text[..text.floor_char_boundary(self.shared.tokens_max * BYTES_PER_TOKEN_MAX)]
    }

    fn words(&self) -> std::sync::RwLockReadGuard<'_, AHashMap<String, Arc<[u32]>>> {
        self.shared.words.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CountTokens for Tokenizer {
    /// Counts the tokens of the whole text, also beyond the model's limit.
    fn count(&self, text: &str) -> usize {
        if self.shared.splits_at_punctuation {
            let is_space = |c| matches!(c, ' ' | '\t' | '\n' | '\r');
            let words = text.split(|c: char| is_space(c) || c.is_ascii_punctuation());
            let in_words = words.filter(|word| !word.is_empty()).map(|word| self.token_ids(word).len());
            return in_words.sum::<usize>() + text.bytes().filter(u8::is_ascii_punctuation).count();
        }
        // A text that cannot be tokenized counts one token for four bytes.
        self.shared.inner.encode_fast(text, false).map_or(text.len() / 4, |encoding| encoding.len())
    }
}

/// Whether a text has letters, and none of them is Latin.
fn is_in_other_script(text: &str) -> bool {
    text.contains(char::is_alphabetic) && !text.contains(is_latin)
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::Read { what, path: path.to_owned(), source })
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("tokens_max", &self.shared.tokens_max).finish_non_exhaustive()
    }
}
