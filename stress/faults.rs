//! Full disks, missing permissions and clocks that jump, each in its own sandbox; afterwards one plain hook
//! must recover everything.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use queue::State;
use serde_json::{Map, Value};

use crate::invariants::{self, EndedSession, FailedCaptures};
use crate::sandbox::{HookOutcome, ProcessKind, Sandbox, Session};

const TIMEOUT: Duration = Duration::from_secs(90);
/// The user id of `nobody` on most systems.
pub(crate) const OTHER_USER: u32 = 65534;

type Fault = fn(&mut Sandbox, &mut Rng) -> Result<String>;

/// Runs all faults; the result says for each what happened, or why it was skipped.
pub(crate) fn run(binary: &Path, rng: &mut Rng) -> Result<Value> {
    let faults: [(&str, Fault); 6] = [
        ("state_disk_full", state_disk_full),
        ("brain_disk_full", brain_disk_full),
        ("state_read_only", state_read_only),
        ("repository_read_only", repository_read_only),
        ("clock_back_ten_years", |sandbox, rng| clock(sandbox, rng, 1)),
        ("clock_on_ten_years", |sandbox, rng| clock(sandbox, rng, -1)),
    ];
    let mut outcomes = Map::new();
    for (name, fault) in faults {
        let mut sandbox = Sandbox::new(binary)?;
        let outcome = fault(&mut sandbox, rng).with_context(|| name.to_owned());
        if outcome.is_err() {
            eprintln!("sandbox kept in {}", sandbox.keep().display());
        }
        let outcome = outcome?;
        println!("{name}: {outcome}");
        outcomes.insert(name.to_owned(), outcome.into());
    }
    Ok(outcomes.into())
}

/// A hook without disk space says so on stderr and exits 0; sessions that were acknowledged are not lost.
fn state_disk_full(sandbox: &mut Sandbox, rng: &mut Rng) -> Result<String> {
    let folder = sandbox.path("state");
    let Some(_mount) = mount(&folder, "2m")? else { return Ok(SKIPPED_MOUNT.to_owned()) };
    let first = Session::new(sandbox, rng, &[1])?;
    ensure!(sandbox.hook(&first, &[])? == HookOutcome::Acknowledged, "the first hook was refused");
    sandbox.wait_until("the first capture has ended", TIMEOUT, || sandbox.is_quiet())?;
    let second = Session::new(sandbox, rng, &[2])?;
    let filler = fill(&folder)?;
    let outcome = sandbox.hook(&second, &[])?;
    // A session that was acknowledged on a full disk must be kept like any other.
    let acknowledged = outcome == HookOutcome::Acknowledged;
    wait_for_workers(sandbox)?;
    fs::remove_file(filler)?;
    let sessions =
        [EndedSession { session: first, acknowledged: true }, EndedSession { session: second, acknowledged }];
    recover(sandbox, rng, sessions.into())?;
    Ok(format!("the hook was {}", if acknowledged { "acknowledged" } else { "refused with exit 0" }))
}

/// The capture waits until the brain's disk has space again.
fn brain_disk_full(sandbox: &mut Sandbox, rng: &mut Rng) -> Result<String> {
    let Some(_mount) = mount(&sandbox.brain(), "16m")? else { return Ok(SKIPPED_MOUNT.to_owned()) };
    sandbox.run_ok(&["init"])?;
    let session = Session::new(sandbox, rng, &[1])?;
    let filler = fill(&sandbox.brain())?;
    ensure!(sandbox.hook(&session, &[])? == HookOutcome::Acknowledged, "the hook was refused");
    wait_for_workers(sandbox)?;
    let state = state_of(sandbox, &session)?;
    ensure!(state != State::Done && state != State::Nothing, "the capture was {state} on a full disk");
    fs::remove_file(filler)?;
    recover(sandbox, rng, vec![EndedSession { session, acknowledged: true }])?;
    Ok(format!("the capture was {state}, then done"))
}

fn state_read_only(sandbox: &mut Sandbox, rng: &mut Rng) -> Result<String> {
    let Some(session) = as_other_user(sandbox, rng)? else { return Ok(SKIPPED_USER.to_owned()) };
    let second = Session::new(sandbox, rng, &[2])?;
    give_to_user(&second.transcript)?;
    let folder = sandbox.state()?;
    let paths = [folder.join("queue.db"), folder.join("spool"), folder.clone()];
    let _ = fs::remove_file(folder.join("queue.db-wal"));
    let _ = fs::remove_file(folder.join("queue.db-shm"));
    paths.iter().try_for_each(|path| set_mode(path, 0o500))?;
    let outcome = sandbox.hook(&second, &[])?;
    paths.iter().rev().try_for_each(|path| set_mode(path, 0o700))?;
    ensure!(outcome == HookOutcome::Refused, "the hook was {outcome:?} in a read-only folder");
    let again = sandbox.hook(&second, &[])?;
    let sessions =
        [session, EndedSession { session: second, acknowledged: again == HookOutcome::Acknowledged }];
    recover(sandbox, rng, sessions.into())?;
    Ok("the hook was refused with exit 0, then acknowledged".to_owned())
}

fn repository_read_only(sandbox: &mut Sandbox, rng: &mut Rng) -> Result<String> {
    let Some(first) = as_other_user(sandbox, rng)? else { return Ok(SKIPPED_USER.to_owned()) };
    let second = Session::new(sandbox, rng, &[2])?;
    give_to_user(&second.transcript)?;
    let folders: Vec<PathBuf> = ["objects", "refs/heads/nugget", "refs/heads"]
        .iter()
        .map(|name| sandbox.brain().join(".git").join(name))
        .collect();
    folders.iter().try_for_each(|folder| set_mode(folder, 0o500))?;
    ensure!(sandbox.hook(&second, &[])? == HookOutcome::Acknowledged, "the hook was refused");
    // A repository that cannot be written is no fault of the capture: no attempt is counted, and it has a reason.
    let tried = || {
        let capture = capture_of(sandbox, &second)?;
        Ok(capture.reason.is_some() || matches!(capture.state, State::Retrying | State::Dead | State::Done))
    };
    let waited = sandbox.wait_until("the capture has been tried", TIMEOUT, tried);
    let state = state_of(sandbox, &second)?;
    folders.iter().try_for_each(|folder| set_mode(folder, 0o700))?;
    waited?;
    ensure!(state != State::Done, "the capture was done in a read-only repository");
    recover(sandbox, rng, vec![first, EndedSession { session: second, acknowledged: true }])?;
    Ok(format!("the capture was {state}, then done"))
}

/// Moves the timestamps of all rows and files, which is the same as a clock that jumps the other way, while
/// one capture is half done and another waits for its retry.
fn clock(sandbox: &mut Sandbox, rng: &mut Rng, sign: i64) -> Result<String> {
    let failing = [("SCRIPTED_EXTRACTION", "fail=1.0")];
    let waiting = Session::new(sandbox, rng, &[1])?;
    ensure!(sandbox.hook(&waiting, &failing)? == HookOutcome::Acknowledged, "a hook was refused");
    let retries = || Ok(state_of(sandbox, &waiting)? == State::Retrying);
    sandbox.wait_until("the capture waits for its retry", TIMEOUT, retries)?;
    for process in sandbox.processes() {
        sandbox.kill(process);
    }
    sandbox.wait_until("no process runs", TIMEOUT, || Ok(sandbox.processes().is_empty()))?;
    let broken = Session::new(sandbox, rng, &[2])?;
    let marks = sandbox.path("marks");
    fs::create_dir(&marks)?;
    let marks_folder = marks.display().to_string();
    let fatal = [("FAILPOINTS", "git-before-ref=1"), ("FAILPOINT_MARKS", marks_folder.as_str())];
    ensure!(sandbox.hook(&broken, &fatal)? == HookOutcome::Acknowledged, "a hook was refused");
    let has_died = || Ok(fs::read_dir(&marks)?.count() == 1 && sandbox.processes().is_empty());
    sandbox.wait_until("a worker has ended at the failpoint", TIMEOUT, has_died)?;

    let ten_years = Duration::from_secs(10 * 365 * 86400);
    let shift_ms = sign * i64::try_from(ten_years.as_millis())?;
    let connection = rusqlite::Connection::open(sandbox.state()?.join("queue.db"))?;
    connection.execute_batch(&format!(
        "UPDATE captures SET added_ms = added_ms + {shift_ms}, started_ms = started_ms + {shift_ms};
         UPDATE captures SET not_before_ms = not_before_ms + {shift_ms} WHERE not_before_ms > 0;
         UPDATE reports SET at_ms = at_ms + {shift_ms};"
    ))?;
    drop(connection);
    let now = SystemTime::now();
    let time = if sign > 0 { now + ten_years } else { now - ten_years };
    set_times(&sandbox.brain(), time)?;
    set_times(&sandbox.state()?, time)?;
    let sessions = [waiting, broken].map(|session| EndedSession { session, acknowledged: true });
    recover(sandbox, rng, sessions.into())?;
    Ok("both captures were done".to_owned())
}

pub(crate) const SKIPPED_MOUNT: &str = "skipped: `mount` is not permitted here";
pub(crate) const SKIPPED_USER: &str = "skipped: no other user to run as, and root may write everywhere";

/// Runs one plain hook and checks that every acknowledged session is saved.
fn recover(sandbox: &Sandbox, rng: &mut Rng, mut sessions: Vec<EndedSession>) -> Result<()> {
    let session = Session::new(sandbox, rng, &[])?;
    if sandbox.user.is_some() {
        give_to_user(&session.transcript)?;
    }
    ensure!(sandbox.hook(&session, &[])? == HookOutcome::Acknowledged, "a plain hook was refused");
    sessions.push(EndedSession { session, acknowledged: true });
    sandbox.wait_until("everything has ended after one plain hook", TIMEOUT, || sandbox.is_quiet())?;
    sandbox.run_ok(&["retry", "--all"])?;
    sandbox.wait_until("the retried captures have ended", TIMEOUT, || sandbox.is_quiet())?;
    invariants::check(sandbox, &sessions, FailedCaptures::Forbidden).map(drop)
}

/// Waits until the worker has exited, for at most five seconds: it may also wait for disk space.
fn wait_for_workers(sandbox: &Sandbox) -> Result<()> {
    let started = std::time::Instant::now();
    let have_exited = || sandbox.processes().iter().all(|process| process.kind == ProcessKind::Server);
    while !have_exited() && started.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn state_of(sandbox: &Sandbox, session: &Session) -> Result<State> {
    Ok(capture_of(sandbox, session)?.state)
}

fn capture_of(sandbox: &Sandbox, session: &Session) -> Result<queue::Capture> {
    let captures = sandbox.queue()?.captures(1000)?;
    let found = captures.into_iter().find(|capture| capture.session_id.as_str() == session.id);
    found.context("the session has no capture")
}

pub(crate) struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Mounts a small temporary file system over a folder; `None` if that is not permitted.
pub(crate) fn mount(folder: &Path, size: &str) -> Result<Option<Mount>> {
    fs::create_dir_all(folder)?;
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", &format!("size={size},mode=0700"), "tmpfs"]).arg(folder);
    let mounted = mount.output().is_ok_and(|output| output.status.success());
    Ok(mounted.then(|| Mount(folder.to_owned())))
}

/// Fills the disk completely.
pub(crate) fn fill(folder: &Path) -> Result<PathBuf> {
    let path = folder.join(".filler");
    let mut file = fs::File::create(&path)?;
    for size in [65536, 1024, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
    Ok(path)
}

/// Runs the sandbox as a user other than root, whom file modes bind, and captures a first session as that user.
fn as_other_user(sandbox: &mut Sandbox, rng: &mut Rng) -> Result<Option<EndedSession>> {
    let session = Session::new(sandbox, rng, &[1])?;
    if rustix::process::getuid().is_root() {
        let mut chown = Command::new("chown");
        let chowned =
            chown.arg("-R").arg(format!("{OTHER_USER}:{OTHER_USER}")).arg(sandbox.path("")).output();
        if !chowned.is_ok_and(|output| output.status.success()) {
            return Ok(None);
        }
        sandbox.user = Some(OTHER_USER);
    }
    let Ok(HookOutcome::Acknowledged) = sandbox.hook(&session, &[]) else { return Ok(None) };
    sandbox.wait_until("the first capture has ended", TIMEOUT, || sandbox.is_quiet())?;
    Ok(Some(EndedSession { session, acknowledged: true }))
}

pub(crate) fn give_to_user(path: &Path) -> Result<()> {
    if rustix::process::getuid().is_root() {
        std::os::unix::fs::chown(path, Some(OTHER_USER), Some(OTHER_USER))?;
    }
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).with_context(|| path.display().to_string())
}

/// Sets the modification time of every file in a folder.
fn set_times(folder: &Path, time: SystemTime) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            set_times(&entry.path(), time)?;
        } else if kind.is_file() {
            fs::File::open(entry.path())?.set_modified(time)?;
        }
    }
    Ok(())
}
