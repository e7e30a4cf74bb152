//! `nugget retry`: queues failed captures again.

use queue::Queue;

use super::completions;
use crate::context::Context;
use crate::error::{CliError, USAGE};
use crate::output;
use crate::spawn::ensure_worker;

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  nugget retry 12\n  nugget retry --all")]
pub(crate) struct RetryArgs {
    /// The capture's number, as `nugget status` shows it
    #[arg(add = clap_complete::ArgValueCompleter::new(completions::failed_captures))]
    id: Option<i64>,
    /// Retry all failed captures
    #[arg(long, conflicts_with = "id")]
    all: bool,
}

impl RetryArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        if self.id.is_none() && !self.all {
            return Err(CliError::new("no capture is given").code(USAGE).hint("give its number, or --all"));
        }
        let (_, brain, places) = context.open()?;
        places.create()?;
        let count = Queue::open(&places.queue())?.retry(self.id)?;
        ensure_worker(&places, &brain)?;
        output::print(&match count {
            0 => "no capture has failed; captures that wait for a retry are tried now\n".to_owned(),
            1 => "queued 1 capture again\n".to_owned(),
            count => format!("queued {count} captures again\n"),
        })
    }
}
