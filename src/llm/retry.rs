//! Retries with exponential backoff, within a deadline.

use std::future::Future;
use std::time::{Duration, Instant};

use backoff::ExponentialBackoffBuilder;

use crate::error::Error;

/// The pause before the second attempt. Later pauses are longer, each with a random part.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Repeats an attempt that fails with an error that is worth it, after growing pauses or at the time that the server names,
/// until the deadline.
///
/// # Errors
/// The error of the last attempt: at once for one that is not worth another, or if the server asks for a pause beyond the
/// deadline. [`Error::Deadline`] if an attempt is under way when the deadline passes.
pub async fn retry<T, F>(
    deadline: Duration,
    is_worth_another: impl Fn(&Error) -> bool,
    attempt: impl Fn() -> F,
) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let begun = Instant::now();
    let policy = ExponentialBackoffBuilder::new()
        .with_initial_interval(FIRST_PAUSE)
        .with_max_elapsed_time(Some(deadline))
        .build();
    let attempt = || async {
        attempt().await.map_err(|error| match error.retry_after() {
            _ if !is_worth_another(&error) => backoff::Error::permanent(error),
            Some(after) if after >= deadline.saturating_sub(begun.elapsed()) => {
                backoff::Error::permanent(error)
            }
            Some(after) => backoff::Error::retry_after(error, after),
            None => backoff::Error::transient(error),
        })
    };
    match tokio::time::timeout(deadline, backoff::future::retry(policy, attempt)).await {
        Ok(answer) => answer,
        Err(_) => Err(Error::Deadline(deadline)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_pause_beyond_the_deadline_ends_the_attempts_however_long_it_is() {
        for seconds in [60, u64::MAX] {
            let refused = || async move {
                let retry_after = Some(Duration::from_secs(seconds));
                Err::<(), _>(Error::Status {
                    status: 429,
                    kinds: Vec::new(),
                    message: String::new(),
                    retry_after,
                    has_begun: false,
                })
            };
            let error = retry(Duration::from_secs(60), Error::is_temporary, refused).await.unwrap_err();
            assert!(matches!(error, Error::Status { status: 429, .. }), "{error:?}");
        }
    }
}
