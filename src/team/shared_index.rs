//! A brain's index in PostgreSQL: publishing a local generation, and answering questions from what was published.
//!
//! The source of truth is git. A server that holds a clone builds an ordinary local index, and [`TeamStore::publish`] writes
//! what differs from the published generation in one transaction. A [`TeamSnapshot`] is an [`index::Reader`] over one
//! generation. Nothing here embeds a text.

mod error;
mod lists;
mod postings;
mod prefetched;
mod publish;
mod source;
mod team_snapshot;
#[cfg(test)]
mod test_database;
mod words;

pub use error::Error as IndexError;
pub use publish::{Mode as PublishMode, Published};
pub use source::{Source, SourceEmbedding, SourceUnit, UnitDigest};
pub use team_snapshot::{EF_SEARCH, EXACT_CHUNKS_MAX, TeamSnapshot};

use crate::store::PooledClient;
use crate::{BrainId, Result, TeamStore};

/// The dimensions of the vectors that the tables hold; those of the built-in model.
pub const DIMENSIONS: usize = 384;

impl TeamStore {
    /// Publishes what differs between a local generation and the published one, in one transaction. Readers keep the
    /// generation that they have pinned. `commit` is the commit that the local generation was built from.
    ///
    /// # Errors
    /// [`IndexError::OtherGeneration`] if the published generation is not `expected_generation`; when the local index or
    /// the database fails. Nothing is changed then.
    pub fn publish(
        &self,
        brain: BrainId,
        source: &dyn Source,
        commit: &str,
        expected_generation: i64,
        mode: PublishMode,
    ) -> Result<Published> {
        self.brain(brain).write(|transaction| {
            // A whole brain takes longer than a statement of the ledger may.
            transaction.batch_execute(
                "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0",
            )?;
            Ok(publish::publish(transaction.client(), brain.0, source, commit, expected_generation, mode)?)
        })
    }

    /// Deletes what is published of a brain.
    ///
    /// # Errors
    /// When the database fails.
    pub fn unpublish(&self, brain: BrainId) -> Result<()> {
        self.brain(brain).write(|transaction| Ok(publish::unpublish(transaction.client(), brain.0)?))
    }

    /// Pins the newest published generation of a brain.
    ///
    /// # Errors
    /// [`IndexError::NoSuchBrain`], or when the database fails.
    pub fn snapshot(&self, brain: BrainId) -> Result<TeamSnapshot<PooledClient>> {
        match TeamSnapshot::open(self.checkout()?, brain.0).map_err(crate::Error::from) {
            // The connection was lost while nobody used it.
            Err(error) if error.can_retry() => Ok(TeamSnapshot::open(self.checkout_answering()?, brain.0)?),
            opened => opened,
        }
    }
}
