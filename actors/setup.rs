//! What the actors of a brain need to know.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brain::{Brain, StatePaths};
use extract::Extractor;
use git::Repository;
use queue::Budget;

use crate::archiving;
use crate::learning;
use crate::model_rerank::ModelReranker;
use crate::remote::DeliverySettings;
use crate::settings_mark::SettingsMark;
use crate::sweep;

/// What the actors of a brain need to know.
#[derive(Clone)]
pub struct Setup {
    /// The brain that they serve.
    pub brain: Brain,
    /// The folder of the code that questions are about; `None` if there is none.
    pub workspace: Option<PathBuf>,
    /// Whether the brain is a clone of a team's server, in which no person works: a branch that it lacks was made in
    /// another clone, and is not one that a person has deleted.
    pub is_server: bool,
    /// Its state folder.
    pub places: StatePaths,
    /// Tells whether these settings are still those of now; the default one says that they are.
    pub settings: SettingsMark,
    /// Settings of the embedding model.
    pub embed: embed::Settings,
    /// Finds knowledge in conversations.
    pub extractor: Arc<dyn Extractor>,
    /// What calls of language models may cost.
    pub budget: Budget,
    /// Asks a language model for the order of results; `None` for the local order.
    pub reranker: Option<ModelReranker>,
    /// Candidates below it are rejected, from 0 to 1.
    pub confidence_min: f64,
    /// The branch of reviewed knowledge, if `brain.yaml` names it.
    pub default_branch: Option<String>,
    /// How long a worker waits for more work before it exits.
    pub linger: Duration,
    /// Settings for the brain's remote, if it has one.
    pub delivery: DeliverySettings,
    /// The projects whose sessions are not captured, whoever hands them in.
    pub exclude: transcript::Exclude,
    /// How sessions that the hook missed are found; `None` to leave them.
    pub sweep: Option<sweep::Settings>,
    /// How sessions are archived; `None` to archive none.
    pub archive: Option<archiving::Settings>,
    /// How the order of answers is learned; `None` to learn and to record nothing.
    pub learning: Option<learning::Settings>,
    /// Whether a worker makes a reflection pass once a day.
    pub reflects_daily: bool,
    /// How often agents may write notes within an hour, as long as what they wrote waits for its review.
    pub agent_writes_per_hour: usize,
    /// The archive whose memories of the project are candidates for answers; `None` to leave them out.
    pub memories: Option<PathBuf>,
}

impl Setup {
    /// A brain with the built-in embedding model and nothing that is optional: no workspace, remote, sweep, archive or
    /// language model.
    pub fn new(brain: Brain, places: StatePaths, extractor: impl Extractor + 'static) -> Self {
        Self::shared(brain, places, Arc::new(extractor))
    }

    /// As [`new`](Self::new), with an extractor that other brains use, too.
    pub fn shared(brain: Brain, places: StatePaths, extractor: Arc<dyn Extractor>) -> Self {
        Self {
            brain,
            workspace: None,
            is_server: false,
            places,
            settings: SettingsMark::default(),
            embed: embed::Settings::default(),
            extractor,
            budget: Budget { tokens: 0, microdollars: 0 },
            reranker: None,
            confidence_min: 0.5,
            default_branch: None,
            linger: Duration::ZERO,
            delivery: DeliverySettings::default(),
            exclude: transcript::Exclude::default(),
            sweep: None,
            archive: None,
            learning: None,
            reflects_daily: false,
            agent_writes_per_hour: 60,
            memories: None,
        }
    }

    /// The brain's repository.
    pub(crate) fn repository(&self) -> Result<Repository, git::Error> {
        Ok(Repository::open(self.brain.root())?.with_default_branch(self.default_branch.as_deref()))
    }
}
