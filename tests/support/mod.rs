//! A separate environment for each test: home, settings, state and brain in one folder that is removed at the
//! end.

pub(crate) mod canaries;
pub(crate) mod embeddings_api;
pub(crate) mod git_http;
pub(crate) mod github_api;
pub(crate) mod http;
pub(crate) mod learning_world;
pub(crate) mod messages_api;
pub(crate) mod openai_api;
pub(crate) mod openapi;
#[expect(dead_code, reason = "shared with the benchmarks, which print more")]
pub(crate) mod precision;
pub(crate) mod suites;
pub(crate) mod terminal;

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long a condition may take to become true. Long, for a machine that builds beside the tests;
/// it makes no passing test slower.
const WAIT_MAX: Duration = Duration::from_secs(120);

pub(crate) struct Sandbox {
    folder: tempfile::TempDir,
    /// Environment variables that every command also gets.
    pub(crate) variables: Vec<(String, String)>,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), variables: Vec::new() }
    }

    /// Creates a sandbox with a brain made by `nugget init`.
    pub(crate) fn with_brain() -> Self {
        let sandbox = Self::new();
        sandbox.ok(["init", "--path"].map(OsStr::new).into_iter().chain([sandbox.brain().as_os_str()]));
        sandbox
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn brain(&self) -> PathBuf {
        self.path().join("brain")
    }

    /// The state folder of the brain, which its first capture makes.
    pub(crate) fn state(&self) -> PathBuf {
        let states = std::fs::read_dir(self.path().join("state/nugget")).unwrap();
        let mut states = states.map(|entry| entry.unwrap().path());
        states.find(|state| state.join("queue.db").exists()).unwrap()
    }

    pub(crate) fn command(&self) -> Command {
        self.command_of(env!("CARGO_BIN_EXE_nugget"))
    }

    /// Another program, in this sandbox.
    pub(crate) fn command_of(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path())
            .env("XDG_CONFIG_HOME", self.path().join("config"))
            .env("XDG_STATE_HOME", self.path().join("state"))
            .env("NUGGET_DRAINER_LINGER_SECONDS", "0")
            // The tests must not use the client of the person who runs them.
            .env("NUGGET_EXTRACT_CLAUDE", "/nonexistent/claude")
            .env("COLUMNS", "80")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.path())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        let output = self.command().args(arguments).output().unwrap();
        for bytes in [&output.stdout, &output.stderr] {
            let found = memchr::memmem::find(bytes, github_api::TOKEN.as_bytes());
            assert!(found.is_none(), "the token is printed: {}", String::from_utf8_lossy(bytes));
        }
        output
    }

    /// Runs a command that must succeed, and returns what it printed.
    pub(crate) fn ok<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> String {
        let output = self.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {stderr}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn json<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Value {
        serde_json::from_str(&self.ok(arguments)).unwrap()
    }

    /// Runs a command with the given text on its standard input.
    pub(crate) fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut child = self
            .command()
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that does not read its input may have exited already.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    /// Captures a transcript and waits for the result.
    pub(crate) fn capture(&self, transcript: &Path) -> Value {
        let transcript = transcript.to_str().unwrap();
        let output = self.run(["capture-session", "--transcript", transcript, "--wait", "--json"]);
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
    }

    /// Waits until no worker runs: one goes on for a moment after the capture that started it has its result.
    pub(crate) fn wait_for_workers(&self) {
        let state = self.path().join("state/nugget");
        let Ok(brains) = std::fs::read_dir(state) else { return };
        for brain in brains.flatten() {
            wait_until("the worker has exited", || !queue::is_held(&brain.path().join("drain.lock")));
        }
    }

    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        git(&self.brain(), arguments)
    }
}

impl Drop for Sandbox {
    /// No process outlives its test: the worker exits by itself once there is nothing to do.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.wait_for_workers();
        }
    }
}

/// An address of this machine that nothing listens on. It is not 127.0.0.1, where other tests take ports at the same time.
pub(crate) fn unused_address() -> std::net::SocketAddr {
    std::net::TcpListener::bind("127.0.89.1:0").unwrap().local_addr().unwrap()
}

/// Waits for a condition; `what` describes it in the panic at the time limit.
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < WAIT_MAX, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs the real git without this machine's configuration, and requires success.
pub(crate) fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = try_git(folder, arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?}: {stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn try_git(folder: &Path, arguments: &[&str]) -> Output {
    Command::new("git")
        .current_dir(folder)
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env("GIT_AUTHOR_NAME", "A")
        .env("GIT_AUTHOR_EMAIL", "a@example.com")
        .env("GIT_COMMITTER_NAME", "A")
        .env("GIT_COMMITTER_EMAIL", "a@example.com")
        .env("GIT_EDITOR", "true")
        .env("LC_ALL", "C")
        .output()
        .unwrap()
}

/// Writes a shell script that can be run. Another process writes it: what any process has open for writing cannot be run,
/// and a child that is just being started has a copy of all that its parent has open.
pub(crate) fn write_script(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut writer = Command::new("install")
        .args(["-m", "755", "/dev/stdin"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    writer.stdin.take().unwrap().write_all(format!("#!/bin/sh\n{text}\n").as_bytes()).unwrap();
    assert!(writer.wait().unwrap().success(), "{}", path.display());
}

pub(crate) fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(path)
}

/// A started process that is killed when it is dropped.
pub(crate) struct ChildGuard(pub(crate) Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
