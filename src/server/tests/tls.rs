//! TLS with a certificate from files.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use server::{Error, TlsFiles};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::support::*;

/// Writes a new certificate for this machine, and its key.
fn certificate(folder: &Path, name: &str) -> (TlsFiles, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let files = TlsFiles {
        certificate: folder.join(format!("{name}.pem")),
        key: folder.join(format!("{name}-key.pem")),
    };
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    (files, made.cert.der().clone())
}

fn connector(root: Option<CertificateDer<'static>>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    root.into_iter().for_each(|root| roots.add(root).unwrap());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsConnector::from(Arc::new(config))
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_answered_over_tls_and_only_so() {
    let folder = tempfile::tempdir().unwrap();
    let (files, root) = certificate(folder.path(), "a");
    let mut settings = settings();
    settings.tls = Some(files);
    let server = TestServer::with(settings).await;
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TcpStream::connect(server.address).await.unwrap();
    let mut stream = connector(Some(root)).connect(name.clone(), stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    stream.write_all(&question("alpha", ALPHA, "x").bytes(server.address)).await.unwrap();
    assert_eq!(read_response(&mut stream).await.unwrap().status, 200);

    let stranger = TcpStream::connect(server.address).await.unwrap();
    assert!(connector(None).connect(name, stranger).await.is_err(), "the certificate is checked");
    let mut plain = TcpStream::connect(server.address).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert!(read_response(&mut plain).await.is_none());
    server.ended().await;
}

#[tokio::test]
async fn a_certificate_must_be_there_and_fit_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let ((one, _), (other, _)) = (certificate(folder.path(), "a"), certificate(folder.path(), "b"));
    let missing = TlsFiles { certificate: folder.path().join("none.pem"), key: one.key.clone() };
    let mixed = TlsFiles { certificate: one.certificate.clone(), key: other.key };
    let swapped = TlsFiles { certificate: one.key, key: one.certificate };
    let none = missing.certificate.clone();
    let mut errors = Vec::new();
    for files in [missing, swapped, mixed] {
        let mut settings = settings();
        settings.tls = Some(files);
        errors.extend(server::bind(settings).await.err());
    }
    let [Error::TlsFile { path, .. }, Error::TlsFile { .. }, Error::Certificate(_)] = &errors[..] else {
        panic!("{errors:?}")
    };
    assert_eq!(*path, none);
}
