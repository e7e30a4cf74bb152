//! Asks other programs for their version.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How much of the output is read.
const ANSWER_BYTES_MAX: u64 = 1_000;

/// The first line that a program prints for `--version`, if it succeeds in time. `NUGGET_DISABLE` keeps it from
/// calling nugget in turn.
pub(crate) fn version_of(program: &Path, within: Duration) -> Option<String> {
    let mut child = Command::new(program)
        .arg("--version")
        .env("NUGGET_DISABLE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let started = Instant::now();
    let succeeded = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.success(),
            Ok(None) if started.elapsed() < within => std::thread::sleep(Duration::from_millis(5)),
            _ => break false,
        }
    };
    if !succeeded {
        let _ = child.kill();
        let _ = child.wait();
        return None;
    }
    // Only one line: a child of the program may hold the pipe open.
    let mut line = Vec::new();
    BufReader::new(child.stdout.take()?.take(ANSWER_BYTES_MAX)).read_until(b'\n', &mut line).ok()?;
    let line = knowledge::text::one_line(&String::from_utf8_lossy(&line), 80);
    Some(line).filter(|line| !line.is_empty())
}
