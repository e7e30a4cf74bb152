//! Makes a brain of invented units with planted defects, from a seed.

use std::collections::BTreeSet;

use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};
use knowledge::{Document, Unit, UnitId};
use reflect::Recall;
use serde_yaml::{Mapping, Value};

use super::corpus::{Corpus, Lesson, Relationship};

/// How many of each defect are planted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    pub(crate) units: usize,
    /// Restatements in other words.
    pub(crate) restated: usize,
    /// Copies with small edits.
    pub(crate) copies: usize,
    pub(crate) opposed: usize,
    pub(crate) dangling: usize,
    pub(crate) unused: usize,
}

impl Counts {
    /// 300 units with 60 defects, or one half of it.
    pub(crate) fn share(part: usize) -> Self {
        match part {
            0 => Self { units: 150, restated: 6, copies: 4, opposed: 8, dangling: 5, unused: 8 },
            _ => Self { units: 150, restated: 6, copies: 4, opposed: 7, dangling: 5, unused: 7 },
        }
    }
}

/// A planted defect, by the ids of its units; of a dangling link, the unit and the target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Defect {
    Duplicate(UnitId, UnitId),
    Contradiction(UnitId, UnitId),
    Dangling(UnitId, UnitId),
    Unused(UnitId),
}

/// A made unit.
pub(crate) struct Made {
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) unit: Unit,
    pub(crate) recall: Option<Recall>,
}

/// The units and what is wrong with them.
#[derive(Default)]
pub(crate) struct MadeBrain {
    pub(crate) units: Vec<Made>,
    pub(crate) defects: BTreeSet<Defect>,
}

/// A unit before its file is written.
struct Draft {
    id: UnitId,
    lesson: Lesson,
    related: Vec<UnitId>,
    age_days: i64,
    recall: Option<Recall>,
    /// Whether defects of other kinds may be planted here.
    is_free: bool,
}

/// Makes the units of some corpora, each with its counts.
pub(crate) fn make(parts: &[(&Corpus, Counts)], seed: u64, now: Timestamp) -> MadeBrain {
    let mut rng = Rng::with_seed(seed);
    let mut defects = BTreeSet::new();
    let mut drafts = Vec::new();
    for (corpus, counts) in parts {
        let made = draft(corpus, *counts, &mut rng, &mut defects, now, drafts.len());
        drafts.extend(made);
    }
    rng.shuffle(&mut drafts);
    let units = drafts.into_iter().map(|draft| written(&draft, now)).collect();
    MadeBrain { units, defects }
}

fn draft(
    corpus: &Corpus,
    counts: Counts,
    rng: &mut Rng,
    defects: &mut BTreeSet<Defect>,
    now: Timestamp,
    at: usize,
) -> Vec<Draft> {
    let mut taken = BTreeSet::new();
    let mut drafts: Vec<Draft> = Vec::new();
    let mut add = |drafts: &mut Vec<Draft>, lesson: &Lesson, is_free: bool, rng: &mut Rng| {
        let mut id = UnitId::from_title(&lesson.title);
        if !taken.insert(id.clone()) {
            id = id.with_suffix(&format!("{:04x}", rng.u16(..)));
            taken.insert(id.clone());
        }
        let recall = used(rng, now);
        let age_days = rng.i64(5..900);
        drafts.push(Draft {
            id: id.clone(),
            lesson: lesson.clone(),
            related: Vec::new(),
            age_days,
            recall,
            is_free,
        });
        id
    };
    let mut pairs = corpus.pairs.clone();
    rng.shuffle(&mut pairs);
    let of =
        |relationship| pairs.iter().filter(move |(found, _)| *found == relationship).map(|(_, pair)| pair);
    for (number, [one, other]) in of(Relationship::Same).enumerate() {
        let first = add(&mut drafts, one, false, rng);
        if number < counts.restated {
            let second = add(&mut drafts, other, false, rng);
            defects.insert(Defect::Duplicate(first.clone().min(second.clone()), first.max(second)));
        }
    }
    for (number, [one, other]) in of(Relationship::Opposed).enumerate() {
        let first = add(&mut drafts, one, false, rng);
        if number < counts.opposed {
            let second = add(&mut drafts, other, false, rng);
            // The second lesson of a pair is the newer one.
            let last = drafts.len() - 1;
            drafts[last - 1].age_days = drafts[last].age_days + rng.i64(20..200);
            defects.insert(Defect::Contradiction(first.clone().min(second.clone()), first.max(second)));
        }
    }
    for [one, other] in of(Relationship::Unlike) {
        add(&mut drafts, one, true, rng);
        add(&mut drafts, other, true, rng);
    }
    let mut singles = corpus.singles.clone();
    rng.shuffle(&mut singles);
    let room = counts.units.saturating_sub(drafts.len() + counts.copies);
    assert!(singles.len() >= room, "{} lessons are missing", room - singles.len());
    for (number, lesson) in singles.iter().take(room).enumerate() {
        let first = add(&mut drafts, lesson, number >= counts.copies, rng);
        if number < counts.copies {
            let second = add(&mut drafts, &copied(lesson, number), false, rng);
            defects.insert(Defect::Duplicate(first.clone().min(second.clone()), first.max(second)));
        }
    }
    plant(&mut drafts, counts, rng, defects, now, at);
    drafts
}

fn plant(
    drafts: &mut [Draft],
    counts: Counts,
    rng: &mut Rng,
    defects: &mut BTreeSet<Defect>,
    now: Timestamp,
    at: usize,
) {
    // Real relations, and one in eight units that no session was shown though it is too young to be archived.
    let ids: Vec<UnitId> = drafts.iter().map(|draft| draft.id.clone()).collect();
    for draft in drafts.iter_mut() {
        if rng.u8(..4) == 0 {
            let to = rng.choice(&ids).expect("there are units").clone();
            if to != draft.id {
                draft.related.push(to);
            }
        }
        if draft.is_free && rng.u8(..8) == 0 {
            draft.age_days = rng.i64(1..170);
            draft.recall = None;
        }
    }
    let mut free: Vec<usize> = (0..drafts.len()).filter(|&at| drafts[at].is_free).collect();
    rng.shuffle(&mut free);
    for (number, &place) in free.iter().take(counts.unused).enumerate() {
        drafts[place].age_days = rng.i64(185..900);
        let old = Recall { shown: 2, used: 1, last: days_before(now, rng.i64(185..400)) };
        // Some were shown once, long ago.
        drafts[place].recall = (number % 3 == 0).then_some(old);
        defects.insert(Defect::Unused(drafts[place].id.clone()));
    }
    for number in 0..counts.dangling {
        let place = rng.usize(..drafts.len());
        let to = UnitId::verbatim(format!(
            "{}-{}",
            ["retired-runbook", "old-notes", "team-handbook"][number % 3],
            at + number
        ));
        drafts[place].related.push(to.clone());
        defects.insert(Defect::Dangling(drafts[place].id.clone(), to));
    }
}

/// A recall that keeps a unit: one in three was shown and never used.
fn used(rng: &mut Rng, now: Timestamp) -> Option<Recall> {
    let shown = rng.u32(1..9);
    let used = if rng.u8(..3) == 0 { 0 } else { rng.u32(..=shown) };
    Some(Recall { shown, used, last: days_before(now, rng.i64(0..175)) })
}

/// A copy as they come about: pasted, retitled, shortened, or with the sentences in another order.
fn copied(lesson: &Lesson, number: usize) -> Lesson {
    let mut copy = lesson.clone();
    let mut sentences: Vec<&str> = lesson.body.split_inclusive(". ").collect();
    match number % 4 {
        0 => copy.title = copy.title.to_uppercase(),
        1 => copy.title = format!("Note: {}", copy.title),
        2 => drop(sentences.pop().filter(|_| sentences.len() > 1)),
        _ => sentences.rotate_left(1),
    }
    if sentences.is_empty() {
        sentences.push(&lesson.body);
    }
    copy.body = sentences.iter().map(|sentence| sentence.trim()).collect::<Vec<_>>().join(" ");
    copy
}

fn days_before(now: Timestamp, days: i64) -> Timestamp {
    now.checked_sub(SignedDuration::from_hours(24 * days)).expect("a time after 1970")
}

fn written(draft: &Draft, now: Timestamp) -> Made {
    let Lesson { domain, kind, tags, title, body } = &draft.lesson;
    let created = days_before(now, draft.age_days).to_string();
    let related = draft.related.iter().map(|id| {
        let mut link = Mapping::new();
        link.insert("id".into(), id.as_str().into());
        link.insert("relation".into(), "often_combined_with".into());
        Value::Mapping(link)
    });
    let document = Document::compose(
        &[
            ("id", draft.id.as_str().into()),
            ("type", kind.as_str().into()),
            ("domain", domain.as_str().into()),
            ("title", title.as_str().into()),
            ("tags", Value::Sequence(tags.iter().map(|tag| tag.as_str().into()).collect())),
            ("confidence", 0.8.into()),
            ("source", "claude".into()),
            ("related", Value::Sequence(related.collect())),
            ("created", created.as_str().into()),
            ("last_modified", created.as_str().into()),
        ],
        body,
    );
    let path =
        format!("domains/{domain}/{}/{}.md", knowledge::UnitType::from(kind.as_str()).folder(), draft.id);
    let unit = document.unit(&path).expect("a composed unit");
    Made { path, text: document.as_str().to_owned(), unit, recall: draft.recall }
}
