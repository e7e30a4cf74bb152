//! What keeps git from its remote, told apart by git's own words.

use std::fmt;

/// Why a remote could not be used, as far as what to do about it differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemoteFailure {
    /// It cannot be reached, or cannot answer at present: try again later.
    Offline,
    /// It wants other credentials, or none would do.
    Denied,
    /// There is no such repository, as far as these credentials see.
    NotFound,
    /// It refuses the reference: by a rule, a hook, or because it is protected.
    Protected,
    /// The reference is not as it was expected to be.
    Stale,
    /// It has no default branch yet, and a branch of nugget's may not become it.
    Empty,
    /// The deadline has passed.
    TooLate,
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

impl RemoteFailure {
    /// What a person can do about it, where there is something.
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
}

/// The failure that git's standard error tells of, in English.
pub(crate) fn of_words(words: &str) -> RemoteFailure {
    let words = words.to_ascii_lowercase();
    let says = |any: &[&str]| any.iter().any(|some| words.contains(some));
    // From the most telling to what git adds to everything: after a refusal it says that it "could not
    // read from remote repository", and "the remote end hung up".
    if says(&[
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
    ]) {
        return RemoteFailure::Denied;
    }
    if says(&[
        "pre-receive hook declined",
        "update hook declined",
        "hook declined",
        "protected branch",
        "rule violations",
        "prohibited",
        "branch is currently checked out",
        "deny updating",
    ]) {
        return RemoteFailure::Protected;
    }
    if says(&[
        "stale info",
        "non-fast-forward",
        "fetch first",
        "reference already exists",
        "cannot lock ref",
        "failed to update ref",
        "incorrect old value",
    ]) {
        return RemoteFailure::Stale;
    }
    if says(&[
        "could not resolve",
        "couldn't resolve",
        "failed to connect",
        "couldn't connect",
        "could not connect",
        "connection refused",
        "connection reset",
        "connection closed",
        "connection timed out",
        "operation timed out",
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
    ]) {
        return RemoteFailure::Offline;
    }
    if says(&[
        "repository not found",
        "returned error: 404",
        "returned error: 410",
        // It has moved, and redirects are not followed with a password.
        "returned error: 301",
        "returned error: 302",
        "returned error: 307",
        "returned error: 308",
        "does not appear to be a git repository",
        "not found",
        "does not exist",
        "no such file or directory",
    ]) {
        return RemoteFailure::NotFound;
    }
    if says(&["the remote end hung up"]) {
        return RemoteFailure::Offline;
    }
    RemoteFailure::Other
}
