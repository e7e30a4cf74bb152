//! The shared indexes of a team's brains: publishing, and pinning a generation to read.

use crate::shared_index::publish::publish;
use crate::store::PooledClient;
use crate::{BrainId, PublishMode, Published, Result, Source, TeamSnapshot, TeamStore};

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
            Ok(publish(transaction.client(), brain.0, source, commit, expected_generation, mode)?)
        })
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
