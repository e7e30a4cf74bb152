//! Each status that the server answers with, and when.

use std::time::Duration;

use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWriteExt as _;

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_capture_is_new_once_and_known_ever_after() {
    let server = TestServer::start().await;
    let request = hand_over(&capture("s1"), |_| {}).token(ALPHA);
    let first = server.send(&request).await;
    assert_eq!(first.status, 201, "{first:?}");
    assert_eq!(first.value(), json!({ "id": 0, "brain": "alpha", "state": "extraction", "new": true }));
    let second = server.send(&request).await;
    assert_eq!((second.status, &second.value()["new"]), (200, &json!(false)));
    assert_eq!(server.memory.captures(), 1);
    let found = server.send(&Request::new("GET", first.header("location")).token(ALPHA)).await;
    assert_eq!(found.value(), json!({ "id": 0, "brain": "alpha", "state": "extraction" }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_faulty_capture_gets_its_status_and_a_sentence() {
    let server = TestServer::start().await;
    let check = async |request: Request, status: u16, code: &str| {
        let response = server.send(&request).await;
        assert_eq!((response.status, response.problem().as_str()), (status, code), "{response:?}");
    };
    let valid = capture("s2");
    let with =
        |change: fn(&mut serde_json::Map<String, serde_json::Value>)| hand_over(&valid, change).token(ALPHA);
    let set = |name: &'static str, value: serde_json::Value| {
        hand_over(&valid, |body| drop(body.insert(name.to_owned(), value))).token(ALPHA)
    };
    check(hand_over(&valid, |_| {}), 401, "missing_token").await;
    check(hand_over(&valid, |_| {}).token("ngt_unknown"), 401, "invalid_token").await;
    check(hand_over(&valid, |_| {}).token(REVOKED), 401, "revoked_token").await;
    check(hand_over(&valid, |_| {}).token(EXPIRED), 401, "expired_token").await;
    check(hand_over(&valid, |_| {}).token(ADMIN), 403, "missing_scope").await;
    check(set("brain", json!("beta")), 404, "unknown_brain").await;
    check(set("project", json!("conflict")), 409, "conflict").await;
    check(set("project", json!("unacceptable")), 422, "invalid_capture").await;
    check(set("project", json!("removed")), 404, "unknown_brain").await;
    check(set("project", json!("crash")), 503, "crashed").await;
    check(set("format", json!(2)), 422, "invalid_capture").await;
    check(set("session", json!("other")), 422, "invalid_capture").await;
    check(set("blake3", json!("00")), 422, "invalid_capture").await;
    check(with(|body| drop(body.remove("ended"))), 422, "invalid_capture").await;
    check(hand_over(&valid, |_| {}).token(BOTH), 422, "invalid_capture").await;
    let mut request = with(|_| {});
    request.path = "/v1/captures/7".to_owned();
    check(request, 400, "malformed_key").await;
    let mut request = with(|_| {});
    request.body = b"{\"format\": 1, \xff".to_vec();
    check(request.clone(), 400, "malformed_json").await;
    request.headers[0].1 = b"text/plain".to_vec();
    check(request, 415, "unsupported_type").await;
    check(with(|_| {}).header("Content-Encoding", "gzip"), 415, "unsupported_coding").await;
    check(with(|_| {}).header("Content-Length", "99999999"), 413, "too_large").await;
    check(with(|_| {}).header("Content-Digest", "sha-256=:AAAA:"), 400, "wrong_digest").await;
    check(with(|_| {}).header("Content-Digest", "sha-256=AAAA"), 400, "malformed_digest").await;
    server.memory.is_down.store(true, std::sync::atomic::Ordering::Relaxed);
    check(with(|_| {}), 503, "unavailable").await;
    assert_eq!(server.send(&with(|_| {})).await.header("retry-after"), "3");
    assert_eq!(server.memory.captures(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_content_digest_is_checked() {
    use base64::Engine as _;
    let server = TestServer::start().await;
    let request = hand_over(&capture("s3"), |_| {}).token(ALPHA);
    let digest = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(&request.body));
    let response =
        server.send(&request.header("Content-Digest", format!("sha-256=:{digest}:, md5=:AA==:"))).await;
    assert_eq!(response.status, 201, "{response:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunked_body_is_cut_at_the_limit() {
    let mut settings = settings();
    settings.limits.capture_bytes_max = 4096;
    let server = TestServer::with(settings).await;
    let mut request = hand_over(&capture("s4"), |_| {}).token(ALPHA).header("Transfer-Encoding", "chunked");
    request.body = [b"1400\r\n".to_vec(), vec![b' '; 0x1400], b"\r\n0\r\n\r\n".to_vec()].concat();
    let response = server.send(&request).await;
    assert_eq!((response.status, response.problem().as_str()), (413, "too_large"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_upload_of_16_mib_gets_its_answer() {
    let server = TestServer::start().await;
    let mut request = hand_over(&capture("s5"), |_| {}).token("ngt_unknown");
    request.body = vec![b' '; 16 << 20];
    // A client that sends all before it reads must not find the connection closed on it.
    let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&request.bytes(server.address)).await.unwrap();
    assert_eq!(read_response(&mut stream).await.unwrap().problem(), "invalid_token");
}

#[tokio::test(flavor = "multi_thread")]
async fn captures_of_other_brains_do_not_exist() {
    let server = TestServer::start().await;
    let created = server.send(&hand_over(&capture("s6"), |_| {}).token(BETA)).await;
    assert_eq!(created.status, 201);
    let foreign = server.send(&Request::new("GET", "/v1/captures/0").token(ALPHA)).await;
    let unknown = server.send(&Request::new("GET", "/v1/captures/99").token(ALPHA)).await;
    assert_eq!((foreign.status, foreign.problem().as_str()), (404, "unknown_capture"));
    assert_eq!(foreign.body, unknown.body);
    for path in
        ["/v1/captures/-1", "/v1/captures/99999999999999999999", "/v1/captures/%ff", "/v1/captures/a%2fb"]
    {
        assert_eq!(server.send(&Request::new("GET", path).token(ALPHA)).await.body, unknown.body, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_brain_and_an_unknown_one_are_the_same() {
    let server = TestServer::start().await;
    let foreign = server.send(&question("beta", ALPHA, "x")).await;
    let unknown = server.send(&question("gamma", ALPHA, "x")).await;
    assert_eq!((foreign.status, foreign.problem().as_str()), (404, "unknown_brain"));
    assert_eq!(foreign.body, unknown.body);
    let audit = server.memory.audit.lock().unwrap();
    assert!(audit.iter().all(|event| event.action == server::Action::Refused && event.brain.is_none()));
    assert_eq!(audit.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_answered_from_the_tokens_brain() {
    let server = TestServer::start().await;
    for (brain, token, mark) in [
        ("alpha", ALPHA, ALPHA_MARK),
        ("", ALPHA, ALPHA_MARK),
        ("beta", BOTH, BETA_MARK),
        ("alpha", BOTH, ALPHA_MARK),
    ] {
        let response = server.send(&question(brain, token, "who?")).await;
        assert_eq!(response.status, 200, "{response:?}");
        let result = &response.value()["result"];
        assert_eq!(result["content"][0]["text"], format!("{mark}: who?"), "{response:?}");
        assert_eq!(result["isError"], false);
    }
    assert_eq!(server.send(&question("", BOTH, "x")).await.problem(), "brain_not_named");
    assert_eq!(server.send(&question("alpha", ADMIN, "x")).await.problem(), "missing_scope");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_fails_is_an_error_of_the_tool() {
    let server = TestServer::start().await;
    for (text, sentence) in [
        ("not ready", "the brain is being indexed"),
        ("crash", "the brain could not be searched: the request could not be worked on; ask again later"),
    ] {
        let response = server.send(&question("alpha", ALPHA, text)).await;
        let result = &response.value()["result"];
        assert_eq!((&result["isError"], &result["content"][0]["text"]), (&json!(true), &json!(sentence)));
    }
    let wrong = server.send(&question("alpha", ALPHA, "  ")).await.value();
    assert_eq!(wrong["error"]["code"], -32602);
    assert_eq!(wrong["error"]["message"], "`task_description` is empty: say what you are about to do");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_message_is_an_error_of_json_rpc() {
    let server = TestServer::start().await;
    let check = async |body: &str, status: u16, code: i64| {
        let response = server.send(&mcp_request("/mcp", body).token(ALPHA)).await;
        assert_eq!(response.status, status, "{body}: {response:?}");
        assert_eq!(response.value()["error"]["code"], code, "{body}: {response:?}");
    };
    check("", 400, -32600).await;
    check("{", 400, -32700).await;
    check(&"[".repeat(100_000), 400, -32700).await;
    check("[]", 400, -32600).await;
    check(
        r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]"#,
        400,
        -32600,
    )
    .await;
    check(r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, 400, -32600).await;
    check(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[1]}"#, 200, -32602).await;
    check(r#"{"jsonrpc":"2.0","id":1,"method":"no/such"}"#, 200, -32601).await;
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(server.send(&mcp_request("/mcp", notification).token(ALPHA)).await.status, 202);
}

#[tokio::test(flavor = "multi_thread")]
async fn both_kinds_of_revisions_are_spoken() {
    let server = TestServer::start().await;
    for version in ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"] {
        let initialize = json!({ "jsonrpc": "2.0", "id": "a", "method": "initialize", "params": {
            "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "test", "version": "1" },
        } });
        let mut request = mcp_request("/mcp", initialize).token(ALPHA);
        request.headers.retain(|(name, _)| name != "MCP-Protocol-Version");
        let response = server.send(&request).await.value();
        assert_eq!(response["result"]["protocolVersion"], version, "{response}");
        let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
        let mut request = mcp_request("/mcp", list).token(ALPHA);
        request.headers.iter_mut().filter(|(name, _)| name == "MCP-Protocol-Version").for_each(|header| {
            header.1 = version.as_bytes().to_vec();
        });
        let response = server.send(&request).await.value();
        assert_eq!(response["result"]["tools"][0]["name"], "get_relevant_context", "{response}");
    }
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    for method in ["server/discover", "tools/list"] {
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": { "_meta": meta } });
        let mut request = mcp_request("/mcp", message).token(ALPHA).header("Mcp-Method", method);
        request.headers.iter_mut().filter(|(name, _)| name == "MCP-Protocol-Version").for_each(|header| {
            header.1 = b"2026-07-28".to_vec();
        });
        let response = server.send(&request).await;
        assert!(response.value()["result"].is_object(), "{method}: {response:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_host_or_origin_is_refused() {
    let server = TestServer::start().await;
    let port = server.address.port();
    let check = async |name: &str, value: &str, status: u16| {
        let response = server.send(&question("alpha", ALPHA, "x").header(name, value)).await;
        assert_eq!(response.status, status, "{name}: {value}: {response:?}");
    };
    check("Host", "evil.example", 403).await;
    let foreign = server.send(&question("alpha", ALPHA, "x").header("Host", "evil.example")).await;
    assert!(foreign.value()["hint"].as_str().unwrap().contains("--public-url"), "{foreign:?}");
    check("Host", &format!("localhost:{port}"), 200).await;
    check("Origin", "https://evil.example", 403).await;
    check("Origin", "null", 403).await;
    check("Origin", &format!("http://localhost:{port}"), 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_public_server_takes_no_origin_that_it_was_not_told() {
    let mut settings = server::Settings::new(([0, 0, 0, 0], 0).into());
    settings.insecure_plain = true;
    settings.public_url = Some("https://brains.example".to_owned());
    let mut server = TestServer::with(settings).await;
    server.address.set_ip([127, 0, 0, 1].into());
    let status = async |origin: &str| {
        let request = question("alpha", ALPHA, "x").header("Host", "brains.example").header("Origin", origin);
        server.send(&request).await.status
    };
    assert_eq!(status("https://evil.example").await, 403);
    assert_eq!(status("http://localhost").await, 403);
}

/// Who logs in hears of it, and not only whose questions are not answered. What is handed over is taken.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_the_server_was_not_told_is_refused_at_the_login() {
    let server = TestServer::start().await;
    let whoami = async |host: &str| {
        let mut request = Request::new("GET", "/v1/whoami").token(ALPHA);
        if !host.is_empty() {
            request = request.header("Host", host);
        }
        server.send(&request).await
    };
    for host in ["", "localhost:1", "[::1]", "LOCALHOST"] {
        assert_eq!(whoami(host).await.status, 200, "{host}");
    }
    let refused = whoami("brains.example").await;
    assert_eq!((refused.status, refused.problem().as_str()), (403, "wrong_host"));
    assert!(refused.value()["hint"].as_str().unwrap().contains("--public-url"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_methods_and_paths_are_refused_in_the_same_form() {
    let server = TestServer::start().await;
    let get = server.send(&Request::new("GET", "/mcp").token(ALPHA)).await;
    assert_eq!((get.status, get.header("allow")), (405, "POST"));
    get.problem();
    let post = server.send(&Request::new("POST", "/v1/whoami").token(ALPHA)).await;
    assert_eq!(
        (post.status, post.problem().as_str(), post.header("allow")),
        (405, "wrong_method", "GET,HEAD")
    );
    assert_eq!(server.send(&Request::new("GET", "/../etc/passwd")).await.problem(), "unknown_path");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_token_names_the_metadata() {
    let server = TestServer::start().await;
    let origin = server.url("");
    let metadata = "/.well-known/oauth-protected-resource";
    let mut request = question("alpha", ALPHA, "x");
    request.headers.retain(|(name, _)| name != "Authorization");
    let response = server.send(&request).await;
    let expected = format!("Bearer resource_metadata=\"{origin}{metadata}/mcp/alpha\"");
    assert_eq!((response.status, response.header("www-authenticate")), (401, expected.as_str()));
    let response = server.send(&Request::new("GET", "/v1/whoami").token("x")).await;
    let expected = format!("Bearer resource_metadata=\"{origin}{metadata}\", error=\"invalid_token\"");
    assert_eq!((response.status, response.header("www-authenticate")), (401, expected.as_str()));

    for (path, status) in
        [("", 200), ("/mcp", 200), ("/mcp/any", 200), ("/mcp/a/b", 404), ("/v1", 404), ("/mcp/%22", 404)]
    {
        let response = server.send(&Request::new("GET", &format!("{metadata}{path}"))).await;
        assert_eq!(response.status, status, "{path}: {response:?}");
        if status == 200 {
            let document = response.value();
            assert_eq!(document["resource"], format!("{origin}{path}"));
            assert_eq!(document["scopes_supported"], json!(["read", "capture", "admin"]));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoami_tells_what_a_token_may_do() {
    let server = TestServer::start().await;
    let response = server.send(&Request::new("GET", "/v1/whoami").token(BOTH)).await;
    let expected = json!({
        "subject": "both", "brains": ["alpha", "beta"], "scopes": ["read", "capture"], "expires": null,
        "repositories": [
            { "brain": "alpha", "remote": "https://git.example.com/alpha", "commit": null },
            { "brain": "beta", "remote": "https://git.example.com/beta", "commit": null },
        ],
    });
    assert_eq!(response.value(), expected);
    for value in ["Basic YTpi", "Bearer", "Bearer ", "Bearer a b", "bearer \u{e9}", "Bearer ngt_\u{1}"] {
        let response = server.send(&Request::new("GET", "/v1/whoami").header("Authorization", value)).await;
        assert!([400, 401].contains(&response.status), "{value}: {response:?}");
    }
    let twice = Request::new("GET", "/v1/whoami").token(ALPHA).token(BETA);
    assert_eq!(server.send(&twice).await.problem(), "invalid_token");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_token_has_its_own_rate() {
    let mut settings = settings();
    settings.limits.questions = server::Rate { per_minute: 1, burst: 2 };
    let server = TestServer::with(settings).await;
    let status = async |token: &str| server.send(&question("alpha", token, "x")).await.status;
    assert_eq!([status(ALPHA).await, status(ALPHA).await, status(ALPHA).await], [200, 200, 429]);
    assert_eq!(status(BOTH).await, 200);
    let limited = server.send(&question("alpha", ALPHA, "x")).await;
    assert_eq!(limited.problem(), "rate_limited");
    assert!((55..=60).contains(&limited.header("retry-after").parse::<u64>().unwrap()));
    assert_eq!(
        server.send(&hand_over(&capture("s7"), |_| {}).token(ALPHA)).await.status,
        201,
        "counted apart"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_says_so_and_stays_alive() {
    let mut settings = settings();
    settings.limits.requests_max = 2;
    let server = TestServer::with(settings).await;
    let waits = question("alpha", ALPHA, "wait");
    let (one, two, refused) = tokio::join!(server.send(&waits), server.send(&waits), async {
        server.memory.waiting(2).await;
        let refused = server.send(&question("alpha", ALPHA, "x")).await;
        assert_eq!(server.send(&Request::new("GET", "/healthz")).await.status, 200);
        assert_eq!(server.send(&Request::new("GET", "/readyz")).await.status, 200);
        server.memory.open_gate();
        refused
    });
    assert_eq!((refused.status, refused.problem().as_str()), (503, "busy"));
    assert_eq!((one.status, two.status), (200, 200));
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_calls_do_not_pile_up() {
    let mut settings = settings();
    settings.limits.calls_max = 1;
    settings.limits.call_timeout = Duration::from_millis(200);
    let server = TestServer::with(settings).await;
    let slow = server.send(&question("alpha", ALPHA, "wait")).await.value();
    assert_eq!(slow["result"]["isError"], true, "{slow}");
    // The only place is still taken: this fails at its token already, and no second call waits.
    let next = server.send(&question("alpha", ALPHA, "x")).await;
    assert_eq!((next.status, next.problem().as_str()), (503, "too_slow"));
    server.memory.open_gate();
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_have_a_bounded_memory() {
    let mut settings = settings();
    settings.limits.body_bytes_in_flight_max = 2048;
    let server = TestServer::with(settings).await;
    let request = hand_over(&capture("s8"), |body| drop(body.insert("more".into(), "x".repeat(4096).into())));
    let response = server.send(&request.token(ALPHA)).await;
    assert_eq!((response.status, response.problem().as_str()), (503, "no_memory"));
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_of_one_token_leave_memory_for_others() {
    let mut settings = settings();
    settings.limits.body_bytes_in_flight_max = 64 << 10;
    settings.limits.capture_bytes_max = 16 << 10;
    let server = TestServer::with(settings).await;
    let stalled = async |session: &str| {
        let request = hand_over(&capture(session), |_| {}).token(ALPHA).header("Content-Length", "16384");
        let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&request.bytes(server.address)).await.unwrap();
        stream
    };
    let _first = stalled("first").await;
    let begun = std::time::Instant::now();
    let metrics = Request::new("GET", "/metrics").token(ADMIN);
    while !server.send(&metrics).await.text().contains("nugget_http_body_bytes_reserved 16384\n") {
        assert!(begun.elapsed() < Duration::from_secs(20), "the first body is not waited for");
    }
    for session in ["second", "third", "fourth"] {
        let refused = read_response(&mut stalled(session).await).await.unwrap();
        assert_eq!((refused.status, refused.problem().as_str()), (503, "no_memory"));
    }
    assert_eq!(server.send(&hand_over(&capture("s10"), |_| {}).token(BETA)).await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_has_its_memory_until_the_capture_is_stored() {
    let server = TestServer::start().await;
    let request = hand_over(&capture("s11"), |body| drop(body.insert("project".into(), "wait".into())));
    let request = request.token(ALPHA);
    let reserved = async || {
        let metrics = server.send(&Request::new("GET", "/metrics").token(ADMIN)).await.text();
        !metrics.contains("nugget_http_body_bytes_reserved 0\n")
    };
    let (stored, is_reserved) = tokio::join!(server.send(&request), async {
        server.memory.waiting(1).await;
        let is_reserved = reserved().await;
        server.memory.open_gate();
        is_reserved
    });
    assert_eq!((stored.status, is_reserved), (201, true));
    assert!(!reserved().await, "it is given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_need_the_scope_admin_and_have_no_texts() {
    let server = TestServer::start().await;
    server.send(&hand_over(&capture("s9"), |_| {}).token(ALPHA)).await;
    server.send(&question("beta", ALPHA, "private words")).await;
    server.send(&question("alpha", ALPHA, "private words")).await;
    assert_eq!(server.send(&Request::new("GET", "/metrics")).await.status, 401);
    assert_eq!(server.send(&Request::new("GET", "/metrics").token(ALPHA)).await.status, 403);
    let text = server.send(&Request::new("GET", "/metrics").token(ADMIN)).await.text();
    for line in [
        "nugget_http_requests_total{route=\"/v1/captures/{key}\",status=\"201\"} 1",
        "nugget_http_requests_total{route=\"/mcp/{brain}\",status=\"404\"} 1",
        "nugget_http_refused_total{reason=\"unknown_brain\"} 1",
        "nugget_queue_jobs{stage=\"extraction\"} 1",
        "nugget_step_seconds_count{step=\"question\"} 1",
        "nugget_http_requests_open 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    for secret in ["alpha", "beta", "ngt_", "private", "s9", "MARK"] {
        assert!(!text.contains(secret), "{secret}\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_follows_the_database() {
    let server = TestServer::start().await;
    assert_eq!(server.send(&Request::new("GET", "/readyz")).await.text(), "ready\n");
    server.memory.is_down.store(true, std::sync::atomic::Ordering::Relaxed);
    let begun = std::time::Instant::now();
    // An answer holds for a moment.
    let not_ready = loop {
        let response = server.send(&Request::new("GET", "/readyz")).await;
        if response.status != 200 {
            break response;
        }
        assert!(begun.elapsed() < Duration::from_secs(20));
    };
    assert_eq!((not_ready.status, not_ready.problem().as_str()), (503, "not_ready"));
    assert_eq!(server.send(&Request::new("GET", "/healthz")).await.text(), "ok\n");
    assert_eq!(server.send(&question("alpha", ALPHA, "x")).await.status, 503);
}

#[tokio::test]
async fn plain_http_is_for_this_machine_only() {
    let mut settings = server::Settings::new(([0, 0, 0, 0], 0).into());
    assert!(matches!(server::bind(settings.clone()).await, Err(server::Error::PlainHttp(_))));
    settings.insecure_plain = true;
    assert!(server::bind(settings.clone()).await.is_ok());
    for url in ["ftp://a", "https://a/path", "a", "https://a?b"] {
        settings.public_url = Some(url.to_owned());
        assert!(matches!(server::bind(settings.clone()).await, Err(server::Error::PublicUrl)), "{url}");
    }
}
