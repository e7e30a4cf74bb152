//! Limits how often each token may do something: the generic cell rate algorithm (ITU-T I.371, annex A), in memory.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::settings::Rate;

/// The most tokens that are remembered before those that are back at their full burst are forgotten.
const TOKENS_KEPT: usize = 10_000;

/// Identifies a token without being it.
pub(crate) type TokenKey = [u8; 32];

pub(crate) struct RateLimit {
    /// The time between two requests at the lasting rate.
    interval: Duration,
    /// How far ahead of that rate a token may be.
    tolerance: Duration,
    /// When each token is back at its full burst.
    full_at: Mutex<HashMap<TokenKey, Instant>>,
}

impl RateLimit {
    pub(crate) fn new(rate: Rate) -> Self {
        let interval = Duration::from_secs(60) / rate.per_minute.max(1);
        let tolerance = interval * rate.burst.max(1).saturating_sub(1);
        Self { interval, tolerance, full_at: Mutex::default() }
    }

    /// Counts a request, or says how long to wait for the next.
    pub(crate) fn check(&self, token: &TokenKey, now: Instant) -> Result<(), Duration> {
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        if full_at.len() >= TOKENS_KEPT && !full_at.contains_key(token) {
            full_at.retain(|_, at| *at > now);
        }
        let at = full_at.get(token).copied().unwrap_or(now).max(now);
        let ahead = at - now;
        if ahead > self.tolerance {
            return Err(ahead - self.tolerance);
        }
        full_at.insert(*token, at + self.interval);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_followed_by_the_lasting_rate() {
        let limit = RateLimit::new(Rate { per_minute: 60, burst: 3 });
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let (one, other) = ([1; 32], [2; 32]);
        for _ in 0..3 {
            assert_eq!(limit.check(&one, start), Ok(()));
        }
        assert_eq!(limit.check(&one, start), Err(Duration::from_secs(1)));
        assert_eq!(limit.check(&other, start), Ok(()), "another token is not affected");
        assert_eq!(limit.check(&one, at(400)), Err(Duration::from_millis(600)));
        assert_eq!(limit.check(&one, at(1000)), Ok(()));
        assert!(limit.check(&one, at(1000)).is_err());
        assert_eq!((0..9).filter(|_| limit.check(&one, at(60_000)).is_ok()).count(), 3);
    }

    #[test]
    fn tokens_at_their_full_burst_are_forgotten() {
        let limit = RateLimit::new(Rate { per_minute: 60_000, burst: 1 });
        let start = Instant::now();
        for number in 0..TOKENS_KEPT + 1 {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_le_bytes());
            let _ = limit.check(&key, start + Duration::from_millis(number as u64));
        }
        assert!(limit.full_at.lock().unwrap().len() < 10);
    }
}
