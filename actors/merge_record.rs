//! Records what became of branches that were merged otherwise than by the inbox: with git, or at the remote. Such a merge
//! may have what was rejected, and may leave out what was not.

use git::{CommitId, Repository};
use jiff::Timestamp;
use knowledge::{Document, name};
use queue::{Capture, Decision, FileDecision, Ledger, PullState, Queue};

use crate::review_remote::ReviewError;

/// Why a file counts as rejected that the merge of its branch does not have.
const LEFT_OUT: &str = "left out when its branch was merged";
/// How many captures are looked at whose branches are neither merged nor closed as far as is recorded.
const CAPTURES_MAX: usize = 100;

/// How what a merge has of a branch differs from what was decided about the branch's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergeOutcome {
    /// The paths of files that were rejected, and that the merge has.
    pub rejected_in_it: Vec<String>,
    /// The paths of files that were not rejected, and that the merge does not have.
    pub left_out: Vec<String>,
}

/// Compares what the default branch has of a merged branch with what was decided.
///
/// # Errors
/// When the repository cannot be read.
pub fn merge_outcome(
    repository: &Repository,
    decisions: &[FileDecision],
    branch: &str,
    commit: CommitId,
) -> Result<MergeOutcome, git::Error> {
    let of_branch = || decisions.iter().filter(|decided| decided.branch == branch);
    let rejected = || of_branch().filter(|decided| matches!(decided.decision, Decision::Rejected { .. }));
    let is_decided = |path: &str| {
        of_branch().any(|decided| decided.path == path && !matches!(decided.decision, Decision::Later { .. }))
    };
    let mut outcome = MergeOutcome::default();
    let files = repository.merged_files(commit)?;
    // A merge at the remote may be known before its commits are fetched.
    if !files.iter().any(|file| file.is_merged) && repository.merged_among([commit], None)?.is_empty() {
        return Ok(outcome);
    }
    for file in files {
        if file.is_left_out && !is_decided(&file.path) {
            outcome.left_out.push(file.path);
        } else if file.is_merged && rejected().any(|decided| decided.path == file.path) {
            outcome.rejected_in_it.push(file.path);
        }
    }
    Ok(outcome)
}

/// Records of a branch that is merged at `commit` which of its files are rejected and which are not.
///
/// # Errors
/// When the repository or the queue cannot be used.
pub(crate) fn record_merge(
    repository: &Repository,
    queue: &dyn Ledger,
    capture: &Capture,
    commit: CommitId,
    now: Timestamp,
) -> Result<(), ReviewError> {
    let Some(branch) = capture.branch.as_deref() else { return Ok(()) };
    let outcome = merge_outcome(repository, &queue.decisions()?, branch, commit)?;
    // No session proposes these again.
    let is_of_session = ![queue::ORIGIN_EDIT, queue::ORIGIN_REFLECTION].contains(&capture.origin.as_str());
    for path in &outcome.left_out {
        if is_of_session && let Some(content) = repository.read_at(commit, path)? {
            let text = String::from_utf8_lossy(&content);
            let unit = Document::parse(text.as_ref()).and_then(|document| document.unit(path)).ok();
            let id = unit.as_ref().map_or_else(|| name::file_stem(path), |unit| unit.id.as_str());
            let title = unit.as_ref().map_or(path.as_str(), |unit| unit.title.as_str());
            queue.remember_rejected(branch, id, title, Some(LEFT_OUT), now)?;
        }
    }
    let left_out = Decision::Rejected { because: Some(LEFT_OUT.to_owned()) };
    for (paths, decision) in [(outcome.left_out, left_out), (outcome.rejected_in_it, Decision::Merged)] {
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        if !paths.is_empty() {
            queue.decide(branch, &paths, &decision, now)?;
        }
    }
    Ok(())
}

/// Records the captures whose branches are merged without it being recorded, also where the branch is deleted.
///
/// # Errors
/// When the repository or the queue cannot be used.
pub(crate) fn record_merged(
    repository: &Repository,
    queue: &Queue,
    now: Timestamp,
) -> Result<(), ReviewError> {
    let mut captures = Vec::new();
    for capture in queue.undecided(CAPTURES_MAX)? {
        let (Some(branch), Some(recorded)) = (&capture.branch, &capture.commit) else { continue };
        let commit: CommitId = match repository.tip(branch)? {
            Some(tip) => tip,
            None => recorded.parse().map_err(git::Error::from)?,
        };
        captures.push((capture, commit));
    }
    let merged = repository.merged_among(captures.iter().map(|(_, commit)| *commit), None)?;
    for (capture, commit) in captures.into_iter().filter(|(_, commit)| merged.contains(commit)) {
        record_merge(repository, queue, &capture, commit, now)?;
        queue.set_pull_state(capture.id, capture.commit.as_deref(), PullState::Merged)?;
    }
    Ok(())
}
