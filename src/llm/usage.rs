//! Token counts of calls.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// About how many bytes of a text one token has.
const BYTES_PER_TOKEN: usize = 4;
/// On average no token of a text is shorter than this many bytes, so that a reservation is large enough.
const BYTES_PER_TOKEN_MIN: usize = 3;

/// The tokens of one call, as the server counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens that were neither read from the cache nor written to it.
    #[serde(default, deserialize_with = "lenient")]
    pub input_tokens: u64,
    #[serde(default, deserialize_with = "lenient")]
    /// Tokens that the model wrote.
    pub output_tokens: u64,
    /// Input tokens that were written to the cache.
    #[serde(default, deserialize_with = "lenient")]
    pub cache_creation_input_tokens: u64,
    /// Input tokens that were read from the cache.
    #[serde(default, deserialize_with = "lenient")]
    pub cache_read_input_tokens: u64,
}

impl Usage {
    /// The most that a call may use, with this many bytes of input and this limit of the answer.
    pub fn at_most(input_bytes: usize, output_tokens_max: u32) -> Self {
        Self {
            input_tokens: input_bytes.div_ceil(BYTES_PER_TOKEN_MIN) as u64,
            output_tokens: output_tokens_max.into(),
            ..Self::default()
        }
    }

    /// The sum of all four.
    pub fn tokens(&self) -> u64 {
        self.input_tokens
            + self.output_tokens
            + self.cache_creation_input_tokens
            + self.cache_read_input_tokens
    }

    /// The same with an estimate in place of what the server did not count: an input of no tokens, or an output of none
    /// where there is some. The lengths are in bytes.
    pub(crate) fn or_estimated(self, input_bytes: usize, output_bytes: usize) -> Self {
        let estimate = |bytes: usize| bytes.div_ceil(BYTES_PER_TOKEN) as u64;
        let has_input = self.tokens() > self.output_tokens;
        Self {
            input_tokens: if has_input { self.input_tokens } else { estimate(input_bytes) },
            output_tokens: match self.output_tokens {
                0 => estimate(output_bytes),
                counted => counted,
            },
            ..self
        }
    }
}

/// Reads a count; the API sends `null` for one that does not apply, and a negative one is none. An impossibly large count is limited, so that the
/// sum over a year cannot overflow.
pub(crate) fn lenient<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Ok(Value::deserialize(deserializer)?.as_u64().unwrap_or_default().min(1 << 32))
}
