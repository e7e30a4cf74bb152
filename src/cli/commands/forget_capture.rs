//! `nugget forget-capture`: deletes a capture's record from the queue.

use git::Repository;
use jiff::Timestamp;
use queue::Queue;
use serde_json::json;

use super::completions;
use crate::context::Context;
use crate::error::CliError;
use crate::{lookup, output};

#[derive(clap::Args)]
#[command(after_help = "Example:\n  nugget forget-capture 12")]
pub(crate) struct ForgetCaptureArgs {
    /// The capture's number, or the beginning of its session's id, as `nugget status` shows them
    #[arg(value_name = "CAPTURE", add = clap_complete::ArgValueCompleter::new(completions::all_captures))]
    capture: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ForgetCaptureArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let (_, brain, places) = context.open()?;
        places.create()?;
        let queue = Queue::open(&places.queue())?;
        let capture = lookup::capture(&queue, &self.capture)?;
        let now = Timestamp::now();
        queue.forget(capture.id, now)?;
        // The session may be captured again, on a branch of this name: what was decided about one that is gone says
        // nothing of that.
        let repository = Repository::open(brain.root())?;
        if let Some(branch) = &capture.branch
            && queue.capture_of_branch(branch)?.is_none()
            && repository.tip(branch)?.is_none()
            && repository.remote_tip(branch)?.is_none()
        {
            queue.forget_branch(branch, now)?;
        }
        if self.json {
            let session = &capture.session_id;
            return output::print_json(
                &json!({ "capture": capture.id, "session_id": session, "branch": capture.branch }),
            );
        }
        output::print(&format!(
            "deleted the record of capture {}; its branch, if there is one, is kept\n",
            capture.id
        ))
    }
}
