//! A unit of knowledge: one markdown file, parsed.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::name::{Domain, UnitId};

/// The type of a unit. A brain may use types of its own; they are kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UnitType {
    /// A way of doing something that works again and again.
    Pattern,
    /// What something is or how it behaves.
    Concept,
    /// What was chosen, over which alternatives, and why.
    Decision,
    /// What went wrong, its cause and its fix.
    Bug,
    /// A rule or a preference that someone holds to be right.
    Belief,
    /// A requirement or a limit that the code must keep to.
    Constraint,
    /// A warning about behaviour that one would not expect.
    Caveat,
    /// What a person changed in what a model had written.
    Tuning,
    /// What was considered and not done, and why.
    Rejection,
    /// What was done until something else is fixed.
    Workaround,
    /// What someone wanted to reach.
    Intent,
    /// What was added or removed that the code depends on, and why.
    Dependency,
    /// What a person or an agent wrote down, with links to other units.
    Note,
    /// A value under a key: the title is the key, the body the value.
    Fact,
    /// A type of the user's own.
    Other(String),
}

/// How one unit relates to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Relation {
    /// It uses the other.
    Uses,
    /// It implements the other.
    Implements,
    /// It can only be understood with the other.
    RequiresUnderstandingOf,
    /// The other was a reason for it.
    InformedBy,
    /// Both are often used together.
    OftenCombinedWith,
    /// A relation of the user's own.
    Other(String),
}

macro_rules! open_enum {
    ($name:ident { $($variant:ident = $text:literal),+ $(,)? }) => {
        impl $name {
            /// The values that nugget knows, in the order of display.
            pub const KNOWN: &[$name] = &[$($name::$variant),+];

            /// The name in front matter.
            pub fn as_str(&self) -> &str {
                match self {
                    $($name::$variant => $text,)+
                    $name::Other(text) => text,
                }
            }
        }

        impl FromStr for $name {
            type Err = std::convert::Infallible;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Ok(match text {
                    $($text => $name::$variant,)+
                    other => $name::Other(other.to_owned()),
                })
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text.parse() {
                    Ok(known) => known,
                    Err(never) => match never {},
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(Self::from(String::deserialize(deserializer)?.as_str()))
            }
        }
    };
}

open_enum!(UnitType {
    Pattern = "pattern",
    Concept = "concept",
    Decision = "decision",
    Bug = "bug",
    Belief = "belief",
    Constraint = "constraint",
    Caveat = "caveat",
    Tuning = "tuning",
    Rejection = "rejection",
    Workaround = "workaround",
    Intent = "intent",
    Dependency = "dependency",
    Note = "note",
    Fact = "fact",
});

open_enum!(Relation {
    Uses = "uses",
    Implements = "implements",
    RequiresUnderstandingOf = "requires_understanding_of",
    InformedBy = "informed_by",
    OftenCombinedWith = "often_combined_with",
});

impl UnitType {
    /// The types that are proposed as units from a session.
    pub const PROPOSED: [Self; 5] = [Self::Pattern, Self::Concept, Self::Decision, Self::Bug, Self::Belief];

    /// The types of records of code: what one asks of a file before changing it.
    pub const OF_CODE: [Self; 8] = [
        Self::Constraint,
        Self::Caveat,
        Self::Tuning,
        Self::Decision,
        Self::Rejection,
        Self::Workaround,
        Self::Intent,
        Self::Dependency,
    ];

    /// How much a unit of this type matters to someone who is about to change what it is about, from 0 to 1: first what
    /// must not be broken, then what was chosen and why, last what merely was.
    pub fn priority(&self) -> f64 {
        match self {
            Self::Constraint => 1.0,
            Self::Caveat => 0.9,
            Self::Bug => 0.85,
            Self::Tuning => 0.8,
            Self::Belief => 0.75,
            Self::Decision => 0.7,
            Self::Rejection => 0.6,
            Self::Pattern => 0.55,
            Self::Workaround => 0.5,
            Self::Intent | Self::Concept | Self::Note | Self::Fact | Self::Other(_) => 0.4,
            Self::Dependency => 0.3,
        }
    }

    /// The folder of this type below its domain: `patterns` for a pattern.
    pub fn folder(&self) -> String {
        let slug = crate::name::slug(self.as_str());
        match slug.as_str() {
            "" => "notes".to_owned(),
            "dependency" => "dependencies".to_owned(),
            _ if slug.ends_with('s') => slug,
            _ => format!("{slug}s"),
        }
    }
}

/// A relation from the unit that states it to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Related {
    /// The other unit.
    pub id: UnitId,
    /// How the stating unit relates to it.
    pub relation: Relation,
    /// Why, in a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
}

impl Related {
    /// A relation without a reason and a date.
    pub fn new(id: UnitId, relation: Relation) -> Self {
        Self { id, relation, reason: None, created: None }
    }
}

/// A place that a unit bears on: a file, a folder or a symbol of a repository, a command, or an error.
///
/// Where several parts are given, all must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Scope {
    /// The repository, as its remote is written without scheme and user: `github.com/acme/shop`. Without it any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// A file or a folder, relative to the repository with `/` between its parts; `.` is all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// A function, type or other name in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
    /// The digest of the file when the unit was learned, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// A program with its subcommand, and arguments that must be there: `cargo publish`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// A part of an error's message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What nugget does when an action that a unit bears on is about to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Enforce {
    /// The first such action of a session is refused with the unit's text.
    Hold,
}

/// A unit, read from its file. Missing keys have their defaults.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unit {
    /// Unique within the brain.
    pub id: UnitId,
    /// The type of knowledge.
    #[serde(rename = "type")]
    pub kind: UnitType,
    /// The field that it belongs to.
    pub domain: Domain,
    /// One line.
    pub title: String,
    /// One sentence for summaries.
    pub description: Option<String>,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// From 0 to 1. A unit without the key was written by a person and gets [`CONFIDENCE_DEFAULT`].
    pub confidence: f64,
    /// Where it comes from: `heuristic`, `claude`, `human` or a word of the user's own.
    pub source: String,
    /// The relations that it states.
    pub related: Vec<Related>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// When it was last changed.
    pub last_modified: Option<Timestamp>,
    /// `superseded` for a unit that was replaced; see [`is_retired`]. Of a file with `hidden: true` it is `archived`.
    pub status: Option<String>,
    /// How long it is likely to hold: `temporary` or `durable`, or a word of the user's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stability: Option<String>,
    /// What sort of note it is, such as `preference` or `project`: the key `kind`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// Where in which code it bears.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scope: Vec<Scope>,
    /// What was considered instead.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<String>,
    /// From when on it should no longer be relied on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_after: Option<Timestamp>,
    /// What nugget does when an action that it bears on is about to be taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enforce: Option<Enforce>,
    /// The markdown below the front matter, as it is in the file.
    pub body: String,
}

/// Whether a unit's status says that it no longer holds. Case and surrounding white space do not count.
pub fn is_retired(status: &str) -> bool {
    is_replaced(status) || is_hidden(status) || "rejected".eq_ignore_ascii_case(status.trim())
}

/// Whether a unit's status says that something else holds now, not that a person does not want it. What is learned
/// again of it is new.
pub fn is_replaced(status: &str) -> bool {
    const REPLACED: [&str; 3] = ["superseded", "deprecated", "obsolete"];
    REPLACED.iter().any(|replaced| replaced.eq_ignore_ascii_case(status.trim()))
}

/// Whether a unit's status says that no question finds it: its person has archived it.
pub fn is_hidden(status: &str) -> bool {
    "archived".eq_ignore_ascii_case(status.trim())
}

/// The status of a unit that no person has reviewed. No file says it: it is put in where a pending note is served.
pub const UNREVIEWED: &str = "unreviewed";

/// Whether a unit's status says that no person has reviewed it.
pub fn is_unreviewed(status: &str) -> bool {
    UNREVIEWED.eq_ignore_ascii_case(status.trim())
}

/// The confidence of a unit that states none.
pub const CONFIDENCE_DEFAULT: f64 = 0.8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_its_folder() {
        let folders: Vec<_> = UnitType::KNOWN.iter().map(UnitType::folder).collect();
        let expected = "patterns concepts decisions bugs beliefs constraints caveats tunings rejections workarounds \
                        intents dependencies notes facts";
        assert_eq!(folders.join(" "), expected);
        assert_eq!(UnitType::Other("../evil".into()).folder(), "evils");
    }

    #[test]
    fn an_unknown_type_is_kept() {
        assert_eq!(UnitType::from("recipe").as_str(), "recipe");
        assert_eq!(Relation::from("contradicts").as_str(), "contradicts");
    }
}
