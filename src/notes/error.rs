//! Why a note cannot be written.

use knowledge::{FrontMatterError, UnitId};

/// Why a note cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No unit has this id or title.
    #[error("no note has the id or the title {name:?}")]
    Missing {
        /// What was asked for.
        name: String,
    },
    /// It is only the beginning of an id.
    #[error("{name:?} is only the beginning of an id: {id}")]
    NotWhole {
        /// What was asked for.
        name: String,
        /// The id.
        id: UnitId,
    },
    /// No fact has this key.
    #[error("no fact has the key {key:?}")]
    NoFact {
        /// What was asked for.
        key: String,
    },
    /// Several units could be meant.
    #[error("several notes are called {name:?}: {}", ids.join(", "))]
    Ambiguous {
        /// What was asked for.
        name: String,
        /// The ids of some of them.
        ids: Vec<String>,
    },
    /// Several files have the id of what is to be changed.
    #[error("several files have the id {id}: {}", paths.join(", "))]
    SameId {
        /// The id.
        id: UnitId,
        /// Some of the files.
        paths: Vec<String>,
    },
    /// Nothing that a tag consists of is in it.
    #[error("a tag has no letter and no digit: {tag:?}")]
    NoTag {
        /// The tag.
        tag: String,
    },
    /// A note cannot be linked to itself.
    #[error("{id} cannot be linked to itself")]
    SelfLink {
        /// The note.
        id: UnitId,
    },
    /// A text is empty.
    #[error("the {what} is empty")]
    Empty {
        /// Which text.
        what: &'static str,
    },
    /// A text is too long, or there are too many of something.
    #[error("the {what} exceeds its limit of {limit}")]
    TooMuch {
        /// Of what.
        what: &'static str,
        /// How much is allowed, with its unit.
        limit: String,
    },
    /// Marks of a conflict in git are text only in a fenced block: elsewhere a merge has left them, and no index takes the
    /// file.
    #[error(
        "line {line} of the content looks like a conflict that git has left: put such lines into a fenced block of code"
    )]
    ConflictMark {
        /// The line, from 1.
        line: usize,
    },
    /// The file would be no unit.
    #[error("the note would be no valid unit: {0}")]
    Invalid(FrontMatterError),
    /// Somebody else has changed the note since it was read.
    #[error("{id} was changed meanwhile")]
    Changed {
        /// The note.
        id: UnitId,
    },
    /// A text to replace is not in the note, or more than once.
    #[error(
        "the text to replace {} in {id}: {}",
        if *count == 0 { "is not".to_owned() } else { format!("is {count} times") },
        if *count == 0 { "copy it as the note has it now" } else { "take along what stands around it" }
    )]
    NotOnce {
        /// The note.
        id: UnitId,
        /// How many times it is there.
        count: usize,
    },
    /// It lies outside of the units' folder, where no command for notes writes.
    #[error("{id} is outside of domains/, where no note is changed: {path} is a file to edit by hand")]
    Outside {
        /// The unit.
        id: UnitId,
        /// Its file.
        path: String,
    },
    /// The unit is neither a note nor a fact.
    #[error("{id} is no note but a {kind}")]
    NotANote {
        /// The unit.
        id: UnitId,
        /// Its type.
        kind: String,
    },
}
