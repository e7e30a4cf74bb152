//! What the server is told: addresses, who is let in, and the limits.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How the server is reached, and whom it trusts.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address that it listens on.
    pub listen: SocketAddr,
    /// Its address as clients know it, such as `https://brains.example.com`: the resource of RFC 9728, and a host
    /// that requests may name. Without it, the address that it listens on.
    pub public_url: Option<String>,
    /// More hosts that requests may name in `Host`.
    pub allowed_hosts: Vec<String>,
    /// The browser origins that may send requests. None by default, but those of this machine on a loopback address.
    pub allowed_origins: Vec<String>,
    /// The certificate. Without it, HTTP is plain, which only a loopback address may be.
    pub tls: Option<TlsFiles>,
    /// Allows plain HTTP on any address, for a server behind a proxy that ends TLS.
    pub insecure_plain: bool,
    /// The issuer of JWTs, if these are accepted next to opaque tokens.
    pub jwt: Option<JwtSettings>,
    /// Whether `/metrics` needs no token. Otherwise one with the scope `admin`.
    pub open_metrics: bool,
    /// The bounds of everything.
    pub limits: Limits,
}

impl Settings {
    /// The settings of a server on an address, with the usual limits.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            public_url: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            tls: None,
            insecure_plain: false,
            jwt: None,
            open_metrics: false,
            limits: Limits::default(),
        }
    }
}

/// A certificate chain and its key, both PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The chain, the server's own certificate first.
    pub certificate: PathBuf,
    /// The private key: PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
}

/// Whose JWTs are accepted.
#[derive(Clone, Debug)]
pub struct JwtSettings {
    /// The claim `iss`, exactly.
    pub issuer: String,
    /// What the claim `aud` must contain.
    pub audience: String,
    /// Where the issuer publishes its keys (RFC 7517): https, or on this machine.
    pub jwks_url: String,
    /// The least time between two fetches of the keys because a token names an unknown one: a minute, usually.
    pub refetch_interval: Duration,
}

/// How often one token may do something: the burst at once, then evenly.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// The lasting rate.
    pub per_minute: u32,
    /// How many at once.
    pub burst: u32,
}

/// The bounds. Each is there so that no client can take what others need.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections. More wait in the system's queue.
    pub connections_max: usize,
    /// Requests that are worked on at once. More get 503.
    pub requests_max: usize,
    /// Calls of the database's side at once. It has half as many connections: a call also computes.
    pub calls_max: usize,
    /// The bytes of all request bodies that are in memory at once, a quarter of them of one token. More get 503.
    pub body_bytes_in_flight_max: usize,
    /// The longest body of a capture.
    pub capture_bytes_max: usize,
    /// The longest body of a question.
    pub question_bytes_max: usize,
    /// The longest request line and headers together.
    pub header_bytes_max: usize,
    /// The most headers.
    pub headers_max: usize,
    /// How long a client may take for its TLS handshake, and for the headers of each request; an idle connection is
    /// closed after it, too.
    pub header_timeout: Duration,
    /// How long a client may take for a body.
    pub body_timeout: Duration,
    /// How long a client may leave an answer unread.
    pub write_timeout: Duration,
    /// How long the database's side may take for an answer, with the wait for a free call.
    pub call_timeout: Duration,
    /// How long requests may take to end after the server was told to.
    pub drain_timeout: Duration,
    /// The rate of each token's questions.
    pub questions: Rate,
    /// The rate of each token's captures.
    pub captures: Rate,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 2048,
            requests_max: 256,
            calls_max: 32,
            body_bytes_in_flight_max: 256 << 20,
            capture_bytes_max: 16 << 20,
            question_bytes_max: 1 << 20,
            header_bytes_max: 16 << 10,
            headers_max: 64,
            header_timeout: Duration::from_secs(15),
            body_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(30),
            call_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(30),
            questions: Rate { per_minute: 600, burst: 100 },
            captures: Rate { per_minute: 600, burst: 100 },
        }
    }
}
