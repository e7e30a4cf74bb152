//! What must hold for a brain and its queue when no process runs any more, whatever was killed before.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use queue::State;

use crate::sandbox::{Sandbox, Session};

/// A session that has ended, and whether its hooks acknowledged it.
pub(crate) struct EndedSession {
    pub(crate) session: Session,
    /// Whether any hook of this session said that it is kept.
    pub(crate) acknowledged: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) done: u64,
    pub(crate) nothing: u64,
    pub(crate) failed: u64,
    pub(crate) units: usize,
}

/// Whether a capture may have failed for good, or all must have been saved.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailedCaptures {
    Allowed,
    Forbidden,
}

/// Checks the queue, the branches, the repository and the leftover files against the sessions.
///
/// # Errors
///
/// The first invariant that does not hold.
pub(crate) fn check(
    sandbox: &Sandbox,
    sessions: &[EndedSession],
    failures: FailedCaptures,
) -> Result<Counts> {
    let captures = sandbox.queue()?.captures(i32::MAX as usize)?;
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
                ensure!(before.is_none(), "{name} and another capture have the same branch");
            }
            State::Nothing => {
                counts.nothing += 1;
                ensure!(!reason.is_empty(), "{name} has nothing to save and no reason");
            }
            State::Dead => {
                counts.failed += 1;
                ensure!(!reason.is_empty(), "{name} has failed without a reason");
                ensure!(failures == FailedCaptures::Allowed, "{name} has failed: {reason}");
            }
            State::Queued | State::Running | State::Retrying => {
                anyhow::bail!("{name} has no final state: {}, {reason}", capture.state)
            }
        }
    }

    // Each capture that is done has one branch with one commit; no other branch exists.
    let listed =
        sandbox.git(&["for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads/nugget/"])?;
    let existing: BTreeMap<String, String> = listed
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(branch, commit)| (branch.to_owned(), commit.to_owned()))
        .collect();
    if let Some((branch, _)) = existing.iter().find(|(branch, _)| !branches.contains_key(*branch)) {
        // A capture that failed after its branch was made keeps it for its retry.
        ensure!(failures == FailedCaptures::Allowed && counts.failed > 0, "{branch} belongs to no capture");
    }
    for (branch, commit) in &branches {
        ensure!(
            existing.get(branch) == Some(commit),
            "{branch} is at {:?}, not at {commit}",
            existing.get(branch)
        );
    }
    let new = sandbox.git(&["rev-list", "--glob=refs/heads/nugget", "--not", "main"])?;
    ensure!(
        new.lines().count() == existing.len(),
        "{} commits on {} branches",
        new.lines().count(),
        existing.len()
    );

    let markers = unit_markers(sandbox, &existing, &mut counts)?;
    for EndedSession { session, acknowledged } in sessions {
        let states = by_session.remove(session.id.as_str()).unwrap_or_default();
        ensure!(
            !acknowledged || !states.is_empty(),
            "session {} was acknowledged, but has no capture",
            session.id
        );
        let done = states.iter().filter(|state| **state == State::Done).count();
        ensure!(done <= session.markers.len(), "session {} was saved {done} times: {states:?}", session.id);
        if *acknowledged && !states.contains(&State::Dead) {
            let lost: Vec<_> = session.markers.iter().filter(|marker| !markers.contains(marker)).collect();
            ensure!(lost.is_empty(), "session {} lost its rules {lost:?}: {states:?}", session.id);
        }
    }
    ensure!(by_session.is_empty(), "captures of unknown sessions: {:?}", by_session.keys());
    check_repository(sandbox, failures)?;
    check_leftovers(sandbox, failures)?;
    Ok(counts)
}

/// Returns the markers of the units on all branches. Every file must be a unit, and no marker may occur twice.
fn unit_markers(
    sandbox: &Sandbox,
    branches: &BTreeMap<String, String>,
    counts: &mut Counts,
) -> Result<BTreeSet<u64>> {
    let mut files = Vec::new();
    for branch in branches.keys() {
        let changed = sandbox.git(&["diff", "--name-status", "--no-renames", &format!("main...{branch}")])?;
        ensure!(!changed.is_empty(), "{branch} changes nothing");
        for line in changed.lines() {
            let path = line
                .strip_prefix("A\t")
                .with_context(|| format!("{branch} does more than add files: {line}"))?;
            files.push((branch, path.to_owned()));
        }
    }
    counts.units = files.len();
    let mut git =
        sandbox.git_command(&["cat-file", "--batch"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = git.stdin.take().context("no stdin")?;
    let names: String = files.iter().map(|(branch, path)| format!("{branch}:{path}\n")).collect();
    let writer = std::thread::spawn(move || stdin.write_all(names.as_bytes()));
    let answer = String::from_utf8(git.wait_with_output()?.stdout)?;
    ensure!(writer.join().is_ok(), "the names could not be written to git");

    let (mut rest, mut ids, mut markers) = (answer.as_str(), BTreeSet::new(), BTreeSet::new());
    for (branch, path) in &files {
        let (head, after) = rest.split_once('\n').context("git's output ends too early")?;
        let size: usize =
            head.rsplit(' ').next().and_then(|size| size.parse().ok()).with_context(|| head.to_owned())?;
        let (text, after) = after.split_at(size);
        rest = &after[1..];
        let unit = knowledge::Document::parse(text)
            .and_then(|document| document.unit(path))
            .map_err(|error| anyhow::anyhow!("{branch}:{path} is not a unit: {error}"))?;
        ensure!(ids.insert(unit.id.clone()), "two units have the id {}", unit.id);
        let marker = unit.title.split("--lane ").nth(1).and_then(|rest| {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        });
        let marker: u64 = marker.with_context(|| format!("{branch}:{path} has no marker: {}", unit.title))?;
        ensure!(markers.insert(marker), "rule {marker} was saved twice, the second time as {branch}:{path}");
    }
    Ok(markers)
}

/// Checks that the repository is sound and that work tree and HEAD are as the user left them.
fn check_repository(sandbox: &Sandbox, failures: FailedCaptures) -> Result<()> {
    let output = sandbox.git_command(&["fsck", "--full", "--strict"]).output()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    ensure!(output.status.success(), "git fsck: {text}");
    let commits: Vec<_> = text.lines().filter(|line| line.starts_with("dangling commit")).collect();
    // A capture that was killed after it wrote its commit and before its branch continues from the commit.
    ensure!(
        failures == FailedCaptures::Allowed || commits.is_empty(),
        "a capture made a second commit: {commits:?}"
    );
    let status = sandbox.git(&["status", "--porcelain"])?;
    ensure!(status.is_empty(), "the work tree has changed: {status}");
    ensure!(sandbox.git(&["symbolic-ref", "HEAD"])?.trim() == "refs/heads/main", "HEAD has moved");
    Ok(())
}

/// Checks that databases are sound and that no process, lock or spool file is left.
fn check_leftovers(sandbox: &Sandbox, failures: FailedCaptures) -> Result<()> {
    let state = sandbox.state()?;
    let index = sandbox.brain().join(".nugget");
    for database in [state.join("queue.db"), index.join("index.db")] {
        if database.is_file() {
            check_database(&database)?;
        }
    }
    let processes = sandbox.processes();
    ensure!(processes.is_empty(), "processes are left: {processes:?}");
    let git_lock = sandbox.brain().join(".git/nugget.lock");
    for lock in [state.join("wait.lock"), state.join("drain.lock"), index.join("index.lock"), git_lock] {
        ensure!(!queue::is_held(&lock), "{} is still held", lock.display());
    }
    let spooled = sandbox.spooled()?;
    ensure!(spooled.is_empty(), "files are left in the spool: {spooled:?}");
    let heads = sandbox.brain().join(".git/refs/heads/nugget");
    if let Ok(entries) = std::fs::read_dir(heads) {
        for entry in entries {
            let path = entry?.path();
            let is_swept = failures == FailedCaptures::Forbidden;
            ensure!(
                !is_swept || path.extension().is_none_or(|ending| ending != "lock"),
                "{} is left",
                path.display()
            );
        }
    }
    Ok(())
}

fn check_database(database: &Path) -> Result<()> {
    let connection = rusqlite::Connection::open(database)?;
    connection.busy_timeout(std::time::Duration::from_secs(10))?;
    let answer: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    ensure!(answer == "ok", "{}: {answer}", database.display());
    Ok(())
}
