//! What can go wrong with GitHub, what a person can do about it, and when to try again.

use std::time::Duration;

use serde::Deserialize;

use crate::types::Slug;

/// How much of the server's own words is shown.
const TOLD_CHARS_MAX: usize = 300;
/// GitHub's advice for a secondary limit that names no time: at least a minute.
const SECONDARY_WAIT: Duration = Duration::from_secs(60);
/// The primary limit is of one hour; no server may put us off for longer than that.
const WAIT_MAX: Duration = Duration::from_secs(3600);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{text:?} is not OWNER/NAME")]
    InvalidSlug { text: String },
    #[error("the address of GitHub's API cannot be used: {reason}")]
    InvalidApi { reason: &'static str },
    #[error("what {from} gives cannot be a token")]
    InvalidToken { from: String },
    #[error("{what} cannot be asked for: {reason}")]
    InvalidRequest { what: &'static str, reason: &'static str },
    #[error("failed to set up the HTTP client")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("{host} cannot be reached: {told}")]
    Offline { host: String, told: String },
    #[error("{host} did not answer within {} s", waited.as_secs_f32())]
    TimedOut { host: String, waited: Duration },
    #[error("the connection to {host} broke before the answer was there: {told}")]
    Broken { host: String, told: String },
    #[error("GitHub is not well ({status}): {told}")]
    Unavailable { status: u16, told: String },
    #[error("GitHub's answer to {what} is not what its manual says: {told}")]
    Answer { what: String, told: String },
    #[error("GitHub redirects {what} to {host}, where the token is not sent")]
    Redirected { what: String, host: String },
    #[error("GitHub's rate limit is used up for {} more seconds", wait.as_secs())]
    RateLimited { wait: Duration },
    #[error("GitHub asks for a pause of {} seconds: {told}", wait.as_secs())]
    SecondaryLimit { wait: Duration, told: String },
    #[error("{host} does not accept the token (401): {told}")]
    Unauthorized { host: String, told: String },
    #[error("the token may not do this (403): {told}")]
    Forbidden { what: String, told: String },
    #[error("the organisation wants the token to be authorised for single sign-on (403)")]
    SingleSignOn,
    #[error("the repository {slug} is archived")]
    Archived { slug: String },
    #[error("GitHub does not find {what}, or the token may not see it (404)")]
    NotFound { what: String },
    #[error("{what} is gone ({status}): {told}")]
    Gone { what: String, status: u16, told: String },
    #[error("{what} is protected: {told}")]
    Protected { what: String, told: String },
    #[error("{base} has everything that {branch} has: there is nothing to open a pull request for")]
    NothingNew { branch: String, base: String },
    #[error("the repository has no branch {base} to make a pull request against")]
    BaseMissing { base: String },
    #[error("the repository has no branch {branch} to make a pull request from")]
    BranchMissing { branch: String },
    #[error("GitHub says that {what} exists already, and does not show it yet")]
    NotShownYet { what: String },
    #[error("GitHub refuses {what} ({status}): {told}")]
    Refused { what: String, status: u16, told: String },
}

/// When it makes sense to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Not before a person has done something.
    Never,
    /// Not before this much time has passed: the server has named it.
    After(Duration),
    /// After a pause of the caller's choice: what is wrong passes by itself.
    Later,
}

impl Error {
    pub fn retry(&self) -> Retry {
        match self {
            Self::RateLimited { wait } | Self::SecondaryLimit { wait, .. } => Retry::After(*wait),
            Self::Offline { .. }
            | Self::TimedOut { .. }
            | Self::Broken { .. }
            | Self::Unavailable { .. }
            | Self::Answer { .. }
            | Self::NotShownYet { .. } => Retry::Later,
            _ => Retry::Never,
        }
    }

    /// What a person can do about it, where there is something.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::InvalidSlug { .. } => Some("write it as in the repository's address: me/brain"),
            Self::InvalidApi { .. } => {
                Some("`github.api` is https://HOST/api/v3 for a GitHub Enterprise Server")
            }
            Self::InvalidToken { .. } => Some("set it anew, without blanks or line ends"),
            Self::Offline { .. } | Self::TimedOut { .. } | Self::Broken { .. } => {
                Some("nothing is lost; it is tried again when GitHub can be reached")
            }
            Self::Unavailable { .. } => Some("nothing is lost; https://www.githubstatus.com tells more"),
            Self::Answer { .. } => Some(
                "something between here and GitHub may answer in its place, such as a hotel's login page",
            ),
            Self::Redirected { .. } => Some("set the remote's URL or `github.api` to where it is now"),
            Self::Unauthorized { .. } => {
                Some("the token has expired or been revoked: `gh auth login`, or set GITHUB_TOKEN anew")
            }
            Self::Forbidden { .. } => Some(
                "a fine-grained token needs `contents` and `pull requests` with write access to this repository; a classic one the scope `repo`",
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
            Self::Gone { .. } => Some("give the brain another remote, or ask who closed it"),
            Self::Protected { .. } => {
                Some("a rule of the repository forbids it: change the rule, or do it by hand")
            }
            Self::BaseMissing { .. } => {
                Some("was the default branch renamed? `nugget sync` finds its new name")
            }
            Self::RateLimited { .. } | Self::SecondaryLimit { .. } => Some("it goes on by itself then"),
            _ => None,
        }
    }

    /// Whether the request may have been carried out all the same.
    pub(crate) fn leaves_doubt(&self) -> bool {
        matches!(
            self,
            Self::TimedOut { .. } | Self::Broken { .. } | Self::Unavailable { .. } | Self::Answer { .. }
        )
    }
}

/// An answer that is no success, as far as it matters for what it means.
#[derive(Debug, Default)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    /// `retry-after`, in seconds.
    pub(crate) retry_after: Option<u64>,
    /// `x-ratelimit-remaining`.
    pub(crate) remaining: Option<u64>,
    /// `x-ratelimit-reset`, in seconds since 1970, by the server's clock.
    pub(crate) reset: Option<i64>,
    /// `date`, in seconds since 1970; ours when the server tells none.
    pub(crate) now: i64,
    /// Whether there is an `x-github-sso` that asks for something.
    pub(crate) wants_sso: bool,
    pub(crate) told: ErrorBody,
}

/// The body of such an answer, by GitHub's manual; or whatever a proxy has put there.
#[derive(Debug, Default)]
pub(crate) struct ErrorBody {
    message: String,
    errors: Vec<Detail>,
}

/// One of its `errors`.
#[derive(Debug, Default)]
pub(crate) struct Detail {
    field: String,
    code: String,
    message: String,
}

impl ErrorBody {
    /// `clean` takes out what must not be shown.
    pub(crate) fn read(body: &[u8], clean: impl Fn(&str) -> String) -> Self {
        #[derive(Deserialize)]
        struct Body {
            #[serde(default)]
            message: String,
            /// Objects by the manual, texts here and there.
            #[serde(default)]
            errors: serde_json::Value,
        }
        let Ok(body) = serde_json::from_slice::<Body>(body) else {
            return Self { message: "the answer is not JSON".to_owned(), errors: Vec::new() };
        };
        let shown = |text: &str| knowledge::text::one_line(&clean(text), TOLD_CHARS_MAX);
        let details = body.errors.as_array().into_iter().flatten().map(|detail| {
            let text = |name: &str| shown(detail[name].as_str().unwrap_or_default());
            let message = detail.as_str().map_or_else(|| text("message"), &shown);
            Detail { field: text("field"), code: text("code"), message }
        });
        Self { message: shown(&body.message), errors: details.collect() }
    }

    fn has(&self, words: &str) -> bool {
        self.message.to_ascii_lowercase().contains(words)
            || self.errors.iter().any(|detail| detail.message.to_ascii_lowercase().contains(words))
    }

    fn is_invalid(&self, field: &str) -> bool {
        self.errors.iter().any(|detail| detail.field == field && detail.code == "invalid")
    }

    /// In one line, details first: the message of a 422 is always "Validation Failed".
    fn line(&self) -> String {
        let details: Vec<String> = self
            .errors
            .iter()
            .map(|detail| match (&*detail.message, &*detail.field, &*detail.code) {
                ("", field, code) => format!("{field} {code}").trim().to_owned(),
                (message, ..) => message.to_owned(),
            })
            .filter(|text| !text.is_empty())
            .collect();
        match (details.is_empty(), self.message.is_empty()) {
            (false, _) => knowledge::text::one_line(&details.join("; "), TOLD_CHARS_MAX),
            (true, false) => self.message.clone(),
            (true, true) => "it does not say why".to_owned(),
        }
    }
}

impl Refusal {
    /// What it means, when `what` was asked of `slug` at `host`.
    pub(crate) fn read(self, host: &str, slug: Option<&Slug>, what: &str) -> Error {
        let told = self.told.line();
        let what = what.to_owned();
        let limited = matches!(self.status, 403 | 429);
        match self.status {
            _ if limited && let Some(wait) = self.wait_of_secondary() => Error::SecondaryLimit { wait, told },
            _ if limited && self.remaining == Some(0) => Error::RateLimited { wait: self.wait_of_primary() },
            429 => Error::SecondaryLimit { wait: SECONDARY_WAIT, told },
            401 => Error::Unauthorized { host: host.to_owned(), told },
            403 if self.wants_sso => Error::SingleSignOn,
            403 if self.told.has("archived") => {
                Error::Archived { slug: slug.map_or_else(String::new, Slug::to_string) }
            }
            403 => Error::Forbidden { what, told },
            404 => Error::NotFound { what },
            410 | 451 => Error::Gone { what, status: self.status, told },
            422 if self.told.has("protected") || self.told.has("rule violation") => {
                Error::Protected { what, told }
            }
            408 | 500..=599 => match self.retry_after {
                Some(seconds) => Error::SecondaryLimit { wait: bounded(seconds), told },
                None => Error::Unavailable { status: self.status, told },
            },
            status => Error::Refused { what, status, told },
        }
    }

    /// The same for a pull request that is to be opened; `None` when there is one already.
    pub(crate) fn read_of_pull(self, host: &str, slug: &Slug, branch: &str, base: &str) -> Option<Error> {
        let (branch, base) = (branch.to_owned(), base.to_owned());
        match self.status {
            422 if self.told.has("already exists") => None,
            422 if self.told.has("no commits between") => Some(Error::NothingNew { branch, base }),
            422 if self.told.is_invalid("base") => Some(Error::BaseMissing { base }),
            422 if self.told.is_invalid("head") => Some(Error::BranchMissing { branch }),
            _ => Some(self.read(host, Some(slug), "the pull request")),
        }
    }

    /// GitHub's words when a branch that shall be deleted is not there.
    pub(crate) fn says_there_is_no_ref(&self) -> bool {
        matches!(self.status, 404 | 422) && self.told.has("reference does not exist")
    }

    /// A secondary limit says how long in `retry-after`, or only in words.
    fn wait_of_secondary(&self) -> Option<Duration> {
        match self.retry_after {
            Some(seconds) => Some(bounded(seconds)),
            None if self.told.has("secondary rate limit") || self.told.has("abuse detection") => {
                Some(SECONDARY_WAIT)
            }
            None => None,
        }
    }

    /// Counted by the server's own clock; a second more, for both clocks tick in whole ones.
    fn wait_of_primary(&self) -> Duration {
        let seconds = self.reset.map_or(SECONDARY_WAIT.as_secs() as i64, |reset| reset - self.now + 1);
        bounded(u64::try_from(seconds).unwrap_or(0))
    }
}

fn bounded(seconds: u64) -> Duration {
    Duration::from_secs(seconds).clamp(Duration::from_secs(1), WAIT_MAX)
}
