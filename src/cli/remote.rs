//! Access to the brain's remote, for commands that use it directly.

use std::path::Path;
use std::time::Duration;

pub(crate) use actors::{find_credentials, github_host, token_credentials};
use brain::{Brain, Config, StatePaths};
use git::{Pushed, RemoteFailure, RemoteSession, RemoteUrl};
use github::{GitHub, Host, Slug};
use jiff::Timestamp;
use queue::Queue;

use crate::async_runtime;
use crate::context::Context;
use crate::error::CliError;
use crate::output::{self, counted};

/// How long one call of GitHub's API may take while a person waits.
pub(crate) const API_DEADLINE: Duration = Duration::from_secs(20);
/// How long git may take for the first fetch and the first push.
const GIT_DEADLINE: Duration = Duration::from_secs(60);
const NO_TOKEN_HINT: &str =
    "run `gh auth login`, or set GITHUB_TOKEN to a token with write access to contents and pull requests";

/// The brain's repository, with the default branch that its `brain.yaml` names, if any.
pub(crate) fn open_repository(brain: &Brain) -> Result<git::Repository, git::Error> {
    let branch = brain.manifest().ok().and_then(|manifest| manifest.default_branch);
    Ok(git::Repository::open(brain.root())?.with_default_branch(branch.as_deref()))
}

/// The operation of git's that is in progress in the brain, if one is and git can tell.
pub(crate) fn unfinished(brain: &Brain) -> Option<git::Unfinished> {
    open_repository(brain).ok()?.unfinished().ok()?
}

/// What is to be known beside an answer from a brain with files in conflict, which are no units.
pub(crate) fn conflict_hint(brain: &Brain) -> Option<String> {
    let unfinished = unfinished(brain).filter(|unfinished| unfinished.conflicts > 0)?;
    let files = match unfinished.conflicts {
        1 => "1 file is in conflict and is no unit until then".to_owned(),
        count => format!("{count} files are in conflict and are no units until then"),
    };
    Some(format!("{unfinished}; {files}"))
}

/// Whether the last sync could not push what was merged here, because the remote takes no pushes of the main branch.
pub(crate) fn is_push_refused(places: &StatePaths) -> bool {
    let queue = Some(places.queue()).filter(|path| path.is_file()).and_then(|path| Queue::open(&path).ok());
    let last = queue.and_then(|queue| actors::sync::last_report(&queue).ok()?);
    last.is_some_and(|(_, synced)| synced.is_refused)
}

/// A repository on GitHub that a brain will be pushed to.
pub(crate) struct GitHubRepository {
    pub(crate) repository: github::Repository,
    /// Whether this command has created it.
    pub(crate) is_created: bool,
}

impl GitHubRepository {
    /// Finds the repository, or creates it if `create` says so.
    pub(crate) fn find(slug: &Slug, api: &str, create: bool, private: bool) -> Result<Self, CliError> {
        let host = Host::from_setting(api)?;
        let Some(found) = host.token()? else {
            return Err(CliError::new(format!("there is no token for {}", host.host())).hint(NO_TOKEN_HINT));
        };
        let (repository, is_created) = async_runtime::current_thread()?.block_on(async {
            let github = GitHub::new(host.api(), API_DEADLINE, &found.token)?;
            match github.repository(slug).await {
                Ok(repository) => Ok((repository, false)),
                Err(github::Error::NotFound { .. }) if create => {
                    Ok((github.create_repository(slug, private).await?, true))
                }
                Err(error @ github::Error::NotFound { .. }) => Err(CliError::from(error).hint(
                    "use --create to create it as a private repository; or check its name and the token's access",
                )),
                Err(error) => Err(CliError::from(error)),
            }
        })?;
        if repository.archived {
            return Err(github::Error::Archived { slug: repository.slug.to_string() }.into());
        }
        if !repository.can_push {
            return Err(CliError::new(format!("the token may not push to {}", repository.slug))
                .hint("give it write access to contents and pull requests"));
        }
        Ok(Self { repository, is_created })
    }

    /// The repository in lines for a person, with a warning if it is public without being asked for.
    pub(crate) fn describe(&self, wants_public: bool) -> String {
        let github::Repository { slug, html_url, private, .. } = &self.repository;
        let kind = if *private { "private" } else { "public" };
        let verb = if self.is_created { "created" } else { "found" };
        let mut text = format!("{verb} the {kind} repository {slug}: {html_url}\n");
        if !private && !wants_public {
            text.push_str("warning: everyone can read that repository and what you merge into it\n");
        }
        text
    }
}

/// Clones what a remote has to a folder that is missing or empty: on a second machine there is a brain already. `None` if it
/// has nothing, or cannot be reached; then nothing is left in the folder.
pub(crate) fn clone_existing(
    url: &str,
    folder: &Path,
    api: &str,
) -> Result<Option<git::Repository>, CliError> {
    // The first push says what is wrong with them.
    let Ok(credentials) = find_credentials(RemoteUrl::parse(url).as_ref(), api) else { return Ok(None) };
    let spinner = output::spinner("asking the remote");
    let cloned = git::clone(url, folder, credentials.as_ref(), GIT_DEADLINE);
    spinner.finish_and_clear();
    match cloned {
        Ok(repository) if repository.default_branch().is_ok() => Ok(Some(repository)),
        // A clone of nothing: it is made as any other brain.
        Ok(repository) => {
            std::fs::remove_dir_all(repository.root())?;
            Ok(None)
        }
        // It may have a brain that is large.
        Err(error @ git::Error::Remote { failure: RemoteFailure::TooLate, .. }) => {
            Err(CliError::from(error).hint("if there is a brain, `nugget clone` has more time for it"))
        }
        Err(error) => {
            tracing::debug!(%error, "nothing was cloned");
            Ok(None)
        }
    }
}

/// The result of the first push to a remote.
pub(crate) struct FirstPush {
    /// One line, with the next step if there is one.
    pub(crate) message: String,
    /// Whether the remote was empty and has the default branch now.
    pub(crate) is_pushed: bool,
    /// Whether pull requests can be opened at the remote.
    pub(crate) is_ready: bool,
}

/// Pushes the default branch to the remote `origin` if that is empty. Never forces a push.
pub(crate) fn push_first(repository: &git::Repository, api: &str) -> FirstPush {
    try_push_first(repository, api).unwrap_or_else(|error| {
        let message = format!("nothing was pushed: {}; run this command again, or `git push`", error.line());
        FirstPush { message, is_pushed: false, is_ready: false }
    })
}

fn try_push_first(repository: &git::Repository, api: &str) -> Result<FirstPush, CliError> {
    let Some(remote) = repository.remote()? else {
        return Err(CliError::new("git has no remote `origin`"));
    };
    let credentials = find_credentials(remote.parsed_url().as_ref(), api)?;
    let session =
        RemoteSession { remote: &remote, credentials: credentials.as_ref(), deadline: GIT_DEADLINE };
    let is_pushed = repository.fetch(&session)?.tip.is_none()
        && repository.push_default(&session)? != Pushed::AlreadyThere;
    if is_pushed {
        if let Err(error) = repository.set_upstream(&remote) {
            // It is pushed all the same.
            tracing::warn!(%error, "failed to set the upstream of the default branch");
        }
        let message = format!("pushed `{}` to `origin`", repository.default_branch()?.name);
        return Ok(FirstPush { message, is_pushed, is_ready: true });
    }
    let git::Lag { branch, behind, ahead, .. } = repository.lag()?;
    let commits = |count: usize| counted(count as u64, "commit");
    let message = match (behind, ahead) {
        (0, 0) => "`origin` is up to date".to_owned(),
        (behind, 0) => format!("`origin` is {} ahead: run `git pull` in the brain", commits(behind)),
        (0, ahead) => {
            format!("`{branch}` is {} ahead of `origin`: push it when you want", commits(ahead))
        }
        _ => format!(
            "nothing was pushed, because `origin` has other commits: to take over that brain, move this folder away if it has nothing of yours and use `nugget clone`; or merge `origin/{branch}` yourself"
        ),
    };
    Ok(FirstPush { message, is_pushed, is_ready: behind == 0 || ahead == 0 })
}
/// Has what waits for review at the remote of a brain that was just cloned wait here, too. Returns how many branches there
/// are; what fails now, the next sync does.
pub(crate) fn follow_fetched(context: &Context, config: &Config, brain: &Brain) -> usize {
    let follow = || -> Result<usize, CliError> {
        let setup = context.setup(config, brain)?;
        let queue = Queue::open(&setup.places.queue())?;
        actors::sync::follow_fetched(&setup, &queue, Timestamp::now())
            .map_err(|error| CliError::new(error.to_string()))
    };
    follow().unwrap_or_else(|error| {
        tracing::warn!(error = error.line(), "failed to look for what waits for review at the remote");
        0
    })
}

/// A line about what waits for review at the remote; empty if nothing does.
pub(crate) fn describe_waiting(branches: usize) -> String {
    match branches {
        0 => String::new(),
        count => format!("{} with what waits for review: `nugget review`\n", counted(count as u64, "branch")),
    }
}
