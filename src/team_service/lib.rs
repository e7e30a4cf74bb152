//! What one server of a team does: it takes captures from laptops, works on them with the same actors as a laptop,
//! publishes each brain's index, and answers questions from PostgreSQL.
//!
//! It keeps nothing that another server could not make again: clones of brains and their local indexes are scratch
//! folders, and all that must last is in PostgreSQL and in git.

#![warn(missing_docs, clippy::missing_errors_doc)]

mod access;
mod brain_clone;
mod captures;
mod dispatcher;
mod health;
mod publishing;
mod questions;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actors::{ServerWorker, Setup};
use brain::{Brain, StatePaths};
use team::{BrainRow, ServerId, TeamStore};
use tokio::sync::watch;

pub use brain_clone::{CloneError, check_remote};

use crate::access::TeamAccess;
use crate::captures::TeamCaptures;
use crate::dispatcher::Dispatcher;
use crate::health::{Counters, TeamHealth};
use crate::questions::TeamQuestions;

/// Makes the setup of a brain's clone: the extractor, the budget and what else the server's settings say.
pub type SetupOf = Arc<dyn Fn(Brain, StatePaths) -> Setup + Send + Sync>;

/// How a server works.
#[derive(Clone)]
pub struct Settings {
    /// The folder of the clones. It can be deleted while no server runs.
    pub folder: PathBuf,
    /// See [`SetupOf`].
    pub setup: SetupOf,
    /// The embedding model, of captures and of questions.
    pub embed: embed::Settings,
    /// The setting `github.api`.
    pub github_api: String,
    /// How long a claim lasts that is not renewed: the time until another server takes over.
    pub lease: Duration,
    /// How often each brain is synced with git.
    pub sync_every: Duration,
    /// How many brains are worked on at once.
    pub brains_at_once: usize,
    /// How often this server looks for work.
    pub poll_every: Duration,
    /// The most passages of an answer.
    pub limit: usize,
    /// The usual most tokens of an answer.
    pub budget_tokens: usize,
}

/// A server at work: its parts for HTTP, and its dispatcher.
pub struct TeamServer {
    parts: server::Parts,
    dispatcher: Dispatcher,
}

impl TeamServer {
    /// Registers a server. Blocks.
    ///
    /// # Errors
    /// When the database cannot be used, or the model's tokenizer cannot be loaded.
    pub fn new(store: TeamStore, settings: Settings) -> Result<Self, StartError> {
        store.check()?;
        let host = String::from_utf8_lossy(&system::process::host_name()).into_owned();
        let id: ServerId = store.register_server(&host, env!("CARGO_PKG_VERSION"))?;
        let counters = Arc::<Counters>::default();
        let worker = ServerWorker::new(settings.embed.clone());
        let parts = server::Parts {
            access: Arc::new(TeamAccess { store: store.clone() }),
            captures: Arc::new(TeamCaptures { store: store.clone(), server: id, lease: settings.lease }),
            questions: Arc::new(TeamQuestions::new(store.clone(), &settings)?),
            health: Arc::new(TeamHealth { store: store.clone(), counters: Arc::clone(&counters) }),
        };
        Ok(Self { parts, dispatcher: Dispatcher::new(store, id, settings, worker, counters) })
    }

    /// What the HTTP side is given.
    pub fn parts(&self) -> server::Parts {
        self.parts.clone()
    }

    /// Works on captures and brains until `stop` says so; then finishes what is under way.
    pub async fn work(self, stop: watch::Receiver<bool>) {
        self.dispatcher.run(stop).await;
    }
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The database cannot be used.
    #[error(transparent)]
    Team(#[from] team::Error),
    /// The model cannot be loaded.
    #[error("failed to load the embedding model")]
    Model(#[from] embed::Error),
}

/// The name of a brain's scratch folder.
pub(crate) fn folder_name(brain: &BrainRow) -> String {
    format!("{}-{}", brain.id, knowledge::name::slug(&brain.slug))
}
