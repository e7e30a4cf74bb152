//! Where the brain is pushed to: a remote in the repository's own configuration.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{During as _, Error};
use crate::objects::sync;
use crate::remote_url::{is_loopback, without_secret};
use crate::repository::Repository;

/// How long another writer of the configuration is waited for; git itself takes a millisecond.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(1);

/// From this length on the user's name in a URL is taken for a token, which some forges accept there.
const TOKEN_BYTES_MIN: usize = 20;

impl Repository {
    /// Adds a remote with git's usual fetch refspec to the repository's own configuration. Every byte
    /// that was there stays. `false` when the remote is there already with this very URL.
    ///
    /// # Errors
    /// [`Error::RemoteTaken`] when it is there with another URL; [`Error::InvalidRemote`] and
    /// [`Error::SecretInUrl`] for what may not be written; [`Error::ConfigurationLocked`].
    pub fn add_remote(&self, name: &str, url: &str) -> Result<bool, Error> {
        check_name(name)?;
        check_url(url)?;
        let path = self.git()?.common_dir().join("config");
        // As git does: it is the file behind a link that is locked and replaced.
        let path = path.canonicalize().map_err(Error::io("find", &path))?;
        let lock = ConfigurationLock::take(&path)?;
        // Read under the lock, so that two that add at once see one another.
        let git = self.git()?;
        let configuration = git.config_snapshot();
        let values = |key: &str| configuration.strings(&format!("remote.{name}.{key}")).unwrap_or_default();
        let urls = values("url");
        if !urls.is_empty() {
            if urls.iter().all(|there| there.as_slice() == url.as_bytes()) {
                return Ok(false);
            }
            let urls: Vec<String> = urls.iter().map(|url| without_secret(&url.to_string())).collect();
            return Err(Error::RemoteTaken { name: name.to_owned(), url: urls.join(", ") });
        }
        let mut bytes = std::fs::read(&path).map_err(Error::io("read", &path))?;
        if bytes.last().is_some_and(|last| *last != b'\n') {
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(format!("[remote \"{name}\"]\n\turl = {}\n", quoted(url)).as_bytes());
        if values("fetch").is_empty() {
            bytes.extend_from_slice(format!("\tfetch = +refs/heads/*:refs/remotes/{name}/*\n").as_bytes());
        }
        // A file whose last line ends in a backslash would swallow ours.
        let written = gix::config::File::try_from(String::from_utf8_lossy(&bytes).as_ref())
            .during(|| format!("read {}", path.display()))?;
        if written
            .string(&format!("remote.{name}.url"))
            .is_none_or(|there| there.as_slice() != url.as_bytes())
        {
            let reason = "the configuration's last line is not complete";
            return Err(Error::InvalidRemote { reason });
        }
        lock.replace(&bytes)?;
        Ok(true)
    }
}

/// git's own lock on a configuration file, `config.lock`, which becomes the file.
struct ConfigurationLock {
    target: PathBuf,
    path: PathBuf,
    file: File,
}

impl ConfigurationLock {
    fn take(target: &Path) -> Result<Self, Error> {
        let path = target.with_file_name("config.lock");
        let start = Instant::now();
        loop {
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => return Ok(Self { target: target.to_owned(), path, file }),
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(Error::io("create", &path)(error));
                }
                Err(_) if start.elapsed() >= LOCK_WAIT_MAX => {
                    return Err(Error::ConfigurationLocked { path });
                }
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    fn replace(mut self, bytes: &[u8]) -> Result<(), Error> {
        let write = |file: &mut File| {
            let mode = self.target.metadata()?.permissions().mode();
            file.set_permissions(std::fs::Permissions::from_mode(mode & 0o7777))?;
            file.write_all(bytes)?;
            file.sync_all()
        };
        write(&mut self.file).map_err(Error::io("write", &self.path))?;
        std::fs::rename(&self.path, &self.target).map_err(Error::io("replace", &self.target))?;
        let folder = self.target.parent().map(sync);
        // From here on the name is free for others, and theirs is not ours to remove.
        self.path.clear();
        folder.unwrap_or(Ok(()))
    }
}

impl Drop for ConfigurationLock {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty()
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "failed to remove git's lock file");
        }
    }
}

fn check_name(name: &str) -> Result<(), Error> {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if name.is_empty() || name.starts_with('-') || !plain {
        return Err(Error::InvalidRemote { reason: "its name is not of letters, digits, `-` and `_`" });
    }
    Ok(())
}

/// Checks that a URL leads somewhere by a known way and carries no secret. git runs a program for
/// some forms (`ext::sh -c …`), ssh for others, where a host that begins with `-` is an option.
pub(crate) fn check_url(url: &str) -> Result<(), Error> {
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
    if url.contains(char::is_whitespace) {
        return invalid("it has blanks");
    }
    let Some((scheme, rest)) = url.split_once("://") else { return check_scp(url) };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if !["https", "http", "ssh"].contains(&scheme) {
        return invalid(FORMS);
    }
    if user.contains([':', '%']) || user.len() >= TOKEN_BYTES_MIN {
        return Err(Error::SecretInUrl);
    }
    let host = match host.strip_prefix('[').and_then(|inside| inside.split_once(']')) {
        Some((address, port)) if address.parse::<std::net::Ipv6Addr>().is_ok() && is_port(port) => address,
        Some(_) => return invalid("its host is not valid"),
        None => match host.find(':') {
            Some(at) if is_port(&host[at..]) && is_host(&host[..at]) => &host[..at],
            None if is_host(host) => host,
            _ => return invalid("its host is not valid"),
        },
    };
    if !is_user(user) {
        return invalid("its user name is not valid");
    }
    if scheme == "http" && !is_loopback(host) {
        return invalid("http is not encrypted: use https, or ssh");
    }
    Ok(())
}

const FORMS: &str = "it is none of https://…, ssh://…, user@host:path, file:///… and an absolute path";

fn check_scp(url: &str) -> Result<(), Error> {
    let parts = url.split_once(':').and_then(|(who, path)| Some((who.split_once('@')?, path)));
    match parts {
        Some(((user, host), path))
            if !user.is_empty()
                && is_user(user)
                && is_host(host)
                && !path.is_empty()
                && !path.starts_with([':', '-']) =>
        {
            Ok(())
        }
        // `user:secret@host`, as people write it without a scheme.
        Some(_) | None if url.split_once('@').is_some_and(|(before, _)| before.contains(':')) => {
            Err(Error::SecretInUrl)
        }
        _ => Err(Error::InvalidRemote { reason: FORMS }),
    }
}

fn is_user(user: &str) -> bool {
    !user.starts_with('-')
        && user.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+".contains(&byte))
}

fn is_host(host: &str) -> bool {
    let named = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !host.is_empty() && !host.starts_with(['-', '.']) && host.bytes().all(named)
}

fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
}

/// As git writes a value into its configuration.
fn quoted(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/:@._-~+%".contains(&byte);
    if value.bytes().all(plain) {
        return value.to_owned();
    }
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_leads_somewhere_by_a_known_way() {
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
    fn a_secret_in_a_url_is_neither_taken_nor_repeated() {
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
