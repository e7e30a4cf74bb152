//! Runs other programs with a time limit, after which they and all that they started are killed; process groups and
//! sessions.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
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
    /// Whether that is all of it: not if it printed too much, or something kept the pipe open after its end.
    pub is_stdout_complete: bool,
    /// What it printed as errors.
    pub stderr: Vec<u8>,
}

/// Runs a program with this input until it ends, or is killed with all its child processes at `until`.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// let mut command = std::process::Command::new("cat");
/// let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
/// let output = system::process::run(&mut command, b"text".to_vec(), until)?;
/// assert_eq!((output.succeeded, output.stdout.as_slice()), (Some(true), b"text".as_slice()));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// When it cannot be started or waited for. A failure of the program is no error here.
pub fn run(command: &mut Command, input: Vec<u8>, until: Instant) -> std::io::Result<Output> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A process group of its own: its children are killed with it, and Ctrl-C reaches only nugget.
    let mut child = lead_own_group(command).spawn()?;
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
    let (stderr, _) = collect(&stderr);
    let (stdout, has_ended) = collect(&stdout);
    let is_stdout_complete = has_ended && stdout.len() < STDOUT_BYTES_MAX;
    Ok(Output { succeeded, stdout, is_stdout_complete, stderr })
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

/// What was read, and whether the pipe has ended.
fn collect(pieces: &Receiver<Vec<u8>>) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let until = Instant::now() + OUTPUT_WAIT_MAX;
    loop {
        match pieces.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(piece) => bytes.extend(piece),
            Err(error) => return (bytes, error == RecvTimeoutError::Disconnected),
        }
    }
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
    let Some(group) = pid(child.id()) else { return };
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

fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

/// Puts another program in place of this process, with this as its standard input. Returns only if that fails.
pub fn become_with_input(command: &mut Command, input: &[u8]) -> std::io::Error {
    let file = || -> std::io::Result<File> {
        let mut file = tempfile::tempfile()?;
        file.write_all(input)?;
        file.rewind()?;
        Ok(file)
    };
    match file() {
        Ok(file) => command.stdin(file).exec(),
        Err(error) => error,
    }
}

/// Makes the program the leader of a process group of its own, which [`kill_group`] kills.
pub fn lead_own_group(command: &mut Command) -> &mut Command {
    command.process_group(0)
}

/// Kills all processes of a group at once. Its leader must not have been waited for: afterwards another process may
/// have its id.
pub fn kill_group(leader: u32) {
    if let Some(group) = pid(leader) {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
}

/// Whether a process of this id exists, whosever it is.
pub fn is_running(id: u32) -> bool {
    pid(id).is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// Makes this process the leader of a new session: it has no terminal whose end would send SIGHUP, and no process
/// group that its parent could kill. Nothing happens if it leads one already.
pub fn lead_own_session() {
    let _ = rustix::process::setsid();
}

/// Stops this process until it is continued, as Ctrl-Z does.
///
/// # Errors
/// When the system refuses.
pub fn suspend() -> std::io::Result<()> {
    Ok(rustix::process::kill_process(rustix::process::getpid(), Signal::STOP)?)
}

/// Ends this process without unwinding or destructors, as SIGKILL from elsewhere does.
pub fn kill_self() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
}

/// Lowers the priority of this thread and of those that it starts, where threads have one of their own; elsewhere nothing.
pub fn lower_priority() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(10);
}

/// Whether this process runs as root, who may use all files.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A user of this machine, and its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// The user's number.
    pub user: u32,
    /// The group's number.
    pub group: u32,
}

/// Lets a command run as another user, which only root may.
pub fn run_as(command: &mut Command, user: User) -> &mut Command {
    command.uid(user.user).gid(user.group)
}

/// Asks a process to end, as Ctrl-C does.
pub fn interrupt(id: u32) {
    if let Some(pid) = pid(id) {
        let _ = rustix::process::kill_process(pid, Signal::INT);
    }
}

/// The file of this program. If it was replaced while the process ran, as by an update, it is the one in its place: Linux
/// then says of the old one that it is deleted.
///
/// # Errors
/// When the system does not tell.
pub fn own_program() -> std::io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    let replaced = path.as_os_str().as_bytes().strip_suffix(b" (deleted)");
    let replaced = replaced.map(|path| PathBuf::from(OsStr::from_bytes(path)));
    Ok(replaced.filter(|replaced| !path.exists() && replaced.exists()).unwrap_or(path))
}

/// The name of this machine.
pub fn host_name() -> Vec<u8> {
    rustix::system::uname().nodename().to_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_killed_with_its_leader() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & echo $!; wait"]).stdout(Stdio::piped());
        let mut leader = lead_own_group(&mut command).spawn().unwrap();
        let mut stdout = std::io::BufReader::new(leader.stdout.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
        let helper: u32 = line.trim().parse().unwrap();
        assert!(is_running(leader.id()) && is_running(helper));
        kill_group(leader.id());
        assert!(!leader.wait().unwrap().success());
        // Its copy of the pipe is closed when the helper has ended.
        assert_eq!(stdout.read_to_end(&mut Vec::new()).unwrap(), 0);
        assert!(!is_running(leader.id()));
    }

    #[test]
    fn it_is_known_whether_the_output_is_complete() {
        let is_complete = |script: &str| {
            let until = Instant::now() + Duration::from_secs(60);
            let output = run(Command::new("sh").args(["-c", script]), Vec::new(), until).unwrap();
            assert_eq!(output.succeeded, Some(true), "{script}");
            output.is_stdout_complete
        };
        assert!(is_complete("echo all; sleep 5 >/dev/null 2>&1 &") && is_complete(":"));
        // Another process has the pipe, and could still write to it.
        assert!(!is_complete("echo part; sleep 5 2>/dev/null &"));
        assert!(!is_complete(&format!("head -c {} /dev/zero", STDOUT_BYTES_MAX + 1)));
    }

    #[test]
    fn no_process_has_an_impossible_id() {
        assert!(is_running(std::process::id()));
        assert!(!is_running(0) && !is_running(u32::MAX));
    }
}
