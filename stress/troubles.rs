//! Disks that are full, permissions that are taken away, clocks that jump: each in a machine of its
//! own, recovered from by one plain hook.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use queue::State;
use serde_json::{Map, Value};

use crate::audit::{Deaths, Ended, audit};
use crate::machine::{Hooked, Kind, Machine, Random, Session};

const PATIENCE: Duration = Duration::from_secs(90);
/// Nobody, wherever there is one.
const OTHER_USER: u32 = 65534;

type Trouble = fn(&mut Machine, &mut Random) -> Result<String>;

/// What came of each; why one was skipped.
pub(crate) fn all(program: &Path, random: &mut Random) -> Result<Value> {
    let troubles: [(&str, Trouble); 6] = [
        ("state_disk_full", state_disk_full),
        ("brain_disk_full", brain_disk_full),
        ("state_read_only", state_read_only),
        ("repository_read_only", repository_read_only),
        ("clock_back_ten_years", |machine, random| clock(machine, random, 1)),
        ("clock_on_ten_years", |machine, random| clock(machine, random, -1)),
    ];
    let mut told = Map::new();
    for (name, trouble) in troubles {
        let mut machine = Machine::new(program)?;
        let outcome = trouble(&mut machine, random).with_context(|| name.to_owned());
        if outcome.is_err() {
            eprintln!("the machine is kept in {}", machine.keep().display());
        }
        let outcome = outcome?;
        println!("{name}: {outcome}");
        told.insert(name.to_owned(), outcome.into());
    }
    Ok(told.into())
}

/// The hook says on stderr that there is no room, exits 0, and does its work once there is.
fn state_disk_full(machine: &mut Machine, random: &mut Random) -> Result<String> {
    let folder = machine.path("state");
    let Some(_mount) = mount(&folder, "2m")? else { return Ok(SKIPPED_MOUNT.to_owned()) };
    let first = Session::new(machine, random, &[1])?;
    ensure!(machine.hook(&first, &[])? == Hooked::Acknowledged, "the first hook was refused");
    machine.until("the first capture has ended", PATIENCE, || machine.is_quiet())?;
    let second = Session::new(machine, random, &[2])?;
    let filler = fill(&folder)?;
    let hooked = machine.hook(&second, &[])?;
    // What is acknowledged on a full disk must be as durable as any other.
    let acknowledged = hooked == Hooked::Acknowledged;
    settle_processes(machine)?;
    fs::remove_file(filler)?;
    let sessions = [Ended { session: first, acknowledged: true }, Ended { session: second, acknowledged }];
    recover(machine, random, sessions.into())?;
    Ok(format!("the hook was {}", if acknowledged { "acknowledged" } else { "refused with exit 0" }))
}

/// The capture waits for room.
fn brain_disk_full(machine: &mut Machine, random: &mut Random) -> Result<String> {
    let Some(_mount) = mount(&machine.brain(), "16m")? else { return Ok(SKIPPED_MOUNT.to_owned()) };
    machine.ok(&["init"])?;
    let session = Session::new(machine, random, &[1])?;
    let filler = fill(&machine.brain())?;
    ensure!(machine.hook(&session, &[])? == Hooked::Acknowledged, "the hook was refused");
    settle_processes(machine)?;
    let state = state_of(machine, &session)?;
    ensure!(state != State::Done && state != State::Nothing, "it was {state} without room");
    fs::remove_file(filler)?;
    recover(machine, random, vec![Ended { session, acknowledged: true }])?;
    Ok(format!("the capture was {state}, then done"))
}

fn state_read_only(machine: &mut Machine, random: &mut Random) -> Result<String> {
    let Some(session) = as_other_user(machine, random)? else { return Ok(SKIPPED_USER.to_owned()) };
    let second = Session::new(machine, random, &[2])?;
    own(&second.transcript)?;
    let folder = machine.state()?;
    let paths = [folder.join("queue.db"), folder.join("spool"), folder.clone()];
    let _ = fs::remove_file(folder.join("queue.db-wal"));
    let _ = fs::remove_file(folder.join("queue.db-shm"));
    paths.iter().try_for_each(|path| allow(path, 0o500))?;
    let hooked = machine.hook(&second, &[])?;
    paths.iter().rev().try_for_each(|path| allow(path, 0o700))?;
    ensure!(hooked == Hooked::Refused, "the hook was {hooked:?} in a folder that nobody may write");
    let again = machine.hook(&second, &[])?;
    let sessions = [session, Ended { session: second, acknowledged: again == Hooked::Acknowledged }];
    recover(machine, random, sessions.into())?;
    Ok("the hook was refused with exit 0, then acknowledged".to_owned())
}

fn repository_read_only(machine: &mut Machine, random: &mut Random) -> Result<String> {
    let Some(first) = as_other_user(machine, random)? else { return Ok(SKIPPED_USER.to_owned()) };
    let second = Session::new(machine, random, &[2])?;
    own(&second.transcript)?;
    let folders: Vec<PathBuf> = ["objects", "refs/heads/nugget", "refs/heads"]
        .iter()
        .map(|name| machine.brain().join(".git").join(name))
        .collect();
    folders.iter().try_for_each(|folder| allow(folder, 0o500))?;
    ensure!(machine.hook(&second, &[])? == Hooked::Acknowledged, "the hook was refused");
    let failed = || {
        let state = state_of(machine, &second)?;
        Ok(matches!(state, State::Retrying | State::Dead | State::Done))
    };
    let waited = machine.until("the capture has been tried", PATIENCE, failed);
    let state = state_of(machine, &second)?;
    folders.iter().try_for_each(|folder| allow(folder, 0o700))?;
    waited?;
    ensure!(state != State::Done, "it was done in a repository that nobody may write");
    recover(machine, random, vec![first, Ended { session: second, acknowledged: true }])?;
    Ok(format!("the capture was {state}, then done"))
}

/// A clock that jumps is the same as stamps that move the other way: those of the rows and of the
/// files. A capture is in the middle of its work, another waits for its retry.
fn clock(machine: &mut Machine, random: &mut Random, sign: i64) -> Result<String> {
    let failing = [("SCRIPTED_EXTRACTION", "fail=1.0")];
    let waiting = Session::new(machine, random, &[1])?;
    ensure!(machine.hook(&waiting, &failing)? == Hooked::Acknowledged, "a hook was refused");
    let retries = || Ok(state_of(machine, &waiting)? == State::Retrying);
    machine.until("the capture waits for its retry", PATIENCE, retries)?;
    for process in machine.processes() {
        machine.kill(process);
    }
    machine.until("nobody works", PATIENCE, || Ok(machine.processes().is_empty()))?;
    let broken = Session::new(machine, random, &[2])?;
    let marks = machine.path("marks");
    fs::create_dir(&marks)?;
    let marks_folder = marks.display().to_string();
    let fatal = [("FAILPOINTS", "git-before-ref=return"), ("FAILPOINT_MARKS", marks_folder.as_str())];
    ensure!(machine.hook(&broken, &fatal)? == Hooked::Acknowledged, "a hook was refused");
    let died = || Ok(fs::read_dir(&marks)?.count() == 1 && machine.processes().is_empty());
    machine.until("a drainer has died at its work", PATIENCE, died)?;

    let ten_years = Duration::from_secs(10 * 365 * 86400);
    let shift_ms = sign * i64::try_from(ten_years.as_millis())?;
    let connection = rusqlite::Connection::open(machine.state()?.join("queue.db"))?;
    connection.execute_batch(&format!(
        "UPDATE captures SET added_ms = added_ms + {shift_ms}, started_ms = started_ms + {shift_ms};
         UPDATE captures SET not_before_ms = not_before_ms + {shift_ms} WHERE not_before_ms > 0;
         UPDATE reports SET at_ms = at_ms + {shift_ms};"
    ))?;
    drop(connection);
    let now = SystemTime::now();
    let time = if sign > 0 { now + ten_years } else { now - ten_years };
    stamp(&machine.brain(), time)?;
    stamp(&machine.state()?, time)?;
    let sessions = [waiting, broken].map(|session| Ended { session, acknowledged: true });
    recover(machine, random, sessions.into())?;
    Ok("both captures were done".to_owned())
}

const SKIPPED_MOUNT: &str = "skipped: a small disk needs `mount`, which is not permitted here";
const SKIPPED_USER: &str = "skipped: another user is needed, as root may write everywhere";

/// One plain hook, and all that was acknowledged is saved.
fn recover(machine: &Machine, random: &mut Random, mut sessions: Vec<Ended>) -> Result<()> {
    let session = Session::new(machine, random, &[])?;
    if machine.user.is_some() {
        own(&session.transcript)?;
    }
    ensure!(machine.hook(&session, &[])? == Hooked::Acknowledged, "a plain hook was refused");
    sessions.push(Ended { session, acknowledged: true });
    machine.until("one plain hook has everything finished", PATIENCE, || machine.is_quiet())?;
    machine.ok(&["retry", "--all"])?;
    machine.until("the dead have ended otherwise", PATIENCE, || machine.is_quiet())?;
    audit(machine, &sessions, Deaths::Forbidden).map(drop)
}

/// Waits until the drainer has gone or has failed for good: it may wait for room.
fn settle_processes(machine: &Machine) -> Result<()> {
    let begun = std::time::Instant::now();
    let gone = || machine.processes().iter().all(|process| process.kind == Kind::Server);
    while !gone() && begun.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn state_of(machine: &Machine, session: &Session) -> Result<State> {
    let captures = machine.queue()?.captures(1000)?;
    let found = captures.iter().find(|capture| capture.session_id.as_str() == session.id);
    Ok(found.context("the session has no capture")?.state)
}

struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A small disk of its own over a folder; `None` where that is not permitted.
fn mount(folder: &Path, size: &str) -> Result<Option<Mount>> {
    fs::create_dir_all(folder)?;
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", &format!("size={size},mode=0700"), "tmpfs"]).arg(folder);
    let mounted = mount.output().is_ok_and(|output| output.status.success());
    Ok(mounted.then(|| Mount(folder.to_owned())))
}

/// Fills the disk to its last byte.
fn fill(folder: &Path) -> Result<PathBuf> {
    let path = folder.join(".filler");
    let mut file = fs::File::create(&path)?;
    for size in [65536, 1024, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
    Ok(path)
}

/// Gives the machine to a user whom modes bind, and captures a first session as that one.
fn as_other_user(machine: &mut Machine, random: &mut Random) -> Result<Option<Ended>> {
    let session = Session::new(machine, random, &[1])?;
    if rustix::process::getuid().is_root() {
        let mut chown = Command::new("chown");
        let chowned =
            chown.arg("-R").arg(format!("{OTHER_USER}:{OTHER_USER}")).arg(machine.path("")).output();
        if !chowned.is_ok_and(|output| output.status.success()) {
            return Ok(None);
        }
        machine.user = Some(OTHER_USER);
    }
    let Ok(Hooked::Acknowledged) = machine.hook(&session, &[]) else { return Ok(None) };
    machine.until("the first capture has ended", PATIENCE, || machine.is_quiet())?;
    Ok(Some(Ended { session, acknowledged: true }))
}

fn own(path: &Path) -> Result<()> {
    if rustix::process::getuid().is_root() {
        std::os::unix::fs::chown(path, Some(OTHER_USER), Some(OTHER_USER))?;
    }
    Ok(())
}

fn allow(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).with_context(|| path.display().to_string())
}

/// Sets the time of every file in a folder.
fn stamp(folder: &Path, time: SystemTime) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            stamp(&entry.path(), time)?;
        } else if kind.is_file() {
            fs::File::open(entry.path())?.set_modified(time)?;
        }
    }
    Ok(())
}
