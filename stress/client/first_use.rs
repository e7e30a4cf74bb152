//! The first use by a new user: nugget is added before there is a brain, a session runs without one, and the first unit
//! reaches a later session.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::lifecycle::{Lifecycle, repository};
use crate::sandbox::Sandbox;
use crate::terminal::InTerminal;

const SCREEN_WITHIN: Duration = Duration::from_secs(60);

/// How the plugin comes to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// `nugget install` writes it.
    Install,
    /// `claude plugin install` fetches it from a marketplace; `nugget install` adds the permission.
    Marketplace,
}

pub(super) fn run(client: &Path, binary: &Path) -> Result<Value> {
    for source in [Source::Install, Source::Marketplace] {
        use_for_the_first_time(&mut Lifecycle::new(client, Sandbox::without_brain(binary)?)?, source)?;
    }
    Ok(json!(
        "by `nugget install` and from a marketplace: a session before `init`, then capture, review and recall"
    ))
}

fn use_for_the_first_time(run: &mut Lifecycle, source: Source) -> Result<()> {
    if source == Source::Marketplace {
        let marketplace = repository().display().to_string();
        let help = run.client(&["plugin", "install", "--help"])?;
        if help.contains("--marketplace") {
            run.client(&["plugin", "install", "nugget", "--marketplace", &marketplace])?;
        } else {
            run.client(&["plugin", "marketplace", "add", &marketplace])?;
            run.client(&["plugin", "install", "nugget@nugget"])?;
        }
        let doctor = doctor(run)?;
        ensure!(
            doctor.contains("by the plugin nugget@nugget") && doctor.contains("no permission"),
            "{doctor}"
        );
    }
    let printed = run.sandbox.run_ok(&["install"])?;
    ensure!(printed.contains("next: `nugget init`"), "{printed}");
    let has_copy = run.sandbox.path(".claude/skills/nugget").is_dir();
    ensure!(has_copy == (source == Source::Install), "{source:?}: {printed}");
    let doctor = doctor(run)?;
    ensure!(doctor.contains("ok       hooks") && doctor.contains("ok       mcp"), "{doctor}");
    let listed = run.client(&["plugin", "list"])?;
    ensure!(listed.matches("nugget@").count() == 1, "the plugin is there once: {listed}");

    // Without a brain a session works as always, and leaves nothing behind.
    run.turn(3, &[])?;
    ensure!(run.captures()? == 0, "a session was captured without a brain");
    let printed = run.sandbox.run_ok(&["init"])?;
    ensure!(printed.contains("next: work in a new session"), "{printed}");

    run.turn(6, &[])?;
    run.wait_until_ended(1)?;
    let waiting: Value = serde_json::from_str(&run.sandbox.run_ok(&["review", "--json"])?)?;
    ensure!(waiting["items"].as_array().is_some_and(|items| items.len() == 1), "{waiting}");
    review_in_a_terminal(&run.sandbox)?;

    run.api.forget_requests();
    run.turn(9, &[])?;
    let requests = run.api.requests();
    let rule = "importer-check --lane 6";
    let begins = requests.iter().find(|request| request.contains("--lane 9"));
    ensure!(
        begins.is_some_and(|request| request.contains("bears on this project") && request.contains(rule)),
        "{source:?}: the session is not told at its beginning"
    );
    let answers = requests.iter().filter(|request| request.contains("tool_result"));
    ensure!(
        answers
            .clone()
            .any(|request| request.matches(rule).count() > 1 && request.contains("reviewed: merged")),
        "{source:?}: the tool does not find the unit in {} requests",
        answers.count()
    );
    run.wait_until_ended(2)
}

/// Merges what waits by a key, as a person does.
fn review_in_a_terminal(sandbox: &Sandbox) -> Result<()> {
    let mut screen = InTerminal::start(sandbox.command(&["review"]), 80, 24);
    let deadline = Instant::now() + SCREEN_WITHIN;
    while !screen.text().contains("q quit") {
        ensure!(Instant::now() < deadline, "no inbox is shown: {}", screen.text());
        std::thread::sleep(Duration::from_millis(20));
    }
    // With the last one merged the screen ends.
    screen.press("m");
    let shown = screen.end();
    ensure!(shown.status.success() && shown.plain().contains("merged: "), "{}", shown.plain());
    Ok(())
}

/// With nugget on the PATH, as the client is started.
fn doctor(run: &Lifecycle) -> Result<String> {
    let inherited = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{inherited}", run.sandbox.path("bin").display());
    let output = run.sandbox.command(&["doctor", "--offline"]).env("PATH", path).output()?;
    Ok(String::from_utf8(output.stdout)?)
}
