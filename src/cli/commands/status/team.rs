//! The team's server that a brain belongs to, in `nugget status`.

use brain::StatePaths;
use jiff::Timestamp;
use queue::{Pause, Queue, Stage};
use serde_json::{Value, json};
use team_client::{Login, LoginError};

use super::remote::pause_json;
use crate::error::CliError;
use crate::output;

/// What is known about the team's server without network access.
pub(super) struct ServerStatus {
    pub(super) url: String,
    pub(super) brain: String,
    /// When the token expires, if that is soon.
    pub(super) expires_soon: Option<Timestamp>,
    /// Why nothing is handed over at present.
    pub(super) pause: Option<Pause>,
}

impl ServerStatus {
    pub(super) fn read(places: &StatePaths) -> Result<Option<Self>, LoginError> {
        let Some(login) = Login::read(places.folder())? else { return Ok(None) };
        let expires_soon = login.expires_soon(Timestamp::now());
        Ok(Some(Self { url: login.url, brain: login.brain, expires_soon, pause: None }))
    }

    /// Adds what the queue knows of a pause.
    pub(super) fn read_queue(&mut self, queue: &Queue) -> Result<(), CliError> {
        self.pause = queue.pauses()?.into_iter().find(|pause| pause.stage == Stage::Upload);
        Ok(())
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "url": self.url,
            "brain": self.brain,
            "waits": pause_json(self.pause.as_ref()),
        })
    }

    /// The server in one line.
    pub(super) fn describe(&self) -> String {
        format!("{} (brain {})", output::safe(&self.url), output::safe(&self.brain))
    }

    /// Why captures wait for it, and that they soon may.
    pub(super) fn problems(&self, now: Timestamp) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(pause) = &self.pause {
            let (since, why) = (output::age(pause.since, now), output::safe(&pause.why));
            problems.push(format!(
                "nothing has been handed over for {since}: {why}; captures wait here until then"
            ));
        }
        if let Some(expires) = self.expires_soon {
            let ends = if expires > now { "ends" } else { "ended" };
            problems.push(format!(
                "the token for the team's server {ends} on {}: ask for another one, then nugget login",
                expires.strftime("%Y-%m-%d")
            ));
        }
        problems
    }
}
