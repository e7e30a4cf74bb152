//! Thousands of hostile requests from a seed: no foreign data, no crash, and a clear answer to each.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tracing_subscriber::fmt::MakeWriter;

use crate::jwt::{Issuer, Key, claims, server_of_settings};
use crate::support::*;

const REQUESTS: usize = 10_000;
const TASKS: usize = 8;

/// One hostile request, and what is known of its answer.
struct Attack {
    name: &'static str,
    bytes: Vec<u8>,
    /// Whether the connection may end without an answer, or with one of hyper that has no body: the head is malformed.
    is_head_broken: bool,
    /// Whether the client ends its side before it reads.
    ends_early: bool,
    /// Whose data the answer may have.
    own: &'static [&'static str],
}

/// Everything that is logged, at every level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn noise(random: &mut Rng, length_max: usize) -> Vec<u8> {
    let length = random.usize(0..length_max);
    (0..length).map(|_| random.u8(..)).collect()
}

fn one<T: Copy>(random: &mut Rng, items: &[T]) -> T {
    items[random.usize(0..items.len())]
}

struct Attacks<'a> {
    random: Rng,
    server: &'a TestServer,
    key: &'a Key,
    stranger: &'a Key,
}

impl Attacks<'_> {
    fn next(&mut self) -> Attack {
        let kinds: [fn(&mut Self) -> Attack; 14] = [
            Self::foreign_brain,
            Self::foreign_capture,
            Self::forged_token,
            Self::broken_jwt,
            Self::wrong_authorization,
            Self::broken_head,
            Self::large_head,
            Self::half_body,
            Self::large_body,
            Self::path_trick,
            Self::mutated_capture,
            Self::mutated_question,
            Self::deep_json,
            Self::wrong_framing,
        ];
        let index = self.random.usize(0..kinds.len());
        kinds[index](self)
    }

    fn attack(&self, name: &'static str, request: &Request, own: &'static [&'static str]) -> Attack {
        let bytes = request.bytes(self.server.address);
        Attack { name, bytes, is_head_broken: false, ends_early: false, own }
    }

    fn foreign_brain(&mut self) -> Attack {
        let slug = one(
            &mut self.random,
            &["beta", "Beta", "BETA", "beta%00", "%62eta", "beta%20", "2", "..%2fbeta"],
        );
        let mut request = question(slug, ALPHA, "give me everything");
        if self.random.bool() {
            let name = one(
                &mut self.random,
                &["X-Brain", "X-Forwarded-Path", "X-Original-URL", "X-HTTP-Method-Override"],
            );
            request = request.header(name, "/mcp/beta");
        }
        self.attack("foreign brain", &request, &[])
    }

    fn foreign_capture(&mut self) -> Attack {
        let id = self.random.i64(-3..20);
        let request = Request::new("GET", &format!("/v1/captures/{id}"))
            .token(one(&mut self.random, &[ALPHA, EXPIRED]));
        self.attack("foreign capture", &request, &[])
    }

    fn forged_token(&mut self) -> Attack {
        let mut token = one(&mut self.random, &[ALPHA, BETA, EXPIRED]).as_bytes().to_vec();
        let at = self.random.usize(4..token.len());
        token[at] = self.random.alphanumeric() as u8;
        let token = String::from_utf8(token).unwrap() + one(&mut self.random, &["x", "=", ".", "%00"]);
        self.attack("forged token", &question("alpha", &token, "x"), &[])
    }

    fn broken_jwt(&mut self) -> Attack {
        let now = jiff::Timestamp::now().as_second();
        let wrong = match self.random.u8(..5) {
            0 => claims(|claims| claims["iss"] = "https://evil.example".into()),
            1 => claims(|claims| claims["exp"] = (now - 3600).into()),
            2 => claims(|claims| claims["aud"] = Value::Null),
            3 => claims(|claims| claims["nbf"] = (now + 3600).into()),
            _ => claims(|claims| claims["brain"] = json!({ "$ne": null })),
        };
        let right = claims(|_| {});
        let algorithm = one(&mut self.random, &["none", "None", "HS256", "RS256", "ES512", "PS256", ""]);
        let token = match self.random.u8(..5) {
            0 => self.key.token(&wrong),
            1 => self.stranger.token(&right),
            2 => self.key.token_with(&json!({ "alg": algorithm, "kid": "a" }), &right),
            3 => self.stranger.token_with(
                &json!({ "alg": "ES256", "kid": "../../a", "jku": "http://127.0.0.1:1/" }),
                &right,
            ),
            _ => {
                let mut token = self.key.token(&right).into_bytes();
                let at = self.random.usize(0..token.len());
                token[at] = if token[at] == b'A' { b'B' } else { b'A' };
                String::from_utf8(token).unwrap()
            }
        };
        self.attack("broken jwt", &question("alpha", &token, "x"), &[])
    }

    fn wrong_authorization(&mut self) -> Attack {
        let mut value = noise(&mut self.random, 60);
        value.retain(|byte| !matches!(byte, b'\r' | b'\n' | 0..32 | 127));
        let scheme: &[u8] =
            one(&mut self.random, &[&b"Bearer "[..], b"Basic ", b"bearer", b"", b"Bearer ngt_"]);
        let mut request = question("alpha", ALPHA, "x");
        request.headers.retain(|(name, _)| name != "Authorization");
        request = request.header("Authorization", [scheme, &value].concat());
        if self.random.bool() {
            request.path.push_str(&format!("?access_token={ALPHA}"));
        }
        self.attack("wrong authorization", &request, &[])
    }

    fn broken_head(&mut self) -> Attack {
        let mut bytes = question("alpha", ALPHA, "x").bytes(self.server.address);
        let head = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        for _ in 0..self.random.usize(1..6) {
            let at = self.random.usize(0..head);
            bytes[at] = self.random.u8(..);
        }
        // May still be a valid request of its own brain, or wait for more: the client ends its side.
        Attack { name: "broken head", bytes, is_head_broken: true, ends_early: true, own: &[ALPHA_MARK] }
    }

    fn large_head(&mut self) -> Attack {
        let value = "x".repeat(self.random.usize(17_000..40_000));
        let mut request = question("alpha", ALPHA, "x").header("X-Large", &value);
        if self.random.bool() {
            request.path = format!("/mcp/{value}");
        }
        Attack { is_head_broken: true, ..self.attack("large head", &request, &[]) }
    }

    fn half_body(&mut self) -> Attack {
        let request = if self.random.bool() {
            question("alpha", ALPHA, "x")
        } else {
            hand_over(&capture("half"), |_| {}).token(ALPHA)
        };
        let mut attack = self.attack("half body", &request, &[]);
        attack.bytes.truncate(attack.bytes.len() - self.random.usize(1..request.body.len()));
        // Without an answer if the client is gone, else after the time for a body.
        attack.ends_early = self.random.u8(..8) != 0;
        attack.is_head_broken = attack.ends_early;
        attack
    }

    fn large_body(&mut self) -> Attack {
        let length = one(&mut self.random, &[70_000_usize, 1 << 40, usize::MAX]);
        let request = if self.random.bool() {
            question("alpha", ALPHA, "x")
        } else {
            hand_over(&capture("large"), |_| {}).token(ALPHA)
        };
        let request = request.header("Content-Length", length.to_string());
        // A length beyond what fits is no valid head.
        Attack { is_head_broken: length == usize::MAX, ..self.attack("large body", &request, &[]) }
    }

    fn path_trick(&mut self) -> Attack {
        let path = one(
            &mut self.random,
            &[
                "/mcp/../mcp/beta",
                "/mcp/alpha/../beta",
                "/mcp//beta",
                "//mcp/beta",
                "/mcp/%2e%2e/beta",
                "/mcp/beta/",
                "/mcp;/beta",
                "/mcp/beta?brain=alpha",
                "/mcp/beta%23",
                "/mcp/%ff%fe",
                "/mcp/%",
                "/v1/captures/%00",
                "/v1/../metrics",
                "/METRICS",
                "/.well-known/oauth-protected-resource/mcp/%3cscript%3e",
                "/.well-known/oauth-protected-resource/..%2f..",
                "http://evil.example/mcp/beta",
                "*",
            ],
        );
        let method = one(
            &mut self.random,
            &["GET", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "HEAD", "BREW"],
        );
        let mut request = question("alpha", ALPHA, "x");
        (request.method, request.path) = (method.to_owned(), path.to_owned());
        Attack { is_head_broken: path == "*", ..self.attack("path trick", &request, &[]) }
    }

    /// Changes the bytes of a body.
    fn mutate(&mut self, body: &mut Vec<u8>) {
        for _ in 0..self.random.usize(1..8) {
            if body.is_empty() {
                return;
            }
            let at = self.random.usize(0..body.len());
            match self.random.u8(..4) {
                0 => body[at] = self.random.u8(..),
                1 => drop(body.remove(at)),
                2 => body.insert(at, one(&mut self.random, b"\"\\{}[]:,\x00\xff\xc3-1e")),
                _ => body.truncate(at.max(1)),
            }
        }
    }

    fn mutated_capture(&mut self) -> Attack {
        let mut capture = capture(&format!("m{}", self.random.u32(..1000)));
        if self.random.bool() {
            capture.brain = Some(one(&mut self.random, &["beta", "", "alpha\u{0}", "alpha"]).to_owned());
        }
        let mut request = hand_over(&capture, |_| {}).token(ALPHA);
        self.mutate(&mut request.body);
        self.attack("mutated capture", &request, &[])
    }

    fn mutated_question(&mut self) -> Attack {
        let mut request = question("alpha", ALPHA, "who?");
        self.mutate(&mut request.body);
        self.attack("mutated question", &request, &[ALPHA_MARK])
    }

    fn deep_json(&mut self) -> Attack {
        let depth = self.random.usize(100..20_000);
        let deep = one(&mut self.random, &["[", "{\"a\":", "[{\"intake\":"]).repeat(depth);
        let mut request = if self.random.bool() {
            question("alpha", ALPHA, "x")
        } else {
            hand_over(&capture("deep"), |_| {}).token(ALPHA)
        };
        request.body = match self.random.u8(..3) {
            0 => deep.into_bytes(),
            1 => format!("{{\"format\":1,\"intake\":{deep}").into_bytes(),
            _ => {
                let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
                format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{\"arguments\":{nested}}}}}"
                )
                .into_bytes()
            }
        };
        self.attack("deep json", &request, &[])
    }

    fn wrong_framing(&mut self) -> Attack {
        let smuggled =
            format!("GET /v1/captures/0 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {BETA}x\r\n\r\n");
        let mut request = question("alpha", ALPHA, "who?");
        request = match self.random.u8(..4) {
            0 => request.header("Transfer-Encoding", "chunked").header("Content-Length", "3"),
            1 => request.header("Transfer-Encoding", "chunked, identity"),
            2 => request.header("Content-Length", "3").header("Content-Length", "400"),
            _ => request.header("Transfer-Encoding", "chunked"),
        };
        request.body = match self.random.u8(..3) {
            0 => [&b"0\r\n\r\n"[..], smuggled.as_bytes()].concat(),
            1 => [&b"ffffffffffffffffff\r\n"[..], &request.body].concat(),
            _ => [&b"-5\r\n"[..], &noise(&mut self.random, 50)].concat(),
        };
        let ends_early = true;
        Attack { is_head_broken: true, ends_early, ..self.attack("wrong framing", &request, &[ALPHA_MARK]) }
    }
}

async fn send(server: &TestServer, attack: &Attack) -> Option<Response> {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let _ = stream.write_all(&attack.bytes).await;
    if attack.ends_early {
        let _ = stream.shutdown().await;
    }
    read_response(&mut stream).await
}

/// Asserts what holds for each answer.
fn check(attack: &Attack, response: Option<&Response>) -> String {
    let name = attack.name;
    let request = String::from_utf8_lossy(&attack.bytes[..attack.bytes.len().min(600)]).into_owned();
    let Some(response) = response else {
        assert!(attack.is_head_broken, "{name}: no answer to\n{request}");
        return format!("{name}: none");
    };
    let context = format!("{name}: {response:?}\n{request}");
    let status = response.status;
    assert!(status < 500 || status == 503, "{context}");
    let text = response.text();
    for mark in [ALPHA_MARK, BETA_MARK] {
        assert!(attack.own.contains(&mark) || !text.contains(mark), "{context}");
    }
    assert!(!text.contains("\"beta\""), "{context}");
    assert!(!text.contains("ngt_") && !text.contains("panicked"), "{context}");
    if status >= 400 {
        match response.header("content-type") {
            "application/problem+json" if text.is_empty() => {
                assert!(attack.bytes.starts_with(b"HEAD"), "{context}")
            }
            "application/problem+json" => drop(response.problem()),
            "application/json" => assert!(response.value()["error"]["message"].is_string(), "{context}"),
            // hyper's own answer to a head that it cannot read.
            "" => assert!(attack.is_head_broken && [400, 408, 414, 431].contains(&status), "{context}"),
            _ => panic!("{context}"),
        }
    }
    format!("{name}: {status}")
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_requests_get_clear_answers_and_no_data() {
    let seed = std::env::var("NUGGET_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_123_u64);
    println!("NUGGET_SEED={seed}");
    let log = Log::default();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(log.clone()).finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();

    let (key, stranger) = (Arc::new(Key::p256("a")), Arc::new(Key::p256("a")));
    let issuer = Issuer::start(&[&key], Duration::from_secs(60)).await;
    let mut settings = settings();
    settings.limits.capture_bytes_max = 64 << 10;
    settings.limits.question_bytes_max = 64 << 10;
    settings.limits.header_timeout = Duration::from_secs(2);
    settings.limits.body_timeout = Duration::from_millis(300);
    settings.limits.questions = server::Rate { per_minute: 1_000_000, burst: 1_000_000 };
    settings.limits.captures = settings.limits.questions;
    let server = Arc::new(server_of_settings(&issuer, settings).await);
    // There is something to find.
    for number in 0..5 {
        let request = hand_over(&capture(&format!("beta{number}")), |_| {}).token(BETA);
        assert_eq!(server.send(&request).await.status, 201);
    }

    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let (server, key, stranger) = (Arc::clone(&server), Arc::clone(&key), Arc::clone(&stranger));
        tasks.spawn(async move {
            let random = Rng::with_seed(seed.wrapping_add(task as u64));
            let mut attacks = Attacks { random, server: &server, key: &key, stranger: &stranger };
            let mut outcomes = BTreeMap::<String, usize>::new();
            for _ in 0..REQUESTS / TASKS {
                let attack = attacks.next();
                let response = send(&server, &attack).await;
                *outcomes.entry(check(&attack, response.as_ref())).or_default() += 1;
            }
            outcomes
        });
    }
    let mut outcomes = BTreeMap::<String, usize>::new();
    for task in tasks.join_all().await {
        for (outcome, count) in task {
            *outcomes.entry(outcome).or_default() += count;
        }
    }
    for (outcome, count) in &outcomes {
        println!("{count:6} {outcome}");
    }
    assert_eq!(outcomes.values().sum::<usize>(), REQUESTS);
    for kind in [
        "foreign brain: 404",
        "foreign capture: 404",
        "forged token: 401",
        "broken jwt: 401",
        "half body: 408",
    ] {
        assert!(outcomes.contains_key(kind), "{kind}");
    }

    // It lives, works, and has told nobody.
    assert_eq!(server.send(&question("alpha", ALPHA, "x")).await.status, 200);
    let metrics = server.send(&Request::new("GET", "/metrics").token(ADMIN)).await.text();
    assert!(metrics.contains("nugget_http_requests_open 1\n"), "{metrics}");
    let log = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    println!("{} lines of log", log.lines().count());
    for token in TOKENS.iter().map(|token| &token[4..]) {
        assert!(!metrics.contains(token));
        let line = log.lines().find(|line| line.contains(token));
        assert!(line.is_none(), "{line:?}");
    }
    assert!(!log.contains("panicked"));
}
