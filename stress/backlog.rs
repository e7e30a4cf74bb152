//! A long absence: thousands of captures wait, and one drainer works through all of them within its
//! memory and with a log that does not grow.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use knowledge::SessionId;
use queue::Announcement;
use serde_json::{Value, json};

use crate::audit::{Deaths, Ended, audit};
use crate::machine::{Hooked, Kind, Machine, Random, Session};

const MIB: u64 = 1 << 20;
const MEMORY_MAX: u64 = 200 * MIB;
const LOG_MAX: u64 = 16 * MIB;
/// Without one more capture done in it, the drainer is stuck.
const STANDSTILL_MAX: Duration = Duration::from_secs(120);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many captures wait when the drainer comes
    #[arg(long, default_value_t = 10_000)]
    captures: usize,
}

pub(crate) fn run(arguments: &Arguments, program: &Path, seed: u64) -> Result<Value> {
    println!("backlog --seed {seed}, {}", program.display());
    let mut machine = Machine::new(program)?;
    let result = work(arguments, &machine, &mut Random::new(seed));
    if result.is_err() {
        eprintln!("the machine is kept in {}", machine.keep().display());
    }
    result
}

fn work(arguments: &Arguments, machine: &Machine, random: &mut Random) -> Result<Value> {
    let mut sessions = vec![ended(machine, random, &[])?];
    // Makes the queue, and is done with before the others come.
    ensure!(machine.hook(&sessions[0].session, &[])? == Hooked::Acknowledged, "the first hook was refused");
    machine.until("the first capture has ended", STANDSTILL_MAX, || machine.is_quiet())?;
    let queue = machine.queue()?;
    for marker in 0..arguments.captures as u64 {
        // Every second session has something to keep.
        let markers = if marker % 2 == 0 { vec![marker] } else { Vec::new() };
        let ended = ended(machine, random, &markers)?;
        let session = SessionId::verbatim(&ended.session.id);
        let announcement = Announcement::new(session, &ended.session.transcript, "sweep");
        queue.add(&announcement, Timestamp::now())?;
        sessions.push(ended);
    }
    queue.checkpoint()?;
    println!("{} captures wait", arguments.captures);

    let last = ended(machine, random, &[])?;
    let begun = Instant::now();
    ensure!(machine.hook(&last.session, &[])? == Hooked::Acknowledged, "a hook was refused");
    sessions.push(last);
    let log = machine.state()?.join("queue.db-wal");
    let (mut memory, mut log_bytes) = (0, 0);
    let (mut left, mut moved, mut told) = (u64::MAX, Instant::now(), Instant::now());
    loop {
        let drainers = machine.processes().into_iter().filter(|process| process.kind == Kind::Drainer);
        memory = drainers.filter_map(|process| resident_max(process.pid)).fold(memory, u64::max);
        log_bytes = log_bytes.max(fs::metadata(&log).map_or(0, |metadata| metadata.len()));
        let now = queue.tally()?.unfinished();
        if now == 0 {
            break;
        }
        if now != left {
            (left, moved) = (now, Instant::now());
        }
        ensure!(moved.elapsed() < STANDSTILL_MAX, "{left} captures are stuck");
        if told.elapsed() > Duration::from_secs(30) {
            println!(
                "{left} captures left, {} MiB resident at most, {} MiB log",
                memory / MIB,
                log_bytes / MIB
            );
            told = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let seconds = begun.elapsed().as_secs_f64();
    machine.until("the drainer has gone", STANDSTILL_MAX, || machine.is_quiet())?;
    let counts = audit(machine, &sessions, Deaths::Forbidden)?;
    ensure!(memory > 0, "no drainer was seen at its work");
    ensure!(memory < MEMORY_MAX, "the drainer took {} MiB", memory / MIB);
    ensure!(log_bytes < LOG_MAX, "the log grew to {} MiB", log_bytes / MIB);
    Ok(json!({
        "captures": arguments.captures,
        "done": counts.done,
        "nothing": counts.nothing,
        "drainer_resident_max_mib": memory / MIB,
        "log_max_mib": (log_bytes as f64 / MIB as f64 * 10.0).round() / 10.0,
        "captures_per_second": (arguments.captures as f64 / seconds).round(),
    }))
}

fn ended(machine: &Machine, random: &mut Random, markers: &[u64]) -> Result<Ended> {
    Ok(Ended { session: Session::new(machine, random, markers)?, acknowledged: true })
}

/// The most that a process has had in memory, in bytes; `None` when it has gone.
fn resident_max(pid: rustix::process::Pid) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB").context("not in kB").ok()?.trim().parse().ok()?;
    Some(kib * 1024)
}
