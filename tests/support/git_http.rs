//! git's smart HTTP on loopback: the real `git http-backend` behind a password check, with failures on
//! request.

use std::io::{BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use super::http;

/// The only accepted user.
pub(crate) const USER: &str = "x-access-token";
/// The only accepted password. No redactor knows its form, so a leak would show.
pub(crate) const PASSWORD: &str = "canary-password-3f9d27ab61";
/// `USER:PASSWORD` in base64, as a header has it.
pub(crate) const BASIC: &str = "eC1hY2Nlc3MtdG9rZW46Y2FuYXJ5LXBhc3N3b3JkLTNmOWQyN2FiNjE=";

#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// This status with this body.
    Status(u16, &'static str),
    /// No response until the client disconnects.
    Hang,
    /// A response that ends in its middle.
    Cut,
    /// A redirect to the same path at this address.
    Redirect(String),
}

/// A server for the bare repositories of a folder; it runs until it is dropped.
pub(crate) struct GitHttp {
    pub(crate) url: String,
    state: Arc<State>,
}

struct State {
    folder: PathBuf,
    asks_password: bool,
    fault: Mutex<Option<Fault>>,
    /// Each request's first line and its `Authorization` header.
    requests: Mutex<Vec<(String, Option<String>)>>,
    is_over: std::sync::atomic::AtomicBool,
}

impl GitHttp {
    pub(crate) fn start(folder: &Path, asks_password: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(State {
            folder: folder.to_owned(),
            asks_password,
            fault: Mutex::default(),
            requests: Mutex::default(),
            is_over: false.into(),
        });
        let serving = Arc::clone(&state);
        let watched = Arc::clone(&state);
        http::serve_connections(
            listener,
            move || watched.is_over.load(std::sync::atomic::Ordering::Relaxed),
            move |stream| serve(stream, &serving),
        );
        Self { url, state }
    }

    /// Makes every request from now on fail in this way, or succeed.
    pub(crate) fn fail(&self, fault: Option<Fault>) {
        *self.state.fault.lock().unwrap() = fault;
    }

    /// Returns each request's first line and its `Authorization` header, so far.
    pub(crate) fn requests(&self) -> Vec<(String, Option<String>)> {
        self.state.requests.lock().unwrap().clone()
    }
}

impl Drop for GitHttp {
    fn drop(&mut self) {
        self.state.is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
    }
}

/// Serves one request per connection.
fn serve(mut stream: TcpStream, state: &State) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let Some(request) = http::read_request(&mut reader)? else { return Ok(()) };
    let authorization = request.headers.get("authorization").cloned();
    let (method, target) = (request.method.as_str(), request.target.as_str());
    state.requests.lock().unwrap().push((format!("{method} {target} HTTP/1.1"), authorization.clone()));

    let fault = state.fault.lock().unwrap().clone();
    match fault {
        Some(Fault::Status(status, body)) => return respond(&mut stream, status, "", body.as_bytes()),
        Some(Fault::Hang) => {
            // Returns when the client closes the connection.
            let mut rest = Vec::new();
            return reader.read_to_end(&mut rest).map(drop);
        }
        Some(Fault::Cut) => {
            return stream.write_all(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/x-git\r\nContent-Length: 9000\r\n\r\n0",
            );
        }
        Some(Fault::Redirect(elsewhere)) => {
            return respond(&mut stream, 302, &format!("Location: {elsewhere}{target}\r\n"), b"");
        }
        None => {}
    }
    if state.asks_password && authorization.as_deref() != Some(&format!("Basic {BASIC}")) {
        return respond(&mut stream, 401, "WWW-Authenticate: Basic realm=\"brains\"\r\n", b"who are you?");
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut backend = Command::new("git")
        .arg("http-backend")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_PROJECT_ROOT", &state.folder)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*")
        .env("GIT_PROTOCOL", request.header("git-protocol"))
        .env("REMOTE_USER", USER)
        .env("REMOTE_ADDR", "127.0.0.1")
        .env("REQUEST_METHOD", method)
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("CONTENT_TYPE", request.header("content-type"))
        .env("HTTP_CONTENT_ENCODING", request.header("content-encoding"))
        .env("CONTENT_LENGTH", request.body.len().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut input = backend.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(&request.body));
    let mut output = Vec::new();
    backend.stdout.take().unwrap().read_to_end(&mut output)?;
    backend.wait()?;
    let _ = writer.join();
    let end = memchr::memmem::find(&output, b"\r\n\r\n").map_or(output.len(), |at| at + 4);
    let headers = String::from_utf8_lossy(&output[..end]).into_owned();
    let status = headers.lines().find_map(|line| line.strip_prefix("Status: ")?.get(..3)?.parse().ok());
    let headers: String = headers
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("Status:"))
        .map(|line| format!("{line}\r\n"))
        .collect();
    respond(&mut stream, status.unwrap_or(200), &headers, &output[end..])
}

fn respond(stream: &mut TcpStream, status: u16, headers: &str, body: &[u8]) -> std::io::Result<()> {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status} x\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)
}
