//! Token counts of calls.

use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    /// The sum of all four.
    pub fn tokens(&self) -> u64 {
        self.input_tokens
            + self.output_tokens
            + self.cache_creation_input_tokens
            + self.cache_read_input_tokens
    }
}

/// Reads a count; the API sends `null` for one that does not apply. An impossibly large count is limited, so that the
/// sum over a year cannot overflow.
fn lenient<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Ok(Value::deserialize(deserializer)?.as_u64().unwrap_or_default().min(1 << 32))
}
