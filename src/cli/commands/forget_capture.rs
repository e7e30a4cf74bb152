//! `nugget forget-capture`: deletes a capture's record from the queue.

use jiff::Timestamp;
use queue::Queue;

use super::completions;
use crate::context::Context;
use crate::error::CliError;
use crate::output;

#[derive(clap::Args)]
#[command(after_help = "Example:\n  nugget forget-capture 12")]
pub(crate) struct ForgetCaptureArgs {
    /// The capture's number, as `nugget status` shows it
    #[arg(add = clap_complete::ArgValueCompleter::new(completions::all_captures))]
    id: i64,
}

impl ForgetCaptureArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let (_, _, places) = context.open()?;
        places.create()?;
        Queue::open(&places.queue())?.forget(self.id, Timestamp::now())?;
        output::print(&format!(
            "deleted the record of capture {}; its branch, if there is one, is kept\n",
            self.id
        ))
    }
}
