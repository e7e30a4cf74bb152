//! Finds the GitHub host of a remote and the address of its API.

use std::net::IpAddr;

use reqwest::Url;

use crate::error::Error;
use crate::token::{FoundToken, find};

/// A GitHub host: github.com, a tenant on ghe.com, or a GitHub Enterprise Server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The host in git's URLs, with the port if there is one.
    host: String,
    api: String,
    /// Whether the address comes from the user's settings.
    is_named: bool,
}

impl Host {
    /// The GitHub host of a remote's host (`github.com`, `127.0.0.1:8080`); `None` if that is another service.
    /// `api` is the setting `github.api`, or empty. It applies to its own host, and to a host without a dot,
    /// which is an alias in the user's ssh configuration.
    ///
    /// # Errors
    /// [`Error::InvalidApi`] when no token may be sent to `api`.
    pub fn for_remote(host: &str, api: &str) -> Result<Option<Self>, Error> {
        let host = host.to_ascii_lowercase();
        let host = match host.as_str() {
            // GitHub offers ssh on port 443 at this name.
            "ssh.github.com" | "www.github.com" => "github.com".to_owned(),
            _ => host,
        };
        let name = without_port(&host);
        if !api.is_empty() {
            let (_, api_name) = checked_url(api)?;
            let is_own = api_name == name || api_name.strip_prefix("api.") == Some(name);
            let is_alias = !name.contains(['.', ':']) && !is_loopback(name);
            if is_own || is_alias || (is_loopback(&api_name) && is_loopback(name)) {
                let host = if is_alias { api_name } else { host };
                return Ok(Some(Self { host, api: api.trim_end_matches('/').to_owned(), is_named: true }));
            }
        }
        let api = if name == "github.com" || name.ends_with(".ghe.com") {
            format!("https://api.{name}")
        } else if std::env::var("GH_HOST").is_ok_and(|known| known.eq_ignore_ascii_case(name)) {
            format!("https://{host}/api/v3")
        } else {
            return Ok(None);
        };
        Ok(Some(Self { host, api, is_named: false }))
    }

    /// The GitHub host of the setting `github.api`, or github.com if it is empty.
    ///
    /// # Errors
    /// [`Error::InvalidApi`] when no token may be sent to `api`.
    pub fn from_setting(api: &str) -> Result<Self, Error> {
        if api.is_empty() {
            let (host, api) = ("github.com".to_owned(), "https://api.github.com".to_owned());
            return Ok(Self { host, api, is_named: false });
        }
        let (url, _) = checked_url(api)?;
        let host = url.authority();
        let host = host.strip_prefix("api.").unwrap_or(host).to_owned();
        Ok(Self { host, api: api.trim_end_matches('/').to_owned(), is_named: true })
    }

    /// The host in git's URLs, with the port if there is one.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The API's base address, without a trailing slash.
    pub fn api(&self) -> &str {
        &self.api
    }

    /// Finds the token for this host. Blocks for up to 10 s, as it may run `gh` and git's credential helper.
    ///
    /// # Errors
    /// [`Error::InvalidToken`] when a variable or command has a value that cannot be a token.
    pub fn token(&self) -> Result<Option<FoundToken>, Error> {
        find(&self.host, self.is_named, self.api.starts_with("http:"))
    }
}

/// An API's address, which must be https, or http to this machine, and its host.
pub(crate) fn checked_url(api: &str) -> Result<(Url, String), Error> {
    let invalid = |reason| Error::InvalidApi { reason };
    let url = Url::parse(api).map_err(|_| invalid("it is not an address"))?;
    let host = url.host_str().ok_or_else(|| invalid("it names no host"))?;
    if url.authority().contains('@') {
        return Err(invalid("it contains a user name or password"));
    }
    if url.query().or(url.fragment()).is_some() {
        return Err(invalid("it has a query or fragment"));
    }
    let host = host.trim_matches(['[', ']']).to_owned();
    match url.scheme() {
        "https" => Ok((url, host)),
        "http" if is_loopback(&host) => Ok((url, host)),
        _ => Err(invalid("it is not https, so the token would be sent unencrypted")),
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn without_port(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|inside| inside.split_once(']')) {
        Some((address, _)) => address,
        None => match host.split_once(':') {
            // An IPv6 address without brackets has no port.
            Some((name, port)) if !port.contains(':') => name,
            _ => host,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api_of(host: &str, api: &str) -> Option<String> {
        Host::for_remote(host, api).unwrap().map(|host| host.api)
    }

    #[test]
    fn each_github_host_has_an_api_and_other_services_have_none() {
        let enterprise = "https://ghe.example.com/api/v3";
        let cases = [
            ("github.com", "", Some("https://api.github.com")),
            ("GitHub.com", "", Some("https://api.github.com")),
            ("ssh.github.com", "", Some("https://api.github.com")),
            ("acme.ghe.com", "", Some("https://api.acme.ghe.com")),
            ("ghe.example.com", enterprise, Some(enterprise)),
            (
                "ghe.example.com:8443",
                "https://ghe.example.com:8443/api/v3/",
                Some("https://ghe.example.com:8443/api/v3"),
            ),
            ("work", enterprise, Some(enterprise)),
            ("127.0.0.1:80", "http://localhost:4000/api", Some("http://localhost:4000/api")),
            // A setting for one host does not apply to another.
            ("github.com", enterprise, Some("https://api.github.com")),
            ("gitlab.com", enterprise, None),
            ("localhost", enterprise, None),
            ("gitlab.com", "", None),
            ("github.com.evil.example", "", None),
            ("notgithub.com", "", None),
            ("evilghe.com", "", None),
            ("work", "", None),
        ];
        for (host, api, wanted) in cases {
            assert_eq!(api_of(host, api).as_deref(), wanted, "{host} {api}");
        }
    }

    #[test]
    fn the_setting_names_the_users_github_host() {
        for (api, host) in [
            ("", "github.com"),
            ("https://api.github.com", "github.com"),
            ("https://ghe.example.com/api/v3/", "ghe.example.com"),
            ("http://127.0.0.1:4000/api/v3", "127.0.0.1:4000"),
        ] {
            assert_eq!(Host::from_setting(api).unwrap().host(), host);
        }
        assert!(Host::from_setting("http://ghe.example.com").is_err());
    }

    #[test]
    fn no_token_is_sent_unencrypted() {
        for bad in [
            "http://ghe.example.com/api/v3",
            "http://127.0.0.1.example.com",
            "https://me:secret@ghe.example.com",
            "ghe.example.com",
            "/api",
            "file:///etc",
            "https://ghe.example.com/?a=b",
        ] {
            let error = Host::for_remote("ghe.example.com", bad).unwrap_err();
            assert!(matches!(error, Error::InvalidApi { .. }), "{bad}");
        }
        for good in
            ["https://ghe.example.com", "http://127.0.0.1:1/api/v3", "http://[::1]:1", "http://localhost"]
        {
            assert!(checked_url(good).is_ok(), "{good}");
        }
    }
}
