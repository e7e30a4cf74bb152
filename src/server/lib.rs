//! The team server's HTTP side: MCP, the hand-over of captures, health and metrics.
//!
//! It knows no SQL and stores nothing: what it needs of the database's side are the traits of [`Parts`]. It never logs,
//! repeats or counts a token or a text.
//!
//! ```no_run
//! # async fn run(parts: server::Parts) -> Result<(), server::Error> {
//! let mut settings = server::Settings::new(([0, 0, 0, 0], 8443).into());
//! settings.public_url = Some("https://brains.example.com".to_owned());
//! settings.tls = Some(server::TlsFiles { certificate: "chain.pem".into(), key: "key.pem".into() });
//! server::run(settings, parts).await
//! # }
//! ```
#![warn(missing_docs)]
#![warn(clippy::missing_errors_doc)]

mod bearer;
mod body;
mod body_memory;
mod captures;
mod connections;
mod error;
mod hosts;
mod jwt;
mod metrics;
mod otlp;
mod parts;
mod problem;
mod questions;
mod rate_limit;
mod routes;
mod settings;
mod shared;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

pub use error::Error;
pub use mcp::context_tool::Task;
pub use otlp::Telemetry;
pub use parts::{
    Access, Action, AuditEvent, Brain, BrainId, CaptureError, CaptureId, CaptureState, Captures, Claims,
    FoundToken, Health, Identity, Metric, NewCapture, Parts, QuestionError, Questions, Scope, TokenHash,
    Unavailable,
};
pub use settings::{JwtSettings, Limits, Rate, Settings, TlsFiles};
pub use team_client::{BrainRepository, ShownUnit, TeamAnswer};

use crate::jwt::JwtVerifier;
use crate::shared::Shared;

/// A server that has its address but does not accept yet.
pub struct Bound {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    address: SocketAddr,
    public_url: String,
    jwt: Option<JwtVerifier>,
    settings: Settings,
}

/// Serves until SIGTERM or SIGINT, and then ends gracefully.
///
/// # Errors
/// [`Error`] if the server cannot start. Once it serves, it ends without an error.
pub async fn run(settings: Settings, parts: Parts) -> Result<(), Error> {
    // First of all, so that no signal is missed.
    let signal = system::signal::end_signal().map_err(Error::Signal)?;
    let end = async {
        let signal = signal.await;
        tracing::info!(signal, "ending");
    };
    bind(settings).await?.serve(parts, end).await;
    Ok(())
}

/// Takes the address, and reads the certificate.
///
/// # Errors
/// [`Error`] if the address is taken, the certificate or another setting cannot be used, or tokens would be shown in
/// plain HTTP.
pub async fn bind(settings: Settings) -> Result<Bound, Error> {
    let listen = settings.listen;
    if settings.tls.is_none() && !settings.insecure_plain && !listen.ip().is_loopback() {
        return Err(Error::PlainHttp(listen));
    }
    // Fails if it is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let jwt = settings.jwt.clone().map(JwtVerifier::new).transpose()?;
    let tls = settings.tls.as_ref().map(connections::tls_acceptor).transpose()?;
    let listener = TcpListener::bind(listen).await.map_err(|error| Error::Listen(listen, error))?;
    let address = listener.local_addr().map_err(|error| Error::Listen(listen, error))?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let public_url = match &settings.public_url {
        Some(url) => checked_public_url(url)?,
        None => format!("{scheme}://{address}"),
    };
    Ok(Bound { listener, tls, address, public_url, jwt, settings })
}

impl Bound {
    /// The address, with the port that the system chose if the settings left it open.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `end`, and then ends gracefully: it is not ready at once, accepts nothing more, and gives open
    /// requests the time of [`Limits::drain_timeout`].
    pub async fn serve(self, parts: Parts, end: impl Future<Output = ()>) {
        let shared = Arc::new(Shared::new(self.settings, self.public_url, self.jwt, parts));
        let shared = observed(shared).await;
        let router = routes::router(&shared);
        tracing::info!(address = %self.address, tls = self.tls.is_some(), "serving a team");
        connections::serve(self.listener, self.tls, router, Arc::clone(&shared), end).await;
        // While there are numbers to read.
        let _ = tokio::task::spawn_blocking(otlp::send_numbers).await;
        drop(shared);
        tracing::info!("stopped serving");
    }
}

/// Adds the server's numbers to the meter, which may ask the database's side.
async fn observed(shared: Arc<Shared>) -> Arc<Shared> {
    let observing = Arc::clone(&shared);
    // A crash there is logged by the runtime, and the server works without.
    let _ = tokio::task::spawn_blocking(move || otlp::observe(&observing)).await;
    shared
}

fn checked_public_url(url: &str) -> Result<String, Error> {
    let url = reqwest::Url::parse(url).map_err(|_| Error::PublicUrl)?;
    let is_plain = matches!(url.path(), "" | "/") && url.query().is_none() && url.fragment().is_none();
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() || !is_plain {
        return Err(Error::PublicUrl);
    }
    Ok(url.origin().ascii_serialization())
}
