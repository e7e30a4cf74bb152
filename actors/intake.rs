//! Reads transcripts: redacted, and without what was captured before.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use queue::{Claim, Finish, Ledger, Stage};
use team_client::CurrentServer;
use transcript::Exclude;

use crate::background::run_blocking;
use crate::failure::{Failure, error_chain};
use crate::pipeline;
use crate::stage_actor::{StageWorker, Step};
use crate::sweep;

#[derive(Clone)]
pub(crate) struct IntakeWorker {
    pub(crate) queue: Arc<dyn Ledger>,
    /// The team's server that does what follows, if the brain belongs to one.
    pub(crate) server: CurrentServer,
    /// The projects whose sessions are left alone.
    pub(crate) exclude: Exclude,
}

impl StageWorker for IntakeWorker {
    const STAGE: Stage = Stage::Intake;
    type Request = Infallible;

    async fn work(&self, claim: Claim) -> Result<Step, Failure> {
        let queue = self.queue.clone();
        let next = if self.server.is_set() { Stage::Upload } else { Stage::Extraction };
        let exclude = self.exclude.clone();
        run_blocking(move || read(&*queue, &claim, &exclude, next)).await
    }

    fn committed(&self) {
        failpoint::here!("intake-after-advance");
    }
}

fn read(queue: &dyn Ledger, claim: &Claim, exclude: &Exclude, next: Stage) -> Result<Step, Failure> {
    let path = Path::new(&claim.capture.transcript);
    let capture = claim.capture.id;
    // A line that cannot be looked up counts as new: it is checked once more as it is taken.
    let is_known = |line: &str| queue.is_taken(capture, line).unwrap_or(false);
    let reading = match archive::read_conversation(path, &is_known) {
        Ok(reading) => reading,
        // The client announces sessions that never had a transcript, and deletes old ones.
        Err(transcript::Error::Missing { .. }) => {
            return Ok(Step::end_with_nothing("there is no transcript".to_owned()));
        }
        Err(error @ transcript::Error::NotAFile { .. }) => {
            return Err(Failure::permanent(error_chain(&error)));
        }
        Err(error) => return Err(Failure::retryable(error_chain(&error))),
    };
    failpoint::here!("intake-after-read");
    let tally = &reading.counts;
    tracing::info!(
        capture,
        lines = tally.lines,
        conversation = tally.conversation,
        known = tally.known,
        own = tally.own,
        malformed = tally.malformed,
        "read a transcript"
    );
    let seen = reading.stamp.as_ref().map(sweep::seen);
    let recorded = reading.conversation.cwd.as_deref().map(Path::new);
    if [claim.capture.cwd.as_deref(), recorded].into_iter().flatten().any(|cwd| exclude.covers(cwd)) {
        let reason = "capture.exclude covers the session's project".to_owned();
        return Ok(Step::End(Finish::Nothing { reason }, seen));
    }
    if reading.is_ignored {
        let reason = "the project's .nuggetignore excludes its sessions".to_owned();
        return Ok(Step::End(Finish::Nothing { reason }, seen));
    }
    if reading.conversation.events.is_empty() {
        let reason = match tally {
            tally if tally.bytes == 0 => "the transcript is empty".to_owned(),
            tally if tally.known > 0 => format!("nothing new: {} lines were captured before", tally.known),
            tally if tally.lines > 0 && tally.malformed == tally.lines => {
                format!("no line of the transcript can be read ({} are malformed)", tally.malformed)
            }
            tally => format!("no conversation in {} lines", tally.lines),
        };
        return Ok(Step::End(Finish::Nothing { reason }, seen));
    }
    let body = pipeline::encode(&reading.conversation)?;
    failpoint::here!("intake-before-advance");
    Ok(Step::NextWithLines(next, body, reading.lines, seen))
}
