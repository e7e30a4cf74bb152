//! Thousands of captures wait, and one worker processes all of them with bounded memory and a bounded log.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use jiff::Timestamp;
use knowledge::SessionId;
use queue::Announcement;
use serde_json::{Value, json};

use crate::invariants::{self, EndedSession, FailedCaptures};
use crate::sandbox::{HookOutcome, ProcessKind, Sandbox, Session};

const MIB: u64 = 1 << 20;
const MEMORY_MAX: u64 = 200 * MIB;
const LOG_MAX: u64 = 16 * MIB;
/// The worker is stuck if no further capture ends within this time.
const STALL_MAX: Duration = Duration::from_secs(120);

#[derive(clap::Args)]
pub(crate) struct BacklogArgs {
    /// How many captures wait when the worker starts
    #[arg(long, default_value_t = 10_000)]
    captures: usize,
}

pub(crate) fn run(args: &BacklogArgs, binary: &Path, seed: u64) -> Result<Value> {
    println!("backlog --seed {seed}, {}", binary.display());
    let mut sandbox = Sandbox::new(binary)?;
    let result = process_backlog(args, &sandbox, &mut Rng::with_seed(seed));
    if result.is_err() {
        eprintln!("sandbox kept in {}", sandbox.keep().display());
    }
    result
}

fn process_backlog(args: &BacklogArgs, sandbox: &Sandbox, rng: &mut Rng) -> Result<Value> {
    let mut sessions = vec![ended(sandbox, rng, &[])?];
    // Creates the queue, and ends before the others are added.
    ensure!(
        sandbox.hook(&sessions[0].session, &[])? == HookOutcome::Acknowledged,
        "the first hook was refused"
    );
    sandbox.wait_until("the first capture has ended", STALL_MAX, || sandbox.is_quiet())?;
    let queue = sandbox.queue()?;
    for marker in 0..args.captures as u64 {
        // Every second session states a rule.
        let markers = if marker % 2 == 0 { vec![marker] } else { Vec::new() };
        let ended = ended(sandbox, rng, &markers)?;
        let session = SessionId::verbatim(&ended.session.id);
        let announcement = Announcement::new(session, &ended.session.transcript, "sweep");
        queue.add(&announcement, Timestamp::now())?;
        sessions.push(ended);
    }
    queue.checkpoint()?;
    println!("{} captures wait", args.captures);

    let last = ended(sandbox, rng, &[])?;
    let started = Instant::now();
    ensure!(sandbox.hook(&last.session, &[])? == HookOutcome::Acknowledged, "a hook was refused");
    sessions.push(last);
    let log = sandbox.state()?.join("queue.db-wal");
    let (mut memory, mut log_bytes) = (0, 0);
    let (mut left, mut last_progress, mut last_report) = (u64::MAX, Instant::now(), Instant::now());
    loop {
        let workers = sandbox.processes().into_iter().filter(|process| process.kind == ProcessKind::Worker);
        memory = workers.filter_map(|process| resident_max(process.pid)).fold(memory, u64::max);
        log_bytes = log_bytes.max(fs::metadata(&log).map_or(0, |metadata| metadata.len()));
        let now = queue.tally()?.unfinished();
        if now == 0 {
            break;
        }
        if now != left {
            (left, last_progress) = (now, Instant::now());
        }
        ensure!(last_progress.elapsed() < STALL_MAX, "{left} captures are stuck");
        if last_report.elapsed() > Duration::from_secs(30) {
            println!(
                "{left} captures left, {} MiB resident at most, {} MiB log",
                memory / MIB,
                log_bytes / MIB
            );
            last_report = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let seconds = started.elapsed().as_secs_f64();
    sandbox.wait_until("the worker has exited", STALL_MAX, || sandbox.is_quiet())?;
    let counts = invariants::check(sandbox, &sessions, FailedCaptures::Forbidden)?;
    ensure!(memory > 0, "no worker was seen");
    ensure!(memory < MEMORY_MAX, "the worker used {} MiB", memory / MIB);
    ensure!(log_bytes < LOG_MAX, "the log grew to {} MiB", log_bytes / MIB);
    Ok(json!({
        "captures": args.captures,
        "done": counts.done,
        "nothing": counts.nothing,
        "worker_resident_mib_max": memory / MIB,
        "log_mib_max": (log_bytes as f64 / MIB as f64 * 10.0).round() / 10.0,
        "captures_per_second": (args.captures as f64 / seconds).round(),
    }))
}

fn ended(sandbox: &Sandbox, rng: &mut Rng, markers: &[u64]) -> Result<EndedSession> {
    Ok(EndedSession { session: Session::new(sandbox, rng, markers)?, acknowledged: true })
}

/// The peak resident memory of a process in bytes; `None` if it has exited.
fn resident_max(pid: rustix::process::Pid) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB").context("not in kB").ok()?.trim().parse().ok()?;
    Some(kib * 1024)
}
