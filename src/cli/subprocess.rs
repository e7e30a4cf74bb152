//! Other programs that are asked what they are.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How much of the answer is read.
const ANSWER_BYTES_MAX: u64 = 1_000;

/// The first line of what a program says to `--version`, if it ends well in time. It is told not to call nugget
/// again (`NUGGET_DISABLE`).
pub(crate) fn version_of(program: &Path, within: Duration) -> Option<String> {
    let mut child = Command::new(program)
        .arg("--version")
        .env("NUGGET_DISABLE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let begun = Instant::now();
    let ended_well = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.success(),
            Ok(None) if begun.elapsed() < within => std::thread::sleep(Duration::from_millis(5)),
            _ => break false,
        }
    };
    if !ended_well {
        let _ = child.kill();
        let _ = child.wait();
        return None;
    }
    // No more than the line: what it has started may hold the pipe open.
    let mut line = Vec::new();
    BufReader::new(child.stdout.take()?.take(ANSWER_BYTES_MAX)).read_until(b'\n', &mut line).ok()?;
    let line = knowledge::text::one_line(&String::from_utf8_lossy(&line), 80);
    Some(line).filter(|line| !line.is_empty())
}
