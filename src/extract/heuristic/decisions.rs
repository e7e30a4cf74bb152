//! Detects decisions: what was chosen, over which alternative, and why.

use knowledge::UnitType;

use super::detection::{Detection, Detections, EXCEPTION_IN_REASON, quote_utterance};
use super::session::{Session, Utterance};
use super::wording::upper_first;
use crate::sentences::{self, regexes};

regexes! {
    LABEL = r"(?i)^(?:(?:ok(?:ay)?|yes|yeah|right|so|then|alright|great|good|fine|agreed|and)[,.!:—–-]*\s+)*(?:final |design |architecture )?decision(?: made)?\s*[:—–-]+\s*(?P<rest>.+)$";
    DECIDED = r"(?i)^(?:so |and |ok(?:ay)?,? |yes,? |then |after .{3,60}, )?(?:we|we've|we have|i|i've|i have|the team|team)(?: have| has)?(?: now)? (?:decided|agreed|settled|opted|resolved)\s+(?P<link>against|not to|on|to|that|for)?\s*(?P<rest>.+)$";
    CHOSE = r"(?i)^(?:so |and |ok(?:ay)?,? )?(?:we|we've|i|i've|the team)(?: have)? (?:chose|chosen|picked|went with|went for)\s+(?P<rest>.+)$";
    LETS = r"(?i)^(?:(?:ok(?:ay)?|yes|yeah|right|so|then|alright|great|good|fine|agreed|perfect|makes sense|good point|fair)[,.!:—–-]*\s+)*(?:let's|let us) (?P<verb>go with|go for|use|stick with|stick to|keep|switch to|move to|adopt|settle on|pick|do)\s+(?P<rest>.+)$";
    GOING = r"(?i)^(?:(?:ok(?:ay)?|yes|yeah|right|so|then|alright|great|good|agreed)[,.!:—–-]*\s+)*(?:(?:we'll|we will|i'll|i will|i'm|we're|we are) )?(?P<verb>go with|going with|go for|going for|stick with|sticking with)\s+(?P<rest>.+)$";
    ILL_USE = r"(?i)^(?:so )?(?:i'll|i will|we'll|we will|i'm going to) (?P<verb>use|keep|implement|store|put|build|model)\s+(?P<rest>.+(?:instead of|rather than).+)$";

    ALTERNATIVE = r"(?i)(?:\binstead of|\brather than|\bin favou?r of|\bover(?: the)?|,? (?:and )?not|\bvs\.?|\bagainst)\s+(?P<other>[^,.;()—–]{2,90})";
    WEIGHED = r"(?i)\b(?:instead of|rather than|considered|ruled out|rejected|alternative|the downside|the problem with|drawback|trade-?off|would (?:mean|need|require|have)|versus|vs\.?|compared (?:to|with)|dismissed|overkill)\b";
    STOPS = r"(?i)\s+(?:because|since|so that|so we|for now|as it|given|until|when|which)\b.*$";
    NOT_A_CHOICE = r"(?i)^(?:it|that|this|them|those|these|your|the (?:first|second|third|former|latter|other|last)|option|plan|what|whatever|ahead|the flow|lunch|a break|yours|both|step by step|one by one|a quick)\b";
}

/// Detects sentences that state a choice, with the alternatives and the reason around them.
pub(super) fn detect(session: &Session<'_>, detections: &mut Detections) {
    for (at, utterance) in session.utterances.iter().enumerate() {
        let Some((choice, labelled)) = parse_choice(&utterance.sentence.text) else { continue };
        if utterance.sentence.is_question || utterance.message.is_untrustworthy() && utterance.by_human {
            detections.reject(&utterance.sentence.text, "not meant as a statement");
            continue;
        }
        if sentences::is_hedged(&utterance.sentence.text) {
            detections.reject(&utterance.sentence.text, "a guess, not a statement");
            continue;
        }
        let (statement, reason) = sentences::split_reason(&choice);
        if reason.is_some_and(sentences::turns) {
            detections.reject(&utterance.sentence.text, EXCEPTION_IN_REASON);
            continue;
        }
        // "… instead" ends a choice whose alternative is in the previous sentence.
        let bare = statement.strip_suffix(" instead").unwrap_or(statement);
        let alternative = (bare.len() < statement.len())
            .then(|| at.checked_sub(1).map(|at| &session.utterances[at]))
            .flatten();
        let alternative = alternative.filter(|other| other.event == utterance.event);
        let statement = bare;
        if sentences::content_words(statement).len() < 2 {
            detections.reject(&utterance.sentence.text, "unclear without its context");
            continue;
        }
        let nearby = nearby_utterances(session, at);
        let reason_before = alternative.and_then(|other| sentences::split_reason(&other.sentence.text).1);
        let why = reason
            .or(reason_before)
            .map(str::to_owned)
            .or_else(|| session.next(at).and_then(|next| sentences::reason_in(&next.sentence)));
        let chosen_over = ALTERNATIVE
            .captures(&choice)
            .and_then(|found| found.name("other"))
            .map(|other| STOPS.replace(other.as_str(), "").trim().to_owned())
            .or_else(|| alternative.map(|other| other.sentence.text.clone()));
        let weighed: Vec<&Utterance<'_>> = nearby
            .iter()
            .copied()
            .filter(|other| {
                is_about(&other.sentence.text, statement) && WEIGHED.is_match(&other.sentence.text)
            })
            .take(2)
            .collect();
        let strength = match (utterance.by_human, chosen_over.is_some() || !weighed.is_empty(), why.is_some())
        {
            (true, true, true) => 0.7,
            (true, true, false) | (true, false, true) => 0.6,
            (false, true, true) => 0.6,
            (false, true, false) if chosen_over.is_some() || labelled => 0.5,
            (false, false, true) => 0.5,
            (_, false, false) if labelled && sentences::content_words(statement).len() >= 2 => 0.5,
            _ => {
                detections.reject(&utterance.sentence.text, "no alternative and no reason were given");
                continue;
            }
        };
        let mut quotes = vec![quote_utterance(utterance)];
        quotes.extend(weighed.iter().map(|other| quote_utterance(other)));

        let weighed_text: Vec<_> = weighed.iter().map(|other| other.sentence.text.as_str()).collect();
        let rejected = match (&chosen_over, weighed_text.as_slice()) {
            (Some(other), []) => Some(other.clone()),
            (Some(other), texts) if texts.iter().any(|text| text.contains(other.as_str())) => {
                Some(texts.join(". "))
            }
            (Some(other), texts) => Some(format!("{}. {}", upper_first(other), texts.join(". "))),
            (None, []) => None,
            (None, texts) => Some(texts.join(". ")),
        };
        // The alternative may have been detected as a decision of its own.
        if let Some(other) = alternative {
            detections
                .found
                .retain(|found| found.kind != UnitType::Decision || found.statement != other.sentence.text);
            if !utterance.by_human {
                quotes.push(quote_utterance(other));
            }
        }
        detections.found.push(Detection {
            kind: UnitType::Decision,
            title: upper_first(statement),
            statement: utterance.sentence.text.clone(),
            by_human: utterance.by_human,
            summary: None,
            when: None,
            what_to_do: None,
            why: why.map(|why| upper_first(&why)),
            rejected,
            shown_by: None,
            confidence: strength,
            event: utterance.event,
            detector: if labelled { "labelled decisions" } else { "decisions" },
            utterance: Some(at),
            evidence: quotes,
        });
    }
}

/// Whether a sentence has the form of a decision.
pub(super) fn has_form(sentence: &str) -> bool {
    parse_choice(sentence).is_some()
}

/// Parses the choice that a sentence states into an instruction, and whether it is labelled as a decision.
fn parse_choice(sentence: &str) -> Option<(String, bool)> {
    let rest =
        |found: &regex::Captures<'_>| found.name("rest").map_or("", |rest| rest.as_str()).trim().to_owned();
    let verb = |found: &regex::Captures<'_>| match found
        .name("verb")
        .map_or("", |verb| verb.as_str())
        .to_lowercase()
        .as_str()
    {
        "stick with" | "stick to" | "sticking with" | "keep" => "Keep",
        "switch to" => "Switch to",
        "move to" => "Move to",
        "implement" => "Implement",
        "store" => "Store",
        "put" => "Put",
        "build" => "Build",
        "model" => "Model",
        _ => "Use",
    };
    let (choice, labelled) = if let Some(found) = LABEL.captures(sentence) {
        let inner = rest(&found);
        // In "Decision: let's go with …" both forms apply.
        (parse_choice(&inner).map_or(inner, |(choice, _)| choice), true)
    } else if let Some(found) = DECIDED.captures(sentence) {
        let what = rest(&found);
        let choice = match found.name("link").map_or("", |link| link.as_str()).to_lowercase().as_str() {
            "to" | "that" => what,
            "not to" => format!("Do not {what}"),
            "against" => format!("Decide against {what}"),
            _ => format!("Use {what}"),
        };
        (choice, false)
    } else if let Some(found) = CHOSE.captures(sentence) {
        let what = rest(&found);
        (what.strip_prefix("to ").map_or_else(|| format!("Use {what}"), str::to_owned), false)
    } else {
        let found = LETS
            .captures(sentence)
            .or_else(|| GOING.captures(sentence))
            .or_else(|| ILL_USE.captures(sentence))?;
        (format!("{} {}", verb(&found), rest(&found)), false)
    };
    let object = choice.split_once(' ').map_or("", |(_, object)| object);
    // The part after a semicolon describes the next action.
    let choice = choice.split("; ").next().unwrap_or_default().trim().to_owned();
    (!NOT_A_CHOICE.is_match(object) && choice.split_whitespace().count() >= 3).then_some((choice, labelled))
}

/// The other sentences of the same message and of the message before it, where alternatives are weighed.
fn nearby_utterances<'s, 'a>(session: &'s Session<'a>, at: usize) -> Vec<&'s Utterance<'a>> {
    let event = session.utterances[at].event;
    let before = session.utterances[..at]
        .iter()
        .rev()
        .find(|utterance| utterance.event != event)
        .map_or(event, |utterance| utterance.event);
    session
        .utterances
        .iter()
        .enumerate()
        .filter(|(other, utterance)| *other != at && (utterance.event == event || utterance.event == before))
        .map(|(_, utterance)| utterance)
        .filter(|utterance| !utterance.sentence.is_question && !utterance.message.is_untrustworthy())
        .collect()
}

/// Whether two texts share a content word.
fn is_about(text: &str, choice: &str) -> bool {
    let words = sentences::content_words(choice);
    sentences::content_words(text).iter().any(|word| words.contains(word))
}
