//! The way back: what was merged comes to the brain's checkout, and what has become of each branch to the
//! ledger. Any process that lives may do it, beside its work and never before it; one at a time for a brain.
//!
//! Everything here may be killed anywhere and repeated. It deletes nothing but branches of nugget's that
//! are merged, at the commit that it knows them at, and changes the work tree only by a fast-forward that
//! loses nothing.

use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use git::{CommitId, FastForward, Lock, Repository};
use github::{GitHub, Slug};
use jiff::Timestamp;
use queue::{Capture, PullState, Queue, Stage};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use crate::Setup;
use crate::delivery::{self, Way, of_forge, of_github, state_of};
use crate::git::{Bears, Input, with_hint};
use crate::pipeline::{Failure, chain};

/// The name under which a sync leaves word for `nugget status`.
pub const SYNC_REPORT: &str = "sync";
/// BackgroundSync of processes that start one after the other are at least this far apart.
const APART_MIN: Duration = Duration::from_secs(30);
/// How long a drainer with nothing else to do waits for its sync.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long another process may hold the repository.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
/// How many pull requests one sync asks for one by one: those that are not among the open ones any more.
const LOOK_UPS_MAX: usize = 50;
/// Our comments are told from others by it.
pub(crate) const ADDED_TO: &str = "nugget:added-to";
pub(crate) const ADDED_TO_TEXT: &str = "What this branch edits has been edited on the default branch since. Somebody has \
    added to the branch, so nugget leaves it as it is.";

/// What a sync has found and done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncReport {
    /// Where the remote is, without any secret.
    pub remote: String,
    /// The remote's default branch.
    pub branch: String,
    /// Whether it had something new.
    pub news: bool,
    /// Whether the checkout was moved to it.
    pub moved: bool,
    /// Why the checkout was left as it was, when it lacks something.
    pub left: Option<String>,
    /// Captures that were merged, or closed by a person, since the last look.
    pub merged: Vec<i64>,
    pub closed: Vec<i64>,
    /// Captures of which every file is on the default branch already: closed by nugget.
    pub empty: Vec<i64>,
    /// Captures that are made anew on what was merged meanwhile.
    pub anew: Vec<i64>,
    /// Captures that should be, and to whose branch somebody has added: left to them.
    pub added_to: Vec<i64>,
    /// Captures that were queued for delivery, as they had no remote before.
    pub delivered_late: usize,
    /// Branches that were deleted, here and at the remote.
    pub deleted: usize,
    /// Requests of GitHub's API.
    pub requests: u64,
    /// What went wrong after the fetch, which stands.
    pub trouble: Option<String>,
}

/// What came of wanting a sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncOutcome {
    Done(Box<SyncReport>),
    /// There is no remote, or nothing is to be sent to it.
    NoRemote,
    /// Another process is at it.
    UnderWay,
}

/// Why a sync has come to nothing, in words for a person.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SyncError(String);

impl From<Failure> for SyncError {
    fn from(failure: Failure) -> Self {
        Self(failure.message)
    }
}

impl From<queue::Error> for SyncError {
    fn from(error: queue::Error) -> Self {
        Self(chain(&error))
    }
}

/// Fetches, and does what follows from what has come. Blocks for as long as the network takes, within
/// deadlines; makes its own runtime.
///
/// # Errors
/// When the remote cannot be fetched, or repository or queue cannot be used. What fails after the fetch is
/// [`SyncReport::trouble`].
pub fn sync(setup: &Setup, queue: &Queue, now: Timestamp) -> Result<SyncOutcome, SyncError> {
    let lock = setup.places.folder().join("sync.lock");
    let Some(_one) = Lock::try_acquire(&lock).map_err(|error| with_hint(&error))? else {
        return Ok(SyncOutcome::UnderWay);
    };
    let repository = delivery::open(setup.brain.root(), setup.default_branch.as_deref())?;
    let remote = repository.remote().map_err(|error| with_hint(&error))?;
    let Some(remote) = remote.filter(|_| setup.delivery.enabled) else { return Ok(SyncOutcome::NoRemote) };
    // Kept also when it fails: who is offline must not ask at every turn.
    let synced = run(setup, &repository, remote, queue);
    if !synced.as_ref().is_ok_and(|synced| synced.trouble.is_none()) {
        // Whatever it was: somebody may log in before the next look.
        github::forget_tokens();
    }
    let report = match &synced {
        Ok(synced) => serde_json::to_string(synced),
        Err(SyncError(message)) => {
            serde_json::to_string(&SyncReport { trouble: Some(message.clone()), ..SyncReport::default() })
        }
    };
    if let Ok(report) = report {
        queue.report(SYNC_REPORT, &report, now)?;
    }
    synced.map(|synced| SyncOutcome::Done(Box::new(synced)))
}

/// What the last sync has left word of, and when.
///
/// # Errors
/// When the queue cannot be read.
pub fn last_report(queue: &Queue) -> Result<Option<(Timestamp, SyncReport)>, queue::Error> {
    let report = queue.last_report(SYNC_REPORT)?;
    Ok(report.and_then(|(_, at, body)| Some((at, serde_json::from_str(&body).ok()?))))
}

/// Whether there was a sync within this time, by whichever process. A clock that was set back does not
/// put off the next one.
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
    queue: &Queue,
) -> Result<SyncReport, SyncError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| SyncError(chain(&error)))?;
    let way = {
        // The client wants one already as it is made.
        let _entered = runtime.enter();
        Way::find(remote, &setup.delivery.api)?
    };
    failpoint::here!("sync-before-fetch");
    let fetched = repository.fetch(&way.session()).map_err(of_forge)?;
    failpoint::here!("sync-after-fetch");
    let mut synced = SyncReport {
        remote: way.shown(),
        branch: fetched.default_branch,
        news: fetched.moved,
        ..SyncReport::default()
    };
    let after = After { setup, repository, way: &way, queue };
    if let Err(failure) = after.follow(&runtime, &mut synced) {
        tracing::warn!(error = failure.message, "a sync was not completed");
        synced.trouble = Some(failure.message);
    }
    Ok(synced)
}

/// What follows a fetch.
struct After<'a> {
    setup: &'a Setup,
    repository: &'a Repository,
    way: &'a Way,
    queue: &'a Queue,
}

impl After<'_> {
    fn follow(&self, runtime: &Runtime, synced: &mut SyncReport) -> Result<(), Failure> {
        self.catch_up(synced)?;
        synced.delivered_late = delivery::redeliver(self.repository, self.queue, &self.setup.delivery)?;
        let awaiting_decision = self.queue.awaiting_decision().map_err(|error| Failure::passing(&error))?;
        if awaiting_decision.is_empty() {
            return Ok(());
        }
        let looked = runtime.block_on(self.look(&awaiting_decision, synced));
        if let Ok(Some((github, _))) = self.way.github() {
            synced.requests = github.requests();
        }
        looked
    }

    fn catch_up(&self, synced: &mut SyncReport) -> Result<(), Failure> {
        let held = self.lock()?;
        match self.repository.catch_up(&held).map_err(|error| with_hint(&error))? {
            FastForward::Done { .. } => synced.moved = true,
            FastForward::AlreadyThere => {}
            FastForward::Refused(refusal) => synced.left = Some(refusal.to_string()),
        }
        Ok(())
    }

    fn lock(&self) -> Result<Lock, Failure> {
        let path = self.repository.lock_path().map_err(|error| with_hint(&error))?;
        Lock::acquire_within(&path, LOCK_PATIENCE).map_err(|error| with_hint(&error))
    }

    /// Finds out what has become of each capture that nobody had decided on.
    async fn look(&self, awaiting_decision: &[Capture], synced: &mut SyncReport) -> Result<(), Failure> {
        let default = self.repository.default_branch().map_err(|error| with_hint(&error))?;
        let hub = self.way.github()?;
        let open = match hub {
            // One request, whatever their number, where there is any.
            Some((github, slug)) if awaiting_decision.iter().any(|capture| capture.pull_number.is_some()) => {
                let open = github.open_pulls(slug, git::BRANCH_PREFIX).await.map_err(of_github)?;
                open.into_iter().map(|pull| pull.number).collect()
            }
            _ => Vec::new(),
        };
        let mut look_ups = 0;
        let mut first = Ok(());
        for capture in awaiting_decision {
            let looked = async {
                let state = match (capture.pull_number, hub) {
                    (Some(number), Some(_)) if open.contains(&number) => PullState::Open,
                    (Some(number), Some((github, slug))) if look_ups < LOOK_UPS_MAX => {
                        look_ups += 1;
                        state_of(&github.pull(slug, number).await.map_err(of_github)?.state)
                    }
                    _ if self.is_in(capture, default.tip)? => PullState::Merged,
                    _ => PullState::Open,
                };
                self.see_to(capture, state, default.tip, hub, synced).await
            };
            match looked.await {
                // What keeps one from the remote keeps all from it; else the others are seen to.
                Err(failure) if failure.everyone => return Err(failure),
                looked => first = first.and(looked),
            }
        }
        first
    }

    async fn see_to(
        &self,
        capture: &Capture,
        state: PullState,
        tip: CommitId,
        hub: Option<(&GitHub, &Slug)>,
        synced: &mut SyncReport,
    ) -> Result<(), Failure> {
        match state {
            PullState::Open => return self.while_open(capture, tip, hub, synced).await,
            PullState::Merged => {
                synced.deleted += usize::from(self.delete(capture)?);
                synced.merged.push(capture.id);
            }
            PullState::Closed => {
                // By us, if it had become empty: then its branch goes as well, as it would have.
                if self.is_in(capture, tip)? {
                    synced.deleted += usize::from(self.delete(capture)?);
                }
                synced.closed.push(capture.id);
            }
        }
        self.decide(capture, state)
    }

    /// Whether the default branch has a capture's commit, or every file of it as it is.
    fn is_in(&self, capture: &Capture, tip: CommitId) -> Result<bool, Failure> {
        let Some(commit) = commit_of(capture) else { return Ok(false) };
        if self.repository.contains(tip, commit).map_err(|error| with_hint(&error))? {
            return Ok(true);
        }
        Ok(match self.planned(capture)? {
            Some(Input::Planned { plan, .. }) => {
                let bears = plan.against(self.repository, tip).map_err(|error| with_hint(&error))?;
                bears == Bears::HasAll
            }
            _ => false,
        })
    }

    fn planned(&self, capture: &Capture) -> Result<Option<Input>, Failure> {
        let kept = self.queue.saved_result(capture.id).map_err(|error| Failure::passing(&error))?;
        Ok(kept.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// Sees to a branch that waits for its review.
    async fn while_open(
        &self,
        capture: &Capture,
        tip: CommitId,
        hub: Option<(&GitHub, &Slug)>,
        synced: &mut SyncReport,
    ) -> Result<(), Failure> {
        let (Some(commit), Some(Input::Planned { found, plan })) =
            (commit_of(capture), self.planned(capture)?)
        else {
            return Ok(());
        };
        let bears = plan.against(self.repository, tip).map_err(|error| with_hint(&error))?;
        if bears == Bears::Apart {
            return Ok(());
        }
        let there = |tip: Result<Option<CommitId>, git::Error>| tip.map_err(|error| with_hint(&error));
        let at_remote = there(self.repository.remote_tip(&plan.branch))?;
        let here = there(self.repository.tip(&plan.branch))?;
        let is_ours = at_remote == Some(commit) && here.is_none_or(|here| here == commit);
        let (Some((github, slug)), Some(number)) = (hub, capture.pull_number) else { return Ok(()) };
        match (bears, is_ours) {
            (_, false) => {
                github.comment_once(slug, number, ADDED_TO, ADDED_TO_TEXT).await.map_err(of_github)?;
                synced.added_to.push(capture.id);
            }
            (Bears::HasAll, true) => {
                let text = "All of this is on the default branch already.";
                github.comment_once(slug, number, "nugget:empty", text).await.map_err(of_github)?;
                github.close_pull(slug, number).await.map_err(of_github)?;
                failpoint::here!("sync-after-close");
                synced.deleted += usize::from(self.delete(capture)?);
                self.decide(capture, PullState::Closed)?;
                synced.empty.push(capture.id);
            }
            (_, true) => {
                let input = Input::Anew { found, before: plan, commit: commit.to_string(), plan: None };
                let input = crate::pipeline::encode(&input)?;
                let reopened = self.queue.reopen(capture.id, Stage::Git, &input);
                if reopened.map_err(|error| Failure::passing(&error))? {
                    synced.anew.push(capture.id);
                }
            }
        }
        Ok(())
    }

    /// Deletes a branch of ours, here and at the remote, where it is as we know it. A branch that is checked
    /// out, or that somebody has added to, stays.
    fn delete(&self, capture: &Capture) -> Result<bool, Failure> {
        let (Some(branch), Some(commit)) = (capture.branch.as_deref(), commit_of(capture)) else {
            return Ok(false);
        };
        let mut deleted = false;
        if self.repository.remote_tip(branch).map_err(|error| with_hint(&error))? == Some(commit) {
            match self.repository.delete_remote_branch(&self.way.session(), branch, commit) {
                Ok(gone) => deleted |= gone,
                // GitHub or a person was quicker.
                Err(git::Error::Remote {
                    failure: git::RemoteFailure::Stale | git::RemoteFailure::Protected,
                    ..
                }) => {}
                Err(error) => return Err(of_forge(error)),
            }
            failpoint::here!("sync-after-remote-delete");
        }
        if self.repository.tip(branch).map_err(|error| with_hint(&error))? == Some(commit) {
            let held = self.lock()?;
            match self.repository.delete_branch(&held, branch, commit) {
                Ok(gone) => deleted |= gone,
                Err(git::Error::CheckedOut { .. } | git::Error::BranchMoved { .. }) => {}
                Err(error) => return Err(with_hint(&error)),
            }
        }
        Ok(deleted)
    }

    fn decide(&self, capture: &Capture, state: PullState) -> Result<(), Failure> {
        self.queue.set_pull_state(capture.id, state).map_err(|error| Failure::passing(&error))
    }
}

/// The commit that the remote has of a capture.
fn commit_of(capture: &Capture) -> Option<CommitId> {
    capture.pushed.as_deref()?.parse().ok()
}

/// The syncs of one process, beside its work.
#[derive(Debug, Default)]
pub struct BackgroundSync {
    under_way: Option<JoinHandle<()>>,
    begun: Option<Instant>,
}

impl BackgroundSync {
    /// Starts a sync if one is due, on a thread that nobody has to wait for: the first one of a process as
    /// soon as nobody else has just done it, then as often as the settings say.
    pub fn start_if_due(&mut self, setup: &Setup, queue: &Queue, now: Timestamp) {
        let Some(every) = setup.delivery.sync_every.filter(|_| setup.delivery.enabled) else { return };
        if self.is_under_way() || !has_remote(setup.brain.root()) {
            return;
        }
        let within = if self.begun.is_none() { every.min(APART_MIN) } else { every };
        if self.begun.is_some_and(|begun| begun.elapsed() < every)
            || is_recent(queue, within, now).unwrap_or(true)
        {
            return;
        }
        self.begun = Some(Instant::now());
        let (setup, queue) = (setup.clone(), queue.clone());
        let thread = std::thread::Builder::new().name("sync".to_owned()).spawn(move || {
            match sync(&setup, &queue, now) {
                Ok(SyncOutcome::Done(synced)) => tracing::info!(?synced, "synced"),
                Ok(SyncOutcome::NoRemote | SyncOutcome::UnderWay) => {}
                Err(error) => tracing::warn!(%error, "failed to sync"),
            }
        });
        self.under_way = thread.ok();
    }

    /// Whether one is under way that is worth waiting for.
    pub fn is_under_way(&self) -> bool {
        self.under_way.as_ref().is_some_and(|thread| !thread.is_finished())
            && self.begun.is_some_and(|begun| begun.elapsed() < PATIENCE)
    }
}

/// A cheap look: most brains that are new have none.
fn has_remote(root: &Path) -> bool {
    Repository::open(root).and_then(|repository| repository.remote()).is_ok_and(|remote| remote.is_some())
}
