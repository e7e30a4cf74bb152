//! Detects stated causes of failures, of a command or as described in words.

use knowledge::UnitType;
use knowledge::text::one_line;

use super::command;
use super::detection::{Detection, Detections, evidence_at, fits_title, quote_utterance};
use super::session::{CommandRun, Session, Utterance};
use super::standalone;
use super::wording::{lower_first, upper_first};
use crate::sentences::{self, regexes};

regexes! {
    ROOT = r"(?i)\broot cause(?: of [^,.:;]{3,60}?)?(?: is| was| turned out to be| turns out to be|:| —| –)\s*(?:that )?(?P<cause>.+)$";
    TURNED_OUT = r"(?i)(?:^|\bit |\bthis |[,;] )turn(?:s|ed) out,?(?: that| to be)?\s+(?P<cause>.+)$";
    REAL = r"(?i)\bthe (?:actual|real|underlying|true) (?:problem|issue|cause|culprit|bug|reason)(?: is| was|:)\s*(?:that )?(?P<cause>.+)$";
    PROBLEM_WAS = r"(?i)^(?:so )?the (?:problem|issue|bug|trouble) was (?:that )?(?P<cause>.+)$|\bthe reason (?:why )?(?:it|this|that|they|the [\w` -]{3,40}?) [\w' ]{2,30}? (?:is|was) that (?P<cause2>.+)$";
    FAILS_BECAUSE = r"(?i)\b(?:it|this|that|they|the [\w` -]{3,50}?|`[^`]+`|\w+) (?:keeps? |kept |only |always |sometimes )?(?:fail(?:s|ed|ing)?|broke|breaks|crash(?:es|ed)?|hangs|hung|happens|happened|flakes|flaked|times out|timed out|panics|panicked|deadlocks|deadlocked|leaks|leaked|was (?:failing|slow|empty|wrong|missing)|is (?:failing|slow|empty|wrong)) because (?:of )?(?P<cause>.+)$";
    CULPRIT = r"(?i)\bthe culprit (?:is|was) (?P<cause>.+)$|\b(?:was|is|were) caused by (?P<cause2>.+)$";
    REFUTED = r"(?i)\b(?:that (?:was|is)n't (?:it|the)|that (?:was|is) not (?:it|the)|i was wrong|not the (?:root |real |actual )?cause|wrong (?:guess|theory|track|lead)|red herring|scrap that|still (?:fails|failing|broken|happens|the same))\b";
    FIX = r"(?i)^(?:(?:so|and|then|ok(?:ay)?)[, ]+)?(?:(?:the|a|proper|real|right) )*(?:fix|solution|remedy|workaround)(?: is| was|:| here is)\s*(?:to )?(?P<fix>.{8,})$|\b(?:fixed|solved|resolved|cured|avoided) (?:it |this |that )?by (?P<fix2>.{8,})$|^(?:(?:so|and|then|now)[, ]+)?i(?:'ve| have)? (?P<fix3>(?:changed|moved|added|set|replaced|pinned|wrapped|switched|made|dropped|removed|passed|bumped|raised|gave|took|put|enabled|disabled|renamed)\b.{8,})$";
    PRONOUN = r"(?i)^(?:it|it's|this|that|they|he|she|there|we|we're|i|i'm|its|their|you|some|something|one)\b";
    RESUMED = r"^(?P<what>[^:,;]{3,50}): it ";
    IDENTIFIER = r"[A-Za-z_]\w*(?:[_.:/-]+\w+)+|[a-z]+[A-Z]\w+|[A-Z][a-z]+[A-Z]\w+|--[a-z][\w-]+|`[^`]{3,}`";
    HAS_VERB = r"\b(?:is|are|was|were|has|had|did|ran|took|[a-z]{3,}(?:s|ed|ing))\b";
    SMALL = r"(?i)\b(?:typo|misspell|misspelled|missing (?:semicolon|comma|paren|parenthesis|bracket|brace|quote|import)|forgot to (?:save|import)|unused|off by one line|wrong (?:file|folder|directory|path|branch)|not installed)\b";
}

/// Stems that the words about any failure share.
const COMMON_OF_FAILURES: &str = " fail error test run build command code exit file found not line work problem issue bug caus \
    fix chang check return valu expect got set call function miss undefin main ";

/// Detects sentences that state the cause of a failure.
pub(super) fn detect(session: &Session<'_>, detections: &mut Detections) {
    for (at, utterance) in session.utterances.iter().enumerate() {
        let text = utterance.sentence.text.as_str();
        let Some(cause) = find_cause(text) else { continue };
        if utterance.sentence.is_question
            || sentences::is_hedged(text)
            || utterance.by_human && utterance.message.is_untrustworthy()
        {
            detections.reject(text, "a guess, not a statement");
            continue;
        }
        if let Some(reason) = rejection_reason(session, utterance, &cause) {
            detections.reject(text, reason);
            continue;
        }
        // What failed just before may be something else: only what the words name belongs to the cause, and the only
        // failure of the session, if an edit after the words made it pass.
        let failed = failure_before(session, utterance.event);
        let is_proven = failed.is_some_and(|failed| is_the_fixed_failure(session, failed, utterance.event));
        let failed = failed.filter(|failed| is_proven || is_named_in(failed, text));
        let passed = failed.and_then(|failed| command::find_passing_run(session, failed, utterance.event));
        let fix = find_fix(session, at, passed, is_proven);
        let is_fixed = passed.is_some() || fix.is_some();
        let symptom = failed.map(|failed| command::find_symptom(failed));
        // A sentence that names both what failed and why makes a better title than the cause alone.
        let names_failure = FAILS_BECAUSE.find(text).is_some_and(|found| found.start() == 0);
        let sentence = standalone::without_lead_in(text);
        let title = match &symptom {
            _ if names_failure && fits_title(sentence) && standalone::stands_alone(sentence) => {
                upper_first(sentence)
            }
            _ if standalone::is_clear(&cause) && HAS_VERB.is_match(&cause) => upper_first(&cause),
            Some(symptom) if PRONOUN.is_match(&cause) => {
                format!("{}: {}", symptom.summarize(), lower_first(&cause))
            }
            _ if standalone::stands_alone(sentence) => upper_first(sentence),
            _ => {
                detections.reject(text, "unclear without its context");
                continue;
            }
        };
        // A title that will be cut leaves out a part of the cause.
        let is_title = title == upper_first(&cause) && fits_title(&title);
        let mut quotes = Vec::new();
        if let (Some(failed), Some(symptom)) = (failed, &symptom) {
            // The command's output is the best evidence, so it comes first.
            quotes.push(evidence_at(failed.result_line, &symptom.quote()));
        }
        quotes.push(quote_utterance(utterance));
        if let Some(fix) = &fix
            && !quotes.iter().any(|quote| quote.line == fix.line)
        {
            quotes.push(evidence_at(&fix.line, &fix.quote));
        }
        if let Some(passed) = passed {
            quotes.push(evidence_at(
                passed.result_line,
                &format!("{} → passed", one_line(passed.command, 100)),
            ));
        }
        let kind = if failed.is_some() || is_fixed { UnitType::Bug } else { UnitType::Concept };
        let confidence = match (passed.is_some(), fix.is_some()) {
            (true, true) => 0.7,
            (true, false) => 0.65,
            (false, true) => 0.6,
            (false, false) => 0.5,
        };
        let shown_by = failed.map(|failed| {
            let command = one_line(failed.command, 100);
            let then = if passed.is_some() { "; after the change it passed" } else { " in the session" };
            format!("`{command}` failed{then}")
        });
        detections.found.push(Detection {
            kind,
            title,
            statement: text.to_owned(),
            by_human: utterance.by_human,
            summary: symptom.as_ref().map(|symptom| symptom.describe()),
            when: symptom.map(|symptom| symptom.describe_condition()),
            what_to_do: fix.map(|fix| upper_first(&fix.what)),
            why: Some(upper_first(&cause)).filter(|_| !is_title),
            rejected: None,
            shown_by,
            confidence,
            event: utterance.event,
            detector: "causes",
            utterance: Some(at),
            evidence: quotes,
        });
    }
}

/// Whether a sentence has the form of a stated cause.
pub(super) fn has_form(sentence: &str) -> bool {
    find_cause(sentence).is_some()
}

/// Finds the cause that a sentence states.
fn find_cause(sentence: &str) -> Option<String> {
    let found = [&ROOT, &REAL, &PROBLEM_WAS, &FAILS_BECAUSE, &CULPRIT, &TURNED_OUT]
        .iter()
        .find_map(|form| form.captures(sentence))?;
    let cause = found.name("cause").or(found.name("cause2"))?.as_str().trim();
    // "The culprit is the probe: it starts …" becomes "the probe starts …".
    Some(RESUMED.replace(cause, "$what ").into_owned())
}

/// Whether a sentence is about a failed command: it names the command, or shares an identifier or two rare words
/// with the error.
fn is_named_in(failed: &CommandRun<'_>, sentence: &str) -> bool {
    let command = command::program_and_subcommand(command::strip_wrapping(failed.command));
    let error = command::find_symptom(failed).message;
    let lower = sentence.to_lowercase();
    lower.contains(&command.to_lowercase()) || shares_rare_words(&error, sentence)
}

/// Whether no other command failed in the session, and the same command passed after an edit that followed the cause.
fn is_the_fixed_failure(session: &Session<'_>, failed: &CommandRun<'_>, cause: usize) -> bool {
    let is_same = |run: &CommandRun<'_>| command::is_same_command(run.command, failed.command);
    session.runs.iter().filter(|run| !run.ok && command::is_informative(run)).all(is_same)
        && session.runs.iter().any(|run| {
            run.ok
                && is_same(run)
                && session.edits.iter().any(|edit| edit.event > cause && edit.event < run.event)
        })
}

/// Whether two texts share an identifier, or two words that are not said of every failure.
fn shares_rare_words(one: &str, other: &str) -> bool {
    let names = |text: &str| -> Vec<String> {
        IDENTIFIER.find_iter(text).map(|found| found.as_str().to_lowercase()).collect()
    };
    let named = names(one);
    if names(other).iter().any(|name| named.contains(name)) {
        return true;
    }
    let words = sentences::content_words(one);
    let mut shared: Vec<String> = sentences::content_words(other)
        .into_iter()
        .filter(|word| {
            words.contains(word) && word.len() > 2 && !COMMON_OF_FAILURES.contains(&format!(" {word} "))
        })
        .collect();
    shared.sort();
    shared.dedup();
    shared.len() >= 2
}

/// Why a stated cause is not worth proposing, if it is not.
fn rejection_reason(session: &Session<'_>, utterance: &Utterance<'_>, cause: &str) -> Option<&'static str> {
    if sentences::content_words(cause).len() < 4 {
        return Some("unclear without its context");
    }
    if SMALL.is_match(cause) {
        return Some("a slip without a lesson");
    }
    let refuted = session.utterances.iter().any(|later| {
        (later.event, later.line) > (utterance.event, utterance.line)
            && later.event <= utterance.event + 12
            && REFUTED.is_match(&later.sentence.text)
    });
    refuted.then_some("refuted later in the session")
}

/// The last failed command before an event, unless the same command has passed since.
fn failure_before<'s, 'a>(session: &'s Session<'a>, event: usize) -> Option<&'s CommandRun<'a>> {
    let failed =
        session.runs.iter().rev().find(|run| !run.ok && run.ended < event && command::is_informative(run))?;
    let fixed = session.runs.iter().any(|run| {
        run.ok
            && run.event > failed.ended
            && run.ended < event
            && command::is_same_command(run.command, failed.command)
    });
    // A cause is often summed up shortly after the fix; then it is about the failure that was fixed.
    (!fixed || event - failed.ended <= 16).then_some(failed)
}

/// What fixed a failure.
struct Fix {
    line: String,
    what: String,
    quote: String,
}

/// Finds how a failure was fixed: as stated in words, otherwise from a single small edit.
fn find_fix(
    session: &Session<'_>,
    at: usize,
    passed: Option<&CommandRun<'_>>,
    is_proven: bool,
) -> Option<Fix> {
    let event = session.utterances[at].event;
    let until = passed.map_or(event + 10, |passed| passed.ended + 2);
    let from =
        session.runs.iter().rev().find(|run| !run.ok && run.ended < event).map_or(event, |run| run.ended);
    let stated = session.utterances[at..]
        .iter()
        .take_while(|utterance| utterance.event <= until)
        .chain(session.utterances[..at].iter().rev().take_while(|utterance| utterance.event >= from))
        .filter(|utterance| {
            !utterance.sentence.is_question && !sentences::is_hedged(&utterance.sentence.text)
        })
        // In another message, a remedy belongs to this cause only if it is about the same things.
        .filter(|utterance| {
            is_proven
                || utterance.event == event
                || shares_rare_words(&utterance.sentence.text, &session.utterances[at].sentence.text)
        })
        .find_map(|utterance| {
            let found = FIX.captures(&utterance.sentence.text)?;
            let part = |name: &str| found.name(name).map(|part| part.as_str().trim().to_owned());
            let what = part("fix")
                .or_else(|| part("fix2").map(|fix| format!("It was fixed by {fix}")))
                .or_else(|| part("fix3").map(|fix| format!("The session {fix}")))?;
            Some(Fix { line: utterance.line.to_owned(), what, quote: utterance.sentence.text.clone() })
        });
    stated.or_else(|| {
        let passed = passed?;
        let mut edits = session.edits.iter().filter(|edit| edit.event > from && edit.event < passed.event);
        let edit = edits.next().filter(|_| edits.next().is_none())?;
        if !shares_rare_words(&format!("{} {}", edit.old, edit.new), &session.utterances[at].sentence.text) {
            return None;
        }
        let small = |text: &str| !text.is_empty() && text.len() <= 160 && text.trim().lines().count() <= 3;
        (small(edit.old) && small(edit.new)).then(|| {
            let file = edit.file.rsplit(['/', '\\']).next().unwrap_or_default();
            let (old, new) = (edit.old.trim(), edit.new.trim());
            Fix {
                line: edit.line.to_owned(),
                what: format!(
                    "In `{file}`, change this:\n\n```diff\n{}\n{}\n```",
                    prefix_lines('-', old),
                    prefix_lines('+', new)
                ),
                quote: format!("{file}: `{}` → `{}`", one_line(old, 90), one_line(new, 90)),
            }
        })
    })
}

fn prefix_lines(mark: char, text: &str) -> String {
    text.lines().map(|line| format!("{mark} {line}")).collect::<Vec<_>>().join("\n")
}
