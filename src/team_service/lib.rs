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
mod settings;

use std::path::PathBuf;
use std::sync::Arc;

use actors::ServerWorker;
use git::Lock;
use team::{ServerId, TeamStore};
use tokio::sync::watch;

pub use brain_clone::{CloneError, check_remote};
pub use settings::{Settings, SetupOf};

use crate::access::TeamAccess;
use crate::captures::TeamCaptures;
use crate::dispatcher::Dispatcher;
use crate::health::{Counters, TeamHealth};
use crate::questions::TeamQuestions;

/// A server at work: its parts for HTTP, and its dispatcher.
pub struct TeamServer {
    parts: server::Parts,
    dispatcher: Dispatcher,
    /// Two servers must not work in one clone.
    lock: Lock,
}

impl TeamServer {
    /// Registers a server. Blocks.
    ///
    /// # Errors
    /// When the database cannot be used, or the model's tokenizer cannot be loaded.
    pub fn new(store: TeamStore, settings: Settings) -> Result<Self, StartError> {
        store.check()?;
        system::file::create_private_folder(&settings.folder)
            .map_err(|source| StartError::Folder { path: settings.folder.clone(), source })?;
        let lock = Lock::try_acquire(&settings.folder.join("server.lock"))?;
        let Some(lock) = lock else { return Err(StartError::FolderInUse { path: settings.folder }) };
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
        Ok(Self { parts, dispatcher: Dispatcher::new(store, id, settings, worker, counters), lock })
    }

    /// What the HTTP side is given.
    pub fn parts(&self) -> server::Parts {
        self.parts.clone()
    }

    /// Works on captures and brains until `stop` says so; then finishes what is under way.
    pub async fn work(self, stop: watch::Receiver<bool>) {
        self.dispatcher.run(stop).await;
        drop(self.lock);
    }
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The database cannot be used.
    #[error(transparent)]
    Team(#[from] team::Error),
    /// The folder of the clones cannot be used.
    #[error("failed to use {path}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the operating system reported.
        #[source]
        source: std::io::Error,
    },
    /// Another server works in the folder.
    #[error("another server works in {path}: give this one a folder of its own (--folder)")]
    FolderInUse {
        /// The folder.
        path: PathBuf,
    },
    /// The folder cannot be locked.
    #[error("failed to lock the folder of the clones")]
    Lock(#[from] git::Error),
    /// The model cannot be loaded.
    #[error("failed to load the embedding model")]
    Model(#[from] embed::Error),
}
