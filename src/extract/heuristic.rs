//! Finds knowledge by rules alone: offline, without a key, the same every time.
//!
//! One file for each family of detectors. A detector adds what it found, or what it nearly took and
//! why it did not; what is found by two of them is merged, what nugget itself recalled in the session
//! is dropped, and the strongest few are proposed.

mod causes;
mod decisions;
mod finding;
mod fixes;
mod merge;
mod prose;
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
use finding::Findings;
pub(crate) use merge::{Recalled, is_same_lesson};
use session::Session;
pub(crate) use session::reports_failure;

const NAME: &str = "heuristic";

/// The extractor that needs nothing: no key, no network, no model.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeuristicExtractor;

#[async_trait]
impl Extractor for HeuristicExtractor {
    fn name(&self) -> &str {
        NAME
    }

    async fn extract(&self, conversation: &Conversation, _: &ExtractionContext) -> Result<Extraction, Error> {
        Ok(extract(conversation))
    }
}

pub(crate) fn extract(conversation: &Conversation) -> Extraction {
    let session = Session::of(conversation);
    let mut findings = Findings::default();
    rules::find(&session, &mut findings);
    decisions::find(&session, &mut findings);
    causes::find(&session, &mut findings);
    fixes::find(&session, &mut findings);
    recipes::find(&session, &mut findings);

    drop_small_talk(&mut findings);
    merge::drop_recalled(conversation, &mut findings);
    merge::duplicates(&mut findings);
    findings.found.sort_by(|a, b| b.confidence.total_cmp(&a.confidence).then(a.event.cmp(&b.event)));
    for weak in findings.found.split_off(findings.found.len().min(CANDIDATES_MAX)) {
        findings.reject(&weak.title, "the session has stronger ones");
    }
    let candidates: Vec<_> =
        findings.found.into_iter().map(|finding| finding.into_candidate(&session)).collect();
    let mut rejected = findings.rejected;
    rejected.truncate(REJECTED_MAX);
    let empty_reason = candidates.is_empty().then(|| reason_for_nothing(conversation, &rejected));
    Extraction { candidates, rejected, empty_reason, extractor: NAME.to_owned() }
}

/// "Let's keep spreading kindness" has the form of a decision. A rule given as an order stays whatever
/// it is about: "always answer in German" is worth remembering.
fn drop_small_talk(findings: &mut Findings) {
    for finding in std::mem::take(&mut findings.found) {
        if rules::is_order(&finding) || vocabulary::is_technical(&finding.statement) {
            findings.found.push(finding);
        } else {
            findings.reject(&finding.title, "small talk");
        }
    }
}

fn reason_for_nothing(conversation: &Conversation, rejected: &[Rejected]) -> String {
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
