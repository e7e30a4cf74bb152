//! `nugget retry`: queues failed captures again.

use jiff::Timestamp;
use queue::{Queue, State};
use serde_json::json;
use team_client::CurrentServer;

use super::completions;
use crate::context::Context;
use crate::error::{CliError, USAGE};
use crate::lookup;
use crate::output::{self, counted};
use crate::spawn::{ensure_worker, renew_worker};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  nugget retry 12\n  nugget retry ad5139ef      # by its session\n  nugget retry --all\n  nugget retry --handed-over"
)]
pub(crate) struct RetryArgs {
    /// The capture's number, or the beginning of its session's id, as `nugget status` shows them
    #[arg(value_name = "CAPTURE", add = clap_complete::ArgValueCompleter::new(completions::failed_captures))]
    capture: Option<String>,
    /// Retry all failed captures
    #[arg(long, conflicts_with = "capture")]
    all: bool,
    /// Hand over again what a team's server was given within 7 days, as after its restore from a backup
    #[arg(long, conflicts_with_all = ["capture", "all"])]
    handed_over: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl RetryArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        if self.capture.is_none() && !self.all && !self.handed_over {
            return Err(CliError::new("no capture is given").code(USAGE).hint("give its number, or --all"));
        }
        let (_, brain, places) = context.open()?;
        places.create()?;
        if self.handed_over && !CurrentServer::new(places.folder()).is_set() {
            return Err(CliError::new("this brain belongs to no server: there is none to hand over to").hint(
                "`nugget login URL` first; what was handed over to a former server is that server's to review",
            ));
        }
        let queue = Queue::open(&places.queue())?;
        let capture = self.capture.as_deref().map(|given| lookup::capture(&queue, given)).transpose()?;
        // What made a capture fail or wait, such as a key in the environment, may have been put right since.
        renew_worker(&places, &brain)?;
        let count = match self.handed_over {
            true => queue.upload_again(Timestamp::now())?,
            false => queue.retry(capture.as_ref().map(|capture| capture.id))?,
        };
        ensure_worker(&places, &brain)?;
        if self.json {
            return output::print_json(
                &json!({ "capture": capture.map(|capture| capture.id), "queued": count }),
            );
        }
        output::print(&match count {
            0 if let Some(capture) = capture.filter(|capture| capture.state.is_final()) => {
                let state = match capture.state {
                    State::Nothing => "its session held nothing new".to_owned(),
                    state => format!("it is {state}"),
                };
                format!("nothing was queued: capture {} has not failed, {state}\n", capture.id)
            }
            0 if self.handed_over => "nothing was handed over within 7 days\n".to_owned(),
            0 => "no capture has failed; captures that wait for a retry are tried now\n".to_owned(),
            count => format!("queued {} again\n", counted(count as u64, "capture")),
        })
    }
}
