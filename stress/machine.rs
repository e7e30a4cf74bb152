//! A machine of its own: home, state and brain in one folder, and a copy of the program, so that
//! its processes are known by what they run and nothing else of this computer is ever touched.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::{Value, json};

pub(crate) struct Machine {
    /// `None` once it is to be kept for someone to look into.
    folder: Option<tempfile::TempDir>,
    path: PathBuf,
    /// What every process gets besides the fixed variables.
    pub(crate) variables: Vec<(String, String)>,
    /// The user that the processes run as, when it is another.
    pub(crate) user: Option<u32>,
}

/// How a hook ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hooked {
    /// Exit 0, with word that the session is queued or spooled: from here on it must not be lost.
    Acknowledged,
    /// Exit 0, with word on stderr that it could not be kept.
    Refused,
    /// Exit 0, with word on stderr that its input came too late: this program was kept from writing
    /// it, by all the others.
    Unheard,
    Killed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Hook,
    /// The step between a hook and its drainer.
    Step,
    Drainer,
    Server,
    Other,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) kind: Kind,
}

impl Machine {
    /// With a copy of the program and a brain that it has made.
    pub(crate) fn new(program: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("nugget-stress-").tempdir()?;
        let path = fs::canonicalize(folder.path())?;
        let machine = Self { folder: Some(folder), path, variables: Vec::new(), user: None };
        fs::create_dir(machine.path("bin"))?;
        fs::copy(program, machine.program()).with_context(|| format!("no program {}", program.display()))?;
        machine.ok(&["init"])?;
        Ok(machine)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.path("bin/nugget")
    }

    pub(crate) fn brain(&self) -> PathBuf {
        self.path("brain")
    }

    /// The folder of the queue, the spool and the locks.
    pub(crate) fn state(&self) -> Result<PathBuf> {
        let folder = self.path("state/nugget");
        let mut entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
        Ok(entries.next().context("no brain has a state yet")??.path())
    }

    pub(crate) fn queue(&self) -> Result<queue::Queue> {
        Ok(queue::Queue::open(&self.state()?.join("queue.db"))?)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program());
        command
            .args(arguments)
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

    pub(crate) fn run(&self, arguments: &[&str]) -> Result<Output> {
        Ok(self.command(arguments).output()?)
    }

    /// Runs a command that must succeed, and returns what it printed.
    pub(crate) fn ok(&self, arguments: &[&str]) -> Result<String> {
        let output = self.run(arguments)?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "nugget {arguments:?}: {}: {told}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs the hook for a session that has ended; more variables may be given to it alone.
    pub(crate) fn hook(&self, session: &Session, variables: &[(&str, &str)]) -> Result<Hooked> {
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
        // A hook that was killed does not read.
        let _ = child.stdin.take().context("no stdin")?.write_all(format!("{line}\n").as_bytes());
        let output = child.wait_with_output()?;
        let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if output.status.signal() == Some(Signal::KILL.as_raw()) {
            return Ok(Hooked::Killed);
        }
        ensure!(output.status.success(), "a hook failed its session ({}): {said}{told}", output.status);
        if told.contains("no line came on stdin in time") {
            return Ok(Hooked::Unheard);
        }
        if told.contains("not queued") || told.contains("failed to") {
            return Ok(Hooked::Refused);
        }
        ensure!(said.contains(&session.id[..8]), "a hook exited 0 without a word: {said}{told}");
        Ok(Hooked::Acknowledged)
    }

    /// The living processes that run this machine's program.
    pub(crate) fn processes(&self) -> Vec<Process> {
        let program = self.program();
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let is_ours = |folder: &Path| fs::read_link(folder.join("exe")).is_ok_and(|exe| exe == program);
        entries
            .flatten()
            .filter_map(|entry| {
                let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
                is_ours(&entry.path()).then_some(())?;
                let line = fs::read(entry.path().join("cmdline")).ok()?;
                let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
                let kind = match words.get(1).copied() {
                    Some(b"capture-session") => Kind::Hook,
                    Some(b"drain") if words.contains(&b"--detach".as_slice()) => Kind::Step,
                    Some(b"drain") => Kind::Drainer,
                    Some(b"serve") => Kind::Server,
                    _ => Kind::Other,
                };
                Some(Process { pid, kind })
            })
            .collect()
    }

    /// Kills one of this machine's processes; whether it was there to be killed.
    pub(crate) fn kill(&self, process: Process) -> bool {
        // A number may have been given to somebody else since: the handle is to one process, and
        // what it runs is looked at while the handle is held.
        let Ok(handle) = pidfd_open(process.pid, PidfdFlags::empty()) else { return false };
        let exe = format!("/proc/{}/exe", process.pid.as_raw_nonzero());
        fs::read_link(exe).is_ok_and(|exe| exe == self.program())
            && pidfd_send_signal(&handle, Signal::KILL).is_ok()
    }

    /// Waits for a condition, no longer than the patience.
    pub(crate) fn until(
        &self,
        what: &str,
        patience: Duration,
        is_so: impl Fn() -> Result<bool>,
    ) -> Result<()> {
        let begun = Instant::now();
        while !is_so()? {
            if begun.elapsed() > patience {
                let status = self.ok(&["status"]).unwrap_or_default();
                let living = self.processes();
                bail!("not within {patience:?}: {what}\nprocesses: {living:?}\n{status}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Whether nothing works and nothing waits.
    pub(crate) fn is_quiet(&self) -> Result<bool> {
        Ok(self.processes().is_empty()
            && self.queue()?.tally()?.unfinished() == 0
            && self.spooled()?.is_empty())
    }

    pub(crate) fn spooled(&self) -> Result<Vec<PathBuf>> {
        let folder = self.state()?.join("spool");
        Ok(fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?)
    }

    /// The real git in the brain, with nothing of this computer's configuration.
    pub(crate) fn git(&self, arguments: &[&str]) -> Result<String> {
        let output = self.git_command(arguments).output()?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "git {arguments:?}: {told}");
        Ok(String::from_utf8(output.stdout)?)
    }

    pub(crate) fn git_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("git");
        command
            .args(["-c", "safe.directory=*", "-C"])
            .arg(self.brain())
            .args(arguments)
            .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_SYSTEM", "/dev/null"), ("LC_ALL", "C")])
            .envs([("GIT_AUTHOR_NAME", "A"), ("GIT_AUTHOR_EMAIL", "a@example.com")])
            .envs([("GIT_COMMITTER_NAME", "A"), ("GIT_COMMITTER_EMAIL", "a@example.com")]);
        command
    }

    /// Somebody writes a unit by hand and commits it: the default branch and the index move on.
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

    /// Leaves the folder behind, for someone to look into.
    pub(crate) fn keep(&mut self) -> PathBuf {
        if let Some(folder) = self.folder.take() {
            let _ = folder.keep();
        }
        self.path.clone()
    }
}

impl Drop for Machine {
    /// No process outlives its machine, also when something was found that should not be.
    fn drop(&mut self) {
        for _ in 0..200 {
            let living = self.processes();
            if living.is_empty() {
                return;
            }
            for process in living {
                self.kill(process);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A session that has ended, with what is in its transcript.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) transcript: PathBuf,
    /// What is worth keeping of it: each becomes a unit that names its number, in one file alone.
    pub(crate) markers: Vec<u64>,
    turns: u64,
}

/// How many rules a session states, each in a wording of its own.
pub(crate) const WORDINGS: usize = 3;

impl Session {
    /// A session of one person's turns: one for each marker that states a rule, and small talk.
    pub(crate) fn new(machine: &Machine, random: &mut Random, markers: &[u64]) -> Result<Self> {
        let id = random.uuid();
        let transcript = machine.path(&format!("{id}.jsonl"));
        let mut session = Self { id, transcript, markers: Vec::new(), turns: 0 };
        session.say(random, "please look at the importer, it seems slow today")?;
        for marker in markers {
            session.learn(random, *marker)?;
        }
        session.say(random, "thanks, that is all")?;
        Ok(session)
    }

    /// The session goes on, and a rule is stated in it.
    pub(crate) fn learn(&mut self, random: &mut Random, marker: u64) -> Result<()> {
        let words = match self.markers.len() % WORDINGS {
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
        self.say(random, &words)?;
        self.markers.push(marker);
        Ok(())
    }

    pub(crate) fn say(&mut self, random: &mut Random, words: &str) -> Result<()> {
        self.turns += 1;
        let (minute, second) = (self.turns / 60 % 60, self.turns % 60);
        let common = |kind: &str, uuid: &str, message: Value| {
            json!({
                "parentUuid": null, "isSidechain": false, "type": kind, "message": message, "uuid": uuid,
                "timestamp": format!("2026-11-16T17:{minute:02}:{second:02}.000Z"), "userType": "external",
                "origin": {"kind": "human"}, "cwd": "/home/dev/shop", "sessionId": self.id, "version": "2.1.329",
            })
        };
        let asked = common("user", &random.uuid(), json!({"role": "user", "content": words}));
        let answered = common(
            "assistant",
            &random.uuid(),
            json!({"id": "msg", "type": "message", "role": "assistant", "model": "claude-opus-5-5",
                "content": [{"type": "text", "text": "Understood."}], "stop_reason": null}),
        );
        let mut file = fs::File::options().append(true).create(true).open(&self.transcript)?;
        Ok(file.write_all(format!("{asked}\n{answered}\n").as_bytes())?)
    }
}

/// Random numbers from a seed, the same on every machine.
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0.u64(..limit.max(1))
    }

    pub(crate) fn chance(&mut self, per_cent: u64) -> bool {
        self.below(100) < per_cent
    }

    fn uuid(&mut self) -> String {
        let (a, b) = (self.next(), self.next());
        format!(
            "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
            a >> 32,
            (a >> 16) & 0xffff,
            a & 0xfff,
            (b >> 48) & 0xfff,
            b & 0xffff_ffff_ffff
        )
    }
}

/// `nugget serve`, spoken to over its pipes.
pub(crate) struct Client {
    child: std::process::Child,
    stdin: Option<std::process::ChildStdin>,
    stdout: std::io::BufReader<std::process::ChildStdout>,
    asked: u64,
}

impl Client {
    /// `None` when the server was killed before it had said a word.
    pub(crate) fn start(machine: &Machine) -> Result<Option<Self>> {
        let mut child = machine
            .command(&["serve"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let stdin = child.stdin.take();
        let stdout = std::io::BufReader::new(child.stdout.take().context("no stdout")?);
        let mut client = Self { child, stdin, stdout, asked: 0 };
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "stress", "version": "1"}}});
        if client.exchange(&hello)?.is_none() {
            return Ok(None);
        }
        let said = client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        Ok(said.then_some(client))
    }

    /// The text of an answer; `None` when the server was killed.
    pub(crate) fn ask(&mut self, question: &str) -> Result<Option<String>> {
        self.asked += 1;
        let answer = self
            .exchange(&json!({"jsonrpc": "2.0", "id": self.asked, "method": "tools/call", "params": {
            "name": "get_relevant_context", "arguments": {"task_description": question}}}))?;
        let Some(answer) = answer else { return Ok(None) };
        ensure!(answer["result"]["isError"] == false, "a question was not answered: {answer}");
        let text = answer["result"]["content"][0]["text"].as_str();
        Ok(Some(text.with_context(|| format!("an answer without text: {answer}"))?.to_owned()))
    }

    fn send(&mut self, message: &Value) -> bool {
        self.stdin.as_mut().is_some_and(|stdin| writeln!(stdin, "{message}").is_ok())
    }

    fn exchange(&mut self, message: &Value) -> Result<Option<Value>> {
        let mut line = String::new();
        if !self.send(message) || std::io::BufRead::read_line(&mut self.stdout, &mut line)? == 0 {
            return self.gone();
        }
        // A server that is killed in the midst of a line leaves it torn.
        if !line.ends_with('\n') {
            return self.gone();
        }
        let answer: Value = serde_json::from_str(&line).with_context(|| format!("{line:?} is no message"))?;
        ensure!(answer["id"] == message["id"], "the answer to another question: {answer}");
        Ok(Some(answer))
    }

    fn gone<T>(&mut self) -> Result<Option<T>> {
        drop(self.stdin.take());
        let status = self.child.wait()?;
        ensure!(status.signal() == Some(Signal::KILL.as_raw()), "a server went by itself: {status}");
        Ok(None)
    }

    /// Ends its stdin and waits for it to go by itself.
    pub(crate) fn end(mut self) -> Result<()> {
        drop(self.stdin.take());
        let status = self.child.wait()?;
        let killed = status.signal() == Some(Signal::KILL.as_raw());
        ensure!(status.success() || killed, "a server did not end well: {status}");
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
