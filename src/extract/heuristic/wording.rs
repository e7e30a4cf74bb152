//! How a detected lesson is worded for its review. Nothing here decides whether it is proposed.

use knowledge::UnitType;
use knowledge::markdown::without_emphasis;
use knowledge::text::canonical;

use super::standalone::{explains_a_failure, informs, is_clear, refers_back, stands_alone, without_lead_in};
use crate::sentences::regexes;

regexes! {
    // Announces a statement: "The load-bearing fix is subtle:", "Root cause:".
    ANNOUNCES = r"(?ix)^(?:
        [^`:]{0,60}\b(?:bug|issue|problem|cause|culprit|fix|finding|insight|lesson|reason|catch|gotcha|caveat|clear|good|subtle|interesting|article|reinforces|says|shows|confirms|explains)\b[^`:]{0,25}:\s+
      | the\ (?:root|real|actual|underlying|key|important|main)\ (?:cause|problem|issue|bug|insight|point|finding|thing)\ (?:here\ )?(?:is|was)\ (?:that\ )?
    )";
    // An announcement that says what the statement is about: "Root cause of the loop:".
    NAMES_SUBJECT = r"(?i)\b(?:of|for|in|on|with|when|where|to|at|from|about|without)\s";
    // What somebody exclaims before a statement: "Found it!"
    EXCLAIMS = r"^[^`.!?]{1,30}!\s+";
    // A word that ties a sentence to the one before it.
    OPENS = r"(?i)^(?:[—–-] *)?(?:(?:so|however|also|ok(?:ay)?|right|yes|interesting(?:ly)?)(?:, | [—–-] | ))?";
    // The rest of a sentence, or what points at another one.
    FRAGMENT = r"(?i)^(?:that|that's|this|these|those|so|but|however|and|or|is|are|was|which|then|also|they)\b";
    // A sentence whose beginning is missing.
    UNBEGUN = r"(?i)^(?:is|are|was|were|and|or|so|but|which|then)\b";
    // Questions that are a statement with a few words moved: "Which token should we use?", "Where should it go?".
    WHICH = r"(?ix)^(?:which|what)\ (?P<what>[^?]+?)\ (?:(?:do|would)\ (?:you|we)\ (?:like|want|prefer)(?:\ to\ \w+)?
        | (?:should|shall|do|can)\ (?:we|i)\ (?:use|take|choose|pick|go\ with|have))\b(?P<rest>[^?]*)\?$";
    TO_DO = r"(?i)^(?P<how>where|how|when) (?:should|shall|do|would|can) (?:we|i|you) (?P<rest>[^?]+)\?$";
    SHOULD = r"(?i)^(?P<how>where|how|when) should (?P<what>[^?]+?) (?P<rest>(?:be|go|live|stay|work|behave|look|happen|appear|handle|react|belong|respond|fail)\b[^?]*)\?$";
    // What is decided, what is broken, and how a person likes to work.
    RULES = r"(?ix)^(?:never|always|do\ not|don't|prefer|avoid|keep|preserve|refresh|tighten|store|use|treat|leave|reuse|require|allow)\s
        | \bwe\ (?:must|should|need\ to|never|always)\b";
    DEFECT = r"(?i)\b(?:fails?|breaks?|crash(?:es)?|hangs?|panics?) (?:because|when|if)\b|\b(?:get|gets|got|is|are) (?:filtered out|dropped|lost|overwritten|skipped|ignored) because\b|\bdangling\b|\bnever (?:reached|called|released|closed|updated|fires)\b";
    OF_A_BUG = r"(?i)\b(?:root cause|(?:real|actual) (?:bug|cause|problem))\b";
    PERSONAL = r"(?i)\b(?:always|never|prefer|don't|do not|i (?:like|want|hate)|we want|no need)\b";
}

/// Fewer words are an exclamation: "nice".
const SENTENCE_WORDS_MIN: usize = 3;
/// Fewer words are no quotation.
const QUOTED_WORDS_MIN: usize = 5;

/// A title without emphasis and without words that only announce it; a question with its answer becomes a statement.
pub(super) fn title(statement: &str) -> String {
    let text = without_emphasis(statement).into_owned();
    if let Some((question, answer)) = text.split_once("? ") {
        return answered(&format!("{question}?"), answer).unwrap_or(text);
    }
    match announced(&text).filter(|rest| is_clear(rest)) {
        Some(rest) => upper_first(rest),
        None => text,
    }
}

/// What follows an announcement that says nothing of it.
fn announced(text: &str) -> Option<&str> {
    let found = ANNOUNCES.find(text).filter(|found| !NAMES_SUBJECT.is_match(found.as_str()))?;
    Some(&text[found.end()..])
}

/// "Where should jobs be stored?", "In Redis" → "Where jobs should be stored: in Redis"
fn answered(question: &str, answer: &str) -> Option<String> {
    if let Some(found) = WHICH.captures(question) {
        return Some(format!("{}{}: {answer}", upper_first(&found["what"]), &found["rest"]));
    }
    if let Some(found) = TO_DO.captures(question) {
        return Some(format!("{} to {}: {answer}", upper_first(&found["how"]), &found["rest"]));
    }
    let found = SHOULD.captures(question)?;
    Some(format!("{} {} should {}: {answer}", upper_first(&found["how"]), &found["what"], &found["rest"]))
}

/// What a lesson with this title is, as far as its form says more than the detector knew.
pub(super) fn kind(kind: UnitType, by_human: bool, title: &str, statement: &str) -> UnitType {
    let is_rule = RULES.is_match(title);
    match kind {
        // What a person says should be, of the code and not of how they like to work.
        UnitType::Belief if !PERSONAL.is_match(title) => {
            if title.contains("should") || title.contains("must") {
                UnitType::Decision
            } else {
                UnitType::Concept
            }
        }
        UnitType::Concept if !by_human && is_rule => UnitType::Decision,
        UnitType::Concept
            if DEFECT.is_match(title) || OF_A_BUG.is_match(statement) || explains_a_failure(title) =>
        {
            UnitType::Bug
        }
        kind => kind,
    }
}

/// Whether a sentence can be the reason of a statement. A person's reason is kept if it is a sentence at all.
pub(super) fn is_reason(sentence: &str, by_human: bool) -> bool {
    if by_human { !UNBEGUN.is_match(sentence) } else { !FRAGMENT.is_match(sentence) && informs(sentence) }
}

/// A sentence beside a statement as its description, if it is understood alone.
pub(super) fn beside(sentence: &str) -> Option<&str> {
    let text = without_lead_in(sentence);
    (stands_alone(text) && !refers_back(text)).then_some(text)
}

/// A quotation without what says nothing before and after the statement: praise, steps of the work, an announcement.
pub(super) fn quote(text: &str, statement: &str) -> String {
    let says =
        |sentence: &str| sentence.split_whitespace().count() >= SENTENCE_WORDS_MIN && informs(sentence);
    let is_kept =
        |sentence: &str| statement.contains(sentence) || sentence.contains(statement) || says(sentence);
    let mut rest = text.trim();
    while let Some((first, others)) = rest.split_once(". ") {
        if is_kept(first) {
            break;
        }
        rest = others.trim_start();
    }
    while let Some((others, last)) = rest.rsplit_once(". ") {
        if is_kept(last.trim_end_matches('.')) && !last.ends_with(':') {
            break;
        }
        rest = &rest[..=others.len()];
    }
    let is_long = |after: &&str| after.split_whitespace().count() >= QUOTED_WORDS_MIN;
    rest = EXCLAIMS.find(rest).map(|found| &rest[found.end()..]).filter(is_long).unwrap_or(rest);
    rest = announced(rest).filter(is_long).unwrap_or(rest);
    upper_first(&OPENS.replace(rest, ""))
}

/// Whether one text says all that another says.
pub(super) fn says(text: &str, other: &str) -> bool {
    canonical(text).contains(&canonical(other))
}

/// Capitalises a text, unless it begins with a name.
pub(super) fn upper_first(text: &str) -> String {
    // A name at the start keeps its case: `io-ts`, `utf8`, `main.rs`.
    let first =
        text.split_whitespace().next().unwrap_or_default().trim_end_matches([',', ':', ';', '.', '\'']);
    if first.contains(|c: char| !c.is_alphabetic() && c != '\'') {
        return text.to_owned();
    }
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Makes the first letter lower case, unless it begins an acronym.
pub(super) fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    let second_is_lower = text.chars().nth(1).is_some_and(|c| c.is_lowercase() || c == ' ');
    match chars.next() {
        Some(first) if second_is_lower => first.to_lowercase().chain(chars).collect(),
        _ => text.to_owned(),
    }
}

/// Capitalises a text and ends it with a full stop where it needs one.
pub(super) fn as_sentence(text: &str) -> String {
    let text = text.trim();
    if text.is_empty()
        || text.ends_with(['.', '!', '?', '`', ':']) && !text.ends_with('`')
        || text.ends_with("```")
    {
        upper_first(text)
    } else {
        format!("{}.", upper_first(text.trim_end_matches([',', ';'])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_the_statement_and_nothing_around_it() {
        let check = |statement: &str, expected: &str| assert_eq!(title(statement), expected);
        check(
            "The load-bearing fix is subtle: the old pool opened a *second* connection for each read",
            "The old pool opened a second connection for each read",
        );
        check(
            "The root cause was `chmod` changes only the mode of the link's target",
            "`chmod` changes only the mode of the link's target",
        );
        // Without the words before the colon it would say something else.
        check(
            "The bug in the importer: the cursor is dropped when a page is empty",
            "The bug in the importer: the cursor is dropped when a page is empty",
        );
        check(
            "On macOS: `realpath` does not change the case",
            "On macOS: `realpath` does not change the case",
        );
        check("The glob `*.rs` and *.toml are watched", "The glob `*.rs` and *.toml are watched");
    }

    #[test]
    fn a_question_and_its_answer_are_a_statement() {
        let check = |asked: &str, expected: &str| assert_eq!(title(asked), expected);
        check("Where should jobs be stored? In SQLite", "Where jobs should be stored: In SQLite");
        check("How should we retry? With a backoff", "How to retry: With a backoff");
        check("Which token do you want to use for the tap? An app's", "Token for the tap: An app's");
        check("Are errors shown inline? Yes, below", "Are errors shown inline? Yes, below");
    }

    #[test]
    fn a_quotation_begins_and_ends_with_what_is_said() {
        let statement = "the worker holds its lease while it sleeps";
        let check = |text: &str, expected: &str| assert_eq!(quote(text, statement), expected);
        check(
            "Found it! Root cause: the worker holds its lease while it sleeps. Let me fix that.",
            "The worker holds its lease while it sleeps.",
        );
        check(
            "nice. The worker wakes too late, so the worker holds its lease while it sleeps.",
            "The worker wakes too late, so the worker holds its lease while it sleeps.",
        );
        check(
            "However, the worker holds its lease while it sleeps. ---",
            "The worker holds its lease while it sleeps.",
        );
    }

    #[test]
    fn the_form_of_a_statement_tells_its_type() {
        let of = |known: UnitType, by_human: bool, title: &str| kind(known, by_human, title, title);
        assert_eq!(
            of(UnitType::Concept, false, "Preserve unknown hooks in the settings"),
            UnitType::Decision
        );
        assert_eq!(
            of(UnitType::Concept, false, "The hook fails because it runs the tests of old clones"),
            UnitType::Bug
        );
        assert_eq!(of(UnitType::Belief, true, "Each report should name its source"), UnitType::Decision);
        assert_eq!(of(UnitType::Belief, true, "Never squash the commits of others"), UnitType::Belief);
        assert_eq!(of(UnitType::Belief, true, "The watcher only sees the first folder"), UnitType::Concept);
    }
}
