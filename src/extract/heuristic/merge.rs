//! Proposes each lesson once, and drops those that came from the brain.

use transcript::Conversation;

use super::detection::{Detection, Detections};
use super::session::Session;
use crate::sentences::regexes;
use crate::similarity::{RecalledText, is_same_lesson};

regexes! {
    FROM_MEMORY = r"(?i)\b(?:as|per|from|according to) (?:the |our |my |your )?(?:memory|memories|brain|nugget)\b|\b(?:memory|memories|nugget|the brain) (?:says?|said|suggests?|recommends?|tells?|has|have|notes?|mentions?)\b";
}

/// Drops what nugget or another hook put into the session.
///
/// Without this, a recalled unit would be learned again in every session that recalls it.
pub(super) fn drop_recalled(conversation: &Conversation, detections: &mut Detections) {
    let recalled = RecalledText::from_conversation(conversation);
    for detection in std::mem::take(&mut detections.found) {
        let attributed = !detection.by_human && FROM_MEMORY.is_match(&detection.statement);
        let reason = match attributed {
            true => Some("recalled from memory in this session, not learned in it".to_owned()),
            false => recalled.repetition(&detection.title, &detection.statement, detection.by_human),
        };
        match reason {
            Some(reason) => detections.reject(&detection.title, &reason),
            None => detections.found.push(detection),
        }
    }
}

/// Merges detections that state the same lesson: the one with the higher confidence stays, and takes the evidence of the
/// other and the parts it lacks. Of several statements in one paragraph the most confident stays, as it quotes the others.
pub(super) fn merge_duplicates(session: &Session<'_>, detections: &mut Detections) {
    let mut all = std::mem::take(&mut detections.found);
    // The most confident first; among equals the one with more parts.
    all.sort_by(|a, b| {
        b.confidence
            .total_cmp(&a.confidence)
            .then_with(|| part_count(b).cmp(&part_count(a)))
            .then(a.event.cmp(&b.event))
    });
    let mut rejected = Vec::new();
    for detection in all {
        let beside = detections.found.iter().any(|kept| {
            kept.event == detection.event
                && [kept, &detection].iter().all(|one| one.detector == "statements")
                && kept.paragraph(session).is_some_and(|kept| detection.paragraph(session) == Some(kept))
        });
        if beside {
            detections.reject(&detection.title, "it is quoted with a stronger candidate");
            continue;
        }
        let same = detections.found.iter_mut().find(|kept| {
            kept.statement == detection.statement || is_same_lesson(&kept.title, &detection.title)
        });
        let Some(kept) = same else {
            detections.found.push(detection);
            continue;
        };
        if kept.title != detection.title {
            let reason = format!("the same as {:?}", kept.title);
            rejected.push((detection.title.clone(), reason));
        }
        for evidence in detection.evidence {
            if !kept.evidence.iter().any(|known| known.line == evidence.line) {
                kept.evidence.push(evidence);
            }
        }
        kept.why = kept.why.take().or(detection.why);
        kept.rejected = kept.rejected.take().or(detection.rejected);
        kept.when = kept.when.take().or(detection.when);
        kept.what_to_do = kept.what_to_do.take().or(detection.what_to_do);
    }
    for (title, reason) in rejected {
        detections.reject(&title, &reason);
    }
}

fn part_count(detection: &Detection) -> usize {
    [&detection.when, &detection.what_to_do, &detection.why, &detection.rejected]
        .into_iter()
        .flatten()
        .count()
}
