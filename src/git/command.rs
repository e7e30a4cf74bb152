//! Runs the `git` command in a controlled environment.
//!
//! gix cannot push, so fetches and pushes both use the command: it is configured in one way, fails in one way, and
//! the user's ssh, proxies and credential helpers work as they do by hand.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use knowledge::text;

use crate::error::Error;
use crate::remote_failure::RemoteFailure;
use crate::remote_url::hide_user_info;

/// The environment variables that git and its child processes need; `XDG_` stands for all that begin so. All others
/// are removed: API keys, and `GIT_DIR` and the like, which in a hook name another repository.
const PASSED_VARIABLES: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TMPDIR",
    "TZ",
    "LANG",
    "LC_CTYPE",
    "XDG_",
    // The location of the user's configuration, which may set proxies and certificates.
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
    "GIT_EXEC_PATH",
    "GIT_SSH",
    "GIT_SSH_VARIANT",
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "KRB5CCNAME",
    "KRB5_",
    "http_proxy",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
    "SSL_CERT_",
    "CURL_CA_BUNDLE",
    "GIT_SSL_",
    "GIT_PROXY_SSL_CAINFO",
    "GIT_HTTP_PROXY_AUTHMETHOD",
];

/// The variables that credential helpers need as well: for the desktop's key ring, and for
/// `gh auth git-credential`. Not passed with credentials of ours, as no helper is asked then.
const PASSED_TO_HELPERS: &[&str] = &[
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "GNUPGHOME",
    "PASSWORD_STORE_DIR",
    "GCM_",
    "GH_",
    "GITHUB_TOKEN",
    "GITHUB_ENTERPRISE_TOKEN",
];

/// Overrides of the user's configuration: settings that run programs, ask questions, extend what is fetched or
/// pushed, or clean up the repository.
const OVERRIDES: &[(&str, &str)] = &[
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.askPass", ""),
    // After a power cut, no reference may name a missing object.
    ("core.fsync", "committed"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("color.ui", "false"),
    ("submodule.recurse", "false"),
    ("fetch.prune", "false"),
    ("fetch.pruneTags", "false"),
    ("fetch.writeCommitGraph", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("merge.conflictStyle", "merge"),
    ("push.followTags", "false"),
    ("push.gpgSign", "false"),
    ("push.pushOption", ""),
    ("push.recurseSubmodules", "no"),
    ("push.useForceIfIncludes", "false"),
    ("push.negotiate", "false"),
    ("credential.interactive", "false"),
];

/// One run of git.
pub(crate) struct GitCommand {
    command: Command,
    configuration: Vec<(String, String)>,
    input: Vec<u8>,
    secrets: Vec<String>,
}

/// The result of a run of git.
pub(crate) struct Output {
    pub is_success: bool,
    pub stdout: Vec<u8>,
    is_stdout_complete: bool,
    /// The standard error, from which the secrets are not yet removed.
    pub(crate) stderr: String,
    secrets: Vec<String>,
}

/// The variables of this process that another program gets; see [`GitCommand::new`].
pub(crate) fn passed_variables(brings_credentials: bool) -> impl Iterator<Item = (OsString, OsString)> {
    let is_passed = move |name: &OsStr| {
        let name = name.to_string_lossy();
        let is_it = |passed: &&str| *passed == name || (passed.ends_with('_') && name.starts_with(passed));
        PASSED_VARIABLES.iter().any(is_it) || (!brings_credentials && PASSED_TO_HELPERS.iter().any(is_it))
    };
    std::env::vars_os().filter(move |(name, _)| is_passed(name))
}

impl GitCommand {
    /// `folder` is the working directory. With `brings_credentials` the user's credential helpers get no
    /// variables, as none is asked.
    pub(crate) fn new(folder: &Path, git_dir: Option<&Path>, brings_credentials: bool) -> Self {
        let mut command = Command::new("git");
        command
            .current_dir(folder)
            .env_clear()
            .envs(passed_variables(brings_credentials))
            .env("LC_MESSAGES", "C")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_ASKPASS", "")
            .env("SSH_ASKPASS_REQUIRE", "never")
            .env("GCM_INTERACTIVE", "never")
            .env("GIT_ADVICE", "0")
            .env("GIT_OPTIONAL_LOCKS", "0");
        if let Some(git_dir) = git_dir {
            command.arg("--git-dir").arg(git_dir);
        }
        let configuration = OVERRIDES.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Self { command, configuration: configuration.collect(), input: Vec::new(), secrets: Vec::new() }
    }

    pub(crate) fn arguments<S: AsRef<OsStr>>(&mut self, arguments: impl IntoIterator<Item = S>) -> &mut Self {
        self.command.args(arguments);
        self
    }

    /// Sets a key of git's configuration in the environment, which the process list does not show.
    pub(crate) fn configure(&mut self, key: impl Into<String>, value: impl Into<String>) -> &mut Self {
        self.configuration.push((key.into(), value.into()));
        self
    }

    pub(crate) fn environment(&mut self, name: &str, value: impl Into<OsString>) -> &mut Self {
        self.command.env(name, value.into());
        self
    }

    pub(crate) fn input(&mut self, bytes: Vec<u8>) -> &mut Self {
        self.input = bytes;
        self
    }

    /// Removes a text from all messages.
    pub(crate) fn hide(&mut self, secret: impl Into<String>) -> &mut Self {
        let secret = secret.into();
        // Shorter texts are no secrets, and removing them would make messages unreadable.
        if secret.len() >= 4 {
            self.secrets.push(secret);
        }
        self
    }

    /// Runs git until it ends.
    ///
    /// # Errors
    /// [`Error::NoGit`]; [`RemoteFailure::TooLate`] after `until`, when git and all its child processes are
    /// killed. A failure of git is no error here.
    pub(crate) fn run(mut self, until: Instant) -> Result<Output, Error> {
        self.command.env("GIT_CONFIG_COUNT", self.configuration.len().to_string());
        for (n, (key, value)) in self.configuration.iter().enumerate() {
            self.command.env(format!("GIT_CONFIG_KEY_{n}"), key);
            self.command.env(format!("GIT_CONFIG_VALUE_{n}"), value);
        }
        let ended = system::process::run(&mut self.command, self.input, until);
        let system::process::Output { succeeded, stdout, is_stdout_complete, stderr } =
            ended.map_err(|source| Error::NoGit { source })?;
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        let is_success = succeeded == Some(true);
        let output = Output { is_success, stdout, is_stdout_complete, stderr, secrets: self.secrets };
        match succeeded {
            Some(_) => Ok(output),
            None => Err(Error::Remote { failure: RemoteFailure::TooLate, message: output.message() }),
        }
    }
}

/// How GitHub's lines begin that say neither what is wrong nor in which file.
const PADDING_OF_GITHUB: [&str; 5] =
    ["(?)", "https://", "Resolve the following violations", "locations:", "- commit:"];

impl Output {
    /// The standard output, or the error if git failed.
    pub(crate) fn ok(self) -> Result<Vec<u8>, Error> {
        if self.is_success { Ok(self.stdout) } else { Err(self.failure()) }
    }

    /// The standard output, or the error if git failed or not all of it was read: a list of which a part is missing looks
    /// like one from which something was deleted.
    pub(crate) fn whole(self) -> Result<Vec<u8>, Error> {
        if self.is_success && !self.is_stdout_complete {
            let message = "git's answer was not read to its end".to_owned();
            return Err(Error::Remote { failure: RemoteFailure::TooLate, message });
        }
        self.ok()
    }

    pub(crate) fn failure(&self) -> Error {
        Error::Remote { failure: RemoteFailure::from_stderr(&self.stderr), message: self.message() }
    }

    /// The standard error on one line, without secrets; lines that begin with `fatal:` come first.
    pub(crate) fn message(&self) -> String {
        let rank = |line: &str| match line.split_once(':').map(|(prefix, _)| prefix) {
            // The other lines say why.
            _ if line.starts_with("error: failed to push some refs") => 4,
            Some("fatal") => 0,
            Some("error") => 1,
            Some("remote") => 2,
            _ => 3,
        };
        let is_padding = |line: &str| {
            let said = line.strip_prefix("remote:").map(str::trim_start);
            let is_padding = |said: &str| PADDING_OF_GITHUB.iter().any(|padding| said.starts_with(padding));
            !said.unwrap_or(line).contains(char::is_alphanumeric)
                || said.is_some_and(is_padding)
                || line.starts_with("hint:")
                || line.starts_with("Please make sure you have the correct access rights")
                || line.starts_with("and the repository exists")
        };
        let trim = |line| str::trim(line).trim_end_matches(['—', ' ']);
        let mut lines: Vec<&str> =
            self.stderr.split(['\n', '\r']).map(trim).filter(|line| !is_padding(line)).collect();
        lines.sort_by_key(|line| rank(line));
        self.hide(&lines.join("; "))
    }

    /// The standard error as git has written it, without `fatal:`, empty lines and secrets.
    pub(crate) fn lines(&self) -> String {
        let lines = self.stderr.lines().filter(|line| !line.trim().is_empty());
        let lines = lines.map(|line| self.hide(line.strip_prefix("fatal: ").unwrap_or(line)));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Removes the secrets from a text of git's.
    pub(crate) fn hide(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            text = text.replace(secret.as_str(), "…");
        }
        text::one_line(&hide_user_info(&text), 400)
    }
}
