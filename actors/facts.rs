//! Recalls facts by their keys, from what is reviewed and from what agents on this machine have written.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use brain::{BrainFile, Files as _};
use holographic::{FactLayout, FactStore};
use index::Catalog;
use knowledge::name::split_owners;
use knowledge::unit::{is_retired, is_unreviewed};
use knowledge::{Document, UnitId, UnitType};
use transcript::redact::redact;

use crate::brain_view::BrainView;
use crate::failure::error_chain;
use crate::notes::NoteError;
use crate::setup::Setup;

/// How many files that the index does not have yet are read to find facts outside of the folders for facts.
const UNINDEXED_MAX: usize = 1_000;

/// A fact that is recalled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The unit.
    pub id: UnitId,
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// Whether it was written by an agent and waits for its review.
    pub is_unreviewed: bool,
}

/// The facts of a brain, recalled by their keys. Read again when one of their files has changed.
#[derive(Default)]
pub struct Facts {
    /// The brain's files when they were read, and what was read.
    read: Mutex<Option<(Vec<BrainFile>, Arc<ReadFacts>)>>,
}

struct ReadFacts {
    files: Vec<BrainFile>,
    facts: Vec<Fact>,
    store: FactStore,
}

impl Facts {
    /// The fact that a key or a question means; `None` if no key is like it.
    ///
    /// # Errors
    /// When the brain cannot be read.
    pub fn recall(&self, setup: &Setup, question: &str) -> Result<Option<Fact>, NoteError> {
        let (branch, queue) = (setup.default_branch.as_deref(), setup.places.queue());
        let view = BrainView::with_pending_notes(&setup.brain, branch, &queue);
        let all = view.files()?;
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let facts = match read.take() {
            Some((known, facts)) if known == all => facts,
            known => {
                let files = fact_files(setup, &view, &all);
                let known = known.map(|(_, facts)| facts).filter(|facts| facts.files == files);
                known.unwrap_or_else(|| Arc::new(ReadFacts::read(&view, files)))
            }
        };
        *read = Some((all, Arc::clone(&facts)));
        drop(read);
        let recalled = facts.store.recall(question);
        let is_it = |fact: &&Fact| recalled.as_ref().is_some_and(|recalled| fact.key == recalled.key);
        Ok(facts.facts.iter().find(is_it).cloned())
    }
}

/// The files that may be facts: those in a folder for facts, and those that are facts in the index or since.
fn fact_files(setup: &Setup, view: &BrainView, all: &[BrainFile]) -> Vec<BrainFile> {
    let mut elsewhere = HashSet::new();
    let catalog = Catalog::open_with_changes(&setup.brain.derived_folder(), view, UNINDEXED_MAX);
    let read = catalog.and_then(|catalog| {
        catalog.for_each_unit(|unit| {
            if unit.kind == UnitType::Fact.as_str() {
                elsewhere.insert(unit.path.to_owned());
            }
        })
    });
    if let Err(error) = read {
        tracing::warn!(
            error = error_chain(&error),
            "facts outside of the folders for facts are not recalled"
        );
    }
    let folder = format!("/{}/", UnitType::Fact.folder());
    let is_fact = |file: &&BrainFile| file.path.contains(&folder) || elsewhere.contains(&file.path);
    all.iter().filter(is_fact).cloned().collect()
}

impl ReadFacts {
    fn read(view: &BrainView, files: Vec<BrainFile>) -> Self {
        let mut units = Vec::new();
        for file in &files {
            // What cannot be read is no unit.
            let Ok(text) = view.read(&file.path) else { continue };
            let unit = Document::parse(text).and_then(|document| document.unit(&file.path));
            units.extend(unit.ok().map(|unit| (file.path.clone(), unit)));
        }
        let is_pending = |path: &str| view.is_pending(path);
        let (units, _) = split_owners(units, |(path, unit)| (unit.id.as_str(), path), is_pending);
        let layout = FactLayout::default();
        let facts_max = layout.facts_max.max(units.len());
        let (mut facts, mut store) = (Vec::new(), FactStore::with_layout(FactLayout { facts_max, ..layout }));
        for (_, unit) in units {
            let status = unit.status.as_deref().unwrap_or_default();
            if unit.kind != UnitType::Fact || is_retired(status) {
                continue;
            }
            store.remember(&unit.title, notes::content(&unit));
            facts.push(Fact {
                value: redact(notes::content(&unit)).into_owned(),
                is_unreviewed: is_unreviewed(status),
                key: unit.title,
                id: unit.id,
            });
        }
        Self { files, facts, store }
    }
}
