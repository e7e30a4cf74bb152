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
    /// The remote has found a secret in what was sent.
    SecretFound,
    /// The remote refuses the reference: by a rule, a hook, or because it is protected.
    Protected,
    /// The remote takes no pushes of its default branch.
    DefaultProtected,
    /// The reference at the remote is not at the expected commit.
    Stale,
    /// The remote has no default branch, and a branch of nugget's must not become it.
    Empty,
    /// The remote has branches, but not the one that the brain's configuration names.
    NoBranch,
    /// The remote cannot keep what was sent: its disk is full, a limit is exceeded, or its files cannot be written.
    NotStored,
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
            Self::SecretFound => "the remote has found a secret in the branch",
            Self::Protected => "the remote refused the branch",
            Self::DefaultProtected => "the remote takes no pushes of its main branch",
            Self::Stale => "the remote's branch has changed meanwhile",
            Self::Empty => "the remote has no default branch yet",
            Self::NoBranch => "the remote does not have the branch that brain.yaml names",
            Self::NotStored => "the remote failed to store the branch",
            Self::TooLate => "the remote did not answer in time",
            Self::Other => "git failed at the remote",
        })
    }
}

/// What git prints, in lower case, and the failure that it means. The first row with a match counts, so the
/// rows go from the most specific to what git adds to every failure: after a refusal it also prints "could not
/// read from remote repository" and "the remote end hung up".
const PATTERNS: &[(RemoteFailure, &[&str])] = &[
    // GitHub calls it a rule violation as well.
    (RemoteFailure::SecretFound, &["push protection", "cannot contain secrets", "secrets detected"]),
    // Why it failed is in other lines, as a hook or the system says it.
    (RemoteFailure::NotStored, &["unpacker error", "unpack failed", "exceeds maximum allowed size"]),
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
            // From ssh: the agent offered the server more keys than it tries; no key or algorithm in common.
            "too many authentication failures",
            "no supported authentication methods",
            "unable to negotiate",
            "remote host identification has changed",
            // From a proxy.
            "407 proxy authentication required",
            "http code 407",
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
            // Between a captive portal's login page, or its certificate, and git.
            "is this a git repository?",
            "invalid server response",
            "bad line length",
            "expected flush after",
            "unexpectedly said",
            "certificate problem",
            "certificate verification failed",
            "certificate verify failed",
            "server certificate verification",
            "self signed certificate",
            "self-signed certificate",
            "no alternative certificate subject name",
            "ssl: ",
            "ssl_",
            "ssl connect error",
            "tls connect error",
            "ssl routines",
            "gnutls",
            "tls connection",
            "handshake",
            "schannel",
            // From ssh and curl, when a connection breaks off.
            "broken pipe",
            "closed by remote host",
            "connection aborted",
            "connection abort",
            "connection to ",
            "kex_exchange_identification",
            "ssh_exchange_identification",
            "banner exchange",
            "ssh: connect to host",
            "packet_write_wait",
            "client_loop",
            "received disconnect",
            "recv failure",
            "send failure",
            "partial file",
            "http/2",
            "http2",
            "host is down",
            "network is down",
            "name or service not known",
            "nodename nor servname",
            "no address associated",
            "proxy connect aborted",
            "unable to find proxy",
            "timed out",
            "timeout",
            "returned error: 408",
            "internal server error",
            "service unavailable",
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
    (RemoteFailure::Offline, &["the remote end hung up", "could not read from remote repository"]),
];

impl RemoteFailure {
    /// What a person can do about the failure, if anything.
    pub fn hint(self) -> Option<&'static str> {
        match self {
            Self::Denied => {
                Some("check the token's permission to write contents, or that `git push` works in the brain")
            }
            Self::NotFound => Some("check the URL that `git remote -v` prints in the brain"),
            Self::SecretFound => Some(
                "take it out with `nugget review edit`, or `nugget review reject` the unit, and revoke the secret",
            ),
            Self::Protected => Some("allow branches below `nugget/` in the repository's rules"),
            Self::DefaultProtected => Some(
                "have somebody push it who may, or `git push origin HEAD:refs/heads/NAME` and open a pull request",
            ),
            Self::Empty => Some("push the brain's main branch first"),
            Self::NoBranch => {
                Some("name the remote's in brain.yaml, `default_branch: NAME`, or push the one named there")
            }
            Self::NotStored => {
                Some("check the remote's free space, its limits, and that it can write its files")
            }
            Self::Offline | Self::Stale | Self::TooLate | Self::Other => None,
        }
    }

    /// The failure that git's standard error reports, in English.
    pub(crate) fn from_stderr(text: &str) -> Self {
        let text = text.to_ascii_lowercase();
        let matches = |(_, patterns): &&(Self, &[&str])| patterns.iter().any(|some| text.contains(some));
        PATTERNS.iter().find(matches).map_or(Self::Other, |(failure, _)| *failure)
    }

    /// The failure in the last column of `git push --porcelain`, with what git's standard error adds to it.
    pub(crate) fn from_push_summary(summary: &str, stderr: &str) -> Self {
        let failure = match Self::from_stderr(summary) {
            // The remote refused this reference, with a reason of its own.
            Self::Other | Self::NotFound if summary.starts_with("[remote rejected]") => Self::Protected,
            failure => failure,
        };
        match Self::from_stderr(stderr) {
            Self::SecretFound if failure == Self::Protected => Self::SecretFound,
            _ => failure,
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
            (
                "remote: fatal: pack exceeds maximum allowed size\nerror: remote unpack failed: index-pack abnormal exit",
                RemoteFailure::NotStored,
            ),
            (
                "error: remote unpack failed: unable to create temporary object directory: Permission denied",
                RemoteFailure::NotStored,
            ),
        ];
        for (text, failure) in cases {
            assert_eq!(RemoteFailure::from_stderr(text), failure, "{text}");
        }
    }

    /// As git 2.47, OpenSSH 10, curl with OpenSSL and GnuTLS print them.
    #[test]
    fn network_trouble_that_passes_is_no_fault_of_the_capture() {
        let read = "fatal: Could not read from remote repository.";
        let access = "fatal: unable to access 'https://example.org/brain.git/': ";
        let offline = [
            // A captive portal: its login page, and its certificate.
            "fatal: https://example.org/brain.git/info/refs not valid: is this a git repository?".to_owned(),
            "fatal: invalid server response; expected service, got flush packet".to_owned(),
            "fatal: protocol error: bad line length character: <!DO".to_owned(),
            format!("{access}SSL certificate problem: unable to get local issuer certificate"),
            format!("{access}SSL certificate problem: self-signed certificate in certificate chain"),
            format!("{access}SSL certificate problem: certificate has expired"),
            format!("{access}SSL: no alternative certificate subject name matches target host name 'example.org'"),
            format!("{access}server certificate verification failed. CAfile: none CRLfile: none"),
            format!("{access}gnutls_handshake() failed: The TLS connection was non-properly terminated."),
            format!("{access}OpenSSL SSL_connect: SSL_ERROR_SYSCALL in connection to example.org:443"),
            format!("{access}OpenSSL SSL_read: error:0A000126:SSL routines::unexpected eof while reading, errno 0"),
            format!("{access}TLS connect error: error:0A00010B:SSL routines::wrong version number"),
            format!("{access}schannel: failed to receive handshake, SSL/TLS connection failed"),
            // curl
            format!("{access}Could not resolve host: example.org"),
            format!("{access}Could not resolve proxy: proxy.example.org"),
            format!("{access}Failed to connect to example.org port 443 after 127 ms: Couldn't connect to server"),
            format!("{access}Recv failure: Connection reset by peer"),
            format!("{access}Send failure: Broken pipe"),
            format!("{access}HTTP/2 stream 1 was not closed cleanly: PROTOCOL_ERROR (err 1)"),
            format!("{access}Operation too slow. Less than 1 bytes/sec transferred the last 30 seconds"),
            format!("{access}Proxy CONNECT aborted"),
            format!("{access}The requested URL returned error: 429"),
            format!("{access}The requested URL returned error: 502"),
            format!("{access}The requested URL returned error: 511"),
            "error: RPC failed; curl 92 HTTP/2 stream 0 was not closed cleanly\nfatal: the remote end hung up unexpectedly".to_owned(),
            "error: RPC failed; curl 18 transfer closed with outstanding read data remaining".to_owned(),
            "remote: Internal Server Error".to_owned(),
            // ssh
            format!("ssh: Could not resolve hostname example.org: Temporary failure in name resolution\n{read}"),
            format!("ssh: Could not resolve hostname example.org: nodename nor servname provided, or not known\n{read}"),
            format!("ssh: connect to host example.org port 22: No route to host\n{read}"),
            format!("ssh: connect to host example.org port 22: Host is down\n{read}"),
            format!("ssh: connect to host example.org port 22: Operation timed out\n{read}"),
            format!("kex_exchange_identification: Connection closed by remote host\n{read}"),
            format!("kex_exchange_identification: read: Connection reset by peer\n{read}"),
            format!("Connection to example.org closed by remote host.\n{read}"),
            format!("Connection timed out during banner exchange\n{read}"),
            format!("client_loop: send disconnect: Broken pipe\n{read}"),
            format!("packet_write_wait: Connection to 192.0.2.1 port 22: Broken pipe\n{read}"),
            format!("ssh_dispatch_run_fatal: Connection to 192.0.2.1 port 22: message authentication code incorrect\n{read}"),
            format!("Received disconnect from 192.0.2.1 port 22:11: Idle\n{read}"),
            read.to_owned(),
            "fatal: the remote end hung up upon initial contact".to_owned(),
            "fetch-pack: unexpected disconnect while reading sideband packet\nfatal: early EOF".to_owned(),
        ];
        for text in offline {
            assert_eq!(RemoteFailure::from_stderr(&text), RemoteFailure::Offline, "{text}");
        }
        let denied = [
            format!("Received disconnect from 192.0.2.1 port 22:2: Too many authentication failures\n{read}"),
            format!("git@example.org: Permission denied (publickey).\n{read}"),
            format!("Host key verification failed.\n{read}"),
            format!("Unable to negotiate with 192.0.2.1 port 22: no matching host key type found\n{read}"),
            format!("{access}Received HTTP code 407 from proxy after CONNECT"),
            "fatal: could not read Username for 'https://example.org': terminal prompts disabled".to_owned(),
            "remote: Invalid username or password.\nfatal: Authentication failed for 'https://example.org/'"
                .to_owned(),
        ];
        for text in denied {
            assert_eq!(RemoteFailure::from_stderr(&text), RemoteFailure::Denied, "{text}");
        }
    }

    #[test]
    fn a_push_that_the_remote_rejects_is_protected() {
        let cases = [
            ("[remote rejected] (not welcome)", RemoteFailure::Protected),
            ("[remote rejected] (object not found)", RemoteFailure::Protected),
            ("[remote rejected] (failed to update ref)", RemoteFailure::Stale),
            ("[remote rejected] (unpacker error)", RemoteFailure::NotStored),
            ("[rejected] (stale info)", RemoteFailure::Stale),
            ("[rejected] (x)", RemoteFailure::Other),
        ];
        for (summary, failure) in cases {
            assert_eq!(RemoteFailure::from_push_summary(summary, ""), failure, "{summary}");
        }
        let summary = "[remote rejected] (push declined due to repository rule violations)";
        for (stderr, failure) in [
            ("remote: - Push cannot contain secrets", RemoteFailure::SecretFound),
            ("remote: - Cannot force-push to this branch", RemoteFailure::Protected),
        ] {
            assert_eq!(RemoteFailure::from_push_summary(summary, stderr), failure, "{stderr}");
        }
    }
}
