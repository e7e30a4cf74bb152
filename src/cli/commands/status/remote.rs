//! The brain's remote in `nugget status`.

use brain::Brain;
use jiff::Timestamp;
use queue::{Pause, Queue, Stage};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::output;

/// The brain's remote, as far as it is known without asking it.
pub(super) struct Remote {
    pub(super) url: String,
    pub(super) lag: Option<git::Lag>,
    pub(super) synced: Option<Timestamp>,
    pub(super) trouble: Option<String>,
    pub(super) waits: Option<Pause>,
}

impl Remote {
    pub(super) fn look(brain: &Brain) -> Option<Self> {
        let name = brain.manifest().ok().and_then(|manifest| manifest.default_branch);
        let repository = git::Repository::open(brain.root()).ok()?.with_default_branch(name.as_deref());
        let url = repository.remote().ok()??.display_url();
        Some(Self { url, lag: repository.lag().ok(), synced: None, trouble: None, waits: None })
    }

    pub(super) fn json(&self) -> Value {
        let lag = self.lag.as_ref();
        json!({
            "url": self.url,
            "branch": lag.map(|lag| &lag.branch),
            "behind": lag.map_or(0, |lag| lag.behind),
            "ahead": lag.map_or(0, |lag| lag.ahead),
            "left": lag.and_then(|lag| lag.blocked.as_ref()).map(ToString::to_string),
            "synced": self.synced,
            "trouble": self.trouble,
            "waits": self.waits.as_ref().map(|pause| {
                json!({ "since": pause.since, "until": pause.until, "why": pause.why })
            }),
        })
    }

    /// What the ledger knows of the last look and of what is put off.
    pub(super) fn look_into(&mut self, queue: &Queue) -> Result<(), CliError> {
        let last = actors::sync::last_report(queue)?;
        self.trouble = last.as_ref().and_then(|(_, synced)| synced.trouble.clone());
        self.synced = last.map(|(at, _)| at);
        self.waits = queue.pauses()?.into_iter().find(|pause| pause.stage == Stage::Delivery);
        Ok(())
    }

    /// In lines: where it is, then what is not as it should be.
    pub(super) fn told(&self, now: Timestamp) -> (String, Vec<String>) {
        let synced = match self.synced {
            Some(at) => format!("looked at {} ago", output::age(at, now)),
            None => "not looked at yet: nugget sync".to_owned(),
        };
        let head = format!("{} ({synced})", output::safe(&self.url));
        let mut troubles = Vec::new();
        if let Some(lag) = &self.lag {
            let commits =
                |count: usize| if count == 1 { "1 commit".to_owned() } else { format!("{count} commits") };
            if lag.behind > 0 {
                let why = lag.blocked.as_ref().map(|why| format!(": {}", output::safe(&why.to_string())));
                troubles.push(format!(
                    "the checkout is {} behind {}{}",
                    commits(lag.behind),
                    output::safe(&lag.branch),
                    why.unwrap_or_default()
                ));
            }
            if lag.ahead > 0 {
                let branch = output::safe(&lag.branch);
                troubles.push(format!("{} of {branch} not pushed yet (git push)", commits(lag.ahead)));
            }
        }
        if let Some(trouble) = &self.trouble {
            troubles.push(format!("the last look failed: {}", output::safe(trouble)));
        }
        if let Some(pause) = &self.waits {
            let left = pause.until.duration_since(now).as_secs().max(0);
            troubles.push(format!(
                "delivery waits, for {}; again in {left} s: {}",
                output::age(pause.since, now),
                output::safe(&pause.why)
            ));
        }
        (head, troubles)
    }
}
