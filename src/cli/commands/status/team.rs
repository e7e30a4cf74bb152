//! The team's server that a brain belongs to, in `nugget status`.

use brain::StatePaths;
use jiff::Timestamp;
use queue::{Pause, Queue, Stage};
use serde_json::{Value, json};
use team_client::Login;

use super::remote::pause_json;
use crate::error::CliError;
use crate::output;

/// What is known about the team's server without network access.
pub(super) struct ServerStatus {
    pub(super) url: String,
    pub(super) brain: String,
    /// Why nothing is handed over at present.
    pub(super) pause: Option<Pause>,
}

impl ServerStatus {
    pub(super) fn read(places: &StatePaths) -> Option<Self> {
        let login = Login::read(places.folder()).ok()??;
        Some(Self { url: login.url, brain: login.brain, pause: None })
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

    /// Why captures wait for it.
    pub(super) fn problem(&self, now: Timestamp) -> Option<String> {
        let pause = self.pause.as_ref()?;
        let (since, why) = (output::age(pause.since, now), output::safe(&pause.why));
        Some(format!("nothing has been handed over for {since}: {why}"))
    }
}
