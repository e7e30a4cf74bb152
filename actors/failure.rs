//! Why a stage could not do its work, and what that means for the capture and for the others.

use std::fmt::Display;
use std::time::Duration;

use git::RemoteFailure;
use transcript::redact::redact;

/// How long a capture waits when an embedding provider cannot be reached and names no time itself.
const PROVIDER_PAUSE: Duration = Duration::from_secs(60);

/// Why a stage could not do its work.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) class: FailureClass,
    pub(crate) message: String,
}

/// What a failure means for the capture and for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureClass {
    /// Another attempt may succeed. A time is when the other side wants to be asked again; such a wait is not an
    /// attempt.
    Retry(Option<Duration>),
    /// Not certainly the capture's own fault, nor certainly everybody's: this capture waits as long again as it has
    /// waited already, and has used no attempt.
    Waits,
    /// It blocks every capture at this stage: all of them wait, for this time if it is known, and none of
    /// them has used an attempt.
    BlocksStage(Option<Duration>),
    /// No retry will help.
    Permanent,
}

impl Failure {
    pub(crate) fn new(class: FailureClass, message: impl Display) -> Self {
        Self { class, message: message.to_string() }
    }

    pub(crate) fn retryable(message: impl Display) -> Self {
        Self::new(FailureClass::Retry(None), message)
    }

    pub(crate) fn permanent(message: impl Display) -> Self {
        Self::new(FailureClass::Permanent, message)
    }

    /// What another file or capture is the cause of: this one waits, and has used no attempt.
    pub(crate) fn of_another(self) -> Self {
        let class = match self.class {
            FailureClass::Retry(None) | FailureClass::Permanent => FailureClass::Waits,
            class => class,
        };
        Self { class, ..self }
    }

    fn with_hint(class: FailureClass, error: &(dyn std::error::Error + 'static), hint: Option<&str>) -> Self {
        let message = error_chain(error);
        Self::new(class, hint.map_or_else(|| message.clone(), |hint| format!("{message} ({hint})")))
    }
}

/// A full disk or a file that belongs to somebody else: no fault of the capture.
impl From<queue::Error> for Failure {
    fn from(error: queue::Error) -> Self {
        Self::new(FailureClass::Waits, error_chain(&error))
    }
}

/// As for the queue.
impl From<index::Error> for Failure {
    fn from(error: index::Error) -> Self {
        Self::new(FailureClass::Waits, error_chain(&error))
    }
}

impl From<embed::Error> for Failure {
    fn from(error: embed::Error) -> Self {
        use embed::Error::{Empty, Outputs, Run, Tokenize};
        let class = match &error {
            _ if error.is_temporary() => {
                FailureClass::Retry(Some(error.retry_after().unwrap_or(PROVIDER_PAUSE)))
            }
            // About this text.
            Empty | Outputs { .. } | Run { .. } | Tokenize { .. } => FailureClass::Retry(None),
            // A key or a file that is missing or refused.
            _ => FailureClass::Waits,
        };
        Self::new(class, error_chain(&error))
    }
}

impl From<git::Error> for Failure {
    fn from(error: git::Error) -> Self {
        use RemoteFailure::{
            Denied, Empty, NoBranch, NotFound, NotStored, Offline, Other, Protected, SecretFound, TooLate,
        };
        let class = match &error {
            git::Error::Remote {
                failure: Offline | TooLate | Denied | NotFound | Empty | NoBranch, ..
            }
            | git::Error::NoGit { .. }
            | git::Error::NotARepository { .. }
            | git::Error::NotTrusted { .. }
            | git::Error::Unsupported { .. }
            | git::Error::Unborn { .. }
            | git::Error::NoDefaultBranch { .. }
            | git::Error::Lock { .. }
            | git::Error::LockTimeout { .. }
            | git::Error::ReferenceLocked { .. }
            | git::Error::ConfigurationLocked { .. } => FailureClass::BlocksStage(None),
            // No branch of nugget's can be made beside it.
            git::Error::BranchTaken { branch } if !branch.starts_with(git::BRANCH_PREFIX) => {
                FailureClass::BlocksStage(None)
            }
            // A message of git's that no row of the table knows; a rule or a limit of the remote's, which may be about what
            // is in this one branch; a filter that a person has set for one folder; a full disk, or a repository that git
            // cannot read.
            git::Error::Remote { failure: Other | Protected | SecretFound | NotStored, .. }
            | git::Error::Filtered { .. }
            | git::Error::Io { .. }
            | git::Error::Git { .. } => FailureClass::Waits,
            // The rest is about this one branch, or passes.
            _ => FailureClass::Retry(None),
        };
        Self::with_hint(class, &error, error.hint())
    }
}

/// A refusal that only a person can resolve blocks every capture and is tried again from time to time; only
/// what GitHub rejects in this very pull request is permanent.
impl From<github::Error> for Failure {
    fn from(error: github::Error) -> Self {
        use github::Error::{BranchMissing, InvalidRequest, NotShownYet, Protected, Refused};
        let class = match &error {
            Refused { .. } | InvalidRequest { .. } => FailureClass::Permanent,
            BranchMissing { .. } | NotShownYet { .. } | Protected { .. } => FailureClass::Retry(None),
            _ => FailureClass::BlocksStage(match error.retry() {
                github::Retry::After(wait) => Some(wait),
                github::Retry::Later | github::Retry::Never => None,
            }),
        };
        Self::with_hint(class, &error, error.hint())
    }
}

/// An error and its sources in one line, redacted because it may quote text of others.
pub(crate) fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    redact(&knowledge::text::error_chain(error)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_fault_of_the_capture_uses_no_attempt() {
        let full = || std::io::Error::from(std::io::ErrorKind::StorageFull);
        let path = std::path::PathBuf::from("x");
        let remote = |failure| git::Error::Remote { failure, message: String::new() };
        let failures: [Failure; 11] = [
            git::Error::Unborn { branch: "main".to_owned() }.into(),
            git::Error::NoDefaultBranch { path: path.clone() }.into(),
            git::Error::Unsupported { path: path.clone(), feature: "reftable references".to_owned() }.into(),
            git::Error::BranchTaken { branch: "nugget".to_owned() }.into(),
            git::Error::Filtered { path: "a.md".to_owned(), filter: "crypt".to_owned() }.into(),
            remote(RemoteFailure::Protected).into(),
            remote(RemoteFailure::SecretFound).into(),
            remote(RemoteFailure::NotStored).into(),
            remote(RemoteFailure::NoBranch).into(),
            embed::Error::NoLibrary.into(),
            embed::Error::Read { what: "tokenizer", path, source: full() }.into(),
        ];
        for Failure { class, message } in failures {
            assert!(matches!(class, FailureClass::Waits | FailureClass::BlocksStage(_)), "{message}");
        }
        let about_the_branch: Failure = git::Error::BranchTaken { branch: "nugget/x".to_owned() }.into();
        assert_eq!(about_the_branch.class, FailureClass::Retry(None));
        let about_the_text: Failure = embed::Error::Empty.into();
        assert_eq!(about_the_text.class, FailureClass::Retry(None));
    }
}
