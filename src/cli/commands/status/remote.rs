//! The brain's remote in `nugget status`.

use brain::Brain;
use jiff::Timestamp;
use queue::{Pause, Queue, Stage};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::output::{self, counted};
use crate::remote;

/// Why a stage waits, in JSON.
pub(super) fn pause_json(pause: Option<&Pause>) -> Option<Value> {
    pause.map(|pause| json!({ "since": pause.since, "until": pause.until, "why": pause.why }))
}

/// What is known about the brain's remote without network access.
pub(super) struct RemoteStatus {
    pub(super) url: String,
    pub(super) lag: Option<git::Lag>,
    pub(super) synced: Option<Timestamp>,
    pub(super) error: Option<String>,
    /// Whether the remote takes no pushes of its default branch.
    pub(super) is_refused: bool,
    /// How many captures have no pull request, as there is no token.
    pub(super) without_token: usize,
    pub(super) pause: Option<Pause>,
}

impl RemoteStatus {
    pub(super) fn read(brain: &Brain) -> Option<Self> {
        let repository = remote::open_repository(brain).ok()?;
        let url = repository.remote().ok()??.display_url();
        let lag = repository.lag().ok();
        Some(Self { url, lag, synced: None, error: None, is_refused: false, without_token: 0, pause: None })
    }

    pub(super) fn to_json(&self) -> Value {
        let lag = self.lag.as_ref();
        json!({
            "url": self.url,
            "branch": lag.map(|lag| &lag.branch),
            "behind": lag.map_or(0, |lag| lag.behind),
            "ahead": lag.map_or(0, |lag| lag.ahead),
            "left": lag.and_then(|lag| lag.blocked.as_ref()).map(ToString::to_string),
            "synced": self.synced,
            "trouble": self.error,
            "waits": pause_json(self.pause.as_ref()),
        })
    }

    /// Adds what the queue knows of the last sync and of a pause of deliveries.
    pub(super) fn read_queue(&mut self, queue: &Queue) -> Result<(), CliError> {
        let last = actors::sync::last_report(queue)?;
        self.is_refused = last.as_ref().is_some_and(|(_, synced)| synced.is_refused);
        self.without_token = last.as_ref().map_or(0, |(_, synced)| synced.without_token);
        self.error = last.as_ref().and_then(|(_, synced)| synced.error.clone());
        self.synced = last.map(|(at, _)| at);
        self.pause = queue.pauses()?.into_iter().find(|pause| pause.stage == Stage::Delivery);
        Ok(())
    }

    /// The remote in one line, and its problems. While an operation of git's is in progress, git refuses what is advised
    /// for a branch that lacks commits.
    pub(super) fn describe(&self, now: Timestamp, is_unfinished: bool) -> (String, Vec<String>) {
        let synced = match self.synced {
            Some(at) => format!("checked {} ago", output::age(at, now)),
            None => "not checked yet: nugget sync".to_owned(),
        };
        let head = format!("{} ({synced})", output::safe(&self.url));
        let mut problems = Vec::new();
        let is_refused = self.is_refused && self.lag.as_ref().is_some_and(|lag| lag.ahead > 0);
        let lag = self.lag.as_ref().filter(|_| !is_unfinished);
        if let Some(why) = lag.and_then(|lag| lag.blocked.as_ref()).filter(|why| why.names_its_fix()) {
            problems.push(output::safe(&why.to_string()));
        } else if let Some(lag) = lag {
            if lag.behind > 0 {
                let why = lag.blocked.as_ref().map(|why| format!(": {}", output::safe(&why.to_string())));
                problems.push(format!(
                    "the checkout is {} behind {}{}",
                    counted(lag.behind as u64, "commit"),
                    output::safe(&lag.branch),
                    why.unwrap_or_default()
                ));
            }
            if lag.ahead > 0 {
                let branch = output::safe(&lag.branch);
                // A push of what has diverged is refused.
                let pull = if lag.behind > 0 { "git pull --no-rebase, then " } else { "" };
                let commits = counted(lag.ahead as u64, "commit");
                problems.push(match is_refused {
                    true => format!(
                        "{commits} of {branch} not pushed, and the remote takes no pushes of it: {pull}`git push origin \
                         {branch}:refs/heads/NAME` and open a pull request, or have somebody push it who may"
                    ),
                    false => format!("{commits} of {branch} not pushed yet ({pull}git push)"),
                });
            }
        }
        if let Some(error) = self.error.as_ref().filter(|_| !is_refused) {
            problems.push(format!("the last check failed: {}", output::safe(error)));
        }
        if self.without_token > 0 {
            let branches = counted(self.without_token as u64, "branch");
            problems.push(format!(
                "{branches} pushed without a pull request: no token (`gh auth login`, or set GITHUB_TOKEN, then `nugget sync`)"
            ));
        }
        if let Some(pause) = &self.pause {
            let left = pause.until.duration_since(now).as_secs().max(0);
            problems.push(format!(
                "deliveries have waited for {}, next try in {left} s: {}",
                output::age(pause.since, now),
                output::safe(&pause.why)
            ));
        }
        (head, problems)
    }
}
