//! Hands captures to a team's server after their intake, which does the rest. The queue is the spool: what the server
//! cannot take now waits in it, however long.

use std::convert::Infallible;
use std::sync::Arc;

use jiff::Timestamp;
use queue::{Claim, Finish, Ledger, Queue, Stage};
use team_client::{Capture, CurrentServer, HandOverError};

use crate::background::run_blocking;
use crate::failure::{Failure, FailureClass, error_chain};
use crate::pipeline;
use crate::setup::Setup;
use crate::stage_actor::{StageWorker, Step};

#[derive(Clone)]
pub(crate) struct UploadWorker {
    pub(crate) queue: Arc<dyn Ledger>,
    pub(crate) setup: Arc<Setup>,
    pub(crate) server: CurrentServer,
}

impl StageWorker for UploadWorker {
    const STAGE: Stage = Stage::Upload;
    type Request = Infallible;

    async fn work(&self, claim: Claim) -> Result<Step, Failure> {
        let server = self.server.get();
        let server =
            server.map_err(|error| Failure::new(FailureClass::BlocksStage(None), error_chain(&error)))?;
        let Some(server) = server else {
            // The login was removed since the intake.
            return Ok(Step::Next(Stage::Extraction, claim.input));
        };
        let (setup, brain) = (Arc::clone(&self.setup), server.brain().to_owned());
        let (id, input) = (claim.capture.id, claim.input.clone());
        let capture = run_blocking(move || capture_of(&setup, &claim, brain)).await?;
        let receipt = match server.client.hand_over(&capture).await {
            // Better proposed by this machine than by none.
            Err(HandOverError::TooLarge { why }) => {
                tracing::warn!(
                    capture = id,
                    error = why,
                    "too large for the team server; extracted on this machine"
                );
                return Ok(Step::Next(Stage::Extraction, input));
            }
            receipt => receipt?,
        };
        let queue = self.queue.clone();
        run_blocking(move || queue.resume(Stage::Upload)).await?;
        let receipt =
            format!("handed over as capture {} of {} to {}", receipt.id, receipt.brain, server.url());
        Ok(Step::End(Finish::Uploaded { receipt }, None))
    }
}

/// What is sent: the conversation as intake has redacted it.
fn capture_of(setup: &Setup, claim: &Claim, brain: String) -> Result<Capture, Failure> {
    let conversation: transcript::Conversation = pipeline::decode(&claim.input)?;
    let lines = Queue::open(&setup.places.queue())?.lines_of(claim.capture.id)?;
    let ended: Timestamp = conversation.ended.unwrap_or(claim.capture.added);
    let session = claim.capture.session_id.as_str();
    Ok(Capture {
        brain: Some(brain),
        project: conversation.project,
        origin: Some(claim.capture.origin.clone()),
        ..Capture::new(session, ended, lines, &claim.input)
    })
}

impl From<HandOverError> for Failure {
    fn from(error: HandOverError) -> Self {
        match error {
            // Whoever is not answered for one capture is not for the next.
            HandOverError::Retry { after, why } => Self::new(FailureClass::BlocksStage(Some(after)), why),
            HandOverError::Blocked { why } => Self::new(FailureClass::BlocksStage(None), why),
            HandOverError::NotTaken { why } => Self::new(FailureClass::Waits, why),
            HandOverError::Refused { why } | HandOverError::TooLarge { why } => Self::permanent(why),
        }
    }
}
