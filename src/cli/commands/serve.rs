//! `nugget serve`: the brain for Claude Code, as an MCP server on stdin and stdout.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actors::sync::BackgroundSync;
use actors::{Setup, sweep};
use jiff::Timestamp;
use queue::{FileLocks, Queue, Spool};

use crate::context::{Context, ensure_drainer};
use crate::error::CliError;

/// BackgroundSweep of servers are at least this far apart.
const SWEEP_EVERY: Duration = Duration::from_secs(40);

const AFTER: &str = "\
One tool, get_relevant_context(task_description), with files, budget_tokens and
depth for who wants them. Stdout carries the protocol and nothing else. Logs go
to a file for each day in the state folder, and to stderr with -v. It ends when
stdin does, or by a signal.

With a key (ANTHROPIC_API_KEY or the setting `model.key_file`) a model orders
what a call has found: it is sent the task and up to 20 passages, which costs
about half a cent a call (`nugget spend`) and takes 2 seconds at most;
`retrieve.rerank = \"off\"` never asks, and nothing leaves this machine.

`nugget install` makes it known to Claude Code.

Example, by hand:
  claude mcp add --scope user nugget -- nugget serve";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        let config = context.config()?;
        let brain = context.brain(&config)?;
        let setup = context.setup(&config, &brain)?;
        let _logs = context.log_to_both(&setup.places);
        let settings = mcp::Settings {
            limit: config.number("retrieve.limit") as usize,
            budget_tokens: config.number("retrieve.budget_tokens") as usize,
            look: {
                let setup = setup.clone();
                let syncs = Mutex::new(BackgroundSync::default());
                Arc::new(move || {
                    sync_if_due(&setup, &syncs);
                    work_if_due(&setup);
                })
            },
        };
        let runtime = super::ask::runtime()?;
        let served = runtime.block_on(mcp::serve(&setup, settings));
        // A read of stdin may still wait in a thread of its own; nothing is left to be done.
        runtime.shutdown_background();
        served.map_err(|error| CliError::new(format!("the server has ended: {error}")))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Looks for merges at the remote, beside everything else.
fn sync_if_due(setup: &Setup, syncs: &Mutex<BackgroundSync>) {
    if setup.delivery.sync_every.is_none() || setup.places.create().is_err() {
        return;
    }
    match Queue::open(&setup.places.queue()) {
        Ok(queue) => {
            let mut syncs = syncs.lock().unwrap_or_else(PoisonError::into_inner);
            syncs.start_if_due(setup, &queue, Timestamp::now());
        }
        Err(error) => tracing::warn!(%error, "failed to open the queue"),
    }
}

/// Starts a drainer when captures wait and nobody works on them: the last one was killed, a retry
/// has become due, or the sweep has found a session that no hook announced.
fn work_if_due(setup: &Setup) {
    let (places, brain) = (&setup.places, &setup.brain);
    let locks = FileLocks::new(places.wait_lock(), places.drain_lock());
    if locks.is_draining() {
        return;
    }
    if let Some(settings) = &setup.sweep
        && let Err(error) = sweep_if_due(settings, setup)
    {
        tracing::warn!(%error, "failed to sweep");
    }
    let spooled = Spool::new(places.spool()).list().is_ok_and(|found| !found.is_empty());
    let due = || {
        places.queue().is_file()
            && Queue::open(&places.queue()).and_then(|queue| queue.is_due(Timestamp::now())).unwrap_or(false)
    };
    if (spooled || due())
        && let Err(fault) = ensure_drainer(places, brain)
    {
        tracing::warn!(?fault, "failed to start a drainer");
    }
}

/// One sweep in a while, however many servers live.
fn sweep_if_due(settings: &sweep::Settings, setup: &Setup) -> Result<(), queue::Error> {
    let now = Timestamp::now();
    let queue = Queue::open(&setup.places.queue())?;
    if !sweep::is_recent(&queue, SWEEP_EVERY, now) {
        sweep::sweep(settings, &setup.brain, &queue, now)?;
    }
    Ok(())
}
