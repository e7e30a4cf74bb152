//! Detects what a person chose among options that the model laid out, with the alternatives.
//!
//! The options stand in the client's own question (`AskUserQuestion`), or in a list that the model wrote and the
//! person answered in a few words: "B, that keeps the door open".

use knowledge::UnitType;
use knowledge::markdown::without_emphasis;
use knowledge::text::one_line;
use transcript::{ChoiceOption, EventKind};

use super::detection::{Detection, Detections, evidence_at};
use super::session::Session;
use super::wording::{lower_first, upper_first};
use crate::sentences::regexes;

regexes! {
    // How to go on with the work at hand, which nobody asks again.
    OF_THE_TASK = r"(?i)\b(?:proceed|go ahead|continue|commit|push|next|start(?:ing)? (?:with|now)|begin|ready|approve|deploy now|should i|shall i|do you want me|would you like(?: me)?|want me to|which (?:pr|pull request|issue|task|ticket|branch|session|one|file|files|plan|tests?)|how (?:should|do you want|would you like) (?:i|we|me) (?:to )?(?:proceed|continue|handle this|fix this|do this)|what (?:should|do you want|would you like) (?:i|me|next)|is this|does this|right now|for now|this (?:pr|time|task|session|plan|change|branch|commit)|these|committed|fixups?|what would you like|anything else)\b";
    RECOMMENDED = r"(?i)\s*\((?:recommended|default|current|suggested|preferred)\)";
    OPTION = r"(?i)^\s*(?:[-*•]\s+|#{1,6}\s+)?(?:\*\*)?(?:option\s+|choice\s+)?(?P<label>[A-F1-6])(?:\*\*)?\s*(?:[.):]|[—–-]\s)\s*(?:\*\*)?\s*(?P<text>\S.*)$";
    REPLY = r"(?ix)^(?:(?:ok(?:ay)?|yes|yeah|yep|sure|great|perfect|i(?:'d|\ would|\ will|'ll)?\ (?:go\ with|go\ for|prefer|like|choose|pick|want|take|say)|let's\ (?:go\ with|go\ for|do|use|take)|go\ (?:with|for)|do|use|take|the|i\ think|definitely|probably)[\s,.:—-]+)*
        (?:option|choice|number|variant|approach|\#)?\s*(?P<label>[A-F1-6])(?P<rest>(?:\s*[,.:;!)—–-].*|\s+(?:is|it\ is|please|pls|sounds|looks|seems|works|for|because|since|but|and|then|with|makes|thanks|i\ think)\b.*)?)$";
    // Another label behind the first. "A" may be an article: "B, a server less".
    SEVERAL = r"(?x)^(?:\s*(?:[,&+/]|and\b|or\b)\s*(?:(?:and|or)\s+)?(?i:(?:option|choice|number|variant|approach|\#)\s*)?|[–-])
        (?:[B-Fb-f1-6]\b|[Aa]\s*(?:$|[,&+/.!]|and\b|or\b))";
    REFUSES = r"(?ix)^[\s).:]*(?:(?:it(?:'s)?|is|that(?:'s)?|looks|seems|sounds|works|would|will|does)(?:\s+\w+){0,2}
        \s+(?:too|not|no|never|wrong|bad|worse|worst|overkill|out|\w+n't)|not|\w+n't)\b";
    // Something else to take.
    ORDERS = r"(?i)[.!;\n]\s*(?:please |then |just |first |instead |rather )*(?:let's )?(?:use|take|try|choose|pick|go (?:with|for))\b";
    ASKS = r"(?i)\?|\b(?:which (?:one|option|approach|do you)|prefer|your (?:call|preference|choice)|let me know|thoughts)\b";
    ANY_QUESTION = r"(?i)^(?:which (?:one |option |approach |of these )?(?:do|would|should|sounds|seems|is|makes)|what (?:do|would|should|did) (?:you|i|we)\b|what(?:'s| is) your\b|thoughts|any (?:thoughts|preference)|does (?:this|that)|do you|would you|want me|should (?:i|we)|shall|sound|ok)\b";
    REASON = r"(?i)\b(?:because|since|so that|as it|that (?:keeps|way|is|makes|avoids|lets|gives)|it(?:'s| is| keeps| makes| avoids)|but|though|and)\b";
}

/// Marks that a model puts around a heading or an option.
const ORNAMENTS: [char; 4] = ['#', '*', '✅', '⭐'];
/// More words of a person's own are no answer to a question but a new task.
const OWN_WORDS_MAX: usize = 16;
/// The most choices of one session that are proposed.
const CHOICES_MAX: usize = 4;
const TITLE_CHARS_MAX: usize = 120;
/// A reply that goes on for longer is no mere answer.
const REPLY_CHARS_MAX: usize = 400;

/// What was chosen.
struct Choice {
    question: String,
    header: String,
    chosen: ChoiceOption,
    others: Vec<ChoiceOption>,
    reason: String,
}

/// Detects choices, the latest first where there are too many: it may have replaced an earlier one.
pub(super) fn detect(session: &Session<'_>, detections: &mut Detections) {
    let mut found = Vec::new();
    let events = &session.conversation.events;
    for (at, event) in events.iter().enumerate() {
        let choice = match &event.kind {
            EventKind::Choice { question, header, options, answer, notes } => {
                answered(question, header, options, answer, notes)
            }
            EventKind::Human { text } => {
                let before = events[..at]
                    .iter()
                    .rev()
                    .find(|event| !matches!(event.kind, EventKind::ToolResult { .. }));
                match before.map(|event| &event.kind) {
                    Some(EventKind::Assistant { text: offer }) => replied(offer, text),
                    _ => None,
                }
            }
            _ => None,
        };
        let Some(choice) = choice else { continue };
        if OF_THE_TASK.is_match(&choice.question) {
            detections.reject(&choice.question, "how to go on, not what was decided");
            continue;
        }
        let Some(title) = choice.title() else {
            detections.reject(&choice.question, "unclear without its context");
            continue;
        };
        found.push(Detection {
            kind: UnitType::Decision,
            title,
            statement: format!("{} {}", choice.question, choice.chosen.label),
            by_human: true,
            summary: None,
            when: None,
            what_to_do: choice.what_was_chosen(),
            why: Some(choice.reason.clone()).filter(|text| !text.is_empty()),
            rejected: choice.rejected(),
            shown_by: None,
            confidence: 0.65,
            detector: "choices",
            event: at,
            utterance: None,
            evidence: vec![evidence_at(&event.line, &choice.quote())],
        });
    }
    let surplus = found.len().saturating_sub(CHOICES_MAX);
    detections.found.extend(found.into_iter().skip(surplus));
}

impl Choice {
    /// The question and its answer: "How are errors shown? Inline, below the field".
    fn title(&self) -> Option<String> {
        let label = plain_label(&self.chosen.label);
        let fits = |title: &String| title.chars().count() <= TITLE_CHARS_MAX;
        let asked = Some(without_ornaments(&self.question))
            .filter(|question| !ANY_QUESTION.is_match(question) && question.ends_with('?'));
        let meaning = self.chosen.description.split(['.', ';', '(']).next().unwrap_or_default().trim();
        let with_meaning = |title: String| match meaning {
            "" => title,
            meaning => Some(format!("{title} — {}", lower_first(meaning))).filter(fits).unwrap_or(title),
        };
        let long = label.split_whitespace().count() >= 4;
        let title = asked
            .map(|question| format!("{} {}", upper_first(question), upper_first(label)))
            .filter(fits)
            .or_else(|| {
                (!self.header.is_empty())
                    .then(|| with_meaning(format!("{}: {label}", upper_first(&self.header))))
            })
            .or_else(|| long.then(|| with_meaning(upper_first(label))))?;
        let words = title.split_whitespace().count();
        (fits(&title) && words >= 5 && title.matches('?').count() <= 1).then_some(title)
    }

    /// What the chosen option means, if the model said it.
    fn what_was_chosen(&self) -> Option<String> {
        let description = self.chosen.description.trim();
        (!description.is_empty()).then(|| format!("{}: {description}", plain_label(&self.chosen.label)))
    }

    fn quote(&self) -> String {
        let label = plain_label(&self.chosen.label);
        match without_ornaments(&self.question) {
            "" => label.to_owned(),
            question => format!("{question} → {label}"),
        }
    }

    fn rejected(&self) -> Option<String> {
        let list: Vec<String> = self
            .others
            .iter()
            .map(|option| match option.description.as_str() {
                "" => format!("- {}", plain_label(&option.label)),
                description => format!("- {}: {}", plain_label(&option.label), one_line(description, 200)),
            })
            .collect();
        (!list.is_empty()).then(|| list.join("\n"))
    }
}

fn without_ornaments(text: &str) -> &str {
    text.trim_matches(|c: char| ORNAMENTS.contains(&c) || c.is_whitespace())
}

/// An option's name without marks, and without praise behind one: "`session/` package ✅ BEST FIT".
fn plain_label(label: &str) -> &str {
    let label = label.trim_start_matches(|c: char| ORNAMENTS.contains(&c) || c.is_whitespace());
    without_ornaments(label.split(['✅', '⭐']).next().unwrap_or_default()).trim_end_matches([':', '?'])
}

/// A choice in the client's own question.
fn answered(
    question: &str,
    header: &str,
    options: &[ChoiceOption],
    answer: &str,
    notes: &str,
) -> Option<Choice> {
    let answer = answer.trim();
    if answer.is_empty() || answer.contains('?') || notes.contains('?') {
        return None;
    }
    let is_chosen =
        |option: &&ChoiceOption| answer == option.label || answer.split(", ").any(|one| one == option.label);
    let plain = |option: &ChoiceOption| ChoiceOption {
        label: RECOMMENDED.replace(&option.label, "").into_owned(),
        description: option.description.clone(),
    };
    let (taken, others): (Vec<_>, Vec<_>) = options.iter().partition(is_chosen);
    let chosen = match taken[..] {
        [one] => plain(one),
        // Several, or the person's own words.
        _ => ChoiceOption {
            label: RECOMMENDED.replace_all(answer, "").into_owned(),
            description: String::new(),
        },
    };
    let own_words = chosen.label.split_whitespace().count();
    if taken.is_empty() && !(3..=OWN_WORDS_MAX).contains(&own_words) {
        return None;
    }
    let others = others.into_iter().filter(|option| !answer.contains(&option.label));
    let reason = if notes.trim() == answer { String::new() } else { notes.trim().to_owned() };
    Some(Choice {
        question: one_line(question, 300),
        header: header.to_owned(),
        chosen,
        others: others.map(plain).collect(),
        reason,
    })
}

/// A choice in a short reply to a list of options.
fn replied(offer: &str, reply: &str) -> Option<Choice> {
    let reply = &reply.trim().replace('’', "'");
    if reply.len() > REPLY_CHARS_MAX || reply.contains('?') {
        return None;
    }
    let found = REPLY.captures(reply.lines().next()?)?;
    let label = found.name("label")?;
    let more = &reply[label.end()..];
    let label = label.as_str().to_uppercase();
    let rest = found.name("rest").map_or("", |rest| rest.as_str());
    let is_of_list = reply.lines().skip(1).any(|line| OPTION.is_match(line));
    let goes_on = [&SEVERAL, &REFUSES].iter().any(|other| other.is_match(rest));
    if is_of_list || goes_on || ORDERS.is_match(more) {
        return None;
    }
    let options = options_in(offer);
    if options.len() < 2 || !ASKS.is_match(offer) {
        return None;
    }
    let (_, chosen) = options.iter().find(|(option, _)| *option == label)?;
    let others = options.iter().filter(|(option, _)| *option != label).map(|(_, option)| option.clone());
    let question = offer
        .lines()
        .rev()
        .filter(|line| !OPTION.is_match(line))
        .flat_map(|line| line.rsplit(['.', '!', ':']))
        .map(|part| part.trim().trim_matches('*').trim())
        .find(|part| part.ends_with('?') && !ANY_QUESTION.is_match(part))
        .unwrap_or_default();
    let reason = rest.trim_start_matches(|c: char| !c.is_alphanumeric()).trim();
    Some(Choice {
        question: one_line(question, 300),
        header: String::new(),
        chosen: chosen.clone(),
        others: others.collect(),
        reason: Some(reason).filter(|reason| REASON.is_match(reason)).unwrap_or_default().to_owned(),
    })
}

/// The options that a message lists, by their letters or numbers in order.
fn options_in(offer: &str) -> Vec<(String, ChoiceOption)> {
    let mut options: Vec<(String, ChoiceOption)> = Vec::new();
    for line in offer.lines() {
        let line = without_emphasis(line);
        let Some(found) = OPTION.captures(&line) else { continue };
        let label = found["label"].to_uppercase();
        let first = matches!(label.as_str(), "A" | "1");
        let follows = options.last().is_some_and(|(last, _)| {
            label.bytes().next().zip(last.bytes().next()).is_some_and(|(this, last)| this == last + 1)
        });
        if first {
            options.clear();
        } else if !follows {
            continue;
        }
        let text = &found["text"];
        let cut = [" — ", " – ", " - ", ": ", ". "]
            .iter()
            .filter_map(|end| text.find(end).map(|at| (at, end.len())))
            .min();
        let (name, more) = cut.map_or((text, ""), |(at, len)| (&text[..at], &text[at + len..]));
        let option = ChoiceOption {
            label: name.trim_end_matches(['.', ',', ';']).trim().to_owned(),
            description: more.trim().to_owned(),
        };
        options.push((label, option));
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_reply_is_resolved_against_the_options() {
        let offer = "There are two ways to store the jobs:\n\n**A) SQLite table** — no server, one writer.\n\
            **B) Redis stream** — fast, another service.\n\nWhere should jobs be stored?";
        let choice = replied(offer, "B, that keeps the door open").unwrap();
        assert_eq!(choice.title().unwrap(), "Where should jobs be stored? Redis stream");
        assert_eq!(choice.reason, "that keeps the door open");
        assert_eq!(choice.rejected().unwrap(), "- SQLite table: no server, one writer.");
        for reply in ["option A", "let's go with A", "a", "A is fine but make sure it is logged"] {
            assert_eq!(replied(offer, reply).unwrap().chosen.label, "SQLite table", "{reply}");
        }
        for reply in ["A test fails", "what does B cost?", "C", "both"] {
            assert!(replied(offer, reply).is_none(), "{reply}");
        }
    }

    #[test]
    fn a_refusal_several_options_and_tasks_are_no_choice() {
        let offer = "There are three ways to store the jobs:\n\nA) SQLite table — no server.\n\
            B) Redis stream — fast, another service.\nC) Kafka topic — for many readers.\n\n\
            Where should jobs be stored?";
        for reply in [
            "a, b and c are all too slow. Use the file system.",
            "A and B, please",
            "A, B",
            "a & b",
            "B + option C, please",
            "b, or c",
            "A is too slow. Use the file system.",
            "B won't work here",
            "A) is not an option",
            "A. Take the file system instead",
        ] {
            assert!(replied(offer, reply).is_none(), "{reply}");
        }
        for (reply, chosen) in [
            ("A, a server is one thing more to run", "SQLite table"),
            ("B, and log each job", "Redis stream"),
            ("C, as we do not have another one", "Kafka topic"),
            ("ok. Let's go with C", "Kafka topic"),
            ("a, but make sure it is logged", "SQLite table"),
            ("B is good. It is not too slow.", "Redis stream"),
        ] {
            assert_eq!(
                replied(offer, reply).map(|choice| choice.chosen.label).as_deref(),
                Some(chosen),
                "{reply}"
            );
        }
        let numbered = offer.replace("A)", "1.").replace("B)", "2.").replace("C)", "3.");
        for reply in [
            "1. first measure how slow Postgres is\n2. then tell me again what you would take",
            "1. measure how slow Postgres is\n2. tell me again",
            "1-3 are all too slow",
            "1, 2",
        ] {
            assert!(replied(&numbered, reply).is_none(), "{reply}");
        }
        assert_eq!(replied(&numbered, "2, please").unwrap().chosen.label, "Redis stream");
    }

    #[test]
    fn an_answered_question_names_what_was_chosen_and_what_not() {
        let option = |label: &str, description: &str| ChoiceOption {
            label: label.into(),
            description: description.into(),
        };
        let options = [option("Inline (Recommended)", "Below the field"), option("Toast", "In a corner")];
        let choice =
            answered("How are errors shown?", "Errors", &options, "Inline (Recommended)", "less noise")
                .unwrap();
        assert_eq!(choice.title().unwrap(), "How are errors shown? Inline");
        assert_eq!(
            (choice.reason.as_str(), choice.rejected().unwrap().as_str()),
            ("less noise", "- Toast: In a corner")
        );
        assert!(answered("How are errors shown?", "Errors", &options, "what is a toast?", "").is_none());
    }
}
