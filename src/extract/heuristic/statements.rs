//! Detects lessons that are stated in no set phrase: sentences that stand alone and say how something is.
//!
//! The scorer decides which of them are worth a review; here only those are left out that cannot be a title.

use std::collections::HashSet;

use knowledge::UnitType;

use super::detection::{Detection, Detections, fits_title, quote_utterance};
use super::message::says_of_a_bug;
use super::session::{Session, Utterance};
use super::standalone::{WORDS, explains_a_failure, stands_alone, without_lead_in};
use super::wording::upper_first;
use super::{causes, decisions, rules};
use crate::sentences::{self, regexes};

regexes! {
    PREFERENCE = r"(?i)\b(?:should|must|always|never|prefer|don't|do not|only|we want|we need|no need)\b";
    CHOICE = r"(?i)\b(?:in favou?r of|decided|chose|chosen|opted|deliberate(?:ly)?|intentional(?:ly)?|on purpose|by design)\b";
    ADVICE = r"(?i)\bshould(?:n't)?\b|\bapproach is\b";
    FAILS = r"(?i)\b(?:(?:fails?|breaks?|crash(?:es)?|hangs?|panics?) (?:because|when|with|if)|was missing|expects? .+ but (?:gets?|got|receives?))\b";
}

/// How sure a statement without a set phrase is, before the scorer has seen it.
const CONFIDENCE: f64 = 0.5;

/// Detects statements that can stand alone.
pub(super) fn detect(session: &Session<'_>, detections: &mut Detections) {
    let mut known: HashSet<String> = detections.found.iter().map(|found| found.statement.clone()).collect();
    for (at, utterance) in session.utterances.iter().enumerate() {
        if known.contains(&utterance.sentence.text) {
            continue;
        }
        if is_left_to_others(utterance) {
            continue;
        }
        let Some(statement) = standing_alone(utterance) else { continue };
        let (title, reason) = sentences::split_reason(&statement);
        let why = reason
            .map(upper_first)
            .or_else(|| session.next(at).and_then(|next| sentences::reason_in(&next.sentence)));
        known.insert(utterance.sentence.text.clone());
        detections.found.push(Detection {
            kind: kind_of(&statement, utterance),
            // An effect and its cause say more together, if they fit.
            title: match fits_title(&statement) || title.split_whitespace().count() < *WORDS.start() {
                true => upper_first(&statement),
                false => upper_first(title),
            },
            statement: utterance.sentence.text.clone(),
            by_human: utterance.by_human,
            summary: None,
            when: None,
            what_to_do: None,
            why,
            rejected: None,
            shown_by: None,
            confidence: CONFIDENCE,
            event: utterance.event,
            detector: "statements",
            utterance: Some(at),
            evidence: vec![quote_utterance(utterance)],
        });
    }
}

/// Whether another detector knows the form of a sentence, and has proposed or rejected it.
fn is_left_to_others(utterance: &Utterance<'_>) -> bool {
    let text = utterance.sentence.text.as_str();
    causes::has_form(text)
        || utterance.by_human
            && (utterance.message.is_no_statement() || rules::has_form(text) || decisions::has_form(text))
}

/// The sentence without its lead-in, if it says something by itself.
fn standing_alone(utterance: &Utterance<'_>) -> Option<String> {
    let sentence = &utterance.sentence;
    if sentence.is_question || sentences::is_hedged(&sentence.text) {
        return None;
    }
    let text = without_lead_in(&sentence.text);
    stands_alone(text).then(|| text.to_owned())
}

fn kind_of(statement: &str, utterance: &Utterance<'_>) -> UnitType {
    let explains_a_bug = || {
        utterance.message.is_of_a_bug()
            && utterance.surroundings().is_some_and(|paragraph| says_of_a_bug(&paragraph))
    };
    if explains_a_failure(statement) || FAILS.is_match(statement) {
        UnitType::Bug
    } else if CHOICE.is_match(statement) || !utterance.by_human && ADVICE.is_match(statement) {
        UnitType::Decision
    } else if utterance.by_human && PREFERENCE.is_match(statement) {
        UnitType::Belief
    } else if !utterance.by_human && explains_a_bug() {
        UnitType::Bug
    } else {
        UnitType::Concept
    }
}
