//! An extractor for the stress tests: takes its time, and fails now and then, by a seed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use extract::{Error, Extraction, ExtractionContext, Extractor};
use transcript::Conversation;

/// `seed=7,delay_ms=0..40,fail=0.1`: which, how long an answer takes, how often there is none.
const VARIABLE: &str = "SCRIPTED_EXTRACTION";

struct Scripted {
    inner: Arc<dyn Extractor>,
    random: Mutex<fastrand::Rng>,
    delay_ms: (u64, u64),
    /// From 0 to 1.
    fail: f64,
}

/// Puts the script of the environment, if there is one, before an extractor.
pub(crate) fn wrap(inner: Arc<dyn Extractor>) -> Arc<dyn Extractor> {
    let Ok(script) = std::env::var(VARIABLE) else { return inner };
    let value = |key: &str| script.split(',').find_map(|part| part.strip_prefix(key)?.strip_prefix('='));
    let (from, to) = value("delay_ms").and_then(|range| range.split_once("..")).unwrap_or(("0", "0"));
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    // Each drainer goes through the seed's sequence at another place.
    let seed = value("seed").map_or(0, number) ^ (u64::from(std::process::id()) << 32);
    Arc::new(Scripted {
        inner,
        random: Mutex::new(fastrand::Rng::with_seed(seed)),
        delay_ms: (number(from), number(to)),
        fail: value("fail").and_then(|text| text.parse().ok()).unwrap_or(0.0),
    })
}

impl Scripted {
    /// From 0 to 1.
    fn random(&self) -> f64 {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).f64()
    }
}

#[async_trait]
impl Extractor for Scripted {
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
            let what = "the script says that this attempt fails".to_owned();
            return Err(Error::Retry { message: what, retry_after: None, source: None });
        }
        self.inner.extract(conversation, context).await
    }
}
