//! Delivers branches to the remote: pushes each, then finds or opens its pull request.
//!
//! A stage of its own, so that a slow network holds back no branch. Each step first looks for what an earlier
//! attempt has done, and its result is recorded before the next step begins. A remote that cannot be reached
//! by one capture cannot be reached by any, so the whole stage waits, and one capture tries again when the
//! wait is over. An expired token loses nothing, however long it stays expired.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use git::{CommitId, Lock, Pushed, RemoteFailure, Repository};
use github::{GitHub, NewPull, Pull, Slug};
use jiff::Timestamp;
use queue::{Branch, Capture, Claim, Ledger, PullRequest, PullState, Stage};
use tokio::time::Instant;

use crate::background::run_blocking;
use crate::batch::{self, Joined};
use crate::batch_window::{BATCHES_MAX, BatchWindow, is_batch};
use crate::diverged::combine_with_remote;
use crate::failure::{Failure, FailureClass, error_chain};
use crate::pipeline;
use crate::proposal::{self, Plan, ProposalInput, parse_commit};
use crate::pull_request_text::{self, Summary};
use crate::reflection_message::reflected_files;
use crate::remote::{RemoteAccess, comment_branch_left_alone, pull_state};
use crate::review::reject_closed;
use crate::setup::Setup;
use crate::stage_actor::{StageWorker, Step};
use crate::withdrawal::withdraw_rejected;

/// The time between two pull requests that are opened: GitHub asks for a second between requests that change
/// something, and slows down clients that send them faster.
const BETWEEN_PULL_REQUESTS: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) struct DeliveryWorker {
    pub(crate) queue: Arc<dyn Ledger>,
    pub(crate) setup: Arc<Setup>,
    /// Shared by all incarnations of the actor.
    pub(crate) session: Arc<Mutex<DeliverySession>>,
}

/// What is kept from one capture to the next.
#[derive(Default)]
pub(crate) struct DeliverySession {
    access: Option<RemoteAccess>,
    last_pull_request: Option<Instant>,
}

/// What became of a push.
enum PushOutcome {
    /// The remote has the branch at this commit.
    Delivered(Branch),
    /// Nothing is to be sent: a person has decided about the branch.
    Decided,
    /// Somebody has added to the branch.
    AddedTo,
    /// The remote has another branch of this name: this is the step back to the stage that makes branches.
    NameTaken(Step),
}

impl StageWorker for DeliveryWorker {
    const STAGE: Stage = Stage::Delivery;
    type Request = Infallible;

    async fn work(&self, claim: Claim) -> Result<Step, Failure> {
        let branch = branch_of(&claim)?;
        let step = match self.deliver(&claim, branch).await {
            Ok(step) => step,
            Err(failure) => {
                // Looked up again by the next attempt: the remote may be changed, or the token renewed.
                if self.session().access.take().is_some() {
                    github::forget_tokens();
                }
                return Err(failure);
            }
        };
        let queue = self.queue.clone();
        run_blocking(move || queue.resume(Stage::Delivery)).await?;
        Ok(step)
    }

    fn committed(&self) {
        failpoint::here!("delivery-after-finish");
    }
}

impl DeliveryWorker {
    /// Delivers a capture. Returns its end, on the branch that it is on, or the stage that has to make another branch.
    async fn deliver(&self, claim: &Claim, branch: Branch) -> Result<Step, Failure> {
        // A person has decided about it while it waited. This needs neither the remote nor a token.
        if let Some(PullState::Merged | PullState::Closed) = claim.capture.pull_state {
            return Ok(Step::end_with_branch(branch));
        }
        let Some(access) = self.remote_access().await? else {
            // A person's brain may have none; a server's clone that has none is being replaced.
            return match self.setup.is_server && self.setup.delivery.enabled {
                true => Err(Failure::retryable("the server's clone has no remote")),
                false => Ok(Step::end_with_branch(branch)),
            };
        };
        let is_closed = self.reject_closed_notes(claim, &branch, &access).await?;
        if let Some(step) = self.without_rejected(claim, &branch, is_closed).await? {
            return Ok(step);
        }
        let batch = self.setup.delivery.batch.filter(|_| may_join(claim));
        if let Some(window) = batch
            && let Some(ProposalInput::Planned { plan, .. }) = proposal_input(claim)?
            && let Some(joined) = self.deliver_in_batch(claim, &branch, &access, window, plan).await?
        {
            return Ok(Step::end_with_branch(joined));
        }
        self.deliver_alone(claim, branch, &access).await
    }

    /// Rejects the notes of a pull request that a person has closed, if agents have written more since: only that is for
    /// another one. A sync does the same. Returns whether it was closed.
    async fn reject_closed_notes(
        &self,
        claim: &Claim,
        branch: &Branch,
        access: &RemoteAccess,
    ) -> Result<bool, Failure> {
        let capture = &claim.capture;
        let (Some(number), Some(pushed)) = (capture.pull_number, capture.pushed.clone()) else {
            return Ok(false);
        };
        let Ok(Some((github, slug))) = access.github() else { return Ok(false) };
        if capture.origin != queue::ORIGIN_NOTES {
            return Ok(false);
        }
        let pull = pull_of_branch(github, slug, number, &branch.name).await?;
        let is_closed = |pull: &Pull| pull.state == github::PullState::Closed && pull.commit != branch.commit;
        let Some(pull) = pull.filter(is_closed) else { return Ok(false) };
        let (this, branch) = (self.clone(), branch.clone());
        run_blocking(move || {
            let repository = this.setup.repository()?;
            // What was pushed last may be what was written since, by an attempt that was killed; the commit of the pull request
            // may be one that somebody has added there.
            for commit in [pull.commit, pushed].into_iter().filter(|commit| *commit != branch.commit) {
                let commit = parse_commit(&commit)?;
                if repository.has(commit)? {
                    reject_closed(&repository, &*this.queue, &branch.name, commit, Timestamp::now())
                        .map_err(|error| Failure::retryable(error_chain(&error)))?;
                    return Ok(true);
                }
            }
            Ok(false)
        })
        .await
    }

    /// The step to a branch without what a person has rejected of one that the remote has never had, or whose notes it does
    /// not have any more or has in a closed pull request. A server's clone has no inbox.
    async fn without_rejected(
        &self,
        claim: &Claim,
        branch: &Branch,
        is_closed: bool,
    ) -> Result<Option<Step>, Failure> {
        let Capture { pushed, origin, .. } = &claim.capture;
        if self.setup.is_server || pushed.is_some() && origin != queue::ORIGIN_NOTES {
            return Ok(None);
        }
        let (this, claim, branch) = (self.clone(), claim.clone(), branch.clone());
        run_blocking(move || {
            let input = proposal_input(&claim)?;
            let repository = this.setup.repository()?;
            if !is_closed && repository.remote_tip(&branch.name)?.is_some() {
                return Ok(None);
            }
            withdraw_rejected(&repository, &*this.queue, &claim.capture, &branch, input)
        })
        .await
    }

    /// Adds a capture to the pull request of its window. `None` if it needs one of its own.
    async fn deliver_in_batch(
        &self,
        claim: &Claim,
        own: &Branch,
        access: &RemoteAccess,
        window: BatchWindow,
        plan: Plan,
    ) -> Result<Option<Branch>, Failure> {
        let capture = &claim.capture;
        if capture.pushed.is_none() {
            let (this, claim, branch) = (self.clone(), claim.clone(), own.clone());
            let is_decided = run_blocking(move || {
                // A server's clone has the branch only if it was made in it.
                if this.setup.is_server {
                    return Ok::<_, Failure>(false);
                }
                let commit = parse_commit(&branch.commit)?;
                this.is_decided(&this.setup.repository()?, &claim, &branch, commit)
            });
            if is_decided.await? {
                return Ok(Some(own.clone()));
            }
        }
        // An earlier attempt has pushed it to this branch. It goes to another one only if that was decided without it.
        let mut pushed_to = capture.pushed.as_deref().map(parse_commit).transpose()?;
        for number in 1..=BATCHES_MAX {
            let name = window.branch(capture.added, number);
            if pushed_to.is_some() && name != own.name {
                continue;
            }
            let pushed = pushed_to.take();
            let known = match access.github() {
                Ok(Some((github, slug))) => github.find_pull(slug, &name).await?,
                // Without a token the commit is pushed all the same, as a branch of its own is.
                Ok(None) | Err(_) => None,
            };
            let is_ended = known.as_ref().is_some_and(|pull| pull.state != github::PullState::Open);
            if is_ended && pushed.is_none() {
                continue;
            }
            let (setup, to, plan_to_join, joining) =
                (Arc::clone(&self.setup), access.clone(), plan.clone(), name.clone());
            let joined =
                run_blocking(move || batch::join(&setup.repository()?, &to, &plan_to_join, &joining, pushed));
            let commit = match joined.await? {
                Joined::At(commit) => commit,
                Joined::Alone => return Ok(None),
                Joined::BranchIsMerged => continue,
                Joined::Merged => {
                    self.set_pull_state(capture.id, PullState::Merged).await?;
                    return Ok(Some(own.clone()));
                }
                Joined::TakenOff => {
                    let state = match known {
                        Some(Pull { state: github::PullState::Merged, .. }) => PullState::Merged,
                        _ => PullState::Closed,
                    };
                    self.set_pull_state(capture.id, state).await?;
                    return Ok(Some(own.clone()));
                }
            };
            if let Some(pull) = known.as_ref().filter(|_| is_ended) {
                if !self.had(pull, commit).await? {
                    continue;
                }
                self.record_pull_request(claim, pull.clone()).await?;
                return Ok(Some(own.clone()));
            }
            failpoint::here!("batch-after-push");
            let branch = Branch { name, commit: commit.to_string(), units: own.units };
            let (this, claimed, plan, shared) = (self.clone(), claim.clone(), plan.clone(), branch.clone());
            run_blocking(move || {
                this.queue.record_batch(&claimed, &shared)?;
                failpoint::here!("batch-after-note");
                batch::replace_branch(&this.setup.repository()?, &plan, &shared.name)
            })
            .await?;
            if !self.opens_pull_request(access)? {
                return Ok(Some(branch));
            }
            let (this, of, claimed, shared) = (self.clone(), access.clone(), claim.clone(), branch.clone());
            let title = window.title(capture.added, number);
            let new = run_blocking(move || this.pull_request(&of, &claimed, &shared, Some(title))).await?;
            let known = known.map(|pull| pull.number);
            match self.offer(claim, access, &new, known, true).await? {
                // It was merged or closed meanwhile, before it had this.
                Some(pull) if pull.state != github::PullState::Open && !self.had(&pull, commit).await? => {
                    continue;
                }
                Some(pull) => self.record_pull_request(claim, pull).await?,
                None => {}
            }
            return Ok(Some(branch));
        }
        Ok(None)
    }

    /// Pushes a capture's branch and opens its pull request. Returns the end with the branch as the remote has it, or the
    /// way back to the stage that makes branches, if the remote has another branch of this name.
    async fn deliver_alone(
        &self,
        claim: &Claim,
        mut branch: Branch,
        access: &RemoteAccess,
    ) -> Result<Step, Failure> {
        let capture = &claim.capture;
        let grows = capture.origin == queue::ORIGIN_NOTES;
        if capture.pushed.as_deref() != Some(branch.commit.as_str()) {
            let (this, to, claim, pushed) = (self.clone(), access.clone(), claim.clone(), branch.clone());
            match run_blocking(move || this.push(&to, &claim, pushed)).await? {
                PushOutcome::Delivered(delivered) => branch = delivered,
                PushOutcome::Decided => return Ok(Step::end_with_branch(branch)),
                PushOutcome::NameTaken(back) => return Ok(back),
                PushOutcome::AddedTo => {
                    if let (Some(number), Ok(Some((github, slug))), false) =
                        (capture.pull_number, access.github(), grows)
                    {
                        comment_branch_left_alone(github, slug, number).await?;
                    }
                    return Ok(Step::end_with_branch(branch));
                }
            }
        }
        if !self.opens_pull_request(access)? {
            return Ok(Step::end_with_branch(branch));
        }
        let (this, of, claimed, named) = (self.clone(), access.clone(), claim.clone(), branch.clone());
        let new = run_blocking(move || this.pull_request(&of, &claimed, &named, None)).await?;
        if let Some(pull) = self.offer(claim, access, &new, capture.pull_number, grows).await? {
            self.record_pull_request(claim, pull).await?;
        }
        Ok(Step::end_with_branch(branch))
    }

    /// Whether the branch is not all that is delivered: it is on another host than GitHub, and without a token, until a sync
    /// finds one. A server waits for its token.
    fn opens_pull_request(&self, access: &RemoteAccess) -> Result<bool, Failure> {
        match self.setup.is_server {
            true => Ok(access.github()?.is_some()),
            false => Ok(access.has_pull_requests()),
        }
    }

    /// Opens a pull request, or brings the text of the one with this number up to date; with `grows` also of one that is
    /// open already. `None` if the default branch has everything of it.
    async fn offer(
        &self,
        claim: &Claim,
        access: &RemoteAccess,
        new: &NewPull,
        known: Option<u64>,
        grows: bool,
    ) -> Result<Option<Pull>, Failure> {
        let Some((github, slug)) = access.github()? else { return Ok(None) };
        failpoint::here!("delivery-before-pull");
        let capture = &claim.capture;
        let mut edited = None;
        if let Some(number) = known
            && let Some(pull) = pull_of_branch(github, slug, number, &new.branch).await?
        {
            edited = match pull.state {
                // The branch was made again, or has grown: the text describes what it holds now.
                github::PullState::Open => Some(update_text(github, slug, pull, new).await?),
                // What was added to a branch after its pull request was decided is for another one.
                _ => Some(pull)
                    .filter(|pull| capture.origin != queue::ORIGIN_NOTES || pull.commit == new.commit),
            };
        }
        let is_new = edited.is_none();
        let pull = match edited {
            Some(pull) => pull,
            None => {
                self.wait_for_turn().await;
                match github.open_pull(slug, new).await {
                    // It is there already, of an earlier commit of a branch that grows.
                    Ok(opened)
                        if grows && !opened.created && opened.pull.state == github::PullState::Open =>
                    {
                        update_text(github, slug, opened.pull, new).await?
                    }
                    Ok(opened) => opened.pull,
                    // It was merged in between: by hand, or with a pull request that was deleted.
                    Err(github::Error::NothingNew { .. }) => {
                        self.set_pull_state(capture.id, PullState::Merged).await?;
                        return Ok(None);
                    }
                    Err(error @ github::Error::BranchMissing { .. }) => {
                        let (this, to, gone) = (self.clone(), access.clone(), new.clone());
                        let decided = run_blocking(move || this.decided_at_remote(&to, &gone)).await?;
                        let Some(state) = decided else { return Err(error.into()) };
                        self.set_pull_state(capture.id, state).await?;
                        return Ok(None);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        };
        failpoint::here!("delivery-after-pull");
        if (is_new || capture.pull_number.is_none()) && pull.state == github::PullState::Open {
            // Optional. Before the number is recorded, so that a restart comes by here again.
            if is_new && let Err(error) = github.label(slug, pull.number, &pull_request_text::LABELS).await {
                tracing::warn!(error = error_chain(&error), "failed to label a pull request");
            }
            let (users, teams) = self.reviewers(claim);
            if let Err(error) = github.request_reviewers(slug, pull.number, &users, &teams).await {
                tracing::warn!(error = error_chain(&error), "failed to ask for a review");
            }
        }
        Ok(Some(pull))
    }

    async fn record_pull_request(&self, claim: &Claim, pull: Pull) -> Result<(), Failure> {
        let record = PullRequest { number: pull.number, url: pull.url, state: pull_state(&pull.state) };
        let (queue, claim) = (self.queue.clone(), claim.clone());
        run_blocking(move || queue.record_pull_request(&claim, &record)).await?;
        failpoint::here!("delivery-before-finish");
        Ok(())
    }

    /// Whether a pull request that is merged or closed had this commit then.
    async fn had(&self, pull: &Pull, commit: CommitId) -> Result<bool, Failure> {
        let (setup, tip) = (Arc::clone(&self.setup), parse_commit(&pull.commit)?);
        run_blocking(move || Ok(setup.repository()?.contains(tip, commit)?)).await
    }

    /// What a person has decided about a branch that was pushed and that the remote does not have any more.
    fn decided_at_remote(&self, access: &RemoteAccess, new: &NewPull) -> Result<Option<PullState>, Failure> {
        let repository = self.setup.repository()?;
        repository.fetch(&access.session())?;
        if repository.remote_tip(&new.branch)?.is_some() {
            return Ok(None);
        }
        let merged = repository.merged_among([parse_commit(&new.commit)?], None)?;
        Ok(Some(if merged.is_empty() { PullState::Closed } else { PullState::Merged }))
    }

    async fn set_pull_state(&self, capture: i64, state: PullState) -> Result<(), Failure> {
        let queue = self.queue.clone();
        Ok(run_blocking(move || queue.set_pull_state(capture, None, state)).await?)
    }

    /// Who reviews what a capture proposes, by the domains in `brain.yaml`: users and teams.
    fn reviewers(&self, claim: &Claim) -> (Vec<String>, Vec<String>) {
        let Ok(manifest) = self.setup.brain.manifest() else { return Default::default() };
        let Ok(Some(ProposalInput::Planned { plan, .. })) = proposal_input(claim) else {
            return Default::default();
        };
        let names: BTreeSet<&str> = plan
            .files
            .iter()
            .flat_map(|file| manifest.reviewers_of(pull_request_text::domain_of(&file.path)))
            .map(|name| name.trim_start_matches('@'))
            .collect();
        let (teams, users): (Vec<&str>, Vec<&str>) = names.into_iter().partition(|name| name.contains('/'));
        // A team belongs to the owner of the repository.
        let teams = teams.into_iter().filter_map(|name| Some(name.split_once('/')?.1.to_owned()));
        (users.into_iter().map(str::to_owned).collect(), teams.collect())
    }

    fn session(&self) -> MutexGuard<'_, DeliverySession> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if there is no remote, or nothing is to be sent to it.
    async fn remote_access(&self) -> Result<Option<RemoteAccess>, Failure> {
        if !self.setup.delivery.enabled {
            return Ok(None);
        }
        let this = self.clone();
        run_blocking(move || {
            let Some(remote) = this.setup.repository()?.remote()? else { return Ok(None) };
            let known = this.session().access.clone();
            if let Some(access) = known.filter(|access| access.is_for(&remote)) {
                return Ok(Some(access));
            }
            let access = RemoteAccess::discover(remote, &this.setup.delivery.api)?;
            this.session().access = Some(access.clone());
            Ok(Some(access))
        })
        .await
    }

    fn push(&self, access: &RemoteAccess, claim: &Claim, mut branch: Branch) -> Result<PushOutcome, Failure> {
        let repository = self.setup.repository()?;
        let capture = &claim.capture;
        let grows = capture.origin == queue::ORIGIN_NOTES;
        let commit = parse_commit(&branch.commit)?;
        if (self.setup.is_server || !repository.has(commit)?)
            && !restore_branch(&repository, claim, &branch, commit)?
        {
            if self.setup.is_server || capture.pushed.is_some() || repository.tip(&branch.name)?.is_some() {
                let why = format!("no clone has {}, and its plan is not kept", branch.name);
                return Err(Failure::permanent(why));
            }
            // A person has deleted it so long ago that git no longer has its commit.
            tracing::warn!(capture = capture.id, branch = branch.name, "a branch is gone: not delivered");
            self.queue.set_pull_state(capture.id, Some(&branch.commit), PullState::Closed)?;
            return Ok(PushOutcome::Decided);
        }
        if capture.pushed.is_none() && self.is_decided(&repository, claim, &branch, commit)? {
            return Ok(PushOutcome::Decided);
        }
        failpoint::here!("delivery-before-push");
        let expected = capture.pushed.as_deref().map(parse_commit).transpose()?;
        let (session, name) = (access.session(), branch.name.clone());
        let is_delivered = match repository.push_branch(&session, &name, commit, expected) {
            Ok(Pushed::Created | Pushed::Updated | Pushed::AlreadyThere) => true,
            Err(git::Error::Remote { failure: RemoteFailure::Stale, .. }) => {
                repository.fetch(&session)?;
                let above = git::BRANCH_PREFIX.trim_end_matches('/').to_owned();
                match repository.remote_tip(&name)? {
                    // An earlier commit of it, pushed by an attempt that was killed or whose capture has gone on.
                    Some(tip) if tip != commit && repository.contains(commit, tip)? => {
                        repository.push_branch(&session, &name, commit, Some(tip))?;
                        true
                    }
                    // A reviewer has added to it since an attempt that was killed.
                    Some(tip) if repository.contains(tip, commit)? => true,
                    // Here and there somebody has added to it.
                    Some(tip) if grows => match combine_with_remote(&repository, &*self.queue, &name, tip)? {
                        Some(combined) => {
                            repository.push_branch(&session, &name, combined, Some(tip))?;
                            let units = u32::try_from(repository.branch_files(&name)?.len());
                            branch.commit = combined.to_string();
                            branch.units = units.unwrap_or(u32::MAX);
                            true
                        }
                        None => false,
                    },
                    Some(_) => false,
                    None if repository.list_remote_branches(&session)?.contains(&above) => {
                        let why = format!(
                            "the remote has a branch {above}, so it takes none below it: rename it there"
                        );
                        return Err(Failure::new(FailureClass::BlocksStage(None), why));
                    }
                    // It was deleted once it was merged or closed, and has grown since.
                    None if grows => {
                        repository.push_branch(&session, &name, commit, None)?;
                        true
                    }
                    // A person has deleted it; the next sync finds out what was decided.
                    None if capture.pull_number.is_some() => return Ok(PushOutcome::Decided),
                    None => return Err(Failure::retryable("the remote's branch has changed meanwhile")),
                }
            }
            Err(error) => return Err(error.into()),
        };
        failpoint::here!("delivery-after-push");
        if is_delivered {
            match branch.commit == commit.to_string() {
                true => self.queue.record_push(claim, &branch.commit)?,
                // Both at once: the next push replaces what is recorded as pushed.
                false => self.queue.record_batch(claim, &branch)?,
            }
            failpoint::here!("delivery-after-note");
            return Ok(PushOutcome::Delivered(branch));
        }
        match capture.pushed {
            // While the branch was made again, or notes were written: theirs stays, and so does the pull request.
            Some(_) => Ok(PushOutcome::AddedTo),
            // Of another machine with the same name. It is tried again until that one is decided about.
            None if grows => Err(Failure::new(
                FailureClass::Waits,
                format!(
                    "the remote's branch {} changes the same lines as the one here: merge or delete one of them",
                    branch.name
                ),
            )),
            // It is from before this ledger, and was fetched only now: the branch is planned again beside it, or found on it.
            None if let Some(ProposalInput::Planned { found, .. }) = proposal_input(claim)? => {
                let lock = Lock::acquire_within(&repository.lock_path()?, crate::git::LOCK_PATIENCE)?;
                if repository.tip(&branch.name)? == Some(commit) {
                    repository.delete_branch(&lock, &branch.name, commit)?;
                    repository.follow_remote_branch(&lock, &branch.name)?;
                }
                let input = pipeline::encode(&ProposalInput::Compared(found))?;
                Ok(PushOutcome::NameTaken(Step::Next(Stage::Git, input)))
            }
            None => Err(Failure::permanent(format!(
                "the remote has another branch {} with other content",
                branch.name
            ))),
        }
    }

    /// Whether a person has decided about a branch that was never pushed: in the inbox, or with git alone.
    fn is_decided(
        &self,
        repository: &Repository,
        claim: &Claim,
        branch: &Branch,
        commit: CommitId,
    ) -> Result<bool, Failure> {
        let state = decided(repository, branch, commit)?;
        if let Some(state) = state {
            self.queue.set_pull_state(claim.capture.id, Some(&branch.commit), state)?;
        }
        Ok(state.is_some())
    }

    /// The pull request for a branch that is pushed. It has a `shared` title if the branch is one of several captures; its
    /// text is then about this capture alone.
    fn pull_request(
        &self,
        access: &RemoteAccess,
        claim: &Claim,
        branch: &Branch,
        shared: Option<String>,
    ) -> Result<NewPull, Failure> {
        let repository = self.setup.repository()?;
        let base = repository.default_branch()?.name;
        let files = access.files_at(&branch.commit);
        let (microdollars, estimated) = self.queue.capture_cost(claim.capture.id)?;
        let mut summary = Summary { microdollars, estimated, ..Summary::default() };
        let (time, body) = match proposal_input(claim)? {
            Some(ProposalInput::Planned { found, plan }) => {
                summary.project.clone_from(&found.session.project);
                (summary.begun, summary.ended) = (found.session.begun, found.session.ended);
                summary.by.clone_from(&found.by);
                let body = match shared {
                    Some(_) => pull_request_text::body_with_section(&found, &plan, &summary, &files),
                    None => pull_request_text::body(&found, &plan, &summary, &files),
                };
                (plan.time, body)
            }
            _ => {
                summary.project = claim.capture.cwd.as_deref().and_then(archive::project_name);
                summary.by_hand = match claim.capture.origin.as_str() {
                    queue::ORIGIN_IMPORT => Some("imported as they were written"),
                    queue::ORIGIN_EDIT => Some("edited by hand"),
                    queue::ORIGIN_NOTES => Some("written down by agents in sessions"),
                    queue::ORIGIN_REFLECTION => Some("found by `nugget reflect`"),
                    _ => None,
                };
                let (changed, removed) =
                    (repository.branch_files(&branch.name)?, repository.branch_removals(&branch.name)?);
                if claim.capture.origin == queue::ORIGIN_REFLECTION {
                    let message = repository.message_of(parse_commit(&branch.commit)?)?;
                    let files = reflected_files(&message).into_values();
                    let mut reasons: Vec<String> = files.flat_map(|file| file.reasons).collect();
                    reasons.sort();
                    reasons.dedup();
                    summary.reasons = reasons;
                }
                let body = pull_request_text::body_from_files(&changed, &removed, &summary, &files);
                (claim.capture.added, body)
            }
        };
        let title = shared.unwrap_or_else(|| proposal::title(time, &claim.capture.origin));
        Ok(NewPull { branch: branch.name.clone(), commit: branch.commit.clone(), base, title, body })
    }

    /// Waits until another pull request may be opened.
    async fn wait_for_turn(&self) {
        let last = self.session().last_pull_request;
        if let Some(last) = last {
            tokio::time::sleep_until(last + BETWEEN_PULL_REQUESTS).await;
        }
        self.session().last_pull_request = Some(Instant::now());
    }
}

/// The branch that a capture has made.
fn branch_of(claim: &Claim) -> Result<Branch, Failure> {
    let Capture { branch: Some(name), commit: Some(commit), units, .. } = claim.capture.clone() else {
        return Err(Failure::permanent("the capture has no branch"));
    };
    Ok(Branch { name, commit, units })
}

/// Whether a capture can be delivered with others: not if it has a pull request of its own.
fn may_join(claim: &Claim) -> bool {
    let Capture { branch, pushed, .. } = &claim.capture;
    pushed.is_none() || branch.as_deref().is_some_and(is_batch)
}

/// What the stage `git` has stored; `None` for a branch that no session made.
fn proposal_input(claim: &Claim) -> Result<Option<ProposalInput>, Failure> {
    match claim.input.is_empty() {
        true => Ok(None),
        false => pipeline::decode(&claim.input).map(Some),
    }
}

/// Makes a capture's branch once more where this clone does not have it: the brain was cloned again, or another clone of a
/// team's server made it, which may be gone. The plan makes the same commit. `false` if it is not kept.
fn restore_branch(
    repository: &Repository,
    claim: &Claim,
    branch: &Branch,
    commit: CommitId,
) -> Result<bool, Failure> {
    let mut tip = repository.tip(&branch.name)?;
    if tip == Some(commit) {
        return Ok(true);
    }
    let lock = Lock::acquire_within(&repository.lock_path()?, crate::git::LOCK_PATIENCE)?;
    // The remote has it from before this ledger, and its commit is not that of the plan.
    if tip.is_none() && repository.follow_remote_branch(&lock, &branch.name)? {
        tip = repository.tip(&branch.name)?;
    }
    // Perhaps with commits of somebody else.
    if let Some(tip) = tip
        && repository.contains(tip, commit)?
    {
        return Ok(true);
    }
    let Some(ProposalInput::Planned { plan, .. }) = proposal_input(claim)? else { return Ok(false) };
    let proposal = plan.proposal()?;
    let proposed = match tip {
        // An earlier commit of it, from before it was made again.
        Some(tip) => repository.replace(&lock, &proposal, tip)?,
        None => repository.propose(&lock, &proposal)?,
    };
    match proposed.commit == commit {
        true => Ok(true),
        false => Err(Failure::permanent(format!("the plan of {} makes another commit now", branch.name))),
    }
}

/// What a person has decided about a branch that the remote has never had.
fn decided(repository: &Repository, branch: &Branch, commit: CommitId) -> Result<Option<PullState>, Failure> {
    let default = repository.default_branch()?;
    for tip in [default.local, default.remote].into_iter().flatten() {
        if repository.contains(tip, commit)? {
            return Ok(Some(PullState::Merged));
        }
    }
    // A branch that was deleted without having been merged. A clone that has not even its commit never had it.
    let is_deleted = repository.tip(&branch.name)?.is_none() && repository.has(commit)?;
    Ok(is_deleted.then_some(PullState::Closed))
}

/// The pull request with this number, if it is of this branch: after a move to another repository its number is another
/// one's there.
async fn pull_of_branch(
    github: &GitHub,
    slug: &Slug,
    number: u64,
    branch: &str,
) -> Result<Option<Pull>, Failure> {
    match github.pull(slug, number).await {
        Ok(pull) => Ok(Some(pull).filter(|pull| pull.branch == branch)),
        Err(github::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Brings what is nugget's of an open pull request's text up to date. Where a person has written another text, a comment
/// says what a capture has added to a shared branch.
async fn update_text(github: &GitHub, slug: &Slug, pull: Pull, new: &NewPull) -> Result<Pull, Failure> {
    match pull_request_text::updated(&pull.body, &new.body) {
        Some(body) if body == pull.body => return Ok(pull),
        Some(body) => return Ok(github.edit_pull(slug, pull.number, &body).await?),
        None => {}
    }
    if let Some(added) = pull_request_text::section(&new.body) {
        github.comment_once(slug, pull.number, &format!("nugget:{}", new.commit), &added).await?;
    }
    Ok(pull)
}
