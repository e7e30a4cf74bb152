//! Starts background processes of this program: the worker of a brain's queue, and an index build.

use std::process::{Child, Command, Stdio};

use brain::{Brain, StatePaths};
use jiff::{SignedDuration, Timestamp};
use queue::{FileLocks, Queue, Spool};

use crate::error::CliError;
use crate::integration::find_on_path;

/// A request from one environment counts once in this time: a worker that each new request made read its settings again,
/// before it has begun anything, would never begin.
const RENEWAL_EVERY: SignedDuration = SignedDuration::from_secs(2);

/// Starts a worker unless one is waiting for its turn already. It outlives this process, its terminal and its
/// client.
///
/// The lock of the waiting slot is passed on as the child's standard input, so that it is held at every
/// moment. The child starts a session of its own and passes the work on to a child of *its* own: a client
/// that kills a hook with all its descendants does not find that one.
pub(crate) fn ensure_worker(standbys: &StatePaths, brain: &Brain) -> Result<(), CliError> {
    let locks = FileLocks::new(standbys.wait_lock(), standbys.drain_lock());
    let Some(standby) = locks.try_standby_lock()? else { return Ok(()) };
    failpoint::here!("hook-before-spawn");
    let mut intermediate = spawn("drain", standby.into_stdin(), brain, &["--detach"])?;
    // It ends at once. Who waits for a capture starts several, which must not stay as zombies; a hook is gone before.
    let _ = std::thread::Builder::new().spawn(move || intermediate.wait());
    Ok(())
}

/// Has the worker that runs, or is about to, hand over to one with the settings and the environment of now, as soon as it
/// is not at work. Does nothing where there has been none.
pub(crate) fn renew_worker(places: &StatePaths, brain: &Brain) -> Result<(), CliError> {
    if queue::is_held(&places.drain_lock()) {
        ensure_worker(places, brain)?;
    }
    if places.queue().is_file() {
        let (queue, now, environment) =
            (Queue::open(&places.queue())?, Timestamp::now(), environment_digest());
        let is_asked = queue.last_report(actors::RENEWAL_REPORT)?.is_some_and(|(_, asked, by)| {
            by == environment && now.duration_since(asked).abs() < RENEWAL_EVERY
        });
        if !is_asked {
            queue.report(actors::RENEWAL_REPORT, &environment, now)?;
        }
    }
    Ok(())
}

/// A name for the variables of this process, which may hold secrets.
fn environment_digest() -> String {
    let mut variables: Vec<_> = std::env::vars_os().collect();
    variables.sort_unstable();
    let mut hasher = blake3::Hasher::new();
    for text in variables.iter().flat_map(|(name, value)| [name, value]) {
        hasher.update(text.as_encoded_bytes()).update(&[0]);
    }
    hasher.finalize().to_hex().to_string()
}

/// Takes what hooks have left in the spool into the queue, and starts a worker for it. A command that looks at the
/// spool does so: no other hook may ever come. Creates nothing where the spool is empty; a failure leaves the files
/// where they are, for the next one.
pub(crate) fn take_in_spooled(places: &StatePaths, brain: &Brain) {
    let spool = Spool::new(places.spool());
    let take_in = || -> Result<(), CliError> {
        if spool.list()?.is_empty() {
            return Ok(());
        }
        Queue::open(&places.queue())?.add_spooled(&spool, Timestamp::now())?;
        ensure_worker(places, brain)
    };
    if let Err(error) = take_in() {
        tracing::warn!(error = error.line(), "failed to queue what is in the spool");
    }
}

/// Starts the worker itself; its standard input holds the lock of the waiting slot.
pub(crate) fn spawn_worker(stdin: Stdio, brain: &Brain) -> std::io::Result<()> {
    spawn("drain", stdin, brain, &[]).map(drop)
}

/// Starts `nugget index --background`, which outlives this process and its terminal.
pub(crate) fn spawn_indexer(brain: &Brain) -> std::io::Result<()> {
    spawn("index", Stdio::null(), brain, &["--background"]).map(drop)
}

fn spawn(command: &str, stdin: Stdio, brain: &Brain, flags: &[&str]) -> std::io::Result<Child> {
    let own = system::process::own_program()?;
    // One that was moved elsewhere by an update.
    let program = if own.exists() { own } else { find_on_path("nugget").unwrap_or(own) };
    Command::new(program)
        .arg(command)
        .arg("--brain")
        .arg(brain.root())
        .args(flags)
        .current_dir("/")
        .stdin(stdin)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}
