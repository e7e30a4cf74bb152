//! Measures the SessionEnd hook, from the start of its process to its end.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::Duration;

use anyhow::{Result, ensure};
use fastrand::Rng;
use serde_json::{Value, json};

use crate::sandbox::{HookOutcome, Sandbox, Session};
use crate::timing::{Durations, ratio};

const TIMEOUT: Duration = Duration::from_secs(120);

#[derive(clap::Args)]
pub(crate) struct HooksArgs {
    /// How many sessions end at once
    #[arg(long, default_value_t = 64)]
    sessions: usize,
    /// How many times that is repeated
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// How many sessions end alone
    #[arg(long, default_value_t = 200)]
    alone: usize,
}

pub(crate) fn run(args: &HooksArgs, binary: &Path, seed: u64) -> Result<Value> {
    println!("hooks --seed {seed}, {}", binary.display());
    let mut rng = Rng::with_seed(seed);
    let sandbox = Sandbox::new(binary)?;
    let mut session = || Session::new(&sandbox, &mut rng, &[]);
    let is_idle = || Ok(sandbox.state().is_ok() && sandbox.is_quiet()?);
    ensure!(sandbox.hook(&session()?, &[])? == HookOutcome::Acknowledged, "the first hook was refused");
    sandbox.wait_until("the first capture has ended", TIMEOUT, is_idle)?;

    // In turns, so that other load on the computer affects all three alike.
    let (mut true_process, mut insert, mut alone) =
        (Durations::default(), Durations::default(), Durations::default());
    let database = sandbox.path("one.db");
    for _ in 0..args.alone {
        true_process.measure_ok(|| Ok(Command::new("true").status()?.success()))?;
        insert.measure_ok(|| {
            Ok(Command::new(std::env::current_exe()?).arg("insert").arg(&database).status()?.success())
        })?;
        let session = session()?;
        alone.measure_ok(|| Ok(sandbox.hook(&session, &[])? == HookOutcome::Acknowledged))?;
        sandbox.wait_until("the capture has ended", TIMEOUT, is_idle)?;
    }

    let (mut at_once, mut insert_at_once) = (Durations::default(), Durations::default());
    for _ in 0..args.rounds {
        let sessions = (0..args.sessions).map(|_| session()).collect::<Result<Vec<_>>>()?;
        run_at_once(&sessions, &mut at_once, |session| {
            Ok(sandbox.hook(session, &[])? == HookOutcome::Acknowledged)
        })?;
        sandbox.wait_until("the captures have ended", TIMEOUT, is_idle)?;
        run_at_once(&sessions, &mut insert_at_once, |_| {
            let mut insert = Command::new(std::env::current_exe()?);
            Ok(insert.arg("insert").arg(&database).stdin(Stdio::null()).status()?.success())
        })?;
    }
    let left = sandbox.queue()?.tally()?;
    let sent = (args.alone + args.rounds * args.sessions + 1) as u64;
    ensure!(left.nothing == sent, "{sent} hooks acknowledged their session, {left:?}");
    Ok(json!({
        "true_process": true_process.summary(),
        "insert_process": insert.summary(),
        "alone": alone.summary(),
        "alone_p50_to_true": ratio(&alone, &true_process, 50),
        "alone_p50_to_insert": ratio(&alone, &insert, 50),
        "at_once": at_once.summary(),
        "insert_at_once": insert_at_once.summary(),
        "at_once_p99_to_insert": ratio(&at_once, &insert_at_once, 99),
        "hooks": sent,
        "every_hook_exited_0": true,
    }))
}

/// Runs `work` for all sessions at the same moment, each on its own thread.
fn run_at_once(
    sessions: &[Session],
    times: &mut Durations,
    work: impl Fn(&Session) -> Result<bool> + Sync,
) -> Result<()> {
    let barrier = Barrier::new(sessions.len());
    let measured = std::thread::scope(|scope| {
        let threads: Vec<_> = sessions
            .iter()
            .map(|session| {
                let (barrier, work) = (&barrier, &work);
                scope.spawn(move || {
                    barrier.wait();
                    let mut one = Durations::default();
                    one.measure_ok(|| work(session)).map(|()| one)
                })
            })
            .collect();
        let panicked = |_| anyhow::anyhow!("a hook's thread panicked");
        threads.into_iter().map(|thread| thread.join().map_err(panicked)?).collect::<Result<Vec<_>>>()
    })?;
    times.0.extend(measured.into_iter().flat_map(|one| one.0));
    Ok(())
}

/// The work that any durable hook needs: one row in a SQLite database.
pub(crate) fn insert(path: &Path) -> Result<Value> {
    let connection = rusqlite::Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0;
         CREATE TABLE IF NOT EXISTS t (x); INSERT INTO t VALUES ('x');",
    )?;
    Ok(Value::Null)
}
