//! Reads the remote from git's configuration, and adds one.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use gix::bstr::ByteSlice as _;
use gix::url::Scheme;

use crate::command::GitCommand;
use crate::error::Error;
use crate::lock::Lock;
use crate::remote_url::{Remote, is_loopback, without_secret};
use crate::repository::Repository;

/// How long to wait for another writer of the configuration; git takes a millisecond.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(1);

/// How long to wait for the git command that reads or writes the configuration.
const COMMAND_WAIT_MAX: Duration = Duration::from_secs(10);

/// A user name in a URL of at least this length is treated as a token, which some hosts accept there.
const TOKEN_BYTES_MIN: usize = 20;

/// The settings of a remote that matter for the connection. Not its refspecs, and not those that mirror, prune
/// or follow tags.
const SETTINGS: &[&str] =
    &["url", "pushurl", "proxy", "proxyauthmethod", "uploadpack", "receivepack", "vcs", "serveroption"];

impl Repository {
    /// `origin`, or else the only remote; `None` if there is none or several. Read from git's configuration,
    /// including the user's. Does not use the network.
    ///
    /// # Errors
    /// When the configuration cannot be read.
    pub fn remote(&self) -> Result<Option<Remote>, Error> {
        let git = self.git()?;
        let mut command = GitCommand::new(self.root(), Some(git.git_dir()), false);
        let keys = r"^(remote\..*|url\..*\.insteadof|core\.sshcommand)$";
        command.arguments(["config", "-z", "--get-regexp", keys]);
        let output = command.run(Instant::now() + COMMAND_WAIT_MAX)?;
        // git fails without a message if no key matches.
        if !output.is_success && !output.message().is_empty() {
            return Err(output.failure());
        }
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut remotes: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
        let mut rewrites: Vec<(&str, &str)> = Vec::new();
        let mut ssh_command = None;
        for entry in printed.split('\0') {
            let Some((key, value)) = entry.split_once('\n') else { continue };
            let Some((section, rest)) = key.split_once('.') else { continue };
            match (section, rest.rsplit_once('.')) {
                ("core", None) => ssh_command = Some(value.to_owned()),
                ("url", Some((base, "insteadof"))) => rewrites.push((value, base)),
                ("remote", Some((name, setting))) => remotes.entry(name).or_default().push((setting, value)),
                _ => {}
            }
        }
        remotes.retain(|_, settings| settings.iter().any(|(setting, _)| *setting == "url"));
        let name = match remotes.len() {
            _ if remotes.contains_key("origin") => "origin",
            1 => remotes.keys().next().copied().unwrap_or_default(),
            _ => return Ok(None),
        };
        let settings = remotes.remove(name).unwrap_or_default();
        // The first of several: the others are for the user's pushes only.
        let first = |wanted: &str| settings.iter().find(|(setting, _)| *setting == wanted);
        let Some((_, url)) = first("url") else { return Ok(None) };
        let longest =
            rewrites.iter().filter(|(from, _)| url.starts_with(from)).max_by_key(|(from, _)| from.len());
        let effective =
            longest.map_or_else(|| (*url).to_owned(), |(from, to)| format!("{to}{}", &url[from.len()..]));
        let settings = SETTINGS.iter().filter_map(|wanted| first(wanted));
        Ok(Some(Remote {
            name: name.to_owned(),
            url: effective,
            settings: settings.map(|(setting, value)| ((*setting).to_owned(), (*value).to_owned())).collect(),
            ssh_command,
        }))
    }

    /// Adds a remote with git's usual fetch refspec to the repository's configuration. `false` if it exists
    /// already with the same URL.
    ///
    /// Takes the repository's lock, so the caller must not hold it.
    ///
    /// # Errors
    /// [`Error::RemoteTaken`] when it exists with another URL; [`Error::InvalidRemote`] and
    /// [`Error::SecretInUrl`] for a name or URL that is not allowed; [`Error::ConfigurationLocked`], and those of
    /// git.
    pub fn add_remote(&self, name: &str, url: &str) -> Result<bool, Error> {
        check_name(name)?;
        check_url(url)?;
        // Two nugget processes that add a remote at the same time must see each other's.
        let _held = Lock::acquire_within(&self.lock_path()?, COMMAND_WAIT_MAX)?;
        let git = self.git()?;
        let configuration = git.config_snapshot();
        let values = |key: &str| configuration.strings(&format!("remote.{name}.{key}")).unwrap_or_default();
        let urls = values("url");
        if !urls.is_empty() {
            if urls.iter().all(|existing| existing.as_slice() == url.as_bytes()) {
                return Ok(false);
            }
            let urls: Vec<String> = urls.iter().map(|url| without_secret(&url.to_string())).collect();
            return Err(Error::RemoteTaken { name: name.to_owned(), url: urls.join(", ") });
        }
        // git locks and replaces the file behind a symbolic link.
        let path = git.common_dir().join("config");
        let path = path.canonicalize().map_err(Error::io("find", &path))?;
        // git would append to the unfinished line.
        let content = std::fs::read(&path).map_err(Error::io("read", &path))?;
        if content.trim_end().ends_with(b"\\") {
            let reason = "the last line of git's configuration is incomplete";
            return Err(Error::InvalidRemote { reason });
        }
        let arguments = match values("fetch").is_empty() {
            true => ["remote", "add", "--", name, url].map(str::to_owned).to_vec(),
            // `git remote add` refuses a name with any setting.
            false => vec!["config".to_owned(), format!("remote.{name}.url"), url.to_owned()],
        };
        self.write_configuration(&git, &arguments, &path.with_file_name("config.lock"))?;
        Ok(true)
    }

    /// Makes the remote's branch the upstream of the default branch, so that `git pull` and `git push` need no arguments.
    /// An upstream that is set stays. The remote must have been fetched or pushed to.
    ///
    /// # Errors
    /// [`Error::ConfigurationLocked`], those of [`default_branch`](Self::default_branch), and those of git.
    pub fn set_upstream(&self, remote: &Remote) -> Result<(), Error> {
        let git = self.git()?;
        let branch = self.default_branch_of(&git)?.name;
        let is_set = git.config_snapshot().string(&format!("branch.{branch}.merge")).is_some();
        if is_set {
            return Ok(());
        }
        let upstream = format!("--set-upstream-to={}/{branch}", remote.name);
        let lock = git.common_dir().join("config.lock");
        self.write_configuration(&git, &["branch".to_owned(), "--quiet".to_owned(), upstream, branch], &lock)
    }

    /// Runs git to write its configuration. git does not wait for its own lock, so this tries again.
    fn write_configuration(
        &self,
        git: &gix::Repository,
        arguments: &[String],
        lock: &Path,
    ) -> Result<(), Error> {
        let start = Instant::now();
        loop {
            if start.elapsed() >= LOCK_WAIT_MAX && lock.exists() {
                return Err(Error::ConfigurationLocked { path: lock.to_owned() });
            }
            if !lock.exists() {
                let mut command = GitCommand::new(self.root(), Some(git.git_dir()), false);
                command.arguments(arguments);
                let output = command.run(Instant::now() + COMMAND_WAIT_MAX)?;
                if output.is_success || !lock.exists() {
                    return output.ok().map(drop);
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn check_name(name: &str) -> Result<(), Error> {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if name.is_empty() || name.starts_with('-') || !plain {
        return Err(Error::InvalidRemote {
            reason: "its name has other characters than letters, digits, `-` and `_`",
        });
    }
    Ok(())
}

/// Checks that a URL has a known form and contains no secret. For some forms git runs a program
/// (`ext::sh -c …`), for others ssh, which takes a host that begins with `-` as an option.
///
/// # Errors
/// [`Error::InvalidRemote`].
pub fn check_url(url: &str) -> Result<(), Error> {
    let invalid = |reason| Err(Error::InvalidRemote { reason });
    if url.is_empty() || url.starts_with('-') {
        return invalid("it is empty or begins with `-`");
    }
    if url.contains(char::is_control) || url.contains(knowledge::text::is_hidden) {
        return invalid("it has control or invisible characters");
    }
    if url.starts_with('/') || url.starts_with("file:///") {
        return Ok(());
    }
    if url.contains(char::is_whitespace) || url.contains('\\') {
        return invalid("it has spaces or backslashes");
    }
    let is_scp = !url.contains("://");
    if !is_scp && !["https://", "http://", "ssh://"].iter().any(|scheme| url.starts_with(scheme)) {
        return invalid(FORMS);
    }
    // `user:secret@host`, as people write it without a scheme.
    if is_scp && url.split_once('@').is_some_and(|(before, _)| before.contains(':')) {
        return Err(Error::SecretInUrl);
    }
    let Ok(parsed) = gix::url::parse(url.as_bytes().as_bstr()) else { return invalid(FORMS) };
    let user = parsed.user.as_deref().unwrap_or_default();
    // The path of the short form is passed to the remote's shell as it is.
    if is_scp && (user.is_empty() || parsed.scheme != Scheme::Ssh || parsed.path.starts_with_str(":")) {
        return invalid(FORMS);
    }
    if is_scp && parsed.path.starts_with_str("-") {
        return invalid("its path begins with `-`");
    }
    if parsed.password.is_some() || user.contains([':', '%']) || (user.len() >= TOKEN_BYTES_MIN && !is_scp) {
        return Err(Error::SecretInUrl);
    }
    let host = parsed.host.as_deref().unwrap_or_default().trim_matches(['[', ']']);
    if !is_host(host) && host.parse::<std::net::Ipv6Addr>().is_err() {
        return invalid("its host is not valid");
    }
    if !is_user(user) {
        return invalid("its user name is not valid");
    }
    if parsed.scheme == Scheme::Http && !is_loopback(host) {
        return invalid("http is not encrypted: use https or ssh");
    }
    Ok(())
}

const FORMS: &str = "it is none of https://…, ssh://…, user@host:path, file:///… and an absolute path";

fn is_user(user: &str) -> bool {
    !user.starts_with('-')
        && user.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+".contains(&byte))
}

fn is_host(host: &str) -> bool {
    let named = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !host.is_empty() && !host.starts_with(['-', '.']) && host.bytes().all(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_must_have_a_known_form_and_a_valid_host() {
        let good = [
            "https://github.com/me/brain.git",
            "https://me@dev.azure.com/me/brain",
            "https://example.org:8443/brain",
            "https://[2001:db8::1]:8443/brain",
            "ssh://git@example.org:22/me/brain.git",
            "git@github.com:me/brain.git",
            "file:///srv/with blanks/brain.git",
            "/srv/brains/mine.git",
            "http://localhost:3000/brain",
            "http://127.0.0.1/brain",
            "http://[::1]:3000/brain",
        ];
        for url in good {
            check_url(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        }
        let bad = [
            "",
            "-oProxyCommand=x",
            "--upload-pack=x",
            "ext::sh -c x",
            "ext::sh",
            "git@ext::x",
            "fd::7",
            "git://example.org/x",
            "ftp://example.org/x",
            "HTTPS://example.org/x",
            "http://example.org/x",
            "http://127.0.0.1.example.org/x",
            "http://localhost.example.org/x",
            "http://localhost@example.org/x",
            "file://host/x",
            "relative/path",
            "../up",
            "C:/brain",
            "https://example.org/a\nb",
            "https://example.org/\u{1b}[31m",
            "https://exam\u{202e}ple.org/x",
            "https://",
            "https:///x",
            "https://-x/y",
            "https://a b/c",
            "https://evil.example\\@github.com/x",
            "https://example.org:port/x",
            "ssh://-oProxyCommand=x/y",
            "ssh://git@-oProxyCommand=x/y",
            "git@-oProxyCommand=x:y",
            "-x@host:y",
            "git@host:",
            "git@host:-x",
        ];
        for url in bad {
            let error = check_url(url).expect_err(url);
            assert!(matches!(error, Error::InvalidRemote { .. }), "{url}: {error}");
        }
    }

    #[test]
    fn a_url_with_a_secret_is_refused_and_not_shown() {
        let urls = [
            "https://me:hunter2@github.com/me/brain",
            "https://:hunter2@github.com/me/brain",
            "https://me%3Ahunter2@github.com/me/brain",
            "https://hunter2hunter2hunter2hunter2@github.com/me/brain",
            "ssh://git:hunter2@example.org/x",
            "me:hunter2@github.com/x",
        ];
        for url in urls {
            let error = check_url(url).expect_err(url);
            assert!(matches!(error, Error::SecretInUrl), "{url}: {error}");
            assert!(!format!("{error} {error:?} {:?}", error.hint()).contains("hunter2"));
        }
        assert_eq!(without_secret("https://me:hunter2@example.org/x"), "https://…@example.org/x");
    }
}
