//! Reads with a model where one is available, and with the rules otherwise.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use knowledge::Candidate;
use transcript::Conversation;

use crate::filter::{CANDIDATES_MAX, REJECTED_MAX, is_duplicate, reject, reject_duplicate};
use crate::heuristic::extract_by_rules;
use crate::model_extractor::{ModelExtractor, ModelReading};
use crate::{Error, Extraction, ExtractionContext, Extractor};

/// How long a session waits for a model that is busy or out of reach.
const MODEL_WAIT_MAX: Duration = Duration::from_secs(6 * 60 * 60);
/// The title of the rejection that tells a reviewer how the session was read.
const NOTE_TITLE: &str = "(how this session was read)";

/// Asks models in order of preference, and falls back to the rules.
pub struct FallbackExtractor {
    models: Vec<ModelExtractor>,
    /// In strict mode, the error when the model is not available.
    unavailable: Option<String>,
    /// Why a model that is wanted is not among them.
    missing: Option<String>,
}

impl FallbackExtractor {
    /// Reads with the first model that is ready; with the rules where none is, or where it fails permanently.
    pub fn with_models(models: Vec<ModelExtractor>) -> Self {
        Self { models, unavailable: None, missing: None }
    }

    /// Says in the note of a session that no model has read why there is none; without it the rules read silently.
    pub fn noting(self, missing: Option<String>) -> Self {
        Self { missing, ..self }
    }

    /// Reads with this model only. If it is not available, a capture fails with the message `unavailable`.
    ///
    /// The rules take over only when the budget is spent.
    pub fn strict(model: Option<ModelExtractor>, unavailable: impl Into<String>) -> Self {
        Self { models: model.into_iter().collect(), unavailable: Some(unavailable.into()), missing: None }
    }

    /// The first model that is ready. The error is retried: which one to read with cannot be told at present.
    async fn first_ready(&self) -> Result<Option<&ModelExtractor>, Error> {
        for model in &self.models {
            match model.backend().is_ready().await {
                Ok(true) => return Ok(Some(model)),
                Ok(false) => {}
                Err(why) => return Err(model.retry(format!("{}: {why}", model.backend().name()))),
            }
        }
        Ok(None)
    }

    async fn read_with_model(
        &self,
        model: &ModelExtractor,
        conversation: &Conversation,
        context: &ExtractionContext,
    ) -> Result<Extraction, Error> {
        let is_strict = self.unavailable.is_some();
        let waited_enough = context.waited > MODEL_WAIT_MAX;
        let ModelReading { mut extraction, is_any_read, unread_events, reasons, is_over_budget } =
            match model.read(conversation, context, waited_enough && !is_strict).await {
                Ok(reading) => reading,
                // Without a time to come back, the attempts are counted, and the capture fails in the end.
                Err(Error::Retry { message, source, .. }) if waited_enough => {
                    return Err(Error::Retry { message, retry_after: None, source });
                }
                Err(error) => return Err(error),
            };
        if unread_events.is_empty() {
            return Ok(extraction);
        }
        let reason = reasons.join("; ");
        let is_all = !is_any_read;
        tracing::warn!(
            backend = model.backend().name(),
            reason,
            is_all,
            "the model did not read the whole session"
        );
        if is_strict && !is_over_budget {
            if is_all {
                return Err(Error::Permanent { message: reason, source: None });
            }
            add_note(&mut extraction, &format!("a part of it was not read: {reason}"));
            return Ok(extraction);
        }
        if is_all {
            return Ok(read_by_rules(conversation, &reason));
        }
        let unread: HashSet<usize> = unread_events.into_iter().collect();
        let events = conversation.events.iter().enumerate().filter(|(at, _)| unread.contains(at));
        let rest =
            Conversation { events: events.map(|(_, event)| event.clone()).collect(), ..conversation.clone() };
        let Extraction { candidates, extractor, .. } = extract_by_rules(&rest);
        for candidate in candidates {
            let Extraction { candidates, rejected, .. } = &mut extraction;
            match candidates.iter().find(|known| is_duplicate(known, &candidate)) {
                Some(known) => reject_duplicate(rejected, &candidate, known),
                None if candidates.len() < CANDIDATES_MAX => {
                    candidates.push(Candidate { source: Some(extractor.clone()), ..candidate });
                }
                None => reject(rejected, &candidate.title, "the session has stronger candidates"),
            }
        }
        add_note(&mut extraction, &format!("a part of it was read by rules: {reason}"));
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
            // Not worth a call; the rules say why there is nothing.
            return Ok(extract_by_rules(conversation));
        }
        let ready = match self.first_ready().await {
            // As where a model is busy for so long.
            Err(Error::Retry { message, source, .. }) if context.waited > MODEL_WAIT_MAX => {
                return match &self.unavailable {
                    Some(_) => Err(Error::Retry { message, retry_after: None, source }),
                    None => Ok(read_by_rules(conversation, &message)),
                };
            }
            ready => ready?,
        };
        match (ready, &self.unavailable) {
            (Some(model), _) => self.read_with_model(model, conversation, context).await,
            (None, Some(message)) => Err(Error::Permanent { message: message.clone(), source: None }),
            (None, None) => Ok(match &self.missing {
                Some(missing) => read_by_rules(conversation, missing),
                None => extract_by_rules(conversation),
            }),
        }
    }
}

fn read_by_rules(conversation: &Conversation, reason: &str) -> Extraction {
    let mut extraction = extract_by_rules(conversation);
    add_note(&mut extraction, &format!("read by rules and not by a model: {reason}"));
    extraction
}

/// Adds a note for the reviewer, and to the reason why there is nothing to review.
fn add_note(extraction: &mut Extraction, note: &str) {
    extraction.rejected.truncate(REJECTED_MAX - 1);
    reject(&mut extraction.rejected, NOTE_TITLE, note);
    if let Some(reason) = &mut extraction.empty_reason {
        reason.push_str(&format!(" ({note})"));
    }
    extraction.unread = Some(note.to_owned());
}

#[cfg(test)]
mod tests;
