//! `nugget serve`: the brain for Claude Code, as an MCP server on stdin and stdout.

use std::process::ExitCode;
use std::sync::Arc;

use brain::{Brain, Places};
use jiff::Timestamp;
use queue::{FileLocks, Queue, Spool};

use crate::fault::Fault;
use crate::session::{Door, ensure_drainer};

const AFTER: &str = "\
One tool, get_relevant_context(task_description). Stdout carries the protocol and nothing else; logs
go to stderr with -v. It ends when stdin does.

Example:
  claude mcp add --scope user nugget -- nugget serve";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {}

impl Arguments {
    pub(crate) fn run(self, door: &Door) -> Result<ExitCode, Fault> {
        door.log_to_stderr();
        let config = door.config()?;
        let brain = door.brain(&config)?;
        let setup = door.setup(&config, &brain)?;
        let settings = mcp::Settings {
            limit: config.number("retrieve.limit") as usize,
            budget_tokens: config.number("retrieve.budget_tokens") as usize,
            look: {
                let places = setup.places.clone();
                Arc::new(move || work_if_due(&places, &brain))
            },
        };
        let runtime = super::ask::runtime()?;
        let served = runtime.block_on(mcp::serve(&setup, settings));
        // A read of stdin may still wait in a thread of its own; nothing is left to be done.
        runtime.shutdown_background();
        served.map_err(|error| Fault::new(format!("the server has ended: {error}")))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Starts a drainer when captures wait and nobody works on them: the last one was killed, or a retry
/// has become due.
fn work_if_due(places: &Places, brain: &Brain) {
    let locks = FileLocks::new(places.wait_lock(), places.drain_lock());
    if locks.is_draining() {
        return;
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
