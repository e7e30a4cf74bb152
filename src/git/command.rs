//! The `git` program, run so that nothing of the surroundings changes what it does.
//!
//! gix cannot push, so both directions go by the program: one way to configure, one way to fail, and the
//! user's own ssh, proxies and credential helpers work as they do by hand.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use knowledge::text;
use rustix::process::{Pid, Signal};

use crate::error::Error;
use crate::remote_failure::{self, RemoteFailure};

/// The most that is kept of what git prints, in bytes; the rest is read and forgotten.
const OUTPUT_BYTES_MAX: usize = 16 * 1024 * 1024;
const WORDS_BYTES_MAX: usize = 64 * 1024;

/// How long git may take to put its lock files away when it is told to end.
const GRACE: Duration = Duration::from_millis(500);

/// How long the output of a git that has ended is waited for: a process that it started, such as ssh's
/// master connection, may keep the other end open for hours.
const OUTPUT_WAIT_MAX: Duration = Duration::from_millis(500);

/// The variables that git and what it starts need to find their way. All others stay here: keys of model
/// providers, and `GIT_DIR` and its kind, which in a hook name another repository.
const KEPT: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TMPDIR",
    "TZ",
    "LANG",
    "LC_CTYPE",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
    // Which configuration is the user's, as proxies and certificates may be set there.
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
    "GIT_EXEC_PATH",
    "GIT_SSH",
    "GIT_SSH_VARIANT",
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "KRB5CCNAME",
    "KRB5_CONFIG",
    "http_proxy",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "GIT_SSL_CAPATH",
    "GIT_SSL_CERT",
    "GIT_SSL_KEY",
    "GIT_SSL_VERSION",
    "GIT_PROXY_SSL_CAINFO",
    "GIT_HTTP_PROXY_AUTHMETHOD",
];

/// What credential helpers need besides: the desktop's key ring, and the token of `gh auth git-credential`.
/// Not kept where we bring credentials, as no helper is asked then.
const KEPT_FOR_HELPERS: &[&str] = &[
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "GNUPGHOME",
    "PASSWORD_STORE_DIR",
    "GCM_CREDENTIAL_STORE",
    "GCM_PROVIDER",
    "GH_HOST",
    "GH_CONFIG_DIR",
    "GH_TOKEN",
    "GITHUB_TOKEN",
    "GH_ENTERPRISE_TOKEN",
    "GITHUB_ENTERPRISE_TOKEN",
];

/// Over the user's configuration: what would start programs, ask questions, add to what is fetched or
/// pushed, or tidy the repository up.
const PINNED: &[(&str, &str)] = &[
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.askPass", ""),
    // A reference of ours must not outlive a power cut that takes what it names.
    ("core.fsync", "committed"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("color.ui", "false"),
    ("submodule.recurse", "false"),
    ("fetch.prune", "false"),
    ("fetch.pruneTags", "false"),
    ("fetch.writeCommitGraph", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("push.followTags", "false"),
    ("push.gpgSign", "false"),
    ("push.pushOption", ""),
    ("push.recurseSubmodules", "no"),
    ("push.useForceIfIncludes", "false"),
    ("push.negotiate", "false"),
    ("credential.interactive", "false"),
];

/// One call of git.
pub(crate) struct Program {
    command: Command,
    configuration: Vec<(String, String)>,
    input: Vec<u8>,
    secrets: Vec<String>,
}

/// What git has printed.
pub(crate) struct Ended {
    pub is_success: bool,
    pub output: Vec<u8>,
    /// Its standard error, with the secrets that are known still in it.
    words: String,
    secrets: Vec<String>,
}

impl Program {
    /// `folder` is where relative paths of the user's configuration begin. With `brings_credentials` no
    /// helper of the user's is asked.
    pub(crate) fn new(folder: &Path, git_dir: Option<&Path>, brings_credentials: bool) -> Self {
        let mut command = Command::new("git");
        let kept = |name: &OsStr| {
            let is_in = |names: &[&str]| names.iter().any(|kept| name == OsStr::new(kept));
            is_in(KEPT) || (!brings_credentials && is_in(KEPT_FOR_HELPERS))
        };
        let environment = std::env::vars_os().filter(|(name, _)| kept(name));
        command
            .current_dir(folder)
            .env_clear()
            .envs(environment)
            .env("LC_MESSAGES", "C")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_ASKPASS", "")
            .env("SSH_ASKPASS_REQUIRE", "never")
            .env("GCM_INTERACTIVE", "never")
            .env("GIT_ADVICE", "0")
            .env("GIT_OPTIONAL_LOCKS", "0")
            // Its own group: what it starts is killed with it, and a Ctrl-C is ours to answer.
            .process_group(0);
        if let Some(git_dir) = git_dir {
            command.arg("--git-dir").arg(git_dir);
        }
        let configuration = PINNED.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Self { command, configuration: configuration.collect(), input: Vec::new(), secrets: Vec::new() }
    }

    pub(crate) fn arguments<S: AsRef<OsStr>>(&mut self, arguments: impl IntoIterator<Item = S>) -> &mut Self {
        self.command.args(arguments);
        self
    }

    /// Sets a key of git's configuration, in the environment: no process list shows it.
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

    /// Keeps a text out of what is told.
    pub(crate) fn hide(&mut self, secret: impl Into<String>) -> &mut Self {
        let secret = secret.into();
        // Shorter ones are no secrets, and would leave holes in every sentence.
        if secret.len() >= 4 {
            self.secrets.push(secret);
        }
        self
    }

    /// Runs git to its end.
    ///
    /// # Errors
    /// [`Error::NoGit`]; [`RemoteFailure::TooLate`] when `until` passes: it is then killed, with all that it
    /// started. That git failed is no error here.
    pub(crate) fn run(mut self, until: Instant) -> Result<Ended, Error> {
        self.command.env("GIT_CONFIG_COUNT", self.configuration.len().to_string());
        for (n, (key, value)) in self.configuration.iter().enumerate() {
            self.command.env(format!("GIT_CONFIG_KEY_{n}"), key);
            self.command.env(format!("GIT_CONFIG_VALUE_{n}"), value);
        }
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().map_err(|source| Error::NoGit { source })?;
        let output = reader(child.stdout.take(), OUTPUT_BYTES_MAX);
        let words = reader(child.stderr.take(), WORDS_BYTES_MAX);
        if let Some(mut stdin) = child.stdin.take() {
            let input = std::mem::take(&mut self.input);
            // In a thread of its own, as git may answer before it has read all. One that ends early
            // closes the pipe; its words tell why.
            std::thread::spawn(move || drop(stdin.write_all(&input)));
        }
        let Some(is_success) = wait(&mut child, until)? else {
            kill(&mut child);
            let words = String::from_utf8_lossy(&collect(&words)).into_owned();
            let ended = Ended { is_success: false, output: Vec::new(), words, secrets: self.secrets };
            return Err(Error::Remote { failure: RemoteFailure::TooLate, message: ended.told() });
        };
        let words = String::from_utf8_lossy(&collect(&words)).into_owned();
        Ok(Ended { is_success, output: collect(&output), words, secrets: self.secrets })
    }
}

impl Ended {
    /// What git printed, or the failure that it had.
    pub(crate) fn ok(self) -> Result<Vec<u8>, Error> {
        if self.is_success { Ok(self.output) } else { Err(self.failure()) }
    }

    pub(crate) fn failure(&self) -> Error {
        Error::Remote { failure: remote_failure::of_words(&self.words), message: self.told() }
    }

    /// git's words on one line, what was fatal first, without secrets.
    pub(crate) fn told(&self) -> String {
        let rank = |line: &str| match line.split_once(':').map(|(who, _)| who) {
            Some("fatal") => 0,
            Some("error") => 1,
            Some("remote") => 2,
            _ => 3,
        };
        let is_padding = |line: &str| {
            line.is_empty()
                || line == "remote:"
                || line.starts_with("hint:")
                || line.starts_with("Please make sure you have the correct access rights")
                || line.starts_with("and the repository exists")
        };
        let mut lines: Vec<&str> =
            self.words.split(['\n', '\r']).map(str::trim).filter(|line| !is_padding(line)).collect();
        lines.sort_by_key(|line| rank(line));
        self.hide(&lines.join("; "))
    }

    /// A text of git's as it may be told.
    pub(crate) fn hide(&self, words: &str) -> String {
        let mut words = words.to_owned();
        for secret in &self.secrets {
            words = words.replace(secret.as_str(), "…");
        }
        text::one_line(&without_users(&words), 400)
    }
}

/// Whatever stands between `://` and an `@` in the same word may be a secret.
fn without_users(words: &str) -> String {
    let mut kept = String::with_capacity(words.len());
    let mut rest = words;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        kept.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || "/'\"".contains(c)).unwrap_or(after.len());
        rest = match after[..end].rfind('@') {
            Some(user_end) => {
                kept.push('…');
                &after[user_end..]
            }
            None => after,
        };
    }
    kept.push_str(rest);
    kept
}

/// Reads a pipe to its end in a thread, for a full one would stop git. Nothing more than `bytes_max` is kept.
fn reader(pipe: Option<impl Read + Send + 'static>, bytes_max: usize) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    let Some(mut pipe) = pipe else { return receiver };
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        let mut left = bytes_max;
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            let kept = count.min(left);
            left -= kept;
            // Nobody listens any more: read on, so that git does not stop.
            let _ = sender.send(buffer[..kept].to_vec());
        }
    });
    receiver
}

fn collect(pieces: &Receiver<Vec<u8>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let until = Instant::now() + OUTPUT_WAIT_MAX;
    loop {
        match pieces.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(piece) => bytes.extend(piece),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return bytes,
        }
    }
}

/// Whether the child has ended well; `None` when the time is over. It asks again and again, as nothing in
/// the standard library waits for a process with a time limit.
fn wait(child: &mut Child, until: Instant) -> Result<Option<bool>, Error> {
    let mut pause = Duration::from_millis(1);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(Some(status.success())),
            Ok(None) if Instant::now() >= until => return Ok(None),
            Ok(None) => {}
            Err(source) => return Err(Error::NoGit { source }),
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

/// Ends the child and all that it started: kindly first, so that git removes its temporary files.
fn kill(child: &mut Child) {
    let Ok(group) = i32::try_from(child.id()) else { return };
    let Some(group) = Pid::from_raw(group) else { return };
    // The child is not reaped yet, so its number is nobody else's.
    let _ = rustix::process::kill_process_group(group, Signal::TERM);
    let _ = wait_unreaped(group, Instant::now() + GRACE);
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
    let _ = child.wait();
}

/// Waits until a child has ended, and leaves it to be reaped.
fn wait_unreaped(child: Pid, until: Instant) -> rustix::io::Result<()> {
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    while waitid(WaitId::Pid(child), options)?.is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
