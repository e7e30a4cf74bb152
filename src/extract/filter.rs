//! Limits and merges the candidates that a model proposed.

use knowledge::text::{canonical, one_line};
use knowledge::{Candidate, Rejected};
use transcript::Conversation;

use crate::similarity::RecalledText;

/// The most candidates of one session, because a reviewer reads all of them.
pub(crate) const CANDIDATES_MAX: usize = 8;
/// The most rejections of one session that are recorded.
pub(crate) const REJECTED_MAX: usize = 24;
const TITLE_CHARS_MAX: usize = 120;

/// Drops candidates that repeat recalled text, merges those of one title or body, and keeps the strongest. What is left
/// out is recorded. Whether two in other words are one lesson is decided later, with their vectors.
///
/// `is_human` says whether a person wrote the transcript line with this uuid.
pub(crate) fn consolidate(
    conversation: &Conversation,
    mut candidates: Vec<Candidate>,
    is_human: impl Fn(&str) -> bool,
    rejected: &mut Vec<Rejected>,
) -> Vec<Candidate> {
    let recalled = RecalledText::from_conversation(conversation);
    let mut kept: Vec<Candidate> = Vec::new();
    // The most confident first; among equals the longest.
    candidates
        .sort_by(|a, b| b.confidence.total_cmp(&a.confidence).then_with(|| b.body.len().cmp(&a.body.len())));
    for candidate in candidates {
        let by_human = candidate.evidence.iter().any(|evidence| is_human(&evidence.line));
        if let Some(reason) = recalled.repetition(&candidate.title, &candidate.description, by_human) {
            reject(rejected, &candidate.title, &reason);
            continue;
        }
        let same = kept.iter_mut().find(|kept| is_duplicate(kept, &candidate));
        match same {
            Some(kept) => {
                reject_duplicate(rejected, &candidate, kept);
                for evidence in candidate.evidence {
                    if !kept.evidence.iter().any(|known| known.line == evidence.line) {
                        kept.evidence.push(evidence);
                    }
                }
                kept.overlap = kept.overlap.take().or(candidate.overlap);
                for related in candidate.related {
                    if !kept.related.iter().any(|known| known.id == related.id) {
                        kept.related.push(related);
                    }
                }
            }
            None => kept.push(candidate),
        }
    }
    for weak in kept.split_off(kept.len().min(CANDIDATES_MAX)) {
        reject(rejected, &weak.title, "the session has stronger candidates");
    }
    kept
}

/// Whether two candidates have one title or one body.
pub(crate) fn is_duplicate(one: &Candidate, other: &Candidate) -> bool {
    canonical(&one.title) == canonical(&other.title) || canonical(&one.body) == canonical(&other.body)
}

/// Records that a candidate is left out as another one is kept.
pub(crate) fn reject_duplicate(rejected: &mut Vec<Rejected>, candidate: &Candidate, kept: &Candidate) {
    reject(rejected, &candidate.title, &format!("the same as {:?}", one_line(&kept.title, TITLE_CHARS_MAX)));
}

/// Records a rejection, unless it is recorded already or there are too many.
pub(crate) fn reject(rejected: &mut Vec<Rejected>, title: &str, reason: &str) {
    let rejection = Rejected { title: one_line(title, TITLE_CHARS_MAX), reason: reason.to_owned() };
    if rejected.len() < REJECTED_MAX && !rejected.contains(&rejection) {
        rejected.push(rejection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use knowledge::{Evidence, UnitType};

    fn candidate(title: &str, body: &str, confidence: f64, line: &str) -> Candidate {
        Candidate {
            kind: UnitType::Pattern,
            domain: "coding".into(),
            title: title.into(),
            description: String::new(),
            body: body.into(),
            tags: Vec::new(),
            confidence,
            related: Vec::new(),
            evidence: vec![Evidence { line: line.into(), excerpt: String::new() }],
            overlap: None,
            source: None,
        }
    }

    #[test]
    fn duplicates_are_merged_with_their_evidence() {
        let mut rejected = Vec::new();
        let found = vec![
            candidate("Bound the worker pool", "One way.", 0.6, "a"),
            candidate("bound the *worker* pool!", "Another way, told at length.", 0.9, "b"),
            candidate("Close the files", "one WAY", 0.5, "c"),
            candidate("Close all of the idle connections", "Else they leak.", 0.5, "d"),
        ];
        let kept = consolidate(&Conversation::default(), found, |_| false, &mut rejected);
        let titles: Vec<&str> = kept.iter().map(|candidate| candidate.title.as_str()).collect();
        assert_eq!(
            titles,
            ["bound the *worker* pool!", "Close all of the idle connections", "Close the files"]
        );
        let lines: Vec<&str> = kept[0].evidence.iter().map(|evidence| evidence.line.as_str()).collect();
        assert_eq!(lines, ["b", "a"]);
        let reasons: Vec<&str> = rejected.iter().map(|rejected| rejected.reason.as_str()).collect();
        assert_eq!(reasons, ["the same as \"bound the *worker* pool!\""]);
    }

    #[test]
    fn two_lessons_that_differ_in_a_noun_are_both_kept() {
        for (one, other) in [
            (
                "Restart the mail worker after a change of the orders schema",
                "Restart the mail worker after a change of the invoices schema",
            ),
            (
                "Use Redis for the session store in production",
                "Use Postgres for the session store in production",
            ),
            (
                "Close the file handle before the rename on Windows",
                "Close the file handle before the delete on Windows",
            ),
        ] {
            let found = vec![candidate(one, "One.", 0.8, "a"), candidate(other, "Another.", 0.8, "b")];
            let mut rejected = Vec::new();
            let kept = consolidate(&Conversation::default(), found, |_| false, &mut rejected);
            assert_eq!((kept.len(), rejected.len()), (2, 0), "{other}");
        }
    }

    #[test]
    fn recalled_lessons_are_dropped_and_the_rest_is_limited() {
        let conversation = Conversation {
            recalled: vec!["> Bound the worker pool with a semaphore, or it grows".into()],
            ..Conversation::default()
        };
        let mut found = vec![candidate("Bound the worker pool with a semaphore", "b", 0.99, "x")];
        let words =
            ["amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "islet", "jetty"];
        found.extend(
            words
                .iter()
                .map(|word| candidate(&format!("The {word} {word}house opens late"), word, 0.7, word)),
        );
        let mut rejected = Vec::new();
        let kept = consolidate(&conversation, found, |_| false, &mut rejected);
        assert_eq!((kept.len(), rejected.len()), (CANDIDATES_MAX, 3));
        assert!(rejected[0].reason.starts_with("it repeats what was recalled: \"Bound"));
    }

    #[test]
    fn a_persons_lesson_with_another_value_than_recalled_is_kept() {
        let conversation = Conversation {
            recalled: vec!["## Bound the worker pool to 32\n> The pool is bound to 32 workers".into()],
            ..Conversation::default()
        };
        let kept = |title: &str, description: &str, is_human: bool| {
            let candidate = Candidate { description: description.into(), ..candidate(title, "b", 0.9, "x") };
            let mut rejected = Vec::new();
            consolidate(&conversation, vec![candidate], |_| is_human, &mut rejected).len()
        };
        assert_eq!(kept("Bound the worker pool to 32", "The pool is bound to 32 workers.", true), 0);
        assert_eq!(kept("Bound the worker pool to 16", "", true), 1);
        assert_eq!(kept("Bound the worker pool", "The pool is bound to 16 workers.", true), 1);
        assert_eq!(kept("Never bound the worker pool to 32", "", true), 1);
        // The model's own words only repeat it, unless the title has another number.
        assert_eq!(kept("Bound the `tokio` worker pool to 32", "", false), 0);
        assert_eq!(kept("Bound the worker pool to 16", "", false), 1);
    }
}
