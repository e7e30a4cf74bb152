//! How connections and the server end.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::*;

const SHORT: Duration = Duration::from_millis(200);

#[tokio::test(flavor = "multi_thread")]
async fn open_requests_are_answered_before_the_server_ends() {
    let mut server = TestServer::start().await;
    let waits = question("alpha", ALPHA, "wait").bytes(server.address);
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&waits).await.unwrap();
        streams.push(stream);
    }
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert_eq!(read_response(&mut idle).await.unwrap().status, 200);
    server.memory.waiting(3).await;
    server.end();
    // An idle connection ends, and then nothing is accepted any more.
    assert!(read_response(&mut idle).await.is_none());
    assert!(TcpStream::connect(server.address).await.is_err());
    server.memory.open_gate();
    for mut stream in streams {
        let response = read_response(&mut stream).await.unwrap();
        assert!(response.status == 200 && response.text().contains(ALPHA_MARK), "{response:?}");
    }
    server.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_does_not_end_is_cut_off() {
    let mut settings = settings();
    settings.limits.drain_timeout = SHORT;
    let mut server = TestServer::with(settings).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&question("alpha", ALPHA, "wait").bytes(server.address)).await.unwrap();
    server.memory.waiting(1).await;
    let memory = server.memory.clone();
    server.end();
    let begun = Instant::now();
    server.ended().await;
    assert!((SHORT..SHORT * 10).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    assert!(read_response(&mut stream).await.is_none());
    memory.open_gate();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_the_server() {
    // Not on 127.0.0.1, where other tests take ports at the same time.
    let free = std::net::TcpListener::bind("127.0.89.1:0").unwrap().local_addr().unwrap();
    let other = TestServer::start().await;
    let parts = server::Parts {
        access: other.memory.clone(),
        captures: other.memory.clone(),
        questions: other.memory.clone(),
        health: other.memory.clone(),
    };
    let running = tokio::spawn(server::run(server::Settings::new(free), parts));
    while TcpStream::connect(free).await.is_err() {
        assert!(!running.is_finished(), "{:?}", running.await);
        tokio::task::yield_now().await;
    }
    let pid = std::process::id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    tokio::time::timeout(Duration::from_secs(20), running).await.unwrap().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_clients_lose_their_connection() {
    let mut settings = settings();
    settings.limits.header_timeout = SHORT;
    settings.limits.body_timeout = SHORT;
    let server = TestServer::with(settings).await;
    let upload = hand_over(&capture("slow"), |_| {}).token(ALPHA).bytes(server.address);
    // Nothing, half of the headers, and a whole request whose connection then stays idle.
    for sent in [&b""[..], b"GET /healthz HTT", b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-A: "] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(sent).await.unwrap();
        let begun = Instant::now();
        let response = read_response(&mut stream).await;
        assert!(response.is_none_or(|response| response.status == 408), "{sent:?}");
        assert!((SHORT / 2..SHORT * 20).contains(&begun.elapsed()), "{sent:?}: {:?}", begun.elapsed());
    }
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert_eq!(read_response(&mut stream).await.unwrap().status, 200);
    assert_eq!(stream.read(&mut [0; 9]).await.unwrap_or(0), 0, "an idle connection is closed");

    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&upload[..upload.len() - 5]).await.unwrap();
    let response = read_response(&mut stream).await.unwrap();
    assert_eq!((response.status, response.problem().as_str()), (408, "slow_body"));
    assert_eq!(server.memory.captures(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_loses_its_connection() {
    let mut settings = settings();
    settings.limits.connections_max = 1;
    settings.limits.write_timeout = SHORT;
    let server = TestServer::with(settings).await;
    let mut deaf = TcpStream::connect(server.address).await.unwrap();
    let requests = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000);
    // Until the answers fill the buffers on the way, and the server takes no more.
    while let Ok(Ok(())) = tokio::time::timeout(SHORT, deaf.write_all(&requests)).await {}
    assert_eq!(server.send(&Request::new("GET", "/healthz")).await.status, 200, "its place is free again");
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_capture_is_never_stored() {
    let server = TestServer::start().await;
    let upload = hand_over(&capture("half"), |_| {}).token(ALPHA).bytes(server.address);
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&upload[..upload.len() - 5]).await.unwrap();
    stream.shutdown().await.unwrap();
    let response = read_response(&mut stream).await;
    assert!(response.is_none_or(|response| response.problem() == "broken_body"));
    assert_eq!(server.memory.captures(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_heads_are_refused() {
    let server = TestServer::start().await;
    let large = Request::new("GET", "/healthz").header("X-Large", "x".repeat(17 << 10));
    assert_eq!(server.send(&large).await.status, 431);
    let mut many = Request::new("GET", "/healthz");
    for number in 0..80 {
        many = many.header(&format!("X-{number}"), "x");
    }
    assert_eq!(server.send(&many).await.status, 431);
    let long = Request::new("GET", &format!("/{}", "x".repeat(20 << 10)));
    assert!([414, 431].contains(&server.send(&long).await.status));
}

#[tokio::test(flavor = "multi_thread")]
async fn more_connections_than_allowed_wait() {
    let mut settings = settings();
    settings.limits.connections_max = 1;
    let server = TestServer::with(settings).await;
    let mut first = TcpStream::connect(server.address).await.unwrap();
    first.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert_eq!(read_response(&mut first).await.unwrap().status, 200);
    let mut second = TcpStream::connect(server.address).await.unwrap();
    second.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let early = tokio::time::timeout(SHORT, second.readable()).await;
    assert!(early.is_err(), "the second is not served while the first is open");
    drop(first);
    assert_eq!(read_response(&mut second).await.unwrap().status, 200);
}
