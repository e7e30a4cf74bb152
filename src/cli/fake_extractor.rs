//! An extractor for the stress tests that delays and fails at random, by a seed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use extract::{Error, Extraction, ExtractionContext, Extractor};
use transcript::Conversation;

/// `seed=7,delay_ms=0..40,fail=0.1`: the seed, the range of delays, and the probability of a failure.
const VARIABLE: &str = "SCRIPTED_EXTRACTION";

struct FakeExtractor {
    inner: Arc<dyn Extractor>,
    random: Mutex<fastrand::Rng>,
    delay_ms: (u64, u64),
    /// The probability of a failure, from 0 to 1.
    fail: f64,
}

/// Wraps an extractor if the environment variable is set.
pub(crate) fn wrap(inner: Arc<dyn Extractor>) -> Arc<dyn Extractor> {
    let Ok(script) = std::env::var(VARIABLE) else { return inner };
    let value = |key: &str| script.split(',').find_map(|part| part.strip_prefix(key)?.strip_prefix('='));
    let (from, to) = value("delay_ms").and_then(|range| range.split_once("..")).unwrap_or(("0", "0"));
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    // Each worker process starts at another place of the sequence.
    let seed = value("seed").map_or(0, number) ^ (u64::from(std::process::id()) << 32);
    Arc::new(FakeExtractor {
        inner,
        random: Mutex::new(fastrand::Rng::with_seed(seed)),
        delay_ms: (number(from), number(to)),
        fail: value("fail").and_then(|text| text.parse().ok()).unwrap_or(0.0),
    })
}

impl FakeExtractor {
    /// A random number from 0 to 1.
    fn random(&self) -> f64 {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).f64()
    }
}

#[async_trait]
impl Extractor for FakeExtractor {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn extract(
        &self,
        conversation: &Conversation,
        context: &ExtractionContext,
    ) -> Result<Extraction, Error> {
        let (from, to) = self.delay_ms;
        let delay = from as f64 + self.random() * to.saturating_sub(from) as f64;
        tokio::time::sleep(Duration::from_micros((delay * 1000.0) as u64)).await;
        if self.random() < self.fail {
            let message = "this attempt fails by the script of the test".to_owned();
            return Err(Error::Retry { message, retry_after: None, source: None });
        }
        self.inner.extract(conversation, context).await
    }
}
