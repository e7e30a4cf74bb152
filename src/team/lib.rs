//! A team's shared state on PostgreSQL: the queue's ledger of several brains, who may use them, and which servers run.
//!
//! Several servers work on one database. Each transaction says for which brain it is, and PostgreSQL itself hides the
//! rows of all others (row-level security). A server holds a claim for the length of a lease by the database's clock;
//! a late writer is refused, because its claim's token is no longer the row's. This crate never runs a stage's work,
//! speaks no HTTP, and starts no process but a [private PostgreSQL](private_postgres).
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use queue::{Ledger as _, Stage};
//! use team::{NewBrain, TeamLedger, TeamStore};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = TeamStore::connect("postgres://nugget@db.example.org/nugget")?;
//! store.migrate()?;
//! let brain = store.create_brain(&NewBrain {
//!     slug: "payments",
//!     remote: "https://git.example.org/payments-brain.git",
//!     default_branch: Some("main"),
//!     model: "builtin",
//!     dimensions: 384,
//! }, "admin")?;
//! let server = store.register_server("host-1", env!("CARGO_PKG_VERSION"))?;
//! let ledger = TeamLedger::new(store, brain, server, Duration::from_secs(60));
//! let claim = ledger.claim(Stage::Extraction, jiff::Timestamp::now())?;
//! # let _ = claim;
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs, clippy::missing_errors_doc)]

// The tests' support, which the integration tests share, names the crate from outside.
#[cfg(test)]
extern crate self as team;

mod access;
mod dispatch;
mod error;
mod index_access;
mod ledger;
mod migrations;
pub mod private_postgres;
mod servers;
mod shared_index;
mod store;
#[path = "tests/support.rs"]
#[expect(dead_code, reason = "shared with the integration tests")]
#[cfg(test)]
mod support;
mod tls;

pub use access::{AuditEntry, BrainRow, FoundToken, NewBrain, NewToken, Scope, Token, TokenHash};
pub use dispatch::{ReadyBrain, StageAge, TAKEOVERS_MAX};
pub use error::{Error, Result};
pub use ledger::{Accepted, BrainStatus, NewCapture, TeamLedger};
pub use migrations::Migrated;
pub use servers::{LiveServer, ServerId};
pub use shared_index::{
    DIMENSIONS_MAX, EF_SEARCH, EXACT_CHUNKS_MAX, GRAPH_DIMENSIONS, IndexError, PublishMode, Published,
    Source, SourceEmbedding, SourceUnit, TeamSnapshot, UnitDigest,
};
pub use store::{Brain, BrainId, PooledClient, TeamStore, Transaction};
