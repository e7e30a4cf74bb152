//! The sentence of a topic that a colleague would want to know later, if there is one.
//!
//! Most of what a model says in a session tells what it does next, or that tests pass. A sentence is worth keeping if it
//! gives a cause, a limit or a reason, and names what it is about. The weights were set on one half of the sessions of one
//! project, by reading; `docs/extraction.md` says how many of those of the other half were judged worth keeping.

use archive::Said;
use extract::split_sentences;
use knowledge::text::one_line;
use provenance::derive::intent;
use regex::Regex;

/// The longest summary, in characters.
pub const SUMMARY_CHARS_MAX: usize = 440;
/// How much of what was asked is in the summary.
const WANTED_CHARS_MAX: usize = 100;
const SENTENCE_CHARS: std::ops::RangeInclusive<usize> = 45..=320;
const SENTENCE_WORDS_MIN: usize = 8;
/// The least score of a sentence that answers a prompt which says what is wanted.
const SCORE_MIN: f64 = 3.0;
/// The same without such a prompt.
const SCORE_MIN_ALONE: f64 = 3.4;
/// The sentence after the best one is added from this score on.
const SCORE_MIN_NEXT: f64 = 1.6;
const BOTH_CHARS_MAX: usize = 330;
/// Answers longer than this are cut before they are read.
const ANSWER_BYTES_MAX: usize = 16 << 10;

macro_rules! regexes {
    ($($name:ident = $pattern:expr;)+) => {
        $(static $name: std::sync::LazyLock<Regex> =
            std::sync::LazyLock::new(|| Regex::new($pattern).expect("a constant expression"));)+
    };
}

regexes! {
    // What the model does, did or offers.
    NARRATION = r"(?i)^(?:(?:now,? )?(?:let me|now|i'll|i will|i'm going|i am going|let's|good|great|perfect|excellent|awesome|done|all (?:\w+ )?(?:tests|checks|good|green|pass|clean)|all changes|here's|here is|here are|i see|i need|i have|i've|i'd|i also|i can|i should|i could|i was|i think|i understand|i notice|first|next|then|looking|ok|okay|sure|wait|actually|hmm|yes|no,|you're|you are|both|clean|build|tests? pass|lint|pushed|committed|created|added|updated|removed|deleted|changed|fixed|renamed|moved|replaced|run|want|would|should|if you|do you|to (?:test|verify|run|fix)|summary|the (?:fix|change|changes|implementation|plan|code) (?:is|are|looks?) (?:now |all )?(?:complete|done|ready|good|straightforward|simple)|no response|the user|thanks|everything|commit|this (?:is|looks) (?:a )?(?:good|great|clean|correct|fine)))\b";
    CAUSE = r"(?i)\b(?:because|since|due to|caused by|root cause|turns out|the (?:real |actual |core |underlying |key |main )?(?:issue|problem|bug|reason|cause|culprit|difference|insight|catch|gotcha)\b|that's why|which (?:means|is why|causes?|caused|makes|made|breaks?|broke)|so that|otherwise|as a result|leads? to|fails? (?:when|because|if|with|since)|failed because|happens (?:when|because)|only (?:when|if|works?|after|runs?))";
    LIMIT = r"(?i)\b(?:instead of|rather than|must|never|always|requires?|required|doesn't|don't|does not|cannot|can't|won't|no longer|by design|intentional(?:ly)?|deliberate(?:ly)?|trade-?off|decided|chose|prefer|safer|not (?:a|the|just|yet)|but|however|whereas|unless|even though|although|already|previously|before)\b";
    IDENTIFIER = r"`[^`]{2,60}`|\b\w+(?:_\w+)+\b|\b[a-z]+[A-Z]\w+|\b[\w/-]+\.(?:go|rs|ts|tsx|py|md|json|toml|yml|yaml|js|sh|rb|java|c|cpp|sql)\b|--[a-z-]{3,}";
    STATES = r"(?i)\b(?:is|are|was|were|has|have|does|uses?|returns?|stores?|reads?|writes?|contains?|calls?|handles?|creates?|sets?|gets?|runs?|keeps?|checks?|means|happens?|works?|fails?|failed|causes?|triggers?|points?|expects?|needs?|breaks?|skips?|ignores?|overwrites?|drops?|loses?|leaves?)\b";
    REFERS_BACK = r"(?i)^(?:this|that|it|they|these|those|he|she|here|there|which|so|and|but|also|both|either|neither|same|again)\b";
    // Of the moment: what is done next, commits, counts of tests, places in a file or a review.
    MOMENT = r"(?i)\b(?:let me|i'll|i will|let's|we should (?:also )?(?:check|look)|going to|want me to|shall i|do you want|would you like|ready to|feel free|let me know|take a look|double-check|verify that|make sure)\b|\.\.\.$|\bpushed\b|\bcommitted as\b|\b[0-9a-f]{7,40}\b|\btests? (?:all )?pass|\bpass(?:es|ing)?\b|\blines? \d+|\(line|\bcomment #?\d|\b#\d+\b";
    WEAK = r"(?i)\b(?:i should|i need|we need to|you need to|needs? to be (?:updated|added|changed|removed|fixed)|should be (?:updated|added)|remaining|untracked|no ?lint|gofmt|updated? (?:to|the)|now (?:accepts|uses|checks|returns)|rebase|cherry-pick|merge conflict|i'm|i was|i've|i|my|arguably|perhaps|maybe|probably|might|seems?|likely|copilot|cursor|reviewer|pr feedback|reply|todo|plan|step \d|task \d|pre-existing|unrelated|for now|next release|recommend(?:ation)?|lint\w*|consider|later|should (?:still|fail|pass|work)|must be with|short answer|rare|edge case)\b";
    LABEL = r"(?i)^(?:re|fix|evidence|concern|test fixes|recommendation|note|import|summary|status|verdict|option \w|answer|result|question|example|changes?|files?)\b:?";
    ENTRY = r"^`?[\w./()]+`?\s*(?::|—|–)";
    PROPOSAL = r"(?i)^(?:or )?(?:add|update|create|import|move|extend|rename|extract|we could|could|option|alternatively)\b";
    MARKS = r"→|->|✅|❌|✓";
    PLAN = r"(?im)^\s*#+\s*(?:implementation )?(?:plan)?\s*:?\s*(.+)$";
    GENERIC = r"(?i)^(?:commit|push|yes|no|ok|continue|go|go on|go ahead|run|do it|fix (?:it|this|that|them)|try again|again|thanks|looks? good|what now|merge|rebase|amend|make|clear|exit|stop|review|address|pull|lint|test)\b";
}

/// A topic in one or two sentences.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// What was wanted and what was found.
    pub text: String,
    /// The message, by its place in the topic, that says what was found.
    pub found: usize,
    /// The prompt that asked for it, by its place.
    pub wanted: Option<usize>,
}

/// Sums up a topic; `None` if it says nothing that is worth keeping.
pub fn summarize(topic: &[Said]) -> Option<Summary> {
    let mut best: Option<(f64, usize, String)> = None;
    for (at, said) in topic.iter().enumerate().filter(|(_, said)| !said.is_prompt) {
        let is_last = topic.get(at + 1).is_none_or(|next| next.is_prompt);
        let text = &said.text[..said.text.floor_char_boundary(ANSWER_BYTES_MAX)];
        let sentences = split_sentences(text, false);
        for (place, sentence) in sentences.iter().enumerate().filter(|(_, sentence)| !sentence.is_question) {
            // What announces a list says nothing without it.
            let is_head = said.text.contains(&format!("{}:", sentence.text));
            let Some(score) = score(&sentence.text, is_last).filter(|_| !is_head) else { continue };
            // Of equals the later one: a session knows more at its end.
            if best.as_ref().is_some_and(|(known, ..)| score < *known) {
                continue;
            }
            let next = sentences
                .get(place + 1)
                .filter(|next| !next.is_question && follows(&sentence.text, &next.text));
            let next = next.map(|next| format!(" {}.", next.text)).unwrap_or_default();
            best = Some((score, at, format!("{}.{next}", sentence.text)));
        }
    }
    let (score, found, text) = best?;
    let wanted = topic[..found].iter().enumerate().rev().find(|(_, said)| said.is_prompt);
    let wanted = wanted.and_then(|(at, said)| Some((at, wanted_by(&said.text)?)));
    if score < if wanted.is_some() { SCORE_MIN } else { SCORE_MIN_ALONE } {
        return None;
    }
    let text = match &wanted {
        Some((_, wanted)) => format!("{wanted}: {text}"),
        None => text,
    };
    Some(Summary { text: one_line(&text, SUMMARY_CHARS_MAX), found, wanted: wanted.map(|(at, _)| at) })
}

/// Whether a sentence belongs to the one before it.
fn follows(sentence: &str, next: &str) -> bool {
    let refers_back = if REFERS_BACK.is_match(next) { 1.0 } else { 0.0 };
    sentence.len() + next.len() <= BOTH_CHARS_MAX
        && score(next, false).is_some_and(|score| score + refers_back >= SCORE_MIN_NEXT)
}

/// How much a sentence says that is worth knowing later; `None` for one that is no statement. `is_last`: of the last
/// message before a prompt, which usually sums up.
fn score(sentence: &str, is_last: bool) -> Option<f64> {
    let chars = sentence.chars().count();
    if !SENTENCE_CHARS.contains(&chars)
        || sentence.split_whitespace().nth(SENTENCE_WORDS_MIN - 1).is_none()
        || NARRATION.is_match(sentence)
    {
        return None;
    }
    let count = |expression: &Regex, most: usize| expression.find_iter(sentence).take(most).count() as f64;
    let has = |expression: &Regex| if expression.is_match(sentence) { 1.0 } else { 0.0 };
    let mut score = 1.5 * count(&CAUSE, 2) + 0.6 * count(&LIMIT, 2) + 0.35 * count(&IDENTIFIER, 3);
    score += if STATES.is_match(sentence) { 0.4 } else { -0.8 };
    score -= has(&REFERS_BACK)
        + 1.6 * has(&MOMENT)
        + has(&MARKS)
        + has(&LABEL)
        + has(&PROPOSAL)
        + 0.8 * count(&WEAK, 2);
    score += if is_last { 0.5 } else { 0.0 };
    score += if (80..=240).contains(&chars) { 0.3 } else { 0.0 };
    if ENTRY.is_match(sentence) && !CAUSE.is_match(sentence) && !LIMIT.is_match(sentence) {
        score -= 1.0;
    }
    Some(score)
}

/// What a prompt wants, in a line; `None` for one that only goes on.
fn wanted_by(prompt: &str) -> Option<String> {
    let is_plan = transcript::approved_plan(prompt).is_some();
    let title = PLAN.captures_iter(prompt).filter_map(|found| found.get(1));
    let title = title.map(|title| title.as_str().trim()).find(|title| title.contains(' '));
    let text = match title.filter(|_| is_plan) {
        Some(title) => title.to_owned(),
        None => intent(prompt)?,
    };
    let words = text.split_whitespace().filter(|word| word.chars().any(char::is_alphabetic)).count();
    let says_little = words < 4 && !is_plan || GENERIC.is_match(&text) && words < 8;
    let text = text.trim_start_matches(|c: char| c.is_whitespace() || "*-•>".contains(c));
    if says_little || text.starts_with("http") {
        return None;
    }
    let mut letters = text.chars();
    let first = letters.next()?;
    let text: String = first.to_uppercase().chain(letters).collect();
    Some(one_line(text.trim_end_matches([':', '.', ' ']), WANTED_CHARS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(lines: &[(bool, &str)]) -> Vec<Said> {
        let said = |(at, (is_prompt, text)): (usize, &(bool, &str))| Said {
            message: at as i64,
            is_prompt: *is_prompt,
            text: (*text).to_owned(),
            at: None,
            vector: None,
        };
        lines.iter().enumerate().map(said).collect()
    }

    #[test]
    fn a_cause_is_worth_keeping_and_narration_is_not() {
        let found = summarize(&topic(&[
            (true, "why are the tests so slow now?"),
            (false, "Let me check what has changed in the test helpers since yesterday."),
            (false, "The reason: every test uses `t.Chdir()`, which makes `t.Parallel()` impossible. All tests pass."),
            (false, "Committed as 805f7b2c, because the tests pass and `lint` is clean."),
        ]))
        .unwrap();
        assert_eq!(
            found.text,
            "Why are the tests so slow now: The reason: every test uses `t.Chdir()`, which makes `t.Parallel()` impossible."
        );
        assert_eq!((found.wanted, found.found), (Some(0), 2));
    }

    #[test]
    fn a_topic_without_a_finding_is_left_out() {
        for answer in [
            "Done. The command is hidden and no longer appears in the help output of the tool.",
            "Let me run the tests again, because the build failed in `main.go`.",
            "Should I use `Mutex` instead of `RwLock`, because the readers are few and never block?",
            "All tests pass.",
            "",
        ] {
            let topic = topic(&[(true, "let's hide the start command of the tool"), (false, answer)]);
            assert_eq!(summarize(&topic), None, "{answer}");
        }
        assert_eq!(summarize(&[]), None);
    }

    #[test]
    fn a_prompt_is_quoted_only_if_it_says_what_is_wanted() {
        let check = |prompt: &str, expected: Option<&str>| {
            assert_eq!(wanted_by(prompt).as_deref(), expected, "{prompt}")
        };
        check("can you fix the double mail of invoices?", Some("Fix the double mail of invoices"));
        check(
            "Implement the following plan:\n\n# Plan: Retry of failed webhooks\n\nText",
            Some("Retry of failed webhooks"),
        );
        check("commit this", None);
        check("fix it and push the branch", None);
        check("/clear", None);
    }

    #[test]
    fn any_text_is_read() {
        for text in ["\u{202e}", "`", "**", "é".repeat(100_000).as_str(), &"because `a` ".repeat(50_000)] {
            let _ = summarize(&topic(&[(true, text), (false, text)]));
        }
    }
}
