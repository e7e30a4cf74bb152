//! Detects rules that a person stated: "never …", "from now on …", "no, we …".
//!
//! Only a person's words count, and only if they hold beyond the task: a one-off instruction, a joke or a
//! complaint uses the same words as a rule.

use knowledge::UnitType;

use super::detection::{Detection, Detections, EXCEPTION_IN_REASON, quote_utterance};
use super::session::{Session, Utterance};
use super::wording::{lower_first, upper_first};
use crate::sentences::{self, regexes};

regexes! {
    LEAD_IN = r"(?i)^(?:(?:please|pls|ok(?:ay)?|also|and|so|but|well|yes|yeah|yep|right|hey|btw|by the way|one more thing|another thing|in general|generally|for the record|just|then|as a reminder|reminder|fyi|hmm|important|heads up|thanks|thank you|great|good|cool|nice|perfect|lesson learned|side note|as i said(?: before)?|like i said|again|in this (?:repo|project|codebase|team)|(?:for|in) this (?:repo|project|codebase|team))\b[\s,:;.!—–-]*|(?:sorry|careful|wait|stop)[,.:;!—–]+\s*)";
    // In German, French and Spanish too.
    CORRECTION = r"(?i)^(?:no|nope|nein|nee|nö|non|actually|not quite|that's (?:wrong|not right|not correct|incorrect))(?:[,.:;!—–]+\s*|\s+(?:we|our|the|it)\b)";
    CORRECTION_WORD = r"(?i)^(?:no|nope|nein|nee|nö|non|actually|not quite|that's (?:wrong|not right|not correct|incorrect))\b[\s,.:;!—–]*";
    // What is refused, before what is to be done: "not the lock: always …".
    REFUSED = r"(?i)^(?:not|nicht|kein\w*|pas|no)\s[^:;,!]{2,60}?\s?[:;,—–]\s+";
    DURABLE = r"(?i)^(?:from now on|going forward|in (?:the )?future|from here on|as a (?:general )?rule|rule of thumb|(?:our|the|team|house) (?:rule|convention|policy|standard)(?: here| in this \w+)?(?: is)?(?: that| to)?|keep in mind(?: that)?|(?:one|a|another|new|general|simple) (?:\w+ )?rule(?: for [\w ]{3,30})?:|note for (?:the )?future|note to self|for (?:the )?future(?: reference)?|(?:please )?remember(?: that|,|:| to (?:always|never)))[\s,:—–-]*";
    ASKED_FOR = r"(?i)^(?:please|pls),? (?:always|never)\b";
    REMEMBER_TO = r"(?i)^(?:please )?remember to (?P<rest>(?:always|never)\b.*)$";
    ALWAYS = r"(?i)^(?:you (?:should|must|need to|have to) |we (?:should |must |need to )?|i (?:want|need|expect) you to |make sure (?:to |you )?)?(?P<adverb>always|never)\s+(?:ever\s+)?(?P<verb>[a-z][a-z-]*)";
    CONDITIONAL = r"(?i)^(?:when|whenever|if|before|after|for|in|on)\s[^,]{4,90},\s*(?:you should |we |please )?(?:always|never|do not|don't)\s+(?P<verb>[a-z][a-z-]*)";
    MUST = r"(?i)^(?P<subject>[\w`'/ -]{3,60}?) (?:(?:must|should) (?:always|never)|must (?:not|only))\s+(?:be\s+)?[a-z]+";
    DURABLE_END = r"(?i),?\s+(?:from now on|going forward|in (?:the )?future|from here on)$";
    PREFER = r"(?i)^(?:prefer\s.+\s(?:over|to|instead of|rather than)|i(?:'d| would)? (?:prefer|rather have|rather use|rather see)\s.+\s(?:over|than|instead of))\s.+$";
    WHENEVER = r"(?i)^(?:whenever|every time|each time|any time) [^,]{4,90},\s*(?:please )?(?:you (?:must|should) )?(?P<verb>[a-z][a-z-]*)\s.+|^(?:you |we )(?:must|have to|need to) (?P<verb2>[a-z][a-z-]*)\s.+\s(?:after|before|whenever|when) (?:changing|adding|editing|touching|removing|renaming|every|each|any)\b.+";
    PROMISE = r"(?i)^(?:i'll|i will|i'm|i am|i can|you are|you're|we'll see)\b";
    EVERYWHERE = r"(?i)\b(?:everywhere|everything|anywhere|ever|any|every|around all)\b";
    IMPLIES = r"(?i),? so .*\b(?:must|have to|has to|needs? to|should)\b";
    DONT_USE = r"(?i)^(?:please )?(?:don't|do not|avoid|stop|quit) (?:ever )?(?:use|using|run|running|call|calling|write|writing|add|adding|mock|mocking|commit|committing|put|putting|touch|touching|edit|editing|store|storing|log|logging|catch|catching|import|importing|install|installing|push|pushing|deploy|deploying|rely|relying|hardcode|hardcoding|hard-code|return|returning|create|creating|rebase|rebasing|squash|merge|bump|mutate|mutating|swallow|swallowing)\b";
    USE_INSTEAD = r"(?i)(?:[,;—–-]|\bbut\b|\.)\s*(?:please )?(?:use|prefer|run|call|write|go through|go with|reach for|do)\b|\binstead\b|\brather\b";
    FORBIDDEN = r"(?i)^(?:never|don't|do not|avoid|stop)\b";
    INSTEAD = r"(?i)\binstead\b";
    USE_NOT = r"(?i)^(?:please )?(?:use|prefer|pick|choose|favou?r|run|write|put|keep|call|name|store|return)\b.*(?:\binstead of\b|\brather than\b|\bover\b|,? not\b|,? never\b)";
    WE_DO = r"(?i)^(?:we|our \w+(?: \w+)?|this (?:repo|project|codebase|team|service)|everything|all \w+) (?:only |always |never |don't |do not |doesn't |does not )?(?:use|uses|deploy|deploys|prefer|prefers|store|stores|keep|keeps|write|writes|name|names|run|runs|pin|pins|ship|ships|tag|tags|squash|rebase|merge|return|returns|treat|treats|avoid|avoids|require|requires|log|logs|test|tests|version|versions|speak|speaks|live|lives|go|goes|expect|expects)\b";
    STATES = r"(?i)\b(?:is|are|belongs?|starts?|comes?|works?|must|should|needs?|takes?|returns?|expects?|uses?|runs?|lives?|goes|go|counts?|means?)\b";
    CONTRAST = r"(?i)\b(?:not|never|only|instead|always|rather than|don't|doesn't|isn't|aren't|no longer)\b";

    CORRECTED = r"(?i)(?:,| but| and)? (?:not|never) (?:an? |the )?[\w`'-]+(?: [\w`'-]+){0,4}$|\b(?:never|only|always|instead|rather than|no longer)\b";
    OF_NOW = r"(?i)^(?:it|it's|that|this|he|she|they|i|i'm|you|you're|there|let's|make|move|put|change|the (?:test|tests|build|button|page|line))\b";
    THIS_MOMENT = r"(?i)\b(?:this time|for now|right now|just now|once now|it now|one time|one-off|yet|for this one|today|tonight|tomorrow|for the moment|at the moment|temporarily|for this (?:one|pr|task|file|commit|time|change|ticket)|one more time|again please|before (?:i|we) (?:leave|demo|merge this)|(?:just|only) once)\b|(?:^|[\s,;])(?:now|once)$";
    THIS_PLACE = r"(?i)\b(?:this|that|these|those|the (?:first|second|third|other|last|same|new|old)) (?:function|file|files|line|test|tests|button|one|ones|class|variable|method|component|page|thing|error|branch|pr|commit|message|column|field|endpoint|bit|part|approach|stuff|change|script|command)\b|\bline \d+|\b(?:as|see|the) (?:above|below)\b|(?:/home/|/Users/|C:\\)";
    SUPPOSED = r"(?i)^(?:what if|suppose|imagine|let's say|say we|maybe|perhaps|i wonder|in theory|ideally|it would be|would be nice|if only|i wish|i used to|we used to|back in)\b|\b(?:might|could|would|can) (?:always|never)\b|\b(?:wondering|used to)\b";
    OTHERS_WORDS = r"(?i)\b(?:docs?|documentation|readme|linter|clippy|eslint|article|blog|he|she|they|someone|somebody|people|chatgpt|copilot|stack ?overflow|the internet|reddit|customer|customers|users?|boss|manager|consultant) (?:always |never |keeps? )?(?:say|says|said|told|tells|claim|claims|suggest|suggests|recommend|recommends|reads|wants?|wanted|insist|insists|think|thinks)\b|\baccording to\b";
    // The origin of a rule: "…, we've been bitten twice".
    TOLD_AFTER = r"(?i)^.{20,}?,\s+(?P<reason>(?:we(?:'ve| have| had| got| lost| were)|it|that|they|last (?:time|week|month|year))\b.{10,})$";
    OBLIGED = r"(?i)^(?:we|you) (?:should|must|need to) (?P<adverb>always|never)\b";
    IMPERATIVE = r"(?i)^(?:always|never|don't|do not|avoid|stop|use|prefer)\b";
    DEICTIC = r"(?i)^(?:you should |we (?:should )?)?(?:always|never|don't|do not) (?:ever )?\w+ (?:it|this|that|them|these|those|so|like this|like that)(?: again| here| anymore| please| like (?:this|that))*$";
}

/// Words after "never" or "always" that tell of something instead of giving an instruction.
const NOT_ORDERS: &str = " mind been seen wanted thought had have has was is are were got knew ever again the a an my your \
    going gonna happy sure possible easy hard fun nice good bad fails happens works breaks crashes wants gets takes forget \
    worked heard understood liked loved hated felt said says ";

/// Detects rules, with the reason in the same or the next sentence.
pub(super) fn detect(session: &Session<'_>, detections: &mut Detections) {
    for (at, utterance) in session.utterances.iter().enumerate().filter(|(_, utterance)| utterance.by_human) {
        let Some(mut rule) = parse_rule(&utterance.sentence.text) else { continue };
        let next = session.next(at);
        // "Don't use npm here. Use pnpm instead."
        let mut joined = None;
        let instead =
            |next: &&Utterance<'_>| !next.sentence.is_question && INSTEAD.is_match(&next.sentence.text);
        let mut instead = next.filter(|_| FORBIDDEN.is_match(&rule.text)).filter(instead);
        if DONT_USE.is_match(&rule.text) && !USE_INSTEAD.is_match(&rule.text) {
            let found = next.filter(|next| {
                !next.sentence.is_question && USE_INSTEAD.is_match(&format!(". {}", next.sentence.text))
            });
            match found {
                Some(next) => {
                    instead = found;
                    joined = Some(format!("{}; {}", rule.text, lower_first(&next.sentence.text)));
                    rule.strength = 0.65;
                }
                None if rule.strength < 0.65 && !EVERYWHERE.is_match(&rule.text) => continue,
                None => {}
            }
        }
        if let Some(reason) = rejection_reason(utterance, &rule) {
            detections.reject(&utterance.sentence.text, reason);
            continue;
        }
        let text = joined.as_deref().unwrap_or(&rule.text);
        let (statement, reason) = match sentences::split_reason(text) {
            (statement, None) => {
                match TOLD_AFTER.captures(statement).and_then(|found| found.name("reason")) {
                    Some(origin) => {
                        (statement[..origin.start()].trim_end_matches([',', ' ']), Some(origin.as_str()))
                    }
                    None => (statement, None),
                }
            }
            split => split,
        };
        if reason.is_some_and(sentences::turns) {
            detections.reject(&utterance.sentence.text, EXCEPTION_IN_REASON);
            continue;
        }
        let given = next.filter(|_| joined.is_none()).and_then(|next| sentences::reason_in(&next.sentence));
        let why = reason.map(upper_first).or(given);

        detections.found.push(Detection {
            kind: UnitType::Belief,
            title: upper_first(&OBLIGED.replace(statement, "$adverb")),
            statement: utterance.sentence.text.clone(),
            by_human: true,
            summary: None,
            when: None,
            what_to_do: instead.map(|next| sentences::split_reason(&next.sentence.text).0.to_owned()),
            confidence: if why.is_some() { rule.strength + 0.05 } else { rule.strength }.min(0.7),
            why,
            rejected: None,
            shown_by: None,
            event: utterance.event,
            detector: "rules",
            utterance: Some(at),
            evidence: vec![quote_utterance(utterance)],
        });
    }
}

/// A sentence with the form of a rule.
struct Rule {
    /// The sentence without greetings and "from now on".
    text: String,
    strength: f64,
    /// Whether it was said to be a rule: "from now on", "remember:", "please always".
    is_outright: bool,
}

/// The fewest words of a rule that name what it is about, and of one that was said to be a rule.
const CONTENT_WORDS_MIN: usize = 3;
const CONTENT_WORDS_MIN_OUTRIGHT: usize = 2;
/// Emoji and the like: arrows, symbols, dingbats, pictures, and what joins and colours them.
const PICTURES: [std::ops::RangeInclusive<char>; 4] =
    ['\u{2190}'..='\u{21FF}', '\u{2300}'..='\u{2BFF}', '\u{FE00}'..='\u{FE0F}', '\u{1F000}'..='\u{1FAFF}'];

/// Whether a sentence has the form of a rule.
pub(super) fn has_form(sentence: &str) -> bool {
    parse_rule(sentence).is_some()
}

/// Parses a sentence that has the form of a rule.
fn parse_rule(sentence: &str) -> Option<Rule> {
    // An emoji before a rule says nothing.
    let mut text = sentence
        .trim_start_matches(|c: char| c.is_whitespace() || PICTURES.iter().any(|range| range.contains(&c)));
    let mut corrects = false;
    let mut durable = false;
    let is_asked = ASKED_FOR.is_match(text);
    loop {
        let before = text.len();
        text = &text[LEAD_IN.find(text).map_or(0, |found| found.end())..];
        if CORRECTION.is_match(text) {
            corrects = true;
            text = &text[CORRECTION_WORD.find(text).map_or(0, |found| found.end())..];
            text = &text[REFUSED.find(text).map_or(0, |found| found.end())..];
        }
        if let Some(found) = REMEMBER_TO.captures(text).and_then(|found| found.name("rest")) {
            durable = true;
            text = &text[found.start()..];
        } else if let Some(found) = DURABLE.find(text) {
            durable = true;
            text = &text[found.end()..];
        }
        if let Some(found) = DURABLE_END.find(text) {
            durable = true;
            text = &text[..found.start()];
        }
        if text.len() == before {
            break;
        }
    }
    let words = text.split_whitespace().count();
    let ordered = |verb: Option<regex::Match<'_>>| {
        verb.is_some_and(|verb| {
            let verb = verb.as_str().to_lowercase();
            let story = verb.ends_with("ed")
                && !matches!(verb.as_str(), "embed" | "seed" | "feed" | "need" | "shed")
                || verb.ends_with("ing")
                || NOT_ORDERS.contains(&format!(" {verb} "));
            !story
        })
    };
    let mut orders = [&ALWAYS, &CONDITIONAL].into_iter().filter_map(|form| form.captures(text));
    let strength = if orders.any(|found| ordered(found.name("verb"))) {
        0.65
    } else if WHENEVER.captures(text).is_some_and(|found| ordered(found.name("verb").or(found.name("verb2"))))
    {
        0.6
    } else if PREFER.is_match(text) {
        0.55
    } else if MUST.is_match(text) && !text.to_lowercase().starts_with("i ") {
        0.6
    } else if DONT_USE.is_match(text) {
        if durable { 0.65 } else { 0.55 }
    } else if WE_DO.is_match(text) && (durable || CONTRAST.is_match(text)) {
        if durable || corrects { 0.65 } else { 0.6 }
    } else if USE_NOT.is_match(text) && (durable || corrects || sentences::split_reason(text).1.is_some()) {
        if durable { 0.65 } else { 0.55 }
    } else if corrects
        && STATES.is_match(text)
        && (CORRECTED.is_match(text) || IMPLIES.is_match(text))
        && !OF_NOW.is_match(text)
    {
        0.55
    } else if durable && words >= 4 && !PROMISE.is_match(text) {
        0.6
    } else {
        return None;
    };
    Some(Rule { text: text.to_owned(), strength, is_outright: durable || is_asked })
}

/// Why a sentence with the form of a rule is not worth proposing, if it is not.
fn rejection_reason(utterance: &Utterance<'_>, rule: &Rule) -> Option<&'static str> {
    let sentence = utterance.sentence.text.as_str();
    let words = rule.text.split_whitespace().count();
    if utterance.message.orders_a_model() {
        return Some("looks like an attempt to instruct the model");
    }
    if utterance.message.is_pasted() {
        return Some("part of a long, probably pasted text");
    }
    if utterance.sentence.is_question {
        return Some("a question");
    }
    if utterance.message.is_joke() {
        return Some("not meant seriously");
    }
    if SUPPOSED.is_match(sentence) || sentences::is_hedged(sentence) {
        return Some("a guess, not a statement");
    }
    if OTHERS_WORDS.is_match(sentence) {
        return Some("a quotation of somebody else");
    }
    if THIS_MOMENT.is_match(sentence) {
        return Some("a one-off instruction, not a rule");
    }
    if THIS_PLACE.is_match(sentence) {
        return Some("specific to one place in the current task");
    }
    let content_words_min = if rule.is_outright { CONTENT_WORDS_MIN_OUTRIGHT } else { CONTENT_WORDS_MIN };
    if DEICTIC.is_match(&rule.text) || sentences::content_words(&rule.text).len() < content_words_min {
        return Some("unclear without its context");
    }
    (words > 45).then_some("too long to be one rule")
}

/// Whether a rule is an instruction: "never …", "don't …".
pub(super) fn is_order(detection: &Detection) -> bool {
    detection.kind == UnitType::Belief && IMPERATIVE.is_match(&detection.title)
}
