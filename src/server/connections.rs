//! Accepts connections, with TLS or without, and ends them gracefully.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;

use crate::Error;
use crate::settings::{Limits, TlsFiles};
use crate::shared::Shared;

/// The wait after the system could not accept a connection: it has no free file descriptor.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Reads the certificate and its key.
pub(crate) fn tls_acceptor(files: &TlsFiles) -> Result<TlsAcceptor, Error> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        |error: rustls::pki_types::pem::Error| Error::TlsFile { path, source: Box::new(error) }
    };
    let chain = CertificateDer::pem_file_iter(&files.certificate).map_err(unreadable(&files.certificate))?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(unreadable(&files.certificate))?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(unreadable(&files.key))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let unusable = |error: rustls::Error| Error::Certificate(Box::new(error));
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(unusable)?.with_no_client_auth().with_single_cert(chain, key);
    let mut config = config.map_err(unusable)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Serves until `end`, then lets the open requests end within the limit.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    shared: Arc<Shared>,
    end: impl Future<Output = ()>,
) {
    let graceful = GracefulShutdown::new();
    let connections = Arc::new(Semaphore::new(shared.settings.limits.connections_max));
    let mut tasks = JoinSet::new();
    let mut end = std::pin::pin!(end);
    loop {
        let accepting = async {
            // Never closed.
            let place = Arc::clone(&connections).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            () = &mut end => break,
            accepted = accepting => accepted,
            Some(_) = tasks.join_next() => continue,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection = Connection {
                    router: router.clone(),
                    limits: shared.settings.limits.clone(),
                    tls: tls.clone(),
                    watcher: graceful.watcher(),
                    open: Open::new(&shared),
                };
                tasks.spawn(async move {
                    connection.serve(stream).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
    // In this order: whoever asks whether the server is ready must not be told so while nothing is accepted.
    shared.is_draining.store(true, Ordering::Release);
    drop(listener);
    tracing::info!(connections = tasks.len(), "ending: no new connections");
    let limit = shared.settings.limits.drain_timeout;
    if tokio::time::timeout(limit, graceful.shutdown()).await.is_err() {
        tracing::warn!(connections = tasks.len(), "requests did not end in time and are cut off");
    }
    tasks.shutdown().await;
}

/// Counts a connection as long as it is open.
struct Open(Arc<Shared>);

impl Open {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.connections.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(shared))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Connection {
    router: Router,
    limits: Limits,
    tls: Option<TlsAcceptor>,
    watcher: Watcher,
    open: Open,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        // Answers are small and written at once.
        let _ = stream.set_nodelay(true);
        let Some(tls) = self.tls.clone() else { return self.serve_http(stream).await };
        match tokio::time::timeout(self.limits.header_timeout, tls.accept(stream)).await {
            Ok(Ok(stream)) => self.serve_http(stream).await,
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => tracing::debug!("a TLS handshake took too long"),
        }
    }

    async fn serve_http(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.limits.header_timeout)
            .max_header_size(self.limits.header_bytes_max)
            .max_headers(self.limits.headers_max);
        // hyper bounds the time to read, but not to write: a client that sends and never reads would stay.
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(self.limits.write_timeout));
        let serving =
            http.serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(self.router));
        if let Err(error) = self.watcher.watch(serving).await {
            tracing::debug!(%error, "a connection ended early");
        }
        drop(self.open);
    }
}
