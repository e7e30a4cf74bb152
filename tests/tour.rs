//! The recorded sessions in README.md and docs/guide.md are what happens: each is run again, command by
//! command, and what is printed is compared with it.
//!
//! `NUGGET_RECORD=1 cargo test --test tests -- tour` writes them again.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use crate::support::{Sandbox, git, wait_until, write_script};

const BEGIN: &str = "```console\n";
const END: &str = "```\n";
/// What follows these differs between machines and versions.
const MACHINES: &[&str] = &["ok git", "ok model", "ok disk", "ok versions", "vectors"];
/// A number before one of these is a duration, and differs too.
const TIMES: &[&str] = &["s", "min", "h", "d", "day", "days"];

/// Whether recorded files are to be written again rather than compared.
pub(crate) fn is_recording() -> bool {
    std::env::var_os("NUGGET_RECORD").is_some()
}

#[test]
fn the_session_in_the_readme_is_what_happens() {
    check("README.md");
}

#[test]
fn the_session_in_the_guide_is_what_happens() {
    check("docs/guide.md");
}

fn check(page: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join(page)).unwrap();
    let begin = text.find(BEGIN).unwrap_or_else(|| panic!("{page} has a recorded session")) + BEGIN.len();
    let end = begin + text[begin..].find(END).unwrap();
    let recorded = &text[begin..end];

    let happened = replay(root, recorded);
    if is_recording() {
        fs::write(root.join(page), [&text[..begin], &happened, &text[end..]].concat()).unwrap();
        return;
    }
    let normalised = |text: &str| text.lines().map(shape).collect::<Vec<_>>().join("\n");
    assert_eq!(normalised(&happened), normalised(recorded), "the session in {page} is out of date");
}

/// Runs the commands of a session in order, as a new user of a new machine would.
fn replay(root: &Path, session: &str) -> String {
    let sandbox = Sandbox::new();
    let programs = sandbox.path().join("bin");
    fs::create_dir(&programs).unwrap();
    symlink(env!("CARGO_BIN_EXE_nugget"), programs.join("nugget")).unwrap();
    // A client that prints its version, which is all that `install` asks for.
    let client = programs.join("claude");
    write_script(&client, "echo '2.1.329 (Claude Code)'");
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(programs).chain(std::env::split_paths(&usual))).unwrap();

    let mut happened = String::new();
    for line in session.lines().filter_map(|line| line.strip_prefix("$ ")) {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &format!("exec 2>&1; {line}")]).env_clear();
        for (name, value) in sandbox.command().get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        let output = command
            .env("PATH", &path)
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_STATE_HOME")
            .env("NUGGET_EXTRACT_BACKEND", "heuristic")
            .env("NUGGET_EXTRACT_CLAUDE", &client)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("LC_ALL", "C")
            .current_dir(root)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{line}: {}: {printed}", output.status);
        happened.push_str(&format!("$ {line}\n{printed}"));
        // A person reads for longer than the worker waits for more work.
        let state = sandbox.path().join(".local/state/nugget");
        wait_until("the worker has stopped", || {
            let brains = fs::read_dir(&state).into_iter().flatten().flatten();
            brains.into_iter().all(|brain| !queue::is_held(&brain.path().join("drain.lock")))
        });
    }
    assert_eq!(git(&sandbox.brain(), &["status", "--porcelain"]), "", "the work tree is clean");
    happened.replace(sandbox.path().to_str().unwrap(), "/home/you")
}

/// A line without what differs from run to run.
pub(crate) fn shape(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let line = words.join(" ");
    if let Some(machine) = MACHINES.iter().find(|beginning| line.starts_with(**beginning)) {
        return format!("{machine} …");
    }
    let mut shaped: Vec<&str> = Vec::new();
    for word in words {
        match shaped.last_mut() {
            Some(last) if TIMES.contains(&word) && last.parse::<u64>().is_ok() => *last = "…",
            // Two commits.
            _ if word.contains("..") && !word.contains('/') => shaped.push("…"),
            _ => shaped.push(word),
        }
    }
    shaped.join(" ")
}
