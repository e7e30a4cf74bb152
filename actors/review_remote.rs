//! Carries out at the remote what was decided in the inbox: pushes what was merged, and closes the branches and pull
//! requests of which everything is decided.

use std::collections::BTreeSet;
use std::time::Duration;

use git::{
    CommitId, FastForward, Lock, PreparedMerge, Pushed, Refusal, RemoteFailure, RemoteSession, Repository,
};
use jiff::Timestamp;
use knowledge::text;
use queue::{Capture, Ledger, PullState};
use tokio::runtime::Runtime;

use crate::failure::{Failure, error_chain};
use crate::remote::{DeliverySettings, RemoteAccess};
use crate::remote_branches::{follow_own, forget_if_gone};

/// The name of the report with the last commit that was merged while the remote could not be reached, and the remote's
/// commit that it was built on; empty once it was pushed: if the remote lacks it later, somebody has removed it there.
const MERGED_REPORT: &str = "merged";
/// How long another process may hold the repository.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
/// How long one call of git may take with the remote while a person waits.
const GIT_DEADLINE: Duration = Duration::from_secs(60);
/// How often GitHub is asked whether it has noticed that a pull request's commits were pushed to its base.
const MERGE_CHECKS_MAX: u32 = 5;
const MERGE_CHECK_EVERY: Duration = Duration::from_millis(500);

/// Why the inbox could not be read or a decision not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// The brain's repository cannot be used.
    #[error("failed to use the brain's repository")]
    Git(#[from] git::Error),
    /// The decisions cannot be read or recorded.
    #[error("failed to use the queue")]
    Queue(#[from] queue::Error),
    /// The remote's settings or its token cannot be used.
    #[error("{0}")]
    Remote(String),
}

impl From<Failure> for ReviewError {
    fn from(failure: Failure) -> Self {
        Self::Remote(failure.message)
    }
}

/// Why an item was not merged. Nothing of it was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotMerged {
    /// It is decided, or its branch has moved since it was listed.
    NoLongerAsListed,
    /// The default branch has changed the same lines.
    Conflict,
    /// The default branch has another unit with the id, in this file: one of them would not be found.
    IdTaken(String),
    /// The default branch got commits of somebody else's meanwhile, again and again.
    Moved,
    /// It would become a file of units that is no unit, for this reason: nothing would find it.
    NotAUnit(String),
    /// Merging would lose or disturb something in the work tree.
    Refused(Refusal),
    /// The remote does not take the default branch.
    RemoteRefused {
        /// Its answer.
        why: String,
        /// Whether it is a rule of the remote's, as one that protects the branch.
        is_protected: bool,
    },
}

/// What became of a branch of which everything is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedBranch {
    /// Its name.
    pub branch: String,
    /// The pull request that was merged or closed.
    pub pull: Option<u64>,
    /// Why the branch still exists, and what is to be done; `None` if it is deleted everywhere.
    pub left: Option<String>,
}

/// What was merged and rejected of a branch: titles, and why.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) merged: Vec<String>,
    pub(crate) rejected: Vec<(String, Option<String>)>,
    /// Whether something was rejected that the branch has no longer.
    pub(crate) has_withdrawn: bool,
}

impl Summary {
    fn state(&self) -> PullState {
        if self.merged.is_empty() { PullState::Closed } else { PullState::Merged }
    }

    /// The comment on a pull request that is closed.
    fn comment(&self) -> String {
        let line = |text: &str| text::escape_forge_syntax(&text::one_line(text, 200));
        let mut comment = "Reviewed with `nugget review`.\n".to_owned();
        if !self.merged.is_empty() {
            comment.push_str("\nMerged:\n");
            self.merged.iter().for_each(|title| comment.push_str(&format!("- {}\n", line(title))));
        }
        if !self.rejected.is_empty() {
            comment.push_str("\nRejected:\n");
        }
        for (title, because) in &self.rejected {
            let because =
                because.as_deref().map(|because| format!(": {}", line(because))).unwrap_or_default();
            comment.push_str(&format!("- {}{because}\n", line(title)));
        }
        comment.trim_end().to_owned()
    }
}

/// Where a merge goes.
pub(crate) struct Target {
    /// The commit to build on.
    pub(crate) base: CommitId,
    /// The remote's commit that a push would replace; `None` if nothing is to be pushed.
    expected: Option<CommitId>,
    /// Why nothing is to be pushed, if there is a remote.
    note: Option<String>,
}

/// The remote of one review; does nothing where there is none.
pub(crate) struct ReviewRemote<'a> {
    repository: &'a Repository,
    queue: &'a dyn Ledger,
    access: Option<(RemoteAccess, Runtime)>,
    /// Why the remote cannot be reached.
    offline: Option<String>,
    notes: BTreeSet<String>,
}

pub(crate) fn lock(repository: &Repository) -> Result<Lock, git::Error> {
    Lock::acquire_within(&repository.lock_path()?, LOCK_PATIENCE)
}

/// The commit that a merge is built on: the local default branch, or the remote's if that is ahead of it.
pub(crate) fn present(repository: &Repository) -> Result<CommitId, git::Error> {
    let default = repository.default_branch()?;
    match (default.local, default.remote) {
        (Some(local), Some(remote)) if repository.contains(remote, local)? => Ok(remote),
        (Some(local), _) => Ok(local),
        (None, _) => Ok(default.tip),
    }
}

/// Moves the local default branch to a commit that was prepared on it. `None` if it has got commits meanwhile: a person's
/// git does not ask for the lock.
pub(crate) fn complete_merge(
    repository: &Repository,
    lock: &Lock,
    merge: &PreparedMerge,
    name: &str,
) -> Result<Option<FastForward>, git::Error> {
    match repository.complete_merge(lock, merge, name) {
        Ok(FastForward::Refused(Refusal::NotAFastForward)) | Err(git::Error::BranchMoved { .. }) => Ok(None),
        result => result.map(Some),
    }
}

/// Deletes a local branch, unless it is checked out or has moved.
pub(crate) fn delete_local(
    repository: &Repository,
    lock: &Lock,
    branch: &str,
    commit: CommitId,
) -> Result<bool, git::Error> {
    match repository.delete_branch(lock, branch, commit) {
        Err(git::Error::CheckedOut { .. } | git::Error::BranchMoved { .. }) => Ok(false),
        result => result,
    }
}

impl<'a> ReviewRemote<'a> {
    pub(crate) fn connect(
        repository: &'a Repository,
        queue: &'a dyn Ledger,
        settings: &DeliverySettings,
    ) -> Result<Self, ReviewError> {
        let access = match repository.remote()?.filter(|_| settings.enabled) {
            None => None,
            Some(remote) => {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .map_err(|error| ReviewError::Remote(error_chain(&error)))?;
                // The client needs a runtime as soon as it is created.
                let entered = runtime.enter();
                let access = RemoteAccess::discover(remote, &settings.api)?;
                drop(entered);
                Some((access, runtime))
            }
        };
        Ok(Self { repository, queue, access, offline: None, notes: BTreeSet::new() })
    }

    pub(crate) fn notes(self) -> BTreeSet<String> {
        self.notes
    }

    /// Fetches, so that what is merged is built on what the remote has. That it cannot be reached is no error.
    pub(crate) fn fetch(&mut self) -> Result<(), ReviewError> {
        let Some((access, _)) = &self.access else { return Ok(()) };
        match self.repository.fetch(&session(access)) {
            Ok(_) => {
                let lock = lock(self.repository)?;
                // If it is refused, so is the merge, which says why.
                self.repository.catch_up(&lock)?;
                // What somebody has added to a branch there is listed before it is decided about.
                follow_own(self.repository, self.queue, &lock)?;
            }
            Err(error @ git::Error::Remote { .. }) => self.offline = Some(error_chain(&error)),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Fetches if the remote can be reached: why it cannot, [`finish`](Self::finish) says with what is left to do.
    pub(crate) fn try_fetch(&mut self) -> Result<(), ReviewError> {
        self.fetch()?;
        self.offline = None;
        Ok(())
    }

    /// What a merge is built on at this moment, and whether it is pushed.
    pub(crate) fn target(&self) -> Result<Target, ReviewError> {
        let default = self.repository.default_branch()?;
        let to = |base, expected, note: Option<String>| Ok(Target { base, expected, note });
        let (Some(local), Some(remote)) = (default.local, default.remote) else {
            return to(default.local.unwrap_or(default.tip), None, None);
        };
        // Also offline: what was fetched is not left beside what is merged now.
        if self.repository.contains(remote, local)? {
            return to(remote, self.access.as_ref().map(|_| remote), None);
        }
        if self.access.is_none() {
            return to(local, None, None);
        }
        if let Some(why) = self.repository.rewritten_at_remote()? {
            return to(local, None, Some(format!("not pushed: {why}")));
        }
        if !self.repository.contains(local, remote)? {
            let note = format!(
                "not pushed: {0} and the remote's have commits of their own; merge them (`git pull --no-rebase`), then `git push`",
                default.name
            );
            return to(local, None, Some(note));
        }
        // Ahead: by an earlier merge of nugget's, or by commits that only the person may publish.
        if merged_earlier(self.repository, self.queue, remote)? == Some(local) {
            return to(local, Some(remote), None);
        }
        let note = format!(
            "not pushed: {} has commits of yours that are not pushed; `git push` publishes both",
            default.name
        );
        to(local, None, Some(note))
    }

    /// Pushes a commit and moves the local default branch to it, or only the latter where nothing can be pushed.
    pub(crate) fn publish(
        &mut self,
        mut lock: Lock,
        target: &Target,
        merge: &PreparedMerge,
        branch: &str,
        now: Timestamp,
    ) -> Result<Result<(), NotMerged>, ReviewError> {
        let to = merge.commit();
        let mut is_pushed = false;
        if let (Some(expected), Some((access, _)), None) = (target.expected, &self.access, &self.offline) {
            // A push takes the lock itself.
            drop(lock);
            match self.repository.push_merged(&session(access), to, expected) {
                Ok(Pushed::Created | Pushed::Updated | Pushed::AlreadyThere) => is_pushed = true,
                Err(error) => match &error {
                    git::Error::Remote {
                        failure: RemoteFailure::Offline | RemoteFailure::TooLate, ..
                    } => {
                        self.offline = Some(error_chain(&error));
                    }
                    // Somebody has pushed meanwhile: what was merged is to be built on that.
                    git::Error::Remote { failure: RemoteFailure::Stale, .. } => {
                        self.fetch()?;
                        return Ok(Err(NotMerged::Moved));
                    }
                    git::Error::Remote { failure, .. } => {
                        let is_protected = *failure == RemoteFailure::DefaultProtected;
                        return Ok(Err(NotMerged::RemoteRefused { why: error_chain(&error), is_protected }));
                    }
                    _ => return Err(error.into()),
                },
            }
            lock = self::lock(self.repository)?;
        }
        match complete_merge(self.repository, &lock, merge, branch)? {
            Some(FastForward::Done { .. } | FastForward::AlreadyThere) => {}
            None if !is_pushed => return Ok(Err(NotMerged::Moved)),
            Some(FastForward::Refused(why)) if !is_pushed => return Ok(Err(NotMerged::Refused(why))),
            refused => {
                let why = match refused {
                    Some(FastForward::Refused(why)) => why,
                    _ => Refusal::NotAFastForward,
                };
                self.notes.insert(format!("merged at the remote; your checkout was not moved: {why}"));
            }
        }
        if is_pushed {
            self.queue.report(MERGED_REPORT, "", now)?;
        }
        if is_pushed || self.access.is_none() {
            return Ok(Ok(()));
        }
        match (&target.note, &self.offline) {
            (Some(note), _) => drop(self.notes.insert(note.clone())),
            (None, why) => {
                let base = target.expected.map(|base| format!(" {base}")).unwrap_or_default();
                self.queue.report(MERGED_REPORT, &format!("{to}{base}"), now)?;
                let why = why.as_deref().unwrap_or("the remote has no default branch yet");
                self.notes.insert(format!("merged here, not pushed yet ({why}); `nugget sync` pushes it"));
            }
        }
        Ok(Ok(()))
    }

    /// Deletes a branch of which everything is decided, here and at the remote, with its pull request.
    pub(crate) fn finish(
        &mut self,
        branch: &str,
        commit: Option<CommitId>,
        capture: Option<&Capture>,
        summary: &Summary,
    ) -> Result<FinishedBranch, ReviewError> {
        let mut finished = FinishedBranch { branch: branch.to_owned(), pull: None, left: None };
        if let Some((access, runtime)) = &self.access {
            let is_there = self.repository.remote_tip(branch)?.is_some();
            let pull = capture.and_then(|capture| capture.pull_number);
            let is_open = is_there || pull.is_some();
            if is_open && is_unpushed(self.repository, summary)? && self.offline.is_none() {
                finished.left = Some(
                    "it stays until what was merged is pushed; `nugget sync` then deletes it".to_owned(),
                );
            } else if is_open && let Some(why) = &self.offline {
                finished.left = Some(format!("it stays until `nugget sync` reaches the remote ({why})"));
            } else {
                let finishing = finish_at_remote(self.repository, access, branch, commit, capture, summary);
                match runtime.block_on(finishing) {
                    Ok(()) => finished.pull = pull,
                    Err(failure) => {
                        let place = capture.and_then(|capture| capture.pull_url.as_deref());
                        let place = place.map_or_else(
                            || "the branch there".to_owned(),
                            |url| format!("{url} and delete its branch"),
                        );
                        finished.left = Some(format!(
                            "{}; close {place}, or run `nugget sync` once that is fixed",
                            failure.message
                        ));
                    }
                }
            }
        }
        if finished.left.is_some() {
            return Ok(finished);
        }
        // Held until the state is recorded: nobody adds to the branch in between.
        let lock = lock(self.repository)?;
        if self.repository.tip(branch)? != commit {
            finished.left = Some("something was added to it meanwhile, which waits for review".to_owned());
            return Ok(finished);
        }
        if let Some(commit) = commit
            && !delete_local(self.repository, &lock, branch, commit)?
        {
            finished.left = Some("it is checked out: switch to another branch, then delete it".to_owned());
        }
        if let Some(capture) = capture {
            self.queue.set_pull_state(capture.id, capture.commit.as_deref(), summary.state())?;
        }
        // Several captures may share a branch.
        for other in self.queue.awaiting_decision()? {
            if other.branch.as_deref() == Some(branch) {
                self.queue.set_pull_state(other.id, other.commit.as_deref(), summary.state())?;
            }
        }
        forget_if_gone(self.repository, self.queue, branch)?;
        Ok(finished)
    }
}

fn session(access: &RemoteAccess) -> RemoteSession<'_> {
    RemoteSession { deadline: GIT_DEADLINE, ..access.session() }
}

/// Whether something was merged that the remote's default branch may lack.
fn is_unpushed(repository: &Repository, summary: &Summary) -> Result<bool, git::Error> {
    let default = repository.default_branch()?;
    match (default.local, default.remote) {
        (Some(local), Some(remote)) if !summary.merged.is_empty() => Ok(!repository.contains(remote, local)?),
        _ => Ok(false),
    }
}

/// Closes a branch's pull request, unless GitHub has seen it merged, and deletes the branch at the remote. A branch to
/// which somebody has added stays.
pub(crate) async fn finish_at_remote(
    repository: &Repository,
    access: &RemoteAccess,
    branch: &str,
    commit: Option<CommitId>,
    capture: Option<&Capture>,
    summary: &Summary,
) -> Result<(), Failure> {
    let at_remote = repository.remote_tip(branch)?;
    let ours = commit.or_else(|| capture.and_then(|capture| capture.commit.as_deref()?.parse().ok()));
    if repository.tip(branch)? != commit {
        return Err(Failure::retryable(
            "something was added to the branch meanwhile, which waits for review",
        ));
    }
    if at_remote.is_some() && at_remote != ours {
        return Err(Failure::permanent("somebody has added to the branch at the remote, so it stays"));
    }
    let no_token =
        |_| Failure::permanent("there is no token for GitHub (`gh auth login`, or set GITHUB_TOKEN)");
    if let Some(number) = capture.and_then(|capture| capture.pull_number)
        && let Some((github, slug)) = access.github().map_err(no_token)?
    {
        let default = repository.default_branch()?;
        let is_pushed = match (default.remote, ours) {
            (Some(tip), Some(commit)) => repository.contains(tip, commit)?,
            _ => false,
        };
        let mut pull = github.pull(slug, number).await?;
        for _ in 0..MERGE_CHECKS_MAX {
            if !is_pushed || pull.state != github::PullState::Open {
                break;
            }
            tokio::time::sleep(MERGE_CHECK_EVERY).await;
            pull = github.pull(slug, number).await?;
        }
        // After a move to another repository the number is another pull request's there.
        let is_ours = pull.branch == branch;
        let is_open = pull.state == github::PullState::Open;
        if is_ours && (is_open || (!is_pushed && pull.state == github::PullState::Closed)) {
            github.comment_once(slug, number, "nugget:review", &summary.comment()).await?;
        }
        if is_ours && is_open {
            github.close_pull(slug, number).await?;
        }
    }
    if let Some(commit) = at_remote {
        match repository.delete_remote_branch(&session(access), branch, commit) {
            Ok(_) => {}
            Err(git::Error::Remote { failure: RemoteFailure::Protected, .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Finishes, in a sync, a branch of which everything was decided while the remote could not be reached. `None` if what
/// was merged is still to be pushed.
pub(crate) async fn finish_later(
    repository: &Repository,
    queue: &dyn Ledger,
    access: &RemoteAccess,
    capture: Option<&Capture>,
    branch: &str,
    commit: Option<CommitId>,
    summary: &Summary,
) -> Result<Option<PullState>, Failure> {
    if is_unpushed(repository, summary)? {
        return Ok(None);
    }
    finish_at_remote(repository, access, branch, commit, capture, summary).await?;
    // Held until the state is recorded: nobody adds to the branch in between.
    let lock = lock(repository)?;
    if repository.tip(branch)? != commit {
        return Ok(None);
    }
    if let Some(commit) = commit {
        delete_local(repository, &lock, branch, commit)?;
    }
    if let Some(capture) = capture {
        queue.set_pull_state(capture.id, capture.commit.as_deref(), summary.state())?;
    }
    Ok(Some(summary.state()))
}

/// What was merged while the remote could not be reached and was not pushed since. `None` if the remote's default branch
/// no longer has what that was built on, which a push would bring back.
fn merged_earlier(
    repository: &Repository,
    queue: &dyn Ledger,
    remote: CommitId,
) -> Result<Option<CommitId>, Failure> {
    let Some((_, _, body)) = queue.last_report(MERGED_REPORT)? else { return Ok(None) };
    let mut commits = body.split(' ').map_while(|id| id.parse::<CommitId>().ok());
    let Some(commit) = commits.next() else { return Ok(None) };
    let has_base = commits.next().map_or(Ok(true), |base| repository.contains(remote, base))?;
    Ok(Some(commit).filter(|_| has_base))
}

/// Pushes what was merged while the remote could not be reached, once. Commits of the person's are never pushed with it:
/// the record names only a commit that had none below it.
pub(crate) fn push_merged_earlier(
    repository: &Repository,
    queue: &dyn Ledger,
    access: &RemoteAccess,
) -> Result<PushedEarlier, Failure> {
    use RemoteFailure::{DefaultProtected, Denied, NotStored, Protected, SecretFound};
    let nothing = Ok(PushedEarlier::Nothing);
    let default = repository.default_branch()?;
    let (Some(local), Some(remote)) = (default.local, default.remote) else { return nothing };
    let Some(commit) = merged_earlier(repository, queue, remote)? else { return nothing };
    let forget = || queue.report(MERGED_REPORT, "", Timestamp::now());
    if repository.contains(remote, commit)? {
        forget()?;
        return nothing;
    }
    if !repository.contains(local, commit)?
        || !repository.contains(commit, remote)?
        || repository.rewritten_at_remote()?.is_some()
    {
        return nothing;
    }
    match repository.push_merged(&session(access), commit, remote) {
        Ok(_) => {
            forget()?;
            Ok(PushedEarlier::Pushed)
        }
        Err(
            error @ git::Error::Remote {
                failure: failure @ (DefaultProtected | Protected | SecretFound | Denied | NotStored),
                ..
            },
        ) => {
            let is_protected = failure == DefaultProtected;
            Ok(PushedEarlier::Refused { why: error.into(), is_protected })
        }
        Err(error) => Err(error.into()),
    }
}

/// What became of what was merged while the remote could not be reached.
pub(crate) enum PushedEarlier {
    /// There was nothing to push.
    Nothing,
    Pushed,
    /// The remote takes no pushes of its default branch, or, if it is not protected, none from here or none now.
    Refused {
        why: Failure,
        is_protected: bool,
    },
}
