//! What reflection proposes.

use std::fmt;

use knowledge::{UnitId, UnitType};

/// The kind of a finding, in the order of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Two units with the same text.
    Duplicate,
    /// Two units that say the same in other words.
    NearDuplicate,
    /// Two units that cannot both hold.
    Contradiction,
    /// A relation to a unit that does not exist.
    Dangling,
    /// A unit that no session was shown for a long time.
    Unused,
    /// A unit whose file or symbol has changed since it was learned.
    Stale,
    /// A note or a fact that sessions need often enough to be a unit of a proper type.
    Promote,
    /// Two units of one subject that are not related yet.
    Link,
    /// A long unit that many sessions are shown: work for a model. Changes no file by itself.
    Rewrite,
}

impl Kind {
    /// The name in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Duplicate => "duplicate",
            Self::NearDuplicate => "near duplicate",
            Self::Contradiction => "contradiction",
            Self::Dangling => "dangling link",
            Self::Unused => "unused",
            Self::Stale => "stale",
            Self::Promote => "promote",
            Self::Link => "link",
            Self::Rewrite => "rewrite",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What is done about a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// What `from` says and is related to goes into `into`; its file is removed.
    Merge {
        /// The unit that is removed.
        from: UnitId,
        /// The unit that is kept.
        into: UnitId,
    },
    /// `old` is marked as replaced by `new`.
    Supersede {
        /// The unit that no longer holds.
        old: UnitId,
        /// The unit that replaces it.
        new: UnitId,
    },
    /// Both are linked as contradicting each other, for a person to decide.
    Contradict {
        /// The one.
        one: UnitId,
        /// The other.
        other: UnitId,
    },
    /// The relation to a unit that does not exist is removed.
    Unlink {
        /// The unit that states the relation.
        from: UnitId,
        /// The id that no unit has.
        to: UnitId,
    },
    /// The unit is archived: no session is shown it any more.
    Archive {
        /// The unit.
        unit: UnitId,
    },
    /// The unit is marked as not to be relied on from now on.
    Expire {
        /// The unit.
        unit: UnitId,
    },
    /// The unit gets another type, and its file moves to that type's folder.
    Promote {
        /// The note or fact.
        unit: UnitId,
        /// Its new type.
        to: UnitType,
    },
    /// Both get a relation to the other.
    Link {
        /// The one.
        one: UnitId,
        /// The other.
        other: UnitId,
    },
    /// A model is asked for a shorter text; see [`rewrite_request`](crate::rewrite_request).
    Rewrite {
        /// The unit.
        unit: UnitId,
    },
}

impl Change {
    /// The units that it is about; for [`Change::Unlink`] only the one that exists.
    pub fn units(&self) -> Vec<&UnitId> {
        match self {
            Self::Merge { from: one, into: other }
            | Self::Supersede { old: one, new: other }
            | Self::Contradict { one, other }
            | Self::Link { one, other } => vec![one, other],
            Self::Unlink { from: unit, .. }
            | Self::Archive { unit }
            | Self::Expire { unit }
            | Self::Promote { unit, .. }
            | Self::Rewrite { unit } => vec![unit],
        }
    }
}

/// Something to improve, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was found.
    pub kind: Kind,
    /// What is done about it.
    pub change: Change,
    /// One sentence for a reviewer. It quotes titles, which are untrusted text.
    pub reason: String,
    key: String,
}

impl Finding {
    /// `texts` are those of the units involved, in any order; `more` is what else the finding rests on.
    pub(crate) fn new(kind: Kind, change: Change, reason: String, texts: &[&str], more: &str) -> Self {
        let mut ids: Vec<&str> = change.units().into_iter().map(UnitId::as_str).collect();
        ids.sort_unstable();
        let mut texts = texts.to_vec();
        texts.sort_unstable();
        let mut digest = blake3::Hasher::new();
        for part in ids.iter().chain(&texts).chain([&more]) {
            digest.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        let key = format!("{}:{}:{}", group(kind), ids.join("+"), &digest.finalize().to_hex()[..16]);
        Self { kind, change, reason, key }
    }

    /// A name by which the same finding is known again: its kind, the ids, and a digest of the texts involved.
    ///
    /// It is another one as soon as a text is changed. It does not depend on which of two units would be kept, nor on
    /// how similar they are.
    pub fn key(&self) -> &str {
        &self.key
    }
}

/// Kinds that answer the same question share a name.
fn group(kind: Kind) -> &'static str {
    match kind {
        Kind::Duplicate | Kind::NearDuplicate => "merge",
        Kind::Contradiction => "contradiction",
        Kind::Dangling => "dangling",
        Kind::Unused => "unused",
        Kind::Stale => "stale",
        Kind::Promote => "promote",
        Kind::Link => "link",
        Kind::Rewrite => "rewrite",
    }
}
