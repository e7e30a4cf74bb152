//! The parts of an HTTP/1.1 server that all test servers share: a listener on loopback and a reader of
//! requests.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

/// One request, with its whole body.
pub(crate) struct Request {
    pub(crate) method: String,
    /// The path with its query.
    pub(crate) target: String,
    /// Values by lower-case name.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// The value of a header, empty if there is none; `name` is lower case.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// Serves each connection on its own thread. Stops at the first connection after `is_over` has become true.
///
/// Errors of a connection are ignored: a client may close it at any time.
pub(crate) fn serve_connections(
    listener: TcpListener,
    is_over: impl Fn() -> bool + Send + 'static,
    serve: impl Fn(TcpStream) -> std::io::Result<()> + Clone + Send + 'static,
) {
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            if is_over() {
                return;
            }
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream?));
        }
    });
}

/// Reads the next request of a connection; `None` at its end.
///
/// Answers `Expect: 100-continue` and decodes chunked bodies.
pub(crate) fn read_request(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<Request>> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(None);
        }
    }
    let mut lines = head.lines();
    let mut first = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
    let (method, target) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    if headers.get("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
        reader.get_ref().write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let mut body = Vec::new();
    if headers.get("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size)?;
            let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk)?;
            body.extend_from_slice(&chunk[..size]);
            if size == 0 {
                break;
            }
        }
    } else {
        body = vec![0; headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0)];
        reader.read_exact(&mut body)?;
    }
    Ok(Some(Request { method, target, headers, body }))
}
