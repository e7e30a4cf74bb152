//! One lesson is proposed once, and not at all if it came from the brain.

use std::collections::BTreeSet;

use knowledge::text::one_line;
use knowledge::value;
use transcript::Conversation;

use super::finding::{Finding, Findings};
use super::prose::{self, expression};

expression! {
    FROM_MEMORY = r"(?i)\b(?:as|per|from|according to) (?:the |our |my |your )?(?:memory|memories|brain|nugget)\b|\b(?:memory|memories|nugget|the brain) (?:says?|said|suggests?|recommends?|tells?|has|have|notes?|mentions?)\b";
}

/// How much of the words of a lesson another must hold to be the same lesson.
const SAME: f64 = 0.65;
/// How much of a lesson must stand in what was recalled for it to be the recalled one. A person's
/// words must be found whole: somebody who corrects a memory repeats most of it.
const RECALLED_ECHO: f64 = 0.6;
const RECALLED_BY_HUMAN: f64 = 1.0;

type Words = BTreeSet<String>;

/// How much of what a lesson is held to repeat its reason quotes.
const QUOTED_CHARS_MAX: usize = 120;

/// What was put into a session from memory, line by line.
pub(crate) struct Recalled(Vec<(Words, String)>);

impl Recalled {
    pub(crate) fn of(conversation: &Conversation) -> Self {
        let lines = conversation.recalled.iter().flat_map(|text| {
            let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
            // A lesson may stand in one line, or in a title and the line below it.
            let pairs = lines.windows(2).map(|pair| pair.join("\n")).collect::<Vec<_>>();
            lines.iter().map(|&line| line.to_owned()).chain(pairs).collect::<Vec<_>>()
        });
        Self(lines.map(|text| (words(&text), text)).collect())
    }

    /// Why a lesson is no news, if what was recalled says it. The same words with another number, and from a
    /// person also with another name or a "never", say something else. `more` is what the lesson says beside its title.
    pub(crate) fn repeats(&self, title: &str, more: &str, by_human: bool) -> Option<String> {
        let lesson = words(title);
        let limit = if by_human { RECALLED_BY_HUMAN } else { RECALLED_ECHO };
        let is_held = |text: &str| match by_human {
            true => {
                value::missing(title, text).is_none()
                    && value::missing_number(more, text).is_none()
                    && value::denies(title) == is_denied(&lesson, text)
            }
            false => value::missing_number(title, text).is_none(),
        };
        let (_, text) =
            self.0.iter().find(|(words, text)| share(&lesson, words) >= limit && is_held(text))?;
        let text = one_line(text, QUOTED_CHARS_MAX);
        let text = text.trim_start_matches(['-', '>', '#', ' ']);
        Some(format!("it repeats what was recalled: \"{text}\""))
    }
}

/// Whether a text says that a lesson does not hold, in the line that has the most of it: what stands around
/// that, and the reason, has a "not" of its own.
fn is_denied(lesson: &Words, text: &str) -> bool {
    let line = text.lines().max_by(|a, b| share(lesson, &words(a)).total_cmp(&share(lesson, &words(b))));
    line.is_some_and(|line| value::denies(prose::split_reason(line).0))
}

/// Whether two titles state the same lesson. Where each has a value that the other has not, or one says
/// the opposite of the other, they are two.
pub(crate) fn is_same_lesson(one: &str, other: &str) -> bool {
    let (words_one, words_other) = (words(one), words(other));
    let (shorter, longer) = match words_one.len() < words_other.len() {
        true => (&words_one, &words_other),
        false => (&words_other, &words_one),
    };
    shorter.len() >= 3
        && share(shorter, longer) >= SAME
        && (value::missing(one, other).is_none() || value::missing(other, one).is_none())
        && !value::opposes(one, other)
}

fn words(text: &str) -> Words {
    prose::content_words(text).into_iter().collect()
}

/// The share of `part` that stands in `whole`.
fn share(part: &Words, whole: &Words) -> f64 {
    if part.is_empty() { 0.0 } else { part.intersection(whole).count() as f64 / part.len() as f64 }
}

/// Drops what nugget, or another hook, put into the session. Otherwise a memory that is recalled is
/// learned again in every session that recalls it, and a brain fills with its own echo.
pub(super) fn drop_recalled(conversation: &Conversation, findings: &mut Findings) {
    let recalled = Recalled::of(conversation);
    for finding in std::mem::take(&mut findings.found) {
        let attributed = !finding.by_human && FROM_MEMORY.is_match(&finding.statement);
        let reason = match attributed {
            true => Some("recalled from memory in this session, not learned in it".to_owned()),
            false => recalled.repeats(&finding.title, &finding.statement, finding.by_human),
        };
        match reason {
            Some(reason) => findings.reject(&finding.title, &reason),
            None => findings.found.push(finding),
        }
    }
}

/// Merges findings that say the same: the surer one stays and takes the other's evidence, and what
/// it lacks.
pub(super) fn duplicates(findings: &mut Findings) {
    let mut all = std::mem::take(&mut findings.found);
    // The surer first; of equals the one that tells more.
    all.sort_by(|a, b| {
        b.confidence
            .total_cmp(&a.confidence)
            .then_with(|| parts(b).cmp(&parts(a)))
            .then(a.event.cmp(&b.event))
    });
    for finding in all {
        let same = findings
            .found
            .iter_mut()
            .find(|kept| kept.statement == finding.statement || is_same_lesson(&kept.title, &finding.title));
        let Some(kept) = same else {
            findings.found.push(finding);
            continue;
        };
        for evidence in finding.evidence {
            if !kept.evidence.iter().any(|known| known.line == evidence.line) {
                kept.evidence.push(evidence);
            }
        }
        kept.why = kept.why.take().or(finding.why);
        kept.rejected = kept.rejected.take().or(finding.rejected);
        kept.when = kept.when.take().or(finding.when);
        kept.what_to_do = kept.what_to_do.take().or(finding.what_to_do);
    }
}

fn parts(finding: &Finding) -> usize {
    [&finding.when, &finding.what_to_do, &finding.why, &finding.rejected].into_iter().flatten().count()
}
