//! Publishes the index of a brain's clone, so that every server answers from it.

use actors::{ServerWorker, Setup};
use index::Index;
use knowledge::text::error_chain;
use team::{BrainId, PublishMode, TeamStore};

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

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Something was published.
    Published,
    /// What is published is that of the clone's index.
    Same,
    /// There is nothing to publish yet, or another server has something newer.
    NotNow,
}

/// Brings the clone's index up to date, and publishes it unless a newer commit is published already.
///
/// `is_first` asks for the comparison of what is published of the same commit, too: it may be of another model, or of the
/// rules of another release. A server asks for it once; two servers of different settings would else publish in turns.
pub(crate) fn publish(
    store: &TeamStore,
    worker: &ServerWorker,
    setup: &Setup,
    brain: BrainId,
    is_first: bool,
) -> Result<Outcome, PublishError> {
    let repository =
        git::Repository::open(setup.brain.root())?.with_default_branch(setup.default_branch.as_deref());
    let commit = repository.default_branch()?.tip;
    let Some(row) = store.brain_by_id(brain)? else { return Ok(Outcome::NotNow) };
    if let Some(served) = row.served_commit.as_deref().and_then(|served| served.parse().ok()) {
        // Another server has a newer clone, or one with another history: the next fetch decides.
        let is_newer = served == commit || repository.contains(commit, served)?;
        if !is_newer && repository.contains(served, commit)? {
            return Ok(Outcome::NotNow);
        }
        if served == commit && row.generation > 0 && !is_first {
            return Ok(Outcome::Same);
        }
    }
    worker.refresh_index(setup)?;
    let snapshot = Index::open(&setup.brain.derived_folder())?.pin()?;
    if snapshot.generation() == 0 {
        return Ok(Outcome::NotNow);
    }
    let publish = |mode| store.publish(brain, &snapshot, &commit.to_string(), row.generation, mode);
    let published = match publish(PublishMode::Changed) {
        Err(error) if error.is_damaged_list() => {
            tracing::error!(%brain, error = error_chain(&error), "everything is published again");
            publish(PublishMode::Whole)?
        }
        published => published?,
    };
    if published.generation == row.generation {
        return Ok(Outcome::Same);
    }
    tracing::info!(%brain, generation = published.generation, units = published.units_written, "published");
    Ok(Outcome::Published)
}
