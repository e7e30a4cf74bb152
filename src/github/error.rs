//! The crate's error type, the hints for a person, and when to try again.

use std::time::Duration;

/// Why a request to GitHub failed. Texts of the server are shortened and contain no token.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message of a variant says what its fields are")]
pub enum Error {
    /// The text is not a repository's `OWNER/NAME`.
    #[error("{text:?} is not OWNER/NAME")]
    InvalidSlug { text: String },
    /// No token may be sent to this address.
    #[error("the address of GitHub's API cannot be used: {reason}")]
    InvalidApi { reason: &'static str },
    /// The text cannot be a token.
    #[error("the value of {from} cannot be a token")]
    InvalidToken { from: String },
    /// The arguments of a call are not allowed.
    #[error("invalid request for {what}: {reason}")]
    InvalidRequest { what: &'static str, reason: &'static str },
    /// The HTTP client could not be created.
    #[error("failed to set up the HTTP client")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No connection was made.
    #[error("{host} cannot be reached: {message}")]
    Offline { host: String, message: String },
    /// The deadline has passed.
    #[error("{host} did not answer within {} s", waited.as_secs_f32())]
    TimedOut { host: String, waited: Duration },
    /// The connection ended before the response was complete.
    #[error("the connection to {host} was lost before the response arrived: {message}")]
    ConnectionLost { host: String, message: String },
    /// A 5xx status.
    #[error("GitHub is unavailable ({status}): {message}")]
    Unavailable { status: u16, message: String },
    /// The response is not as documented.
    #[error("GitHub's response for {what} is not as documented: {message}")]
    InvalidResponse { what: String, message: String },
    /// A redirect to another host was not followed.
    #[error("GitHub redirects {what} to {host}, where the token is not sent")]
    Redirected { what: String, host: String },
    /// The primary rate limit is exhausted.
    #[error("GitHub's rate limit is exhausted for {} more seconds", wait.as_secs())]
    RateLimited { wait: Duration },
    /// A secondary rate limit, or a server that names a time to wait.
    #[error("GitHub asks to wait {} seconds: {message}", wait.as_secs())]
    SecondaryLimit { wait: Duration, message: String },
    /// The token is invalid, expired or revoked.
    #[error("{host} does not accept the token (401): {message}")]
    Unauthorized { host: String, message: String },
    /// The token lacks a permission.
    #[error("the token does not have permission (403): {message}")]
    Forbidden { what: String, message: String },
    /// The organisation requires single sign-on for the token.
    #[error("the organisation requires the token to be authorised for single sign-on (403)")]
    SingleSignOn,
    /// The repository is read-only.
    #[error("the repository {slug} is archived")]
    Archived { slug: String },
    /// The subject does not exist, or the token may not see it.
    #[error("GitHub does not find {what}, or the token may not see it (404)")]
    NotFound { what: String },
    /// The subject was removed or blocked.
    #[error("{what} is gone ({status}): {message}")]
    Gone { what: String, status: u16, message: String },
    /// A rule of the repository forbids the request.
    #[error("{what} is protected: {message}")]
    Protected { what: String, message: String },
    /// A pull request would be empty.
    #[error("{base} has all commits of {branch}: there is nothing to open a pull request for")]
    NothingNew { branch: String, base: String },
    /// The branch to merge into does not exist.
    #[error("the repository has no branch {base} to open a pull request against")]
    BaseMissing { base: String },
    /// The branch with the commits does not exist.
    #[error("the repository has no branch {branch} to open a pull request from")]
    BranchMissing { branch: String },
    /// GitHub reports a conflict with an object that it does not list yet.
    #[error("GitHub reports that {what} already exists, but does not show it yet")]
    NotShownYet { what: String },
    /// Any other refusal.
    #[error("GitHub refuses {what} ({status}): {message}")]
    Refused { what: String, status: u16, message: String },
}

/// When it makes sense to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Only after a person has fixed the cause.
    Never,
    /// After this time, which the server gave.
    After(Duration),
    /// After a pause of the caller's choice: the cause is temporary.
    Later,
}

impl Error {
    /// When it makes sense to try again.
    pub fn retry(&self) -> Retry {
        match self {
            Self::RateLimited { wait } | Self::SecondaryLimit { wait, .. } => Retry::After(*wait),
            Self::Offline { .. }
            | Self::TimedOut { .. }
            | Self::ConnectionLost { .. }
            | Self::Unavailable { .. }
            | Self::InvalidResponse { .. }
            | Self::NotShownYet { .. } => Retry::Later,
            _ => Retry::Never,
        }
    }

    /// What a person can do about the error, if anything.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::InvalidSlug { .. } => Some("write it as in the repository's address: me/brain"),
            Self::InvalidApi { .. } => {
                Some("`github.api` is https://HOST/api/v3 for a GitHub Enterprise Server")
            }
            Self::InvalidToken { .. } => Some("set it again, without spaces or line breaks"),
            Self::Offline { .. } | Self::TimedOut { .. } | Self::ConnectionLost { .. } => {
                Some("nothing is lost; nugget tries again when GitHub can be reached")
            }
            Self::Unavailable { .. } => Some("nothing is lost; see https://www.githubstatus.com"),
            Self::InvalidResponse { .. } => {
                Some("a proxy or the login page of a network may have answered in place of GitHub")
            }
            Self::Redirected { .. } => Some("set the remote's URL or `github.api` to the new address"),
            Self::Unauthorized { .. } => {
                Some("the token has expired or been revoked: `gh auth login`, or set GITHUB_TOKEN again")
            }
            Self::Forbidden { .. } => Some(
                "a fine-grained token needs write access to `contents` and `pull requests` of this repository; a classic one needs the scope `repo`",
            ),
            Self::SingleSignOn => {
                Some("authorise it under Settings, Developer settings, Personal access tokens, Configure SSO")
            }
            Self::Archived { .. } => {
                Some("unarchive it in its settings on GitHub, or give the brain another remote")
            }
            Self::NotFound { .. } => Some(
                "check the remote's URL and that the token may see that repository; `nugget doctor` shows both",
            ),
            Self::Gone { .. } => Some("give the brain another remote, or ask the repository's owner"),
            Self::Protected { .. } => {
                Some("a rule of the repository forbids this: change the rule, or do it by hand")
            }
            Self::BaseMissing { .. } => {
                Some("if the default branch was renamed, `nugget sync` finds its new name")
            }
            Self::RateLimited { .. } | Self::SecondaryLimit { .. } => {
                Some("nugget continues by itself after that time")
            }
            _ => None,
        }
    }

    /// Whether GitHub may have executed the request despite the error.
    pub(crate) fn may_have_succeeded(&self) -> bool {
        matches!(
            self,
            Self::TimedOut { .. }
                | Self::ConnectionLost { .. }
                | Self::Unavailable { .. }
                | Self::InvalidResponse { .. }
        )
    }
}
