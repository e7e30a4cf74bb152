//! Filters for the texts of an answer.

use std::borrow::Cow;

use index::UnitRecord;

use crate::answer::Review;

/// Filters what an answer shows or a model is sent.
pub trait OutputFilter {
    /// The text without secrets: a person may have written one into a unit.
    fn clean<'t>(&self, text: &'t str) -> Cow<'t, str> {
        transcript::redact::redact(text)
    }

    /// Why the unit may no longer hold, in words.
    fn staleness(&self, unit: &UnitRecord) -> Option<String> {
        let _ = unit;
        None
    }

    /// Whether a person has accepted the unit.
    fn review(&self, unit: &UnitRecord) -> Review {
        let _ = unit;
        Review::default()
    }
}

/// The default filter: removes secrets and knows nothing of reviews.
pub struct RedactOnly;

impl OutputFilter for RedactOnly {}
