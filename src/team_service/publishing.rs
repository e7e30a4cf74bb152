//! Publishes the index of a brain's clone, so that every server answers from it.

use actors::{ServerWorker, Setup};
use index::Index;
use team::{BrainId, PublishMode, Published, TeamStore};

/// Why an index is not published.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PublishError {
    #[error("failed to update the clone's index")]
    Refresh(#[from] actors::StartError),
    #[error("failed to read the clone's index")]
    Index(#[from] index::Error),
    #[error("failed to read the clone")]
    Git(#[from] git::Error),
    #[error(transparent)]
    Team(#[from] team::Error),
}

/// Brings the clone's index up to date, and publishes it unless a newer commit is published already. `None` if there was
/// nothing to do.
pub(crate) fn publish(
    store: &TeamStore,
    worker: &ServerWorker,
    setup: &Setup,
    brain: BrainId,
) -> Result<Option<Published>, PublishError> {
    let repository =
        git::Repository::open(setup.brain.root())?.with_default_branch(setup.default_branch.as_deref());
    let commit = repository.default_branch()?.tip;
    let Some(row) = store.brain_by_id(brain)? else { return Ok(None) };
    if let Some(served) = row.served_commit.as_deref().and_then(|served| served.parse().ok()) {
        // Another server has a newer clone, or one with another history: the next fetch decides.
        let is_newer = served == commit || repository.contains(commit, served)?;
        if !is_newer && repository.contains(served, commit)? {
            return Ok(None);
        }
        if served == commit && row.generation > 0 {
            return Ok(None);
        }
    }
    worker.refresh_index(setup)?;
    let snapshot = Index::open(&setup.brain.derived_folder())?.pin()?;
    if snapshot.generation() == 0 {
        return Ok(None);
    }
    let published =
        store.publish(brain, &snapshot, &commit.to_string(), row.generation, PublishMode::Changed)?;
    tracing::info!(%brain, generation = published.generation, units = published.units_written, "published");
    Ok(Some(published))
}
