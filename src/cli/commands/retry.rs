//! `nugget retry` and `nugget forget-capture`: second thoughts about the ledger.

use std::process::ExitCode;

use brain::StatePaths;
use queue::Queue;

use crate::context::{Context, ensure_drainer};
use crate::error::{CliError, USAGE};
use crate::output;

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  nugget retry 12\n  nugget retry --all")]
pub(crate) struct Retry {
    /// The capture's number, as `nugget status` shows it
    #[arg(add = clap_complete::ArgValueCompleter::new(super::completions::dead_captures))]
    id: Option<i64>,
    /// All dead captures
    #[arg(long, conflicts_with = "id")]
    all: bool,
}

impl Retry {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        if self.id.is_none() && !self.all {
            return Err(CliError::new("which capture?").code(USAGE).hint("give its number, or --all"));
        }
        let config = context.config()?;
        let brain = context.brain(&config)?;
        let places = StatePaths::for_brain(brain.root());
        places.create()?;
        let count = Queue::open(&places.queue())?.retry(self.id)?;
        ensure_drainer(&places, &brain)?;
        output::print(&match count {
            0 => "no capture was dead; whatever waits for a retry is tried now\n".to_owned(),
            1 => "1 capture is queued again\n".to_owned(),
            count => format!("{count} captures are queued again\n"),
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  nugget forget-capture 12")]
pub(crate) struct Forget {
    /// The capture's number, as `nugget status` shows it
    #[arg(add = clap_complete::ArgValueCompleter::new(super::completions::all_captures))]
    id: i64,
}

impl Forget {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        let config = context.config()?;
        let brain = context.brain(&config)?;
        let places = StatePaths::for_brain(brain.root());
        places.create()?;
        Queue::open(&places.queue())?.forget(self.id)?;
        output::print(&format!("capture {} is forgotten; a branch it made is still there\n", self.id))?;
        Ok(ExitCode::SUCCESS)
    }
}
