//! Decides what a candidate is in relation to what is known: new, an addition to a unit, the replacement of a
//! unit, or nothing new.
//!
//! A language model that has read the session was given the brain's titles and says itself what a candidate
//! relates to; otherwise, and for what it was not given, similarity decides.

use jiff::Timestamp;
use knowledge::embedding::{ABOUT_COSINE, SAME_COSINE};
use knowledge::opposed::{
    are_two_decisions, contradicts, is_correction, is_exception, names_something_else, reverses,
};
use knowledge::text::canonical;
use knowledge::value;
use knowledge::words::words;
use knowledge::{Candidate, OverlapKind, UnitId, UnitType};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Add,
    /// The unit is edited: the candidate is added below its text.
    Merge(UnitId),
    /// The candidate becomes a unit, and the other one is marked as replaced.
    Supersede(UnitId),
    Skip {
        reason: String,
    },
}

/// Something known, with its similarity to the candidate.
#[derive(Clone, Debug)]
pub(crate) struct Neighbor {
    pub(crate) id: UnitId,
    /// Its type, if that is known.
    pub(crate) kind: Option<UnitType>,
    /// When it was last changed, if that is known.
    pub(crate) last_modified: Option<Timestamp>,
    pub(crate) title: String,
    /// Its text including the title; the title alone for a proposal.
    pub(crate) text: String,
    pub(crate) cosine: f64,
    pub(crate) known_in: KnownIn,
}

impl Neighbor {
    /// The text that a candidate may repeat; to name the unit is nothing new.
    fn text_and_id(&self) -> String {
        format!("{}\n{}", self.text, self.id)
    }
}

/// Where something is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KnownIn {
    Brain,
    /// A branch that waits for review, or was closed without a merge.
    Proposal,
    /// A person has rejected it by itself.
    Rejected,
    /// An earlier candidate of the same session.
    SameSession,
}

/// Compares a candidate with what is nearest to it. Only a unit that was last changed before `learned`, the time of
/// the candidate's session, is replaced: an old session may be read late, and knows nothing of what came after it.
pub(crate) fn classify(candidate: &Candidate, neighbors: &[Neighbor], learned: Timestamp) -> Verdict {
    let is_older = |unit: &Neighbor| unit.last_modified.is_none_or(|changed| changed < learned);
    let named = candidate.overlap.as_ref().and_then(|overlap| {
        let is_named = |unit: &&Neighbor| unit.known_in == KnownIn::Brain && unit.id == overlap.id;
        Some((neighbors.iter().find(is_named)?, overlap.how))
    });
    let named = match named {
        Some((unit, OverlapKind::Same)) => {
            let is_other = value::missing_number(&candidate.title, &unit.text_and_id()).is_some()
                || is_opposed(candidate, unit);
            if !is_other {
                return known(unit);
            }
            // A model answers so when in doubt, and knows only the unit's title: similarity decides.
            None
        }
        named => named,
    };
    let title = canonical(&candidate.title);
    let mut reasoned = None;
    for unit in neighbors {
        let is_near = unit.cosine >= ABOUT_COSINE || unit.known_in == KnownIn::Rejected;
        let same_words = is_near && canonical(&unit.title) == title;
        if (same_words || unit.cosine >= SAME_COSINE) && adds_nothing_to(candidate, unit) {
            if unit.known_in == KnownIn::Brain && gives_new_reason(candidate, unit) {
                reasoned.get_or_insert(unit);
                continue;
            }
            return known(unit);
        }
    }
    match named {
        // Below a title that says the opposite nobody would find it.
        Some((unit, OverlapKind::AddsTo)) if !is_opposed(candidate, unit) => {
            return Verdict::Merge(unit.id.clone());
        }
        Some((unit, _)) if is_older(unit) => return Verdict::Supersede(unit.id.clone()),
        Some(_) => return Verdict::Add,
        None => {}
    }
    if let Some(unit) = reasoned {
        return Verdict::Merge(unit.id.clone());
    }
    let in_brain = neighbors.iter().filter(|unit| unit.known_in == KnownIn::Brain);
    let about = |unit: &&Neighbor| unit.cosine >= ABOUT_COSINE && unit.kind.as_ref() == Some(&candidate.kind);
    // A rule holds beside its exceptions.
    let is_replaced =
        |unit: &&Neighbor| is_opposed(candidate, unit) && !is_exception(&candidate.title, &unit.title);
    let mut opposed = in_brain.clone().filter(about).filter(is_replaced);
    if let Some(unit) = opposed.find(|unit| is_older(unit)) {
        return Verdict::Supersede(unit.id.clone());
    }
    let corrects = is_correction(&candidate.title) || value::is_correction(&candidate.body);
    let similar = in_brain.filter(about).filter(|unit| match corrects {
        true => is_older(unit),
        false => {
            !is_opposed(candidate, unit)
                && forbids(&candidate.title) == forbids(&unit.title)
                && !is_another_decision(candidate, unit)
                && !differs_in_values(&candidate.title, &unit.title)
                && !is_about_something_else(candidate, unit)
        }
    });
    match similar.max_by(|a, b| a.cosine.total_cmp(&b.cosine)) {
        Some(unit) if corrects => Verdict::Supersede(unit.id.clone()),
        Some(unit) => Verdict::Merge(unit.id.clone()),
        None => Verdict::Add,
    }
}

/// Whether a title begins with a denial ("Never …", but not "Never … without …"): below it nobody looks for what is to be
/// done.
fn forbids(title: &str) -> bool {
    let beginning = title.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    value::is_negative(title) && value::is_negative(&beginning)
}

/// Whether each of two titles has a value that the other lacks: added below the one, the other would never be
/// found by its own title.
fn differs_in_values(title: &str, other: &str) -> bool {
    value::missing_value(title, other).is_some() && value::missing_value(other, title).is_some()
}

fn known(unit: &Neighbor) -> Verdict {
    let reason = match unit.known_in {
        KnownIn::Brain => format!("known already: {}", unit.id),
        KnownIn::Proposal => format!("proposed before: {}", unit.id),
        KnownIn::Rejected => format!("rejected before: {}", unit.id),
        KnownIn::SameSession => format!("the same as {:?}", unit.title),
    };
    Verdict::Skip { reason }
}

/// Whether a candidate with nearly the same vector as a unit says nothing that the unit does not. Lessons that
/// differ in one value have nearly the same vector: `--lane 7` is not `--lane 8`, and "never" is not "always".
fn adds_nothing_to(candidate: &Candidate, unit: &Neighbor) -> bool {
    let (has_text, known) =
        (!matches!(unit.known_in, KnownIn::Proposal | KnownIn::Rejected), unit.text_and_id());
    let is_other = is_opposed(candidate, unit)
        || is_about_something_else(candidate, unit)
        || value::missing_value(&candidate.title, &known).is_some();
    let has_other_number = has_text
        && [candidate.description.as_str(), body_after_cut_title(candidate)]
            .iter()
            .any(|text| value::missing_number(text, &known).is_some());
    !is_other && !has_other_number
}

/// Whether a candidate says the opposite of a unit, or decides against what that decides for.
fn is_opposed(candidate: &Candidate, unit: &Neighbor) -> bool {
    contradicts(&candidate.title, &unit.title) || reverses(&candidate.title, &candidate.body, &unit.title)
}

fn is_another_decision(candidate: &Candidate, unit: &Neighbor) -> bool {
    candidate.kind == UnitType::Decision
        && are_two_decisions((&candidate.title, &candidate.body), (&unit.title, &unit.text))
}

fn is_about_something_else(candidate: &Candidate, unit: &Neighbor) -> bool {
    names_something_else(&candidate.title, &candidate.body, &unit.title, &unit.text)
}

/// A reason with fewer words that a unit lacks is one that the unit gives in other words.
const NEW_REASON_WORDS_MIN: usize = 3;

/// Whether a candidate that says the same as a unit says why, with words that the unit does not have. A unit that has a
/// reason keeps it: each session gives it in other words.
fn gives_new_reason(candidate: &Candidate, unit: &Neighbor) -> bool {
    if !words(&reason_in(&unit.text)).is_empty() {
        return false;
    }
    let known = words(&unit.text_and_id());
    words(&reason_in(&candidate.body)).difference(&known).count() >= NEW_REASON_WORDS_MIN
}

fn reason_in(text: &str) -> String {
    let section = text.split_once("## Why\n").map_or("", |(_, why)| why.split("\n## ").next().unwrap_or(why));
    let after = |word: &'static str| {
        let after = text.split_once(word).map_or("", |(_, reason)| reason);
        after.split(['.', '\n']).next().unwrap_or_default()
    };
    [section, after(" because "), after(" so that ")].join("\n")
}

/// The body without its quotes, if the title was cut for its length: the value that distinguishes two rules may
/// be in what was cut. Beside a complete title, values in a body may differ each time a lesson is described:
/// ports, counts and line numbers of the day.
fn body_after_cut_title(candidate: &Candidate) -> &str {
    if !candidate.title.ends_with('…') {
        return "";
    }
    candidate.body.split("## How it was learned").next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use brain::Brain;
    use index::{Index, Mode};
    use knowledge::Overlap;

    use super::*;
    use crate::embedding_model::EmbeddingModel;

    fn candidate(title: &str) -> Candidate {
        Candidate {
            kind: UnitType::Pattern,
            domain: "coding".into(),
            title: title.into(),
            description: String::new(),
            body: "What to do.".into(),
            tags: Vec::new(),
            confidence: 0.8,
            related: Vec::new(),
            evidence: Vec::new(),
            overlap: None,
            source: None,
        }
    }

    fn near(id: &str, title: &str, cosine: f64, known_in: KnownIn) -> Neighbor {
        let kind = (known_in == KnownIn::Brain).then_some(UnitType::Pattern);
        let (id, last_modified) = (UnitId::verbatim(id), Some(day("2026-02-01")));
        Neighbor { id, kind, last_modified, title: title.into(), text: title.into(), cosine, known_in }
    }

    fn day(day: &str) -> Timestamp {
        format!("{day}T12:00:00Z").parse().unwrap()
    }

    /// Compares what was learned after all units were changed.
    fn classify(candidate: &Candidate, neighbors: &[Neighbor]) -> Verdict {
        super::classify(candidate, neighbors, day("2026-02-02"))
    }

    fn brain(cosine: f64) -> Neighbor {
        near("pools", "Bound the worker pool", cosine, KnownIn::Brain)
    }

    #[test]
    fn a_nearer_candidate_is_less_new() {
        let candidate = candidate("Give a pool of workers a bound");
        assert_eq!(classify(&candidate, &[]), Verdict::Add);
        assert_eq!(classify(&candidate, &[brain(0.6)]), Verdict::Add);
        assert_eq!(classify(&candidate, &[brain(0.8)]), Verdict::Merge(UnitId::verbatim("pools")));
        let skip = Verdict::Skip { reason: "known already: pools".into() };
        assert_eq!(classify(&candidate, &[brain(0.95)]), skip);
    }

    #[test]
    fn a_proposed_unit_is_known_and_never_edited() {
        let candidate = candidate("Give a pool of workers a bound");
        let proposed = |cosine| near("pools", "Bound the worker pool", cosine, KnownIn::Proposal);
        let skip = Verdict::Skip { reason: "proposed before: pools".into() };
        assert_eq!(classify(&candidate, &[proposed(0.95)]), skip);
        assert_eq!(classify(&candidate, &[proposed(0.85)]), Verdict::Add);
    }

    #[test]
    fn a_rejected_unit_stays_rejected_under_its_title() {
        let rejected = |cosine| near("pools", "Bound the worker pool", cosine, KnownIn::Rejected);
        let skip = Verdict::Skip { reason: "rejected before: pools".into() };
        assert_eq!(classify(&candidate("Bound the worker pool"), &[rejected(0.0)]), skip);
        assert_eq!(classify(&candidate("Give a pool of workers a bound"), &[rejected(0.95)]), skip);
        assert_eq!(classify(&candidate("Give a pool of workers a bound"), &[rejected(0.85)]), Verdict::Add);
        assert_eq!(classify(&candidate("Bound the worker pool"), &[brain(0.95), rejected(1.0)]), {
            Verdict::Skip { reason: "known already: pools".into() }
        });
    }

    #[test]
    fn another_number_makes_another_lesson() {
        let other = near("lane-7", "Always run `check --lane 7` first", 0.99, KnownIn::Proposal);
        assert_eq!(
            classify(&candidate("Always run `check --lane 8` first"), std::slice::from_ref(&other)),
            Verdict::Add
        );
        let same = classify(&candidate("First run `check --lane 7`, always"), &[other]);
        assert!(matches!(same, Verdict::Skip { .. }));
    }

    #[test]
    fn another_value_makes_another_unit_unless_it_corrects() {
        let lane = |lane: u32| {
            near(
                &format!("lane-{lane}"),
                &format!("Always run `check --lane {lane}` first"),
                0.99,
                KnownIn::Brain,
            )
        };
        let other = candidate("Always run `check --lane 8` first");
        assert_eq!(classify(&other, &[lane(7)]), Verdict::Add);
        let corrected =
            Candidate { body: "Lane 7 is no longer read.".into(), ..candidate("Run `check --lane 8` first") };
        assert_eq!(classify(&corrected, &[lane(7)]), Verdict::Supersede(UnitId::verbatim("lane-7")));
        let mut restated = lane(8);
        restated.cosine = 0.8;
        let merge = Verdict::Merge(UnitId::verbatim("lane-8"));
        let again = candidate("Before all else run `check --lane 8`");
        assert_eq!(
            classify(&again, &[lane(7), restated]),
            merge,
            "into the unit with the same value, not into the nearest"
        );
    }

    #[test]
    fn the_opposite_of_a_unit_replaces_it() {
        let always = |known_in| near("check", "Always run `check` first", 0.99, known_in);
        let never = candidate("Never run `check` first");
        let supersede = Verdict::Supersede(UnitId::verbatim("check"));
        assert_eq!(classify(&never, &[brain(0.995), always(KnownIn::Brain)]), supersede);
        let overlap = Some(Overlap { id: UnitId::verbatim("check"), how: OverlapKind::Same });
        assert_eq!(classify(&Candidate { overlap, ..never.clone() }, &[always(KnownIn::Brain)]), supersede);
        assert_eq!(
            classify(&never, &[always(KnownIn::Proposal)]),
            Verdict::Add,
            "a proposal is never edited"
        );
    }

    #[test]
    fn what_a_title_forbids_is_not_completed_by_what_another_allows() {
        let never = near("payments", "Never retry a payment automatically", 0.8, KnownIn::Brain);
        let always = candidate("Always retry a refund automatically");
        assert_eq!(classify(&always, std::slice::from_ref(&never)), Verdict::Add);
        let merge = Verdict::Merge(UnitId::verbatim("payments"));
        assert_eq!(classify(&candidate("Never charge a card again automatically"), &[never]), merge);
    }

    #[test]
    fn the_reverse_of_a_rule_is_not_known() {
        for (known, reverse) in [
            (
                "Always use the replica for reports, never the primary",
                "Always use the primary for reports, never the replica",
            ),
            ("Pin actions by commit hash, never by tag", "Pin actions by tag, never by commit hash"),
            ("We use UUIDv7 keys rather than serial ids", "We use serial ids rather than UUIDv7 keys"),
            ("Deploy the schema before the code", "Deploy the schema after the code"),
            ("Run the linter before the slow tests", "Run the slow tests before the linter"),
        ] {
            let neighbor = |known_in| near("rule", known, 0.99, known_in);
            let verdict = |known_in| classify(&candidate(reverse), &[neighbor(known_in)]);
            let supersede = Verdict::Supersede(UnitId::verbatim("rule"));
            assert_eq!(verdict(KnownIn::Brain), supersede, "{reverse}");
            for known_in in [KnownIn::Proposal, KnownIn::Rejected, KnownIn::SameSession] {
                assert_eq!(verdict(known_in), Verdict::Add, "{reverse}");
            }
            let again = classify(&candidate(known), &[neighbor(KnownIn::Brain)]);
            assert!(matches!(again, Verdict::Skip { .. }), "{known}");
        }
    }

    #[test]
    fn what_denies_a_unit_is_no_addition_to_it() {
        for (known, opposite) in [
            (
                "Never log the body of a payment request",
                "Always log the body of a payment request, support needs it",
            ),
            (
                "We use pnpm in webshop, never npm",
                "We moved from pnpm to bun in webshop, never use pnpm any more",
            ),
            (
                "Retries use a fixed delay, never a backoff",
                "Retries use a backoff, never a fixed delay any more",
            ),
        ] {
            let unit = near("rule", known, 0.8, KnownIn::Brain);
            let supersede = Verdict::Supersede(UnitId::verbatim("rule"));
            assert_eq!(classify(&candidate(opposite), std::slice::from_ref(&unit)), supersede, "{opposite}");
            let early = super::classify(&candidate(opposite), &[unit], day("2026-01-12"));
            assert_eq!(early, Verdict::Add, "{opposite}");
        }
        // Also if a model calls it an addition.
        let overlap = Some(Overlap { id: UnitId::verbatim("check"), how: OverlapKind::AddsTo });
        let never = Candidate { overlap, ..candidate("Never run `check` first") };
        let always = near("check", "Always run `check` first", 0.3, KnownIn::Brain);
        assert_eq!(classify(&never, &[always]), Verdict::Supersede(UnitId::verbatim("check")));
    }

    #[test]
    fn an_exception_replaces_no_rule() {
        let unit = near("rule", "Run migrations before deploy", 0.8, KnownIn::Brain);
        for exception in [
            "Never run migrations before deploy on Fridays",
            "Do not run migrations before deploy when the queue is full",
        ] {
            assert_eq!(
                classify(&candidate(exception), std::slice::from_ref(&unit)),
                Verdict::Add,
                "{exception}"
            );
        }
        let denial = candidate("Never run migrations before deploy");
        assert_eq!(classify(&denial, &[unit]), Verdict::Supersede(UnitId::verbatim("rule")));
    }

    #[test]
    fn what_decides_against_a_decision_replaces_it() {
        let decision = |title: &str, body: &str| Candidate {
            kind: UnitType::Decision,
            body: body.into(),
            ..candidate(title)
        };
        let unit = |known_in| Neighbor {
            kind: Some(UnitType::Decision),
            ..near("postgres", "Use postgres with jsonb columns", 0.8, known_in)
        };
        let because = "because the documents are 40 MB each.";
        let body =
            format!("## What was rejected\n\nWe decided against postgres with jsonb columns {because}");
        let mongo = decision("Use MongoDB with plain collections", &body);
        let supersede = Verdict::Supersede(UnitId::verbatim("postgres"));
        assert_eq!(classify(&mongo, &[unit(KnownIn::Brain)]), supersede);
        assert_eq!(super::classify(&mongo, &[unit(KnownIn::Brain)], day("2026-01-12")), Verdict::Add);
        // Also if a model calls it an addition.
        let overlap = Some(Overlap { id: UnitId::verbatim("postgres"), how: OverlapKind::AddsTo });
        assert_eq!(classify(&Candidate { overlap, ..mongo }, &[unit(KnownIn::Brain)]), supersede);
        let other = decision("Use MySQL with jsonb columns", "The host has nothing else.");
        assert_eq!(classify(&other, &[unit(KnownIn::Brain)]), Verdict::Add, "they only share words");
        let merge = Verdict::Merge(UnitId::verbatim("postgres"));
        let more = decision("Keep jsonb columns small", "A column of 1 MB is read whole.");
        assert_eq!(classify(&more, &[unit(KnownIn::Brain)]), merge, "an addition stays one");
    }

    #[test]
    fn a_reason_that_a_unit_lacks_is_added_to_it() {
        let title = "Use UUIDv7 keys rather than serial ids";
        let learned =
            "## How it was learned\n\nThe user said it.\n\n> let's use UUIDv7 keys rather than serial ids";
        let reason = "inserts stay local and ids do not leak the number of orders";
        let with_body = |body: String| Candidate { body, ..candidate(title) };
        let why = with_body(format!("## Why\n\n{reason}.\n\n{learned}."));
        let quoted = with_body(format!("{learned}, because {reason}."));
        let unit = |text: String, known_in| Neighbor {
            text: format!("{title}\n{text}"),
            ..near("keys", title, 0.95, known_in)
        };
        for candidate in [why, quoted] {
            let bare = unit(learned.to_owned(), KnownIn::Brain);
            let merge = Verdict::Merge(UnitId::verbatim("keys"));
            assert_eq!(classify(&candidate, std::slice::from_ref(&bare)), merge);
            // Its addition waits for review, or was rejected.
            for known_in in [KnownIn::Proposal, KnownIn::Rejected] {
                let skip = classify(&candidate, &[bare.clone(), unit(String::new(), known_in)]);
                assert!(matches!(skip, Verdict::Skip { .. }), "{known_in:?}");
            }
            let known = unit(format!("{learned}, because {reason}."), KnownIn::Brain);
            assert!(matches!(classify(&candidate, &[known]), Verdict::Skip { .. }));
            let in_other_words = "nobody counts our sales by them, and an index page is written once";
            let known = unit(format!("{learned}, because {in_other_words}."), KnownIn::Brain);
            assert!(matches!(classify(&candidate, &[known]), Verdict::Skip { .. }));
        }
        let again = with_body(learned.to_owned());
        let skip = classify(&again, &[unit(learned.to_owned(), KnownIn::Brain)]);
        assert!(matches!(skip, Verdict::Skip { .. }));
    }

    #[test]
    fn another_name_in_the_same_place_makes_another_unit() {
        let friday =
            |known_in| near("friday", "Never deploy the shop on Fridays after lunch", 0.97, known_in);
        let thursday = candidate("Never deploy the shop on Thursdays after lunch");
        for known_in in [KnownIn::Brain, KnownIn::Proposal, KnownIn::Rejected] {
            assert_eq!(classify(&thursday, &[friday(known_in)]), Verdict::Add);
        }
    }

    #[test]
    fn a_number_that_a_unit_lacks_is_merged_into_it() {
        let unit = Neighbor {
            text: "Bound the worker pool\nBound it to 32 workers.\n\nMeasured for 64 requests.".into(),
            ..brain(0.99)
        };
        let described = |description: &str, how: Option<OverlapKind>| Candidate {
            description: description.into(),
            overlap: how.map(|how| Overlap { id: UnitId::verbatim("pools"), how }),
            ..candidate("Bound the worker pool")
        };
        let verdict = |candidate: &Candidate| classify(candidate, std::slice::from_ref(&unit));
        let merge = Verdict::Merge(UnitId::verbatim("pools"));
        assert!(matches!(verdict(&described("Bound it to 32 workers.", None)), Verdict::Skip { .. }));
        assert_eq!(verdict(&described("Bound it to 16 workers.", None)), merge);
        assert_eq!(verdict(&described("Bound it to 64 workers.", None)), merge);
        let body =
            |body: &str| Candidate { body: body.into(), ..candidate("Bound the worker pool, which…") };
        assert_eq!(verdict(&body("## What to do\n\nBound it to 16 workers.")), merge);
        let quoted = "Bound it to 32 workers.\n\n## How it was learned\n\n> as I said 5 times: bound it";
        assert!(matches!(verdict(&body(quoted)), Verdict::Skip { .. }));
        let whole = Candidate { body: "Seen in round 16.".into(), ..described("", None) };
        assert!(matches!(verdict(&whole), Verdict::Skip { .. }), "a number of the day");
        // A model that confuses the two.
        let same = |title: &str| Candidate { title: title.into(), ..described("", Some(OverlapKind::Same)) };
        assert!(matches!(verdict(&same("Bound the pool to 32 workers")), Verdict::Skip { .. }));
        assert_eq!(verdict(&same("Bound the pool to 16 workers")), merge);
    }

    #[test]
    fn a_correction_supersedes_unless_its_type_differs() {
        let mut corrected = candidate("The pool no longer needs a bound");
        assert_eq!(classify(&corrected, &[brain(0.8)]), Verdict::Supersede(UnitId::verbatim("pools")));
        corrected.kind = UnitType::Bug;
        assert_eq!(classify(&corrected, &[brain(0.8)]), Verdict::Add);
    }

    #[test]
    fn only_a_later_session_replaces_a_unit() {
        let pools = || UnitId::verbatim("pools");
        let replaces = Candidate {
            overlap: Some(Overlap { id: pools(), how: OverlapKind::Replaces }),
            ..candidate("Give a pool of workers a bound")
        };
        let opposite = candidate("Never bound the worker pool");
        let correction = candidate("The pool no longer needs a bound");
        for candidate in [replaces, opposite, correction] {
            let verdict = |learned: &str| super::classify(&candidate, &[brain(0.8)], day(learned));
            assert_eq!(verdict("2026-02-02"), Verdict::Supersede(pools()), "{}", candidate.title);
            assert_eq!(verdict("2026-02-01"), Verdict::Add, "{}", candidate.title);
            assert_eq!(verdict("2026-01-12"), Verdict::Add, "{}", candidate.title);
            let undated = Neighbor { last_modified: None, ..brain(0.8) };
            let verdict = super::classify(&candidate, &[undated], day("2026-01-12"));
            assert_eq!(verdict, Verdict::Supersede(pools()), "{}", candidate.title);
        }
        let addition = candidate("Give a pool of workers a bound");
        let merge = super::classify(&addition, &[brain(0.8)], day("2026-01-12"));
        assert_eq!(merge, Verdict::Merge(pools()), "an addition may come late");
    }

    #[test]
    fn what_the_model_says_about_a_unit_overrides_similarity() {
        let named = |how, id: &str| Candidate {
            overlap: Some(Overlap { id: UnitId::verbatim(id), how }),
            ..candidate("Give a pool of workers a bound")
        };
        let pools = UnitId::verbatim("pools");
        assert_eq!(
            classify(&named(OverlapKind::AddsTo, "pools"), &[brain(0.3)]),
            Verdict::Merge(pools.clone())
        );
        assert_eq!(
            classify(&named(OverlapKind::Replaces, "pools"), &[brain(0.3)]),
            Verdict::Supersede(pools)
        );
        assert!(matches!(classify(&named(OverlapKind::Same, "pools"), &[brain(0.3)]), Verdict::Skip { .. }));
        assert_eq!(classify(&named(OverlapKind::Replaces, "gone"), &[brain(0.3)]), Verdict::Add);
        // A copy is skipped whatever the model says.
        assert!(matches!(
            classify(&named(OverlapKind::AddsTo, "pools"), &[brain(0.95)]),
            Verdict::Skip { .. }
        ));
    }

    /// Compares restatements, additions and other lessons of the same field, eleven each, with the twenty units
    /// of the fixture brain, by the built-in model: `cargo test -p actors similarity -- --nocapture` prints them.
    #[test]
    fn similarity_merges_restatements_and_no_other_lesson() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures");
        let folder = tempfile::tempdir().unwrap();
        let brain = Brain::init(folder.path()).unwrap().brain;
        for file in walkdir::WalkDir::new(fixtures.join("brain/domains")) {
            let file = file.unwrap();
            let to = folder.path().join(file.path().strip_prefix(fixtures.join("brain")).unwrap());
            if file.file_type().is_dir() {
                std::fs::create_dir_all(to).unwrap();
            } else {
                std::fs::copy(file.path(), to).unwrap();
            }
        }
        let model = EmbeddingModel::new(embed::Settings::default());
        let embed = |text: &str| model.embedder().unwrap().embed_document(text).unwrap();
        let index = Index::open(&brain.derived_folder()).unwrap();
        let label = model.label().unwrap();
        let plan =
            index.plan(&brain, &label, model.tokenizer().unwrap(), Mode::Changed, &mut |_| ()).unwrap();
        let vectors = plan.texts().iter().map(|text| embed(text)).collect();
        plan.publish(vectors).unwrap();
        let snapshot = index.pin().unwrap();

        let cases = std::fs::read_to_string(fixtures.join("likeness.json")).unwrap();
        let cases: Vec<serde_json::Value> = serde_json::from_str(&cases).unwrap();
        let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for case in &cases {
            for kind in ["restated", "more", "other"] {
                let text = |at: usize| case[kind][at].as_str().unwrap().to_owned();
                let kind_of = UnitType::from(case["type"].as_str().unwrap());
                let candidate = Candidate { kind: kind_of, body: text(1), ..candidate(&text(0)) };
                let vector = embed(&crate::pipeline::text_to_compare(&candidate));
                let near =
                    crate::comparison::neighbors_in_brain(&snapshot, &candidate, &vector.vector).unwrap();
                let verdict = classify(&candidate, &near);
                let is_right = |id: &UnitId| id.as_str() == case["unit"].as_str().unwrap();
                let outcome = match &verdict {
                    Verdict::Add => "added",
                    Verdict::Merge(id) | Verdict::Supersede(id) if is_right(id) => "merged",
                    Verdict::Skip { reason } if reason.contains(case["unit"].as_str().unwrap()) => "skipped",
                    _ => "wrong",
                };
                println!(
                    "{kind:<9} {outcome:<8} {:.2} {:<40} {}",
                    near[0].cosine, near[0].id, candidate.title
                );
                *counts.entry((kind, outcome)).or_default() += 1;
            }
        }
        println!("{counts:?}");
        let count = |kind, outcome| counts.get(&(kind, outcome)).copied().unwrap_or(0);
        for kind in ["restated", "more", "other"] {
            assert_eq!(count(kind, "wrong"), 0, "{kind}");
        }
        assert_eq!(count("other", "added"), cases.len(), "another lesson becomes a unit of its own");
        assert!(count("restated", "added") * 3 <= cases.len(), "{counts:?}");
    }
}
