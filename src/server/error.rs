//! Why the server cannot start.

use std::error::Error as StdError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Plain HTTP would show tokens to everyone on the way.
    #[error("plain HTTP is served on this machine only: {0} is another address, and there is no certificate")]
    PlainHttp(SocketAddr),
    /// The address cannot be listened on.
    #[error("{0} cannot be listened on")]
    Listen(SocketAddr, #[source] io::Error),
    /// The file of the certificate or of its key cannot be read, or is not PEM.
    #[error("{path} cannot be read as PEM")]
    TlsFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The certificate and its key do not fit, or cannot be used.
    #[error("the certificate and its key cannot be used")]
    Certificate(#[source] Box<dyn StdError + Send + Sync>),
    /// The public address is not one.
    #[error("the public address must be http or https with a host, and without a path")]
    PublicUrl,
    /// The address of the issuer's keys is not one.
    #[error("the address of the issuer's keys must be an https URL")]
    JwksUrl,
    /// The HTTP client for the issuer's keys cannot be set up.
    #[error("the HTTP client cannot be set up")]
    Client(#[source] reqwest::Error),
    /// The environment's settings of OpenTelemetry cannot be used.
    #[error("the settings of OpenTelemetry cannot be used")]
    Telemetry(#[source] Box<dyn StdError + Send + Sync>),
    /// Signals cannot be received.
    #[error("signals cannot be received")]
    Signal(#[source] io::Error),
}
