//! Detects recipes: a stated way of doing something that then worked.

use knowledge::UnitType;
use knowledge::text::one_line;

use super::detection::{Detection, Detections, evidence_at, quote_utterance};
use super::session::Session;
use super::wording::{lower_first, upper_first};
use crate::sentences::{self, regexes};

regexes! {
    TRICK = r"(?i)^(?:so |and |ok(?:ay)?,? )?the (?:trick|(?:right|reliable|safe|correct|proper|clean|only|simplest|easiest) way|way|key)\b(?P<goal>(?: to| for) [^,.;:]{3,80}?)? (?:is|was|here is|here was)(?: to)?:? (?P<rest>.{15,})$";
    WORKED = r"(?i)\b(?:that (?:did it|worked|works)|works (?:now|great|perfectly)|it works|worked (?:like a charm|perfectly)|perfect|exactly what i (?:wanted|needed)|confirmed)\b";
}
/// How many events after the statement a successful command may confirm it.
const NEAR_EVENTS: usize = 8;

/// Whether a sentence has the form of a recipe.
pub(super) fn has_form(sentence: &str) -> bool {
    TRICK.is_match(sentence)
}

/// Detects "the trick is …" where a command or the user confirms it afterwards.
pub(super) fn detect(session: &Session<'_>, detections: &mut Detections) {
    for (at, utterance) in session.utterances.iter().enumerate() {
        let Some(found) = TRICK.captures(&utterance.sentence.text) else { continue };
        let statement = utterance.sentence.text.as_str();
        if utterance.sentence.is_question
            || sentences::is_hedged(statement)
            || utterance.message.is_untrustworthy()
        {
            detections.reject(statement, "a guess, not a statement");
            continue;
        }
        // A command that passed before the statement confirms nothing.
        let near = utterance.event..=utterance.event + NEAR_EVENTS;
        let passed = session.runs.iter().find(|run| run.ok && near.contains(&run.event));
        let confirmed = session.utterances.iter().find(|other| {
            other.by_human && other.event > utterance.event && WORKED.is_match(&other.sentence.text)
        });
        let mut quotes = vec![quote_utterance(utterance)];
        let (confidence, learned) = match (passed, confirmed) {
            (_, Some(confirmation)) => {
                quotes.push(quote_utterance(confirmation));
                (0.65, "The user confirmed it".to_owned())
            }
            (Some(run), None) => {
                quotes.push(evidence_at(run.result_line, &format!("{} → passed", run.command)));
                (0.55, format!("`{}` passed beside it", one_line(run.command, 100)))
            }
            (None, None) => {
                detections.reject(statement, "nothing in the session confirms it");
                continue;
            }
        };
        let rest = found.name("rest").map_or("", |rest| rest.as_str());
        let (what, why) = sentences::split_reason(rest);
        let goal = found.name("goal").map(|goal| goal.as_str().trim());
        let title = match goal {
            Some(goal) => format!("{}, {}", upper_first(goal), lower_first(what)),
            None => upper_first(what),
        };
        detections.found.push(Detection {
            kind: UnitType::Pattern,
            title,
            statement: statement.to_owned(),
            by_human: utterance.by_human,
            summary: None,
            when: None,
            what_to_do: None,
            why: why.map(upper_first),
            rejected: None,
            shown_by: Some(learned),
            confidence,
            event: utterance.event,
            detector: "recipes",
            utterance: Some(at),
            evidence: quotes,
        });
    }
}
