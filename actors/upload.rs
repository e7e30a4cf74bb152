//! Hands captures to a team's server after their intake, which does the rest. The queue is the spool: what the server
//! cannot take now waits in it, however long.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;

use index::{Index, UnitRecord};
use jiff::Timestamp;
use knowledge::unit::is_unreviewed;
use queue::{Claim, Finish, Ledger, Queue, Stage};
use team_client::{Capture, CurrentServer, HandOverError};
use transcript::Conversation;

use crate::background::run_blocking;
use crate::failure::{Failure, FailureClass, error_chain};
use crate::pipeline;
use crate::setup::Setup;
use crate::stage_actor::{StageWorker, Step};

#[derive(Clone)]
pub(crate) struct UploadWorker {
    pub(crate) queue: Arc<dyn Ledger>,
    pub(crate) setup: Arc<Setup>,
    pub(crate) index: Index,
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
        let (setup, index, brain) = (Arc::clone(&self.setup), self.index.clone(), server.brain().to_owned());
        let (id, input) = (claim.capture.id, claim.input.clone());
        let capture = run_blocking(move || capture_of(&setup, &index, &claim, brain)).await?;
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

/// What is sent: the conversation as intake has redacted it, without what is only of this machine. The row here keeps
/// that, for an extraction on this machine.
fn capture_of(setup: &Setup, index: &Index, claim: &Claim, brain: String) -> Result<Capture, Failure> {
    let mut conversation: Conversation = pipeline::decode(&claim.input)?;
    conversation.recalled = told_units(index, &conversation.recalled);
    let lines = Queue::open(&setup.places.queue())?.lines_of(claim.capture.id)?;
    let ended: Timestamp = conversation.ended.unwrap_or(claim.capture.added);
    let session = claim.capture.session_id.as_str();
    let intake = without_folders_above(&conversation)?;
    Ok(Capture {
        brain: Some(brain),
        project: conversation.project,
        origin: Some(claim.capture.origin.clone()),
        ..Capture::new(session, ended, lines, &intake)
    })
}

/// The ids of the brain's reviewed units in what nugget told the session: the server has their texts, and is given nothing
/// else of it, which is of memories, the archive and notes.
fn told_units(index: &Index, texts: &[String]) -> Vec<String> {
    if texts.is_empty() {
        return Vec::new();
    }
    let is_beside_id = |c: char| c.is_whitespace() || "()[]`\"',:;".contains(c);
    let words: HashSet<&str> = texts.iter().flat_map(|text| text.split(is_beside_id)).collect();
    let units = index.pin_without_vectors().and_then(|snapshot| snapshot.units()).unwrap_or_else(|error| {
        tracing::warn!(error = error_chain(&error), "failed to read which units the session was told");
        Vec::new()
    });
    let is_pending = |unit: &UnitRecord| unit.status.as_deref().is_some_and(is_unreviewed);
    let told = units.into_iter().filter(|unit| words.contains(unit.id.as_str()) && !is_pending(unit));
    told.map(|unit| unit.id.as_str().to_owned()).collect()
}

/// A conversation as JSON, in which the project's folder has the project's name and no other: those above it tell of the
/// person and of the machine.
fn without_folders_above(conversation: &Conversation) -> Result<Vec<u8>, Failure> {
    let json = pipeline::encode(conversation)?;
    let (folder, name) = (&conversation.cwd, &conversation.project);
    let (Some(folder), Some(name)) = (folder.as_deref(), name.as_deref()) else { return Ok(json) };
    // A short path is the root of a file system or a home folder's parent, and part of many others.
    if folder.matches('/').count() < 2 {
        return Ok(json);
    }
    let escaped = |text: &str| {
        let quoted = serde_json::Value::from(text).to_string();
        quoted.trim_matches('"').to_owned()
    };
    let json = String::from_utf8_lossy(&json);
    Ok(json.replace(&escaped(folder), &escaped(&format!("/projects/{name}"))).into_bytes())
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
