//! Decisions: what was chosen, over what, and why.

use knowledge::UnitType;

use super::finding::{Finding, Findings, quoted, upper_first};
use super::prose::{self, expression};
use super::rules;
use super::session::{Said, Session};

expression! {
    LABEL = r"(?i)^(?:final |design |architecture )?decision(?: made)?\s*[:—–-]+\s*(?P<rest>.+)$";
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

pub(super) fn find(session: &Session<'_>, findings: &mut Findings) {
    for (at, said) in session.said.iter().enumerate() {
        let Some((choice, labelled)) = read(&said.sentence.text) else { continue };
        if said.sentence.question || rules::is_untrustworthy(said.message) && said.by_human {
            findings.reject(&said.sentence.text, "not stated in earnest");
            continue;
        }
        if prose::is_hedged(&said.sentence.text) {
            findings.reject(&said.sentence.text, "supposed, not stated");
            continue;
        }
        let (statement, reason) = prose::split_reason(&choice);
        // "… instead" closes a choice whose other side stands in the sentence before it.
        let bare = statement.strip_suffix(" instead").unwrap_or(statement);
        let other_side =
            (bare.len() < statement.len()).then(|| at.checked_sub(1).map(|at| &session.said[at])).flatten();
        let other_side = other_side.filter(|other| other.event == said.event);
        let statement = bare;
        if prose::content_words(statement).len() < 2 {
            findings.reject(&said.sentence.text, "says too little without its surroundings");
            continue;
        }
        let around = around(session, at);
        let given_before = other_side.and_then(|other| prose::split_reason(&other.sentence.text).1);
        let why = reason
            .or(given_before)
            .map(str::to_owned)
            .or_else(|| session.next(at).and_then(|next| prose::reason_given(&next.sentence)));
        let chosen_over = ALTERNATIVE
            .captures(&choice)
            .and_then(|found| found.name("other"))
            .map(|other| STOPS.replace(other.as_str(), "").trim().to_owned())
            .or_else(|| other_side.map(|other| other.sentence.text.clone()));
        let weighed: Vec<&Said<'_>> = around
            .iter()
            .copied()
            .filter(|other| {
                is_about(&other.sentence.text, statement) && WEIGHED.is_match(&other.sentence.text)
            })
            .take(2)
            .collect();
        let strength = match (said.by_human, chosen_over.is_some() || !weighed.is_empty(), why.is_some()) {
            (true, true, true) => 0.7,
            (true, true, false) | (true, false, true) => 0.6,
            (false, true, true) => 0.6,
            (false, true, false) if chosen_over.is_some() || labelled => 0.5,
            (false, false, true) => 0.5,
            (_, false, false) if labelled && prose::content_words(statement).len() >= 2 => 0.5,
            _ => {
                findings.reject(&said.sentence.text, "no alternative and no reason were given");
                continue;
            }
        };
        let mut quotes = vec![quoted(said)];
        quotes.extend(weighed.iter().map(|other| quoted(other)));

        let weighed_text: Vec<_> = weighed.iter().map(|other| other.sentence.text.as_str()).collect();
        let rejected = match (&chosen_over, weighed_text.as_slice()) {
            (Some(other), []) => Some(other.clone()),
            (Some(other), told) if told.iter().any(|told| told.contains(other.as_str())) => {
                Some(told.join(". "))
            }
            (Some(other), told) => Some(format!("{}. {}", upper_first(other), told.join(". "))),
            (None, []) => None,
            (None, told) => Some(told.join(". ")),
        };
        // The other side of this choice was found before it, as a decision of its own.
        if let Some(other) = other_side {
            findings
                .found
                .retain(|found| found.kind != UnitType::Decision || found.statement != other.sentence.text);
            if !said.by_human {
                quotes.push(quoted(other));
            }
        }
        let who =
            if said.by_human { "The user decided" } else { "The assistant decided, and nobody objected" };
        findings.found.push(Finding {
            kind: UnitType::Decision,
            title: upper_first(statement),
            statement: said.sentence.text.clone(),
            by_human: said.by_human,
            summary: None,
            when: prose::condition(statement).map(str::to_owned),
            what_to_do: Some(upper_first(statement)),
            why: why.map(|why| upper_first(&why)),
            rejected,
            learned: who.to_owned(),
            confidence: strength,
            event: said.event,
            evidence: quotes,
        });
    }
}

/// The choice that a sentence states, as an order, and whether it is labelled as a decision.
fn read(sentence: &str) -> Option<(String, bool)> {
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
        // "Decision: let's go with …" is said twice.
        (read(&inner).map_or(inner, |(choice, _)| choice), true)
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
    // What follows a semicolon is the next thing that was done.
    let choice = choice.split("; ").next().unwrap_or_default().trim().to_owned();
    (!NOT_A_CHOICE.is_match(object) && choice.split_whitespace().count() >= 3).then_some((choice, labelled))
}

/// The sentences near one, in its own message and the one before it: where a choice is weighed.
fn around<'s, 'a>(session: &'s Session<'a>, at: usize) -> Vec<&'s Said<'a>> {
    let event = session.said[at].event;
    let before =
        session.said[..at].iter().rev().find(|said| said.event != event).map_or(event, |said| said.event);
    session
        .said
        .iter()
        .enumerate()
        .filter(|(other, said)| *other != at && (said.event == event || said.event == before))
        .map(|(_, said)| said)
        .filter(|said| !said.sentence.question && !rules::is_untrustworthy(said.message))
        .collect()
}

/// Whether two texts share a word that carries meaning.
fn is_about(text: &str, choice: &str) -> bool {
    let words = prose::content_words(choice);
    prose::content_words(text).iter().any(|word| words.contains(word))
}
