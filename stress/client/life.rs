//! The client's life with nugget: installed, asked, ended in every way, and taken out again.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::START_MAX;
use crate::machine::{Kind, Machine};

/// A client's turn takes seconds; a machine that builds beside it is slow.
const PATIENCE: Duration = Duration::from_secs(120);
const TOGETHER: u64 = 8;
/// The client's name for the tool.
const TOOL: &str = "mcp__plugin_nugget_nugget__get_relevant_context";
/// What a scripted answer is, after the tool was called.
const ANSWERED: &str = "Understood, that is how it is done.";
const INSTRUCTIONS: &str = "nugget is this developer's long-term memory";
const NOTICE: &str = "This session will be analyzed for knowledge capture";

/// The scripted API's answers: a call of the tool, then words.
pub(super) fn scripts() -> Value {
    let call = json!({"type": "tool_use", "name": TOOL, "input": {
        "task_description": "commit a change to the importer, restart the label printer, deploy on a Friday"}});
    json!([{ "content": [call] }, { "content": [{ "type": "text", "text": ANSWERED }] }])
}

/// A rule that a person states, with a number of its own.
fn rule(marker: u64) -> String {
    match marker % 3 {
        0 => format!(
            "from now on, always run `importer-check --lane {marker}` before you commit a change to the \
             importer, because the nightly job reads it without a lock. SCRIPT:ask"
        ),
        1 => format!(
            "never restart the label printer with `printd --lane {marker}` during office hours, because the \
             daemon drops its spooled pages. SCRIPT:ask"
        ),
        _ => format!(
            "always pass `deploy --lane {marker}` to the release script on Fridays, because the default \
             cluster is drained at noon. SCRIPT:ask"
        ),
    }
}

struct Life<'m> {
    machine: &'m Machine,
    /// Starts the client with the environment of a person who has nugget on their PATH.
    script: PathBuf,
    work: PathBuf,
    /// What was said so far, and must be on one branch each in the end.
    markers: Vec<u64>,
}

pub(super) fn run(machine: &Machine, client: &Path, port: u16) -> Result<Value> {
    let work = machine.path("work/label-shop");
    fs::create_dir_all(work.join(".git"))?;
    let state = json!({
        "hasCompletedOnboarding": true, "theme": "dark",
        "customApiKeyResponses": {"approved": ["dummy-key"], "rejected": []},
        "projects": {work.display().to_string(): {"hasTrustDialogAccepted": true}},
    });
    fs::write(machine.path(".claude.json"), state.to_string())?;
    let mut life = Life { machine, script: script(machine, client, port)?, work, markers: Vec::new() };
    let mut told = BTreeMap::new();

    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in [repository.to_owned(), repository.join("plugin")] {
        let folder = folder.display().to_string();
        life.client(&["plugin", "validate", "--strict", &folder])?;
    }
    told.insert("plugin_validate", json!("passed"));

    let settings = machine.path(".claude/settings.json");
    fs::create_dir_all(machine.path(".claude"))?;
    // Written by hand, as the client would never write it.
    let original = "{\n    \"cleanupPeriodDays\"   : 30\n}\n";
    fs::write(&settings, original)?;
    let installed: Value = serde_json::from_str(&machine.ok(&["install", "--json"])?)?;
    ensure!(installed["how"] == "plugin" && installed["changed"] == true, "{installed}");
    let listed = life.client(&["mcp", "list"])?;
    ensure!(listed.contains("plugin:nugget:nugget") && listed.contains("Connected"), "{listed}");
    ensure!(life.captures()? == 0, "a client without a session has announced one");

    // One that asks, is told nothing yet, and states a rule.
    life.turn(3, &[])?;
    let first = life.requests()?;
    ensure!(
        first.contains(TOOL) && first.contains(INSTRUCTIONS),
        "the tool or its instructions are not in the request"
    );
    ensure!(first.contains("Ask the brain") || first.contains("nugget:brain"), "the skill is not listed");
    life.ended(1)?;
    life.merge()?;
    life.forget_requests()?;
    // The next one is told at its start, and by the tool.
    let session = life.turn(4, &[])?;
    let second = life.requests()?;
    ensure!(
        second.contains("units bear on this project") || second.contains("units bears on this project"),
        "the session was told nothing as it began"
    );
    ensure!(
        second.matches("importer-check --lane 3").count() > 1,
        "the tool's result does not hold the unit"
    );
    life.ended(2)?;
    told.insert("print", json!("the next session's tool result holds the merged unit"));

    // The same session goes on, and a fork of it.
    life.turn(6, &["--resume", &session])?;
    life.ended(3)?;
    life.turn(9, &["--resume", &session, "--fork-session"])?;
    life.ended(4)?;
    told.insert("resume_and_fork", json!("each brought what was new"));

    if Command::new("tmux").arg("-V").output().is_ok_and(|output| output.status.success()) {
        life.terminal()?;
        told.insert("terminal", json!("/clear, /exit and SIGKILL: all captured"));
    } else {
        told.insert("terminal", json!("skipped: tmux is not here"));
    }

    let before = life.captures()?;
    let words: Vec<String> = (0..TOGETHER).map(|nth| rule(100 + nth)).collect();
    let clients =
        words.iter().map(|words| life.start(&["-p", words]).spawn()).collect::<Result<Vec<_>, _>>()?;
    for client in clients {
        let output = client.wait_with_output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    life.markers.extend((0..TOGETHER).map(|nth| 100 + nth));
    life.ended(before + TOGETHER)?;
    told.insert("together", json!(TOGETHER));

    life.audit()?;
    told.insert("units", json!(life.markers.len()));
    machine.ok(&["uninstall"])?;
    ensure!(fs::read_to_string(&settings)? == original, "uninstall has not restored the settings");
    ensure!(!machine.path(".claude/skills").exists(), "uninstall has left the plugin");
    Ok(json!(told))
}

fn script(machine: &Machine, client: &Path, port: u16) -> Result<PathBuf> {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
    let mut lines = String::from("#!/bin/sh\nexec env -i");
    let path = std::env::var("PATH").unwrap_or_default();
    let own = machine.command(&[]);
    let inherited = own
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_str()?.to_owned(), value?.to_str()?.to_owned())));
    let more = [
        ("PATH", format!("{}:{path}", machine.path("bin").display())),
        ("TERM", "xterm-256color".to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
        ("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{port}")),
        ("ANTHROPIC_API_KEY", "dummy-key".to_owned()),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
        ("DISABLE_TELEMETRY", "1".to_owned()),
        ("DISABLE_AUTOUPDATER", "1".to_owned()),
        ("NUGGET_EXTRACT_BACKEND", "heuristic".to_owned()),
        ("NUGGET_SESSION_START_DEADLINE_MS", "4000".to_owned()),
        // Only what is found by hand is found by a sweep.
        ("NUGGET_SWEEP_ENABLED", "off".to_owned()),
    ];
    let more = more.map(|(name, value)| (name.to_owned(), value));
    let all: BTreeMap<String, String> =
        inherited.filter(|(name, _)| name != "CLAUDE_CODE_OAUTH_TOKEN").chain(more).collect();
    for (name, value) in all {
        lines.push_str(&format!(" {}", quoted(&format!("{name}={value}"))));
    }
    lines.push_str(&format!(" {} \"$@\"\n", quoted(&client.display().to_string())));
    let script = machine.path("client.sh");
    fs::write(&script, lines)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(script)
}

impl Life<'_> {
    fn start(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.script);
        command
            .args(arguments)
            .current_dir(&self.work)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn client(&self, arguments: &[&str]) -> Result<String> {
        let Output { status, stdout, stderr } = self.start(arguments).output()?;
        let told = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
        ensure!(status.success(), "claude {arguments:?}: {status}: {told}");
        Ok(told)
    }

    /// A session of one turn in which a rule is stated; its id.
    fn turn(&mut self, marker: u64, more: &[&str]) -> Result<String> {
        let words = rule(marker);
        let mut arguments = vec!["-p", words.as_str(), "--output-format", "json"];
        arguments.extend(more);
        let told = self.client(&arguments)?;
        self.markers.push(marker);
        let answer: Value =
            told.lines().find_map(|line| serde_json::from_str(line).ok()).context("no answer")?;
        ensure!(answer["result"] == ANSWERED, "{answer}");
        Ok(answer["session_id"].as_str().context("no session")?.to_owned())
    }

    /// All that the API was sent.
    fn requests(&self) -> Result<String> {
        let mut all = String::new();
        for entry in fs::read_dir(self.machine.path("requests"))? {
            all.push_str(&fs::read_to_string(entry?.path())?);
        }
        Ok(all)
    }

    fn forget_requests(&self) -> Result<()> {
        for entry in fs::read_dir(self.machine.path("requests"))? {
            fs::remove_file(entry?.path())?;
        }
        Ok(())
    }

    fn captures(&self) -> Result<u64> {
        if self.machine.state().is_err() || !self.machine.state()?.join("queue.db").is_file() {
            return Ok(0);
        }
        let tally = self.machine.queue()?.tally()?;
        Ok(tally.done + tally.nothing + tally.dead + tally.unfinished())
    }

    /// Waits until so many captures have ended.
    fn ended(&self, captures: u64) -> Result<()> {
        self.machine.until(&format!("{captures} captures have ended"), PATIENCE, || {
            let drainers =
                self.machine.processes().iter().filter(|process| process.kind == Kind::Drainer).count();
            Ok(self.captures()? >= captures
                && self.machine.queue()?.tally()?.unfinished() == 0
                && drainers == 0)
        })?;
        let tally = self.machine.queue()?.tally()?;
        ensure!(self.captures()? == captures && tally.dead == 0, "{captures} sessions have ended: {tally:?}");
        Ok(())
    }

    fn merge(&self) -> Result<()> {
        let branches =
            self.machine.git(&["for-each-ref", "--format=%(refname:short)", "refs/heads/nugget/"])?;
        for branch in branches.lines() {
            self.machine.git(&["merge", "-q", "--no-edit", branch])?;
        }
        self.machine.ok(&["index"])?;
        Ok(())
    }

    /// Sessions in a terminal: one is cleared, one is left, one is killed.
    fn terminal(&mut self) -> Result<()> {
        let mut captures = self.captures()?;
        let screen = Screen::start(self)?;
        screen.until(NOTICE)?;
        screen.say(&rule(12))?;
        screen.until(ANSWERED)?;
        self.markers.push(12);
        screen.say("/clear")?;
        captures += 1;
        self.ended(captures)?;
        screen.until(NOTICE)?;
        screen.say(&rule(13))?;
        screen.until(ANSWERED)?;
        self.markers.push(13);
        screen.say("/exit")?;
        captures += 1;
        self.ended(captures)?;
        screen.until("the client has gone")?;
        drop(screen);

        let screen = Screen::start(self)?;
        screen.until(NOTICE)?;
        screen.say(&rule(14))?;
        screen.until(ANSWERED)?;
        self.markers.push(14);
        screen.kill()?;
        screen.until("the client has gone")?;
        ensure!(self.captures()? == captures, "a killed client has announced its session");
        let mut sync = self.machine.command(&["sync", "--all"]);
        let swept = sync.env("NUGGET_SWEEP_ENABLED", "on").env("NUGGET_SWEEP_IDLE_MINUTES", "0").output()?;
        ensure!(swept.status.success(), "{}", String::from_utf8_lossy(&swept.stderr));
        self.ended(captures + 1).with_context(|| String::from_utf8_lossy(&swept.stdout).into_owned())
    }

    /// Each rule is in one file of one branch, or of the default branch.
    fn audit(&self) -> Result<()> {
        let branches =
            self.machine.git(&["for-each-ref", "--format=%(refname:short)", "refs/heads/nugget/"])?;
        let mut found: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for branch in branches.lines() {
            let log = self.machine.git(&["log", "-1", "-p", "--format=", branch])?;
            for marker in &self.markers {
                let lane = format!("--lane {marker}`");
                if log.lines().any(|line| line.starts_with('+') && line.contains(&lane)) {
                    found.entry(*marker).or_default().push(branch.to_owned());
                }
            }
        }
        for marker in &self.markers {
            match found.get(marker).map(Vec::as_slice) {
                Some([_]) => {}
                other => {
                    bail!("rule {marker} is on {other:?}\n{}", self.machine.ok(&["status", "--limit", "40"])?)
                }
            }
        }
        Ok(())
    }
}

/// A terminal of tmux's own server, with the client in it.
struct Screen {
    socket: String,
    /// The file that holds the client's process id.
    pid: PathBuf,
}

impl Screen {
    fn start(life: &Life<'_>) -> Result<Self> {
        let pid = life.machine.path("client.pid");
        let screen = Self { socket: format!("nugget-stress-{}", std::process::id()), pid };
        // The shell becomes the client's script, which becomes the client: one process id for all three.
        let command = format!(
            "cd '{}'; sh -c 'echo $$ > {}; exec {}'; echo; echo the client has gone; sleep 600",
            life.work.display(),
            screen.pid.display(),
            life.script.display()
        );
        screen.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "40", &command])?;
        Ok(screen)
    }

    fn tmux(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new("tmux").arg("-L").arg(&self.socket).args(arguments).output()?;
        ensure!(output.status.success(), "tmux {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn shown(&self) -> Result<String> {
        self.tmux(&["capture-pane", "-p", "-J"])
    }

    fn until(&self, words: &str) -> Result<()> {
        let begun = Instant::now();
        while !self.shown()?.contains(words) {
            ensure!(begun.elapsed() < PATIENCE, "the terminal does not show {words:?}:\n{}", self.shown()?);
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Types a line: the return comes once the line is seen, as from a person.
    fn say(&self, line: &str) -> Result<()> {
        self.tmux(&["send-keys", "-l", line])?;
        let seen: String = line.chars().take(40).collect();
        self.until(&seen)?;
        // The client takes a return that comes with the text for a part of it.
        std::thread::sleep(Duration::from_millis(500));
        self.tmux(&["send-keys", "Enter"])?;
        Ok(())
    }

    fn kill(&self) -> Result<()> {
        let pid: i32 = fs::read_to_string(&self.pid)?.trim().parse()?;
        let pid = rustix::process::Pid::from_raw(pid).context("no process")?;
        Ok(rustix::process::kill_process(pid, rustix::process::Signal::KILL)?)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
        let begun = Instant::now();
        while self.shown().is_ok() && begun.elapsed() < START_MAX {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
