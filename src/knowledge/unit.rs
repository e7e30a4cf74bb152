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
    /// A rule, a preference or a constraint that someone holds to be right.
    Belief,
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
});

open_enum!(Relation {
    Uses = "uses",
    Implements = "implements",
    RequiresUnderstandingOf = "requires_understanding_of",
    InformedBy = "informed_by",
    OftenCombinedWith = "often_combined_with",
});

impl UnitType {
    /// The folder of this type below its domain: `patterns` for a pattern.
    pub fn folder(&self) -> String {
        let slug = crate::name::slug(self.as_str());
        match slug.as_str() {
            "" => "notes".to_owned(),
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
    /// `superseded` for a unit that was replaced; see [`is_retired`].
    pub status: Option<String>,
    /// The markdown below the front matter, as it is in the file.
    pub body: String,
}

/// Whether a unit's status says that it no longer holds. Case and surrounding white space do not count.
pub fn is_retired(status: &str) -> bool {
    const RETIRED: [&str; 5] = ["superseded", "deprecated", "obsolete", "archived", "rejected"];
    RETIRED.iter().any(|retired| retired.eq_ignore_ascii_case(status.trim()))
}

/// The confidence of a unit that states none.
pub const CONFIDENCE_DEFAULT: f64 = 0.8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_its_folder() {
        let folders: Vec<_> = UnitType::KNOWN.iter().map(UnitType::folder).collect();
        assert_eq!(folders, ["patterns", "concepts", "decisions", "bugs", "beliefs"]);
        assert_eq!(UnitType::Other("../evil".into()).folder(), "evils");
    }

    #[test]
    fn an_unknown_type_is_kept() {
        assert_eq!(UnitType::from("recipe").as_str(), "recipe");
        assert_eq!(Relation::from("contradicts").as_str(), "contradicts");
    }
}
