//! How a server works.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actors::Setup;
use brain::{Brain, StatePaths};

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
    /// How many brains are worked on at once, and how many are synced beside them.
    pub brains_at_once: usize,
    /// How often this server looks for work.
    pub poll_every: Duration,
    /// The most passages of an answer.
    pub limit: usize,
    /// The usual most tokens of an answer.
    pub budget_tokens: usize,
}
