//! Captures that laptops hand over.

use std::time::Duration;

use knowledge::SessionId;
use server::{Brain, CaptureError, CaptureId, CaptureState, Identity, NewCapture, Unavailable};
use team::{BrainId, ServerId, TeamLedger, TeamStore};
use transcript::Conversation;

use crate::access::unavailable;

/// The origins of what a laptop hands over, the usual one first. What has one of the others is treated otherwise: it is
/// pushed again after its branch was deleted, or called an edit.
const ORIGINS: [&str; 3] = [queue::ORIGIN_HOOK, queue::ORIGIN_COMMAND, queue::ORIGIN_SWEEP];

pub(crate) struct TeamCaptures {
    pub(crate) store: TeamStore,
    pub(crate) server: ServerId,
    pub(crate) lease: Duration,
}

impl TeamCaptures {
    fn ledger(&self, brain: server::BrainId) -> TeamLedger {
        TeamLedger::new(self.store.clone(), BrainId(brain.0), self.server, self.lease)
    }
}

impl server::Captures for TeamCaptures {
    fn accept(
        &self,
        identity: &Identity,
        brain: &Brain,
        capture: NewCapture,
    ) -> Result<(CaptureState, bool), CaptureError> {
        // What cannot be read would fail at extraction, where nobody who could fix it sees it.
        let conversation: Conversation = serde_json::from_slice(&capture.intake).map_err(|_| {
            CaptureError::Unacceptable("the intake is no conversation of this version of nugget".to_owned())
        })?;
        if conversation.events.is_empty() {
            return Err(CaptureError::Unacceptable("the conversation is empty".to_owned()));
        }
        let session = SessionId::verbatim(capture.session);
        let origin = ORIGINS.into_iter().find(|origin| capture.origin.as_deref() == Some(*origin));
        let accepted = self
            .ledger(brain.id)
            .accept(&team::NewCapture {
                key: capture.key.0,
                session: &session,
                project: capture.project.as_deref(),
                ended: Some(capture.ended),
                lines: &capture.lines,
                body: &capture.intake,
                subject: &identity.subject,
                origin: origin.unwrap_or(ORIGINS[0]),
            })
            .map_err(|error| match error {
                team::Error::Brain { .. } => CaptureError::UnknownBrain,
                error => unavailable(error).into(),
            })?;
        let id = CaptureId(accepted.id);
        let known = self.state(brain, id)?;
        let state =
            known.unwrap_or(CaptureState { id, brain: brain.slug.clone(), state: "queued".to_owned() });
        Ok((state, accepted.is_new))
    }

    fn find(&self, identity: &Identity, id: CaptureId) -> Result<Option<CaptureState>, Unavailable> {
        for brain in &identity.brains {
            if let Some(found) = self.state(brain, id)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

impl TeamCaptures {
    fn state(&self, brain: &Brain, id: CaptureId) -> Result<Option<CaptureState>, Unavailable> {
        use queue::Ledger as _;

        let capture = self.ledger(brain.id).capture(id.0).map_err(unavailable)?;
        Ok(capture.map(|capture| {
            let state = if capture.state.is_final() {
                capture.state.as_str().to_owned()
            } else {
                capture.stage.as_str().to_owned()
            };
            CaptureState { id, brain: brain.slug.clone(), state }
        }))
    }
}
