//! Every command of the archive on a full disk, with another user's files, and under a lock: each must work, or say in
//! one line what is wrong and in another what to do.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use serde_json::{Map, Value, json};

use crate::faults::{OTHER_USER, SKIPPED_MOUNT, SKIPPED_USER, fill, give_to_user, mount};
use crate::sandbox::Sandbox;

const SESSION: &str = "5a3b7c1e-0000-4000-8000-000000000001";
const COMMANDS: &[&[&str]] = &[
    &["search", "invoice"],
    &["sessions"],
    &["sessions", "show", "5a3b"],
    &["sessions", "related", "5a3b"],
    &["sessions", "context", "shop"],
    &["sessions", "stats"],
    &["sessions", "export"],
    &["sessions", "sync"],
    &["sessions", "prune", "--older-than", "3650d"],
    &["sessions", "forget", "5a3b"],
];

type Fault = fn(&mut Sandbox, &mut Rng) -> Result<Option<&'static str>>;

pub(super) fn run(binary: &Path, seed: u64) -> Result<Value> {
    let faults: [(&str, Fault); 5] = [
        ("disk_full_without_archive", disk_full_without_archive),
        ("disk_full", disk_full),
        ("archive_of_another_user", |sandbox, rng| of_another_user(sandbox, rng, "archive.db")),
        ("lock_of_another_user", |sandbox, rng| of_another_user(sandbox, rng, "archive.write.lock")),
        ("locked_by_another_program", locked),
    ];
    let mut rng = Rng::with_seed(seed);
    let mut outcomes = Map::new();
    for (name, fault) in faults {
        let mut sandbox = Sandbox::without_brain(binary)?;
        let skipped = fault(&mut sandbox, &mut rng).with_context(|| name.to_owned())?;
        outcomes.insert(name.to_owned(), skipped.unwrap_or("held").into());
    }
    Ok(outcomes.into())
}

fn disk_full_without_archive(sandbox: &mut Sandbox, rng: &mut Rng) -> Result<Option<&'static str>> {
    write_session(sandbox, SESSION, rng)?;
    let folder = sandbox.path("state/nugget");
    let Some(_mount) = mount(&folder, "64k")? else { return Ok(Some(SKIPPED_MOUNT)) };
    fill(&folder)?;
    check(sandbox, &[(&["sessions", "sync"], "the disk is full")])?;
    Ok(None)
}

/// What was archived is there when there is space again.
fn disk_full(sandbox: &mut Sandbox, rng: &mut Rng) -> Result<Option<&'static str>> {
    write_session(sandbox, SESSION, rng)?;
    let folder = sandbox.path("state/nugget");
    let Some(_mount) = mount(&folder, "4m")? else { return Ok(Some(SKIPPED_MOUNT)) };
    sandbox.run_ok(&["sessions", "sync"])?;
    let filler = fill(&folder)?;
    write_session(sandbox, "9f00aa11-0000-4000-8000-000000000002", rng)?;
    check(
        sandbox,
        &[(&["sessions", "sync"], "the disk is full"), (&["sessions", "forget", "5a3b"], "the disk is full")],
    )?;
    fs::remove_file(filler)?;
    let added = sandbox.run_ok(&["sessions", "sync"])?;
    ensure!(added.starts_with("added 20 messages of 1 session"), "{added}");
    ensure!(sandbox.run_ok(&["sessions", "show", "5a3b"])?.contains("invoice"), "the session is gone");
    Ok(None)
}

fn of_another_user(sandbox: &mut Sandbox, rng: &mut Rng, name: &str) -> Result<Option<&'static str>> {
    if !rustix::process::getuid().is_root() {
        return Ok(Some(SKIPPED_USER));
    }
    write_session(sandbox, SESSION, rng)?;
    sandbox.run_ok(&["sessions", "sync"])?;
    let mut folders = vec![sandbox.path("")];
    while let Some(folder) = folders.pop() {
        give_to_user(&folder)?;
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path)
            } else if !path.ends_with(name) {
                give_to_user(&path)?
            }
        }
    }
    sandbox.user = Some(OTHER_USER);
    let expected: &[(&[&str], &str)] = match name {
        "archive.db" => {
            &[(&["search", "invoice"], "Permission denied"), (&["sessions", "sync"], "Permission denied")]
        }
        _ => &[
            (&["sessions", "sync"], "Permission denied"),
            (&["sessions", "forget", "5a3b"], "Permission denied"),
        ],
    };
    check(sandbox, expected)?;
    Ok(None)
}

fn locked(sandbox: &mut Sandbox, rng: &mut Rng) -> Result<Option<&'static str>> {
    write_session(sandbox, SESSION, rng)?;
    sandbox.run_ok(&["sessions", "sync"])?;
    let connection = rusqlite::Connection::open(sandbox.path("state/nugget/archive.db"))?;
    connection.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE")?;
    check(
        sandbox,
        &[(&["sessions"], "in use by another process"), (&["sessions", "sync"], "in use by another process")],
    )?;
    Ok(None)
}

/// Runs all commands at once: some wait for a lock. The expected ones must fail and say why.
fn check(sandbox: &Sandbox, expected: &[(&[&str], &str)]) -> Result<()> {
    std::thread::scope(|scope| {
        let run = |command: &'static [&'static str]| scope.spawn(move || sandbox.run(command));
        let running: Vec<_> = COMMANDS.iter().map(|command| (*command, run(command))).collect();
        for (command, output) in running {
            let output = output.join().ok().context("a thread has panicked")??;
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            let lines: Vec<&str> = told.lines().collect();
            let is_explained =
                lines.len() == 2 && lines[0].starts_with("error: ") && lines[1].starts_with("hint: ");
            ensure!(output.status.success() || is_explained, "{command:?}: {}: {told}", output.status);
            if let Some((_, why)) = expected.iter().find(|(expected, _)| *expected == command) {
                ensure!(
                    !output.status.success() && told.contains(why),
                    "{command:?} does not say {why:?}: {told}"
                );
            }
        }
        Ok(())
    })
}

fn write_session(sandbox: &Sandbox, id: &str, rng: &mut Rng) -> Result<()> {
    let folder = sandbox.path(".claude/projects/-work-shop");
    fs::create_dir_all(&folder)?;
    let mut lines = String::new();
    for number in 0..20 {
        let noise: String = (0..8000).map(|_| rng.alphanumeric()).collect();
        let message = json!({ "role": "user", "content": format!("the invoice {number} {noise}") });
        let uuid = format!("{}{number:012}", &id[..24]);
        lines.push_str(
            &json!({ "type": "user", "uuid": uuid, "cwd": "/work/shop", "message": message }).to_string(),
        );
        lines.push('\n');
    }
    Ok(fs::write(folder.join(format!("{id}.jsonl")), lines)?)
}
