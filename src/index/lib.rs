//! The index of a brain: its chunks, their words, their vectors and their relations, for searching.
//!
//! It lies in the brain's derived folder and can be made anew from the files at any time; so
//! whatever is wrong with it, the remedy is to drop and remake it, and it does so by itself.
//! Readers see one whole generation and never wait for the one builder. It never calls a model:
//! texts that need a vector are handed out by [`Plan::texts`] and come back in [`Plan::publish`].

mod builder;
mod cache;
mod catalog;
pub mod chunk;
mod error;
mod file_table;
mod filter;
mod generation;
mod hnsw;
mod identifiers;
mod records;
mod reviewers;
mod schema;
mod snapshot;
mod status;
mod store;
mod vector_file;
mod vectors;

use std::path::Path;
use std::sync::Arc;

use brain::Files;
use knowledge::CountTokens;

pub use builder::{Mode, Plan, PrechunkedUnit, Report};
pub use cache::VectorCache;
pub use catalog::{Catalog, UnitSummary};
pub use error::Error;
pub use file_table::Progress;
pub use filter::Filter;
pub use generation::ModelLabel;
pub use hnsw::CHUNKS_MIN as GRAPH_FROM_CHUNKS;
pub use records::{ChunkRecord, ChunkRow, Edge, Hit, Problem, UnitRecord, WithNeighbours};
pub use snapshot::Snapshot;
pub use status::{IndexStatus, read_status};

use crate::snapshot::Vectored;
use crate::store::{BuilderLock, Limits, Store};

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
        Plan::from_files(self.store.clone(), lock, brain, model, tokens, mode, progress)
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
        Plan::from_files(self.store.clone(), lock, brain, model, tokens, mode, progress).map(Some)
    }

    /// A plan for a generation of the given units alone, each in the pieces that it comes with, whatever
    /// the index held before: how a set of passages that was cut elsewhere gets into an index of its own.
    ///
    /// # Errors
    /// When the index cannot be read. Of two units with one id publishing fails.
    pub fn plan_prechunked(&self, units: Vec<PrechunkedUnit>, model: &ModelLabel) -> Result<Plan, Error> {
        let lock = BuilderLock::wait(self.store.folder())?;
        Plan::from_prechunked(self.store.clone(), lock, units, model)
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
    pub fn pin_without_vectors(&self) -> Result<Snapshot, Error> {
        Snapshot::new(self.store.clone(), Vectored::No)
    }
}

#[cfg(test)]
mod tests;
