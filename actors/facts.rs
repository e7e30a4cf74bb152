//! Recalls facts by their keys, from what is reviewed and from what agents on this machine have written.

use std::sync::{Arc, Mutex, PoisonError};

use brain::{BrainFile, Files as _};
use holographic::{FactLayout, FactStore};
use knowledge::name::split_owners;
use knowledge::unit::{is_retired, is_unreviewed};
use knowledge::{Document, UnitId, UnitType};
use transcript::redact::redact;

use crate::brain_view::BrainView;
use crate::notes::NoteError;
use crate::setup::Setup;

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
    read: Mutex<Option<Arc<ReadFacts>>>,
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
        let mut files = view.files()?;
        let folder = format!("/{}/", UnitType::Fact.folder());
        files.retain(|file| file.path.contains(&folder));
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let facts = match read.clone().filter(|read| read.files == files) {
            Some(present) => present,
            None => Arc::clone(read.insert(Arc::new(ReadFacts::read(&view, files)))),
        };
        drop(read);
        let recalled = facts.store.recall(question);
        let is_it = |fact: &&Fact| recalled.as_ref().is_some_and(|recalled| fact.key == recalled.key);
        Ok(facts.facts.iter().find(is_it).cloned())
    }
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
        let (units, _) = split_owners(units, |(path, unit)| (unit.id.as_str(), path));
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
