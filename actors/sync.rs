//! Synchronizes with the remote: brings what was merged into the brain's checkout, and records in the queue
//! what was decided about each branch. Any running process may do it, in the background of its work; one at a
//! time for each brain.
//!
//! A sync can be killed at any point and repeated. It deletes only branches of nugget that are merged, and only
//! at the commit that it has recorded for them; it changes the work tree only by a fast-forward that loses
//! nothing.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use git::{CommitId, FastForward, Lock, Repository};
use github::{GitHub, Pull, Slug};
use jiff::{SignedDuration, Timestamp};
use queue::{Capture, Ledger, PullState, Queue, Stage, State};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use crate::background::Recurring;
use crate::batch_window::is_batch;
use crate::failure::{Failure, FailureClass, error_chain};
use crate::merge_record::record_merge;
use crate::other_machines::{Followed, follow_all};
use crate::pipeline::{self, Findings};
use crate::proposal::{MergeState, Plan, ProposalInput, Recreation, parse_commit};
use crate::pull_request_text;
use crate::remote::{RemoteAccess, comment_branch_left_alone, pull_state};
use crate::review::{Reviewing, decided_summary, forget_closed, reject_closed};
use crate::review_remote::{PushedEarlier, finish_later, push_merged_earlier};
use crate::setup::Setup;

/// The name of a sync's report in the queue, for `nugget status`.
pub const SYNC_REPORT: &str = "sync";
/// The least time between the syncs of processes that start one after the other.
const INTERVAL_MIN: Duration = Duration::from_secs(30);
/// How often a process looks whether there is a remote by now.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long a worker with nothing else to do waits for its sync.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long another process may hold the repository.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
/// How long after its capture a closed pull request may be opened again, and how many captures are looked at for it.
const REOPENED_WITHIN: SignedDuration = SignedDuration::from_hours(30 * 24);
const REOPENED_AMONG_MAX: usize = 1000;
/// How many pull requests that are no longer open one sync requests, one by one.
const PULL_REQUESTS_MAX: usize = 50;

/// What a sync has found and done, as `nugget sync --json` has it. The queue may have reports with earlier names of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncReport {
    /// The remote's address, without any secret.
    pub remote: String,
    /// The remote's default branch.
    pub branch: String,
    /// Whether it had new commits.
    #[serde(alias = "news")]
    pub has_new_commits: bool,
    /// Whether the checkout was fast-forwarded to it.
    pub moved: bool,
    /// Why the checkout was not fast-forwarded, if it lacks commits.
    #[serde(alias = "left")]
    pub not_moved_because: Option<String>,
    /// Whether what was merged offline was pushed.
    #[serde(default)]
    pub pushed: bool,
    /// Whether the remote refused it, because it takes no pushes of its default branch.
    #[serde(alias = "refused", default)]
    pub is_refused: bool,
    /// Captures that were merged since the last sync.
    pub merged: Vec<i64>,
    /// Captures that a person has closed since the last sync.
    pub closed: Vec<i64>,
    /// Captures that nugget has closed, as every file of them is on the default branch already.
    pub empty: Vec<i64>,
    /// Captures whose branch is made again on what was merged meanwhile.
    #[serde(alias = "anew")]
    pub recreated: Vec<i64>,
    /// Captures whose branch should be made again, but is left alone as somebody has added to it.
    pub added_to: Vec<i64>,
    /// How many branches that wait for review here were brought to what the remote has of them.
    #[serde(default)]
    pub updated: usize,
    /// How many branches of other machines wait for review here now.
    #[serde(default)]
    pub taken_over: usize,
    /// How many captures were queued for delivery: from before there was a remote, or with notes that it does not have.
    pub delivered_late: usize,
    /// How many captures have no pull request because there is no token for GitHub.
    #[serde(default)]
    pub without_token: usize,
    /// How many captures had their branch deleted, here or at the remote.
    pub deleted: usize,
    /// How many requests were sent to GitHub's API.
    pub requests: u64,
    /// What failed after the fetch, whose result is kept.
    #[serde(alias = "trouble")]
    pub error: Option<String>,
}

/// How a sync ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncOutcome {
    /// It was carried out, completely unless [`SyncReport::error`] says otherwise.
    Done(Box<SyncReport>),
    /// There is no remote, or nothing is to be sent to it.
    NoRemote,
    /// Another process is syncing.
    UnderWay,
}

/// Why a sync failed, in words for a person.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SyncError(String);

impl<E: Into<Failure>> From<E> for SyncError {
    fn from(error: E) -> Self {
        Self(error.into().message)
    }
}

/// Fetches from the remote and acts on what has changed. Blocks while the network is used, within deadlines;
/// creates its own runtime.
///
/// # Errors
/// When the fetch fails, or the repository or the queue cannot be used. A later failure is
/// [`SyncReport::error`].
pub fn sync(setup: &Setup, queue: &dyn Ledger, now: Timestamp) -> Result<SyncOutcome, SyncError> {
    let lock = setup.places.folder().join("sync.lock");
    let Some(_lock) = Lock::try_acquire(&lock)? else {
        return Ok(SyncOutcome::UnderWay);
    };
    let repository = setup.repository()?;
    let remote = repository.remote()?;
    let Some(remote) = remote.filter(|_| setup.delivery.enabled) else { return Ok(SyncOutcome::NoRemote) };
    // Reported also when it fails, so that the next process does not try again at once while offline.
    let synced = run(setup, &repository, remote, queue);
    if !synced.as_ref().is_ok_and(|synced| synced.error.is_none()) {
        // A person may log in before the next sync.
        github::forget_tokens();
    }
    let report = match &synced {
        Ok(synced) => serde_json::to_string(synced),
        Err(SyncError(message)) => {
            serde_json::to_string(&SyncReport { error: Some(message.clone()), ..SyncReport::default() })
        }
    };
    if let Ok(report) = report {
        queue.report(SYNC_REPORT, &report, now)?;
    }
    synced.map(|synced| SyncOutcome::Done(Box::new(synced)))
}

/// Has the branches that wait for review at the remote wait here too, as they were fetched last: for a brain that was just
/// cloned. Returns how many there are. A sync does the same.
///
/// # Errors
/// When the repository or the queue cannot be used.
pub fn follow_fetched(setup: &Setup, queue: &dyn Ledger, now: Timestamp) -> Result<usize, SyncError> {
    let repository = setup.repository()?;
    let remote = repository.remote()?.filter(|_| setup.delivery.enabled);
    let Some(remote) = remote else { return Ok(0) };
    let runtime = new_runtime()?;
    let _entered = runtime.enter();
    let access = RemoteAccess::discover(remote, &setup.delivery.api)?;
    let Followed { updated, taken_over } = runtime.block_on(follow_all(&repository, queue, &access, now))?;
    Ok(updated + taken_over)
}

/// Of several threads, as the ledger may be one that blocks a thread.
fn new_runtime() -> Result<Runtime, SyncError> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().map_err(|error| SyncError(error_chain(&error)))
}

/// The report of the last sync, and when it was made.
///
/// # Errors
/// When the queue cannot be read.
pub fn last_report(queue: &Queue) -> Result<Option<(Timestamp, SyncReport)>, queue::Error> {
    let report = queue.last_report(SYNC_REPORT)?;
    Ok(report.and_then(|(_, at, body)| Some((at, serde_json::from_str(&body).ok()?))))
}

/// Whether any process has synced within this time. A clock that was set back does not delay the next sync.
///
/// # Errors
/// When the queue cannot be read.
pub fn is_recent(queue: &Queue, within: Duration, now: Timestamp) -> Result<bool, queue::Error> {
    let Some((_, at, _)) = queue.last_report(SYNC_REPORT)? else { return Ok(false) };
    let ago = now.duration_since(at);
    Ok(!ago.is_negative() && ago.unsigned_abs() < within)
}

fn run(
    setup: &Setup,
    repository: &Repository,
    remote: git::Remote,
    queue: &dyn Ledger,
) -> Result<SyncReport, SyncError> {
    let runtime = new_runtime()?;
    let access = RemoteAccess::discover(remote, &setup.delivery.api)?;
    failpoint::here!("sync-before-fetch");
    let fetched = repository.fetch(&access.session())?;
    failpoint::here!("sync-after-fetch");
    let mut synced = SyncReport {
        remote: access.display_url(),
        branch: fetched.default_branch,
        has_new_commits: fetched.moved,
        ..SyncReport::default()
    };
    let run =
        SyncRun { repository, access: &access, queue, is_server: setup.is_server, merged: OnceLock::new() };
    if let Err(failure) = run.act_on_fetch(&runtime, &mut synced) {
        tracing::warn!(error = failure.message, "a sync was not completed");
        synced.error = Some(failure.message);
    }
    Ok(synced)
}

/// One sync, after its fetch.
struct SyncRun<'a> {
    repository: &'a Repository,
    access: &'a RemoteAccess,
    queue: &'a dyn Ledger,
    is_server: bool,
    /// The commits of captures that the remote's default branch has, or what they change. Found at once for all.
    merged: OnceLock<HashSet<CommitId>>,
}

impl SyncRun<'_> {
    fn act_on_fetch(&self, runtime: &Runtime, synced: &mut SyncReport) -> Result<(), Failure> {
        self.catch_up(synced)?;
        // A refusal stays until a person acts, and the rest of a sync does not depend on it.
        let refused = match push_merged_earlier(self.repository, self.queue, self.access)? {
            PushedEarlier::Nothing => Ok(()),
            PushedEarlier::Pushed => {
                synced.pushed = true;
                Ok(())
            }
            PushedEarlier::Refused { why, is_protected } => {
                synced.is_refused = is_protected;
                Err(why)
            }
        };
        synced.delivered_late = self.queue.redeliver()?;
        if !self.is_server {
            let followed = follow_all(self.repository, self.queue, self.access, Timestamp::now());
            let Followed { updated, taken_over } = runtime.block_on(followed)?;
            (synced.updated, synced.taken_over) = (updated, taken_over);
        }
        let awaiting_decision = self.queue.awaiting_decision()?;
        let closed = self.closed_with_branch()?;
        if awaiting_decision.is_empty() && closed.is_empty() {
            return refused;
        }
        let decided = runtime.block_on(self.record_decisions(awaiting_decision, closed, synced));
        if let Ok(Some((github, _))) = self.access.github() {
            synced.requests = github.requests();
        }
        if decided.is_ok() && !self.is_server {
            self.queue_pull_requests(synced)?;
        }
        decided.and(refused)
    }

    /// Queues the captures whose branch was pushed without a token, once there is one.
    fn queue_pull_requests(&self, synced: &mut SyncReport) -> Result<(), Failure> {
        let mut waiting = self.queue.awaiting_decision()?;
        waiting.retain(|capture| capture.pull_number.is_none() && capture.pushed == capture.commit);
        if self.access.github().is_err() {
            synced.without_token = waiting.len();
        }
        for capture in waiting.into_iter().filter(|_| self.access.has_pull_requests()) {
            let Some(branch) = &capture.branch else { continue };
            // One that the remote does not have was pushed to another one.
            if self.repository.remote_tip(branch)? == pushed_commit(&capture) {
                let input = self.queue.saved_result(capture.id)?.unwrap_or_default();
                self.queue.set_pull_state(capture.id, capture.commit.as_deref(), PullState::Open)?;
                synced.delivered_late +=
                    usize::from(self.queue.reopen(capture.id, Stage::Delivery, &input)?);
            }
        }
        Ok(())
    }

    fn catch_up(&self, synced: &mut SyncReport) -> Result<(), Failure> {
        let held = self.lock()?;
        match self.repository.catch_up(&held)? {
            FastForward::Done { .. } => synced.moved = true,
            FastForward::AlreadyThere => {}
            FastForward::Refused(refusal) => synced.not_moved_because = Some(refusal.to_string()),
        }
        Ok(())
    }

    fn lock(&self) -> Result<Lock, Failure> {
        let path = self.repository.lock_path()?;
        Ok(Lock::acquire_within(&path, LOCK_PATIENCE)?)
    }

    /// Captures whose pull request was closed and whose branch is at the remote all the same: a person may open it again.
    fn closed_with_branch(&self) -> Result<Vec<Capture>, Failure> {
        if !self.access.has_pull_requests() {
            return Ok(Vec::new());
        }
        let mut closed = self.queue.captures(REOPENED_AMONG_MAX)?;
        let since = Timestamp::now() - REOPENED_WITHIN;
        closed.retain(|capture| {
            capture.pull_state == Some(PullState::Closed)
                && capture.pull_number.is_some()
                && capture.state == State::Done
                && capture.added > since
        });
        if !closed.is_empty() {
            let there: HashMap<_, _> = self.repository.remote_branches()?.into_iter().collect();
            closed.retain(|capture| {
                capture.branch.as_ref().is_some_and(|branch| there.contains_key(branch.as_str()))
            });
        }
        Ok(closed)
    }

    /// Finds out what was decided about each capture whose decision was open, and whether one that was closed is open again,
    /// or merged.
    async fn record_decisions(
        &self,
        mut awaiting_decision: Vec<Capture>,
        closed: Vec<Capture>,
        synced: &mut SyncReport,
    ) -> Result<(), Failure> {
        let default = self.repository.default_branch()?;
        let mut all = awaiting_decision.iter();
        let github_repo = match self.access.github() {
            // Nothing of them is there but their branches.
            Err(_) if !self.is_server && all.all(|capture| capture.pull_number.is_none()) => None,
            found => found?,
        };
        let open = match github_repo {
            // One request for all of them.
            Some((github, slug))
                if awaiting_decision.iter().chain(&closed).any(|capture| capture.pull_number.is_some()) =>
            {
                let open = github.open_pulls(slug, git::BRANCH_PREFIX).await?;
                open.into_iter().map(|pull| (pull.number, pull)).collect()
            }
            _ => HashMap::<u64, Pull>::new(),
        };
        let open_pull = |capture: &Capture| {
            let pull = open.get(&capture.pull_number?)?;
            (Some(&pull.branch) == capture.branch.as_ref()).then_some(pull)
        };
        let merged =
            self.repository.merged_among(closed.iter().filter_map(pushed_commit), Some(default.tip))?;
        for capture in closed {
            if open_pull(&capture).is_some()
                || pushed_commit(&capture).is_some_and(|commit| merged.contains(&commit))
            {
                if let (queue::ORIGIN_NOTES, Some(branch)) = (capture.origin.as_str(), &capture.branch) {
                    forget_closed(self.queue, branch)?;
                }
                self.queue.set_pull_state(capture.id, capture.commit.as_deref(), PullState::Open)?;
                awaiting_decision.push(capture);
            }
        }
        // Several captures may share a pull request.
        let mut requested: HashMap<u64, Option<Pull>> = HashMap::new();
        let mut completed = HashSet::new();
        let mut first_error = Ok(());
        for capture in &awaiting_decision {
            let handled = async {
                let state = match (capture.pull_number, github_repo) {
                    (Some(_), Some(_)) if open_pull(capture).is_some() => PullState::Open,
                    (Some(number), Some((github, slug)))
                        if requested.contains_key(&number) || requested.len() < PULL_REQUESTS_MAX =>
                    {
                        if let Entry::Vacant(unknown) = requested.entry(number) {
                            unknown.insert(match github.pull(slug, number).await {
                                Ok(pull) => Some(pull),
                                Err(github::Error::NotFound { .. }) => None,
                                Err(error) => return Err(error.into()),
                            });
                        }
                        // After a move to another repository the number is another pull request's there, or none's.
                        let own = requested[&number].as_ref();
                        match own.filter(|pull| Some(&pull.branch) == capture.branch.as_ref()) {
                            Some(pull) => pull_state(&pull.state),
                            None => self.state_in(capture, default.tip)?,
                        }
                    }
                    _ => self.state_in(capture, default.tip)?,
                };
                self.apply_decision(capture, state, default.tip, github_repo, synced).await?;
                match (open_pull(capture).filter(|_| state == PullState::Open), github_repo) {
                    (Some(pull), Some((github, slug))) if is_batch(&pull.branch) => {
                        match completed.insert(pull.number) {
                            true => self.complete_text(github, slug, pull).await,
                            false => Ok(()),
                        }
                    }
                    (Some(pull), _) => self.queue_outdated_text(capture, pull, synced),
                    (None, _) => Ok(()),
                }
            };
            match handled.await {
                // This would fail for the others as well.
                Err(failure) if matches!(failure.class, FailureClass::BlocksStage(_)) => return Err(failure),
                handled => first_error = first_error.and(handled),
            }
        }
        first_error
    }

    async fn apply_decision(
        &self,
        capture: &Capture,
        state: PullState,
        tip: CommitId,
        github_repo: Option<(&GitHub, &Slug)>,
        synced: &mut SyncReport,
    ) -> Result<(), Failure> {
        let has_grown = state != PullState::Open && self.has_grown(capture, tip)?;
        match state {
            PullState::Open => return self.update_open(capture, tip, github_repo, synced).await,
            PullState::Merged => {
                if let Some(commit) = pushed_commit(capture) {
                    record_merge(self.repository, self.queue, capture, commit, Timestamp::now())
                        .map_err(|error| Failure::retryable(error_chain(&error)))?;
                }
                synced.deleted += usize::from(self.delete_branch(capture, tip)?);
                synced.merged.push(capture.id);
            }
            PullState::Closed => {
                // By nugget, if all of it was merged otherwise: then its branch is deleted as well.
                if self.is_in(capture, tip)? {
                    synced.deleted += usize::from(self.delete_branch(capture, tip)?);
                } else if let (queue::ORIGIN_NOTES, Some(branch), Some(commit)) =
                    (capture.origin.as_str(), &capture.branch, pushed_commit(capture))
                {
                    // Agents go on writing to it.
                    reject_closed(self.repository, self.queue, branch, commit, Timestamp::now())
                        .map_err(|error| Failure::retryable(error_chain(&error)))?;
                }
                synced.closed.push(capture.id);
            }
        }
        if has_grown {
            // Only what was pushed is decided. The rest is delivered as what is written after a merge is.
            self.queue.set_pull_state(capture.id, capture.commit.as_deref(), PullState::Open)?;
            synced.delivered_late += usize::from(self.queue.reopen(capture.id, Stage::Delivery, &[])?);
            return Ok(());
        }
        Ok(self.queue.set_pull_state(capture.id, capture.commit.as_deref(), state)?)
    }

    /// Adds to the text of a shared pull request the sections of what was pushed to its branch without a token, by whichever
    /// machine.
    async fn complete_text(&self, github: &GitHub, slug: &Slug, pull: &Pull) -> Result<(), Failure> {
        let Some(tip) = self.repository.remote_tip(&pull.branch)? else { return Ok(()) };
        let mut text = pull.body.clone();
        for made in self.repository.branch_commits(tip)? {
            let files = self.access.files_at(&made.commit.to_string());
            if text.contains(&files) {
                continue;
            }
            let message = self.repository.message_of(made.commit)?;
            let added = pull_request_text::body_of_commit(&message, &made, &files);
            if let Some(updated) = added.and_then(|added| pull_request_text::updated(&text, &added)) {
                text = updated;
            }
        }
        if text != pull.body {
            github.edit_pull(slug, pull.number, &text).await?;
        }
        Ok(())
    }

    /// Queues a capture for delivery whose branch was pushed without a token after the text of its pull request was written.
    fn queue_outdated_text(
        &self,
        capture: &Capture,
        pull: &Pull,
        synced: &mut SyncReport,
    ) -> Result<(), Failure> {
        let is_at = |commit: &Option<String>| commit.as_ref() == Some(&pull.commit);
        if is_at(&capture.pushed)
            && is_at(&capture.commit)
            && pull_request_text::is_of_another_commit(&pull.body, &pull.commit)
        {
            let input = self.queue.saved_result(capture.id)?.unwrap_or_default();
            synced.delivered_late += usize::from(self.queue.reopen(capture.id, Stage::Delivery, &input)?);
        }
        Ok(())
    }

    /// Whether a branch of agents has notes here that the remote has never had: they could not be combined with what
    /// somebody has added there.
    fn has_grown(&self, capture: &Capture, tip: CommitId) -> Result<bool, Failure> {
        let (Some(branch), Some(commit)) = (&capture.branch, &capture.commit) else { return Ok(false) };
        if capture.origin != queue::ORIGIN_NOTES || Some(commit) == capture.pushed.as_ref() {
            return Ok(false);
        }
        let merged = self.repository.merged_among([parse_commit(commit)?], Some(tip))?;
        Ok(merged.is_empty() && self.repository.tip(branch)?.is_some())
    }

    /// What is known of a capture without its pull request.
    fn state_in(&self, capture: &Capture, tip: CommitId) -> Result<PullState, Failure> {
        Ok(if self.is_in(capture, tip)? { PullState::Merged } else { PullState::Open })
    }

    /// Whether the default branch has a capture's commit or what it changes, as after a squashed or rebased merge.
    fn is_in(&self, capture: &Capture, tip: CommitId) -> Result<bool, Failure> {
        let Some(commit) = pushed_commit(capture) else { return Ok(false) };
        if self.repository.contains(tip, commit)? {
            return Ok(true);
        }
        Ok(match self.planned(capture)? {
            Some((_, plan)) => self.merge_state(&plan, commit, tip)? == MergeState::AlreadyMerged,
            None => self.is_commit_merged(commit, tip)?,
        })
    }

    fn is_commit_merged(&self, commit: CommitId, tip: CommitId) -> Result<bool, Failure> {
        if let Some(merged) = self.merged.get() {
            return Ok(merged.contains(&commit));
        }
        let awaiting = self.queue.awaiting_decision()?;
        let commits = awaiting.iter().filter_map(pushed_commit).chain([commit]);
        let merged = self.repository.merged_among(commits, Some(tip))?;
        Ok(self.merged.get_or_init(|| merged).contains(&commit))
    }

    /// How a plan stands to the default branch. What was merged by hand may have been renamed or removed since.
    fn merge_state(&self, plan: &Plan, commit: CommitId, tip: CommitId) -> Result<MergeState, Failure> {
        let state = plan.merge_state(self.repository, tip)?;
        let is_merged = state == MergeState::Independent && self.is_commit_merged(commit, tip)?;
        Ok(if is_merged { MergeState::AlreadyMerged } else { state })
    }

    /// The findings and the plan of a capture's branch, if they are kept.
    fn planned(&self, capture: &Capture) -> Result<Option<(Findings, Plan)>, Failure> {
        let kept = self.queue.saved_result(capture.id)?;
        Ok(match kept.and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
            Some(ProposalInput::Planned { found, plan }) => Some((found, plan)),
            _ => None,
        })
    }

    /// Updates a branch that waits for its review, if what was merged meanwhile concerns it.
    async fn update_open(
        &self,
        capture: &Capture,
        tip: CommitId,
        github_repo: Option<(&GitHub, &Slug)>,
        synced: &mut SyncReport,
    ) -> Result<(), Failure> {
        if self.finish_reviewed(capture, synced).await? {
            return Ok(());
        }
        let (Some(commit), Some((found, plan))) = (pushed_commit(capture), self.planned(capture)?) else {
            return Ok(());
        };
        let state = self.merge_state(&plan, commit, tip)?;
        if state == MergeState::Independent {
            return Ok(());
        }
        if capture.branch.as_deref().is_some_and(is_batch) {
            if let (Some((github, slug)), Some(number), MergeState::Conflicting) =
                (github_repo, capture.pull_number, state)
            {
                let text = "What this branch edits has been edited on the default branch since. A branch of \
                    several sessions is not made again: merge the default branch into it.";
                github.comment_once(slug, number, "nugget:batch-conflict", text).await?;
            }
            return Ok(());
        }
        let remote_tip = self.repository.remote_tip(&plan.branch)?;
        let local_tip = self.repository.tip(&plan.branch)?;
        let is_unchanged = remote_tip == Some(commit) && local_tip.is_none_or(|tip| tip == commit);
        let (Some((github, slug)), Some(number)) = (github_repo, capture.pull_number) else { return Ok(()) };
        match (state, is_unchanged) {
            (_, false) => {
                comment_branch_left_alone(github, slug, number).await?;
                synced.added_to.push(capture.id);
            }
            (MergeState::AlreadyMerged, true) => {
                let text = "All of this is on the default branch already.";
                github.comment_once(slug, number, "nugget:empty", text).await?;
                github.close_pull(slug, number).await?;
                failpoint::here!("sync-after-close");
                synced.deleted += usize::from(self.delete_branch(capture, tip)?);
                self.queue.set_pull_state(capture.id, capture.commit.as_deref(), PullState::Merged)?;
                synced.empty.push(capture.id);
            }
            (_, true) if self.repository.is_checked_out(&plan.branch)? => {}
            (_, true) => {
                let recreation = Recreation { found, before: plan, commit: commit.to_string(), plan: None };
                let input = ProposalInput::Recreate(recreation);
                if self.queue.reopen(capture.id, Stage::Git, &pipeline::encode(&input)?)? {
                    synced.recreated.push(capture.id);
                }
            }
        }
        Ok(())
    }

    /// Finishes a branch of which everything was decided in the inbox. Returns whether its review has begun there: its
    /// branch is then no longer made again.
    async fn finish_reviewed(&self, capture: &Capture, synced: &mut SyncReport) -> Result<bool, Failure> {
        let Some(branch) = capture.branch.as_deref() else { return Ok(false) };
        let begun = decided_summary(self.repository, self.queue, branch, Timestamp::now());
        match begun.map_err(|error| Failure::retryable(error_chain(&error)))? {
            Reviewing::NotBegun => return Ok(false),
            Reviewing::UnderWay => return Ok(true),
            Reviewing::Decided { summary, commit } => {
                let finished = finish_later(
                    self.repository,
                    self.queue,
                    self.access,
                    Some(capture),
                    branch,
                    commit,
                    &summary,
                );
                let state = finished.await?;
                match state {
                    None => return Ok(true),
                    Some(PullState::Merged) => synced.merged.push(capture.id),
                    Some(_) => synced.closed.push(capture.id),
                }
                synced.deleted += 1;
            }
        }
        Ok(true)
    }

    /// Deletes a branch of nugget, here and at the remote, if it is at the commit that is recorded. A branch
    /// that is checked out stays, and so does one to which somebody has added what `tip` does not have.
    fn delete_branch(&self, capture: &Capture, tip: CommitId) -> Result<bool, Failure> {
        let (Some(branch), Some(pushed)) = (capture.branch.as_deref(), pushed_commit(capture)) else {
            return Ok(false);
        };
        let mut deleted = false;
        let is_over = |commit| {
            Ok::<_, git::Error>(
                commit == pushed || !self.repository.merged_among([commit], Some(tip))?.is_empty(),
            )
        };
        if let Some(commit) = self.repository.remote_tip(branch)?
            && is_over(commit)?
        {
            match self.repository.delete_remote_branch(&self.access.session(), branch, commit) {
                Ok(existed) => deleted |= existed,
                // GitHub or a person was faster.
                Err(git::Error::Remote {
                    failure: git::RemoteFailure::Stale | git::RemoteFailure::Protected,
                    ..
                }) => {}
                Err(error) => return Err(error.into()),
            }
            failpoint::here!("sync-after-remote-delete");
        }
        if let Some(commit) = self.repository.tip(branch)?
            && is_over(commit)?
        {
            let held = self.lock()?;
            match self.repository.delete_branch(&held, branch, commit) {
                Ok(existed) => deleted |= existed,
                Err(git::Error::CheckedOut { .. } | git::Error::BranchMoved { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(deleted)
    }
}

/// The commit of a capture's branch at the remote.
fn pushed_commit(capture: &Capture) -> Option<CommitId> {
    capture.pushed.as_deref()?.parse().ok()
}

/// The syncs of one process, in the background of its work.
#[derive(Debug, Default)]
pub struct BackgroundSync {
    syncs: Recurring,
    /// When it was last looked for a remote, which starts a process.
    looked: Option<Instant>,
}

impl BackgroundSync {
    /// Starts a sync if one is due, on a thread of its own: the first one of a process unless another process
    /// has just synced, then as often as the settings say.
    pub fn start_if_due(&mut self, setup: &Setup, queue: &Queue, now: Timestamp) {
        let Some(every) = setup.delivery.sync_every.filter(|_| setup.delivery.enabled) else { return };
        let has_looked = self.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY);
        if self.is_running() || !self.syncs.is_due(every) || has_looked {
            return;
        }
        self.looked = Some(Instant::now());
        if !has_remote(setup.brain.root()) {
            return;
        }
        let within = if self.syncs.begun.is_none() { every.min(INTERVAL_MIN) } else { every };
        if is_recent(queue, within, now).unwrap_or(true) {
            return;
        }
        let (setup, queue) = (setup.clone(), queue.clone());
        self.syncs.start("sync", move || match sync(&setup, &queue, now) {
            Ok(SyncOutcome::Done(synced)) => tracing::info!(?synced, "synced"),
            Ok(SyncOutcome::NoRemote | SyncOutcome::UnderWay) => {}
            Err(error) => tracing::warn!(%error, "failed to sync"),
        });
    }

    /// Whether a sync is running that is worth waiting for.
    pub fn is_running(&self) -> bool {
        self.syncs.is_running(PATIENCE)
    }
}

/// A cheap check: most new brains have no remote.
fn has_remote(root: &Path) -> bool {
    Repository::open(root).and_then(|repository| repository.remote()).is_ok_and(|remote| remote.is_some())
}
