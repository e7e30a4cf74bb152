//! Runs other programs with a time limit, after which they and all that they started are killed.
//!
//! It never decides what is run, or what the environment of a program is.
//!
//! ```
//! # fn main() -> std::io::Result<()> {
//! let mut command = std::process::Command::new("cat");
//! let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
//! let output = process::run(&mut command, b"text".to_vec(), until)?;
//! assert_eq!((output.succeeded, output.stdout.as_slice()), (Some(true), b"text".as_slice()));
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs, clippy::missing_errors_doc)]

use std::io::{Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// How many bytes of the output are kept; the rest is read and dropped.
const STDOUT_BYTES_MAX: usize = 16 * 1024 * 1024;
const STDERR_BYTES_MAX: usize = 64 * 1024;

/// How long a program may take to remove its temporary files after SIGTERM.
const GRACE: Duration = Duration::from_millis(500);

/// How long to wait for the output after the program has ended: a process that it started, such as ssh's master
/// connection, may keep the pipe open for hours.
const OUTPUT_WAIT_MAX: Duration = Duration::from_millis(500);

/// How a program ended.
#[derive(Clone, Debug)]
pub struct Output {
    /// Whether it succeeded; `None` if it was killed after the time limit.
    pub succeeded: Option<bool>,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it printed as errors.
    pub stderr: Vec<u8>,
}

/// Runs a program with this input until it ends, or is killed with all its child processes at `until`.
///
/// # Errors
/// When it cannot be started or waited for. A failure of the program is no error here.
pub fn run(command: &mut Command, input: Vec<u8>, until: Instant) -> std::io::Result<Output> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A process group of its own: its children are killed with it, and Ctrl-C reaches only nugget.
    let mut child = command.process_group(0).spawn()?;
    let stdout = reader(child.stdout.take(), STDOUT_BYTES_MAX);
    let stderr = reader(child.stderr.take(), STDERR_BYTES_MAX);
    if let Some(mut stdin) = child.stdin.take() {
        // In a thread, as the program may print before it has read everything. If it ends early, the pipe is
        // closed, and its standard error says why.
        std::thread::spawn(move || drop(stdin.write_all(&input)));
    }
    let succeeded = wait(&mut child, until)?;
    if succeeded.is_none() {
        kill(&mut child);
    }
    Ok(Output { succeeded, stderr: collect(&stderr), stdout: collect(&stdout) })
}

/// Reads a pipe to its end in a thread, as the program stops when it is full. Keeps at most `bytes_max` bytes.
fn reader(pipe: Option<impl Read + Send + 'static>, bytes_max: usize) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    let Some(mut pipe) = pipe else { return receiver };
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        let mut left = bytes_max;
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            let kept = count.min(left);
            left -= kept;
            // If the receiver is gone: read on, so that the program does not stop.
            let _ = sender.send(buffer[..kept].to_vec());
        }
    });
    receiver
}

fn collect(pieces: &Receiver<Vec<u8>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let until = Instant::now() + OUTPUT_WAIT_MAX;
    while let Ok(piece) = pieces.recv_timeout(until.saturating_duration_since(Instant::now())) {
        bytes.extend(piece);
    }
    bytes
}

/// Whether the child succeeded; `None` after the time limit. Polls, as the standard library cannot wait for a
/// process with a time limit.
fn wait(child: &mut Child, until: Instant) -> std::io::Result<Option<bool>> {
    let mut pause = Duration::from_millis(1);
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(Some(status.success())),
            None if Instant::now() >= until => return Ok(None),
            None => std::thread::sleep(pause),
        }
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

/// Kills the child and its children: with SIGTERM first, so that it removes its temporary files.
fn kill(child: &mut Child) {
    let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return };
    // The child is not reaped yet, so no other process has its id.
    let _ = rustix::process::kill_process_group(group, Signal::TERM);
    let _ = wait_unreaped(group, Instant::now() + GRACE);
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
    let _ = child.wait();
}

/// Waits until a child has ended, without reaping it.
fn wait_unreaped(child: Pid, until: Instant) -> rustix::io::Result<()> {
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    while waitid(WaitId::Pid(child), options)?.is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
