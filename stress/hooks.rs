//! How long a session's end takes: from the start of the hook's process to its end.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::machine::{Hooked, Machine, Random, Session};
use crate::times::{Times, ratio};

const PATIENCE: Duration = Duration::from_secs(120);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many sessions end at once
    #[arg(long, default_value_t = 64)]
    sessions: usize,
    /// How often they do
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// How often a session ends alone
    #[arg(long, default_value_t = 200)]
    alone: usize,
}

pub(crate) fn run(arguments: &Arguments, program: &Path, seed: u64) -> Result<Value> {
    println!("hooks --seed {seed}, {}", program.display());
    let mut random = Random::new(seed);
    let machine = Machine::new(program)?;
    let mut session = || Session::new(&machine, &mut random, &[]);
    let ended = || Ok(machine.state().is_ok() && machine.is_quiet()?);
    ensure!(machine.hook(&session()?, &[])? == Hooked::Acknowledged, "the first hook was refused");
    machine.until("the first capture has ended", PATIENCE, ended)?;

    // In turns, so that a noisy neighbour falls upon all three alike.
    let (mut nothing, mut row, mut alone) = (Times::default(), Times::default(), Times::default());
    let database = machine.path("one.db");
    for _ in 0..arguments.alone {
        nothing.time(|| Ok(Command::new("true").status()?.success()))?;
        row.time(|| {
            Ok(Command::new(std::env::current_exe()?).arg("insert").arg(&database).status()?.success())
        })?;
        let session = session()?;
        alone.time(|| Ok(machine.hook(&session, &[])? == Hooked::Acknowledged))?;
        machine.until("the capture has ended", PATIENCE, ended)?;
    }

    let (mut many, mut many_rows) = (Times::default(), Times::default());
    for _ in 0..arguments.rounds {
        let sessions = (0..arguments.sessions).map(|_| session()).collect::<Result<Vec<_>>>()?;
        at_once(&sessions, &mut many, |session| Ok(machine.hook(session, &[])? == Hooked::Acknowledged))?;
        machine.until("the captures have ended", PATIENCE, ended)?;
        at_once(&sessions, &mut many_rows, |_| {
            let mut insert = Command::new(std::env::current_exe()?);
            Ok(insert.arg("insert").arg(&database).stdin(Stdio::null()).status()?.success())
        })?;
    }
    let left = machine.queue()?.tally()?;
    let sent = (arguments.alone + arguments.rounds * arguments.sessions + 1) as u64;
    ensure!(left.nothing == sent, "{sent} hooks were told that their session is kept, {left:?}");
    Ok(json!({
        "true_process": nothing.told(),
        "insert_process": row.told(),
        "alone": alone.told(),
        "alone_p50_to_true": ratio(&alone, &nothing, 50),
        "alone_p50_to_insert": ratio(&alone, &row, 50),
        "at_once": many.told(),
        "insert_at_once": many_rows.told(),
        "at_once_p99_to_insert": ratio(&many, &many_rows, 99),
        "hooks": sent,
        "every_hook_exited_0": true,
    }))
}

fn at_once(
    sessions: &[Session],
    times: &mut Times,
    work: impl Fn(&Session) -> Result<bool> + Sync,
) -> Result<()> {
    let barrier = Barrier::new(sessions.len());
    let taken = std::thread::scope(|scope| {
        let threads: Vec<_> = sessions
            .iter()
            .map(|session| {
                let (barrier, work) = (&barrier, &work);
                scope.spawn(move || {
                    barrier.wait();
                    let mut one = Times::default();
                    one.time(|| work(session)).map(|()| one)
                })
            })
            .collect();
        let fell = |_| anyhow::anyhow!("a hook's thread fell");
        threads.into_iter().map(|thread| thread.join().map_err(fell)?).collect::<Result<Vec<_>>>()
    })?;
    times.0.extend(taken.into_iter().flat_map(|one| one.0));
    Ok(())
}

/// What every durable hook pays: a process, and one row in a database.
pub(crate) fn insert(path: &Path) -> Result<Value> {
    let connection = rusqlite::Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0;
         CREATE TABLE IF NOT EXISTS t (x); INSERT INTO t VALUES ('x');",
    )?;
    Ok(Value::Null)
}
