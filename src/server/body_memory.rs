//! The memory for request bodies, and each token's share of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::rate_limit::TokenKey;
use crate::settings::Limits;

/// Of what there is, one token may take one in so many parts.
const SHARES: usize = 4;

/// A body's share of the memory, until it is dropped.
pub(crate) struct Reserved {
    _of_token: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

pub(crate) struct BodyMemory {
    kib: usize,
    free_kib: Arc<Semaphore>,
    share_kib: usize,
    /// The free KiB of the tokens that have bodies in memory.
    shares: Mutex<HashMap<TokenKey, Arc<Semaphore>>>,
}

impl BodyMemory {
    pub(crate) fn new(limits: &Limits) -> Self {
        let kib = limits.body_bytes_in_flight_max >> 10;
        // Enough for one body of any kind.
        let share_kib = (kib / SHARES).max(limits.capture_bytes_max.div_ceil(1 << 10));
        Self { kib, free_kib: Arc::new(Semaphore::new(kib)), share_kib, shares: Mutex::default() }
    }

    /// Reserves memory for a body that is announced, before it is read: one that waits for memory in the middle would keep
    /// what it has. `None` if the token, or all together, have too much.
    pub(crate) fn reserve(&self, token: &TokenKey, bytes: usize) -> Option<Reserved> {
        let kib = u32::try_from(bytes.div_ceil(1 << 10)).ok()?;
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        // What is reserved holds its semaphore.
        shares.retain(|_, share| Arc::strong_count(share) > 1);
        let share = shares.entry(*token).or_insert_with(|| Arc::new(Semaphore::new(self.share_kib)));
        Some(Reserved {
            _of_token: Arc::clone(share).try_acquire_many_owned(kib).ok()?,
            _of_all: Arc::clone(&self.free_kib).try_acquire_many_owned(kib).ok()?,
        })
    }

    pub(crate) fn reserved_bytes(&self) -> usize {
        (self.kib - self.free_kib.available_permits()) << 10
    }
}
