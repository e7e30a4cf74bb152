//! Proposes files on a branch for review, as an import, an edit or a removal does. No session is involved.

use std::time::Duration;

use brain::{Brain, Config, StatePaths};
use git::{CommitId, Identity, Lock, NewFile, Outcome, Repository};
use jiff::Timestamp;
use queue::Queue;

use crate::error::CliError;
use crate::settings;
use crate::spawn::ensure_worker;

/// How long to wait for another process that holds the repository lock.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(60);

/// The files to propose.
pub(crate) struct Proposal {
    /// `import` or `edit`, as the queue names them.
    pub(crate) origin: &'static str,
    pub(crate) branch: String,
    pub(crate) base: CommitId,
    pub(crate) files: Vec<NewFile>,
    pub(crate) removes: Vec<String>,
    pub(crate) message: String,
}

/// A branch that was made.
pub(crate) struct Proposed {
    pub(crate) commit: String,
    /// Whether a worker pushes it now.
    pub(crate) is_delivered: bool,
}

/// Makes the branch, and queues it for delivery if the brain has a remote. It can be killed at any point and repeated.
pub(crate) fn propose(
    brain: &Brain,
    config: &Config,
    paths: &StatePaths,
    repository: &Repository,
    proposal: Proposal,
    now: Timestamp,
) -> Result<Proposed, CliError> {
    let Proposal { origin, branch, base, files, removes, message } = proposal;
    paths.create()?;
    let units = u32::try_from(files.len() + removes.len()).unwrap_or(u32::MAX);
    let lock = Lock::acquire_within(&repository.lock_path()?, LOCK_WAIT_MAX)?;
    let author = Identity::default();
    let proposed = repository.propose(
        &lock,
        &git::Proposal {
            branch: branch.clone(),
            base: Some(base),
            files,
            removes,
            message,
            time: now,
            author,
        },
    )?;
    drop(lock);
    let branch = queue::Branch { name: branch, commit: proposed.commit.to_string(), units };
    let mut is_delivered = false;
    if proposed.outcome != Outcome::NothingNew {
        is_delivered = settings::delivery(config).enabled && repository.remote()?.is_some();
        let queue = Queue::open(&paths.queue())?;
        queue.add_branch(origin, &branch, is_delivered, now)?;
        if is_delivered {
            ensure_worker(paths, brain)?;
        }
    }
    Ok(Proposed { commit: branch.commit, is_delivered })
}
