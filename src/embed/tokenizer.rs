//! Text to the token ids of the model, and how many they are.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use ahash::AHashMap;
use knowledge::CountTokens;
use tokenizers::{Model as _, PostProcessor, Tokenizer as Inner, TruncationDirection};

use crate::{BUILT_IN_TOKENIZER, Error, ModelChoice, Settings, WordTable, read};

/// The tokenizer of the model. Cheap to clone; loading it does not load the model.
#[derive(Clone)]
pub struct Tokenizer {
    shared: Arc<Shared>,
}

struct Shared {
    inner: Inner,
    tokens_max: usize,
    words: RwLock<AHashMap<String, Arc<[u32]>>>,
    table: OnceLock<Option<WordTable>>,
    model: ModelChoice,
}

/// When the tokenizer's file does not say where it cuts.
const TOKENS_MAX_DEFAULT: usize = 512;
/// A token of natural text or code has 3 to 6 bytes. What lies beyond 64 for each token the model takes is
/// not even looked at, so that a text of megabytes costs no more than one of a page.
const BYTES_PER_TOKEN_MAX: usize = 64;
/// The words whose tokens are remembered: more than a brain's usual vocabulary, at most some 5 MB.
const WORDS_KEPT_MAX: usize = 50_000;
/// What the built-in tokenizer's list has before a token that goes on with a word.
const MORE: &[u8] = b"##";
/// The longest token of ASCII letters and digits in it, without [`MORE`].
const LISTED_CHARS_MAX: usize = 18;
/// The longest word that it takes apart; a longer one is one unknown token.
const WORD_CHARS_MAX: usize = 100;
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
        let encoded = || match self.shared.inner.encode_fast(word, false) {
            Ok(encoding) => encoding.get_ids().into(),
            Err(_) => [].into(),
        };
        let mut listed = Vec::new();
        let is_listed = self.listed(word, |token| listed.push(token));
        let pieces: Arc<[u32]> = if is_listed { listed.into() } else { encoded() };
        if keep {
            let mut words = self.shared.words.write().unwrap_or_else(PoisonError::into_inner);
            if words.len() >= WORDS_KEPT_MAX {
                words.clear();
            }
            words.insert(word.to_owned(), Arc::clone(&pieces));
        }
        pieces
    }

    /// Tells `each` token of a word of ASCII letters and digits, by the built-in tokenizer; `false`, and nothing is
    /// told, for another word or another tokenizer.
    ///
    /// The tokenizer folds case, and then takes the longest token that fits, again and again (WordPiece). For
    /// such a word there is no more to it, and to find that out by way of the tokenizer, which looks at a text as
    /// a whole, takes fifty times as long.
    fn listed(&self, word: &str, mut each: impl FnMut(u32)) -> bool {
        let is_plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_plain || word.is_empty() || word.len() > WORD_CHARS_MAX || !self.is_built_in() {
            return false;
        }
        let list = self.shared.inner.get_model();
        // Most are in the list as they stand.
        if word.len() <= LISTED_CHARS_MAX
            && !word.bytes().any(|byte| byte.is_ascii_uppercase())
            && let Some(token) = list.token_to_id(word)
        {
            each(token);
            return true;
        }
        let found = |token: &[u8]| std::str::from_utf8(token).ok().and_then(|token| list.token_to_id(token));
        // A token that goes on with a word is listed with the mark before it, for which there is room behind
        // what has been told.
        let mut room = [0; MORE.len() + WORD_CHARS_MAX];
        let word_end = MORE.len() + word.len();
        room[MORE.len()..word_end].copy_from_slice(word.as_bytes());
        room[..word_end].make_ascii_lowercase();
        let mut tokens = [0; WORD_CHARS_MAX];
        let (mut count, mut start) = (0, MORE.len());
        while start < word_end {
            let from = if count == 0 { start } else { start - MORE.len() };
            if count > 0 {
                room[from..start].copy_from_slice(MORE);
            }
            let ends = (start + 1..=word_end.min(start + LISTED_CHARS_MAX)).rev();
            let longest = ends.into_iter().find_map(|end| Some((end, found(&room[from..end])?)));
            let Some((end, token)) = longest else { return false };
            tokens[count] = token;
            count += 1;
            start = end;
        }
        tokens[..count].iter().for_each(|&token| each(token));
        true
    }

    fn is_built_in(&self) -> bool {
        !matches!(self.shared.model, ModelChoice::Onnx(_))
    }

    /// The model's own vectors of its tokens, when the model's file shows them. For the built-in model they
    /// are read in place; a model of the user's own is read from the disk the first time.
    pub fn word_table(&self) -> Option<&WordTable> {
        self.shared.table.get_or_init(|| WordTable::of(&self.shared.model)).as_ref()
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

    fn count_whole(&self, text: &str) -> usize {
        // A text that cannot be tokenized is still counted, at the usual four bytes a token.
        self.shared.inner.encode_fast(text, false).map_or(text.len() / 4, |encoding| encoding.len())
    }

    /// As [`Self::count_whole`] for the built-in tokenizer, which cuts at white space and around each mark
    /// before it looks at a word: the words' tokens are added up. Counting is most of what cutting and packing do.
    fn count_by_words(&self, text: &str) -> usize {
        let mut count = 0;
        let mut counted = COUNTED.take();
        let mut add = |word: &str| {
            count += counted.tokens(word.as_bytes(), || {
                let mut count = 0;
                if self.listed(word, |_| count += 1) { count } else { self.pieces(word).len() }
            });
        };
        let mut marks = 0;
        // Other white space that ASCII has the tokenizer takes for control characters, and drops.
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\n' | b'\t' | b'\r');
        let bytes = text.as_bytes();
        let mut end = 0;
        while end < bytes.len() {
            let start = end + bytes[end..].iter().take_while(|byte| is_space(byte)).count();
            end = start + bytes[start..].iter().take_while(|byte| !is_space(byte)).count();
            if !bytes[start..end].iter().all(u8::is_ascii_graphic) {
                add(&text[start..end]);
                continue;
            }
            let mut word = start;
            for mark in (start..end).filter(|&at| bytes[at].is_ascii_punctuation()) {
                if word < mark {
                    add(&text[word..mark]);
                }
                marks += 1;
                word = mark + 1;
            }
            if word < end {
                add(&text[word..end]);
            }
        }
        COUNTED.set(counted);
        count + marks
    }
}

thread_local! {
    static COUNTED: Cell<Counted> = const { Cell::new(Counted(Vec::new())) };
}

/// How many tokens the built-in tokenizer makes of words that came lately: most of a text is made of a few
/// thousand words, and this many are at hand in a processor's own cache, which the whole list is not.
#[derive(Default)]
struct Counted(Vec<CountedWord>);

#[derive(Clone, Copy, Default)]
struct CountedWord {
    word: [u8; COUNTED_BYTES_MAX],
    /// 0 for none.
    length: u8,
    tokens: u8,
}

const COUNTED_BYTES_MAX: usize = 16;
const COUNTED_BITS: u32 = 12;

impl Counted {
    /// What `count` gives for the word, or gave for it before.
    fn tokens(&mut self, bytes: &[u8], count: impl FnOnce() -> usize) -> usize {
        if bytes.len() > COUNTED_BYTES_MAX {
            return count();
        }
        let mut word = [0; COUNTED_BYTES_MAX];
        word[..bytes.len()].copy_from_slice(bytes);
        let length = bytes.len() as u8;
        let number = u128::from_le_bytes(word);
        // Multiplied by an odd number without pattern, the upper bits depend on all (Knuth's multiplicative hash).
        let mixed =
            (number as u64 ^ (number >> 64) as u64 ^ u64::from(length)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let slot = (mixed >> (u64::BITS - COUNTED_BITS)) as usize;
        if self.0.is_empty() {
            self.0.resize(1 << COUNTED_BITS, CountedWord::default());
        }
        let known = &mut self.0[slot];
        if length == 0 || known.length != length || known.word != word {
            // No word of so few bytes has more tokens than a byte can tell.
            *known = CountedWord { word, length, tokens: count() as u8 };
        }
        usize::from(known.tokens)
    }
}

impl CountTokens for Tokenizer {
    /// Counts the whole text, also what the model would not see.
    fn count(&self, text: &str) -> usize {
        match self.shared.model {
            ModelChoice::Onnx(_) => self.count_whole(text),
            _ => self.count_by_words(text),
        }
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("tokens_max", &self.shared.tokens_max).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_words_tokens_are_those_that_the_tokenizer_makes_of_it() {
        let tokenizer = Tokenizer::load(&Settings::default()).unwrap();
        let all = tokenizer.shared.inner.get_vocab(false);
        let mut listed: Vec<&str> = all.keys().map(String::as_str).collect();
        listed.sort_unstable();
        let is_plain = |word: &str| word.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let parts = listed.iter().map(|token| token.trim_start_matches("##")).filter(|part| is_plain(part));
        let parts: Vec<&str> = parts.collect();
        assert_eq!(parts.iter().map(|part| part.len()).max(), Some(LISTED_CHARS_MAX));
        let said =
            "Worker pool PARSE parse2 2024 a 7 x1 unused0 cls sep UNK antidisestablishmentarianism zqx";
        let mut words: Vec<String> = said.split(' ').map(str::to_owned).collect();
        words.extend(parts.iter().step_by(13).map(|part| (*part).to_owned()));
        // Words put together from parts that are far from each other in the list, some in capitals.
        for (nth, part) in parts.iter().enumerate().step_by(29) {
            let (second, third) = (parts[nth * 7 % parts.len()], parts[nth * 31 % parts.len()]);
            words.push(format!("{part}{}{third}{nth}", second.to_uppercase()));
        }
        words.push("q".repeat(WORD_CHARS_MAX));
        assert!(words.len() > 2_000);
        for word in words {
            let mut tokens = Vec::new();
            assert!(tokenizer.listed(&word, |token| tokens.push(token)), "{word}");
            let encoding = tokenizer.shared.inner.encode_fast(&*word, false).unwrap();
            assert_eq!(tokens, encoding.get_ids(), "{word}");
            assert_eq!(*tokenizer.pieces(&word), *tokens, "{word}");
        }
        for word in ["", "two words", "naïve", "a-b", &"q".repeat(WORD_CHARS_MAX + 1)] {
            assert!(!tokenizer.listed(word, |_| panic!("a token of {word:?}")), "{word}");
        }
    }

    #[test]
    fn counting_by_words_gives_what_the_whole_text_has() {
        let tokenizer = Tokenizer::load(&Settings::default()).unwrap();
        let long = "x".repeat(101);
        let texts = [
            "",
            "  \n\t ",
            "Use `parse_config(&self)?` rather than parseConfig2: don't [SEP] [CLS]!!",
            "naïve café — “quoted” ﬁne 日本語 text, e\u{301}te\u{301}",
            "a\u{b}b\u{c}c\u{0}d\u{7f}e \u{a0}f\u{2028}g\u{200b}h \u{fffd} 🙂🙂 x",
            "https://example.com/a/b?c=d&e=f#g 0x7fff 1.5e-3 ~/.config/nugget.toml",
            "|---|---|\r\n| a | b |\r\n```rust\nlet x: Vec<u8> = vec![1, 2];\n```",
            &long,
            include_str!("weights/README.md"),
            // Words that differ in what is behind the end of one.
            "a a\u{0} ab abc abcdefghijklmnop abcdefghijklmnopq abcdefghijklmno a ab abc",
        ];
        for text in texts {
            for _ in 0..2 {
                assert_eq!(tokenizer.count_by_words(text), tokenizer.count_whole(text), "{text:?}");
            }
        }
        // More words than are kept at hand, in two orders, so that each is counted anew and again.
        let all = tokenizer.shared.inner.get_vocab(false);
        let mut listed: Vec<&str> = all.keys().map(String::as_str).collect();
        listed.sort_unstable();
        let pairs = listed.windows(2).map(|pair| format!("{}{} {}", pair[0], pair[1], pair[0]));
        let mut texts: Vec<String> = pairs.collect();
        let expected: Vec<usize> = texts.iter().map(|text| tokenizer.count_whole(text)).collect();
        let mut counted: Vec<usize> = texts.iter().map(|text| tokenizer.count_by_words(text)).collect();
        assert_eq!(counted, expected);
        texts.reverse();
        counted = texts.iter().map(|text| tokenizer.count_by_words(text)).collect();
        assert!(counted.iter().rev().eq(&expected));
    }
}
