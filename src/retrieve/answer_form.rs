//! What a passage's form says about whether it answers the question: who says it, whether it names a time, and whether it
//! asks itself.

use std::collections::HashSet;

use crate::dates;

/// The longest label of a speaker, `Caroline (8 May, 2023)`.
const LABEL_BYTES_MAX: usize = 60;
const NAME_WORDS_MAX: usize = 3;
/// A passage of which more than this part is questions asks, and the answer comes after it.
const ASKING_PART: f64 = 0.5;

/// The form that an answer to the question has.
pub(crate) struct AnswerForm {
    words: HashSet<String>,
    asks_for_time: bool,
}

/// How far a passage has this form.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Form {
    /// 1 if the passage is one utterance of somebody whom the question names.
    pub(crate) speaker: f64,
    /// 1 if the question asks for a time and the passage names one.
    pub(crate) time: f64,
    /// 1 if the passage is mostly questions.
    pub(crate) asks: f64,
}

impl AnswerForm {
    pub(crate) fn from_question(question: &str) -> Self {
        const AFTER_WHAT: [&str; 6] = ["date", "day", "month", "year", "time", "week"];
        let words: Vec<String> = words(question).map(str::to_lowercase).collect();
        // "When the jumpers go into storage, …" does not ask when.
        const AFTER_WHEN: [&str; 16] = [
            "did", "do", "does", "is", "are", "was", "were", "will", "would", "has", "have", "had", "should",
            "can", "could", "may",
        ];
        let for_time = |pair: &[String]| match pair[0].as_str() {
            "what" | "which" => AFTER_WHAT.contains(&pair[1].as_str()),
            _ => false,
        };
        let begins_with_when = words.first().is_some_and(|word| word == "when")
            && words.get(1).is_some_and(|word| AFTER_WHEN.contains(&word.as_str()));
        // Only at the beginning: a question about something else may ask how long at its end.
        let begins_with_how_long = words.windows(2).take(2).any(|pair| pair[0] == "how" && pair[1] == "long");
        let asks_for_time = begins_with_when || begins_with_how_long || words.windows(2).any(for_time);
        Self { words: words.into_iter().collect(), asks_for_time }
    }

    pub(crate) fn of_passage(&self, passage: &str) -> Form {
        let (name, said) = speaker(passage);
        let is_utterance = !said.trim().contains('\n');
        let is_named = |name: &str| words(name).any(|word| self.words.contains(&word.to_lowercase()));
        let names_time = || words(said).any(is_time);
        let asking: usize = sentences(said).filter(|sentence| sentence.ends_with('?')).map(str::len).sum();
        Form {
            speaker: f64::from(is_utterance && name.is_some_and(is_named)),
            time: f64::from(self.asks_for_time && names_time()),
            asks: f64::from(asking as f64 > ASKING_PART * said.len() as f64),
        }
    }
}

/// Who says the passage, from a label such as `Ann: ` or `Ann (8 May, 2023): `, and the text after it. Headings before it, and
/// a first line in parentheses, which says when all of the passage was said, are left out too.
fn speaker(passage: &str) -> (Option<&str>, &str) {
    let mut passage = passage;
    while let Some((first, rest)) = passage.split_once('\n')
        && (first.starts_with('#') || first.trim().is_empty())
    {
        passage = rest;
    }
    if let Some((first, rest)) = passage.split_once('\n')
        && first.starts_with('(')
        && first.ends_with(')')
    {
        return (None, rest);
    }
    let labelled = passage.split_once(": ").filter(|(label, _)| label.len() <= LABEL_BYTES_MAX);
    let Some((label, said)) = labelled else { return (None, passage) };
    let (name, rest) = label.split_once(" (").unwrap_or((label, ")"));
    let is_name = name.starts_with(char::is_alphabetic)
        && name.chars().all(|c| c.is_alphabetic() || matches!(c, ' ' | '.' | '\'' | '-'))
        && name.split(' ').count() <= NAME_WORDS_MAX
        && name.split(' ').skip(1).all(|word| word.starts_with(char::is_uppercase))
        && rest.ends_with(')');
    if is_name { (Some(name), said) } else { (None, passage) }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// With the mark that ends them.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(['.', '!', '?', '\n'])
}

/// Whether a word says when something was, in a sentence that tells it. May is left out, since it is a verb.
fn is_time(word: &str) -> bool {
    const WORDS: [&str; 19] = [
        "yesterday",
        "today",
        "tonight",
        "tomorrow",
        "last",
        "next",
        "ago",
        "week",
        "weeks",
        "weekend",
        "month",
        "months",
        "year",
        "years",
        "days",
        "since",
        "morning",
        "evening",
        "spring",
    ];
    let lower = word.to_ascii_lowercase();
    // "May" is more often the verb, and "sun" and "mar" are words, too.
    let is_month = || lower.len() > 3 && dates::month(&lower).is_some();
    WORDS.contains(&lower.as_str())
        || is_month()
        || dates::weekday(&lower).is_some()
        || dates::year(word).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(question: &str, passage: &str) -> (f64, f64, f64) {
        let Form { speaker, time, asks } = AnswerForm::from_question(question).of_passage(passage);
        (speaker, time, asks)
    }

    #[test]
    fn an_utterance_of_somebody_whom_the_question_names_is_told() {
        let question = "What did Ann's sister paint?";
        assert_eq!(form(question, "Ann (8 May, 2023): a sunrise").0, 1.0);
        assert_eq!(form(question, "ann: a sunrise").0, 1.0);
        assert_eq!(form(question, "# A talk\n\nAnn: a sunrise\n").0, 1.0);
        for other in
            ["Bob (8 May, 2023): Ann did", "Ann painted: a sunrise", "Ann: a sunrise\nBob: nice", "Ann", ""]
        {
            assert_eq!(form(question, other).0, 0.0, "{other}");
        }
    }

    #[test]
    fn a_time_is_looked_for_only_if_the_question_asks_for_one() {
        for question in ["When did it fail?", "In what year did it fail?", "For how long was it down?"] {
            for passage in
                ["Ann (8 May, 2023): it failed last week", "It failed in 2021.", "(8 May)\nOn Friday it did"]
            {
                assert_eq!(form(question, passage).1, 1.0, "{question} {passage}");
            }
            for passage in ["Ann (8 May, 2023): it failed", "20211 failures", "(Friday)\nit failed"] {
                assert_eq!(form(question, passage).1, 0.0, "{question} {passage}");
            }
        }
        assert_eq!(form("What happens when it fails?", "It failed last week.").1, 0.0);
        assert_eq!(form("When it fails, for how long does it wait?", "It failed last week.").1, 0.0);
    }

    #[test]
    fn a_passage_of_questions_asks() {
        assert_eq!(form("", "Ann: Hey! What happened to the build?").2, 1.0);
        assert_eq!(form("", "Ann: The build broke since a file was missing. Why?").2, 0.0);
        assert_eq!(form("", "").2, 0.0);
    }
}
