//! One lesson is proposed once, and not at all if it came from the brain.

use std::collections::BTreeSet;

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
    let recalled: Vec<Words> = conversation
        .recalled
        .iter()
        .flat_map(|text| {
            let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
            // A lesson may stand in one line, or in a title and the line below it.
            let pairs = lines.windows(2).map(|pair| words(&pair.join(" "))).collect::<Vec<_>>();
            lines.iter().map(|line| words(line)).chain(pairs).collect::<Vec<_>>()
        })
        .collect();
    let (kept, echoes): (Vec<_>, Vec<_>) =
        std::mem::take(&mut findings.found).into_iter().partition(|finding| {
            let lesson = words(&finding.title);
            let attributed = !finding.by_human && FROM_MEMORY.is_match(&finding.statement);
            let limit = if finding.by_human { RECALLED_BY_HUMAN } else { RECALLED_ECHO };
            !attributed && !recalled.iter().any(|text| share(&lesson, text) >= limit)
        });
    findings.found = kept;
    for echo in echoes {
        findings.reject(&echo.title, "recalled from memory in this session, not learned in it");
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
        let lesson = words(&finding.title);
        let same = findings.found.iter_mut().find(|kept| {
            let other = words(&kept.title);
            let (shorter, longer) =
                if lesson.len() < other.len() { (&lesson, &other) } else { (&other, &lesson) };
            let statement = kept.statement == finding.statement;
            statement || shorter.len() >= 3 && share(shorter, longer) >= SAME
        });
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
