//! Takes branches to the remote: pushes each, then finds or makes its pull request. An actor of its own, so
//! that a slow network holds back no branch. Every step finds what an earlier attempt has done, and is noted
//! before the next one begins.
//!
//! What keeps one capture from the remote keeps all of them from it, so the whole stage waits then, and one
//! of them tries again when the time is over; nothing is lost however long a token is expired.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use git::{CommitId, Credentials, Pushed, Remote, RemoteFailure, RemoteSession, Repository, Scheme};
use github::{GitHub, Host, NewPull, Retry, Slug};
use queue::{Branch, Capture, Claim, Finish, PullRequest, PullState, Queue, Stage};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::time::Instant;

use crate::git::{Input, with_hint};
use crate::mailbox::Mailbox;
use crate::pipeline::{self, Failure, Jobs, Step, Worked};
use crate::pull_request_text::{self, About};
use crate::sync::{ADDED_TO, ADDED_TO_TEXT};

/// How long one call of git may take with the remote.
const GIT_DEADLINE: Duration = Duration::from_secs(120);
/// How long one request of GitHub's API may take.
const API_DEADLINE: Duration = Duration::from_secs(30);

/// Between two pull requests that are opened: GitHub asks for a second between requests that change
/// something, and slows down whoever does not keep to it.
const APART: Duration = Duration::from_secs(1);

/// How the remote is dealt with.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Whether anything is sent there.
    pub enabled: bool,
    /// The setting `github.api`; empty to tell it by the remote's host.
    pub api: String,
    /// How often it is looked at in the background; `None` for never.
    pub sync_every: Option<Duration>,
}

pub struct Delivery;

pub enum Message {
    /// There may be branches that the remote has not.
    Wake,
}

#[derive(Clone)]
pub struct Arguments {
    pub jobs: Jobs,
    pub root: PathBuf,
    /// The branch of reviewed knowledge, when `brain.yaml` names it.
    pub default_branch: Option<String>,
    pub settings: Settings,
    pub bell: Mailbox<Message>,
    /// What is known of the remote, kept through restarts and from one capture to the next.
    pub way: Known,
}

/// The way to the remote as it was last found.
#[derive(Clone, Default)]
pub struct Known {
    way: Arc<Mutex<Option<Way>>>,
    /// When a pull request was last opened.
    opened: Arc<Mutex<Option<Instant>>>,
}

pub struct State {
    arguments: Arguments,
}

impl Actor for Delivery {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        _: ActorRef<Message>,
        mut arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        arguments.jobs.take_over(Stage::Delivery, arguments.bell.health())?;
        Ok(State { arguments })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let health = Arc::clone(state.arguments.bell.health());
        let _busy = health.begin();
        match message {
            Message::Wake => {
                state.arguments.bell.answer();
                if state.deliver_one().await? != Worked::Idle {
                    state.arguments.bell.ring_again(&myself, Message::Wake);
                }
            }
        }
        Ok(())
    }
}

impl State {
    async fn deliver_one(&mut self) -> Result<Worked, ActorProcessingErr> {
        let arguments = self.arguments.clone();
        let worked = pipeline::work_once(&self.arguments.jobs, Stage::Delivery, |claim| async move {
            let delivered = arguments.deliver(&claim).await;
            if delivered.is_err() {
                // Whatever it was, it is found anew: a remote that was changed, a token that was renewed.
                arguments.way.forget();
                return delivered;
            }
            let queue = arguments.jobs.queue.clone();
            let resumed = pipeline::blocking(move || queue.resume(Stage::Delivery)).await;
            resumed.map_err(|error| Failure::passing(&error))?;
            delivered
        })
        .await?;
        failpoint::here!("delivery-after-finish");
        Ok(worked)
    }
}

/// What is to be delivered.
struct Parcel {
    branch: Branch,
    commit: CommitId,
    title: String,
    /// What there was to say of it, and whether that is so.
    input: Option<Input>,
}

impl Arguments {
    async fn deliver(&self, claim: &Claim) -> Result<Step, Failure> {
        let parcel = parcel(claim)?;
        let done = || {
            let Branch { name, commit, units } = parcel.branch.clone();
            Ok(Step::End(Finish::Done(Branch { name, commit, units })))
        };
        let Some(way) = self.way().await? else { return done() };
        let capture = &claim.capture;
        if capture.pushed.as_deref() != Some(parcel.branch.commit.as_str()) {
            let (this, to, claim) = (self.clone(), way.clone(), claim.clone());
            let branch = parcel.branch.clone();
            let commit = parcel.commit;
            match pipeline::blocking(move || this.push(&to, &claim, &branch, commit)).await? {
                Sent::There => {}
                Sent::Decided => return done(),
                Sent::AddedTo => {
                    if let (Some(number), Some((github, slug))) = (capture.pull_number, way.github()?) {
                        let told = github.comment_once(slug, number, ADDED_TO, ADDED_TO_TEXT).await;
                        told.map_err(of_github)?;
                    }
                    return done();
                }
            }
        }
        let Some((github, slug)) = way.github()? else {
            // Another forge: the branch is there, and what comes next is done in its own way.
            return done();
        };
        failpoint::here!("delivery-before-pull");
        let (body, base) = {
            let (this, way, claim, input) = (self.clone(), way.clone(), claim.clone(), parcel.input);
            let branch = parcel.branch.clone();
            pipeline::blocking(move || this.body(&way, &claim, &branch, input)).await?
        };
        let title = parcel.title.clone();
        let made = match capture.pull_number {
            // It was made anew: the text tells what it holds now.
            Some(number) => github.edit_pull(slug, number, &title, &body).await.map_err(of_github)?,
            None => {
                let new = NewPull { branch: parcel.branch.name.clone(), base, title, body };
                self.way.turn().await;
                match github.open_pull(slug, &new).await {
                    Ok(opened) => opened.pull,
                    // It was merged in between: by hand, or with a pull request that is gone.
                    Err(github::Error::NothingNew { .. }) => {
                        self.decide(claim, PullState::Merged).await?;
                        return done();
                    }
                    Err(error) => return Err(of_github(error)),
                }
            }
        };
        failpoint::here!("delivery-after-pull");
        if capture.pull_number.is_none() && made.state == github::PullState::Open {
            // A courtesy, before the number is noted so that a restart comes by here again.
            if let Err(error) = github.label(slug, made.number, &pull_request_text::LABELS).await {
                tracing::warn!(error = pipeline::chain(&error), "failed to label a pull request");
            }
        }
        let noted = PullRequest { number: made.number, url: made.url, state: state_of(&made.state) };
        let (queue, claimed) = (self.jobs.queue.clone(), claim.clone());
        pipeline::blocking(move || queue.record_pull_request(&claimed, &noted))
            .await
            .map_err(|error| Failure::passing(&error))?;
        failpoint::here!("delivery-before-finish");
        done()
    }

    /// What is known of the remote; `None` when there is none, or nothing is to be sent there.
    async fn way(&self) -> Result<Option<Way>, Failure> {
        if !self.settings.enabled {
            return Ok(None);
        }
        let this = self.clone();
        pipeline::blocking(move || {
            let repository = this.repository()?;
            let known = this.way.way.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let Some(remote) = repository.remote().map_err(|error| with_hint(&error))? else {
                return Ok(None);
            };
            if let Some(way) = known.filter(|way| way.is_to(&remote)) {
                return Ok(Some(way));
            }
            let way = Way::find(remote, &this.settings.api)?;
            *this.way.way.lock().unwrap_or_else(PoisonError::into_inner) = Some(way.clone());
            Ok(Some(way))
        })
        .await
    }

    fn repository(&self) -> Result<Repository, Failure> {
        open(&self.root, self.default_branch.as_deref())
    }

    fn push(&self, way: &Way, claim: &Claim, branch: &Branch, commit: CommitId) -> Result<Sent, Failure> {
        let repository = self.repository()?;
        let capture = &claim.capture;
        if capture.pushed.is_none()
            && let Some(state) = decided(&repository, branch, commit)?
        {
            self.jobs.queue.set_pull_state(capture.id, state).map_err(|error| Failure::passing(&error))?;
            return Ok(Sent::Decided);
        }
        failpoint::here!("delivery-before-push");
        let expected = capture.pushed.as_deref().map(str::parse::<CommitId>).transpose();
        let expected = expected.map_err(|error| Failure::passing(&error))?;
        let pushed = repository.push_branch(&way.session(), &branch.name, commit, expected);
        let is_there = match pushed {
            Ok(Pushed::Created | Pushed::Updated | Pushed::AlreadyThere) => true,
            Err(git::Error::Remote { failure: RemoteFailure::Stale, .. }) => {
                repository.fetch(&way.session()).map_err(of_forge)?;
                let there = repository.remote_tip(&branch.name).map_err(of_forge)?;
                match there {
                    // A reviewer has added to it since an attempt that was killed.
                    Some(there) => repository.contains(there, commit).map_err(of_forge)?,
                    // A person has done with it; the next sync tells what.
                    None if capture.pull_number.is_some() => return Ok(Sent::Decided),
                    None => return Err(Failure::of("the remote's branch has changed meanwhile")),
                }
            }
            Err(error) => return Err(of_forge(error)),
        };
        failpoint::here!("delivery-after-push");
        if is_there {
            let noted = self.jobs.queue.record_push(claim, &branch.commit);
            noted.map_err(|error| Failure::passing(&error))?;
            failpoint::here!("delivery-after-note");
            return Ok(Sent::There);
        }
        match capture.pushed {
            // While it was made anew: theirs stays, and so does the pull request.
            Some(_) => Ok(Sent::AddedTo),
            None => {
                let message = format!("the remote has another branch {} with other content", branch.name);
                Err(Failure { permanent: true, ..Failure::of(message) })
            }
        }
    }

    /// The pull request's text, and the branch that it is to go to.
    fn body(
        &self,
        way: &Way,
        claim: &Claim,
        branch: &Branch,
        input: Option<Input>,
    ) -> Result<(String, String), Failure> {
        let repository = self.repository()?;
        let base = repository.default_branch().map_err(|error| with_hint(&error))?.name;
        let files = way.files_at(&branch.commit);
        let (microdollars, estimated) =
            self.jobs.queue.capture_cost(claim.capture.id).map_err(|error| Failure::passing(&error))?;
        let mut about = About { microdollars, estimated, ..About::default() };
        let body = match input {
            Some(Input::Planned { found, plan }) => {
                about.project.clone_from(&found.session.project);
                (about.begun, about.ended) = (found.session.begun, found.session.ended);
                about.by.clone_from(&found.by);
                pull_request_text::body(&found, &plan, &about, &files)
            }
            _ => {
                let cwd = claim.capture.cwd.as_deref().and_then(Path::file_name);
                about.project = cwd.map(|name| name.to_string_lossy().into_owned());
                about.is_import = claim.capture.origin == queue::ORIGIN_IMPORT;
                let files_of = repository.branch_files(&branch.name);
                pull_request_text::body_of_files(
                    &files_of.map_err(|error| with_hint(&error))?,
                    &about,
                    &files,
                )
            }
        };
        Ok((body, base))
    }

    async fn decide(&self, claim: &Claim, state: PullState) -> Result<(), Failure> {
        let (queue, id) = (self.jobs.queue.clone(), claim.capture.id);
        pipeline::blocking(move || queue.set_pull_state(id, state))
            .await
            .map_err(|error| Failure::passing(&error))
    }
}

impl Known {
    fn forget(&self) {
        if self.way.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
            github::forget_tokens();
        }
    }

    /// Waits until another pull request may be opened.
    async fn turn(&self) {
        let next = self.opened.lock().unwrap_or_else(PoisonError::into_inner).map(|last| last + APART);
        if let Some(next) = next {
            tokio::time::sleep_until(next).await;
        }
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

/// What became of a push.
enum Sent {
    There,
    /// Nothing is to be sent: somebody has decided on it.
    Decided,
    /// Somebody has added to the branch.
    AddedTo,
}

fn parcel(claim: &Claim) -> Result<Parcel, Failure> {
    let Capture { branch: Some(name), commit: Some(id), units, added, .. } = claim.capture.clone() else {
        return Err(Failure { permanent: true, ..Failure::of("the capture has no branch") });
    };
    let commit: CommitId = id.parse().map_err(|_| Failure::of(format!("{id} is no commit")))?;
    let input: Option<Input> =
        if claim.input.is_empty() { None } else { Some(pipeline::decode(&claim.input)?) };
    let time = match &input {
        Some(Input::Planned { plan, .. }) => plan.time,
        _ => added,
    };
    let title = match claim.capture.origin.as_str() {
        queue::ORIGIN_IMPORT => pull_request_text::title_of_import(time),
        _ => pull_request_text::title(time),
    };
    Ok(Parcel { branch: Branch { name, commit: id, units }, commit, title, input })
}

/// What a person has decided on a branch that the remote has never had.
fn decided(repository: &Repository, branch: &Branch, commit: CommitId) -> Result<Option<PullState>, Failure> {
    let default = repository.default_branch().map_err(|error| with_hint(&error))?;
    for tip in [default.local, default.remote].into_iter().flatten() {
        if repository.contains(tip, commit).map_err(|error| with_hint(&error))? {
            return Ok(Some(PullState::Merged));
        }
    }
    let tip = repository.tip(&branch.name).map_err(|error| with_hint(&error))?;
    // Deleted without having been merged.
    Ok(tip.is_none().then_some(PullState::Closed))
}

pub(crate) fn open(root: &Path, default_branch: Option<&str>) -> Result<Repository, Failure> {
    let repository = Repository::open(root).map_err(|error| with_hint(&error))?;
    Ok(repository.with_default_branch(default_branch))
}

pub(crate) fn state_of(state: &github::PullState) -> PullState {
    match state {
        github::PullState::Open => PullState::Open,
        github::PullState::Merged { .. } => PullState::Merged,
        github::PullState::Closed => PullState::Closed,
    }
}

/// The way to one remote: how git goes there and, when it is GitHub, how its API is asked.
#[derive(Clone)]
pub(crate) struct Way {
    remote: Remote,
    credentials: Option<Credentials>,
    /// `None` for another forge.
    pub(crate) hub: Option<Hub>,
}

#[derive(Clone)]
pub(crate) struct Hub {
    slug: Slug,
    /// `None` without a token.
    github: Option<GitHub>,
    /// The repository's page.
    page: String,
}

impl Way {
    /// Looks where a remote leads, and for the token that it wants. Blocking: programs may be asked.
    ///
    /// # Errors
    /// When the settings or the token cannot be used.
    pub(crate) fn find(remote: Remote, api: &str) -> Result<Self, Failure> {
        let none = |remote| Ok(Self { remote, credentials: None, hub: None });
        let Some(place) = remote.parsed_url().filter(|place| place.scheme != Scheme::File) else {
            return none(remote);
        };
        let host = match place.port.filter(|_| place.scheme != Scheme::Ssh) {
            Some(port) => format!("{}:{port}", place.host),
            None => place.host.clone(),
        };
        let (Some(site), Ok(slug)) =
            (Host::for_remote(&host, api).map_err(of_github)?, place.path.parse::<Slug>())
        else {
            return none(remote);
        };
        let scheme = if place.scheme == Scheme::Http { "http" } else { "https" };
        let page = format!("{scheme}://{}/{slug}", site.host());
        let found = site.token().map_err(of_github)?;
        let github = found
            .as_ref()
            .map(|found| GitHub::new(&site.settings(API_DEADLINE), &found.token))
            .transpose()
            .map_err(of_github)?;
        let credentials = found.map(|found| {
            let (username, password) = found.credentials();
            Credentials { username: username.to_owned(), password: password.to_owned() }
        });
        Ok(Self { remote, credentials, hub: Some(Hub { slug, github, page }) })
    }

    pub(crate) fn session(&self) -> RemoteSession<'_> {
        RemoteSession { remote: &self.remote, credentials: self.credentials.as_ref(), deadline: GIT_DEADLINE }
    }

    /// The API of the repository; `None` for another forge.
    ///
    /// # Errors
    /// When there is no token.
    pub(crate) fn github(&self) -> Result<Option<(&GitHub, &Slug)>, Failure> {
        let Some(hub) = &self.hub else { return Ok(None) };
        match &hub.github {
            Some(github) => Ok(Some((github, &hub.slug))),
            None => Err(Failure {
                everyone: true,
                ..Failure::of(
                    "the branch is pushed, but there is no token to open a pull request with (`gh auth login`, or set GITHUB_TOKEN)",
                )
            }),
        }
    }

    pub(crate) fn shown(&self) -> String {
        self.remote.display_url()
    }

    fn is_to(&self, remote: &Remote) -> bool {
        self.remote.name == remote.name && self.remote.display_url() == remote.display_url()
    }

    /// Where a commit's files are shown, with a slash at the end; empty where nobody knows.
    fn files_at(&self, commit: &str) -> String {
        self.hub.as_ref().map(|hub| format!("{}/blob/{commit}/", hub.page)).unwrap_or_default()
    }
}

fn told(error: &(dyn std::error::Error + 'static), hint: Option<&str>) -> String {
    let message = pipeline::chain(error);
    match hint {
        Some(hint) => format!("{message} ({hint})"),
        None => message,
    }
}

/// What git's trouble with the remote means for a capture.
pub(crate) fn of_forge(error: git::Error) -> Failure {
    let failure = Failure::of(told(&error, error.hint()));
    match &error {
        git::Error::Remote { failure: cause, .. } => match cause {
            RemoteFailure::Offline
            | RemoteFailure::TooLate
            | RemoteFailure::Denied
            | RemoteFailure::NotFound
            | RemoteFailure::Empty => Failure { everyone: true, ..failure },
            // Of this one branch: a rule that it does not satisfy, or something that passes.
            RemoteFailure::Protected | RemoteFailure::Stale | RemoteFailure::Other => failure,
        },
        _ => failure,
    }
}

/// What GitHub's refusal means for a capture. One that only a person can mend is in the way of all of them,
/// and is tried again from time to time; only what GitHub finds wrong with this very pull request is final.
pub(crate) fn of_github(error: github::Error) -> Failure {
    use github::Error::{BranchMissing, InvalidRequest, NotShownYet, Protected, Refused};
    let failure = Failure::of(told(&error, error.hint()));
    match &error {
        Refused { .. } | InvalidRequest { .. } => Failure { permanent: true, ..failure },
        BranchMissing { .. } | NotShownYet { .. } | Protected { .. } => failure,
        _ => match error.retry() {
            Retry::After(wait) => Failure { everyone: true, after: Some(wait), ..failure },
            Retry::Later | Retry::Never => Failure { everyone: true, ..failure },
        },
    }
}

/// Queues for delivery what was captured before there was a remote. Returns how many.
///
/// # Errors
/// When the repository or the queue cannot be used.
pub(crate) fn redeliver(
    repository: &Repository,
    queue: &Queue,
    settings: &Settings,
) -> Result<usize, Failure> {
    if !settings.enabled || repository.remote().map_err(|error| with_hint(&error))?.is_none() {
        return Ok(0);
    }
    queue.redeliver().map_err(|error| Failure::passing(&error))
}
