//! Finds knowledge in conversations. Owns the calls of models, their spend and their back-off.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use extract::{ExtractionContext, Extractor, KnownUnit};
use index::Index;
use knowledge::Candidate;
use queue::{Budget, Claim, Finish, Stage};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use transcript::Conversation;
use transcript::redact::redact;

use crate::embedding;
use crate::mailbox::Mailbox;
use crate::pipeline::{self, Failure, Found, Jobs, Session, Step, Worked};
use crate::purse::Purse;

pub struct Extraction;

pub enum Message {
    /// There may be conversations to look through.
    Wake,
}

#[derive(Clone)]
pub struct Arguments {
    pub jobs: Jobs,
    pub extractor: Arc<dyn Extractor>,
    pub budget: Budget,
    pub index: Index,
    /// Candidates below it are rejected.
    pub confidence_min: f64,
    pub bell: Mailbox<Message>,
    pub next: Mailbox<embedding::Message>,
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
        _: ActorRef<Message>,
        mut arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        arguments.jobs.take_over(Stage::Extraction, arguments.bell.health())?;
        Ok(State { arguments })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let health = Arc::clone(state.arguments.bell.health());
        let _busy = health.begin();
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
        let arguments = self.arguments.clone();
        let worked = pipeline::work_once(&self.arguments.jobs, Stage::Extraction, |claim| {
            pipeline::apart_async(async move { extract(arguments, &claim).await })
        })
        .await?;
        if worked == Worked::Passed(Some(Stage::Embedding)) {
            failpoint::here!("extraction-after-keep");
            self.arguments.next.ring(embedding::Message::Wake);
        }
        Ok(worked)
    }
}

async fn extract(arguments: Arguments, claim: &Claim) -> Result<Step, Failure> {
    let Arguments { jobs, extractor, budget, index, confidence_min, .. } = arguments;
    let mut conversation: Conversation = pipeline::decode(&claim.input)?;
    let session = Session {
        project: conversation.project.clone(),
        begun: conversation.started,
        ended: conversation.ended,
    };
    if conversation.session_id.is_empty() {
        conversation.session_id = claim.capture.session_id.as_str().to_owned();
    }
    let words = words(&conversation);
    let known = pipeline::blocking(move || known(&index, &words)).await;
    let waited = claim.capture.started.map_or(Duration::ZERO, |started| {
        Duration::try_from(jobs.clock.now().duration_since(started)).unwrap_or_default()
    });
    let ledger = Arc::new(Purse::new(jobs, claim.clone(), budget));
    let context = ExtractionContext { ledger, known, waited };
    let extraction = extractor.extract(&conversation, &context).await.map_err(|error| match &error {
        extract::Error::Retry { retry_after, .. } => {
            Failure { after: *retry_after, ..Failure::passing(&error) }
        }
        extract::Error::Permanent { .. } => Failure::permanent(&error),
    })?;
    let (mut candidates, mut rejected) = (Vec::new(), extraction.rejected);
    for rejected in &mut rejected {
        cleaned(&mut rejected.title);
        cleaned(&mut rejected.reason);
    }
    for mut candidate in extraction.candidates {
        without_secrets(&mut candidate);
        if candidate.confidence < confidence_min {
            let reason = format!("confidence {:.2} is below {confidence_min:.2}", candidate.confidence);
            rejected.push(knowledge::Rejected { title: candidate.title, reason });
        } else {
            candidates.push(candidate);
        }
    }
    if candidates.is_empty() {
        let mut reason = extraction.empty_reason.unwrap_or_else(|| match rejected.len() {
            0 => "no knowledge was found".to_owned(),
            count => format!("{count} candidates were rejected, the first: {}", rejected[0].reason),
        });
        cleaned(&mut reason);
        return Ok(Step::End(Finish::Nothing { reason }));
    }
    let found = Found { session, candidates, rejected, by: extraction.extractor, ..Found::default() };
    failpoint::here!("extraction-before-keep");
    Ok(Step::Next(Stage::Embedding, pipeline::encode(&found)?))
}

/// Extractors see no secret and check what a model gives back. Here, before anything is kept, it is
/// made sure of once more, whoever the extractor is: a title becomes a file's name and a slug.
fn without_secrets(candidate: &mut Candidate) {
    let Candidate { domain, title, description, body, tags, evidence, .. } = candidate;
    for text in [domain, title, description, body].into_iter().chain(tags) {
        cleaned(text);
    }
    for evidence in evidence {
        cleaned(&mut evidence.excerpt);
    }
}

fn cleaned(text: &mut String) {
    if let Cow::Owned(clean) = redact(text) {
        *text = clean;
    }
}

/// How many units of the brain a model is told of.
const KNOWN_MAX: usize = 150;
/// How much of what people said decides which.
const TURNS_LOOKED_AT_MAX: usize = 500;

/// What people said, as far as it decides what a model is told of.
fn words(conversation: &Conversation) -> Vec<String> {
    let words = conversation.human_words().take(TURNS_LOOKED_AT_MAX);
    words.map(|text| text.chars().take(2_000).collect()).collect()
}

/// What the brain holds already. Without an index a model is told of nothing, and relates nothing.
fn known(index: &Index, said: &[String]) -> Vec<KnownUnit> {
    let units = match index.pin().and_then(|pinned| pinned.units()) {
        Ok(units) => units,
        Err(error) => {
            tracing::warn!(error = pipeline::chain(&error), "failed to look up what is known");
            return Vec::new();
        }
    };
    let units = units.into_iter().map(|unit| KnownUnit {
        id: unit.id.as_str().to_owned(),
        title: unit.title,
        description: unit.description.unwrap_or_default(),
    });
    nearest(units.collect(), said)
}

/// What a model would be told of, of all that the brain holds.
pub fn select_known_units(units: Vec<KnownUnit>, conversation: &Conversation) -> Vec<KnownUnit> {
    nearest(units, &words(conversation))
}

/// All of a small brain, and of a large one what shares the most words with what people said.
fn nearest(units: Vec<KnownUnit>, said: &[String]) -> Vec<KnownUnit> {
    let canonical = said.iter().map(|text| knowledge::text::canonical(text)).collect::<Vec<_>>().join(" ");
    let said: HashSet<&str> = canonical.split(' ').filter(|word| word.chars().count() > 3).collect();
    let mut known: Vec<(usize, KnownUnit)> = units
        .into_iter()
        .map(|unit| {
            let about = knowledge::text::canonical(&format!("{} {}", unit.title, unit.description));
            let shared = about.split(' ').filter(|word| said.contains(word)).count();
            (shared, unit)
        })
        .collect();
    known.sort_by(|(a, one), (b, other)| b.cmp(a).then_with(|| one.id.cmp(&other.id)));
    known.into_iter().take(KNOWN_MAX).map(|(_, known)| known).collect()
}
