//! Classes of failures at the remote, recognised in git's standard error.
//!
//! git's exit code is 128 for all of them, so its messages are the only thing to go by. [`PATTERNS`] is the one
//! table of messages; git runs with `LC_MESSAGES=C`.

use std::fmt;

/// Why a remote could not be used. Two failures differ when a person or nugget reacts differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemoteFailure {
    /// The remote cannot be reached, or is temporarily unable to answer: try again later.
    Offline,
    /// The credentials are missing, or do not give access.
    Denied,
    /// The repository does not exist, or is not visible with these credentials.
    NotFound,
    /// The remote refuses the reference: by a rule, a hook, or because it is protected.
    Protected,
    /// The reference at the remote is not at the expected commit.
    Stale,
    /// The remote has no default branch, and a branch of nugget's must not become it.
    Empty,
    /// The deadline has passed.
    TooLate,
    /// Anything else.
    Other,
}

impl fmt::Display for RemoteFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Offline => "the remote cannot be reached",
            Self::Denied => "the remote denied access",
            Self::NotFound => "the remote has no such repository",
            Self::Protected => "the remote refused the branch",
            Self::Stale => "the remote's branch has changed meanwhile",
            Self::Empty => "the remote has no default branch yet",
            Self::TooLate => "the remote did not answer in time",
            Self::Other => "git failed at the remote",
        })
    }
}

/// What git prints, in lower case, and the failure that it means. The first row with a match counts, so the
/// rows go from the most specific to what git adds to every failure: after a refusal it also prints "could not
/// read from remote repository" and "the remote end hung up".
const PATTERNS: &[(RemoteFailure, &[&str])] = &[
    (
        RemoteFailure::Denied,
        &[
            "authentication failed",
            "could not read username",
            "could not read password",
            "unable to get password from user",
            "terminal prompts disabled",
            "permission denied",
            "permission to ",
            "access denied",
            "returned error: 401",
            "returned error: 403",
            "invalid credentials",
            "host key verification failed",
            "write access to repository not granted",
        ],
    ),
    (
        RemoteFailure::Protected,
        &[
            "hook declined",
            "protected branch",
            "rule violations",
            "prohibited",
            "branch is currently checked out",
            "deny updating",
        ],
    ),
    (
        RemoteFailure::Stale,
        &[
            "stale info",
            "non-fast-forward",
            "fetch first",
            "reference already exists",
            "cannot lock ref",
            "failed to update ref",
            "incorrect old value",
        ],
    ),
    (
        RemoteFailure::Offline,
        &[
            "could not resolve",
            "couldn't resolve",
            "failed to connect",
            "couldn't connect",
            "could not connect",
            "connection refused",
            "connection reset",
            "connection closed",
            "timed out",
            "operation too slow",
            "network is unreachable",
            "no route to host",
            "temporary failure in name resolution",
            "returned error: 429",
            "returned error: 5",
            "empty reply from server",
            "unexpected disconnect",
            "early eof",
            "rpc failed",
            "transfer closed",
        ],
    ),
    (
        RemoteFailure::NotFound,
        &[
            "returned error: 404",
            "returned error: 410",
            // The repository has moved, and redirects are not followed with a password.
            "returned error: 301",
            "returned error: 302",
            "returned error: 307",
            "returned error: 308",
            "does not appear to be a git repository",
            "not found",
            "does not exist",
            "no such file or directory",
        ],
    ),
    (RemoteFailure::Offline, &["the remote end hung up"]),
];

impl RemoteFailure {
    /// What a person can do about the failure, if anything.
    pub fn hint(self) -> Option<&'static str> {
        match self {
            Self::Denied => {
                Some("check the token's permission to write contents, or that `git push` works in the brain")
            }
            Self::NotFound => Some("check the URL that `git remote -v` prints in the brain"),
            Self::Protected => Some("allow branches below `nugget/` in the repository's rules"),
            Self::Empty => Some("push the brain's main branch first"),
            Self::Offline | Self::Stale | Self::TooLate | Self::Other => None,
        }
    }

    /// The failure that git's standard error reports, in English.
    pub(crate) fn from_stderr(text: &str) -> Self {
        let text = text.to_ascii_lowercase();
        let matches = |(_, patterns): &&(Self, &[&str])| patterns.iter().any(|some| text.contains(some));
        PATTERNS.iter().find(matches).map_or(Self::Other, |(failure, _)| *failure)
    }

    /// The failure in the last column of `git push --porcelain`.
    pub(crate) fn from_push_summary(summary: &str) -> Self {
        match Self::from_stderr(summary) {
            // The remote refused this reference, with a reason of its own.
            Self::Other | Self::NotFound if summary.starts_with("[remote rejected]") => Self::Protected,
            failure => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_of_the_table_is_recognised_in_a_git_message() {
        for (failure, patterns) in PATTERNS {
            for pattern in *patterns {
                let upper = pattern.to_ascii_uppercase();
                for text in [format!("fatal: x: {pattern} y"), format!("error: {upper}\nremote: see")] {
                    assert_eq!(RemoteFailure::from_stderr(&text), *failure, "{text}");
                }
                let hung_up = format!("{pattern}\nfatal: the remote end hung up unexpectedly\n");
                assert_eq!(RemoteFailure::from_stderr(&hung_up), *failure, "{hung_up}");
            }
        }
        assert_eq!(RemoteFailure::from_stderr("fatal: something else"), RemoteFailure::Other);
        assert_eq!(RemoteFailure::from_stderr(""), RemoteFailure::Other);
    }

    #[test]
    fn the_most_specific_message_decides() {
        let cases = [
            (
                "git@example.org: Permission denied (publickey).\nfatal: Could not read from remote repository.",
                RemoteFailure::Denied,
            ),
            (
                "remote: error: GH006: Protected branch update failed\nerror: failed to push some refs",
                RemoteFailure::Protected,
            ),
            (
                " ! [rejected] x -> x (stale info)\nerror: failed to push some refs to 'x'",
                RemoteFailure::Stale,
            ),
            (
                "fatal: unable to access 'https://x/': The requested URL returned error: 503",
                RemoteFailure::Offline,
            ),
            ("remote: Repository not found.\nfatal: repository 'x' not found", RemoteFailure::NotFound),
            (
                "fetch-pack: unexpected disconnect while reading sideband packet\nfatal: early EOF",
                RemoteFailure::Offline,
            ),
        ];
        for (text, failure) in cases {
            assert_eq!(RemoteFailure::from_stderr(text), failure, "{text}");
        }
    }

    #[test]
    fn a_push_that_the_remote_rejects_is_protected() {
        let cases = [
            ("[remote rejected] (not welcome)", RemoteFailure::Protected),
            ("[remote rejected] (object not found)", RemoteFailure::Protected),
            ("[remote rejected] (failed to update ref)", RemoteFailure::Stale),
            ("[rejected] (stale info)", RemoteFailure::Stale),
            ("[rejected] (x)", RemoteFailure::Other),
        ];
        for (summary, failure) in cases {
            assert_eq!(RemoteFailure::from_push_summary(summary), failure, "{summary}");
        }
    }
}
