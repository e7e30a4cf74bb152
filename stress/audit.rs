//! What must be true of a brain and its ledger once nothing works any more, whatever was killed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use queue::State;

use crate::machine::{Machine, Session};

/// A session with what its hooks were told.
pub(crate) struct Ended {
    pub(crate) session: Session,
    /// Whether any hook of it was told that it is kept.
    pub(crate) acknowledged: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) done: u64,
    pub(crate) nothing: u64,
    pub(crate) dead: u64,
    pub(crate) units: usize,
}

/// Whether a dead letter is as good an end as any, or everything must have been saved.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deaths {
    Allowed,
    Forbidden,
}

/// # Errors
/// The first thing that is not as it must be.
pub(crate) fn audit(machine: &Machine, sessions: &[Ended], deaths: Deaths) -> Result<Counts> {
    let captures = machine.queue()?.captures(i32::MAX as usize)?;
    let mut counts = Counts::default();
    let mut branches: BTreeMap<String, String> = BTreeMap::new();
    let mut by_session: BTreeMap<&str, Vec<State>> = BTreeMap::new();
    for capture in &captures {
        let name = format!("capture {} of session {}", capture.id, capture.session_id);
        let reason = capture.reason.as_deref().unwrap_or_default();
        by_session.entry(capture.session_id.as_str()).or_default().push(capture.state);
        match capture.state {
            State::Done => {
                counts.done += 1;
                let branch = capture.branch.clone().with_context(|| format!("{name} has no branch"))?;
                let commit = capture.commit.clone().with_context(|| format!("{name} has no commit"))?;
                let before = branches.insert(branch, commit);
                ensure!(before.is_none(), "{name} shares its branch with another");
            }
            State::Nothing => {
                counts.nothing += 1;
                ensure!(!reason.is_empty(), "{name} ended without a reason");
            }
            State::Dead => {
                counts.dead += 1;
                ensure!(!reason.is_empty(), "{name} is dead without a reason");
                ensure!(deaths == Deaths::Allowed, "{name} is dead: {reason}");
            }
            State::Queued | State::Running | State::Retrying => {
                anyhow::bail!("{name} has no final state: {}, {reason}", capture.state)
            }
        }
    }

    // One branch and one commit for each that is done, and none for any other.
    let listed =
        machine.git(&["for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads/nugget/"])?;
    let there: BTreeMap<String, String> = listed
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(branch, commit)| (branch.to_owned(), commit.to_owned()))
        .collect();
    if let Some((branch, _)) = there.iter().find(|(branch, _)| !branches.contains_key(*branch)) {
        // A capture that died after its branch was made keeps it for its retry.
        ensure!(deaths == Deaths::Allowed && counts.dead > 0, "{branch} belongs to no capture");
    }
    for (branch, commit) in &branches {
        ensure!(there.get(branch) == Some(commit), "{branch} is at {:?}, not at {commit}", there.get(branch));
    }
    let new = machine.git(&["rev-list", "--glob=refs/heads/nugget", "--not", "main"])?;
    ensure!(
        new.lines().count() == there.len(),
        "{} commits on {} branches",
        new.lines().count(),
        there.len()
    );

    let markers = units(machine, &there, &mut counts)?;
    for Ended { session, acknowledged } in sessions {
        let states = by_session.remove(session.id.as_str()).unwrap_or_default();
        ensure!(!acknowledged || !states.is_empty(), "session {} was acknowledged and is lost", session.id);
        let done = states.iter().filter(|state| **state == State::Done).count();
        ensure!(done <= session.markers.len(), "session {} was saved {done} times: {states:?}", session.id);
        if *acknowledged && !states.contains(&State::Dead) {
            let lost: Vec<_> = session.markers.iter().filter(|marker| !markers.contains(marker)).collect();
            ensure!(lost.is_empty(), "session {} has lost {lost:?}: {states:?}", session.id);
        }
    }
    ensure!(by_session.is_empty(), "captures of sessions that never were: {:?}", by_session.keys());
    repository(machine, deaths)?;
    leftovers(machine, deaths)?;
    Ok(counts)
}

/// The markers of all units on all branches; each is in one file alone, and every file is a unit.
fn units(
    machine: &Machine,
    branches: &BTreeMap<String, String>,
    counts: &mut Counts,
) -> Result<BTreeSet<u64>> {
    let mut files = Vec::new();
    for branch in branches.keys() {
        let changed = machine.git(&["diff", "--name-status", "--no-renames", &format!("main...{branch}")])?;
        ensure!(!changed.is_empty(), "{branch} brings nothing");
        for line in changed.lines() {
            let path = line.strip_prefix("A\t").with_context(|| format!("{branch} does not add: {line}"))?;
            files.push((branch, path.to_owned()));
        }
    }
    counts.units = files.len();
    let mut reading =
        machine.git_command(&["cat-file", "--batch"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = reading.stdin.take().context("no stdin")?;
    let asked: String = files.iter().map(|(branch, path)| format!("{branch}:{path}\n")).collect();
    let asking = std::thread::spawn(move || stdin.write_all(asked.as_bytes()));
    let answer = String::from_utf8(reading.wait_with_output()?.stdout)?;
    ensure!(asking.join().is_ok(), "git did not listen");

    let (mut rest, mut ids, mut markers) = (answer.as_str(), BTreeSet::new(), BTreeSet::new());
    for (branch, path) in &files {
        let (head, after) = rest.split_once('\n').context("git's answer ends too early")?;
        let size: usize =
            head.rsplit(' ').next().and_then(|size| size.parse().ok()).with_context(|| head.to_owned())?;
        let (text, after) = after.split_at(size);
        rest = &after[1..];
        let unit = knowledge::Document::parse(text)
            .and_then(|document| document.unit(path))
            .map_err(|error| anyhow::anyhow!("{branch}:{path} is no unit: {error}"))?;
        ensure!(ids.insert(unit.id.clone()), "two units are called {}", unit.id);
        let marker = unit.title.split("--lane ").nth(1).and_then(|rest| {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        });
        let marker: u64 =
            marker.with_context(|| format!("{branch}:{path} is of no session: {}", unit.title))?;
        ensure!(
            markers.insert(marker),
            "what {marker} says was saved twice, the second time as {branch}:{path}"
        );
    }
    Ok(markers)
}

/// The repository is whole, and the user's part of it is as the user left it.
fn repository(machine: &Machine, deaths: Deaths) -> Result<()> {
    let output = machine.git_command(&["fsck", "--full", "--strict"]).output()?;
    let told = [output.stdout, output.stderr].concat();
    let told = String::from_utf8_lossy(&told);
    ensure!(output.status.success(), "git fsck: {told}");
    let commits: Vec<_> = told.lines().filter(|line| line.starts_with("dangling commit")).collect();
    // One that died between its objects and its branch goes on from there.
    ensure!(deaths == Deaths::Allowed || commits.is_empty(), "a capture made a second commit: {commits:?}");
    let status = machine.git(&["status", "--porcelain"])?;
    ensure!(status.is_empty(), "the work tree has changed: {status}");
    ensure!(machine.git(&["symbolic-ref", "HEAD"])?.trim() == "refs/heads/main", "HEAD has moved");
    Ok(())
}

fn leftovers(machine: &Machine, deaths: Deaths) -> Result<()> {
    let state = machine.state()?;
    let index = machine.brain().join(".nugget");
    for database in [state.join("queue.db"), index.join("index.db")] {
        if database.is_file() {
            sound(&database)?;
        }
    }
    let living = machine.processes();
    ensure!(living.is_empty(), "processes are left: {living:?}");
    let forge = git::Repository::open(&machine.brain())?.lock_path()?;
    for lock in [state.join("wait.lock"), state.join("drain.lock"), index.join("index.lock"), forge] {
        ensure!(!queue::is_held(&lock), "{} is held by nobody who lives", lock.display());
    }
    let spooled = machine.spooled()?;
    ensure!(spooled.is_empty(), "files are left in the spool: {spooled:?}");
    let heads = machine.brain().join(".git/refs/heads/nugget");
    if let Ok(entries) = std::fs::read_dir(heads) {
        for entry in entries {
            let path = entry?.path();
            let is_swept = deaths == Deaths::Forbidden;
            ensure!(
                !is_swept || path.extension().is_none_or(|ending| ending != "lock"),
                "{} is left",
                path.display()
            );
        }
    }
    Ok(())
}

fn sound(database: &Path) -> Result<()> {
    let connection = rusqlite::Connection::open(database)?;
    connection.busy_timeout(std::time::Duration::from_secs(10))?;
    let answer: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    ensure!(answer == "ok", "{}: {answer}", database.display());
    Ok(())
}
