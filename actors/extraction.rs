//! Finds knowledge in conversations. Owns the calls of models, their spend and their back-off.

use std::sync::Arc;

use extract::Extractor;
use queue::{Claim, Finish, Stage};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use transcript::Conversation;

use crate::address::Address;
use crate::embedding;
use crate::stage::{self, Failure, Found, Jobs, Session, Step, Worked};

pub struct Extraction;

pub enum Message {
    /// There may be conversations to look through.
    Wake,
}

#[derive(Clone)]
pub struct Arguments {
    pub jobs: Jobs,
    pub extractor: Arc<dyn Extractor>,
    /// Candidates below it are rejected.
    pub confidence_min: f64,
    pub bell: Address<Message>,
    pub next: Address<embedding::Message>,
}

pub struct State {
    arguments: Arguments,
}

impl Actor for Extraction {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        mut arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        arguments.jobs.take_over(Stage::Extraction, arguments.bell.vitals())?;
        arguments.bell.first_ring(&myself, Message::Wake)?;
        Ok(State { arguments })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let vitals = Arc::clone(state.arguments.bell.vitals());
        let _busy = vitals.begin();
        match message {
            Message::Wake => {
                state.arguments.bell.answer();
                if state.extract_one().await? != Worked::Idle {
                    state.arguments.bell.ring_again(&myself, Message::Wake);
                }
            }
        }
        Ok(())
    }
}

impl State {
    async fn extract_one(&mut self) -> Result<Worked, ActorProcessingErr> {
        let Arguments { extractor, confidence_min, .. } = self.arguments.clone();
        let worked = stage::work_once(&self.arguments.jobs, Stage::Extraction, |claim| {
            stage::apart_async(async move { extract(&*extractor, confidence_min, &claim).await })
        })
        .await?;
        if worked == Worked::Passed(Some(Stage::Embedding)) {
            failpoint::here!("extraction-after-keep");
            self.arguments.next.ring(embedding::Message::Wake);
        }
        Ok(worked)
    }
}

async fn extract(extractor: &dyn Extractor, confidence_min: f64, claim: &Claim) -> Result<Step, Failure> {
    let mut conversation: Conversation = stage::decode(&claim.input)?;
    let session = Session { project: conversation.project.clone(), ended: conversation.ended };
    if conversation.session_id.is_empty() {
        conversation.session_id = claim.capture.session_id.as_str().to_owned();
    }
    let extraction = extractor.extract(&conversation).await.map_err(|error| match &error {
        extract::Error::Retry { after, .. } => Failure { after: *after, ..Failure::passing(&error) },
        extract::Error::Permanent { .. } => Failure::permanent(&error),
    })?;
    let (mut candidates, mut rejected) = (Vec::new(), extraction.rejected);
    for candidate in extraction.candidates {
        if candidate.confidence < confidence_min {
            let reason = format!("confidence {:.2} is below {confidence_min:.2}", candidate.confidence);
            rejected.push(knowledge::Rejected { title: candidate.title, reason });
        } else {
            candidates.push(candidate);
        }
    }
    if candidates.is_empty() {
        let reason = extraction.nothing.unwrap_or_else(|| match rejected.len() {
            0 => "no knowledge was found".to_owned(),
            count => format!("{count} candidates were rejected, the first: {}", rejected[0].reason),
        });
        return Ok(Step::End(Finish::Nothing { reason }));
    }
    let found = Found { session, candidates, rejected, by: extraction.by, vectors: Vec::new() };
    failpoint::here!("extraction-before-keep");
    Ok(Step::Next(Stage::Embedding, stage::encode(&found)?))
}
