//! What reflection is given: units with what is known about their use.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use knowledge::wikilink::rewritten;
use knowledge::{Unit, UnitId};

/// A unit with its file and what is known about it.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The unit.
    pub unit: &'a Unit,
    /// Its file, relative to the brain with `/` between its parts.
    pub path: &'a str,
    /// The file's text, from which `unit` was read.
    pub text: &'a str,
    /// The vector of its [`text_to_compare`]: `[dimensions] f32`, L2-normalised, all of one model. Without it only
    /// units in the same words are recognised.
    pub vector: Option<&'a [f32]>,
    /// How sessions have used it; `None` if nothing was ever recorded about it.
    pub recall: Option<Recall>,
    /// Why what it bears on has changed since it was learned, in a few words; `None` if it has not.
    pub stale: Option<&'a str>,
}

/// How often sessions have seen and used a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recall {
    /// The number of sessions that were shown it.
    pub shown: u32,
    /// The number of sessions that used it.
    pub used: u32,
    /// When a session was last shown it.
    pub last: Timestamp,
}

/// What reflection looks for, and what it must not propose.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Since when recalls are recorded; `None` if they are not. No unit is archived in the first
    /// [`unused_days`](Self::unused_days) of the records.
    pub recording_since: Option<Timestamp>,
    /// After how many days without a recall a unit is archived.
    pub unused_days: u32,
    /// How many sessions have to be shown a note or a fact before it becomes a unit of a proper type.
    pub promote_sessions: u32,
    /// How many sessions have to be shown a long unit before it is worth a model's rewriting.
    pub rewrite_sessions: u32,
    /// The number of words from which on a unit is long.
    pub rewrite_words: usize,
    /// A unit with this many relations gets no further link.
    pub links_max: usize,
    /// Only findings about a unit that was changed or shown since then; `None` for all.
    pub since: Option<Timestamp>,
    /// The keys of findings that a person has rejected; see [`Finding::key`](crate::Finding::key).
    pub rejected: BTreeSet<String>,
    /// Ids that exist although no unit of this list has them, such as those of notes that wait for review.
    pub other_ids: BTreeSet<UnitId>,
    /// Paths of files, beside those of the units, to which no unit may move.
    pub other_paths: BTreeSet<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            recording_since: None,
            unused_days: 180,
            promote_sessions: 3,
            rewrite_sessions: 5,
            rewrite_words: 350,
            links_max: 3,
            since: None,
            rejected: BTreeSet::new(),
            other_ids: BTreeSet::new(),
            other_paths: BTreeSet::new(),
        }
    }
}

impl Settings {
    pub(crate) fn unused_after(&self) -> SignedDuration {
        SignedDuration::from_hours(24 * i64::from(self.unused_days))
    }
}

/// The beginning of the heading below which a merge puts what the removed unit said.
pub(crate) const MERGED_HEADING: &str = "## Merged from ";

/// The text of a unit that is compared with others: title, description and body, without what a merge has added to it.
///
/// A merge adds text that was compared before. Left out, it changes no comparison, so that a second pass finds nothing
/// new.
pub fn text_to_compare(unit: &Unit) -> String {
    let description = unit.description.as_deref().unwrap_or_default();
    // The title of another unit says nothing of this one.
    let text = rewritten(own_text(unit), |_| Some(String::new()));
    let parts = [unit.title.as_str(), description, text.trim()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// The body without a heading that repeats the title, and without what a merge has added.
pub(crate) fn own_text(unit: &Unit) -> &str {
    let mut body = unit.body.trim();
    if let Some(heading) = body.strip_prefix("# ") {
        let (heading, rest) = heading.split_once('\n').unwrap_or((heading, ""));
        if heading.trim() == unit.title {
            body = rest.trim();
        }
    }
    let merged = match body.starts_with(MERGED_HEADING) {
        true => Some(0),
        false => body.find(&format!("\n{MERGED_HEADING}")),
    };
    merged.map_or(body, |at| body[..at].trim_end())
}

/// When a unit was last changed, as far as its file says.
pub(crate) fn changed(unit: &Unit) -> Option<Timestamp> {
    unit.last_modified.max(unit.created)
}
