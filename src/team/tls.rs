//! How connections are encrypted: by the URL's `sslmode`, and always when the server is on another host.

use std::sync::Arc;

use postgres::config::{Host, SslMode};
use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{Error, Result};

/// Parses the URL and decides about TLS. Where `sslmode` is not given, sockets and loopback addresses are plain and any
/// other host needs TLS: `prefer`, the usual default, can be downgraded by who is in between. `require`, `verify-ca`
/// and `verify-full` are one: the certificate must be valid for the host by the system's roots.
pub(crate) fn parse(url: &str) -> Result<(postgres::Config, MakeRustlsConnect)> {
    // The crate knows only the first of the three.
    let known =
        url.replace("sslmode=verify-full", "sslmode=require").replace("sslmode=verify-ca", "sslmode=require");
    let mut config: postgres::Config =
        known.parse().map_err(|_| Error::Url { what: "it cannot be parsed" })?;
    if config.get_hosts().is_empty() {
        return Err(Error::Url { what: "it names no host" });
    }
    if config.get_ssl_mode() == SslMode::Prefer {
        config.ssl_mode(if config.get_hosts().iter().all(is_local) {
            SslMode::Disable
        } else {
            SslMode::Require
        });
    }
    let client = client(config.get_ssl_mode())?;
    Ok((config, MakeRustlsConnect::new(client)))
}

/// The hosts of a connection with their ports, for people.
pub(crate) fn address(config: &postgres::Config) -> String {
    const PORT: u16 = 5432;
    let ports = config.get_ports();
    let of = |(number, host): (usize, &Host)| match host {
        // One port stands for all hosts.
        Host::Tcp(name) => {
            format!("{name}:{}", ports.get(number).or_else(|| ports.first()).unwrap_or(&PORT))
        }
        #[cfg(unix)]
        Host::Unix(folder) => folder.display().to_string(),
    };
    config.get_hosts().iter().enumerate().map(of).collect::<Vec<_>>().join(", ")
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Tcp(name) if name == "localhost" => true,
        Host::Tcp(name) => name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback()),
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

fn client(mode: SslMode) -> Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(Error::Tls)?;
    // A container without certificates can still use a socket.
    let builder = match mode {
        SslMode::Disable => builder.with_root_certificates(rustls::RootCertStore::empty()),
        _ => builder.with_platform_verifier().map_err(Error::Tls)?,
    };
    Ok(builder.with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(url: &str) -> SslMode {
        parse(url).unwrap().0.get_ssl_mode()
    }

    #[test]
    fn only_local_hosts_are_plain_unless_the_url_says_so() {
        for url in ["postgres://u@/d?host=/tmp/s", "postgres://u@localhost/d", "postgres://u@127.0.0.2/d"] {
            assert_eq!(mode(url), SslMode::Disable, "{url}");
        }
        for url in [
            "postgres://u@db.example.org/d",
            "postgres://u@db.example.org/d?sslmode=verify-full",
            "postgres://u@localhost/d?sslmode=verify-ca",
            "postgres://u@localhost,db.example.org/d",
        ] {
            assert_eq!(mode(url), SslMode::Require, "{url}");
        }
        assert_eq!(mode("postgres://u@db.example.org/d?sslmode=disable"), SslMode::Disable);
    }

    #[test]
    fn no_error_has_the_password() {
        for url in [
            "postgres://u:s3cret@host:port/d",
            "postgres://u:s3cret@/d",
            "mysql://u:s3cret@host/d",
            "postgres://u:s3cret@h/d?sslmode=s3cret",
            "host=h password='s3cret",
        ] {
            let error = parse(url).map(drop).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
        }
    }
}
