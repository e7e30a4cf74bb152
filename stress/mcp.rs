//! The MCP server against what others have written down of the protocol: every message that it writes is
//! checked by the TypeScript SDK's schemas, in both eras, and the conformance suite's scenarios for a server
//! with one tool are run over a small bridge from HTTP to stdin and stdout.
//!
//! Loopback only. The npm packages are not part of this repository; where they are not there, it says so.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::machine::Machine;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A `node_modules` with @modelcontextprotocol/conformance, @modelcontextprotocol/sdk and node (22 or later)
    #[arg(long, value_name = "DIR")]
    modules: Option<PathBuf>,
}

/// What the suite asks of every server. Its other scenarios want a server of their own, with tools, prompts and
/// resources of given names, or are about HTTP, which `serve` does not speak.
const SCENARIOS: [&str; 3] = ["server-initialize", "ping", "tools-list"];

/// The messages of a session in each era, checked as they come.
const CHECK: &str = include_str!("mcp/check.mjs");
/// From HTTP to a server's stdin and stdout.
const BRIDGE: &str = include_str!("mcp/bridge.mjs");

pub(crate) fn run(arguments: &Arguments, program: &Path, seed: u64) -> Result<Value> {
    let there = |modules: &&PathBuf| modules.join("@modelcontextprotocol/sdk/package.json").is_file();
    let Some(modules) = arguments.modules.as_ref().filter(there) else {
        return Ok(json!({ "skipped": "the npm packages are not there: see `stress --help`" }));
    };
    let modules = std::fs::canonicalize(modules)?;
    let own = modules.join(".bin/node");
    let node = if own.exists() { own } else { PathBuf::from("node") };
    let machine = Machine::new(program)?;
    for number in 0..20 {
        machine.add_unit(&format!("unit-{number}"))?;
    }
    // A script finds its packages beside itself.
    let folder = machine.path("scripts");
    std::fs::create_dir_all(&folder)?;
    std::os::unix::fs::symlink(&modules, folder.join("node_modules"))?;
    for (name, text) in [("check.mjs", CHECK), ("bridge.mjs", BRIDGE)] {
        std::fs::write(folder.join(name), text)?;
    }
    let script = |arguments: &[&str]| -> Result<(bool, String)> {
        let serve = machine.command(&["serve"]);
        let mut command = Command::new(&node);
        command.current_dir(&folder).args(arguments).env("NUGGET", serve.get_program());
        for (name, value) in serve.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        let output = command.output().with_context(|| format!("{} cannot be run", node.display()))?;
        let said = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
    };
    let (checked, said) = script(&["check.mjs"])?;
    ensure!(checked, "a message is not as the schema says:\n{said}");
    let messages: Value = serde_json::from_str(said.lines().last().unwrap_or_default())?;

    let mut passed = Vec::new();
    for scenario in SCENARIOS {
        let (ok, said) = script(&["bridge.mjs", scenario])?;
        ensure!(ok, "{scenario} --seed {seed}:\n{said}");
        passed.push(scenario);
    }
    Ok(json!({ "messages_checked": messages, "scenarios": passed }))
}
