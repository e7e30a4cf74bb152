//! Checks the MCP server against the TypeScript SDK's schemas and the protocol's conformance suite.
//!
//! Every message of sessions in all protocol versions is validated. The suite's scenarios for a server with
//! one tool run over a bridge from HTTP to stdin and stdout, on loopback only. The npm packages are not part
//! of this repository; without them the command reports a skip.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::sandbox::Sandbox;

#[derive(clap::Args)]
pub(crate) struct McpArgs {
    /// A `node_modules` with @modelcontextprotocol/conformance, @modelcontextprotocol/sdk and node (22 or later)
    #[arg(long, value_name = "DIR")]
    modules: Option<PathBuf>,
}

/// The scenarios for every server. The others need a server with certain tools, prompts and resources, or test
/// HTTP, which `serve` does not speak.
const SCENARIOS: [&str; 3] = ["server-initialize", "ping", "tools-list"];

/// Validates the messages of a session in each protocol version.
const CHECK: &str = include_str!("mcp/check.mjs");
/// Forwards HTTP requests to a server's stdin and its stdout back.
const BRIDGE: &str = include_str!("mcp/bridge.mjs");

pub(crate) fn run(args: &McpArgs, binary: &Path, seed: u64) -> Result<Value> {
    let has_sdk = |modules: &&PathBuf| modules.join("@modelcontextprotocol/sdk/package.json").is_file();
    let Some(modules) = args.modules.as_ref().filter(has_sdk) else {
        return Ok(json!({ "skipped": "the npm packages are missing: see `stress --help`" }));
    };
    let modules = std::fs::canonicalize(modules)?;
    let installed = modules.join(".bin/node");
    let node = if installed.exists() { installed } else { PathBuf::from("node") };
    let sandbox = Sandbox::new(binary)?;
    for number in 0..20 {
        sandbox.add_unit(&format!("unit-{number}"))?;
    }
    // Node looks for packages next to the script.
    let folder = sandbox.path("scripts");
    std::fs::create_dir_all(&folder)?;
    std::os::unix::fs::symlink(&modules, folder.join("node_modules"))?;
    for (name, text) in [("check.mjs", CHECK), ("bridge.mjs", BRIDGE)] {
        std::fs::write(folder.join(name), text)?;
    }
    let run_script = |args: &[&str]| -> Result<(bool, String)> {
        let serve = sandbox.command(&["serve"]);
        let mut command = Command::new(&node);
        command.current_dir(&folder).args(args).env("NUGGET", serve.get_program());
        for (name, value) in serve.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        let output = command.output().with_context(|| format!("{} cannot be run", node.display()))?;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
    };
    let (checked, text) = run_script(&["check.mjs"])?;
    ensure!(checked, "a message does not match the schema:\n{text}");
    let messages: Value = serde_json::from_str(text.lines().last().unwrap_or_default())?;

    let mut passed = Vec::new();
    for scenario in SCENARIOS {
        let (ok, text) = run_script(&["bridge.mjs", scenario])?;
        ensure!(ok, "{scenario} --seed {seed}:\n{text}");
        passed.push(scenario);
    }
    Ok(json!({ "messages_checked": messages, "scenarios": passed }))
}
