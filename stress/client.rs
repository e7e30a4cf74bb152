//! The real Claude Code client against a scripted API on this machine: it reads a session through `claude -p`,
//! and is used with nugget for the first time, and from `install` to `uninstall`.
//!
//! The client comes from npm (`@anthropic-ai/claude-code`); without it the command reports a skip.

mod first_use;
mod guard;
mod lifecycle;
mod notes;
mod scripted_api;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use self::scripted_api::{ScriptedApi, Scripts};
use crate::sandbox::{Sandbox, Session};

const TITLE: &str = "A payment that is retried without an idempotency key is made twice";

#[derive(clap::Args)]
pub(crate) struct ClientArgs {
    /// The client's binary, as `npm install @anthropic-ai/claude-code` installs it
    #[arg(long, default_value = "claude", value_name = "PATH")]
    client: PathBuf,
}

pub(crate) fn run(args: &ClientArgs, binary: &Path, seed: u64) -> Result<Value> {
    let version = Command::new(&args.client).arg("--version").output();
    let Ok(version) = version else {
        let hint = "npm install @anthropic-ai/claude-code, then name its program with --client";
        return Ok(json!({ "skipped": format!("{} cannot be run: {hint}", args.client.display()) }));
    };
    let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
    let requests = read_with_claude_p(&args.client, binary, seed)?;
    let first_use = first_use::run(&args.client, binary)?;
    let guard = guard::run(&args.client, binary)?;
    let notes = notes::run(&args.client, binary)?;
    let lifecycle = lifecycle::run(&args.client, binary)?;
    Ok(json!({
        "client": version, "read_by_claude_p": { "units": 1, "requests": requests }, "first_use": first_use,
        "guard": guard, "notes": notes, "lifecycle": lifecycle,
    }))
}

/// A session is read by the client; returns how many requests that took.
fn read_with_claude_p(client: &Path, binary: &Path, seed: u64) -> Result<usize> {
    let unit = json!({
        "type": "bug", "title": TITLE, "description": "Retried payments were made twice.",
        "body": "## When it applies\n\nWhen a payment is retried.\n\n## What to do\n\nSend an idempotency key with every attempt.",
        "domain": "payments", "tags": ["retries"], "confidence": 0.9, "evidence": [1],
    });
    let answer = json!({ "type": "tool_use", "name": "StructuredOutput", "input": { "units": [unit] } });
    let api = ScriptedApi::start(Scripts {
        by_name: BTreeMap::from([("nugget", vec![answer])]),
        title: r#"{"title":"A session"}"#,
    })?;
    let mut sandbox = Sandbox::new(binary)?;
    sandbox.variables.extend(
        [
            ("NUGGET_EXTRACT_BACKEND", "claude-p".to_owned()),
            ("NUGGET_EXTRACT_CLAUDE", client.display().to_string()),
            ("ANTHROPIC_BASE_URL", api.url.clone()),
            ("CLAUDE_CODE_OAUTH_TOKEN", "none".to_owned()),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
            ("DISABLE_AUTOUPDATER", "1".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut session = Session::new(&sandbox, &mut rng, &[])?;
    session.add_turn(
        &mut rng,
        "SCRIPT:nugget the customer was charged twice as the retry had no idempotency key",
    )?;
    let transcript = session.transcript.display().to_string();
    let printed = sandbox.run_ok(&["capture-session", "--transcript", &transcript, "--wait", "--json"])?;
    let capture: Value = serde_json::from_str(&printed)?;
    ensure!(capture["state"] == "done" && capture["units"] == 1, "{capture}");
    let branch = capture["branch"].as_str().context("the capture has no branch")?;
    let files = sandbox.git(&["diff", "--name-only", &format!("main...{branch}")])?;
    let unit = sandbox.git(&["show", &format!("{branch}:{}", files.trim())])?;
    ensure!(unit.contains(TITLE) && unit.contains("source: claude-p"), "{unit}");
    let spend = sandbox.run_ok(&["spend"])?;
    ensure!(spend.contains("claude-haiku"), "the call is not in the ledger: {spend}");
    // The client's own session must not leave a transcript that would be captured in turn.
    let kept = sandbox.path(".claude/projects");
    ensure!(!kept.exists() || fs::read_dir(&kept)?.next().is_none(), "the client has kept a transcript");
    Ok(api.requests().len())
}
