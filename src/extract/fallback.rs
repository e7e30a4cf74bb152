//! The extractor that is asked: a model where one is at hand, the rules otherwise, and whenever a
//! model cannot do it.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use transcript::Conversation;

use crate::filter::{CANDIDATES_MAX, reject};
use crate::heuristic;
use crate::model_extractor::{ModelExtractor, Reading};
use crate::{Error, Extraction, ExtractionContext, Extractor};

/// How long a session waits for a model that is busy or out of reach.
const WAITS_FOR_MODEL: Duration = Duration::from_secs(6 * 60 * 60);
/// The title under which it is said that the rules did a model's work.
const SAID_AS: &str = "(how this session was read)";

/// Models in the order in which they are preferred, then the rules.
pub struct FallbackExtractor {
    models: Vec<ModelExtractor>,
    /// What to say when the model that was asked for by name is not at hand; its failure is an error.
    strict: Option<&'static str>,
}

impl FallbackExtractor {
    /// The first model that is ready reads; the rules do where none is or where it fails for good.
    pub fn with_models(models: Vec<ModelExtractor>) -> Self {
        Self { models, strict: None }
    }

    /// This model and no other, or `otherwise` as the reason why a capture is a dead letter. The
    /// rules take over only when the budget is spent.
    pub fn strict(model: Option<ModelExtractor>, otherwise: &'static str) -> Self {
        Self { models: model.into_iter().collect(), strict: Some(otherwise) }
    }

    async fn ready(&self) -> Option<&ModelExtractor> {
        for model in &self.models {
            if model.backend().is_ready().await {
                return Some(model);
            }
        }
        None
    }

    async fn read_by(
        &self,
        model: &ModelExtractor,
        conversation: &Conversation,
        context: &ExtractionContext,
    ) -> Result<Extraction, Error> {
        let name = model.backend().name();
        let Reading { mut extraction, unread, why, over_budget } =
            match model.read(conversation, context).await {
                Ok(reading) => reading,
                Err(Error::Retry { message, .. })
                    if context.waited > WAITS_FOR_MODEL && self.strict.is_none() =>
                {
                    return Ok(by_rules(conversation, &format!("{message}, for more than six hours")));
                }
                // Asked for by name, it is tried to the end; then a person must look.
                Err(Error::Retry { message, source, .. }) if context.waited > WAITS_FOR_MODEL => {
                    return Err(Error::Retry { message, retry_after: None, source });
                }
                Err(error) => return Err(error),
            };
        if unread.is_empty() {
            return Ok(extraction);
        }
        let why = why.join("; ");
        let all = unread.len() >= conversation.events.len();
        tracing::warn!(backend = name, why, all, "a session was not read by the model");
        if self.strict.is_some() && !over_budget {
            if all {
                return Err(Error::Permanent { message: why, source: None });
            }
            say(&mut extraction, &format!("a part of it was read by nobody: {why}"));
            return Ok(extraction);
        }
        if all {
            return Ok(by_rules(conversation, &why));
        }
        let unread: HashSet<usize> = unread.into_iter().collect();
        let events = conversation.events.iter().enumerate().filter(|(at, _)| unread.contains(at));
        let rest =
            Conversation { events: events.map(|(_, event)| event.clone()).collect(), ..conversation.clone() };
        for candidate in heuristic::extract(&rest).candidates {
            let is_new = !extraction
                .candidates
                .iter()
                .any(|known| heuristic::is_same_lesson(&known.title, &candidate.title));
            if is_new && extraction.candidates.len() < CANDIDATES_MAX {
                extraction.candidates.push(candidate);
            }
        }
        say(&mut extraction, &format!("a part of it was read by rules: {why}"));
        Ok(extraction)
    }
}

#[async_trait]
impl Extractor for FallbackExtractor {
    fn name(&self) -> &str {
        "auto"
    }

    async fn extract(
        &self,
        conversation: &Conversation,
        context: &ExtractionContext,
    ) -> Result<Extraction, Error> {
        if conversation.human_words().next().is_none() {
            // Nobody said anything: not worth a call, and the rules know how to say so.
            return Ok(heuristic::extract(conversation));
        }
        match (self.ready().await, self.strict) {
            (Some(model), _) => self.read_by(model, conversation, context).await,
            (None, Some(otherwise)) => Err(Error::Permanent { message: otherwise.to_owned(), source: None }),
            (None, None) => Ok(heuristic::extract(conversation)),
        }
    }
}

fn by_rules(conversation: &Conversation, why: &str) -> Extraction {
    let mut extraction = heuristic::extract(conversation);
    say(&mut extraction, &format!("read by rules and not by a model: {why}"));
    extraction
}

/// Tells the reviewer, and the ledger when there is nothing to review.
fn say(extraction: &mut Extraction, what: &str) {
    extraction.rejected.truncate(crate::filter::REJECTED_MAX - 1);
    reject(&mut extraction.rejected, SAID_AS, what);
    if let Some(reason) = &mut extraction.empty_reason {
        reason.push_str(&format!(" ({what})"));
    }
}

#[cfg(test)]
mod tests;
