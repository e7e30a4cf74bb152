//! The searchable index of a brain: its chunks, their words and vectors, and the units' relations.
//!
//! The index is in the brain's derived folder and can be rebuilt from the files at any time; a damaged one is dropped
//! and rebuilt automatically. Readers see one whole generation and never wait for the one builder. This crate never
//! calls a model: [`Plan::texts`] returns the texts to embed, and [`Plan::publish`] takes their vectors.
//!
//! ```
//! use index::{Index, Mode, ModelLabel};
//!
//! struct Words;
//! impl knowledge::CountTokens for Words {
//!     fn count(&self, text: &str) -> usize {
//!         text.split_whitespace().count()
//!     }
//! }
//!
//! let folder = tempfile::tempdir()?;
//! let brain = brain::Brain::init(folder.path())?.brain;
//! std::fs::write(folder.path().join("pools.md"), "# Worker pools\n\nBound them.\n")?;
//! let index = Index::open(&brain.derived_folder())?;
//! let model = ModelLabel { name: "example/1".into(), dimensions: 2 };
//! let plan = index.plan(&brain, &model, &Words, Mode::Changed, &mut |_| {})?;
//! let vectors = plan.texts().iter().map(|_| vec![0.6, 0.8].into()).collect();
//! plan.publish(vectors)?;
//! let hits = index.pin()?.bm25(&["pools".to_owned()], 5)?;
//! assert_eq!(hits.len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(missing_docs, clippy::missing_errors_doc)]

mod builder;
mod cache;
mod catalog;
pub mod chunk;
mod error;
mod file_table;
mod filter;
pub mod full_text;
mod generation;
mod hnsw;
mod reader;
mod records;
mod reviewers;
mod schema;
mod snapshot;
mod status;
mod store;
mod token_vectors;
mod triggers;
mod vectors;

use std::path::Path;
use std::sync::Arc;

use brain::Files;
use knowledge::CountTokens;

pub use builder::{Mode, Plan, PrechunkedUnit, Report};
pub use cache::VectorCache;
pub use catalog::{Catalog, UnitSummary};
pub use error::Error;
pub use file_table::{Comparison, Progress, Seen, id_is_taken};
pub use filter::Filter;
pub use generation::ModelLabel;
pub use hnsw::CHUNKS_MIN as GRAPH_FROM_CHUNKS;
pub use reader::Reader;
pub use records::{ChunkRecord, ChunkRow, Edge, Hit, Problem, UnitRecord, WithNeighbours, best_hits};
pub use snapshot::Snapshot;
pub use status::{IndexStatus, read_status};
pub use triggers::FoundTrigger;

use crate::snapshot::Vectored;
use crate::store::{BuilderLock, Limits, Store};

/// The index of one brain. Cheap to clone; clones share connections and vectors.
#[derive(Clone)]
pub struct Index {
    store: Arc<Store>,
}

impl Index {
    /// Opens the index in `folder`, a brain's derived folder, and creates it if there is none.
    ///
    /// An index of another schema version or a corrupt one is dropped and created again, empty. While another builder
    /// creates it, the index is empty.
    ///
    /// # Errors
    /// If the folder cannot be written, or the index cannot be read.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        Ok(Self { store: Arc::new(Store::open(folder, Limits::default())?) })
    }

    /// As [`Index::open`], with a vector graph from this many chunks on instead of [`GRAPH_FROM_CHUNKS`]. For
    /// measurements.
    ///
    /// # Errors
    /// Those of [`Index::open`].
    pub fn open_with_graph_from(folder: &Path, chunks: usize) -> Result<Self, Error> {
        let limits = Limits { graph: chunks, ..Limits::default() };
        Ok(Self { store: Arc::new(Store::open(folder, limits)?) })
    }

    /// Finds what has to change so that the index agrees with the brain's files.
    ///
    /// Waits for another builder, and holds the builder's lock until the plan is published or dropped. Files are
    /// compared by size and time, then by content; `tokens` counts as the model does.
    ///
    /// # Errors
    /// If the brain cannot be listed or the index cannot be read. A bad file is not an error: it becomes a
    /// [`Problem`].
    pub fn plan(
        &self,
        brain: &dyn Files,
        model: &ModelLabel,
        tokens: &dyn CountTokens,
        mode: Mode,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Plan, Error> {
        store::retry_while_replaced(self.store.folder(), || {
            let lock = BuilderLock::wait(self.store.folder())?;
            Plan::from_files(self.store.clone(), lock, (brain, None), model, tokens, mode, progress)
        })
    }

    /// As [`Index::plan`], but returns `None` at once if another builder works. The brain is opened once no other builder
    /// can work: a view from before that may be older than what another one has published meanwhile. If none has, the one
    /// that was compared is used, with what was `seen` of it.
    ///
    /// # Errors
    /// Those of [`Index::plan`].
    pub fn try_plan<F: Files>(
        &self,
        seen: Option<(F, Seen)>,
        open: impl FnOnce() -> F,
        model: &ModelLabel,
        tokens: &dyn CountTokens,
        mode: Mode,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Option<Plan>, Error> {
        let Some(lock) = BuilderLock::try_take(self.store.folder())? else { return Ok(None) };
        let (brain, seen) = match seen.filter(|(_, seen)| seen.is_of(&self.store)) {
            Some((brain, seen)) => (brain, Some(seen)),
            None => (open(), None),
        };
        Plan::from_files(self.store.clone(), lock, (&brain, seen), model, tokens, mode, progress).map(Some)
    }

    /// Plans a generation of exactly the given units, in the given pieces, for a set of passages that was cut
    /// elsewhere.
    ///
    /// # Errors
    /// If the index cannot be read. Publishing fails if two units have one id.
    pub fn plan_prechunked(&self, units: Vec<PrechunkedUnit>, model: &ModelLabel) -> Result<Plan, Error> {
        let lock = BuilderLock::wait(self.store.folder())?;
        Plan::from_prechunked(self.store.clone(), lock, units, model)
    }

    /// Whether a plan would be empty. Parses nothing and waits for no builder; only files that were written moments
    /// before they were indexed are read again, once.
    ///
    /// # Errors
    /// If the brain cannot be listed or the index cannot be read.
    pub fn compare(&self, brain: &dyn Files, model: &ModelLabel) -> Result<Comparison, Error> {
        file_table::compare(&self.store, brain, model)
    }

    /// Whether [`compare`](Self::compare) finds no change.
    ///
    /// # Errors
    /// Those of [`compare`](Self::compare).
    pub fn is_current(&self, brain: &dyn Files, model: &ModelLabel) -> Result<bool, Error> {
        Ok(matches!(self.compare(brain, model)?, Comparison::Current))
    }

    /// The last commit that was passed to [`Index::note_reviewers`].
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn reviewed(&self) -> Result<Option<String>, Error> {
        reviewers::commit(&self.store)
    }

    /// Stores who reviewed each path up to a commit (`None`: no known person). With `is_whole`, it replaces everything
    /// stored before. Returns `false`, and stores nothing, while a builder works.
    ///
    /// # Errors
    /// If the index cannot be written.
    pub fn note_reviewers<'p>(
        &self,
        commit: &str,
        is_whole: bool,
        by_path: impl IntoIterator<Item = (&'p str, Option<&'p str>)>,
    ) -> Result<bool, Error> {
        reviewers::note(&self.store, commit, is_whole, by_path)
    }

    /// Pins the newest generation: the snapshot reads this generation, even if others are published meanwhile.
    ///
    /// Never waits for a builder. Keep a snapshot for one question only: while it exists, the database's log grows.
    ///
    /// # Errors
    /// If the index cannot be read. A damaged one is marked, and the next plan rebuilds it.
    pub fn pin(&self) -> Result<Snapshot, Error> {
        Snapshot::new(self.store.clone(), Vectored::Yes)
    }

    /// As [`Index::pin`], for reading and searching by words: the vectors, which take the longest, are not read, and a search by
    /// meaning finds nothing.
    ///
    /// # Errors
    /// Those of [`Index::pin`].
    pub fn pin_without_vectors(&self) -> Result<Snapshot, Error> {
        Snapshot::new(self.store.clone(), Vectored::No)
    }
}

#[cfg(test)]
mod tests;
