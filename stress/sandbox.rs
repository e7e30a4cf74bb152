//! A home, a state folder and a brain in one temporary folder, with a copy of the binary.
//!
//! The copy identifies the sandbox's processes: no other process of this computer is ever killed.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use fastrand::Rng;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::{Value, json};

pub(crate) struct Sandbox {
    /// `None` once the folder is to be kept for inspection.
    folder: Option<tempfile::TempDir>,
    path: PathBuf,
    /// Environment of every process, in addition to the fixed variables.
    pub(crate) variables: Vec<(String, String)>,
    /// The user that the processes run as, if not the current one.
    pub(crate) user: Option<u32>,
}

/// How a hook ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookOutcome {
    /// Exit 0, and the hook said that the session is queued or spooled: from here on it must not be lost.
    Acknowledged,
    /// Exit 0, and stderr said that the session could not be kept.
    Refused,
    /// Exit 0, and stderr said that the input came too late: this program had no processor time to write it.
    TimedOut,
    Killed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ProcessKind {
    Hook,
    /// The process between a hook and its worker.
    Launcher,
    Worker,
    Server,
    Other,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) kind: ProcessKind,
}

impl Sandbox {
    /// Copies the binary and runs `nugget init`.
    pub(crate) fn new(binary: &Path) -> Result<Self> {
        let sandbox = Self::without_brain(binary)?;
        sandbox.run_ok(&["init"])?;
        Ok(sandbox)
    }

    /// Copies the binary, and the hook's own program if it lies beside it.
    pub(crate) fn without_brain(binary: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("nugget-stress-").tempdir()?;
        let path = fs::canonicalize(folder.path())?;
        let sandbox = Self { folder: Some(folder), path, variables: Vec::new(), user: None };
        fs::create_dir(sandbox.path("bin"))?;
        fs::copy(binary, sandbox.binary()).with_context(|| format!("cannot copy {}", binary.display()))?;
        let guard = binary.with_file_name("nugget-guard");
        if guard.exists() {
            fs::copy(guard, sandbox.path("bin/nugget-guard"))?;
        }
        Ok(sandbox)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn binary(&self) -> PathBuf {
        self.path("bin/nugget")
    }

    pub(crate) fn brain(&self) -> PathBuf {
        self.path("brain")
    }

    /// The folder of the queue, the spool and the locks.
    pub(crate) fn state(&self) -> Result<PathBuf> {
        let folder = self.path("state/nugget");
        let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
        // The archive of sessions lies beside the folders of brains.
        let mut folders = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
        folders.next().context("the state folder is empty")
    }

    pub(crate) fn queue(&self) -> Result<queue::Queue> {
        Ok(queue::Queue::open(&self.state()?.join("queue.db"))?)
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.command_of(&self.binary());
        command.args(args);
        command
    }

    /// Any program, in this sandbox.
    pub(crate) fn command_of(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.path)
            .env("NUGGET_BRAIN", self.brain())
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env("NUGGET_DRAINER_LINGER_SECONDS", "0")
            .env("NUGGET_EXTRACT_BACKEND", "heuristic")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.path)
            .stdin(Stdio::null());
        if let Some(user) = self.user {
            std::os::unix::process::CommandExt::uid(&mut command, user);
            std::os::unix::process::CommandExt::gid(&mut command, user);
        }
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Result<Output> {
        Ok(self.command(args).output()?)
    }

    /// Runs a command that must succeed, and returns what it printed.
    pub(crate) fn run_ok(&self, args: &[&str]) -> Result<String> {
        let output = self.run(args)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "nugget {args:?}: {}: {stderr}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs the SessionEnd hook for a session, with additional variables for this process only.
    pub(crate) fn hook(&self, session: &Session, variables: &[(&str, &str)]) -> Result<HookOutcome> {
        let line = json!({
            "session_id": session.id, "transcript_path": session.transcript, "cwd": "/home/dev/shop",
            "hook_event_name": "SessionEnd", "reason": "prompt_input_exit",
        });
        let mut child = self
            .command(&["capture-session"])
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        // Fails if the hook was killed before it read its input.
        let _ = child.stdin.take().context("no stdin")?.write_all(format!("{line}\n").as_bytes());
        let output = child.wait_with_output()?;
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if output.status.signal() == Some(Signal::KILL.as_raw()) {
            return Ok(HookOutcome::Killed);
        }
        ensure!(output.status.success(), "a hook failed its session ({}): {stdout}{stderr}", output.status);
        if stderr.contains("no line arrived on stdin in time") {
            return Ok(HookOutcome::TimedOut);
        }
        if stderr.contains("neither queued") || stderr.contains("failed to") {
            return Ok(HookOutcome::Refused);
        }
        ensure!(
            stdout.contains(&session.id[..8]),
            "a hook exited 0 and did not name its session: {stdout}{stderr}"
        );
        Ok(HookOutcome::Acknowledged)
    }

    /// The processes that run this sandbox's binary.
    ///
    /// One look can miss all of them: a hook or launcher ends before its entry is read, and the process that it has
    /// started is younger than the list. Each such hand-over hides at most one look, so three in a row find nothing
    /// only if nothing runs.
    pub(crate) fn processes(&self) -> Vec<Process> {
        let mut looks = std::iter::repeat_with(|| self.look_for_processes()).take(3);
        looks.find(|found| !found.is_empty()).unwrap_or_default()
    }

    fn look_for_processes(&self) -> Vec<Process> {
        let binary = self.binary();
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let is_ours = |folder: &Path| fs::read_link(folder.join("exe")).is_ok_and(|exe| exe == binary);
        entries
            .flatten()
            .filter_map(|entry| {
                let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
                is_ours(&entry.path()).then_some(())?;
                let line = fs::read(entry.path().join("cmdline")).ok()?;
                let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
                let kind = match words.get(1).copied() {
                    Some(b"capture-session") => ProcessKind::Hook,
                    Some(b"drain") if words.contains(&b"--detach".as_slice()) => ProcessKind::Launcher,
                    Some(b"drain") => ProcessKind::Worker,
                    Some(b"serve") => ProcessKind::Server,
                    _ => ProcessKind::Other,
                };
                Some(Process { pid, kind })
            })
            .collect()
    }

    /// Sends SIGKILL to a process of this sandbox; returns false if it had ended before.
    pub(crate) fn kill(&self, process: Process) -> bool {
        // The id may have been reused since. The handle refers to one process, and the executable is
        // checked while the handle is open.
        let Ok(handle) = pidfd_open(process.pid, PidfdFlags::empty()) else { return false };
        let exe = format!("/proc/{}/exe", process.pid.as_raw_nonzero());
        fs::read_link(exe).is_ok_and(|exe| exe == self.binary())
            && pidfd_send_signal(&handle, Signal::KILL).is_ok()
    }

    /// Waits until a condition is true, and fails after `timeout`.
    pub(crate) fn wait_until(
        &self,
        condition: &str,
        timeout: Duration,
        is_true: impl Fn() -> Result<bool>,
    ) -> Result<()> {
        let started = Instant::now();
        while !is_true()? {
            if started.elapsed() > timeout {
                let status = self.run_ok(&["status"]).unwrap_or_default();
                let processes = self.processes();
                bail!("not true within {timeout:?}: {condition}\nprocesses: {processes:?}\n{status}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Whether no process runs and no capture waits.
    pub(crate) fn is_quiet(&self) -> Result<bool> {
        Ok(self.processes().is_empty()
            && self.queue()?.tally()?.unfinished() == 0
            && self.spooled()?.is_empty())
    }

    pub(crate) fn spooled(&self) -> Result<Vec<PathBuf>> {
        let folder = self.state()?.join("spool");
        Ok(fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?)
    }

    /// Runs git in the brain, without this computer's configuration; it must succeed. Returns its output.
    pub(crate) fn git(&self, args: &[&str]) -> Result<String> {
        let output = self.git_command(args).output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "git {args:?}: {stderr}");
        Ok(String::from_utf8(output.stdout)?)
    }

    pub(crate) fn git_command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("git");
        command
            .args(["-c", "safe.directory=*", "-C"])
            .arg(self.brain())
            .args(args)
            .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_SYSTEM", "/dev/null"), ("LC_ALL", "C")])
            .envs([("GIT_AUTHOR_NAME", "A"), ("GIT_AUTHOR_EMAIL", "a@example.com")])
            .envs([("GIT_COMMITTER_NAME", "A"), ("GIT_COMMITTER_EMAIL", "a@example.com")]);
        command
    }

    /// Commits a unit on the default branch, as a person who writes it by hand.
    pub(crate) fn add_unit(&self, name: &str) -> Result<()> {
        let folder = self.brain().join("domains/shop/concepts");
        fs::create_dir_all(&folder)?;
        let text = format!(
            "---\nid: {name}\ntype: concept\ndomain: shop\ntitle: The shelf {name}\ntags: []\nconfidence: 0.9\n\
             source: hand\nrelated: []\n---\n\n# The shelf {name}\n\nShelf {name} holds jars of plum jam.\n"
        );
        fs::write(folder.join(format!("{name}.md")), text)?;
        self.git(&["add", "domains"])?;
        self.git(&["commit", "-qm", name])?;
        Ok(())
    }

    /// Keeps the folder for inspection; returns its path.
    pub(crate) fn keep(&mut self) -> PathBuf {
        if let Some(folder) = self.folder.take() {
            let _ = folder.keep();
        }
        self.path.clone()
    }
}

impl Drop for Sandbox {
    /// Kills every process that is left, also after a failure.
    fn drop(&mut self) {
        for _ in 0..200 {
            let processes = self.processes();
            if processes.is_empty() {
                return;
            }
            for process in processes {
                self.kill(process);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A session that has ended, with its transcript.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) transcript: PathBuf,
    /// One number for each rule that the session states. A capture turns each into one unit, in one file,
    /// that names the number.
    pub(crate) markers: Vec<u64>,
    turns: u64,
}

/// How many rules a session may state: there are so many wordings.
pub(crate) const RULE_WORDINGS: usize = 3;

impl Session {
    /// A session with one turn for each marker, which states a rule, between two turns of small talk.
    pub(crate) fn new(sandbox: &Sandbox, rng: &mut Rng, markers: &[u64]) -> Result<Self> {
        let id = uuid(rng);
        let transcript = sandbox.path(&format!("{id}.jsonl"));
        let mut session = Self { id, transcript, markers: Vec::new(), turns: 0 };
        session.add_turn(rng, "please look at the importer, it seems slow today")?;
        for marker in markers {
            session.state_rule(rng, *marker)?;
        }
        session.add_turn(rng, "thanks, that is all")?;
        Ok(session)
    }

    /// Adds a turn that states a rule.
    pub(crate) fn state_rule(&mut self, rng: &mut Rng, marker: u64) -> Result<()> {
        let rule = match self.markers.len() % RULE_WORDINGS {
            0 => format!(
                "from now on, always run `importer-check --lane {marker}` before you commit a change to the importer, \
                 because the nightly job reads it without a lock"
            ),
            1 => format!(
                "never restart the label printer with `printd --lane {marker}` during office hours, because the daemon \
                 drops its spooled pages"
            ),
            _ => format!(
                "always pass `deploy --lane {marker}` to the release script on Fridays, because the default cluster is \
                 drained at noon"
            ),
        };
        self.add_turn(rng, &rule)?;
        self.markers.push(marker);
        Ok(())
    }

    pub(crate) fn add_turn(&mut self, rng: &mut Rng, prompt: &str) -> Result<()> {
        self.turns += 1;
        let (minute, second) = (self.turns / 60 % 60, self.turns % 60);
        let common = |kind: &str, uuid: &str, message: Value| {
            json!({
                "parentUuid": null, "isSidechain": false, "type": kind, "message": message, "uuid": uuid,
                "timestamp": format!("2026-11-16T17:{minute:02}:{second:02}.000Z"), "userType": "external",
                "origin": {"kind": "human"}, "cwd": "/home/dev/shop", "sessionId": self.id, "version": "2.1.329",
            })
        };
        let question = common("user", &uuid(rng), json!({"role": "user", "content": prompt}));
        let answer = common(
            "assistant",
            &uuid(rng),
            json!({"id": "msg", "type": "message", "role": "assistant", "model": "claude-opus-5-5",
                "content": [{"type": "text", "text": "Understood."}], "stop_reason": null}),
        );
        let mut file = fs::File::options().append(true).create(true).open(&self.transcript)?;
        Ok(file.write_all(format!("{question}\n{answer}\n").as_bytes())?)
    }
}

/// A version 4 UUID.
fn uuid(rng: &mut Rng) -> String {
    let (a, b) = (rng.u64(..), rng.u64(..));
    format!(
        "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
        a >> 32,
        (a >> 16) & 0xffff,
        a & 0xfff,
        (b >> 48) & 0xfff,
        b & 0xffff_ffff_ffff
    )
}

/// A `nugget serve` process and the client of its pipes.
pub(crate) struct McpClient {
    child: std::process::Child,
    stdin: Option<std::process::ChildStdin>,
    stdout: std::io::BufReader<std::process::ChildStdout>,
    questions: u64,
}

impl McpClient {
    /// Starts a server and initializes the session; `None` if it was killed before it answered.
    pub(crate) fn start(sandbox: &Sandbox) -> Result<Option<Self>> {
        let mut child = sandbox
            .command(&["serve"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let stdin = child.stdin.take();
        let stdout = std::io::BufReader::new(child.stdout.take().context("no stdout")?);
        let mut client = Self { child, stdin, stdout, questions: 0 };
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "stress", "version": "1"}}});
        if client.exchange(&hello)?.is_none() {
            return Ok(None);
        }
        let sent = client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        Ok(sent.then_some(client))
    }

    /// Asks a question and returns the answer's text; `None` if the server was killed.
    pub(crate) fn ask(&mut self, question: &str) -> Result<Option<String>> {
        let answer = self.call("get_relevant_context", json!({ "task_description": question }))?;
        answer.transpose().map_err(|error| anyhow::anyhow!("the tool returned an error: {error}"))
    }

    /// Calls a tool and returns the text of its answer or of its error; `None` if the server was killed.
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Result<Option<Result<String, String>>> {
        self.questions += 1;
        let answer = self
            .exchange(&json!({"jsonrpc": "2.0", "id": self.questions, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments}}))?;
        let Some(answer) = answer else { return Ok(None) };
        let text = answer["result"]["content"][0]["text"].as_str();
        let text = text.with_context(|| format!("the answer has no text: {answer}"))?.to_owned();
        Ok(Some(if answer["result"]["isError"] == false { Ok(text) } else { Err(text) }))
    }

    fn send(&mut self, message: &Value) -> bool {
        self.stdin.as_mut().is_some_and(|stdin| writeln!(stdin, "{message}").is_ok())
    }

    fn exchange(&mut self, message: &Value) -> Result<Option<Value>> {
        let mut line = String::new();
        if !self.send(message) || std::io::BufRead::read_line(&mut self.stdout, &mut line)? == 0 {
            return self.check_killed();
        }
        // A server that is killed while it writes leaves an incomplete line.
        if !line.ends_with('\n') {
            return self.check_killed();
        }
        let answer: Value =
            serde_json::from_str(&line).with_context(|| format!("{line:?} is not a message"))?;
        ensure!(answer["id"] == message["id"], "this answers another request: {answer}");
        Ok(Some(answer))
    }

    /// `None` if the server was killed, an error if it exited by itself.
    fn check_killed<T>(&mut self) -> Result<Option<T>> {
        drop(self.stdin.take());
        let status = self.child.wait()?;
        ensure!(status.signal() == Some(Signal::KILL.as_raw()), "the server exited by itself: {status}");
        Ok(None)
    }

    /// The server's process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Closes the server's stdin and waits until it exits.
    pub(crate) fn shut_down(mut self) -> Result<()> {
        drop(self.stdin.take());
        let status = self.child.wait()?;
        let killed = status.signal() == Some(Signal::KILL.as_raw());
        ensure!(status.success() || killed, "the server exited with {status}");
        Ok(())
    }
}

impl Drop for McpClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
