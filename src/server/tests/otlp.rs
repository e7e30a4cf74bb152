//! Traces and metrics arrive at a collector.

use tokio::io::AsyncReadExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tracing::instrument::WithSubscriber as _;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::support::*;

/// In a process of its own, as its variables and its meter are the process's.
#[test]
fn spans_and_numbers_are_sent_to_the_collector() {
    const CHILD: &str = "NUGGET_OTLP_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return child();
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (address, received) = runtime.block_on(collector());
    let name = "otlp::spans_and_numbers_are_sent_to_the_collector";
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let received = received.lock().unwrap().clone();
    let text = String::from_utf8_lossy(&received);
    for sent in [
        "POST /v1/traces",
        "POST /v1/metrics",
        "/mcp/{brain}",
        "nugget_http_requests_total",
        "nugget_step_seconds_total",
        "nugget_queue_jobs",
    ] {
        assert!(text.contains(sent), "{sent}: {text}");
    }
    for secret in [&ALPHA[4..], "private words", ALPHA_MARK] {
        assert!(!text.contains(secret), "{secret}");
    }
}

fn child() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let telemetry = server::Telemetry::from_environment().unwrap().unwrap();
    let subscriber = tracing_subscriber::registry().with(telemetry.layer());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let serving = async {
        let server = TestServer::start().await;
        assert_eq!(server.send(&question("alpha", ALPHA, "private words")).await.status, 200);
        // The span of a request ends a little after its answer.
        server.ended().await;
        tokio::task::spawn_blocking(|| telemetry.shutdown()).await.unwrap();
    };
    runtime.block_on(serving.with_current_subscriber());
}

type Received = std::sync::Arc<std::sync::Mutex<Vec<u8>>>;

/// Takes whatever is sent, and keeps it.
async fn collector() -> (std::net::SocketAddr, Received) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, received) = (listener.local_addr().unwrap(), Received::default());
    let kept = received.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let kept = kept.clone();
            tokio::spawn(async move {
                let mut request = Vec::new();
                while !is_complete(&request) && stream.read_buf(&mut request).await.unwrap_or(0) > 0 {}
                kept.lock().unwrap().extend_from_slice(&request);
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await
            });
        }
    });
    (address, received)
}

/// Whether a request has its whole body.
fn is_complete(request: &[u8]) -> bool {
    let Some(end) = request.windows(4).position(|window| window == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&request[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    request.len() - end - 4 >= length.unwrap_or(0)
}
