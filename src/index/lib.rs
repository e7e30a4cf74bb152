//! The index of a brain: its chunks, their words, their vectors and their relations, for searching.
//!
//! It lies in the brain's derived folder and can be made anew from the files at any time; so
//! whatever is wrong with it, the remedy is to drop and remake it, and it does so by itself.
//! Readers see one whole generation and never wait for the one builder. It never calls a model:
//! texts that need a vector are handed out by [`Plan::texts`] and come back in [`Plan::publish`].

mod cache;
mod catalog;
pub mod chunk;
mod file_table;
mod filter;
mod hnsw;
mod status;

mod builder;
mod identifiers;
mod reviewers;
mod schema;
mod snapshot;
mod store;
mod vectors;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brain::Files;
use knowledge::CountTokens;
use serde::{Deserialize, Serialize};

pub use builder::{Mode, Plan, PrechunkedUnit, Progress, Report};
pub use cache::VectorCache;
pub use catalog::{Overview, UnitGlance};
pub use filter::Filter;
pub use hnsw::CHUNKS_MIN as GRAPH_FROM_CHUNKS;
pub use snapshot::{ChunkRecord, ChunkRow, Edge, Hit, Problem, Snapshot, UnitRecord, WithNeighbours};
pub use status::{Glance, glance};

use crate::snapshot::Vectored;
use crate::store::{BuilderLock, Limits, Store};

/// What vectors are labelled with: those of another model cannot be compared with these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelLabel {
    pub name: String,
    pub dimensions: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to {action} {path}")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("the index at {path} failed")]
    Sqlite { path: PathBuf, source: rusqlite::Error },
    #[error("no free connection to the index at {path}")]
    Pool { path: PathBuf, source: r2d2::Error },
    #[error("failed to list the brain")]
    Brain(#[source] brain::Error),
    /// A newer nugget has remade the index while this process ran; it would remake it back, and
    /// the two would go on for ever.
    #[error("the index at {path} was made by another version of nugget: restart this one")]
    OtherVersion { path: PathBuf },
    #[error("another process has been making the index at {path} for too long")]
    Locked { path: PathBuf },
    #[error("{given} vectors were given for {wanted} texts")]
    VectorCount { wanted: usize, given: usize },
    #[error("a vector has {given} dimensions instead of {wanted}")]
    Dimensions { wanted: usize, given: usize },
    #[error("a vector is zero or not finite")]
    NotAVector,
    #[error("the vector graph failed: {what}")]
    Graph { what: String },
    #[error("there is no chunk {row}")]
    NoSuchChunk { row: i64 },
}

/// The index of one brain. Cheap to clone; clones share connections and vectors.
#[derive(Clone)]
pub struct Index {
    store: Arc<Store>,
}

impl Index {
    /// Opens the index in `folder`, a brain's derived folder, and makes it when there is none. One
    /// of another schema version or a corrupt one is dropped and made anew, empty. While a builder
    /// holds the lock and has not made it, the index is open and empty.
    ///
    /// # Errors
    /// When the folder cannot be written to, or what is there cannot be read.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        Ok(Self { store: Arc::new(Store::open(folder, Limits::default())?) })
    }

    /// As [`Index::open`], with a vector graph from this many chunks on instead of
    /// [`GRAPH_FROM_CHUNKS`]: to measure the one against the other.
    ///
    /// # Errors
    /// Those of [`Index::open`].
    pub fn open_with_graph_from(folder: &Path, chunks: usize) -> Result<Self, Error> {
        let limits = Limits { graph: chunks, ..Limits::default() };
        Ok(Self { store: Arc::new(Store::open(folder, limits)?) })
    }

    /// Finds what has to change so that the index agrees with the brain's files, and holds the
    /// builder's lock from here until the plan is published or dropped. Waits for another builder.
    ///
    /// Files are compared by size and time, then by content; `tokens` counts as the model does.
    ///
    /// # Errors
    /// When the brain cannot be listed or the index not be read. A single bad file is no error: it
    /// becomes a [`Problem`].
    pub fn plan(
        &self,
        brain: &dyn Files,
        model: &ModelLabel,
        tokens: &dyn CountTokens,
        mode: Mode,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Plan, Error> {
        let lock = BuilderLock::wait(self.store.folder())?;
        Plan::make(self.store.clone(), lock, brain, model, tokens, mode, progress)
    }

    /// As [`Index::plan`], but `None` at once when another builder is at work.
    ///
    /// # Errors
    /// Those of [`Index::plan`].
    pub fn try_plan(
        &self,
        brain: &dyn Files,
        model: &ModelLabel,
        tokens: &dyn CountTokens,
        mode: Mode,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Option<Plan>, Error> {
        let Some(lock) = BuilderLock::try_take(self.store.folder())? else { return Ok(None) };
        Plan::make(self.store.clone(), lock, brain, model, tokens, mode, progress).map(Some)
    }

    /// A plan for a generation of the given units alone, each in the pieces that it comes with, whatever
    /// the index held before: how a set of passages that was cut elsewhere gets into an index of its own.
    ///
    /// # Errors
    /// When the index cannot be read. Of two units with one id publishing fails.
    pub fn plan_given(&self, units: Vec<PrechunkedUnit>, model: &ModelLabel) -> Result<Plan, Error> {
        let lock = BuilderLock::wait(self.store.folder())?;
        Plan::given(self.store.clone(), lock, units, model)
    }

    /// Whether a plan would be empty, found without parsing and without waiting for anyone. Only
    /// files that were written moments before they were indexed are read again, once.
    ///
    /// # Errors
    /// When the brain cannot be listed or the index not be read.
    pub fn is_current(&self, brain: &dyn Files, model: &ModelLabel) -> Result<bool, Error> {
        file_table::is_current(&self.store, brain, model)
    }

    /// The commit up to which [`Index::note_reviewers`] was told who has reviewed what.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn reviewed(&self) -> Result<Option<String>, Error> {
        reviewers::commit(&self.store)
    }

    /// Notes up to a commit who has reviewed which path (`None`: nobody who is known), and forgets all that was
    /// noted before when `is_whole`. `false`, and nothing is noted, while a builder is at work.
    ///
    /// # Errors
    /// When the index cannot be written.
    pub fn note_reviewers<'p>(
        &self,
        commit: &str,
        is_whole: bool,
        by_path: impl IntoIterator<Item = (&'p str, Option<&'p str>)>,
    ) -> Result<bool, Error> {
        reviewers::note(&self.store, commit, is_whole, by_path)
    }

    /// Pins the newest generation: what it answers is of that one, however many are published
    /// meanwhile. Never waits for a builder. Keep it for one question, not for longer: while it
    /// lives, the database's log grows.
    ///
    /// # Errors
    /// When the index cannot be read; a damaged one is marked, and the next plan remakes it.
    pub fn pin(&self) -> Result<Snapshot, Error> {
        Snapshot::new(self.store.clone(), Vectored::Yes)
    }

    /// As [`Index::pin`], for a search by words alone: the vectors are not read, which takes longer than
    /// everything else, and nothing is near to anything.
    ///
    /// # Errors
    /// Those of [`Index::pin`].
    pub fn pin_words(&self) -> Result<Snapshot, Error> {
        Snapshot::new(self.store.clone(), Vectored::No)
    }
}

#[cfg(test)]
mod tests;
