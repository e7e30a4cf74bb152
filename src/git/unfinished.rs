//! Operations of git's that a person has begun and not finished.

use std::collections::BTreeSet;
use std::fmt;

use gix::index::entry::Stage;

use crate::error::{During as _, Error};
use crate::fast_forward::operation;
use crate::repository::Repository;

/// A merge, rebase or the like that waits for the person. Until then git refuses to pull and to commit anything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// What it is, such as `merge`.
    pub operation: &'static str,
    /// How many files are in conflict.
    pub conflicts: usize,
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {} is in progress: ", self.operation)?;
        match self.conflicts {
            0 => {}
            1 => f.write_str("resolve 1 file, then ")?,
            conflicts => write!(f, "resolve {conflicts} files, then ")?,
        }
        f.write_str(if self.is_merge() { "commit" } else { "continue it" })
    }
}

impl Unfinished {
    /// Whether it is a merge, which a commit completes.
    pub fn is_merge(&self) -> bool {
        self.operation == "merge"
    }
}

impl Repository {
    /// Whether git waits for the person to resolve a conflict in a file of the work tree, of a merge or the like. Only reads.
    ///
    /// # Errors
    /// When the repository or its index cannot be read.
    pub fn is_in_conflict(&self, path: &str) -> Result<bool, Error> {
        let git = self.git()?;
        let index = git.index_or_empty().during(|| "read the index".to_owned())?;
        let mut entries = index.entries().iter().filter(|entry| entry.stage() != Stage::Unconflicted);
        Ok(entries.any(|entry| entry.path(&index) == path.as_bytes()))
    }

    /// The operation of git's that is in progress in the work tree, if one is. A bisection is left out, as it changes no
    /// branch. Only reads.
    ///
    /// # Errors
    /// When the repository or its index cannot be read.
    pub fn unfinished(&self) -> Result<Option<Unfinished>, Error> {
        let git = self.git()?;
        let Some(state) = git.state().filter(|state| !matches!(state, gix::state::InProgress::Bisect)) else {
            return Ok(None);
        };
        let index = git.index_or_empty().during(|| "read the index".to_owned())?;
        let entries = index.entries().iter().filter(|entry| entry.stage() != Stage::Unconflicted);
        let paths: BTreeSet<&[u8]> = entries.map(|entry| entry.path(&index).as_ref()).collect();
        Ok(Some(Unfinished { operation: operation(&state), conflicts: paths.len() }))
    }
}
