//! A unit of knowledge as the rest of nugget sees it: one markdown file, read.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::name::{Domain, UnitId};

/// What kind of knowledge a unit holds. A brain may use kinds of its own; they survive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UnitType {
    /// A way of doing that works again and again.
    Pattern,
    /// What something is or how it behaves.
    Concept,
    /// What was chosen, over what, and why.
    Decision,
    /// What went wrong, its cause and its mend.
    Bug,
    /// What somebody holds to be right: a rule, a preference, a constraint.
    Belief,
    Other(String),
}

/// How one unit bears on another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Relation {
    Uses,
    Implements,
    RequiresUnderstandingOf,
    InformedBy,
    OftenCombinedWith,
    Other(String),
}

macro_rules! open_enum {
    ($name:ident { $($variant:ident = $text:literal),+ $(,)? }) => {
        impl $name {
            /// The kinds that nugget knows, in the order in which people read them.
            pub const KNOWN: &[$name] = &[$($name::$variant),+];

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
    /// The folder of this kind below its domain: `patterns` for a pattern.
    pub fn folder(&self) -> String {
        let slug = crate::name::slug(self.as_str());
        match slug.as_str() {
            "" => "notes".to_owned(),
            _ if slug.ends_with('s') => slug,
            _ => format!("{slug}s"),
        }
    }
}

/// A relation from the unit that holds it to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Related {
    pub id: UnitId,
    pub relation: Relation,
}

/// A unit, read from its file. What it leaves out has been given its default.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unit {
    pub id: UnitId,
    #[serde(rename = "type")]
    pub kind: UnitType,
    pub domain: Domain,
    pub title: String,
    pub description: Option<String>,
    pub tags: Vec<String>,
    /// From 0 to 1. A unit that does not say has been written by a person: 0.8.
    pub confidence: f64,
    /// Where it comes from: `heuristic`, `claude`, `human` or a word of the user's.
    pub source: String,
    pub related: Vec<Related>,
    pub created: Option<Timestamp>,
    pub last_modified: Option<Timestamp>,
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
    fn every_kind_has_its_folder() {
        let folders: Vec<_> = UnitType::KNOWN.iter().map(UnitType::folder).collect();
        assert_eq!(folders, ["patterns", "concepts", "decisions", "bugs", "beliefs"]);
        assert_eq!(UnitType::Other("../evil".into()).folder(), "evils");
    }

    #[test]
    fn an_unknown_kind_survives() {
        assert_eq!(UnitType::from("recipe").as_str(), "recipe");
        assert_eq!(Relation::from("contradicts").as_str(), "contradicts");
    }
}
