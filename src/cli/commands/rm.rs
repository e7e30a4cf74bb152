//! `nugget rm`: proposes to remove merged units.

use super::completions;
use crate::context::Context;
use crate::error::CliError;
use crate::output::{self, counted};
use crate::unit_change::{Change, MergedUnits};

const AFTER: &str = "\
The removal is proposed on a branch, as captures are, and waits for `nugget
review`: nothing is gone before you merge it, and git keeps what was there.

Examples:
  nugget rm bounded-worker-pools
  nugget rm old-cache-rule old-retry-rule";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct RmArgs {
    /// The units' ids or their beginnings, as `nugget list` shows them
    #[arg(required = true, value_name = "UNIT", add = clap_complete::ArgValueCompleter::new(completions::units))]
    units: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl RmArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let (config, brain, paths) = context.open()?;
        let units = MergedUnits::open(&brain)?;
        let mut removed = self.units.iter().map(|id| units.find(id)).collect::<Result<Vec<_>, _>>()?;
        removed.sort_by(|a, b| a.path.cmp(&b.path));
        removed.dedup_by(|a, b| a.path == b.path);
        let related = units.related_to(&removed);
        if !related.is_empty() {
            let count = counted(related.len() as u64, "unit");
            let listed: Vec<String> = related.iter().take(5).map(|id| output::safe(id)).collect();
            output::note(&format!("note: {count} with a relation to what is removed: {}", listed.join(", ")));
        }
        let changes: Vec<_> = removed.into_iter().map(|unit| (unit, Change::Remove)).collect();
        units.propose(&brain, &config, &paths, &changes, self.json)
    }
}
