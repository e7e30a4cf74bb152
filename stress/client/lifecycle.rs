//! The client with nugget from `install` to `uninstall`: sessions that ask, resume, fork and end in every way.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::scripted_api::{ScriptedApi, Scripts};
use crate::sandbox::{ProcessKind, Sandbox};

/// A turn of the client takes seconds, more on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);
const TMUX_EXIT_MAX: Duration = Duration::from_secs(20);
/// How many clients end at the same time.
const CONCURRENT_CLIENTS: u64 = 8;
/// The client's name for the tool.
const TOOL: &str = "mcp__plugin_nugget_nugget__get_relevant_context";
/// The scripted answer after the tool call.
const FINAL_ANSWER: &str = "Understood, that is how it is done.";
const INSTRUCTIONS: &str = "nugget is this developer's long-term memory";
pub(super) const NOTICE: &str = "This session will be analyzed for knowledge capture";

/// A call of the tool, then the final answer.
fn scripts() -> Scripts {
    let call = json!({"type": "tool_use", "name": TOOL, "input": {
        "task_description": "commit a change to the importer, restart the label printer, deploy on a Friday"}});
    let answer = json!({ "type": "text", "text": FINAL_ANSWER });
    let print = json!({"type": "tool_use", "name": "Bash", "input": {"command": "./print-labels", "description": "Print"}});
    let hidden = json!({"type": "tool_use", "name": "Bash", "input": {
        "command": "./print-labels 2>&1 | tail -3", "description": "Print"}});
    let end = json!({"type": "text", "text": "That is all."});
    let nugget = |tool: &str, input: Value| json!({"type": "tool_use", "name": format!("mcp__plugin_nugget_nugget__{tool}"), "input": input});
    let note = nugget("create_note", json!({"title": "Retry budget", "content": "Webhooks retry 7 times."}));
    let remember = nugget("remember", json!({"key": "staging host", "value": "stage-7"}));
    let recall = nugget("recall", json!({"key": "what is the staging host"}));
    let find = nugget("get_relevant_context", json!({"task_description": "how often do webhooks retry"}));
    let by_name = BTreeMap::from([
        ("note", vec![note, remember, end.clone()]),
        ("recall", vec![recall, find, end.clone()]),
        ("ask", vec![call, answer]),
        ("print", vec![print.clone(), end.clone()]),
        ("hidden", vec![hidden, end.clone()]),
        ("twice", vec![print.clone(), print, end]),
    ]);
    Scripts { by_name, title: r#"{"title":"A session"}"# }
}

/// A prompt that states a rule with a unique number.
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

pub(super) struct Lifecycle {
    pub(super) sandbox: Sandbox,
    pub(super) api: ScriptedApi,
    /// Starts the client with the environment of a person who has nugget on their PATH.
    script: PathBuf,
    project: PathBuf,
    /// The rules that were stated so far. In the end each must be on exactly one branch.
    markers: Vec<u64>,
}

pub(super) fn run(client: &Path, binary: &Path) -> Result<Value> {
    let mut run = Lifecycle::new(client, Sandbox::new(binary)?)?;
    let mut results = BTreeMap::new();
    results.insert("plugin_validate", run.validate()?);

    let settings = run.sandbox.path(".claude/settings.json");
    fs::create_dir_all(run.sandbox.path(".claude"))?;
    // Formatted as a person might, and the client never would.
    let original = "{\n    \"cleanupPeriodDays\"   : 30\n}\n";
    fs::write(&settings, original)?;
    let installed: Value = serde_json::from_str(&run.sandbox.run_ok(&["install", "--json"])?)?;
    ensure!(installed["how"] == "plugin" && installed["changed"] == true, "{installed}");
    let listed = run.client(&["mcp", "list"])?;
    ensure!(listed.contains("plugin:nugget:nugget") && listed.contains("Connected"), "{listed}");
    ensure!(run.captures()? == 0, "a client without a session announced one");

    // The first session calls the tool, gets nothing yet, and states a rule.
    run.turn(3, &[])?;
    let first = run.api.requests().concat();
    ensure!(
        first.contains(TOOL) && first.contains(INSTRUCTIONS),
        "the tool or its instructions are not in the request"
    );
    ensure!(first.contains("Ask the brain") || first.contains("nugget:brain"), "the skill is not listed");
    run.wait_until_ended(1)?;
    run.merge()?;
    run.api.forget_requests();
    // The next session gets the unit at its start, and from the tool.
    let session = run.turn(4, &[])?;
    let second = run.api.requests().concat();
    ensure!(
        second.contains("units bear on this project") || second.contains("units bears on this project"),
        "the session got no context at its start"
    );
    ensure!(
        second.matches("importer-check --lane 3").count() > 1,
        "the tool's result does not contain the unit"
    );
    run.wait_until_ended(2)?;
    results.insert("print", json!("the next session's tool result contains the merged unit"));

    // The same session is resumed, then forked.
    run.turn(6, &["--resume", &session])?;
    run.wait_until_ended(3)?;
    run.turn(9, &["--resume", &session, "--fork-session"])?;
    run.wait_until_ended(4)?;
    results.insert("resume_and_fork", json!("each captured what was new"));

    if Terminal::is_available() {
        run.terminal()?;
        results.insert("terminal", json!("/clear, /exit and SIGKILL: all captured"));
    } else {
        results.insert("terminal", json!("skipped: tmux is missing"));
    }

    let before = run.captures()?;
    let prompts: Vec<String> = (0..CONCURRENT_CLIENTS).map(|nth| rule(100 + nth)).collect();
    let clients =
        prompts.iter().map(|prompt| run.start(&["-p", prompt]).spawn()).collect::<Result<Vec<_>, _>>()?;
    for client in clients {
        let output = client.wait_with_output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    run.markers.extend((0..CONCURRENT_CLIENTS).map(|nth| 100 + nth));
    run.wait_until_ended(before + CONCURRENT_CLIENTS)?;
    results.insert("concurrent", json!(CONCURRENT_CLIENTS));

    run.check_branches()?;
    results.insert("units", json!(run.markers.len()));
    run.sandbox.run_ok(&["uninstall"])?;
    ensure!(fs::read_to_string(&settings)? == original, "uninstall did not restore the settings");
    ensure!(!run.sandbox.path(".claude/skills").exists(), "uninstall left the plugin");
    Ok(json!(results))
}

/// This repository, which is the marketplace.
pub(super) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Writes the script that starts the client, and returns its path.
fn write_client_script(sandbox: &Sandbox, client: &Path, api_url: &str) -> Result<PathBuf> {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
    let mut lines = String::from("#!/bin/sh\nexec env -i");
    let path = std::env::var("PATH").unwrap_or_default();
    let command = sandbox.command(&[]);
    let inherited = command
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_str()?.to_owned(), value?.to_str()?.to_owned())));
    let more = [
        ("PATH", format!("{}:{path}", sandbox.path("bin").display())),
        ("TERM", "xterm-256color".to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
        ("ANTHROPIC_BASE_URL", api_url.to_owned()),
        ("ANTHROPIC_API_KEY", "dummy-key".to_owned()),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
        ("DISABLE_TELEMETRY", "1".to_owned()),
        ("DISABLE_AUTOUPDATER", "1".to_owned()),
        ("NUGGET_EXTRACT_BACKEND", "heuristic".to_owned()),
        ("NUGGET_SESSION_START_DEADLINE_MS", "4000".to_owned()),
        ("NUGGET_GUARD_DEADLINE_MS", "4000".to_owned()),
        // Only an explicit `nugget sync` sweeps.
        ("NUGGET_SWEEP_ENABLED", "off".to_owned()),
    ];
    let more = more.map(|(name, value)| (name.to_owned(), value));
    let all: BTreeMap<String, String> =
        inherited.filter(|(name, _)| name != "CLAUDE_CODE_OAUTH_TOKEN").chain(more).collect();
    for (name, value) in all {
        lines.push_str(&format!(" {}", quoted(&format!("{name}={value}"))));
    }
    lines.push_str(&format!(" {} \"$@\"\n", quoted(&client.display().to_string())));
    let script = sandbox.path("client.sh");
    fs::write(&script, lines)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(script)
}

impl Lifecycle {
    pub(super) fn new(client: &Path, mut sandbox: Sandbox) -> Result<Self> {
        let api = ScriptedApi::start(scripts())?;
        sandbox.variables.push(("NUGGET_EXTRACT_CLAUDE".to_owned(), client.display().to_string()));
        let project = sandbox.path("work/label-shop");
        fs::create_dir_all(project.join(".git"))?;
        let state = json!({
            "hasCompletedOnboarding": true, "theme": "dark",
            "customApiKeyResponses": {"approved": ["dummy-key"], "rejected": []},
            "projects": {project.display().to_string(): {"hasTrustDialogAccepted": true}},
        });
        fs::write(sandbox.path(".claude.json"), state.to_string())?;
        let script = write_client_script(&sandbox, client, &api.url)?;
        Ok(Self { sandbox, api, script, project, markers: Vec::new() })
    }

    /// Validates the plugin and the marketplace. Clients that know the catalog's checks know every field of the plugin,
    /// so that a warning is a failure; older ones warn of those that they do not know.
    fn validate(&self) -> Result<Value> {
        let help = self.client(&["plugin", "validate", "--help"])?;
        let knows_catalog = help.contains("--profile");
        let plugin = repository().join("plugin");
        for (folder, profile) in [(repository(), &[][..]), (&plugin, &["--profile", "directory"])] {
            let folder = folder.display().to_string();
            let strict = if knows_catalog { [&["--strict"], profile].concat() } else { Vec::new() };
            let output = self.client(&[&["plugin", "validate"], &strict[..], &[&folder]].concat())?;
            let is_clean = !knows_catalog || !output.contains('⚠') && !output.contains("Advice");
            ensure!(is_clean, "{output}");
        }
        Ok(json!(if knows_catalog { "passed, with --strict and the catalog's checks" } else { "passed" }))
    }

    /// The folder that the client works in.
    pub(super) fn project(&self) -> &Path {
        &self.project
    }

    fn start(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.script);
        command
            .args(args)
            .current_dir(&self.project)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs the client, which must succeed; returns its output.
    pub(super) fn client(&self, args: &[&str]) -> Result<String> {
        let Output { status, stdout, stderr } = self.start(args).output()?;
        let output = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
        ensure!(status.success(), "claude {args:?}: {status}: {output}");
        Ok(output)
    }

    /// Runs a session of one turn that states a rule; returns the session's id.
    pub(super) fn turn(&mut self, marker: u64, more: &[&str]) -> Result<String> {
        let prompt = rule(marker);
        let mut args = vec!["-p", prompt.as_str(), "--output-format", "json"];
        args.extend(more);
        let output = self.client(&args)?;
        self.markers.push(marker);
        let answer: Value =
            output.lines().find_map(|line| serde_json::from_str(line).ok()).context("no answer")?;
        ensure!(answer["result"] == FINAL_ANSWER, "{answer}");
        Ok(answer["session_id"].as_str().context("no session id")?.to_owned())
    }

    pub(super) fn captures(&self) -> Result<u64> {
        if self.sandbox.state().is_err() || !self.sandbox.state()?.join("queue.db").is_file() {
            return Ok(0);
        }
        let tally = self.sandbox.queue()?.tally()?;
        Ok(tally.done + tally.nothing + tally.dead + tally.unfinished())
    }

    /// Waits until exactly this many captures have ended, none of them as a failure.
    pub(super) fn wait_until_ended(&self, captures: u64) -> Result<()> {
        self.sandbox.wait_until(&format!("{captures} captures have ended"), TIMEOUT, || {
            let workers =
                self.sandbox.processes().iter().filter(|process| process.kind == ProcessKind::Worker).count();
            Ok(self.captures()? >= captures
                && self.sandbox.queue()?.tally()?.unfinished() == 0
                && workers == 0)
        })?;
        let tally = self.sandbox.queue()?.tally()?;
        ensure!(self.captures()? == captures && tally.dead == 0, "{captures} sessions have ended: {tally:?}");
        Ok(())
    }

    fn merge(&self) -> Result<()> {
        let branches =
            self.sandbox.git(&["for-each-ref", "--format=%(refname:short)", "refs/heads/nugget/"])?;
        for branch in branches.lines() {
            self.sandbox.git(&["merge", "-q", "--no-edit", branch])?;
        }
        self.sandbox.run_ok(&["index"])?;
        Ok(())
    }

    /// Runs sessions in a terminal: one ends with `/clear`, one with `/exit`, one with SIGKILL.
    fn terminal(&mut self) -> Result<()> {
        let mut captures = self.captures()?;
        let terminal = Terminal::start(self, "")?;
        terminal.wait_for(NOTICE)?;
        terminal.type_line(&rule(12))?;
        terminal.wait_for(FINAL_ANSWER)?;
        self.markers.push(12);
        terminal.type_line("/clear")?;
        captures += 1;
        self.wait_until_ended(captures)?;
        terminal.wait_for(NOTICE)?;
        terminal.type_line(&rule(13))?;
        terminal.wait_for(FINAL_ANSWER)?;
        self.markers.push(13);
        terminal.type_line("/exit")?;
        captures += 1;
        self.wait_until_ended(captures)?;
        terminal.wait_for("the client has exited")?;
        drop(terminal);

        let terminal = Terminal::start(self, "")?;
        terminal.wait_for(NOTICE)?;
        terminal.type_line(&rule(14))?;
        terminal.wait_for(FINAL_ANSWER)?;
        self.markers.push(14);
        // The screen shows an answer before it is in the transcript.
        self.sandbox.wait_until("the answer is in the transcript", TIMEOUT, || self.is_answered(14))?;
        terminal.kill()?;
        terminal.wait_for("the client has exited")?;
        ensure!(self.captures()? == captures, "a killed client announced its session");
        let mut sync = self.sandbox.command(&["sync", "--all"]);
        let swept = sync.env("NUGGET_SWEEP_ENABLED", "on").env("NUGGET_SWEEP_IDLE_MINUTES", "0").output()?;
        ensure!(swept.status.success(), "{}", String::from_utf8_lossy(&swept.stderr));
        self.wait_until_ended(captures + 1)
            .with_context(|| String::from_utf8_lossy(&swept.stdout).into_owned())
    }

    /// Whether the transcript of the session that states a rule has the answer to it.
    fn is_answered(&self, marker: u64) -> Result<bool> {
        let lane = format!("--lane {marker}`");
        for project in fs::read_dir(self.sandbox.path(".claude/projects"))? {
            for file in fs::read_dir(project?.path())? {
                let path = file?.path();
                if path.extension().is_some_and(|extension| extension == "jsonl") {
                    let text = fs::read_to_string(path)?;
                    let answer = text.split_once(&lane).map(|(_, after)| after.contains(FINAL_ANSWER));
                    if answer == Some(true) {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Checks that each rule was added on exactly one branch.
    fn check_branches(&self) -> Result<()> {
        let branches =
            self.sandbox.git(&["for-each-ref", "--format=%(refname:short)", "refs/heads/nugget/"])?;
        let mut found: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for branch in branches.lines() {
            let log = self.sandbox.git(&["log", "-1", "-p", "--format=", branch])?;
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
                    bail!(
                        "rule {marker} is on {other:?}\n{}",
                        self.sandbox.run_ok(&["status", "--limit", "40"])?
                    )
                }
            }
        }
        Ok(())
    }
}

/// The client in a terminal of a separate tmux server.
pub(super) struct Terminal {
    socket: String,
    /// The file that holds the client's process id.
    pid_file: PathBuf,
}

impl Terminal {
    pub(super) fn is_available() -> bool {
        Command::new("tmux").arg("-V").output().is_ok_and(|output| output.status.success())
    }

    pub(super) fn start(run: &Lifecycle, args: &str) -> Result<Self> {
        let pid_file = run.sandbox.path("client.pid");
        let terminal = Self { socket: format!("nugget-stress-{}", std::process::id()), pid_file };
        // The shell, the script and the client have one process id, since each replaces the one before.
        let command = format!(
            "cd '{}'; sh -c 'echo $$ > {}; exec {} {args}'; echo; echo the client has exited; sleep 600",
            run.project.display(),
            terminal.pid_file.display(),
            run.script.display()
        );
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "40", &command])?;
        Ok(terminal)
    }

    fn tmux(&self, args: &[&str]) -> Result<String> {
        let output = Command::new("tmux").arg("-L").arg(&self.socket).args(args).output()?;
        ensure!(output.status.success(), "tmux {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn screen(&self) -> Result<String> {
        self.tmux(&["capture-pane", "-p", "-J"])
    }

    pub(super) fn wait_for(&self, text: &str) -> Result<()> {
        let started = Instant::now();
        while !self.screen()?.contains(text) {
            ensure!(started.elapsed() < TIMEOUT, "the terminal does not show {text:?}:\n{}", self.screen()?);
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Types a line, and presses Enter once the line is on the screen.
    pub(super) fn type_line(&self, line: &str) -> Result<()> {
        self.tmux(&["send-keys", "-l", line])?;
        let start: String = line.chars().take(40).collect();
        self.wait_for(&start)?;
        // The client treats an Enter that arrives with the text as part of the text.
        std::thread::sleep(Duration::from_millis(500));
        self.tmux(&["send-keys", "Enter"])?;
        Ok(())
    }

    fn kill(&self) -> Result<()> {
        let pid: i32 = fs::read_to_string(&self.pid_file)?.trim().parse()?;
        let pid = rustix::process::Pid::from_raw(pid).context("not a process id")?;
        Ok(rustix::process::kill_process(pid, rustix::process::Signal::KILL)?)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
        let started = Instant::now();
        while self.screen().is_ok() && started.elapsed() < TMUX_EXIT_MAX {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
