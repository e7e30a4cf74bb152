//! Where the token comes from: a variable, GitHub's own program, or git's credential helper.
//!
//! A token goes to the host that it is for and to no other. It is kept in this process's memory
//! only, and nothing here prints it.

use std::collections::HashMap;
use std::fmt;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Error;

/// How long `gh`, or a credential helper, may take. Either may ask a keyring that waits for a person.
const PROGRAM_DEADLINE: Duration = Duration::from_secs(5);
/// How long an answer of a program is believed: somebody may log in, and tokens expire.
const AGE_MAX: Duration = Duration::from_secs(300);
const OUTPUT_BYTES_MAX: u64 = 64 << 10;
const TOKEN_BYTES_MAX: usize = 4096;

/// A token. Nothing prints it: [`Token::reveal`] is for the one place that sends it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// # Errors
    /// [`Error::InvalidToken`] for what could not stand in a header: blanks, line ends, other scripts.
    pub fn new(text: &str, from: &Source) -> Result<Self, Error> {
        let text = text.trim();
        let is_good =
            (1..=TOKEN_BYTES_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        if !is_good {
            return Err(Error::InvalidToken { from: from.to_string() });
        }
        Ok(Self(text.to_owned()))
    }

    /// The token itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Where a token was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    GithubToken,
    GhToken,
    GhEnterpriseToken,
    GithubEnterpriseToken,
    GhCommand,
    CredentialHelper,
}

impl Source {
    fn variable(&self) -> Option<&'static str> {
        match self {
            Self::GithubToken => Some("GITHUB_TOKEN"),
            Self::GhToken => Some("GH_TOKEN"),
            Self::GhEnterpriseToken => Some("GH_ENTERPRISE_TOKEN"),
            Self::GithubEnterpriseToken => Some("GITHUB_ENTERPRISE_TOKEN"),
            Self::GhCommand | Self::CredentialHelper => None,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GhCommand => "`gh auth token`",
            Self::CredentialHelper => "git's credential helper",
            variable => variable.variable().unwrap_or_default(),
        })
    }
}

/// A token and where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundToken {
    pub token: Token,
    pub from: Source,
}

impl FoundToken {
    /// Name and password for git over https, which takes every kind of token with this name.
    pub fn credentials(&self) -> (&'static str, &str) {
        ("x-access-token", self.token.reveal())
    }
}

/// The token for a GitHub that the user has named no API for. See [`crate::Host::token`].
///
/// # Errors
/// [`Error::InvalidToken`] when a variable or program gives something that cannot be one.
pub fn find_token(host: &str) -> Result<Option<FoundToken>, Error> {
    find(&host.to_ascii_lowercase(), false, false)
}

/// Makes the next search ask the programs again: after a 401, or when a person has logged in.
pub fn forget_tokens() {
    CACHE.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// What the programs have answered for a host, and when.
type Answered = HashMap<String, (Instant, Option<FoundToken>)>;

static CACHE: LazyLock<Mutex<Answered>> = LazyLock::new(Mutex::default);

/// `is_named`: the user has set `github.api` for this host, so that all variables are meant for it.
pub(crate) fn find(host: &str, is_named: bool, is_http: bool) -> Result<Option<FoundToken>, Error> {
    for source in variables(host, is_named) {
        let value = source.variable().and_then(|name| std::env::var(name).ok());
        if let Some(value) = value.filter(|value| !value.trim().is_empty()) {
            return Ok(Some(FoundToken { token: Token::new(&value, source)?, from: source.clone() }));
        }
    }
    // Held while the programs run: several that ask at once shall not open a keyring each.
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, found)) = cache.get(host).filter(|(at, _)| at.elapsed() < AGE_MAX) {
        return Ok(found.clone());
    }
    let found = match of_gh(host)? {
        Some(found) => Some(found),
        None => of_helper(host, is_http)?,
    };
    cache.insert(host.to_owned(), (Instant::now(), found.clone()));
    Ok(found)
}

/// The variables that are meant for a host, as `gh` reads them: a token for github.com must not
/// reach another host because a remote points there.
fn variables(host: &str, is_named: bool) -> &'static [Source] {
    const COM: &[Source] = &[Source::GithubToken, Source::GhToken];
    const ENTERPRISE: &[Source] = &[Source::GhEnterpriseToken, Source::GithubEnterpriseToken];
    const ALL: &[Source] =
        &[Source::GhEnterpriseToken, Source::GithubEnterpriseToken, Source::GithubToken, Source::GhToken];
    match host {
        "github.com" => COM,
        tenant if tenant.ends_with(".ghe.com") => COM,
        _ if is_named => ALL,
        _ => ENTERPRISE,
    }
}

fn of_gh(host: &str) -> Result<Option<FoundToken>, Error> {
    let output = run("gh", &["auth", "token", "--hostname", host], "");
    let text = output.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    if text.trim().is_empty() {
        return Ok(None);
    }
    let from = Source::GhCommand;
    Ok(Some(FoundToken { token: Token::new(&text, &from)?, from }))
}

fn of_helper(host: &str, is_http: bool) -> Result<Option<FoundToken>, Error> {
    let protocol = if is_http { "http" } else { "https" };
    let asked = format!("protocol={protocol}\nhost={host}\n\n");
    let output = run("git", &["credential", "fill"], &asked).unwrap_or_default();
    let text = String::from_utf8_lossy(&output);
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    // A helper may hand out what it stored for another, or what has expired.
    let is_ours = value("host").is_none_or(|answered| answered == host);
    let has_expired = value("password_expiry_utc")
        .and_then(|at| at.parse::<i64>().ok())
        .is_some_and(|at| at <= jiff::Timestamp::now().as_second());
    match value("password").filter(|password| !password.is_empty() && is_ours && !has_expired) {
        Some(password) => {
            let from = Source::CredentialHelper;
            Ok(Some(FoundToken { token: Token::new(password, &from)?, from }))
        }
        None => Ok(None),
    }
}

/// What a program prints, if it is there and ends well in time. It may not ask anybody anything.
fn run(program: &str, arguments: &[&str], input: &str) -> Option<Vec<u8>> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| is_passed_on(&name.to_string_lossy())))
        .envs([
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_ASKPASS", ""),
            ("GCM_INTERACTIVE", "never"),
            ("GH_PROMPT_DISABLED", "1"),
            ("GH_NO_UPDATE_NOTIFIER", "1"),
            ("LC_ALL", "C"),
        ])
        // Not in a repository: its configuration could name a helper of its own.
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0);
    let mut group = Group(command.spawn().ok()?);
    let begun = Instant::now();
    // Short enough for any pipe, so it cannot block; a program that is gone already reads nothing.
    let _ = group.0.stdin.take()?.write_all(input.as_bytes());
    let stdout = group.0.stdout.take()?;
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stdout.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
        let _ = send.send(bytes);
    });
    let bytes = receive.recv_timeout(PROGRAM_DEADLINE).ok();
    let Some(bytes) = bytes else {
        tracing::warn!(program, "did not answer in time about a token");
        return None;
    };
    // It has closed its output; what is left is its end.
    loop {
        match group.0.try_wait().ok()? {
            Some(status) => return status.success().then_some(bytes),
            None if begun.elapsed() >= PROGRAM_DEADLINE => return None,
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// A child whose whole group ends with it: helpers start helpers.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // Only while it has not been waited for: afterwards the number may be somebody else's.
        if let Ok(None) = self.0.try_wait() {
            if let Some(group) = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            let _ = self.0.wait();
        }
    }
}

/// Keyrings and helpers need much of the environment, but no secret that is meant for others. The
/// variables with GitHub's tokens are left out too, or `gh` would give one back for a host that it
/// is not for.
fn is_passed_on(name: &str) -> bool {
    let is_secret = ["_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_PASSPHRASE", "_CREDENTIALS"]
        .iter()
        .any(|ending| name.to_ascii_uppercase().ends_with(ending));
    // What git was told by a repository in which we were started is none of a helper's business.
    let is_of_repository = matches!(
        name,
        "GIT_DIR"
            | "GIT_WORK_TREE"
            | "GIT_INDEX_FILE"
            | "GIT_OBJECT_DIRECTORY"
            | "GIT_COMMON_DIR"
            | "GIT_NAMESPACE"
    );
    !is_secret && !is_of_repository && !name.starts_with("NUGGET_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_for_one_host_is_not_meant_for_another() {
        let names = |host, is_named| {
            variables(host, is_named).iter().filter_map(Source::variable).collect::<Vec<_>>()
        };
        assert_eq!(names("github.com", false), ["GITHUB_TOKEN", "GH_TOKEN"]);
        assert_eq!(names("acme.ghe.com", false), ["GITHUB_TOKEN", "GH_TOKEN"]);
        for other in ["ghe.example.com", "gitlab.com", "127.0.0.1:80", "github.com:444", "evilghe.com"] {
            assert_eq!(names(other, false), ["GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"], "{other}");
        }
        assert_eq!(names("ghe.example.com", true).len(), 4);
        // The user's own GitHub Enterprise Server does not make github.com's variables wider.
        assert_eq!(names("github.com", true), ["GITHUB_TOKEN", "GH_TOKEN"]);
    }

    #[test]
    fn what_could_not_stand_in_a_header_is_no_token_and_none_is_printed() {
        let from = Source::GhToken;
        for bad in ["", "   ", "a b", "a\nb", "tökén", &"x".repeat(5000)] {
            let error = Token::new(bad, &from).unwrap_err();
            assert_eq!(error.to_string(), "what GH_TOKEN gives cannot be a token");
        }
        let token = Token::new(" canary-4711\n", &from).unwrap();
        assert_eq!(token.reveal(), "canary-4711");
        let found = FoundToken { token, from };
        assert!(!format!("{found:?}").contains("canary"));
    }

    #[test]
    fn children_get_no_secret_of_others() {
        for kept in [
            "PATH",
            "HOME",
            "DBUS_SESSION_BUS_ADDRESS",
            "GNOME_KEYRING_CONTROL",
            "GIT_CONFIG_GLOBAL",
            "HTTPS_PROXY",
        ] {
            assert!(is_passed_on(kept), "{kept}");
        }
        for dropped in [
            "ANTHROPIC_API_KEY",
            "GH_TOKEN",
            "GITHUB_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "npm_token",
            "GIT_DIR",
            "NUGGET_LOG",
        ] {
            assert!(!is_passed_on(dropped), "{dropped}");
        }
    }
}
