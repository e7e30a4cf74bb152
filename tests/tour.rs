//! The README's first five minutes are what happens: the terminal session that stands there is run again,
//! command by command, and what is printed is compared with it.
//!
//! `NUGGET_TOUR=record cargo test --test tests -- tour` writes it anew.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Stdio;

use crate::support::{Sandbox, git, wait_until};

const BEGIN: &str = "```console\n";
const END: &str = "```\n";
/// What is after these differs from machine to machine, and from one version to the next.
const MACHINES: &[&str] = &["ok git", "ok model", "ok disk", "ok versions", "vectors"];
/// So does a number before one of these.
const TIMES: &[&str] = &["s", "min", "h", "d", "day", "days"];

#[test]
fn the_recorded_session_of_the_readme_is_what_happens() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let begin = readme.find(BEGIN).expect("the README has a recorded session") + BEGIN.len();
    let end = begin + readme[begin..].find(END).unwrap();
    let recorded = &readme[begin..end];

    let happened = again(root, recorded);
    if std::env::var_os("NUGGET_TOUR").is_some_and(|what| what == "record") {
        fs::write(root.join("README.md"), [&readme[..begin], &happened, &readme[end..]].concat()).unwrap();
        return;
    }
    let alike = |text: &str| text.lines().map(shape).collect::<Vec<_>>().join("\n");
    assert_eq!(alike(&happened), alike(recorded));
}

/// Runs each command of a session as a new user of a new machine would, one after the other.
fn again(root: &Path, session: &str) -> String {
    let sandbox = Sandbox::new();
    let programs = sandbox.path().join("bin");
    fs::create_dir(&programs).unwrap();
    symlink(env!("CARGO_BIN_EXE_nugget"), programs.join("nugget")).unwrap();
    // A client that says its version: `install` asks for that, and for nothing else.
    let client = programs.join("claude");
    fs::write(&client, "#!/bin/sh\necho '2.1.329 (Claude Code)'\n").unwrap();
    fs::set_permissions(&client, fs::Permissions::from_mode(0o755)).unwrap();
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
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{line}: {}: {said}", output.status);
        happened.push_str(&format!("$ {line}\n{said}"));
        // A person takes longer to read than the drainer lingers.
        let state = sandbox.path().join(".local/state/nugget");
        wait_until("the drainer has gone", || {
            let brains = fs::read_dir(&state).into_iter().flatten().flatten();
            brains.into_iter().all(|brain| !queue::is_held(&brain.path().join("drain.lock")))
        });
    }
    assert_eq!(git(&sandbox.brain(), &["status", "--porcelain"]), "", "nothing is left lying about");
    happened.replace(sandbox.path().to_str().unwrap(), "/home/you")
}

/// A line without what differs each time.
fn shape(line: &str) -> String {
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
