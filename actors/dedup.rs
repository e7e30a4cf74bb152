//! What a candidate is to what is known already: new, more of a unit, in a unit's place, or nothing new.
//!
//! Where a model has read the session it has seen the brain's titles and says so itself; otherwise, and
//! for what it could not see, likeness decides.

use knowledge::text::canonical;
use knowledge::value;
use knowledge::{Candidate, OverlapKind, UnitId, UnitType};

/// From this cosine on two texts say the same in nearly the same words. No restatement of the `likeness`
/// test has it: in other words, MiniLM gives the same lesson .58 to .79.
const SAME_COSINE: f64 = 0.92;
/// From this cosine on a candidate of the same type is about the same thing as a unit. Other lessons of the
/// same field have .32 to .54, additions to the same subject .38 to .64: these become units of their own,
/// which costs a reviewer less than a unit that has grown by what is not its own.
const ABOUT_COSINE: f64 = 0.66;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Add,
    /// The unit is edited: this is put below what it says.
    Merge(UnitId),
    /// A unit of its own, and the other one is marked as replaced.
    Supersede(UnitId),
    Skip {
        reason: String,
    },
}

/// Something known, with its likeness to the candidate.
#[derive(Clone, Debug)]
pub(crate) struct Near {
    pub id: UnitId,
    /// Where it is known.
    pub kind: Option<UnitType>,
    pub title: String,
    /// What it says, its title included; of what waits for its review the title alone.
    pub text: String,
    pub cosine: f64,
    pub place: Place,
}

impl Near {
    /// What a lesson may repeat of it; that it is named is nothing new of it.
    fn told(&self) -> String {
        format!("{}\n{}", self.text, self.id)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Brain,
    /// On a branch that waits for its review, or was refused in it.
    Waiting,
    /// Among the candidates that come before.
    SameSession,
}

pub(crate) fn judge(candidate: &Candidate, near: &[Near]) -> Verdict {
    let said = candidate.overlap.as_ref().and_then(|overlap| {
        let unit = near.iter().find(|near| near.place == Place::Brain && near.id == overlap.id)?;
        Some((unit, overlap.how))
    });
    let said = match said {
        Some((unit, OverlapKind::Same)) => {
            let is_other = value::missing_number(&candidate.title, &unit.told()).is_some()
                || value::contradicts(&candidate.title, &unit.title);
            if !is_other {
                return known(unit);
            }
            // A model answers so when in doubt, and has seen but the unit's title: likeness decides.
            None
        }
        said => said,
    };
    let title = canonical(&candidate.title);
    for unit in near {
        let same_words = canonical(&unit.title) == title && unit.cosine >= ABOUT_COSINE;
        if (same_words || unit.cosine >= SAME_COSINE) && says_nothing_else(candidate, unit) {
            return known(unit);
        }
    }
    match said {
        Some((unit, OverlapKind::AddsTo)) => return Verdict::Merge(unit.id.clone()),
        Some((unit, _)) => return Verdict::Supersede(unit.id.clone()),
        None => {}
    }
    let in_brain = near.iter().filter(|near| near.place == Place::Brain);
    let about = |near: &&Near| near.cosine >= ABOUT_COSINE && near.kind.as_ref() == Some(&candidate.kind);
    let mut opposed = in_brain.clone().filter(about);
    if let Some(unit) = opposed.find(|near| value::contradicts(&candidate.title, &near.title)) {
        return Verdict::Supersede(unit.id.clone());
    }
    let corrects = corrects(&candidate.title) || corrects(&candidate.body);
    let alike = in_brain.filter(about).filter(|near| corrects || !is_beside(&candidate.title, &near.title));
    match alike.max_by(|a, b| a.cosine.total_cmp(&b.cosine)) {
        Some(unit) if corrects => Verdict::Supersede(unit.id.clone()),
        Some(unit) => Verdict::Merge(unit.id.clone()),
        None => Verdict::Add,
    }
}

/// Whether two titles have a value each that the other has not: put below the one, the other would never be
/// found by its own title.
fn is_beside(title: &str, other: &str) -> bool {
    value::missing_value(title, other).is_some() && value::missing_value(other, title).is_some()
}

fn known(unit: &Near) -> Verdict {
    let reason = match unit.place {
        Place::Brain => format!("known already: {}", unit.id),
        Place::Waiting => format!("proposed before: {}", unit.id),
        Place::SameSession => format!("the same as {:?}", unit.title),
    };
    Verdict::Skip { reason }
}

/// Two lessons that differ in a value alone have nearly the same vector, and are two: `--lane 7` is not
/// `--lane 8`, and "never" is not "always".
fn says_nothing_else(candidate: &Candidate, unit: &Near) -> bool {
    let (has_more, told) = (unit.place != Place::Waiting, unit.told());
    !value::contradicts(&candidate.title, &unit.title)
        && value::missing_value(&candidate.title, &told).is_none()
        && !(has_more
            && [candidate.description.as_str(), behind_title(candidate)]
                .iter()
                .any(|text| value::missing_number(text, &told).is_some()))
}

/// Where a title was cut for its length, the body, for the value that tells two rules apart may stand behind the
/// cut; without what it quotes of the session. What a body tells beside a whole title may differ from one
/// telling to the next: ports, counts and line numbers of the day.
fn behind_title(candidate: &Candidate) -> &str {
    if !candidate.title.ends_with('…') {
        return "";
    }
    candidate.body.split("## How it was learned").next().unwrap_or_default()
}

/// Whether a text speaks of what has held before and holds no more.
fn corrects(text: &str) -> bool {
    const SIGNS: [&str; 8] = [
        "no longer",
        "not any more",
        "not anymore",
        "turned out to be wrong",
        "is outdated",
        "used to be",
        "we switched from",
        "contrary to what",
    ];
    let text = text.to_lowercase();
    SIGNS.iter().any(|sign| text.contains(sign))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use brain::Brain;
    use index::{Index, Mode};
    use knowledge::Overlap;

    use super::*;
    use crate::embedding::Model;

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
        }
    }

    fn near(id: &str, title: &str, cosine: f64, place: Place) -> Near {
        let kind = (place == Place::Brain).then_some(UnitType::Pattern);
        Near { id: UnitId::verbatim(id), kind, title: title.into(), text: title.into(), cosine, place }
    }

    fn brain(cosine: f64) -> Near {
        near("pools", "Bound the worker pool", cosine, Place::Brain)
    }

    #[test]
    fn the_nearer_the_less_is_new() {
        let candidate = candidate("Give a pool of workers a bound");
        assert_eq!(judge(&candidate, &[]), Verdict::Add);
        assert_eq!(judge(&candidate, &[brain(0.6)]), Verdict::Add);
        assert_eq!(judge(&candidate, &[brain(0.8)]), Verdict::Merge(UnitId::verbatim("pools")));
        let skip = Verdict::Skip { reason: "known already: pools".into() };
        assert_eq!(judge(&candidate, &[brain(0.95)]), skip);
    }

    #[test]
    fn what_waits_for_its_review_is_known_and_never_edited() {
        let candidate = candidate("Give a pool of workers a bound");
        let waiting = |cosine| near("pools", "Bound the worker pool", cosine, Place::Waiting);
        let skip = Verdict::Skip { reason: "proposed before: pools".into() };
        assert_eq!(judge(&candidate, &[waiting(0.95)]), skip);
        assert_eq!(judge(&candidate, &[waiting(0.85)]), Verdict::Add);
    }

    #[test]
    fn a_number_makes_another_lesson_of_the_same_words() {
        let other = near("lane-7", "Always run `check --lane 7` first", 0.99, Place::Waiting);
        assert_eq!(
            judge(&candidate("Always run `check --lane 8` first"), std::slice::from_ref(&other)),
            Verdict::Add
        );
        let same = judge(&candidate("First run `check --lane 7`, always"), &[other]);
        assert!(matches!(same, Verdict::Skip { .. }));
    }

    #[test]
    fn a_different_value_is_a_new_unit_unless_it_corrects_one() {
        let lane = |lane: u32| {
            near(
                &format!("lane-{lane}"),
                &format!("Always run `check --lane {lane}` first"),
                0.99,
                Place::Brain,
            )
        };
        let other = candidate("Always run `check --lane 8` first");
        assert_eq!(judge(&other, &[lane(7)]), Verdict::Add);
        let corrected =
            Candidate { body: "Lane 7 is no longer read.".into(), ..candidate("Run `check --lane 8` first") };
        assert_eq!(judge(&corrected, &[lane(7)]), Verdict::Supersede(UnitId::verbatim("lane-7")));
        let mut restated = lane(8);
        restated.cosine = 0.8;
        let merge = Verdict::Merge(UnitId::verbatim("lane-8"));
        let again = candidate("Before all else run `check --lane 8`");
        assert_eq!(judge(&again, &[lane(7), restated]), merge, "not into the likest, but into its own");
    }

    #[test]
    fn the_opposite_of_a_unit_takes_its_place() {
        let always = |place| near("check", "Always run `check` first", 0.99, place);
        let never = candidate("Never run `check` first");
        let supersede = Verdict::Supersede(UnitId::verbatim("check"));
        assert_eq!(judge(&never, &[brain(0.995), always(Place::Brain)]), supersede);
        let overlap = Some(Overlap { id: UnitId::verbatim("check"), how: OverlapKind::Same });
        assert_eq!(judge(&Candidate { overlap, ..never.clone() }, &[always(Place::Brain)]), supersede);
        assert_eq!(judge(&never, &[always(Place::Waiting)]), Verdict::Add, "what waits is never edited");
    }

    #[test]
    fn a_number_that_a_unit_lacks_goes_into_it_wherever_it_is_told() {
        let unit = Near {
            text: "Bound the worker pool\nBound it to 32 workers.\n\nMeasured for 64 requests.".into(),
            ..brain(0.99)
        };
        let told = |description: &str, said: Option<OverlapKind>| Candidate {
            description: description.into(),
            overlap: said.map(|how| Overlap { id: UnitId::verbatim("pools"), how }),
            ..candidate("Bound the worker pool")
        };
        let verdict = |candidate: &Candidate| judge(candidate, std::slice::from_ref(&unit));
        let merge = Verdict::Merge(UnitId::verbatim("pools"));
        assert!(matches!(verdict(&told("Bound it to 32 workers.", None)), Verdict::Skip { .. }));
        assert_eq!(verdict(&told("Bound it to 16 workers.", None)), merge);
        assert_eq!(verdict(&told("Bound it to 64 workers.", None)), merge);
        let body =
            |body: &str| Candidate { body: body.into(), ..candidate("Bound the worker pool, which…") };
        assert_eq!(verdict(&body("## What to do\n\nBound it to 16 workers.")), merge);
        let quoted = "Bound it to 32 workers.\n\n## How it was learned\n\n> as I said 5 times: bound it";
        assert!(matches!(verdict(&body(quoted)), Verdict::Skip { .. }));
        let whole = Candidate { body: "Seen in round 16.".into(), ..told("", None) };
        assert!(matches!(verdict(&whole), Verdict::Skip { .. }), "a number of the day");
        // A model that takes the one for the other.
        let same = |title: &str| Candidate { title: title.into(), ..told("", Some(OverlapKind::Same)) };
        assert!(matches!(verdict(&same("Bound the pool to 32 workers")), Verdict::Skip { .. }));
        assert_eq!(verdict(&same("Bound the pool to 16 workers")), merge);
    }

    #[test]
    fn a_correction_supersedes_and_another_type_is_another_unit() {
        let mut corrected = candidate("The pool no longer needs a bound");
        assert_eq!(judge(&corrected, &[brain(0.8)]), Verdict::Supersede(UnitId::verbatim("pools")));
        corrected.kind = UnitType::Bug;
        assert_eq!(judge(&corrected, &[brain(0.8)]), Verdict::Add);
    }

    #[test]
    fn the_models_verdict_on_a_unit_overrides_similarity() {
        let said = |how, id: &str| Candidate {
            overlap: Some(Overlap { id: UnitId::verbatim(id), how }),
            ..candidate("Give a pool of workers a bound")
        };
        let pools = UnitId::verbatim("pools");
        assert_eq!(judge(&said(OverlapKind::AddsTo, "pools"), &[brain(0.3)]), Verdict::Merge(pools.clone()));
        assert_eq!(judge(&said(OverlapKind::Replaces, "pools"), &[brain(0.3)]), Verdict::Supersede(pools));
        assert!(matches!(judge(&said(OverlapKind::Same, "pools"), &[brain(0.3)]), Verdict::Skip { .. }));
        assert_eq!(judge(&said(OverlapKind::Replaces, "gone"), &[brain(0.3)]), Verdict::Add);
        // A copy is no news, whatever is said of it.
        assert!(matches!(judge(&said(OverlapKind::AddsTo, "pools"), &[brain(0.95)]), Verdict::Skip { .. }));
    }

    /// Restatements, additions and other lessons of the same field, eleven each, against the twenty units of
    /// the fixture brain, by the built-in model: `cargo test -p actors similarity_merges -- --nocapture` prints them.
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
        let model = Model::new(embed::Settings::default());
        let embed = |text: &str| model.embedder().unwrap().embed_document(text).unwrap();
        let index = Index::open(&brain.derived_folder()).unwrap();
        let label = model.label().unwrap();
        let plan =
            index.plan(&brain, &label, model.tokenizer().unwrap(), Mode::Changed, &mut |_| ()).unwrap();
        let vectors = plan.texts().iter().map(|text| embed(text)).collect();
        plan.publish(vectors).unwrap();
        let pinned = index.pin().unwrap();

        let cases = std::fs::read_to_string(fixtures.join("likeness.json")).unwrap();
        let cases: Vec<serde_json::Value> = serde_json::from_str(&cases).unwrap();
        let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for case in &cases {
            for kind in ["restated", "more", "other"] {
                let text = |at: usize| case[kind][at].as_str().unwrap().to_owned();
                let kind_of = UnitType::from(case["type"].as_str().unwrap());
                let candidate = Candidate { kind: kind_of, body: text(1), ..candidate(&text(0)) };
                let vector = embed(&crate::pipeline::text_of(&candidate));
                let near = crate::indexing::near(&pinned, &candidate, &vector).unwrap();
                let verdict = judge(&candidate, &near);
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
        assert_eq!(count("other", "added"), cases.len(), "another lesson is a unit of its own");
        assert!(count("restated", "added") * 3 <= cases.len(), "{counts:?}");
    }
}
