//! Finds the token: in a variable, with `gh`, or with git's credential helper.
//!
//! A token is used only for its own host. It is kept in this process's memory only and never printed.

use std::collections::HashMap;
use std::fmt;
use std::process::Command;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Error;

/// The time limit for `gh` and for a credential helper: either may open a keyring that waits for a person.
const COMMAND_DEADLINE: Duration = Duration::from_secs(5);
/// How long the result of a command is cached: the user may log in, and tokens expire.
const CACHE_AGE_MAX: Duration = Duration::from_secs(300);
const TOKEN_BYTES_MAX: usize = 4096;

/// A token. It has no `Display`, and its `Debug` hides it; [`Token::reveal`] is for sending it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Trims and checks a token.
    ///
    /// # Errors
    /// [`Error::InvalidToken`] for an empty or too long text, or one with other characters than printable ASCII.
    pub fn new(text: &str, from: &str) -> Result<Self, Error> {
        let text = text.trim();
        let is_valid =
            (1..=TOKEN_BYTES_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        if !is_valid {
            return Err(Error::InvalidToken { from: from.to_owned() });
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

/// A token and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundToken {
    /// The token.
    pub token: Token,
    /// Where it was found: a variable, or a command.
    pub from: &'static str,
}

impl FoundToken {
    fn new(text: &str, from: &'static str) -> Result<Option<Self>, Error> {
        match text.trim() {
            "" => Ok(None),
            text => Ok(Some(Self { token: Token::new(text, from)?, from })),
        }
    }

    /// User name and password for git over https. GitHub accepts all kinds of tokens with this name.
    pub fn credentials(&self) -> (&'static str, &str) {
        ("x-access-token", self.token.reveal())
    }
}

/// Clears the cache, so that the next search runs the commands again: after a 401, or when the user has logged in.
pub fn forget_tokens() {
    CACHE.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// The result of the commands by host, with its time.
type Cache = HashMap<String, (Instant, Option<FoundToken>)>;

static CACHE: LazyLock<Mutex<Cache>> = LazyLock::new(Mutex::default);

/// Finds the token for a host. `is_named`: the user has set `github.api` for this host, so that all variables are
/// meant for it.
pub(crate) fn find(host: &str, is_named: bool, is_http: bool) -> Result<Option<FoundToken>, Error> {
    for name in variables(host, is_named) {
        if let Some(found) = FoundToken::new(&std::env::var(name).unwrap_or_default(), name)? {
            return Ok(Some(found));
        }
    }
    // Held while the commands run, so that concurrent searches do not open a keyring each.
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, found)) = cache.get(host).filter(|(at, _)| at.elapsed() < CACHE_AGE_MAX) {
        return Ok(found.clone());
    }
    let found = match from_gh(host)? {
        Some(found) => Some(found),
        None => from_credential_helper(host, is_http)?,
    };
    cache.insert(host.to_owned(), (Instant::now(), found.clone()));
    Ok(found)
}

/// The variables that are meant for a host, in `gh`'s rules: a token for github.com must not be sent to another
/// host because a remote names it.
fn variables(host: &str, is_named: bool) -> &'static [&'static str] {
    const COM: &[&str] = &["GITHUB_TOKEN", "GH_TOKEN"];
    const ENTERPRISE: &[&str] = &["GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"];
    const ALL: &[&str] = &["GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "GITHUB_TOKEN", "GH_TOKEN"];
    match host {
        "github.com" => COM,
        tenant if tenant.ends_with(".ghe.com") => COM,
        _ if is_named => ALL,
        _ => ENTERPRISE,
    }
}

fn from_gh(host: &str) -> Result<Option<FoundToken>, Error> {
    let output = run("gh", &["auth", "token", "--hostname", host], "");
    let text = output.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    FoundToken::new(&text, "`gh auth token`")
}

fn from_credential_helper(host: &str, is_http: bool) -> Result<Option<FoundToken>, Error> {
    let protocol = if is_http { "http" } else { "https" };
    let query = format!("protocol={protocol}\nhost={host}\n\n");
    let output = run("git", &["credential", "fill"], &query).unwrap_or_default();
    let text = String::from_utf8_lossy(&output);
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    // A helper may return a password of another host, or an expired one.
    let is_ours = value("host").is_none_or(|named| named == host);
    let has_expired = value("password_expiry_utc")
        .and_then(|at| at.parse::<i64>().ok())
        .is_some_and(|at| at <= jiff::Timestamp::now().as_second());
    let password = value("password").filter(|_| is_ours && !has_expired).unwrap_or_default();
    FoundToken::new(password, "git's credential helper")
}

/// The output of a command if it exists and succeeds in time. It may not prompt.
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
        // Outside any repository, as its configuration could name another helper.
        .current_dir("/");
    let output =
        system::process::run(&mut command, input.as_bytes().to_vec(), Instant::now() + COMMAND_DEADLINE)
            .ok()?;
    if output.succeeded.is_none() {
        tracing::warn!(program, "the command for a token took too long");
    }
    (output.succeeded == Some(true)).then_some(output.stdout)
}

/// Whether a variable is passed to a command. Keyrings and helpers need many variables, but no secrets of other
/// services. GitHub's token variables are removed too, or `gh` would return one for the wrong host.
fn is_passed_on(name: &str) -> bool {
    let is_secret = ["_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_PASSPHRASE", "_CREDENTIALS"]
        .iter()
        .any(|ending| name.to_ascii_uppercase().ends_with(ending));
    // Set by git when nugget runs in a hook; they do not concern a helper.
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
    fn a_token_is_used_only_for_its_own_host() {
        let names = variables;
        assert_eq!(names("github.com", false), ["GITHUB_TOKEN", "GH_TOKEN"]);
        assert_eq!(names("acme.ghe.com", false), ["GITHUB_TOKEN", "GH_TOKEN"]);
        for other in ["ghe.example.com", "gitlab.com", "127.0.0.1:80", "github.com:444", "evilghe.com"] {
            assert_eq!(names(other, false), ["GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"], "{other}");
        }
        assert_eq!(names("ghe.example.com", true).len(), 4);
        // A GitHub Enterprise Server in the settings does not add variables for github.com.
        assert_eq!(names("github.com", true), ["GITHUB_TOKEN", "GH_TOKEN"]);
    }

    #[test]
    fn a_token_is_printable_ascii_and_never_printed() {
        let from = "GH_TOKEN";
        for bad in ["", "   ", "a b", "a\nb", "tökén", &"x".repeat(5000)] {
            let error = Token::new(bad, from).unwrap_err();
            assert_eq!(error.to_string(), "the value of GH_TOKEN cannot be a token");
        }
        let token = Token::new(" canary-4711\n", from).unwrap();
        assert_eq!(token.reveal(), "canary-4711");
        let found = FoundToken { token, from };
        assert!(!format!("{found:?}").contains("canary"));
    }

    #[test]
    fn commands_get_no_secrets_of_other_services() {
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
