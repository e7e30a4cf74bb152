//! Access to the brain's remote: how git connects to it and, if it is on GitHub, how its API is called.

use std::time::Duration;

use git::{Credentials, Remote, RemoteSession, RemoteUrl, Scheme};
use github::{FoundToken, GitHub, Host, Slug};
use queue::PullState;

use crate::batch_window::BatchWindow;
use crate::failure::{Failure, FailureClass};

/// How long one call of git may take with the remote.
const GIT_DEADLINE: Duration = Duration::from_secs(120);
/// How long one request to GitHub's API may take.
const API_DEADLINE: Duration = Duration::from_secs(30);

/// Settings for the remote of the brain.
#[derive(Clone, Debug, Default)]
pub struct DeliverySettings {
    /// Whether anything is sent to the remote.
    pub enabled: bool,
    /// The setting `github.api`; empty to derive it from the remote's host.
    pub api: String,
    /// Whose captures share a pull request; `None` for one of each capture.
    pub batch: Option<BatchWindow>,
    /// How often a background sync fetches from the remote; `None` for never.
    pub sync_every: Option<Duration>,
}

/// Access to one remote.
#[derive(Clone)]
pub(crate) struct RemoteAccess {
    remote: Remote,
    credentials: Option<Credentials>,
    /// `None` for another host than GitHub.
    github: Option<GitHubAccess>,
}

#[derive(Clone)]
struct GitHubAccess {
    slug: Slug,
    /// `None` without a token.
    client: Option<GitHub>,
    /// The address of the repository's page.
    page: String,
}

impl RemoteAccess {
    /// Reads where the remote is, and looks up the token for it. Blocks: other programs may be asked.
    ///
    /// # Errors
    /// When the settings or the token cannot be used.
    pub(crate) fn discover(remote: Remote, api: &str) -> Result<Self, Failure> {
        let without_github = |remote| Ok(Self { remote, credentials: None, github: None });
        let Some(url) = remote.parsed_url().filter(|url| url.scheme != Scheme::File) else {
            return without_github(remote);
        };
        let Some((host, slug)) = github_host(&url, api)? else { return without_github(remote) };
        let scheme = if url.scheme == Scheme::Http { "http" } else { "https" };
        let page = format!("{scheme}://{}/{slug}", host.host());
        let token = host.token()?;
        let client = match &token {
            Some(found) => Some(GitHub::new(host.api(), API_DEADLINE, &found.token)?),
            None => None,
        };
        let credentials = token.as_ref().map(token_credentials);
        Ok(Self { remote, credentials, github: Some(GitHubAccess { slug, client, page }) })
    }

    /// What git needs to connect.
    pub(crate) fn session(&self) -> RemoteSession<'_> {
        RemoteSession { remote: &self.remote, credentials: self.credentials.as_ref(), deadline: GIT_DEADLINE }
    }

    /// The API and the name of the repository; `None` for another host than GitHub.
    ///
    /// # Errors
    /// When there is no token.
    pub(crate) fn github(&self) -> Result<Option<(&GitHub, &Slug)>, Failure> {
        match &self.github {
            None => Ok(None),
            Some(GitHubAccess { slug, client: Some(client), .. }) => Ok(Some((client, slug))),
            Some(GitHubAccess { client: None, .. }) => Err(Failure::new(
                FailureClass::BlocksStage(None),
                "the branch is pushed, but there is no token to open a pull request with (`gh auth login`, or set GITHUB_TOKEN)",
            )),
        }
    }

    /// Whether what waits for review there has pull requests: not without a token.
    pub(crate) fn has_pull_requests(&self) -> bool {
        self.github.as_ref().is_some_and(|github| github.client.is_some())
    }

    /// The remote's address without any secret.
    pub(crate) fn display_url(&self) -> String {
        self.remote.display_url()
    }

    pub(crate) fn is_for(&self, remote: &Remote) -> bool {
        self.remote.name == remote.name && self.remote.display_url() == remote.display_url()
    }

    /// The address of a commit's files, with a slash at the end; empty for another host than GitHub.
    pub(crate) fn files_at(&self, commit: &str) -> String {
        self.github.as_ref().map(|github| format!("{}/blob/{commit}/", github.page)).unwrap_or_default()
    }
}

/// The GitHub server and repository at an address; `None` for other hosts and folders. `api` is the setting
/// `github.api`. Blocks: ssh is asked what a host is that is not known as GitHub's.
///
/// # Errors
/// When the setting is no address.
pub fn github_host(url: &RemoteUrl, api: &str) -> Result<Option<(Host, Slug)>, github::Error> {
    if url.scheme == Scheme::File {
        return Ok(None);
    }
    let host = match url.port.filter(|_| url.scheme != Scheme::Ssh) {
        Some(port) => format!("{}:{port}", url.host),
        None => url.host.clone(),
    };
    let mut found = Host::for_remote(&host, api)?;
    if url.scheme == Scheme::Ssh
        && found.is_none()
        && let Some(named) = git::ssh_host(&url.host)
    {
        found = Host::for_remote(&named, api)?;
    }
    Ok(found.zip(url.path.parse().ok()))
}

/// The token as credentials for git over https.
pub fn token_credentials(found: &FoundToken) -> Credentials {
    let (username, password) = found.credentials();
    Credentials { username: username.to_owned(), password: password.to_owned() }
}

/// Credentials for git at an address, if that is on GitHub and there is a token.
///
/// # Errors
/// When the setting is no address, or the token cannot be looked up.
pub fn find_credentials(url: Option<&RemoteUrl>, api: &str) -> Result<Option<Credentials>, github::Error> {
    let Some(url) = url.filter(|url| matches!(url.scheme, Scheme::Https | Scheme::Http)) else {
        return Ok(None);
    };
    let Some((host, _)) = github_host(url, api)? else { return Ok(None) };
    Ok(host.token()?.as_ref().map(token_credentials))
}

pub(crate) fn pull_state(state: &github::PullState) -> PullState {
    match state {
        github::PullState::Open => PullState::Open,
        github::PullState::Merged => PullState::Merged,
        github::PullState::Closed => PullState::Closed,
    }
}

/// Comments once on a pull request that nugget leaves its branch alone, as somebody else has added to it.
///
/// # Errors
/// When GitHub refuses the comment or cannot be reached.
pub(crate) async fn comment_branch_left_alone(
    github: &GitHub,
    slug: &Slug,
    number: u64,
) -> Result<(), Failure> {
    let text = "What this branch edits has been edited on the default branch since. Somebody has \
        added to the branch, so nugget leaves it as it is.";
    github.comment_once(slug, number, "nugget:added-to", text).await?;
    Ok(())
}
