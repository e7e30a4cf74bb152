//! The tools for notes in the client: one session writes a note and a fact, the next one recalls both.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::lifecycle::Lifecycle;
use super::scripted_api::last_tool_result;
use crate::sandbox::Sandbox;

const TOOLS: [&str; 4] = ["get_relevant_context", "create_note", "remember", "recall"];

pub(super) fn run(client: &Path, binary: &Path) -> Result<Value> {
    let run = Lifecycle::new(client, Sandbox::new(binary)?)?;
    run.sandbox.run_ok(&["config", "set", "mcp.tools", &TOOLS.join(",")])?;
    run.sandbox.run_ok(&["install"])?;
    let allowed = TOOLS.map(|tool| format!("mcp__plugin_nugget_nugget__{tool}")).join(",");
    let results = |prompt: &str| -> Result<Vec<String>> {
        run.api.forget_requests();
        run.client(&["-p", prompt, "--allowedTools", &allowed])?;
        Ok(run.api.requests().iter().filter_map(|request| last_tool_result(request)).collect())
    };
    let one_has = |results: &[String], text: &str| results.iter().any(|result| result.contains(text));

    let written = results("save what we found. SCRIPT:note")?;
    ensure!(one_has(&written, "noted as retry-budget"), "create_note: {written:?}");
    ensure!(one_has(&written, "remembered as staging-host"), "remember: {written:?}");
    let branch = actors::notes::agents_branch();
    let files = run.sandbox.git(&["diff", "--name-only", &format!("main...{branch}")])?;
    ensure!(files.lines().count() == 2, "the branch has other files: {files}");

    let recalled = results("what was the staging host? SCRIPT:recall")?;
    let value = recalled.iter().find(|result| result.contains("stage-7")).context("nothing was recalled")?;
    ensure!(value.contains("unreviewed: written by an agent"), "it is not marked: {value}");
    ensure!(
        one_has(&recalled, "reviewed: not yet, written by an agent"),
        "the note is not found: {recalled:?}"
    );
    run.sandbox.run_ok(&["review", "merge", "--all"])?;
    let merged = results("what was the staging host? SCRIPT:recall")?;
    ensure!(
        one_has(&merged, "(staging-host, reviewed)") && one_has(&merged, "reviewed: merged"),
        "{merged:?}"
    );
    Ok(json!({
        "create_note_and_remember": "written on the branch of the machine",
        "recall": "the next session reads both, marked as unreviewed until they are merged",
    }))
}
