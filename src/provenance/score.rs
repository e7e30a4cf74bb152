//! How much an item matters to a question.

use jiff::Timestamp;
use knowledge::UnitType;

use crate::item::{Item, Question};

const SCOPE: f64 = 0.30;
const TYPE: f64 = 0.20;
const RECENCY: f64 = 0.15;
const CONFIDENCE: f64 = 0.10;
const WORDS: f64 = 0.10;
/// Added to what matches the words at all.
const WORDS_BOOST: f64 = 0.15;
const RULE_BOOST: f64 = 0.20;
const TUNING_BOOST: f64 = 0.15;
const STALE_PENALTY: f64 = 0.30;
const HALF_LIFE_DAYS: f64 = 30.0;
/// Of what does not say when it was learned: as of the half-life.
const RECENCY_UNKNOWN: f64 = 0.5;
/// ln 2, to the digits that openqed has.
const LN_2: f64 = 0.693;
/// The BM25 rank that counts as a full match.
const RANK_MAX: f64 = 10.0;

/// The score of an item, from 0 to 1.
pub fn score(item: &Item, question: &Question, now: Timestamp) -> f64 {
    let mut score = SCOPE * scope_match(item.path.as_deref(), question.path.as_deref())
        + TYPE * item.kind.priority()
        + RECENCY * item.at.map_or(RECENCY_UNKNOWN, |at| recency(at, now))
        + CONFIDENCE * item.confidence;
    if let Some(rank) = item.rank.filter(|rank| *rank < 0.0) {
        score += WORDS * (rank.abs() / RANK_MAX).min(1.0) + WORDS_BOOST;
    }
    score += match item.kind {
        UnitType::Constraint | UnitType::Caveat => RULE_BOOST,
        UnitType::Tuning => TUNING_BOOST,
        _ => 0.0,
    };
    if item.stale.is_some() {
        score -= STALE_PENALTY;
    }
    score.clamp(0.0, 1.0)
}

/// How well the place of an item fits the place that is asked about.
pub fn scope_match(item: Option<&str>, asked: Option<&str>) -> f64 {
    let Some(asked) = asked else { return 0.5 };
    let Some(item) = item else { return 0.2 };
    let is_below =
        |path: &str, folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    let folder = |path: &str| path.rfind('/').map(|end| path[..end].to_owned());
    if item == asked {
        1.0
    } else if is_below(asked, item) || is_below(item, asked) {
        0.6
    } else if folder(item).is_some_and(|of_item| !of_item.is_empty() && folder(asked) == Some(of_item)) {
        0.5
    } else {
        0.1
    }
}

fn recency(at: Timestamp, now: Timestamp) -> f64 {
    let days = (now.duration_since(at).as_millis() as f64 / 86_400_000.0).max(0.0);
    (-LN_2 * days / HALF_LIFE_DAYS).exp()
}

/// Sorts items by their scores, the best first. Of equals, reviewed ones come first.
pub fn rank(items: Vec<Item>, question: &Question, now: Timestamp) -> Vec<(f64, Item)> {
    let mut scored: Vec<(f64, Item)> =
        items.into_iter().map(|item| (score(&item, question, now), item)).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.is_reviewed.cmp(&a.1.is_reviewed)));
    scored
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::StaleReason;

    #[test]
    fn places_count_as_documented() {
        let cases = [
            (Some("src/auth.ts"), Some("src/auth.ts"), 1.0),
            (Some("src"), Some("src/auth.ts"), 0.6),
            (Some("src/auth.ts"), Some("src"), 0.6),
            (Some("src/login.ts"), Some("src/auth.ts"), 0.5),
            (None, Some("src/auth.ts"), 0.2),
            (Some("docs/a.md"), Some("src/auth.ts"), 0.1),
            (Some("a.md"), Some("b.md"), 0.1),
            (Some("src-2/a"), Some("src"), 0.1),
            (Some("src/auth.ts"), None, 0.5),
        ];
        for (item, asked, expected) in cases {
            assert_eq!(scope_match(item, asked), expected, "{item:?} {asked:?}");
        }
    }

    #[test]
    fn a_date_in_the_future_counts_as_today() {
        let now: Timestamp = "2026-11-28T00:00:00Z".parse().unwrap();
        assert_eq!(recency(now + jiff::SignedDuration::from_hours(24 * 365), now), 1.0);
    }

    #[test]
    fn boosts_and_the_penalty_are_added_and_the_sum_is_limited() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let question = Question { path: Some("a/b".into()), ..Question::default() };
        let mut item = Item {
            kind: UnitType::Constraint,
            path: Some("a/b".into()),
            confidence: 1.0,
            at: Some(now),
            rank: Some(-20.0),
            ..Item::default()
        };
        assert_eq!(score(&item, &question, now), 1.0, "limited");
        item.rank = None;
        item.stale = Some(StaleReason::Expired);
        assert!((score(&item, &question, now) - 0.65).abs() < 1e-9);
        item.kind = UnitType::Dependency;
        item.path = Some("z".into());
        item.confidence = 0.0;
        item.at = now.checked_sub(jiff::SignedDuration::from_hours(24 * 3000)).ok();
        assert_eq!(score(&item, &question, now), 0.0);
        item.stale = None;
        item.kind = UnitType::Tuning;
        item.at = now.checked_sub(jiff::SignedDuration::from_hours(24 * 30)).ok();
        let expected = 0.03 + 0.16 + 0.15 * (-0.693f64).exp() + 0.15;
        assert!((score(&item, &question, now) - expected).abs() < 1e-9);
    }
}
