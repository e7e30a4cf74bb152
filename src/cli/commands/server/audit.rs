//! `nugget server audit`: who did what on a team's servers.

use std::collections::HashMap;

use serde_json::json;
use team::BrainId;

use super::database::Database;
use crate::error::CliError;
use crate::output::{self, safe};
use crate::whole_number::whole_number;

#[derive(clap::Args)]
#[command(
    after_help = "Recorded are tokens and brains that were created, changed or removed, captures\nthat were handed over, and requests that were refused; no content is.\n\nExamples:\n  nugget server audit\n  nugget server audit --limit 1000 --json"
)]
pub(crate) struct AuditArgs {
    /// How many acts, the latest first
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = whole_number(1_usize..=100_000))]
    limit: usize,
    #[command(flatten)]
    database: Database,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl AuditArgs {
    pub(super) fn run(self) -> Result<(), CliError> {
        let store = self.database.connect_migrated()?;
        let acts = store.audit(self.limit)?;
        let names: HashMap<BrainId, String> =
            store.brains()?.into_iter().map(|brain| (brain.id, brain.slug)).collect();
        // A brain that was removed has its number left.
        let name = |brain: BrainId| names.get(&brain).cloned().unwrap_or_else(|| format!("no. {}", brain.0));
        if self.json {
            let acts = acts.iter().map(|act| {
                json!({
                    "at": act.at, "who": act.subject, "what": act.action, "brain": act.brain.map(name),
                    "object": act.object,
                })
            });
            return output::print_json(&acts.collect::<Vec<_>>());
        }
        if acts.is_empty() {
            return output::print("nothing is recorded yet\n");
        }
        let rows = acts.iter().map(|act| {
            vec![
                act.at.strftime("%Y-%m-%d %H:%M:%S").to_string(),
                safe(&act.subject),
                safe(&act.action),
                act.brain.map(name).map_or_else(String::new, |name| safe(&name)),
                act.object.map_or_else(String::new, |object| object.to_string()),
            ]
        });
        output::print(&output::table(&["WHEN (UTC)", "WHO", "WHAT", "BRAIN", "NUMBER"], rows))
    }
}
