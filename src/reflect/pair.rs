//! What two units are to each other: the same, contradictory, about one subject, or nothing.

use jiff::Timestamp;
use knowledge::embedding::{ABOUT_COSINE, SAME_COSINE};
use knowledge::text::canonical;
use knowledge::value::Values;
use knowledge::{Unit, UnitType};

use crate::observed::{changed, own_text};
use knowledge::opposed::{Statements, is_correction};
use knowledge::words::jaccard;

/// From this cosine on also units of different domains are: the same words say another thing in another field.
const ABOUT_ELSEWHERE_COSINE: f64 = 0.8;
/// From this cosine on two titles that are opposites word by word are about the same thing.
const OPPOSITE_COSINE: f64 = 0.5;
/// From this cosine on two units with a common tag are about one subject.
const NEAR_COSINE: f64 = 0.55;
/// From this share of common words on two titles have the same form. A restatement has a title of its own form (at most
/// .33 in the tuned texts of `examples/made_brain`).
const SAME_FORM: f64 = 0.4;
/// The share of common words from which on two units without vectors say the same.
const SAME_WORDS: f64 = 0.8;

/// What two units are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// They say the same: in the same words, or in others.
    Same { is_exact: bool },
    /// Both cannot hold.
    Opposed,
    /// About one subject.
    Near,
    /// Nothing that is known here.
    Unlike,
}

/// A unit with what is compared of it, computed once.
pub(crate) struct Compared<'a> {
    pub(crate) unit: &'a Unit,
    /// What is compared, as text; what a rejection is bound to.
    pub(crate) text: &'a str,
    title_values: Values<'a>,
    text_values: Values<'a>,
    vector: Option<&'a [f32]>,
    canonical_title: String,
    canonical_text: String,
    /// The text below the title.
    canonical_below: String,
    statements: Statements,
}

impl<'a> Compared<'a> {
    /// `text` is that of [`text_to_compare`](crate::text_to_compare).
    pub(crate) fn new(unit: &'a Unit, text: &'a str, vector: Option<&'a [f32]>) -> Self {
        let is_choice = matches!(
            unit.kind,
            UnitType::Decision | UnitType::Constraint | UnitType::Belief | UnitType::Fact
        );
        let below = format!("{}\n{}", unit.description.as_deref().unwrap_or_default(), own_text(unit));
        Self {
            unit,
            vector: vector.filter(|vector| !vector.is_empty()),
            canonical_title: canonical(&unit.title),
            canonical_text: canonical(text),
            canonical_below: canonical(&below),
            statements: Statements::new(&unit.title, &below, is_choice),
            text,
            title_values: Values::new(&unit.title),
            text_values: Values::new(text),
        }
    }

    /// The cosine with another unit; `None` if one of them has no vector, or vectors of two models cannot be compared.
    pub(crate) fn cosine(&self, other: &Self) -> Option<f64> {
        let (one, two) = self.vector.zip(other.vector).filter(|(one, two)| one.len() == two.len())?;
        Some(f64::from(one.iter().zip(two).map(|(a, b)| a * b).sum::<f32>()))
    }

    pub(crate) fn verdict(&self, other: &Self) -> Verdict {
        let cosine = self.cosine(other);
        if self.canonical_text == other.canonical_text {
            return Verdict::Same { is_exact: true };
        }
        let same_domain = self.unit.domain == other.unit.domain;
        let same_title = self.canonical_title == other.canonical_title;
        if same_title && same_domain && self.is_fact() && other.is_fact() {
            return Verdict::Opposed;
        }
        if same_domain && self.statements.is_numbered_copy(&other.statements) {
            let is_exact = self.canonical_below == other.canonical_below;
            return Verdict::Same { is_exact };
        }
        let Some(cosine) = cosine else { return self.verdict_by_words(other) };
        if cosine < OPPOSITE_COSINE {
            return Verdict::Unlike;
        }
        let about = cosine >= if same_domain { ABOUT_COSINE } else { ABOUT_ELSEWHERE_COSINE };
        let (ours, theirs) = (&self.statements, &other.statements);
        if same_domain && ours.titles_oppose(theirs) || about && ours.oppose(theirs) {
            return Verdict::Opposed;
        }
        if about && self.can_be_one(other) {
            return Verdict::Same { is_exact: cosine >= SAME_COSINE && self.has_same_values(other) };
        }
        match cosine >= NEAR_COSINE {
            true => Verdict::Near,
            false => Verdict::Unlike,
        }
    }

    fn verdict_by_words(&self, other: &Self) -> Verdict {
        let alike = jaccard(&self.statements.all, &other.statements.all) >= SAME_WORDS;
        match self.unit.domain == other.unit.domain && alike && !self.is_other_lesson(other) {
            true if self.statements.oppose(&other.statements) => Verdict::Opposed,
            true if self.can_be_one(other) => Verdict::Same { is_exact: false },
            _ => Verdict::Unlike,
        }
    }

    /// Whether two units about the same thing may become one.
    fn can_be_one(&self, other: &Self) -> bool {
        !self.is_other_lesson(other) && !self.statements.differ_in_a_statement(&other.statements)
    }

    /// Whether the titles show that two similar texts are two lessons: each has a value that the other lacks, or both
    /// have the same form and each names something that the other unit never mentions.
    fn is_other_lesson(&self, other: &Self) -> bool {
        let (ours, theirs) = (&self.statements, &other.statements);
        ours.title.differs_in_numbers(&theirs.title)
            || self.lacks_value_in_title(other) && other.lacks_value_in_title(self)
            || ours.title.likeness(&theirs.title) >= SAME_FORM && ours.has_other_subject(theirs)
            || ours.has_other_object(theirs)
    }

    /// Whether the other one's title has a value that this unit lacks. The same number counts as the same value beside any
    /// word: a restatement has other words.
    fn lacks_value_in_title(&self, other: &Self) -> bool {
        let has_number = |unit: &Self, value: &str| unit.statements.title.has_number(value);
        let missing = other.title_values.missing_in(&self.text_values);
        missing.is_some_and(|value| !(has_number(other, value) && has_number(self, value)))
    }

    fn has_same_values(&self, other: &Self) -> bool {
        self.text_values.missing_in(&other.text_values).is_none()
            || other.text_values.missing_in(&self.text_values).is_none()
    }

    fn is_fact(&self) -> bool {
        self.unit.kind == UnitType::Fact
    }

    /// Whether this unit says that something is no longer so.
    pub(crate) fn is_correction(&self) -> bool {
        is_correction(self.text)
    }

    pub(crate) fn changed(&self) -> Option<Timestamp> {
        changed(self.unit)
    }
}
