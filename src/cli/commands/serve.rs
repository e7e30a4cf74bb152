//! `nugget serve`: the MCP server for Claude Code, on stdin and stdout.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actors::sync::BackgroundSync;
use actors::{SettingsMark, Setup, sweep};
use brain::StatePaths;
use jiff::Timestamp;
use queue::{FileLocks, Queue, Spool};

use crate::async_runtime;
use crate::context::{Context, open_brain};
use crate::error::CliError;
use crate::spawn::ensure_worker;

/// The least time between two sweeps, however many servers run.
const SWEEP_EVERY: Duration = Duration::from_secs(40);

const AFTER: &str = "\
The server has the tool get_relevant_context(task_description), with optional
files, budget_tokens and depth. `mcp.tools` adds search_sessions, which searches
the archive of sessions, and create_note, add_link, edit_note, search_notes,
remember, recall and forget, by which Claude writes notes that wait for your
review. Stdout carries only the protocol. Logs are written to one file a day in
the state folder, and to stderr with -v. The server ends when stdin or stdout
does, or on a signal.

The server starts without a brain, too: the tool then answers what to do, and
serves the brain as soon as there is one.

With a key (ANTHROPIC_API_KEY or the setting `model.key_file`), or a model on
this machine (`model.api`), a model reranks the results of a call: it is sent
the task and up to 20 passages, which costs about half a cent per call with a
key (`nugget spend`) and takes at most 2 seconds. `retrieve.rerank = \"off\"`
turns that off; then no question is sent to a language model.

`nugget install` registers the server with Claude Code.

Example, by hand:
  claude mcp add --scope user nugget -- nugget serve";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct ServeArgs {}

impl ServeArgs {
    pub(crate) fn run(self, context: Context) -> Result<(), CliError> {
        // Where there is no brain yet, there is no folder for logs either.
        let config = context.config_and_errors().0;
        let brain = open_brain(&context.root(&config));
        let places = brain.map(|brain| StatePaths::for_brain(brain.root()));
        let places = places.ok().filter(|places| places.create().is_ok());
        let _logs = context.log_to_file_and_stderr(places.as_ref());
        let runtime = async_runtime::multi_thread()?;
        let served = runtime.block_on(mcp::serve(&config.list("mcp.tools"), move || {
            open(&context).map_err(|error| context.with_cause(error).line())
        }));
        // A thread may still be blocked in a read of stdin.
        runtime.shutdown_background();
        served.map_err(|error| CliError::new(format!("the server failed: {error}")))?;
        Ok(())
    }
}

/// The brain to serve, and how.
fn open(context: &Context) -> Result<(Setup, mcp::Settings), CliError> {
    let (config, _, places) = context.open()?;
    // A server answers without a queue, too.
    let queue = places.create().ok().and_then(|()| Queue::open(&places.queue()).ok());
    let mark = queue.and_then(|queue| SettingsMark::before_reading(config.file(), &queue).ok());
    // As a change in between counts, they are read once more.
    let (config, brain, _) = context.open()?;
    let setup = Setup { settings: mark.unwrap_or_default(), ..context.background_setup(&config, &brain)? };
    let settings = mcp::Settings {
        limit: config.number("retrieve.limit") as usize,
        budget_tokens: config.number("retrieve.budget_tokens") as usize,
        ensure_worker: {
            let setup = setup.clone();
            let syncs = Mutex::new(BackgroundSync::default());
            Arc::new(move || {
                if let Err(error) = tend(&setup, &syncs) {
                    tracing::warn!(?error, "failed to look after the queue");
                }
            })
        },
    };
    Ok((setup, settings))
}

/// Fetches merges from the remote in the background, and starts a worker if captures wait and none runs: the last
/// one was killed, a retry is due, or the sweep has found a session that the hook missed.
fn tend(setup: &Setup, syncs: &Mutex<BackgroundSync>) -> Result<(), CliError> {
    let (places, brain, now) = (&setup.places, &setup.brain, Timestamp::now());
    places.create()?;
    let queue = Queue::open(&places.queue())?;
    if setup.delivery.sync_every.is_some() {
        syncs.lock().unwrap_or_else(PoisonError::into_inner).start_if_due(setup, &queue, now);
    }
    if FileLocks::new(places.wait_lock(), places.drain_lock()).is_draining() {
        return Ok(());
    }
    if let Some(settings) = setup.sweep.as_ref().filter(|_| !sweep::is_recent(&queue, SWEEP_EVERY, now))
        && let Err(error) = sweep::sweep(settings, brain, &queue, sweep::SweepScope::Automatic, now)
    {
        tracing::warn!(%error, "failed to sweep");
    }
    let is_spooled = Spool::new(places.spool()).list().is_ok_and(|found| !found.is_empty());
    if is_spooled || queue.is_due(now)? {
        ensure_worker(places, brain)?;
    }
    Ok(())
}
