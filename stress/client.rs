//! The real Claude Code client against a scripted API on this machine: it reads a session by `claude -p`, and
//! lives with nugget from `install` to `uninstall`.
//!
//! The client comes from npm (`@anthropic-ai/claude-code`), the scripted API from a folder of tools that is
//! not part of the repository; without either the check says so and does nothing.

mod life;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::machine::{Machine, Random, Session};

const START_MAX: Duration = Duration::from_secs(20);
const TITLE: &str = "A payment that is retried without an idempotency key is made twice";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The client's program, as `npm install @anthropic-ai/claude-code` brings it
    #[arg(long, default_value = "claude", value_name = "PATH")]
    client: PathBuf,
    /// The folder of the scripted API [default: ../shared/tools/claude-code beside the repository]
    #[arg(long, value_name = "DIR")]
    tools: Option<PathBuf>,
}

struct Api(Child);

impl Drop for Api {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn run(arguments: &Arguments, program: &Path, seed: u64) -> Result<Value> {
    let tools = arguments
        .tools
        .clone()
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/tools/claude-code"));
    let script = tools.join("fake_anthropic.py");
    if !script.is_file() {
        return Ok(json!({ "skipped": "the scripted API is not here: name its folder with --tools" }));
    }
    let version = Command::new(&arguments.client).arg("--version").output();
    let Ok(version) = version else {
        return Ok(
            json!({ "skipped": "the client is not here: npm install @anthropic-ai/claude-code, and --client PATH" }),
        );
    };
    let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();

    let mut machine = Machine::new(program)?;
    let unit = json!({
        "type": "bug", "title": TITLE, "description": "Retried payments were made twice.",
        "body": "## When it applies\n\nWhen a payment is retried.\n\n## What to do\n\nSend an idempotency key with every attempt.",
        "domain": "payments", "tags": ["retries"], "confidence": 0.9, "evidence": [1],
    });
    let answer = json!({ "type": "tool_use", "name": "StructuredOutput", "input": { "units": [unit] } });
    let title = json!([{ "type": "text", "text": "{\"title\":\"A session\"}" }]);
    let scripts = json!({
        "nugget": [{ "content": [answer], "stop_reason": "tool_use" }], "ask": life::scripts(),
        "_notools": [{ "if": "title", "content": title }],
    });
    fs::write(machine.path("scripts.json"), scripts.to_string())?;
    let (_api, port) = start(&script, &machine)?;
    machine.variables.extend(
        [
            ("NUGGET_EXTRACT_BACKEND", "claude-p".to_owned()),
            ("NUGGET_EXTRACT_CLAUDE", arguments.client.display().to_string()),
            ("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{port}")),
            ("CLAUDE_CODE_OAUTH_TOKEN", "none".to_owned()),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
            ("DISABLE_AUTOUPDATER", "1".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    let mut random = Random::new(seed);
    let mut session = Session::new(&machine, &mut random, &[])?;
    session.say(
        &mut random,
        "SCRIPT:nugget the customer was charged twice as the retry had no idempotency key",
    )?;
    let transcript = session.transcript.display().to_string();
    let told = machine.ok(&["capture-session", "--transcript", &transcript, "--wait", "--json"])?;
    let capture: Value = serde_json::from_str(&told)?;
    ensure!(capture["state"] == "done" && capture["units"] == 1, "{capture}");
    let branch = capture["branch"].as_str().context("no branch")?;
    let files = machine.git(&["diff", "--name-only", &format!("main...{branch}")])?;
    let unit = machine.git(&["show", &format!("{branch}:{}", files.trim())])?;
    ensure!(unit.contains(TITLE) && unit.contains("source: claude-p"), "{unit}");
    let spend = machine.ok(&["spend"])?;
    ensure!(spend.contains("claude-haiku"), "the call is not in the ledger: {spend}");
    // The client's own session is none that could be captured.
    let kept = machine.path(".claude/projects");
    ensure!(!kept.exists() || fs::read_dir(&kept)?.next().is_none(), "the client has kept a transcript");
    let requests = fs::read_dir(machine.path("requests"))?.count();
    // A brain of its own for the rest, read by the rules.
    let mut machine = Machine::new(program)?;
    machine.variables.push(("NUGGET_EXTRACT_CLAUDE".to_owned(), arguments.client.display().to_string()));
    fs::create_dir(machine.path("requests"))?;
    fs::write(machine.path("scripts.json"), scripts.to_string())?;
    let (_second, port) = start(&script, &machine)?;
    let lived = life::run(&machine, &arguments.client, port)?;
    Ok(json!({ "client": version, "read_by_claude_p": { "units": 1, "requests": requests }, "life": lived }))
}

/// The scripted API, on a port of its own.
fn start(script: &Path, machine: &Machine) -> Result<(Api, u16)> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let api = Command::new("python3")
        .arg(script)
        .arg(port.to_string())
        .arg(machine.path("requests"))
        .arg(machine.path("scripts.json"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let api = Api(api.context("python3 is needed for the scripted API")?);
    let begun = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        ensure!(begun.elapsed() < START_MAX, "the scripted API does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok((api, port))
}
