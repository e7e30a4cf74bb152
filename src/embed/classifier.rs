//! A yes or no about a text, by the built-in model with fine-tuned last layers.
//!
//! The linear layers get low-rank changes (Hu et al., 2021: <https://arxiv.org/abs/2106.09685>), and a linear layer over the mean
//! of the token vectors says how likely it is yes. So a task costs a quarter of a megabyte instead of a model.

use crate::built_in::BUILT_IN_MODEL;
use crate::error::Error;
use crate::minilm::{self, Changes, HIDDEN, INTERMEDIATE, LowRank, MiniLm};
use crate::settings::Settings;
use crate::tokenizer::Tokenizer;

/// The rank of each change.
const RANK: usize = 8;
/// How many of the last layers are changed.
const CHANGED_LAYERS: usize = 3;
/// What is read of a text, with both special tokens.
const TOKENS_MAX: usize = 96;

/// A trained classifier. Any number of threads may share one.
pub struct Classifier {
    model: MiniLm,
    tokenizer: Tokenizer,
    changes: Vec<Changes>,
    head: Vec<f32>,
    bias: f32,
}

impl Classifier {
    /// Reads trained weights: bfloat16, little endian. For each of the last three layers the changes of query, value,
    /// intermediate and output, each as `[inputs, 8]` and `[8, outputs]`; then the 384 weights of the head and its bias.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the weights have another length.
    pub fn read(weights: &[u8]) -> Result<Self, Error> {
        // A bfloat16 is the upper half of an f32.
        let wide = |half: &[u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(*half)) << 16);
        let mut numbers = weights.as_chunks().0.iter().map(wide);
        let mut take = |count: usize| -> Result<Vec<f32>, Error> {
            let taken: Vec<f32> = numbers.by_ref().take(count).collect();
            if taken.len() == count { Ok(taken) } else { Err(Error::Damaged) }
        };
        let mut low_rank = |inputs: usize, outputs: usize| {
            Ok(LowRank { rank: RANK, down: take(inputs * RANK)?, up: take(RANK * outputs)? })
        };
        let changes = (0..CHANGED_LAYERS)
            .map(|_| {
                Ok(Changes {
                    query: low_rank(HIDDEN, HIDDEN)?,
                    value: low_rank(HIDDEN, HIDDEN)?,
                    intermediate: low_rank(HIDDEN, INTERMEDIATE)?,
                    output: low_rank(INTERMEDIATE, HIDDEN)?,
                })
            })
            .collect::<Result<_, Error>>()?;
        let (head, bias) = (take(HIDDEN)?, take(1)?[0]);
        if numbers.next().is_some() {
            return Err(Error::Damaged);
        }
        let tokenizer = Tokenizer::load(&Settings::default())?;
        Ok(Self { model: MiniLm::read(BUILT_IN_MODEL)?, tokenizer, changes, head, bias })
    }

    /// The logarithm of the odds that the answer is yes. Of a long text the first 96 tokens are read.
    ///
    /// # Errors
    /// [`Error::Empty`] for a text without visible characters.
    pub fn log_odds(&self, text: &str) -> Result<f32, Error> {
        let mut ids = self.tokenizer.model_input("", text)?;
        if let [.., end] = ids[..]
            && ids.len() > TOKENS_MAX
        {
            ids.truncate(TOKENS_MAX - 1);
            ids.push(end);
        }
        let mean = minilm::mean(&self.model.changed_token_vectors(&ids, &self.changes));
        Ok(mean.iter().zip(&self.head).map(|(x, weight)| x * weight).sum::<f32>() + self.bias)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weights of which the changes are zero.
    fn weights(head: f32, bias: f32) -> Vec<u8> {
        let numbers = CHANGED_LAYERS * RANK * (4 * HIDDEN + 2 * (HIDDEN + INTERMEDIATE));
        let mut all = vec![0.0; numbers];
        all.extend([head; HIDDEN]);
        all.push(bias);
        all.iter().flat_map(|x: &f32| ((x.to_bits() >> 16) as u16).to_le_bytes()).collect()
    }

    #[test]
    fn changes_of_zero_change_nothing() {
        let text = "The cache is keyed by the digest of the file";
        let model = MiniLm::read(BUILT_IN_MODEL).unwrap();
        let ids = Tokenizer::load(&Settings::default()).unwrap().model_input("", text).unwrap();
        let sum: f32 = minilm::mean(&model.token_vectors(&ids)).iter().sum();
        let log_odds = Classifier::read(&weights(1.0, 2.0)).unwrap().log_odds(text).unwrap();
        assert!((log_odds - sum - 2.0).abs() < 1e-4, "{log_odds} {sum}");
    }

    #[test]
    fn a_change_adds_its_product() {
        let change =
            LowRank { rank: 2, down: vec![1.0, 0.0, 0.0, 2.0, 1.0, 1.0], up: vec![1.0, 10.0, 3.0, 0.5] };
        let mut output = vec![0.5, 0.0, 1.0, 1.0];
        // Two rows of three inputs; two outputs.
        change.add(&[1.0, 1.0, 1.0, 0.0, 1.0, 0.0], &mut output);
        // The first row becomes (2, 3) within, the second (0, 2).
        assert_eq!(output, [0.5 + 2.0 + 9.0, 20.0 + 1.5, 1.0 + 6.0, 1.0 + 1.0]);
    }

    #[test]
    fn only_the_first_96_tokens_are_read() {
        let classifier = Classifier::read(&weights(1.0, 0.0)).unwrap();
        let long = "word ".repeat(94);
        let odds = |text: &str| classifier.log_odds(text).unwrap();
        assert_eq!(odds(&long), odds(&format!("{long} and what is never read")));
        assert_ne!(odds("word"), odds("word and what is read"));
    }

    #[test]
    fn weights_of_another_length_are_damaged() {
        let mut bytes = weights(1.0, 1.0);
        bytes.extend([0, 0]);
        assert!(matches!(Classifier::read(&bytes), Err(Error::Damaged)));
        assert!(matches!(Classifier::read(&bytes[..100]), Err(Error::Damaged)));
    }
}
