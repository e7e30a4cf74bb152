//! Branches that were made for review, but not queued: a process that was killed between the two has told nobody.

use git::Repository;
use jiff::Timestamp;
use queue::Queue;

use crate::notes::{self, NoteError};
use crate::reflection_message::REFLECTION_BRANCH_PREFIX;
use crate::review::{EDIT_BRANCH_PREFIX, IMPORT_BRANCH_PREFIX};
use crate::review_remote::lock;
use crate::setup::Setup;
use crate::taken_over::TakenOver;

/// Queues them. Returns how many there were. A branch of agents counts until the queue has its last commit, any other one
/// until the queue knows it: what somebody adds to that is their own. Another machine's does not count, nor one whose
/// capture was forgotten.
///
/// # Errors
/// When the repository or the queue cannot be used.
pub(crate) fn queue_unqueued(
    setup: &Setup,
    repository: &Repository,
    queue: &Queue,
    now: Timestamp,
) -> Result<usize, NoteError> {
    let taken_over = TakenOver::read(queue)?;
    let mut queued = 0;
    for branch in repository.pending_branches()? {
        let is = |prefix: &str| branch.name.starts_with(prefix);
        let known = queue.capture_of_branch(&branch.name)?;
        let (is_agents, commit) = (notes::is_agents(&branch.name), branch.commit.to_string());
        if known.is_none() {
            let taken_over = taken_over.0.get(&branch.name).map(|at| at.commit.clone());
            let left = [taken_over, queue.left_at(&branch.name)?];
            // Agents write to a branch of this machine's name, whatever became of what it had.
            if left.iter().flatten().any(|at| !is_agents || *at == commit) {
                continue;
            }
            // Another machine's, which has delivered it: ours is queued before it is pushed. Recorded, as it is this no less
            // when it is gone at the remote.
            if repository.remote_tip(&branch.name)? == Some(branch.commit) {
                queue.leave(&branch.name, &commit, now)?;
                continue;
            }
        }
        let origin = if is_agents {
            if known.and_then(|capture| capture.commit) == Some(commit) {
                continue;
            }
            queue::ORIGIN_NOTES
        } else if known.is_some() {
            continue;
        } else if is(EDIT_BRANCH_PREFIX) {
            queue::ORIGIN_EDIT
        } else if is(IMPORT_BRANCH_PREFIX) {
            queue::ORIGIN_IMPORT
        } else if is(REFLECTION_BRANCH_PREFIX) {
            queue::ORIGIN_REFLECTION
        } else {
            continue;
        };
        // An agent holds it until what it writes is queued: it may have written more since the branches were listed.
        let _held = lock(repository)?;
        if repository.tip(&branch.name)? != Some(branch.commit) {
            continue;
        }
        let files =
            repository.branch_files(&branch.name)?.len() + repository.branch_removals(&branch.name)?.len();
        notes::deliver(setup, origin, &branch.name, branch.commit, files, now)?;
        queued += 1;
    }
    Ok(queued)
}
