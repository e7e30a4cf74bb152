//! How git connects to the remote: its address, the credentials, ssh and deadlines.
//!
//! git knows the remote under a name of ours, set in its environment only, without refspecs.

use std::fmt;
use std::time::{Duration, Instant};

use base64::Engine as _;

use crate::command::GitCommand;
use crate::remote_url::{Remote, RemoteUrl};
use crate::repository::Repository;

/// A user name and a password or token, for https, and for http to this machine. git receives them in its
/// environment only.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user name.
    pub username: String,
    /// The password or token.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(…)")
    }
}

/// A remote, the credentials for it, and the time limit for one operation.
#[derive(Clone, Copy, Debug)]
pub struct RemoteSession<'a> {
    /// The remote.
    pub remote: &'a Remote,
    /// With `None`, the user's credential helpers and ssh keys are used. No person is ever asked.
    pub credentials: Option<&'a Credentials>,
    /// The time limit for the whole operation. After it, git and all processes that it started are killed.
    pub deadline: Duration,
}

/// The remote's name for git: one that nobody has configured.
pub(crate) const REMOTE_NAME: &str = "nugget-wire";

impl Repository {
    /// A git command that knows the remote as [`REMOTE_NAME`].
    pub(crate) fn remote_command(
        &self,
        git: &gix::Repository,
        session: &RemoteSession<'_>,
        until: Instant,
    ) -> GitCommand {
        let mut command = GitCommand::new(self.root(), Some(git.git_dir()), session.credentials.is_some());
        for (setting, value) in &session.remote.settings {
            command.configure(format!("remote.{REMOTE_NAME}.{setting}"), value);
            if setting.ends_with("url") {
                hide_url(&mut command, value);
            }
        }
        command.configure(format!("remote.{REMOTE_NAME}.followRemoteHEAD"), "never");
        hide_url(&mut command, &session.remote.url);
        let ssh = session.remote.ssh_command.as_deref();
        connect(&mut command, session.remote.parsed_url().as_ref(), session.credentials, ssh, until);
        command
    }
}

/// Configures credentials, ssh and time limits.
///
/// The credentials are passed by a helper that reads them from the environment. git asks it for one origin only
/// and follows no redirects. A repository that has moved is reported as not found.
pub(crate) fn connect(
    command: &mut GitCommand,
    url: Option<&RemoteUrl>,
    credentials: Option<&Credentials>,
    ssh_command: Option<&str>,
    until: Instant,
) {
    if let Some(ssh) = ssh(ssh_command, std::env::var("GIT_SSH_COMMAND").ok()) {
        command.environment("GIT_SSH_COMMAND", ssh);
    }
    // If nugget is killed, git must not wait for a silent remote forever. Later than our own deadline.
    let seconds = until.saturating_duration_since(Instant::now()).as_secs() + 5;
    command.configure("http.lowSpeedLimit", "1").configure("http.lowSpeedTime", seconds.to_string());
    let Some(credentials) = credentials else { return };
    for secret in [&credentials.password, &basic(credentials)] {
        command.hide(secret.as_str());
    }
    // No helper of the user's is asked or gets the credentials.
    command.configure("credential.helper", "");
    let Some(origin) = url.and_then(RemoteUrl::origin_for_passwords) else { return };
    let helper = "!f() { test \"$1\" = get && printf 'username=%s\\npassword=%s\\n' \
                  \"$NUGGET_GIT_USERNAME\" \"$NUGGET_GIT_PASSWORD\"; }; f";
    command
        // git sends a password to any host that a redirect names.
        .configure("http.followRedirects", "false")
        .configure(format!("credential.{origin}.helper"), "")
        .configure(format!("credential.{origin}.helper"), helper)
        // Avoids a first request without credentials; older versions of git ignore it.
        .configure("http.proactiveAuth", "basic")
        .environment("NUGGET_GIT_USERNAME", &credentials.username)
        .environment("NUGGET_GIT_PASSWORD", &credentials.password);
}

/// The user's ssh command with the option not to ask anything; `None` for the user's `GIT_SSH`, which takes no
/// options.
fn ssh(configured: Option<&str>, environment: Option<String>) -> Option<String> {
    // In git's order: the variable, then the configuration, then `GIT_SSH`.
    let own = environment.or_else(|| configured.map(str::to_owned)).filter(|own| !own.trim().is_empty());
    match own {
        Some(own) if own.to_ascii_lowercase().contains("plink") => Some(format!("{own} -batch")),
        Some(own) => Some(format!("{own} -o BatchMode=yes")),
        None if std::env::var_os("GIT_SSH").is_some() => None,
        None => Some("ssh -o BatchMode=yes".to_owned()),
    }
}

/// Hides the part of a URL before the host's `@`, which may be a secret.
fn hide_url(command: &mut GitCommand, url: &str) {
    let Some((_, rest)) = url.split_once("://") else { return };
    let authority = rest.split('/').next().unwrap_or_default();
    if let Some((who, _)) = authority.rsplit_once('@') {
        for part in who.split(':') {
            command.hide(part);
        }
    }
}

/// The credentials as in the `Authorization` header.
fn basic(credentials: &Credentials) -> String {
    let text = format!("{}:{}", credentials.username, credentials.password);
    base64::engine::general_purpose::STANDARD_NO_PAD.encode(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_hidden_in_each_of_their_forms() {
        let credentials = Credentials { username: "me".to_owned(), password: "hunter22".to_owned() };
        assert_eq!(basic(&credentials), "bWU6aHVudGVyMjI");
        assert!(!format!("{credentials:?}").contains("hunter"));
    }
}
