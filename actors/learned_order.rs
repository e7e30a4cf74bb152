//! What answers know of learning: the weights of the project, the draw, the hold-out, and the record of what was shown.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use archive::{Archive, Project, SHARED_SCOPE};
use feedback::{Weights, receipts};
use jiff::Timestamp;
use queue::{Question, QuestionCandidate, Queue, Showing, Shown, ShownKind};
use retrieve::{Answer, Exploration, LearningData};

use crate::failure::error_chain;
use crate::learning::Settings;

/// The learned order of one project, and the record of what is shown.
pub(crate) struct LearnedOrder {
    settings: Settings,
    /// The project's key.
    project: Option<String>,
    archive: Mutex<Option<Archive>>,
    queue: OnceLock<Queue>,
    live: Mutex<Option<Live>>,
}

/// The weights that were read last.
struct Live {
    scope: String,
    version: i64,
    /// `None` if they cannot be used, which is logged once.
    weights: Option<Arc<Weights>>,
}

/// An answer as it is recorded.
pub(crate) struct ShownAnswer {
    tool_use: Option<String>,
    at: Timestamp,
    items: Vec<Shown>,
    question: Option<Question>,
}

impl ShownAnswer {
    /// `None` for an answer that nothing can be learned from.
    pub(crate) fn from_answer(answer: &Answer, tool_use: Option<String>) -> Option<Self> {
        let data = answer.learning.as_ref()?;
        let propensity = |id: &knowledge::UnitId| {
            let drawn = data.candidates.iter().find(|candidate| candidate.id == *id);
            drawn.filter(|_| data.is_drawn).map_or(1.0, |candidate| candidate.propensity)
        };
        let is_memory =
            |id: &knowledge::UnitId| answer.units.iter().any(|unit| unit.id == *id && unit.is_memory());
        let shown = answer.shown().map(|(id, tokens)| {
            (if is_memory(id) { ShownKind::Memory } else { ShownKind::Unit }, id, tokens, false)
        });
        let withheld = data.withheld.iter().map(|(id, _, tokens)| (ShownKind::Unit, id, *tokens, true));
        let items: Vec<Shown> = shown
            .chain(withheld)
            .enumerate()
            .map(|(rank, (kind, id, tokens, is_withheld))| Shown {
                kind,
                id: id.as_str().to_owned(),
                rank,
                propensity: propensity(id),
                tokens,
                is_withheld,
            })
            .collect();
        let candidates = data.candidates.iter().map(|candidate| QuestionCandidate {
            id: candidate.id.as_str().to_owned(),
            score: candidate.score,
            vector: candidate.vector.clone(),
        });
        let question = Question {
            model: data.model.clone(),
            vector: data.vector.clone(),
            candidates: candidates.collect(),
        };
        let question = Some(question).filter(|question| !question.vector.is_empty());
        (!items.is_empty()).then(|| Self { tool_use, at: Timestamp::now(), items, question })
    }
}

impl ShownAnswer {
    /// Units with about how many tokens each takes, in the order shown.
    pub(crate) fn of_units(units: Vec<(String, usize)>, tool_use: Option<String>) -> Self {
        let units = units.into_iter().enumerate();
        let items = units.map(|(rank, (id, tokens))| Shown::unit(&id, rank, tokens, false)).collect();
        Self { tool_use, at: Timestamp::now(), items, question: None }
    }
}

impl LearnedOrder {
    /// For questions about the code in a folder.
    pub(crate) fn new(settings: Settings, workspace: Option<&Path>) -> Self {
        let project = workspace.map(|folder| Project::from_folder(folder).key);
        Self { settings, project, archive: Mutex::default(), queue: OnceLock::new(), live: Mutex::default() }
    }

    /// What learning does with the next answer. Reads the archive, for a millisecond; whatever is wrong with it, the base
    /// order stays.
    pub(crate) fn for_question(
        &self,
        model: &str,
        dimensions: usize,
        is_recorded: bool,
    ) -> retrieve::Learning {
        let weights = self.weights(model, dimensions).unwrap_or_else(|error| {
            tracing::debug!(error = error_chain(&error), "the learned order cannot be read");
            None
        });
        let exploration = (self.settings.explores && is_recorded).then(|| Exploration {
            shown_max: self.settings.shown_max,
            temperature: self.settings.temperature,
            seed: fastrand::u64(..),
        });
        retrieve::Learning { weights, candidates_max: self.settings.candidates_max, exploration }
    }

    fn weights(&self, model: &str, dimensions: usize) -> Result<Option<Arc<Weights>>, archive::Error> {
        let Some(archive) = self.open_archive()? else { return Ok(None) };
        let shared = self.settings.is_shared.then_some(SHARED_SCOPE);
        for scope in self.project.as_deref().into_iter().chain(shared) {
            let Some(version) = archive.live_version(&self.settings.brain, scope)? else { continue };
            let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
            let is_read = live.as_ref().is_some_and(|live| live.scope == scope && live.version == version);
            if !is_read {
                let Some(learned) = archive.learned(&self.settings.brain, scope)? else { continue };
                let weights = Weights::from_bytes(&learned.body, &learned.model, learned.dimensions);
                let weights =
                    weights.inspect_err(|error| tracing::info!(%error, scope, "the base order stays")).ok();
                let version = learned.version;
                *live = Some(Live { scope: scope.to_owned(), version, weights: weights.map(Arc::new) });
            }
            let weights = live.as_ref().and_then(|live| live.weights.clone());
            // Of another model are those of an index that is being rebuilt.
            let fits =
                |weights: &Arc<Weights>| weights.model() == model && weights.dimensions() == dimensions;
            return Ok(weights.filter(fits));
        }
        Ok(None)
    }

    fn open_archive(&self) -> Result<Option<Archive>, archive::Error> {
        let mut archive = self.archive.lock().unwrap_or_else(PoisonError::into_inner);
        if archive.is_none() {
            *archive = Archive::open_existing(&self.settings.archive)?;
        }
        Ok(archive.clone())
    }

    /// Takes units out of an answer that are withheld from this session.
    pub(crate) fn withhold(&self, answer: &mut Answer) {
        let (Some(session), true) = (&self.settings.session, self.settings.holdout > 0.0) else { return };
        let is_withheld =
            |id: &knowledge::UnitId| receipts::is_withheld(session, id.as_str(), self.settings.holdout);
        let mut withheld = Vec::new();
        let mut rank = 0;
        answer.units.retain(|unit| {
            rank += 1;
            if unit.is_memory() || !is_withheld(&unit.id) {
                return true;
            }
            let tokens = unit.passages.iter().map(|passage| passage.tokens).sum();
            withheld.push((unit.id.clone(), rank - 1, tokens));
            false
        });
        // Those that the text names, and those that it only counts.
        let named = answer.more.iter().take(answer.more_named).filter(|(id, _)| is_withheld(id)).count();
        answer.more_named -= named;
        answer.more.retain(|(id, _)| !is_withheld(id));
        let about_files = answer.about_files.extract_if(.., |unit| is_withheld(&unit.id));
        withheld.extend(about_files.map(|unit| (unit.id, 0, unit.detail.len() / 4)));
        // Others say that they are related to it.
        for unit in &mut answer.units {
            if withheld.iter().any(|(id, ..)| unit.why.contains(id.as_str())) {
                unit.why = "related".to_owned();
            }
        }
        answer.learning.get_or_insert_with(LearningData::default).withheld = withheld;
    }

    /// Writes into the queue; a failure is one line in the log.
    pub(crate) fn record(&self, shown: ShownAnswer) {
        let ShownAnswer { tool_use, at, items, question } = shown;
        if self.settings.session.is_none() && tool_use.is_none() {
            // Asked by a person: there is no session that could use it.
            return;
        }
        let question = question.map(|question| question.to_bytes());
        let showing = Showing::by_tool(self.settings.session.clone(), tool_use, at, items, question);
        let recorded = match self.queue.get() {
            Some(queue) => queue.record_shown(&showing),
            None => Queue::open(&self.settings.queue).and_then(|queue| {
                let recorded = queue.record_shown(&showing);
                let _ = self.queue.set(queue);
                recorded
            }),
        };
        if let Err(error) = recorded {
            tracing::warn!(error = error_chain(&error), "failed to record what a session was shown");
        }
    }
}
