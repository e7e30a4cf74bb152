//! Extracts knowledge by rules alone: offline, without a key, deterministic.
//!
//! Each family of detectors has its own file. A detector records what it found, and what it rejected with the
//! reason. Duplicates are merged, text that nugget recalled in the session is dropped, and the strongest
//! few are proposed.

mod causes;
mod command;
mod decisions;
mod detection;
mod fixes;
mod merge;
mod recipes;
mod rules;
mod session;
mod vocabulary;

use async_trait::async_trait;
use knowledge::Rejected;
use knowledge::text::one_line;
use transcript::{Conversation, EventKind};

use crate::filter::{CANDIDATES_MAX, REJECTED_MAX};
use crate::{Error, Extraction, ExtractionContext, Extractor};
use detection::Detections;
use session::Session;

const NAME: &str = "heuristic";

/// Extracts by rules, without a key, a network or a model.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeuristicExtractor;

#[async_trait]
impl Extractor for HeuristicExtractor {
    fn name(&self) -> &str {
        NAME
    }

    async fn extract(&self, conversation: &Conversation, _: &ExtractionContext) -> Result<Extraction, Error> {
        Ok(extract_by_rules(conversation))
    }
}

/// Extracts by rules. Never fails: without a lesson the extraction says why.
pub(crate) fn extract_by_rules(conversation: &Conversation) -> Extraction {
    let session = Session::from_conversation(conversation);
    let mut detections = Detections::default();
    rules::detect(&session, &mut detections);
    decisions::detect(&session, &mut detections);
    causes::detect(&session, &mut detections);
    fixes::detect(&session, &mut detections);
    recipes::detect(&session, &mut detections);

    drop_small_talk(&mut detections);
    merge::drop_recalled(conversation, &mut detections);
    merge::merge_duplicates(&mut detections);
    detections.found.sort_by(|a, b| b.confidence.total_cmp(&a.confidence).then(a.event.cmp(&b.event)));
    for weak in detections.found.split_off(detections.found.len().min(CANDIDATES_MAX)) {
        detections.reject(&weak.title, "the session has stronger candidates");
    }
    let candidates: Vec<_> =
        detections.found.into_iter().map(|detection| detection.into_candidate(&session)).collect();
    let mut rejected = detections.rejected;
    rejected.truncate(REJECTED_MAX);
    let empty_reason = candidates.is_empty().then(|| describe_why_empty(conversation, &rejected));
    Extraction { candidates, rejected, empty_reason, extractor: NAME.to_owned() }
}

/// Drops detections that are not about technical work.
///
/// "Let's keep spreading kindness" has the form of a decision. An instruction stays regardless of its topic:
/// "always answer in German" is worth remembering.
fn drop_small_talk(detections: &mut Detections) {
    for detection in std::mem::take(&mut detections.found) {
        if rules::is_order(&detection) || vocabulary::is_technical(&detection.statement) {
            detections.found.push(detection);
        } else {
            detections.reject(&detection.title, "small talk");
        }
    }
}

fn describe_why_empty(conversation: &Conversation, rejected: &[Rejected]) -> String {
    let turns = conversation.human_words().count();
    let turns = if turns == 1 { "1 turn".to_owned() } else { format!("{turns} turns") };
    match rejected {
        [] if conversation.events.is_empty() => "nothing was said".to_owned(),
        [] if !conversation.events.iter().any(|event| matches!(event.kind, EventKind::Human { .. })) => {
            "no person said anything in it".to_owned()
        }
        [] => format!("no decision, fix or rule was stated in {turns}"),
        [one, rest @ ..] => {
            let more =
                if rest.is_empty() { String::new() } else { format!(", and {} more like it", rest.len()) };
            format!(
                "nothing in {turns} was worth a review: \"{}\" was left out ({}){more}",
                one_line(&one.title, 80),
                one.reason
            )
        }
    }
}

#[cfg(test)]
mod tests;
