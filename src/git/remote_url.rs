//! Where a remote is, and how it may be told.

use std::fmt;
use std::net::IpAddr;

/// A remote of the brain's repository. Its URL is known to git alone, as it may carry a secret.
#[derive(Clone)]
pub struct Remote {
    /// Its name in the repository's configuration.
    pub name: String,
    /// Where it is fetched from, `url.….insteadOf` applied.
    pub(crate) url: String,
    /// What its section of the configuration says that matters for the way there.
    pub(crate) settings: Vec<(String, String)>,
    /// The user's `core.sshCommand`.
    pub(crate) ssh_command: Option<String>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("name", &self.name).field("url", &self.display_url()).finish()
    }
}

/// What a remote's URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteUrl {
    /// In lower case; empty for a folder.
    pub host: String,
    pub port: Option<u16>,
    /// Without slashes at its ends and without `.git`: `owner/name` at a forge. A folder's path is
    /// whole.
    pub path: String,
    pub scheme: Scheme,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    Https,
    Http,
    Ssh,
    File,
}

impl Remote {
    /// The URL as it may be shown: without user name, password, token or query.
    pub fn display_url(&self) -> String {
        knowledge::text::one_line(&without_secret(&self.url), 300)
    }

    /// Where it is; `None` for a form of URL that only a helper program of git's understands.
    pub fn parsed_url(&self) -> Option<RemoteUrl> {
        RemoteUrl::parse(&self.url)
    }
}

impl RemoteUrl {
    /// What a URL says; `None` for a form that only a helper program of git's understands.
    pub fn parse(url: &str) -> Option<Self> {
        let file = |path: &str| {
            Some(Self { host: String::new(), port: None, path: path.to_owned(), scheme: Scheme::File })
        };
        let Some((scheme, rest)) = url.split_once("://") else {
            // `user@host:path`, unless a slash comes before the colon: then it is a folder.
            return match url.split_once(':') {
                Some((who, path)) if !who.contains('/') && !who.is_empty() && !path.starts_with(':') => {
                    let host = who.rsplit_once('@').map_or(who, |(_, host)| host);
                    let host = host.trim_matches(['[', ']']);
                    Self::at(host, None, path, Scheme::Ssh)
                }
                Some((who, _)) if !who.contains('/') => None,
                _ if url.is_empty() => None,
                _ => file(url),
            };
        };
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "https" => Scheme::Https,
            "http" => Scheme::Http,
            "ssh" | "git+ssh" | "ssh+git" => Scheme::Ssh,
            "file" => return file(rest),
            _ => return None,
        };
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let (host, port) = match host.strip_prefix('[').and_then(|inside| inside.split_once(']')) {
            Some((address, port)) => (address, port.strip_prefix(':')),
            None => host.split_once(':').map_or((host, None), |(host, port)| (host, Some(port))),
        };
        let port = match port.filter(|port| !port.is_empty()) {
            Some(port) => Some(port.parse().ok()?),
            None => None,
        };
        Self::at(host, port, path, scheme)
    }

    fn at(host: &str, port: Option<u16>, path: &str, scheme: Scheme) -> Option<Self> {
        if host.is_empty() {
            return None;
        }
        let path = path.trim_matches('/');
        let path = path.strip_suffix(".git").unwrap_or(path).trim_end_matches('/').to_owned();
        Some(Self { host: host.to_ascii_lowercase(), port, path, scheme })
    }

    /// Scheme, host and port, where a password may be sent there: encrypted, or to this machine.
    pub(crate) fn origin_for_passwords(&self) -> Option<String> {
        let scheme = match self.scheme {
            Scheme::Https => "https",
            Scheme::Http if is_loopback(&self.host) => "http",
            Scheme::Http | Scheme::Ssh | Scheme::File => return None,
        };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        Some(
            self.port
                .map_or_else(|| format!("{scheme}://{host}"), |port| format!("{scheme}://{host}:{port}")),
        )
    }
}

pub(crate) fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// A URL as it may be shown: whatever stands before its host's `@` may be a secret, and so may a query.
pub(crate) fn without_secret(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return match url.rsplit_once('@') {
            Some((who, rest)) if who.contains(':') => format!("…@{rest}"),
            _ => url.to_owned(),
        };
    };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let end = rest.find('/').unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://…{}", &rest[at..]),
        None => format!("{scheme}://{rest}"),
    }
}
