//! Reads an unsuccessful response: which error it means, and how long to wait.
//!
//! For some refusals the status is not enough (422, 403), and GitHub gives no code; only there its messages are
//! compared, with the constants below.

use std::time::Duration;

use serde::Deserialize;

use crate::error::Error;
use crate::types::Slug;

/// How many characters of the server's message are shown.
const MESSAGE_CHARS_MAX: usize = 300;
/// GitHub's advice for a secondary limit without a time: at least a minute.
const SECONDARY_WAIT: Duration = Duration::from_secs(60);
/// The longest wait that a server may ask for: the period of the primary limit.
const WAIT_MAX: Duration = Duration::from_secs(3600);

// Parts of GitHub's messages, in lower case.
const ALREADY_EXISTS: &str = "already exists";
const ARCHIVED: &str = "archived";
const NO_COMMITS: &str = "no commits between";
const PROTECTED: &[&str] = &["protected", "rule violation"];
const SECONDARY_LIMIT: &[&str] = &["secondary rate limit", "abuse detection"];

/// The parts of an unsuccessful response that decide what it means.
#[derive(Debug, Default)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    /// `retry-after`, in seconds.
    pub(crate) retry_after: Option<u64>,
    /// `x-ratelimit-remaining`.
    pub(crate) remaining: Option<u64>,
    /// `x-ratelimit-reset`, in seconds since 1970, by the server's clock.
    pub(crate) reset: Option<i64>,
    /// `date`, in seconds since 1970; our clock if the server sends none.
    pub(crate) now: i64,
    /// Whether `x-github-sso` requires a single sign-on.
    pub(crate) wants_sso: bool,
    pub(crate) body: ErrorBody,
}

/// The body of an unsuccessful response, in GitHub's format or that of a proxy.
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
    /// Parses a body. `clean` removes secrets from its texts.
    pub(crate) fn parse(body: &[u8], clean: impl Fn(&str) -> String) -> Self {
        #[derive(Deserialize)]
        struct Body {
            #[serde(default)]
            message: String,
            /// Documented as objects, but sometimes strings.
            #[serde(default)]
            errors: serde_json::Value,
        }
        let Ok(body) = serde_json::from_slice::<Body>(body) else {
            return Self { message: "the response is not JSON".to_owned(), errors: Vec::new() };
        };
        let shown = |text: &str| knowledge::text::one_line(&clean(text), MESSAGE_CHARS_MAX);
        let details = body.errors.as_array().into_iter().flatten().map(|detail| {
            let text = |name: &str| shown(detail[name].as_str().unwrap_or_default());
            let message = detail.as_str().map_or_else(|| text("message"), &shown);
            Detail { field: text("field"), code: text("code"), message }
        });
        Self { message: shown(&body.message), errors: details.collect() }
    }

    fn contains(&self, text: &str) -> bool {
        self.message.to_ascii_lowercase().contains(text)
            || self.errors.iter().any(|detail| detail.message.to_ascii_lowercase().contains(text))
    }

    fn contains_any(&self, texts: &[&str]) -> bool {
        texts.iter().any(|text| self.contains(text))
    }

    fn is_invalid(&self, field: &str) -> bool {
        self.errors.iter().any(|detail| detail.field == field && detail.code == "invalid")
    }

    /// The message on one line. Details are preferred: the message of a 422 is always "Validation Failed".
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
            (false, _) => knowledge::text::one_line(&details.join("; "), MESSAGE_CHARS_MAX),
            (true, false) => self.message.clone(),
            (true, true) => "it does not say why".to_owned(),
        }
    }
}

impl Refusal {
    /// The error that the refusal means, for a request for `what` of `slug` at `host`.
    pub(crate) fn into_error(self, host: &str, slug: Option<&Slug>, what: &str) -> Error {
        let message = self.body.line();
        let what = what.to_owned();
        let limited = matches!(self.status, 403 | 429);
        match self.status {
            _ if limited && let Some(wait) = self.secondary_wait() => Error::SecondaryLimit { wait, message },
            _ if limited && self.remaining == Some(0) => Error::RateLimited { wait: self.primary_wait() },
            429 => Error::SecondaryLimit { wait: SECONDARY_WAIT, message },
            401 => Error::Unauthorized { host: host.to_owned(), message },
            403 if self.wants_sso => Error::SingleSignOn,
            403 if self.body.contains(ARCHIVED) => {
                Error::Archived { slug: slug.map_or_else(String::new, Slug::to_string) }
            }
            403 => Error::Forbidden { what, message },
            404 => Error::NotFound { what },
            410 | 451 => Error::Gone { what, status: self.status, message },
            422 if self.body.contains_any(PROTECTED) => Error::Protected { what, message },
            408 | 500..=599 => match self.retry_after {
                Some(seconds) => Error::SecondaryLimit { wait: bounded(seconds), message },
                None => Error::Unavailable { status: self.status, message },
            },
            status => Error::Refused { what, status, message },
        }
    }

    /// As [`Self::into_error`] for a new pull request.
    pub(crate) fn into_pull_error(self, host: &str, slug: &Slug, branch: &str, base: &str) -> Error {
        let (branch, base) = (branch.to_owned(), base.to_owned());
        match self.status {
            422 if self.body.contains(ALREADY_EXISTS) => {
                Error::NotShownYet { what: format!("a pull request for {branch}") }
            }
            422 if self.body.contains(NO_COMMITS) => Error::NothingNew { branch, base },
            422 if self.body.is_invalid("base") => Error::BaseMissing { base },
            422 if self.body.is_invalid("head") => Error::BranchMissing { branch },
            _ => self.into_error(host, Some(slug), "the pull request"),
        }
    }

    /// The wait of a secondary limit: `retry-after`, or a default if only the message names the limit.
    fn secondary_wait(&self) -> Option<Duration> {
        match self.retry_after {
            Some(seconds) => Some(bounded(seconds)),
            None if self.body.contains_any(SECONDARY_LIMIT) => Some(SECONDARY_WAIT),
            None => None,
        }
    }

    /// The wait until the primary limit resets, by the server's clock. One second more, as both clocks are
    /// rounded to seconds.
    fn primary_wait(&self) -> Duration {
        let until = |reset: i64| reset.saturating_sub(self.now).saturating_add(1);
        let seconds = self.reset.map_or(SECONDARY_WAIT.as_secs() as i64, until);
        bounded(u64::try_from(seconds).unwrap_or(0))
    }
}

fn bounded(seconds: u64) -> Duration {
    Duration::from_secs(seconds).clamp(Duration::from_secs(1), WAIT_MAX)
}
