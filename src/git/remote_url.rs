//! A remote's URL: which host and repository it names, and what of it may be shown.

use std::fmt;
use std::net::IpAddr;

use gix::bstr::ByteSlice as _;
use gix::url::Scheme;

/// A remote of the brain's repository. Its URL is private to this crate, as it may contain a secret.
#[derive(Clone)]
pub struct Remote {
    /// The name in the repository's configuration.
    pub name: String,
    /// The URL to fetch from, after `url.….insteadOf`.
    pub(crate) url: String,
    /// Those settings of the remote that matter for the connection.
    pub(crate) settings: Vec<(String, String)>,
    /// The user's `core.sshCommand`.
    pub(crate) ssh_command: Option<String>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("name", &self.name).field("url", &self.display_url()).finish()
    }
}

/// The parts of a remote's URL that identify a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteUrl {
    /// The host in lower case; empty for a local path.
    pub host: String,
    /// The port, if the URL names one.
    pub port: Option<u16>,
    /// The path without leading and trailing slashes and without `.git`: `owner/name` on GitHub. A local path
    /// stays as it is.
    pub path: String,
    /// How the host is reached.
    pub scheme: Scheme,
}

impl Remote {
    /// The URL as it may be shown: without user name, password, token and query.
    pub fn display_url(&self) -> String {
        display_url(&self.url)
    }

    /// The parsed URL; `None` for a form that only one of git's remote helpers understands.
    pub fn parsed_url(&self) -> Option<RemoteUrl> {
        RemoteUrl::parse(&self.url)
    }
}

impl RemoteUrl {
    /// Parses a URL or path as git reads it.
    ///
    /// `None` for an invalid one, and for a form that only one of git's remote helpers understands.
    ///
    /// ```
    /// let url = git::RemoteUrl::parse("git@github.com:me/brain.git").unwrap();
    /// assert_eq!((url.host.as_str(), url.path.as_str()), ("github.com", "me/brain"));
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let url = gix::url::parse(text.as_bytes().as_bstr()).ok()?;
        let path = url.path.to_str().ok()?;
        let scheme = url.scheme;
        if scheme == Scheme::File {
            return Some(Self { host: String::new(), port: None, path: path.to_owned(), scheme });
        }
        if !matches!(scheme, Scheme::Https | Scheme::Http | Scheme::Ssh) {
            return None;
        }
        let host = url.host.as_deref()?.trim_matches(['[', ']']).to_ascii_lowercase();
        if host.is_empty() {
            return None;
        }
        let path = path.split(['?', '#']).next().unwrap_or_default().trim_matches('/');
        let path = path.strip_suffix(".git").unwrap_or(path).trim_end_matches('/').to_owned();
        Some(Self { host, port: url.port, path, scheme })
    }

    /// Whether both name one repository of one host, however it is reached. Hosts take no notice of upper case in paths.
    pub fn is_same_repository(&self, other: &Self) -> bool {
        // SSH and HTTPS of one host have ports of their own.
        let is_same_server =
            self.host == other.host && (self.scheme != other.scheme || self.port == other.port);
        let is_same_path = match self.host.as_str() {
            "" => self.path == other.path,
            _ => self.path.eq_ignore_ascii_case(&other.path),
        };
        is_same_server && is_same_path
    }

    /// Scheme, host and port, if a password may be sent there: over TLS, or to this machine.
    pub(crate) fn origin_for_passwords(&self) -> Option<String> {
        let scheme = match &self.scheme {
            Scheme::Http if !is_loopback(&self.host) => return None,
            scheme @ (Scheme::Https | Scheme::Http) => scheme.as_str(),
            _ => return None,
        };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let port = self.port.map(|port| format!(":{port}")).unwrap_or_default();
        Some(format!("{scheme}://{host}{port}"))
    }
}

/// A URL as it may be shown: without user name, password, token and query, and on one line.
pub fn display_url(url: &str) -> String {
    knowledge::text::one_line(&without_secret(url), 300)
}

pub(crate) fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// A URL as it may be shown. It need not be valid: anything before the host's `@` may be a secret, and so may
/// the query.
pub(crate) fn without_secret(url: &str) -> String {
    if url.contains("://") {
        let hidden = hide_user_info(url);
        return hidden.split(['?', '#']).next().unwrap_or_default().to_owned();
    }
    match url.rsplit_once('@') {
        Some((user, rest)) if user.contains(':') => format!("…@{rest}"),
        _ => url.to_owned(),
    }
}

/// Replaces what stands between `://` and an `@` in the same word of a text: it may be a secret.
pub(crate) fn hide_user_info(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_repository_has_several_urls() {
        let is_same = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|url| RemoteUrl::parse(url).unwrap());
            one.is_same_repository(&other)
        };
        let https = "https://github.com/acme/brain.git";
        for url in [
            "git@github.com:acme/brain",
            "https://GitHub.com/Acme/brain/",
            "ssh://git@github.com:22/acme/brain",
        ] {
            assert!(is_same(https, url), "{url}");
        }
        for url in ["https://github.com/acme/brains", "https://example.com/acme/brain", "/acme/brain"] {
            assert!(!is_same(https, url), "{url}");
        }
        assert!(!is_same("http://127.0.0.1:80/brain", "http://127.0.0.1:81/brain"));
        assert!(is_same("file:///srv/brain.git", "/srv/brain.git") && !is_same("/srv/brain", "/srv/Brain"));
    }

    #[test]
    fn a_url_is_split_into_host_port_and_path() {
        let parts = |text: &str| {
            RemoteUrl::parse(text).map(|url| (format!("{:?}", url.scheme), url.host, url.port, url.path))
        };
        let cases = [
            ("https://GitHub.com/me/brain.git", "Https", "github.com", None, "me/brain"),
            (
                "https://me:pw@ghe.example.org:8443/me/brain/?token=x",
                "Https",
                "ghe.example.org",
                Some(8443),
                "me/brain",
            ),
            ("https://[2001:db8::1]:8443/brain", "Https", "2001:db8::1", Some(8443), "brain"),
            ("http://127.0.0.1:3000/brain.git/", "Http", "127.0.0.1", Some(3000), "brain"),
            ("ssh://git@[::1]:2222/me/brain", "Ssh", "::1", Some(2222), "me/brain"),
            ("git+ssh://git@example.org/me/brain", "Ssh", "example.org", None, "me/brain"),
            ("git@github.com:me/brain.git", "Ssh", "github.com", None, "me/brain"),
            ("work:me/brain", "Ssh", "work", None, "me/brain"),
            ("/srv/brain.git", "File", "", None, "/srv/brain.git"),
            ("file:///srv/brain.git", "File", "", None, "/srv/brain.git"),
            ("./a:b", "File", "", None, "./a:b"),
        ];
        for (text, scheme, host, port, path) in cases {
            let expected = (scheme.to_owned(), host.to_owned(), port, path.to_owned());
            assert_eq!(parts(text), Some(expected), "{text}");
        }
        for text in ["", "ext::sh -c x", "fd::7", "https:///x", "https://", "codecommit://x/y", "git://x/y"] {
            assert_eq!(parts(text), None, "{text}");
        }
    }

    #[test]
    fn a_shown_url_has_no_secret() {
        let cases = [
            ("https://me:hunter2@example.org/x", "https://…@example.org/x"),
            ("https://me:hun?ter2@example.org/x?token=y#z", "https://…@example.org/x"),
            ("ssh://git@[::1]:2222/me/brain", "ssh://…@[::1]:2222/me/brain"),
            ("me:hunter2@example.org:x", "…@example.org:x"),
            ("git@github.com:me/brain.git", "git@github.com:me/brain.git"),
        ];
        for (url, expected) in cases {
            assert_eq!(without_secret(url), expected, "{url}");
        }
    }
}
