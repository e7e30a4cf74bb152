//! The tokens of the embedding model.

use std::sync::Arc;

use knowledge::CountTokens;

/// The tokens of the embedding model: how many a text has, and how similar two of them are.
pub trait TokenModel: CountTokens + Sync {
    /// The ids of one word's tokens.
    fn token_ids(&self, word: &str) -> Arc<[u32]>;

    /// The ids of the tokens of these words, one word after the other, and where those of each word end.
    fn token_ids_of(&self, words: &[&str]) -> (Vec<u32>, Vec<usize>);

    /// The ids of a text's tokens as the model reads them, without special tokens.
    fn text_token_ids(&self, text: &str) -> Vec<u32>;

    /// The cosine of each of these tokens with each of those, `[these, those]` row by row. `None` if the model's
    /// token table is not known; then only equal tokens are similar.
    fn cosines(&self, these: &[u32], those: &[u32]) -> Option<Vec<f32>>;
}

impl TokenModel for embed::Tokenizer {
    fn token_ids(&self, word: &str) -> Arc<[u32]> {
        Self::token_ids(self, word)
    }

    fn token_ids_of(&self, words: &[&str]) -> (Vec<u32>, Vec<usize>) {
        Self::token_ids_of(self, words)
    }

    fn text_token_ids(&self, text: &str) -> Vec<u32> {
        Self::text_token_ids(self, text)
    }

    fn cosines(&self, these: &[u32], those: &[u32]) -> Option<Vec<f32>> {
        self.token_table().map(|table| table.cosines(these, those))
    }
}
