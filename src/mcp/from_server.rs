//! Questions to the team's server that a brain belongs to.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rmcp::model::JsonObject;
use team_client::{CurrentServer, TeamAnswer};

/// How long the server may take for an answer. An answer from this machine takes a hundredth of it.
const BUDGET: Duration = Duration::from_millis(1500);
/// For so long after it has failed to answer, the server is not asked again: no session waits for it at each call.
const PAUSE: Duration = Duration::from_secs(30);

/// A question that is to be answered on this machine.
pub(crate) struct AskedHere {
    /// What to say below the answer: why it is not the server's. Empty if the brain belongs to none.
    pub(crate) why: String,
}

/// The team's server that a brain belongs to, if any, and when it last failed to answer.
pub(crate) struct ServerLink {
    server: CurrentServer,
    begun: Instant,
    /// In milliseconds from `begun`, plus one; 0 for never.
    failed_at: AtomicU64,
}

impl ServerLink {
    pub(crate) fn new(state_folder: &Path) -> Self {
        Self { server: CurrentServer::new(state_folder), begun: Instant::now(), failed_at: AtomicU64::new(0) }
    }

    /// The answer of the team's server.
    pub(crate) async fn ask(&self, arguments: &JsonObject) -> Result<TeamAnswer, AskedHere> {
        let server = match self.server.get() {
            Ok(Some(server)) => server,
            Ok(None) => return Err(AskedHere { why: String::new() }),
            Err(error) => return Err(AskedHere { why: format!("\nFrom this machine's index: {error}.\n") }),
        };
        if !server.may_ask() {
            // As was said at the login.
            return Err(AskedHere { why: String::new() });
        }
        let url = server.url();
        let here = |why: &str| {
            Err(AskedHere { why: format!("\nFrom this machine's index and not from {url}: {why}.\n") })
        };
        let now = self.begun.elapsed().as_millis() as u64 + 1;
        let failed_at = self.failed_at.load(Ordering::SeqCst);
        if failed_at > 0 && now.saturating_sub(failed_at) < PAUSE.as_millis() as u64 {
            return here("the team server did not answer a moment ago");
        }
        match server.client.ask(server.brain(), arguments, BUDGET).await {
            Ok(answer) => {
                self.failed_at.store(0, Ordering::SeqCst);
                Ok(answer)
            }
            Err(error) => {
                tracing::warn!(%error, "the team's server did not answer");
                self.failed_at.store(now, Ordering::SeqCst);
                here(&error.to_string())
            }
        }
    }
}
