//! The guard in the client: a command that failed in one session fails in the next, openly and behind a pipe, and a held
//! one is refused once.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::lifecycle::{Lifecycle, NOTICE, Terminal};
use super::scripted_api::{last_tool_result, messages, tool_results};
use crate::sandbox::Sandbox;

/// The fix, which the developer states in the first session.
const RULE: &str = "from now on, always run `label-sync` before `./print-labels`, because it fails with `printer queue 7 is \
                    not mounted` otherwise. SCRIPT:print";
const FIX: &str = "label-sync";
const ERROR: &str = "is not mounted";

pub(super) fn run(client: &Path, binary: &Path) -> Result<Value> {
    let run = Lifecycle::new(client, Sandbox::new(binary)?)?;
    let command = run.project().join("print-labels");
    // Leaves a line for each run, then fails.
    fs::write(&command, "#!/bin/sh\necho ran >> runs\necho 'printer queue 9 is not mounted' >&2\nexit 3\n")?;
    fs::set_permissions(&command, fs::Permissions::from_mode(0o755))?;
    run.sandbox.run_ok(&["install"])?;
    let runs = |run: &Lifecycle| {
        fs::read_to_string(run.project().join("runs")).map_or(0, |text| text.lines().count())
    };
    let session = |run: &Lifecycle, prompt: &str| {
        run.api.forget_requests();
        run.client(&["-p", prompt, "--allowedTools", "Bash"])
    };

    session(&run, RULE)?;
    ensure!(runs(&run) == 1, "the command did not run in the first session");
    run.wait_until_ended(1)?;
    run.sandbox.run_ok(&["review", "merge", "--all"])?;
    run.sandbox.run_ok(&["index"])?;

    session(&run, "print the labels. SCRIPT:print")?;
    ensure!(runs(&run) == 2, "the command ran {} times", runs(&run));
    let requests = run.api.requests();
    let answered = requests
        .iter()
        .find(|request| last_message_has(request, ERROR))
        .context("no request carries the error")?;
    ensure!(
        told_after(answered, ERROR, FIX),
        "the request that carries the error does not carry the unit: {answered}"
    );
    run.wait_until_ended(2)?;

    session(&run, "print the labels. SCRIPT:hidden")?;
    let requests = run.api.requests();
    let answered = requests.iter().find(|request| last_message_has(request, ERROR));
    let answered = answered.context("no request carries the error that a pipe hides")?;
    let result = tool_results(answered).pop().context("no tool result")?;
    ensure!(result["is_error"] != true, "the client calls the piped command a failure: {result}");
    ensure!(
        told_after(answered, ERROR, FIX),
        "the request with the error that a pipe hides does not carry the unit: {answered}"
    );
    ensure!(runs(&run) == 3, "the command ran {} times", runs(&run));
    run.wait_until_ended(3)?;

    // The same unit, enforced by a person.
    let unit = run.sandbox.run_ok(&["list", "--json"])?;
    let unit: Value = serde_json::from_str(&unit)?;
    let path = unit["units"][0]["path"].as_str().context("no unit")?.to_owned();
    let file = run.sandbox.brain().join(&path);
    let text = fs::read_to_string(&file)?;
    fs::write(&file, text.replacen("---\n", "---\nenforce: hold\nscope: [{command: ./print-labels}]\n", 1))?;
    run.sandbox.git(&["commit", "-qam", "hold"])?;
    run.sandbox.run_ok(&["index"])?;
    run.sandbox.run_ok(&["config", "set", "guard.hold", "always"])?;

    session(&run, "print the labels. SCRIPT:twice")?;
    check_refusal(&run)?;
    ensure!(runs(&run) == 4, "the refused command ran, or the second attempt did not: {} runs", runs(&run));
    run.wait_until_ended(4)?;
    let in_terminal = Terminal::is_available();
    if in_terminal {
        // There it holds unless it is off.
        run.sandbox.run_ok(&["config", "set", "guard.hold", "on"])?;
        run.api.forget_requests();
        // The mode that newer clients begin with has a check of its own, on the server.
        let terminal = Terminal::start(&run, "--permission-mode acceptEdits --allowedTools Bash")?;
        terminal.wait_for(NOTICE)?;
        terminal.type_line("print the labels. SCRIPT:twice")?;
        terminal.wait_for("That is all.")?;
        check_refusal(&run)?;
        ensure!(runs(&run) == 5, "in a terminal, {} runs", runs(&run));
        terminal.type_line("/exit")?;
        run.wait_until_ended(5)?;
    }
    let status: Value = serde_json::from_str(&run.sandbox.run_ok(&["status", "--json"])?)?;
    ensure!(
        status["guard"]["held"] == 1 + u64::from(in_terminal) && status["guard"]["told"].as_u64() >= Some(1),
        "{}",
        status["guard"]
    );
    Ok(json!({
        "told": "the unit is in the request with the error, also where a pipe hides the failure",
        "held": "refused once with the reason, then run",
        "held_in_terminal": if in_terminal { "the same" } else { "skipped: tmux is missing" },
    }))
}

/// The first attempt was refused with the unit's text.
fn check_refusal(run: &Lifecycle) -> Result<()> {
    let requests = run.api.requests();
    let refused = requests
        .iter()
        .find(|request| last_message_has(request, "Run it again if you mean it"))
        .context("no request carries the refusal")?;
    let result = tool_results(refused).pop().context("no tool result")?;
    ensure!(
        result["is_error"] == true && result.to_string().contains(FIX),
        "the reason is not the result: {result}"
    );
    Ok(())
}

/// Whether the newest tool result of a request contains a text.
fn last_message_has(request: &str, text: &str) -> bool {
    last_tool_result(request).is_some_and(|result| result.contains(text))
}

/// Whether a request carries a text beside the tool result that has the error, and not only before it.
fn told_after(request: &str, error: &str, text: &str) -> bool {
    let messages = messages(request);
    let at = messages.iter().position(|message| {
        let blocks = message["content"].as_array().into_iter().flatten();
        blocks.clone().any(|block| block["type"] == "tool_result" && block.to_string().contains(error))
    });
    at.is_some_and(|at| messages[at..].iter().any(|message| message.to_string().contains(text)))
}
