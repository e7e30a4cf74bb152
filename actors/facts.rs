//! Recalls facts by their keys, from what is reviewed and from what agents on this machine have written.

use std::sync::{Arc, Mutex, PoisonError};

use brain::Files as _;
use holographic::FactStore;
use knowledge::name::split_owners;
use knowledge::unit::{is_retired, is_unreviewed};
use knowledge::{Document, UnitId, UnitType};
use transcript::redact::redact;

use crate::brain_view::{BrainView, merged_commits};
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

/// The facts of a brain, recalled by their keys. Read again when what is merged or pending has changed.
#[derive(Default)]
pub struct Facts {
    read: Mutex<Option<Arc<ReadFacts>>>,
}

struct ReadFacts {
    state: Option<String>,
    facts: Vec<Fact>,
    store: FactStore,
}

impl Facts {
    /// The fact that a key or a question means; `None` if no key is like it.
    ///
    /// # Errors
    /// When the brain cannot be read.
    pub fn recall(&self, setup: &Setup, question: &str) -> Result<Option<Fact>, NoteError> {
        let state = merged_commits(&setup.brain, setup.default_branch.as_deref());
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let present = read.clone().filter(|read| state.is_some() && read.state == state);
        let facts = match present {
            Some(present) => present,
            None => Arc::clone(read.insert(Arc::new(ReadFacts::read(setup, state)?))),
        };
        drop(read);
        let recalled = facts.store.recall(question);
        let is_it = |fact: &&Fact| recalled.as_ref().is_some_and(|recalled| fact.key == recalled.key);
        Ok(facts.facts.iter().find(is_it).cloned())
    }
}

impl ReadFacts {
    fn read(setup: &Setup, state: Option<String>) -> Result<Self, NoteError> {
        let (branch, queue) = (setup.default_branch.as_deref(), setup.places.queue());
        let view = BrainView::with_pending_notes(&setup.brain, branch, &queue);
        let folder = format!("/{}/", UnitType::Fact.folder());
        let (mut facts, mut store) = (Vec::new(), FactStore::new());
        let mut units = Vec::new();
        for file in view.files()?.into_iter().filter(|file| file.path.contains(&folder)) {
            // What cannot be read is no unit.
            let Ok(text) = view.read(&file.path) else { continue };
            let unit = Document::parse(text).and_then(|document| document.unit(&file.path));
            units.extend(unit.ok().map(|unit| (file.path, unit)));
        }
        let (units, _) = split_owners(units, |(path, unit)| (unit.id.as_str(), path));
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
        Ok(Self { state, facts, store })
    }
}
