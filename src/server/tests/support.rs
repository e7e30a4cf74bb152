//! A server in this process, its parts in memory, and the ways to talk to it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use server::*;
use team_client::{Capture, CaptureKey, ShownUnit, TeamAnswer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Tokens: of brain `alpha`, of `beta`, of both, without a scope, an expired and a revoked one.
pub(crate) const ALPHA: &str = "ngt_alpha0123456789abcdef";
pub(crate) const BETA: &str = "ngt_beta0123456789abcdef";
pub(crate) const BOTH: &str = "ngt_both0123456789abcdef";
pub(crate) const ADMIN: &str = "ngt_admin0123456789abcdef";
pub(crate) const EXPIRED: &str = "ngt_expired0123456789abcdef";
pub(crate) const REVOKED: &str = "ngt_revoked0123456789abcdef";
pub(crate) const TOKENS: [&str; 5] = [ALPHA, BETA, BOTH, ADMIN, EXPIRED];

/// In what a brain answers, and in nothing else.
pub(crate) const ALPHA_MARK: &str = "MARK-OF-ALPHA";
pub(crate) const BETA_MARK: &str = "MARK-OF-BETA";

#[derive(Default)]
pub(crate) struct Memory {
    tokens: HashMap<[u8; 32], Identity>,
    captures: Mutex<Vec<(i32, NewCapture)>>,
    pub(crate) audit: Mutex<Vec<AuditEvent>>,
    pub(crate) is_down: AtomicBool,
    /// Whether calls that wait may go on, and how many wait.
    gate: Mutex<(bool, usize)>,
    changed: Condvar,
}

fn unavailable() -> Unavailable {
    Unavailable { what: "the database".to_owned(), retry_after: Duration::from_millis(2500), source: None }
}

impl Memory {
    fn new() -> Self {
        let brain = |id, slug: &str| Brain { id: BrainId(id), slug: slug.to_owned() };
        let (alpha, beta) = (brain(1, "alpha"), brain(2, "beta"));
        let mut memory = Self::default();
        let mut add = |token: &str, brains: &[&Brain], scopes: &[Scope], expires: Option<Timestamp>| {
            let brains = brains.iter().map(|brain| (*brain).clone()).collect();
            let subject = token[4..8].to_owned();
            let identity = Identity { subject, brains, scopes: scopes.to_vec(), expires };
            memory.tokens.insert(TokenHash::from_token(token).0, identity);
        };
        add(ALPHA, &[&alpha], &[Scope::Read, Scope::Capture], None);
        add(BETA, &[&beta], &[Scope::Read, Scope::Capture], None);
        add(BOTH, &[&alpha, &beta], &[Scope::Read, Scope::Capture], None);
        add(ADMIN, &[&alpha], &[Scope::Admin], None);
        add(EXPIRED, &[&alpha, &beta], &Scope::ALL, Some(Timestamp::UNIX_EPOCH));
        memory
    }

    fn check(&self) -> Result<(), Unavailable> {
        if self.is_down.load(Ordering::Relaxed) { Err(unavailable()) } else { Ok(()) }
    }

    fn wait(&self) {
        let mut gate = self.gate.lock().unwrap();
        gate.1 += 1;
        self.changed.notify_all();
        let (mut gate, _) =
            self.changed.wait_timeout_while(gate, Duration::from_secs(20), |gate| !gate.0).unwrap();
        gate.1 -= 1;
    }

    /// Blocks until so many calls wait.
    pub(crate) async fn waiting(self: &Arc<Self>, count: usize) {
        let this = Arc::clone(self);
        let waiting = move || {
            let gate = this.gate.lock().unwrap();
            let timeout = Duration::from_secs(20);
            drop(this.changed.wait_timeout_while(gate, timeout, |gate| gate.1 < count).unwrap());
        };
        tokio::task::spawn_blocking(waiting).await.unwrap();
    }

    pub(crate) fn open_gate(&self) {
        self.gate.lock().unwrap().0 = true;
        self.changed.notify_all();
    }

    pub(crate) fn captures(&self) -> usize {
        self.captures.lock().unwrap().len()
    }
}

impl Access for Memory {
    fn find_token(&self, hash: &TokenHash) -> Result<Option<FoundToken>, Unavailable> {
        self.check()?;
        for (token, found) in [(REVOKED, FoundToken::Revoked), (EXPIRED, FoundToken::Expired)] {
            if *hash == TokenHash::from_token(token) {
                return Ok(Some(found));
            }
        }
        Ok(self.tokens.get(&hash.0).cloned().map(FoundToken::Valid))
    }

    fn find_claims(&self, claims: &Claims) -> Result<Option<Identity>, Unavailable> {
        self.check()?;
        let brain = claims.all.get("brain").and_then(Value::as_str);
        let (id, slug) = match brain {
            Some("alpha") => (1, "alpha"),
            Some("beta") => (2, "beta"),
            _ => return Ok(None),
        };
        let brains = vec![Brain { id: BrainId(id), slug: slug.to_owned() }];
        let (subject, expires) = (claims.subject.clone(), Some(claims.expires));
        Ok(Some(Identity { subject, brains, scopes: vec![Scope::Read], expires }))
    }

    fn repositories(&self, brains: &[Brain]) -> Result<Vec<BrainRepository>, Unavailable> {
        self.check()?;
        let repository = |brain: &Brain| BrainRepository {
            brain: brain.slug.clone(),
            remote: format!("https://git.example.com/{}", brain.slug),
            commit: None,
        };
        Ok(brains.iter().map(repository).collect())
    }

    fn audit(&self, event: &AuditEvent) {
        self.audit.lock().unwrap().push(event.clone());
    }
}

fn state(id: usize, brain: &str) -> CaptureState {
    CaptureState { id: CaptureId(id as i64), brain: brain.to_owned(), state: "extraction".to_owned() }
}

impl Captures for Memory {
    fn accept(
        &self,
        _: &Identity,
        brain: &Brain,
        capture: NewCapture,
    ) -> Result<(CaptureState, bool), CaptureError> {
        self.check()?;
        match &capture.project.as_deref() {
            Some("conflict") => {
                return Err(CaptureError::Conflict("the session is of another project".into()));
            }
            Some("unacceptable") => return Err(CaptureError::Unacceptable("the project is excluded".into())),
            Some("removed") => return Err(CaptureError::UnknownBrain),
            Some("crash") => panic!("a bug in the database's side"),
            Some("wait") => self.wait(),
            _ => {}
        }
        let mut captures = self.captures.lock().unwrap();
        let known = captures.iter().position(|(id, known)| *id == brain.id.0 && known.key == capture.key);
        if let Some(known) = known {
            return Ok((state(known, &brain.slug), false));
        }
        captures.push((brain.id.0, capture));
        Ok((state(captures.len() - 1, &brain.slug), true))
    }

    fn find(&self, _: &Identity, id: CaptureId) -> Result<Option<CaptureState>, Unavailable> {
        self.check()?;
        // Careless on purpose: the server must not show another brain's all the same.
        let captures = self.captures.lock().unwrap();
        let found = usize::try_from(id.0).ok().and_then(|index| captures.get(index));
        Ok(found.map(|(brain, _)| state(id.0 as usize, if *brain == 1 { "alpha" } else { "beta" })))
    }
}

impl Questions for Memory {
    fn answer(&self, _: &Identity, brain: &Brain, task: &Task) -> Result<TeamAnswer, QuestionError> {
        self.check()?;
        match task.text.as_str() {
            "not ready" => return Err(QuestionError::NotReady("the brain is being indexed".into())),
            "crash" => panic!("a bug in the search"),
            "wait" => self.wait(),
            _ => {}
        }
        let mark = if brain.id.0 == 1 { ALPHA_MARK } else { BETA_MARK };
        let shown = vec![ShownUnit { id: format!("{}-unit", brain.slug), tokens: 12 }];
        Ok(TeamAnswer { text: format!("{mark}: {}", task.text), shown })
    }
}

impl Health for Memory {
    fn ready(&self) -> Result<(), Unavailable> {
        self.check()
    }

    fn metrics(&self) -> Vec<Metric> {
        let labels = vec![("stage", "extraction".to_owned())];
        let (name, help) = ("nugget_queue_jobs", "Jobs by stage.");
        vec![Metric { name, help, is_counter: false, labels, value: self.captures() as f64 }]
    }
}

/// A server that ends with this.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) memory: Arc<Memory>,
    end: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

pub(crate) fn settings() -> Settings {
    Settings::new(([127, 0, 0, 1], 0).into())
}

impl TestServer {
    pub(crate) async fn start() -> Self {
        Self::with(settings()).await
    }

    pub(crate) async fn with(settings: Settings) -> Self {
        let memory = Arc::new(Memory::new());
        let parts = Parts {
            access: memory.clone(),
            captures: memory.clone(),
            questions: memory.clone(),
            health: memory.clone(),
        };
        let bound = bind(settings).await.unwrap();
        let address = bound.address();
        let (end, ended) = oneshot::channel();
        let serving = tokio::spawn(bound.serve(parts, async { drop(ended.await) }));
        Self { address, memory, end: Some(end), serving }
    }

    /// Tells it to end.
    pub(crate) fn end(&mut self) {
        drop(self.end.take());
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(mut self) {
        self.end();
        tokio::time::timeout(Duration::from_secs(40), self.serving).await.unwrap().unwrap();
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Sends a request with `Connection: close` and reads to the end.
    pub(crate) async fn send(&self, request: &Request) -> Response {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // The server may answer and close before it has all.
        let _ = stream.write_all(&request.bytes(self.address)).await;
        read_response(&mut stream).await.expect("no answer")
    }
}

/// A request, byte for byte.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn new(method: &str, path: &str) -> Self {
        Self { method: method.to_owned(), path: path.to_owned(), headers: Vec::new(), body: Vec::new() }
    }

    pub(crate) fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    pub(crate) fn token(self, token: &str) -> Self {
        self.header("Authorization", format!("Bearer {token}"))
    }

    pub(crate) fn json(self, body: impl ToString) -> Self {
        let body = body.to_string().into_bytes();
        Self { body, ..self.header("Content-Type", "application/json") }
    }

    pub(crate) fn bytes(&self, address: SocketAddr) -> Vec<u8> {
        let has = |name: &str| self.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.method, self.path).into_bytes();
        if !has("host") {
            bytes.extend_from_slice(format!("Host: {address}\r\n").as_bytes());
        }
        for (name, value) in &self.headers {
            bytes.extend_from_slice(format!("{name}: ").as_bytes());
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        if !has("content-length") && !has("transfer-encoding") {
            bytes.extend_from_slice(format!("Content-Length: {}\r\n", self.body.len()).as_bytes());
        }
        bytes.extend_from_slice(b"Connection: close\r\n\r\n");
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

#[derive(Clone)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl std::fmt::Debug for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {}", self.status, self.headers, self.text())
    }
}

impl Response {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(String::as_str).unwrap_or_default()
    }

    /// Asserts the form of a refusal, and returns its code.
    pub(crate) fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        let problem = self.value();
        assert_eq!(problem["status"], self.status, "{self:?}");
        assert_eq!(problem["type"], "about:blank");
        for member in ["title", "detail", "code"] {
            assert!(!problem[member].as_str().unwrap().is_empty(), "{member}: {self:?}");
        }
        assert!(
            self.status != 503 && self.status != 429 || !self.header("retry-after").is_empty(),
            "{self:?}"
        );
        problem["code"].as_str().unwrap().to_owned()
    }
}

/// `None` if the connection ended without an answer.
pub(crate) async fn read_response(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Option<Response> {
    let mut bytes = Vec::new();
    let reading = async {
        let mut part = [0; 16 << 10];
        loop {
            match stream.read(&mut part).await {
                Ok(0) | Err(_) => return,
                Ok(count) => bytes.extend_from_slice(&part[..count]),
            }
            if is_complete(&bytes) {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), reading).await.expect("the server does not answer");
    parse_response(&bytes)
}

fn is_complete(bytes: &[u8]) -> bool {
    let Some(response) = parse_response(bytes) else { return false };
    response.header("content-length").parse().is_ok_and(|length: usize| response.body.len() >= length)
}

fn parse_response(bytes: &[u8]) -> Option<Response> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    let mut response = Response { status, headers, body: bytes[end + 4..].to_vec() };
    // What follows is the answer to what the server took for a second request.
    let length = response.header("content-length").parse().unwrap_or(usize::MAX);
    response.body.truncate(length);
    Some(response)
}

/// A call of the tool in the revision of 2025-11-25.
pub(crate) fn question(brain: &str, token: &str, text: &str) -> Request {
    let path = if brain.is_empty() { "/mcp".to_owned() } else { format!("/mcp/{brain}") };
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "get_relevant_context", "arguments": { "task_description": text } },
    });
    mcp_request(&path, call).token(token)
}

pub(crate) fn mcp_request(path: &str, message: impl ToString) -> Request {
    Request::new("POST", path)
        .header("Accept", "application/json, text/event-stream")
        .header("MCP-Protocol-Version", "2025-11-25")
        .json(message)
}

pub(crate) fn capture(session: &str) -> Capture {
    let lines = vec![format!("{session}-1"), format!("{session}-2")];
    Capture::new(session, Timestamp::from_second(1_780_000_000).unwrap(), lines, b"{\"lines\":[1,2]}")
}

/// The hand-over of a capture, changed before it is sent.
pub(crate) fn hand_over(capture: &Capture, change: impl FnOnce(&mut Map<String, Value>)) -> Request {
    let key: CaptureKey = capture.key();
    let Value::Object(mut body) = serde_json::to_value(capture).unwrap() else { unreachable!() };
    change(&mut body);
    Request::new("PUT", &format!("/v1/captures/{key}")).json(Value::Object(body))
}
