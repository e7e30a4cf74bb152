//! The way to the brain's remote, for commands that go there themselves.

use std::time::Duration;

use git::{Credentials, Pushed, RemoteSession, RemoteUrl, Scheme};
use github::{FoundToken, GitHub, Host, Slug};

use crate::error::CliError;

/// How long one call of GitHub's API may take while a person waits.
pub(crate) const API_DEADLINE: Duration = Duration::from_secs(20);
/// How long git may take for a first look and a first push.
const GIT_DEADLINE: Duration = Duration::from_secs(60);
/// What to do without a token.
pub(crate) const NO_TOKEN_HINT: &str =
    "run `gh auth login`, or set GITHUB_TOKEN to a token with write access to contents and pull requests";

/// The GitHub that a place is on, and what it is called there; `None` for another forge or a folder.
/// `api` is the setting `github.api`.
pub(crate) fn site_of(place: &RemoteUrl, api: &str) -> Result<Option<(Host, Slug)>, github::Error> {
    if place.scheme == Scheme::File {
        return Ok(None);
    }
    let host = match place.port.filter(|_| place.scheme != Scheme::Ssh) {
        Some(port) => format!("{}:{port}", place.host),
        None => place.host.clone(),
    };
    Ok(Host::for_remote(&host, api)?.zip(place.path.parse().ok()))
}

/// For git over https: the same token.
pub(crate) fn credentials_of(found: &FoundToken) -> Credentials {
    let (username, password) = found.credentials();
    Credentials { username: username.to_owned(), password: password.to_owned() }
}

/// What git needs for a place, where that is a GitHub and there is a token.
pub(crate) fn credentials_for(
    place: Option<&RemoteUrl>,
    api: &str,
) -> Result<Option<Credentials>, github::Error> {
    let Some(place) = place.filter(|place| matches!(place.scheme, Scheme::Https | Scheme::Http)) else {
        return Ok(None);
    };
    let Some((site, _)) = site_of(place, api)? else { return Ok(None) };
    Ok(site.token()?.as_ref().map(credentials_of))
}

/// A repository on GitHub that a brain is to be kept in.
pub(crate) struct Hub {
    pub(crate) repository: github::Repository,
    /// Whether it was made just now.
    pub(crate) is_created: bool,
}

impl Hub {
    /// Finds the repository, or makes it when that is asked for.
    pub(crate) fn find(slug: &Slug, api: &str, create: bool, private: bool) -> Result<Self, CliError> {
        let site = Host::from_setting(api)?;
        let Some(found) = site.token()? else {
            return Err(CliError::new(format!("there is no token for {}", site.host())).hint(NO_TOKEN_HINT));
        };
        let (repository, is_created) = runtime()?.block_on(async {
            let github = GitHub::new(&site.settings(API_DEADLINE), &found.token)?;
            match github.repository(slug).await {
                Ok(repository) => Ok((repository, false)),
                Err(github::Error::NotFound { .. }) if create => {
                    Ok((github.create_repository(slug, private).await?, true))
                }
                Err(error @ github::Error::NotFound { .. }) => Err(CliError::from(error).hint(
                    "give --create to make it, private; or check its name, and that the token may see it",
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

    pub(crate) fn told(&self, wants_public: bool) -> String {
        let github::Repository { slug, html_url, private, .. } = &self.repository;
        let kind = if *private { "private" } else { "public" };
        let verb = if self.is_created { "made" } else { "found" };
        let mut text = format!("{verb} the {kind} repository {slug}: {html_url}\n");
        if !private && !wants_public {
            text.push_str("everybody can read that repository, and what you merge into it\n");
        }
        text
    }
}

/// How a remote stands to a brain that has just got it.
pub(crate) enum First {
    /// It was empty, and has the default branch now.
    Pushed {
        branch: String,
    },
    /// It has what is here.
    There,
    /// It has what is here and more.
    Behind {
        commits: usize,
    },
    /// Here is more than there.
    Ahead {
        branch: String,
        commits: usize,
    },
    /// Each has commits that the other has not.
    Apart {
        branch: String,
    },
    Unreached(CliError),
}

/// Pushes the default branch to a remote that is empty. Nothing is ever forced.
pub(crate) fn push_first(repository: &git::Repository, api: &str) -> First {
    let go = || -> Result<First, CliError> {
        let Some(remote) = repository.remote()? else {
            return Err(CliError::new("git shows no remote `origin`"));
        };
        let credentials = credentials_for(remote.parsed_url().as_ref(), api)?;
        let session =
            RemoteSession { remote: &remote, credentials: credentials.as_ref(), deadline: GIT_DEADLINE };
        if repository.fetch(&session)?.tip.is_none() {
            let pushed = repository.push_default(&session)?;
            let branch = repository.default_branch()?.name;
            return Ok(if pushed == Pushed::AlreadyThere { First::There } else { First::Pushed { branch } });
        }
        let lag = repository.lag()?;
        Ok(match (lag.behind, lag.ahead) {
            (0, 0) => First::There,
            (commits, 0) => First::Behind { commits },
            (0, commits) => First::Ahead { branch: lag.branch, commits },
            _ => First::Apart { branch: lag.branch },
        })
    };
    go().unwrap_or_else(First::Unreached)
}

impl First {
    /// Whether the remote is ready for pull requests.
    pub(crate) fn is_good(&self) -> bool {
        !matches!(self, Self::Apart { .. } | Self::Unreached(_))
    }

    /// In one line, with what comes next where there is something.
    pub(crate) fn told(&self, name: &str) -> String {
        let commits =
            |count: &usize| if *count == 1 { "1 commit".to_owned() } else { format!("{count} commits") };
        match self {
            Self::Pushed { branch } => format!("pushed `{branch}` to `{name}`"),
            Self::There => format!("`{name}` has all that is here"),
            Self::Behind { commits: count } => {
                format!("`{name}` is {} ahead: `git pull` in the brain gets them", commits(count))
            }
            Self::Ahead { branch, commits: count } => {
                format!("{} of `{branch}` not at `{name}` yet: push when you want", commits(count))
            }
            Self::Apart { branch } => format!(
                "`{name}` has commits of its own, so nothing was pushed: `nugget clone` takes that brain over, or merge `{name}/{branch}` yourself"
            ),
            Self::Unreached(fault) => {
                format!(
                    "nothing was pushed: {}; it is tried again by this command or `git push`",
                    fault.line()
                )
            }
        }
    }
}

/// For a few requests.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
